//! Axes of buffers along which modes of tensors lie, and lints that compare them.
//!
//! A tile of `x[m, n]` has for each of its modes a place: the mode of the buffer, its extent, and the coordinate of the tile's first element. Places
//! follow the values that are computed from a tile. Where two meet in an elementwise statement, in a product or in a copy to a
//! buffer, they have to be of one axis.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::points::{Sites, names};
use super::values::{Id, Node, Store, Values};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::{Expr, IntOp, SymbolId};
use crate::printer::{expr_text, view_text};
use crate::program::{
    ParamId, ParamKind, Program, ShapeOp, StmtKind, SymbolKind, TensorId, TensorKind, TensorRef,
};
use crate::verified::GlobalTile;

/// The place of a tile's mode: neighbours in the tile are neighbours along one mode of a buffer.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Place {
    pub(super) param: ParamId,
    /// The mode of the buffer.
    pub(super) dim: usize,
    /// The buffer's coordinate of the tile's first element; `None` where it differs from iteration to iteration.
    pub(super) base: Option<Expr>,
    /// The extent of the buffer's mode.
    pub(super) extent: Expr,
    /// Elements of the tile along the mode.
    pub(super) len: i64,
    /// The statement that reads or writes the tile, and the view.
    pub(super) site: usize,
    pub(super) view: TensorId,
}

/// Knowledge of a mode of a value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Label {
    /// It fits everything: a literal, a mode of one element.
    Free,
    At(Place),
    /// Nothing is known of it.
    Unknown,
}

impl Label {
    pub(super) fn place(&self) -> Option<&Place> {
        if let Label::At(place) = self { Some(place) } else { None }
    }

    /// The label of a result of two: that which is known.
    fn or(&self, other: &Label) -> Label {
        match (self, other) {
            (Label::At(_), _) => self.clone(),
            (_, Label::At(_)) => other.clone(),
            (Label::Unknown, _) | (_, Label::Unknown) => Label::Unknown,
            (Label::Free, Label::Free) => Label::Free,
        }
    }

    /// The label of what may be either.
    fn either(&self, other: &Label) -> Label {
        match (self, other) {
            (Label::Free, x) | (x, Label::Free) => x.clone(),
            (Label::At(x), Label::At(y)) if x.extent == y.extent => {
                let base = x.base.clone().filter(|base| y.base.as_ref() == Some(base));
                Label::At(Place { base, ..x.clone() })
            }
            _ => Label::Unknown,
        }
    }
}

/// The blocks and counters that an expression names: what moves a tile.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Movers {
    pub(super) axes: [bool; 3],
    pub(super) counters: BTreeSet<SymbolId>,
}

impl Movers {
    pub(super) fn add(&mut self, other: &Movers) {
        (0..3).for_each(|i| self.axes[i] |= other.axes[i]);
        self.counters.extend(&other.counters);
    }

    /// True if all of these are among the others.
    pub(super) fn within(&self, other: &Movers) -> bool {
        (0..3).all(|i| !self.axes[i] || other.axes[i]) && self.counters.is_subset(&other.counters)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Movers::default()
    }
}

/// True if an element of a buffer takes part.
pub(super) fn by_data(e: &Expr) -> bool {
    let mut found = false;
    e.elements(&mut |_| found = true);
    found
}

/// Terms of a sum, each with its factor, and what is left.
pub(super) fn terms(e: &Expr, factor: i64, sum: &mut Vec<(Expr, i64)>, rest: &mut i64) -> Option<()> {
    match e {
        Expr::Int(x) => *rest = rest.checked_add(x.checked_mul(factor)?)?,
        Expr::Binary(IntOp::Add, a, b) => {
            terms(a, factor, sum, rest)?;
            terms(b, factor, sum, rest)?;
        }
        Expr::Binary(IntOp::Sub, a, b) => {
            terms(a, factor, sum, rest)?;
            terms(b, factor.checked_neg()?, sum, rest)?;
        }
        Expr::Binary(IntOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (Some(x), _) => terms(b, factor.checked_mul(x)?, sum, rest)?,
            (_, Some(x)) => terms(a, factor.checked_mul(x)?, sum, rest)?,
            _ => sum.push((e.clone(), factor)),
        },
        _ => sum.push((e.clone(), factor)),
    }
    Some(())
}

