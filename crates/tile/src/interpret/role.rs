//! A role of a block as a coroutine.
//!
//! A role runs until it has to wait for another: in a `produce` for a free stage, in a `consume` for a full one, in a `cluster_sum` for the
//! other blocks of the cluster. Where it is stands in [`Role::frames`], so that it can go on from there later. All that it computes
//! with is its own; roles meet in the rings of their pipelines. A program without roles is one role.

use std::collections::BTreeMap;

use super::bound::{Element, UNWRITTEN};
use super::buffer::Buffer;
use super::cluster::Cluster;
use super::coverage::Watch;
use super::error::InterpretError;
use super::flight::{Flights, Mark};
use super::op::{Op, Plan};
use super::ring::{Contents, Ring};
use crate::core::{Coord, Slot, TileOrder};
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::program::{ParamId, Side};
use crate::rasterization;

/// A body under way.
struct Frame<'a> {
    ops: &'a [Op],
    /// The next of them.
    at: usize,
    of: Body<'a>,
}

/// The statement that a body belongs to, and how far it is.
enum Body<'a> {
    Role,
    Branch,
    Stage(Slot),
    For(For<'a>),
    Tiles(Tiles<'a>),
}

/// A loop under way.
struct For<'a> {
    counter: usize,
    /// The value of the next iteration, and one past the last's.
    next: i64,
    hi: i64,
    /// It ends where this is 0.
    condition: Option<&'a Expr>,
    /// Of an unrolled loop the tensors that each iteration has for itself.
    unrolled: Option<&'a [usize]>,
}

/// A loop over tiles under way.
struct Tiles<'a> {
    /// Those of the row and the column, and those of the previous iteration's.
    counters: [usize; 2],
    previous: Option<[usize; 2]>,
    order: &'a TileOrder,
    rows: i64,
    cols: i64,
    /// The number of the next tile, and how far apart those of a block are.
    next: i64,
    step: i64,
    /// The tile of the previous iteration; `rows` and `cols` before the first.
    tile: (i64, i64),
}

/// A tensor of an iteration of an unrolled loop that is not the current one.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) tile: Vec<Element>,
    pub(super) awaited: Vec<Option<Mark>>,
    pub(super) held: Vec<Option<Mark>>,
}

pub(super) struct Role<'a> {
    pub(super) plan: &'a Plan,
    pub(super) buffers: &'a [Buffer<'a>],
    /// Its number in [`Plan::roles`].
    pub(super) number: usize,
    /// The block's index in the grid, and its rank in the cluster.
    pub(super) index: [i64; 3],
    pub(super) rank: usize,
    /// Number of blocks along x.
    width: i64,
    /// Sizes, and counters of open loops, by symbol.
    values: Vec<Option<i64>>,
    /// The numbers of the stages at hand in their rings.
    slots: BTreeMap<Slot, i64>,
    /// Each tensor's elements, leftmost mode fastest.
    pub(super) tiles: Vec<Vec<Element>>,
    /// A tile on its way from one side of a copy to the other.
    pub(super) moving: Vec<Element>,
    /// For each element of a tensor what in flight writes it; empty before the first.
    pub(super) awaited: Vec<Vec<Option<Mark>>>,
    /// For each element of a tensor the latest in flight that reads it; empty before the first.
    pub(super) held: Vec<Vec<Option<Mark>>>,
    /// Number of asynchronous copies and products so far.
    pub(super) serial: usize,
    pub(super) copies: Flights<'a>,
    pub(super) products: Flights<'a>,
    /// The masks of the block while the role runs, if they are asked for.
    pub(super) watch: Option<Box<Watch<'a>>>,
    /// The iterations of unrolled loops that are being run, outermost first.
    iterations: Vec<i64>,
    /// For each tensor the number of the current one of those that iterations have.
    pub(super) instance: Vec<usize>,
    /// The numbers of the others, by tensor and iterations.
    instances: BTreeMap<(usize, Vec<i64>), usize>,
    pub(super) stored: BTreeMap<(usize, usize), Stored>,
    /// The bodies under way, outermost first; none once the role has ended.
    frames: Vec<Frame<'a>>,
    /// The operation at which it waits, if it does.
    pub(super) waiting: Option<&'a Op>,
}

