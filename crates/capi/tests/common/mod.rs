//! A pack with the kernel of the examples, y = factor · x, made by hand.
#![allow(dead_code, reason = "each test file uses some of it")]

use tilewright_launch::{
    Access, DType, Formula, Item, Op, Param, ParamKind, Passed, Recipe, Scalar, Size, Target, TensorParam,
};
use tilewright_twpack::{Class, Entry, Pack, Span};

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

/// The name and the code of a product, with or without a bias.
fn product(bias: bool) -> (&'static str, String) {
    let name = if bias { "gemm bias" } else { "gemm" };
    let of_bias = if bias { ".param .u64 bias, " } else { "" };
    let params = format!(
        ".param .u64 a, .param .u64 b, {of_bias}.param .u64 c, .param .u32 m, .param .u32 n, .param .u32 k"
    );
    (name, PTX.replace(&PTX[PTX.find('(').unwrap()..=PTX.rfind(')').unwrap()], &format!("({params})")))
}

/// The recipe of a product: a block for 64 rows.
fn gemm(bias: bool) -> Recipe {
    let mut recipe = recipe();
    recipe.name = "gemm".into();
    recipe.sizes = ["m", "n", "k"].map(|name| Size::new(name, 64, 1 << 20)).to_vec();
    let tensor = |shape: &[u32], access| {
        let mut strides = vec![Formula::int(1)];
        if shape.len() > 1 {
            strides.insert(0, formula(&[Item::Size(shape[1])]));
        }
        let shape = shape.iter().map(|size| formula(&[Item::Size(*size)])).collect();
        let mut tensor = TensorParam::new(DType::F16, shape, strides);
        tensor.access = access;
        ParamKind::Tensor(tensor)
    };
    recipe.params =
        vec![Param::new("a", tensor(&[0, 2], Access::Read)), Param::new("b", tensor(&[1, 2], Access::Read))];
    if bias {
        recipe.params.push(Param::new("bias", tensor(&[1], Access::Read)));
    }
    recipe.params.push(Param::new("c", tensor(&[0, 1], Access::Write)));
    let tensors = 0..recipe.params.len() as u32;
    recipe.passed = tensors.map(Passed::Tensor).chain((0..3).map(Passed::Size)).collect();
    recipe.grid = vec![formula(&[Item::Size(0), Item::Int(64), Item::Op(Op::CeilDiv)])];
    recipe
}

/// A pack with products: of at most 64 rows, and with a bias of any number.
pub fn products() -> Vec<u8> {
    let mut pack = Pack::new("a test");
    for bias in [false, true] {
        let (name, code) = product(bias);
        pack.add(Entry::of_ptx(gemm(bias), code).named(name)).unwrap();
        let mut class = Class::new("gemm", [name.to_string()]);
        if bias {
            class.options = vec![("epilogue".into(), "bias".into())];
        } else {
            class.sizes = vec![Span::new("m", 1, 64), Span::new("k", 1, 4096).multiples_of(8)];
        }
        pack.add_class(class).unwrap();
    }
    pack.to_bytes().unwrap()
}

/// A pack with products of arrays of matrices: a block for 64 rows of each.
pub fn pointers() -> Vec<u8> {
    let (_, code) = product(false);
    let mut recipe = gemm(false);
    recipe.sizes.insert(0, Size::new("l", 1, 1 << 16));
    for param in &mut recipe.params {
        let ParamKind::Tensor(tensor) = &mut param.kind else { continue };
        // The sizes behind the first.
        let further = |formula: &Formula| {
            let next = |item: &Item| if let Item::Size(size) = item { Item::Size(size + 1) } else { *item };
            Formula::new(formula.items().iter().map(next).collect()).unwrap()
        };
        let [shape, strides] =
            [&tensor.shape, &tensor.strides].map(|all| all.iter().map(further).collect::<Vec<_>>());
        tensor.shape = std::iter::once(self::formula(&[Item::Size(0)])).chain(shape).collect();
        tensor.strides = std::iter::once(Formula::int(1)).chain(strides).collect();
        tensor.array = true;
    }
    recipe.passed = (0..3).map(Passed::Tensor).chain((0..4).map(Passed::Size)).collect();
    recipe.grid = vec![
        self::formula(&[Item::Size(1), Item::Int(64), Item::Op(Op::CeilDiv)]),
        self::formula(&[Item::Size(0)]),
    ];
    let code = code.replace(".param .u32 m,", ".param .u32 l, .param .u32 m,");
    let mut class = Class::new("gemm", ["gemm".to_string()]);
    class.options = vec![("batch".into(), "pointers".into())];
    let mut pack = Pack::new("a test");
    pack.add(Entry::of_ptx(recipe, code).named("gemm")).unwrap();
    pack.add_class(class).unwrap();
    pack.to_bytes().unwrap()
}

/// A pack with `sum`, of an array of three tensors `xs` and their sum `y`: each lies anywhere.
pub fn arrays() -> Vec<u8> {
    let mut pack = Pack::new("a test");
    let mut recipe = recipe();
    recipe.name = "sum".into();
    let (count, size) = (|| Formula::int(3), || formula(&[Item::Size(0)]));
    let mut xs = TensorParam::new(DType::F32, vec![count(), size()], vec![size(), Formula::int(1)]);
    xs.array = true;
    recipe.params[0] = Param::new("xs", ParamKind::Tensor(xs));
    pack.add(Entry::of_ptx(recipe, PTX).named("sum")).unwrap();
    pack.to_bytes().unwrap()
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
