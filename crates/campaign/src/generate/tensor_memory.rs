//! Products with their sums in tensor memory, of one block or of pairs: one role copies, one multiplies, and one or two store, perhaps in clusters that share a factor; and chains of two, whose second has the first's result as its left factor in
//! tensor memory.

use super::draft::{Case, Draft, bits, expression};
use crate::dice::Dice;

/// A product whose tiles are stored while the next are multiplied.
pub fn product(dice: &mut Dice) -> Case {
    let blocks = dice.once_in(4).then(|| {
        dice.pick(&[
            ("e4m3", "ue8m0", 32i64),
            ("e5m2", "ue8m0", 32),
            ("e2m1", "ue8m0", 32),
            ("e2m1", "ue4m3", 16),
        ])
    });
    let factor = match blocks {
        Some((factor, ..)) => factor,
        None => dice.pick(&["f16", "f16", "bf16", "e4m3", "e5m2", "f32", "i8", "u8"]),
    };
    let integers = matches!(factor, "i8" | "u8");
    let other = match bits(factor) {
        8 if integers => dice.pick(&["i8", "u8"]),
        8 => dice.pick(&["e4m3", "e5m2"]),
        _ => factor,
    };
    let sums = if integers { "i32" } else { "f32" };
    let groups = dice.pick(&[1i64, 1, 2]);
    let m = if blocks.is_some() { 128 } else { dice.pick(&[64i64, 128]) };
    // Two blocks multiply together, integers with every 32nd number of columns.
    let pair = m == 128 && dice.once_in(3);
    let columns = if integers && pair { 32 } else { 16 };
    let n = columns * groups * dice.range(1, 64 / columns);
    // Scales come to tensor memory by 128 rows, four of a row.
    let whole = n.max(128);
    // Of four elements along K two are there, and a role stores the places of these.
    let sparse = blocks.is_none() && m == 128 && !pair && bits(factor) < 32 && dice.once_in(4);
    // A step of an instruction is 32 bytes of a row.
    let step = blocks.map_or(256 / bits(factor), |(_, _, block)| 4 * block);
    let k = if sparse { 64 * dice.range(1, 2) } else { step * dice.range(1, 128 / step.max(32)) };
    let (rounds, tall, broad) = (dice.range(1, 4), dice.range(1, 2), dice.range(1, 3));
    // Where rows are no multiples of 16 bytes, threads copy them.
    let odd = bits(factor) >= 8 && !sparse && dice.once_in(6);
    let wide = 128 / bits(factor);
    let total =
        if odd { rounds * k - dice.range(1, k - 1) } else { rounds * k - wide * dice.range(0, k / wide - 1) };
    let mut draft = Draft::default();
    let (rows, columns, depth) = (
        draft.size("m", tall * m - dice.range(0, m / 2)),
        draft.size("n", broad * n - dice.range(0, n - 1)),
        draft.size("k", total),
    );
    // Factors that are contiguous along rows.
    let mut along_rows = |extent: i64| {
        let spans = match bits(factor) {
            8 | 16 => extent * bits(factor) % 128 == 0,
            32 => extent % 32 == 0,
            _ => false,
        };
        spans && !odd && !sparse && dice.once_in(4)
    };
    // Of a pair each block has half of B's.
    let (ta, tb) = (along_rows(m), along_rows(if pair { n / 2 } else { n }));
    let (rows, columns) = (
        if ta { format!("{}", tall * m) } else { rows },
        if tb { format!("{}", broad * n) } else { columns },
    );
    let out = if integers { dice.pick(&["i32", "f32"]) } else { dice.pick(&["f16", "f32", "bf16"]) };
    // Rows of A lie anywhere.
    let gathered = pair && blocks.is_none() && !ta && dice.once_in(3);
    let rows_of_a = if gathered { draft.size("tokens", 2 * m - dice.range(0, m)) } else { rows.clone() };
    for (name, dtype, extent, tile, t) in [("a", factor, &rows_of_a, m, ta), ("b", other, &columns, n, tb)] {
        let half = sparse && name == "a";
        let k = if half { k / 2 } else { k };
        let depth = if half { format!("{k} * ceil_div({depth}, {})", 2 * k) } else { depth.clone() };
        let shape = if t { format!("{depth}, {extent}") } else { format!("{extent}, {depth}") };
        draft.params.push(format!("{name}: {dtype}[{shape}]"));
        let (x, y) = if t { ("e1", "e0") } else { ("e0", "e1") };
        let numbered = gathered && name == "a";
        let by_tiles = format!(
            "g{name} = global_view({name}, ({tile}, ceil_div({extent}, {tile}), {k}, ceil_div({depth}, {k})) : ({x}, {tile} * {x}, {y}, {k} * {y}))"
        );
        let by_rows =
            format!("ga = global_view(a, ({extent}, {k}, ceil_div({depth}, {k})) : (e0, e1, {k} * e1))");
        draft.line(if numbered { by_rows } else { by_tiles });
        let stage = if t { format!("[{k}, {tile}]") } else { format!("[{tile}, {k}]") };
        draft.line(format!("s{name} = shared_tensor({dtype}, {stage})"));
    }
    if sparse {
        let half = k / 2;
        draft.params.push(format!("meta: u2[{m} * ceil_div({rows}, {m}), {half} * ceil_div({depth}, {k})]"));
        draft.line(format!(
            "gm = global_view(meta, ({m}, ceil_div({rows}, {m}), {half}, ceil_div({depth}, {k})) : (e0, {m} * e0, e1, {half} * e1))"
        ));
        draft.line(format!("places = tensor_memory(u2, [{m}, {half}])"));
        draft.line(format!("kept = pipeline({}, places)", dice.range(1, 3)));
    }
    if gathered {
        draft.params.push(format!("ids: i32[{rows}]"));
        draft.line(format!("gi = global_view(ids, ({m}, ceil_div({rows}, {m})) : (e0, {m} * e0))"));
    }
    draft.params.push(format!("c: {out}[{rows}, {columns}]"));
    draft.line(format!(
        "gc = global_view(c, ({m}, ceil_div({rows}, {m}), {n}, ceil_div({columns}, {n})) : (e0, {m} * e0, e1, {n} * e1))"
    ));
    let (mut of_blocks, mut scales) = (String::new(), String::new());
    for (name, extent, tile, all) in [("a", &rows, m, m), ("b", &columns, n, whole)] {
        let Some((_, scale, block)) = blocks else { break };
        draft.params.push(format!("{name}_scale: {scale}[{extent}, ceil_div({depth}, {block})]"));
        draft.line(format!(
            "gs{name} = global_view({name}_scale, ({all}, ceil_div({extent}, {tile}), {0}, ceil_div({depth}, {k})) : (e0, {tile} * e0, e1, {0} * e1))",
            k / block
        ));
        draft.line(format!("ss{name} = shared_tensor({scale}, [{all}, {}])", k / block));
        (of_blocks, scales) = (", ssa, ssb".to_string(), ", scales = (ssa, ssb)".to_string());
    }
    draft.line(format!("acc = tensor_memory({sums}, [{m}, {n}])"));
    draft.line(format!("ab = pipeline({}, sa, sb{of_blocks})", dice.range(1, 3)));
    draft.line(format!("out = pipeline({}, acc)", dice.range(1, 2)));
    // Tiles are shared out, or dealt out by a counter or by the launch.
    let dealt = dice.pick(&["", ", dynamic = next", ", dynamic"]);
    if dealt.ends_with("next") {
        draft.params.push("next: i32[1]".to_string());
    }
    // The blocks of a cluster have tiles below each other, and share B's, of which each copies a half: to both, or for the products of both.
    // Two pairs below each other share B's.
    let below = if pair && dice.once_in(3) { 2 } else { 1 };
    let cluster = if pair || !odd && !sparse && dice.once_in(4) { 2 * below } else { 1 };
    // Two pairs beside each other share A's.
    let beside = if pair && !gathered && dice.once_in(3) { 2 } else { 1 };
    let (down, across) =
        (format!("ceil_div({rows}, {})", cluster * m), format!("ceil_div({columns}, {})", beside * n));
    let row = if cluster == 1 { String::new() } else { format!(" * {cluster} + block.x % {cluster}") };
    let share = match (cluster, pair, below) {
        (1, ..) => "",
        (_, true, 1) => ", pair",
        (_, true, _) => dice.pick(&[", pair, multicast(0)", ", multicast(0), pair"]),
        (_, false, _) => ", multicast",
    };
    let (column, also) = match beside {
        1 => (String::new(), ""),
        _ => (format!(" * 2 + block.x % {} / {cluster}", 2 * cluster), ", multicast(1)"),
    };
    let tiles = |x: &str, y: &str| format!("for ({x}, {y}) in tiles({down}, {across}{dealt})");
    let with_t = |t: bool, name: &str| if t { format!("transpose({name})") } else { name.to_string() };
    let (left, right) = (with_t(ta, "sa"), with_t(tb, "sb"));

    draft.open("warpgroup load(1)");
    draft.open(tiles("tm", "tn"));
    if gathered {
        draft.line(format!("id = register_tensor(i32, [{m}])"));
        draft.line(format!("copy(gi[:, tm{row}], id, outside = -1)"));
    }
    draft.open(format!("for kk in 0..ceil_div({depth}, {k})"));
    draft.open("produce ab");
    // Threads of both blocks of a pair may fill a stage beside the copies of halves.
    let by_threads = if pair && beside == 1 && dice.once_in(6) { ", threads" } else { also };
    let of_a = if gathered { "ga[id, :, kk]".to_string() } else { format!("ga[:, tm{row}, :, kk]") };
    draft.line(format!("copy.async({of_a}, {left}{by_threads})"));
    draft.line(format!("copy.async(gb[:, tn{column}, :, kk], {right}{share})"));
    if blocks.is_some() {
        draft.line(format!("copy.async(gsa[:, tm{row}, :, kk], ssa)"));
        draft.line(format!("copy.async(gsb[:, tn{column}, :, kk], ssb)"));
    }
    (0..4).for_each(|_| draft.close());

    if sparse {
        draft.open("warpgroup place(1)");
        draft.open(tiles("pi", "pj"));
        draft.open(format!("for kp in 0..ceil_div({depth}, {k})"));
        draft.line(format!("rm = register_tensor(u2, [{m}, {}])", k / 2));
        draft.line(format!("copy(gm[:, pi{row}, :, kp], rm)"));
        draft.line("produce kept { copy(rm, places) }");
        (0..3).for_each(|_| draft.close());
    }

    draft.open("warpgroup multiply(1)");
    draft.open(tiles("ti", "tj"));
    draft.open("produce out");
    draft.line("fill(acc, 0)");
    draft.open(format!("for k2 in 0..ceil_div({depth}, {k})"));
    draft.open("consume ab");
    let product = format!("gemm.async(acc, {left}, {right}{}{scales})", if sparse { ", places" } else { "" });
    draft.line(if sparse { format!("consume kept {{ {product} }}") } else { product });
    (0..5).for_each(|_| draft.close());

    draft.open(format!("warpgroup store({groups})"));
    draft.open(tiles("si", "sj"));
    draft.line(format!("r = register_tensor({sums}, [{m}, {n}])"));
    draft.open("consume out");
    draft.line("copy(acc, r)");
    draft.close();
    let mut result = "r".to_string();
    if !integers && dice.once_in(2) {
        let text = expression(dice, &["r".to_string()], 2);
        draft.line(format!("q = r + {text}"));
        result = "q".to_string();
    }
    if out != sums {
        draft.line(format!("h = cast({result}, {out})"));
        result = "h".to_string();
    }
    draft.line(format!("copy({result}, gc[:, si{row}, :, sj{column}])"));
    (0..2).for_each(|_| draft.close());
    let few = format!("{}", dice.range(1, 2));
    let clusters = if dealt == ", dynamic" { format!("{down} * {across}") } else { few };
    let grid = if cluster > 1 { format!("{} * {clusters}", cluster * beside) } else { clusters };
    let shape: &[i64] = if beside > 1 { &[cluster, beside] } else { &[cluster] };
    Case {
        text: draft.text(&grid, 128 * (2 + i64::from(sparse) + groups), shape),
        arch: "sm_100a",
        family: "tensor memory",
    }
}

