//! Tokens and comments of a text, with the line breaks between them.

use crate::lexer::{Tok, Token};

/// A token, with its text.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) tok: Tok,
    pub(super) text: &'a str,
}

/// A token or a comment.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Token(Word<'a>),
    /// Up to the end of the line, without blanks there.
    Comment(&'a str),
}

/// A token or a comment, and what is before it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) part: Part<'a>,
    /// Line breaks before it: 0, 1, or 2 with an empty line.
    pub(super) breaks: usize,
    /// True if a `;` or a line break that is a token stands before it.
    pub(super) ends_statement: bool,
    /// True if a blank stands before it in the text.
    pub(super) blank: bool,
    /// Characters before it on its line of the text.
    pub(super) column: usize,
}

impl<'a> Piece<'a> {
    pub(super) fn text(&self) -> &'a str {
        match self.part {
            Part::Token(word) => word.text,
            Part::Comment(text) => text,
        }
    }

    pub(super) fn token(&self) -> Option<Tok> {
        match self.part {
            Part::Token(word) => Some(word.tok),
            Part::Comment(_) => None,
        }
    }

    fn is(&self, text: &str) -> bool {
        matches!(self.part, Part::Token(Word { tok: Tok::Punct(_), text: punct }) if punct == text)
    }
}

/// The pieces of a text, with the line breaks that they are written with.
pub(super) fn pieces<'a>(text: &'a str, tokens: &[Token]) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let mut at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut ends_statement = false;
    let mut breaks = 0;
    for token in tokens {
        let span = token.span.range();
        comments(text, at..span.start, &mut breaks, &mut pieces);
        at = span.end.max(at);
        let word = text.get(span.clone()).unwrap_or("");
        match token.tok {
            Tok::Newline => {
                breaks += usize::from(word == "\n");
                ends_statement = true;
            }
            Tok::End => {}
            tok => {
                let part = Part::Token(Word { tok, text: word });
                pieces.push(piece(text, part, span.start, breaks, ends_statement));
                (breaks, ends_statement) = (0, false);
            }
        }
    }
    blocks(&mut pieces);
    pieces
}

fn piece<'a>(text: &str, part: Part<'a>, start: usize, breaks: usize, ends_statement: bool) -> Piece<'a> {
    let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let blank = text[..start].ends_with([' ', '\t']);
    Piece { part, breaks: breaks.min(2), ends_statement, blank, column: text[line..start].chars().count() }
}

/// The comments between two tokens.
fn comments<'a>(text: &'a str, gap: std::ops::Range<usize>, breaks: &mut usize, pieces: &mut Vec<Piece<'a>>) {
    let mut at = gap.start;
    while at < gap.end {
        let rest = &text[at..gap.end];
        let Some(c) = rest.chars().next() else { break };
        match c {
            '\n' => *breaks += 1,
            '#' | '/' => {
                let comment = rest.split('\n').next().unwrap_or(rest);
                // A comment is at the end of a statement, not between two.
                pieces.push(piece(text, Part::Comment(comment.trim_end()), at, *breaks, false));
                *breaks = 0;
                at += comment.len();
                continue;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
}

/// Makes the line breaks of blocks alike.
fn blocks(pieces: &mut [Piece<'_>]) {
    let mut open: Vec<usize> = Vec::new();
    // The closing brace of each block, and the opening one.
    let mut closes: Vec<(usize, usize)> = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        if piece.is("{") {
            open.push(i);
        } else if piece.is("}")
            && let Some(start) = open.pop()
        {
            closes.push((start, i));
        }
    }
    for &(start, end) in &closes {
        if end == start + 1 {
            pieces[end].breaks = 0;
            continue;
        }
        if pieces[start + 1..=end].iter().all(|piece| piece.breaks == 0) {
            continue;
        }
        if pieces[start + 1].token().is_some() || pieces[start + 1].breaks > 0 {
            pieces[start + 1].breaks = 1;
        }
        pieces[end].breaks = 1;
        match pieces.get_mut(end + 1) {
            Some(next) if matches!(next.text(), "else" | "drain") && next.token().is_some() => {
                next.breaks = 0;
            }
            // What follows a block over several lines begins a line.
            Some(next) if next.ends_statement && !next.is("}") => next.breaks = next.breaks.max(1),
            _ => {}
        }
    }
    for i in 0..pieces.len() {
        if i == 0 || pieces[i - 1].is("{") {
            pieces[i].breaks = pieces[i].breaks.min(1);
            pieces[i].ends_statement = false;
        } else if pieces[i].is("}") {
            pieces[i].ends_statement = false;
        }
        // A comment ends its line.
        if i > 0 && pieces[i - 1].token().is_none() {
            pieces[i].breaks = pieces[i].breaks.max(1);
        }
    }
}
