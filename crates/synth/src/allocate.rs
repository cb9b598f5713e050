//! Where shared tensors lie: tensors that are never needed together may share memory (Cypress, section 4.2.4).
//!
//! A tensor is needed from its first access to its last, seen from the body in which it is defined: what a loop in that body
//! accesses is needed for the whole loop. Two tensors may lie at the same place if one is done with before the other is first
//! accessed and a `syncthreads` in between makes sure that every thread is; in the body of a loop, so must the way back. An
//! asynchronous copy writes until the `wait_group(0)` that follows it. The tensors of a pipeline, and what asynchronous units read,
//! have their places to themselves.

use tilewright_machine::Memory;
use tilewright_tile::{Stmt, StmtKind, TensorId, Verified};

use crate::{SHARED_ALIGN, UNIT_ALIGN};

/// A place for every shared tensor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allocation {
    /// Byte offsets, by tensor.
    pub offsets: Vec<(TensorId, u32)>,
    /// Bytes in all.
    pub bytes: u32,
}

/// The bodies of a program: where a tensor is defined, and the way to it.
struct Bodies<'a> {
    /// For each tensor the children on the way to the statement that defines it, outermost first, the defining one last.
    defined: Vec<Option<Vec<usize>>>,
    root: &'a [Stmt],
}

/// The statements of the body at the end of a way.
fn body<'a>(root: &'a [Stmt], way: &[usize]) -> &'a [Stmt] {
    let mut at = root;
    for child in way {
        match at.get(*child).map(|s| &s.kind) {
            Some(kind) => at = kind.body(),
            None => return &[],
        }
    }
    at
}

fn definitions(stmts: &[Stmt], way: &mut Vec<usize>, found: &mut Vec<Option<Vec<usize>>>) {
    for (i, stmt) in stmts.iter().enumerate() {
        way.push(i);
        match &stmt.kind {
            StmtKind::Define(id) => found[id.0 as usize] = Some(way.clone()),
            kind => definitions(kind.body(), way, found),
        }
        way.pop();
    }
}

/// Whether a statement, or one within it, accesses a shared tensor.
fn accesses(stmt: &Stmt, id: TensorId) -> bool {
    let within = |body: &[Stmt]| body.iter().any(|s| accesses(s, id));
    stmt.kind.reads().contains(&id) || stmt.kind.writes().contains(&id) || within(stmt.kind.body())
}

fn copies_async(stmt: &Stmt, id: TensorId) -> bool {
    let own = matches!(&stmt.kind, StmtKind::CopyAsync { dst, .. } if dst.tensor == id);
    own || stmt.kind.body().iter().any(|s| copies_async(s, id))
}

/// Whether an asynchronous unit reads or writes a shared tensor, or it belongs to a pipeline: its end is not where the last statement is that
/// names it.
fn outlives(body: &[Stmt], verified: &Verified, id: TensorId) -> bool {
    let staged = verified.program().pipelines.iter().any(|p| p.tensors.contains(&id));
    staged
        || body.iter().any(|stmt| {
            let own = match &stmt.kind {
                StmtKind::CopyAsync { src, dst, how } => how.tensor && (src.tensor == id || dst.tensor == id),
                StmtKind::GemmAsync { a, b, .. } => a.tensor == id || b.tensor == id,
                _ => false,
            };
            own || outlives(stmt.kind.body(), verified, id)
        })
}

fn is_wait_for_all(stmt: &Stmt) -> bool {
    matches!(&stmt.kind, StmtKind::Wait(groups) if groups.as_int() == Some(0))
}

/// Whether every thread passes a barrier in these statements.
fn synchronises(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|s| matches!(s.kind, StmtKind::Sync))
}

/// The children of a body in which a tensor is needed, first and last. An asynchronous copy ends at the wait for all after it;
/// without one the tensor is needed to the end.
fn needed(stmts: &[Stmt], id: TensorId) -> Option<(usize, usize)> {
    let first = stmts.iter().position(|s| accesses(s, id))?;
    let last = stmts.iter().rposition(|s| accesses(s, id))?;
    let Some(copied) = stmts.iter().rposition(|s| copies_async(s, id)) else { return Some((first, last)) };
    let landed = (copied..stmts.len()).find(|i| is_wait_for_all(&stmts[*i]));
    Some((first, landed.map_or(stmts.len(), |landed| landed.max(last))))
}

