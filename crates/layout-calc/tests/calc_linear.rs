//! The calculator over linear layouts: what it computes, what it refuses, and that nothing makes it panic.

use proptest::prelude::*;
use tilewright_layout_calc::{FUNCTIONS, Value, evaluate};

use crate::common::{check, reads_again, survives};

/// `let`s for the layouts of these tests.
const NAMES: &str = "let L = [register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2]; \
                     let Z = [register: 1 0; lane: 2 1] -> [dim0:4]; \
                     let S = [offset: 1 3] -> [x:4]; ";

#[track_caller]
fn with(expr: &str, expected: &str) {
    check(&format!("{NAMES}{expr}"), expected);
}

#[test]
fn values() {
    for text in [
        "[register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2]",
        "[lane:] -> [x:1]",
        "[] -> []",
        "[lane: 1 2] -> [x:4] + 3",
        "[register: (1,0); lane: (0,1)] -> [x:2, y:2] + (0,1)",
        "[] -> [] + ()",
        "[x, y]",
        "[lane:3, register]",
        "[]",
        "{a = 1, b = [x], c = (4,8):(8,1)}",
    ] {
        check(text, text);
    }
    check("[ lane :1 2 ]->[ x : 4 ]", "[lane: 1 2] -> [x:4]");
    check("{a = 1, b = [x:2]}.b", "[x:2]");
    check("{8} o 4:1", "{8} o 4:1");
}

#[test]
fn application() {
    with("L(5)", "[x:3, y:0]");
    with("L([lane:1, register:2])", "[x:2, y:1]");
    with("L([lane:1])", "[x:2, y:0]");
    with("S(2)", "3");
    with("eval(S, 3)", "2");
    with("flip(S, [x])(0)", "3");
    with("flip(L, [y])([lane:1])", "[x:2, y:1]");
    with("L(8)", &at(0, "index 8 must be below 2^3"));
    with("L([lane:2])", &at(0, "index 2 of lane must be below 2"));
    with("L([warp:0])", &at(0, "warp is not an input of [register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2]"));
    with("L([lane])", &at(0, "expected a number for each name, as in [x:4, y:2], found names in brackets"));
    with("L(-1)", &at(0, "expected an integer that is not negative, found -1"));
}

/// The error at this place behind the names.
fn at(offset: usize, message: &str) -> String {
    format!("at byte {}: {message}", NAMES.len() + offset)
}

#[test]
fn algebra() {
    with("S o ([lane: 2 1] -> [offset:4])", "[lane: 3 1] -> [x:4]");
    with("S ∘ ([lane: 2 1] -> [offset:4])", "[lane: 3 1] -> [x:4]");
    with("compose([x: 1 2] -> [y:4], flip(S, [x]))", "[offset: 1 3] -> [y:4] + 3");
    with(
        "product(identity1d(2, [register], [x]), identity1d(4, [lane], [x]))",
        "[register: 1; lane: 2 4] -> [x:8]",
    );
    with(
        "left_divide([register: 1 8; lane: 2 4] -> [x:16], [register: 1; lane: 2 4] -> [x:8])",
        "[register: 1; lane:] -> [x:2]",
    );
    with(
        "right_divide([register: 1 8; lane: 2 4] -> [x:16], [register: 1] -> [x:2])",
        "[register: 1; lane: 2 4] -> [x:8]",
    );
    with("inverse(S)", "[x: 1 3] -> [offset:4]");
    with("right_inverse(Z)", "[dim0: (1,0) (0,1)] -> [register:4, lane:4]");
    with("invert_and_compose(Z, [lane: 2] -> [dim0:4])", "[lane: (0,1)] -> [register:4, lane:4]");
    with("kernel(Z)", "[kernel: (2,0) (1,2)] -> [register:4, lane:4]");
    with("Z o kernel(Z)", "[kernel: 0 0] -> [dim0:4]");
    with("image([lane: 3 3 0] -> [x:4])", "[image: 3] -> [x:4]");
    with("rank(Z)", "2");
    with("(injective(L), 1)", &at(0, "expected a layout, found a truth value"));
    with("injective(L)", "true");
    with("surjective(Z)", "true");
    with("bijective(Z)", "false");
    with("distributed(L)", "true");
    with("memory_layout(S)", "true");
    with("equal(L, L)", "true");
    with("equal_up_to_broadcast([lane: 1 0] -> [x:2], [lane: 1] -> [x:2])", "true");
    with("sublayout(L, [lane], [y, x])", "[lane: (0,2)] -> [y:2, x:4]");
    with("free_bits(Z)", "[register:2, lane:2]");
    with("without_zeros(Z)", "[register: 1; lane: 2 1] -> [dim0:4]");
    with("copies(Z)", "4");
    with("matrix(L)", "   register lane\nx  1 0      0\n   0 0      1\n\ny  0 1      0");
}

