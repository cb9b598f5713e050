//! Completion: all that may stand at a place, by what stands before it.

use lsp_types::{
    CompletionItem, CompletionItemKind, Documentation, InsertTextFormat, MarkupContent, MarkupKind,
};
use tilewright_tile::{Sources, Word, libraries, lints, words};

use crate::outline::{Declaration, Named, Outline};
use crate::reference::entries;
use crate::scan::{Kind, Token};

/// The kind of text that a place wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Nothing: in a text, a number, or behind a name that is being declared.
    Nothing,
    /// The name of a lint, in a comment that allows one.
    Lint,
    /// The name of a library, behind `use`.
    Library,
    /// A declaration of the top level.
    Declaration,
    /// `grid`, `threads`, `cluster` behind a kernel's parameters.
    Head,
    /// The beginning of a statement.
    Statement,
    /// An element type.
    Type,
    /// `x`, `y`, `z` behind `block.`.
    Axis,
    /// `async` behind `copy.` and `gemm.`.
    Async,
    /// A value: names, functions, calls.
    Value,
}

/// The kind of text that the place at a byte wants.
pub fn wanted(text: &str, outline: &Outline, byte: usize) -> Wanted {
    let before: Vec<&Token> = outline.tokens.iter().take_while(|t| t.range.start < byte).collect();
    // The word that is being written is no context.
    let begun = before.last().is_some_and(|t| t.kind == Kind::Word && t.range.end >= byte);
    let last = before.last().filter(|t| t.range.end >= byte || matches!(t.kind, Kind::Comment | Kind::Text));
    match last.map(|t| (t.kind, &text[t.range.start..t.range.end.min(byte)])) {
        Some((Kind::Comment, comment)) if last.is_some_and(|t| byte <= t.range.end) => {
            let comment = comment.trim_start_matches(['/', '#']).trim_start();
            return if comment.starts_with("allow:") { Wanted::Lint } else { Wanted::Nothing };
        }
        Some((Kind::Text, quoted)) if quoted.len() == 1 || !quoted.ends_with('"') => return Wanted::Nothing,
        Some((Kind::Number, _)) => return Wanted::Nothing,
        _ => {}
    }
    let tokens: Vec<&str> = before[..before.len() - usize::from(begun)]
        .iter()
        .filter(|t| t.kind != Kind::Comment)
        .map(|t| &text[t.range.clone()])
        .collect();
    after(&tokens)
}

/// The kind of text that may follow these tokens.
fn after(tokens: &[&str]) -> Wanted {
    let back = |n: usize| tokens.len().checked_sub(n).and_then(|i| tokens.get(i)).copied().unwrap_or("\n");
    match (back(2), back(1)) {
        ("block", ".") => return Wanted::Axis,
        ("copy" | "gemm", ".") => return Wanted::Async,
        (_, ".") => return Wanted::Nothing,
        (_, "use") => return Wanted::Library,
        (_, "let" | "for" | "const" | "size" | "kernel" | "fn") => return Wanted::Nothing,
        _ => {}
    }
    // The bracket around, with the word in front of it, and the commas behind it.
    let (mut depth, mut commas, mut open) = (0usize, 0usize, None);
    for (i, token) in tokens.iter().enumerate().rev() {
        match *token {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" if depth == 0 => {
                open = Some(i);
                break;
            }
            "(" | "[" | "{" => depth -= 1,
            "," if depth == 0 => commas += 1,
            _ => {}
        }
    }
    let Some(open) = open else { return at_the_top(tokens) };
    let front = |n: usize| open.checked_sub(n).and_then(|i| tokens.get(i)).copied().unwrap_or("\n");
    match (tokens[open], front(1), commas) {
        ("{", ..) if matches!(back(1), "\n" | ";" | "{" | "}") => Wanted::Statement,
        ("(", "register_tensor" | "shared_tensor" | "tensor_memory", 0) | ("(", "cast" | "bitcast", 1) => {
            Wanted::Type
        }
        ("(", name, _) if front(2) == "kernel" && name != "\n" => {
            if back(1) == ":" {
                Wanted::Type
            } else {
                Wanted::Nothing
            }
        }
        ("(", ..) if front(2) == "fn" => Wanted::Nothing,
        _ => Wanted::Value,
    }
}

/// The same outside of all brackets.
fn at_the_top(tokens: &[&str]) -> Wanted {
    let line = tokens.iter().rposition(|token| matches!(*token, "\n" | ";")).map_or(0, |at| at + 1);
    let begins = tokens[line..].is_empty();
    let last = tokens.iter().rposition(|token| *token != "\n").map_or("\n", |i| tokens[i]);
    let declaration = tokens
        .iter()
        .rposition(|token| matches!(*token, "kernel" | "fn" | "size" | "const" | "use" | "space"));
    let in_head = declaration.is_some_and(|at| tokens[at] == "kernel") && last == ")";
    match (begins, in_head) {
        (_, true) => Wanted::Head,
        (true, false) => Wanted::Declaration,
        (false, false) => Wanted::Value,
    }
}

