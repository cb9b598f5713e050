//! Lints about the elements that blocks and iterations reach: grids and loops that end too early, views whose tiles do not meet.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::SumsScaling;

use super::points::{Counter, Sample, Site, Sites, axes, is_listed, mentions};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::{Expr, IntOp, SymbolId};
use crate::printer::expr_text;
use crate::program::{ParamId, ParamKind, Stmt, StmtKind, Tensor, TensorId, TensorKind, TensorRef, ViewMode};
use crate::remedy;
use crate::verified::{GlobalTile, extent_of};

/// Elements along a mode of a buffer that are looked at, at most.
const MOST_ELEMENTS: i64 = 1 << 20;

/// A copy to a parameter: where it lies, and its tile.
struct Write<'s, 'a> {
    site: &'s Site<'a>,
    view: TensorId,
    tile: GlobalTile,
}

/// True for an expression whose values are those of sizes, blocks and counters alone.
pub(super) fn is_known(expr: &Expr) -> bool {
    match expr {
        Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) => true,
        Expr::Binary(_, a, b) => is_known(a) && is_known(b),
        Expr::Element(..) | Expr::Scalar(_) => false,
    }
}

/// Offsets from a tile's first element along a mode of the buffer.
fn offsets(tile: &GlobalTile, dim: u32) -> Vec<i64> {
    let mut offsets = vec![0];
    for (extent, _, scale) in tile.modes.iter().flatten().filter(|leaf| leaf.1 == dim) {
        offsets = (0..*extent)
            .flat_map(|i| offsets.iter().map(move |at| at + i * scale).collect::<Vec<_>>())
            .collect();
    }
    offsets
}

/// The elements along a mode of a buffer that copies reach.
struct Reach {
    reached: Vec<bool>,
    /// The largest, of those that lie in the buffer.
    last: Option<usize>,
}

impl Reach {
    fn of(
        sites: &Sites<'_>,
        sample: &Sample,
        writes: &[Write<'_, '_>],
        (dim, extent): (usize, i64),
    ) -> Option<Reach> {
        let mut reached = vec![false; usize::try_from(extent).ok().filter(|_| extent <= MOST_ELEMENTS)?];
        for Write { site, tile, .. } in writes {
            let offsets = offsets(tile, dim as u32);
            let mut marks = BTreeSet::new();
            let known = sites.points(sample, &site.counters, &[&tile.base[dim]], &mut |point| {
                marks.extend(tile.base[dim].eval(point));
            });
            if !known {
                return None;
            }
            for at in marks.iter().flat_map(|base| offsets.iter().map(move |offset| base + offset)) {
                if let Some(slot) = usize::try_from(at).ok().and_then(|at| reached.get_mut(at)) {
                    *slot = true;
                }
            }
        }
        let last = reached.iter().rposition(|reached| *reached);
        Some(Reach { reached, last })
    }

    /// The first element that nothing reaches, behind all that something does.
    fn end(&self) -> Option<usize> {
        let end = self.last.map_or(0, |last| last + 1);
        (end < self.reached.len()).then_some(end)
    }

    /// An element that nothing reaches, before one that something does.
    fn hole(&self) -> Option<usize> {
        self.reached.iter().take(self.last?).position(|reached| !reached)
    }
}

/// The copies to each parameter that no copy reads; parameters of which some are written in ways that are not followed are left out.
fn outputs<'s, 'a>(sites: &'s Sites<'a>) -> BTreeMap<ParamId, Vec<Write<'s, 'a>>> {
    let v = sites.verified;
    let mut all: BTreeMap<ParamId, Vec<Write<'s, 'a>>> = BTreeMap::new();
    let mut left_out: BTreeSet<ParamId> = v.inputs().iter().copied().collect();
    let listed = sites.all.iter().any(|site| is_listed(site.stmt));
    for (site, r) in sites.references(true) {
        let Some(tile) = v.tile(r).global else { continue };
        if site.open || listed || r.indexed.is_some() || site.stmt.kind.reads_its_destination() {
            left_out.insert(tile.param);
        }
        all.entry(tile.param).or_default().push(Write { site, view: r.tensor, tile });
    }
    all.retain(|param, _| !left_out.contains(param));
    all
}

/// `ceil_div(a, b)` for the first `a / b` in an expression.
fn rounded_up(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Binary(IntOp::Div, a, b) => Some(Expr::binary(IntOp::CeilDiv, (**a).clone(), (**b).clone())),
        Expr::Binary(op, a, b) => {
            let (first, second) = (rounded_up(a), rounded_up(b));
            let a = first.clone().unwrap_or_else(|| (**a).clone());
            let b = if first.is_some() { (**b).clone() } else { second? };
            Some(Expr::binary(*op, a, b))
        }
        _ => None,
    }
}

