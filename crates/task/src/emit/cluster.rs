//! Clusters: blocks of neighbouring iterations, and the copies that they share. A copy into a stage of a ring whose piece does not depend on a counter along
//! which blocks of a cluster differ is the same in all of them, so that it is made once for all (`multicast`; PTX ISA 9.7.9.25,
//! `cp.async.bulk.tensor`, `.multicast::cluster`).

use tilewright_tile::{Axis, Expr, IntOp, Multicast, Origin};

use super::{Emit, Res, refused};
use crate::graph::{NodeId, ReplicaId};
use crate::instantiate::LoopId;
use crate::mapping::AttributeKind;
use crate::piece::{Piece, Var};

/// A mode of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Mode {
    /// The counter whose neighbouring values the blocks have, and its place among those of the loop.
    var: Var,
    pub(super) at: usize,
    pub(super) blocks: i64,
    pub(super) span: Origin,
}

impl Emit<'_> {
    /// The modes of the clusters that share the iterations of the loop of blocks.
    pub(super) fn cluster_of(&self, id: LoopId) -> Res<Vec<Mode>> {
        let row = self.graph.tree.loop_(id);
        let call = self.graph.tree.call(row.call);
        let inner = self.program.task(call.task).variant(call.variant).inner();
        let counters = inner.map(|inner| inner.head(row.head).counters.clone()).unwrap_or_default();
        let mut modes: Vec<Mode> = Vec::new();
        for attribute in self.graph.attributes(self.mapping, id) {
            let AttributeKind::Cluster { counter, blocks } = &attribute.kind else { continue };
            // A counter of another kernel's loop is for that.
            let others = inner.into_iter().flat_map(|inner| &inner.loops).flat_map(|head| &head.counters);
            if self.number.is_some()
                && !counters.contains(counter)
                && others.into_iter().any(|of| of == counter)
            {
                continue;
            }
            let blocks = self.integer(blocks, attribute.span)?;
            let at = counters.iter().position(|symbol| symbol == counter);
            let Some((at, var)) = at.and_then(|at| Some((at, *row.counters.get(at)?))) else {
                let message = "a cluster along a counter that is none of the loop of blocks";
                return Err(refused(attribute.span, message)
                    .related(row.span, "the loop of blocks")
                    .help("name one of its counters"));
            };
            modes.push(Mode { var, at, blocks, span: attribute.span });
        }
        modes.retain(|mode| mode.blocks > 1);
        let n = row.counters.len();
        // The counter of `block.x`, along which a grid has its clusters.
        let along_x = n.saturating_sub(2);
        if let Some(mode) = modes.iter().find(|mode| !self.ordered && mode.at != along_x) {
            let message =
                "the blocks of a cluster are neighbours along `x` of the grid, which this counter is not";
            return Err(refused(mode.span, message).help("make the kernel `persistent`"));
        }
        if let [_, _, third, ..] = &modes[..] {
            return Err(refused(third.span, "a cluster has one or two modes").help("leave one out"));
        }
        Ok(modes)
    }

    /// The clusters along each counter of the loop of blocks.
    pub(super) fn clusters(&self, id: LoopId) -> Res<Vec<Expr>> {
        let mut counts = self.counts(id)?;
        for mode in &self.cluster {
            counts[mode.at] = Expr::binary(IntOp::CeilDiv, counts[mode.at].clone(), Expr::Int(mode.blocks));
        }
        Ok(counts)
    }

    /// The index of a block along a counter, of that of its cluster.
    pub(super) fn in_cluster(&self, var: Var, index: Expr) -> Expr {
        let mut below = 1;
        for mode in &self.cluster {
            if mode.var == var {
                let rank = Expr::binary(IntOp::Div, Expr::Block(Axis::X), Expr::Int(below));
                let rank = Expr::binary(IntOp::Rem, rank, Expr::Int(mode.blocks));
                let first = Expr::binary(IntOp::Mul, index, Expr::Int(mode.blocks));
                return Expr::binary(IntOp::Add, first, rank);
            }
            below *= mode.blocks;
        }
        index
    }

    /// The blocks of a cluster that share a copy from global memory into a place.
    pub(super) fn shared_by(&self, id: NodeId, to: ReplicaId, piece: &Piece) -> Option<Multicast> {
        let graph = self.graph;
        let ring = graph.rings.iter().find(|ring| ring.places.contains(&to))?;
        let around = graph.tree.around(graph.node(id).body);
        // Blocks share what all of them copy equally often.
        let alike = |mode: &Mode| {
            let ranges = around.iter().flat_map(|head| &graph.tree.loop_(*head).ranges);
            !piece.depends(&self.vars, mode.var)
                && ranges
                    .into_iter()
                    .all(|(lo, hi)| !self.vars.depends(lo, mode.var) && !self.vars.depends(hi, mode.var))
        };
        let modes: Vec<u32> =
            (0..).zip(&self.cluster).filter(|(_, mode)| alike(mode)).map(|(at, _)| at).collect();
        match modes[..] {
            _ if ring.from == ring.to => None,
            [] => None,
            [at] if self.cluster.len() > 1 => Some(Multicast::Along(at)),
            _ => Some(Multicast::All),
        }
    }
}
