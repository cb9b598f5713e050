//! The architecture that a command compiles for, and why it is that one.

use tilewright::compiler::arch_named;
use tilewright::machine::Arch;
use tilewright::runtime::{self, Device};
use tilewright::task::Mapping;
use tilewright::tile::{Need, least_architecture, verify};

use crate::args::ProgramArgs;
use crate::load::Loaded;
use crate::messages::{Failure, note};
use crate::places::Places;

/// An architecture, and why it is that one.
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// The reason, to follow the name: `the least that has …`. None where `--arch` names it, and where any would do.
    pub why: Option<String>,
    /// The name of the GPU that it is the architecture of.
    pub device: Option<String>,
}

impl Target {
    /// Says on standard error which architecture was chosen, and why.
    pub fn say(&self) {
        if let Some(why) = &self.why {
            note(format!("arch: {}, {why}", self.arch));
        }
    }
}

/// The architecture of `--arch`; else that of the device, where it is a GPU; else that of a task program's mapping, or the least that has all that the
/// program uses.
pub fn target(args: &ProgramArgs, kernels: &[Loaded], device: &dyn Device) -> Result<Target, Failure> {
    newest(kernels, |loaded| choose(args, loaded, device.arch().map(|arch| (arch, device.name()))))
}

/// [`target`] without `--arch`.
pub fn target_of(kernels: &[Loaded], device: &dyn Device) -> Result<Target, Failure> {
    newest(kernels, |loaded| choose_for(loaded, device.arch().map(|arch| (arch, device.name()))))
}

/// The newest of the architectures of kernels that run on one device.
fn newest(
    kernels: &[Loaded],
    mut of: impl FnMut(&Loaded) -> Result<Target, Failure>,
) -> Result<Target, Failure> {
    let age = |target: &Target| Arch::ALL.into_iter().position(|arch| arch == target.arch);
    let mut found: Option<Target> = None;
    for loaded in kernels {
        let target = of(loaded)?;
        found = match found {
            Some(before) if age(&before) >= age(&target) => Some(before),
            _ => Some(target),
        };
    }
    found.ok_or_else(|| Failure::program("there is no kernel".to_string()))
}

/// [`target`] of a command that opens no device: with that of a GPU, if this machine has one.
pub fn target_without_device(args: &ProgramArgs, kernels: &[Loaded]) -> Result<Target, Failure> {
    let gpu = runtime::devices().devices.into_iter().find_map(|d| Some((d.arch?, d.name)));
    newest(kernels, |loaded| choose(args, loaded, gpu.clone()))
}

fn choose(args: &ProgramArgs, loaded: &Loaded, gpu: Option<(Arch, String)>) -> Result<Target, Failure> {
    if let Some(name) = &args.arch {
        let device = gpu.map(|(_, name)| name);
        return Ok(Target { arch: arch_named(name).map_err(Failure::usage)?, why: None, device });
    }
    choose_for(loaded, gpu)
}

fn choose_for(loaded: &Loaded, gpu: Option<(Arch, String)>) -> Result<Target, Failure> {
    if let Some((arch, name)) = gpu {
        return Ok(Target { arch, why: Some(format!("that of {name}")), device: Some(name) });
    }
    if let Some((_, Mapping { name, arch, .. })) = &loaded.mapping {
        return Ok(Target { arch: *arch, why: Some(format!("that of the mapping `{name}`")), device: None });
    }
    let verified = verify(&loaded.program, &loaded.constants)
        .map_err(|d| Failure::refused(&loaded.sources, &loaded.with_given(d)))?;
    match least_architecture(&verified) {
        Some((arch, need)) => Ok(Target { arch, why: need.map(|need| because(loaded, need)), device: None }),
        None => Err(Failure::program("no architecture has everything that the program uses".to_string())),
    }
}

/// The first construct that the architecture before lacks.
fn because(loaded: &Loaded, need: Need) -> String {
    let line = need.span.text().and_then(|span| Places::new(loaded).line(span.start));
    let line = line.map_or(String::new(), |line| format!(" (line {line})"));
    format!("the least that has {}{line}", need.construct)
}
