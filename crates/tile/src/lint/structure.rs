//! Lints that look at statements and what they use alone.

use std::collections::BTreeSet;

use tilewright_machine::Memory;

use super::points::{Site, Sites, axes};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::Expr;
use crate::printer::{ints, statement_text};
use crate::program::{
    ElemExpr, Operand, ParamId, Program, Stmt, StmtKind, SyncScope, TensorId, TensorKind, TensorRef, Use,
};
use crate::remedy;

/// The integers of a statement, those of a view that it defines among them.
fn integers<'a>(program: &'a Program, stmt: &'a Stmt) -> Vec<&'a Expr> {
    let mut all = Vec::new();
    for operand in stmt.kind.operands() {
        match operand {
            Operand::Expr(e) | Operand::Constant(e) => all.push(e),
            Operand::Reference(_, r) => all.extend(r.index.iter().flatten()),
            Operand::Tensor(Use::Define, id) => {
                if let TensorKind::View { offsets, ends, .. } = &program.tensor(*id).kind {
                    all.extend(offsets.iter().chain(ends.iter().flatten()));
                }
            }
            _ => {}
        }
    }
    all
}

/// `block.y` and `block.z` where the grid has no such extent.
pub(super) fn idle_axes(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let program = sites.program();
    let extents = program.grid.len();
    let mut found = Vec::new();
    let grid = sites.wanted_grid().unwrap_or_else(|| {
        let mut grid = String::new();
        // Writing into a string does not fail.
        let _ = ints(&mut grid, &*sites.verified.source, &sites.verified.source.grid);
        format!("grid({grid}, …)")
    });
    for site in &sites.all {
        for (axis, name) in ["block.x", "block.y", "block.z"].into_iter().enumerate().skip(extents) {
            if integers(program, site.stmt).into_iter().any(|e| axes(e)[axis]) {
                let number =
                    if extents == 1 { "one extent".to_string() } else { format!("{extents} extents") };
                let message = format!("`{name}` is 0 in every block: the grid has {number}");
                found.push(
                    Diagnostic::new(Code::IdleAxis, site.stmt.span, message)
                        .related(program.grid_span, format!("{extents} of 3"))
                        .help(format!("give the grid the extent along which `{name}` counts: `{grid}`")),
                );
            }
        }
    }
    found
}

/// The register or shared tensor of which a tensor is a part, or itself.
fn whole(program: &Program, mut id: TensorId) -> TensorId {
    while let TensorKind::Part { of, .. } = &program.tensor(id).kind {
        id = *of;
    }
    id
}

/// The tensors that a statement uses, wholly or in part, besides defining them.
fn used(program: &Program, stmt: &Stmt) -> Vec<(Use, TensorId)> {
    let all = stmt.kind.tensors().into_iter();
    all.filter(|(used, _)| *used != Use::Define).map(|(used, id)| (used, whole(program, id))).collect()
}

/// Tensors that no statement uses, and results that none reads.
pub(super) fn unused_tensors(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let program = sites.program();
    let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
    for site in &sites.all {
        for (used, id) in used(program, site.stmt) {
            let set = if matches!(used, Use::Assign | Use::Write) { &mut written } else { &mut read };
            set.insert(id);
        }
    }
    // An accumulator is read by what accumulates, and a statement that reads what it assigns does not make it read.
    for pipeline in &program.pipelines {
        read.extend(pipeline.tensors.iter().copied());
    }
    // `a, b = f(x)` names all results of a call, whether they are wanted or not.
    let text = program.sources.text();
    let of_several = |site: &Site<'_>| {
        let Some(span) = site.stmt.span.text() else { return false };
        let before = text.get(..span.range().start).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        let names = text.get(line..span.range().end).and_then(|text| text.split('=').next());
        names.is_some_and(|names| names.contains(','))
    };
    let mut found = Vec::new();
    for site in &sites.all {
        for (used, id) in site.stmt.kind.tensors() {
            let tensor = program.tensor(id);
            if !matches!(used, Use::Define | Use::Assign)
                || tensor.unnamed.text().is_some()
                || read.contains(&id)
            {
                continue;
            }
            let view = matches!(tensor.kind, TensorKind::View { .. });
            // What is written through a view lies in the tensor of the launch.
            let message = match (written.contains(&id), view) {
                (true, true) => continue,
                (true, false) if used == Use::Define => continue,
                (true, false) if site.stmt.kind.assigned().len() > 1 || of_several(site) => continue,
                (true, false) => format!("nothing reads `{}`", tensor.name),
                (false, _) => format!("nothing uses `{}`", tensor.name),
            };
            found.push(
                Diagnostic::new(Code::UnusedTensor, site.stmt.span, message)
                    .help("leave it out, or use it where it was meant"),
            );
        }
    }
    found
}

