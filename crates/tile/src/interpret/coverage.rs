//! Masks beside a run: which elements of parameters are read and written, and which elements of register and shared tensors hold anything.
//!
//! [`Coverage`] is one for a launch, with a byte an element of what is read and a few an element of what is written; [`Watch`] goes with
//! one block. A tensor of the block has a mask only while some of its elements are unwritten, so that a run pays for little else than
//! the first iteration. `warnings.rs` says what the masks mean.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::InterpretError;
use super::access::Corner;
use super::plan::{Access, Code, Op, PartOf, Plan, Side, Tile};
use super::role::Role;
use crate::program::{ParamId, Stmt, StmtKind, TensorKind};
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

/// The masks of a launch.
pub(super) struct Coverage<'a> {
    pub(super) v: &'a Verified,
    /// Every statement, in the order of the text.
    pub(super) stmts: Vec<&'a Stmt>,
    /// The number of each by its address, which is a name and never followed.
    numbers: HashMap<usize, Number>,
    /// The number of elements of each tensor of the block; 0 of a view.
    lens: Vec<usize>,
    pub(super) params: Vec<Seen>,
    found: Mutex<Found>,
}

impl<'a> Coverage<'a> {
    /// Masks for parameters of so many elements.
    pub(super) fn new(v: &'a Verified, lengths: &[usize]) -> Self {
        fn collect<'a>(body: &'a [Stmt], all: &mut Vec<&'a Stmt>) {
            for stmt in body {
                all.push(stmt);
                collect(stmt.kind.body(), all);
            }
        }
        let mut stmts = Vec::new();
        collect(&v.program().body, &mut stmts);
        let numbers =
            stmts.iter().enumerate().map(|(i, stmt)| (std::ptr::from_ref(*stmt).addr(), i)).collect();
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
        Coverage { v, stmts, numbers, lens, params, found: Mutex::default() }
    }

    /// The number of a statement.
    pub(super) fn number(&self, stmt: &Stmt) -> Option<Number> {
        self.numbers.get(&std::ptr::from_ref(stmt).addr()).copied()
    }

    /// The findings of the blocks.
    pub(super) fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which elements of a tile hold nothing, and since which read.
struct Mask {
    missing: Vec<bool>,
    origin: (Number, usize),
}

/// A tensor of the block.
#[derive(Clone, Default)]
pub(super) struct State {
    /// Which elements nothing has written; none where all are.
    missing: Option<Missing>,
    /// The statement that wrote all of it, if nothing has read any of it since.
    unread: Option<Number>,
}

#[derive(Clone)]
struct Missing {
    places: Vec<bool>,
    left: usize,
    /// The first read of what these elements were computed from, if they were.
    origin: Option<(Number, usize)>,
}

