//! The stream-K schedule: what is left of the tiles when every cluster has done as many as all can is shared out by steps along k.
//!
//! Of `T` tiles on `G` clusters, `T mod G` and, if there are so many, `G` more are shared: their steps, counted through all of them, are cut into
//! `G` ranges as long as each other. The other tiles are dealt out whole, before. A range that begins within a tile leaves its sums
//! in `partial`, of which each block has a part, and counts in the tile's flag; the block whose range has the tile's first step adds them in
//! order, so that sums do not depend on who came first. It comes to that tile last, and those it waits for did their part of it first.
//! With [`Schedule::Remainder`] the `T mod G` alone are shared: fewer steps whose neighbours read other places of k, and more blocks that meet at a tile. There each
//! block leaves all its sums, and when those of a tile are there each of its blocks adds, finishes and stores some of its chunks.
//! (Osama, Merrill, Cecka, Garland, Owens: Stream-K, PPoPP 2023, section 5.2: two-tile stream-K with data-parallel tiles.)

use tilewright_machine::{DType, RedOp};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Tensor, block_x, nested, steps, tile};

use super::choices::Schedule;
use super::scheduler::{Scheduler, WorkTile};
use super::tiling::{Chunk, Numbers, Tiling};

/// The place of the sums of the block of a number.
type Place<'a> = &'a dyn Fn(&Expr) -> Expr;

/// Sums on their way from one block to another.
pub(super) struct Exchange {
    /// `[bm, chunk, chunks, blocks]`.
    view: Tensor,
    /// For each block of a tile that is shared, the number of others whose sums are there; 0 again once they were added.
    done: Buffer,
    dtype: DType,
    /// Others whose sums are on their way at once.
    together: i64,
}

/// The share of a block, of which each role has its own names.
pub(super) struct StepShare {
    /// Steps along k of a tile.
    depth: Expr,
    rows: Expr,
    cols: Expr,
    /// Tiles that are shared by steps.
    shared: Expr,
    /// Tiles that the block does whole.
    whole: Expr,
    /// Steps of each range, and ranges that have one more.
    each: Expr,
    more: Expr,
    /// The block's range.
    first: Expr,
    end: Expr,
    /// Each block of a tile finishes some of its chunks.
    several: bool,
}

/// A part of a tile in a block's range.
pub(super) struct Segment {
    pub tile: WorkTile,
    /// Its steps along k.
    pub from: Expr,
    pub to: Expr,
    /// 1 where the block has the tile's first step, and finishes it.
    pub finishes: Expr,
    /// The tile's flag.
    flag: Expr,
    /// The number of clusters behind this one that have parts of it.
    others: Expr,
    /// The parts of the tile, if each block finishes some of its chunks.
    several: Option<Several>,
}

/// The parts of a tile of which each block finishes some chunks.
struct Several {
    /// Clusters that have parts of it, and the number of this one among them.
    parts: Expr,
    part: Expr,
    /// 1 where the tile is the second one of the block's range.
    second: Expr,
    /// 1 where it is the second one of the range of the first of its clusters.
    early: Expr,
}

impl Segment {
    /// 1 for the chunks of these numbers that the block finishes.
    pub fn finishes_chunk(&self, chunk: &Expr) -> Expr {
        match &self.several {
            Some(Several { parts, part, .. }) => (chunk % parts).equals(part),
            None => self.finishes.clone(),
        }
    }
}

/// The parameters `partial` and `done`.
pub(super) fn exchanged(
    t: &mut KernelBuilder,
    numbers: &Numbers,
    (dtype, schedule): (DType, Schedule),
) -> [Buffer; 2] {
    let Numbers { bm, bn, sm_count, .. } = numbers;
    // Less than two tiles a cluster are shared, or less than one, with two flags each.
    let partial = t.tensor("partial", dtype, [sm_count * left_of(schedule), bm * bn]);
    [partial, t.tensor("done", DType::I32, [sm_count * 2])]
}

