//! Compiled kernels: their text, their explanation, pictures of their tensors' layouts, and runs of them.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use serde_json::json;
use tilewright::compiler;
use tilewright::layout::{Layout, SwizzledLayout};
use tilewright::layout_calc::draw::Picture;
use tilewright::machine::DType;
use tilewright::tile::Sources;

use crate::error::{Class, said};
use crate::layout::drawn;
use crate::simulate::{self, Array, Data};

/// A compiled kernel.
#[pyclass(frozen, module = "tilewright._core")]
pub struct Kernel {
    pub(crate) kernel: compiler::Kernel,
    pub(crate) sources: Sources,
    /// The sizes that were given when it was compiled.
    pub(crate) sizes: BTreeMap<String, i64>,
}

#[pymethods]
impl Kernel {
    /// The kernel's name.
    #[getter]
    fn name(&self) -> &str {
        &self.kernel.function.name
    }

    /// The architecture.
    #[getter]
    fn arch(&self) -> String {
        self.kernel.function.arch.to_string()
    }

    /// The PTX text.
    #[getter]
    fn ptx(&self) -> &str {
        &self.kernel.ptx
    }

    /// The program, with its constants.
    fn tile(&self) -> String {
        self.kernel.program().to_string()
    }

    /// Reasons of the compiler's choices, as text.
    fn explain(&self) -> String {
        self.kernel.explanation.to_string()
    }

    /// The same as JSON, with what the kernel needs.
    fn json(&self) -> String {
        let kernel = &self.kernel;
        let mut value = json!(kernel.explanation);
        let (assumptions, times) = (kernel.assumptions.iter(), kernel.times.iter());
        value["kernel"] = json!(kernel.function.name);
        value["arch"] = json!(kernel.function.arch.to_string());
        value["threads"] = json!(kernel.threads());
        value["sizes"] = json!(self.sizes);
        value["constants"] = json!(kernel.verified.constants());
        value["assumptions"] =
            assumptions.map(|a| json!({ "size": a.size, "multiple": a.multiple })).collect();
        value["compile_ms"] =
            times.map(|t| json!({ "pass": t.name, "ms": t.time.as_secs_f64() * 1e3 })).collect();
        value.to_string()
    }

    /// A picture of the layout of a register or shared tensor, as `svg`, `text` or `latex`.
    fn draw(&self, py: Python<'_>, name: &str, form: &str) -> PyResult<String> {
        let picture = self.picture(name).map_err(|e| said(py, Class::Layout, e))?;
        drawn(py, &picture, form)
    }

    /// Runs the kernel on the simulator, and compares it with the interpreter; with `interpret` the interpreter alone. The report as JSON, and the outputs.
    #[pyo3(signature = (arrays, scalars, sizes, seed=0, sim_seed=0, interpret=false, random=false, force=false))]
    fn run(
        &self,
        py: Python<'_>,
        arrays: Vec<Array>,
        scalars: BTreeMap<String, f64>,
        sizes: BTreeMap<String, i64>,
        seed: u64,
        sim_seed: u64,
        interpret: bool,
        random: bool,
        force: bool,
    ) -> PyResult<(String, Vec<Data>)> {
        let sizes = self.sizes.iter().map(|(name, value)| (name.clone(), *value)).chain(sizes).collect();
        let asked = simulate::Asked { arrays, scalars, sizes, seed, sim_seed, interpret, random, force };
        py.detach(|| simulate::run(&self.kernel, &self.sources, asked)).map_err(|failure| failure.raised(py))
    }
}

impl Kernel {
    fn picture(&self, name: &str) -> Result<Picture, String> {
        let tensors = &self.kernel.explanation.tensors;
        let Some(tensor) = tensors.iter().find(|t| t.name == name) else {
            let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
            return Err(format!(
                "the kernel has no register or shared tensor `{name}`; it has {}",
                names.join(", ")
            ));
        };
        let refuse = |e: &dyn std::fmt::Display| format!("`{name}` cannot be drawn: {e}");
        if tensor.memory == "register" {
            let layout: Layout = tensor.layout.parse().map_err(|e| refuse(&e))?;
            let rows = tensor.shape.first().copied().unwrap_or(1);
            let columns = tensor.shape.iter().skip(1).product();
            return Picture::thread_values(&layout, (rows, columns)).map_err(|e| refuse(&e));
        }
        let mut layout: SwizzledLayout = tensor.layout.parse().map_err(|e| refuse(&e))?;
        // Of a tensor with stages the first one.
        if layout.layout.rank() > 2 {
            let modes = layout.layout.modes();
            layout.layout = Layout::concat(&modes[..2]).map_err(|e| refuse(&e))?;
        }
        let dtype: DType = tensor.dtype.parse().map_err(|e| refuse(&e))?;
        Picture::banks(&layout, i64::from(dtype.bits())).map_err(|e| refuse(&e))
    }
}
