//! Matrix-product instructions, one row a shape and type.
//!
//! Operand layouts map (lane, value) → column-major index in the operand's tile: A is M×K with index `m + M·k`, B is
//! N×K with index `n + N·k`, C is M×N with index `m + M·n`. Values pack from low to high bits into 32-bit registers.
//! The simulator multiplies what the layouts say; PTX prints registers in the order of the values.
//!
//! Sources: PTX ISA 8.4, section 9.7.13.4 (fragments of `mma.sync`; 9.7.14 in later editions).

use std::sync::LazyLock;

use tilewright_layout::Layout;

use crate::arch::Arch;
use crate::dtype::DType;
use crate::features::{Feature, Features};

/// A matrix-product instruction of one warp: `D = A · Bᵀ + C`, with C and D in the same registers.
#[derive(Clone, PartialEq, Debug)]
pub struct MmaRow {
    /// The name in reports, e.g. `mma.m16n8k16.f32.f16`.
    pub name: &'static str,
    /// PTX mnemonic with all its qualifiers.
    pub mnemonic: &'static str,
    /// Rows of A and C.
    pub m: i64,
    /// Rows of B, columns of C.
    pub n: i64,
    /// Columns of A and B.
    pub k: i64,
    /// Element type of A and B. `F32` stands for `tf32`: of a factor's 32 bits the hardware reads the upper 19.
    pub ab: DType,
    /// Element type of C and D.
    pub c: DType,
    /// (lane, value) → `m + M·k`.
    pub a_tv: Layout,
    /// (lane, value) → `n + N·k`.
    pub b_tv: Layout,
    /// (lane, value) → `m + M·n`.
    pub c_tv: Layout,
    /// The features that an architecture must have.
    pub needs: Features,
    /// The first version of PTX that has the instruction.
    pub ptx_version: &'static str,
}

impl MmaRow {
    /// Multiply-adds of one instruction.
    pub fn macs(&self) -> i64 {
        self.m * self.n * self.k
    }

    /// 32-bit registers a lane holds of A, B and C.
    pub fn registers(&self) -> (u32, u32, u32) {
        let count = |tv: &Layout, t: DType| (tv.size() as u32 / 32 * t.bits()).div_ceil(32);
        (count(&self.a_tv, self.ab), count(&self.b_tv, self.ab), count(&self.c_tv, self.c))
    }
}

/// A product of 16 × 8 elements by factors of at most 32 bits: a lane has a register's elements of every 128 bits along K, for two rows of A and
/// one of B. Source: PTX ISA 8.4, figures of the fragments of `.f16`, `.bf16`, `.tf32`, `.u8`, `.s8`, `.e4m3` and `.e5m2`; of `.u4` and `.s4` in
/// sections 9.7.13.4.10 and 9.7.13.4.11, of `.b1` in 9.7.13.4.12 and 9.7.13.4.13.
fn mma(name: &'static str, mnemonic: &'static str, k: i64, ab: DType, c: DType) -> MmaRow {
    let layout =
        |text: &str| -> Layout { text.parse().expect("the layouts of rows are literals that a test parses") };
    let per = i64::from(crate::dtype::per_register(ab.bits()));
    let steps = k / (4 * per);
    // A: (T32,V(per·2·steps)) -> (M16,K); B: (T32,V(per·steps)) -> (N8,K). Modes of one element are left out.
    let values = |modes: &[(i64, i64)]| {
        let modes: Vec<_> = modes.iter().filter(|(extent, _)| *extent > 1).collect();
        let join = |of: &dyn Fn(&(i64, i64)) -> i64| {
            modes.iter().map(|mode| of(mode).to_string()).collect::<Vec<_>>().join(",")
        };
        match modes[..] {
            [] => ("1".to_string(), "0".to_string()),
            [mode] => (mode.0.to_string(), mode.1.to_string()),
            _ => (format!("({})", join(&|mode| mode.0)), format!("({})", join(&|mode| mode.1))),
        }
    };
    let fragment = |rows: i64, modes: &[(i64, i64)]| {
        let (extents, strides) = values(modes);
        layout(&format!("((4,8),{extents}):(({},1),{strides})", per * rows))
    };
    MmaRow {
        name,
        mnemonic,
        m: 16,
        n: 8,
        k,
        ab,
        c,
        a_tv: fragment(16, &[(per, 16), (2, 8), (steps, 16 * 4 * per)]),
        b_tv: fragment(8, &[(per, 8), (steps, 8 * 4 * per)]),
        // (T32,V4) -> (M16,N8)
        c_tv: layout("((4,8),(2,2)):((32,1),(16,8))"),
        needs: Features::NONE,
        ptx_version: "7.0",
    }
}

