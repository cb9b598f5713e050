//! Why synthesis took or refused what it did.

use serde::Serialize;

/// An instruction that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alternative {
    /// Its name.
    pub instruction: String,
    /// Why it lost.
    pub reason: String,
}
