//! The text of the program that computes dq with queries as owners: the same bits in every launch.

use super::AttentionBackwardConfig;
use crate::attention::Mask;

impl AttentionBackwardConfig {
    /// Keys of a block of this program: what registers hold beside dq.
    fn keys_of_queries(&self) -> i64 {
        if self.d > 128 || self.softcap { 64 } else { 96 }
    }

    /// The text of the program that computes dq: S = q kᵀ and dP = do vᵀ once more, and dq = scale · dS k.
    pub(super) fn queries(&self) -> String {
        let AttentionBackwardConfig { dtype, d, .. } = *self;
        let (dv, bm, bn) = (self.values(), self.block_of_queries(), self.keys_of_queries());
        let (queries, gradients) = (self.of("sq", "hq", "D"), self.of("sq", "hq", "DV"));
        let (keys, values) = (self.of("sk", "hk", "D"), self.of("sk", "hk", "DV"));
        let registers = self.copy_registers();
        format!(
            "size b = 1, hq = 4, hk = 2, sq = 384, sk = 384\n\
             const BM = {bm}, BQ = 128, BK = {bn}, D = {d}, DV = {dv}\n\
             \n\
             kernel attention_backward_queries(q: {dtype}{queries}, k: {dtype}{keys}, v: {dtype}{values}, dout: {dtype}{gradients}, \
             stats: f32[b, hq, 2, BM * ceil_div(sq, BM)], dq: {dtype}{queries}, {scalars})\n\
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
                     produce qp {{\n\
                         copy.async(gq[batch, :, t, head, :], xq)\n\
                         copy.async(gdout[batch, :, t, head, :], xdo)\n\
                     }}\n\
                     for i in begin..end {{\n\
                         produce kp {{ copy.async(gk[batch, :, i, of_key, :], xk) }}\n\
                         produce vp {{ copy.async(gv[batch, :, i, of_key, :], xv) }}\n\
                     }}\n\
                 }}\n\
                 warpgroup math(2) registers({math_registers}) {{\n\
                     wait_dependencies()\n\
             {numbers}{math}\
                     launch_dependents()\n\
                 }}\n\
             }}\n",
            scalars = self.scalars(),
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
            self.view("dq", ["BQ", "sq", "hq", "D"]),
        ];
        views.concat()
            + "    gstats = global_view(stats, (b, hq, 2, BQ, ceil_div(sq, BQ)) : (e0, e1, e2, e3, BQ * e3))\n"
    }

    /// The numbers of a tile: its head, and its blocks of keys.
    fn numbers_of_queries(&self) -> String {
        let late = if self.mask == Mask::None { "block.x % tiles" } else { "tiles - 1 - block.x % tiles" };
        let end = match self.mask {
            Mask::None => "ceil_div(sk, BK)",
            _ => "ceil_div(max(0, min(place + BQ, sk)), BK)",
        };
        let begin = match self.mask {
            Mask::Window(keys) => format!("max(0, place - {}) / BK", keys - 1),
            _ => "0".to_string(),
        };
        format!(
            "let tiles = ceil_div(sq, BQ), at = block.x / tiles, t = {late}, place = t * BQ + sk - sq, begin = {begin}, end = {end}\n\
             let batch = at / hq, head = at % hq, of_key = head / (hq / hk)\n"
        )
    }

    fn math_of_queries(&self) -> String {
        let dtype = self.dtype;
        let slope = if self.softcap { " * (1.0 - slope * slope)" } else { "" };
        format!(
            "adq = register_tensor(f32, [BQ, D])\n\
             fill(adq, 0.0)\n\
             rl = register_tensor(f32, [BQ])\n\
             rd = register_tensor(f32, [BQ])\n\
             copy(gstats[batch, head, 0, :, t], rl)\n\
             copy(gstats[batch, head, 1, :, t], rd)\n\
             logarithms = expand(rl, 1)\n\
             delta = expand(rd, 1)\n\
             consume qp {{\n\
                 for i in begin..end {{\n\
                     s = register_tensor(f32, [BQ, BK])\n\
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
                         let key = i * BK\n\
             {weights}{masked}\
                         wait_gemm(0)\n\
                         dh = cast(p * (dp - delta){slope}, {dtype})\n\
                         gemm.async(adq, dh, transpose(xk))\n\
                         commit_gemm()\n\
                         wait_gemm(0)\n\
                     }}\n\
                 }}\n\
                 syncthreads()\n\
                 copy(cast(adq * scale, {dtype}), xq)\n\
                 syncthreads()\n\
                 copy.async(xq, gdq[batch, :, t, head, :])\n\
                 commit_group()\n\
                 wait_group(0)\n\
             }}\n",
            weights = self.weights(["p", "s", "logarithms"]),
            masked = self.masked("p", [("BK", 1), ("BQ", 0)]),
        )
    }
}
