//! Matrix products of a warpgroup: every kind of operand against plain loops, and what goes wrong with registers and memory.

use crate::common::*;
use tilewright_machine::{
    DType, Descriptor, Major, Memory, ProxyFence, ScalarOp, SwizzleMode, SyncOp, WgmmaRow, wgmma_rows, wgmmas,
};
use tilewright_sim::{Argument, Config, GlobalMemory, RaceKind, Report, SimError, run};
use tilewright_simt::{ArrayId, Builder, DescriptorValue, Factor, Operand, Reg};

/// Offsets of the operands in the window, in bytes: multiples of every swizzle's period.
const A: u32 = 1024;
const B: u32 = 32 * 1024;

/// An operand in shared memory: its bytes from the start on, and its descriptor without the start.
pub(crate) struct Placed {
    pub image: Vec<u8>,
    pub descriptor: Descriptor,
    pub major: Major,
}

/// Puts `mn`×`k` elements where PTX's canonical layouts have them, the rows of a span packed, spans one after the other.
pub(crate) fn placed(
    dtype: DType,
    (mn, k): (usize, usize),
    major: Major,
    swizzle: SwizzleMode,
    element: impl Fn(usize, usize) -> u32,
) -> Placed {
    let bytes = (dtype.bits() / 8) as usize;
    let (span, units) = (swizzle.span() as usize, 16 / bytes);
    let wide = span / bytes;
    let (leading, stride) = match (major, swizzle) {
        // Groups of 8 rows beside each other, then the other half of k.
        (Major::K, SwizzleMode::None) => (mn * 16, 128),
        (Major::K, _) => (16, 8 * span),
        // Groups of 4 k.
        (Major::Mn, SwizzleMode::B128Atom32) => (k * span, 4 * span),
        // Groups of 8 k one after the other, each of all groups along mn.
        (Major::Mn, SwizzleMode::None) => (mn.div_ceil(units) * 128, 128),
        (Major::Mn, _) => (k * span, 8 * span),
    };
    let place = |i: usize, j: usize| -> usize {
        let at = match (major, swizzle) {
            (Major::K, SwizzleMode::None) => {
                16 * (i % 8) + stride * (i / 8) + leading * (j / units) + bytes * (j % units)
            }
            (Major::K, _) => span * (i % 8) + stride * (i / 8) + bytes * j,
            (Major::Mn, SwizzleMode::None) => {
                bytes * (i % units) + stride * (i / units) + 16 * (j % 8) + leading * (j / 8)
            }
            (Major::Mn, SwizzleMode::B128Atom32) => {
                let at = bytes * (i % wide) + leading * (i / wide) + span * (j % 4) + stride * (j / 4);
                return at ^ ((at >> 7) & 3) << 5;
            }
            (Major::Mn, _) => bytes * (i % wide) + leading * (i / wide) + span * (j % 8) + stride * (j / 8),
        };
        at ^ ((at >> 7) & (span / 16 - 1)) << 4
    };
    let mut image = Vec::new();
    for (i, j) in (0..mn).flat_map(|i| (0..k).map(move |j| (i, j))) {
        let at = place(i, j);
        if image.len() < at + bytes {
            image.resize(at + bytes, 0);
        }
        image[at..at + bytes].copy_from_slice(&element(i, j).to_le_bytes()[..bytes]);
    }
    image.resize(image.len().next_multiple_of(512), 0);
    let descriptor = Descriptor { start: 0, leading: leading as u32, stride: stride as u32, swizzle };
    Placed { image, descriptor, major }
}

impl Placed {
    fn factor(&self, b: &mut Builder, offset: u32) -> Factor {
        let bits = self.descriptor.encode();
        let base = b.window(i64::from(offset));
        let address = b.add(base.base, imm(i64::from(base.offset)));
        let start = b.op(ScalarOp::ShrU32, address, 4);
        let low = b.op(ScalarOp::OrB32, start, i64::from(bits as u32));
        Factor::Shared { descriptor: DescriptorValue { low, high: (bits >> 32) as u32 }, major: self.major }
    }
}

pub(crate) fn registers(array: ArrayId, count: u32) -> Vec<Reg> {
    (0..count).map(|i| reg(array, i)).collect()
}

