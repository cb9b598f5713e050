//! Calls of kernels as objects of Python: what is given in order goes to the launcher without a line of Python.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::launch::Launcher;

/// The base of classes whose objects are called for launches.
#[pyclass(frozen, subclass, module = "tilewright._core")]
pub struct Callable {
    launcher: PyOnceLock<Py<Launcher>>,
}

#[pymethods]
impl Callable {
    /// One without a launcher yet; the arguments are those of the class that extends it.
    #[new]
    #[pyo3(signature = (*_args, **_named))]
    fn new(_args: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> Callable {
        Callable { launcher: PyOnceLock::new() }
    }

    /// Puts a launch on the stream (a handle), or on the one that is current for the tensors' library; nothing waits, and nothing is simulated.
    #[pyo3(signature = (*args, stream=None, **named))]
    fn __call__(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        stream: Option<u64>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let launcher = match slf.get().launcher.get(py) {
            Some(launcher) => launcher,
            None => {
                let made = slf.call_method0("_launcher")?.cast_into::<Launcher>()?.unbind();
                slf.get().launcher.get_or_init(py, || made)
            }
        };
        let launcher = launcher.get();
        if named.is_none() && args.len() == launcher.parameters() {
            return launcher.put(py, args, stream, None);
        }
        // By name, or with defaults.
        let named = named.map_or_else(|| PyDict::new(py), Clone::clone);
        let (args, sizes) = slf
            .call_method1("_bound", (args, named))?
            .extract::<(Bound<'_, PyTuple>, Option<Bound<'_, PyDict>>)>()?;
        launcher.put(py, &args, stream, sizes.as_ref())
    }
}
