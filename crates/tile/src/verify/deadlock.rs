//! Deadlocks that no size of a launch avoids: roles that wait for stages in a circle, and counts of filled and read stages that never
//! match.
//!
//! The stages that block 0 fills and reads are listed role by role as far as the text tells, and the lists are run against each other. A
//! role whose list breaks off (a loop around stages of which only a least number of iterations is known, a branch around stages whose condition is not) is taken to fill and
//! release whatever the others wait for, and products in flight to hold no stage: what deadlocks all the same does so in every launch.

use std::collections::BTreeMap;

use super::stage::stages_of;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, IntOp, SymbolId};
use crate::interpret::{Wait, WaitFor, who};
use crate::interval::Interval;
use crate::program::{PipelineId, Program, Side, Stmt, StmtKind};

/// The most statements that are walked, and so events in the lists.
const FUEL: usize = 20_000;

/// The deadlock of a program whose statements are legal each for itself, or the stages that are filled and never read.
pub(super) fn check(program: &Program) -> Vec<Diagnostic> {
    if program.pipelines.is_empty() {
        return Vec::new();
    }
    let mut run = Run { program, roles: roles(program) };
    run.run_run_to_end();
    run.deadlock().map_or_else(|| run.unread(), |error| vec![error])
}

/// A side of a pipeline begins or ends a stage.
#[derive(Clone, Copy)]
struct Event {
    pipeline: PipelineId,
    side: Side,
    begins: bool,
    span: Origin,
}

/// The events of a role.
struct Role {
    name: Option<String>,
    events: Vec<Event>,
    /// True if the list is complete.
    complete: bool,
    /// The pipelines that it fills or reads anywhere.
    sides: Vec<(PipelineId, Side)>,
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

/// The roles of a program; one without a name where there are none.
fn roles(program: &Program) -> Vec<Role> {
    let role = |name: Option<String>, body: &[Stmt]| {
        let mut list = List { program, values: BTreeMap::new(), events: Vec::new(), fuel: FUEL };
        let complete = list.block(body).is_some();
        let mut sides = Vec::new();
        body.iter().for_each(|stmt| sides.extend(stages_of(&stmt.kind)));
        Role { name, events: list.events, complete, sides, at: 0, counts: BTreeMap::new() }
    };
    let roles: Vec<Role> = program
        .body
        .iter()
        .filter_map(|stmt| match &stmt.kind {
            StmtKind::Role { name, body, .. } => Some(role(Some(name.clone()), body)),
            _ => None,
        })
        .collect();
    if roles.is_empty() { vec![role(None, &program.body)] } else { roles }
}

/// A list of events under way.
struct List<'a> {
    program: &'a Program,
    /// Counters with known values.
    values: BTreeMap<SymbolId, i64>,
    events: Vec<Event>,
    fuel: usize,
}

impl List<'_> {
    fn interval(&self, expr: &Expr) -> Interval {
        Interval::of(self.program, expr, Some(0), &|counter| self.values.get(&counter).copied())
    }

    /// Lists the events of statements; `None` where what follows is not known.
    fn block(&mut self, body: &[Stmt]) -> Option<()> {
        body.iter().try_for_each(|stmt| self.statement(stmt))
    }

    fn statement(&mut self, stmt: &Stmt) -> Option<()> {
        self.fuel = self.fuel.checked_sub(1)?;
        match &stmt.kind {
            StmtKind::Stage { pipeline, side, body, .. } => {
                let event = |begins| Event { pipeline: *pipeline, side: *side, begins, span: stmt.span };
                self.events.push(event(true));
                self.block(body)?;
                self.events.push(event(false));
                Some(())
            }
            // Each role has a list of its own.
            StmtKind::Role { .. } => Some(()),
            kind if stages_of(kind).is_empty() => Some(()),
            // It may end at any iteration.
            StmtKind::For { condition: Some(_), .. } => None,
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
}

impl Run<'_> {
    fn stages(&self, pipeline: PipelineId) -> Option<usize> {
        usize::try_from(self.program.pipeline(pipeline).stages.as_int()?).ok()
    }

    /// The roles that a role waits for at its next event.
    fn waits_for(&self, role: &Role) -> Vec<&Role> {
        let Some(event) = role.events.get(role.at).filter(|event| event.begins) else { return Vec::new() };
        let Event { pipeline, side, .. } = *event;
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
            let event = role.events[role.at];
            let counts = role.counts.entry((event.pipeline, event.side == Side::Produce)).or_default();
            counts[usize::from(!event.begins)] += 1;
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
        let help = if self.roles.iter().any(|role| role.complete && role.at == role.events.len()) {
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
        let [number, _] = role.count(event.pipeline, event.side);
        let pipeline = self.program.pipeline(event.pipeline).name.clone();
        let (stage, time) = (number % self.stages(event.pipeline)?.max(1), number + 1);
        let what = match event.side {
            Side::Produce => WaitFor::Free { pipeline, stage, time, by },
            Side::Consume => WaitFor::Full { pipeline, stage, time, by },
        };
        Some(Wait { role: role.name.clone(), block: None, what, span: event.span })
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
                    let is_last = |event: &&Event| event.pipeline == id && event.side == Side::Produce;
                    let span = producer.events.iter().rfind(is_last).map_or(row.span, |event| event.span);
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
