//! Text to tokens. Brackets are matched here ([`brackets`]), so that the parser never sees an unbalanced text; newlines inside
//! parentheses and square brackets are dropped, all others are tokens. A mistake does not end the reading: what follows it is read as if it
//! had been made good.

mod brackets;

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Span};

/// The largest source text that is read, in bytes.
pub(crate) const MAX_SOURCE: usize = 1 << 20;
/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 128;
/// The most mistakes that are told of one text.
pub(crate) const MAX_MISTAKES: usize = 20;
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

const PUNCTUATION: [&str; 29] = [
    "->", "..", "==", "!=", "<=", ">=", "<<", ">>", "(", ")", "[", "]", "{", "}", ",", ":", "=", "+", "-",
    "*", "/", "%", "&", "|", "^", ".", "<", ">", ";",
];

/// Characters that look like others: the character and what is meant.
pub(crate) const LOOK_ALIKES: &[(char, &str)] = &[
    ('\u{2212}', "-"),
    ('\u{2010}', "-"),
    ('\u{2011}', "-"),
    ('\u{2013}', "-"),
    ('\u{2014}', "-"),
    ('\u{00d7}', "*"),
    ('\u{00b7}', "*"),
    ('\u{22c5}', "*"),
    ('\u{2217}', "*"),
    ('\u{00f7}', "/"),
    ('\u{2215}', "/"),
    ('\u{2264}', "<="),
    ('\u{2265}', ">="),
    ('\u{2260}', "!="),
    ('\u{221e}', "inf"),
    ('\u{201c}', "\""),
    ('\u{201d}', "\""),
    ('\u{201e}', "\""),
    ('\u{2018}', "'"),
    ('\u{2019}', "'"),
    ('\u{2026}', ".."),
    ('\u{00a0}', " "),
    ('\u{2009}', " "),
    ('\u{200b}', ""),
    ('\u{ff08}', "("),
    ('\u{ff09}', ")"),
    ('\u{ff0c}', ","),
    ('\u{ff1a}', ":"),
    ('\u{ff1b}', ";"),
    ('\u{ff1d}', "="),
];

fn syntax(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::Syntax, span, message)
}

/// Splits a text into tokens; the last is [`Tok::End`].
pub(crate) fn lex(source: &str) -> Result<Vec<Token>, Diagnostics> {
    let Lexed { tokens, errors } = read(source);
    if errors.is_empty() { Ok(tokens) } else { Err(Diagnostics(errors)) }
}

/// The tokens of a text, and its mistakes of characters and brackets.
pub(crate) struct Lexed {
    /// Tokens whose brackets match: what is missing was put in, without bytes, and what is too much left out.
    pub(crate) tokens: Vec<Token>,
    /// The mistakes, in the order of the text, [`MAX_MISTAKES`] at most.
    pub(crate) errors: Vec<Diagnostic>,
}

/// Splits a text into tokens, with mistakes made good.
pub(crate) fn read(source: &str) -> Lexed {
    let mut scanner = Scanner { source, tokens: Vec::new(), errors: Vec::new() };
    if source.len() > MAX_SOURCE {
        let message = format!("the text has more than {MAX_SOURCE} bytes, the most that a program has");
        let error = syntax(Span::new(0, 0), message);
        scanner.errors.push(error.help("one file holds one kernel: split the program"));
    } else {
        scanner.scan();
    }
    let Scanner { tokens, mut errors, .. } = scanner;
    let tokens = brackets::matched(source, &tokens, &mut errors);
    errors.sort_by_key(|error| error.span.key());
    errors.truncate(MAX_MISTAKES);
    Lexed { tokens, errors }
}

/// Tokens without regard to brackets, all newlines among them.
struct Scanner<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    errors: Vec<Diagnostic>,
}