/// The same sum in one form: what is equal as a polynomial of the first degree is equal as an expression.
fn in_order(e: &Expr) -> Expr {
    let (mut sum, mut rest) = (Vec::new(), 0);
    if terms(e, 1, &mut sum, &mut rest).is_none() {
        return e.clone();
    }
    let mut merged: Vec<(String, Expr, i64)> = Vec::new();
    for (term, factor) in sum {
        match merged.iter_mut().find(|(_, other, _)| *other == term) {
            Some((_, _, total)) => *total = total.saturating_add(factor),
            None => merged.push((format!("{term:?}"), term, factor)),
        }
    }
    merged.sort_by(|x, y| x.0.cmp(&y.0));
    let products = merged.into_iter().filter(|(_, _, factor)| *factor != 0);
    products.fold(Expr::Int(rest), |sum, (_, term, factor)| sum + term * &Expr::Int(factor))
}

/// Labels of the modes of every value.
pub(super) type Labels = Rc<RefCell<Vec<Vec<Label>>>>;

/// Rounds in which what loops carry, and what other roles fill, becomes known.
const ROUNDS: usize = 4;

/// Places of the modes of values.
pub(super) struct Axes<'s, 'a> {
    pub(super) sites: &'s Sites<'a>,
    pub(super) values: &'s Values,
    known: Labels,
}

impl<'s, 'a> Axes<'s, 'a> {
    pub(super) fn of(sites: &'s Sites<'a>) -> Self {
        let values = sites.values();
        if let Some(known) = sites.labels.get() {
            return Axes { sites, values, known: known.clone() };
        }
        let free = |id: Id| vec![Label::Free; values.all[id].shape.len()];
        let known: Labels = Rc::new(RefCell::new((0..values.all.len()).map(free).collect()));
        let axes = Axes { sites, values, known: known.clone() };
        for _ in 0..ROUNDS {
            let mut changed = false;
            for id in 0..values.all.len() {
                let labels = axes.round(id);
                let slot = &mut axes.known.borrow_mut()[id];
                changed |= *slot != labels;
                *slot = labels;
            }
            if !changed {
                break;
            }
        }
        // Nobody else has worked them out meanwhile.
        let _ = sites.labels.set(known);
        axes
    }

    pub(super) fn movers(&self, e: &Expr) -> Movers {
        let (mut symbols, mut axes) = (BTreeSet::new(), [false; 3]);
        names(e, &mut symbols, &mut axes);
        let program = self.sites.program();
        symbols
            .retain(|id| !matches!(program.symbol(*id).kind, SymbolKind::Size(_) | SymbolKind::Constant(_)));
        Movers { axes, counters: symbols }
    }

    /// The labels of a value's modes.
    pub(super) fn labels(&self, id: Id) -> Vec<Label> {
        self.known.borrow()[id].clone()
    }

    /// The labels of a value's modes by those that its operands have by now.
    fn round(&self, id: Id) -> Vec<Label> {
        let shape = &self.values.all[id].shape;
        let mut labels = self.worked_out(id);
        labels.resize(shape.len(), Label::Unknown);
        for (label, extent) in labels.iter_mut().zip(shape) {
            if *extent == 1 {
                *label = Label::Free;
            }
        }
        labels
    }

    /// The labels of an operand in a result of this shape: modes of one element are repeated.
    pub(super) fn operand(&self, id: Id, shape: &[i64]) -> Vec<Label> {
        let labels = self.labels(id);
        if labels.len() != shape.len() {
            return vec![Label::Free; shape.len()];
        }
        labels
    }

    fn merged(&self, operands: &[Id], shape: &[i64]) -> Vec<Label> {
        let mut labels = vec![Label::Free; shape.len()];
        for id in operands {
            let of = self.operand(*id, shape);
            labels = labels.iter().zip(&of).map(|(x, y)| x.or(y)).collect();
        }
        labels
    }

