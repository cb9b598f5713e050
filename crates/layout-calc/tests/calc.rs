//! The calculator: what it computes, what it refuses, and that nothing makes it panic.

use proptest::prelude::*;
use tilewright_layout::Layout;
use tilewright_layout_calc::{Session, Value, evaluate};

use crate::common::{check, reads_again, survives};

#[test]
fn expressions() {
    check("((2,2),(4,2)):((1,8),(2,16)) (22)", "26");
    check("((2,2),(4,2)):((1,8),(2,16))(2,5)", "26");
    check("((2,2),(4,2)):((1,8),(2,16))((0,1),5)", "26");
    check("compose((4,6,8,10):(2,3,5,7), 6:12)", "(2,3):(9,5)");
    check("(8,8):(8,1) o ((4,8),2):((16,1),8)", "((4,8),2):((2,8),1)");
    check("(8,8):(8,1) ∘ 4", "4:8");
    check("(8,16):(1,8) o <4:2, 8>", "(4,8):(2,8)");
    check("(8,16):(1,8) o (4,8)", "(4,8):(1,8)");
    check("coalesce((2,(1,6)):(1,(6,2)))", "12:1");
    check("coalesce((2,(1,6)):(1,(6,2)), (1,1))", "(2,6):(1,2)");
    check("complement((4,8):(1,8))", "(2,1):(4,64)");
    check("complement((4,8):(1,8), 64)", "2:4");
    check("left_inverse((4,8):(1,5))", "(5,8):(1,4)");
    check("right_inverse((4,8):(8,1))", "(8,4):(4,1)");
    check("inverse((4,8):(8,1))", "(8,4):(4,1)");
    check("zipped_divide((8,16):(1,8), <4,8>)", "((4,8),(2,2)):((1,8),(4,64))");
    check("logical_divide(24, 8:3)", "(8,3):(3,1)");
    check("blocked_product((3,4):(4,1), (2,5):(1,2))", "((3,2),(4,5)):((4,12),(1,24))");
    check("swizzle(3,4,3) o (8,64):(64,1)", "Sw<3,4,3> o (8,64):(64,1)");
    check("(Sw<3,4,3> o (8,64):(64,1))(2)", "144");
    check("swizzle(3,4,3) o (8,64):(64,1) o <4,8>", "Sw<3,4,3> o (4,8):(64,1)");
    check("Sw<3,4,3>(128)", "144");
    check("size((4,8):(1,5))", "32");
    check("cosize((4,8):(1,5))", "39");
    check("rank((4,8):(1,5))", "2");
    check("depth(((4,8)))", "2");
    check("shape(((4,2),8):((1,4),9))", "((4,2),8)");
    check("stride(((4,2),8):((1,4),9))", "((1,4),9)");
    check("flatten(((4,2),8):((1,4),9))", "(4,2,8):(1,4,9)");
    check("injective((4,8):(1,5))", "true");
    check("compact((4,8):(1,5))", "false");
    check("congruent((4,8):(1,5), (1,1))", "true");
    check("compatible(30, (2,15))", "true");
    check("let A = (4,8):(8,1); let B = 4:8; compose(A, B)", "4:2");
    check("(4:1, 8:2)", "(4,8):(1,2)");
    check("image(row_major((2,3)))", "(0,3,1,4,2,5)");
    check("<4:1, 8:2>", "<4:1,8:2>");
    check("(-4:1)", "at byte 1: extent -4 in a shape is not positive: every extent must be at least 1");
}

#[test]
fn tilers_nest_and_keep() {
    check("compose(((8,4),16):((20,160),1), <<4:1,2:2>,8:2>)", "((4,2),8):((20,320),2)");
    check("compose((8,16):(20,1), <_,8:2>)", "(8,8):(20,2)");
    check("compose((8,16):(20,1), <4>)", "(4,16):(20,1)");
    check("zipped_divide((8,16):(1,8), <_,8>)", "((8),(8,2)):((8),(1,64))");
    check("logical_divide(((8,4),16):((1,8),32), <<4>,8>)", "(((4,2),4),(8,2)):(((1,4),8),(32,256))");
    check("logical_product((2,5):(1,2), <3,4:2>)", "((2,3),(5,4)):((1,2),(2,10))");
    check("zipped_product((2,5):(1,2), <3,4>)", "((2,5),(3,(2,2))):((1,2),(2,(1,10)))");
    check("tiled_product((2,5):(1,2), <3,_>)", "((2),3,5):((1),2,2)");
    check("blocked_product(((2,3),5):((1,2),6), <(2,2):(1,2)>)", "(((2,2),(3,2)),5):(((1,6),(2,12)),6)");
    check("<4, <_, 8:2>>", "<4:1,<_,8:2>>");
    check("complement((4,8):(1,2), (8,16))", "(2,2):(4,1)");
    check("right_inverse(((2,4),8):((4,1),3), (0,0))", "((4,2),1):((2,1),0)");
    check(
        "compose(8:1, <4,4>)",
        "at byte 0: composition by mode of a layout of rank 1 with one of rank 2: there must be at most one tiler for \
         each mode",
    );
}

