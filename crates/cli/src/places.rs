//! Lines of positions in the texts.

use tilewright::tile::{Sources, Span};

use crate::load::Loaded;

/// Positions of statements in the texts.
pub struct Places<'a> {
    sources: &'a Sources,
}

impl<'a> Places<'a> {
    /// Those of a program.
    pub fn new(loaded: &'a Loaded) -> Self {
        Places { sources: &loaded.sources }
    }

    /// The file of a position, and the line in it, counted from 1.
    pub fn at(&self, position: u32) -> Option<(&'a str, usize)> {
        let at = self.sources.locate(Span { start: position, end: position }).span.start;
        let file = self.sources.file(at);
        let before = file.text.as_bytes().get(..(at - file.start) as usize)?;
        Some((file.path, before.iter().filter(|b| **b == b'\n').count() + 1))
    }

    /// The line of a position, counted from 1.
    pub fn line(&self, position: u32) -> Option<usize> {
        self.at(position).map(|(_, line)| line)
    }
}
