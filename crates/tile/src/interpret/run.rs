//! Running one block.

use std::collections::{BTreeMap, VecDeque};

use tilewright_machine::DType;

use super::bound::{self, Accumulation, Element, UNWRITTEN};
use super::cluster::Meeting;
use super::coverage::Watch;
use super::plan::{Access, Op, Plan, Product, Ring, Side, Tile};
use super::progress::{Step, Steps};
use super::{Buffer, InterpretError, round, shapes};
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::order;
use crate::program::ParamId;

/// Where a tile of a buffer begins, and where the buffer, or the view of it, ends.
#[derive(PartialEq)]
pub(super) struct Corner {
    base: Vec<i64>,
    ends: Vec<i64>,
}

/// What an asynchronous copy or product in flight still has to write.
enum Effect<'a> {
    /// These elements, at the places of the shared tensor that it writes.
    Tile { values: Vec<Element> },
    /// These elements, to a buffer from a coordinate on; added to what is there, rounded to the type, if there is one.
    Global { access: &'a Access, corner: Corner, values: Vec<Element>, add: Option<DType> },
    /// Nothing: a product is computed where it stands.
    Nothing,
}

/// An asynchronous copy or product in flight.
struct InFlight<'a> {
    mark: Mark,
    effect: Effect<'a>,
    /// What it writes.
    writes: Option<Touched>,
    /// What it reads.
    reads: Vec<Touched>,
    /// The stages that it reads: of which pipeline, and which of those it has read.
    stages: Vec<(usize, usize)>,
}

/// Places of a tensor: of the one with this number among those that the rounds of unrolled loops have.
struct Touched {
    tensor: usize,
    instance: usize,
    places: Vec<usize>,
}

/// A tensor of a round of an unrolled loop that is not the round at hand.
#[derive(Default)]
struct Stored {
    tile: Vec<Element>,
    awaited: Vec<Option<Mark>>,
    held: Vec<Option<Mark>>,
}

/// A stage that is not free.
struct Unfree {
    /// Products in flight that read it.
    products: usize,
    /// Whether its `consume` has ended.
    ended: bool,
}

/// Which asynchronous copy or product it is of those done so far, and its number in [`Plan::flights`].
#[derive(Clone, Copy, PartialEq)]
struct Mark {
    serial: usize,
    flight: usize,
}

/// The asynchronous copies, or products, of a role.
#[derive(Default)]
struct Flights<'a> {
    /// Groups, the oldest first.
    groups: VecDeque<Vec<InFlight<'a>>>,
    /// Those that are in no group yet.
    open: Vec<InFlight<'a>>,
}

impl<'a> Flights<'a> {
    fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// All of the groups but so many of the latest.
    fn complete(&mut self, left: i64) -> Vec<InFlight<'a>> {
        let left = usize::try_from(left).unwrap_or(0);
        let done = self.groups.len().saturating_sub(left);
        self.groups.drain(..done).flatten().collect()
    }
}

/// The stages of a pipeline that are full, the oldest first, and how many have been filled and read.
#[derive(Default)]
struct Queue {
    full: VecDeque<Vec<Vec<Element>>>,
    filled: usize,
    read: usize,
    /// The stages that have been read and are not free, the oldest first.
    unfree: VecDeque<Unfree>,
}

pub(super) struct Block<'a> {
    plan: &'a Plan,
    pub(super) buffers: &'a [Buffer<'a>],
    index: [i64; 3],
    /// Blocks along x.
    width: i64,
    meeting: &'a Meeting,
    /// Sizes, and counters of open loops, by symbol.
    values: Vec<Option<i64>>,
    /// Each tensor's elements, leftmost mode fastest.
    pub(super) tiles: Vec<Vec<Element>>,
    /// A tile on its way from one side of a copy to the other.
    moving: Vec<Element>,
    /// For each element of a tensor what in flight writes it; empty before the first.
    awaited: Vec<Vec<Option<Mark>>>,
    /// For each element of a tensor the latest in flight that reads it; empty before the first.
    held: Vec<Vec<Option<Mark>>>,
    /// How many asynchronous copies and products there have been.
    serial: usize,
    copies: Flights<'a>,
    products: Flights<'a>,
    queues: Vec<Queue>,
    /// The masks, if they are asked for.
    watch: Option<Box<Watch<'a>>>,
    /// The rounds of unrolled loops that are being run, outermost first.
    rounds: Vec<i64>,
    /// For each tensor which one of those that rounds have is at hand.
    instance: Vec<usize>,
    /// The numbers of the others, by tensor and rounds.
    instances: BTreeMap<(usize, Vec<i64>), usize>,
    stored: BTreeMap<(usize, usize), Stored>,
    /// What each role has done so far to stages.
    steps: Vec<Steps>,
}

