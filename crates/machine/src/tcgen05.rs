//! Tensor memory, and the asynchronous matrix products with their sums there (`tcgen05`, sm_100a): a row a shape and pair of types, the instruction
//! descriptor, and the copies between tensor memory and registers.
//!
//! Tensor memory has 128 lanes of 512 columns of 32 bits. A cell's number is `lane + 128 · column`; an address has the lane in its upper half and the
//! column in its lower. [`Tcgen05Row::d_layout`] maps an element of the sums, (m, n), to its cell, which is the meaning of the instruction. Factors lie in
//! shared memory as a [`Descriptor`] says; the left one may lie in tensor memory instead, by [`Tcgen05Row::a_layout`].
//!
//! Sources: PTX ISA 9.1, section 9.7.16 (`tcgen05`: tensor memory, its addresses, layouts, descriptors and order); CUTLASS
//! `include/cute/atom/mma_traits_sm100.hpp` (`tmem_frg`), `include/cute/arch/mma_sm100_desc.hpp`.

mod scaled;
mod sparse;

use std::sync::LazyLock;

pub use scaled::{SumsScaling, has_scaled_tcgen05, scaled_tcgen05, scaled_tcgen05_pair};
pub use sparse::{Places, has_sparse_tcgen05, metadata_layout, sparse_tcgen05};
use tilewright_layout::Layout;

use crate::arch::Memory;
use crate::copy::{CopyKind, CopyRow, Scope};
use crate::dtype::DType;
use crate::features::{Feature, Features};
use crate::wgmma::{Descriptor, Major, SwizzleMode};

/// The numbers of a multiprocessor's tensor memory.
pub struct TensorMemory;

impl TensorMemory {
    /// Lanes, which products use for rows.
    pub const LANES: i64 = 128;
    /// Columns of 32 bits of each lane.
    pub const COLUMNS: u32 = 512;
    /// Lanes that a warp reaches: those from this times its number in its warpgroup on.
    pub const LANES_OF_A_WARP: u32 = 32;
    /// Columns of the smallest allocation.
    pub const LEAST_COLUMNS: u32 = 32;

    /// Columns of an allocation that holds so many; `None` where there are not as many.
    pub fn allocation(columns: u32) -> Option<u32> {
        let columns = columns.max(TensorMemory::LEAST_COLUMNS).checked_next_power_of_two()?;
        (columns <= TensorMemory::COLUMNS).then_some(columns)
    }

    /// Columns that so many elements of a row take, packed into cells.
    pub fn columns_of(elements: i64, dtype: DType) -> u32 {
        (elements as u32 * dtype.bits()).div_ceil(32)
    }

    /// The address of a lane and a column.
    pub fn address(lane: u32, column: u32) -> u32 {
        lane << 16 | column
    }

    /// The lane and the column of an address.
    pub fn place(address: u32) -> (u32, u32) {
        (address >> 16, address & 0xffff)
    }
}

/// A matrix product with its sums in tensor memory: `D = A · Bᵀ + D`, asynchronous, issued by one thread; A is M×K, in shared memory or in tensor memory, B N×K in shared memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Tcgen05Row {
    /// The name in reports, e.g. `tcgen05.mma.m128n256k16.f32.f16.f16`.
    pub name: String,
    /// PTX mnemonic with all its qualifiers.
    pub mnemonic: String,
    /// Blocks that multiply together: 1, or the two of a pair, which share B and have each its own A and D.
    pub blocks: i64,
    /// Rows of A and D in a block.
    pub m: i64,
    /// Rows of B, of which each block has an equal part; columns of D.
    pub n: i64,
    /// Columns of A and B: 32 bytes, of B beside a sparse A 64.
    pub k: i64,
    /// True of a left factor of which two elements of every four along K are there.
    pub sparse: bool,
    /// Element type of A. `F32` stands for `tf32`.
    pub a: DType,
    /// Element type of B.
    pub b: DType,
    /// Element type of D.
    pub c: DType,
    /// The scales of a block-scaled product.
    pub scaling: Option<SumsScaling>,
    /// The first version of PTX that has the instruction.
    pub ptx_version: &'static str,
}

