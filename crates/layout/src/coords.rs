//! Coordinate sets and the maps between them (paper 2.2). A shape takes coordinates of every shape that coarsens it;
//! the maps between these sets keep the colexicographical order.

use crate::error::LayoutError;
use crate::htuple::{HTuple, Shape, crd2idx, idx2crd};

fn bad(coord: &HTuple<i64>, shape: &Shape) -> LayoutError {
    LayoutError::BadCoordinate { coord: coord.to_string(), shape: shape.to_string() }
}

/// The natural coordinate in `shape` of an admissible one (paper 2.2.2, repeated equation 4): where the shape is a tuple
/// and the coordinate an integer, [`idx2crd`] refines it. Coordinates out of bounds extend the last mode of the part
/// that they index; an error where the coordinate is not weakly congruent to the shape (paper definition 2.12).
///
/// The law: the result is congruent to the shape, and every layout of that shape has the same value at both.
///
/// ```
/// use tilewright_layout::{HTuple, Shape, natural_coordinate};
/// let shape = Shape::from(((2, 3), 2));
/// assert_eq!(natural_coordinate(&9.into(), &shape)?.to_string(), "((1,1),1)");
/// assert_eq!(natural_coordinate(&(3, 1).into(), &shape)?.to_string(), "((1,1),1)");
/// assert_eq!(natural_coordinate(&(7, 1).into(), &shape)?.to_string(), "((1,3),1)"); // out of bounds
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn natural_coordinate(coord: &HTuple<i64>, shape: &Shape) -> Result<HTuple<i64>, LayoutError> {
    match (coord, shape) {
        (HTuple::Leaf(c), HTuple::Leaf(_)) => Ok(HTuple::Leaf(*c)),
        (HTuple::Leaf(c), HTuple::Tuple(_)) => Ok(idx2crd(*c, shape)),
        (HTuple::Tuple(c), HTuple::Tuple(s)) if c.len() == s.len() => {
            let modes = c.iter().zip(s).map(|(c, s)| natural_coordinate(c, s)).collect::<Result<_, _>>()?;
            Ok(HTuple::Tuple(modes))
        }
        _ => Err(bad(coord, shape)),
    }
}

/// Takes a coordinate of shape `from` to shape `to` (paper 2.2.2): refines it with [`idx2crd`] where `to` refines
/// `from`, coarsens it with [`crd2idx`] where `from` refines `to`. An error where the shapes are compatible in neither
/// direction, at each level, or the coordinate is not congruent to `from`.
///
/// The law: for compatible shapes this is the bijection that keeps the colexicographical order, and
/// `map_coordinate(map_coordinate(c, p, s), s, p) = c` in bounds. Out of bounds it only goes one way: refining keeps a
/// coordinate out of bounds, coarsening need not.
///
/// ```
/// use tilewright_layout::{HTuple, Shape, map_coordinate};
/// let (p, s) = (Shape::from((6, (2, 2))), Shape::from(((2, 3), 4)));
/// assert_eq!(map_coordinate(&(3, (1, 1)).into(), &p, &s)?.to_string(), "((1,1),3)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn map_coordinate(coord: &HTuple<i64>, from: &Shape, to: &Shape) -> Result<HTuple<i64>, LayoutError> {
    if !coord.congruent(from) {
        return Err(bad(coord, from));
    }
    match (from, to) {
        (HTuple::Leaf(n), _) if to.size()? == *n => natural_coordinate(coord, to),
        (_, HTuple::Leaf(n)) if from.size()? == *n => crd2idx(coord, from).map(HTuple::Leaf),
        (HTuple::Tuple(p), HTuple::Tuple(s)) if p.len() == s.len() => {
            let parts = coord.modes().iter().zip(p.iter().zip(s));
            let modes = parts.map(|(c, (p, s))| map_coordinate(c, p, s)).collect::<Result<_, _>>()?;
            Ok(HTuple::Tuple(modes))
        }
        _ => Err(LayoutError::Incompatible { left: from.to_string(), right: to.to_string() }),
    }
}

impl HTuple<i64> {
    /// The coordinates of this shape in colexicographical order (paper 2.2.2, figure 2): the `i`-th is
    /// `idx2crd(i, self)`. An error where this is not a shape.
    ///
    /// ```
    /// use tilewright_layout::Shape;
    /// let list: Vec<String> = Shape::from((2, 2)).coordinates()?.map(|c| c.to_string()).collect();
    /// assert_eq!(list, ["(0,0)", "(1,0)", "(0,1)", "(1,1)"]);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn coordinates(&self) -> Result<impl Iterator<Item = HTuple<i64>> + '_, LayoutError> {
        self.check_shape()?;
        Ok((0..self.size()?).map(move |i| idx2crd(i, self)))
    }

    /// The shapes that coarsen this one, itself included (paper equation 3, the index of the set of coordinate sets):
    /// each part is either kept, made coarser inside, or replaced by its size. An error where this is not a shape or
    /// there are more than 4096.
    ///
    /// ```
    /// use tilewright_layout::Shape;
    /// let sets: Vec<String> = Shape::from(((2, 3), 2)).coarsenings()?.iter().map(|s| s.to_string()).collect();
    /// assert_eq!(sets, ["12", "(6,2)", "((2,3),2)"]);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn coarsenings(&self) -> Result<Vec<Shape>, LayoutError> {
        const MOST: usize = 4096;
        let HTuple::Tuple(modes) = self else {
            self.check_shape()?;
            return Ok(vec![self.clone()]);
        };
        self.check_shape()?;
        let mut inner: Vec<Vec<Shape>> = vec![vec![]];
        for mode in modes {
            let choices = mode.coarsenings()?;
            if inner.len().saturating_mul(choices.len()) >= MOST {
                return Err(crate::error::overflow("the number of coordinate sets, at most 4096 here,"));
            }
            // The last mode varies slowest, so that coarser shapes come first.
            inner = choices
                .iter()
                .flat_map(|c| {
                    inner.iter().map(move |head| {
                        let mut head = head.clone();
                        head.push(c.clone());
                        head
                    })
                })
                .collect();
        }
        let mut all = vec![HTuple::Leaf(self.size()?)];
        all.extend(inner.into_iter().map(HTuple::Tuple));
        Ok(all)
    }

    /// True if `coord` is in bounds: an element of one of the coordinate sets of this shape (paper definition 2.9).
    pub fn contains(&self, coord: &HTuple<i64>) -> bool {
        match (coord, self) {
            (HTuple::Leaf(c), s) => *c >= 0 && s.size().is_ok_and(|n| *c < n),
            (HTuple::Tuple(c), HTuple::Tuple(s)) => {
                c.len() == s.len() && c.iter().zip(s).all(|(c, s)| s.contains(c))
            }
            _ => false,
        }
    }
}
