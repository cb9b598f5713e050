//! A closed-form estimate of the time of a product, with which configurations are ranked: what the tensor cores, shared memory, the
//! port to the L2 cache and device memory want, and what begins and ends cost. Its numbers are those of a [`Model`].

use tilewright_machine::CacheHint;

use super::{Cluster, FillMode, Form, HopperGemmConfig, Major, Pack, Schedule, Triangle};
use crate::model::{Model, Numbers};
use crate::parts::{Estimate, Part, Resource, Steps};
use crate::warp_specialized::{Rasterization, bytes, bytes_of};

/// Bytes of a line of the L2 cache. A row of a box that lies across two lines takes two.
const LINE: f64 = 128.0;

/// Bytes of the rows of boxes: the spans of swizzles, and those of none.
const SPANS: [f64; 4] = [128.0, 64.0, 32.0, 16.0];

/// Bytes of a sector of a line.
const SECTOR: i64 = 32;

/// Part of what rows across two lines cost that those cost which begin with a sector: on H100s 849 × 2592 × 1136 takes 670 cycles for a step of 128 × 144, whose rows lie across two lines
/// three times in four, 8001 × 14024 × 1808 1140 for one of 128 × 256 and 1024 cycles of products. Fitted with `astride` to 7,300 timings of 590 products on H100s and an H200, as the constants below that say so.
const WHOLE_SECTORS: f64 = 0.27;

/// Bytes of which TMA wants strides to be multiples.
pub(super) const STRIDE: i64 = 16;

/// Bytes of rows of factors that are a step or two, which no later step hides, and of those beside which C leaves more slowly too: 2338 × 14896 × 40 takes 37 µs on an H100, as long as
/// C's bytes take alone, sums of 8 to 32 terms up to a fifth more.
const SHORT: i64 = 96;
const SHORTEST: i64 = 64;

/// Bytes of rows of factors from which on steps are enough to hide what lies between two tiles: on an H100 5758 × 15368 × 72 takes 99.4 µs in 23 rounds of 256 × 208 and 108.7 to 115 in
/// twice as many, 9372 × 1477 × 58 21.8 in three of 256 × 144 and 25.2 in nine of 192 × 64. Fitted so, as the part of it between this and [`SHORT`].
const LONG: i64 = 400;

/// Part by which device memory is slower in more rounds than these for blocks that share nothing, whose rows of factors are longer than [`SHORT`] and at most so many bytes: what they ask the
/// L2 cache for is then as much as what they leave there. On an H100 5758 × 15368 × 72 takes 96.8 to 97.4 µs in tiles of 256 × 208 and clusters of two and 102.2 without, of 256 × 144 97.9 and 107.5.
const SHORT_ALONE: f64 = 1.07;
const FEW_ROUNDS: f64 = 2.0;
const TWO_STEPS: i64 = 256;

/// Elements of a step of the form for short sums, beyond which its time grows with each doubling: on an H100 3000 × 14000 × 16 takes 2.6 bytes of C a nanosecond, 3982 × 6888 × 24 1.7 and
/// 1222 × 13280 × 56 1.4.
const DEEP: f64 = 16.0;

/// Cycles of a warpgroup between the products of two steps with a sparse A. On an H100 128 × 208 of f16 takes 9 % longer for each column than 128 × 256, whose
/// products another warpgroup hides it behind, and with steps twice as long these are 3 % faster.
const SPARSE_TURN: f64 = 290.0;

/// Part by which steps with a sparse A are longer where three warpgroups share them, whose instructions read B three times: on an H100 192 × 192 of f16 with steps
/// of 128 takes 5 % more for each element than 128 × 256, and 256 × 192 of two warpgroups 1 to 4 % less.
const SPARSE_THREE: f64 = 1.03;

/// Part by which steps are longer that three warpgroups share. Fitted to 7,300 timings.
const THREE_WARPGROUPS: f64 = 1.01;

/// Columns of tiles with more than 128 rows and a sparse A that are fastest, and the part by which steps are longer for each column more or less: on an H100 160 take 9 %
/// longer for each element, and 208, whose products `ptxas` serialises in part (C7512), 5 %.
const SPARSE_COLUMNS: f64 = 192.0;
const SPARSE_COLUMN: f64 = 0.0025;

/// Part by which they are longer with more than two stages where blocks share nothing: blocks are then further apart, and the L2 cache gives each of them
/// lines that it gives all at once otherwise. Fitted to 148 timings on H100s, as the others.
const SPARSE_APART: f64 = 1.06;

/// Part by which steps with a sparse A are longer where blocks share a factor: on an H100 128 × 256 of f16 takes 3 to 8 % longer in clusters of two than
/// without, though fewer lines come through the port.
const SPARSE_SHARED: f64 = 1.18;

/// Part by which device memory is slower where the few tiles that share a part of the larger factor do not follow each other: on an H100 16 × 4096 × 14336 in
/// tiles of 8 columns takes 69.7 µs, and with `rasterization=grouped(1)` and `cluster=m2` 51.0.
const APART: f64 = 1.4;

/// Part by which reads from memory are longer of factors whose rows begin within lines of the L2 cache, and the bytes of both factors from which on that shows: products of
/// 16 to 250 MB with few rows or columns took 1.11 to 1.29 times as long on H100s and 1.08 to 1.32 on an H200 as their bytes alone, those with whole lines 1.0 to 1.1.
const ASTRIDE_READ: f64 = 0.17;
const ASTRIDE_FROM: f64 = 12e6;

/// The part of the time that clusters cost which those along k cost where there are few: on an H100 and an H200 products of 1 to 64 tiles in clusters of four along k took 7 to 9 µs, 12 to
/// 15 % less than with the whole of it.
const FEW_CLUSTERS: f64 = 0.5;

