//! Deadlocks that no size of a launch avoids: roles that wait for stages in a circle, and counts of filled and read stages that never
//! match.
//!
//! The stages that block 0 fills and reads are listed role by role as far as the text tells, and the lists are run against each other. A
//! role whose list breaks off (a loop around stages of which only a least number of iterations is known, a branch around stages whose condition is not) is taken to fill and
//! release whatever the others wait for, to come to every named barrier, and products in flight to hold no stage: what deadlocks all the same does so in every launch.

use std::collections::BTreeMap;

use super::stage::stages_of;
use crate::barriers::{Turns, barriers_of};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, IntOp, SymbolId};
use crate::interpret::{Wait, WaitFor, who};
use crate::interval::Interval;
use crate::program::{BarrierId, PipelineId, Program, Side, Stmt, StmtKind, SyncScope, TileOrder};

/// The most statements that are walked, and so events in the lists.
const FUEL: usize = 20_000;

/// The deadlock of a program whose statements are legal each for itself, or the stages that are filled and never read.
pub(super) fn check(program: &Program) -> Vec<Diagnostic> {
    if program.pipelines.is_empty() && program.barriers.is_empty() {
        return Vec::new();
    }
    let (roles, turns) = roles(program);
    let mut run = Run { program, roles, turns };
    run.run_run_to_end();
    run.deadlock().map_or_else(|| run.unread(), |error| vec![error])
}

/// An event of a role.
#[derive(Clone, Copy)]
enum Event {
    /// A side of a pipeline begins or ends a stage.
    Stage { pipeline: PipelineId, side: Side, begins: bool, span: Origin },
    /// It comes to a named barrier.
    Comes(BarrierId),
    /// It waits there for all that have to come.
    Waits { barrier: BarrierId, span: Origin },
}

/// The events of a role.
struct Role {
    name: Option<String>,
    events: Vec<Event>,
    /// True if the list is complete.
    complete: bool,
    /// The pipelines that it fills or reads anywhere.
    sides: Vec<(PipelineId, Side)>,
    /// The named barriers to which it comes anywhere, and the number of times that it has come.
    came: BTreeMap<BarrierId, usize>,
    /// The next event.
    at: usize,
    /// Number of stages begun and ended, by pipeline and whether it fills them.
    counts: BTreeMap<(PipelineId, bool), [usize; 2]>,
}

impl Role {
    /// True if what it does from here on is not known.
    fn is_open(&self) -> bool {
        !self.complete && self.at == self.events.len()
    }

    fn count(&self, pipeline: PipelineId, side: Side) -> [usize; 2] {
        self.counts.get(&(pipeline, side == Side::Produce)).copied().unwrap_or_default()
    }

    fn has(&self, pipeline: PipelineId, side: Side) -> bool {
        self.sides.contains(&(pipeline, side))
    }
}

/// The roles of a program, one without a name where there are none; and the turns that they take.
fn roles(program: &Program) -> (Vec<Role>, BTreeMap<BarrierId, Turns>) {
    let bodies: Vec<&[Stmt]> = program
        .body
        .iter()
        .filter(|stmt| matches!(stmt.kind, StmtKind::Role { .. }))
        .map(|stmt| stmt.kind.body())
        .collect();
    let turns = Turns::of(&program.barriers, &bodies);
    let role = |name: Option<String>, number: usize, body: &[Stmt]| {
        let of_role = |turn: fn(&Turns, usize) -> Option<BarrierId>| {
            turns.values().filter_map(move |turns| turn(turns, number)).collect::<Vec<_>>()
        };
        let mut list = List {
            program,
            turns: &turns,
            role: number,
            values: BTreeMap::new(),
            events: Vec::new(),
            fuel: FUEL,
        };
        list.events.extend(of_role(Turns::begins).into_iter().map(Event::Comes));
        let complete = list.block(body).is_some();
        if complete {
            for barrier in of_role(Turns::ends) {
                let span = list.last_turn(barrier);
                list.events.extend([Event::Comes(barrier), Event::Waits { barrier, span }]);
            }
        }
        let mut sides = Vec::new();
        body.iter().for_each(|stmt| sides.extend(stages_of(&stmt.kind)));
        let named = barriers_of(body).into_iter().filter(|id| !turns.contains_key(id));
        let own = [Turns::waits, Turns::passes].into_iter().flat_map(of_role);
        let came = named.chain(own).map(|barrier| (barrier, 0)).collect();
        Role { name, events: list.events, complete, sides, came, at: 0, counts: BTreeMap::new() }
    };
    let roles: Vec<Role> = program
        .body
        .iter()
        .filter_map(|stmt| match &stmt.kind {
            StmtKind::Role { name, body, .. } => Some((name, body)),
            _ => None,
        })
        .enumerate()
        .map(|(number, (name, body))| role(Some(name.clone()), number, body))
        .collect();
    let roles = if roles.is_empty() { vec![role(None, 0, &program.body)] } else { roles };
    (roles, turns)
}

