//! Asynchronous matrix products of a warpgroup (`wgmma`, sm_90a), one row a shape and pair of types, and the descriptors by which
//! they find their operands in shared memory.
//!
//! A row's register layouts map (thread of the warpgroup, value) → column-major index in the operand's tile, as those of
//! [`mma`](crate::mma): A is 64×K with index `m + 64·k`, C is 64×N with index `m + 64·n`. An operand in shared memory is what its
//! [`Descriptor`] says: [`Descriptor::layout`] gives the layout (coordinate → byte) that the hardware reads, which is the meaning of
//! the bits. Synthesis derives descriptors from the layouts of tensors; the simulator reads memory by the bits alone.
//!
//! Sources: PTX ISA 8.0, section 9.7.14 (shapes, fragments, matrix descriptors, canonical layouts); CUTLASS
//! `include/cute/atom/mma_traits_sm90_gmma.hpp`, `include/cute/arch/mma_sm90_desc.hpp`; of a sparse A PTX ISA 8.7, section 9.7.15.6, and
//! CUTLASS `include/cute/atom/mma_traits_sm90_gmma_sparse.hpp` (`ELayout_64x32`, `ELayout_64x64`).

use std::fmt;
use std::sync::LazyLock;

use tilewright_layout::{Layout, Swizzle};

use crate::dtype::DType;
use crate::features::{Feature, Features};
use crate::mma::Sparsity;

/// The swizzle of shared memory for `wgmma`, `tcgen05` and for tensor copies: units of 16 bytes, or of 32, within a span of bytes are exchanged by bits of
/// the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum SwizzleMode {
    /// Nothing is exchanged; rows have 16 bytes.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
    /// Within 128 bytes, 32 at a time: for factors of 32 bits that are contiguous along M or N, of `tcgen05` alone (PTX ISA 9.1, section 9.7.16.5.1).
    B128Atom32,
}

impl SwizzleMode {
    /// Those of all architectures with tensor copies, widest first: the order in which they are tried.
    pub const ALL: [SwizzleMode; 4] =
        [SwizzleMode::B128, SwizzleMode::B64, SwizzleMode::B32, SwizzleMode::None];

    /// Bytes of a row: the contiguous run within which units are exchanged (16 without a swizzle).
    pub fn span(self) -> u32 {
        match self {
            SwizzleMode::None => 16,
            SwizzleMode::B32 => 32,
            SwizzleMode::B64 => 64,
            SwizzleMode::B128 | SwizzleMode::B128Atom32 => 128,
        }
    }

    /// Spans one below the other in which units are exchanged in as many ways: the rows of a factor, or its columns along K, that descriptors count together.
    pub fn lines(self) -> i64 {
        if self == SwizzleMode::B128Atom32 { 4 } else { 8 }
    }

    /// Bytes after which the pattern repeats: what a tile's address is a multiple of.
    pub fn period(self) -> u32 {
        match self {
            SwizzleMode::None => 128,
            mode => mode.bytes().period() as u32,
        }
    }

    /// The swizzle of byte addresses: `Sw<B,4,3>`, or `Sw<2,5,2>` of 32 bytes at a time.
    pub fn bytes(self) -> Swizzle {
        self.elements(8)
    }

    /// The swizzle of offsets in elements of `bits` bits (8 to 128).
    pub fn elements(self, bits: u32) -> Swizzle {
        let unit = if self == SwizzleMode::B128Atom32 { 5 } else { 4 };
        let count = (self.span() >> unit).trailing_zeros();
        let base = unit + 3 - bits.trailing_zeros();
        let shift = if self == SwizzleMode::B128Atom32 { 2 } else { 3 };
        if count == 0 { Swizzle::NONE } else { Swizzle::new(count, base, shift).unwrap_or(Swizzle::NONE) }
    }

    /// The mode whose swizzle of offsets in elements of `bits` bits this is.
    pub fn of(swizzle: &Swizzle, bits: u32) -> Option<SwizzleMode> {
        SwizzleMode::ALL.into_iter().chain([SwizzleMode::B128Atom32]).find(|mode| {
            let own = mode.elements(bits);
            own == *swizzle || (own.is_identity() && swizzle.is_identity())
        })
    }

    /// Bits 61 to 63 of a matrix descriptor, of which `wgmma` has the upper two.
    pub fn descriptor_code(self) -> u64 {
        match self {
            SwizzleMode::None => 0,
            SwizzleMode::B128Atom32 => 1,
            SwizzleMode::B128 => 2,
            SwizzleMode::B64 => 4,
            SwizzleMode::B32 => 6,
        }
    }

