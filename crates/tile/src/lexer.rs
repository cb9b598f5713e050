//! Text to tokens. Brackets are matched here, so that the parser never sees an unbalanced text; newlines inside
//! parentheses and square brackets are dropped, all others are tokens.

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Span};

/// The largest source text that is read, in bytes.
pub(crate) const MAX_SOURCE: usize = 1 << 20;
/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 128;
/// The deepest nesting of brackets.
pub(crate) const MAX_BRACKETS: usize = 256;

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tok {
    /// A name or a keyword; `_` too.
    Word,
    /// An integer or floating-point literal, without sign.
    Number,
    /// Characters between double quotes, on one line.
    Text,
    /// Punctuation.
    Punct(&'static str),
    /// A newline outside parentheses and square brackets, or `;`.
    Newline,
    /// The end of the text.
    End,
}

/// A token and where it is. For an opening bracket `close` is the index of its closing one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) tok: Tok,
    pub(crate) span: Span,
    pub(crate) close: usize,
}

const PUNCTUATION: [&str; 28] = [
    "..", "==", "!=", "<=", ">=", "<<", ">>", "(", ")", "[", "]", "{", "}", ",", ":", "=", "+", "-", "*",
    "/", "%", "&", "|", "^", ".", "<", ">", ";",
];

fn syntax(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::Syntax, span, message)
}

/// Splits a text into tokens; the last is [`Tok::End`].
pub(crate) fn lex(source: &str) -> Result<Vec<Token>, Diagnostics> {
    if source.len() > MAX_SOURCE {
        return Err(syntax(
            Span::new(0, 0),
            format!("the text has more than {MAX_SOURCE} bytes, the most that a program has"),
        )
        .help("one file holds one kernel: split the program")
        .into());
    }
    let bytes = source.as_bytes();
    let mut tokens: Vec<Token> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut at = if source.starts_with('\u{feff}') { 3 } else { 0 };
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let tok = match byte {
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'#' => {
                at = end_of_line(bytes, at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = end_of_line(bytes, at);
                continue;
            }
            b'\n' => {
                at += 1;
                if open.last().is_some_and(|&i| tokens[i].tok != Tok::Punct("{")) {
                    continue;
                }
                Tok::Newline
            }
            b';' => {
                at += 1;
                Tok::Newline
            }
            b'"' => {
                at += 1 + run(bytes, at + 1, |b| b != b'"' && b != b'\n');
                if bytes.get(at) != Some(&b'"') {
                    return Err(syntax(Span::new(start, at), "this text is never closed")
                        .label("its `\"` is missing on this line")
                        .into());
                }
                at += 1;
                Tok::Text
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                at += run(bytes, at, |b| b == b'_' || b.is_ascii_alphanumeric());
                if at - start > MAX_NAME {
                    let message = format!("a name of {} bytes; names have at most {MAX_NAME}", at - start);
                    return Err(syntax(Span::new(start, at), message).into());
                }
                Tok::Word
            }
            b'0'..=b'9' => {
                at = end_of_number(bytes, at);
                if at - start > MAX_NAME {
                    let message =
                        format!("a number of {} digits; numbers have at most {MAX_NAME}", at - start);
                    return Err(syntax(Span::new(start, at), message).into());
                }
                if bytes.get(at).is_some_and(|b| *b == b'_' || b.is_ascii_alphabetic()) {
                    return Err(syntax(Span::new(start, at + 1), "a number runs into a name")
                        .label("put a space or an operator between them")
                        .into());
                }
                Tok::Number
            }
            _ => match PUNCTUATION.iter().find(|p| bytes[at..].starts_with(p.as_bytes())) {
                Some(punct) => {
                    at += punct.len();
                    Tok::Punct(punct)
                }
                None => {
                    let c = source[at..].chars().next().unwrap_or('\0');
                    let message = format!("the character `{}` has no meaning here", c.escape_debug());
                    return Err(syntax(Span::new(at, at + c.len_utf8()), message)
                        .help("a program is text like `kernel name(a: f16[m, k]) grid(m) threads(128) { … }`")
                        .into());
                }
            },
        };
        let index = tokens.len();
        tokens.push(Token { tok, span: Span::new(start, at), close: 0 });
        match tok {
            Tok::Punct("(" | "[" | "{") => {
                if open.len() >= MAX_BRACKETS {
                    let message = format!("brackets nest deeper than {MAX_BRACKETS} levels");
                    return Err(syntax(Span::new(start, at), message).into());
                }
                open.push(index);
            }
            Tok::Punct(closing @ (")" | "]" | "}")) => close(&mut tokens, &mut open, index, closing)?,
            _ => {}
        }
    }
    if let Some(&i) = open.last() {
        return Err(never_closed(&tokens[i], Span::new(source.len(), source.len())).into());
    }
    let end = Span::new(source.len(), source.len());
    tokens.push(Token { tok: Tok::Newline, span: end, close: 0 });
    tokens.push(Token { tok: Tok::End, span: end, close: 0 });
    Ok(tokens)
}

fn close(
    tokens: &mut [Token],
    open: &mut Vec<usize>,
    index: usize,
    closing: &str,
) -> Result<(), Diagnostics> {
    let here = tokens[index].span;
    let Some(i) = open.pop() else {
        return Err(syntax(here, format!("this `{closing}` closes nothing"))
            .label("no bracket is open")
            .into());
    };
    let fits = matches!(
        (tokens[i].tok, closing),
        (Tok::Punct("("), ")") | (Tok::Punct("["), "]") | (Tok::Punct("{"), "}")
    );
    if !fits {
        return Err(never_closed(&tokens[i], here).into());
    }
    tokens[i].close = index;
    Ok(())
}

fn never_closed(token: &Token, at: Span) -> Diagnostic {
    let (open, wants) = match token.tok {
        Tok::Punct("(") => ("(", ")"),
        Tok::Punct("[") => ("[", "]"),
        _ => ("{", "}"),
    };
    let message = format!("this `{open}` is never closed");
    let diagnostic = syntax(token.span, message).label(format!("its `{wants}` is missing"));
    if at.is_empty() {
        diagnostic.help(format!("the text ends before a `{wants}`"))
    } else {
        diagnostic
            .related(at, format!("a `{wants}` was expected before this"))
            .help(format!("add a `{wants}`"))
    }
}

fn run(bytes: &[u8], at: usize, ok: impl Fn(u8) -> bool) -> usize {
    bytes[at..].iter().take_while(|&&b| ok(b)).count()
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    at + run(bytes, at, |b| b != b'\n')
}

/// `12`, `0x1f`, `1.5`, `1e-7`, `2e1` (which in a stride means `2 * e1`); not the `0..` of a range.
fn end_of_number(bytes: &[u8], at: usize) -> usize {
    let digits = |at: usize| at + run(bytes, at, |b| b.is_ascii_digit());
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    if bytes[at..].starts_with(b"0x") && bytes.get(at + 2).is_some_and(u8::is_ascii_hexdigit) {
        return at + 2 + run(bytes, at + 2, |b| b.is_ascii_hexdigit());
    }
    let mut end = digits(at);
    if bytes.get(end) == Some(&b'.') && is_digit(end + 1) {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if is_digit(end + 1 + sign) {
            end = digits(end + 1 + sign);
        }
    }
    end
}
