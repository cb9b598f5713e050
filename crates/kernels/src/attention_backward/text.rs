//! The text of the main program: dk and dv of a block of keys, and what it adds to dq.

use super::AttentionBackwardConfig;
use crate::attention::Mask;

/// Elements of the queries of heads that are worked on at a time, with do and the sums of dq: what stays in the L2 cache.
const RESIDENT: i64 = 1 << 22;

impl AttentionBackwardConfig {
    /// The text of the main program.
    pub(super) fn text(&self) -> String {
        let AttentionBackwardConfig { dtype, d, warpgroups, stages, .. } = *self;
        let (dv, bm) = (self.values(), self.block_of_queries());
        let (queries, gradients) = (self.of("sq", "hq", "D"), self.of("sq", "hq", "DV"));
        let (keys, values) = (self.of("sk", "hk", "D"), self.of("sk", "hk", "DV"));
        let adds = !self.deterministic;
        let some = |condition: bool, text: &'static str| if condition { text } else { "" };
        let stagger = if self.stagger > 0 { format!(", STAGGER = {}", self.stagger) } else { String::new() };
        let registers = self.copy_registers();
        format!(
            "size b = 1, hq = 4, hk = 2, sq = 384, sk = 384\n\
             const W = {warpgroups}, BM = {bm}, BN = W * 64, D = {d}, DV = {dv}, STAGES = {stages}{stagger}\n\
             \n\
             kernel attention_backward(q: {dtype}{queries}, k: {dtype}{keys}, v: {dtype}{values}, dout: {dtype}{gradients}, \
             stats: f32[b, hq, 2, BM * ceil_div(sq, BM)]{sums}, dk: {dtype}{keys}, dv: {dtype}{values}, {scalars})\n\
             grid(b * hk * ceil_div(sk, BN)) threads({threads})\n\
             {{\n\
             {views}\
                 xk = shared_tensor({dtype}, [BN, D])\n\
                 xv = shared_tensor({dtype}, [BN, DV])\n\
                 xq = shared_tensor({dtype}, [BM, D])\n\
                 xdo = shared_tensor({dtype}, [BM, DV])\n\
                 xs = shared_tensor(f32, [2, BM])\n\
             {shared}\
                 kp = pipeline(1, xk, xv)\n\
                 qp = pipeline(STAGES, xq, xs)\n\
                 dop = pipeline(STAGES, xdo)\n\
             {bulk}\
                 warpgroup load(1) registers({registers}) {{\n\
                     wait_dependencies()\n\
             {load}\
                 }}\n\
             {add}\
                 warpgroup math(W) registers({math_registers}) {{\n\
                     wait_dependencies()\n\
             {math}\
                     launch_dependents()\n\
                 }}\n\
             }}\n",
            sums = some(adds, ", sums: f32[b, hq, ceil_div(sq, BM), BM * D / 256, 256]"),
            scalars = self.scalars(),
            threads = 128 * self.all_warpgroups(),
            views = self.views(),
            shared =
                if adds { format!("    xds = shared_tensor({dtype}, [BN, BM, 2])\n") } else { String::new() },
            bulk = some(
                self.adds_in_bulk(),
                "    xdq = shared_tensor(f32, [256, BM * D / 256])\n    dqp = pipeline(1, xdq)\n"
            ),
            load = self.load(),
            add = self.add(),
            math_registers = self.math_registers(),
            math = self.math(),
        )
    }

    fn views(&self) -> String {
        let mut views = [
            self.view("q", ["BM", "sq", "hq", "D"]),
            self.view("dout", ["BM", "sq", "hq", "DV"]),
            self.view("k", ["BN", "sk", "hk", "D"]),
            self.view("v", ["BN", "sk", "hk", "DV"]),
            self.view("dk", ["BN", "sk", "hk", "D"]),
            self.view("dv", ["BN", "sk", "hk", "DV"]),
        ]
        .concat();
        views +=
            "    gstats = global_view(stats, (b, hq, 2, BM, ceil_div(sq, BM)) : (e0, e1, e2, e3, BM * e3))\n";
        if !self.deterministic {
            views += "    gsums = global_view(sums, (b, hq, ceil_div(sq, BM), 256, BM * D / 256) : (e0, e1, e2, e4, e3))\n";
        }
        views
    }

