//! The calculator's functions of linear layouts. Names of dimensions are written in brackets: `[lane]`, `[x:4, y:2]`.

use crate::amd::{Mfma, Wmma};
use crate::functions::{Failure, integer, layout, tuple, wrong};
use crate::value::{Names, Value};
use tilewright_layout::{
    AffineLayout, Blocked, Dim, Exchange, LayoutError, LinearLayout, MmaOperand, NvmmaShared, Reorder,
    SharedAccess, optimal_swizzle, wavefronts,
};

type Answer = Result<Value, Failure>;

fn fail<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Message(message.into()))
}

/// True if a function that other layouts have, too, is asked about linear ones.
fn is_linear(args: &[Value]) -> bool {
    args.iter().any(|a| matches!(a, Value::Linear(_) | Value::Affine(_)))
}

fn linear(value: &Value) -> Result<&LinearLayout, Failure> {
    match value {
        Value::Linear(l) => Ok(l),
        Value::Affine(_) => fail("expected a linear layout, found an affine one"),
        Value::Layout(_) | Value::F2Layout(_) | Value::Swizzled(_) => fail(format!(
            "expected a linear layout, found {}; to_linear(…) of it may be one",
            value.described()
        )),
        other => wrong("a linear layout", other),
    }
}

fn affine(value: &Value) -> Result<AffineLayout, Failure> {
    match value {
        Value::Affine(l) => Ok(l.clone()),
        other => linear(other).map(|l| l.clone().into()),
    }
}

fn names(value: &Value) -> Result<&Names, Failure> {
    match value {
        Value::Names(names) => Ok(names),
        other => wrong("names in brackets such as [x, y]", other),
    }
}

/// Names alone.
fn bare(value: &Value) -> Result<Vec<&str>, Failure> {
    Ok(names(value)?.iter().map(|(name, _)| name.as_str()).collect())
}

/// One name alone.
fn name(value: &Value) -> Result<&str, Failure> {
    match bare(value)?[..] {
        [one] => Ok(one),
        _ => wrong("one name in brackets such as [x]", value),
    }
}

/// Names, all with a number.
fn numbered(value: &Value) -> Result<Vec<(&str, u64)>, Failure> {
    let all = names(value)?.iter().map(|(name, n)| n.map(|n| (name.as_str(), n)));
    match all.collect::<Option<Vec<_>>>() {
        Some(all) => Ok(all),
        None => wrong("a number for each name, as in [x:4, y:2]", value),
    }
}

fn natural(value: &Value) -> Result<u64, Failure> {
    match integer(value)? {
        n if n >= 0 => Ok(n as u64),
        n => fail(format!("expected an integer that is not negative, found {n}")),
    }
}

/// A number that counts something of this program.
fn index(value: &Value) -> Result<usize, Failure> {
    Ok(usize::try_from(natural(value)?).unwrap_or(usize::MAX))
}

fn flag(value: &Value) -> Result<bool, Failure> {
    match integer(value)? {
        0 => Ok(false),
        1 => Ok(true),
        n => fail(format!("expected 0 or 1, found {n}")),
    }
}

/// A flat list of sizes.
fn sizes(value: &Value) -> Result<Vec<u64>, Failure> {
    tuple(value)?.leaves().into_iter().map(|n| natural(&Value::Integer(*n))).collect()
}

fn pair(value: &Value) -> Result<[u64; 2], Failure> {
    let sizes = sizes(value)?;
    <[u64; 2]>::try_from(sizes).or_else(|_| wrong("two integers", value))
}

fn order(value: &Value) -> Result<Vec<usize>, Failure> {
    Ok(sizes(value)?.into_iter().map(|k| usize::try_from(k).unwrap_or(usize::MAX)).collect())
}

fn operand(value: &Value) -> Result<MmaOperand, Failure> {
    match integer(value)? {
        0 => Ok(MmaOperand::A),
        1 => Ok(MmaOperand::B),
        2 => Ok(MmaOperand::C),
        n => fail(format!("expected operand 0, 1 or, for the accumulator, 2; found {n}")),
    }
}

/// log₂ of a power of two, of anything else more than any limit.
fn log(value: &Value) -> Result<u32, Failure> {
    let n = natural(value)?;
    if n.is_power_of_two() { Ok(n.trailing_zeros()) } else { fail(format!("{n} is not a power of two")) }
}

