//! Block-scaled products of pairs of blocks against the formats' definitions, and what goes wrong with the scales of two blocks.

use crate::common::*;
use crate::hopper_products::{placed, registers};
use crate::tensor_pairs::stage_from;
use crate::tensor_scales::{M, PLACES, ROW, chunk, descriptor, factors, multiply, number};
use tilewright_machine::{
    Arch, DType, Major, MbarrierOp, Memory, ProxyFence, ScalarOp, SumsScaling, SwizzleMode, SyncOp,
    Tcgen05Row, scaled_tcgen05_pair, tensor_memory_copies,
};
use tilewright_sim::{GlobalMemory, RaceKind, Report, Rule, run};
use tilewright_simt::{Builder, Function, Operand, Special};

/// Columns of both blocks.
const N: usize = 48;
/// The columns of the sums and of the scales of A and of B.
const COLUMNS: [u32; 3] = [0, 48, 52];
const ALLOCATED: u32 = 64;
const DONE: i64 = 8;
const WORD: i64 = 16;

/// A step of the program that a mistake may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is changed.
    None,
    /// The odd block issues the copies of scales.
    OddCopies,
    /// Both blocks do.
    BothCopy,
    /// The odd block has the scales of its own half of B alone.
    HalfOfScales,
    /// The odd block stores its scales behind its proxy fence.
    ProxyFence,
    /// The odd block stores its scales again while copies read them.
    Refill,
    /// The odd block's scales are those of the even one.
    Same,
}

/// The images of the operands, each of the even and of the odd block.
type Images = [[Vec<u8>; 2]; 4];

/// Two blocks that multiply by one chunk of scales of each factor; each stores the sums of its rows.
fn program(row: &'static Tcgen05Row, images: &Images, mistake: Step) -> Function {
    let right = |step: Step| mistake != step;
    let mut f = Builder::new("pair", Arch::SM_100A, 128);
    f.set_cluster(2);
    f.set_pairs();
    let names = ["a", "b", "sa", "sb"];
    let params = names.map(|name| f.pointer_param(name));
    let out = f.pointer_param("out");
    f.add_shared_at("done", DONE as u32, 8);
    f.add_shared_at("word", WORD as u32, 4);
    for ((name, at), image) in names.into_iter().zip(PLACES).zip(images) {
        f.add_shared_at(name, at, image[0].len() as u32);
    }
    for (name, (at, columns)) in ["acc", "sa", "sb"].into_iter().zip(COLUMNS.into_iter().zip([48, 4, 4])) {
        f.add_tensor_memory(name, at, columns);
    }
    let rank: Operand = f.special(Special::ClusterRank).into();
    let odd = f.op(ScalarOp::AndB32, rank, 1);
    let even = value(f.op(ScalarOp::EqI32, odd, 0));
    let thread = f.thread();
    let warp = f.op(ScalarOp::ShrU32, thread, 5);
    let first = value(f.op(ScalarOp::LtI32, warp, 1));
    f.init_barriers(&[(DONE, 1)]);
    f.sync(SyncOp::ClusterStart);
    let word = f.window(WORD);
    f.branch(
        first,
        |b| {
            b.tensor_allocate(ALLOCATED, word);
            b.sync(SyncOp::TensorRelinquish);
        },
        |_| {},
    );
    f.set_origin("stage");
    let fill = |f: &mut Builder, which: std::ops::Range<usize>| {
        for i in which {
            let bytes = images[i][0].len();
            let rows = f.mul(odd, bytes as i64 / 16);
            stage_from(f, (params[i], rows), PLACES[i], bytes);
        }
    };
    fill(&mut f, 0..2);
    match mistake {
        Step::ProxyFence => {
            f.branch(even, |b| fill(b, 2..4), |_| {});
            f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            f.branch(even, |_| {}, |b| fill(b, 2..4));
        }
        Step::HalfOfScales => {
            fill(&mut f, 2..3);
            f.branch(even, |b| fill(b, 3..4), |_| {});
        }
        _ => fill(&mut f, 2..4),
    }
    if right(Step::ProxyFence) {
        f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    }
    f.sync(SyncOp::TensorFenceBefore);
    f.sync(SyncOp::ClusterBarrier);
    f.sync(SyncOp::TensorFenceAfter);
    let base = f.load_shared(imm(WORD));
    let factors = factors(&mut f, row, [M, N / 2]);
    let form = (128u64 / 16) << 32 | Tcgen05Row::DESCRIPTOR;
    let chunks = [2, 3].map(|i| descriptor(&mut f, PLACES[i], form));
    let done = f.window(DONE);
    f.set_origin("multiply");
    let copies = |b: &mut Builder| {
        for (chunk, column) in chunks.into_iter().zip(&COLUMNS[1..]) {
            b.scale_copy(chunk, at(base, *column as i32));
        }
    };
    f.only(0, |b| {
        b.branch(
            even,
            |b| {
                if right(Step::OddCopies) {
                    copies(b);
                }
                multiply(b, row, base, [COLUMNS[1], COLUMNS[2]], &factors);
                b.mbarrier_at(MbarrierOp::CommitPeers, done, 3);
            },
            |b| {
                if mistake == Step::OddCopies || mistake == Step::BothCopy {
                    copies(b);
                }
            },
        );
    });
    if !right(Step::Refill) {
        f.set_origin("refill");
        f.branch(even, |_| {}, |b| fill(b, 2..4));
    }
    f.mbarrier_at(MbarrierOp::Wait, done, 0);
    f.sync(SyncOp::TensorFenceAfter);
    f.set_origin("load");
    let copy = tensor_memory_copies().iter().find(|copy| copy.name == "tcgen05.ld.32x32b.x16").unwrap();
    let array = f.add_array("cells", N as u32);
    let lanes = f.op(ScalarOp::ShlB32, warp, 21);
    let from = f.add(base, lanes);
    for i in 0..N as u32 / 16 {
        let regs = (16 * i..16 * i + 16).map(|j| reg(array, j)).collect();
        f.tensor_copy(copy, regs, at(from, 16 * i as i32));
    }
    f.sync(SyncOp::TensorWaitLoad);
    let before = f.mul(odd, (M * N) as i64);
    let cell = f.add(thread, before);
    for (column, register) in registers(array, N as u32).into_iter().enumerate() {
        let index = f.add(cell, imm((M * column) as i64));
        let address = f.pointer(out, index, 4);
        f.store(transfer(Memory::Register, Memory::Global, 4), vec![register], at(address, 0), None);
    }
    f.set_origin("free");
    f.sync(SyncOp::TensorFenceBefore);
    f.sync(SyncOp::ClusterBarrier);
    f.branch(
        first,
        |b| {
            b.sync(SyncOp::TensorFenceAfter);
            b.tensor_free(ALLOCATED, base);
        },
        |_| {},
    );
    f.finish()
}

