//! The kernel behind a product whose k was split through global memory: it adds the parts, applies the epilogue, and rounds. It may begin
//! before the product has ended, which writes `partial`, and waits for it before it reads anything.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Elem, KernelBuilder, block_x, block_y, steps, tile};
use tilewright_tile::{AsyncHow, Program, ReduceOp};

use super::epilogue::spread;
use super::{HopperGemmConfig, Part};
use crate::config::ConfigError;

/// Rows and columns of a block's tile, and its threads.
const TILE: [i64; 2] = [16, 128];
const THREADS: i64 = 128;

/// Parts that a block reads at once.
const TOGETHER: i64 = 8;

impl HopperGemmConfig {
    /// C = epilogue(Σ `partial`), tile by tile.
    pub(super) fn split_sum(&self) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("split_sum");
        let (m, n) = (t.size("m", 4096), t.size("n", 4096));
        let (bm, bn) = (t.constant("BM", TILE[0]), t.constant("BN", TILE[1]));
        let split = t.constant("SPLIT", self.split);
        let partial = t.tensor("partial", DType::F32, [&split, &m, &n]);
        let rest: Vec<_> = self.epilogue.parts().collect();
        let mut buffers = Vec::new();
        let mut declare = |t: &mut KernelBuilder, sums: bool| {
            for part in rest.iter().filter(|part| part.sums() == sums) {
                let buffer = self.operand(t, *part, &m, &n, (&None, &None));
                buffers.extend(buffer.map(|buffer| (*part, buffer)));
            }
        };
        declare(&mut t, false);
        let alpha = self.epilogue.has(Part::Alpha).then(|| t.scalar("alpha", 1.0));
        let c = t.tensor("c", self.result(), [&m, &n]);
        declare(&mut t, true);
        t.grid([n.ceil_div(&bn), m.ceil_div(&bm)]);
        t.threads(THREADS);
        let (row, col) = (block_y() * &bm, block_x() * &bn);
        let from = [0.into(), row.clone(), col.clone()];
        let gp = t.global_view("gp", partial.from(from), [tile(1, &bm), tile(2, &bn), steps(0, &split, 1)]);
        let gc = t.global_view("gc", c.from([&row, &col]), [tile(0, &bm), tile(1, &bn)]);
        t.wait_dependencies();
        // Some parts are on their way at once; those behind the last are zeros.
        let together = t.constant("TOGETHER", self.split.min(TOGETHER));
        let mut v = t.register_tensor("sums", DType::F32, [&bm, &bn]);
        t.fill(&v, 0.0);
        t.for_range("group", 0, split.ceil_div(&together), |t, group| {
            let parts = t.register_tensor("parts", DType::F32, [&bm, &bn, &together]);
            t.unroll_for("i", 0, &together, |t, i| {
                let part = t.part(parts.at(i.clone()));
                t.copy(gp.at(&group * &together + i), part);
            });
            t.unroll_for("j", 0, &together, |t, j| {
                let part = t.part(parts.at(j));
                t.assign(&v, Elem::from(&v) + part);
            });
        });
        let buffer = |part: Part| buffers.iter().find(|(p, _)| *p == part).map(|(_, buffer)| buffer);
        for part in rest {
            let (name, dtype) = (part.name(), part.dtype(self.result()));
            let operand: Option<Elem> = match (part, buffer(part)) {
                (Part::Alpha, _) => alpha.clone(),
                (Part::Residual, Some(buffer)) => {
                    let view = t.global_view(
                        &format!("g_{name}"),
                        buffer.from([&row, &col]),
                        [tile(0, &bm), tile(1, &bn)],
                    );
                    let r = t.register_tensor(&format!("{name}_r"), dtype, [&bm, &bn]);
                    t.copy(view, r);
                    Some(t.cast(&format!("{name}_f32"), &r, DType::F32).into())
                }
                (_, Some(buffer)) => {
                    let (along, start, extent) =
                        if part.vector() == Some(true) { (1, &col, &bn) } else { (0, &row, &bm) };
                    let view = t.global_view(&format!("g_{name}"), buffer.from([start]), [tile(0, extent)]);
                    if part.sums() {
                        let some = t.reduce(&format!("{name}_some"), &v, ReduceOp::Sum, 1 - along);
                        let shared = t.shared_tensor(&format!("s_{name}"), DType::F32, [extent]);
                        t.copy(some, shared);
                        t.syncthreads();
                        let how = AsyncHow { add: true, ..AsyncHow::default() };
                        t.copy_async_with(shared, view, how);
                        t.commit_group();
                        t.wait_group(0);
                        continue;
                    }
                    let r = t.register_tensor(&format!("{name}_r"), dtype, [extent]);
                    t.copy(view, r);
                    Some(spread(&mut t, name, &r, along, [&bm, &bn]).into())
                }
                (_, None) => None,
            };
            if let Some(value) = part.apply(&v, operand) {
                v = t.define(&format!("v_{name}"), value);
            }
        }
        if self.result() == DType::F32 {
            t.copy(v, gc);
        } else {
            let rounded = t.cast("rounded", &v, self.result());
            t.copy(rounded, gc);
        }
        t.launch_dependents();
        Ok(t.finish()?)
    }
}
