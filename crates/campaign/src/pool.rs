//! Workers in processes of their own, each with a watchdog: whatever a text does to one, the campaign goes on.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::judge::{Fault, How, Judgement};
use crate::work::{Finding, Message, Request};

/// Seconds of processor time for one text.
const PATIENCE: f64 = 20.0;
/// Seconds of any time for one text: a machine may be busy.
const LONGEST: f64 = 300.0;

/// A worker.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: Receiver<Message>,
}

/// Result of a request.
pub struct Done {
    /// Counters that rose, by name.
    pub counts: BTreeMap<String, u64>,
    /// Mistakes of Tilewright that came up.
    pub findings: Vec<Finding>,
    /// The judgement, of a request for one.
    pub judgement: Option<Judgement>,
}

/// A place for one worker, which is started when it is needed.
pub struct Seat {
    arguments: Vec<String>,
    worker: Option<Worker>,
}

impl Seat {
    /// A seat whose workers are given these arguments.
    pub fn new(arguments: &[String]) -> Seat {
        Seat { arguments: arguments.to_vec(), worker: None }
    }

    fn start(&self) -> std::io::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(&self.arguments)
            .env("RAYON_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let taken = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(stdout)) = taken else {
            return Err(std::io::Error::other("a worker without pipes"));
        };
        let (sender, output) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str(&line)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        Ok(Worker { child, input, output })
    }

    /// Has a request done; a worker that dies or does not come back is a finding.
    ///
    /// # Errors
    ///
    /// If no worker can be started.
    pub fn ask(&mut self, request: &Request, patience: f64) -> std::io::Result<Done> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.start()?,
        };
        let line = serde_json::to_string(request).map_err(std::io::Error::other)? + "\n";
        if worker.input.write_all(line.as_bytes()).is_err() {
            worker = self.start()?;
            worker.input.write_all(line.as_bytes())?;
        }
        let mut now: Option<(String, How)> = None;
        let (mut began, mut spent) = (Instant::now(), processor_seconds(worker.child.id()));
        let what = loop {
            match worker.output.recv_timeout(Duration::from_millis(500)) {
                Ok(Message::Done { counts, findings, judgement }) => {
                    self.worker = Some(worker);
                    return Ok(Done { counts, findings, judgement });
                }
                Ok(Message::Now { text, how }) => {
                    now = Some((text, how));
                    (began, spent) = (Instant::now(), processor_seconds(worker.child.id()));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let used = processor_seconds(worker.child.id()) - spent;
                    if used > patience || began.elapsed().as_secs_f64() > LONGEST {
                        worker.child.kill()?;
                        worker.child.wait()?;
                        let message = format!("more than {patience} s of processor time for one text");
                        break Fault::new("hang", message);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = worker.child.wait()?;
                    break Fault::new("crash", format!("the worker ended: {status}"));
                }
            }
        };
        let Some((text, how)) = now else { return Err(std::io::Error::other(what.message)) };
        let judgement = matches!(request, Request::Judge { .. }).then(|| Judgement {
            class: crate::judge::Class::Refused,
            message: what.message.clone(),
            simulator_finds: false,
            faults: vec![what.clone()],
            candidates: Vec::new(),
            assembled: false,
            compared: [0, 0],
            at_once: Vec::new(),
            engines: true,
            barriers: Vec::new(),
        });
        let counts = BTreeMap::from([(format!("found.{}", what.kind), 1)]);
        let replay = match request {
            Request::Job { seed, number, .. } => format!("{seed}:{number}"),
            Request::Text { seed, number } => format!("text {seed}:{number}"),
            Request::Written { number, change } => format!("written {number}, change {change}"),
            Request::Judge { .. } => String::new(),
        };
        let finding = Finding { fault: what, replay, text, how, change: None, shrunk: None };
        Ok(Done { counts, findings: vec![finding], judgement })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            // It may have ended by itself; there is nobody to tell.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// Processor time of a process so far, where the system says it; else the time since the process began waiting counts.
fn processor_seconds(id: u32) -> f64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return 0.0 };
    let after = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Sums of what was counted, and all that was found.
#[derive(Default)]
pub struct Tally {
    /// Counters.
    pub counts: BTreeMap<String, u64>,
    /// Findings.
    pub findings: Vec<Finding>,
    /// Seconds of each request, by its number.
    pub seconds: BTreeMap<u64, f64>,
}

impl Tally {
    fn add(&mut self, done: Done) {
        for (name, count) in done.counts {
            *self.counts.entry(name).or_insert(0) += count;
        }
        self.findings.extend(done.findings);
    }
}

/// Has requests done by `seats` workers until there are none or the time is up; `next` makes the request of a number.
///
/// # Errors
///
/// If no worker can be started.
pub fn run(
    seats: usize,
    arguments: &[String],
    until: Option<Instant>,
    next: &(dyn Fn(u64) -> Option<Request> + Sync),
    heard: &(dyn Fn(&Finding) + Sync),
) -> std::io::Result<Tally> {
    let (tally, number) = (Mutex::new(Tally::default()), AtomicU64::new(0));
    let one = || -> std::io::Result<()> {
        let mut seat = Seat::new(arguments);
        while until.is_none_or(|until| Instant::now() < until) {
            let (number, began) = (number.fetch_add(1, Ordering::Relaxed), Instant::now());
            let Some(request) = next(number) else { return Ok(()) };
            let done = seat.ask(&request, PATIENCE)?;
            done.findings.iter().for_each(heard);
            if let Ok(mut tally) = tally.lock() {
                tally.seconds.insert(number, began.elapsed().as_secs_f64());
                tally.add(done);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..seats.max(1)).map(|_| scope.spawn(one)).collect();
        all.into_iter()
            .map(|t| {
                t.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread of the campaign panicked")))
            })
            .collect::<std::io::Result<Vec<()>>>()
    })?;
    let mut tally = tally.into_inner().unwrap_or_default();
    tally.findings.sort_by(|a, b| a.replay.cmp(&b.replay));
    Ok(tally)
}
