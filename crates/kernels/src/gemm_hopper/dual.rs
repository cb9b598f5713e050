//! Products of one A with two matrices in one pass, `b` and `up`, whose sums become one value. Gated units are such products (Shazeer,
//! GLU Variants Improve Transformer, 2020); so is the sum of two products.

use super::HopperGemmConfig;
use super::multiplied::is_six;
use crate::config::ConfigError;
use crate::epilogue::{Combine, Part};
use crate::warp_specialized::{Dual, Second};

/// The function of the first sum where the sums are multiplied; `None`: they are not.
fn activation(dual: Dual) -> Option<Option<Part>> {
    match dual {
        Dual::None | Dual::Add => None,
        Dual::Mul => Some(None),
        Dual::ReluMul => Some(Some(Part::Relu)),
        Dual::GeluMul => Some(Some(Part::Gelu)),
        Dual::SiluMul => Some(Some(Part::Silu)),
    }
}

impl HopperGemmConfig {
    /// The second matrix, if there is one.
    pub(super) fn second(&self) -> Option<Second> {
        let second = Second { fused: self.fused, added: self.dual == Dual::Add };
        (self.dual != Dual::None).then_some(second)
    }

    /// The function of two sums; `None`: a product has one.
    pub(super) fn combine(&self) -> Option<Combine> {
        activation(self.dual).map(|activation| Combine { activation, bias: self.dual_bias })
    }

    /// Checks what a second matrix goes with.
    pub(super) fn check_dual(&self) -> Result<(), ConfigError> {
        let dual = self.dual;
        if dual == Dual::None && self.fused {
            return Err(ConfigError::value(
                "fused",
                true,
                "there is one matrix with dual=none: must be false",
            ));
        }
        if dual.sums() == 1 && self.dual_bias {
            let wanted =
                format!("biases of two sums, and dual={dual} has one: must be false; epilogue has bias");
            return Err(ConfigError::value("dual_bias", true, wanted));
        }
        if self.dual_bias && self.epilogue.has(Part::ColSums) {
            let wanted =
                "col_sums would count rows outside of c, which have biases too: none with dual_bias=true";
            return Err(ConfigError::value("epilogue", self.epilogue, wanted));
        }
        if dual == Dual::None {
            return Ok(());
        }
        if self.packs()[1] {
            let refuse = |field, value: &dyn std::fmt::Display, wanted: &str| {
                let wanted = format!("the second matrix is read where it lies: {wanted} with dual={dual}");
                Err(ConfigError::value(field, value, wanted))
            };
            if self.pack.factors()[1] {
                return refuse("pack", &self.pack, "must be none or a");
            }
            if is_six(self.right()) {
                let field = if self.dtype_b.is_some() { "dtype_b" } else { "dtype" };
                return refuse(field, &self.right(), "must be no float of six bits");
            }
            return refuse("b", &"n", "of f32 must be k");
        }
        if dual.sums() > 1 && self.split > 1 {
            let wanted = format!("parts of two sums do not meet in memory: must be 1 with dual={dual}");
            return Err(ConfigError::value("split", self.split, wanted));
        }
        if dual.sums() > 1 && self.multiplies_integers() && self.result() == self.sum() {
            let wanted = format!("dual={dual} multiplies in f32: must be f16, bf16 or f32");
            return Err(ConfigError::value("out", self.result(), wanted));
        }
        Ok(())
    }

    /// Checks that a thread has registers for the sums of two products: `taken` are those of all fragments with this tile.
    pub(super) fn check_sums(&self, taken: impl Fn(&Self) -> i64) -> Result<(), ConfigError> {
        let fits = |bn: &i64| taken(&Self { bn: *bn, ..*self }) <= self.storing_registers();
        if self.dual.sums() == 1 || fits(&self.bn) {
            return Ok(());
        }
        let most = (1..self.bn / 8).rev().map(|eighth| 8 * eighth).find(fits);
        let room = most.map_or("no columns fit".to_string(), |bn| format!("at most {bn} columns fit"));
        let wanted = format!(
            "dual={} holds two sums of {} × {} in the registers of {} warpgroups: {room}",
            self.dual, self.bm, self.bn, self.warpgroups
        );
        Err(ConfigError::value("bn", self.bn, wanted))
    }
}
