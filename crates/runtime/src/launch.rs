//! Checks of a launch, the same on every device.

use std::collections::BTreeMap;

use tilewright_compiler::{Kernel, MAX_EXTENT, MapRecipe};
use tilewright_machine::DType;
use tilewright_simt::FunctionParamKind;
use tilewright_tile::interpret::{
    InterpretError, Quote, check_ranges, grid, size_values, tensor_len, tensor_shape,
};
use tilewright_tile::{Axis, Expr, ParamId, ParamKind, Scope, SymbolId};

use crate::arg::{Arg, Sizes};
use crate::buffer::{Buffer, DeviceId};
use crate::error::{MapDimension, RuntimeError, TensorMapError};
use crate::sequence::Uses;

/// Bytes between elements of a tensor map are below this.
const STRIDE_LIMIT: i64 = 1 << 40;

/// The sizes that a kernel's program declares, with their defaults.
pub fn default_sizes(kernel: &Kernel) -> Sizes {
    kernel.program().sizes().map(|(_, symbol, default)| (symbol.name.clone(), default)).collect()
}

/// One parameter of the kernel's function, with its value.
#[derive(Clone, Debug)]
pub(crate) enum Passed<'a> {
    /// A pointer to this buffer.
    Buffer(&'a Buffer),
    /// A pointer to pointers to these buffers.
    Buffers(Vec<&'a Buffer>),
    /// The bits of a number of a kind, or of a size.
    Number(FunctionParamKind, u64),
    /// A tensor map.
    TensorMap(Mapped<'a>),
    /// A pointer to tensor maps, which have the buffers' addresses and are alike otherwise.
    TensorMaps(Mapped<'a>),
}

/// A tensor for a tensor map, checked by the rules of `cuTensorMapEncodeTiled` but for the address.
#[derive(Clone, Debug)]
pub(crate) struct Mapped<'a> {
    /// Index into the function's tensor maps.
    pub(crate) map: u32,
    /// It begins at the buffer's first byte; of several tensor maps, each at that of one.
    pub(crate) buffers: Vec<&'a Buffer>,
    /// Extents in elements, dimension 0 first.
    pub(crate) extents: Vec<u64>,
    /// Bytes from one element to the next along dimensions 1, 2, …; dimension 0 is contiguous.
    pub(crate) strides: Vec<u64>,
}

/// A launch that passed every check that needs no device.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// Sizes, in the order of their declaration.
    pub(crate) sizes: Vec<i64>,
    /// Blocks along x, y and z.
    pub(crate) grid: [u32; 3],
    /// The parameters of [`Kernel::function`], in order.
    pub(crate) params: Vec<Passed<'a>>,
}

/// Checks sizes, grid and arguments of a launch on `device`, whose name is for messages.
pub(crate) fn check<'a>(
    kernel: &Kernel,
    sizes: &Sizes,
    args: &[Arg<'a>],
    device: DeviceId,
    device_name: &str,
) -> Result<Launch<'a>, RuntimeError> {
    let program = kernel.program();
    let name = || program.name.clone();
    let failed = |error| RuntimeError::Sizes { kernel: name(), error: Box::new(error) };

    // Refuses sizes that the kernel lacks, and such as are not positive; then grids that hardware does not take.
    let values = size_values(&kernel.verified, sizes).map_err(failed)?;
    let size_params = check_sizes(kernel, &values)?;
    let grid = grid(&kernel.verified, sizes).map_err(failed)?;
    // The grid is made of whole clusters of the program; those of the code are the same.
    if !grid[0].is_multiple_of(kernel.function.cluster.max(1)) {
        return Err(RuntimeError::Inconsistent { kernel: name() });
    }

    if args.len() != program.params.len() {
        let params: Vec<&str> = program.params.iter().map(|p| p.name.as_str()).collect();
        return Err(RuntimeError::ArgumentCount {
            kernel: name(),
            expected: program.params.len(),
            params: params.join(", "),
            given: args.len(),
        });
    }
    check_ranges(&kernel.verified, sizes, &integers(args)).map_err(failed)?;
    let mut params = Vec::with_capacity(kernel.function.params.len());
    let mut buffers = BTreeMap::new();
    for (i, (param, arg)) in program.params.iter().zip(args).enumerate() {
        let kind = |expected, given| {
            Err(RuntimeError::ArgumentKind { kernel: name(), param: param.name.clone(), expected, given })
        };
        let array = match (&param.kind, arg) {
            (ParamKind::Scalar { .. }, arg) => match arg.bits_for(param.dtype) {
                Some(bits) => {
                    params.push(Passed::Number(FunctionParamKind::number(param.dtype), bits));
                    continue;
                }
                None => {
                    let expected = match param.dtype {
                        DType::F32 => "a number",
                        DType::F64 => "an f64",
                        DType::I64 => "an i64",
                        DType::U64 => "a u64",
                        _ => "an integer",
                    };
                    return kind(expected, arg.name());
                }
            },
            (ParamKind::Tensor { array: false, .. }, Arg::Buffer(_) | Arg::Tensor(_)) => false,
            (ParamKind::Tensor { array: true, .. }, Arg::Buffers(_) | Arg::Tensors(_)) => true,
            (ParamKind::Tensor { array: false, .. }, arg) => return kind("a tensor", arg.name()),
            (ParamKind::Tensor { array: true, .. }, arg) => return kind("an array of tensors", arg.name()),
        };
        if let Some(given) = arg.other_type(param.dtype) {
            let (param, expected) = (param.name.clone(), param.dtype);
            return Err(RuntimeError::ArgumentType { kernel: name(), param, expected, given });
        }
        let of_param = arg.buffers();
        if of_param.iter().any(|buffer| buffer.device != device) {
            return Err(RuntimeError::ForeignBuffer { device: device_name.to_string() });
        }
        let shape = tensor_shape(&kernel.verified, ParamId(i as u32), sizes).map_err(failed)?;
        if let Some((mode, value)) = shape.iter().enumerate().find(|(_, extent)| **extent > MAX_EXTENT) {
            return Err(RuntimeError::SizeTooLarge {
                kernel: name(),
                what: Quote::new(format!("mode {mode} of `{}`", param.name), param.span),
                value: *value,
                limit: MAX_EXTENT,
            });
        }
        let of_array = shape.first().filter(|_| array).and_then(|tensors| usize::try_from(*tensors).ok());
        let expected = of_array.unwrap_or(1);
        if of_param.len() != expected {
            let (param, given) = (param.name.clone(), of_param.len());
            return Err(RuntimeError::TensorCount { kernel: name(), param, expected, given });
        }
        // Those of an array have as many each.
        let elements = tensor_len(&kernel.verified, ParamId(i as u32), sizes).map_err(failed)? / expected;
        let needed = param.dtype.bytes_of(elements);
        if let Some((number, short)) = of_param.iter().enumerate().find(|(_, b)| b.bytes() < needed) {
            return Err(RuntimeError::BufferTooSmall {
                kernel: name(),
                param: if array { format!("{}[{number}]", param.name) } else { param.name.clone() },
                needed,
                actual: short.bytes(),
            });
        }
        if array && kernel.verified.outputs().contains(&ParamId(i as u32)) {
            let mut first = BTreeMap::new();
            for (number, buffer) in of_param.iter().enumerate() {
                if let Some(other) = first.insert(buffer.key(), number) {
                    let (param, tensors) = (param.name.clone(), [other, number]);
                    return Err(RuntimeError::SharedResult { kernel: name(), param, tensors });
                }
            }
        }
        params.push(match (array, &of_param[..]) {
            (false, [buffer]) => Passed::Buffer(buffer),
            _ => Passed::Buffers(of_param.clone()),
        });
        buffers.insert(i as u32, of_param);
    }
    let number = |size: i32| Passed::Number(FunctionParamKind::I32, u64::from(size.cast_unsigned()));
    params.extend(size_params.into_iter().map(number));
    for (map, recipe) in (0..).zip(&kernel.maps) {
        let buffers = buffers.get(&recipe.param.0).cloned();
        let buffers = buffers.ok_or_else(|| RuntimeError::Inconsistent { kernel: name() })?;
        let (extents, strides) =
            tensor_of_map(kernel, map, recipe, &Values { kernel, values: &values }, &buffers)?;
        let mapped = Mapped { map, buffers, extents, strides };
        params.push(if recipe.array { Passed::TensorMaps(mapped) } else { Passed::TensorMap(mapped) });
    }
    let kinds = params.iter().map(|passed| match passed {
        Passed::Buffer(_) => FunctionParamKind::Pointer,
        Passed::Buffers(_) => FunctionParamKind::Pointers,
        Passed::TensorMaps(mapped) => FunctionParamKind::TensorMaps(mapped.map),
        Passed::Number(kind, _) => *kind,
        Passed::TensorMap(mapped) => FunctionParamKind::TensorMap(mapped.map),
    });
    if !kinds.eq(kernel.function.params.iter().map(|param| param.kind)) {
        return Err(RuntimeError::Inconsistent { kernel: name() });
    }
    Uses::default().add(kernel, args)?;
    Ok(Launch { sizes: values, grid, params })
}

