//! Layers of experts on one GPU, called with tensors of others by name.
#![allow(unsafe_code, reason = "kernels are launched in memory and on streams of others")]

use std::ffi::c_void;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tilewright::kernels::moe::{MoeLayer, MoeReduction, MoeWeights};
use tilewright::launch::{LaunchError, Stream, Workspace};
use tilewright::machine::DType;
use tilewright::ops::{self, OpsError};

use crate::error::{Class, said};
use crate::launch::{Current, failed};
use crate::ops::{Arguments, Library, refused};

/// A layer of experts, whose choice is given.
#[pyclass(frozen, module = "tilewright._core")]
pub struct Experts {
    ordinal: u32,
    gpu: tilewright::launch::Gpu,
    free: ops::Experts,
    strict: ops::Experts,
}

/// An element type by its name.
fn named(py: Python<'_>, name: &str) -> PyResult<DType> {
    name.parse().map_err(|error| said(py, Class::Launch, format!("{error}")))
}

#[pymethods]
impl Experts {
    /// A layer of a library: the type of activations, `weights` (`same`, `fp8_blocks`, or a type of a few bits with scales of `group` neighbours), elements of a token and between both products, experts,
    /// and those of a token. Results are added in order, or with `added` as they leave.
    #[new]
    #[pyo3(signature = (library, dtype, weights, group, hidden, intermediate, experts, k, added=false))]
    fn new(
        py: Python<'_>,
        library: &Library,
        dtype: &str,
        weights: &str,
        group: Option<i64>,
        hidden: i64,
        intermediate: i64,
        experts: i64,
        k: i64,
        added: bool,
    ) -> PyResult<Experts> {
        let dtype = named(py, dtype)?;
        let weights = match weights {
            "same" => MoeWeights::Same,
            "fp8_blocks" => MoeWeights::Fp8Blocks,
            few => MoeWeights::Few { dtype: named(py, few)?, group },
        };
        let reduction = if added { MoeReduction::Added(dtype) } else { MoeReduction::Ordered };
        let layer = MoeLayer {
            dtype,
            weights,
            hidden,
            intermediate,
            experts,
            all_experts: None,
            k,
            routing: None,
            reduction,
        };
        let of = |library: &ops::Library| library.moe_layer(layer.clone()).map_err(|e| refused(py, &e));
        let (free, strict) = (of(&library.free)?, of(&library.strict)?);
        Ok(Experts { ordinal: library.ordinal, gpu: library.free.gpu().clone(), free, strict })
    }

    /// Puts the launches of the layer for so many tokens on a stream: `Library.call` tells the rest.
    #[pyo3(signature = (tokens, arguments, stream=None, strict=false, workspace=None))]
    fn call(
        &self,
        py: Python<'_>,
        tokens: i64,
        arguments: &Bound<'_, PyDict>,
        stream: Option<u64>,
        strict: bool,
        workspace: Option<(u64, u64)>,
    ) -> PyResult<u64> {
        let mut arguments = Arguments::read(py, self.ordinal, arguments, stream)?;
        let stream = arguments.stream(py, self.ordinal, stream)?;
        let _current = Current::of(&self.gpu).map_err(|e| failed(py, &e))?;
        // SAFETY: the caller names a stream of this GPU and memory on it, which live until the work has ended.
        let (stream, mut workspace) = unsafe {
            let memory = workspace.map(|(pointer, bytes)| Workspace::new(pointer, bytes));
            (Stream::borrow(std::ptr::without_provenance_mut::<c_void>(stream as usize)), memory)
        };
        let mut call = if strict { &self.strict } else { &self.free }.tokens(tokens);
        for (name, held) in &mut arguments.held {
            call = call.arg(name, held.arg());
        }
        if let Some(workspace) = &mut workspace {
            call = call.workspace(workspace);
        }
        match call.run(stream) {
            Ok(()) => Ok(0),
            Err(
                OpsError::Workspace { needed, .. } | OpsError::Launch(LaunchError::Workspace { needed, .. }),
            ) => Ok(needed),
            Err(error) => Err(refused(py, &error)),
        }
    }

    /// Compiles and loads the kernels for every number of tokens from the first to the last; classes, configurations and kernels.
    fn warm_up(&self, py: Python<'_>, first: i64, last: i64) -> PyResult<(usize, usize, usize)> {
        let warm = py.detach(|| self.free.warm_up(first..=last)).map_err(|e| refused(py, &e))?;
        Ok((warm.classes, warm.specialisations, warm.kernels))
    }
}
