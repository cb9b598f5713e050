//! From a tile program to a kernel: the visible list of passes.
//!
//! ```text
//! (task program: lower →) verify → check the architecture → unroll → (core program:) multi-buffer → assign async layouts → desugar → pad → (of each role: prepare → synthesise) → plan the block → lower → clean up → verify → print PTX
//! ```
//!
//! Each pass is one function of another crate; here is their order, and the clock around each.

pub mod check;
pub mod kernel;
mod lines;
mod parts;
pub mod recipe;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tilewright_machine::{Arch, Timing, UnknownArch};
use tilewright_simt::record;
use tilewright_synth::block::BlockPlan;
use tilewright_synth::{Ablation, Agreed, AsyncLayouts, Budget, Multiples, Options as SynthOptions, Words};
use tilewright_task::{Mapping, Program as Tasks};
use tilewright_tile::core::{self, Changed};
use tilewright_tile::{
    Code, Constants, Diagnostic, Diagnostics, Origin, Program, StmtId, TensorId, Verified,
    check_architecture, statement_text, unroll, verify,
};

use parts::Synthesised;

pub use kernel::{Assumption, Kernel};
pub use lines::LineInfo;
pub use recipe::NoRecipe;
pub use tilewright_lower::{MAX_EXTENT, MapRecipe};

/// Options of a compilation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The architecture.
    pub arch: Arch,
    /// Values for tile constants; those not named keep their defaults.
    pub constants: Constants,
    /// Assumptions: sizes that are multiples of numbers. Wide accesses to global memory and the
    /// absence of edge checks rest on it; a launch that breaks it is refused.
    pub multiples: Multiples,
    /// Sizes for which candidates are compared; those not named have their defaults.
    pub sizes: BTreeMap<String, i64>,
    /// Effort of the search for layouts and instructions.
    pub budget: Budget,
    /// The candidate to take, by its number in the report, instead of the one with the fewest cycles.
    pub candidate: Option<usize>,
    /// Parts of synthesis that are left out, to measure what they are worth.
    pub without: Ablation,
    /// Costs of instructions and of the chip, if not those of the architecture's built-in table.
    pub timing: Option<Arc<Timing>>,
    /// Source lines in the PTX text, for NVIDIA's tools; they change no instruction. Without, there are none.
    pub lines: Option<LineInfo>,
    /// Keeps assertions and prints in the PTX text, as stores to a buffer of records ([`Kernel::recording`]). Without, it has nothing of them.
    pub debug: bool,
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
            lines: None,
            debug: false,
        }
    }

    /// These options with assertions and prints kept in the PTX text, or not.
    pub fn with_debug(mut self, debug: bool) -> Self {
        self.debug = debug;
        self
    }

    /// These options with a candidate to take, by its number in the report.
    pub fn with_candidate(mut self, number: usize) -> Self {
        self.candidate = Some(number);
        self
    }

    /// These options with values for tile constants.
    pub fn with_constants(mut self, constants: Constants) -> Self {
        self.constants = constants;
        self
    }

    /// These options with assumptions: what sizes are multiples of.
    pub fn with_multiples(mut self, multiples: Multiples) -> Self {
        self.multiples = multiples;
        self
    }

    /// Relies on what the given sizes (others: their defaults) are multiples of: the kernel is then as fast as it can be
    /// for these sizes, and runs for all that share those divisors. A name that is no size of the program is an error of the compilation.
    ///
    /// ```
    /// use tilewright_compiler::{Options, compile};
    /// let program = tilewright_tile::parse(
    ///     "size n = 1024
    ///      kernel nothing(x: f32[n]) grid(1) threads(32) { gx = global_view(x[:], (32) : (e0)); r = register_tensor(f32, [32]); copy(gx, r) }",
    /// )?;
    /// let options = Options::new(tilewright_machine::Arch::SM_80).for_sizes(&program, &[("N", 1000)]);
    /// assert!(compile(&program, &options).unwrap_err().to_string().contains("`N` is not a size of the program"));
    /// # Ok::<(), tilewright_tile::Diagnostics>(())
    /// ```
    pub fn for_sizes(mut self, program: &Program, sizes: &[(&str, i64)]) -> Self {
        let own = |name: &str| program.sizes().any(|(_, symbol, _)| symbol.name == name);
        for (name, value) in sizes.iter().filter(|(name, _)| !own(name)) {
            self.multiples.insert((*name).to_string(), multiple_of(*value));
        }
        self.for_own_sizes(program, sizes)
    }

    /// The same for one of several programs: sizes that it lacks are others'.
    pub fn for_own_sizes(mut self, program: &Program, sizes: &[(&str, i64)]) -> Self {
        for (_, symbol, default) in program.sizes() {
            let given =
                sizes.iter().find(|(name, _)| *name == symbol.name).map_or(default, |(_, value)| *value);
            self.multiples.insert(symbol.name.clone(), multiple_of(given));
            self.sizes.insert(symbol.name.clone(), given);
        }
        self
    }

    /// Options of the synthesis.
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

