//! Operators: the library of `tilewright-ops` on one GPU, called with tensors of others by name.
#![allow(unsafe_code, reason = "kernels are launched in memory and on streams of others")]

use std::collections::BTreeMap;
use std::ffi::c_void;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyTuple};
use tilewright::launch::{Arg, Gpu, LaunchError, Stream, ViewMut, Workspace};
use tilewright::ops::{self, Call, OpsError, Problems};

use crate::error::{Class, said};
use crate::launch::{Current, failed};
use crate::tensor::{CurrentStream, read};

/// The exception of a call that is refused.
pub(crate) fn refused(py: Python<'_>, error: &OpsError) -> PyErr {
    match error {
        OpsError::Launch(error) => failed(py, error),
        OpsError::NotWarm { .. } | OpsError::NotReady { .. } => said(py, Class::NotReady, error),
        OpsError::Device { .. } => said(py, Class::Device, error),
        OpsError::Compile { .. } => said(py, Class::Compile, error),
        error => said(py, Class::Launch, error),
    }
}

/// The operators on one GPU.
#[pyclass(frozen, module = "tilewright._core")]
pub struct Library {
    pub(crate) ordinal: u32,
    pub(crate) free: ops::Library,
    pub(crate) strict: ops::Library,
}

/// An argument that is there as long as a call.
pub(crate) enum Held {
    Tensor(ViewMut<'static>),
    Float(f32),
    Integer(i32),
}

impl Held {
    /// An argument of a call.
    pub(crate) fn arg(&mut self) -> Arg<'_> {
        match self {
            Held::Tensor(view) => Arg::from(view),
            Held::Float(number) => Arg::from(*number),
            Held::Integer(number) => Arg::from(*number),
        }
    }
}

/// The arguments of a call by name.
pub(crate) struct Arguments {
    pub(crate) held: Vec<(String, Held)>,
    /// The origin of the stream that is current.
    current: CurrentStream,
    /// Keepers of the tensors' memory, where these are not the arguments.
    _keepers: Vec<Py<PyAny>>,
}

impl Arguments {
    /// The arguments of a call on a GPU, with its stream, if it has one. A tensor is also given as `(tensor, type, shape)`: its memory as rows of elements of another type, of which Python has none.
    pub(crate) fn read(
        py: Python<'_>,
        ordinal: u32,
        arguments: &Bound<'_, PyDict>,
        stream: Option<u64>,
    ) -> PyResult<Arguments> {
        let mut held = Vec::with_capacity(arguments.len());
        let (mut current, mut keepers) = (CurrentStream::Stream(0), Vec::new());
        for (name, value) in arguments {
            let name: String = name.extract()?;
            let each = if value.is_instance_of::<PyInt>() {
                Held::Integer(value.extract()?)
            } else if value.is_instance_of::<PyFloat>() {
                Held::Float(value.extract()?)
            } else {
                let on = || stream.map_or_else(|| current.handle(py, ordinal), Ok);
                let mut tensor = match value.cast::<PyTuple>() {
                    Ok(parts) => {
                        let (tensor, dtype, shape): (Bound<'_, PyAny>, String, Vec<i64>) = parts.extract()?;
                        read(py, &name, &tensor, &on)?.seen_as(py, &name, &dtype, &shape)?
                    }
                    Err(_) => read(py, &name, &value, &on)?,
                };
                if tensor.device != ordinal {
                    let message =
                        format!("`{name}` is on GPU {}, and the operators on GPU {ordinal}", tensor.device);
                    return Err(said(py, Class::Launch, message));
                }
                current = tensor.current;
                keepers.extend(tensor.keeper.take());
                // SAFETY: the tensor's library says that its memory is this, and keeps it until work that is on the stream by then has ended.
                Held::Tensor(unsafe {
                    ViewMut::new(tensor.pointer, tensor.dtype, tensor.shape()).with_strides(tensor.strides())
                })
            };
            held.push((name, each));
        }
        Ok(Arguments { held, current, _keepers: keepers })
    }

    /// The stream that is named, or the one that is current.
    pub(crate) fn stream(&self, py: Python<'_>, ordinal: u32, stream: Option<u64>) -> PyResult<u64> {
        stream.map_or_else(|| self.current.handle(py, ordinal), Ok)
    }
}

/// A call as Python asks for it.
struct Asked {
    arguments: Arguments,
    options: BTreeMap<String, String>,
    sizes: BTreeMap<String, i64>,
}

impl Asked {
    /// The call of an operator of a library.
    fn call<'a>(&'a mut self, library: &'a ops::Library, name: &'a str) -> Call<'a> {
        let mut call = library.operator(name);
        for (name, value) in &self.options {
            call = call.option(name, value);
        }
        for (name, size) in &self.sizes {
            call = call.size(name, *size);
        }
        for (name, held) in &mut self.arguments.held {
            call = call.arg(name, held.arg());
        }
        call
    }
}

