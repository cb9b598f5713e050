//! Generated programs on a GPU, compared with the interpreter and the simulator.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tilewright::check::{CheckOptions, Difference, Outcome, check_against, findings_of, interpreted};
use tilewright::compiler::{Options, compile};
use tilewright::machine::Arch;
use tilewright::runtime::{Device, DeviceChoice, SimDevice, open};
use tilewright::sim::Config;
use tilewright::tile::parse;

use crate::dice::Dice;
use crate::generate::{Case, generate};

/// Programs of a campaign to run, and the device that runs them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The campaign's seed.
    pub seed: u64,
    /// The first program.
    pub first: u64,
    /// Number of programs.
    pub count: u64,
    /// The device: `cuda`, `cuda:1`, or `sim` for a trial.
    pub device: String,
    /// Runs the programs on the device alone, and compares nothing.
    pub run_only: bool,
    /// Processes that share the device.
    pub processes: u64,
}

/// Outcome of one program.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    /// Its number: it is that of job `4 · number + 1` of a campaign.
    number: u64,
    /// `right`, `refused`, `ran`, or what is wrong.
    state: String,
    /// The error or the first difference; empty if the outcome is right.
    message: String,
    /// The largest differences of device and simulator from the interpreter, as parts of their bounds.
    errors: [f64; 2],
    /// True if device and simulator left the same bits.
    equal: bool,
    /// True if the device cannot be used any more.
    broken: bool,
}

/// The job of a campaign whose program is that of a number.
pub fn job(number: u64) -> u64 {
    4 * number + 1
}

/// Runs a plan in processes of their own and prints a summary.
///
/// # Errors
///
/// If no process can be started.
pub fn gpu(plan: &Plan) -> std::io::Result<bool> {
    let lines = Mutex::new(Vec::<Line>::new());
    let started = Instant::now();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..plan.processes)
            .map(|lane| {
                let lines = &lines;
                scope.spawn(move || drive(plan, lane, lines))
            })
            .collect();
        all.into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked"))))
            .collect::<std::io::Result<Vec<()>>>()
    })?;
    let mut lines = lines.into_inner().unwrap_or_default();
    lines.sort_by_key(|l| l.number);
    Ok(summary(plan, &lines, started.elapsed().as_secs_f64()))
}

/// Runs a plan here, one program after the other.
///
/// # Errors
///
/// If the device cannot be opened.
pub fn here(plan: &Plan, step: u64, print_lines: bool) -> Result<bool, String> {
    let choice: DeviceChoice = plan.device.parse().map_err(|e| format!("{e}"))?;
    let device = open(choice).map_err(|e| e.to_string())?;
    let mut lines = Vec::new();
    let started = Instant::now();
    let mut number = plan.first;
    while number < plan.first + plan.count {
        let line = one(plan, number, device.as_ref());
        if print_lines {
            println!("{}", serde_json::to_string(&line).map_err(|e| e.to_string())?);
        }
        let broken = line.broken;
        lines.push(line);
        if broken {
            break;
        }
        number += step;
    }
    Ok(print_lines || summary(plan, &lines, started.elapsed().as_secs_f64()))
}

