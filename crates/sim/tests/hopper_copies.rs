//! Tensor copies and bulk copies: boxes of every rank, swizzle and edge, stores and sums, multicast, and what goes wrong.

use crate::common::*;
use tilewright_machine::{
    BoxShape, BulkOp, DType, MbarrierOp, Memory, ProxyFence, ScalarOp, SwizzleMode, SyncOp, TensorOp,
    tensor_row,
};
use tilewright_sim::{Argument, Config, GlobalMemory, RaceKind, Report, SimError, run};
use tilewright_simt::{Builder, Function, Op, Operand, Special, TensorMap};

/// Offset of the box in the window, in bytes; the mbarrier lies before it.
const BOX: i64 = 2048;

/// Loads a box and stores the block's shared memory as it lies there.
fn load(dtype: DType, extents: &[u32], swizzle: SwizzleMode, coords: &[i64]) -> Function {
    let bytes = i64::from(extents.iter().product::<u32>() * dtype.bits() / 8);
    let mut b = builder(32);
    let out = b.pointer_param("out");
    b.add_shared("bar", 8, 8);
    b.add_shared_at("box", BOX as u32, bytes as u32);
    let map = b.map("src", dtype, extents, swizzle);
    b.init_barriers(&[(0, 1)]);
    let (bar, to) = (b.window(0), b.window(BOX));
    b.only(0, |b| {
        b.set_origin("load");
        b.mbarrier_at(MbarrierOp::ArriveExpect, bar, bytes);
        let coords: Vec<Operand> = coords.iter().map(|c| imm(*c)).collect();
        b.tma(TensorOp::Load, map, &coords, to, Some(bar));
    });
    b.mbarrier_at(MbarrierOp::Wait, bar, 0);
    b.set_origin("use");
    dump(&mut b, out, BOX, bytes);
    b.finish()
}

/// Stores shared bytes from an offset on to a buffer.
pub fn dump(b: &mut Builder, out: u32, from: i64, bytes: i64) {
    let t = b.thread();
    b.for_loop::<()>(t, imm(bytes / 4), imm(32), |b, i| {
        let offset = b.mul(i.into(), 4);
        let offset = b.add(offset, imm(from));
        let word = b.load_shared(offset);
        b.store_global(out, i.into(), word);
        Ok(())
    })
    .unwrap();
}

/// The box by the definition, byte by byte.
fn expected(
    source: &[u8],
    size: &[u64],
    element: usize,
    extents: &[u32],
    swizzle: SwizzleMode,
    coords: &[i64],
) -> Vec<u8> {
    let bytes = extents.iter().product::<u32>() as usize * element;
    let mut image = vec![0xffu8; bytes];
    // Bits that count rows, and the bit of an address from which on they are added.
    let (xor, unit) = match swizzle {
        SwizzleMode::None => (0, 4),
        SwizzleMode::B32 => (1, 4),
        SwizzleMode::B64 => (3, 4),
        SwizzleMode::B128 => (7, 4),
        SwizzleMode::B128Atom32 => (3, 5),
    };
    for linear in 0..bytes / element {
        let (mut rest, mut at, mut scale, mut inside) = (linear, 0i64, 1i64, true);
        for (dim, extent) in extents.iter().enumerate() {
            let x = coords[dim] + (rest % *extent as usize) as i64;
            rest /= *extent as usize;
            inside &= (0..size[dim] as i64).contains(&x);
            at += x * scale;
            scale *= size[dim] as i64;
        }
        for byte in 0..element {
            let address = BOX as usize + linear * element + byte;
            let address = address ^ ((address >> 7 & xor) << unit);
            let value = if inside { source[at as usize * element + byte] } else { 0 };
            image[address - BOX as usize] = value;
        }
    }
    image
}

/// The extents of a box with rows as long as the swizzle's span, as the hardware needs them; without a swizzle those given.
fn rows_of_a_span(extents: &[u32], swizzle: SwizzleMode, element: usize) -> Vec<u32> {
    let mut extents = extents.to_vec();
    if swizzle != SwizzleMode::None {
        extents[0] = swizzle.span() / element as u32;
    }
    extents
}

pub fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut next = random(seed);
    (0..n).map(|_| next() as u8).collect()
}

