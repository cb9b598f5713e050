//! The functions of the calculator: each takes values that are already evaluated, leftmost argument first.

use super::{CalcError, MAX_LEAVES, Value, linear};
use tilewright_layout::{
    self as algebra, Coord, F2, HTuple, Layout, LayoutError, MAX_DEPTH, Stride, Swizzle, SwizzledLayout,
    Tiler, injective_within, work,
};

/// The most steps that a question may be searched.
const BUDGET: u64 = 1 << 20;

/// The functions with their arguments, as they are written. `A`, `B` are layouts (an integer n is n:1), `T` is a layout
/// or a tiler `<…>`, `n` an integer, `c` a coordinate; what stands in brackets may be left out. `L`, `M` are linear
/// layouts, `[x]` stands for names in brackets; operand 0 is the left factor of a product, 1 the right one, 2 the result.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("compose", "compose(A, T): A ∘ T, T applied first"),
    ("coalesce", "coalesce(A[, profile]): as few modes as possible"),
    ("complement", "complement(A[, n]): the values left out, up to n; by mode where n is a tuple"),
    ("right_inverse", "right_inverse(A[, profile])"),
    ("left_inverse", "left_inverse(A[, profile])"),
    ("inverse", "inverse(A[, profile])"),
    ("nullspace", "nullspace(A[, profile]): the coordinates that modes of stride 0 reach"),
    ("max_common_layout", "max_common_layout(A, B): where both agree, contiguously"),
    ("max_common_vector", "max_common_vector(A, B): the size of that"),
    ("admissible", "admissible(A, T): where the offsets of T lie in A"),
    ("recast", "recast(A, from, to): the same data with elements of `to` bits"),
    ("ordered", "ordered(shape, order): compact, strides ascending in this order"),
    ("tile_to_shape", "tile_to_shape(A, shape, order)"),
    ("to_f2", "to_f2(A): as a layout over bit strings"),
    ("from_f2", "from_f2(A): back again"),
    ("logical_divide", "logical_divide(A, T)"),
    ("zipped_divide", "zipped_divide(A, T)"),
    ("tiled_divide", "tiled_divide(A, T)"),
    ("flat_divide", "flat_divide(A, T)"),
    ("logical_product", "logical_product(A, T)"),
    ("zipped_product", "zipped_product(A, T)"),
    ("tiled_product", "tiled_product(A, T)"),
    ("flat_product", "flat_product(A, T)"),
    ("blocked_product", "blocked_product(A, T)"),
    ("raked_product", "raked_product(A, T)"),
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
    ("layout", "layout(A): a tensor or a swizzled layout without its offset or swizzle"),
    ("idx2crd", "idx2crd(n, A): the natural coordinate of integral coordinate n"),
    ("crd2idx", "crd2idx(c, A): the integral coordinate of c"),
    ("equal", "equal(A, B): whether both take the same values in the same order"),
    ("injective", "injective(A): whether no value occurs twice"),
    (
        "surjective",
        "surjective(A[, n]): whether every integer in 0..n is a value; n is the cosize if left out",
    ),
    (
        "bijective",
        "bijective(A[, n]): whether every integer in 0..n is a value once, and nothing else is one",
    ),
    ("compact", "compact(A): whether it is a bijection onto 0..size"),
    ("congruent", "congruent(A, B): whether the shapes nest alike"),
    ("weakly_congruent", "weakly_congruent(A, B): whether A nests like B wherever A has a tuple"),
    ("compatible", "compatible(A, B): whether every coordinate of A is one of B"),
    ("product", "product(L, M): the direct sum, the bits of M above those of L"),
    ("left_divide", "left_divide(L, M): the q with product(M, q) = L"),
    ("right_divide", "right_divide(L, M): the q with product(q, M) = L"),
    (
        "invert_and_compose",
        "invert_and_compose(L, M): L⁻¹ ∘ M, the R with L ∘ R = M whose free bits are zero",
    ),
    ("kernel", "kernel(L): a basis of the inputs that lead to 0, as a layout; image(L) likewise"),
    (
        "distributed",
        "distributed(L): whether it is a register layout: surjective, at most one bit a column, none twice",
    ),
    ("memory_layout", "memory_layout(L): whether it is one: bijective, one or two bits a column"),
    (
        "equal_up_to_broadcast",
        "equal_up_to_broadcast(L, M): whether they differ in inputs that lead to 0 only",
    ),
    ("sublayout", "sublayout(L, [ins], [outs]): some inputs and outputs"),
    ("free_bits", "free_bits(L): for each input a mask of the bits without which every value is reached"),
    ("without_zeros", "without_zeros(L): without the input bits that lead to 0"),
    ("copies", "copies(L): how often each value is taken"),
    ("matrix", "matrix(L): the matrix over bits, to look at"),
    ("transpose", "transpose(L, [y, x]): the outputs in this order"),
    ("reshape", "reshape(L, [a:2, b:4]): the outputs counted in other modes, the first fastest"),
    ("expand", "expand(L, n, [x]): a new output of size 1 before output n"),
    ("broadcast", "broadcast(L, [register], [x:4]): output x of size 1 made larger, held in registers"),
    ("join", "join(L, [register], [x]): two tensors made one, with a new output of size 2"),
    ("split", "split(L, [x]): join backward"),
    ("slice", "slice(L, [x]): output x left out; slice(L, [x], start, size): the inputs that lead there"),
    (
        "sliced",
        "sliced(L, n): output dim<n> left out with the registers that only it had, the others renamed",
    ),
    ("flip", "flip(L, [x]): output x backward"),
    ("cover", "cover(L, order, shape): the tile L repeated in registers or cut to shape"),
    (
        "to_linear",
        "to_linear(A[, [ins], [outs]]): as a linear layout; names may have sizes, [lane:32, register:4]",
    ),
    ("to_layout", "to_layout(L): as a layout over integers; to_f2(L): over bit strings"),
    ("to_swizzled", "to_swizzled(L): as a swizzled layout"),
    ("contiguous", "contiguous(L[, [register]]): values 0, 1, … in consecutive registers"),
    (
        "vector_bits",
        "vector_bits(L[, [register]]): the register bits that lead to values 1, 2, 4, …, as a layout",
    ),
    (
        "divide_permuting",
        "divide_permuting(L, M[, [register]]): left_divide with the register bits in another order",
    ),
    (
        "wavefronts",
        "wavefronts(memory, L, bytes, vector): of an access to shared memory, `vector` elements a lane",
    ),
    (
        "optimal_swizzle",
        "optimal_swizzle(L, M, bits): the memory layout between two register layouts, and its accesses",
    ),
    ("reorder", "reorder(L, M): what is exchanged to get from one register layout to another"),
    ("identity1d", "identity1d(n, [in], [out])"),
    ("strided1d", "strided1d(n, stride, [in], [out])"),
    ("zeros1d", "zeros1d(n, size, [in], [out])"),
    ("blocked", "blocked(registers, lanes, warps, order, shape)"),
    ("blocked_operand", "blocked_operand(operand, registers, lanes, warps, order, shape)"),
    ("mma_tile", "mma_tile(operand, vector): of one mma m16n8"),
    ("mma", "mma(warps, shape): the accumulator of mma m16n8"),
    ("mma_operand", "mma_operand(operand, vector, warps, shape): `vector` elements along K in a lane"),
    ("wgmma", "wgmma(n, warps, shape): the accumulator of wgmma m64"),
    ("wgmma_left", "wgmma_left(vector, warps, shape): its left factor in registers"),
    ("ldmatrix_tile", "ldmatrix_tile(bytes)"),
    ("mfma", "mfma((m,n), transposed, wide, tiles, warps, shape): an accumulator on 64 lanes"),
    ("mfma_operand", "mfma_operand(operand, vector, (m,n), transposed, wide, tiles, warps, shape)"),
    (
        "wmma",
        "wmma(version, transposed, grid, shape): an accumulator of 16×16; grid: [register, warp] -> [dim0, dim1]",
    ),
    ("wmma_operand", "wmma_operand(operand, vector, depth, version, transposed, grid, shape)"),
    ("unswizzled", "unswizzled(order, shape): a memory layout"),
    ("swizzled", "swizzled(vector, per_phase, max_phase, order, shape): the memory layout of mma swizzling"),
    (
        "nvmma",
        "nvmma(swizzle_bytes, bits, transposed, padded, shape): the memory layout of tensor-map copies",
    ),
];