/// Whether all threads pass a barrier after the last access to `before` and ahead of the first to `after`, which lie in these
/// children of the body.
fn separated(stmts: &[Stmt], (end, before): (usize, TensorId), (begin, after): (usize, TensorId)) -> bool {
    if end >= stmts.len() || synchronises(&stmts[end + 1..begin]) {
        return end < stmts.len();
    }
    // Within a loop: after its last access, or before its first. Without a round there is no access either.
    let (last, first) = (stmts[end].kind.body(), stmts[begin].kind.body());
    let tail = last.iter().rposition(|s| accesses(s, before));
    let head = first.iter().position(|s| accesses(s, after));
    tail.is_some_and(|at| synchronises(&last[at + 1..])) || head.is_some_and(|at| synchronises(&first[..at]))
}

impl Bodies<'_> {
    /// Whether two tensors may lie at the same place.
    fn apart(&self, a: TensorId, b: TensorId) -> bool {
        let way = |t: TensorId| {
            self.defined[t.0 as usize].as_deref().and_then(|w| w.split_last()).map(|(_, way)| way)
        };
        let (Some(wa), Some(wb)) = (way(a), way(b)) else { return false };
        let shared = wa.iter().zip(wb).take_while(|(x, y)| x == y).count();
        let common = &wa[..shared];
        let stmts = body(self.root, common);
        // A tensor of a deeper body is needed in the child that leads there.
        let interval = |t: TensorId, way: &[usize]| match way.get(shared) {
            Some(child) => Some((*child, *child)),
            None => needed(stmts, t),
        };
        let (Some(ia), Some(ib)) = (interval(a, wa), interval(b, wb)) else { return true };
        let ((x, ix), (y, iy)) = if ia.1 < ib.0 {
            ((a, ia), (b, ib))
        } else if ib.1 < ia.0 {
            ((b, ib), (a, ia))
        } else {
            return false;
        };
        // What is copied asynchronously in a deeper body must have landed there.
        let lands = |t: TensorId, way: &[usize]| {
            way.len() == shared
                || needed(body(self.root, way), t).is_none_or(|(_, end)| end < body(self.root, way).len())
        };
        if !lands(a, wa) || !lands(b, wb) || !separated(stmts, (ix.1, x), (iy.0, y)) {
            return false;
        }
        // In a loop the next round follows.
        common.is_empty() || synchronises(&stmts[..ix.0]) || stmts.get(iy.1 + 1..).is_some_and(synchronises)
    }
}

