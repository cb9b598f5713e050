//! Scores of the engine, on the simulator, and of the reference on the host beside those of candle's CPU implementation, of the same checkpoint.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Llama, LlamaConfig};
use serde_json::{Value, json};
use tilewright_llama::{Config, Engine, Format, Limits, Model, Place, Reference, Weights};

/// Writes `config.json` and a checkpoint with random weights of this type.
fn write(folder: &Path, config: &Value, dtype: DType) {
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let number = |name: &str| config[name].as_u64().unwrap() as usize;
    let (hidden, intermediate, words) =
        (number("hidden_size"), number("intermediate_size"), number("vocab_size"));
    let head = hidden / number("num_attention_heads");
    let shared = number("num_key_value_heads") * head;
    let mut state = 1u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let mut tensors = HashMap::new();
    let mut put = |name: String, shape: &[usize], middle: f32, widest: f32| {
        let count = shape.iter().product();
        let numbers: Vec<f32> = (0..count).map(|_| middle + widest * uniform()).collect();
        let tensor = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
        tensors.insert(name, tensor);
    };
    put("model.embed_tokens.weight".to_string(), &[words, hidden], 0.0, 1.7);
    put("model.norm.weight".to_string(), &[hidden], 1.0, 0.2);
    if !config["tie_word_embeddings"].as_bool().unwrap() {
        put("lm_head.weight".to_string(), &[words, hidden], 0.0, (3.0 / hidden as f32).sqrt());
    }
    for layer in 0..number("num_hidden_layers") {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            put(name(norm), &[hidden], 1.0, 0.2);
        }
        for (part, rows, columns) in [
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", shared, hidden),
            ("self_attn.v_proj", shared, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", intermediate, hidden),
            ("mlp.up_proj", intermediate, hidden),
            ("mlp.down_proj", hidden, intermediate),
        ] {
            put(name(part), &[rows, columns], 0.0, (3.0 / columns as f32).sqrt());
        }
    }
    candle_core::safetensors::save(&tensors, folder.join("model.safetensors")).unwrap();
}

/// Scores behind each word, by candle in f32.
fn scores(folder: &Path, config: &Value, words: &[u32]) -> Vec<Vec<f32>> {
    let parsed: LlamaConfig = serde_json::from_value(config.clone()).unwrap();
    let parsed = parsed.into_config(false);
    let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let model = Llama::load(weights, &parsed).unwrap();
    let mut cache = Cache::new(true, DType::F32, &parsed, &Device::Cpu).unwrap();
    let mut step = |(place, word): (usize, &u32)| {
        let input = Tensor::new(&[[*word]], &Device::Cpu).unwrap();
        model.forward(&input, place, &mut cache).unwrap().squeeze(0).unwrap().to_vec1().unwrap()
    };
    words.iter().enumerate().map(|pair| step(pair)).collect()
}

/// The largest difference of two rows of scores.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Compares on a checkpoint of a shape.
fn compare(config: &Value, dtype: DType) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), config, dtype);
    let words: Vec<u32> = (0..70).map(|i| i * 37 % 320).collect();
    let expected = scores(folder.path(), config, &words);
    let shape = Config::read(folder.path()).unwrap();
    let weights = Weights::read(&shape, folder.path()).unwrap();
    let mut reference = Reference::new(&shape, &weights);
    for (word, expected) in words.iter().zip(&expected) {
        let apart = difference(&reference.step(*word), expected);
        assert!(apart < 1e-4, "the reference is {apart} apart");
    }
    let place = Place::sim();
    let model = Model::new(&place, &shape, &weights, Format::F16).unwrap();
    let limits = Limits { sequences: 1, places: 128 };
    let mut engine = Engine::new(&model, limits).unwrap();
    for count in [1, 70] {
        engine.begin(&[words[..count].to_vec()]).unwrap();
        engine.run(1).unwrap();
        let apart = difference(&engine.logits().unwrap()[0], &expected[count - 1]);
        let squares: f32 = expected[count - 1].iter().map(|score| score * score).sum();
        let size = (squares / expected[count - 1].len() as f32).sqrt();
        println!("behind {count} words the engine is {apart} apart, of scores of size {size}");
        assert!(apart < 0.01 * size, "behind {count} words the engine is {apart} apart");
    }
}

fn shape() -> Value {
    json!({
        "hidden_size": 128, "intermediate_size": 192, "vocab_size": 320, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 256,
        "tie_word_embeddings": false,
    })
}

#[test]
fn a_layer_has_the_scores_of_candle() {
    compare(&shape(), DType::F16);
}

#[test]
fn scaled_angles_and_tied_words_have_the_scores_of_candle() {
    let mut config = shape();
    config["tie_word_embeddings"] = json!(true);
    config["rope_theta"] = json!(500_000.0);
    // Frequencies of each kind: short wavelengths, long ones, and those between.
    config["rope_scaling"] = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    });
    compare(&config, DType::F16);
}