/// Duration of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassTime {
    /// The pass.
    pub name: &'static str,
    /// Wall-clock time.
    pub time: Duration,
}

/// The clock around the passes.
struct Clock {
    times: Vec<PassTime>,
    last: Instant,
}

impl Clock {
    fn new() -> Self {
        Clock { times: Vec::new(), last: Instant::now() }
    }

    /// A pass has ended. One that ran before has taken the sum.
    fn lap(&mut self, name: &'static str) {
        let time = self.last.elapsed();
        match self.times.iter_mut().find(|pass| pass.name == name) {
            Some(pass) => pass.time += time,
            None => self.times.push(PassTime { name, time }),
        }
        self.last = Instant::now();
    }
}

/// Compiles a program.
///
/// # Errors
///
/// Errors of the verifier, of synthesis or of lowering.
pub fn compile(program: &Program, options: &Options) -> Result<Kernel, Diagnostics> {
    compiled(program, options).map_err(|errors| program.sources.place_all(errors))
}

/// Compiles a task program under one of its mappings: lowered to tile programs, and these compiled for the options' architecture, in the order in which
/// their kernels run. Tensors of one name are one. Needs: a verified program. The options' constants are those of the task program.
///
/// ```
/// use tilewright_compiler::{Options, compile_tasks};
/// use tilewright_machine::Arch;
/// let tasks = tilewright_task::parse(
///     "size n = 4096
///      task double(y: write f32[N], x: read f32[N]) {
///          inner host {
///              yp = blocks(y, [1024])
///              xp = blocks(x, [1024])
///              for i in prange(ceil_div(N, 1024)) { launch double(yp[i], xp[i]) }
///          }
///          leaf all { y = x + x }
///      }
///      mapping a100 for sm_80 {
///          entry double.host on host (global, global)
///          double.all on block (register, register)
///      }",
/// )?;
/// let kernels = compile_tasks(&tasks, &tasks.mappings[0], &Options::new(Arch::SM_80))?;
/// assert!(kernels[0].ptx.contains(".entry double"));
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// Those of lowering ([`tilewright_task::lower`]) and of [`compile`].
pub fn compile_tasks(
    tasks: &Tasks,
    mapping: &Mapping,
    options: &Options,
) -> Result<Vec<Kernel>, Diagnostics> {
    let tasks = tasks.with_constants(&options.constants);
    let lowered =
        tilewright_task::lower(&tasks, mapping).map_err(|errors| tasks.sources.place_all(errors))?;
    let options = Options { constants: Constants::new(), ..options.clone() };
    lowered.iter().map(|kernel| compile(kernel.program(), &options)).collect()
}

fn compiled(program: &Program, options: &Options) -> Result<Kernel, Diagnostics> {
    let mut clock = Clock::new();
    let verified = front(program, options)?;
    clock.lap("verify");
    let program = of_surface(&verified)?;
    clock.lap("unroll");
    let unnamed = program.unnamed();
    finish(verified, program, options, clock).map_err(|errors| unnamed.in_words(errors))
}

/// Compiles a core program that an author wrote, perhaps after some of its passes: those that have nothing left to do leave it as it is.
///
/// # Errors
///
/// Errors of [`core::check`], of synthesis or of lowering; a copy with the word `tma` that TMA cannot do.
pub fn compile_core(program: &core::Program, options: &Options) -> Result<Kernel, Diagnostics> {
    let mut clock = Clock::new();
    let verified = front_core(program, options)?;
    clock.lap("verify");
    finish(verified, program.clone(), options, clock)
}

/// Checks a program and what is asked for.
fn front(program: &Program, options: &Options) -> Result<Verified, Diagnostics> {
    check_multiples(program, options)?;
    let verified = verify(program, &options.constants)?;
    check_architecture(&verified, options.arch)?;
    Ok(verified)
}

