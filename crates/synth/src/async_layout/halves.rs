//! Tiles of which the two blocks of a pair have a half each, at the same places: the layout of such a tile maps an element to its place in the block that has it, so that
//! the mode that is halved ends with two steps of stride 0.

use tilewright_layout::{Layout, SwizzledLayout, compose};
use tilewright_machine::Memory;
use tilewright_tile::core::{Program, Stmt, StmtKind, TensorKind};
use tilewright_tile::{Multicast, PipelineId, Side, TensorId};

/// True if a copy has the word `pair`.
pub fn asks_for_pairs(v: &Program) -> bool {
    let mut asks = false;
    v.visit(&mut |stmt, _| {
        asks |=
            matches!(&stmt.kind, StmtKind::CopyAsync { how, .. } if how.multicast.is_some_and(Multicast::halves));
    });
    asks
}

/// A tensor that is copied with `pair` and pinned to a layout with halves, if there is one.
pub fn pinned_to_halves(v: &Program) -> Option<TensorId> {
    let mut found = None;
    v.visit(&mut |stmt, _| {
        if let StmtKind::CopyAsync { dst, how, .. } = &stmt.kind
            && how.multicast.is_some_and(Multicast::halves)
            && let TensorKind::Shared { pinned: Some(layout), .. } = &v.tensor(dst.tensor).kind
            && second_half(&layout.layout).is_some()
        {
            found.get_or_insert(dst.tensor);
        }
    });
    found
}

/// True if tensor copies bring all halves: other copies know of none.
pub fn tensor_copies_bring_halves(v: &Program) -> bool {
    let mut all = true;
    v.visit(&mut |stmt, _| {
        if let StmtKind::CopyAsync { how, .. } = &stmt.kind {
            all &= !how.multicast.is_some_and(Multicast::halves) || how.tensor;
        }
    });
    all
}

/// True if a product adds to sums in tensor memory.
fn is_of_sums(v: &Program, kind: &StmtKind) -> bool {
    matches!(kind, StmtKind::GemmAsync { c, .. } if v.tensor(*c).memory() == Memory::Tensor)
}

/// The means by which a stage is filled.
struct Fill {
    pipeline: PipelineId,
    /// Products with their sums in it do.
    sums: bool,
    /// All of it is in shared memory, so that its barrier can be another block's: tensor copies and threads fill it.
    told: bool,
}

impl Fill {
    fn of(v: &Program, pipeline: PipelineId, body: &[Stmt]) -> Self {
        let tensors = &v.pipeline(pipeline).tensors;
        let told = tensors.iter().all(|id| v.tensor(*id).memory() == Memory::Shared);
        let mut sums = false;
        visit(body, &mut |kind| {
            if let StmtKind::GemmAsync { c, .. } = kind {
                sums |= tensors.contains(c);
            }
        });
        Fill { pipeline, sums, told }
    }
}

/// Calls `f` for each statement of a body and of the bodies within.
fn visit(body: &[Stmt], f: &mut impl FnMut(&StmtKind)) {
    for stmt in body {
        f(&stmt.kind);
        visit(stmt.kind.body(), f);
    }
}

/// True if roles that multiply into tensor memory can do so in the even block of a pair alone: they do nothing that a block has for itself, each stage that they fill is
/// of sums, and each that they read is filled by products, which know of both blocks, or by tensor copies and threads of both, which tell the even one.
pub fn even_block_suffices(v: &Program) -> bool {
    let mut fills = Vec::new();
    v.visit(&mut |stmt, _| {
        if let StmtKind::Stage { pipeline, side: Side::Produce, body } = &stmt.kind {
            fills.push(Fill::of(v, *pipeline, body));
        }
    });
    let mut suffices = true;
    for role in v.roles() {
        let mut multiplies = false;
        visit(&role.body, &mut |kind| multiplies |= is_of_sums(v, kind));
        if !multiplies {
            continue;
        }
        visit(&role.body, &mut |kind| {
            let of = |pipeline: &PipelineId| {
                fills.iter().filter(|fill| fill.pipeline == *pipeline).collect::<Vec<_>>()
            };
            suffices &= match kind {
                StmtKind::Stage { pipeline, side: Side::Produce, .. } => {
                    of(pipeline).iter().all(|fill| fill.sums)
                }
                StmtKind::Stage { pipeline, side: Side::Consume, .. } => {
                    of(pipeline).iter().all(|fill| fill.sums || fill.told)
                }
                StmtKind::Define(_)
                | StmtKind::Pipeline(_)
                | StmtKind::Fill { .. }
                | StmtKind::For { .. }
                | StmtKind::If { .. }
                | StmtKind::Break { .. }
                | StmtKind::Tiles { .. }
                | StmtKind::Drain { .. }
                | StmtKind::Assert { .. }
                | StmtKind::WaitDependencies
                | StmtKind::LaunchDependents => true,
                kind => is_of_sums(v, kind),
            };
        });
    }
    suffices
}

/// The layout of a tile whose halves along a mode both lie as `half` says.
pub fn doubled(half: &SwizzledLayout, mode: usize) -> Option<SwizzledLayout> {
    let mut modes = half.layout.modes();
    let twice = Layout::from_leaves(&[(2, 0)]).ok()?;
    *modes.get_mut(mode)? = Layout::concat(&[modes.get(mode)?.clone(), twice]).ok()?;
    Some(SwizzledLayout { layout: Layout::concat(&modes).ok()?, swizzle: half.swizzle })
}

/// The coordinate of the second half's first element, if a tile has halves.
pub fn second_half(layout: &Layout) -> Option<i64> {
    let mut before = 1;
    for (extent, stride) in layout.leaves() {
        if (extent, stride) == (2, 0) {
            return Some(before);
        }
        before *= extent;
    }
    None
}

/// The layout of the first half of a tile of so many rows and columns, if the halves are of its rows.
pub fn half_of_rows(layout: &Layout, rows: i64, columns: i64) -> Option<Layout> {
    second_half(layout).filter(|at| 2 * at == rows)?;
    let half = Layout::from_leaves(&[(rows / 2, 1), (columns, rows)]).ok()?;
    compose(layout, &half).ok()
}

#[cfg(test)]
mod tests {
    use tilewright_layout::right_inverse;
    use tilewright_machine::SwizzleMode;

    use super::*;
    use crate::async_layout::descriptor::swizzle_atom_layout;

    #[test]
    fn both_halves_lie_at_the_same_places() {
        for (shape, along, mode) in [([64, 64], 1, 0), ([64, 128], 0, 1), ([8, 64], 1, 0)] {
            let half = swizzle_atom_layout(&shape, along, SwizzleMode::B128, 16);
            let Some(half) = half else { panic!("{shape:?}") };
            let whole = doubled(&half, mode).unwrap();
            assert_eq!((whole.layout.size(), whole.cosize()), (2 * half.layout.size(), half.cosize()));
            assert_eq!(right_inverse(&whole.layout).size(), half.layout.size());
            let second = second_half(&whole.layout).unwrap();
            assert_eq!(second, if mode == 0 { shape[0] } else { shape[0] * shape[1] });
            assert_eq!(whole.layout.eval(second), 0);
            assert_eq!(second_half(&half.layout), None);
            if mode == 0 {
                let rows = half_of_rows(&whole.layout, 2 * shape[0], shape[1]).unwrap();
                assert!((0..rows.size()).all(|at| rows.eval(at) == half.layout.eval(at)));
            } else {
                assert_eq!(half_of_rows(&whole.layout, shape[0], 2 * shape[1]), None);
            }
        }
    }
}
