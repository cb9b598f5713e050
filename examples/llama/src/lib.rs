//! An engine for decoder-only transformers of the Llama family, of which every kernel is a tile program: RMSNorm, rotary embedding, attention with
//! shared heads over a cache in pages, gated units, and the choice of the next word. A step is one graph on a GPU; on the simulator its launches
//! run one after another.
//!
//! [`Engine`] runs a model, with weights in f16 or as integers of 4 bits; [`Reference`] computes the same in f32 on the host, [`Weights`] are random or read
//! from `.safetensors` files, and [`Sampler`] chooses words.

mod config;
mod engine;
mod error;
mod programs;
mod quantise;
mod reference;
mod safetensors;
mod sample;
mod weights;

pub use config::{Config, Format, RopeScaling};
pub use engine::{Engine, Limits, Place};
pub use error::LlamaError;
pub use reference::Reference;
pub use sample::Sampler;
pub use weights::{Layer, Weights};
