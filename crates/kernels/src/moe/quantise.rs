//! Activations in 8-bit floats with a scale for 128 columns of a row, as products of scaled blocks read them: of a matrix, or of gated units made of two.

use tilewright_machine::{DType, Feature, Features};

use super::limits::{check_dtype, check_threads, dependencies, launch_needs, one_program};
use crate::config::{ConfigError, parameters};
use crate::warp_specialized::within;

parameters! {
    /// The quantisation of activations.
    #[derive(Copy)]
    pub struct MoeQuantiseConfig, "moe_quantise", programs {
        /// The type of x: f16, bf16 or f32.
        dtype: DType as LAYERS = DType::BF16,
        /// Quantises silu(g) · u of x[m, 2 n], whose rows have g and then u; else x[m, n].
        gated: bool as FLAG = false,
        /// Rows of a block's tile.
        bm: i64 as INT = 4,
        /// Columns of a block's tile, in blocks of 128.
        blocks: i64 as INT = 2,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// Programmatic dependent launch: the program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

one_program! {
    /// The program, with the sizes `m` and `n` and the tensors `x[m, n]`, or `x[m, 2 · n]`, `y[m, n]` (e4m3) and `s[ceil_div(n, 128), m]` (f32).
    MoeQuantiseConfig
}

impl MoeQuantiseConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dtype(self.dtype)?;
        check_threads(self.threads)?;
        within("bm", self.bm, [1, 128], 1)?;
        within("blocks", self.blocks, [1, 64], 1)?;
        let held = self.bm * self.blocks * 128 / self.threads;
        if self.bm.count_ones() != 1 || self.blocks.count_ones() != 1 || held > 32 {
            let wanted = format!(
                "bm and blocks must be powers of two, and {} threads hold at most 32 numbers each of bm · blocks · 128",
                self.threads
            );
            return Err(ConfigError::value("bm", self.bm, wanted));
        }
        Ok(())
    }

    /// The features that the program needs.
    pub fn needs(&self) -> Features {
        launch_needs(self.dependent) | Feature::Fp8Conversion.into()
    }

    fn text(&self) -> String {
        let MoeQuantiseConfig { dtype, bm, blocks, threads, .. } = *self;
        let wait = dependencies(self.dependent);
        let (what, shape, load) = match self.gated {
            false => (
                "x",
                "[m, n]",
                format!(
                    "    gx = global_view(x[block.x * BM :, block.y * BN :], (BM, BN / 128, 128) : (e0, 128e1, e1))\n    \
                         r = register_tensor({dtype}, [BM, BN / 128, 128])\n    \
                         copy(gx, r)\n    \
                         v = cast(r, f32)\n"
                ),
            ),
            true => (
                "silu(x[:, : n]) · x[:, n :]",
                "[m, 2 * n]",
                format!(
                    "    gg = global_view(x[block.x * BM :, block.y * BN : n], (BM, BN / 128, 128) : (e0, 128e1, e1))\n    \
                         gu = global_view(x[block.x * BM :, n + block.y * BN :], (BM, BN / 128, 128) : (e0, 128e1, e1))\n    \
                         gate = register_tensor({dtype}, [BM, BN / 128, 128])\n    \
                         up = register_tensor({dtype}, [BM, BN / 128, 128])\n    \
                         copy(gg, gate)\n    \
                         copy(gu, up)\n    \
                         g = cast(gate, f32)\n    \
                         v = fdividef(g, 1.0 + exp(-g)) * cast(up, f32)\n"
                ),
            ),
        };
        format!(
            "// y = v / s rounded to e4m3, with s = max(|v|) / 448 of each block of 128 columns of a row of v = {what}.\n\
             size m = 64, n = 1024\n\
             const BM = {bm}, BN = {columns}, THREADS = {threads}\n\
             \n\
             kernel moe_quantise(x: {dtype}{shape}, y: e4m3[m, n], s: f32[ceil_div(n, 128), m])\n    \
                 grid(ceil_div(m, BM), ceil_div(n, BN)) threads(THREADS)\n\
             {{\n\
             {wait}    \
                 gy = global_view(y[block.x * BM :, block.y * BN :], (BM, BN / 128, 128) : (e0, 128e1, e1))\n    \
                 gs = global_view(s[block.y * (BN / 128) :, block.x * BM :], (BM, BN / 128) : (e1, e0))\n\
             {load}    \
                 // Of a block of zeros the scale is the least normal number.\n    \
                 scale = max(reduce(abs(v), max, 2) * (1.0 / 448.0), 1.1754943508222875e-38)\n    \
                 copy(scale, gs)\n    \
                 copy(cast(v * expand(1.0 / scale, 2), e4m3), gy)\n\
             }}\n",
            columns = blocks * 128,
        )
    }
}
