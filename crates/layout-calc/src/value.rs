//! The values of expressions, and how they print: always in a form in which they can be read again.

use std::fmt;
use tilewright_layout::{
    AffineLayout, Coord, F2, HTuple, Layout, LinearLayout, Swizzle, SwizzledLayout, Tiler,
};

/// Names, each with or without a number: the dimensions of a linear layout, or indices of them.
pub type Names = Vec<(String, Option<u64>)>;

/// The value of an expression. Prints in the form in which it can be read again, but for truth values and matrices.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A layout whose values are integers.
    Layout(Layout),
    /// A layout whose values are coordinates: `(8,8):(e0,e1)`.
    CoordLayout(Layout<Coord>),
    /// A layout whose values are bit strings: `(4,4):(f1,f5)`.
    F2Layout(Layout<F2>),
    /// A layout followed by a swizzle.
    Swizzled(SwizzledLayout),
    /// A swizzle.
    Swizzle(Swizzle),
    /// A tensor over a counting accessor, `{8} o (3,2):(15,100)`: the layout's value plus the offset (paper 2.5).
    Tensor {
        /// Added to every value.
        offset: i64,
        /// The layout.
        layout: Layout,
    },
    /// A tensor over a coordinate accessor, `{e0} o 8:e1`.
    CoordTensor {
        /// Added to every value.
        offset: Coord,
        /// The layout.
        layout: Layout<Coord>,
    },
    /// A counting accessor, `{8}`.
    Accessor(i64),
    /// A coordinate accessor, `{3e0}`.
    CoordAccessor(Coord),
    /// A tiler: layouts applied by mode (paper 3.3.5).
    Tiler(Tiler),
    /// An integer.
    Integer(i64),
    /// A hierarchical tuple of integers.
    Tuple(HTuple<i64>),
    /// An element of a coordinate semimodule: `e0+6e1`.
    Coord(Coord),
    /// A hierarchical tuple of such elements: the stride of a coordinate layout.
    CoordTuple(HTuple<Coord>),
    /// A bit string: `f5`.
    F2(F2),
    /// A hierarchical tuple of bit strings: the stride of a layout over them.
    F2Tuple(HTuple<F2>),
    /// A coordinate that leaves something out, `(2,_)`: it slices what it is applied to (paper 2.5.1).
    Slice(HTuple<Option<i64>>),
    /// True if something holds.
    Bool(bool),
    /// A linear layout: `[register: 1; lane: 2 4] -> [x:8]`.
    Linear(LinearLayout),
    /// A linear layout and what is added to its values: `[lane: 1 2] -> [x:4] + 3`.
    Affine(AffineLayout),
    /// Names in brackets: `[x, y]`, `[lane:3]`.
    Names(Names),
    /// Several values under names: `{memory = …, stores = 8}`. They are no records, truth values or text.
    Record(Vec<(String, Value)>),
    /// Text to look at: the matrix of a linear layout.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Layout(l) => write!(f, "{l}"),
            Value::CoordLayout(l) => write!(f, "{l}"),
            Value::F2Layout(l) => write!(f, "{l}"),
            Value::Swizzled(l) => write!(f, "{l}"),
            Value::Swizzle(s) => write!(f, "{s}"),
            Value::Tensor { offset, layout } => write!(f, "{{{offset}}} o {layout}"),
            Value::CoordTensor { offset, layout } => write!(f, "{{{offset}}} o {layout}"),
            Value::Accessor(n) => write!(f, "{{{n}}}"),
            Value::CoordAccessor(c) => write!(f, "{{{c}}}"),
            Value::Tiler(t) => write!(f, "{t}"),
            Value::Integer(n) => write!(f, "{n}"),
            Value::Tuple(t) => write!(f, "{t}"),
            Value::Coord(c) => write!(f, "{c}"),
            Value::CoordTuple(t) => write!(f, "{t}"),
            Value::F2(c) => write!(f, "{c}"),
            Value::F2Tuple(t) => write!(f, "{t}"),
            Value::Slice(t) => {
                write!(f, "{}", t.map(|c| c.map_or_else(|| "_".to_string(), |c| c.to_string())))
            }
            Value::Bool(b) => write!(f, "{b}"),
            Value::Linear(l) => write!(f, "{l}"),
            Value::Affine(l) => write!(f, "{l}"),
            Value::Names(names) => {
                let one = |(name, n): &(String, Option<u64>)| match n {
                    Some(n) => format!("{name}:{n}"),
                    None => name.clone(),
                };
                write!(f, "[{}]", names.iter().map(one).collect::<Vec<_>>().join(", "))
            }
            Value::Record(fields) => {
                let fields: Vec<String> = fields.iter().map(|(name, v)| format!("{name} = {v}")).collect();
                write!(f, "{{{}}}", fields.join(", "))
            }
            Value::Text(text) => write!(f, "{}", text.trim_end_matches('\n')),
        }
    }
}

