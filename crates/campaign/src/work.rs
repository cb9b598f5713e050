//! Jobs of a campaign: what a worker does for one number, and what it says.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tilewright::machine::Memory;
use tilewright::tile::{Program, Stmt, StmtKind};

use crate::corpus::{Corpus, Seed};
use crate::dice::Dice;
use crate::explain::explain;
use crate::generate::{Case, generate};
use crate::judge::{Class, Fault, How, Judgement, judge};
use crate::mutate::mutate;
use crate::syncs::{Change, Changed, Expected, changes, mentions};
use crate::text::{Difference, meaning, mutant, reason};
use crate::variants::{one_block, pinned, through_registers};

/// Mutants of one job.
const MUTANTS: usize = 16;
/// Mutants by text of one program.
pub const TEXT_MUTANTS: u64 = 10;
/// Candidates with which a silent change of a written program is tried.
const CANDIDATES: usize = 24;
/// The codes with which a program of the generator may be refused: nothing is wrong with it, and the compiler or the chip cannot.
const REFUSALS: [&str; 5] = [
    "unsatisfiable",
    "layout-conflict",
    "shared-memory-exceeded",
    "registers-exceeded",
    "unsupported-architecture",
];

/// Request to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// A job of a campaign.
    Job {
        /// The campaign's seed.
        seed: u64,
        /// The job's number.
        number: u64,
        /// PTX texts for each one that is assembled.
        assemble_one_in: usize,
    },
    /// One change of a synchronising statement of a program of the corpus that is right.
    Written {
        /// The program's number.
        number: usize,
        /// The change's number.
        change: usize,
    },
    /// Mutants by text of one program of the corpus that is right.
    Text {
        /// The campaign's seed.
        seed: u64,
        /// The job's number.
        number: u64,
    },
    /// One text.
    Judge {
        /// The text.
        text: String,
        /// With what it is judged.
        how: How,
    },
}

/// Message from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// It begins with a text.
    Now {
        /// The text.
        text: String,
        /// With what it is judged.
        how: How,
    },
    /// The request is done.
    Done {
        /// Counters that rose, by name.
        counts: BTreeMap<String, u64>,
        /// Mistakes of Tilewright that came up.
        findings: Vec<Finding>,
        /// The judgement, of a request for one.
        judgement: Option<Judgement>,
    },
}

/// Something that ought not to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The kind and what was said.
    pub fault: Fault,
    /// The request: `SEED:JOB`, or the file.
    pub replay: String,
    /// The text.
    pub text: String,
    /// With what it was judged.
    pub how: How,
    /// The change and the right program, if the text is a right program with one statement changed.
    pub change: Option<(String, String)>,
    /// The smallest text that shows the same.
    pub shrunk: Option<String>,
}

/// Unchanged programs that were judged, by text, architecture and candidate. Those of one program of the corpus: the changes of its statements ask for
/// the same ones.
#[derive(Default)]
pub struct Known {
    program: usize,
    judged: HashMap<(String, String, Option<usize>), Unchanged>,
}

/// Judgement of an unchanged program.
#[derive(Clone, Copy)]
struct Unchanged {
    right: bool,
    /// As of [`Judgement::engines`].
    engines: bool,
}

/// Does requests.
pub struct Worker<'a> {
    corpus: &'a Corpus,
    known: &'a mut Known,
    say: &'a mut dyn FnMut(&Message),
    counts: BTreeMap<String, u64>,
    findings: Vec<Finding>,
    replay: String,
}

/// The last panic's message.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps the messages of panics for findings.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let own = trace.lines().filter(|l| l.contains("tilewright") && !l.contains("campaign")).take(6);
        let frames: Vec<&str> = own.map(str::trim).collect();
        let text = format!("{info}; {}", frames.join("; "));
        eprintln!("{text}");
        if let Ok(mut last) = PANIC.lock() {
            *last = text;
        }
    }));
}