impl Tcgen05Row {
    /// The features that an architecture must have for any of them.
    pub const NEEDS: Features = Features::of(&[Feature::Tcgen05]);
    /// Those of products of integers.
    pub const INTEGER_NEEDS: Features = Self::NEEDS.and(&[Feature::IntegerSums]);

    /// The features that an architecture must have for it.
    pub fn needs(&self) -> Features {
        sums_need(self.c)
    }

    /// Bit 46 of a matrix descriptor, which products with sums in tensor memory want set (PTX ISA 9.1, section 9.7.16.4.1).
    pub const DESCRIPTOR: u64 = 1 << 46;

    /// The matrix descriptor of a factor.
    pub fn matrix(descriptor: &Descriptor) -> u64 {
        descriptor.encode() | Tcgen05Row::DESCRIPTOR
    }

    /// The instruction descriptor of a product whose factors are contiguous along these modes: types, majors and extents, none of which the mnemonic
    /// has (PTX ISA 9.1, section 9.7.16.4.2).
    pub fn instruction(&self, a: Major, b: Major) -> u32 {
        let code = |dtype: DType| match dtype {
            DType::BF16 | DType::E5M2 | DType::I8 => 1,
            DType::F32 => 2,
            _ => 0,
        };
        let along = |major: Major| u32::from(major == Major::Mn);
        let sums = match self.c {
            DType::F32 => 1,
            DType::I32 => 2,
            _ => 0,
        };
        sums << 4
            | code(self.a) << 7
            | code(self.b) << 10
            | along(a) << 15
            | along(b) << 16
            | (self.n as u32 / 8) << 17
            | ((self.m * self.blocks) as u32 / 16) << 24
    }

    /// Rows of B in a block's shared memory.
    pub fn right_rows(&self) -> i64 {
        self.n / self.blocks
    }

    /// (m, n), m fastest, → cell of tensor memory, of the sums that begin at column 0. Of 64 rows each warp has 16 lanes.
    pub fn d_layout(&self) -> Layout {
        sums_layout(self.m, self.n).expect("rows have layouts, as a test says")
    }

    /// (m, word), m fastest, → cell of tensor memory, of a left factor that begins at column 0: a cell has a word of 32 bits, of as many elements along k.
    ///
    /// Source: PTX ISA 9.1, section 9.7.16.10.5 (the left factor lies in the lanes of the sums); CUTLASS `tmem_frg`.
    pub fn a_layout(&self) -> Layout {
        sums_layout(self.m, self.left_columns() * i64::from(self.a.bits()) / 32)
            .expect("rows have layouts, as a test says")
    }

    /// Columns of tensor memory that the left factor takes, if it lies there.
    pub fn a_columns(&self) -> u32 {
        TensorMemory::columns_of(self.left_columns(), self.a)
    }

    /// Columns of tensor memory that the sums take.
    pub fn columns(&self) -> u32 {
        self.n as u32
    }

    /// Multiply-adds of one instruction in a block.
    pub fn macs(&self) -> i64 {
        self.m * self.n * self.k
    }

    /// True if factors may be contiguous along M or N: all but those of 4 bits (PTX ISA 9.1, section 9.7.16.4.2).
    pub fn takes_mn_major(&self) -> bool {
        self.a.bits() >= 8
    }

    /// True if factors that are contiguous along M or N have this swizzle: those of 32 bits the one of 32-byte atoms alone, and no others that.
    pub fn takes_mn_swizzle(&self, swizzle: SwizzleMode) -> bool {
        (self.a.bits() == 32) == (swizzle == SwizzleMode::B128Atom32)
    }

    /// Cycles for which the factors occupy shared memory's port, of 128 bytes a cycle: both, or the right one alone.
    pub fn shared_cycles(&self, a_shared: bool) -> u32 {
        let right = if self.sparse { 2 * self.right_rows() } else { self.right_rows() };
        (if a_shared { self.m + right } else { right }) as u32 / 4
    }
}

/// (m, n), m fastest, → cell of tensor memory, of sums of `m` rows and `n` columns: `None` where no product has as many rows.
///
/// Source: PTX ISA 9.1, section 9.7.16.10.5 (layouts D and F); CUTLASS `tmem_frg`.
pub fn sums_layout(m: i64, n: i64) -> Option<Layout> {
    let text = match m {
        128 => format!("(128,{n}):(1,128)"),
        64 => format!("((16,4),{n}):((1,32),128)"),
        _ => return None,
    };
    text.parse().ok()
}

