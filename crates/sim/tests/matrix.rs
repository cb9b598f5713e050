//! Matrix copies and products against the formulas of the PTX manual, written down again here.

use crate::common::*;
use half::{bf16, f16};
use tilewright_machine::{Arch, DType, MmaRow, ScalarOp, SyncOp, mma_rows};
use tilewright_sim::{Config, GlobalMemory, Report};
use tilewright_simt::{Builder, Reg, ScaleBytes};

/// Row and column in its 8×8 matrix of the element that `lane` holds in half `half` of a register.
fn element(lane: usize, half: usize, trans: bool) -> (usize, usize) {
    let (a, b) = (lane / 4, 2 * (lane % 4) + half);
    if trans { (b, a) } else { (a, b) }
}

#[test]
fn ldmatrix_gives_each_lane_what_the_manual_says() {
    for (count, trans) in [(1, false), (2, false), (4, false), (1, true), (2, true), (4, true)] {
        let name = format!("ldmatrix.x{count}{}", if trans { ".trans" } else { "" });
        let mut b = builder(32);
        let out = b.pointer_param("out");
        b.add_shared("s", 1024, 16);
        let t = b.thread();
        // Two elements a word, numbered in memory order.
        for i in 0..8 {
            let word = b.add(t, imm(32 * i));
            let low = b.mul(word, 2);
            let high = b.add(low, imm(1));
            let high = b.op(ScalarOp::ShlB32, high, 16);
            let packed = b.scalar(ScalarOp::OrB32, &[low, high]);
            let offset = b.mul(word, 4);
            b.store_shared(offset, packed);
        }
        b.sync(SyncOp::Barrier);
        // Rows of matrices lie in reverse order of memory, so that addresses matter.
        let reversed = b.op(ScalarOp::XorB32, t, 31);
        let offset = b.mul(reversed, 16);
        let address = b.shared(offset);
        let array = b.add_array("a", count);
        b.matrix(row(&name), (0..count).map(|i| reg(array, i)).collect(), at(address, 512));
        for i in 0..count {
            let got = b.read(reg(array, i));
            let index = b.add(t, imm(32 * i64::from(i)));
            b.store_global(out, index, got);
        }
        let (report, words) = run_block(&b.finish(), &[], 32 * count as usize);
        assert!(report.is_clean(), "{name} {:?}", report.problems());
        for (i, word) in words.iter().enumerate() {
            let (matrix, lane) = (i / 32, i % 32);
            for half in 0..2 {
                let (r, c) = element(lane, half, trans);
                let address_lane = 8 * matrix + r;
                let expected = 256 + 8 * (31 - address_lane) + c;
                assert_eq!((word >> (16 * half)) & 0xffff, expected as u32, "{name} {i} {half}");
            }
        }
    }
}

#[test]
fn stmatrix_puts_each_element_where_the_manual_says() {
    for (count, trans) in [(1, false), (2, false), (4, false), (1, true), (2, true), (4, true)] {
        let name = format!("stmatrix.x{count}{}", if trans { ".trans" } else { "" });
        let mut b = builder(32);
        let out = b.pointer_param("out");
        b.add_shared("s", 128 * count, 16);
        let t = b.thread();
        let array = b.add_array("a", count);
        for i in 0..count {
            // Elements are numbered (register, lane, half).
            let low = b.mul(t, 2);
            let low = b.add(low, imm(64 * i64::from(i)));
            let high = b.add(low, imm(1));
            let high = b.op(ScalarOp::ShlB32, high, 16);
            let packed = b.scalar(ScalarOp::OrB32, &[low, high]);
            b.write(reg(array, i), packed);
        }
        let offset = b.mul(t, 16);
        let address = b.shared(offset);
        b.matrix(row(&name), (0..count).map(|i| reg(array, i)).collect(), at(address, 0));
        b.sync(SyncOp::Barrier);
        for i in 0..count {
            let index = b.add(t, imm(32 * i64::from(i)));
            let offset = b.mul(index, 4);
            let got = b.load_shared(offset);
            b.store_global(out, index, got);
        }
        let (report, words) = run_block(&b.finish(), &[], 32 * count as usize);
        assert!(report.is_clean(), "{name} {:?}", report.problems());
        for matrix in 0..count as usize {
            for lane in 0..32 {
                for half in 0..2 {
                    let (r, c) = element(lane, half, trans);
                    let at = 64 * matrix + 8 * r + c;
                    let got = (words[at / 2] >> (16 * (at % 2))) & 0xffff;
                    assert_eq!(got as usize, 64 * matrix + 2 * lane + half, "{name}");
                }
            }
        }
    }
}

