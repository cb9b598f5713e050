//! Estimates of kernel families in closed form: rounds of tiles times the time of a tile, at least what the memories take, and what
//! begins and ends cost. They rank configurations; they are not predictions.

use tilewright_machine::{Arch, DType, MmaKind, Rate, Unit, mmas, timing};

use crate::tiles::Tiles;

/// Cycles from the issue of a copy from global memory until its data can be multiplied.
const LATENCY: f64 = 900.0;

/// Cycles over which what is on its way from device memory comes.
const MEMORY_LATENCY: f64 = 2000.0;

/// Part by which reads of shared memory take longer than their bytes do, cycles of a block between two steps, and the part by which products take longer whose
/// factors go to registers in runs of more than an instruction's. These three and the one before are fitted to 190 timings of 12 shapes in f16 on an H100 and an H200.
const READ: f64 = 1.2;
const TURN: f64 = 100.0;
const LONG_RUNS: f64 = 1.2;

fn ceil_div(a: i64, b: i64) -> i64 {
    (a + b - 1) / b.max(1)
}

/// Products of matrices, of so many rows, columns and terms, by `mma.sync`.
pub(crate) struct Work {
    factors: DType,
    sums: DType,
    sizes: [i64; 3],
    /// The kind of the product.
    kind: MmaKind,
    /// Products of a batch.
    count: i64,
}

impl Work {
    pub fn of(factors: DType, sums: DType, sizes: [i64; 3]) -> Self {
        Work { factors, sums, sizes, kind: MmaKind::Dense, count: 1 }
    }

    /// Of this kind.
    pub fn kind(self, kind: MmaKind) -> Self {
        Work { kind, ..self }
    }

    /// So many of them.
    pub fn times(self, count: i64) -> Self {
        Work { count, ..self }
    }

    /// Multiply-adds of a multiprocessor in a cycle.
    fn rate(&self, arch: Arch) -> f64 {
        let units = f64::from(Unit::Tensor.count());
        let rates = mmas([self.factors; 2], self.sums, self.kind, arch)
            .map(|row| units * row.macs() as f64 / timing(arch).cost(row).issue);
        rates.fold(1.0, f64::max)
    }
}

/// Microseconds of a pipelined product by `mma.sync`, whose blocks do a tile each.
pub(crate) fn tiles(tiles: &Tiles, arch: Arch, work: Work) -> f64 {
    let [m, n, k] = work.sizes;
    let products = work.count as f64;
    let (limits, table) = (arch.limits(), timing(arch));
    let (bm, bn, bk) = (tiles.bm as f64, tiles.bn as f64, tiles.bk as f64);
    let threads = tiles.threads as u32;
    let registers = limits.registers_of_a_thread(threads).min(168);
    let shared = u32::try_from(tiles.shared_bytes()).unwrap_or(u32::MAX);
    let together = f64::from(limits.resident_blocks(threads, registers, shared));
    let chips = table.rate(Rate::Multiprocessors);
    let multiply = bm * bn * bk * tiles.products as f64 / work.rate(arch);
    let [of_a, of_b, of_c] =
        [tiles.left_bits(), tiles.b_bits, tiles.result_bits].map(|bits| bits as f64 / 8.0);
    let bytes = bk * (of_a * bm + of_b * bn);
    // Warps read the same rows and columns from shared memory several times.
    let read = READ * bk * tiles.read_by_warps() as f64 / table.rate(Rate::SharedBytes);
    let deep = if tiles.loads_long_runs() { LONG_RUNS } else { 1.0 };
    let overlapped = (multiply.powi(4) + read.powi(4)).powf(0.25);
    let multiply = if tiles.reads_ahead() { overlapped } else { multiply + read } * deep + TURN;
    let copy = bytes / table.rate(Rate::L2Bytes);
    // Blocks of one multiprocessor share its units and hide each other's latencies.
    let waiting = LATENCY / (together * (tiles.stages - 1).max(1) as f64);
    let step = multiply.max(copy).max(waiting);
    let split = tiles.split as f64;
    let count = (ceil_div(m, tiles.bm) * ceil_div(n, tiles.bn)) as f64 * products * split;
    let rounds = (count / (chips * together)).ceil();
    let tile = step * ceil_div(ceil_div(k, tiles.bk), tiles.split) as f64
        + LATENCY / together
        + 2.0 * bm * bn / 64.0;
    let cycles = rounds * together * tile;
    let (rows, cols, depth) = (m as f64, n as f64, k as f64);
    // Parts are written and read again, by a launch of its own.
    let parts = if tiles.split > 1 { 2.0 * split * tiles.sum_bits as f64 / 8.0 } else { 0.0 };
    let launches = if tiles.split > 1 { 2.0 } else { 1.0 };
    let traffic = products * (of_a * rows * depth + of_b * cols * depth + (of_c + parts) * rows * cols);
    // What is on its way limits how fast memory delivers.
    let coming = count.min(chips * together) * (tiles.stages - 1).max(1) as f64 * bytes / MEMORY_LATENCY;
    let memory = traffic / (chips * table.rate(Rate::DramBytes)).min(coming);
    (cycles.max(memory) + 2.0 * LATENCY) / table.rate(Rate::ClockMhz) + launches * table.rate(Rate::LaunchUs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::GemmConfig;

    #[test]
    fn more_work_takes_longer() {
        let tile = GemmConfig::default().tiles();
        for arch in Arch::ALL {
            let of = |k| tiles(&tile, arch, Work::of(DType::F16, DType::F32, [4096, 4096, k]));
            assert!(of(1024) < of(4096) && of(64) > 0.0, "{arch}");
        }
    }
}
