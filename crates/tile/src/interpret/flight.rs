//! Asynchronous copies and products in flight.

use std::collections::VecDeque;

use super::access::Corner;
use super::bound::Element;
use super::op::{Access, Combine};

/// The writes that an asynchronous copy or product in flight still has to do.
pub(super) enum Effect<'a> {
    /// These elements, at the places of the shared tensor that it writes.
    Tile { values: Vec<Element> },
    /// These elements, to a buffer from a coordinate on, or combined with what is there.
    Global { access: &'a Access, corner: Corner, values: Vec<Element>, combine: Option<Combine> },
    /// Nothing: a product is computed where it stands.
    Nothing,
}

/// An asynchronous copy or product in flight.
pub(super) struct InFlight<'a> {
    pub(super) mark: Mark,
    pub(super) effect: Effect<'a>,
    /// The places that it writes.
    pub(super) writes: Option<Touched>,
    /// The places that it reads.
    pub(super) reads: Vec<Touched>,
    /// The stages that it reads: of which pipeline, and their numbers.
    pub(super) stages: Vec<(usize, usize)>,
}

/// Places of a tensor: of the instance with this number among those that iterations of unrolled loops have.
pub(super) struct Touched {
    pub(super) tensor: usize,
    pub(super) instance: usize,
    pub(super) places: Vec<usize>,
}

/// The serial number of an asynchronous copy or product of the role, and its number in [`Plan::flights`](super::op::Plan::flights).
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Mark {
    pub(super) serial: usize,
    pub(super) flight: usize,
}

/// The asynchronous copies, or products, of a role.
#[derive(Default)]
pub(super) struct Flights<'a> {
    /// Groups, the oldest first.
    pub(super) groups: VecDeque<Vec<InFlight<'a>>>,
    /// Those that are in no group yet.
    pub(super) open: Vec<InFlight<'a>>,
}

impl<'a> Flights<'a> {
    pub(super) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Takes all groups out but this number of the latest.
    pub(super) fn complete(&mut self, left: i64) -> Vec<InFlight<'a>> {
        let left = usize::try_from(left).unwrap_or(0);
        let done = self.groups.len().saturating_sub(left);
        self.groups.drain(..done).flatten().collect()
    }
}
