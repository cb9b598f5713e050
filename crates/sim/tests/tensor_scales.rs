//! Block-scaled products with their sums in tensor memory against the formats' definitions, every code of them, and what goes wrong with their scales.
//!
//! The numbers of codes are written here from the definitions (OCP Microscaling Formats 1.0, sections 5.3 and 5.4; PTX ISA 9.1, section 5.2.3, of `ue4m3`), and chunks of
//! scales from the PTX ISA's figure, so that nothing is compared with itself.

use crate::common::*;
use crate::hopper_products::{placed, stage};
use tilewright_machine::{
    Arch, DType, Major, MbarrierOp, ProxyFence, ScalarOp, SumsScaling, SwizzleMode, SyncOp, Tcgen05Row,
    scaled_tcgen05,
};
use tilewright_sim::{GlobalMemory, RaceKind, Report, Rule, run};
use tilewright_simt::{Builder, DescriptorValue, Factor, Function, Operand, ScaleCells};

/// Rows of a block.
pub(crate) const M: usize = 128;
const N: usize = 32;
/// Bytes of a row of a factor that an instruction takes.
pub(crate) const ROW: usize = 32;
/// The factors and the chunks of scales in the shared memory of a block.
pub(crate) const PLACES: [u32; 4] = [1024, 32 * 1024, 48 * 1024, 49 * 1024];
/// The columns of the sums and of the scales of A and of B.
const COLUMNS: [u32; 3] = [0, 32, 36];

/// A number as the formats define it: a sign, so many bits of an exponent with this bias, and of a mantissa.
pub(crate) fn number(dtype: DType, bits: u32) -> f64 {
    let float = |exponents: u32, mantissas: u32, bias: i32| {
        let mantissa = f64::from(bits & ((1 << mantissas) - 1)) / f64::from(1 << mantissas);
        let exponent = (bits >> mantissas & ((1 << exponents) - 1)) as i32;
        let sign = if bits >> (exponents + mantissas) & 1 == 1 { -1.0 } else { 1.0 };
        match exponent {
            0 => sign * mantissa * 2f64.powi(1 - bias),
            _ => sign * (1.0 + mantissa) * 2f64.powi(exponent - bias),
        }
    };
    match dtype {
        DType::E2M1 => float(2, 1, 1),
        DType::E4M3 if bits & 0x7f == 0x7f => f64::NAN,
        DType::E4M3 => float(4, 3, 7),
        DType::E5M2 if bits & 0x7c == 0x7c && bits & 3 != 0 => f64::NAN,
        DType::E5M2 if bits & 0x7c == 0x7c => f64::INFINITY.copysign(float(5, 2, 15)),
        DType::E5M2 => float(5, 2, 15),
        DType::UE4M3 => number(DType::E4M3, bits & 0x7f),
        DType::UE8M0 if bits == 0xff => f64::NAN,
        DType::UE8M0 => 2f64.powi(bits as i32 - 127),
        other => panic!("{other}"),
    }
}

/// The descriptor of what begins at an offset of shared memory, with these bits beside its address.
pub(crate) fn descriptor(f: &mut Builder, offset: u32, form: u64) -> DescriptorValue {
    let base = f.window(i64::from(offset));
    let address = f.add(base.base, imm(i64::from(base.offset)));
    let start = f.op(ScalarOp::ShrU32, address, 4);
    DescriptorValue { low: f.op(ScalarOp::OrB32, start, i64::from(form as u32)), high: (form >> 32) as u32 }
}

/// The factors of each product over a chunk of scales, of so many rows each in a block.
pub(crate) fn factors(f: &mut Builder, row: &Tcgen05Row, rows: [usize; 2]) -> Vec<[Factor; 2]> {
    // Rows of 32 bytes, swizzled within as many, in groups of 8.
    let form = (256u64 / 16) << 32 | 1 << 16 | 3 << 62 | Tcgen05Row::DESCRIPTOR;
    let steps = SumsScaling::SCALES as u32 / row.scaling.unwrap().taken(row.k) as u32;
    (0..steps)
        .map(|step| {
            [(0, rows[0]), (1, rows[1])].map(|(i, rows)| {
                let descriptor = descriptor(f, PLACES[i] + step * (rows * ROW) as u32, form);
                Factor::Shared { descriptor, major: Major::K }
            })
        })
        .collect()
}

