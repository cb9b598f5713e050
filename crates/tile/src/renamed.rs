//! Words that have other names now: of the language, of operators' parameters and of their values, in records too.

/// The place where a word stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a tile program.
    Language,
    /// A parameter of an operator, as `tilewright kernels` lists them.
    Parameter,
    /// A value of a parameter, without its arguments.
    Value,
}

impl Place {
    /// The place as the documentation names it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Language => "tile programs",
            Place::Parameter => "operators' parameters",
            Place::Value => "operators' values",
        }
    }
}

/// A word with another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// The old word, which is refused.
    pub old: &'static str,
    /// The new one.
    pub new: &'static str,
    /// The place where it stands.
    pub place: Place,
}

const fn word(place: Place, old: &'static str, new: &'static str) -> Renamed {
    Renamed { old, new, place }
}

/// Every word with another name; `docs/tile-language.md` has the same table.
pub const RENAMED: &[Renamed] = &[
    word(Place::Language, "after", "previous"),
    word(Place::Language, "finally", "drain"),
    word(Place::Language, "bands", "grouped"),
    word(Place::Language, "snake", "serpentine"),
    word(Place::Language, "cluster_sum", "cluster_reduce"),
    word(Place::Parameter, "deferred", "overlap_epilogue"),
    word(Place::Parameter, "order", "rasterization"),
    word(Place::Parameter, "sms", "sm_count"),
    word(Place::Value, "bands", "grouped"),
    word(Place::Value, "snake", "serpentine"),
];

/// The new name of a word, if it has one.
pub fn renamed(place: Place, old: &str) -> Option<&'static str> {
    RENAMED.iter().find(|row| row.place == place && row.old == old).map(|row| row.new)
}

/// The message about an old word: that, and what, its name is now.
pub fn renamed_message(place: Place, old: &str) -> Option<String> {
    renamed(place, old).map(|new| format!("`{old}` is called `{new}` now"))
}
