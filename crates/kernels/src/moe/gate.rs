//! Gated units of the sums of both matrices ahead, where a product leaves these in memory.

use tilewright_machine::{DType, Features};

use super::limits::{check_dtype, check_threads, check_tile, dependencies, launch_needs, one_program};
use crate::config::{ConfigError, parameters};

parameters! {
    /// The gated units of rows that have both factors.
    #[derive(Copy)]
    pub struct MoeGateConfig, "moe_gate", programs {
        /// The type of x and y: f16, bf16 or f32.
        dtype: DType as LAYERS = DType::F16,
        /// Rows of a block's tile.
        bm: i64 as INT = 1,
        /// Columns of a block's tile of y.
        bn: i64 as INT = 1024,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// Programmatic dependent launch: the program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

one_program! {
    /// The program, with the sizes `m` and `n` and the tensors `x[m, 2 · n]` and `y[m, n]`.
    MoeGateConfig
}

impl MoeGateConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dtype(self.dtype)?;
        check_threads(self.threads)?;
        check_tile(self.bm, self.bn, self.threads, 32)
    }

    /// The features that the program needs.
    pub fn needs(&self) -> Features {
        launch_needs(self.dependent)
    }

    fn text(&self) -> String {
        let MoeGateConfig { dtype, bm, bn, threads, .. } = *self;
        let wait = dependencies(self.dependent);
        format!(
            "// y = silu(x[:, : n]) · x[:, n :].\n\
             size m = 64, n = 1024\n\
             const BM = {bm}, BN = {bn}, THREADS = {threads}\n\
             \n\
             kernel moe_gate(x: {dtype}[m, 2 * n], y: {dtype}[m, n])\n    \
                 grid(ceil_div(m, BM), ceil_div(n, BN)) threads(THREADS)\n\
             {{\n\
             {wait}    \
                 gg = global_view(x[block.x * BM :, block.y * BN : n], (BM, BN) : (e0, e1))\n    \
                 gu = global_view(x[block.x * BM :, n + block.y * BN :], (BM, BN) : (e0, e1))\n    \
                 gy = global_view(y[block.x * BM :, block.y * BN :], (BM, BN) : (e0, e1))\n    \
                 gate = register_tensor({dtype}, [BM, BN])\n    \
                 up = register_tensor({dtype}, [BM, BN])\n    \
                 copy(gg, gate)\n    \
                 copy(gu, up)\n    \
                 g = cast(gate, f32)\n    \
                 v = fdividef(g, 1.0 + exp(-g)) * cast(up, f32)\n    \
                 copy(cast(v, {dtype}), gy)\n\
             }}\n"
        )
    }
}