/// The products over a chunk of scales, which lie in these columns of tensor memory; the sums are in the first.
pub(crate) fn multiply(
    b: &mut Builder,
    row: &'static Tcgen05Row,
    base: Operand,
    columns: [u32; 2],
    factors: &[[Factor; 2]],
) {
    let taken = row.scaling.unwrap().taken(row.k) as u32;
    for (step, factors) in factors.iter().enumerate() {
        let byte = step as u32 * taken;
        let scales = columns.map(|column| ScaleCells { address: at(base, column as i32), byte });
        let adds = Operand::Imm(u64::from(step > 0));
        b.scaled_tcgen05(row, at(base, 0), factors.clone(), scales, adds);
    }
}

/// A chunk of the scales of so many rows, each by its row and its place along k.
pub(crate) fn chunk(rows: usize, scale: impl Fn(usize, usize) -> u32) -> Vec<u8> {
    let mut image = vec![0; 512];
    for (i, s) in (0..rows).flat_map(|i| (0..4).map(move |s| (i, s))) {
        image[16 * (i % 32) + 4 * (i / 32) + s] = scale(i, s) as u8;
    }
    image
}

/// A step of the program that a mistake may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is changed.
    None,
    /// Nobody copies the scales of B to tensor memory.
    Copy,
    /// They are copied behind the products.
    Late,
    /// The scales are stored to shared memory behind the proxy fence.
    ProxyFence,
    /// All lanes of the warp issue the copies.
    Issuer,
    /// A thread of another warp issues the copies.
    Other,
    /// The scales of B go to columns that are not allocated.
    Columns,
    /// The descriptor of a chunk has Hopper's form.
    Descriptor,
    /// The chunks are stored again while copies read them.
    Refill,
    /// The scales of A are copied over those of B.
    Over,
}

/// A block that multiplies by one chunk of scales of each factor, and stores the sums of its rows.
fn program(row: &'static Tcgen05Row, images: &[Vec<u8>; 4], mistake: Step) -> Function {
    let right = |step: Step| mistake != step;
    let mut f = Builder::new("scales", Arch::SM_100A, 128);
    let params = ["a", "b", "sa", "sb"].map(|name| f.pointer_param(name));
    let out = f.pointer_param("out");
    for ((name, at), image) in ["a", "b", "sa", "sb"].into_iter().zip(PLACES).zip(images) {
        f.add_shared_at(name, at, image.len() as u32);
    }
    for (name, (at, columns)) in ["acc", "sa", "sb"].into_iter().zip(COLUMNS.into_iter().zip([32, 4, 4])) {
        f.add_tensor_memory(name, at, columns);
    }
    let block = TensorBlock::begin(&mut f, 64);
    f.set_origin("stage");
    let fill = |f: &mut Builder, which: std::ops::Range<usize>| {
        which.for_each(|i| stage(f, params[i], PLACES[i], images[i].len(), 128));
    };
    fill(&mut f, 0..if right(Step::ProxyFence) { 4 } else { 2 });
    f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    if !right(Step::ProxyFence) {
        fill(&mut f, 2..4);
    }
    let base = block.base(&mut f);
    let form = (128u64 / 16) << 32 | if right(Step::Descriptor) { Tcgen05Row::DESCRIPTOR } else { 0 };
    let factors = factors(&mut f, row, [M, N]);
    let chunks = [2, 3].map(|i| descriptor(&mut f, PLACES[i], form));
    let barrier = f.window(TensorBlock::BARRIER);
    f.set_origin("multiply");
    let to = [COLUMNS[1], if right(Step::Columns) { COLUMNS[2] } else { 64 }].map(|c| at(base, c as i32));
    let copies = |b: &mut Builder| {
        b.scale_copy(chunks[0], to[0]);
        if right(Step::Copy) {
            b.scale_copy(chunks[1], to[1]);
        }
        if !right(Step::Over) {
            b.scale_copy(chunks[0], to[1]);
        }
    };
    let products = |b: &mut Builder| {
        if right(Step::Late) && right(Step::Issuer) && right(Step::Other) {
            copies(b);
        }
        multiply(b, row, base, [COLUMNS[1], COLUMNS[2]], &factors);
        if !right(Step::Late) {
            copies(b);
        }
        b.mbarrier_at(MbarrierOp::Commit, barrier, 0);
    };
    if !right(Step::Issuer) {
        f.branch(block.first, copies, |_| {});
    }
    if !right(Step::Other) {
        let other = value(f.op(ScalarOp::EqI32, block.thread, 32));
        f.branch(other, copies, |_| {});
    }
    let issuer = value(f.op(ScalarOp::EqI32, block.thread, 0));
    f.branch(issuer, products, |_| {});
    if !right(Step::Refill) {
        f.set_origin("refill");
        fill(&mut f, 2..4);
    }
    block.store_sums(&mut f, base, out, N as u32);
    block.end(&mut f, base);
    f.finish()
}

