//! The weights of a model in f16, with the rows of products side by side that the engine computes together.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::Config;
use crate::error::LlamaError;
use crate::safetensors::Checkpoint;

/// The weights of a layer. Matrices are row-major, a row for each result.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// The norm ahead of attention.
    pub attention_norm: Vec<f16>,
    /// Rows of queries, of keys and of values.
    pub qkv: Vec<f16>,
    /// The product behind attention.
    pub output: Vec<f16>,
    /// The norm ahead of the gated units.
    pub gate_norm: Vec<f16>,
    /// Rows of gates, and behind them those of what they multiply.
    pub gate_up: Vec<f16>,
    /// The product behind the gated units.
    pub down: Vec<f16>,
}

/// The weights of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights {
    /// A row for each word.
    pub embedding: Arc<Vec<f16>>,
    /// The layers; several may be one.
    pub layers: Vec<Arc<Layer>>,
    /// The last norm.
    pub norm: Vec<f16>,
    /// The last product.
    pub words: Arc<Vec<f16>>,
}

/// Random numbers of this standard deviation (uniform ones).
fn random(rng: &mut ChaCha8Rng, count: usize, deviation: f32) -> Vec<f16> {
    let widest = deviation * 3f32.sqrt();
    let number = |bits: u16| f16::from_f32((f32::from(bits) / 32768.0 - 1.0) * widest);
    let table: Vec<f16> = (0..=u16::MAX).map(number).collect();
    let mut numbers = Vec::with_capacity(count);
    while numbers.len() < count {
        let word = rng.next_u64();
        numbers.extend((0..4).map(|part| table[(word >> (16 * part)) as usize & 0xffff]));
    }
    numbers.truncate(count);
    numbers
}

/// Weights of a norm, around 1.
fn around_one(rng: &mut ChaCha8Rng, count: usize) -> Vec<f16> {
    random(rng, count, 0.1).into_iter().map(|x| f16::from_f32(1.0 + x.to_f32())).collect()
}

impl Layer {
    fn random(config: &Config, rng: &mut ChaCha8Rng) -> Self {
        let Config { hidden, intermediate, .. } = *config;
        let mut matrix =
            |rows: usize, columns: usize| random(rng, rows * columns, (columns as f32).sqrt().recip());
        let (qkv, output) = (matrix(config.qkv(), hidden), matrix(hidden, config.heads * config.head));
        let (gate_up, down) = (matrix(2 * intermediate, hidden), matrix(hidden, intermediate));
        let (attention_norm, gate_norm) = (around_one(rng, hidden), around_one(rng, hidden));
        Layer { attention_norm, qkv, output, gate_norm, gate_up, down }
    }

    fn read(config: &Config, from: &Checkpoint, number: usize) -> Result<Self, LlamaError> {
        let Config { hidden, heads, kv_heads, head, intermediate, .. } = *config;
        let read =
            |name: &str, shape: &[usize]| from.read(&format!("model.layers.{number}.{name}.weight"), shape);
        let rows = |names: &[(&str, usize)]| -> Result<Vec<f16>, LlamaError> {
            let parts = names.iter().map(|(name, rows)| read(name, &[*rows, hidden]));
            Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
        };
        Ok(Layer {
            attention_norm: read("input_layernorm", &[hidden])?,
            qkv: rows(&[
                ("self_attn.q_proj", heads * head),
                ("self_attn.k_proj", kv_heads * head),
                ("self_attn.v_proj", kv_heads * head),
            ])?,
            output: read("self_attn.o_proj", &[hidden, heads * head])?,
            gate_norm: read("post_attention_layernorm", &[hidden])?,
            gate_up: rows(&[("mlp.gate_proj", intermediate), ("mlp.up_proj", intermediate)])?,
            down: read("mlp.down_proj", &[hidden, intermediate])?,
        })
    }
}

impl Weights {
    /// Random weights, each layer's its own.
    pub fn random(config: &Config, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let layers = (0..config.layers).map(|_| Arc::new(Layer::random(config, &mut rng))).collect();
        Weights::around(config, &mut rng, layers)
    }

    /// Random weights, the same in every layer: as fast to run as any, and made in a fraction of the time.
    pub fn repeated(config: &Config, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let layer = Arc::new(Layer::random(config, &mut rng));
        Weights::around(config, &mut rng, vec![layer; config.layers])
    }

    fn around(config: &Config, rng: &mut ChaCha8Rng, layers: Vec<Arc<Layer>>) -> Self {
        let count = config.vocabulary * config.hidden;
        let embedding = Arc::new(random(rng, count, 1.0));
        let norm = around_one(rng, config.hidden);
        let words = if config.tied {
            embedding.clone()
        } else {
            Arc::new(random(rng, count, (config.hidden as f32).sqrt().recip()))
        };
        Weights { embedding, layers, norm, words }
    }

    /// Reads the `.safetensors` files of a folder, with the names of Hugging Face's `LlamaForCausalLM`.
    ///
    /// # Errors
    ///
    /// A file that is not read, a tensor that is missing or of another shape or type.
    pub fn read(config: &Config, folder: &Path) -> Result<Self, LlamaError> {
        let from = Checkpoint::open(folder)?;
        let shape = [config.vocabulary, config.hidden];
        let embedding = Arc::new(from.read("model.embed_tokens.weight", &shape)?);
        let layers = (0..config.layers).map(|number| Layer::read(config, &from, number).map(Arc::new));
        let layers = layers.collect::<Result<_, _>>()?;
        let norm = from.read("model.norm.weight", &[config.hidden])?;
        let words =
            if config.tied { embedding.clone() } else { Arc::new(from.read("lm_head.weight", &shape)?) };
        Ok(Weights { embedding, layers, norm, words })
    }
}
