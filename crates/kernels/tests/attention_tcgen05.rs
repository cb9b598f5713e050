//! `attention` with scores, weights and sums in tensor memory: every option at edge sizes in all executions, against plain loops in f64; what is chosen where, what is
//! refused; what the assembler makes of it. It has not run on hardware.

use crate::attention::{Given, check_with, functions_are_right};
use crate::common::{Launch, Tensors, assemble, in_turn, nightly, ptxas, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention::{AttentionConfig, AttentionSizes, Expression, Form, Mask, Modes};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};

fn small() -> AttentionConfig {
    AttentionConfig { form: Form::Tcgen05, d: 32, bn: 32, lse: true, ..Default::default() }
}

fn check(config: &AttentionConfig, [b, hq, hk, sq, sk]: [i64; 5], seeds: &[u64]) {
    let given = Given { bias: [1, 1], ..Given::default() };
    check_with(config, &AttentionSizes { b, hq, hk, sq, sk }, &given, seeds);
}

fn expression(text: &str) -> Option<Expression> {
    Some(Expression(text.to_string()))
}

#[test]
fn attention_is_right_at_edges() {
    check(&small(), [1, 2, 1, 130, 70], &[0, 1]);
    let causal = AttentionConfig { mask: Mask::Causal, ..small() };
    check(&AttentionConfig { modes: Modes::Bhsd, ..causal.clone() }, [1, 1, 1, 257, 257], &[0]);
    let window = AttentionConfig {
        mask: Mask::Window(37),
        softcap: true,
        dtype: DType::BF16,
        polynomial: 32,
        stages: 3,
        ..small()
    };
    check(&window, [1, 1, 1, 100, 140], &[0]);
    // Queries without keys.
    check(&causal, [1, 1, 1, 40, 9], &[0]);
    check(&AttentionConfig { strides: true, ..causal }, [2, 2, 1, 70, 100], &[5]);
    if nightly() {
        let seeds: Vec<u64> = (0..50).collect();
        for mask in [Mask::None, Mask::Causal] {
            let config = AttentionConfig { mask, d: 128, bn: 128, polynomial: 32, ..small() };
            check(&config, [1, 2, 1, 300, 300], &seeds);
        }
        let sequences = AttentionConfig { varlen: true, sink: true, mask: Mask::Causal, ..small() };
        let given = Given { lengths: &[[300, 130], [0, 5], [90, 300]], ..Given::default() };
        let sizes = AttentionSizes { b: 3, hq: 2, hk: 1, sq: 300, sk: 300 };
        check_with(&sequences, &sizes, &given, &seeds);
        let added = AttentionConfig { bias: true, alibi: true, attends: expression("j % 3 != h"), ..small() };
        check(&added, [1, 2, 1, 130, 150], &seeds);
    }
}

#[test]
fn sequences_of_their_own_lengths_are_right() {
    let lengths = [[70, 70], [1, 130], [0, 5], [64, 0], [290, 48], [3, 2]];
    let sizes = AttentionSizes { b: 6, hq: 2, hk: 1, sq: 290, sk: 130 };
    let varlen = AttentionConfig { varlen: true, ..small() };
    for config in [
        AttentionConfig { sink: true, ..varlen.clone() },
        AttentionConfig { mask: Mask::Causal, ..varlen.clone() },
        AttentionConfig { mask: Mask::Window(40), attends: expression("i / 40 == j / 40"), ..varlen },
    ] {
        check_with(&config, &sizes, &Given { lengths: &lengths, ..Given::default() }, &[3]);
    }
}

#[test]
fn what_is_added_to_scores_is_right() {
    let sizes = AttentionSizes { b: 2, hq: 4, hk: 2, sq: 140, sk: 100 };
    for (config, bias) in [
        (AttentionConfig { alibi: true, mask: Mask::Causal, ..small() }, [1, 1]),
        (AttentionConfig { sink: true, mask: Mask::Causal, dtype: DType::BF16, ..small() }, [1, 1]),
        (AttentionConfig { bias: true, softcap: true, ..small() }, [2, 4]),
        (AttentionConfig { bias: true, alibi: true, sink: true, modes: Modes::Bhsd, ..small() }, [1, 4]),
        (AttentionConfig { bias: true, mask: Mask::Window(50), polynomial: 16, ..small() }, [1, 1]),
    ] {
        check_with(&config, &sizes, &Given { bias, ..Given::default() }, &[5]);
    }
}

