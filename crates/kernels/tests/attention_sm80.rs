//! `attention_sm80`: heads, masks and forms at edge sizes in all executions, against plain loops in f64; what is refused; what the assembler
//! makes of it.

use crate::common::attention::{Drawn, Problem, sweep};
use crate::common::{Launch, absolute, assemble, close, in_turn, ptxas};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention::{
    AttentionSizes, AttentionSm80Config, Expression, Inputs, Mask, Modes, Scalars, edge_sizes, reference,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};

fn check(config: &AttentionSm80Config, sizes: &AttentionSizes) {
    check_with(config, sizes, &Problem { bias: [1, 1], ..Problem::default() });
}

/// Interpreter, simulator and plain loops agree; scores are large enough for the reference maximum to move.
fn check_with(config: &AttentionSm80Config, sizes: &AttentionSizes, problem: &Problem<'_>) {
    let computed = config.computed();
    let drawn = Drawn::new(&computed, sizes, problem, 8.0);
    let inputs = drawn.inputs(problem);
    let (o, lse) = reference(&computed, sizes, &inputs).unwrap();
    let sizes_only = absolute(&drawn.v);
    let (weighed, _) = reference(&computed, sizes, &Inputs { v: &sizes_only, ..inputs }).unwrap();
    // Weights are rounded to the type of v, results once more.
    let epsilon = config.dtype.epsilon();
    let bounds = o.iter().zip(&weighed);
    let bound: Vec<f64> =
        bounds.map(|(o, all)| all * (2.0 * epsilon + 1e-4) + o.abs() * epsilon + 1e-6).collect();
    let given = drawn.tensors(&computed);
    let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let (named, scalars) = (drawn.sizes(&computed, sizes), drawn.scalars(problem));
    let launch = Launch { programs: std::slice::from_ref(&program), sizes: &named, scalars: &scalars };
    let (simulated, interpreted, _) = launch.run(Arch::SM_80, &[0], &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {sizes:?} of {config:?}");
        close(&at, &results["o"], &o, &bound);
        if config.lse {
            for (i, (found, wanted)) in results["lse"].iter().zip(&lse).enumerate() {
                let right = found == wanted || (found - wanted).abs() < 2e-4 * (1.0 + wanted.abs());
                assert!(right, "{at}, lse {i}: {found}, not {wanted}");
            }
        }
    }
}

#[test]
fn attention_is_right_at_edges() {
    let small = AttentionSm80Config { d: 32, bm: 64, bn: 32, warps: 2, ..Default::default() };
    let configs = [
        AttentionSm80Config { lse: true, stages: 2, ..small.clone() },
        AttentionSm80Config { mask: Mask::Causal, lse: true, modes: Modes::Bhsd, ..small.clone() },
        AttentionSm80Config {
            mask: Mask::Window(37),
            softcap: true,
            dtype: DType::BF16,
            stages: 3,
            resident: true,
            ..small.clone()
        },
        AttentionSm80Config { dv: Some(48), bm: 32, bn: 16, resident: true, ..small.clone() },
    ];
    for config in configs {
        for sizes in edge_sizes(config.bm, config.bn) {
            check(&config, &sizes);
        }
    }
}

#[test]
fn what_changes_scores_is_right() {
    let small = AttentionSm80Config { d: 32, bm: 64, bn: 32, warps: 2, lse: true, ..Default::default() };
    let expression = |text: &str| Some(Expression(text.to_string()));
    let sizes = AttentionSizes { b: 2, hq: 2, hk: 1, sq: 70, sk: 100 };
    for config in [
        AttentionSm80Config { alibi: true, sink: true, mask: Mask::Causal, ..small.clone() },
        AttentionSm80Config {
            attends: expression("i / span == j / 40"),
            score: expression("x * 0.5 - float(h)"),
            scalars: Scalars("span: i32 = 40".to_string()),
            stages: 2,
            ..small.clone()
        },
    ] {
        let scalars = [("span", 40.0)];
        check_with(&config, &sizes, &Problem { bias: [1, 1], scalars: &scalars, ..Problem::default() });
    }
    let sizes = AttentionSizes { b: 2, hq: 4, hk: 2, sq: 70, sk: 100 };
    for (config, bias) in [
        (AttentionSm80Config { bias: true, softcap: true, ..small.clone() }, [2, 4]),
        (
            AttentionSm80Config { bias: true, alibi: true, sink: true, modes: Modes::Bhsd, ..small.clone() },
            [1, 4],
        ),
        (
            AttentionSm80Config {
                bias: true,
                mask: Mask::Window(50),
                stages: 2,
                dtype: DType::BF16,
                ..small
            },
            [2, 1],
        ),
    ] {
        check_with(&config, &sizes, &Problem { bias, ..Problem::default() });
    }
}

