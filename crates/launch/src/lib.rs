//! Launches of Tilewright kernels on one's own streams, in one's own memory and contexts.
//!
//! A kernel comes as a [`Recipe`], plain data that says everything a launch reads of it, and as code. [`Gpu::load`] gives the code to the
//! driver; [`Kernel::plan`] checks sizes once, and [`Plan::launch`] puts a launch on a [`Stream`] that somebody else owns:
//!
//! ```no_run
//! # fn launched(recipe: tilewright_launch::Recipe, ptx: String) -> Result<(), tilewright_launch::LaunchError> {
//! # let (raw, x, y, n) = (std::ptr::null_mut(), 0, 0, 1024);
//! use tilewright_launch::{Code, DType, Gpu, Stream, View, ViewMut};
//!
//! let gpu = Gpu::current()?; // the context that an engine has made current
//! let kernel = unsafe { gpu.load(&recipe, Code::Ptx(&ptx)) }?;
//! let stream = unsafe { Stream::borrow(raw) }; // its stream
//! let x = unsafe { View::new(x, DType::F32, &[n]) }; // its memory
//! let mut y = unsafe { ViewMut::new(y, DType::F32, &[n]) };
//! kernel.plan(&[n])?.launch(stream, (&x, &mut y, 2.0f32))?;
//! # Ok(())
//! # }
//! ```
//!
//! A launch whose plan and tensor maps are known allocates nothing, takes no lock, and calls the driver once. Nothing here waits for a GPU, and nothing
//! allocates memory of one. While a stream is captured no plan is made: [`LaunchError::NotReady`]. Several GPUs of one process have their kernels each
//! ([`Kernel::on`]).
//!
//! The crate knows neither the compiler nor the simulator, and has a binding of the CUDA driver of its own ([`driver`]): it is in one program with whatever
//! else binds the driver.

mod bounds;
mod chain;
pub mod driver;
mod dtype;
mod error;
mod formula;
mod gpu;
mod kernel;
mod launch;
mod map;
mod memo;
mod module;
mod plan;
mod recipe;
mod stream;
mod view;
mod workspace;

pub use chain::{Chain, PreparedChain};
pub use driver::Driver;
pub use dtype::DType;
pub use error::LaunchError;
pub use formula::{Formula, FormulaError, Item, MOST_ITEMS, Op};
pub use gpu::Gpu;
pub use kernel::Kernel;
pub use launch::{LaunchOptions, Prepared};
pub use map::l2_promotion;
pub use memo::{Memo, Reading, hash};
pub use module::{Code, Log, Module};
pub use plan::Plan;
pub use recipe::{
    Access, Bound, Corners, MOST_MAPS, MOST_PARAMS, Map, Param, ParamKind, Passed, Recipe, RecipeError,
    Scalar, Size, Swizzle, Target, TensorParam, Zeros,
};
pub use stream::Stream;
pub use view::{Arg, Args, Joined, MAX_RANK, Raw, TensorArray, View, ViewMut};
pub use workspace::Workspace;
