//! The text of the main program: dk and dv of a block of keys, and what it adds to dq.

use super::scores::BY_KEYS;
use super::{AttentionBackwardConfig, Writer};
use crate::attention::Mask;

/// Elements of the queries of heads that are worked on at a time, with do and the sums of dq: what stays in the L2 cache.
const RESIDENT: i64 = 1 << 22;

impl Writer<'_> {
    /// The text of the main program.
    pub(super) fn text(&self) -> String {
        let AttentionBackwardConfig { dtype, d, warpgroups, stages, .. } = *self.config;
        let (dv, bm) = (self.config.values(), self.config.block_of_queries());
        let (queries, gradients) = (self.of("sq", "hq", "D"), self.of("sq", "hq", "DV"));
        let (keys, values) = (self.of("sk", "hk", "D"), self.of("sk", "hk", "DV"));
        let adds = !self.config.deterministic;
        let some = |condition: bool, text: &'static str| if condition { text } else { "" };
        let stagger = match self.config.stagger {
            0 => String::new(),
            blocks => format!(", STAGGER = {blocks}"),
        };
        let registers = self.config.copy_registers();
        format!(
            "{sizes}\
             const W = {warpgroups}, BM = {bm}, BN = W * 64, D = {d}, DV = {dv}, STAGES = {stages}{stagger}\n\
             \n\
             kernel attention_backward(q: {dtype}{queries}, k: {dtype}{keys}, v: {dtype}{values}, dout: {dtype}{gradients}, \
             {stats}{sums}, dk: {dtype}{keys}, dv: {dtype}{values}{added}, {scalars})\n\
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
            sizes = self.sizes(true),
            stats = self.stats(),
            sums = if adds { format!(", {}", self.sums()) } else { String::new() },
            added = self.added(),
            scalars = self.scalars(),
            threads = 128 * self.config.all_warpgroups(),
            views = self.views(),
            shared =
                if adds { format!("    xds = shared_tensor({dtype}, [BN, BM, 2])\n") } else { String::new() },
            bulk = some(
                self.config.adds_in_bulk(),
                "    xdq = shared_tensor(f32, [256, BM * D / 256])\n    dqp = pipeline(1, xdq)\n"
            ),
            load = self.load(),
            add = self.add(),
            math_registers = self.config.math_registers(),
            math = self.math(),
        )
    }

    fn views(&self) -> String {
        let mut views = [
            self.view("q", ["BM", "sq", "hq", "D"]),
            self.view("dout", ["BM", "sq", "hq", "DV"]),
            self.view("k", ["BN", "sk", "hk", "D"]),
            self.view("v", ["BN", "sk", "hk", "DV"]),
        ]
        .concat();
        if !self.config.varlen {
            views += &self.view("dk", ["BN", "sk", "hk", "D"]);
            views += &self.view("dv", ["BN", "sk", "hk", "DV"]);
        }
        views += self.view_of_stats();
        if !self.config.deterministic {
            views += &format!("    {}", self.view_of_sums());
        }
        views + &self.view_of_bias(&BY_KEYS)
    }

    /// The numbers of a block of keys: its head, its first key, and its blocks of queries, those of all heads of the group in one count.
    fn numbers(&self) -> String {
        let (resident, [nq, nk]) = (RESIDENT / self.config.d, self.lengths());
        // The first keys have the most queries, if there is a mask. Heads are in sections whose queries stay in the L2 cache.
        let mut text = format!(
            "let group = ceil_div(hq, hk), tiles = ceil_div(sk, BN), section = max(1, {resident} / (sq * group)), first = block.x / (section * tiles) * section, \
             heads = min(section, b * hk - first), w = block.x - first * tiles, at = first + w % heads, n = w / heads\n\
             let batch = at / hk, of_key = at % hk, key = n * BN\n\
             {}\
             let blocks = ceil_div({nq}, BM)\n",
            self.lengths_of_sequences()
        );
        if self.config.mask == Mask::None {
            text += "let begin = 0, end = blocks\n";
        } else {
            let end = match self.config.mask {
                Mask::Window(window) => {
                    format!("min(blocks, ceil_div(max(0, key + BN + {nq} - {nk} + {}), BM))", window - 1)
                }
                _ => "blocks".to_string(),
            };
            text += &format!("let begin = max(0, key + {nq} - {nk}) / BM, end = {end}\n");
        }
        text
    }

    /// A role's statements for its keys: those before the blocks of queries, where the numbers are known, and all.
    fn of_keys(&self, body: &str) -> String {
        format!("{}{}", self.numbers(), self.within("key < nk", body))
    }

    /// The loops over the heads of the group and over their blocks of queries, with what is read once a head.
    fn of_blocks(&self, of_head: &str, body: &str) -> String {
        let (counter, t) = match self.config.stagger {
            0 => ("t", ""),
            _ => ("i", "let t = begin + (i - begin + n * STAGGER) % max(1, end - begin)\n"),
        };
        let head = if self.has_heads() { "let head = of_key * group + g\n" } else { "" };
        let [nq, nk] = self.lengths();
        let place = match self.config.attends {
            Some(_) => format!("let place = t * BM + {nk} - {nq}\n"),
            None => String::new(),
        };
        let body = self.skipped(&BY_KEYS, body);
        format!(
            "for g in 0..group {{\n\
                 {head}{of_head}\
                 for {counter} in begin..end {{\n\
                 {t}{place}{body}\
                 }}\n\
             }}\n"
        )
    }

    /// A block of queries of a view, of the head of the group that is worked on.
    fn of_queries(&self, name: &str) -> String {
        self.block(name, ["batch", "t"], "q0 + t * BM", "of_key * group + g")
    }

    /// The block of keys of a view.
    fn own(&self, name: &str) -> String {
        self.block(name, ["batch", "n"], "k0 + key", "of_key")
    }

    fn load(&self) -> String {
        let blocks = self.of_blocks(
            "",
            &format!(
                "produce qp {{\n\
                     copy.async({q}, xq)\n\
                     copy.async(gstats[{stats}], xs)\n\
                 }}\n\
                 produce dop {{ copy.async({dout}, xdo) }}\n",
                q = self.of_queries("q"),
                stats = self.of_block(["batch", "t"], "of_key * group + g", ":, :, "),
                dout = self.of_queries("dout"),
            ),
        );
        self.of_keys(&format!(
            "produce kp {{\n\
                 copy.async({}, xk)\n\
                 copy.async({}, xv)\n\
             }}\n\
             {blocks}",
            self.own("k"),
            self.own("v"),
        ))
    }

    /// The role that adds to dq by bulk copies, if there is one.
    fn add(&self) -> String {
        if !self.config.adds_in_bulk() {
            return String::new();
        }
        let blocks = self.of_blocks(
            "",
            &format!(
                "consume dqp {{\n\
                     copy.async(xdq, gsums[{}, :, :], add)\n\
                     commit_group()\n\
                     wait_group(0)\n\
                 }}\n",
                self.of_block(["batch", "t"], "of_key * group + g", "")
            ),
        );
        format!(
            "warpgroup add(1) registers({registers}) {{\n\
                 wait_dependencies()\n\
             {body}\
             }}\n",
            registers = self.config.copy_registers(),
            body = self.of_keys(&blocks),
        )
    }

    fn math(&self) -> String {
        let dtype = self.config.dtype;
        let factors = if self.config.keys_in_registers {
            format!(
                "rk = register_tensor({dtype}, [BN, D])\n\
                 rv = register_tensor({dtype}, [BN, DV])\n\
                 copy(xk, rk)\n\
                 copy(xv, rv)\n"
            )
        } else {
            String::new()
        };
        let leave = if self.config.varlen {
            let leave = |from, to, elements, width| {
                self.leave(from, to, ["BN", "sk", "hk", elements], [2 * self.config.keys(), width])
            };
            leave("xk", "dk", "D", self.config.d) + &leave("xv", "dv", "DV", self.config.values())
        } else {
            format!(
                "copy.async(xk, {})\n\
                 copy.async(xv, {})\n\
                 commit_group()\n\
                 wait_group(0)\n",
                self.own("dk"),
                self.own("dv")
            )
        };
        self.of_keys(&format!(
            "adk = register_tensor(f32, [BN, D])\n\
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
             {leave}\
             }}\n",
            blocks = self.of_blocks(&self.of_head(), &self.tile()),
        ))
    }

    /// A block of queries: weights and their gradients, and what they add.
    fn tile(&self) -> String {
        let dtype = self.config.dtype;
        let (keys, values) = if self.config.keys_in_registers { ("rk", "rv") } else { ("xk", "xv") };
        let gradients = format!(
            "dp = register_tensor(f32, [BN, BM])\n\
             fill(dp, 0.0)\n\
             gemm.async(dp, {values}, xdo)\n\
             commit_gemm()\n"
        );
        // The gradients of weights are in flight during the exponentials, and with a cap behind them: registers are scarce.
        let (before, pending, behind) = match self.keeps_change() {
            false => (gradients.as_str(), 1, ""),
            true => ("", 0, gradients.as_str()),
        };
        let rounded = format!("ph = cast(p, {dtype})\n");
        let (early, late) =
            if self.config.rounds_early() { (rounded.as_str(), "") } else { ("", rounded.as_str()) };
        let capped = match self.changes() {
            true => format!("p = {}\n", self.changed(&BY_KEYS, "p")),
            false => String::new(),
        };
        let product = "gemm.async(adv, ph, transpose(xdo))\ncommit_gemm()\n";
        let (ahead, in_flight, product) =
            if self.config.overlap { (product, 1, "") } else { ("", 0, product) };
        let [nq, nk] = self.lengths();
        let place = match self.has_places() && self.attends.is_none() {
            true => format!("let place = t * BM + {nk} - {nq}\n"),
            false => String::new(),
        };
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
            weights = self.weights(&BY_KEYS, ["p", "st", "expand(logarithms, 0)"], ["t", "n"]),
            masked = self.masked(&BY_KEYS, "p"),
            queries = self.gradients_of_queries(),
        )
    }

    /// The products of dS with queries, and with keys, which are added to dq.
    fn gradients_of_queries(&self) -> String {
        let keys = "gemm.async(adk, dh, transpose(xq))\ncommit_gemm()\n";
        if self.config.deterministic {
            return format!("{keys}wait_gemm(0)\n");
        }
        let sums = self.config.sums();
        let [rows, columns] = sums.split.unwrap_or([1, 1]);
        let turn = if self.config.stagger == 0 {
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
        let add = match self.config.bulk {
            true => format!("produce dqp {{ copy({flat}, xdq) }}\n"),
            false => {
                let at = self.of_block(["batch", "t"], "of_key * group + g", "");
                format!("copy({flat}, gsums[{at}, :, :], add)\n")
            }
        };
        // Where blocks are skipped, the half of the turn may be that of the block before.
        let free = if self.attends.is_some() { "syncthreads()\n" } else { "" };
        format!(
            "{free}copy(dh, xds[:, :, {turn}])\n\
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
