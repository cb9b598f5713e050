//! Records of what a `print` of a program shows, of which the interpreter and the simulator keep the first, and their text.

use std::collections::BTreeMap;
use std::fmt;

use crate::dtype::DType;
use crate::elements::Elements;

/// Records that a [`PrintLog`] keeps.
pub const PRINT_LIMIT: usize = 1024;

/// Elements that a record shows of a tensor before it leaves some out.
const WHOLE: i64 = 128;

/// Coordinates that are shown of a longer mode: so many at its beginning and at its end.
const EDGE: i64 = 3;

/// One execution of a `print` by a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// The statement: its identity in the program.
    pub statement: u32,
    /// The block's index.
    pub block: [u32; 3],
    /// The values of the counters of the loops around, outermost first.
    pub iteration: Vec<i64>,
    /// The items, in the order of the text.
    pub items: Vec<PrintedItem>,
}

/// An item of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum PrintedItem {
    /// An integer.
    Integer(i64),
    /// Elements of a tensor.
    Tensor(PrintedTensor),
}

/// Elements of a tensor: at the coordinates that are [`shown`].
#[derive(Clone, Debug)]
pub struct PrintedTensor {
    /// The element type.
    pub dtype: DType,
    /// The shape of the whole tensor.
    pub shape: Vec<i64>,
    /// The elements that are shown, the leftmost mode fastest.
    pub elements: Elements,
    /// The distance by which a right kernel's may differ, of each; none where nothing may.
    pub bounds: Vec<f32>,
}

/// Tensors are equal whose elements differ by no more than their bounds; what nothing has written (a NaN among integers) may be anything.
impl PartialEq for PrintedTensor {
    fn eq(&self, other: &Self) -> bool {
        let bound = |at: usize| {
            let of = |tensor: &Self| tensor.bounds.get(at).copied().unwrap_or(0.0);
            f64::from(of(self).max(of(other)))
        };
        let unwritten =
            |of: &Self, at: usize| !of.dtype.is_float() && of.elements.get(at).is_some_and(|x| x.is_nan());
        let same = |at: usize| {
            unwritten(self, at)
                || unwritten(other, at)
                || bound(at) == f64::INFINITY
                || self.element(at) == other.element(at)
                || self.elements.distance(&other.elements, at) <= bound(at)
        };
        self.dtype == other.dtype && self.shape == other.shape && (0..self.elements.len()).all(same)
    }
}

/// The coordinates along each mode of a tensor of this shape that a record shows: all of a small tensor, of a larger one those at the edges.
pub fn shown(shape: &[i64]) -> Vec<Vec<i64>> {
    let whole = shape.iter().fold(1i64, |all, extent| all.saturating_mul(*extent)) <= WHOLE;
    let mode = |extent: &i64| match *extent {
        extent if whole || extent <= 2 * EDGE + 1 => (0..extent).collect(),
        extent => (0..EDGE).chain(extent - EDGE..extent).collect(),
    };
    shape.iter().map(mode).collect()
}

/// The coordinates of a tensor of this shape that a record shows, the leftmost mode fastest.
pub fn shown_coordinates(shape: &[i64]) -> Vec<Vec<i64>> {
    shown(shape).iter().fold(vec![Vec::new()], |before, along| {
        let with = |at: &i64| before.iter().map(|front| [&front[..], &[*at]].concat()).collect::<Vec<_>>();
        along.iter().flat_map(with).collect()
    })
}

impl PrintedTensor {
    fn element(&self, at: usize) -> String {
        match (&self.elements, self.dtype) {
            (Elements::Integers(values), _) => values.get(at).map_or("?".to_string(), ToString::to_string),
            (Elements::Floats(values), DType::Bool) => {
                values.get(at).map_or("?".to_string(), |x| (*x != 0.0).to_string())
            }
            (Elements::Floats(values), dtype) if !dtype.is_float() => {
                let number = |x: &f64| if x.is_nan() { "?".to_string() } else { x.to_string() };
                values.get(at).map_or("?".to_string(), number)
            }
            (Elements::Floats(values), DType::F64) => {
                values.get(at).map_or("?".to_string(), |x| number(*x, x))
            }
            (Elements::Floats(values), _) => {
                values.get(at).map_or("?".to_string(), |x| number(*x, &(*x as f32)))
            }
        }
    }

    /// Writes the elements from mode `mode` on; `first` is the place of the first of them, `step` the distance along that mode.
    fn level(&self, out: &mut String, along: &[Vec<i64>], mode: usize, first: usize, indent: usize) {
        let Some(coordinates) = along.get(mode) else {
            out.push_str(&self.element(first));
            return;
        };
        let step: usize = along[..mode].iter().map(Vec::len).product();
        let between = if mode + 1 == along.len() {
            ", ".to_string()
        } else {
            format!(",{}{}", "\n".repeat(along.len() - 1 - mode), " ".repeat(indent + mode + 1))
        };
        out.push('[');
        for (number, at) in coordinates.iter().enumerate() {
            if number > 0 {
                out.push_str(&between);
                if coordinates[number - 1] + 1 < *at {
                    out.push('…');
                    out.push_str(&between);
                }
            }
            self.level(out, along, mode + 1, first + number * step, indent);
        }
        out.push(']');
    }

