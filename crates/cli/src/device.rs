//! Opening the device that a command line names.

use tilewright::runtime::{self, Device, DeviceChoice, DeviceKind, RuntimeError};

use crate::messages::Failure;

/// Opens a device.
///
/// # Errors
///
/// A device that is none, or is not there: the message names it, and one that is.
pub fn open(given: &str) -> Result<Box<dyn Device>, Failure> {
    let choice: DeviceChoice = given.parse().map_err(|e| not_a_device(given, &e))?;
    runtime::open(choice).map_err(|e| absent(given, &e))
}

/// The refusal of a text that names no device.
fn not_a_device(given: &str, e: &RuntimeError) -> Failure {
    let help = match given {
        "gpu" | "GPU" | "nvidia" => "`--device cuda` is the first GPU, `--device cuda:1` the second",
        "cpu" | "CPU" | "simulator" | "interpreter" => {
            "`--device sim` is the simulator, which runs on the CPU"
        }
        _ => "`sim` is the simulator, which needs no GPU; `tilewright devices` lists what there is",
    };
    Failure::usage_with(format!("`--device {given}`: {e}"), help)
}

/// The refusal of a device that is not there.
fn absent(given: &str, e: &RuntimeError) -> Failure {
    let message = format!("`--device {given}`: {e}");
    match e.help() {
        Some(help) => Failure::no_device(message, help),
        None => Failure::no_device(message, "`tilewright devices` lists what there is"),
    }
}

/// Opens a GPU, for a command that measures times.
///
/// # Errors
///
/// Those of [`open`], with what can be had without a GPU.
pub fn open_gpu(given: &str, command: &str, without: &str) -> Result<Box<dyn Device>, Failure> {
    let choice: DeviceChoice = given.parse().map_err(|e| not_a_device(given, &e))?;
    let message = match runtime::open(choice) {
        Ok(device) if device.kind() == DeviceKind::Cuda => return Ok(device),
        Ok(_) => {
            format!("`tilewright {command}` measures times, and the simulator has no clock: it needs a GPU")
        }
        Err(e) => format!("`tilewright {command}` measures times on a GPU, and `{given}` is not there: {e}"),
    };
    Err(Failure::no_device(message, without))
}
