//! `tilewright-campaign`: random, mutated and broken tile programs through every execution, with an oracle for each.
//!
//! - A *generated* program is right by construction: the simulator must agree with the interpreter with every seed, candidate and
//!   budget, and report nothing. Of its synchronising statements it is known which are needed ([`generate`]).
//! - A program with a needed statement deleted, moved over what needs it, or made weaker must be found wrong; with a redundant one
//!   changed, right ([`syncs`]).
//! - A *mutated* text ([`mutate`]) may be anything: it must be refused with a place, or found wrong, or give the interpreter's
//!   result on the simulator.
//! - No text makes anything panic, crash or take longer than 20 s; every PTX assembles without a word ([`judge`]).
//!
//! Jobs are numbered, and everything about one follows from the campaign's seed and its number. Workers are processes ([`pool`]).
//! Findings are written as JSON lines, and shrunk ([`shrink`]).

mod access;
mod corpus;
mod cost;
mod dice;
mod explain;
mod generate;
mod gpu;
mod judge;
mod mutate;
mod outline;
mod pool;
mod shrink;
mod syncs;
mod text;
mod variants;
mod work;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use crate::corpus::Corpus;
use crate::judge::{Class, Judgement};
use crate::pool::{Seat, Tally};
use crate::work::{Finding, Known, Request, TEXT_MUTANTS, Worker, changes_of, watch_panics};

/// Random, mutated and broken tile programs through every execution of Tilewright, with an oracle for each.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Runs a campaign.
    Run(RunArgs),
    /// Mutants by text of programs that are right: how many are refused, warned of, found, equal, or silent and different.
    Text(TextArgs),
    /// Does one job again and prints what it finds.
    Replay {
        /// `SEED:JOB`, or `text SEED:JOB`, as a finding names it.
        replay: String,
        #[command(flatten)]
        corpus: CorpusArgs,
    },
    /// Prints the program that a job generates.
    Print {
        /// `SEED:JOB`.
        replay: String,
    },
    /// Runs generated programs on a GPU and compares it with the interpreter and the simulator.
    Gpu(GpuArgs),
    /// Does the requests that it reads, one JSON line each.
    #[command(hide = true)]
    Worker(CorpusArgs),
}

#[derive(Args, Clone)]
struct CorpusArgs {
    /// The checkout, whose examples and tests are seeds.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))]
    root: PathBuf,
    /// Another folder of `*.tile` files; may be given several times.
    #[arg(long)]
    corpus: Vec<String>,
}

#[derive(Args)]
struct RunArgs {
    /// Seed that decides everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds for which new jobs begin.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Jobs to do, however long it takes, instead of a time.
    #[arg(long)]
    jobs: Option<u64>,
    /// Worker processes; one for each core where nothing is said.
    #[arg(long)]
    threads: Option<usize>,
    /// Generated programs for each one that is assembled, for every architecture.
    #[arg(long, default_value_t = 40)]
    assemble_one_in: usize,
    /// Also changes every synchronising statement of every program of the checkout, first.
    #[arg(long)]
    written: bool,
    /// File that findings go to, one JSON line each.
    #[arg(long, default_value = "target/campaign.jsonl")]
    findings: PathBuf,
    /// Seconds for making each kind of finding smaller.
    #[arg(long, default_value_t = 20)]
    shrink: u64,
    #[command(flatten)]
    corpus: CorpusArgs,
}

#[derive(Args)]
struct TextArgs {
    /// Seed that decides everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mutants, ten of each program that is picked.
    #[arg(long, default_value_t = 5000)]
    count: u64,
    /// Worker processes; one for each core where nothing is said.
    #[arg(long)]
    threads: Option<usize>,
    /// File that findings go to, one JSON line each.
    #[arg(long, default_value = "target/campaign-text.jsonl")]
    findings: PathBuf,
    #[command(flatten)]
    corpus: CorpusArgs,
}