/// The same for a core program; the result is the surface program that says the same.
fn front_core(program: &core::Program, options: &Options) -> Result<Verified, Diagnostics> {
    let verified = core::check(program)?;
    check_multiples(verified.program(), options)?;
    check_architecture(&verified, options.arch)?;
    Ok(verified)
}

/// The core program of a surface program.
fn of_surface(verified: &Verified) -> Result<core::Program, Diagnostics> {
    let program = core::build(&unroll(verified)?)?;
    core::verify(&program, "unroll")?;
    Ok(program)
}

/// The passes of a core program, and all that is behind them.
fn finish(
    verified: Verified,
    program: core::Program,
    options: &Options,
    mut clock: Clock,
) -> Result<Kernel, Diagnostics> {
    let wanted = options.synthesis();
    let Laid { program: plain, assigned, parts, .. } = laid_out(&program, &wanted, &mut clock)?;
    let of_roles = parts::lowered(&plain, &parts);
    let plan = BlockPlan::new(&plain, &of_roles, options.arch, &options.multiples)?;
    clock.lap("plan the block");
    let lowered = tilewright_lower::lower(&plain, &of_roles, &plan, options.arch, &options.multiples)?;
    let (function, maps) = (lowered.function, lowered.maps);
    let mut explanation = parts::explain(&plain, &assigned, parts, &function, options.timing());
    let map = plan.memory.tensor_memory.as_ref();
    explanation.tensor_memory = map.map_or_else(Vec::new, |map| map.notes(&plain));
    explanation.pipelines = plan.pipeline_notes;
    explanation.synchronisation = plan.sync_notes;
    clock.lap("lower");
    tilewright_simt::verify(&function).map_err(|error| Diagnostic::internal(Origin::Unknown, error))?;
    clock.lap("verify the thread-level program");
    let lines = options.lines.as_ref().map(|wanted| lines::lines(&function, verified.program(), wanted));
    let lines = lines.unwrap_or_default();
    let recorded = if options.debug { record::recorded(&function) } else { None };
    let (printed, recording) = recorded.unzip();
    if let Some(printed) = &printed {
        tilewright_simt::verify(printed).map_err(|error| Diagnostic::internal(Origin::Unknown, error))?;
    }
    let printed = printed.as_ref().unwrap_or(&function);
    let ptx = tilewright_ptx::print_with_lines(printed, &lines);
    clock.lap("print PTX");
    let assumptions = options
        .multiples
        .iter()
        .filter(|(_, multiple)| **multiple > 1)
        .map(|(size, multiple)| Assumption { size: size.clone(), multiple: *multiple })
        .collect();
    Ok(Kernel {
        verified,
        core: plain,
        function,
        recording,
        maps,
        ptx,
        lines,
        assumptions,
        explanation,
        times: clock.times,
    })
}

/// A core program after its passes.
struct Laid {
    program: core::Program,
    assigned: AsyncLayouts,
    /// The parts with their layouts and instructions.
    parts: Vec<Synthesised>,
    /// The layouts on which roles have agreed.
    agreed: BTreeMap<TensorId, Agreed>,
}

/// Takes a core program through its passes, and its parts through synthesis. Where roles agree on other layouts of what they share than
/// those with which each was first looked at alone, this is done again with these; what cannot be done so, is done as before.
fn laid_out(program: &core::Program, wanted: &SynthOptions, clock: &mut Clock) -> Result<Laid, Diagnostics> {
    let mut with = |agreed: BTreeMap<TensorId, Agreed>, wanted: &SynthOptions| -> Result<Laid, Diagnostics> {
        let mut lap = |pass, _, _: &core::Program| clock.lap(pass);
        let (program, assigned) = core_passes(program.clone(), wanted, &agreed, &mut lap)?;
        let parts = parts::parts(&program, wanted)?;
        clock.lap("synthesise");
        Ok(Laid { program, assigned, parts, agreed })
    };
    if program.roles().is_empty() {
        return with(BTreeMap::new(), wanted);
    }
    // A candidate that is asked for is one of those that the report lists, which are those of the layouts that are taken.
    let best = SynthOptions { candidate: None, ..wanted.clone() };
    let first = with(BTreeMap::new(), &best)?;
    let agreed = parts::agreed(&first.assigned.open, &first.parts, wanted);
    let found = if agreed.is_empty() { first } else { with(agreed, &best).unwrap_or(first) };
    if wanted.candidate.is_some() { with(found.agreed, wanted) } else { Ok(found) }
}

