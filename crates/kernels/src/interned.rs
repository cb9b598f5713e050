//! Texts in configurations that are copied.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A text that is kept as long as the process runs, once however often it is made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Text(&'static str);

static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl Text {
    /// The text as a string.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = texts.get(text) {
            return Text(known);
        }
        let kept: &'static str = Box::leak(text.into());
        texts.insert(kept);
        Text(kept)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
