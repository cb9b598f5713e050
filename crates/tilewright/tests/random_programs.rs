//! Random programs through the whole compiler: whatever is accepted must give the interpreter's result on the simulator, without
//! a race, a stray or a misaligned access; whatever is refused must be refused by a diagnostic that names a place.

use proptest::prelude::*;
use tilewright::check::{CheckOptions, check};
use tilewright::compiler::{Options, compile};
use tilewright::machine::Arch;
use tilewright::runtime::SimDevice;
use tilewright::tile::{Code, parse};

/// Compiles for the given sizes and checks; `Ok(false)` if the compiler refuses the program for a reason of its own.
fn holds(source: &str, arch: Arch, sizes: &[(&str, i64)], seed: u64) -> Result<bool, TestCaseError> {
    let program = parse(source).map_err(|e| TestCaseError::fail(format!("{e}\n{source}")))?;
    let again = parse(&program.to_string()).map_err(|e| TestCaseError::fail(format!("{e}\n{program}")))?;
    prop_assert_eq!(&program, &again);
    let kernel = match compile(&program, &Options::new(arch).for_sizes(&program, sizes)) {
        Ok(kernel) => kernel,
        Err(errors) => {
            for e in &errors.0 {
                let expected = [
                    Code::Unsatisfiable,
                    Code::LayoutConflict,
                    Code::SharedMemoryExceeded,
                    Code::RegistersExceeded,
                ];
                prop_assert!(expected.contains(&e.code) && e.span.text().is_some(), "{}\n{}", e, source);
            }
            return Ok(false);
        }
    };
    let device = SimDevice::new(tilewright::sim::Config { seed, ..Default::default() });
    let options = CheckOptions {
        sizes: sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
        seed,
        ..CheckOptions::default()
    };
    let outcome =
        check(&kernel, &device, &options).map_err(|e| TestCaseError::fail(format!("{e}\n{source}")))?;
    prop_assert!(outcome.is_right(), "{:?}\n{:?}\n{}", outcome.comparisons, outcome.findings, source);
    Ok(true)
}

/// Cases of each test: `PROPTEST_CASES`, or enough for an ordinary run.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(96)
}

fn arch() -> impl Strategy<Value = Arch> {
    prop::sample::select(vec![Arch::SM_80, Arch::SM_90A])
}

/// A tile of a one-dimensional buffer in which the leaves of its modes lie in some order: the extents of the leaves, each with its
/// mode and a key that says where in memory's order it comes.
fn repacked() -> impl Strategy<Value = Vec<(i64, bool, u32)>> {
    let extent = prop_oneof![6 => Just(2i64), 3 => Just(4), 2 => Just(8), 1 => Just(3)];
    prop::collection::vec((extent, any::<bool>(), any::<u32>()), 1..9)
}

/// Such a view as text, shape and strides, and the elements it spans. `gap` multiplies the steps after some first leaves.
fn view_of(leaves: &[(i64, bool, u32)], gap: (usize, i64)) -> (String, [i64; 2], i64) {
    let mut order: Vec<usize> = (0..leaves.len()).collect();
    order.sort_by_key(|i| (leaves[*i].2, *i));
    let (mut scales, mut next) = (vec![0; leaves.len()], 1);
    for (place, i) in order.into_iter().enumerate() {
        next *= if place == gap.0 { gap.1 } else { 1 };
        scales[i] = next;
        next *= leaves[i].0;
    }
    let mode = |which: bool| {
        let own: Vec<usize> = (0..leaves.len()).filter(|i| leaves[*i].1 == which).collect();
        let list = |text: &dyn Fn(usize) -> String| {
            let texts: Vec<String> = own.iter().map(|i| text(*i)).collect();
            match texts.len() {
                0 => None,
                1 => Some(texts[0].clone()),
                _ => Some(format!("({})", texts.join(", "))),
            }
        };
        let shape = list(&|i| leaves[i].0.to_string()).unwrap_or("1".into());
        let steps = list(&|i| format!("{} * e0", scales[i])).unwrap_or("e0".into());
        (shape, steps, own.iter().map(|i| leaves[*i].0).product::<i64>())
    };
    let ((s0, d0, m), (s1, d1, n)) = (mode(false), mode(true));
    (format!("({s0}, {s1}) : ({d0}, {d1})"), [m, n], next)
}