/// An error before its place is known.
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
            Failure::Message(message) => CalcError::new(offset, message),
        }
    }
}

pub(super) fn wrong<T>(expected: &str, found: &Value) -> Result<T, Failure> {
    Err(Failure::Message(format!("expected {expected}, found {}", found.described())))
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

pub(super) fn layout(value: &Value) -> Result<Layout, Failure> {
    match value {
        Value::Layout(l) => Ok(l.clone()),
        Value::Integer(n) if *n >= 1 => Ok(Layout::identity(*n)),
        Value::Integer(n) => Err(LayoutError::NotPositive { extent: *n }.into()),
        Value::Swizzled(l) if l.swizzle.is_identity() => Ok(l.layout.clone()),
        other => wrong("a layout", other),
    }
}

pub(super) fn integer(value: &Value) -> Result<i64, Failure> {
    match value {
        Value::Integer(n) => Ok(*n),
        other => wrong("an integer", other),
    }
}

pub(super) fn tuple(value: &Value) -> Result<HTuple<i64>, Failure> {
    value.to_htuple().map_or_else(|| wrong("an integer or a tuple", value), Ok)
}

/// A layout into whatever codomain it has.
enum Any {
    Integers(Layout),
    Coords(Layout<Coord>),
    Bits(Layout<F2>),
}

/// `$body` for the layout in `$any`, whichever type its strides have.
macro_rules! each {
    ($any:expr, $layout:ident => $body:expr) => {
        match $any {
            Any::Integers($layout) => $body,
            Any::Coords($layout) => $body,
            Any::Bits($layout) => $body,
        }
    };
}

fn any(value: &Value) -> Result<Any, Failure> {
    match value {
        Value::CoordLayout(l) => Ok(Any::Coords(l.clone())),
        Value::F2Layout(l) => Ok(Any::Bits(l.clone())),
        other => layout(other).map(Any::Integers),
    }
}

/// A shape, or that of a layout.
fn shape(value: &Value) -> Result<HTuple<i64>, Failure> {
    let shape = match value {
        Value::Layout(l) | Value::Tensor { layout: l, .. } => l.shape().clone(),
        Value::CoordLayout(l) | Value::CoordTensor { layout: l, .. } => l.shape().clone(),
        Value::F2Layout(l) => l.shape().clone(),
        Value::Swizzled(l) => l.layout.shape().clone(),
        other => tuple(other)?,
    };
    shape.check_shape()?;
    Ok(shape)
}

/// A tiler; a tuple of integers stands for one (paper 3.3.5).
fn tiler_of(value: &Value) -> Result<Tiler, Failure> {
    Ok(match value {
        Value::Tiler(t) => t.clone(),
        Value::Slice(HTuple::Leaf(None)) => Tiler::Keep,
        Value::Tuple(t) => {
            t.check_shape()?;
            Tiler::from(t)
        }
        other => Tiler::Layout(layout(other)?),
    })
}

/// The tiler of a list in angle brackets.
pub(super) fn tiler(values: &[Value]) -> Result<Tiler, Failure> {
    let tiler = Tiler::Modes(values.iter().map(tiler_of).collect::<Result<_, _>>()?);
    if tiler.depth() > MAX_DEPTH {
        return Err(LayoutError::TooDeep { limit: MAX_DEPTH }.into());
    }
    Ok(tiler)
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
    if let Some(elements) = values.iter().map(Value::to_slice).collect::<Option<Vec<_>>>() {
        let tuple = HTuple::Tuple(elements);
        if tuple.depth() > MAX_DEPTH {
            return Err(LayoutError::TooDeep { limit: MAX_DEPTH }.into());
        }
        return Ok(Value::Slice(tuple));
    }
    if let Some(elements) = values.iter().map(Value::to_coords).collect::<Option<Vec<_>>>() {
        let tuple = HTuple::Tuple(elements);
        if tuple.depth() > MAX_DEPTH {
            return Err(LayoutError::TooDeep { limit: MAX_DEPTH }.into());
        }
        return Ok(Value::CoordTuple(tuple));
    }
    if let Some(elements) = values.iter().map(Value::to_f2s).collect::<Option<Vec<_>>>() {
        let tuple = HTuple::Tuple(elements);
        if tuple.depth() > MAX_DEPTH {
            return Err(LayoutError::TooDeep { limit: MAX_DEPTH }.into());
        }
        return Ok(Value::F2Tuple(tuple));
    }
    if values.len() == 1 {
        return Ok(values.remove(0));
    }
    concat(&values)
}

/// The layouts as the modes of one; all must have values of one kind.
fn concat(values: &[Value]) -> Result<Value, Failure> {
    let (mut integers, mut coords, mut bits) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        match any(value)? {
            Any::Integers(l) => integers.push(l),
            Any::Coords(l) => coords.push(l),
            Any::Bits(l) => bits.push(l),
        }
    }
    match (integers.is_empty(), coords.is_empty(), bits.is_empty()) {
        (_, true, true) => Ok(Layout::concat(&integers)?.into()),
        (true, false, true) => Ok(Layout::concat(&coords)?.into()),
        (true, true, false) => Ok(Layout::concat(&bits)?.into()),
        _ => Err(Failure::Message("layouts of one concatenation must have values of one kind".to_string())),
    }
}

