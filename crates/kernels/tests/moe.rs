//! The operators of mixtures of experts: routing, the order of tokens by expert and the sum of their results, at edge sizes in all executions beside
//! plain loops; registers; and what is refused.

use crate::common;
use crate::common::{Launch, Tensors, assemble, close, in_turn, ptxas, random};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::ConfigError;
use tilewright_kernels::moe::{
    self, MoeClearConfig, MoeCombineConfig, MoeGateConfig, MoeGatherConfig, MoeQuantiseConfig,
    MoeQuantiseRowsConfig, MoeRoutingConfig, MoeSortConfig, Places, Scores,
};
use tilewright_machine::{Arch, DType};
use tilewright_tile::Program;

fn tensors<const N: usize>(given: [(&str, Vec<f64>); N]) -> Tensors {
    given.map(|(name, values)| (name.to_string(), values)).into()
}

fn floats(numbers: &[i64]) -> Vec<f64> {
    numbers.iter().map(|number| *number as f64).collect()
}

fn routings() -> Vec<MoeRoutingConfig> {
    let default = MoeRoutingConfig::default();
    let deepseek = MoeRoutingConfig {
        experts: 256,
        k: 8,
        scores: Scores::Sigmoid,
        bias: true,
        groups: 8,
        best_groups: 4,
        ..default
    };
    vec![
        default,
        deepseek,
        MoeRoutingConfig { renormalise: false, dtype: DType::BF16, ..default },
        MoeRoutingConfig { experts: 160, k: 6, groups: 8, best_groups: 3, renormalise: false, ..default },
        MoeRoutingConfig { experts: 60, k: 4, dtype: DType::F16, ..default },
        MoeRoutingConfig { experts: 64, k: 8, scores: Scores::Sigmoid, ..default },
        MoeRoutingConfig { experts: 128, k: 1, bias: true, ..default },
        MoeRoutingConfig {
            experts: 16,
            k: 8,
            groups: 4,
            best_groups: 4,
            bias: true,
            dtype: DType::F16,
            ..default
        },
        MoeRoutingConfig { groups: 8, best_groups: 2, dependent: true, ..default },
    ]
}

/// Routing of random logits, some rows of which are all equal, at this many tokens.
fn check_routing(config: &MoeRoutingConfig, tokens: i64, seeds: &[u64]) {
    let mut rng = ChaCha8Rng::seed_from_u64(tokens as u64);
    let experts = config.experts;
    let mut x = random(&mut rng, config.dtype, tokens * experts);
    x.iter_mut().for_each(|x| *x *= 4.0);
    for (token, logits) in x.chunks_mut(experts as usize).enumerate() {
        match token % 4 {
            // Few numbers, many of them equal.
            1 => logits.iter_mut().for_each(|x| *x = x.floor()),
            2 => logits.fill(0.5),
            _ => {}
        }
    }
    // Multiples of 1/8: equal scores stay equal, and others differ by more than an error.
    let bias: Vec<f64> =
        random(&mut rng, DType::F32, experts).iter().map(|x| (x * 8.0).round() / 8.0).collect();
    let expected = moe::route(config, &x, &bias, 2.5);
    let programs = [config.program().unwrap()];
    let launch = Launch { programs: &programs, sizes: &[("tokens", tokens)], scalars: &[("scale", 2.5)] };
    let mut given = tensors([("x", x), ("bias", bias)]);
    given.retain(|name, _| config.bias || name != "bias");
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {tokens} tokens of {config:?}");
        let (ids, k) = (&results["ids"], config.k as usize);
        for (place, (id, expected_id)) in ids.iter().zip(&expected.ids).enumerate() {
            let chosen_by = &expected.chosen_by[place / k * experts as usize..];
            let (actual, wanted) = (chosen_by[*id as usize], chosen_by[*expected_id as usize]);
            // What is computed by approximate functions may be in another order where it is nearly equal.
            let close = config.bias && actual != wanted && (actual - wanted).abs() < 1e-6;
            assert!(*id == *expected_id as f64 || close, "{at}: place {place} is {id}, not {expected_id}");
        }
        let bound: Vec<f64> = expected.weights.iter().map(|weight| 1e-5 * weight.abs() + 1e-7).collect();
        close(&at, &results["weights"], &expected.weights, &bound);
    }
}

