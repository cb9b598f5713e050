//! Launches on GPUs: a kernel's specialisations, each compiled and loaded once, and calls with tensors of others on their streams.
#![allow(unsafe_code, reason = "kernels are launched in memory and on streams of others")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyTuple};
use tilewright::cache::{CompileError, Kernels};
use tilewright::compiler::Options;
use tilewright::launch::{
    Arg, Driver, Gpu, Kernel, LaunchError, MOST_PARAMS, Memo, Plan, Stream, View, ViewMut, hash,
};
use tilewright::machine::{self, Arch};
use tilewright::tile::{self, Constants, Expr, ParamKind, Sources};

use crate::error::{Class, refused, said};
use crate::tensor::{CurrentStream, Tensor, read};

/// Bytes of the contiguous mode on which kernels rely, at most.
const VECTOR: i64 = 16;

/// Plans that a launcher keeps: those of the sizes that were used last. Those of others are the kernel's.
const PLANS_KEPT: usize = 4096;

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

/// The names of the GPUs that launches may be on, by number; none where there is no driver.
#[pyfunction]
pub fn gpus() -> Vec<String> {
    let Ok(driver) = Driver::system() else { return Vec::new() };
    let name = |ordinal| driver.device(ordinal).and_then(|device| driver.name(device)).ok();
    (0..driver.count().unwrap_or(0)).map_while(name).collect()
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
    /// Refuses what is not loaded, where a launch would compile.
    strict: AtomicBool,
    loaded: RwLock<BTreeMap<Key, Kernel>>,
    /// By the GPU's number and the values of sizes.
    plans: Memo<Box<[i64]>, Plan>,
    gpus: Mutex<BTreeMap<u32, Gpu>>,
}

/// The arguments of a launch, the keepers of their memory, and the GPU on which they are.
type Arguments = (Vec<Held>, Vec<Py<PyAny>>, Option<At>);

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
        let (strict, plans) = (AtomicBool::new(false), Memo::new(PLANS_KEPT));
        let (loaded, gpus) = (RwLock::default(), Mutex::default());
        Ok(Launcher { program, sources, constants, params, sizes, strict, loaded, plans, gpus })
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        self.params.len()
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

    /// The arguments of a launch, one for each parameter, who keeps their memory, and the GPU on which they are with the stream that is current there.
    fn held(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, stream: Option<u64>) -> PyResult<Arguments> {
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
        let mut held = Vec::with_capacity(self.params.len());
        let mut keepers = Vec::new();
        let mut at: Option<At> = None;
        for (param, arg) in self.params.iter().zip(args.iter_borrowed()) {
            let written = match param.kind {
                Kind::Scalar => {
                    held.push(Held::Number(number(py, param, &arg)?));
                    continue;
                }
                Kind::Array => {
                    let message = format!(
                        "`{}` is an array of tensors, which launches from Python do not take",
                        param.name
                    );
                    return Err(said(py, Class::Launch, message));
                }
                Kind::Tensor { written } => written,
            };
            // The stream that is asked for, or the one that is current for the tensors before.
            let on = || match (stream, &at) {
                (Some(stream), _) => Ok(stream),
                (None, Some(at)) => at.current.handle(py, at.ordinal),
                (None, None) => Ok(0),
            };
            let tensor = read(py, &param.name, &arg, &on)?;
            let first = at.get_or_insert(At { ordinal: tensor.device, current: tensor.current }).ordinal;
            if first != tensor.device {
                let message = format!(
                    "`{}` is on GPU {}, and a tensor before it on GPU {first}",
                    param.name, tensor.device
                );
                return Err(said(py, Class::Launch, message));
            }
            held.push(Held::tensor(&tensor, written));
            keepers.extend(tensor.keeper);
        }
        Ok((held, keepers, at))
    }

    /// Writes the values of all sizes: those of shapes, of `given`, and defaults.
    fn values(
        &self,
        py: Python<'_>,
        args: &[Held],
        given: Option<&Bound<'_, PyDict>>,
        values: &mut [i64],
    ) -> PyResult<()> {
        for (size, value) in self.sizes.iter().zip(values) {
            let said_of = given.map(|given| given.get_item(&size.name)).transpose()?.flatten();
            let of_shape = size.place.and_then(|(param, mode)| args.get(param)?.extent(mode));
            *value = match said_of {
                Some(value) => value.extract()?,
                None => of_shape.unwrap_or(size.default),
            };
            if *value < 1 {
                let message = format!("the size `{}` must be at least 1, and is {value}", size.name);
                return Err(said(py, Class::Launch, message));
            }
        }
        Ok(())
    }

    /// Puts a launch on a stream (a handle of the driver's; without, the one that is current for the tensors' library).
    pub fn put(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        stream: Option<u64>,
        sizes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let (mut held, _keepers, at) = self.held(py, args, stream)?;
        let At { ordinal, current } = at.unwrap_or(At { ordinal: 0, current: CurrentStream::Torch });
        // The GPU and the sizes, which decide the plan.
        let mut key = [0i64; 1 + MOST_PARAMS];
        let Some(key) = key.get_mut(..=self.sizes.len()) else {
            let (name, sizes) = (&self.program.name, self.sizes.len());
            let message = format!("`{name}` has {sizes} sizes, and kernels have at most {MOST_PARAMS}");
            return Err(said(py, Class::Launch, message));
        };
        key[0] = i64::from(ordinal);
        self.values(py, &held, sizes, &mut key[1..])?;
        let stream = match stream {
            Some(stream) => stream,
            None => current.handle(py, ordinal)?,
        };
        // SAFETY: the caller names a stream of this GPU, which lives during the call.
        let stream = unsafe { Stream::borrow(std::ptr::without_provenance_mut::<c_void>(stream as usize)) };
        let number = hash(key.iter().map(|value| value.cast_unsigned()));
        let known = self.plans.get(number, |known| **known == *key);
        let made;
        let plan: &Plan = match &known {
            Some(plan) => plan,
            None => {
                made = self.plan(py, ordinal, &key[1..], stream)?;
                // Of what is not kept the kernel has the plan.
                drop(self.plans.insert(number, (&*key).into(), made.clone()));
                &made
            }
        };
        let args: Vec<Arg<'_>> = held.iter_mut().map(Held::arg).collect();
        let _current = Current::of(plan.gpu()).map_err(|e| failed(py, &e))?;
        plan.launch(stream, args.as_slice()).map_err(|e| failed(py, &e))
    }

    /// The plan of launches at sizes that none was made for. A specialisation that is missing is compiled and loaded, or, of a strict launcher and while the
    /// stream is captured, refused.
    fn plan(&self, py: Python<'_>, ordinal: u32, values: &[i64], stream: Stream<'_>) -> PyResult<Plan> {
        let key = (ordinal, self.multiples(values));
        let kernel = match self.known(&key) {
            Some(kernel) => kernel,
            None => {
                let gpu = self.gpu(ordinal).map_err(|e| failed(py, &e))?;
                if self.strict() || stream.is_capturing(gpu.driver()) {
                    let error = LaunchError::NotReady { kernel: self.program.name.clone() };
                    return Err(failed(py, &error));
                }
                py.detach(|| self.load(key)).map_err(|e| self.raised(py, e))?
            }
        };
        kernel.plan(values).map_err(|e| failed(py, &e))
    }
}

