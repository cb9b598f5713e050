//! Sections 1 and 2 of the paper: every example, table and figure with numbers, named after it.

use tilewright_layout::*;

fn l(text: &str) -> Layout {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn coords(text: &str) -> Layout<Coord> {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn s(text: &str) -> Shape {
    l(&format!("{text}:{text}")).shape().clone()
}

fn tuple(text: &str) -> HTuple<i64> {
    text.parse::<Slice>().unwrap().given()
}

#[test]
fn section_1_2_one_loop() {
    // for (m = 2; m <= 50; m += 3) A[m], as (A + 2) with 17:3.
    let all: Vec<i64> = (0..100).collect();
    let t = Tensor::new(Pointer::new(&all).offset(&2).unwrap(), l("17:3"));
    let canonical: Vec<i64> = (0..17).map(|i| t.at(i).unwrap()).collect();
    assert_eq!(canonical, (2..=50).step_by(3).collect::<Vec<_>>());
}

#[test]
fn section_1_2_two_loops() {
    // for n = 3, 5, …, 42: for m = 4, 9, …, 22: A[p*m + q*n]
    let t: Tensor<Counting<Poly>, Poly> =
        Tensor::new(Counting("4*p+3*q".parse().unwrap()), "(4,20):(5*p,2*q)".parse().unwrap());
    let mut k = 0;
    for n in (3..43).step_by(2) {
        for m in (4..=22).step_by(5) {
            let expected: Poly = format!("{m}*p+{n}*q").parse().unwrap();
            assert_eq!(t.at(k).unwrap(), expected);
            assert_eq!(t.get(&((m - 4) / 5, (n - 3) / 2).into()).unwrap(), expected);
            k += 1;
        }
    }
    assert_eq!(k, 80);
}

#[test]
fn figure_1_folding() {
    let flat = l("(2,2,2):(2,1,4)");
    let (rows, columns) = (l("((2,2),2):((2,4),1)"), l("(2,(2,2)):(2,(1,4))"));
    for (a, b, c) in (0..8).map(|i| (i % 2, i / 2 % 2, i / 4)) {
        let value = flat.eval_coord(&(a, b, c).into());
        assert_eq!(rows.eval_coord(&((a, c), b).into()), value);
        assert_eq!(columns.eval_coord(&(a, (b, c)).into()), value);
    }
    let by_mode = |l: &Layout| coalesce_by(l, &HTuple::from((0, 0))).unwrap().to_string();
    assert_eq!(by_mode(&rows), "(4,2):(2,1)");
    assert_eq!(by_mode(&columns), "(2,(2,2)):(2,(1,4))"); // no flat representation
}

#[test]
fn section_2_1_tuples() {
    for (text, rank, depth) in [
        ("31", 1, 0),
        ("(16,32)", 2, 1),
        ("(3,-8,7)", 3, 1),
        ("(2,(4,1),-1)", 3, 2),
        ("((4,6),(3,(2,2),8))", 2, 3),
    ] {
        let t = tuple(text);
        assert_eq!((t.rank(), t.depth(), t.to_string().as_str()), (rank, depth, text));
        assert_eq!(t.get(rank), None);
    }
}

#[test]
fn section_2_1_congruence() {
    assert!(tuple("(4,8)").congruent(&tuple("(5,7)")));
    assert!(tuple("(4,(2,4))").congruent(&tuple("(7,(3,2))")));
    assert!(tuple("(0,((1,3)))").congruent(&tuple("(0,((0,0)))")));
    assert!(!tuple("(4,8)").congruent(&tuple("(4,(2,4))")));
    assert!(!tuple("(4,(2,4))").congruent(&tuple("(0,((0,0)))")));
}

#[test]
fn section_2_1_weak_congruence() {
    let weak = |a: &str, b: &str| tuple(a).weakly_congruent(&tuple(b));
    assert!(weak("30", "(1,2)") && weak("(1,2)", "(7,(0,3))"));
    assert!(weak("30", "(1,2,3)") && weak("(1,2,3)", "((0,0),0,0)"));
    assert!(!weak("(1,2)", "(1,2,3)") && !weak("(1,2,3)", "(1,2)"));
    assert!(!weak("(7,(0,3))", "((0,0),0)") && !weak("((0,0),0)", "(7,(0,3))"));
}

#[test]
fn section_2_2_1_coordinate_sets() {
    for (shape, list) in [
        ("6", "0 1 2 3 4 5"),
        ("(3,4)", "(0,0) (1,0) (2,0) (0,1) (1,1) (2,1) (0,2) (1,2) (2,2) (0,3) (1,3) (2,3)"),
        ("((2,1),3)", "((0,0),0) ((1,0),0) ((0,0),1) ((1,0),1) ((0,0),2) ((1,0),2)"),
    ] {
        let shape = s(shape);
        let found: Vec<String> = shape.coordinates().unwrap().map(|c| c.to_string()).collect();
        assert_eq!(found.join(" "), list);
    }
}

fn check_sets(shape: &str, sets: &[&str]) {
    let shape = s(shape);
    let found = shape.coarsenings().unwrap();
    assert_eq!(found.iter().map(|s| s.to_string()).collect::<Vec<_>>(), sets);
    for set in &found {
        assert!(set.compatible(&shape));
        for (i, c) in set.coordinates().unwrap().enumerate() {
            assert!(shape.contains(&c));
            assert_eq!(natural_coordinate(&c, &shape).unwrap(), idx2crd(i as i64, &shape));
            assert_eq!(crd2idx(&c, &shape), Ok(i as i64));
        }
    }
}

#[test]
fn figure_2_shape_4() {
    check_sets("4", &["4"]);
}

#[test]
fn figure_2_shape_2_3() {
    check_sets("(2,3)", &["6", "(2,3)"]);
}

#[test]
fn figure_2_shape_2_3_2() {
    check_sets("((2,3),2)", &["12", "(6,2)", "((2,3),2)"]);
    let shape = s("((2,3),2)");
    for (i, pair, natural) in
        [(4, "(4,0)", "((0,2),0)"), (7, "(1,1)", "((1,0),1)"), (11, "(5,1)", "((1,2),1)")]
    {
        assert_eq!(idx2crd(i, &shape).to_string(), natural);
        assert_eq!(map_coordinate(&i.into(), &s("12"), &s("(6,2)")).unwrap().to_string(), pair);
        assert_eq!(map_coordinate(&tuple(pair), &s("(6,2)"), &shape).unwrap().to_string(), natural);
        assert_eq!(map_coordinate(&tuple(natural), &shape, &s("(6,2)")).unwrap().to_string(), pair);
    }
    assert!(map_coordinate(&tuple("(1,1)"), &s("(2,(3,5))"), &s("((3,2),5)")).is_err());
}

#[test]
fn section_2_2_2_out_of_bounds() {
    let shape = s("(2,3)");
    for i in 6..20 {
        let c = idx2crd(i, &shape);
        assert!(!shape.contains(&c)); // refining keeps out of bounds
        assert_eq!(crd2idx(&c, &shape), Ok(i));
    }
    // Coarsening does not: (2,0) is out of bounds, 2 is in bounds.
    assert!(!shape.contains(&tuple("(2,0)")));
    assert_eq!(crd2idx(&tuple("(2,0)"), &shape), Ok(2));
}

#[test]
fn section_2_4_1_evaluation() {
    let layout = l("((2,2),(4,2)):((1,8),(2,16))");
    for c in ["22", "(2,5)", "((0,1),(1,1))"] {
        assert_eq!(layout.eval_coord(&tuple(c)), Ok(26));
    }
    let hier = l("(4,(3,2)):(2,(8,1))");
    assert_eq!((hier.rank(), hier.depth(), hier.size()), (2, 2, 24));
    assert_eq!(hier.mode(1).unwrap().to_string(), "(3,2):(8,1)");
}

#[test]
fn figure_4_coordinates() {
    let layout = coords("(4,(4,2)):(e1,(e0,6e1))");
    let profile = HTuple::from((0, 0));
    assert_eq!(layout.eval_coord(&tuple("(3,5)")).unwrap().to_htuple(&profile).unwrap().to_string(), "(1,9)");
    let identity = coords("(4,8):(e0,e1)");
    for c in s("(4,8)").coordinates().unwrap() {
        assert_eq!(identity.eval_coord(&c).unwrap().to_htuple(&profile).unwrap(), c);
    }
}

#[test]
fn figure_4_bits() {
    let layout: Layout<F2> = "(4,(4,2)):(f1,(f5,f16))".parse().unwrap();
    let mut image: Vec<u64> = layout.image().iter().map(|f| f.0).collect();
    assert_eq!(layout.eval_coord(&tuple("(3,(2,1))")), Ok(F2(3 ^ 10 ^ 16)));
    image.sort_unstable();
    assert_eq!(image, (0..32).collect::<Vec<_>>());
}

#[test]
fn section_2_4_3_completeness() {
    for n in 1..=30usize {
        let f: Vec<i64> = (0..n as i64).map(|i| i * (7 - i) * (i % 3 + 1)).collect();
        let (first, rest) = complete(&f).unwrap();
        assert_eq!(rest.len(), n.saturating_sub(3));
        for (i, value) in f.iter().enumerate() {
            let at = rest.iter().rev().fold(i as i64, |at, l| l.eval(at));
            assert!(i == 0 || at == 1 << (i - 1)); // i -> 2^(i-1)
            assert_eq!(first.eval(at), *value);
        }
    }
    assert!(complete(&[1i64, 2]).is_err());
    assert!(complete::<i64>(&[]).is_err());
    assert!(complete(&vec![0i64; 63]).is_err());
}

#[test]
fn section_2_4_4_linear_in_natural_coordinates() {
    let layout = l("((2,2),(4,2)):((1,8),(2,16))");
    let sum = |x: &HTuple<i64>, y: &HTuple<i64>| {
        let (x, y) = (x.leaves().into_iter(), &mut y.leaves().into_iter());
        let mut added = x.zip(y).map(|(x, y)| 3 * x - 2 * y).collect::<Vec<_>>().into_iter();
        layout.shape().map(|_| added.next().unwrap())
    };
    for i in 0..32 {
        for j in 0..32 {
            let (x, y) = (idx2crd(i, layout.shape()), idx2crd(j, layout.shape()));
            let value = 3 * layout.eval(i) - 2 * layout.eval(j);
            assert_eq!(layout.eval_coord(&sum(&x, &y)), Ok(value));
        }
    }
}

#[test]
fn table_1_row_1() {
    assert_eq!(l("((2,2),(4,2)):((1,8),(2,16))").linear_form(), [[1, 8, 2, 16]]);
}

#[test]
fn table_1_row_2() {
    let (bases, matrix) = coords("(4,(4,2)):(e1,(e0,6e1))").linear_form();
    assert_eq!(bases.iter().map(|b| b.to_string()).collect::<Vec<_>>(), ["e0", "e1"]);
    assert_eq!(matrix, [[0, 1, 0], [1, 0, 6]]);
}

#[test]
fn table_1_row_3() {
    let layout: Layout<F2> = "(4,4):(f1,f5)".parse().unwrap();
    let split = layout.split_bits().unwrap();
    assert_eq!(split.to_string(), "((2,2),(2,2)):((f1,f2),(f5,f10))");
    assert_eq!(split.image(), layout.image());
    let matrix = [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]];
    assert_eq!(layout.linear_form().unwrap(), matrix);
    for i in 0..16u64 {
        let bit = |row: &[u8; 4]| (0..4).fold(0, |sum, k| sum ^ (u64::from(row[k]) & (i >> k)) & 1);
        let value = (0..4).fold(0, |v, k| v | bit(&matrix[k]) << k);
        assert_eq!(layout.eval(i as i64), F2(value));
    }
}

#[test]
fn section_2_5_accessors() {
    let by = |n: i64| Counting(3).offset(&n).unwrap();
    assert_eq!(by(4).get(), Ok(7));
    let corner = Counting("2e0+3e1".parse::<Coord>().unwrap());
    let t = Tensor::new(corner, coords("(4,8):(e0,e1)"));
    assert_eq!(t.get(&(1, 5).into()).unwrap().to_string(), "3e0+8e1");
    let data: Vec<i64> = (0..32).map(|i| i * i).collect();
    let t = Tensor::new(Pointer::new(&data), l("(4,8):(8,1)"));
    assert_eq!(t.get(&(2, 3).into()), Ok(19 * 19));
    assert!(matches!(t.get(&(4, 3).into()), Err(LayoutError::OutOfBounds { offset: 35, len: 32 })));
    let doubled =
        Tensor::new(Transform { accessor: Counting(1), function: |x: i64| 2 * x }, l("(4,8):(8,1)"));
    assert_eq!(doubled.get(&(2, 3).into()), Ok(40));
}

const FIGURE_5: [[i64; 12]; 6] = [
    [0, 2, 15, 17, 30, 32, 100, 102, 115, 117, 130, 132],
    [4, 6, 19, 21, 34, 36, 104, 106, 119, 121, 134, 136],
    [8, 10, 23, 25, 38, 40, 108, 110, 123, 125, 138, 140],
    [1, 3, 16, 18, 31, 33, 101, 103, 116, 118, 131, 133],
    [5, 7, 20, 22, 35, 37, 105, 107, 120, 122, 135, 137],
    [9, 11, 24, 26, 39, 41, 109, 111, 124, 126, 139, 141],
];

fn figure_5() -> Tensor<Counting<i64>> {
    Tensor::new(Counting(0), l("((3,2),((2,3),2)):((4,1),((2,15),100))"))
}

fn check_slice(at: &str, expected: &str) {
    assert_eq!(figure_5().slice(&at.parse().unwrap()).unwrap().to_string(), expected, "A{at}");
}

#[test]
fn figure_5_tensor() {
    for (m, row) in FIGURE_5.iter().enumerate() {
        for (n, value) in row.iter().enumerate() {
            assert_eq!(figure_5().get(&(m as i64, n as i64).into()), Ok(*value));
        }
    }
    check_slice("(_,_)", "{0} o ((3,2),((2,3),2)):((4,1),((2,15),100))");
}

#[test]
fn figure_5_slice_a_2_underscore() {
    check_slice("(2,_)", "{8} o ((2,3),2):((2,15),100)");
    let row = figure_5().slice(&"(2,_)".parse().unwrap()).unwrap();
    assert_eq!((0..12).map(|n| row.at(n).unwrap()).collect::<Vec<_>>(), FIGURE_5[2]);
}

#[test]
fn figure_5_slice_a_underscore_5() {
    check_slice("(_,5)", "{32} o (3,2):(4,1)");
}

#[test]
fn figure_5_slice_a_2_and_0_underscore_underscore() {
    check_slice("(2,((0,_),_))", "{8} o (3,2):(15,100)");
}

#[test]
fn figure_5_slice_a_underscore_1_and_underscore_0() {
    check_slice("((_,1),(_,0))", "{1} o (3,(2,3)):(4,(2,15))");
}

#[test]
fn figure_5_slice_a_underscore_0_and_0_underscore_1() {
    check_slice("((_,0),((0,_),1))", "{100} o (3,3):(4,15)");
}

#[test]
fn figure_5_slice_a_1_underscore_and_underscore_0_underscore() {
    check_slice("((1,_),((_,0),_))", "{4} o (2,(2,2)):(1,(2,100))");
}

#[test]
fn figure_5_whole_coordinate() {
    check_slice("(2,5)", "{40} o 1:0");
    assert!(slice(&l("(3,2):(1,3)"), &"(_,_,_)".parse().unwrap()).is_err());
}

#[test]
fn section_2_5_1_ranged_slices() {
    // A(0, 0:2:12) is {0} o (3,2):(15,100); A(0:2:6, 0) is no layout.
    let a = figure_5();
    let even = compose_tiler(&a.layout, &"<1, 6:2>".parse().unwrap()).unwrap();
    let row = slice(&even, &"(0,_)".parse().unwrap()).unwrap().1;
    assert_eq!(row.to_string(), "(3,2):(15,100)");
    assert!(compose_tiler(&a.layout, &"<3:2, 1>".parse().unwrap()).is_err());
}

fn check_copy(src: &str, dst: &str) {
    let (from, to) = (l(src), l(dst));
    let data: Vec<i64> = (0..from.cosize()).map(|i| 1000 + i).collect();
    let mut out = vec![0; to.cosize() as usize];
    copy(
        &Tensor::new(Pointer::new(&data), from.clone()),
        &Tensor::new(PointerMut::new(&mut out), to.clone()),
    )
    .unwrap();
    let mut expected = vec![0; out.len()];
    for i in 0..to.size() {
        expected[to.eval(i) as usize] = 1000 + from.eval(i);
    }
    assert_eq!(out, expected, "{src} -> {dst}");
}

#[test]
fn table_2_row_1_arrays() {
    check_copy("8:1", "8:1");
}

#[test]
fn table_2_row_2_nd_arrays() {
    check_copy("(8,2,3):(1,16,32)", "(8,2,3):(1,16,32)");
}

#[test]
fn table_2_row_3_gather() {
    check_copy("(2,3,2):(42,1,128)", "12:1");
}

#[test]
fn table_2_row_4_scatter() {
    check_copy("12:1", "(2,3,2):(42,1,128)");
}

#[test]
fn table_2_row_5_broadcast() {
    check_copy("7:0", "7:1");
}

#[test]
fn table_2_row_6_constant() {
    check_copy("7:0", "7:0");
}

#[test]
fn table_2_row_7_transpose() {
    check_copy("(8,3):(1,8)", "(8,3):(3,1)");
}

#[test]
fn table_2_row_8_tensor_transpose() {
    check_copy("(8,(3,5)):(1,(57,8))", "(8,15):(1,8)");
}

#[test]
fn copy_needs_equal_sizes() {
    let log = std::cell::RefCell::new(Vec::new());
    let to = Tensor::new(Recorder::new(&log), l("7:1"));
    assert!(matches!(
        copy(&Tensor::new(Counting(0), l("8:1")), &to),
        Err(LayoutError::SizeMismatch { operation: "copy", .. })
    ));
    copy(&Tensor::new(Counting(0), l("7:1")), &to).unwrap();
    assert_eq!(*log.borrow(), [0, 1, 2, 3, 4, 5, 6]);
}

/// GEMM through the layouts, against the sum written out at the modes' integral coordinates.
fn check_gemm(a: &Layout, b: &Layout, c: &Layout) {
    let fill = |l: &Layout, k: i64| (0..l.cosize()).map(|i| i * k % 11 - 5).collect::<Vec<i64>>();
    let (da, db, mut dc) = (fill(a, 3), fill(b, 7), vec![0i64; c.cosize() as usize]);
    let out = PointerMut::new(&mut dc);
    let c_tensor = Tensor::new(out, c.clone());
    gemm(&Tensor::new(Pointer::new(&da), a.clone()), &Tensor::new(Pointer::new(&db), b.clone()), &c_tensor)
        .unwrap();
    let (m, n) = (a.mode(0).unwrap().size(), b.mode(0).unwrap().size());
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let at = |l: &Layout, x: i64, y: i64| l.eval_coord(&(x, y).into()).unwrap() as usize;
        let sum: i64 = (0..a.mode(1).unwrap().size()).map(|k| da[at(a, i, k)] * db[at(b, j, k)]).sum();
        assert_eq!(dc[at(c, i, j)], sum);
    }
}

