//! `attention_sm100`: heads, masks and forms at edge sizes in all executions, against plain loops in f64; what is refused; what the assembler makes of it. It has not run on
//! hardware.

use crate::common::attention::{Drawn, Problem};
use crate::common::{Launch, absolute, assemble, close, ptxas};
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention::{
    AttentionSizes, AttentionSm100Config, Expression, Inputs, Mask, Modes, reference,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};

/// Interpreter, simulator and plain loops agree; scores are large enough for the reference maximum to move.
fn check(config: &AttentionSm100Config, sizes: [i64; 5], seeds: &[u64]) {
    let [b, hq, hk, sq, sk] = sizes;
    let sizes = AttentionSizes { b, hq, hk, sq, sk };
    let (computed, problem) = (config.computed(), Problem { bias: [1, 1], ..Problem::default() });
    let drawn = Drawn::new(&computed, &sizes, &problem, 8.0);
    let inputs = drawn.inputs(&problem);
    let (o, lse) = reference(&computed, &sizes, &inputs).unwrap();
    let sizes_only = absolute(&drawn.v);
    let (weighed, _) = reference(&computed, &sizes, &Inputs { v: &sizes_only, ..inputs }).unwrap();
    // Weights are rounded to the type of v, results once more.
    let epsilon = config.dtype.epsilon();
    let bounds = o.iter().zip(&weighed);
    let bound: Vec<f64> =
        bounds.map(|(o, all)| all * (2.0 * epsilon + 2e-4) + o.abs() * epsilon + 1e-6).collect();
    let given = drawn.tensors(&computed);
    let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let (named, scalars) = (drawn.sizes(&computed, &sizes), drawn.scalars(&problem));
    let launch = Launch { programs: std::slice::from_ref(&program), sizes: &named, scalars: &scalars };
    let (simulated, interpreted, _) = launch.run(Arch::SM_100A, seeds, &given);
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
    let small = AttentionSm100Config { d: 32, bn: 32, lse: true, ..Default::default() };
    check(&small, [1, 2, 1, 130, 70], &[0, 1]);
    check(
        &AttentionSm100Config { mask: Mask::Causal, modes: Modes::Bhsd, ..small.clone() },
        [1, 1, 1, 257, 257],
        &[0],
    );
    let window = AttentionSm100Config {
        mask: Mask::Window(37),
        softcap: true,
        dtype: DType::BF16,
        polynomial: 32,
        stages: 3,
        ..small.clone()
    };
    check(&window, [1, 1, 1, 100, 140], &[0]);
    // Queries without keys.
    check(&AttentionSm100Config { mask: Mask::Causal, ..small.clone() }, [1, 1, 1, 40, 9], &[0]);
    let attends = Some(Expression("i / 40 == j / 40".to_string()));
    check(&AttentionSm100Config { alibi: true, attends, ..small }, [1, 1, 1, 1, 64], &[0]);
    if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() {
        let seeds: Vec<u64> = (0..50).collect();
        for mask in [Mask::None, Mask::Causal] {
            let config = AttentionSm100Config { mask, polynomial: 32, ..Default::default() };
            check(&config, [1, 2, 1, 300, 300], &seeds);
        }
    }
}

/// Blocks of 128 keys, a row of which a thread of the softmax holds, spill some registers; those of 64 none.
#[test]
fn attention_is_assembled_and_weights_lie_over_their_scores() {
    let Some(ptxas) = ptxas() else { return };
    let forms = [
        AttentionSm100Config::default(),
        AttentionSm100Config { mask: Mask::Causal, lse: true, polynomial: 32, ..Default::default() },
        AttentionSm100Config { d: 64, mask: Mask::Window(1024), bn: 64, ..Default::default() },
    ];
    for (i, config) in forms.iter().enumerate() {
        let program = config.program().unwrap();
        let sizes = [("b", 2), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        let arch = Arch::SM_100A;
        let kernel = compile(&program, &Options::new(arch).for_own_sizes(&program, &sizes)).unwrap();
        let most = if config.bn > 64 { 64 } else { 0 };
        let spilled = assemble(&ptxas, &format!("attention_sm100_{i}"), &kernel, arch);
        assert!(spilled <= most, "{config:?}: {spilled} bytes");
        let columns = 2 * (config.bn + config.d);
        let allocated = format!("], {};", columns.cast_unsigned().next_power_of_two());
        let line = kernel.ptx.lines().find(|line| line.contains("tcgen05.alloc")).unwrap();
        assert!(line.ends_with(&allocated), "weights lie over their scores: {line}");
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |given: &[(&str, &str)]| {
        let made = (operator("attention_sm100").unwrap().programs)(given);
        match made.unwrap_err() {
            ConfigError::Value { field, wanted, .. } => format!("{field}: {wanted}"),
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&[("d", "160")]), "d: must be a multiple of 16 from 16 to 128");
    assert_eq!(refused(&[("bn", "40")]), "bn: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused(&[("polynomial", "160")]), "polynomial: must be a multiple of 16 from 0 to bn = 128");
    assert_eq!(
        refused(&[("stages", "3")]),
        "stages: needs 264192 bytes of shared memory, and a block has 232448: choose fewer stages or keys"
    );
    let config = AttentionSm100Config::default();
    assert!(config.reject(Arch::SM_90A).unwrap().contains("lacks"));
    assert_eq!([Arch::SM_100A, Arch::SM_103A].map(|arch| config.reject(arch)), [None, None]);
}
