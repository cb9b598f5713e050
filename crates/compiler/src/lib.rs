//! From a tile program to a kernel: the visible list of passes.
//!
//! ```text
//! verify → check the architecture → unroll → (core program:) multi-buffer → assign async layouts → desugar → (of each role: prepare → synthesise) → plan the block → lower → clean up → verify → print PTX
//! ```
//!
//! Each pass is one function of another crate; here is their order, and the clock around each.

pub mod kernel;
mod parts;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tilewright_machine::{Arch, Timing, UnknownArch};
use tilewright_synth::block::BlockPlan;
use tilewright_synth::{Ablation, AsyncLayouts, Budget, Multiples, Options as SynthOptions};
use tilewright_tile::core::{self, Changed};
use tilewright_tile::{
    Code, Constants, Diagnostic, Diagnostics, Origin, Program, Verified, check_architecture, unroll, verify,
};

pub use kernel::{Assumption, Kernel};
pub use tilewright_lower::{MAX_EXTENT, MapRecipe};

/// What a compilation is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The architecture.
    pub arch: Arch,
    /// Values for tile constants; those not named keep their defaults.
    pub constants: Constants,
    /// What may be relied on: sizes that are multiples of numbers. Wide accesses to global memory and the
    /// absence of edge checks rest on it; a launch that breaks it is refused.
    pub multiples: Multiples,
    /// Sizes for which candidates are compared; those not named have their defaults.
    pub sizes: BTreeMap<String, i64>,
    /// How far the search for layouts and instructions goes.
    pub budget: Budget,
    /// The candidate to take, by its number in the report, instead of the one with the fewest cycles.
    pub candidate: Option<usize>,
    /// Parts of synthesis that are left out, to measure what they are worth.
    pub without: Ablation,
    /// What instructions and the chip cost, where that is not the built-in table of the architecture.
    pub timing: Option<Arc<Timing>>,
}

impl Options {
    /// Nothing asked for but the architecture.
    pub fn new(arch: Arch) -> Self {
        let wanted = SynthOptions::new(arch, Multiples::new());
        Options {
            arch,
            constants: Constants::new(),
            multiples: wanted.multiples,
            sizes: wanted.sizes,
            budget: wanted.budget,
            candidate: None,
            without: wanted.without,
            timing: None,
        }
    }

    /// Relies on what the given sizes (others: their defaults) are multiples of: the kernel is then as fast as it can be
    /// for these sizes, and runs for all that share those divisors.
    pub fn for_sizes(mut self, program: &Program, sizes: &[(&str, i64)]) -> Self {
        for (_, symbol, default) in program.sizes() {
            let given =
                sizes.iter().find(|(name, _)| *name == symbol.name).map_or(default, |(_, value)| *value);
            self.multiples.insert(symbol.name.clone(), multiple_of(given));
            self.sizes.insert(symbol.name.clone(), given);
        }
        self
    }

    /// What synthesis is asked for.
    pub fn synthesis(&self) -> SynthOptions {
        SynthOptions {
            arch: self.arch,
            multiples: self.multiples.clone(),
            sizes: self.sizes.clone(),
            budget: self.budget,
            candidate: self.candidate,
            without: self.without,
            timing: self.timing.clone(),
            registers: None,
        }
    }

    /// The table that costs are taken from: the given one, else the built-in one of the architecture.
    pub fn timing(&self) -> &Timing {
        self.timing.as_deref().unwrap_or_else(|| tilewright_machine::timing(self.arch))
    }

    /// With a value for a tile constant.
    pub fn constant(mut self, name: impl Into<String>, value: i64) -> Self {
        self.constants.insert(name.into(), value);
        self
    }
}

/// The architecture with this name.
///
/// # Errors
///
/// A [`Code::UnsupportedArchitecture`] that lists those there are.
pub fn arch_named(name: &str) -> Result<Arch, Diagnostic> {
    name.parse().map_err(|unknown: UnknownArch| {
        Diagnostic::new(Code::UnsupportedArchitecture, Origin::Unknown, unknown.to_string())
    })
}

/// The largest power of two, up to 256, of which a size is a multiple: what a kernel for this very size may rely on.
pub fn multiple_of(size: i64) -> i64 {
    if size <= 0 { 1 } else { 1 << size.trailing_zeros().min(8) }
}

/// How long a pass took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassTime {
    /// The pass.
    pub name: &'static str,
    /// Wall-clock time.
    pub time: Duration,
}

