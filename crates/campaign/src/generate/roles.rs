//! Roles, pipelines, asynchronous products, clusters and sums over them.

use super::draft::{Case, Draft, bits, columns_layout, expression, is_float, rows_layout};
use crate::dice::Dice;

/// Sizes of a product: groups, tile extents, stages, iterations along K and blocks of a cluster.
struct Shape {
    groups: i64,
    m: i64,
    n: i64,
    k: i64,
    stages: i64,
    rounds: i64,
    cluster: Cluster,
}

/// The blocks of a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cluster {
    None,
    /// Two that do the same tile.
    Pair,
    /// Two by two, each of which does a tile.
    Square,
}

/// A product of warpgroups: one role copies, one multiplies, and its epilogue leaves in some way.
pub fn product(dice: &mut Dice) -> Case {
    let (factor, sum) = dice.pick(&[
        ("f16", "f32"),
        ("f16", "f32"),
        ("bf16", "f32"),
        ("f16", "f16"),
        ("e4m3", "f32"),
        ("e5m2", "f32"),
        ("f32", "f32"),
        ("i8", "i32"),
        ("u8", "i32"),
    ]);
    let wide = 128 / bits(factor);
    let shape = Shape {
        groups: dice.pick(&[1, 1, 2]),
        m: 0,
        n: 16 * dice.range(1, 4),
        k: (wide * dice.pick(&[2, 4, 4, 8])).max(32 * 8 / bits(factor)).min(64),
        stages: dice.range(2, 4),
        rounds: dice.range(1, 5),
        cluster: dice.pick(&[
            Cluster::None,
            Cluster::None,
            Cluster::None,
            Cluster::None,
            Cluster::Pair,
            Cluster::Square,
        ]),
    };
    let shape = Shape { m: 64 * shape.groups, ..shape };
    let Shape { groups, m, n, k, stages, rounds, cluster } = shape;
    let mut draft = Draft::default();
    // Where rows are no multiples of 16 bytes, nothing of Hopper's copies them.
    let odd = dice.once_in(8);
    let total =
        if odd { rounds * k - dice.range(1, k - 1) } else { rounds * k - wide * dice.range(0, k / wide - 1) };
    let (tall, broad) = (dice.range(1, 2), dice.range(1, 2));
    let blocks = tall * broad;
    let persistent = cluster == Cluster::None && dice.once_in(2);
    let (rows, columns, depth) = (
        draft.size("m", tall * m - dice.range(0, m / 2)),
        draft.size("n", broad * n - if odd { dice.range(0, n - 1) } else { 0 }),
        draft.size("k", total),
    );
    // Major modes: K, or rows (16-bit types only).
    let transposed = |dice: &mut Dice| bits(factor) == 16 && !odd && dice.once_in(4);
    let (ta, tb) = (transposed(dice), transposed(dice));
    let from_registers = !ta && bits(factor) == 16 && dice.once_in(5);
    let (rows, ta) = if ta { (format!("{}", tall * m), true) } else { (rows, false) };
    let buffer = |name: &str, extent: &str, t: bool| {
        if t {
            format!("{name}: {factor}[{depth}, {extent}]")
        } else {
            format!("{name}: {factor}[{extent}, {depth}]")
        }
    };
    draft.params.push(buffer("a", &rows, ta));
    draft.params.push(buffer("b", &columns, tb));
    let view = |name: &str, extent: &str, tile: i64, t: bool| {
        let (x, y) = if t { ("e1", "e0") } else { ("e0", "e1") };
        let of = &name[1..];
        format!(
            "{name} = global_view({of}, ({tile}, ceil_div({extent}, {tile}), {k}, ceil_div({depth}, {k})) : ({x}, {tile} * {x}, {y}, {k} * {y}))"
        )
    };
    draft.line(view("ga", &rows, m, ta));
    draft.line(view("gb", &columns, n, tb));
    let out = match sum {
        "i32" => "i32",
        _ => dice.pick(&["f16", "f32", "bf16"]),
    };
    draft.params.push(format!("c: {out}[{rows}, {columns}]"));
    draft.line(format!(
        "gc = global_view(c, ({m}, ceil_div({rows}, {m}), {n}, ceil_div({columns}, {n})) : (e0, {m} * e0, e1, {n} * e1))"
    ));
    let stage =
        |t: bool, extent: i64| if t { format!("[{k}, {extent}]") } else { format!("[{extent}, {k}]") };
    draft.line(format!("sa = shared_tensor({factor}, {})", stage(ta, m)));
    draft.line(format!("sb = shared_tensor({factor}, {})", stage(tb, n)));
    let leaves = dice.below(3);
    if leaves > 0 {
        draft.line(format!("sc = shared_tensor({out}, [{m}, {n}])"));
    }
    draft.line(format!("ab = pipeline({stages}, sa, sb)"));
    let registers = dice.once_in(3);
    let with = |n: i64| if registers { format!(" registers({n})") } else { String::new() };
    let dealt = persistent && dice.once_in(2);
    if dealt {
        draft.params.push("next: i32[1]".to_string());
    }
    // Blocks that stay do several tiles.
    let counters = |x: &str, y: &str| (x.to_string(), y.to_string());
    let tiles = |draft: &mut Draft, x: &str, y: &str| {
        if persistent {
            let dealt = if dealt { ", dynamic = next" } else { "" };
            draft.open(format!(
                "for ({x}, {y}) in tiles(ceil_div({rows}, {m}), ceil_div({columns}, {n}){dealt})"
            ));
            counters(x, y)
        } else {
            match cluster {
                Cluster::None => counters("block.x", "block.y"),
                Cluster::Pair => counters("(block.x / 2)", "block.y"),
                Cluster::Square => {
                    counters("(block.x / 4 * 2 + block.x % 2)", "(block.y * 2 + block.x / 2 % 2)")
                }
            }
        }
    };
    // In a pair the blocks share K, and sum, or copy one tile for both; of a square, those of a row and of a column copy one for both.
    let sums = cluster == Cluster::Pair && sum == "f32" && dice.once_in(2);
    let step =
        |counter: &str| if sums { format!("2 * {counter} + block.x % 2") } else { counter.to_string() };
    let bound =
        if sums { format!("ceil_div({depth}, {})", 2 * k) } else { format!("ceil_div({depth}, {k})") };
    let pair = cluster == Cluster::Pair && !sums && dice.once_in(2);
    let mut shared_copy = |along: &'static str| match cluster {
        Cluster::Square if dice.once_in(2) => along,
        Cluster::Pair if pair => ", multicast",
        _ => "",
    };
    let (copy_of_a, copy_of_b) = (shared_copy(", multicast(1)"), shared_copy(", multicast(0)"));
    let hint = dice.pick(&["", "", "", ", evict_last", ", evict_first"]);
    let adds = sum != "i32" && leaves == 2 && dice.once_in(2);

    draft.open(format!("warpgroup load(1){}", with(40)));
    let (x, y) = tiles(&mut draft, "tm", "tn");
    draft.open(format!("for kk in 0..{bound}"));
    draft.open("produce ab");
    let with_t = |t: bool, name: &str| if t { format!("transpose({name})") } else { name.to_string() };
    let at = step("kk");
    draft.line(format!("copy.async(ga[:, {x}, :, {at}], {}{hint}{copy_of_a})", with_t(ta, "sa")));
    let by_threads = if copy_of_b.is_empty() && dice.once_in(8) { ", threads" } else { "" };
    draft.line(format!("copy.async(gb[:, {y}, :, {at}], {}{copy_of_b}{by_threads})", with_t(tb, "sb")));
    draft.close();
    draft.close();
    if persistent {
        draft.close();
    }
    draft.close();

    draft.open(format!("warpgroup math({groups}){}", with(200)));
    let (x, y) = tiles(&mut draft, "ti", "tj");
    draft.line(format!("rc = register_tensor({sum}, [{m}, {n}])"));
    draft.line(if sum == "i32" { "fill(rc, 0)" } else { "fill(rc, 0.0)" });
    draft.open(format!("for k2 in 0..{bound}"));
    let flight = if from_registers { 0 } else { dice.range(0, 1) };
    if from_registers {
        draft.line(format!("ra = register_tensor({factor}, [{m}, {k}])"));
    }
    draft.open("consume ab");
    let left = if from_registers {
        draft.line("copy(sa, ra)");
        "ra".to_string()
    } else {
        with_t(ta, "sa")
    };
    draft.line(format!("gemm.async(rc, {left}, {})", with_t(tb, "sb")));
    draft.line("commit_gemm() // needed for sa sb rc");
    draft.line(if flight == 0 { "wait_gemm(0)" } else { "wait_gemm(1)" });
    draft.close();
    draft.close();
    if flight > 0 {
        draft.line("wait_gemm(0) // needed for rc");
    }
    if sums {
        draft.line("cluster_reduce(rc, sum)");
    }
    let mut result = "rc".to_string();
    if is_float(sum) && dice.once_in(2) {
        let operands = vec!["rc".to_string()];
        let text = expression(dice, &operands, 2);
        draft.line(format!("rd = rc + {text}"));
        result = "rd".into();
    }
    if sum != out {
        draft.line(format!("rh = cast({result}, {out})"));
        result = "rh".into();
    }
    // What each block of a cluster leaves must be one block's, or the same.
    match leaves {
        0 => draft.line(format!("copy({result}, gc[:, {x}, :, {y}])")),
        _ => {
            let again = persistent;
            if again {
                draft.line("wait_group(0)");
                draft.line("syncthreads()");
            }
            draft.line(format!("copy({result}, sc)"));
            let bulk = !odd && (n * bits(out)) % 128 == 0;
            // Four warps write, and one thread starts the copy, where tensor copies do it.
            draft.line(if bulk { "syncthreads() // needed for sc" } else { "syncthreads()" });
            let how = if adds { ", add" } else { "" };
            draft.line(format!("copy.async(sc, gc[:, {x}, :, {y}]{how})"));
            draft.line("commit_group() // needed for gc");
            if again {
                draft.close();
                draft.line("wait_group(0) // needed for gc");
            } else {
                draft.line("wait_group(0) // needed for gc");
            }
        }
    }
    if persistent && leaves == 0 {
        draft.close();
    }
    draft.close();
    let grid = if persistent {
        format!("min({}, ceil_div({rows}, {m}) * ceil_div({columns}, {n}))", dice.range(1, blocks))
    } else {
        match cluster {
            Cluster::None => format!("ceil_div({rows}, {m}), ceil_div({columns}, {n})"),
            Cluster::Pair => format!("2 * ceil_div({rows}, {m}), ceil_div({columns}, {n})"),
            Cluster::Square => {
                format!("4 * ceil_div({rows}, {}), ceil_div({columns}, {})", 2 * m, 2 * n)
            }
        }
    };
    let extents: &[i64] = match cluster {
        Cluster::None => &[1],
        Cluster::Pair => &[2],
        Cluster::Square => &[2, 2],
    };
    Case { text: draft.text(&grid, 128 * (1 + groups), extents), arch: "sm_90a", family: "product" }
}

