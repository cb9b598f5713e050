//! Wavefronts of shared memory and sectors of global memory that one warp's access takes.
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

/// The wavefronts of a warp's shared-memory request.
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

    fn add(&mut self, other: Wavefronts) {
        self.actual += other.actual;
        self.ideal += other.ideal;
    }
}

/// Counts the wavefronts of a request in which lane `i` accesses `bytes` (1, 2, 4, 8 or 16) at byte address
/// `addresses[i]`, or nothing for `None`; of plain numbers, every lane accesses memory. At most 32 lanes.
pub fn shared_wavefronts<A: Copy + Into<Option<u32>>>(addresses: &[A], bytes: u32) -> Wavefronts {
    let mut total = Wavefronts::default();
    for phase in addresses.chunks(lanes_of_a_phase(bytes)) {
        total.add(phase_wavefronts(phase.iter().filter_map(|address| (*address).into()), bytes));
    }
    total
}

/// [`shared_wavefronts`] of lanes whose addresses are linear over the bits of the lane: `lanes[b]` is the address of lane 2^b, lane 0
/// is at 0, or all are moved by a multiple of `bytes` that shares no bit with them. `None` where an address is no multiple of `bytes`.
pub fn linear_wavefronts(lanes: &[u64], bytes: u32) -> Option<Wavefronts> {
    let aligned = bytes.is_power_of_two() && lanes.iter().all(|address| address % u64::from(bytes) == 0);
    let phases = (1 << lanes.len()) / lanes_of_a_phase(bytes).min(1 << lanes.len());
    aligned.then(|| Wavefronts {
        actual: tilewright_layout::lane_wavefronts(lanes, bytes.trailing_zeros()) as u32,
        ideal: phases as u32,
    })
}

/// Lanes that are served together.
fn lanes_of_a_phase(bytes: u32) -> usize {
    match bytes {
        16 => 8,
        8 => 16,
        _ => 32,
    }
}

/// The wavefronts of the lanes of one phase: as many as the bank with the most distinct words has.
fn phase_wavefronts(addresses: impl Iterator<Item = u32> + Clone, bytes: u32) -> Wavefronts {
    // Aligned accesses of 8 or 16 bytes take whole groups of banks: one of these units stands for all its words.
    let aligned = bytes > 4 && addresses.clone().fold(0, |bits, address| bits | address) % bytes == 0;
    let unit = if aligned { bytes } else { 4 };
    let banks = 4 * BANKS / unit;
    // The distinct units, chained by bank: for each the one before it in its bank. A phase has at most 64.
    let (mut units, mut before) = ([0u32; 64], [NONE; 64]);
    let mut used = 0;
    let mut last = [NONE; BANKS as usize];
    let mut counts = [0u8; BANKS as usize];
    let mut most = 0;
    for address in addresses {
        let (first, end) = (address / unit, (address + bytes.max(1) - 1) / unit);
        for word in first..=end {
            let bank = (word % banks) as usize;
            let mut at = last[bank];
            while at != NONE && units[at as usize] != word {
                at = before[at as usize];
            }
            if at == NONE && used < units.len() {
                (units[used], before[used]) = (word, last[bank]);
                last[bank] = used as u8;
                counts[bank] += 1;
                most = most.max(counts[bank]);
                used += 1;
            }
        }
    }
    Wavefronts { actual: u32::from(most), ideal: u32::from(most > 0) }
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
    fn accesses_that_are_not_aligned_are_counted_by_their_words() {
        // Half a vector further, each lane still has four words, and each quarter warp all 32 banks.
        assert_eq!(request(|lane| lane * 16 + 8, 16), Wavefronts { actual: 4, ideal: 4 });
        assert_eq!(request(|lane| lane * 128 + 8, 16), Wavefronts { actual: 32, ideal: 4 });
        // The same words twice: lanes of one phase overlap by half.
        assert_eq!(request(|lane| lane * 8, 16), Wavefronts { actual: 4, ideal: 4 });
    }

    #[test]
    fn a_request_of_all_lanes_is_counted_alike() {
        for bytes in [1, 2, 4, 8, 16] {
            for stride in [0, 4, 8, 16, 36, 64, 128, 136] {
                let addresses: Vec<u32> = (0..32).map(|lane| lane * stride).collect();
                let all: Vec<_> = addresses.iter().copied().map(Some).collect();
                assert_eq!(shared_wavefronts(&addresses, bytes), shared_wavefronts(&all, bytes));
            }
        }
    }

    /// The algebra of linear layouts (LL, lemma 9.4) counts the same as looking at every address.
    #[test]
    fn wavefronts_of_linear_layouts_are_those_of_their_addresses() {
        use tilewright_layout::{LinearLayout, wavefronts};
        let memory: LinearLayout =
            "[offset: 1 2 4 8 16 32 64 128 256 512 1024 2048] -> [x:4096]".parse().unwrap();
        for (log_bytes, vector) in [(0, 0), (1, 0), (2, 0), (1, 2), (2, 1), (2, 2), (0, 4)] {
            for first in 0..=7 - vector {
                let step = 1u32 << (first + vector);
                let bases: Vec<String> = (0..5).map(|bit| (step << bit).to_string()).collect();
                let layout: LinearLayout =
                    format!("[lane: {}] -> [x:4096]", bases.join(" ")).parse().unwrap();
                let bytes = 1 << (log_bytes + vector);
                let counted = request(|lane| (lane * step) << log_bytes, bytes).actual;
                let algebra = wavefronts(&memory, &layout, log_bytes, vector).unwrap();
                assert_eq!(u64::from(counted), algebra, "{log_bytes} {vector} {step}");
            }
        }
    }

    /// Also where lanes share words, banks and addresses, and where all are moved.
    #[test]
    fn wavefronts_of_linear_lanes_are_those_of_their_addresses() {
        let mut random = 1u64;
        for case in 0..20_000u32 {
            let mut next = |below: u64| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % below
            };
            let (bytes, lane_bits) = (1u32 << (case % 5), 3 + (case / 5 % 3));
            let mask = next(4096);
            let lanes: Vec<u64> = (0..lane_bits).map(|_| next(4096) & mask & !u64::from(bytes - 1)).collect();
            let moved = next(4096) & !mask & !u64::from(bytes - 1);
            let address = |lane: u32| {
                let bits = (0..lane_bits).filter(|bit| lane >> bit & 1 == 1);
                (bits.fold(0, |address, bit| address ^ lanes[bit as usize]) ^ moved) as u32
            };
            let addresses: Vec<u32> = (0..1 << lane_bits).map(address).collect();
            let counted = shared_wavefronts(&addresses, bytes);
            assert_eq!(linear_wavefronts(&lanes, bytes), Some(counted), "{bytes} {lanes:?} {moved}");
        }
        assert_eq!(linear_wavefronts(&[4, 8, 16], 16), None);
    }

    #[test]
    fn inactive_lanes_cost_nothing() {
        assert_eq!(shared_wavefronts(&[None::<u32>; 32], 16), Wavefronts::default());
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