/// Grids whose blocks do not reach all of an output; and views of outputs whose tiles leave elements out.
fn outputs_not_reached(sites: &Sites<'_>, turned: &BTreeSet<ParamId>) -> Vec<Diagnostic> {
    let v = sites.verified;
    let source = &*v.source;
    let mut found = Vec::new();
    for (param, writes) in outputs(sites).into_iter().filter(|(param, _)| !turned.contains(param)) {
        for dim in 0..v.buffer_shape(param).len() {
            let known =
                |write: &Write<'_, '_>| is_known(&write.tile.base[dim]) && is_known(&write.tile.shape[dim]);
            let moved: Vec<[bool; 3]> = writes.iter().map(|write| axes(&write.tile.base[dim])).collect();
            if !writes.iter().all(known) || !moved.iter().flatten().any(|moves| *moves) {
                continue;
            }
            let extent = &v.buffer_shape(param)[dim];
            for sample in sites.samples(&[extent]) {
                let Some(size) = sample.eval(extent) else { continue };
                let Some(reach) = Reach::of(sites, &sample, &writes, (dim, size)) else { break };
                let name = &v.program().param(param).name;
                let at = sample.words(v.program());
                let write = &writes[0];
                if let Some(hole) = reach.hole() {
                    let message = format!(
                        "the tiles of `{}` leave elements of `{name}` out: no block writes element {hole} of mode {dim}{at}",
                        source.tensor(write.view).name
                    );
                    found.push(
                        Diagnostic::new(Code::StepOfView, v.program().tensor(write.view).span, message)
                            .help("a step from tile to tile is as long as the tile"),
                    );
                    break;
                }
                if let Some(end) = reach.end() {
                    let of = (0..3).find(|axis| moved.iter().any(|moves| moves[*axis])).unwrap_or_default();
                    let message = format!(
                        "the grid does not reach all of `{name}`: no block writes the elements from {end} on of the {size} along mode {dim}{at}"
                    );
                    let help = match (source.grid.get(of).and_then(rounded_up), sites.wanted_grid()) {
                        (Some(extent), _) => format!("round up: `{}`", expr_text(source, &extent)),
                        (None, Some(grid)) => format!("as many blocks as tiles: `{grid}`"),
                        (None, None) => format!(
                            "as many blocks as tiles: `ceil_div({}, …)` of them along `block.{}`",
                            expr_text(source, buffer_extent(source, param, dim)),
                            ["x", "y", "z"][of]
                        ),
                    };
                    found.push(
                        Diagnostic::new(Code::ShortGrid, v.program().grid_span, message)
                            .related(write.site.stmt.span, format!("writes `{name}`"))
                            .help(help),
                    );
                    break;
                }
            }
        }
    }
    found
}

/// An extent of a tensor parameter, as it is written.
fn buffer_extent(source: &crate::program::Program, param: ParamId, dim: usize) -> &Expr {
    const NONE: &Expr = &Expr::Int(1);
    match &source.param(param).kind {
        ParamKind::Tensor { shape, .. } => shape.get(dim).unwrap_or(NONE),
        ParamKind::Scalar { .. } => NONE,
    }
}

/// The iteration modes of views, with the references that index each.
pub(super) fn iterations<'s, 'a>(
    sites: &'s Sites<'a>,
) -> BTreeMap<(TensorId, usize), Vec<(&'s Site<'a>, &'a TensorRef)>> {
    let mut all: BTreeMap<(TensorId, usize), Vec<_>> = BTreeMap::new();
    for writes in [false, true] {
        for (site, r) in sites.references(writes) {
            for mode in (0..r.index.len()).filter(|mode| r.index[*mode].is_some()) {
                all.entry((r.tensor, mode)).or_default().push((site, r));
            }
        }
    }
    all
}

/// The modes of a view; none of another tensor.
pub(super) fn modes<'a>(sites: &Sites<'a>, view: TensorId) -> &'a [ViewMode] {
    match &sites.program().tensor(view).kind {
        TensorKind::View { modes, .. } => modes,
        _ => &[],
    }
}

/// True if an iteration of a view begins behind the end of the buffer, in the first block: the view has room for more than there is.
pub(super) fn begins_outside(
    sites: &Sites<'_>,
    sample: &Sample,
    (view, mode): (TensorId, usize),
    iteration: i64,
) -> bool {
    let tensor = sites.program().tensor(view);
    let TensorKind::View { param, modes, .. } = &tensor.kind else { return false };
    let Some([leaf]) = modes.get(mode).map(|mode| mode.leaves.as_slice()) else { return false };
    let dim = leaf.dim as usize;
    let offset = tensor_offsets(tensor).get(dim).and_then(|offset| sample.eval(offset)).unwrap_or(0);
    let extent = sites.verified.buffer_shape(*param).get(dim).and_then(|extent| sample.eval(extent));
    leaf.scale.as_int().zip(extent).is_some_and(|(step, extent)| offset + iteration * step >= extent)
}

