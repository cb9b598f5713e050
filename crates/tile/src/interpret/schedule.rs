//! The schedule of roles: which of them runs, and what it means that none can.
//!
//! The roles of a block, and of the blocks of a cluster that depend on each other, take turns. Each runs until it waits for a stage or
//! for another block. Any order gives the same results: a stage is filled by one role and handed to each consuming role, so that what
//! one role does never keeps another from going on.

use std::fmt;
use std::ops::Range;

use super::InterpretError;
use super::bound::Element;
use super::coverage::Watch;
use super::error::who;
use super::plan::{Op, Pipeline, Plan};
use super::ring::{Contents, Ring};
use super::role::Role;
use crate::diagnostic::Origin;
use crate::program::BinaryOp;

/// A role that waits.
#[derive(Clone, PartialEq, Debug)]
pub struct Wait {
    /// The role; `None` in a program without roles.
    pub role: Option<String>,
    /// The rank of its block in the cluster, where blocks of a cluster depend on each other.
    pub block: Option<usize>,
    /// The event that it waits for.
    pub what: WaitFor,
    /// The statement at which it waits.
    pub span: Origin,
}

/// An event that a role waits for.
#[derive(Clone, PartialEq, Debug)]
pub enum WaitFor {
    /// `produce`: a stage that others have to release.
    Free {
        /// The pipeline.
        pipeline: String,
        /// The number of the stage in its ring.
        stage: usize,
        /// The number of times that the role has come to the pipeline, with this one.
        time: usize,
        /// The roles that have not released it.
        by: Vec<String>,
    },
    /// `consume`: a stage that another role has to fill.
    Full {
        /// The pipeline.
        pipeline: String,
        /// The number of the stage in its ring.
        stage: usize,
        /// The number of times that the role has come to the pipeline, with this one.
        time: usize,
        /// The roles that have not filled it.
        by: Vec<String>,
    },
    /// A statement that the blocks of the cluster do together.
    Cluster {
        /// The statement.
        statement: String,
    },
}

impl Wait {
    /// The role that waits: `role "math"`, `the kernel`.
    pub fn who(&self) -> String {
        match self.block {
            Some(block) => format!("{} of block {block} of the cluster", who(&self.role)),
            None => who(&self.role),
        }
    }

    /// The statement at which it waits, without a body.
    pub fn statement(&self) -> String {
        match &self.what {
            WaitFor::Free { pipeline, .. } => format!("produce {pipeline}"),
            WaitFor::Full { pipeline, .. } => format!("consume {pipeline}"),
            WaitFor::Cluster { statement } => statement.clone(),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits in `{}`", self.who(), self.statement())?;
        match &self.what {
            WaitFor::Free { stage, time, by, .. } => {
                let (time, by) = (ordinal(*time), by.join(" and "));
                write!(f, ", the {time} time, for stage {stage} to be free, which {by} has not released")
            }
            WaitFor::Full { stage, time, by, .. } => {
                let (time, by) = (ordinal(*time), by.join(" and "));
                write!(f, ", the {time} time, for stage {stage} to be full, which {by} has not filled")
            }
            WaitFor::Cluster { .. } => write!(f, " for the other blocks"),
        }
    }
}

/// `1st`, `2nd`, `11th`.
fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// A block of the cluster, as far as its roles share it.
pub(super) struct Block<'a> {
    /// Its pipelines.
    pub(super) rings: Vec<Ring>,
    /// Its masks, if they are asked for.
    pub(super) watch: Option<Box<Watch<'a>>>,
}

/// The meeting of one role's instances in all blocks, which add up a tile.
pub(super) struct Meeting {
    /// For each block that has arrived the number of its statement, and its elements.
    brought: Vec<Option<(usize, Vec<Element>)>>,
    /// The sum, for each block that has not left with it.
    sums: Vec<Option<Vec<Element>>>,
}

impl Meeting {
    fn new(blocks: usize) -> Self {
        Meeting { brought: vec![None; blocks], sums: vec![None; blocks] }
    }

