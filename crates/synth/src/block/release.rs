//! The release of pipeline stages: how many stay unreleased because products in flight read them, at each statement that releases some.
//!
//! A stage is free once its `consume` has ended and every group of products that reads it has been waited for; those of a pipeline
//! become free in their order, for in that order they are filled again. So a group has an *age*, the groups committed since, and
//! `wait_gemm(n)` covers those of age `n` and more.
//!
//! The statements of a part are walked with all states that can be there: for each pipeline the stages that are held back, oldest
//! first, each with the age of the last group that reads it. Where all states that reach a statement want as many stages released
//! as a count of unreleased ones tells, that count is kept in a register, or nothing. Elsewhere registers count the held stages by age.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::Memory;
use tilewright_tile::core::{Program, Stmt, StmtKind};
use tilewright_tile::{PipelineId, Side, StmtId};

use crate::divisibility::Divisibility;
use crate::plan::ReleaseDelay;

/// The largest age that is told from larger ones: any wait covers it.
const OLD: u8 = 7;
/// The most states that are walked with; where there are more, registers count.
const STATES: usize = 256;
/// The most rounds of a loop that are walked one by one.
const ROUNDS: i64 = 16;

/// The stages of a pipeline that a statement releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// `n` stages.
    Exactly(u32),
    /// The unreleased ones beyond the latest `keep`.
    Above {
        /// Stages that stay unreleased.
        keep: u32,
        /// The most that are released.
        most: u32,
    },
}

/// Registers in which a consumer keeps track of its unreleased stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracking {
    /// Nothing: each stage is released at the end of its `consume`.
    Immediate,
    /// The number of the oldest one.
    Oldest,
    /// That, and how many there are.
    Count,
    /// That, and how many there are of each age.
    ByAge,
}

/// The points at which a part releases stages.
#[derive(Default)]
pub struct ReleasePlan {
    tracking: BTreeMap<PipelineId, Tracking>,
    /// By the statement, a `wait_gemm` or a `consume`, whose end counts.
    points: BTreeMap<(StmtId, PipelineId), Release>,
    /// By `commit_gemm` the pipelines whose stage at hand its group reads.
    commits: BTreeMap<StmtId, BTreeSet<PipelineId>>,
    /// The most groups that a wait leaves in flight.
    ages: u32,
    /// The most stages that are unreleased when a `consume` has ended.
    delays: BTreeMap<PipelineId, u32>,
}

impl ReleasePlan {
    /// Walks the statements of a part.
    pub fn new(program: &Program, divisibility: &Divisibility<'_>) -> ReleasePlan {
        let mut walk = Walk {
            program,
            divisibility,
            seen: BTreeMap::new(),
            plan: ReleasePlan::default(),
            overflow: false,
            breaks: BTreeSet::new(),
        };
        let ids = (0..program.pipelines.len()).map(|i| PipelineId(i as u32));
        let begin: State = ids.clone().map(|id| (id, Stages::default())).collect();
        walk.block(&program.body, BTreeSet::from([begin]), None);
        let Walk { seen, overflow, mut plan, .. } = walk;
        for id in ids {
            let of_id = seen.iter().filter(|((_, of), _)| *of == id);
            let of_id: Vec<(StmtId, &BTreeSet<Seen>)> = of_id.map(|((at, _), seen)| (*at, seen)).collect();
            let points = of_id.iter().map(|(at, seen)| Some(((*at, id), give_back(seen)?)));
            let points = points.collect::<Option<BTreeMap<_, _>>>().filter(|_| !overflow);
            let tracking = match &points {
                None => Tracking::ByAge,
                _ if of_id.iter().all(|(_, seen)| at_once(seen)) => Tracking::Immediate,
                Some(points) if points.values().any(|give| matches!(give, Release::Above { .. })) => {
                    Tracking::Count
                }
                Some(_) => Tracking::Oldest,
            };
            plan.tracking.insert(id, tracking);
            if matches!(tracking, Tracking::Oldest | Tracking::Count) {
                plan.points.extend(points.into_iter().flatten());
            }
        }
        plan
    }

    /// The registers for the unreleased stages of a pipeline.
    pub fn tracking(&self, id: PipelineId) -> Tracking {
        self.tracking.get(&id).copied().unwrap_or(Tracking::Immediate)
    }

    /// Stages that stay unreleased behind the end of their `consume`.
    pub fn delay(&self, id: PipelineId) -> ReleaseDelay {
        match self.tracking(id) {
            Tracking::ByAge => ReleaseDelay::Counted,
            _ => ReleaseDelay::Stages(self.delays.get(&id).copied().unwrap_or(0)),
        }
    }

    /// The stages of a pipeline that a statement releases, if a count of unreleased ones tells it.
    pub fn at(&self, statement: StmtId, id: PipelineId) -> Release {
        self.points.get(&(statement, id)).copied().unwrap_or(Release::Exactly(0))
    }

    /// True if the group that a statement commits reads the stage at hand of a pipeline.
    pub fn commits(&self, statement: StmtId, id: PipelineId) -> bool {
        self.commits.get(&statement).is_some_and(|ids| ids.contains(&id))
    }

