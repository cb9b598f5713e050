//! Tuning programs of one's own: a file whose `space` says which values its constants may take, or a task program with a mapping, whose numbers
//! may change. Candidates are assignments of these values, compiled and ranked by the estimate of synthesis: all of a file's, and of a large space
//! of mappings those that a search from the file's own mapping meets. The best are measured in turns, and the fastest is kept as a record that
//! holds for the very text.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tilewright_compiler::{Kernel, Options, compile, multiple_of};
use tilewright_kernels::Launch;
use tilewright_machine::Rate;
use tilewright_runtime::{Sizes, Timing};
use tilewright_task::{Mapping, Program as TaskProgram};
use tilewright_tile::{Constants, Diagnostics, Module, Program};

use crate::error::TuneError;
use crate::mapping::MappingSpace;
use crate::measurer::{Load, Measurer};
use crate::problem::{Target, sha256};
use crate::record::{COMPILER, Conditions, FORMAT};
use crate::report::{Refused, RejectedBy};
use crate::search::{Progress, ProgressFn, Settings};
use crate::store::{Store, replace};

/// The most assignments of a space.
pub const MAX_ASSIGNMENTS: usize = 1 << 14;

/// The most mappings of a space that are all compiled.
const ALL_MAPPINGS: usize = 256;

/// The thing that has a space.
#[derive(Clone, Debug)]
enum Source {
    /// Kernels with constants.
    Kernels(Module),
    /// A mapping of a task program.
    Mapping(Box<MappingSpace>),
}

/// The kernels of a file with the sizes that they are tuned for, and constants that keep a value.
#[derive(Clone, Debug)]
pub struct ProgramProblem {
    source: Source,
    sizes: Sizes,
    pinned: Constants,
    space: Vec<(String, Vec<i64>)>,
}

impl ProgramProblem {
    /// The problem of a file at these sizes; those not named have their defaults. Constants with a value in `pinned` keep it.
    ///
    /// # Errors
    ///
    /// [`TuneError::NoSpace`] if the file has none, or too large a one.
    pub fn new(module: &Module, sizes: &Sizes, pinned: &Constants) -> Result<Self, TuneError> {
        let mut space: Vec<(String, Vec<i64>)> = Vec::new();
        for program in &module.programs {
            for dimension in &program.space {
                let name = &program.symbol(dimension.constant).name;
                if !pinned.contains_key(name) && !space.iter().any(|(known, _)| known == name) {
                    space.push((name.clone(), dimension.values.clone()));
                }
            }
        }
        let wrong = |reason: &str| TuneError::NoSpace {
            program: names_of(&module.programs),
            reason: reason.to_string(),
        };
        let declared = module.programs.iter().any(|program| !program.space.is_empty());
        if space.is_empty() {
            return Err(wrong(match declared {
                true => "every constant of its space has a value already",
                false => "declare one before the kernel: `space { BM = 64 | 128, STAGES = 2..5 }`",
            }));
        }
        let count = space.iter().try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
        if count.is_none_or(|count| count > MAX_ASSIGNMENTS) {
            return Err(wrong("its space has more than 16384 assignments: give constants fewer values"));
        }
        let sizes = all_sizes(&module.programs, sizes);
        let source = Source::Kernels(module.clone());
        Ok(ProgramProblem { source, sizes, pinned: pinned.clone(), space })
    }

    /// The problem of a mapping of a verified task program at these sizes; those not named have their defaults.
    ///
    /// # Errors
    ///
    /// [`TuneError::NoSpace`] if the front end refuses the mapping itself, from which a search begins, or it has no number that may change.
    pub fn of_mapping(program: &TaskProgram, mapping: &Mapping, sizes: &Sizes) -> Result<Self, TuneError> {
        let wrong = |reason: String| TuneError::NoSpace { program: mapping.name.clone(), reason };
        let source = MappingSpace::new(program, mapping).map_err(|errors| wrong(first_message(errors)))?;
        let space = source.space();
        if space.is_empty() {
            return Err(wrong(
                "its rows have no number that may change: `space { U = 64 | 128 }`".to_string(),
            ));
        }
        let sizes = all_sizes(source.kernels(), sizes);
        let source = Source::Mapping(Box::new(source));
        Ok(ProgramProblem { source, sizes, pinned: Constants::new(), space })
    }