#[test]
fn table_3_row_1_nt_gemm() {
    check_gemm(&l("(5,7):(1,8)"), &l("(6,7):(1,9)"), &l("(5,6):(1,10)"));
}

#[test]
fn table_3_row_2_tn_gemm() {
    check_gemm(&l("(5,7):(8,1)"), &l("(6,7):(9,1)"), &l("(5,6):(1,10)"));
}

#[test]
fn table_3_row_3_ntt_gemm() {
    check_gemm(&l("(6,7):(1,9)"), &l("(5,7):(1,8)"), &l("(6,5):(1,10)"));
}

#[test]
fn table_3_row_4_blis_gemm() {
    check_gemm(&l("(5,7):(2,11)"), &l("(6,7):(15,2)"), &l("(5,6):(3,17)"));
}

#[test]
fn table_3_row_5_gett_rows() {
    check_gemm(&l("((2,3),4):((1,10),40)"), &l("(5,4):(4,1)"), &l("((2,3),5):((1,7),30)"));
}

#[test]
fn table_3_row_6_gett_reduction() {
    check_gemm(&l("(3,(2,4)):(1,(3,17))"), &l("(5,(2,4)):(1,(5,50))"), &l("(3,5):(1,3)"));
    // As printed, (M,(K1,K2)):((W,X),1) is not congruent.
    assert!("(3,(2,4)):((5,6),1)".parse::<Layout>().is_err());
}

