//! Races on global memory: within a cluster by its clocks, between clusters by what each has touched, for nothing orders them.
//!
//! Reads are followed only of the buffers that the function writes ([`written`]): no other can race, and these are most. Two writes of
//! the same values do not race: the blocks of a cluster may all store what they have summed up together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tilewright_machine::{BulkOp, Memory, TensorOp};
use tilewright_simt::{Function, Op, Operand};

use crate::shadow::{Event, Finds, Now, Shadow};

/// Bytes of global memory whose shadow is made together.
const PAGE: u64 = 512;

/// Ranges that are logged before they are merged.
const MERGE: usize = 1 << 16;

/// Kind of an access to global bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Touch {
    /// Read.
    Read,
    /// Written.
    Write,
    /// Added to, as one step.
    Add,
}

impl Touch {
    /// True if both at once are a race.
    fn clashes(self, other: Touch) -> bool {
        self != other || self == Touch::Write
    }

    /// True if it changes the bytes.
    pub(crate) fn writes(self) -> bool {
        self != Touch::Read
    }
}

/// A range of bytes that a statement of a cluster has touched, with one of the threads that did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) struct Range {
    pub buffer: u32,
    pub statement: u32,
    pub touch: Touch,
    pub start: u64,
    pub end: u64,
    pub thread: u16,
    pub rank: u8,
    pub asynchronous: bool,
}

impl Range {
    fn joins(&self, next: &Range) -> bool {
        let key = |r: &Range| (r.buffer, r.statement, r.touch);
        key(self) == key(next) && self.start <= next.start && next.start <= self.end
    }
}

/// Accesses of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Log {
    ranges: Vec<Range>,
    /// Number of ranges before they are merged.
    limit: usize,
}

impl Log {
    fn push(&mut self, range: Range) {
        if let Some(last) = self.ranges.last_mut().filter(|last| last.joins(&range)) {
            last.end = last.end.max(range.end);
            return;
        }
        if self.ranges.len() >= self.limit.max(MERGE) {
            self.merge();
            self.limit = 2 * self.ranges.len();
        }
        self.ranges.push(range);
    }

    fn merge(&mut self) {
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, last| {
            let joins = last.joins(next);
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
    }

    /// The ranges, merged.
    pub(crate) fn finish(mut self) -> Vec<Range> {
        self.merge();
        self.ranges
    }
}

/// A page of what a cluster has written.
#[derive(Debug)]
struct Page {
    /// The bytes that it has last written.
    bytes: [u8; PAGE as usize],
    /// Bits of the bytes that it has written.
    written: [u64; PAGE as usize / 64],
    /// Those that it has written with several values.
    mixed: [u64; PAGE as usize / 64],
}

fn bit(mask: &[u64], at: usize) -> bool {
    mask[at / 64] >> (at % 64) & 1 != 0
}

/// Values written by a cluster, by buffer and page.
#[derive(Debug, Default)]
struct Values(HashMap<(u32, u64), Box<Page>>);

impl Values {
    /// The one value that the cluster has written to a byte.
    fn only(&self, buffer: u32, at: u64) -> Option<u8> {
        let (page, at) = (self.0.get(&(buffer, at / PAGE))?, (at % PAGE) as usize);
        (bit(&page.written, at) && !bit(&page.mixed, at)).then_some(page.bytes[at])
    }

    /// Compares the bytes that a write brings with those last written at that place of a page.
    fn finds(&self, buffer: u32, at: u64, data: &[u8]) -> Finds {
        let Some(page) = self.0.get(&(buffer, at / PAGE)) else { return Finds::Different };
        let equal = page.bytes.iter().skip((at % PAGE) as usize).zip(data).filter(|(old, new)| old == new);
        match equal.count() {
            0 => Finds::Different,
            n if n == data.len() => Finds::Equal,
            _ => Finds::Mixed,
        }
    }

    fn put(&mut self, buffer: u32, start: u64, data: &[u8]) {
        let (mut at, mut rest) = (start, data);
        while !rest.is_empty() {
            let new = || Box::new(Page { bytes: [0; PAGE as usize], written: [0; 8], mixed: [0; 8] });
            let page = self.0.entry((buffer, at / PAGE)).or_insert_with(new);
            let from = (at % PAGE) as usize;
            let len = (PAGE as usize - from).min(rest.len());
            for (at, byte) in (from..).zip(&rest[..len]) {
                let mask = 1 << (at % 64);
                if page.written[at / 64] & mask != 0 && page.bytes[at] != *byte {
                    page.mixed[at / 64] |= mask;
                }
                page.written[at / 64] |= mask;
                page.bytes[at] = *byte;
            }
            rest = &rest[len..];
            at += len as u64;
        }
    }

