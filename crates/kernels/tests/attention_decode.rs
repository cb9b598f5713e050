//! `attention_decode`: caches, pages, groups and forms at edge sizes in all executions, against plain loops in f64; what is refused; registers of
//! what is assembled. Keys behind the end of a sequence, and pages that no sequence has, are NaN.

mod common;

use common::{Launch, Tensors, absolute, assemble, close, ptxas, random};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention_decode::{
    AttentionDecodeConfig, DecodeInputs, DecodeSizes, edge_sizes, reference,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};

/// Inputs for sequences of these lengths, in which all that is not to be read is NaN, and the number of pages.
fn inputs(config: &AttentionDecodeConfig, sizes: &DecodeSizes, len: &[i64]) -> (DecodeInputs, i64) {
    let DecodeSizes { b, hk, sq, sk, .. } = *sizes;
    let (d, dv, cache) = (config.d, config.values(), config.cache());
    let mut rng = ChaCha8Rng::seed_from_u64((sk * 7 + d * 3 + b) as u64);
    let mut draw = |dtype: DType, len: i64, factor: f64| -> Vec<f64> {
        let values = random(&mut rng, dtype, len);
        values.iter().map(|x| dtype.decode(dtype.encode(x * factor))).collect()
    };
    let q = draw(config.dtype, b * sq * hk * config.group * d, 8.0);
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
    (DecodeInputs { q, k, v, table, len: len.to_vec(), ks, vs }, pages)
}

/// Interpreter, simulator and plain loops agree; scores are large enough for the reference maximum to move.
fn check(config: &AttentionDecodeConfig, sizes: &DecodeSizes, len: &[i64], arch: Arch) {
    let (inputs, pages) = inputs(config, sizes, len);
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
    let launch = Launch {
        programs: &programs,
        sizes: &[&named[..], &[("pages", pages), ("mb", mb)]].concat(),
        scalars: if config.softcap { &[("scale", scale), ("cap", cap)] } else { &[("scale", scale)] },
    };
    let (simulated, interpreted, reports) = launch.run(arch, &[sk as u64], &given);
    assert_eq!(reports[0].shared_conflicts, 0, "{config:?}");
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {sizes:?}, {len:?} of {config:?}");
        close(&at, &results["o"], &o, &bound);
        if config.lse {
            for (i, (found, wanted)) in results["lse"].iter().zip(&lse).enumerate() {
                let right = found == wanted || (found - wanted).abs() < 2e-4 * (1.0 + wanted.abs());
                assert!(right, "{at}, lse {i}: {found}, not {wanted}");
            }
        }
    }
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
    ]
}

#[test]
fn attention_decode_is_right_at_edges() {
    for config in configs() {
        let arch = Arch::ALL.into_iter().find(|arch| config.reject(*arch).is_none()).unwrap();
        for (sizes, len) in
            edge_sizes(&config).into_iter().filter(|(sizes, _)| config.hk.is_none_or(|hk| hk == sizes.hk))
        {
            check(&config, &sizes, &len, arch);
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
    ];
    for config in forms {
        let sizes = DecodeSizes { b: 3, hk: 1, sq: 2, sk: 130, splits: 2, chunk: 64 };
        check(&config, &sizes, &[0, 1, 129], Arch::SM_90A);
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
        check(&config, &sizes, &[69], Arch::SM_90A);
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
        AttentionDecodeConfig { page: Some(64), ..latent },
        AttentionDecodeConfig { bn: 32, stages: 4, split: false, ..latent },
    ];
    for (i, config) in forms.iter().enumerate() {
        for (arch, program) in [Arch::SM_80, Arch::SM_90A]
            .into_iter()
            .filter(|arch| config.reject(*arch).is_none())
            .flat_map(|arch| config.programs().unwrap().into_iter().map(move |program| (arch, program)))
        {
            let sizes = [
                ("b", 32),
                ("hk", 8),
                ("sq", 1),
                ("sk", 8192),
                ("pages", 4096),
                ("mb", 128),
                ("splits", 4),
                ("chunk", 2048),
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
