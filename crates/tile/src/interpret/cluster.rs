//! Blocks of a cluster that meet: they run side by side, and wait for each other where they add up what they have.

use std::sync::{Condvar, Mutex, PoisonError};

use super::InterpretError;
use super::bound::Element;
use crate::program::BinaryOp;

/// Where the blocks of a cluster meet.
pub(super) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// What each block that has arrived brings: the number of its statement, and its elements.
    brought: Vec<Option<(usize, Vec<Element>)>>,
    /// How many meetings are over.
    over: usize,
    /// What the last one came to; nothing where the blocks stood at different statements.
    sum: Option<Vec<Element>>,
    /// Whether a block has ended: no meeting after that takes place.
    ended: bool,
}

impl Meeting {
    fn new(blocks: usize) -> Self {
        let state = State { brought: vec![None; blocks], over: 0, sum: None, ended: false };
        Meeting { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The sum over all blocks, each addition rounded to `f32`, in the order of their ranks. `None` if they do not all reach statement
    /// `number`.
    pub(super) fn sum(&self, rank: usize, number: usize, elements: Vec<Element>) -> Option<Vec<Element>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.brought[rank] = Some((number, elements));
        if state.brought.iter().all(Option::is_some) {
            let all: Vec<(usize, Vec<Element>)> = state.brought.iter_mut().filter_map(Option::take).collect();
            let same = all.iter().all(|(other, _)| *other == number);
            state.sum = all.into_iter().map(|(_, elements)| elements).filter(|_| same).reduce(add);
            state.over += 1;
            self.changed.notify_all();
            return state.sum.clone();
        }
        let over = state.over;
        while state.over == over {
            if state.ended {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.sum.clone()
    }
}

/// A block that runs; once it is dropped, it has ended.
struct Running<'a>(&'a Meeting);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.0.changed.notify_all();
    }
}

fn add(mut sum: Vec<Element>, other: Vec<Element>) -> Vec<Element> {
    sum.iter_mut().zip(other).for_each(|(x, y)| *x = Element::binary(BinaryOp::Add, *x, y));
    sum
}

/// Runs the blocks of a cluster, by their ranks, at once if they meet; the first error of the lowest rank is the cluster's, but for one that
/// only says that another block was missing.
pub(super) fn run<T: Send>(
    blocks: usize,
    meet: bool,
    block: impl Fn(usize, &Meeting) -> Result<T, InterpretError> + Sync,
) -> Result<Vec<T>, InterpretError> {
    let meeting = Meeting::new(blocks);
    let one = |rank| {
        let _running = Running(&meeting);
        block(rank, &meeting)
    };
    if blocks == 1 || !meet {
        return (0..blocks).map(one).collect();
    }
    let results: Vec<Result<T, InterpretError>> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..blocks).map(|rank| scope.spawn(move || one(rank))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let missing = |error: &InterpretError| matches!(error, InterpretError::ClusterApart { .. });
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(result) => done.push(result),
            Err(error) => errors.push(error),
        }
    }
    match errors.iter().position(|error| !missing(error)).or(errors.first().map(|_| 0)) {
        Some(at) => Err(errors.swap_remove(at)),
        None => Ok(done),
    }
}