#[test]
fn boxes_of_every_rank_and_swizzle_arrive_as_they_should() {
    type Case = (DType, &'static [u32], &'static [u64], &'static [&'static [i64]]);
    let cases: [Case; 6] = [
        (DType::F32, &[64], &[100], &[&[0], &[-8], &[60], &[200], &[-64]]),
        (DType::F16, &[8, 32], &[24, 40], &[&[0, 0], &[8, 16], &[-8, 5], &[16, 30], &[8, -40]]),
        (DType::F16, &[32, 16], &[64, 40], &[&[0, 0], &[40, 30], &[-8, -5]]),
        (DType::U8, &[32, 4, 6], &[48, 5, 9], &[&[0, 0, 0], &[16, 2, 5], &[-16, -1, -1]]),
        (DType::BF16, &[16, 2, 4, 4], &[32, 3, 5, 6], &[&[0, 0, 0, 0], &[24, 1, -2, 4]]),
        (DType::I32, &[8, 2, 2, 4, 2], &[12, 3, 2, 5, 3], &[&[0, 0, 0, 0, 0], &[4, 2, 1, -1, 2]]),
    ];
    for (dtype, extents, size, all) in cases {
        let element = (dtype.bits() / 8) as usize;
        let source = bytes(size.iter().product::<u64>() as usize * element, 5);
        for swizzle in SwizzleMode::ALL.into_iter().chain([SwizzleMode::B128Atom32]) {
            let extents = &rows_of_a_span(extents, swizzle, element);
            for (coords, seed) in all.iter().zip(0..) {
                let f = load(dtype, extents, swizzle, coords);
                let mut memory = GlobalMemory::new();
                let image = expected(&source, size, element, extents, swizzle, coords);
                let (src, out) = (memory.alloc(source.len()), memory.alloc(image.len()));
                memory.write(src, &source);
                let args = [Argument::Buffer(out), tensor(src, size, element as u64)];
                let report = run(&f, [1, 1, 1], &memory, &args, &seeded(seed)).unwrap();
                assert!(report.is_clean(), "{:?}", report.problems());
                assert_eq!(memory.read(out), image, "{dtype} {extents:?} {swizzle} {coords:?}");
                assert_eq!(report.tma_bytes, image.len() as u64);
            }
        }
    }
}

/// Fills the box from a buffer, and stores or adds the box; `fence` can be left out.
fn store(
    op: TensorOp,
    dtype: DType,
    extents: &[u32],
    swizzle: SwizzleMode,
    coords: &[i64],
    fence: bool,
) -> Function {
    let bytes = i64::from(extents.iter().product::<u32>() * dtype.bits() / 8);
    let mut b = builder(32);
    let src = b.pointer_param("src");
    b.add_shared_at("box", BOX as u32, bytes as u32);
    let map = b.map("dst", dtype, extents, swizzle);
    b.set_origin("fill");
    fill(&mut b, src, bytes, 32);
    if fence {
        b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    }
    b.sync(SyncOp::Barrier);
    let from = b.window(BOX);
    b.only(0, |b| {
        b.set_origin("store");
        let coords: Vec<Operand> = coords.iter().map(|c| imm(*c)).collect();
        b.tma(op, map, &coords, from, None);
        b.sync(SyncOp::BulkCommit);
        b.sync(SyncOp::BulkWait(0));
    });
    b.finish()
}

/// Copies a buffer to the box by ordinary stores.
fn fill(b: &mut Builder, src: u32, bytes: i64, threads: i64) {
    let t = b.thread();
    b.for_loop::<()>(t, imm(bytes / 4), imm(threads), |b, i| {
        let array = b.add_array("word", 1);
        let address = b.pointer(src, i.into(), 4);
        b.load(transfer(Memory::Global, Memory::Register, 4), vec![reg(array, 0)], at(address, 0), None);
        let word = b.read(reg(array, 0));
        let offset = b.mul(i.into(), 4);
        let offset = b.add(offset, imm(BOX));
        b.store_shared(offset, word);
        Ok(())
    })
    .unwrap();
}