fn whole(n: u64) -> Value {
    Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Vectors over some dimensions as a layout that leads from their numbers to them.
fn vectors(input: &str, over: &[Dim], columns: Vec<u64>) -> Answer {
    let ins = vec![Dim::new(input, columns.len() as u32)];
    Ok(LinearLayout::from_columns(ins, over.to_vec(), columns)?.into())
}

/// The same map with other dimensions: a name without a number has all bits that are left.
fn regroup(layout: &LinearLayout, ins: &Value, outs: &Value) -> Answer {
    let dims = |value: &Value, bits: u32, exact: bool| -> Result<Vec<Dim>, Failure> {
        let mut dims = Vec::new();
        let mut left = bits;
        for (name, size) in names(value)? {
            let here = match size {
                Some(size) => log(&whole(*size))?,
                None => left,
            };
            left = left.saturating_sub(here);
            dims.push(Dim::new(name.clone(), here));
        }
        let all: u32 = dims.iter().map(|d| d.bits).sum();
        if all < bits || (exact && all > bits) {
            return fail(format!("{value} does not have the 2^{bits} indices of {layout}"));
        }
        Ok(dims)
    };
    let (ins, outs) = (dims(ins, layout.in_bits(), true)?, dims(outs, layout.out_bits(), false)?);
    Ok(LinearLayout::from_columns(ins, outs, layout.columns().to_vec())?.into())
}

/// A layout of another kind as a linear one.
fn to_linear(value: &Value) -> Result<LinearLayout, Failure> {
    Ok(match value {
        Value::Linear(l) => l.clone(),
        Value::F2Layout(l) => LinearLayout::from_f2_layout(l, "index", "offset")?,
        Value::Swizzled(l) => LinearLayout::from_swizzled(l, "index", "offset")?,
        other => LinearLayout::from_layout(&layout(other)?, "index", "offset")?,
    })
}

fn or_none<T>(found: Option<T>, reason: impl FnOnce() -> String) -> Result<T, Failure> {
    found.map_or_else(|| fail(reason()), Ok)
}

/// The composition of linear or affine layouts.
pub(super) fn compose(left: &Value, right: &Value) -> Answer {
    match (left, right) {
        (Value::Linear(a), Value::Linear(b)) => Ok(a.compose(b)?.into()),
        (a, b) => Ok(affine(a)?.compose(&affine(b)?)?.into()),
    }
}

/// The value at a flat index, `L(5)`, or at an index for each input, `L([lane:3])`.
pub(super) fn apply(function: &Value, args: &[Value]) -> Answer {
    let layout = affine(function)?;
    let (ins, outs) = (layout.linear().ins(), layout.linear().outs());
    let flat = match args {
        [Value::Names(_)] => {
            let mut flat = 0;
            for (name, index) in numbered(&args[0])? {
                let Some(k) = ins.iter().position(|d| d.name == name) else {
                    return fail(format!("{name} is not an input of {function}"));
                };
                if index >= ins[k].size() {
                    return fail(format!("index {index} of {name} must be below {}", ins[k].size()));
                }
                flat |= index << ins[..k].iter().map(|dim| dim.bits).sum::<u32>();
            }
            flat
        }
        [flat] => {
            let (flat, bits) = (natural(flat)?, layout.linear().in_bits());
            if flat >> bits != 0 {
                return fail(format!("index {flat} must be below 2^{bits}"));
            }
            flat
        }
        _ => {
            return fail("a linear layout applies to one integer or to named indices, as in L([lane:3])");
        }
    };
    let values = layout.linear().unflatten_out(layout.at(flat));
    Ok(match values[..] {
        [one] => whole(one),
        _ => Value::Names(outs.iter().map(|o| o.name.clone()).zip(values.into_iter().map(Some)).collect()),
    })
}

fn named(fields: Vec<(&str, Value)>) -> Value {
    Value::Record(fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

/// Fields of a record about one side of an exchange through shared memory: vector, instructions and wavefronts.
fn access_fields<'a>(
    names: [&'a str; 3],
    layout: &LinearLayout,
    access: &SharedAccess,
) -> Result<Vec<(&'a str, Value)>, Failure> {
    let register = Dim::new("register", layout.bases("register").len() as u32);
    let bits = access.vector.iter().map(|bit| 1 << bit).collect();
    Ok(vec![
        (names[0], vectors("vector", &[register], bits)?),
        (names[1], whole(access.instructions)),
        (names[2], whole(access.wavefronts)),
    ])
}

fn exchange_fields(a: &LinearLayout, b: &LinearLayout) -> Answer {
    let reorder = Reorder::new(a, b)?;
    let word = match reorder.exchange {
        Exchange::Nothing => "nothing",
        Exchange::Registers => "registers",
        Exchange::Lanes => "lanes",
        Exchange::Warps => "warps",
    };
    let mut fields = vec![
        ("exchange", Value::Names(vec![(word.to_string(), None)])),
        ("source", reorder.source.clone().into()),
    ];
    if matches!(reorder.exchange, Exchange::Lanes) {
        fields.push(("shuffles", whole(reorder.exchanges())));
    }
    Ok(named(fields))
}

/// The value of a function of linear layouts; `None` where `name` with such arguments is none.
pub(super) fn call(function: &str, args: &[Value]) -> Result<Option<Value>, Failure> {
    let of = |l: Result<LinearLayout, LayoutError>| -> Answer { Ok(l?.into()) };
    let register = || Value::Names(vec![("register".to_string(), None)]);
    let shared = matches!(
        function,
        "compose"
            | "inverse"
            | "right_inverse"
            | "image"
            | "rank"
            | "injective"
            | "surjective"
            | "bijective"
            | "equal"
            | "eval"
            | "to_f2"
    );
    if shared && !is_linear(args) {
        return Ok(None);
    }
    tilewright_layout::work::pay(args.iter().map(cost).sum())?;
    let value = match (function, args) {
        // The algebra.
        ("compose", [first, rest @ ..]) if !rest.is_empty() => {
            rest.iter().try_fold(first.clone(), |left, right| compose(&left, right))
        }
        ("product", [a, b]) => of(linear(a)?.product(linear(b)?)),
        ("left_divide", [a, b]) => {
            let q = linear(a)?.left_divide(linear(b)?);
            Ok(or_none(q, || format!("there is no q with {b} × q = {a}"))?.into())
        }
        ("right_divide", [a, b]) => {
            let q = linear(a)?.right_divide(linear(b)?);
            Ok(or_none(q, || format!("there is no q with q × {b} = {a}"))?.into())
        }
        ("inverse", [a]) => of(linear(a)?.inverse()),
        ("right_inverse", [a]) => of(linear(a)?.right_inverse()),
        ("invert_and_compose", [a, b]) => of(linear(a)?.invert_and_compose(linear(b)?)),
        ("kernel", [a]) => linear(a).and_then(|a| vectors("kernel", a.ins(), a.kernel())),
        ("image", [a]) => linear(a).and_then(|a| vectors("image", a.outs(), a.image())),
        ("rank", [a]) => Ok(Value::Integer(i64::from(linear(a)?.rank()))),
        ("injective", [a]) => Ok(Value::Bool(linear(a)?.is_injective())),
        ("surjective", [a]) => Ok(Value::Bool(linear(a)?.is_surjective())),
        ("bijective", [a]) => Ok(Value::Bool(linear(a)?.is_bijective())),
        ("distributed", [a]) => Ok(Value::Bool(linear(a)?.is_distributed())),
        ("memory_layout", [a]) => Ok(Value::Bool(linear(a)?.is_memory())),
        ("equal", [a, b]) => Ok(Value::Bool(affine(a)? == affine(b)?)),
        ("equal_up_to_broadcast", [a, b]) => Ok(Value::Bool(linear(a)?.equal_up_to_broadcast(linear(b)?))),
        ("sublayout", [a, ins, outs]) => of(linear(a)?.sublayout(&bare(ins)?, &bare(outs)?)),
        ("free_bits", [a]) => {
            let free = linear(a)?.free_bits();
            Ok(Value::Names(free.into_iter().map(|(name, mask)| (name.to_string(), Some(mask))).collect()))
        }
        ("without_zeros", [a]) => Ok(linear(a)?.without_zeros().into()),
        ("copies", [a]) => Ok(whole(linear(a)?.copies())),
        ("eval", [a, rest @ ..]) if !rest.is_empty() => apply(a, rest),
        ("matrix", [a]) => Ok(Value::Text(linear(a)?.matrix())),
        // Shapes.
        ("transpose", [a, names]) => of(linear(a)?.transpose(&bare(names)?)),
        ("reshape", [a, outs]) => of(linear(a)?.reshape(&numbered(outs)?)),
        ("expand", [a, at, mode]) => of(linear(a)?.expand(index(at)?, name(mode)?)),
        ("broadcast", [a, register, mode]) => match numbered(mode)?[..] {
            [(mode, size)] => of(linear(a)?.broadcast(name(register)?, mode, size)),
            _ => wrong("one name with its size, such as [x:4]", mode),
        },
        ("join", [a, register, mode]) => of(linear(a)?.join(name(register)?, name(mode)?)),
        ("split", [a, mode]) => of(linear(a)?.split(name(mode)?)),
        ("slice", [a, mode]) => of(linear(a)?.slice(name(mode)?)),
        ("slice", [a, mode, start, size]) => {
            Ok(affine(a)?.slice_mode(name(mode)?, natural(start)?, natural(size)?)?.into())
        }
        ("sliced", [a, mode]) => of(linear(a)?.sliced(index(mode)?)),
        ("flip", [a, mode]) => Ok(affine(a)?.flip(name(mode)?)?.into()),
        ("cover", [a, order_, shape]) => of(linear(a)?.cover(&sizes(shape)?, &order(order_)?)),
        // Other kinds of layouts.
        ("to_linear", [a]) => Ok(to_linear(a)?.into()),
        ("to_linear", [a, ins, outs]) => regroup(&to_linear(a)?, ins, outs),
        ("to_layout", [a]) => {
            let layout = linear(a)?.to_layout();
            Ok(or_none(layout, || {
                format!("two columns of {a} share a bit: no layout over integers is equal")
            })?
            .into())
        }
        ("to_swizzled", [a]) => {
            let layout = linear(a)?.to_swizzled();
            Ok(Value::Swizzled(or_none(layout, || format!("no swizzle of a layout is equal to {a}"))?))
        }
        ("to_f2", [a]) => Ok(linear(a)?.to_f2_layout()?.into()),
        // Code generation.
        ("contiguous", [a]) => Ok(whole(linear(a)?.contiguous("register"))),
        ("contiguous", [a, input]) => Ok(whole(linear(a)?.contiguous(name(input)?))),
        ("vector_bits", [a]) => return call(function, &[a.clone(), register()]),
        ("vector_bits", [a, input]) => {
            let (a, input) = (linear(a)?, name(input)?);
            let bits = a.vector_bits(input).into_iter().map(|bit| 1 << bit).collect();
            vectors("vector", &[Dim::new(input, a.bases(input).len() as u32)], bits)
        }
        ("divide_permuting", [a, tile]) => return call(function, &[a.clone(), tile.clone(), register()]),
        ("divide_permuting", [a, tile, input]) => {
            let input = name(input)?;
            let found = linear(a)?.divide_permuting(linear(tile)?, input);
            let (order, quotient) =
                or_none(found, || format!("no order of {input} makes {tile} divide {a}"))?;
            let dim = Dim::new(input, order.len() as u32);
            let order = vectors(input, &[dim], order.into_iter().map(|bit| 1 << bit).collect())?;
            Ok(named(vec![("order", order), ("quotient", quotient.into())]))
        }
        ("wavefronts", [memory, a, bytes, vector]) => {
            Ok(whole(wavefronts(linear(memory)?, linear(a)?, log(bytes)?, log(vector)?)?))
        }
        ("optimal_swizzle", [a, b, bits]) => {
            let (a, b) = (linear(a)?, linear(b)?);
            let bits = u32::try_from(natural(bits)?).unwrap_or(u32::MAX);
            let (memory, store, load) = optimal_swizzle(a, b, bits)?;
            let mut fields = vec![("memory", memory.into())];
            fields.extend(access_fields(["store_vector", "stores", "store_wavefronts"], a, &store)?);
            fields.extend(access_fields(["load_vector", "loads", "load_wavefronts"], b, &load)?);
            Ok(named(fields))
        }
        ("reorder", [a, b]) => exchange_fields(linear(a)?, linear(b)?),
        // Families.
        ("identity1d", [n, i, o]) => of(LinearLayout::identity(natural(n)?, name(i)?, name(o)?)),
        ("strided1d", [n, stride, i, o]) => {
            of(LinearLayout::strided(natural(n)?, natural(stride)?, name(i)?, name(o)?))
        }
        ("zeros1d", [n, size, i, o]) => {
            of(LinearLayout::zeros(natural(n)?, natural(size)?, name(i)?, name(o)?))
        }
        ("blocked", [registers, lanes, warps, order, shape]) => {
            of(blocked([registers, lanes, warps, order])?.layout(&sizes(shape)?))
        }
        ("blocked_operand", [o, registers, lanes, warps, order, shape]) => {
            of(blocked([registers, lanes, warps, order])?.operand(operand(o)?, &sizes(shape)?))
        }
        ("mma_tile", [o, vector]) => of(LinearLayout::mma_tile(operand(o)?, natural(vector)?)),
        ("mma", [warps, shape]) => of(LinearLayout::mma(MmaOperand::C, 2, &sizes(warps)?, &sizes(shape)?)),
        ("mma_operand", [o, vector, warps, shape]) => {
            of(LinearLayout::mma(operand(o)?, natural(vector)?, &sizes(warps)?, &sizes(shape)?))
        }
        ("wgmma", [n, warps, shape]) => of(LinearLayout::wgmma(natural(n)?, pair(warps)?, pair(shape)?)),
        ("wgmma_left", [vector, warps, shape]) => {
            of(LinearLayout::wgmma_left(natural(vector)?, pair(warps)?, pair(shape)?))
        }
        ("ldmatrix_tile", [bytes]) => of(LinearLayout::ldmatrix_tile(natural(bytes)?)),
        ("mfma", [tile, transposed, wide, tiles, warps, shape]) => {
            of(mfma([tile, transposed, wide, tiles, warps])?.layout(&sizes(shape)?))
        }
        ("mfma_operand", [o, vector, tile, transposed, wide, tiles, warps, shape]) => {
            let mfma = mfma([tile, transposed, wide, tiles, warps])?;
            of(mfma.operand(operand(o)?, natural(vector)?, &sizes(shape)?))
        }
        ("wmma", [version, transposed, grid, shape]) => {
            of(wmma([version, transposed, grid])?.layout(pair(shape)?))
        }
        ("wmma_operand", [o, vector, depth, version, transposed, grid, shape]) => {
            let wmma = wmma([version, transposed, grid])?;
            of(wmma.operand(operand(o)?, natural(vector)?, natural(depth)?, pair(shape)?))
        }
        ("unswizzled", [order_, shape]) => of(LinearLayout::unswizzled(&sizes(shape)?, &order(order_)?)),
        ("swizzled", [vector, per_phase, max_phase, order_, shape]) => {
            let (shape, order) = (sizes(shape)?, order(order_)?);
            let [vector, per_phase, max_phase] = [natural(vector)?, natural(per_phase)?, natural(max_phase)?];
            of(LinearLayout::mma_swizzled(&shape, &order, vector, per_phase, max_phase))
        }
        ("nvmma", [swizzle, bits, transposed, padded, shape]) => {
            let (transposed, padded) = (flag(transposed)?, flag(padded)?);
            let shared =
                NvmmaShared { swizzle_bytes: natural(swizzle)?, bits: natural(bits)?, transposed, padded };
            of(shared.layout(&sizes(shape)?))
        }
        _ => return Ok(None),
    };
    value.map(Some)
}

/// The steps that a function of this value takes, about: its columns, as vectors over all dimensions, among each other.
fn cost(value: &Value) -> usize {
    let of = |l: &LinearLayout| {
        let (columns, dims) = (l.columns().len(), l.ins().len() + l.outs().len());
        256 + columns * (columns + dims * dims / 4)
    };
    match value {
        Value::Linear(l) => of(l),
        Value::Affine(l) => of(l.linear()),
        _ => 0,
    }
}

fn blocked([registers, lanes, warps, modes]: [&Value; 4]) -> Result<Blocked, Failure> {
    let (registers, lanes, warps) = (sizes(registers)?, sizes(lanes)?, sizes(warps)?);
    Ok(Blocked { registers, lanes, warps, order: order(modes)? })
}

fn mfma([tile, transposed, wide, tiles, warps]: [&Value; 5]) -> Result<Mfma, Failure> {
    let (tile, transposed, wide) = (pair(tile)?, flag(transposed)?, flag(wide)?);
    Ok(Mfma { tile, transposed, wide, tiles: sizes(tiles)?, warps: sizes(warps)? })
}

fn wmma([version, transposed, grid]: [&Value; 3]) -> Result<Wmma, Failure> {
    let version = u32::try_from(natural(version)?).unwrap_or(u32::MAX);
    Ok(Wmma { version, transposed: flag(transposed)?, grid: linear(grid)?.clone() })
}
