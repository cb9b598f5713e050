//! Findings of fuzzing, and of writing the fuzz targets: each of these once took too long, too much memory, or printed as
//! text that did not read again.

use std::time::{Duration, Instant};
use tilewright_layout::{Coord, Layout, Poly, crd2idx};
use tilewright_layout_calc::evaluate;

/// Much more than any of these takes, much less than each of them took.
const SOON: Duration = Duration::from_secs(10);

#[track_caller]
fn soon(text: &str) -> Result<String, String> {
    let start = Instant::now();
    let result = evaluate(text).map(|v| v.to_string()).map_err(|e| e.kind());
    assert!(start.elapsed() < SOON, "took {:?}: {:.200}", start.elapsed(), text);
    result
}

#[track_caller]
fn reads_again(text: &str) {
    let printed = evaluate(text).map(|v| v.to_string()).unwrap();
    assert_eq!(evaluate(&printed).map(|v| v.to_string()), Ok(printed));
}

#[test]
fn nested_coordinates_take_linear_time() {
    // Each level was evaluated twice.
    let nested = |n: usize, leaf: &str| "(".repeat(n) + leaf + &")".repeat(n);
    assert_eq!(soon(&format!("crd2idx({},{})", nested(60, "3"), nested(60, "4"))), Ok("3".to_string()));
    let bad = crd2idx(&(1, (2, 3)).into(), &(4, 4).into());
    assert!(bad.is_err());
}

#[test]
fn long_sums_of_basis_elements_are_too_large() {
    let sum = (0..12_000).map(|k| format!("e{k}")).collect::<Vec<_>>().join("+");
    assert_eq!(soon(&sum), Err("expression".to_string()));
    assert_eq!(soon(&format!("2:{}", &sum[..60_000])), Err("expression".to_string()));
    assert!(sum.parse::<Coord>().is_ok_and(|c| c.terms().len() == 12_000));
    let sum = (0..12_000).map(|k| format!("x{k}")).collect::<Vec<_>>().join("+");
    assert_eq!(sum.parse::<Poly>().map(|p| p.to_string().len()), Ok(sum.len()));
}

#[test]
fn profiles_are_bounded_in_all() {
    // A profile of 64 levels of 4096 modes each, for every one of these.
    let path = |k: usize| format!("e({k},{})", vec!["4095"; 63].join(","));
    let strides: Vec<String> = (0..100).map(path).collect();
    let text = format!("right_inverse(({}):({}))", vec!["2"; 60].join(","), strides[..60].join(","));
    assert_eq!(soon(&text), Err("overflow".to_string()));
    assert!(soon("right_inverse((2,2):(e4000,e0))").is_ok());
}

#[test]
fn steps_are_limited_over_the_whole_expression() {
    // One of these is fine.
    let one = "compose((3,5,7):(1,0,2),(256,256):(1,4))";
    let _ = soon(one);
    let many = format!("({})", vec![one; 1500].join(","));
    let _ = soon(&many);
    let hard = "injective((97,89,83,79,73):(1009,1013,1019,1021,1031))";
    let many = format!("concat({})", vec![hard; 1000].join(","));
    let _ = soon(&many);
    let ones = format!("let a = ({}256,256):({}1,4); ", "1,".repeat(4000), "0,".repeat(4000));
    let _ = soon(&format!("{ones} compose((3,5,7):(1,0,2), a)"));
    let _ = soon(&format!("{ones} to_f2(a)"));
    // 4096 integers, thousands of times.
    let doubled = (0..12).fold("let a = (1,1):(0,0); ".to_string(), |s, _| s + "let a = (a,a); ");
    assert!(soon(&doubled).is_err());
    let doubled = (0..11).fold("let a = (1,1):(0,0); ".to_string(), |s, _| s + "let a = (a,a); ");
    assert_eq!(soon(&format!("{doubled} size(a)")), Ok("1".to_string()));
    assert_eq!(soon(&format!("{doubled} ({})", vec!["a"; 25_000].join(","))), Err("too_long".to_string()));
    assert_eq!(soon(&format!("{doubled} {}", "let b = a; ".repeat(5_000))), Err("too_long".to_string()));
    // 4096 components of 4096 leaves each.
    let strides: Vec<String> = (0..4096).map(|k| format!("e{k}")).collect();
    let layout = format!("({}):({})", vec!["1"; 4096].join(","), strides.join(","));
    let _ = soon(&format!(
        "let a = {layout}; compose({}, a)",
        format_args!("({}):({})", vec!["1"; 4096].join(","), vec!["0"; 4096].join(","))
    ));
    let _ = soon(&format!("complement({layout})"));
}

#[test]
fn the_least_integer_reads_as_a_factor() {
    for text in ["-9223372036854775808e0", "e0-9223372036854775808e1", "{-9223372036854775808e0} o 8:e1"] {
        reads_again(text);
    }
    reads_again("(2:-4611686018427387904e0)(2)");
    for text in ["-9223372036854775808*k", "k-9223372036854775808", "-9223372036854775808"] {
        assert_eq!(text.parse::<Poly>().map(|p| p.to_string()), Ok(text.to_string()));
    }
}

#[test]
fn powers_read_as_they_print() {
    // A product of powers printed as a power that is too great to read.
    let p: Poly = "a^32*b*a^32".parse().unwrap();
    assert_eq!(p.to_string(), "a^64*b");
    assert_eq!("a^64*b".parse(), Ok(p));
    assert_eq!("a^0".parse(), Ok(Poly::integer(1)));
    for text in ["a^64*a", "a^33*a^32", "a^65", "a^4294967296"] {
        assert!(text.parse::<Poly>().is_err(), "{text}");
    }
    assert!(Poly::symbol("a").checked_mul(&"a^64".parse().unwrap()).is_none());
}

#[test]
fn values_of_the_greatest_depth_read_again() {
    let nested = |n: usize, leaf: &str| "(".repeat(n) + leaf + &")".repeat(n);
    reads_again(&format!("let a = {}; (a)", nested(63, "4")));
    reads_again(&format!("let a = {}:{}; <a>", nested(64, "4"), nested(64, "1")));
    assert!(evaluate(&format!("let a = {}; (a)", nested(64, "4"))).is_err());
    assert!(
        nested(64, "4").len() == 129
            && format!("{}:{}", nested(64, "4"), nested(64, "1")).parse::<Layout>().is_ok()
    );
}

#[test]
fn tensors_that_do_not_move_read_again() {
    reads_again("(8,8):(e0,0) (3,_)");
    assert_eq!(soon("{3e0} o 8:0"), Ok("{3e0} o 8:0".to_string()));
    assert!(soon("{3e0} o 8:1").is_err());
}
