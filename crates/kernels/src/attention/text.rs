//! The program's text.

use super::{AttentionConfig, Mask, Modes};

/// The score of a key that a query does not attend to: a power of two, so that its product with any scale is exact and differences are 0.
const MASKED: &str = "-1267650600228229401496703205376.0";

/// Elements of the keys and values of the heads that are worked on at a time: what stays in the L2 cache.
const RESIDENT: i64 = 1 << 23;

impl AttentionConfig {
    /// The text of the program.
    pub(super) fn text(&self) -> String {
        let AttentionConfig { dtype, d, warpgroups, bn, stages, sm_count, .. } = *self;
        let dv = self.values();
        let of = |places: &str, heads: &str, elements: &str| match self.modes {
            Modes::Bshd => format!("[b, {places}, {heads}, {elements}]"),
            Modes::Bhsd => format!("[b, {heads}, {places}, {elements}]"),
        };
        let (lse, cap) = (
            if self.lse { ", lse: f32[b, hq, sq]" } else { "" },
            if self.softcap { ", cap: f32 = 50.0" } else { "" },
        );
        let (queries, keys) = (of("sq", "hq", "D"), of("sk", "hk", "D"));
        let (values, results) = (of("sk", "hk", "DV"), of("sq", "hq", "DV"));
        let tiles = "b * hq * ceil_div(sq, BM)";
        let grid = if self.persistent { format!("min(SMS, {tiles})") } else { tiles.to_string() };
        let constants = if self.persistent { format!(", SMS = {sm_count}") } else { String::new() };
        let scale = (d as f64).sqrt().recip();
        let shared = if self.through_queries() {
            String::new()
        } else {
            format!("    xo = shared_tensor({dtype}, [BM, DV])\n")
        };
        let logarithms = if self.lse {
            "    gl = global_view(lse, (b, hq, BM, ceil_div(sq, BM)) : (e0, e1, e2, BM * e2))\n"
        } else {
            ""
        };
        let load_registers = if warpgroups > 2 { 32 } else { 24 };
        format!(
            "size b = 1, hq = 4, hk = 2, sq = 384, sk = 384\n\
             const W = {warpgroups}, BM = W * 64, BN = {bn}, D = {d}, DV = {dv}, STAGES = {stages}{constants}\n\
             \n\
             kernel attention(q: {dtype}{queries}, k: {dtype}{keys}, v: {dtype}{values}, o: {dtype}{results}{lse}, scale: f32 = {scale:.9}{cap})\n\
             grid({grid}) threads(W * 128 + 128)\n\
             {{\n\
             {views}{logarithms}\
                 xq = shared_tensor({dtype}, [BM, D])\n\
                 xk = shared_tensor({dtype}, [BN, D])\n\
                 xv = shared_tensor({dtype}, [BN, DV])\n\
             {shared}\
                 qp = pipeline(1, xq)\n\
                 kp = pipeline(STAGES, xk)\n\
                 vp = pipeline(STAGES, xv)\n\
                 warpgroup load(1) registers({load_registers}) {{\n\
             {load}\
                 }}\n\
                 warpgroup math(W) registers({math_registers}) {{\n\
             {math}\
                 }}\n\
             }}\n",
            views = self.views(),
            load = self.of_tile(
                "produce qp { copy.async(gq[batch, :, t, head, :], xq) }\n\
                 for i in begin..blocks {\n\
                     produce kp { copy.async(gk[batch, :, blocks - 1 + begin - i, of_key, :], xk) }\n\
                     produce vp { copy.async(gv[batch, :, blocks - 1 + begin - i, of_key, :], xv) }\n\
                 }\n"
            ),
            math_registers = self.math_registers(),
            math = self.of_tile(&self.math()),
        )
    }

    fn views(&self) -> String {
        let (places, heads) = match self.modes {
            Modes::Bshd => ("e1", "e2"),
            Modes::Bhsd => ("e2", "e1"),
        };
        let view = |name: &str, [rows, size, of, elements]: [&str; 4]| {
            format!(
                "    g{name} = global_view({name}, (b, {rows}, ceil_div({size}, {rows}), {of}, {elements}) : (e0, {places}, {rows} * {places}, {heads}, e3))\n"
            )
        };
        [
            view("q", ["BM", "sq", "hq", "D"]),
            view("k", ["BN", "sk", "hk", "D"]),
            view("v", ["BN", "sk", "hk", "DV"]),
            view("o", ["BM", "sq", "hq", "DV"]),
        ]
        .concat()
    }

