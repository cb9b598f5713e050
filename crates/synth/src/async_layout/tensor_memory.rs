//! Tensor memory: products with their sums there, and copies between it and registers.
//!
//! The sums of a tile are one instruction's: 64 or 128 rows, a lane each, and as many columns as the tile has. One thread issues the
//! instructions, one for each 32 bytes of a row of the factors, which lie in shared memory as matrix descriptors say; the left one may lie in tensor memory, in the lanes of the
//! sums, with as many neighbours in a cell as its type has in 32 bits.
//!
//! The scales of a block-scaled product lie in shared memory in chunks of 128 rows and four scales ([`SumsScaling::shared_layout`]), which the issuing thread copies to
//! tensor memory ahead of its instructions.
//!
//! A warp reaches a quarter of the lanes, by its number in its warpgroup. A register tensor that is copied from tensor memory or to it has therefore a layout in
//! which each warp has the rows of its own lanes: a row a thread, or, of 64 rows, which leave half of a warp's lanes free, the fragment of `mma`. Where an author has pinned another, it
//! is one of a row's instructions, or refused.

use tilewright_layout::{Layout, SwizzledLayout};
use tilewright_machine::{
    Class, CopyKind, CopyRow, DType, Memory, Places, Sparsity, SumsScaling, SwizzleMode, Tcgen05Row,
    TensorMemory, Timing, metadata_layout, scaled_tcgen05, scaled_tcgen05_pair, sparse_tcgen05, tcgen05,
    tcgen05_pair, tensor_memory_copies,
};

use super::descriptor::matrix_descriptor;
use super::halves::half_of_rows;
use super::wgmma::SharedOperand;
use crate::reject::{MmaOperand, TensorMemoryReject, WgmmaReject};
use crate::tv::TvLayout;

/// Threads of a warpgroup.
const GROUP: i64 = 128;

/// One instruction of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SumsCall {
    /// The begin of A, in bytes from the tile; in tensor memory, in columns.
    pub a_at: i64,
    /// The begin of B.
    pub b_at: i64,
    /// True if it is the first.
    pub first: bool,
    /// The scales of A and of B that a block-scaled one takes.
    pub scales: Option<[ScalesAt; 2]>,
    /// The metadata that one with a sparse left factor takes.
    pub places: Option<Places>,
}

/// The scales of a factor that an instruction takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScalesAt {
    /// Their first column, from that of the tensor's scales on.
    pub column: u32,
    /// The first byte of a cell.
    pub byte: u32,
}

/// The plan of a `gemm.async` with its sums in tensor memory.
#[derive(Clone, PartialEq, Debug)]
pub struct SumsPlan {
    /// The instruction.
    pub row: &'static Tcgen05Row,
    /// The left factor in shared memory; `None` where it lies in tensor memory.
    pub a: Option<SharedOperand>,
    /// The right factor.
    pub b: SharedOperand,
    /// The chunks of the scales of A and of B that are copied to tensor memory ahead of the instructions; none of a product without.
    pub chunks: [u32; 2],
    /// The instructions, in order.
    pub calls: Vec<SumsCall>,
}

/// A product with its sums in tensor memory, before its factors have layouts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sums {
    /// The instruction.
    pub row: &'static Tcgen05Row,
    /// Elements along K.
    pub k: i64,
}

impl Sums {
    /// The product of these types and extents.
    ///
    /// # Errors
    ///
    /// The reason why no instruction does it.
    pub fn new((a, b, c): (DType, DType, DType), [m, n, k]: [i64; 3]) -> Result<Sums, TensorMemoryReject> {
        let row = tcgen05(a, b, c, [m, n]).ok_or(TensorMemoryReject::Extents([m, n]))?;
        Sums::along(row, k)
    }

    /// The product of a pair of blocks, of which each has these rows and half of the rows of B.
    ///
    /// # Errors
    ///
    /// The reason why no instruction does it.
    pub fn of_pair(
        (a, b, c): (DType, DType, DType),
        [m, n, k]: [i64; 3],
    ) -> Result<Sums, TensorMemoryReject> {
        let row = tcgen05_pair(a, b, c, [m, n]).ok_or(TensorMemoryReject::Extents([m, n]))?;
        Sums::along(row, k)
    }

