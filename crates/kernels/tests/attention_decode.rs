//! `attention_decode`: caches, pages, groups and forms at edge sizes in all executions, against plain loops in f64; what is refused; registers of
//! what is assembled. Keys behind the end of a sequence, and pages that no sequence has, are NaN.

use crate::common::{Launch, Tensors, absolute, assemble, close, in_turn, nightly, ptxas, random};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention_decode::{
    AttentionDecodeConfig, Cascade, DecodeInputs, DecodeLengths, DecodeSchedule, DecodeSizes, QueryTokens,
    SharedPrefix, edge_sizes, reference,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};
use tilewright_tile::Program;

/// Query tokens that no sequence has, behind those of all.
const SPARE: i64 = 2;

/// Inputs for sequences of so many keys and query tokens, in which all that is not to be read is NaN, and the number of pages.
fn inputs(
    config: &AttentionDecodeConfig,
    sizes: &DecodeSizes,
    len: &[i64],
    counts: &[i64],
) -> (DecodeInputs, i64) {
    let DecodeSizes { b, hk, sk, .. } = *sizes;
    let (d, dv, cache) = (config.d, config.values(), config.cache());
    let mut rng = ChaCha8Rng::seed_from_u64((sk * 7 + d * 3 + b) as u64);
    let mut draw = |dtype: DType, len: i64, factor: f64| -> Vec<f64> {
        let values = random(&mut rng, dtype, len);
        values.iter().map(|x| dtype.decode(dtype.encode(x * factor))).collect()
    };
    let mut q = draw(config.dtype, counts.iter().sum::<i64>() * hk * config.group * d, 8.0);
    let mut cu_q = Vec::new();
    if config.varlen {
        q.resize(q.len() + (SPARE * hk * config.group * d) as usize, f64::NAN);
        cu_q = (0..=counts.len()).map(|i| counts[..i].iter().sum()).collect();
    }
    let page = config.page.unwrap_or(sk);
    let of_sequence = (sk + page - 1) / page;
    // One page that no sequence has.
    let pages = b * of_sequence + i64::from(config.page.is_some());
    let (mut k, mut v) = (draw(cache, pages * page * hk * d, 1.0), draw(cache, pages * page * hk * dv, 1.0));
    let scales = |mut values: Vec<f64>| {
        values.iter_mut().for_each(|x| *x = 0.75 + x.abs());
        if config.kv.is_some() { values } else { Vec::new() }
    };
    let (ks, vs) = (scales(draw(DType::F32, hk, 1.0)), scales(draw(DType::F32, hk, 1.0)));
    let mut order: Vec<i64> = (0..pages).collect();
    order.shuffle(&mut rng);
    let mut held = vec![false; (pages * page) as usize];
    let mut table = Vec::new();
    for (batch, length) in (0..).zip(len) {
        for i in 0..of_sequence {
            let at = if config.page.is_some() { order[(batch * of_sequence + i) as usize] } else { batch };
            // Pages behind the end are no pages.
            table.push(if i * page < *length { at } else { -1 });
            (0..page.min(length - i * page)).for_each(|j| held[(at * page + j) as usize] = true);
        }
    }
    for (row, _) in held.iter().enumerate().filter(|(_, held)| !**held) {
        k[row * (hk * d) as usize..][..(hk * d) as usize].fill(f64::NAN);
        v[row * (hk * dv) as usize..][..(hk * dv) as usize].fill(f64::NAN);
    }
    (DecodeInputs { q, k, v, table, len: len.to_vec(), cu_q, ks, vs }, pages)
}