#[test]
fn functions_of_a_users_own_are_right() {
    functions_are_right(&small(), 2);
}

#[test]
fn heads_of_8_bits_are_right() {
    let plain = AttentionConfig { dtype: DType::E4M3, bn: 64, ..small() };
    let sizes = AttentionSizes { b: 2, hq: 4, hk: 2, sq: 140, sk: 150 };
    let seeds: Vec<u64> = if nightly() { (0..50).collect() } else { vec![2] };
    let forms = [
        AttentionConfig { stages: 3, ..plain.clone() },
        AttentionConfig {
            mask: Mask::Causal,
            out: Some(DType::BF16),
            d: 128,
            modes: Modes::Bhsd,
            ..plain.clone()
        },
        AttentionConfig {
            mask: Mask::Window(60),
            softcap: true,
            sink: true,
            polynomial: 32,
            ..plain.clone()
        },
        AttentionConfig { bias: true, alibi: true, mask: Mask::Causal, bn: 32, ..plain.clone() },
        AttentionConfig { strides: true, attends: expression("j % 3 != h"), ..plain.clone() },
    ];
    for (at, config) in forms.iter().enumerate() {
        if in_turn(at, 2) {
            check_with(config, &sizes, &Given { bias: [1, 1], ..Given::default() }, &seeds);
        }
    }
    let lengths = [[70, 70], [1, 130], [0, 5], [64, 0], [290, 48], [3, 2]];
    let sizes = AttentionSizes { b: 6, hq: 2, hk: 1, sq: 290, sk: 130 };
    let varlen = AttentionConfig { varlen: true, mask: Mask::Causal, ..plain };
    check_with(&varlen, &sizes, &Given { lengths: &lengths, ..Given::default() }, &[3]);
}

#[test]
fn heads_of_every_size_are_right() {
    for (d, dv, bn) in [(16, 16, 128), (80, 80, 80), (32, 128, 64), (192, 128, 32), (128, 224, 32)] {
        let config = AttentionConfig { d, dv: Some(dv), bn, mask: Mask::Causal, ..small() };
        check(&config, [1, 2, 1, 140, 130], &[1]);
    }
}

/// Values of keys that nobody attends to may be as large as they like, with polynomials as with exponentials.
#[test]
fn masked_keys_weigh_nothing() {
    let (sq, sk) = (40, 70);
    for polynomial in [0, 32] {
        let attends = expression("j % 2 == 0");
        let config = AttentionConfig { dtype: DType::BF16, attends, polynomial, ..small() };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let [q, k, v] = [sq, sk, sk].map(|rows| random(&mut rng, config.dtype, rows * config.d));
        let results = [0.0, 3e38].map(|large| {
            let large = config.dtype.decode(config.dtype.encode(large));
            let of_odd = |(at, x): (usize, &f64)| if at as i64 / config.d % 2 == 1 { large } else { *x };
            let values = v.iter().enumerate().map(of_odd).collect();
            let tensors: Tensors = [("q", q.clone()), ("k", k.clone()), ("v", values)]
                .map(|(name, values)| (name.to_string(), values))
                .into();
            let program = config.program().unwrap();
            let sizes = [("b", 1), ("hq", 1), ("hk", 1), ("sq", sq), ("sk", sk)];
            let scalars = [("scale", 0.2)];
            let launch =
                Launch { programs: std::slice::from_ref(&program), sizes: &sizes, scalars: &scalars };
            let (simulated, interpreted, _) = launch.run(Arch::SM_100A, &[0], &tensors);
            [simulated, interpreted].map(|all| all["o"].clone())
        });
        assert!(results[0].iter().flatten().any(|x| *x != 0.0));
        assert_eq!(results[0], results[1], "polynomial = {polynomial}");
    }
}