/// Table 3, last row: convolution as GEMM, the activations seen through an im2col layout.
#[test]
fn table_3_row_7_convolution() {
    // Filter (K,(C,R,S)), activations (N,H,W,C) read as ((N,P,Q),(C,R,S)), no padding, stride 2 and 1, dilation 1.
    let (k, c, r, s, n, p, q) = (3i64, 2i64, 3i64, 2i64, 2i64, 2i64, 4i64);
    let (h, w) = (2 * (p - 1) + r, (q - 1) + s);
    let filter = Layout::new((k, (c, r, s)).into(), (c * r * s, (1, c * s, c)).into()).unwrap();
    // The im2col layout goes to the coordinates (n,h,w,c); composed with the data it gives offsets.
    let im2col: Layout<Coord> =
        format!("(({n},{p},{q}),({c},{r},{s})):((e0,2e1,e2),(e3,e1,e2))").parse().unwrap();
    let data = Layout::new((n, h, w, c).into(), (h * w * c, w * c, c, 1).into()).unwrap();
    let b = compose_coordinates(&data, &im2col).unwrap();
    assert_eq!(b.shape(), im2col.shape());
    let out = Layout::new((k, (n, p, q)).into(), (1, (p * q * k, q * k, k)).into()).unwrap();
    check_gemm(&filter, &b, &out);
    // And against the definition of the convolution.
    let activations: Vec<i64> = (0..data.size()).map(|i| i * 5 % 13 - 6).collect();
    let weights: Vec<i64> = (0..filter.size()).map(|i| i * 3 % 7 - 3).collect();
    let mut result = vec![0i64; out.size() as usize];
    let c_tensor = Tensor::new(PointerMut::new(&mut result), out.clone());
    gemm(
        &Tensor::new(Pointer::new(&weights), filter),
        &Tensor::new(Pointer::new(&activations), b),
        &c_tensor,
    )
    .unwrap();
    for (kk, nn, pp, qq) in (0..k * n * p * q).map(|i| (i % k, i / k % n, i / (k * n) % p, i / (k * n * p))) {
        let mut sum = 0;
        for (cc, rr, ss) in (0..c * r * s).map(|i| (i % c, i / c % r, i / (c * r))) {
            let x = activations[(((nn * h + 2 * pp + rr) * w + qq + ss) * c + cc) as usize];
            sum += x * weights[(kk * c * r * s + (rr * s + ss) * c + cc) as usize];
        }
        assert_eq!(result[(((nn * p + pp) * q + qq) * k + kk) as usize], sum);
    }
}

