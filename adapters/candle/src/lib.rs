//! Tilewright's operators for [candle](https://github.com/huggingface/candle): linear layers with bias and activation in one kernel, attention and its gradients, attention over caches
//! with pages, norms, softmax, and linear layers with weights of 4 bits.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use tilewright_candle::{Activation, AttentionOptions, attention, linear, rms_norm};
//!
//! # fn main() -> candle_core::Result<()> {
//! let device = Device::Cpu; // or `Device::new_cuda(0)?`, with the feature `cuda`
//! let x = Tensor::randn(0f32, 1., (2, 16, 64), &device)?;
//! let [w, norm] = [Tensor::randn(0f32, 0.1, (192, 64), &device)?, Tensor::ones(64, DType::F32, &device)?];
//! let qkv = linear(&rms_norm(&x, &norm, 1e-5)?, &w, None, Activation::None)?.reshape((2, 16, 3, 4, 16))?;
//! let [q, k, v] = [0, 1, 2].map(|part| qkv.get_on_dim(2, part).and_then(|part| part.contiguous()));
//! let o = attention(&q?, &k?, &v?, &AttentionOptions::new().causal())?;
//! assert_eq!(o.dims(), [2, 16, 4, 16]);
//! # Ok(())
//! # }
//! ```
//!
//! On a GPU (feature `cuda`) an operation takes candle's memory and candle's stream, and a kernel that [`tilewright_ops::Library`] chooses for the sizes and keeps; nothing is copied, and nothing waits.
//! Kernels are compiled when they are first needed, by this program, or before by the library's `warm_up` (`library(&device)?`); neither nvcc nor any other tool of CUDA has a part in that. On the host the same
//! operations are references of plain loops in f64: right, and slow.
//!
//! Operands lie in row-major order. Refusals are candle's errors, with the operand's name around them.

mod apply;
mod attention;
#[cfg(feature = "cuda")]
mod gpu;
mod host;
mod linear;
mod norm;
mod operand;
mod plan;
#[cfg(test)]
mod stand_in;
mod weights;

pub use attention::{AttentionOptions, attention, attention_decode, attention_paged};
#[cfg(feature = "cuda")]
pub use gpu::{library, use_library};
pub use linear::{Activation, add_linear, linear};
pub use norm::{layer_norm, rms_norm, softmax};
pub use tilewright_ops as ops;
pub use weights::LinearW4;

// The code of the pages compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/candle.md")]
mod page {}
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