impl Scope for Block<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.values.get(id.0 as usize).copied().flatten()
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(self.index[axis.index()])
    }

    fn element(&self, param: ParamId, index: i64) -> Option<i64> {
        let (extent, stride) = *self.plan.lists.get(param.0 as usize)?;
        if !(0..extent).contains(&index) {
            return Some(0);
        }
        match self.buffers.get(param.0 as usize)? {
            Buffer::Input(data) => Some(*data.get((index * stride) as usize)? as i64),
            // The verifier knows that the kernel does not write it.
            Buffer::Output { .. } | Buffer::Scalar(_) => None,
        }
    }
}

/// Runs the block with this index.
pub(super) fn block<'a>(
    plan: &'a Plan,
    buffers: &'a [Buffer<'a>],
    (index, width): ([i64; 3], i64),
    values: Vec<Option<i64>>,
    meeting: &'a Meeting,
    watch: Option<Watch<'a>>,
) -> Result<Vec<Steps>, InterpretError> {
    let mut block = Block {
        plan,
        buffers,
        index,
        width,
        meeting,
        values,
        tiles: vec![Vec::new(); plan.tensors],
        moving: Vec::new(),
        awaited: vec![Vec::new(); plan.tensors],
        held: vec![Vec::new(); plan.tensors],
        serial: 0,
        copies: Flights::default(),
        products: Flights::default(),
        queues: plan.pipelines.iter().map(|_| Queue::default()).collect(),
        watch: watch.map(Box::new),
        rounds: Vec::new(),
        instance: vec![0; plan.tensors],
        instances: BTreeMap::new(),
        stored: BTreeMap::new(),
        steps: vec![Steps::default()],
    };
    block.run(&plan.ops)?;
    block.stores_are_done()?;
    for (queue, ring) in block.queues.iter().zip(&plan.pipelines) {
        if !queue.full.is_empty() {
            let (left, filled) = (queue.full.len(), queue.filled);
            return Err(InterpretError::UnreadStages { pipeline: ring.name.clone(), left, filled });
        }
    }
    Ok(block.steps)
}

impl<'a> Block<'a> {
    pub(super) fn value(&self, expr: &Expr, what: impl Fn() -> String) -> Result<i64, InterpretError> {
        expr.eval(self).ok_or_else(|| InterpretError::NoValue { what: what() })
    }

    fn run(&mut self, ops: &'a [Op]) -> Result<(), InterpretError> {
        ops.iter().try_for_each(|op| self.op(op))
    }

