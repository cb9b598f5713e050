//! The start of a block: one thread makes the barriers, while the one that loads computes the tile with which it begins. So the divisions that a [`Walk`] takes
//! are no part of the way to the first copy (they were 600 of its 1200 cycles on an H100).

use std::collections::BTreeMap;

use tilewright_machine::{MbarrierOp, ProxyFence, SyncOp, WARP};
use tilewright_simt::{Address, Build, Builder, Operand, Reg, Special};
use tilewright_synth::block::{BlockPlan, Part};
use tilewright_synth::{Divisibility, Multiples};
use tilewright_tile::core::{Program, Stmt, StmtKind, TileOrder};
use tilewright_tile::{Expr, StmtId, SymbolId};

use crate::async_state::Warp;
use crate::scalar::int;
use crate::tensor_memory;
use crate::walk::{FirstTile, Walk};

/// State that the start of a block leaves to its parts.
#[derive(Default)]
pub struct Start {
    /// The thread's place, if a warp was elected.
    pub warp: Option<Warp>,
    /// The tile with which the thread that loads begins.
    pub first_tile: Option<FirstTile>,
}

impl Start {
    /// Makes the barriers of pipelines and sums, and has every thread wait until they are there. `symbols` are the values of sizes.
    pub fn emit(
        b: &mut Builder,
        (whole, parts): (&Program, &[Part<'_>]),
        plan: &BlockPlan,
        multiples: &Multiples,
        symbols: &BTreeMap<SymbolId, Operand>,
    ) -> Start {
        if plan.pipelines.is_empty() && !has_barriers(plan) {
            return Start::default();
        }
        b.set_origin("the barriers of pipelines");
        let warp = Warp::elect(b);
        let base = Operand::Value(b.special(Special::SharedBase));
        // Who stores sums of tensor memory has as many of them in registers as there are: what is computed here would be kept there too.
        let registers = plan.memory.tensor_memory.is_none();
        let first = first_loop(parts, plan, symbols).filter(|_| registers);
        let begun = first.map(|(part, statement, extents, order)| {
            let array = b.add_array("first.tile", 2);
            let tile = [Reg { array, index: 0 }, Reg { array, index: 1 }];
            let divisibility = Divisibility::new(parts[part].verified, multiples);
            let walk = Walk::new(b, whole, extents, &divisibility, symbols);
            (FirstTile { part, statement, tile }, walk, order)
        });
        // Barriers are made by the next warp of the same role, which has nothing else to do.
        let mut maker = 0;
        if let Some((known, walk, order)) = &begun {
            let first = plan.roles[known.part].first_warp;
            let threads = parts[known.part].role.map_or(0, |role| role.threads);
            maker = if threads > WARP { first + 1 } else { first };
            if let Some(loader) = warp.leads(b, first) {
                b.only_where(loader, |b| known.compute(b, (walk, order), walk.first));
            }
        }
        if let Some(maker) = warp.leads(b, maker) {
            b.only_where(maker, |b| make_barriers(b, plan, base));
        }
        meet(b, whole, plan);
        Start { warp: Some(warp), first_tile: begun.map(|(known, ..)| known) }
    }
}

/// The first loop over tiles, not dealt out and of sizes alone, of a role that one thread does: its part, its statement, the extents, and the order.
type FirstLoop<'a> = (usize, StmtId, (&'a Expr, &'a Expr), &'a TileOrder);

fn first_loop<'a>(
    parts: &'a [Part<'_>],
    plan: &BlockPlan,
    symbols: &BTreeMap<SymbolId, Operand>,
) -> Option<FirstLoop<'a>> {
    let alone =
        parts.iter().enumerate().zip(&plan.roles).filter(|(_, role)| role.single_thread && !role.pair);
    let loops = alone.flat_map(|((part, of), _)| of.verified.body.iter().map(move |stmt| (part, stmt)));
    loops.into_iter().find_map(|(part, stmt): (usize, &Stmt)| match &stmt.kind {
        StmtKind::Tiles { rows, cols, order, dynamic: None, .. }
            if !matches!(order, TileOrder::Listed { .. })
                && [rows, cols].iter().all(|extent| is_known(extent, symbols)) =>
        {
            Some((part, stmt.id, (rows, cols), order))
        }
        _ => None,
    })
}

