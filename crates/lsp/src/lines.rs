//! Places of a text as an editor names them: a line from 0 and a column in UTF-16 units, or in bytes where the editor takes them.

use std::ops::Range;

use lsp_types::{Position, PositionEncodingKind, TextDocumentContentChangeEvent};

/// The unit of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encoding {
    /// Bytes of UTF-8.
    Utf8,
    /// Units of UTF-16, which every editor takes.
    #[default]
    Utf16,
}

impl Encoding {
    /// The first of those that an editor offers which is served; UTF-16 where it offers none.
    pub fn negotiated(offered: Option<&[PositionEncodingKind]>) -> Encoding {
        let known = |kind: &PositionEncodingKind| match kind.as_str() {
            "utf-8" => Some(Encoding::Utf8),
            "utf-16" => Some(Encoding::Utf16),
            _ => None,
        };
        offered.and_then(|kinds| kinds.iter().find_map(known)).unwrap_or_default()
    }

    /// Its name in the protocol.
    pub fn kind(self) -> PositionEncodingKind {
        match self {
            Encoding::Utf8 => PositionEncodingKind::UTF8,
            Encoding::Utf16 => PositionEncodingKind::UTF16,
        }
    }

    fn units(self, text: &str) -> usize {
        match self {
            Encoding::Utf8 => text.len(),
            Encoding::Utf16 => text.chars().map(char::len_utf16).sum(),
        }
    }
}

/// The beginnings of the lines of a text.
#[derive(Clone, Debug)]
pub struct Lines {
    starts: Vec<usize>,
    encoding: Encoding,
}

impl Lines {
    /// Those of a text.
    pub fn new(text: &str, encoding: Encoding) -> Lines {
        let behind = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        Lines { starts: [0].into_iter().chain(behind).collect(), encoding }
    }

    /// The place of a byte; one behind the text is its end.
    pub fn position(&self, text: &str, byte: usize) -> Position {
        let mut byte = byte.min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= byte).saturating_sub(1);
        let column = self.encoding.units(&text[self.starts[line]..byte]);
        Position::new(line as u32, column as u32)
    }

    /// The places of the ends of a range.
    pub fn range(&self, text: &str, range: Range<usize>) -> lsp_types::Range {
        lsp_types::Range::new(self.position(text, range.start), self.position(text, range.end))
    }

    /// The bytes of a line, without its end.
    pub fn line(&self, text: &str, line: u32) -> Range<usize> {
        let line = line as usize;
        let Some(start) = self.starts.get(line).copied() else { return text.len()..text.len() };
        let end = self.starts.get(line + 1).map_or(text.len(), |next| next - 1);
        start..end - usize::from(end > start && text.as_bytes()[end - 1] == b'\r')
    }

    /// The byte of a place; one behind its line, or behind the text, is the end of that.
    pub fn byte(&self, text: &str, position: Position) -> usize {
        let line = self.line(text, position.line);
        let (mut at, mut units) = (line.start, 0);
        for c in text[line.clone()].chars() {
            units += self.encoding.units(c.encode_utf8(&mut [0; 4]));
            if units > position.character as usize {
                break;
            }
            at += c.len_utf8();
        }
        at
    }
}

/// Applies what an editor says has changed, in its order.
pub fn apply(text: &mut String, changes: Vec<TextDocumentContentChangeEvent>, encoding: Encoding) {
    for change in changes {
        match change.range {
            None => *text = change.text,
            Some(range) => {
                let lines = Lines::new(text, encoding);
                let start = lines.byte(text, range.start);
                let end = lines.byte(text, range.end).max(start);
                text.replace_range(start..end, &change.text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_bytes_are_inverse() {
        let text = "a\r\nä𝄞b\n\nlast";
        for encoding in [Encoding::Utf8, Encoding::Utf16] {
            let lines = Lines::new(text, encoding);
            for (byte, _) in text.char_indices().filter(|(at, _)| *at != 2) {
                assert_eq!(lines.byte(text, lines.position(text, byte)), byte, "{encoding:?}");
            }
            assert_eq!(lines.byte(text, Position::new(9, 9)), text.len());
            assert_eq!(lines.byte(text, Position::new(0, 9)), 1);
        }
        let at = |encoding| Lines::new(text, encoding).position(text, text.find('b').unwrap_or(0));
        assert_eq!(at(Encoding::Utf16), Position::new(1, 3));
        assert_eq!(at(Encoding::Utf8), Position::new(1, 6));
    }

    #[test]
    fn changes_apply_in_order_and_wherever_they_claim_to_be() {
        let mut text = "one\ntwo".to_string();
        let change = |range: Option<[u32; 4]>, text: &str| TextDocumentContentChangeEvent {
            range: range.map(|[a, b, c, d]| lsp_types::Range::new(Position::new(a, b), Position::new(c, d))),
            range_length: None,
            text: text.to_string(),
        };
        let changes = vec![
            change(Some([0, 3, 1, 1]), "-"),
            change(Some([0, 99, 99, 0]), "!"),
            change(Some([0, 2, 0, 0]), "x"),
        ];
        apply(&mut text, changes, Encoding::Utf16);
        assert_eq!(text, "onxe-wo!");
        apply(&mut text, vec![change(None, "new")], Encoding::Utf16);
        assert_eq!(text, "new");
    }
}
