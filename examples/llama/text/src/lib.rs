//! Text as words of a model, by the `tokenizer.json` of a checkpoint.

use std::path::Path;

use tilewright_llama::LlamaError;

/// The tokenizer of a checkpoint.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder.
    ///
    /// # Errors
    ///
    /// A file that is not read, or that is no tokenizer.
    pub fn read(folder: &Path) -> Result<Self, LlamaError> {
        let path = folder.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|source| LlamaError::File { path: path.clone(), source })?;
        let read = tokenizers::Tokenizer::from_bytes(bytes);
        read.map(Tokenizer).map_err(|error| LlamaError::Content { path, what: error.to_string() })
    }

    /// The words of a text, with those that the tokenizer puts at its begin.
    ///
    /// # Errors
    ///
    /// A text that the tokenizer does not take.
    pub fn words(&self, text: &str) -> Result<Vec<u32>, LlamaError> {
        let words = self.0.encode(text, true);
        words.map(|words| words.get_ids().to_vec()).map_err(|error| LlamaError::Text(error.to_string()))
    }

    /// The text of words.
    ///
    /// # Errors
    ///
    /// Words that the tokenizer does not have.
    pub fn text(&self, words: &[u32]) -> Result<String, LlamaError> {
        self.0.decode(words, true).map_err(|error| LlamaError::Text(error.to_string()))
    }
}