/// Tiles of a factor up to which all blocks ask for its lines at once, which are read from the L2 cache once: 128 × 4096 × 14336 in clusters of two takes 2.45 cycles of an H200 for each
/// line that is asked for, 656 × 904 × 4032 up to 3.9.
const ASKED_AT_ONCE: f64 = 2.0;

/// Part of a line that one of B counts as which a block reads for itself while others of its cluster share A, and part by which all lines take longer where clusters lie across
/// columns of the kernel's tiles, whose neighbours in order share no line that is sent to several blocks. An H200 takes 338 cycles for a step of 656 × 904 × 4032 in `swap=true bm=64 bn=96
/// cluster=n2`, 365 without `swap`, and 431 and 457 with `cluster=m2`; fitted to 32 timings of three products.
const OF_B_ALONE: f64 = 0.88;
const ACROSS_COLUMNS: f64 = 1.1;

/// Part of the time of results on their way to memory that loads of the next tile's first steps are hidden in, which take the same way: on an H200 1978 × 4112 × 104 takes 16.9 µs in four rounds
/// of 128 × 128 and 14.8 in two of 128 × 256.
const HIDDEN_AHEAD: f64 = 0.85;

/// Times as many bytes by which a contiguous piece of C counts as longer that threads store, where rows begin within sectors: 16736 × 1938 × 15 takes 28 µs on an H200 in pieces of 512 bytes,
/// 36 of 256, 43 of 128 and 69 of 64.
const ENDS_BY_THREADS: f64 = 70.0 / 48.0;

/// Bytes of a factor from which on lines that are to be evicted last save nothing: on H100s and an H200 reads of 17 to 240 MB took 3 to 25 % longer so than with lines
/// that are to be evicted first, and up to 12 MB as long or less.
const LAST: f64 = 15e6;

/// Part by which steps of a tile with two sums are longer where results leave during the next tile's: on an H100 gated products of 4096 × 14336 × 4096, 8192³ and
/// 1024 × 28672 × 8192 take 6.4, 4.7 and 4.2 % longer so, with 128 columns and three stages in place of four, though the ends of their tiles are hidden.
const TWO_SUMS: f64 = 1.06;

/// Cycles for which each chunk of a tile waits until the one before it has left shared memory, where one buffer has them all: on an H100 3704 × 1512 × 176 takes 14.2 µs in
/// tiles of 256 × 192 with one buffer, and 12.6 to 13.2 in eight smaller ones with two.
const ONE_BUFFER: f64 = 500.0;

/// The part by which the exponent of work and device memory, which go on at once, grows with each round of tiles behind the first, and the rounds that count: blocks begin together,
/// ask for memory together and leave results together; the more tiles each has, the farther apart they are, and what one computes hides what another asks for. On an H100
/// 12042 × 8576 × 144 takes 96 µs in 25 rounds, as long as its bytes alone, and products of one round up to a fifth more.
const APART_BY_ROUND: f64 = 0.25;
const ROUNDS_APART: f64 = 16.0;

/// The same for each time that a block fills all its stages again: fitted so.
const APART_BY_FILL: f64 = 0.01;

/// The part of the time until device memory is at speed that the first bytes wait, and the bytes over which the rest comes about: until others' lines are
/// written back, as many as come. Fitted to 7,300 timings.
const FIRST: f64 = 0.5;
const COMING: f64 = 12e6;

/// Cycles until device memory is at speed for so many bytes.
pub(super) fn warm_up(model: &Numbers, bytes: f64) -> f64 {
    model.warm_up * (1.0 - (1.0 - FIRST) * (-bytes / COMING).exp())
}

/// Of two things that go on at once: at least the longer, and a little more where both are as long.
pub(super) fn together(a: f64, b: f64, sharpness: f64) -> f64 {
    let most = a.max(b);
    // Powers of the largest are no numbers.
    if !most.is_finite() || most <= 0.0 {
        return most;
    }
    most * ((a / most).powf(sharpness) + (b / most).powf(sharpness)).powf(1.0 / sharpness)
}

/// The part of a step that products which are like those of matrices have of their own.
#[derive(Clone, Copy)]
pub(crate) struct PerStep {
    /// Cycles of a warpgroup's own work, products included.
    pub turn: f64,
    /// By what a line of the L2 cache takes longer where all multiprocessors load.
    pub line: f64,
    /// By what steps take longer whose neighbours read other places of k, where the model does not say it.
    pub scattered: Option<f64>,
    /// Cycles in which an element of the result leaves, of one whose rows in boxes are short.
    pub store: Option<f64>,
    /// Bytes of A and of B in memory, where elements of the matrices are the same ones several times.
    pub bytes: Option<[f64; 2]>,
    /// Cycles in which shared memory takes a line that arrives, while instructions read nothing from it.
    pub written: f64,
    /// Parts of the requests for lines of A and of B that the L2 cache answers one by one, where the model does not say it.
    pub one_by_one: Option<[f64; 2]>,
    /// Steps of which one reads its elements from memory, and the others those that are in the L2 cache since.
    pub reads: f64,
    /// Exponent by which the steps that read and device memory add up, where the model does not say it.
    pub overlap: Option<f64>,
}

impl Default for PerStep {
    fn default() -> Self {
        PerStep {
            turn: 0.0,
            line: 1.0,
            scattered: None,
            store: None,
            bytes: None,
            written: 0.0,
            one_by_one: None,
            reads: 1.0,
            overlap: None,
        }
    }
}

/// The work of a block in stream-K (see `warp_specialized/stream_k.rs`).
pub(super) struct Shares {
    /// Tiles that it does whole.
    pub whole: f64,
    /// Steps of those that are shared.
    pub each: f64,
    /// Other blocks that have a part of one of its tiles.
    pub others: f64,
}