    /// The numbers of a block of keys: its head, its first key, and its blocks of queries, those of all heads of the group in one count.
    fn numbers(&self) -> String {
        let resident = RESIDENT / self.d;
        // The first keys have the most queries, if there is a mask. Heads are in sections whose queries stay in the L2 cache.
        let mut text = format!(
            "let group = ceil_div(hq, hk), tiles = ceil_div(sk, BN), section = max(1, {resident} / (sq * group)), first = block.x / (section * tiles) * section, \
             heads = min(section, b * hk - first), w = block.x - first * tiles, at = first + w % heads, n = w / heads\n\
             let batch = at / hk, of_key = at % hk, key = n * BN, blocks = ceil_div(sq, BM)\n"
        );
        if self.mask == Mask::None {
            text += "let begin = 0, end = blocks\n";
        } else {
            let end = match self.mask {
                Mask::Window(window) => {
                    format!("min(blocks, ceil_div(max(0, key + BN + sq - sk + {}), BM))", window - 1)
                }
                _ => "blocks".to_string(),
            };
            text += &format!("let begin = max(0, key + sq - sk) / BM, end = {end}\n");
        }
        text
    }

    /// The loops over the heads of the group and over their blocks of queries.
    fn of_blocks(&self, body: &str) -> String {
        let (counter, t) = match self.stagger {
            0 => ("t", ""),
            _ => ("i", "let t = begin + (i - begin + n * STAGGER) % max(1, end - begin)\n"),
        };
        format!(
            "for g in 0..group {{\n\
                 for {counter} in begin..end {{\n\
                 {t}{body}\
                 }}\n\
             }}\n"
        )
    }

    fn load(&self) -> String {
        format!(
            "{numbers}\
             produce kp {{\n\
                 copy.async(gk[batch, :, n, of_key, :], xk)\n\
                 copy.async(gv[batch, :, n, of_key, :], xv)\n\
             }}\n\
             {blocks}",
            numbers = self.numbers(),
            blocks = self.of_blocks(
                "produce qp {\n\
                     copy.async(gq[batch, :, t, of_key * group + g, :], xq)\n\
                     copy.async(gstats[batch, of_key * group + g, :, :, t], xs)\n\
                 }\n\
                 produce dop { copy.async(gdout[batch, :, t, of_key * group + g, :], xdo) }\n"
            ),
        )
    }

    /// The role that adds to dq by bulk copies, if there is one.
    fn add(&self) -> String {
        if !self.adds_in_bulk() {
            return String::new();
        }
        format!(
            "warpgroup add(1) registers({registers}) {{\n\
                 wait_dependencies()\n\
             {numbers}{blocks}\
             }}\n",
            registers = self.copy_registers(),
            numbers = self.numbers(),
            blocks = self.of_blocks(
                "consume dqp {\n\
                     copy.async(xdq, gsums[batch, of_key * group + g, t, :, :], add)\n\
                     commit_group()\n\
                     wait_group(0)\n\
                 }\n"
            ),
        )
    }

    fn math(&self) -> String {
        let dtype = self.dtype;
        let factors = if self.keys_in_registers {
            format!(
                "rk = register_tensor({dtype}, [BN, D])\n\
                 rv = register_tensor({dtype}, [BN, DV])\n\
                 copy(xk, rk)\n\
                 copy(xv, rv)\n"
            )
        } else {
            String::new()
        };
        format!(
            "{numbers}\
             adk = register_tensor(f32, [BN, D])\n\
             adv = register_tensor(f32, [BN, DV])\n\
             fill(adk, 0.0)\n\
             fill(adv, 0.0)\n\
             consume kp {{\n\
             {factors}{blocks}\
                 // The gradients leave through the memory of the keys and values, once all have read those.\n\
                 syncthreads()\n\
                 copy(cast(adk * scale, {dtype}), xk)\n\
                 copy(cast(adv, {dtype}), xv)\n\
                 syncthreads()\n\
                 copy.async(xk, gdk[batch, :, n, of_key, :])\n\
                 copy.async(xv, gdv[batch, :, n, of_key, :])\n\
                 commit_group()\n\
                 wait_group(0)\n\
             }}\n",
            numbers = self.numbers(),
            blocks = self.of_blocks(&self.block()),
        )
    }