#[test]
fn a_matrix_load_needs_a_barrier_even_from_its_own_thread() {
    for barrier in [false, true] {
        let mut b = builder(32);
        b.add_shared("s", 1024, 16);
        let t = b.thread();
        let offset = b.mul(t, 16);
        for i in 0..4 {
            let at = b.add(offset, imm(4 * i));
            b.store_shared(at, t);
        }
        if barrier {
            b.sync(SyncOp::WarpBarrier);
        }
        let address = b.shared(offset);
        let array = b.add_array("a", 4);
        b.matrix(row("ldmatrix.x4"), (0..4).map(|i| reg(array, i)).collect(), at(address, 0));
        let report = run_with(&b.finish(), &GlobalMemory::new(), &[], &Config::default()).unwrap();
        assert_eq!(report.is_clean(), barrier);
        assert_eq!(report.races.len(), usize::from(!barrier));
    }
}

#[test]
fn an_unswizzled_ldmatrix_conflicts() {
    let mut b = builder(32);
    b.add_shared("s", 4096, 16);
    let t = b.thread();
    let offset = b.mul(t, 128);
    let address = b.shared(offset);
    let array = b.add_array("a", 4);
    b.matrix(row("ldmatrix.x4"), (0..4).map(|i| reg(array, i)).collect(), at(address, 0));
    let report = run_with(&b.finish(), &GlobalMemory::new(), &[], &Config::default()).unwrap();
    assert_eq!((report.shared_wavefronts, report.shared_conflicts), (32, 28));
}

/// Fragments of `mma.m16n8` with `PER` elements in a register, from the manual's figures: group = lane / 4, thread = lane % 4.
fn a_position<const PER: usize>(lane: usize, v: usize) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    let row = group + 8 * (v / PER % 2);
    (row, PER * thread + v % PER + if v < 2 * PER { 0 } else { 4 * PER })
}
fn b_position<const PER: usize>(lane: usize, v: usize) -> (usize, usize) {
    (lane / 4, PER * (lane % 4) + v % PER + v / PER * 4 * PER)
}
fn c_position(lane: usize, v: usize) -> (usize, usize) {
    (lane / 4 + if v < 2 { 0 } else { 8 }, 2 * (lane % 4) + v % 2)
}

/// The places of elements of `f64` in the factors: a lane has one of every four along K (PTX ISA 8.0, figures of `.f64` fragments).
fn wide_a_position(lane: usize, v: usize) -> (usize, usize) {
    (lane / 4 + 8 * (v % 2), lane % 4 + 4 * (v / 2))
}

fn wide_b_position(lane: usize, v: usize) -> (usize, usize) {
    (lane / 4, lane % 4 + 4 * v)
}

/// Places of the elements of A, B and C of a row.
type Positions = [fn(usize, usize) -> (usize, usize); 3];

fn positions(row: &MmaRow) -> Positions {
    match (row.a, row.m) {
        (DType::F64, 8) => [wide_b_position, wide_b_position, c_position],
        (DType::F64, _) => [wide_a_position, wide_b_position, c_position],
        _ => match row.a.bits() {
            32 => [a_position::<1>, b_position::<1>, c_position],
            16 => [a_position::<2>, b_position::<2>, c_position],
            8 => [a_position::<4>, b_position::<4>, c_position],
            4 => [a_position::<8>, b_position::<8>, c_position],
            _ => [a_position::<32>, b_position::<32>, c_position],
        },
    }
}

