//! Brackets that match. One that is never closed is closed at the end of its line, a block at the end of the text; one that closes nothing is
//! left out.

use std::collections::HashSet;

use super::{MAX_BRACKETS, MAX_MISTAKES, Tok, Token, syntax};
use crate::diagnostic::{Diagnostic, Span};

/// Tokens whose brackets match and know each other, without the newlines inside of parentheses and square brackets, and with the end.
pub(super) fn matched(source: &str, tokens: &[Token], errors: &mut Vec<Diagnostic>) -> Vec<Token> {
    let mut matcher =
        Matcher { source, raw: tokens, closed_on_its_line: HashSet::new(), left_out: HashSet::new() };
    for _ in 0..MAX_MISTAKES {
        match matcher.attempt() {
            Ok(tokens) => return tokens,
            Err(error) => errors.push(error),
        }
    }
    matcher.leave_all_out();
    matcher.attempt().unwrap_or_default()
}

/// The bracket that a token is.
fn bracket(token: &Token) -> Option<&'static str> {
    match token.tok {
        Tok::Punct(punct @ ("(" | "[" | "{" | ")" | "]" | "}")) => Some(punct),
        _ => None,
    }
}

fn closing(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

struct Matcher<'a> {
    source: &'a str,
    raw: &'a [Token],
    /// Opening brackets, by their raw tokens, that are closed at the end of their lines.
    closed_on_its_line: HashSet<usize>,
    /// Brackets that are no tokens.
    left_out: HashSet<usize>,
}

/// A bracket that is open: its raw token, and the token.
struct Open {
    raw: usize,
    token: usize,
}

