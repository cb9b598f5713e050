//! Estimates of kernel families in closed form: rounds of tiles times the time of a tile, at least what the memories take, and what
//! begins and ends cost. They rank configurations; they are not predictions.

use tilewright_machine::{Arch, Rate, timing};

use crate::tiles::Tiles;

/// Cycles from the issue of a copy from global memory until its data can be multiplied.
const LATENCY: f64 = 900.0;

fn ceil_div(a: i64, b: i64) -> i64 {
    (a + b - 1) / b.max(1)
}

/// Microseconds of a pipelined product by `mma.sync`, whose blocks do a tile each.
pub(crate) fn tiles(tiles: &Tiles, arch: Arch, [m, n, k]: [i64; 3]) -> f64 {
    let (limits, table) = (arch.limits(), timing(arch));
    let (bm, bn, bk) = (tiles.bm as f64, tiles.bn as f64, tiles.bk as f64);
    let threads = tiles.threads as u32;
    let registers = limits.registers_of_a_thread(threads).min(168);
    let shared = u32::try_from(tiles.shared_bytes()).unwrap_or(u32::MAX);
    let together = f64::from(limits.resident_blocks(threads, registers, shared));
    let chips = table.rate(Rate::Multiprocessors);
    // mma.sync of 16-bit floats: about 1024 products a cycle and multiprocessor on these architectures.
    let multiply = bm * bn * bk / 1024.0;
    let bytes = bk * (2.0 * bm + tiles.b_bits as f64 / 8.0 * bn);
    let copy = bytes / table.rate(Rate::L2Bytes);
    // Blocks of one multiprocessor share its units and hide each other's latencies.
    let waiting = LATENCY / (together * (tiles.stages - 1).max(1) as f64);
    let step = multiply.max(copy).max(waiting);
    let count = (ceil_div(m, tiles.bm) * ceil_div(n, tiles.bn)) as f64;
    let rounds = (count / (chips * together)).ceil();
    let tile = step * ceil_div(k, tiles.bk) as f64 + LATENCY / together + 2.0 * bm * bn / 64.0;
    let cycles = rounds * together * tile;
    let (rows, cols, depth) = (m as f64, n as f64, k as f64);
    let traffic = 2.0 * rows * depth + cols * depth * tiles.b_bits as f64 / 8.0 + 2.0 * rows * cols;
    let memory = traffic / (chips * table.rate(Rate::DramBytes));
    (cycles.max(memory) + 2.0 * LATENCY) / table.rate(Rate::ClockMhz) + table.rate(Rate::LaunchUs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::GemmConfig;

    #[test]
    fn more_work_takes_longer() {
        let tile = GemmConfig::default().tiles();
        for arch in Arch::ALL {
            let of = |k| tiles(&tile, arch, [4096, 4096, k]);
            assert!(of(1024) < of(4096) && of(64) > 0.0, "{arch}");
        }
    }
}
