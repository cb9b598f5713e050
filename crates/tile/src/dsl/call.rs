//! Parts of the DSL's expressions that are statements of their own: `x.reduce(ReduceOp::Max, 1)` within a larger expression. The builder makes
//! the statements when it takes the expression, and register tensors without names for their results.

use tilewright_layout::Layout;
use tilewright_machine::DType;

use super::KernelBuilder;
use super::value::{Elem, Source, Tensor};
use crate::diagnostic::{Code, Origin};
use crate::expr::Expr;
use crate::program::{CopyAttrs, ElemExpr, ReduceOp, ShapeOp, StmtKind, TensorId, TensorKind, TensorRef};

/// The first id that stands for a call of an expression.
pub(super) const CALLS: u32 = 1 << 31;

/// A part of an expression that is a statement.
#[derive(Clone, Debug)]
pub(super) struct Call {
    kind: CallKind,
    operands: Vec<Elem>,
    at: Origin,
}

#[derive(Clone, Debug)]
enum CallKind {
    Cast(DType),
    Rearrange(Option<Layout>),
    /// A transpose without an order reverses the modes.
    Shape(ShapeOp),
    Join,
    Reduce {
        op: ReduceOp,
        axis: u32,
        keep: bool,
    },
    Gather(u32),
}

/// The tensor that gets a value.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// A new one of this name.
    New(&'a str),
    /// One that there is, or a part of it.
    Existing(TensorId),
    /// A new one without a name.
    Operand,
}

impl Elem {
    /// The call that is all of the expression.
    pub(super) fn take_call(&mut self) -> Option<Call> {
        let alone = self.usable() && self.calls.len() == 1 && matches!(self.expr, ElemExpr::Tensor(_));
        if alone { self.calls.pop() } else { None }
    }

    /// True if nothing is wrong with the expression itself.
    /// True for operators and functions of the operands of a function that is passed, and of numbers.
    pub(super) fn is_of_operands(&self) -> bool {
        self.usable() && self.calls.is_empty() && self.expr.tensors().is_empty()
    }

    fn usable(&self) -> bool {
        !self.mixed && !self.poisoned && !self.nan && self.height <= crate::parser::MAX_DEPTH
    }

    /// Appends the calls of another expression, whose places follow.
    pub(super) fn join_calls(&mut self, other: &mut Elem) {
        let before = self.calls.len() as u32;
        if before > 0 && !other.calls.is_empty() {
            other.expr.tensors_mut(|id| {
                if id.0 >= CALLS && id.0 != super::POISONED {
                    id.0 += before;
                }
            });
        }
        self.calls.append(&mut other.calls);
    }

    #[track_caller]
    fn called(kind: CallKind, operands: Vec<Elem>) -> Elem {
        let owners: Vec<u64> = operands.iter().filter_map(|x| x.owner).collect();
        let mixed = owners.windows(2).any(|pair| pair[0] != pair[1]);
        let any = |of: fn(&Elem) -> bool| operands.iter().any(of);
        Elem {
            expr: ElemExpr::Tensor(TensorId(CALLS)),
            owner: owners.first().copied(),
            height: operands.iter().map(|x| x.height).max().unwrap_or(0) + 1,
            mixed: mixed || any(|x| x.mixed),
            poisoned: any(|x| x.poisoned),
            nan: any(|x| x.nan),
            calls: vec![Call { kind, operands, at: Origin::caller() }],
        }
        .limited()
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident $([$($generics:tt)*])? ($($arg:ident: $type:ty),*) => $kind:expr $(, $other:ident)?;)*) => {
        impl Elem {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $name $(<$($generics)*>)? (&self, $($other: impl Into<Elem>,)? $($arg: $type),*) -> Elem {
                    Elem::called($kind, vec![self.clone() $(, $other.into())?])
                }
            )*
        }

        impl Tensor {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $name $(<$($generics)*>)? (&self, $($other: impl Into<Elem>,)? $($arg: $type),*) -> Elem {
                    Elem::called($kind, vec![self.into() $(, $other.into())?])
                }
            )*
        }
    };
}

fn list<E: Into<Expr>>(extents: impl IntoIterator<Item = E>) -> Vec<Expr> {
    extents.into_iter().map(Into::into).collect()
}

