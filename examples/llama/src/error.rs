//! Errors of the engine.

use std::path::PathBuf;

/// The reason why a model is not read, or does not run.
#[derive(Debug, thiserror::Error)]
pub enum LlamaError {
    /// A file that is not read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file that does not hold what it ought to.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The mistake.
        what: String,
    },
    /// A number of a configuration that the engine does not take.
    #[error("`{field}` is {value}: {wanted}")]
    Config {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The values that would be right.
        wanted: String,
    },
    /// A tensor that a checkpoint has not.
    #[error("the checkpoint has no tensor `{name}`")]
    Missing {
        /// The tensor.
        name: String,
    },
    /// A tensor of another shape than the configuration says.
    #[error("tensor `{name}` has the shape {given:?}, and the configuration says {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// The shape in the file.
        given: Vec<usize>,
        /// The shape by the configuration.
        expected: Vec<usize>,
    },
    /// More words than there is room for.
    #[error("{words} words do not fit in {room}: give the engine more `places`")]
    Room {
        /// The words.
        words: usize,
        /// The words that there is room for.
        room: usize,
    },
    /// Another number of prompts than of sequences, or one without words.
    #[error(
        "{given}: the engine was made for {sequences} sequences, each of which begins with at least one word"
    )]
    Prompts {
        /// The words for what was given.
        given: String,
        /// The sequences of the engine.
        sequences: usize,
    },
    /// A word that the vocabulary has not.
    #[error("word {word} is not of a vocabulary of {vocabulary}")]
    Word {
        /// The word.
        word: u32,
        /// The words that there are.
        vocabulary: usize,
    },
    /// A text, or words, that a tokenizer does not take.
    #[error("the tokenizer: {0}")]
    Text(String),
    /// A kernel that does not compile.
    #[error("kernel `{kernel}`: {source}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A launch or a copy that failed.
    #[error(transparent)]
    Runtime(#[from] tilewright::runtime::RuntimeError),
    /// A launch that the simulator finds fault with.
    #[error("the simulator finds {count} mistakes in `{kernel}`, first: {first}")]
    Simulated {
        /// The kernel.
        kernel: String,
        /// The number of mistakes.
        count: usize,
        /// The first.
        first: String,
    },
}