impl Matcher<'_> {
    /// Matches the brackets, with what is known to be wrong made good, or finds the next mistake, and how it is made good.
    fn attempt(&mut self) -> Result<Vec<Token>, Diagnostic> {
        let mut tokens: Vec<Token> = Vec::with_capacity(self.raw.len() + 2);
        let mut open: Vec<Open> = Vec::new();
        // Blocks, with their opening and closing raw tokens.
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for (at, token) in self.raw.iter().enumerate() {
            if token.tok == Tok::Newline {
                while open.last().is_some_and(|open| {
                    self.punct(open.raw) != "{" && self.closed_on_its_line.contains(&open.raw)
                }) {
                    self.put_in(&mut tokens, &mut open, token.span.start);
                }
                let in_brackets = open.last().is_some_and(|open| self.punct(open.raw) != "{");
                // A `;` is a mistake there, which the parser tells.
                if in_brackets && self.source.as_bytes().get(token.span.start as usize) == Some(&b'\n') {
                    continue;
                }
            }
            let bracket_here = bracket(token).filter(|_| !self.left_out.contains(&at));
            // One that is closed by the end of its line is so before another bracket closes.
            if let Some(close @ (")" | "]" | "}")) = bracket_here {
                while open.last().is_some_and(|open| {
                    closing(self.punct(open.raw)) != close
                        && self.punct(open.raw) != "{"
                        && self.closed_on_its_line.contains(&open.raw)
                }) {
                    self.put_in(&mut tokens, &mut open, token.span.start);
                }
            }
            match bracket_here {
                Some("(" | "[" | "{") => {
                    if open.len() >= MAX_BRACKETS {
                        let message = format!("brackets nest deeper than {MAX_BRACKETS} levels");
                        self.leave_all_out();
                        return Err(syntax(token.span, message));
                    }
                    open.push(Open { raw: at, token: tokens.len() });
                }
                Some(close) => match open.pop() {
                    Some(Open { raw, token: opening }) if closing(self.punct(raw)) == close => {
                        tokens[opening].close = tokens.len();
                        if close == "}" {
                            blocks.push((raw, at));
                        }
                    }
                    Some(opening) if self.punct(opening.raw) != "{" => {
                        self.closed_on_its_line.insert(opening.raw);
                        return Err(self.never_closed(opening.raw, Some(token.span)));
                    }
                    Some(_) => return Err(self.closes_nothing(at, &[])),
                    None => return Err(self.closes_nothing(at, &blocks)),
                },
                None if bracket(token).is_some() => continue,
                None => {}
            }
            tokens.push(*token);
        }
        let end = self.source.len() as u32;
        if let Some(opening) = open.last()
            && self.punct(opening.raw) != "{"
            && !self.closed_on_its_line.contains(&opening.raw)
        {
            let raw = opening.raw;
            self.closed_on_its_line.insert(raw);
            return Err(self.never_closed(raw, None));
        }
        if let Some(opening) = open.last()
            && !self.closed_on_its_line.contains(&opening.raw)
        {
            let raw = opening.raw;
            let error = self.block_never_closed(raw, &blocks);
            // From now on it is closed at the end of the text, as all around it.
            self.closed_on_its_line.extend(open.iter().map(|open| open.raw));
            return Err(error);
        }
        while !open.is_empty() {
            self.put_in(&mut tokens, &mut open, end);
        }
        let span = Span { start: end, end };
        tokens.push(Token { tok: Tok::Newline, span, close: 0 });
        tokens.push(Token { tok: Tok::End, span, close: 0 });
        Ok(tokens)
    }

    /// After too many mistakes no bracket has a meaning.
    fn leave_all_out(&mut self) {
        self.left_out = (0..self.raw.len()).filter(|at| bracket(&self.raw[*at]).is_some()).collect();
    }

    fn punct(&self, raw: usize) -> &'static str {
        bracket(&self.raw[raw]).unwrap_or("{")
    }

    /// Closes the innermost bracket at a byte.
    fn put_in(&self, tokens: &mut Vec<Token>, open: &mut Vec<Open>, at: u32) {
        if let Some(Open { raw, token }) = open.pop() {
            tokens[token].close = tokens.len();
            let span = Span { start: at, end: at };
            tokens.push(Token { tok: Tok::Punct(closing(self.punct(raw))), span, close: 0 });
        }
    }

    fn never_closed(&self, raw: usize, at: Option<Span>) -> Diagnostic {
        let (open, wants) = (self.punct(raw), closing(self.punct(raw)));
        let message = format!("this `{open}` is never closed");
        let diagnostic = syntax(self.raw[raw].span, message).label(format!("its `{wants}` is missing"));
        match at {
            None => diagnostic.help(format!("the text ends before a `{wants}`")),
            Some(at) => diagnostic
                .related(at, format!("a `{wants}` was expected before this"))
                .help(format!("add a `{wants}`")),
        }
    }

    /// A block without an end. A block inside that ends at a brace further to the left than it begins is probably the one.
    fn block_never_closed(&self, raw: usize, blocks: &[(usize, usize)]) -> Diagnostic {
        let deeper = |(from, to): &&(usize, usize)| *from > raw && self.column(*to) < self.column(*from);
        match blocks.iter().find(deeper) {
            Some(&(from, to)) => self
                .never_closed(from, None)
                .related(
                    self.raw[to].span,
                    "this `}` stands further to the left: it is that of a block around",
                )
                .help(format!("add a `}}` below `{}`", self.line(from).trim())),
            None => self.never_closed(raw, None),
        }
    }

    /// A bracket that closes nothing. Of braces, one before it that stands further to the right than its block begins is probably the one.
    fn closes_nothing(&mut self, at: usize, blocks: &[(usize, usize)]) -> Diagnostic {
        let open = self.punct(at);
        let deeper = |(from, to): &&(usize, usize)| self.column(*to) > self.column(*from);
        let early = blocks.iter().find(deeper).filter(|_| open == "}");
        let wrong = early.map_or(at, |(_, to)| *to);
        self.left_out.insert(wrong);
        match early {
            Some((from, to)) => {
                let message = "this `}` ends a block that begins further to the left";
                syntax(self.raw[*to].span, message)
                    .label("one `}` too much")
                    .related(self.raw[*from].span, "the block")
                    .related(self.raw[at].span, "this `}` has no block any more")
                    .help("leave it out")
            }
            None => syntax(self.raw[at].span, format!("this `{open}` closes nothing"))
                .label(format!("no `{}` is open", opening_of(open)))
                .help(format!("leave it out, or open a `{}` before it", opening_of(open))),
        }
    }

    /// The line of a raw token.
    fn line(&self, raw: usize) -> &str {
        let at = self.raw[raw].span.start as usize;
        let start = self.source[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.source[at..].find('\n').map_or(self.source.len(), |newline| at + newline);
        &self.source[start..end]
    }

    /// The blanks before the line of a raw token.
    fn column(&self, raw: usize) -> usize {
        let line = self.line(raw);
        line.len() - line.trim_start().len()
    }
}

fn opening_of(close: &str) -> &'static str {
    match close {
        ")" => "(",
        "]" => "[",
        _ => "{",
    }
}