#[test]
fn the_experts_of_tokens_have_the_largest_scores() {
    for (i, config) in routings().iter().enumerate() {
        for (_, tokens) in [1, 5, 33].into_iter().enumerate().filter(|(j, _)| in_turn(i + j, 2)) {
            check_routing(config, tokens, &[1, 2]);
        }
    }
}

fn sorts() -> Vec<MoeSortConfig> {
    let default = MoeSortConfig::default();
    let split = MoeSortConfig { experts: 256, k: 8, tile: 16, split: true, ..default };
    vec![
        default,
        MoeSortConfig { padded: true, ..default },
        MoeSortConfig { experts: 256, k: 8, tile: 8, chunk: 512, weighted: true, ..default },
        MoeSortConfig { experts: 5, k: 3, map: true, chunk: 128, threads: 128, dependent: true, ..default },
        split,
        MoeSortConfig { padded: true, map: true, experts: 100, dependent: true, weighted: true, ..split },
        MoeSortConfig { chunk: 128, threads: 64, tile: 64, experts: 8, k: 2, ..split },
        MoeSortConfig { chunk: 1024, threads: 512, tile: 128, padded: true, ..split },
    ]
}

/// The ways in which tokens are spread over experts.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// Any experts.
    Random,
    /// All tokens have the same experts, and no token has the others.
    Few,
    /// All experts of all tokens are the last one.
    One,
}

fn check_sort(config: &MoeSortConfig, tokens: i64, spread: Spread, seeds: &[u64]) {
    let mut rng = ChaCha8Rng::seed_from_u64(tokens as u64);
    // Of all experts some lie elsewhere.
    let all = if config.map { 2 * config.experts + 3 } else { config.experts };
    let map: Vec<i64> = (0..all)
        .map(|id| if id % 2 == 1 { id / 2 } else { -1 })
        .map(|id| if id < config.experts { id } else { -1 })
        .collect();
    let of = |place: i64, rng: &mut ChaCha8Rng| match spread {
        Spread::Random => rng.random_range(0..all),
        Spread::Few => place % config.k * 3 % all,
        Spread::One => all - 1,
    };
    let ids: Vec<i64> = (0..tokens * config.k).map(|place| of(place, &mut rng)).collect();
    let expected = moe::sort(config, &ids, config.map.then_some(&map[..]));
    let Places { rows, tiles } = config.places(tokens);
    let programs = config.programs().unwrap();
    let sizes = [("tokens", tokens), ("m", rows), ("t", tiles), ("e", all)];
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
    let weights = random(&mut rng, DType::F32, tokens * config.k);
    let mut given = tensors([("ids", floats(&ids)), ("map", floats(&map)), ("weights", weights.clone())]);
    given.retain(|name, _| config.map || name != "map");
    given.retain(|name, _| config.weighted || name != "weights");
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {tokens} tokens, {spread:?}, of {config:?}");
        for (row, token) in expected.rows.iter().enumerate().filter_map(|(row, token)| Some((row, (*token)?)))
        {
            assert_eq!(results["rows"][row], token as f64, "row {row} of {at}");
        }
        assert_eq!(results["places"], floats(&expected.places), "places of {at}");
        assert_eq!(results["groups"], floats(&expected.groups), "groups of {at}");
        if !config.padded {
            assert_eq!(results["first"], floats(&expected.first), "first rows of {at}");
        }
        assert_eq!(results["ends"], floats(&expected.ends), "ends of {at}");
        let of_row = |(place, row): (usize, &i64)| Some((usize::try_from(*row).ok()?, weights[place]));
        for (row, weight) in expected.places.iter().enumerate().filter_map(of_row).filter(|_| config.weighted)
        {
            assert_eq!(results["factor"][row], weight, "factor of row {row} of {at}");
        }
    }
}