#[derive(Args)]
struct GpuArgs {
    /// Seed that decides everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first program.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of programs.
    #[arg(long, default_value_t = 2000)]
    count: u64,
    /// The device.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Compares nothing: for compute-sanitizer.
    #[arg(long)]
    run_only: bool,
    /// Processes that share the device.
    #[arg(long, default_value_t = 4)]
    processes: u64,
    /// Runs in this process, which one program may take down.
    #[arg(long)]
    here: bool,
    /// One of the processes.
    #[arg(long, hide = true)]
    lane: bool,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Action::Run(args) => campaign(&args),
        Action::Text(args) => text(&args),
        Action::Replay { replay, corpus } => again(&replay, &corpus),
        Action::Print { replay } => print(&replay),
        Action::Gpu(args) => on_gpu(&args),
        Action::Worker(args) => work(&args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Reads requests and does them, until there are no more.
fn work(args: &CorpusArgs) -> Result<(), String> {
    watch_panics();
    let corpus = Corpus::read(&args.root, &args.corpus);
    let mut known = Known::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let request: Request = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        Worker::work(&corpus, &mut known, &request, &mut |message| {
            if let Ok(text) = serde_json::to_string(message) {
                let mut out = std::io::stdout().lock();
                // Nobody listens any more: the next request does not come either.
                let _ = out.write_all((text + "\n").as_bytes()).and_then(|()| out.flush());
            }
        });
    }
    Ok(())
}

fn worker_arguments(args: &CorpusArgs) -> Vec<String> {
    let mut all = vec!["worker".to_string(), "--root".to_string(), args.root.display().to_string()];
    for folder in &args.corpus {
        all.extend(["--corpus".to_string(), folder.clone()]);
    }
    all
}

fn campaign(args: &RunArgs) -> Result<bool, String> {
    let started = Instant::now();
    let seats = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let arguments = worker_arguments(&args.corpus);
    let mut all = Tally::default();
    if args.written {
        let programs = Corpus::read(&args.corpus.root, &args.corpus.corpus).right();
        let each = |number: usize| {
            (0..changes_of(&programs[number])).map(move |change| Request::Written { number, change })
        };
        let requests: Vec<Request> = (0..programs.len()).flat_map(each).collect();
        let next = |n| requests.get(n as usize).cloned();
        all = pool::run(seats, &arguments, None, &next, &said).map_err(|e| e.to_string())?;
        let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
        for (request, took) in requests.iter().zip(all.seconds.values()) {
            if let Request::Written { number, .. } = request {
                *seconds.entry(&programs[*number].name).or_default() += took;
            }
        }
        let mut longest: Vec<_> = seconds.into_iter().collect();
        longest.sort_by(|a, b| b.1.total_cmp(&a.1));
        println!("{} changes of written programs; those that took longest:", requests.len());
        for (name, took) in longest.iter().take(5) {
            println!("{took:>8.0} s  {name}");
        }
    }
    let until = args.jobs.is_none().then(|| Instant::now() + Duration::from_secs(args.seconds));
    let next = |number| {
        let go = args.jobs.is_none_or(|jobs| number < jobs);
        go.then_some(Request::Job { seed: args.seed, number, assemble_one_in: args.assemble_one_in.max(1) })
    };
    let random = pool::run(seats, &arguments, until, &next, &said).map_err(|e| e.to_string())?;
    for (name, count) in random.counts {
        *all.counts.entry(name).or_insert(0) += count;
    }
    all.findings.extend(random.findings);
    shrink_all(&mut all.findings, &arguments, args.shrink).map_err(|e| e.to_string())?;
    write_findings(&all.findings, &args.findings)?;
    report(&all, args.seed, &args.findings, started.elapsed().as_secs_f64());
    Ok(all.findings.is_empty())
}

/// Mutants by text: what became of them.
fn text(args: &TextArgs) -> Result<bool, String> {
    let started = Instant::now();
    let seats = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let jobs = args.count.div_ceil(TEXT_MUTANTS);
    let next = |number| (number < jobs).then_some(Request::Text { seed: args.seed, number });
    let all =
        pool::run(seats, &worker_arguments(&args.corpus), None, &next, &said).map_err(|e| e.to_string())?;
    write_findings(&all.findings, &args.findings)?;
    let seconds = started.elapsed().as_secs_f64();
    report(&all, args.seed, &args.findings, seconds);
    Ok(all.findings.is_empty())
}

/// Writes findings as JSON lines.
fn write_findings(findings: &[Finding], path: &std::path::Path) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    }
    let lines: Vec<String> = findings.iter().filter_map(|f| serde_json::to_string(f).ok()).collect();
    std::fs::write(path, lines.join("\n") + "\n").map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// A finding's kind and what was said, without names and numbers: those with the same are one mistake, probably.
fn signature(finding: &Finding) -> String {
    let mut text = String::new();
    let mut quoted = false;
    for c in finding.fault.message.lines().next().unwrap_or("").chars() {
        match c {
            '`' => {
                quoted = !quoted;
                text.push('`');
            }
            _ if quoted || c.is_ascii_digit() => {}
            _ => text.push(c),
        }
    }
    let end = text.char_indices().nth(160).map_or(text.len(), |(i, _)| i);
    format!("{}: {}", finding.fault.kind, &text[..end])
}

fn said(finding: &Finding) {
    println!(
        "found {} {}: {}",
        finding.replay,
        finding.fault.kind,
        finding.fault.message.lines().next().unwrap_or("")
    );
}