/// The codes of the elements of a factor, (row, k), and of its scales, (row, block).
struct Codes<'a> {
    elements: &'a dyn Fn(usize, usize) -> u32,
    scales: &'a dyn Fn(usize, usize) -> u32,
}

/// Runs the program: its report, and the sums, rows fastest.
fn execute(row: &'static Tcgen05Row, codes: [&Codes<'_>; 2], mistake: Step, seed: u64) -> (Report, Vec<f32>) {
    let taken = row.scaling.unwrap().taken(row.k) as usize;
    let (k, per) = (row.k as usize, (8 / row.a.bits()) as usize);
    let mut images = [const { Vec::new() }; 4];
    for (side, (codes, rows)) in codes.into_iter().zip([M, N]).enumerate() {
        for step in 0..4 / taken {
            let byte = |i: usize, j: usize| {
                (0..per).map(|x| (codes.elements)(i, step * k + j * per + x) << (8 / per * x)).sum()
            };
            images[side].extend(placed(DType::U8, (rows, ROW), Major::K, SwizzleMode::B32, byte).image);
        }
        images[2 + side] = chunk(rows, codes.scales);
    }
    let f = program(row, &images, mistake);
    let mut memory = GlobalMemory::new();
    let mut args = Vec::new();
    for image in &images {
        let id = memory.alloc(image.len());
        memory.write(id, image);
        args.push(tilewright_sim::Argument::Buffer(id));
    }
    let out = memory.alloc(4 * M * N);
    args.push(tilewright_sim::Argument::Buffer(out));
    let report = run(&f, [1, 1, 1], &memory, &args, &seeded(seed)).unwrap();
    (report, words_of(&memory.read(out)).into_iter().map(f32::from_bits).collect())
}

/// The sums by plain loops over numbers of double precision.
fn expected(row: &Tcgen05Row, [a, b]: [&Codes<'_>; 2]) -> Vec<f32> {
    let scaling = row.scaling.unwrap();
    let (block, k) = (scaling.block as usize, 4 * scaling.block as usize);
    let scaled = |dtype: DType, codes: &Codes<'_>, rows: usize| -> Vec<f64> {
        let of = |i: usize, kk: usize| {
            let scale = number(scaling.dtype, (codes.scales)(i, kk / block));
            number(dtype, (codes.elements)(i, kk)) * scale
        };
        (0..rows * k).map(|at| of(at / k, at % k)).collect()
    };
    let (left, right) = (scaled(row.a, a, M), scaled(row.b, b, N));
    let sum = |i: usize, j: usize| (0..k).fold(0f64, |sum, x| sum + left[i * k + x] * right[j * k + x]);
    (0..M * N).map(|at| sum(at % M, at / M) as f32).collect()
}

fn formats() -> impl Iterator<Item = &'static Tcgen05Row> {
    let row = |(a, b, dtype, block)| scaled_tcgen05(a, b, SumsScaling { dtype, block }, [M as i64, N as i64]);
    [
        (DType::E4M3, DType::E4M3, DType::UE8M0, 32),
        (DType::E5M2, DType::E4M3, DType::UE8M0, 32),
        (DType::E2M1, DType::E2M1, DType::UE8M0, 32),
        (DType::E2M1, DType::E2M1, DType::UE4M3, 16),
    ]
    .into_iter()
    .map(move |types| row(types).unwrap())
}

