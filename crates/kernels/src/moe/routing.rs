//! The choice of each token's experts: those with the largest scores, with their weights. A warp has a token.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::{DType, Features};

use super::limits::{MOST_EXPERTS, MOST_TAKEN, check_dtype, dependencies, launch_needs, one_program};
use crate::config::{ConfigError, parameters};
use crate::warp_specialized::within;

/// The function that makes scores of the logits of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scores {
    /// exp(x) over the sum of those of all experts.
    #[default]
    Softmax,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scores::Softmax => "softmax",
            Scores::Sigmoid => "sigmoid",
        })
    }
}

impl FromStr for Scores {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = [Scores::Softmax, Scores::Sigmoid].into_iter().find(|scores| scores.to_string() == text);
        found.ok_or("must be softmax or sigmoid")
    }
}

parameters! {
    /// The choice of the experts of tokens. The default is that of Mixtral.
    #[derive(Copy)]
    pub struct MoeRoutingConfig, "moe_routing", programs {
        /// The type of the logits: f16, bf16 or f32. Scores are f32.
        dtype: DType as LAYERS = DType::F32,
        /// Experts, 8 to 256.
        experts: i64 as INT = 8,
        /// Experts of a token, 1 to 8.
        k: i64 as INT = 2,
        /// Scores of logits: softmax or sigmoid.
        scores: Scores as OWN = Scores::Softmax,
        /// Divides the weights of a token by their sum.
        renormalise: bool as FLAG = true,
        /// Adds `bias[experts]`, of f32, to the scores where experts are chosen; weights are scores without it (DeepSeek-V3).
        bias: bool as FLAG = false,
        /// Groups that the experts lie in, one behind the other; with more than 1, experts come from the best groups alone: those with the largest score, or with bias the
        /// largest sum of two scores.
        groups: i64 as INT = 1,
        /// Groups that a token's experts come from.
        best_groups: i64 as INT = 1,
        /// Programmatic dependent launch: the program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

one_program! {
    /// The program, with the size `tokens` and the tensors `x[tokens, experts]`, `weights[tokens, k]` (f32) and `ids[tokens, k]` (i32): the
    /// experts of a token, the largest first, of equal ones the one with the lowest number.
    MoeRoutingConfig
}

impl MoeRoutingConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let MoeRoutingConfig { dtype, experts, k, groups, best_groups, .. } = *self;
        check_dtype(dtype)?;
        within("experts", experts, [8, MOST_EXPERTS], 1)?;
        within("k", k, [1, MOST_TAKEN.min(experts)], 1)?;
        let least = if self.bias { 2 } else { 1 };
        if groups < 1 || experts % groups != 0 || (groups > 1 && experts / groups < least) {
            let wanted = format!("must divide experts = {experts} into groups of {least} at least");
            return Err(ConfigError::value("groups", groups, wanted));
        }
        within("best_groups", best_groups, [1, groups], 1)?;
        let there = best_groups * (experts / groups);
        if there < k {
            let wanted = format!("have {there} experts, of which k = {k} are taken: must be more groups");
            return Err(ConfigError::value("best_groups", best_groups, wanted));
        }
        Ok(())
    }

    /// The features that the program needs.
    pub fn needs(&self) -> Features {
        launch_needs(self.dependent)
    }

    fn text(&self) -> String {
        let MoeRoutingConfig { dtype, experts, k, groups, best_groups, .. } = *self;
        let grouped = groups > 1 && best_groups < groups;
        // Lanes share whole rows; groups are whole as they are.
        let columns = if grouped { experts } else { (experts + 31) / 32 * 32 };
        let wait = dependencies(self.dependent);
        let (parameter, bias) = match self.bias {
            true => (
                format!("bias: f32[{experts}], "),
                "    gb = global_view(bias, (1, COLUMNS) : (0, e0))\n    rb = register_tensor(f32, [1, COLUMNS])\n    copy(gb, rb)\n",
            ),
            false => (String::new(), ""),
        };
        let sigmoid = self.scores == Scores::Sigmoid;
        let all = match (self.bias, sigmoid) {
            (_, true) if self.bias => "    score = 1.0 / (1.0 + exp(-v))\n",
            (true, _) => {
                "    e = exp(v - reduce(v, max, 1, keep))\n    score = e / reduce(e, sum, 1, keep)\n"
            }
            // The largest logits have the largest scores.
            (false, true) => "",
            (false, false) => {
                "    most = reduce(v, max, 1, keep)\n    total = reduce(exp(v - most), sum, 1, keep)\n"
            }
        };
        let chosen_by = if self.bias { "score + rb" } else { "v" };
        let (group_constants, groups_text) = if grouped {
            let group = if self.bias {
                "    best, first_of = argmax(grouped, 1)\n    group = best + reduce(where(index(1) == expand(first_of, 1), -inf, grouped), max, 1)\n"
            } else {
                "    group = reduce(grouped, max, 1)\n"
            };
            let text = format!(
                "    // Experts of other groups are as those that were taken.\n    \
                     grouped = reshape(choice, [1, COLUMNS / GROUPS, GROUPS])\n\
                 {group}    \
                     open = register_tensor(i32, [1, COLUMNS / GROUPS, GROUPS])\n    \
                     fill(open, 0)\n    \
                     unroll for l in 0..BEST {{\n        \
                         at_group = expand(reduce(where(group == reduce(group, max, 1, keep), index(1), GROUPS), min, 1), 1)\n        \
                         open = where(index(2) == expand(at_group, 1), 1, open)\n        \
                         group = where(index(1) == at_group, -inf, group)\n    \
                     }}\n    \
                     choice = reshape(where(open == 1, grouped, -inf), [1, COLUMNS])\n"
            );
            (format!(", GROUPS = {groups}, BEST = {best_groups}"), text)
        } else {
            Default::default()
        };
        let value = if self.bias {
            "        top = reduce(where(index(1) == expand(at, 1), score, 0.0), sum, 1)\n"
        } else {
            "        top = reduce(where(index(1) == expand(at, 1), v, -inf), max, 1)\n"
        };
        let score = match (self.bias, sigmoid) {
            (true, _) => "    w = taken\n",
            (false, true) => "    w = 1.0 / (1.0 + exp(-taken))\n",
            (false, false) => "    w = exp(taken - most) / total\n",
        };
        let renormalise = match self.renormalise {
            // Sigmoids may all be 0.
            true => "    w = w / (reduce(w, sum, 1, keep) + 1e-20)\n",
            false => "",
        };
        format!(
            "// The K experts of each token with the largest logits x, or scores and bias, and their weights; of equal ones the first.\n\
             size tokens = 64\n\
             const COLUMNS = {columns}, K = {k}{group_constants}\n\
             \n\
             kernel moe_routing(x: {dtype}[tokens, {experts}], {parameter}weights: f32[tokens, K], ids: i32[tokens, K], scale: f32 = 1.0)\n    \
                 grid(tokens) threads(32)\n\
             {{\n\
             {wait}    \
                 gx = global_view(x[block.x :, :], (1, COLUMNS) : (e0, e1))\n    \
                 gw = global_view(weights[block.x :, :], (1, K) : (e0, e1))\n    \
                 gi = global_view(ids[block.x :, :], (1, K) : (e0, e1))\n    \
                 r = register_tensor({dtype}, [1, COLUMNS])\n    \
                 copy(gx, r, outside = -inf)\n    \
                 v = cast(r, f32)\n\
             {bias}{all}    \
                 // Those that are there are above those that were taken, whatever they are.\n    \
                 choice = where(index(1) < {experts}, max({chosen_by}, -1e38), -inf)\n\
             {groups_text}    \
                 taken = register_tensor(f32, [1, K])\n    \
                 places = register_tensor(i32, [1, K])\n    \
                 fill(taken, 0.0)\n    \
                 fill(places, 0)\n    \
                 unroll for j in 0..K {{\n        \
                     at = reduce(where(choice == reduce(choice, max, 1, keep), index(1), COLUMNS), min, 1)\n\
             {value}        \
                     taken = where(index(1) == j, expand(top, 1), taken)\n        \
                     places = where(index(1) == j, expand(at, 1), places)\n        \
                     choice = where(index(1) == expand(at, 1), -inf, choice)\n    \
                 }}\n\
             {score}{renormalise}    \
                 copy(w * scale, gw)\n    \
                 copy(places, gi)\n\
             }}\n"
        )
    }
}