fn encode(dtype: DType, x: f64) -> u32 {
    match dtype {
        DType::F16 => u32::from(f16::from_f64(x).to_bits()),
        DType::BF16 => u32::from(bf16::from_f64(x).to_bits()),
        DType::F32 => (x as f32).to_bits(),
        _ => dtype.encode(x) as u32,
    }
}

/// Packs fragments: `registers` words a lane, lane-major.
fn pack(
    registers: u32,
    dtype: DType,
    position: fn(usize, usize) -> (usize, usize),
    element: impl Fn(usize, usize) -> f64,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if dtype == DType::F64 {
        for (lane, value) in (0..32).flat_map(|lane| (0..registers as usize / 2).map(move |v| (lane, v))) {
            let (row, column) = position(lane, value);
            bytes.extend(element(row, column).to_le_bytes());
        }
        return bytes;
    }
    let per = (32 / dtype.bits()) as usize;
    for lane in 0..32 {
        for r in 0..registers as usize {
            let mut word = 0;
            for i in 0..per {
                let (row, column) = position(lane, per * r + i);
                word |= encode(dtype, element(row, column)) << (i as u32 * dtype.bits());
            }
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

fn product(row: &'static MmaRow, a: &[u8], b_bytes: &[u8], c: &[u8]) -> Vec<u32> {
    let (report, words) = sparse_product(row, [a, b_bytes, c], &[]);
    assert!(report.is_clean());
    words
}

/// A product whose lanes have these registers of metadata; none for a dense one.
fn sparse_product(row: &'static MmaRow, fragments: [&[u8]; 3], meta: &[u32]) -> (Report, Vec<u32>) {
    let words = bytes_of(meta);
    let beside = if meta.is_empty() { Vec::new() } else { vec![&words[..]] };
    run_product(row, fragments, &beside, |b, [d, x, y], registers| match registers {
        [] => b.mma(row, d, x, y),
        registers => b.sparse_mma(row, d, x, y, registers[0]),
    })
}

/// A product whose lanes have these registers of scales of A and of B, from a byte on.
fn scaled_product(
    row: &'static MmaRow,
    fragments: [&[u8]; 3],
    scales: [&[u32]; 2],
    byte: u32,
) -> (Report, Vec<u32>) {
    let words = scales.map(bytes_of);
    run_product(row, fragments, &[&words[0], &words[1]], |b, [d, x, y], registers| {
        let scales = [0, 1].map(|i| ScaleBytes { register: registers[i], byte });
        b.scaled_mma(row, d, [x, y], scales);
    })
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A product that `emit` writes, of fragments and of a register beside them for each list of words.
fn run_product(
    row: &'static MmaRow,
    fragments: [&[u8]; 3],
    beside: &[&[u8]],
    emit: impl FnOnce(&mut Builder, [Vec<Reg>; 3], &[Reg]),
) -> (Report, Vec<u32>) {
    let inputs = fragments;
    let counts = row.registers();
    let arch = if Arch::SM_90A.has(row.needs) { Arch::SM_90A } else { Arch::SM_120A };
    let mut b = Builder::new("test", arch, 32);
    let t = b.thread();
    let load = transfer(tilewright_machine::Memory::Global, tilewright_machine::Memory::Register, 4);
    let store = transfer(tilewright_machine::Memory::Register, tilewright_machine::Memory::Global, 4);
    let mut fragments = Vec::new();
    for (name, count) in [("a", counts.0), ("b", counts.1), ("c", counts.2)] {
        let param = b.pointer_param(name);
        let array = b.add_array(name, count);
        let address = b.pointer(param, t, 4 * i64::from(count));
        for i in 0..count {
            b.load(load, vec![reg(array, i)], at(address, 4 * i as i32), None);
        }
        fragments.push((0..count).map(|i| reg(array, i)).collect::<Vec<_>>());
    }
    let [left, right, sums] = [0, 1, 2].map(|i| fragments[i].clone());
    let mut registers = Vec::new();
    for i in 0..beside.len() {
        let name = format!("beside{i}");
        let (param, array) = (b.pointer_param(&name), b.add_array(name, 1));
        let address = b.pointer(param, t, 4);
        b.load(load, vec![reg(array, 0)], at(address, 0), None);
        registers.push(reg(array, 0));
    }
    emit(&mut b, [sums, left, right], &registers);
    let out = b.pointer_param("out");
    let address = b.pointer(out, t, 4 * i64::from(counts.2));
    for (i, r) in fragments[2].iter().enumerate() {
        b.store(store, vec![*r], at(address, 4 * i as i32), None);
    }
    let all = inputs.into_iter().chain(beside.iter().copied()).collect::<Vec<_>>();
    let (report, words) = run_block(&b.finish(), &all, 32 * counts.2 as usize);
    assert_eq!(report.mma_count, 1);
    (report, words)
}

/// The places of the elements of a group, some pair of each kind.
fn pair(m: usize, group: usize) -> [usize; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][(m + 2 * group) % 6]
}

/// Registers of metadata by the figures of the PTX ISA (section 9.7.14.6.2): of 16-bit types a lane has four groups of two rows, of 8-bit types
/// eight groups of one; lanes that are not read have what is no metadata.
fn metadata(row: &MmaRow) -> Vec<u32> {
    let bits = |m: usize, group: usize| pair(m, group).map(|place| place as u32);
    let nibble = |m: usize, group: usize| bits(m, group)[0] | bits(m, group)[1] << 2;
    let word = |lane: usize| {
        let (group, of_four) = (lane / 4, lane % 4);
        (0..8).fold(0, |word, i| {
            let (m, at) = match (row.a.bits(), row.k) {
                (16, 32) if of_four < 2 => (group + i / 4 * 8, 4 * of_four + i % 4),
                (16, 16) if of_four < 1 => (group + i / 4 * 8, i % 4),
                (8, 64) => (group + of_four % 2 * 8, of_four / 2 * 8 + i),
                (8, 32) if of_four < 2 => (group + of_four * 8, i),
                _ => return 0,
            };
            word | nibble(m, at) << (4 * i)
        })
    };
    (0..32).map(word).collect()
}

#[test]
fn products_are_those_of_plain_loops() {
    for row in mma_rows().iter().filter(|row| row.scaling.is_none()) {
        let (counts, [of_a, of_b, of_c]) = (row.registers(), positions(row));
        // Small integers: every sum is exact in every type.
        let [least, most] =
            row.a.range().map_or([-3.0, 3.0], |(least, most)| [least, most].map(|x| x as f64));
        let a = |m: usize, k: usize| (((m * 7 + k * 3) % 5) as f64 + least.max(-2.0)).min(most);
        let b = |n: usize, k: usize| (((n * 5 + k * 11) % 7) as f64 + least.max(-3.0)).min(most);
        let c = |m: usize, n: usize| (m * 8 + n) as f64;
        let fragments =
            [pack(counts.0, row.a, of_a, a), pack(counts.1, row.b, of_b, b), pack(counts.2, row.c, of_c, c)];
        let sparse = row.sparsity.is_some();
        let meta = if sparse { metadata(row) } else { Vec::new() };
        let (report, words) = sparse_product(row, fragments.each_ref().map(|bytes| &bytes[..]), &meta);
        assert!(report.is_clean(), "{}: {:?}", row.name, report.problems());
        // The column of B that one of A belongs to.
        let of = |m: usize, k: usize| if sparse { k / 2 * 4 + pair(m, k / 2)[k % 2] } else { k };
        let expected = pack(counts.2, row.c, of_c, |m, n| {
            c(m, n) + (0..row.a_columns() as usize).map(|k| a(m, k) * b(n, of(m, k))).sum::<f64>()
        });
        assert_eq!(words, words_of(&expected), "{}", row.name);
    }
}

/// A fragment of codes: `registers` words a lane, lane-major.
fn pack_codes(
    registers: u32,
    bits: u32,
    position: fn(usize, usize) -> (usize, usize),
    code: impl Fn(usize, usize) -> u32,
) -> Vec<u8> {
    let per = (32 / bits) as usize;
    let places = (0..32).flat_map(|lane| (0..registers as usize).map(move |r| (lane, r)));
    let word = |(lane, r): (usize, usize)| {
        (0..per).fold(0, |word, i| {
            let (row, column) = position(lane, per * r + i);
            word | code(row, column) << (i as u32 * bits)
        })
    };
    places.flat_map(|place| word(place).to_le_bytes()).collect()
}

/// Registers of scales by the figures of the PTX ISA (section 9.7.14.3): of A the first two lanes of each four have those of a row each, 8 apart, of
/// B the first one has those of a column; what is not read has other bits.
fn scale_words(right: bool, byte: u32, blocks: usize, code: impl Fn(usize, usize) -> u32) -> Vec<u32> {
    let word = |lane: usize| {
        let (group, of_four) = (lane / 4, lane % 4);
        let row = match (right, of_four) {
            (false, 0 | 1) => group + 8 * of_four,
            (true, 0) => group,
            _ => return 0xc3c3_c3c3,
        };
        (0..blocks).fold(0xc3c3_c3c3, |word, block| {
            let shift = 8 * (byte + block as u32);
            word & !(0xff << shift) | code(row, block) << shift
        })
    };
    (0..32).map(word).collect()
}

#[test]
fn block_scaled_products_are_sums_of_products_of_scaled_values() {
    for row in mma_rows() {
        let Some(scaling) = &row.scaling else { continue };
        let (counts, [of_a, of_b, of_c]) = (row.registers(), positions(row));
        let (k, block) = (row.k as usize, scaling.block as usize);
        let blocks = k / block;
        let codes = 1 << row.a.bits();
        // Every code of scales and of elements; the last launch has NaNs among its scales.
        let launches = 256 / (16 * blocks);
        for launch in 0..launches {
            let byte = (launch % (4 / blocks) * blocks) as u32;
            let a = |m: usize, k: usize| ((37 * launch + 16 * k + m) % codes) as u32;
            let b = |n: usize, k: usize| ((11 * launch + 5 * k + 97 * n) % codes) as u32;
            let of_left = |m: usize, block: usize| (16 * (launch * blocks + block) + m) as u32;
            let of_right = |n: usize, block: usize| (0xff - of_left(2 * n, block)) ^ n as u32 & 1;
            let c = |m: usize, n: usize| ((m as f32 - n as f32) * 0.75).to_bits();
            let fragments = [
                pack_codes(counts.0, row.a.bits(), of_a, a),
                pack_codes(counts.1, row.b.bits(), of_b, b),
                pack_codes(counts.2, 32, of_c, c),
            ];
            let scales =
                [scale_words(false, byte, blocks, of_left), scale_words(true, byte, blocks, of_right)];
            let (report, words) = scaled_product(
                row,
                fragments.each_ref().map(|bytes| &bytes[..]),
                scales.each_ref().map(|words| &words[..]),
                byte,
            );
            assert!(report.is_clean(), "{}: {:?}", row.name, report.problems());
            let expected = pack_codes(counts.2, 32, of_c, |m, n| {
                let sum = (0..k).fold(f32::from_bits(c(m, n)), |sum, k| {
                    let left = row.a.decode(a(m, k)) * scaling.dtype.decode(of_left(m, k / block));
                    let right = row.b.decode(b(n, k)) * scaling.dtype.decode(of_right(n, k / block));
                    (f64::from(sum) + left * right) as f32
                });
                sum.to_bits()
            });
            for (found, expected) in words.iter().zip(words_of(&expected)) {
                let nan = [*found, expected].iter().all(|bits| f32::from_bits(*bits).is_nan());
                assert!(nan || *found == expected, "{} {launch}: {found:#x} {expected:#x}", row.name);
            }
        }
    }
}

#[test]
fn what_metadata_leave_out_is_in_no_term() {
    for row in mma_rows().iter().filter(|row| row.sparsity.is_some() && row.a.is_float()) {
        let (counts, [of_a, of_b, of_c]) = (row.registers(), positions(row));
        // Conversions to 8 bits make no infinity.
        let special = if row.a.bits() == 8 { f64::NAN } else { f64::INFINITY };
        let b = |_: usize, k: usize| if k == 1 { special } else { 1.0 };
        let fragments = [
            pack(counts.0, row.a, of_a, |_, _| 1.0),
            pack(counts.1, row.b, of_b, b),
            pack(counts.2, row.c, of_c, |_, _| 0.5),
        ];
        let meta = metadata(row);
        let (report, words) = sparse_product(row, fragments.each_ref().map(|bytes| &bytes[..]), &meta);
        assert!(report.is_clean(), "{}: {:?}", row.name, report.problems());
        let expected = pack(counts.2, row.c, of_c, |m, n| {
            let of = |k: usize| k / 2 * 4 + pair(m, k / 2)[k % 2];
            0.5 + (0..row.a_columns() as usize).map(|k| b(n, of(k))).sum::<f64>()
        });
        let floats = |words: &[u32]| -> Vec<Option<u64>> {
            let halves = |word: &u32| [word & 0xffff, word >> 16];
            let bits = row.c.bits();
            let values: Vec<u32> =
                if bits == 16 { words.iter().flat_map(halves).collect() } else { words.to_vec() };
            values.into_iter().map(|x| row.c.decode(x)).map(|x| (!x.is_nan()).then(|| x.to_bits())).collect()
        };
        assert_eq!(floats(&words), floats(&words_of(&expected)), "{}", row.name);
    }
}

#[test]
fn the_lower_bits_of_tf32_are_not_read_and_those_of_sums_are() {
    let row = mma_rows().iter().find(|r| r.a == DType::F32 && r.k == 8).unwrap();
    let counts = row.registers();
    let fine = 1.0 + 2f64.powi(-11) + 2f64.powi(-20);
    let words = product(
        row,
        &pack(counts.0, row.a, a_position::<1>, |_, _| fine),
        &pack(counts.1, row.b, b_position::<1>, |_, k| f64::from(u8::from(k == 0)) * fine),
        &pack(counts.2, row.c, c_position, |_, _| fine),
    );
    assert_eq!(words, words_of(&pack(counts.2, row.c, c_position, |_, _| 1.0 + fine)));
}

#[test]
fn metadata_out_of_order_are_found() {
    let row = mma_rows().iter().find(|r| r.name == "mma.sp.m16n8k32.f32.f16").unwrap();
    let counts = row.registers();
    let fragments = [counts.0, counts.1, counts.2].map(|count| vec![0; 32 * 4 * count as usize]);
    let run = |lane: usize| {
        let mut meta = metadata(row);
        meta[lane] = 0x4444_4414;
        sparse_product(row, fragments.each_ref().map(|bytes| &bytes[..]), &meta).0
    };
    let problems = run(5).problems();
    assert!(problems.len() == 1 && problems[0].contains("places of group 1"), "{problems:?}");
    // The third lane of four is not read.
    assert!(run(6).is_clean());
}

#[test]
fn integer_sums_wrap() {
    let row = mma_rows().iter().find(|r| r.a == DType::I8 && r.k == 32).unwrap();
    let counts = row.registers();
    let words = product(
        row,
        &pack(counts.0, row.a, a_position::<4>, |_, _| -128.0),
        &pack(counts.1, row.b, b_position::<4>, |_, _| -128.0),
        &pack(counts.2, row.c, c_position, |_, _| f64::from(i32::MAX)),
    );
    let wrapped = i32::MAX.wrapping_add(32 * 128 * 128);
    assert_eq!(words, words_of(&pack(counts.2, row.c, c_position, |_, _| f64::from(wrapped))));
}

#[test]
fn half_accumulators_are_rounded_once() {
    let row = mma_rows().iter().find(|r| r.c == DType::F16 && r.k == 16).unwrap();
    let counts = row.registers();
    // 2048 + 16 · 0.5: each step alone would be rounded away.
    let words = product(
        row,
        &pack(counts.0, row.a, a_position::<2>, |_, _| 1.0),
        &pack(counts.1, row.b, b_position::<2>, |_, _| 0.5),
        &pack(counts.2, row.c, c_position, |_, _| 2048.0),
    );
    assert_eq!(words, words_of(&pack(counts.2, row.c, c_position, |_, _| 2056.0)));
}