/// The accessor of a value in braces, at which a tensor begins.
pub(super) fn accessor(value: Value) -> Result<Value, Failure> {
    match value {
        Value::Integer(n) => Ok(Value::Accessor(n)),
        Value::Coord(c) => Ok(Value::CoordAccessor(c)),
        other => wrong("an integer or an element of a coordinate semimodule in braces", &other),
    }
}

/// `left ∘ right`, right applied first.
pub(super) fn compose_values(left: &Value, right: &Value) -> Result<Value, Failure> {
    match (left, right) {
        (Value::Linear(_) | Value::Affine(_), _) | (_, Value::Linear(_) | Value::Affine(_)) => {
            linear::compose(left, right)
        }
        (Value::Swizzle(_), Value::Swizzled(_) | Value::Swizzle(_)) => {
            wrong("a layout without a swizzle", right)
        }
        (Value::Swizzle(swizzle), other) => {
            let layout = layout(other)?;
            Ok(Value::Swizzled(SwizzledLayout { swizzle: *swizzle, layout }))
        }
        (Value::Swizzled(left), right) => {
            let layout = compose_layouts(&left.layout, right)?;
            Ok(Value::Swizzled(SwizzledLayout { swizzle: left.swizzle, layout }))
        }
        (Value::Accessor(0), Value::CoordLayout(l)) => tensor(Coord::default(), l.clone()),
        (Value::Accessor(offset), right) => tensor(*offset, layout(right)?),
        (Value::CoordAccessor(offset), Value::CoordLayout(l)) => tensor(offset.clone(), l.clone()),
        // Where no mode moves, the layout reads as one of integers.
        (Value::CoordAccessor(offset), Value::Layout(l)) if l.stride().leaves().iter().all(|d| **d == 0) => {
            let zeros = l.stride().map(|_| Coord::default());
            tensor(offset.clone(), Layout::new(l.shape().clone(), zeros)?)
        }
        (Value::CoordAccessor(_), other) => wrong("a coordinate layout after a coordinate accessor", other),
        (Value::Tensor { offset, layout }, right) => tensor(*offset, compose_layouts(layout, right)?),
        (Value::CoordTensor { offset, layout }, right) => {
            tensor(offset.clone(), compose_layouts(layout, right)?)
        }
        (left, right) => each!(any(left)?, l => Ok(compose_layouts(&l, right)?.into())),
    }
}

