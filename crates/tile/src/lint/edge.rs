//! A lint about reductions over what lies outside of a tensor: the elements of a tile behind its buffer's end are read as 0, or as the copy
//! says, and what is computed from them takes part in a reduction unless a mask keeps it out.
//!
//! For each register and shared tensor and each of its modes the analysis keeps an interval of what elements outside along that mode hold,
//! and one of the elements inside. A statement whose expression names `index` of a mode masks it: what it does there is the author's.

use std::collections::BTreeMap;

use super::axes;
use super::points::{Site, Sites};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::printer::expr_text;
use crate::program::{
    ArgOp, BinaryOp, ElemExpr, ReduceOp, ShapeOp, StmtKind, TensorId, TensorKind, TensorRef, UnaryOp, Use,
};
use crate::verified::GlobalTile;

/// The least and the greatest of some numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range(f64, f64);

/// Numbers that tensors hold, as far as they are data: those of masks, such as −30000 or −1e30, lie below.
const DATA: Range = Range(-1e4, 1e4);

/// Every number.
const ANY: Range = Range(f64::NEG_INFINITY, f64::INFINITY);

impl Range {
    const fn exactly(x: f64) -> Range {
        Range(x, x)
    }

    fn is(self, x: f64) -> bool {
        self == Range(x, x)
    }

    /// The range of what a tensor holds inside: data, but for a constant.
    fn as_data(self) -> Range {
        match self {
            Range(low, high) if low == high => self,
            Range(low, high) => Range(low.clamp(DATA.0, DATA.1), high.clamp(DATA.0, DATA.1)),
        }
    }

    fn hull(self, other: Range) -> Range {
        Range(self.0.min(other.0), self.1.max(other.1))
    }

    /// The range of a function that grows; of finite numbers it is finite.
    fn growing(self, f: impl Fn(f64) -> f64) -> Range {
        let end = |x: f64| if x.is_finite() { f(x).clamp(-f64::MAX, f64::MAX) } else { f(x) };
        let (low, high) = (end(self.0), end(self.1));
        if low.is_nan() || high.is_nan() { ANY } else { Range(low, high) }
    }

