//! Layouts as matrices (paper 2.4.4, table 1), and every function as a sequence of layouts (paper 2.4.3). A column
//! belongs to a leaf of the layout, the leftmost first.

use crate::error::{LayoutError, overflow};
use crate::layout::Layout;
use crate::stride::{Basis, Coord, F2, Stride};

impl Layout<i64> {
    /// The 1×n matrix `D` with `L(c) = D·c` for every natural coordinate `c` (paper table 1).
    pub fn linear_form(&self) -> Vec<Vec<i64>> {
        vec![self.leaves().into_iter().map(|l| l.1).collect()]
    }
}

impl Layout<Coord> {
    /// The matrix `D` with `L(c) = D·c` for every natural coordinate `c` (paper table 1), and the basis element of each
    /// of its rows.
    ///
    /// ```
    /// use tilewright_layout::{Coord, Layout};
    /// let l: Layout<Coord> = "(4,(4,2)):(e1,(e0,6e1))".parse()?;
    /// assert_eq!(l.linear_form().1, [[0, 1, 0], [1, 0, 6]]);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn linear_form(&self) -> (Vec<Basis>, Vec<Vec<i64>>) {
        let leaves = self.leaves();
        let mut bases: Vec<Basis> =
            leaves.iter().flat_map(|(_, d)| d.terms().iter().map(|t| t.0.clone())).collect();
        bases.sort();
        bases.dedup();
        let row = |e: &Basis| leaves.iter().map(|(_, d)| d.component_at(e.path())).collect();
        let rows = bases.iter().map(row).collect();
        (bases, rows)
    }

    /// The extents of the smallest box that holds the values, one for each basis element: how far apart the values lie,
    /// plus one (paper 2.4.1, the codomain).
    pub fn cosize(&self) -> Vec<(Basis, i64)> {
        let leaves = self.leaves();
        let span = |row: &Vec<i64>| {
            leaves
                .iter()
                .zip(row)
                .fold(1i64, |sum, ((s, _), d)| sum.saturating_add((s - 1).saturating_mul(d.saturating_abs())))
        };
        let (bases, rows) = self.linear_form();
        let spans: Vec<i64> = rows.iter().map(span).collect();
        bases.into_iter().zip(spans).collect()
    }
}

impl Layout<F2> {
    /// The layout with every leaf split into its bits, so that its strides are the columns of an F2 matrix (paper table
    /// 1). An error where a leaf is not linear over the bits of its coordinate.
    ///
    /// ```
    /// use tilewright_layout::{F2, Layout};
    /// let l: Layout<F2> = "(4,4):(f1,f5)".parse()?;
    /// assert_eq!(l.split_bits()?.to_string(), "((2,2),(2,2)):((f1,f2),(f5,f10))");
    /// assert_eq!(l.linear_form()?, [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]]);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn split_bits(&self) -> Result<Layout<F2>, LayoutError> {
        let mut parts = Vec::new();
        for (extent, stride) in self.leaves() {
            let bits = stride.bits(extent).or_else(|| {
                let zero = stride.0 == 0 && extent & (extent - 1) == 0;
                zero.then(|| vec![F2(0); extent.trailing_zeros() as usize])
            });
            let bits = bits.ok_or_else(|| LayoutError::BadStride {
                operation: "the linear form",
                stride: stride.to_string(),
                layout: self.to_string(),
                reason: format!("with extent {extent} it is not linear over bits"),
            })?;
            let leaf: Vec<(i64, F2)> = bits.into_iter().map(|d| (2, d)).collect();
            parts.push(if leaf.is_empty() { vec![(1, F2(0))] } else { leaf });
        }
        crate::algebra::assemble(self, parts)
    }

    /// The matrix of 0 and 1 with `L(c) = D·c` over F2, for the bits `c` of every coordinate (paper table 1); row `k` is
    /// bit `k` of the value.
    pub fn linear_form(&self) -> Result<Vec<Vec<u8>>, LayoutError> {
        let columns: Vec<u64> =
            self.split_bits()?.leaves().into_iter().filter(|l| l.0 > 1).map(|l| l.1.0).collect();
        let all = columns.iter().fold(0, |all, c| all | c);
        let rows = 64 - all.leading_zeros();
        Ok((0..rows).map(|k| columns.iter().map(|c| (c >> k & 1) as u8).collect()).collect())
    }
}

/// A function with `f(0) = 0` on `0, …, N−1` as a sequence of layouts (paper 2.4.3): applying the last one first, and
/// the leftmost one, which is returned apart, last.
///
/// The law: `first(rest[0](rest[1](…(i)))) = f(i)` for every `i < N`, with layouts evaluated also out of bounds. An error
/// where `f(0)` is not 0, where there is no value, or where `N` is above 62, for the intermediate values are powers of 2.
///
/// ```
/// use tilewright_layout::complete;
/// let f = [0i64, 5, -3, 7, 7];
/// let (first, rest) = complete(&f)?;
/// assert_eq!(first.to_string(), "(2,2,2,2):(5,-3,7,7)");
/// let text: Vec<String> = rest.iter().map(|l| l.to_string()).collect();
/// assert_eq!(text, ["(3,1):(1,4)", "(4,1):(1,6)"]);
/// for (i, value) in f.iter().enumerate() {
///     let at = rest.iter().rev().fold(i as i64, |at, l| l.eval(at));
///     assert_eq!(first.eval(at), *value);
/// }
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn complete<S: Stride>(values: &[S]) -> Result<(Layout<S>, Vec<Layout>), LayoutError> {
    let Some((zero, others)) = values.split_first() else {
        return Err(LayoutError::EmptyTuple);
    };
    if !zero.is_zero() {
        return Err(LayoutError::BadStride {
            operation: "completion",
            stride: zero.to_string(),
            layout: "the function".to_string(),
            reason: "its value at 0 must be 0".to_string(),
        });
    }
    if values.len() > 62 {
        return Err(overflow("2^(N-2) for a function of more than 62 values"));
    }
    let first = Layout::from_leaves(&others.iter().map(|v| (2, v.clone())).collect::<Vec<_>>())?;
    let mut rest = Vec::new();
    for n in 3..values.len() as i64 {
        rest.push(Layout::from_leaves(&[(n, 1), (1, 2 * (n - 1))])?);
    }
    Ok((first, rest))
}