/// Interpreter, simulator and plain loops agree; scores are large enough for the reference maximum to move. Returns the bank conflicts of the first
/// program.
fn check(
    config: &AttentionDecodeConfig,
    sizes: &DecodeSizes,
    len: &[i64],
    counts: &[i64],
    arch: Arch,
) -> u64 {
    let (inputs, pages) = inputs(config, sizes, len, counts);
    // The scalars as f32 has them.
    let (scale, cap) = (f64::from(1.25 / (config.d as f32).sqrt()), 5.0);
    let (o, lse) = reference(config, sizes, &inputs, (scale, cap));
    let magnitudes = DecodeInputs { v: absolute(&inputs.v), ..inputs.clone() };
    let (mut weighed, _) = reference(config, sizes, &magnitudes, (scale, cap));
    if config.mla {
        // The values are keys, all of them up to 1.
        weighed.fill(1.0);
    }
    // Weights are rounded to the type of q, results once more.
    let epsilon = config.dtype.epsilon();
    let bound: Vec<f64> = o
        .iter()
        .zip(&weighed)
        .map(|(o, all)| all * (2.0 * epsilon + 1e-4) + o.abs() * epsilon + 1e-6)
        .collect();
    let integers = |values: &[i64]| values.iter().map(|x| *x as f64).collect::<Vec<f64>>();
    let (k, v) = if config.page.is_some() { ("kc", "vc") } else { ("k", "v") };
    let given: Tensors = [
        ("q", inputs.q),
        (k, inputs.k),
        (v, inputs.v),
        ("len", integers(&inputs.len)),
        ("cu_q", integers(&inputs.cu_q)),
        ("table", integers(&inputs.table)),
        ("ks", inputs.ks),
        ("vs", inputs.vs),
    ]
    .map(|(name, values)| (name.to_string(), values))
    .into();
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let DecodeSizes { b, hk, sq, sk, splits, chunk } = *sizes;
    let mb = (sk + config.page.unwrap_or(sk) - 1) / config.page.unwrap_or(sk);
    let named = [("b", b), ("hk", hk), ("sq", sq), ("sk", sk), ("splits", splits), ("chunk", chunk)];
    let tq = counts.iter().sum::<i64>() + SPARE;
    let launch = Launch {
        programs: &programs,
        sizes: &[&named[..], &[("tq", tq), ("pages", pages), ("mb", mb)]].concat(),
        scalars: if config.softcap { &[("scale", scale), ("cap", cap)] } else { &[("scale", scale)] },
    };
    let (simulated, interpreted, reports) = launch.run(arch, &[sk as u64], &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {sizes:?}, {len:?}, {counts:?} of {config:?}");
        // Nothing is written for tokens that no sequence has.
        let written = |name: &str, len: usize| {
            let (written, spare) = results[name].split_at(len);
            assert!(spare.iter().all(|x| x.is_nan()), "{at}: {name} behind the end is {spare:?}");
            written.to_vec()
        };
        close(&at, &written("o", o.len()), &o, &bound);
        if config.lse {
            for (i, (found, wanted)) in written("lse", lse.len()).iter().zip(&lse).enumerate() {
                let right = found == wanted || (found - wanted).abs() < 2e-4 * (1.0 + wanted.abs());
                assert!(right, "{at}, lse {i}: {found}, not {wanted}");
            }
        }
    }
    reports[0].shared_conflicts
}

fn configs() -> Vec<AttentionDecodeConfig> {
    let small = AttentionDecodeConfig { d: 64, bn: 16, lse: true, ..AttentionDecodeConfig::default() };
    let e4m3 = Some(DType::E4M3);
    vec![
        small,
        AttentionDecodeConfig { split: false, group: 3, dtype: DType::BF16, stages: 2, ..small },
        AttentionDecodeConfig { page: Some(16), group: 1, softcap: true, dependent: true, ..small },
        AttentionDecodeConfig { page: Some(32), hk: Some(2), ..small },
        AttentionDecodeConfig { page: Some(32), group: 16, rows: 32, window: Some(21), parts: 2, ..small },
        AttentionDecodeConfig { page: Some(1), group: 5, lse: false, split: false, ..small },
        AttentionDecodeConfig { page: Some(8), kv: e4m3, group: 8, bn: 32, ..small },
        AttentionDecodeConfig { kv: e4m3, group: 2, rows: 32, dtype: DType::BF16, split: false, ..small },
        AttentionDecodeConfig { group: 20, ..small },
        AttentionDecodeConfig { varlen: true, parts: 2, ..small },
        AttentionDecodeConfig { varlen: true, split: false, window: Some(21), group: 3, ..small },
        AttentionDecodeConfig { varlen: true, page: Some(8), group: 8, rows: 32, dependent: true, ..small },
        AttentionDecodeConfig { varlen: true, page: Some(32), kv: e4m3, bn: 32, window: Some(9), ..small },
    ]
}

#[test]
fn attention_decode_is_right_at_edges() {
    for config in configs() {
        let arch = Arch::ALL.into_iter().find(|arch| config.reject(*arch).is_none()).unwrap();
        for (sizes, len, counts) in
            edge_sizes(&config).into_iter().filter(|(sizes, ..)| config.hk.is_none_or(|hk| hk == sizes.hk))
        {
            assert_eq!(check(&config, &sizes, &len, &counts, arch), 0, "{config:?}");
        }
    }
}

