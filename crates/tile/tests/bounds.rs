//! Bounds of the interpreter: what is exact, how an interval passes an operation, and where it reaches across a jump.

use std::collections::BTreeMap;

use tilewright_tile::interpret::interpret_bounded;
use tilewright_tile::{Argument, Constants, parse, verify};

/// The values and bounds of `y` after `body` has made `t` of `r`, which holds `x`, and `e`, which is exp(x) within its bound.
fn run(x: &[f64], dtype: &str, body: &str) -> (Vec<f64>, Vec<f32>) {
    let source = format!(
        "kernel k(x: f32[{n}], y: {dtype}[{n}]) grid(1) threads(32) {{
            gx = global_view(x, ({n}) : (e0))
            gy = global_view(y, ({n}) : (e0))
            r = register_tensor(f32, [{n}])
            copy(gx, r)
            e = exp(r)
            {body}
            copy(t, gy)
        }}",
        n = x.len()
    );
    let program = parse(&source).unwrap_or_else(|e| panic!("{e}"));
    let v = verify(&program, &Constants::new()).unwrap_or_else(|e| panic!("{e}"));
    let mut args = [Argument::Tensor(x.to_vec()), Argument::Tensor(vec![0.0; x.len()])];
    let mut bounds = interpret_bounded(&v, &BTreeMap::new(), &mut args).unwrap();
    let Argument::Tensor(values) = &args[1] else { panic!() };
    (values.clone(), bounds[1].take().unwrap())
}

#[test]
fn what_the_language_defines_to_the_bit_is_exact() {
    for body in
        ["t = (r * r - r) / 3.0", "t = sqrt(abs(r)) + max(r, 0.25)", "t = r * inf", "t = -r * 1e30 * 1e30"]
    {
        let (_, bounds) = run(&[0.5, -1.0, 0.0, 7.25], "f32", body);
        assert_eq!(bounds, [0.0; 4], "{body}");
    }
}

#[test]
fn a_rounding_takes_a_small_bound_away_or_makes_it_a_unit() {
    let (values, bounds) = run(&[0.0, 0.3, 0.7, -2.5], "f16", "t = cast(e, f16)");
    assert_eq!(values[0], 1.0);
    // exp(0) may be 1 - 2⁻²², which is 1 in f16.
    assert_eq!(bounds, [0.0; 4]);
    // The tie between 1 and the next number is as near as can be.
    let (values, bounds) = run(&[0.0, 0.0], "f16", "s = e + 0.00048828125\n            t = cast(s, f16)");
    assert_eq!((values, bounds), (vec![1.0; 2], vec![2f32.powi(-10); 2]));
}

#[test]
fn a_bound_reaches_across_jumps() {
    // 2.5 is a tie of integers.
    let (values, bounds) = run(&[0.0, 0.1], "i32", "s = e * 2.5\n            t = cast(s, i32)");
    assert_eq!((values, bounds), (vec![2.0, 3.0], vec![1.0, 0.0]));
    // An index that may be off by one names the element, the one after it, or the one before it, which is the last.
    let (values, bounds) = run(
        &[0.0, 0.5, 4.0],
        "f32",
        "s = e * 0.5\n            i = cast(s, i32)\n            t = gather(r, i, 0)",
    );
    assert_eq!((values[0], bounds[0]), (0.0, 4.0));
    // What may be 0 divides to anything; the sign of an infinity may be open.
    let (_, bounds) = run(&[0.0, 1.0], "f32", "t = r / (e - 1.0)");
    assert_eq!((bounds[0], bounds[1] < 1e-5), (f32::INFINITY, true));
    let (_, bounds) = run(&[0.0, 1.0], "f32", "t = (e - 1.0) * inf");
    assert_eq!(bounds, [f32::INFINITY, 0.0]);
    let (_, bounds) = run(&[0.0, 1.0], "f32", "t = sqrt(e - 1.0)");
    assert_eq!((bounds[0], bounds[1] < 1e-5), (f32::INFINITY, true));
}

#[test]
fn infinities_of_masks_are_exact() {
    let (values, bounds) = run(&[0.0, 1.0], "f32", "t = exp(e - inf) + max(e - inf, -1e30)");
    assert_eq!((values, bounds), (vec![-1e30f32 as f64; 2], vec![0.0; 2]));
    // An exponential that overflows does so within its bound, too; one at the end of the numbers may or may not.
    let (values, bounds) = run(&[89.0, 88.722_84, 1.0], "f32", "t = e * 1.0");
    assert_eq!((values[0], bounds[0]), (f64::INFINITY, 0.0));
    assert_eq!(bounds[1], f32::INFINITY);
}

#[test]
fn sums_and_extremes_carry_the_bounds_of_their_elements() {
    let body = "s = reduce(e, sum, 0)\n            t = broadcast(s, [4])";
    let (values, bounds) = run(&[0.0, 1.0, 2.0, 3.0], "f32", body);
    assert!((values[0] - 31.1928).abs() < 1e-3 && bounds[0] > 1e-6 && bounds[0] < 3e-5, "{bounds:?}");
    let body = "s = reduce(e, max, 0)\n            t = broadcast(s, [4])";
    let (_, bounds) = run(&[0.0, 1.0, 2.0, 3.0], "f32", body);
    assert!(bounds[0] > 1e-6 && bounds[0] < 1e-5, "{bounds:?}");
}
