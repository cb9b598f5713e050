//! Tiles that a counter deals out: the thread that takes them, and how it hands their numbers to all others.
//!
//! A number is a word of shared memory. Where all threads of the block do the same, two words take turns, and the block's barrier lies between
//! writing and reading one. Roles and the blocks of a cluster get it by a ring of words with two mbarriers each, as pipelines have: *full* when
//! the one thread has written it, *empty* when every warp that walks the tiles has read it.

use std::collections::BTreeMap;

use tilewright_tile::ParamId;
use tilewright_tile::core::{Program, StmtKind};

use super::part::Part;
use super::role::RolePlan;

/// Words of the ring: so many tiles the thread that takes them may be ahead, but for one.
const STAGES: u32 = 4;

/// The memory of a counter's numbers.
#[derive(Clone, Copy, Debug)]
pub struct TileSlot {
    /// The offset of the words.
    pub words: u32,
    /// The offset of the barriers, 8 bytes a word for full ones and then as many for empty ones; `None`: the block's barrier is enough.
    pub barriers: Option<u32>,
    /// Number of words.
    pub stages: u32,
}

/// The plan of a counter.
#[derive(Clone, Copy, Debug)]
pub struct TileQueue {
    /// The memory.
    pub slot: TileSlot,
    /// The part of which a thread takes the numbers.
    pub taker: usize,
    /// Arrivals that end a phase of an empty barrier: every warp that walks the tiles, in every block of the cluster.
    pub readers: u32,
    /// Blocks of the cluster: the thread is one of the first of them.
    pub blocks: u32,
}

/// The queues of a program, by counter.
pub type TileQueues = BTreeMap<ParamId, TileQueue>;

/// The counters of a part's loops over tiles.
fn counters(part: &Part<'_>) -> Vec<ParamId> {
    let mut found = Vec::new();
    part.verified.visit(&mut |stmt, _| {
        if let StmtKind::Tiles { dynamic: Some(counter), .. } = &stmt.kind {
            found.push(*counter);
        }
    });
    found
}

/// The counters of a program, and the number of words of each with what its barriers take; 0 for none.
pub(super) fn wanted(whole: &Program, parts: &[Part<'_>]) -> BTreeMap<ParamId, (u32, u32)> {
    let meets = parts.iter().any(|part| part.role.is_some()) || whole.cluster() > 1;
    let of = if meets { (STAGES, 16 * STAGES) } else { (2, 0) };
    parts.iter().flat_map(counters).map(|counter| (counter, of)).collect()
}

/// Plans the counters.
pub(super) fn plan(
    whole: &Program,
    parts: &[Part<'_>],
    slots: &BTreeMap<ParamId, TileSlot>,
    roles: &[RolePlan],
) -> TileQueues {
    let queue = |(counter, slot): (&ParamId, &TileSlot)| {
        let walkers: Vec<usize> =
            (0..parts.len()).filter(|i| counters(&parts[*i]).contains(counter)).collect();
        // A role that is one thread runs ahead: it issues copies.
        let taker = walkers.iter().find(|i| roles[**i].single_thread).or(walkers.first()).copied()?;
        let warps = |i: &usize| if roles[*i].single_thread { 1 } else { parts[*i].verified.threads() / 32 };
        let blocks = whole.cluster();
        let readers = blocks * walkers.iter().map(warps).sum::<u32>();
        Some((*counter, TileQueue { slot: *slot, taker, readers, blocks }))
    };
    slots.iter().filter_map(queue).collect()
}