#[test]
fn shapes() {
    with("transpose(L, [y, x])", "[register: (0,1) (1,0); lane: (0,2)] -> [y:2, x:4]");
    with("reshape(L, [all:8])", "[register: 1 4; lane: 2] -> [all:8]");
    with("expand(L, 1, [z])", "[register: (1,0,0) (0,0,1); lane: (2,0,0)] -> [x:4, z:1, y:2]");
    with("broadcast(expand(S, 0, [z]), [offset], [z:2])", "[offset: (0,1) (0,3) (1,0)] -> [z:2, x:4]");
    with(
        "join(L, [register], [half])",
        "[register: (1,0,0) (0,1,0) (0,0,1); lane: (2,0,0)] -> [x:4, y:2, half:2]",
    );
    with("equal(split(join(L, [register], [half]), [half]), L)", "true");
    with("slice(L, [y])", "[register: 1 0; lane: 2] -> [x:4]");
    with("slice(L, [x], 2, 2)", "[slice: (1,0) (2,0)] -> [register:4, lane:2] + (0,1)");
    with(
        "sliced([register: (1,0) (0,1); lane: (0,2)] -> [dim0:2, dim1:4], 0)",
        "[register: 1; lane: 2] -> [dim0:4]",
    );
    with("flip(L, [x])", "[register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2] + (3,0)");
    with("cover([lane: 1] -> [dim0:2], 0, 8)", "[register: 2 4; lane: 1; warp:] -> [dim0:8]");
}

#[test]
fn other_kinds() {
    with("to_linear(((2,2),4):((1,8),2))", "[index: 1 8 2 4] -> [offset:16]");
    with("to_linear(Sw<1,0,1> o (2,2):(2,1))", "[index: 3 1] -> [offset:4]");
    with("to_linear((4,4):(f1,f5))", "[index: 1 2 5 10] -> [offset:16]");
    with(
        "to_linear(((4,8),2):((16,1),8), [lane:32, register], [i:8, j:8])",
        "[lane: (0,2) (0,4) (1,0) (2,0) (4,0); register: (0,1)] -> [i:8, j:8]",
    );
    with("to_layout([lane: 4 1; warp: 2] -> [x:8])", "((2,2),2):((4,1),2)");
    with("to_f2(S)", "(2,2):(f1,f3)");
    with("to_swizzled([index: 3 1] -> [offset:4])", "Sw<1,0,1> o (2,2):(2,1)");
    with(
        "to_layout(S)",
        &at(0, "two columns of [offset: 1 3] -> [x:4] share a bit: no layout over integers is equal"),
    );
    with(
        "compose(S, 4:1)",
        &at(0, "expected a linear layout, found a layout; to_linear(…) of it may be one"),
    );
    with(
        "to_linear(4:3)",
        &at(
            0,
            "conversion to a linear layout of 4:3: adding 6 carries; strides of distinct bits must not share a bit",
        ),
    );
}

#[test]
fn code_generation() {
    with("contiguous(L)", "2");
    with("contiguous(S, [offset])", "2");
    with("vector_bits([register: 4 2 1; lane: 8] -> [x:16])", "[vector: 4 2 1] -> [register:8]");
    with("vector_bits([register: 2] -> [x:4])", "[vector:] -> [register:2]");
    with(
        "divide_permuting([register: 2 1; lane: 4] -> [offset:8], identity1d(2, [register], [offset]))",
        "{order = [register: 2 1] -> [register:4], quotient = [register: 1; lane: 2] -> [offset:4]}",
    );
    with("wavefronts(identity1d(1024, [offset], [x]), strided1d(32, 32, [lane], [x]), 4, 1)", "32");
    with(
        "wavefronts(identity1d(1024, [offset], [x]), cover(identity1d(32, [lane], [dim0]), 0, 1024), 4, 1)",
        &at(
            0,
            "composition of [x: 1 2 4 8 16 32 64 128 256 512] -> [offset:1024]: the outputs of [register: 32 64 128 256 512; \
             lane: 1 2 4 8 16; warp:] -> [dim0:1024] must be its inputs, of at most their sizes",
        ),
    );
    let swizzle = "let R = [register: (0,1) (0,2); lane: (1,0) (2,0)] -> [i:4, j:4]; \
                   let C = [register: (1,0) (2,0); lane: (0,1) (0,2)] -> [i:4, j:4]; ";
    assert_eq!(
        evaluate(&format!("{swizzle} bijective(optimal_swizzle(R, C, 32).memory)")),
        Ok(Value::Bool(true))
    );
    check(&format!("{swizzle} reorder(R, C).exchange"), "[lanes]");
    check(
        &format!("{swizzle} reorder(R, R)"),
        "{exchange = [nothing], source = [register: (1,0,0) (2,0,0); \
          lane: (0,1,0) (0,2,0); warp:] -> [register:4, lane:4, warp:1]}",
    );
}

