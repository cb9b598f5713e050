//! The schedule of roles: which of them runs, and what it means that none can.
//!
//! The roles of a block, and of the blocks of a cluster that depend on each other, take turns. Each runs until it waits for a stage or
//! for another block. Any order gives the same results: a stage is filled by one role and handed to each consuming role, so that what
//! one role does never keeps another from going on.

use super::cluster::{Cluster, Multiplied};
use super::error::InterpretError;
use super::op::Op;
use super::quote::Quote;
use super::role::Role;
use super::wait::{Wait, WaitFor, who};
use crate::cluster::Multicast;
use crate::core::Slot;
use crate::diagnostic::Origin;
use crate::program::Side;

impl<'a> Cluster<'a> {
    /// Runs the roles, those of the first block first, to their ends.
    pub(super) fn run(mut self, mut roles: Vec<Role<'a>>) -> Result<(), InterpretError> {
        while self.turn(&mut roles)? {}
        self.end(&roles)
    }

    /// Lets each role go on until it waits; true if one did anything.
    pub(super) fn turn(&mut self, roles: &mut [Role<'a>]) -> Result<bool, InterpretError> {
        let mut moved = false;
        for role in roles {
            moved |= role.resume(self)?;
        }
        Ok(moved)
    }

    /// An error where roles wait, or have left stages unread, when none can go on.
    pub(super) fn end(&self, roles: &[Role<'a>]) -> Result<(), InterpretError> {
        self.together(roles)?;
        self.alike(roles)?;
        for role in roles {
            if let Some(error) = self.starved(role, roles) {
                return Err(error);
            }
        }
        self.unread(roles)?;
        let waits: Vec<Wait> = roles.iter().filter_map(|role| self.wait(role, roles)).collect();
        if !waits.is_empty() {
            return Err(InterpretError::Deadlock { waits });
        }
        self.met()
    }

    /// An error where roles have not come to a named barrier equally often.
    fn met(&self) -> Result<(), InterpretError> {
        for (barrier, row) in self.plan.barriers.iter().enumerate() {
            for block in &self.blocks {
                let times = |role: &usize| block.came[barrier][*role];
                let most = row.roles.iter().copied().max_by_key(times);
                let least = row.roles.iter().copied().min_by_key(times);
                if let (Some(most), Some(least)) = (most, least)
                    && times(&least) < times(&most)
                {
                    let name = |role: usize| self.plan.roles[role].name.clone();
                    return Err(InterpretError::ComesMore {
                        barrier: row.name.clone(),
                        roles: Box::new([name(most), name(least)]),
                        times: [times(&most), times(&least)],
                    });
                }
            }
        }
        Ok(())
    }

    /// An error where blocks of a cluster do not fill a pipeline's stages equally often that each fills for the others.
    fn alike(&self, roles: &[Role<'a>]) -> Result<(), InterpretError> {
        for (i, row) in self.plan.pipelines.iter().enumerate().filter(|(_, row)| !row.multicast.is_empty()) {
            let filled: Vec<usize> = self.blocks.iter().map(|block| block.rings[i].filled()).collect();
            for rank in 0..filled.len() {
                let least = self.sharing(row, rank).map(|peer| filled[peer]).min();
                let sharing = |peer| self.sharing(row, rank).any(|other| other == peer);
                let ended = roles.iter().any(|role| {
                    row.producer == Some(role.number)
                        && role.ended()
                        && sharing(role.rank)
                        && Some(filled[role.rank]) == least
                });
                let other = self.sharing(row, rank).find(|peer| filled[*peer] != filled[rank]);
                if let (true, Some(other)) = (ended, other) {
                    let statement = Quote::new(format!("produce {}", row.name), row.name.span);
                    let (blocks, counts) = ([rank, other], [filled[rank], filled[other]]);
                    return Err(InterpretError::MulticastCounts { statement, blocks, counts });
                }
            }
        }
        Ok(())
    }

    /// An error where the blocks of a pair multiply otherwise: the products of both are one.
    fn together(&self, roles: &[Role<'a>]) -> Result<(), InterpretError> {
        let none = Vec::new();
        for (pair, blocks) in self.blocks.chunks_exact(2).enumerate() {
            for number in 0..self.plan.roles.len() {
                let [even, odd] =
                    [0, 1].map(|block: usize| blocks[block].multiplied.get(&number).unwrap_or(&none));
                let ended = |rank| {
                    roles.iter().any(|role| (role.rank, role.number) == (rank, number) && role.ended())
                };
                // One of which the other has done nothing yet is no difference.
                let first = even.iter().zip(odd).position(|(even, odd)| even != odd);
                let all = ended(2 * pair) && ended(2 * pair + 1) && even.len() != odd.len();
                let Some(at) = first.or_else(|| all.then_some(even.len().min(odd.len()))) else { continue };
                if let (Some(Multiplied::Rows(statement, _)), Some(Multiplied::Rows(..))) =
                    (even.get(at), odd.get(at))
                {
                    let multicast = Multicast::Pair;
                    let peers = multicast.peers(&self.plan.cluster_shape);
                    return Err(InterpretError::MulticastApart {
                        statement: statement.clone(),
                        multicast,
                        peers,
                    });
                }
                let does = |steps: &[Multiplied]| self.does(number, steps.get(at));
                let begun = even[..at].iter().filter(|step| matches!(step, Multiplied::Stage(_)));
                return Err(InterpretError::PairApart {
                    before: begun.count(),
                    steps: Box::new([does(even), does(odd)]),
                    blocks: [2 * pair, 2 * pair + 1],
                });
            }
        }
        Ok(())
    }

    /// A step of a role for both blocks of a pair, as a message names it; without one, its end.
    fn does(&self, number: usize, step: Option<&Multiplied>) -> Quote {
        match step {
            Some(Multiplied::Stage(Slot { pipeline, side })) => {
                let row = self.plan.pipeline(*pipeline);
                let word = if *side == Side::Produce { "produce" } else { "consume" };
                Quote::new(format!("`{word} {}`", row.name), row.name.span)
            }
            Some(Multiplied::Statement(flight, span, indices)) => {
                let text = &self.plan.flights[*flight];
                let values: Vec<String> = indices.iter().map(i64::to_string).collect();
                let with =
                    if values.is_empty() { String::new() } else { format!(" with {}", values.join(", ")) };
                Quote::new(format!("`{text}`{with}"), *span)
            }
            Some(Multiplied::Rows(statement, _)) => Quote::new(format!("`{statement}`"), statement.span),
            None => Quote::new(format!("the end of {}", who(&self.plan.roles[number].name)), Origin::Unknown),
        }
    }

    /// An error where a role waits for one that has ended.
    fn starved(&self, role: &Role<'a>, roles: &[Role<'a>]) -> Option<InterpretError> {
        match role.waiting? {
            Op::Stage { slot: Slot { pipeline, side: Side::Consume }, .. } => {
                let row = self.plan.pipeline(*pipeline);
                let ended = |peer: &Role<'a>| row.producer == Some(peer.number) && peer.ended();
                let sharing = |peer: &Role<'a>| self.sharing(row, role.rank).any(|rank| rank == peer.rank);
                if !roles.iter().any(|peer| sharing(peer) && ended(peer)) {
                    return None;
                }
                let filled = self.blocks[role.rank].rings[pipeline.0 as usize].filled();
                let producer = self.plan.roles[row.producer?].name.clone();
                let wait = Box::new(self.wait(role, roles)?);
                Some(InterpretError::NoStage { wait, role: producer, filled })
            }
            Op::ClusterReduce { reduction, .. } => {
                let ended = roles.iter().any(|peer| peer.number == role.number && peer.ended());
                ended.then(|| InterpretError::ClusterApart { statement: reduction.text.clone() })
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
                    let shared = (0..row.consumers.len()).all(|reader| ring.read(reader) < ring.filled());
                    return Err(InterpretError::UnreadStages {
                        pipeline: row.name.clone(),
                        role: self.plan.roles[role.number].name.clone(),
                        left,
                        filled: ring.filled(),
                        ended: roles.iter().filter(|peer| ended(peer)).all(Role::ended),
                        shared: shared && row.consumers.len() > 1,
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
        let (Slot { pipeline, side }, span) = match op {
            Op::Stage { slot, span, .. } => (*slot, *span),
            Op::Come { barrier, text, .. } => {
                let block = &self.blocks[role.rank];
                let all = &self.plan.barriers[*barrier].roles;
                let time = block.came[*barrier][role.number];
                let late = |peer: &&Role<'a>| {
                    peer.rank == role.rank
                        && all.contains(&peer.number)
                        && block.came[*barrier][peer.number] < time
                };
                let by = roles.iter().filter(late).map(|peer| {
                    let name = who(&self.plan.roles[peer.number].name);
                    if peer.ended() { format!("{name} (which has ended)") } else { name }
                });
                let what =
                    WaitFor::Barrier { statement: text.text.clone(), time: Some(time), by: by.collect() };
                return Some(wait(what, text.span));
            }
            Op::SyncGrid { text, .. } => {
                return Some(wait(WaitFor::Cluster { statement: text.text.clone() }, text.span));
            }
            Op::Await { flag, .. } => {
                let now = role.flag_value(flag).unwrap_or_default();
                let what = WaitFor::Flag { statement: flag.text.text.clone(), now, of: role.index };
                return Some(wait(what, flag.text.span));
            }
            Op::ClusterReduce { reduction, .. } => {
                let Quote { text, span } = reduction.text.clone();
                return Some(wait(WaitFor::Cluster { statement: text }, span));
            }
            _ => return None,
        };
        let (row, pipeline) = (self.plan.pipeline(pipeline), pipeline.0 as usize);
        let stages = usize::try_from(row.stages).unwrap_or(1).max(1);
        let ring = &self.blocks[role.rank].rings[pipeline];
        let number = match row.reader(role.number).filter(|_| side == Side::Consume) {
            Some(reader) => ring.read(reader),
            None => ring.begun(),
        };
        // The roles that have not done to the stage what this one waits for.
        let late = |peer: &&Role<'a>| {
            let ring = &self.blocks[peer.rank].rings[pipeline];
            let reader = row.reader(peer.number);
            self.sharing(row, role.rank).any(|rank| rank == peer.rank)
                && match side {
                    Side::Produce => reader.is_some_and(|reader| ring.released_by(reader) + stages <= number),
                    Side::Consume => row.producer == Some(peer.number) && ring.filled() <= number,
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
        let (pipeline, stage, time) = (row.name.text.clone(), number % stages, number + 1);
        Some(wait(
            match side {
                Side::Produce => WaitFor::Free { pipeline, stage, stages, time, by },
                Side::Consume => WaitFor::Full { pipeline, stage, time, by },
            },
            span,
        ))
    }
}
