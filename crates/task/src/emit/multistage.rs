//! Loops whose copies run ahead in one role: while an iteration is computed, the tiles of the next ones are on their way (`cp.async`, PTX ISA
//! 9.7.9.25). Of a ring of `D` stages, `D - 1` iterations are copied before the loop; each iteration waits for its own tiles, and copies those of
//! `D - 1` iterations later.

use std::collections::BTreeMap;

use tilewright_tile::{self as tile, Expr, IntOp, Origin, Stmt, StmtKind, SyncScope};

use super::{Emit, Res};
use crate::graph::{Graph, Group, Item, NodeId, Role, Why};
use crate::instantiate::LoopId;
use crate::program::LoopKind;

/// The copies of a loop that run ahead.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    pub(super) copies: Vec<NodeId>,
    /// The stages of the ring with the fewest.
    pub(super) depth: i64,
}

/// The loops of a role whose copies run ahead.
pub(super) fn ahead(
    graph: &Graph,
    groups: &BTreeMap<NodeId, Group>,
    role: Role,
    items: &[Item],
) -> BTreeMap<LoopId, Ahead> {
    let mut found = BTreeMap::new();
    // A role that only copies has pipelines.
    if role == Role::Compute {
        within(graph, groups, items, &mut found);
    }
    found
}

fn within(
    graph: &Graph,
    groups: &BTreeMap<NodeId, Group>,
    items: &[Item],
    found: &mut BTreeMap<LoopId, Ahead>,
) {
    for item in items {
        let Item::Loop(id, body) = item else { continue };
        within(graph, groups, body, found);
        if let Some(ahead) = of_loop(graph, groups, *id, body) {
            found.insert(*id, ahead);
        }
    }
}

fn of_loop(graph: &Graph, groups: &BTreeMap<NodeId, Group>, id: LoopId, body: &[Item]) -> Option<Ahead> {
    let row = graph.tree.loop_(id);
    if row.kind != LoopKind::Srange || row.counters.len() != 1 {
        return None;
    }
    let nodes = body.iter().filter_map(|item| match item {
        Item::Node(node) => Some(*node),
        Item::Loop(..) => None,
    });
    let copies: Vec<NodeId> = nodes.filter(|node| groups.get(node) == Some(&Group::CopiesIn)).collect();
    let ring = |node: &NodeId| {
        let written = graph.node(*node).accesses.iter().find(|access| access.writes)?.replica?;
        let ring = graph.rings.iter().find(|ring| ring.places.contains(&written))?;
        (ring.from == ring.to && ring.head == Some(id)).then_some(ring.depth)
    };
    let depths: Option<Vec<i64>> = copies.iter().map(ring).collect();
    let depth = depths?.into_iter().min().filter(|depth| *depth > 1)?;
    let inside = |node: NodeId| graph.tree.around(graph.node(node).body).contains(&id);
    let late = graph.nodes.iter().any(|node| node.late_in(id) != 0);
    // What the loop itself makes cannot be copied before.
    let made = graph.edges.iter().any(|edge| {
        copies.contains(&edge.to)
            && edge.why != Why::Reuse
            && inside(edge.from)
            && !copies.contains(&edge.from)
    });
    (!late && !made).then_some(Ahead { copies, depth })
}

impl Emit<'_> {
    /// The statements of a loop whose copies run ahead.
    pub(super) fn multistage(&mut self, id: LoopId, items: &[Item], ahead: &Ahead) -> Res<Vec<Stmt>> {
        let row = self.graph.tree.loop_(id).clone();
        let (var, (lo, hi)) = (row.counters[0], row.ranges[0].clone());
        let (lo, hi) = (self.expr(&lo, row.span)?, self.expr(&hi, row.span)?);
        let outer = self.bound.clone();
        let mut out = Vec::new();
        let around = self.graph.tree.around(row.parent);
        let again = around.iter().any(|head| self.graph.tree.loop_(*head).kind == LoopKind::Srange)
            || !self.tiles_are_blocks(&around);
        if again {
            // All threads have done with the stages of the loop's last run.
            out.push(self.stmt(StmtKind::Sync(SyncScope::All), Origin::Unknown));
        }
        let name = self.vars.row(var).name.clone().unwrap_or_default();
        let first = self.symbol(&format!("{name}_ahead"), tile::SymbolKind::Unrolled, row.span);
        self.bound.insert(var, Expr::binary(IntOp::Add, lo.clone(), Expr::Symbol(first)));
        let body = self.brought(&ahead.copies)?;
        let (from, to) = (Expr::Int(0), Expr::Int(ahead.depth - 1));
        out.push(
            self.stmt(StmtKind::For { counter: first, lo: from, hi: to, condition: None, body }, row.span),
        );
        let counter = self.symbol(&name, tile::SymbolKind::Counter, row.span);
        let current = Expr::Symbol(counter);
        let mut body = vec![self.stmt(StmtKind::Wait(Expr::Int(ahead.depth - 2)), Origin::Unknown)];
        body.push(self.stmt(StmtKind::Sync(SyncScope::All), Origin::Unknown));
        self.bound.insert(var, Expr::binary(IntOp::Add, current.clone(), Expr::Int(ahead.depth - 1)));
        body.extend(self.brought(&ahead.copies)?);
        self.bound.insert(var, current);
        let rest: Vec<Item> = items
            .iter()
            .filter(|item| !matches!(item, Item::Node(node) if ahead.copies.contains(node)))
            .cloned()
            .collect();
        body.extend(self.body(&rest, Some(id))?);
        self.bound = outer;
        out.push(self.stmt(StmtKind::For { counter, lo, hi, condition: None, body }, row.span));
        // The last copies have landed, and nobody reads the tiles any more.
        out.push(self.stmt(StmtKind::Wait(Expr::Int(0)), Origin::Unknown));
        out.push(self.stmt(StmtKind::Sync(SyncScope::All), Origin::Unknown));
        Ok(out)
    }

    /// The copies of an iteration as one group.
    fn brought(&mut self, copies: &[NodeId]) -> Res<Vec<Stmt>> {
        let mut out = Vec::new();
        for copy in copies {
            out.extend(self.copy(*copy)?.into_iter().filter(|stmt| stmt.kind != StmtKind::Commit));
        }
        out.push(self.stmt(StmtKind::Commit, Origin::Unknown));
        Ok(out)
    }

    /// True if each iteration of the loops is a block of its own.
    fn tiles_are_blocks(&self, around: &[LoopId]) -> bool {
        around.iter().all(|head| !crate::passes::retime::persistent(self.mapping, self.graph, *head))
    }
}