/// Follows the passes of the core program: the pass, whether it changed the program, the program after it.
type Observer<'a> = dyn FnMut(&'static str, Changed, &core::Program) + 'a;

/// Makes a core program ready for the synthesis of its parts, which have agreed on some layouts. Its invariants are checked after every pass.
fn core_passes(
    mut program: core::Program,
    wanted: &SynthOptions,
    agreed: &BTreeMap<TensorId, Agreed>,
    observe: &mut Observer<'_>,
) -> Result<(core::Program, AsyncLayouts), Diagnostics> {
    let mut after = |pass: &'static str, changed: Changed, program: &core::Program| {
        if changed == Changed::Yes {
            core::verify(program, pass)?;
        }
        observe(pass, changed, program);
        Ok::<(), Diagnostic>(())
    };
    let changed = core::multi_buffer(&mut program);
    after("multi-buffer", changed, &program)?;
    let assigned = tilewright_synth::assign_async_layouts(&program, wanted, agreed)?;
    check_marks(&program, &assigned)?;
    let changed = Changed::from(assigned.verified != program);
    program = assigned.verified.clone();
    after("assign async layouts", changed, &program)?;
    let changed = core::desugar_copies(&mut program);
    after("desugar", changed, &program)?;
    let changed = tilewright_synth::pad_extents(&mut program, wanted);
    after("pad", changed, &program)?;
    Ok((program, assigned))
}

/// The copies of a program that TMA does.
fn tma_copies(program: &core::Program) -> BTreeMap<StmtId, &core::Stmt> {
    let mut copies = BTreeMap::new();
    program.visit(&mut |stmt, _| {
        if matches!(&stmt.kind, core::StmtKind::CopyAsync { how, .. } if how.tensor) {
            copies.insert(stmt.id, stmt);
        }
    });
    copies
}

/// An error about a copy that an author gave the word `tma`, and that TMA cannot do.
fn check_marks(before: &core::Program, assigned: &AsyncLayouts) -> Result<(), Diagnostic> {
    let done = tma_copies(&assigned.verified);
    let refused = tma_copies(before).into_iter().find(|(id, _)| !done.contains_key(id));
    let Some((id, copy)) = refused else { return Ok(()) };
    let why = assigned.refused.get(&id).map_or_else(
        || "only copies to a stage and from shared memory are its".to_string(),
        |refused| Words { verified: &assigned.verified, statements: &[] }.alternative(refused).reason,
    );
    let message = format!("TMA cannot do `{}`: {why}", statement_text(before, copy));
    Err(Diagnostic::new(Code::Unsatisfiable, copy.span, message)
        .help("without the word `tma`, the compiler finds what does the copy"))
}

/// The core program after one of its passes.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The pass.
    pub pass: &'static str,
    /// The program; `None` where the pass left it as it was.
    pub program: Option<core::Program>,
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Some(program) => write!(f, "// after {}\n{program}", self.pass),
            None => writeln!(f, "// after {} (unchanged)", self.pass),
        }
    }
}

/// The core program after each of its passes.
///
/// # Errors
///
/// Errors of the verifier or of a pass.
pub fn dumps(program: &Program, options: &Options) -> Result<Vec<Dump>, Diagnostics> {
    let program = of_surface(&front(program, options)?)?;
    let first = Dump { pass: "unroll", program: Some(program.clone()) };
    Ok([first].into_iter().chain(dumps_of_passes(program, options)?).collect())
}

/// A core program that an author wrote after each of its passes.
///
/// # Errors
///
/// Errors of [`core::check`] or of a pass.
pub fn core_dumps(program: &core::Program, options: &Options) -> Result<Vec<Dump>, Diagnostics> {
    front_core(program, options)?;
    dumps_of_passes(program.clone(), options)
}

fn dumps_of_passes(program: core::Program, options: &Options) -> Result<Vec<Dump>, Diagnostics> {
    let (mut dumps, wanted) = (Vec::new(), options.synthesis());
    // A program that cannot be synthesised has passes all the same.
    let agreed = laid_out(&program, &wanted, &mut Clock::new()).map(|laid| laid.agreed).unwrap_or_default();
    core_passes(program, &wanted, &agreed, &mut |pass, changed, program| {
        dumps.push(Dump { pass, program: (changed == Changed::Yes).then(|| program.clone()) });
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