/// Loads a word a thread for each register from `param`, thread fastest.
pub(crate) fn fetch(b: &mut Builder, param: u32, regs: &[Reg], threads: i64) {
    let t = b.thread();
    for (i, reg) in regs.iter().enumerate() {
        let index = b.add(t, imm(threads * i as i64));
        let address = b.pointer(param, index, 4);
        b.load(transfer(Memory::Global, Memory::Register, 4), vec![*reg], at(address, 0), None);
    }
}

pub(crate) fn put(b: &mut Builder, param: u32, regs: &[Reg], threads: i64) {
    let t = b.thread();
    for (i, reg) in regs.iter().enumerate() {
        let index = b.add(t, imm(threads * i as i64));
        let address = b.pointer(param, index, 4);
        b.store(transfer(Memory::Register, Memory::Global, 4), vec![*reg], at(address, 0), None);
    }
}

/// Copies a buffer to shared memory, 16 bytes a thread at a time.
pub(crate) fn stage(b: &mut Builder, param: u32, offset: u32, bytes: usize, threads: i64) {
    let t = b.thread();
    let array = b.add_array("staged", 4);
    let regs = registers(array, 4);
    b.for_loop::<()>(t, imm(bytes as i64 / 16), imm(threads), |b, i| {
        let from = b.pointer(param, i.into(), 16);
        b.load(transfer(Memory::Global, Memory::Register, 16), regs.clone(), at(from, 0), None);
        let to = b.mul(i.into(), 16);
        let to = b.shared(to);
        b.store(transfer(Memory::Register, Memory::Shared, 16), regs.clone(), at(to, offset as i32), None);
        Ok(())
    })
    .unwrap();
}

/// A small number of a type, as bits.
pub(crate) fn small(dtype: DType, next: &mut impl FnMut() -> u32) -> u32 {
    let x = f64::from(next() % 9) - 4.0;
    dtype.encode(if dtype == DType::U8 { x + 4.0 } else { x }) as u32
}

/// The words of a fragment, thread fastest, whose element at tile position `p` is `element(p)`.
pub(crate) fn fragment(
    tv: &tilewright_layout::Layout,
    dtype: DType,
    element: impl Fn(usize) -> u32,
) -> Vec<u8> {
    let per = (32 / dtype.bits()) as i64;
    let mut words = Vec::new();
    for register in 0..tv.size() / 128 / per {
        for thread in 0..128 {
            let values = (0..per).map(|v| {
                element(tv.eval(thread + 128 * (register * per + v)) as usize) << (dtype.bits() * v as u32)
            });
            words.extend(values.fold(0u32, |word, v| word | v).to_le_bytes());
        }
    }
    words
}

/// The places of the elements of a group, some pair of each kind.
pub(crate) fn pair(m: usize, group: usize) -> [usize; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][(m + 2 * group) % 6]
}

/// Registers of metadata, those of each warp for its 16 rows: of 16-bit types a lane has four groups of two rows, of 8-bit types eight groups of
/// one (CUTLASS' `ELayout_64x32` and `ELayout_64x64`).
fn metadata(row: &WgmmaRow) -> Vec<u32> {
    let word = |thread: usize| {
        let (first, group, of_four) = (thread / 32 * 16, thread % 32 / 4, thread % 4);
        (0..8).fold(0, |word, i| {
            let (m, at) = match row.a.bits() {
                16 if of_four > 1 => return 0,
                16 => (group + i / 4 * 8, 4 * of_four + i % 4),
                _ => (group + of_four % 2 * 8, of_four / 2 * 8 + i),
            };
            let [low, high] = pair(first + m, at).map(|place| place as u32);
            word | (low | high << 2) << (4 * i)
        })
    };
    (0..128).map(word).collect()
}