/// A product of `f64`: a lane has one element along K of every four. Source: PTX ISA 8.0, sections 9.7.13.4.1 and 9.7.13.4.5 to 9.7.13.4.7.
fn dmma(name: &'static str, mnemonic: &'static str, [m, k]: [i64; 2], needs: Features) -> MmaRow {
    let layout =
        |text: &str| -> Layout { text.parse().expect("the layouts of rows are literals that a test parses") };
    let fours = k / 4;
    let (a_tv, b_tv, c_tv) = if m == 8 {
        ("((4,8),1):((8,1),0)".to_string(), "((4,8),1):((8,1),0)".to_string(), "((4,8),2):((16,1),8)")
    } else {
        (
            format!("((4,8),(2,{fours})):((16,1),(8,64))"),
            format!("((4,8),{fours}):((8,1),32)"),
            "((4,8),(2,2)):((32,1),(16,8))",
        )
    };
    MmaRow {
        name,
        mnemonic,
        m,
        n: 8,
        k,
        ab: DType::F64,
        c: DType::F64,
        a_tv: layout(&a_tv),
        b_tv: layout(&b_tv),
        c_tv: layout(c_tv),
        needs,
        ptx_version: if m == 8 { "7.0" } else { "7.8" },
    }
}

/// A product of 4-bit integers. Tensor cores of sm_80 to sm_89 have it; for sm_90a `ptxas` (13.5) writes two products of 8-bit integers, and around
/// them the operations that widen the factors: 180 of signed ones of 64 columns, 18 of unsigned ones.
fn int4(name: &'static str, mnemonic: &'static str, k: i64, ab: DType) -> MmaRow {
    mma(name, mnemonic, k, ab, DType::I32)
}

/// A product of bits: how many are set in both factors, which is the sum of their products as `u1`. `xor.popc`, which no row has, counts those
/// that are set in one: that is `popc(a) + popc(b) − 2 · popc(a & b)`. Source: PTX ISA 8.4, section 9.7.13.4.14 (`.and` is of PTX 7.1).
fn binary(name: &'static str, mnemonic: &'static str, k: i64) -> MmaRow {
    MmaRow { ptx_version: "7.1", ..mma(name, mnemonic, k, DType::U1, DType::I32) }
}

/// A product of 8-bit floats. Source: PTX ISA 8.4, section 9.7.13.4.14 (target notes).
fn fp8(name: &'static str, mnemonic: &'static str, ab: DType) -> MmaRow {
    let needs = Features::from(Feature::Fp8Products);
    MmaRow { needs, ptx_version: "8.4", ..mma(name, mnemonic, 32, ab, DType::F32) }
}