    /// A block of queries: weights and their gradients, and what they add.
    fn block(&self) -> String {
        let dtype = self.dtype;
        let (keys, values) = if self.keys_in_registers { ("rk", "rv") } else { ("xk", "xv") };
        let gradients = format!(
            "dp = register_tensor(f32, [BN, BM])\n\
             fill(dp, 0.0)\n\
             gemm.async(dp, {values}, xdo)\n\
             commit_gemm()\n"
        );
        // The gradients of weights are in flight during the exponentials, and with a cap behind them: registers are scarce.
        let (before, pending, behind) = match self.softcap {
            false => (gradients.as_str(), 1, ""),
            true => ("", 0, gradients.as_str()),
        };
        let rounded = format!("ph = cast(p, {dtype})\n");
        let (early, late) = if self.rounds_early() { (rounded.as_str(), "") } else { ("", rounded.as_str()) };
        let capped = if self.softcap { "p = p * (1.0 - slope * slope)\n" } else { "" };
        let product = "gemm.async(adv, ph, transpose(xdo))\ncommit_gemm()\n";
        let (ahead, in_flight, product) = if self.overlap { (product, 1, "") } else { ("", 0, product) };
        let place = if self.mask == Mask::None { "" } else { "let place = t * BM + sk - sq\n" };
        format!(
            "{place}\
             st = register_tensor(f32, [BN, BM])\n\
             dh = register_tensor({dtype}, [BN, BM])\n\
             logarithms = register_tensor(f32, [BM])\n\
             delta = register_tensor(f32, [BM])\n\
             fill(st, 0.0)\n\
             consume qp {{\n\
                 gemm.async(st, {keys}, xq)\n\
                 commit_gemm()\n\
                 consume dop {{\n\
             {before}\
                     wait_gemm({pending})\n\
                     copy(xs[0, :], logarithms)\n\
             {weights}{masked}{early}{capped}{behind}{ahead}\
                     wait_gemm({in_flight})\n\
                     copy(xs[1, :], delta)\n\
                     ds = p * (dp - expand(delta, 0))\n\
             {late}\
                     dh = cast(ds, {dtype})\n\
             {product}\
                 }}\n\
             {queries}\
             }}\n",
            weights = self.weights(["p", "st", "expand(logarithms, 0)"]),
            masked = self.masked("p", [("BN", 0), ("BM", 1)]),
            queries = self.gradients_of_queries(),
        )
    }

    /// The products of dS with queries, and with keys, which are added to dq.
    fn gradients_of_queries(&self) -> String {
        let keys = "gemm.async(adk, dh, transpose(xq))\ncommit_gemm()\n";
        if self.deterministic {
            return format!("{keys}wait_gemm(0)\n");
        }
        let sums = self.sums();
        let [rows, columns] = sums.split.unwrap_or([1, 1]);
        let turn = if self.stagger == 0 {
            "(g * (end - begin) + t - begin) % 2"
        } else {
            "(g * (end - begin) + i - begin) % 2"
        };
        let ds = format!("transpose(xds[:, :, {turn}])");
        let (shape, left, right) = match sums.swapped {
            true => ("[D, BM]", "transpose(xk)", ds.as_str()),
            false => ("[BM, D]", ds.as_str(), "transpose(xk)"),
        };
        let flat = sums.flat("adq");
        let add = match self.bulk {
            true => format!("produce dqp {{ copy({flat}, xdq) }}\n"),
            false => format!("copy({flat}, gsums[batch, of_key * group + g, t, :, :], add)\n"),
        };
        format!(
            "copy(dh, xds[:, :, {turn}])\n\
             syncthreads()\n\
             adq = register_tensor(f32, {shape})\n\
             fill(adq, 0.0)\n\
             gemm.async(adq, {left}, {right}, warpgroups = ({rows}, {columns}))\n\
             commit_gemm()\n\
             {keys}\
             wait_gemm(1)\n\
             {add}\
             wait_gemm(0)\n"
        )
    }
}