    fn worked_out(&self, id: Id) -> Vec<Label> {
        let value = &self.values.all[id];
        let (shape, rank) = (&value.shape, value.shape.len());
        match &value.node {
            Node::Number(_) | Node::Integer(_) | Node::Scalar(_) | Node::Index(_) => vec![Label::Free; rank],
            Node::Load(site) => self.loaded(*site),
            Node::Slot(site, tensor) => self.slot(*site, *tensor, rank),
            Node::Unary(_, x) | Node::Cast(_, x) | Node::Cluster(_, x) => self.operand(*x, shape),
            Node::Binary(_, x, y) => self.merged(&[*x, *y], shape),
            Node::Where(operands) => self.merged(operands, shape),
            Node::Shape(op, x) => self.shaped(op, *x, rank),
            Node::Reduce(_, axis, x) | Node::Extreme(_, axis, x) | Node::Coordinate(_, axis, x) => {
                let mut labels = self.labels(*x);
                if labels.len() > 1 {
                    labels.remove(*axis as usize);
                }
                labels
            }
            Node::Scan(_, operands, _) => self.merged(operands, shape),
            Node::Product(_, [c, a, b]) => {
                let of = |id: &Id| self.labels(*id).first().cloned().unwrap_or(Label::Unknown);
                let factors = [of(a), of(b)];
                let sums = self.operand(*c, shape);
                factors.iter().zip(&sums).map(|(x, y)| x.or(y)).collect()
            }
            Node::Made(..) => vec![Label::Unknown; rank],
            Node::Either(_, sides) => self.both(&sides.map(Some), shape, None),
            Node::Carried(head, tensor) => self.both(&self.values.sides(*head, *tensor), shape, Some(*head)),
        }
    }

    /// The labels of what may be one of two. What moves with the loop is not at one place.
    fn both(&self, sides: &[Option<Id>], shape: &[i64], head: Option<usize>) -> Vec<Label> {
        let mut labels = vec![Label::Free; shape.len()];
        for id in sides.iter().flatten() {
            let of = self.operand(*id, shape);
            labels = labels.iter().zip(&of).map(|(x, y)| x.either(y)).collect();
        }
        let Some(head) = head else { return labels };
        let counters = match &self.sites.all[self.values.loops[head].site].stmt.kind {
            StmtKind::For { counter, .. } => vec![*counter],
            StmtKind::Tiles { row, col, .. } => vec![*row, *col],
            _ => Vec::new(),
        };
        for label in &mut labels {
            if let Label::At(place) = label
                && place.base.as_ref().is_some_and(|base| {
                    let movers = self.movers(base);
                    counters.iter().any(|counter| movers.counters.contains(counter))
                })
            {
                *label = Label::Unknown;
            }
        }
        labels
    }

    fn shaped(&self, op: &ShapeOp, x: Id, rank: usize) -> Vec<Label> {
        let labels = self.labels(x);
        let at = |mode: usize| labels.get(mode).cloned().unwrap_or(Label::Unknown);
        match op {
            ShapeOp::Transpose(order) => order.iter().map(|mode| at(*mode as usize)).collect(),
            ShapeOp::Expand { axis } => {
                let mut labels = labels.clone();
                labels.insert((*axis as usize).min(labels.len()), Label::Free);
                labels
            }
            ShapeOp::Broadcast(_) => labels,
            ShapeOp::Slice { axis, start, .. } => {
                let mut labels = labels.clone();
                if let Some(Label::At(place)) = labels.get_mut(*axis as usize) {
                    place.base = place.base.clone().map(|base| in_order(&(base + start)));
                }
                labels
            }
            // Modes of one element come and go.
            ShapeOp::Reshape(_) => {
                let from = &self.values.all[x].shape;
                let kept = from.iter().zip(&labels).filter(|(extent, _)| **extent != 1);
                let kept: Vec<Label> = kept.map(|(_, label)| label.clone()).collect();
                if kept.len() == 1 && rank == 1 { kept } else { vec![Label::Unknown; rank] }
            }
        }
    }

    /// The places of a tile's modes, as a statement reads or writes it.
    pub(super) fn places(&self, site: usize, r: &TensorRef) -> Vec<Label> {
        let tile = self.sites.verified.tile(r);
        let Some(global) = &tile.global else { return vec![Label::Unknown; tile.shape.len()] };
        (0..tile.shape.len()).map(|mode| self.placed(site, r, global, mode)).collect()
    }