/// Register and shared tensors that are read before any statement has written them.
pub(super) fn reads_before_writes(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let program = sites.program();
    let mut seen: BTreeSet<TensorId> = program.pipelines.iter().flat_map(|p| p.tensors.clone()).collect();
    let mut found = Vec::new();
    for (at, site) in sites.all.iter().enumerate() {
        let uses = used(program, site.stmt);
        for (how, id) in &uses {
            let tensor = program.tensor(*id);
            if tensor.memory() == Memory::Global || seen.contains(id) || !how.reads() {
                continue;
            }
            seen.insert(*id);
            // Another role may have written it by then.
            let writes = |other: &&Site<'_>| {
                used(program, other.stmt).iter().any(|(how, other)| how.writes() && other == id)
            };
            let by_others = sites.all.iter().filter(writes).any(|other| other.role != site.role);
            // Behind a branch an earlier iteration may have written it.
            let in_branch =
                site.counters.iter().any(|_| sites.all[at + 1..].iter().filter(writes).count() > 0)
                    && inside_branch(sites, at);
            if by_others || in_branch {
                continue;
            }
            let message = format!("`{}` is read here, and nothing has written it yet", tensor.name);
            let later = sites.all[at + 1..].iter().find(writes);
            let text = |site: &Site<'_>| statement_text(&*sites.verified.source, site.stmt);
            let mut finding = Diagnostic::new(Code::ReadBeforeWrite, site.stmt.span, message)
                .related(tensor.span, "it holds anything until it is written");
            let round = remedy::new_each_round(sites.verified, *id);
            finding = match (later, round) {
                (Some(later), Some(round)) => {
                    finding.related(later.stmt.span, "the first statement that writes it").help(round.help)
                }
                (Some(later), None) => finding
                    .related(later.stmt.span, "the first statement that writes it")
                    .help(format!("move `{}` before it", text(later))),
                (None, _) if *how == Use::Accumulate => {
                    finding.help(format!("begin with `fill({}, 0.0)`", tensor.name))
                }
                (None, _) => finding.help("copy to it, or assign to it, first"),
            };
            found.push(finding);
        }
        seen.extend(uses.into_iter().filter(|(how, _)| how.writes()).map(|(_, id)| id));
    }
    found
}

/// True if a statement stands in a branch.
pub(super) fn inside_branch(sites: &Sites<'_>, at: usize) -> bool {
    fn within(body: &[Stmt], wanted: &Stmt, branch: bool) -> Option<bool> {
        body.iter().find_map(|stmt| {
            if std::ptr::eq(stmt, wanted) {
                return Some(branch);
            }
            let branch = branch || matches!(stmt.kind, StmtKind::If { .. } | StmtKind::IfAny { .. });
            within(stmt.kind.body(), wanted, branch)
        })
    }
    within(&sites.program().body, sites.all[at].stmt, false).unwrap_or(false)
}

/// The parameters of the views that a statement reads or writes.
pub(super) fn params(program: &Program, stmt: &Stmt) -> Vec<(bool, ParamId)> {
    let of = |r: &TensorRef| match &program.tensor(r.tensor).kind {
        TensorKind::View { param, .. } => Some(*param),
        _ => None,
    };
    stmt.kind.references().into_iter().filter_map(|(used, r)| Some((used.writes(), of(r)?))).collect()
}