/// Codes of a factor's elements and of its scales, row by row.
struct Codes {
    elements: Vec<u32>,
    scales: Vec<u32>,
}

/// Codes of small numbers, of which all sums are exact.
fn drawn((dtype, scale): (DType, DType), rows: usize, k: usize, seed: u64) -> Codes {
    let mut next = random(seed);
    let mut pick = |dtype: DType, numbers: &[f64], count: usize| -> Vec<u32> {
        let codes: Vec<u32> =
            (0..1 << dtype.bits()).filter(|bits| numbers.contains(&number(dtype, *bits))).collect();
        (0..count).map(|_| codes[next() as usize % codes.len()]).collect()
    };
    let elements = pick(dtype, &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0], rows * k);
    Codes { elements, scales: pick(scale, &[0.5, 1.0, 2.0, 8.0], 4 * rows) }
}

/// Runs the program on factors of 256 rows and of `N`: its report, and the first sum, (row, column), that is not that of plain loops over the formats' numbers.
fn execute(row: &'static Tcgen05Row, mistake: Step, seed: u64) -> (Report, Option<String>) {
    let scaling = row.scaling.unwrap();
    let (block, taken) = (scaling.block as usize, scaling.taken(row.k) as usize);
    let (k, per) = (row.k as usize, (8 / row.a.bits()) as usize);
    let all = 4 * block;
    let a = drawn((row.a, scaling.dtype), 2 * M, all, 5);
    let b = drawn((row.b, scaling.dtype), N, all, 6);
    let factor = |codes: &Codes, (first, rows): (usize, usize), bits: u32| -> Vec<u8> {
        let of_step = |step: usize| {
            let byte = |i: usize, j: usize| {
                let element = |x: usize| codes.elements[(first + i) * all + step * k + j * per + x];
                (0..per).map(|x| element(x) << (bits * x as u32)).sum()
            };
            let mut image = placed(DType::U8, (rows, ROW), Major::K, SwizzleMode::B32, byte).image;
            image.truncate(rows * ROW);
            image
        };
        (0..4 / taken).flat_map(of_step).collect()
    };
    let chunk =
        |codes: &Codes, (first, rows): (usize, usize)| chunk(rows, |i, s| codes.scales[4 * (first + i) + s]);
    let of_odd = if mistake == Step::Same { 0 } else { M };
    let images: Images = [
        [0, 1].map(|rank| factor(&a, (rank * M, M), row.a.bits())),
        [0, 1].map(|rank| factor(&b, (rank * N / 2, N / 2), row.b.bits())),
        [0, of_odd].map(|first| chunk(&a, (first, M))),
        [0, 1].map(|_| chunk(&b, (0, N))),
    ];
    let f = program(row, &images, mistake);
    let mut memory = GlobalMemory::new();
    let mut args = Vec::new();
    for image in &images {
        let bytes = image.concat();
        let id = memory.alloc(bytes.len());
        memory.write(id, &bytes);
        args.push(tilewright_sim::Argument::Buffer(id));
    }
    let out = memory.alloc(4 * 2 * M * N);
    args.push(tilewright_sim::Argument::Buffer(out));
    let report = run(&f, [2, 1, 1], &memory, &args, &seeded(seed)).unwrap();
    let words = words_of(&memory.read(out));
    let of = |codes: &Codes, dtype: DType, i: usize, x: usize| {
        number(dtype, codes.elements[i * all + x]) * number(scaling.dtype, codes.scales[4 * i + x / block])
    };
    let wrong = (0..2 * M * N).find_map(|at| {
        let (i, j) = (at % (2 * M), at / (2 * M));
        let sum: f64 = (0..all).map(|x| of(&a, row.a, i, x) * of(&b, row.b, j, x)).sum();
        let got = f64::from(f32::from_bits(words[i / M * M * N + i % M + M * j]));
        (got != sum).then(|| format!("({i}, {j}): {got} for {sum}"))
    });
    (report, wrong)
}

