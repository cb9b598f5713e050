//! Shared-memory layouts: constraints with unknown strides, their unification, materialisation, and the swizzle that
//! leaves the fewest bank conflicts (Hexcute, section V).
//!
//! A shared tensor's layout is `S ∘ m`: `m` maps a coordinate of the tile to an offset, the swizzle `S` permutes offsets. Each
//! copy constrains `m` to have some run of coordinates at consecutive addresses.

use std::fmt;

use tilewright_layout::{HTuple, Layout, Shape, Swizzle, SwizzledLayout, coalesce, coalesce_by, compose};
use tilewright_machine::{CopyKind, CopyRow, Wavefronts, linear_wavefronts, shared_wavefronts};
use tilewright_tile::core::TensorRef;

use crate::access::adds;
use crate::tv::Access;

/// A known part of a memory layout: `extent` steps of `coordinate` in the tile are `extent` steps of `stride` in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Steps.
    pub extent: i64,
    /// Stride in the tile's linear coordinate.
    pub coordinate: i64,
    /// Stride in memory, in elements.
    pub stride: i64,
}

/// A memory layout of which some modes are known; the others have unknown strides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Constraint {
    shape: Vec<i64>,
    known: Vec<Known>,
}

/// A clash of two constraints.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnifyError {
    /// Two different coordinates would have the same address.
    #[error("both want stride {0} in memory, for different modes of the tile")]
    SameAddress(i64),
    /// One coordinate would have two addresses.
    #[error("they want different strides for the same mode of the tile ({0} and {1})")]
    TwoAddresses(i64, i64),
    /// The extents have no common refinement.
    #[error("modes of {0} and {1} elements have no common refinement")]
    NoRefinement(i64, i64),
}

impl Constraint {
    /// Nothing known about a tensor of this shape.
    pub fn unknown(shape: &[i64]) -> Self {
        Constraint { shape: shape.to_vec(), known: Vec::new() }
    }

    /// The constraint that a run is contiguous: address → coordinate.
    pub fn contiguous(shape: &[i64], run: &Layout) -> Self {
        let mut stride = 1;
        let mut known = Vec::new();
        for (extent, coordinate) in run.leaves().into_iter().filter(|(extent, _)| *extent > 1) {
            known.push(Known { extent, coordinate, stride });
            stride *= extent;
        }
        Constraint { shape: shape.to_vec(), known }
    }

    /// The known modes, by rising stride in memory.
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// The constraint that holds both, refining modes where one knows more of a mode than the other (Fig. 10 c, case 1);
    /// an error where none exists (case 2).
    pub fn unify(&self, other: &Constraint) -> Result<Constraint, UnifyError> {
        let mut known = self.known.clone();
        let mut queue = other.known.clone();
        while let Some(new) = queue.pop() {
            if new.extent == 1 {
                continue;
            }
            let mut keep = Some(new);
            for i in 0..known.len() {
                let Some(b) = keep else { break };
                let a = known[i];
                let (end_a, end_b) = (a.coordinate * a.extent, b.coordinate * b.extent);
                // The same ray of coordinates, one starting within the other?
                let (inner, outer, outer_end) =
                    if a.coordinate <= b.coordinate { (b, a, end_a) } else { (a, b, end_b) };
                let same_ray = inner.coordinate < outer_end && inner.coordinate % outer.coordinate == 0;
                if same_ray {
                    let ratio = inner.coordinate / outer.coordinate;
                    if inner.stride != outer.stride * ratio {
                        return Err(UnifyError::TwoAddresses(inner.stride, outer.stride * ratio));
                    }
                    if outer.extent % ratio != 0 {
                        return Err(UnifyError::NoRefinement(outer.extent, ratio));
                    }
                    // Union of both rays, seen from the outer's start.
                    let (x, y) = (outer.extent, ratio * inner.extent);
                    let union = x.max(y);
                    if union % x != 0 || union % y != 0 {
                        return Err(UnifyError::NoRefinement(x, y));
                    }
                    known.remove(i);
                    queue.push(Known { extent: union, coordinate: outer.coordinate, stride: outer.stride });
                    keep = None;
                    break;
                }
                let (low, high) = if a.stride <= b.stride { (a, b) } else { (b, a) };
                if high.stride < low.stride * low.extent {
                    return Err(UnifyError::SameAddress(high.stride));
                }
            }
            known.extend(keep);
        }
        known.sort_by_key(|k| k.stride);
        Ok(Constraint { shape: self.shape.clone(), known })
    }

