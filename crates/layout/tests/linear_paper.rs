//! *Linear Layouts* (LL): what the paper prints, and where the machine differs from it.

use tilewright_layout::{Blocked, LinearLayout, MmaOperand};

fn read(text: &str) -> LinearLayout {
    text.parse().unwrap()
}

/// Layout A of figure 1: 2×2 registers, 4×8 threads, 2×1 warps, j the fastest mode.
fn layout_a() -> LinearLayout {
    let a = Blocked { registers: vec![2, 2], lanes: vec![4, 8], warps: vec![2, 1], order: vec![1, 0] };
    let l = a.layout(&[16, 16]).unwrap().transpose(&["dim1", "dim0"]).unwrap();
    l.rename_out("dim1", "j").unwrap().rename_out("dim0", "i").unwrap()
}

#[test]
fn table_1() {
    let a = layout_a();
    let rows = [
        ((0, 0), (0, 0, 0)),
        ((0, 1), (1, 0, 0)),
        ((0, 2), (0, 1, 0)),
        ((0, 3), (1, 1, 0)),
        ((1, 0), (2, 0, 0)),
        ((1, 1), (3, 0, 0)),
        ((2, 2), (0, 9, 0)),
        ((2, 3), (1, 9, 0)),
        ((3, 2), (2, 9, 0)),
        ((3, 3), (3, 9, 0)),
    ];
    let inverse = a.inverse().unwrap();
    for ((i, j), (register, lane, warp)) in rows {
        let place = a.apply(&[("register", register), ("lane", lane), ("warp", warp)]).unwrap();
        assert_eq!(place, [j, i]);
        assert_eq!(inverse.apply(&[("i", i), ("j", j)]).unwrap(), [register, lane, warp]);
    }
}

#[test]
fn the_matrix_of_section_4_1() {
    let rows: [[u8; 8]; 8] = [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 1],
    ];
    let a = layout_a();
    for (r, row) in rows.iter().enumerate() {
        let found: Vec<u8> = a.columns().iter().map(|c| (c >> r & 1) as u8).collect();
        assert_eq!(found, row);
    }
    let printed: Vec<Vec<u8>> = a
        .matrix()
        .lines()
        .skip(1)
        .filter(|l| !l.is_empty())
        .map(|l| l.split_whitespace().filter_map(|w| w.parse().ok()).collect())
        .collect();
    assert_eq!(printed, rows.map(Vec::from));
    // w_j = 3 and w_i = 2 for r1 of t9 of w0: the exclusive or of what each leads to.
    let parts = [("register", 1, [1, 0]), ("lane", 9, [2, 2]), ("warp", 0, [0, 0])];
    for (input, index, place) in parts {
        assert_eq!(a.apply(&[(input, index)]).unwrap(), place);
    }
    assert!(a.is_distributed() && a.is_bijective());
}

#[test]
fn a_zero_column_duplicates_registers() {
    // LL 5.1: with a zero column in A_reg, registers 4-7 hold what registers 0-3 hold.
    let a = read("[register: (1,0) (0,1) (0,0); lane: (2,0)] -> [j:4, i:2]");
    for register in 0..4 {
        let place = |r| a.apply(&[("register", r)]).unwrap();
        assert_eq!(place(register), place(register + 4));
    }
    assert_eq!(a.free_bits(), [("register", 0b100), ("lane", 0)]);
    assert!(a.is_distributed());
    assert_eq!(a.copies(), 2);
}

#[test]
fn definition_4_11_and_proposition_4_12() {
    for (m, n) in [(0, 3), (3, 0), (3, 3), (4, 6), (6, 4)] {
        let (rows, columns) = (1u64 << m, 1u64 << n);
        for log in 0..27u32 {
            let (vec, per_phase, max_phase) =
                (1u64 << (log % 3), 1u64 << (log / 3 % 3), 1u64 << (2 * (log / 9)));
            let l = LinearLayout::mma_swizzled(&[rows, columns], &[1, 0], vec, per_phase, max_phase).unwrap();
            assert!(l.is_memory());
            // [I C; 0 I] over (j, i), the row bits' chunks in C.
            let l = l.transpose(&["dim1", "dim0"]).unwrap();
            for (bit, column) in l.columns().iter().enumerate() {
                let c = match bit.checked_sub(n) {
                    Some(i) => vec * ((1 << i) / per_phase % max_phase) % columns,
                    None => 0,
                };
                assert_eq!(*column, (1 << bit) ^ c);
            }
            // The definition, where its chunks stay within a row.
            if max_phase * vec <= columns {
                let offsets = l.inverse().unwrap();
                for i in 0..rows {
                    for j in 0..columns {
                        let swizzled = (((i / per_phase % max_phase) ^ (j / vec)) * vec) ^ (j % vec);
                        let found = offsets.apply(&[("dim1", j), ("dim0", i)]).unwrap();
                        assert_eq!(found, [swizzled + i * columns]);
                    }
                }
            }
        }
    }
}

/// `id_bits` from an input to a mode, as the proof of proposition 9.2 writes it.
fn id(bits: u32, input: &str, mode: usize) -> LinearLayout {
    LinearLayout::identity(1 << bits, input, &format!("dim{mode}")).unwrap()
}

