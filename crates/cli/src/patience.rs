//! Runs that take a while: said before they begin, with sizes that take less, and how far they are meanwhile.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use annotate_snippets::Level;
use indicatif::{ProgressBar, ProgressStyle};
use tilewright::check::{PER_SECOND, WORK_LIMIT, duration, smaller};
use tilewright::compiler::Kernel;
use tilewright::machine::Progress;
use tilewright::runtime::Sizes;
use tilewright::tile::interpret::work;

use crate::messages::{note, title_with};

/// Seconds from which on a run is announced.
const LONG: u64 = 10;
/// Seconds that a run with the proposed sizes takes at most.
const SHORT: u64 = 3;

/// The `-p` options of sizes with which a kernel takes some seconds, if there are such sizes.
pub fn proposal(kernels: &[&Kernel], sizes: &Sizes) -> Option<String> {
    let threads = rayon::current_num_threads().max(1) as u64;
    let found = smaller(kernels, sizes, SHORT * PER_SECOND * threads)?;
    let changed = found.iter().filter(|(name, value)| sizes.get(*name) != Some(value));
    Some(changed.map(|(name, value)| format!("-p {name}={value}")).collect::<Vec<_>>().join(" "))
}

/// Says on standard error that a run on the simulator takes a while, if it does, and how it would not. One that is refused says so itself.
pub fn announce(kernels: &[&Kernel], sizes: &Sizes, forced: bool) {
    let of = |kernel: &&Kernel| {
        let given =
            sizes.iter().filter(|(name, _)| kernel.program().sizes().any(|(_, size, _)| size.name == **name));
        work(&kernel.verified, &given.map(|(name, value)| (name.clone(), *value)).collect()).ok()
    };
    let all: Vec<_> = kernels.iter().filter_map(of).collect();
    let operations = all.iter().fold(0u64, |sum, work| sum.saturating_add(work.total()));
    let threads = rayon::current_num_threads().max(1) as u64;
    let refused = operations > WORK_LIMIT && !forced;
    if refused || operations / PER_SECOND / threads < LONG {
        return;
    }
    let blocks = all.iter().fold(0u64, |sum, work| sum.saturating_add(work.blocks));
    let shown: Vec<String> = sizes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let text = format!(
        "{blocks} blocks at {} take about {} on the simulator with {threads} threads",
        shown.join(" "),
        duration(operations)
    );
    let help = match proposal(kernels, sizes) {
        Some(options) => format!("for a run of some seconds: `{options}`"),
        None => "choose smaller sizes with `-p`, or a GPU".to_string(),
    };
    note(title_with(Level::NOTE, text, help));
}

/// Shows how far a run is, from its second second on: a bar on a terminal, else a line now and then.
pub struct Watcher {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A run under way, in the order in which its parts follow each other.
struct Stage {
    what: &'static str,
    progress: Progress,
}

impl Watcher {
    /// Watches a run: by the interpreter, then on the device.
    pub fn new(interpreter: Progress, device: Progress) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let stages = [
            Stage { what: "interpreted", progress: interpreter },
            Stage { what: "simulated", progress: device },
        ];
        let watch = move || match std::io::stderr().is_terminal() {
            true => on_terminal(&stages, &ended),
            false => in_lines(&stages, &ended),
        };
        // Without a thread the run is as it was, only silent.
        let thread = std::thread::Builder::new().name("progress".to_string()).spawn(watch).ok();
        Watcher { over, thread }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It never panics, and nothing depends on it.
            let _ = thread.join();
        }
    }
}

/// The stage under way: the last that has begun.
fn current(stages: &[Stage]) -> Option<(&Stage, u64, u64)> {
    let begun = |stage: &&Stage| stage.progress.done().1 > 0;
    let stage = stages.iter().rev().find(begun)?;
    let (done, all) = stage.progress.done();
    Some((stage, done, all))
}

/// Waits a moment; false if the run is over.
fn goes_on(over: &AtomicBool) -> bool {
    std::thread::park_timeout(Duration::from_millis(100));
    !over.load(Ordering::Relaxed)
}

fn on_terminal(stages: &[Stage], over: &AtomicBool) {
    let started = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    while goes_on(over) {
        if started.elapsed() < Duration::from_secs(1) {
            continue;
        }
        let Some((stage, done, all)) = current(stages) else { continue };
        let bar = bar.get_or_insert_with(|| {
            ProgressBar::new(all).with_style(
                ProgressStyle::with_template(
                    "{elapsed_precise} {bar:30} {pos}/{len} clusters of blocks {msg}, {eta} left",
                )
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        bar.set_length(all);
        bar.set_position(done);
        bar.set_message(stage.what);
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn in_lines(stages: &[Stage], over: &AtomicBool) {
    let started = Instant::now();
    let mut next = Duration::from_secs(LONG);
    while goes_on(over) {
        let elapsed = started.elapsed();
        if elapsed < next {
            continue;
        }
        next *= 2;
        if let Some((stage, done, all)) = current(stages) {
            note(format!("after {} s: {} {done} of {all} clusters of blocks", elapsed.as_secs(), stage.what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_ends_with_its_run() {
        let (interpreter, device) = (Progress::default(), Progress::default());
        let started = Instant::now();
        let watcher = Watcher::new(interpreter.clone(), device.clone());
        interpreter.begin(2);
        interpreter.step();
        let stages = [
            Stage { what: "interpreted", progress: interpreter },
            Stage { what: "simulated", progress: device.clone() },
        ];
        assert_eq!(
            current(&stages).map(|(stage, done, all)| (stage.what, done, all)),
            Some(("interpreted", 1, 2))
        );
        device.begin(7);
        assert_eq!(
            current(&stages).map(|(stage, done, all)| (stage.what, done, all)),
            Some(("simulated", 0, 7))
        );
        drop(watcher);
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}
