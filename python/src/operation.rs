//! Kernels as operators of torch, where nothing stands between a call and its tensors: what torch's dispatcher would do is done here.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::launch::Launcher;
use crate::tensor::exchange;

/// The calls that torch's dispatcher need not see: with tensors of a GPU that nobody differentiates, traces or intercepts.
#[pyclass(frozen, module = "tilewright._core")]
pub struct Plain {
    /// The class of all tensors.
    tensor: Py<PyAny>,
    /// Classes whose objects are what they look like.
    classes: Vec<Py<PyAny>>,
    /// Functions that say whether something intercepts calls.
    interceptors: Vec<Py<PyAny>>,
    /// The function that says whether gradients are recorded.
    recording: Py<PyAny>,
}

#[pymethods]
impl Plain {
    /// By classes and functions of torch.
    #[new]
    fn new(
        tensor: Py<PyAny>,
        classes: Vec<Py<PyAny>>,
        interceptors: Vec<Py<PyAny>>,
        recording: Py<PyAny>,
    ) -> Plain {
        Plain { tensor, classes, interceptors, recording }
    }

    /// True of a call with these arguments.
    fn __call__(&self, py: Python<'_>, given: &Bound<'_, PyTuple>) -> PyResult<bool> {
        for interceptor in &self.interceptors {
            if interceptor.bind(py).call0()?.is_truthy()? {
                return Ok(false);
            }
        }
        let recording = self.recording.bind(py).call0()?.is_truthy()?;
        for value in given.iter_borrowed() {
            let class = value.get_type_ptr().cast();
            if !self.classes.iter().any(|known| known.as_ptr() == class) {
                if value.is_instance_of::<PyList>()
                    || value.is_instance_of::<PyTuple>()
                    || value.is_instance(self.tensor.bind(py))?
                {
                    return Ok(false);
                }
                continue;
            }
            if !value.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
                return Ok(false);
            }
            // The dispatcher resolves such a view first.
            if value.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
                return Ok(false);
            }
            if recording && value.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A kernel as an operator, whose results are each of the shape and type of an input.
#[pyclass(frozen, module = "tilewright._core")]
pub struct Operation {
    plain: Py<Plain>,
    launcher: Py<Launcher>,
    /// The function that makes a tensor like another.
    empty_like: Py<PyAny>,
    /// Of each result the input that it is like.
    likes: Vec<usize>,
    /// Of each parameter its place among the inputs with the results behind them.
    order: Vec<usize>,
    /// Inputs that lie in row-major order without gaps.
    dense: Vec<usize>,
    inputs: usize,
}

#[pymethods]
impl Operation {
    /// Of a launcher and places of its parameters.
    #[new]
    fn new(
        plain: Py<Plain>,
        launcher: Py<Launcher>,
        empty_like: Py<PyAny>,
        likes: Vec<usize>,
        order: Vec<usize>,
        dense: Vec<usize>,
        inputs: usize,
    ) -> Operation {
        Operation { plain, launcher, empty_like, likes, order, dense, inputs }
    }

    /// The results of a call with all inputs, whose launch is on the current stream; nothing of a call that torch's dispatcher has to see, or with an input that lies
    /// otherwise.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if given.len() != self.inputs || !self.plain.get().__call__(py, given)? {
            return Ok(None);
        }
        for number in &self.dense {
            let value = given.get_item(*number)?;
            let Some(exchange) = exchange(&value)? else { return Ok(None) };
            if !exchange.lend(&value)?.is_dense() {
                return Ok(None);
            }
        }
        let mut made = Vec::with_capacity(self.likes.len());
        for like in &self.likes {
            made.push(self.empty_like.bind(py).call1((given.get_borrowed_item(*like)?,))?);
        }
        let argument = |place: &usize| match made.get(place.wrapping_sub(self.inputs)) {
            Some(result) => Ok(result.clone()),
            None => given.get_item(*place),
        };
        let arguments = self.order.iter().map(argument).collect::<PyResult<Vec<_>>>()?;
        self.launcher.get().put(py, &PyTuple::new(py, arguments)?, None, None)?;
        match made.len() {
            1 => Ok(made.pop()),
            _ => Ok(Some(PyTuple::new(py, made)?.into_any())),
        }
    }
}