    /// The product of a sparse left factor, of these types and extents, of which K is that of the right factor.
    ///
    /// # Errors
    ///
    /// The reason why no instruction does it.
    pub fn sparse((a, b, c): (DType, DType, DType), [m, n, k]: [i64; 3]) -> Result<Sums, TensorMemoryReject> {
        let row = sparse_tcgen05(a, b, c, [m, n]).ok_or(TensorMemoryReject::SparseExtents([m, n]))?;
        Sums::along(row, k)
    }

    fn along(row: &'static Tcgen05Row, k: i64) -> Result<Sums, TensorMemoryReject> {
        if k % row.whole_k() != 0 {
            return Err(TensorMemoryReject::K(k, row.whole_k(), row.a));
        }
        Ok(Sums { row, k })
    }

    /// The product of these types and extents, of one block or of a pair, with scales of these rows of both factors, so many of each.
    ///
    /// # Errors
    ///
    /// The reason why no instruction does it, or why its scales do not come to tensor memory.
    pub fn scaled(
        (a, b, scale): (DType, DType, DType),
        [m, n, k]: [i64; 3],
        (rows, scales): ([i64; 2], i64),
        pairs: bool,
    ) -> Result<Sums, TensorMemoryReject> {
        let extents = TensorMemoryReject::ScaledExtents([m, n]);
        let steps = TensorMemoryReject::Scales(k, SumsScaling::SCALES);
        let scaling = SumsScaling::new(scale, k, scales).ok_or(steps)?;
        let row = if pairs { scaled_tcgen05_pair } else { scaled_tcgen05 };
        let row = row(a, b, scaling, [m, n]).ok_or(extents)?;
        for (rows, of) in rows.into_iter().zip([m, n]) {
            if rows != SumsScaling::rows_for(of) {
                return Err(TensorMemoryReject::ScaledRows(of, SumsScaling::rows_for(of), scales));
            }
        }
        if scales % SumsScaling::SCALES != 0 {
            return Err(TensorMemoryReject::Scales(k, SumsScaling::SCALES * scaling.block));
        }
        Ok(Sums { row, k })
    }

    /// Rows of the scales of a factor, and the scales of each.
    fn scales_of(&self, left: bool) -> Option<(i64, i64)> {
        let scaling = self.row.scaling?;
        let rows = if left { self.row.m } else { self.row.n };
        Some((SumsScaling::rows_for(rows), self.k / scaling.block))
    }

    /// The layout that the scales of a factor have in shared memory.
    pub fn scales_layout(&self, left: bool) -> Option<SwizzledLayout> {
        let (rows, scales) = self.scales_of(left)?;
        SumsScaling::shared_layout(rows, scales).map(SwizzledLayout::from)
    }

    /// Refuses a layout of the scales of a factor that their copies to tensor memory do not read.
    ///
    /// # Errors
    ///
    /// The layout that they read.
    pub fn check_scales(&self, left: bool, layout: &SwizzledLayout) -> Result<(), TensorMemoryReject> {
        let wanted =
            self.scales_layout(left).ok_or(TensorMemoryReject::ScaledExtents([self.row.m, self.row.n]))?;
        let alike = layout.swizzle.is_identity()
            && layout.layout.size() == wanted.layout.size()
            && (0..wanted.layout.size()).all(|at| layout.layout.eval(at) == wanted.layout.eval(at));
        if alike { Ok(()) } else { Err(TensorMemoryReject::ScalesElsewhere(wanted.layout)) }
    }

    /// Columns of the left factor's tile.
    fn left_columns(&self) -> i64 {
        self.k / self.row.k * self.row.left_columns()
    }

    /// The description by which the hardware reads a factor in shared memory (tile's coordinate → offset in elements).
    ///
    /// # Errors
    ///
    /// The reason why it does not.
    pub fn operand(&self, left: bool, layout: &SwizzledLayout) -> Result<SharedOperand, WgmmaReject> {
        let row = self.row;
        let (operand, mn, dtype) =
            if left { (MmaOperand::A, row.m, row.a) } else { (MmaOperand::B, row.right_rows(), row.b) };
        let bits = dtype.bits();
        let half = match row.blocks {
            2 if !left => Some(half_of_rows(&layout.layout, row.n, self.k).ok_or(WgmmaReject::Halves)?),
            _ => None,
        };
        let swizzle =
            SwizzleMode::of(&layout.swizzle, bits).ok_or(WgmmaReject::Swizzle(layout.swizzle, operand))?;
        let plain = half.as_ref().unwrap_or(&layout.layout);
        let (whole, step) = if left { (self.left_columns(), row.left_columns()) } else { (self.k, row.k) };
        let template =
            matrix_descriptor(plain, swizzle, (mn, whole), (mn, step), (bits, row.takes_mn_major()))
                .map_err(|why| WgmmaReject::Descriptor(operand, why))?;
        Ok(SharedOperand { major: template.major, descriptor: template.descriptor, warpgroup: 0 })
    }

