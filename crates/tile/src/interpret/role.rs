//! A role of a block as a coroutine.
//!
//! A role runs until it has to wait for another: in a `produce` for a free stage, in a `consume` for a full one, in a `cluster_reduce` for the
//! other blocks of the cluster. Where it is stands in [`Role::frames`], so that it can go on from there later. All that it computes
//! with is its own; roles meet in the rings of their pipelines. A program without roles is one role.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use super::bound::{Element, UNWRITTEN};
use super::buffer::Buffer;
use super::cluster::{self, Cluster, Common, Multiplied};
use super::coverage::Watch;
use super::error::InterpretError;
use super::flight::{Flights, Mark};
use super::op::{Fixed, Op, Order, Plan, ReduceBy, Step};
use super::quote::Quote;
use super::ring::{Contents, Ring};
use super::values::Values;
use crate::core::{Coord, Slot, TileOrder};
use crate::diagnostic::Origin;
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::program::{Dealer, ParamId, Side};
use crate::rasterization;

/// A body under way.
struct Frame<'a> {
    ops: &'a [Step],
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
    /// Number of tiles.
    count: i64,
    /// The number of the next tile, at the earliest.
    next: i64,
    /// The cluster, and their number.
    cluster: [i64; 2],
    /// Source of the tiles, if they are dealt out.
    dynamic: Option<Dealer>,
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
    pub(super) values: Vec<Option<i64>>,
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
    /// The latest waits for copies and for products: the number of groups that each leaves, and its place.
    pub(super) waited: [Option<(i64, Origin)>; 2],
    /// The place of the statement at hand.
    pub(super) at: Origin,
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
    /// Barriers of the grid to which it has come.
    barriers: u64,
    /// Executions of `print` so far.
    pub(super) printed: u64,
    /// The operation at which it waits, if it does.
    pub(super) waiting: Option<&'a Op>,
    /// The rows that have entered the latest `if any`.
    pub(super) rows: Vec<bool>,
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
            Buffer::Integers(data) => i64::try_from(*data.get(offset as usize)?).ok(),
            // The verifier knows that the kernel does not write it.
            Buffer::Output { .. } | Buffer::Scalar(_) => None,
        }
    }

    fn scalar(&self, param: ParamId) -> Option<i64> {
        match self.buffers.get(param.0 as usize)? {
            Buffer::Scalar(x) => i64::try_from(x.integer()).ok(),
            Buffer::Input(_) | Buffer::Integers(_) | Buffer::Output { .. } => None,
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
            waited: [None; 2],
            at: Origin::Unknown,
            watch: None,
            iterations: Vec::new(),
            instance: vec![0; plan.tensors],
            instances: BTreeMap::new(),
            stored: BTreeMap::new(),
            frames: vec![Frame { ops: &plan.roles[number].ops, at: 0, of: Body::Role }],
            barriers: 0,
            printed: 0,
            waiting: None,
            rows: Vec::new(),
        }
    }

    pub(super) fn value(&self, expr: &Expr, what: impl Fn() -> String) -> Result<i64, InterpretError> {
        expr.eval(self).ok_or_else(|| InterpretError::NoValue { what: Quote::new(what(), Origin::Unknown) })
    }

    /// The value of an entry of an index.
    pub(super) fn coord(&self, coord: &Coord, what: impl Fn() -> String) -> Result<i64, InterpretError> {
        match coord {
            Coord::Expr(e) => self.value(e, what),
            Coord::Slot(slot) => self
                .slots
                .get(slot)
                .copied()
                .ok_or_else(|| InterpretError::NoValue { what: Quote::new(what(), Origin::Unknown) }),
        }
    }

    /// The text of an asynchronous copy or product.
    pub(super) fn flight(&self, number: usize) -> &'a Quote {
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
        self.exchange(&mut cluster.blocks[self.rank].common);
        let mut moved = false;
        let result = loop {
            let Some(frame) = self.frames.last_mut() else { break Ok(()) };
            let done = match frame.ops.get(frame.at) {
                Some(step) => {
                    frame.at += 1;
                    self.noted(step, cluster).map_err(|error| error.at(step.span))
                }
                None => {
                    let ended = self.end_of_body(&mut cluster.blocks[self.rank].rings);
                    ended.map(|()| true).map_err(|error| error.at(self.around()))
                }
            };
            match done {
                Ok(true) => moved = true,
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.exchange(&mut cluster.blocks[self.rank].common);
        cluster.blocks[self.rank].watch = self.watch.take();
        result.map(|()| moved)
    }

    /// The values of tensors.
    fn values_of(&self, tensors: &[usize]) -> Values {
        Values::of(tensors.iter().flat_map(|tensor| &self.tiles[*tensor]))
    }

    /// Does an operation, and notes what it makes where that is asked for.
    fn noted(&mut self, step: &'a Step, cluster: &mut Cluster<'a>) -> Result<bool, InterpretError> {
        let plan = self.plan;
        self.at = step.span;
        let Some(made) = &plan.made else { return self.step(&step.op, cluster) };
        let of = self.values_of(&step.reads);
        let done = self.step(&step.op, cluster)?;
        if let (true, Some(stmt), false) = (done, step.stmt, step.writes.is_empty()) {
            let results = self.values_of(&step.writes);
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            made.entry(stmt).or_default().note(of, results, step.copies);
        }
        Ok(done)
    }

    /// The place of the statement whose body has just ended.
    fn around(&self) -> Origin {
        let before = |frame: &Frame<'a>| frame.ops.get(frame.at.checked_sub(1)?).map(|step| step.span);
        self.frames.last().and_then(before).unwrap_or_default()
    }

    /// Takes the tensors that roles share, or puts them back.
    fn exchange(&mut self, common: &mut [Common]) {
        for Common { tensor, tile, mask } in common {
            std::mem::swap(tile, &mut self.tiles[*tensor]);
            if let Some(watch) = &mut self.watch {
                std::mem::swap(mask, watch.state(*tensor));
            }
        }
    }

    /// Comes to a named barrier; false if it has to wait there.
    fn come(
        &mut self,
        op: &'a Op,
        (barrier, waits, text): (usize, bool, &Quote),
        cluster: &mut Cluster<'a>,
    ) -> Result<bool, InterpretError> {
        let roles = &self.plan.barriers[barrier].roles;
        let block = &mut cluster.blocks[self.rank];
        if self.waiting.is_none() {
            let before = block.came[barrier][self.number];
            if block.met(barrier, roles) < before {
                return Err(InterpretError::ComesAgain {
                    statement: text.clone(),
                    role: self.plan.roles[self.number].name.clone(),
                    time: before + 1,
                });
            }
            block.came[barrier][self.number] += 1;
            if waits {
                self.wait_at(op);
            }
            return Ok(true);
        }
        if block.met(barrier, roles) < block.came[barrier][self.number] {
            self.wait_at(op);
            return Ok(false);
        }
        self.waiting = None;
        Ok(true)
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
            Op::ClusterReduce { dsts, number, reduction, .. } => {
                let meeting = &mut cluster.meetings[self.number];
                if self.waiting.is_none() {
                    let tiles = dsts.iter().map(|dst| std::mem::take(&mut self.tiles[*dst])).collect();
                    if let Some(blocks) = meeting.arrive(self.rank, *number, tiles, reduction)? {
                        meeting.give(match &reduction.by {
                            ReduceBy::Op(op, dtype) => vec![cluster::combined(&blocks, *op, *dtype)],
                            ReduceBy::Function(function) => self.across_blocks(function, &blocks)?,
                        });
                    }
                    self.wait_at(op);
                    return Ok(true);
                }
                let Some(result) = meeting.leave(self.rank) else {
                    self.wait_at(op);
                    return Ok(false);
                };
                self.waiting = None;
                for (dst, tile) in dsts.iter().zip(result) {
                    self.tiles[*dst] = tile;
                }
                self.watched(op)?;
            }
            Op::Come { barrier, waits, text, .. } => {
                return self.come(op, (*barrier, *waits, text), cluster);
            }
            Op::SyncGrid { counter, .. } => {
                let Some(grid) = &self.plan.grid else { return Ok(true) };
                if self.waiting.is_none() {
                    self.barriers += 1;
                    if grid.arrive(self.number, self.barriers) {
                        let buffer = &self.buffers[*counter];
                        let flipped = buffer.read(0).value as i32 ^ i32::MIN;
                        buffer.write(0, Element::exact(f64::from(flipped)));
                    }
                    self.wait_at(op);
                    return Ok(true);
                }
                if !grid.is_over(self.number, self.barriers) {
                    self.wait_at(op);
                    return Ok(false);
                }
                self.waiting = None;
            }
            Op::Signal { flag, value, combine } => self.signal(flag, value, *combine)?,
            Op::Await { flag, least, .. } => {
                if self.waits_for(flag, least)? {
                    self.wait_at(op);
                    return Ok(false);
                }
                self.waiting = None;
            }
            Op::Ticket { symbol, flag, count } => {
                let number = self.ticket(flag, count)?;
                self.values[*symbol] = Some(number);
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
            Op::Break { condition } => {
                if self.value(condition, || "the condition of a `break`".to_string())? != 0 {
                    self.leave_loop();
                }
            }
            Op::IfAny { number, condition, rows, count, body } => {
                self.watched(op)?;
                self.rows = self.entering(*number, *condition, rows, *count);
                if self.rows.contains(&true) {
                    self.open(body, Body::Branch);
                }
            }
            Op::Tiles { row, col, previous, rows, cols, order, dynamic, body } => {
                let rows = self.value(rows, || "the number of rows of tiles".to_string())?;
                let cols = self.value(cols, || "the number of columns of tiles".to_string())?;
                if let Some(Dealer::Counter(counter)) = dynamic {
                    self.begins_at_zero(counter.0 as usize)?;
                }
                let cluster = [self.index[0], self.width].map(|blocks| blocks / self.plan.cluster);
                let (counters, tile, dynamic) = ([*row, *col], (rows, cols), *dynamic);
                // What a launch's ranges allow does not overflow.
                let tiles = if rows > 0 && cols > 0 { rows * cols } else { 0 };
                let count = match order {
                    TileOrder::Listed { table } => self.plan.extent(*table),
                    TileOrder::Grouped { .. } | TileOrder::Hilbert { .. } => tiles,
                };
                let previous = *previous;
                let tiles =
                    Tiles { counters, previous, order, rows, cols, count, next: 0, cluster, dynamic, tile };
                self.next_tile(body, tiles);
            }
            op => {
                if let Some(step) = self.for_a_pair(op)? {
                    cluster.multiply(self.rank, self.number, step);
                }
                self.watched(op)?;
                self.operation(op, &mut cluster.blocks[self.rank].rings)?;
            }
        }
        Ok(true)
    }

    /// The step of an operation that one thread does for both blocks of a pair, or each for half of a tile of both, if it is one.
    fn for_a_pair(&self, op: &Op) -> Result<Option<Multiplied>, InterpretError> {
        let product = match op {
            Op::GemmAsync(product) if product.pair => product,
            Op::Fill { pair: Some(number), .. } => {
                return Ok(Some(Multiplied::Statement(*number, self.at, Vec::new())));
            }
            Op::Alike { access, multicast, text } if multicast.halves() && access.indexed.is_some() => {
                let rows = self.corner(access)?.steps.unwrap_or_default();
                return Ok(Some(Multiplied::Rows(text.clone(), rows)));
            }
            _ => return Ok(None),
        };
        // The number of a stage is the pipeline's.
        let places = product.reads.iter().flat_map(|place| &place.fixed);
        let indices = places.filter(|fixed| matches!(fixed.index, Coord::Expr(_)));
        let value = |fixed: &Fixed| self.coord(&fixed.index, || "an index of a factor".to_string());
        let indices = indices.map(value).collect::<Result<_, _>>()?;
        Ok(Some(Multiplied::Statement(product.flight, self.at, indices)))
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

    fn open(&mut self, ops: &'a [Step], of: Body<'a>) {
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

    /// Goes on behind the innermost loop.
    fn leave_loop(&mut self) {
        while let Some(frame) = self.frames.pop() {
            if let Body::For(loop_) = frame.of {
                self.values[loop_.counter] = None;
                return;
            }
        }
    }

    /// Begins the next iteration of a loop, if there is one.
    fn iterate(&mut self, ops: &'a [Step], mut of: For<'a>) -> Result<(), InterpretError> {
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
    fn next_tile(&mut self, ops: &'a [Step], mut of: Tiles<'a>) {
        if let Some([row, col]) = of.previous {
            (self.values[row], self.values[col]) = (Some(of.tile.0), Some(of.tile.1));
        }
        let [row, col] = of.counters;
        let [cluster, clusters] = of.cluster;
        // Who takes which tile is open: in the second run other clusters do.
        let dealer = of.dynamic.filter(|_| self.plan.order == Order::Ascending);
        let takes = |number: &i64| match dealer {
            Some(Dealer::Counter(_)) => rasterization::taker(*number, clusters) == cluster,
            Some(Dealer::Launch) => number % rasterization::begun(clusters) == cluster,
            None => number % clusters.max(1) == cluster,
        };
        let Some(mut number) = (of.next..of.count).find(takes) else {
            (self.values[row], self.values[col]) = (None, None);
            return;
        };
        of.next = number + 1;
        if let TileOrder::Listed { table } = of.order {
            let tiles = of.rows.max(0) * of.cols.max(0);
            let listed = self.element(*table, &[number]).unwrap_or(tiles);
            number = if (0..tiles).contains(&listed) { listed } else { tiles };
        }
        of.tile = rasterization::tile(&mut rasterization::Numbers, of.order, number, of.rows, of.cols);
        (self.values[row], self.values[col]) = (Some(of.tile.0), Some(of.tile.1));
        self.open(ops, Body::Tiles(of));
    }

    /// An error where a counter that deals out tiles does not begin at 0.
    fn begins_at_zero(&self, counter: usize) -> Result<(), InterpretError> {
        let value = self.buffers[counter].read(0).value;
        if value == 0.0 {
            return Ok(());
        }
        Err(InterpretError::CounterBegins { name: self.plan.names[counter].clone(), value })
    }

    /// Begins the body of a stage: of a full one with what it holds, of another with what a `fill` ahead of it has made, with what is left of the one before, or with
    /// nothing.
    fn enter(&mut self, slot: Slot, number: usize, contents: Option<Contents>) {
        let row = self.plan.pipeline(slot.pipeline);
        let empty = || Contents {
            tiles: row.tensors.iter().map(|(_, len)| vec![UNWRITTEN; *len]).collect(),
            masks: None,
        };
        let Contents { tiles, masks } = contents.unwrap_or_else(empty);
        let mut filled = Vec::new();
        for ((tensor, _), tile) in row.tensors.iter().zip(tiles) {
            // It is another stage's memory than what is in flight.
            self.awaited[*tensor].clear();
            self.held[*tensor].clear();
            let ahead = row.keeps && slot.side == Side::Produce && !self.tiles[*tensor].is_empty();
            filled.push(ahead);
            if !ahead {
                self.tiles[*tensor] = tile;
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.enter(&row.tensors, masks, &filled);
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
            Some(reader) => {
                if row.keeps {
                    ring.leave(Contents { tiles, masks });
                }
                ring.end(reader);
            }
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
