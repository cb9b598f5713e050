//! Text as words by a `tokenizer.json`, of the kind that Llama 3 has: pieces of bytes, merged.

use serde_json::json;
use tilewright_llama_text::Tokenizer;

#[test]
fn texts_are_words_and_words_are_texts() {
    let folder = tempfile::tempdir().unwrap();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let split = json!({
        "type": "Split", "invert": false, "behavior": "Isolated",
        "pattern": {"Regex": "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+"},
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": [],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": null, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
            "vocab": {"a": 0, "b": 1, "\u{120}": 2, "1": 3, "ab": 4, "\u{120}a": 5},
            "merges": ["a b", "\u{120} a"],
        },
    });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    let words = tokenizer.words("ab a11ab").unwrap();
    assert_eq!(words, [4, 5, 3, 3, 4]);
    assert_eq!(tokenizer.text(&words).unwrap(), "ab a11ab");
    std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    let error = Tokenizer::read(folder.path()).err().unwrap().to_string();
    assert!(error.contains("tokenizer.json"), "{error}");
}
