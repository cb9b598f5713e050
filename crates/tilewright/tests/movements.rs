//! Movements between random register layouts, reductions and gathers: the simulator against the interpreter, and the
//! wavefronts that synthesis predicts (*Linear Layouts*, lemma 9.4) against those the simulator counts.

use proptest::prelude::*;
use tilewright::prelude::*;
use tilewright::tile::Code;

/// A tile of 2^rows × 2^columns dealt at random to registers, five bits of lanes and `warps` bits of warps, some of which
/// hold copies; as a pinned layout.
fn dealt(rows: u32, columns: u32, warps: usize) -> impl Strategy<Value = (String, bool)> {
    let units: Vec<u64> = (0..rows + columns).map(|i| 1 << i).collect();
    (Just(units).prop_shuffle(), prop::collection::vec(0..8u8, 5 + warps)).prop_map(move |(units, zero)| {
        let mut units = units.into_iter();
        let threads: Vec<u64> =
            zero.iter().map(|z| if *z == 0 { 0 } else { units.next().unwrap_or(0) }).collect();
        let registers: Vec<u64> = units.collect();
        let mode = |strides: &[u64]| match strides {
            [] => ("1".to_string(), "0".to_string()),
            many => {
                let list = |f: &dyn Fn(&u64) -> String| many.iter().map(f).collect::<Vec<_>>().join(",");
                (format!("({})", list(&|_| "2".to_string())), format!("({})", list(&|s| s.to_string())))
            }
        };
        let ((ts, td), (vs, vd)) = (mode(&threads), mode(&registers));
        (format!("({ts}, {vs}) : ({td}, {vd})"), threads.contains(&0))
    })
}

/// Runs a kernel on the simulator; `None` where the compiler refuses it for its size.
fn outcome(source: &str, arch: Arch, seed: u64) -> Option<(Kernel, Outcome)> {
    let program = parse(source).unwrap_or_else(|e| panic!("{e:?}\n{source}"));
    let kernel = match compile(&program, &Options::new(arch).for_sizes(&program, &[])) {
        Ok(kernel) => kernel,
        Err(refused) => {
            let codes: Vec<_> = refused.0.iter().map(|d| d.code).collect();
            assert!(
                codes.iter().all(|c| matches!(c, Code::RegistersExceeded | Code::SharedMemoryExceeded)),
                "{codes:?}\n{source}"
            );
            return None;
        }
    };
    let device = open(DeviceChoice::Sim).unwrap();
    let options = CheckOptions { seed, ..CheckOptions::default() };
    let outcome = check(&kernel, device.as_ref(), &options).unwrap();
    Some((kernel, outcome))
}

fn cases(ordinary: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(ordinary)
}

fn config(ordinary: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(ordinary)) }
}

fn arch() -> impl Strategy<Value = Arch> {
    prop::sample::select(vec![Arch::SM_80, Arch::SM_90A])
}

/// The type in which a tensor goes to global memory, and the statements that bring it there: elements of a few bits become
/// bytes, for threads may hold parts of bytes.
fn written<'a>(dtype: &'a str, tensor: &str, view: &str) -> (&'a str, String) {
    match dtype {
        "i4" | "u2" | "i1" => ("i8", format!("wide = cast({tensor}, i8)\n    copy(wide, {view})")),
        _ => (dtype, format!("copy({tensor}, {view})")),
    }
}

fn views(dtype: &str, rows: u32, columns: u32) -> String {
    let (m, n) = (1 << rows, 1 << columns);
    format!(
        "    gx = global_view(x[:, :], ({m}, {n}) : (e0, e1))\n    gy = global_view(y[:, :], ({m}, {n}) : (e0, e1))\n    \
         r = register_tensor({dtype}, [{m}, {n}]"
    )
}