/// The work of each of so many clusters that share so many tiles of so many steps.
pub(super) fn shares(schedule: Schedule, tiles: f64, clusters: f64, steps: f64) -> Shares {
    let left = tiles % clusters;
    let more = if schedule == Schedule::Remainder { 0.0 } else { clusters };
    let shared = if left > 0.0 { tiles.min(left + more) } else { 0.0 };
    let each = (shared * steps / clusters).ceil();
    Shares {
        whole: ((tiles - shared) / clusters).round(),
        each,
        others: if each > 0.0 { (steps / each).ceil() } else { 0.0 },
    }
}

fn rounds(things: i64, each: i64) -> f64 {
    ((things + each - 1) / each) as f64
}

/// Returns whether threads load lines with a stride through registers: they wait for what they load before they load the next step.
fn through_registers(line: i64, size: f64) -> bool {
    line * size as i64 % 4 != 0
}

/// Part by which rows of boxes take longer whose lines are so many bytes apart: those that lie across two lines of the L2 cache are asked for twice, which shows as far as all
/// multiprocessors ask, and more where they begin within sectors too.
fn astride(model: &Numbers, bytes: i64) -> f64 {
    let begins = [LINE as i64, 64, SECTOR].into_iter().find(|begin| bytes % begin == 0).unwrap_or(STRIDE);
    let across = 1.0 - begins as f64 / LINE;
    let whole = if begins < SECTOR { 1.0 } else { WHOLE_SECTORS };
    1.0 + across * whole * (model.astride - 1.0)
}

/// Cycles for which threads load these elements of lines with a stride, of which some are there; none where TMA does.
fn accesses(model: &Numbers, line: i64, [elements, there]: [f64; 2], size: f64) -> f64 {
    let bytes = elements * size;
    match line * size as i64 % STRIDE {
        0 => 0.0,
        rest if rest % 8 == 0 => bytes / 8.0 / model.asynchronous,
        rest if rest % 4 == 0 => bytes / 4.0 / model.asynchronous,
        rest => there * size / (if rest % 2 == 0 { 2.0 } else { 1.0 }) / model.through_registers,
    }
}

impl HopperGemmConfig {
    /// The estimated time of `m` × `n` × `k` in microseconds on an H200 that was idle, whose L2 cache holds nothing of the factors.
    pub fn estimate(&self, m: i64, n: i64, k: i64) -> f64 {
        self.estimated(Model::built_in(), PerStep::default(), [m, n, k, 1]).microseconds
    }

