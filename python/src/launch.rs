//! Launches on GPUs: a kernel's specialisations, each compiled and loaded once, and calls with tensors of others on their streams.
#![allow(unsafe_code, reason = "kernels are launched in memory and on streams of others")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{intern, types::PyAny};
use tilewright::cache::{CompileError, Kernels};
use tilewright::compiler::Options;
use tilewright::launch::{Arg, Gpu, Kernel, LaunchError, Stream, View, ViewMut};
use tilewright::machine::{self, Arch};
use tilewright::tile::{self, Constants, Expr, ParamKind, Sources};

use crate::error::{Class, refused, said};
use crate::tensor::{Given, read};

/// Bytes of the contiguous mode on which kernels rely, at most.
const VECTOR: i64 = 16;

/// The exception of a launch that is refused.
pub fn failed(py: Python<'_>, error: &LaunchError) -> PyErr {
    let class = match error {
        LaunchError::NotReady { .. } => Class::NotReady,
        LaunchError::NoDriver { .. } | LaunchError::NoContext | LaunchError::NoSuchDevice { .. } => {
            Class::Device
        }
        _ => Class::Launch,
    };
    said(py, class, error)
}

/// A parameter of the kernel.
struct Param {
    name: String,
    dtype: machine::DType,
    kind: Kind,
}

enum Kind {
    Scalar,
    Tensor {
        written: bool,
    },
    /// An array of tensors, for which launches from Python have no form.
    Array,
}

/// A size: its name, the first place in a shape that says it, its default, and the multiple on which kernels rely at most.
struct Size {
    name: String,
    place: Option<(usize, usize)>,
    default: i64,
    limit: i64,
}

/// Kernels that have been compiled: a GPU, and for each size the multiple on which the kernel relies.
type Key = (u32, Vec<i64>);

/// The launches of a program with values of its constants.
#[pyclass(frozen, module = "tilewright._core")]
pub struct Launcher {
    program: Arc<tile::Program>,
    sources: Sources,
    constants: Constants,
    params: Vec<Param>,
    sizes: Vec<Size>,
    loaded: RwLock<BTreeMap<Key, Kernel>>,
    gpus: Mutex<BTreeMap<u32, Gpu>>,
}

impl Launcher {
    /// Of a program, with values of constants.
    pub fn new(
        program: Arc<tile::Program>,
        sources: Sources,
        constants: Constants,
    ) -> Result<Launcher, tile::Diagnostics> {
        let verified = tile::verify(&program, &constants)?;
        let written: Vec<usize> = verified.outputs().iter().map(|id| id.0 as usize).collect();
        let mut sizes: Vec<Size> = program
            .sizes()
            .map(|(_, symbol, default)| Size { name: symbol.name.clone(), place: None, default, limit: 1 })
            .collect();
        let symbols: Vec<_> = program.sizes().map(|(id, ..)| id).collect();
        let params = program.params.iter().enumerate().map(|(number, param)| {
            let kind = match &param.kind {
                ParamKind::Scalar { .. } => Kind::Scalar,
                ParamKind::Tensor { .. } if param.is_array() => Kind::Array,
                ParamKind::Tensor { shape, strides, .. } => {
                    for (mode, extent) in shape.iter().enumerate() {
                        let Expr::Symbol(symbol) = extent else { continue };
                        let Some(size) = symbols.iter().position(|id| id == symbol) else { continue };
                        sizes[size].place.get_or_insert((number, mode));
                        // Rows lie a multiple of the contiguous extent apart; explicit strides may be of any size.
                        if mode + 1 == shape.len() || strides.is_some() {
                            let vector = VECTOR * 8 / i64::from(param.dtype.bits());
                            sizes[size].limit = sizes[size].limit.max(vector);
                        }
                    }
                    Kind::Tensor { written: written.contains(&number) }
                }
            };
            Param { name: param.name.clone(), dtype: param.dtype, kind }
        });
        let params = params.collect();
        let (loaded, gpus) = (RwLock::default(), Mutex::default());
        Ok(Launcher { program, sources, constants, params, sizes, loaded, gpus })
    }

    fn gpu(&self, ordinal: u32) -> Result<Gpu, LaunchError> {
        let mut gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = gpus.get(&ordinal) {
            return Ok(gpu.clone());
        }
        let gpu = Gpu::primary(ordinal)?;
        gpus.insert(ordinal, gpu.clone());
        Ok(gpu)
    }