    /// Ages that are told apart: the most groups that a wait leaves in flight.
    pub fn ages(&self) -> u32 {
        self.ages
    }
}

/// The groups that the wait leaves in flight at which a `consume` ends: what it covers is given back with the stage.
fn wait_at_the_end(body: &[Stmt]) -> Option<i64> {
    match body.last().map(|stmt| &stmt.kind) {
        Some(StmtKind::WaitGemm(groups)) => Some(*groups),
        _ => None,
    }
}

/// Stages that are held back before a statement and, of those, after it, in one state.
type Seen = (u32, u32);

/// The release that gives back the right number of stages in every state, if a count of held stages tells it.
fn give_back(seen: &BTreeSet<Seen>) -> Option<Release> {
    let given: BTreeSet<u32> = seen.iter().map(|(before, after)| before - after).collect();
    let most = given.last().copied().unwrap_or(0);
    if given.len() <= 1 {
        return Some(Release::Exactly(most));
    }
    let keep: BTreeSet<u32> =
        seen.iter().filter(|(before, after)| before > after).map(|(_, after)| *after).collect();
    let keep = keep.first().copied().filter(|_| keep.len() == 1)?;
    let idle = seen.iter().all(|(before, after)| before > after || *before <= keep);
    idle.then_some(Release::Above { keep, most })
}

/// True if a stage is given back where its `consume` ends, or there is none.
fn at_once(seen: &BTreeSet<Seen>) -> bool {
    seen.iter().all(|seen| matches!(seen, (0 | 1, 0)))
}

/// The stages of a pipeline that a consumer has not given back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Stages {
    /// Of those whose `consume` has ended the ages of the last groups that read them, oldest first.
    held: Vec<u8>,
    /// The stage at hand.
    now: Option<Now>,
}

/// A stage at hand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Now {
    /// The age of the last group that reads it, if one is in flight.
    age: Option<u8>,
    /// True if a product reads it that is in no group yet.
    open: bool,
}

/// The stages of each pipeline that has been consumed.
type State = BTreeMap<PipelineId, Stages>;

struct Walk<'a> {
    program: &'a Program,
    divisibility: &'a Divisibility<'a>,
    seen: BTreeMap<(StmtId, PipelineId), BTreeSet<Seen>>,
    /// The commits, ages and delays found so far.
    plan: ReleasePlan,
    /// True if there were too many states.
    overflow: bool,
    /// The states in which loops around end by a `break`.
    breaks: BTreeSet<State>,
}

/// One state for many, for what registers need to know: which groups read the stages at hand.
fn merged(states: BTreeSet<State>) -> State {
    let mut all = State::new();
    for (id, stages) in states.into_iter().flatten() {
        let own = all.entry(id).or_default();
        let Some(now) = stages.now else { continue };
        let merged = own.now.get_or_insert_default();
        merged.open |= now.open;
        merged.age = merged.age.or(now.age);
    }
    all
}

