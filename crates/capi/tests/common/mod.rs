//! A pack with the kernel of the examples, y = factor · x, made by hand.

use tilewright_launch::{
    Access, DType, Formula, Item, Op, Param, ParamKind, Passed, Recipe, Scalar, Size, Target, TensorParam,
};
use tilewright_pack::{Entry, Pack};

/// The code: only its list of parameters matters on the stand-in.
const PTX: &str = ".version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u32 n)
{
    ret;
}
";

fn formula(items: &[Item]) -> Formula {
    Formula::new(items.to_vec()).unwrap()
}

/// The recipe: a block for 128 elements.
pub fn recipe() -> Recipe {
    let target = Target { name: "sm_80".into(), capability: (8, 0), specific: false };
    let mut recipe = Recipe::new("scale", "scale", target);
    recipe.threads = 128;
    recipe.sizes = vec![Size::new("n", 4096, 1 << 30)];
    let tensor = |access| {
        let mut tensor = TensorParam::new(DType::F32, vec![formula(&[Item::Size(0)])], vec![Formula::int(1)]);
        tensor.access = access;
        ParamKind::Tensor(tensor)
    };
    recipe.params = vec![
        Param::new("x", tensor(Access::Read)),
        Param::new("y", tensor(Access::Write)),
        Param::new("factor", ParamKind::Scalar(Scalar::F32)),
    ];
    recipe.passed = vec![Passed::Tensor(0), Passed::Tensor(1), Passed::Scalar(2), Passed::Size(0)];
    recipe.grid = vec![formula(&[Item::Size(0), Item::Int(128), Item::Op(Op::CeilDiv)])];
    recipe
}

/// The pack, with the kernel once more, with y in the workspace, as `kept`.
pub fn pack() -> Vec<u8> {
    let mut pack = Pack::new("a test");
    pack.add(Entry::of_ptx(recipe(), PTX)).unwrap();
    let mut kept = recipe();
    kept.tensor_mut("y").unwrap().workspace = true;
    pack.add(Entry::of_ptx(kept, PTX).named("kept")).unwrap();
    pack.to_bytes().unwrap()
}
