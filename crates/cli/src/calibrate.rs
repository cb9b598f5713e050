//! `tilewright calibrate`.

use std::path::Path;
use std::process::ExitCode;

use tilewright::compiler::arch_named;
use tilewright::lab::calibrate::{self, Config};
use tilewright::machine::Arch;
use tilewright::runtime::{self, DeviceKind};

use crate::args::CalibrateArgs;
use crate::messages::{Failure, bar, cannot_write, error, print, progress};

/// Instructions of threads that the simulator does in a second.
const SIMULATED_A_SECOND: u64 = 20_000_000;
/// Seconds beyond which a measurement on the simulator is refused unless it is forced.
const LONG: u64 = 60;

/// Measures a table and prints it. What could not be measured is told on standard error, and is no failure unless it is
/// everything.
pub fn calibrate(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    if let Some(dir) = &args.ptx_dir {
        return write_ptx(dir, args.arch.as_deref(), calibrate::ptx);
    }
    let failed = |e: runtime::RuntimeError| Failure::program(error(e));
    let device = crate::device::open(&args.device)?;
    let config = if args.quick { Config::quick() } else { Config::full() };
    let arch = device.arch().unwrap_or(Arch::SM_90A);
    let seconds = calibrate::simulated_instructions(arch, &config) / SIMULATED_A_SECOND;
    if device.kind() == DeviceKind::Sim && seconds > LONG && !args.force {
        return Err(Failure::usage(format!(
            "measuring on the simulator would take about {} minutes, and finds its own model: give --quick, a GPU with \
             --device cuda, or --force",
            seconds.div_ceil(60)
        )));
    }
    let bar = bar(0);
    let found =
        calibrate::calibrate(&*device, &config, |done, total, name| progress(&bar, done, total, name));
    bar.finish_and_clear();
    let found = found.map_err(failed)?;
    for (name, message) in &found.failures {
        anstream::eprintln!("{}", error(format!("{name} is not measured: {message}")));
    }
    match &args.output {
        Some(path) => std::fs::write(path, found.text()).map_err(|e| cannot_write(path, e))?,
        None => print(&found.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the PTX of kernels, one file each.
pub fn write_ptx(
    dir: &Path,
    arch: Option<&str>,
    kernels: impl Fn(Arch) -> Vec<(String, String)>,
) -> Result<ExitCode, Failure> {
    let arch = arch.map_or(Ok(Arch::SM_90A), |name| arch_named(name).map_err(Failure::usage))?;
    std::fs::create_dir_all(dir).map_err(|e| cannot_write(dir, e))?;
    for (name, text) in kernels(arch) {
        let path = dir.join(format!("{name}.{arch}.ptx"));
        std::fs::write(&path, text).map_err(|e| cannot_write(&path, e))?;
    }
    Ok(ExitCode::SUCCESS)
}
