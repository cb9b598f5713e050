//! Devices (CUDA, simulator), buffers, launch and timing for Tilewright kernels.
//!
//! A [`Device`] runs a compiled [`Kernel`](tilewright_compiler::Kernel). There are two kinds: NVIDIA GPUs, through the
//! CUDA driver, and the simulator. The driver is looked for when a GPU is first asked for, so a program built with this
//! crate runs on machines without one, where [`devices`] says why there is no GPU and [`open`] returns an error.
//!
//! Every launch is checked the same way on every device: arguments against parameters, buffers against shapes, sizes against
//! what the kernel was compiled for, the grid against the limits of hardware. What passes on the simulator is not refused by
//! a GPU for any of these.
//!
//! ```
//! use tilewright_machine::DType;
//! use tilewright_runtime::{DeviceChoice, Tensor, open};
//!
//! let device = open(DeviceChoice::Sim)?;
//! let x = Tensor::from_f64(&*device, DType::F16, &[1.0, 0.1])?;
//! assert_eq!(x.read(&*device)?, [1.0, 0.0999755859375]);
//! # Ok::<(), tilewright_runtime::RuntimeError>(())
//! ```

mod arg;
mod bind;
mod buffer;
mod cuda;
mod device;
mod error;
mod launch;
mod open;
mod refusal;
mod report;
mod scale;
mod sequence;
mod sim;
mod tensor;
mod turn;

pub use arg::{Arg, LaunchOptions, Sizes};
pub use bind::{Bindings, sizes_of};
pub use buffer::{Buffer, decode, decode_elements, encode, encode_elements};
pub use cuda::{CudaDevice, CudaGraph, CudaSequence, CudaStream, StreamWork};
pub use device::{Chip, Device, DeviceChoice, DeviceInfo, DeviceKind};
pub use error::{MapDimension, ParamOf, RuntimeError, TensorMapError};
pub use launch::default_sizes;
pub use open::{DeviceList, devices, open};
pub use report::{CudaReport, LaunchReport, Timing};
pub use scale::Scales;
pub use sim::{SimDevice, SimSequence};
pub use tensor::Tensor;
pub use turn::{L2, Turn};
