//! The programs' texts.

use tilewright_machine::DType;

use super::{AttentionDecodeConfig, Cascade};
use crate::attention::capped;

/// The score of a key that a query does not attend to, and the first reference maximum: a power of two, below all scores.
pub(super) const MASKED: &str = "-1267650600228229401496703205376.0";

/// Binary logarithm of e.
const LOG2_E: &str = "1.4426950408889634";

/// A tile of a stage: columns of a buffer of the cache, perhaps in parts.
#[derive(Clone, Copy)]
struct CacheTile {
    /// The view is `g` and the tile `x` with this name.
    name: &'static str,
    buffer: &'static str,
    /// The first column, as an offset of the view.
    offset: &'static str,
    /// All columns, and those of a part.
    columns: [&'static str; 2],
    /// The index of all parts.
    parts: &'static str,
}

impl CacheTile {
    /// Extents and steps of a view's modes for the columns, along this mode of the buffer.
    fn modes(self, basis: &str) -> (String, String) {
        let [all, part] = self.columns;
        if part.is_empty() {
            (all.to_string(), basis.to_string())
        } else {
            (format!("{part}, {all} / {part}"), format!("{basis}, {part} * {basis}"))
        }
    }
}

impl AttentionDecodeConfig {
    /// Tensors and sizes that say how long sequences are, as both programs have them.
    fn capacity(&self) -> (&'static str, &'static str) {
        if self.page.is_some() { ("pages = 64, mb = 8", "mb * PAGE") } else { ("sk = 384", "sk") }
    }

    /// The heads of k and v: as a size, or as a constant.
    pub(super) fn kv_heads(&self) -> (&'static str, String) {
        match self.hk {
            None => ("hk = 2, ", String::new()),
            Some(heads) => ("", format!("hk = {heads}, ")),
        }
    }

    /// The offsets of a tile of rows in q and in results.
    pub(super) fn at_rows(&self) -> &'static str {
        if self.varlen {
            "[q0 + token : qe, from : head * G + G"
        } else {
            "[block.z :, token :, from : head * G + G"
        }
    }

    /// The step along a mode of q or of results, of those with a mode of sequences.
    pub(super) fn step(&self, mode: usize) -> String {
        format!("e{}", mode - usize::from(self.varlen))
    }

    /// The steps of a tile's heads and tokens.
    pub(super) fn row_steps(&self) -> String {
        format!("({}, {})", self.step(2), self.step(1))
    }

