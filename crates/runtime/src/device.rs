//! Devices: the trait, and what identifies one.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use tilewright_compiler::Kernel;
use tilewright_machine::Arch;

use crate::arg::{Arg, Sizes};
use crate::buffer::Buffer;
use crate::error::RuntimeError;
use crate::report::{LaunchReport, Timing};

/// Something that runs kernels.
///
/// Every call returns when its work is done: a result that was launched can be downloaded, and an error that a kernel
/// met while it ran is the error of its launch.
///
/// The trait is sealed: [`SimDevice`](crate::SimDevice) and [`CudaDevice`](crate::CudaDevice) are its types.
pub trait Device: sealed::Sealed + Any + Send + Sync {
    /// The name, e.g. `NVIDIA H200`.
    fn name(&self) -> String;

    /// The kind.
    fn kind(&self) -> DeviceKind;

    /// The newest architecture whose kernels the device runs: what to compile for. `None` if it runs kernels of every
    /// architecture, as the simulator does.
    fn arch(&self) -> Option<Arch>;

    /// The driver's description of the chip; nothing on the simulator.
    fn chip(&self) -> Chip {
        Chip::default()
    }

    /// Memory, filled with zeros.
    fn alloc(&self, bytes: usize) -> Result<Buffer, RuntimeError>;

    /// Replaces the whole content of a buffer.
    fn upload(&self, buffer: &Buffer, data: &[u8]) -> Result<(), RuntimeError>;

    /// The whole content of a buffer.
    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, RuntimeError>;

    /// Runs a kernel once. `args` are in the order of the program's parameters; sizes not named keep their defaults.
    fn launch(&self, kernel: &Kernel, sizes: &Sizes, args: &[Arg<'_>]) -> Result<LaunchReport, RuntimeError>;

    /// Runs a kernel `warmup` times, then `repeats` times (at least once), and says how long each of these took. `None` from a
    /// device with no clock: the simulator estimates cycles in [`Device::launch`] instead.
    fn time(
        &self,
        kernel: &Kernel,
        sizes: &Sizes,
        args: &[Arg<'_>],
        warmup: usize,
        repeats: usize,
    ) -> Result<Option<Timing>, RuntimeError>;
}

/// Keeps [`Device`] from other implementations, which would lack what the next version asks of it.
pub(crate) mod sealed {
    /// A device of this crate.
    pub trait Sealed {}
}

/// A driver's description of itself and of its chip.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Chip {
    /// Multiprocessors.
    pub multiprocessors: Option<u32>,
    /// The highest clock, in MHz.
    pub clock_mhz: Option<u32>,
    /// The newest CUDA version that the driver knows, e.g. `13.0`.
    pub cuda: Option<String>,
}

/// The kind of a [`Device`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The simulator.
    Sim,
    /// An NVIDIA GPU.
    Cuda,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceKind::Sim => "sim",
            DeviceKind::Cuda => "cuda",
        })
    }
}

/// The device to open. The text forms are `auto`, `sim`, `cuda` (the first GPU) and `cuda:1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The first GPU that kernels can be compiled for, or else the simulator.
    #[default]
    Auto,
    /// The simulator.
    Sim,
    /// The GPU with this number, counted from 0 as the driver does.
    Cuda(u32),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Sim => f.write_str("sim"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = RuntimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || RuntimeError::UnknownDevice(text.to_string());
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "sim" => Ok(DeviceChoice::Sim),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => {
                let ordinal = text.strip_prefix("cuda:").ok_or_else(unknown)?;
                ordinal.parse().map(DeviceChoice::Cuda).map_err(|_| unknown())
            }
        }
    }
}

/// A device that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Argument of [`open`](crate::open).
    pub choice: DeviceChoice,
    /// The name.
    pub name: String,
    /// The compute capability of a GPU, before and after the dot.
    pub compute_capability: Option<(u32, u32)>,
    /// The memory of a GPU in bytes.
    pub memory_bytes: Option<u64>,
    /// The newest architecture whose kernels it runs; `None` on the simulator (all of them) and on a GPU that is too old.
    pub arch: Option<Arch>,
}

impl DeviceInfo {
    /// The kind.
    pub fn kind(&self) -> DeviceKind {
        if matches!(self.choice, DeviceChoice::Cuda(_)) { DeviceKind::Cuda } else { DeviceKind::Sim }
    }
}

/// The newest architecture whose code a GPU of this compute capability runs.
pub(crate) fn newest_arch(capability: (u32, u32)) -> Option<Arch> {
    Arch::ALL.into_iter().rev().find(|arch| arch.runs_on(capability))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_parse_back() {
        for choice in [DeviceChoice::Auto, DeviceChoice::Sim, DeviceChoice::Cuda(0), DeviceChoice::Cuda(3)] {
            assert_eq!(choice.to_string().parse::<DeviceChoice>().unwrap(), choice);
        }
        assert_eq!("cuda".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(0));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "SIM"] {
            assert!(
                wrong.parse::<DeviceChoice>().unwrap_err().to_string().contains("auto, sim, cuda"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn architectures_fit_capabilities() {
        assert_eq!(newest_arch((7, 5)), None);
        assert_eq!(newest_arch((8, 0)), Some(Arch::SM_80));
        assert_eq!(newest_arch((8, 6)), Some(Arch::SM_86));
        assert_eq!(newest_arch((8, 9)), Some(Arch::SM_89));
        assert_eq!(newest_arch((9, 0)), Some(Arch::SM_90A));
        assert_eq!(newest_arch((10, 0)), Some(Arch::SM_100A));
        assert_eq!(newest_arch((11, 0)), Some(Arch::SM_89));
        assert_eq!(newest_arch((12, 1)), Some(Arch::SM_121A));
    }
}