#[test]
fn tokens_are_in_the_order_of_their_experts() {
    for (i, config) in sorts().iter().enumerate() {
        let most = if config.split { 3 * config.chunk / config.k + 1 } else { config.chunk / config.k };
        let spreads = [Spread::Random, Spread::Few, Spread::One];
        let cases = [1, 17, most].into_iter().flat_map(|tokens| spreads.map(|spread| (tokens, spread)));
        for (_, (tokens, spread)) in cases.enumerate().filter(|(j, _)| in_turn(i + j, 3)) {
            check_sort(config, tokens, spread, &[1, 2]);
        }
    }
}

#[test]
fn one_block_says_that_it_sorts_at_most_a_chunk() {
    let config = MoeSortConfig::default();
    let text = config.programs().unwrap()[0].to_string();
    assert!(text.contains("assert(tokens * K <= CHUNK"), "{text}");
}

fn combines() -> Vec<MoeCombineConfig> {
    let default = MoeCombineConfig::default();
    vec![
        default,
        MoeCombineConfig { k: 8, dtype: DType::BF16, dependent: true, ..default },
        MoeCombineConfig { k: 3, weighted: false, bn: 64, threads: 32, dtype: DType::F32, ..default },
    ]
}

#[test]
fn the_results_of_tokens_are_the_sums_of_their_experts() {
    for config in combines() {
        for [tokens, n, m] in [[1, 1, 1], [5, 1000, 40], [3, 4097, 7], [17, 64, 3]] {
            let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
            let c = random(&mut rng, config.dtype, m * n);
            let weights = random(&mut rng, DType::F32, tokens * config.k);
            let places: Vec<i64> = (0..tokens * config.k).map(|_| rng.random_range(-1..m)).collect();
            let exact = moe::combine(&config, &c, n as usize, &places, &weights);
            let programs = [config.program().unwrap()];
            let sizes = [("tokens", tokens), ("n", n), ("m", m)];
            let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
            let mut given = tensors([("c", c), ("weights", weights), ("places", floats(&places))]);
            given.retain(|name, _| config.weighted || name != "weights");
            let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, 2], &given);
            let bound: Vec<f64> = exact.iter().map(|v| v.abs() * config.dtype.epsilon() + 1e-5).collect();
            for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
                close(&format!("{who} at {sizes:?} of {config:?}"), &results["y"], &exact, &bound);
            }
        }
    }
}

fn quantisations() -> Vec<MoeQuantiseConfig> {
    let default = MoeQuantiseConfig::default();
    vec![
        default,
        MoeQuantiseConfig { gated: true, dependent: true, ..default },
        MoeQuantiseConfig { gated: true, dtype: DType::F32, bm: 1, blocks: 8, threads: 64, ..default },
        MoeQuantiseConfig { dtype: DType::F16, bm: 16, blocks: 1, ..default },
    ]
}

#[test]
fn activations_are_rounded_with_a_scale_of_each_block() {
    for config in quantisations() {
        for [m, n] in [[1, 1], [7, 130], [33, 256], [2, 1000]] {
            let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
            let x = random(&mut rng, config.dtype, m * n * if config.gated { 2 } else { 1 });
            let (y, s) = moe::quantise(&config, &x, [m as usize, n as usize]);
            let programs = [config.program().unwrap()];
            let sizes = [("m", m), ("n", n)];
            let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
            let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, 2], &tensors([("x", x)]));
            // A quotient may lie on the other side of a tie; subnormal results are multiples of 2^-9.
            let of_y: Vec<f64> = y.iter().map(|y| 1.01 * DType::E4M3.epsilon() * y.abs() + 0.00098).collect();
            let of_s: Vec<f64> = s.iter().map(|s| 1e-5 * s).collect();
            for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
                let at = format!("{who} at {sizes:?} of {config:?}");
                close(&format!("s of {at}"), &results["s"], &s, &of_s);
                close(&format!("y of {at}"), &results["y"], &y, &of_y);
            }
        }
    }
}