    /// The query tokens of the block's sequence.
    fn count(&self) -> &'static str {
        if self.varlen { "nq" } else { "sq" }
    }

    /// The size that says how many parts the workspace has.
    pub(super) fn slots(&self) -> &'static str {
        if self.cascade == Cascade::None { "splits" } else { "slots" }
    }

    /// The block's part in the workspace.
    fn slot(&self) -> &'static str {
        if self.cascade == Cascade::Prefix { "slots - splits + block.x" } else { "block.x" }
    }

    /// The modes of sequences and of query tokens, of q and of results.
    pub(super) fn places(&self) -> &'static str {
        if self.varlen { "tq" } else { "b, sq" }
    }

    /// The first statements: the length of the sequence, and the keys of a part.
    pub(super) fn length(&self) -> String {
        let begin = match self.window {
            None => "0".to_string(),
            Some(keys) => format!("max(0, length - {} - {}) / BN * BN", self.count(), keys - 1),
        };
        let step = if self.split { ", step = ceil_div(chunk, BN) * BN" } else { "" };
        format!("    let length = min(max(len[block.z], 0), {}), begin = {begin}{step}\n", self.capacity().1)
    }

    /// Statements of a dependent launch.
    pub(super) fn dependencies(&self, text: &'static str) -> &'static str {
        if self.dependent { text } else { "" }
    }

    /// The first program: attention over the keys of a part, or over all.
    pub(super) fn attention(&self) -> String {
        let AttentionDecodeConfig { d, group, bn, stages, .. } = *self;
        let (dv, heads, tokens, spans) = (self.values(), self.heads(), self.tokens(), self.spans());
        let ((size, _), (hk, constant)) = (self.capacity(), self.kv_heads());
        let (splits, page) = (
            match (self.split, self.cascade) {
                (false, _) => "",
                (true, Cascade::None) => ", splits = 3, chunk = 128",
                (true, _) => ", splits = 3, chunk = 128, slots = 3",
            },
            self.page.map_or(String::new(), |page| format!(", PAGE = {page}")),
        );
        let grid = if self.split { "splits" } else { "1" };
        let queries = if self.varlen { "sq = 3, tq = 5" } else { "sq = 1" };
        let columns = if self.mla {
            "DR = D - DV".to_string()
        } else {
            format!("DC = {}, DVC = {}", self.columns(d), self.columns(dv))
        };
        format!(
            "size b = 2, {hk}{queries}, {size}{splits}\n\
             const {constant}G = {group}, HEADS = {heads}, SPANS = {spans}, TOKENS = {tokens}, BM = HEADS * TOKENS, BN = {bn}, D = {d}, DV = {dv}, {columns}, STAGES = {stages}{page}\n\
             \n\
             kernel attention_decode({parameters})\n\
             grid({grid}, hk * ceil_div(sq, TOKENS) * SPANS, b) threads({threads})\n\
             {{\n\
             {body}\
             }}\n",
            parameters = self.parameters(),
            threads = self.threads(),
            body = if self.mla { self.latent() } else { self.warps() },
        )
    }

    /// The body in which each warp has rows of its own.
    fn warps(&self) -> String {
        let (cache, dtype) = (self.cache(), self.dtype);
        format!(
            "{numbers}\
                 xk = shared_tensor({cache}, [BN, DC, D / DC, STAGES])\n\
                 xv = shared_tensor({cache}, [BN, DVC, DV / DVC, STAGES])\n\
                 gq = global_view(q{rows}, :], ((HEADS, TOKENS), DC, D / DC) : ({steps}, {e}, DC * {e}))\n\
             {views}{queries}\
                 unroll for p in 0..STAGES - 1 {{\n\
                     if p < blocks {{\n\
             {first}\
                     }}\n\
                     commit_group()\n\
                 }}\n\
             {body}\
             {end}",
            numbers = self.numbers(),
            rows = self.at_rows(),
            steps = self.row_steps(),
            e = self.step(3),
            views = self.views(),
            queries = self.queries(dtype),
            first = self.copies("p", ", p"),
            body = self.blocks(),
            end = self.end(),
        )
    }

    /// The block's numbers: its sequence's length, its keys, its first head and token.
    pub(super) fn numbers(&self) -> String {
        let wait = self.dependencies("    wait_dependencies()\n    launch_dependents()\n");
        let queries = if self.varlen {
            "    let q0 = min(max(cu_q[block.z], 0), tq), qe = min(max(cu_q[block.z + 1], 0), tq), nq = qe - q0\n"
        } else {
            ""
        };
        format!(
            "{wait}{queries}{}\
                 let tiles = ceil_div(sq, TOKENS) * SPANS, head = block.y / tiles, from = head * G + block.y % SPANS * HEADS, \
             token = block.y % tiles / SPANS * TOKENS, place = length - {} + token\n\
             {}",
            self.length(),
            self.count(),
            self.part()
        )
    }

    fn parameters(&self) -> String {
        let (dtype, cache) = (self.dtype, self.cache());
        let of = |name: &str, elements: &str| match self.page {
            None => format!("{name}: {cache}[b, sk, hk, {elements}], "),
            // Small pages are gathered by rows: two modes that lie as one.
            Some(_) if self.gathers() => format!("{name}c: {cache}[pages * PAGE, hk, {elements}], "),
            Some(_) => format!("{name}c: {cache}[pages, PAGE, hk, {elements}], "),
        };
        let values = if self.mla { String::new() } else { of("v", "DV") };
        let table = if self.page.is_some() { "table: i32[b, mb], " } else { "" };
        let scales = if self.kv.is_some() { ", ks: f32[hk], vs: f32[hk]" } else { "" };
        let (places, slots) = (self.places(), self.slots());
        let results = match (self.split, self.lse) {
            (true, _) => {
                format!("po: f32[{places}, hk * G, {slots}, DV], pl: f32[{places}, hk * G, {slots}]")
            }
            (false, false) => format!("o: {dtype}[{places}, hk * G, DV]"),
            (false, true) => format!("o: {dtype}[{places}, hk * G, DV], lse: f32[{places}, hk * G]"),
        };
        let counts = if self.varlen { ", cu_q: i32[b + 1]" } else { "" };
        let cap = if self.softcap { ", cap: f32 = 50.0" } else { "" };
        format!(
            "q: {dtype}[{places}, hk * G, D], {}{values}{table}len: i32[b]{counts}{scales}, {results}, scale: f32 = {:.9}{cap}",
            of("k", "D"),
            (self.d as f64).sqrt().recip()
        )
    }

    /// The keys of the block's part, from `first` up to `last`.
    fn part(&self) -> String {
        // The last part has all that is left.
        let keys = match (self.split, self.varlen) {
            (true, false) => {
                "first = begin + block.x * step, last = min(length, first + step + (block.x == splits - 1) * length)"
            }
            (false, false) => "first = begin, last = length",
            // A tile behind the sequence's queries has no keys.
            (true, true) => {
                "first = begin + block.x * step, last = min((token < nq) * length, first + step + (block.x == splits - 1) * length)"
            }
            (false, true) => "first = begin, last = (token < nq) * length",
        };
        format!("    let {keys}, blocks = ceil_div(max(last - first, 0), BN)\n")
    }

    /// The tiles of a stage.
    fn tiles(&self) -> [CacheTile; 2] {
        let of = |name, buffer, offset, [elements, columns, parts]: [&'static str; 3]| CacheTile {
            name,
            buffer,
            offset,
            columns: [elements, columns],
            parts,
        };
        if self.mla {
            [of("k", "k", ":", ["DV", "", ""]), of("r", "k", "DV :", ["DR", "", ""])]
        } else {
            [of("k", "k", ":", ["D", "DC", ", :"]), of("v", "v", ":", ["DV", "DVC", ", :"])]
        }
    }

    /// Views of the cache that serve all blocks.
    pub(super) fn views(&self) -> String {
        let view = |tile: CacheTile| {
            let CacheTile { name, buffer, offset, .. } = tile;
            if self.page.is_none() {
                let (extents, steps) = tile.modes("e3");
                format!(
                    "    g{name} = global_view({buffer}[block.z :, first : last, head :, {offset}], (BN, ceil_div(sk, BN), {extents}) : (e1, BN * e1, {steps}))\n"
                )
            } else if self.gathers() {
                let (extents, steps) = tile.modes("e2");
                format!(
                    "    g{name} = global_view({buffer}c[:, head :, {offset}], (pages * PAGE, {extents}) : (e0, {steps}))\n"
                )
            } else {
                String::new()
            }
        };
        self.tiles().map(view).concat()
    }

    /// Copies block `j` of the part to a stage, which `stage` makes the last index of each tile.
    pub(super) fn copies(&self, j: &str, stage: &str) -> String {
        let tiles = self.tiles();
        let target = |tile: CacheTile| {
            let CacheTile { name, parts, .. } = tile;
            if stage.is_empty() { format!("x{name}") } else { format!("x{name}[:, :{parts}{stage}]") }
        };
        if self.page.is_none() {
            let copy = |tile: CacheTile| {
                format!("copy.async(g{}[:, {j}, :{}], {})\n", tile.name, tile.parts, target(tile))
            };
            return tiles.map(copy).concat();
        }
        let copies = if self.gathers() {
            let copy = |tile: CacheTile| {
                format!("copy.async(g{}[rows, :{}], {})\n", tile.name, tile.parts, target(tile))
            };
            format!(
                "gt = global_view(table[block.z :, at / PAGE :], ((PAGE, BN / PAGE)) : ((0, e1)))\n\
                 rows = register_tensor(i32, [BN])\n\
                 copy(gt, rows)\n\
                 rows = where(at + index(0) < last, rows * PAGE + index(0) % PAGE, -1)\n\
                 {}",
                tiles.map(copy).concat()
            )
        } else {
            // The page ends where the part does.
            let copy = |tile: CacheTile| {
                let CacheTile { name, buffer, offset, parts, .. } = tile;
                let (extents, steps) = tile.modes("e3");
                format!(
                    "g{name} = global_view({buffer}c[:, : last - at / PAGE * PAGE, head :, {offset}], (pages, BN, PAGE / BN, {extents}) : (e0, e1, BN * e1, {steps}))\n\
                     copy.async(g{name}[table[block.z, at / PAGE], :, at % PAGE / BN, :{parts}], {})\n",
                    target(tile)
                )
            };
            tiles.map(copy).concat()
        };
        format!("let at = first + ({j}) * BN\n{copies}")
    }

    /// The queries on their way to registers, or to shared memory.
    fn queries(&self, dtype: DType) -> String {
        if self.shared_queries() {
            format!("    xq = shared_tensor({dtype}, [BM, DC, D / DC])\n    copy.async(gq, xq)\n")
        } else {
            format!(
                "    rq = register_tensor({dtype}, [BM, DC, D / DC])\n\
                     unroll for c in 0..D / DC {{ copy(gq[:, :, c], rq[:, :, c]) }}\n"
            )
        }
    }

    /// The statements that make scores binary logarithms of weights, and mask what is not attended to.
    pub(super) fn scores(&self) -> String {
        let scale = if self.kv.is_some() { "scale * rks" } else { "scale" };
        let mut text = if self.softcap {
            format!("s = {}\n", capped("s", &format!("{scale} / cap"), &format!("(cap * {LOG2_E})")))
        } else {
            format!("s = s * ({scale} * {LOG2_E})\n")
        };
        if self.cascade == Cascade::Prefix {
            return format!("{text}if key + BN > last {{ s = where(key + index(1) < last, s, {MASKED}) }}\n");
        }
        // The place of a row's query.
        let place = if self.tokens() == 1 { "place" } else { "(place + index(0) / HEADS)" };
        text += &format!(
            "if key + BN > min(place + 1, last) {{ s = where(key + index(1) <= min({place}, last - 1), s, {MASKED}) }}\n"
        );
        if let Some(keys) = self.window {
            text += &format!(
                "if key < place + TOKENS - {keys} {{ s = where(key + index(1) > {place} - {keys}, s, {MASKED}) }}\n"
            );
        }
        text
    }

    /// The loop over blocks of keys.
    fn blocks(&self) -> String {
        let (dtype, cache) = (self.dtype, self.cache());
        let scales = if self.kv.is_some() {
            "    gks = global_view(ks[head :], (1, 1) : (e0, e0))\n\
                 rks = register_tensor(f32, [1, 1])\n\
                 copy(gks, rks)\n"
        } else {
            ""
        };
        let query = if self.shared_queries() {
            format!("rq = register_tensor({dtype}, [BM, DC])\ncopy(xq[:, :, c], rq)\n")
        } else {
            String::new()
        };
        let (part, keys) = (
            if self.shared_queries() { "rq" } else { "rq[:, :, c]" },
            if self.kv.is_some() { format!("cast(rk, {dtype})") } else { "rk".to_string() },
        );
        let (pinned, values) = self.value_registers();
        format!(
            "{scales}\
             acc = register_tensor(f32, [BM, DVC, DV / DVC])\n\
             most = register_tensor(f32, [BM, 1])\n\
             sums = register_tensor(f32, [BM, 8])\n\
             fill(acc, 0.0)\n\
             fill(most, {MASKED})\n\
             fill(sums, 0.0)\n\
             for j in 0..blocks {{\n\
                 wait_group(STAGES - 2)\n\
                 syncthreads()\n\
                 if j + STAGES - 1 < blocks {{\n\
             {next}\
                 }}\n\
                 commit_group()\n\
                 s = register_tensor(f32, [BM, BN])\n\
                 fill(s, 0.0)\n\
                 unroll for c in 0..D / DC {{\n\
                     {query}\
                     rk = register_tensor({cache}, [BN, DC])\n\
                     copy(xk[:, :, c, j % STAGES], rk)\n\
                     gemm(s, {part}, {keys})\n\
                 }}\n\
                 let key = first + j * BN\n\
             {scores}\
                 // The reference moves where a score outgrows it by 2⁸.\n\
                 if any(s > most + 8.0, 1) {{\n\
                     grown = max(most, reduce(s, max, 1, keep))\n\
                     factor = exp2(most - grown)\n\
                     most = grown\n\
                     sums = sums * factor\n\
                     unroll for c in 0..DV / DVC {{ acc[:, :, c] = acc[:, :, c] * factor }}\n\
                 }}\n\
                 e = exp2(s - most)\n\
                 sums = sums + reduce(reshape(e, [BM, 8, BN / 8]), sum, 2)\n\
                 w = cast(e, {weights})\n\
                 unroll for c in 0..DV / DVC {{\n\
                     rv = register_tensor({cache}, [DVC, BN]{pinned})\n\
                     copy(transpose(xv[:, :, c, j % STAGES]), rv)\n\
                     gemm(acc[:, :, c], w, {values})\n\
                 }}\n\
             }}\n",
            next = self.copies("j + STAGES - 1", ", (j + STAGES - 1) % STAGES"),
            scores = self.scores(),
            weights = self.weights(),
        )
    }

    /// The type of weights: that of values, or f16, in which 8-bit floats are exact.
    fn weights(&self) -> DType {
        if self.kv.is_some() { DType::F16 } else { self.dtype }
    }

    /// True if the columns of values are multiplied in the order in which lanes read four 8-bit floats at a time.
    fn by_fours(&self) -> bool {
        self.kv.is_some() && self.values() % 32 == 0
    }

    /// The layout of values in registers, and what is multiplied. 8-bit floats are read four neighbours of a row at a time, so that a lane
    /// has columns 4 g to 4 g + 3: they are multiplied in another order, in which its columns are those of four products.
    fn value_registers(&self) -> (String, String) {
        let dtype = self.weights();
        if self.kv.is_none() {
            return (String::new(), "rv".to_string());
        }
        if !self.by_fours() {
            return (String::new(), format!("cast(rv, {dtype})"));
        }
        let (columns, keys) = (self.columns(self.values()), self.bn);
        let layout = self.pinned(
            [2 * columns, 4, 0],
            &[(4, 1), (2, columns), (2, 8 * columns), (columns / 32, 32), (keys / 16, 16 * columns)],
        );
        let by_fours = format!(
            "rearrange(reshape(transpose(reshape(cast(rv, {dtype}), [4, DVC / 4, BN]), 1, 0, 2), [DVC, BN]))"
        );
        (layout, by_fours)
    }

    /// The layout of results: that of the sums' instruction. Else what the copy at the end would like decides how values are read in the loop.
    fn sum_registers(&self) -> String {
        let rows = self.rows;
        self.pinned([2 * rows, 1, 16], &[(2, rows), (2, 8), (self.columns(self.values()) / 8, 8 * rows)])
    }

    /// A layout in which 4 × 8 lanes and the warps step so, with these values of a thread.
    fn pinned(&self, [across, down, warps]: [i64; 3], values: &[(i64, i64)]) -> String {
        let text = |modes: &[(i64, i64)]| {
            let modes: Vec<_> = modes.iter().filter(|(extent, _)| *extent > 1).collect();
            let list = |of: &dyn Fn(&(i64, i64)) -> i64| {
                modes.iter().map(|mode| of(mode).to_string()).collect::<Vec<_>>().join(", ")
            };
            (list(&|mode| mode.0), list(&|mode| mode.1))
        };
        let (threads, steps) = text(&[(4, across), (8, down), (self.rows / 16, warps)]);
        let (extents, strides) = text(values);
        format!(", layout = (({threads}), ({extents})) : (({steps}), ({strides}))")
    }

    /// The end of a part: its sums, scaled, and the logarithm of its sum of weights.
    pub(super) fn end(&self) -> String {
        let dtype = self.dtype;
        let place = if self.tokens() == 1 { "place" } else { "place + index(0) / HEADS" };
        let attends = match self.window {
            None if self.cascade == Cascade::Prefix => "first < last".to_string(),
            None => format!("{place} >= first"),
            Some(keys) => format!("{place} >= first and {place} - {keys} < last - 1"),
        };
        let scale = if self.kv.is_some() {
            "gvs = global_view(vs[head :], (1, 1) : (e0, e0))\n\
             rvs = register_tensor(f32, [1, 1])\n\
             copy(gvs, rvs)\n"
        } else {
            ""
        };
        let one = if self.kv.is_some() { "rvs" } else { "1.0" };
        let slot = self.slot();
        let (of, block, mode) =
            if self.split { ("po", format!(", {slot} :"), 4) } else { ("o", String::new(), 3) };
        let (rows, of_rows, e) = (self.at_rows(), self.row_steps(), self.step(mode));
        let columns = if self.mla { "DV" } else { "DVC, DV / DVC" };
        let steps = if self.mla { e } else { format!("{e}, DVC * {e}") };
        let mut text = format!(
            "{scale}\
             total = reduce(sums, sum, 1, keep)\n\
             // A query without a key has zeros.\n\
             share = where({attends}, {one} / total, 0.0)\n\
             go = global_view({of}{rows}{block}, :], ((HEADS, TOKENS), {columns}) : ({of_rows}, {steps}))\n"
        );
        let sums = if self.mla { "acc * share" } else { "acc[:, :, c] * share" };
        let sums = if self.split { sums.to_string() } else { format!("cast({sums}, {dtype})") };
        if self.mla {
            text += &format!("copy({sums}, go)\n");
        } else {
            let natural = format!("rearrange({sums}{})", self.sum_registers());
            let result = if self.by_fours() {
                format!("reshape(transpose(reshape({natural}, [BM, DVC / 4, 4]), 0, 2, 1), [BM, DVC])")
            } else {
                natural
            };
            text += &format!("unroll for c in 0..DV / DVC {{ copy({result}, go[:, :, c]) }}\n");
        }
        let logarithm = |unit: &str| format!("where({attends}, (most + log2(total)){unit}, -inf)");
        let part = format!(
            "gl = global_view(pl{rows}, {slot} :], ((HEADS, TOKENS), 1) : ({of_rows}, {}))\n",
            self.step(3)
        );
        if self.split {
            text += &format!("{part}copy({}, gl)\n", logarithm(""));
        } else if self.lse {
            text += &format!(
                "gl = global_view(lse{rows}], ((HEADS, TOKENS)) : ({of_rows}))\n\
                 copy(reshape({}, [BM]), gl)\n",
                logarithm(" * 0.6931471805599453")
            );
        }
        match (self.split, self.varlen) {
            (false, _) => text,
            (true, false) => format!("if first < last {{\n{text}}}\n"),
            // The second program, which has a block for each token, asks for no lengths.
            (true, true) => format!(
                "if first < last {{\n{text}}} else {{\n\
                 {part}\
                 none = register_tensor(f32, [BM, 1])\n\
                 fill(none, -inf)\n\
                 copy(none, gl)\n\
                 }}\n"
            ),
        }
    }
}