    /// The first of these bytes to which not only one value was written, here and there.
    fn differ(&self, other: &Values, buffer: u32, mut range: std::ops::Range<u64>) -> Option<u64> {
        range.find(|at| self.only(buffer, *at).is_none_or(|v| other.only(buffer, *at) != Some(v)))
    }
}

/// The global memory of a cluster that is being executed.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pages: HashMap<(u32, u64), Shadow>,
    values: Values,
    log: Log,
}

/// Accesses of a cluster, and the values that it has written.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    ranges: Vec<Range>,
    values: Values,
}

impl Watched {
    /// Accesses of an ended cluster.
    pub(crate) fn finish(self) -> Touched {
        Touched { ranges: self.log.finish(), values: self.values }
    }

    /// Notes an access, which writes `data` if it writes; events have offsets in the buffer.
    pub(crate) fn note(
        &mut self,
        range: Range,
        data: &[u8],
        now: &Now<'_>,
        report: &mut impl FnMut(Event, u64),
    ) {
        self.log.push(range);
        let mut at = range.start;
        while at < range.end {
            let (page, offset) = (at / PAGE, (at % PAGE) as u32);
            let bytes = (range.end - at).min(PAGE - at % PAGE) as u32;
            let shadow = self.pages.entry((range.buffer, page)).or_insert_with(|| Shadow::new(PAGE as u32));
            let values = &self.values;
            let report = &mut |event| {
                if let Event::Race { offset, .. } = event {
                    report(event, page * PAGE + u64::from(offset));
                }
            };
            let finds = |offset: u32, bytes: u32| {
                let from = page * PAGE + u64::from(offset);
                let range_of = (from - range.start) as usize;
                values.finds(range.buffer, from, data.get(range_of..range_of + bytes as usize).unwrap_or(&[]))
            };
            match range.touch {
                Touch::Read => shadow.read(offset, bytes, now, report),
                Touch::Write => shadow.write_over(offset, bytes, now, finds, report),
                Touch::Add => shadow.write(offset, bytes, now, report),
            }
            at += u64::from(bytes);
        }
        if range.touch == Touch::Write {
            self.values.put(range.buffer, range.start, data);
        }
    }
}

/// The range of a statement that reaches furthest, and the one that does of other clusters.
#[derive(Clone, Copy, Debug, Default)]
struct Furthest([Option<(u64, Range)>; 2]);

impl Furthest {
    fn insert(&mut self, cluster: u64, range: Range) {
        let [first, second] = &mut self.0;
        match first {
            Some((of, known)) if *of == cluster => {
                if range.end > known.end {
                    *known = range;
                }
            }
            Some((_, known)) if known.end >= range.end => {
                if second.is_none_or(|(_, known)| known.end < range.end) {
                    *second = Some((cluster, range));
                }
            }
            _ => {
                *second = *first;
                *first = Some((cluster, range));
            }
        }
    }

    /// The one that reaches furthest of those that are not this cluster's.
    fn other(&self, cluster: u64) -> Option<(u64, Range)> {
        self.0.into_iter().flatten().find(|(of, _)| *of != cluster)
    }
}

/// Calls `report` for each range that races with one of another cluster: the earlier in memory of both, then the other, and a byte.
///
/// Of the ranges that a statement touches, each is compared with the one that reaches furthest of those that begin before it in other
/// clusters. If any that holds a byte races with another that does, so does one of the compared: these form a tree for each byte, and
/// clusters that agree pairwise along it all agree.
pub(crate) fn conflicts(logs: &[(u64, Touched)], mut report: impl FnMut((u64, Range), (u64, Range), u64)) {
    let mut all: Vec<(u64, Range)> =
        logs.iter().flat_map(|(cluster, log)| log.ranges.iter().map(move |r| (*cluster, *r))).collect();
    let values = |cluster: u64| {
        let found = logs.binary_search_by_key(&cluster, |(of, _)| *of).ok();
        found.map(|index| &logs[index].1.values)
    };
    let raced = |(a, first): (u64, Range), (b, second): (u64, Range)| {
        let range = second.start..first.end.min(second.end);
        match values(a).zip(values(b)).filter(|_| [first.touch, second.touch] == [Touch::Write; 2]) {
            Some((a, b)) => a.differ(b, second.buffer, range),
            None => Some(range.start),
        }
    };
    all.sort_unstable_by_key(|(cluster, r)| (r.buffer, r.start, *cluster, r.statement, r.touch, r.end));
    let mut buffer = u32::MAX;
    let mut open: BTreeMap<(u32, Touch), Furthest> = BTreeMap::new();
    for (cluster, range) in all {
        if range.buffer != buffer {
            buffer = range.buffer;
            open.clear();
        }
        for ((_, touch), furthest) in &open {
            if !touch.clashes(range.touch) {
                continue;
            }
            let before = furthest.other(cluster).filter(|(_, first)| first.end > range.start);
            if let Some((first, at)) = before.and_then(|first| Some((first, raced(first, (cluster, range))?)))
            {
                report(first, (cluster, range), at);
            }
        }
        open.entry((range.statement, range.touch)).or_default().insert(cluster, range);
    }
}