#[test]
fn figure_5_slices() {
    let slices = [
        ("2,_", "{8} o ((2,3),2):((2,15),100)"),
        ("_,5", "{32} o (3,2):(4,1)"),
        ("2,((0,_),_)", "{8} o (3,2):(15,100)"),
        ("(_,1),(_,0)", "{1} o (3,(2,3)):(4,(2,15))"),
        ("(_,0),((0,_),1)", "{100} o (3,3):(4,15)"),
        ("(1,_),((_,0),_)", "{4} o (2,(2,2)):(1,(2,100))"),
    ];
    for (coord, tensor) in slices {
        check(&format!("((3,2),((2,3),2)):((4,1),((2,15),100)) ({coord})"), tensor);
        check(&format!("({{0}} o ((3,2),((2,3),2)):((4,1),((2,15),100)))({coord})"), tensor);
    }
    check("((3,2),((2,3),2)):((4,1),((2,15),100)) (_,_)", "{0} o ((3,2),((2,3),2)):((4,1),((2,15),100))");
    check("((3,2),((2,3),2)):((4,1),((2,15),100)) (2,_)((1,1),0)", "25");
    check("layout((4,8):(8,1)(2,_))", "8:1");
    check("zipped_divide({8} o (4,8):(8,1), <2,4>)(_,1)", "{24} o (2,4):(8,1)");
    check(
        "(4,8):(8,1)(_,_,_)",
        "at byte 0: coordinate (_,_,_) does not fit shape (4,8): at each level it must be an integer or as long a tuple",
    );
    check(
        "(Sw<1,0,1> o (4,8):(8,1))(1,_)",
        "at byte 0: a swizzled layout cannot be sliced: the swizzle applies after the offset",
    );
}

#[test]
fn coordinates_and_bit_strings() {
    check("(8,8):(e0,e1) o ((4,8),2):((16,1),8)", "((4,8),2):((2e1,e0),e1)");
    check("(8,8):(e0,e1) (3,5)", "3e0+5e1");
    check("(8,8):(e0,e1) (3,_)", "{3e0} o 8:e1");
    check("({2e1} o (8,8):(e0,e1))(3,1)", "3e0+3e1");
    check("stride((8,8):(e0,0))", "(e0,0)");
    check("(8,8):(8,1) o ((4,8),2):((2e1,e0),e1)", "((4,8),2):((2,8),1)");
    check("(4:e0, 8:e1)", "(4,8):(e0,e1)");
    check("(4:e0, 8:1)", "at byte 0: layouts of one concatenation must have values of one kind");
    check("complement((4,(4,2)):(e1,(e0,12e1)))", "(1,(3,1)):(4e0,(4e1,24e1))");
    check("(2,(2,2)):(e0,(e(1,0),e(1,1))) (1,(0,1))", "e0+e(1,1)");
    check("to_f2(Sw<2,0,2> o (4,4):(1,4))", "(4,4):(f1,f5)");
    check("from_f2((4,4):(f1,f4))", "(4,4):(1,4)");
    check("(4,4):(f1,f5) (1,1)", "f4");
    check("let e0 = 4:1; e0", "at byte 4: `e0` cannot be a name");
}

#[test]
fn more_functions() {
    check("weakly_congruent(4, (2,2))", "true");
    check("weakly_congruent((2,2), 4)", "false");
    check("surjective((2,2):(1,1))", "true");
    check("surjective((4,8):(1,5))", "false");
    check("surjective((4,8):(1,5), 4)", "true");
    check("surjective(4:-1, 2)", "false");
    check("bijective((4,8):(8,1))", "true");
    check("equal((2,4):(1,2), 8)", "true");
    check("equal((2,4):(1,2), (4,2):(2,1))", "false");
    check("idx2crd(22, ((2,2),(4,2)))", "((0,1),(1,1))");
    check("crd2idx(((0,1),(1,1)), ((2,2),(4,2)))", "22");
    check("recast((8,64):(64,1), 16, 8)", "(8,128):(128,1)");
    check(
        "tile_to_shape(Sw<3,3,3> o (8,64):(64,1), (16,128), (0,1))",
        "Sw<3,3,3> o (16,(64,2)):(64,(1,1024))",
    );
    check("nullspace(((2,2),(2,4)):((0,1),(0,2)))", "(2,2):(1,4)");
    check("admissible((128,8):(16384,1), (2,128):(1,16384))", "(2,128):(128,1)");
}

#[test]
fn a_session_keeps_what_a_line_ends_with() {
    let mut session = Session::default();
    let mut answer = |line: &str| match session.evaluate(line) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(answer("let A = (4,8):(8,1)"), "(4,8):(8,1)");
    assert_eq!(answer("let B = A o 4:8;"), "4:2");
    assert_eq!(answer("let A = 2:1; A"), "2:1");
    assert_eq!(
        answer("let B = nonsense"),
        "at byte 8: `nonsense` is not defined; a name is defined by `let nonsense = …;`"
    );
    assert_eq!(answer("(A, B)"), "((4,8),4):((8,1),2)");
    assert_eq!(answer("let A = 2:1 A"), "at byte 12: expected `;`, found `A`");
}