    fn apply(self, other: Range, f: impl Fn(f64, f64) -> f64) -> Range {
        let end = |x: f64, y: f64| {
            let z = f(x, y);
            if x.is_finite() && y.is_finite() { z.clamp(-f64::MAX, f64::MAX) } else { z }
        };
        let ends = [end(self.0, other.0), end(self.0, other.1), end(self.1, other.0), end(self.1, other.1)];
        if ends.iter().any(|x| x.is_nan()) {
            return ANY;
        }
        let least = ends.iter().copied().fold(f64::INFINITY, f64::min);
        Range(least, ends.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    fn unary(self, op: UnaryOp) -> Range {
        let Range(low, high) = self;
        match op {
            UnaryOp::Neg => Range(-high, -low),
            UnaryOp::Abs if low >= 0.0 => self,
            UnaryOp::Abs if high <= 0.0 => Range(-high, -low),
            UnaryOp::Abs => Range(0.0, high.max(-low)),
            UnaryOp::Exp => self.growing(f64::exp),
            UnaryOp::Exp2 => self.growing(f64::exp2),
            UnaryOp::Sqrt if low >= 0.0 => self.growing(f64::sqrt),
            UnaryOp::Sqrt | UnaryOp::Rsqrt => Range(0.0, f64::MAX),
            UnaryOp::Tanh => self.growing(f64::tanh),
            UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Erf => Range(-1.0, 1.0),
            UnaryOp::Floor => self.growing(f64::floor),
            UnaryOp::Ceil => self.growing(f64::ceil),
            UnaryOp::Round => self.growing(f64::round_ties_even),
            UnaryOp::Float | UnaryOp::Int => self,
            UnaryOp::Log | UnaryOp::Log2 => ANY,
            UnaryOp::Not => Range(0.0, 1.0),
        }
    }

    fn binary(self, op: BinaryOp, other: Range) -> Range {
        match op {
            BinaryOp::Add => self.apply(other, |x, y| x + y),
            BinaryOp::Sub => self.apply(other, |x, y| x - y),
            BinaryOp::Mul => self.apply(other, |x, y| x * y),
            BinaryOp::Div | BinaryOp::FastDiv if self.is(0.0) => self,
            BinaryOp::Div | BinaryOp::FastDiv if other.0 > 0.0 || other.1 < 0.0 => {
                self.apply(other, |x, y| x / y)
            }
            BinaryOp::Min => Range(self.0.min(other.0), self.1.min(other.1)),
            BinaryOp::Max => Range(self.0.max(other.0), self.1.max(other.1)),
            BinaryOp::Lt if self.1 < other.0 => Range::exactly(1.0),
            BinaryOp::Lt if self.0 >= other.1 => Range::exactly(0.0),
            BinaryOp::Eq if self.0 > other.1 => Range::exactly(0.0),
            BinaryOp::Gt if self.0 > other.1 => Range::exactly(1.0),
            BinaryOp::Gt if self.1 <= other.0 => Range::exactly(0.0),
            BinaryOp::Le if self.1 <= other.0 => Range::exactly(1.0),
            BinaryOp::Le if self.0 > other.1 => Range::exactly(0.0),
            BinaryOp::Ge if self.0 >= other.1 => Range::exactly(1.0),
            BinaryOp::Ge | BinaryOp::Eq if self.1 < other.0 => Range::exactly(0.0),
            op if op.compares() => Range(0.0, 1.0),
            BinaryOp::And if self.is(0.0) || other.is(0.0) => Range::exactly(0.0),
            BinaryOp::Or if self.is(1.0) || other.is(1.0) => Range::exactly(1.0),
            BinaryOp::And | BinaryOp::Or => Range(0.0, 1.0),
            _ => ANY,
        }
    }
}

/// The elements of a tensor outside along one of its modes.
#[derive(Clone, Copy)]
struct Outside {
    value: Range,
    /// The copy that read them, and the view.
    copy: Origin,
    view: TensorId,
    /// The mode of the buffer.
    dim: u32,
}

/// Knowledge of a tensor's elements.
#[derive(Clone)]
struct Edge {
    /// For each mode what lies outside along it; `None` where nothing does, or a mask has dealt with it.
    modes: Vec<Option<Outside>>,
    inside: Range,
    /// Of truth values the modes whose `index` they depend on.
    masks: Vec<bool>,
}

impl Edge {
    fn none(rank: usize) -> Edge {
        Edge { modes: vec![None; rank], inside: DATA, masks: vec![false; rank] }
    }
}

/// Factors whose elements are multiplied by the scales of their blocks: what lies outside of a factor along K may lie in a block that is inside.
fn scaled(factors: [Edge; 2], scales: Option<[Edge; 2]>) -> [Edge; 2] {
    let Some(scales) = scales else { return factors };
    let mut both = factors.into_iter().zip(scales).map(|(mut factor, scale)| {
        for (outside, of_scale) in factor.modes.iter_mut().zip(&scale.modes) {
            let by = of_scale.map_or(scale.inside, |of_scale| of_scale.value);
            if let Some(outside) = outside {
                outside.value = outside.value.binary(BinaryOp::Mul, by);
            }
        }
        factor
    });
    std::array::from_fn(|_| both.next().unwrap_or_else(|| Edge::none(2)))
}

struct Analysis<'s, 'a> {
    sites: &'s Sites<'a>,
    known: BTreeMap<TensorId, Edge>,
    /// Copies whose elements outside some statement masks.
    masked: Vec<Origin>,
    found: Vec<Diagnostic>,
}

/// Reductions over elements that lie outside of a tensor and would change the result.
pub(super) fn unmasked(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let mut analysis = Analysis { sites, known: BTreeMap::new(), masked: Vec::new(), found: Vec::new() };
    // Twice: what a loop carries, and what another role has filled, is known the second time.
    for _ in 0..2 {
        analysis.found.clear();
        sites.all.iter().for_each(|site| analysis.statement(site));
    }
    analysis.found
}

impl Analysis<'_, '_> {
    fn rank(&self, id: TensorId) -> usize {
        match &self.sites.program().tensor(id).kind {
            TensorKind::View { modes, .. } => modes.len(),
            TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape }
            | TensorKind::Register { shape, .. }
            | TensorKind::Part { shape, .. } => shape.len(),
        }
    }

    fn edge(&self, id: TensorId) -> Edge {
        let id = match &self.sites.program().tensor(id).kind {
            TensorKind::Part { of, .. } if !self.known.contains_key(&id) => {
                // The parts of a register tensor are told apart, but for a fill of the whole.
                return Edge {
                    inside: self.known.get(of).map_or(DATA, |edge| edge.inside),
                    ..Edge::none(self.rank(id))
                };
            }
            _ => id,
        };
        self.known.get(&id).cloned().unwrap_or_else(|| Edge::none(self.rank(id)))
    }

    /// True if tiles reach behind the end of a mode of the buffer.
    fn exceeds(&self, site: &Site<'_>, tile: &GlobalTile, dim: usize) -> bool {
        let (base, extent) = (&tile.base[dim], &tile.shape[dim]);
        let span: i64 = tile
            .modes
            .iter()
            .flatten()
            .filter(|leaf| leaf.1 as usize == dim)
            .map(|(n, _, scale)| (n - 1) * scale)
            .sum();
        let Some(sample) = self.sites.samples(&[]).into_iter().next() else { return false };
        let Some(extent) = sample.eval(extent) else { return false };
        let mut last = -1;
        let known = self.sites.points(&sample, &site.counters, &[base], &mut |point| {
            last = last.max(base.eval(point).map_or(-1, |base| base + span));
        });
        known && last >= extent
    }

    /// The elements that a reference reads.
    fn read(&self, site: &Site<'_>, r: &TensorRef, outside: f64) -> Edge {
        let tile = self.sites.verified.tile(r);
        if let Some(global) = &tile.global {
            let mut edge = Edge::none(tile.shape.len());
            let dtype = tile.dtype;
            if let Some((low, high)) = dtype.range() {
                edge.inside = Range((low as f64).max(DATA.0), (high as f64).min(DATA.1));
            }
            for (mode, leaves) in global.modes.iter().enumerate() {
                let exceeds = leaves.iter().find(|leaf| self.exceeds(site, global, leaf.1 as usize));
                if let (Some((_, dim, _)), None) = (exceeds, &tile.indexed) {
                    edge.modes[mode] = Some(Outside {
                        value: Range::exactly(outside),
                        copy: site.stmt.span,
                        view: r.tensor,
                        dim: *dim,
                    });
                }
            }
            return edge;
        }
        let whole = self.edge(r.tensor);
        let kept: Vec<usize> =
            (0..whole.modes.len()).filter(|i| !matches!(r.index.get(*i), Some(Some(_)))).collect();
        let mut edge = Edge {
            modes: kept.iter().map(|i| whole.modes[*i]).collect(),
            inside: whole.inside,
            masks: kept.iter().map(|i| whole.masks[*i]).collect(),
        };
        if r.transposed {
            edge.modes.reverse();
            edge.masks.reverse();
        }
        edge
    }

    /// Takes the elements that a copy writes; a part of a shared tensor stands for the whole.
    fn write(&mut self, r: &TensorRef, mut edge: Edge) {
        if r.transposed {
            edge.modes.reverse();
            edge.masks.reverse();
        }
        let rank = self.rank(r.tensor);
        let fixed: Vec<usize> = (0..rank).filter(|i| matches!(r.index.get(*i), Some(Some(_)))).collect();
        for at in fixed {
            edge.modes.insert(at.min(edge.modes.len()), None);
            edge.masks.insert(at.min(edge.masks.len()), false);
        }
        edge.modes.resize(rank, None);
        edge.masks.resize(rank, false);
        self.known.insert(r.tensor, edge);
    }

    /// The numbers of an expression where operands are outside along `mode`, or inside without one.
    fn range(&self, expr: &ElemExpr, mode: Option<usize>) -> Range {
        match expr {
            ElemExpr::Tensor(id) => {
                let edge = self.edge(*id);
                let outside = mode.and_then(|mode| *edge.modes.get(mode)?);
                outside.map_or(edge.inside, |outside| outside.value)
            }
            ElemExpr::Number(x) => Range::exactly(*x),
            ElemExpr::Int(Expr::Int(x)) => Range::exactly(*x as f64),
            ElemExpr::Scalar(_) | ElemExpr::Int(_) | ElemExpr::Index(_) | ElemExpr::Operand(_) => DATA,
            ElemExpr::Unary(op, x) => self.range(x, mode).unary(*op),
            ElemExpr::Packed(_, x) => self.range(x, mode),
            ElemExpr::Asm(asm) => self.range(&asm.means, mode),
            ElemExpr::Binary(BinaryOp::Sub, x, y) if x == y => Range::exactly(0.0),
            ElemExpr::Binary(BinaryOp::Mul, x, y) if x == y => {
                self.range(x, mode).unary(UnaryOp::Abs).growing(|x| x * x)
            }
            ElemExpr::Binary(op, x, y) => self.range(x, mode).binary(*op, self.range(y, mode)),
            ElemExpr::Where(operands) => self.range(&operands[1], mode).hull(self.range(&operands[2], mode)),
            ElemExpr::Bitcast(..) => ANY,
        }
    }

    fn elementwise(&mut self, dst: TensorId, expr: &ElemExpr) -> Edge {
        let rank = self.rank(dst);
        let mut edge = Edge { inside: self.range(expr, None).as_data(), ..Edge::none(rank) };
        let edges: Vec<Edge> = expr.tensors().into_iter().map(|id| self.edge(id)).collect();
        for mode in 0..rank {
            let mut masked = edges.iter().any(|edge| edge.masks.get(mode) == Some(&true));
            expr.visit(&mut |x| masked |= matches!(x, ElemExpr::Index(axis) if *axis as usize == mode));
            edge.masks[mode] = masked;
            let outside = edges.iter().find_map(|edge| *edge.modes.get(mode)?);
            if masked {
                self.masked.extend(outside.map(|outside| outside.copy));
                continue;
            }
            edge.modes[mode] =
                outside.map(|outside| Outside { value: self.range(expr, Some(mode)), ..outside });
        }
        // Truth values alone pass a mask on: what a mask has been applied to is masked.
        let program = self.sites.program();
        if program.tensor(dst).dtype != tilewright_machine::DType::Bool {
            edge.masks = vec![false; rank];
        }
        edge
    }

    fn product(&mut self, site: &Site<'_>, c: TensorId, [a, b]: [Edge; 2]) {
        let along = |edge: &Edge| edge.modes.get(1).copied().flatten();
        if let (Some(left), Some(right)) = (along(&a), along(&b))
            && !left.value.is(0.0)
            && !right.value.is(0.0)
        {
            let text = "a product over elements outside along K, of which neither factor's are 0".to_string();
            self.report(
                site.stmt.span,
                text,
                left,
                "mask one of the factors: `where(index(1) < …, …, 0.0)`".to_string(),
            );
        }
        let mut edge = self.edge(c);
        let rows = [&a, &b].map(|edge| edge.modes.first().copied().flatten());
        for (mode, outside) in rows.into_iter().enumerate().take(edge.modes.len()) {
            let value = |outside: Outside| {
                if outside.value.is(0.0) && edge.inside.is(0.0) { Range::exactly(0.0) } else { DATA }
            };
            let before = edge.modes[mode];
            edge.modes[mode] = outside.map(|outside| match before {
                Some(before) if outside.value.is(0.0) => before,
                _ => Outside { value: value(outside), ..outside },
            });
        }
        edge.inside = DATA;
        self.known.insert(c, edge);
    }

    fn report(&mut self, place: Origin, message: String, outside: Outside, help: String) {
        let name = &self.sites.program().tensor(outside.view).name;
        self.found.push(
            Diagnostic::new(Code::UnmaskedEdge, place, message)
                .related(outside.copy, format!("reads beyond the end of what `{name}` views"))
                .help(help),
        );
    }

    /// True if a role reads the stages that a copy fills at several places, and masks those of another: the author knows which stage is the last.
    fn masked_in_another_stage(&self, outside: Outside) -> bool {
        let sites = &self.sites.all;
        let copy = sites.iter().find(|site| site.stmt.span.key() == outside.copy.key());
        let written = copy.and_then(|site| {
            let all = site.stmt.kind.references();
            all.into_iter().find(|(how, _)| *how == Use::Write).map(|(_, r)| r.tensor)
        });
        let Some(stage) = written else { return false };
        let reads = |site: &&Site<'_>| {
            let mut read = site.stmt.kind.references().into_iter();
            read.any(|(how, r)| how == Use::Read && r.tensor == stage)
        };
        self.masked.iter().any(|masked| masked.key() == outside.copy.key())
            && self.sites.program().pipelines.iter().any(|pipeline| pipeline.tensors.contains(&stage))
            && sites.iter().filter(reads).count() > 1
    }