    /// A block comes to statement `number`. With the last the sum is known, each addition rounded to `f32`, in the order of ranks.
    pub(super) fn arrive(
        &mut self,
        rank: usize,
        number: usize,
        elements: Vec<Element>,
        statement: &str,
    ) -> Result<(), InterpretError> {
        self.brought[rank] = Some((number, elements));
        if self.brought.iter().flatten().any(|(other, _)| *other != number) {
            return Err(InterpretError::ClusterApart { statement: statement.to_string() });
        }
        if self.brought.iter().all(Option::is_some) {
            let tiles = self.brought.iter_mut().filter_map(Option::take).map(|(_, elements)| elements);
            let sum = tiles.reduce(add);
            self.sums.iter_mut().for_each(|slot| slot.clone_from(&sum));
        }
        Ok(())
    }

    /// The sum, once all blocks have arrived.
    pub(super) fn leave(&mut self, rank: usize) -> Option<Vec<Element>> {
        self.sums[rank].take()
    }
}

fn add(mut sum: Vec<Element>, other: Vec<Element>) -> Vec<Element> {
    sum.iter_mut().zip(other).for_each(|(x, y)| *x = Element::binary(BinaryOp::Add, *x, y));
    sum
}

/// The blocks that depend on each other: those of a cluster, or a block alone.
pub(super) struct Cluster<'a> {
    plan: &'a Plan,
    pub(super) blocks: Vec<Block<'a>>,
    /// By role.
    pub(super) meetings: Vec<Meeting>,
}

