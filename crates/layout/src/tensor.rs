//! Tensors: an accessor composed with a layout (paper 2.5). Evaluation goes from a coordinate through the layout to an
//! offset, and from there through the accessor to a value.

use crate::coords::natural_coordinate;
use crate::error::{LayoutError, overflow};
use crate::htuple::{HTuple, MAX_DEPTH, Shape};
use crate::layout::Layout;
use crate::stride::Stride;
use crate::text::Cursor;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::str::FromStr;

/// Something that can be offset and dereferenced (paper definition 2.18). The law: `e.offset(a).offset(b)` is `e.offset(a + b)`.
pub trait Accessor<D>: Clone {
    /// Type of an element.
    type Value;
    /// The accessor moved by `by`; an error where that cannot be represented.
    fn offset(&self, by: &D) -> Result<Self, LayoutError>;
    /// The value here; an error where there is none.
    fn get(&self) -> Result<Self::Value, LayoutError>;
}

/// An accessor that can be written through.
pub trait AccessorMut<D>: Accessor<D> {
    /// Replaces the value here.
    fn set(&self, value: Self::Value) -> Result<(), LayoutError>;
}

/// The counting accessor `{a}`, which dereferences to its own offset (paper 2.5): of an integer, a coordinate, a bit
/// string or a symbolic integer. Prints as `{a}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Counting<D>(
    /// The offset.
    pub D,
);

impl<D: Stride> Accessor<D> for Counting<D> {
    type Value = D;
    fn offset(&self, by: &D) -> Result<Self, LayoutError> {
        self.0.checked_add(by).map(Counting).ok_or(overflow("the offset of an accessor"))
    }
    fn get(&self) -> Result<D, LayoutError> {
        Ok(self.0.clone())
    }
}

impl<D: fmt::Display> fmt::Display for Counting<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.0)
    }
}

/// The pointer accessor: a place in an array, that is checked when it is dereferenced. Prints as `{ptr+8}`.
#[derive(Debug)]
pub struct Pointer<'a, T> {
    data: &'a [T],
    at: i64,
}

impl<'a, T> Pointer<'a, T> {
    /// The start of an array.
    pub fn new(data: &'a [T]) -> Self {
        Pointer { data, at: 0 }
    }
}

impl<T> Clone for Pointer<'_, T> {
    fn clone(&self) -> Self {
        Pointer { data: self.data, at: self.at }
    }
}

fn place(at: i64, len: usize) -> Result<usize, LayoutError> {
    usize::try_from(at).ok().filter(|at| *at < len).ok_or(LayoutError::OutOfBounds { offset: at, len })
}

fn advance(at: i64, by: i64) -> Result<i64, LayoutError> {
    at.checked_add(by).ok_or(overflow("the offset of an accessor"))
}

impl<T: Clone> Accessor<i64> for Pointer<'_, T> {
    type Value = T;
    fn offset(&self, by: &i64) -> Result<Self, LayoutError> {
        Ok(Pointer { data: self.data, at: advance(self.at, *by)? })
    }
    fn get(&self) -> Result<T, LayoutError> {
        Ok(self.data[place(self.at, self.data.len())?].clone())
    }
}

impl<T> fmt::Display for Pointer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ptr{:+}}}", self.at)
    }
}

/// A pointer that can be written through; all tensors over one array share it. Prints as `{ptr+8}`.
pub struct PointerMut<'a, T> {
    data: &'a [Cell<T>],
    at: i64,
}

impl<'a, T> PointerMut<'a, T> {
    /// The start of an array.
    pub fn new(data: &'a mut [T]) -> Self {
        PointerMut { data: Cell::from_mut(data).as_slice_of_cells(), at: 0 }
    }
}

impl<T> Clone for PointerMut<'_, T> {
    fn clone(&self) -> Self {
        PointerMut { data: self.data, at: self.at }
    }
}

impl<T: Copy> Accessor<i64> for PointerMut<'_, T> {
    type Value = T;
    fn offset(&self, by: &i64) -> Result<Self, LayoutError> {
        Ok(PointerMut { data: self.data, at: advance(self.at, *by)? })
    }
    fn get(&self) -> Result<T, LayoutError> {
        Ok(self.data[place(self.at, self.data.len())?].get())
    }
}