calls! {
    /// `cast(x, dtype)`.
    cast(dtype: DType) => CallKind::Cast(dtype);
    /// `rearrange(x)`, with `layout = …` where one is given.
    rearrange(layout: Option<Layout>) => CallKind::Rearrange(layout);
    /// `transpose(x, order…)`; no order at all reverses the modes.
    permute(order: impl IntoIterator<Item = u32>) =>
        CallKind::Shape(ShapeOp::Transpose(order.into_iter().collect()));
    /// `reshape(x, [shape])`.
    reshape[E: Into<Expr>](shape: impl IntoIterator<Item = E>) => CallKind::Shape(ShapeOp::Reshape(list(shape)));
    /// `expand(x, axis)`.
    expand(axis: u32) => CallKind::Shape(ShapeOp::Expand { axis });
    /// `slice(x, axis, start, extent)`.
    slice(axis: u32, start: impl Into<Expr>, extent: impl Into<Expr>) =>
        CallKind::Shape(ShapeOp::Slice { axis, start: start.into(), extent: extent.into() });
    /// `broadcast(x, [shape])`.
    broadcast[E: Into<Expr>](shape: impl IntoIterator<Item = E>) => CallKind::Shape(ShapeOp::Broadcast(list(shape)));
    /// `join(x, other)`.
    join() => CallKind::Join, other;
    /// `reduce(x, op, axis)`.
    reduce(op: ReduceOp, axis: u32) => CallKind::Reduce { op, axis, keep: false };
    /// `reduce(x, op, axis, keep)`: the mode stays, with extent 1.
    reduce_keep(op: ReduceOp, axis: u32) => CallKind::Reduce { op, axis, keep: true };
    /// `gather(x, index, axis)`.
    gather(axis: u32) => CallKind::Gather(axis), index;
}

impl KernelBuilder {
    /// Emits a statement whose result is a value of this type and shape.
    #[track_caller]
    fn value(
        &mut self,
        to: Target<'_>,
        dtype: DType,
        (shape, pinned): (Vec<Expr>, Option<Layout>),
        kind: impl FnOnce(TensorId) -> StmtKind,
        at: Origin,
    ) -> Option<TensorId> {
        match to {
            Target::New(name) => {
                let declared =
                    self.build.declare_tensor(name, at, dtype, TensorKind::Register { shape, pinned });
                let dst = self.note(declared)?;
                self.build.emit(kind(dst), at);
                Some(dst)
            }
            Target::Existing(dst)
                if matches!(self.build.program.tensor(dst).kind, TensorKind::Part { .. }) =>
            {
                let src = self.build.unnamed(dtype, (shape, pinned), kind, at);
                self.copied(src, dst, at);
                Some(dst)
            }
            Target::Existing(dst) => {
                self.build.emit(kind(dst), at);
                Some(dst)
            }
            Target::Operand => Some(self.build.unnamed(dtype, (shape, pinned), kind, at)),
        }
    }

    fn copied(&mut self, src: TensorId, dst: TensorId, at: Origin) {
        let [src, dst] = [src, dst].map(|tensor| TensorRef { span: at, ..TensorRef::whole(tensor) });
        self.build.emit(StmtKind::Copy { src, dst, how: CopyAttrs::default() }, at);
    }

    /// Emits a statement that gives a register tensor its value.
    #[track_caller]
    pub(super) fn write(&mut self, dst: TensorId, kind: impl FnOnce(TensorId) -> StmtKind) {
        let (dtype, shape) = (self.build.program.tensor(dst).dtype, self.build.result_shape(dst));
        self.value(Target::Existing(dst), dtype, (shape, None), kind, Origin::caller());
    }

