//! Estimates of kernel families in closed form: rounds of tiles times the time of a tile, at least what the memories take, and what
//! begins and ends cost. They rank configurations; they are not predictions.

use tilewright_machine::{Arch, Rate, timing};

use crate::config::Tiles;
use crate::gemm_hopper::{Cluster, HopperGemmConfig};

/// Where the architecture's table has no figure for the clock, in MHz; under load chips stay below their highest.
const CLOCK_MHZ: f64 = 1500.0;

/// Cycles from the issue of a copy from global memory until its data can be multiplied.
const LATENCY: f64 = 900.0;

/// The same for a tensor copy, whose neighbours ask for the same lines.
const TENSOR_COPY: f64 = 700.0;

fn ceil_div(a: i64, b: i64) -> i64 {
    (a + b - 1) / b.max(1)
}

/// Microseconds of a pipelined product by `mma.sync`, whose blocks do a tile each.
pub(crate) fn tiles(tiles: &Tiles, arch: Arch, [m, n, k]: [i64; 3]) -> f64 {
    let (limits, table) = (arch.limits(), timing(arch));
    let rate = |rate, otherwise: f64| table.rate(rate).unwrap_or(otherwise);
    let (bm, bn, bk) = (tiles.bm as f64, tiles.bn as f64, tiles.bk as f64);
    let threads = tiles.threads as u32;
    let registers = limits.registers_of_a_thread(threads).min(168);
    let shared = u32::try_from(tiles.shared_bytes()).unwrap_or(u32::MAX);
    let together = f64::from(limits.resident_blocks(threads, registers, shared));
    let chips = rate(Rate::Multiprocessors, f64::from(limits.multiprocessors));
    // mma.sync of 16-bit floats: about 1024 products a cycle and multiprocessor on these architectures.
    let multiply = bm * bn * bk / 1024.0;
    let bytes = bk * (2.0 * bm + tiles.b_bits as f64 / 8.0 * bn);
    let copy = bytes / rate(Rate::L2Bytes, 32.0);
    // Blocks of one multiprocessor share its units and hide each other's latencies.
    let waiting = LATENCY / (together * (tiles.stages - 1).max(1) as f64);
    let step = multiply.max(copy).max(waiting);
    let count = (ceil_div(m, tiles.bm) * ceil_div(n, tiles.bn)) as f64;
    let rounds = (count / (chips * together)).ceil();
    let tile = step * ceil_div(k, tiles.bk) as f64 + LATENCY / together + 2.0 * bm * bn / 64.0;
    let cycles = rounds * together * tile;
    let traffic = (2 * m * k + n * k * tiles.b_bits / 8 + 2 * m * n) as f64;
    let memory = traffic / (chips * rate(Rate::DramBytes, 12.0));
    (cycles.max(memory) + 2.0 * LATENCY) / rate(Rate::ClockMhz, CLOCK_MHZ) + rate(Rate::LaunchUs, 2.0)
}

/// Microseconds of a product whose blocks stay and take one tile after another.
pub(crate) fn hopper_gemm(config: &HopperGemmConfig, [m, n, k]: [i64; 3]) -> f64 {
    let table = timing(Arch::Sm90a);
    let rate = |rate, otherwise: f64| table.rate(rate).unwrap_or(otherwise);
    let (rows, cols) = config.sides((config.bm, config.bn));
    let (down, across) = match config.cluster {
        Cluster::None => (1, 1),
        Cluster::AlongM(blocks) => (blocks, 1),
        Cluster::AlongN(blocks) => (1, blocks),
    };
    let blocks = down * across;
    let clusters = ceil_div(m, rows * down) * ceil_div(n, cols * across);
    let sms = config.sms.min(i64::from(Arch::Sm90a.limits().multiprocessors));
    let rounds = ceil_div(clusters, (sms / blocks).max(1)) as f64;
    let (bm, bn, bk) = (config.bm as f64, config.bn as f64, config.bk as f64);
    // wgmma of 16-bit floats: 2048 products a cycle and multiprocessor. Each warpgroup reads its rows of A and all of B from shared
    // memory.
    let multiply = bm * bn * bk / 2048.0;
    let shared = 2.0 * bk * (bm + config.warpgroups as f64 * bn) / rate(Rate::SharedBytes, 128.0);
    let (own_a, own_b) = (rows as f64 / across as f64, cols as f64 / down as f64);
    // Requests of neighbours for the same lines are merged before the L2 cache: more arrives than it gives when all read for themselves.
    let copy = 2.0 * bk * (own_a + own_b) / (1.5 * rate(Rate::L2Bytes, 40.0));
    // A stage is away until its copy has arrived, and until its product and those in flight behind it are done.
    let product = multiply.max(shared);
    let turn = (TENSOR_COPY + product * (1 + config.in_flight) as f64) / config.stages as f64;
    let step = product.max(copy).max(turn) + 8.0;
    let results = 2.0 * bm * bn / 48.0;
    let steps = ceil_div(k, config.bk) as f64;
    let shown = if config.deferred { 0.25 * results } else { results };
    let cycles = rounds * (step * steps + shown) + results;
    let traffic = 2.0 * (m * k + n * k + m * n) as f64;
    let memory = traffic / (rate(Rate::Multiprocessors, 132.0) * rate(Rate::DramBytes, 20.0));
    // Under load the chip runs at about four fifths of its highest clock.
    let clock = 0.8 * rate(Rate::ClockMhz, CLOCK_MHZ / 0.8);
    (cycles.max(memory) + 2.0 * LATENCY) / clock + rate(Rate::LaunchUs, 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::GemmConfig;

    #[test]
    fn a_tile_that_fills_the_last_round_is_ahead() {
        // 1024 × 6144: 192 tiles of 128 × 256 are 1.45 rounds of 132 blocks, 256 of 128 × 192 are 1.94.
        let of =
            |bn| hopper_gemm(&HopperGemmConfig { bn, ..HopperGemmConfig::default() }, [1024, 6144, 4096]);
        assert!(of(192) < of(256), "{} {}", of(192), of(256));
    }

    #[test]
    fn large_products_want_large_tiles_and_three_stages() {
        let of = |bm, bn, stages, warpgroups| {
            let config = HopperGemmConfig { bm, bn, stages, warpgroups, ..HopperGemmConfig::default() };
            hopper_gemm(&config, [8192, 8192, 8192])
        };
        assert!(of(128, 256, 4, 2) < of(128, 128, 4, 2));
        assert!(of(128, 256, 4, 2) < of(128, 256, 2, 2));
        // What the chip cannot pass: 989 TFLOP/s.
        assert!(of(128, 256, 4, 2) > 1111.0);
        let few = |swap, bm, bn, warpgroups| {
            let config =
                HopperGemmConfig { swap, bm, bn, warpgroups, stages: 8, ..HopperGemmConfig::default() };
            hopper_gemm(&config, [16, 4096, 4096])
        };
        assert!(few(true, 64, 16, 1) < few(false, 64, 128, 1));
    }

    #[test]
    fn more_work_takes_longer() {
        let tile = GemmConfig::default().tiles();
        for arch in Arch::ALL {
            let of = |k| tiles(&tile, arch, [4096, 4096, k]);
            assert!(of(1024) < of(4096) && of(64) > 0.0, "{arch}");
        }
    }
}