    /// Checks that what lies outside of an operand does not change what is found along a mode.
    fn check(&mut self, site: &Site<'_>, (word, op): (&str, ReduceOp), src: TensorId, axis: usize) {
        let edge = self.edge(src);
        let Some(outside) = edge.modes.get(axis).copied().flatten() else { return };
        let (neutral, harmless) = match op {
            ReduceOp::Sum => ("0.0", outside.value.is(0.0)),
            ReduceOp::Product => ("1.0", outside.value.is(1.0)),
            ReduceOp::Max => ("-inf", outside.value.1 <= edge.inside.0),
            ReduceOp::Min => ("inf", outside.value.0 >= edge.inside.1),
        };
        if harmless || self.masked_in_another_stage(outside) {
            return;
        }
        let source = &*self.sites.verified.source;
        let tensor = source.tensor(src);
        let name = tensor.unnamed.text().unwrap_or(&tensor.name);
        let holds = match outside.value {
            Range(low, high) if low == high => format!("{low}"),
            _ => "computed from what lies there".to_string(),
        };
        let message = format!(
            "{word} along mode {axis} of `{name}` takes in elements outside of the tensor, which are {holds}"
        );
        let global = self.sites.program().tensor(outside.view);
        let extent = match &global.kind {
            TensorKind::View { param, .. } => {
                self.extent(*param, outside).map_or("…".to_string(), |extent| expr_text(source, extent))
            }
            _ => "…".to_string(),
        };
        let base = self.base(outside);
        let read = if outside.value.is(0.0) && matches!(op, ReduceOp::Max | ReduceOp::Min) {
            format!("read what lies outside as {neutral}: `copy(…, outside = {neutral})`, or mask it: ")
        } else {
            "mask it: ".to_string()
        };
        self.report(
            site.stmt.span,
            message,
            outside,
            format!("{read}`where({base}index({axis}) < {extent}, {name}, {neutral})`"),
        );
    }

