//! Masks beside a run: which elements of parameters are read and written, and which elements of register and shared tensors hold anything.
//!
//! [`Coverage`] is one for a launch, with a byte an element of what is read and a few an element of what is written; [`Watch`] goes with
//! one block. A tensor of the block has a mask only while some of its elements are unwritten, so that a run pays for little else than
//! the first iteration. `follow.rs` lets them follow the operations, and `warnings.rs` says what they mean.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::op::{Numbers, Plan};
use crate::program::{ParamId, Stmt, TensorKind};
use crate::verified::Verified;

/// A statement, by its number in the order of the text.
pub(super) type Number = usize;

/// The elements of one parameter.
#[derive(Default)]
pub(super) struct Seen {
    /// For each, true if it is read; empty where nothing of the parameter is.
    read: Vec<AtomicBool>,
    /// The last writer of each, and whether nothing has read it since; empty where nothing of the parameter is written.
    writer: Vec<AtomicU64>,
    /// One more than the statement that wrote each over another value, 0 where none did.
    again: Vec<AtomicU32>,
}

/// A statement of a block as [`Seen::writer`] has it: never 0.
fn tag(block: u64, stmt: Number) -> u64 {
    (((block << 16) | (stmt as u64 & 0xffff)) + 1) << 1
}

/// The bit of an element that nothing has read since it was written.
const UNREAD: u64 = 1;

impl Seen {
    pub(super) fn is_read(&self, offset: usize) -> bool {
        self.read.get(offset).is_some_and(|x| x.load(Ordering::Relaxed))
    }

    pub(super) fn is_written(&self, offset: usize) -> bool {
        self.writer.get(offset).is_some_and(|x| x.load(Ordering::Relaxed) != 0)
    }

    /// The statement that wrote the element over another value.
    pub(super) fn written_again(&self, offset: usize) -> Option<Number> {
        (self.again.get(offset)?.load(Ordering::Relaxed) as Number).checked_sub(1)
    }

    pub(super) fn any_written_again(&self) -> bool {
        self.again.iter().any(|x| x.load(Ordering::Relaxed) != 0)
    }
}

/// A read of elements of a tensor of the block that nothing had written, by statement and tensor.
pub(super) type Reads = BTreeMap<(Number, usize), Vec<bool>>;

/// Findings of blocks about their own tensors.
#[derive(Default)]
pub(super) struct Found {
    /// The number of times that the first statement's result, in this tensor, was overwritten by the second before anything read it.
    pub(super) lost: BTreeMap<(Number, Number, usize), u64>,
    /// Reads of unwritten elements on which an element of an output depends.
    pub(super) unwritten: Reads,
}

/// Locks of elements that are replaced: those at a distance of as many share one.
const LOCKS: usize = 256;

/// The masks of a launch.
pub(super) struct Coverage<'a> {
    pub(super) v: &'a Verified,
    /// Every statement, in the order of the text.
    pub(super) stmts: Vec<&'a Stmt>,
    /// The number of each.
    pub(super) numbers: Numbers,
    /// The number of elements of each tensor of the block; 0 of a view.
    lens: Vec<usize>,
    pub(super) params: Vec<Seen>,
    found: Mutex<Found>,
    /// Held while an element is replaced: blocks run at the same time, and may write one.
    replacing: Vec<Mutex<()>>,
}

impl<'a> Coverage<'a> {
    /// Masks for parameters of so many elements.
    pub(super) fn new(v: &'a Verified, lengths: &[usize]) -> Self {
        let mut stmts = Vec::new();
        v.visit(&mut |stmt, _| stmts.push(stmt));
        let numbers = stmts.iter().enumerate().map(|(i, stmt)| (stmt.id, i)).collect();
        let seen = |(i, len): (usize, &usize)| {
            let of = |ids: &[ParamId]| if ids.contains(&ParamId(i as u32)) { *len } else { 0 };
            Seen {
                read: (0..of(v.inputs())).map(|_| AtomicBool::new(false)).collect(),
                writer: (0..of(v.outputs())).map(|_| AtomicU64::new(0)).collect(),
                again: (0..of(v.outputs())).map(|_| AtomicU32::new(0)).collect(),
            }
        };
        let params = lengths.iter().enumerate().map(seen).collect();
        let len = |(i, tensor): (usize, &crate::Tensor)| match tensor.kind {
            TensorKind::View { .. } => 0,
            _ => v.shape(crate::TensorId(i as u32)).iter().product::<i64>() as usize,
        };
        let lens = v.program().tensors.iter().enumerate().map(len).collect();
        let replacing = (0..LOCKS).map(|_| Mutex::default()).collect();
        Coverage { v, stmts, numbers, lens, params, found: Mutex::default(), replacing }
    }

