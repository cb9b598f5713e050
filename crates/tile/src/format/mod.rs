//! Text of a program in the one form that all have: indentation by brackets, one blank between words and signs, at most one empty line.
//!
//! The form is made of tokens and comments, so that a text with mistakes has one too, as long as its brackets match. Lines stay where the
//! author broke them; of breaks that mean nothing, those within a block that goes over several lines are made alike:
//!
//! - what stands in braces is indented by four, and what a line goes on with in brackets, or behind an operator; in brackets it may stand below what
//!   follows the bracket instead;
//! - a block is on one line, or its braces end and begin lines; `else` and `drain` stand behind the brace;
//! - `;` separates statements of one line and ends none;
//! - layouts that are pinned keep the blanks that the author gave them;
//! - comments that begin in one column on lines below each other do so afterwards.

mod pieces;
mod spacing;

use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::lexer::{Tok, lex};
use pieces::{Part, Piece, pieces};
use spacing::Spacing;

/// Blanks of one level.
const INDENT: usize = 4;

/// The text of a program in the form that all have. It is the same program: its tokens are those of `text` but for `;` at ends of lines
/// and line ends beside braces, its comments are those of `text`, and formatted once more it does not change.
///
/// ```
/// let text = "kernel k(x:f32[n])grid(1)threads(32){ // none\nr=register_tensor( f32,[32] );fill(r,-1.0);\n}";
/// assert_eq!(
///     tilewright_tile::format(text)?,
///     "kernel k(x: f32[n]) grid(1) threads(32) { // none\n    r = register_tensor(f32, [32]); fill(r, -1.0)\n}\n"
/// );
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// Characters that are not of the language, and brackets that do not match. A text with other mistakes has a form.
pub fn format(text: &str) -> Result<String, Diagnostics> {
    let tokens = lex(text)?;
    let formatted = Writer::new().write(&pieces(text, &tokens));
    if words(&formatted)? == words(text)? {
        Ok(formatted)
    } else {
        Err(Diagnostic::internal(Span::new(0, text.len()), "formatting changed the program").into())
    }
}

/// The tokens of a text, and its comments, without what formatting may change.
fn words(text: &str) -> Result<Vec<&str>, Diagnostics> {
    let tokens = lex(text)?;
    let pieces = pieces(text, &tokens);
    let mut words: Vec<&str> = Vec::new();
    for piece in &pieces {
        let text = match piece.part {
            Part::Token(token) => token.text,
            Part::Comment(text) => text,
        };
        // The end of a statement is a word, too, but beside braces.
        let ends = piece.ends_statement && text != "}" && !["{", ";"].contains(words.last().unwrap_or(&"{"));
        if ends && !["else", "drain"].contains(&text) {
            words.push(";");
        }
        words.push(text);
    }
    Ok(words)
}

/// A bracket that is open.
struct Open {
    brace: bool,
    /// The indentation of the line with the closing bracket, if that begins one.
    indent: usize,
    /// The columns behind the bracket, in the text that is formatted and afterwards.
    columns: (usize, usize),
    /// The statement around.
    statement: Statement,
}

/// A statement, or a declaration, of which lines may follow.
#[derive(Clone, Copy, Default)]
struct Statement {
    indent: usize,
    /// Lines up to the block belong to it.
    header: bool,
    /// A comma at the end of a line does not lead on.
    items: bool,
}

/// A comment behind code: the line, where it begins in it, and where it began in the text that was formatted.
struct Trailing {
    line: usize,
    column: usize,
    before: usize,
}

struct Writer {
    lines: Vec<String>,
    open: Vec<Open>,
    statement: Statement,
    spacing: Spacing,
    trailing: Vec<Trailing>,
}

impl Writer {
    fn new() -> Self {
        Writer {
            lines: Vec::new(),
            open: Vec::new(),
            statement: Statement::default(),
            spacing: Spacing::new(),
            trailing: Vec::new(),
        }
    }

