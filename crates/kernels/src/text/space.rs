//! Tuning spaces of operators that are bound by memory, and an estimate that ranks their points.

use tilewright_machine::{Arch, DType, Rate, timing};

use super::operator::{Knob, Limit, Setting, TextOperator, VECTOR};

/// Cycles from the issue of a load from global memory until its data is there, under load.
const LATENCY: f64 = 1100.0;

/// Cycles of a block for a piece of a row in shared memory, for the sums and for the results, which wait for a load from the L2 cache: with it the estimates of
/// 28 configurations of norms of rows of 64 to 128 KiB on an H200 are within a fifth of their times, where some were half of them.
const PIECE: f64 = 650.0;

/// The most bytes of 16-bit elements that a block stages: two blocks share a multiprocessor.
const MOST_STAGED: i64 = 112 * 1024;

/// The same where a block goes from row to row, the next one of which is on its way: one block has a multiprocessor.
const MOST_STAGED_AHEAD: i64 = 220 * 1024;

/// The fewest columns of a row that a block of a cluster holds.
const SHARED_COLUMNS: i64 = 2048;

const THREADS: [i64; 5] = [64, 128, 256, 512, 1024];

/// The most elements that a thread may hold, so that the operator's tensors fit into its registers.
fn most_held(operator: &TextOperator, threads: i64) -> i64 {
    (((65536 / threads).min(255) - 12) / operator.live).min(64)
}

fn round_up(n: i64, to: i64) -> i64 {
    n.div_euclid(to) * to + if n % to == 0 { 0 } else { to }
}

fn setting(operator: &TextOperator, form: usize, values: &[(&str, i64)]) -> Setting {
    // Two blocks of a row form a multiprocessor of 132; sums of columns in 16 parts.
    let split = if operator.forms[form].limit == Limit::None { 16 } else { 264 };
    let value = |knob: &Knob| {
        let found = values.iter().find(|(other, _)| *other == knob.name).map(|(_, value)| *value);
        let found = found.unwrap_or(if knob.name == "split" { split } else { 1 });
        if operator.has(form, knob) { found } else { 1 }
    };
    let knobs = operator.knobs.iter().map(value).collect();
    Setting { dtype: DType::F16, form, dependent: false, knobs }
}

/// Tiles anywhere in a matrix of `[m, n]`: from one to four vectors a thread, in runs of at least 128 elements.
pub(super) fn elementwise(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let columns = sizes.last().copied().unwrap_or(1);
    let mut all = Vec::new();
    for threads in THREADS {
        for vectors in [1, 2, 4] {
            for bm in [1, 2, 4, 8, 16, 32, 64] {
                let bn = threads * VECTOR * vectors / bm;
                if VECTOR * vectors <= most_held(operator, threads)
                    && bn >= 128
                    && (bn < 2 * columns || bn == 128)
                {
                    let values = [("bm", bm), ("bn", bn), ("threads", threads)];
                    all.extend((0..operator.forms.len()).map(|form| setting(operator, form, &values)));
                }
            }
        }
    }
    // A matrix so small that every tile reaches beyond it.
    if all.is_empty() {
        all.push(setting(operator, 0, &[("bm", 1), ("bn", 512), ("threads", 64)]));
    }
    all
}

/// Tiles of a tensor that a fixed number of blocks share: one, two or four of them a multiprocessor of 132, and no more than there are tiles.
pub(super) fn whole(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let mut all = Vec::new();
    for threads in [128, 256, 512, 1024] {
        for vectors in [1, 2, 4] {
            let bn = threads * VECTOR * vectors;
            if VECTOR * vectors > most_held(operator, threads) {
                continue;
            }
            for blocks in
                [8, 132, 264, 528].into_iter().filter(|blocks| *blocks == 8 || blocks * bn <= sizes[0])
            {
                let values = [("bn", bn), ("blocks", blocks), ("threads", threads)];
                all.push(setting(operator, 0, &values));
            }
        }
    }
    all
}