#[test]
fn latent_attention_is_right() {
    let small = AttentionDecodeConfig {
        mla: true,
        d: 128,
        dv: Some(64),
        group: 70,
        rows: 64,
        bn: 32,
        stages: 2,
        lse: true,
        ..AttentionDecodeConfig::default()
    };
    let forms = [
        small,
        AttentionDecodeConfig { page: Some(64), group: 16, dtype: DType::BF16, split: false, ..small },
        AttentionDecodeConfig { page: Some(8), group: 3, window: Some(40), dependent: true, ..small },
        AttentionDecodeConfig { varlen: true, page: Some(32), group: 16, ..small },
        AttentionDecodeConfig { varlen: true, group: 70, split: false, window: Some(40), ..small },
    ];
    for config in forms {
        let counts = if config.varlen { [1, 5, 0] } else { [2; 3] };
        let sizes = DecodeSizes { b: 3, hk: 1, sq: counts[1], sk: 130, splits: 2, chunk: 64 };
        assert_eq!(check(&config, &sizes, &[0, 129, 1], &counts, Arch::SM_90A), 0, "{config:?}");
    }
}

#[test]
fn heads_of_every_size_are_right() {
    for (d, dv, bn, kv) in [
        (16, 48, 64, None),
        (80, 80, 32, Some(DType::E4M3)),
        (96, 32, 32, Some(DType::E4M3)),
        (128, 128, 32, None),
        (192, 128, 32, None),
        (256, 256, 32, None),
    ] {
        let config = AttentionDecodeConfig { d, dv: Some(dv), bn, kv, ..Default::default() };
        let sizes = DecodeSizes { b: 1, hk: 1, sq: 2, sk: 70, splits: 2, chunk: 40 };
        assert_eq!(check(&config, &sizes, &[69], &[2], Arch::SM_90A), 0, "{config:?}");
    }
}