/// Parts of tiles whose sums a block leaves, at most.
fn left_of(schedule: Schedule) -> i64 {
    if schedule == Schedule::Remainder { 2 } else { 1 }
}

impl Exchange {
    /// The view in which what a thread holds of a chunk is contiguous, as far as `wgmma` puts it there: of 16 × 16 elements a thread has
    /// two rows, and of each two pairs of neighbours (PTX ISA, `wgmma`, accumulator fragments).
    pub fn declare(
        t: &mut KernelBuilder,
        numbers: &Numbers,
        [partial, done]: [Buffer; 2],
        (tiling, schedule, together): (&Tiling, Schedule, i64),
    ) -> Self {
        let Numbers { bm, bn, chunk: columns, chunks, sm_count, .. } = numbers;
        let modes = if tiling.chunk % 16 == 0 {
            let row = [steps(1, 8, 16), steps(1, 2, 128), steps(1, bm / 16, bn * 16)];
            let col = [steps(1, 2, 1), steps(1, 4, 4), steps(1, 2, 2), steps(1, columns / 16, 256)];
            [nested(row), nested(col), steps(1, chunks, columns * 16)]
        } else {
            [steps(1, bm, bn), tile(1, columns), steps(1, chunks, columns)]
        };
        let view = t.global_view(
            "gp",
            &partial,
            modes.into_iter().chain([steps(0, sm_count * left_of(schedule), 1)]),
        );
        Exchange { view, done, dtype: tiling.accumulator, together }
    }

    /// Leaves a block's sums for the block that finishes their tile.
    pub fn leave(&self, t: &mut KernelBuilder, numbers: &Numbers, sums: &Tensor, segment: &Segment) {
        numbers.for_chunks(t, "jp", |t, chunk| {
            let some = t.slice(&chunk.name("some"), sums, 1, &chunk.within * &numbers.chunk, &numbers.chunk);
            let place = match &segment.several {
                Some(several) => block_x() + &several.second * &numbers.sm_count,
                None => block_x(),
            };
            t.copy(some, self.view.index([None, None, Some(chunk.index.clone()), Some(place)]));
        });
        t.signal(&self.done, [segment.flag.clone()], 1, Some(RedOp::Add));
    }

    /// Waits for the sums of all other blocks for a tile.
    pub fn wait(&self, t: &mut KernelBuilder, segment: &Segment) {
        let others = &segment.others;
        t.if_then(others.greater(0), |t| t.wait(&self.done, [segment.flag.clone()], others));
    }

    /// Adds those for a chunk.
    pub fn add(
        &self,
        t: &mut KernelBuilder,
        (scheduler, segment): (&Scheduler, &Segment),
        values: &Tensor,
        chunk: &Chunk,
    ) {
        let (blocks, sm_count) = (scheduler.tiling.cluster.blocks(), &scheduler.numbers.sm_count);
        let place = |which: &Expr| block_x() + (which + 1) * blocks;
        self.add_of(t, scheduler, ([&segment.others, sm_count], &place), values, chunk);
    }

    /// Adds those of all blocks for a chunk, in order, to zeros.
    pub fn add_all(
        &self,
        t: &mut KernelBuilder,
        (scheduler, segment): (&Scheduler, &Segment),
        values: &Tensor,
        chunk: &Chunk,
    ) {
        let Some(Several { parts, part, early, .. }) = &segment.several else { return };
        let (blocks, sm_count) = (scheduler.tiling.cluster.blocks(), &scheduler.numbers.sm_count);
        let place = |which: &Expr| block_x() + (which - part) * blocks + which.equals(0) * early * sm_count;
        self.add_of(t, scheduler, ([parts, &(sm_count * 2)], &place), values, chunk);
    }