    /// The extent of the mode of the buffer.
    fn extent(&self, param: crate::program::ParamId, outside: Outside) -> Option<&Expr> {
        match &self.sites.verified.source.param(param).kind {
            crate::program::ParamKind::Tensor { shape, .. } => shape.get(outside.dim as usize),
            crate::program::ParamKind::Scalar { .. } => None,
        }
    }

    /// The tile's first coordinate along the mode, to be added to one within it: `i * BN + `; nothing where it is 0.
    fn base(&self, outside: Outside) -> String {
        let copy = self.sites.all.iter().find(|site| site.stmt.span.key() == outside.copy.key());
        let references = copy.map(|site| site.stmt.kind.references()).unwrap_or_default();
        let r = references.into_iter().find(|(_, r)| r.tensor == outside.view);
        let Some((_, r)) = r else { return String::new() };
        let base = axes::base_of(self.sites, r, outside.dim as usize);
        if base.as_int() == Some(0) {
            String::new()
        } else {
            format!("{} + ", expr_text(&*self.sites.verified.source, &base))
        }
    }

    /// Checks that what lies outside of a tensor of indices is no index of what they say where to add.
    fn indexed(&mut self, site: &Site<'_>, dst: &TensorRef) {
        let Some(indexed) = self.sites.verified.tile(dst).indexed else { return };
        let Some(outside) = self.edge(indexed.by).modes.first().copied().flatten() else { return };
        let Some(extent) = indexed.extent.as_int() else { return };
        // Computed indices may be masked; one that is the same everywhere is no index of an element.
        let Range(low, high) = outside.value;
        if low != high || low < 0.0 || low >= extent as f64 || self.edge(indexed.by).inside.is(low) {
            return;
        }
        let program = self.sites.program();
        let (name, by) = (&program.tensor(dst.tensor).name, &program.tensor(indexed.by).name);
        let message = format!(
            "indices `{by}` of elements outside of the tensor are {low}, which is an index of `{name}`: they are added there, too"
        );
        let help = "read them as an index that nothing has: `copy(…, outside = -1)`".to_string();
        self.report(site.stmt.span, message, outside, help);
    }