fn compose_layouts<S: Stride>(a: &Layout<S>, tile: &Value) -> Result<Layout<S>, Failure> {
    Ok(match tile {
        Value::CoordLayout(b) => algebra::compose_coordinates(a, b)?,
        Value::F2Layout(b) => algebra::compose_f2(a, b)?,
        other => match tiler_of(other)? {
            Tiler::Layout(b) => algebra::compose(a, &b)?,
            tiler => algebra::compose_tiler(a, &tiler)?,
        },
    })
}

/// The codomains that the calculator has values for.
trait Element: Stride {
    fn value(self) -> Value;
    fn tensor(offset: Self, layout: Layout<Self>) -> Result<Value, Failure>;
}

impl Element for i64 {
    fn value(self) -> Value {
        Value::Integer(self)
    }
    fn tensor(offset: i64, layout: Layout) -> Result<Value, Failure> {
        Ok(Value::Tensor { offset, layout })
    }
}

impl Element for Coord {
    fn value(self) -> Value {
        Value::Coord(self)
    }
    fn tensor(offset: Coord, layout: Layout<Coord>) -> Result<Value, Failure> {
        Ok(Value::CoordTensor { offset, layout })
    }
}

impl Element for F2 {
    fn value(self) -> Value {
        Value::F2(self)
    }
    fn tensor(offset: F2, layout: Layout<F2>) -> Result<Value, Failure> {
        if offset.is_zero() {
            return Ok(layout.into());
        }
        Err(Failure::Message(format!(
            "a slice at offset {offset} of a layout over bit strings is not a value of this calculator"
        )))
    }
}

