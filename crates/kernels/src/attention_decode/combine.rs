//! The second program, which adds the parts of each row.

use super::AttentionDecodeConfig;
use super::text::MASKED;

/// Threads of a block of the second program.
const COMBINE_THREADS: i64 = 128;

impl AttentionDecodeConfig {
    /// The second program: the sum of the parts of each row, in their order.
    pub(super) fn combine(&self) -> String {
        let (dtype, dv, parts, bn, group) = (self.dtype, self.values(), self.parts, self.bn, self.group);
        let size = if self.page.is_some() { "mb = 8" } else { "sk = 384" };
        let (hk, constant) = self.kv_heads();
        let page = self.page.map_or(String::new(), |page| format!(", PAGE = {page}"));
        let places = self.places();
        let wait = self.dependencies("    wait_dependencies()\n    launch_dependents()\n");
        let lse = if self.lse { format!(", lse: f32[{places}, hk * G]") } else { String::new() };
        let (text, slots) = (self.combined(), self.slots());
        if self.varlen {
            return format!(
                "size b = 2, {hk}tq = 5, {slots} = 3\n\
                 const {constant}G = {group}, DV = {dv}, PARTS = {parts}\n\
                 \n\
                 kernel combine(cu_q: i32[b + 1], po: f32[tq, hk * G, {slots}, DV], pl: f32[tq, hk * G, {slots}], o: {dtype}[tq, hk * G, DV]{lse})\n\
                 grid(hk * G, tq) threads({COMBINE_THREADS})\n\
                 {{\n\
                 {wait}\
                     // Tokens that no sequence has are left alone.\n\
                     if cu_q[0] <= block.y and block.y < cu_q[b] {{\n\
                 {text}\
                     }}\n\
                 }}\n",
            );
        }
        format!(
            "size b = 2, {hk}sq = 1, {size}, splits = 3, chunk = 128\n\
             const {constant}G = {group}, BN = {bn}, DV = {dv}, PARTS = {parts}{page}\n\
             \n\
             kernel combine(len: i32[b], po: f32[b, sq, hk * G, splits, DV], pl: f32[b, sq, hk * G, splits], o: {dtype}[b, sq, hk * G, DV]{lse})\n\
             grid(hk * G, sq, b) threads({COMBINE_THREADS})\n\
             {{\n\
             {wait}{length}\
                 let parts = min(splits, ceil_div(max(length - begin, 0), step))\n\
             {text}\
             }}\n",
            length = self.length(),
        )
    }

    /// The statements that add the parts of the block's row.
    fn combined(&self) -> String {
        let (dtype, slots) = (self.dtype, self.slots());
        let row = if self.varlen { "[block.y :, block.x :" } else { "[block.z :, block.y :, block.x :" };
        let [head, part, element] = [2, 3, 4].map(|mode| self.step(mode));
        let write = if self.lse {
            format!(
                "    gs = global_view(lse{row}], (1, 1) : ({}, {head}))\n    copy((most + log2(total)) * 0.6931471805599453, gs)\n",
                self.step(1)
            )
        } else {
            String::new()
        };
        // Parts that have keys are the first, or those that say so: others are not read.
        let (end, count, values) = if self.varlen {
            ("", slots, "gp[where(reshape(logarithms, [PARTS]) > -inf, i * PARTS + index(0), -1), :]")
        } else {
            (" : parts", "parts", "gp[:, i, :]")
        };
        let views = if self.varlen {
            format!(
                "    gp = global_view(po{row}, :, :], ({slots}, DV) : ({part}, {element}))\n\
                     gl = global_view(pl{row}, :], (PARTS, ceil_div({slots}, PARTS), 1) : ({part}, PARTS * {part}, e0))\n"
            )
        } else {
            format!(
                "    gp = global_view(po{row},{end}, :], (PARTS, ceil_div(splits, PARTS), DV) : ({part}, PARTS * {part}, {element}))\n\
                     gl = global_view(pl{row},{end}], (PARTS, ceil_div(splits, PARTS), 1) : ({part}, PARTS * {part}, e0))\n"
            )
        };
        format!(
            "{views}\
                 go = global_view(o{row}, :], (1, DV) : (e0, {results}))\n\
                 acc = register_tensor(f32, [1, DV])\n\
                 most = register_tensor(f32, [1, 1])\n\
                 total = register_tensor(f32, [1, 1])\n\
                 fill(acc, 0.0)\n\
                 fill(most, {MASKED})\n\
                 fill(total, 0.0)\n\
                 for i in 0..ceil_div({count}, PARTS) {{\n\
                     values = register_tensor(f32, [PARTS, DV])\n\
                     logarithms = register_tensor(f32, [PARTS, 1])\n\
                     copy(gl[:, i, :], logarithms, outside = -inf)\n\
                     copy({values}, values)\n\
                     grown = max(most, reduce(logarithms, max, 0, keep))\n\
                     factor = exp2(most - grown)\n\
                     weights = exp2(logarithms - grown)\n\
                     most = grown\n\
                     total = total * factor + reduce(weights, sum, 0, keep)\n\
                     acc = acc * factor + reduce(values * weights, sum, 0, keep)\n\
                 }}\n\
                 copy(cast(where(total > 0.0, acc / total, 0.0), {dtype}), go)\n\
             {write}",
            results = part,
        )
    }
}