    /// The findings of the blocks.
    pub(super) fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The elements of a tile that hold nothing, and the read that was the first to find that.
pub(super) struct Mask {
    pub(super) missing: Vec<bool>,
    pub(super) origin: (Number, usize),
}

/// A tensor of the block.
#[derive(Clone, Default)]
pub(super) struct State {
    /// The elements that nothing has written; `None` where all are.
    pub(super) missing: Option<Missing>,
    /// The statement that wrote all of it, if nothing has read any of it since.
    pub(super) unread: Option<Number>,
}

/// Elements that nothing has written.
#[derive(Clone)]
pub(super) struct Missing {
    pub(super) places: Vec<bool>,
    left: usize,
    /// The first read of what these elements were computed from, if they were.
    pub(super) origin: Option<(Number, usize)>,
}

impl Missing {
    pub(super) fn new(places: Vec<bool>, origin: Option<(Number, usize)>) -> Option<Missing> {
        let left = places.iter().filter(|missing| **missing).count();
        (left > 0).then_some(Missing { places, left, origin })
    }
}

/// The masks of a role's tensors.
struct RoleMasks {
    /// The statement under way.
    stmt: Number,
    tensors: Vec<State>,
}

/// The masks of one block.
pub(super) struct Watch<'a> {
    coverage: &'a Coverage<'a>,
    block: u64,
    /// The role that runs, and the masks of each.
    role: usize,
    roles: Vec<RoleMasks>,
    reads: Reads,
    found: Found,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut all = self.coverage.found();
        for (key, count) in std::mem::take(&mut self.found.lost) {
            *all.lost.entry(key).or_default() += count;
        }
        for (key, places) in std::mem::take(&mut self.found.unwritten) {
            join(all.unwritten.entry(key).or_default(), &places);
        }
    }
}

/// Adds the elements of another mask.
pub(super) fn join(mask: &mut Vec<bool>, other: &[bool]) {
    mask.resize(mask.len().max(other.len()), false);
    mask.iter_mut().zip(other).for_each(|(x, y)| *x |= y);
}

impl<'a> Watch<'a> {
    pub(super) fn new(coverage: &'a Coverage<'a>, plan: &Plan, block: u64) -> Self {
        let tensors = vec![State::default(); plan.tensors];
        Watch {
            coverage,
            block,
            role: 0,
            roles: plan.roles.iter().map(|_| RoleMasks { stmt: 0, tensors: tensors.clone() }).collect(),
            reads: Reads::new(),
            found: Found::default(),
        }
    }

    pub(super) fn len(&self, tensor: usize) -> usize {
        self.coverage.lens[tensor]
    }

    /// A role goes on.
    pub(super) fn turn_to(&mut self, role: usize) {
        self.role = role;
    }

    /// Notes that the role goes on with this statement.
    pub(super) fn at(&mut self, stmt: Number) {
        self.roles[self.role].stmt = stmt;
    }

    pub(super) fn stmt(&self) -> Number {
        self.roles[self.role].stmt
    }

    pub(super) fn state(&mut self, tensor: usize) -> &mut State {
        &mut self.roles[self.role].tensors[tensor]
    }

    /// An element of a parameter is read.
    pub(super) fn loaded(&self, param: usize, offset: usize) {
        let seen = &self.coverage.params[param];
        if let Some(read) = seen.read.get(offset) {
            read.store(true, Ordering::Relaxed);
        }
        if let Some(writer) = seen.writer.get(offset) {
            writer.fetch_and(!UNREAD, Ordering::Relaxed);
        }
    }

    /// An element of a parameter is written by `write`, which says whether the value differs from the one that was there.
    pub(super) fn replaced(&self, param: usize, offset: usize, write: impl FnOnce() -> bool) {
        let lock = &self.coverage.replacing[offset % LOCKS];
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.stored(param, offset, Some(write()));
    }