#[test]
fn sequences_of_their_own_lengths_are_right() {
    let lengths = [[70, 70], [1, 130], [0, 5], [64, 0], [0, 0], [90, 48], [3, 3]];
    let sizes = AttentionSizes { b: 7, hq: 2, hk: 1, sq: 90, sk: 130 };
    let problem = Problem { lengths: &lengths, ..Problem::default() };
    let varlen = AttentionSm80Config {
        varlen: true,
        lse: true,
        d: 32,
        bm: 64,
        bn: 32,
        warps: 2,
        ..Default::default()
    };
    for config in [
        AttentionSm80Config { sink: true, ..varlen.clone() },
        AttentionSm80Config { mask: Mask::Causal, stages: 2, resident: true, ..varlen.clone() },
        AttentionSm80Config { mask: Mask::Window(40), stages: 3, dv: Some(48), ..varlen },
    ] {
        check_with(&config, &sizes, &problem);
    }
}

/// A random choice of all options that go together.
fn random_config(rng: &mut ChaCha8Rng) -> AttentionSm80Config {
    fn pick<T: Clone>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
        from[rng.random_range(0..from.len())].clone()
    }
    let expression = |text: &str| Some(Expression(text.to_string()));
    loop {
        let mut one_in = |n: u32| rng.random_range(0..n) == 0;
        let (softcap, alibi, bias, sink, lse) = (one_in(4), one_in(4), one_in(4), one_in(4), one_in(2));
        let (varlen, resident) = (one_in(3), one_in(3));
        let warps = pick(rng, &[1, 2, 4]);
        let config = AttentionSm80Config {
            dtype: pick(rng, &[DType::F16, DType::BF16]),
            d: pick(rng, &[16, 32, 48, 64, 96, 128]),
            dv: pick(rng, &[None, None, Some(32), Some(64)]),
            mask: pick(rng, &[Mask::None, Mask::Causal, Mask::Window(1), Mask::Window(45)]),
            attends: pick(rng, &[None, None, expression("i / 40 == j / 40"), expression("(i + j) % 3 != h")]),
            score: pick(
                rng,
                &[None, None, expression("x * 0.5 + float(j % 7)"), expression("where(j == i, -inf, x)")],
            ),
            modes: pick(rng, &[Modes::Bshd, Modes::Bhsd]),
            bm: 16 * warps * pick(rng, &[1, 2]),
            bn: pick(rng, &[16, 32, 48, 64]),
            stages: pick(rng, &[1, 2, 3]),
            warps,
            softcap,
            alibi,
            bias,
            sink,
            lse,
            varlen,
            resident,
            ..Default::default()
        };
        if config.validate().is_ok() {
            return config;
        }
    }
}

#[test]
fn random_options_are_right() {
    let draw = |rng: &mut ChaCha8Rng| {
        let config = random_config(rng);
        let varlen = config.varlen;
        (config, varlen)
    };
    sweep(5, draw, |config, sizes, lengths, _| {
        check_with(config, sizes, &Problem { lengths, bias: [1, sizes.hq], scalars: &[] });
    });
}

#[test]
fn heads_of_every_size_are_right() {
    let heads = [(16, 16, 4), (80, 80, 4), (96, 64, 4), (128, 128, 4), (192, 128, 4), (256, 256, 8)];
    for (d, dv, warps) in heads {
        let config = AttentionSm80Config {
            d,
            dv: Some(dv),
            warps,
            bn: if d > 128 { 32 } else { 64 },
            mask: Mask::Causal,
            ..Default::default()
        };
        check(&config, &AttentionSizes { b: 1, hq: 2, hk: 1, sq: 70, sk: 100 });
    }
}