    /// Adds sums for a chunk of so many blocks, each at its place among so many.
    fn add_of(
        &self,
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        ([count, places], place): ([&Expr; 2], Place<'_>),
        values: &Tensor,
        chunk: &Chunk,
    ) {
        let Numbers { bm, chunk: columns, .. } = &scheduler.numbers;
        let rounds = count.ceil_div(self.together);
        t.for_range(&chunk.name("round"), 0, rounds, |t, round| {
            let theirs = (0..self.together).map(|i| {
                let some = t.register_tensor(&chunk.name(&format!("theirs_{i}")), self.dtype, [bm, columns]);
                let which = t.let_integer(&chunk.name(&format!("other_{i}")), &round * self.together + i);
                // Behind the last one is nothing: outside, where zeros are read.
                let place = place(&which) + which.at_least(count) * places;
                t.copy(self.view.index([None, None, Some(chunk.index.clone()), Some(place)]), some);
                some
            });
            let theirs: Vec<Tensor> = theirs.collect();
            for some in theirs {
                t.assign(values, Elem::from(values) + some);
            }
        });
    }

    /// Waits for the sums of all blocks of a tile.
    pub fn wait_all(&self, t: &mut KernelBuilder, segment: &Segment) {
        if let Some(Several { parts, .. }) = &segment.several {
            t.wait(&self.done, [segment.flag.clone()], parts);
        }
    }

    /// Makes the flag ready for the next launch, when the last block has read what it adds.
    pub fn reset_all(&self, t: &mut KernelBuilder, numbers: &Numbers, segment: &Segment) {
        let Some(Several { parts, .. }) = &segment.several else { return };
        let turn = t.ticket("turn", &self.done, [&segment.flag + &numbers.sm_count], parts);
        t.if_then(turn.equals(parts - 1), |t| t.signal(&self.done, [segment.flag.clone()], 0, None));
    }

    /// Makes the flag ready for the next launch.
    pub fn reset(&self, t: &mut KernelBuilder, segment: &Segment) {
        t.if_then(segment.others.greater(0), |t| t.signal(&self.done, [segment.flag.clone()], 0, None));
    }
}

impl StepShare {
    pub fn declare(t: &mut KernelBuilder, scheduler: &Scheduler, schedule: Schedule) -> Self {
        let [rows, cols] = &scheduler.cluster_tiles;
        let blocks = scheduler.tiling.cluster.blocks();
        let depth = t.let_integer("depth", scheduler.depth.clone());
        let rows = t.let_integer("rows", rows.clone());
        let cols = t.let_integer("cols", cols.clone());
        let all = t.let_integer("all", &rows * &cols);
        let most = &scheduler.numbers.sm_count / blocks;
        let left = t.let_integer("left", &all % &most);
        let shared = match schedule {
            Schedule::Remainder => left.clone(),
            _ => t.let_integer("shared", left.greater(0) * all.min(&left + &most)),
        };
        let whole = t.let_integer("whole", (&all - &shared) / &most);
        let clusters = t.let_integer("clusters", most.min(&all * &depth));
        let each = t.let_integer("each", &shared * &depth / &clusters);
        let more = t.let_integer("more", &shared * &depth % &clusters);
        let own = block_x() / blocks;
        let first = t.let_integer("first", &own * &each + own.min(&more));
        let end = t.let_integer("end", &first + &each + own.less(&more));
        let several = schedule == Schedule::Remainder;
        StepShare { depth, rows, cols, shared, whole, each, more, first, end, several }
    }

    /// The row and column of a tile, in groups of rows, each column by column.
    fn place(
        &self,
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        names: [&str; 2],
        which: &Expr,
    ) -> [Expr; 2] {
        let rows = scheduler.tiling.rasterization.rows();
        let group = t.let_integer(&format!("group_{}", names[0]), which / (&self.cols * rows));
        let high = t.let_integer(&format!("high_{}", names[0]), (&self.rows - &group * rows).min(rows));
        let within = which % (&self.cols * rows);
        let row = t.let_integer(names[0], &group * rows + &within % &high);
        let col = t.let_integer(names[1], within / high);
        [row, col]
    }

