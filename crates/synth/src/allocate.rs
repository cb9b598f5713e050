//! The places of shared tensors: tensors that are never needed together may share memory (Cypress, section 4.2.4).
//!
//! A tensor is needed from its first access to its last, seen from the body in which it is defined: what a loop in that body
//! accesses is needed for the whole loop. Two tensors may lie at the same place if one is done with before the other is first
//! accessed and a `syncthreads` in between makes sure that every thread is; in the body of a loop, so must the way back. An
//! asynchronous copy writes until the `wait_group(0)` that follows it. The tensors of a pipeline, and what asynchronous engines read,
//! have their places to themselves.

use rustc_hash::FxHashMap as HashMap;
use std::ops::Range;

use tilewright_machine::Memory;
use tilewright_tile::TensorId;
use tilewright_tile::core::{Program, Stmt, StmtKind, SyncScope};

/// Shared tensors start at multiples of this many bytes, so that a swizzle of their offsets is one of their addresses.
pub const SHARED_ALIGN: u32 = 128;
/// The alignment of a tensor that asynchronous engines touch: they swizzle by the bits of addresses, and the widest swizzle repeats
/// after this many bytes.
pub const ASYNC_ALIGN: u32 = 1024;

/// A place for every shared tensor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allocation {
    /// Byte offsets, by tensor.
    pub offsets: Vec<(TensorId, u32)>,
    /// Bytes in all.
    pub bytes: u32,
}

/// A body of statements, with what its children access.
#[derive(Default)]
struct Body {
    /// Children.
    len: usize,
    /// For each tensor that it, or a body within it, accesses the first and the last such child.
    accessed: HashMap<TensorId, (usize, usize)>,
    /// For each tensor that is copied to asynchronously the last child that does it, or has it within.
    copied: HashMap<TensorId, usize>,
    /// The children that are a `wait_group(0)`.
    waits: Vec<usize>,
    /// For each child the number of `syncthreads` among those before it; one entry more than there are children.
    syncs: Vec<usize>,
    /// The bodies of those children that have one, by child.
    within: HashMap<usize, usize>,
}

impl Body {
    /// True if every thread passes a barrier in these children.
    fn synchronises(&self, children: Range<usize>) -> bool {
        let (from, to) = (children.start.min(self.len), children.end.min(self.len));
        from < to && self.syncs[to] > self.syncs[from]
    }

    /// The children in which a tensor is needed, first and last. An asynchronous copy ends at the wait for all after it; without
    /// one the tensor is needed to the end.
    fn needed(&self, id: TensorId) -> Option<(usize, usize)> {
        let (first, last) = *self.accessed.get(&id)?;
        let Some(copied) = self.copied.get(&id) else { return Some((first, last)) };
        let next = self.waits.partition_point(|wait| wait < copied);
        Some((first, self.waits.get(next).map_or(self.len, |landed| *landed.max(&last))))
    }
}

/// The bodies of a program, and where its tensors are needed.
struct Bodies {
    /// The program's own body last, every other after those within it.
    all: Vec<Body>,
    /// For each tensor the children on the way to the statement that defines it, outermost first, without that statement itself.
    ways: Vec<Option<Vec<usize>>>,
    /// True if an asynchronous engine reads or writes the tensor, or it belongs to a pipeline: its end is not where the last
    /// statement is that names it.
    outlives: Vec<bool>,
}

impl Bodies {
    fn new(verified: &Program) -> Self {
        let n = verified.tensors.len();
        let mut bodies = Bodies { all: Vec::new(), ways: vec![None; n], outlives: vec![false; n] };
        for id in verified.pipelines.iter().flat_map(|p| &p.tensors) {
            bodies.outlives[id.0 as usize] = true;
        }
        bodies.visit(&verified.body, &mut Vec::new());
        bodies
    }

    /// Enters a body, those within it first; returns its number.
    fn visit(&mut self, stmts: &[Stmt], way: &mut Vec<usize>) -> usize {
        let mut body = Body { len: stmts.len(), syncs: vec![0], ..Body::default() };
        for (i, stmt) in stmts.iter().enumerate() {
            let mut accessed = [stmt.kind.reads(), stmt.kind.writes()].concat();
            let mut copied = Vec::new();
            match &stmt.kind {
                StmtKind::Define(id) => self.ways[id.0 as usize] = Some(way.clone()),
                StmtKind::CopyAsync { src, dst, how } => {
                    copied.push(dst.tensor);
                    if how.tensor {
                        self.outlives[src.tensor.0 as usize] = true;
                        self.outlives[dst.tensor.0 as usize] = true;
                    }
                }
                StmtKind::GemmAsync { a, b, scales, .. } => {
                    for reference in [a, b].into_iter().chain(scales.iter().flatten()) {
                        self.outlives[reference.tensor.0 as usize] = true;
                    }
                }
                StmtKind::Wait(0) => body.waits.push(i),
                _ => {}
            }
            if !stmt.kind.body().is_empty() {
                way.push(i);
                let inner = self.visit(stmt.kind.body(), way);
                way.pop();
                body.within.insert(i, inner);
                accessed.extend(self.all[inner].accessed.keys());
                copied.extend(self.all[inner].copied.keys());
            }
            for id in accessed {
                body.accessed.entry(id).or_insert((i, i)).1 = i;
            }
            body.copied.extend(copied.into_iter().map(|id| (id, i)));
            let all_meet = match stmt.kind {
                StmtKind::Sync(scope) => scope != SyncScope::Warpgroup,
                StmtKind::SyncGrid { .. } => true,
                _ => stmt.kind.flag().is_some(),
            };
            body.syncs.push(body.syncs[i] + usize::from(all_meet));
        }
        self.all.push(body);
        self.all.len() - 1
    }