    /// The estimated time of `l` products on the device of a model, with what their steps have of their own.
    pub(crate) fn estimated(&self, model: &Model, own: PerStep, [m, n, k, l]: [i64; 4]) -> Estimate {
        let model = model.numbers();
        match self.form {
            Form::Wgmma | Form::Tcgen05 => {}
            Form::Gemv => return self.estimate_gemv(model, [m, n, k]),
            Form::Outer => return self.estimate_outer(model, [m, n, k]),
        }
        let packing = self.packing_time(model, l, [m, n, k]);
        let [m, n, k] = self.real([m, n, k]);
        let size = f64::from(self.multiplied()[0].bits()) / 8.0;
        let (rows, cols) = self.sides((m, n));
        let [blocks_m, blocks_n, deep] = self.cluster.shape();
        let (down, across) = self.sides((blocks_m, blocks_n));
        let blocks = self.cluster.blocks();
        let copies = l as f64 * self.split as f64;
        let tiles = self.filled(rounds(rows, self.bm * down) * rounds(cols, self.bn * across)) * copies;
        let resident = (self.sm_count.min(self.resident(self.cluster)) / blocks) as f64;
        let waves = (tiles / resident).ceil();
        let active = tiles.min(resident) * blocks as f64;
        let full = (active / self.sm_count as f64).min(1.0);
        let (bm, bn, bk) = (self.bm as f64, self.bn as f64, self.bk as f64);
        let columns = self.columns() as f64;
        let chunks = bn / columns;
        let steps = rounds(k, self.bk * deep * self.split);
        let steps = steps * self.triangle_of_a(m as f64, k as f64);
        let steps = if self.overlap_epilogue { steps.max(chunks) } else { steps };

        // Matrices that A is multiplied by, and sums of a tile.
        let (matrices, sums) = (self.dual.matrices() as f64, self.dual.sums() as f64);
        let parts = self.parts() as f64;
        // A step: products of 64 rows and 32 bytes of k each read their factors from shared memory.
        // With a sparse A they take as long for twice the columns of B.
        let kept = self.columns_of_a(self.bk) as f64 / bk;
        let products = self.terms().len() as f64 * bm / 64.0 * bk * kept * size / 32.0;
        // A that warps read to registers comes out of it as well.
        let of_warpgroups = [products * (bn / 2.0).max(16.0), products * (16.0 + bn / 4.0 / kept)];
        // Sums in tensor memory are made while those of the tile before leave.
        let apart = self.form == Form::Tcgen05;
        let [multiply, shared] = if apart {
            self.tiling().tensor_memory_cycles(self.terms().len() as f64 * bk * size)
        } else {
            of_warpgroups
        };
        // Lines that are not those of matrices have a factor of their own.
        let aligned = |pitch: i64| own.bytes.is_some() || pitch as f64 * size % LINE == 0.0;
        // Rows of boxes.
        let boxes = |major: Major, rows: f64, columns: f64| {
            let (boxes, inner) = if major == Major::K { (rows, columns) } else { (columns, rows) };
            // A row of a box lies within the span of the widest swizzle that the tile's rows are multiples of.
            let row = inner * size;
            let span = SPANS.into_iter().find(|span| row % span == 0.0).unwrap_or(SPANS[SPANS.len() - 1]);
            boxes * (row / span).max(1.0)
        };
        let lines = |major: Major, rows: f64, columns: f64, pitch: i64| {
            let across = if aligned(pitch) {
                1.0
            } else {
                1.0 + (astride(model, self.multiplied_bytes(pitch)) - 1.0) * full
            };
            boxes(major, rows, columns) * across
        };
        let (tall, wide) = (bm / across as f64, bn / down as f64);
        let (of_a, of_b) = self.sides((tall, wide));
        let [direct_a, direct_b] = self.lines([m, n, k]);
        let packs = self.packs();
        let packs = [packs[0], if self.squares() { packs[0] } else { packs[1] }];
        let [major_a, major_b] = self.majors();
        // Packed lines are whole lines of the L2 cache.
        let pitch = |line: i64, packed: bool| if packed { 0 } else { line };
        let (pitch_a, pitch_b) = (pitch(direct_a, packs[0]), pitch(direct_b, packs[1]));
        // Blocks of a cluster share what TMA loads.
        let (all_a, all_b) = self.sides((bm, bn));
        let loads = |pitch, rows: f64, of: i64, columns| {
            accesses(model, pitch, [rows * columns, rows.min(of as f64) * columns], size)
        };
        let loading = loads(pitch_a, all_a, m, bk * kept) + matrices * loads(pitch_b, all_b, n, bk);
        let crowded = 1.0 + (own.line - 1.0) * full;
        let of_matrices = own.bytes.is_none();
        let port = model.port
            * crowded
            * parts
            * (lines(major_a, of_a, bk * kept, pitch_a) + matrices * lines(major_b, of_b, bk, pitch_b));
        // What the L2 cache delivers to all blocks at once.
        let lines_of = [boxes(major_a, of_a, bk * kept), matrices * boxes(major_b, of_b, bk)];
        let (asked, clusters) = match own.one_by_one {
            Some([a, b]) => (lines_of[0] * a + lines_of[1] * b, true),
            None if of_matrices => (self.delivered(lines_of, [m, n]), down * across > 1),
            None => (0.0, false),
        };
        let l2 = parts * active * asked / model.l2_lines(clusters);
        // Requests of neighbours for the same whole lines are merged.
        let sharpness = if aligned(pitch_a) && aligned(pitch_b) { 9.0 } else { 6.0 };
        // What blocks of a cluster share arrives at each of them, but for the halves of a pair.
        let (held_a, held_b) = self.sides((bm, self.tiling().columns_held() as f64));
        let loaded = parts * (held_a * kept + matrices * held_b);
        let arriving = model.arriving * loaded * bk * size / LINE;
        let busy = together(multiply, port.max(l2).max(arriving), sharpness);
        // A warpgroup adds its sums while another multiplies.
        let promotion = model.promotion + bm * bn / model.promoted;
        let promoting = match (self.promotes(), self.warpgroups) {
            (false, _) => 0.0,
            (true, 1) => promotion,
            (true, _) => (promotion - multiply / 2.0).max(0.0),
        };
        // A warpgroup that has waited for its products reads the next step's metadata, while another multiplies.
        let others = multiply * (self.warpgroups - 1) as f64 / self.warpgroups as f64;
        let turn = if self.sparse { (SPARSE_TURN - others).max(0.0) } else { 0.0 };
        let busy = busy + promoting + turn;
        let longer = match down * across {
            1 => 1.0,
            2 => model.latency_of_two,
            _ => model.latency_of_more,
        };
        let latency = model.latency * longer / self.stages as f64;
        let waiting = together(shared + own.written * loaded * bk * size / LINE, latency, 6.0);
        // A stage with two matrices has twice as many products, which hide as much as those of two stages.
        let few_stages = if self.stages * self.dual.matrices() < 4 { model.few_stages } else { 1.0 };
        let narrow = if self.bn < 256 { model.narrow } else { 1.0 };
        // Blocks of a cluster wait for the slowest of them before a stage is filled again.
        let in_step = if down * across > 1 { model.in_step } else { 1.0 };
        let step = together(together(busy, waiting, 8.0), own.turn, 8.0) / model.tensor_cores
            * few_stages
            * narrow
            * in_step;
        let step = step * if self.warpgroups == 3 { THREE_WARPGROUPS } else { 1.0 };
        let columns_off = SPARSE_COLUMN * (bn - SPARSE_COLUMNS).abs();
        let step = step * if self.sparse && self.bm > 128 { 1.0 + columns_off } else { 1.0 };
        let step = step * if self.sparse && self.warpgroups > 2 { SPARSE_THREE } else { 1.0 };
        let apart = self.sparse && self.stages > 2 && blocks == 1;
        let step = step * if apart { SPARSE_APART } else { 1.0 };
        let step = step * if self.sparse && down * across > 1 { SPARSE_SHARED } else { 1.0 };
        let step = step * if sums > 1.0 && self.overlap_epilogue { TWO_SUMS } else { 1.0 };
        // The latency of the first step is the prologue's.
        let through = [pitch_a, pitch_b].into_iter().any(|pitch| through_registers(pitch, size));
        let waits = if through { model.latency * (1.0 - 1.0 / steps.max(1.0)) } else { 0.0 };
        let step = step.max(loading + waits);
        let wanted = Resource::ALL.map(|resource| match resource {
            Resource::TensorCores => multiply,
            Resource::SharedMemory => shared,
            Resource::Port => port,
            Resource::L2 => l2,
            Resource::Arrival => arriving,
            Resource::Latency => latency,
            Resource::Promotion => promoting,
            Resource::Threads => own.turn,
            Resource::Loads => loading,
        });

        // A tile, and what is not hidden behind others.
        let stores = if self.squares() { 2.0 } else { 1.0 };
        let store = own.store.unwrap_or(1.0 / model.drained);
        let waits_for_room =
            if self.buffers == 1 { ONE_BUFFER * (stores * chunks - 1.0).max(0.0) } else { 0.0 };
        let drain = model.drain
            + stores * chunks * (model.drain_chunk + sums * bm * columns * store)
            + waits_for_room;
        let by_threads = if n * bytes(self.stored()) % STRIDE == 0 { 0.0 } else { bm * bn / model.stored };
        // Results that leave during the next tile's steps take longer than these, if their rows are short.
        let beyond = own.store.map_or(0.0, |store| (bm * bn * store - steps * step).max(0.0));
        let hidden = model.overlapped + model.overlapped_chunk * chunks + beyond;
        let leaving = match (apart, self.overlap_epilogue) {
            (true, _) => (drain + by_threads - steps * step).max(0.0),
            (false, true) => hidden + by_threads,
            (false, false) => drain + by_threads,
        };
        // Every block reads what all of its cluster have summed.
        let meeting = if deep > 1 { model.meeting + bm * bn * 4.0 * deep as f64 / model.met } else { 0.0 };
        let last = if self.overlap_epilogue || apart { drain } else { 0.0 };
        let tile = steps * step + leaving + meeting;
        // While results leave, the stages of the next tile's first steps are filled, which then wait for their products alone, and for what threads do between them.
        let alone = (multiply + promoting + turn) / model.tensor_cores;
        let ahead = steps.min(self.stages as f64) * (step - alone).max(0.0);
        let hidden = ahead.min(leaving) * if of_matrices { HIDDEN_AHEAD } else { 1.0 };
        let ahead = if self.overlap_epilogue || apart { 0.0 } else { hidden * (waves - 1.0) };
        let all = |rows: i64, cols: i64, bytes: i64| {
            [l, rows, cols, bytes].map(|n| n as f64).iter().product::<f64>()
        };
        let of_elements = parts * size;
        // The places of what a sparse A keeps are two bits each.
        let places = if self.sparse { all(m, k, 1) / 8.0 } else { 0.0 };
        let (a, b) = (all(m, k, 1) * of_elements * kept + places, matrices * all(n, k, 1) * of_elements);
        let b = if self.squares() { 0.0 } else { b };
        let [a, b] = own.bytes.unwrap_or([a, b]);
        let prologue = model.prologue;
        // The cycles of all, of the steps, of the epilogue, of what clusters exchange and of what stream-K leaves.
        let (cycles, tiles_of_each, [stepping, ending, exchanging, leaving_sums]) = match self.schedule {
            Schedule::DataParallel => (
                prologue + waves * tile - ahead + last,
                waves,
                [waves * steps * step - ahead, waves * leaving + last, waves * meeting, 0.0],
            ),
            Schedule::StreamK | Schedule::Remainder => {
                let Shares { whole, each, others } = shares(self.schedule, tiles, resident, steps);
                let (left, all) = (4.0 * bm * bn / model.left, 4.0 * bm * bn / model.added);
                // Blocks that share a tile or two leave all sums of these, and each adds a share of them.
                let (left, adding) = match self.schedule {
                    Schedule::Remainder => (2.0 * left, 2.0 * all + others * model.other),
                    _ => (left, others * (all + model.other)),
                };
                let added = if others > 0.0 { model.flag + adding } else { 0.0 };
                // What the L2 cache does not hold every block reads for itself, for its neighbours are at other places of k.
                let missing = (1.0 - model.kept / (a + b)).max(0.0) * active * loaded;
                let scattered =
                    (step * own.scattered.unwrap_or(model.scattered)).max(missing * bk * size / model.read);
                let cycles = prologue + whole * tile + last + each * scattered + left + added + drain;
                let stepping = whole * steps * step + each * scattered;
                let ending = whole * leaving + last + drain;
                (cycles, whole + each / steps, [stepping, ending, whole * meeting, left + added])
            }
        };

        // Device memory: what is in flight limits how fast it comes.
        let c = all(m, n, bytes(self.result())) * if self.fill == FillMode::Lower { 0.5 } else { 1.0 };
        let in_flight = active * self.stages as f64 * loaded * bk * size;
        let write = model.write / self.ends(model, n);
        let read = model.read.min(in_flight / model.memory_latency);
        // Rows that begin within lines: those at both ends of a box are read for two boxes.
        let straddling =
            |pitch: i64| own.bytes.is_none() && !aligned(pitch) && pitch * size as i64 % STRIDE == 0;
        let beyond = ASTRIDE_READ * (1.0 - ASTRIDE_FROM / (a + b)).max(0.0);
        let times = self.read_again(model, [m, n], [a, b]);
        let reads = [(a, pitch_a, times[0]), (b, pitch_b, times[1])];
        let longer = |pitch: i64| if straddling(pitch) { 1.0 + beyond } else { 1.0 };
        let reads = reads.map(|(bytes, pitch, times)| bytes * times * longer(pitch));
        let mut memory = reads.iter().sum::<f64>() / read + c / write + warm_up(model, a + b + c);
        if self.few_across([m, n]) && self.rasterization != Rasterization::Grouped(1) {
            memory *= APART;
        }
        let shares_the_smaller = match self.cluster {
            Cluster::AlongM(_) => b < a,
            Cluster::AlongN(_) => a < b,
            Cluster::None | Cluster::AlongMn(..) | Cluster::AlongK(_) => false,
        };
        if shares_the_smaller {
            memory *= model.shared_smaller;
        }
        // Of A where it is the larger one: the other is read again for each of its tiles.
        let hinted = [(self.hint_a.filter(|_| a > b), a), (self.hint_b, b)];
        // Lines that are to be evicted last need no room only where all of them have it.
        let unkept = |hint: Option<CacheHint>, bytes: f64| match hint {
            None => false,
            Some(CacheHint::EvictLast) => bytes < LAST,
            Some(_) => true,
        };
        for (_, bytes) in hinted.into_iter().filter(|(hint, bytes)| unkept(*hint, *bytes)) {
            let saved = model.unkept * (bytes / model.unkept_from).min(1.0);
            memory += if bytes < model.unkept_to { -saved } else { model.unkept_cost };
        }
        let clusters = if blocks > 1 { model.clusters } else { 0.0 };
        // Blocks that share no factor wait for each other at the end alone.
        let clusters = clusters * if deep > 1 { FEW_CLUSTERS + (1.0 - FEW_CLUSTERS) * full } else { 1.0 };
        let adding = self.adding(model, all(m, n, 4));
        // Packed rows are whole lines.
        let row = self.multiplied_bytes(k);
        let short = row <= SHORT && packs != [true; 2];
        if short {
            let beside = if row % SECTOR == 0 { 1.0 } else { model.beside_sectors };
            let long = if self.multiplied_bytes(self.bk) > 64 { model.long_steps } else { 1.0 };
            let written = if row <= SHORTEST { 0.0 } else { c / write };
            memory = (memory - written) * beside * long + written;
        }
        let alone = of_matrices && down * across == 1 && tiles_of_each > FEW_ROUNDS;
        if alone && packs != [true; 2] && !short && row <= TWO_STEPS {
            memory *= SHORT_ALONE;
        }
        let covered = rounds(rows, self.bm) * bm * rounds(cols, self.bn) * bn;
        let beside = model.beside * (1.0 - (rows as f64 / covered) * cols as f64);
        // A tile of few steps is neither read nor written for a while, which the next one's steps are too short to hide.
        let few = if packs == [true; 2] { 0.0 } else { (LONG - row) as f64 / (LONG - SHORT) as f64 };
        let between = model.between * few.clamp(0.0, 1.0) * (tiles_of_each - 1.0).max(0.0);
        let (cycles, ending) = (cycles + between, ending + between);
        // Blocks of stream-K, and those of clusters along k, meet when all is read.
        let behind = leaving_sums + exchanging + between;
        let working = cycles - behind;
        let reading = working / own.reads;
        let more_rounds = (tiles_of_each - 1.0).clamp(0.0, ROUNDS_APART);
        let fills = (tiles_of_each * steps / self.stages as f64 - 1.0).clamp(0.0, ROUNDS_APART);
        let apart = APART_BY_ROUND * more_rounds + APART_BY_FILL * fills;
        let overlap = own.overlap.unwrap_or(model.overlap * (1.0 + apart));
        let both = (working - reading + together(reading, memory, overlap) + behind).max(cycles);
        let total = model.launch + (both + beside) / model.clock + clusters + adding + packing;
        let of_blocks = [
            (Part::Prologue, prologue),
            (Part::Steps, stepping),
            (Part::Epilogue, ending),
            (Part::Meeting, exchanging),
            (Part::StreamK, leaving_sums),
            (Part::Memory, both - cycles),
            (Part::Beside, beside),
        ];
        let mut estimate = Estimate::of(total, &of_blocks.map(|(part, cycles)| (part, cycles / model.clock)));
        let others = [
            (Part::Launch, model.launch),
            (Part::Clusters, clusters),
            (Part::Ahead, packing),
            (Part::SplitSums, adding),
        ];
        others.into_iter().for_each(|(part, time)| estimate.parts[part as usize] = time);
        let steps = Steps { waves: tiles_of_each, steps, cycles: step, wanted };
        Estimate { steps: Some(steps), ..estimate }
    }

