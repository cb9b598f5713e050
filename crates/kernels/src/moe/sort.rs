//! The order of tokens by expert: a table of the rows of each expert, one behind the other, and of the tiles that a product by groups has. Blocks
//! sort the places of a part of the tokens each, by expert and then by place, so that the order does not depend on the launch.

use tilewright_machine::{Arch, Features};
use tilewright_tile::{Program, parse};

use super::limits::{MOST_EXPERTS, MOST_TAKEN, check_threads, dependencies, launch_needs};
use crate::config::{ConfigError, parameters, refusal};
use crate::warp_specialized::within;

parameters! {
    /// The order of tokens by expert. The default sorts up to 256 experts of tokens in one block.
    #[derive(Copy)]
    pub struct MoeSortConfig, "moe_sort", programs {
        /// Experts whose weights are here, 1 to 256.
        experts: i64 as INT = 8,
        /// Experts of a token, 1 to 8.
        k: i64 as INT = 2,
        /// Experts that lie elsewhere: `map[e]`, of i32, has for each of all e experts its number here, or a negative one.
        map: bool as FLAG = false,
        /// Writes `factor[m]`, of f32, the weight of each row, of `weights[tokens, k]`.
        weighted: bool as FLAG = false,
        /// Rows of a tile of the product by groups: those of a in a tile.
        tile: i64 as INT = 64,
        /// The rows of each expert begin at a multiple of tile, behind rows of padding (batch=grouped); else they follow each other (batch=ragged).
        padded: bool as FLAG = false,
        /// Experts of tokens that a block sorts, a power of two from 128 to 8192.
        chunk: i64 as INT = 256,
        /// Several blocks sort a chunk each, behind a program that counts; else one block sorts all, which must be at most chunk.
        split: bool as FLAG = false,
        /// Threads of a block.
        threads: i64 as INT = 256,
        /// Programmatic dependent launch: each program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

/// Tiles of the product whose experts a block finds at a time.
const TILES: i64 = 256;

/// Chunks whose counts a block adds at a time.
const COUNTED: i64 = 16;

impl MoeSortConfig {
    /// Experts for which blocks have counters: a power of two.
    pub(super) fn counters(&self) -> i64 {
        [32, 64, 128].into_iter().find(|counters| *counters >= self.experts).unwrap_or(MOST_EXPERTS)
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("experts", self.experts, [1, MOST_EXPERTS], 1)?;
        within("k", self.k, [1, MOST_TAKEN], 1)?;
        within("tile", self.tile, [8, 512], 8)?;
        check_threads(self.threads)?;
        if !(128..=8192).contains(&self.chunk) || self.chunk.count_ones() != 1 {
            return Err(ConfigError::value("chunk", self.chunk, "must be a power of two from 128 to 8192"));
        }
        if self.chunk / self.threads > 16 {
            let wanted = format!("must be at least {}: a thread sorts at most 16 of chunk", self.chunk / 16);
            return Err(ConfigError::value("threads", self.threads, wanted));
        }
        Ok(())
    }

    /// The programs, to be launched in this order; tensors of the same name are the same. They have the sizes `tokens`, `t`, an upper bound of
    /// the tiles, and `m`, one of the rows, and the tensors `ids[tokens · k]`, `rows[m]`, `places[tokens · k]`, `groups[t]`, `ends[experts]` and, unless
    /// padded, `first[t]`, all i32; if weighted `weights[tokens · k]` and `factor[m]`, both f32.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        self.validate()?;
        let count = self.split.then(|| parse(&self.count())).transpose()?;
        Ok(count.into_iter().chain([parse(&self.order())?]).collect())
    }

    /// The features that the programs need.
    pub fn needs(&self) -> Features {
        launch_needs(self.dependent)
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        refusal(arch, self.needs(), self.validate())
    }

    /// The parameter of the experts that lie elsewhere, and its size.
    fn map_parameter(&self) -> (&'static str, &'static str) {
        if self.map { (", e = 8", "map: i32[e], ") } else { ("", "") }
    }

    /// The statements that count how often a block's chunk names each expert: `key`, the experts, and P where one lies elsewhere, and `bins`, the counts.
    fn counted(&self) -> String {
        let (local, map) = match self.map {
            true => (
                "local",
                "    gm = global_view(map, (e) : (e0))\n    local = register_tensor(i32, [CHUNK])\n    copy(gm[id], local, outside = -1)\n",
            ),
            false => ("id", ""),
        };
        format!(
            "    gi = global_view(ids[block.x * CHUNK :], (CHUNK) : (e0))\n    \
                 bins = shared_tensor(i32, [P])\n    \
                 none = register_tensor(i32, [P])\n    \
                 one = register_tensor(i32, [CHUNK])\n    \
                 id = register_tensor(i32, [CHUNK])\n    \
                 fill(none, 0)\n    \
                 fill(one, 1)\n    \
                 copy(none, bins)\n    \
                 copy(gi, id, outside = -1)\n\
             {map}    \
                 key = where({local} >= 0 and {local} < G, {local}, P)\n    \
                 syncthreads()\n    \
                 copy(one, bins[key], add)\n    \
                 syncthreads()\n    \
                 counts = register_tensor(i32, [P])\n    \
                 copy(bins, counts)\n"
        )
    }

    /// The first program of several blocks: the counts of each chunk.
    fn count(&self) -> String {
        let MoeSortConfig { experts, k, chunk, threads, .. } = *self;
        let (size, map) = self.map_parameter();
        let (wait, counted, counters) = (dependencies(self.dependent), self.counted(), self.counters());
        format!(
            "// counted[b, x]: how often the chunk b of ids names expert x.\n\
             size tokens = 64{size}\n\
             const G = {experts}, K = {k}, P = {counters}, CHUNK = {chunk}, THREADS = {threads}\n\
             \n\
             kernel moe_count(ids: i32[tokens * K], {map}counted: i32[ceil_div(tokens * K, CHUNK), P])\n    \
                 grid(ceil_div(tokens * K, CHUNK)) threads(THREADS)\n\
             {{\n\
             {wait}{counted}    \
                 gk = global_view(counted[block.x :, :], (P) : (e1))\n    \
                 copy(counts, gk)\n\
             }}\n"
        )
    }

    /// The program that sorts.
    fn order(&self) -> String {
        let MoeSortConfig { experts, k, chunk, threads, tile, .. } = *self;
        let (size, map) = self.map_parameter();
        let (wait, counted, counters) = (dependencies(self.dependent), self.counted(), self.counters());
        let (parameter, total, before, grid) = if self.split {
            let total = format!(
                "    gk = global_view(counted, ({COUNTED}, P, ceil_div(chunks, {COUNTED})) : (e0, e1, {COUNTED} * e0))\n    \
                     total = register_tensor(i32, [P])\n    \
                     before = register_tensor(i32, [P])\n    \
                     fill(total, 0)\n    \
                     fill(before, 0)\n    \
                     for i in 0..ceil_div(chunks, {COUNTED}) {{\n        \
                         some = register_tensor(i32, [{COUNTED}, P])\n        \
                         copy(gk[:, :, i], some)\n        \
                         total = total + reduce(some, sum, 0)\n        \
                         before = before + reduce(where(i * {COUNTED} + index(0) < block.x, some, 0), sum, 0)\n    \
                     }}\n"
            );
            (
                "counted: i32[ceil_div(tokens * K, CHUNK), P], ",
                total,
                " + before",
                "ceil_div(tokens * K, CHUNK)",
            )
        } else {
            let total = "    assert(tokens * K <= CHUNK, \"one block sorts at most chunk experts of tokens: split=true\")\n    total = counts\n";
            ("", total.to_string(), "", "1")
        };
        let (weights, factor, weigh) = match self.weighted {
            true => (
                "weights: f32[tokens * K], ",
                "factor: f32[m], ",
                "    gw = global_view(weights, (tokens * K) : (e0))\n    \
                     gx = global_view(factor, (m) : (e0))\n    \
                     weight = register_tensor(f32, [CHUNK])\n    \
                     copy(gw[place], weight)\n    \
                     copy(weight, gx[row_of])\n",
            ),
            false => ("", "", ""),
        };
        let (first, begin, sized, pads) = if self.padded {
            let pads = "        // Rows of padding have no token.\n        \
                        for j in 0..TILE - 1 {\n            \
                            pad = base + total + j\n            \
                            copy(none - 1, gr[where(pad < base + sized, pad, -1)])\n        \
                        }\n";
            ("", "", "(total + (TILE - 1)) / TILE * TILE", pads)
        } else {
            (
                "first: i32[t], ",
                "        gf = global_view(first[from :], (TILES) : (e0))\n        \
                 row = register_tensor(i32, [TILES])\n        \
                 copy(begin[group], row)\n        \
                 copy(where(group < G, row + (from + index(0)) * TILE, 0), gf)\n",
                "total",
                "",
            )
        };
        let (begins, begin_of) = if self.padded {
            ("", "")
        } else {
            ("    begin = shared_tensor(i32, [P])\n", "    copy(base - (last - tiles) * TILE, begin)\n")
        };
        format!(
            "// The places of tokens' experts in the order of the experts G, of each in the order of the tokens: rows has the token of each row, places the row of each\n\
             // expert of a token, groups the expert of each tile of rows, ends the row behind each expert's last.\n\
             size tokens = 64, t = 16, m = 512{size}\n\
             const G = {experts}, K = {k}, P = {counters}, CHUNK = {chunk}, TILE = {tile}, TILES = {TILES}, THREADS = {threads}\n\
             \n\
             kernel moe_sort(ids: i32[tokens * K], {map}{weights}{parameter}rows: i32[m], {factor}places: i32[tokens * K], groups: i32[t], {first}ends: i32[G])\n    \
                 grid({grid}) threads(THREADS)\n\
             {{\n    \
                 let chunks = {grid}\n\
             {wait}{counted}    \
                 gr = global_view(rows, (m) : (e0))\n    \
                 gp = global_view(places, (tokens * K) : (e0))\n    \
                 ge = global_view(ends, (P) : (e0))\n    \
                 start = shared_tensor(i32, [P])\n\
             {begins}    \
                 marks = shared_tensor(i32, [TILES])\n\
             {total}    \
                 sized = {sized}\n    \
                 base = scan(sized, sum, 0) - sized\n    \
                 tiles = (total + (TILE - 1)) / TILE\n    \
                 last = scan(tiles, sum, 0)\n    \
                 copy(base{before} - (scan(counts, sum, 0) - counts), start)\n\
             {begin_of}    \
                 // The expert and the place in its chunk in one number: all differ.\n    \
                 sorted = sort(key * CHUNK + (block.x * CHUNK + index(0)) % CHUNK, 0)\n    \
                 expert = sorted / CHUNK\n    \
                 place = block.x * CHUNK + sorted % CHUNK\n    \
                 syncthreads()\n    \
                 at = register_tensor(i32, [CHUNK])\n    \
                 copy(start[expert], at)\n    \
                 row_of = where(expert < P, at + index(0), -1)\n    \
                 copy(place / K, gr[row_of])\n    \
                 copy(row_of, gp[place])\n\
             {weigh}    \
                 if block.x == 0 {{\n        \
                     copy(base + total, ge)\n\
             {pads}    \
                 }}\n    \
                 // The expert of a tile is the number of those whose last tile comes before.\n    \
                 for i in 0..ceil_div(ceil_div(t, TILES), chunks) {{\n        \
                     let from = (i * chunks + block.x) * TILES\n        \
                     gg = global_view(groups[from :], (TILES) : (e0))\n        \
                     unmarked = register_tensor(i32, [TILES])\n        \
                     fill(unmarked, 0)\n        \
                     syncthreads()\n        \
                     copy(unmarked, marks)\n        \
                     syncthreads()\n        \
                     copy(none + 1, marks[where(last < from + TILES, max(last - from, 0), -1)], add)\n        \
                     syncthreads()\n        \
                     marked = register_tensor(i32, [TILES])\n        \
                     copy(marks, marked)\n        \
                     group = scan(marked, sum, 0)\n        \
                     copy(where(group < G, group, -1), gg)\n\
             {begin}    \
                 }}\n\
             }}\n"
        )
    }
}