fn gates() -> Vec<MoeGateConfig> {
    let default = MoeGateConfig::default();
    vec![
        default,
        MoeGateConfig { dtype: DType::BF16, bm: 4, bn: 256, dependent: true, ..default },
        MoeGateConfig { dtype: DType::F32, bm: 2, bn: 64, threads: 32, ..default },
    ]
}

#[test]
fn gated_units_are_right_at_edges() {
    for config in gates() {
        for [m, n] in [[1, 1], [7, 130], [33, 256], [2, 1100]] {
            let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
            let x = random(&mut rng, config.dtype, 2 * m * n);
            let exact = moe::gate(&x, [m as usize, n as usize]);
            let programs = [config.program().unwrap()];
            let sizes = [("m", m), ("n", n)];
            let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
            let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, 2], &tensors([("x", x)]));
            let bound: Vec<f64> = exact.iter().map(|y| y.abs() * config.dtype.epsilon() + 1e-5).collect();
            for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
                close(&format!("{who} at {sizes:?} of {config:?}"), &results["y"], &exact, &bound);
            }
        }
    }
}

fn clears() -> Vec<MoeClearConfig> {
    let default = MoeClearConfig::default();
    vec![
        default,
        MoeClearConfig { dtype: DType::BF16, dependent: true, ..default },
        MoeClearConfig { dtype: DType::F32, bm: 1, bn: 64, threads: 32, ..default },
    ]
}

#[test]
fn rows_are_cleared_to_the_last() {
    for config in clears() {
        for [m, n] in [[1, 1], [7, 1030], [33, 64]] {
            let programs = [config.program().unwrap()];
            let sizes = [("m", m), ("n", n)];
            let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
            let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, 2], &Tensors::new());
            for results in [simulated, interpreted] {
                assert!(results["y"].iter().all(|y| y.to_bits() == 0), "{sizes:?} of {config:?}");
            }
        }
    }
}

fn gathers() -> Vec<MoeGatherConfig> {
    let default = MoeGatherConfig::default();
    vec![
        default,
        MoeGatherConfig { dtype: DType::BF16, bm: 8, bn: 256, dependent: true, ..default },
        MoeGatherConfig { dtype: DType::F32, bm: 1, bn: 64, threads: 32, ..default },
    ]
}

#[test]
fn rows_are_copied_by_their_numbers() {
    for config in gathers() {
        for [m, r, n] in [[1, 1, 1], [7, 3, 130], [33, 40, 1100]] {
            let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
            let x = random(&mut rng, config.dtype, r * n);
            // Some are none of a row.
            let rows: Vec<i64> = (0..m).map(|i| if i % 4 == 3 { -1 } else { i * 5 % (r + 1) }).collect();
            let row = |number: i64| match usize::try_from(number).ok().filter(|number| *number < r as usize) {
                Some(number) => x[number * n as usize..][..n as usize].to_vec(),
                None => vec![0.0; n as usize],
            };
            let exact: Vec<f64> = rows.iter().flat_map(|number| row(*number)).collect();
            let programs = [config.program().unwrap()];
            let sizes = [("m", m), ("r", r), ("n", n)];
            let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
            let given = tensors([("x", x.clone()), ("rows", floats(&rows))]);
            let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, 2], &given);
            assert_eq!(simulated["y"], exact, "{sizes:?} of {config:?}");
            assert_eq!(interpreted["y"], exact, "{sizes:?} of {config:?}");
        }
    }
}

fn quantisations_of_rows() -> Vec<MoeQuantiseRowsConfig> {
    let default = MoeQuantiseRowsConfig::default();
    vec![
        default,
        MoeQuantiseRowsConfig {
            gated: true,
            out: DType::I8,
            bn: 256,
            threads: 64,
            dependent: true,
            ..default
        },
        MoeQuantiseRowsConfig { gather: true, dtype: DType::F16, bn: 1024, threads: 128, ..default },
        MoeQuantiseRowsConfig {
            gather: true,
            dtype: DType::F32,
            out: DType::I8,
            bn: 64,
            threads: 32,
            ..default
        },
    ]
}

