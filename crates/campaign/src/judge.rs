//! The oracle for one text: what the compiler, the interpreter and the simulator make of it, and which of that is a mistake of Tilewright
//! whatever the text says.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tilewright::check::{
    CheckError, CheckOptions, Comparison, Expected, check_against, core_difference, findings_of, watched,
};
use tilewright::compiler::{Kernel, Options, compile};
use tilewright::machine::{Arch, SyncOp};
use tilewright::printed::{PrintedBy, Prints};
use tilewright::runtime::{RuntimeError, SimDevice};
use tilewright::sim::{Config, SimError};
use tilewright::simt::{Function, Inst, Op, Position};
use tilewright::tile::{Code, Diagnostics, Program, StmtKind, core, parse};

use crate::cost::cost;
use crate::outline::{outlined, texts};

/// Elements that a program may touch before it is compiled only.
const WORK_LIMIT: f64 = 3e7;
/// Elements of all parameters before a program is compiled only.
const ELEMENT_LIMIT: f64 = 4e6;
/// Warp instructions of a block before the simulator gives it up.
const STEP_LIMIT: u64 = 3_000_000;

/// With what a text is judged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct How {
    /// The architecture's name.
    pub arch: String,
    /// Compiles for the program's default sizes: the kernel may rely on their divisors.
    pub for_sizes: bool,
    /// Solutions that synthesis looks at, where not as many as usual.
    pub solutions: Option<usize>,
    /// In which order synthesis tries arrangements.
    pub order: u64,
    /// The number of the candidate that is taken instead of the best.
    pub candidate: Option<usize>,
    /// The simulator's seeds.
    pub seeds: Vec<u64>,
    /// The seed of the inputs.
    pub inputs: u64,
    /// Assembles the PTX.
    pub assemble: bool,
}

impl How {
    /// Compiler options that this stands for.
    pub fn options(&self, program: &Program, arch: Arch) -> Options {
        let mut options = Options::new(arch);
        if self.for_sizes {
            options = options.for_sizes(program, &[]);
        }
        if let Some(solutions) = self.solutions {
            options.budget.solutions = solutions;
        }
        options.budget.seed = self.order;
        options.candidate = self.candidate;
        options
    }
}

/// Outcome of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The compiler refuses it.
    Refused,
    /// It compiles, and is too large to run here.
    Large,
    /// It compiles, and the interpreter or the launch refuses it, or something depends on what nothing wrote.
    Rejected,
    /// The simulator reports something, or it does not come to an end there.
    Reported,
    /// The simulator reports nothing, and an output is not the interpreter's.
    Wrong,
    /// All seeds give the interpreter's outputs, and nothing is reported.
    Right,
}

/// A mistake of Tilewright, not of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind: `panic`, `crash`, `hang`, `internal`, `placeless`, `round_trip`, `assembler`, `advice`, `disagreement`, `deadlock`,
    /// `false_alarm`, `refused`, `missed`, `unreported`, `candidate`, `core`,
    /// `print`.
    pub kind: String,
    /// The panic's, compiler's or assembler's message.
    pub message: String,
}

impl Fault {
    /// A fault of a kind.
    pub fn new(kind: &str, message: impl Into<String>) -> Fault {
        Fault { kind: kind.to_string(), message: message.into() }
    }
}

/// The judgement of one text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// Outcome of the text.
    pub class: Class,
    /// The first diagnostic, report or difference.
    pub message: String,
    /// True if the simulator alone also finds the mistake for which the interpreter rejects the text.
    pub simulator_finds: bool,
    /// Mistakes of Tilewright that do not depend on what the text is.
    pub faults: Vec<Fault>,
    /// Numbers of the candidates that synthesis could complete.
    pub candidates: Vec<usize>,
    /// True if the PTX was assembled.
    pub assembled: bool,
    /// Elements that were compared, and those of them of which any value is right.
    pub compared: [usize; 2],
    /// Asynchronous copies, as printed, that the compiler does through registers at once.
    pub at_once: Vec<String>,
    /// True if an engine does some of the asynchronous copies, or it is not known.
    pub engines: bool,
    /// Places in the text of statements whose code has a barrier of the block that is met wherever they are executed.
    pub barriers: Vec<usize>,
}