    /// `CUtensorMapSwizzle`.
    pub fn tensor_map_code(self) -> u32 {
        match self {
            SwizzleMode::None => 0,
            SwizzleMode::B32 => 1,
            SwizzleMode::B64 => 2,
            SwizzleMode::B128 => 3,
            SwizzleMode::B128Atom32 => 4,
        }
    }
}

impl fmt::Display for SwizzleMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwizzleMode::None => "no swizzle",
            SwizzleMode::B32 => "32-byte swizzle",
            SwizzleMode::B64 => "64-byte swizzle",
            SwizzleMode::B128 => "128-byte swizzle",
            SwizzleMode::B128Atom32 => "128-byte swizzle of 32-byte atoms",
        })
    }
}

/// The mode along which an operand's elements are contiguous in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Major {
    /// Along K: rows of A, rows of B (N×K).
    K,
    /// Along M or N. Only 16-bit types of `wgmma`, of `tcgen05` those of 8 and 32 bits too.
    Mn,
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Major::K { "K-major" } else { "MN-major" })
    }
}

/// A matrix descriptor: the place and the layout of an operand in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Descriptor {
    /// Byte address of the operand's first element, 18 bits, a multiple of 16.
    pub start: u32,
    /// Leading dimension byte offset, a multiple of 16. K-major without a swizzle: from one core matrix to the next along K. MN-major
    /// without: from one group of 8 k to the next. MN-major with a swizzle: from one span along MN to the next. Ignored in
    /// K-major with a swizzle.
    pub leading: u32,
    /// Stride dimension byte offset, a multiple of 16. K-major: from one group of 8 rows to the next. MN-major without a swizzle: from one
    /// 16-byte group along MN to the next; with one: from one group of 8 k to the next, of 4 with atoms of 32 bytes.
    pub stride: u32,
    /// The swizzle.
    pub swizzle: SwizzleMode,
}

impl Descriptor {
    /// The 64 bits. The base offset (bits 49 to 51) is 0: tiles begin at multiples of the swizzle's period, or at steps
    /// within a row of one that does.
    pub fn encode(&self) -> u64 {
        let field = |bytes: u32| u64::from(bytes >> 4) & 0x3fff;
        field(self.start)
            | field(self.leading) << 16
            | field(self.stride) << 32
            | self.swizzle.descriptor_code() << 61
    }

    /// The descriptor with these bits.
    pub fn decode(bits: u64) -> Descriptor {
        let field = |shift: u32| ((bits >> shift & 0x3fff) as u32) << 4;
        let swizzle = match bits >> 61 {
            1 => SwizzleMode::B128Atom32,
            2 | 3 => SwizzleMode::B128,
            4 | 5 => SwizzleMode::B64,
            6 | 7 => SwizzleMode::B32,
            _ => SwizzleMode::None,
        };
        Descriptor { start: field(0), leading: field(16), stride: field(32), swizzle }
    }

    /// The byte, from the start and before the swizzle, of element (`mn`, `k`) of an operand of elements of `bytes` bytes.
    pub fn offset(&self, major: Major, mn: i64, k: i64, bytes: i64) -> i64 {
        let (span, lead, stride) =
            (i64::from(self.swizzle.span()), i64::from(self.leading), i64::from(self.stride));
        let row = span / bytes;
        match (major, self.swizzle) {
            (Major::K, SwizzleMode::None) => {
                16 * (mn % 8) + stride * (mn / 8) + bytes * (k % row) + lead * (k / row)
            }
            (Major::K, _) => span * (mn % 8) + stride * (mn / 8) + bytes * k,
            (Major::Mn, SwizzleMode::None) => {
                bytes * (mn % row) + stride * (mn / row) + 16 * (k % 8) + lead * (k / 8)
            }
            (Major::Mn, swizzle) => {
                let lines = swizzle.lines();
                bytes * (mn % row) + lead * (mn / row) + span * (k % lines) + stride * (k / lines)
            }
        }
    }

