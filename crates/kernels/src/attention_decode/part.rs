//! The part of the keys that a launch has.

use std::fmt;
use std::str::FromStr;

/// The keys that a launch has of a cascade, in which sequences share their first keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cascade {
    /// All: there is no cascade.
    None,
    /// Keys that sequences share: every query attends to all of them. Its parts are the last of the workspace.
    Prefix,
    /// Each sequence's own, behind those. Its parts are the first of the workspace, and its second program adds all.
    Rest,
}

impl fmt::Display for Cascade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cascade::None => "none",
            Cascade::Prefix => "prefix",
            Cascade::Rest => "rest",
        })
    }
}

impl FromStr for Cascade {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Cascade::None),
            "prefix" => Ok(Cascade::Prefix),
            "rest" => Ok(Cascade::Rest),
            _ => Err("must be none, prefix or rest".to_string()),
        }
    }
}
