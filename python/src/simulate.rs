//! Runs of kernels on arrays of Python: on the simulator, compared with the interpreter, or by the interpreter alone.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use serde_json::{Value, json};
use tilewright::arrays::{self, Written};
use tilewright::check::{CheckError, CheckOptions, Comparison, check, interpreted};
use tilewright::compiler::Kernel;
use tilewright::excerpts::Severity;
use tilewright::findings::{refusal, wrong_results};
use tilewright::input::{Input, offsets};
use tilewright::machine::{Elements, Number};
use tilewright::runtime::{DeviceKind, SimDevice, default_sizes};
use tilewright::sim::Config;
use tilewright::tile::interpret::{tensor_shape, tensor_strides};
use tilewright::tile::{Diagnostics, ParamId, ParamKind, Sources};

use crate::error::{Class, listed, refused, said};

/// An array as it comes: name, element type, extents, little-endian bytes in row-major order.
pub type Array = (String, String, Vec<usize>, Vec<u8>);

/// An array as it goes back.
pub type Data = (String, &'static str, Vec<i64>, Vec<u8>);

/// A run that is asked for.
pub struct Asked {
    /// Arrays of tensors.
    pub arrays: Vec<Array>,
    /// Values of scalar parameters.
    pub scalars: BTreeMap<String, f64>,
    /// Sizes.
    pub sizes: BTreeMap<String, i64>,
    /// Seed of random inputs.
    pub seed: u64,
    /// Seed of the simulator's order of warps.
    pub sim_seed: u64,
    /// The interpreter alone.
    pub interpret: bool,
    /// Draws the inputs that are not given.
    pub random: bool,
    /// Begins however long it takes.
    pub force: bool,
}

/// Reason why there was no run.
pub enum Failure {
    /// An argument is wrong.
    Argument(String),
    /// The program or its launch is, with the texts.
    Refused(Sources, Diagnostics),
}

impl Failure {
    /// The exception.
    pub fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Argument(text) => said(py, Class::Launch, text),
            Failure::Refused(sources, diagnostics) => refused(py, Class::Launch, &sources, &diagnostics),
        }
    }
}

/// The check's options: inputs by name, each of a parameter of the kernel.
fn options(kernel: &Kernel, asked: Asked) -> Result<CheckOptions, Failure> {
    let mut options =
        CheckOptions { sizes: asked.sizes, seed: asked.seed, force: asked.force, ..CheckOptions::default() };
    let params = &kernel.program().params;
    for (name, dtype, shape, bytes) in asked.arrays {
        let array = arrays::Array::of_bytes(&dtype, shape, &bytes)
            .map_err(|e| Failure::Argument(format!("`{name}`: {e}")))?;
        options.inputs.insert(name, Input::Array(array));
    }
    for (name, value) in asked.scalars {
        let Some(param) =
            params.iter().find(|p| p.name == name && matches!(p.kind, ParamKind::Scalar { .. }))
        else {
            return Err(Failure::Argument(format!("`{name}` is no scalar parameter of the kernel")));
        };
        let number = match param.is_integer() {
            true if value.fract() == 0.0 => Number::Integer(value as i128),
            true => {
                return Err(Failure::Argument(format!(
                    "`{name}` is an {}, and {value} is no integer",
                    param.dtype
                )));
            }
            false => Number::Float(value),
        };
        if !number.fits(param.dtype) {
            return Err(Failure::Argument(format!(
                "`{name}` is an {}, which does not reach to {value}",
                param.dtype
            )));
        }
        options.scalars.insert(name, number);
    }
    if asked.random {
        return Ok(options);
    }
    let read = kernel.verified.inputs().iter().chain(kernel.verified.elements());
    let missing: Vec<String> = read
        .map(|id| &kernel.program().param(*id).name)
        .filter(|name| !options.inputs.contains_key(*name))
        .map(|name| format!("`{name}`"))
        .collect();
    if missing.is_empty() {
        return Ok(options);
    }
    Err(Failure::Argument(format!("the kernel reads {}: give an array for each", missing.join(", "))))
}

