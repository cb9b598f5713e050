//! A product with an epilogue of one's own: `c = residual + gate[n] · gelu(a · bᵀ + bias[n])`, in the kernel that multiplies.

use tilewright::kernels::epilogue::{EpilogueOp, EpilogueTile, Operand, OperandKind};
use tilewright::kernels::gemm_hopper::HopperGemmConfig;
use tilewright::prelude::*;
use tilewright::tile::dsl::Elem;

/// The epilogue: what it reads, what it writes into the program, and the same of one number.
pub struct GatedResidual;

impl EpilogueOp for GatedResidual {
    fn name(&self) -> &str {
        "gated"
    }

    fn operands(&self, out: DType) -> Vec<Operand> {
        vec![
            Operand::new("bias", OperandKind::Column, out),
            Operand::new("gate", OperandKind::Column, F32),
            Operand::new("residual", OperandKind::Matrix, out),
        ]
    }

    fn apply(&self, t: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem {
        let [bias, gate, residual] = tile.operands else { return tile.value.into() };
        let x = t.define(&tile.name("biased"), tile.value + bias);
        let cube = x * x * x;
        residual + gate * x * 0.5 * (((x + cube * 0.044715) * 0.797_884_560_802_865_4).tanh() + 1.0)
    }

    fn reference(&self, value: f64, operands: &[f64], _: [usize; 2]) -> f64 {
        let [bias, gate, residual] = operands else { return value };
        let x = value + bias;
        residual + gate * x * 0.5 * (((x + x * x * x * 0.044715) * 0.797_884_560_802_865_4).tanh() + 1.0)
    }
}

/// The program.
pub fn program() -> Result<Program, Box<dyn std::error::Error>> {
    let config = HopperGemmConfig { bn: 128, ..HopperGemmConfig::default() };
    Ok(config.programs_with(&[&GatedResidual])?.remove(0))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = program()?;
    println!("{program}");
    let device = open(DeviceChoice::Auto)?;
    let sizes = [("m", 256), ("n", 256), ("k", 128)];
    let kernel = compile(&program, &Options::new(Arch::SM_90A).for_sizes(&program, &sizes))?;
    println!("{}", kernel.explanation);
    let sizes = sizes.map(|(name, size)| (name.to_string(), size)).into();
    let outcome = check(&kernel, device.as_ref(), &CheckOptions { sizes, ..CheckOptions::default() })?;
    for c in &outcome.comparisons {
        println!("{} on {}: {c}", c.name, device.name());
    }
    if outcome.is_right() { Ok(()) } else { Err(format!("wrong: {outcome:?}").into()) }
}