/// The qualifier of a kernel's `tcgen05` instructions, which are all of one block or all of a pair (PTX ISA 9.1, section 9.7.16.5).
const GROUP: &str = "cta_group::1";

/// The text of an instruction of one block as a kernel has it whose blocks work in pairs.
pub fn in_pairs(text: &str) -> String {
    text.replace(GROUP, "cta_group::2")
}

fn row(blocks: i64, [m, n]: [i64; 2], (a, b): (DType, DType)) -> Tcgen05Row {
    let k = 256 / i64::from(a.bits());
    let integers = a.range().is_some();
    let c = if integers { DType::I32 } else { DType::F32 };
    let ptx = |t: DType| match t {
        DType::F32 => "tf32".to_string(),
        DType::I8 => "s8".to_string(),
        other => other.to_string(),
    };
    let sums = if integers { "s32" } else { "f32" };
    let kind = match a.bits() {
        32 => "tf32",
        16 => "f16",
        _ if integers => "i8",
        _ => "f8f6f4",
    };
    Tcgen05Row {
        name: format!("tcgen05.mma.m{}n{n}k{k}.{sums}.{}.{}", m * blocks, ptx(a), ptx(b)),
        mnemonic: format!("tcgen05.mma.cta_group::{blocks}.kind::{kind}"),
        blocks,
        m,
        n,
        k,
        sparse: false,
        a,
        b,
        c,
        scaling: None,
        ptx_version: "8.6",
    }
}

static ROWS: LazyLock<Vec<Tcgen05Row>> = LazyLock::new(|| {
    use DType::{BF16, E4M3, E5M2, F16, F32, I8, U8};
    let bytes = [E4M3, E5M2].into_iter().flat_map(|a| [E4M3, E5M2].map(|b| (a, b)));
    let integers = [I8, U8].into_iter().flat_map(|a| [I8, U8].map(|b| (a, b)));
    let types: Vec<(DType, DType)> =
        [(F16, F16), (BF16, BF16), (F32, F32)].into_iter().chain(bytes).chain(integers).collect();
    let mut rows = Vec::new();
    for types in types.iter().copied() {
        // The manual lists every 8th n for 128 rows too; CUTLASS and DeepGEMM want every 16th there.
        for (blocks, m, step) in [(1, 128, 16), (1, 64, 8), (2, 128, 16)] {
            let columns = (1..=256 / step).rev().map(|i| step * i);
            // Of integers there is every 16th beyond 32, and every 32nd of pairs (PTX ISA 9.1, section 9.7.16.2.1).
            let of_integers = |n: &i64| match blocks {
                1 => *n <= 32 || n % 16 == 0,
                _ => n % 32 == 0,
            };
            let columns = columns.filter(|n| types.0.range().is_none() || of_integers(n));
            rows.extend(columns.map(|n| row(blocks, [m, n], types)));
        }
    }
    for types in types.into_iter().filter(|(a, _)| a.bits() < 32) {
        rows.extend((1..=16).rev().map(|i| sparse::sparse_row(16 * i, types)));
    }
    for blocks in [1, 2] {
        rows.extend((1..=16).rev().flat_map(|i| scaled::scaled_rows(blocks, 16 * i)));
    }
    rows
});

/// Every matrix product with sums in tensor memory.
pub fn tcgen05_rows() -> &'static [Tcgen05Row] {
    &ROWS
}

/// The rows of products without scales, of two whole factors.
fn unscaled() -> impl Iterator<Item = &'static Tcgen05Row> {
    tcgen05_rows().iter().filter(|row| row.scaling.is_none() && !row.sparse)
}

/// The row of one block's product without scales of these types (A, B, D) and extents.
pub fn tcgen05(a: DType, b: DType, c: DType, extents: [i64; 2]) -> Option<&'static Tcgen05Row> {
    of_blocks(1, (a, b, c), extents)
}

/// The same of a pair of blocks, of which each has so many rows of A and D.
pub fn tcgen05_pair(a: DType, b: DType, c: DType, extents: [i64; 2]) -> Option<&'static Tcgen05Row> {
    of_blocks(2, (a, b, c), extents)
}

