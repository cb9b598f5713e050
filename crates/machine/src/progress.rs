//! Progress of a run, for whoever waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of a run that are done, of how many: counted by whoever runs it, and read by whoever waits. Copies of one count together.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    done: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// Begins a run of so many parts.
    pub fn begin(&self, all: u64) {
        self.0.done.store(0, Ordering::Relaxed);
        self.0.all.store(all, Ordering::Relaxed);
    }

    /// A part is done.
    pub fn step(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    /// The parts that are done, and all of them; both 0 before a run begins.
    pub fn done(&self) -> (u64, u64) {
        let all = self.0.all.load(Ordering::Relaxed);
        (self.0.done.load(Ordering::Relaxed).min(all), all)
    }
}

impl PartialEq for Progress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Progress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_count_together() {
        let progress = Progress::default();
        assert_eq!(progress.done(), (0, 0));
        let other = progress.clone();
        other.begin(3);
        (0..4).for_each(|_| other.step());
        assert_eq!(progress.done(), (3, 3));
        assert!(progress == other && progress != Progress::default());
    }
}
