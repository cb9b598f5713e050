//! Blanks between the tokens of a line.

use super::is_operand;
use super::pieces::{Part, Piece};
use crate::lexer::Tok;

/// Words behind which an operand or a parenthesis begins something, so that no call is meant.
pub(super) const LEADS_TO_OPERAND: [&str; 11] =
    ["in", "and", "or", "not", "if", "while", "return", "for", "let", "else", "use"];

/// Signs behind which a statement goes on in the next line.
const LEADS_ON: [&str; 22] = [
    "->", "=", "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "..",
    ":", ".", ",",
];

/// Signs with an operand on either side and blanks around.
const BINARY: [&str; 17] =
    ["=", "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", ">", "<=", ">=", "==", "!="];

/// A bracket that is open, as far as blanks go.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Brace,
    Parenthesis,
    Index,
    /// The text of a layout, up to the end of what is around.
    Layout,
}

/// Tokens that were written of a statement, as far as the blank before the next one depends on them.
pub(super) struct Spacing {
    inside: Vec<Inside>,
    /// The first word of the statement.
    first: String,
    last: Option<(Tok, String)>,
    /// True if the last token is a sign of one operand.
    sign: bool,
}

impl Spacing {
    pub(super) fn new() -> Self {
        Spacing { inside: Vec::new(), first: String::new(), last: None, sign: false }
    }

    pub(super) fn begin(&mut self, first: &str) {
        self.first = first.to_string();
        (self.last, self.sign) = (None, false);
    }

    pub(super) fn first_is(&self, word: &str) -> bool {
        self.first == word
    }

    pub(super) fn last_is(&self, text: &str) -> bool {
        self.last.as_ref().is_some_and(|(_, last)| last == text)
    }

    /// True if the statement goes on behind what was written last.
    pub(super) fn leads_on(&self, items: bool) -> bool {
        match &self.last {
            Some((Tok::Punct(punct), _)) => LEADS_ON.contains(punct) && !(items && *punct == ","),
            Some((Tok::Word, word)) => LEADS_TO_OPERAND.contains(&word.as_str()),
            _ => false,
        }
    }

    /// True if a blank is written before a token or a comment on the same line.
    pub(super) fn before(&self, piece: &Piece<'_>) -> bool {
        let Part::Token(word) = piece.part else { return true };
        let Some((last, last_text)) = &self.last else { return false };
        let inside = self.inside.last().copied();
        let (last, text) = (*last, word.text);
        if inside == Some(Inside::Layout) && !matches!(text, "," | ")") {
            return piece.blank || last == Tok::Punct("=");
        }
        let after = |puncts: &[&str]| matches!(last, Tok::Punct(punct) if puncts.contains(&punct));
        let operand = is_operand(last, last_text);
        match word.tok {
            Tok::Punct("," | ")" | "]") => false,
            Tok::Punct("." | "..") => false,
            _ if after(&["(", "[", ".", ".."]) || self.sign => false,
            Tok::Punct("}") => !after(&["{"]),
            Tok::Punct(":") if inside == Some(Inside::Index) => true,
            // A type, a label or a loop behind its name; shapes and strides have brackets.
            Tok::Punct(":") => last != Tok::Word,
            _ if after(&[":"]) && inside == Some(Inside::Index) => true,
            Tok::Punct("(") => !operand || after(&["}"]),
            Tok::Punct("[") => !operand,
            // Two signs that have no meaning beside each other.
            Tok::Punct(punct) if punct != "-" && BINARY.contains(&punct) && after(&BINARY) => piece.blank,
            _ => true,
        }
    }

    pub(super) fn push(&mut self, piece: &Piece<'_>) {
        let Part::Token(word) = piece.part else { return };
        let operand = self.last.as_ref().is_some_and(|(tok, text)| is_operand(*tok, text));
        self.sign = word.tok == Tok::Punct("-") && !operand;
        match word.text {
            "(" if word.tok == Tok::Punct("(") => {
                let layout = self.inside.last() == Some(&Inside::Layout);
                self.inside.push(if layout { Inside::Layout } else { Inside::Parenthesis });
            }
            "[" => self.inside.push(Inside::Index),
            "{" => self.inside.push(Inside::Brace),
            ")" | "]" | "}" if matches!(word.tok, Tok::Punct(_)) => {
                self.inside.pop();
            }
            "=" if self.last_is("layout") => {
                if let Some(inside @ Inside::Parenthesis) = self.inside.last_mut() {
                    *inside = Inside::Layout;
                }
            }
            _ => {}
        }
        self.last = Some((word.tok, word.text.to_string()));
    }
}
