//! The sum of the results of each token's experts, by their weights and in their order.

use tilewright_machine::{DType, Features};

use super::limits::{MOST_TAKEN, check_dtype, check_threads, dependencies, launch_needs, one_program};
use crate::config::{ConfigError, parameters};
use crate::warp_specialized::within;

parameters! {
    /// The sum of the results of tokens' experts.
    #[derive(Copy)]
    pub struct MoeCombineConfig, "moe_combine", programs {
        /// The type of c and y: f16, bf16 or f32. Sums are f32.
        dtype: DType as LAYERS = DType::F16,
        /// Experts of a token, 1 to 8.
        k: i64 as INT = 2,
        /// Multiplies the results by weights[tokens, k], of f32; else they are added as they are.
        weighted: bool as FLAG = true,
        /// Columns of a block's tile, a power of two.
        bn: i64 as INT = 1024,
        /// Threads of a block.
        threads: i64 as INT = 128,
        /// Programmatic dependent launch: the program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

one_program! {
    /// The program, with the sizes `tokens`, `n` and `m` and the tensors `c[m, n]`, `places[tokens · k]` (i32), `weights[tokens, k]` (f32) and
    /// `y[tokens, n]`.
    MoeCombineConfig
}

impl MoeCombineConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dtype(self.dtype)?;
        within("k", self.k, [1, MOST_TAKEN], 1)?;
        check_threads(self.threads)?;
        let held = self.k * self.bn / self.threads;
        if !(32..=8192).contains(&self.bn) || self.bn.count_ones() != 1 || held > 64 {
            let wanted = format!(
                "must be a power of two from 32 to 8192, and {} threads hold at most 64 numbers each of k = {} rows",
                self.threads, self.k
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        Ok(())
    }

    /// The features that the program needs.
    pub fn needs(&self) -> Features {
        launch_needs(self.dependent)
    }

    fn text(&self) -> String {
        let MoeCombineConfig { dtype, k, bn, threads, .. } = *self;
        let wait = dependencies(self.dependent);
        let (parameter, load, weight) = match self.weighted {
            true => (
                "weights: f32[tokens, K], ",
                "    gw = global_view(weights[block.x :, :], (K) : (e1))\n    rw = register_tensor(f32, [K])\n    copy(gw, rw)\n",
                " * expand(rw, 1)",
            ),
            false => ("", "", ""),
        };
        format!(
            "// y[t] = Σ weights[t, j] · c[places[t, j]] over the K experts of a token, in f32; places of -1 have no part.\n\
             size tokens = 64, n = 1024, m = 128\n\
             const K = {k}, BN = {bn}, THREADS = {threads}\n\
             \n\
             kernel moe_combine(c: {dtype}[m, n], places: i32[tokens * K], {parameter}y: {dtype}[tokens, n])\n    \
                 grid(tokens, ceil_div(n, BN)) threads(THREADS)\n\
             {{\n\
             {wait}    \
                 gc = global_view(c[:, block.y * BN :], (m, BN) : (e0, e1))\n    \
                 gp = global_view(places[block.x * K :], (K) : (e0))\n    \
                 gy = global_view(y[block.x :, block.y * BN :], (1, BN) : (e0, e1))\n    \
                 place = register_tensor(i32, [K])\n    \
                 rows = register_tensor({dtype}, [K, BN])\n\
             {load}    \
                 copy(gp, place)\n    \
                 copy(gc[place, :], rows)\n    \
                 total = reduce(cast(rows, f32){weight}, sum, 0, keep)\n    \
                 copy(cast(total, {dtype}), gy)\n\
             }}\n"
        )
    }
}