/// Every code of elements and of scales, of factors of which the left has one element a row: each sum is one product, rounded once.
#[test]
fn products_of_every_code_are_those_of_the_formats() {
    for (turn, row) in formats().enumerate() {
        let k = 4 * row.scaling.unwrap().block as usize;
        let scale = row.scaling.unwrap().dtype;
        let mask = |dtype: DType| (1u32 << dtype.bits()) - 1;
        // Codes of no number stand in the last column alone, where they leave the others be.
        let tame = |dtype: DType, code: u32, j: usize| {
            if j + 1 == N || number(dtype, code).is_finite() { code } else { 0 }
        };
        let (mut elements, mut scales) =
            (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for half in 0..2u32 {
            let left = |i: usize, kk: usize| {
                if kk == 37 * i % k { (i as u32 + 128 * half) & mask(row.a) } else { 0 }
            };
            let of_left = |i: usize, s: usize| (4 * i as u32 + 67 * s as u32 + 13 * half) & 0xff;
            let right =
                |j: usize, kk: usize| tame(row.b, (37 * j as u32 + 11 * kk as u32 + half) & mask(row.b), j);
            let of_right = |j: usize, s: usize| tame(scale, (8 * j as u32 + 2 * s as u32 + half) & 0xff, j);
            elements.extend((0..M).map(|i| left(i, 37 * i % k)));
            scales.extend((0..M).flat_map(|i| (0..4).map(move |s| of_left(i, s))));
            let codes = [
                &Codes { elements: &left, scales: &of_left },
                &Codes { elements: &right, scales: &of_right },
            ];
            let (report, sums) = execute(row, codes, Step::None, turn as u64);
            assert!(report.is_clean(), "{}: {:?}", row.name, report.problems());
            let wanted = expected(row, codes);
            assert!(
                wanted.iter().filter(|x| x.is_finite() && **x != 0.0).count() > M * N / 2,
                "{}",
                row.name
            );
            for (at, (got, wanted)) in sums.iter().zip(&wanted).enumerate() {
                let same = got == wanted || got.is_nan() && wanted.is_nan();
                assert!(same, "{} at {}, {}: {got} and not {wanted}", row.name, at % M, at / M);
            }
        }
        assert_eq!((elements.len(), scales.len()), (1 << row.a.bits(), 256), "{}", row.name);
    }
}

/// Factors with all their elements, whose sums are exact in any order.
fn whole(row: &Tcgen05Row) -> (Vec<u32>, Vec<u32>) {
    let mut next = random(row.k as u64);
    let mut pick = |dtype: DType, numbers: &[f64], count: usize| -> Vec<u32> {
        let codes: Vec<u32> =
            (0..1 << dtype.bits()).filter(|bits| numbers.contains(&number(dtype, *bits))).collect();
        (0..count).map(|_| codes[next() as usize % codes.len()]).collect()
    };
    let scaling = row.scaling.unwrap();
    let elements = pick(row.a, &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0], (M + N) * 4 * scaling.block as usize);
    (elements, pick(scaling.dtype, &[0.5, 1.0, 2.0, 8.0], 4 * (M + N)))
}

fn with_whole(row: &'static Tcgen05Row, mistake: Step, seed: u64) -> (Report, bool) {
    let k = 4 * row.scaling.unwrap().block as usize;
    let (elements, scales) = whole(row);
    let part = |from: usize| {
        let (elements, scales) = (elements.clone(), scales.clone());
        let element = move |i: usize, kk: usize| elements[(from + i) * k + kk];
        (element, move |i: usize, s: usize| scales[(from + i) * 4 + s])
    };
    let ((a, sa), (b, sb)) = (part(0), part(M));
    let codes = [&Codes { elements: &a, scales: &sa }, &Codes { elements: &b, scales: &sb }];
    let (report, sums) = execute(row, codes, mistake, seed);
    (report, sums == expected(row, codes))
}

#[test]
fn sums_of_whole_factors_are_those_of_plain_loops() {
    for row in formats().filter(|row| row.a == row.b) {
        for seed in 0..3 {
            let (report, same) = with_whole(row, Step::None, seed);
            assert!(report.is_clean(), "{} {seed}: {:?}", row.name, report.problems());
            assert!(same, "{} {seed}", row.name);
        }
    }
}

/// Mistakes on the way of scales to tensor memory, and the findings that name them.
#[test]
fn every_mistake_with_scales_is_found() {
    let row = formats().next().unwrap();
    let found = |mistake: Step| {
        let (mut rules, mut races, mut unwritten, mut wrong) = (Vec::new(), Vec::new(), 0, false);
        for seed in 0..3 {
            let (report, same) = with_whole(row, mistake, seed);
            rules.extend(report.protocol.iter().map(|misuse| misuse.rule));
            races.extend(report.races.iter().map(|race| race.kind));
            unwritten += report.uninitialised.len();
            wrong |= !same;
        }
        (rules, races, unwritten, wrong)
    };
    for (mistake, rule) in
        [(Step::Issuer, Rule::Issuer), (Step::Columns, Rule::Allocation), (Step::Descriptor, Rule::Place)]
    {
        let (rules, ..) = found(mistake);
        assert!(rules.contains(&rule), "{mistake:?}: {rules:?}");
    }
    for mistake in [Step::Copy, Step::Late] {
        assert!(found(mistake).2 > 0, "{mistake:?}");
    }
    for (mistake, kind) in
        [(Step::ProxyFence, RaceKind::MissingProxyFence), (Step::Refill, RaceKind::AsyncRead)]
    {
        let (_, races, ..) = found(mistake);
        assert!(races.contains(&kind), "{mistake:?}: {races:?}");
    }
    let (_, races, ..) = found(Step::Other);
    assert!(!races.is_empty(), "a copy of another thread is in no order with the products");
    assert!(found(Step::Over).3);
}