    /// Microseconds of the kernel ahead, which reads factors and writes their copies.
    fn packing_time(&self, model: &Numbers, l: i64, sizes: [i64; 3]) -> f64 {
        let [m, n, k] = self.real(sizes).map(|size| size as f64);
        // A matrix that is real stands for one of half as many rows.
        let read_of_b = if self.complex { n / 2.0 } else { n };
        let written = self.parts() as f64 * f64::from(self.multiplied()[0].bits()) / 8.0;
        let copy =
            |(rows, read): (f64, f64)| l as f64 * k * (read * bytes(self.dtype) as f64 + rows * written);
        let copies = [(m, m), (n, read_of_b)].into_iter().zip(self.packs());
        let copied: f64 = copies.filter(|(_, packed)| *packed).map(|(factor, _)| copy(factor)).sum();
        if copied > 0.0 { model.packing + copied / model.packed } else { 0.0 }
    }

    /// Part by which C takes longer to write whose rows begin within sectors: those of chunks, as long as they are contiguous, have ends that are parts of
    /// sectors.
    fn ends(&self, model: &Numbers, n: i64) -> f64 {
        let size = bytes(self.result());
        if n * size % SECTOR == 0 {
            return 1.0;
        }
        // The form for short sums writes whole rows of a tile.
        let (rows, columns) = match self.form {
            Form::Outer => (self.bm, self.bn),
            _ => self.sides((self.bm, self.columns())),
        };
        let contiguous = if columns < n { columns } else { rows * n };
        let by = if n * size % STRIDE == 0 { 1.0 } else { ENDS_BY_THREADS };
        1.0 + model.ends * by / (contiguous * size) as f64
    }