fn tensor<S: Element>(offset: S, layout: Layout<S>) -> Result<Value, Failure> {
    S::tensor(offset, layout)
}

/// The value of a function at a coordinate: one argument is the coordinate, several are its elements. A coordinate with
/// `_` gives the slice that it leaves.
pub(super) fn apply(function: &Value, args: &[Value]) -> Result<Value, Failure> {
    if let Value::Linear(_) | Value::Affine(_) = function {
        return linear::apply(function, args);
    }
    let one =
        |v: &Value| v.to_slice().map_or_else(|| wrong("an integer, a tuple or `_` as a coordinate", v), Ok);
    let coord = match args {
        [arg] => one(arg)?,
        several => HTuple::Tuple(several.iter().map(one).collect::<Result<_, _>>()?),
    };
    match function {
        Value::Swizzle(swizzle) => match coord {
            HTuple::Leaf(Some(n)) => Ok(Value::Integer(swizzle.apply(n))),
            _ => Err(Failure::Message("a swizzle applies to one integer".to_string())),
        },
        Value::Swizzled(l) if l.swizzle.is_identity() => access(0, &l.layout, &coord),
        Value::Swizzled(l) => match access(0, &l.layout, &coord)? {
            Value::Integer(n) => Ok(Value::Integer(l.swizzle.apply(n))),
            _ => Err(Failure::Message(
                "a swizzled layout cannot be sliced: the swizzle applies after the offset".to_string(),
            )),
        },
        Value::Tensor { offset, layout } => access(*offset, layout, &coord),
        Value::CoordTensor { offset, layout } => access(offset.clone(), layout, &coord),
        Value::Layout(_) | Value::CoordLayout(_) | Value::F2Layout(_) | Value::Integer(_) => {
            each!(any(function)?, l => access(Stride::zero(), &l, &coord))
        }
        other => wrong("a layout, a tensor or a swizzle before `(`", other),
    }
}

/// A tensor at a coordinate, in full or in part (paper 2.5.1).
fn access<S: Element>(offset: S, layout: &Layout<S>, coord: &HTuple<Option<i64>>) -> Result<Value, Failure> {
    let mut sum = offset;
    match slice(layout, coord, coord, &mut sum)? {
        Some(rest) => tensor(sum, rest),
        None => Ok(sum.value()),
    }
}

/// Adds the layout's value at the given elements of `coord` to `sum`, and gives what is left of the layout at the others.
/// A tuple of which one mode is left becomes that mode.
fn slice<S: Element>(
    layout: &Layout<S>,
    coord: &HTuple<Option<i64>>,
    all: &HTuple<Option<i64>>,
    sum: &mut S,
) -> Result<Option<Layout<S>>, Failure> {
    match coord {
        HTuple::Leaf(None) => Ok(Some(layout.clone())),
        HTuple::Leaf(Some(index)) => {
            let value = layout.checked_eval(*index)?;
            *sum = sum.checked_add(&value).ok_or(LayoutError::Overflow { what: "the offset of a tensor" })?;
            Ok(None)
        }
        HTuple::Tuple(elements) if layout.depth() > 0 && elements.len() == layout.rank() => {
            let mut left = Vec::new();
            for (element, mode) in elements.iter().zip(layout.modes()) {
                left.extend(slice(&mode, element, all, sum)?);
            }
            match left.len() {
                0 => Ok(None),
                1 => Ok(left.pop()),
                _ => Ok(Some(Layout::concat(&left)?)),
            }
        }
        _ => Err(LayoutError::BadCoordinate {
            coord: Value::Slice(all.clone()).to_string(),
            shape: layout.shape().to_string(),
        }
        .into()),
    }
}

type Whole<S> = fn(&Layout<S>, &Layout) -> Result<Layout<S>, LayoutError>;
type ByMode<S> = fn(&Layout<S>, &Tiler) -> Result<Layout<S>, LayoutError>;

