//! The texts of a program: its file, the files that it uses, and a copy of a function's text for each of its calls.
//!
//! A [`Span`] is a range of bytes of [`Sources::text`], in which they stand one after the other. So a statement of a function has a place of
//! its own for each call, and [`Sources::place`] says which place of a file that is, and which calls led there (as source locations of macro
//! expansions do in Clang).

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics, Origin, Span};
use crate::lexer::MAX_SOURCE;

/// The texts of a program, read once and kept with it. They take no part in comparing programs.
#[derive(Clone, Default)]
pub struct Sources(Arc<Texts>);

#[derive(Clone, Default)]
struct Texts {
    text: String,
    regions: Vec<Region>,
    /// Of calls whose value is a part of an expression: the function, the call, and the expression in the function.
    values: Vec<(String, Span, Span)>,
    /// Lines that a program wrote, in their order, and the places in other files that they stand for.
    written: Vec<(Span, Span)>,
}

/// A line of a text that a program wrote, and the part of another file that it stands for. Lines count from 1, bytes of a line from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenLine {
    /// The line.
    pub line: usize,
    /// The number of the file.
    pub file: usize,
    /// The line and the byte with which the part begins.
    pub start: (usize, usize),
    /// The line and the byte behind its end.
    pub end: (usize, usize),
}

/// A part of the text.
#[derive(Clone, Debug)]
struct Region {
    start: u32,
    end: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A file, by its path for messages.
    File(String),
    /// A copy of the function's text that stands at `of`, for a call.
    Call { of: u32, name: String, call: Span },
}

/// The bytes of a line, counted from 1, without what ends it; behind the last line nothing.
fn range_of_line(text: &str, number: usize) -> Range<usize> {
    let mut start = 0;
    for (i, line) in text.split_inclusive('\n').enumerate() {
        if i + 1 == number {
            return start..start + line.trim_end_matches(['\n', '\r']).len();
        }
        start += line.len();
    }
    text.len()..text.len()
}

/// A place in a file, and the calls of functions that led there, the innermost first: names, and their places in files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The place in a file, as bytes of [`Sources::text`].
    pub span: Span,
    /// The calls.
    pub calls: Vec<(String, Span)>,
}

/// A file of a program: its path, its text, and where that begins in [`Sources::text`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File<'a> {
    /// The path, for messages.
    pub path: &'a str,
    /// The text.
    pub text: &'a str,
    /// The first byte.
    pub start: u32,
}

