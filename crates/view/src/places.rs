//! Places of the texts, by file, line and column.

use tilewright::tile::{Diagnostic, Origin, Sources, Span};

use crate::model::{CallSite, Message, Place, Related, SourceFile};

/// Finds places, and keeps the files that they are in.
pub struct Places<'a> {
    sources: &'a Sources,
    /// The files so far, the program's own first.
    pub files: Vec<SourceFile>,
}

impl<'a> Places<'a> {
    /// Those of some texts, of which some files are known.
    pub fn new(sources: &'a Sources, files: Vec<SourceFile>) -> Self {
        let mut places = Places { sources, files };
        places.file(0);
        places
    }

    /// The index of the file in which a byte lies, and its first byte.
    fn file(&mut self, at: u32) -> (usize, u32) {
        let file = self.sources.file(at);
        let known = self.files.iter().position(|known| known.path == file.path);
        let index = known.unwrap_or_else(|| {
            self.files.push(SourceFile { path: file.path.to_string(), text: file.text.to_string() });
            self.files.len() - 1
        });
        (index, file.start)
    }

    /// The place of bytes that lie in a file.
    fn in_file(&mut self, span: Span) -> Place {
        let (file, start) = self.file(span.start);
        let text = &self.files[file].text;
        let position = |byte: u32| {
            let mut end = (byte.saturating_sub(start) as usize).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let before = &text[..end];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count() + 1;
            (line, column)
        };
        let ((line, column), (end_line, end_column)) = (position(span.start), position(span.end));
        Place { file, line, column, end_line, end_column }
    }

    /// The place of some bytes, and the calls of functions that led there.
    pub fn at(&mut self, span: Span) -> (Place, Vec<CallSite>) {
        let found = self.sources.locate(span);
        let place = self.in_file(found.span);
        let calls = found.calls.into_iter();
        (place, calls.map(|(name, call)| CallSite { name, place: self.in_file(call) }).collect())
    }

    /// The place of an origin, of a program that was parsed.
    pub fn of(&mut self, origin: Origin) -> Option<Place> {
        origin.text().map(|span| self.at(span).0)
    }

    /// The word that begins at a byte.
    pub fn word(&self, at: u32) -> Option<String> {
        let rest = self.sources.text().get(at as usize..)?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word: String = rest.chars().take_while(|c| is_word(*c)).collect();
        (!word.is_empty()).then_some(word)
    }

    /// A diagnostic with its places.
    pub fn message(&mut self, severity: &'static str, diagnostic: &Diagnostic) -> Message {
        let placed = self.sources.place(diagnostic.clone());
        let related = placed.related.iter();
        Message {
            severity,
            code: placed.code.name().to_string(),
            message: placed.message.clone(),
            label: placed.label.clone(),
            place: self.of(placed.span),
            related: related
                .map(|(origin, label)| Related { place: self.of(*origin), message: label.clone() })
                .collect(),
            notes: placed.notes.clone(),
            help: placed.help.clone(),
        }
    }
}
