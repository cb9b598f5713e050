//! Lints about what lies outside: blocks of the grid with nothing to do, iterations of views behind their end.

use std::collections::BTreeSet;

use super::axes::{exchanged_view, terms};
use super::coverage::{begins_outside, is_known, iterations, modes};
use super::points::{Sample, Sites, axes};
use super::structure::{idle_axes, inside_branch};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::Expr;
use crate::printer::expr_text;
use crate::program::{ParamKind, StmtKind, SymbolKind, TensorId, TensorKind};
use crate::remedy;
use crate::verified::extent_of;

/// The largest extent of a grid whose blocks are looked at.
const MOST_BLOCKS: i64 = 1 << 16;

/// For each axis of the grid the coordinates of blocks that write an element of a parameter; `None` where that is not known.
fn writers(sites: &Sites<'_>, sample: &Sample) -> Option<[Vec<bool>; 3]> {
    let none = || sample.grid.map(|extent| vec![false; extent as usize]);
    let mut all = none();
    let mut any = false;
    for (site, r) in sites.references(true) {
        let Some(tile) = sites.verified.tile(r).global else { continue };
        if site.open || r.indexed.is_some() || !tile.base.iter().chain(&tile.shape).all(is_known) {
            return None;
        }
        any = true;
        let of: Vec<&Expr> = tile.base.iter().collect();
        let used = of.iter().fold([false; 3], |used, e| {
            let axes = axes(e);
            [0, 1, 2].map(|i| used[i] || axes[i])
        });
        let mut inside = none();
        let known = sites.points(sample, &site.counters, &of, &mut |point| {
            let lies = tile.base.iter().zip(&tile.shape).all(|(base, extent)| {
                base.eval(point).zip(sample.eval(extent)).is_none_or(|(base, extent)| base < extent)
            });
            if lies {
                for (inside, block) in inside.iter_mut().zip(point.block) {
                    inside[block as usize] = true;
                }
            }
        });
        if !known {
            return None;
        }
        for axis in 0..3 {
            let of = inside[axis].iter().map(|inside| *inside || !used[axis]);
            all[axis].iter_mut().zip(of).for_each(|(all, inside)| *all |= inside);
        }
    }
    any.then_some(all)
}

/// Grids of which most blocks lie outside of all that the kernel writes.
pub(super) fn idle_blocks(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let Some(sample) = sites.samples(&[]).into_iter().next() else { return Vec::new() };
    // Counters, flags and results of atomic operations are work, too.
    let others = sites.all.iter().any(|site| {
        site.stmt.kind.fetch().is_some()
            || site.stmt.kind.counter().is_some()
            || matches!(site.stmt.kind, StmtKind::Tiles { dynamic: Some(_), .. })
            || site.stmt.kind.waits_for_blocks()
    });
    if others || sample.grid.iter().any(|extent| *extent > MOST_BLOCKS) {
        return Vec::new();
    }
    let Some(writers) = writers(sites, &sample) else { return Vec::new() };
    let (program, source) = (sites.program(), &*sites.verified.source);
    let mut found = Vec::new();
    for (axis, name) in ["x", "y", "z"].into_iter().enumerate().take(program.grid.len()) {
        // A grid of so many blocks whatever the sizes are is one that shares out its work.
        if program.grid[axis].as_int().is_some() {
            continue;
        }
        // The blocks of a cluster, which lie along the first axis, work together.
        let together = if axis == 0 { sites.verified.cluster() as usize } else { 1 };
        let working = writers[axis].chunks(together).filter(|blocks| blocks.contains(&true));
        let (blocks, used) = (sample.grid[axis], working.map(|blocks| blocks.len() as i64).sum::<i64>());
        let idle = blocks - used;
        // Grids are rounded up to whole clusters.
        if idle <= used || idle <= i64::from(sites.verified.cluster()) {
            continue;
        }
        let message = format!(
            "{idle} of the {blocks} blocks along `block.{name}` do nothing: all that they write lies behind the end"
        );
        let extent = source.grid.get(axis).map_or(String::new(), |e| expr_text(source, e));
        let help = match sites.wanted_grid() {
            Some(grid) => format!("a block for each tile: `{grid}`"),
            None => {
                format!("a block for each tile: `ceil_div({extent}, …)` by the rows or columns of a tile")
            }
        };
        found.push(Diagnostic::new(Code::IdleBlocks, program.grid_span, message).help(help));
    }
    found
}

/// True for an expression without a constant that is added: no tile behind the one that is worked on.
fn is_plain(e: &Expr) -> bool {
    let (mut sum, mut rest) = (Vec::new(), 0);
    terms(e, 1, &mut sum, &mut rest).is_some() && rest <= 0
}

/// True for a sum of multiples of blocks: a quotient relates sizes that do not change alone.
fn is_of_blocks(e: &Expr) -> bool {
    let (mut sum, mut rest) = (Vec::new(), 0);
    terms(e, 1, &mut sum, &mut rest).is_some()
        && sum.iter().all(|(term, factor)| matches!(term, Expr::Block(_)) && *factor > 0)
}

/// Reads of iterations behind a view's last, and of tiles behind a buffer's end.
pub(super) fn beyond(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let mut found = iterations_beyond(sites);
    // What follows from a wrong grid has been said.
    if found.is_empty() && idle_axes(sites).is_empty() && idle_blocks(sites).is_empty() {
        found = blocks_beyond(sites);
    }
    found
}

