//! Recipes: the steps that measure each entry, and what is subtracted.

use std::borrow::Cow;

use tilewright_machine::op::WGMMA_KNOTS;
use tilewright_machine::{
    Arch, BulkOp, Class, CopyKind, CopyRow, Feature, Memory, OpKey, Rate, ScalarOp, Scope, WgmmaKind,
    WgmmaRow, copy_rows, mma_rows, wgmmas,
};
use tilewright_simt::{Builder, Operand};

use super::kernels::{Start, Step, Values};

/// Measurement of an entry's latency.
#[derive(Clone, Copy)]
pub(crate) enum Latency {
    /// By a chain of this step.
    Chain(Step),
    /// It is that of another entry.
    Like(&'static str),
    /// Nothing waits for it: it is the issue.
    Issue,
}

/// Memory of a chain of loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    /// A few lines that steps may write.
    Scratch,
    /// A chase that fits the L1 cache.
    Small,
    /// A chase that fits the L2 cache and no L1 cache.
    Middle,
}

/// Measurement of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Recipe {
    /// The entry.
    pub key: OpKey,
    /// The mnemonic that the kernels hold once a step.
    pub mnemonic: &'static str,
    pub latency: Latency,
    pub issue: Step,
    pub start: Start,
    /// Memory of the latency's chain.
    pub data: Data,
    /// Entries whose latency is part of a step's.
    pub less_latency: &'static [&'static str],
    /// Entries whose issue is part of a step's.
    pub less_issue: &'static [&'static str],
    /// Operations of the step that an assembler makes one instruction of.
    pub fused: u32,
    /// True if a step is many instructions: fewer steps then make a body.
    pub long: bool,
    /// Warps with which the latency is measured.
    pub warps: u32,
    /// Warps with which the issue is measured, and independent chains of a thread.
    pub load: (&'static [u32], u32),
    /// A rate by which a step's bytes take time in addition.
    pub moved: Option<(Rate, u32)>,
}

impl Recipe {
    /// The mnemonic on an architecture, on which a load to the own block may have another one.
    pub(crate) fn mnemonic_on(&self, arch: Arch) -> Cow<'static, str> {
        match self.issue {
            Step::Bulk(op, _) => op.mnemonic_on(arch),
            _ => Cow::Borrowed(self.mnemonic),
        }
    }
}

/// Warps with which issue is measured, and independent chains of a thread.
const LOAD: (&[u32], u32) = (&[4, 8, 16], 4);

/// Bytes of a bulk copy that shows the rate, and of one that shows what each copy costs.
pub(crate) const LARGE: u32 = 4096;
const SMALL: u32 = 16;

type Function = fn(&mut Builder, Operand, &Values) -> Operand;

/// Leaves the number as it is, which no assembler knows, and keeps it from simplifying what is before and after.
fn apart(b: &mut Builder, x: Operand, v: &Values) -> Operand {
    b.scalar(ScalarOp::PrmtB32, &[x, v.three, v.selector])
}

fn scalar(name: &'static str, op: ScalarOp, start: Start, f: Function) -> Recipe {
    let class = Class::ALL.iter().find(|class| class.name() == name);
    Recipe {
        key: (*class.expect("the name of a class that a test looks up")).into(),
        mnemonic: op.row().mnemonic,
        latency: Latency::Chain(Step::Scalar(f)),
        issue: Step::Scalar(f),
        start,
        data: Data::Scratch,
        less_latency: &[],
        less_issue: &[],
        fused: 1,
        long: false,
        warps: 1,
        load: LOAD,
        moved: None,
    }
}

/// The same, where each step has a byte permutation too.
fn with_prmt(name: &'static str, op: ScalarOp, f: Function) -> Recipe {
    Recipe { less_latency: &["prmt"], less_issue: &["prmt"], ..scalar(name, op, Start::Integer, f) }
}

fn long(recipe: Recipe) -> Recipe {
    Recipe { long: true, ..recipe }
}

fn fused(recipe: Recipe) -> Recipe {
    Recipe { fused: 2, ..recipe }
}

fn wide(name: &'static str, op: ScalarOp, f: Function) -> Recipe {
    let step = Step::Wide(f);
    Recipe { latency: Latency::Chain(step), issue: step, ..scalar(name, op, Start::Offset, f) }
}

fn imm(x: u64) -> Operand {
    Operand::Imm(x)
}