    /// The shape refined by what is known, and the strides that are; `None` where what is known does not refine the shape.
    fn refined(&self) -> Option<(Shape, HTuple<Option<i64>>)> {
        let mut base = 1;
        let (mut shape, mut stride) = (Vec::new(), Vec::new());
        for extent in &self.shape {
            let (mut extents, mut strides) = (Vec::new(), Vec::new());
            let (mut at, end) = (base, base * extent);
            let inside = |k: &&Known| k.coordinate >= base && k.coordinate < end;
            let mut inside: Vec<&Known> = self.known.iter().filter(inside).collect();
            inside.sort_by_key(|k| k.coordinate);
            for k in inside {
                let above = k.coordinate * k.extent;
                if k.coordinate % at != 0 || above > end || end % above != 0 {
                    return None;
                }
                if k.coordinate > at {
                    extents.push(k.coordinate / at);
                    strides.push(None);
                }
                extents.push(k.extent);
                strides.push(Some(k.stride));
                at = above;
            }
            if at < end || extents.is_empty() {
                extents.push(end / at);
                strides.push(None);
            }
            shape.push(HTuple::from_flat(extents));
            stride.push(HTuple::from_flat(strides));
            base = end;
        }
        Some((HTuple::Tuple(shape), HTuple::Tuple(stride)))
    }

    /// A memory layout that holds the constraint and covers `0..size` exactly: unknown strides are filled first within the mode
    /// that holds the contiguous run (so that rows stay together), then mode by mode from the last.
    pub fn materialise(&self) -> Option<Layout> {
        let (shape, strides) = self.refined()?;
        // Known strides must tile an interval from 1; gaps would leave addresses unused.
        let mut next = 1;
        for k in &self.known {
            if k.stride != next {
                return None;
            }
            next *= k.extent;
        }
        let innermost = strides.modes().iter().position(|mode| mode.leaves().contains(&&Some(1)));
        let rank = self.shape.len();
        let order = strides.modes().iter().enumerate().map(|(i, mode)| {
            let turn = if Some(i) == innermost { 0 } else { (rank - i) as i64 };
            mode.map(|stride| stride.unwrap_or(next + turn))
        });
        let layout = Layout::ordered(shape, &HTuple::Tuple(order.collect())).ok()?;
        coalesce_by(&layout, &HTuple::from_flat(vec![(); rank])).ok()
    }
}

impl fmt::Display for Constraint {
    /// As in the paper: `(64,(8,8)):(D1,(1,D2))`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((shape, strides)) = self.refined() else {
            return f.write_str("(not a refinement of the shape)");
        };
        let mut unknown = 0;
        let strides = strides.map(|known| {
            known.map_or_else(
                || {
                    unknown += 1;
                    format!("D{unknown}")
                },
                |stride| stride.to_string(),
            )
        });
        write!(f, "{shape}:{strides}")
    }
}

/// An access to a shared tensor, in coordinates of the tensor itself.
#[derive(Clone, Debug)]
pub struct SharedUse<'a> {
    /// The instruction.
    pub row: &'static CopyRow,
    /// The elements that it touches.
    pub access: &'a Access,
    /// Statement's tile coordinate → the tensor's coordinate (identity unless transposed).
    pub own: &'a Layout,
    /// Times it runs, relative to others.
    pub weight: u64,
}

/// Addresses at which the lanes of some warps access a shared tensor, before the swizzle, in elements.
struct Trace {
    /// Bytes at one address.
    bytes: u32,
    /// Warps whose lanes are arranged alike.
    warps: Vec<Lanes>,
}

