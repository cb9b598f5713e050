//! The architecture that a command compiles for, and why it is that one.

use tilewright::compiler::arch_named;
use tilewright::machine::Arch;
use tilewright::runtime::{self, Device};
use tilewright::tile::{Need, least_architecture, verify};

use crate::args::ProgramArgs;
use crate::load::Loaded;
use crate::messages::{Failure, note};
use crate::problems::Places;

/// An architecture, and why it is that one.
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// The reason, to follow the name: `the least that has …`. None where `--arch` names it, and where any would do.
    pub why: Option<String>,
}

impl Target {
    /// Says on standard error which architecture was chosen, and why.
    pub fn say(&self) {
        if let Some(why) = &self.why {
            note(format!("arch: {}, {why}", self.arch));
        }
    }
}

/// The architecture of `--arch`; else that of the device, where it is a GPU; else the least that has all that the program uses.
pub fn target(args: &ProgramArgs, loaded: &Loaded, device: &dyn Device) -> Result<Target, Failure> {
    choose(args, loaded, device.arch().map(|arch| (arch, device.name())))
}

/// [`target`] of a command that opens no device: with that of a GPU, if this machine has one.
pub fn target_without_device(args: &ProgramArgs, loaded: &Loaded) -> Result<Target, Failure> {
    if args.arch.is_some() {
        return choose(args, loaded, None);
    }
    let gpu = runtime::devices().devices.into_iter().find_map(|d| Some((d.arch?, d.name)));
    choose(args, loaded, gpu)
}

fn choose(args: &ProgramArgs, loaded: &Loaded, gpu: Option<(Arch, String)>) -> Result<Target, Failure> {
    if let Some(name) = &args.arch {
        return Ok(Target { arch: arch_named(name).map_err(Failure::usage)?, why: None });
    }
    if let Some((arch, name)) = gpu {
        return Ok(Target { arch, why: Some(format!("that of {name}")) });
    }
    let verified = verify(&loaded.program, &loaded.constants)
        .map_err(|d| Failure::refused(&loaded.path, &loaded.source, &d))?;
    match least_architecture(&verified) {
        Some((arch, need)) => Ok(Target { arch, why: need.map(|need| because(loaded, need)) }),
        None => Err(Failure::program("no architecture has everything that the program uses".to_string())),
    }
}

/// The first construct that the architecture before lacks.
fn because(loaded: &Loaded, need: Need) -> String {
    let line = need.span.text().and_then(|span| Places::new(loaded).line(span.start));
    let line = line.map_or(String::new(), |line| format!(" (line {line})"));
    format!("the least that has {}{line}", need.construct)
}