    /// The constants of the space with their values.
    pub fn space(&self) -> &[(String, Vec<i64>)] {
        &self.space
    }

    /// The value of every size.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The kernels.
    pub fn programs(&self) -> &[Program] {
        match &self.source {
            Source::Kernels(module) => &module.programs,
            Source::Mapping(mapping) => mapping.kernels(),
        }
    }

    /// Values in words, as a table has them.
    pub fn shown(&self, constants: &Constants) -> String {
        match &self.source {
            Source::Kernels(_) => text_of(constants),
            Source::Mapping(mapping) => mapping.shown(constants),
        }
    }

    /// The kernels that the mapping with these values makes; nothing of a file of kernels, which take values as constants.
    ///
    /// # Errors
    ///
    /// Refusals of the front end.
    pub fn lowered(&self, constants: &Constants) -> Result<Option<Vec<Program>>, Diagnostics> {
        match &self.source {
            Source::Kernels(_) => Ok(None),
            Source::Mapping(mapping) => mapping.lowered(constants).map(Some),
        }
    }

    /// The mapping with these values as a file has it; nothing of a file of kernels.
    pub fn mapping_text(&self, constants: &Constants) -> Option<String> {
        match &self.source {
            Source::Kernels(_) => None,
            Source::Mapping(mapping) => Some(mapping.mapping_text(constants)),
        }
    }

    /// Assignments that are measured next where one was the fastest: of mappings those that differ in a number or two.
    fn around(&self, constants: &Constants) -> Vec<Constants> {
        match &self.source {
            Source::Kernels(_) => Vec::new(),
            Source::Mapping(mapping) => mapping.neighbours(constants),
        }
    }

    /// The names of the kernels.
    fn names(&self) -> String {
        names_of(self.programs())
    }

    /// Every assignment, without those that are pinned; the constants of the space in its order, the last one fastest.
    pub fn assignments(&self) -> Vec<Constants> {
        let mut all = vec![Constants::new()];
        for (name, values) in &self.space {
            let with = |before: &Constants, value: &i64| {
                let mut constants = before.clone();
                constants.insert(name.clone(), *value);
                constants
            };
            all = all.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect();
        }
        all
    }

    /// The SHA-256 of the printed kernels: another text is another problem.
    pub fn hash(&self) -> String {
        sha256(&match &self.source {
            Source::Kernels(module) => module.to_string(),
            Source::Mapping(mapping) => mapping.text(),
        })
    }