/// Both launches of a cascade and the one sum of their parts are plain attention of whole sequences, in the interpreter and in the simulator.
fn check_cascade(config: &AttentionDecodeConfig, groups: &[SharedPrefix], own: &[i64], counts: &[i64]) {
    let hk = 2;
    let shared_of: Vec<i64> = groups.iter().flat_map(|group| vec![group.keys; group.sequences]).collect();
    let whole: Vec<i64> = own.iter().zip(&shared_of).map(|(own, shared)| own + shared).collect();
    let (most_shared, most_own) = (shared_of.iter().max().unwrap(), own.iter().max().unwrap());
    let capacity = (*most_shared).max(*most_own).max(1);
    let tokens = QueryTokens::Each(counts);
    let of = DecodeLengths { lengths: &whole, capacity: 1 << 20, heads: hk, tokens };
    let plan = of.cascade(groups, config, Arch::SM_90A, 132).unwrap();
    assert_eq!(plan.lengths, own);

    // Caches of both launches, and whole sequences for the reference.
    let sizes_of = |b: usize, sq: i64, sk: i64| DecodeSizes { b: b as i64, hk, sq, sk, splits: 1, chunk: 1 };
    let of_groups: Vec<i64> = plan.places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let plain = AttentionDecodeConfig { varlen: true, ..*config };
    let (prefix, _) = inputs(&plain, &sizes_of(groups.len(), 1, capacity), &plan.shared, &of_groups);
    let sq = *counts.iter().max().unwrap();
    let (rest, _) = inputs(&plain, &sizes_of(own.len(), sq, capacity), own, counts);
    let row = |values: &[f64], at: i64, elements: i64| {
        values[(at * hk * elements) as usize..][..(hk * elements) as usize].to_vec()
    };
    let longest = *whole.iter().max().unwrap();
    let group_of: Vec<i64> = (0..).zip(groups).flat_map(|(i, group)| vec![i; group.sequences]).collect();
    let joined = |of: fn(&DecodeInputs) -> &Vec<f64>, elements: i64| {
        let mut all = Vec::new();
        for (i, (shared, length)) in shared_of.iter().zip(&whole).enumerate() {
            for j in 0..longest {
                all.extend(match j {
                    _ if j < *shared => row(of(&prefix), group_of[i] * capacity + j, elements),
                    _ if j < *length => row(of(&rest), i as i64 * capacity + j - shared, elements),
                    _ => vec![f64::NAN; (hk * elements) as usize],
                });
            }
        }
        all
    };
    let all = DecodeInputs {
        k: joined(|inputs| &inputs.k, config.d),
        v: joined(|inputs| &inputs.v, config.values()),
        len: whole.clone(),
        ..rest.clone()
    };
    let scale = f64::from(1.25 / (config.d as f32).sqrt());
    let (o, lse) = reference(&plain, &sizes_of(own.len(), sq, longest), &all, (scale, 1.0));
    let magnitudes = DecodeInputs { v: absolute(&all.v), ..all };
    let (mut weighed, _) = reference(&plain, &sizes_of(own.len(), sq, longest), &magnitudes, (scale, 1.0));

    if config.mla {
        weighed.fill(1.0);
    }
    let integers = |values: &[i64]| values.iter().map(|x| *x as f64).collect::<Vec<f64>>();
    let tq = counts.iter().sum::<i64>() + SPARE;
    let launched = |programs: &[Program], schedule: &DecodeSchedule, given: &Tensors, b: usize| {
        let sizes = [
            ("b", b as i64),
            ("hk", hk),
            ("sq", schedule.sq),
            ("tq", tq),
            ("sk", capacity),
            ("splits", schedule.splits),
            ("chunk", schedule.chunk),
            ("slots", plan.slots),
        ];
        let launch = Launch { programs, sizes: &sizes, scalars: &[("scale", scale)] };
        let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1], given);
        [simulated, interpreted]
    };
    let given = |inputs: &DecodeInputs, len: &[i64], cu_q: &[i64]| -> Tensors {
        [
            ("q", rest.q.clone()),
            ("k", inputs.k.clone()),
            ("v", inputs.v.clone()),
            ("len", integers(len)),
            ("cu_q", integers(cu_q)),
        ]
        .map(|(name, values)| (name.to_string(), values))
        .into()
    };
    let (first, of_first) = &plan.prefix;
    let programs = first.programs().unwrap();
    assert_eq!(programs.len(), 1);
    let workspaces = launched(&programs, of_first, &given(&prefix, &plan.shared, &plan.places), groups.len());
    let (second, of_second) = &plan.rest;
    for (i, workspace) in workspaces.into_iter().enumerate() {
        let mut both = given(&rest, own, &rest.cu_q);
        both.extend(["po", "pl"].map(|name| (name.to_string(), workspace[name].clone())));
        let results = &launched(&second.programs().unwrap(), of_second, &both, own.len())[i];
        let at = format!("{groups:?}, {own:?}, {counts:?} of {config:?}");
        let epsilon = config.dtype.epsilon();
        let bound: Vec<f64> = o
            .iter()
            .zip(&weighed)
            .map(|(o, all)| all * (2.0 * epsilon + 1e-4) + o.abs() * epsilon + 1e-6)
            .collect();
        close(&at, &results["o"][..o.len()], &o, &bound);
        assert!(results["o"][o.len()..].iter().all(|x| x.is_nan()), "{at}");
        let bound: Vec<f64> = lse.iter().map(|x| 2e-4 * (1.0 + x.abs())).collect();
        close(&at, &results["lse"][..lse.len()], &lse, &bound);
    }
}

#[test]
fn a_cascade_is_attention_of_whole_sequences() {
    let small = AttentionDecodeConfig { d: 64, bn: 16, lse: true, ..AttentionDecodeConfig::default() };
    let group = |sequences, keys| SharedPrefix { sequences, keys };
    check_cascade(&small, &[group(5, 100)], &[1, 17, 40, 3, 9], &[1; 5]);
    let counts = [2, 0, 1, 7, 1, 1];
    let two = [group(3, 50), group(1, 0), group(2, 33)];
    check_cascade(&small, &two, &[20, 4, 1, 60, 16, 1], &counts);
    let three = AttentionDecodeConfig { group: 3, parts: 2, dependent: true, ..small };
    check_cascade(&three, &two, &[20, 4, 1, 60, 16, 1], &counts);
    let latent = AttentionDecodeConfig { mla: true, d: 96, dv: Some(64), rows: 64, bn: 32, ..small };
    check_cascade(&latent, &[group(3, 50)], &[20, 4, 9], &[2, 1, 5]);
}