proptest! {
    #![proptest_config(config(1536))]

    /// 1536 pairs of layouts; some thousand of the movements go through shared memory.
    #[test]
    fn rearrangements(
        (rows, columns, warps, a, b) in (0..6u32, 0..6u32, 0..3usize)
            .prop_filter("a warp has a row of the tile at least", |(r, c, _)| r + c >= 4)
            .prop_flat_map(|(r, c, w)| (Just(r), Just(c), Just(w), dealt(r, c, w), dealt(r, c, w))),
        dtype in prop::sample::select(vec!["i1", "u2", "i4", "u8", "e4m3", "f16", "bf16", "f32", "i32"]),
        in_a_loop: bool,
        arch in arch(),
        seed in 0u64..4,
    ) {
        let (m, n) = (1 << rows, 1 << columns);
        let (out, store) = written(dtype, "q", "gy");
        let steps = if in_a_loop {
            format!("for i in 0..2 {{\n        q = rearrange(r)\n        r = rearrange(q)\n    }}\n    q = rearrange(r)\n    {store}")
        } else {
            format!("q = rearrange(r)\n    {store}")
        };
        let source = format!(
            "kernel f(x: {dtype}[{m}, {n}], y: {out}[{m}, {n}]) grid(1) threads({}) {{\n{}, layout = {})\n    \
             q = register_tensor({dtype}, [{m}, {n}], layout = {})\n    copy(gx, r)\n    {steps}\n}}\n",
            32 << warps, views(dtype, rows, columns), a.0, b.0
        );
        let Some((kernel, outcome)) = outcome(&source, arch, seed) else { return Ok(()) };
        prop_assert!(outcome.is_right(), "{:?}\n{source}", outcome.findings);
        let simulated = outcome.report.sim().unwrap();
        for note in kernel.explanation.statements.iter().filter(|note| note.wavefronts > 0 && note.text.contains("rearrange")) {
            let here: Vec<_> = simulated.traffic.iter().filter(|t| t.origin == note.text).collect();
            let counted: u64 = here.iter().map(|t| t.counts.shared_wavefronts).sum();
            // Before the loop's end and after it there is the same statement twice.
            let alike = kernel.explanation.statements.iter().filter(|o| o.text == note.text).count() as u64;
            let times = match (in_a_loop, alike) { (false, _) => 1, (true, 1) => 2, (true, _) => 3 };
            let predicted = u64::from(note.wavefronts) * times;
            // Those who hold copies do not store; otherwise the prediction is exact.
            let copies = a.1 || b.1;
            prop_assert!(counted == predicted || copies && counted <= predicted, "{counted} of {predicted}: {source}");
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn reductions(
        (rows, columns, warps, a) in (0..6u32, 0..6u32, 0..3usize)
            .prop_filter("not too small", |(r, c, _)| r + c >= 4)
            .prop_flat_map(|(r, c, w)| (Just(r), Just(c), Just(w), dealt(r, c, w))),
        dtype in prop::sample::select(vec!["u2", "i4", "f16", "bf16", "f32", "i32"]),
        op in prop::sample::select(vec!["sum", "max", "min"]),
        axis in 0..2usize,
        pinned: bool,
        arch in arch(),
        seed in 0u64..4,
    ) {
        let (m, n) = (1 << rows, 1 << columns);
        let kept = if axis == 0 { n } else { m };
        let (out, store) = written(dtype, "t", "gz");
        // There is no sum of small integers.
        let op = if out == dtype || op != "sum" { op } else { "max" };
        let layout = if pinned { format!(", layout = {}", a.0) } else { String::new() };
        let source = format!(
            "kernel f(x: {dtype}[{m}, {n}], z: {out}[{kept}]) grid(1) threads({}) {{\n    \
             gx = global_view(x[:, :], ({m}, {n}) : (e0, e1))\n    gz = global_view(z[:], ({kept}) : (e0))\n    \
             r = register_tensor({dtype}, [{m}, {n}]{layout})\n    copy(gx, r)\n    t = reduce(r, {op}, {axis})\n    {store}\n}}\n",
            32 << warps
        );
        let Some((_, outcome)) = outcome(&source, arch, seed) else { return Ok(()) };
        prop_assert!(outcome.is_right(), "{:?}\n{source}", outcome.findings);
    }

    #[test]
    fn gathers(
        (rows, columns, along, warps, a, b) in (0..6u32, 0..6u32, 0..6u32, 0..3usize)
            .prop_filter("not too small", |(r, c, _, _)| r + c >= 4)
            .prop_flat_map(|(r, c, k, w)| (Just(r), Just(c), Just(k), Just(w), dealt(r, c, w), dealt(r, k, w))),
        dtype in prop::sample::select(vec!["i1", "i4", "u8", "f16", "f32", "i32"]),
        first: bool,
        pinned: (bool, bool),
        arch in arch(),
        seed in 0u64..4,
    ) {
        // Along the last mode, or along the first with modes exchanged.
        let (m, n, k) = (1 << rows, 1 << columns, 1 << along);
        let (out, store) = written(dtype, "t", "gz");
        let pair = |a: i64, b: i64| if first { format!("{b}, {a}") } else { format!("{a}, {b}") };
        let layout = |flag: bool, text: &str| if flag && !first { format!(", layout = {text}") } else { String::new() };
        let source = format!(
            "kernel f(x: {dtype}[{0}], i: i32[{1}], z: {out}[{1}]) grid(1) threads({2}) {{\n    \
             gx = global_view(x[:, :], ({0}) : (e0, e1))\n    gi = global_view(i[:, :], ({1}) : (e0, e1))\n    \
             gz = global_view(z[:, :], ({1}) : (e0, e1))\n    r = register_tensor({dtype}, [{0}]{3})\n    \
             q = register_tensor(i32, [{1}]{4})\n    copy(gx, r)\n    copy(gi, q)\n    t = gather(r, q, {5})\n    {store}\n}}\n",
            pair(m, n), pair(m, k), 32 << warps, layout(pinned.0, &a.0), layout(pinned.1, &b.0), i32::from(!first)
        );
        let Some((_, outcome)) = outcome(&source, arch, seed) else { return Ok(()) };
        prop_assert!(outcome.is_right(), "{:?}\n{source}", outcome.findings);
    }
}