    /// The text of an asynchronous copy or product.
    pub(super) fn flight(&self, number: usize) -> &'a str {
        &self.plan.flights[number]
    }

    fn op(&mut self, op: &'a Op) -> Result<(), InterpretError> {
        if let Some(mut watch) = self.watch.take() {
            let looked = watch.before(self, op);
            self.watch = Some(watch);
            looked?;
        }
        match op {
            Op::Mark(stmt) => {
                if let Some(watch) = &mut self.watch {
                    watch.at(*stmt);
                }
            }
            Op::Define { tensor, len } => {
                self.tiles[*tensor].clear();
                self.tiles[*tensor].resize(*len, UNWRITTEN);
            }
            Op::Copy { src, dst, len, text } => self.copy(src, dst, *len, text)?,
            Op::CopyAsync { src, dst, add, flight } => self.copy_async(src, dst, *add, *flight)?,
            Op::Commit => self.copies.commit(),
            Op::Wait(groups) => {
                let left = self.value(groups, || "a number of groups".to_string())?;
                for copy in self.copies.complete(left) {
                    self.land(copy)?;
                }
            }
            Op::Landed { reads, writes, text } => {
                reads.iter().try_for_each(|tile| self.landed(tile, "reads", text))?;
                writes.iter().try_for_each(|tile| self.landed(tile, "writes", text))?;
            }
            Op::Alike { access, text } => {
                let (own, at) = (self.corner(access)?, self.index[0]);
                let first = at - at % self.plan.cluster;
                for peer in first..first + self.plan.cluster {
                    self.index[0] = peer;
                    let corner = self.corner(access);
                    self.index[0] = at;
                    if corner? != own {
                        return Err(InterpretError::MulticastApart { statement: text.clone() });
                    }
                }
            }
            Op::GemmAsync(product) => self.gemm_async(product)?,
            Op::CommitGemm => self.products.commit(),
            Op::WaitGemm(groups) => {
                let left = self.value(groups, || "a number of groups".to_string())?;
                for product in self.products.complete(left) {
                    self.land(product)?;
                }
            }
            Op::ClusterSum { dst, number, text } => {
                let rank = self.index[0].rem_euclid(self.plan.cluster) as usize;
                self.step(Step::Meet);
                let sum = self.meeting.sum(rank, *number, std::mem::take(&mut self.tiles[*dst]));
                self.tiles[*dst] =
                    sum.ok_or_else(|| InterpretError::ClusterApart { statement: text.clone() })?;
            }
            Op::Role { name, body } => {
                self.steps.push(Steps { role: Some(name.clone()), steps: Vec::new() });
                self.run(body)?;
                // The next role's threads wait for their own.
                self.stores_are_done()?;
                for flights in [std::mem::take(&mut self.copies), std::mem::take(&mut self.products)] {
                    for mut flight in flights.groups.into_iter().flatten().chain(flights.open) {
                        // Nothing in the role gives those back.
                        flight.stages.clear();
                        self.land(flight)?;
                    }
                }
            }
            Op::Stage { ring, produce, slot, body, text } => {
                self.stage(*ring, *produce, *slot, body, text)?
            }
            Op::Tiles { row, col, after, rows, cols, order, body } => {
                let rows = self.value(rows, || "the number of rows of tiles".to_string())?;
                let cols = self.value(cols, || "the number of columns of tiles".to_string())?;
                // What a launch's ranges allow does not overflow.
                let tiles = if rows > 0 && cols > 0 { rows * cols } else { 0 };
                let (mut index, step) = (self.index[0] / self.plan.cluster, self.width / self.plan.cluster);
                let mut done = (rows, cols);
                loop {
                    if let Some([row, col]) = after {
                        (self.values[*row], self.values[*col]) = (Some(done.0), Some(done.1));
                    }
                    if index >= tiles {
                        break;
                    }
                    done = order::tile(&mut order::Numbers, order, index, rows, cols);
                    (self.values[*row], self.values[*col]) = (Some(done.0), Some(done.1));
                    self.run(body)?;
                    index += step.max(1);
                }
                (self.values[*row], self.values[*col]) = (None, None);
            }
            Op::Parts { parts, op, text } => {
                for part in parts {
                    let places = self.places(&part.tile, text)?;
                    let whole = &self.tiles[part.tile.tensor];
                    self.tiles[part.part] = places.iter().map(|&o| whole[o]).collect();
                }
                self.op(op)?;
                for part in parts {
                    let places = self.places(&part.tile, text)?;
                    let values = std::mem::take(&mut self.tiles[part.part]);
                    let whole = &mut self.tiles[part.tile.tensor];
                    places.into_iter().zip(values).for_each(|(o, x)| whole[o] = x);
                }
            }
            Op::Gemm { c, a, b, shape, how } => {
                let mut acc = std::mem::take(&mut self.tiles[*c]);
                gemm(&mut acc, &self.tiles[*a], &self.tiles[*b], *shape, *how);
                self.tiles[*c] = acc;
            }
            Op::Convert { dst, src, dtype, through_f32 } => {
                let mut tile = std::mem::take(&mut self.tiles[*dst]);
                if dst != src {
                    tile.clone_from(&self.tiles[*src]);
                }
                let steps = [through_f32.then_some(DType::F32), *dtype];
                for dtype in steps.into_iter().flatten() {
                    tile.iter_mut().for_each(|x| *x = x.round(dtype));
                }
                self.tiles[*dst] = tile;
            }
            Op::Fill { dst, len, value } => {
                self.tiles[*dst].clear();
                self.tiles[*dst].resize(*len, Element::exact(*value));
            }
            Op::Elementwise { dst, len, code, dtype } => {
                let mut tile = self.elementwise(code)?.tile(*len);
                if *dtype != DType::F32 {
                    tile.iter_mut().for_each(|x| *x = x.round(*dtype));
                }
                self.tiles[*dst] = tile;
            }
            Op::Pick { dst, src, order } => {
                let from = &self.tiles[*src];
                self.tiles[*dst] = match order {
                    None => from.clone(),
                    Some(order) => order.iter().map(|&o| from[o as usize]).collect(),
                };
            }
            Op::Slice { dst, src, order, start, most, stride, text } => {
                let start = self.value(start, || "the beginning of a slice".to_string())?;
                if !(0..=*most).contains(&start) {
                    let statement = text.clone();
                    return Err(InterpretError::SliceOutside { statement, start, most: *most });
                }
                let (from, first) = (&self.tiles[*src], (start * stride) as usize);
                self.tiles[*dst] = order.iter().map(|&o| from[first + o as usize]).collect();
            }
            Op::Join { dst, a, b } => {
                self.tiles[*dst] = [self.tiles[*a].as_slice(), self.tiles[*b].as_slice()].concat();
            }
            Op::Split { lo, hi, src } => {
                let from = &self.tiles[*src];
                let (first, second) = from.split_at(from.len() / 2);
                let (first, second) = (first.to_vec(), second.to_vec());
                self.tiles[*lo] = first;
                self.tiles[*hi] = second;
            }
            Op::Reduce { dst, src, around, op, dtype } => {
                self.tiles[*dst] = shapes::reduce(&self.tiles[*src], *around, *op, *dtype);
            }
            Op::Gather { dst, src, around, index, along } => {
                self.tiles[*dst] = shapes::gather(&self.tiles[*src], *around, &self.tiles[*index], *along);
            }
            Op::For { counter, lo, hi, unrolled, own, body } => {
                let lo = self.value(lo, || "a loop's first value".to_string())?;
                let hi = self.value(hi, || "a loop's end".to_string())?;
                for i in lo..hi {
                    self.values[*counter] = Some(i);
                    if *unrolled {
                        self.rounds.push(i);
                        own.iter().for_each(|tensor| self.round_of(*tensor));
                    }
                    self.run(body)?;
                    if *unrolled {
                        self.rounds.pop();
                    }
                }
                self.values[*counter] = None;
            }
        }
        Ok(())
    }

    /// The offset of the first element of a tile of the block.
    fn start(&self, tile: &Tile, statement: &str) -> Result<usize, InterpretError> {
        let mut start = 0;
        for fixed in &tile.fixed {
            let index = self.value(&fixed.index, || format!("an index of `{}`", tile.name))?;
            if !(0..fixed.extent).contains(&index) {
                return Err(InterpretError::IndexOutside {
                    statement: statement.to_string(),
                    tensor: tile.name.clone(),
                    mode: fixed.mode,
                    index,
                    extent: fixed.extent,
                });
            }
            start += index * fixed.stride;
        }
        Ok(start as usize)
    }

    /// The offset of each element of a tile of the block.
    pub(super) fn places(&self, tile: &Tile, statement: &str) -> Result<Vec<usize>, InterpretError> {
        let start = self.start(tile, statement)?;
        Ok(match &tile.order {
            None => (0..self.tiles[tile.tensor].len()).collect(),
            Some(order) => order.iter().map(|&o| start + o as usize).collect(),
        })
    }

    /// An error where an element of the tile is in flight: what is read must not be on its way, what is written must not be read
    /// either.
    fn landed(&self, tile: &Tile, access: &'static str, statement: &str) -> Result<(), InterpretError> {
        let (awaited, held) = (&self.awaited[tile.tensor], &self.held[tile.tensor]);
        let held = if access == "writes" { held.as_slice() } else { &[] };
        if awaited.is_empty() && held.is_empty() {
            return Ok(());
        }
        let places = self.places(tile, statement)?;
        let at = |marks: &[Option<Mark>], place: usize| marks.get(place).copied().flatten();
        let mark = places.into_iter().find_map(|place| at(awaited, place).or(at(held, place)));
        mark.map_or(Ok(()), |mark| {
            Err(InterpretError::InFlight {
                statement: statement.to_string(),
                access,
                tensor: tile.name.clone(),
                flight: self.plan.flights[mark.flight].clone(),
            })
        })
    }

    /// Notes what the role does to stages.
    fn step(&mut self, step: Step) {
        if let Some(role) = self.steps.last_mut() {
            role.steps.push(step);
        }
    }

    /// Turns to the tensor that the round at hand has of those that rounds have.
    fn round_of(&mut self, tensor: usize) {
        let next = self.instances.len() + 1;
        let new = *self.instances.entry((tensor, self.rounds.clone())).or_insert(next);
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

    /// Those places of the tensor at hand.
    fn touched(&self, tensor: usize, places: Vec<usize>) -> Touched {
        Touched { tensor, instance: self.instance[tensor], places }
    }

    /// Marks what an asynchronous copy or product writes and reads, until it lands.
    fn take_off(
        &mut self,
        flight: usize,
        effect: Effect<'a>,
        writes: Option<Touched>,
        reads: Vec<Touched>,
    ) -> InFlight<'a> {
        self.serial += 1;
        let mark = Mark { serial: self.serial, flight };
        let tiles = &self.tiles;
        let set = |marks: &mut Vec<Vec<Option<Mark>>>, touched: &Touched| {
            let marks = &mut marks[touched.tensor];
            marks.resize(tiles[touched.tensor].len().max(marks.len()), None);
            touched.places.iter().for_each(|&place| marks[place] = Some(mark));
        };
        writes.iter().for_each(|part| set(&mut self.awaited, part));
        reads.iter().for_each(|part| set(&mut self.held, part));
        InFlight { mark, effect, writes, reads, stages: Vec::new() }
    }

    /// Completes an asynchronous copy or product.
    fn land(&mut self, flight: InFlight<'a>) -> Result<(), InterpretError> {
        if let Some(watch) = &mut self.watch {
            watch.at(self.plan.flight_statements[flight.mark.flight]);
        }
        // A later one may have marked the same places.
        let clear = |marks: &mut Vec<Option<Mark>>, places: &[usize]| {
            for &place in places {
                if let Some(slot) = marks.get_mut(place) {
                    *slot = slot.filter(|mark| *mark != flight.mark);
                }
            }
        };
        let write = |tile: &mut Vec<Element>, places: &[usize]| {
            if let Effect::Tile { values } = &flight.effect {
                places.iter().zip(values).for_each(|(place, x)| tile[*place] = *x);
            }
        };
        for Touched { tensor, instance, places } in flight.writes.iter() {
            if self.instance[*tensor] == *instance {
                write(&mut self.tiles[*tensor], places);
                clear(&mut self.awaited[*tensor], places);
            } else if let Some(stored) = self.stored.get_mut(&(*tensor, *instance)) {
                write(&mut stored.tile, places);
                clear(&mut stored.awaited, places);
            }
        }
        for Touched { tensor, instance, places } in &flight.reads {
            if self.instance[*tensor] == *instance {
                clear(&mut self.held[*tensor], places);
            } else if let Some(stored) = self.stored.get_mut(&(*tensor, *instance)) {
                clear(&mut stored.held, places);
            }
        }
        if let Effect::Global { access, corner, values, add } = flight.effect {
            self.store(access, &corner, &values, add);
        }
        for (ring, stage) in flight.stages {
            let queue = &mut self.queues[ring];
            let first = queue.read - queue.unfree.len();
            if let Some(unfree) = queue.unfree.get_mut(stage - first) {
                unfree.products -= 1;
            }
            self.free(ring);
        }
        Ok(())
    }

    /// Notes which stages of a pipeline are free now: in their order, those that are over and that no product in flight reads.
    fn free(&mut self, ring: usize) {
        let free = |stage: &Unfree| stage.ended && stage.products == 0;
        while self.queues[ring].unfree.front().is_some_and(free) {
            self.queues[ring].unfree.pop_front();
            self.step(Step::Free(ring as u32));
        }
    }

    /// An error where a copy to global memory is still in flight.
    fn stores_are_done(&self) -> Result<(), InterpretError> {
        let mut flights = self.copies.groups.iter().flatten().chain(&self.copies.open);
        flights.find(|flight| matches!(flight.effect, Effect::Global { .. })).map_or(Ok(()), |flight| {
            Err(InterpretError::NeverWaitedFor { flight: self.plan.flights[flight.mark.flight].clone() })
        })
    }

    fn stage(
        &mut self,
        ring: usize,
        produce: bool,
        slot: Option<usize>,
        body: &'a [Op],
        text: &str,
    ) -> Result<(), InterpretError> {
        let plan = self.plan;
        let row = &plan.pipelines[ring];
        self.step(if produce { Step::Fill(ring as u32) } else { Step::Read(ring as u32) });
        let queue = &mut self.queues[ring];
        let number = if produce { queue.filled } else { queue.read };
        if produce {
            queue.filled += 1;
        } else {
            let Some(full) = queue.full.pop_front() else {
                let (role, filled) = (row.producer.clone(), queue.filled);
                return Err(InterpretError::NoStage { statement: text.to_string(), role, filled });
            };
            queue.read += 1;
            queue.unfree.push_back(Unfree { products: 0, ended: false });
            row.tensors.iter().zip(full).for_each(|((tensor, _), tile)| self.tiles[*tensor] = tile);
        }
        for (tensor, len) in &row.tensors {
            // It is another stage's memory than what is in flight.
            self.awaited[*tensor].clear();
            self.held[*tensor].clear();
            if produce {
                self.tiles[*tensor] = vec![UNWRITTEN; *len];
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.enter(ring, produce, &row.tensors);
        }
        if let Some(slot) = slot {
            self.values[slot] = Some(number as i64 % row.stages.max(1));
        }
        self.run(body)?;
        if let Some(slot) = slot {
            self.values[slot] = None;
        }
        let tiles = row.tensors.iter().map(|(tensor, _)| std::mem::take(&mut self.tiles[*tensor])).collect();
        if let Some(watch) = &mut self.watch {
            watch.leave(ring, produce, &row.tensors);
        }
        if produce {
            self.queues[ring].full.push_back(tiles);
            self.step(Step::Filled(ring as u32));
        } else {
            self.queues[ring].unfree.iter_mut().last().into_iter().for_each(|stage| stage.ended = true);
            self.free(ring);
        }
        Ok(())
    }

    fn gemm_async(&mut self, product: &'a Product) -> Result<(), InterpretError> {
        let text = &self.plan.flights[product.flight];
        let mut factors = [Vec::new(), Vec::new()];
        let (mut reads, mut stages) = (Vec::new(), Vec::new());
        for ((side, place), factor) in
            [&product.a, &product.b].into_iter().zip(&product.reads).zip(&mut factors)
        {
            self.fetch(side, factor, text)?;
            if product.tf32 {
                factor.iter_mut().for_each(|x| *x = x.tf32());
            }
            reads.push(self.touched(place.tensor, self.places(place, text)?));
            let of = |row: &Ring| row.tensors.iter().any(|(tensor, _)| *tensor == place.tensor);
            if let Some(ring) = self.plan.pipelines.iter().position(of) {
                stages.push((ring, self.queues[ring].read.saturating_sub(1)));
            }
        }
        let [a, b] = factors;
        let mut c = std::mem::take(&mut self.tiles[product.c]);
        gemm(&mut c, &a, &b, product.shape, product.how);
        self.tiles[product.c] = c;
        let place = self.touched(product.place.tensor, self.places(&product.place, text)?);
        let mut flight = self.take_off(product.flight, Effect::Nothing, Some(place), reads);
        for (ring, stage) in &stages {
            let queue = &mut self.queues[*ring];
            let first = queue.read - queue.unfree.len();
            queue.unfree.get_mut(stage - first).into_iter().for_each(|stage| stage.products += 1);
        }
        flight.stages = stages;
        self.products.open.push(flight);
        Ok(())
    }

    /// Reads one side of a copy.
    fn fetch(&self, src: &Side, moving: &mut Vec<Element>, text: &str) -> Result<(), InterpretError> {
        moving.clear();
        match src {
            Side::Tile(tile) => {
                self.landed(tile, "reads", text)?;
                let (from, start) = (&self.tiles[tile.tensor], self.start(tile, text)?);
                match &tile.order {
                    None => moving.extend_from_slice(from),
                    Some(order) => moving.extend(order.iter().map(|&o| from[start + o as usize])),
                }
                Ok(())
            }
            Side::Global(access) => self.load(access, moving),
        }
    }

    fn copy(&mut self, src: &Side, dst: &Side, len: usize, text: &str) -> Result<(), InterpretError> {
        let mut moving = std::mem::take(&mut self.moving);
        self.fetch(src, &mut moving, text)?;
        debug_assert_eq!(moving.len(), len);
        match dst {
            Side::Tile(tile) => {
                self.landed(tile, "writes", text)?;
                let start = self.start(tile, text)?;
                let to = &mut self.tiles[tile.tensor];
                match &tile.order {
                    None => std::mem::swap(to, &mut moving),
                    Some(order) => {
                        order.iter().zip(&moving).for_each(|(&o, &x)| to[start + o as usize] = x);
                    }
                }
            }
            Side::Global(access) => {
                let corner = self.corner(access)?;
                self.store(access, &corner, &moving, None);
            }
        }
        self.moving = moving;
        Ok(())
    }

    fn copy_async(
        &mut self,
        src: &'a Side,
        dst: &'a Side,
        add: Option<DType>,
        flight: usize,
    ) -> Result<(), InterpretError> {
        let text = &self.plan.flights[flight];
        let mut values = Vec::new();
        self.fetch(src, &mut values, text)?;
        let reads = match src {
            Side::Tile(tile) => vec![self.touched(tile.tensor, self.places(tile, text)?)],
            Side::Global(_) => Vec::new(),
        };
        let (effect, writes) = match dst {
            Side::Tile(tile) => {
                self.landed(tile, "writes", text)?;
                let places = self.places(tile, text)?;
                (Effect::Tile { values }, Some(self.touched(tile.tensor, places)))
            }
            Side::Global(access) => {
                (Effect::Global { access, corner: self.corner(access)?, values, add }, None)
            }
        };
        let flight = self.take_off(flight, effect, writes, reads);
        self.copies.open.push(flight);
        Ok(())
    }

    pub(super) fn corner(&self, access: &Access) -> Result<Corner, InterpretError> {
        let all = |list: &[Expr], what: &str| -> Result<Vec<i64>, _> {
            list.iter().map(|e| self.value(e, || format!("{what} of `{}`", access.name))).collect()
        };
        Ok(Corner { base: all(&access.base, "an offset")?, ends: all(&access.shape, "the end")? })
    }

    fn load(&self, access: &Access, out: &mut Vec<Element>) -> Result<(), InterpretError> {
        let corner = self.corner(access)?;
        let start = access.start_if_inside(&corner);
        if let Some(watch) = &self.watch {
            access.visit(&corner, |offset| watch.loaded(access.param, offset));
        }
        let buffer = &self.buffers[access.param];
        match start {
            Some(start) => out.extend(access.offsets.iter().map(|o| buffer.read((start + o) as usize))),
            None => access.each(&corner, |offset| {
                out.push(offset.map_or(Element::exact(0.0), |o| buffer.read(o)));
            }),
        }
        Ok(())
    }

    /// Writes a tile to a buffer from a coordinate on; adds it to what is there, rounded to the type, if there is one.
    fn store(&self, access: &Access, corner: &Corner, tile: &[Element], add: Option<DType>) {
        let buffer = &self.buffers[access.param];
        if let Some(watch) = &self.watch {
            access.visit_with(corner, tile, |offset, x: Element| {
                let values = add.is_none().then(|| [buffer.read(offset).value, x.value]);
                watch.stored(access.param, offset, values);
            });
        }
        let put = |offset: usize, x: Element| match add {
            None => buffer.write(offset, x),
            Some(dtype) => buffer.add(offset, x, dtype),
        };
        access.visit_with(corner, tile, put);
    }
}