/// Tokens and heads, with heads of 128 numbers.
pub(super) fn heads(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let at = operator.sizes.iter().position(|(name, _)| ["h", "n"].contains(name));
    let heads = at.and_then(|at| sizes.get(at)).copied().unwrap_or(1);
    let mut all = Vec::new();
    for threads in THREADS {
        for bm in [1, 2, 4, 8] {
            for hb in [1, 2, 4, 8, 16, 32, 64] {
                let held = bm * hb * 128 / threads;
                if (VECTOR..=most_held(operator, threads)).contains(&held) && (hb < 2 * heads || hb == 8) {
                    let values = [("bm", bm), ("heads", hb), ("bn", hb), ("d", 128), ("threads", threads)];
                    all.push(setting(operator, 0, &values));
                }
            }
        }
    }
    all
}

/// Tiles of `[m, n]`, or of each of many matrices, whose columns are summed: in parts of the rows, or all rows by one block.
pub(super) fn columns(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let sizes = &sizes[sizes.len() - 2..];
    let mut all = Vec::new();
    for threads in [128, 256, 512] {
        for bn in [64, 128, 256, 512].into_iter().filter(|bn| *bn < 2 * sizes[1] || *bn == 64) {
            for vectors in [1, 2, 4] {
                let bm = threads * VECTOR * vectors / bn;
                let blocks = sizes[1].div_euclid(bn).max(1);
                let splits = [4, 16, 64, 132, 264, 528, 1056];
                for split in
                    splits.into_iter().filter(|s| *s == 4 || s * bm <= sizes[0] && s * blocks <= 4224)
                {
                    let values = [("bm", bm), ("bn", bn), ("split", split), ("threads", threads)];
                    all.push(setting(operator, 0, &values));
                }
                if bm <= sizes[0] || vectors == 1 {
                    all.push(setting(operator, 1, &[("bm", bm), ("bn", bn), ("threads", threads)]));
                }
            }
        }
    }
    all
}

/// Rows of `[t, n]` from elsewhere, several a block, each by all of its threads.
pub(super) fn gathered(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let columns = sizes.last().copied().unwrap_or(1);
    let mut all = Vec::new();
    for threads in [32, 64, 128, 256] {
        for vectors in [1, 2] {
            let bn = threads * VECTOR * vectors;
            for bm in [1, 2, 4, 8].into_iter().filter(|_| bn < 2 * columns || threads * vectors == 32) {
                all.push(setting(operator, 0, &[("bm", bm), ("bn", bn), ("threads", threads)]));
            }
        }
    }
    all
}

/// Tiles of `[m, n]` of each of many matrices, whose columns are summed by one block.
pub(super) fn middle(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let mut points = Vec::new();
    for threads in [64, 128, 256] {
        for bn in [64, 128, 256, 512].into_iter().filter(|bn| *bn < 2 * sizes[2] || *bn == 64) {
            for vectors in [1, 2] {
                let bm = threads * VECTOR * vectors / bn;
                if bm >= 1 && (bm < 2 * sizes[1] || vectors == 1) {
                    points.push(setting(operator, 0, &[("bm", bm), ("bn", bn), ("threads", threads)]));
                }
            }
        }
    }
    points
}

/// Rows of a matrix that meet one vector, of each of which a thread has sixteen neighbours.
pub(super) fn met(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let columns = sizes.last().copied().unwrap_or(1);
    let tiles = [128, 64, 256, 32].into_iter().flat_map(|threads| [4, 8, 2].map(|bm| (bm, threads)));
    let fits = tiles.filter(|(_, threads)| 2 * VECTOR * threads < 2 * columns || *threads == 32);
    let point = |(bm, threads): (i64, i64)| {
        setting(operator, 0, &[("bm", bm), ("bn", 2 * VECTOR * threads), ("threads", threads)])
    };
    fits.map(point).collect()
}

/// Columns of one sequence, as many as there are up to 128, whose rows a block goes through.
pub(super) fn ragged(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let bn = (sizes[2].clamp(8, 128) as u64).next_power_of_two() as i64;
    let point = |(threads, vectors): (i64, i64)| {
        let values = [("bm", threads * VECTOR * vectors / bn), ("bn", bn), ("threads", threads)];
        setting(operator, 0, &values)
    };
    [128, 256, 64].into_iter().flat_map(|threads| [(threads, 2), (threads, 1)]).map(point).collect()
}

/// Rows of which the largest elements are wanted: chunks, and how many are looked at together, 256 groups of 64 columns at least.
pub(super) fn selection(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let most = sizes[1].clamp(1, 131072);
    let mut points = Vec::new();
    for threads in [128, 256, 512] {
        for bn in [8, 16, 32].map(|held| held * threads) {
            let mut chunks = 16384_i64.div_euclid(bn).max(1);
            while chunks * bn < most {
                chunks *= 2;
            }
            let values = [("k", 8), ("bn", bn), ("chunks", chunks), ("threads", threads)];
            points.push(setting(operator, 0, &values));
        }
    }
    points
}

