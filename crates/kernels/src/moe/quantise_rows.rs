//! Activations of 8 bits with a scale for each row, as products with `row_scale` read them: of a matrix, of rows of it that a table names, or of gated
//! units made of two.

use tilewright_machine::{DType, Feature, Features};

use super::limits::{check_dtype, check_threads, dependencies, launch_needs, one_program};
use crate::config::{Codec, ConfigError, dtype_of, parameters};
use crate::warp_specialized::within;

parameters! {
    /// The quantisation of activations by rows.
    #[derive(Copy)]
    pub struct MoeQuantiseRowsConfig, "moe_quantise_rows", programs {
        /// The type of x: f16, bf16 or f32.
        dtype: DType as LAYERS = DType::BF16,
        /// The type of y: e4m3 or i8.
        out: DType as ROUNDED = DType::E4M3,
        /// Quantises silu(g) · u of x[m, 2 n], whose rows have g and then u; else x[m, n].
        gated: bool as FLAG = false,
        /// Row i of y is that of `x[r, n]` whose number `rows[i]` is, of i32; zeros where that is none.
        gather: bool as FLAG = false,
        /// Columns that a block reads at a time, a power of two.
        bn: i64 as INT = 2048,
        /// Threads of a block.
        threads: i64 as INT = 256,
        /// Programmatic dependent launch: the program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

/// The types of y.
const ROUNDED: [DType; 2] = [DType::E4M3, DType::I8];

impl Codec<DType> {
    const ROUNDED: Self =
        Codec { read: |field, text| dtype_of(&ROUNDED, field, text), write: DType::to_string };
}

one_program! {
    /// The program, with the sizes `m` and `n`, with `gather` also `r`, and the tensors `x[m, n]`, `x[m, 2 · n]` or `x[r, n]` with `rows[m]` (i32), `y[m, n]` and
    /// `s[m]` (f32).
    MoeQuantiseRowsConfig
}

impl MoeQuantiseRowsConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dtype(self.dtype)?;
        check_threads(self.threads)?;
        if !ROUNDED.contains(&self.out) {
            return Err(ConfigError::value("out", self.out, "must be e4m3 or i8"));
        }
        if self.gated && self.gather {
            let wanted = "units are in the order of experts: must be false with gated=true";
            return Err(ConfigError::value("gather", self.gather, wanted));
        }
        within("bn", self.bn, [32, 16384], 32)?;
        let held = self.bn / self.threads;
        if self.bn.count_ones() != 1 || held > 32 {
            let wanted = format!(
                "must be a power of two from 32 to 16384, and {} threads hold at most 32 numbers each of it",
                self.threads
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        Ok(())
    }

    /// The largest number that a row's largest is rounded to.
    pub(super) fn most(&self) -> f64 {
        if self.out == DType::I8 { 127.0 } else { 448.0 }
    }

    /// The features that the program needs.
    pub fn needs(&self) -> Features {
        let rounded = if self.out == DType::E4M3 { Feature::Fp8Conversion.into() } else { Features::NONE };
        launch_needs(self.dependent) | rounded
    }

    /// The statements that define the numbers `v` of a part of the row, whose names end with a letter of the loop's.
    fn part(&self, of: &str) -> String {
        let dtype = self.dtype;
        let load = |name: &str, from: &str| {
            format!(
                "        {name}{of} = register_tensor({dtype}, [1, BN])\n        \
                         copy({from}, {name}{of})\n"
            )
        };
        let row = if self.gather { "number" } else { ":" };
        if self.gated {
            let both = load("gate", &format!("gg[:, :, {of}]")) + &load("up", &format!("gu[:, :, {of}]"));
            return format!(
                "{both}        \
                 g{of} = cast(gate{of}, f32)\n        \
                 v{of} = fdividef(g{of}, 1.0 + exp(-g{of})) * cast(up{of}, f32)\n"
            );
        }
        load("x", &format!("gx[{row}, :, {of}]")) + &format!("        v{of} = cast(x{of}, f32)\n")
    }

    fn text(&self) -> String {
        let MoeQuantiseRowsConfig { dtype, out, bn, threads, .. } = *self;
        let wait = dependencies(self.dependent);
        let modes = |rows: &str| format!("({rows}, BN, ceil_div(n, BN)) : (e0, e1, BN * e1)");
        let (size, parameters, views) = match (self.gated, self.gather) {
            (true, _) => (
                "",
                format!("x: {dtype}[m, 2 * n]"),
                format!(
                    "    gg = global_view(x[block.x :, : n], {one})\n    \
                         gu = global_view(x[block.x :, n :], {one})\n",
                    one = modes("1")
                ),
            ),
            (false, true) => (
                ", r = 64",
                format!("x: {dtype}[r, n], rows: i32[m]"),
                format!(
                    "    gx = global_view(x, {})\n    \
                         gn = global_view(rows[block.x :], (1) : (e0))\n    \
                         number = register_tensor(i32, [1])\n    \
                         copy(gn, number, outside = -1)\n",
                    modes("r")
                ),
            ),
            (false, false) => (
                "",
                format!("x: {dtype}[m, n]"),
                format!("    gx = global_view(x[block.x :, :], {})\n", modes("1")),
            ),
        };
        format!(
            "// y = v / s rounded to {out}, with s = max(|v|) / {most} of each row of v: a pass for the maxima, one for the results.\n\
             size m = 64, n = 1000{size}\n\
             const BN = {bn}, THREADS = {threads}\n\
             \n\
             kernel moe_quantise_rows({parameters}, y: {out}[m, n], s: f32[m]) grid(m) threads(THREADS)\n\
             {{\n\
             {wait}{views}    \
                 gy = global_view(y[block.x :, :], (1, BN, ceil_div(n, BN)) : (e0, e1, BN * e1))\n    \
                 gs = global_view(s[block.x :], (1) : (e0))\n    \
                 most = register_tensor(f32, [1, BN])\n    \
                 fill(most, 0.0)\n    \
                 for i in 0..ceil_div(n, BN) {{\n\
             {first}        \
                     most = max(most, abs(vi))\n    \
                 }}\n    \
                 // Of a row of zeros the scale is the least normal number.\n    \
                 scale = max(reduce(most, max, 1) * (1.0 / {most}.0), 1.1754943508222875e-38)\n    \
                 copy(scale, gs)\n    \
                 inverse = 1.0 / scale\n    \
                 for j in 0..ceil_div(n, BN) {{\n\
             {second}        \
                     copy(cast(vj * expand(inverse, 1), {out}), gy[:, :, j])\n    \
                 }}\n\
             }}\n",
            most = self.most(),
            first = self.part("i"),
            second = self.part("j"),
        )
    }
}
