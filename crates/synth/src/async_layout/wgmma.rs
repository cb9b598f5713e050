//! Asynchronous matrix products: the part that each warpgroup computes, its instructions, and the places of their operands.
//!
//! A product C (M×N) `+=` A (M×K) · Bᵀ (N×K) is shared by a grid of warpgroups along M and N. Each does its part by instructions of
//! 64×n×k, the widest n that divides its columns: the wider, the fewer bytes of shared memory it reads for a multiplication.
//! A warpgroup with several rows of instructions reads each part of B once for each of them, so that rows are shared out first.

use tilewright_layout::{Layout, LayoutError, SwizzledLayout};
use tilewright_machine::{DType, Descriptor, Major, Sparsity, SwizzleMode, Timing, WgmmaRow, wgmmas};

use crate::async_layout::descriptor::matrix_descriptor;
use crate::reject::{MmaOperand, WgmmaReject};
use crate::tv::{InstructionTiles, TvLayout};

/// Places of metadata in the register of an instruction.
const PLACES: i64 = 32 / Sparsity::META.bits() as i64;

/// The place of an operand in shared memory for each instruction.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedOperand {
    /// The mode along which it is contiguous.
    pub major: Major,
    /// The descriptor with its start at 0.
    pub descriptor: Descriptor,
    /// Bytes from one warpgroup's part to the next's, along M or N.
    pub warpgroup: i64,
}

/// The left factor.
#[derive(Clone, PartialEq, Debug)]
pub enum OperandA {
    /// In shared memory.
    Shared(SharedOperand),
    /// In registers.
    Registers,
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WgmmaCall {
    /// The values of the accumulator, in the order of the instruction's.
    pub c: Vec<u32>,
    /// The values of A, where it is in registers.
    pub a: Vec<u32>,
    /// The values of the metadata of a sparse A: those of a register.
    pub meta: Vec<u32>,
    /// The begin of A, if it is in shared memory, in bytes from the tile.
    pub a_at: i64,
    /// The begin of B, in bytes from the tile.
    pub b_at: i64,
    /// True if it is the first to reach these accumulators.
    pub first: bool,
}

/// The plan of a `gemm.async`.
#[derive(Clone, PartialEq, Debug)]
pub struct WgmmaPlan {
    /// The instruction.
    pub row: &'static WgmmaRow,
    /// Warpgroups along M and along N.
    pub warpgroups: [i64; 2],
    /// The left factor.
    pub a: OperandA,
    /// The right factor.
    pub b: SharedOperand,
    /// The instructions of a warpgroup, in order.
    pub calls: Vec<WgmmaCall>,
}

/// The division of a product among warpgroups and instructions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grid {
    /// The instruction.
    pub row: &'static WgmmaRow,
    /// Warpgroups along M and along N.
    pub warpgroups: [i64; 2],
    /// Rows, columns and depth of the product.
    pub extents: [i64; 3],
}

impl Grid {
    /// The grid for a product of these extents by `groups` warpgroups: as asked for, or the one whose operands take the fewest bytes.
    ///
    /// # Errors
    ///
    /// The reason why no instruction does it.
    pub fn new(
        (a, b, c): (DType, DType, DType),
        sparse: bool,
        extents: [i64; 3],
        groups: i64,
        asked: Option<[i64; 2]>,
    ) -> Result<Grid, WgmmaReject> {
        let [m, n, k] = extents;
        let rows: Vec<&'static WgmmaRow> = wgmmas(a, b, c, sparse).collect();
        let first = *rows.first().ok_or(WgmmaReject::Types(a, b, c))?;
        if k % first.k != 0 {
            return Err(WgmmaReject::K(k, first.k, a));
        }
        let fits = |[gm, gn]: [i64; 2]| {
            if gm * gn != groups || m % (64 * gm) != 0 || n % gn != 0 {
                return None;
            }
            let part = n / gn;
            let row = rows.iter().find(|row| part % row.n == 0)?;
            // Bytes that one warpgroup reads for its part of one step along K: 64 rows of A and n of B for each instruction.
            let calls = (m / gm / 64) * (part / row.n);
            Some((calls * (64 + row.n) * groups, Grid { row, warpgroups: [gm, gn], extents }))
        };
        if let Some(asked) = asked {
            return fits(asked).map(|(_, grid)| grid).ok_or(WgmmaReject::Asked(asked, [m, n]));
        }
        let grids = (1..=groups).filter(|gm| groups % gm == 0).rev().filter_map(|gm| fits([gm, groups / gm]));
        grids
            .min_by_key(|(bytes, _)| *bytes)
            .map(|(_, grid)| grid)
            .ok_or(WgmmaReject::Warpgroups(groups, [m, n]))
    }

    fn part(&self) -> [i64; 2] {
        [self.extents[0] / self.warpgroups[0], self.extents[1] / self.warpgroups[1]]
    }

    /// Instructions of a warpgroup along M, N and K.
    pub fn calls(&self) -> [i64; 3] {
        let [m, n] = self.part();
        [m / WgmmaRow::M, n / self.row.n, self.extents[2] / self.row.k]
    }