/// Equation 1, C_stqp = A_stupr B_qtru, folded into the batched GEMM of equation 2.
#[test]
fn equation_1_contraction() {
    let (s, t, u, p, r, q) = (2i64, 3i64, 2i64, 3i64, 2i64, 4i64);
    // All column-major: A(s,t,u,p,r), B(q,t,r,u), C(s,t,q,p).
    let a =
        Layout::new(((s, p), (u, r), t).into(), ((1, s * t * u), (s * t, s * t * u * p), s).into()).unwrap();
    let b = Layout::new((q, (u, r), t).into(), (1, (q * t * r, q * t), q).into()).unwrap();
    let c = Layout::new(((s, p), q, t).into(), ((1, s * t * q), s * t, s).into()).unwrap();
    let (da, db): (Vec<i64>, Vec<i64>) =
        ((0..a.size()).map(|i| i % 7 - 3).collect(), (0..b.size()).map(|i| i % 5 - 2).collect());
    let mut dc = vec![0i64; c.size() as usize];
    let c_tensor = Tensor::new(PointerMut::new(&mut dc), c);
    batched_gemm(&Tensor::new(Pointer::new(&da), a), &Tensor::new(Pointer::new(&db), b), &c_tensor).unwrap();
    for i in 0..s * t * q * p {
        let (is, it, iq, ip) = (i % s, i / s % t, i / (s * t) % q, i / (s * t * q));
        let mut sum = 0;
        for (iu, ir) in (0..u * r).map(|k| (k % u, k / u)) {
            sum += da[(is + s * (it + t * (iu + u * (ip + p * ir)))) as usize]
                * db[(iq + q * (it + t * (ir + r * iu))) as usize];
        }
        assert_eq!(dc[i as usize], sum);
    }
}