#[test]
fn families() {
    check("strided1d(4, 2, [lane], [x])", "[lane: 2 4] -> [x:8]");
    check("zeros1d(4, 2, [lane], [x])", "[lane: 0 0] -> [x:2]");
    check(
        "blocked((2,2), (4,8), (2,1), (1,0), (16,16))",
        "[register: (0,1) (1,0); lane: (0,2) (0,4) (0,8) (2,0) (4,0); warp: (8,0)] -> [dim0:16, dim1:16]",
    );
    check("blocked(2, 32, 4, 0, 64)", "[register: 1; lane: 2 4 8 16 32; warp: 0 0] -> [dim0:64]");
    check(
        "blocked_operand(0, (1,1), (2,2), (1,1), (1,0), (2,4))",
        "[register: (0,1) (0,2); lane: (0,0) (1,0); warp:] -> [dim0:2, dim1:4]",
    );
    check(
        "mma((1,2), (16,16))",
        "[register: (0,1) (8,0); lane: (0,2) (0,4) (1,0) (2,0) (4,0); warp: (0,8)] -> [dim0:16, dim1:16]",
    );
    check("equal(mma_operand(2, 2, (1,2), (16,16)), mma((1,2), (16,16)))", "true");
    check("equal(mma_operand(1, 2, (1,1), (16,8)), mma_tile(1, 2))", "true");
    check(
        "mma_operand(0, 2, (2,2), (32,16))",
        "[register: (0,1) (8,0) (0,8); lane: (0,2) (0,4) (1,0) (2,0) (4,0); warp: (0,0) (16,0)] -> [dim0:32, dim1:16]",
    );
    check(
        "wgmma(16, (4,1), (64,16))",
        "[register: (0,1) (8,0) (0,8); lane: (0,2) (0,4) (1,0) (2,0) (4,0); warp: (16,0) (32,0)] -> [dim0:64, dim1:16]",
    );
    check(
        "wgmma_left(2, (4,1), (64,16))",
        "[register: (0,1) (8,0) (0,8); lane: (0,2) (0,4) (1,0) (2,0) (4,0); warp: (16,0) (32,0)] -> [dim0:64, dim1:16]",
    );
    check("ldmatrix_tile(2)", "[register: 1; lane: 2 4] -> [offset:8]");
    check(
        "mfma((32,32), 1, 0, (1,1), (1,1), (32,32))",
        "[register: (0,1) (0,2) (0,8) (0,16); lane: (1,0) (2,0) (4,0) (8,0) (16,0) (0,4); warp:] -> [dim0:32, dim1:32]",
    );
    check(
        "mfma_operand(0, 4, (16,16), 0, 0, (1,1), (1,1), (16,16))",
        "[register: (0,1) (0,2); lane: (1,0) (2,0) (4,0) (8,0) (0,4) (0,8); warp:] -> [dim0:16, dim1:16]",
    );
    check(
        "wmma(1, 0, [warp: (0,1)] -> [dim0:1, dim1:2], (16,32))",
        "[register: (2,0) (4,0) (8,0); lane: (0,1) (0,2) (0,4) (0,8) (1,0); warp: (0,16)] -> [dim0:16, dim1:32]",
    );
    check(
        "wmma_operand(1, 8, 16, 2, 0, [] -> [dim0:1, dim1:1], (16,16))",
        "[register: (1,0) (2,0) (4,0); lane: (0,1) (0,2) (0,4) (0,8) (8,0); warp:] -> [dim0:16, dim1:16]",
    );
    check("unswizzled((1,0), (2,4))", "[offset: (0,1) (0,2) (1,0)] -> [dim0:2, dim1:4]");
    check("swizzled(1, 1, 4, (1,0), (4,4))", "[offset: (0,1) (0,2) (1,1) (2,2)] -> [dim0:4, dim1:4]");
    check(
        "nvmma(64, 16, 0, 0, (16,64))",
        "[offset: (0,1) (0,2) (0,4) (0,8) (0,16) (1,0) (2,8) (4,16) (8,0) (0,32)] -> [dim0:16, dim1:64]",
    );
}

