//! The statements of a role: its loops, the stages of rings that it fills and empties, and its nodes in their order.

use tilewright_machine::Memory;
use tilewright_tile::{
    self as tile, Diagnostic, Expr, IntOp, Origin, PipelineId, Side, Stmt, StmtKind, TensorId, TensorKind,
};

use super::header::Blocks;
use super::order::order;
use super::{Emit, Res, refused};
use crate::graph::{Group, Item, NodeId, Op, ReplicaId, Role, Wait};
use crate::instantiate::LoopId;
use crate::piece::{Affine, Var};
use crate::program::LoopKind;

/// Items of a body in which a role holds a stage of a ring.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Span {
    ring: usize,
    side: Side,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Emit<'_> {
    /// The statements of a role.
    pub(super) fn of_role(&mut self, role: Role, blocks: &Blocks<'_>) -> Res<Vec<Stmt>> {
        self.role = role;
        self.names.role();
        self.registers.clear();
        self.moved.clear();
        let sizes = self.bound.clone();
        let items = match blocks {
            Blocks::One(items) | Blocks::Grid(_, items) | Blocks::Tiles(_, items, _) => {
                self.items_of(role, items)
            }
        };
        let around = match blocks {
            Blocks::One(_) => items,
            Blocks::Grid(id, _) | Blocks::Tiles(id, ..) => vec![Item::Loop(*id, items)],
        };
        self.order = order(self.graph, &self.groups, role, &around);
        let mut out = match (blocks, &around[..]) {
            (Blocks::Grid(id, _), [Item::Loop(_, items)]) => {
                let given = Self::block_indices(self.graph.tree.loop_(*id).counters.len());
                let mut out = self.bind_blocks(*id, &given, true)?;
                out.extend(self.body(items, Some(*id))?);
                out
            }
            (Blocks::Tiles(id, _, order), [Item::Loop(_, items)]) => {
                let row = self.graph.tree.loop_(*id);
                let order = self.tile_order(order, row.span)?;
                self.tiles(*id, items, order)?
            }
            (_, items) => self.body(items, None)?,
        };
        // What leaves in bulk has been read before its memory goes.
        let stores = |id: &NodeId| self.groups.get(id) == Some(&Group::CopiesOut);
        if role != Role::Load
            && self.graph.ordered().iter().any(|id| self.graph.node(*id).role == role && stores(id))
        {
            out.push(self.stmt(StmtKind::Wait(Expr::Int(0)), Origin::Unknown));
        }
        self.define(&mut out, None);
        self.bound = sizes;
        Ok(out)
    }

    /// The items that have nodes of the role.
    fn items_of(&self, role: Role, items: &[Item]) -> Vec<Item> {
        let of = |item: &Item| match item {
            Item::Node(id) => (self.graph.node(*id).role == role).then(|| item.clone()),
            Item::Loop(id, items) => {
                let items = self.items_of(role, items);
                (!items.is_empty()).then_some(Item::Loop(*id, items))
            }
        };
        items.iter().filter_map(of).collect()
    }

    /// The loop of a persistent kernel.
    fn tiles(&mut self, id: LoopId, items: &[Item], order: tile::TileOrder) -> Res<Vec<Stmt>> {
        let row = self.graph.tree.loop_(id).clone();
        let (rows, cols) = self.rows_and_columns(id)?;
        let counter = |emit: &mut Self, at: usize, behind: &str| {
            let var = row.counters.get(at).copied();
            let name = var.and_then(|var| emit.vars.row(var).name.clone());
            let name = match (at, row.counters.len()) {
                (0, 3..) => "row".to_string(),
                _ => name.unwrap_or_else(|| "column".to_string()),
            };
            emit.symbol(&format!("{name}{behind}"), tile::SymbolKind::Counter, row.span)
        };
        let columns = row.counters.len().max(2) - 1;
        let [i, j] = [0, columns].map(|at| counter(self, at, ""));
        let nodes = Item::all(items);
        let late = nodes.iter().map(|node| self.graph.node(*node).late_in(id)).max().unwrap_or(0);
        if late > 1 {
            return Err(refused(row.span, "a launch is late by more than one tile").help("have it late once"));
        }
        let previous = (late > 0).then(|| [0, columns].map(|at| counter(self, at, "_before")));
        let mut behind = Vec::new();
        let mut rest = Vec::new();
        if let Some([p, q]) = previous {
            behind = self.bind_blocks(id, &[Expr::Symbol(p), Expr::Symbol(q)], false)?;
            let values = row.counters.iter().filter_map(|var| Some((*var, self.bound.get(var)?.clone())));
            self.late = values.collect();
            rest = self.drained(items, id)?;
        }
        let mut body = self.bind_blocks(id, &[Expr::Symbol(i), Expr::Symbol(j)], true)?;
        body.append(&mut behind);
        body.extend(self.body(items, Some(id))?);
        let kind = StmtKind::Tiles { row: i, col: j, previous, rows, cols, order, dynamic: None, body };
        let mut out = vec![self.stmt(kind, row.span)];
        if let Some(previous) = previous {
            out.push(self.stmt(StmtKind::Drain { previous, body: rest }, row.span));
        }
        self.late.clear();
        Ok(out)
    }

    /// The rest of the last tile: the items that are late.
    fn drained(&mut self, items: &[Item], id: LoopId) -> Res<Vec<Stmt>> {
        let late = |item: &Item| {
            let nodes = Item::all(std::slice::from_ref(item));
            nodes.iter().all(|node| self.graph.node(*node).late_in(id) > 0)
        };
        let items: Vec<Item> = items.iter().filter(|item| late(item)).cloned().collect();
        let mut out = self.range(&items, 0..items.len(), &self.spans(&items, Some(id)))?;
        self.define(&mut out, Some(id));
        self.forget(id);
        Ok(out)
    }

    /// Forgets the register tensors that live in an iteration of a loop: other statements for the same nodes have their own.
    pub(super) fn forget(&mut self, id: LoopId) {
        let inside = |replica: &ReplicaId| self.graph.tree.around(self.life(*replica)).contains(&id);
        let own: Vec<ReplicaId> = self.registers.keys().copied().filter(inside).collect();
        self.registers.retain(|replica, _| !own.contains(replica));
    }

    /// The statements of a loop.
    pub(super) fn repeated(&mut self, id: LoopId, items: &[Item]) -> Res<Vec<Stmt>> {
        if let Some(ahead) = self.order.ahead.get(&id).cloned() {
            return self.multistage(id, items, &ahead);
        }
        let row = self.graph.tree.loop_(id).clone();
        let unroll = self.needs_unrolling(id, items);
        let nodes = Item::all(items);
        let late = nodes.iter().map(|node| self.graph.node(*node).late_in(id)).max().unwrap_or(0);
        if late == 1 && row.counters.len() == 1 {
            return self.peeled(id, items);
        }
        let outer = self.bound.clone();
        let mut heads = Vec::new();
        for (var, (lo, hi)) in row.counters.iter().zip(&row.ranges) {
            let bounds =
                [self.expr(lo, row.span)?, self.expr(&hi.plus(&Affine::constant(late), 1), row.span)?];
            if unroll && bounds.iter().any(|bound| bound.as_int().is_none()) {
                let message = "a loop that is known at run time only picks parts of a tensor in registers";
                return Err(refused(row.span, message)
                    .help("let constants bound the loop, or give the tensor the memory `shared`"));
            }
            let name = self.vars.row(*var).name.clone().unwrap_or_default();
            let kind = if unroll { tile::SymbolKind::Unrolled } else { tile::SymbolKind::Counter };
            let counter = self.symbol(&name, kind, row.span);
            self.bound.insert(*var, Expr::Symbol(counter));
            heads.push((counter, bounds));
        }
        let mut body = self.body(items, Some(id))?;
        self.bound = outer;
        for (counter, [lo, hi]) in heads.into_iter().rev() {
            body = vec![self.stmt(StmtKind::For { counter, lo, hi, condition: None, body }, row.span)];
        }
        Ok(body)
    }

    /// The statements of a loop in which something is late by an iteration: the first one without that, the others with that of the iteration before, and
    /// then what is left.
    fn peeled(&mut self, id: LoopId, items: &[Item]) -> Res<Vec<Stmt>> {
        let row = self.graph.tree.loop_(id).clone();
        let (var, (lo, hi)) = (row.counters[0], row.ranges[0].clone());
        let one = Affine::constant(1);
        let outer = self.bound.clone();
        let (first, last) = (self.expr(&lo, row.span)?, self.expr(&hi.plus(&one, -1), row.span)?);
        let of = |emit: &Self, late: bool| -> Vec<Item> {
            items.iter().filter(|item| (emit.lateness(item, Some(id)) > 0) == late).cloned().collect()
        };
        // Groups are fewer there: nothing is left where something is waited for.
        self.strict = true;
        self.bound.insert(var, first);
        let begun = self.part(&of(self, false), id);
        let begun = begun?;
        self.strict = false;
        let name = self.vars.row(var).name.clone().unwrap_or_default();
        let counter = self.symbol(&name, tile::SymbolKind::Counter, row.span);
        let bounds = [self.expr(&lo.plus(&one, 1), row.span)?, self.expr(&hi, row.span)?];
        self.bound.insert(var, Expr::Symbol(counter));
        self.late =
            [(var, Expr::binary(IntOp::Sub, Expr::Symbol(counter), Expr::Int(1)))].into_iter().collect();
        let body = self.body(items, Some(id))?;
        self.forget(id);
        self.bound.insert(var, last);
        self.strict = true;
        let rest = self.part(&of(self, true), id);
        let rest = rest?;
        self.strict = false;
        self.late.clear();
        self.bound = outer;
        let [lo, hi] = bounds;
        let mut out = begun;
        out.push(self.stmt(StmtKind::For { counter, lo, hi, condition: None, body }, row.span));
        out.extend(rest);
        if self.graph.tree.runs(id) {
            return Ok(out);
        }
        let (lo, hi) = &row.ranges[0];
        let condition = Expr::binary(IntOp::Lt, self.expr(lo, row.span)?, self.expr(hi, row.span)?);
        Ok(vec![self.stmt(StmtKind::If { condition, otherwise: false, body: out }, row.span)])
    }

    /// Some of an iteration's items, outside of the loop: their register tensors are their own.
    fn part(&mut self, items: &[Item], id: LoopId) -> Res<Vec<Stmt>> {
        let items = self.filled_together(items);
        let spans = self.spans(&items, Some(id));
        let mut out = self.range(&items, 0..items.len(), &spans)?;
        self.define(&mut out, Some(id));
        self.forget(id);
        Ok(out)
    }

    /// The iterations by which an item is late in a loop.
    pub(super) fn lateness(&self, item: &Item, head: Option<LoopId>) -> i64 {
        let nodes = Item::all(std::slice::from_ref(item));
        let of = |id: &NodeId| head.map_or(0, |head| self.graph.node(*id).late_in(head));
        nodes.iter().map(of).max().unwrap_or(0)
    }

    /// True if the loop's counter picks parts of register tensors.
    pub(super) fn needs_unrolling(&self, id: LoopId, items: &[Item]) -> bool {
        let nodes = Item::all(items);
        let counters = &self.graph.tree.loop_(id).counters;
        let picks = |var: &Var| {
            nodes.iter().flat_map(|node| &self.graph.node(*node).accesses).any(|access| {
                access.replica.is_some_and(|replica| {
                    let place = self.graph.replica(replica);
                    place.memory == Some(Memory::Register)
                        && !access.piece.same(&place.piece)
                        && access.piece.depends(&self.vars, *var)
                        && !place.piece.depends(&self.vars, *var)
                })
            })
        };
        counters.iter().any(picks)
    }

    /// The statements of an iteration's items.
    pub(super) fn body(&mut self, items: &[Item], head: Option<LoopId>) -> Res<Vec<Stmt>> {
        let items = self.filled_together(items);
        let items = self.without_dealt(items, head)?;
        let spans = self.spans(&items, head);
        let mut out = Vec::new();
        let late: Vec<i64> = items.iter().map(|item| self.lateness(item, head)).collect();
        let most = late.iter().copied().max().unwrap_or(0);
        // The iteration before has its counters, and there always is one.
        let tiles = !self.late.is_empty() && most == 1;
        let mut first = 0;
        while first < items.len() {
            let last = (first..items.len()).take_while(|at| late[*at] == late[first]).last().unwrap_or(first);
            let crosses = spans.iter().find(|span| {
                let (inside, outside) =
                    (span.first <= last && span.last >= first, span.first < first || span.last > last);
                inside && outside
            });
            if let (Some(span), Some(head)) = (crosses.filter(|_| most > 0), head) {
                let place = self.graph.rings[span.ring].places.first();
                let object = place.map(|place| self.graph.replica(*place).object);
                let name = object.map_or(String::new(), |object| self.graph.object(object).name.clone());
                let message = format!("a stage of `{name}` is read by what is late and by what is not");
                return Err(refused(self.graph.tree.loop_(head).span, message)
                    .help("leave `late` out, or have all that reads it late"));
            }
            let range = first..last + 1;
            match head.filter(|_| most > 0) {
                None => out.extend(self.range(&items, range, &spans)?),
                Some(head) => {
                    out.extend(self.shifted(&items, range, &spans, (head, tiles), (late[first], most))?)
                }
            }
            first = last + 1;
        }
        if let Some(head) = head {
            let ends = self.graph.ends.get(&head).cloned().unwrap_or_default();
            let ends: Vec<Wait> = if self.role == Role::Compute { ends } else { Vec::new() };
            let ends = self.waits(&ends);
            within_last_stage(&mut out, ends);
        }
        self.define(&mut out, head);
        Ok(out)
    }

    /// Items of one lateness: their counters are those of an iteration before, and they stand in the iterations that have them.
    fn shifted(
        &mut self,
        items: &[Item],
        range: std::ops::Range<usize>,
        spans: &[Span],
        (head, tiles): (LoopId, bool),
        (late, most): (i64, i64),
    ) -> Res<Vec<Stmt>> {
        let outer = self.bound.clone();
        if tiles {
            if late > 0 {
                self.bound.extend(self.late.clone());
            }
            let out = self.range(items, range, spans);
            self.bound = outer;
            return out;
        }
        let row = self.graph.tree.loop_(head).clone();
        let ([var], [(lo, hi)]) = (&row.counters[..], &row.ranges[..]) else {
            return Err(refused(row.span, "a launch is late in a loop of several counters")
                .help("give the loop one counter"));
        };
        let counter = self.expr(&Affine::var(*var), row.span)?;
        let (lo, hi) = (self.expr(lo, row.span)?, self.expr(hi, row.span)?);
        let shift = |by: Expr, late: i64| Expr::binary(IntOp::Add, by, Expr::Int(late));
        let begun = (late > 0).then(|| Expr::binary(IntOp::Ge, counter.clone(), shift(lo, late)));
        let going = (late < most).then(|| Expr::binary(IntOp::Lt, counter.clone(), shift(hi, late)));
        let both = |a: Expr, b: Expr| Expr::binary(IntOp::And, a, b);
        let condition = begun.into_iter().chain(going).reduce(both).unwrap_or(Expr::Int(1));
        self.bound.insert(*var, Expr::binary(IntOp::Sub, counter, Expr::Int(late)));
        let body = self.range(items, range.clone(), spans);
        self.bound = outer;
        let body = body?;
        // Groups are counted: where some are left out, as many empty ones stand for them.
        let nodes = Item::all(&items[range]);
        let mut missing = Vec::new();
        for node in nodes.iter().filter(|node| self.graph.node(**node).body == Some(head)) {
            match self.groups.get(node) {
                Some(Group::Products) if self.last.get(node) != Some(node) => {}
                Some(Group::Products) => missing.push(self.stmt(StmtKind::CommitGemm, row.span)),
                Some(Group::CopiesIn | Group::CopiesOut) if self.role == Role::Compute => {
                    missing.push(self.stmt(StmtKind::Commit, row.span));
                }
                _ => {}
            }
        }
        let mut out =
            vec![self.stmt(StmtKind::If { condition: condition.clone(), otherwise: false, body }, row.span)];
        if !missing.is_empty() {
            let kind = StmtKind::If { condition: condition.negated(), otherwise: true, body: missing };
            out.push(self.stmt(kind, row.span));
        }
        Ok(out)
    }

    /// The items, with the copies that fill one stage side by side.
    fn filled_together(&self, items: &[Item]) -> Vec<Item> {
        if self.role != Role::Load {
            return items.to_vec();
        }
        let ring_of = |item: &Item| match item {
            Item::Node(id) => self.graph.rings.iter().position(|ring| self.touches(*id, &ring.places)),
            Item::Loop(..) => None,
        };
        let mut out: Vec<Item> = Vec::new();
        for item in items {
            let ring = ring_of(item);
            let behind = out.iter().rposition(|other| ring.is_some() && ring_of(other) == ring);
            out.insert(behind.map_or(out.len(), |at| at + 1), item.clone());
        }
        out
    }

    pub(super) fn touches(&self, id: NodeId, places: &[ReplicaId]) -> bool {
        let mut accesses = self.graph.node(id).accesses.iter();
        accesses.any(|access| access.replica.is_some_and(|replica| places.contains(&replica)))
    }

    /// The stages that the role holds in a body: of each ring whose stages change in it, from the first item that touches it to the last. Where two
    /// cross, the first is held as long as the second.
    pub(super) fn spans(&self, items: &[Item], head: Option<LoopId>) -> Vec<Span> {
        let block = head.is_none_or(|head| {
            let row = self.graph.tree.loop_(head);
            row.kind == LoopKind::Prange && row.parent.is_none()
        });
        let mut spans: Vec<Span> = Vec::new();
        for (at, ring) in self.graph.rings.iter().enumerate() {
            let side = match (self.role == ring.from, self.role == ring.to) {
                (true, false) => Side::Produce,
                (false, true) => Side::Consume,
                _ => continue,
            };
            if ring.head != head && !(ring.head.is_none() && block) {
                continue;
            }
            let touches = |item: &Item| {
                let nodes = Item::all(std::slice::from_ref(item));
                nodes.iter().any(|node| self.touches(*node, &ring.places))
            };
            let (first, last) = (items.iter().position(touches), items.iter().rposition(touches));
            if let (Some(first), Some(last)) = (first, last) {
                let last = last + self.joined(&items[last..]);
                spans.push(Span { ring: at, side, first, last });
            }
        }
        spans.sort_by_key(|span| (span.first, std::cmp::Reverse(span.last), span.ring));
        loop {
            let cross = spans.iter().enumerate().find_map(|(at, outer)| {
                let inner =
                    spans[at + 1..].iter().find(|inner| inner.first <= outer.last && inner.last > outer.last);
                inner.map(|inner| (at, inner.last))
            });
            match cross {
                Some((at, last)) => spans[at].last = last,
                None => break,
            }
        }
        spans.sort_by_key(|span| (span.first, std::cmp::Reverse(span.last), span.ring));
        spans
    }

    /// The statements of a range of items, in the stages of these spans.
    fn range(&mut self, items: &[Item], range: std::ops::Range<usize>, spans: &[Span]) -> Res<Vec<Stmt>> {
        let mut out = Vec::new();
        let mut at = range.start;
        while at < range.end {
            match spans.iter().position(|span| span.first == at && span.last < range.end) {
                Some(of) => {
                    let span = spans[of];
                    let when = self.stage_when(span.ring);
                    let outer = self.holds.clone();
                    self.holds.extend(when.iter().cloned());
                    let mut body = self.range(items, at..span.last + 1, &spans[of + 1..])?;
                    self.holds = outer;
                    // A stage may be filled again when the copies out of it have read it.
                    if span.side == Side::Consume && self.role == Role::Store {
                        body.push(self.stmt(StmtKind::Wait(Expr::Int(0)), Origin::Unknown));
                    }
                    let pipeline = self.pipeline(span.ring)?;
                    let kind = StmtKind::Stage { pipeline, side: span.side, body };
                    let stage = vec![self.stmt(kind, Origin::Unknown)];
                    out.extend(self.under(&when, stage)?);
                    at = span.last + 1;
                }
                None => {
                    let begins = |at: usize| spans.iter().any(|span| span.first == at);
                    let (statements, count) = self.guarded(items, at..range.end, begins)?;
                    out.extend(statements);
                    at += count;
                }
            }
        }
        Ok(out)
    }

    pub(super) fn item(&mut self, item: &Item) -> Res<Vec<Stmt>> {
        let mut out = self.in_front(item);
        out.extend(self.work(item)?);
        Ok(out)
    }

    /// The waits of an item, and where threads meet in front of it.
    pub(super) fn in_front(&mut self, item: &Item) -> Vec<Stmt> {
        match item {
            Item::Loop(id, _) => {
                let waits = self.order.loops.get(id).cloned().unwrap_or_default();
                self.waits(&waits)
            }
            Item::Node(id) => {
                let waits = self.order.before.get(id).cloned().unwrap_or_default();
                let mut out = self.waits(&waits);
                if self.order.meet.contains(id) {
                    let span = self.graph.node(*id).span;
                    out.push(self.stmt(StmtKind::Sync(tile::SyncScope::All), span));
                }
                out
            }
        }
    }

    /// True of an item in front of which nothing stands.
    pub(super) fn is_quiet(&self, item: &Item) -> bool {
        match item {
            Item::Loop(id, _) => !self.order.loops.contains_key(id),
            Item::Node(id) => !self.order.before.contains_key(id) && !self.order.meet.contains(id),
        }
    }

    /// The statements of an item, without what stands in front of it.
    pub(super) fn work(&mut self, item: &Item) -> Res<Vec<Stmt>> {
        match item {
            Item::Loop(id, items) => {
                let mut out = match self.dealt.remove(id) {
                    Some((chunks, late)) => self.by_turns((*id, items), (chunks, &late))?,
                    None => self.repeated(*id, items)?,
                };
                if self.order.behind.contains(id) {
                    out.push(self.stmt(StmtKind::Wait(Expr::Int(0)), Origin::Unknown));
                }
                Ok(out)
            }
            Item::Node(id) => match self.graph.node(*id).op {
                Op::Copy(..) => self.copy(*id),
                Op::Statement { .. } => self.statement(*id),
            },
        }
    }

    pub(super) fn waits(&mut self, waits: &[Wait]) -> Vec<Stmt> {
        let strict = self.strict;
        let kinds = waits.iter().map(|wait| {
            let left = Expr::Int(if strict { 0 } else { wait.left });
            match wait.group {
                Group::Products => StmtKind::WaitGemm(left),
                Group::CopiesIn | Group::CopiesOut => StmtKind::Wait(left),
            }
        });
        let kinds: Vec<StmtKind> = kinds.collect();
        kinds.into_iter().map(|kind| self.stmt(kind, Origin::Unknown)).collect()
    }

    /// The pipeline of a ring.
    fn pipeline(&mut self, ring: usize) -> Res<PipelineId> {
        if let Some(id) = self.pipelines.get(&ring) {
            return Ok(*id);
        }
        let row = self.graph.rings[ring].clone();
        let mut tensors = Vec::new();
        let mut base = String::new();
        for place in &row.places {
            self.define_shared(*place);
            let Some(shared) = self.shared.get(place) else {
                return Err(Diagnostic::internal(self.mapping.span, "a ring of places that are not there"));
            };
            tensors.push(shared.tensor);
            base += &self.graph.object(self.graph.replica(*place).object).name;
        }
        let name = self.names.global(&format!("{base}_ring"));
        let span = self.graph.object(self.graph.replica(row.places[0]).object).span;
        let id = PipelineId(self.out.pipelines.len() as u32);
        self.out.pipelines.push(tile::Pipeline { name, stages: Expr::Int(row.depth), tensors, span });
        let define = self.stmt(StmtKind::Pipeline(id), span);
        self.definitions[2].push(define);
        self.pipelines.insert(ring, id);
        Ok(id)
    }

    /// Defines the register tensors that live in the iterations of a loop, each in front of its first use.
    fn define(&mut self, out: &mut Vec<Stmt>, head: Option<LoopId>) {
        let here: Vec<(ReplicaId, TensorId)> = self
            .registers
            .iter()
            .filter(|(replica, _)| self.life(**replica) == head)
            .map(|(replica, tensor)| (*replica, *tensor))
            .collect();
        for (replica, tensor) in here {
            let carried = self.graph.replica(replica).scope != head;
            self.define_in(out, tensor, carried);
        }
    }

    /// The loop in whose iterations a place lives: where something late uses it, the loop around that, since the next iteration does.
    fn life(&self, replica: ReplicaId) -> Option<LoopId> {
        let scope = self.graph.replica(replica).scope?;
        let late = self.graph.nodes.iter().any(|node| {
            node.late_in(scope) > 0 && node.accesses.iter().any(|access| access.replica == Some(replica))
        });
        let others = self.graph.nodes.iter().any(|node| {
            node.late_in(scope) == 0 && node.accesses.iter().any(|access| access.replica == Some(replica))
        });
        if late && others { self.graph.tree.loop_(scope).parent } else { Some(scope) }
    }

    /// Defines a register tensor in the innermost stage that has all of its uses.
    fn define_in(&mut self, body: &mut Vec<Stmt>, tensor: TensorId, carried: bool) {
        let uses: Vec<usize> = body
            .iter()
            .enumerate()
            .filter(|(_, stmt)| self.names_tensor(stmt, tensor))
            .map(|(at, _)| at)
            .collect();
        let Some(first) = uses.first().copied() else { return };
        if let ([_], StmtKind::Stage { body: inner, .. } | StmtKind::If { body: inner, .. }) =
            (&uses[..], &mut body[first].kind)
        {
            return self.define_in(inner, tensor, carried);
        }
        if body[first].kind.assigned().contains(&tensor) && !carried {
            return;
        }
        let span = self.out.tensor(tensor).span;
        let mut front = vec![self.stmt(StmtKind::Define(tensor), span)];
        // The first tile finds what no tile has left.
        if carried && matches!(body[first].kind, StmtKind::Tiles { .. }) {
            front.push(self.stmt(StmtKind::Fill { dst: tensor, value: 0.0 }, span));
        }
        body.splice(first..first, front);
    }

    /// True if a statement, or one in it, uses a register tensor or a part of it.
    fn names_tensor(&self, stmt: &Stmt, tensor: TensorId) -> bool {
        let is = |id: TensorId| {
            id == tensor || matches!(&self.out.tensor(id).kind, TensorKind::Part { of, .. } if *of == tensor)
        };
        stmt.kind.tensors().into_iter().any(|(_, id)| is(id))
            || stmt.kind.body().iter().any(|stmt| self.names_tensor(stmt, tensor))
    }
}

/// Puts statements at the end of a body: into the stage that its last statement is.
fn within_last_stage(body: &mut Vec<Stmt>, statements: Vec<Stmt>) {
    match body.last_mut().map(|stmt| &mut stmt.kind) {
        Some(StmtKind::Stage { body: inner, side: Side::Consume, .. }) => {
            within_last_stage(inner, statements)
        }
        _ => body.extend(statements),
    }
}