impl Access {
    /// The offset of the first element, where the whole tile lies within the buffer.
    pub(super) fn start_if_inside(&self, Corner { base, ends }: &Corner) -> Option<i64> {
        let reach = self.reach.as_ref()?;
        let mut start = 0i64;
        for (((b, reach), extent), stride) in base.iter().zip(reach).zip(ends).zip(&self.strides) {
            if *b < 0 || b.checked_add(*reach)? >= *extent {
                return None;
            }
            start += b * stride;
        }
        Some(start)
    }

    /// Calls `visit` with the offset of every element of the tile that lies in the buffer.
    fn visit(&self, corner: &Corner, mut visit: impl FnMut(usize)) {
        match self.start_if_inside(corner) {
            Some(start) => self.offsets.iter().for_each(|o| visit((start + o) as usize)),
            None => self.each(corner, |offset| offset.into_iter().for_each(&mut visit)),
        }
    }

    /// The same, with the element of `tile` that belongs there.
    fn visit_with<T: Copy>(&self, corner: &Corner, tile: &[T], mut visit: impl FnMut(usize, T)) {
        let mut values = tile.iter();
        match self.start_if_inside(corner) {
            Some(start) => {
                self.offsets.iter().zip(values).for_each(|(o, x)| visit((start + o) as usize, *x));
            }
            None => self.each(corner, |offset| {
                if let (Some(x), Some(o)) = (values.next(), offset) {
                    visit(o, *x);
                }
            }),
        }
    }