#[test]
fn it_is_chosen_where_there_is_tensor_memory() {
    let tuning = operator("attention").unwrap().tuning.unwrap();
    let sizes = [("b", 4), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
    let sizes = sizes.map(|(name, size)| (name.to_string(), size)).into();
    let space = |arch: Arch, given: &[(&str, &str)]| (tuning.space)(arch.into(), &sizes, given).unwrap();
    let forms = |arch: Arch, given: &[(&str, &str)]| {
        let by_tcgen05 =
            |point: &tilewright_kernels::Point| point.parameters.contains(&("form", "tcgen05".to_string()));
        let points = space(arch, given).points;
        let all = points.len();
        let found = points.iter().filter(|point| by_tcgen05(point)).count();
        assert!(points.is_sorted_by(|a, b| a.estimate <= b.estimate));
        [all - found, found]
    };
    let options: [&[(&str, &str)]; 9] = [
        &[],
        &[("mask", "causal"), ("lse", "true")],
        &[("varlen", "true")],
        &[("bias", "true"), ("sink", "true")],
        &[("alibi", "true"), ("softcap", "true"), ("strides", "true"), ("modes", "bhsd")],
        &[("dv", "192")],
        &[("d", "192"), ("dv", "128")],
        &[("dtype", "e4m3"), ("sink", "true")],
        &[("dtype", "bf16"), ("score", "x * 0.5"), ("attends", "i / 64 == j / 64")],
    ];
    for given in options {
        for arch in [Arch::SM_100A, Arch::SM_103A] {
            let [by_wgmma, found] = forms(arch, given);
            assert!(by_wgmma == 0 && found > 0, "{arch}, {given:?}: {by_wgmma} and {found}");
        }
        let [by_wgmma, found] = forms(Arch::SM_90A, given);
        assert!(by_wgmma > 0 && found == 0, "{given:?}: {by_wgmma} and {found}");
    }
    // Sums of two tiles by 256 columns are all of tensor memory: no space, for a reason of this form.
    let large = space(Arch::SM_100A, &[("d", "256")]);
    assert!(large.points.is_empty());
    assert_eq!(
        large.because.as_deref().unwrap(),
        "`bn` = 32: needs 576 columns of tensor memory, of which there are 512: choose fewer keys, or smaller heads of v"
    );
    // The same where the form is given, and none of the points that the other form has.
    let pinned = space(Arch::SM_100A, &[("d", "256"), ("form", "tcgen05")]);
    assert_eq!((pinned.points.len(), pinned.because), (0, large.because));
    let [given, free] = [&[("form", "tcgen05")][..], &[]].map(|given| space(Arch::SM_100A, given).points);
    assert_eq!(given, free);
    let other = space(Arch::SM_100A, &[("form", "wgmma")]).because.unwrap();
    assert_eq!(other, "sm_100a lacks wgmma, which sm_90a has");
}

#[test]
fn attention_is_assembled_without_spills_and_weights_lie_over_their_scores() {
    let Some(ptxas) = ptxas() else { return };
    let plain = AttentionConfig { form: Form::Tcgen05, bn: 128, ..Default::default() };
    let forms = [
        plain.clone(),
        AttentionConfig { mask: Mask::Causal, lse: true, polynomial: 32, ..plain.clone() },
        AttentionConfig { d: 64, mask: Mask::Window(1024), bn: 64, ..plain.clone() },
        AttentionConfig { varlen: true, mask: Mask::Causal, lse: true, ..plain.clone() },
        AttentionConfig { strides: true, alibi: true, sink: true, mask: Mask::Causal, ..plain.clone() },
        AttentionConfig { bias: true, alibi: true, sink: true, bn: 80, ..plain.clone() },
        AttentionConfig { softcap: true, mask: Mask::Window(300), bn: 112, ..plain.clone() },
        AttentionConfig {
            varlen: true,
            score: expression("x - 0.1 * float(i - j)"),
            attends: expression("i / 64 == j / 64"),
            bn: 112,
            ..plain.clone()
        },
        AttentionConfig { attends: expression("i / 512 == j / 512"), ..plain.clone() },
        // Quotients by numbers that are no powers of two, remainders, and parts of scores that have no integers.
        AttentionConfig { attends: expression("i / 40 == j / 40"), ..plain.clone() },
        AttentionConfig { attends: expression("(i + j) % 3 != h"), bn: 80, ..plain.clone() },
        AttentionConfig { score: expression("x * 0.5 + float(j % 7)"), bn: 64, ..plain.clone() },
        AttentionConfig { score: expression("x + float(j / 7)"), bn: 64, ..plain.clone() },
        AttentionConfig { score: expression("x / 4.0 - float(i % 3)"), bn: 112, ..plain.clone() },
        AttentionConfig { dtype: DType::E4M3, stages: 3, ..plain.clone() },
        AttentionConfig { dtype: DType::E4M3, varlen: true, mask: Mask::Causal, lse: true, ..plain.clone() },
        AttentionConfig { d: 192, dv: Some(128), bn: 64, mask: Mask::Causal, ..plain },
    ];
    for (i, config) in forms.iter().enumerate() {
        let program = config.program().unwrap();
        let sizes = [("b", 2), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        for (turn, arch) in [(0, Arch::SM_100A), (2, Arch::SM_103A)] {
            if !in_turn(i + turn, 4) {
                continue;
            }
            let kernel = compile(&program, &Options::new(arch).for_own_sizes(&program, &sizes)).unwrap();
            let spilled = assemble(&ptxas, &format!("attention_tcgen05_{i}_{arch}"), &kernel, arch);
            assert_eq!(spilled, 0, "{config:?}");
            let columns = 2 * (config.bn + config.values());
            let allocated = format!("], {};", columns.cast_unsigned().next_power_of_two());
            let line = kernel.ptx.lines().find(|line| line.contains("tcgen05.alloc")).unwrap();
            assert!(line.ends_with(&allocated), "weights lie over their scores: {line}");
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |given: &[(&str, &str)]| {
        let given: Vec<_> = [("form", "tcgen05")].iter().chain(given).copied().collect();
        let made = (operator("attention").unwrap().programs)(&given);
        match made.unwrap_err() {
            ConfigError::Value { field, wanted, .. } => format!("{field}: {wanted}"),
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&[("form", "mma")]), "form: must be wgmma or tcgen05");
    assert_eq!(refused(&[("d", "264")]), "d: must be a multiple of 16 from 16 to 256");
    for bn in ["40", "144"] {
        assert_eq!(refused(&[("bn", bn)]), "bn: must be a multiple of 16 from 16 to 128");
    }
    assert_eq!(refused(&[("polynomial", "96")]), "polynomial: must be a multiple of 16 from 0 to bn = 80");
    assert_eq!(
        refused(&[("stages", "3"), ("bn", "128")]),
        "stages: needs 264192 bytes of shared memory, and a block has 232448: choose fewer stages or keys"
    );
    assert_eq!(
        refused(&[("bias", "true"), ("bn", "96")]),
        "bn: needs 188 registers of a thread, which has 176: choose fewer keys"
    );
    assert_eq!(
        refused(&[("softcap", "true"), ("bn", "128")]),
        "bn: needs 188 registers of a thread, which has 176: choose fewer keys"
    );
    let divided = "bn: needs 204 registers of a thread, 48 of them for integer divisions of keys, which has 176: choose fewer keys";
    for score in ["x * 0.5 + float(j % 7)", "x + float(j / 7)", "x + where(i % (j + 1) == 0, 1.0, 0.0)"] {
        assert_eq!(refused(&[("score", score), ("bn", "96")]), divided);
    }
    assert_eq!(refused(&[("attends", "(i + j) % 3 != h"), ("bn", "112")]), divided);
    assert_eq!(
        refused(&[("dv", "192")]),
        "bn: needs 544 columns of tensor memory, of which there are 512: choose fewer keys, or smaller heads of v"
    );
    assert_eq!(
        refused(&[("dtype", "e4m3"), ("bn", "112")]),
        "bn: must be a multiple of 32 with dtype = e4m3"
    );
    for (name, value, usual) in [
        ("persistent", "true", "false"),
        ("warpgroups", "2", "3"),
        ("ping_pong", "true", "false"),
        ("q_stages", "2", "1"),
        ("sm_count", "148", "132"),
    ] {
        assert_eq!(
            refused(&[(name, value)]),
            format!("{name}: says nothing with form=tcgen05: must be {usual}")
        );
    }
    assert_eq!(
        refused(&[("form", "wgmma"), ("polynomial", "16")]),
        "polynomial: says nothing with form=wgmma: must be 0"
    );
    let config = small();
    assert_eq!(config.reject(Arch::SM_90A).unwrap(), "sm_90a lacks tcgen05, which sm_100a has");
    assert_eq!([Arch::SM_100A, Arch::SM_103A].map(|arch| config.reject(arch)), [None, None]);
    let by_wgmma = AttentionConfig::default();
    assert_eq!(by_wgmma.reject(Arch::SM_100A).unwrap(), "sm_100a lacks wgmma, which sm_90a has");
}
