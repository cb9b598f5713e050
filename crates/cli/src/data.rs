//! `tilewright run --input` and `--output`: elements from and to files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use tilewright::arrays::{Array, Place, Written};
use tilewright::check::{CheckError, Outcome};
use tilewright::compiler::Kernel;
use tilewright::input::{Input, all_read, offsets, sizes_of_arrays};
use tilewright::machine::Elements;
use tilewright::runtime::sizes_of;
use tilewright::tile::interpret::{tensor_shape, tensor_strides};
use tilewright::tile::{ParamId, ParamKind, Program};

use crate::load::Loaded;
use crate::messages::{Failure, error};

/// `NAME=VALUE` pairs of an option, each name once.
fn pairs<'a>(option: &str, example: &str, given: &'a [String]) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    let mut seen = BTreeSet::new();
    let pair = |text: &'a String| {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Failure::usage(format!(
                "`{option} {text}` is not NAME=VALUE, e.g. `{option} {example}`"
            )));
        };
        if !seen.insert(name.trim()) {
            return Err(Failure::usage(format!("`{option} {text}`: `{name}` is given twice")));
        }
        Ok((name.trim(), value.trim()))
    };
    given.iter().map(pair).collect()
}

/// Inputs by name, with the files read.
pub fn inputs(given: &[String]) -> Result<BTreeMap<String, Input>, Failure> {
    let read = |(name, value): (&str, &str)| {
        let input =
            Input::parse(value).map_err(|e| Failure::usage(format!("`--input {name}={value}`: {e}")))?;
        Ok((name.to_string(), input))
    };
    pairs("--input", "len=0..500", given)?.into_iter().map(read).collect()
}

/// Gives the sizes that are named by shapes of arrays, and by no `-p`, the extents of the arrays.
pub fn take_sizes(
    loaded: &mut Loaded,
    program: &Program,
    params: &[String],
    inputs: &BTreeMap<String, Input>,
) {
    let given = |name: &str| params.iter().any(|p| p.split_once('=').is_some_and(|(n, _)| n.trim() == name));
    for (name, value) in sizes_of_arrays(program, inputs) {
        if !given(&name) && value > 0 {
            loaded.sizes.insert(name, value);
        }
    }
}

/// Refuses inputs that no kernel reads, and outputs that none writes.
pub fn check_names(
    kernels: &[&Kernel],
    inputs: &BTreeMap<String, Input>,
    outputs: &[String],
) -> Result<(), Failure> {
    all_read(kernels.iter().copied(), inputs).map_err(|e| not_read(kernels, &e, inputs))?;
    let known: BTreeSet<&str> =
        kernels.iter().flat_map(|kernel| outputs_of(kernel)).map(|(_, name)| name).collect();
    for (name, value) in pairs("--output", "y=y.npy", outputs)? {
        if !known.contains(name) {
            let known: Vec<&str> = known.into_iter().collect();
            return Err(Failure::usage(format!(
                "`--output {name}={value}`: no tensor of this name is written; the outputs are {}",
                known.join(", ")
            )));
        }
        if Place::parse(value).is_none() {
            return Err(Failure::usage(format!(
                "`--output {name}={value}`: write a file `{name}.npy` or `{name}.safetensors`, with `:NAME` for another name in it"
            )));
        }
    }
    Ok(())
}

/// The refusal of an input that no kernel reads: a scalar is given with `-p`.
fn not_read(kernels: &[&Kernel], e: &CheckError, inputs: &BTreeMap<String, Input>) -> Failure {
    let CheckError::Input { name, .. } = e else { return Failure::usage(e) };
    let value = match inputs.get(name) {
        Some(Input::Constant(value)) => value.to_string(),
        _ => "VALUE".to_string(),
    };
    let params = kernels.iter().flat_map(|kernel| &kernel.program().params);
    let scalar =
        params.clone().any(|param| param.name == *name && matches!(param.kind, ParamKind::Scalar { .. }));
    let size = kernels.iter().any(|kernel| {
        let program = kernel.program();
        program.sizes().any(|(_, symbol, _)| symbol.name == *name)
            || program.constants().any(|(_, symbol, _)| symbol.name == *name)
    });
    let written = params.clone().any(|param| param.name == *name);
    if scalar {
        let message = format!(
            "`--input {name}={value}`: `{name}` is a scalar of the kernel, and `--input` is for tensors"
        );
        return Failure::usage_with(message, format!("`-p {name}={value}`"));
    }
    if size {
        let message = format!(
            "`--input {name}={value}`: `{name}` is a size or a constant, and `--input` is for tensors"
        );
        return Failure::usage_with(message, format!("`-p {name}={value}`"));
    }
    if written {
        return Failure::usage_with(
            e,
            format!("`{name}` is only written; `--output {name}={name}.npy` keeps what is written to it"),
        );
    }
    Failure::usage(e)
}

fn outputs_of(kernel: &Kernel) -> impl Iterator<Item = (ParamId, &str)> {
    kernel.verified.outputs().iter().map(|id| (*id, kernel.program().param(*id).name.as_str()))
}

/// Writes what the kernels left in the outputs that are asked for; of several kernels that write one, what the last one left.
pub fn write_outputs(
    ran: &[(&Kernel, &Outcome)],
    sizes: &BTreeMap<String, i64>,
    given: &[String],
) -> Result<(), Failure> {
    /// An output at its place.
    struct Output {
        name: String,
        dtype: tilewright::machine::DType,
        shape: Vec<i64>,
        values: Elements,
    }
    let failed = |e: &dyn std::fmt::Display| Failure::program(error(e));
    let mut files: BTreeMap<PathBuf, Vec<Output>> = BTreeMap::new();
    for (name, value) in pairs("--output", "y=y.npy", given)? {
        let Some(place) = Place::parse(value) else { continue };
        let found = ran.iter().rev().find_map(|(kernel, outcome)| {
            let (id, _) = outputs_of(kernel).find(|(_, output)| *output == name)?;
            Some((kernel, id, outcome.results.get(id.0 as usize)?.as_ref()?))
        });
        let Some((kernel, id, results)) = found else { continue };
        let sizes = sizes_of(kernel, sizes);
        let shape = tensor_shape(&kernel.verified, id, &sizes).map_err(|e| failed(&e))?;
        let strides = tensor_strides(&kernel.verified, id, &sizes).map_err(|e| failed(&e))?;
        let values = results.picked(offsets(&shape, &strides));
        let name = place.name.unwrap_or_else(|| name.to_string());
        let dtype = kernel.program().param(id).dtype;
        files.entry(place.path).or_default().push(Output { name, dtype, shape, values });
    }
    for (path, outputs) in files {
        let tensors: Vec<Written<'_>> = outputs
            .iter()
            .map(|o| Written { name: &o.name, dtype: o.dtype, shape: &o.shape, values: &o.values })
            .collect();
        Array::write(&path, &tensors).map_err(|e| failed(&e))?;
    }
    Ok(())
}