    /// Calls `visit` for every element of the tile with its offset in the buffer, `None` outside.
    pub(super) fn each(&self, Corner { base, ends }: &Corner, mut visit: impl FnMut(Option<usize>)) {
        let mut digits = vec![0i64; self.leaves.len()];
        let mut coordinate: Vec<i128> = Vec::with_capacity(base.len());
        for _ in 0..self.offsets.len() {
            coordinate.clear();
            coordinate.extend(base.iter().map(|b| i128::from(*b)));
            for ((_, dim, scale), digit) in self.leaves.iter().zip(&digits) {
                coordinate[*dim] += i128::from(*digit) * i128::from(*scale);
            }
            let inside = coordinate.iter().zip(ends).all(|(c, n)| (0..i128::from(*n)).contains(c));
            // Within the buffer the offset is less than its length.
            let offset = || {
                coordinate.iter().zip(&self.strides).map(|(c, d)| c * i128::from(*d)).sum::<i128>() as usize
            };
            visit(inside.then(offset));
            for (digit, (extent, _, _)) in digits.iter_mut().zip(&self.leaves) {
                *digit += 1;
                if *digit < *extent {
                    break;
                }
                *digit = 0;
            }
        }
    }
}

/// `c += a · bᵀ` with every tile's leftmost mode contiguous.
fn gemm(c: &mut [Element], a: &[Element], b: &[Element], shape: [usize; 3], how: Accumulation) {
    let values = |tile: &[Element]| tile.iter().map(|x| x.value).collect::<Vec<f64>>();
    let mut sums = values(c);
    multiply(&mut sums, &values(a), &values(b), shape, how.sums);
    bound::product(c, &sums, [a, b], shape, how);
}

