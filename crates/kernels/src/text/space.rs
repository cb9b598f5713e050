//! Tuning spaces of operators that are bound by memory, and an estimate that ranks their points.

use tilewright_machine::{Arch, DType, Rate, timing};

use super::operator::{Limit, Setting, TextOperator, VECTOR};

/// Cycles from the issue of a load from global memory until its data is there, under load.
const LATENCY: f64 = 1100.0;

const THREADS: [i64; 5] = [64, 128, 256, 512, 1024];

/// The most elements that a thread may hold, so that the operator's tensors fit into its registers.
fn most_held(operator: &TextOperator, threads: i64) -> i64 {
    (57344 / operator.live / threads).min(240 / operator.live).min(64)
}

fn round_up(n: i64, to: i64) -> i64 {
    n.div_euclid(to) * to + if n % to == 0 { 0 } else { to }
}

fn setting(operator: &TextOperator, form: usize, values: &[(&str, i64)]) -> Setting {
    // Two blocks of a row form a multiprocessor of 132; sums of columns in 16 parts.
    let split = if operator.forms[form].limit == Limit::None { 16 } else { 264 };
    let value = |name: &str| {
        let found = values.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        found.unwrap_or(if name == "split" { split } else { 1 })
    };
    let knobs = operator.knobs.iter().map(|knob| value(knob.name)).collect();
    Setting { dtype: DType::F16, form, knobs }
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

/// Tiles of `[m, n]` whose columns are summed, in parts of the rows.
pub(super) fn columns(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let mut all = Vec::new();
    for threads in [128, 256, 512] {
        for bn in [64, 128, 256, 512].into_iter().filter(|bn| *bn < 2 * sizes[1] || *bn == 64) {
            for vectors in [1, 2, 4] {
                let bm = threads * VECTOR * vectors / bn;
                for split in [4, 16, 64].into_iter().filter(|split| *split == 4 || split * bm <= sizes[0]) {
                    let values = [("bm", bm), ("bn", bn), ("split", split), ("threads", threads)];
                    all.push(setting(operator, 0, &values));
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

/// The program as it stands.
pub(super) fn single(operator: &TextOperator, _: &[i64]) -> Vec<Setting> {
    vec![setting(operator, 0, &[])]
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

/// Rows of `[m, n]` with sums over them: whole rows in registers (the form `row`) where a thread holds at most 64 elements, and
/// rows in chunks.
pub(super) fn rows(operator: &TextOperator, sizes: &[i64]) -> Vec<Setting> {
    let columns = sizes.last().copied().unwrap_or(1);
    let row = operator.forms.iter().position(|form| matches!(form.limit, Limit::Whole(_)));
    let mut all = Vec::new();
    for threads in THREADS {
        for bm in [1, 2, 4, 8, 16, 32, 64] {
            let lanes = threads / bm;
            if lanes < 1 || bm > 1 && operator.knobs.iter().all(|knob| knob.name != "bm") {
                continue;
            }
            let bn = round_up(columns, VECTOR * lanes);
            let held = bm * bn / threads;
            let thrifty = bn < 2 * columns || held == VECTOR;
            if let Some(form) = row.filter(|_| held <= most_held(operator, threads) && thrifty) {
                all.push(setting(operator, form, &[("bm", bm), ("bn", bn), ("threads", threads)]));
            }
            for vectors in [1, 2, 4] {
                let chunk = VECTOR * vectors * lanes;
                let fits = VECTOR * vectors <= most_held(operator, threads);
                if bm <= 4 && fits && (chunk < columns || all.is_empty()) {
                    all.push(setting(operator, 0, &[("bm", bm), ("bn", chunk), ("threads", threads)]));
                }
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
    let tile = value("bm") * value("bn") * value("heads") * value("d");
    let (bn, threads) = (value("bn"), value("threads"));
    let width = f64::from(setting.dtype.bits()) / 8.0;
    let bytes = (operator.traffic)(sizes) * width;
    // A thread holds its elements as they came and as f32.
    let held = (tile / threads).max(1.0);
    let registers = (24.0 + held * (1.0 + width / 4.0)).clamp(24.0, 255.0) as u32;
    let resident = f64::from(limits.resident_blocks(threads as u32, registers, 0));
    let chips = table.rate(Rate::Multiprocessors);
    let columns = sizes.last().map_or(1.0, |n| *n as f64);
    let elements =
        sizes.iter().map(|n| *n as f64).product::<f64>() * if named("d") { 1.0 } else { value("d") };
    // Programs that loop over the columns of a row: those with sums read twice, and wait for each chunk.
    let form = operator.forms[setting.form];
    let loops = form.name == "chunks";
    let passes = if operator.forms.len() > 1 { 2.0 } else { 1.0 };
    let (blocks, steps) = if loops {
        ((elements / columns / value("bm")).ceil(), passes * (columns / bn).ceil())
    } else {
        ((elements / tile).ceil(), 1.0)
    };
    let waves = blocks / (chips * resident);
    let waves = if waves < 4.0 { waves.ceil() } else { waves };
    let bandwidth = table.rate(Rate::DramBytes);
    let share = bytes / (blocks * steps);
    let together = (blocks / chips).min(resident) * share;
    // What is read again comes from the L2 cache, mostly; latency and transfer overlap, not wholly.
    let transfer = together / bandwidth * if loops && passes > 1.0 { 1.3 } else { 1.0 };
    let cycles = waves * steps * (LATENCY.max(transfer) + 0.1 * LATENCY.min(transfer)) + LATENCY;
    cycles / table.rate(Rate::ClockMhz) + table.rate(Rate::LaunchUs)
}