impl Walk<'_> {
    /// Walks statements; the wait at which the `consume` ends whose body they are is left to it.
    fn block(&mut self, body: &[Stmt], mut states: BTreeSet<State>, left: Option<i64>) -> BTreeSet<State> {
        for (i, stmt) in body.iter().enumerate() {
            if left.is_some() && i + 1 == body.len() {
                break;
            }
            states = match (&stmt.kind, body.get(i + 1)) {
                // The `if` before it has walked it.
                (kind, _) if kind.is_otherwise() && i > 0 => continue,
                (StmtKind::If { body: taken, .. }, next) => {
                    let other = next.filter(|stmt| stmt.kind.is_otherwise());
                    let mut after = self.block(taken, states.clone(), None);
                    after.extend(match other {
                        Some(other) => self.block(other.kind.body(), states, None),
                        None => states,
                    });
                    after
                }
                // Some warps take it.
                (StmtKind::IfAny { body: taken, .. }, _) => {
                    let mut after = self.block(taken, states.clone(), None);
                    after.extend(states);
                    after
                }
                _ => self.statement(stmt, states),
            };
            if states.len() > STATES {
                self.overflow = true;
                states = BTreeSet::from([merged(states)]);
            }
        }
        states
    }

    fn statement(&mut self, stmt: &Stmt, states: BTreeSet<State>) -> BTreeSet<State> {
        match &stmt.kind {
            // A commit behind them gives the stages back.
            StmtKind::GemmAsync { c, .. } if self.program.tensor(*c).memory() == Memory::Tensor => states,
            StmtKind::GemmAsync { a, b, .. } => {
                let reads = |id: &PipelineId| {
                    let tensors = &self.program.pipeline(*id).tensors;
                    tensors.contains(&a.tensor) || tensors.contains(&b.tensor)
                };
                let product = |mut state: State| {
                    for (_, stages) in state.iter_mut().filter(|(id, _)| reads(id)) {
                        stages.now.iter_mut().for_each(|now| now.open = true);
                    }
                    state
                };
                states.into_iter().map(product).collect()
            }
            StmtKind::Break { condition } => {
                self.breaks.extend(states.iter().cloned());
                if condition.as_int().is_some_and(|holds| holds != 0) { BTreeSet::new() } else { states }
            }
            StmtKind::CommitGemm => states.into_iter().map(|state| self.commit(stmt.id, state)).collect(),
            StmtKind::WaitGemm(groups) => {
                states.into_iter().map(|state| self.wait(stmt.id, *groups, state)).collect()
            }
            StmtKind::Stage { pipeline, side: Side::Consume, body, .. } => {
                self.consume(stmt.id, *pipeline, body, states)
            }
            StmtKind::For { condition: Some(_), body, .. } => self.rounds(body, None, false, states),
            StmtKind::For { lo, hi, body, .. } => {
                let rounds = lo.as_int().zip(hi.as_int()).map(|(lo, hi)| hi.saturating_sub(lo).max(0));
                self.rounds(body, rounds, self.divisibility.has_round(lo, hi), states)
            }
            StmtKind::Tiles { body, .. } => self.rounds(body, None, false, states),
            kind => self.block(kind.body(), states, None),
        }
    }

    fn rounds(
        &mut self,
        body: &[Stmt],
        rounds: Option<i64>,
        some: bool,
        states: BTreeSet<State>,
    ) -> BTreeSet<State> {
        let outer = std::mem::take(&mut self.breaks);
        let mut all = self.all_rounds(body, rounds, some, states);
        all.extend(std::mem::replace(&mut self.breaks, outer));
        all
    }

    fn all_rounds(
        &mut self,
        body: &[Stmt],
        rounds: Option<i64>,
        some: bool,
        states: BTreeSet<State>,
    ) -> BTreeSet<State> {
        let round = |walk: &mut Self, states| walk.block(body, states, None);
        if let Some(rounds) = rounds.filter(|rounds| *rounds <= ROUNDS) {
            return (0..rounds).fold(states, |states, _| round(self, states));
        }
        let mut all = if some { round(self, states) } else { states };
        loop {
            let before = all.len();
            let after = round(self, all.clone());
            all.extend(after);
            if all.len() == before || self.overflow {
                return all;
            }
        }
    }

    fn commit(&mut self, index: StmtId, mut state: State) -> State {
        for (id, stages) in &mut state {
            let older = |age: &mut u8| *age = (*age + 1).min(OLD);
            stages.held.iter_mut().for_each(older);
            let Some(now) = &mut stages.now else { continue };
            now.age.iter_mut().for_each(older);
            if std::mem::take(&mut now.open) {
                now.age = Some(0);
                self.plan.commits.entry(index).or_default().insert(*id);
            }
        }
        state
    }

    /// `wait_gemm`, where stages are given back at statement `index`.
    fn wait(&mut self, index: StmtId, groups: i64, mut state: State) -> State {
        let left = u8::try_from(groups).unwrap_or(OLD).min(OLD);
        self.plan.ages = self.plan.ages.max(u32::from(left));
        for (id, stages) in &mut state {
            let before = stages.held.len() as u32;
            stages.held.retain(|age| *age < left);
            self.see((index, *id), before, stages.held.len() as u32);
            if let Some(now) = &mut stages.now {
                now.age = now.age.filter(|age| *age < left);
            }
        }
        state
    }

    fn see(&mut self, at: (StmtId, PipelineId), before: u32, after: u32) {
        self.seen.entry(at).or_default().insert((before, after));
    }

    fn consume(
        &mut self,
        index: StmtId,
        id: PipelineId,
        body: &[Stmt],
        states: BTreeSet<State>,
    ) -> BTreeSet<State> {
        let all = self.program.pipeline(id).stages;
        let begin = |mut state: State| {
            let stages = state.entry(id).or_default();
            stages.now = Some(Now::default());
            // Where all stages are held back none comes: this state waits for ever.
            ((stages.held.len() as u32) < all).then_some(state)
        };
        let states = states.into_iter().filter_map(begin).collect();
        let last = wait_at_the_end(body);
        let states = self.block(body, states, last);
        let end = |mut state: State| {
            let Some(stages) = state.get_mut(&id) else { return state };
            let now = stages.now.take().unwrap_or_default();
            let age = if now.open { Some(0) } else { now.age };
            let free = age.is_none() && stages.held.is_empty();
            // What nothing reads any more waits for those before it.
            stages.held.push(age.or(stages.held.last().copied()).unwrap_or(OLD));
            let before = stages.held.len() as u32;
            if let Some(groups) = last {
                state = self.wait(index, groups, state);
            } else {
                if free {
                    stages.held.clear();
                }
                let after = stages.held.len() as u32;
                self.see((index, id), before, after);
            }
            let unreleased = state.get(&id).map_or(0, |stages| stages.held.len() as u32);
            let most = self.plan.delays.entry(id).or_default();
            *most = unreleased.max(*most);
            state
        };
        states.into_iter().map(end).collect()
    }
}
