//! Messages to the program's author beside the lines that they are about, as text and as JSON.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};
use tilewright_tile::sources::File;
use tilewright_tile::{Diagnostic, Origin, Sources, Span};

/// Longer lines are shown in part: a mark in a line of megabytes helps nobody.
const LINE_LIMIT: usize = 400;

/// Severity of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The program is refused, or a run finds it wrong.
    Error,
    /// It may be a mistake.
    Warning,
}

impl Severity {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }

    fn level(self) -> Level<'static> {
        match self {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        }
    }
}

/// Form of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Text alone.
    Plain,
    /// With the colours of a terminal.
    Terminal,
}

/// A range of a file's text; a place outside of it becomes its end.
fn range_in(file: &File<'_>, span: Span) -> Range<usize> {
    let range = span.range();
    let start = floor_boundary(file.text, range.start.saturating_sub(file.start as usize));
    start..floor_boundary(file.text, range.end.saturating_sub(file.start as usize)).max(start)
}

/// Renders one message beside the lines that it is about, file by file: the message's first.
pub fn excerpt(sources: &Sources, diagnostic: &Diagnostic, severity: Severity, form: Form) -> String {
    let diagnostic = sources.place(diagnostic.clone());
    let title = severity.level().primary_title(diagnostic.message.as_str()).id(diagnostic.code.name());
    let mut group = Group::with_title(title);
    let long = sources.text().lines().any(|line| line.len() > LINE_LIMIT);
    let called = |location: &std::panic::Location<'static>| {
        annotate_snippets::Origin::path(location.file().to_string())
            .line(location.line() as usize)
            .char_column(location.column() as usize)
    };
    match diagnostic.span {
        Origin::Text(span) if long => {
            let file = sources.file(span.start);
            let start = range_in(&file, span).start;
            let before = &file.text.as_bytes()[..start];
            let line = before.iter().filter(|b| **b == b'\n').count() + 1;
            let column = start - before.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1) + 1;
            group = group.element(annotate_snippets::Origin::path(file.path).line(line).char_column(column));
        }
        Origin::Text(span) => {
            let mut marks =
                vec![(sources.file(span.start), span, diagnostic.label.as_str(), AnnotationKind::Primary)];
            for (origin, label) in &diagnostic.related {
                if let Some(span) = origin.text() {
                    marks.push((sources.file(span.start), span, label.as_str(), AnnotationKind::Context));
                }
            }
            while let Some((file, ..)) = marks.first().copied() {
                let mut snippet = Snippet::source(file.text).path(file.path);
                for (_, span, label, kind) in marks.iter().filter(|(of, ..)| *of == file) {
                    snippet = snippet.annotation(kind.span(range_in(&file, *span)).label(*label));
                }
                marks.retain(|(of, ..)| *of != file);
                group = group.element(snippet);
            }
        }
        Origin::Rust(location) => group = group.element(called(location)),
        Origin::Unknown => group = group.element(annotate_snippets::Origin::path(sources.file(0).path)),
    }
    for (origin, label) in &diagnostic.related {
        if let Some(location) = origin.rust() {
            group = group.element(Level::NOTE.message(label.as_str())).element(called(location));
        }
    }
    for note in &diagnostic.notes {
        group = group.element(Level::NOTE.message(note.as_str()));
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    let renderer = match form {
        Form::Plain => Renderer::plain(),
        Form::Terminal => Renderer::styled(),
    };
    renderer.render(&[group])
}

fn floor_boundary(source: &str, mut at: usize) -> usize {
    at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A place of the text as an editor counts: lines and columns from 1, columns in characters.
fn place(sources: &Sources, origin: Origin) -> Value {
    let Some(span) = origin.text() else { return Value::Null };
    let span = sources.locate(span).span;
    let file = sources.file(span.start);
    let at = |byte: u32| {
        let before = &file.text.as_bytes()[..((byte - file.start) as usize).min(file.text.len())];
        let before = String::from_utf8_lossy(before);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        json!({ "line": line, "column": column })
    };
    json!({ "file": file.path, "start": at(span.start), "end": at(span.end) })
}

/// A message as an editor reads it.
pub fn as_json(sources: &Sources, d: &Diagnostic, severity: Severity) -> Value {
    let placed = sources.place(d.clone());
    let related: Vec<Value> = placed
        .related
        .iter()
        .map(|(origin, label)| json!({ "place": place(sources, *origin), "message": label }))
        .collect();
    json!({
        "severity": severity.name(),
        "code": placed.code.name(),
        "message": placed.message,
        "label": placed.label,
        "place": place(sources, placed.span),
        "related": related,
        "notes": placed.notes,
        "help": placed.help,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_tile::Code;

    #[test]
    fn a_message_is_the_same_in_both_forms_but_for_colours() {
        let sources = Sources::new("a.tile", "copy(x, y)\n");
        let wrong = Diagnostic::new(Code::Syntax, Span::new(5, 6), "wrong").help("right");
        let plain = excerpt(&sources, &wrong, Severity::Error, Form::Plain);
        assert!(plain.starts_with("error[syntax]: wrong") && plain.contains("a.tile:1:6"), "{plain}");
        assert!(excerpt(&sources, &wrong, Severity::Warning, Form::Terminal).contains("\u{1b}["));
        let value = as_json(&sources, &wrong, Severity::Error);
        assert_eq!(value["place"]["start"], json!({ "line": 1, "column": 6 }));
    }
}