#[test]
fn attention_is_assembled_without_spills() {
    let Some(ptxas) = ptxas() else { return };
    let forms = [
        AttentionSm80Config::default(),
        AttentionSm80Config { mask: Mask::Causal, lse: true, ..Default::default() },
        AttentionSm80Config { d: 64, mask: Mask::Window(1024), stages: 2, ..Default::default() },
        AttentionSm80Config { d: 64, resident: true, ..Default::default() },
        AttentionSm80Config { d: 64, bn: 48, blocks: 3, ..Default::default() },
        AttentionSm80Config { d: 96, stages: 2, ..Default::default() },
        AttentionSm80Config { d: 256, warps: 8, bn: 64, mask: Mask::Causal, ..Default::default() },
        AttentionSm80Config { varlen: true, lse: true, ..Default::default() },
        AttentionSm80Config {
            varlen: true,
            stages: 2,
            bn: 48,
            mask: Mask::Window(300),
            ..Default::default()
        },
        AttentionSm80Config { bias: true, bn: 48, ..Default::default() },
        AttentionSm80Config { d: 64, bias: true, mask: Mask::Causal, ..Default::default() },
    ];
    for (i, config) in forms.iter().enumerate() {
        if !in_turn(i, 2) {
            continue;
        }
        let program = config.program().unwrap();
        let sizes = [("b", 2), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        for arch in [Arch::SM_80, Arch::SM_90A] {
            let kernel = compile(&program, &Options::new(arch).for_own_sizes(&program, &sizes)).unwrap();
            let name = format!("attention_sm80_{arch}_{i}");
            assert_eq!(assemble(&ptxas, &name, &kernel, arch), 0, "{config:?} for {arch}");
            for wanted in
                ["ldmatrix.sync.aligned.m8n8.x4.trans", &format!(".minnctapersm {}\n", config.blocks)]
            {
                assert!(kernel.ptx.contains(wanted), "{config:?}: no `{wanted}`");
            }
        }
    }
}

/// Instructions in the loop before its first `commit_group`: of each copy of 16 bytes one comparison, and one 64-bit product for all.
#[test]
fn copies_of_a_block_need_few_instructions() {
    let config = AttentionSm80Config { mask: Mask::Causal, stages: 2, ..Default::default() };
    let program = config.program().unwrap();
    let ptx = compile(&program, &Options::new(Arch::SM_80)).unwrap().ptx;
    let (_, body) = ptx.split_once("$L0_loop:").unwrap();
    let (copies, _) = body.split_once("commit_group").unwrap();
    let count = |what: &str| copies.matches(what).count();
    let found = ["cp.async.cg", "setp.", "and.pred", "mul.lo.s64", "div."].map(count);
    assert_eq!(found, [16, 8, 0, 1, 0], "keys and values share their conditions:\n{copies}");
}

#[test]
fn the_default_compiles_for_every_architecture() {
    let config = AttentionSm80Config::default();
    for arch in Arch::ALL {
        assert_eq!(config.reject(arch), None);
        let program = config.program().unwrap();
        compile(&program, &Options::new(arch)).unwrap_or_else(|e| panic!("{arch}: {e}"));
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |given: &[(&str, &str)]| {
        let made = (operator("attention_sm80").unwrap().programs)(given);
        match made.unwrap_err() {
            ConfigError::Value { field, wanted, .. } => format!("{field}: {wanted}"),
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&[("mask", "window(0)")]), "mask: must have a window of 1 to 2^30 keys");
    assert_eq!(refused(&[("d", "72")]), "d: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused(&[("dv", "0")]), "dv: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused(&[("bn", "40")]), "bn: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused(&[("warps", "0")]), "warps: must be 1 to 16");
    assert_eq!(refused(&[("blocks", "17")]), "blocks: must be 1 to 16");
    assert_eq!(refused(&[("stages", "9")]), "stages: must be 1 to 8");
    assert_eq!(
        refused(&[("bm", "96")]),
        "bm: must be a multiple of 64 up to 512: 4 warps have 16 queries each"
    );
    assert_eq!(refused(&[("varlen", "true"), ("modes", "bhsd")]), "modes: must be bshd with varlen = true");
    assert_eq!(refused(&[("varlen", "true"), ("bias", "true")]), "bias: must be false with varlen = true");
    let many = "bm: needs 280 registers of a thread, which has 255: choose fewer queries, keys or blocks, or more warps";
    assert_eq!(refused(&[("bn", "96")]), many);
    let many = "bm: needs 264 registers of a thread, which has 255: choose fewer queries, keys or blocks, or more warps";
    assert_eq!(refused(&[("bias", "true")]), many);
    let deep = "stages: needs 294912 bytes of shared memory, and a block has 232448: choose fewer stages, keys or queries";
    assert_eq!(refused(&[("stages", "8")]), deep);
    let config = AttentionSm80Config { stages: 4, ..Default::default() };
    assert_eq!(config.reject(Arch::SM_90A), None);
    assert!(config.reject(Arch::SM_89).unwrap().contains("and a block has 101376"));
}
