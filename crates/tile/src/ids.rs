//! Identity of statements: every statement has a [`StmtId`], which later stages key their decisions by.
//!
//! The parser and the Rust builder give ids, passes keep them. A statement that a pass makes has a fresh id, whose origin is the id of
//! the statement that it comes from.

use std::fmt;

/// A statement: unique in its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct StmtId(u32);

impl StmtId {
    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for StmtId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// The ids that a program has given so far, each with its origin.
///
/// They never take part in comparing programs: two programs that say the same are equal, however they were made.
#[derive(Clone, Debug, Default)]
pub struct StmtIds {
    origins: Vec<Option<StmtId>>,
}

impl PartialEq for StmtIds {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl StmtIds {
    /// A new id. Its origin is the statement of which a pass makes it; `None` for a statement that the author wrote.
    pub fn fresh(&mut self, origin: Option<StmtId>) -> StmtId {
        self.origins.push(origin);
        StmtId((self.origins.len() - 1) as u32)
    }

    /// The statement of which a pass made this one.
    pub fn origin(&self, id: StmtId) -> Option<StmtId> {
        self.origins.get(id.0 as usize).copied().flatten()
    }

    /// The statement that the author wrote of which this one was made; itself if no pass made it.
    pub fn written(&self, mut id: StmtId) -> StmtId {
        // An origin is older than what is made of it, so this ends.
        while let Some(origin) = self.origin(id) {
            id = origin;
        }
        id
    }

    /// [`written`](Self::written) by number; the number itself if it is none of these.
    pub fn written_number(&self, number: u32) -> u32 {
        self.written(StmtId(number)).0
    }

    /// True if the id is one of these.
    pub fn contains(&self, id: StmtId) -> bool {
        (id.0 as usize) < self.origins.len()
    }
}

/// A map from statements.
#[derive(Clone, PartialEq, Debug)]
pub struct StmtMap<T> {
    entries: Vec<Option<T>>,
}

impl<T> Default for StmtMap<T> {
    fn default() -> Self {
        StmtMap { entries: Vec::new() }
    }
}

impl<T> StmtMap<T> {
    /// The map of nothing.
    pub fn new() -> Self {
        StmtMap::default()
    }

    /// Sets the entry of a statement and returns the one that it had.
    pub fn insert(&mut self, id: StmtId, value: T) -> Option<T> {
        let index = id.0 as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index].replace(value)
    }

    /// The entry of a statement.
    pub fn get(&self, id: StmtId) -> Option<&T> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    /// The entry of a statement, to change it.
    pub fn get_mut(&mut self, id: StmtId) -> Option<&mut T> {
        self.entries.get_mut(id.0 as usize)?.as_mut()
    }

    /// Takes the entry of a statement out.
    pub fn remove(&mut self, id: StmtId) -> Option<T> {
        self.entries.get_mut(id.0 as usize)?.take()
    }

    /// The entries, by id.
    pub fn iter(&self) -> impl Iterator<Item = (StmtId, &T)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(i, entry)| Some((StmtId(i as u32), entry.as_ref()?)))
    }
}

impl<T> FromIterator<(StmtId, T)> for StmtMap<T> {
    fn from_iter<I: IntoIterator<Item = (StmtId, T)>>(entries: I) -> Self {
        let mut map = StmtMap::new();
        for (id, value) in entries {
            map.insert(id, value);
        }
        map
    }
}
/// A kernel's parameter: an index into [`Program::params`](crate::Program::params).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ParamId(pub u32);

/// A tensor: an index into [`Program::tensors`](crate::Program::tensors).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct TensorId(pub u32);

/// A named barrier, or turns: an index into [`Program::barriers`](crate::Program::barriers).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct BarrierId(pub u32);

/// The way in which roles come to a [`Barrier`](crate::Barrier).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierKind {
    /// `named_barrier()`: they come together.
    Named,
    /// `turns()`: one after the other, in the order in which the roles are written, and after the last the first again.
    Turns,
}

/// A pipeline: an index into [`Program::pipelines`](crate::Program::pipelines).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PipelineId(pub u32);