#[test]
fn stores_write_what_lies_inside_the_tensor() {
    let cases: [(&[u32], &[u64], &[i64]); 4] = [
        (&[64], &[100], &[56]),
        (&[32, 16], &[64, 40], &[8, 30]),
        (&[16, 4, 6], &[48, 5, 9], &[40, 3, 5]),
        (&[16, 4, 6], &[48, 5, 9], &[8, 1, 1]),
    ];
    for (extents, size, coords) in cases {
        for swizzle in SwizzleMode::ALL.into_iter().chain([SwizzleMode::B128Atom32]) {
            let extents = &rows_of_a_span(extents, swizzle, 2);
            let image = bytes(extents.iter().product::<u32>() as usize * 2, 3);
            let f = store(TensorOp::Store, DType::F16, extents, swizzle, coords, true);
            let mut memory = GlobalMemory::new();
            let total = size.iter().product::<u64>() as usize * 2;
            let (src, dst) = (memory.alloc(image.len()), memory.alloc(total));
            memory.write(src, &image);
            memory.write(dst, &vec![0xee; total]);
            let args = [Argument::Buffer(src), tensor(dst, size, 2)];
            let report = run(&f, [1, 1, 1], &memory, &args, &Config::default()).unwrap();
            assert!(report.is_clean(), "{:?}", report.problems());
            // What was written comes back by a load of the same box, and nothing else has changed.
            let after = memory.read(dst);
            let back = expected(&after, size, 2, extents, swizzle, coords);
            let ones = expected(&vec![1; total], size, 2, extents, swizzle, coords);
            let wanted = image.iter().zip(&ones).map(|(byte, inside)| if *inside == 1 { *byte } else { 0 });
            assert_eq!(back, wanted.collect::<Vec<_>>(), "{extents:?} {swizzle}");
            let inside = ones.iter().filter(|one| **one == 1).count();
            assert!(after.iter().filter(|byte| **byte == 0xee).count() >= total - inside);
        }
    }
}

#[test]
fn boxes_that_are_written_ahead_of_a_tensor_are_reported() {
    for (op, x) in [(TensorOp::Store, -8), (TensorOp::Add, -8), (TensorOp::Store, 1016)] {
        let f = store(op, DType::F32, &[256], SwizzleMode::None, &[x], true);
        let found = run_store(&f, &Config::default()).problems().join("\n");
        assert_eq!(found.contains("a box is written at coordinate -8 of dimension 0"), x < 0, "{found}");
    }
}

#[test]
fn boxes_that_begin_within_16_bytes_are_reported() {
    for (dtype, x) in [(DType::F32, 1), (DType::F32, 4), (DType::F16, 4), (DType::F16, -8), (DType::U8, 24)] {
        let f = load(dtype, &[64], SwizzleMode::None, &[x]);
        let element = u64::from(dtype.bits() / 8);
        let mut memory = GlobalMemory::new();
        let (src, out) = (memory.alloc(64 * element as usize), memory.alloc(64 * element as usize));
        let args = [Argument::Buffer(out), tensor(src, &[64], element)];
        let found = run(&f, [1, 1, 1], &memory, &args, &Config::default()).unwrap().problems().join("\n");
        let within = x * element as i64 % 16 != 0;
        assert_eq!(found.contains("no multiple of 16 bytes"), within, "{dtype} {x}: {found}");
    }
}

#[test]
fn sums_are_made_element_by_element_in_their_type() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        let size = (dtype.bits() / 8) as usize;
        let encode = |x: f64| -> Vec<u8> { dtype.encode(x).to_le_bytes()[..size].to_vec() };
        let old: Vec<u8> = (0..100).flat_map(|i| encode(f64::from(i) + 0.5)).collect();
        let image: Vec<u8> = (0..32).flat_map(|i| encode(f64::from(3 * i - 40))).collect();
        let f = store(TensorOp::Add, dtype, &[32], SwizzleMode::None, &[88], true);
        let mut memory = GlobalMemory::new();
        let (src, dst) = (memory.alloc(image.len()), memory.alloc(old.len()));
        memory.write(src, &image);
        memory.write(dst, &old);
        let args = [Argument::Buffer(src), tensor(dst, &[100], size as u64)];
        // Two blocks add.
        let report = run(&f, [2, 1, 1], &memory, &args, &Config::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems());
        let after = memory.read(dst);
        for i in 0..100usize {
            let decode = |bytes: &[u8]| {
                let word =
                    bytes[size * i..size * i + size].iter().rev().fold(0, |w, b| w << 8 | u32::from(*b));
                dtype.decode(word)
            };
            let term = if i >= 88 { 2.0 * (3.0 * (i as f64 - 88.0) - 40.0) } else { 0.0 };
            assert_eq!(decode(&after), decode(&old) + term, "{dtype} {i}");
        }
    }
    let f = store(TensorOp::Add, DType::U8, &[32], SwizzleMode::None, &[0], true);
    let mut memory = GlobalMemory::new();
    let ids = [memory.alloc(32), memory.alloc(32)];
    let args = [Argument::Buffer(ids[0]), tensor(ids[1], &[32], 1)];
    let error = run(&f, [1, 1, 1], &memory, &args, &Config::default()).unwrap_err();
    assert!(matches!(error, SimError::Unsupported { .. }), "{error}");
}

