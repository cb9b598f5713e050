//! Checked reasons why a program may lack a synchronising statement and still be right, statement by statement.
//!
//! Waits and commits of asynchronous copies and products: the interpreter and the verifier refuse a program that touches anything in
//! flight, element by element. Where both accept it without the statement, nothing in flight is touched, which is the reason.
//!
//! `syncthreads`: the statements of one block are walked in the order in which they are executed, with the values of counters. The reason
//! is that no two accesses of the same part of a tensor, one of which writes, stand before and behind it with no other barrier
//! between. What asynchronous copies and products touch counts where they begin and where they are waited for. Tensors of
//! pipelines do not count inside their stages, which order them.
//!
//! The same where pipelines order what crosses it. Threads that fill a stage arrive at its barrier, all those of their role, and all of the role that reads it wait for them: from role to role they hand on how far
//! all threads of each have come ([`ordered`]).
//!
//! The same where the threads that hold a register tensor do what stands on both sides ([`Held`]), and where all threads of a role meet those of others, at a named barrier or the begin of a turn.
//!
//! If none holds, the change is tried with other candidates of the synthesis and other sizes (`Worker::elsewhere`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tilewright::machine::Memory;
use tilewright::tile::{
    Axis, Constants, Expr, ParamId, PipelineId, Program, Scope, Side, Stmt, StmtKind, SymbolId, SymbolKind,
    SyncScope, TensorId, TensorKind, TensorRef, parse, verify,
};

use crate::access::{Access, Held, Part};
use crate::syncs::{Change, Changed};

/// Statements that are walked at most.
const STEPS: usize = 40_000;
/// Rounds of a loop over tiles that are walked.
const TILES: i64 = 3;

/// The reason why the changed program is right too, if there is one.
///
/// `engines`: an engine does some of its asynchronous copies; `barriers`: places in the changed text of statements whose code has a barrier.
pub fn explain(base: &str, changed: &Changed, engines: bool, barriers: &[usize]) -> Option<&'static str> {
    let statement = changed.statement.as_str();
    if statement.starts_with("wait_dependencies") || statement.starts_with("launch_dependents") {
        return Some("no_launch_before_or_behind");
    }
    let barrier = ["syncthreads", "arrive"].iter().any(|word| statement.starts_with(word));
    if !barrier {
        return Some("nothing_in_flight_is_touched");
    }
    // What one that moved orders is the same.
    if moved_over_nothing(base, changed) == Some(true) {
        return Some("what_it_moved_over_touches_nothing");
    }
    // What another role does behind a barrier is not followed.
    if statement.starts_with("arrive") {
        return None;
    }
    let before = |text: &str, before: usize| {
        text.lines().take(before).filter(|l| l.trim_start().starts_with("syncthreads")).count()
    };
    let ordinal = before(base, changed.line);
    let orderly = |by, reason| (!walked(base, ordinal, None, by)?).then_some(reason);
    let by_pipelines = || orderly(By::Pipelines { engines }, "pipelines_order_what_crosses_it");
    let by_holders = || orderly(By::Holders, "the_same_threads_are_on_both_sides");
    let by_meetings = || orderly(By::Meetings, "the_role_meets_others");
    let lines: Vec<usize> = barriers.iter().filter_map(|place| changed.line_before(*place)).collect();
    let by_others = || orderly(By::Statements { lines: &lines }, "other_statements_have_barriers");
    let untouched = (!crossed(base, ordinal, None)?).then_some("nothing_crosses_it");
    untouched.or_else(by_pipelines).or_else(by_holders).or_else(by_meetings).or_else(by_others).or_else(
        || {
            let passed = match changed.change {
                Change::Earlier => changed.line.checked_sub(1)?,
                Change::Later => changed.line + 1,
                Change::Delete | Change::Weaken => return None,
            };
            // Only what it passed is on its other side now.
            let copies = base.lines().nth(passed)?.trim().starts_with("copy");
            let harmless = copies && !crossed(base, ordinal, Some(passed))?;
            harmless.then_some("nothing_of_what_it_moved_over_crosses_it")
        },
    )
}