/// One case: a row, the majors and swizzles of both factors (`None`: A is in registers).
fn product(
    row: &'static WgmmaRow,
    a: Option<(Major, SwizzleMode)>,
    b_at: (Major, SwizzleMode),
    accumulate: bool,
) {
    let (n, k, columns) = (row.n as usize, row.k as usize, row.a_columns() as usize);
    let mut next = random(row.n as u64 * 7 + row.k as u64);
    let ea: Vec<u32> = (0..64 * columns).map(|_| small(row.a, &mut next)).collect();
    let mut eb: Vec<u32> = (0..n * k).map(|_| small(row.b, &mut next)).collect();
    if row.sparsity.is_some() && row.b.is_float() {
        // A column that some rows of A leave out holds no numbers: it is in no term of theirs.
        eb[n..2 * n].fill(row.b.encode(f64::NAN) as u32);
    }
    let ec: Vec<u32> = (0..64 * n).map(|_| small(row.c, &mut next)).collect();
    let a_image = match a {
        Some((major, swizzle)) => placed(row.a, (64, columns), major, swizzle, |m, kk| ea[m + 64 * kk]),
        None => Placed {
            image: fragment(&row.a_tv, row.a, |p| ea[p]),
            descriptor: Descriptor::decode(0),
            major: Major::K,
        },
    };
    let b_image = placed(row.b, (n, k), b_at.0, b_at.1, |i, kk| eb[i + n * kk]);
    let c_image = fragment(&row.c_tv, row.c, |p| ec[p]);
    let mut f = builder(128);
    let [pa, pb, pc, pd] = ["a", "b", "c", "d"].map(|name| f.pointer_param(name));
    f.add_shared_at("a", A, a_image.image.len() as u32);
    f.add_shared_at("b", B, b_image.image.len() as u32);
    let (ra, rd) = row.registers();
    let (fa, fd) = (f.add_array("a", ra), f.add_array("d", rd));
    let (fa, fd) = (registers(fa, ra), registers(fd, rd));
    let left = match a {
        Some(_) => {
            stage(&mut f, pa, A, a_image.image.len(), 128);
            a_image.factor(&mut f, A)
        }
        None => {
            fetch(&mut f, pa, &fa, 128);
            Factor::Registers(fa.clone())
        }
    };
    stage(&mut f, pb, B, b_image.image.len(), 128);
    f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    f.sync(SyncOp::Barrier);
    fetch(&mut f, pc, &fd, 128);
    let right = b_image.factor(&mut f, B);
    let fm = f.add_array("meta", 1);
    let meta = registers(fm, 1);
    if row.sparsity.is_some() {
        let pm = f.pointer_param("meta");
        fetch(&mut f, pm, &meta, 128);
    }
    let accumulates = Operand::Imm(u64::from(accumulate));
    f.sync(SyncOp::WgmmaFence);
    match row.sparsity {
        Some(_) => f.sparse_wgmma(row, fd.clone(), (left, meta[0]), right, accumulates),
        None => f.wgmma(row, fd.clone(), left, right, accumulates),
    }
    f.sync(SyncOp::WgmmaCommit);
    f.sync(SyncOp::WgmmaWait(0));
    put(&mut f, pd, &fd, 128);
    let f = f.finish();
    let mut memory = GlobalMemory::new();
    let images = [&a_image.image, &b_image.image, &c_image];
    let mut args = Vec::new();
    for image in images {
        let id = memory.alloc(image.len());
        memory.write(id, image);
        args.push(Argument::Buffer(id));
    }
    let out = memory.alloc(c_image.len());
    args.push(Argument::Buffer(out));
    if row.sparsity.is_some() {
        let words: Vec<u8> = metadata(row).iter().flat_map(|word| word.to_le_bytes()).collect();
        let id = memory.alloc(words.len());
        memory.write(id, &words);
        args.push(Argument::Buffer(id));
    }
    let report = run(&f, [1, 1, 1], &memory, &args, &seeded(row.n as u64 % 3)).unwrap();
    let what = format!("{} {a:?} {b_at:?}", row.name);
    assert!(report.is_clean(), "{what}: {:?}", report.problems());
    assert_eq!(report.wgmma_count, 1);
    let wanted = fragment(&row.c_tv, row.c, |p| {
        let (m, i) = (p % 64, p / 64);
        let of = |kk: usize| if columns < k { kk / 2 * 4 + pair(m, kk / 2)[kk % 2] } else { kk };
        let terms = (0..columns).map(|kk| row.a.decode(ea[m + 64 * kk]) * row.b.decode(eb[i + n * of(kk)]));
        // Small whole numbers: every sum is exact.
        row.c.encode(terms.sum::<f64>() + if accumulate { row.c.decode(ec[p]) } else { 0.0 }) as u32
    });
    let same = |(x, y): (&[u8], &[u8])| {
        let bits = |word: &[u8]| word.iter().rev().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        x == y || row.c.is_float() && row.c.decode(bits(x)).is_nan() && row.c.decode(bits(y)).is_nan()
    };
    let size = row.c.bits() as usize / 8;
    let out = memory.read(out);
    assert!(out.chunks_exact(size).zip(wanted.chunks_exact(size)).all(same), "{what}");
}