    /// Makes the statements of an expression, and the last one's result of its target.
    #[track_caller]
    pub(super) fn expression(&mut self, value: Elem, to: Target<'_>) -> Option<TensorId> {
        let expr = self.elementwise(value)?;
        let at = Origin::caller();
        match (&expr, to) {
            (ElemExpr::Tensor(id), Target::Operand) => return Some(*id),
            (ElemExpr::Tensor(id), Target::Existing(dst))
                if matches!(self.build.program.tensor(dst).kind, TensorKind::Part { .. }) =>
            {
                self.copied(*id, dst, at);
                return Some(dst);
            }
            _ => {}
        }
        let operands = expr.tensors();
        let like = match to {
            Target::Existing(dst) => Some(dst),
            _ => None,
        };
        let shape =
            self.build.elementwise_shape(&operands).or(like.map(|like| self.build.result_shape(like)));
        let first = operands.first().copied().or(like);
        let (Some(shape), Some(first)) = (shape, first) else {
            let name = match to {
                Target::New(name) => format!("`{name}`"),
                _ => "an expression".to_string(),
            };
            let message = format!("the shape of {name} is not known: its expression reads no tensor");
            self.misuse(Code::WrongRank, message, "make a register tensor first, and `assign` to it");
            return None;
        };
        let dtype = match operands.is_empty() {
            true => self.build.program.tensor(first).dtype,
            false => self.build.result_type(&expr),
        };
        self.value(to, dtype, (shape, None), |dst| StmtKind::Elementwise { dst, expr }, at)
    }

    /// The register tensor of an operand: the one that the expression is, or a new one without a name.
    #[track_caller]
    pub(super) fn operand(&mut self, value: impl Into<Elem>) -> Option<TensorId> {
        self.expression(value.into(), Target::Operand)
    }

    /// The reference that a copy or a product reads.
    #[track_caller]
    pub(super) fn source(&mut self, source: Source) -> Option<TensorRef> {
        match source {
            Source::Reference(reference) => self.reference(reference),
            Source::Value(value) => {
                let tensor = self.operand(value)?;
                Some(TensorRef { span: Origin::caller(), ..TensorRef::whole(tensor) })
            }
        }
    }

    /// Makes the statement of a call, after those of its operands.
    #[track_caller]
    pub(super) fn call(&mut self, call: Call, to: Target<'_>) -> Option<TensorId> {
        let Call { kind, operands, at } = call;
        // A closure would be the caller that mistakes name.
        let mut tensors: Vec<Option<TensorId>> = Vec::new();
        for operand in operands {
            tensors.push(self.operand(operand));
        }
        let (src, other) = (tensors.first().copied()??, tensors.get(1).copied());
        let dtype = self.build.program.tensor(src).dtype;
        match kind {
            CallKind::Cast(dtype) => {
                let shape = self.build.result_shape(src);
                self.value(to, dtype, (shape, None), |dst| StmtKind::Cast { dst, src }, at)
            }
            CallKind::Rearrange(layout) => {
                let shape = self.build.result_shape(src);
                self.value(to, dtype, (shape, layout), |dst| StmtKind::Rearrange { dst, src }, at)
            }
            CallKind::Shape(mut op) => {
                if let ShapeOp::Transpose(order) = &mut op
                    && order.is_empty()
                {
                    order.extend((0..self.build.result_shape(src).len() as u32).rev());
                }
                let shape = self.build.reshaped(src, &op);
                self.value(to, dtype, (shape, None), |dst| StmtKind::Shape { dst, src, op }, at)
            }
            CallKind::Join => {
                let (a, b) = (src, other??);
                let shape = self.build.joined(a);
                self.value(to, dtype, (shape, None), |dst| StmtKind::Join { dst, a, b }, at)
            }
            CallKind::Reduce { op, axis, keep } => {
                let shape = self.build.reduced(src, axis);
                let kind = |dst| StmtKind::Reduce { dst, src, op, axis };
                if !keep || self.build.result_shape(src).len() < 2 {
                    return self.value(to, dtype, (shape, None), kind, at);
                }
                let src = self.build.unnamed(dtype, (shape, None), kind, at);
                let op = ShapeOp::Expand { axis };
                let shape = self.build.reshaped(src, &op);
                let kept =
                    self.value(to, dtype, (shape, None), |dst| StmtKind::Shape { dst, src, op }, at)?;
                if matches!(to, Target::Operand) {
                    self.build.say_kept(kept, src);
                }
                Some(kept)
            }
            CallKind::Gather(axis) => {
                let index = other??;
                let shape = self.build.result_shape(index);
                self.value(to, dtype, (shape, None), |dst| StmtKind::Gather { dst, src, index, axis }, at)
            }
        }
    }
}

impl From<&Elem> for Source {
    fn from(value: &Elem) -> Self {
        Source::Value(value.clone())
    }
}