/// Tiles through one or two pipelines, without products: what is read is copied to registers, in one role or another.
pub fn tiles_through(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f32", "f16", "bf16", "i8", "i32", "e4m3", "u8"]);
    let alone = dice.once_in(3);
    let warps = if alone { dice.pick(&[2i64, 4]) } else { 4 };
    let threads = 32 * warps;
    let (m, n) = (threads, warps * dice.pick(&[2, 4, 8]).max(128 / bits(dtype) / warps));
    let stages = dice.range(1, 3);
    let rounds = dice.range(2, 5);
    let two = dice.once_in(2);
    let mut draft = Draft::default();
    let wide = 128 / bits(dtype);
    let odd = dice.once_in(6);
    let columns = rounds * n - if odd { 1 } else { wide * dice.range(0, (n / wide - 1).max(0)) };
    let k = draft.size("k", columns);
    let rows = draft.size("m", m - if dice.once_in(3) { dice.range(0, m - 1) } else { 0 });
    let tensors: &[&str] = if two { &["p", "q"] } else { &["p"] };
    for t in tensors {
        draft.params.push(format!("x{t}: {dtype}[{rows}, {k}]"));
        draft.params.push(format!("y{t}: {dtype}[{rows}, {k}]"));
        draft.params.push(format!("z{t}: {dtype}[{rows}, {k}]"));
        for g in ["x", "y", "z"] {
            draft.line(format!(
                "g{g}{t} = global_view({g}{t}, ({m}, {n}, ceil_div({k}, {n})) : (e0, e1, {n} * e1))"
            ));
        }
        draft.line(format!("s{t} = shared_tensor({dtype}, [{m}, {n}])"));
    }
    // Two tensors: of one pipeline, or each of its own.
    let joint = two && dice.once_in(2);
    let pipelines: Vec<(String, Vec<&str>)> = if joint {
        vec![("ring".to_string(), tensors.to_vec())]
    } else {
        tensors.iter().map(|t| (format!("ring{t}"), vec![*t])).collect()
    };
    for (name, of) in &pipelines {
        let list: Vec<String> = of.iter().map(|t| format!("s{t}")).collect();
        draft.line(format!("{name} = pipeline({stages}, {})", list.join(", ")));
    }
    let by_rows = rows_layout(dice, threads, m, n);
    let by_columns = columns_layout(threads, m, n);
    let produce = |draft: &mut Draft, counter: &str, asynchronous: bool| {
        for (name, of) in &pipelines {
            draft.open(format!("produce {name}"));
            for t in of {
                let word = if asynchronous { "copy.async" } else { "copy" };
                draft.line(format!("{word}(gx{t}[:, :, {counter}], s{t})"));
            }
            draft.close();
        }
    };
    let consume = |draft: &mut Draft, counter: &str| {
        for (name, of) in &pipelines {
            for t in of {
                draft.line(format!("a{t} = register_tensor({dtype}, [{m}, {n}], layout = {by_rows})"));
                draft.line(format!("b{t} = register_tensor({dtype}, [{m}, {n}], layout = {by_columns})"));
            }
            draft.open(format!("consume {name}"));
            for t in of {
                draft.line(format!("copy(s{t}, a{t})"));
                draft.line(format!("copy(s{t}, b{t})"));
            }
            draft.close();
            for t in of {
                draft.line(format!("copy(a{t}, gy{t}[:, :, {counter}])"));
                draft.line(format!("copy(b{t}, gz{t}[:, :, {counter}])"));
            }
        }
    };
    let bound = format!("ceil_div({k}, {n})");
    if alone {
        draft.open(format!("for i in 0..{bound}"));
        produce(&mut draft, "i", true);
        consume(&mut draft, "i");
        draft.close();
        return Case { text: draft.text("1", threads, &[1]), arch: "sm_90a", family: "tiles" };
    }
    draft.open("warpgroup load(1)");
    draft.open(format!("for i in 0..{bound}"));
    let asynchronous = !dice.once_in(6);
    produce(&mut draft, "i", asynchronous);
    draft.close();
    draft.close();
    draft.open("warpgroup read(1)");
    draft.open(format!("for j in 0..{bound}"));
    consume(&mut draft, "j");
    draft.close();
    draft.close();
    Case { text: draft.text("1", 256, &[1]), arch: "sm_90a", family: "tiles" }
}

