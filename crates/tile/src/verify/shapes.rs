//! Checks of the statements that give register tensors another shape, reduce them and gather from them.

use tilewright_machine::DType;

use super::checker::{Checker, Life, count, shape_text};
use super::operands::{ONE_SHAPE, Operand, Site};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{ReduceOp, ScanOperands, ShapeOp, TensorId};

/// `mode 0`, `modes 0 and 1`, `modes 0 to 3`: what modes there are.
fn modes_text(rank: usize) -> String {
    match rank {
        0 | 1 => "mode 0".to_string(),
        2 => "modes 0 and 1".to_string(),
        _ => format!("modes 0 to {}", rank - 1),
    }
}

impl Checker<'_> {
    pub(super) fn shape(&mut self, dst: TensorId, src: TensorId, op: &ShapeOp, mut site: Site<'_>) {
        let shape = self
            .register(src, site.span, site.statement)
            .and_then(|operand| self.shape_after(src, &operand.shape, op, dst, site.span));
        self.result(dst, &[src], shape, false, &mut site);
    }

    /// The shape of the result, if the statement is legal for an operand of this shape.
    fn shape_after(
        &mut self,
        src: TensorId,
        shape: &[i64],
        op: &ShapeOp,
        dst: TensorId,
        span: Origin,
    ) -> Option<Vec<i64>> {
        let (name, rank) = (self.name(src), shape.len());
        match op {
            ShapeOp::Transpose(order) => self.transposed(name, shape, order, span),
            ShapeOp::Reshape(extents) => self.reshaped((src, shape), extents, dst, span),
            ShapeOp::Expand { axis } if *axis as usize > rank => {
                self.report(
                    Diagnostic::new(
                        Code::WrongRank,
                        span,
                        format!("`expand` puts a mode at {axis}, and `{name}` has {}", count(rank, "mode")),
                    )
                    .help(format!("the new mode stands at 0 to {rank}")),
                );
                None
            }
            ShapeOp::Expand { axis } => {
                let mut to = shape.to_vec();
                to.insert(*axis as usize, 1);
                Some(to)
            }
            ShapeOp::Slice { axis, start, extent } => self.sliced(name, shape, *axis, (start, extent), span),
            ShapeOp::Broadcast(extents) => self.broadcast((src, shape), extents, dst, span),
        }
    }

    /// The shape of a reshape: as many elements in another shape.
    fn reshaped(
        &mut self,
        (src, shape): (TensorId, &[i64]),
        extents: &[Expr],
        dst: TensorId,
        span: Origin,
    ) -> Option<Vec<i64>> {
        let to = self.extents(extents, dst, "reshape", span)?;
        let has: i64 = shape.iter().product();
        let wants = to.iter().try_fold(1i64, |product, n| product.checked_mul(*n));
        if wants == Some(has) {
            return Some(to);
        }
        let wants = wants.map_or("more than 2^63".to_string(), |n| n.to_string());
        let message = format!(
            "`{}` has {has} elements (shape {}), and {} has {wants}",
            self.name(src),
            shape_text(shape),
            shape_text(&to)
        );
        self.report(
            Diagnostic::new(Code::ShapeMismatch, span, message)
                .related(self.program.tensor(src).span, "defined here")
                .help("a reshape keeps the number of elements"),
        );
        None
    }

    /// The shape of a broadcast: modes of extent 1 repeated.
    fn broadcast(
        &mut self,
        (src, shape): (TensorId, &[i64]),
        extents: &[Expr],
        dst: TensorId,
        span: Origin,
    ) -> Option<Vec<i64>> {
        let to = self.extents(extents, dst, "broadcast", span)?;
        let (name, rank) = (self.name(src), shape.len());
        if to.len() != rank {
            let (has, given) = (count(rank, "mode"), count(to.len(), "extent"));
            let message = format!("`{name}` has {has}, and `broadcast` gives {given}");
            self.report(
                Diagnostic::new(Code::WrongRank, span, message)
                    .help("give one extent a mode; `expand` makes a new mode of extent 1 first"),
            );
            return None;
        }
        let wrong = shape.iter().zip(&to).position(|(from, to)| from != to && *from != 1);
        let Some(mode) = wrong else { return Some(to) };
        let message = format!(
            "mode {mode} of `{name}` has extent {}, which cannot be repeated to {}",
            shape[mode], to[mode]
        );
        self.report(
            Diagnostic::new(Code::ShapeMismatch, span, message)
                .related(self.program.tensor(src).span, "defined here")
                .help("only modes of extent 1 are repeated; the others keep their extents"),
        );
        None
    }

    /// The shape of a slice; where it begins is known once `unroll for` is expanded.
    fn sliced(
        &mut self,
        name: &str,
        shape: &[i64],
        axis: u32,
        (start, extent): (&Expr, &Expr),
        span: Origin,
    ) -> Option<Vec<i64>> {
        let has = self.axis("slice", name, axis, shape.len(), span);
        let extent = self.extent(extent, span, "the extent of a slice")?;
        if !self.known(start, span, "the beginning of a slice") || !has {
            return None;
        }
        let mut to = shape.to_vec();
        let full = std::mem::replace(&mut to[axis as usize], extent);
        let first = start.as_int().unwrap_or(0);
        if first < 0 || first.checked_add(extent).is_none_or(|end| end > full) {
            let message = format!(
                "the slice takes {extent} coordinates from {first} on, and mode {axis} of `{name}` has extent {full}"
            );
            let help = format!("a slice lies within its mode: from 0 on, to {full} at most");
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
            return None;
        }
        Some(to)
    }

    fn transposed(&mut self, name: &str, shape: &[i64], order: &[u32], span: Origin) -> Option<Vec<i64>> {
        let rank = shape.len();
        let mut seen = vec![false; rank];
        let mut problem = (order.len() != rank).then(|| {
            format!("`{name}` has {}, and its transpose lists {}", count(rank, "mode"), order.len())
        });
        let mut code = Code::WrongRank;
        let mut to = Vec::with_capacity(rank);
        for mode in order {
            if problem.is_some() {
                break;
            }
            match seen.get_mut(*mode as usize) {
                None => {
                    problem = Some(format!(
                        "the transpose lists mode {mode} of `{name}`, which has {}",
                        count(rank, "mode")
                    ));
                }
                Some(true) => {
                    code = Code::BadValue;
                    problem = Some(format!("the transpose lists mode {mode} of `{name}` twice"));
                }
                Some(slot) => {
                    *slot = true;
                    to.push(shape[*mode as usize]);
                }
            }
        }
        let Some(problem) = problem else { return Some(to) };
        let help = match rank {
            1 => "list mode 0, or nothing".to_string(),
            _ => format!("list each of the {} once, or none to reverse them", modes_text(rank)),
        };
        self.report(Diagnostic::new(code, span, problem).help(help));
        None
    }

    /// The extents that a statement gives: at least one, all positive constants.
    fn extents(
        &mut self,
        extents: &[Expr],
        dst: TensorId,
        statement: &str,
        span: Origin,
    ) -> Option<Vec<i64>> {
        if extents.is_empty() {
            self.report(
                Diagnostic::new(Code::WrongRank, span, format!("`{statement}` gives a shape without modes"))
                    .help("a shape is e.g. `[BM, BK]`"),
            );
            return None;
        }
        let what = format!("an extent of `{}`", self.name(dst));
        extents.iter().map(|e| self.extent(e, span, &what)).collect()
    }

    pub(super) fn join(&mut self, dst: TensorId, a: TensorId, b: TensorId, mut site: Site<'_>) {
        let span = site.span;
        let operands = [a, b].map(|id| self.register(id, span, site.statement));
        let [left, right] = operands;
        let mut shape = None;
        if let (Some(left), Some(right)) = (left, right) {
            let before = self.errors.len();
            if left.shape != right.shape {
                self.shapes_differ((a, &left.shape), (b, &right.shape), span, ONE_SHAPE);
            }
            self.same_type(
                a,
                b,
                span,
                "`join` takes two tensors of one element type",
                "cast one of them first",
            );
            if self.errors.len() == before {
                let mut both = left.shape;
                both.push(2);
                shape = Some(both);
            }
        }
        self.result(dst, &[a, b], shape, false, &mut site);
    }

    pub(super) fn split(&mut self, lo: TensorId, hi: TensorId, src: TensorId, mut site: Site<'_>) {
        let span = site.span;
        let operand = self.register(src, span, site.statement);
        let mut shape = operand.and_then(|operand| self.half(src, operand, span));
        if lo == hi {
            let message = format!("`{}` is to be both halves of `{}`", self.name(lo), self.name(src));
            self.report(
                Diagnostic::new(Code::DuplicateName, span, message).help("give the halves two names"),
            );
            shape = None;
        }
        self.result(lo, &[src], shape.clone(), false, &mut site);
        if lo != hi {
            self.result(hi, &[src], shape, false, &mut site);
        }
    }

    fn half(&mut self, src: TensorId, operand: Operand, span: Origin) -> Option<Vec<i64>> {
        let name = self.name(src);
        let mut shape = operand.shape;
        let (code, message, help) = match shape.pop() {
            Some(2) if !shape.is_empty() => return Some(shape),
            Some(2) => (
                Code::WrongRank,
                format!("`{name}` has 1 mode, and `split` takes the last one away"),
                format!("make a mode before it first: `t = expand({name}, 0)`"),
            ),
            last => (
                Code::ShapeMismatch,
                format!("the last mode of `{name}` has extent {}; `split` takes 2", last.unwrap_or(0)),
                "bring a mode of extent 2 to the end with `reshape` and `transpose`".to_string(),
            ),
        };
        self.report(
            Diagnostic::new(code, span, message)
                .related(self.program.tensor(src).span, "defined here")
                .help(help),
        );
        None
    }

    /// True if a tensor of this shape has the mode.
    pub(super) fn axis(&mut self, statement: &str, name: &str, axis: u32, rank: usize, span: Origin) -> bool {
        let has = (axis as usize) < rank;
        if !has {
            self.report(
                Diagnostic::new(
                    Code::WrongRank,
                    span,
                    format!(
                        "`{statement}` works along mode {axis}, and `{name}` has {}",
                        count(rank, "mode")
                    ),
                )
                .help(format!("modes count from 0: `{name}` has {}", modes_text(rank))),
            );
        }
        has
    }

    pub(super) fn reduce(
        &mut self,
        dst: TensorId,
        src: TensorId,
        op: ReduceOp,
        axis: u32,
        mut site: Site<'_>,
    ) {
        let span = site.span;
        let mut shape = None;
        if let Some(operand) = self.register(src, span, site.statement) {
            let name = self.name(src);
            let computed = self.computes(src, op, operand.dtype, span);
            if self.axis(site.statement, name, axis, operand.shape.len(), span) && computed {
                shape = Some(without(operand.shape, axis));
            }
        }
        self.result(dst, &[src], shape, true, &mut site);
    }

    pub(super) fn sort(
        &mut self,
        (dst, src): (TensorId, TensorId),
        carried: Option<[TensorId; 2]>,
        axis: u32,
        mut site: Site<'_>,
    ) {
        let span = site.span;
        let operand = self.register(src, span, site.statement);
        let with = carried.map(|[_, with]| self.register(with, span, site.statement));
        let before = self.errors.len();
        let mut shape = None;
        if let Some(operand) = operand
            && self.axis("sort", self.name(src), axis, operand.shape.len(), span)
        {
            let extent = operand.shape[axis as usize];
            if !(extent as u64).is_power_of_two() {
                let message = format!(
                    "a sort goes along modes of power-of-two extents, and mode {axis} of `{}` has {extent}",
                    self.name(src)
                );
                let next = (extent as u64).next_power_of_two();
                let help =
                    format!("make it {next} long, what lies beyond {extent} filled with the last in order");
                self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(help));
            }
            if let (Some(Some(with)), Some([_, id])) = (with, carried)
                && with.shape != operand.shape
            {
                self.shapes_differ(
                    (src, &operand.shape),
                    (id, &with.shape),
                    span,
                    "what is sorted together has one shape",
                );
            }
            shape = (self.errors.len() == before).then_some(operand.shape);
        }
        if let Some([values, with]) = carried {
            if values == dst {
                let message = format!("`{}` is to be both results of `sort`", self.name(dst));
                self.report(
                    Diagnostic::new(Code::DuplicateName, span, message).help("give the results two names"),
                );
                shape = None;
            } else {
                self.result(values, &[with], shape.clone(), true, &mut site);
            }
        }
        self.result(dst, &[src], shape, true, &mut site);
    }

    pub(super) fn arg(
        &mut self,
        [value, index]: [TensorId; 2],
        src: TensorId,
        axis: u32,
        mut site: Site<'_>,
    ) {
        let span = site.span;
        let operand = self.register(src, span, site.statement);
        let mut shape = operand.and_then(|operand| {
            let has = self.axis(site.statement, self.name(src), axis, operand.shape.len(), span);
            has.then(|| without(operand.shape, axis))
        });
        if value == index {
            let message = format!("`{}` is to be both the element and its coordinate", self.name(value));
            self.report(
                Diagnostic::new(Code::DuplicateName, span, message).help("give the results two names"),
            );
            shape = None;
        }
        self.result(value, &[src], shape.clone(), true, &mut site);
        if value == index {
            return;
        }
        let dtype = self.program.tensor(index).dtype;
        if self.shaped(index, shape, &mut site) && dtype != DType::I32 {
            let message = format!(
                "the coordinate that `{}` finds is i32, and `{}` is {dtype}",
                site.statement,
                self.name(index)
            );
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help("give it another name"));
        }
    }

    /// True if an operation can be done on elements of this type.
    pub(super) fn computes(&mut self, src: TensorId, op: ReduceOp, dtype: DType, span: Origin) -> bool {
        let narrow = !dtype.is_float() && dtype.bits() < 32;
        let fails = op.computes() && narrow;
        if fails {
            let message =
                format!("there is no {} of {dtype}, which is what `{}` holds", op.name(), self.name(src));
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help("cast it to i32 first"));
        }
        !fails
    }

    pub(super) fn scan(&mut self, dst: TensorId, operands: ScanOperands, axis: u32, mut site: Site<'_>) {
        let span = site.span;
        let (src, shape) = match operands {
            ScanOperands::One { src, op } => {
                let operand = self.register(src, span, site.statement);
                let operand = operand.filter(|operand| self.computes(src, op, operand.dtype, span));
                (src, operand.map(|operand| operand.shape))
            }
            ScanOperands::Linear { a, b, before } => (a, self.recurrence([a, b], before, axis, span)),
        };
        let shape = shape.filter(|shape| self.axis("scan", self.name(src), axis, shape.len(), span));
        self.result(dst, &[src], shape, true, &mut site);
    }

    /// The shape of a linear scan.
    fn recurrence(
        &mut self,
        [a, b]: [TensorId; 2],
        before: Option<TensorId>,
        axis: u32,
        span: Origin,
    ) -> Option<Vec<i64>> {
        let found = [a, b].map(|id| self.register(id, span, "scan"));
        let first = before.map(|id| self.register(id, span, "scan"));
        let [Some(factors), Some(terms)] = found else { return None };
        let count = self.errors.len();
        if !factors.dtype.is_float() {
            let message =
                format!("a linear scan is one of floats, and `{}` is {}", self.name(a), factors.dtype);
            self.report(
                Diagnostic::new(Code::TypeMismatch, span, message).help("cast its operands to f32 first"),
            );
        }
        self.same_type(
            a,
            b,
            span,
            "a linear scan takes operands of one element type",
            "cast one of them first",
        );
        if factors.shape != terms.shape {
            self.shapes_differ(
                (a, &factors.shape),
                (b, &terms.shape),
                span,
                "a linear scan takes operands of one shape",
            );
        }
        if let (Some(first), Some(id)) = (first, before) {
            let first = first?;
            self.same_type(
                a,
                id,
                span,
                "a linear scan takes operands of one element type",
                "cast one of them first",
            );
            let (mut kept, mut gone) = (factors.shape.clone(), factors.shape.clone());
            if (axis as usize) < kept.len() {
                kept[axis as usize] = 1;
                gone.remove(axis as usize);
            }
            if gone.is_empty() {
                gone.push(1);
            }
            if first.shape != kept && first.shape != gone {
                let message = format!(
                    "`{}` has shape {}, and what comes before the first element of mode {axis} of `{}` has {}",
                    self.name(id),
                    shape_text(&first.shape),
                    self.name(a),
                    shape_text(&gone)
                );
                let help = format!(
                    "it has the other modes alone, or also mode {axis} with extent 1: {}",
                    shape_text(&kept)
                );
                self.report(
                    Diagnostic::new(Code::ShapeMismatch, span, message)
                        .related(self.program.tensor(id).span, format!("{} here", shape_text(&first.shape)))
                        .help(help),
                );
            }
        }
        (self.errors.len() == count).then_some(factors.shape)
    }

    pub(super) fn gather(
        &mut self,
        dst: TensorId,
        src: TensorId,
        index: TensorId,
        axis: u32,
        mut site: Site<'_>,
    ) {
        let span = site.span;
        let before = self.errors.len();
        let from = self.register(src, span, site.statement);
        let rows = self.rows_help((dst, src), index, axis);
        if let (Some(error), Some(help)) = (self.errors.get_mut(before), rows) {
            error.help = Some(help);
        }
        let at = self.register(index, span, site.statement);
        let shape = match (from, at) {
            (Some(from), Some(at)) => self.gathered(src, &from, index, at, axis, span),
            _ => None,
        };
        self.result(dst, &[src], shape, true, &mut site);
    }

    fn gathered(
        &mut self,
        src: TensorId,
        from: &Operand,
        index: TensorId,
        at: Operand,
        axis: u32,
        span: Origin,
    ) -> Option<Vec<i64>> {
        let before = self.errors.len();
        let (name, index_name) = (self.name(src), self.name(index));
        if at.dtype != DType::I32 {
            let message = format!("an index is i32, and `{index_name}` is {}", at.dtype);
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help("cast it to i32 first"));
        }
        if from.shape.len() != at.shape.len() {
            self.report(
                Diagnostic::new(
                    Code::WrongRank,
                    span,
                    format!(
                        "`{name}` has {}, and its index `{index_name}` has {}",
                        count(from.shape.len(), "mode"),
                        count(at.shape.len(), "mode")
                    ),
                )
                .help("the index has the shape of what is read, but for the mode along which it reads"),
            );
        } else if self.axis("gather", name, axis, from.shape.len(), span) {
            let differs = |mode: &usize| *mode != axis as usize && from.shape[*mode] != at.shape[*mode];
            if let Some(mode) = (0..from.shape.len()).find(differs) {
                self.report(
                    Diagnostic::new(
                        Code::ShapeMismatch,
                        span,
                        format!(
                            "`{name}` has shape {}, its index `{index_name}` {}: they differ in mode {mode}",
                            shape_text(&from.shape),
                            shape_text(&at.shape)
                        ),
                    )
                    .help(format!("they may differ only in mode {axis}, along which the index reads")),
                );
            }
        }
        (self.errors.len() == before).then_some(at.shape)
    }

    /// Defines the result if it is new, and checks that it has the statement's shape and its operands' type. Without a
    /// shape the statement is wrong, and what follows from that is not reported.
    pub(super) fn result(
        &mut self,
        dst: TensorId,
        operands: &[TensorId],
        shape: Option<Vec<i64>>,
        in_place: bool,
        site: &mut Site<'_>,
    ) {
        let (span, statement) = (site.span, site.statement);
        if !in_place && operands.contains(&dst) {
            // An undefined operand has been reported.
            if self.life[dst.0 as usize] == Life::Alive {
                let message =
                    format!("`{}` is both the result and an operand of `{statement}`", self.name(dst));
                self.report(
                    Diagnostic::new(Code::BadValue, span, message)
                        .help("the result is another tensor: give it another name"),
                );
            }
            return;
        }
        let rule = format!("`{statement}` keeps the element type");
        if self.shaped(dst, shape, site) {
            self.same_type(dst, operands[0], span, &rule, "cast it on a line of its own");
        }
    }

    /// Defines a result of any type if it is new, and checks that it has the shape; false where nothing more is to be said of it.
    fn shaped(&mut self, dst: TensorId, shape: Option<Vec<i64>>, site: &mut Site<'_>) -> bool {
        let (span, statement) = (site.span, site.statement);
        if self.life[dst.0 as usize] == Life::Undefined {
            self.define(dst, site.defined);
            if shape.is_none() {
                self.broken[dst.0 as usize] = true;
                return false;
            }
            self.definition(dst, span, site.threads);
        }
        let Some(target) = self.register(dst, span, statement) else { return false };
        let Some(shape) = shape else { return false };
        if target.shape != shape {
            self.report(
                Diagnostic::new(
                    Code::ShapeMismatch,
                    span,
                    format!(
                        "`{}` has shape {}, and this `{statement}` gives {}",
                        self.name(dst),
                        shape_text(&target.shape),
                        shape_text(&shape)
                    ),
                )
                .related(self.program.tensor(dst).span, "defined here")
                .help("give the result another name"),
            );
        }
        true
    }
}

/// A shape without a mode: of one mode, `[1]` is left.
pub(super) fn without(mut shape: Vec<i64>, axis: u32) -> Vec<i64> {
    shape.remove(axis as usize);
    if shape.is_empty() {
        shape.push(1);
    }
    shape
}