/// A product with its tiles staged or not, factors of some type, the accumulator chained into another product or not.
fn product(
    (m, n, k): (i64, i64, i64),
    factors: &str,
    (threads, staged, transposed, chained, stages): (u32, bool, bool, bool, bool),
) -> String {
    let narrow = matches!(factors, "i4" | "u4" | "i8" | "e5m2");
    let wide = if factors == "bf16" { "bf16" } else { "f16" };
    let mut body = String::new();
    let mut line = |text: String| body.push_str(&format!("    {text}\n"));
    line(format!(
        "ga = global_view(a[block.x * {m} :, :], ({m}, {k}, ceil_div(k, {k})) : (e0, e1, {k} * e1))"
    ));
    line(format!("gb = global_view(b, ({n}, {k}, ceil_div(k, {k})) : (e0, e1, {k} * e1))"));
    line(format!("gc = global_view(c[block.x * {m} :, :], ({m}, {n}) : (e0, e1))"));
    line(format!("ra = register_tensor({wide}, [{m}, {k}])"));
    line(format!("rb = register_tensor({factors}, [{n}, {k}])"));
    line(format!("rc = register_tensor(f32, [{m}, {n}])"));
    line("fill(rc, 0.0)".to_string());
    let ring = if stages { ", 2" } else { "" };
    if staged {
        line(format!("sa = shared_tensor({wide}, [{m}, {k}{ring}])"));
        let shape = if transposed { format!("{k}, {n}") } else { format!("{n}, {k}") };
        line(format!("sb = shared_tensor({factors}, [{shape}{ring}])"));
    }
    line(format!("for i in 0..ceil_div(k, {k}) {{"));
    if staged {
        let at = if stages { "[:, :, i % 2]" } else { "" };
        let tb = if transposed { format!("transpose(sb{at})") } else { format!("sb{at}") };
        line(format!("    copy(ga[:, :, i], sa{at})"));
        line(format!("    copy(gb[:, :, i], {tb})"));
        line("    syncthreads()".to_string());
        line(format!("    copy(sa{at}, ra)"));
        line(format!("    copy({tb}, rb)"));
    } else {
        line("    copy(ga[:, :, i], ra)".to_string());
        line("    copy(gb[:, :, i], rb)".to_string());
    }
    if narrow {
        line("    fb = cast(rb, f16)".to_string());
        line("    gemm(rc, ra, fb)".to_string());
    } else {
        line("    gemm(rc, ra, rb)".to_string());
    }
    if staged {
        line("    syncthreads()".to_string());
    }
    line("}".to_string());
    if chained {
        line(format!("p = cast(rc, {wide})"));
        line(format!("gd = global_view(d, (16, {n}) : (e0, e1))"));
        line(format!("rd = register_tensor({wide}, [16, {n}])"));
        line("copy(gd, rd)".to_string());
        line(format!("re = register_tensor(f32, [{m}, 16])"));
        line("fill(re, 0.0)".to_string());
        line("gemm(re, p, rd)".to_string());
        line(format!("ge = global_view(e[block.x * {m} :, :], ({m}, 16) : (e0, e1))"));
        // A sum that is rounded on the way may round either way, so the result has the precision of what it was rounded to.
        line(format!("result = cast(re, {wide})"));
        line("copy(result, ge)".to_string());
    } else {
        line("copy(rc, gc)".to_string());
    }
    let output = if chained { format!("e: {wide}[m, 16]") } else { "c: f32[m, n]".to_string() };
    let body = if chained {
        body.replace(&format!("    gc = global_view(c[block.x * {m} :, :], ({m}, {n}) : (e0, e1))\n"), "")
    } else {
        body
    };
    let second = if chained { format!(", d: {wide}[16, n]") } else { String::new() };
    format!(
        "size m = 16, n = {n}, k = 16\n\nkernel product(a: {wide}[m, k], b: {factors}[n, k]{second}, {output}) \
         grid(ceil_div(m, {m})) threads({threads}) {{\n{body}}}\n"
    )
}