/// A list of events under way.
struct List<'a> {
    program: &'a Program,
    turns: &'a BTreeMap<BarrierId, Turns>,
    /// The number of the role.
    role: usize,
    /// Counters with known values.
    values: BTreeMap<SymbolId, i64>,
    events: Vec<Event>,
    fuel: usize,
}

impl List<'_> {
    fn interval(&self, expr: &Expr) -> Interval {
        Interval::of(self.program, expr, Some(0), &|counter| self.values.get(&counter).copied())
    }

    /// The place of the last turn that waits at a barrier.
    fn last_turn(&self, wanted: BarrierId) -> Origin {
        let waits = |event: &Event| match event {
            Event::Waits { barrier, span } if *barrier == wanted => Some(*span),
            _ => None,
        };
        self.events.iter().rev().find_map(waits).unwrap_or(Origin::Unknown)
    }

    /// Lists the events of statements; `None` where what follows is not known.
    fn block(&mut self, body: &[Stmt]) -> Option<()> {
        body.iter().try_for_each(|stmt| self.statement(stmt))
    }

    fn statement(&mut self, stmt: &Stmt) -> Option<()> {
        self.fuel = self.fuel.checked_sub(1)?;
        match &stmt.kind {
            StmtKind::Stage { pipeline, side, body, .. } => {
                let event =
                    |begins| Event::Stage { pipeline: *pipeline, side: *side, begins, span: stmt.span };
                self.events.push(event(true));
                self.block(body)?;
                self.events.push(event(false));
                Some(())
            }
            // Each role has a list of its own.
            StmtKind::Role { .. } => Some(()),
            StmtKind::Arrive(barrier) => {
                self.events.push(Event::Comes(*barrier));
                Some(())
            }
            StmtKind::Sync(SyncScope::Barrier(barrier)) => {
                let waits = Event::Waits { barrier: *barrier, span: stmt.span };
                self.events.extend([Event::Comes(*barrier), waits]);
                Some(())
            }
            StmtKind::InTurn { turns, body } => {
                let Some(turns) = self.turns.get(turns) else { return self.block(body) };
                let [waits, passes] = [turns.waits(self.role), turns.passes(self.role)];
                if let Some(barrier) = waits {
                    self.events.extend([Event::Comes(barrier), Event::Waits { barrier, span: stmt.span }]);
                }
                self.block(body)?;
                self.events.extend(passes.map(Event::Comes));
                Some(())
            }
            kind if stages_of(kind).is_empty() && barriers_of(kind.body()).is_empty() => Some(()),
            // It may end at any iteration.
            StmtKind::For { condition: Some(_), .. } => None,
            kind if kind.may_break() => None,
            StmtKind::For { counter, lo, hi, body, .. } => {
                let (lo, hi) = (self.interval(lo), self.interval(hi));
                for i in 0..lo.least_iterations(hi) {
                    if let Some(first) = lo.value() {
                        self.values.insert(*counter, first + i);
                    }
                    self.block(body)?;
                    self.values.remove(counter);
                }
                lo.value().and(hi.value()).map(|_| ())
            }
            StmtKind::If { condition, body, .. } => match self.interval(condition).value() {
                Some(0) => Some(()),
                Some(_) => self.block(body),
                None => None,
            },
            // Which block does a tile, or whether one does, is not known.
            StmtKind::Tiles { dynamic: Some(_), .. } => None,
            StmtKind::Tiles { order: TileOrder::Listed { .. }, .. } => None,
            StmtKind::Tiles { rows, cols, body, .. } => {
                // Block 0 does the first tile, and how many more the grid decides.
                let tiles = self.interval(rows).apply(IntOp::Mul, self.interval(cols));
                if tiles.least().is_some_and(|tiles| tiles > 0) {
                    self.block(body)?;
                }
                None
            }
            kind => self.block(kind.body()),
        }
    }
}