/// True if a moved barrier passed a statement that touches neither shared nor global memory: a product or a filling of registers, or one that gives a name to a value and is no atomic operation.
fn moved_over_nothing(base: &str, changed: &Changed) -> Option<bool> {
    let (old, new): (Vec<&str>, Vec<&str>) = (base.lines().collect(), changed.text.lines().collect());
    if old.len() != new.len() {
        return None;
    }
    let passed = (0..old.len()).filter(|i| old[*i] != new[*i]).map(|i| old[i].trim());
    let named = |line: &str| {
        let (names, value) = line.split_once(" = ")?;
        let names = names.chars().all(|c| c.is_alphanumeric() || "_, ".contains(c));
        let changes = ["atomic_", "ticket("].iter().any(|word| value.starts_with(word));
        Some(names && !changes && !value.ends_with('{'))
    };
    let quiet = |line: &str| {
        let registers = ["fill(", "gemm("].iter().any(|word| line.starts_with(word));
        line == changed.statement || registers || named(line).unwrap_or_default()
    };
    Some(passed.into_iter().all(quiet))
}

/// An order of accesses that is there without barriers, and is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By<'a> {
    Nothing,
    /// Stages that are filled and read.
    Pipelines {
        /// True if an engine does some of the asynchronous copies.
        engines: bool,
    },
    /// The threads that hold register tensors.
    Holders,
    /// Barriers at which all threads of a role meet those of others.
    Meetings,
    /// The same, and barriers in the code of statements of the block.
    Statements {
        /// The lines of these.
        lines: &'a [usize],
    },
}

/// The end of a stage's filling, or the beginning of its reading, by a role.
#[derive(Debug)]
struct Event {
    /// The role by its number, 0 for a program without roles.
    role: usize,
    /// The number of the statement that is executed.
    at: usize,
    pipeline: PipelineId,
    kind: EventKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventKind {
    /// All threads of the role fill it, and arrive; or else nobody says who does.
    Filled { by_threads: bool },
    /// All threads of the role wait for it.
    Taken,
}

/// By the statement at which a role waits for a full stage: the last statement that all of its threads have come behind by then, as far as pipelines say. Nothing where roles share a side of a pipeline.
fn ordered(events: &[Event]) -> BTreeMap<usize, usize> {
    let mut sides = BTreeMap::new();
    for event in events {
        let side = (event.pipeline, event.kind == EventKind::Taken);
        if *sides.entry(side).or_insert(event.role) != event.role {
            return BTreeMap::new();
        }
    }
    let mut left: BTreeMap<usize, VecDeque<&Event>> = BTreeMap::new();
    for event in events {
        left.entry(event.role).or_default().push_back(event);
    }
    // By role: how far all threads of each role are known to have come.
    let mut clocks: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    let mut filled: BTreeMap<PipelineId, VecDeque<BTreeMap<usize, usize>>> = BTreeMap::new();
    let mut known = BTreeMap::new();
    let mut moves = true;
    while moves {
        moves = false;
        for (role, events) in &mut left {
            let clock = clocks.entry(*role).or_default();
            while let Some(event) = events.front() {
                let stages = filled.entry(event.pipeline).or_default();
                match event.kind {
                    EventKind::Filled { by_threads } => {
                        let mut said = BTreeMap::new();
                        if by_threads {
                            said.clone_from(clock);
                            said.insert(*role, event.at);
                        }
                        stages.push_back(said);
                    }
                    EventKind::Taken => {
                        let Some(said) = stages.pop_front() else { break };
                        for (role, at) in said {
                            let own = clock.entry(role).or_default();
                            *own = at.max(*own);
                        }
                        known.insert(event.at, clock.get(role).copied().unwrap_or_default());
                    }
                }
                events.pop_front();
                moves = true;
            }
        }
    }
    known
}

struct Walk<'a> {
    program: &'a Program,
    values: Vec<Option<i64>>,
    /// Barriers so far, of the program's text.
    target: usize,
    steps: usize,
    /// The range of the text with the statement of which alone the accesses count, if there is one; and whether it is executed.
    passed: Option<std::ops::Range<usize>>,
    passes: bool,
    /// Accesses since the last barrier, and those before the target, if it was the last; each with the last statement that makes it.
    now: BTreeMap<Access, usize>,
    before: Option<BTreeMap<Access, usize>>,
    groups: Vec<Vec<Access>>,
    open: Vec<Access>,
    products: BTreeSet<Access>,
    staged: Vec<TensorId>,
    by: By<'a>,
    text: &'a str,
    /// By tensor one of those that the same threads hold.
    holders: Vec<TensorId>,
    /// True if the target is a barrier of warpgroups: it orders what threads of one do, and so do the other barriers of warpgroups.
    warpgroups: bool,
    /// True where the condition of a branch around is not known.
    perhaps: bool,
    /// The role by its number, and those so far.
    role: usize,
    roles: usize,
    events: Vec<Event>,
    /// As of [`ordered`].
    known: BTreeMap<usize, usize>,
    crossed: bool,
}