/// `c += a · bᵀ`: a column of `c` takes multiples of columns of `a`.
fn multiply(c: &mut [f64], a: &[f64], b: &[f64], [m, n, k]: [usize; 3], dtype: DType) {
    for (j, column) in c.chunks_exact_mut(m).enumerate() {
        let mut p = 0;
        while p + 4 <= k {
            let factors = [0, 1, 2, 3].map(|i| b[j + (p + i) * n]);
            let [a0, a1, a2, a3] = [0, 1, 2, 3].map(|i| &a[(p + i) * m..][..m]);
            for ((((x, a0), a1), a2), a3) in column.iter_mut().zip(a0).zip(a1).zip(a2).zip(a3) {
                *x += (a0 * factors[0] + a1 * factors[1]) + (a2 * factors[2] + a3 * factors[3]);
            }
            p += 4;
        }
        while p < k {
            let factor = b[j + p * n];
            for (x, y) in column.iter_mut().zip(&a[p * m..][..m]) {
                *x += y * factor;
            }
            p += 1;
        }
        match dtype {
            DType::I32 => column.iter_mut().for_each(|x| *x = wrap(*x)),
            _ => column.iter_mut().for_each(|x| *x = round(dtype, *x)),
        }
    }
}

/// An integer modulo 2³², as the tensor cores count.
fn wrap(x: f64) -> f64 {
    if x.is_nan() { x } else { f64::from(x as i64 as i32) }
}
