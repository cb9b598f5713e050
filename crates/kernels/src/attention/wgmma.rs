//! The form of Hopper: warpgroups that multiply by `wgmma`, with scores, weights and sums in registers.

use super::AttentionConfig;
use super::text::{Ending, OfForm, Role, Writer, of_head, rows_by_warp};

impl AttentionConfig {
    /// The text of the program that turns v of 8 bits into vt.
    pub(super) fn transposition(&self) -> String {
        let writer = Writer { config: self, attends: None };
        let (places, heads) = self.axes();
        // A sequence has blocks of its own, behind the whole blocks of the keys before it and one more for each sequence; what is left of them is zeros,
        // and so is what a block of keys reaches behind the last.
        let (grid, begins, view, groups, body) = match self.varlen {
            true => (
                "ceil_div(sk, KEYS) + 1 + BEHIND",
                ", cu_k: i32[b + 1]",
                String::new(),
                "(hk, DV, (2, 4, 2, 2, KEYS / 32), tk / KEYS + b) : (e0, e1, (e2, 4 * e2, 2 * e2, 16 * e2, 32 * e2), KEYS * e2)",
                [
                    "let k0 = min(max(cu_k[block.z], 0), tk), ke = min(max(cu_k[block.z + 1], 0), tk), k_block = k0 / KEYS + block.z\n\
                     if k_block + block.x < min(tk / KEYS + b, ke / KEYS + block.z + 1 + (block.z + 1) / b * BEHIND) {\n\
                     gv = global_view(v[: ke, :, :], (KEYS, tk, hk, DV) : (e0, e0, e1, e2))\n",
                    "gv[:, k0 + block.x * KEYS, block.y, :]",
                    "gt[block.y, :, :, k_block + block.x]",
                    "}\n",
                ],
            ),
            false => (
                "ceil_div(sk, KEYS)",
                "",
                format!(
                    "    gv = global_view(v, (b, KEYS, ceil_div(sk, KEYS), hk, DV) : (e0, {places}, KEYS * {places}, {heads}, e3))\n"
                ),
                "(b, hk, DV, (2, 4, 2, 2, KEYS / 32), ceil_div(sk, KEYS)) : (e0, e1, e2, (e3, 4 * e3, 2 * e3, 16 * e3, 32 * e3), KEYS * e3)",
                ["", "gv[block.z, :, block.x, block.y, :]", "gt[block.z, block.y, :, :, block.x]", ""],
            ),
        };
        let [before, from, to, behind] = body;
        // The threads of a row have neighbours two at a time, and take those of two steps of eight as four along k: PTX ISA, fragments of wgmma with 8 bits.
        format!(
            "{sizes}const DV = {dv}, KEYS = 64{constant}\n\
             \n\
             kernel transpose_values({v}, {vt}{begins})\n\
             grid({grid}, hk, b) threads(256)\n\
             {{\n\
             {view}\
                 gt = global_view(vt, {groups})\n\
             rows = register_tensor({dtype}, [KEYS, DV])\n\
             {before}\
                 copy({from}, rows)\n\
             staged = shared_tensor({dtype}, [KEYS, DV])\n\
                 copy(rows, staged)\n\
                 syncthreads()\n\
                 columns = register_tensor({dtype}, [DV, KEYS])\n\
                 copy(transpose(staged), columns)\n\
                 copy(columns, {to})\n\
             {behind}\
             }}\n",
            sizes = writer.sizes(&["v"]),
            dv = self.values(),
            dtype = self.dtype,
            constant = match self.varlen {
                true => format!(", BEHIND = {}", (self.bn + 63) / 64),
                false => String::new(),
            },
            v = writer.operand("v", ["sk", "tk", "hk", "DV"], self.dtype),
            vt = writer.transposed(),
        )
    }
}

