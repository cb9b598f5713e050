//! The form for multi-head latent attention, where the values of a key are its first columns, and many heads share them: by wgmma, with two
//! warpgroups that each have half of the keys of a block in the first product, and half of the columns in the second. Weights meet in shared memory.

use super::AttentionDecodeConfig;
use super::text::MASKED;

impl AttentionDecodeConfig {
    /// The body: a warpgroup that copies, and two that multiply.
    pub(super) fn latent(&self) -> String {
        let dtype = self.dtype;
        let numbers = self.numbers();
        format!(
            "xq = shared_tensor({dtype}, [BM, DV])\n\
             xs = shared_tensor({dtype}, [BM, DR])\n\
             xk = shared_tensor({dtype}, [BN, DV])\n\
             xr = shared_tensor({dtype}, [BN, DR])\n\
             xw = shared_tensor({dtype}, [BM, BN])\n\
             qp = pipeline(1, xq, xs)\n\
             kp = pipeline(STAGES, xk, xr)\n\
             warpgroup load(1) registers(64) {{\n\
             {numbers}\
                 if blocks > 0 {{\n\
                     gq = global_view(q{rows}, :], ((HEADS, TOKENS), DV) : ({steps}, {e}))\n\
                     gs = global_view(q{rows}, DV :], ((HEADS, TOKENS), DR) : ({steps}, {e}))\n\
                     produce qp {{\n\
                         copy.async(gq, xq)\n\
                         copy.async(gs, xs)\n\
                     }}\n\
             {views}\
                     for i in 0..blocks {{\n\
                         produce kp {{\n\
             {copies}\
                         }}\n\
                     }}\n\
                 }}\n\
             }}\n\
             warpgroup math(2) registers(216) {{\n\
             {numbers}\
             {blocks}\
             {end}\
             }}\n",
            rows = self.at_rows(),
            steps = self.row_steps(),
            e = self.step(3),
            views = self.views(),
            copies = self.copies("i", ""),
            blocks = self.latent_blocks(),
            end = self.end(),
        )
    }

    /// The loop over blocks of keys of the role that multiplies.
    fn latent_blocks(&self) -> String {
        format!(
            "acc = register_tensor(f32, [BM, DV])\n\
             most = register_tensor(f32, [BM, 1])\n\
             sums = register_tensor(f32, [BM, 16])\n\
             fill(acc, 0.0)\n\
             fill(most, {MASKED})\n\
             fill(sums, 0.0)\n\
             if blocks > 0 {{\n\
                 consume qp {{\n\
                     for j in 0..blocks {{\n\
                         consume kp {{\n\
                             s = register_tensor(f32, [BM, BN])\n\
                             fill(s, 0.0)\n\
                             gemm.async(s, xq, xk, warpgroups = (1, 2))\n\
                             gemm.async(s, xs, xr, warpgroups = (1, 2))\n\
                             commit_gemm()\n\
                             wait_gemm(0)\n\
                             let key = first + j * BN\n\
             {scores}\
                             // The reference moves where a score outgrows it by 2⁸.\n\
                             top = reduce(s, max, 1, keep)\n\
                             if any(top > most + 8.0, 1) {{\n\
                                 grown = max(most, top)\n\
                                 factor = exp2(most - grown)\n\
                                 most = grown\n\
                                 sums = sums * factor\n\
                                 acc = acc * factor\n\
                             }}\n\
                             e = exp2(s - most)\n\
                             // Each warpgroup sums its own half.\n\
                             sums = sums + reshape(reduce(reshape(e, [BM, 8, BN / 16, 2]), sum, 2), [BM, 16])\n\
                             copy(cast(e, {dtype}), xw)\n\
                             syncthreads()\n\
                             gemm.async(acc, xw, transpose(xk), warpgroups = (1, 2))\n\
                             commit_gemm()\n\
                             wait_gemm(0)\n\
                             syncthreads()\n\
                         }}\n\
                     }}\n\
                 }}\n\
             }}\n",
            scores = self.scores(),
            dtype = self.dtype,
        )
    }
}
