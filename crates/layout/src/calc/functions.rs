//! The functions of the calculator: each takes values that are already evaluated, leftmost argument first.

use super::{CalcError, MAX_LEAVES, Value};
use crate::algebra::{self, injective_within};
use crate::error::LayoutError;
use crate::htuple::{HTuple, MAX_DEPTH};
use crate::layout::Layout;
use crate::swizzle::{Swizzle, SwizzledLayout};

/// The most steps that a question may be searched.
const BUDGET: u64 = 1 << 20;

/// The functions with their arguments, as they are written. `A`, `B` are layouts (an integer n is n:1), `T` is a layout
/// or a tiler `<…>`, `n` an integer, `c` a coordinate; what stands in brackets may be left out.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("compose", "compose(A, T): A ∘ T, T applied first"),
    ("coalesce", "coalesce(A[, profile]): as few modes as possible"),
    ("complement", "complement(A[, n]): the values left out, up to n"),
    ("right_inverse", "right_inverse(A)"),
    ("left_inverse", "left_inverse(A)"),
    ("inverse", "inverse(A)"),
    ("logical_divide", "logical_divide(A, T)"),
    ("zipped_divide", "zipped_divide(A, T)"),
    ("tiled_divide", "tiled_divide(A, T)"),
    ("flat_divide", "flat_divide(A, T)"),
    ("logical_product", "logical_product(A, B)"),
    ("zipped_product", "zipped_product(A, B)"),
    ("tiled_product", "tiled_product(A, B)"),
    ("flat_product", "flat_product(A, B)"),
    ("blocked_product", "blocked_product(A, B)"),
    ("raked_product", "raked_product(A, B)"),
    ("concat", "concat(A, B, …): (A, B, …)"),
    ("flatten", "flatten(A): no nesting"),
    ("mode", "mode(A, n): mode n, counting from 0"),
    ("column_major", "column_major(shape)"),
    ("row_major", "row_major(shape)"),
    ("swizzle", "swizzle(bits, base, shift): Sw<bits,base,shift>"),
    ("eval", "eval(A, c): the value at a coordinate"),
    ("image", "image(A): the values at all coordinates"),
    ("size", "size(A)"),
    ("cosize", "cosize(A)"),
    ("rank", "rank(A)"),
    ("depth", "depth(A)"),
    ("shape", "shape(A)"),
    ("stride", "stride(A)"),
    ("injective", "injective(A): whether no value occurs twice"),
    ("compact", "compact(A): whether it is a bijection onto 0..size"),
    ("congruent", "congruent(A, B): whether the shapes nest alike"),
    ("compatible", "compatible(A, B): whether every coordinate of A is one of B"),
];

/// What went wrong, before it is known where.
pub(super) enum Failure {
    Layout(LayoutError),
    Message(String),
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Failure {
        Failure::Layout(error)
    }
}

impl Failure {
    pub(super) fn at(self, offset: usize) -> CalcError {
        match self {
            Failure::Layout(error) => CalcError::at(offset, error),
            Failure::Message(message) => CalcError { offset, message },
        }
    }
}

fn wrong<T>(expected: &str, found: &Value) -> Result<T, Failure> {
    Err(Failure::Message(format!("expected {expected}, found {}", found.kind())))
}

pub(super) fn exists(name: &str) -> bool {
    FUNCTIONS.iter().any(|(n, _)| *n == name)
}

/// The function that shares the longest start and end with `name`, if they are at least four letters together.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let common = |n: &str| {
        let same = |(a, b): &(u8, u8)| a == b;
        let start = n.bytes().zip(name.bytes()).take_while(same).count();
        let end = n.bytes().rev().zip(name.bytes().rev()).take_while(same).count();
        start + end
    };
    let (best, _) = FUNCTIONS.iter().max_by_key(|(n, _)| common(n))?;
    (common(best) >= 4).then_some(*best)
}

fn layout(value: &Value) -> Result<Layout, Failure> {
    match value {
        Value::Layout(l) => Ok(l.clone()),
        Value::Integer(n) if *n >= 1 => Ok(Layout::identity(*n)),
        Value::Integer(n) => Err(LayoutError::NotPositive { extent: *n }.into()),
        Value::Swizzled(l) if l.swizzle.is_identity() => Ok(l.layout.clone()),
        other => wrong("a layout", other),
    }
}

fn integer(value: &Value) -> Result<i64, Failure> {
    match value {
        Value::Integer(n) => Ok(*n),
        other => wrong("an integer", other),
    }
}

fn tuple(value: &Value) -> Result<HTuple<i64>, Failure> {
    value.to_htuple().map_or_else(|| wrong("an integer or a tuple", value), Ok)
}