    /// The canonical layout of an operand of `mn`×`k` elements of `bytes` bytes each: (mn, k) → byte offset from the start, before the
    /// swizzle, which exchanges bits of the whole address. `mn` is a multiple of 8; `k` spans 32 bytes in K-major, and is a
    /// multiple of 8 in MN-major. In MN-major with a swizzle an operand that is wider than a span, but no multiple of it, has
    /// the layout of whole spans.
    pub fn layout(&self, major: Major, mn: i64, k: i64, bytes: i64) -> Layout {
        let (span, lead, stride) =
            (i64::from(self.swizzle.span()), i64::from(self.leading), i64::from(self.stride));
        let row = span / bytes;
        let leaves: Vec<Vec<(i64, i64)>> = match (major, self.swizzle) {
            (Major::K, SwizzleMode::None) => {
                vec![vec![(8, 16), (mn / 8, stride)], vec![(row, bytes), (k / row, lead)]]
            }
            (Major::K, _) => vec![vec![(8, span), (mn / 8, stride)], vec![(k, bytes)]],
            (Major::Mn, SwizzleMode::None) => {
                vec![vec![(row, bytes), (mn / row, stride)], vec![(8, 16), (k / 8, lead)]]
            }
            (Major::Mn, swizzle) => {
                let (inner, lines) = (row.min(mn), swizzle.lines());
                let along_mn = vec![(inner, bytes), ((mn + inner - 1) / inner, lead)];
                vec![along_mn, vec![(lines, span), (k / lines, stride)]]
            }
        };
        let modes: Vec<Layout> = leaves.iter().filter_map(|mode| Layout::from_leaves(mode).ok()).collect();
        Layout::concat(&modes).expect("two modes of positive extents")
    }
}

/// A matrix product of a warpgroup: `D = A · Bᵀ + D`, asynchronous; A is 64×K, B N×K, D 64×N.
#[derive(Clone, PartialEq, Debug)]
pub struct WgmmaRow {
    /// The name in reports, e.g. `wgmma.m64n256k16.f32.f16.f16`.
    pub name: String,
    /// PTX mnemonic with all its qualifiers.
    pub mnemonic: String,
    /// Rows of B, columns of D.
    pub n: i64,
    /// Columns of A and B: 32 bytes; 64 where A is sparse, of which half the columns are there.
    pub k: i64,
    /// Element type of A. `F32` stands for `tf32`: of a factor's 32 bits the hardware reads the upper 19.
    pub a: DType,
    /// Element type of B.
    pub b: DType,
    /// Element type of D.
    pub c: DType,
    /// (thread, value) → `m + 64·k`, for A in registers.
    pub a_tv: Layout,
    /// (thread, value) → `m + 64·n`.
    pub c_tv: Layout,
    /// The metadata of a sparse A, (thread, place) → `m + 64·k`; `None` of a dense one.
    pub sparsity: Option<Sparsity>,
}

impl WgmmaRow {
    /// Rows of A and D.
    pub const M: i64 = 64;
    /// The first version of PTX that has products with a sparse A (ptxas).
    pub const SPARSE_PTX_VERSION: &'static str = "8.2";
    /// The features that an architecture must have.
    pub const NEEDS: Features = Features::of(&[Feature::Wgmma]);

    /// Columns of A that are there: half of those of B where it is sparse.
    pub fn a_columns(&self) -> i64 {
        if self.sparsity.is_some() { self.k * Sparsity::KEPT / Sparsity::GROUP } else { self.k }
    }

    /// Multiply-adds of one instruction, with those of the elements that a sparse A leaves out.
    pub fn macs(&self) -> i64 {
        Self::M * self.n * self.k
    }

    /// 32-bit registers a thread holds of A (where it is in registers) and of D.
    pub fn registers(&self) -> (u32, u32) {
        (4, self.n as u32 * self.c.bits() / 64)
    }

    /// True if operands in shared memory may be contiguous along M or N.
    pub fn takes_mn_major(&self) -> bool {
        self.a.bits() == 16
    }

    /// True if the instruction has factors of its input (`imm-scale-a`, `imm-scale-b`): the floating-point ones do.
    pub fn has_scales(&self) -> bool {
        self.a.is_float()
    }

    /// Cycles for which the operands occupy shared memory's port, A in shared memory or in registers (fact: N/4 for 32 bytes of a row of B, 16
    /// for A).
    pub fn shared_cycles(&self, a_shared: bool) -> u32 {
        let rows = if self.sparsity.is_some() { 2 * self.n } else { self.n };
        rows as u32 / 4 + if a_shared { 16 } else { 0 }
    }
}