fn scalars() -> Vec<Recipe> {
    use ScalarOp::*;
    use Start::{Float, Integer};
    vec![
        scalar("prmt", PrmtB32, Integer, apart),
        // Two sums are one instruction.
        fused(scalar("add.i32", AddI32, Integer, |b, x, v| {
            let x = b.scalar(AddI32, &[x, v.one]);
            b.scalar(AddI32, &[x, v.three])
        })),
        with_prmt("min.i32", MinI32, |b, x, v| {
            let x = b.scalar(MinI32, &[x, v.three]);
            apart(b, x, v)
        }),
        with_prmt("lop3", XorB32, |b, x, v| {
            let x = b.scalar(XorB32, &[x, v.one]);
            apart(b, x, v)
        }),
        with_prmt("shift", ShlB32, |b, x, v| {
            let x = b.scalar(ShlB32, &[x, v.zero]);
            apart(b, x, v)
        }),
        with_prmt("bfe", BfeU32, |b, x, v| {
            let x = b.scalar(BfeU32, &[x, imm(5), imm(9)]);
            apart(b, x, v)
        }),
        with_prmt("bfi", BfiB32, |b, x, v| {
            let x = b.scalar(BfiB32, &[x, v.three, imm(5), imm(9)]);
            apart(b, x, v)
        }),
        with_prmt("selp", Select, |b, x, v| {
            let x = b.scalar(Select, &[x, v.three, v.truth]);
            apart(b, x, v)
        }),
        Recipe {
            less_latency: &["prmt", "selp"],
            less_issue: &["prmt", "selp"],
            ..with_prmt("setp", LtI32, |b, x, v| {
                let less = b.scalar(LtI32, &[x, v.three]);
                let x = b.scalar(Select, &[x, v.one, less]);
                apart(b, x, v)
            })
        },
        scalar("fma.f32", AddF32, Float, |b, x, v| b.scalar(AddF32, &[x, v.one_f32])),
        with_prmt("min.f32", MinF32, |b, x, v| {
            let x = b.scalar(MinF32, &[x, v.one_f32]);
            apart(b, x, v)
        }),
        scalar("imad", MulI32, Integer, |b, x, v| b.scalar(MulI32, &[x, v.three])),
        fused(wide("add.i64", AddI64, |b, x, v| {
            let zero = b.scalar(ExtendI64, &[v.zero]);
            let x = b.scalar(AddI64, &[x, zero]);
            b.scalar(AddI64, &[x, zero])
        })),
        wide("mul.i64", MulI64, |b, x, v| {
            let one = b.scalar(ExtendI64, &[v.one]);
            b.scalar(MulI64, &[x, one])
        }),
        wide("shift.b64", ShlB64, |b, x, v| b.scalar(ShlB64, &[x, v.zero])),
        scalar("cvt.f16x2.f32", F16x2FromF32, Float, |b, x, v| b.scalar(F16x2FromF32, &[x, v.one_f32])),
        scalar("cvt.f32.f16", F32FromF16, Float, |b, x, _| {
            let half = b.scalar(LowB16, &[x]);
            b.scalar(F32FromF16, &[half])
        }),
        scalar("cvt.f32.i32", F32FromI32, Integer, |b, x, _| b.scalar(F32FromI32, &[x])),
        scalar("cvt.i32.f32", I32FromF32, Float, |b, x, _| b.scalar(I32FromF32, &[x])),
        with_prmt("cvt.i16", ExtendB16, |b, x, v| {
            let half = b.scalar(LowB16, &[x]);
            let x = b.scalar(ExtendB16, &[half]);
            apart(b, x, v)
        }),
        scalar("ex2", Ex2FtzF32, Float, |b, x, _| b.scalar(Ex2FtzF32, &[x])),
        scalar("lg2", Lg2F32, Float, |b, x, _| b.scalar(Lg2F32, &[x])),
        scalar("rsqrt", RsqrtF32, Float, |b, x, _| b.scalar(RsqrtF32, &[x])),
        long(scalar("sqrt.f32", SqrtF32, Float, |b, x, _| b.scalar(SqrtF32, &[x]))),
        long(scalar("div.f32", DivF32, Float, |b, x, v| b.scalar(DivF32, &[x, v.one_f32]))),
        long(scalar("div.i32", DivI32, Integer, |b, x, v| b.scalar(DivI32, &[x, v.three]))),
    ]
}

