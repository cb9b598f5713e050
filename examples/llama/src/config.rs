//! The shape of a model, as `config.json` of a checkpoint has it.

use std::path::Path;

use serde_json::Value;

use crate::error::LlamaError;

/// Neighbours of a row of integers that share a scale.
pub(crate) const GROUP: usize = 128;

/// The format of the weights of layers; those of words stay f16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// As they are.
    F16,
    /// Integers of 4 bits, with a scale for each 128 neighbours of a row.
    I4,
}

/// Scaling of the angles of the rotary embedding by their wavelengths (`rope_type` = `llama3`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RopeScaling {
    /// Divisor of the frequencies with long wavelengths.
    pub factor: f64,
    /// Wavelengths above the original context over this are long.
    pub low_frequency: f64,
    /// Wavelengths below the original context over this stay as they are.
    pub high_frequency: f64,
    /// The context that the model was first trained with.
    pub context: f64,
}

/// The shape of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Elements of a token's vector.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head: usize,
    /// Gated units of a layer.
    pub intermediate: usize,
    /// Words.
    pub vocabulary: usize,
    /// The number that is added to the mean of squares of a norm.
    pub eps: f32,
    /// The base of the rotary embedding's frequencies.
    pub theta: f64,
    /// The scaling of these frequencies.
    pub scaling: Option<RopeScaling>,
    /// True if the last product has the words' vectors as weights.
    pub tied: bool,
}

impl Config {
    /// The shape of Llama 3 with 8 billion weights.
    pub fn llama3_8b() -> Self {
        Config {
            hidden: 4096,
            layers: 32,
            heads: 32,
            kv_heads: 8,
            head: 128,
            intermediate: 14336,
            vocabulary: 128_256,
            eps: 1e-5,
            theta: 500_000.0,
            scaling: None,
            tied: false,
        }
    }

    /// A shape for tests, with so many layers.
    pub fn small(layers: usize) -> Self {
        Config {
            hidden: 128,
            layers,
            heads: 4,
            kv_heads: 2,
            head: 32,
            intermediate: 192,
            vocabulary: 320,
            eps: 1e-5,
            theta: 10_000.0,
            scaling: None,
            tied: false,
        }
    }

    /// Reads `config.json` of a folder.
    ///
    /// # Errors
    ///
    /// A file that is not read, a field that is missing, or numbers that the engine does not take.
    pub fn read(folder: &Path) -> Result<Self, LlamaError> {
        let path = folder.join("config.json");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| LlamaError::File { path: path.clone(), source })?;
        let wrong = |what: String| LlamaError::Content { path: path.clone(), what };
        let json: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let optional = |name: &str| json.get(name).and_then(Value::as_u64).map(|x| x as usize);
        let count = |name: &str| {
            optional(name).ok_or_else(|| wrong(format!("`{name}` is missing, or is no whole number")))
        };
        let real = |name: &str, or: f64| json.get(name).and_then(Value::as_f64).unwrap_or(or);
        unlike(&json).map_err(wrong)?;
        let theta = rope(&json).and_then(|rope| rope.get("rope_theta")).and_then(Value::as_f64);
        let (hidden, heads) = (count("hidden_size")?, count("num_attention_heads")?);
        let config = Config {
            hidden,
            layers: count("num_hidden_layers")?,
            heads,
            kv_heads: optional("num_key_value_heads").unwrap_or(heads),
            head: optional("head_dim").unwrap_or(hidden / heads.max(1)),
            intermediate: count("intermediate_size")?,
            vocabulary: count("vocab_size")?,
            eps: real("rms_norm_eps", 1e-5) as f32,
            theta: real("rope_theta", theta.unwrap_or(10_000.0)),
            scaling: scaling(&json).map_err(wrong)?,
            tied: json.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false),
        };
        config.validate()?;
        Ok(config)
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// The first number that the engine does not take.
    pub fn validate(&self) -> Result<(), LlamaError> {
        let wrong = |field, value: usize, wanted: &str| {
            Err(LlamaError::Config { field, value: value.to_string(), wanted: wanted.to_string() })
        };
        let positive = [
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("vocab_size", self.vocabulary),
        ];
        if let Some((field, value)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return wrong(field, value, "must be at least 1");
        }
        let eights = [("hidden_size", self.hidden), ("intermediate_size", self.intermediate)];
        if let Some((field, value)) = eights.into_iter().find(|(_, value)| *value == 0 || value % 8 != 0) {
            return wrong(
                field,
                value,
                "must be a multiple of 8: rows of weights are read 16 bytes at a time",
            );
        }
        if self.head == 0 || !self.head.is_multiple_of(16) || self.head > 256 {
            return wrong("head_dim", self.head, "must be a multiple of 16 up to 256, as attention takes it");
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let wanted = "must divide the heads of queries";
            return wrong("num_key_value_heads", self.kv_heads, wanted);
        }
        Ok(())
    }

    /// Rows of the product of queries, keys and values.
    pub fn qkv(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head
    }

    /// The cosines and sines of the angles of so many places, `[places, head / 2]` each.
    pub fn angles(&self, places: usize) -> (Vec<f32>, Vec<f32>) {
        let half = self.head / 2;
        let frequency = |i: usize| self.scaled(self.theta.powf(-(i as f64) / half as f64));
        let angles = (0..places).flat_map(|place| (0..half).map(move |i| (place, i)));
        angles
            .map(|(place, i)| {
                let (sin, cos) = (place as f64 * frequency(i)).sin_cos();
                (cos as f32, sin as f32)
            })
            .unzip()
    }

    fn scaled(&self, frequency: f64) -> f64 {
        let Some(scaling) = self.scaling else { return frequency };
        let turns = scaling.context * frequency / (2.0 * std::f64::consts::PI);
        let smooth = (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
        let smooth = smooth.clamp(0.0, 1.0);
        frequency * ((1.0 - smooth) / scaling.factor + smooth)
    }

    /// Bytes of weights that a step reads, without the words' vectors, of which it reads a row a token.
    pub fn bytes_of_weights(&self, format: Format) -> usize {
        let matrices = self.hidden * (self.qkv() + self.heads * self.head + 3 * self.intermediate);
        let matrices = match format {
            Format::F16 => 2 * matrices,
            Format::I4 => matrices / 2 + 2 * matrices / GROUP,
        };
        self.layers * (matrices + 4 * self.hidden) + 2 * self.hidden * (self.vocabulary + 1)
    }

    /// Bytes of keys and values of a token.
    pub fn bytes_of_token(&self) -> usize {
        2 * 2 * self.layers * self.kv_heads * self.head
    }
}

