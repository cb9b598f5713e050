//! Rows of tokens in the order of their experts, for products that read neighbours: by the tensor memory accelerator, which takes no threads.

use tilewright_machine::{DType, Features};

use super::limits::{check_dtype, check_threads, check_tile, dependencies, launch_needs, one_program};
use crate::config::{ConfigError, parameters};

parameters! {
    /// The rows of a table of their numbers.
    #[derive(Copy)]
    pub struct MoeGatherConfig, "moe_gather", programs {
        /// The type of x and y: f16, bf16 or f32.
        dtype: DType as LAYERS = DType::F16,
        /// Rows of a block's tile.
        bm: i64 as INT = 2,
        /// Columns of a block's tile.
        bn: i64 as INT = 1024,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// Programmatic dependent launch: the program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

one_program! {
    /// The program, with the sizes `m`, `r` and `n` and the tensors `x[r, n]`, `rows[m]` (i32) and `y[m, n]`. Numbers that are none of a row give zeros.
    MoeGatherConfig
}

impl MoeGatherConfig {
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
        let MoeGatherConfig { dtype, bm, bn, threads, .. } = *self;
        let wait = dependencies(self.dependent);
        format!(
            "// y[i] = x[rows[i]].\n\
             size m = 128, r = 64, n = 1024\n\
             const BM = {bm}, BN = {bn}, THREADS = {threads}\n\
             \n\
             kernel moe_gather(x: {dtype}[r, n], rows: i32[m], y: {dtype}[m, n])\n    \
                 grid(ceil_div(m, BM), ceil_div(n, BN)) threads(THREADS)\n\
             {{\n\
             {wait}    \
                 gx = global_view(x[:, block.y * BN :], (r, BN) : (e0, e1))\n    \
                 gn = global_view(rows[block.x * BM :], (BM) : (e0))\n    \
                 gy = global_view(y[block.x * BM :, block.y * BN :], (BM, BN) : (e0, e1))\n    \
                 number = register_tensor(i32, [BM])\n    \
                 row = register_tensor({dtype}, [BM, BN])\n    \
                 copy(gn, number, outside = -1)\n    \
                 copy(gx[number, :], row)\n    \
                 copy(row, gy)\n\
             }}\n"
        )
    }
}
