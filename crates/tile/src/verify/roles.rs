//! Checks of clusters and roles: their threads and registers, and what stands where.

use tilewright_machine::{Arch, SyncOp};

use super::checker::{Checker, count};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{PipelineId, Stmt, StmtKind, TensorId, TensorKind};

/// The most blocks of a cluster.
const MAX_CLUSTER: i64 = 16;

/// The most modes of a cluster.
const MAX_CLUSTER_MODES: usize = 2;

/// The share of a block's registers that a role's threads have.
struct Share<'a> {
    name: &'a str,
    threads: i64,
    registers: i64,
    span: Origin,
}

impl Checker<'_> {
    pub(super) fn misplaced(&mut self, span: Origin, message: String, help: impl Into<String>) {
        self.report(Diagnostic::new(Code::Misplaced, span, message).help(help));
    }

    pub(super) fn pipeline_name(&self, id: PipelineId) -> String {
        self.program.pipeline(id).name.clone()
    }

    // The launch.

    /// Checks the cluster and, where the grid is known, that it is made of whole ones.
    pub(super) fn cluster(&mut self) {
        let program = self.program;
        let span = program.cluster_span;
        let modes = program.cluster.len();
        if !(1..=MAX_CLUSTER_MODES).contains(&modes) {
            let message = format!("a cluster cannot have {}", count(modes, "mode"));
            let help = "`cluster(4)`: 4 neighbours along x; `cluster(2, 2)`: the same 4, of which two along each mode share tiles";
            self.report(Diagnostic::new(Code::BadLaunch, span, message).label("one or two").help(help));
            return;
        }
        let what = "the number of blocks of a cluster";
        let extents: Vec<_> =
            program.cluster.iter().filter_map(|extent| self.literal(extent, span, what)).collect();
        if extents.len() < modes {
            return;
        }
        let most = extents.iter().find(|extent| !(1..=MAX_CLUSTER).contains(*extent));
        let blocks = most.copied().unwrap_or_else(|| extents.iter().product());
        if !(1..=MAX_CLUSTER).contains(&blocks) {
            self.report(
                Diagnostic::new(Code::BadLaunch, span, format!("a cluster cannot have {blocks} blocks"))
                    .label(format!("from 1 to {MAX_CLUSTER}"))
                    .help("2 and 4 are usual; more than 8 do not run everywhere"),
            );
            return;
        }
        if let Some(Some(x)) = program.grid.first().map(Expr::as_int)
            && x % blocks != 0
        {
            let message =
                format!("the grid has {x} blocks along x, no multiple of the {blocks} of a cluster");
            self.report(
                Diagnostic::new(Code::BadLaunch, program.grid_span, message)
                    .related(span, "the cluster")
                    .help("a cluster is made of neighbours along x: round the grid up"),
            );
        }
    }

    /// True if the blocks of the launch are in clusters of several.
    pub(super) fn clustered(&self) -> bool {
        self.program.cluster.iter().any(|extent| extent.as_int() != Some(1))
    }

    /// Checks the roles' threads and registers together.
    pub(super) fn roles(&mut self, threads: Option<u32>) {
        let program = self.program;
        let mut sum = Some(0i64);
        let mut shares: Option<Vec<Share<'_>>> = Some(Vec::new());
        let mut given: Option<(&str, bool)> = None;
        for stmt in &program.body {
            let StmtKind::Role { name, warpgroups, registers: asked, .. } = &stmt.kind else { continue };
            let what = format!("the number of warpgroups of `{name}`");
            let own = self.literal(warpgroups, stmt.span, &what);
            let own = own.filter(|_| self.at_least_one(warpgroups, stmt.span, &what));
            sum = sum.zip(own).map(|(sum, own)| sum.saturating_add(own));
            match given {
                Some((other, has)) if has != asked.is_some() => {
                    let (with, without) = if has { (other, name.as_str()) } else { (name.as_str(), other) };
                    let message = format!(
                        "`{with}` says how many registers its threads have, and `{without}` does not"
                    );
                    let help = "give them for every role, or for none";
                    self.report(Diagnostic::new(Code::BadLaunch, stmt.span, message).help(help));
                }
                _ => given = Some((name, asked.is_some())),
            }
            let Some(asked) = asked else { continue };
            let value = self.literal(asked, stmt.span, &format!("the number of registers of `{name}`"));
            if let Some(value) = value.filter(|value| value % 8 != 0 || !(24..=240).contains(value)) {
                let message = format!("a thread of `{name}` cannot have {value} registers");
                self.report(
                    Diagnostic::new(Code::BadLaunch, stmt.span, message)
                        .label("a multiple of 8, from 24 to 240")
                        .help("24 to 40 for a role that only copies, 160 to 240 for one that multiplies"),
                );
            }
            let share = value.zip(own).map(|(registers, warpgroups)| {
                let threads = warpgroups.saturating_mul(128);
                Share { name, threads, registers, span: stmt.span }
            });
            if let Some((all, share)) = shares.as_mut().zip(share) {
                all.push(share);
            } else {
                shares = None;
            }
        }
        if given.is_none() {
            return;
        }
        if let (Some(sum), Some(threads)) = (sum, threads)
            && sum.checked_mul(128) != Some(i64::from(threads))
        {
            let message = format!(
                "the roles have {}, and the block has {threads} threads",
                count(usize::try_from(sum).unwrap_or(usize::MAX), "warpgroup")
            );
            let help = format!("a warpgroup has 128 threads: write `threads({})`", sum.saturating_mul(128));
            self.report(Diagnostic::new(Code::BadLaunch, program.threads_span, message).help(help));
        }
        if let (Some(shares), Some(threads)) = (shares, threads) {
            self.pool(&shares, threads);
        }
    }

    /// The roles' registers come out of the pool of the block: `setmaxnreg` redistributes what the launch gives its threads, the same
    /// number to each, and a role that asks for more than is left waits for ever. Blocks that are resident together have a share each.
    fn pool(&mut self, shares: &[Share<'_>], threads: u32) {
        let budgets = SyncOp::SetMaxRegisters { more: true, registers: 24 };
        let Some(arch) = Arch::with(budgets.needs()) else { return };
        let resident =
            self.program.resident.as_int().and_then(|blocks| u32::try_from(blocks).ok()).unwrap_or(1);
        let together = threads.saturating_mul(resident.max(1));
        let each = i64::from(arch.limits().registers_of_a_thread_at_launch(together));
        let pool = each * i64::from(threads);
        let mut taken = 0i64;
        for (i, share) in shares.iter().enumerate() {
            let own = share.threads.saturating_mul(share.registers);
            taken = taken.saturating_add(own);
            if taken <= pool {
                continue;
            }
            let list: Vec<String> = shares
                .iter()
                .map(|share| format!("`{}` {} × {}", share.name, share.threads, share.registers))
                .collect();
            let all = shares
                .iter()
                .fold(0i64, |sum, share| sum.saturating_add(share.threads.saturating_mul(share.registers)));
            let of = if resident > 1 { format!("each of {resident} blocks") } else { "a block".to_string() };
            let message = format!(
                "the roles' threads have {all} registers together ({}), and {of} of {threads} threads has {pool}, {each} for each",
                list.join(", ")
            );
            let others = shares.iter().enumerate().filter(|(other, _)| *other != i);
            let others = others.fold(0i64, |sum, (_, other)| {
                sum.saturating_add(other.threads.saturating_mul(other.registers))
            });
            let most = (pool.saturating_sub(others) / share.threads.max(1)).min(240) / 8 * 8;
            let help = if most >= 24 {
                format!("give `{}` at most {most} beside the others", share.name)
            } else {
                "give the roles fewer, for instance 24 to the one that copies".to_string()
            };
            self.report(Diagnostic::new(Code::BadLaunch, share.span, message).help(help));
            return;
        }
    }

    // Where statements stand.

    /// Reports a statement that stands where it cannot, for roles or stages.
    pub(super) fn place(&mut self, stmt: &Stmt) {
        let span = stmt.span;
        match &stmt.kind {
            StmtKind::Role { name, .. } if self.depth > 1 => {
                let message = format!("the role `{name}` stands inside another statement");
                self.misplaced(span, message, "roles stand side by side at the kernel's outermost level");
            }
            StmtKind::Pipeline(id) if self.depth > 1 => {
                let message =
                    format!("the pipeline `{}` is defined inside another statement", self.pipeline_name(*id));
                self.misplaced(span, message, "define it at the kernel's outermost level, before the roles");
            }
            StmtKind::Barrier(id) if self.depth > 1 => {
                let name = &self.program.barrier(*id).name;
                let message = format!("the named barrier `{name}` is defined inside another statement");
                self.misplaced(span, message, "define it at the kernel's outermost level, before the roles");
            }
            StmtKind::Role { .. }
            | StmtKind::Define(_)
            | StmtKind::Pipeline(_)
            | StmtKind::Barrier(_)
            | StmtKind::Let { .. } => {}
            _ if self.depth == 1 && !self.role_names.is_empty() => {
                let message = "beside roles stand only definitions, and this statement is none".to_string();
                self.misplaced(span, message, "move it into the role whose warpgroups do it");
            }
            _ => {}
        }
        self.comes_while_filling(stmt);
        self.accesses(stmt);
    }

    /// True if a tensor belongs to the threads and the stage at hand.
    pub(super) fn belongs(&mut self, id: TensorId, span: Origin) -> bool {
        let program = self.program;
        let (tensor, at) = (program.tensor(id), id.0 as usize);
        let name = &tensor.name;
        if let Some(pipeline) = self.stage_of[at] {
            if self.stages.iter().any(|stage| stage.pipeline == pipeline) {
                return true;
            }
            let pipeline = program.pipeline(pipeline);
            let message = format!("`{name}` is a stage of `{}`, and none is at hand here", pipeline.name);
            let help = format!("use it inside `produce {0}` or `consume {0}`", pipeline.name);
            self.report(
                Diagnostic::new(Code::Misplaced, span, message)
                    .related(pipeline.span, "made a stage here")
                    .help(help),
            );
            return false;
        }
        let Some(role) = self.role else { return true };
        match tensor.kind {
            TensorKind::Register { .. } if self.home[at].is_none() => {
                let message = format!("the register tensor `{name}` is defined outside the roles");
                self.report(
                    Diagnostic::new(Code::Misplaced, span, message)
                        .related(tensor.span, "defined here")
                        .help("registers are a role's own: define it in the role"),
                );
                false
            }
            TensorKind::Shared { .. } => {
                let first = *self.user[at].get_or_insert(role);
                if first != role && self.meet([first, role]) {
                    return true;
                }
                if first != role {
                    let names = [first, role].map(|role| self.role_names[role]);
                    let message = format!(
                        "the roles `{}` and `{}` both use the shared tensor `{name}`",
                        names[0], names[1]
                    );
                    self.report(
                        Diagnostic::new(Code::Misplaced, span, message)
                            .related(tensor.span, "defined here")
                            .help("roles wait for each other at stages, or at a named barrier: make it a pipeline's, or let both come to one"),
                    );
                }
                first == role
            }
            _ => true,
        }
    }
}