/// Warps whose lanes lie at the same distances, and the calls that each makes.
struct Lanes {
    /// The bits of the lanes' addresses that are not the same in all lanes.
    distances: Vec<i64>,
    /// The distance of lane 2^b for each bit b of the lane, where all distances are sums of these, without a carry.
    bases: Option<Vec<i64>>,
    /// All these bits.
    bits: i64,
    /// Groups of calls that take as many wavefronts each, whatever the swizzle: what is added in one of them, and how many
    /// there are.
    calls: Vec<(i64, u32)>,
}

impl Lanes {
    fn new(distances: Vec<i64>) -> Self {
        let bases: Vec<i64> = (0..distances.len().ilog2()).map(|bit| distances[1 << bit]).collect();
        let sum = |lane: usize| {
            let of_lane = bases.iter().enumerate().filter(|(bit, _)| lane >> bit & 1 == 1);
            of_lane.fold(0, |sum, (_, base)| sum ^ base)
        };
        let linear = distances.len().is_power_of_two()
            && distances.iter().enumerate().all(|(lane, distance)| sum(lane) == *distance);
        let bits = distances.iter().fold(0, |bits, distance| bits | distance);
        Lanes { bases: linear.then_some(bases), distances, bits, calls: Vec::new() }
    }

    /// The wavefronts of a call of `bytes` a lane, where `address` is linear over bits and lanes lie at sums of few distances.
    fn linear(&self, call: i64, bytes: u32, address: impl Fn(i64) -> u64) -> Option<Wavefronts> {
        let bases = self.bases.as_ref()?;
        let mut lanes = [0; 5];
        lanes.iter_mut().zip(bases).for_each(|(lane, base)| *lane = address(*base));
        let apart = call & self.bits == 0 && address(call).is_multiple_of(u64::from(bytes));
        if apart { linear_wavefronts(&lanes[..bases.len()], bytes) } else { None }
    }

    fn add(&mut self, offset: i64) {
        // Where an offset shares no bit with the lanes' addresses, it exchanges banks and words for others, all alike: a swizzle is
        // linear over bits.
        let apart = |offset: i64| offset & self.bits == 0;
        if !apart(offset) {
            return self.calls.push((offset, 1));
        }
        match self.calls.first_mut() {
            Some((first, count)) if apart(*first) => *count += 1,
            _ => self.calls.insert(0, (offset, 1)),
        }
    }
}

impl Trace {
    fn new(usage: &SharedUse<'_>, layout: &Layout, warps: std::ops::Range<i64>) -> Option<Self> {
        let is_identity = coalesce(usage.own) == Layout::identity(usage.own.size());
        let memory = if is_identity { layout.clone() } else { compose(layout, usage.own).ok()? };
        let threads = compose(&memory, &usage.access.threads).ok()?;
        // Addresses of threads and of calls are added.
        let coordinates = usage.access.threads.image();
        if !adds(&memory, &coordinates, usage.access.calls.iter().map(|call| call.offset)) {
            return None;
        }
        let lanes = match usage.row.kind {
            CopyKind::Matrix { count, .. } => 8 * i64::from(count),
            _ => 32,
        };
        let offsets: Vec<i64> = usage.access.calls.iter().map(|call| memory.eval(call.offset)).collect();
        let starts = threads.table();
        let start =
            |thread: i64| starts.get(thread as usize).copied().unwrap_or_else(|| threads.eval(thread));
        let mut groups: Vec<Lanes> = Vec::new();
        for warp in warps {
            let starts: Vec<i64> = (0..lanes).map(|lane| start(32 * warp + lane)).collect();
            let common = starts.iter().fold(-1, |bits, start| bits & start);
            let distances: Vec<i64> = starts.iter().map(|start| start - common).collect();
            let group = match groups.iter().position(|group| group.distances == distances) {
                Some(group) => group,
                None => {
                    groups.push(Lanes::new(distances));
                    groups.len() - 1
                }
            };
            offsets.iter().for_each(|offset| groups[group].add(common + offset));
        }
        Some(Trace { bytes: usage.row.bytes, warps: groups })
    }