/// Counters that are exchanged, each pair said once; and all of these.
fn exchanged_counters(sites: &Sites<'_>) -> (Vec<Diagnostic>, BTreeSet<SymbolId>) {
    let (mut found, mut counters) = (Vec::new(), BTreeSet::new());
    for pair in remedy::exchanged(sites.verified) {
        let Some((first, others)) = pair.loops.split_first() else { continue };
        let finding = Diagnostic::new(Code::ShortLoop, first.span, pair.message()).help(pair.help());
        let related = |finding: Diagnostic, other: &&Stmt| finding.related(other.span, "and this loop");
        found.push(others.iter().fold(finding, related));
        counters.extend(pair.counters);
    }
    (found, counters)
}

/// Loops whose last iteration is before that of a view that they index.
pub(super) fn short_loops(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let v = sites.verified;
    let source = &*v.source;
    let (mut found, exchanged) = exchanged_counters(sites);
    for ((view, mode), references) in iterations(sites) {
        let Some(extent) = modes(sites, view).get(mode).map(extent_of) else { continue };
        let indices = || references.iter().filter_map(|(site, r)| Some((*site, r.index[mode].as_ref()?)));
        let counter = indices().find_map(|(site, e)| {
            let counts = |counter: &&Counter<'_>| mentions(e, counter.symbol);
            site.counters.iter().rev().find(counts).map(|counter| (counter.symbol, counter.span))
        });
        let Some(counter) = counter.filter(|counter| !exchanged.contains(&counter.0)) else { continue };
        let open =
            references.iter().any(|(site, r)| site.open || r.indexed.is_some() || is_listed(site.stmt));
        if open || !is_known(&extent) || !indices().all(|(_, e)| is_known(e)) {
            continue;
        }
        for sample in sites.samples(&[&extent]) {
            let Some(number) = sample.eval(&extent) else { continue };
            let (mut last, mut known) = (-1, true);
            for (site, e) in indices() {
                known &= sites.points(&sample, &site.counters, &[e], &mut |point| {
                    last = last.max(e.eval(point).unwrap_or(number));
                });
            }
            if !known {
                break;
            }
            if last + 1 < number && !begins_outside(sites, &sample, (view, mode), last + 1) {
                let name = &source.tensor(view).name;
                let over = &source.symbol(counter.0).name;
                let at = sample.words(v.program());
                let message = format!(
                    "the loop over `{over}` stops short of `{name}`: it ends with {last}, and the view has {number} iterations{at}"
                );
                let declared = match &source.tensor(view).kind {
                    TensorKind::View { modes, .. } => modes.get(mode).map(extent_of),
                    _ => None,
                };
                let upto = declared.map_or("…".to_string(), |extent| expr_text(source, &extent));
                let is_loop = |site: &&Site<'_>| matches!(&site.stmt.kind, StmtKind::For { counter: other, .. } if *other == counter.0);
                let around = sites.all.iter().find(is_loop);
                let meant = around.and_then(|site| remedy::later_end(v, site.stmt, number - last - 1));
                let meant = meant.unwrap_or_else(|| format!("for {over} in 0..{upto}"));
                found.push(
                    Diagnostic::new(Code::ShortLoop, counter.1, message)
                        .related(source.tensor(view).span, format!("mode {mode} has {upto} iterations"))
                        .help(format!("loop to the view's end: `{meant}`")),
                );
                break;
            }
        }
    }
    found
}

/// The offsets of a view; none of another tensor.
fn tensor_offsets(tensor: &Tensor) -> &[Expr] {
    match &tensor.kind {
        TensorKind::View { offsets, .. } => offsets,
        _ => &[],
    }
}

/// The number of elements that a tile spans along a mode of the buffer, if it leaves none out.
fn span_of(modes: &[&ViewMode], dim: u32) -> Option<i64> {
    let leaves = modes.iter().flat_map(|mode| &mode.leaves).filter(|leaf| leaf.dim == dim);
    let mut span = 1;
    let mut sorted: Vec<(i64, i64)> =
        leaves.map(|leaf| Some((leaf.scale.as_int()?, leaf.extent.as_int()?))).collect::<Option<_>>()?;
    sorted.sort();
    for (scale, extent) in sorted.into_iter().filter(|(_, extent)| *extent > 1) {
        if scale != span {
            return None;
        }
        span *= extent;
    }
    Some(span)
}

