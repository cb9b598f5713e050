//! The kernel behind a product whose k was split through global memory: it adds the parts, applies the epilogue, and rounds. It may begin
//! before the product has ended, which writes `partial`, and waits for it before it reads anything.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Tensor, block_x, block_y, steps, tile};
use tilewright_tile::{AsyncCopyAttrs, Expr, Program, ReduceOp};

use super::HopperGemmConfig;
use crate::config::ConfigError;
use crate::epilogue::{Chain, EpilogueOp, EpilogueTile, Operand, OperandKind};
use crate::warp_specialized::{Param, Problem, spread};

/// Rows and columns of a block's tile, and its threads.
const TILE: [i64; 2] = [16, 128];
const THREADS: i64 = 128;

/// Parts that a block reads at once.
const TOGETHER: i64 = 8;

/// A block's tile.
struct Tile {
    row: Expr,
    col: Expr,
    shape: [Expr; 2],
}

impl HopperGemmConfig {
    /// C = epilogue(Σ `partial`), tile by tile.
    pub(super) fn split_sum(&self, custom: &[&dyn EpilogueOp]) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("split_sum");
        let (m, n) = (t.size("m", 4096), t.size("n", 4096));
        let (bm, bn) = (t.constant("BM", TILE[0]), t.constant("BN", TILE[1]));
        let split = t.constant("SPLIT", self.split);
        let partial = t.tensor("partial", DType::F32, [&split, &m, &n]);
        let (chain, problem) = (Chain::new(&self.epilogue, custom), Problem::one(m.clone(), n.clone()));
        let params = chain.declare(&mut t, &problem, self.result());
        let c = t.tensor("c", self.result(), [&m, &n]);
        let sums = chain.declare_sums(&mut t, &problem, self.result());
        t.grid([n.ceil_div(&bn), m.ceil_div(&bm)]);
        t.threads(THREADS);
        let on = Tile { row: block_y() * &bm, col: block_x() * &bn, shape: [bm, bn] };
        let [bm, bn] = &on.shape;
        let from = [0.into(), on.row.clone(), on.col.clone()];
        let gp = t.global_view("gp", partial.from(from), [tile(1, bm), tile(2, bn), steps(0, &split, 1)]);
        let gc = t.global_view("gc", c.from([&on.row, &on.col]), [tile(0, bm), tile(1, bn)]);
        t.wait_dependencies();
        // Several parts are in flight at once; those behind the last are zeros.
        let together = t.constant("TOGETHER", self.split.min(TOGETHER));
        let mut v = t.register_tensor("sums", DType::F32, [bm, bn]);
        t.fill(&v, 0.0);
        t.for_range("group", 0, split.ceil_div(&together), |t, group| {
            let parts = t.register_tensor("parts", DType::F32, [bm, bn, &together]);
            t.unroll_for("i", 0, &together, |t, i| {
                let part = t.part(parts.at(i.clone()));
                t.copy(gp.at(&group * &together + i), part);
            });
            t.unroll_for("j", 0, &together, |t, j| {
                let part = t.part(parts.at(j));
                t.assign(&v, Elem::from(&v) + part);
            });
        });
        for (op, params) in chain.ops.iter().zip(params) {
            let operands: Vec<Elem> =
                params.into_iter().map(|(operand, param)| on.load(&mut t, &operand, param)).collect();
            let value = op.apply(
                &mut t,
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
        for (operand, buffer) in sums {
            on.add(&mut t, &operand, buffer, &v);
        }
        if self.result() == DType::F32 {
            t.copy(v, gc);
        } else {
            let rounded = t.cast("rounded", v, self.result());
            t.copy(rounded, gc);
        }
        t.launch_dependents();
        Ok(t.finish()?)
    }
}

impl Tile {
    /// The mode along which a vector lies, and the view of its part.
    fn vector(&self, t: &mut KernelBuilder, operand: &Operand, buffer: Buffer) -> (u32, Tensor) {
        let (along, start) =
            if operand.kind == OperandKind::Column { (1, &self.col) } else { (0, &self.row) };
        let modes = [tile(0, &self.shape[along as usize])];
        (along, t.global_view(&format!("g_{}", operand.name), buffer.from([start]), modes))
    }

    /// An operand, as large as the tile.
    fn load(&self, t: &mut KernelBuilder, operand: &Operand, param: Param) -> Elem {
        let Operand { name, kind, dtype } = operand;
        let buffer = match param {
            Param::Scalar(number) => return number,
            Param::Tensor(buffer) => buffer,
        };
        let [bm, bn] = &self.shape;
        if *kind == OperandKind::Matrix {
            let from = buffer.from([&self.row, &self.col]);
            let view = t.global_view(&format!("g_{name}"), from, [tile(0, bm), tile(1, bn)]);
            let values = t.register_tensor(&format!("{name}_r"), *dtype, [bm, bn]);
            t.copy(view, values);
            return t.cast(&format!("{name}_f32"), values, DType::F32).into();
        }
        let (along, view) = self.vector(t, operand, buffer);
        let values = t.register_tensor(&format!("{name}_r"), *dtype, [&self.shape[along as usize]]);
        t.copy(view, values);
        spread(t, &|word| format!("{name}_{word}"), &values, along, [bm, bn]).into()
    }

    /// Adds the sums of the tile's rows or columns to those in memory.
    fn add(&self, t: &mut KernelBuilder, operand: &Operand, buffer: Buffer, values: &Tensor) {
        let name = &operand.name;
        let (along, view) = self.vector(t, operand, buffer);
        let sums = t.reduce(&format!("{name}_some"), values, ReduceOp::Sum, 1 - along);
        let shared = t.shared_tensor(&format!("s_{name}"), DType::F32, [&self.shape[along as usize]]);
        t.copy(sums, shared);
        t.syncthreads();
        t.copy_async_with(shared, view, AsyncCopyAttrs { add: true, ..AsyncCopyAttrs::default() });
        t.commit_group();
        t.wait_group(0);
    }
}