    /// The class of the sizes: problems of one class share a record. Each size rounded up to a power of two, and the largest power of two, up
    /// to 256, that divides it, as compiling relies on it.
    pub fn class(&self) -> String {
        let one = |(name, size): (&String, &i64)| {
            let above = size.max(&1).unsigned_abs().next_power_of_two();
            format!("{name}<={above}/{}", multiple_of(*size))
        };
        self.sizes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// The key of a record, as text.
    pub fn key(&self, target: &Target) -> String {
        let Target { device, arch, .. } = target;
        format!(
            "{} | {} | {} | {} | {device} | {arch}",
            self.hash(),
            text_of(&self.pinned),
            self.class(),
            COMPILER
        )
    }

    /// The kernels with these values for constants.
    ///
    /// # Errors
    ///
    /// The compiler's message.
    pub fn compiled(&self, target: &Target, constants: &Constants) -> Result<Vec<Kernel>, String> {
        let one = |program: &Program| {
            let has = |name: &String| program.constants().any(|(_, symbol, _)| symbol.name == *name);
            let mut options = Options::new(target.arch);
            let given = self.pinned.iter().chain(constants).filter(|(name, _)| has(name));
            options.constants = given.map(|(name, value)| (name.clone(), *value)).collect();
            let sizes: Vec<(&str, i64)> =
                self.sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
            let options = options.for_own_sizes(program, &sizes);
            compile(program, &options).map_err(first_message)
        };
        match &self.source {
            Source::Kernels(module) => module.programs.iter().map(one).collect(),
            Source::Mapping(mapping) => {
                mapping.lowered(constants).map_err(first_message)?.iter().map(one).collect()
            }
        }
    }
}

/// The message of the first error.
fn first_message(errors: Diagnostics) -> String {
    errors.0.first().map_or_else(|| errors.to_string(), |first| first.message.clone())
}

/// The value of every size of kernels: the given one, or its default.
fn all_sizes(programs: &[Program], given: &Sizes) -> Sizes {
    let of = |program: &Program| -> Sizes {
        let sizes = program.sizes().map(|(_, symbol, default)| {
            (symbol.name.clone(), given.get(&symbol.name).copied().unwrap_or(default))
        });
        sizes.collect()
    };
    programs.iter().flat_map(of).collect()
}

fn names_of(programs: &[Program]) -> String {
    let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
    names.join(", ")
}

/// Values of constants as text: `BM=64 STAGES=3`; the defaults where there are none.
pub fn text_of(constants: &Constants) -> String {
    let words: Vec<String> = constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

impl fmt::Display for ProgramProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names())?;
        for (name, size) in &self.sizes {
            write!(f, " {name}={size}")?;
        }
        if !self.pinned.is_empty() {
            write!(f, " {}", text_of(&self.pinned))?;
        }
        Ok(())
    }
}

/// A candidate: an assignment with its estimate and its times.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Assignment {
    /// The values; of the file's own ones, none.
    pub constants: Constants,
    /// The estimated time in microseconds; none of one that the compiler refuses.
    pub estimate: Option<f64>,
    /// The reason why it cannot run.
    pub refused: Option<Refused>,
    /// Its turns, in microseconds.
    pub times: Vec<f64>,
}

impl Assignment {
    /// The median of its times.
    pub fn median(&self) -> Option<f64> {
        Timing::of(self.times.clone()).map(|timing| timing.median_ms)
    }
}

/// The result of ranking or tuning a program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProgramReport {
    /// Every candidate: the fastest first, then those that were not measured by their estimates, then those that were refused.
    pub candidates: Vec<Assignment>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// The fastest values for a program on a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProgramRecord {
    /// The form of records.
    pub format: u32,
    /// The SHA-256 of the printed kernels.
    pub program: String,
    /// The names of the kernels.
    pub kernels: String,
    /// The sizes that were measured.
    pub sizes: Sizes,
    /// Constants that kept a value.
    pub pinned: Constants,
    /// The device.
    pub device: String,
    /// The architecture.
    pub arch: String,
    /// The version of the compiler.
    pub compiler: String,
    /// The values.
    pub constants: Constants,
    /// The median time.
    pub microseconds: f64,
    /// That of the file's own values, where they can run.
    pub defaults_microseconds: Option<f64>,
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// Conditions of measurement.
    pub conditions: Conditions,
}

/// The file of a record.
fn file(store: &Store, key: &str) -> PathBuf {
    store.folder().join("programs").join(format!("{}.json", &sha256(key)[..32]))
}

/// The record for a program on a device, if there is one that holds: of this text, these sizes' class, this compiler.
pub fn program_record(problem: &ProgramProblem, target: &Target, store: &Store) -> Option<ProgramRecord> {
    let text = std::fs::read_to_string(file(store, &problem.key(target))).ok()?;
    let record: ProgramRecord = serde_json::from_str(&text).ok()?;
    let known = |(name, value): (&String, &i64)| {
        problem.space.iter().any(|(constant, values)| constant == name && values.contains(value))
    };
    let holds =
        record.format == FORMAT && record.program == problem.hash() && record.constants.iter().all(known);
    holds.then_some(record)
}