fn run_store(f: &Function, config: &Config) -> Report {
    let mut memory = GlobalMemory::new();
    let ids = [memory.alloc(4096), memory.alloc(4096)];
    let args = [Argument::Buffer(ids[0]), tensor(ids[1], &[1024], 4)];
    run(f, [1, 1, 1], &memory, &args, config).unwrap()
}

#[test]
fn a_store_of_what_was_not_fenced_is_reported() {
    for seed in 0..10 {
        let f = store(TensorOp::Store, DType::F32, &[256], SwizzleMode::None, &[0], false);
        let report = run_store(&f, &seeded(seed));
        let [race] = &report.races[..] else { panic!("{:?}", report.problems()) };
        assert_eq!(race.kind, RaceKind::MissingProxyFence);
        assert_eq!((race.first.origin.as_str(), race.second.origin.as_str()), ("fill", "store"));
        assert!(race.to_string().contains("needs fence.proxy.async"), "{race}");
    }
}

#[test]
fn the_source_of_a_store_may_be_overwritten_after_a_wait_of_its_own_thread() {
    // What thread 0 does before the block meets, and whether that is enough.
    let reads: fn(&mut Builder) = |b| b.sync(SyncOp::BulkWaitRead(0));
    let writes: fn(&mut Builder) = |b| b.sync(SyncOp::BulkWait(0));
    let nothing: fn(&mut Builder) = |_| {};
    let too_few: fn(&mut Builder) = |b| b.sync(SyncOp::BulkWaitRead(1));
    for (wait, others, enough) in [
        (reads, nothing, true),
        (writes, nothing, true),
        (nothing, nothing, false),
        (too_few, nothing, false),
        // A wait of threads that have started nothing.
        (nothing, writes, false),
    ] {
        let mut b = builder(64);
        let src = b.pointer_param("src");
        b.add_shared_at("box", BOX as u32, 1024);
        let map = b.map("dst", DType::F32, &[256], SwizzleMode::None);
        fill(&mut b, src, 1024, 64);
        b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
        b.sync(SyncOp::Barrier);
        let from = b.window(BOX);
        b.only(0, |b| {
            b.set_origin("store");
            b.tma(TensorOp::Store, map, &[imm(0)], from, None);
            b.sync(SyncOp::BulkCommit);
            wait(b);
        });
        b.only(33, others);
        b.sync(SyncOp::Barrier);
        b.set_origin("again");
        let t = b.thread();
        let offset = b.mul(t, 4);
        let offset = b.add(offset, imm(BOX));
        b.store_shared(offset, imm(7));
        let f = b.finish();
        for seed in 0..20 {
            let mut memory = GlobalMemory::new();
            let ids = [memory.alloc(1024), memory.alloc(1024)];
            memory.write(ids[0], &[1; 1024]);
            let args = [Argument::Buffer(ids[0]), tensor(ids[1], &[256], 4)];
            let report = run(&f, [1, 1, 1], &memory, &args, &seeded(seed)).unwrap();
            let kinds: Vec<_> = report.races.iter().map(|r| r.kind).collect();
            if enough {
                assert!(report.is_clean(), "{:?}", report.problems());
                assert_eq!(memory.read(ids[1]), [1; 1024]);
            } else {
                assert_eq!(kinds, [RaceKind::AsyncRead], "{:?}", report.problems());
            }
            if !enough && seed == 0 {
                assert_eq!(&memory.read(ids[1])[..4], [7, 0, 0, 0], "the store is as late as it may be");
            }
        }
    }
}

