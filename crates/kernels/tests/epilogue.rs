//! Epilogues of one's own: interpreter, simulator and a reference agree, in every kernel that takes them.

use crate::common;
use crate::common::{Launch, Tensors, close, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::ConfigError;
use tilewright_kernels::epilogue::{EpilogueOp, EpilogueTile, Operand, OperandKind};
use tilewright_kernels::gemm_fp8_blocks::{self, Fp8BlocksConfig};
use tilewright_kernels::gemm_hopper::{self, Batch, Cluster, HopperGemmConfig, Inputs};
use tilewright_machine::{Arch, DType};
use tilewright_tile::dsl::{Elem, KernelBuilder, float};

/// `residual + gate[n] · gelu(v + bias[n])`.
struct GatedResidual;

impl EpilogueOp for GatedResidual {
    fn name(&self) -> &str {
        "gated"
    }

    fn operands(&self, out: DType) -> Vec<Operand> {
        vec![
            Operand::new("bias", OperandKind::Column, out),
            Operand::new("gate", OperandKind::Column, DType::F32),
            Operand::new("residual", OperandKind::Matrix, out),
        ]
    }

    fn apply(&self, t: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem {
        let [bias, gate, residual] = tile.operands else { unreachable!() };
        let x = t.define(&tile.name("biased"), tile.value + bias);
        let inner = (x + x * x * x * 0.044715) * 0.797_884_560_802_865_4;
        residual + gate * x * 0.5 * (inner.tanh() + 1.0)
    }

    fn reference(&self, value: f64, operands: &[f64], _: [usize; 2]) -> f64 {
        let [bias, gate, residual] = operands else { unreachable!() };
        let x = value + bias;
        residual + gate * 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh())
    }
}

/// `v · mask[m, n] · slope + place`, where the place is that of the tile of 64 rows and 64 columns: two matrices in one chain, a number,
/// and coordinates.
struct MaskedPlace;

impl EpilogueOp for MaskedPlace {
    fn name(&self) -> &str {
        "masked"
    }

    fn operands(&self, _: DType) -> Vec<Operand> {
        vec![
            Operand::new("mask", OperandKind::Matrix, DType::F16),
            Operand::new("slope", OperandKind::Scalar(0.5), DType::F32),
            Operand::new("weight", OperandKind::Row, DType::F32),
        ]
    }

    fn apply(&self, _: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem {
        let [mask, slope, weight] = tile.operands else { unreachable!() };
        let [row, col] = tile.origin.clone().map(|first| float(first / 64));
        tile.value * mask * slope * weight + row * 0.25 + col * 0.125
    }

    fn reference(&self, value: f64, operands: &[f64], at: [usize; 2]) -> f64 {
        let [mask, slope, weight] = operands else { unreachable!() };
        let [row, col] = at.map(|at| (at / 64) as f64);
        value * mask * slope * weight + row * 0.25 + col * 0.125
    }
}

/// Random operands, those of C's type rounded to it.
fn inputs(rng: &mut ChaCha8Rng, out: DType, [l, m, n]: [i64; 3]) -> Inputs {
    let custom = [
        ("gate", random(rng, DType::F32, l * n)),
        ("mask", random(rng, DType::F16, l * m * n)),
        ("slope", vec![0.75]),
        ("weight", random(rng, DType::F32, l * m)),
    ];
    Inputs {
        bias: random(rng, out, l * n),
        residual: random(rng, out, l * m * n),
        custom: custom.map(|(name, values)| (name.to_string(), values)).into(),
        ..Inputs::default()
    }
}

fn tensors(inputs: &Inputs, operands: [(&str, Vec<f64>); 2]) -> Tensors {
    let mut given: Tensors = inputs.custom.clone();
    given.insert("bias".to_string(), inputs.bias.clone());
    given.insert("residual".to_string(), inputs.residual.clone());
    given.extend(operands.map(|(name, values)| (name.to_string(), values)));
    given
}

fn check(config: &HopperGemmConfig, [l, m, n, k]: [i64; 4]) {
    let custom: [&dyn EpilogueOp; 2] = [&MaskedPlace, &GatedResidual];
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let programs = config.programs_with(&custom).unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let (a, b) = (random(&mut rng, config.dtype, l * m * k), random(&mut rng, config.dtype, l * n * k));
    let inputs = inputs(&mut rng, config.result(), [l, m, n]);
    let sizes = [l, m, n, k].map(|size| size as usize);
    let sums = gemm_hopper::sums(config, &a, &b, &[], sizes);
    let exact =
        gemm_hopper::finish_with(config, &custom, &inputs, &sums, &[], [sizes[0], sizes[1], sizes[2]]);
    // Sums in f32, a function to 2⁻¹⁰, and one rounding; no factor is above 1.
    let bound: Vec<f64> = exact
        .iter()
        .zip(&sums)
        .map(|(v, sum)| (v.abs() + sum.abs() + 2.0) * (config.result().epsilon() + f64::powi(2.0, -9)))
        .collect();
    let given = tensors(&inputs, [("a", a), ("b", b)]);
    let sizes = [("m", m), ("n", n), ("k", k), ("l", l)];
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[("slope", 0.75)] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, k as u64 + 2], &given);
    close(&format!("the simulator: {config:?}"), &simulated["c"], &exact, &bound);
    close(&format!("the interpreter: {config:?}"), &interpreted["c"], &exact, &bound);
}