impl Sources {
    /// The text of one file.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let mut sources = Sources::default();
        sources.push_file(path.into(), &text.into());
        sources
    }

    /// The texts of a program that was read, whose first file a program wrote, line by line, for places in other files (paths and texts): messages
    /// about its statements show those.
    pub fn written_for(mut self, files: &[(String, String)], lines: &[WrittenLine]) -> Self {
        let starts: Vec<u32> = files.iter().map(|(path, text)| self.push_file(path.clone(), text)).collect();
        let mut written: Vec<(Span, Span)> = Vec::new();
        for line in lines {
            let (Some(start), Some((_, text))) = (starts.get(line.file), files.get(line.file)) else {
                continue;
            };
            let here = range_of_line(self.file(0).text, line.line);
            let [first, last] = [line.start, line.end].map(|(number, byte)| {
                let whole = range_of_line(text, number);
                *start as usize + (whole.start + byte).min(whole.end)
            });
            written.push((Span::new(here.start, here.end), Span::new(first, last.max(first))));
        }
        written.sort_unstable();
        self.texts().written = written;
        self
    }

    /// The place in another file that a line stands for which a program wrote; the place itself of other text.
    fn author(&self, span: Span) -> Span {
        let written = &self.0.written;
        let behind = written.partition_point(|(line, _)| line.start <= span.start);
        let found = behind.checked_sub(1).and_then(|i| written.get(i));
        found.filter(|(line, _)| span.start <= line.end).map_or(span, |(_, author)| *author)
    }

    fn texts(&mut self) -> &mut Texts {
        Arc::make_mut(&mut self.0)
    }

    fn push(&mut self, text: &str, kind: Kind) -> u32 {
        let texts = self.texts();
        // Between two texts there is a byte, so that the end of one is not the beginning of the next.
        if !texts.regions.is_empty() {
            texts.text.push('\n');
        }
        let start = texts.text.len() as u32;
        texts.text.push_str(text);
        texts.regions.push(Region { start, end: texts.text.len() as u32, kind });
        start
    }

    /// Adds a file; its first byte. The text of one over the limit is cut there, which its reader reports.
    pub(crate) fn push_file(&mut self, path: String, text: &str) -> u32 {
        let mut end = text.len().min(MAX_SOURCE + 1);
        while !text.is_char_boundary(end) {
            end += 1;
        }
        self.push(&text[..end], Kind::File(path))
    }

    /// Adds a copy of a part of the text, for a call; its first byte.
    pub(crate) fn push_call(&mut self, name: &str, of: Span, call: Span) -> u32 {
        let text = self.text().get(of.range()).unwrap_or_default().to_string();
        self.push(&text, Kind::Call { of: of.start, name: name.to_string(), call })
    }

    /// Notes that the value of a call, which is a part of an expression, is that of an expression in the function.
    pub(crate) fn push_value(&mut self, name: &str, call: Span, value: Span) {
        self.texts().values.push((name.to_string(), call, value));
    }

    /// Takes what [`Sources::push_value`] noted in others of the same texts.
    pub(crate) fn take_values(&mut self, other: &Sources) {
        let values = other.0.values.clone();
        self.texts().values.extend(values);
    }

    /// All texts, one after the other.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// A part of the text on one line, without its comments: a statement as its author wrote it. `None` of a place without text, and of
    /// more than 120 characters.
    pub fn quote(&self, span: Span) -> Option<String> {
        let text = self.text().get(span.range())?;
        let words: Vec<&str> = text
            .lines()
            .flat_map(|line| line.split("//").next().unwrap_or_default().split_whitespace())
            .collect();
        let line = words.join(" ");
        (!line.is_empty() && line.chars().count() <= 120).then_some(line)
    }

    fn region(&self, at: u32) -> Option<&Region> {
        let regions = &self.0.regions;
        let i = regions.partition_point(|region| region.end < at);
        // Where one ends another begins.
        [i + 1, i]
            .into_iter()
            .filter_map(|i| regions.get(i))
            .find(|region| (region.start..=region.end).contains(&at))
    }

    /// The file in which a byte lies; the first one for what lies in none.
    pub fn file(&self, at: u32) -> File<'_> {
        let at = self.locate(Span { start: at, end: at }).span.start;
        let mut files = self.all();
        let first = files.next();
        let reaches = |file: &File<'_>| (file.start..=file.start + file.text.len() as u32).contains(&at);
        let found = first.into_iter().chain(files).find(reaches);
        found.or(first).unwrap_or(File { path: "", text: "", start: 0 })
    }

    /// The files, the program's first.
    pub fn all(&self) -> impl Iterator<Item = File<'_>> {
        self.0.regions.iter().filter_map(|region| match &region.kind {
            Kind::File(path) => {
                let text = self.0.text.get(region.start as usize..region.end as usize)?;
                Some(File { path, text, start: region.start })
            }
            Kind::Call { .. } => None,
        })
    }

    /// The paths of the files, the program's first.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.0.regions.iter().filter_map(|region| match &region.kind {
            Kind::File(path) => Some(path.as_str()),
            Kind::Call { .. } => None,
        })
    }

    /// The place in a file that a span stands for, with the calls that led there.
    pub fn locate(&self, mut span: Span) -> Place {
        let mut calls: Vec<(String, Span)> = Vec::new();
        let mut next = None;
        while let Some(Region { start, kind: Kind::Call { of, name, call }, .. }) = self.region(span.start) {
            let length = span.end.saturating_sub(span.start);
            let moved = of + (span.start - start);
            span = Span { start: moved, end: moved + length };
            next = next.or(Some((name.clone(), *call)));
        }
        while let Some((name, call)) = next.take() {
            let length = call.end.saturating_sub(call.start);
            let mut at = call;
            while let Some(Region { start, kind: Kind::Call { of, name, call }, .. }) = self.region(at.start)
            {
                let moved = of + (at.start - start);
                at = Span { start: moved, end: moved + length };
                next = next.or(Some((name.clone(), *call)));
            }
            calls.push((name, self.author(at)));
        }
        Place { span: self.author(span), calls }
    }

    /// A message with its places in files: one about a statement of a function names the calls, too.
    pub fn place(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        if self.0.regions.len() <= 1 {
            return diagnostic;
        }
        let mut related: Vec<(Origin, String)> = Vec::new();
        if let Origin::Text(span) = diagnostic.span {
            let inside = |call: &Span| span.start <= call.start && call.end <= span.end;
            let values = self.0.values.iter().filter(|(_, call, _)| inside(call));
            let values: Vec<(Origin, String)> = values
                .map(|(name, _, value)| (self.locate(*value).span.into(), format!("the value of `{name}`")))
                .collect();
            let Place { span, calls } = self.locate(span);
            diagnostic.span = span.into();
            let calls =
                calls.into_iter().map(|(name, call)| (call.into(), format!("in this call of `{name}`")));
            related = values.into_iter().chain(calls).collect();
        }
        for (origin, _) in &mut diagnostic.related {
            if let Origin::Text(span) = origin {
                *origin = self.locate(*span).span.into();
            }
        }
        for (origin, label) in related {
            let same = |(known, text): &(Origin, String)| known.text() == origin.text() && *text == label;
            // What has its place in a file already stays as it is.
            if !diagnostic.related.iter().any(same) {
                diagnostic.related.push((origin, label));
            }
        }
        diagnostic
    }

    /// The same for several messages.
    pub fn place_all(&self, diagnostics: Diagnostics) -> Diagnostics {
        Diagnostics(diagnostics.0.into_iter().map(|d| self.place(d)).collect())
    }
}