fn copy(row: &'static CopyRow) -> Recipe {
    let shared = row.kind != CopyKind::Async && (row.src == Memory::Shared || row.dst == Memory::Shared);
    let store = row.src == Memory::Register;
    let (latency, issue, less_latency): (_, _, &'static [&'static str]) = match (row.kind, shared, store) {
        (CopyKind::Async, ..) => {
            (Latency::Chain(Step::AsyncChase(row)), Step::AsyncCopy(row), &["imad.wide", "ld.shared.b32"])
        }
        (_, true, false) => {
            let less: &[&str] = match (row.is_collective(), row.registers()) {
                (true, _) | (_, 1) => &["add.i32"],
                (_, 2) => &["add.i32", "lop3"],
                _ => &["add.i32", "lop3", "lop3"],
            };
            (Latency::Chain(Step::SharedLoad(row)), Step::SharedLoad(row), less)
        }
        (_, true, true) => (
            Latency::Chain(Step::SharedRoundTrip(row)),
            Step::SharedStore(row),
            &["add.i32", "ld.shared.b32"],
        ),
        (_, false, true) => (Latency::Issue, Step::GlobalStore(row), &[]),
        (_, false, false) if row.bytes < 4 => (Latency::Like("ld.global.b32"), Step::GlobalLoad(row), &[]),
        (_, false, false) => {
            let less: &[&str] = match row.registers() {
                1 => &["imad.wide"],
                2 => &["imad.wide", "lop3"],
                _ => &["imad.wide", "lop3", "lop3"],
            };
            (Latency::Chain(Step::Chase(row)), Step::GlobalLoad(row), less)
        }
    };
    Recipe {
        key: row.into(),
        mnemonic: row.mnemonic,
        latency,
        issue,
        start: Start::Offset,
        data: Data::Middle,
        less_latency,
        less_issue: &[],
        fused: 1,
        long: false,
        warps: 1,
        load: LOAD,
        moved: None,
    }
}

/// Every recipe for an architecture, what others subtract first.
pub(crate) fn recipes(arch: Arch) -> Vec<Recipe> {
    let mut all = scalars();
    all.push(Recipe {
        key: Class::Shuffle.into(),
        mnemonic: tilewright_machine::ShuffleMode::Bfly.mnemonic(),
        latency: Latency::Chain(Step::Shuffle),
        issue: Step::Shuffle,
        ..all[0]
    });
    let model = all[0];
    // What peers of a cluster share is not measured.
    let known = |row: &&CopyRow| arch.has(row.needs) && row.scope == Scope::Cta;
    let first = |row: &&CopyRow| row.name == "ld.shared.b32" || row.name == "ld.global.b32";
    all.extend(copy_rows().iter().filter(known).filter(first).map(copy));
    all.extend(copy_rows().iter().filter(known).filter(|row| !first(row)).map(copy));
    all.extend(mma_rows().iter().filter(|row| arch.has(row.needs)).map(|row| Recipe {
        key: row.into(),
        mnemonic: row.mnemonic,
        latency: Latency::Chain(Step::Mma(row)),
        issue: Step::Mma(row),
        ..model
    }));
    if arch.has(Feature::Tma) {
        all.push(bulk("tma.load", BulkOp::Load, Rate::TmaLoadBytes));
        all.push(bulk("tma.store", BulkOp::Store, Rate::TmaStoreBytes));
    }
    if arch.has(WgmmaRow::NEEDS) {
        let keys = WgmmaKind::ALL.into_iter().flat_map(|kind| WGMMA_KNOTS.map(|n| (kind, n)));
        all.extend(keys.filter_map(|(kind, n)| product(kind, n)));
    }
    all
}

/// Bulk copies stand for tensor copies: the unit is the same.
fn bulk(name: &'static str, op: BulkOp, rate: Rate) -> Recipe {
    Recipe {
        mnemonic: op.mnemonic(),
        latency: Latency::Chain(Step::BulkWait(op, SMALL)),
        issue: Step::Bulk(op, SMALL),
        long: true,
        load: (&[1], 1),
        moved: Some((rate, SMALL)),
        ..scalar(name, ScalarOp::AddI32, Start::Offset, |_, x, _| x)
    }
}

/// The step that shows a rate of the tensor memory accelerator.
pub(crate) fn rate_recipe(rate: Rate) -> Option<Recipe> {
    let (name, op) = match rate {
        Rate::TmaLoadBytes => ("tma.load", BulkOp::Load),
        Rate::TmaStoreBytes => ("tma.store", BulkOp::Store),
        _ => return None,
    };
    Some(Recipe { issue: Step::Bulk(op, LARGE), ..bulk(name, op, rate) })
}

fn product(kind: WgmmaKind, n: i64) -> Option<Recipe> {
    let (a, b, c) = kind.types();
    let row = wgmmas(a, b, c, false).find(|row| row.n == n)?;
    Some(Recipe {
        key: OpKey::Wgmma(kind, n),
        mnemonic: &row.mnemonic,
        latency: Latency::Chain(Step::WgmmaWait(row)),
        issue: Step::Wgmma(row),
        long: true,
        warps: 4,
        load: (&[4], 1),
        ..scalar("prmt", ScalarOp::PrmtB32, Start::Integer, |_, x, _| x)
    })
}