/// True if an expression is over sizes, scalar parameters and the block's index alone.
fn is_known(e: &Expr, symbols: &BTreeMap<SymbolId, Operand>) -> bool {
    match e {
        Expr::Int(_) | Expr::Block(_) | Expr::Scalar(_) => true,
        Expr::Symbol(id) => symbols.contains_key(id),
        Expr::Binary(_, x, y) => is_known(x, symbols) && is_known(y, symbols),
        Expr::Element(..) => false,
    }
}

/// True if the block has barriers beside those of pipelines.
fn has_barriers(plan: &BlockPlan) -> bool {
    plan.roles.iter().any(|role| role.cluster_reduce.is_some())
        || plan.tiles.values().any(|queue| queue.slot.barriers.is_some() || queue.slot.answer.is_some())
}

/// Initialises the barriers of pipelines, of numbers of tiles, and of reductions over the cluster.
fn make_barriers(b: &mut Builder, plan: &BlockPlan, base: Operand) {
    let reductions = plan.roles.iter().filter_map(|role| role.cluster_reduce);
    let queues = plan.tiles.values().filter_map(|queue| Some((queue, queue.slot.barriers?)));
    let answers = plan.tiles.values().filter_map(|queue| queue.slot.answer);
    for pipeline in plan.pipelines.values() {
        let empty = pipeline.barriers + 8 * pipeline.stages;
        for stage in 0..pipeline.stages {
            for (at, count) in [(pipeline.barriers, pipeline.full_arrivals), (empty, pipeline.empty_arrivals)]
            {
                let address = Address { base, offset: (at + 8 * stage) as i32 };
                b.mbarrier(MbarrierOp::Init, address, int(i64::from(count)));
            }
        }
    }
    for (queue, barriers) in queues {
        for stage in 0..queue.slot.stages {
            for (at, count) in [(barriers, 1), (barriers + 8 * queue.slot.stages, queue.readers)] {
                let address = Address { base, offset: (at + 8 * stage) as i32 };
                b.mbarrier(MbarrierOp::Init, address, int(i64::from(count)));
            }
        }
    }
    for answer in answers {
        let address = Address { base, offset: answer.barrier as i32 };
        b.mbarrier(MbarrierOp::Init, address, int(1));
    }
    for reduce in reductions {
        for at in [reduce.slot.barriers, reduce.slot.barriers + 8] {
            let address = Address { base, offset: at as i32 };
            b.mbarrier(MbarrierOp::Init, address, int(i64::from(reduce.arrivals)));
        }
    }
    b.sync(SyncOp::FenceMbarrierInit);
    b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
}

/// Has the threads of the block, or of the cluster, wait until the barriers are there, and allocates tensor memory.
fn meet(b: &mut Builder, whole: &Program, plan: &BlockPlan) {
    let tensor_memory = plan.memory.tensor_memory.as_ref();
    if plan.pairs() {
        // Both blocks allocate together, so that the other one has to have begun; and one reaches what the other has.
        b.set_pairs();
        b.sync(SyncOp::ClusterStart);
        if let Some(map) = tensor_memory {
            tensor_memory::allocate(b, whole, map);
        }
        b.sync(SyncOp::ClusterBarrier);
        return;
    }
    if let Some(map) = tensor_memory {
        tensor_memory::allocate(b, whole, map);
    }
    if plan.meets_cluster() {
        b.sync(SyncOp::ClusterStart);
    }
    // The start of a cluster orders the barriers alone, and not the word that has the address of tensor memory.
    if !plan.meets_cluster() || tensor_memory.is_some() {
        b.sync(SyncOp::Barrier);
    }
}