impl Scanner<'_> {
    fn scan(&mut self) {
        let bytes = self.source.as_bytes();
        let mut at = if self.source.starts_with('\u{feff}') { 3 } else { 0 };
        while let Some(&byte) = bytes.get(at) {
            let start = at;
            let tok = match byte {
                b' ' | b'\t' | b'\r' => {
                    at += 1;
                    continue;
                }
                b'#' => {
                    let end = end_of_line(bytes, at);
                    self.directive_of_c(at, end);
                    at = end;
                    continue;
                }
                b'/' if bytes.get(at + 1) == Some(&b'/') => {
                    at = end_of_line(bytes, at);
                    continue;
                }
                b'/' if bytes.get(at + 1) == Some(&b'*') => {
                    at = self.comment_of_c(at);
                    continue;
                }
                b'\n' | b';' => {
                    at += 1;
                    Tok::Newline
                }
                b'"' => {
                    at = self.quoted(at);
                    Tok::Text
                }
                b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                    at += run(bytes, at, |b| b == b'_' || b.is_ascii_alphanumeric());
                    if at - start > MAX_NAME {
                        let message =
                            format!("a name of {} bytes; names have at most {MAX_NAME}", at - start);
                        self.errors.push(syntax(Span::new(start, at), message));
                    }
                    Tok::Word
                }
                b'0'..=b'9' => {
                    let end = self.number(at);
                    self.tokens.push(Token { tok: Tok::Number, span: Span::new(start, end), close: 0 });
                    at = end + run(bytes, end, |b| b == b'_' || b.is_ascii_alphanumeric());
                    continue;
                }
                _ => match PUNCTUATION.iter().find(|p| bytes[at..].starts_with(p.as_bytes())) {
                    Some(punct) => {
                        at += punct.len();
                        Tok::Punct(punct)
                    }
                    None => {
                        let (tok, end) = self.stranger(at);
                        at = end;
                        match tok {
                            Some(tok) => tok,
                            None => continue,
                        }
                    }
                },
            };
            self.tokens.push(Token { tok, span: Span::new(start, at), close: 0 });
        }
    }

    /// Reports a directive of C, which begins as a comment does. The foreign words have the remedy of some.
    fn directive_of_c(&mut self, at: usize, end: usize) {
        let line = self.source[at..end].trim_end();
        // `# include …` with a space is a comment as others are.
        let word = line[1..].split(char::is_whitespace).next();
        if matches!(word, Some("pragma" | "define" | "include" | "ifdef" | "ifndef" | "endif")) {
            let error = syntax(Span::new(at, at + line.len()), "there are no directives of C");
            self.errors.push(error.help("leave it out; a comment begins with `//`"));
        }
    }

    /// `/* … */`, which is no comment of the language and is passed like one; the byte behind.
    fn comment_of_c(&mut self, at: usize) -> usize {
        let end = self.source[at..].find("*/").map_or(self.source.len(), |length| at + length + 2);
        let first = self.source[at..end].split('\n').next().map_or(2, str::len);
        let message = "comments end with the line: there is no `/* … */`";
        self.errors.push(
            syntax(Span::new(at, at + first), message).help("begin each line of the comment with `//`"),
        );
        end
    }

    /// A text in quotes; the byte behind.
    fn quoted(&mut self, at: usize) -> usize {
        let bytes = self.source.as_bytes();
        let end = at + 1 + run(bytes, at + 1, |b| b != b'"' && b != b'\n');
        if bytes.get(end) == Some(&b'"') {
            return end + 1;
        }
        let error = syntax(Span::new(at, end), "this text is never closed");
        self.errors.push(error.label("its `\"` is missing on this line"));
        end
    }

    /// A number; the byte behind it. Letters that it runs into are a mistake.
    fn number(&mut self, at: usize) -> usize {
        let bytes = self.source.as_bytes();
        let end = end_of_number(bytes, at);
        if end - at > MAX_NAME {
            let message = format!("a number of {} digits; numbers have at most {MAX_NAME}", end - at);
            self.errors.push(syntax(Span::new(at, end), message));
        }
        if bytes.get(end).is_some_and(|b| *b == b'_' || b.is_ascii_alphabetic()) {
            let error = syntax(Span::new(at, end + 1), "a number runs into a name");
            self.errors.push(error.label("put a space or an operator between them"));
        }
        end
    }

    /// A character that the language has not: the token that is taken for it, if one is, and the byte behind.
    fn stranger(&mut self, at: usize) -> (Option<Tok>, usize) {
        let c = self.source[at..].chars().next().unwrap_or('\0');
        let message = format!("the character `{}` has no meaning here", c.escape_debug());
        let mut end = at + c.len_utf8();
        let line = self.source[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let again = |error: &Diagnostic| error.span.text().is_some_and(|span| span.start as usize >= line);
        // A line of another language has many.
        if !self.errors.last().is_some_and(again) {
            let error = syntax(Span::new(at, end), message)
                .help("a program is text like `kernel name(a: f16[m, k]) grid(m) threads(128) { … }`");
            self.errors.push(error);
        }
        // A text in the quotes of another language.
        let closes = match c {
            '\'' => Some('\''),
            '\u{201c}' | '\u{201e}' => Some('\u{201d}'),
            '\u{2018}' => Some('\u{2019}'),
            _ => None,
        };
        let rest = self.source[end..].split('\n').next().unwrap_or("");
        if let Some(closes) = closes
            && let Some(length) = rest.find(closes)
        {
            end += length + closes.len_utf8();
            return (Some(Tok::Text), end);
        }
        let meant = LOOK_ALIKES.iter().find(|(alike, _)| *alike == c).map(|(_, meant)| *meant);
        let punct = meant.and_then(|meant| PUNCTUATION.into_iter().find(|punct| *punct == meant));
        (punct.map(Tok::Punct), end)
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