    /// The bits of the offsets of all accesses, in elements.
    fn bits(&self) -> i64 {
        let group = |lanes: &Lanes| {
            let places = |(call, _): &(i64, u32)| {
                lanes.distances.iter().fold(0, |bits, distance| bits | (distance + call))
            };
            lanes.calls.iter().map(places).fold(0, |bits, call| bits | call)
        };
        self.warps.iter().map(group).fold(0, |bits, lanes| bits | lanes)
    }

    /// The wavefronts of all calls under a swizzle, with elements of `bits`. The count ends early once it reaches `enough`.
    fn wavefronts(&self, swizzle: Swizzle, bits: u32, enough: u64) -> Wavefronts {
        let mut total = Wavefronts::default();
        let mut addresses = [0; 32];
        let address = |offset: i64| swizzle.apply(offset) as u64 * u64::from(bits) / 8;
        for lanes in &self.warps {
            for (call, count) in &lanes.calls {
                let linear = bits.is_power_of_two().then(|| lanes.linear(*call, self.bytes, address));
                let w = linear.flatten().unwrap_or_else(|| {
                    for (at, distance) in addresses.iter_mut().zip(&lanes.distances) {
                        *at = address(distance + call) as u32;
                    }
                    shared_wavefronts(&addresses[..lanes.distances.len()], self.bytes)
                });
                total.actual += w.actual * count;
                total.ideal += w.ideal * count;
                if u64::from(total.actual) >= enough {
                    return total;
                }
            }
        }
        total
    }
}

/// Counts the wavefronts of one execution of an access by the warps in `warps`, all calls, of elements of `bits`.
pub fn count(
    usage: &SharedUse<'_>,
    layout: &SwizzledLayout,
    bits: u32,
    warps: std::ops::Range<i64>,
) -> Option<Wavefronts> {
    Some(Trace::new(usage, &layout.layout, warps)?.wavefronts(layout.swizzle, bits, u64::MAX))
}

/// The modes of a tensor that every reference fixes, its stages; none where nothing refers to it.
pub fn stage_modes<'a>(rank: usize, references: impl IntoIterator<Item = &'a TensorRef>) -> Vec<usize> {
    let references: Vec<&TensorRef> = references.into_iter().collect();
    let fixed = |mode: &usize| references.iter().all(|r| matches!(r.index.get(*mode), Some(Some(_))));
    if references.is_empty() { Vec::new() } else { (0..rank).filter(fixed).collect() }
}