    fn placed(&self, site: usize, r: &TensorRef, tile: &GlobalTile, mode: usize) -> Label {
        let [(len, dim, 1)] = tile.modes[mode].as_slice() else {
            let single = tile.modes[mode].iter().all(|(extent, ..)| *extent == 1);
            return if single { Label::Free } else { Label::Unknown };
        };
        let dim = *dim as usize;
        let base = &tile.base[dim];
        // Several modes along one of the buffer.
        let alone = tile.modes.iter().flatten().filter(|leaf| leaf.1 as usize == dim).count() == 1;
        let Some(extent) = self.sites.verified.buffer_shape(tile.param).get(dim) else {
            return Label::Unknown;
        };
        if !alone || by_data(base) {
            return Label::Unknown;
        }
        Label::At(Place {
            param: tile.param,
            dim,
            base: Some(in_order(base)),
            extent: extent.clone(),
            len: *len,
            site,
            view: r.tensor,
        })
    }

    fn loaded(&self, site: usize) -> Vec<Label> {
        match &self.sites.all[site].stmt.kind {
            StmtKind::Copy { src, .. } | StmtKind::CopyAsync { src, .. } => self.places(site, src),
            _ => Vec::new(),
        }
    }

    /// The labels of a part of a shared tensor: those of the only copy to it, or to a ring of stages of the one that is read.
    fn slot(&self, site: usize, tensor: TensorId, rank: usize) -> Vec<Label> {
        let unknown = vec![Label::Unknown; rank];
        let kind = &self.sites.all[site].stmt.kind;
        let mut reads = kind.references().into_iter().filter(|(used, r)| used.reads() && r.tensor == tensor);
        let (Some((_, r)), None) = (reads.next(), reads.next()) else { return unknown };
        let Some(fillings) = self.values.fillings.get(&tensor) else { return unknown };
        if r.indexed.is_some() {
            return unknown;
        }
        let mut common: Option<Vec<Label>> = None;
        for filling in fillings {
            let mut labels = self.operand(filling.value, &self.values.all[filling.value].shape);
            if filling.to.transposed {
                labels.reverse();
            }
            let fixed = |r: &TensorRef| r.index.iter().flatten().cloned().collect::<Vec<Expr>>();
            let (written, read) = (fixed(&filling.to), fixed(r));
            if written.len() != read.len() || labels.len() != rank {
                return unknown;
            }
            for label in &mut labels {
                if let Label::At(place) = label {
                    place.base = place.base.take().and_then(|base| self.in_ring(&base, &written, &read));
                }
            }
            common = Some(match common {
                None => labels,
                Some(other) => labels.iter().zip(&other).map(|(x, y)| x.either(y)).collect(),
            });
        }
        let mut labels = common.unwrap_or(unknown);
        if r.transposed {
            labels.reverse();
        }
        labels
    }

    /// The place of a tile that is read from a stage: that of the tile which was written to it, where stages are numbered by the tiles that they
    /// hold, modulo their number (`i % STAGES`).
    fn in_ring(&self, base: &Expr, written: &[Expr], read: &[Expr]) -> Option<Expr> {
        let number = |e: &Expr| match e {
            Expr::Binary(IntOp::Rem, tile, stages) => Some(((**tile).clone(), Some((**stages).clone()))),
            Expr::Symbol(_) => Some((e.clone(), None)),
            _ => None,
        };
        match (written, read) {
            ([], []) => Some(base.clone()),
            ([w], [r]) => {
                let ((wrote, over), (reads, under)) = (number(w)?, number(r)?);
                // Those before the loop are stages of small numbers.
                if over.is_some() && over != under {
                    return None;
                }
                let counters = self.movers(&wrote).counters;
                let counter = counters.iter().next().filter(|_| counters.len() == 1)?;
                // The tile's number as the counter: `i + 2` stands for the tile `reads`.
                let shift = wrote.substitute(&|id| (id == *counter).then_some(Expr::Int(0))).as_int()?;
                let tile = reads - &Expr::Int(shift);
                Some(in_order(&base.substitute(&|id| (id == *counter).then(|| tile.clone()))))
            }
            _ => None,
        }
    }

