//! A checkpoint as Hugging Face's `LlamaForCausalLM` saves it: `config.json`, and the tensors in several files with an index.

use std::collections::BTreeMap;
use std::path::Path;

use half::f16;
use serde_json::{Map, Value, json};
use tilewright_llama::{Config, Weights};

/// Tensors by name, with their shapes.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f16>)>;

/// The tensors of a model by the names of a checkpoint.
fn tensors(config: &Config, weights: &Weights) -> Tensors {
    let Config { hidden, heads, kv_heads, head, intermediate, vocabulary, .. } = *config;
    let mut all = Tensors::new();
    let mut put = |name: String, shape: &[usize], numbers: &[f16]| {
        assert_eq!(numbers.len(), shape.iter().product::<usize>());
        all.insert(name, (shape.to_vec(), numbers.to_vec()));
    };
    put("model.embed_tokens.weight".into(), &[vocabulary, hidden], &weights.embedding);
    put("model.norm.weight".into(), &[hidden], &weights.norm);
    put("lm_head.weight".into(), &[vocabulary, hidden], &weights.words);
    for (number, layer) in weights.layers.iter().enumerate() {
        let name = |part: &str| format!("model.layers.{number}.{part}.weight");
        put(name("input_layernorm"), &[hidden], &layer.attention_norm);
        put(name("post_attention_layernorm"), &[hidden], &layer.gate_norm);
        put(name("self_attn.o_proj"), &[hidden, heads * head], &layer.output);
        put(name("mlp.down_proj"), &[hidden, intermediate], &layer.down);
        let (mut qkv, mut gate_up) = (&layer.qkv[..], &layer.gate_up[..]);
        for (part, rows) in [("q", heads * head), ("k", kv_heads * head), ("v", kv_heads * head)] {
            let (own, rest) = qkv.split_at(rows * hidden);
            put(name(&format!("self_attn.{part}_proj")), &[rows, hidden], own);
            qkv = rest;
        }
        for part in ["gate", "up"] {
            let (own, rest) = gate_up.split_at(intermediate * hidden);
            put(name(&format!("mlp.{part}_proj")), &[intermediate, hidden], own);
            gate_up = rest;
        }
    }
    all
}

/// Writes a file with some of the tensors, in f16 or in f32.
fn write<'t>(
    path: &Path,
    tensors: impl Iterator<Item = (&'t String, &'t (Vec<usize>, Vec<f16>))>,
    wide: bool,
) {
    let (mut header, mut data) = (Map::new(), Vec::new());
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    for (name, (shape, numbers)) in tensors {
        let begin = data.len();
        for number in numbers {
            if wide {
                data.extend(number.to_f32().to_le_bytes());
            } else {
                data.extend(number.to_le_bytes());
            }
        }
        let dtype = if wide { "F32" } else { "F16" };
        header.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]}),
        );
    }
    let header = Value::from(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_checkpoint_in_several_files_is_read() {
    let config = Config::small(2);
    let weights = Weights::random(&config, 11);
    let all = tensors(&config, &weights);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": config.hidden,
        "intermediate_size": config.intermediate, "vocab_size": config.vocabulary, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads, "head_dim": config.head,
        "rms_norm_eps": 1e-5, "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "torch_dtype": "float16",
    });
    std::fs::write(at("config.json"), text.to_string()).unwrap();
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let file = |number: usize| usize::from(number > all.len() / 2);
    for (which, name) in names.iter().enumerate() {
        let own = all.iter().enumerate().filter(|(number, _)| file(*number) == which).map(|(_, one)| one);
        write(&at(name), own, which == 1);
    }
    let map: Map<String, Value> =
        all.keys().enumerate().map(|(number, name)| (name.clone(), names[file(number)].into())).collect();
    let index = json!({"metadata": {"total_size": 0}, "weight_map": map}).to_string();
    std::fs::write(at("model.safetensors.index.json"), &index).unwrap();
    // What the index does not name is not read: here it would be no safetensors at all.
    std::fs::write(at("consolidated.safetensors"), b"nothing").unwrap();

    let shape = Config::read(folder.path()).unwrap();
    assert_eq!(shape, config);
    assert!(Weights::read(&shape, folder.path()).unwrap() == weights);

    let message = || Weights::read(&shape, folder.path()).unwrap_err().to_string();
    let second = std::fs::read(at(names[1])).unwrap();
    std::fs::write(at(names[1]), &second[..second.len() - 1]).unwrap();
    assert!(message().contains(names[1]), "{}", message());
    std::fs::remove_file(at(names[1])).unwrap();
    assert!(message().contains(names[1]), "{}", message());
    for wrong in ["{}", "[", r#"{"weight_map": {"a": 1}}"#, r#"{"weight_map": {"a": "../b"}}"#] {
        std::fs::write(at("model.safetensors.index.json"), wrong).unwrap();
        assert!(message().contains("`weight_map` has a file of the folder for each tensor"), "{}", message());
    }
}