impl PartialEq for Sources {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Sources {}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files()).finish()
    }
}

/// A reader of the files that a program uses: the path and the text of `name`, as it stands in the file `from`, or why there is none.
pub type Reader<'a> = dyn FnMut(&str, &str) -> Result<(String, String), String> + 'a;

/// The text of a file's bytes.
///
/// # Errors
///
/// The first byte that is not UTF-8, with its line and column, and the remedy, as text.
pub fn decoded(path: &str, bytes: Vec<u8>) -> Result<String, (String, String)> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let before = String::from_utf8_lossy(&bytes[..at]).into_owned();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let byte = bytes.get(at).copied().unwrap_or_default();
        if bytes.contains(&0) {
            let message = format!("`{path}` is not a text file: byte {at}, 0x{byte:02x}, is not UTF-8");
            return (message, "give the text of a program".to_string());
        }
        let latin = char::from(byte);
        let meaning = if latin.is_control() { String::new() } else { format!(", `{latin}` in Latin-1") };
        let message =
            format!("`{path}` is not UTF-8: line {line}, column {column} (byte {at} of the file) is 0x{byte:02x}{meaning}");
        let file = if path == "-" { "FILE" } else { path };
        (message, format!("save it as UTF-8; of a file in Latin-1: `iconv -f latin1 -t utf-8 {file} > NEW`"))
    })
}

