//! Sparse factors on the host: matrices of which at most two of every four elements along a row are not 0 (2:4 sparsity), as `sparse=true` of
//! [`gemm`](crate::gemm) and [`gemm_hopper`](crate::gemm_hopper) takes them.

use tilewright_machine::Sparsity;

const GROUP: usize = Sparsity::GROUP as usize;
const KEPT: usize = Sparsity::KEPT as usize;

/// A matrix of which two elements of every four along a row are there.
#[derive(Clone, PartialEq, Debug)]
pub struct Compressed<T> {
    /// Rows of the matrix.
    pub rows: usize,
    /// Elements of a row that are there: two for each group of four, also for a last group that is not full.
    pub columns: usize,
    /// The elements, row-major: the operand `a`.
    pub values: Vec<T>,
    /// Rows of the metadata, and places in a row: those of whole tiles.
    pub meta_shape: [usize; 2],
    /// The places in their groups, from 0 to 3, row-major: the operand `meta`, whose type is u2. Beyond the matrix they are those of the first two
    /// elements.
    pub places: Vec<u8>,
}

impl<T> Compressed<T> {
    /// The places as they lie in memory: four in a byte, the first in the low bits.
    pub fn packed(&self) -> Vec<u8> {
        self.places.chunks(4).map(|four| four.iter().rev().fold(0, |byte, place| byte << 2 | place)).collect()
    }
}

/// The reason why a matrix is not compressed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SparsityError {
    /// A group of four elements has more than two that are not 0.
    #[error(
        "columns {} to {} of row {row} have {count} elements that are not 0, and two may be: prune the matrix first (`sparse::prune`)",
        group * GROUP, group * GROUP + GROUP - 1
    )]
    Dense {
        /// The row.
        row: usize,
        /// The group along the row: the first one, row by row.
        group: usize,
        /// Its elements that are not 0.
        count: usize,
    },
    /// The elements are no matrix of this shape.
    #[error("{len} elements are no matrix of {rows} × {columns}")]
    Shape {
        /// The number of elements.
        len: usize,
        /// The rows asked for.
        rows: usize,
        /// The columns asked for.
        columns: usize,
    },
}

fn check<T>(dense: &[T], rows: usize, columns: usize) -> Result<(), SparsityError> {
    if rows.checked_mul(columns) == Some(dense.len()) {
        return Ok(());
    }
    Err(SparsityError::Shape { len: dense.len(), rows, columns })
}

/// Compresses a row-major matrix. `tile` is the tile of which the metadata have whole ones, rows and columns of the matrix: `metadata_tile` of
/// an operator's configuration.
///
/// ```
/// use tilewright_kernels::sparse::compress;
///
/// let dense = [0.0, 5.0, 0.0, 7.0, 0.0, 0.0, 0.0, 3.0];
/// let sparse = compress(&dense, [1, 8], [1, 8])?;
/// assert_eq!(sparse.values, [5.0, 7.0, 0.0, 3.0]);
/// assert_eq!(sparse.places, [1, 3, 0, 3]);
/// # Ok::<(), tilewright_kernels::sparse::SparsityError>(())
/// ```
///
/// # Errors
///
/// The first group, row by row, that has more than two elements that are not 0; or a number of elements that is not that of the shape.
pub fn compress<T: Copy + Default + PartialEq>(
    dense: &[T],
    [rows, columns]: [usize; 2],
    tile: [usize; 2],
) -> Result<Compressed<T>, SparsityError> {
    check(dense, rows, columns)?;
    let groups = columns.div_ceil(GROUP);
    let whole = |extent: usize, tile: usize| extent.div_ceil(tile.max(1)) * tile.max(1);
    let meta_shape = [whole(rows, tile[0]), whole(columns, tile[1]).div_ceil(GROUP) * KEPT];
    let mut values = Vec::with_capacity(rows * groups * KEPT);
    let first_two = (0..meta_shape[0] * meta_shape[1]).map(|i| (i % KEPT) as u8);
    let mut places: Vec<u8> = first_two.collect();
    for row in 0..rows {
        for group in 0..groups {
            let at = |place: usize| {
                let column = group * GROUP + place;
                if column < columns { dense[row * columns + column] } else { T::default() }
            };
            let full = |place: &usize| at(*place) != T::default();
            let count = (0..GROUP).filter(full).count();
            if count > KEPT {
                return Err(SparsityError::Dense { row, group, count });
            }
            // Elements that are 0 fill the group up, the first ones first.
            let empty = (0..GROUP).filter(|place| !full(place)).take(KEPT - count);
            let mut kept: Vec<usize> = (0..GROUP).filter(full).chain(empty).collect();
            kept.sort_unstable();
            for (i, place) in kept.into_iter().enumerate() {
                values.push(at(place));
                places[row * meta_shape[1] + group * KEPT + i] = place as u8;
            }
        }
    }
    Ok(Compressed { rows, columns: groups * KEPT, values, meta_shape, places })
}