fn of_blocks(blocks: i64, types: (DType, DType, DType), [m, n]: [i64; 2]) -> Option<&'static Tcgen05Row> {
    unscaled().find(|row| {
        (row.blocks, row.a, row.b, row.c, row.m, row.n) == (blocks, types.0, types.1, types.2, m, n)
    })
}

/// The features that an architecture must have for sums of a type in tensor memory.
pub fn sums_need(c: DType) -> Features {
    if c == DType::I32 { Tcgen05Row::INTEGER_NEEDS } else { Tcgen05Row::NEEDS }
}

/// True if products have sums of this type there.
pub fn is_tcgen05_sum(c: DType) -> bool {
    tcgen05_rows().iter().any(|row| row.c == c)
}

/// True if there are products without scales of these types (A, B, D).
pub fn has_tcgen05(a: DType, b: DType, c: DType) -> bool {
    unscaled().any(|row| (row.a, row.b, row.c) == (a, b, c))
}

/// True if products without scales, whose left factors may lie in tensor memory, have some of this type.
pub fn is_tcgen05_left(a: DType) -> bool {
    unscaled().any(|row| row.a == a)
}

fn copy(
    (load, store): ((&'static str, &'static str), (&'static str, &'static str)),
    (lanes, registers): (u32, u32),
    tv: &str,
) -> [CopyRow; 2] {
    let tv: Layout = tv.parse().expect("the layouts of rows are texts that a test parses");
    [(load, Memory::Tensor, Memory::Register), (store, Memory::Register, Memory::Tensor)].map(
        |((name, mnemonic), src, dst)| CopyRow {
            name,
            mnemonic,
            kind: CopyKind::Tensor { lanes, registers },
            scope: Scope::Cta,
            src,
            dst,
            bytes: 4,
            unit_bits: 32,
            src_tv: tv.clone(),
            dst_tv: tv.clone(),
            needs: Tcgen05Row::NEEDS,
        },
    )
}

/// The rows of a shape of so many lanes and registers an element of its count, widest first.
macro_rules! shape {
    ($shape:literal, $lanes:literal, $per:literal, $tv:expr; $($count:literal)*) => {
        [$(
            copy(
                (
                    (
                        concat!("tcgen05.ld.", $shape, ".x", $count),
                        concat!("tcgen05.ld.sync.aligned.", $shape, ".x", $count, ".b32"),
                    ),
                    (
                        concat!("tcgen05.st.", $shape, ".x", $count),
                        concat!("tcgen05.st.sync.aligned.", $shape, ".x", $count, ".b32"),
                    ),
                ),
                ($lanes, $per * $count),
                &$tv($count),
            ),
        )*]
    };
}

static COPIES: LazyLock<Vec<CopyRow>> = LazyLock::new(|| {
    // (T32,Vn) -> lane + 32 · column: a thread has a row.
    let rows = |n: u32| format!("(32,{n}):(1,32)");
    // (T32,V4n) -> lane + 16 · column: the fragment of the sums of `mma.m16n8`, n of them side by side.
    let fragments = |n: u32| format!("((4,8),(2,2,{n})):((32,1),(16,8,128))");
    // (T32,V2n) -> lane + 16 · column: the words of the left factor of `mma.m16`, half of an instruction's columns each.
    let words = |n: u32| format!("((4,8),(2,{n})):((16,1),(8,64))");
    let rows = shape!("32x32b", 32, 1, rows; 32 16 8 4 2 1);
    let fragments = shape!("16x256b", 16, 4, fragments; 8 4 2 1);
    let words = shape!("16x128b", 16, 2, words; 16 8 4 2 1);
    rows.into_iter().chain(fragments).chain(words).flatten().collect()
});

