//! The simulator as a device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_compiler::Kernel;
use tilewright_machine::Arch;
use tilewright_sim::{Argument, Config, GlobalMemory};

use crate::buffer::{Buffer, DeviceId, Storage};
use crate::device::{Device, DeviceKind};
use crate::error::RuntimeError;
use crate::launch::{Arg, Mapped, Passed, Sizes, check};
use crate::report::{LaunchReport, Timing};

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
}

fn copy_of(bytes: &Mutex<Vec<u8>>) -> Vec<u8> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn replace(bytes: &Mutex<Vec<u8>>, data: Vec<u8>) {
    *bytes.lock().unwrap_or_else(PoisonError::into_inner) = data;
}

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
        let failed =
            |error| RuntimeError::Simulator { kernel: kernel.program().name.clone(), error: Box::new(error) };
        // Simulated memory has the buffers of this launch and nothing else, so that an access outside them is found. A
        // buffer that is passed twice is there once.
        let mut memory = GlobalMemory::new();
        let mut ids = HashMap::new();
        let mut arguments = Vec::with_capacity(launch.params.len());
        let mut place = |buffer: &Buffer| -> Result<_, RuntimeError> {
            let bytes = self.bytes(buffer)?;
            Ok(*ids.entry(Arc::as_ptr(bytes)).or_insert_with(|| {
                let id = memory.alloc(buffer.bytes);
                memory.write(id, &copy_of(bytes));
                id
            }))
        };
        for passed in &launch.params {
            arguments.push(match passed {
                Passed::Scalar(value) => Argument::F32(*value),
                Passed::Size(value) => Argument::I32(*value),
                Passed::Buffer(buffer) => Argument::Buffer(place(buffer)?),
                Passed::TensorMap(Mapped { buffer, extents, strides, .. }) => Argument::TensorMap {
                    buffer: place(buffer)?,
                    extents: extents.clone(),
                    strides: strides.clone(),
                },
            });
        }
        let report = tilewright_sim::run(&kernel.function, launch.grid, &memory, &arguments, &self.config)
            .map_err(failed)?;
        for passed in &launch.params {
            if let Passed::Buffer(buffer) = passed {
                let bytes = self.bytes(buffer)?;
                replace(bytes, memory.read(ids[&Arc::as_ptr(bytes)]));
            }
        }
        Ok(LaunchReport::Sim(Box::new(report)))
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