    /// The size that an extent is.
    fn size(&self, e: &Expr) -> Option<SymbolId> {
        let Expr::Symbol(id) = e else { return None };
        matches!(self.sites.program().symbol(*id).kind, SymbolKind::Size(_)).then_some(*id)
    }

    /// True for places along modes of buffers that have nothing to do with each other: their extents are different sizes.
    fn of_other_sizes(&self, x: &Place, y: &Place) -> bool {
        matches!((self.size(&x.extent), self.size(&y.extent)), (Some(a), Some(b)) if a != b)
    }

    /// True if what moves one does not move the other.
    fn move_apart(&self, x: &Place, y: &Place) -> bool {
        let (Some(a), Some(b)) = (&x.base, &y.base) else { return false };
        let (a, b) = (self.movers(a), self.movers(b));
        a != b && !(a.is_empty() && b.is_empty())
    }

    /// True if tiles along one mode lie at different places in an iteration that both know.
    fn lie_apart(&self, x: &Place, y: &Place) -> bool {
        let (Some(a), Some(b)) = (&x.base, &y.base) else { return false };
        let sites = &self.sites.all;
        let longer =
            if sites[x.site].counters.len() > sites[y.site].counters.len() { x.site } else { y.site };
        let counters = &sites[longer].counters;
        let seen =
            |e: &Expr| self.movers(e).counters.iter().all(|id| counters.iter().any(|c| c.symbol == *id));
        if a == b || !seen(a) || !seen(b) {
            return false;
        }
        let Some(sample) = self.sites.samples(&[]).into_iter().next() else { return false };
        let mut apart = true;
        let known = self.sites.points(&sample, counters, &[a, b], &mut |point| {
            let difference = a.eval(point).zip(b.eval(point)).map(|(a, b)| a - b);
            apart &= difference.is_some_and(|d| d != 0 && d % x.len.max(1) == 0);
        });
        known && apart
    }

    /// The name of a buffer's mode: `mode 1 of `x`, of n elements`.
    pub(super) fn name(&self, place: &Place) -> String {
        let name = &self.sites.verified.source.param(place.param).name;
        format!("mode {} of `{name}` (`{}` elements)", place.dim, self.extent_text(place))
    }

    /// The extent of the buffer's mode, in the program's names.
    pub(super) fn extent_text(&self, place: &Place) -> String {
        let source = &*self.sites.verified.source;
        let extent = match &source.param(place.param).kind {
            ParamKind::Tensor { shape, .. } => shape.get(place.dim).map(|e| expr_text(source, e)),
            ParamKind::Scalar { .. } => None,
        };
        extent.unwrap_or_default()
    }

    /// The coordinate of a place's first element, in the program's names.
    pub(super) fn base_text(&self, place: &Place) -> String {
        let references = self.sites.all[place.site].stmt.kind.references();
        let r = references.into_iter().find(|(_, r)| r.tensor == place.view);
        let base = r.map_or(Expr::Int(0), |(_, r)| base_of(self.sites, r, place.dim));
        expr_text(&*self.sites.verified.source, &base)
    }

    /// The same with constants by their values: where the tile is by now, of one that went through stages.
    fn base_now(&self, place: &Place) -> String {
        let source = &*self.sites.verified.source;
        place.base.as_ref().map_or_else(|| self.base_text(place), |base| expr_text(source, base))
    }
}

/// The coordinate of the first element that a reference to a view reads along a mode of the buffer, as it is written.
pub(super) fn base_of(sites: &Sites<'_>, r: &TensorRef, dim: usize) -> Expr {
    let source = &*sites.verified.source;
    let mut terms = Vec::new();
    if let TensorKind::View { offsets, modes, .. } = &source.tensor(r.tensor).kind {
        terms.extend(offsets.get(dim).filter(|e| e.as_int() != Some(0)).cloned());
        for (mode, index) in modes.iter().zip(&r.index) {
            if let ([leaf], Some(index)) = (mode.leaves.as_slice(), index)
                && leaf.dim as usize == dim
            {
                terms.push(index.clone() * &leaf.scale);
            }
        }
    }
    terms.into_iter().reduce(|sum, term| sum + term).unwrap_or(Expr::Int(0))
}

