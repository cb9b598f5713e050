//! What one warp's memory access costs: wavefronts of shared memory, sectors of global memory.
//!
//! Shared memory has 32 banks of 4 bytes. A request is served in wavefronts; in one, each bank delivers one word
//! (to any number of lanes). Requests of 8 and 16 bytes a lane are served by half and quarter warps, and matrix
//! accesses one 8-row matrix at a time. Synthesis and the simulator count with these same functions.

/// Banks of shared memory.
pub const BANKS: u32 = 32;
/// No word.
const NONE: u8 = u8::MAX;
/// Bytes of a global-memory sector.
pub const SECTOR_BYTES: u64 = 32;

/// How a warp's shared-memory request was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wavefronts {
    /// Wavefronts that the request took.
    pub actual: u32,
    /// Wavefronts that it needs when no two words of a phase share a bank.
    pub ideal: u32,
}

impl Wavefronts {
    /// Wavefronts beyond the ideal.
    pub fn conflicts(self) -> u32 {
        self.actual - self.ideal
    }
}

/// Counts the wavefronts of a request in which lane `i` accesses `bytes` (1, 2, 4, 8 or 16) at byte address
/// `addresses[i]`, or nothing for `None`. At most 32 lanes.
pub fn shared_wavefronts(addresses: &[Option<u32>], bytes: u32) -> Wavefronts {
    let lanes_per_phase = match bytes {
        16 => 8,
        8 => 16,
        _ => 32,
    };
    let mut total = Wavefronts::default();
    for phase in addresses.chunks(lanes_per_phase) {
        // The distinct words, chained by bank: for each word the one before it in its bank. A phase has at most 64.
        let mut words = [(0u32, NONE); 64];
        let mut used = 0;
        let mut last = [NONE; BANKS as usize];
        let mut counts = [0u32; BANKS as usize];
        for address in phase.iter().flatten() {
            let (first, end) = (address / 4, (address + bytes.max(1) - 1) / 4);
            for word in first..=end {
                let bank = (word % BANKS) as usize;
                let mut at = last[bank];
                while at != NONE && words[at as usize].0 != word {
                    at = words[at as usize].1;
                }
                if at == NONE && used < words.len() {
                    words[used] = (word, last[bank]);
                    last[bank] = used as u8;
                    counts[bank] += 1;
                    used += 1;
                }
            }
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        if most == 0 {
            continue;
        }
        total.actual += most;
        total.ideal += 1;
    }
    total
}

/// Counts the 32-byte sectors that a warp's request touches, lane `i` accessing `bytes` at `addresses[i]`.
pub fn global_sectors(addresses: &[Option<u64>], bytes: u32) -> u32 {
    let mut sectors: Vec<u64> = addresses
        .iter()
        .flatten()
        .flat_map(|a| (a / SECTOR_BYTES)..=((a + u64::from(bytes) - 1) / SECTOR_BYTES))
        .collect();
    sectors.sort_unstable();
    sectors.dedup();
    sectors.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(f: impl Fn(u32) -> u32, bytes: u32) -> Wavefronts {
        let addresses: Vec<_> = (0..32).map(|lane| Some(f(lane))).collect();
        shared_wavefronts(&addresses, bytes)
    }

    #[test]
    fn contiguous_accesses_are_free_of_conflicts_at_every_width() {
        for bytes in [1, 2, 4, 8, 16] {
            assert_eq!(request(|lane| lane * bytes, bytes).conflicts(), 0, "{bytes}");
        }
        assert_eq!(request(|lane| lane * 16, 16), Wavefronts { actual: 4, ideal: 4 });
    }

    #[test]
    fn a_stride_of_all_banks_is_the_worst_case_and_a_broadcast_the_best() {
        assert_eq!(request(|lane| lane * 128, 4), Wavefronts { actual: 32, ideal: 1 });
        assert_eq!(request(|_| 64, 4), Wavefronts { actual: 1, ideal: 1 });
        assert_eq!(request(|lane| lane * 8, 4), Wavefronts { actual: 2, ideal: 1 });
        // Eight rows of 128 bytes, 16 bytes of each: an unswizzled ldmatrix.
        assert_eq!(request(|lane| lane * 128, 16), Wavefronts { actual: 32, ideal: 4 });
    }

    #[test]
    fn inactive_lanes_cost_nothing() {
        assert_eq!(shared_wavefronts(&[None; 32], 16), Wavefronts::default());
        let one: Vec<_> = (0..32).map(|l| (l == 9).then_some(0)).collect();
        assert_eq!(shared_wavefronts(&one, 16), Wavefronts { actual: 1, ideal: 1 });
    }

    #[test]
    fn sectors_count_each_touched_sector_once() {
        let addresses: Vec<_> = (0..32u64).map(|lane| Some(lane * 4)).collect();
        assert_eq!(global_sectors(&addresses, 4), 4);
        let strided: Vec<_> = (0..32u64).map(|lane| Some(lane * 4096)).collect();
        assert_eq!(global_sectors(&strided, 4), 32);
    }
}