fn iterations_beyond(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let source = &*sites.verified.source;
    let Some(sample) = sites.samples(&[]).into_iter().next() else { return Vec::new() };
    let mut found = Vec::new();
    // What follows from exchanged counters has been said.
    let exchanged: Vec<_> =
        remedy::exchanged(sites.verified).iter().flat_map(|pair| pair.counters.map(Expr::Symbol)).collect();
    for ((view, mode), references) in iterations(sites) {
        let Some(extent) = modes(sites, view).get(mode).map(extent_of) else { continue };
        let Some(number) = sample.eval(&extent).filter(|_| is_known(&extent)) else { continue };
        for (site, r) in references {
            let Some(e) = r.index.get(mode).and_then(Option::as_ref) else { continue };
            let at = sites.all.iter().position(|other| std::ptr::eq(other, site)).unwrap_or(0);
            let reads = matches!(&site.stmt.kind, StmtKind::Copy { src, .. } if src.tensor == view);
            // Blocks that share out iterations go beyond the last together, and copy nothing there.
            let shared_out = axes(e).contains(&true);
            if exchanged.contains(e)
                || shared_out
                || !reads
                || site.open
                || !is_known(e)
                || !is_plain(e)
                || inside_branch(sites, at)
            {
                continue;
            }
            let mut last = -1;
            let known = sites.points(&sample, &site.counters, &[e], &mut |point| {
                last = last.max(e.eval(point).unwrap_or(-1));
            });
            if !known || last < number || !begins_outside(sites, &sample, (view, mode), number) {
                continue;
            }
            let name = &source.tensor(view).name;
            let index = expr_text(source, e);
            let message = format!(
                "iteration `{index}` of `{name}` goes up to {last}, and the view has {number} along mode {mode}: those behind read nothing"
            );
            found.push(
                Diagnostic::new(Code::IndexBeyond, site.stmt.span, message)
                    .related(source.tensor(view).span, format!("{number} iterations along mode {mode}"))
                    .help(
                        "index the view by its own steps: where several rounds share one, divide the counter",
                    ),
            );
        }
    }
    found
}

/// Tiles that blocks read behind the end of a buffer, at these sizes or at neighbouring ones.
fn blocks_beyond(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let (source, program) = (&*sites.verified.source, sites.program());
    let mut found = Vec::new();
    let mut done = BTreeSet::new();
    for (at, site) in sites.all.iter().enumerate() {
        let StmtKind::Copy { src, .. } = &site.stmt.kind else { continue };
        let Some(tile) = sites.verified.tile(src).global else { continue };
        if site.open || src.indexed.is_some() || inside_branch(sites, at) {
            continue;
        }
        for (dim, (base, extent)) in tile.base.iter().zip(&tile.shape).enumerate() {
            let blocks = axes(base);
            let shared = (0..3)
                .any(|axis| blocks[axis] && program.grid.get(axis).is_none_or(|e| e.as_int().is_some()));
            if shared
                || !blocks.contains(&true)
                || !is_known(extent)
                || !is_plain(base)
                || !is_of_blocks(base)
            {
                continue;
            }
            let of: Vec<&Expr> = program.grid.iter().chain([extent]).collect();
            for sample in sites.samples(&of) {
                let Some(end) = sample.eval(extent) else { continue };
                // The last block along the axes that the place depends on: it grows with each.
                let block = [0, 1, 2].map(|axis| if blocks[axis] { sample.grid[axis] - 1 } else { 0 });
                let beyond = sample.eval_in(base, block).is_some_and(|base| base >= end);
                if !beyond || !done.insert((src.tensor, dim)) {
                    continue;
                }
                let name = &source.param(tile.param).name;
                let extent = match &source.param(tile.param).kind {
                    ParamKind::Tensor { shape, .. } => shape.get(dim).map(|e| expr_text(source, e)),
                    ParamKind::Scalar { .. } => None,
                };
                let named: Vec<String> = (0..3)
                    .filter(|axis| blocks[*axis])
                    .map(|axis| format!("`block.{}` = {}", ["x", "y", "z"][axis], block[axis]))
                    .collect();
                let message = format!(
                    "the block with {} reads behind the end of `{name}`, which has `{}` elements along mode {dim}{}",
                    named.join(" and "),
                    extent.unwrap_or_default(),
                    sample.words(program)
                );
                let help = exchanged(sites, src.tensor, dim, blocks).map_or_else(
                    || "offset the mode that these blocks count, or offset this one by the axis of the grid that counts its elements".to_string(),
                    |view| format!("the blocks count the elements of mode {}, not of mode {dim}: `{view}`", 1 - dim),
                );
                found.push(
                    Diagnostic::new(Code::IndexBeyond, program.tensor(src.tensor).span, message)
                        .related(program.grid_span, "the blocks")
                        .related(site.stmt.span, format!("reads `{name}`"))
                        .help(help),
                );
            }
        }
    }
    found
}

/// The definition of a view of a matrix with its modes exchanged, where these blocks count the elements of the other mode than `dim`.
fn exchanged(sites: &Sites<'_>, view: TensorId, dim: usize, blocks: [bool; 3]) -> Option<String> {
    let source = &*sites.verified.source;
    let row = source.tensor(view);
    let TensorKind::View { param, offsets, .. } = &row.kind else { return None };
    let ParamKind::Tensor { shape, .. } = &source.param(*param).kind else { return None };
    let other = 1_usize.checked_sub(dim)?;
    let ([_, _], &Expr::Symbol(counted)) = (offsets.as_slice(), shape.get(other)?) else { return None };
    let mut axes = (0..3).filter(|axis| blocks[*axis]);
    let (axis, None) = (axes.next()?, axes.next()) else { return None };
    let (mut counts, mut others) = (false, false);
    source.grid.get(axis)?.symbols(&mut |id| {
        let is_size = matches!(source.symbol(id).kind, SymbolKind::Size(_));
        counts |= id == counted;
        others |= is_size && id != counted;
    });
    if !counts || others || offsets[other] != Expr::Int(0) {
        return None;
    }
    exchanged_view(source, view)
}
