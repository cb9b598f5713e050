//! The state that roles share: the pipelines of each block, and the meetings of the blocks of a cluster.

use std::ops::Range;

use super::bound::Element;
use super::coverage::Watch;
use super::error::InterpretError;
use super::op::{Pipeline, Plan};
use super::ring::{Contents, Ring};
use crate::arith::Compute;
use crate::core::Slot;
use crate::program::{BinaryOp, Side};

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
    sum.iter_mut().zip(other).for_each(|(x, y)| *x = Element::binary(BinaryOp::Add, Compute::F32, *x, y));
    sum
}

/// The blocks that depend on each other: those of a cluster, or a block alone.
pub(super) struct Cluster<'a> {
    pub(super) plan: &'a Plan,
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

    /// The blocks that fill the stages of a pipeline together.
    pub(super) fn sharing(&self, pipeline: &Pipeline, rank: usize) -> Range<usize> {
        if pipeline.multicast { 0..self.blocks.len() } else { rank..rank + 1 }
    }

    /// Begins the next stage of role `number` of the block of this rank: its number, and what it holds if it is full. `None` where the role
    /// has to wait.
    pub(super) fn begin(
        &mut self,
        rank: usize,
        number: usize,
        Slot { pipeline, side }: Slot,
    ) -> Option<(usize, Option<Contents>)> {
        let (row, pipeline) = (self.plan.pipeline(pipeline), pipeline.0 as usize);
        let rings = self.sharing(row, rank).map(|rank| &self.blocks[rank].rings[pipeline]);
        if side == Side::Produce {
            let released = rings.map(Ring::released).min()?;
            let ring = &mut self.blocks[rank].rings[pipeline];
            let stages = usize::try_from(row.stages).ok()?;
            return (ring.begun() < released + stages).then(|| (ring.begin(), None));
        }
        let filled = rings.map(Ring::filled).min()?;
        let reader = row.reader(number)?;
        let ring = &mut self.blocks[rank].rings[pipeline];
        if ring.read(reader) >= filled {
            return None;
        }
        ring.take(reader).map(|(stage, contents)| (stage, Some(contents)))
    }
}
