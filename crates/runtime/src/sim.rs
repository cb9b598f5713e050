//! The simulator as a device.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_compiler::Kernel;
use tilewright_machine::Arch;
use tilewright_sim::{Argument, Config, GlobalMemory};
use tilewright_simt::FunctionParamKind;

use crate::arg::{Arg, LaunchOptions, Sizes};
use crate::buffer::{Buffer, DeviceId, Storage};
use crate::device::sealed::Sealed;
use crate::device::{Device, DeviceKind};
use crate::error::RuntimeError;
use crate::launch::{Launch, Mapped, Passed, check};
use crate::report::{LaunchReport, Timing};
use crate::sequence::Uses;

/// The simulator. Buffers live in this process.
///
/// A launch is an error, and leaves the buffers as they were, where hardware would hang or do anything at all. Races and
/// accesses outside buffers end no launch: they are in its report (see [`LaunchReport::problems`]).
#[derive(Debug)]
pub struct SimDevice {
    id: DeviceId,
    config: Config,
}

impl Default for SimDevice {
    fn default() -> Self {
        SimDevice::new(Config::default())
    }
}

impl SimDevice {
    /// The name of every simulator.
    pub(crate) const NAME: &str = "Tilewright simulator";

    /// A simulator that decides by this configuration what hardware leaves open.
    pub fn new(config: Config) -> Self {
        SimDevice { id: DeviceId::new(), config }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn bytes<'a>(&self, buffer: &'a Buffer) -> Result<&'a Arc<Mutex<Vec<u8>>>, RuntimeError> {
        match &buffer.storage {
            Storage::Host(bytes) if buffer.device == self.id => Ok(bytes),
            _ => Err(RuntimeError::ForeignBuffer { device: self.name() }),
        }
    }

    /// An empty sequence of launches.
    pub fn sequence(&self) -> SimSequence<'_> {
        SimSequence { device: self, launches: Vec::new(), uses: Uses::default() }
    }

    /// Runs a launch that was checked. `constant` says of which buffers no launch that it may overlap writes them.
    fn simulate(
        &self,
        kernel: &Kernel,
        launch: &Launch<'_>,
        config: &Config,
        constant: &dyn Fn(&Buffer) -> bool,
    ) -> Result<LaunchReport, RuntimeError> {
        let failed =
            |error| RuntimeError::Simulator { kernel: kernel.program().name.clone(), error: Box::new(error) };
        // Simulated memory has the buffers of this launch and nothing else, so that an access outside them is found. A
        // buffer that is passed twice is there once.
        let mut memory = GlobalMemory::new();
        let mut ids = HashMap::new();
        let mut arguments = Vec::with_capacity(launch.params.len());
        let mut place = |memory: &mut GlobalMemory, buffers: &[&Buffer]| -> Result<Vec<_>, RuntimeError> {
            let place = |buffer: &&Buffer| {
                let bytes = self.bytes(buffer)?;
                Ok(*ids.entry(buffer.key()).or_insert_with(|| {
                    let id = memory.alloc(buffer.bytes);
                    memory.write(id, &copy_of(bytes));
                    if constant(buffer) {
                        memory.mark_constant(id);
                    }
                    id
                }))
            };
            buffers.iter().map(place).collect()
        };
        for passed in &launch.params {
            arguments.push(match passed {
                Passed::Number(kind, bits) => match kind {
                    FunctionParamKind::F32 => Argument::F32(f32::from_bits(*bits as u32)),
                    FunctionParamKind::F64 => Argument::F64(f64::from_bits(*bits)),
                    FunctionParamKind::I64 => Argument::I64(bits.cast_signed()),
                    _ => Argument::I32((*bits as u32).cast_signed()),
                },
                Passed::Buffer(buffer) => Argument::Buffer(place(&mut memory, &[buffer])?[0]),
                Passed::Buffers(buffers) => {
                    let buffers = place(&mut memory, buffers)?;
                    Argument::Buffers { pointers: memory.alloc_pointers(&buffers), buffers }
                }
                Passed::TensorMap(Mapped { buffers, extents, strides, .. }) => Argument::TensorMap {
                    buffer: place(&mut memory, &buffers[..1])?[0],
                    extents: extents.clone(),
                    strides: strides.clone(),
                },
                Passed::TensorMaps(Mapped { buffers, extents, strides, .. }) => Argument::TensorMaps {
                    buffers: place(&mut memory, buffers)?,
                    extents: extents.clone(),
                    strides: strides.clone(),
                },
            });
        }
        let report = tilewright_sim::run(&kernel.function, launch.grid, &memory, &arguments, config)
            .map_err(failed)?;
        for passed in &launch.params {
            let buffers = match passed {
                Passed::Buffer(buffer) => std::slice::from_ref(buffer),
                Passed::Buffers(buffers) => buffers,
                Passed::Number(..) | Passed::TensorMap(_) | Passed::TensorMaps(_) => &[],
            };
            for buffer in buffers {
                replace(self.bytes(buffer)?, memory.read(ids[&buffer.key()]));
            }
        }
        Ok(LaunchReport::Sim(Box::new(report)))
    }
}

