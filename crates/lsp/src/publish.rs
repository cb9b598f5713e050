//! Messages of the compiler as an editor shows them: each in the file that it is about.

use std::collections::BTreeMap;
use std::ops::Range;

use lsp_types::{
    Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity, DiagnosticTag, Location, NumberOrString,
    Uri,
};
use tilewright_tile::{Code, Origin, Sources};

use crate::analysis::{Analysis, Found};
use crate::lines::{Encoding, Lines};
use crate::outline::{Named, Outline};
use crate::paths::{normal, uri_of};

/// The name under which editors show messages.
const SOURCE: &str = "tilewright";

/// A place in a file: its path, and bytes of its text.
struct Place<'a> {
    path: String,
    text: &'a str,
    range: Range<usize>,
}

/// The place of an origin that is in a file of the disk or of the editor.
fn place(sources: &Sources, origin: Origin) -> Option<Place<'_>> {
    let span = sources.locate(origin.text()?).span;
    let file = sources.file(span.start);
    let start = (span.start.checked_sub(file.start)? as usize).min(file.text.len());
    let end = (span.end.saturating_sub(file.start) as usize).clamp(start, file.text.len());
    (!is_library(file.path)).then(|| Place { path: normal(file.path), text: file.text, range: start..end })
}

/// True of the path of a library, whose text is in the compiler.
pub fn is_library(path: &str) -> bool {
    path.strip_prefix("library/")
        .and_then(|rest| rest.strip_suffix(".tile"))
        .is_some_and(|name| tilewright_tile::libraries().any(|known| known == name))
}

/// The messages of an analysis by the path of the file that they are about; those without a place are about the head of the first kernel.
pub fn messages(
    path: &str,
    analysis: &Analysis,
    encoding: Encoding,
    uris: &dyn Fn(&str) -> Option<Uri>,
) -> BTreeMap<String, Vec<Diagnostic>> {
    let mut by_file: BTreeMap<String, Vec<Diagnostic>> = BTreeMap::new();
    by_file.insert(path.to_string(), Vec::new());
    for found in &analysis.found {
        let sources = &analysis.sources;
        let related = || found.diagnostic.related.iter().find_map(|(origin, _)| place(sources, *origin));
        let at = place(sources, found.diagnostic.span).or_else(related).unwrap_or_else(|| Place {
            path: path.to_string(),
            text: &analysis.text,
            range: head(&analysis.text),
        });
        let range = Lines::new(at.text, encoding).range(at.text, at.range);
        let message = one(found, sources, range, encoding, uris);
        by_file.entry(at.path).or_default().push(message);
    }
    by_file
}

/// The name of the first kernel.
fn head(text: &str) -> Range<usize> {
    let outline = Outline::of(text);
    outline.declarations.iter().find(|d| d.kind == Named::Kernel).map_or(0..0, |d| d.range.clone())
}

fn one(
    found: &Found,
    sources: &Sources,
    range: lsp_types::Range,
    encoding: Encoding,
    uris: &dyn Fn(&str) -> Option<Uri>,
) -> Diagnostic {
    let diagnostic = &found.diagnostic;
    let mut message = diagnostic.message.clone();
    if !diagnostic.label.is_empty() && !message.contains(&diagnostic.label) {
        message += &format!("\n{}", diagnostic.label);
    }
    if let Some(help) = &diagnostic.help {
        message += &format!("\nhelp: {help}");
    }
    let related = |(origin, label): &(Origin, String)| {
        let at = place(sources, *origin)?;
        let location =
            Location { uri: uris(&at.path)?, range: Lines::new(at.text, encoding).range(at.text, at.range) };
        Some(DiagnosticRelatedInformation { location, message: label.clone() })
    };
    let related: Vec<DiagnosticRelatedInformation> = diagnostic.related.iter().filter_map(related).collect();
    let unused = diagnostic.code == Code::UnusedTensor && found.severity == DiagnosticSeverity::WARNING;
    Diagnostic {
        range,
        severity: Some(found.severity),
        code: Some(NumberOrString::String(diagnostic.code.name().to_string())),
        source: Some(SOURCE.to_string()),
        message,
        related_information: (!related.is_empty()).then_some(related),
        tags: unused.then(|| vec![DiagnosticTag::UNNECESSARY]),
        ..Diagnostic::default()
    }
}

/// The URI of a file: that by which the editor has opened it, or the path's.
pub fn uri(open: Option<&Uri>, path: &str) -> Option<Uri> {
    open.cloned().or_else(|| uri_of(path))
}
