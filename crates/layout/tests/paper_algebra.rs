//! Section 3 of the paper: every example, table and figure with numbers, named after it. Where a number of the paper is
//! wrong the test says so and why.

use tilewright_layout::*;

fn l(text: &str) -> Layout {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn coords(text: &str) -> Layout<Coord> {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn bits(text: &str) -> Layout<F2> {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[track_caller]
fn check_compose(a: &str, b: &str, expected: &str) {
    let r = compose(&l(a), &l(b)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(r.to_string(), expected, "{a} o {b}");
}

#[track_caller]
fn check_refused(a: &str, b: &str, expected: Condition, at: usize) {
    match compose(&l(a), &l(b)) {
        Err(LayoutError::Composition { condition, mode, .. }) => {
            assert_eq!((condition, mode), (expected, at))
        }
        other => panic!("{a} o {b}: {other:?}"),
    }
}

#[test]
fn section_3_1_concatenation() {
    let (a, b) = (l("(4,2):(1,4)"), l("3:8"));
    let both = Layout::concat(&[a.clone(), b.clone()]).unwrap();
    assert_eq!(both.to_string(), "((4,2),3):((1,4),8)");
    for i in 0..8 {
        for j in 0..3 {
            assert_eq!(both.eval_coord(&(i, j).into()).unwrap(), a.eval(i) + b.eval(j));
        }
    }
    // 4:2 and 3:e0 have different codomains: no text form holds both, and `concat` does not take both.
    assert!("(4,3):(2,e0)".parse::<Layout>().is_err());
    assert!("(4,3):(2,e0)".parse::<Layout<Coord>>().is_err());
}

#[test]
fn section_3_2_coalesce_1() {
    let a = l("(2,(1,6)):(1,(6,2))");
    assert_eq!(coalesce(&a).to_string(), "12:1");
    assert_eq!(coalesce_by(&a, &HTuple::from((0, 0))).unwrap().to_string(), "(2,6):(1,2)");
}

#[test]
fn section_3_2_coalesce_2() {
    let a = l("((4,3),5):((15,1),3)");
    assert_eq!(coalesce(&a).to_string(), "(4,15):(15,1)");
    assert_eq!(coalesce_by(&a, &HTuple::from((0, 0))).unwrap(), a);
}

#[test]
fn section_3_2_coalesce_3() {
    let a = l("(4,(3,5)):(15,(1,3))");
    assert_eq!(coalesce(&a).to_string(), "(4,15):(15,1)");
    assert_eq!(coalesce_by(&a, &HTuple::from((0, 0))).unwrap().to_string(), "(4,15):(15,1)");
}

#[test]
fn section_3_2_coalesce_bits() {
    assert_eq!(coalesce(&bits("(2,2):(f5,f10)")).to_string(), "4:f5");
    assert_eq!(coalesce(&bits("(2,2):(f3,f6)")).to_string(), "(2,2):(f3,f6)"); // 3·3 = 9, 3 xor 6 = 5
}

#[test]
fn section_3_3_1_identities_24() {
    for text in ["24:1", "(4,6):(1,4)", "(3,(4,2)):(1,(3,12))"] {
        assert!((0..24).all(|i| l(text).eval(i) == i));
        assert_eq!(coalesce(&compose(&l(text), &l("(4,6):(6,1)")).unwrap()), l("(4,6):(6,1)"));
    }
}

#[test]
fn section_3_3_1_identities_4_6() {
    for text in ["(4,6):(e0,e1)", "(4,(3,2)):(e0,(e1,3e1))"] {
        let identity = coords(text);
        for c in Shape::from((4, 6)).coordinates().unwrap() {
            assert_eq!(identity.eval_coord(&c).unwrap(), Coord::from_htuple(&c).unwrap());
        }
        // A right identity, and a left one.
        let a = l("(4,6):(7,31)");
        let r = compose_coordinates(&a, &identity).unwrap();
        assert!((0..24).all(|i| r.eval(i) == a.eval(i)));
        assert_eq!(
            compose_coordinates(&identity, &coords("(2,3):(2e0,2e1)")).unwrap().image(),
            coords("(2,3):(2e0,2e1)").image()
        );
    }
}

#[test]
fn section_3_3_1_associativity_lost() {
    let (a, b, c) = (l("(5,3):(1,7)"), l("4:1"), l("2:5"));
    let right = compose(&a, &compose(&b, &c).unwrap()).unwrap();
    let left = compose(&compose(&a, &b).unwrap(), &c).unwrap();
    assert_eq!((right.to_string().as_str(), left.to_string().as_str()), ("2:7", "2:5"));
}

#[test]
fn section_3_3_3_rank_1() {
    check_compose("7:11", "3:4", "3:44");
    check_compose("7:11", "(3,5):(6,3)", "(3,5):(66,33)");
}

#[test]
fn section_3_3_3_divide_out_and_keep() {
    check_compose("(4,6,8,10):(2,3,5,7)", "6:12", "(2,3):(9,5)");
    check_compose("(2,8,10):(9,5,7)", "6:1", "(2,3):(9,5)");
    check_compose("(4,6,3):(2,3,5)", "6:12", "(2,3):(9,5)");
}

#[test]
fn section_3_3_3_stride_divisibility() {
    check_refused("(4,6,8):(2,3,5)", "6:3", Condition::StrideDivisibility, 0);
}

#[test]
fn section_3_3_3_shape_divisibility() {
    check_refused("(4,6,8):(2,3,5)", "6:1", Condition::ShapeDivisibility, 0);
}

#[test]
fn section_3_3_3_apparent_violation() {
    check_compose("(4,2,8):(3,12,97)", "3:3", "3:9");
    check_compose("(8,8):(3,97)", "3:3", "3:9");
}

#[test]
fn section_3_3_3_violations() {
    check_refused("(4,2,8):(3,12,97)", "4:3", Condition::StrideDivisibility, 0);
    check_refused("(4,2,8):(3,15,97)", "3:3", Condition::StrideDivisibility, 0);
}

#[test]
fn silently_wrong_elsewhere() {
    check_refused("(6,2):(1,12)", "4:5", Condition::StrideDivisibility, 0);
    check_refused("(4,(6,4)):(1,(16,4))", "(6,6):(2,4)", Condition::Disjointness, 1);
}

const TV: &str = "((4,8),2):((16,1),8)";

#[test]
fn figure_6_thread_values() {
    let inverse = inverse(&l(TV)).unwrap(); // (m, n) -> thread + 32·value
    for m in 0..8 {
        for n in 0..8 {
            let tv = inverse.eval(m + 8 * n);
            assert_eq!((tv % 32, tv / 32), (4 * m + n / 2, n % 2));
        }
    }
}

#[test]
fn table_4_row_1_column_major() {
    check_compose("(8,8):(1,8)", TV, "((4,8),2):((16,1),8)");
}

#[test]
fn table_4_row_2_row_major() {
    check_compose("(8,8):(8,1)", TV, "((4,8),2):((2,8),1)");
}

#[test]
fn table_4_row_3_padded() {
    check_compose("(8,8):(1,9)", TV, "((4,8),2):((18,1),9)");
}

#[test]
fn table_4_row_4_interleaved() {
    check_compose("((4,2),(2,4)):((2,16),(1,8))", TV, "((4,(4,2)),2):((8,(2,16)),1)");
}

#[test]
fn table_4_row_5_swizzled() {
    let r = compose(&bits("(8,8):(f1,f9)"), &l(TV)).unwrap();
    assert_eq!(r.to_string(), "((4,8),2):((f18,f1),f9)");
}

#[test]
fn table_4_row_6_coordinates() {
    let r = compose(&coords("(8,8):(e0,e1)"), &l(TV)).unwrap();
    assert_eq!(r.to_string(), "((4,8),2):((2e1,e0),e1)");
    assert_eq!(compose_coordinates(&l("(8,8):(8,1)"), &r).unwrap().to_string(), "((4,8),2):((2,8),1)");
}

/// Figure 7's tilers, and what each points to, for any layout.
fn check_figure_7(tiler: &str, row: impl Fn(i64) -> i64, column: impl Fn(i64) -> i64) {
    let tiler: Tiler = tiler.parse().unwrap();
    for a in [l("(8,16):(1,8)"), l("(8,16):(20,1)"), l("((4,2),(2,8)):((2,64),(1,8))")] {
        let r = compose_tiler(&a, &tiler).unwrap();
        let divided = zipped_divide_tiler(&a, &tiler).unwrap();
        assert_eq!(coalesce(&divided.mode(0).unwrap()), coalesce(&r)); // figure 12
        assert_eq!(divided.mode(1).unwrap().size(), 4);
        for (m, n) in (0..32).map(|i| (i % 4, i / 4)) {
            let value = a.eval_coord(&(row(m), column(n)).into());
            assert_eq!(r.eval_coord(&(m, n).into()), value);
        }
    }
}

#[test]
fn figures_7_and_12_shape() {
    check_figure_7("<4,8>", |m| m, |n| n);
    check_figure_7("(4,8)", |m| m, |n| n);
    check_figure_7("<4:1,8:1>", |m| m, |n| n);
}

#[test]
fn figures_7_and_12_strided() {
    check_figure_7("<4:2,8:1>", |m| 2 * m, |n| n);
    check_figure_7("<4:1,8:2>", |m| m, |n| 2 * n);
    check_figure_7("<4:2,8:2>", |m| 2 * m, |n| 2 * n);
    check_figure_7("<(2,2):(1,4),8:2>", |m| m % 2 + 4 * (m / 2), |n| 2 * n);
}

#[test]
fn section_3_3_5_tilers_are_coordinate_layouts() {
    let a = l("(8,16):(20,1)");
    let tile: Tiler = "<4:1,8:2>".parse().unwrap();
    let as_coords = compose_tiler(&coords("(8,16):(e0,e1)"), &tile).unwrap();
    assert_eq!(as_coords.to_string(), "(4,8):(e0,2e1)");
    assert_eq!(compose_coordinates(&a, &as_coords), compose_tiler(&a, &tile));
    let all: Vec<Layout> = ["(4,8)", "<4,8>", "<4:1,8:1>"]
        .iter()
        .map(|t| compose_tiler(&a, &t.parse().unwrap()).unwrap())
        .chain([compose_coordinates(&a, &coords("(4,8):(e0,e1)")).unwrap()])
        .collect();
    assert!(all.iter().all(|r| r.to_string() == "(4,8):(20,1)"));
}

#[test]
fn nested_tilers() {
    let a = l("((4,2),16):((1,4),8)");
    let t: Tiler = "<<2,_>,8:2>".parse().unwrap();
    assert_eq!(compose_tiler(&a, &t).unwrap().to_string(), "((2,2),8):((1,4),16)");
    assert_eq!(zipped_divide_tiler(&a, &t).unwrap().to_string(), "(((2),8),((2,2),2)):(((1),16),((2,4),8))");
    assert!(compose_tiler(&l("8:1"), &"<4,4>".parse().unwrap()).is_err());
    assert!("<4,".parse::<Tiler>().is_err() && "<0>".parse::<Tiler>().is_err());
}

fn check_right(a: &str, expected: &str) {
    let (a, r) = (l(a), right_inverse(&l(a)));
    assert_eq!(r.to_string(), expected, "{a}");
    assert!((0..r.size()).all(|k| a.eval(r.eval(k)) == k));
}

fn check_left(a: &str, expected: &str) {
    let (a, r) = (l(a), left_inverse(&l(a)).unwrap());
    assert_eq!(r.to_string(), expected, "{a}");
    assert!((0..a.size()).all(|k| a.eval(r.eval(a.eval(k))) == a.eval(k)));
}

macro_rules! rows {
    ($check:ident: $($name:ident: $a:literal => $expected:literal;)*) => {$(
        #[test]
        fn $name() {
            $check($a, $expected);
        }
    )*};
}

rows! { check_right:
    table_5_row_1: "(4,8):(1,4)" => "32:1";
    table_5_row_2: "(4,8):(8,1)" => "(8,4):(4,1)";
    table_5_row_3: "(3,7,5):(5,15,1)" => "(5,21):(21,1)";
    table_5_row_4: "(4,8):(1,5)" => "4:1";
    table_5_row_5: "(4,(4,2)):(4,(1,16))" => "(4,4,2):(4,1,16)";
    table_5_row_6: "((2,2),(4,2)):((1,8),(2,16))" => "(2,4,2,2):(1,4,2,16)";
    // Printed (2,2):(4,8). But L(4) = 0 is not 1: the modes of strides 1 and 2 lie at coordinates 2 and 8, and the second
    // has extent 4.
    table_5_row_7: "((2,2),(2,4)):((0,1),(0,2))" => "(2,4):(2,8)";
    table_5_row_8: "((2,2),(2,4)):((0,2),(0,4))" => "1:0";
}

#[test]
fn table_5_row_7_as_printed_is_wrong() {
    let (a, printed) = (l("((2,2),(2,4)):((0,1),(0,2))"), l("(2,2):(4,8)"));
    assert_ne!(a.eval(printed.eval(1)), 1);
    assert_ne!(printed.eval(a.eval(printed.eval(1))), printed.eval(1)); // equation 24
    assert!((0..4).any(|k| a.eval(printed.eval(a.eval(k))) != a.eval(k))); // equation 26
}

fn check_right_coordinates(a: &str, expected: &str) {
    let (a, r) = (coords(a), right_inverse_coordinates(&coords(a)).unwrap());
    assert_eq!(r.to_string(), expected);
    for k in r.shape().coordinates().unwrap() {
        let at = r.eval_coord(&k).unwrap();
        assert_eq!(a.eval(at), Coord::from_htuple(&k).unwrap());
    }
}

fn check_left_coordinates(a: &str, expected: &str) {
    let (a, r) = (coords(a), left_inverse_coordinates(&coords(a)).unwrap());
    assert_eq!(r.to_string(), expected);
    for k in 0..a.size() {
        let value = a.eval(k).to_htuple(&HTuple::from((0, 0))).unwrap();
        assert_eq!(a.eval(r.eval_coord(&value).unwrap()), a.eval(k));
    }
}

fn check_right_bits(a: &str, expected: &str) {
    let (a, r) = (bits(a), right_inverse_f2(&bits(a)).unwrap());
    assert_eq!(r.to_string(), expected);
    assert!((0..r.size()).all(|k| a.eval(r.eval(k).0 as i64) == F2(k as u64)));
}

fn check_left_bits(a: &str, expected: &str) {
    let (a, r) = (bits(a), left_inverse_f2(&bits(a)).unwrap());
    assert_eq!(r.to_string(), expected);
    assert!((0..a.size()).all(|k| a.eval(r.eval(a.eval(k).0 as i64).0 as i64) == a.eval(k)));
}

rows! { check_right_coordinates:
    table_5_row_9: "(4,8):(e0,e1)" => "(4,8):(1,4)";
    table_5_row_10: "(4,(4,2)):(e1,(e0,6e1))" => "(4,4):(4,1)";
}

rows! { check_right_bits:
    table_5_row_11: "(4,(4,3)):(f1,(f5,f16))" => "(4,4,3):(f1,f5,f16)";
    right_inverse_of_a_swizzle: "(8,8):(f1,f9)" => "(8,8):(f1,f9)";
    right_inverse_of_bits_with_a_hole: "(2,2):(f1,f4)" => "2:f1";
}

rows! { check_left:
    table_6_row_1: "(4,8):(1,4)" => "32:1";
    table_6_row_2: "(4,8):(8,1)" => "(8,4):(4,1)";
    table_6_row_3: "(3,7,5):(5,15,1)" => "(5,21):(21,1)";
    table_6_row_4: "(4,8):(1,5)" => "(5,8):(1,4)";
    table_6_row_5: "(4,(4,2)):(4,(1,16))" => "(4,4,2):(4,1,16)";
    table_6_row_6: "((2,2),(4,2)):((1,8),(2,16))" => "(2,4,2,2):(1,4,2,16)";
    table_6_row_7: "((2,2),(2,4)):((0,2),(0,4))" => "(2,2,4):(0,2,8)";
    // Printed (2,2):(4,8); see table 5, row 7.
    table_6_row_8: "((2,2),(2,4)):((0,1),(0,2))" => "(2,4):(2,8)";
}

rows! { check_left_coordinates:
    table_6_row_9: "(4,8):(e0,e1)" => "(4,8):(1,4)";
    table_6_row_10: "(4,(4,2)):(e1,(e0,6e1))" => "(4,(6,2)):(4,(1,16))";
}

rows! { check_left_bits:
    table_6_row_11: "(4,(4,3)):(f1,(f5,f16))" => "(4,4,3):(f1,f5,f16)";
    left_inverse_of_bits_with_a_hole: "(2,2):(f1,f4)" => "(2,2,2):(f1,f0,f2)";
    left_inverse_of_bits_that_collide: "(2,2,2):(f1,f2,f3)" => "4:f1";
}

#[test]
fn section_3_4_1_full_inverses() {
    assert_eq!(inverse_f2(&bits("(8,8):(f1,f9)")).unwrap().to_string(), "(8,8):(f1,f9)");
    assert!(inverse_f2(&bits("(8,8):(f1,f16)")).is_err());
    assert_eq!(inverse_coordinates(&coords("(4,8):(e1,e0)")).unwrap().to_string(), "(8,4):(4,1)");
    assert!(inverse_coordinates(&coords("(4,8):(e1,2e0)")).is_err());
}

#[test]
fn section_3_4_2_right_inverses() {
    for text in ["(4,8):(1,4)", "(4,8):(8,1)"] {
        assert_eq!(right_inverse(&l(text)).size(), 32);
    }
}

/// Figure 8 draws its layouts without naming them; these have the offsets and coordinates that the text gives.
#[test]
fn figure_8a_common_subvector() {
    let r = max_common_layout(&l("((2,2),8):((1,16),2)"), &l("(4,8):(1,4)"));
    assert_eq!(r.to_string(), "2:1"); // offsets 0, 1 at coordinates 0, 1
}

#[test]
fn figure_8b_common_subvector() {
    // Offsets 0, 1, 2, 3 at coordinates 0, 2, 8, 10.
    let (a, b) = (l("((2,2),(2,4)):((4,1),(8,2))"), l("((2,2),(2,4)):((16,1),(4,2))"));
    let r = max_common_layout(&a, &b);
    assert_eq!(r.image()[..4], [0, 2, 8, 10]);
    for k in 0..r.size() {
        assert_eq!((a.eval(r.eval(k)), b.eval(r.eval(k))), (k, k));
    }
}

#[test]
fn section_3_4_4_admissibility() {
    // A 128 x 8 accumulator, rows along the lanes of tensor memory, columns along its columns.
    let data = l("(128,8):(16384,1)");
    for (t, at) in [
        ("(1,128):(1,16384)", "(1,128):(0,1)"),
        ("(2,128):(1,16384)", "(2,128):(128,1)"),
        ("(8,(16,4)):(1,(16384,524288))", "(8,(16,4)):(128,(1,32))"),
    ] {
        let found = admissible(&data, &l(t)).unwrap();
        assert_eq!(found.to_string(), at);
        assert!((0..found.size()).all(|i| data.eval(found.eval(i)) == l(t).eval(i)));
    }
    assert!(admissible(&l("(64,8):(16384,1)"), &l("(1,128):(1,16384)")).is_err());
    assert!(admissible(&l("(128,4):(16384,2)"), &l("(2,128):(1,16384)")).is_err());
}

fn check_complement(a: &str, expected: &str) {
    let r = complement_unbounded(&l(a)).unwrap();
    assert_eq!(r.to_string(), expected);
    let image = l(a).image();
    for i in 1..r.size() + 20 {
        assert!(!image.contains(&r.eval(i)) && r.eval(i - 1) < r.eval(i));
    }
}

fn check_complement_coordinates(a: &str, expected: &str) {
    let (a, r) = (coords(a), complement_coordinates(&coords(a), None).unwrap());
    assert_eq!(r.to_string(), expected);
    let image = a.image();
    let beyond: Shape = r.shape().map(|n| n + 2);
    for c in beyond.coordinates().unwrap().skip(1) {
        assert!(!image.contains(&r.eval_coord(&c).unwrap()), "{a}: {r} at {c}");
    }
}

rows! { check_complement:
    table_7_row_1: "(4,8):(1,4)" => "1:32";
    table_7_row_2: "(4,8):(8,1)" => "1:32";
    table_7_row_3: "(4,(4,2)):(4,(1,16))" => "1:32";
    table_7_row_4: "(4,8):(1,5)" => "1:40";
    table_7_row_5: "(4,8):(1,8)" => "(2,1):(4,64)";
    table_7_row_6: "((2,2),(2,4)):((0,1),(0,2))" => "1:8";
    table_7_row_7: "((2,2),(2,4)):((0,2),(0,4))" => "(2,1):(1,16)";
}

rows! { check_complement_coordinates:
    // Printed (1,1):(4e0,4e1); but 4e1 is the value of (4,8):(e0,e1) at (0,4), against equation 28.
    table_7_row_8: "(4,8):(e0,e1)" => "(1,1):(4e0,8e1)";
}

#[test]
fn table_7_row_8_as_printed_is_wrong() {
    let (a, printed) = (coords("(4,8):(e0,e1)"), coords("(1,1):(4e0,4e1)"));
    assert_eq!(printed.eval_coord(&(0, 1).into()), a.eval_coord(&(0, 4).into()));
}

#[test]
fn table_7_row_9() {
    let a = coords("(4,(4,2)):(e1,(e0,12e1))");
    let r = complement_coordinates(&a, None).unwrap();
    assert_eq!(r.to_string(), "(1,(3,1)):(4e0,(4e1,24e1))");
    let image = a.image();
    for c in [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (2, 3), (3, 7)] {
        assert!(!image.contains(&r.eval_coord(&c.into()).unwrap()));
    }
    let bounded = complement_coordinates(&coords("(4,8):(e0,e1)"), Some(&(8, 16).into())).unwrap();
    assert_eq!(bounded.to_string(), "(2,2):(4e0,8e1)");
}

#[test]
fn section_3_5_1_product_1() {
    let r = logical_product(&l("(3,4):(4,1)"), &l("(2,5):(1,2)")).unwrap();
    assert_eq!(r.to_string(), "((3,4),(2,5)):((4,1),(12,24))");
}

#[test]
fn section_3_5_1_product_2() {
    assert_eq!(complement_unbounded(&l("(4,8):(20,2)")).unwrap().to_string(), "(2,1):(1,80)");
    let r = logical_product(&l("(4,8):(20,2)"), &l("(3,2):(2,1)")).unwrap();
    assert_eq!(r.to_string(), "((4,8),(3,2)):((20,2),(80,1))");
}

#[test]
fn figure_10_blocked_product() {
    let r = blocked_product(&l("(3,4):(4,1)"), &l("(2,5):(1,2)")).unwrap();
    assert_eq!(r.to_string(), "((3,2),(4,5)):((4,12),(1,24))");
    let row = |m: i64| (0..20).map(|n| r.eval_coord(&(m, n).into()).unwrap()).collect::<Vec<_>>();
    assert_eq!(row(0), [0, 1, 2, 3, 24, 25, 26, 27, 48, 49, 50, 51, 72, 73, 74, 75, 96, 97, 98, 99]);
    assert_eq!(row(3), [12, 13, 14, 15, 36, 37, 38, 39, 60, 61, 62, 63, 84, 85, 86, 87, 108, 109, 110, 111]);
    assert_eq!(row(5), [20, 21, 22, 23, 44, 45, 46, 47, 68, 69, 70, 71, 92, 93, 94, 95, 116, 117, 118, 119]);
}

#[test]
fn figure_11_raked_product() {
    let r = raked_product(&l("(3,4):(4,1)"), &l("(2,5):(1,2)")).unwrap();
    assert_eq!(r.to_string(), "((2,3),(5,4)):((12,4),(24,1))");
    let row = |m: i64| (0..20).map(|n| r.eval_coord(&(m, n).into()).unwrap()).collect::<Vec<_>>();
    assert_eq!(row(0), [0, 24, 48, 72, 96, 1, 25, 49, 73, 97, 2, 26, 50, 74, 98, 3, 27, 51, 75, 99]);
    assert_eq!(row(3), [16, 40, 64, 88, 112, 17, 41, 65, 89, 113, 18, 42, 66, 90, 114, 19, 43, 67, 91, 115]);
    assert_eq!(row(5), [20, 44, 68, 92, 116, 21, 45, 69, 93, 117, 22, 46, 70, 94, 118, 23, 47, 71, 95, 119]);
}

#[test]
fn section_3_5_2_divide_1() {
    check_compose("24:3", "8:3", "8:9");
    assert_eq!(complement(&l("8:3"), 24).unwrap().to_string(), "3:1");
    assert_eq!(logical_divide(&l("24:3"), &l("8:3")).unwrap().to_string(), "(8,3):(9,3)");
}

#[test]
fn section_3_5_2_divide_2() {
    check_compose("(6,2,2):(2,1,20)", "8:3", "(2,2,2):(6,1,20)");
    let r = logical_divide(&l("(6,2,2):(2,1,20)"), &l("8:3")).unwrap();
    assert_eq!(r.to_string(), "((2,2,2),3):((6,1,20),2)");
}

#[test]
fn section_3_5_2_divide_by_mode() {
    let (a, t) = (l("(8,16):(20,1)"), "<4:1,8:2>".parse::<Tiler>().unwrap());
    assert_eq!(logical_divide_tiler(&a, &t).unwrap().to_string(), "((4,2),(8,2)):((20,80),(2,1))");
    assert_eq!(zipped_divide_tiler(&a, &t).unwrap().to_string(), "((4,8),(2,2)):((20,2),(80,1))");
    assert_eq!(tiled_divide_tiler(&a, &t).unwrap().to_string(), "((4,8),2,2):((20,2),80,1)");
    assert_eq!(flat_divide_tiler(&a, &t).unwrap().to_string(), "(4,8,2,2):(20,2,80,1)");
    let by_coords = logical_divide_coordinates(&a, &coords("(4,8):(e0,2e1)")).unwrap();
    assert_eq!(by_coords, zipped_divide_tiler(&a, &t).unwrap());
}

#[test]
fn section_3_5_2_select_a_tile() {
    let data = Tensor::new(Counting(0), l("(8,16):(20,1)"));
    let tiled =
        Tensor::new(data.accessor, zipped_divide_tiler(&data.layout, &"(4,8)".parse().unwrap()).unwrap());
    let by_id = tiled.slice(&"(_,3)".parse().unwrap()).unwrap();
    assert_eq!(by_id, tiled.slice(&"(_,(1,1))".parse().unwrap()).unwrap());
    assert_eq!(by_id.to_string(), "{88} o (4,8):(20,1)");
}

#[test]
fn recasting() {
    for (layout, from, to, expected) in [
        ("(8,64):(64,1)", 16, 32, "(8,32):(32,1)"),
        ("(2,4):(1,2)", 8, 64, "(1,1):(0,1)"),
        ("(4,8):(8,1)", 32, 8, "(4,32):(32,1)"),
        ("((2,4),3):((1,0),2)", 16, 32, "((1,4),3):((1,0),1)"),
        // Parts of one element in several modes.
        ("(2,3):(1,2)", 16, 48, "(1,2):(0,1)"),
        ("((3,2),1):((2,1),1)", 16, 48, "((2,1),1):((1,0),0)"),
        ("((2,3),3):((1,6),2)", 16, 48, "((1,3),2):((0,2),1)"),
        ("(2,3):(1,2)", 8, 48, "(1,1):(0,1)"),
        // Neither width divides the other.
        ("8:1", 6, 8, "6:1"),
        ("(4,8):(8,1)", 6, 8, "(4,6):(6,1)"),
        // A mode of extent 1 has no offsets but 0.
        ("(3,1):(5,7)", 16, 8, "(3,2):(10,1)"),
    ] {
        assert_eq!(recast(&l(layout), from, to).unwrap().to_string(), expected);
    }
    for (layout, from, to) in
        [("8:2", 16, 32), ("8:2", 16, 8), ("(2,4):(1,3)", 8, 16), ("8:-1", 8, 16), ("8:1", 8, 12)]
    {
        assert!(recast(&l(layout), from, to).is_err(), "{layout} {from} {to}");
    }
}

#[test]
fn swizzles_as_bits() {
    let sl: SwizzledLayout = "Sw<3,3,3> o (8,64):(64,1)".parse().unwrap();
    let f2 = sl.to_f2().unwrap();
    assert_eq!(f2.to_string(), "(8,64):(f72,f1)");
    assert!((0..512).all(|i| f2.eval(i) == F2(sl.eval(i) as u64)));
    assert_eq!(from_f2(&to_f2(&l("(8,4):(1,8)")).unwrap()).unwrap(), l("(8,4):(1,8)"));
    assert!(from_f2(&f2).is_err());
    assert!(to_f2(&l("4:-1")).is_err());
    assert_eq!(compose_f2(&bits("(8,64):(f72,f1)"), &bits("(8,64):(f1,f8)")).unwrap(), f2);
    let n = nullspace_f2(&bits("(2,2,2):(f1,f2,f3)")).unwrap();
    assert_eq!(n.to_string(), "2:f7");
}

#[test]
fn composition_over_bits_checks_linearity() {
    let a = bits("8:f3");
    match compose(&a, &l("(2,4):(1,2)")) {
        Err(LayoutError::Composition { condition: Condition::Linearity, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(compose(&a, &l("4:2")).unwrap().to_string(), "4:f6");
}

#[test]
fn extreme_strides_are_errors_not_panics() {
    let top = bits("(2,3):(f9223372036854775808,f4)");
    assert!(left_inverse_f2(&top).is_err());
    assert!(left_inverse_f2(&bits("2:f9223372036854775808")).is_err());
    assert_eq!(right_inverse_f2(&top).unwrap().to_string(), "1:f0");
    let far = coords("2:e9223372036854775807");
    assert!(right_inverse_coordinates(&far).is_err() && complement_coordinates(&far, None).is_err());
    assert!(right_inverse_coordinates(&coords("(2,2):(e0,e(0,1))")).is_err());
    assert!(compose_coordinates(&l("(4,4):(1,4)"), &coords("2:e2")).is_err());
    assert!(compose_coordinates(&l("(4,4):(1,4)"), &coords("2:e0+e1")).is_err());
    assert!(Coord::nested(&[0; 65]).is_err());
    assert!(recast(&l("8:1"), 0, 8).is_err() && recast(&l("4611686018427387904:1"), 64, 8).is_err());
    assert!(tile_to_shape(&l("3:1"), &8.into(), &0.into()).is_err());
    assert!(Layout::ordered((2, 3).into(), &0.into()).is_err());
}
