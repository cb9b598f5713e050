//! Products whose rows are added to rows of C anywhere, of every operator that does so: beside the rows of the same product without, at edge sizes in all executions; vectors and
//! registers, and what is refused.

use crate::common::{Launch, Tensors, assemble, close, in_turn, kernel_for, ptxas, random};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm_fp8_blocks::Fp8BlocksConfig;
use tilewright_kernels::gemm_hopper::{Batch, Cluster, FillMode, Form, HopperGemmConfig, Schedule};
use tilewright_kernels::gemm_weights::{self, WeightsConfig};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, CacheHint, DType};
use tilewright_runtime::Sizes;
use tilewright_tile::interpret::tensor_len;
use tilewright_tile::{ParamId, ParamKind, Program};

/// An operator with its parameters, as words, and the rows of A of a tile.
struct Case {
    operator: &'static str,
    words: &'static str,
    tile: i64,
}

const CASES: [Case; 9] = [
    Case {
        operator: "gemm_hopper",
        words: "batch=ragged bm=64 bn=64 stages=3 warpgroups=1 sm_count=4",
        tile: 64,
    },
    Case {
        operator: "gemm_hopper",
        words: "batch=ragged swap=true bm=64 bn=16 stages=3 warpgroups=1 sm_count=4 cluster=k2 dtype=bf16",
        tile: 16,
    },
    Case {
        operator: "gemm_hopper",
        words: "batch=ragged bm=128 bn=32 chunk=16 stages=3 warpgroups=2 sm_count=4 cluster=k2 out=f32",
        tile: 128,
    },
    Case {
        operator: "gemm_hopper",
        words: "batch=grouped gather=true load_registers=56 math_registers=216 swap=true bm=128 bn=48 chunk=16 stages=3 warpgroups=2 sm_count=4 \
                epilogue=col_scale dependent=true",
        tile: 48,
    },
    Case {
        operator: "gemm_hopper",
        words: "bm=64 bn=64 stages=3 warpgroups=1 sm_count=4 cluster=m2",
        tile: 64,
    },
    Case {
        operator: "gemm_weights",
        words: "batch=ragged schedule=data_parallel bm=128 bn=24 stages=3 sm_count=4",
        tile: 24,
    },
    Case {
        operator: "gemm_weights",
        words: "batch=ragged schedule=data_parallel scaled=weights bm=64 bn=32 warpgroups=1 stages=3 sm_count=4 cluster=k2 \
                epilogue=col_scale",
        tile: 32,
    },
    Case {
        operator: "gemm_fp8_blocks",
        words: "batch=ragged cluster=none overlap_epilogue=false bm=64 bn=64 stages=2 warpgroups=1 sm_count=4 load_registers=40",
        tile: 64,
    },
    Case {
        operator: "gemm_fp8_blocks",
        words: "batch=ragged cluster=none overlap_epilogue=false swap=true bm=128 bn=32 part=16 stages=2 sm_count=4 \
                load_registers=40 math_registers=232 out=f32",
        tile: 32,
    },
];

/// The tables of groups with these rows: by name, and the rows of all.
fn tables(case: &Case, counts: &[i64]) -> (Tensors, i64) {
    let (mut groups, mut first, mut ends, mut all) = (vec![], vec![], vec![], 0);
    let padded = case.words.contains("batch=grouped");
    for (group, count) in counts.iter().enumerate() {
        for row in (0..*count).step_by(case.tile as usize) {
            groups.push(group as f64);
            first.push((all + row) as f64);
        }
        ends.push((all + count) as f64);
        all += if padded { (count + case.tile - 1) / case.tile * case.tile } else { *count };
    }
    if !padded {
        // An unused tile.
        groups.push(-1.0);
        first.push(0.0);
    }
    let named = [("groups", groups), ("first", first), ("ends", ends)];
    (named.map(|(name, values)| (name.to_string(), values)).into(), all)
}