/// Bins in shared memory, and elements that a block counts.
pub(super) fn bins(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let mut points = Vec::new();
    for threads in [128, 256, 512] {
        for bins in [256, 1024, 4096].into_iter().filter(|bins| *bins < 4 * sizes[1] || *bins == 256) {
            for chunks in [8, 32] {
                let values = [("bins", bins), ("bn", 4 * threads), ("chunks", chunks), ("threads", threads)];
                points.push(setting(operator, 0, &values));
            }
        }
    }
    points
}

/// Tiles of products of matrices, and parts of the columns that are done by blocks of their own.
pub(super) fn products(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let tiles = [(16, 64, 64), (32, 32, 64), (64, 64, 128), (128, 64, 128), (128, 128, 128), (128, 128, 256)];
    let mut points = Vec::new();
    for (bm, bn, threads) in tiles {
        for bk in [32, 64] {
            let blocks = round_up(sizes[sizes.len() - 3], bm) / bm;
            // As many blocks as half of the multiprocessors at least, and two a multiprocessor at most.
            let fits = |split: &i64| blocks * split <= 264 && (blocks * split > 66 || *split == 32);
            for split in
                [1, 2, 4, 8, 16, 32].into_iter().filter(|split| fits(split) || blocks > 264 && *split == 1)
            {
                let values = [("bm", bm), ("bn", bn), ("bk", bk), ("split", split), ("threads", threads)];
                points.push(setting(operator, 0, &values));
            }
        }
    }
    if points.is_empty() {
        points.push(setting(operator, 0, &[("bm", 64), ("bn", 64), ("bk", 32), ("threads", 128)]));
    }
    if let Some(form) = operator.forms.iter().position(|form| form.name == "hopper") {
        points.push(setting(operator, form, &[("bm", 128), ("bn", 256), ("bk", 64)]));
    }
    points
}

/// Tiles of a result and of the gradients of both of its factors, and how many rows of it there are at a time. All blocks run at once: one or two a
/// multiprocessor.
pub(super) fn chunks(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let tiles = [(32, 32, 64), (64, 64, 128), (64, 128, 256), (128, 64, 128), (128, 128, 256)];
    let mut points = Vec::new();
    for (bm, bn, threads) in tiles {
        let most = round_up(sizes[0], bm) / bm;
        for (bk, chunk) in [32, 64].into_iter().flat_map(|bk| [512, 1024, 2048].map(|rows| (bk, rows / bm))) {
            for blocks in [132, 264].into_iter().filter(|blocks| *blocks == 132 || threads < 256) {
                let rows = ("rows", chunk.min(most));
                let values =
                    [("bm", bm), ("bn", bn), ("bk", bk), rows, ("blocks", blocks), ("threads", threads)];
                points.push(setting(operator, 0, &values));
            }
        }
    }
    points
}

/// One warpgroup a block, or two, which share what it does.
pub(super) fn warpgroups(operator: &TextOperator, _: &[i64]) -> Vec<Setting> {
    [128, 256].map(|threads| setting(operator, 0, &[("threads", threads)])).to_vec()
}

/// Each form's program as it stands.
pub(super) fn forms(operator: &TextOperator, _: &[i64]) -> Vec<Setting> {
    (0..operator.forms.len()).map(|form| setting(operator, form, &[])).collect()
}

/// Square tiles and tiles of two squares, in shared memory.
pub(super) fn transposed(operator: &TextOperator, _: &[i64]) -> Vec<Setting> {
    let tiles = [(32, 32), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128)];
    let points = tiles.into_iter().flat_map(|(bm, bn)| THREADS.map(|threads| (bm, bn, threads)));
    let held = points
        .filter(|(bm, bn, threads)| (VECTOR..=most_held(operator, *threads)).contains(&(bm * bn / threads)));
    let point = |(bm, bn, threads)| setting(operator, 0, &[("bm", bm), ("bn", bn), ("threads", threads)]);
    held.map(point).collect()
}