/// Reads files beside the one that uses them: `name` is relative to the folder of `from`.
///
/// # Errors
///
/// The system's, as text, and that of a file over 1 MiB.
pub fn read_beside(from: &str, name: &str) -> Result<(String, String), String> {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let path: PathBuf = folder.join(name);
    let said = |e: std::io::Error| format!("cannot read `{}`: {e}", path.display());
    let size = std::fs::metadata(&path).map_err(said)?.len();
    if size > MAX_SOURCE as u64 {
        return Err(format!("`{}` has {size} bytes; a program has at most {MAX_SOURCE}", path.display()));
    }
    let bytes = std::fs::read(&path).map_err(said)?;
    let path = path.display().to_string();
    let text = decoded(&path, bytes).map_err(|(message, help)| format!("{message}; {help}"))?;
    Ok((path, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Code;

    #[test]
    fn bytes_that_are_no_text_have_a_line_and_a_column() {
        let wrong = |bytes: &[u8]| decoded("a.tile", bytes.to_vec()).unwrap_err();
        let (message, help) = wrong(b"size n = 64\n// die Gr\xf6\xdfe\n");
        assert!(
            message.contains("line 2, column 10 (byte 21 of the file) is 0xf6, `ö` in Latin-1"),
            "{message}"
        );
        assert!(help.contains("iconv -f latin1 -t utf-8 a.tile"), "{help}");
        assert!(wrong(b"\x7fELF\0\xff").0.contains("byte 5, 0xff"));
        assert_eq!(decoded("a", b"m\xc3\xb6".to_vec()), Ok("mö".to_string()));
    }

    #[test]
    fn a_statement_is_quoted_on_one_line() {
        let sources = Sources::new("a", "copy(a, // from\n     b)\nx");
        assert_eq!(sources.quote(Span::new(0, 23)).as_deref(), Some("copy(a, b)"));
        assert_eq!(sources.quote(Span::new(23, 23)), None);
    }

    #[test]
    fn a_line_that_a_program_wrote_stands_for_a_place_of_its_author() {
        let python = "t = kernel()\nt.copy(a,\n       b)\n".to_string();
        let part = |line, start, end| WrittenLine { line, file: 0, start, end };
        let lines = [part(3, (3, 7), (3, 99)), part(2, (2, 0), (3, 9))];
        let sources = Sources::new("k", "size n = 1\ncopy(a, b)\nb")
            .written_for(&[("k.py".to_string(), python)], &lines);
        let text = |span: Span| &sources.text()[sources.locate(span).span.range()];
        assert_eq!(text(Span::new(16, 17)), "t.copy(a,\n       b)");
        assert_eq!(text(Span::new(22, 23)), "b)");
        assert_eq!(text(Span::new(0, 4)), "size");
        assert_eq!((sources.file(16).path, sources.file(0).path), ("k.py", "k"));
        let said = sources.place(Diagnostic::new(Code::Syntax, Span::new(11, 12), "wrong"));
        assert_eq!(sources.place(said.clone()).span.text(), said.span.text());
        assert_eq!(said.span.text().map(|span| &sources.text()[span.range()]), Some("t.copy(a,\n       b)"));
    }

    #[test]
    fn a_place_in_a_copy_is_one_in_a_file_with_its_calls() {
        let mut sources = Sources::new("a.tile", "fn f { x } f f");
        let used = sources.push_file("b.tile".to_string(), "fn g { f }");
        assert_eq!(used, 15);
        // g's text is copied for a call at 11, and in it f's for the call of f.
        let g = sources.push_call("g", Span::new(20, 25), Span::new(11, 12));
        let f = sources.push_call("f", Span::new(5, 10), Span::new(g as usize + 2, g as usize + 3));
        let at = Span::new(f as usize + 2, f as usize + 3);
        let place = sources.locate(at);
        assert_eq!(&sources.text()[place.span.range()], "x");
        assert_eq!(place.span, Span::new(7, 8));
        let calls: Vec<(&str, usize)> =
            place.calls.iter().map(|(name, span)| (name.as_str(), span.range().start)).collect();
        assert_eq!(calls, [("f", 22), ("g", 11)]);
        let said = sources.place(Diagnostic::new(Code::Syntax, at, "wrong").related(at, "too"));
        assert_eq!(said.related.len(), 3);
        assert_eq!((sources.file(at.start).path, sources.file(21).path), ("a.tile", "b.tile"));
        assert_eq!((sources.file(14).path, sources.file(15).path), ("a.tile", "b.tile"));
        assert_eq!(sources.file(21).start, 15);
        // A message about a statement with the value of a call names the place of that value.
        sources.push_value("f", Span::new(11, 12), Span::new(f as usize + 2, f as usize + 3));
        let said = sources.place(Diagnostic::new(Code::ShapeMismatch, Span::new(11, 14), "wrong"));
        assert_eq!(said.related, [(Span::new(7, 8).into(), "the value of `f`".to_string())]);
        assert_eq!(said.related[0].0.text(), Some(Span::new(7, 8)));
    }
}