impl Judgement {
    fn new(class: Class, message: impl Into<String>) -> Judgement {
        Judgement {
            class,
            message: message.into(),
            simulator_finds: false,
            faults: Vec::new(),
            candidates: Vec::new(),
            assembled: false,
            compared: [0, 0],
            at_once: Vec::new(),
            engines: true,
            barriers: Vec::new(),
        }
    }

    /// True if the text compiled.
    pub fn compiled(&self) -> bool {
        self.class != Class::Refused
    }

    /// True if the compiler, the interpreter or the simulator reports that the program is wrong.
    pub fn says_wrong(&self) -> bool {
        matches!(self.class, Class::Refused | Class::Rejected | Class::Reported)
    }
}

/// Judges a refusal: the first diagnostic, and a fault for each that is internal or names no place.
fn refusal(errors: &Diagnostics, text: &str) -> Judgement {
    let said = |d: &tilewright::tile::Diagnostic| {
        let help = d.help.as_ref().map_or(String::new(), |h| format!(" [{h}]"));
        format!("{}: {}{help}", d.code, d.message)
    };
    let mut judgement = Judgement::new(Class::Refused, errors.0.first().map_or(String::new(), said));
    for error in &errors.0 {
        let all = said(error);
        if error.code == Code::Internal {
            judgement.faults.push(Fault::new("internal", all));
            continue;
        }
        let texts = texts(text);
        let legal = error.span.text().is_none_or(|span| texts.text().get(span.range()).is_some());
        // An architecture may be unknown, and a kernel missing, without a place.
        let needs_place = !matches!(error.code, Code::UnsupportedArchitecture | Code::Syntax);
        if (needs_place && error.span.text().is_none()) || !legal {
            judgement.faults.push(Fault::new("placeless", all));
        }
    }
    if errors.0.is_empty() {
        judgement.faults.push(Fault::new("placeless", "a refusal without a message"));
    }
    judgement
}

/// Judges a text.
pub fn judge(text: &str, how: &How) -> Judgement {
    let program = match parse(text) {
        Ok(program) => program,
        Err(errors) => return refusal(&errors, text),
    };
    let mut faults = Vec::new();
    match parse(&program.to_string()) {
        Ok(again) if again == program => {}
        Ok(_) => faults.push(Fault::new("round_trip", "the printed program reads as another one")),
        Err(errors) => {
            faults.push(Fault::new("round_trip", format!("the printed program does not read: {errors}")))
        }
    }
    if let Some(text) = outlined(&program) {
        match parse(&text) {
            Ok(again) if again == program => {}
            Ok(_) => {
                faults.push(Fault::new("outline", "with its expressions in functions it is another one"))
            }
            Err(errors) => {
                let said = format!("with its expressions in functions it does not read: {errors}");
                faults.push(Fault::new("outline", said));
            }
        }
    }
    let mut judgement = match how.arch.parse::<Arch>() {
        Err(unknown) => Judgement::new(Class::Refused, unknown.to_string()),
        Ok(arch) => match compile(&program, &how.options(&program, arch)) {
            Err(errors) => refusal(&errors, text),
            Ok(kernel) => run(&program, &kernel, how),
        },
    };
    judgement.faults.extend(faults);
    judgement
}

/// The mistake in the text of a core program: it reads back to the same one, which keeps the rules.
fn core_text(program: &core::Program) -> Option<Fault> {
    let again = core::parse(&program.to_string());
    match again.and_then(|again| core::check(&again).map(|_| again)) {
        Ok(again) if again == program.renumbered() => None,
        Ok(_) => Some(Fault::new("round_trip", "the printed core program reads as another one")),
        Err(errors) => {
            Some(Fault::new("round_trip", format!("the printed core program does not read: {errors}")))
        }
    }
}