#[test]
fn operations_of_ones_own_are_right_in_gemm_hopper() {
    let small = common::small_hopper();
    let configs = [
        small,
        HopperGemmConfig { overlap_epilogue: true, chunk: Some(32), ..small },
        HopperGemmConfig { swap: true, ..small },
        HopperGemmConfig { swap: true, overlap_epilogue: true, dtype: DType::BF16, ..small },
        HopperGemmConfig { batch: Batch::Packed, cluster: Cluster::AlongM(2), ..small },
        HopperGemmConfig { split: 3, ..small },
    ];
    for config in configs {
        let l = if config.batch == Batch::None { 1 } else { 2 };
        for [m, n, k] in [[64, 64, 64], [130, 136, 200], [7, 65, 129]] {
            // The sums of parts of k are added in tiles of other rows.
            if config.split == 1 || m == 64 {
                check(&config, [l, m, n, k]);
            }
        }
    }
}

#[test]
fn operations_of_ones_own_are_right_on_promoted_sums() {
    let small = Fp8BlocksConfig {
        bm: 64,
        bn: 64,
        stages: 2,
        warpgroups: 1,
        cluster: Cluster::None,
        sm_count: 4,
        ..Fp8BlocksConfig::default()
    };
    for config in [small, Fp8BlocksConfig { part: Some(32), overlap_epilogue: false, ..small }] {
        let [m, n, k] = [72, 200, 264];
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let (a, b) = (random(&mut rng, config.a, m * k), random(&mut rng, config.b, n * k));
        let (sa, sb) = (random(&mut rng, DType::F32, 3 * m), random(&mut rng, DType::F32, 2 * 3));
        let inputs = inputs(&mut rng, config.out, [1, m, n]);
        let sizes = [m, n, k].map(|size| size as usize);
        let sums = gemm_fp8_blocks::reference((&a, &b), (&sa, &sb), sizes);
        let operation = |(at, sum): (usize, &f64)| {
            let (row, col) = (at / sizes[1], at % sizes[1]);
            let operands = [inputs.bias[col], inputs.custom["gate"][col], inputs.residual[at]];
            GatedResidual.reference(*sum, &operands, [row, col])
        };
        let exact: Vec<f64> = sums.iter().enumerate().map(operation).collect();
        let bound: Vec<f64> = exact
            .iter()
            .zip(&sums)
            .map(|(v, sum)| (v.abs() + sum.abs() + 2.0) * (config.out.epsilon() + f64::powi(2.0, -9)))
            .collect();
        let mut given = tensors(&inputs, [("a", a), ("b", b)]);
        given.extend([("sa".to_string(), sa), ("sb".to_string(), sb)]);
        let programs = [config.program_with(&[&GatedResidual]).unwrap()];
        let launch = Launch { programs: &programs, sizes: &[("m", m), ("n", n), ("k", k)], scalars: &[] };
        let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, 2], &given);
        close(&format!("the simulator: {config:?}"), &simulated["c"], &exact, &bound);
        close(&format!("the interpreter: {config:?}"), &interpreted["c"], &exact, &bound);
    }
}

/// An operand that is called like another parameter.
struct Clash;

impl EpilogueOp for Clash {
    fn name(&self) -> &str {
        "clash"
    }

    fn operands(&self, _: DType) -> Vec<Operand> {
        vec![Operand::new("a", OperandKind::Column, DType::F32)]
    }

    fn apply(&self, _: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem {
        tile.value * &tile.operands[0]
    }

    fn reference(&self, value: f64, operands: &[f64], _: [usize; 2]) -> f64 {
        value * operands[0]
    }
}

#[test]
fn mistakes_are_refused() {
    let default = HopperGemmConfig { stages: 3, ..HopperGemmConfig::default() };
    let fail = |config: HopperGemmConfig, op: &dyn EpilogueOp| config.programs_with(&[op]).unwrap_err();
    assert!(fail(default, &Clash).to_string().contains("`a`"));
    // What it brings lies in shared memory, and integers are stored as they are.
    let deep = HopperGemmConfig { stages: 4, ..default };
    assert!(matches!(fail(deep, &GatedResidual), ConfigError::Value { field: "stages", .. }));
    let integers = HopperGemmConfig { dtype: DType::I8, bk: 128, ..default };
    assert!(matches!(fail(integers, &GatedResidual), ConfigError::Value { field: "epilogue", .. }));
    let sums = HopperGemmConfig { epilogue: "row_sums".parse().unwrap(), ..default };
    assert!(matches!(fail(sums, &GatedResidual), ConfigError::Value { field: "epilogue", .. }));
}
