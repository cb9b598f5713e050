//! Barriers of single warpgroups: which elements the warpgroups of a part touch, and whether a `syncthreads(warpgroup)` orders all that
//! stands on its two sides.
//!
//! Synthesis chooses which thread touches which element. If two accesses to one element, of which one writes, stand before and
//! behind such a barrier, and are or may be of different warpgroups, all threads of the part meet there.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Memory, WARPGROUP};
use tilewright_tile::core::{StmtKind, SyncScope};
use tilewright_tile::{StmtId, TensorId};

use super::part::Part;
use super::proxy::{Accesses, Kind, Node, Place, Touch, reaches};
use crate::explain::SyncNote;
use crate::plan::{CopyPlan, StmtPlan};
use crate::tv::TvLayout;

/// The warpgroups that touch each coordinate of a tile, a bit each.
type Holders = Vec<u32>;

/// The statements of a part at which each warpgroup meets by itself, and notes of it for a report.
pub fn meet_apart(
    part: &Part<'_>,
    accesses: &Accesses<'_>,
    index: usize,
) -> (BTreeSet<StmtId>, Vec<SyncNote>) {
    let (mut apart, mut notes) = (BTreeSet::new(), Vec::new());
    let nodes = accesses.nodes(index);
    for (at, node) in nodes.iter().enumerate() {
        if node.site.stmt.kind != StmtKind::Sync(SyncScope::Warpgroup) {
            continue;
        }
        let crossing = crossing(part, nodes, at);
        let (what, why) = match crossing {
            None => {
                apart.insert(node.site.stmt.id);
                let why = "no two warpgroups touch an element before and behind it, one to write it";
                ("each warpgroup waits for itself".to_string(), why.to_string())
            }
            Some((first, second)) => {
                let text = |at| accesses.text(index, at);
                let why = format!(
                    "an element that `{}` touches in one warpgroup `{}` may touch in another",
                    text(first),
                    text(second)
                );
                ("all warpgroups wait for each other".to_string(), why)
            }
        };
        notes.push(accesses.note(index, at, what, why));
    }
    (apart, notes)
}

/// Two statements before and behind a barrier that conflict, and of which it is not known that the same warpgroups do.
fn crossing(part: &Part<'_>, nodes: &[Node<'_>], barrier: usize) -> Option<(usize, usize)> {
    let touches = |at: usize| nodes[at].touches.iter().map(move |touch| (at, touch));
    let before = (0..nodes.len()).filter(|at| reaches(nodes, *at, barrier)).flat_map(touches);
    for (first, x) in before {
        let behind = (0..nodes.len()).filter(|at| reaches(nodes, barrier, *at)).flat_map(touches);
        for (second, y) in behind {
            if x.place.overlaps(y.place)
                && x.kind.conflicts(y.kind)
                && !alike(part, (&nodes[first], x), (&nodes[second], y))
            {
                return Some((first, second));
            }
        }
    }
    None
}

/// True if each element that two accesses touch is touched by one warpgroup alone.
fn alike(part: &Part<'_>, (first, x): (&Node<'_>, &Touch<'_>), (second, y): (&Node<'_>, &Touch<'_>)) -> bool {
    let (a, b) = (x.reference, y.reference);
    // Tiles of one tensor with the same modes kept: the coordinates of an element are the same in both.
    let kept = |r: &tilewright_tile::core::TensorRef| {
        let rank = part.verified.shape(r.tensor).len();
        (0..rank).filter(|mode| r.index.get(*mode).is_none_or(Option::is_none)).collect::<Vec<_>>()
    };
    let shared = matches!(x.place, Place::Shared(..));
    if !shared || a.tensor != b.tensor || a.transposed != b.transposed || kept(a) != kept(b) {
        return false;
    }
    if a.indexed.is_some() || b.indexed.is_some() {
        return false;
    }
    let (Some(a), Some(b)) = (holders(part, first, x), holders(part, second, y)) else { return false };
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| *a == 0 || *b == 0 || (a | b).count_ones() == 1)
}

/// The warpgroups that touch each coordinate of an access's tile; `None` where that is not known.
fn holders(part: &Part<'_>, node: &Node<'_>, touch: &Touch<'_>) -> Option<Holders> {
    let shape = part.verified.tile(touch.reference).shape;
    let size = usize::try_from(shape.iter().product::<i64>()).ok()?;
    match (&node.site.stmt.kind, node.site.plan) {
        (StmtKind::Copy { src, dst, .. }, StmtPlan::Copy(CopyPlan::Direct { .. })) => {
            let register = [src, dst].into_iter().find(|r| is_register(part, r.tensor))?;
            let mut found = of_layout(part, part.synthesis.register(register.tensor)?, size)?;
            if touch.kind == Kind::Write {
                // Of several threads that hold an element the first stores it.
                found.iter_mut().for_each(|groups| *groups &= groups.wrapping_neg());
            }
            Some(found)
        }
        (StmtKind::GemmAsync { c, a, .. }, StmtPlan::Wgmma(_)) => {
            let sums = part.verified.shape(*c);
            let rows = usize::try_from(*sums.first()?).ok()?;
            let held = of_layout(
                part,
                part.synthesis.register(*c)?,
                usize::try_from(sums.iter().product::<i64>()).ok()?,
            )?;
            // A warpgroup reads the rows of `a`, and those of `b`, that its sums need.
            let left = std::ptr::eq(a, touch.reference);
            let mut of_row: BTreeMap<usize, u32> = BTreeMap::new();
            for (at, groups) in held.iter().enumerate() {
                *of_row.entry(if left { at % rows } else { at / rows }).or_default() |= groups;
            }
            let extent = usize::try_from(*shape.first()?).ok()?;
            Some((0..size).map(|at| of_row.get(&(at % extent)).copied().unwrap_or(0)).collect())
        }
        _ => None,
    }
}

fn is_register(part: &Part<'_>, tensor: TensorId) -> bool {
    part.verified.tensor(tensor).memory() == Memory::Register
}

/// The warpgroups that hold each coordinate of a register tensor.
fn of_layout(part: &Part<'_>, tv: &TvLayout, size: usize) -> Option<Holders> {
    let mut found = vec![0; size];
    for thread in 0..part.verified.threads() {
        for value in 0..tv.count() {
            let at = usize::try_from(tv.at(i64::from(thread), value as i64)).ok()?;
            *found.get_mut(at)? |= 1u32.checked_shl(thread / WARPGROUP)?;
        }
    }
    Some(found)
}