impl Scope for Walk<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.values.get(id.0 as usize).copied().flatten()
    }

    fn block(&self, _axis: Axis) -> Option<i64> {
        Some(0)
    }

    fn element(&self, _param: ParamId, _index: &[i64]) -> Option<i64> {
        None
    }

    fn scalar(&self, param: ParamId) -> Option<i64> {
        self.program.param(param).integer()
    }
}

/// True if two conflicting accesses stand on the two sides of the barrier number `target`, one of them of the statement in line `passed`
/// if it is given; `None` if the program cannot be walked.
fn crossed(text: &str, target: usize, passed: Option<usize>) -> Option<bool> {
    walked(text, target, passed, By::Nothing)
}

/// The same, where accesses do not count that are ordered before the others.
fn walked(text: &str, target: usize, passed: Option<usize>, by: By<'_>) -> Option<bool> {
    let verified = verify(&parse(text).ok()?, &Constants::new()).ok()?;
    let program = verified.program();
    let values: Vec<Option<i64>> = program
        .symbols
        .iter()
        .map(|symbol| match symbol.kind {
            SymbolKind::Size(default) => Some(default),
            _ => verified.constants().get(&symbol.name).copied(),
        })
        .collect();
    let passed = passed.map(|line| {
        let start = text.split_inclusive('\n').take(line).map(str::len).sum::<usize>();
        start..start + text[start..].find('\n').unwrap_or(text.len() - start)
    });
    let mut barriers = Vec::new();
    let ids = number(&program.body, &mut barriers);
    let warpgroups = *barriers.get(target)? == SyncScope::Warpgroup;
    let mut holders: Vec<TensorId> = (0..program.tensors.len() as u32).map(TensorId).collect();
    hold(program, &program.body, &mut holders);
    let walk = |known: BTreeMap<usize, usize>| {
        let mut walk = Walk {
            passed: passed.clone(),
            passes: false,
            program,
            values: values.clone(),
            target,
            steps: 0,
            now: BTreeMap::new(),
            before: None,
            groups: Vec::new(),
            open: Vec::new(),
            products: BTreeSet::new(),
            staged: program.pipelines.iter().flat_map(|p| p.tensors.clone()).collect(),
            by,
            text,
            holders: holders.clone(),
            warpgroups,
            perhaps: false,
            role: 0,
            roles: 0,
            events: Vec::new(),
            known,
            crossed: false,
        };
        walk.body(&program.body, &ids)?;
        walk.end();
        Some(walk)
    };
    let first = walk(BTreeMap::new())?;
    if !matches!(by, By::Pipelines { .. }) || !first.crossed {
        return Some(first.crossed);
    }
    Some(walk(ordered(&first.events))?.crossed)
}

/// Gives the tensors of elementwise statements of one shape, and of atomic operations, one of them each.
fn hold(program: &Program, body: &[Stmt], holders: &mut [TensorId]) {
    for stmt in body {
        let elementwise = matches!(stmt.kind, StmtKind::Elementwise { .. } | StmtKind::Cast { .. });
        if elementwise || stmt.kind.fetch().is_some() {
            let mut tensors: Vec<TensorId> =
                stmt.kind.tensors().into_iter().map(|(_, tensor)| tensor).collect();
            tensors.retain(|tensor| program.tensor(*tensor).memory() == Memory::Register);
            let shape = |tensor: &TensorId| match &program.tensor(*tensor).kind {
                TensorKind::Register { shape, .. } => Some(shape),
                _ => None,
            };
            let Some(first) = tensors.first().copied() else { continue };
            let alike = |tensor: &&TensorId| shape(tensor).is_some() && shape(tensor) == shape(&first);
            for tensor in tensors.iter().filter(alike) {
                let (from, to) = (holders[tensor.0 as usize], holders[first.0 as usize]);
                holders.iter_mut().filter(|holder| **holder == from).for_each(|holder| *holder = to);
            }
        }
        hold(program, stmt.kind.body(), holders);
    }
}

/// True if a copy of a body is asynchronous.
fn copies_asynchronously(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| {
        matches!(stmt.kind, StmtKind::CopyAsync { .. }) || copies_asynchronously(stmt.kind.body())
    })
}