/// An assignment that was compiled, with its kernels.
struct Compiled {
    entry: Assignment,
    kernels: Vec<Kernel>,
}

/// The time of kernels one after another, by the estimates of synthesis.
fn estimate(kernels: &[Kernel], target: &Target) -> f64 {
    let timing = tilewright_machine::timing(target.arch);
    let cycles: u64 = kernels.iter().map(|kernel| kernel.explanation.estimate.cycles).sum();
    cycles as f64 / timing.rate(Rate::ClockMhz)
}

/// The assignments compiled, those that can run first, by estimate: all, or of a large space of mappings those that a search meets.
fn compiled(problem: &ProgramProblem, target: &Target) -> Vec<Compiled> {
    let one = |constants: Constants| {
        let (estimate, refused, kernels) = match problem.compiled(target, &constants) {
            Ok(kernels) => (Some(estimate(&kernels, target)), None, kernels),
            Err(reason) => (None, Some(Refused { by: RejectedBy::Compiler, reason }), Vec::new()),
        };
        Compiled { entry: Assignment { constants, estimate, refused, times: Vec::new() }, kernels }
    };
    let assignments = problem.space.iter().try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
    let mut all: Vec<Compiled> = Vec::new();
    match &problem.source {
        Source::Mapping(mapping) if assignments.is_none_or(|count| count > ALL_MAPPINGS) => {
            mapping.climb(|wanted| {
                let some: Vec<Compiled> = wanted.into_par_iter().map(one).collect();
                let said = some.iter().map(|c| (c.entry.constants.clone(), c.entry.estimate)).collect();
                all.extend(some);
                said
            });
        }
        _ => {
            // The file's own values, which need not be among those of the space.
            let mut wanted = vec![Constants::new()];
            wanted.extend(problem.assignments());
            all = wanted.into_par_iter().map(one).collect();
        }
    }
    // Where the file's own values are an assignment of the space, that one stands for both.
    if let Some((defaults, others)) = all.split_first_mut()
        && let Some(same) = others.iter_mut().find(|other| same_code(&other.kernels, &defaults.kernels))
    {
        same.entry.constants = Constants::new();
        all.remove(0);
    }
    let key = |c: &Compiled| c.entry.estimate.unwrap_or(f64::INFINITY);
    all.sort_by(|a, b| key(a).total_cmp(&key(b)));
    all
}

fn same_code(a: &[Kernel], b: &[Kernel]) -> bool {
    !a.is_empty() && a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.ptx == b.ptx)
}

fn nothing_runs(problem: &ProgramProblem, all: &[Compiled]) -> TuneError {
    let reason = all.iter().find_map(|c| c.entry.refused.as_ref());
    TuneError::NothingRuns {
        problem: problem.to_string(),
        tried: all.len(),
        reason: reason.map_or_else(String::new, |refused| refused.reason.clone()),
    }
}

/// Ranks the assignments of a program by estimate; nothing is measured.
///
/// # Errors
///
/// [`TuneError::NothingRuns`] if the compiler refuses all.
pub fn rank_program(
    problem: &ProgramProblem,
    target: &Target,
    watch: &mut ProgressFn<'_>,
) -> Result<ProgramReport, TuneError> {
    let started = Instant::now();
    watch(Progress { spent: 0.0, doing: "compiling every assignment".to_string() });
    let all = compiled(problem, target);
    if all.iter().all(|c| c.entry.refused.is_some()) {
        return Err(nothing_runs(problem, &all));
    }
    let candidates = all.into_iter().map(|c| c.entry).collect();
    Ok(ProgramReport { candidates, seconds: started.elapsed().as_secs_f64() })
}