#[test]
fn absurd_families_are_refused() {
    for sizes in [
        "0",
        "3",
        "-1",
        "9223372036854775807",
        "4611686018427387904",
        "(4611686018427387904,4611686018427387904)",
    ] {
        for expr in [
            format!("blocked({sizes}, {sizes}, {sizes}, (1,0), {sizes})"),
            format!("blocked((1,1), (1,1), (1,1), {sizes}, (4,4))"),
            format!("mma({sizes}, (64,64))"),
            format!("mma_operand(0, {sizes}, (4611686018427387904,2), (4,4))"),
            format!("wgmma({sizes}, (4,1), {sizes})"),
            format!("wgmma_left({sizes}, {sizes}, (4,4))"),
            format!("mfma({sizes}, 0, 0, (1,1), (1,1), (4,4))"),
            format!("mfma_operand(0, {sizes}, (16,16), 0, 0, {sizes}, (1,1), (4,4))"),
            format!("wmma({sizes}, 0, [] -> [dim0:1, dim1:1], {sizes})"),
            format!("wmma_operand(0, {sizes}, 9, 1, 0, [] -> [dim0:1, dim1:1], (4,4))"),
            format!("unswizzled((1,0), {sizes})"),
            format!("swizzled({sizes}, 1, 1, (1,0), {sizes})"),
            format!("nvmma(128, {sizes}, 0, 0, (64,64))"),
            format!("nvmma(128, 16, {sizes}, {sizes}, (64,8))"),
            format!("ldmatrix_tile({sizes})"),
            format!("cover([lane: 1] -> [dim0:2], {sizes}, (2,2))"),
            format!("strided1d({sizes}, {sizes}, [lane], [x])"),
        ] {
            let found = evaluate(&expr);
            assert!(found.is_err(), "{expr} is {found:?}");
        }
    }
    check(
        "blocked((1,1), (1,1), (1,1), (1,0), (4,3))",
        "at byte 0: a blocked layout of shape of size 3: sizes are powers of two, at most 2^62",
    );
    check("mma(1, 64)", "at byte 0: an mma layout of a tensor of 1 modes: a matrix has two");
    check(
        "wgmma(16, (2,1), (64,64))",
        "at byte 0: a wgmma layout of warps [2, 1]: warps along M come in fours",
    );
}

#[test]
fn errors_say_where() {
    check("[lane: 1 2 -> [x:4]", "at byte 11: expected `]`, found `-`");
    check(
        "[lane: 1 4] -> [x:4]",
        "at byte 0: a linear layout of basis [4] of lane: 4 is not below the size 4 of x",
    );
    check(
        "[lane: 1] -> [x:2] + 4",
        "at byte 21: a linear layout of basis [4] of one: 4 is not below the size 2 of x",
    );
    check("[x:2, x", "at byte 7: expected `]`, found the end");
    check("{a = 1, a = 2}", "at byte 8: the record has a field `a` already");
    check("{a = {b = 1}}", "at byte 5: a record cannot hold a record");
    check("{a = compact(4)}", "at byte 5: a record cannot hold a truth value");
    check("{a = 1}.b", "at byte 8: the record has no field `b`; it has a");
    check("(4:1).b", "at byte 6: a layout has no fields");
    check(
        "slice(4:1, [x])",
        "at byte 0: expected a linear layout, found a layout; to_linear(…) of it may be one",
    );
    check(
        "transpose(4)",
        "at byte 0: wrong number of arguments (1); usage: transpose(L, [y, x]): the outputs in this order",
    );
    check(
        "zeros1d(1, 1, [x, y], [x])",
        "at byte 0: expected one name in brackets such as [x], found names in brackets",
    );
    check(
        "left_divide([lane: 1] -> [x:2], [lane: 0] -> [x:2])",
        "at byte 0: there is no q with [lane: 0] -> [x:2] × q = [lane: 1] -> [x:2]",
    );
    assert_eq!(evaluate("inverse([lane: 0] -> [x:2])").unwrap_err().kind(), "not_invertible");
    assert_eq!(evaluate("mma(1, 64)").unwrap_err().kind(), "inadmissible");
}