    /// The loop of a role over the tiles that the block does whole.
    pub fn for_whole(
        &self,
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        names: [&str; 2],
        body: impl FnOnce(&mut KernelBuilder, &WorkTile),
    ) {
        t.for_range(&format!("w_{}", names[0]), 0, &self.whole, |t, i| {
            let place = self.place(t, scheduler, names, &self.number(scheduler, &i));
            body(t, &scheduler.tile(&place[0], &place[1]));
        });
    }

    /// The same with the previous tile, and with what is done behind the last one.
    pub fn for_whole_after(
        &self,
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        names: [&str; 4],
        body: impl FnOnce(&mut KernelBuilder, &WorkTile, &WorkTile),
        last: impl FnOnce(&mut KernelBuilder, &WorkTile),
    ) {
        let [row, col, i, j] = names;
        t.for_range(&format!("w_{row}"), 0, &self.whole, |t, which| {
            let current = self.place(t, scheduler, [row, col], &self.number(scheduler, &which));
            // Before the first tile is one behind all of them, of which nothing is stored.
            let before = self.number(scheduler, &(&which - 1).max(0));
            let none = which.equals(0);
            let [down, across] = self.place(t, scheduler, [i, j], &before);
            let previous = [down + &none * &self.rows, across + none * &self.cols];
            let tile = |[row, col]: &[Expr; 2]| scheduler.tile(row, col);
            body(t, &tile(&current), &tile(&previous));
        });
        t.if_then(self.whole.greater(0), |t| {
            let names = [format!("{i}_last"), format!("{j}_last")];
            let number = self.number(scheduler, &(&self.whole - 1));
            let [row, col] = self.place(t, scheduler, [&names[0], &names[1]], &number);
            last(t, &scheduler.tile(&row, &col));
        });
    }

    /// The number of a tile that the block does whole.
    fn number(&self, scheduler: &Scheduler, i: &Expr) -> Expr {
        let blocks = scheduler.tiling.cluster.blocks();
        &self.shared + i * (&scheduler.numbers.sm_count / blocks) + block_x() / blocks
    }

    /// The loop of a role over its range, tile by tile.
    pub fn for_segments(
        &self,
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        names: [&str; 2],
        body: impl FnOnce(&mut KernelBuilder, &Segment),
    ) {
        let (depth, first, end) = (&self.depth, &self.first, &self.end);
        t.for_range(&format!("s_{}", names[0]), first / depth, end.ceil_div(depth), |t, which| {
            let [row, col] = self.place(t, scheduler, names, &which);
            let (begin, blocks) = (&which * depth, scheduler.tiling.cluster.blocks());
            let own = block_x() / blocks;
            let last = self.holder(&(&begin + depth - 1));
            let several = if self.several {
                let holder = t.let_integer(&format!("holder_{}", names[0]), self.holder(&begin));
                let (each, more) = (&self.each, &self.more);
                let early = (&holder * each + holder.min(more)).less(&begin);
                Some(Several {
                    parts: t.let_integer(&format!("parts_{}", names[0]), last.clone() - &holder + 1),
                    part: t.let_integer(&format!("part_{}", names[0]), &own - holder),
                    second: &which - first / depth,
                    early,
                })
            } else {
                None
            };
            let segment = Segment {
                tile: scheduler.tile(&row, &col),
                from: (first - &begin).max(0),
                to: (end - &begin).min(depth),
                finishes: first.at_most(&begin),
                flag: &which * blocks + block_x() % blocks,
                others: last - own,
                several,
            };
            body(t, &segment);
        });
    }

    /// Returns whether each block of a tile finishes some of its chunks.
    pub fn several(&self) -> bool {
        self.several
    }

    /// The cluster whose range has a step.
    fn holder(&self, step: &Expr) -> Expr {
        let (each, more) = (&self.each, &self.more);
        let long = more * (each + 1);
        let among = step.less(&long);
        // Where there are fewer steps than clusters each range has one at most, and all of them are long.
        &among * (step / (each + 1)) + (Expr::from(1) - &among) * (more + (step - long) / each.max(1))
    }
}