/// Two places that do not go together.
struct Clash {
    /// The statement that is to change.
    site: usize,
    modes: Vec<(usize, Place, Place)>,
    of: String,
    /// True if the places differ by where tiles are by now.
    moved: bool,
    /// A statement beside it that is right, and why it is of interest.
    beside: Option<(usize, String)>,
    /// The remedy, where it is known better than by the kind of the statement.
    help: Option<String>,
}

impl Clash {
    fn new(site: usize, of: &str, modes: Vec<(usize, Place, Place)>) -> Self {
        Clash { site, modes, of: of.to_string(), moved: false, beside: None, help: None }
    }
}

impl Axes<'_, '_> {
    /// The modes in which labels clash, of operands or of a value and where it is stored.
    fn clashes(&self, left: &[Label], right: &[Label]) -> Vec<(usize, Place, Place)> {
        let pairs = || left.iter().zip(right).enumerate();
        let both =
            |(mode, (x, y)): (usize, (&Label, &Label))| Some((mode, x.place()?.clone(), y.place()?.clone()));
        let all: Vec<_> = pairs().filter_map(both).collect();
        let apart = |(_, x, y): &&(usize, Place, Place)| self.of_other_sizes(x, y) && self.move_apart(x, y);
        let found: Vec<_> = all.iter().filter(apart).cloned().collect();
        if !found.is_empty() {
            return found;
        }
        // Along two modes of one size the places may have changed sides.
        if let [(_, x, y), (_, u, w)] = all.as_slice()
            && [&y.extent, &u.extent, &w.extent].iter().all(|extent| **extent == x.extent)
            && x.base.is_some()
            && x.base == w.base
            && u.base == y.base
            && x.base != u.base
        {
            return all;
        }
        Vec::new()
    }

    fn report(&self, clash: &Clash) -> Diagnostic {
        let stmt = self.sites.all[clash.site].stmt;
        let base = |place: &Place| if clash.moved { self.base_now(place) } else { self.base_text(place) };
        let texts = clash.modes.iter().map(|(mode, x, y)| {
            format!(
                "mode {mode} lies along {} from `{}` on, and along {} from `{}` on",
                self.name(x),
                base(x),
                self.name(y),
                base(y)
            )
        });
        let message = format!("{}: {}", clash.of, texts.collect::<Vec<_>>().join("; "));
        let mut finding = Diagnostic::new(Code::AxesMixed, stmt.span, message);
        if let Some((site, label)) = &clash.beside {
            finding = finding.related(self.sites.all[*site].stmt.span, label.clone());
        }
        let mut places: Vec<&Place> = clash.modes.iter().flat_map(|(_, x, y)| [x, y]).collect();
        let mut shown = BTreeSet::new();
        places.retain(|place| shown.insert(place.view));
        for place in places {
            let view = self.sites.program().tensor(place.view);
            finding = finding.related(view.span, format!("`{}`", view.name));
        }
        finding
    }

    fn elementwise(&self) -> Vec<Clash> {
        let mut found = Vec::new();
        for value in &self.values.all {
            let operands = match &value.node {
                Node::Binary(_, x, y) => vec![*x, *y],
                Node::Where(operands) => operands.to_vec(),
                _ => continue,
            };
            let mut labels = vec![Label::Free; value.shape.len()];
            for id in operands {
                let of = self.operand(id, &value.shape);
                let modes = self.clashes(&labels, &of);
                if !modes.is_empty() {
                    found.push(Clash::new(value.site, "elements of different axes are put together", modes));
                }
                labels = labels.iter().zip(&of).map(|(x, y)| x.or(y)).collect();
            }
        }
        found
    }