/// Views that are copied to the scales of a factor with sums in tensor memory, each with the rows of the factor: scales come there by 128 rows, and of tiles of
/// fewer the last ones are those of the next tiles, which no product reads.
fn views_of_scales(sites: &Sites<'_>) -> BTreeMap<TensorId, i64> {
    let v = sites.verified;
    let mut rows = BTreeMap::new();
    for site in &sites.all {
        if let StmtKind::GemmAsync { c, scales: Some(scales), .. } = &site.stmt.kind {
            rows.extend(scales.iter().map(|scale| scale.tensor).zip(v.shape(*c)));
        }
    }
    let copied = |site: &Site<'_>| match &site.stmt.kind {
        StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. } => {
            rows.get(&dst.tensor).map(|rows| (src.tensor, *rows))
        }
        _ => None,
    };
    sites.all.iter().filter_map(copied).collect()
}

/// Views whose step from tile to tile is not the tile's length: shorter, so that tiles overlap, or longer, so that they leave elements out.
fn steps_of_views(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let v = sites.verified;
    let mut found = Vec::new();
    let mut views: BTreeMap<ParamId, usize> = BTreeMap::new();
    for site in &sites.all {
        if let StmtKind::Define(id) = &site.stmt.kind
            && let TensorKind::View { param, .. } = &v.program().tensor(*id).kind
        {
            *views.entry(*param).or_default() += 1;
        }
    }
    let (indexed, scales) = (iterations(sites), views_of_scales(sites));
    let mut done = BTreeSet::new();
    for (view, mode) in indexed.keys().copied() {
        let (all, tensor) = (modes(sites, view), v.program().tensor(view));
        let TensorKind::View { param, .. } = &tensor.kind else { continue };
        let Some([leaf]) = all.get(mode).map(|mode| mode.leaves.as_slice()) else { continue };
        let others = |i: &usize| indexed.contains_key(&(view, *i));
        // Several iteration modes along one mode of the buffer share its length.
        // Blocks or loops may take the tiles between.
        let moved = tensor_offsets(tensor).get(leaf.dim as usize).is_some_and(|e| e.as_int().is_none());
        let alone = (0..all.len())
            .filter(others)
            .all(|i| i == mode || all[i].leaves.iter().all(|l| l.dim != leaf.dim));
        let kept: Vec<&ViewMode> = (0..all.len()).filter(|i| !others(i)).map(|i| &all[i]).collect();
        let along = kept.iter().flat_map(|mode| &mode.leaves).any(|kept| kept.dim == leaf.dim);
        let (Some(span), Some(step)) = (span_of(&kept, leaf.dim), leaf.scale.as_int()) else { continue };
        if !alone
            || moved
            || !along
            || step == span
            || step <= 0
            || scales.get(&view).is_some_and(|rows| step == *rows && span == SumsScaling::rows_for(step))
            || leaf.extent == Expr::Int(1)
            || !done.insert((view, leaf.dim))
        {
            continue;
        }
        let message = if step < span && span % step == 0 {
            format!(
                "tiles of `{}` overlap: each has {span} elements along mode {} of the tensor, and the next begins {step} later",
                tensor.name, leaf.dim
            )
        } else if step > span && step % span == 0 && views.get(param) == Some(&1) {
            format!(
                "tiles of `{}` leave elements out: each has {span} elements along mode {} of the tensor, and the next begins {step} later",
                tensor.name, leaf.dim
            )
        } else {
            continue;
        };
        found.push(
            Diagnostic::new(Code::StepOfView, tensor.span, message)
                .help(format!("a step from tile to tile is as long as the tile: `{span} * e{}`", leaf.dim)),
        );
    }
    found
}

/// Views that have the quotient of a block's number for the remainder, said once; and their parameters.
fn turned_views(sites: &Sites<'_>) -> (Vec<Diagnostic>, BTreeSet<ParamId>) {
    let v = sites.verified;
    let of: Vec<&Expr> = v.program().grid.iter().collect();
    let samples = sites.samples(&of);
    let values: Vec<_> = samples.iter().map(|sample| |e: &Expr| sample.eval(e)).collect();
    let values: Vec<remedy::Value<'_>> = values.iter().map(|value| value as remedy::Value<'_>).collect();
    let all = remedy::turned(v, &values);
    let params = all.iter().map(|view| view.param).collect();
    let finding = all.split_first().map(|(first, others)| {
        let place = |view: &remedy::Turned| v.program().tensor(view.view).span;
        let finding = Diagnostic::new(
            Code::ShortGrid,
            place(first),
            first.message(v) + &samples[first.sample].words(v.program()),
        )
        .help(first.help());
        others.iter().fold(finding, |finding, view| finding.related(place(view), "and here"))
    });
    (finding.into_iter().collect(), params)
}

/// Grids whose blocks do not reach all of an output, and views whose tiles do not meet.
pub(super) fn tiles(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let (mut found, turned) = turned_views(sites);
    found.extend(outputs_not_reached(sites, &turned));
    found.extend(steps_of_views(sites));
    found
}
