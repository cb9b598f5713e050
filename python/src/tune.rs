//! Tuning of operators: configurations measured on a GPU, or ranked by the estimate of an architecture.

use std::collections::BTreeMap;
use std::time::Duration;

use pyo3::prelude::*;
use serde_json::json;
use tilewright::compiler::arch_named;
use tilewright::lab::measure::L2;
use tilewright::machine::Arch;
use tilewright::runtime::{CudaDevice, Device};
use tilewright::tune::{
    GpuMeasurer, Measurer, Problem, Progress, Settings, Store, Target, TuneError, Tuned, rank, tune,
};

use crate::error::{Class, said};

/// Seconds that the GPU rests before each turn, as of the command.
const REST: Duration = Duration::from_millis(30);

/// The device that a search is for.
enum On {
    /// A GPU, and its number.
    Gpu(Box<CudaDevice>, u32),
    /// None: the ranking by estimate for an architecture.
    Estimate(Arch),
}

/// Tunes a problem of an operator, within seconds, on a GPU by its number, or ranks by the estimate for an `arch`. `progress` is called with the part of the time
/// that is spent, and with what is done. The record and the report, as JSON.
#[pyfunction]
#[pyo3(signature = (operator, sizes, options, ordinal, seconds, fresh, arch=None, progress=None))]
pub fn tuned(
    py: Python<'_>,
    operator: &str,
    sizes: BTreeMap<String, i64>,
    options: BTreeMap<String, String>,
    ordinal: u32,
    seconds: f64,
    fresh: bool,
    arch: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let pinned: Vec<(&str, &str)> = options.iter().map(|(name, value)| (&**name, &**value)).collect();
    let wrong = |e: &dyn std::fmt::Display| said(py, Class::Launch, e);
    let problem = Problem::new(operator, &sizes, &pinned).map_err(|e| wrong(&e))?;
    let budget = Duration::try_from_secs_f64(seconds)
        .map_err(|_| wrong(&format_args!("`seconds` is {seconds}, which is no time")))?;
    let settings = Settings { budget, ..Settings::default() };
    let on = match arch {
        Some(name) => On::Estimate(arch_named(name).map_err(|e| wrong(&e))?),
        None => {
            let opened = py.detach(|| CudaDevice::open(ordinal));
            On::Gpu(Box::new(opened.map_err(|e| said(py, Class::Device, e))?), ordinal)
        }
    };
    // The first exception of the callback, which is raised when the search has ended.
    let mut raised = None;
    let mut watch = |Progress { spent, doing }: Progress| {
        Python::attach(|py| {
            let call = || {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (spent, doing)).map(drop))
            };
            if raised.is_none() {
                raised = call().err();
            }
        });
    };
    let found = py.detach(|| searched(&problem, &on, fresh, &settings, &mut watch));
    if let Some(error) = raised {
        return Err(error);
    }
    found.map_err(|e| match e {
        TuneError::Device { .. } => said(py, Class::Device, e),
        e => said(py, Class::Launch, e),
    })
}

/// The result of a search as JSON.
fn searched(
    problem: &Problem,
    on: &On,
    fresh: bool,
    settings: &Settings,
    watch: &mut dyn FnMut(Progress),
) -> Result<String, TuneError> {
    let (gpu, ordinal) = match on {
        On::Gpu(gpu, ordinal) => (gpu, *ordinal),
        On::Estimate(arch) => {
            let report = rank(problem, &Target::new("none", *arch), settings, watch)?;
            let value = json!({ "problem": problem.to_string(), "origin": "estimate", "record": null, "report": report.json() });
            return Ok(value.to_string());
        }
    };
    let store = Store::of_user()?;
    let target = Target::new(gpu.name(), gpu.arch().unwrap_or(problem.operator().least_architecture()));
    let target = match store.model(&target.device)? {
        Some(model) => target.with_model(model),
        None => target,
    };
    let mut measurer = |problem: &Problem| -> Result<Box<dyn Measurer + '_>, TuneError> {
        let lock = store.lock_device(&gpu.name(), ordinal, || ())?;
        Ok(Box::new(GpuMeasurer::new(gpu, lock, problem, L2::Written, REST)?))
    };
    let Tuned { record, report, refused } =
        tune(problem, &target, &store, fresh, settings, &mut measurer, watch)?;
    let value = json!({
        "problem": problem.to_string(),
        "origin": if report.is_some() { "measured" } else { "record" },
        "record": record,
        "report": report.map(|report| report.json()),
        "refused": refused,
    });
    Ok(value.to_string())
}
