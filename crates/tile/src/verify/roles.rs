//! Checks of roles, pipelines, loops over tiles, and asynchronous products.

use std::collections::BTreeSet;

use tilewright_machine::{Arch, DType, Memory, SyncOp};

use super::{Allowed, Checker, count, shape_text};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, SymbolId};
use crate::order::MAX_HILBERT;
use crate::program::{
    AsyncHow, PipelineId, Side, Stmt, StmtKind, TensorId, TensorKind, TensorRef, TileOrder,
};

/// The most blocks of a cluster.
const MAX_CLUSTER: i64 = 16;
/// The most stages of a pipeline.
const MAX_STAGES: i64 = 64;
/// The most groups of products that a `wait_gemm` leaves in flight.
const MAX_GROUPS: i64 = 7;

/// A stage that is open.
pub(super) struct OpenStage {
    pub(super) pipeline: PipelineId,
    pub(super) side: Side,
    /// What has been written of it.
    written: BTreeSet<TensorId>,
}

/// A `produce` or `consume`, and the role it stands in, by its number.
pub(super) struct Use {
    pipeline: PipelineId,
    side: Side,
    role: Option<usize>,
    span: Origin,
}

/// What a role's threads have of a block's registers.
struct Share<'a> {
    name: &'a str,
    threads: i64,
    registers: i64,
    span: Origin,
}

/// The word of a side.
fn word(side: Side) -> &'static str {
    match side {
        Side::Produce => "produce",
        Side::Consume => "consume",
    }
}