impl<T: Copy> AccessorMut<i64> for PointerMut<'_, T> {
    fn set(&self, value: T) -> Result<(), LayoutError> {
        self.data[place(self.at, self.data.len())?].set(value);
        Ok(())
    }
}

impl<T> fmt::Display for PointerMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ptr{:+}}}", self.at)
    }
}

/// The accessor that applies a function to what another gives (paper 2.5, `transform_iterator`).
#[derive(Clone)]
pub struct Transform<A, F> {
    /// The element.
    pub accessor: A,
    /// Applied to it.
    pub function: F,
}

impl<D, V, A: Accessor<D>, F: Fn(A::Value) -> V + Clone> Accessor<D> for Transform<A, F> {
    type Value = V;
    fn offset(&self, by: &D) -> Result<Self, LayoutError> {
        Ok(Transform { accessor: self.accessor.offset(by)?, function: self.function.clone() })
    }
    fn get(&self) -> Result<V, LayoutError> {
        self.accessor.get().map(&self.function)
    }
}

/// An accessor that records what is written and reads as zero: for finding which offsets an algorithm touches, in order.
#[derive(Clone, Debug)]
pub struct Recorder<'a, D> {
    log: &'a RefCell<Vec<D>>,
    at: D,
}

impl<'a, D: Stride> Recorder<'a, D> {
    /// A recorder at offset zero.
    pub fn new(log: &'a RefCell<Vec<D>>) -> Self {
        Recorder { log, at: D::zero() }
    }
}

impl<D: Stride> Accessor<D> for Recorder<'_, D> {
    type Value = D;
    fn offset(&self, by: &D) -> Result<Self, LayoutError> {
        let at = self.at.checked_add(by).ok_or(overflow("the offset of an accessor"))?;
        Ok(Recorder { log: self.log, at })
    }
    fn get(&self) -> Result<D, LayoutError> {
        Ok(D::zero())
    }
}

impl<D: Stride> AccessorMut<D> for Recorder<'_, D> {
    fn set(&self, _: D) -> Result<(), LayoutError> {
        self.log.borrow_mut().push(self.at.clone());
        Ok(())
    }
}

/// A coordinate with holes: `_` stands for a mode, or a part of one, that is not given. Prints as `(2,(_,0))`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slice(
    /// The coordinate, with nothing for each hole.
    pub HTuple<Option<i64>>,
);

impl Slice {
    /// The given part with 0 for the holes, `c'` in the paper's `c = c' + c*`.
    pub fn given(&self) -> HTuple<i64> {
        self.0.map(|c| c.unwrap_or(0))
    }
}

impl From<HTuple<i64>> for Slice {
    fn from(coord: HTuple<i64>) -> Slice {
        Slice(coord.map(|c| Some(*c)))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map(|c| c.map_or("_".to_string(), |c| c.to_string())).fmt(f)
    }
}

impl FromStr for Slice {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Slice, LayoutError> {
        let mut cursor = Cursor::new(text);
        let hole_or_integer = |c: &mut Cursor<'_>| {
            if c.eat("_") { Ok(None) } else { c.integer().map(Some) }
        };
        let slice = cursor.htuple(MAX_DEPTH, &hole_or_integer)?;
        cursor.end()?;
        Ok(Slice(slice))
    }
}