/// The roles on their way.
struct Run<'a> {
    program: &'a Program,
    roles: Vec<Role>,
    turns: BTreeMap<BarrierId, Turns>,
}

impl Run<'_> {
    fn stages(&self, pipeline: PipelineId) -> Option<usize> {
        usize::try_from(self.program.pipeline(pipeline).stages.as_int()?).ok()
    }

    /// The roles that a role waits for at its next event.
    fn waits_for(&self, role: &Role) -> Vec<&Role> {
        let (pipeline, side) = match role.events.get(role.at) {
            Some(Event::Stage { pipeline, side, begins: true, .. }) => (*pipeline, *side),
            Some(Event::Waits { barrier, .. }) => {
                let time = role.came.get(barrier).copied().unwrap_or(0);
                let late = |peer: &&Role| peer.came.get(barrier).is_some_and(|came| *came < time);
                return self.roles.iter().filter(|peer| !peer.is_open()).filter(late).collect();
            }
            Some(Event::Stage { .. } | Event::Comes(_)) | None => return Vec::new(),
        };
        let [begun, _] = role.count(pipeline, side);
        let late = |peer: &&Role| match side {
            Side::Produce => {
                let [_, released] = peer.count(pipeline, Side::Consume);
                let stages = self.stages(pipeline);
                peer.has(pipeline, Side::Consume) && stages.is_some_and(|stages| released + stages <= begun)
            }
            Side::Consume => {
                let [_, filled] = peer.count(pipeline, Side::Produce);
                peer.has(pipeline, Side::Produce) && filled <= begun
            }
        };
        self.roles.iter().filter(|peer| !peer.is_open()).filter(late).collect()
    }

    fn run_run_to_end(&mut self) {
        loop {
            let next = (0..self.roles.len()).find(|i| {
                self.roles[*i].at < self.roles[*i].events.len() && self.waits_for(&self.roles[*i]).is_empty()
            });
            let Some(role) = next.map(|i| &mut self.roles[i]) else { return };
            match role.events[role.at] {
                Event::Stage { pipeline, side, begins, .. } => {
                    let counts = role.counts.entry((pipeline, side == Side::Produce)).or_default();
                    counts[usize::from(!begins)] += 1;
                }
                Event::Comes(barrier) => *role.came.entry(barrier).or_default() += 1,
                Event::Waits { .. } => {}
            }
            role.at += 1;
        }
    }

    /// The error about roles that wait for ever.
    fn deadlock(&self) -> Option<Diagnostic> {
        let waits: Vec<Wait> = self.roles.iter().filter_map(|role| self.wait(role)).collect();
        let first = waits.first()?;
        let list: Vec<String> = waits.iter().map(Wait::to_string).collect();
        let message = format!("deadlock at every size: {}", list.join("; "));
        let full = |wait: &Wait| matches!(wait.what, WaitFor::Full { .. });
        let barrier = |wait: &Wait| matches!(wait.what, WaitFor::Barrier { .. });
        let help = if waits.iter().all(barrier) {
            "roles come to their barriers in one order, and equally often"
        } else if self.roles.iter().any(|role| role.complete && role.at == role.events.len()) {
            "a role reads as many stages as are filled"
        } else if waits.iter().all(full) {
            "where pipelines lead in a circle, one role fills a stage before it reads one"
        } else {
            "fill and read the stages in one order, or give the pipelines more stages"
        };
        let label = |wait: &Wait| format!("{} waits here", wait.who());
        let error = Diagnostic::new(Code::Deadlock, first.span, message).label(label(first)).help(help);
        Some(waits[1..].iter().fold(error, |error, wait| error.related(wait.span, label(wait))))
    }

    /// The wait of a role at its next event, if it waits there.
    fn wait(&self, role: &Role) -> Option<Wait> {
        let event = role.events.get(role.at)?;
        let name = |peer: &Role| {
            let name = who(&peer.name);
            let ended = peer.at == peer.events.len();
            if ended { format!("{name} (which has ended)") } else { name }
        };
        let by = self.waits_for(role).into_iter().map(name).collect();
        let (pipeline, side, span) = match *event {
            Event::Stage { pipeline, side, span, .. } => (pipeline, side, span),
            Event::Waits { barrier, span } => {
                let time = role.came.get(&barrier).copied().unwrap_or(0);
                let statement = self.statement_at(barrier);
                let what = WaitFor::Barrier { statement, time: Some(time), by };
                return Some(Wait { role: role.name.clone(), block: None, what, span });
            }
            Event::Comes(_) => return None,
        };
        let [number, _] = role.count(pipeline, side);
        let stages = self.stages(pipeline)?.max(1);
        let (stage, time) = (number % stages, number + 1);
        let pipeline = self.program.pipeline(pipeline).name.clone();
        let what = match side {
            Side::Produce => WaitFor::Free { pipeline, stage, stages, time, by },
            Side::Consume => WaitFor::Full { pipeline, stage, time, by },
        };
        Some(Wait { role: role.name.clone(), block: None, what, span })
    }

    /// The statement that waits at a barrier, without a body.
    fn statement_at(&self, barrier: BarrierId) -> String {
        let mut all = self.turns.iter();
        let of = |turns: &Turns| turns.roles.iter().any(|(_, other)| *other == barrier);
        match all.find(|(_, turns)| of(turns)) {
            Some((id, _)) => format!("in_turn {}", self.program.barrier(*id).name),
            None => format!("syncthreads({})", self.program.barrier(barrier).name),
        }
    }

    /// Errors about stages that a role fills and one that reads them does not.
    fn unread(&self) -> Vec<Diagnostic> {
        let mut errors = Vec::new();
        let complete = || self.roles.iter().filter(|role| role.complete);
        for (i, row) in self.program.pipelines.iter().enumerate() {
            let id = PipelineId(i as u32);
            for producer in complete().filter(|role| role.has(id, Side::Produce)) {
                let [filled, _] = producer.count(id, Side::Produce);
                for reader in complete().filter(|role| role.has(id, Side::Consume)) {
                    let [read, _] = reader.count(id, Side::Consume);
                    let fills = |event: &Event| match event {
                        Event::Stage { pipeline, side: Side::Produce, span, .. } if *pipeline == id => {
                            Some(*span)
                        }
                        _ => None,
                    };
                    let span = producer.events.iter().rev().find_map(fills).unwrap_or(row.span);
                    if read < filled {
                        let message = format!(
                            "{} fills {filled} stages of `{}`, and {} reads {read} of them",
                            who(&producer.name),
                            row.name,
                            who(&reader.name)
                        );
                        let help = "a role that reads a pipeline reads every stage";
                        errors.push(Diagnostic::new(Code::Misplaced, span, message).help(help));
                    }
                }
            }
        }
        errors
    }
}