#[test]
fn products_of_every_type_major_and_swizzle_are_those_of_plain_loops() {
    for row in wgmma_rows() {
        if !matches!(row.n, 8 | 24 | 112 | 256) {
            continue;
        }
        let majors: &[Major] = if row.takes_mn_major() { &[Major::K, Major::Mn] } else { &[Major::K] };
        let places: Vec<_> =
            majors.iter().flat_map(|major| SwizzleMode::ALL.map(|swizzle| (*major, swizzle))).collect();
        for (i, place) in places.iter().enumerate() {
            // 64 bytes of a row do not lie within a span of 32.
            if row.sparsity.is_some() && *place == (Major::K, SwizzleMode::B32) {
                continue;
            }
            product(row, Some(places[(i + 3) % places.len()]), *place, i % 2 == 0);
            product(row, None, *place, i % 2 == 1);
        }
    }
}

/// A kernel that forms a product of two tiles which it has staged; `body` has the fragments and both factors.
fn staged(
    threads: u32,
    body: impl FnOnce(&mut Builder, &[Reg], &[Reg], &Factor, &Factor),
) -> tilewright_simt::Function {
    let row = halves();
    let place = |mn| placed(DType::F16, (mn, 16), Major::K, SwizzleMode::B32, |_, _| 0x3c00);
    let (a, b) = (place(64), place(8));
    let mut f = builder(threads);
    let [pa, pb] = ["a", "b"].map(|name| f.pointer_param(name));
    f.add_shared_at("a", A, a.image.len() as u32);
    f.add_shared_at("b", B, b.image.len() as u32);
    f.set_origin("stage");
    stage(&mut f, pa, A, a.image.len(), i64::from(threads));
    stage(&mut f, pb, B, b.image.len(), i64::from(threads));
    let (ra, rd) = row.registers();
    let (fa, fd) = (f.add_array("left", ra), f.add_array("acc", rd));
    let (a, b) = (a.factor(&mut f, A), b.factor(&mut f, B));
    body(&mut f, &registers(fd, rd), &registers(fa, ra), &a, &b);
    f.finish()
}

fn halves() -> &'static WgmmaRow {
    wgmmas(DType::F16, DType::F16, DType::F32, false).find(|r| r.n == 8).unwrap()
}

fn run_staged(f: &tilewright_simt::Function, seed: u64) -> Result<Report, SimError> {
    let mut memory = GlobalMemory::new();
    let args = [memory.alloc(4096), memory.alloc(4096)].map(Argument::Buffer);
    run(f, [1, 1, 1], &memory, &args, &seeded(seed))
}

fn ready(b: &mut Builder) {
    b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    b.sync(SyncOp::Barrier);
}

fn one(b: &mut Builder, d: &[Reg], left: Factor, right: &Factor) {
    b.set_origin("product");
    b.wgmma(halves(), d.to_vec(), left, right.clone(), Operand::Imm(0));
}

#[test]
fn registers_belong_to_a_product_until_its_wait() {
    type Body = fn(&mut Builder, &[Reg], &[Reg], &Factor, &Factor);
    let read: Body = |b, d, _, x, y| {
        b.sync(SyncOp::WgmmaFence);
        one(b, d, x.clone(), y);
        b.sync(SyncOp::WgmmaCommit);
        b.set_origin("early");
        let _ = b.read(d[1]);
        b.sync(SyncOp::WgmmaWait(0));
    };
    let write: Body = |b, d, _, x, y| {
        b.sync(SyncOp::WgmmaFence);
        one(b, d, x.clone(), y);
        b.sync(SyncOp::WgmmaCommit);
        b.set_origin("early");
        b.write(d[3], imm(0));
        b.sync(SyncOp::WgmmaWait(0));
    };
    let left: Body = |b, d, a, _, y| {
        a.iter().for_each(|r| b.write(*r, imm(0)));
        b.sync(SyncOp::WgmmaFence);
        one(b, d, Factor::Registers(a.to_vec()), y);
        b.sync(SyncOp::WgmmaCommit);
        let _ = b.read(a[0]);
        b.set_origin("early");
        b.write(a[0], imm(0));
        b.sync(SyncOp::WgmmaWait(0));
    };
    let uncommitted: Body = |b, d, _, x, y| {
        b.sync(SyncOp::WgmmaFence);
        one(b, d, x.clone(), y);
        b.sync(SyncOp::WgmmaWait(0));
        b.set_origin("early");
        let _ = b.read(d[0]);
    };
    let second: Body = |b, d, _, x, y| {
        b.sync(SyncOp::WgmmaFence);
        for _ in 0..2 {
            one(b, d, x.clone(), y);
            b.sync(SyncOp::WgmmaCommit);
        }
        b.sync(SyncOp::WgmmaWait(1));
        b.set_origin("early");
        let _ = b.read(d[0]);
    };
    for (body, words) in [
        (read, "register 1 of `acc` is read while the wgmma in `product` owns it"),
        (write, "register 3 of `acc` is written while the wgmma in `product` owns it"),
        (left, "register 0 of `left` is written while"),
        (uncommitted, "register 0 of `acc` is read while"),
        (second, "register 0 of `acc` is read while"),
    ] {
        let f = staged(128, |b, d, a, x, y| {
            ready(b);
            body(b, d, a, x, y);
        });
        for seed in 0..5 {
            let problems = run_staged(&f, seed).unwrap().problems();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(words) && problems[0].contains("`early`"), "{problems:?}");
        }
    }
}