    /// Times that A and B are read from memory. Blocks of different clusters, and those that share steps, are apart in time where they share the larger factor, and read what the L2 cache
    /// does not keep again; of lines that are to be evicted first blocks of stream-K find none: 767 × 152 × 15368 takes 33 µs on an H100 where two clusters read A, and 27 where one does.
    fn read_again(&self, model: &Numbers, [m, n]: [i64; 2], [a, b]: [f64; 2]) -> [f64; 2] {
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        let (of_m, of_n) = self.sides((self.bm, self.bn));
        let shares_steps = self.schedule != Schedule::DataParallel;
        let apart = shares_steps || self.cluster.blocks() > 1;
        let missing = (1.0 - model.kept / (a + b)).max(0.0);
        let times = |others: f64, larger: bool, hint: Option<CacheHint>| match hint {
            _ if !apart || others <= 1.0 => 1.0,
            Some(CacheHint::EvictFirst) if shares_steps => 2.0,
            _ if larger => 1.0 + missing,
            _ => 1.0,
        };
        let (of_a, of_b) = (rounds(n, of_n * blocks_n), rounds(m, of_m * blocks_m));
        [times(of_a, a > b, self.hint_a), times(of_b, a <= b, self.hint_b)]
    }

    /// Lines of the L2 cache that a block asks for in a step, of these rows of boxes of A and of B, as it delivers them.
    fn delivered(&self, [of_a, of_b]: [f64; 2], [m, n]: [i64; 2]) -> f64 {
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        if blocks_m * blocks_n == 1 {
            return of_a + of_b;
        }
        let (rows, columns) = self.sides((self.bm, self.bn));
        let (_, across) = self.sides((blocks_m, blocks_n));
        let asked = |size: i64, tile: i64, shared: bool, alone: f64| match shared {
            true => 1.0,
            false if rounds(size, tile) <= ASKED_AT_ONCE => 0.0,
            false => alone,
        };
        let of_a = of_a * asked(m, rows, blocks_n > 1, 1.0);
        let of_b = of_b * asked(n, columns, blocks_m > 1, OF_B_ALONE);
        (of_a + of_b) * if across > 1 { ACROSS_COLUMNS } else { 1.0 }
    }