/// Compiles every candidate of a program and checks each; how many there were.
fn all_candidates_hold(
    source: &str,
    arch: Arch,
    sizes: &[(&str, i64)],
    pick: usize,
) -> Result<usize, TestCaseError> {
    let program = parse(source).map_err(|e| TestCaseError::fail(format!("{e}\n{source}")))?;
    let options = Options::new(arch).for_sizes(&program, sizes);
    let Ok(first) = compile(&program, &options) else {
        // What the message must be is `holds`' business.
        return holds(source, arch, sizes, 0).map(|_| 0);
    };
    let possible: Vec<usize> =
        first.explanation.candidates.iter().filter(|c| c.estimate.is_some()).map(|c| c.number).collect();
    // The chosen one and two others.
    let chosen = first.explanation.candidates.iter().find(|c| c.chosen).map_or(0, |c| c.number);
    let others = [pick, pick / 7].map(|p| possible[p % possible.len()]);
    for number in [chosen, others[0], others[1]] {
        let kernel = compile(&program, &options.clone().with_candidate(number))
            .map_err(|e| TestCaseError::fail(format!("candidate {number}: {e}\n{source}")))?;
        let device = SimDevice::new(tilewright::sim::Config { seed: pick as u64, ..Default::default() });
        let options = CheckOptions {
            sizes: sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
            seed: pick as u64,
            ..CheckOptions::default()
        };
        let outcome = check(&kernel, &device, &options)
            .map_err(|e| TestCaseError::fail(format!("candidate {number}: {e}\n{source}")))?;
        prop_assert!(
            outcome.is_right(),
            "candidate {}: {:?}\n{:?}\n{}",
            number,
            outcome.comparisons,
            outcome.findings,
            source
        );
    }
    Ok(possible.len())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// A tile travels from global memory through shared memory and registers back, perhaps transposed, from buffers of any
    /// order of modes.
    #[test]
    fn copies(
        dtype in prop::sample::select(vec!["f16", "bf16", "f32", "i8", "u8", "i32", "e4m3", "i4", "u2", "u1"]),
        (bm, bn) in (1i64..=10, 1i64..=10, prop::sample::select(vec![1i64, 4, 8, 16]), prop::sample::select(vec![1i64, 2, 8]))
            .prop_map(|(a, b, x, y)| (a * x, b * y)),
        warps in 1i64..=8,
        m in 1i64..200,
        n in prop_oneof![1i64..200, (1i64..20).prop_map(|x| 16 * x)],
        column_major: (bool, bool),
        transposed: bool,
        through_shared: bool,
        into_registers_first: bool,
        literal: bool,
        shift in prop_oneof![3 => Just(0i64), 1 => -9i64..9],
        arch in arch(),
        seed in 0u64..4,
    ) {
        // Literal extents are folded: guards may be known when the kernel is compiled.
        let (em, en) = if literal { (m.to_string(), n.to_string()) } else { ("m".to_string(), "n".to_string()) };
        let strides = |flag: bool, a: &str, b: &str| if flag { format!(" : (1, {a})") } else { format!(" : ({b}, 1)") };
        let (rows, cols, by, bx) = if transposed { (&en, &em, bn, bm) } else { (&em, &en, bm, bn) };
        let (oy, ox) = if transposed { ("block.y", "block.x") } else { ("block.x", "block.y") };
        let body = match (through_shared || transposed, into_registers_first) {
            (true, true) => format!(
                "r0 = register_tensor({dtype}, [{bm}, {bn}])\n copy(gx, r0)\n s = shared_tensor({dtype}, [{bm}, {bn}])\n copy(r0, s)\n"
            ),
            (true, false) => format!("s = shared_tensor({dtype}, [{bm}, {bn}])\n copy(gx, s)\n"),
            (false, _) => String::new(),
        };
        // Elements of a few bits are written as bytes: rows of buffers need not be whole ones.
        let (out, cast) = match dtype {
            "i4" | "u2" | "u1" => ("i8", "q = cast(r, i8)\n copy(q, gy)"),
            _ => (dtype, "copy(r, gy)"),
        };
        let from = match (through_shared || transposed, transposed) {
            (true, true) => "transpose(s)",
            (true, false) => "s",
            (false, _) => "gx",
        };
        let source = format!(
            "size m = 64, n = 64\nkernel f(x: {dtype}[{em}, {en}]{}, y: {out}[{rows}, {cols}]{}) \
             grid(ceil_div({em}, {bm}), ceil_div({en}, {bn})) threads({}) {{\n\
             gx = global_view(x[block.x * {bm} + ({shift}) :, block.y * {bn} - ({shift}) :], ({bm}, {bn}) : (e0, e1))\n\
             gy = global_view(y[{oy} * {by} :, {ox} * {bx} :], ({by}, {bx}) : (e0, e1))\n\
             {body} syncthreads()\n r = register_tensor({dtype}, [{by}, {bx}])\n copy({from}, r)\n {cast}\n}}\n",
            strides(column_major.0, &em, &en),
            strides(column_major.1, rows, cols),
            32 * warps,
        );
        holds(&source, arch, &[("m", m), ("n", n)], seed)?;
    }

    /// Views of repacked buffers, whose leaves continue each other in memory in any order, with and without gaps, at offsets, with a
    /// tail outside: through shared memory or not, and written back through a view of another order.
    #[test]
    fn repacked_views(
        dtype in prop::sample::select(vec!["f16", "f32", "i8", "i4", "u2", "u1"]),
        leaves in repacked(),
        keys in prop::collection::vec(any::<u32>(), 9),
        gap in (1usize..4, prop::sample::select(vec![1i64, 1, 2, 3, 8])),
        warps in 1i64..=4,
        shift in prop::sample::select(vec![0i64, 0, 32, 8, 4, 1]),
        short in prop::sample::select(vec![0i64, 0, 1, 16, 100]),
        back: bool,
        through_shared: bool,
        asynchronous: bool,
        literal: bool,
        arch in arch(),
        seed in 0u64..4,
    ) {
        let (from, [m, n], size) = view_of(&leaves, gap);
        // A block's tile has 2^20 elements at most.
        prop_assume!(m * n <= 1 << 20);
        let other: Vec<_> = leaves.iter().zip(&keys).map(|(l, key)| (l.0, l.1, *key)).collect();
        let (to, _, _) = view_of(&other, (0, 1));
        let extent = (size + shift - short).max(1);
        let name = if literal { extent.to_string() } else { "k".to_string() };
        let (out, mut cast, result) = match dtype {
            "i4" | "u2" | "u1" if !back => ("i8", "q = cast(r, i8)\n".to_string(), "q"),
            _ => (dtype, String::new(), "r"),
        };
        let parameter = if back {
            cast += &format!("gy = global_view(y, {to})\n");
            format!("y: {out}[{}]", m * n)
        } else {
            cast += &format!("gy = global_view(y, ({m}, {n}) : (e0, e1))\n");
            format!("y: {out}[{m}, {n}]")
        };
        let load = match (through_shared, asynchronous) {
            (false, _) => "copy(gx, r)".to_string(),
            (true, false) => format!("s = shared_tensor({dtype}, [{m}, {n}])\n copy(gx, s)\n syncthreads()\n copy(s, r)"),
            (true, true) => format!(
                "s = shared_tensor({dtype}, [{m}, {n}])\n copy.async(gx, s)\n commit_group()\n wait_group(0)\n \
                 syncthreads()\n copy(s, r)"
            ),
        };
        let source = format!(
            "size k = 64\nkernel f(x: {dtype}[{name}], {parameter}) grid(1) threads({}) {{\n\
             gx = global_view(x[{shift} :], {from})\n r = register_tensor({dtype}, [{m}, {n}])\n {load}\n\
             {cast} copy({result}, gy)\n}}\n",
            32 * warps,
        );
        holds(&source, arch, &[("k", extent)], seed)?;
    }

    /// Matrix products with every arrangement of operands in memory, tile sizes that may or may not fit an instruction, and
    /// tails.
    #[test]
    fn products(
        ab in prop::sample::select(vec!["f16", "bf16"]),
        tiles in (1i64..=6, 1i64..=12, 1i64..=4, prop::sample::select(vec![8i64, 16])),
        warps in 1i64..=6,
        sizes in (1i64..120, 1i64..120, 1i64..120),
        aligned: bool,
        k_contiguous: (bool, bool),
        staged: (bool, bool),
        arch in arch(),
        seed in 0u64..4,
    ) {
        let (bm, bn, bk) = (16 * tiles.0, 8 * tiles.1, tiles.3 * tiles.2);
        let up = |x: i64| if aligned { (x + 7) / 8 * 8 } else { x };
        let (m, n, k) = (up(sizes.0), up(sizes.1), up(sizes.2));
        let buffer = |extent: &str, contiguous: bool| {
            if contiguous { format!("[{extent}, k]") } else { format!("[k, {extent}]") }
        };
        let view = |name: &str, block: &str, extent: i64, contiguous: bool| {
            if contiguous {
                format!("global_view({name}[{block} * {extent} :, :], ({extent}, {bk}, ceil_div(k, {bk})) : (e0, e1, {bk} * e1))")
            } else {
                format!("global_view({name}[:, {block} * {extent} :], ({extent}, {bk}, ceil_div(k, {bk})) : (e1, e0, {bk} * e0))")
            }
        };
        let load = |t: char, staged: bool| {
            if staged { format!("copy(g{t}[:, :, i], s{t})\n syncthreads()\n copy(s{t}, r{t})\n") } else { format!("copy(g{t}[:, :, i], r{t})\n") }
        };
        let shared = |t: char, extent: i64, staged: bool| {
            if staged { format!("s{t} = shared_tensor({ab}, [{extent}, {bk}])\n") } else { String::new() }
        };
        let source = format!(
            "size m = 64, n = 64, k = 64\nkernel f(a: {ab}{}, b: {ab}{}, c: f32[m, n]) \
             grid(ceil_div(m, {bm}), ceil_div(n, {bn})) threads({}) {{\n\
             ga = {}\n gb = {}\n gc = global_view(c[block.x * {bm} :, block.y * {bn} :], ({bm}, {bn}) : (e0, e1))\n\
             {}{} ra = register_tensor({ab}, [{bm}, {bk}])\n rb = register_tensor({ab}, [{bn}, {bk}])\n\
             rc = register_tensor(f32, [{bm}, {bn}])\n fill(rc, 0.0)\n\
             for i in 0..ceil_div(k, {bk}) {{\n {}{} gemm(rc, ra, rb)\n syncthreads()\n }}\n copy(rc, gc)\n}}\n",
            buffer("m", k_contiguous.0),
            buffer("n", k_contiguous.1),
            32 * warps,
            view("a", "block.x", bm, k_contiguous.0),
            view("b", "block.y", bn, k_contiguous.1),
            shared('a', bm, staged.0),
            shared('b', bn, staged.1),
            load('a', staged.0),
            load('b', staged.1),
        );
        holds(&source, arch, &[("m", m), ("n", n), ("k", k)], seed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 2, failure_persistence: None, ..ProptestConfig::default() })]

    /// Matrix products of any tile, type and staging: the chosen candidate and others are right, without races.
    #[test]
    fn candidates_of_products(
        tiles in (1i64..6, 1i64..9, 1i64..5),
        factors in prop::sample::select(vec!["f16", "bf16", "f16", "i4", "u4", "i8", "e5m2"]),
        warps in prop::sample::select(vec![1u32, 2, 4, 8, 3]),
        flags in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        extra in (-3i64..4, -3i64..4, 1i64..3),
        pick in 0usize..10_000,
        arch in arch(),
    ) {
        let (m, n, k) = (16 * tiles.0, 8 * tiles.1, 16 * tiles.2);
        let (staged, transposed, chained, stages) = flags;
        let n = if chained { (n + 15) / 16 * 16 } else { n };
        let source = product((m, n, k), factors, (32 * warps, staged, transposed, chained, stages));
        let sizes = [("m", (m + extra.0).max(1)), ("n", n), ("k", (extra.2 * k + extra.1).max(1))];
        all_candidates_hold(&source, arch, &sizes, pick)?;
    }
}