/// A random choice of all options that go together.
fn random_config(rng: &mut ChaCha8Rng) -> AttentionDecodeConfig {
    fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
        from[rng.random_range(0..from.len())]
    }
    loop {
        let mut one_in = |n: u32| rng.random_range(0..n) == 0;
        let (softcap, lse, varlen, split, dependent) =
            (one_in(3), one_in(2), one_in(2), !one_in(3), one_in(3));
        let mla = one_in(8);
        let config = AttentionDecodeConfig {
            dtype: pick(rng, &[DType::F16, DType::BF16]),
            kv: pick(rng, &[None, None, Some(DType::E4M3)]),
            d: pick(rng, &[16, 32, 48, 64, 96]),
            dv: pick(rng, &[None, None, Some(32), Some(64)]),
            group: pick(rng, &[1, 2, 3, 4, 8, 17]),
            hk: pick(rng, &[None, None, Some(2)]),
            page: pick(rng, &[None, None, Some(1), Some(8), Some(16), Some(64)]),
            window: pick(rng, &[None, None, Some(1), Some(45)]),
            rows: if mla { 64 } else { pick(rng, &[16, 16, 32, 64]) },
            bn: pick(rng, &[16, 32, 48, 64]),
            stages: pick(rng, &[2, 3]),
            parts: pick(rng, &[1, 2, 3, 32]),
            mla,
            softcap,
            lse,
            varlen,
            split,
            dependent,
            cascade: Cascade::None,
        };
        if config.validate().is_ok() {
            return config;
        }
    }
}

/// By day some; each night, with `TILEWRIGHT_EVERY_POINT`, 300.
#[test]
fn random_options_are_right() {
    let count = if nightly() { 300 } else { 5 };
    for seed in 0..count {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let config = random_config(&mut rng);
        let (b, sk) = (rng.random_range(1..4), rng.random_range(1..150));
        let splits = if config.split { rng.random_range(1..6) } else { 1 };
        let (hk, chunk) = (config.hk.unwrap_or(rng.random_range(1..3)), rng.random_range(1..150));
        let len: Vec<i64> = (0..b).map(|_| rng.random_range(0..sk + 1)).collect();
        let mut counts: Vec<i64> = vec![rng.random_range(1..6); b as usize];
        if config.varlen {
            counts.iter_mut().for_each(|count| *count = rng.random_range(0..9));
        }
        let sq = counts.iter().copied().max().unwrap_or(0).max(1);
        check(&config, &DecodeSizes { b, hk, sq, sk, splits, chunk }, &len, &counts, Arch::SM_90A);
    }
}