/// Candidates by estimate, with the first of each estimate in front: what an estimate does not tell apart is measured once something of its
/// kind is fast.
fn one_of_each_estimate(all: &[Compiled], able: Vec<usize>) -> Vec<usize> {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    let mut before = None;
    for i in able {
        let estimate = all[i].entry.estimate;
        if before == Some(estimate) {
            others.push(i)
        } else {
            first.push(i)
        }
        before = Some(estimate);
    }
    first.extend(others);
    first
}

/// Candidates that are measured around the fastest mapping at a time.
const AROUND: usize = 6;

/// Candidates measured in turns.
struct Contest<'a, 'b> {
    problem: &'a ProgramProblem,
    settings: &'a Settings,
    measurer: &'a mut dyn Measurer,
    watch: &'a mut ProgressFn<'b>,
    started: Instant,
    /// Programs that are on the device.
    loaded: Vec<usize>,
}

impl Contest<'_, '_> {
    /// The part of the budget that is spent.
    fn spent(&self) -> f64 {
        self.started.elapsed().as_secs_f64() / self.settings.budget.as_secs_f64().max(1e-3)
    }

    /// The fastest of all that were measured.
    fn fastest(&self, all: &[Compiled]) -> Option<usize> {
        let median = |i: &usize| all[*i].entry.median().unwrap_or(f64::INFINITY);
        self.loaded.iter().copied().min_by(|a, b| median(a).total_cmp(&median(b)))
    }

    /// Times these in turns; those that fall behind drop out.
    fn hold(&mut self, all: &mut [Compiled], these: Vec<usize>) -> Result<(), TuneError> {
        let kernels: Vec<&Kernel> = these.iter().flat_map(|i| &all[*i].kernels).collect();
        self.measurer.prefetch(&kernels);
        let launch = Launch::of(self.problem.sizes());
        let mut alive = Vec::new();
        for i in these {
            if self.loaded.contains(&i) {
                alive.push(i);
                continue;
            }
            let kernels = std::mem::take(&mut all[i].kernels);
            match self.measurer.load(i, kernels, &launch)? {
                Load::Ready => alive.push(i),
                Load::Refused(reason) => {
                    all[i].entry.refused = Some(Refused { by: RejectedBy::Assembler, reason });
                    continue;
                }
            }
            self.loaded.push(i);
        }
        for round in 0..self.settings.rounds[1].max(1) {
            // The other way round every second time: a place in the round is no advantage.
            if round > 0 {
                alive.reverse();
            }
            for i in &alive {
                let time = self.measurer.time(*i)?;
                all[*i].entry.times.push(time);
            }
            let median = |i: &usize| all[*i].entry.median().unwrap_or(f64::INFINITY);
            let best = alive.iter().map(median).fold(f64::INFINITY, f64::min);
            let spent = self.spent();
            (self.watch)(Progress {
                spent: spent.min(1.0),
                doing: format!("round {}: {best:.1} µs", round + 1),
            });
            if round + 1 >= self.settings.rounds[0] {
                alive.retain(|i| median(i) <= best * (1.0 + self.settings.drop));
            }
            if alive.len() < 2 || spent >= 1.0 {
                break;
            }
        }
        Ok(())
    }
}