#[test]
fn activations_are_rounded_with_a_scale_of_each_row() {
    for config in quantisations_of_rows() {
        for [m, r, n] in [[1, 1, 1], [7, 3, 130], [5, 9, 1000]] {
            let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
            let count = if config.gather { r } else { m };
            let x = random(&mut rng, config.dtype, count * n * if config.gated { 2 } else { 1 });
            let rows: Vec<i64> = (0..m).map(|i| if i % 4 == 3 { -1 } else { i * 5 % (r + 1) }).collect();
            let width = n as usize;
            let values = match (config.gated, config.gather) {
                (true, _) => moe::gate(&x, [m as usize, width]),
                (false, true) => rows
                    .iter()
                    .flat_map(|row| match usize::try_from(*row).ok().filter(|row| *row < r as usize) {
                        Some(row) => x[row * width..][..width].to_vec(),
                        None => vec![0.0; width],
                    })
                    .collect(),
                (false, false) => x.clone(),
            };
            let (y, s) = moe::quantise_rows(&config, &values, width);
            let programs = [config.program().unwrap()];
            let sizes = [("m", m), ("r", r), ("n", n)];
            let sizes = if config.gather { sizes.to_vec() } else { vec![sizes[0], sizes[2]] };
            let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
            let mut given = tensors([("x", x), ("rows", floats(&rows))]);
            given.retain(|name, _| config.gather || name != "rows");
            let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1, 2], &given);
            // A quotient may lie on the other side of a tie.
            let of_y = |y: &f64| match config.out {
                DType::I8 => 0.51,
                _ => 1.01 * DType::E4M3.epsilon() * y.abs() + 0.00098,
            };
            let of_y: Vec<f64> = y.iter().map(of_y).collect();
            let of_s: Vec<f64> = s.iter().map(|s| 1e-5 * s).collect();
            for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
                let at = format!("{who} at {sizes:?} of {config:?}");
                close(&format!("s of {at}"), &results["s"], &s, &of_s);
                close(&format!("y of {at}"), &results["y"], &y, &of_y);
            }
        }
    }
}

#[test]
fn nothing_spills() {
    let Some(ptxas) = ptxas() else { return };
    let one = |program: Result<Program, ConfigError>| vec![program.unwrap()];
    let programs = routings().into_iter().map(|config| one(config.program()));
    let programs = programs.chain(sorts().into_iter().map(|config| config.programs().unwrap()));
    let programs = programs.chain(combines().into_iter().map(|config| one(config.program())));
    let programs = programs.chain(quantisations().into_iter().map(|config| one(config.program())));
    let programs = programs.chain(gathers().into_iter().map(|config| one(config.program())));
    let programs = programs.chain(quantisations_of_rows().into_iter().map(|config| one(config.program())));
    let programs = programs.chain(gates().into_iter().map(|config| one(config.program())));
    let programs = programs.chain(clears().into_iter().map(|config| one(config.program())));
    for (i, program) in programs.flatten().enumerate().filter(|(i, _)| in_turn(*i, 3)) {
        let kernel = common::kernel_for(&program, Arch::SM_90A, [4096, 4096, 4096]);
        assert_eq!(assemble(&ptxas, &format!("moe_{i}"), &kernel, Arch::SM_90A), 0, "{program}");
    }
}