#[test]
fn text_forms_of_strides() {
    for text in ["0", "e0", "6e1", "e(0,1)", "2e0-3e(1,0,2)", "e(0,0)+e1"] {
        assert_eq!(text.parse::<Coord>().unwrap().to_string(), text);
    }
    for text in ["f0", "f5", "f18446744073709551615"] {
        assert_eq!(text.parse::<F2>().unwrap().to_string(), text);
    }
    for text in ["0", "k", "2*n", "m*n^2-k+3", "-k", "5*p"] {
        assert_eq!(text.parse::<Poly>().unwrap().to_string(), text);
    }
    for text in ["f", "f-1", "5", "f18446744073709551616"] {
        assert!(text.parse::<F2>().is_err(), "{text}");
    }
    for text in ["", "k+", "2k", "*k", "k^65", "9223372036854775807*2"] {
        assert!(text.parse::<Poly>().is_err(), "{text}");
    }
    for text in ["e()", "e(", "e(0,-1)", "e(0"] {
        assert!(text.parse::<Coord>().is_err(), "{text}");
    }
    let nested: Layout<Coord> = "(2,(2,2)):(e0,(e(1,0),3e(1,1)))".parse().unwrap();
    assert_eq!(nested.to_string(), "(2,(2,2)):(e0,(e(1,0),3e(1,1)))");
    assert!(Coord::nested(&[]).is_err());
    assert!("e0".parse::<Coord>().unwrap().to_htuple(&HTuple::from((0, 0)).map(|_| 0)).is_ok());
    assert!("e(0,1)".parse::<Coord>().unwrap().to_htuple(&HTuple::from((0, 0))).is_err());
}