#[test]
fn multicast_reaches_every_block_of_the_mask_and_its_mbarrier() {
    // Each block loads one half of the box and sends it to both.
    for seed in 0..20 {
        let mut b = builder(32);
        b.set_cluster(2);
        let out = b.pointer_param("out");
        b.add_shared("bar", 8, 8);
        b.add_shared_at("box", BOX as u32, 512);
        let map = b.map("src", DType::F32, &[64], SwizzleMode::None);
        b.init_barriers(&[(0, 1)]);
        b.sync(SyncOp::ClusterBarrier);
        let rank: Operand = b.special(Special::ClusterRank).into();
        let (bar, base) = (b.window(0), b.special(Special::SharedBase).into());
        b.only(0, |b| {
            b.mbarrier_at(MbarrierOp::ArriveExpect, bar, 512);
            let shift = b.mul(rank, 256);
            let to = b.add(base, shift);
            let x = b.mul(rank, 64);
            b.multicast(map, &[x], at(to, BOX as i32), bar, 3);
        });
        b.mbarrier_at(MbarrierOp::Wait, bar, 0);
        let t = b.thread();
        let block: Operand = b.special(Special::BlockIndex(0)).into();
        for i in 0..4 {
            let index = b.add(t, imm(32 * i));
            let offset = b.mul(index, 4);
            let offset = b.add(offset, imm(BOX));
            let word = b.load_shared(offset);
            let row = b.mul(block, 128);
            let index = b.add(row, index);
            b.store_global(out, index, word);
        }
        b.sync(SyncOp::ClusterBarrier);
        let f = b.finish();
        let mut memory = GlobalMemory::new();
        let (src, out) = (memory.alloc(512), memory.alloc(4 * 512));
        let words: Vec<u8> = (0..128u32).flat_map(u32::to_le_bytes).collect();
        memory.write(src, &words);
        let args = [Argument::Buffer(out), tensor(src, &[128], 4)];
        let report = run(&f, [4, 1, 1], &memory, &args, &seeded(seed)).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems());
        assert_eq!(memory.read(out), words.repeat(4));
        assert_eq!((report.blocks, report.warps), (4, 4));
        let refused = run(&f, [3, 1, 1], &memory, &args, &Config::default());
        assert_eq!(refused, Err(SimError::Cluster { grid: 3, cluster: 2 }));
    }
}

#[test]
fn bulk_copies_go_both_ways_and_to_a_peer() {
    for seed in 0..10 {
        let mut b = builder(32);
        b.set_cluster(2);
        let (src, out) = (b.pointer_param("src"), b.pointer_param("out"));
        b.add_shared("bars", 16, 16);
        b.add_shared_at("box", BOX as u32, 1024);
        b.init_barriers(&[(0, 1), (8, 1)]);
        b.sync(SyncOp::ClusterBarrier);
        let rank: Operand = b.special(Special::ClusterRank).into();
        let (first, second, mine) = (b.window(0), b.window(8), b.window(BOX));
        let base = b.special(Special::SharedBase).into();
        let other = b.op(ScalarOp::XorB32, rank, 1);
        let peer = b.scalar(ScalarOp::Mapa, &[base, other]);
        let row = b.mul(rank, 128);
        let (from, to) = (b.pointer(src, row, 4), b.pointer(out, row, 4));
        b.only(0, |b| {
            b.mbarrier_at(MbarrierOp::ArriveExpect, first, 512);
            b.copy_bulk(BulkOp::Load, mine, at(from, 0), 512, Some(first));
            b.mbarrier_at(MbarrierOp::Wait, first, 0);
            b.mbarrier_at(MbarrierOp::ArriveExpect, second, 512);
            b.set_origin("to the peer");
            b.copy_bulk(BulkOp::Peer, mine, at(peer, BOX as i32 + 512), 512, Some(at(peer, 8)));
            b.mbarrier_at(MbarrierOp::Wait, second, 0);
            b.set_origin("out");
            let got = b.window(BOX + 512);
            b.copy_bulk(BulkOp::Store, got, at(to, 0), 512, None);
            b.sync(SyncOp::BulkCommit);
            b.sync(SyncOp::BulkWait(0));
        });
        b.sync(SyncOp::ClusterBarrier);
        let f = b.finish();
        let mut memory = GlobalMemory::new();
        let ids = [memory.alloc(1024), memory.alloc(1024)];
        let words: Vec<u8> = (0..256u32).flat_map(u32::to_le_bytes).collect();
        memory.write(ids[0], &words);
        let report = run(&f, [2, 1, 1], &memory, &ids.map(Argument::Buffer), &seeded(seed)).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems());
        assert_eq!(memory.read(ids[1]), [&words[512..], &words[..512]].concat());
    }
}