fn split<S: Stride>(
    a: &Layout<S>,
    tile: &Value,
    whole: Whole<S>,
    each: ByMode<S>,
) -> Result<Layout<S>, Failure> {
    Ok(match tiler_of(tile)? {
        Tiler::Layout(tile) => whole(a, &tile)?,
        tiler => each(a, &tiler)?,
    })
}

/// A division of whatever can be divided: layouts, and what is composed with one.
macro_rules! divide {
    ($a:expr, $tile:expr, $whole:path, $each:path) => {
        match $a {
            Value::Swizzled(l) if !l.swizzle.is_identity() => Ok(Value::Swizzled(SwizzledLayout {
                swizzle: l.swizzle,
                layout: split(&l.layout, $tile, $whole, $each)?,
            })),
            Value::Tensor { offset, layout } => tensor(*offset, split(layout, $tile, $whole, $each)?),
            Value::CoordTensor { offset, layout } => {
                tensor(offset.clone(), split(layout, $tile, $whole, $each)?)
            }
            a => each!(any(a)?, l => Ok(split(&l, $tile, $whole, $each)?.into())),
        }
    };
}

/// The value of the function `name`, which [`exists`], at `args`.
pub(super) fn call(name: &str, args: &[Value]) -> Result<Value, Failure> {
    let of_layout = |l: Layout| Ok(Value::Layout(l));
    if let Some(value) = linear::call(name, args)? {
        return Ok(value);
    }
    match (name, args) {
        ("compose", [first, rest @ ..]) if !rest.is_empty() => {
            rest.iter().try_fold(first.clone(), |left, right| compose_values(&left, right))
        }
        ("coalesce", [a]) => each!(any(a)?, a => Ok(algebra::coalesce(&a).into())),
        ("coalesce", [a, profile]) => {
            each!(any(a)?, a => Ok(algebra::coalesce_by(&a, &profile_of(profile)?)?.into()))
        }
        ("complement", [Value::CoordLayout(a)]) => Ok(algebra::complement_coordinates(a, None)?.into()),
        ("complement", [Value::CoordLayout(a), s]) => {
            Ok(algebra::complement_coordinates(a, Some(&shape(s)?))?.into())
        }
        ("complement", [a]) => of_layout(algebra::complement_unbounded(&layout(a)?)?),
        ("complement", [a, Value::Tuple(n)]) => {
            of_layout(algebra::by_profile(&layout(a)?, n, &mut |mode, n| algebra::complement(mode, *n))?)
        }
        ("complement", [a, n]) => of_layout(algebra::complement(&layout(a)?, integer(n)?)?),
        ("right_inverse", [a]) => Ok(match any(a)? {
            Any::Integers(a) => algebra::right_inverse(&a).into(),
            Any::Coords(a) => algebra::right_inverse_coordinates(&a)?.into(),
            Any::Bits(a) => algebra::right_inverse_f2(&a)?.into(),
        }),
        ("left_inverse", [a]) => Ok(match any(a)? {
            Any::Integers(a) => algebra::left_inverse(&a)?.into(),
            Any::Coords(a) => algebra::left_inverse_coordinates(&a)?.into(),
            Any::Bits(a) => algebra::left_inverse_f2(&a)?.into(),
        }),
        ("inverse", [a]) => Ok(match any(a)? {
            Any::Integers(a) => algebra::inverse(&a)?.into(),
            Any::Coords(a) => algebra::inverse_coordinates(&a)?.into(),
            Any::Bits(a) => algebra::inverse_f2(&a)?.into(),
        }),
        ("right_inverse", [a, profile]) => by_profile(a, profile, |mode| Ok(algebra::right_inverse(mode))),
        ("left_inverse", [a, profile]) => by_profile(a, profile, algebra::left_inverse),
        ("inverse", [a, profile]) => by_profile(a, profile, algebra::inverse),
        ("nullspace", [a, profile]) => by_profile(a, profile, |mode| Ok(algebra::nullspace(mode))),
        ("nullspace", [a]) => Ok(match any(a)? {
            Any::Integers(a) => algebra::nullspace(&a).into(),
            Any::Coords(a) => algebra::nullspace(&a).into(),
            Any::Bits(a) => algebra::nullspace_f2(&a)?.into(),
        }),
        ("to_f2", [Value::Swizzled(a)]) => Ok(a.to_f2()?.into()),
        ("to_f2", [a]) => Ok(algebra::to_f2(&layout(a)?)?.into()),
        ("from_f2", [a]) => match a {
            Value::F2Layout(a) => of_layout(algebra::from_f2(a)?),
            other => wrong("a layout over bit strings", other),
        },
        ("recast", [a, from, to]) => of_layout(algebra::recast(&layout(a)?, integer(from)?, integer(to)?)?),
        ("max_common_layout", [a, b]) => of_layout(algebra::max_common_layout(&layout(a)?, &layout(b)?)),
        ("max_common_vector", [a, b]) => {
            Ok(Value::Integer(algebra::max_common_vector(&layout(a)?, &layout(b)?)))
        }
        ("admissible", [a, t]) => of_layout(algebra::admissible(&layout(a)?, &layout(t)?)?),
        ("ordered", [s, order]) => of_layout(Layout::ordered(shape(s)?, &tuple(order)?)?),
        ("tile_to_shape", [Value::Swizzled(a), s, order]) => {
            Ok(Value::Swizzled(a.tile_to_shape(&shape(s)?, &tuple(order)?)?))
        }
        ("tile_to_shape", [a, s, order]) => {
            of_layout(algebra::tile_to_shape(&layout(a)?, &shape(s)?, &tuple(order)?)?)
        }
        ("logical_divide", [a, Value::CoordLayout(t)]) => {
            each!(any(a)?, a => Ok(algebra::logical_divide_coordinates(&a, t)?.into()))
        }
        ("logical_product", [Value::CoordLayout(a), Value::CoordLayout(b)]) => {
            Ok(algebra::logical_product_coordinates(a, b)?.into())
        }
        ("logical_divide", [a, t]) => {
            divide!(a, t, algebra::logical_divide, algebra::logical_divide_tiler)
        }
        ("zipped_divide", [a, t]) => {
            divide!(a, t, algebra::zipped_divide, algebra::zipped_divide_tiler)
        }
        ("tiled_divide", [a, t]) => {
            divide!(a, t, algebra::tiled_divide, algebra::tiled_divide_tiler)
        }
        ("flat_divide", [a, t]) => {
            divide!(a, t, algebra::flat_divide, algebra::flat_divide_tiler)
        }
        ("logical_product", [a, b]) => {
            of_layout(split(&layout(a)?, b, algebra::logical_product, algebra::logical_product_tiler)?)
        }
        ("zipped_product", [a, b]) => {
            of_layout(split(&layout(a)?, b, algebra::zipped_product, algebra::zipped_product_tiler)?)
        }
        ("tiled_product", [a, b]) => {
            of_layout(split(&layout(a)?, b, algebra::tiled_product, algebra::tiled_product_tiler)?)
        }
        ("flat_product", [a, b]) => {
            of_layout(split(&layout(a)?, b, algebra::flat_product, algebra::flat_product_tiler)?)
        }
        ("blocked_product", [a, b]) => {
            of_layout(split(&layout(a)?, b, algebra::blocked_product, algebra::blocked_product_tiler)?)
        }
        ("raked_product", [a, b]) => {
            of_layout(split(&layout(a)?, b, algebra::raked_product, algebra::raked_product_tiler)?)
        }
        ("concat", all) => concat(all),
        ("flatten", [a]) => each!(any(a)?, a => Ok(a.flatten().into())),
        ("mode", [a, n]) => {
            let n = usize::try_from(integer(n)?).unwrap_or(usize::MAX);
            each!(any(a)?, a => Ok(a.mode(n)?.into()))
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
            None => undecided("this layout is injective"),
        },
        ("compact", [a]) => Ok(Value::Bool(layout(a)?.is_compact())),
        ("congruent", [a, b]) => Ok(Value::Bool(shape(a)?.congruent(&shape(b)?))),
        ("weakly_congruent", [a, b]) => Ok(Value::Bool(shape(a)?.weakly_congruent(&shape(b)?))),
        ("idx2crd", [n, a]) => Ok(Value::from_htuple(algebra::idx2crd(integer(n)?, &shape(a)?))),
        ("crd2idx", [c, a]) => Ok(Value::Integer(algebra::crd2idx(&tuple(c)?, &shape(a)?)?)),
        ("equal", [a, b]) => equal(a, b),
        ("surjective", [a]) => surjective(&layout(a)?, layout(a)?.cosize()),
        ("surjective", [a, n]) => surjective(&layout(a)?, integer(n)?),
        ("bijective", [a]) => Ok(Value::Bool(layout(a)?.is_compact())),
        ("bijective", [a, n]) => Ok(Value::Bool(layout(a)?.is_bijective_onto(integer(n)?))),
        ("compatible", [a, b]) => Ok(Value::Bool(shape(a)?.compatible(&shape(b)?))),
        ("size", [a]) => Ok(Value::Integer(shape(a)?.size()?)),
        ("rank", [a]) => Ok(Value::Integer(shape(a)?.rank() as i64)),
        ("depth", [a]) => Ok(Value::Integer(shape(a)?.depth() as i64)),
        ("shape", [a]) => Ok(Value::from_htuple(shape(a)?)),
        ("cosize", [a]) => Ok(Value::Integer(layout(a)?.cosize())),
        ("stride", [a]) => Ok(match any(a)? {
            Any::Integers(a) => Value::from_htuple(a.stride().clone()),
            Any::Coords(a) => Value::from_coords(a.stride().clone()),
            Any::Bits(a) => Value::from_f2(a.stride().clone()),
        }),
        ("layout", [a]) => match a {
            Value::Swizzled(l) => of_layout(l.layout.clone()),
            Value::Tensor { layout, .. } => of_layout(layout.clone()),
            Value::CoordTensor { layout, .. } => Ok(layout.clone().into()),
            a => each!(any(a)?, a => Ok(a.into())),
        },
        _ => {
            let usage = FUNCTIONS.iter().find(|(n, _)| *n == name).map_or("", |(_, usage)| usage);
            Err(Failure::Message(format!("wrong number of arguments ({}); usage: {usage}", args.len())))
        }
    }
}