#[test]
fn fences_are_wanted_where_ordinary_code_has_written() {
    for (first, between, clean) in [(true, false, true), (false, false, false), (true, true, false)] {
        let f = staged(128, |b, d, _, x, y| {
            ready(b);
            if first {
                b.sync(SyncOp::WgmmaFence);
            }
            if between {
                b.write(d[2], imm(0));
            }
            one(b, d, x.clone(), y);
            b.sync(SyncOp::WgmmaCommit);
            b.sync(SyncOp::WgmmaWait(0));
        });
        let problems = run_staged(&f, 0).unwrap().problems();
        assert_eq!(problems.is_empty(), clean, "{problems:?}");
        assert!(clean || problems[0].contains("has no wgmma.fence between"), "{problems:?}");
    }
}

#[test]
fn operands_are_fenced_ordered_and_left_alone() {
    let whole = |b: &mut Builder, d: &[Reg], x: &Factor, y: &Factor| {
        b.sync(SyncOp::WgmmaFence);
        one(b, d, x.clone(), y);
        b.sync(SyncOp::WgmmaCommit);
    };
    let overwrite = |b: &mut Builder| {
        b.set_origin("overwrite");
        b.only(0, |b| b.store_shared(imm(i64::from(A)), imm(0)));
    };
    for seed in 0..5 {
        let kinds = |f: &tilewright_simt::Function| -> Vec<RaceKind> {
            let report = run_staged(f, seed).unwrap();
            let mut kinds: Vec<_> = report.races.iter().map(|r| r.kind).collect();
            kinds.dedup();
            kinds
        };
        let f = staged(128, |b, d, _, x, y| {
            b.sync(SyncOp::Barrier);
            whole(b, d, x, y);
            b.sync(SyncOp::WgmmaWait(0));
        });
        assert_eq!(kinds(&f), [RaceKind::MissingProxyFence]);
        // Fenced behind the barrier: by threads that know of the writes, in the right space.
        for (fence, wanted) in [
            (ProxyFence::Shared, &[][..]),
            (ProxyFence::SharedCluster, &[]),
            (ProxyFence::All, &[]),
            (ProxyFence::Global, &[RaceKind::MissingProxyFence]),
        ] {
            let f = staged(128, |b, d, _, x, y| {
                b.sync(SyncOp::Barrier);
                b.sync(SyncOp::FenceProxyAsync(fence));
                whole(b, d, x, y);
                b.sync(SyncOp::WgmmaWait(0));
            });
            assert_eq!(kinds(&f), wanted, "{fence:?}");
        }
        let f = staged(128, |b, d, _, x, y| {
            b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            whole(b, d, x, y);
            b.sync(SyncOp::WgmmaWait(0));
        });
        assert_eq!(kinds(&f), [RaceKind::ReadWrite]);
        for wait in [true, false] {
            let f = staged(128, |b, d, _, x, y| {
                ready(b);
                whole(b, d, x, y);
                if wait {
                    b.sync(SyncOp::WgmmaWait(0));
                }
                overwrite(b);
            });
            assert_eq!(kinds(&f), if wait { vec![] } else { vec![RaceKind::AsyncRead] });
        }
    }
}