fn program(case: &Case, more: &[(&str, &str)]) -> Program {
    let words = case.words.split_whitespace().map(|word| word.split_once('=').unwrap());
    let words: Vec<(&str, &str)> = words.chain(more.iter().copied()).collect();
    (operator(case.operator).unwrap().programs)(&words).unwrap_or_else(|e| panic!("{words:?}: {e}")).remove(0)
}

fn check(case: &Case, counts: &[i64], [n, k]: [i64; 2], seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64((n * 3 + k) as u64);
    let (mut given, m) = tables(case, counts);
    let (r, q) = (m / 2 + 1, m / 3 + 1);
    let (t, g) = (given["groups"].len() as i64, counts.len() as i64);
    let sizes = [("m", m), ("n", n), ("k", k), ("g", g), ("t", t), ("r", r), ("q", q)];
    // The same operator without, and its rows.
    let (plain, added) = (program(case, &[]), program(case, &[("scatter", "true")]));
    let launch = Launch { programs: std::slice::from_ref(&plain), sizes: &sizes, scalars: &[] };
    let kernel = launch.kernels(Arch::SM_90A).remove(0);
    let known = |name: &str| kernel.program().sizes().any(|(_, symbol, _)| symbol.name == name);
    let of_kernel: Sizes =
        sizes.iter().filter(|(name, _)| known(name)).map(|(name, size)| (name.to_string(), *size)).collect();
    given.insert("rows".into(), (0..m).map(|_| rng.random_range(-1..r) as f64).collect());
    for (i, param) in plain.params.iter().enumerate() {
        let named = given.contains_key(&param.name) || param.name == "c";
        if named || !matches!(param.kind, ParamKind::Tensor { .. }) {
            continue;
        }
        let len = tensor_len(&kernel.verified, ParamId(i as u32), &of_kernel).unwrap();
        given.insert(param.name.clone(), random(&mut rng, param.dtype, len as i64));
    }
    let of = |program: &Program, given: &Tensors| -> Tensors {
        let known = |name: &String| program.params.iter().any(|param| param.name == *name);
        given.clone().into_iter().filter(|(name, _)| known(name)).collect()
    };
    let (simulated_rows, interpreted_rows, _) = launch.run(Arch::SM_90A, &[1], &of(&plain, &given));
    let dtype = plain.params.iter().find(|param| param.name == "c").unwrap().dtype;
    let before = random(&mut rng, dtype, q * n);
    let to: Vec<i64> = (0..m).map(|_| rng.random_range(-1..q)).collect();
    let factors = random(&mut rng, DType::F32, m);
    given.insert("to".into(), to.iter().map(|row| *row as f64).collect());
    given.insert("factor".into(), factors.clone());
    given.insert("c".into(), before.clone());
    let launch = Launch { programs: std::slice::from_ref(&added), sizes: &sizes, scalars: &[] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[seed], &of(&added, &given));
    for (who, results, rows) in
        [("simulator", simulated, simulated_rows), ("interpreter", interpreted, interpreted_rows)]
    {
        let mut exact = before.clone();
        let (mut sizes, mut sums): (Vec<f64>, _) =
            (before.iter().map(|x| x.abs()).collect(), vec![1.0; exact.len()]);
        for (i, row) in to.iter().enumerate() {
            let Ok(row) = usize::try_from(*row) else { continue };
            for j in 0..n as usize {
                let (at, value) = (row * n as usize + j, rows["c"][i * n as usize + j] * factors[i]);
                exact[at] += value;
                sizes[at] += value.abs();
                sums[at] += 1.0;
            }
        }
        // The roundings of the rows, of what is added, and of each sum.
        let bound = |(size, sums): (&f64, &f64)| (sums + 2.0) * size * dtype.epsilon();
        let bound: Vec<f64> = sizes.iter().zip(&sums).map(bound).collect();
        let what = format!("{who}: {} {} at {counts:?} × {n} × {k}", case.operator, case.words);
        close(&what, &results["c"], &exact, &bound);
    }
}