    /// The plan, given the layouts of the factors in shared memory; a left factor without one lies in tensor memory.
    ///
    /// # Errors
    ///
    /// The reason why the hardware does not read a factor as it lies.
    pub fn plan(&self, a: Option<&SwizzledLayout>, b: &SwizzledLayout) -> Result<SumsPlan, WgmmaReject> {
        let row = self.row;
        let at = |layout: &SwizzledLayout, index: i64, dtype: DType| {
            layout.layout.eval(index) * i64::from(dtype.bits()) / 8
        };
        let call = |step: i64| SumsCall {
            a_at: match a {
                Some(a) => at(a, row.m * row.left_columns() * step, row.a),
                None => i64::from(row.a_columns()) * step,
            },
            b_at: at(b, row.n * row.k * step, row.b),
            first: step == 0,
            scales: row.scaling.map(|scaling| {
                let first = step * scaling.taken(row.k);
                let byte = (first % SumsScaling::SCALES) as u32;
                [row.m, row.n].map(|rows| {
                    let before = first / SumsScaling::SCALES * SumsScaling::SCALES;
                    ScalesAt { column: SumsScaling::columns(SumsScaling::rows_for(rows), before), byte }
                })
            }),
            places: row.sparse.then(|| row.places(step as u32)),
        };
        let calls = (0..self.k / row.k).map(call).collect();
        let chunks = [true, false].map(|left| {
            self.scales_of(left)
                .map_or(0, |(rows, scales)| SumsScaling::columns(rows, scales) / SumsScaling::COLUMNS)
        });
        let a = a.map(|a| self.operand(true, a)).transpose()?;
        Ok(SumsPlan { row, a, b: self.operand(false, b)?, chunks, calls })
    }
}

impl SumsPlan {
    /// The instruction with its operands, as reports name it.
    pub fn name(&self) -> String {
        let place = |operand: &SharedOperand| format!("{}, {}", operand.major, operand.descriptor.swizzle);
        let left = self.a.as_ref().map_or("tensor memory".to_string(), place);
        format!("{} (A {left}; B {})", self.row.name, place(&self.b))
    }

    /// Cycles for which the product occupies the tensor cores.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let copies: u32 = self.chunks.iter().sum();
        self.calls.len() as u32 * timing.tcgen05(self.row, self.a.is_some()).whole_issue()
            + copies * timing.cost(Class::TensorScales).whole_issue()
    }
}

/// A copy of a warp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorCall {
    /// The values of a thread, those of a register side by side.
    pub values: Vec<u32>,
    /// The lane, from the first that the warp reaches on.
    pub lane: u32,
    /// The column, from the tensor's first on.
    pub column: u32,
}

/// The plan of a copy between tensor memory and registers.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorCopyPlan {
    /// The instruction.
    pub row: &'static CopyRow,
    /// Columns from one warpgroup's part to the next's.
    pub warpgroup: u32,
    /// The instructions of each warp, in order.
    pub calls: Vec<TensorCall>,
}

/// The layout of a register tensor that is copied from tensor memory or to it: (thread, value) → m + rows · n.
///
/// # Errors
///
/// The reason why these warpgroups cannot share the columns.
pub fn register_layout([m, n]: [i64; 2], threads: i64) -> Result<TvLayout, TensorMemoryReject> {
    let groups = threads / GROUP;
    let refused = TensorMemoryReject::Columns(groups, n);
    if groups < 1 || n % (8 * groups) != 0 {
        return Err(refused);
    }
    let part = n / groups;
    let text = match m {
        128 => format!("((128,{groups}),{part}):((1,{}),128)", m * part),
        _ => format!("((4,8,4,{groups}),(2,2,{})):((128,1,16,{}),(64,8,512))", part / 8, m * part),
    };
    let layout: Option<Layout> = text.parse().ok();
    layout.and_then(|layout| TvLayout::from_layout(layout).ok()).ok_or(refused)
}