/// The GPU of a launch, and the origin of the stream that is current there.
struct At {
    ordinal: u32,
    current: CurrentStream,
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
    /// Puts a launch on a stream (a handle of the driver's; without, the one that is current for the tensors' library) with one argument for each parameter.
    #[pyo3(signature = (args, stream=None, sizes=None))]
    fn launch(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        stream: Option<u64>,
        sizes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.put(py, args, stream, sizes)
    }

    /// True if a launch compiles nothing.
    #[getter]
    fn strict(&self) -> bool {
        self.strict.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_strict(&self, strict: bool) {
        self.strict.store(strict, Ordering::Relaxed);
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
fn number(py: Python<'_>, param: &Param, value: &Bound<'_, PyAny>) -> PyResult<Arg<'static>> {
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
        machine::DType::F64 => Arg::from(value.extract::<f64>().map_err(wrong)?),
        machine::DType::I32 => {
            Arg::from(i32::try_from(value.extract::<i64>().map_err(wrong)?).map_err(range)?)
        }
        machine::DType::U32 => {
            Arg::from(u32::try_from(value.extract::<i64>().map_err(wrong)?).map_err(range)?)
        }
        machine::DType::I64 => Arg::from(value.extract::<i64>().map_err(wrong)?),
        machine::DType::U64 => Arg::from(value.extract::<u64>().map_err(wrong)?),
        _ => Arg::from(value.extract::<f32>().map_err(wrong)?),
    })
}

/// An argument for as long as a launch takes.
enum Held {
    Read(View<'static>),
    Write(ViewMut<'static>),
    Number(Arg<'static>),
}

impl Held {
    /// A tensor for a parameter.
    fn tensor(tensor: &Tensor, written: bool) -> Held {
        let (pointer, dtype, shape, strides) =
            (tensor.pointer, tensor.dtype, tensor.shape(), tensor.strides());
        // SAFETY: the tensor's library says that its memory is this, and keeps it until work that is on the stream by then has ended.
        unsafe {
            match written {
                true => Held::Write(ViewMut::new(pointer, dtype, shape).with_strides(strides)),
                false => Held::Read(View::new(pointer, dtype, shape).with_strides(strides)),
            }
        }
    }

    /// An extent of a tensor.
    fn extent(&self, mode: usize) -> Option<i64> {
        match self {
            Held::Read(view) => view.shape().get(mode).copied(),
            Held::Write(view) => view.shape().get(mode).copied(),
            Held::Number(_) => None,
        }
    }

    fn arg(&mut self) -> Arg<'_> {
        match self {
            Held::Read(view) => Arg::from(&*view),
            Held::Write(view) => Arg::from(view),
            Held::Number(number) => *number,
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