    /// Microseconds in which the parts of k are added, each of so many bytes.
    pub(super) fn adding(&self, model: &Numbers, bytes: f64) -> f64 {
        if self.split == 1 {
            return 0.0;
        }
        let parts = self.split as f64;
        model.adding + model.each_part * parts + 2.0 * bytes * parts / model.added_parts / model.clock
    }

    /// The estimated time of the form for short sums.
    fn estimate_outer(&self, model: &Numbers, [m, n, k]: [i64; 3]) -> Estimate {
        let wide = n * bytes(self.result()) % STRIDE == 0;
        let (rows, cols, depth) = (m as f64, n as f64, k as f64);
        let read = (rows + cols) * depth * bytes(self.dtype) as f64;
        let written = rows * cols * bytes(self.result()) as f64;
        let memory =
            read / model.read + written * self.ends(model, n) / model.outer_write + model.outer_warm_up;
        let deep = model.outer_deep.powf((self.bk as f64 / DEEP).log2());
        let cycles = self.outer_cycles(model, [m, n, k], wide) + self.outer_longer([m, n, k]) / deep;
        let both = together(cycles, memory, 6.0);
        let of = |cycles: f64| deep * cycles / model.clock;
        let parts = [
            (Part::Launch, model.launch),
            (Part::Prologue, of(model.outer_latency)),
            (Part::Steps, of(cycles - model.outer_latency)),
            (Part::Memory, of(both - cycles)),
        ];
        Estimate::of(model.launch + deep * both / model.clock, &parts)
    }

    /// Elements of a contiguous line of a and of b.
    pub(super) fn lines(&self, [m, n, k]: [i64; 3]) -> [i64; 2] {
        let factors = [(self.a, m, self.columns_of_a(k)), (self.b, n, k)];
        factors.map(|(major, rows, columns)| if major == Major::K { columns } else { rows })
    }

    /// The factors that TMA cannot read where they lie.
    pub(super) fn unaligned(&self, sizes: [i64; 3]) -> Pack {
        let [a, b] = self.lines(self.real(sizes)).map(|line| bytes_of(line, self.dtype) % STRIDE != 0);
        // Those that are packed in any case are read as they are.
        let [packed_a, packed_b] = Self { pack: Pack::None, ..*self }.packs();
        Pack::of([a && !packed_a, b && !packed_b && !self.squares()])
    }

    /// The factors whose lines begin within those of the L2 cache.
    pub(super) fn astride(&self, sizes: [i64; 3]) -> Pack {
        let [a, b] = self.lines(self.real(sizes)).map(|line| bytes_of(line, self.dtype) % LINE as i64 != 0);
        let [packed_a, packed_b] = Self { pack: Pack::None, ..*self }.packs();
        Pack::of([a && !packed_a, b && !packed_b && !self.squares()])
    }

    /// The tiles of clusters that are computed of so many.
    fn filled(&self, tiles: f64) -> f64 {
        if self.fill == FillMode::Full { tiles } else { (tiles + tiles.sqrt()) / 2.0 }
    }