/// The layout of a register tensor that is copied to tensor memory as metadata of factors of so many bits.
///
/// # Errors
///
/// The reason why these warpgroups cannot share the columns.
pub fn metadata_registers([m, n]: [i64; 2], bits: u32, threads: i64) -> Result<TvLayout, TensorMemoryReject> {
    let groups = threads / GROUP;
    let refused = TensorMemoryReject::Columns(groups, n);
    if m != TensorMemory::LANES || groups < 1 || n % (16 * groups) != 0 {
        return Err(refused);
    }
    let part = n / groups;
    let text = match bits {
        16 => format!("((8,2,8,{groups}),(8,2,{})):((1,1024,16,{}),(128,8,2048))", part / 16, m * part),
        _ => return register_layout([m, n], threads),
    };
    let layout: Option<Layout> = text.parse().ok();
    layout.and_then(|layout| TvLayout::from_layout(layout).ok()).ok_or(refused)
}

/// The places of a tile of so many rows and columns in tensor memory (m + rows · n → place, of which a cell has as many as elements), as sums or as a packed left factor.
fn packed_layout([m, n]: [i64; 2], each: i64) -> Option<Layout> {
    if n % each != 0 {
        return None;
    }
    let columns = n / each;
    let next = each * TensorMemory::LANES;
    let text = match m {
        128 => format!("(128,({each},{columns})):({each},(1,{next}))"),
        64 => format!("((16,4),({each},{columns})):(({each},{}),(1,{next}))", 32 * each),
        _ => return None,
    };
    text.parse().ok()
}

/// The rows and the columns of a tile in tensor memory, whose parts lie side by side.
pub fn matrix(shape: &[i64]) -> Option<[i64; 2]> {
    let [m, n, parts @ ..] = shape else { return None };
    Some([*m, n * parts.iter().product::<i64>()])
}

/// The plan of a copy between tensor memory and a register tensor of this layout, of elements of so many bits.
///
/// # Errors
///
/// The reason why no instruction does it.
pub fn copy_plan(
    loads: bool,
    ([m, n], bits): ([i64; 2], u32),
    tv: &TvLayout,
    threads: i64,
) -> Result<TensorCopyPlan, TensorMemoryReject> {
    if bits == Sparsity::META.bits() {
        // The registers are laid out for one kind of factors.
        let kinds = [16, 8].map(|factor| metadata_layout(factor, n).filter(|_| m == TensorMemory::LANES));
        let mut tried =
            kinds.into_iter().flatten().map(|cells| copies(loads, (m, bits), &cells, tv, threads));
        let first = tried.next().unwrap_or(Err(TensorMemoryReject::Extents([m, n])));
        return if first.is_ok() { first } else { tried.next().unwrap_or(first) };
    }
    let cells = packed_layout([m, n], i64::from(32 / bits)).ok_or(TensorMemoryReject::Extents([m, n]))?;
    copies(loads, (m, bits), &cells, tv, threads)
}

/// The plan of a copy between registers and cells, given the place of each element among those of cells.
fn copies(
    loads: bool,
    (m, bits): (i64, u32),
    places: &Layout,
    tv: &TvLayout,
    threads: i64,
) -> Result<TensorCopyPlan, TensorMemoryReject> {
    // Elements of a cell, which lie side by side in a register too.
    let each = i64::from(32 / bits);
    let groups = threads / GROUP;
    let from = if loads { Memory::Tensor } else { Memory::Register };
    let count = tv.count() as i64 / each;
    let place = |thread: i64, value: i64| places.eval(tv.at(thread, value));
    let together = |thread: i64, register: i64| {
        let first = place(thread, register * each);
        first % each == 0 && (1..each).all(|i| place(thread, register * each + i) == first + i)
    };
    if tv.count() as i64 % each != 0
        || (0..threads).any(|thread| (0..count).any(|register| !together(thread, register)))
    {
        return Err(TensorMemoryReject::NoShape);
    }
    // The lane and the column of a register of a thread.
    let cell = |thread: i64, register: i64| {
        let cell = place(thread, register * each) / each;
        (cell % TensorMemory::LANES, cell / TensorMemory::LANES)
    };
    let own = |thread: i64| thread / 32 % 4 * i64::from(TensorMemory::LANES_OF_A_WARP);
    let group = if groups > 1 { cell(GROUP, 0).1 - cell(0, 0).1 } else { 0 };
    'rows: for row in tensor_memory_copies().iter().filter(|row| row.src == from) {
        let CopyKind::Tensor { lanes, registers } = row.kind else { continue };
        if !(count as u32).is_multiple_of(registers) {
            continue;
        }
        let part = row.register_tv();
        let mut calls = Vec::new();
        for first in (0..count).step_by(registers as usize) {
            let (lane, column) = cell(0, first);
            for thread in 0..threads {
                for value in 0..i64::from(registers) {
                    let index = part.eval(thread % 32 + 32 * value);
                    let wanted = (
                        own(thread) + lane + index % i64::from(lanes),
                        column + thread / GROUP * group + index / i64::from(lanes),
                    );
                    if cell(thread, first + value) != wanted {
                        continue 'rows;
                    }
                }
            }
            let values =
                (first * each..(first + i64::from(registers)) * each).map(|value| value as u32).collect();
            calls.push(TensorCall { values, lane: lane as u32, column: column as u32 });
        }
        return Ok(TensorCopyPlan { row, warpgroup: group as u32, calls });
    }
    let strange = (0..threads)
        .find(|thread| (0..count).any(|register| cell(*thread, register).0 / 32 != own(*thread) / 32));
    Err(match strange {
        Some(thread) => {
            let foreign = |value: &i64| cell(thread, *value).0 / 32 != own(thread) / 32;
            let register = (0..count).find(foreign).unwrap_or(0);
            TensorMemoryReject::Lanes { warp: thread / 32, row: tv.at(thread, register * each) % m }
        }
        None => TensorMemoryReject::NoShape,
    })
}