    /// The layout of an operand of `extents`: from the instruction's (thread, value) → row + 64 · column to the threads of all
    /// warpgroups and the values of all instructions. A warpgroup's `part` is divided into tiles of 64×`columns`; `groups` is
    /// warpgroup → the part's coordinate.
    fn layout(
        tv: &Layout,
        (rows, columns): (i64, i64),
        part: (i64, i64),
        groups: Layout,
    ) -> Result<TvLayout, LayoutError> {
        let tile = Layout::new(part.into(), (1, rows).into())?;
        let tilers = [&Layout::identity(WgmmaRow::M), &Layout::identity(columns)];
        InstructionTiles::new(tv, &tile, tilers)?.tv(&[groups])
    }

    /// The accumulator's thread-value layout: values of an instruction, then instructions along M, then along N.
    pub fn accumulator(&self) -> Option<TvLayout> {
        let ([pm, pn], [gm, gn], m) = (self.part(), self.warpgroups, self.extents[0]);
        let groups = Layout::new((gm, gn).into(), (pm, pn * m).into()).ok()?;
        Grid::layout(&self.row.c_tv, (m, self.row.n), (pm, pn), groups).ok()
    }

    /// The thread-value layout of a left factor in registers: values of an instruction, then instructions along M, then along K.
    pub fn left(&self) -> Option<TvLayout> {
        self.beside_rows(&self.row.a_tv)
    }

    /// The thread-value layout of a sparse left factor's metadata, in the same order.
    pub fn metadata(&self) -> Option<TvLayout> {
        self.beside_rows(&self.row.sparsity.as_ref()?.meta_tv)
    }

    /// The thread-value layout of what has a left factor's shape.
    fn beside_rows(&self, tv: &Layout) -> Option<TvLayout> {
        let ([pm, _], [gm, gn], m) = (self.part(), self.warpgroups, self.extents[0]);
        let groups = Layout::new((gm, gn).into(), (pm, 0).into()).ok()?;
        Grid::layout(tv, (m, self.row.a_columns()), (pm, self.columns()), groups).ok()
    }

    /// The columns of the left factor that are there.
    fn columns(&self) -> i64 {
        self.extents[2] / self.row.k * self.row.a_columns()
    }

    /// The description by which the hardware reads a factor in shared memory (tile's coordinate → offset in elements).
    ///
    /// # Errors
    ///
    /// The reason why it does not.
    pub fn operand(&self, left: bool, layout: &SwizzledLayout) -> Result<SharedOperand, WgmmaReject> {
        let ([m, n, k], [pm, pn], row) = (self.extents, self.part(), self.row);
        let (operand, rows, mn, part, dtype) = if left {
            (MmaOperand::A, m, WgmmaRow::M, pm, row.a)
        } else {
            (MmaOperand::B, n, row.n, pn, row.b)
        };
        let (k, step) = if left { (self.columns(), row.a_columns()) } else { (k, row.k) };
        let bits = dtype.bits();
        let swizzle =
            SwizzleMode::of(&layout.swizzle, bits).ok_or(WgmmaReject::Swizzle(layout.swizzle, operand))?;
        let template =
            matrix_descriptor(&layout.layout, swizzle, (rows, k), (mn, step), (bits, row.takes_mn_major()))
                .map_err(|why| WgmmaReject::Descriptor(operand, why))?;
        let at = |i: i64, j: i64| layout.layout.eval(i + rows * j) * i64::from(bits / 8);
        let warpgroup = if part < rows { at(part, 0) } else { 0 };
        // Parts are told apart by adding: where one begins must be the sum of where its warpgroup's and its own lie.
        for j in (0..k).step_by(step as usize) {
            for i in (0..rows).step_by(mn as usize) {
                if at(i, j) != i / part * warpgroup + at(i % part, j) {
                    return Err(WgmmaReject::Parts(operand));
                }
            }
        }
        Ok(SharedOperand { major: template.major, descriptor: template.descriptor, warpgroup })
    }

    /// The plan, given the layouts of the factors in shared memory (tile's coordinate → offset in elements).
    ///
    /// # Errors
    ///
    /// The reason why the hardware does not read a factor as it lies.
    pub fn plan(&self, a: Option<&SwizzledLayout>, b: &SwizzledLayout) -> Result<WgmmaPlan, WgmmaReject> {
        let [m, n, _] = self.extents;
        let [cm, cn, ck] = self.calls();
        let row = self.row;
        let left = match a {
            Some(a) => OperandA::Shared(self.operand(true, a)?),
            None => OperandA::Registers,
        };
        let right = self.operand(false, b)?;
        let at =
            |layout: &SwizzledLayout, index: i64, bits: u32| layout.layout.eval(index) * i64::from(bits / 8);
        let (per_c, per_a) = (row.c_tv.size() / 128, row.a_tv.size() / 128);
        let mut calls = Vec::new();
        for ks in 0..ck {
            for nt in 0..cn {
                for mt in 0..cm {
                    let c = (mt + cm * nt) * per_c;
                    let left = (mt + cm * ks) * per_a;
                    calls.push(WgmmaCall {
                        c: (c..c + per_c).map(|v| v as u32).collect(),
                        a: if a.is_none() {
                            (left..left + per_a).map(|v| v as u32).collect()
                        } else {
                            Vec::new()
                        },
                        meta: match &row.sparsity {
                            Some(_) => {
                                let first = (mt + cm * ks) * PLACES;
                                (first..first + PLACES).map(|v| v as u32).collect()
                            }
                            None => Vec::new(),
                        },
                        a_at: a.map_or(0, |a| at(a, 64 * mt + m * row.a_columns() * ks, row.a.bits())),
                        b_at: at(b, row.n * nt + n * row.k * ks, row.b.bits()),
                        first: ks == 0,
                    });
                }
            }
        }
        Ok(WgmmaPlan { row, warpgroups: self.warpgroups, a: left, b: right, calls })
    }
}