impl Missing {
    fn new(places: Vec<bool>, origin: Option<(Number, usize)>) -> Option<Missing> {
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
fn join(mask: &mut Vec<bool>, other: &[bool]) {
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

    fn len(&self, tensor: usize) -> usize {
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

    fn stmt(&self) -> Number {
        self.roles[self.role].stmt
    }

    fn state(&mut self, tensor: usize) -> &mut State {
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

    /// An element of a parameter is written, or added to (`values` is `None`), where the first value is and the second shall be.
    pub(super) fn stored(&self, param: usize, offset: usize, values: Option<[f64; 2]>) {
        let seen = &self.coverage.params[param];
        let (Some(writer), Some(again)) = (seen.writer.get(offset), seen.again.get(offset)) else { return };
        let own = tag(self.block, self.stmt());
        let before = writer.swap(own | UNREAD, Ordering::Relaxed);
        let Some([old, new]) = values else {
            // A sum holds what was there.
            writer.fetch_and(!UNREAD, Ordering::Relaxed);
            return;
        };
        let others = before >> 17 != own >> 17;
        let lost = before & UNREAD != 0 && before & !UNREAD == own;
        if before != 0 && (others || lost) && old.to_bits() != new.to_bits() {
            again.store(self.stmt() as u32 + 1, Ordering::Relaxed);
        }
    }

    /// A stage of a pipeline begins: empty, or as it was filled.
    pub(super) fn enter(&mut self, tensors: &[(usize, usize)], full: Option<Vec<State>>) {
        let empty = tensors
            .iter()
            .map(|(_, len)| State { missing: Missing::new(vec![true; *len], None), unread: None });
        let states = full.unwrap_or_else(|| empty.collect());
        tensors.iter().zip(states).for_each(|((tensor, _), state)| *self.state(*tensor) = state);
    }

    /// The stage ends.
    pub(super) fn leave(&mut self, tensors: &[(usize, usize)]) -> Vec<State> {
        tensors.iter().map(|(tensor, _)| std::mem::take(self.state(*tensor))).collect()
    }

    /// Reads a tensor, or the elements at these places of it.
    fn read(&mut self, tensor: usize, places: Option<&[usize]>) -> Option<Mask> {
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
    fn write(&mut self, tensor: usize, mask: Option<Mask>, keeps: bool) {
        let stmt = self.stmt();
        let state = &mut self.roles[self.role].tensors[tensor];
        if let (Some(before), false) = (state.unread.take(), keeps) {
            *self.found.lost.entry((before, stmt, tensor)).or_default() += 1;
        }
        state.unread = Some(stmt);
        state.missing = mask.and_then(|mask| Missing::new(mask.missing, Some(mask.origin)));
    }

    /// Writes the elements at these places of a tensor of so many.
    fn write_part(&mut self, tensor: usize, places: &[usize], len: usize, mask: Option<Mask>) {
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
    fn reached(&mut self, origin: (Number, usize)) {
        if let Some(places) = self.reads.get(&origin) {
            join(self.found.unwritten.entry(origin).or_default(), places);
        }
    }

    fn read_tile(
        &mut self,
        role: &Role<'_>,
        tile: &Tile,
        text: &str,
    ) -> Result<Option<Mask>, InterpretError> {
        if self.state(tile.tensor).missing.is_none() || tile.order.is_none() {
            return Ok(self.read(tile.tensor, None));
        }
        let places = role.places(tile, text)?;
        Ok(self.read(tile.tensor, Some(&places)))
    }

    fn read_side(
        &mut self,
        role: &Role<'_>,
        side: &Side,
        text: &str,
    ) -> Result<Option<Mask>, InterpretError> {
        match side {
            Side::Tile(tile) => self.read_tile(role, tile, text),
            Side::Global(_) => Ok(None),
        }
    }

    fn copy(&mut self, role: &Role<'_>, [src, dst]: [&Side; 2], text: &str) -> Result<(), InterpretError> {
        let mask = self.read_side(role, src, text)?;
        match dst {
            Side::Tile(Tile { tensor, order: None, .. }) => self.write(*tensor, mask, false),
            Side::Tile(tile) => {
                if self.state(tile.tensor).missing.is_some() || mask.is_some() {
                    let places = role.places(tile, text)?;
                    self.write_part(tile.tensor, &places, self.len(tile.tensor), mask);
                }
                self.state(tile.tensor).unread = None;
            }
            Side::Global(access) => {
                if let Some(mask) = mask
                    && inside(role, access, &mask.missing)?
                {
                    self.reached(mask.origin);
                }
            }
        }
        Ok(())
    }

    /// Looks at an operation before it is done.
    pub(super) fn before(&mut self, role: &Role<'_>, op: &Op) -> Result<(), InterpretError> {
        match op {
            Op::Define { tensor, len } => {
                *self.state(*tensor) = State { missing: Missing::new(vec![true; *len], None), unread: None };
            }
            Op::Copy { src, dst, text, .. } => self.copy(role, [src, dst], text)?,
            Op::CopyAsync { src, dst, flight, .. } => self.copy(role, [src, dst], role.flight(*flight))?,
            Op::TakeParts { parts, text } => self.take_parts(role, parts, text)?,
            Op::PutParts { parts, text } => self.put_parts(role, parts, text)?,
            Op::Gemm { c, a, b, shape, .. } => {
                let factors = [self.read(*a, None), self.read(*b, None)];
                self.product(*c, factors, *shape);
            }
            Op::GemmAsync(product) => {
                let text = role.flight(product.flight);
                let factors = [&product.a, &product.b].map(|side| self.read_side(role, side, text));
                let [a, b] = factors;
                self.product(product.c, [a?, b?], product.shape);
            }
            Op::ClusterSum { dst, .. } => self.state(*dst).unread = None,
            Op::Convert { dst, src, .. } => {
                let mask = self.read(*src, None);
                self.write(*dst, mask, false);
            }
            Op::Fill { dst, .. } => {
                self.write(*dst, None, false);
                // What a `fill` writes is there in case nothing else does.
                self.state(*dst).unread = None;
            }
            Op::Elementwise { dst, code, .. } => {
                let mask = self.elementwise(code);
                self.write(*dst, mask, false);
            }
            Op::Pick { dst, src, order } => {
                let mask = self.read(*src, None);
                let mask = mask.map(|mask| match order {
                    None => mask,
                    Some(order) => pick(&mask, order.iter().map(|&o| o as usize)),
                });
                self.write(*dst, mask, false);
            }
            Op::Slice { dst, src, order, start, stride, .. } => {
                let start = role.value(start, || "the beginning of a slice".to_string())?;
                let first = usize::try_from(start * stride).unwrap_or(0);
                let len = self.len(*src);
                let places: Vec<usize> = order.iter().map(|&o| (first + o as usize).min(len - 1)).collect();
                let mask = self.read(*src, Some(&places));
                self.write(*dst, mask, false);
            }
            Op::Join { dst, a, b } => {
                let masks = [self.read(*a, None), self.read(*b, None)];
                let origin = masks.iter().flatten().map(|mask| mask.origin).next();
                let halves = masks.map(|mask| mask.map_or(vec![false; self.len(*a)], |mask| mask.missing));
                self.write(*dst, origin.map(|origin| Mask { missing: halves.concat(), origin }), false);
            }
            Op::Split { lo, hi, src } => {
                let mask = self.read(*src, None);
                let half = self.len(*src) / 2;
                let halves = [0..half, half..2 * half].map(|part| mask.as_ref().map(|mask| pick(mask, part)));
                let [low, high] = halves;
                self.write(*lo, low, false);
                self.write(*hi, high, false);
            }
            Op::Reduce { dst, src, around, .. } => {
                let mask = self.read(*src, None);
                self.write(*dst, mask.map(|mask| Mask { missing: around.any(&mask.missing), ..mask }), false);
            }
            Op::Gather { dst, src, index, .. } => {
                // What is taken is not worked out: each element may be what was not written.
                let masks = [self.read(*index, None), self.read(*src, None)];
                let [index_mask, src_mask] = masks;
                let len = self.len(*index);
                let mask = index_mask.or(src_mask.map(|mask| Mask { missing: vec![true; len], ..mask }));
                self.write(*dst, mask, false);
            }
            Op::Commit
            | Op::Wait(_)
            | Op::Alike { .. }
            | Op::Landed { .. }
            | Op::CommitGemm
            | Op::WaitGemm(_)
            | Op::Stage { .. }
            | Op::Tiles { .. }
            | Op::Mark(_)
            | Op::For { .. } => {}
        }
        Ok(())
    }

    /// The parts of register tensors that an operation has for operands are taken out.
    fn take_parts(&mut self, role: &Role<'_>, parts: &[PartOf], text: &str) -> Result<(), InterpretError> {
        for part in parts {
            let places = role.places(&part.tile, text)?;
            let whole = self.state(part.tile.tensor);
            whole.unread = None;
            let missing = whole.missing.as_ref().and_then(|missing| {
                Missing::new(places.iter().map(|&at| missing.places[at]).collect(), missing.origin)
            });
            *self.state(part.part) = State { missing, unread: None };
        }
        Ok(())
    }

    /// They are put back.
    fn put_parts(&mut self, role: &Role<'_>, parts: &[PartOf], text: &str) -> Result<(), InterpretError> {
        for part in parts {
            let missing = std::mem::take(self.state(part.part)).missing;
            let places = role.places(&part.tile, text)?;
            let whole = self.len(part.tile.tensor);
            // What was unwritten and still is keeps its own origin.
            let unwritten = missing.as_ref().is_some_and(|missing| missing.origin.is_none());
            let here = (self.stmt(), part.tile.tensor);
            let mask = missing
                .map(|missing| Mask { missing: missing.places, origin: missing.origin.unwrap_or(here) });
            let before = self.state(part.tile.tensor).missing.as_ref().and_then(|missing| missing.origin);
            self.write_part(part.tile.tensor, &places, whole, mask);
            if let (true, Some(missing)) = (unwritten, &mut self.state(part.tile.tensor).missing) {
                missing.origin = before;
            }
        }
        Ok(())
    }

    /// `c += a · bᵀ`: an element of `c` is there if it was, and the rows of both factors are.
    fn product(&mut self, c: usize, [a, b]: [Option<Mask>; 2], [m, n, k]: [usize; 3]) {
        let sums = self.read(c, None);
        let origin = [&sums, &a, &b].into_iter().flatten().map(|mask| mask.origin).next();
        let mask = origin.map(|origin| {
            let rows = |mask: Option<Mask>, count: usize| {
                let row = |i: usize, mask: &Mask| (0..k).any(|p| mask.missing[i + p * count]);
                mask.map(|mask| (0..count).map(|i| row(i, &mask)).collect::<Vec<bool>>())
            };
            let (left, right) = (rows(a, m), rows(b, n));
            let at = |rows: &Option<Vec<bool>>, i: usize| rows.as_ref().is_some_and(|rows| rows[i]);
            let sum = |i: usize| sums.as_ref().is_some_and(|mask| mask.missing[i]);
            let missing = (0..m * n).map(|i| sum(i) || at(&left, i % m) || at(&right, i / m)).collect();
            Mask { missing, origin }
        });
        self.write(c, mask, true);
    }

    fn elementwise(&mut self, code: &Code) -> Option<Mask> {
        let mut mask: Option<Mask> = None;
        code.tensors(&mut |tensor| {
            if let Some(other) = self.read(tensor, None) {
                match &mut mask {
                    None => mask = Some(other),
                    Some(mask) => join(&mut mask.missing, &other.missing),
                }
            }
        });
        mask
    }
}

impl Code {
    /// Calls `visit` for every tensor that the expression reads.
    fn tensors(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Code::Tensor(tensor) => visit(*tensor),
            Code::Unary(_, x) => x.tensors(visit),
            Code::Binary(_, x, y) => {
                x.tensors(visit);
                y.tensors(visit);
            }
            Code::Fma(operands) => operands.iter().for_each(|x| x.tensors(visit)),
            Code::Number(_) | Code::Scalar(_) | Code::Int(_) => {}
        }
    }
}

fn pick(mask: &Mask, places: impl Iterator<Item = usize>) -> Mask {
    Mask { missing: places.map(|at| mask.missing[at]).collect(), origin: mask.origin }
}

/// True if an element that is missing lies within the buffer.
fn inside(role: &Role<'_>, access: &Access, missing: &[bool]) -> Result<bool, InterpretError> {
    let corner: Corner = role.corner(access)?;
    if access.start_if_inside(&corner).is_some() {
        return Ok(missing.contains(&true));
    }
    let (mut missing, mut any) = (missing.iter(), false);
    access.each(&corner, |offset| any |= missing.next() == Some(&true) && offset.is_some());
    Ok(any)
}

impl Coverage<'_> {
    /// The register tensor that a tensor is a part of, or itself.
    pub(super) fn whole(&self, tensor: usize) -> usize {
        match self.v.program().tensors.get(tensor).map(|t| &t.kind) {
            Some(TensorKind::Part { of, .. }) => of.0 as usize,
            _ => tensor,
        }
    }

    /// True if the statement reads the tensor, or a part of it.
    pub(super) fn reads(&self, stmt: &Stmt, tensor: usize) -> bool {
        // A product reads what it adds to.
        let own = match &stmt.kind {
            StmtKind::Gemm { c, .. } | StmtKind::GemmAsync { c, .. } => Some(*c),
            _ => None,
        };
        let is = |id: &crate::TensorId| self.whole(id.0 as usize) == self.whole(tensor);
        stmt.kind.reads().iter().any(|id| is(id) && own != Some(*id)) || own.as_ref().is_some_and(is)
    }
}
