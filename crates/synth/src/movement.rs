//! Movements of elements from registers to registers: by moves within threads, by warp shuffles, or through shared memory with
//! an optimal swizzle (Linear Layouts, section 5.4), whichever the tables of `machine` say is cheapest.
//!
//! Everything is about one tile: operand and result are seen in the coordinates of the result.

use tilewright_layout::{Exchange, LinearLayout, Reorder, SharedAccess, optimal_swizzle};
use tilewright_machine::{Arch, Class, CopyKind, CopyRow, Cost, Memory, Scope, Timing, copies};

use crate::linear::Bits;
use crate::reason::{Lost, NotTaken};
use crate::reject::Reject;
use crate::tv::{TvLayout, moves};

/// Movements are counted in half cycles of the multiprocessor, of which an instruction of the arithmetic pipes takes one.
pub const HALVES: u32 = 2;

/// Half cycles of a wavefront of shared memory.
pub const WAVEFRONT_CYCLES: u32 = HALVES;

/// Half cycles of the multiprocessor that one warp's instruction takes.
pub(crate) fn halves(cost: Cost) -> u32 {
    (f64::from(HALVES) * cost.share()).round().max(1.0) as u32
}

/// Half cycles of a barrier between the two sides of an exchange, while other blocks run.
pub const BARRIER_CYCLES: u32 = 4;

/// A movement through registers of other lanes.
#[derive(Clone, PartialEq, Debug)]
pub struct Shuffles {
    /// The operand's layout.
    pub from: Bits,
    /// The result's.
    pub to: Bits,
    /// The rounds.
    pub reorder: Reorder,
    /// Pairs (bit of the result's register, bit of the operand's) whose elements share a word.
    pub packed: Vec<(u32, u32)>,
}

/// One side of a trip through shared memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Side {
    /// The layout over bits.
    pub bits: Bits,
    /// The accesses of a thread.
    pub access: SharedAccess,
    /// The instruction.
    pub row: &'static CopyRow,
}

/// A movement through shared memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Trip {
    /// Offset in elements → the tile.
    pub memory: LinearLayout,
    /// The operand's side.
    pub store: Side,
    /// The result's side.
    pub load: Side,
    /// Bytes of shared memory.
    pub bytes: u32,
}

/// A movement of elements from registers to registers.
#[derive(Clone, PartialEq, Debug)]
pub enum Movement {
    /// Within each thread: (source value, destination value).
    Registers(Vec<(u32, u32)>),
    /// Within each warp.
    Shuffles(Box<Shuffles>),
    /// Through shared memory.
    Shared(Box<Trip>),
}

impl Movement {
    /// The instruction, as reports name it.
    pub fn name(&self) -> String {
        match self {
            Movement::Registers(moves) if moves.iter().all(|(a, b)| a == b) => "nothing".to_string(),
            Movement::Registers(_) => "mov".to_string(),
            Movement::Shuffles(s) if s.calls() == 0 => "selp".to_string(),
            Movement::Shuffles(_) => "shfl.sync".to_string(),
            Movement::Shared(t) => format!("{} + {}", t.store.row.name, t.load.row.name),
        }
    }

    /// Instruction calls of one thread.
    pub fn calls(&self) -> u32 {
        match self {
            Movement::Registers(moves) => moves.iter().filter(|(a, b)| a != b).count() as u32,
            Movement::Shuffles(s) => s.calls(),
            Movement::Shared(t) => t.calls(),
        }
    }

    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        if let Movement::Shared(t) = self { t.bytes } else { 0 }
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        match self {
            Movement::Registers(_) => self.calls(),
            Movement::Shuffles(s) => s.cycles(timing),
            Movement::Shared(t) => t.cycles(timing),
        }
    }
}

impl Shuffles {
    fn words(&self, registers: u32) -> u32 {
        1 << (registers - self.packed.len() as u32)
    }

    /// Shuffles of one thread.
    pub fn calls(&self) -> u32 {
        let each = self.reorder.exchanges() >> self.packed.len();
        each as u32 * self.from.slices() as u32
    }

    /// Selections that permute registers by the lane's index, before and after.
    fn selections(&self) -> u32 {
        let stages = |columns: &[u64]| columns.iter().filter(|c| **c != 0).count() as u32;
        let before = stages(&self.reorder.before) * self.words(self.from.register_bits());
        let after = stages(&self.reorder.after) * self.words(self.to.register_bits());
        (before + after) * self.from.slices() as u32
    }

    fn cycles(&self, timing: &Timing) -> u32 {
        self.calls() * halves(timing.cost(Class::Shuffle))
            + self.selections() * halves(timing.cost(Class::Selp))
    }
}

