//! The stages of a pipeline in one block, as a bounded ring.
//!
//! One role fills the stages in their order; each consuming role reads every stage, in their order. A stage can be filled again once
//! all consuming roles have released it. A role releases its oldest unreleased stage once its `consume` has ended and no product in
//! flight reads it.

use std::collections::VecDeque;

use super::bound::Element;
use super::coverage;

/// The contents of a stage: the elements of the pipeline's tensors, and their masks where a run has masks.
#[derive(Clone)]
pub(super) struct Contents {
    pub(super) tiles: Vec<Vec<Element>>,
    pub(super) masks: Option<Vec<coverage::State>>,
}

/// A stage that is full.
struct Full {
    contents: Contents,
    /// Number of consuming roles that have yet to read it.
    readers: usize,
}

/// A stage that a role has read and not released.
#[derive(Default)]
struct Unreleased {
    /// Number of products in flight that read it.
    products: usize,
    /// True if its `consume` has ended.
    ended: bool,
}

/// A consuming role's progress.
#[derive(Default)]
struct Reader {
    /// Number of stages whose `consume` has begun.
    read: usize,
    /// Those that are not released, the oldest first.
    unreleased: VecDeque<Unreleased>,
}

impl Reader {
    fn released(&self) -> usize {
        self.read - self.unreleased.len()
    }

    fn release(&mut self) {
        while self.unreleased.front().is_some_and(|stage| stage.ended && stage.products == 0) {
            self.unreleased.pop_front();
        }
    }

    /// The stage of this number, if it is unreleased.
    fn unreleased(&mut self, stage: usize) -> Option<&mut Unreleased> {
        let first = self.released();
        self.unreleased.get_mut(stage.checked_sub(first)?)
    }
}

/// The state of a pipeline in one block. Stages are numbered in the order in which they are filled, without wrapping.
pub(super) struct Ring {
    /// Number of stages whose `produce` has begun.
    begun: usize,
    /// Number of stages whose `produce` has ended.
    filled: usize,
    /// The latest of those, as far as some role has yet to read them.
    full: VecDeque<Full>,
    /// By consuming role.
    readers: Vec<Reader>,
    /// Contents that the latest `consume` has left, where a `produce` goes on with them.
    left: Option<Contents>,
}

impl Ring {
    pub(super) fn new(readers: usize) -> Ring {
        let readers = (0..readers).map(|_| Reader::default()).collect();
        Ring { begun: 0, filled: 0, full: VecDeque::new(), readers, left: None }
    }

    pub(super) fn begun(&self) -> usize {
        self.begun
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Number of stages that a consuming role has begun to read.
    pub(super) fn read(&self, reader: usize) -> usize {
        self.readers[reader].read
    }

    /// Number of stages that a consuming role has released.
    pub(super) fn released_by(&self, reader: usize) -> usize {
        self.readers[reader].released()
    }

    /// Number of stages that every consuming role has released.
    pub(super) fn released(&self) -> usize {
        self.readers.iter().map(Reader::released).min().unwrap_or(0)
    }

    /// Begins a `produce`: the number of its stage, and what it holds, where anything is left of the one before.
    pub(super) fn begin(&mut self) -> (usize, Option<Contents>) {
        self.begun += 1;
        (self.begun - 1, self.left.take())
    }

    /// Leaves the next `produce` what a `consume` ends with.
    pub(super) fn leave(&mut self, contents: Contents) {
        self.left = Some(contents);
    }

    /// Ends a `produce`.
    pub(super) fn fill(&mut self, contents: Contents) {
        self.filled += 1;
        self.full.push_back(Full { contents, readers: self.readers.len() });
    }

    /// Begins a role's next `consume`: the number of the stage and what it holds; `None` where it is not full.
    pub(super) fn take(&mut self, reader: usize) -> Option<(usize, Contents)> {
        let stage = self.readers[reader].read;
        let first = self.filled - self.full.len();
        let full = self.full.get_mut(stage.checked_sub(first)?)?;
        full.readers -= 1;
        // Stages are read in their order, so that the one that all have read is the first.
        let contents = if full.readers > 0 { full.contents.clone() } else { self.full.pop_front()?.contents };
        self.readers[reader].read += 1;
        self.readers[reader].unreleased.push_back(Unreleased::default());
        Some((stage, contents))
    }

    /// Ends a role's `consume`.
    pub(super) fn end(&mut self, reader: usize) {
        if let Some(stage) = self.readers[reader].unreleased.back_mut() {
            stage.ended = true;
        }
        self.readers[reader].release();
    }

    /// A product of the role that reads its latest stage takes off; the number of the stage.
    pub(super) fn hold(&mut self, reader: usize) -> Option<usize> {
        let stage = self.readers[reader].read.checked_sub(1)?;
        self.readers[reader].unreleased(stage)?.products += 1;
        Some(stage)
    }

    /// A product of the role that reads a stage is complete.
    pub(super) fn complete(&mut self, reader: usize, stage: usize) {
        if let Some(stage) = self.readers[reader].unreleased(stage) {
            stage.products -= 1;
        }
        self.readers[reader].release();
    }
}