    /// The multiples on which a kernel for these sizes relies: whole vectors of the contiguous mode, or nothing.
    fn multiples(&self, values: &[i64]) -> Vec<i64> {
        let both = self.sizes.iter().zip(values);
        both.map(|(size, value)| if value % size.limit == 0 { size.limit } else { 1 }).collect()
    }

    fn known(&self, key: &Key) -> Option<Kernel> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Compiles and loads a specialisation, or takes the one that is kept on disk.
    fn load(&self, key: Key) -> Result<Kernel, Unloaded> {
        let gpu = self.gpu(key.0)?;
        let arch = Arch::ALL.into_iter().rev().find(|arch| arch.runs_on(gpu.capability()));
        let arch = arch.ok_or_else(|| {
            let (major, minor) = gpu.capability();
            Unloaded::Said(format!(
                "`{}` has compute capability {major}.{minor}, for which there is no architecture",
                gpu.name()
            ))
        })?;
        let named = self.sizes.iter().zip(&key.1);
        let multiples = named
            .filter(|(_, multiple)| **multiple > 1)
            .map(|(size, multiple)| (size.name.clone(), *multiple));
        let mut options =
            Options::new(arch).with_constants(self.constants.clone()).for_sizes(&self.program, &[]);
        options.multiples = multiples.collect();
        let kernels = Kernels::of_user().map_err(|e| Unloaded::Said(e.to_string()))?;
        let kernel = kernels.load_or_compile(&self.program, &options)?.load(&gpu)?;
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        Ok(loaded.entry(key).or_insert(kernel).clone())
    }

    fn raised(&self, py: Python<'_>, unloaded: Unloaded) -> PyErr {
        match unloaded {
            Unloaded::Launch(error) => failed(py, &error),
            Unloaded::Compile(CompileError::Diagnostics(diagnostics)) => {
                refused(py, Class::Compile, &self.sources, &diagnostics)
            }
            Unloaded::Compile(error) => said(py, Class::Compile, error),
            Unloaded::Said(text) => said(py, Class::Launch, text),
        }
    }