fn times(factors: &[LinearLayout]) -> LinearLayout {
    let start = read("[register:; lane:; warp:] -> [dim0:1, dim1:1]");
    factors.iter().fold(start, |product, f| product.product(f).unwrap())
}

#[test]
fn proposition_9_2() {
    for bits in [8, 16, 32] {
        let v = (32u32 / bits).trailing_zeros();
        let lhs = times(&[
            id(v, "register", 1),
            id(2, "lane", 1),
            id(3, "lane", 0),
            id(1, "register", 0),
            id(1, "register", 1),
        ]);
        assert_eq!(LinearLayout::mma_tile(MmaOperand::A, 1 << v).unwrap(), lhs);
        // The right one is the transpose with half the registers. The paper leaves out the bit along K and so covers
        // 8×16; the machine has no bit along N, and its tile is 16×8 of 16-bit elements.
        let rhs = times(&[id(v, "register", 0), id(2, "lane", 0), id(3, "lane", 1), id(1, "register", 0)]);
        assert_eq!(LinearLayout::mma_tile(MmaOperand::B, 1 << v).unwrap(), rhs);
        // The left tile of wgmma: four warps along M.
        let depth = lhs.out_size("dim1");
        let wgmma = LinearLayout::wgmma_left(1 << v, [4, 1], [64, depth]).unwrap();
        assert_eq!(wgmma, times(&[lhs, id(2, "warp", 0)]));
    }
    // The paper gives the output the same tile as the left input; the machine has pairs along N and no more.
    let out = times(&[id(1, "register", 1), id(2, "lane", 1), id(3, "lane", 0), id(1, "register", 0)]);
    assert_eq!(LinearLayout::mma_tile(MmaOperand::C, 2).unwrap(), out);
    let wide = times(&[out, id(1, "register", 1), id(2, "warp", 0)]);
    assert_eq!(LinearLayout::wgmma(16, [4, 1], [64, 16]).unwrap(), wide);
}

#[test]
fn factors_are_held_by_all_warps_that_need_them() {
    // The warp of an output tile holds all of K of the rows and columns that it needs (proof of proposition 9.2).
    let warps = [2, 2];
    let c = LinearLayout::mma(MmaOperand::C, 2, &warps, &[64, 32]).unwrap();
    let a = LinearLayout::mma(MmaOperand::A, 2, &warps, &[64, 32]).unwrap();
    let b = LinearLayout::mma(MmaOperand::B, 2, &warps, &[32, 32]).unwrap();
    let held = |l: &LinearLayout, warp: u64| {
        let bits = l.in_bits() - 2;
        (0..1 << bits)
            .map(|i| l.unflatten_out(l.at(i | warp << bits)))
            .collect::<std::collections::BTreeSet<_>>()
    };
    for warp in 0..4 {
        let (a, b) = (held(&a, warp), held(&b, warp));
        for place in held(&c, warp) {
            assert!((0..32).all(|k| a.contains(&vec![place[0], k]) && b.contains(&vec![k, place[1]])));
        }
    }
}

/// A row-major [512, k] tensor whose threads, 32·4 of them, take `each` contiguous elements at a time.
fn coalesced(k: u64, each: u64) -> LinearLayout {
    let along = each.min(k);
    let lanes = (k / along).min(32);
    let blocked = Blocked {
        registers: vec![each / along, along],
        lanes: vec![32 / lanes, lanes],
        warps: vec![4, 1],
        order: vec![1, 0],
    };
    blocked.layout(&[512, k]).unwrap()
}

#[test]
fn table_3() {
    // Bits that one access moves: of elements, k, in one mode as legacy layouts see it, and across modes.
    let rows = [
        (8, 1, 32, 32),
        (8, 2, 16, 128),
        (8, 4, 32, 128),
        (8, 8, 64, 128),
        (8, 16, 128, 128),
        (16, 1, 64, 64),
        (16, 2, 32, 128),
        (16, 4, 64, 128),
        (16, 8, 128, 128),
        (16, 16, 128, 128),
    ];
    for (bits, k, legacy, printed) in rows {
        // As many elements as an access takes and a thread has.
        let each = (128 / bits).min(512 * k / 128);
        let l = coalesced(k, each);
        assert!(l.is_bijective());
        let modes = if k == 1 { ["dim0", "dim1"] } else { ["dim1", "dim0"] };
        let in_one = l.sublayout(&["register", "lane", "warp"], &modes[..1]).unwrap();
        assert_eq!(in_one.contiguous("register") * bits, legacy);
        let across = l.transpose(&["dim1", "dim0"]).unwrap();
        let width = across.contiguous("register") * bits;
        if (bits, k) == (8, 2) {
            // The paper prints 128, but a thread has 8 bytes of the 1024. 16 bytes take two warps that hold what the
            // others hold.
            assert_eq!((width, printed), (64, 128));
            let twice = coalesced(k, 16).transpose(&["dim1", "dim0"]).unwrap();
            assert_eq!((twice.contiguous("register") * bits, twice.copies()), (printed, 2));
        } else {
            assert_eq!(width, printed, "[512, {k}] of {bits} bits");
        }
    }
}