/// A word of the language.
fn of_word(word: &str, kind: CompletionItemKind) -> CompletionItem {
    let entry = entries(word).first();
    CompletionItem {
        label: word.to_string(),
        kind: Some(kind),
        detail: entry.and_then(|entry| entry.forms.first().cloned()),
        documentation: entry.map(|entry| {
            Documentation::MarkupContent(MarkupContent {
                kind: MarkupKind::Markdown,
                value: entry.markdown(),
            })
        }),
        sort_text: Some(format!("2{word}")),
        ..CompletionItem::default()
    }
}

/// A form with places to fill in.
fn form(label: &str, body: &str, snippets: bool) -> CompletionItem {
    let item = of_word(label, CompletionItemKind::SNIPPET);
    if !snippets {
        return CompletionItem { kind: Some(CompletionItemKind::KEYWORD), ..item };
    }
    CompletionItem {
        insert_text: Some(body.to_string()),
        insert_text_format: Some(InsertTextFormat::SNIPPET),
        ..item
    }
}

/// A declared name.
fn of_declaration(text: &str, declaration: &Declaration, detail: Option<&str>) -> CompletionItem {
    let kind = match declaration.kind {
        Named::Function => CompletionItemKind::FUNCTION,
        Named::Size | Named::Constant => CompletionItemKind::CONSTANT,
        Named::Kernel => CompletionItemKind::MODULE,
        Named::Parameter | Named::Argument => CompletionItemKind::FIELD,
        _ => CompletionItemKind::VARIABLE,
    };
    let whole = text[declaration.whole.clone()].lines().next().unwrap_or_default();
    CompletionItem {
        label: declaration.name.clone(),
        kind: Some(kind),
        detail: Some(detail.map_or_else(|| whole.to_string(), |file| format!("{whole} ({file})"))),
        sort_text: Some(format!("1{}", declaration.name)),
        ..CompletionItem::default()
    }
}

/// Statements with places to fill in.
const STATEMENTS: &[(&str, &str)] = &[
    ("copy", "copy(${1:src}, ${2:dst})"),
    ("gemm", "gemm(${1:c}, ${2:a}, ${3:b})"),
    ("fill", "fill(${1:t}, ${2:0.0})"),
    ("for", "for ${1:i} in 0..${2:n} {\n\t$0\n}"),
    ("unroll", "unroll for ${1:i} in 0..${2:4} {\n\t$0\n}"),
    ("if", "if ${1:condition} {\n\t$0\n}"),
    ("let", "let ${1:row} = ${2:block.x}"),
    ("warpgroup", "warpgroup ${1:load}(${2:1}) {\n\t$0\n}"),
    ("produce", "produce ${1:p} {\n\t$0\n}"),
    ("consume", "consume ${1:p} {\n\t$0\n}"),
    ("in_turn", "in_turn ${1:t} {\n\t$0\n}"),
    ("syncthreads", "syncthreads()"),
    ("commit_group", "commit_group()"),
    ("wait_group", "wait_group(${1:0})"),
    ("commit_gemm", "commit_gemm()"),
    ("wait_gemm", "wait_gemm(${1:0})"),
];

/// Declarations with places to fill in.
const DECLARATIONS: &[(&str, &str)] = &[
    ("size", "size ${1:m} = ${2:1024}"),
    ("const", "const ${1:BM} = ${2:64}"),
    ("kernel", "kernel ${1:name}(${2:a}: ${3:f16}[${4:m}])\n    grid(${5:1}) threads(${6:128})\n{\n\t$0\n}"),
    ("fn", "fn ${1:name}(${2:x}) {\n\treturn ${0:x}\n}"),
    ("use", "use ${1:activations}"),
    ("space", "space { ${1:BM} = ${2:64 | 128} }"),
];

/// Items that complete the text at a byte; `sources` are the texts of the last analysis, for the names of files that it uses.
pub fn complete(
    text: &str,
    outline: &Outline,
    sources: &Sources,
    byte: usize,
    snippets: bool,
) -> Vec<CompletionItem> {
    let plain = |words: &[&str]| -> Vec<CompletionItem> {
        words.iter().map(|word| of_word(word, CompletionItemKind::KEYWORD)).collect()
    };
    match wanted(text, outline, byte) {
        Wanted::Nothing => Vec::new(),
        Wanted::Lint => plain(&lints().map(|code| code.name()).collect::<Vec<_>>()),
        Wanted::Library => plain(&libraries().collect::<Vec<_>>()),
        Wanted::Axis => plain(&["x", "y", "z"]),
        Wanted::Async => plain(&["async"]),
        Wanted::Head => plain(&["grid", "threads", "cluster"]),
        Wanted::Declaration => DECLARATIONS.iter().map(|(label, body)| form(label, body, snippets)).collect(),
        Wanted::Type => of_kind(&[Word::Type], CompletionItemKind::TYPE_PARAMETER),
        Wanted::Statement => {
            let mut found: Vec<CompletionItem> =
                STATEMENTS.iter().map(|(label, body)| form(label, body, snippets)).collect();
            let others = of_kind(&[Word::Block, Word::Call], CompletionItemKind::KEYWORD);
            found.extend(
                others.into_iter().filter(|item| STATEMENTS.iter().all(|(label, _)| *label != item.label)),
            );
            found.extend(plain(&["break", "return"]));
            found.extend(names(text, outline, sources, byte));
            found
        }
        Wanted::Value => {
            let mut found = names(text, outline, sources, byte);
            found.extend(of_kind(&[Word::Value, Word::Function], CompletionItemKind::FUNCTION));
            found.extend(of_kind(&[Word::Type], CompletionItemKind::TYPE_PARAMETER));
            found.extend(plain(&["block", "ceil_div", "and", "or", "not", "inf", "layout"]));
            found
        }
    }
}