fn run(program: &Program, kernel: &Kernel, how: &How) -> Judgement {
    let mut judgement = executed(program, kernel, how);
    judgement.faults.extend(core_text(&kernel.core));
    let possible = kernel.explanation.candidates.iter().filter(|c| c.estimate.is_some());
    judgement.candidates = possible.map(|c| c.number).collect();
    let copies = kernel.explanation.statements.iter().filter(|s| s.text.starts_with("copy.async"));
    // Threads issue `cp.async`, or copy through registers at once.
    let by_threads = |i: &str| i.contains("at once") || i.starts_with("cp.async") && !i.contains("bulk");
    judgement.engines = copies.clone().any(|s| !by_threads(&s.instruction));
    judgement.at_once =
        copies.filter(|s| s.instruction.contains("at once")).map(|s| s.text.clone()).collect();
    judgement.barriers = barriers(&kernel.function);
    if how.assemble {
        match assemble(&kernel.ptx, &how.arch) {
            Ok(done) => judgement.assembled = done,
            Err(said) => {
                let kind = if said.advice { "advice" } else { "assembler" };
                judgement.assembled = said.advice;
                judgement.faults.push(Fault::new(kind, said.text));
            }
        }
    }
    judgement
}

/// The places in the text of statements whose code has a barrier of the block, but for one in a branch.
fn barriers(function: &Function) -> Vec<usize> {
    fn within(function: &Function, body: &[Inst], places: &mut Vec<usize>) {
        for inst in body {
            match &inst.op {
                Op::Sync(SyncOp::Barrier) => {
                    places.extend(
                        function.position(inst.origin).and_then(Position::text).map(|at| at as usize),
                    );
                }
                Op::For { body, .. } => within(function, body, places),
                _ => {}
            }
        }
    }
    let mut places = Vec::new();
    within(function, &function.body, &mut places);
    places
}

fn executed(program: &Program, kernel: &Kernel, how: &How) -> Judgement {
    let expense = cost(program);
    if !(expense.work <= WORK_LIMIT && expense.elements <= ELEMENT_LIMIT) {
        return Judgement::new(Class::Large, format!("{:.0} elements touched", expense.work));
    }
    let inputs = CheckOptions { seed: how.inputs, ..CheckOptions::default() };
    let device = |seed| SimDevice::new(Config { seed, step_limit: STEP_LIMIT, ..Config::default() });
    let (expected, warnings) = match watched(kernel, &inputs) {
        Ok(both) => both,
        Err(error) => {
            let mut judgement = Judgement::new(Class::Rejected, error.to_string());
            judgement.simulator_finds = how.seeds.iter().any(|seed| {
                findings_of(kernel, &device(*seed), &inputs).map_or(true, |found| !found.is_empty())
            });
            return judgement;
        }
    };
    let judgement = simulated(kernel, how, &inputs, &expected, device);
    // Outputs that depend on what nothing wrote may be anything, and so may be whether it comes to an end.
    let mut judgement = match warnings.iter().find(|warning| warning.code == Code::ReadUnwritten) {
        Some(unwritten) if judgement.class != Class::Large => Judgement {
            class: Class::Rejected,
            message: format!("{}: {}", unwritten.code, unwritten.message),
            simulator_finds: judgement.class == Class::Reported,
            ..judgement
        },
        _ => judgement,
    };
    // Blocks that race may leave anything behind: only a program that is right has one meaning.
    if judgement.class == Class::Right {
        let difference = core_difference(&kernel.core, kernel, &expected, &inputs);
        let message = difference.unwrap_or_else(|error| Some(error.to_string()));
        judgement.faults.extend(message.map(|message| Fault::new("core", message)));
    }
    judgement
}