/// The integers among the arguments, by parameter.
fn integers(args: &[Arg<'_>]) -> BTreeMap<ParamId, i64> {
    let integer = |(id, arg): (ParamId, &Arg<'_>)| match arg {
        Arg::Integer(value) => Some((id, i64::from(*value))),
        _ => None,
    };
    (0..).map(ParamId).zip(args).filter_map(integer).collect()
}

/// The sizes' values, in their order, as a scope.
struct Values<'a> {
    kernel: &'a Kernel,
    values: &'a [i64],
}

impl Scope for Values<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.kernel
            .program()
            .sizes()
            .zip(self.values)
            .find(|((size, ..), _)| *size == id)
            .map(|(_, value)| *value)
    }

    fn block(&self, _: Axis) -> Option<i64> {
        None
    }
}

/// Extents in elements and strides in bytes of the tensor that a map describes.
fn tensor_of_map(
    kernel: &Kernel,
    map: u32,
    recipe: &MapRecipe,
    scope: &Values<'_>,
    buffers: &[&Buffer],
) -> Result<(Vec<u64>, Vec<u64>), RuntimeError> {
    let program = kernel.program();
    let param = program.param(recipe.param);
    let name = || program.name.clone();
    let inconsistent = || RuntimeError::Inconsistent { kernel: name() };
    let shape = &kernel.function.tensor_maps.get(map as usize).ok_or_else(inconsistent)?.shape;
    let rank = shape.rank();
    if shape.check().is_err() || recipe.extents.len() != rank || recipe.strides.len() + 1 != rank {
        return Err(inconsistent());
    }
    let value = |expr: &Expr, what: &str| {
        expr.eval(scope).ok_or_else(|| {
            let what = Quote::new(format!("{what} of a tensor map of `{}`", param.name), param.span);
            RuntimeError::Sizes { kernel: name(), error: Box::new(InterpretError::NoValue { what }) }
        })
    };
    let broken = |error| RuntimeError::TensorMap { kernel: name(), param: param.name.clone(), error };
    let place = |dimension: usize| {
        let own = if dimension == 0 { &Expr::Int(1) } else { &recipe.strides[dimension - 1] };
        let strides = kernel.verified.strides(recipe.param);
        let mut modes = (0..strides.len()).filter(|mode| strides[*mode] == *own);
        let mode = modes.next().filter(|_| modes.next().is_none());
        MapDimension { dimension, mode }
    };
    let bytes = i64::from(shape.dtype.bits() / 8);
    let mut extents = Vec::with_capacity(rank);
    for (dimension, expr) in recipe.extents.iter().enumerate() {
        let (extent, most) = (value(expr, "an extent")?, MAX_EXTENT);
        if !(1..=most).contains(&extent) {
            return Err(broken(TensorMapError::Extent { place: place(dimension), extent, most }));
        }
        extents.push(extent.unsigned_abs());
    }
    let mut strides = Vec::with_capacity(rank - 1);
    for (dimension, expr) in (1..).zip(&recipe.strides) {
        let (elements, most, multiple) = (value(expr, "a stride")?, (STRIDE_LIMIT - 1) / bytes, 16 / bytes);
        let place = || place(dimension);
        if !(1..=most).contains(&elements) {
            return Err(broken(TensorMapError::StrideRange { place: place(), elements, most }));
        }
        if elements % multiple != 0 {
            return Err(broken(TensorMapError::Stride { place: place(), elements, multiple }));
        }
        strides.push((elements * bytes).unsigned_abs());
    }
    // A copy into what the map has and the buffer lacks would go astray.
    let rest = extents.iter().skip(1).zip(&strides);
    let last = rest.fold(extents[0] * bytes.unsigned_abs(), |sum, (n, stride)| {
        sum.saturating_add((n - 1).saturating_mul(*stride))
    });
    let needed = usize::try_from(last).unwrap_or(usize::MAX);
    if let Some(buffer) = buffers.iter().find(|buffer| needed > buffer.bytes()) {
        let (param, actual) = (param.name.clone(), buffer.bytes());
        return Err(RuntimeError::BufferTooSmall { kernel: name(), param, needed, actual });
    }
    Ok((extents, strides))
}

/// The sizes as a launch passes them, from their values in that order.
fn check_sizes(kernel: &Kernel, values: &[i64]) -> Result<Vec<i32>, RuntimeError> {
    let program = kernel.program();
    let name = || program.name.clone();
    let mut passed = Vec::with_capacity(values.len());
    for ((_, symbol, _), &value) in program.sizes().zip(values) {
        let fits = i32::try_from(value).ok().filter(|_| value <= MAX_EXTENT);
        passed.push(fits.ok_or_else(|| RuntimeError::SizeTooLarge {
            kernel: name(),
            what: Quote::new(format!("size `{}`", symbol.name), symbol.span),
            value,
            limit: MAX_EXTENT,
        })?);
    }
    let value_of =
        |wanted| program.sizes().zip(values).find(|((id, ..), _)| *id == wanted).map_or(0, |(_, v)| *v);
    if let Some((assumption, value)) = kernel.broken_assumption(value_of) {
        return Err(RuntimeError::BrokenAssumption {
            kernel: name(),
            size: assumption.size.clone(),
            multiple: assumption.multiple,
            value,
        });
    }
    Ok(passed)
}
