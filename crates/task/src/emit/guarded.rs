//! Statements that nobody needs without a condition stand in an `if`. Waits and barriers stay in front of it, as what stands behind relies on them. A loop and
//! a stage are left out as a whole where all that touches them is, in every role.

use std::collections::BTreeMap;

use tilewright_tile::{Origin, Stmt, StmtKind};

use super::{Emit, Res};
use crate::graph::{Group, Item, NodeId, Role};
use crate::instantiate::LoopId;
use crate::piece::Guard;
use crate::program::LoopKind;

impl<'a> Emit<'a> {
    /// The conditions without which nobody needs an item, but for those that hold here; none of one that is always done.
    fn when(&self, item: &Item) -> Vec<Guard> {
        let graph = self.graph;
        match item {
            // What fills or empties stages alone is left out with the stage.
            Item::Node(id) if self.groups.contains_key(id) || self.role != Role::Compute => Vec::new(),
            Item::Node(id) => self.open(&graph.node(*id).when),
            Item::Loop(id, _) => {
                let within = |body: Option<LoopId>| graph.tree.around(body).contains(id);
                let when = self.when_all(self.graph.node_ids().filter(|node| within(graph.node(*node).body)));
                let plain = graph.tree.loop_(*id).kind == LoopKind::Srange && !graph.ends.contains_key(id);
                // The conditions have their values in front of the loop.
                let inside = graph.tree.loop_ids().filter(|other| within(Some(*other)));
                let mut counters = inside.flat_map(|other| &graph.tree.loop_(other).counters);
                let before =
                    counters.all(|var| !when.iter().any(|guard| self.vars.depends(guard.form(), *var)));
                if plain && before { self.open(when) } else { Vec::new() }
            }
        }
    }

    /// The conditions that do not hold here.
    pub(super) fn open(&self, when: &[Guard]) -> Vec<Guard> {
        when.iter().filter(|guard| !self.holds.contains(guard)).cloned().collect()
    }

    /// The conditions of nodes that are left out together in every role: all have the same, and no wait counts one of them.
    fn when_all(&self, nodes: impl Iterator<Item = NodeId>) -> &'a [Guard] {
        let mut when: Option<&'a [Guard]> = None;
        for id in nodes {
            let node = self.graph.node(id);
            let handed = node.role == Role::Load && self.groups.get(&id) == Some(&Group::CopiesIn);
            let counted = self.groups.contains_key(&id) && !handed || !node.waits.is_empty();
            if counted || !node.late.is_empty() || when.is_some_and(|when| when != &node.when[..]) {
                return &[];
            }
            when = Some(&node.when);
        }
        // Blocks of a cluster share copies, and need not share conditions.
        when.filter(|_| self.cluster.is_empty()).unwrap_or_default()
    }

    /// The rings whose stages are left out on either side, with the conditions without which nobody needs one: between the first and the last of the items that
    /// touch such a ring, nothing else is done.
    pub(super) fn guard_rings(&mut self) {
        let mut found = BTreeMap::new();
        for (at, ring) in self.graph.rings.iter().enumerate() {
            let Some(items) = ring.head.and_then(|head| body_of(&self.graph.order, head)) else { continue };
            let touching: Vec<NodeId> =
                self.graph.node_ids().filter(|id| self.touches(*id, &ring.places)).collect();
            let inside = touching.iter().all(|id| self.graph.node(*id).body == ring.head);
            let when = self.when_all(touching.into_iter());
            let alone = [ring.from, ring.to].into_iter().all(|role| {
                let of_role = |item: &&Item| item.nodes().iter().any(|id| self.graph.node(*id).role == role);
                let items: Vec<&Item> = items.iter().filter(of_role).collect();
                let touches = |item: &&Item| item.nodes().iter().any(|id| self.touches(*id, &ring.places));
                let (first, last) = (items.iter().position(touches), items.iter().rposition(touches));
                let (Some(first), Some(last)) = (first, last) else { return false };
                // Copies that fill one stage are put side by side.
                role == Role::Load || items[first..=last].iter().all(|item| self.is_left_out(item, at, when))
            });
            if alone && inside && ring.from != ring.to && !when.is_empty() {
                found.insert(at, when.to_vec());
            }
        }
        self.guarded_rings = found;
    }

    /// True of a node that is left out under these conditions and touches no other ring.
    fn is_left_out(&self, item: &Item, ring: usize, when: &[Guard]) -> bool {
        let Item::Node(id) = item else { return false };
        let others =
            self.graph.rings.iter().enumerate().filter(|(at, row)| *at != ring && row.from != row.to);
        let mut others = others.filter(|(_, row)| self.touches(*id, &row.places));
        self.graph.node(*id).when == when && !self.groups.contains_key(id) && others.next().is_none()
    }

    /// The conditions without which nobody needs a stage of a ring.
    pub(super) fn stage_when(&self, ring: usize) -> Vec<Guard> {
        self.guarded_rings.get(&ring).map_or_else(Vec::new, |when| self.open(when))
    }

    /// The statements of items, from the first of a range on, that are needed under the same conditions, and the number of these items. `begins` is true of an
    /// item at which a stage begins.
    pub(super) fn guarded(
        &mut self,
        items: &[Item],
        range: std::ops::Range<usize>,
        begins: impl Fn(usize) -> bool,
    ) -> Res<(Vec<Stmt>, usize)> {
        let first = range.start;
        let last = (first + 1..range.end).find(|at| begins(*at)).unwrap_or(range.end);
        let when = self.when(&items[first]);
        let more = self.joined(&items[first..last]);
        let mut out = self.in_front(&items[first]);
        let outer = self.holds.clone();
        self.holds.extend(when.iter().cloned());
        let mut body = Vec::new();
        for item in &items[first..=first + more] {
            body.extend(self.work(item)?);
        }
        self.holds = outer;
        out.extend(self.under(&when, body)?);
        Ok((out, 1 + more))
    }

    /// The number of items that stand in one `if` with the first of these, behind it.
    pub(super) fn joined(&self, items: &[Item]) -> usize {
        let [first, others @ ..] = items else { return 0 };
        let when = self.when(first);
        let joins = |item: &&Item| !when.is_empty() && self.is_quiet(item) && self.when(item) == when;
        others.iter().take_while(joins).count()
    }

    /// Statements under conditions.
    pub(super) fn under(&mut self, when: &[Guard], body: Vec<Stmt>) -> Res<Vec<Stmt>> {
        match self.condition(when, Origin::Unknown)? {
            Some(condition) if !body.is_empty() => {
                Ok(vec![self.stmt(StmtKind::If { condition, otherwise: false, body }, Origin::Unknown)])
            }
            _ => Ok(body),
        }
    }
}

/// The items of a loop.
fn body_of(items: &[Item], head: LoopId) -> Option<&[Item]> {
    items.iter().find_map(|item| match item {
        Item::Loop(id, items) if *id == head => Some(&items[..]),
        Item::Loop(_, items) => body_of(items, head),
        Item::Node(_) => None,
    })
}