#[test]
fn mistakes_name_the_field_and_what_would_be_right() {
    let says = |result: Result<(), ConfigError>, field: &str, text: &str| match result {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field);
            assert!(wanted.contains(text), "{wanted}");
        }
        other => panic!("{other:?}"),
    };
    let routing = MoeRoutingConfig::default();
    says(MoeRoutingConfig { experts: 7, ..routing }.validate(), "experts", "from 8 to 256");
    says(MoeRoutingConfig { k: 9, ..routing }.validate(), "k", "from 1 to 8");
    says(MoeRoutingConfig { groups: 3, ..routing }.validate(), "groups", "must divide experts = 8");
    says(MoeRoutingConfig { groups: 8, bias: true, ..routing }.validate(), "groups", "groups of 2 at least");
    says(MoeRoutingConfig { groups: 8, best_groups: 9, ..routing }.validate(), "best_groups", "from 1 to 8");
    says(
        MoeRoutingConfig { groups: 8, ..routing }.validate(),
        "best_groups",
        "have 1 experts, of which k = 2",
    );
    says(MoeRoutingConfig { dtype: DType::I8, ..routing }.validate(), "dtype", "f16, bf16 or f32");
    let dependent = MoeRoutingConfig { dependent: true, ..routing };
    assert!(dependent.reject(Arch::SM_80).is_some_and(|reason| reason.contains("sm_80 lacks")));
    let sort = MoeSortConfig::default();
    says(MoeSortConfig { experts: 257, ..sort }.validate(), "experts", "from 1 to 256");
    says(MoeSortConfig { tile: 12, ..sort }.validate(), "tile", "multiple of 8");
    says(MoeSortConfig { chunk: 300, ..sort }.validate(), "chunk", "power of two from 128 to 8192");
    says(MoeSortConfig { chunk: 8192, ..sort }.validate(), "threads", "at least 512");
    says(MoeSortConfig { threads: 48, ..sort }.validate(), "threads", "multiple of 32");
    let combine = MoeCombineConfig::default();
    says(MoeCombineConfig { bn: 100, ..combine }.validate(), "bn", "power of two");
    says(MoeCombineConfig { bn: 8192, ..combine }.validate(), "bn", "at most 64 numbers each of k = 2");
    says(MoeCombineConfig { k: 0, ..combine }.validate(), "k", "from 1 to 8");
    let gate = MoeGateConfig::default();
    says(MoeGateConfig { bn: 96, ..gate }.validate(), "bn", "powers of two");
    says(MoeGateConfig { bm: 8, ..gate }.validate(), "bn", "at most 32 numbers each");
    says(MoeGateConfig { dtype: DType::E4M3, ..gate }.validate(), "dtype", "f16, bf16 or f32");
    let clear = MoeClearConfig::default();
    says(MoeClearConfig { bn: 96, ..clear }.validate(), "bn", "powers of two");
    says(MoeClearConfig { bm: 64, ..clear }.validate(), "bn", "at most 64 numbers each");
    let gather = MoeGatherConfig::default();
    says(MoeGatherConfig { bn: 96, ..gather }.validate(), "bn", "powers of two");
    says(MoeGatherConfig { bm: 16, ..gather }.validate(), "bn", "at most 64 numbers each");
    let rows = MoeQuantiseRowsConfig::default();
    says(MoeQuantiseRowsConfig { bn: 96, ..rows }.validate(), "bn", "power of two");
    says(MoeQuantiseRowsConfig { bn: 16384, ..rows }.validate(), "bn", "at most 32 numbers each");
    says(MoeQuantiseRowsConfig { out: DType::F16, ..rows }.validate(), "out", "e4m3 or i8");
    says(MoeQuantiseRowsConfig { gated: true, gather: true, ..rows }.validate(), "gather", "must be false");
    let quantise = MoeQuantiseConfig::default();
    says(MoeQuantiseConfig { bm: 64, ..quantise }.validate(), "bm", "at most 32 numbers each");
    says(MoeQuantiseConfig { blocks: 3, ..quantise }.validate(), "bm", "powers of two");
    says(MoeQuantiseConfig { dtype: DType::E4M3, ..quantise }.validate(), "dtype", "f16, bf16 or f32");
    assert!(quantise.reject(Arch::SM_80).is_some_and(|reason| reason.contains("sm_80 lacks")));
}