    fn products(&self) -> Vec<Clash> {
        let mut found = Vec::new();
        for value in &self.values.all {
            let Node::Product(site, [c, a, b]) = &value.node else { continue };
            let (left, right) = (self.labels(*a), self.labels(*b));
            // The columns of a sparse factor are not those of the other.
            let sparse = matches!(
                self.sites.all[*site].stmt.kind,
                StmtKind::Gemm { meta: Some(_), .. } | StmtKind::GemmAsync { meta: Some(_), .. }
            );
            if let (false, Some(Label::At(x)), Some(Label::At(y))) = (sparse, left.get(1), right.get(1)) {
                let modes = || vec![(1, x.clone(), y.clone())];
                if self.of_other_sizes(x, y) {
                    let of = "the factors of the product are summed along different axes";
                    let help = self.other_way(x, y).or_else(|| self.other_way(y, x));
                    found.push(Clash { help, ..Clash::new(*site, of, modes()) });
                    continue;
                }
                if x.extent == y.extent && self.lie_apart(x, y) {
                    let of = "the factors of the product are not at one place of K";
                    let clash = Clash { moved: true, ..Clash::new(*site, of, modes()) };
                    found.push(self.of_stage(clash, (*a, x), (*b, y)));
                    continue;
                }
            }
            let sums = self.operand(*c, &value.shape);
            let first = |labels: Vec<Label>| labels.into_iter().next().unwrap_or(Label::Unknown);
            let modes = self.clashes(&sums, &[first(left), first(right)]);
            if !modes.is_empty() {
                found.push(Clash::new(*site, "the product is added to sums along other axes", modes));
            }
        }
        found
    }

    /// The labels of the tile that a store writes.
    pub(super) fn stored(&self, store: &Store) -> Vec<Label> {
        self.places(store.site, &store.to)
    }

    /// The help for a factor whose buffer has the extent of the other's K along its other mode: the view the other way around.
    fn other_way(&self, right: &Place, wrong: &Place) -> Option<String> {
        let source = &*self.sites.verified.source;
        let row = source.param(wrong.param);
        let ParamKind::Tensor { shape, .. } = &row.kind else { return None };
        let [_, _] = shape.as_slice() else { return None };
        let extent = expr_text(source, &shape[1 - wrong.dim]);
        if extent != self.extent_text(right) {
            return None;
        }
        let view = exchanged_view(source, wrong.view)?;
        let (name, mode) = (&row.name, 1 - wrong.dim);
        Some(format!("`{name}` has its `{extent}` elements along mode {mode}: `{view}`"))
    }

    /// The same clash at the copy that reads another stage than the loop is at, where that is one of the two.
    fn of_stage(&self, clash: Clash, left: (Id, &Place), right: (Id, &Place)) -> Clash {
        let sites = &self.sites.all;
        let Some(sample) = self.sites.samples(&[]).into_iter().next() else { return clash };
        // At the head of the loop the one begins with the first element, the other does not.
        let first = |(_, place): (Id, &Place)| {
            let (mut at, counters) = (None, &sites[clash.site].counters);
            place.base.as_ref().is_some_and(|base| {
                self.sites.points(&sample, counters, &[base], &mut |point| {
                    at = at.or(base.eval(point));
                }) && at == Some(0)
            })
        };
        let (right_one, wrong) = match (first(left), first(right)) {
            (true, false) => (left, right),
            (false, true) => (right, left),
            _ => return clash,
        };
        let read = |(id, _): (Id, &Place)| match self.values.all[id].node {
            Node::Slot(site, tensor) => {
                let references = sites[site].stmt.kind.references();
                let (_, r) = references.into_iter().find(|(how, r)| how.reads() && r.tensor == tensor)?;
                Some((site, r.clone()))
            }
            _ => None,
        };
        let (Some((beside, good)), Some((site, bad))) = (read(right_one), read(wrong)) else { return clash };
        let source = &*self.sites.verified.source;
        let stages = |r: &TensorRef| -> Vec<String> {
            r.index.iter().flatten().map(|e| expr_text(source, e)).collect()
        };
        let (stages_of_good, stages_of_bad) = (stages(&good), stages(&bad));
        let ([stage], [other]) = (stages_of_good.as_slice(), stages_of_bad.as_slice()) else { return clash };
        if site == beside {
            return clash;
        }
        let (name, of) = (&source.tensor(bad.tensor).name, &source.tensor(good.tensor).name);
        let help = format!("read stage `{stage}` of `{name}`, as of `{of}`, instead of `{other}`");
        Clash { site, beside: Some((beside, "the other factor".to_string())), help: Some(help), ..clash }
    }

