//! Loops whose copies run ahead in one role: while an iteration is computed, the tiles of the next ones are on their way (`cp.async`, PTX ISA
//! 9.7.9.25). Of a ring of `D` stages, `D - 1` iterations are copied before the loop; each iteration waits for its own tiles, and copies those of
//! `D - 1` iterations later.

use tilewright_tile::{self as tile, Expr, IntOp, Origin, Stmt, StmtKind, SyncScope};

use super::ahead::Ahead;
use super::{Emit, Res};
use crate::graph::{Item, NodeId};
use crate::instantiate::LoopId;
use crate::program::LoopKind;

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
        // A loop that is known to be shorter has fewer tiles; groups are counted, so that empty ones stand for the others.
        let (start, end) = &row.ranges[0];
        let most = ahead.depth - 1;
        let brought = end.plus(start, -1).value().map_or(most, |count| count.clamp(0, most));
        let (from, to) = (Expr::Int(0), Expr::Int(brought));
        out.push(
            self.stmt(StmtKind::For { counter: first, lo: from, hi: to, condition: None, body }, row.span),
        );
        out.extend((brought..most).map(|_| self.stmt(StmtKind::Commit, Origin::Unknown)));
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