/// Makes the first finding of each signature smaller.
fn shrink_all(findings: &mut [Finding], arguments: &[String], seconds: u64) -> std::io::Result<()> {
    let mut seen = BTreeMap::new();
    let mut seat = Seat::new(arguments);
    for finding in findings.iter_mut() {
        let known = seen.entry(signature(finding)).or_insert(0);
        *known += 1;
        if *known > 1 || seconds == 0 {
            continue;
        }
        let wanted = finding.clone();
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut failed = None;
        let mut judge = |text: &str| {
            let request = Request::Judge { text: text.to_string(), how: wanted.how.clone() };
            match seat.ask(&request, 5.0) {
                Ok(done) => done.judgement,
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        };
        // What is right because it lacks nothing stays as it is: only a base that is right shows that a change is not seen.
        let fixed = finding.change.is_some();
        let keep = |line: &str| fixed && line.contains("needed for");
        let mut shows = |text: &str| judge(text).is_some_and(|j| shows(&wanted, &j));
        let alone =
            !fixed || ["panic", "crash", "internal", "assembler"].contains(&wanted.fault.kind.as_str());
        if alone && shows(&wanted.text) {
            finding.shrunk = Some(shrink::shrink(&wanted.text, &keep, &mut shows, until));
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// True if a judgement shows the same fault as a finding.
fn shows(wanted: &Finding, judgement: &Judgement) -> bool {
    let kind = wanted.fault.kind.as_str();
    let alike = |message: &str| {
        let again = Finding { fault: judge::Fault::new(kind, message), ..wanted.clone() };
        signature(&again) == signature(wanted)
    };
    match kind {
        "disagreement" | "unreported" => judgement.class == Class::Wrong,
        "deadlock" => judgement.class == Class::Reported && judgement.message.contains("deadlock"),
        "false_alarm" => judgement.class == Class::Reported && alike(&judgement.message),
        "refused" => matches!(judgement.class, Class::Refused | Class::Rejected) && alike(&judgement.message),
        _ => judgement
            .faults
            .iter()
            .any(|f| f.kind == kind && (kind == "hang" || kind == "crash" || alike(&f.message))),
    }
}

fn report(all: &Tally, seed: u64, path: &std::path::Path, seconds: f64) {
    println!("\nseed {seed}, {seconds:.0} s");
    for (name, count) in &all.counts {
        println!("{count:>10}  {name}");
    }
    let mut kinds: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for finding in &all.findings {
        kinds.entry(signature(finding)).or_default().push(finding);
    }
    for (signature, of) in &kinds {
        println!("\n{} × {signature}", of.len());
        if let Some(first) = of.iter().find(|f| f.shrunk.is_some()).or(of.first()) {
            println!(
                "   replay {} ({}), {}",
                first.replay,
                first.how.arch,
                first.fault.message.lines().next().unwrap_or("")
            );
            if let Some(text) = &first.shrunk {
                println!("{}", text.lines().map(|l| format!("   | {l}\n")).collect::<String>());
            }
        }
    }
    println!("{} findings, {} different; all in {}", all.findings.len(), kinds.len(), path.display());
}

fn parsed(replay: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("`{replay}` is not SEED:JOB, two numbers");
    let (seed, job) = replay.split_once(':').ok_or_else(wrong)?;
    Ok((seed.parse().map_err(|_| wrong())?, job.parse().map_err(|_| wrong())?))
}

fn again(replay: &str, args: &CorpusArgs) -> Result<bool, String> {
    let mut seat = Seat::new(&worker_arguments(args));
    let request = match replay.strip_prefix("text ") {
        Some(text) => parsed(text).map(|(seed, number)| Request::Text { seed, number })?,
        None => parsed(replay).map(|(seed, number)| Request::Job { seed, number, assemble_one_in: 1 })?,
    };
    let done = seat.ask(&request, 60.0).map_err(|e| e.to_string())?;
    for finding in &done.findings {
        println!("{}: {}\n{:?}", finding.fault.kind, finding.fault.message, finding.how);
        if let Some((what, base)) = &finding.change {
            println!("{what}\n{base}");
        } else {
            println!("{}", finding.text);
        }
    }
    println!("{} findings", done.findings.len());
    Ok(done.findings.is_empty())
}

fn print(replay: &str) -> Result<bool, String> {
    let (seed, number) = parsed(replay)?;
    let case = generate::generate(&mut dice::Dice::of(seed, number));
    println!("// {} {}\n{}", case.family, case.arch, case.text);
    Ok(true)
}

fn on_gpu(args: &GpuArgs) -> Result<bool, String> {
    let plan = gpu::Plan {
        seed: args.seed,
        first: args.first,
        count: args.count,
        device: args.device.clone(),
        run_only: args.run_only,
        processes: args.processes.max(1),
    };
    if args.lane || args.here {
        let step = if args.lane { plan.processes } else { 1 };
        return gpu::here(&plan, step, args.lane);
    }
    gpu::gpu(&plan).map_err(|e| e.to_string())
}