impl Side {
    /// Instruction calls of one thread.
    pub fn calls(&self) -> u32 {
        self.access.instructions as u32 * self.bits.slices() as u32
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let issue = timing.cost(self.row).whole_issue();
        let each = self.access.wavefronts.max(u64::from(issue)) as u32;
        self.calls() * each * WAVEFRONT_CYCLES
    }
}

impl Trip {
    /// Instruction calls of one thread.
    pub fn calls(&self) -> u32 {
        self.store.calls() + self.load.calls()
    }

    /// Wavefronts of one warp's stores and loads.
    pub fn wavefronts(&self) -> u32 {
        let side = |s: &Side| s.calls() * s.access.wavefronts as u32;
        side(&self.store) + side(&self.load)
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        self.store.cycles(timing) + self.load.cycles(timing) + 2 * BARRIER_CYCLES
    }
}

/// The instruction with which each thread moves this many bytes.
pub(crate) fn per_thread(
    src: Memory,
    dst: Memory,
    bytes: u32,
    arch: Arch,
) -> Result<&'static CopyRow, Reject> {
    copies(src, dst, Scope::Cta, arch)
        .find(|r| r.kind == CopyKind::PerThread && r.bytes == bytes)
        .ok_or(Reject::NoAccess(arch, bytes))
}

/// The layouts and the costs that a movement is chosen by.
pub struct Between<'a> {
    /// The operand's layout, in the result's coordinates.
    pub from: &'a TvLayout,
    /// The result's layout.
    pub to: &'a TvLayout,
    /// The result's shape.
    pub shape: &'a [i64],
    /// Threads of the block.
    pub threads: i64,
    /// Bits of an element.
    pub bits: u32,
    /// The table of the architecture.
    pub timing: &'a Timing,
}

/// The cheapest movement, and what else was possible.
///
/// # Errors
///
/// Reason for which neither shuffles nor a linear shared layout apply.
pub fn movement(between: &Between<'_>) -> Result<(Movement, Vec<NotTaken>), Reject> {
    if let Some(moves) = moves(between.from, between.to, between.threads) {
        return Ok((Movement::Registers(moves), Vec::new()));
    }
    let (from, to) = (Bits::new(between.from, between.shape)?, Bits::new(between.to, between.shape)?);
    if from.places() != to.places() {
        return Err(Reject::OddFactors);
    }
    let reorder = Reorder::new(from.linear(), to.linear())?;
    let trip = trip(&from, &to, between.bits, between.timing.arch)?;
    let by_shared = Movement::Shared(Box::new(trip));
    if reorder.exchange == Exchange::Warps {
        return Ok((by_shared, vec![NotTaken::rejected("shfl.sync", Reject::BetweenWarps)]));
    }
    let packed = packable(&reorder, between.bits);
    let by_shuffles = Movement::Shuffles(Box::new(Shuffles { from, to, reorder, packed }));
    let (a, b) = (by_shuffles.cycles(between.timing), by_shared.cycles(between.timing));
    let (taken, other) = if a <= b { (by_shuffles, by_shared) } else { (by_shared, by_shuffles) };
    let why = Lost::Slower { cycles: a.max(b), against: a.min(b) };
    Ok((taken, vec![NotTaken { instruction: other.name(), why }]))
}

/// The pairs of bits to pack words by: as many as a word has room for, those that are packed already first.
fn packable(reorder: &Reorder, bits: u32) -> Vec<(u32, u32)> {
    let room = tilewright_machine::per_register(bits).trailing_zeros() as usize;
    let mut pairs = reorder.packable.clone();
    pairs.sort_by_key(|(j, i)| (i.max(j) >= &(room as u32), j != i, *j));
    pairs.truncate(room);
    pairs.sort_unstable();
    pairs
}

/// The trip through shared memory.
pub fn trip(from: &Bits, to: &Bits, bits: u32, arch: Arch) -> Result<Trip, Reject> {
    let (memory, store, load) = optimal_swizzle(from.linear(), to.linear(), bits)?;
    let bytes_of = |vector: usize| (bits << vector) / 8;
    let store_row = per_thread(Memory::Register, Memory::Shared, bytes_of(store.vector.len()), arch)?;
    let load_row = per_thread(Memory::Shared, Memory::Register, bytes_of(load.vector.len()), arch)?;
    let elements = (1u64 << memory.in_bits()) * from.slices() as u64;
    let bytes = u32::try_from(elements * u64::from(bits) / 8).map_err(|_| Reject::TooLarge)?;
    Ok(Trip {
        memory,
        store: Side { bits: from.clone(), access: store, row: store_row },
        load: Side { bits: to.clone(), access: load, row: load_row },
        bytes,
    })
}
