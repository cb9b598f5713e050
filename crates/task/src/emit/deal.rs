//! Iterations of two loops by turns: what is late leaves chunk by chunk, each behind one of the first iterations of a loop of the next tile. So a tile's
//! result leaves while the products of the next one run, and there is always one in flight.

use tilewright_tile::{self as tile, Expr, IntOp, Origin, Stmt, StmtKind};

use super::{Emit, Res, refused};
use crate::graph::Item;
use crate::instantiate::LoopId;
use crate::piece::Affine;

impl Emit<'_> {
    /// The items of an iteration without those that are dealt to another loop of it, which are kept for that.
    pub(super) fn without_dealt(&mut self, items: Vec<Item>, head: Option<LoopId>) -> Res<Vec<Item>> {
        if self.late.is_empty() {
            return Ok(items);
        }
        let place = |items: &[Item], id: LoopId| {
            items.iter().position(|item| matches!(item, Item::Loop(of, _) if *of == id))
        };
        let mut items = items;
        for (over, chunks) in &self.graph.dealt {
            let (Some(at), Some(_)) = (place(&items, *chunks), place(&items, *over)) else { continue };
            let row = self.graph.tree.loop_(*over);
            let stage = self.spans(&items, head).into_iter().find(|span| span.first <= at && span.last >= at);
            let late = self.graph.nodes.iter().any(|node| node.late_in(*over) != 0);
            if stage.is_some() || late || row.counters.len() != 1 || self.order.ahead.contains_key(over) {
                let message = "a launch is late over a loop whose copies run ahead, which has something late itself, or which stands in the stage of a ring";
                return Err(refused(row.span, message).help("name no loop in `late`"));
            }
            if let Item::Loop(_, body) = items.remove(at) {
                self.dealt.insert(*over, (*chunks, body));
            }
        }
        Ok(items)
    }

    /// The statements of a loop with, behind each of its first iterations, one of another loop of the iteration before. Where it has fewer than
    /// these, the other one stands in front.
    pub(super) fn by_turns(
        &mut self,
        (id, items): (LoopId, &[Item]),
        (chunks, late): (LoopId, &[Item]),
    ) -> Res<Vec<Stmt>> {
        let (row, chunk) = (self.graph.tree.loop_(id).clone(), self.graph.tree.loop_(chunks).clone());
        let (var, (lo, hi)) = (row.counters[0], row.ranges[0].clone());
        let (late_var, (late_lo, late_hi)) = (chunk.counters[0], chunk.ranges[0].clone());
        let count = late_hi.plus(&late_lo, -1);
        let (first, last) = (self.expr(&lo, row.span)?, self.expr(&hi, row.span)?);
        let turns = self.expr(&count, chunk.span)?;
        let outer = self.bound.clone();
        let waits = self.order.loops.get(&chunks).cloned().unwrap_or_default();
        let behind = self.order.behind.contains(&chunks);
        // By turns.
        let mut out = self.waits(&waits);
        let name = self.vars.row(late_var).name.clone().unwrap_or_default();
        let turn = self.symbol(&name, tile::SymbolKind::Unrolled, chunk.span);
        let at = |from: Expr| Expr::binary(IntOp::Add, from, Expr::Symbol(turn));
        self.bound.insert(var, at(first.clone()));
        let mut body = self.body(items, Some(id))?;
        self.forget(id);
        self.bound.clone_from(&outer);
        self.bound.extend(self.late.clone());
        let from = self.expr(&late_lo, chunk.span)?;
        self.bound.insert(late_var, at(from));
        body.extend(self.body(late, Some(chunks))?);
        self.forget(chunks);
        self.bound.clone_from(&outer);
        let kind =
            StmtKind::For { counter: turn, lo: Expr::Int(0), hi: turns.clone(), condition: None, body };
        out.push(self.stmt(kind, row.span));
        if behind {
            out.push(self.stmt(StmtKind::Wait(Expr::Int(0)), Origin::Unknown));
        }
        // The rest of the loop.
        let name = self.vars.row(var).name.clone().unwrap_or_default();
        let counter = self.symbol(&name, tile::SymbolKind::Counter, row.span);
        self.bound.insert(var, Expr::Symbol(counter));
        let body = self.body(items, Some(id))?;
        self.forget(id);
        self.bound.clone_from(&outer);
        let lo_rest = Expr::binary(IntOp::Add, first.clone(), turns.clone());
        let kind = StmtKind::For { counter, lo: lo_rest, hi: last.clone(), condition: None, body };
        out.push(self.stmt(kind, row.span));
        let enough: Affine = hi.plus(&lo, -1).plus(&count, -1);
        if self.graph.tree.at_least(&enough, 0) {
            return Ok(out);
        }
        let condition = Expr::binary(IntOp::Le, Expr::binary(IntOp::Add, first, turns), last);
        self.bound.extend(self.late.clone());
        let mut apart = self.item(&Item::Loop(chunks, late.to_vec()))?;
        self.bound = outer;
        self.forget(chunks);
        apart.extend(self.repeated(id, items)?);
        self.forget(id);
        let kind = StmtKind::If { condition: condition.clone(), otherwise: false, body: out };
        let both = self.stmt(kind, row.span);
        let kind = StmtKind::If { condition: condition.negated(), otherwise: true, body: apart };
        Ok(vec![both, self.stmt(kind, row.span)])
    }
}