/// A function of layouts, applied to the parts that a profile names.
fn by_profile(
    a: &Value,
    profile: &Value,
    operation: impl Fn(&Layout) -> Result<Layout, LayoutError>,
) -> Result<Value, Failure> {
    Ok(algebra::by_profile(&layout(a)?, &profile_of(profile)?, &mut |mode, _| operation(mode))?.into())
}

/// A profile: what its leaves are does not matter.
fn profile_of(value: &Value) -> Result<HTuple<Option<i64>>, Failure> {
    match value {
        Value::Layout(_) | Value::CoordLayout(_) | Value::F2Layout(_) => Ok(shape(value)?.map(|n| Some(*n))),
        other => other.to_slice().map_or_else(|| wrong("a tuple as a profile", other), Ok),
    }
}

/// True if both are the same function of integral coordinates: coalescing decides it.
fn equal(a: &Value, b: &Value) -> Result<Value, Failure> {
    let same = match (any(a)?, any(b)?) {
        (Any::Integers(a), Any::Integers(b)) => algebra::coalesce(&a) == algebra::coalesce(&b),
        (Any::Coords(a), Any::Coords(b)) => algebra::coalesce(&a) == algebra::coalesce(&b),
        (Any::Bits(a), Any::Bits(b)) => {
            if a.size() != b.size() || a.size() > BUDGET as i64 {
                let small = a.size() != b.size();
                return if small { Ok(Value::Bool(false)) } else { undecided("these layouts are equal") };
            }
            work::pay_for(a.size(), 0)?;
            a.image() == b.image()
        }
        _ => false,
    };
    Ok(Value::Bool(same))
}

fn undecided<T>(question: &str) -> Result<T, Failure> {
    Err(Failure::Message(format!("whether {question} takes too long to decide")))
}

fn surjective(a: &Layout, n: i64) -> Result<Value, Failure> {
    if n > a.size() {
        return Ok(Value::Bool(false));
    }
    if algebra::right_inverse(a).size() >= n {
        return Ok(Value::Bool(true));
    }
    if a.size() > BUDGET as i64 {
        return undecided("this layout is surjective");
    }
    work::pay_for(a.size(), 0)?;
    let mut seen = vec![false; usize::try_from(n).unwrap_or(0)];
    for value in a.image() {
        if let Some(seen) = usize::try_from(value).ok().and_then(|v| seen.get_mut(v)) {
            *seen = true;
        }
    }
    Ok(Value::Bool(seen.into_iter().all(|s| s)))
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