/// Three roles in a row: one fills, one changes and passes on, one stores.
pub fn relay(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f32", "f16", "bf16"]);
    let (m, n) = (128, 4 * dice.pick(&[2i64, 4, 8]));
    let (stages, more, rounds) = (dice.range(1, 3), dice.range(1, 3), dice.range(2, 5));
    let mut draft = Draft::default();
    let k = draft.size("k", rounds * n);
    draft.params.push(format!("x: {dtype}[{m}, {k}]"));
    draft.params.push(format!("y: {dtype}[{m}, {k}]"));
    draft.params.push(format!("z: {dtype}[{m}, {k}]"));
    for g in ["x", "y", "z"] {
        draft.line(format!("g{g} = global_view({g}, ({m}, {n}, ceil_div({k}, {n})) : (e0, e1, {n} * e1))"));
    }
    draft.line(format!("sp = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line(format!("sq = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line(format!("first = pipeline({stages}, sp)"));
    draft.line(format!("second = pipeline({more}, sq)"));
    let by_rows = rows_layout(dice, 128, m, n);
    let by_columns = columns_layout(128, m, n);
    let bound = format!("ceil_div({k}, {n})");
    draft.open("warpgroup load(1)");
    draft.open(format!("for i in 0..{bound}"));
    draft.open("produce first");
    draft.line("copy.async(gx[:, :, i], sp)");
    draft.close();
    draft.close();
    draft.close();
    draft.open("warpgroup change(1)");
    draft.open(format!("for j in 0..{bound}"));
    draft.line(format!("a = register_tensor({dtype}, [{m}, {n}], layout = {by_rows})"));
    draft.open("consume first");
    draft.line("copy(sp, a)");
    draft.close();
    let text = expression(dice, &["a".to_string()], 2);
    draft.line(format!("b = a + {text}"));
    draft.open("produce second");
    draft.line("copy(b, sq)");
    draft.close();
    draft.close();
    draft.close();
    draft.open("warpgroup leave(1)");
    draft.open(format!("for l in 0..{bound}"));
    draft.line(format!("c = register_tensor({dtype}, [{m}, {n}], layout = {by_columns})"));
    draft.line(format!("d = register_tensor({dtype}, [{m}, {n}])"));
    draft.open("consume second");
    draft.line("copy(sq, c)");
    draft.line("copy(sq, d)");
    draft.close();
    draft.line("copy(c, gy[:, :, l])");
    draft.line("copy(d, gz[:, :, l])");
    draft.close();
    draft.close();
    Case { text: draft.text("1", 384, &[1]), arch: "sm_90a", family: "relay" }
}
