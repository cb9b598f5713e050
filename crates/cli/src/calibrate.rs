//! `tilewright calibrate`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tilewright::compiler::arch_named;
use tilewright::kernels::model::Model;
use tilewright::lab::calibrate::{self, Config};
use tilewright::lab::measure::L2;
use tilewright::machine::Arch;
use tilewright::runtime::{self, DeviceKind};
use tilewright::tune::{
    GpuMeasurer, Measurer, Problem, Progress, Target, Timed, TuneError, fit, read_model, read_timings, timed,
    timings_text,
};

use crate::args::CalibrateArgs;
use crate::messages::{Failure, bar, cannot_write, error, print, progress};
use crate::tune::{failure, hold, shown, store};

/// The rest of the GPU before each turn of a product.
const REST: Duration = Duration::from_millis(30);

/// Instructions of threads that the simulator does in a second.
const SIMULATED_A_SECOND: u64 = 20_000_000;
/// Seconds beyond which a measurement on the simulator is refused unless it is forced.
const LONG: u64 = 60;

/// Measures a table and prints it. What could not be measured is told on standard error, and is no failure unless it is
/// everything.
pub fn calibrate(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    if args.model {
        return calibrate_model(args);
    }
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

/// Fits the model of a kernel's time to a GPU, or to timings that one had, and writes it.
fn calibrate_model(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    let begin = match &args.from {
        Some(path) => read_model(path).map_err(failure)?,
        None => Model::built_in().clone(),
    };
    let timings = match &args.timings {
        Some(path) => read_timings(path).map_err(failure)?,
        None => products(args)?,
    };
    if let Some(path) = &args.write_timings {
        std::fs::write(path, timings_text(&timings)).map_err(|e| cannot_write(path, e))?;
    }
    let found = fit(&timings, Arch::SM_90A, &begin).map_err(failure)?;
    let path = match &args.output {
        Some(path) => {
            std::fs::write(path, found.model.to_string()).map_err(|e| cannot_write(path, e))?;
            path.clone()
        }
        None => store(args.cache.as_deref())?.put_model(&found.model).map_err(failure)?,
    };
    print(&format!("{found}\nthe model of {} is in {}\n", found.model.device(), path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Times the products of the list on the GPU. What is refused is told on standard error.
fn products(args: &CalibrateArgs) -> Result<Vec<Timed>, Failure> {
    let without = "`--timings FILE` fits a model to timings that a GPU had";
    let device = crate::device::open_gpu(&args.device, "calibrate --model", without)?;
    let arch = device.arch().unwrap_or(Arch::SM_90A);
    let Some(gpu) = device.cuda().filter(|_| arch == Arch::SM_90A) else {
        let message =
            format!("the model is of products by TMA and wgmma, which {} does not have", device.name());
        return Err(Failure::no_device(message, without));
    };
    let target = Target::new(device.name(), arch);
    let bar = crate::tune::bar();
    let lock = hold(&store(args.cache.as_deref())?, &target.device, &args.device, &bar).map_err(failure)?;
    let mut measurer = |problem: &Problem| -> Result<Box<dyn Measurer + '_>, TuneError> {
        Ok(Box::new(GpuMeasurer::new(gpu, lock.clone(), problem, L2::Written, REST)?))
    };
    let watch = &mut |progress: Progress| shown(&bar, progress);
    let found = timed(&target, &mut measurer, watch);
    bar.finish_and_clear();
    let (timings, refused) = found.map_err(failure)?;
    for reason in refused {
        anstream::eprintln!("note: {reason}");
    }
    Ok(timings)
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
