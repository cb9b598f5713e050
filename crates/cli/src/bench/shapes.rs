//! Shapes of matrix products: from the command line and from files.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use tilewright::compiler::MAX_EXTENT;

use crate::messages::{Failure, error};

/// Elements of an operand, at most: more than any GPU's memory holds.
const MAX_ELEMENTS: u128 = 1 << 38;

/// The size of operators that says how many products there are.
pub const BATCHES: &str = "l";

/// `c[m, n] = a[m, k] · b[n, k]ᵀ`, for each matrix of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Extent of the sum.
    pub k: usize,
    /// Number of products.
    pub batches: usize,
}

impl Shape {
    /// Multiplications and additions.
    pub fn operations(&self) -> f64 {
        2.0 * self.batches as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Elements of `a`, `b` and `c`.
    pub fn elements(&self) -> [u128; 3] {
        let of = |rows: usize, columns: usize| self.batches as u128 * rows as u128 * columns as u128;
        [of(self.m, self.k), of(self.n, self.k), of(self.m, self.n)]
    }

    /// The sizes by their names in operators.
    pub fn sizes(&self) -> [(&'static str, i64); 4] {
        [("m", self.m as i64), ("n", self.n as i64), ("k", self.k as i64), (BATCHES, self.batches as i64)]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.m, self.n, self.k)?;
        if self.batches > 1 { write!(f, ",{}", self.batches) } else { Ok(()) }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "`{text}` is not a shape: M,N,K, or M,N,K,BATCHES, each from 1 to {MAX_EXTENT}, e.g. 4096,4096,4096"
            )
        };
        let parse = |part: &str| {
            part.trim().parse().ok().filter(|size| (1..=MAX_EXTENT as usize).contains(size)).ok_or_else(wrong)
        };
        let sizes = text.split(',').map(parse).collect::<Result<Vec<usize>, String>>()?;
        let shape = match sizes[..] {
            [m, n, k] => Shape { m, n, k, batches: 1 },
            [m, n, k, batches] => Shape { m, n, k, batches },
            _ => return Err(wrong()),
        };
        match shape.elements().into_iter().find(|count| *count > MAX_ELEMENTS) {
            Some(count) => Err(format!(
                "`{text}`: a matrix of {count} elements is too large; {MAX_ELEMENTS} are the most"
            )),
            None => Ok(shape),
        }
    }
}

/// The shapes of a file: one a line; what follows a `#` is a comment.
pub fn read(path: &Path) -> Result<Vec<Shape>, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::program(error(format!("cannot read `{shown}`: {e}"))))?;
    let mut shapes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            shapes.push(line.parse().map_err(|e| Failure::usage(format!("{shown}:{number}: {e}")))?);
        }
    }
    if shapes.is_empty() {
        return Err(Failure::usage(format!("`{shown}` has no shapes: one M,N,K a line")));
    }
    Ok(shapes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn shapes_parse_back() {
        for text in ["1,2,3", "4096,4096,14336", "2048,2048,2048,16"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        assert_eq!("16, 8,4".parse(), Ok(Shape { m: 16, n: 8, k: 4, batches: 1 }));
        assert_eq!(Shape { m: 16, n: 8, k: 4, batches: 3 }.operations(), 3072.0);
        for wrong in ["", "1", "1,2", "1,2,3,4,5", "0,1,1", "1,1,1,0", "1,-1,1", "1,1,x", "99999999999,1,1"] {
            let error = wrong.parse::<Shape>().unwrap_err();
            assert!(error.starts_with(&format!("`{wrong}` is not a shape")), "{error}");
        }
        let error = "1000000,1000000,1,1000000".parse::<Shape>().unwrap_err();
        assert!(error.contains("a matrix of 1000000000000 elements is too large"), "{error}");
    }

    #[test]
    fn files_have_a_shape_a_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "# all of them\n16,8,4 # small\n\n 32,8,4").unwrap();
        let shapes = read(file.path()).ok().unwrap();
        assert_eq!(shapes.iter().map(Shape::to_string).collect::<Vec<_>>(), ["16,8,4", "32,8,4"]);
        writeln!(file, "32,8").unwrap();
        let failure = read(file.path()).err().unwrap();
        assert!(failure.text.contains(":5: `32,8` is not a shape"), "{}", failure.text);
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(read(empty.path()).err().unwrap().text.contains("has no shapes"));
        assert!(read(Path::new("nowhere.txt")).err().unwrap().text.contains("cannot read `nowhere.txt`"));
    }
}
