//! Lints about roles that fill and use the stages of one pipeline.

use super::points::{Counter, Site, Sites};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::{Expr, SymbolId};
use crate::printer::statement_text;
use crate::program::{PipelineId, Side, Stmt, StmtKind};

/// A role's way through a pipeline.
struct Way<'s, 'a> {
    side: Side,
    /// Its first statement that fills or uses a stage.
    first: &'s Site<'a>,
    /// The loop over tiles around it.
    tiles: Option<&'s Site<'a>>,
    /// The stages that it goes through, at the defaults; `None` where that is not known.
    stages: Option<u64>,
}

/// The loop over tiles around a statement.
fn tiles_around<'s, 'a>(sites: &'s Sites<'a>, site: &Site<'a>) -> Option<&'s Site<'a>> {
    let around = |other: &&'s Site<'a>| {
        let StmtKind::Tiles { row, .. } = &other.stmt.kind else { return false };
        other.role == site.role && site.counters.iter().any(|counter| counter.symbol == *row)
    };
    sites.all.iter().find(around)
}

/// The number of times that a statement runs in the first block, at the defaults; of loops over tiles it is that of all tiles.
fn times(sites: &Sites<'_>, site: &Site<'_>) -> Option<u64> {
    if site.open {
        return None;
    }
    // The tile before is no loop of its own.
    let before: Vec<SymbolId> = sites
        .all
        .iter()
        .filter_map(|site| match &site.stmt.kind {
            StmtKind::Tiles { previous, .. } => *previous,
            _ => None,
        })
        .flatten()
        .collect();
    let counters: Vec<Counter<'_>> =
        site.counters.iter().filter(|counter| !before.contains(&counter.symbol)).cloned().collect();
    let all: Vec<Expr> = counters.iter().map(|counter| Expr::Symbol(counter.symbol)).collect();
    let sample = sites.samples(&[]).into_iter().next()?;
    let mut count = 0;
    sites.points(&sample, &counters, &all.iter().collect::<Vec<_>>(), &mut |_| count += 1).then_some(count)
}

fn ways<'s, 'a>(sites: &'s Sites<'a>, pipeline: PipelineId) -> Vec<Way<'s, 'a>> {
    let mut ways: Vec<Way<'s, 'a>> = Vec::new();
    for site in &sites.all {
        let StmtKind::Stage { pipeline: of, side, .. } = &site.stmt.kind else { continue };
        if *of != pipeline {
            continue;
        }
        let stages = times(sites, site);
        match ways.iter_mut().find(|way| way.side == *side && way.first.role == site.role) {
            Some(way) => way.stages = way.stages.zip(stages).map(|(a, b)| a + b),
            None => ways.push(Way { side: *side, first: site, tiles: tiles_around(sites, site), stages }),
        }
    }
    ways
}

/// The head of a loop over tiles with the order of another, in its own names.
fn in_the_order_of(sites: &Sites<'_>, own: &Stmt, other: &Stmt) -> String {
    let other = sites.verified.as_written(other);
    let mut head = other.clone();
    if let (
        StmtKind::Tiles { row, col, previous, .. },
        StmtKind::Tiles { row: own_row, col: own_col, previous: own_previous, .. },
    ) = (&mut head.kind, &own.kind)
    {
        (*row, *col, *previous) = (*own_row, *own_col, *own_previous);
    }
    statement_text(&*sites.verified.source, &head)
}

/// Roles of a pipeline that go through the tiles in different orders, or through a different number of stages.
pub(super) fn differ(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let program = sites.program();
    // A branch may be what makes the numbers equal.
    let branches =
        sites.all.iter().any(|site| matches!(site.stmt.kind, StmtKind::If { .. } | StmtKind::Break { .. }));
    let mut found = Vec::new();
    for (number, pipeline) in (0..).zip(&program.pipelines) {
        let ways = ways(sites, PipelineId(number));
        let Some(filling) = ways.iter().find(|way| way.side == Side::Produce) else { continue };
        for using in ways.iter().filter(|way| way.side == Side::Consume) {
            let order = |way: &Way<'_, '_>| {
                way.tiles.and_then(|site| match &site.stmt.kind {
                    StmtKind::Tiles { rows, cols, order, dynamic, .. } => {
                        Some((rows.clone(), cols.clone(), order.clone(), *dynamic))
                    }
                    _ => None,
                })
            };
            if let (Some(filled), Some(used)) = (filling.tiles, using.tiles)
                && order(filling) != order(using)
            {
                let message = format!(
                    "the roles of pipeline `{}` go through the tiles in different orders: a stage is filled for one tile and used for another",
                    pipeline.name
                );
                found.push(
                    Diagnostic::new(Code::RolesDiffer, used.stmt.span, message)
                        .related(filled.stmt.span, "the order in which stages are filled")
                        .help(format!("write `{}` here", in_the_order_of(sites, used.stmt, filled.stmt))),
                );
                continue;
            }
            if let (Some(filled), Some(used), false) = (filling.stages, using.stages, branches)
                && filled != used
            {
                let message = format!(
                    "pipeline `{}` is filled {filled} times and used {used} times at the defaults: roles wait for each other for ever, or leave stages unused",
                    pipeline.name
                );
                let all = ways.iter().filter(|way| way.side == Side::Consume);
                let together = all.clone().map(|way| way.stages).sum::<Option<u64>>();
                let help = if all.count() > 1 && together == Some(filled) {
                    format!(
                        "each role that consumes `{0}` reads every stage of it, and does not share them with the others: for a share of the \
                         stages give each role a pipeline and tensors of its own, say `{0}_0` and `{0}_1`, that are filled in turn",
                        pipeline.name
                    )
                } else {
                    "give the loops around both the same bounds".to_string()
                };
                found.push(
                    Diagnostic::new(Code::RolesDiffer, using.first.stmt.span, message)
                        .related(filling.first.stmt.span, format!("filled here, {filled} times"))
                        .help(help),
                );
            }
        }
    }
    found
}