/// Compiles a program.
///
/// # Errors
///
/// What the verifier, synthesis or lowering have to say about the program.
pub fn compile(program: &Program, options: &Options) -> Result<Kernel, Diagnostics> {
    let mut times = Vec::new();
    let mut last = Instant::now();
    let mut lap = |name: &'static str| {
        times.push(PassTime { name, time: last.elapsed() });
        last = Instant::now();
    };
    check_multiples(program, options)?;
    let verified = verify(program, &options.constants)?;
    check_architecture(&verified, options.arch)?;
    lap("verify");
    let wanted = options.synthesis();
    let (plain, assigned) = core_passes(&verified, &wanted, &mut |pass, _, _| lap(pass))?;
    let parts = parts::parts(&plain, &wanted)?;
    lap("synthesise");
    let of_roles = parts::lowered(&plain, &parts);
    let plan = BlockPlan::new(&plain, &of_roles, options.arch, &options.multiples)?;
    lap("plan the block");
    let lowered = tilewright_lower::lower(&plain, &of_roles, &plan, options.arch, &options.multiples)?;
    let (function, maps) = (lowered.function, lowered.maps);
    let mut explanation = parts::explain(&plain, &assigned, parts, &function, options.timing());
    explanation.pipelines = plan.pipeline_notes;
    explanation.synchronisation = plan.sync_notes;
    lap("lower");
    tilewright_simt::verify(&function).map_err(|error| Diagnostic::internal(Origin::Unknown, error))?;
    lap("verify the thread-level program");
    let ptx = tilewright_ptx::print(&function);
    lap("print PTX");
    let assumptions = options
        .multiples
        .iter()
        .filter(|(_, multiple)| **multiple > 1)
        .map(|(size, multiple)| Assumption { size: size.clone(), multiple: *multiple })
        .collect();
    Ok(Kernel { verified, core: plain, function, maps, ptx, assumptions, explanation, times })
}

/// Follows the passes of the core program: the pass, whether it changed the program, the program after it.
type Observer<'a> = dyn FnMut(&'static str, Changed, &core::Program) + 'a;

/// The core program of a verified program, ready for the synthesis of its parts. Its invariants are checked after every pass.
fn core_passes(
    verified: &Verified,
    wanted: &SynthOptions,
    observe: &mut Observer<'_>,
) -> Result<(core::Program, AsyncLayouts), Diagnostics> {
    let mut after = |pass: &'static str, changed: Changed, program: &core::Program| {
        if changed == Changed::Yes {
            core::verify(program, pass)?;
        }
        observe(pass, changed, program);
        Ok::<(), Diagnostic>(())
    };
    let mut program = core::build(&unroll(verified)?)?;
    after("unroll", Changed::Yes, &program)?;
    let changed = core::multi_buffer(&mut program);
    after("multi-buffer", changed, &program)?;
    let assigned = tilewright_synth::assign_async_layouts(&program, wanted)?;
    let changed = Changed::from(assigned.verified != program);
    program = assigned.verified.clone();
    after("assign async layouts", changed, &program)?;
    let changed = core::desugar_copies(&mut program);
    after("desugar", changed, &program)?;
    Ok((program, assigned))
}

/// The core program after one of its passes.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The pass.
    pub pass: &'static str,
    /// The program as text; `None` where the pass left it as it was.
    pub text: Option<String>,
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "// after {}\n{text}", self.pass),
            None => writeln!(f, "// after {} (unchanged)", self.pass),
        }
    }
}

/// The core program after each of its passes.
///
/// # Errors
///
/// What the verifier or a pass has to say about the program.
pub fn dumps(program: &Program, options: &Options) -> Result<Vec<Dump>, Diagnostics> {
    check_multiples(program, options)?;
    let verified = verify(program, &options.constants)?;
    check_architecture(&verified, options.arch)?;
    let mut dumps = Vec::new();
    core_passes(&verified, &options.synthesis(), &mut |pass, changed, program| {
        let text = (changed == Changed::Yes).then(|| program.to_string());
        dumps.push(Dump { pass, text });
    })?;
    Ok(dumps)
}

/// Assumptions are about sizes of the program.
fn check_multiples(program: &Program, options: &Options) -> Result<(), Diagnostics> {
    for (name, multiple) in &options.multiples {
        if !program.sizes().any(|(_, symbol, _)| symbol.name == *name) {
            let sizes: Vec<&str> = program.sizes().map(|(_, s, _)| s.name.as_str()).collect();
            return Err(Diagnostic::new(
                Code::UnknownName,
                Origin::Unknown,
                format!("`{name}` is not a size of the program"),
            )
            .help(format!("its sizes are {}", sizes.join(", ")))
            .into());
        }
        if !(1..=MAX_EXTENT).contains(multiple) {
            return Err(Diagnostic::new(
                Code::BadValue,
                Origin::Unknown,
                format!("`{name}` cannot be assumed to be a multiple of {multiple}"),
            )
            .help(format!("give a number from 1 to {MAX_EXTENT}"))
            .into());
        }
    }
    Ok(())
}