    /// The elements as nested lists, the last mode along lines, all but the first of which are indented.
    pub fn text(&self, indent: usize) -> String {
        let mut out = String::new();
        self.level(&mut out, &shown(&self.shape), 0, 0, indent);
        out
    }
}

/// The shortest text of a number that reads back, with an exponent where it is large or small.
fn number<T: fmt::Display + fmt::LowerExp>(value: f64, exact: &T) -> String {
    let size = value.abs();
    if size != 0.0 && size.is_finite() && !(1e-4..1e9).contains(&size) {
        format!("{exact:e}")
    } else {
        exact.to_string()
    }
}

impl fmt::Display for PrintedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrintedItem::Integer(value) => value.fmt(f),
            PrintedItem::Tensor(tensor) => f.write_str(&tensor.text(0)),
        }
    }
}

/// The first records of a launch, by block and in the order in which each block made them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrintLog {
    records: BTreeMap<([u32; 3], u64), Printed>,
    left_out: u64,
}

impl PrintLog {
    /// The key of a block's record: blocks in the order of their numbers, x fastest.
    fn key(block: [u32; 3], number: u64) -> ([u32; 3], u64) {
        ([block[2], block[1], block[0]], number)
    }

    /// True if record `number` of a block is one of those that are kept.
    pub fn keeps(&self, block: [u32; 3], number: u64) -> bool {
        let last = self.records.last_key_value().map(|(key, _)| *key);
        self.records.len() < PRINT_LIMIT || last.is_some_and(|last| PrintLog::key(block, number) < last)
    }

    /// Takes the record of this number of a block; counts it where it is not kept.
    pub fn push(&mut self, number: u64, record: Printed) {
        if !self.keeps(record.block, number) {
            self.left_out += 1;
            return;
        }
        self.records.insert(PrintLog::key(record.block, number), record);
        if self.records.len() > PRINT_LIMIT {
            self.records.pop_last();
            self.left_out += 1;
        }
    }

    /// Counts a record that is not kept.
    pub fn leave_out(&mut self) {
        self.left_out += 1;
    }

    /// A record that is kept, to complete it.
    pub fn get_mut(&mut self, block: [u32; 3], number: u64) -> Option<&mut Printed> {
        self.records.get_mut(&PrintLog::key(block, number))
    }

    /// Takes the records of other blocks.
    pub fn merge(&mut self, other: PrintLog) {
        self.left_out += other.left_out;
        for (key, record) in other.records {
            self.push(key.1, record);
        }
    }

    /// Gives the statements other numbers.
    pub fn name(&mut self, number: impl Fn(u32) -> u32) {
        self.records.values_mut().for_each(|record| record.statement = number(record.statement));
    }

    /// The records that were kept.
    pub fn records(&self) -> impl Iterator<Item = &Printed> {
        self.records.values()
    }

    /// Records that were not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[i64]) -> PrintedTensor {
        let place = |at: &Vec<i64>| at.iter().fold(0, |sum, x| 100 * sum + x) as f64;
        let elements = Elements::Floats(shown_coordinates(shape).iter().map(place).collect());
        PrintedTensor { dtype: DType::F32, shape: shape.to_vec(), elements, bounds: Vec::new() }
    }

    #[test]
    fn tensors_are_nested_lists_with_the_last_mode_along_lines() {
        assert_eq!(tensor(&[3]).text(0), "[0, 1, 2]");
        assert_eq!(tensor(&[2, 3]).text(2), "[[0, 1, 2],\n   [100, 101, 102]]");
        assert_eq!(tensor(&[2, 1, 2]).text(0), "[[[0, 1]],\n\n [[10000, 10001]]]");
        let large = "[[0, 1, 2, …, 61, 62, 63],\n [100, 101, 102, …, 161, 162, 163],\n [200, 201, 202, …, 261, 262, 263]]";
        assert_eq!(tensor(&[3, 64]).text(0), large);
        assert_eq!(shown(&[300]), [[0, 1, 2, 297, 298, 299]]);
        assert_eq!(shown_coordinates(&[]), [[0i64; 0]]);
    }

    #[test]
    fn numbers_read_back() {
        for (value, text) in
            [(0.1, "0.1"), (-2.0, "-2"), (1e-7, "1e-7"), (3e12, "3e12"), (f64::INFINITY, "inf")]
        {
            let elements = Elements::Floats(vec![f64::from(value as f32)]);
            let one = PrintedTensor { dtype: DType::F32, shape: vec![1], elements, bounds: Vec::new() };
            assert_eq!(one.text(0), format!("[{text}]"));
        }
    }

    #[test]
    fn the_first_records_of_the_first_blocks_are_kept_in_whatever_order_they_come() {
        let record =
            |x: u32| Printed { statement: 0, block: [x, 0, 0], iteration: Vec::new(), items: Vec::new() };
        let mut log = PrintLog::default();
        for x in (0..600).rev() {
            (0..2).for_each(|number| log.push(number, record(x)));
        }
        assert_eq!(log.records().count(), PRINT_LIMIT);
        assert_eq!(log.left_out(), 1200 - PRINT_LIMIT as u64);
        assert_eq!(log.records().last().unwrap().block, [511, 0, 0]);
    }
}