/// A shape, or that of a layout.
fn shape(value: &Value) -> Result<HTuple<i64>, Failure> {
    let shape = match value {
        Value::Layout(l) => l.shape().clone(),
        Value::Swizzled(l) => l.layout.shape().clone(),
        other => tuple(other)?,
    };
    shape.check_shape()?;
    Ok(shape)
}

/// The layouts of a tiler; nothing where the value is a layout that applies as a whole.
fn by_mode(value: &Value) -> Result<Option<Vec<Layout>>, Failure> {
    match value {
        Value::Tiler(t) => Ok(Some(t.clone())),
        Value::Tuple(HTuple::Tuple(t)) => {
            let tiles: Vec<Value> = t.iter().cloned().map(Value::from_htuple).collect();
            tiler(&tiles).map(Some)
        }
        _ => Ok(None),
    }
}

pub(super) fn tiler(values: &[Value]) -> Result<Vec<Layout>, Failure> {
    values.iter().map(layout).collect()
}

/// A list in parentheses: integers and tuples make a tuple, layouts their concatenation; one value that is neither an
/// integer nor a tuple stands for itself.
pub(super) fn parenthesized(mut values: Vec<Value>) -> Result<Value, Failure> {
    if let Some(elements) = values.iter().map(Value::to_htuple).collect::<Option<Vec<_>>>() {
        let tuple = HTuple::Tuple(elements);
        if tuple.depth() > MAX_DEPTH {
            return Err(LayoutError::TooDeep { limit: MAX_DEPTH }.into());
        }
        return Ok(Value::Tuple(tuple));
    }
    if values.len() == 1 {
        return Ok(values.remove(0));
    }
    let layouts = values.iter().map(layout).collect::<Result<Vec<_>, _>>()?;
    Ok(Value::Layout(Layout::concat(&layouts)?))
}

/// `left ∘ right`, right applied first.
pub(super) fn compose_values(left: &Value, right: &Value) -> Result<Value, Failure> {
    match left {
        Value::Swizzle(swizzle) => match right {
            Value::Swizzled(_) | Value::Swizzle(_) => wrong("a layout without a swizzle", right),
            other => {
                let layout = layout(other)?;
                Ok(Value::Swizzled(SwizzledLayout { swizzle: *swizzle, layout }))
            }
        },
        Value::Swizzled(left) => {
            let layout = compose_layouts(&left.layout, right)?;
            Ok(Value::Swizzled(SwizzledLayout { swizzle: left.swizzle, layout }))
        }
        left => Ok(Value::Layout(compose_layouts(&layout(left)?, right)?)),
    }
}

fn compose_layouts(a: &Layout, tile: &Value) -> Result<Layout, Failure> {
    Ok(match by_mode(tile)? {
        Some(tiles) => algebra::compose_by_mode(a, &tiles)?,
        None => algebra::compose(a, &layout(tile)?)?,
    })
}

/// The value of a function at a coordinate: one argument is the coordinate, several are its elements.
pub(super) fn apply(function: &Value, args: &[Value]) -> Result<Value, Failure> {
    let coord = match args {
        [one] => tuple(one)?,
        several => HTuple::Tuple(several.iter().map(tuple).collect::<Result<_, _>>()?),
    };
    let value = match function {
        Value::Swizzle(swizzle) => match coord {
            HTuple::Leaf(n) => swizzle.apply(n),
            HTuple::Tuple(_) => {
                return Err(Failure::Message("a swizzle applies to one integer".to_string()));
            }
        },
        Value::Swizzled(l) => l.eval_coord(&coord)?,
        Value::Layout(_) | Value::Integer(_) => layout(function)?.eval_coord(&coord)?,
        other => return wrong("a layout or a swizzle before `(`", other),
    };
    Ok(Value::Integer(value))
}

type Whole = fn(&Layout, &Layout) -> Result<Layout, LayoutError>;
type ByMode = fn(&Layout, &[Layout]) -> Result<Layout, LayoutError>;

fn divide(a: &Value, tile: &Value, whole: Whole, each: ByMode) -> Result<Value, Failure> {
    let (a, swizzle) = match a {
        Value::Swizzled(l) => (l.layout.clone(), l.swizzle),
        a => (layout(a)?, Swizzle::NONE),
    };
    let divided = match by_mode(tile)? {
        Some(tiles) => each(&a, &tiles)?,
        None => whole(&a, &layout(tile)?)?,
    };
    Ok(if swizzle.is_identity() {
        Value::Layout(divided)
    } else {
        Value::Swizzled(SwizzledLayout { swizzle, layout: divided })
    })
}