    /// An element of a parameter is written, with another value than is there if `changes` says so, or added to (`None`).
    pub(super) fn stored(&self, param: usize, offset: usize, changes: Option<bool>) {
        let seen = &self.coverage.params[param];
        let (Some(writer), Some(again)) = (seen.writer.get(offset), seen.again.get(offset)) else { return };
        let own = tag(self.block, self.stmt());
        let before = writer.swap(own | UNREAD, Ordering::Relaxed);
        let Some(changes) = changes else {
            // A sum holds what was there.
            writer.fetch_and(!UNREAD, Ordering::Relaxed);
            return;
        };
        let others = before >> 17 != own >> 17;
        let lost = before & UNREAD != 0 && before & !UNREAD == own;
        if before != 0 && (others || lost) && changes {
            again.store(self.stmt() as u32 + 1, Ordering::Relaxed);
        }
    }

    /// A stage of a pipeline begins: empty, or as it was filled; some of its tensors were `filled` ahead.
    pub(super) fn enter(&mut self, tensors: &[(usize, usize)], full: Option<Vec<State>>, filled: &[bool]) {
        let empty = tensors
            .iter()
            .map(|(_, len)| State { missing: Missing::new(vec![true; *len], None), unread: None });
        let states = full.unwrap_or_else(|| empty.collect());
        let states = tensors.iter().zip(states).zip(filled);
        states
            .filter(|(_, filled)| !**filled)
            .for_each(|(((tensor, _), state), _)| *self.state(*tensor) = state);
    }

    /// The stage ends.
    pub(super) fn leave(&mut self, tensors: &[(usize, usize)]) -> Vec<State> {
        tensors.iter().map(|(tensor, _)| std::mem::take(self.state(*tensor))).collect()
    }

    /// Reads a tensor, or the elements at these places of it.
    pub(super) fn read(&mut self, tensor: usize, places: Option<&[usize]>) -> Option<Mask> {
        let stmt = self.stmt();
        let state = &mut self.roles[self.role].tensors[tensor];
        state.unread = None;
        let missing = state.missing.as_ref()?;
        let of: Vec<bool> = match places {
            None => missing.places.clone(),
            Some(places) => places.iter().map(|&at| missing.places[at]).collect(),
        };
        if !of.contains(&true) {
            return None;
        }
        let origin = missing.origin.unwrap_or_else(|| {
            let key = (stmt, tensor);
            let read = self.reads.entry(key).or_default();
            match places {
                None => join(read, &missing.places),
                Some(places) => {
                    read.resize(missing.places.len(), false);
                    places.iter().for_each(|&at| read[at] |= missing.places[at]);
                }
            }
            key
        });
        Some(Mask { missing: of, origin })
    }

    /// Writes all of a tensor; `keeps` where what it held is no loss.
    pub(super) fn write(&mut self, tensor: usize, mask: Option<Mask>, keeps: bool) {
        let stmt = self.stmt();
        let state = &mut self.roles[self.role].tensors[tensor];
        if let (Some(before), false) = (state.unread.take(), keeps) {
            *self.found.lost.entry((before, stmt, tensor)).or_default() += 1;
        }
        state.unread = Some(stmt);
        state.missing = mask.and_then(|mask| Missing::new(mask.missing, Some(mask.origin)));
    }

    /// Writes the elements at these places of a tensor of so many.
    pub(super) fn write_part(&mut self, tensor: usize, places: &[usize], len: usize, mask: Option<Mask>) {
        let state = &mut self.roles[self.role].tensors[tensor];
        state.unread = None;
        if state.missing.is_none() && mask.is_none() {
            return;
        }
        let missing =
            state.missing.get_or_insert_with(|| Missing { places: vec![false; len], left: 0, origin: None });
        for (i, &at) in places.iter().enumerate() {
            let is = mask.as_ref().is_some_and(|mask| mask.missing[i]);
            let was = std::mem::replace(&mut missing.places[at], is);
            missing.left = missing.left + usize::from(is) - usize::from(was);
        }
        missing.origin = mask.map(|mask| mask.origin).or(missing.origin);
        if missing.left == 0 {
            state.missing = None;
        }
    }

    /// An element of an output, or what is done, depends on what a read found unwritten.
    pub(super) fn reached(&mut self, origin: (Number, usize)) {
        if let Some(places) = self.reads.get(&origin) {
            join(self.found.unwritten.entry(origin).or_default(), places);
        }
    }
}
