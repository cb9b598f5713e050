//! Chains on the stand-in driver: one workspace, tensors by name, and what is refused.
#![allow(unsafe_code, reason = "workspaces of nothing")]

mod common;

use common::{Turn, recipe, view, view_mut};
use tilewright_launch::{
    Chain, LaunchError, LaunchOptions, Param, ParamKind, Recipe, Scalar, Workspace, Zeros,
};

const SHAPE: [i64; 2] = [3, 512];

/// `x` to `partial`, which is a part of the workspace, and `partial` to `y`.
fn pair() -> [Recipe; 2] {
    let (mut first, mut second) = (recipe(), recipe());
    first.params[1].name = "partial".into();
    second.params[0].name = "partial".into();
    for recipe in [&mut first, &mut second] {
        recipe.tensor_mut("partial").unwrap().workspace = true;
    }
    [first, second]
}

fn chain(turn: &Turn, recipes: &[Recipe]) -> Result<Chain, LaunchError> {
    Chain::new(recipes.iter().map(|recipe| turn.load(recipe).plan(&SHAPE).unwrap()))
}

fn workspace(pointer: u64, bytes: u64) -> Workspace<'static> {
    // SAFETY: nothing runs.
    unsafe { Workspace::new(pointer, bytes) }
}

#[test]
fn kernels_meet_in_tensors_of_one_name() {
    let turn = Turn::new();
    let chain = chain(&turn, &pair()).unwrap();
    let names: Vec<&str> = chain.params().iter().map(|param| param.name.as_str()).collect();
    assert_eq!(names, ["x", "factor", "y"]);
    let bytes = 4096 + 3 * 512 * 4;
    assert_eq!((chain.workspace_bytes(), chain.plans().len()), (bytes, 2));
    let (x, mut y, mut memory) =
        (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE), workspace(0x10_0000, bytes));
    let options = LaunchOptions::new().workspace(&mut memory);
    turn.stand_in.calls();
    chain.launch_with(turn.stream(), (&x, 2.0f32, &mut y), &options).unwrap();
    let calls = turn.stand_in.calls();
    let launches: Vec<&String> = calls.iter().filter(|call| call.starts_with("cuLaunch")).collect();
    let there = "0010100000000000";
    assert!(launches[0].contains(&format!("params=[0010000000000000 {there} 00000040")), "{launches:?}");
    assert!(launches[1].contains(&format!("params=[{there} 0020000000000000 00000040")), "{launches:?}");
    // The second waits for the first by itself.
    assert!(!launches[0].contains("6:1") && launches[1].contains("6:1"), "{launches:?}");
}

#[test]
fn what_is_to_be_zero_is_filled_unless_launches_have_left_it_so() {
    let turn = Turn::new();
    for (zeros, clear, filled) in [
        (Zeros::None, false, 0),
        (Zeros::Left, false, 1),
        (Zeros::Left, true, 0),
        (Zeros::Before, false, 1),
        (Zeros::Before, true, 1),
    ] {
        let mut recipes = pair();
        let small = |recipe: &mut Recipe| {
            let tensor = recipe.tensor_mut("partial").unwrap();
            tensor.zeros = zeros;
        };
        recipes.iter_mut().for_each(small);
        // 3 × 256 numbers are less than 4096 bytes.
        let plans = recipes.iter().map(|recipe| turn.load(recipe).plan(&[3, 256]).unwrap());
        let chain = Chain::new(plans).unwrap();
        let pointer = turn.stand_in.alloc(1 << 16);
        let mut memory = workspace(pointer, 1 << 16);
        let stream = turn.stream();
        if clear {
            // SAFETY: nothing runs.
            unsafe { memory.clear(&turn.gpu(), stream) }.unwrap();
        }
        turn.stand_in.calls();
        let (x, mut y) = (view(0x1000, &[3, 256]), view_mut(0x2000, &[3, 256]));
        let options = LaunchOptions::new().dependent(true).workspace(&mut memory);
        chain.launch_with(stream, (&x, 2.0f32, &mut y), &options).unwrap();
        let calls = turn.stand_in.calls();
        let fillings = calls.iter().filter(|call| call.starts_with("cuMemset")).count();
        assert_eq!(fillings, filled, "{zeros:?} {clear}: {calls:?}");
        // The first begins early only behind another launch.
        let first = calls.iter().find(|call| call.starts_with("cuLaunch")).unwrap();
        assert_eq!(first.contains("6:1"), filled == 0, "{first}");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_launched() {
    let turn = Turn::new();
    let [first, mut second] = pair();
    let chain = chain(&turn, &[first.clone(), second.clone()]).unwrap();
    let (x, mut y) = (view(0x1000, &SHAPE), view_mut(0x2000, &SHAPE));
    let mut memory = workspace(0x10_0000, 4096 + 3 * 512 * 4);
    turn.stand_in.calls();
    let error = chain.launch_with(turn.stream(), (&x, 2.0f32, &mut y), &LaunchOptions::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `scale` needs a workspace of 10240 bytes at a multiple of 256 at these sizes; 0 are given"
    );
    let options = LaunchOptions::new().workspace(&mut memory);
    let error = chain.launch_with(turn.stream(), (&x, 2.0f32), &options).unwrap_err();
    assert_eq!(error.to_string(), "kernel `scale` takes 3 arguments (x, factor, y); 2 are given");
    // The second kernel's argument, too.
    let mut other = view_mut(0x2000, &[3, 256]);
    let error = chain.launch_with(turn.stream(), (&x, 2.0f32, &mut other), &options).unwrap_err();
    assert!(matches!(error, LaunchError::Shape { .. }), "{error}");
    assert!(!turn.stand_in.calls().iter().any(|call| call.starts_with("cuLaunch")));
    second.params[2] = Param::new("x", ParamKind::Scalar(Scalar::F32));
    let error =
        Chain::new([&first, &second].map(|recipe| turn.load(recipe).plan(&SHAPE).unwrap())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`x` of kernel `scale` is something else than what the kernels ahead of it call so"
    );
    assert!(Chain::new([]).unwrap().launch_with(turn.stream(), (), &LaunchOptions::new()).is_ok());
}