impl WgmmaPlan {
    /// The instruction with its operands, as reports name it.
    pub fn name(&self) -> String {
        let a = match &self.a {
            OperandA::Shared(a) => format!("A {}, {}", a.major, a.descriptor.swizzle),
            OperandA::Registers => "A in registers".to_string(),
        };
        let [m, n] = self.warpgroups;
        format!(
            "{} ({a}; B {}, {}; {m} × {n} warpgroups)",
            self.row.name, self.b.major, self.b.descriptor.swizzle
        )
    }

    /// Cycles for which the product occupies the tensor cores, with all its warpgroups.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let groups = (self.warpgroups[0] * self.warpgroups[1]) as u32;
        let shared = matches!(self.a, OperandA::Shared(_));
        self.calls.len() as u32
            * groups
            * timing.wgmma(self.row).whole_issue().max(self.row.shared_cycles(shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::async_layout::descriptor::swizzle_atom_layout;

    fn grid(extents: [i64; 3], groups: i64) -> Grid {
        Grid::new((DType::F16, DType::F16, DType::F32), false, extents, groups, None).unwrap()
    }

    #[test]
    fn rows_are_shared_out_before_columns() {
        let g = grid([128, 256, 64], 2);
        assert_eq!((g.warpgroups, g.row.n, g.calls()), ([2, 1], 256, [1, 1, 4]));
        let g = grid([64, 256, 64], 2);
        assert_eq!((g.warpgroups, g.row.n), ([1, 2], 128));
        let g = grid([128, 112, 64], 2);
        assert_eq!((g.warpgroups, g.row.n), ([2, 1], 112));
        let g = grid([128, 224, 64], 1);
        assert_eq!((g.row.n, g.calls()), (224, [2, 1, 4]));
        let types = (DType::F16, DType::F16, DType::F32);
        assert_eq!(Grid::new(types, false, [96, 64, 64], 1, None), Err(WgmmaReject::Warpgroups(1, [96, 64])));
        assert_eq!(Grid::new(types, false, [64, 64, 24], 1, None), Err(WgmmaReject::K(24, 16, DType::F16)));
        assert!(Grid::new(types, false, [128, 64, 64], 2, Some([1, 3])).is_err());
    }

    #[test]
    fn fragments_cover_their_tiles_once() {
        for (extents, groups) in
            [([128, 256, 64], 2), ([128, 192, 64], 1), ([256, 64, 32], 4), ([64, 48, 16], 2)]
        {
            let g = grid(extents, groups);
            let [m, n, _] = extents;
            assert!(g.accumulator().unwrap().layout().is_bijective_onto(m * n), "{extents:?}");
            let mut left = g.left().unwrap().layout().image();
            left.sort_unstable();
            left.dedup();
            assert_eq!(left.len() as i64, m * extents[2]);
            let sparse =
                Grid::new((DType::F16, DType::F16, DType::F32), true, [m, n, 64], groups, None).unwrap();
            for tv in [sparse.left().unwrap(), sparse.metadata().unwrap()] {
                let mut held = tv.layout().image();
                held.sort_unstable();
                held.dedup();
                assert_eq!(held, (0..m * 32).collect::<Vec<_>>());
            }
        }
    }

    /// Each instruction multiplies the parts of which its accumulators are the product.
    #[test]
    fn calls_are_the_product() {
        let g = grid([128, 64, 64], 2);
        let a = swizzle_atom_layout(&[128, 64], 1, SwizzleMode::B128, 16).unwrap();
        let b = swizzle_atom_layout(&[64, 64], 0, SwizzleMode::B64, 16).unwrap();
        let plan = g.plan(Some(&a), &b).unwrap();
        assert_eq!(plan.calls.len(), 4);
        let c = g.accumulator().unwrap();
        let OperandA::Shared(left) = &plan.a else { panic!("A is in shared memory") };
        assert_eq!((left.major, plan.b.major), (Major::K, Major::Mn));
        for call in &plan.calls {
            for group in 0..2 {
                // The first element of the accumulator is in the row at which A begins.
                let first = c.at(128 * group, i64::from(call.c[0]));
                let row = first % 128;
                let at = call.a_at + group * left.warpgroup;
                assert_eq!(a.layout.eval(row) * 2, at - at % 128);
            }
        }
    }
}
