//! Tiles that a counter or the launch deals out: the thread that takes them, and how it hands their numbers to all others.
//!
//! A number is a word of shared memory. Where all threads of the block do the same, two words take turns, and the block's barrier lies between
//! writing and reading one. Roles and the blocks of a cluster get it by a ring of words with two mbarriers each, as pipelines have: *full* when
//! the one thread has written it, *empty* when every warp that walks the tiles has read it.

use std::collections::BTreeMap;

use tilewright_tile::Dealer;
use tilewright_tile::core::{Program, StmtKind};

use super::part::Part;
use super::role::RolePlan;

/// Words of the ring: so many tiles the thread that takes them may be ahead, but for one.
const STAGES: u32 = 4;

/// The memory of the numbers.
#[derive(Clone, Copy, Debug)]
pub struct TileSlot {
    /// The offset of the words.
    pub words: u32,
    /// The offset of the barriers, 8 bytes a word for full ones and then as many for empty ones; `None`: the block's barrier is enough.
    pub barriers: Option<u32>,
    /// Number of words.
    pub stages: u32,
    /// The memory of the launch's answers, where it deals the tiles out.
    pub answer: Option<AnswerSlot>,
}

/// The memory of the launch's answers to requests for tiles of clusters that have not begun: one is asked for at a time.
#[derive(Clone, Copy, Debug)]
pub struct AnswerSlot {
    /// The offset of an answer.
    pub place: u32,
    /// The offset of the mbarrier that counts its bytes.
    pub barrier: u32,
}

/// The plan of tiles that are dealt out.
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

/// The queues of a program, by what deals their tiles out.
pub type TileQueues = BTreeMap<Dealer, TileQueue>;

/// Sources of the tiles of a part's loops.
fn dealers(part: &Part<'_>) -> Vec<Dealer> {
    let mut found = Vec::new();
    part.verified.visit(&mut |stmt, _| {
        if let StmtKind::Tiles { dynamic: Some(dealer), .. } = &stmt.kind {
            found.push(*dealer);
        }
    });
    found
}

/// Sources of the tiles of a program, and the number of words of each with what its barriers take; 0 for none.
pub(super) fn wanted(whole: &Program, parts: &[Part<'_>]) -> BTreeMap<Dealer, (u32, u32)> {
    let meets = parts.iter().any(|part| part.role.is_some()) || whole.cluster() > 1;
    let of = if meets { (STAGES, 16 * STAGES) } else { (2, 0) };
    parts.iter().flat_map(dealers).map(|dealer| (dealer, of)).collect()
}

/// Plans the queues.
pub(super) fn plan(
    whole: &Program,
    parts: &[Part<'_>],
    slots: &BTreeMap<Dealer, TileSlot>,
    roles: &[RolePlan],
) -> TileQueues {
    let queue = |(dealer, slot): (&Dealer, &TileSlot)| {
        let walkers: Vec<usize> = (0..parts.len()).filter(|i| dealers(&parts[*i]).contains(dealer)).collect();
        // A role that is one thread runs ahead: it issues copies.
        let taker = walkers.iter().find(|i| roles[**i].single_thread).or(walkers.first()).copied()?;
        let warps = |i: &usize| if roles[*i].single_thread { 1 } else { parts[*i].verified.threads() / 32 };
        let blocks = whole.cluster();
        // Of a role that multiplies for pairs every second block has nothing to do.
        let of_cluster = |i: &usize| if roles[*i].pair { blocks / 2 } else { blocks };
        let readers = walkers.iter().map(|i| of_cluster(i) * warps(i)).sum::<u32>();
        Some((*dealer, TileQueue { slot: *slot, taker, readers, blocks }))
    };
    slots.iter().filter_map(queue).collect()
}
