//! A block's tile of C whose epilogue is applied to all of it at once, with operands straight from global memory.

use tilewright_machine::{DType, RedOp};
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Tensor, tile};
use tilewright_tile::{AsyncCopyAttrs, CopyAttrs, Expr, ReduceOp, ViewMode};

use crate::epilogue::{Chain, EpilogueTile, Operand, OperandKind};
use crate::warp_specialized::{Param, Params, Problem, spread_as};

/// See the [module](self).
pub(crate) struct Tile {
    pub row: Expr,
    pub col: Expr,
    pub shape: [Expr; 2],
    /// The product of a batch.
    pub product: Option<Expr>,
}

/// The way of the sums of a tile's rows and columns to those in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Adds {
    /// A bulk copy that adds.
    Bulk,
    /// Threads that add, on every architecture.
    Threads,
}

/// C and an epilogue, with their parameters.
pub(crate) struct Finish<'a> {
    chain: Chain<'a>,
    params: Params,
    c: Buffer,
    sums: Vec<(Operand, Buffer)>,
    result: DType,
    /// The type that the epilogue computes in.
    compute: DType,
    adds: Adds,
}

impl<'a> Finish<'a> {
    /// Declares the operands and C.
    pub fn declare(t: &mut KernelBuilder, chain: Chain<'a>, problem: &Problem, result: DType) -> Self {
        let params = chain.declare(t, problem, result);
        let c = problem.result(t, result, None);
        let sums = chain.declare_sums(t, problem, result);
        Finish { chain, params, c, sums, result, compute: DType::F32, adds: Adds::Bulk }
    }

    /// The same with an epilogue that computes in another type than f32, and adds sums another way.
    pub fn with(self, compute: DType, adds: Adds) -> Self {
        Finish { compute, adds, ..self }
    }

    /// The view of a tile of C.
    pub fn view(&self, t: &mut KernelBuilder, on: &Tile) -> Tensor {
        let [bm, bn] = &on.shape;
        t.global_view("gc", self.c.from(on.behind([&on.row, &on.col])), on.modes([bm, bn]))
    }

    /// Rounds and stores a tile's sums after the epilogue.
    pub fn store(self, t: &mut KernelBuilder, on: &Tile, sums: Tensor, gc: Tensor) {
        let rounded = self.rounded(t, on, sums);
        t.copy(rounded, gc);
    }

    /// The same through shared memory, so that neighbouring threads store neighbouring elements.
    pub fn store_staged(self, t: &mut KernelBuilder, on: &Tile, sums: Tensor, gc: Tensor) {
        let result = self.result;
        let rounded = self.rounded(t, on, sums);
        let staged = t.shared_tensor("staged", result, &on.shape);
        let lines = t.register_tensor("lines", result, &on.shape);
        t.copy(rounded, staged);
        t.syncthreads();
        t.copy(staged, lines);
        t.copy(lines, gc);
    }

    fn rounded(self, t: &mut KernelBuilder, on: &Tile, sums: Tensor) -> Tensor {
        let [bm, bn] = &on.shape;
        let mut v = sums;
        for (op, params) in self.chain.ops.iter().zip(&self.params) {
            let operands: Vec<Elem> = params
                .iter()
                .map(|(operand, param)| on.load(t, operand, (param, &self.c), self.compute))
                .collect();
            let value = op.apply(
                t,
                &EpilogueTile {
                    value: v,
                    operands: &operands,
                    shape: [bm, bn],
                    origin: [on.row.clone(), on.col.clone()],
                    transposed: false,
                    site: "",
                },
            );
            v = t.define(&format!("v_{}", op.name()), value);
        }
        for (operand, buffer) in self.sums {
            on.add(t, &operand, buffer, &v, (self.compute, self.adds));
        }
        if self.result == self.compute { v } else { t.cast("rounded", v, self.result) }
    }
}

impl Tile {
    /// Offsets behind that of the product.
    fn behind<const N: usize>(&self, offsets: [&Expr; N]) -> Vec<Expr> {
        self.product.iter().chain(offsets).cloned().collect()
    }

    /// The modes of a tile of these extents, behind that of products.
    fn modes<const N: usize>(&self, extents: [&Expr; N]) -> Vec<ViewMode> {
        let first = u32::from(self.product.is_some());
        (first..).zip(extents).map(|(mode, extent)| tile(mode, extent)).collect()
    }

    /// The mode along which a vector lies, and the view of its part.
    fn vector(&self, t: &mut KernelBuilder, operand: &Operand, buffer: &Buffer) -> (u32, Tensor) {
        let (along, start) =
            if operand.kind == OperandKind::Column { (1, &self.col) } else { (0, &self.row) };
        let (from, modes) = (buffer.from(self.behind([start])), self.modes([&self.shape[along as usize]]));
        (along, t.global_view(&format!("g_{}", operand.name), from, modes))
    }

    /// An operand, as large as the tile, where the result is `c`.
    fn load(
        &self,
        t: &mut KernelBuilder,
        operand: &Operand,
        (param, c): (&Param, &Buffer),
        compute: DType,
    ) -> Elem {
        let Operand { name, kind, dtype } = operand;
        let buffer = match param {
            Param::Scalar(number) => return number.clone(),
            Param::Tensor(buffer) => buffer,
            Param::Result => c,
        };
        let [bm, bn] = &self.shape;
        if kind.is_matrix() {
            let from = buffer.from(self.behind([&self.row, &self.col]));
            let view = t.global_view(&format!("g_{name}"), from, self.modes([bm, bn]));
            let values = t.register_tensor(&format!("{name}_r"), *dtype, [bm, bn]);
            t.copy(view, values);
            if *kind == OperandKind::Result {
                // Several threads may have a sum, and one of them stores it.
                t.syncthreads();
            }
            return t.cast(&format!("{name}_{compute}"), values, compute).into();
        }
        let (along, view) = self.vector(t, operand, buffer);
        let values = t.register_tensor(&format!("{name}_r"), *dtype, [&self.shape[along as usize]]);
        t.copy(view, values);
        spread_as(t, compute, &|word| format!("{name}_{word}"), &values, (along, [bm, bn])).into()
    }

    /// Adds the sums of the tile's rows or columns to those in memory.
    fn add(
        &self,
        t: &mut KernelBuilder,
        operand: &Operand,
        buffer: Buffer,
        values: &Tensor,
        (compute, adds): (DType, Adds),
    ) {
        let name = &operand.name;
        let (along, view) = self.vector(t, operand, &buffer);
        let sums = t.reduce(&format!("{name}_some"), values, ReduceOp::Sum, 1 - along);
        let sums =
            if compute == DType::F32 { sums } else { t.cast(&format!("{name}_f32"), sums, DType::F32) };
        if adds == Adds::Threads {
            return t.copy_with(sums, view, CopyAttrs { combine: Some(RedOp::Add), ..CopyAttrs::default() });
        }
        let shared = t.shared_tensor(&format!("s_{name}"), DType::F32, [&self.shape[along as usize]]);
        t.copy(sums, shared);
        t.syncthreads();
        t.copy_async_with(shared, view, AsyncCopyAttrs { add: true, ..AsyncCopyAttrs::default() });
        t.commit_group();
        t.wait_group(0);
    }
}