impl Scope for Role<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.values.get(id.0 as usize).copied().flatten()
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(self.index[axis.index()])
    }

    fn element(&self, param: ParamId, index: &[i64]) -> Option<i64> {
        let mut offset = 0;
        for (at, (extent, stride)) in index.iter().zip(self.plan.modes.get(param.0 as usize)?) {
            if !(0..*extent).contains(at) {
                return Some(0);
            }
            offset += at * stride;
        }
        match self.buffers.get(param.0 as usize)? {
            Buffer::Input(data) => Some(*data.get(offset as usize)? as i64),
            // The verifier knows that the kernel does not write it.
            Buffer::Output { .. } | Buffer::Scalar(_) => None,
        }
    }

    fn scalar(&self, param: ParamId) -> Option<i64> {
        match self.buffers.get(param.0 as usize)? {
            Buffer::Scalar(x) => Some(*x as i64),
            Buffer::Input(_) | Buffer::Output { .. } => None,
        }
    }
}

impl<'a> Role<'a> {
    /// A role before its first statement. `index` is the block's in a grid of `width` blocks along x, `rank` its place in the cluster.
    pub(super) fn new(
        plan: &'a Plan,
        buffers: &'a [Buffer<'a>],
        number: usize,
        (index, rank, width): ([i64; 3], usize, i64),
        values: Vec<Option<i64>>,
    ) -> Role<'a> {
        Role {
            plan,
            buffers,
            number,
            index,
            rank,
            width,
            values,
            slots: BTreeMap::new(),
            tiles: vec![Vec::new(); plan.tensors],
            moving: Vec::new(),
            awaited: vec![Vec::new(); plan.tensors],
            held: vec![Vec::new(); plan.tensors],
            serial: 0,
            copies: Flights::default(),
            products: Flights::default(),
            watch: None,
            iterations: Vec::new(),
            instance: vec![0; plan.tensors],
            instances: BTreeMap::new(),
            stored: BTreeMap::new(),
            frames: vec![Frame { ops: &plan.roles[number].ops, at: 0, of: Body::Role }],
            waiting: None,
        }
    }

    pub(super) fn value(&self, expr: &Expr, what: impl Fn() -> String) -> Result<i64, InterpretError> {
        expr.eval(self).ok_or_else(|| InterpretError::NoValue { what: what() })
    }

    /// The value of an entry of an index.
    pub(super) fn coord(&self, coord: &Coord, what: impl Fn() -> String) -> Result<i64, InterpretError> {
        match coord {
            Coord::Expr(e) => self.value(e, what),
            Coord::Slot(slot) => {
                self.slots.get(slot).copied().ok_or_else(|| InterpretError::NoValue { what: what() })
            }
        }
    }

    /// The text of an asynchronous copy or product.
    pub(super) fn flight(&self, number: usize) -> &'a str {
        &self.plan.flights[number]
    }

    /// True if it has come to its end.
    pub(super) fn ended(&self) -> bool {
        self.frames.is_empty()
    }

    /// Goes on until the role waits or ends; true if it did anything.
    pub(super) fn resume(&mut self, cluster: &mut Cluster<'a>) -> Result<bool, InterpretError> {
        self.watch = cluster.blocks[self.rank].watch.take();
        if let Some(watch) = &mut self.watch {
            watch.turn_to(self.number);
        }
        let mut moved = false;
        let result = loop {
            let Some(frame) = self.frames.last_mut() else { break Ok(()) };
            let done = match frame.ops.get(frame.at) {
                Some(op) => {
                    frame.at += 1;
                    self.step(op, cluster)
                }
                None => self.end_of_body(&mut cluster.blocks[self.rank].rings).map(|()| true),
            };
            match done {
                Ok(true) => moved = true,
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        cluster.blocks[self.rank].watch = self.watch.take();
        result.map(|()| moved)
    }

    /// Does the next operation; false if it has to wait, and stays the next.
    fn step(&mut self, op: &'a Op, cluster: &mut Cluster<'a>) -> Result<bool, InterpretError> {
        match op {
            Op::Stage { slot, body, .. } => {
                let Some((number, contents)) = cluster.begin(self.rank, self.number, *slot) else {
                    self.wait_at(op);
                    return Ok(false);
                };
                self.waiting = None;
                self.enter(*slot, number, contents);
                self.open(body, Body::Stage(*slot));
            }
            Op::ClusterSum { dst, number, text, .. } => {
                let meeting = &mut cluster.meetings[self.number];
                if self.waiting.is_none() {
                    meeting.arrive(self.rank, *number, std::mem::take(&mut self.tiles[*dst]), text)?;
                    self.wait_at(op);
                    return Ok(true);
                }
                let Some(sum) = meeting.leave(self.rank) else {
                    self.wait_at(op);
                    return Ok(false);
                };
                self.waiting = None;
                self.tiles[*dst] = sum;
                self.watched(op)?;
            }
            Op::For { counter, lo, hi, condition, unrolled, body } => {
                let next = self.value(lo, || "a loop's first value".to_string())?;
                let hi = self.value(hi, || "a loop's end".to_string())?;
                let unrolled = unrolled.as_deref();
                let condition = condition.as_ref();
                self.iterate(body, For { counter: *counter, next, hi, condition, unrolled })?;
            }
            Op::If { condition, body } => {
                if self.value(condition, || "the condition of a branch".to_string())? != 0 {
                    self.open(body, Body::Branch);
                }
            }
            Op::Tiles { row, col, previous, rows, cols, order, body } => {
                let rows = self.value(rows, || "the number of rows of tiles".to_string())?;
                let cols = self.value(cols, || "the number of columns of tiles".to_string())?;
                let cluster = self.plan.cluster;
                let (next, step) = (self.index[0] / cluster, (self.width / cluster).max(1));
                let (counters, tile) = ([*row, *col], (rows, cols));
                let tiles = Tiles { counters, previous: *previous, order, rows, cols, next, step, tile };
                self.next_tile(body, tiles);
            }
            op => {
                self.watched(op)?;
                self.operation(op, &mut cluster.blocks[self.rank].rings)?;
            }
        }
        Ok(true)
    }

    /// Lets the masks follow an operation.
    fn watched(&mut self, op: &'a Op) -> Result<(), InterpretError> {
        let Some(mut watch) = self.watch.take() else { return Ok(()) };
        let result = watch.before(self, op);
        self.watch = Some(watch);
        result
    }

    /// Makes the operation just begun the next again.
    fn wait_at(&mut self, op: &'a Op) {
        self.waiting = Some(op);
        if let Some(frame) = self.frames.last_mut() {
            frame.at -= 1;
        }
    }

    fn open(&mut self, ops: &'a [Op], of: Body<'a>) {
        self.frames.push(Frame { ops, at: 0, of });
    }

    /// Goes on behind the last operation of the innermost body.
    fn end_of_body(&mut self, rings: &mut [Ring]) -> Result<(), InterpretError> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        match frame.of {
            Body::Role => self.stores_are_done()?,
            Body::Branch => {}
            Body::Stage(slot) => self.leave(slot, &mut rings[slot.pipeline.0 as usize]),
            Body::For(loop_) => {
                if loop_.unrolled.is_some() {
                    self.iterations.pop();
                }
                self.iterate(frame.ops, loop_)?;
            }
            Body::Tiles(tiles) => self.next_tile(frame.ops, tiles),
        }
        Ok(())
    }

    /// Begins the next iteration of a loop, if there is one.
    fn iterate(&mut self, ops: &'a [Op], mut of: For<'a>) -> Result<(), InterpretError> {
        self.values[of.counter] = Some(of.next).filter(|next| *next < of.hi);
        let goes_on = match of.condition {
            Some(condition) if of.next < of.hi => {
                self.value(condition, || "the condition of a loop".to_string())? != 0
            }
            _ => of.next < of.hi,
        };
        if !goes_on {
            self.values[of.counter] = None;
            return Ok(());
        }
        if let Some(tensors) = of.unrolled {
            self.iterations.push(of.next);
            tensors.iter().for_each(|tensor| self.turn_to_instance(*tensor));
        }
        of.next += 1;
        self.open(ops, Body::For(of));
        Ok(())
    }

    /// Begins the next iteration of a loop over tiles, if there is one.
    fn next_tile(&mut self, ops: &'a [Op], mut of: Tiles<'a>) {
        if let Some([row, col]) = of.previous {
            (self.values[row], self.values[col]) = (Some(of.tile.0), Some(of.tile.1));
        }
        let [row, col] = of.counters;
        // What a launch's ranges allow does not overflow.
        let tiles = if of.rows > 0 && of.cols > 0 { of.rows * of.cols } else { 0 };
        if of.next >= tiles {
            (self.values[row], self.values[col]) = (None, None);
            return;
        }
        of.tile = rasterization::tile(&mut rasterization::Numbers, of.order, of.next, of.rows, of.cols);
        (self.values[row], self.values[col]) = (Some(of.tile.0), Some(of.tile.1));
        of.next += of.step;
        self.open(ops, Body::Tiles(of));
    }

    /// Begins the body of a stage: of a full one with what it holds, of another with nothing.
    fn enter(&mut self, slot: Slot, number: usize, contents: Option<Contents>) {
        let row = self.plan.pipeline(slot.pipeline);
        let empty = || Contents {
            tiles: row.tensors.iter().map(|(_, len)| vec![UNWRITTEN; *len]).collect(),
            masks: None,
        };
        let Contents { tiles, masks } = contents.unwrap_or_else(empty);
        for ((tensor, _), tile) in row.tensors.iter().zip(tiles) {
            // It is another stage's memory than what is in flight.
            self.awaited[*tensor].clear();
            self.held[*tensor].clear();
            self.tiles[*tensor] = tile;
        }
        if let Some(watch) = &mut self.watch {
            watch.enter(&row.tensors, masks);
        }
        self.slots.insert(slot, number as i64 % row.stages.max(1));
    }

    /// Ends a stage.
    fn leave(&mut self, slot: Slot, ring: &mut Ring) {
        let row = self.plan.pipeline(slot.pipeline);
        self.slots.remove(&slot);
        let tiles = row.tensors.iter().map(|(tensor, _)| std::mem::take(&mut self.tiles[*tensor])).collect();
        let masks = self.watch.as_mut().map(|watch| watch.leave(&row.tensors));
        match row.reader(self.number).filter(|_| slot.side == Side::Consume) {
            Some(reader) => ring.end(reader),
            None => ring.fill(Contents { tiles, masks }),
        }
    }

    /// Turns to the tensor that the current iteration of unrolled loops has for itself.
    fn turn_to_instance(&mut self, tensor: usize) {
        let next = self.instances.len() + 1;
        let new = *self.instances.entry((tensor, self.iterations.clone())).or_insert(next);
        let old = std::mem::replace(&mut self.instance[tensor], new);
        if old == new {
            return;
        }
        let mut other = self.stored.remove(&(tensor, new)).unwrap_or_default();
        std::mem::swap(&mut other.tile, &mut self.tiles[tensor]);
        std::mem::swap(&mut other.awaited, &mut self.awaited[tensor]);
        std::mem::swap(&mut other.held, &mut self.held[tensor]);
        self.stored.insert((tensor, old), other);
    }
}