/// The report of a run as JSON, and the outputs.
pub fn run(kernel: &Kernel, sources: &Sources, asked: Asked) -> Result<(String, Vec<Data>), Failure> {
    let (sim_seed, interpret) = (asked.sim_seed, asked.interpret);
    let options = options(kernel, asked)?;
    let mut sizes = default_sizes(kernel);
    sizes.extend(options.sizes.iter().map(|(name, value)| (name.clone(), *value)));
    let failed = |e: CheckError| {
        Failure::Refused(sources.clone(), Diagnostics(refusal(kernel, &sizes, &e, options.detail)))
    };
    if interpret {
        let expected = interpreted(kernel, &options).map_err(failed)?;
        let results: Vec<Option<Elements>> = expected.arguments.iter().map(|a| a.elements()).collect();
        let report = json!({ "sizes": sizes, "by": "interpreter" });
        return Ok((report.to_string(), outputs(kernel, &sizes, &results)?));
    }
    let device = SimDevice::new(Config { seed: sim_seed, ..Config::default() });
    let outcome = check(kernel, &device, &options).map_err(failed)?;
    let wrong = wrong_results(kernel, &outcome.comparisons, DeviceKind::Sim, !outcome.findings.is_empty());
    let found: Vec<_> = outcome.findings.iter().cloned().chain(wrong).collect();
    let simulation = outcome.report.sim();
    let report = json!({
        "by": "simulator",
        "right": outcome.is_right(),
        "verdict": outcome.verdict().to_string(),
        "kernel": kernel.function.name,
        "arch": kernel.function.arch.to_string(),
        "sizes": sizes,
        "seed": options.seed,
        "sim_seed": sim_seed,
        "findings": listed(sources, &found, Severity::Error),
        "warnings": listed(sources, &outcome.warnings, Severity::Warning),
        "outputs": outcome.comparisons.iter().map(comparison).collect::<Vec<_>>(),
        "printed": outcome.printed.records.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "races": simulation.map(|sim| sim.races.iter().map(|race| race.count).sum::<u64>()),
        "bank_conflicts": simulation.map(|sim| sim.shared_conflicts),
        "cycles": simulation.map(|sim| sim.estimated_cycles),
        "simulation": simulation,
    });
    Ok((report.to_string(), outputs(kernel, &sizes, &outcome.results)?))
}

/// The comparison of an output with the interpreter's, as JSON.
fn comparison(c: &Comparison) -> Value {
    let worst = c.worst.as_ref().map(|worst| worst.ratio()).filter(|ratio| ratio.is_finite());
    json!({ "name": c.name, "elements": c.elements, "wrong": c.wrong, "unbounded": c.unbounded, "worst_ratio": worst, "text": c.to_string() })
}

/// The tensors that the kernel writes, row-major.
fn outputs(
    kernel: &Kernel,
    sizes: &BTreeMap<String, i64>,
    results: &[Option<Elements>],
) -> Result<Vec<Data>, Failure> {
    let of = |id: &ParamId| {
        let values = results.get(id.0 as usize)?.as_ref()?;
        Some((*id, values))
    };
    let mut all = Vec::new();
    for (id, values) in kernel.verified.outputs().iter().filter_map(of) {
        let said = |e: tilewright::tile::InterpretError| Failure::Argument(e.to_string());
        let shape = tensor_shape(&kernel.verified, id, sizes).map_err(said)?;
        let strides = tensor_strides(&kernel.verified, id, sizes).map_err(said)?;
        let values = values.picked(offsets(&shape, &strides));
        let param = kernel.program().param(id);
        let written = Written { name: &param.name, dtype: param.dtype, shape: &shape, values: &values };
        let (element, bytes) = written.bytes();
        all.push((param.name.clone(), element, shape, bytes));
    }
    Ok(all)
}