/// A product of a product: threads turn the sums of each block of columns into the left factor of the second, whose sums stay in tensor memory, where others scale them
/// between two blocks, perhaps of the rows alone that ask for it.
pub fn chain(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f16", "f16", "bf16", "e4m3"]);
    let groups = dice.pick(&[1i64, 1, 2]);
    let step = 256 / bits(dtype);
    // Columns of a block, which are the depth of the second product; depth of the first; columns of the second, in parts.
    let n = step * groups.max(2) * dice.range(1, 2);
    let (k, part, parts) = (step * dice.range(1, 2), 16 * dice.range(1, 2), dice.range(1, 3));
    let d = part * parts;
    let wide = 128 / bits(dtype);
    let mut draft = Draft::default();
    let rows = draft.size("m", 128 - dice.range(0, 127));
    let depth = draft.size("k", k - wide * dice.range(0, k / wide - 1));
    let columns = draft.size("n", n * dice.range(1, 3) - wide * dice.range(0, n / wide - 1));
    let last = draft.size("d", d - dice.range(0, d - 1));
    // Between two blocks each row has a factor of its own.
    let by_row = dice.once_in(2);
    draft.params.extend([
        format!("a: {dtype}[{rows}, {depth}]"),
        format!("b: {dtype}[{columns}, {depth}]"),
        format!("v: {dtype}[{last}, {columns}]"),
    ]);
    draft.params.extend(by_row.then(|| format!("w: f32[{rows}, 1]")));
    draft.params.push(format!("c: f32[{rows}, {last}]"));
    draft.line(format!("ga = global_view(a, (128, {k}) : (e0, e1))"));
    draft.line(format!("gb = global_view(b, ({n}, ceil_div({columns}, {n}), {k}) : (e0, {n} * e0, e1))"));
    draft.line(format!("gv = global_view(v, ({d}, {n}, ceil_div({columns}, {n})) : (e0, e1, {n} * e1))"));
    draft.line(format!("gc = global_view(c, (128, {part}, {parts}) : (e0, e1, {part} * e1))"));
    if by_row {
        draft.line("gw = global_view(w, (128, 1) : (e0, e1))");
    }
    draft.line(format!("sa = shared_tensor({dtype}, [128, {k}])"));
    draft.line(format!("sb = shared_tensor({dtype}, [{n}, {k}])"));
    draft.line(format!("sv = shared_tensor({dtype}, [{d}, {n}])"));
    draft.line(format!("s = tensor_memory(f32, [128, {n}])"));
    draft.line(format!("p = tensor_memory({dtype}, [128, {n}])"));
    draft.line(format!("o = tensor_memory(f32, [128, {part}, {parts}])"));
    draft.line("left = pipeline(1, sa)");
    draft.line(format!("right = pipeline({}, sb)", dice.range(1, 2)));
    draft.line(format!("values = pipeline({}, sv)", dice.range(1, 2)));
    draft.line(format!("first = pipeline({}, s)", dice.pick(&[1i64, 1, 2])));
    draft.line(format!("weights = pipeline({}, p)", dice.pick(&[1i64, 1, 2])));
    draft.line("sums = pipeline(1, o)");
    let blocks = format!("ceil_div({columns}, {n})");

    draft.open("warpgroup load(1)");
    draft.line("produce left { copy.async(ga, sa) }");
    draft.open(format!("for i in 0..{blocks}"));
    draft.line("produce right { copy.async(gb[:, i, :], sb) }");
    draft.line("produce values { copy.async(gv[:, :, i], sv) }");
    (0..2).for_each(|_| draft.close());

    let score = "consume right { produce first { fill(s, 0); gemm.async(s, sa, sb) } }";
    let weigh = "consume values { consume weights { produce sums { gemm.async(o, p, sv) } } }";
    draft.open("warpgroup multiply(1)");
    draft.open("consume left");
    draft.line("fill(o, 0)");
    draft.line(score);
    draft.open(format!("for j in 1..{blocks}"));
    draft.line(weigh);
    draft.line(score);
    draft.close();
    draft.line(weigh);
    (0..2).for_each(|_| draft.close());

    draft.open(format!("warpgroup turn({groups})"));
    draft.open(format!("for h in 0..{blocks}"));
    // A thread's sums are what one of `mma` has, and then its part of the left factor is what such a thread multiplies.
    let fragments = bits(dtype) == 16 && dice.once_in(2);
    let layout = match groups {
        _ if !fragments => String::new(),
        1 => format!(", layout = ((4,8,4),(2,2,{},2)):((256,1,32),(128,8,1024,16))", n / 8),
        _ => format!(", layout = ((4,8,4,2),(2,2,{},2)):((256,1,32,{}),(128,8,1024,16))", n / 16, 64 * n),
    };
    draft.line(format!("r = register_tensor(f32, [128, {n}]{layout})"));
    draft.line("consume first { copy(s, r) }");
    // Small numbers, which eight bits have without infinities.
    draft.line("q = min(max(r * 0.125, -2.0), 2.0)");
    if fragments {
        draft.line(format!("turned = register_tensor({dtype}, [128, {n}]{layout})"));
        draft.line(format!("turned = cast(q, {dtype})"));
        draft.line("produce weights { copy(turned, p) }");
    } else {
        draft.line(format!("produce weights {{ copy(cast(q, {dtype}), p) }}"));
    }
    (0..2).for_each(|_| draft.close());

    draft.open("warpgroup scale(1)");
    if by_row {
        draft.line("own = register_tensor(f32, [128, 1])");
        draft.line("copy(gw, own)");
    }
    draft.open(format!("for g in 1..{blocks}"));
    if by_row {
        // Of one warp no row asks.
        draft.line("f = where(own > 0.5 and index(0) / 32 != g, 0.5, 1.0)");
    }
    draft.open("consume sums");
    if by_row {
        draft.open("if any(f < 1.0, 1)");
    }
    draft.open(format!("for x in 0..{parts}"));
    draft.line(format!("t = register_tensor(f32, [128, {part}])"));
    draft.line("copy(o[:, :, x], t)");
    draft.line(if by_row { "copy(t * f, o[:, :, x])" } else { "copy(t * 0.5, o[:, :, x])" });
    (0..3 + usize::from(by_row)).for_each(|_| draft.close());
    draft.open("consume sums");
    draft.open(format!("for y in 0..{parts}"));
    draft.line(format!("u = register_tensor(f32, [128, {part}])"));
    draft.line("copy(o[:, :, y], u)");
    draft.line("copy(u, gc[:, :, y])");
    (0..3).for_each(|_| draft.close());
    Case { text: draft.text("1", 128 * (3 + groups), &[1]), arch: "sm_100a", family: "tensor memory" }
}