    /// A role's statements for a tile, where the tile's numbers are known: its head, its first query, and its blocks of keys.
    fn of_tile(&self, body: &str) -> String {
        let masked = self.mask != Mask::None;
        let mut numbers = vec!["row = t * BM".to_string()];
        if masked {
            // `place` is the place of the tile's first query among the keys.
            numbers.push("place = row + sk - sq".to_string());
            numbers.push("blocks = ceil_div(max(1, min(place + BM, sk)), BN)".to_string());
        } else {
            numbers.push("blocks = ceil_div(sk, BN)".to_string());
        }
        numbers.push(match self.mask {
            Mask::Window(keys) => format!("begin = max(0, place - {}) / BN", keys - 1),
            _ => "begin = 0".to_string(),
        });
        numbers.push("batch = at / hq, head = at % hq, of_key = head / (hq / hk)".to_string());
        let numbers = format!("let {}\n", numbers.join(", "));
        if self.persistent {
            let (counter, t) =
                if masked { ("late", "let t = ceil_div(sq, BM) - 1 - late\n") } else { ("t", "") };
            return format!(
                "for (at, {counter}) in tiles(b * hq, ceil_div(sq, BM)) {{\n{t}{numbers}{body}}}\n"
            );
        }
        // Heads in sections whose keys and values stay in the L2 cache; of a section the tiles with the most keys first.
        let resident = RESIDENT / self.d;
        let late = "w / heads";
        let t = if masked { format!("tiles - 1 - {late}") } else { late.to_string() };
        format!(
            "let tiles = ceil_div(sq, BM), section = max(1, {resident} / sk), first = block.x / (section * tiles) * section, \
             heads = min(section, b * hq - first), w = block.x - first * tiles, at = first + w % heads, t = {t}\n{numbers}{body}"
        )
    }

    /// Statements that give scores their last form: the cap, and the keys that are not attended to.
    fn masked(&self, scores: &str, key: &str, first: bool) -> String {
        let mut text = String::new();
        if self.softcap {
            text += &format!("{scores} = tanh({scores} * (scale / cap)) * cap\n");
        }
        let mut place = |condition: &str, holds: &str| {
            text += &format!("if {condition} {{ {scores} = where({holds}, {scores}, {MASKED}) }}\n");
        };
        match self.mask {
            // The first block has the last keys.
            Mask::None if first => place(&format!("{key} + BN > sk"), &format!("{key} + index(1) < sk")),
            Mask::None => {}
            Mask::Causal | Mask::Window(_) => {
                place(&format!("{key} + BN > place + 1"), &format!("{key} + index(1) <= place + index(0)"));
            }
        }
        if let Mask::Window(keys) = self.mask {
            let holds = format!("{key} + index(1) > place + index(0) - {keys}");
            place(&format!("{key} < place + BM - {keys}"), &holds);
        }
        text
    }

