//! Coordinates of elements by their offsets.

/// Coordinate of the element at an offset; the offset itself if no element of the tensor lies there.
pub(crate) fn coordinate(offset: usize, shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let mut rest = offset as i64;
    let mut modes: Vec<usize> = (0..shape.len()).collect();
    modes.sort_by_key(|mode| std::cmp::Reverse((strides[*mode], shape[*mode])));
    let mut at = vec![0; shape.len()];
    for mode in modes {
        at[mode] = (rest / strides[mode].max(1)).min(shape[mode] - 1);
        rest -= at[mode] * strides[mode];
    }
    if rest == 0 { at } else { vec![offset as i64] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_follow_strides() {
        assert_eq!(coordinate(7, &[2, 5], &[5, 1]), [1, 2]);
        assert_eq!(coordinate(7, &[5, 2], &[1, 5]), [2, 1]);
        assert_eq!(coordinate(7, &[2, 5], &[8, 1]), [7]);
        assert_eq!(coordinate(0, &[1, 1], &[1, 1]), [0, 0]);
    }
}