/// Runs a kernel that the interpreter accepts on the simulator, once for each seed, and judges the outcomes.
fn simulated(
    kernel: &Kernel,
    how: &How,
    inputs: &CheckOptions,
    expected: &Expected,
    device: impl Fn(u64) -> SimDevice,
) -> Judgement {
    let (mut wrong, mut compared, mut unlike) = (None, [0, 0], None);
    for seed in &how.seeds {
        let checked = check_against(kernel, &device(*seed), inputs, expected);
        if let Ok(outcome) = &checked {
            let sum = |of: &dyn Fn(&Comparison) -> usize| outcome.comparisons.iter().map(of).sum::<usize>();
            compared = [sum(&|c| c.elements), sum(&|c| c.unbounded)];
        }
        match checked {
            Ok(outcome) if outcome.is_right() => {
                unlike = unlike.or_else(|| unlike_print(kernel, &outcome.printed));
            }
            Ok(outcome) if !outcome.findings.is_empty() => {
                return Judgement::new(Class::Reported, format!("seed {seed}: {}", outcome.findings[0]));
            }
            Ok(outcome) => {
                let first = outcome.comparisons.iter().find(|c| c.wrong > 0);
                wrong.get_or_insert_with(|| {
                    first.map_or(String::new(), |c| {
                        format!("seed {seed}: output `{}` has {} wrong elements; {c}", c.name, c.wrong)
                    })
                });
            }
            Err(error) => return failed(*seed, error),
        }
    }
    match wrong {
        Some(message) => Judgement { compared, ..Judgement::new(Class::Wrong, message) },
        None => {
            let faults = unlike.map(|record| Fault::new("print", record)).into_iter().collect();
            Judgement { compared, faults, ..Judgement::new(Class::Right, "") }
        }
    }
}

/// A record of what a kernel prints that one execution alone has, if what it prints does not depend on the order of blocks.
fn unlike_print(kernel: &Kernel, printed: &Prints) -> Option<String> {
    let mut open = printed.left_out > 0;
    kernel.core.visit(&mut |stmt, _| {
        let dealt = matches!(stmt.kind, StmtKind::Tiles { dynamic: Some(_), .. });
        open |= dealt || stmt.kind.fetch().is_some() || stmt.kind.counter().is_some();
    });
    let alone = printed.records.iter().find(|record| record.by != PrintedBy::Both);
    alone.filter(|_| !open).map(ToString::to_string)
}

/// Judges a launch that ended with an error.
fn failed(seed: u64, error: CheckError) -> Judgement {
    let text = format!("seed {seed}: {error}");
    let CheckError::Runtime(error) = error else { return Judgement::new(Class::Rejected, text) };
    match error {
        RuntimeError::Simulator { error, .. } => match *error {
            SimError::StepLimit { .. } => Judgement::new(Class::Large, text),
            SimError::Deadlock { .. }
            | SimError::LoopOverflow { .. }
            | SimError::Grid(_)
            | SimError::Cluster { .. } => Judgement::new(Class::Reported, text),
            _ => {
                let mut judgement = Judgement::new(Class::Reported, text.clone());
                judgement.faults.push(Fault::new("internal", text));
                judgement
            }
        },
        RuntimeError::Inconsistent { .. } => {
            let mut judgement = Judgement::new(Class::Rejected, text.clone());
            judgement.faults.push(Fault::new("internal", text));
            judgement
        }
        _ => Judgement::new(Class::Rejected, text),
    }
}

/// Output of `ptxas`.
#[derive(Debug)]
pub struct Said {
    /// Its words.
    pub text: String,
    /// True if it assembled the PTX, and only warns that it may be slow.
    pub advice: bool,
}

/// Assembles PTX with the `ptxas` that `TILEWRIGHT_PTXAS` names; `Ok(false)` where there is none.
///
/// # Errors
///
/// The assembler's output, if there is any.
pub fn assemble(ptx: &str, arch: &str) -> Result<bool, Said> {
    let Some(ptxas) = std::env::var_os("TILEWRIGHT_PTXAS") else { return Ok(false) };
    let folder = std::env::temp_dir();
    let path = folder.join(format!("tilewright-campaign-{}.ptx", std::process::id()));
    let failed = |what: &str, e: std::io::Error| Said { text: format!("{what}: {e}"), advice: false };
    std::fs::write(&path, ptx).map_err(|e| failed("cannot write the PTX", e))?;
    let output = Command::new(Path::new(&ptxas))
        .args([&format!("-arch={arch}"), "-o", "/dev/null"])
        .arg(&path)
        .output()
        .map_err(|e| failed("cannot run ptxas", e))?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() && said.trim().is_empty() {
        return Ok(true);
    }
    let mut lines = said.lines().filter(|line| !line.trim().is_empty());
    let advice = output.status.success() && lines.all(|line| line.contains("Potential Performance Loss"));
    let text = format!("{}: {}", output.status, said.lines().take(6).collect::<Vec<_>>().join(" | "));
    Err(Said { text, advice })
}
