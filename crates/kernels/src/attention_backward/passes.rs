//! The texts of the passes before and behind the main program, which move memory and little else.

use super::{AttentionBackwardConfig, Writer};

/// A block of queries of these passes: its batch and its number.
const BLOCK: [&str; 2] = ["block.z", "block.x"];

impl Writer<'_> {
    /// The pass before: of each query the logarithm of its sum in powers of two, and delta = rowsum(do ∘ o); zeros for the sums of dq.
    pub(super) fn prepare(&self) -> String {
        let AttentionBackwardConfig { dtype, d, .. } = *self.config;
        let (dv, bm) = (self.config.values(), self.config.block_of_queries());
        let gradients = self.of("sq", "hq", "DV");
        let (sums, zeros, constant) = if self.config.deterministic {
            (String::new(), String::new(), String::new())
        } else {
            (
                format!(", {}", self.sums()),
                format!(
                    "{}\
                     z = register_tensor(f32, [256, BM * D / 256])\n\
                     fill(z, 0.0)\n\
                     copy(z, gsums[{}, :, :])\n",
                    self.view_of_sums(),
                    self.of_block(BLOCK, "block.y", "")
                ),
                format!(", D = {d}"),
            )
        };
        let logarithms = match self.config.varlen {
            true => "glse = global_view(lse, (hq, BM, tq) : (e0, e1, e1))\n",
            false => "glse = global_view(lse, (b, hq, BM, ceil_div(sq, BM)) : (e0, e1, e2, BM * e2))\n",
        };
        let of_lse = if self.config.varlen { "block.y, :, q0 + row" } else { "block.z, block.y, :, block.x" };
        // Nor has one behind the end, whose scores may be anything where they are more than products.
        let some = match (self.config.varlen, self.config.adds_to_scores()) {
            (true, _) => "logarithms > -inf and index(0) + row < qe - q0",
            (false, true) => "logarithms > -inf and index(0) + block.x * BM < sq",
            (false, false) => "logarithms > -inf",
        };
        let rows = |name: &str| self.block(name, BLOCK, "q0 + row", "block.y");
        let stats = |which: &str| self.of_block(BLOCK, "block.y", which);
        let body = format!(
            "copy({o}, ro)\n\
             copy({dout}, rdo)\n\
             copy(glse[{of_lse}], logarithms)\n\
             {zeros}\
             launch_dependents()\n\
             delta = reduce(cast(ro, f32) * cast(rdo, f32), sum, 1)\n\
             // A query without a key has no weights.\n\
             some = {some}\n\
             copy(where(some, logarithms * 1.4426950408889634, inf), gstats[{first}])\n\
             copy(where(some, delta, 0.0), gstats[{second}])\n",
            o = rows("o"),
            dout = rows("dout"),
            first = stats("0, :, "),
            second = stats("1, :, "),
        );
        format!(
            "{sizes}\
             const BM = {bm}, DV = {dv}{constant}\n\
             \n\
             kernel attention_backward_prepare(o: {dtype}{gradients}, dout: {dtype}{gradients}, lse: f32[{of}], {stats}{sums}{begins})\n\
             grid(ceil_div(sq, BM), hq, b) threads(128)\n\
             {{\n\
             {o}{dout}\
                 {logarithms}\
             {views}\
                 ro = register_tensor({dtype}, [BM, DV])\n\
                 rdo = register_tensor({dtype}, [BM, DV])\n\
                 logarithms = register_tensor(f32, [BM])\n\
                 wait_dependencies()\n\
             {numbers}{body}\
             }}\n",
            sizes = self.sizes(false),
            of = if self.config.varlen { "hq, tq" } else { "b, hq, sq" },
            stats = self.stats(),
            begins = self.begins(false),
            o = self.view("o", ["BM", "sq", "hq", "DV"]),
            dout = self.view("dout", ["BM", "sq", "hq", "DV"]),
            views = self.view_of_stats(),
            numbers = self.numbers_of_block(),
            body = self.within("row < qe - q0", &body),
        )
    }

    /// The numbers of a block of queries of a sequence.
    fn numbers_of_block(&self) -> String {
        match self.config.varlen {
            true => format!("let {}, row = block.x * BM\n", self.queries_of("block.z")),
            false => String::new(),
        }
    }

    /// The pass behind: dq in its type.
    pub(super) fn convert(&self) -> String {
        let AttentionBackwardConfig { dtype, d, .. } = *self.config;
        let (queries, sums, bm) =
            (self.of("sq", "hq", "D"), self.config.sums(), self.config.block_of_queries());
        let back = sums.back("r");
        let rows = if sums.swapped { format!("transpose({back})") } else { back };
        let scale = (d as f64).sqrt().recip();
        let of_dq = ["BM", "sq", "hq", "D"];
        let end = match self.config.varlen {
            true => self.part("dq", "[: qe, :, :]", of_dq),
            false => self.view("dq", of_dq),
        };
        let (before, inside) = if self.config.varlen { (String::new(), end) } else { (end, String::new()) };
        let body = format!(
            "copy(gsums[{sums}, :, :], r)\n\
             y = cast({rows} * scale, {dtype})\n\
             {inside}\
             copy(rearrange(y), {dq})\n",
            sums = self.of_block(BLOCK, "block.y", ""),
            dq = self.block("dq", BLOCK, "q0 + row", "block.y"),
        );
        format!(
            "{sizes}\
             const BM = {bm}, D = {d}\n\
             \n\
             kernel attention_backward_convert({sums}, dq: {dtype}{queries}{begins}, scale: f32 = {scale:.9})\n\
             grid(ceil_div(sq, BM), hq, b) threads(128)\n\
             {{\n\
             {before}\
                 {gsums}\
                 r = register_tensor(f32, [256, BM * D / 256])\n\
                 wait_dependencies()\n\
             {numbers}{body}\
                 launch_dependents()\n\
             }}\n",
            sizes = self.sizes(false),
            sums = self.sums(),
            begins = self.begins(false),
            gsums = self.view_of_sums(),
            numbers = self.numbers_of_block(),
            body = self.within("row < qe - q0", &body),
        )
    }
}