/// Slices a layout (paper equation 10): the value of the given part of the coordinate, and the sublayout of the holes.
/// In the sublayout a mode that is wholly given disappears, and a tuple of which one mode is left becomes that mode; with
/// no hole it is `1:0`.
///
/// The law: `L(c' + c*) = value + sublayout(c*)`.
///
/// ```
/// use tilewright_layout::{Layout, slice};
/// let l: Layout = "((3,2),((2,3),2)):((4,1),((2,15),100))".parse()?;
/// let (value, rest) = slice(&l, &"((1,_),((_,0),_))".parse()?)?;
/// assert_eq!((value, rest.to_string()), (4, "(2,(2,2)):(1,(2,100))".to_string()));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn slice<S: Stride>(layout: &Layout<S>, at: &Slice) -> Result<(S, Layout<S>), LayoutError> {
    type Parts<S> = Option<(Shape, HTuple<S>)>;
    fn go<S: Stride>(
        shape: &Shape,
        stride: &HTuple<S>,
        at: &HTuple<Option<i64>>,
        sum: &mut S,
    ) -> Result<Parts<S>, LayoutError> {
        let too_big = || overflow("the offset of a slice");
        match (at, shape, stride) {
            (HTuple::Leaf(None), _, _) => Ok(Some((shape.clone(), stride.clone()))),
            (HTuple::Leaf(Some(c)), _, _) => {
                let natural = natural_coordinate(&HTuple::Leaf(*c), shape)?;
                for (c, d) in natural.leaves().into_iter().zip(stride.leaves()) {
                    let term = d.checked_scale(*c).ok_or_else(too_big)?;
                    *sum = sum.checked_add(&term).ok_or_else(too_big)?;
                }
                Ok(None)
            }
            (HTuple::Tuple(c), HTuple::Tuple(s), HTuple::Tuple(d)) if c.len() == s.len() => {
                let (mut shapes, mut strides) = (Vec::new(), Vec::new());
                for (c, (s, d)) in c.iter().zip(s.iter().zip(d)) {
                    if let Some((s, d)) = go(s, d, c, sum)? {
                        shapes.push(s);
                        strides.push(d);
                    }
                }
                Ok(match shapes.len() {
                    0 => None,
                    1 => shapes.pop().zip(strides.pop()),
                    _ => Some((HTuple::Tuple(shapes), HTuple::Tuple(strides))),
                })
            }
            _ => Err(LayoutError::BadCoordinate {
                coord: Slice(at.clone()).to_string(),
                shape: shape.to_string(),
            }),
        }
    }
    let mut sum = S::zero();
    let rest = go(layout.shape(), layout.stride(), &at.0, &mut sum)?;
    match rest {
        Some((shape, stride)) => Ok((sum, Layout::new(shape, stride)?)),
        None => Ok((sum, Layout::trivial())),
    }
}

/// A tensor: an accessor composed with a layout (paper definition 2.19). Prints as `{8} o (3,2):(4,1)`.
///
/// ```
/// use tilewright_layout::{Counting, Layout, Tensor};
/// let t = Tensor::new(Counting(0), "(6,12):(1,6)".parse::<Layout>()?);
/// assert_eq!(t.get(&(2, 3).into())?, 20);
/// assert_eq!(t.slice(&"(2,_)".parse()?)?.to_string(), "{2} o 12:6");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tensor<A, S = i64> {
    /// Applied last.
    pub accessor: A,
    /// Applied first.
    pub layout: Layout<S>,
}

impl<S: Stride, A: Accessor<S>> Tensor<A, S> {
    /// The accessor composed with the layout.
    pub fn new(accessor: A, layout: Layout<S>) -> Self {
        Tensor { accessor, layout }
    }

    /// Full evaluation (paper equation 9): the value at any admissible coordinate.
    pub fn get(&self, coord: &HTuple<i64>) -> Result<A::Value, LayoutError> {
        self.accessor.offset(&self.layout.eval_coord(coord)?)?.get()
    }

    /// Full evaluation at an integral coordinate.
    pub fn at(&self, index: i64) -> Result<A::Value, LayoutError> {
        self.accessor.offset(&self.layout.checked_eval(index)?)?.get()
    }

    /// Partial evaluation (paper equation 10): the given part of the coordinate moves the accessor, the sublayout of
    /// the holes remains.
    pub fn slice(&self, at: &Slice) -> Result<Self, LayoutError> {
        let (by, layout) = slice(&self.layout, at)?;
        Ok(Tensor { accessor: self.accessor.offset(&by)?, layout })
    }

    /// The tensor with its layout composed with one applied before (paper 3.3.4).
    pub fn compose(&self, b: &Layout) -> Result<Self, LayoutError> {
        Ok(Tensor { accessor: self.accessor.clone(), layout: crate::compose(&self.layout, b)? })
    }
}

impl<S: Stride, A: AccessorMut<S>> Tensor<A, S> {
    /// Replaces the value at any admissible coordinate.
    pub fn set(&self, coord: &HTuple<i64>, value: A::Value) -> Result<(), LayoutError> {
        self.accessor.offset(&self.layout.eval_coord(coord)?)?.set(value)
    }

    /// Replaces the value at an integral coordinate.
    pub fn set_at(&self, index: i64, value: A::Value) -> Result<(), LayoutError> {
        self.accessor.offset(&self.layout.checked_eval(index)?)?.set(value)
    }
}

impl<A: fmt::Display, S: Stride> fmt::Display for Tensor<A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {}", self.accessor, self.layout)
    }
}