impl TensorCopyPlan {
    /// Cycles for which the copies of a warp occupy their unit.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let registers = self.calls.len() as u32 * self.row.registers();
        registers * timing.cost(self.row).whole_issue()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::async_layout::descriptor::swizzle_atom_layout;

    #[test]
    fn copies_cover_all_sums_by_the_widest_instructions() {
        for (shape, threads, name, calls) in [
            ([128, 64], 128, "tcgen05.ld.32x32b.x32", 2),
            ([128, 256], 256, "tcgen05.ld.32x32b.x32", 4),
            ([128, 48], 128, "tcgen05.ld.32x32b.x16", 3),
            ([64, 64], 128, "tcgen05.ld.16x256b.x8", 1),
            ([64, 128], 256, "tcgen05.ld.16x256b.x8", 1),
        ] {
            let tv = register_layout(shape, threads).unwrap();
            assert!(tv.layout().is_bijective_onto(shape[0] * shape[1]), "{shape:?}");
            let plan = copy_plan(true, (shape, 32), &tv, threads).unwrap();
            assert_eq!((plan.row.name, plan.calls.len()), (name, calls), "{shape:?}");
            assert!(copy_plan(false, (shape, 32), &tv, threads).is_ok());
        }
        assert_eq!(register_layout([128, 24], 256), Err(TensorMemoryReject::Columns(2, 24)));
    }

    #[test]
    fn neighbours_along_a_row_share_a_register_and_a_cell() {
        for (bits, threads, name, columns) in [
            (16, 128, "tcgen05.st.32x32b.x32", [0, 32].as_slice()),
            (16, 256, "tcgen05.st.32x32b.x32", &[0]),
            (8, 128, "tcgen05.st.32x32b.x32", &[0]),
        ] {
            let tv = register_layout([128, 128], threads).unwrap();
            let plan = copy_plan(false, ([128, 128], bits), &tv, threads).unwrap();
            assert_eq!(plan.row.name, name);
            assert_eq!(plan.calls.iter().map(|call| call.column).collect::<Vec<_>>(), columns);
            assert!(plan.calls.iter().all(|call| call.values.len() as u32 == 32 * 32 / bits));
        }
        // The left factor of `mma`, of 128 rows: two halves of each warp's lanes, of which two warpgroups have half of the columns each.
        for (bits, threads, text, name) in [
            (16, 128, "((4,8,4),(2,2,2,4,2)):((256,1,32),(128,8,1024,2048,16))", "tcgen05.st.16x128b.x8"),
            (
                8,
                256,
                "((4,8,4,2),(4,2,2,2,2)):((512,1,32,8192),(128,8,2048,4096,16))",
                "tcgen05.st.16x128b.x4",
            ),
        ] {
            let fragment = TvLayout::from_layout(text.parse().unwrap()).unwrap();
            let plan = copy_plan(false, ([128, 1024 / i64::from(bits)], bits), &fragment, threads).unwrap();
            assert_eq!(plan.row.name, name);
            assert_eq!(plan.calls.iter().map(|call| call.lane).collect::<Vec<_>>(), [0, 16]);
            assert!(plan.calls.iter().all(|call| call.column == 0));
            assert_eq!(plan.warpgroup, if threads > 128 { 16 } else { 0 });
        }
        // A thread has every second element of a row: no two of them are a cell.
        let apart = TvLayout::from_layout("(128,(64,2)):(1,(256,128))".parse().unwrap()).unwrap();
        assert_eq!(copy_plan(false, ([128, 128], 16), &apart, 128), Err(TensorMemoryReject::NoShape));
    }