/// One process after the other, each as far as it comes.
fn drive(plan: &Plan, lane: u64, lines: &Mutex<Vec<Line>>) -> std::io::Result<()> {
    let mut next = plan.first + lane;
    let end = plan.first + plan.count;
    while next < end {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["gpu", "--lane", "--seed", &plan.seed.to_string(), "--first", &next.to_string()])
            .args(["--count", &(end - next).to_string(), "--device", &plan.device])
            .args(["--processes", &plan.processes.to_string()])
            .args(plan.run_only.then_some("--run-only"))
            .env("RAYON_NUM_THREADS", "1")
            .stdout(Stdio::piped())
            .spawn()?;
        let Some(stdout) = child.stdout.take() else { return Err(std::io::Error::other("no pipe")) };
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str::<Line>(&line)
                    && sender.send(line).is_err()
                {
                    return;
                }
            }
        });
        let lost = loop {
            match receiver.recv_timeout(Duration::from_secs(120)) {
                Ok(line) => {
                    next = line.number + plan.processes;
                    if let Ok(mut lines) = lines.lock() {
                        lines.push(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    child.kill()?;
                    break Some("hang");
                }
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let status = child.wait()?;
        if next < end && (lost.is_some() || !status.success()) {
            let state = lost.unwrap_or("crash").to_string();
            let message = format!("the process ended: {status}");
            if let Ok(mut lines) = lines.lock() {
                lines.push(Line {
                    number: next,
                    state,
                    message,
                    errors: [0.0; 2],
                    equal: false,
                    broken: true,
                });
            }
            next += plan.processes;
        }
    }
    Ok(())
}

fn summary(plan: &Plan, lines: &[Line], seconds: f64) -> bool {
    let count = |state: &str| lines.iter().filter(|l| l.state == state).count();
    let bad: Vec<&Line> =
        lines.iter().filter(|l| !["right", "refused", "ran"].contains(&l.state.as_str())).collect();
    let worst = |i: usize| lines.iter().map(|l| l.errors[i]).fold(0.0f64, f64::max);
    let report = json!({
        "seed": plan.seed,
        "device": plan.device,
        "programs": lines.len(),
        "right": count("right"),
        "ran": count("ran"),
        "refused": count("refused"),
        "device_and_simulator_equal_in_all_bits": lines.iter().filter(|l| l.equal).count(),
        "largest_error_device": worst(0),
        "largest_error_simulator": worst(1),
        "seconds": seconds,
        "bad": bad.len(),
        "findings": bad.iter().take(50).map(|l| json!({
            "number": l.number, "replay": format!("{}:{}", plan.seed, job(l.number)), "state": l.state, "message": l.message,
        })).collect::<Vec<_>>(),
    });
    println!("{report:#}");
    bad.is_empty()
}

/// The first wrong output or the first problem of an outcome, as a message; `None` if it is right.
fn wrong(outcome: &Outcome) -> Option<String> {
    let first = outcome.comparisons.iter().find(|c| c.wrong > 0);
    let text = first.map(|c| format!("output `{}`: {} wrong elements; {c}", c.name, c.wrong));
    text.or_else(|| outcome.findings.first().map(ToString::to_string))
}

/// The largest error of an output as a part of its bound.
fn error_of(outcome: &Outcome) -> f64 {
    let worst = outcome.comparisons.iter().filter_map(|c| c.worst.as_ref());
    worst.map(Difference::ratio).filter(|e| e.is_finite()).fold(0.0, f64::max)
}

/// True if two runs left the same bits; NaNs of any kind are equal.
fn equal(a: &Outcome, b: &Outcome) -> bool {
    a.results.iter().zip(&b.results).all(|pair| match pair {
        (Some(x), Some(y)) => {
            let same = |at: usize| x.same_bits(y, at) || x.same(y, at) && x.get(at).is_some_and(f64::is_nan);
            x.len() == y.len() && (0..x.len()).all(same)
        }
        (None, None) => true,
        _ => false,
    })
}

fn one(plan: &Plan, number: u64, device: &dyn Device) -> Line {
    let mut line = Line {
        number,
        state: "right".to_string(),
        message: String::new(),
        errors: [0.0; 2],
        equal: false,
        broken: false,
    };
    match attempt(plan, number, device, &mut line) {
        Ok(()) => {}
        Err((state, message)) => {
            line.state = state.to_string();
            line.message = message;
        }
    }
    line
}

fn attempt(
    plan: &Plan,
    number: u64,
    device: &dyn Device,
    line: &mut Line,
) -> Result<(), (&'static str, String)> {
    let Case { text, arch, .. } = generate(&mut Dice::of(plan.seed, job(number)));
    let program = parse(&text).map_err(|e| ("unreadable", e.to_string()))?;
    let arch: Arch = arch.parse().map_err(|_| ("unreadable", format!("architecture {arch}")))?;
    let kernel = compile(&program, &Options::new(arch).for_sizes(&program, &[]))
        .map_err(|e| ("refused", e.to_string()))?;
    let inputs = CheckOptions { seed: number, ..CheckOptions::default() };
    if plan.run_only {
        findings_of(&kernel, device, &inputs).map_err(|e| {
            line.broken = true;
            ("device", e.to_string())
        })?;
        line.state = "ran".to_string();
        return Ok(());
    }
    let expected = interpreted(&kernel, &inputs).map_err(|e| ("rejected", e.to_string()))?;
    let simulator = SimDevice::new(Config::default());
    let simulated =
        check_against(&kernel, &simulator, &inputs, &expected).map_err(|e| ("simulator", e.to_string()))?;
    line.errors[1] = error_of(&simulated);
    if let Some(what) = wrong(&simulated) {
        return Err(("simulator", what));
    }
    let run = check_against(&kernel, device, &inputs, &expected).map_err(|e| {
        line.broken = true;
        ("device", e.to_string())
    })?;
    line.errors[0] = error_of(&run);
    line.equal = equal(&run, &simulated);
    match wrong(&run) {
        Some(what) => Err(("device_differs", what)),
        None => Ok(()),
    }
}
