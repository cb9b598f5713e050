//! Functions that come with the language, in texts of their own: `use activations`.

/// The texts, by name.
const TEXTS: [(&str, &str); 2] = [
    ("activations", include_str!("../library/activations.tile")),
    ("philox", include_str!("../library/philox.tile")),
];

/// The names of the libraries: what may stand behind `use`.
pub fn libraries() -> impl Iterator<Item = &'static str> {
    TEXTS.iter().map(|(name, _)| *name)
}

/// The path for messages, and the text, of a library.
///
/// # Errors
///
/// The names that there are.
pub(crate) fn library(name: &str) -> Result<(String, String), String> {
    match TEXTS.iter().find(|(known, _)| *known == name) {
        Some((name, text)) => Ok((format!("library/{name}.tile"), (*text).to_string())),
        None => {
            let known: Vec<&str> = TEXTS.iter().map(|(name, _)| *name).collect();
            Err(format!(
                "there is no such library; there are {}, and a file is `use \"{name}.tile\"`",
                known.join(", ")
            ))
        }
    }
}