/// Barriers of a block that nothing needs: in a kernel without shared tensors whose blocks do not read what they write, and behind another
/// barrier with nothing but registers between.
pub(super) fn idle_barriers(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let program = sites.program();
    let barriers = || {
        sites
            .all
            .iter()
            .filter(|site| matches!(site.stmt.kind, StmtKind::Sync(SyncScope::All | SyncScope::Warpgroup)))
    };
    let shared = program.tensors.iter().any(|tensor| tensor.memory() == Memory::Shared);
    let accesses: Vec<(bool, ParamId)> =
        sites.all.iter().flat_map(|site| params(program, site.stmt)).collect();
    // Elements of a buffer that one statement writes and another reads or writes: a barrier says which comes first.
    let both = accesses
        .iter()
        .any(|(writes, param)| *writes && accesses.iter().filter(|(_, other)| other == param).count() > 1);
    // Counters and flags of other blocks, and what was there before an atomic operation.
    let counts = sites.all.iter().any(|site| {
        let param = |operand: &Operand<'_>| matches!(operand, Operand::Param(used, _) if *used != Use::Read);
        site.stmt.kind.fetch().is_some() || site.stmt.kind.operands().iter().any(param)
    });
    if !shared && !both && !counts {
        let finding = |site: &Site<'_>| {
            Diagnostic::new(Code::IdleBarrier, site.stmt.span, "this barrier orders nothing: the kernel has no shared tensors")
                .help("leave it out: registers are each thread's own, and what goes between threads there is ordered by itself")
        };
        return barriers().map(finding).collect();
    }
    let mut found = Vec::new();
    repeated(&program.body, &mut found);
    found
}

/// Finds barriers that follow another in the same body with nothing but statements between registers between.
fn repeated(body: &[Stmt], found: &mut Vec<Diagnostic>) {
    let mut before: Option<&Stmt> = None;
    for stmt in body {
        match &stmt.kind {
            StmtKind::Sync(SyncScope::All) => {
                if let Some(before) = before {
                    found.push(
                        Diagnostic::new(
                            Code::IdleBarrier,
                            stmt.span,
                            "this barrier orders nothing: no memory is accessed since the one before",
                        )
                        .related(before.span, "the barrier before")
                        .help("leave one of them out"),
                    );
                }
                before = Some(stmt);
            }
            StmtKind::Define(_)
            | StmtKind::Let { .. }
            | StmtKind::Fill { .. }
            | StmtKind::Elementwise { .. }
            | StmtKind::Cast { .. } => {}
            _ => {
                before = None;
                repeated(stmt.kind.body(), found);
            }
        }
    }
}

/// Accumulators that a loop fills and adds to in every iteration, and that are read behind it.
pub(super) fn fills_in_accumulations(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let program = sites.program();
    let mut found = Vec::new();
    for (at, outer) in sites.all.iter().enumerate() {
        let StmtKind::For { body, counter, .. } = &outer.stmt.kind else { continue };
        let inside = {
            let mut count = 0;
            crate::statement::visit(body, 0, &mut |_, _| count += 1);
            count
        };
        let (within, behind) = (&sites.all[at + 1..=at + inside], &sites.all[at + 1 + inside..]);
        for stmt in body {
            let dst = match &stmt.kind {
                StmtKind::Fill { dst, .. } => *dst,
                StmtKind::Elementwise { dst, expr: ElemExpr::Number(_) } => *dst,
                _ => continue,
            };
            let of = |site: &Site<'_>| -> Vec<Use> {
                let uses = used(program, site.stmt).into_iter();
                uses.filter(|(_, id)| *id == whole(program, dst)).map(|(how, _)| how).collect()
            };
            let defined = within.iter().any(|site| site.stmt.kind.tensors().contains(&(Use::Define, dst)));
            let adds = |uses: &[Use]| {
                uses.contains(&Use::Accumulate)
                    || (uses.contains(&Use::Read)
                        && uses.iter().any(|how| matches!(how, Use::Assign | Use::Write)))
            };
            let accumulated = within.iter().any(|site| adds(&of(site)));
            let read = |site: &Site<'_>| of(site).contains(&Use::Read) && !adds(&of(site));
            if defined || !accumulated || within.iter().any(read) || !behind.iter().any(read) {
                continue;
            }
            let name = &program.tensor(dst).name;
            let over = &program.symbol(*counter).name;
            let message = format!(
                "every iteration over `{over}` fills `{name}` anew: what the others have added is lost"
            );
            found.push(
                Diagnostic::new(Code::FillInAccumulation, stmt.span, message)
                    .related(outer.stmt.span, "the loop")
                    .help(format!(
                        "move `{}` before the loop",
                        statement_text(&*sites.verified.source, stmt)
                    )),
            );
        }
    }
    found
}