    /// The part of the elements of A that are in its triangle.
    fn triangle_of_a(&self, m: f64, k: f64) -> f64 {
        let lower = if m <= k { m / k / 2.0 } else { 1.0 - k / m / 2.0 };
        match self.triangular {
            Triangle::None => 1.0,
            Triangle::Lower => lower,
            Triangle::Upper => 1.0 - lower,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERLAPPED: fn(i64) -> HopperGemmConfig =
        |bn| HopperGemmConfig { bn, overlap_epilogue: true, ..HopperGemmConfig::default() };

    #[test]
    fn a_tile_that_fills_the_last_round_is_ahead() {
        // 1024 × 6144: 192 tiles of 128 × 256 are 1.45 rounds of 132 blocks, 256 of 128 × 192 are 1.94.
        assert!(OVERLAPPED(192).estimate(1024, 6144, 4096) < OVERLAPPED(256).estimate(1024, 6144, 4096));
        assert!(OVERLAPPED(256).estimate(8192, 8192, 8192) < OVERLAPPED(128).estimate(8192, 8192, 8192));
    }

    #[test]
    fn rows_across_lines_want_clusters() {
        // Rows of 7624 elements begin anywhere within a line of the cache, those of 8192 do not.
        let alone = OVERLAPPED(256);
        let shared = HopperGemmConfig { cluster: Cluster::AlongM(2), ..alone };
        assert!(shared.estimate(8192, 8192, 7624) < 0.9 * alone.estimate(8192, 8192, 7624));
        assert!(alone.estimate(8192, 8192, 8192) < shared.estimate(8192, 8192, 8192));
    }

    #[test]
    fn rows_that_tma_cannot_read_are_packed_where_that_pays() {
        let large = OVERLAPPED(256);
        let packed = HopperGemmConfig { pack: Pack::Both, ..large };
        assert_eq!(large.unaligned([8000, 8000, 8001]), Pack::Both);
        assert!(packed.estimate(8000, 8000, 8001) < 0.3 * large.estimate(8000, 8000, 8001));
        assert!(large.estimate(8000, 8000, 8000) < packed.estimate(8000, 8000, 8000));
        assert_eq!(large.unaligned([8001, 8001, 8000]), Pack::None);
        let stored = HopperGemmConfig { b: Major::Mn, ..large };
        assert_eq!(stored.unaligned([8000, 8001, 8000]), Pack::B);
        // A block's one short tile is loaded before another kernel has begun.
        let small = HopperGemmConfig { bm: 64, bn: 16, warpgroups: 1, ..HopperGemmConfig::default() };
        let packed = HopperGemmConfig { pack: Pack::Both, ..small };
        assert!(small.estimate(16, 16, 65) < packed.estimate(16, 16, 65));
    }

    #[test]
    fn the_shortest_sums_have_the_form_that_was_fastest() {
        // 4096 × 4096, H200: k = 8 took 17.1 µs by mma.sync and 20.5 by wgmma, k = 24 26.9 and 17.6.
        let outer =
            |bk| HopperGemmConfig { form: Form::Outer, bm: 128, bn: 128, bk, ..HopperGemmConfig::default() };
        let tiled = |bk| HopperGemmConfig { bm: 256, bn: 192, bk, stages: 3, ..HopperGemmConfig::default() };
        assert!(outer(16).estimate(4096, 4096, 8) < tiled(32).estimate(4096, 4096, 8));
        assert!(tiled(32).estimate(4096, 4096, 24) < outer(32).estimate(4096, 4096, 24));
        assert!(tiled(32).estimate(4096, 4096, 24) < tiled(64).estimate(4096, 4096, 24));
    }

    #[test]
    fn large_results_of_the_shortest_sums_have_that_form_too() {
        // 12042 × 8568 × 16 took 75.6 µs on an H100 by mma.sync and 108.7 by wgmma.
        let device = Model::of_device("NVIDIA H100 80GB HBM3");
        let sizes = [12_042, 8568, 16, 1];
        let time = |of: HopperGemmConfig| of.estimated(device, PerStep::default(), sizes).microseconds;
        let outer = HopperGemmConfig {
            form: Form::Outer,
            bm: 64,
            bn: 128,
            bk: 16,
            warpgroups: 1,
            ..HopperGemmConfig::default()
        };
        let tiled = HopperGemmConfig {
            swap: true,
            bm: 256,
            bn: 208,
            bk: 32,
            stages: 6,
            ..HopperGemmConfig::default()
        };
        assert!(time(outer) < 0.95 * time(tiled));
    }

    #[test]
    fn chunks_wait_for_the_one_buffer() {
        // One tile of three chunks.
        let of = |buffers| HopperGemmConfig {
            bm: 256,
            bn: 192,
            stages: 3,
            buffers,
            ..HopperGemmConfig::default()
        };
        let longer = of(1).estimate(256, 192, 256) - of(2).estimate(256, 192, 256);
        let waits = 2.0 * ONE_BUFFER / Model::built_in().numbers().clock;
        assert!((0.8 * waits..=waits).contains(&longer), "{longer} {waits}");
    }

    #[test]
    fn blocks_that_share_steps_read_what_is_evicted_first_again() {
        let of = |cluster, hint_a| HopperGemmConfig {
            bm: 64,
            bn: 80,
            stages: 12,
            warpgroups: 1,
            schedule: Schedule::StreamK,
            cluster,
            hint_a,
            ..HopperGemmConfig::default()
        };
        let time = |cluster, hint| of(cluster, hint).estimate(767, 152, 15368);
        let first = Some(CacheHint::EvictFirst);
        assert!(time(Cluster::AlongN(2), first) < time(Cluster::AlongN(2), None));
        assert!(time(Cluster::AlongM(2), first) > 1.05 * time(Cluster::AlongN(2), first));
    }

    #[test]
    fn rounds_hide_memory_behind_work() {
        // 12042 × 8576 × 144 took 96.0 µs on an H100 in 25 rounds of 128 × 256, and 108.8 in tiles of 256 × 64, which have 49.
        let device = Model::of_device("NVIDIA H100 80GB HBM3");
        let time = |m, n| {
            let all = HopperGemmConfig::default().estimated(device, PerStep::default(), [m, n, 144, 1]);
            all.microseconds - device.numbers().launch
        };
        let (one, many) = (time(1408, 3072), time(12_042, 8576));
        assert!(many < 0.6 * 25.0 * one && (85.0..105.0).contains(&many), "{one} {many}");
    }

    #[test]
    fn the_largest_sizes_have_an_estimate() {
        let most = i64::from(i32::MAX);
        let all = HopperGemmConfig { split: 2, ..OVERLAPPED(256) };
        let all = all.estimated(Model::built_in(), PerStep::default(), [most; 4]).microseconds;
        assert!(all.is_finite() && all > OVERLAPPED(256).estimate(most, most, most), "{all}");
    }

    #[test]
    fn few_rows_are_swapped_and_few_tiles_are_split() {
        let few = |swap, bm, bn, warpgroups, split| {
            let config = HopperGemmConfig {
                swap,
                bm,
                bn,
                warpgroups,
                split,
                stages: 5,
                ..HopperGemmConfig::default()
            };
            config.estimate(128, 4096, 14336)
        };
        assert!(few(true, 128, 128, 2, 4) < few(true, 128, 128, 2, 1));
        let swapped = |swap, stages| {
            let config = HopperGemmConfig {
                swap,
                bm: 64,
                bn: 16,
                stages,
                warpgroups: 1,
                ..HopperGemmConfig::default()
            };
            config.estimate(16, 8192, 8192)
        };
        assert!(swapped(true, 20) < swapped(false, 20) && swapped(true, 20) < swapped(true, 3));
    }
}