/// The copies between tensor memory and a warp's registers, by shape, widest first. Their layouts map (lane of the warp, register) → lane of tensor memory +
/// lanes · column, from the address on, which is the same in all lanes of the warp. Of the counts of the manual those are there whose registers a thread of
/// 512 has beside others (`ptxas` refuses more).
pub fn tensor_memory_copies() -> &'static [CopyRow] {
    &COPIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_descriptors_are_those_of_cutlass() {
        let bits = |types, extents: [i64; 2]| {
            let (a, b) = types;
            tcgen05(a, b, DType::F32, extents).unwrap().instruction(Major::K, Major::K)
        };
        let half = (DType::BF16, DType::BF16);
        assert_eq!(bits(half, [128, 256]), 0x0840_0490);
        assert_eq!(bits(half, [64, 64]), 0x0410_0490);
        assert_eq!(bits((DType::F16, DType::F16), [128, 128]), 0x0820_0010);
        let pair = tcgen05_pair(half.0, half.1, DType::F32, [128, 256]).unwrap();
        assert_eq!(pair.instruction(Major::K, Major::K), 0x1040_0490);
        let pair = tcgen05_pair(half.0, half.1, DType::F32, [128, 128]).unwrap();
        assert_eq!(pair.instruction(Major::K, Major::K), 0x1020_0490);
        assert_eq!(pair.right_rows(), 64);
        let row = tcgen05(DType::F16, DType::F16, DType::F32, [128, 128]).unwrap();
        let integers = |types: (DType, DType)| {
            let row = tcgen05(types.0, types.1, DType::I32, [128, 256]).unwrap();
            (row.instruction(Major::K, Major::K), row.name.as_str(), row.needs() == Tcgen05Row::INTEGER_NEEDS)
        };
        let name = "tcgen05.mma.m128n256k32.s32.s8.s8";
        assert_eq!(integers((DType::I8, DType::I8)), (0x0840_04a0, name, true));
        assert_eq!(integers((DType::U8, DType::I8)).0, 0x0840_0420);
        assert_eq!(tcgen05_pair(DType::I8, DType::I8, DType::I32, [128, 48]), None);
        assert_eq!(tcgen05(DType::I8, DType::I8, DType::I32, [64, 40]), None);
        assert_eq!(row.instruction(Major::Mn, Major::Mn) ^ row.instruction(Major::K, Major::K), 3 << 15);
    }

    #[test]
    fn sums_have_cells_of_their_own() {
        for row in tcgen05_rows() {
            let mut cells = row.d_layout().image();
            cells.sort_unstable();
            cells.dedup();
            assert_eq!(cells.len() as i64, row.m * row.n, "{}", row.name);
            assert!(cells.iter().all(|cell| cell / TensorMemory::LANES < row.n));
        }
        // Each warp reaches a quarter of the rows, those that are its own.
        for (m, rows) in [(128, 32), (64, 16)] {
            let layout = sums_layout(m, 8).unwrap();
            assert!((0..m).all(|i| layout.eval(i) % 128 / 32 == i / rows));
        }
        assert_eq!(sums_layout(96, 8), None);
    }

    #[test]
    fn a_left_factor_has_a_cell_for_each_word() {
        for row in tcgen05_rows() {
            let cells = row.a_layout().image();
            assert_eq!(
                cells.len() as i64 * 32,
                row.m * row.left_columns() * i64::from(row.a.bits()),
                "{}",
                row.name
            );
            // 32 bytes of each row.
            assert_eq!(row.a_columns(), 8, "{}", row.name);
            assert!(cells.iter().all(|cell| cell / TensorMemory::LANES < 8), "{}", row.name);
        }
        assert_eq!(TensorMemory::columns_of(128, DType::F16), 64);
        assert_eq!(TensorMemory::columns_of(128, DType::E4M3), 32);
    }

    #[test]
    fn copies_move_each_cell_once() {
        for row in tensor_memory_copies() {
            let CopyKind::Tensor { lanes, registers } = row.kind else { panic!("{}", row.name) };
            let mut image = row.register_tv().image();
            image.sort_unstable();
            assert_eq!(image, (0..32 * i64::from(registers)).collect::<Vec<_>>(), "{}", row.name);
            assert!(
                (32 * registers).is_multiple_of(lanes) && row.registers() == registers && row.is_collective()
            );
        }
    }

    #[test]
    fn allocations_are_powers_of_two() {
        let columns = [1, 32, 33, 256, 300, 512, 513].map(TensorMemory::allocation);
        assert_eq!(columns, [Some(32), Some(32), Some(64), Some(256), Some(512), Some(512), None]);
        assert_eq!(TensorMemory::place(TensorMemory::address(96, 300)), (96, 300));
    }
}