/// The part of a configuration about the rotary embedding: `rope_parameters` of newer ones, with the base among them, `rope_scaling` of older ones.
fn rope(json: &Value) -> Option<&Value> {
    ["rope_parameters", "rope_scaling"]
        .iter()
        .find_map(|name| json.get(name).filter(|value| !value.is_null()))
}

/// Refuses a model that computes something else than the engine, with the same tensors or with more.
fn unlike(json: &Value) -> Result<(), String> {
    for (field, known) in [("model_type", "llama"), ("hidden_act", "silu")] {
        if let Some(other) = json.get(field).and_then(Value::as_str).filter(|given| *given != known) {
            return Err(format!("`{field}` is `{other}`: the engine has `{known}`"));
        }
    }
    let set = |field: &&&str| json.get(**field).and_then(Value::as_bool) == Some(true);
    match ["attention_bias", "mlp_bias"].iter().find(set) {
        Some(field) => Err(format!("`{field}` is set: the engine's products have no biases")),
        None => Ok(()),
    }
}

fn scaling(json: &Value) -> Result<Option<RopeScaling>, String> {
    let Some(scaling) = rope(json) else { return Ok(None) };
    let kind = scaling.get("rope_type").or(scaling.get("type")).and_then(Value::as_str).unwrap_or("");
    match kind {
        "default" => Ok(None),
        "llama3" => {
            let number = |name: &str| {
                let value = scaling.get(name).and_then(Value::as_f64);
                value.ok_or_else(|| format!("`{name}` of `rope_scaling` is missing, or is no number"))
            };
            Ok(Some(RopeScaling {
                factor: number("factor")?,
                low_frequency: number("low_freq_factor")?,
                high_frequency: number("high_freq_factor")?,
                context: number("original_max_position_embeddings")?,
            }))
        }
        other => Err(format!("`rope_scaling` of type `{other}`: there are `default` and `llama3`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(folder.path().join("config.json"), text).unwrap();
            Config::read(folder.path())
        };
        let text = r#"{"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": null}"#;
        assert_eq!(read(text).unwrap(), Config::llama3_8b());
        let message = |text: &str| read(text).unwrap_err().to_string();
        assert!(message("{}").contains("`hidden_size` is missing"));
        assert!(message(&text.replace(": 8,", ": 5,")).contains("must divide the heads of queries"));
        assert!(message(&text.replace("14336", "14337")).contains("multiple of 8"));
        let scaled = text.replace("null", r#"{"rope_type": "yarn"}"#);
        assert!(message(&scaled).contains("there are `default` and `llama3`"));
        // The base among the parameters of the embedding.
        let newer = r#""rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}"#;
        let newer = text.replace(r#""rope_theta": 500000.0, "rope_scaling": null"#, newer);
        assert_eq!(read(&newer).unwrap(), Config::llama3_8b());
        let with = |more: &str| text.replace("{", &format!("{{{more}, "));
        assert!(
            message(&with(r#""model_type": "qwen2""#))
                .contains("`model_type` is `qwen2`: the engine has `llama`")
        );
        assert!(message(&with(r#""hidden_act": "gelu""#)).contains("the engine has `silu`"));
        assert!(message(&with(r#""attention_bias": true"#)).contains("`attention_bias` is set"));
        assert!(read(&with(r#""model_type": "llama", "hidden_act": "silu", "mlp_bias": false"#)).is_ok());
    }

    #[test]
    fn scaled_frequencies_meet_the_others() {
        let scaling = RopeScaling { factor: 8.0, low_frequency: 1.0, high_frequency: 4.0, context: 8192.0 };
        let config = Config { scaling: Some(scaling), ..Config::llama3_8b() };
        assert_eq!(config.scaled(1.0), 1.0);
        assert_eq!(config.scaled(1e-6), 1e-6 / 8.0);
        let (cos, sin) = config.angles(2);
        assert_eq!((cos[0], sin[0]), (1.0, 0.0));
        assert_eq!((cos[64], sin[64]), (1f32.cos(), 1f32.sin()));
    }
}
