//! Declarations and uses of names, and the outline of a document as editors show it.

use std::ops::Range;

use lsp_types::{DocumentSymbol, SymbolKind};
use tilewright_tile::Sources;

use crate::hover::in_used_files;
use crate::lines::{Encoding, Lines};
use crate::outline::{Declaration, Named, Outline};
use crate::paths::normal;

/// A place that a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Bytes of the document.
    Here(Range<usize>),
    /// Bytes of another file, by its path; its text comes with it.
    File(String, String, Range<usize>),
}

/// The declaration of the name at a byte, or the file of a `use`.
pub fn definition(
    path: &str,
    text: &str,
    outline: &Outline,
    sources: &Sources,
    byte: usize,
) -> Option<Target> {
    if let Some(used) = outline.uses.iter().find(|used| (used.range.start..=used.range.end).contains(&byte)) {
        let folder = std::path::Path::new(path).parent()?;
        let path = if used.file {
            normal(&folder.join(&used.name).display().to_string())
        } else {
            format!("library/{}.tile", used.name)
        };
        let file = sources.all().skip(1).find(|file| normal(file.path) == path)?;
        return Some(Target::File(path, file.text.to_string(), 0..0));
    }
    let token = outline.token_at(byte)?.range.clone();
    let number = outline.tokens.iter().position(|other| other.range == token)?;
    if let Some(declaration) = outline.meaning(text, number) {
        return Some(Target::Here(declaration.range.clone()));
    }
    let (file, _, declaration) = in_used_files(sources, &text[token])?;
    Some(Target::File(normal(file.path), file.text.to_string(), declaration.range))
}

/// The places of the document in which the name at a byte is used, its declaration among them if wanted.
pub fn references(text: &str, outline: &Outline, byte: usize, declared: bool) -> Vec<Range<usize>> {
    let token =
        outline.token_at(byte).and_then(|token| outline.tokens.iter().position(|t| t.range == token.range));
    let Some(declaration) = token.and_then(|token| outline.meaning(text, token)) else { return Vec::new() };
    let uses = outline.uses_of(text, declaration).map(|token| token.range.clone());
    uses.filter(|range| declared || *range != declaration.range).collect()
}

/// The declarations of a document: those of kernels and functions below them.
pub fn symbols(text: &str, outline: &Outline, encoding: Encoding) -> Vec<DocumentSymbol> {
    let lines = Lines::new(text, encoding);
    let top =
        |d: &&Declaration| matches!(d.kind, Named::Kernel | Named::Function | Named::Size | Named::Constant);
    let symbol = |d: &Declaration, around: Range<usize>, children: Option<Vec<DocumentSymbol>>| {
        let whole = text[d.whole.clone()].lines().next().unwrap_or_default();
        // Deprecated, and without a default.
        #[allow(deprecated)]
        DocumentSymbol {
            name: d.name.clone(),
            detail: Some(if d.kind == Named::Kernel { "kernel".to_string() } else { whole.to_string() }),
            kind: kind(d.kind),
            tags: None,
            deprecated: None,
            range: lines.range(text, around),
            selection_range: lines.range(text, d.range.clone()),
            children,
        }
    };
    let all = &outline.declarations;
    all.iter()
        .filter(top)
        .map(|d| {
            let statement = outline.statements.iter().find(|s| s.range == d.whole);
            let block = statement.and_then(|s| s.block.clone());
            let around = d.whole.start..block.as_ref().map_or(d.whole.end, |block| block.end);
            let children = block.map(|_| {
                let inside = |other: &&Declaration| {
                    other.range.start > d.range.start && other.range.end <= around.end && !top(other)
                };
                let mut inner: Vec<&Declaration> = all.iter().filter(inside).collect();
                inner.dedup_by_key(|d| d.range.start);
                // A symbol's range holds that of its name.
                inner
                    .iter()
                    .map(|d| symbol(d, d.whole.start.min(d.range.start)..d.whole.end.max(d.range.end), None))
                    .collect()
            });
            symbol(d, around, children)
        })
        .collect()
}

fn kind(named: Named) -> SymbolKind {
    match named {
        Named::Kernel => SymbolKind::MODULE,
        Named::Function => SymbolKind::FUNCTION,
        Named::Size | Named::Constant => SymbolKind::CONSTANT,
        Named::Parameter | Named::Argument => SymbolKind::FIELD,
        Named::Role => SymbolKind::CLASS,
        Named::Pipeline | Named::Barrier => SymbolKind::EVENT,
        Named::View | Named::Register | Named::Shared | Named::TensorMemory | Named::Result => {
            SymbolKind::ARRAY
        }
        Named::Counter | Named::Integer => SymbolKind::NUMBER,
    }
}