/// Judges a text; a panic is a fault.
pub fn judge_all(text: &str, how: &How) -> Judgement {
    catch_unwind(AssertUnwindSafe(|| judge(text, how))).unwrap_or_else(|_| {
        let message = PANIC.lock().map_or(String::new(), |m| m.clone());
        Judgement {
            class: Class::Refused,
            message: message.clone(),
            simulator_finds: false,
            faults: vec![Fault::new("panic", message)],
            candidates: Vec::new(),
            assembled: false,
            compared: [0, 0],
            at_once: Vec::new(),
            engines: true,
            barriers: Vec::new(),
        }
    })
}

impl<'a> Worker<'a> {
    /// Does a request; `say` hears each text before it is judged, and what came out.
    pub fn work(
        corpus: &'a Corpus,
        known: &'a mut Known,
        request: &Request,
        say: &'a mut dyn FnMut(&Message),
    ) {
        if let Request::Written { number, .. } = request
            && known.program != *number
        {
            *known = Known { program: *number, judged: HashMap::new() };
        }
        let (counts, findings, replay) = (BTreeMap::new(), Vec::new(), String::new());
        let mut worker = Worker { corpus, known, say, counts, findings, replay };
        let mut judgement = None;
        match request {
            Request::Job { seed, number, assemble_one_in } => {
                worker.replay = format!("{seed}:{number}");
                let mut dice = Dice::of(*seed, *number);
                if number % 4 == 0 {
                    worker.mutated(&mut dice);
                } else {
                    worker.generated(&mut dice, *assemble_one_in);
                }
            }
            Request::Written { number, change } => {
                if let Some(seed) = corpus.right().get(*number) {
                    worker.replay = seed.name.clone();
                    worker.written(seed, *change);
                }
            }
            Request::Text { seed, number } => {
                worker.replay = format!("text {seed}:{number}");
                worker.text(&mut Dice::of(*seed, *number));
            }
            Request::Judge { text, how } => judgement = Some(worker.judged(text, how)),
        }
        let Worker { say, counts, findings, .. } = worker;
        say(&Message::Done { counts, findings, judgement });
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_string()).or_insert(0) += 1;
    }

    fn judged(&mut self, text: &str, how: &How) -> Judgement {
        (self.say)(&Message::Now { text: text.to_string(), how: how.clone() });
        let judgement = judge_all(text, how);
        if judgement.assembled {
            self.count("assembled");
        }
        if judgement.compiled() {
            self.count("compiled");
        }
        if !matches!(judgement.class, Class::Refused | Class::Large) {
            self.count("run");
        }
        judgement
    }

    fn find(&mut self, fault: Fault, text: &str, how: &How, change: Option<(String, String)>) {
        self.count(&format!("found.{}", fault.kind));
        let replay = self.replay.clone();
        self.findings.push(Finding {
            fault,
            replay,
            text: text.to_string(),
            how: how.clone(),
            change,
            shrunk: None,
        });
    }

    fn faults(&mut self, judgement: &Judgement, text: &str, how: &How) {
        for fault in &judgement.faults {
            self.find(fault.clone(), text, how, None);
        }
    }

    /// A right program: generated, judged, with other candidates, and broken.
    fn generated(&mut self, dice: &mut Dice, assemble_one_in: usize) {
        let Case { text, arch, family } = generate(dice);
        let how = How {
            arch: arch.to_string(),
            for_sizes: !dice.once_in(4),
            solutions: None,
            order: 0,
            candidate: None,
            seeds: vec![0, 1 + dice.word() % 1000, 1 + dice.word() % 1000],
            inputs: dice.word() % 1000,
            assemble: dice.once_in(assemble_one_in),
        };
        self.count("generated");
        self.count(&format!("generated.{family}"));
        let judgement = self.right(&text, &how);
        if judgement.class != Class::Right {
            return;
        }
        self.count("right");
        *self.counts.entry("elements".to_string()).or_insert(0) += judgement.compared[0] as u64;
        *self.counts.entry("elements.unbounded".to_string()).or_insert(0) += judgement.compared[1] as u64;
        if how.assemble {
            self.other_architectures(&text, &how);
        }
        if dice.once_in(3) {
            self.candidates(&text, &how, &judgement.candidates, dice);
        }
        if dice.once_in(3) {
            for changed in changes(&text) {
                let seeds = vec![0, 1 + dice.word() % 1000, 1 + dice.word() % 1000];
                self.changed(&text, &changed, &How { seeds, assemble: false, ..how.clone() });
            }
        }
    }

    /// Judges a program that has to be right, or to be refused because the compiler cannot.
    fn right(&mut self, text: &str, how: &How) -> Judgement {
        let judgement = self.judged(text, how);
        self.faults(&judgement, text, how);
        let message = judgement.message.clone();
        let kind = match judgement.class {
            Class::Right | Class::Large => None,
            Class::Refused if REFUSALS.iter().any(|code| message.starts_with(code)) => {
                self.count("refused");
                None
            }
            Class::Refused | Class::Rejected => Some("refused"),
            Class::Reported if message.contains("deadlock") => Some("deadlock"),
            Class::Reported => Some("false_alarm"),
            Class::Wrong => Some("disagreement"),
        };
        if let Some(kind) = kind.filter(|_| judgement.faults.is_empty()) {
            self.find(Fault::new(kind, message), text, how, None);
        }
        judgement
    }

    /// The same program for two of the other architectures, if they take it, assembled. The number of its inputs says which two.
    fn other_architectures(&mut self, text: &str, how: &How) {
        let others = tilewright::machine::Arch::ALL.into_iter().filter(|arch| arch.name() != how.arch);
        let others: Vec<_> = others.collect();
        for arch in others.iter().cycle().skip(how.inputs as usize % others.len()).take(2) {
            let how = How { arch: arch.to_string(), seeds: vec![0], ..how.clone() };
            let judgement = self.judged(text, &how);
            self.faults(&judgement, text, &how);
            let older = matches!(judgement.class, Class::Refused | Class::Right | Class::Large);
            if !older && judgement.faults.is_empty() {
                let kind = if judgement.class == Class::Wrong { "disagreement" } else { "false_alarm" };
                self.find(Fault::new(kind, judgement.message), text, &how, None);
            }
        }
    }

    fn candidates(&mut self, text: &str, how: &How, possible: &[usize], dice: &mut Dice) {
        let mut hows = Vec::new();
        for _ in 0..2 {
            if possible.len() > 1 {
                hows.push(How { candidate: Some(dice.pick(possible)), ..how.clone() });
            }
        }
        let solutions = dice.pick(&[1, 2, 8, 64]);
        hows.push(How { solutions: Some(solutions), order: dice.word() % 100, ..how.clone() });
        for how in hows {
            self.count("candidates");
            self.right(text, &How { assemble: false, ..how });
        }
    }

    /// A program in which a synchronising statement is changed.
    fn changed(&mut self, base: &str, changed: &Changed, how: &How) {
        if changed.expected == Expected::Open && changed.change != Change::Delete {
            return;
        }
        let judgement = self.judged(&changed.text, how);
        let at_once = |name: &String| judgement.at_once.iter().any(|copy| mentions(copy, name));
        // A copy whose indices move between threads meets barriers, for one.
        let ordered = changed.statement.starts_with("syncthreads")
            && changed.expected == Expected::Broken
            && changed.ordered_by(base, &judgement.barriers);
        let open = changed.in_flight.iter().any(at_once) || ordered;
        let expected = if open { Expected::Open } else { changed.expected };
        self.count("changed");
        self.count(&format!("changed.{}", changed.change.name()));
        let what = format!("{} `{}` of line {}", changed.change.name(), changed.statement, changed.line + 1);
        let origin = || Some((what.clone(), base.to_string()));
        for fault in &judgement.faults {
            self.find(fault.clone(), &changed.text, how, origin());
        }
        if !judgement.faults.is_empty() {
            return;
        }
        let message = judgement.message.clone();
        let kind = match (expected, judgement.class) {
            (_, Class::Large) => None,
            (_, Class::Wrong) => Some("unreported"),
            (Expected::Broken, Class::Right) => Some("missed"),
            (Expected::Right, Class::Refused | Class::Rejected | Class::Reported) => Some("false_alarm"),
            _ => None,
        };
        match expected {
            Expected::Broken if judgement.says_wrong() => {
                self.count("broken.found");
                if judgement.class == Class::Rejected && !judgement.simulator_finds {
                    self.count("broken.found.by_the_interpreter_alone");
                }
            }
            Expected::Right if judgement.class == Class::Right => self.count("redundant.silent"),
            Expected::Open if judgement.class == Class::Right => self.count("open.silent"),
            Expected::Open => self.count("open.found"),
            _ => {}
        }
        if let Some(kind) = kind {
            self.find(Fault::new(kind, format!("{what}: {message}")), &changed.text, how, origin());
        }
    }

    /// Texts that somebody changed without knowing what they do.
    fn mutated(&mut self, dice: &mut Dice) {
        for _ in 0..MUTANTS {
            let seed = |dice: &mut Dice| {
                let written = if dice.once_in(3) { None } else { self.corpus.pick(dice) };
                written.unwrap_or_else(|| {
                    let case = generate(dice);
                    Seed { name: String::new(), text: case.text, arch: case.arch.to_string() }
                })
            };
            let (first, second) = (seed(dice), seed(dice));
            let text = mutate(&first.text, &second.text, dice);
            let arch = if dice.once_in(6) {
                dice.pick(&["sm_80", "sm_89", "sm_90a"]).to_string()
            } else {
                first.arch
            };
            let how = How {
                arch,
                for_sizes: !dice.once_in(4),
                solutions: dice.once_in(2).then_some(16),
                order: 0,
                candidate: None,
                seeds: vec![0, 1 + dice.word() % 1000],
                inputs: dice.word() % 1000,
                assemble: dice.once_in(100),
            };
            let mut judgement = self.judged(&text, &how);
            // That a program may be slow is no mistake of what compiles it; and nothing orders a print of shared memory.
            let unordered = prints_shared(&text);
            judgement.faults.retain(|fault| fault.kind != "advice" && !(fault.kind == "print" && unordered));
            self.count("mutated");
            if judgement.compiled() {
                self.count("mutated.compiled");
            }
            self.count(&format!("mutated.{}", name(judgement.class)));
            self.faults(&judgement, &text, &how);
            if !judgement.faults.is_empty() {
                continue;
            }
            match judgement.class {
                // The two orders that the interpreter runs show that results depend on the order of blocks; a third may give others.
                Class::Wrong if judgement.compared[1] > 0 && depends_on_order(&text) => {
                    self.count("mutated.open_order");
                }
                // What an `asm` is said to mean is changed like other text, and is then not what its instructions do.
                Class::Wrong if text.contains("asm(") => {
                    self.count("mutated.other_meaning");
                }
                Class::Wrong => self.find(Fault::new("disagreement", judgement.message), &text, &how, None),
                Class::Reported if judgement.message.contains("deadlock") => {
                    self.find(Fault::new("deadlock", judgement.message), &text, &how, None);
                }
                _ => {}
            }
        }
    }

    /// Mutants by text of a program that is right and of which nothing warns.
    fn text(&mut self, dice: &mut Dice) {
        let seeds = self.corpus.right();
        let how = |arch: &str| How {
            arch: arch.to_string(),
            for_sizes: true,
            solutions: Some(16),
            order: 0,
            candidate: None,
            seeds: vec![0, 1],
            inputs: 0,
            assemble: false,
        };
        for _ in 0..8 {
            let seed = dice.pick(&seeds);
            let how = how(&seed.arch);
            if self.judged(&seed.text, &how).class != Class::Right {
                self.count("text.base_not_right");
                continue;
            }
            let Some(base) = meaning(&seed.text, &how).filter(|base| base.warnings.is_empty()) else {
                self.count("text.base_warned");
                continue;
            };
            let mut made = 0;
            for _ in 0..TEXT_MUTANTS * 8 {
                let Some(mutant) = mutant(&seed.text, dice) else { continue };
                made += 1;
                self.count("text.mutants");
                self.count(&format!("text.mutants.{}", mutant.change.name()));
                self.text_mutant(&seed, &base, &mutant, &how);
                if made == TEXT_MUTANTS {
                    return;
                }
            }
            return;
        }
    }

    fn text_mutant(
        &mut self,
        seed: &Seed,
        base: &crate::text::Meaning,
        mutant: &crate::text::Mutant,
        how: &How,
    ) {
        let judgement = self.judged(&mutant.text, how);
        self.faults(&judgement, &mutant.text, how);
        let class = match judgement.class {
            Class::Refused => "refused",
            Class::Rejected => "refused_by_the_interpreter",
            Class::Reported => "found_by_the_simulator",
            Class::Large => "too_large",
            Class::Wrong => "wrong",
            Class::Right => match meaning(&mutant.text, how) {
                None => "too_large",
                Some(meaning) if !meaning.warnings.is_empty() => "warned",
                Some(meaning) => match base.difference(&meaning) {
                    Difference::Equal => "equal",
                    Difference::Parameters => "silent.other_parameters",
                    Difference::Output(words) => {
                        if let Some(reason) = reason(mutant) {
                            self.count(&format!("text.silent.{reason}"));
                        } else {
                            let change = format!("{} {:?}", mutant.change.name(), mutant.before);
                            let said =
                                format!("{change} becomes {:?} in {}: {words}", mutant.after, seed.name);
                            let origin = Some((change, seed.text.clone()));
                            self.find(Fault::new("silent", said), &mutant.text, how, origin);
                            self.count("text.silent.without_a_reason");
                        }
                        return;
                    }
                },
            },
        };
        self.count(&format!("text.{class}"));
    }

    /// A synchronising statement of a program that somebody wrote: a change of it that is silent needs a reason.
    fn written(&mut self, seed: &Seed, number: usize) {
        let Ok(program) = tilewright::tile::parse(&seed.text) else { return };
        let base = program.to_string();
        let how = How {
            arch: seed.arch.clone(),
            for_sizes: true,
            solutions: None,
            order: 0,
            candidate: None,
            seeds: vec![0, 1, 2],
            inputs: 0,
            assemble: false,
        };
        let Some(changed) = changes(&base).into_iter().nth(number) else { return };
        let Unchanged { right, engines } = self.unchanged(&base, &how);
        if !right {
            return;
        }
        if number == 0 {
            self.count("written");
        }
        let mut judgement = self.judged(&changed.text, &how);
        // Nothing else orders a print of shared memory.
        let faults = judgement.faults.len();
        judgement.faults.retain(|fault| fault.kind != "print" || !prints_shared(&changed.text));
        let printed = judgement.faults.len() < faults;
        self.count("changed");
        self.count(&format!("changed.{}", changed.change.name()));
        let what = format!("{} `{}` of line {}", changed.change.name(), changed.statement, changed.line + 1);
        for fault in &judgement.faults {
            self.find(fault.clone(), &changed.text, &how, Some((what.clone(), base.clone())));
        }
        match judgement.class {
            Class::Right if printed => self.count("written.found.by_a_print"),
            Class::Right => match explain(&base, &changed, engines, &judgement.barriers)
                .or_else(|| self.elsewhere(seed, &base, &changed, &how, &judgement.candidates))
            {
                Some(reason) => self.count(&format!("silent.{reason}")),
                None => {
                    let fault = Fault::new("missed", format!("{what}: nobody says anything"));
                    self.find(fault, &changed.text, &how, Some((what, base.clone())));
                }
            },
            Class::Wrong => {
                let fault = Fault::new("unreported", format!("{what}: {}", judgement.message));
                self.find(fault, &changed.text, &how, Some((what, base.clone())));
            }
            _ => self.count("written.found"),
        }
    }

    /// Reason that another program gives in which the same change is found: first those that are few, then candidates and layouts of each.
    fn elsewhere(
        &mut self,
        seed: &Seed,
        base: &str,
        changed: &Changed,
        how: &How,
        possible: &[usize],
    ) -> Option<&'static str> {
        let others = [
            (through_registers(base, false), "copies_through_registers_need_it"),
            (through_registers(base, true), "copies_through_registers_need_it"),
            (one_block(base), "another_grid_needs_it"),
        ];
        let mut others: Vec<_> =
            others.into_iter().filter_map(|(base, reason)| Some((base?, how.clone(), reason))).collect();
        for other in self.corpus.others(seed) {
            let Ok(program) = tilewright::tile::parse(&other.text) else { continue };
            let how = How { arch: other.arch, ..how.clone() };
            others.push((program.to_string(), how, "another_size_needs_it"));
        }
        for (base, how, reason) in &others {
            if self.found_in(base, changed, how, 0) {
                return Some(reason);
            }
        }
        let layouts = |worker: &mut Self, base: &str, how: &How| {
            pinned(base).iter().any(|base| worker.found_in(base, changed, how, 0))
        };
        if self.another_layout(base, &changed.text, how, possible) || layouts(self, base, how) {
            return Some("another_layout_needs_it");
        }
        for (base, how, reason) in &others {
            let candidates = if *reason == "another_size_needs_it" { CANDIDATES } else { 0 };
            let found = candidates > 0 && self.found_in(base, changed, how, candidates);
            if found || layouts(self, base, how) {
                return Some(reason);
            }
        }
        None
    }

    /// Judgement of an unchanged program; one that was judged before is not judged again.
    fn unchanged(&mut self, base: &str, how: &How) -> Unchanged {
        let key = (base.to_string(), how.arch.clone(), how.candidate);
        if let Some(known) = self.known.judged.get(&key) {
            return *known;
        }
        let judgement = self.judged(base, how);
        let known = Unchanged { right: judgement.class == Class::Right, engines: judgement.engines };
        self.known.judged.insert(key, known);
        known
    }

    /// True if the same change of another right program is found wrong, by itself or with one of the first `candidates`.
    fn found_in(&mut self, base: &str, changed: &Changed, how: &How, candidates: usize) -> bool {
        let Some(same) = changes(base).into_iter().find(|c| c.same_as(changed)) else { return false };
        if !self.unchanged(base, how).right {
            return false;
        }
        let judgement = self.judged(&same.text, how);
        let possible = &judgement.candidates[..judgement.candidates.len().min(candidates)];
        match judgement.class {
            Class::Rejected | Class::Reported => true,
            Class::Right => self.another_layout(base, &same.text, how, possible),
            Class::Wrong => {
                let what = format!("{} `{}`: {}", same.change.name(), same.statement, judgement.message);
                self.find(Fault::new("unreported", what), &same.text, how, None);
                false
            }
            Class::Refused | Class::Large => false,
        }
    }

    /// True if a changed program is found wrong with a candidate with which it is right unchanged.
    fn another_layout(&mut self, base: &str, changed: &str, how: &How, possible: &[usize]) -> bool {
        possible.iter().take(CANDIDATES).any(|number| {
            let how = How { candidate: Some(*number), ..how.clone() };
            let judgement = self.judged(changed, &how);
            if judgement.class == Class::Wrong {
                let fault = Fault::new("unreported", judgement.message.clone());
                self.find(fault, changed, &how, None);
            }
            let found = matches!(judgement.class, Class::Rejected | Class::Reported);
            found && self.unchanged(base, &how).right
        })
    }
}