    fn statement(&mut self, site: &Site<'_>) {
        match &site.stmt.kind {
            StmtKind::Copy { src, dst, how } => {
                let outside = how.outside.map_or(0.0, |value| value.value());
                let edge = self.read(site, src, outside);
                if how.combine.is_some() {
                    self.indexed(site, dst);
                }
                self.write(dst, edge);
            }
            StmtKind::CopyAsync { src, dst, how } => {
                let outside = how.outside.map_or(0.0, |value| value.value());
                let edge = self.read(site, src, outside);
                self.write(dst, edge);
            }
            StmtKind::Fill { dst, value } => {
                let rank = self.rank(*dst);
                self.known.insert(*dst, Edge { inside: Range::exactly(*value), ..Edge::none(rank) });
            }
            StmtKind::Elementwise { dst, expr } => {
                let edge = self.elementwise(*dst, expr);
                self.known.insert(*dst, edge);
            }
            StmtKind::Cast { dst, src } | StmtKind::Rearrange { dst, src } => {
                let edge = self.edge(*src);
                self.known.insert(*dst, edge);
            }
            StmtKind::Gemm { c, a, b, scales, .. } => {
                let scales = scales.map(|scales| scales.map(|id| self.edge(id)));
                let factors = scaled([self.edge(*a), self.edge(*b)], scales);
                self.product(site, *c, factors);
            }
            StmtKind::GemmAsync { c, a, b, scales, .. } => {
                let scales =
                    scales.as_ref().map(|scales| scales.each_ref().map(|scale| self.read(site, scale, 0.0)));
                let factors = scaled([a, b].map(|factor| self.read(site, factor, 0.0)), scales);
                self.product(site, *c, factors);
            }
            StmtKind::Reduce { dst, src, op, axis } => {
                let word = format!("the {} of a reduction", op.name());
                self.check(site, (&word, *op), *src, *axis as usize);
                let mut edge = self.edge(*src);
                for all in [&mut edge.masks] {
                    if (*axis as usize) < all.len() && all.len() > 1 {
                        all.remove(*axis as usize);
                    }
                }
                if (*axis as usize) < edge.modes.len() {
                    edge.modes[*axis as usize] = None;
                    if edge.modes.len() > 1 {
                        edge.modes.remove(*axis as usize);
                    }
                }
                if *op == ReduceOp::Sum || *op == ReduceOp::Product {
                    edge.inside = if edge.inside.0 >= 0.0 { Range(0.0, DATA.1) } else { DATA };
                    edge.modes.iter_mut().flatten().filter(|o| !o.value.is(0.0)).for_each(|o| o.value = DATA);
                }
                self.known.insert(*dst, edge);
            }
            StmtKind::Arg { value, index, src, op, axis } => {
                let op = (op.name(), if *op == ArgOp::Max { ReduceOp::Max } else { ReduceOp::Min });
                self.check(site, op, *src, *axis as usize);
                for id in [value, index] {
                    let rank = self.rank(*id);
                    self.known.insert(*id, Edge::none(rank));
                }
            }
            StmtKind::Shape { dst, src, op } => {
                let from = self.edge(*src);
                let rank = self.rank(*dst);
                let mut edge = Edge { inside: from.inside, ..Edge::none(rank) };
                let place = |mode: usize| match op {
                    ShapeOp::Transpose(order) => order.get(mode).map(|at| *at as usize),
                    ShapeOp::Expand { axis } if mode == *axis as usize => None,
                    ShapeOp::Expand { axis } => Some(mode - usize::from(mode > *axis as usize)),
                    ShapeOp::Slice { .. } | ShapeOp::Broadcast(_) => Some(mode),
                    ShapeOp::Reshape(_) => None,
                };
                for mode in 0..rank {
                    if let Some(at) = place(mode) {
                        edge.modes[mode] = from.modes.get(at).copied().flatten();
                        edge.masks[mode] = from.masks.get(at).copied().unwrap_or_default();
                    }
                }
                self.known.insert(*dst, edge);
            }
            other => {
                for id in other.assigned() {
                    let rank = self.rank(id);
                    self.known.insert(id, Edge::none(rank));
                }
            }
        }
    }
}