impl From<LinearLayout> for Value {
    fn from(layout: LinearLayout) -> Value {
        Value::Linear(layout)
    }
}

impl From<AffineLayout> for Value {
    fn from(layout: AffineLayout) -> Value {
        Value::Affine(layout)
    }
}

impl From<Layout> for Value {
    fn from(layout: Layout) -> Value {
        Value::Layout(layout)
    }
}

impl From<Layout<Coord>> for Value {
    fn from(layout: Layout<Coord>) -> Value {
        Value::CoordLayout(layout)
    }
}

impl From<Layout<F2>> for Value {
    fn from(layout: Layout<F2>) -> Value {
        Value::F2Layout(layout)
    }
}

impl Value {
    /// The kind of the value in one word: `layout`, `tensor`, `swizzle`, `tiler`, `integer`, `tuple`, …
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Layout(_) | Value::CoordLayout(_) | Value::F2Layout(_) => "layout",
            Value::Swizzled(_) => "swizzled_layout",
            Value::Swizzle(_) => "swizzle",
            Value::Tensor { .. } | Value::CoordTensor { .. } => "tensor",
            Value::Accessor(_) | Value::CoordAccessor(_) => "accessor",
            Value::Tiler(_) => "tiler",
            Value::Integer(_) => "integer",
            Value::Tuple(_) => "tuple",
            Value::Coord(_) => "coordinate",
            Value::CoordTuple(_) => "coordinate_tuple",
            Value::F2(_) => "bits",
            Value::F2Tuple(_) => "bits_tuple",
            Value::Slice(_) => "slice",
            Value::Bool(_) => "bool",
            Value::Linear(_) => "linear_layout",
            Value::Affine(_) => "affine_layout",
            Value::Names(_) => "names",
            Value::Record(_) => "record",
            Value::Text(_) => "text",
        }
    }

    /// The kind of the value, with its article.
    pub(super) fn described(&self) -> &'static str {
        match self {
            Value::Layout(_) => "a layout",
            Value::CoordLayout(_) => "a coordinate layout",
            Value::F2Layout(_) => "a layout over bit strings",
            Value::F2(_) => "a bit string",
            Value::F2Tuple(_) => "a tuple of bit strings",
            Value::Swizzled(_) => "a swizzled layout",
            Value::Swizzle(_) => "a swizzle",
            Value::Tensor { .. } | Value::CoordTensor { .. } => "a tensor",
            Value::Accessor(_) | Value::CoordAccessor(_) => "an accessor",
            Value::Tiler(_) => "a tiler",
            Value::Integer(_) => "an integer",
            Value::Tuple(_) => "a tuple",
            Value::Coord(_) => "an element of a coordinate semimodule",
            Value::CoordTuple(_) => "a tuple of elements of a coordinate semimodule",
            Value::Slice(_) => "a coordinate with `_`",
            Value::Bool(_) => "a truth value",
            Value::Linear(_) => "a linear layout",
            Value::Affine(_) => "an affine layout",
            Value::Names(_) => "names in brackets",
            Value::Record(_) => "a record",
            Value::Text(_) => "text",
        }
    }

    /// The number of leaves in all that the value is made of.
    pub(super) fn leaf_count(&self) -> usize {
        match self {
            Value::Layout(l) | Value::Tensor { layout: l, .. } => l.shape().leaf_count(),
            Value::CoordLayout(l) => coord_terms(l.stride()),
            Value::CoordTensor { offset, layout } => offset.terms().len() + coord_terms(layout.stride()),
            Value::F2Layout(l) => l.shape().leaf_count(),
            Value::F2Tuple(t) => t.leaf_count(),
            Value::Swizzled(l) => l.layout.shape().leaf_count(),
            Value::Tiler(t) => t.leaf_count(),
            Value::Tuple(t) => t.leaf_count(),
            Value::CoordTuple(t) => coord_terms(t),
            Value::Coord(c) | Value::CoordAccessor(c) => c.terms().len().max(1),
            Value::Slice(t) => t.leaf_count(),
            Value::Linear(l) => linear_leaves(l),
            Value::Affine(l) => linear_leaves(l.linear()),
            Value::Names(names) => names.len(),
            Value::Record(fields) => fields.iter().map(|(_, v)| 1 + v.leaf_count()).sum(),
            Value::Swizzle(_)
            | Value::Integer(_)
            | Value::Bool(_)
            | Value::Text(_)
            | Value::F2(_)
            | Value::Accessor(_) => 1,
        }
    }

    /// True if there are elements of a coordinate semimodule in it.
    pub(super) fn has_coords(&self) -> bool {
        use Value::{Coord, CoordAccessor, CoordLayout, CoordTensor, CoordTuple};
        matches!(self, CoordLayout(_) | CoordTensor { .. } | CoordTuple(_) | Coord(_) | CoordAccessor(_))
    }

    /// A leaf as an integer, anything else as a tuple.
    pub(super) fn from_htuple(t: HTuple<i64>) -> Value {
        match t {
            HTuple::Leaf(n) => Value::Integer(n),
            t => Value::Tuple(t),
        }
    }

    /// The same for elements of a coordinate semimodule.
    pub(super) fn from_coords(t: HTuple<Coord>) -> Value {
        match t {
            HTuple::Leaf(c) => Value::Coord(c),
            t => Value::CoordTuple(t),
        }
    }

    /// The same for bit strings.
    pub(super) fn from_f2(t: HTuple<F2>) -> Value {
        match t {
            HTuple::Leaf(c) => Value::F2(c),
            t => Value::F2Tuple(t),
        }
    }

    /// An integer or tuple as a hierarchical tuple.
    pub(super) fn to_htuple(&self) -> Option<HTuple<i64>> {
        match self {
            Value::Integer(n) => Some(HTuple::Leaf(*n)),
            Value::Tuple(t) => Some(t.clone()),
            _ => None,
        }
    }

    /// Anything that can stand where a coordinate or a part of one is expected.
    pub(super) fn to_slice(&self) -> Option<HTuple<Option<i64>>> {
        match self {
            Value::Slice(t) => Some(t.clone()),
            other => other.to_htuple().map(|t| t.map(|n| Some(*n))),
        }
    }

    /// A tuple of elements of a coordinate semimodule, in which 0 is its zero.
    pub(super) fn to_coords(&self) -> Option<HTuple<Coord>> {
        match self {
            Value::Coord(c) => Some(HTuple::Leaf(c.clone())),
            Value::CoordTuple(t) => Some(t.clone()),
            other => {
                let t = other.to_htuple()?;
                t.leaves().iter().all(|n| **n == 0).then(|| t.map(|_| Coord::default()))
            }
        }
    }

    /// A tuple of bit strings, in which 0 is the empty one.
    pub(super) fn to_f2s(&self) -> Option<HTuple<F2>> {
        match self {
            Value::F2(c) => Some(HTuple::Leaf(*c)),
            Value::F2Tuple(t) => Some(t.clone()),
            other => {
                let t = other.to_htuple()?;
                t.leaves().iter().all(|n| **n == 0).then(|| t.map(|_| F2(0)))
            }
        }
    }
}

fn linear_leaves(layout: &LinearLayout) -> usize {
    layout.ins().len() + layout.outs().len() + layout.columns().len() * layout.outs().len()
}

/// The integers in all these sums; a zero counts as one.
fn coord_terms(t: &HTuple<Coord>) -> usize {
    t.leaves().into_iter().map(|c| c.terms().len().max(1)).sum()
}
