//! The texts of the passes before and behind the main program, which move memory and little else.

use super::AttentionBackwardConfig;

impl AttentionBackwardConfig {
    /// The pass before: of each query the logarithm of its sum in powers of two, and delta = rowsum(do ∘ o); zeros for the sums of dq.
    pub(super) fn prepare(&self) -> String {
        let AttentionBackwardConfig { dtype, d, .. } = *self;
        let (dv, bm) = (self.values(), self.block_of_queries());
        let gradients = self.of("sq", "hq", "DV");
        let (sums, zeros, constant) = if self.deterministic {
            ("", "", String::new())
        } else {
            (
                ", sums: f32[b, hq, ceil_div(sq, BM), BM * D / 256, 256]",
                "gsums = global_view(sums, (b, hq, ceil_div(sq, BM), 256, BM * D / 256) : (e0, e1, e2, e4, e3))\n\
                 z = register_tensor(f32, [256, BM * D / 256])\n\
                 fill(z, 0.0)\n\
                 copy(z, gsums[block.z, block.y, block.x, :, :])\n",
                format!(", D = {d}"),
            )
        };
        format!(
            "size b = 1, hq = 4, sq = 384\n\
             const BM = {bm}, DV = {dv}{constant}\n\
             \n\
             kernel attention_backward_prepare(o: {dtype}{gradients}, dout: {dtype}{gradients}, lse: f32[b, hq, sq], \
             stats: f32[b, hq, 2, BM * ceil_div(sq, BM)]{sums})\n\
             grid(ceil_div(sq, BM), hq, b) threads(128)\n\
             {{\n\
             {o}{dout}\
                 glse = global_view(lse, (b, hq, BM, ceil_div(sq, BM)) : (e0, e1, e2, BM * e2))\n\
                 gstats = global_view(stats, (b, hq, 2, BM, ceil_div(sq, BM)) : (e0, e1, e2, e3, BM * e3))\n\
                 ro = register_tensor({dtype}, [BM, DV])\n\
                 rdo = register_tensor({dtype}, [BM, DV])\n\
                 logarithms = register_tensor(f32, [BM])\n\
                 wait_dependencies()\n\
                 copy(go[block.z, :, block.x, block.y, :], ro)\n\
                 copy(gdout[block.z, :, block.x, block.y, :], rdo)\n\
                 copy(glse[block.z, block.y, :, block.x], logarithms)\n\
                 {zeros}\
                 launch_dependents()\n\
                 delta = reduce(cast(ro, f32) * cast(rdo, f32), sum, 1)\n\
                 // A query without a key has no weights.\n\
                 some = logarithms > -inf\n\
                 copy(where(some, logarithms * 1.4426950408889634, inf), gstats[block.z, block.y, 0, :, block.x])\n\
                 copy(where(some, delta, 0.0), gstats[block.z, block.y, 1, :, block.x])\n\
             }}\n",
            o = self.view("o", ["BM", "sq", "hq", "DV"]),
            dout = self.view("dout", ["BM", "sq", "hq", "DV"]),
        )
    }

    /// The pass behind: dq in its type.
    pub(super) fn convert(&self) -> String {
        let AttentionBackwardConfig { dtype, d, .. } = *self;
        let (queries, sums, bm) = (self.of("sq", "hq", "D"), self.sums(), self.block_of_queries());
        let back = sums.back("r");
        let rows = if sums.swapped { format!("transpose({back})") } else { back };
        let scale = (d as f64).sqrt().recip();
        format!(
            "size b = 1, hq = 4, sq = 384\n\
             const BM = {bm}, D = {d}\n\
             \n\
             kernel attention_backward_convert(sums: f32[b, hq, ceil_div(sq, BM), BM * D / 256, 256], dq: {dtype}{queries}, scale: f32 = {scale:.9})\n\
             grid(ceil_div(sq, BM), hq, b) threads(128)\n\
             {{\n\
             {view}\
                 gsums = global_view(sums, (b, hq, ceil_div(sq, BM), 256, BM * D / 256) : (e0, e1, e2, e4, e3))\n\
                 r = register_tensor(f32, [256, BM * D / 256])\n\
                 wait_dependencies()\n\
                 copy(gsums[block.z, block.y, block.x, :, :], r)\n\
                 y = cast({rows} * scale, {dtype})\n\
                 copy(rearrange(y), gdq[block.z, :, block.x, block.y, :])\n\
                 launch_dependents()\n\
             }}\n",
            view = self.view("dq", ["BM", "sq", "hq", "D"]),
        )
    }
}