/// Measures the best assignments of a program, and keeps the fastest in the store.
///
/// # Errors
///
/// [`TuneError::NothingRuns`], [`TuneError::Device`], [`TuneError::Store`], and [`TuneError::Wrong`] if the fastest computes something else
/// than the file's own values, or than another assignment where those cannot run.
pub fn tune_program(
    problem: &ProgramProblem,
    target: &Target,
    store: &Store,
    settings: &Settings,
    measurer: &mut dyn Measurer,
    watch: &mut ProgressFn<'_>,
) -> Result<(ProgramRecord, ProgramReport), TuneError> {
    let started = Instant::now();
    watch(Progress { spent: 0.0, doing: "compiling every assignment".to_string() });
    let mut all = compiled(problem, target);
    let able: Vec<usize> = (0..all.len()).filter(|i| all[*i].entry.refused.is_none()).collect();
    let able = one_of_each_estimate(&all, able);
    let mut alive: Vec<usize> = able.iter().copied().take(settings.top.max(1)).collect();
    // The file's own values are what others are compared with.
    alive.extend(
        able.iter().copied().skip(settings.top.max(1)).filter(|i| all[*i].entry.constants.is_empty()),
    );
    let mut contest = Contest { problem, settings, measurer, watch, started, loaded: Vec::new() };
    contest.hold(&mut all, alive)?;
    // Around the fastest mapping, while there is a faster one.
    while let Some(winner) = contest.fastest(&all)
        && contest.spent() < 1.0
    {
        let left = settings.measurements.saturating_sub(contest.loaded.len());
        let around: BTreeSet<Constants> = problem.around(&all[winner].entry.constants).into_iter().collect();
        let fresh = able.iter().copied().filter(|i| {
            around.contains(&all[*i].entry.constants)
                && all[*i].entry.refused.is_none()
                && !contest.loaded.contains(i)
        });
        // First those that the estimate does not tell from the fastest.
        let mut fresh: Vec<usize> = fresh.collect();
        fresh.sort_by_key(|i| all[*i].entry.estimate != all[winner].entry.estimate);
        fresh.truncate(left.min(AROUND));
        if fresh.is_empty() {
            break;
        }
        contest.hold(&mut all, [vec![winner], fresh].concat())?;
        if contest.fastest(&all) == Some(winner) {
            break;
        }
    }
    let winner = contest.fastest(&all);
    let Contest { loaded, measurer, .. } = contest;
    let Some(winner) = winner else { return Err(nothing_runs(problem, &all)) };
    let median = |i: &usize| all[*i].entry.median().unwrap_or(f64::INFINITY);
    let defaults = loaded.iter().copied().find(|i| all[*i].entry.constants.is_empty());
    let other = defaults.filter(|i| *i != winner).or(loaded.iter().copied().find(|i| *i != winner));
    if let Some(other) = other
        && let Some(difference) = measurer.difference(winner, other)?
    {
        let shown = |i: usize| problem.shown(&all[i].entry.constants);
        return Err(TuneError::Wrong {
            problem: problem.to_string(),
            winner: shown(winner),
            other: shown(other),
            difference,
        });
    }
    let record = ProgramRecord {
        format: FORMAT,
        program: problem.hash(),
        kernels: problem.names(),
        sizes: problem.sizes.clone(),
        pinned: problem.pinned.clone(),
        device: target.device.clone(),
        arch: target.arch.to_string(),
        compiler: COMPILER.to_string(),
        constants: all[winner].entry.constants.clone(),
        microseconds: median(&winner),
        defaults_microseconds: defaults.and_then(|i| all[i].entry.median()),
        unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        conditions: measurer.conditions(),
    };
    let path = file(store, &problem.key(target));
    replace(&path, &format!("{}\n", serde_json::to_string(&record).unwrap_or_default()))?;
    let mut candidates: Vec<Assignment> = all.into_iter().map(|c| c.entry).collect();
    let key = |a: &Assignment| (a.median().unwrap_or(f64::INFINITY), a.estimate.unwrap_or(f64::INFINITY));
    candidates.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    Ok((record, ProgramReport { candidates, seconds: started.elapsed().as_secs_f64() }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use tilewright_machine::Arch;
    use tilewright_tile::{Sources, parse_module};

    const TEXT: &str = "size n = 4096
const T = 64, W = 1
space { T = 64 | 128 | 100000000, W = 1..3 }
kernel k(x: f32[n], y: f32[n]) grid(ceil_div(n, T)) threads(32 * W) {
    gx = global_view(x[block.x * T :], (T) : (e0))
    gy = global_view(y[block.x * T :], (T) : (e0))
    r = register_tensor(f32, [T])
    copy(gx, r)
    copy(r, gy)
}";

    fn problem(text: &str, pinned: &[(&str, i64)]) -> Result<ProgramProblem, TuneError> {
        let module = parse_module(Sources::new("k.tile", text), &mut |_, _| Err(String::new())).unwrap();
        let pinned = pinned.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        ProgramProblem::new(&module, &Sizes::new(), &pinned)
    }

    fn target() -> Target {
        Target::new("a device", Arch::SM_80)
    }

    /// Takes the times of candidates from a table.
    struct Table {
        loaded: BTreeMap<usize, f64>,
    }

    impl Measurer for Table {
        fn conditions(&self) -> Conditions {
            Conditions { l2: "dirty".to_string(), rest_seconds: 0.0 }
        }

        fn load(&mut self, id: usize, kernels: Vec<Kernel>, _: &Launch) -> Result<Load, TuneError> {
            // Many threads are fast here.
            self.loaded.insert(id, 1000.0 / f64::from(kernels[0].threads()));
            Ok(Load::Ready)
        }

        fn time(&mut self, id: usize) -> Result<f64, TuneError> {
            Ok(self.loaded[&id])
        }

        fn difference(&mut self, _: usize, _: usize) -> Result<Option<String>, TuneError> {
            Ok(None)
        }
    }

    #[test]
    fn assignments_are_ranked_and_those_that_cannot_run_have_a_reason() {
        let problem = problem(TEXT, &[]).unwrap();
        assert_eq!(problem.assignments().len(), 6);
        let report = rank_program(&problem, &target(), &mut |_| {}).unwrap();
        // The file's own values are one of them.
        assert_eq!(report.candidates.len(), 6);
        assert_eq!(report.candidates.iter().filter(|c| c.constants.is_empty()).count(), 1);
        let refused: Vec<&Assignment> = report.candidates.iter().filter(|c| c.refused.is_some()).collect();
        assert_eq!(refused.len(), 2);
        assert!(refused.iter().all(|c| c.constants["T"] == 100_000_000 && c.estimate.is_none()));
        let estimates: Vec<f64> = report.candidates.iter().filter_map(|c| c.estimate).collect();
        assert!(estimates.len() == 4 && estimates.is_sorted());
    }

    #[test]
    fn the_fastest_is_kept_for_this_text_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let problem_ = problem(TEXT, &[]).unwrap();
        let mut table = Table { loaded: BTreeMap::new() };
        let settings = Settings { top: 3, ..Settings::default() };
        let (record, report) =
            tune_program(&problem_, &target(), &store, &settings, &mut table, &mut |_| {}).unwrap();
        assert_eq!(record.constants["W"], 2);
        assert!(report.candidates[0].constants == record.constants && record.microseconds < 16.0);
        assert_eq!(record.defaults_microseconds, Some(1000.0 / 32.0));
        assert_eq!(program_record(&problem_, &target(), &store), Some(record));
        let other = problem(&TEXT.replace("n = 4096", "n = 100"), &[]).unwrap();
        assert_eq!(program_record(&other, &target(), &store), None);
        let pinned = problem(TEXT, &[("T", 64)]).unwrap();
        assert_eq!((pinned.assignments().len(), program_record(&pinned, &target(), &store)), (2, None));
    }

    #[test]
    fn a_file_without_a_space_is_refused() {
        let said = |text: &str, pinned: &[(&str, i64)]| problem(text, pinned).unwrap_err().to_string();
        let without = TEXT.lines().filter(|line| !line.starts_with("space")).collect::<Vec<_>>().join("\n");
        assert!(said(&without, &[]).contains("declare one before the kernel"));
        assert!(said(TEXT, &[("T", 64), ("W", 1)]).contains("has a value already"));
        let large = TEXT.replace("1..3", "1..4000").replace("100000000", "128000000 | 1 | 2 | 3 | 4");
        assert!(said(&large, &[]).contains("more than 16384"));
    }

    const TASKS: &str = "size n = 4096
task double(y: write f32[N], x: read f32[N]) {
    inner host {
        tunable T
        yp = blocks(y, [T])
        xp = blocks(x, [T])
        for i in prange(ceil_div(N, T)) { launch half(yp[i], xp[i]) }
    }
}
task half(y: write f32[N], x: read f32[N]) {
    leaf all { y = x + x }
}
mapping a100 for sm_80 {
    entry double.host on host(global, global) { T = 128 }
    half.all on block(register, register)
}
";

    #[test]
    fn a_mapping_is_tuned_and_its_rows_are_said() {
        let tasks = tilewright_task::parse(TASKS).unwrap();
        let problem = ProgramProblem::of_mapping(&tasks, &tasks.mappings[0], &Sizes::new()).unwrap();
        assert_eq!(problem.space(), [("double.host.T".to_string(), vec![32, 64, 96, 128, 192, 256, 512])]);
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let mut table = Grids { loaded: BTreeMap::new() };
        let settings = Settings { top: 2, ..Settings::default() };
        let (record, report) =
            tune_program(&problem, &target(), &store, &settings, &mut table, &mut |_| {}).unwrap();
        // The largest tile of all is not among the first two by estimate, and is met around the fastest.
        assert_eq!(problem.shown(&record.constants), "double.host.T=512");
        assert_eq!(report.candidates.len(), 7);
        let rows = problem.mapping_text(&record.constants).unwrap();
        assert!(rows.contains("entry double.host on host(global, global) { T = 512 }"), "{rows}");
        let lowered = problem.lowered(&record.constants).unwrap().unwrap();
        assert!(lowered[0].to_string().contains("grid(ceil_div(n, 512))"), "{}", lowered[0]);
        assert_eq!(program_record(&problem, &target(), &store), Some(record));
        let other = tilewright_task::parse(&TASKS.replace("x + x", "x * 2.0")).unwrap();
        let other = ProgramProblem::of_mapping(&other, &other.mappings[0], &Sizes::new()).unwrap();
        assert_eq!(program_record(&other, &target(), &store), None);
    }

    /// Few blocks are fast here.
    struct Grids {
        loaded: BTreeMap<usize, f64>,
    }

    impl Measurer for Grids {
        fn conditions(&self) -> Conditions {
            Conditions { l2: "dirty".to_string(), rest_seconds: 0.0 }
        }

        fn load(&mut self, id: usize, kernels: Vec<Kernel>, launch: &Launch) -> Result<Load, TuneError> {
            let grid = kernels[0].program().grid[0].eval(&At(&kernels[0], launch)).unwrap();
            self.loaded.insert(id, grid as f64);
            Ok(Load::Ready)
        }

        fn time(&mut self, id: usize) -> Result<f64, TuneError> {
            Ok(self.loaded[&id])
        }

        fn difference(&mut self, _: usize, _: usize) -> Result<Option<String>, TuneError> {
            Ok(None)
        }
    }

    /// The sizes of a launch.
    struct At<'a>(&'a Kernel, &'a Launch);

    impl tilewright_tile::Scope for At<'_> {
        fn symbol(&self, id: tilewright_tile::SymbolId) -> Option<i64> {
            self.1.sizes.get(&self.0.program().symbol(id).name).copied()
        }

        fn block(&self, _: tilewright_tile::Axis) -> Option<i64> {
            None
        }
    }

    #[test]
    fn a_mapping_that_is_refused_or_has_no_numbers_is_not_tuned() {
        let said = |text: &str| {
            let tasks = tilewright_task::parse(text).unwrap();
            ProgramProblem::of_mapping(&tasks, &tasks.mappings[0], &Sizes::new()).unwrap_err().to_string()
        };
        let text = TASKS
            .replace("tunable T", "")
            .replace("[T]", "[128]")
            .replace(", T)", ", 128)")
            .replace(" { T = 128 }", "");
        assert!(said(&text).contains("no number that may change"), "{}", said(&text));
    }
}
