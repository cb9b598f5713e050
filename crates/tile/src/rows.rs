//! The rows of a `if any(condition, axis)`: what coordinates along all modes of the condition but `axis` name.

/// The rows that a condition decides for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    shape: Vec<i64>,
    axis: usize,
}

impl Rows {
    /// The rows of a condition of this shape; `None` if it does not have the mode.
    pub fn new(shape: Vec<i64>, axis: u32) -> Option<Rows> {
        let axis = axis as usize;
        (axis < shape.len()).then_some(Rows { shape, axis })
    }

    /// The number of rows.
    pub fn count(&self) -> i64 {
        self.kept().map(|mode| self.shape[mode]).product()
    }

    /// The modes that name a row.
    fn kept(&self) -> impl Iterator<Item = usize> {
        (0..self.shape.len()).filter(move |mode| *mode != self.axis)
    }

    /// For each mode of the condition the mode of a tensor of this shape, if that has all elements of a row and nothing else in it: it has the
    /// condition's modes, with any extent along `axis`, or all but that. A condition's extent of 1 repeats.
    fn modes(&self, shape: &[i64]) -> Option<Vec<Option<usize>>> {
        let whole = shape.len() == self.shape.len();
        let reduced = shape.len() + 1 == self.shape.len();
        let of = |mode: usize| match mode.cmp(&self.axis) {
            _ if whole => Some(mode),
            std::cmp::Ordering::Less => Some(mode),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(mode - 1),
        };
        let fits = |mode: usize| {
            of(mode).is_some_and(|at| self.shape[mode] == 1 || shape.get(at) == Some(&self.shape[mode]))
        };
        ((whole || reduced) && self.kept().all(fits)).then(|| (0..self.shape.len()).map(of).collect())
    }

    /// True if a tensor of this shape has the condition's mode `axis`, and rows.
    pub fn is_whole(&self, shape: &[i64]) -> bool {
        shape.len() == self.shape.len() && self.modes(shape).is_some()
    }

    /// The modes of a tensor of this shape that name a row; `None` if it has no rows of the condition.
    pub fn row_modes(&self, shape: &[i64]) -> Option<Vec<usize>> {
        let modes = self.modes(shape)?;
        Some(self.kept().filter_map(|mode| modes[mode]).collect())
    }

    /// The row of each element of a tensor of this shape, leftmost mode fastest; `None` if it has no rows of the condition.
    pub fn of(&self, shape: &[i64]) -> Option<Vec<u32>> {
        let modes = self.modes(shape)?;
        // The step of each mode of the tensor in rows, 0 where the condition's extent is 1.
        let mut steps = vec![0; shape.len()];
        let mut step = 1;
        for mode in self.kept() {
            if let Some(at) = modes[mode].filter(|_| self.shape[mode] > 1) {
                steps[at] = step;
            }
            step *= self.shape[mode];
        }
        let mut rows = vec![0u32];
        for (extent, step) in shape.iter().zip(steps) {
            rows = (0..*extent).flat_map(|i| rows.iter().map(move |row| row + (i * step) as u32)).collect();
        }
        Some(rows)
    }

    /// The same of a tensor in tensor memory, whose modes behind rows and columns number parts: each part has all rows.
    pub fn of_parts(&self, shape: &[i64]) -> Option<Vec<u32>> {
        let (part, parts) = shape.split_at_checked(2)?;
        let count: i64 = parts.iter().product();
        Some(self.of(part)?.repeat(usize::try_from(count).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_along_the_other_modes() {
        let rows = Rows::new(vec![2, 3], 1).unwrap();
        assert_eq!(rows.of(&[2, 3]), Some(vec![0, 1, 0, 1, 0, 1]));
        assert_eq!(rows.of(&[2]), Some(vec![0, 1]));
        assert_eq!(rows.of(&[2, 1]), Some(vec![0, 1]));
        assert_eq!((rows.of(&[3, 2]), rows.of(&[1, 3]), rows.of(&[2, 3, 1])), (None, None, None));
        assert_eq!(rows.of_parts(&[2, 1, 3]), Some(vec![0, 1, 0, 1, 0, 1]));
        assert_eq!((rows.of_parts(&[2]), rows.of_parts(&[3, 1, 2])), (None, None));
        assert_eq!((rows.count(), rows.row_modes(&[2, 5])), (2, Some(vec![0])));
        let columns = Rows::new(vec![2, 3], 0).unwrap();
        assert_eq!(columns.of(&[1, 3]), Some(vec![0, 1, 2]));
        assert_eq!(columns.of(&[3]), Some(vec![0, 1, 2]));
        let repeated = Rows::new(vec![1, 4], 1).unwrap();
        assert_eq!((repeated.of(&[2, 1]), repeated.count()), (Some(vec![0, 0]), 1));
        assert_eq!(Rows::new(vec![4], 1), None);
        assert_eq!(Rows::new(vec![4], 0).unwrap().of(&[7]), Some(vec![0; 7]));
    }
}