    fn write(mut self, pieces: &[Piece<'_>]) -> String {
        for piece in pieces {
            if piece.breaks > 0 || self.lines.is_empty() {
                self.begin_line(piece);
            } else if piece.ends_statement {
                self.last().push_str("; ");
                self.begin_statement(piece, None);
            } else if self.spacing.before(piece) {
                self.last().push(' ');
            }
            self.push(piece);
        }
        self.align();
        let mut text = self.lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    fn last(&mut self) -> &mut String {
        if self.lines.is_empty() {
            self.lines.push(String::new());
        }
        let last = self.lines.len() - 1;
        &mut self.lines[last]
    }

    fn begin_line(&mut self, piece: &Piece<'_>) {
        if piece.breaks > 1 && !self.lines.is_empty() {
            self.lines.push(String::new());
        }
        let closes = matches!(piece.text(), ")" | "]" | "}") && piece.token().is_some();
        let inner = match self.open.last() {
            None => 0,
            Some(open) if closes => open.indent,
            // Lines may stand below what follows the bracket.
            Some(open) if !open.brace && piece.column == open.columns.0 => open.columns.1,
            Some(open) => open.indent + INDENT,
        };
        let within = self.open.last().is_some_and(|open| !open.brace);
        let leads_on = !closes && !within && self.leads_on();
        let indent = match piece.token() {
            _ if within || closes => inner,
            Some(_) if leads_on && piece.text() == "{" => self.statement.indent,
            _ if leads_on => self.statement.indent + INDENT,
            _ => inner,
        };
        if !within && !closes && !leads_on && piece.token().is_some() {
            self.begin_statement(piece, Some(indent));
        }
        self.lines.push(" ".repeat(indent));
    }

    fn begin_statement(&mut self, piece: &Piece<'_>, indent: Option<usize>) {
        let header = matches!(piece.text(), "kernel" | "core");
        let indent = indent.unwrap_or(self.statement.indent);
        let items = self.statement.items;
        self.statement = Statement { indent, header, items };
        self.spacing.begin(piece.text());
    }

    /// True if what was written last leaves a statement open.
    fn leads_on(&self) -> bool {
        self.statement.header || self.spacing.leads_on(self.statement.items)
    }

    fn push(&mut self, piece: &Piece<'_>) {
        if piece.token().is_none() {
            let behind_code = piece.breaks == 0 && !self.last().trim().is_empty();
            let column = self.last().chars().count();
            self.last().push_str(piece.text());
            if behind_code {
                let line = self.lines.len() - 1;
                self.trailing.push(Trailing { line, column, before: piece.column });
            }
            return;
        }
        let text = piece.text();
        match text {
            "{" => {
                // The declarations of a core program are part of its header.
                let declares = self.spacing.last_is("declare");
                let line = self.last();
                let of_line = line.len() - line.trim_start().len();
                let indent = if declares { of_line } else { self.statement.indent };
                let items = self.spacing.first_is("space");
                let statement = Statement { header: self.statement.header && declares, ..self.statement };
                self.open.push(Open { brace: true, indent, columns: (0, 0), statement });
                self.statement = Statement { indent: indent + INDENT, header: false, items };
            }
            "(" | "[" => {
                let line = self.last();
                let indent = line.len() - line.trim_start().len();
                let columns = (piece.column + 1, line.chars().count() + 1);
                self.open.push(Open { brace: false, indent, columns, statement: self.statement });
            }
            ")" | "]" | "}" => {
                if let Some(open) = self.open.pop() {
                    self.statement = open.statement;
                }
            }
            _ => {}
        }
        self.last().push_str(text);
        self.spacing.push(piece);
    }

    /// Brings comments that began in one column on lines below each other to one column.
    fn align(&mut self) {
        let mut from = 0;
        while from < self.trailing.len() {
            let mut to = from + 1;
            while to < self.trailing.len()
                && self.trailing[to].line == self.trailing[to - 1].line + 1
                && self.trailing[to].before == self.trailing[from].before
            {
                to += 1;
            }
            let group = &self.trailing[from..to];
            let column = group.iter().map(|comment| comment.column).max().unwrap_or(0);
            for comment in group {
                let line = &mut self.lines[comment.line];
                let at = line.char_indices().nth(comment.column).map_or(line.len(), |(at, _)| at);
                line.insert_str(at, &" ".repeat(column - comment.column));
            }
            from = to;
        }
    }
}

/// True for a token that a name, a number, a text or a closing bracket is.
fn is_operand(tok: Tok, text: &str) -> bool {
    match tok {
        Tok::Word => !spacing::LEADS_TO_OPERAND.contains(&text),
        Tok::Number | Tok::Text => true,
        Tok::Punct(punct) => matches!(punct, ")" | "]" | "}"),
        Tok::Newline | Tok::End => false,
    }
}
