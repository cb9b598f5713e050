//! The text of the program that computes dq with queries as owners: the same bits in every launch.

use super::scores::BY_QUERIES;
use super::{AttentionBackwardConfig, Writer};
use crate::attention::Mask;

impl AttentionBackwardConfig {
    /// Keys of a block of this program: what registers hold beside dq.
    fn keys_of_queries(&self) -> i64 {
        if self.d > 128 || self.softcap || self.adds_to_scores() || self.attends.is_some() { 64 } else { 96 }
    }
}

impl Writer<'_> {
    /// The text of the program that computes dq: S = q kᵀ and dP = do vᵀ once more, and dq = scale · dS k.
    pub(super) fn queries(&self) -> String {
        let AttentionBackwardConfig { dtype, d, .. } = *self.config;
        let (dv, bm, bn) =
            (self.config.values(), self.config.block_of_queries(), self.config.keys_of_queries());
        let (queries, gradients) = (self.of("sq", "hq", "D"), self.of("sq", "hq", "DV"));
        let (keys, values) = (self.of("sk", "hk", "D"), self.of("sk", "hk", "DV"));
        let registers = self.config.copy_registers();
        format!(
            "{sizes}\
             const BM = {bm}, BQ = 128, BK = {bn}, D = {d}, DV = {dv}\n\
             \n\
             kernel attention_backward_queries(q: {dtype}{queries}, k: {dtype}{keys}, v: {dtype}{values}, dout: {dtype}{gradients}, \
             {stats}, dq: {dtype}{queries}{added}, {scalars})\n\
             grid(b * hq * ceil_div(sq, BQ)) threads(384)\n\
             {{\n\
             {views}\
                 xq = shared_tensor({dtype}, [BQ, D])\n\
                 xdo = shared_tensor({dtype}, [BQ, DV])\n\
                 xk = shared_tensor({dtype}, [BK, D])\n\
                 xv = shared_tensor({dtype}, [BK, DV])\n\
                 qp = pipeline(1, xq, xdo)\n\
                 kp = pipeline(2, xk)\n\
                 vp = pipeline(2, xv)\n\
                 warpgroup load(1) registers({registers}) {{\n\
                     wait_dependencies()\n\
             {numbers}\
             {load}\
                 }}\n\
                 warpgroup math(2) registers({math_registers}) {{\n\
                     wait_dependencies()\n\
             {numbers}{math}\
                     launch_dependents()\n\
                 }}\n\
             }}\n",
            sizes = self.sizes(true),
            stats = self.stats(),
            added = self.added(),
            scalars = self.scalars(),
            load = self.load_of_queries(),
            views = self.views_of_queries(),
            numbers = self.numbers_of_queries(),
            math_registers = if registers > 24 { 232 } else { 240 },
            math = self.math_of_queries(),
        )
    }

    fn views_of_queries(&self) -> String {
        let views = [
            self.view("q", ["BQ", "sq", "hq", "D"]),
            self.view("dout", ["BQ", "sq", "hq", "DV"]),
            self.view("k", ["BK", "sk", "hk", "D"]),
            self.view("v", ["BK", "sk", "hk", "DV"]),
        ];
        let mut views = views.concat();
        if self.config.varlen {
            views += "    gstats = global_view(stats, (hq, 2, BQ, BM * (tq / BM + b)) : (e0, e1, e2, e2))\n";
        } else {
            views += &self.view("dq", ["BQ", "sq", "hq", "D"]);
            views += "    gstats = global_view(stats, (b, hq, 2, BQ, ceil_div(sq, BQ)) : (e0, e1, e2, e3, BQ * e3))\n";
        }
        views + &self.view_of_bias(&BY_QUERIES)
    }

    /// The statements of the loading role for a tile.
    fn load_of_queries(&self) -> String {
        let keys = |name: &str| self.block(name, ["batch", "i"], "k0 + i * BK", "of_key");
        let loads = format!(
            "produce kp {{ copy.async({}, xk) }}\n\
             produce vp {{ copy.async({}, xv) }}\n",
            keys("k"),
            keys("v")
        );
        let key = if self.attends.is_some() { "let key = i * BK\n" } else { "" };
        let body = format!(
            "produce qp {{\n\
                 copy.async({q}, xq)\n\
                 copy.async({dout}, xdo)\n\
             }}\n\
             for i in begin..end {{\n\
                 {key}{loads}\
             }}\n",
            q = self.of_tile("q"),
            dout = self.of_tile("dout"),
            loads = self.skipped(&BY_QUERIES, &loads),
        );
        self.within("row < nq", &body)
    }

    /// The tile of queries of a view.
    fn of_tile(&self, name: &str) -> String {
        self.block(name, ["batch", "t"], "q0 + row", "head")
    }

    /// The numbers of a tile: its head, and its blocks of keys.
    fn numbers_of_queries(&self) -> String {
        let mask = self.config.mask;
        let late = if mask == Mask::None { "block.x % tiles" } else { "tiles - 1 - block.x % tiles" };
        let [_, nk] = self.lengths();
        let end = match mask {
            Mask::None => format!("ceil_div({nk}, BK)"),
            _ => format!("ceil_div(max(0, min(place + BQ, {nk})), BK)"),
        };
        let begin = match mask {
            Mask::Window(keys) => format!("max(0, place - {}) / BK", keys - 1),
            _ => "0".to_string(),
        };
        let heads = "let batch = at / hq, head = at % hq, of_key = head / (hq / hk)\n";
        if self.config.varlen {
            return format!(
                "let tiles = ceil_div(sq, BQ), at = block.x / tiles, t = {late}, row = t * BQ\n\
                 {heads}{}let place = row + nk - nq, begin = {begin}, end = {end}\n",
                self.lengths_of_sequences()
            );
        }
        format!(
            "let tiles = ceil_div(sq, BQ), at = block.x / tiles, t = {late}, place = t * BQ + sk - sq, begin = {begin}, end = {end}\n\
             {heads}"
        )
    }

    fn math_of_queries(&self) -> String {
        let dtype = self.config.dtype;
        let stats = |which: usize| match self.config.varlen {
            true => format!("gstats[head, {which}, :, q_block * BM + row]"),
            false => format!("gstats[batch, head, {which}, :, t]"),
        };
        let leave = match self.config.varlen {
            true => self.leave("xq", "dq", ["BQ", "sq", "hq", "D"], [256, self.config.d]),
            false => format!(
                "copy.async(xq, {})\n\
                 commit_group()\n\
                 wait_group(0)\n",
                self.of_tile("dq")
            ),
        };
        let (key, before) = match self.attends {
            Some(_) => ("let key = i * BK\n", ""),
            None => ("", "let key = i * BK\n"),
        };
        let tile = format!(
            "s = register_tensor(f32, [BQ, BK])\n\
             dp = register_tensor(f32, [BQ, BK])\n\
             dh = register_tensor({dtype}, [BQ, BK])\n\
             fill(s, 0.0)\n\
             fill(dp, 0.0)\n\
             consume kp {{\n\
                 gemm.async(s, xq, xk)\n\
                 commit_gemm()\n\
                 consume vp {{\n\
                     gemm.async(dp, xdo, xv)\n\
                     commit_gemm()\n\
                 }}\n\
                 wait_gemm(1)\n\
                 {before}\
             {weights}{masked}\
                 wait_gemm(0)\n\
                 dh = cast({gradients}, {dtype})\n\
                 gemm.async(adq, dh, transpose(xk))\n\
                 commit_gemm()\n\
                 wait_gemm(0)\n\
             }}\n",
            weights = self.weights(&BY_QUERIES, ["p", "s", "logarithms"], ["t", "i"]),
            masked = self.masked(&BY_QUERIES, "p"),
            gradients = self.changed(&BY_QUERIES, "p * (dp - delta)"),
        );
        let body = format!(
            "adq = register_tensor(f32, [BQ, D])\n\
             fill(adq, 0.0)\n\
             rl = register_tensor(f32, [BQ])\n\
             rd = register_tensor(f32, [BQ])\n\
             copy({logarithms}, rl)\n\
             copy({deltas}, rd)\n\
             logarithms = expand(rl, 1)\n\
             delta = expand(rd, 1)\n\
             {of_head}\
             consume qp {{\n\
                 for i in begin..end {{\n\
                 {key}{tile}\
                 }}\n\
                 syncthreads()\n\
                 copy(cast(adq * scale, {dtype}), xq)\n\
                 syncthreads()\n\
             {leave}\
             }}\n",
            logarithms = stats(0),
            deltas = stats(1),
            of_head = self.of_head(),
            tile = self.skipped(&BY_QUERIES, &tile),
        );
        self.within("row < nq", &body)
    }
}