/// Leaves of every four elements along a row of a row-major matrix the two of the largest magnitude, and makes the others 0; of equal ones the
/// first stay.
///
/// ```
/// use tilewright_kernels::sparse::prune;
///
/// let mut dense = [1.0f32, -4.0, 2.0, 3.0, 5.0];
/// prune(&mut dense, [1, 5], |x| x.abs().into())?;
/// assert_eq!(dense, [0.0, -4.0, 0.0, 3.0, 5.0]);
/// # Ok::<(), tilewright_kernels::sparse::SparsityError>(())
/// ```
///
/// # Errors
///
/// A number of elements that is not that of the shape.
pub fn prune<T: Copy + Default>(
    dense: &mut [T],
    [rows, columns]: [usize; 2],
    magnitude: impl Fn(T) -> f64,
) -> Result<(), SparsityError> {
    check(dense, rows, columns)?;
    for group in dense.chunks_mut(columns.max(1)).flat_map(|row| row.chunks_mut(GROUP)) {
        let mut order: Vec<usize> = (0..group.len()).collect();
        order.sort_by(|x, y| magnitude(group[*y]).total_cmp(&magnitude(group[*x])));
        order.into_iter().skip(KEPT).for_each(|place| group[place] = T::default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_group_of_three_is_named() {
        let dense = [1, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 2, 2, 2, 2];
        let found = compress(&dense, [2, 8], [1, 4]);
        assert_eq!(found, Err(SparsityError::Dense { row: 1, group: 0, count: 3 }));
        let text = found.unwrap_err().to_string();
        assert!(text.starts_with("columns 0 to 3 of row 1 have 3 elements that are not 0"), "{text}");
        let found = compress(&dense, [3, 5], [1, 4]);
        assert_eq!(found, Err(SparsityError::Shape { len: 16, rows: 3, columns: 5 }));
    }

    #[test]
    fn metadata_have_whole_tiles_of_increasing_places() {
        let dense: Vec<i64> = (0..3 * 6).map(|i| if i % 3 == 0 { i } else { 0 }).collect();
        let sparse = compress(&dense, [3, 6], [4, 16]).unwrap();
        assert_eq!((sparse.columns, sparse.meta_shape), (4, [4, 8]));
        assert!(sparse.places.chunks(2).all(|pair| pair[0] < pair[1]));
        for (i, x) in dense.iter().enumerate() {
            let (row, group, place) = (i / 6, i % 6 / 4, (i % 6 % 4) as u8);
            let pair = [0, 1]
                .map(|j| (sparse.places[8 * row + 2 * group + j], sparse.values[4 * row + 2 * group + j]));
            assert_eq!(pair.iter().find(|(at, _)| *at == place).map_or(0, |(_, x)| *x), *x);
        }
        assert_eq!(sparse.packed()[0], sparse.places[..4].iter().rev().fold(0, |byte, x| byte << 2 | x));
    }

    #[test]
    fn pruned_matrices_can_be_compressed() {
        let mut dense: Vec<f64> = (0..70).map(|i| f64::from(i * 37 % 23) - 11.0).collect();
        assert!(compress(&dense, [7, 10], [1, 1]).is_err());
        prune(&mut dense, [7, 10], f64::abs).unwrap();
        assert!(compress(&dense, [7, 10], [1, 1]).is_ok());
    }
}
