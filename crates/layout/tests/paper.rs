//! The worked examples of the paper, by section.

use tilewright_layout::*;

fn l(text: &str) -> Layout {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn check_compose(a: &str, b: &str, expected: &str) {
    let r = compose(&l(a), &l(b)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(r.to_string(), expected, "{a} o {b}");
}

#[track_caller]
fn check_refused(a: &str, b: &str, expected: Condition) {
    match compose(&l(a), &l(b)) {
        Err(LayoutError::Composition { condition, .. }) => assert_eq!(condition, expected, "{a} o {b}"),
        other => panic!("{a} o {b}: {other:?}"),
    }
}

#[test]
fn section_2_2_compatibility() {
    let s = |t: &str| l(&format!("{t}:{t}")).shape().clone();
    for (p, q) in [("30", "(2,15)"), ("(2,15)", "(2,(3,5))"), ("30", "(6,5)"), ("(6,5)", "((3,2),5)")] {
        assert!(s(p).compatible(&s(q)), "{p} {q}");
        assert!(!s(q).compatible(&s(p)), "{q} {p}");
    }
    assert!(!s("(2,(3,5))").compatible(&s("((3,2),5)")));
    assert!(!s("((3,2),5)").compatible(&s("(2,(3,5))")));
}

#[test]
fn section_2_2_coordinates() {
    let shape = Shape::from(((2, 3), 2));
    assert_eq!(idx2crd(9, &shape).to_string(), "((1,1),1)");
    for i in 0..12 {
        assert_eq!(crd2idx(&idx2crd(i, &shape), &shape), Ok(i));
    }
    assert_eq!(crd2idx(&(3, 1).into(), &shape), Ok(9));
    assert!(crd2idx(&(3, 1, 0).into(), &shape).is_err());
}

#[test]
fn section_3_2_coalesce() {
    for (a, whole, by_mode) in [
        ("(2,(1,6)):(1,(6,2))", "12:1", "(2,6):(1,2)"),
        ("((4,3),5):((15,1),3)", "(4,15):(15,1)", "((4,3),5):((15,1),3)"),
        ("(4,(3,5)):(15,(1,3))", "(4,15):(15,1)", "(4,15):(15,1)"),
    ] {
        assert_eq!(coalesce(&l(a)).to_string(), whole);
        assert_eq!(coalesce_by(&l(a), &HTuple::from((0, 0))).unwrap().to_string(), by_mode);
    }
    assert!(coalesce_by(&l("(2,3):(1,2)"), &HTuple::from((0, 0, 0))).is_err());
    assert!(coalesce_by(&l("6:1"), &HTuple::from((0, 0))).is_err());
}

#[test]
fn section_3_3_composition() {
    check_compose("7:11", "3:4", "3:44");
    check_compose("7:11", "(3,5):(6,3)", "(3,5):(66,33)");
    check_compose("(4,6,8,10):(2,3,5,7)", "6:12", "(2,3):(9,5)");
    check_compose("(5,3):(1,7)", "2:5", "2:7");
    check_compose("(4,2,8):(3,12,97)", "3:3", "3:9");
    check_compose("(64,16):(1,0)", "((8,2),(4,16)):((1,32),(8,64))", "((8,2),(4,16)):((1,32),(8,0))");
    check_compose("(8,8):(1,8)", "8:-1", "8:-1");
    // Out of bounds the last mode extends, also one of extent 1.
    check_compose("(2,1):(1,80)", "(3,2):(2,1)", "(3,2):(80,1)");
    // The extents of B are refined, its nesting stays.
    check_compose("(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)");
}

#[test]
fn table_4_partitioning() {
    let b = "((4,8),2):((16,1),8)";
    check_compose("(8,8):(1,8)", b, "((4,8),2):((16,1),8)");
    check_compose("(8,8):(8,1)", b, "((4,8),2):((2,8),1)");
    check_compose("(8,8):(1,9)", b, "((4,8),2):((18,1),9)");
    check_compose("((4,2),(2,4)):((2,16),(1,8))", b, "((4,(4,2)),2):((8,(2,16)),1)");
}

#[test]
fn section_3_3_3_violations() {
    use Condition::*;
    check_refused("(4,6,8):(2,3,5)", "6:3", StrideDivisibility);
    check_refused("(4,6,8):(2,3,5)", "6:1", ShapeDivisibility);
    check_refused("(4,2,8):(3,12,97)", "4:3", StrideDivisibility);
    check_refused("(4,2,8):(3,15,97)", "3:3", StrideDivisibility);
    check_refused("(6,2):(1,12)", "4:5", StrideDivisibility);
    check_refused("(4,(6,4)):(1,(16,4))", "(6,6):(2,4)", Disjointness);
    check_refused("(64,16):(1,0)", "96:1", ShapeDivisibility);
}

#[test]
fn apparent_violations_succeed() {
    // No divisibility, but two points are always a layout: decided pointwise.
    check_compose("(4,4):(1,8)", "(2,2):(5,0)", "(2,2):(9,0)");
    // A negative stride that is a multiple of the first extent of A.
    check_compose("(4,8):(1,9)", "(4,1):(-4,7)", "(4,1):(-9,0)");
}

#[test]
fn section_3_3_5_tilers() {
    let r = compose_by_mode(&l("(8,16):(16,1)"), &[l("4:2"), l("8:1")]).unwrap();
    assert_eq!(r.to_string(), "(4,8):(32,1)");
    let r = compose_by_mode(&l("(8,16):(16,1)"), &[l("4:2")]).unwrap();
    assert_eq!(r.to_string(), "(4,16):(32,1)");
    assert!(compose_by_mode(&l("8:1"), &[l("4:1"), l("4:1")]).is_err());
}

#[test]
fn tables_5_and_6_inverses() {
    for (a, right, left) in [
        ("(4,8):(1,4)", "32:1", "32:1"),
        ("(4,8):(8,1)", "(8,4):(4,1)", "(8,4):(4,1)"),
        ("(3,7,5):(5,15,1)", "(5,21):(21,1)", "(5,21):(21,1)"),
        ("(4,8):(1,5)", "4:1", "(5,8):(1,4)"),
        ("(4,(4,2)):(4,(1,16))", "(4,4,2):(4,1,16)", "(4,4,2):(4,1,16)"),
        ("((2,2),(4,2)):((1,8),(2,16))", "(2,4,2,2):(1,4,2,16)", "(2,4,2,2):(1,4,2,16)"),
        // The paper prints (2,2):(4,8) for this one, which does not satisfy its equations.
        ("((2,2),(2,4)):((0,1),(0,2))", "(2,4):(2,8)", "(2,4):(2,8)"),
        ("((2,2),(2,4)):((0,2),(0,4))", "1:0", "(2,2,4):(0,2,8)"),
    ] {
        assert_eq!(right_inverse(&l(a)).to_string(), right, "{a}");
        assert_eq!(left_inverse(&l(a)).unwrap().to_string(), left, "{a}");
    }
    assert!(left_inverse(&l("(4,8):(1,2)")).is_err());
    assert!(left_inverse(&l("(2,2):(2,5)")).is_err());
    assert!(left_inverse(&l("4:-1")).is_err());
    assert!(inverse(&l("(4,8):(1,5)")).is_err());
    // Where modes overlap the greatest right inverse may use a part of one.
    assert_eq!(right_inverse(&l("(3,4):(1,2)")).to_string(), "(2,4):(1,3)");
}

#[test]
fn table_7_complements() {
    for (a, expected) in [
        ("(4,8):(1,4)", "1:32"),
        ("(4,8):(8,1)", "1:32"),
        ("(4,(4,2)):(4,(1,16))", "1:32"),
        ("(4,8):(1,5)", "1:40"),
        ("(4,8):(1,8)", "(2,1):(4,64)"),
        ("((2,2),(2,4)):((0,1),(0,2))", "1:8"),
        ("((2,2),(2,4)):((0,2),(0,4))", "(2,1):(1,16)"),
        ("(4,8):(20,2)", "(2,1):(1,80)"),
    ] {
        assert_eq!(complement_unbounded(&l(a)).unwrap().to_string(), expected, "{a}");
    }
    assert_eq!(complement(&l("8:3"), 24).unwrap().to_string(), "3:1");
    assert_eq!(complement(&l("4:1"), 4).unwrap().to_string(), "1:0");
    assert_eq!(complement(&l("4:1"), 10).unwrap().to_string(), "3:4");
    assert!(complement(&l("(4,4):(1,2)"), 16).is_err());
    // A mode that runs backwards: copies of `-3, …, 0` shifted by 4.
    assert_eq!(complement(&l("4:-1"), 16).unwrap().to_string(), "4:4");
    assert!(complement(&l("4:1"), 0).is_err());
}

#[test]
fn section_3_5_1_products() {
    let r = logical_product(&l("(4,8):(20,2)"), &l("(3,2):(2,1)")).unwrap();
    assert_eq!(r.to_string(), "((4,8),(3,2)):((20,2),(80,1))");
    let (a, b) = (l("(3,4):(4,1)"), l("(2,5):(1,2)"));
    assert_eq!(tiled_product(&a, &b).unwrap().to_string(), "((3,4),2,5):((4,1),12,24)");
    assert_eq!(flat_product(&a, &b).unwrap().to_string(), "(3,4,2,5):(4,1,12,24)");
    assert_eq!(zipped_product(&a, &b), logical_product(&a, &b));
    // Figures 10 and 11.
    let blocked = blocked_product(&a, &b).unwrap();
    assert_eq!(blocked.eval_coord(&(4, 5).into()), Ok(41));
    assert_eq!(raked_product(&a, &b).unwrap().eval_coord(&(3, 6).into()), Ok(41));
    // The one of lower rank gets modes 1:0.
    assert_eq!(
        blocked_product(&l("(4,2):(1,4)"), &l("2:1")).unwrap().to_string(),
        "((4,2),(2,1)):((1,8),(4,0))"
    );
}

#[test]
fn section_3_5_2_divides() {
    let a = l("(8,16,3):(1,8,128)");
    let t = [l("4:2"), l("8:1")];
    let text = |r: Result<Layout, LayoutError>| r.unwrap().to_string();
    assert_eq!(text(logical_divide_by_mode(&a, &t)), "((4,2),(8,2),3):((2,1),(8,64),128)");
    assert_eq!(text(zipped_divide_by_mode(&a, &t)), "((4,8),(2,2,3)):((2,8),(1,64,128))");
    assert_eq!(text(tiled_divide_by_mode(&a, &t)), "((4,8),2,2,3):((2,8),1,64,128)");
    assert_eq!(text(flat_divide_by_mode(&a, &t)), "(4,8,2,2,3):(2,8,1,64,128)");
    assert_eq!(text(tiled_divide(&l("32:1"), &l("(2,4):(1,4)"))), "((2,4),2,2):((1,4),2,16)");
    assert_eq!(text(flat_divide(&l("32:1"), &l("(2,4):(1,4)"))), "(2,4,2,2):(1,4,2,16)");
    assert!(logical_divide_by_mode(&l("8:1"), &t).is_err());
    assert!(logical_divide(&l("40:1"), &l("(4,8):(1,5)")).is_err());
}

#[test]
fn invariants_are_enforced() {
    let leaf = |n: i64| HTuple::Leaf(n);
    let refused = |s: Shape, d: HTuple<i64>| Layout::new(s, d).unwrap_err();
    assert!(matches!(refused((2, 3).into(), leaf(1)), LayoutError::NotCongruent { .. }));
    assert!(matches!(refused(leaf(0), leaf(1)), LayoutError::NotPositive { .. }));
    assert!(matches!(refused(HTuple::Tuple(vec![]), HTuple::Tuple(vec![])), LayoutError::EmptyTuple));
    let huge = Shape::from((1i64 << 40, 1i64 << 40));
    assert!(matches!(refused(huge, (0, 0).into()), LayoutError::Overflow { .. }));
    assert!(matches!(refused(leaf(3), leaf(i64::MAX / 2 + 1)), LayoutError::Overflow { .. }));
    assert!(matches!(refused(leaf(3), leaf(i64::MIN)), LayoutError::Overflow { .. }));
    assert_eq!(l("1:-9223372036854775808").cosize(), 1);
    assert!(compose(&l("4:4611686018427387"), &l("4:4611686018427387")).is_err());
    assert!(l("(4,8):(1,4)").mode(2).is_err());
    assert_eq!(l("4:2").mode(0), Ok(l("4:2")));
    assert!(l("4:2").eval_coord(&HTuple::from(vec![1])).is_err());
    assert_eq!(l("4:2").eval(i64::MAX), i64::MAX);
    assert!(l("4:2").checked_eval(i64::MAX).is_err());
}

#[test]
fn sums_of_coordinates() {
    for text in ["0", "e0", "6e1", "e0+6e1", "2e0-e3", "-e0-2e1"] {
        assert_eq!(text.parse::<Coord>().unwrap().to_string(), text);
    }
    assert_eq!("e1+e0-e1".parse::<Coord>().unwrap(), Coord::basis(0));
    for text in ["", "e", "6", "e0+", "e-1", "9223372036854775808e0", "e0 e1"] {
        assert!(text.parse::<Coord>().is_err(), "{text}");
    }
    let d = HTuple::Tuple(vec![HTuple::Leaf(Coord::basis(1)), HTuple::Leaf(Coord::basis(1).scale(4))]);
    let a = Layout::new((4, 2).into(), d).unwrap();
    assert_eq!(coalesce(&a).to_string(), "8:e1");
    assert_eq!(a.eval(7).component(1), 7);
}

#[test]
fn swizzles() {
    let sl: SwizzledLayout = "Sw<3,4,3> o (8,64):(64,1)".parse().unwrap();
    assert_eq!(sl.to_string(), "Sw<3,4,3> o (8,64):(64,1)");
    assert_eq!(sl.eval(2), 128 ^ 16);
    let mut values: Vec<i64> = (0..512).map(|i| sl.eval(i)).collect();
    values.sort_unstable();
    assert_eq!(values, (0..512).collect::<Vec<_>>());
    assert_eq!("8:1".parse::<SwizzledLayout>().unwrap().to_string(), "8:1");
    assert_eq!(SwizzledLayout::new(Swizzle::NONE, l("8:1")).to_string(), "8:1");
    assert!(Swizzle::new(3, 4, 2).is_err());
    assert!(Swizzle::new(30, 30, 30).is_err());
    assert!(Swizzle::new(u32::MAX, 1, u32::MAX).is_err());
    assert!("Sw<3,4> o 8:1".parse::<SwizzledLayout>().is_err());
    assert_eq!(Swizzle::new(0, 0, 0), Ok(Swizzle::NONE));
}
