//! The reasons why copies do not get to some elements of a parameter, or get to them again, and what would be right.

use std::collections::BTreeMap;

use super::{Report, Site, along};
use crate::diagnostic::Origin;
use crate::expr::{Axis, Expr, IntOp, Scope, SymbolId};
use crate::interpret::coverage::Number;
use crate::printer::{expr_text, statement_text, view};
use crate::program::{ParamKind, StmtKind, TensorKind, ViewLeaf, ViewMode};
use crate::remedy;
use crate::verified::extent_of;

/// A reason why a tile moves along its buffer.
#[derive(Clone)]
enum Mover {
    /// The blocks of the grid.
    Grid(Axis),
    /// A loop's iterations; the statement that it is.
    Loop(SymbolId, Number),
}

/// The values of expressions at one block and in one iteration of each loop.
struct Point<'a> {
    values: &'a [Option<i64>],
    block: [i64; 3],
    counters: BTreeMap<SymbolId, i64>,
}

impl Scope for Point<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.counters.get(&id).copied().or(self.values.get(id.0 as usize).copied().flatten())
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(self.block[axis.index()])
    }
}

fn uses(e: &Expr, mover: &Mover) -> bool {
    match (e, mover) {
        (Expr::Binary(_, a, b), _) => uses(a, mover) || uses(b, mover),
        (Expr::Element(_, index), _) => index.iter().any(|e| uses(e, mover)),
        (Expr::Block(axis), Mover::Grid(own)) => axis == own,
        (Expr::Symbol(id), Mover::Loop(own, _)) => id == own,
        _ => false,
    }
}

/// The number that would be right, and the place that is short of it.
pub(super) struct Short {
    pub(super) help: String,
    pub(super) place: Option<(Origin, String)>,
}

/// The position of a tile along a mode of its buffer, and its movement.
struct Reach {
    first: i64,
    /// Movers with the elements of a step and the number of steps; the view's own modes have no mover. The longest step is the last.
    moves: Vec<(Option<Mover>, i64, i64)>,
    /// The end of the buffer, or of the view of it.
    bound: i64,
}

/// Both sides of every product in an expression.
fn factors_of<'a>(e: &'a Expr, found: &mut Vec<&'a Expr>) {
    if let Expr::Binary(op, a, b) = e {
        if *op == crate::expr::IntOp::Mul {
            found.extend([&**a, &**b]);
        }
        factors_of(a, found);
        factors_of(b, found);
    }
}

