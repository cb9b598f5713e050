//! Source lines of a kernel's instructions, for the line table of its code.

use std::collections::BTreeMap;
use std::panic::Location;
use std::path::{Path, PathBuf};

use tilewright_ptx::{Frame, Lines};
use tilewright_simt::{Function, Position};
use tilewright_tile::sources::File;
use tilewright_tile::{Origin, Program, Sources, Span};

/// Source lines in the PTX text.
#[derive(Clone, Debug, Default)]
pub struct LineInfo {
    /// The folder of tile programs whose paths are relative: tools look for files by their whole paths. Empty leaves paths as they are.
    pub folder: PathBuf,
    /// The texts, of a program that does not know its own: one that was made of the text of a core program.
    pub sources: Option<Sources>,
}

/// A reader of places, which numbers the files that they lie in.
struct Places<'a> {
    sources: &'a Sources,
    folder: &'a Path,
    /// The name of a file without a path.
    unnamed: String,
    lines: Lines,
    /// The bytes at which the lines of each text begin, by the byte at which the text does.
    starts: BTreeMap<u32, Vec<usize>>,
}

impl Places<'_> {
    fn file(&mut self, path: String) -> usize {
        let known = self.lines.files.iter().position(|file| *file == path);
        known.unwrap_or_else(|| {
            self.lines.files.push(path);
            self.lines.files.len() - 1
        })
    }

    /// A place in a file's text.
    fn in_text(&mut self, at: u32, function: Option<String>) -> Frame {
        let sources = self.sources;
        let File { path, text, start } = sources.file(at);
        let mut byte = (at.saturating_sub(start) as usize).min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        let starts = self.starts.entry(start).or_insert_with(|| {
            [0].into_iter().chain(text.match_indices('\n').map(|(end, _)| end + 1)).collect()
        });
        let line = starts.partition_point(|start| *start <= byte);
        let first = starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let column = text[first..byte].chars().count() + 1;
        let path = if path.is_empty() || path == "-" { self.unnamed.as_str() } else { path };
        let path = self.folder.join(path).display().to_string();
        Frame { file: self.file(path), line: line as u32, column: column as u32, function }
    }

    /// A place with the calls that led there, the innermost first.
    fn text(&mut self, at: u32) -> Vec<Frame> {
        let place = self.sources.locate(Span { start: at, end: at });
        let mut calls = place.calls.into_iter().peekable();
        let mut frames = vec![self.in_text(place.span.start, calls.peek().map(|(name, _)| name.clone()))];
        while let Some((_, call)) = calls.next() {
            frames.push(self.in_text(call.start, calls.peek().map(|(name, _)| name.clone())));
        }
        frames
    }

    fn rust(&mut self, call: &Location<'_>) -> Vec<Frame> {
        let file = self.file(call.file().to_string());
        vec![Frame { file, line: call.line(), column: call.column(), function: None }]
    }
}

/// The places of a function's origins. What comes from no statement has the kernel's place: that of its grid.
pub(crate) fn lines(function: &Function, program: &Program, wanted: &LineInfo) -> Lines {
    let sources = wanted.sources.as_ref().unwrap_or(&program.sources);
    let mut places = Places {
        sources,
        folder: &wanted.folder,
        unnamed: format!("{}.tile", program.name),
        lines: Lines::default(),
        starts: BTreeMap::new(),
    };
    let whole = match program.grid_span {
        Origin::Text(span) => places.text(span.start),
        Origin::Rust(call) => places.rust(call),
        Origin::Unknown => Vec::new(),
    };
    for position in &function.positions {
        let place = match position {
            Some(Position::Text(at)) => places.text(*at),
            Some(Position::Rust(call)) => places.rust(call),
            None => whole.clone(),
        };
        places.lines.places.push(place);
    }
    places.lines
}
