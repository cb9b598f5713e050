//! Edits that an editor offers beside a message: `// allow: NAME` above the statement that a lint is about.

use std::collections::HashMap;

use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, Diagnostic, NumberOrString, Position, TextEdit, Uri,
    WorkspaceEdit,
};
use tilewright_tile::lints;

use crate::lines::Lines;

/// The edits for messages about a document.
pub fn actions(uri: &Uri, text: &str, lines: &Lines, messages: Vec<Diagnostic>) -> Vec<CodeActionOrCommand> {
    let allow = |message: Diagnostic| {
        let Some(NumberOrString::String(code)) = &message.code else { return None };
        let lint = lints().find(|lint| lint.name() == code)?;
        let line = message.range.start.line;
        let of_line = &text[lines.line(text, line)];
        let indent = &of_line[..of_line.len() - of_line.trim_start().len()];
        let at = Position::new(line, 0);
        let edit = TextEdit {
            range: lsp_types::Range::new(at, at),
            new_text: format!("{indent}// allow: {}\n", lint.name()),
        };
        Some(CodeActionOrCommand::CodeAction(CodeAction {
            title: format!("Allow `{}` here", lint.name()),
            kind: Some(CodeActionKind::QUICKFIX),
            edit: Some(WorkspaceEdit { changes: Some(edits(uri, edit)), ..WorkspaceEdit::default() }),
            diagnostics: Some(vec![message]),
            ..CodeAction::default()
        }))
    };
    messages.into_iter().filter_map(allow).collect()
}

/// The edits of one document.
// A `Uri` keeps what it has parsed in a cell, of which its hash and its order know nothing.
#[allow(clippy::mutable_key_type)]
fn edits(uri: &Uri, edit: TextEdit) -> HashMap<Uri, Vec<TextEdit>> {
    HashMap::from([(uri.clone(), vec![edit])])
}