#[test]
fn what_is_not_waited_for_is_a_race() {
    for (seed, wait) in (0..10).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut b = builder(32);
        b.add_shared("bar", 8, 8);
        b.add_shared_at("box", BOX as u32, 256);
        let map = b.map("src", DType::F32, &[64], SwizzleMode::None);
        b.init_barriers(&[(0, 1)]);
        let (bar, to) = (b.window(0), b.window(BOX));
        b.only(0, |b| {
            b.set_origin("load");
            b.mbarrier_at(MbarrierOp::ArriveExpect, bar, 256);
            b.tma(TensorOp::Load, map, &[imm(0)], to, Some(bar));
            // Only this lane waits.
            b.mbarrier_at(MbarrierOp::Wait, bar, 0);
        });
        if wait {
            b.sync(SyncOp::WarpBarrier);
        }
        b.set_origin("use");
        let t = b.thread();
        let offset = b.mul(t, 4);
        let offset = b.add(offset, imm(BOX));
        let _ = b.load_shared(offset);
        let mut memory = GlobalMemory::new();
        let src = memory.alloc(256);
        let report = run(&b.finish(), [1, 1, 1], &memory, &[tensor(src, &[64], 4)], &seeded(seed)).unwrap();
        let kinds: Vec<_> = report.races.iter().map(|r| (r.kind, r.count)).collect();
        let races: &[_] = if wait { &[] } else { &[(RaceKind::AsyncPending, 31)] };
        assert_eq!(kinds, races, "{:?}", report.problems());
    }
}

#[test]
fn what_is_misplaced_is_reported() {
    type Body = fn(&mut Builder, u32);
    let start = |b: &mut Builder, map: u32, to: i64, bar: i64, bytes: i64| {
        let (bar, to) = (b.window(bar), b.window(to));
        b.only(0, |b| {
            b.set_origin("load");
            b.mbarrier_at(MbarrierOp::ArriveExpect, bar, bytes);
            b.tma(TensorOp::Load, map, &[imm(0), imm(0)], to, Some(bar));
        });
        b.mbarrier_at(MbarrierOp::Wait, bar, 0);
    };
    let check = |body: &dyn Fn(&mut Builder, u32), words: &str| {
        let mut b = builder(32);
        b.add_shared("bar", 16, 8);
        b.add_shared_at("box", BOX as u32, 4096);
        let map = b.map("src", DType::F16, &[64, 16], SwizzleMode::B128);
        b.init_barriers(&[(0, 1)]);
        body(&mut b, map);
        let mut memory = GlobalMemory::new();
        let src = memory.alloc(64 * 16 * 2);
        let args = [tensor(src, &[64, 16], 2)];
        let found = match run(&b.finish(), [1, 1, 1], &memory, &args, &Config::default()) {
            Ok(report) => report.problems().join("\n"),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(words), "{found}");
    };
    check(&|b, map| start(b, map, BOX, 0, 2048), "");
    check(&|b, map| start(b, map, BOX + 512, 0, 2048), "no multiple of 1024");
    check(&|b, map| start(b, map, BOX + 3072, 0, 2048), "out of bounds");
    check(&|b, map| start(b, map, BOX, 8, 2048), "no initialised mbarrier");
    check(&|b, map| start(b, map, BOX, 4, 2048), "misaligned");
    check(&|b, map| start(b, map, BOX, 0, 2064), "the next lacks 0 arrivals and 16 bytes");
    check(&|b, map| start(b, map, BOX, 0, 2032), "16 more have come than were expected");
    let arrive: Body = |b, _| {
        let bar = b.window(0);
        b.mbarrier_at(MbarrierOp::ArriveExpect, bar, 16);
    };
    check(&arrive, "has had all its arrivals");
    let access: Body = |b, _| {
        let _ = b.load_shared(imm(0));
    };
    check(&access, "accesses the bytes of an mbarrier");
    let early: Body = |b, map| {
        let (bar, to) = (b.window(0), b.window(BOX));
        b.only(0, |b| {
            b.mbarrier_at(MbarrierOp::ArriveExpect, bar, 2048);
            b.tma(TensorOp::Load, map, &[imm(0), imm(0)], to, Some(bar));
        });
    };
    check(&early, "ends before the copy into its shared memory is complete");
}