static ROWS: LazyLock<Vec<MmaRow>> = LazyLock::new(|| {
    use DType::{BF16, E4M3, E5M2, F16, F32, I4, I8, I32, U4, U8};
    let tall = Features::from(Feature::TallF64Products);
    vec![
        mma("mma.m16n8k16.f32.f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, F16, F32),
        mma("mma.m16n8k16.f16.f16", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, F16, F16),
        mma("mma.m16n8k16.f32.bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, BF16, F32),
        mma("mma.m16n8k8.f32.f16", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, F16, F32),
        mma("mma.m16n8k8.f16.f16", "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 8, F16, F16),
        mma("mma.m16n8k8.f32.bf16", "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, BF16, F32),
        mma("mma.m16n8k8.f32.tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 8, F32, F32),
        mma("mma.m16n8k4.f32.tf32", "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 4, F32, F32),
        mma("mma.m16n8k32.s32.s8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32, I8, I32),
        mma("mma.m16n8k16.s32.s8", "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 16, I8, I32),
        mma("mma.m16n8k32.s32.u8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32", 32, U8, I32),
        mma("mma.m16n8k16.s32.u8", "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32", 16, U8, I32),
        int4("mma.m16n8k64.s32.s4", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", 64, I4),
        int4("mma.m16n8k32.s32.s4", "mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32", 32, I4),
        int4("mma.m16n8k64.s32.u4", "mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32", 64, U4),
        int4("mma.m16n8k32.s32.u4", "mma.sync.aligned.m16n8k32.row.col.s32.u4.u4.s32", 32, U4),
        binary("mma.m16n8k256.s32.b1", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", 256),
        binary("mma.m16n8k128.s32.b1", "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc", 128),
        fp8("mma.m16n8k32.f32.e4m3", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", E4M3),
        fp8("mma.m16n8k32.f32.e5m2", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", E5M2),
        dmma("mma.m16n8k16.f64.f64", "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", [16, 16], tall),
        dmma("mma.m16n8k8.f64.f64", "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", [16, 8], tall),
        dmma("mma.m16n8k4.f64.f64", "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", [16, 4], tall),
        dmma("mma.m8n8k4.f64.f64", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", [8, 4], Features::NONE),
    ]
});

/// Every matrix-product instruction, fastest first within a type.
pub fn mma_rows() -> &'static [MmaRow] {
    &ROWS
}

/// The rows for these types that exist on `arch`, fastest first.
pub fn mmas(ab: DType, c: DType, arch: Arch) -> impl Iterator<Item = &'static MmaRow> {
    mma_rows().iter().filter(move |row| row.ab == ab && row.c == c && arch.has(row.needs))
}

/// The types of these rows' products as text, e.g. `f16 into f32 or f16; bf16 into f32`.
pub fn product_types<'a>(rows: impl Iterator<Item = &'a MmaRow>) -> String {
    let mut types: Vec<(DType, Vec<&str>)> = Vec::new();
    for row in rows {
        match types.iter_mut().find(|(ab, _)| *ab == row.ab) {
            Some((_, sums)) if sums.contains(&row.c.name()) => {}
            Some((_, sums)) => sums.push(row.c.name()),
            None => types.push((row.ab, vec![row.c.name()])),
        }
    }
    let each: Vec<String> =
        types.iter().map(|(ab, sums)| format!("{ab} into {}", sums.join(" or "))).collect();
    each.join("; ")
}

/// The features that a product of these types needs on any architecture; `None` where no row has the types.
pub fn product_needs(ab: DType, c: DType) -> Option<Features> {
    let needs = || mma_rows().iter().filter(|row| row.ab == ab && row.c == c).map(|row| row.needs);
    // A row that needs nothing beyond another's is enough.
    needs().find(|least| needs().all(|other| other.has(*least)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operand_layout_is_a_bijection_on_its_tile() {
        for row in mma_rows() {
            let operands =
                [(&row.a_tv, row.m * row.k), (&row.b_tv, row.n * row.k), (&row.c_tv, row.m * row.n)];
            for (tv, size) in operands {
                let mut image = tv.image();
                image.sort_unstable();
                assert_eq!(image, (0..size).collect::<Vec<_>>(), "{}", row.name);
            }
        }
    }

    #[test]
    fn register_counts_are_the_manuals() {
        let of = |name: &str| mma_rows().iter().find(|r| r.name == name).unwrap().registers();
        assert_eq!(of("mma.m16n8k16.f32.f16"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k16.f16.f16"), (4, 2, 2));
        assert_eq!(of("mma.m16n8k8.f32.bf16"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k8.f32.tf32"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k4.f32.tf32"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k32.s32.s8"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k16.s32.u8"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k64.s32.s4"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k32.s32.u4"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k256.s32.b1"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k128.s32.b1"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k32.f32.e4m3"), (4, 2, 4));
        assert_eq!(of("mma.m8n8k4.f64.f64"), (2, 2, 4));
        assert_eq!(of("mma.m16n8k16.f64.f64"), (16, 8, 8));
    }

    #[test]
    fn elements_are_where_the_figures_have_them() {
        let row = |name: &str| mma_rows().iter().find(|r| r.name == name).unwrap();
        // (lane, value) and (row, column) of A and of B, by the formulas beside the figures of the PTX ISA.
        for (name, per) in [
            ("mma.m16n8k16.f32.f16", 2),
            ("mma.m16n8k8.f32.bf16", 2),
            ("mma.m16n8k8.f32.tf32", 1),
            ("mma.m16n8k4.f32.tf32", 1),
            ("mma.m16n8k32.s32.s8", 4),
            ("mma.m16n8k16.s32.u8", 4),
            ("mma.m16n8k64.s32.s4", 8),
            ("mma.m16n8k32.s32.u4", 8),
            ("mma.m16n8k256.s32.b1", 32),
            ("mma.m16n8k128.s32.b1", 32),
            ("mma.m16n8k32.f32.e5m2", 4),
        ] {
            let row = row(name);
            for (lane, i) in (0..32).flat_map(|lane| (0..row.a_tv.size() / 32).map(move |i| (lane, i))) {
                let (group, of_group) = (lane / 4, lane % 4);
                let m = if i / per % 2 == 0 { group } else { group + 8 };
                let k = of_group * per + i % per + 4 * per * (i / (2 * per));
                assert_eq!(row.a_tv.eval(lane + 32 * i), m + 16 * k, "{name} a{i} of lane {lane}");
            }
            for (lane, i) in (0..32).flat_map(|lane| (0..row.b_tv.size() / 32).map(move |i| (lane, i))) {
                let k = lane % 4 * per + i % per + 4 * per * (i / per);
                assert_eq!(row.b_tv.eval(lane + 32 * i), lane / 4 + 8 * k, "{name} b{i} of lane {lane}");
            }
        }
    }

    #[test]
    fn a_product_needs_what_its_least_row_does() {
        assert_eq!(product_needs(DType::F64, DType::F64), Some(Features::NONE));
        assert_eq!(product_needs(DType::E4M3, DType::F32), Some(Feature::Fp8Products.into()));
        assert_eq!(product_needs(DType::E4M3, DType::F16), None);
        let text = product_types(mma_rows().iter());
        assert!(text.starts_with("f16 into f32 or f16; bf16 into f32; ") && text.ends_with("; f64 into f64"));
    }
}