impl<'a> Cluster<'a> {
    /// Blocks with their masks.
    pub(super) fn new(plan: &'a Plan, watches: impl Iterator<Item = Option<Watch<'a>>>) -> Self {
        let block = |watch: Option<Watch<'a>>| Block {
            rings: plan.pipelines.iter().map(|pipeline| Ring::new(pipeline.consumers.len())).collect(),
            watch: watch.map(Box::new),
        };
        let blocks: Vec<Block<'a>> = watches.map(block).collect();
        let meetings = plan.roles.iter().map(|_| Meeting::new(blocks.len())).collect();
        Cluster { plan, blocks, meetings }
    }

    /// Runs the roles, those of the first block first, to their ends.
    pub(super) fn run(mut self, mut roles: Vec<Role<'a>>) -> Result<(), InterpretError> {
        loop {
            let mut moved = false;
            for role in &mut roles {
                moved |= role.resume(&mut self)?;
            }
            if !moved {
                break;
            }
        }
        self.alike(&roles)?;
        for role in &roles {
            if let Some(error) = self.starved(role, &roles) {
                return Err(error);
            }
        }
        self.unread(&roles)?;
        let waits: Vec<Wait> = roles.iter().filter_map(|role| self.wait(role, &roles)).collect();
        if waits.is_empty() { Ok(()) } else { Err(InterpretError::Deadlock { waits }) }
    }

    /// The blocks that fill the stages of a pipeline together.
    fn sharing(&self, pipeline: &Pipeline, rank: usize) -> Range<usize> {
        if pipeline.multicast { 0..self.blocks.len() } else { rank..rank + 1 }
    }

    /// Begins a role's next stage of a pipeline: its number, and what it holds if it is full. `None` where it has to wait.
    pub(super) fn begin(
        &mut self,
        role: &Role<'a>,
        pipeline: usize,
        produce: bool,
    ) -> Option<(usize, Option<Contents>)> {
        let row = &self.plan.pipelines[pipeline];
        let rings = self.sharing(row, role.rank).map(|rank| &self.blocks[rank].rings[pipeline]);
        if produce {
            let released = rings.map(Ring::released).min()?;
            let ring = &mut self.blocks[role.rank].rings[pipeline];
            let stages = usize::try_from(row.stages).ok()?;
            return (ring.begun() < released + stages).then(|| (ring.begin(), None));
        }
        let filled = rings.map(Ring::filled).min()?;
        let reader = row.reader(role.number)?;
        let ring = &mut self.blocks[role.rank].rings[pipeline];
        if ring.read(reader) >= filled {
            return None;
        }
        ring.take(reader).map(|(stage, contents)| (stage, Some(contents)))
    }

    /// An error where the blocks of a cluster do not fill a pipeline's stages as often that each fills for all.
    fn alike(&self, roles: &[Role<'a>]) -> Result<(), InterpretError> {
        for (i, row) in self.plan.pipelines.iter().enumerate().filter(|(_, row)| row.multicast) {
            let filled: Vec<usize> = self.blocks.iter().map(|block| block.rings[i].filled()).collect();
            let least = filled.iter().copied().min().unwrap_or(0);
            let ended = roles
                .iter()
                .any(|role| row.producer == Some(role.number) && role.ended() && filled[role.rank] == least);
            let other = filled.iter().position(|count| *count != filled[0]);
            if let (true, Some(other)) = (ended, other) {
                let statement = format!("produce {}", row.name);
                let counts = [filled[0], filled[other]];
                return Err(InterpretError::MulticastCounts { statement, other, counts });
            }
        }
        Ok(())
    }

    /// An error where a role waits for one that has ended.
    fn starved(&self, role: &Role<'a>, roles: &[Role<'a>]) -> Option<InterpretError> {
        match role.waiting? {
            Op::Stage { pipeline, produce: false, .. } => {
                let row = &self.plan.pipelines[*pipeline];
                let sharing = self.sharing(row, role.rank);
                let ended = |peer: &Role<'a>| row.producer == Some(peer.number) && peer.ended();
                if !roles.iter().any(|peer| sharing.contains(&peer.rank) && ended(peer)) {
                    return None;
                }
                let filled = self.blocks[role.rank].rings[*pipeline].filled();
                let producer = self.plan.roles[row.producer?].name.clone();
                let wait = Box::new(self.wait(role, roles)?);
                Some(InterpretError::NoStage { wait, role: producer, filled })
            }
            Op::ClusterSum { text, .. } => {
                let ended = roles.iter().any(|peer| peer.number == role.number && peer.ended());
                ended.then(|| InterpretError::ClusterApart { statement: text.clone() })
            }
            _ => None,
        }
    }

    /// An error where a role has ended and not read every stage.
    fn unread(&self, roles: &[Role<'a>]) -> Result<(), InterpretError> {
        for role in roles.iter().filter(|role| role.ended()) {
            for (i, row) in self.plan.pipelines.iter().enumerate() {
                let Some(reader) = row.reader(role.number) else { continue };
                let ring = &self.blocks[role.rank].rings[i];
                let left = ring.filled() - ring.read(reader);
                if left > 0 {
                    let ended = |peer: &Role<'a>| peer.rank == role.rank && row.producer == Some(peer.number);
                    return Err(InterpretError::UnreadStages {
                        pipeline: row.name.clone(),
                        role: self.plan.roles[role.number].name.clone(),
                        left,
                        filled: ring.filled(),
                        ended: roles.iter().filter(|peer| ended(peer)).all(Role::ended),
                    });
                }
            }
        }
        Ok(())
    }

    /// The wait of a role, if it waits.
    fn wait(&self, role: &Role<'a>, roles: &[Role<'a>]) -> Option<Wait> {
        let op = role.waiting?;
        let clustered = self.blocks.len() > 1;
        let wait = |what, span| Wait {
            role: self.plan.roles[role.number].name.clone(),
            block: clustered.then_some(role.rank),
            what,
            span,
        };
        let (pipeline, produce, span) = match op {
            Op::Stage { pipeline, produce, span, .. } => (*pipeline, *produce, *span),
            Op::ClusterSum { text, span, .. } => {
                return Some(wait(WaitFor::Cluster { statement: text.clone() }, *span));
            }
            _ => return None,
        };
        let row = &self.plan.pipelines[pipeline];
        let stages = usize::try_from(row.stages).unwrap_or(1).max(1);
        let ring = &self.blocks[role.rank].rings[pipeline];
        let number = match row.reader(role.number).filter(|_| !produce) {
            Some(reader) => ring.read(reader),
            None => ring.begun(),
        };
        // The roles that have not done to the stage what this one waits for.
        let late = |peer: &&Role<'a>| {
            let ring = &self.blocks[peer.rank].rings[pipeline];
            let reader = row.reader(peer.number);
            self.sharing(row, role.rank).contains(&peer.rank)
                && match produce {
                    true => reader.is_some_and(|reader| ring.released_by(reader) + stages <= number),
                    false => row.producer == Some(peer.number) && ring.filled() <= number,
                }
        };
        let name = |peer: &Role<'a>| {
            let mut name = who(&self.plan.roles[peer.number].name);
            if clustered {
                name = format!("{name} of block {}", peer.rank);
            }
            if peer.ended() { format!("{name} (which has ended)") } else { name }
        };
        let by = roles.iter().filter(late).map(name).collect();
        let (pipeline, stage, time) = (row.name.clone(), number % stages, number + 1);
        Some(wait(
            match produce {
                true => WaitFor::Free { pipeline, stage, time, by },
                false => WaitFor::Full { pipeline, stage, time, by },
            },
            span,
        ))
    }
}