    #[test]
    fn metadata_go_to_the_cells_of_their_factors() {
        for (bits, threads, calls) in [(8, 128, 1), (16, 128, 1), (8, 256, 1), (16, 256, 1)] {
            let tv = metadata_registers([128, 64], bits, threads).unwrap();
            assert!(tv.layout().is_bijective_onto(128 * 64), "{bits}");
            let plan = copy_plan(false, ([128, 64], 2), &tv, threads).unwrap();
            let groups = threads / 128;
            let name = if groups == 1 { "tcgen05.st.32x32b.x4" } else { "tcgen05.st.32x32b.x2" };
            assert_eq!((plan.row.name, plan.calls.len()), (name, calls), "{bits}");
            assert_eq!(plan.warpgroup, if groups == 1 { 0 } else { 2 });
        }
        assert_eq!(metadata_registers([128, 24], 8, 128), Err(TensorMemoryReject::Columns(1, 24)));
        let turned = TvLayout::from_layout("(128,64):(64,1)".parse().unwrap()).unwrap();
        assert!(copy_plan(false, ([128, 64], 2), &turned, 128).is_err());
    }

    #[test]
    fn a_pinned_layout_is_that_of_an_instruction_or_refused() {
        let tv = |text: &str| TvLayout::from_layout(text.parse().unwrap()).unwrap();
        // The fragment of `mma`, of 128 rows: two halves of each warp's lanes.
        let fragment = tv("((4,8,4),(2,2,8,2)):((256,1,32),(128,8,1024,16))");
        let plan = copy_plan(true, ([128, 64], 32), &fragment, 128).unwrap();
        assert_eq!(plan.row.name, "tcgen05.ld.16x256b.x8");
        assert_eq!(plan.calls.iter().map(|call| call.lane).collect::<Vec<_>>(), [0, 16]);
        let turned = tv("(128,64):(64,1)");
        let reject = copy_plan(true, ([128, 64], 32), &turned, 128).unwrap_err();
        assert!(matches!(reject, TensorMemoryReject::Lanes { warp: 0, .. }), "{reject}");
        // Columns that are apart come one at a time.
        let scattered = tv("(128,(2,32)):(1,(4096,128))");
        let plan = copy_plan(true, ([128, 64], 32), &scattered, 128).unwrap();
        assert_eq!((plan.row.name, plan.calls.len()), ("tcgen05.ld.32x32b.x1", 64));
        // Each warp has its own rows, but in another order.
        let shuffled = tv("((2,16,4),64):((16,1,32),128)");
        assert_eq!(copy_plan(true, ([128, 64], 32), &shuffled, 128), Err(TensorMemoryReject::NoShape));
    }

    #[test]
    fn calls_walk_along_k() {
        let types = (DType::BF16, DType::BF16, DType::F32);
        let sums = Sums::new(types, [128, 64, 64]).unwrap();
        let a = swizzle_atom_layout(&[128, 64], 1, SwizzleMode::B128, 16).unwrap();
        let b = swizzle_atom_layout(&[64, 64], 0, SwizzleMode::B128, 16).unwrap();
        let plan = sums.plan(Some(&a), &b).unwrap();
        let steps: Vec<_> = plan.calls.iter().map(|call| (call.a_at, call.b_at, call.first)).collect();
        assert_eq!(steps, [(0, 0, true), (32, 2048, false), (64, 4096, false), (96, 6144, false)]);
        let plan = sums.plan(None, &b).unwrap();
        assert_eq!(plan.calls.iter().map(|call| call.a_at).collect::<Vec<_>>(), [0, 8, 16, 24]);
        assert_eq!(Sums::new(types, [96, 64, 64]), Err(TensorMemoryReject::Extents([96, 64])));
        assert_eq!(Sums::new(types, [128, 64, 24]), Err(TensorMemoryReject::K(24, 16, DType::BF16)));
    }
}
