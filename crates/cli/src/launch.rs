//! `tilewright compile --emit launch`: all that a launch of a kernel needs, for programs that load PTX by themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tilewright::compiler::Kernel;
use tilewright::machine::{tensor_map_l2_promotion, tensor_map_type};
use tilewright::simt::FunctionParamKind;
use tilewright::simt::record::BUFFER_BYTES;
use tilewright::tile::interpret::{grid, size_values, tensor_shape, tensor_strides};
use tilewright::tile::{Axis, Expr, Param, ParamId, ParamKind, Scope, SymbolId};

use crate::messages::{Failure, error};

/// The sizes of a launch.
struct Sizes<'a>(&'a Kernel, Vec<i64>);

impl Scope for Sizes<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.0.program().sizes().zip(&self.1).find(|((size, ..), _)| *size == id).map(|(_, value)| *value)
    }

    fn block(&self, _: Axis) -> Option<i64> {
        None
    }
}

/// The launch at these sizes: grid, threads, shared memory, the parameters in order (integers with their defaults), and the PTX. A tensor map has what
/// `cuTensorMapEncodeTiled` takes: the type's number, extents and strides in bytes, box, steps of its elements, swizzle and promotion of the L2 cache; with
/// `corners`, lower and upper, what `cuTensorMapEncodeIm2col` takes, whose box is channels and pixels.
/// An array of tensors is a pointer to their addresses in global memory, each a multiple of 16, and its maps one to a map of each, one behind the
/// other from a multiple of 64 on.
pub fn describe(kernel: &Kernel, sizes: &BTreeMap<String, i64>) -> Result<Value, Failure> {
    let refuse = |e: &dyn std::fmt::Display| Failure::program(error(format!("the launch: {e}")));
    let values = size_values(&kernel.verified, sizes).map_err(|e| refuse(&e))?;
    let blocks = grid(&kernel.verified, sizes).map_err(|e| refuse(&e))?;
    let scope = Sizes(kernel, values.clone());
    let number = |e: &Expr| e.eval(&scope).ok_or_else(|| refuse(&"an extent has no value"));
    let program = kernel.program();
    let mut named = program.sizes().zip(&values);
    let mut params = Vec::new();
    for (i, param) in kernel.function.params.iter().enumerate() {
        params.push(match param.kind {
            FunctionParamKind::Pointer | FunctionParamKind::Pointers => {
                let id = ParamId(i as u32);
                let shape = tensor_shape(&kernel.verified, id, sizes).map_err(|e| refuse(&e))?;
                let strides = tensor_strides(&kernel.verified, id, sizes).map_err(|e| refuse(&e))?;
                let dtype = program.param(id).dtype.to_string();
                match (shape.split_first(), param.kind) {
                    (Some((tensors, shape)), FunctionParamKind::Pointers) => json!({
                        "kind": "tensors",
                        "name": param.name,
                        "dtype": dtype,
                        "tensors": tensors,
                        "shape": shape,
                        "strides": strides[1..],
                    }),
                    _ => json!({
                        "kind": "tensor",
                        "name": param.name,
                        "dtype": dtype,
                        "shape": shape,
                        "strides": strides,
                    }),
                }
            }
            FunctionParamKind::F32 => json!({ "kind": "scalar", "name": param.name }),
            FunctionParamKind::F64 => json!({ "kind": "scalar", "name": param.name, "dtype": "f64" }),
            FunctionParamKind::I32 | FunctionParamKind::I64 => match program.params.get(i) {
                Some(Param { kind: ParamKind::Scalar { default }, dtype, .. }) => {
                    let (bits, dtype) = (default.bits(*dtype), dtype.to_string());
                    let value =
                        if dtype == "u64" { json!(bits) } else { json!(default.integer().map(|x| x as i64)) };
                    json!({ "kind": "integer", "name": param.name, "dtype": dtype, "value": value })
                }
                _ => {
                    let value = named.next().map(|(_, value)| *value);
                    json!({ "kind": "size", "name": param.name, "value": value })
                }
            },
            FunctionParamKind::TensorMap(map) | FunctionParamKind::TensorMaps(map) => {
                let recipe = kernel.maps.get(map as usize).ok_or_else(|| refuse(&"a map has no recipe"))?;
                let shape = &kernel.function.tensor_maps[map as usize].shape;
                let bytes = i64::from(shape.dtype.bits() / 8);
                let extents = recipe.extents.iter().map(number).collect::<Result<Vec<_>, _>>()?;
                let strides = recipe.strides.iter().map(|s| Ok((number(s)? * bytes) as u64));
                let strides = strides.collect::<Result<Vec<u64>, Failure>>()?;
                let corners = shape.corners.as_ref();
                let corners = corners.map(|of| json!({ "lower": of.lower, "upper": of.upper }));
                let reach = if corners.is_some() { shape.extents.clone() } else { shape.reach() };
                json!({
                    "kind": if recipe.array { "maps" } else { "map" },
                    "name": param.name,
                    "of": recipe.param.0,
                    "type": tensor_map_type(shape.dtype),
                    "extents": extents,
                    "strides": strides,
                    "box": reach,
                    "steps": shape.steps,
                    "corners": corners,
                    "swizzle": shape.swizzle.tensor_map_code(),
                    "promotion": tensor_map_l2_promotion(&strides),
                })
            }
        });
    }
    if kernel.recording.is_some() {
        params.push(json!({ "kind": "records", "name": "records", "bytes": BUFFER_BYTES }));
    }
    Ok(json!({
        "kernel": kernel.function.name,
        "arch": kernel.function.arch.to_string(),
        "grid": blocks,
        "threads": kernel.threads(),
        "cluster": kernel.function.cluster,
        "shared_bytes": kernel.shared_bytes(),
        "params": params,
        "ptx": kernel.ptx,
    }))
}
