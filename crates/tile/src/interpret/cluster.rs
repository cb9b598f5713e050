//! The state that roles share: the pipelines of each block, and the meetings of the blocks of a cluster.

use std::collections::BTreeMap;

use tilewright_machine::DType;

use super::bound::{Element, UNWRITTEN};
use super::coverage::{Missing, State, Watch};
use super::error::InterpretError;
use super::fold::{Fold, Order};
use super::op::{ClusterReduction, Pipeline, Plan};
use super::quote::Quote;
use super::ring::{Contents, Ring};
use crate::arith::Compute;
use crate::core::Slot;
use crate::diagnostic::Origin;
use crate::program::{BinaryOp, ReduceOp, Side};

/// The elements of tensors.
type Tiles = Vec<Vec<Element>>;

/// A block of the cluster, as far as its roles share it.
pub(super) struct Block<'a> {
    /// Its pipelines.
    pub(super) rings: Vec<Ring>,
    /// The tensors that its roles share outside of stages.
    pub(super) common: Vec<Common>,
    /// For each named barrier the number of times that each role has come.
    pub(super) came: Vec<Vec<usize>>,
    /// By role what it has done for both blocks of a pair, in this order.
    pub(super) multiplied: BTreeMap<usize, Vec<Multiplied>>,
    /// Its masks, if they are asked for.
    pub(super) watch: Option<Box<Watch<'a>>>,
}

/// A step of a role that multiplies for both blocks of a pair: the same in both.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Multiplied {
    /// A stage that begins.
    Stage(Slot),
    /// A product, or a `fill` of sums, by its number among [`Plan::flights`], with its place and the values of its indices.
    Statement(usize, Origin, Vec<i64>),
    /// A copy of a tile of which each block has half, with the places of its rows, which registers name.
    Rows(Quote, Vec<Option<i64>>),
}

/// A tensor that roles share: what it holds while none of them runs.
pub(super) struct Common {
    pub(super) tensor: usize,
    pub(super) tile: Vec<Element>,
    pub(super) mask: State,
}

impl Common {
    fn new((tensor, len): (usize, usize)) -> Common {
        let mask = State { missing: Missing::new(vec![true; len], None), unread: None };
        Common { tensor, tile: vec![UNWRITTEN; len], mask }
    }
}

impl Block<'_> {
    /// Number of times that every role has come to a named barrier.
    pub(super) fn met(&self, barrier: usize, roles: &[usize]) -> usize {
        roles.iter().map(|role| self.came[barrier][*role]).min().unwrap_or(0)
    }
}

/// The meeting of one role's instances in all blocks, which put tiles together.
pub(super) struct Meeting {
    /// For each block that has arrived the number of its statement, and its tiles.
    brought: Vec<Option<(usize, Tiles)>>,
    /// The result, for each block that has not left with it.
    results: Vec<Option<Tiles>>,
}

impl Meeting {
    fn new(blocks: usize) -> Self {
        Meeting { brought: vec![None; blocks], results: vec![None; blocks] }
    }

    /// A block comes to statement `number`. With the last, the tiles of all blocks, by rank.
    pub(super) fn arrive(
        &mut self,
        rank: usize,
        number: usize,
        tiles: Tiles,
        reduction: &ClusterReduction,
    ) -> Result<Option<Vec<Tiles>>, InterpretError> {
        self.brought[rank] = Some((number, tiles));
        if self.brought.iter().flatten().any(|(other, _)| *other != number) {
            return Err(InterpretError::ClusterApart { statement: reduction.text.clone() });
        }
        let all = self.brought.iter().all(Option::is_some);
        Ok(all.then(|| self.brought.iter_mut().filter_map(Option::take).map(|(_, tiles)| tiles).collect()))
    }

    /// Gives every block the result.
    pub(super) fn give(&mut self, result: Tiles) {
        self.results.fill(Some(result));
    }

    /// The result, once all blocks have arrived.
    pub(super) fn leave(&mut self, rank: usize) -> Option<Tiles> {
        self.results[rank].take()
    }
}

/// The elements of the first tensor of each block put together.
pub(super) fn combined(blocks: &[Tiles], op: ReduceOp, dtype: DType) -> Vec<Element> {
    let tiles: Vec<&Vec<Element>> = blocks.iter().filter_map(|tiles| tiles.first()).collect();
    let count = tiles.iter().map(|tile| tile.len()).min().unwrap_or(0);
    (0..count).map(|k| together(tiles.iter().map(|tile| tile[k]), op, dtype)).collect()
}

/// Elements put together in the order of the ranks: each sum and each product of floats rounded to the type that is computed with.
fn together(elements: impl Iterator<Item = Element>, op: ReduceOp, dtype: DType) -> Element {
    let rounding = match op {
        ReduceOp::Sum if dtype.is_float() => Some(BinaryOp::Add),
        ReduceOp::Product if dtype.is_float() => Some(BinaryOp::Mul),
        _ => None,
    };
    let Some(op) = rounding else {
        let mut fold = Fold::new(op, dtype);
        elements.for_each(|x| fold.add(x));
        return fold.element(Order::Chain, dtype);
    };
    let compute = if dtype == DType::F64 { Compute::F64 } else { Compute::F32 };
    let result = elements.reduce(|x, y| Element::binary(op, compute, x, y)).unwrap_or(UNWRITTEN);
    if matches!(dtype, DType::F32 | DType::F64) { result } else { result.round(dtype) }
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
            common: plan.common.iter().copied().map(Common::new).collect(),
            came: vec![vec![0; plan.roles.len()]; plan.barriers.len()],
            multiplied: BTreeMap::new(),
            watch: watch.map(Box::new),
        };
        let blocks: Vec<Block<'a>> = watches.map(block).collect();
        let meetings = plan.roles.iter().map(|_| Meeting::new(blocks.len())).collect();
        Cluster { plan, blocks, meetings }
    }

    /// The blocks that fill stages of a pipeline for a block or have theirs filled by it, some perhaps more than once. It is one of them.
    pub(super) fn sharing(
        &self,
        pipeline: &'a Pipeline,
        rank: usize,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let peers = pipeline.multicast.iter().flat_map(move |peers| peers.ranks(rank as u32));
        std::iter::once(rank).chain(peers.map(|peer| peer as usize))
    }

    /// Begins the next stage of role `number` of the block of this rank: its number, and what it holds if it is full. `None` where the role
    /// has to wait.
    pub(super) fn begin(
        &mut self,
        rank: usize,
        number: usize,
        slot: Slot,
    ) -> Option<(usize, Option<Contents>)> {
        let begun = self.begun(rank, number, slot)?;
        if self.plan.pipeline(slot.pipeline).pair == Some(slot.side) {
            self.multiply(rank, number, Multiplied::Stage(slot));
        }
        Some(begun)
    }

    /// Notes what role `number` of the block of this rank does for both blocks of its pair.
    pub(super) fn multiply(&mut self, rank: usize, number: usize, step: Multiplied) {
        self.blocks[rank].multiplied.entry(number).or_default().push(step);
    }

    fn begun(
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
            return (ring.begun() < released + stages).then(|| ring.begin());
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