    fn math(&self) -> String {
        let dtype = self.dtype;
        // Scores are multiples of this, in powers of two.
        let unit = if self.softcap { "1.4426950408889634" } else { "(scale * 1.4426950408889634)" };
        let (first, others) = (self.masked("s", "last", true), self.masked("next", "key", false));
        let end = self.end();
        let (inside, behind) = if self.through_queries() { (end.as_str(), "") } else { ("", end.as_str()) };
        format!(
            "acc = register_tensor(f32, [BM, DV])\n\
             most = register_tensor(f32, [BM, 1])\n\
             sums = register_tensor(f32, [BM, 8])\n\
             p = register_tensor({dtype}, [BM, BN])\n\
             fill(acc, 0.0)\n\
             consume qp {{\n\
                 s = register_tensor(f32, [BM, BN])\n\
                 fill(s, 0.0)\n\
                 consume kp {{\n\
                     gemm.async(s, xq, xk)\n\
                     commit_gemm()\n\
                 }}\n\
                 wait_gemm(0)\n\
                 let last = (blocks - 1) * BN\n\
                 {first}\
                 most = reduce(s, max, 1, keep) * {unit}\n\
                 e = exp2(s * {unit} - most)\n\
                 sums = reduce(reshape(e, [BM, 8, BN / 8]), sum, 2)\n\
                 p = cast(e, {dtype})\n\
                 limit = (most + 8.0) / {unit}\n\
                 for j in begin + 1..blocks {{\n\
                     next = register_tensor(f32, [BM, BN])\n\
                     fill(next, 0.0)\n\
                     consume kp {{\n\
                         gemm.async(next, xq, xk)\n\
                         commit_gemm()\n\
                     }}\n\
                     consume vp {{\n\
                         gemm.async(acc, p, transpose(xv))\n\
                         commit_gemm()\n\
                     }}\n\
                     wait_gemm(1)\n\
                     let key = (blocks - 1 + begin - j) * BN\n\
                     {others}\
                     factor = register_tensor(f32, [BM, 1])\n\
                     fill(factor, 1.0)\n\
                     if any(next > limit, 1) {{\n\
                         grown = max(most, reduce(next, max, 1, keep) * {unit})\n\
                         factor = exp2(most - grown)\n\
                         most = grown\n\
                         limit = (grown + 8.0) / {unit}\n\
                         sums = sums * factor\n\
                     }}\n\
                     f = exp2(next * {unit} - most)\n\
                     sums = sums + reduce(reshape(f, [BM, 8, BN / 8]), sum, 2)\n\
                     wait_gemm(0)\n\
                     if any(factor < 1.0, 1) {{ acc = acc * factor }}\n\
                     p = cast(f, {dtype})\n\
                 }}\n\
             {inside}\
             }}\n\
             {behind}"
        )
    }

    /// The end of a tile: the last values, the sums of all threads, and the way of the results to memory.
    fn end(&self) -> String {
        let dtype = self.dtype;
        // A query without a key has zeros.
        let some = |value: &str, none: &str| match self.mask {
            Mask::None => value.to_string(),
            _ => format!("where(place + index(0) >= 0, {value}, {none})"),
        };
        let logarithm = "(reshape(most, [BM]) + log2(reshape(total, [BM]))) * 0.6931471805599453";
        let lse = if self.lse {
            format!("copy({}, gl[batch, head, :, t])\n", some(logarithm, "-inf"))
        } else {
            String::new()
        };
        let staged = if self.through_queries() { "xq" } else { "xo" };
        format!(
            "consume vp {{\n\
                 gemm.async(acc, p, transpose(xv))\n\
                 commit_gemm()\n\
             }}\n\
             total = reduce(sums, sum, 1, keep)\n\
             wait_gemm(0)\n\
             {lse}\
             // Each warp its own rows, through shared memory, to be written in long pieces.\n\
             syncthreads(warpgroup)\n\
             share = {share}\n\
             acc = acc * share\n\
             copy(cast(acc, {dtype}), {staged})\n\
             syncthreads(warpgroup)\n\
             result = register_tensor({dtype}, [BM, DV], layout = {layout})\n\
             copy({staged}, result)\n\
             copy(result, go[batch, :, t, head, :])\n",
            share = some("1.0 / total", "0.0"),
            layout = self.rows_by_warp(),
        )
    }

    /// The layout of a tile of o in which lanes have eight neighbours of a row each, and warps the rows that they multiplied.
    fn rows_by_warp(&self) -> String {
        let (rows, vectors) = (self.rows(), self.values() / 8);
        // Lanes along a row: a power of two.
        let lanes = 1 << vectors.trailing_zeros().min(5);
        let text = |modes: &[(i64, i64)]| {
            let modes: Vec<_> = modes.iter().filter(|(extent, _)| *extent > 1).collect();
            let list = |of: &dyn Fn(&(i64, i64)) -> i64| {
                modes.iter().map(|mode| of(mode).to_string()).collect::<Vec<_>>().join(", ")
            };
            (list(&|mode| mode.0), list(&|mode| mode.1))
        };
        let apart = 32 / lanes;
        let (threads, steps) = text(&[(lanes, 8 * rows), (apart, 1), (4, 16), (self.warpgroups, 64)]);
        let (extents, strides) = text(&[(8, rows), (16 / apart, apart), (vectors / lanes, 8 * lanes * rows)]);
        format!("(({threads}), ({extents})) : (({steps}), ({strides}))")
    }
}