/// The parameters through which a function writes global memory; all, where it writes through what comes from none.
pub(crate) fn written(function: &Function) -> BTreeSet<u32> {
    let mut sources: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); function.values.len()];
    let mut found = BTreeSet::new();
    let everything = || (0..function.params.len() as u32).collect::<BTreeSet<_>>();
    function.visit(&mut |inst| {
        let of = |operand: &Operand| match operand {
            Operand::Value(value) => sources[value.0 as usize].clone(),
            Operand::Imm(_) => BTreeSet::new(),
        };
        let mut through = |base: &Operand| {
            let of = of(base);
            found.extend(if of.is_empty() { everything() } else { of });
        };
        match &inst.op {
            Op::Param { dst, param } => {
                sources[dst.0 as usize].insert(*param);
            }
            Op::Scalar { dst, args, .. } => {
                let all = args.iter().flat_map(of).collect();
                sources[dst.0 as usize] = all;
            }
            // A pointer of an array points where the array's buffers lie.
            Op::Lookup { row, dst, address, .. } if row.bytes == 8 => {
                sources[dst.0 as usize] = of(&address.base);
            }
            Op::Store { row, address, .. } if row.dst == Memory::Global => through(&address.base),
            Op::Bulk { op: BulkOp::Store, other, .. } => through(&other.base),
            Op::Atomic { row, address, .. } if row.memory == Memory::Global => through(&address.base),
            Op::Tensor { row, map, .. } if row.op != TensorOp::Load => {
                let params = (0..).zip(&function.params).filter(|(_, p)| p.kind.map() == Some(*map));
                found.extend(params.map(|(index, _)| index));
            }
            _ => {}
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(touch: Touch, start: u64, end: u64) -> Range {
        Range { buffer: 0, statement: 0, touch, start, end, thread: 0, rank: 0, asynchronous: false }
    }

    fn found(logs: &[&[Range]]) -> usize {
        let mut count = 0;
        let touched = |log: &&[Range]| Touched { ranges: log.to_vec(), values: Values::default() };
        let logs: Vec<_> = (0..).zip(logs.iter().map(touched)).collect();
        conflicts(&logs, |(a, first), (b, second), at| {
            assert!(
                a != b && (first.start..first.end).contains(&at) && (second.start..second.end).contains(&at)
            );
            count += 1;
        });
        count
    }

    #[test]
    fn ranges_of_clusters_race_where_they_overlap_and_one_is_written() {
        use Touch::{Add, Read, Write};
        assert_eq!(found(&[&[range(Write, 0, 16)], &[range(Write, 16, 32)]]), 0);
        assert_eq!(found(&[&[range(Write, 0, 17)], &[range(Write, 16, 32)]]), 1);
        assert_eq!(found(&[&[range(Read, 0, 64)], &[range(Read, 0, 64)]]), 0);
        assert_eq!(found(&[&[range(Add, 0, 64)], &[range(Add, 0, 64)]]), 0);
        assert_eq!(found(&[&[range(Add, 0, 64)], &[range(Read, 63, 64)]]), 1);
        assert_eq!(found(&[&[range(Write, 0, 8), range(Read, 0, 8)]]), 0);
        // A long range of another cluster is found behind those of one's own.
        let own = [range(Write, 8, 16), range(Write, 24, 100), range(Write, 60, 70)];
        assert_eq!(found(&[&[range(Write, 0, 64)], &own]), 3);
    }

    #[test]
    fn clusters_may_write_the_same_values() {
        let log = |values: &[u8]| {
            let mut touched =
                Touched { ranges: vec![range(Touch::Write, 510, 514)], values: Values::default() };
            touched.values.put(0, 510, values);
            touched
        };
        for (other, races) in [([1, 2, 3, 4], 0), ([1, 2, 3, 5], 1)] {
            let mut count = 0;
            conflicts(&[(3, log(&[1, 2, 3, 4])), (5, log(&other))], |_, _, _| count += 1);
            assert_eq!(count, races);
        }
    }

    #[test]
    fn neighbouring_ranges_are_one() {
        let mut log = Log::default();
        for start in [32, 0, 16, 64] {
            log.push(range(Touch::Write, start, start + 16));
        }
        let ends: Vec<_> = log.finish().iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(ends, [(0, 48), (64, 80)]);
    }
}
