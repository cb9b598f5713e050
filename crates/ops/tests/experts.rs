//! Layers of experts on the stand-in driver: the launches of the plan, with one workspace, for every number of tokens of a warm range.

mod common;

use common::{Turn, view, view_mut, workspace};
use tilewright_kernels::moe::{MoeLayer, MoeReduction, MoeRoutingConfig, MoeWeights};
use tilewright_launch::DType::{F16, F32};
use tilewright_machine::DType;
use tilewright_ops::OpsError;

fn layer() -> MoeLayer {
    MoeLayer {
        dtype: DType::F16,
        weights: MoeWeights::Same,
        hidden: 128,
        intermediate: 256,
        experts: 8,
        all_experts: None,
        k: 2,
        reduction: MoeReduction::Ordered,
        routing: Some(MoeRoutingConfig {
            dtype: DType::F32,
            experts: 8,
            k: 2,
            ..MoeRoutingConfig::default()
        }),
    }
}

#[test]
fn a_layer_is_one_call_for_every_number_of_tokens_of_a_warm_range() {
    let turn = Turn::new(90);
    let lib = turn.library().strict();
    let experts = lib.moe_layer(layer()).unwrap();
    let error = experts.workspace_bytes(3).unwrap_err();
    assert!(
        matches!(&error, OpsError::NotWarm { .. }) && error.to_string().contains("tokens = 3"),
        "{error}"
    );
    let warm = experts.warm_up(1..=40).unwrap();
    assert_eq!(warm.classes, 18);
    turn.stand_in.calls();
    let multiprocessors = i64::from(turn.gpu.multiprocessors());
    for tokens in [1, 3, 16, 40] {
        let plan = experts
            .layer()
            .plan_by(
                &layer().choice(if tokens == 40 { 64 } else { tokens }, multiprocessors).unwrap(),
                tokens,
            )
            .unwrap();
        let mut names = experts.arguments(tokens).unwrap();
        names.sort();
        assert_eq!(names, ["logits", "scale", "w13", "w2", "x", "y"]);
        let (logits, x) = (view(0x1000, F32, &[tokens, 8]), view(0x2000, F16, &[tokens, 128]));
        let (w13, w2) = (view(0x3000, F16, &[8, 2, 256, 128]), view(0x4000, F16, &[8, 128, 256]));
        let mut y = view_mut(0x5000, F16, &[tokens, 128]);
        let mut memory = workspace(0x10_0000, experts.workspace_bytes(tokens).unwrap());
        let call = experts.tokens(tokens).arg("logits", &logits).arg("x", &x).arg("w13", &w13).arg("w2", &w2);
        call.arg("y", &mut y).workspace(&mut memory).run(turn.stream()).unwrap();
        let calls = turn.stand_in.calls();
        assert!(!calls.iter().any(|call| call.contains("Load")), "{calls:?}");
        let launches = calls.iter().filter(|call| call.starts_with("cuLaunch")).count();
        assert_eq!(launches, plan.launches.len());
    }
    let error = experts.tokens(3).arg("x", &view(0x2000, F16, &[3, 128])).run(turn.stream()).unwrap_err();
    assert!(error.to_string().starts_with("`moe_layer` takes `logits`"), "{error}");
    let error = experts.tokens(200).run(turn.stream()).unwrap_err();
    assert!(error.to_string().contains("`moe_layer` is not warm for tokens = 200"), "{error}");
    let error = experts.tokens(0).run(turn.stream()).unwrap_err();
    assert!(error.to_string().contains("`tokens` = 0"), "{error}");
    drop(turn);
    let turn = Turn::new(80);
    assert!(matches!(turn.library().moe_layer(layer()), Err(OpsError::Nothing { .. })));
}