fn row(n: i64, a: DType, b: DType, c: DType) -> WgmmaRow {
    let layout =
        |text: String| -> Layout { text.parse().expect("the layouts of rows are texts that a test parses") };
    let bytes = i64::from(a.bits()) / 8;
    let k = 32 / bytes;
    let ptx = |t: DType| match t {
        DType::F32 => "tf32".to_string(),
        DType::I8 => "s8".to_string(),
        DType::I32 => "s32".to_string(),
        t => t.to_string(),
    };
    let result = if c == DType::F32 { "f32".to_string() } else { ptx(c) };
    // (T128,V(16/bytes)) -> (M64,K(32/bytes))
    let a_tv = match bytes {
        4 => "((4,8,4),(2,2)):((64,1,16),(8,256))".to_string(),
        2 => "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))".to_string(),
        _ => "((4,8,4),(4,2,2)):((256,1,16),(64,8,1024))".to_string(),
    };
    WgmmaRow {
        name: format!("wgmma.m64n{n}k{k}.{result}.{}.{}", ptx(a), ptx(b)),
        mnemonic: format!("wgmma.mma_async.sync.aligned.m64n{n}k{k}.{result}.{}.{}", ptx(a), ptx(b)),
        n,
        k,
        a,
        b,
        c,
        a_tv: layout(a_tv),
        // (T128,V(n/2)) -> (M64,Nn)
        c_tv: layout(format!("((4,8,4),(2,2,{})):((128,1,16),(64,8,512))", n / 8)),
        sparsity: None,
    }
}

/// A product with a sparse A, of which a thread has the fragment of a dense A of as many elements. Source: PTX ISA 8.7, section 9.7.15.6.
fn sparse(n: i64, a: DType, b: DType, c: DType) -> WgmmaRow {
    let dense = row(n, a, b, c);
    let k = dense.k * Sparsity::GROUP / Sparsity::KEPT;
    let renamed = |text: &str, word: &str, with: &str| {
        text.replacen(word, with, 1).replacen(&format!("k{}.", dense.k), &format!("k{k}."), 1)
    };
    WgmmaRow {
        name: renamed(&dense.name, "wgmma.", "wgmma.sp."),
        mnemonic: renamed(&dense.mnemonic, "mma_async.", "mma_async.sp."),
        k,
        sparsity: Some(Sparsity::of_warpgroup(k, a.bits())),
        ..dense
    }
}

static ROWS: LazyLock<Vec<WgmmaRow>> = LazyLock::new(|| {
    use DType::{BF16, E4M3, E5M2, F16, F32, I8, I32, U8};
    let mut rows = Vec::new();
    type Make = fn(i64, DType, DType, DType) -> WgmmaRow;
    let mut all = |make: Make, types: &[(DType, DType, DType)], integers: bool| {
        for (a, b, c) in types {
            for n in (1..=32).rev().map(|i| 8 * i) {
                // Integer products have n = 8, 16, 24, 32, then every 16th.
                if !integers || n <= 32 || n % 16 == 0 {
                    rows.push(make(n, *a, *b, *c));
                }
            }
        }
    };
    let halves = [(F16, F16, F32), (F16, F16, F16), (BF16, BF16, F32)];
    all(row, &[(F32, F32, F32)], false);
    for make in [row as Make, sparse] {
        all(make, &halves, false);
        for c in [F32, F16] {
            for a in [E4M3, E5M2] {
                for b in [E4M3, E5M2] {
                    all(make, &[(a, b, c)], false);
                }
            }
        }
        all(make, &[(I8, I8, I32), (U8, U8, I32)], true);
    }
    rows
});

/// Every matrix product of a warpgroup, largest N first within the types.
pub fn wgmma_rows() -> &'static [WgmmaRow] {
    &ROWS
}