/// Launches one after another on the simulator, which may overlap as they do on a GPU.
///
/// Each launch is executed to its end before the next. That a later one may begin earlier changes nothing in a right sequence: what it
/// accesses before [`wait_dependencies`](tilewright_tile::StmtKind::WaitDependencies) no launch of the sequence writes, and the report of a
/// launch that accesses anything else says so. What an earlier launch lets begin early waits, in every block, for all launches before
/// it, so that the order of a sequence is that of any two of its launches.
pub struct SimSequence<'a> {
    device: &'a SimDevice,
    launches: Vec<Queued<'a>>,
    uses: Uses,
}

/// A launch of a sequence.
struct Queued<'a> {
    kernel: &'a Kernel,
    launch: Launch<'a>,
    options: LaunchOptions,
}

impl<'a> SimSequence<'a> {
    /// Adds a launch, which comes after those before.
    ///
    /// # Errors
    ///
    /// Those of [`Device::launch`], and [`RuntimeError::ConstantWritten`] if a parameter of one launch is `constant` and another launch
    /// of the sequence writes its buffer.
    pub fn push(
        &mut self,
        kernel: &'a Kernel,
        sizes: &Sizes,
        args: &[Arg<'a>],
        options: LaunchOptions,
    ) -> Result<(), RuntimeError> {
        let launch = check(kernel, sizes, args, self.device.id, SimDevice::NAME)?;
        self.uses.add(kernel, args)?;
        self.launches.push(Queued { kernel, launch, options });
        Ok(())
    }

    /// Runs all once; the report of each.
    ///
    /// # Errors
    ///
    /// The first launch that is no success on the simulator; those before it have run.
    pub fn run(&self) -> Result<Vec<LaunchReport>, RuntimeError> {
        let constant = |buffer: &Buffer| !self.uses.writes(buffer);
        let run = |queued: &Queued<'_>| {
            let overlaps = queued.options.dependent;
            let config = Config { overlaps, ..self.device.config.clone() };
            self.device.simulate(queued.kernel, &queued.launch, &config, &constant)
        };
        self.launches.iter().map(run).collect()
    }
}

impl fmt::Debug for SimSequence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.launches.iter().map(|queued| &queued.kernel.program().name)).finish()
    }
}

/// The buffers of the parameters that are `constant`.
fn constants<'a>(kernel: &Kernel, args: &'a [Arg<'_>]) -> impl Iterator<Item = &'a Buffer> {
    let constant = kernel.program().params.iter().zip(args).filter(|(param, _)| param.is_constant());
    constant.flat_map(|(_, arg)| arg.buffers())
}

fn copy_of(bytes: &Mutex<Vec<u8>>) -> Vec<u8> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn replace(bytes: &Mutex<Vec<u8>>, data: Vec<u8>) {
    *bytes.lock().unwrap_or_else(PoisonError::into_inner) = data;
}

impl Sealed for SimDevice {}

impl Device for SimDevice {
    fn name(&self) -> String {
        SimDevice::NAME.to_string()
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Sim
    }

    fn arch(&self) -> Option<Arch> {
        None
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, RuntimeError> {
        let storage = Storage::Host(Arc::new(Mutex::new(vec![0; bytes])));
        Ok(Buffer { device: self.id, bytes, storage })
    }

    fn upload(&self, buffer: &Buffer, data: &[u8]) -> Result<(), RuntimeError> {
        let bytes = self.bytes(buffer)?;
        if data.len() != buffer.bytes {
            return Err(RuntimeError::DataLength {
                given: data.len(),
                expected: buffer.bytes,
                unit: "bytes",
            });
        }
        replace(bytes, data.to_vec());
        Ok(())
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, RuntimeError> {
        self.bytes(buffer).map(|bytes| copy_of(bytes))
    }

    fn launch(&self, kernel: &Kernel, sizes: &Sizes, args: &[Arg<'_>]) -> Result<LaunchReport, RuntimeError> {
        let launch = check(kernel, sizes, args, self.id, SimDevice::NAME)?;
        // Any launch may be ahead of it, but none that writes what is constant.
        let constant: Vec<&Buffer> = constants(kernel, args).collect();
        let constant = |buffer: &Buffer| constant.iter().any(|known| known.same(buffer));
        self.simulate(kernel, &launch, &self.config, &constant)
    }

    fn time(
        &self,
        kernel: &Kernel,
        sizes: &Sizes,
        args: &[Arg<'_>],
        _warmup: usize,
        _repeats: usize,
    ) -> Result<Option<Timing>, RuntimeError> {
        check(kernel, sizes, args, self.id, SimDevice::NAME)?;
        Ok(None)
    }
}