#[test]
fn errors_have_kinds() {
    for (expr, kind) in [
        ("4:1 x", "expression"),
        ("compose((6,2):(1,12), 4:5)", "composition"),
        ("complement((4,4):(1,2))", "complement"),
        ("inverse(4:2)", "not_invertible"),
        ("0:1", "not_positive"),
        ("(4,4):1", "not_congruent"),
        ("(4294967296,4294967296):(0,0)", "overflow"),
        ("4:1(1,2)", "bad_coordinate"),
        ("swizzle(3,0,1)", "bad_swizzle"),
        ("mode(4:1,1)", "no_such_mode"),
    ] {
        assert_eq!(evaluate(expr).unwrap_err().kind(), kind, "{expr}");
    }
}

#[test]
fn errors_say_where() {
    check("", "at byte 0: expected an expression, found the end");
    check("compose(4:1, ", "at byte 13: expected an expression, found the end");
    check("4:1 x", "at byte 4: expected the end, found `x`");
    check("compse(4:1)", "at byte 0: `compse` is not defined; did you mean `compose`?");
    check("zzz", "at byte 0: `zzz` is not defined; a name is defined by `let zzz = …;`");
    check("size(1,2)", "at byte 0: wrong number of arguments (2); usage: size(A)");
    check("99999999999999999999", "at byte 0: this integer does not fit in 64 bits");
    check("4:1 o true(3)", "at byte 6: `true` is not defined; a name is defined by `let true = …;`");
    check("let o = 3; o", "at byte 4: `o` cannot be a name");
    let error = evaluate("2:1 o ((4,6,8):(2,3,5) o 6:3)").unwrap_err();
    assert_eq!(error.offset, 23);
    assert!(error.message.contains("stride divisibility"), "{error}");
}

#[test]
fn nothing_is_too_deep_or_too_large() {
    for open in ["(", "<", "size(", "let a = ", "-", "4:(", "compose(4, ", "Sw<"] {
        assert!(evaluate(&open.repeat(100_000)).is_err());
        assert!(evaluate(&open.repeat(60_000 / open.len())).is_err());
    }
    let doubled = (0..70).fold("let a = 1:0; ".to_string(), |s, _| s + "let a = (a, a); ");
    assert!(evaluate(&(doubled + "a")).is_err());
    let doubled = (0..70).fold("let a = (1,1); ".to_string(), |s, _| s + "let a = (a, a); ");
    assert!(evaluate(&(doubled + "a")).is_err());
    assert!(evaluate("image(1000000000:1)").is_err());
    assert!(evaluate("4:1(9223372036854775807)").is_ok());
    assert!(evaluate("4:2(9223372036854775807)").is_err());
    assert!(evaluate("swizzle(4294967296,1,1)").is_err());
}

fn token() -> impl Strategy<Value = String> {
    let words = "e0 f1 e ( _ { } recast nullspace compose coalesce complement right_inverse left_inverse inverse logical_divide zipped_divide \
                 tiled_divide flat_divide logical_product blocked_product raked_product flat_product swizzle image \
                 injective compact congruent compatible size mode let A A o Sw ( ( ( ) ) ) , , , : : : ; = < > ∘ 0 1 2 \
                 3 4 8 -1 64 4:1 (4,8):(8,1) (2,2):(1,2) 9223372036854775807 -9223372036854775808";
    prop::sample::select(words.split_whitespace().map(str::to_string).collect::<Vec<_>>())
}

/// An expression that reads, though it need not have a value.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "4:1",
        "(4,8):(8,1)",
        "((2,2),8):((1,16),2)",
        "8",
        "-3",
        "0",
        "(4,2)",
        "<4,2:3>",
        "_",
        "e0",
        "-2e1",
        "f5",
        "{3}",
        "(4,8):(e0,3e1)",
        "(2,4):(e(0,1),0)",
        "(4,4):(f1,f5)",
        "Sw<2,1,3>",
        "1:0",
        "9223372036854775807:1",
        "3:-3074457345618258602",
        "(3,1):(0,-9223372036854775808)",
    ])
    .prop_map(str::to_string);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let functions: Vec<&'static str> = tilewright_layout_calc::FUNCTIONS.iter().map(|f| f.0).collect();
        let call = (prop::sample::select(functions), prop::collection::vec(inner.clone(), 1..=3))
            .prop_map(|(f, args)| format!("{f}({})", args.join(",")));
        prop_oneof![
            call,
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} o {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})({b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("({a},{b})")),
        ]
    })
}

proptest! {
    #[test]
    fn the_text_of_a_layout_is_that_layout(modes in prop::collection::vec((1i64..20, -50i64..50), 1..5)) {
        let layout = Layout::from_leaves(&modes).unwrap();
        prop_assert_eq!(evaluate(&layout.to_string()).unwrap(), Value::Layout(layout));
    }

    #[test]
    fn any_text(text in any::<String>()) {
        let _ = evaluate(&text);
    }

    #[test]
    fn any_tokens(tokens in prop::collection::vec(token(), 0..40)) {
        survives(&tokens);
    }

    #[test]
    fn any_expression(text in expression()) {
        reads_again(&text);
    }
}
