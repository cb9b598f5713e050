//! Zeros where results of tokens' experts are added.

use tilewright_machine::{DType, Features};

use super::limits::{check_dtype, check_threads, check_tile, dependencies, launch_needs, one_program};
use crate::config::{ConfigError, parameters};

parameters! {
    /// Rows of zeros.
    #[derive(Copy)]
    pub struct MoeClearConfig, "moe_clear", programs {
        /// The type of y: f16, bf16 or f32.
        dtype: DType as LAYERS = DType::F16,
        /// Rows of a block's tile.
        bm: i64 as INT = 4,
        /// Columns of a block's tile.
        bn: i64 as INT = 1024,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// Programmatic dependent launch: the program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

one_program! {
    /// The program, with the sizes `m` and `n` and the tensor `y[m, n]`.
    MoeClearConfig
}

impl MoeClearConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dtype(self.dtype)?;
        check_threads(self.threads)?;
        check_tile(self.bm, self.bn, self.threads, 64)
    }

    /// The features that the program needs.
    pub fn needs(&self) -> Features {
        launch_needs(self.dependent)
    }

    fn text(&self) -> String {
        let MoeClearConfig { dtype, bm, bn, threads, .. } = *self;
        let wait = dependencies(self.dependent);
        format!(
            "// y = 0.\n\
             size m = 64, n = 1024\n\
             const BM = {bm}, BN = {bn}, THREADS = {threads}\n\
             \n\
             kernel moe_clear(y: {dtype}[m, n])\n    \
                 grid(ceil_div(m, BM), ceil_div(n, BN)) threads(THREADS)\n\
             {{\n\
             {wait}    \
                 gy = global_view(y[block.x * BM :, block.y * BN :], (BM, BN) : (e0, e1))\n    \
                 zeros = register_tensor({dtype}, [BM, BN])\n    \
                 fill(zeros, 0.0)\n    \
                 copy(zeros, gy)\n\
             }}\n"
        )
    }
}
