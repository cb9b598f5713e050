//! The estimated time of both programs.

use tilewright_machine::{Arch, Rate, timing};

use super::AttentionDecodeConfig;

/// Bytes in flight that keep the memory of a multiprocessor busy, and warps that keep up with it: on an H200 two blocks of a warp each read at 4.4 TB/s.
const BUSY_BYTES: i64 = 48 << 10;
const BUSY_WARPS: i64 = 2;

/// Bytes that a multiprocessor reads in the time that a block takes to begin and to end.
const FIXED_BYTES: i64 = 48 << 10;

/// Microseconds until the second program has begun behind the first, without and with programmatic dependent launch.
const COMBINE_LAUNCH: [f64; 2] = [4.0, 2.0];

/// The work of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// Blocks of keys that each of its tiles reads.
    pub blocks: i64,
    /// Tiles of rows, of all heads of keys.
    pub tiles: i64,
}

/// The multiprocessors, and the blocks that each holds at once.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    multiprocessors: i64,
    resident: i64,
    /// Blocks that keep a multiprocessor busy: fewer take as long as these.
    busy: i64,
    /// The time for a block to begin and to end, in blocks of keys.
    fixed: i64,
    /// Bytes of a block of keys.
    bytes: i64,
    /// Bytes that a multiprocessor reads in a microsecond.
    rate: f64,
}

impl Machine {
    pub(super) fn new(config: &AttentionDecodeConfig, arch: Arch, multiprocessors: i64) -> Machine {
        let up = |a: i64, b: i64| (a + b - 1) / b;
        let bytes = config.key_bytes() * config.bn;
        let in_flight = up(BUSY_BYTES, bytes * (config.stages - 1));
        Machine {
            multiprocessors,
            resident: config.resident_blocks(arch),
            busy: in_flight.max(up(BUSY_WARPS, config.rows / 16)),
            fixed: up(FIXED_BYTES, bytes),
            bytes,
            rate: timing(arch).rate(Rate::DramBytes) * timing(arch).rate(Rate::ClockMhz),
        }
    }

    /// Microseconds of a time in sixty-fourths of a block of keys.
    pub(super) fn microseconds(self, time: i128) -> f64 {
        time as f64 / 64.0 * self.bytes as f64 / self.rate
    }

    /// Microseconds of the second program, which reads so many bytes.
    pub(super) fn combine(self, bytes: i64, dependent: bool) -> f64 {
        COMBINE_LAUNCH[usize::from(dependent)] + bytes as f64 / (self.rate * self.multiprocessors as f64)
    }

    /// The time of a launch with parts of so many blocks of keys, in sixty-fourths of the time in which a multiprocessor reads such a block. Blocks that
    /// are resident together share its memory; a few of them leave it idle. No launch is faster than its longest part alone.
    pub(super) fn time(self, work: &[Work], chunk: i64) -> i128 {
        let parts_of = |blocks: i64| (blocks + chunk - 1) / chunk;
        let sum = |of: &dyn Fn(&Work) -> i64| {
            work.iter().map(|work| i128::from(of(work) * work.tiles)).sum::<i128>()
        };
        let parts = sum(&|work| parts_of(work.blocks));
        let all = sum(&|work| work.blocks) + i128::from(self.fixed) * parts;
        let (resident, multiprocessors) = (i128::from(self.resident), i128::from(self.multiprocessors));
        let each = (parts + multiprocessors - 1) / multiprocessors;
        // Whole rounds, and one that may leave places free.
        let (rounds, rest) = (each / resident, each % resident);
        let shared = |together: i128| if together == 0 { 0 } else { together.max(self.busy.into()) };
        let weight = rounds * shared(resident) + shared(rest);
        let longest = work.iter().map(|work| work.blocks).max().unwrap_or(0);
        let (mean, alone) =
            (64 * all / parts.max(1), 64 * i128::from((chunk.min(longest) + self.fixed) * self.busy));
        (weight * mean).max(alone)
    }
}