#[test]
fn rows_are_added_to_those_that_the_table_names() {
    for (i, case) in CASES.iter().enumerate() {
        let counts: [&[i64]; 3] = [&[1], &[5, 0, 67, 16], &[130, 64, 3]];
        for (j, counts) in counts.into_iter().enumerate() {
            if i == 4 && counts.len() > 1 || !in_turn(i + j, 3) {
                continue;
            }
            let [n, k] = [[8, 64], [136, 264], [72, 392]][j];
            check(case, counts, [n, k / 16 * 16], 1 + j as u64);
        }
    }
    check(&CASES[4], &[150], [72, 136], 3);
}

/// Threads add vectors of 16 bytes along the rows of C, whichever side of the tile these are.
#[test]
fn rows_are_added_in_vectors_without_spills() {
    let many = HopperGemmConfig { batch: Batch::Ragged, scatter: true, ..HopperGemmConfig::default() };
    let few = HopperGemmConfig { swap: true, bm: 128, bn: 64, stages: 6, ..many };
    let programs =
        [many.program(), few.program(), HopperGemmConfig { cluster: Cluster::AlongK(2), ..few }.program()];
    for (i, program) in programs.into_iter().enumerate() {
        let kernel = kernel_for(&program.unwrap(), Arch::SM_90A, [4096, 4096, 4096]);
        assert!(kernel.ptx.contains("red.global.add.noftz.v4.f16x2"), "{i}: {}", kernel.explanation);
        if let Some(ptxas) = ptxas().filter(|_| in_turn(i, 2)) {
            assert_eq!(assemble(&ptxas, &format!("scatter_{i}"), &kernel, Arch::SM_90A), 0, "{i}");
        }
    }
}

#[test]
fn mistakes_about_rows_that_are_added_name_the_field_and_what_would_be_right() {
    let says = |result: Result<Program, ConfigError>, text: &str| match result {
        Err(ConfigError::Value { field, wanted, .. }) => {
            assert_eq!(field, "scatter", "{wanted}");
            assert!(wanted.contains(text), "{wanted}");
        }
        other => panic!("{text}: {other:?}"),
    };
    let hopper = HopperGemmConfig { scatter: true, ..HopperGemmConfig::default() };
    says(
        HopperGemmConfig { batch: Batch::Packed, ..hopper }.program(),
        "batch must be none, grouped or ragged",
    );
    says(HopperGemmConfig { split: 2, ..hopper }.program(), "split 1");
    says(HopperGemmConfig { schedule: Schedule::StreamK, ..hopper }.program(), "data_parallel");
    says(HopperGemmConfig { overlap_epilogue: true, ..hopper }.program(), "overlap_epilogue must be false");
    says(HopperGemmConfig { fill: FillMode::Lower, bn: 128, ..hopper }.program(), "fill must be full");
    says(HopperGemmConfig { epilogue: "beta".parse().unwrap(), ..hopper }.program(), "without beta");
    says(HopperGemmConfig { epilogue: "row_sums".parse().unwrap(), ..hopper }.program(), "without beta");
    says(HopperGemmConfig { dtype: DType::I8, bk: 128, ..hopper }.program(), "out must be f16");
    says(HopperGemmConfig { form: Form::Gemv, bn: 8, ..hopper }.program(), "form must be wgmma");
    says(HopperGemmConfig { hint_c: Some(CacheHint::EvictFirst), ..hopper }.program(), "hint_c must be none");
    let weights = WeightsConfig { scatter: true, ..WeightsConfig::default() };
    says(weights.program(), "data_parallel");
    let whole = WeightsConfig { schedule: gemm_weights::Schedule::DataParallel, ..weights };
    says(WeightsConfig { overlap_epilogue: true, ..whole }.program(), "overlap_epilogue must be false");
    says(Fp8BlocksConfig { scatter: true, ..Fp8BlocksConfig::default() }.program(), "overlap_epilogue");
}