fn formats() -> impl Iterator<Item = &'static Tcgen05Row> {
    let row = |(a, b, dtype, block)| {
        scaled_tcgen05_pair(a, b, SumsScaling { dtype, block }, [M as i64, N as i64]).unwrap()
    };
    [
        (DType::E4M3, DType::E4M3, DType::UE8M0, 32),
        (DType::E5M2, DType::E4M3, DType::UE8M0, 32),
        (DType::E2M1, DType::E2M1, DType::UE8M0, 32),
        (DType::E2M1, DType::E2M1, DType::UE4M3, 16),
    ]
    .into_iter()
    .map(row)
}

#[test]
fn sums_of_pairs_of_every_format_are_those_of_plain_loops() {
    for row in formats() {
        for seed in 0..12 {
            let (report, wrong) = execute(row, Step::None, seed);
            assert!(report.is_clean(), "{} {seed}: {:?}", row.name, report.problems());
            assert_eq!(wrong, None, "{} {seed}", row.name);
        }
    }
}

#[test]
fn every_mistake_with_the_scales_of_a_pair_is_found() {
    let row = formats().next().unwrap();
    let found = |mistake: Step| {
        let (mut rules, mut races, mut unwritten, mut wrong) = (Vec::new(), Vec::new(), 0, false);
        for seed in 0..4 {
            let (report, first) = execute(row, mistake, seed);
            rules.extend(report.protocol.iter().map(|misuse| misuse.rule));
            races.extend(report.races.iter().map(|race| race.kind));
            unwritten += report.uninitialised.len();
            wrong |= first.is_some();
        }
        (rules, races, unwritten, wrong)
    };
    for mistake in [Step::OddCopies, Step::BothCopy] {
        let (rules, ..) = found(mistake);
        assert!(rules.contains(&Rule::Issuer), "{mistake:?}: {rules:?}");
    }
    assert!(found(Step::HalfOfScales).2 > 0, "the odd block has no scales of B");
    for (mistake, kind) in
        [(Step::ProxyFence, RaceKind::MissingProxyFence), (Step::Refill, RaceKind::AsyncRead)]
    {
        let (_, races, ..) = found(mistake);
        assert!(races.contains(&kind), "{mistake:?}: {races:?}");
    }
    assert!(found(Step::Same).3, "each block multiplies by its own scales");
}