impl Checker<'_> {
    fn misplaced(&mut self, span: Origin, message: String, help: impl Into<String>) {
        self.report(Diagnostic::new(Code::Misplaced, span, message).help(help));
    }

    fn pipeline_name(&self, id: PipelineId) -> String {
        self.program.pipeline(id).name.clone()
    }

    // The launch.

    /// Checks the cluster and, where the grid is known, that it is made of whole ones.
    pub(super) fn cluster(&mut self) {
        let program = self.program;
        let span = program.cluster_span;
        let Some(blocks) = self.literal(&program.cluster, span, "the number of blocks of a cluster") else {
            return;
        };
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

    /// Whether the blocks of the launch are in clusters of several.
    fn clustered(&self) -> bool {
        self.program.cluster.as_int() != Some(1)
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
    /// number to each, and a role that asks for more than is left waits for ever.
    fn pool(&mut self, shares: &[Share<'_>], threads: u32) {
        let budgets = SyncOp::SetMaxRegisters { more: true, registers: 24 };
        let Some(arch) = Arch::with(budgets.needs()) else { return };
        let each = i64::from(arch.limits().registers_of_a_thread_at_launch(threads));
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
            let message = format!(
                "the roles' threads have {all} registers together ({}), and a block of {threads} threads has {pool}, {each} for each",
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
            StmtKind::Role { .. } | StmtKind::Define(_) | StmtKind::Pipeline(_) => {}
            _ if self.depth == 1 && !self.role_names.is_empty() => {
                let message = "beside roles stand only definitions, and this statement is none".to_string();
                self.misplaced(span, message, "move it into the role whose warpgroups do it");
            }
            _ => {}
        }
        if let Some(stage) = self.stages.iter().find(|stage| stage.side == Side::Produce)
            && matches!(stmt.kind, StmtKind::Sync)
        {
            let message = format!("`syncthreads` inside `produce {}`", self.pipeline_name(stage.pipeline));
            self.misplaced(
                span,
                message,
                "what fills a stage does not wait: place the barrier before or after",
            );
        }
        self.accesses(stmt);
    }

    /// In a `produce` a stage is only written, in a `consume` only read.
    fn accesses(&mut self, stmt: &Stmt) {
        for (ids, side) in [(stmt.kind.reads(), Side::Produce), (stmt.kind.writes(), Side::Consume)] {
            for id in ids {
                let stage = self.stage_of[self.base(id).0 as usize];
                let open = self.stages.iter_mut().rev().find(|open| Some(open.pipeline) == stage);
                let Some(open) = open else { continue };
                if open.side == side {
                    let pipeline = open.pipeline;
                    let (name, pipeline) = (self.name(id), self.pipeline_name(pipeline));
                    let (verb, other) = match side {
                        Side::Produce => ("read", "written"),
                        Side::Consume => ("written", "read"),
                    };
                    let message = format!(
                        "`{name}` is {verb} in `{} {pipeline}`, where it is only {other}",
                        word(side)
                    );
                    let help = match side {
                        Side::Produce => "read it in the role that consumes the stage",
                        Side::Consume => "a stage is filled in `produce`, by another role",
                    };
                    self.misplaced(stmt.span, message, help);
                } else if side == Side::Consume {
                    open.written.insert(id);
                }
            }
        }
    }

    /// Whether a tensor belongs to the threads and the stage at hand.
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
                if first != role {
                    let names = [first, role].map(|role| self.role_names[role]);
                    let message = format!(
                        "the roles `{}` and `{}` both use the shared tensor `{name}`",
                        names[0], names[1]
                    );
                    self.report(
                        Diagnostic::new(Code::Misplaced, span, message)
                            .related(tensor.span, "defined here")
                            .help("roles wait for each other only at stages: make it a pipeline's"),
                    );
                }
                first == role
            }
            _ => true,
        }
    }

    // Pipelines and stages.

    /// `p = pipeline(stages, tensors…)`.
    pub(super) fn pipeline(&mut self, id: PipelineId, span: Origin) {
        let program = self.program;
        let row = program.pipeline(id);
        let name = &row.name;
        if std::mem::replace(&mut self.piped[id.0 as usize], true) {
            let message = format!("`{name}` is defined twice");
            self.report(Diagnostic::new(Code::DuplicateName, span, message).help("remove one definition"));
        }
        let what = format!("the number of stages of `{name}`");
        if let Some(stages) = self.literal(&row.stages, span, &what)
            && !(1..=MAX_STAGES).contains(&stages)
        {
            let message = format!("{what} is {stages}; it must be from 1 to {MAX_STAGES}");
            self.report(Diagnostic::new(Code::BadValue, span, message).help("2 to 8 are usual"));
        }
        for (i, tensor) in row.tensors.iter().enumerate() {
            if !self.exists(*tensor, span) {
                continue;
            }
            let of = program.tensor(*tensor);
            if !matches!(of.kind, TensorKind::Shared { .. }) {
                let message =
                    format!("a stage is made of shared tensors; `{}` is in {} memory", of.name, of.memory());
                self.report(
                    Diagnostic::new(Code::WrongMemory, span, message)
                        .related(of.span, "defined here")
                        .help("define it with `shared_tensor`"),
                );
            }
            let first = self.stage_of[tensor.0 as usize];
            if first != Some(id) || row.tensors[..i].contains(tensor) {
                let first = self.pipeline_name(first.unwrap_or(id));
                let message = format!("`{}` is a stage of `{first}` already", of.name);
                let help = "each shared tensor belongs to one pipeline, once";
                self.report(Diagnostic::new(Code::DuplicateName, span, message).help(help));
            }
        }
    }

    /// `produce p { … }`, `consume p { … }`.
    pub(super) fn stage(
        &mut self,
        (pipeline, side, slot): (PipelineId, Side, Option<SymbolId>),
        body: &[Stmt],
        threads: Option<u32>,
        span: Origin,
    ) {
        let program = self.program;
        let name = self.pipeline_name(pipeline);
        if !self.piped[pipeline.0 as usize] {
            let message = format!("the pipeline `{name}` is used before it is defined");
            self.report(
                Diagnostic::new(Code::UnknownName, span, message).help("define it on an earlier line"),
            );
        }
        if let Some(outer) = self.stages.iter().find(|stage| stage.pipeline == pipeline) {
            let message = format!("`{} {name}` inside `{} {name}`", word(side), word(outer.side));
            self.misplaced(span, message, "one stage of a pipeline at a time");
        }
        self.uses.push(Use { pipeline, side, role: self.role, span });
        self.stages.push(OpenStage { pipeline, side, written: BTreeSet::new() });
        self.counting(slot, |check| check.block(body, threads, "stage"));
        let Some(stage) = self.stages.pop() else { return };
        if side == Side::Produce {
            for tensor in program.pipeline(pipeline).tensors.iter().filter(|t| !stage.written.contains(t)) {
                if self.broken[tensor.0 as usize] {
                    continue;
                }
                let message = format!("a stage of `{name}` is handed on without `{}`", self.name(*tensor));
                let help = format!("every `produce {name}` writes all tensors of the stage");
                self.misplaced(span, message, help);
            }
        }
    }

    /// Each pipeline leads from one role to one or several others.
    pub(super) fn uses(&mut self) {
        let program = self.program;
        let roles = !self.role_names.is_empty();
        let name = |role: Option<usize>| role.map_or("", |role| self.role_names[role]);
        let mut errors = Vec::new();
        for (i, row) in program.pipelines.iter().enumerate() {
            let of = |side| {
                self.uses.iter().filter(move |at| at.pipeline == PipelineId(i as u32) && at.side == side)
            };
            let producer = of(Side::Produce).next();
            if let Some(first) = producer {
                if let Some(other) = of(Side::Produce).find(|at| at.role != first.role) {
                    let (first_name, other_name) = (name(first.role), name(other.role));
                    let message = format!(
                        "the roles `{first_name}` and `{other_name}` both fill stages of `{}`",
                        row.name
                    );
                    let help = "stages are filled in one order, which one role gives them: \
                                a pipeline for each producing role";
                    errors.push((other.span, message, help.to_string(), Some((first.span, first_name))));
                } else if let Some(at) = of(Side::Consume).find(|at| roles && at.role == first.role) {
                    let message =
                        format!("the role `{}` both fills and reads stages of `{}`", name(at.role), row.name);
                    let help = "a pipeline leads to other roles; within a role a shared tensor and \
                                `syncthreads` do";
                    errors.push((at.span, message, help.to_string(), None));
                }
            }
            let consumer = of(Side::Consume).next();
            for (user, verb, word) in [(producer, "fills", "produce"), (consumer, "reads", "consume")] {
                if user.is_none() && self.piped[i] {
                    let message = format!("nothing {verb} the stages of `{}`", row.name);
                    errors.push((row.span, message, format!("there is no `{word} {}`", row.name), None));
                }
            }
        }
        for (span, message, help, related) in errors {
            let diagnostic = Diagnostic::new(Code::Misplaced, span, message).help(help);
            self.report(match related {
                Some((span, role)) => diagnostic.related(span, format!("`{role}` fills one here")),
                None => diagnostic,
            });
        }
    }

    // Loops over tiles.

    /// Does something while these counters count.
    pub(super) fn counting(
        &mut self,
        counters: impl IntoIterator<Item = SymbolId>,
        body: impl FnOnce(&mut Self),
    ) {
        let counters: Vec<usize> = counters.into_iter().map(|id| id.0 as usize).collect();
        for &index in &counters {
            if std::mem::replace(&mut self.counting[index], true) {
                let symbol = &self.program.symbols[index];
                let message = format!("the counter `{}` counts two loops at once", symbol.name);
                self.report(
                    Diagnostic::new(Code::DuplicateName, symbol.span, message)
                        .help("give each loop its own counter"),
                );
            }
        }
        body(self);
        counters.into_iter().for_each(|index| self.counting[index] = false);
    }

    /// `for (row, col) in tiles(rows, cols, order)`, but for its body.
    pub(super) fn tiles(&mut self, rows: &Expr, cols: &Expr, order: &TileOrder, span: Origin) {
        self.expr(rows, Allowed::All, span, "the number of rows of tiles");
        self.expr(cols, Allowed::All, span, "the number of columns of tiles");
        let (number, what, most) = match order {
            TileOrder::Grouped { rows, .. } => (rows, "the number of rows of a group", i64::from(i32::MAX)),
            TileOrder::Hilbert { order } => (order, "the order of a Hilbert curve", MAX_HILBERT),
        };
        if let Some(value) = self.literal(number, span, what)
            && !(1..=most).contains(&value)
        {
            let message = format!("{what} is {value}; it must be from 1 to {most}");
            self.report(
                Diagnostic::new(Code::BadValue, span, message).help("e.g. `grouped(8)` or `hilbert(3)`"),
            );
        }
        if self.program.grid.iter().skip(1).any(|extent| *extent != Expr::Int(1)) {
            let message = "the blocks share tiles along x, and the grid has more than one along y or z";
            self.report(
                Diagnostic::new(Code::BadLaunch, span, message)
                    .related(self.program.grid_span, "the grid")
                    .help("write a grid of one dimension"),
            );
        }
    }

    /// A `drain` stands right behind the loop of whose last tile its counters are.
    pub(super) fn drain(&mut self, previous: [SymbolId; 2], before: Option<&StmtKind>, span: Origin) {
        if !matches!(before, Some(StmtKind::Tiles { previous: Some(of), .. }) if *of == previous) {
            let message =
                "a `drain` stands behind no loop over tiles of whose last it could tell".to_string();
            let help = "write `for (row, col) previous (i, j) in tiles(…) { … } drain { … }`";
            self.misplaced(span, message, help);
        }
    }

    // Asynchronous statements.

    /// What a `copy.async` does besides copying; its operands are legal.
    pub(super) fn how(&mut self, dst: &TensorRef, how: AsyncHow, span: Origin) {
        let to = self.program.tensor(dst.tensor);
        let stores = to.memory() == Memory::Global;
        let filling = self.stages.iter().rev().find(|stage| stage.side == Side::Produce);
        if let Some(filling) = filling.map(|stage| stage.pipeline)
            && self.stage_of[dst.tensor.0 as usize] != Some(filling)
        {
            let name = self.pipeline_name(filling);
            let message = format!(
                "`copy.async` in `produce {name}` writes `{}`, which is no part of the stage",
                to.name
            );
            let help = format!("a copy that fills no stage stands outside `produce {name}`");
            self.misplaced(span, message, help);
        }
        if how.multicast && (filling_none(&self.stages) || !self.clustered()) {
            let message = if self.clustered() {
                "`multicast` stands outside `produce`".to_string()
            } else {
                "`multicast` in clusters of one block".to_string()
            };
            let help = "every block of a cluster of several fills its stage with what is read once: \
                        `cluster(2)`, and `multicast` in a `produce`";
            self.misplaced(span, message, help);
        }
        if how.add && !stores {
            let message =
                format!("`add` adds to global memory, and `{}` is in {} memory", to.name, to.memory());
            let help = "copy to a register tensor, and add there";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        } else if how.add && !matches!(to.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I32) {
            let message = format!("there is no `add` of {}, which is what `{}` holds", to.dtype, to.name);
            self.report(
                Diagnostic::new(Code::TypeMismatch, span, message).help("f32, f16, bf16 and i32 are added"),
            );
        }
        if let TensorKind::View { param, .. } = &to.kind
            && how.add
        {
            self.inputs[param.0 as usize] = true;
        }
    }

    /// What concerns asynchronous products is done by whole warpgroups.
    pub(super) fn whole_warpgroups(&mut self, word: &str, threads: Option<u32>, span: Origin) {
        if let Some(threads) = threads.filter(|threads| threads % 128 != 0) {
            let message =
                format!("`{word}` is done by whole warpgroups of 128 threads, and there are {threads}");
            let help = "give the block or the role a multiple of 128 threads";
            self.report(Diagnostic::new(Code::BadLaunch, span, message).help(help));
        }
    }

    /// `gemm.async(c, a, b)`.
    pub(super) fn gemm_async(
        &mut self,
        c: TensorId,
        (a, b): (&TensorRef, &TensorRef),
        warpgroups: Option<&[Expr; 2]>,
        threads: Option<u32>,
        span: Origin,
    ) {
        self.whole_warpgroups("gemm.async", threads, span);
        if let Some(warpgroups) = warpgroups {
            self.warpgroups(warpgroups, threads, span);
        }
        let acc = self.register(c, span, "gemm.async");
        let (left, right) = (self.reference(a, span), self.reference(b, span));
        let (Some(acc), Some(left), Some(right)) = (acc, left, right) else { return };
        let names = [c, a.tensor, b.tensor].map(|id| self.name(id));
        for (operand, name, memories, text) in [
            (&left, names[1], &[Memory::Shared, Memory::Register][..], "shared memory or registers"),
            (&right, names[2], &[Memory::Shared][..], "shared memory"),
        ] {
            if !memories.contains(&operand.memory) {
                let message = format!(
                    "this factor of `gemm.async` is read from {text}; `{name}` is in {} memory",
                    operand.memory
                );
                self.report(Diagnostic::new(Code::WrongMemory, span, message).help(
                    "the left factor lies in shared memory or registers, the right one in shared memory",
                ));
                return;
            }
        }
        let shapes = [&acc.shape, &left.shape, &right.shape];
        if let Some((shape, name)) = shapes.into_iter().zip(names).find(|(shape, _)| shape.len() != 2) {
            let message =
                format!("`gemm.async` multiplies matrices; `{name}` has {}", count(shape.len(), "mode"));
            self.report(
                Diagnostic::new(Code::WrongRank, span, message)
                    .help("shapes are c: [M, N], a: [M, K], b: [N, K]"),
            );
            return;
        }
        let [m, l, r] = shapes;
        if m[0] != l[0] || m[1] != r[0] || l[1] != r[1] {
            let list: Vec<String> = shapes
                .into_iter()
                .zip(names)
                .map(|(shape, name)| format!("`{name}` {}", shape_text(shape)))
                .collect();
            let message = format!("the shapes of this product do not fit: {}", list.join(", "));
            self.report(
                Diagnostic::new(Code::ShapeMismatch, span, message)
                    .help("shapes are c: [M, N], a: [M, K], b: [N, K]; the right factor is stored N by K"),
            );
        }
        let bytes = |dtype| matches!(dtype, DType::E4M3 | DType::E5M2);
        let legal = match (left.dtype, right.dtype, acc.dtype) {
            (DType::F16, DType::F16, DType::F16 | DType::F32)
            | (DType::BF16, DType::BF16, DType::F32)
            | (DType::F32, DType::F32, DType::F32)
            | (DType::I8, DType::I8, DType::I32)
            | (DType::U8, DType::U8, DType::I32) => true,
            (left, right, DType::F16 | DType::F32) => bytes(left) && bytes(right),
            _ => false,
        };
        if !legal {
            let message =
                format!("there is no gemm.async of {} and {} into {}", left.dtype, right.dtype, acc.dtype);
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(
                "f16 and f16, or 8-bit floats, into f32 or f16; bf16 and bf16, or f32 and f32, into f32; \
                 i8 and i8, or u8 and u8, into i32",
            ));
        }
        if c == a.tensor {
            let message = format!("the accumulator `{}` is also a factor", names[0]);
            let help = "copy the factor to another register tensor";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// The warpgroups of a product are those of the role.
    fn warpgroups(&mut self, warpgroups: &[Expr; 2], threads: Option<u32>, span: Origin) {
        let [m, n] = warpgroups.each_ref().map(|e| self.literal(e, span, "a number of warpgroups"));
        let (Some(m), Some(n), Some(threads)) = (m, n, threads) else { return };
        let all = i64::from(threads / 128);
        if m < 1 || n < 1 || m.checked_mul(n) != Some(all) {
            let here = if self.role.is_some() { "role" } else { "block" };
            let message = format!("the product is given {m}×{n} warpgroups, and the {here} has {all}");
            let help = "give numbers of at least 1 whose product is the number of warpgroups";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// `wait_gemm(n)`.
    pub(super) fn wait_gemm(&mut self, groups: &Expr, threads: Option<u32>, span: Origin) {
        self.whole_warpgroups("wait_gemm", threads, span);
        if let Some(n) = self.literal(groups, span, "the number of groups")
            && !(0..=MAX_GROUPS).contains(&n)
        {
            let message = format!("the number of groups is {n}; it must be from 0 to {MAX_GROUPS}");
            let help = "`wait_gemm(1)` waits until at most the latest group of products is in flight";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// `cluster_sum(dst)`.
    pub(super) fn cluster_sum(&mut self, dst: TensorId, span: Origin) {
        if let Some(operand) = self.register(dst, span, "cluster_sum")
            && operand.dtype != DType::F32
        {
            let message = format!("`cluster_sum` adds f32; `{}` is {}", self.name(dst), operand.dtype);
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help("cast it to f32 first"));
        }
        if !self.clustered() {
            let message = "`cluster_sum` in clusters of one block".to_string();
            self.misplaced(span, message, "give the kernel clusters of several: `cluster(2)`");
        }
        if let Some(stage) = self.stages.last() {
            let message =
                format!("`cluster_sum` inside `{} {}`", word(stage.side), self.pipeline_name(stage.pipeline));
            self.misplaced(span, message, "the blocks of a cluster wait for each other: place it outside");
        }
    }
}

/// Whether no stage is being filled.
fn filling_none(stages: &[OpenStage]) -> bool {
    !stages.iter().any(|stage| stage.side == Side::Produce)
}

/// The stages in a statement, each pipeline's sides once.
pub(super) fn stages_of(kind: &StmtKind) -> Vec<(PipelineId, Side)> {
    let mut all = Vec::new();
    let mut add = |found: Vec<(PipelineId, Side)>| {
        for stage in found {
            if !all.contains(&stage) {
                all.push(stage);
            }
        }
    };
    if let StmtKind::Stage { pipeline, side, .. } = kind {
        add(vec![(*pipeline, *side)]);
    }
    kind.body().iter().for_each(|stmt| add(stages_of(&stmt.kind)));
    all
}