/// The swizzle with the fewest weighted wavefronts over all uses, the plainest among equals; with that number and the
/// number of a layout without conflicts. `vector` is the longest run of elements that must stay together. Where the layout
/// is repeated every `stage` elements, the swizzle's period divides that, so that it does not tell stages apart. `None` where no
/// swizzle leaves fewer than `bound` wavefronts beyond the ideal.
pub fn choose_swizzle(
    memory: &Layout,
    uses: &[SharedUse<'_>],
    bits: u32,
    vector: i64,
    stage: Option<i64>,
    bound: u64,
) -> Option<(Swizzle, u64, u64)> {
    let size = memory.size();
    let base = (vector.max(1) as u64).ilog2();
    if !vector.max(1).count_ones().eq(&1) {
        return None;
    }
    let traces: Vec<(Trace, u64)> =
        uses.iter().map(|u| Some((Trace::new(u, memory, 0..1)?, u.weight))).collect::<Option<_>>()?;
    let plain: Vec<Wavefronts> =
        traces.iter().map(|(t, _)| t.wavefronts(Swizzle::NONE, bits, u64::MAX)).collect();
    let sum = |pick: fn(&Wavefronts) -> u32| -> u64 {
        plain.iter().zip(&traces).map(|(w, (_, weight))| u64::from(pick(w)) * weight).sum()
    };
    let ideal = sum(|w| w.ideal);
    let bound = ideal.saturating_add(bound);
    let mut best = (Swizzle::NONE, sum(|w| w.actual).min(bound));
    // The cost of a swizzle, or a number that is not below `best`.
    let cost = |swizzle: Swizzle, best: u64| -> u64 {
        let mut sum = 0;
        for (trace, weight) in &traces {
            let enough = (best - sum).div_ceil((*weight).max(1));
            sum += u64::from(trace.wavefronts(swizzle, bits, enough).actual) * weight;
            if sum >= best {
                break;
            }
        }
        sum
    };
    // The bits of offsets that vary. A swizzle whose highest source bit never varies is one with a smaller field.
    let varies = traces.iter().map(|(trace, _)| trace.bits()).fold(0, |bits, trace| bits | trace);
    // Fields that begin where vectors end come first; higher ones matter where a row has fewer vectors than a phase has lanes.
    for (start, field) in (base..base + 4).flat_map(|start| (1..=5u32).map(move |field| (start, field))) {
        if best.1 == ideal || size % (1i64 << (start + field)) != 0 {
            continue;
        }
        // Bits of the field are exchanged with bits at least as high as its end.
        for shift in field..=16 {
            if (1i64 << (start + shift)) >= size || best.1 == ideal {
                break;
            }
            let highest = 1i64 << (start + field - 1 + shift);
            let Ok(swizzle) = Swizzle::new(field, start, shift) else { continue };
            if stage.is_some_and(|stage| stage % swizzle.period() != 0) {
                break;
            }
            if varies & highest == 0 {
                continue;
            }
            let c = cost(swizzle, best.1);
            if c < best.1 {
                best = (swizzle, c);
            }
        }
    }
    (best.1 < bound).then_some((best.0, best.1, ideal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(shape: &[i64], known: &[(i64, i64, i64)]) -> Constraint {
        let known =
            known.iter().map(|&(extent, coordinate, stride)| Known { extent, coordinate, stride }).collect();
        Constraint { shape: shape.to_vec(), known }
    }

    fn run(text: &str) -> Layout {
        text.parse().unwrap()
    }

    /// Fig. 10 (c), case 1: `((8,8),64):((1,D1),D2)` and one that knows stride 8 at coordinate 16.
    #[test]
    fn figure_10_case_1_refines_the_unknown_mode() {
        let c1 = known(&[64, 64], &[(8, 1, 1)]);
        let c2 = known(&[64, 64], &[(4, 16, 8)]);
        let c = c1.unify(&c2).unwrap();
        assert_eq!(c1.to_string(), "((8,8),64):((1,D1),D2)");
        assert_eq!(c.to_string(), "((8,2,4),64):((1,D1,8),D2)");
        assert_eq!(c2.unify(&c1), Ok(c.clone()));
        let m = c.materialise().unwrap();
        assert!(m.is_bijective_onto(64 * 64), "{m}");
    }

    /// Fig. 10 (c), case 2: two modes of shape 8 and stride 1.
    #[test]
    fn figure_10_case_2_has_no_layout() {
        let c1 = Constraint::contiguous(&[64, 64], &run("8:1"));
        let c2 = Constraint::contiguous(&[64, 64], &run("8:64"));
        assert_eq!(c1.unify(&c2), Err(UnifyError::SameAddress(1)));
    }

    #[test]
    fn a_shorter_run_is_part_of_a_longer_one() {
        let long = Constraint::contiguous(&[64, 64], &run("8:64"));
        let short = Constraint::contiguous(&[64, 64], &run("2:64"));
        assert_eq!(long.unify(&short), Ok(long.clone()));
        assert_eq!(short.unify(&long), Ok(long.clone()));
        assert_eq!(long.materialise().unwrap().to_string(), "(64,64):(64,1)");
    }

    #[test]
    fn materialised_layouts_are_bijections_that_keep_the_run() {
        for (shape, run) in [
            (vec![64, 32], "8:64"),
            (vec![64, 32], "8:1"),
            (vec![48, 20], "4:48"),
            (vec![16, 16], "(2,2):(16,8)"),
            (vec![4, 6, 8], "2:24"),
            (vec![128], "4:1"),
        ] {
            let run: Layout = run.parse().unwrap();
            let m = Constraint::contiguous(&shape, &run).materialise().unwrap();
            assert!(m.is_bijective_onto(shape.iter().product()), "{m}");
            for i in 0..run.size() {
                assert_eq!(m.eval(run.eval(i)), i);
            }
        }
    }
}
