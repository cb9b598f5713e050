//! Matrix-product instructions, one row a shape and type.
//!
//! Operand layouts map (lane, value) → column-major index in the operand's tile: A is M×K with index `m + M·k`, B is
//! N×K with index `n + N·k`, C is M×N with index `m + M·n`. Values pack from low to high bits into 32-bit registers.
//! The simulator multiplies what the layouts say; PTX prints registers in the order of the values.
//!
//! Sources: PTX ISA 8.0, section 9.7.13.4 (fragments of `mma.sync`).

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
    /// Element type of A and B.
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

fn mma(name: &'static str, mnemonic: &'static str, k: i64, ab: DType, c: DType) -> MmaRow {
    let layout =
        |text: &str| -> Layout { text.parse().expect("the layouts of rows are literals that a test parses") };
    // A: (T32,V8) -> (M16,K16) or (T32,V4) -> (M16,K8); B: (T32,V4) -> (N8,K16) or (T32,V2) -> (N8,K8).
    let (a_tv, b_tv) = if k == 16 {
        (layout("((4,8),(2,2,2)):((32,1),(16,8,128))"), layout("((4,8),(2,2)):((16,1),(8,64))"))
    } else {
        (layout("((4,8),(2,2)):((32,1),(16,8))"), layout("((4,8),2):((16,1),8)"))
    };
    MmaRow {
        name,
        mnemonic,
        m: 16,
        n: 8,
        k,
        ab,
        c,
        a_tv,
        b_tv,
        // (T32,V4) -> (M16,N8)
        c_tv: layout("((4,8),(2,2)):((32,1),(16,8))"),
        needs: Features::NONE,
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
    }
}

static ROWS: LazyLock<Vec<MmaRow>> = LazyLock::new(|| {
    use DType::{BF16, F16, F32};
    let tall = Features::from(Feature::TallF64Products);
    vec![
        mma("mma.m16n8k16.f32.f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, F16, F32),
        mma("mma.m16n8k16.f16.f16", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, F16, F16),
        mma("mma.m16n8k16.f32.bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, BF16, F32),
        mma("mma.m16n8k8.f32.f16", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, F16, F32),
        mma("mma.m16n8k8.f16.f16", "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 8, F16, F16),
        mma("mma.m16n8k8.f32.bf16", "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, BF16, F32),
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
        assert_eq!(of("mma.m8n8k4.f64.f64"), (2, 2, 4));
        assert_eq!(of("mma.m16n8k16.f64.f64"), (16, 8, 8));
    }
}