/// The rows for these types (A, B, D), with a dense A or a sparse one, largest N first.
pub fn wgmmas(a: DType, b: DType, c: DType, sparse: bool) -> impl Iterator<Item = &'static WgmmaRow> {
    let kind = move |row: &&WgmmaRow| row.sparsity.is_some() == sparse;
    wgmma_rows().iter().filter(kind).filter(move |row| row.a == a && row.b == b && row.c == c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_layouts_are_bijections_on_their_tiles() {
        for row in wgmma_rows() {
            for (tv, size) in [(&row.a_tv, 64 * row.a_columns()), (&row.c_tv, 64 * row.n)] {
                let mut image = tv.image();
                image.sort_unstable();
                assert_eq!(image, (0..size).collect::<Vec<_>>(), "{}", row.name);
            }
            let (a, c) = row.registers();
            assert_eq!(a * 128 * 32, 64 * row.a_columns() as u32 * row.a.bits(), "{}", row.name);
            assert_eq!(c * 128 * 32, 64 * row.n as u32 * row.c.bits(), "{}", row.name);
        }
    }

    #[test]
    fn every_n_of_the_manual_is_there() {
        use DType::{F16, F32, I8, I32};
        assert_eq!(wgmmas(F16, F16, F32, false).count(), 32);
        assert_eq!(wgmmas(F16, F16, F32, true).count(), 32);
        assert_eq!([false, true].map(|sparse| wgmmas(F32, F32, F32, sparse).count()), [32, 0]);
        let integer: Vec<i64> = wgmmas(I8, I8, I32, false).map(|r| r.n).collect();
        assert_eq!(integer.len(), 18);
        assert!(integer.contains(&24) && !integer.contains(&40));
    }

    #[test]
    fn metadata_of_a_warp_are_those_of_its_16_rows() {
        for row in wgmma_rows() {
            let Some(sparsity) = &row.sparsity else { continue };
            let of_warp =
                crate::mma::mmas_of(crate::mma::MmaKind::Sparse).find(|mma| mma.k == row.k && mma.a == row.a);
            let of_warp = of_warp.and_then(|mma| mma.sparsity.as_ref()).unwrap();
            assert_eq!(sparsity.lanes, of_warp.lanes);
            assert!(
                row.name.contains(".sp.")
                    && row.mnemonic.contains(&format!(".sp.sync.aligned.m64n{}k{}.", row.n, row.k))
            );
            for (thread, value) in (0..128).flat_map(|t| (0..16).map(move |v| (t, v))) {
                let at = of_warp.meta_tv.eval(thread % 32 + 32 * value);
                let (m, k) = (at % 16 + 16 * (thread / 32), at / 16);
                assert_eq!(sparsity.meta_tv.eval(thread + 128 * value), m + 64 * k, "{}", row.name);
            }
        }
    }

    #[test]
    fn descriptors_come_back_from_their_bits() {
        for swizzle in SwizzleMode::ALL {
            let d = Descriptor { start: 0x2_3450, leading: 4096, stride: 1024, swizzle };
            assert_eq!(Descriptor::decode(d.encode()), d);
        }
        let usual = Descriptor { start: 0, leading: 16, stride: 1024, swizzle: SwizzleMode::B128 };
        assert_eq!(usual.encode(), 0x4000_0040_0001_0000);
    }

    #[test]
    fn swizzles_of_bytes_and_elements_agree() {
        for mode in SwizzleMode::ALL {
            for bits in [8, 16, 32] {
                let bytes = i64::from(bits / 8);
                for x in 0..1024 {
                    assert_eq!(mode.elements(bits).apply(x) * bytes, mode.bytes().apply(x * bytes));
                }
                assert_eq!(SwizzleMode::of(&mode.elements(bits), bits), Some(mode));
            }
        }
    }

    #[test]
    fn offsets_are_those_of_the_canonical_layouts() {
        for (major, swizzle) in SwizzleMode::ALL.iter().flat_map(|s| [(Major::K, *s), (Major::Mn, *s)]) {
            let d = Descriptor { start: 0, leading: 4096, stride: 1024, swizzle };
            for mn in [8, 24, 64, 112, 256] {
                let layout = d.layout(major, mn, 16, 2);
                let rows = layout.size() / 16;
                assert!(rows >= mn, "{major} {swizzle} {mn}");
                for (i, k) in (0..mn).flat_map(|i| (0..16).map(move |k| (i, k))) {
                    assert_eq!(
                        layout.eval(i + rows * k),
                        d.offset(major, i, k, 2),
                        "{major} {swizzle} {i} {k}"
                    );
                }
            }
        }
    }

    #[test]
    fn canonical_layouts_give_every_element_its_own_bytes() {
        for (major, swizzle) in SwizzleMode::ALL.iter().flat_map(|s| [(Major::K, *s), (Major::Mn, *s)]) {
            let span = i64::from(swizzle.span());
            // Tiles of 64×16 halves, packed.
            let d = match (major, swizzle) {
                (Major::K, SwizzleMode::None) => Descriptor { start: 0, leading: 1024, stride: 128, swizzle },
                (Major::K, _) => Descriptor { start: 0, leading: 16, stride: 8 * span as u32, swizzle },
                (Major::Mn, SwizzleMode::None) => {
                    Descriptor { start: 0, leading: 1024, stride: 128, swizzle }
                }
                (Major::Mn, _) => {
                    Descriptor { start: 0, leading: 16 * span as u32, stride: 8 * span as u32, swizzle }
                }
            };
            let mut image = d.layout(major, 64, 16, 2).image();
            image.sort_unstable();
            image.dedup();
            assert_eq!(image.len(), 64 * 16, "{major} {swizzle}");
            assert!(image.iter().all(|b| b % 2 == 0));
        }
    }
}