/// The number of changes of the synchronising statements of a program.
pub fn changes_of(seed: &Seed) -> usize {
    tilewright::tile::parse(&seed.text).map_or(0, |program| changes(&program.to_string()).len())
}

fn name(class: Class) -> &'static str {
    match class {
        Class::Refused => "refused",
        Class::Large => "large",
        Class::Rejected => "rejected",
        Class::Reported => "reported",
        Class::Wrong => "wrong",
        Class::Right => "right",
    }
}

/// True for a text that prints shared tensors.
fn prints_shared(text: &str) -> bool {
    fn any(program: &Program, body: &[Stmt]) -> bool {
        body.iter().any(|stmt| match &stmt.kind {
            StmtKind::Print { .. } => {
                stmt.kind.reads().iter().any(|tensor| program.tensor(*tensor).memory() == Memory::Shared)
            }
            kind => any(program, kind.body()),
        })
    }
    tilewright::tile::parse(text).is_ok_and(|program| any(&program, &program.body))
}

/// True for a text in which blocks take part in an order that the language leaves open: of atomic operations with a value, or of tiles that are dealt
/// out.
fn depends_on_order(text: &str) -> bool {
    ["atomic_", "ticket(", "dynamic =", ", dynamic)"].iter().any(|word| text.contains(word))
}