/// Numbers of threads for one row of the columns: powers of two, and those that leave the fewest idle.
fn row_threads(columns: i64) -> Vec<i64> {
    let even = (2..=6).map(|vectors| 32 * round_up(columns, 32 * VECTOR * vectors) / (32 * VECTOR * vectors));
    let mut counts: Vec<i64> =
        THREADS.into_iter().chain(even.filter(|threads| (64..=1024).contains(threads))).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Rows of `[m, n]` with sums over them: whole rows in registers (the form `row`, or one chunk) where a thread holds at most 64 elements,
/// rows of a cluster in registers or in shared memory, and rows in chunks.
pub(super) fn rows(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let (rows, columns) = (sizes[sizes.len() - 2], sizes.last().copied().unwrap_or(1));
    let row = operator.forms.iter().position(|form| matches!(form.limit, Limit::Whole(_)));
    let mut all = Vec::new();
    let sums_columns = operator.knobs.iter().any(|knob| knob.name == "split");
    for threads in if sums_columns { THREADS.to_vec() } else { row_threads(columns) } {
        for bm in [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|bm| *bm == 1 || threads % bm == 0) {
            let lanes = threads / bm;
            if bm > 1 && !operator.has_knob("bm") {
                continue;
            }
            let bn = round_up(columns, VECTOR * lanes);
            let held = bm * bn / threads;
            let thrifty = bn < 2 * columns || held == VECTOR;
            if held <= most_held(operator, threads) && thrifty {
                // Every block has a part of the sums over rows, and a group of them at least.
                let groups = round_up(rows, bm) / bm;
                let splits = [66, 132, 264, 528, 1056].map(|split: i64| split.min(groups));
                for split in splits {
                    let values = [("bm", bm), ("bn", bn), ("split", split), ("threads", threads)];
                    all.push(setting(operator, row.unwrap_or(0), &values));
                }
            }
            let clusters = [2, 4, 8].into_iter().filter(|_| bm == 1 && operator.has_knob("cluster"));
            for cluster in clusters.filter(|cluster| columns >= SHARED_COLUMNS * cluster) {
                let bn = round_up((columns + cluster - 1) / cluster, VECTOR * lanes);
                let fits = bn / threads <= most_held(operator, threads);
                if let Some(form) = row.filter(|_| fits) {
                    let values = [("bm", bm), ("bn", bn), ("cluster", cluster), ("threads", threads)];
                    all.push(setting(operator, form, &values));
                }
            }
            if bm == 1 && operator.has_knob("pieces") && !sums_columns {
                all.extend(staged(operator, rows, columns, threads));
            }
            for vectors in [1, 2, 4].into_iter().filter(|_| THREADS.contains(&threads)) {
                let chunk = VECTOR * vectors * lanes;
                let fits = VECTOR * vectors <= most_held(operator, threads);
                if bm <= 4 && fits && (chunk < columns || all.is_empty()) {
                    all.push(setting(operator, 0, &[("bm", bm), ("bn", chunk), ("threads", threads)]));
                }
            }
        }
    }
    if sums_columns {
        all.extend(
            row_threads(columns).into_iter().flat_map(|threads| staged(operator, rows, columns, threads)),
        );
    }
    all
}

/// Whole rows in shared memory, in pieces of one or two vectors a thread; with sums over rows, of all multiprocessors, and sums of a row's elements in
/// a third of a thread's registers at most.
fn staged(operator: &TextOperator, rows: i64, columns: i64, threads: i64) -> Vec<Setting> {
    let Some(form) = operator.forms.iter().position(|form| form.name == "shared") else { return Vec::new() };
    let sums_columns = operator.has_knob("split");
    let most_bytes = if sums_columns { MOST_STAGED_AHEAD } else { MOST_STAGED };
    let most_sums = if sums_columns { ((65536 / threads).min(255) - 16) / 3 } else { i64::MAX };
    let mut all = Vec::new();
    for (vectors, cluster) in [1, 2].into_iter().flat_map(|vectors| [1, 2, 4, 8].map(|c| (vectors, c))) {
        let bn = VECTOR * vectors * threads;
        let pieces = (columns + bn * cluster - 1) / (bn * cluster);
        let fits = 2 * bn * pieces * operator.staged <= most_bytes && bn * pieces / threads <= most_sums;
        if threads >= 128 && pieces > 1 && fits {
            let clusters = if sums_columns { vec![132 / cluster, 264 / cluster] } else { vec![1] };
            for split in clusters {
                let split = ("split", split.min(rows));
                let values =
                    [("bn", bn), ("pieces", pieces), ("cluster", cluster), split, ("threads", threads)];
                all.push(setting(operator, form, &values));
            }
        }
    }
    all
}

/// Estimated microseconds: rounds of blocks that are resident together, each as long as the latency of a load and what its bytes take,
/// and at least what memory takes for all of them.
pub(super) fn estimate(operator: &TextOperator, setting: &Setting, arch: Arch, sizes: &[i64]) -> f64 {
    let named = |size: &str| operator.sizes.iter().any(|(name, _)| *name == size);
    let (limits, table) = (arch.limits(), timing(arch));
    let value = |name| operator.knob(setting, name).unwrap_or(1) as f64;
    let tile = value("bm") * value("bn") * value("pieces") * value("heads") * value("d");
    let (bn, threads) = (value("bn"), value("threads"));
    let width = f64::from(setting.dtype.bits()) / 8.0;
    let bytes = (operator.traffic)(sizes) * width;
    // A thread holds its elements as they came and as f32.
    let held = (tile / value("pieces") / threads).max(1.0);
    let each = 1.0 + width / 4.0 + (operator.live - 3) as f64;
    let registers = (24.0 + held * each).clamp(24.0, 255.0) as u32;
    let staged = if value("pieces") > 1.0 { tile * width * operator.staged as f64 } else { 0.0 };
    let resident = f64::from(limits.resident_blocks(threads as u32, registers, staged as u32));
    let chips = table.rate(Rate::Multiprocessors);
    let columns = sizes.last().map_or(1.0, |n| *n as f64);
    let extents = operator.sizes.iter().zip(sizes).filter(|((name, _), _)| !operator.tables.contains(name));
    let elements =
        extents.map(|(_, n)| *n as f64).product::<f64>() * if named("d") { 1.0 } else { value("d") };
    // Programs that loop over the columns of a row: those with sums read twice, and wait for each chunk.
    let form = operator.forms[setting.form];
    let loops = form.name == "chunks";
    let passes = if operator.forms.len() > 1 { 2.0 } else { 1.0 };
    let (rows, across) = (elements / columns, (columns / (bn * value("pieces"))).ceil());
    let groups = (rows / value("bm")).ceil();
    let sums_columns = operator.has_knob("split") && !loops;
    let (blocks, steps) = if sums_columns {
        // A block takes every `split`-th group of rows, several of which are on their way at once.
        let split = value("split").min(groups);
        (across * split, (groups / split / 2.0).ceil())
    } else if operator.has_knob("blocks") {
        // Every block takes tiles in turns, four of which are on their way at once.
        let blocks = value("blocks");
        (blocks, (elements / tile / blocks / 4.0).ceil())
    } else if loops {
        (groups, passes * across)
    } else if matches!(form.limit, Limit::Whole(_)) {
        // Threads beyond the end of a row have nothing to do.
        (groups * value("cluster"), 1.0)
    } else {
        ((elements / tile).ceil(), 1.0)
    };
    // Parts of sums are written and read.
    let bytes = if sums_columns { bytes + 8.0 * columns * value("split") } else { bytes };
    let waves = blocks / (chips * resident);
    let waves = if waves < 4.0 { waves.ceil() } else { waves };
    let bandwidth = table.rate(Rate::DramBytes);
    let share = bytes / (blocks * steps);
    let together = (blocks / chips).min(resident) * share;
    // What is read again comes from the L2 cache, mostly; latency and transfer overlap, not wholly.
    let transfer = together / bandwidth * if loops && passes > 1.0 { 1.3 } else { 1.0 };
    // The blocks of a cluster wait for each other.
    let meetings = if value("cluster") > 1.0 { waves * LATENCY } else { 0.0 };
    let moved = LATENCY.max(transfer) + 0.1 * LATENCY.min(transfer);
    // A row is walked through once it is there, piece by piece, and nothing else of the block's is on its way meanwhile.
    let walked = match value("pieces") > 1.0 && !sums_columns {
        true => LATENCY + 0.78 * transfer + PIECE * value("pieces"),
        false => 0.0,
    };
    let cycles = waves * steps * moved.max(walked) + LATENCY + meetings;
    cycles / table.rate(Rate::ClockMhz) + table.rate(Rate::LaunchUs)
}
