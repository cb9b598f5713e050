//! The text form: `[register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2]`, a vector over the outputs for each bit of an
//! input, or a number where there is one output. Reads left to right.

use super::{Dim, LinearLayout, MAX_BITS, MAX_DIMS, unflatten};
use crate::error::LayoutError;
use crate::text::Cursor;
use std::fmt;
use std::str::FromStr;

impl fmt::Display for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns = self.columns.iter();
        f.write_str("[")?;
        for (k, dim) in self.ins.iter().enumerate() {
            write!(f, "{}{}:", if k > 0 { "; " } else { "" }, dim.name)?;
            for column in columns.by_ref().take(dim.bits as usize) {
                match &unflatten(&self.outs, *column)[..] {
                    [one] => write!(f, " {one}")?,
                    vector => {
                        let elements: Vec<String> = vector.iter().map(u64::to_string).collect();
                        write!(f, " ({})", elements.join(","))?;
                    }
                }
            }
        }
        f.write_str("] -> [")?;
        for (k, dim) in self.outs.iter().enumerate() {
            write!(f, "{}{}:{}", if k > 0 { ", " } else { "" }, dim.name, dim.size())?;
        }
        f.write_str("]")
    }
}

impl LinearLayout {
    /// Reads the text form from a cursor at its `[`.
    pub fn read(cursor: &mut Cursor<'_>) -> Result<LinearLayout, LayoutError> {
        cursor.expect("[")?;
        let mut bases: Vec<(String, Vec<Vec<u64>>)> = Vec::new();
        while let Some(name) = cursor.word() {
            if bases.len() == MAX_DIMS {
                return Err(cursor.unexpected(&format!("at most {MAX_DIMS} inputs")));
            }
            cursor.expect(":")?;
            let mut vectors = Vec::new();
            loop {
                if cursor.eat("(") {
                    let mut vector = Vec::new();
                    while !cursor.eat(")") {
                        if !vector.is_empty() {
                            cursor.expect(",")?;
                        }
                        if vector.len() == MAX_DIMS {
                            return Err(cursor.unexpected(&format!("at most {MAX_DIMS} elements")));
                        }
                        vector.push(cursor.natural()?);
                    }
                    vectors.push(vector);
                } else if cursor.at_integer() {
                    vectors.push(vec![cursor.natural()?]);
                } else {
                    break;
                }
                if vectors.len() > MAX_BITS as usize {
                    return Err(cursor.unexpected(&format!("at most {MAX_BITS} vectors")));
                }
            }
            bases.push((name.to_string(), vectors));
            if !cursor.eat(";") {
                break;
            }
        }
        cursor.expect("]")?;
        cursor.expect("->")?;
        cursor.expect("[")?;
        let mut outs = Vec::new();
        while let Some(name) = cursor.word() {
            cursor.expect(":")?;
            if outs.len() == MAX_DIMS {
                return Err(cursor.unexpected(&format!("at most {MAX_DIMS} outputs")));
            }
            outs.push((name.to_string(), cursor.natural()?));
            if !cursor.eat(",") {
                break;
            }
        }
        cursor.expect("]")?;
        LinearLayout::from_bases(&bases, &outs)
    }

    /// The matrix with a row for each bit of the output, lowest first, and a column for each bit of the input; blank
    /// columns and lines part the dimensions (LL 4.1).
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[register: (1,0); lane: (0,1) (1,1)] -> [x:2, y:2]".parse()?;
    /// assert_eq!(l.matrix(), "   register lane\nx  1        0 1\n\ny  0        1 1\n");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn matrix(&self) -> String {
        let label = self.outs.iter().map(|d| d.name.len()).max().unwrap_or(0) + 2;
        let width = |d: &Dim| d.name.len().max((2 * d.bits as usize).saturating_sub(1));
        let mut text = " ".repeat(label);
        for dim in &self.ins {
            text.push_str(&format!("{:<1$} ", dim.name, width(dim)));
        }
        let mut lines = vec![text];
        let mut row = 0;
        for (k, out) in self.outs.iter().enumerate() {
            if k > 0 {
                lines.push(String::new());
            }
            for bit in 0..out.bits {
                let mut line = format!("{:<label$}", if bit == 0 { &out.name } else { "" });
                let mut column = 0;
                for dim in &self.ins {
                    let digits: Vec<&str> = self.columns[column..column + dim.bits as usize]
                        .iter()
                        .map(|c| if c >> row & 1 == 1 { "1" } else { "0" })
                        .collect();
                    line.push_str(&format!("{:<1$} ", digits.join(" "), width(dim)));
                    column += dim.bits as usize;
                }
                lines.push(line);
                row += 1;
            }
        }
        lines.iter().map(|l| format!("{}\n", l.trim_end())).collect()
    }
}

impl FromStr for LinearLayout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<LinearLayout, LayoutError> {
        let mut cursor = Cursor::new(text);
        let layout = LinearLayout::read(&mut cursor)?;
        cursor.end()?;
        Ok(layout)
    }
}