/// Places the shared tensors of a program, each of some bytes, the largest first, each as low as it may lie.
pub fn allocate(verified: &Verified, sizes: &[(TensorId, u32)]) -> Allocation {
    let program = verified.program();
    let mut defined = vec![None; program.tensors.len()];
    definitions(&program.body, &mut Vec::new(), &mut defined);
    let bodies = Bodies { defined, root: &program.body };
    let alone = |id: TensorId| outlives(&program.body, verified, id);
    let mut order: Vec<(TensorId, u32)> =
        sizes.iter().copied().filter(|(id, _)| program.tensor(*id).memory() == Memory::Shared).collect();
    order.sort_by_key(|(id, bytes)| (std::cmp::Reverse(*bytes), *id));
    let mut placed: Vec<(TensorId, u32, u32)> = Vec::new();
    for (id, bytes) in order {
        let others: Vec<(u32, u32)> = placed
            .iter()
            .filter(|(other, ..)| alone(id) || alone(*other) || !bodies.apart(id, *other))
            .map(|(_, offset, bytes)| (*offset, offset.saturating_add(*bytes)))
            .collect();
        let align = if alone(id) { UNIT_ALIGN } else { SHARED_ALIGN };
        let ends = others.iter().map(|(_, end)| end.next_multiple_of(align));
        let mut starts: Vec<u32> = std::iter::once(0).chain(ends).collect();
        starts.sort_unstable();
        let free = |at: &u32| others.iter().all(|(from, to)| at.saturating_add(bytes) <= *from || *to <= *at);
        let offset = starts.into_iter().find(free).unwrap_or(0);
        placed.push((id, offset, bytes));
    }
    let bytes = placed.iter().map(|(_, offset, bytes)| offset.saturating_add(*bytes)).max().unwrap_or(0);
    let mut offsets: Vec<(TensorId, u32)> = placed.into_iter().map(|(id, offset, _)| (id, offset)).collect();
    offsets.sort_by_key(|(id, _)| *id);
    Allocation { offsets, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_tile::{Constants, parse, verify};

    /// The offsets of tensors of 1024 bytes each in a program with this body.
    fn offsets(body: &str) -> Vec<(String, u32)> {
        let source = format!(
            "size n = 4\nkernel k(x: f32[256], y: f32[256]) grid(1) threads(32) {{
                gx = global_view(x, (256) : (e0))
                gy = global_view(y, (256) : (e0))
                r = register_tensor(f32, [256])
                {body}
            }}"
        );
        let verified = verify(&parse(&source).unwrap(), &Constants::new()).unwrap();
        let program = verified.program();
        let sizes: Vec<(TensorId, u32)> =
            (0..program.tensors.len()).map(|i| (TensorId(i as u32), 1024)).collect();
        let named = |(id, offset): (TensorId, u32)| (program.tensor(id).name.clone(), offset);
        allocate(&verified, &sizes).offsets.into_iter().map(named).collect()
    }

    const A: &str = "a = shared_tensor(f32, [256])\n";
    const B: &str = "b = shared_tensor(f32, [256])\n";

    fn share(body: &str) -> bool {
        let all = offsets(body);
        assert_eq!(all.len(), 2, "{all:?}");
        all[0].1 == all[1].1
    }

    #[test]
    fn tensors_share_memory_only_across_a_barrier() {
        let uses = |between: &str| {
            format!(
                "{A}{B}copy(gx, a)\nsyncthreads()\ncopy(a, r)\n{between}\ncopy(r, b)\nsyncthreads()\ncopy(b, gy)"
            )
        };
        assert!(share(&uses("syncthreads()")));
        assert!(!share(&uses("")));
        // Needed together.
        assert!(!share(&format!("{A}{B}copy(gx, a)\nsyncthreads()\ncopy(r, b)\nsyncthreads()\ncopy(a, r)")));
    }

    #[test]
    fn a_loop_counts_as_a_whole_and_goes_round() {
        let round = |end: &str, inner: &str| {
            format!(
                "{A}{inner}for i in 0..n {{ copy(gx, a)\nsyncthreads()\ncopy(a, r)\n{end} }}\n
                 copy(r, b)\nsyncthreads()\ncopy(b, gy)"
            )
        };
        assert!(share(&round("syncthreads()", B)));
        assert!(!share(&round("", B)));
        // Both in the loop: the way back needs a barrier too.
        let both = |last: &str| {
            format!(
                "for i in 0..n {{ {A}{B}copy(gx, a)\nsyncthreads()\ncopy(a, r)\nsyncthreads()\ncopy(r, b)\n
                 copy(b, gy)\n{last} }}"
            )
        };
        assert!(share(&both("syncthreads()")));
        assert!(!share(&both("")));
        // One that lives on from round to round.
        assert!(!share(&format!(
            "{A}{B}for i in 0..n {{ copy(gx, a)\nsyncthreads()\ncopy(a, r)\nsyncthreads()\ncopy(r, b)\n
             syncthreads()\ncopy(b, r)\nsyncthreads() }}"
        )));
    }

    #[test]
    fn an_asynchronous_copy_writes_until_it_is_waited_for() {
        let uses = |wait: &str| {
            format!(
                "{A}{B}copy.async(gx, a)\ncommit_group()\nwait_group(0)\nsyncthreads()\ncopy(a, r)\n
                 copy.async(gx, a)\ncommit_group()\n{wait}\nsyncthreads()\ncopy(r, b)\nsyncthreads()\ncopy(b, gy)"
            )
        };
        assert!(share(&uses("wait_group(0)")));
        assert!(!share(&uses("")));
        assert!(!share(&uses("wait_group(1)")));
    }
}