#[pymethods]
impl Library {
    /// The operators on the GPU with a number.
    #[new]
    fn new(py: Python<'_>, ordinal: u32) -> PyResult<Library> {
        let gpu = Gpu::primary(ordinal).map_err(|e| failed(py, &e))?;
        let free = py.detach(|| ops::Library::for_gpu(&gpu)).map_err(|e| refused(py, &e))?;
        let strict = free.clone().strict();
        Ok(Library { ordinal, free, strict })
    }

    /// Puts the launches of an operator on a stream (a handle; without, the one that is current for the tensors' library). 0; of a caller that `lends` memory, the bytes of the workspace that the call
    /// needs, where what is given is none or too small, and then nothing is on the stream. A `dependent` launch may begin before the one ahead of it has ended, of kernels that wait by themselves.
    #[pyo3(signature = (name, arguments, options, sizes, stream=None, strict=false, workspace=None, lends=false, dependent=false))]
    fn call(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: &Bound<'_, PyDict>,
        options: BTreeMap<String, String>,
        sizes: BTreeMap<String, i64>,
        stream: Option<u64>,
        strict: bool,
        workspace: Option<(u64, u64)>,
        lends: bool,
        dependent: bool,
    ) -> PyResult<u64> {
        let arguments = Arguments::read(py, self.ordinal, arguments, stream)?;
        let stream = arguments.stream(py, self.ordinal, stream)?;
        let mut asked = Asked { arguments, options, sizes };
        let library = if strict { &self.strict } else { &self.free };
        let _current = Current::of(library.gpu()).map_err(|e| failed(py, &e))?;
        // SAFETY: the caller names a stream of this GPU and memory on it, which live until the work has ended.
        let (stream, mut workspace) = unsafe {
            let memory = workspace.map(|(pointer, bytes)| Workspace::new(pointer, bytes));
            (Stream::borrow(std::ptr::without_provenance_mut::<c_void>(stream as usize)), memory)
        };
        let mut call = asked.call(library, name).dependent(dependent);
        if let Some(workspace) = &mut workspace {
            call = call.workspace(workspace);
        }
        match call.run(stream) {
            Ok(()) => Ok(0),
            Err(
                OpsError::Workspace { needed, .. } | OpsError::Launch(LaunchError::Workspace { needed, .. }),
            ) if lends => Ok(needed),
            Err(error) => Err(refused(py, &error)),
        }
    }

    /// The reason why such a call runs which kernels.
    fn why(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: &Bound<'_, PyDict>,
        options: BTreeMap<String, String>,
        sizes: BTreeMap<String, i64>,
    ) -> PyResult<String> {
        let arguments = Arguments::read(py, self.ordinal, arguments, None)?;
        let mut asked = Asked { arguments, options, sizes };
        let _current = Current::of(self.free.gpu()).map_err(|e| failed(py, &e))?;
        asked.call(&self.free, name).why().map(|why| why.to_string()).map_err(|e| refused(py, &e))
    }

    /// Compiles and loads the kernels of an operator for sizes from the first to the last of each range, in parallel; classes, configurations and kernels.
    fn warm_up(
        &self,
        py: Python<'_>,
        name: &str,
        options: BTreeMap<String, String>,
        sizes: BTreeMap<String, (i64, i64)>,
    ) -> PyResult<(usize, usize, usize)> {
        let mut problems = Problems::of(name);
        for (name, value) in &options {
            problems = problems.option(name, value);
        }
        for (name, (first, last)) in sizes {
            problems = problems.size(name, first..=last);
        }
        let warm = py.detach(|| self.free.warm_up(&Asking(problems))).map_err(|e| refused(py, &e))?;
        Ok((warm.classes, warm.specialisations, warm.kernels))
    }
}

/// Problems as a library takes them.
struct Asking(Problems);

impl AsRef<Problems> for Asking {
    fn as_ref(&self) -> &Problems {
        &self.0
    }
}
