//! Subjects of a benchmark: the kernels of an operator at a shape, prepared to run one after another.

use tilewright::compiler::{Kernel, Options, compile};
use tilewright::kernels::operator;
use tilewright::lab::CudaRunner;
use tilewright::machine::{Arch, DType};
use tilewright::runtime::{
    Bindings, Buffer, CudaDevice, Device, LaunchOptions, RuntimeError, Sizes, sizes_of,
};
use tilewright::tile::interpret::{InterpretError, tensor_strides};
use tilewright::tile::{ParamId, Program};
use tilewright::tune::{Problem, Store, Target};

use super::shapes::{BATCHES, Shape};

/// Programs that compute a product together, one after another.
pub struct Choice {
    /// The programs. What one leaves to another goes by the names of their tensors.
    pub programs: Vec<Program>,
    /// Label for the table.
    pub label: String,
}

/// The programs for a shape: those of the operator with the parameters that are given, for every shape; without any, on a target, those
/// that its records choose, or the cost model.
pub fn choose(
    name: &str,
    dtype: &str,
    params: &[(&str, &str)],
    shape: &Shape,
    target: Option<(&Target, Option<&Store>)>,
) -> Result<Choice, String> {
    let operator = operator(name).map_err(|e| e.to_string())?;
    let mut given: Vec<(&str, &str)> = vec![("dtype", dtype)];
    given.extend(params);
    if shape.batches > 1 && !params.iter().any(|(name, _)| *name == "batch") {
        given.push(("batch", "packed"));
    }
    let mut label: String =
        params.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
    let chosen = match target {
        Some((target, store)) if params.is_empty() && operator.tuning.is_some() => {
            let sizes = shape.sizes().map(|(name, value)| (name.to_string(), value));
            let several = shape.batches > 1;
            let sizes = sizes.into_iter().filter(|(name, _)| several || name != BATCHES).collect();
            let problem = Problem::new(name, &sizes, &given).map_err(|e| e.to_string())?;
            Some(tilewright::tune::choose(&problem, target, store).map_err(|e| e.to_string())?.candidate)
        }
        _ => None,
    };
    if let Some(chosen) = &chosen {
        given = chosen.given();
        label = chosen.to_string();
    }
    let programs = (operator.programs)(&given).map_err(|e| e.to_string())?;
    Ok(Choice { programs, label: if label.is_empty() { "defaults".to_string() } else { label } })
}

/// Memory layout of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    /// The element type.
    pub dtype: DType,
    /// True if rows are contiguous; otherwise columns are.
    pub row_major: bool,
}

/// Compiled kernels with their sizes.
#[derive(Debug)]
pub struct Ours {
    kernels: Vec<(Kernel, Sizes)>,
    /// `a`, `b` and `c`.
    pub operands: [Operand; 3],
}

impl Ours {
    /// Compiles the programs for this very shape.
    pub fn new(programs: &[Program], shape: &Shape, arch: Arch) -> Result<Self, String> {
        let given: Sizes = shape.sizes().map(|(name, value)| (name.to_string(), value)).into();
        let mut kernels = Vec::new();
        for program in programs {
            let options = Options::new(arch).for_own_sizes(program, &shape.sizes());
            let kernel = compile(program, &options).map_err(|e| e.to_string())?;
            let sizes = sizes_of(&kernel, &given);
            kernels.push((kernel, sizes));
        }
        let batched = |(_, sizes): &(Kernel, Sizes)| sizes.contains_key(BATCHES);
        if shape.batches > 1 && !kernels.iter().any(batched) {
            return Err(format!("the operator has no size `{BATCHES}`: it computes one product"));
        }
        let operand = |name: &str| -> Result<Operand, String> {
            for (kernel, sizes) in &kernels {
                let found = kernel.program().params.iter().position(|param| param.name == name);
                if let Some(i) = found {
                    let id = ParamId(i as u32);
                    let strides = tensor_strides(&kernel.verified, id, sizes)
                        .map_err(|e: InterpretError| e.to_string())?;
                    let dtype = kernel.program().param(id).dtype;
                    return Ok(Operand { dtype, row_major: strides.last() == Some(&1) });
                }
            }
            Err(format!("the operator has no tensor `{name}`: it computes no c[m, n] = a[m, k] · b[n, k]ᵀ"))
        };
        let operands = [operand("a")?, operand("b")?, operand("c")?];
        if !operands[2].row_major {
            return Err("the operator's `c` is not stored row by row".to_string());
        }
        Ok(Ours { kernels, operands })
    }