#[test]
fn a_warpgroup_acts_together() {
    let whole = |b: &mut Builder, d: &[Reg], x: &Factor, y: &Factor| {
        b.sync(SyncOp::WgmmaFence);
        one(b, d, x.clone(), y);
        b.sync(SyncOp::WgmmaCommit);
        b.sync(SyncOp::WgmmaWait(0));
    };
    // One of two warpgroups.
    let f = staged(256, |b, d, _, x, y| {
        ready(b);
        let t = b.thread();
        let second = b.op(ScalarOp::GeI32, t, 128);
        b.branch(value(second), |b| whole(b, d, x, y), |_| {});
    });
    let report = run_staged(&f, 0).unwrap();
    assert!(report.is_clean() && report.wgmma_count == 1, "{:?}", report.problems());
    // Three of four warps.
    let f = staged(128, |b, d, _, x, y| {
        ready(b);
        let t = b.thread();
        let some = b.op(ScalarOp::LtI32, t, 96);
        b.branch(value(some), |b| whole(b, d, x, y), |_| {});
    });
    for seed in 0..5 {
        let error = run_staged(&f, seed).unwrap_err();
        let known = matches!(error, SimError::DivergentWarpgroup { .. } | SimError::Deadlock { .. });
        assert!(known && error.to_string().contains("product"), "{error}");
    }
    // A part of a warp.
    let f = staged(128, |b, d, _, x, y| {
        ready(b);
        let t = b.thread();
        let some = b.op(ScalarOp::LtI32, t, 100);
        b.branch(value(some), |b| whole(b, d, x, y), |_| {});
    });
    assert!(matches!(run_staged(&f, 0), Err(SimError::DivergentCollective { .. })));
    // A descriptor that is not the same in all threads; one that leads outside.
    for (by_thread, words) in [(true, "pass different operands"), (false, "out of bounds")] {
        let f = staged(128, |b, d, _, x, y| {
            ready(b);
            let Factor::Shared { descriptor, major } = x else { return };
            let t = b.thread();
            let shift = if by_thread { b.op(ScalarOp::AndB32, t, 1) } else { imm(0x1000) };
            let low = b.add(descriptor.low, shift);
            let x = Factor::Shared { descriptor: DescriptorValue { low, ..*descriptor }, major: *major };
            whole(b, d, &x, y);
        });
        let problems = run_staged(&f, 0).unwrap().problems().join("\n");
        assert!(problems.contains(words), "{problems}");
    }
}

#[test]
fn a_factor_of_32_bits_has_19() {
    let row = wgmmas(DType::F32, DType::F32, DType::F32, false).find(|r| r.n == 8).unwrap();
    let b_image = placed(DType::F32, (8, 8), Major::K, SwizzleMode::B32, |n, k| {
        if n == k { (1.0f32 + f32::EPSILON * 8191.0).to_bits() } else { 0 }
    });
    let mut f = builder(128);
    let [pb, pd] = ["b", "d"].map(|name| f.pointer_param(name));
    f.add_shared_at("b", B, b_image.image.len() as u32);
    stage(&mut f, pb, B, b_image.image.len(), 128);
    ready(&mut f);
    let (a, d) = (f.add_array("a", 4), f.add_array("d", 4));
    let (a, d) = (registers(a, 4), registers(d, 4));
    let ugly = (3.0f32).to_bits() | 0x1fff;
    a.iter().for_each(|r| f.write(*r, imm(i64::from(ugly))));
    let right = b_image.factor(&mut f, B);
    f.sync(SyncOp::WgmmaFence);
    f.wgmma(row, d.clone(), Factor::Registers(a), right, Operand::Imm(0));
    f.sync(SyncOp::WgmmaCommit);
    f.sync(SyncOp::WgmmaWait(0));
    put(&mut f, pd, &d, 128);
    let mut memory = GlobalMemory::new();
    let ids = [memory.alloc(b_image.image.len()), memory.alloc(2048)];
    memory.write(ids[0], &b_image.image);
    let report =
        run(&f.finish(), [1, 1, 1], &memory, &ids.map(Argument::Buffer), &Config::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems());
    assert!(words_of(&memory.read(ids[1])).iter().all(|w| *w == 3.0f32.to_bits()));
}