fn of_kind(kinds: &[Word], kind: CompletionItemKind) -> Vec<CompletionItem> {
    words().filter(|(_, word)| kinds.contains(word)).map(|(text, _)| of_word(text, kind)).collect()
}

/// Names in scope, each once: those of the text and the functions and constants of files that it uses.
fn names(text: &str, outline: &Outline, sources: &Sources, byte: usize) -> Vec<CompletionItem> {
    let mut found: Vec<CompletionItem> = Vec::new();
    let mut add = |item: CompletionItem| {
        if found.iter().all(|known| known.label != item.label) {
            found.push(item);
        }
    };
    for declaration in outline.visible(byte) {
        // A name means nothing in the statement that gives it a value.
        let after = text.get(declaration.whole.end..byte).unwrap_or_default();
        let result = !matches!(
            declaration.kind,
            Named::Argument | Named::Parameter | Named::Counter | Named::Function
        );
        let written = result && byte >= declaration.range.start && after.chars().all(|c| c == ' ');
        if !written && declaration.kind != Named::Kernel {
            add(of_declaration(text, declaration, None));
        }
    }
    for file in sources.all().skip(1) {
        let outline = Outline::of(file.text);
        let top = |d: &&Declaration| matches!(d.kind, Named::Function | Named::Constant | Named::Size);
        outline
            .declarations
            .iter()
            .filter(top)
            .for_each(|d| add(of_declaration(file.text, d, Some(file.path))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind of text that the place of `|` wants.
    fn at(text: &str) -> Wanted {
        let byte = text.find('|').unwrap_or_else(|| panic!("{text}"));
        let text = text.replacen('|', "", 1);
        wanted(&text, &Outline::of(&text), byte)
    }

    #[test]
    fn what_a_place_wants_depends_on_what_stands_before() {
        for (text, wanted) in [
            ("|", Wanted::Declaration),
            ("ker|", Wanted::Declaration),
            ("use |", Wanted::Library),
            ("// allow: sh|", Wanted::Lint),
            ("// a comment |", Wanted::Nothing),
            ("kernel k(a: |", Wanted::Type),
            ("kernel k(a: f1|6[m])", Wanted::Type),
            ("kernel k(a: f16[|])", Wanted::Value),
            ("kernel k(a: f16[m])\n    gr|", Wanted::Head),
            ("kernel k() grid(1) threads(32) {\n  |", Wanted::Statement),
            ("kernel k() grid(1) threads(32) {\n  co|\n}", Wanted::Statement),
            ("kernel k() grid(1) threads(32) {\n  x = |\n}", Wanted::Value),
            ("kernel k() grid(1) threads(32) {\n  copy(|", Wanted::Value),
            ("kernel k() grid(1) threads(32) {\n  copy.|", Wanted::Async),
            ("kernel k() grid(1) threads(32) {\n  r = register_tensor(|", Wanted::Type),
            ("kernel k() grid(1) threads(32) {\n  r = register_tensor(f16, [|", Wanted::Value),
            ("kernel k() grid(1) threads(32) {\n  h = cast(r, |", Wanted::Type),
            ("kernel k() grid(1) threads(32) {\n  for i in 0..block.|", Wanted::Axis),
            ("kernel k() grid(1) threads(32) {\n  for |", Wanted::Nothing),
            ("kernel k() grid(1) threads(32) {\n  print(\"|\"", Wanted::Nothing),
            ("fn f(x) {\n  x = 1; |", Wanted::Statement),
        ] {
            assert_eq!(at(text), wanted, "{text}");
        }
    }

    #[test]
    fn names_in_scope_come_before_functions_and_words() {
        let text = "size m = 4\nfn f(x) { return x }\nkernel k(a: f16[m]) grid(1) threads(32) {\n  r = register_tensor(f16, [4])\n  for i in 0..m { q = r }\n  t = \n}";
        let byte = text.find("t = \n").map_or(0, |at| at + 4);
        let items = complete(text, &Outline::of(text), &Sources::default(), byte, true);
        let labels: Vec<&str> = items.iter().map(|item| item.label.as_str()).collect();
        for name in ["m", "f", "a", "r", "reduce", "exp", "f32", "block"] {
            assert!(labels.contains(&name), "{name} is not among {labels:?}");
        }
        assert!(
            !labels.contains(&"q")
                && !labels.contains(&"i")
                && !labels.contains(&"x")
                && !labels.contains(&"t"),
            "{labels:?}"
        );
    }
}