#[test]
fn attention_decode_is_assembled_without_spills() {
    let Some(ptxas) = ptxas() else { return };
    let default = AttentionDecodeConfig::default();
    let e4m3 = Some(DType::E4M3);
    let latent = AttentionDecodeConfig {
        mla: true,
        d: 576,
        dv: Some(512),
        group: 128,
        rows: 64,
        bn: 64,
        stages: 2,
        ..default
    };
    let forms = [
        AttentionDecodeConfig { page: Some(64), hk: Some(8), dependent: true, ..default },
        AttentionDecodeConfig { page: Some(16), group: 3, ..default },
        AttentionDecodeConfig { page: Some(1), window: Some(4096), softcap: true, ..default },
        AttentionDecodeConfig { rows: 64, group: 8, page: Some(128), ..default },
        AttentionDecodeConfig { kv: e4m3, page: Some(64), bn: 64, ..default },
        AttentionDecodeConfig { d: 256, ..default },
        AttentionDecodeConfig { d: 64, bn: 64, split: false, lse: true, ..default },
        AttentionDecodeConfig { page: Some(1), split: false, group: 1, ..default },
        AttentionDecodeConfig { varlen: true, hk: Some(8), lse: true, ..default },
        AttentionDecodeConfig { varlen: true, page: Some(16), window: Some(4096), rows: 64, ..default },
        AttentionDecodeConfig { varlen: true, page: Some(64), kv: e4m3, bn: 64, split: false, ..default },
        AttentionDecodeConfig {
            varlen: true,
            page: Some(64),
            cascade: Cascade::Prefix,
            rows: 128,
            ..default
        },
        AttentionDecodeConfig { varlen: true, hk: Some(8), cascade: Cascade::Rest, ..default },
        AttentionDecodeConfig { varlen: true, page: Some(64), cascade: Cascade::Prefix, ..latent },
        AttentionDecodeConfig { varlen: true, page: Some(64), ..latent },
        AttentionDecodeConfig { page: Some(64), ..latent },
        AttentionDecodeConfig { bn: 32, stages: 4, split: false, ..latent },
    ];
    for (i, config) in forms.iter().enumerate() {
        if !in_turn(i, 2) {
            continue;
        }
        for (arch, program) in [Arch::SM_80, Arch::SM_90A]
            .into_iter()
            .filter(|arch| config.reject(*arch).is_none())
            .flat_map(|arch| config.programs().unwrap().into_iter().map(move |program| (arch, program)))
        {
            let sizes = [
                ("b", 32),
                ("hk", 8),
                ("sq", 1),
                ("tq", 32),
                ("sk", 8192),
                ("pages", 4096),
                ("mb", 128),
                ("splits", 4),
                ("chunk", 2048),
                ("slots", 8),
            ];
            let has = |name: &str| program.sizes().any(|(_, symbol, _)| symbol.name == name);
            let sizes: Vec<_> = sizes.into_iter().filter(|(name, _)| has(name)).collect();
            let kernel = compile(&program, &Options::new(arch).for_sizes(&program, &sizes)).unwrap();
            // Every asynchronous copy is of 16 bytes.
            assert!(!kernel.ptx.contains("cp.async.ca"), "{config:?}");
            let name = format!("attention_decode_{i}_{}", program.name);
            assert_eq!(assemble(&ptxas, &name, &kernel, arch), 0, "{config:?}");
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |given: &[(&str, &str)]| {
        let made = (operator("attention_decode").unwrap().programs)(given);
        match made.unwrap_err() {
            ConfigError::Value { field, wanted, .. } => format!("{field}: {wanted}"),
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&[("kv", "e5m2")]), "kv: must be e4m3");
    assert_eq!(refused(&[("d", "72")]), "d: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused(&[("dv", "272")]), "dv: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused(&[("rows", "48")]), "rows: must be 16, 32, 64 or 128");
    assert_eq!(refused(&[("group", "0")]), "group: must be 1 to 1024");
    assert_eq!(refused(&[("hk", "0")]), "hk: must be 1 to 65535");
    assert_eq!(refused(&[("stages", "1")]), "stages: must be 2 to 16");
    assert_eq!(refused(&[("parts", "0")]), "parts: must be 1 to 64");
    assert_eq!(refused(&[("bn", "40")]), "bn: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused(&[("window", "0")]), "window: must be none, or 1 to 2^30 keys");
    assert_eq!(refused(&[("page", "24")]), "page: must be none, or a power of two from 1 to 1024");
    assert_eq!(
        refused(&[("page", "64"), ("bn", "48")]),
        "bn: must divide a page of 64 keys, or be a multiple of it"
    );
    assert_eq!(refused(&[("cascade", "all")]), "cascade: must be none, prefix or rest");
    assert_eq!(refused(&[("cascade", "rest")]), "cascade: must be none, or varlen = true");
    let both = "cascade: must be none, or split = true: parts of both launches are added";
    assert_eq!(refused(&[("cascade", "rest"), ("varlen", "true"), ("split", "false")]), both);
    let shared = "cascade: must be none with a window, which would end within shared keys";
    assert_eq!(refused(&[("cascade", "prefix"), ("varlen", "true"), ("window", "9")]), shared);
    let latent = |given: &[(&str, &str)]| {
        let all = [("mla", "true"), ("d", "576"), ("dv", "512"), ("rows", "64")];
        refused(&[&all, given].concat())
    };
    assert_eq!(latent(&[("d", "784")]), "d: must be a multiple of 16 from 16 to 768");
    let first = "dv: must be less than d = 512: the values are the first columns of the keys";
    assert_eq!(latent(&[("d", "512")]), first);
    assert_eq!(latent(&[("rows", "16")]), "rows: must be 64 with mla: those of wgmma");
    assert_eq!(latent(&[("kv", "e4m3")]), "kv: must be same with mla");
    let deep =
        "stages: needs 304128 bytes of shared memory, and a block has 232448: choose fewer stages or keys";
    assert_eq!(latent(&[("bn", "64")]), deep);
    let many = "bn: needs 356 registers of a thread, which has 255: choose fewer keys";
    assert_eq!(refused(&[("bn", "128")]), many);
    let deep =
        "stages: needs 262144 bytes of shared memory, and a block has 232448: choose fewer stages or keys";
    assert_eq!(refused(&[("stages", "16")]), deep);
    let reject = |config: AttentionDecodeConfig, arch| config.reject(arch).unwrap_or_default();
    let dependent = AttentionDecodeConfig { dependent: true, ..Default::default() };
    assert_eq!(reject(dependent, Arch::SM_89), "sm_89 lacks programmatic dependent launch");
    assert_eq!(reject(dependent, Arch::SM_90A), "");
    let small = AttentionDecodeConfig { kv: Some(DType::E4M3), ..Default::default() };
    assert_eq!(reject(small, Arch::SM_80), "sm_80 lacks FP8 conversions");
    assert_eq!(reject(small, Arch::SM_89), "");
}