    /// The same clash at the product whose factors are exchanged, where the tile that is stored is the sums of one.
    fn of_product(&self, clash: Clash, stored: Id) -> Clash {
        let [(_, x, to), (_, y, beside)] = clash.modes.as_slice() else { return clash };
        // Each mode lies where the other is stored.
        if (x.extent != beside.extent, y.extent != to.extent) != (false, false) {
            return clash;
        }
        let (mut id, mut seen) = (stored, BTreeSet::new());
        let site = loop {
            if !seen.insert(id) {
                return clash;
            }
            id = match &self.values.all[id].node {
                Node::Product(site, _) => break *site,
                Node::Cast(_, x) | Node::Unary(_, x) => *x,
                Node::Carried(head, tensor) => match self.values.sides(*head, *tensor).as_slice() {
                    [_, Some(around)] => *around,
                    _ => return clash,
                },
                _ => return clash,
            };
        };
        let source = &*self.sites.verified.source;
        let kind = &self.sites.all[site].stmt.kind;
        let name = |id: TensorId| source.tensor(id).name.as_str();
        let exchanged = match kind {
            StmtKind::Gemm { c, a, b, meta: None, scales: None, .. } => {
                format!("gemm({}, {}, {})", name(*c), name(*b), name(*a))
            }
            _ => return clash,
        };
        let help = format!("exchange the factors, `{exchanged}`, or store the tile transposed");
        let of = "the sums of the product lie the other way around than they are stored".to_string();
        Clash { site, of, beside: Some((clash.site, "stored here".to_string())), help: Some(help), ..clash }
    }

    fn stores(&self) -> Vec<Clash> {
        let mut found = Vec::new();
        for store in &self.values.stores {
            let to = self.stored(store);
            let from = self.operand(store.value, &self.values.all[store.value].shape);
            if from.len() != to.len() {
                continue;
            }
            let modes = self.clashes(&from, &to);
            if !modes.is_empty() {
                let clash = Clash::new(store.site, "the tile is stored elsewhere than it lies", modes);
                found.push(self.of_product(clash, store.value));
            }
        }
        found
    }
}

/// The help for a clash, by the statement.
fn help(sites: &Sites<'_>, clash: &Clash) -> String {
    if let Some(help) = &clash.help {
        return help.clone();
    }
    let whole = clash.modes.len() == 2;
    match &sites.all[clash.site].stmt.kind {
        StmtKind::Gemm { .. } | StmtKind::GemmAsync { .. } => {
            "`gemm(c, a, b)` is c[i, j] += Σ a[i, k] · b[j, k]: give both factors the same part of K, and transpose one that is stored the other way"
                .to_string()
        }
        StmtKind::Copy { .. } | StmtKind::CopyAsync { .. } if whole => {
            "transpose the tile, `copy(transpose(t), …)`, exchange the factors of its product, or store it through a view with the modes in this order"
                .to_string()
        }
        StmtKind::Copy { .. } | StmtKind::CopyAsync { .. } => {
            "store through a view along the modes that the tile was read from".to_string()
        }
        _ => "`expand(t, 0)` repeats a row for every row, `expand(t, 1)` a column for every column; a tile that is stored the other way is transposed"
            .to_string(),
    }
}

/// Statements that put together, or store, what lies along different axes.
pub(super) fn mixed(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let axes = Axes::of(sites);
    let mut all = axes.elementwise();
    all.extend(axes.products());
    all.extend(axes.stores());
    all.sort_by_key(|clash| clash.site);
    // What follows from the first would be said again for each statement behind it.
    all.iter().take(1).map(|clash| axes.report(clash).help(help(sites, clash))).collect()
}

/// The definition of a view of a matrix with the matrix's modes exchanged.
pub(super) fn exchanged_view(source: &Program, view: TensorId) -> Option<String> {
    let row = source.tensor(view);
    let TensorKind::View { param, offsets, ends, modes, fold } = &row.kind else { return None };
    if !fold.is_empty() {
        return None;
    }
    let ([first, second], [end, other]) = (offsets.as_slice(), ends.as_slice()) else { return None };
    let mut modes = modes.clone();
    modes.iter_mut().flat_map(|mode| &mut mode.leaves).for_each(|leaf| leaf.dim = 1 - leaf.dim);
    let (offsets, ends) = ([second.clone(), first.clone()], [other.clone(), end.clone()]);
    Some(format!("{} = {}", row.name, view_text(source, *param, (&offsets, &ends), (&modes, fold))))
}