/// The value of the function `name`, which [`exists`], at `args`.
pub(super) fn call(name: &str, args: &[Value]) -> Result<Value, Failure> {
    let of_layout = |l: Layout| Ok(Value::Layout(l));
    match (name, args) {
        ("compose", [first, rest @ ..]) if !rest.is_empty() => {
            rest.iter().try_fold(first.clone(), |left, right| compose_values(&left, right))
        }
        ("coalesce", [a]) => of_layout(algebra::coalesce(&layout(a)?)),
        ("coalesce", [a, profile]) => of_layout(algebra::coalesce_by(&layout(a)?, &tuple(profile)?)?),
        ("complement", [a]) => of_layout(algebra::complement_unbounded(&layout(a)?)?),
        ("complement", [a, n]) => of_layout(algebra::complement(&layout(a)?, integer(n)?)?),
        ("right_inverse", [a]) => of_layout(algebra::right_inverse(&layout(a)?)),
        ("left_inverse", [a]) => of_layout(algebra::left_inverse(&layout(a)?)?),
        ("inverse", [a]) => of_layout(algebra::inverse(&layout(a)?)?),
        ("logical_divide", [a, t]) => divide(a, t, algebra::logical_divide, algebra::logical_divide_by_mode),
        ("zipped_divide", [a, t]) => divide(a, t, algebra::zipped_divide, algebra::zipped_divide_by_mode),
        ("tiled_divide", [a, t]) => divide(a, t, algebra::tiled_divide, algebra::tiled_divide_by_mode),
        ("flat_divide", [a, t]) => divide(a, t, algebra::flat_divide, algebra::flat_divide_by_mode),
        ("logical_product", [a, b]) => of_layout(algebra::logical_product(&layout(a)?, &layout(b)?)?),
        ("zipped_product", [a, b]) => of_layout(algebra::zipped_product(&layout(a)?, &layout(b)?)?),
        ("tiled_product", [a, b]) => of_layout(algebra::tiled_product(&layout(a)?, &layout(b)?)?),
        ("flat_product", [a, b]) => of_layout(algebra::flat_product(&layout(a)?, &layout(b)?)?),
        ("blocked_product", [a, b]) => of_layout(algebra::blocked_product(&layout(a)?, &layout(b)?)?),
        ("raked_product", [a, b]) => of_layout(algebra::raked_product(&layout(a)?, &layout(b)?)?),
        ("concat", all) => of_layout(Layout::concat(&tiler(all)?)?),
        ("flatten", [a]) => of_layout(layout(a)?.flatten()),
        ("mode", [a, n]) => {
            let (a, n) = (layout(a)?, integer(n)?);
            of_layout(a.mode(usize::try_from(n).unwrap_or(usize::MAX))?)
        }
        ("column_major", [s]) => of_layout(Layout::column_major(shape(s)?)?),
        ("row_major", [s]) => of_layout(Layout::row_major(shape(s)?)?),
        ("swizzle", [b, m, s]) => {
            let parameter = |v: &Value| integer(v).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            Ok(Value::Swizzle(Swizzle::new(parameter(b)?, parameter(m)?, parameter(s)?)?))
        }
        ("eval", [a, rest @ ..]) if !rest.is_empty() => apply(a, rest),
        ("image", [a]) => image(a),
        ("injective", [a]) => match injective_within(&layout(a)?.leaves(), BUDGET) {
            Some(answer) => Ok(Value::Bool(answer)),
            None => Err(Failure::Message("whether this layout is injective takes too long to decide".into())),
        },
        ("compact", [a]) => Ok(Value::Bool(layout(a)?.is_compact())),
        ("congruent", [a, b]) => Ok(Value::Bool(shape(a)?.congruent(&shape(b)?))),
        ("compatible", [a, b]) => Ok(Value::Bool(shape(a)?.compatible(&shape(b)?))),
        ("size", [a]) => Ok(Value::Integer(shape(a)?.size()?)),
        ("rank", [a]) => Ok(Value::Integer(shape(a)?.rank() as i64)),
        ("depth", [a]) => Ok(Value::Integer(shape(a)?.depth() as i64)),
        ("shape", [a]) => Ok(Value::from_htuple(shape(a)?)),
        ("cosize", [a]) => Ok(Value::Integer(layout(a)?.cosize())),
        ("stride", [a]) => Ok(Value::from_htuple(layout(a)?.stride().clone())),
        _ => {
            let usage = FUNCTIONS.iter().find(|(n, _)| *n == name).map_or("", |(_, usage)| usage);
            Err(Failure::Message(format!("wrong number of arguments ({}); usage: {usage}", args.len())))
        }
    }
}

fn image(value: &Value) -> Result<Value, Failure> {
    let (layout, swizzle) = match value {
        Value::Swizzled(l) => (l.layout.clone(), l.swizzle),
        value => (layout(value)?, Swizzle::NONE),
    };
    if layout.size() > MAX_LEAVES as i64 {
        return Err(Failure::Message(format!("this layout has more than {MAX_LEAVES} values")));
    }
    let values: Vec<i64> = layout.image().into_iter().map(|v| swizzle.apply(v)).collect();
    Ok(Value::Tuple(values.into()))
}
