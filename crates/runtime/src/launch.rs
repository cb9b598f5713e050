//! What a launch passes, and the checks that come before it on every device.

use std::collections::BTreeMap;

use tilewright_compiler::{Kernel, MAX_EXTENT};
use tilewright_simt::FunctionParamKind;
use tilewright_tile::interpret::{check_ranges, grid, size_values, tensor_len, tensor_shape};
use tilewright_tile::{ParamId, ParamKind};

use crate::buffer::{Buffer, DeviceId, Tensor};
use crate::error::RuntimeError;

/// Values for the run-time sizes, by name. Those not named keep the defaults that the program declares.
pub type Sizes = BTreeMap<String, i64>;

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// Memory for a tensor parameter.
    Buffer(&'a Buffer),
    /// The same, and its element type is compared with the parameter's.
    Tensor(&'a Tensor),
    /// A number for a scalar parameter.
    Scalar(f32),
}

impl<'a> From<&'a Buffer> for Arg<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Arg::Buffer(buffer)
    }
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Arg::Tensor(tensor)
    }
}

impl From<f32> for Arg<'_> {
    fn from(value: f32) -> Self {
        Arg::Scalar(value)
    }
}

/// The sizes that a kernel's program declares, with their defaults.
pub fn default_sizes(kernel: &Kernel) -> Sizes {
    kernel.program().sizes().map(|(_, symbol, default)| (symbol.name.clone(), default)).collect()
}

/// One parameter of the kernel's function, with its value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passed<'a> {
    /// A pointer to this buffer.
    Buffer(&'a Buffer),
    /// A number.
    Scalar(f32),
    /// A size.
    Size(i32),
}

/// A launch that passed every check that needs no device.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
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
    check_ranges(&kernel.verified, sizes).map_err(failed)?;

    if args.len() != program.params.len() {
        let params: Vec<&str> = program.params.iter().map(|p| p.name.as_str()).collect();
        return Err(RuntimeError::ArgumentCount {
            kernel: name(),
            expected: program.params.len(),
            params: params.join(", "),
            given: args.len(),
        });
    }
    let mut params = Vec::with_capacity(args.len() + size_params.len());
    for (i, (param, arg)) in program.params.iter().zip(args).enumerate() {
        let kind = |expected, given| {
            Err(RuntimeError::ArgumentKind { kernel: name(), param: param.name.clone(), expected, given })
        };
        let buffer = match (&param.kind, arg) {
            (ParamKind::Scalar { .. }, Arg::Scalar(value)) => {
                params.push(Passed::Scalar(*value));
                continue;
            }
            (ParamKind::Scalar { .. }, _) => return kind("a number", "a buffer"),
            (ParamKind::Tensor { .. }, Arg::Scalar(_)) => return kind("a tensor", "a number"),
            (ParamKind::Tensor { .. }, Arg::Buffer(buffer)) => *buffer,
            (ParamKind::Tensor { .. }, Arg::Tensor(tensor)) => {
                let (expected, given) = (param.dtype, tensor.dtype());
                if expected != given {
                    let param = param.name.clone();
                    return Err(RuntimeError::ArgumentType { kernel: name(), param, expected, given });
                }
                tensor.buffer()
            }
        };
        if buffer.device != device {
            return Err(RuntimeError::ForeignBuffer { device: device_name.to_string() });
        }
        let shape = tensor_shape(&kernel.verified, ParamId(i as u32), sizes).map_err(failed)?;
        if let Some((mode, value)) = shape.iter().enumerate().find(|(_, extent)| **extent > MAX_EXTENT) {
            return Err(RuntimeError::SizeTooLarge {
                kernel: name(),
                what: format!("mode {mode} of `{}`", param.name),
                value: *value,
                limit: MAX_EXTENT,
            });
        }
        let elements = tensor_len(&kernel.verified, ParamId(i as u32), sizes).map_err(failed)?;
        let needed = param.dtype.bytes_of(elements);
        if buffer.bytes() < needed {
            return Err(RuntimeError::BufferTooSmall {
                kernel: name(),
                param: param.name.clone(),
                needed,
                actual: buffer.bytes(),
            });
        }
        params.push(Passed::Buffer(buffer));
    }
    params.extend(size_params.into_iter().map(Passed::Size));
    let kinds = params.iter().map(|passed| match passed {
        Passed::Buffer(_) => FunctionParamKind::Pointer,
        Passed::Scalar(_) => FunctionParamKind::F32,
        Passed::Size(_) => FunctionParamKind::I32,
    });
    if !kinds.eq(kernel.function.params.iter().map(|param| param.kind)) {
        return Err(RuntimeError::Inconsistent { kernel: name() });
    }
    Ok(Launch { grid, params })
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
            what: format!("size `{}`", symbol.name),
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