    /// The values of all sizes: those of shapes, of `given`, and defaults.
    fn values(
        &self,
        py: Python<'_>,
        args: &[Given],
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<i64>> {
        let mut values = Vec::with_capacity(self.sizes.len());
        for size in &self.sizes {
            let said = given.map(|given| given.get_item(&size.name)).transpose()?.flatten();
            let of_shape = size.place.and_then(|(param, mode)| args.get(param)?.extent(mode));
            values.push(match said {
                Some(value) => value.extract()?,
                None => of_shape.unwrap_or(size.default),
            });
        }
        if let Some(at) = values.iter().position(|value| *value < 1) {
            let message =
                format!("the size `{}` must be at least 1, and is {}", self.sizes[at].name, values[at]);
            return Err(said(py, Class::Launch, message));
        }
        Ok(values)
    }
}

/// Reason why a specialisation is not there.
enum Unloaded {
    Launch(LaunchError),
    Compile(CompileError),
    Said(String),
}

impl From<LaunchError> for Unloaded {
    fn from(error: LaunchError) -> Self {
        Unloaded::Launch(error)
    }
}

impl From<CompileError> for Unloaded {
    fn from(error: CompileError) -> Self {
        Unloaded::Compile(error)
    }
}

#[pymethods]
impl Launcher {
    /// Puts a launch on a stream (a handle of the driver's; without, what the tensors' library says) with one argument for each parameter. A specialisation that
    /// is missing is compiled and loaded, or, of a `strict` launch and while the stream is captured, refused.
    #[pyo3(signature = (args, stream, strict, sizes=None))]
    fn launch(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        stream: Option<u64>,
        strict: bool,
        sizes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        if args.len() != self.params.len() {
            let names: Vec<&str> = self.params.iter().map(|param| param.name.as_str()).collect();
            let message = format!(
                "{} arguments are given for the {} parameters {}",
                args.len(),
                names.len(),
                names.join(", ")
            );
            return Err(said(py, Class::Launch, message));
        }
        let mut given = Vec::with_capacity(self.params.len());
        let mut ordinal = None;
        for (param, arg) in self.params.iter().zip(args.iter()) {
            let each = match param.kind {
                Kind::Scalar => number(py, param, &arg)?,
                Kind::Tensor { .. } => read(py, &param.name, &arg)?,
                Kind::Array => {
                    let message = format!(
                        "`{}` is an array of tensors, which launches from Python do not take",
                        param.name
                    );
                    return Err(said(py, Class::Launch, message));
                }
            };
            if let Given::Tensor(tensor) = &each {
                let first = *ordinal.get_or_insert(tensor.device);
                if first != tensor.device {
                    let message = format!(
                        "`{}` is on GPU {}, and a tensor before it on GPU {first}",
                        param.name, tensor.device
                    );
                    return Err(said(py, Class::Launch, message));
                }
            }
            given.push(each);
        }
        let values = self.values(py, &given, sizes)?;
        let key = (ordinal.unwrap_or(0), self.multiples(&values));
        let stream = match stream {
            Some(stream) => stream,
            None => current_stream(py, key.0)?,
        };
        // SAFETY: the caller names a stream of this GPU, which lives during the call.
        let stream = unsafe { Stream::borrow(std::ptr::without_provenance_mut::<c_void>(stream as usize)) };
        let kernel = match self.known(&key) {
            Some(kernel) => kernel,
            None => {
                let gpu = self.gpu(key.0).map_err(|e| failed(py, &e))?;
                if strict || stream.is_capturing(gpu.driver()) {
                    let error = LaunchError::NotReady { kernel: self.program.name.clone() };
                    return Err(failed(py, &error));
                }
                py.detach(|| self.load(key)).map_err(|e| self.raised(py, e))?
            }
        };
        let mut views: Vec<Viewed> = Vec::with_capacity(given.len());
        for (param, each) in self.params.iter().zip(&given) {
            views.push(Viewed::new(param, each));
        }
        let args: Vec<Arg<'_>> = views.iter_mut().map(Viewed::arg).collect();
        let _current = Current::of(kernel.module().gpu()).map_err(|e| failed(py, &e))?;
        kernel.launch(stream, &values, args.as_slice()).map_err(|e| failed(py, &e))
    }

    /// Compiles and loads what launches at these sizes need, in parallel; the number of specialisations that were not there.
    fn warm_up(&self, py: Python<'_>, ordinal: u32, sizes: Vec<BTreeMap<String, i64>>) -> PyResult<usize> {
        let mut keys: Vec<Key> = Vec::new();
        for given in sizes {
            if let Some(name) = given.keys().find(|name| self.sizes.iter().all(|size| size.name != **name)) {
                let names: Vec<&str> = self.sizes.iter().map(|size| size.name.as_str()).collect();
                let message = format!(
                    "`{name}` is no size of `{}`; its sizes are {}",
                    self.program.name,
                    names.join(", ")
                );
                return Err(said(py, Class::Launch, message));
            }
            let values: Vec<i64> = self
                .sizes
                .iter()
                .map(|size| given.get(&size.name).copied().unwrap_or(size.default))
                .collect();
            let key = (ordinal, self.multiples(&values));
            if !keys.contains(&key) && self.known(&key).is_none() {
                keys.push(key);
            }
        }
        let count = keys.len();
        let load = || -> Result<(), Unloaded> {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    keys.into_iter().map(|key| scope.spawn(move || self.load(key).map(drop))).collect();
                threads.into_iter().try_for_each(|thread| {
                    thread.join().unwrap_or_else(|_| Err(Unloaded::Said("compiling panicked".to_string())))
                })
            })
        };
        py.detach(load).map_err(|e| self.raised(py, e))?;
        Ok(count)
    }

    /// Kernels that have been compiled and loaded: the GPU's number, and the multiples of sizes on which each relies.
    fn specialisations(&self) -> Vec<(u32, BTreeMap<String, i64>)> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(ordinal, multiples): &Key| {
            let named = self.sizes.iter().zip(multiples);
            (*ordinal, named.map(|(size, multiple)| (size.name.clone(), *multiple)).collect())
        };
        loaded.keys().map(of).collect()
    }
}