    /// The body at the end of a way.
    fn body(&self, way: &[usize]) -> Option<&Body> {
        let root = self.all.last();
        way.iter().try_fold(root?, |at, child| self.within(at, *child))
    }

    /// The body of a child.
    fn within(&self, body: &Body, child: usize) -> Option<&Body> {
        body.within.get(&child).map(|inner| &self.all[*inner])
    }

    /// True if all threads pass a barrier after the last access to `before` and ahead of the first to `after`, which lie in these
    /// children of the body.
    fn separated(
        &self,
        body: &Body,
        (end, before): (usize, TensorId),
        (begin, after): (usize, TensorId),
    ) -> bool {
        if end >= body.len || body.synchronises(end + 1..begin) {
            return end < body.len;
        }
        // Within a loop: after its last access, or before its first. Without a round there is no access either.
        let tail = self.within(body, end).is_some_and(|inner| {
            inner.accessed.get(&before).is_some_and(|(_, at)| inner.synchronises(at + 1..inner.len))
        });
        let head = self.within(body, begin).is_some_and(|inner| {
            inner.accessed.get(&after).is_some_and(|(at, _)| inner.synchronises(0..*at))
        });
        tail || head
    }

    /// True if two tensors may lie at the same place.
    fn apart(&self, a: TensorId, b: TensorId) -> bool {
        let way = |t: TensorId| self.ways[t.0 as usize].as_deref();
        let (Some(wa), Some(wb)) = (way(a), way(b)) else { return false };
        let shared = wa.iter().zip(wb).take_while(|(x, y)| x == y).count();
        let common = &wa[..shared];
        let Some(body) = self.body(common) else { return true };
        // A tensor of a deeper body is needed in the child that leads there.
        let interval = |t: TensorId, way: &[usize]| match way.get(shared) {
            Some(child) => Some((*child, *child)),
            None => body.needed(t),
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
            let own = if way.len() == shared { None } else { self.body(way) };
            own.and_then(|own| own.needed(t).map(|(_, end)| end < own.len)).unwrap_or(true)
        };
        if !lands(a, wa) || !lands(b, wb) || !self.separated(body, (ix.1, x), (iy.0, y)) {
            return false;
        }
        // In a loop the next round follows.
        common.is_empty() || body.synchronises(0..ix.0) || body.synchronises(iy.1 + 1..body.len)
    }
}

/// The least multiple of `align` that is not below; the largest number where there is none.
fn aligned(at: u32, align: u32) -> u32 {
    at.checked_next_multiple_of(align).unwrap_or(u32::MAX)
}

/// The shared tensors of a program that may lie at the same place: what places depend on besides sizes, found once.
pub struct Lifetimes {
    bodies: Bodies,
    /// For two tensors, the lesser number first, whether they must not share memory.
    clashes: HashMap<(TensorId, TensorId), bool>,
    shared: Vec<bool>,
}

impl Lifetimes {
    /// The lifetimes of the tensors of a program.
    pub fn new(verified: &Program) -> Self {
        let tensors = &verified.tensors;
        Lifetimes {
            bodies: Bodies::new(verified),
            clashes: HashMap::default(),
            shared: tensors.iter().map(|t| t.memory() == Memory::Shared).collect(),
        }
    }

    /// True if two tensors are needed together.
    fn clash(&mut self, a: TensorId, b: TensorId) -> bool {
        let bodies = &self.bodies;
        let alone = |id: TensorId| bodies.outlives[id.0 as usize];
        let pair = (a.min(b), a.max(b));
        *self.clashes.entry(pair).or_insert_with(|| alone(a) || alone(b) || !bodies.apart(a, b))
    }

    /// Places shared tensors, each of some bytes, the largest first, each as low as it may lie.
    pub fn allocate(&mut self, sizes: &[(TensorId, u32)]) -> Allocation {
        let mut order: Vec<(TensorId, u32)> =
            sizes.iter().copied().filter(|(id, _)| self.shared[id.0 as usize]).collect();
        order.sort_by_key(|(id, bytes)| (std::cmp::Reverse(*bytes), *id));
        // By rising offset.
        let mut placed: Vec<(u32, u32, TensorId)> = Vec::new();
        for (id, bytes) in order {
            let align = if self.bodies.outlives[id.0 as usize] { ASYNC_ALIGN } else { SHARED_ALIGN };
            let mut offset = 0u32;
            for (from, end, other) in &placed {
                if offset.saturating_add(bytes) <= *from {
                    break;
                }
                if self.clash(id, *other) {
                    offset = offset.max(aligned(*end, align));
                }
            }
            let end = offset.saturating_add(bytes);
            let at = placed.partition_point(|(from, ..)| *from <= offset);
            placed.insert(at, (offset, end, id));
        }
        let bytes = placed.iter().map(|(_, end, _)| *end).max().unwrap_or(0);
        let mut offsets: Vec<(TensorId, u32)> = placed.into_iter().map(|(from, _, id)| (id, from)).collect();
        offsets.sort_by_key(|(id, _)| *id);
        Allocation { offsets, bytes }
    }
}

/// Places the shared tensors of a program, each of some bytes, the largest first, each as low as it may lie.
pub fn allocate(verified: &Program, sizes: &[(TensorId, u32)]) -> Allocation {
    Lifetimes::new(verified).allocate(sizes)
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
        let program = tilewright_tile::core::build(&verified).unwrap();
        let sizes: Vec<(TensorId, u32)> =
            (0..program.tensors.len()).map(|i| (TensorId(i as u32), 1024)).collect();
        let named = |(id, offset): (TensorId, u32)| (program.tensor(id).name.clone(), offset);
        allocate(&program, &sizes).offsets.into_iter().map(named).collect()
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