impl Report<'_> {
    /// The movers of tiles: the grid, and the loops around a statement, outermost first, each with how often. A loop whose bounds depend
    /// on blocks or on loops around it counts as often as in the first or last of these, whichever is more.
    fn movers(&self, site: &Site<'_>) -> Vec<(Mover, i64, i64)> {
        let last = self.grid.map(|extent| extent - 1);
        let mut points: Vec<Point<'_>> =
            [[0; 3], last, [0; 3], last].map(|block| Point { block, ..self.origin() }).into();
        let grid = [Axis::X, Axis::Y, Axis::Z].map(|axis| (Mover::Grid(axis), 0, self.grid[axis.index()]));
        let mut movers = grid.to_vec();
        for number in &site.loops {
            let counted = match &self.coverage.stmts[*number].kind {
                StmtKind::For { counter, lo, hi, .. } => vec![(*counter, lo.clone(), hi.clone())],
                StmtKind::Tiles { row, col, rows, cols, previous, .. } => {
                    let mut all =
                        vec![(*row, Expr::Int(0), rows.clone()), (*col, Expr::Int(0), cols.clone())];
                    let earlier = previous.map(|[p, q]| [(p, rows.clone()), (q, cols.clone())]);
                    all.extend(earlier.into_iter().flatten().map(|(id, end)| (id, Expr::Int(0), end)));
                    all
                }
                _ => Vec::new(),
            };
            for (id, lo, hi) in counted {
                let mut most = i64::MIN;
                let mut first = 0;
                for (i, point) in points.iter_mut().enumerate() {
                    let (begin, end) = (lo.eval(point).unwrap_or(0), hi.eval(point).unwrap_or(0));
                    // The points are those of first and of last iterations.
                    point.counters.insert(id, if i < 2 { begin } else { (end - 1).max(begin) });
                    first = if i == 0 { begin } else { first };
                    most = most.max(end - begin);
                }
                movers.push((Mover::Loop(id, *number), first, most));
            }
        }
        movers
    }

    /// The value of an expression of sizes.
    pub(super) fn value(&self, e: &Expr) -> Option<i64> {
        e.eval(&self.origin())
    }

    fn origin(&self) -> Point<'_> {
        Point { values: &self.values, block: [0; 3], counters: BTreeMap::new() }
    }

    /// The position of a tile along a mode of its buffer, and what moves it.
    fn reach(&self, site: &Site<'_>, mode: usize) -> Option<Reach> {
        let movers = self.movers(site);
        let at = |moved: Option<&Mover>| {
            let mut point = self.origin();
            for (mover, first, _) in &movers {
                let here = match (mover, moved) {
                    (Mover::Grid(a), Some(Mover::Grid(b))) => a == b,
                    (Mover::Loop(a, _), Some(Mover::Loop(b, _))) => a == b,
                    _ => false,
                };
                match mover {
                    Mover::Grid(axis) => point.block[axis.index()] = i64::from(here),
                    Mover::Loop(id, _) => {
                        point.counters.insert(*id, first + i64::from(here));
                    }
                }
            }
            site.tile.base[mode].eval(&point)
        };
        let first = at(None)?;
        let leaves = site.tile.modes.iter().flatten().filter(|(n, dim, _)| *dim as usize == mode && *n > 1);
        let mut moves: Vec<(Option<Mover>, i64, i64)> =
            leaves.map(|(n, _, scale)| (None, *scale, *n)).collect();
        for (mover, _, count) in &movers {
            if uses(&site.tile.base[mode], mover) {
                moves.push((Some(mover.clone()), at(Some(mover))? - first, *count));
            }
        }
        // Of equal steps those of blocks come first: a loop is what a view is indexed by.
        moves.sort_by_key(|(mover, step, _)| (*step, matches!(mover, Some(Mover::Loop(..)))));
        let bound = site.tile.shape[mode].eval(&self.origin())?;
        Some(Reach { first, moves, bound })
    }

    /// The reason why a statement does not get to these coordinates of a mode, and what would reach them.
    pub(super) fn short(
        &self,
        site: &Site<'_>,
        mode: usize,
        runs: &[(i64, i64)],
        rank: usize,
    ) -> Option<Short> {
        let Reach { first, moves, bound } = self.reach(site, mode)?;
        let (from, to) = (runs.first()?.0, runs.last()?.1);
        let way = along(rank, mode);
        let mut covered = 1;
        let mut overlaps = None;
        for (mover, step, count) in &moves {
            // A step that is longer than what lies between.
            if *step > covered && *count > 1 {
                let (name, place) = match mover {
                    Some(mover) => (self.name(mover), self.place(mover)),
                    None => (self.v.program().tensor(site.view).name.clone(), None),
                };
                let help = format!(
                    "`{name}` steps by {step} along {way}, and a step covers {covered}: a step of {covered} leaves out nothing"
                );
                return Some(Short { help, place });
            }
            if *step > 0 && *step < covered && *count > 1 && first + covered * count >= bound {
                overlaps = overlaps.or(mover.as_ref().map(|mover| (mover, *step, covered)));
            }
            covered += step.max(&0) * (count - 1).max(0);
        }
        if let (Some(overlap), true) = (overlaps, first + covered < bound)
            && let Some(short) = self.overlap(site, &way, overlap, &moves)
        {
            return Some(short);
        }
        if from < first
            && let Some(short) = self.begins(site, (mode, &way), first)
        {
            return Some(short);
        }
        if first <= 0 && first + covered >= bound {
            return None;
        }
        if moves.iter().all(|(mover, _, _)| mover.is_none()) {
            return Some(self.unmoved(site, (mode, &way), (first, covered)));
        }
        if from < first && to < first {
            return Some(Short { help: format!("it begins at {first} of {way}"), place: None });
        }
        if first + covered >= bound {
            return None;
        }
        // The longest step has too few iterations.
        let (mover, step, count) = moves.last().filter(|(_, step, _)| *step > 0)?;
        let mover = mover.as_ref()?;
        let inner = covered - step * (count - 1).max(0);
        let need = (bound - first - inner + step - 1).div_euclid(*step) + 1;
        let plain = (bound + step - 1).div_euclid(*step) == need && first == 0;
        let text = match self.count_text(site, mode, *step).filter(|_| plain) {
            Some(text) => format!("`{text}` is {need}"),
            None => format!("{need} would reach the end of {way}"),
        };
        Some(self.too_few(mover, *count, need, &text))
    }

    /// The grid or the loop that has too few iterations, with the number that is needed.
    fn too_few(&self, mover: &Mover, count: i64, need: i64, text: &str) -> Short {
        let (help, place) = match mover {
            Mover::Grid(axis) => {
                let value = |e: &Expr| e.eval(&self.origin());
                let grid = remedy::grid(self.v, &value).map_or(String::new(), |grid| format!(": `{grid}`"));
                let place = format!("{count} along {}", ["x", "y", "z"][axis.index()]);
                (format!("{text}, and the grid has {count}{grid}"), (self.v.program().grid_span, place))
            }
            Mover::Loop(_, number) => {
                let (stmt, name) = (self.coverage.stmts[*number], self.name(mover));
                let none = match &stmt.kind {
                    StmtKind::For { lo, hi, .. } => self.value(hi) <= self.value(lo),
                    _ => false,
                };
                match remedy::later_end(self.v, stmt, need - count) {
                    Some(meant) => {
                        let none = if none { ", and none in the first block" } else { "" };
                        let help = format!(
                            "{text}, and the loop over `{name}` has at most {count}{none}: write `{meant}`"
                        );
                        (help, (stmt.span, format!("at most {count} rounds{none}")))
                    }
                    None => (
                        format!("{text}, and the loop over `{name}` has {count}"),
                        (stmt.span, format!("{count} rounds")),
                    ),
                }
            }
        };
        Short { help, place: Some(place).filter(|(span, _)| !span.is_unknown()) }
    }

    /// A step that is shorter than what lies between: what others cover is covered again.
    fn overlap(
        &self,
        site: &Site<'_>,
        way: &str,
        (mover, step, covered): (&Mover, i64, i64),
        moves: &[(Option<Mover>, i64, i64)],
    ) -> Option<Short> {
        let Mover::Loop(id, _) = mover else { return None };
        let source = &*self.v.source;
        let view = source.tensor(site.view);
        let TensorKind::View { modes, .. } = &view.kind else { return None };
        let indexed = site.reference.index.iter().position(|e| *e == Some(Expr::Symbol(*id)))?;
        let [leaf] = modes.get(indexed)?.leaves.as_slice() else { return None };
        // The blocks that lie between, if they are as many as fit.
        let blocks = moves.iter().find_map(|(other, of, count)| match other {
            Some(Mover::Grid(axis)) if *of == step && of * count == covered => Some(*axis),
            _ => None,
        });
        let extent = blocks.and_then(|axis| source.grid.get(axis.index()));
        let long = match extent {
            Some(extent) => leaf.scale.clone() * extent,
            None => Expr::Int(covered),
        };
        let stride = |step: &Expr| format!("{} * e{}", expr_text(source, step), leaf.dim);
        let (name, now, meant) = (self.name(mover), stride(&leaf.scale), stride(&long));
        let by = match blocks {
            Some(axis) => format!("the blocks along `{}` cover", self.name(&Mover::Grid(axis))),
            None => "a step covers".to_string(),
        };
        let help = format!(
            "`{name}` steps by {step} along {way}, and {by} {covered} at once, so that a round takes again what others have: let `{}` \
             step by `{meant}`, not `{now}`",
            view.name
        );
        Some(Short { help, place: Some((view.span, format!("steps by `{now}`"))) })
    }

    /// An index that begins behind the first iteration of its mode.
    fn begins(&self, site: &Site<'_>, (mode, way): (usize, &str), first: i64) -> Option<Short> {
        let program = self.v.program();
        let TensorKind::View { modes, .. } = &program.tensor(site.view).kind else { return None };
        let mut point = self.origin();
        for (mover, begin, _) in self.movers(site) {
            if let Mover::Loop(id, _) = mover {
                point.counters.insert(id, begin);
            }
        }
        let late = |(at, e): (usize, &Option<Expr>)| {
            let [leaf] = modes.get(at)?.leaves.as_slice() else { return None };
            let (index, step) = (e.as_ref()?.eval(&point)?, leaf.scale.as_int()?);
            let whole = leaf.dim as usize == mode && index > 0 && first - index * step == 0;
            whole.then(|| (at, e.clone()))
        };
        let (at, index) = site.reference.index.iter().enumerate().find_map(late)?;
        let zero = remedy::at_index(self.v, site.reference, at, Expr::Int(0));
        let text = remedy::at_index(self.v, site.reference, at, index.clone()?);
        let counter = site.loops.iter().rev().find_map(|number| match &self.coverage.stmts[*number].kind {
            StmtKind::For { counter, .. } if uses(index.as_ref()?, &Mover::Loop(*counter, *number)) => {
                Some((*counter, *number))
            }
            _ => None,
        });
        let (help, place) = match (counter, index?) {
            (None, _) => (format!("`{text}` begins at {first} of {way}: the first is `{zero}`"), None),
            (Some((id, number)), Expr::Symbol(_)) => {
                let (stmt, name) = (self.coverage.stmts[number], &program.symbol(id).name);
                let mut head = self.v.as_written(stmt).clone();
                if let StmtKind::For { lo, .. } = &mut head.kind {
                    *lo = Expr::Int(0);
                }
                let meant = statement_text(&*self.v.source, &head);
                let place = (stmt.span, "the loop".to_string());
                (format!("it begins at {first} of {way}: let `{name}` begin with 0, `{meant}`"), Some(place))
            }
            (Some((_, number)), e) => {
                let round = self.coverage.stmts[number];
                let later = match &site.stmt.kind {
                    StmtKind::Copy { dst, .. } | StmtKind::CopyAsync { dst, .. } => {
                        remedy::is_read_before(round, site.stmt, dst.tensor)
                    }
                    _ => false,
                };
                let plain = match &e {
                    Expr::Binary(IntOp::Add, x, y) if y.as_int().is_some() => Some((**x).clone()),
                    _ => None,
                };
                let how = match plain.filter(|_| !later) {
                    Some(e) => {
                        format!(
                            "the first is `{zero}`, so write `{}`",
                            remedy::at_index(self.v, site.reference, at, e)
                        )
                    }
                    None => format!("copy `{zero}` before the loop, to a tensor that is defined before it"),
                };
                (format!("`{text}` begins at {first} of {way}: {how}"), None)
            }
        };
        Some(Short { help, place })
    }

    /// A view that nothing moves along a mode, and that has a part of it.
    fn unmoved(&self, site: &Site<'_>, (mode, way): (usize, &str), (first, covered): (i64, i64)) -> Short {
        let unused = self.movers(site).into_iter().find(|(mover, _, count)| {
            let moves = |site: &Site<'_>| site.tile.base.iter().any(|base| uses(base, mover));
            *count > 1 && matches!(mover, Mover::Grid(_)) && !moves(site)
        });
        let more = match unused.map(|(mover, _, count)| (self.name(&mover), count)) {
            Some((name, count)) => {
                format!("; the grid has {count} blocks along `{name}`, which it does not use")
            }
            None if first != 0 => String::new(),
            None => {
                self.other_tiles(site, mode).or_else(|| self.whole(site, mode, covered)).unwrap_or_default()
            }
        };
        let last = first + covered - 1;
        let help = format!("it covers {first}..{last} of {way}, and nothing moves it along them{more}");
        Short { help, place: None }
    }

    /// The tiles of a view along a mode, of which a copy takes one by a number.
    fn other_tiles(&self, site: &Site<'_>, mode: usize) -> Option<String> {
        let tensor = self.v.program().tensor(site.view);
        let TensorKind::View { modes, .. } = &tensor.kind else { return None };
        let mut indexed = site.reference.index.iter().zip(modes).filter(|(index, _)| index.is_some());
        let (_, tiles) =
            indexed.find(|(_, tiles)| tiles.leaves.iter().any(|leaf| leaf.dim as usize == mode))?;
        let count = self.value(&extent_of(tiles)).filter(|count| *count > 1)?;
        let text = remedy::text_of(self.v, site.reference);
        Some(format!(
            ": of the {count} tiles of `{}` there this is only `{text}`; copy the others too, or let a loop's counter be the index",
            tensor.name
        ))
    }

    /// A view of all of a mode: as one tile where the extent is a constant, or by a mode of tiles for a loop.
    fn whole(&self, site: &Site<'_>, mode: usize, covered: i64) -> Option<String> {
        let source = &*self.v.source;
        let tensor = source.tensor(site.view);
        let TensorKind::View { param, offsets, ends, modes, fold } = &tensor.kind else { return None };
        let extent = remedy::written_shape(self.v, *param).get(mode)?;
        let (at, part) = modes.iter().enumerate().find_map(|(at, kept)| match kept.leaves.as_slice() {
            [leaf]
                if leaf.dim as usize == mode
                    && remedy::known(self.v, &leaf.extent).as_int() == Some(covered) =>
            {
                Some((at, leaf))
            }
            _ => None,
        })?;
        let along = modes.iter().flat_map(|kept| &kept.leaves).filter(|leaf| leaf.dim as usize == mode);
        if along.count() != 1 {
            return None;
        }
        let mut meant = modes.clone();
        let constant = remedy::known(self.v, extent).as_int().is_some();
        let how = if constant {
            meant[at].leaves[0].extent = extent.clone();
            let (all, now) = (expr_text(source, extent), expr_text(source, &part.extent));
            format!("let `{}` have all, and the tensors that go with it `{all}` for `{now}`", tensor.name)
        } else {
            let tiles = Expr::binary(IntOp::CeilDiv, extent.clone(), part.extent.clone());
            let scale = part.extent.clone();
            meant.push(ViewMode { leaves: vec![ViewLeaf { extent: tiles, dim: mode as u32, scale }] });
            format!("let `{}` have a mode of tiles, and a loop go through it", tensor.name)
        };
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = view(&mut text, source, *param, (offsets, ends), (&meant, fold));
        Some(format!(": {how}, `{text}`"))
    }

    /// The number of steps of a mode, in the program's names: `ceil_div(m, BM)`.
    fn count_text(&self, site: &Site<'_>, mode: usize, step: i64) -> Option<String> {
        let source = &self.v.source;
        let ParamKind::Tensor { shape, .. } = &source.param(site.tile.param).kind else { return None };
        let extent = expr_text(&**source, shape.get(mode)?);
        let constant = |id: SymbolId| self.v.constants().get(&source.symbol(id).name).copied().map(Expr::Int);
        let is_step = |e: &&Expr| e.substitute(&constant).as_int() == Some(step);
        let TensorKind::View { offsets, modes, .. } = &source.tensor(site.view).kind else { return None };
        let mut factors = Vec::new();
        factors_of(offsets.get(mode)?, &mut factors);
        let leaves = modes.iter().flat_map(|m| &m.leaves).filter(|leaf| leaf.dim as usize == mode);
        let scales: Vec<&Expr> = leaves.map(|leaf| &leaf.scale).collect();
        let step = factors
            .into_iter()
            .chain(scales)
            .find(is_step)
            .map_or(step.to_string(), |e| expr_text(&**source, e));
        Some(if step == "1" { extent } else { format!("ceil_div({extent}, {step})") })
    }

    fn name(&self, mover: &Mover) -> String {
        match mover {
            Mover::Grid(axis) => format!("block.{}", ["x", "y", "z"][axis.index()]),
            Mover::Loop(id, _) => self.v.program().symbol(*id).name.clone(),
        }
    }

    fn place(&self, mover: &Mover) -> Option<(Origin, String)> {
        let Mover::Loop(_, number) = mover else { return None };
        let span = self.coverage.stmts[*number].span;
        (!span.is_unknown()).then(|| (span, "this loop".to_string()))
    }

    /// The reason why a statement writes elements again: what does not move it, or moves it by less than it writes.
    pub(super) fn repeated(&self, site: &Site<'_>) -> Option<String> {
        let rank = site.tile.base.len();
        for (mover, _, count) in self.movers(site).into_iter().filter(|(_, _, count)| *count > 1) {
            let tiles = |site: &Site<'_>| {
                site.loops.iter().any(|n| matches!(self.coverage.stmts[*n].kind, StmtKind::Tiles { .. }))
            };
            // The blocks of a loop over tiles share out its tiles.
            if matches!(mover, Mover::Grid(_)) && tiles(site) {
                continue;
            }
            if !site.tile.base.iter().any(|base| uses(base, &mover)) {
                let name = self.name(&mover);
                return Some(match mover {
                    Mover::Grid(_) => format!(
                        "the grid has {count} along `{name}`, and where it writes does not depend on that"
                    ),
                    Mover::Loop(..) => format!(
                        "the loop over `{name}` has {count} rounds, and where it writes does not depend on that"
                    ),
                });
            }
        }
        for mode in 0..rank {
            let reach = self.reach(site, mode)?;
            let mut covered = 1;
            for (mover, step, count) in &reach.moves {
                if let Some(mover) = mover
                    && *step > 0
                    && *step < covered
                    && *count > 1
                {
                    let (name, way) = (self.name(mover), along(rank, mode));
                    return Some(format!(
                        "`{name}` steps by {step} along {way}, and a step writes {covered}"
                    ));
                }
                covered += step.max(&0) * (count - 1).max(0);
            }
        }
        // A loop whose number of iterations differs.
        let open = |(mover, _, _): &(Mover, i64, i64)| {
            matches!(mover, Mover::Loop(..)) && !site.tile.base.iter().any(|base| uses(base, mover))
        };
        self.movers(site).into_iter().rev().find(open).map(|(mover, _, _)| {
            format!("where it writes does not depend on the loop over `{}`", self.name(&mover))
        })
    }
}