/// A number for a scalar parameter.
fn number(py: Python<'_>, param: &Param, value: &Bound<'_, PyAny>) -> PyResult<Given> {
    let wrong = |_| {
        let message = format!(
            "`{}` is a number of type {}, and a {} is given",
            param.name,
            param.dtype,
            value.get_type()
        );
        said(py, Class::Launch, message)
    };
    let range = |_: std::num::TryFromIntError| {
        said(
            py,
            Class::Launch,
            format!("`{}` is an {}, which does not reach to {value}", param.name, param.dtype),
        )
    };
    Ok(match param.dtype {
        machine::DType::F64 => Given::F64(value.extract().map_err(wrong)?),
        machine::DType::I32 => Given::I32(value.extract::<i64>().map_err(wrong)?.try_into().map_err(range)?),
        machine::DType::U32 => Given::U32(value.extract::<i64>().map_err(wrong)?.try_into().map_err(range)?),
        machine::DType::I64 => Given::I64(value.extract().map_err(wrong)?),
        machine::DType::U64 => Given::U64(value.extract().map_err(wrong)?),
        _ => Given::F32(value.extract().map_err(wrong)?),
    })
}

/// An argument as a launch takes it.
enum Viewed {
    Read(View<'static>),
    Write(ViewMut<'static>),
    Number(Given),
}

impl Viewed {
    fn new(param: &Param, given: &Given) -> Viewed {
        let Given::Tensor(tensor) = given else { return Viewed::Number(given.clone()) };
        let (pointer, dtype) = (tensor.pointer, tensor.dtype);
        // SAFETY: the tensor's library says that its memory is this, and keeps it until work that is on the stream by then has ended.
        unsafe {
            match param.kind {
                Kind::Tensor { written: true } => {
                    Viewed::Write(ViewMut::new(pointer, dtype, &tensor.shape).with_strides(&tensor.strides))
                }
                _ => Viewed::Read(View::new(pointer, dtype, &tensor.shape).with_strides(&tensor.strides)),
            }
        }
    }

    fn arg(&mut self) -> Arg<'_> {
        match self {
            Viewed::Read(view) => Arg::from(&*view),
            Viewed::Write(view) => Arg::from(view),
            Viewed::Number(Given::F64(x)) => Arg::from(*x),
            Viewed::Number(Given::I32(x)) => Arg::from(*x),
            Viewed::Number(Given::U32(x)) => Arg::from(*x),
            Viewed::Number(Given::I64(x)) => Arg::from(*x),
            Viewed::Number(Given::U64(x)) => Arg::from(*x),
            Viewed::Number(Given::F32(x)) => Arg::from(*x),
            Viewed::Number(Given::Tensor(tensor)) => Arg::from(tensor.pointer),
        }
    }
}

/// The context that was current before a launch, which is current again behind it.
pub struct Current(Option<(Gpu, *mut c_void)>);

impl Current {
    /// Makes the context of a GPU current.
    pub fn of(gpu: &Gpu) -> Result<Current, LaunchError> {
        let (driver, mut before) = (gpu.driver(), std::ptr::null_mut());
        // SAFETY: the driver writes the context to where it is told.
        let asked = unsafe { driver.context_get_current(&raw mut before) };
        if asked.is_ok() && before == gpu.context() {
            return Ok(Current(None));
        }
        gpu.bind()?;
        // Where there was none, the primary context stays, as CUDA's runtime has it.
        Ok(Current((asked.is_ok() && !before.is_null()).then(|| (gpu.clone(), before))))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some((gpu, before)) = &self.0 {
            // SAFETY: the context was current before. An error has nobody to go to.
            let _ = unsafe { gpu.driver().context_set_current(*before) };
        }
    }
}

/// The handle of torch's current stream on a GPU; 0 of the default stream, where torch is not imported.
pub fn current_stream(py: Python<'_>, ordinal: u32) -> PyResult<u64> {
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let torch = modules.call_method1(intern!(py, "get"), (intern!(py, "torch"),))?;
    if torch.is_none() {
        return Ok(0);
    }
    let raw = torch.getattr(intern!(py, "_C"))?.getattr(intern!(py, "_cuda_getCurrentRawStream"));
    match raw {
        Ok(function) => function.call1((ordinal,))?.extract(),
        Err(_) => Err(PyTypeError::new_err("this torch has no CUDA: name the stream, `stream=…`")),
    }
}