/// The barriers of a body by their order in the text.
#[derive(Debug)]
struct Numbered {
    own: Option<usize>,
    inner: Vec<Numbered>,
}

/// Numbers the barriers of a body behind those before it, whose threads are listed.
fn number(body: &[Stmt], barriers: &mut Vec<SyncScope>) -> Vec<Numbered> {
    body.iter()
        .map(|stmt| {
            let own = if let StmtKind::Sync(scope) = stmt.kind { Some(scope) } else { None };
            let own = own.map(|scope| {
                barriers.push(scope);
                barriers.len() - 1
            });
            Numbered { own, inner: number(stmt.kind.body(), barriers) }
        })
        .collect()
}

impl Walk<'_> {
    fn body(&mut self, body: &[Stmt], ids: &[Numbered]) -> Option<()> {
        for (stmt, id) in body.iter().zip(ids) {
            self.statement(stmt, id)?;
        }
        Some(())
    }

    fn statement(&mut self, stmt: &Stmt, id: &Numbered) -> Option<()> {
        self.steps += 1;
        if self.steps > STEPS {
            return None;
        }
        let start = stmt.span.text().map(|span| span.range().start);
        self.passes = self.passed.as_ref().zip(start).is_some_and(|(line, start)| line.contains(&start));
        let line = start.map(|start| self.text[..start].matches('\n').count());
        let has_barrier =
            matches!((self.by, line), (By::Statements { lines }, Some(line)) if lines.contains(&line));
        // Of a copy and of statements between registers, in no role: what is touched may be so on either side.
        let quiet = matches!(stmt.kind, StmtKind::Copy { .. }) || stmt.kind.references().is_empty();
        let ends = has_barrier && quiet && !stmt.kind.is_barrier() && stmt.kind.body().is_empty();
        self.does(stmt, id)?;
        if ends && self.role == 0 && !self.perhaps {
            self.end();
            self.does(stmt, id)?;
        }
        Some(())
    }

    fn does(&mut self, stmt: &Stmt, id: &Numbered) -> Option<()> {
        match &stmt.kind {
            StmtKind::Sync(scope) if id.own == Some(self.target) => {
                // What several roles order by one is not followed.
                (!matches!(scope, SyncScope::Barrier(_))).then_some(())?;
                // With several in a row, what lies before the first still counts.
                let mut before = self.before.take().unwrap_or_default();
                before.append(&mut self.now);
                self.before = Some(before);
            }
            StmtKind::Sync(SyncScope::All) if !self.perhaps => self.end(),
            StmtKind::Sync(SyncScope::Warpgroup) if self.warpgroups && !self.perhaps => self.end(),
            // All threads of the role come there.
            StmtKind::Sync(SyncScope::Barrier(_)) if self.meets() => self.end(),
            // A barrier of other threads ends nothing, and one that may not be done neither.
            StmtKind::Sync(_) => {}
            StmtKind::For { counter, lo, hi, condition, body } => {
                for i in lo.eval(self)?..hi.eval(self)? {
                    self.values[counter.0 as usize] = Some(i);
                    if let Some(condition) = condition
                        && condition.eval(self)? == 0
                    {
                        break;
                    }
                    self.body(body, &id.inner)?;
                }
            }
            StmtKind::Tiles { row, col, previous, rows, cols, dynamic, body, .. } => {
                // Where blocks take as many tiles each, no more than these are walked.
                let tiles =
                    rows.eval(self).zip(cols.eval(self)).and_then(|(rows, cols)| rows.checked_mul(cols));
                let grid: Option<i64> = self.program.grid.iter().map(|blocks| blocks.eval(self)).product();
                let each = tiles.zip(grid.filter(|blocks| *blocks > 0 && dynamic.is_none()));
                let each = each.map(|(tiles, blocks)| (tiles + blocks - 1) / blocks);
                for i in 0..each.map_or(TILES, |each| each.clamp(1, TILES)) {
                    for symbol in [row, col] {
                        self.values[symbol.0 as usize] = Some(i);
                    }
                    for symbol in previous.iter().flatten() {
                        self.values[symbol.0 as usize] = Some(i - 1);
                    }
                    self.body(body, &id.inner)?;
                }
            }
            StmtKind::Role { body, .. } => {
                // Roles have barriers of their own.
                self.end();
                self.groups.clear();
                self.open.clear();
                self.roles += 1;
                self.role = self.roles;
                self.body(body, &id.inner)?;
                self.role = 0;
                self.end();
            }
            // The number of its iterations is not worked out.
            StmtKind::Break { .. } => return None,
            StmtKind::If { condition, body, .. } => match condition.eval(self) {
                Some(0) => {}
                Some(_) => self.body(body, &id.inner)?,
                None => {
                    let around = std::mem::replace(&mut self.perhaps, true);
                    self.body(body, &id.inner)?;
                    self.perhaps = around;
                }
            },
            // Of these it matters that they are done.
            StmtKind::Commit | StmtKind::Wait(_) | StmtKind::WaitGemm(_) | StmtKind::Stage { .. }
                if self.perhaps =>
            {
                return None;
            }
            StmtKind::Stage { pipeline, side, body } => {
                let (role, pipeline) = (self.role, *pipeline);
                match side {
                    Side::Consume => {
                        self.events.push(Event { role, at: self.steps, pipeline, kind: EventKind::Taken });
                        if let Some(known) = self.known.get(&self.steps).copied() {
                            self.now.retain(|_, at| *at > known);
                            self.before.iter_mut().for_each(|before| before.retain(|_, at| *at > known));
                        }
                        self.body(body, &id.inner)?;
                    }
                    Side::Produce => {
                        self.body(body, &id.inner)?;
                        let engines = self.by != By::Pipelines { engines: false };
                        let by_threads = !(engines && copies_asynchronously(body));
                        let kind = EventKind::Filled { by_threads };
                        self.events.push(Event { role, at: self.steps, pipeline, kind });
                    }
                }
            }
            StmtKind::InTurn { body, .. } => {
                if self.meets() {
                    self.end();
                }
                self.body(body, &id.inner)?;
            }
            StmtKind::Drain { body, .. } | StmtKind::IfAny { body, .. } => {
                self.body(body, &id.inner)?;
            }
            StmtKind::Copy { src, dst, how } => {
                let (changes, fetches) = (how.combine.is_some(), how.fetch.is_some());
                let held = |tensor, other| {
                    let (holders, alone) = self.held(tensor, other)?;
                    Some(Held::Tensor { holders, changes: changes || fetches, fetches, alone })
                };
                let [of_src, of_dst] = [held(dst, src), held(src, dst)];
                self.touch(src, false, of_src);
                self.touch(dst, true, of_dst);
            }
            StmtKind::CopyAsync { src, dst, .. } => {
                for (reference, writes) in [(src, false), (dst, true)] {
                    self.touch(reference, writes, None);
                    let part = self.part(reference);
                    let passes = self.passes;
                    self.open.extend(part.map(|part| Access { part, writes, passes, held: None }));
                }
            }
            StmtKind::Commit => {
                let group = std::mem::take(&mut self.open);
                self.groups.push(group);
            }
            StmtKind::Wait(left) => {
                let left = usize::try_from(left.eval(self)?).ok()?;
                let done = self.groups.len().saturating_sub(left);
                for access in self.groups.drain(..done).flatten().collect::<Vec<_>>() {
                    self.add(access);
                }
            }
            StmtKind::GemmAsync { a, b, scales, .. } => {
                for reference in [a, b].into_iter().chain(scales.iter().flatten()) {
                    let held = Some(Held::Product);
                    self.touch(reference, false, held.clone());
                    let part = self.part(reference);
                    let passes = self.passes;
                    self.products.extend(part.map(|part| Access { part, writes: false, passes, held }));
                }
            }
            StmtKind::WaitGemm(_) => {
                for access in std::mem::take(&mut self.products) {
                    self.add(access);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// True where all threads of the role wait for those of others, and that counts.
    fn meets(&self) -> bool {
        self.by == By::Meetings && self.role > 0 && !self.perhaps
    }

    fn part(&self, reference: &TensorRef) -> Option<Part> {
        let tensor = self.program.tensor(reference.tensor);
        if tensor.memory() == Memory::Register || self.staged.contains(&reference.tensor) {
            return None;
        }
        let param = match &tensor.kind {
            TensorKind::View { param, .. } => Some(*param),
            _ => None,
        };
        let index =
            reference.index.iter().map(|e: &Option<Expr>| e.as_ref().and_then(|e| e.eval(self))).collect();
        Some(Part { tensor: reference.tensor, param, index })
    }

    /// One of the register tensors that the same threads hold as that of a copy, of which the other side is a shared tensor whose indices are all known; and true if one thread holds each element.
    fn held(&self, tensor: &TensorRef, other: &TensorRef) -> Option<(TensorId, bool)> {
        let memory = |reference: &TensorRef| self.program.tensor(reference.tensor).memory();
        let known = |entry: &Option<Expr>| entry.as_ref().is_none_or(|entry| entry.eval(self).is_some());
        let plain = |reference: &TensorRef| reference.indexed.is_none() && !reference.transposed;
        let whole = tensor.index.iter().all(Option::is_none) && other.index.iter().all(known);
        let memories = (memory(tensor), memory(other)) == (Memory::Register, Memory::Shared);
        (whole && plain(tensor) && plain(other) && memories)
            .then(|| (self.holders[tensor.tensor.0 as usize], self.alone(tensor.tensor)))
    }

    /// True of a register tensor with a layout of as many values of threads as it has elements.
    fn alone(&self, tensor: TensorId) -> bool {
        let TensorKind::Register { shape, pinned: Some(layout) } = &self.program.tensor(tensor).kind else {
            return false;
        };
        let elements: Option<i64> = shape.iter().map(|extent| extent.eval(self)).product();
        elements == Some(layout.size())
    }

    fn touch(&mut self, reference: &TensorRef, writes: bool, held: Option<Held>) {
        if let Some(part) = self.part(reference) {
            self.add(Access { part, writes, passes: self.passes, held });
        }
    }

    fn add(&mut self, access: Access) {
        if let Some(before) = &self.before {
            let all = self.passed.is_none();
            self.crossed |= before.keys().any(|other| {
                (all || other.passes || access.passes)
                    && (other.writes || access.writes)
                    && other.part.meets(&access.part)
                    && !(matches!(self.by, By::Holders | By::Statements { .. })
                        && other.precedes(&access, self.warpgroups))
            });
        }
        self.now.insert(access, self.steps);
    }

    /// A barrier that stays, or the end.
    fn end(&mut self) {
        self.now.clear();
        self.before = None;
    }
}

#[cfg(test)]
mod tests {
    use crate::variants::tests::program;

    use super::*;

    #[test]
    fn accesses_of_one_tensor_cross_a_barrier_and_others_do_not() {
        let needed = program("copy(gx, s[:, :, 0])\nsyncthreads()\ncopy(s[:, :, 0], r)\ncopy(r, gy)");
        assert_eq!(crossed(&needed, 0, None), Some(true));
        let other_stage = program("copy(gx, s[:, :, 0])\nsyncthreads()\ncopy(s[:, :, 1], r)\ncopy(r, gy)");
        assert_eq!(crossed(&other_stage, 0, None), Some(false));
        let twice = program("copy(gx, s[:, :, 0])\nsyncthreads()\nsyncthreads()\ncopy(s[:, :, 0], r)");
        assert_eq!((crossed(&twice, 0, None), crossed(&twice, 1, None)), (Some(false), Some(false)));
        let around = program(
            "for i in 0..2 {\ncopy(gx, s[:, :, 0])\nsyncthreads()\ncopy(s[:, :, 0], r)\nsyncthreads()\n}",
        );
        let aside = program("copy(gx, s[:, :, 0])\ncopy(gx, s[:, :, 1])\nsyncthreads()\ncopy(s[:, :, 0], r)");
        assert_eq!((crossed(&aside, 0, Some(6)), crossed(&aside, 0, Some(7))), (Some(true), Some(false)));
        assert_eq!((crossed(&around, 0, None), crossed(&around, 1, None)), (Some(true), Some(true)));
    }

    #[test]
    fn threads_that_hold_a_tensor_need_no_barrier_for_its_elements() {
        let between = |first: &str, second: &str| {
            let text = program(&format!(
                "q = register_tensor(f32, [64, 64])\nfill(q, 1.0)\n{first}\nsyncthreads()\n{second}"
            ));
            (crossed(&text, 0, None), walked(&text, 0, None, By::Holders))
        };
        let change = "old = atomic_add(s[:, :, 0], r + 1.0)";
        assert_eq!(between("copy(r, s[:, :, 0])", change), (Some(true), Some(false)));
        assert_eq!(between(change, "copy(s[:, :, 0], r)"), (Some(true), Some(false)));
        assert_eq!(between(change, "copy(s[:, :, 0], q)"), (Some(true), Some(true)));
        assert_eq!(between("copy(r, s[:, :, 0])", "copy(s[:, :, 0], r)"), (Some(true), Some(true)));
        assert_eq!(between("copy(s[:, :, 0], r)", change), (Some(true), Some(true)));
        let combined = "copy(r, s[:, :, 0], add)";
        assert_eq!(between("copy(r, s[:, :, 0])", combined), (Some(true), Some(false)));
        assert_eq!(between(combined, "copy(s[:, :, 0], r)"), (Some(true), Some(true)));
        // Each element has one thread, by its layout.
        let alone = "a = register_tensor(f32, [64, 64], layout = (64, 64) : (64, 1))\nfill(a, 0.0)\ncopy(s[:, :, 0], a)";
        assert_eq!(between(alone, "copy(a, s[:, :, 0])"), (Some(true), Some(false)));
        assert_eq!(between(alone, "copy(r, s[:, :, 0])"), (Some(true), Some(true)));
    }

    #[test]
    fn a_block_with_one_tile_has_nothing_of_another() {
        let of = |blocks: i64| {
            program("for (i, j) in tiles(4, 2) {\nsyncthreads()\ncopy(r, s[:, :, 0])\nsyncthreads()\ncopy(s[:, :, 0], r)\n}")
                .replace("grid(1)", &format!("grid({blocks})"))
        };
        assert_eq!([2, 8].map(|blocks| crossed(&of(blocks), 0, None)), [Some(true), Some(false)]);
        assert_eq!(crossed(&of(8), 1, None), Some(true));
    }

    #[test]
    fn a_barrier_moves_over_values_alone() {
        let moved = |passed: &str| {
            let base = format!("copy(r, s)\nsyncthreads()\n{passed}\n");
            let later = crate::syncs::changes(&base).into_iter().find(|c| c.change == Change::Later);
            later.and_then(|changed| moved_over_nothing(&base, &changed))
        };
        let passed = [
            "gemm(acc, a, b)",
            "r = r * 2.0",
            "a, b = split(r, 0)",
            "fill(r, 0.0)",
            "gx = global_view(x, (64) : (e0))",
        ];
        assert!(passed.iter().all(|line| moved(line) == Some(true)));
        let others = [
            "gemm.async(acc, s, t)",
            "copy(s, r, outside = 3.0)",
            "old = atomic_add(s, r)",
            "for i in 0..4 {",
            "}",
        ];
        assert!(others.iter().all(|line| moved(line) != Some(true)));
    }

    #[test]
    fn barriers_of_other_statements_end_what_is_before_them() {
        let text = program("copy(r, s[:, :, 0])\nsyncthreads()\nq = rearrange(r)\ncopy(s[:, :, 0], q)");
        let with = |words: &str| {
            let lines: Vec<usize> = text.lines().position(|line| line == words).into_iter().collect();
            walked(&text, 0, None, By::Statements { lines: &lines })
        };
        assert_eq!((with("q = rearrange(r)"), with("copy(s[:, :, 0], q)")), (Some(false), Some(true)));
    }

    #[test]
    fn a_role_that_begins_a_turn_has_met_itself() {
        let role = |name: &str, tile: &str| {
            format!(
                "warpgroup {name}(1) {{\nr{name} = register_tensor(f32, [64, 64])\ncopy(gx, r{name})\ncopy(r{name}, {tile})\n\
                 syncthreads()\nin_turn t {{\ncopy({tile}, r{name})\n}}\nsyncthreads()\ncopy(r{name}, {tile})\n}}\n"
            )
        };
        let text = format!(
            "kernel f(x: f32[64, 64]) grid(1) threads(256)\n{{\ngx = global_view(x, (64, 64) : (e0, e1))\n\
             s = shared_tensor(f32, [64, 64])\nu = shared_tensor(f32, [64, 64])\nt = turns()\n{}{}}}\n",
            role("a", "s"),
            role("b", "u")
        );
        let all = |by| [0, 1, 2, 3].map(|barrier| walked(&text, barrier, None, by));
        assert_eq!(all(By::Nothing), [Some(true); 4]);
        // Behind the turn there is nothing but the barrier.
        assert_eq!(all(By::Meetings), [Some(false), Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn branches_may_or_may_not_be_taken() {
        let text = program(
            "copy(r, s[:, :, 0])\nif kinds[0] > 1 {\nsyncthreads()\n}\ncopy(s[:, :, 1], r)\nsyncthreads()\ncopy(s[:, :, 0], r)",
        )
        .replace("kernel f(", "kernel f(kinds: i32[4], ");
        assert_eq!((crossed(&text, 0, None), crossed(&text, 1, None)), (Some(false), Some(true)));
    }

    #[test]
    fn a_warpgroup_waits_for_its_products_as_one() {
        let of = |barrier: &str| {
            format!(
                "kernel f(c: f32[64, 64]) grid(1) threads(128)\n{{\ngc = global_view(c, (64, 64) : (e0, e1))\n\
                 s = shared_tensor(f16, [64, 64])\nt = shared_tensor(f16, [64, 64])\nr = register_tensor(f16, [64, 64])\n\
                 acc = register_tensor(f32, [64, 64])\nfill(acc, 0.0)\nfill(r, 1.0)\ncopy(r, s)\ncopy(r, t)\nsyncthreads()\n\
                 gemm.async(acc, s, t)\ncommit_gemm()\nwait_gemm(0)\n{barrier}\ncopy(r, s)\ncopy(acc, gc)\n}}\n"
            )
        };
        let ordered = |text: &str| (crossed(text, 1, None), walked(text, 1, None, By::Holders));
        assert_eq!(ordered(&of("syncthreads(warpgroup)")), (Some(true), Some(false)));
        assert_eq!(ordered(&of("syncthreads()")), (Some(true), Some(true)));
        // Barriers of warpgroups order the same.
        let [twice, thrice] = [2, 3].map(|count| vec!["syncthreads(warpgroup)"; count].join("\n"));
        assert_eq!(
            (crossed(&of(&twice), 1, None), crossed(&of(&thrice), 2, None)),
            (Some(false), Some(false))
        );
    }

    /// Two barriers behind a stage, of which a pipeline that threads fill makes the first needless.
    fn staged(produced: &str) -> String {
        program(&format!(
            "t = shared_tensor(f32, [64, 64])\np = pipeline(2, t)\nfor i in 0..3 {{\nproduce p {{ {produced} }}\n\
             consume p {{ copy(t, r) }}\nsyncthreads()\ncopy(r, s[:, :, 0])\nsyncthreads()\ncopy(s[:, :, 0], gy)\n}}"
        ))
    }

    #[test]
    fn threads_that_fill_a_stage_have_done_what_is_before_it() {
        let by_pipelines =
            |text: &str, barrier, engines| walked(text, barrier, None, By::Pipelines { engines });
        let threads = staged("copy(gx, t)");
        assert_eq!((crossed(&threads, 0, None), crossed(&threads, 1, None)), (Some(true), Some(true)));
        assert_eq!(
            (by_pipelines(&threads, 0, true), by_pipelines(&threads, 1, true)),
            (Some(false), Some(true))
        );
        // Of an engine's copies nobody but the one who issues them arrives.
        let copies = staged("copy.async(gx, t)");
        assert_eq!(
            (by_pipelines(&copies, 0, true), by_pipelines(&copies, 0, false)),
            (Some(true), Some(false))
        );
    }

    #[test]
    fn roles_hand_on_how_far_the_others_are() {
        let both = |first: &str| {
            format!(
                "kernel f(x: f32[64, 64], y: f32[64, 64]) grid(1) threads(256)\n{{\n\
                 gx = global_view(x, (64, 64) : (e0, e1))\ngy = global_view(y, (64, 64) : (e0, e1))\n\
                 s = shared_tensor(f32, [64, 64])\nt = shared_tensor(f32, [64, 64])\nu = shared_tensor(f32, [64, 64])\n\
                 there = pipeline(1, t)\nback = pipeline(1, u)\n\
                 warpgroup a(1) {{\nr = register_tensor(f32, [64, 64])\ncopy(gx, r)\ncopy(r, s)\nsyncthreads()\n{first}\n\
                 consume back {{ copy(u, r) }}\ncopy(s, r)\ncopy(r, gy)\n}}\n\
                 warpgroup b(1) {{\nq = register_tensor(f32, [64, 64])\nconsume there {{ copy(t, q) }}\n\
                 produce back {{ copy(q, u) }}\n}}\n}}\n"
            )
        };
        let exchanged = both("produce there { copy(r, t) }");
        assert_eq!(
            (crossed(&exchanged, 0, None), walked(&exchanged, 0, None, By::Pipelines { engines: true })),
            (Some(true), Some(false))
        );
        let by_an_engine = both("produce there { copy.async(gx, t) }");
        assert_eq!(walked(&by_an_engine, 0, None, By::Pipelines { engines: true }), Some(true));
    }
}