#[test]
fn nothing_is_too_large() {
    let names = (0..70).map(|k| format!("a{k}")).collect::<Vec<_>>();
    for text in [
        format!("[{}]", names.join(",")),
        format!("[{}] -> []", names.join(":;")),
        format!("[] -> [{}]", names.join(":1,")),
        format!("[lane:{}] -> [x:2]", " 1".repeat(70)),
        format!("[lane: ({})] -> []", vec!["0"; 70].join(",")),
        format!("{{{}}}", names.iter().map(|n| format!("{n} = 1")).collect::<Vec<_>>().join(",")),
        "[".repeat(60_000),
        "{a = ".repeat(12_000),
        "[lane: 1] -> ".repeat(5_000),
        "{a = 1}".to_string() + &".a".repeat(30_000),
    ] {
        assert!(evaluate(&text).is_err(), "{text:.80}");
    }
    let doubled =
        (0..70).fold("let a = [lane: 1] -> [x:2]; ".to_string(), |s, _| s + "let a = product(a, a); ");
    assert!(evaluate(&(doubled + "a")).is_err());
    check(
        "wavefronts([offset: 1] -> [x:2], [lane: 1] -> [x:2], 4, 4611686018427387904)",
        "at byte 0: wavefronts of [lane: 1] -> [x:2]: accesses of 2^62 elements of 2^2 bytes; they have at most 16 bytes",
    );
}

/// An expression over linear layouts that reads, though it need not have a value.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "([register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2])",
        "([register: 1 0; lane: 2 1] -> [x:4])",
        "([register: 2 1; lane: 4; warp: 8] -> [x:16])",
        "([lane: (1,1) (2,2); register: (0,1); warp:] -> [x:4, y:4])",
        "([offset: 1 3] -> [x:4])",
        "([offset: (0,1) (1,1)] -> [dim0:2, dim1:2])",
        "([lane: 1 2] -> [x:4] + 3)",
        "([] -> [])",
        "([lane: 1] -> [x:4611686018427387904])",
        "[x]",
        "[x:4]",
        "[y, x]",
        "[lane]",
        "[register:1, lane:1]",
        "[register]",
        "[]",
        "(2,2)",
        "(1,0)",
        "(64,32)",
        "0",
        "1",
        "2",
        "16",
        "4611686018427387904",
        "9223372036854775807",
        "-1",
        "(4,8):(8,1)",
        "Sw<1,0,1>",
    ])
    .prop_map(str::to_string);
    let functions: Vec<(&'static str, usize)> = FUNCTIONS
        .iter()
        .map(|(name, usage)| (*name, usage.split("): ").next().unwrap_or("").matches(',').count() + 1))
        .collect();
    leaf.prop_recursive(4, 24, 6, move |inner| {
        // Mostly with the number of arguments that it takes.
        let call =
            (prop::sample::select(functions.clone()), prop::collection::vec(inner.clone(), 8), 0usize..8)
                .prop_map(|((f, n), args, other)| {
                    let n = if other == 0 { args.len() } else { n.min(args.len()) };
                    format!("{f}({})", args[..n].join(","))
                });
        prop_oneof![
            4 => call,
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} o {b}")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})({b})")),
            1 => inner.clone().prop_map(|a| format!("{{memory = {a}, b = 1}}")),
            1 => inner.prop_map(|a| format!("{{memory = {a}}}.memory")),
        ]
    })
}

fn token() -> impl Strategy<Value = String> {
    let words = "[ ] [ ] -> : ; , ( ) { } . = + 1 2 4 0 -1 lane register warp x y offset o let product compose slice \
                 blocked mma optimal_swizzle reorder [lane: 1] ->[x:2] 4:1 4611686018427387904";
    prop::sample::select(words.split_whitespace().map(str::to_string).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn any_tokens(tokens in prop::collection::vec(token(), 0..40)) {
        survives(&tokens);
    }

    #[test]
    fn any_expression(text in expression()) {
        reads_again(&text);
    }
}