impl Writer<'_> {
    /// The parts of the program that this form has of its own.
    pub(super) fn wgmma(&self) -> OfForm {
        let config = self.config;
        let (out, parts) = (config.results(), config.warpgroups);
        let mut shared = match config.through_queries() {
            true => String::new(),
            false => self.per_role(|role| {
                format!("    xo{} = shared_tensor({out}, [{}, DV])\n", role.part(), role.rows())
            }),
        };
        if config.ping_pong {
            shared += "    cores = turns()\n";
        }
        let roles = self.per_role(|role| {
            format!(
                "    warpgroup math{}({}) registers({}) {{\n{}    }}\n",
                role.part(),
                role.warpgroups(),
                config.math_registers(),
                self.of_tile(role, &self.math(role))
            )
        });
        OfForm {
            name: "attention",
            rows: 64,
            parts,
            threads: "W * 128 + 128".to_string(),
            load_registers: if parts > 2 { 32 } else { 24 },
            constants: String::new(),
            shared,
            roles,
        }
    }

    /// The values as operand B.
    fn values(&self) -> &'static str {
        if self.config.is_fp8() { "xv" } else { "transpose(xv)" }
    }

    fn math(&self, role: &Role) -> String {
        let (dtype, unit) = (self.config.dtype, self.unit());
        let (first, others) = (self.scored(role, "s", "last", true), self.scored(role, "next", "key", false));
        let end = self.end(role);
        let (rows, part) = (role.rows(), role.part());
        let (turn, passed) = if self.config.ping_pong { ("in_turn cores {\n", "}\n") } else { ("", "") };
        let (inside, behind) =
            if self.config.through_queries() { (end.as_str(), "") } else { ("", end.as_str()) };
        let (skipped, rest) = match self.conditions("key", role) {
            Some((some, _)) => (format!("if {some} {{\n"), "}\n"),
            None => (String::new(), ""),
        };
        let descales = self.descales();
        // Weights of 8 bits in the order in which a thread has them as factors, which is that of vt.
        let weights = |of: &str| match self.config.is_fp8() {
            true => format!(
                "cast(reshape(transpose(reshape({of}, [{rows}, 2, 4, 2, 2, BN / 32]), 0, 1, 3, 2, 4, 5), [{rows}, BN]), {dtype})"
            ),
            false => format!("cast({of}, {dtype})"),
        };
        let values = self.values();
        let slope = if self.config.alibi { of_head("slope", "slopes") } else { String::new() };
        format!(
            "acc = register_tensor(f32, [{rows}, DV])\n\
             most = register_tensor(f32, [{rows}, 1])\n\
             sums = register_tensor(f32, [{rows}, 8])\n\
             p = register_tensor({dtype}, [{rows}, BN])\n\
             fill(acc, 0.0)\n\
             {slope}\
             {descales}\
             consume qp{part} {{\n\
                 let last = (blocks - 1) * BN\n\
                 s = register_tensor(f32, [{rows}, BN])\n\
                 fill(s, 0.0)\n\
                 {turn}\
                 consume kp {{\n\
                     gemm.async(s, xq{part}, xk)\n\
                     commit_gemm()\n\
                 }}\n\
                 {passed}\
                 {added_last}\
                 wait_gemm(0)\n\
                 {first}\
                 most = reduce(s, max, 1, keep) * {unit}\n\
                 e = exp2(s * {unit} - most)\n\
                 sums = reduce(reshape(e, [{rows}, 8, BN / 8]), sum, 2)\n\
                 p = {weights_of_e}\n\
                 limit = (most + 8.0) / {unit}\n\
                 for j in begin + 1..blocks {{\n\
                     let key = (blocks - 1 + begin - j) * BN\n\
                     {skipped}\
                     next = register_tensor(f32, [{rows}, BN])\n\
                     fill(next, 0.0)\n\
                     {turn}\
                     consume kp {{\n\
                         gemm.async(next, xq{part}, xk)\n\
                         commit_gemm()\n\
                     }}\n\
                     consume vp {{\n\
                         gemm.async(acc, p, {values})\n\
                         commit_gemm()\n\
                     }}\n\
                     {passed}\
                     {added_key}\
                     wait_gemm(1)\n\
                     {others}\
                     factor = register_tensor(f32, [{rows}, 1])\n\
                     fill(factor, 1.0)\n\
                     if any(next > limit, 1) {{\n\
                         grown = max(most, reduce(next, max, 1, keep) * {unit})\n\
                         factor = exp2(most - grown)\n\
                         most = grown\n\
                         limit = (grown + 8.0) / {unit}\n\
                         sums = sums * factor\n\
                     }}\n\
                     f = exp2(next * {unit} - most)\n\
                     sums = sums + reduce(reshape(f, [{rows}, 8, BN / 8]), sum, 2)\n\
                     wait_gemm(0)\n\
                     if any(factor < 1.0, 1) {{ acc = acc * factor }}\n\
                     p = {weights_of_f}\n\
                     {rest}\
                 }}\n\
             {inside}\
             }}\n\
             {behind}",
            weights_of_e = weights("e"),
            weights_of_f = weights("f"),
            added_last = self.added(role, "last"),
            added_key = self.added(role, "key"),
        )
    }

    /// The end of a tile: the last values, the sums of all threads, and the way of the results to memory.
    fn end(&self, role: &Role) -> String {
        let (config, out, values) = (self.config, self.config.results(), self.values());
        let (rows, part) = (role.rows(), role.part());
        let warpgroups = if config.ping_pong { 1 } else { config.warpgroups };
        let Ending { sunk, lse, share } =
            self.ending(role, self.one(), |one, total| format!("{one} / {total}"));
        let views = self.view_of_sequence(&rows, "DV", "e2");
        let results = self.of_queries("go", role, ":");
        let staged = if config.through_queries() { format!("xq{part}") } else { format!("xo{part}") };
        format!(
            "consume vp {{\n\
                 gemm.async(acc, p, {values})\n\
                 commit_gemm()\n\
             }}\n\
             total = reduce(sums, sum, 1, keep)\n\
             wait_gemm(0)\n\
             {sunk}\
             {lse}\
             // Each warp its own rows, through shared memory, to be written in long pieces.\n\
             syncthreads(warpgroup)\n\
             share = {share}\n\
             acc = acc * share\n\
             copy(cast(acc, {out}), {staged})\n\
             syncthreads(warpgroup)\n\
             result = register_tensor({out}, [{rows}, DV], layout = {layout})\n\
             copy({staged}, result)\n\
             {views}\
             copy(result, {results})\n",
            layout = rows_by_warp(64 * warpgroups, 4 * warpgroups, config.values()),
        )
    }
}
