//! The bounds that the interpreter carries are wide enough for every right kernel and too narrow for wrong ones: the results of a program
//! with a mistake are compared with the interpretation of the program without it.

use tilewright::check::{CheckOptions, Comparison, check, check_against, interpreted};
use tilewright::compiler::{Kernel, Options, compile};
use tilewright::machine::Arch;
use tilewright::runtime::SimDevice;
use tilewright::tile::{UnaryOp, parse};

fn kernel(source: &str) -> Kernel {
    let program = parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    compile(&program, &Options::new(Arch::SM_90A)).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

/// Asserts that a program is right at three seeds, and that the same with `from` replaced by `to` is wrong in this part of its output.
fn judge(source: &str, from: &str, to: &str, part: f64) {
    assert!(source.contains(from), "{from}");
    let (right, wrong) = (kernel(source), kernel(&source.replace(from, to)));
    for seed in 0..3 {
        let options = CheckOptions { seed, ..CheckOptions::default() };
        let device = SimDevice::default();
        let outcome = check(&right, &device, &options).unwrap();
        assert!(outcome.is_right(), "seed {seed}: {:?}", outcome.comparisons);
        let expected = interpreted(&right, &options).unwrap();
        let outcome = check_against(&wrong, &device, &options, &expected).unwrap();
        let Comparison { elements, wrong, .. } = outcome.comparisons[0];
        assert!(wrong as f64 >= part * elements as f64, "{to}, seed {seed}: {wrong} of {elements} are wrong");
    }
}

const GEMM: &str = "
    const K = 512
    kernel gemm(a: f16[64, K], b: f16[64, K], c: f16[64, 64]) grid(1) threads(128) {
        ga = global_view(a, (64, 32, K / 32) : (e0, e1, 32 * e1))
        gb = global_view(b[:, 0 : K], (64, 32, K / 32) : (e0, e1, 32 * e1))
        gc = global_view(c, (64, 64) : (e0, e1))
        ra = register_tensor(f16, [64, 32])
        rb = register_tensor(f16, [64, 32])
        rc = register_tensor(f32, [64, 64])
        fill(rc, 0.0)
        for i in 0..K / 32 {
            copy(ga[:, :, i], ra)
            copy(gb[:, :, i], rb)
            gemm(rc, ra, rb)
        }
        scaled = rc * 1.0
        rh = cast(scaled, f16)
        copy(rh, gc)
    }";

#[test]
fn a_meaning_that_is_not_that_of_the_instructions_is_found() {
    let source = "
    kernel k(x: f32[64], y: f32[64]) grid(1) threads(64) {
        gx = global_view(x, (64) : (e0))
        gy = global_view(y, (64) : (e0))
        r = register_tensor(f32, [64])
        copy(gx, r)
        r = asm(\"{ .reg .b32 t; mul.rn.f32 t, $1, $1; add.rn.f32 $0, t, $2; }\", r, float(2), means = r * r + 2.0, within = 1e-6)
        copy(r, gy)
    }";
    judge(source, "add.rn", "sub.rn", 0.99);
    // Off by more than it says: 2⁻¹⁵.
    judge(source, "add.rn.f32 $0, t, $2;", "add.rn.f32 t, t, $2; mul.rn.f32 $0, t, 0f3F800100;", 0.9);
}

#[test]
fn a_product_with_a_mistake_is_wrong() {
    let gemm = GEMM;
    // A step of k too few, the last step twice, one term too few.
    judge(gemm, "0..K / 32", "0..K / 32 - 1", 0.99);
    judge(gemm, "copy(gb[:, :, i], rb)", "copy(gb[:, :, min(i, K / 32 - 2)], rb)", 0.99);
    judge(gemm, "0 : K]", "0 : K - 1]", 0.9);
    // Two units in the last place of f16.
    judge(gemm, "rc * 1.0", "rc * 1.002", 0.9);
}

#[test]
fn a_small_element_beside_a_large_one_is_compared_on_its_own() {
    // The second row is a ten-millionth of the first; then three units in the last place of f16 too much.
    let rows = "
        kernel rows(x: f32[128], y: f16[2, 128]) grid(1) threads(64) {
            gx = global_view(x, (128) : (e0))
            gy = global_view(y, (2, 128) : (e0, e1))
            r = register_tensor(f32, [128])
            copy(gx, r)
            large = exp(r) * 10000.0
            small = exp(r) * 0.001
            first = cast(large, f16)
            second = cast(small, f16)
            copy(first, gy[0, :])
            copy(second, gy[1, :])
        }";
    judge(rows, "0.001", "0.0010025", 0.49);
    // The same beside -1e30, as of a mask.
    let mask = rows.replace("y: f16", "y: f32").replace("first = cast(large, f16)", "first = r * 0.0 - 1e30");
    judge(&mask.replace("second = cast(small, f16)", "second = small * 1.0"), "0.001", "0.00100001", 0.49);
}

#[test]
fn an_attention_with_a_mistake_is_wrong() {
    let attention = "
        const Q = 64, KV = 64, D = 64
        kernel attention(q: f16[Q, D], k: f16[KV, D], v: f16[D, KV], o: f16[Q, D]) grid(1) threads(64) {
            gq = global_view(q, (Q, D) : (e0, e1))
            gk = global_view(k, (KV, D) : (e0, e1))
            gv = global_view(v, (D, KV) : (e0, e1))
            go = global_view(o, (Q, D) : (e0, e1))
            tq = register_tensor(f16, [Q, D])
            tk = register_tensor(f16, [KV, D])
            tv = register_tensor(f16, [D, KV])
            copy(gq, tq)
            copy(gk, tk)
            copy(gv, tv)
            s = register_tensor(f32, [Q, KV])
            fill(s, 0.0)
            gemm(s, tq, tk)
            most = reduce(s, max, 1)
            mc = expand(most, 1)
            m = broadcast(mc, [Q, KV])
            p = exp(0.125 * s - 0.125 * m)
            l = reduce(p, sum, 1)
            h = cast(p, f16)
            t = register_tensor(f32, [Q, D])
            fill(t, 0.0)
            gemm(t, h, tv)
            lc = expand(l, 1)
            lb = broadcast(lc, [Q, D])
            r = t / lb
            rh = cast(r, f16)
            copy(rh, go)
        }";
    judge(attention, "0.125 * s", "0.13 * s", 0.9);
    judge(attention, "r = t / lb", "r = t / (lb + 0.2)", 0.85);
}

#[test]
fn a_reduction_with_a_mistake_is_wrong() {
    let sums = "
        kernel sums(x: f32[64, 512], y: f32[64]) grid(1) threads(256) {
            gx = global_view(x[:, 0 : 512], (64, 512) : (e0, e1))
            gy = global_view(y, (64) : (e0))
            r = register_tensor(f32, [64, 512])
            copy(gx, r)
            squares = r * r
            s = reduce(squares, sum, 1)
            copy(s, gy)
        }";
    judge(sums, "0 : 512", "0 : 511", 0.9);
}

#[test]
fn a_tolerance_takes_the_place_of_the_bounds() {
    let (right, wrong) = (kernel(TWICE), kernel(&TWICE.replace("r * 2.0", "r * 2.002")));
    let device = SimDevice::default();
    let loose = CheckOptions { tolerance: Some(1e-2), ..CheckOptions::default() };
    let expected = interpreted(&right, &loose).unwrap();
    assert!(check_against(&wrong, &device, &loose, &expected).unwrap().is_right());
    assert!(!check_against(&wrong, &device, &CheckOptions::default(), &expected).unwrap().is_right());
}

const TWICE: &str = "
    kernel twice(x: f32[128], y: f32[128]) grid(1) threads(64) {
        gx = global_view(x, (128) : (e0))
        gy = global_view(y, (128) : (e0))
        r = register_tensor(f32, [128])
        copy(gx, r)
        t = r * 2.0
        copy(t, gy)
    }";

#[test]
fn the_language_page_has_the_bounds_of_the_functions() {
    let page = include_str!("../../../docs/tile-language.md");
    for op in UnaryOp::ALL {
        let Some(bound) = op.error() else { continue };
        let row = format!("| `{}(x)` | {bound} |", op.name())
            .replace(" |y|", " \\|y\\|")
            .replace(" |x y|", " \\|x y\\|");
        assert!(page.contains(&row), "{row} is not in docs/tile-language.md");
        let bound = op.double_error().expect("a function in f64 has a bound, too");
        let row = format!("| `{}(x)` of `f64` | {bound} |", op.name()).replace(" |y|", " \\|y\\|");
        assert!(page.contains(&row), "{row} is not in docs/tile-language.md");
    }
}

#[test]
fn an_offset_beyond_all_numbers_is_compiled() {
    let source = "
        kernel far(x: f16[2, 64], y: f16[64]) grid(1) threads(64) {
            gx = global_view(x[9223372036854775807 :, :], (64) : (e1))
            gy = global_view(y, (64) : (e0))
            r = register_tensor(f16, [64])
            copy(gx, r)
            copy(r, gy)
        }";
    kernel(source);
}
