//! An engine for decoder-only transformers of the Llama family, of which every kernel is a tile program: RMSNorm, rotary embedding, attention with
//! shared heads over a cache in pages, gated units, and the choice of the next word. A step is one graph on a GPU; on the simulator its launches
//! run one after another.
//!
//! [`Model`] is a model on a device, with weights in f16 or as integers of 4 bits, [`Engine`] runs it; [`Reference`] computes the same in f32 on the host, [`Weights`] are random or read
//! from `.safetensors` files, and [`Sampler`] chooses words.

mod config;
mod engine;
mod error;
mod model;
mod programs;
mod quantise;
mod reference;
mod safetensors;
mod sample;
mod step;
mod weights;

pub use config::{Config, Format, RopeScaling};
pub use engine::{Engine, Limits};
pub use error::LlamaError;
pub use model::{Model, Place};
pub use reference::Reference;
pub use sample::Sampler;
pub use weights::{Layer, Weights};