    /// The kernels with their code loaded, on these buffers; what else they need is allocated.
    pub fn runner<'a>(
        &self,
        device: &'a CudaDevice,
        name: &str,
        [a, b, c]: [&Buffer; 3],
    ) -> Result<CudaRunner<'a>, RuntimeError> {
        let mut bindings = Bindings::new();
        for (name, buffer) in [("a", a), ("b", b), ("c", c)] {
            bindings.set(name, buffer);
        }
        let all: Vec<(&Kernel, &Sizes)> =
            self.kernels.iter().map(|(kernel, sizes)| (kernel, sizes)).collect();
        bindings.complete(device as &dyn Device, &all)?;
        let mut sequence = device.sequence();
        for (i, (kernel, sizes)) in all.into_iter().enumerate() {
            // A launch may follow the one of the same product before it closely, never the one of the run before.
            let options = LaunchOptions { dependent: i > 0 };
            sequence.push(kernel, sizes, &bindings.args(kernel)?, options)?;
        }
        Ok(CudaRunner::new(device, name, sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { m: 256, n: 512, k: 128, batches: 1 };

    #[test]
    fn an_operators_operands_are_found() {
        let choice = choose("gemm_hopper", "bf16", &[("b", "n"), ("bn", "192")], &SHAPE, None).unwrap();
        assert_eq!(choice.label, "b=n bn=192");
        let ours = Ours::new(&choice.programs, &SHAPE, Arch::SM_90A).unwrap();
        let lies = |row_major| Operand { dtype: DType::BF16, row_major };
        assert_eq!(ours.operands, [lies(true), lies(false), lies(true)]);
        assert_eq!(ours.kernels[0].1["n"], 512);
        assert_eq!(choose("gemm", "f16", &[], &SHAPE, None).unwrap().label, "defaults");
        let target = Target::new("NVIDIA H200", Arch::SM_90A);
        let large = Shape { m: 4096, n: 4096, k: 4096, batches: 1 };
        let chosen = choose("gemm_hopper", "f16", &[], &large, Some((&target, None))).unwrap();
        assert!(chosen.label.contains("overlap_epilogue=true"), "{}", chosen.label);
    }

    #[test]
    fn what_is_no_product_is_refused() {
        let error =
            |name, dtype, params: &[(&str, &str)]| choose(name, dtype, params, &SHAPE, None).err().unwrap();
        assert!(error("gemmm", "f16", &[]).contains("there is no operator `gemmm`"));
        let choice = choose("gemv", "f16", &[], &SHAPE, None).unwrap();
        let refused = Ours::new(&choice.programs, &SHAPE, Arch::SM_90A).unwrap_err();
        assert!(refused.contains("computes no c[m, n]"), "{refused}");
        assert!(error("gemm", "f16", &[("bm", "7")]).contains("`bm` = 7"));
        assert!(error("gemm", "f16", &[("tile", "7")]).contains("`gemm` has no parameter `tile`"));
        assert!(error("gemm", "i16", &[]).contains("`dtype` = i16"));
        let choice = choose("gemm_hopper", "f16", &[], &SHAPE, None).unwrap();
        assert!(Ours::new(&choice.programs, &SHAPE, Arch::SM_80).unwrap_err().contains("sm_90a"));
        let many = Shape { batches: 2, ..SHAPE };
        let error = Ours::new(&choice.programs, &many, Arch::SM_90A).unwrap_err();
        assert!(error.contains("no size `l`"), "{error}");
        let source = "kernel f(x: f32[32]) grid(1) threads(32) {
            gx = global_view(x[:], (32) : (e0))
            r = register_tensor(f32, [32])
            copy(gx, r)
            copy(r, gx)
        }";
        let program = tilewright::tile::parse(source).unwrap();
        let error = Ours::new(&[program], &SHAPE, Arch::SM_80).unwrap_err();
        assert!(error.contains("the operator has no tensor `a`"), "{error}");
    }
}
