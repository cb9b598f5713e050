//! A kernel made by hand, on the stand-in driver: y = factor · x for n elements, with y copied by a tensor map.
#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(unsafe_code, reason = "views and streams are of memory and handles that the tests own")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use tilewright_launch::{
    Access, Bound, Code, DType, Driver, Formula, Gpu, Item, Kernel, Map, Op, Param, ParamKind, Passed,
    Recipe, Scalar, Size, Stream, Swizzle, Target, TensorParam, View, ViewMut,
};
use tilewright_stand_in_driver::StandIn;

/// The code: only its list of parameters matters.
pub const PTX: &str = "
.visible .entry scale(
    .param .u64 scale_param_0, // x
    .param .u64 scale_param_1, // y
    .param .f32 scale_param_2, // factor
    .param .u32 scale_param_3, // m
    .param .u32 scale_param_4, // n
    .param .align 64 .b8 scale_param_5[128] // y
)
{
    ret;
}
";

pub fn formula(items: &[Item]) -> Formula {
    Formula::new(items.to_vec()).unwrap()
}

pub fn tensor(shape: &[Item], strides: &[Formula], access: Access) -> TensorParam {
    let shape = shape.iter().map(|item| formula(&[*item])).collect();
    let mut tensor = TensorParam::new(DType::F32, shape, strides.to_vec());
    tensor.access = access;
    tensor
}

/// `y[m, n] = factor · x[m, n]`, a block of 128 threads for each 128 columns of a row, in clusters of two.
pub fn recipe() -> Recipe {
    let target = Target { name: "sm_90a".into(), capability: (9, 0), specific: true };
    let mut recipe = Recipe::new("scale", "scale", target);
    (recipe.threads, recipe.cluster, recipe.shared_bytes) = (128, 2, 64 * 1024);
    recipe.waits = true;
    recipe.sizes = vec![Size::new("m", 4, 1 << 30), Size::new("n", 256, 1 << 30)];
    recipe.sizes[1].multiple = 4;
    let (m, n) = (Item::Size(0), Item::Size(1));
    let strides = [formula(&[n]), Formula::int(1)];
    let parameter =
        |name: &str, access| Param::new(name, ParamKind::Tensor(tensor(&[m, n], &strides, access)));
    recipe.params = vec![
        parameter("x", Access::Read),
        parameter("y", Access::Write),
        Param::new("factor", ParamKind::Scalar(Scalar::F32)),
    ];
    recipe.passed = vec![
        Passed::Tensor(0),
        Passed::Tensor(1),
        Passed::Scalar(2),
        Passed::Size(0),
        Passed::Size(1),
        Passed::Map(0),
    ];
    let columns = formula(&[n, Item::Int(128), Item::Op(Op::CeilDiv)]);
    recipe.grid = vec![columns.clone(), formula(&[m])];
    let extents = vec![formula(&[n]), formula(&[m])];
    let mut map = Map::new(1, DType::F32, vec![32, 8], extents, vec![formula(&[n])]);
    map.swizzle = Swizzle::B128;
    recipe.maps = vec![map];
    let offset = formula(&[Item::Block(0), Item::Int(128), Item::Op(Op::Mul)]);
    recipe.bounds = vec![
        Bound::Fits { what: "an offset of `x`".into(), formula: offset, reach: 127 },
        Bound::Fits {
            what: "an extent of `x`".into(),
            formula: formula(&[m, n, Item::Op(Op::Mul)]),
            reach: 0,
        },
    ];
    recipe
}

/// The stand-in, of which tests of one process take turns.
pub struct Turn {
    pub stand_in: StandIn,
    pub driver: &'static Driver,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    /// As a fresh driver with two GPUs of compute capability 9.0, the first of which is current.
    pub fn new() -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let stand_in = StandIn::of_this_test();
        // SAFETY: the stand-in has the functions of a driver.
        let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
        stand_in.set("capability", 90);
        stand_in.set("devices", 2);
        stand_in.make_current(0);
        stand_in.calls();
        Turn { stand_in, driver, _turn: turn }
    }

    pub fn gpu(&self) -> Gpu {
        Gpu::current_of(self.driver).unwrap()
    }

    pub fn load(&self, recipe: &Recipe) -> Kernel {
        // SAFETY: the stand-in runs no code.
        unsafe { self.gpu().load(recipe, Code::Ptx(PTX)) }.unwrap()
    }

    pub fn kernel(&self) -> Kernel {
        self.load(&recipe())
    }

    pub fn stream(&self) -> Stream<'static> {
        // SAFETY: the stand-in never forgets a stream.
        unsafe { Stream::borrow(self.stand_in.stream(false)) }
    }

    /// A stream that is being captured.
    pub fn captured(&self) -> Stream<'static> {
        // SAFETY: as above.
        unsafe { Stream::borrow(self.stand_in.stream(true)) }
    }
}

/// A tensor at an address, which the stand-in never reads.
pub fn view(pointer: u64, shape: &[i64]) -> View<'static> {
    // SAFETY: nothing runs.
    unsafe { View::new(pointer, DType::F32, shape) }
}

/// The same, for writing.
pub fn view_mut(pointer: u64, shape: &[i64]) -> ViewMut<'static> {
    // SAFETY: nothing runs.
    unsafe { ViewMut::new(pointer, DType::F32, shape) }
}
