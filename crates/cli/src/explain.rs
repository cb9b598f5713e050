//! `tilewright explain`: pages about the codes of messages.

use std::process::ExitCode;

use clap::builder::styling::Style;
use tilewright::tile::Code;
use tilewright::tile::code::Kind;

use crate::args::ExplainArgs;
use crate::messages::{Failure, print};

/// Columns of a paragraph.
const WIDTH: usize = 100;

const BOLD: Style = Style::new().bold();

/// The pages of codes, or the list of them.
pub fn explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let text = if args.codes.is_empty() {
        list()
    } else {
        let codes: Vec<Code> = args.codes.iter().map(|given| code(given)).collect::<Result<_, _>>()?;
        codes.iter().map(|code| page(code.page())).collect::<Vec<_>>().join("\n")
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The code that is meant, also by all that a message has: `error[shape-mismatch]`.
fn code(given: &str) -> Result<Code, Failure> {
    let name = given.split_once('[').map_or(given, |(_, inner)| inner.split(']').next().unwrap_or(inner));
    let name = name.to_ascii_lowercase().replace('_', "-");
    Code::named(&name).ok_or_else(|| {
        let meant = Code::nearest(&name).map_or(String::new(), |code| format!(": did you mean `{code}`?"));
        Failure::usage(format!("there is no code `{given}`{meant}; `tilewright explain` lists the codes"))
    })
}

/// Every code with its sentence, by kind.
fn list() -> String {
    let width = Code::ALL.iter().map(|code| code.name().len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut before: Option<Kind> = None;
    for code in Code::ALL {
        if before != Some(code.kind()) {
            let gap = if before.is_some() { "\n" } else { "" };
            text.push_str(&format!("{gap}{BOLD}{}{BOLD:#}\n", heading(code.kind())));
            before = Some(code.kind());
        }
        text.push_str(&format!("  {:width$}  {}\n", code.name(), code.summary()));
    }
    text
}

/// The heading of a kind's codes.
fn heading(kind: Kind) -> &'static str {
    match kind {
        Kind::Error => "Errors: the program is refused, or a run finds it wrong",
        Kind::Warning => "Warnings of a run, by the interpreter",
        Kind::Lint => "Lints: warnings without a run; `// allow: NAME` in the text allows one",
    }
}

/// A page of Markdown for a terminal: headings stand out, code is indented, paragraphs are filled.
fn page(markdown: &str) -> String {
    let mut text = String::new();
    let mut paragraph = String::new();
    let mut code = false;
    for line in markdown.lines() {
        let item = line.starts_with("- ");
        let ends = code || item || line.is_empty() || line.starts_with('#') || line.starts_with("```");
        if ends && !paragraph.is_empty() {
            text.push_str(&filled(&std::mem::take(&mut paragraph)));
        }
        if line.starts_with("```") {
            code = !code;
        } else if code {
            text.push_str(format!("    {line}").trim_end());
            text.push('\n');
        } else if let Some(heading) = line.strip_prefix("# ").or(line.strip_prefix("## ")) {
            text.push_str(&format!("{BOLD}{heading}{BOLD:#}\n"));
        } else if line.is_empty() {
            text.push('\n');
        } else {
            paragraph.push_str(if paragraph.is_empty() { "" } else { " " });
            paragraph.push_str(line.trim());
        }
    }
    text + &filled(&paragraph)
}

/// Words in lines of a width; those of a list's item stand behind its mark.
fn filled(paragraph: &str) -> String {
    let indent = if paragraph.starts_with("- ") { "  " } else { "" };
    let (mut text, mut column) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    if column > 0 {
        text.push('\n');
    }
    text
}

/// The line behind the messages of a command that says how to ask about their codes.
pub fn hint(codes: &[Code]) -> Option<String> {
    match codes {
        [] => None,
        [code] => Some(format!("more about this: tilewright explain {code}")),
        several => {
            let names: Vec<&str> = several.iter().map(|code| code.name()).collect();
            Some(format!("more about these: tilewright explain {}", names.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_filled_and_code_is_not() {
        let long = "word ".repeat(30);
        let markdown = format!("# name\n\n{long}\nmore\n\n- {long}\n\n```tile\nkernel   k\n```\n");
        let text = anstream::adapter::strip_str(&page(&markdown)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("\n    kernel   k\n") && text.contains("word more\n"), "{text}");
        assert!(text.contains("\n- word") && text.contains("\n  word"), "{text}");
    }

    #[test]
    fn a_code_is_known_as_messages_write_it() {
        for given in ["shape-mismatch", "error[shape-mismatch]", "[shape-mismatch]", "SHAPE_MISMATCH"] {
            assert!(matches!(code(given), Ok(Code::ShapeMismatch)), "{given}");
        }
        let wrong = code("shape-mismatsch").map_err(|failure| failure.text).unwrap_err();
        assert!(wrong.contains("did you mean `shape-mismatch`?"), "{wrong}");
    }

    #[test]
    fn the_hint_names_every_code_once() {
        assert_eq!(hint(&[]), None);
        let hint = hint(&[Code::ShortGrid, Code::PartlyRead]).unwrap_or_default();
        assert_eq!(hint, "more about these: tilewright explain short-grid partly-read");
    }
}