/// Loads a box of one of several tensors and stores the block's shared memory as it lies there.
fn load_of_several(number: Operand) -> Function {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    b.add_shared("bar", 8, 8);
    b.add_shared_at("box", BOX as u32, 1024);
    let shape = BoxShape::dense(DType::F16, vec![64, 8], SwizzleMode::None);
    let map = b.add_tensor_maps(TensorMap { name: "src".to_string(), shape });
    b.init_barriers(&[(0, 1)]);
    let (bar, shared) = (b.window(0), b.window(BOX));
    let one = b.tensor_map(map, number, None);
    b.only(0, |b| {
        b.mbarrier_at(MbarrierOp::ArriveExpect, bar, 1024);
        let row = tensor_row(TensorOp::Load, 2).unwrap();
        let (one, coords, barrier) = (Some(one), vec![imm(0); 2], Some(bar));
        b.bulk(Op::Tensor {
            row,
            map,
            one,
            coords,
            shared,
            barrier,
            multicast: None,
            even: false,
            hint: None,
        });
    });
    b.mbarrier_at(MbarrierOp::Wait, bar, 0);
    dump(&mut b, out, BOX, 1024);
    b.finish()
}

#[test]
fn one_of_several_tensor_maps_is_taken() {
    let mut memory = GlobalMemory::new();
    let out = memory.alloc(1024);
    let sources = [0, 1, 2].map(|seed| bytes(1024, seed));
    let buffers: Vec<_> = sources.iter().map(|_| memory.alloc(1024)).collect();
    buffers.iter().zip(&sources).for_each(|(id, source)| memory.write(*id, source));
    let maps = |buffers| Argument::TensorMaps { buffers, extents: vec![64, 8], strides: vec![128] };
    for (number, source) in sources.iter().enumerate() {
        let args = [Argument::Buffer(out), maps(buffers.clone())];
        let f = load_of_several(imm(number as i64));
        let report = run(&f, [1, 1, 1], &memory, &args, &Config::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems());
        assert_eq!(memory.read(out), *source);
    }
    let args = [Argument::Buffer(out), maps(buffers[..2].to_vec())];
    let report = run(&load_of_several(imm(2)), [1, 1, 1], &memory, &args, &Config::default()).unwrap();
    assert!(
        report.problems().iter().any(|p| p.contains("there is no tensor map 2")),
        "{:?}",
        report.problems()
    );
}

#[test]
fn tensors_that_a_map_cannot_describe_are_refused() {
    let f = load(DType::F16, &[64, 8], SwizzleMode::B128, &[0, 0]);
    let mut memory = GlobalMemory::new();
    let (out, src) = (memory.alloc(1024), memory.alloc(4096));
    let tensor = |extents: &[u64], strides: &[u64]| {
        let map = Argument::TensorMap { buffer: src, extents: extents.to_vec(), strides: strides.to_vec() };
        run(&f, [1, 1, 1], &memory, &[Argument::Buffer(out), map], &Config::default())
    };
    assert!(tensor(&[64, 32], &[128]).is_ok());
    assert!(tensor(&[64, 16], &[256]).is_ok());
    for (extents, strides, words) in [
        (&[64, 33][..], &[128][..], "leaves its buffer"),
        (&[64, 16], &[136], "no multiple of 16"),
        (&[64], &[], "wants 2 extents"),
        (&[64, 0], &[128], "not between 1 and 2^31"),
    ] {
        let error = tensor(extents, strides).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("src.map0"), "{error}");
    }
    let error =
        run(&f, [1, 1, 1], &memory, &[Argument::Buffer(out), Argument::Buffer(src)], &Config::default());
    assert!(matches!(error, Err(SimError::ArgumentKind { expected: "a tensor map", .. })));
}
