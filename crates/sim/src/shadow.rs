//! Shadow memory: who wrote each byte, who has read it since, and whether those accesses are ordered.
//!
//! Exact to the byte, and cheap where 16 bytes share their history: such a granule has one cell, and is split into a
//! cell a byte when an access touches a part of it.
//!
//! Two accesses are ordered when the agent of the second knows of the first ([`View`]), or when the same thread makes both.
//! A matrix instruction moves data between lanes, so it is nobody's own access: it is ordered with a lane's plain accesses
//! only by a barrier. What an asynchronous engine accesses after an ordinary access must also be fenced.
//!
//! # What a cell remembers
//!
//! Every access that a later one may race with, and no other. A write forgets what is ordered before it: order is transitive, so that
//! an access that is not after the forgotten is not after the write either, and races with that. This fails where being unordered with the
//! write is no race: two atomic additions, two writes of equal bytes. So both stay ([`Rest::live`]), and what they were ordered after
//! stays behind them ([`Rest::stale`]), to be compared with others that add, or write these bytes. A later access of a lane takes the
//! place of its earlier one of the same sort, for an agent that knows of the later knows of the earlier: a cell never holds more accesses than
//! the cluster has threads and units, times the statements that access it.

use crate::clock::{Agent, Space, View};
use crate::findings::RaceKind;

/// Bytes of a granule.
const GRANULE: u32 = 16;
/// The access is a matrix instruction's.
pub(crate) const COLLECTIVE: u8 = 1;
/// The byte is the destination of an asynchronous copy in flight.
const PENDING: u8 = 2;
/// The access is made by an asynchronous operation.
pub(crate) const ASYNC: u8 = 4;
/// An asynchronous operation's access is not made by the asynchronous proxy, but as ordinary instructions make theirs.
pub(crate) const ORDINARY: u8 = 8;
/// The access adds to what is there as one step.
pub(crate) const ATOMIC: u8 = 16;
/// The access writes.
const WRITES: u8 = 32;

/// Kind of an access to shared bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Read.
    Read,
    /// Written.
    Write,
    /// Begun to be written by an asynchronous copy.
    Issue,
    /// Combined with what is there, as one step.
    Combine,
}

/// One access, as the shadow remembers it. Time 0 means that there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    /// The agent's time.
    pub time: u32,
    /// Index into the program's statements.
    pub statement: u32,
    /// The lanes that make it; all of a unit's or a matrix instruction's.
    pub lanes: u32,
    /// The agent.
    pub agent: Agent,
    /// The thread in its block.
    pub thread: u16,
    /// The block in its cluster.
    pub rank: u8,
    /// Its kind: [`WRITES`], [`ATOMIC`], [`ASYNC`] and the other flags.
    pub flags: u8,
}

impl Access {
    fn happened(&self) -> bool {
        self.time != 0
    }

    /// True if it has this flag.
    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// True if the asynchronous proxy makes it.
    fn proxied(&self) -> bool {
        self.flags & (ASYNC | ORDINARY) == ASYNC
    }

    /// Lanes of this access that are not those of the later one `now`, in whose program order they would come before.
    fn others(&self, now: &Access, view: &View<'_>) -> u32 {
        if self.is(ASYNC) {
            return self.lanes;
        }
        if self.is(COLLECTIVE) {
            let both_write = self.is(WRITES) && now.is(WRITES);
            let same =
                both_write && now.is(COLLECTIVE) && self.thread == now.thread && self.agent == now.agent;
            return if same { 0 } else { self.lanes };
        }
        if now.is(COLLECTIVE) { self.lanes } else { self.lanes & !view.own(self.agent) }
    }

    /// True if a later access of these lanes takes the place of this one.
    fn same(&self, now: &Access) -> bool {
        self.agent == now.agent && self.flags == now.flags
    }

    /// Adds an access to others, in which it takes the place of its lanes' earlier ones of the same sort.
    fn join(self, others: &mut Vec<Access>) {
        let mut new = self;
        others.retain_mut(|old| {
            if !old.same(&new) {
                return true;
            }
            if old.time == new.time && old.statement == new.statement {
                new.lanes |= old.lanes;
                return false;
            }
            old.lanes &= !self.lanes;
            old.lanes != 0
        });
        others.push(new);
    }
}

/// Conflict of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A race with an earlier access, in these bytes.
    Race { kind: RaceKind, first: Access, first_writes: bool, offset: u32, bytes: u32 },
    /// The byte was never written, or not since its tensor's life began.
    Uninitialised { offset: u32 },
}

/// An access that is being made, and what its maker knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    /// The access.
    pub access: Access,
    /// The knowledge.
    pub view: View<'a>,
    /// The memory.
    pub space: Space,
    /// The tensor that its statement means, where several lie at the same place; 0 if that is not known.
    pub tensor: u16,
}

impl Now<'_> {
    fn writing(&self, pending: bool) -> Self {
        let mut now = *self;
        now.access.flags |= if pending { WRITES | PENDING } else { WRITES };
        now
    }
}

/// Comparison of the bytes that a write brings with those in memory, as far as it matters to races.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finds {
    /// The very bytes that it writes, the last write's.
    Equal,
    /// Others.
    Different,
    /// Both: they have to be looked at one by one.
    Mixed,
}

/// An access that is not ordered before another: the kind of race, and its lanes.
type Unordered = (RaceKind, u32);

/// True if an earlier access is ordered before `now`.
fn unordered(first: &Access, now: &Now<'_>) -> Option<Unordered> {
    let Access { agent, time, lanes, .. } = *first;
    let view = &now.view;
    let writes = first.is(WRITES);
    let mut rest = if writes { view.unseen(agent, time, lanes) } else { view.unread(agent, time, lanes) };
    if rest != 0 {
        rest &= first.others(&now.access, view);
    }
    if rest != 0 {
        let kind = match (first.is(ASYNC), writes) {
            (true, true) => RaceKind::AsyncPending,
            (true, false) => RaceKind::AsyncRead,
            _ if writes && now.access.is(WRITES) => RaceKind::WriteWrite,
            _ => RaceKind::ReadWrite,
        };
        return Some((kind, rest));
    }
    if first.proxied() || !now.access.proxied() {
        return None;
    }
    let (rest, kind) = if writes {
        (view.unfenced(now.space, agent, time, lanes), RaceKind::MissingProxyFence)
    } else {
        (view.unread_fenced(now.space, agent, time, lanes), RaceKind::ReadWithoutProxyFence)
    };
    (rest != 0).then_some((kind, rest))
}

/// The bytes of a cell.
#[derive(Clone, Copy)]
struct Bytes {
    offset: u32,
    count: u32,
}

impl Bytes {
    fn report(self, first: &Access, (kind, lanes): Unordered, report: &mut impl FnMut(Event)) {
        let mut first = *first;
        if !first.is(ASYNC | COLLECTIVE) {
            // An entry stands for several lanes: name one that races.
            first.thread = first.thread / 32 * 32 + lanes.trailing_zeros() as u16;
        }
        let first_writes = first.is(WRITES);
        report(Event::Race { kind, first, first_writes, offset: self.offset, bytes: self.count });
    }
}

/// Further accesses that a cell remembers: of those that may be unordered without a race.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Rest {
    /// Writes that are unordered with the last one, and with each other.
    live: Vec<Access>,
    /// Accesses that writes are ordered after: an access that is unordered with a write need not be with these.
    stale: Vec<Access>,
    /// True if the last write is ordered after all else.
    joined: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Cell {
    /// The last write.
    write: Access,
    /// The tensor for which it was written: to others at the same place it is as if nothing had been. 0 where that is not known.
    tensor: u16,
    /// Readers since that do not know of each other.
    reads: Vec<Access>,
    rest: Option<Box<Rest>>,
}

impl Cell {
    /// True if nothing was written for the tensor that an access means.
    fn is_empty(&self, now: &Now<'_>) -> bool {
        let other = self.tensor != now.tensor && self.tensor != 0 && now.tensor != 0;
        !self.write.happened() || other
    }

    fn pending(&self, at: Bytes, report: &mut impl FnMut(Event)) -> bool {
        let pending = self.write.is(PENDING);
        if pending {
            at.report(&self.write, (RaceKind::AsyncPending, self.write.lanes), report);
        }
        pending
    }

    /// The writes that are not known to be ordered with each other.
    fn writes(&self) -> impl Iterator<Item = &Access> {
        let live = self.rest.iter().flat_map(|rest| &rest.live);
        live.chain(std::iter::once(&self.write).filter(|write| write.happened()))
    }

    fn read(&mut self, now: &Now<'_>, at: Bytes, report: &mut impl FnMut(Event)) {
        if !self.pending(at, report) {
            for write in self.writes() {
                if let Some(how) = unordered(write, now) {
                    at.report(write, how, report);
                }
            }
            if self.is_empty(now) {
                report(Event::Uninitialised { offset: at.offset });
            }
        }
        self.remember_reader(now);
    }

    fn remember_reader(&mut self, now: &Now<'_>) {
        let access = &now.access;
        let (mut found, mut alone) = (None, true);
        for read in self.reads.iter_mut().filter(|r| r.same(access)) {
            if (read.time, read.statement) == (access.time, access.statement) {
                found = Some(read);
            } else {
                alone = false;
            }
        }
        if let Some(read) = found.filter(|_| alone) {
            read.lanes |= access.lanes;
            return;
        }
        self.reads.retain(|r| unordered(r, now).is_some());
        access.join(&mut self.reads);
    }

    fn write(&mut self, now: &Now<'_>, finds: Finds, at: Bytes, report: &mut impl FnMut(Event)) {
        self.tensor = now.tensor;
        if self.pending(at, report) {
            (self.write, self.rest) = (now.access, None);
            self.reads.clear();
            return;
        }
        // Nobody may be unordered with an ordinary write to shared memory, so that it hides what it is ordered after.
        let hides = !now.access.is(ATOMIC) && now.space != Space::GLOBAL && self.rest.is_none();
        if hides {
            if let Some(how) = self.write.happened().then(|| unordered(&self.write, now)).flatten() {
                at.report(&self.write, how, report);
            }
            self.overtake_readers(now, at, report, |_| {});
        } else if self.write.happened() || !self.reads.is_empty() {
            self.rest = self.overwrite(now, finds, at, report).map(Box::new);
        }
        self.write = now.access;
    }

    /// Reports the first of the readers that races; calls `f` with those that do not.
    fn overtake_readers(
        &mut self,
        now: &Now<'_>,
        at: Bytes,
        report: &mut impl FnMut(Event),
        mut f: impl FnMut(Access),
    ) {
        let mut found = false;
        for read in self.reads.drain(..) {
            match unordered(&read, now) {
                Some(how) if !found => {
                    at.report(&read, how, report);
                    found = true;
                }
                Some(_) => {}
                None => f(read),
            }
        }
    }

    /// Records a write; returns the accesses to remember beside it, if others may be unordered with it.
    fn overwrite(
        &mut self,
        now: &Now<'_>,
        finds: Finds,
        at: Bytes,
        report: &mut impl FnMut(Event),
    ) -> Option<Rest> {
        let add = now.access.is(ATOMIC);
        // Whether being unordered with this write is no race.
        let may =
            |write: &Access| if add { write.is(ATOMIC) } else { !write.is(ATOMIC) && finds == Finds::Equal };
        let mut rest = self.rest.take().map_or_else(Rest::default, |rest| *rest);
        let (mut live, mut before) = (Vec::new(), Vec::new());
        let alone = rest.live.is_empty() && rest.joined;
        for write in rest.live.drain(..).chain(std::iter::once(self.write).filter(Access::happened)) {
            match unordered(&write, now) {
                Some(_) if may(&write) => write.join(&mut live),
                Some(how) => at.report(&write, how, report),
                None if !may(&write) => before.push(write),
                None => {}
            }
        }
        if !live.is_empty() {
            rest.stale.retain(|old| {
                let how = unordered(old, now);
                how.inspect(|how| at.report(old, *how, report)).is_none()
            });
        }
        // An access that is not after the last write, if that was after all else, races with it.
        if alone && !before.is_empty() {
            rest.stale.clear();
        }
        self.overtake_readers(now, at, report, |read| before.push(read));
        before.into_iter().for_each(|access| access.join(&mut rest.stale));
        rest.joined = live.is_empty();
        // An addition or a write of the same bytes by the same lane covers its earlier one.
        let now = &now.access;
        live.retain_mut(|old| {
            old.lanes &= if old.same(now) { !now.lanes } else { u32::MAX };
            old.lanes != 0
        });
        rest.live = live;
        (!rest.live.is_empty() || !rest.stale.is_empty()).then_some(rest)
    }
}

#[derive(Clone, Debug)]
enum Granule {
    Whole(Cell),
    Split(Box<[Cell; GRANULE as usize]>),
}

/// The shadow of a block's shared memory, or of a page of global memory.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    granules: Vec<Granule>,
}

impl Shadow {
    pub(crate) fn new(bytes: u32) -> Self {
        Shadow { granules: vec![Granule::Whole(Cell::default()); bytes.div_ceil(GRANULE) as usize] }
    }

    /// Applies `f` to the cells of a range, with the bytes of each; where `apart` says so of a granule, to a cell a byte.
    fn visit(
        &mut self,
        offset: u32,
        bytes: u32,
        apart: impl Fn(&Cell, Bytes) -> bool,
        mut f: impl FnMut(&mut Cell, Bytes),
    ) {
        let mut at = offset;
        let end = offset.saturating_add(bytes);
        while at < end {
            let index = at / GRANULE;
            let stop = end.min((index + 1) * GRANULE);
            let Some(granule) = self.granules.get_mut(index as usize) else { return };
            let complete = stop - at == GRANULE;
            let all = Bytes { offset: at, count: GRANULE };
            if let Granule::Whole(cell) = granule {
                if complete && !apart(cell, all) {
                    f(cell, all);
                    at = stop;
                    continue;
                }
                *granule = Granule::Split(Box::new(std::array::from_fn(|_| cell.clone())));
            }
            let Granule::Split(cells) = granule else { return };
            let touched = &mut cells[(at % GRANULE) as usize..][..(stop - at) as usize];
            touched.iter_mut().zip(at..).for_each(|(cell, offset)| f(cell, Bytes { offset, count: 1 }));
            if complete && cells.iter().all(|cell| *cell == cells[0]) {
                *granule = Granule::Whole(cells[0].clone());
            }
            at = stop;
        }
    }

    /// A read of `bytes` at `offset`.
    pub(crate) fn read(&mut self, offset: u32, bytes: u32, now: &Now<'_>, report: &mut impl FnMut(Event)) {
        self.visit(offset, bytes, |_, _| false, |cell, at| cell.read(now, at, report));
    }

    /// A combination of `bytes` at `offset` with what is there, which must be something.
    pub(crate) fn combine(&mut self, offset: u32, bytes: u32, now: &Now<'_>, report: &mut impl FnMut(Event)) {
        let mut now = now.writing(false);
        now.access.flags |= ATOMIC;
        self.visit(
            offset,
            bytes,
            |_, _| false,
            |cell, at| {
                if cell.is_empty(&now) {
                    report(Event::Uninitialised { offset: at.offset });
                }
                cell.write(&now, Finds::Different, at, report);
            },
        );
    }

    /// A write of `bytes` at `offset`.
    pub(crate) fn write(&mut self, offset: u32, bytes: u32, now: &Now<'_>, report: &mut impl FnMut(Event)) {
        let now = &now.writing(false);
        let finds = Finds::Different;
        self.visit(offset, bytes, |_, _| false, |cell, at| cell.write(now, finds, at, report));
    }

    /// The same where equal bytes do not race; `finds` says of a range what it holds.
    pub(crate) fn write_over(
        &mut self,
        offset: u32,
        bytes: u32,
        now: &Now<'_>,
        finds: impl Fn(u32, u32) -> Finds,
        report: &mut impl FnMut(Event),
    ) {
        let now = &now.writing(false);
        let apart =
            |cell: &Cell, at: Bytes| cell.write.happened() && finds(at.offset, at.count) == Finds::Mixed;
        self.visit(offset, bytes, apart, |cell, at| {
            let finds = if cell.write.happened() { finds(at.offset, at.count) } else { Finds::Different };
            cell.write(now, finds, at, report)
        });
    }

    /// The issue of an asynchronous copy into these bytes.
    pub(crate) fn issue(&mut self, offset: u32, bytes: u32, now: &Now<'_>, report: &mut impl FnMut(Event)) {
        let now = &now.writing(true);
        let finds = Finds::Different;
        self.visit(offset, bytes, |_, _| false, |cell, at| cell.write(now, finds, at, report));
    }

    /// The landing of an asynchronous copy in these bytes: a write of the waiting thread, at the wait, or of an engine.
    pub(crate) fn land(&mut self, offset: u32, bytes: u32, mut access: Access) {
        access.flags |= WRITES;
        self.visit(
            offset,
            bytes,
            |_, _| false,
            |cell, _| {
                cell.write = access;
                cell.reads.clear();
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{HappensBefore, Knowledge};

    /// The warps of a block.
    struct Block(Vec<Knowledge>);

    impl Block {
        fn new() -> Self {
            Block((0..2).map(|w| Knowledge::new(w, u32::MAX)).collect())
        }

        fn by(&self, thread: u32) -> Now<'_> {
            let (warp, lane) = (&self.0[(thread / 32) as usize], 1 << (thread % 32));
            let (time, agent) = (warp.time, (thread / 32) as Agent);
            let access = Access {
                time,
                statement: thread,
                lanes: lane,
                agent,
                thread: thread as u16,
                rank: 0,
                flags: 0,
            };
            Now { access, view: warp.view(lane), space: Space::shared(0), tensor: 0 }
        }

        fn warp_barrier(&mut self, warp: usize) {
            self.0[warp].meet_lanes();
        }

        fn barrier(&mut self) {
            let mut all = HappensBefore::default();
            for warp in &mut self.0 {
                warp.meet_lanes();
                all.join(warp.everyone());
            }
            self.0.iter_mut().for_each(|warp| warp.acquire(u32::MAX, &all));
        }
    }

    fn races(shadow: &mut Shadow, f: impl FnOnce(&mut Shadow, &mut dyn FnMut(Event))) -> Vec<RaceKind> {
        let mut found = Vec::new();
        f(shadow, &mut |event| {
            if let Event::Race { kind, .. } = event {
                found.push(kind);
            }
        });
        found.dedup();
        found
    }

    #[test]
    fn neighbouring_bytes_of_different_threads_do_not_race() {
        let (mut s, b) = (Shadow::new(64), Block::new());
        let found = races(&mut s, |s, mut r| {
            s.write(0, 2, &b.by(0), &mut r);
            s.write(2, 2, &b.by(1), &mut r);
            s.write(16, 16, &b.by(2), &mut r);
            s.read(14, 2, &b.by(3), &mut r);
        });
        assert!(found.is_empty());
        assert_eq!(races(&mut s, |s, mut r| s.write(1, 1, &b.by(1), &mut r)), [RaceKind::WriteWrite]);
        assert_eq!(races(&mut s, |s, mut r| s.read(30, 4, &b.by(3), &mut r)), [RaceKind::ReadWrite]);
    }

    #[test]
    fn barriers_order_and_warp_barriers_only_within_the_warp() {
        let (mut s, mut b) = (Shadow::new(16), Block::new());
        let found = races(&mut s, |s, mut r| {
            s.write(0, 16, &b.by(0), &mut r);
            b.warp_barrier(0);
            s.read(0, 16, &b.by(1), &mut r);
            b.warp_barrier(0);
            s.write(0, 16, &b.by(2), &mut r);
            b.barrier();
            s.write(0, 16, &b.by(40), &mut r);
            b.warp_barrier(1);
        });
        assert!(found.is_empty());
        assert_eq!(races(&mut s, |s, mut r| s.read(0, 4, &b.by(0), &mut r)), [RaceKind::ReadWrite]);
    }

    #[test]
    fn a_writer_races_with_any_reader_but_itself() {
        // The writer's own read comes last, and a reader before it is remembered all the same.
        for readers in [[0, 1], [1, 0], [33, 1], [1, 33]] {
            let (mut s, mut b) = (Shadow::new(16), Block::new());
            let found = races(&mut s, |s, mut r| {
                s.write(0, 16, &b.by(1), &mut r);
                b.barrier();
                for thread in readers {
                    s.read(0, 16, &b.by(thread), &mut r);
                }
                s.write(0, 16, &b.by(1), &mut r);
            });
            assert_eq!(found, [RaceKind::ReadWrite], "{readers:?}");
        }
    }

    #[test]
    fn readers_that_are_known_do_not_hide_later_ones() {
        let (mut s, mut b) = (Shadow::new(16), Block::new());
        let found = races(&mut s, |s, mut r| {
            s.write(0, 4, &b.by(0), &mut r);
            b.barrier();
            s.read(0, 4, &b.by(1), &mut r);
            s.read(0, 4, &b.by(2), &mut r);
            b.warp_barrier(0);
            s.read(0, 4, &b.by(3), &mut r);
            s.write(0, 4, &b.by(4), &mut r);
        });
        assert_eq!(found, [RaceKind::ReadWrite]);
    }

    #[test]
    fn a_copy_in_flight_races_with_everybody() {
        let (mut s, mut b) = (Shadow::new(16), Block::new());
        assert!(races(&mut s, |s, mut r| s.issue(0, 16, &b.by(0), &mut r)).is_empty());
        b.barrier();
        assert_eq!(races(&mut s, |s, mut r| s.read(0, 2, &b.by(0), &mut r)), [RaceKind::AsyncPending]);
        s.land(0, 16, b.by(0).access);
        assert!(races(&mut s, |s, mut r| s.read(0, 2, &b.by(0), &mut r)).is_empty());
        assert_eq!(races(&mut s, |s, mut r| s.read(0, 2, &b.by(1), &mut r)), [RaceKind::ReadWrite]);
    }

    #[test]
    fn units_need_a_fence_after_ordinary_writes_and_a_wait_before_the_next() {
        let (mut s, mut b) = (Shadow::new(16), Block::new());
        let unit =
            |b: &Block, time| Access { agent: 9, time, lanes: u32::MAX, flags: ASYNC, ..b.by(0).access };
        let found = races(&mut s, |s, mut r| {
            s.write(0, 16, &b.by(0), &mut r);
            s.read(0, 16, &Now { access: unit(&b, 1), ..b.by(0) }, &mut r);
        });
        assert_eq!(found, [RaceKind::MissingProxyFence]);
        b.0[0].fence(1, &[Space::shared(0)]);
        let found = races(&mut s, |s, mut r| {
            s.read(0, 16, &Now { access: unit(&b, 2), ..b.by(0) }, &mut r);
            s.write(0, 16, &b.by(0), &mut r);
        });
        assert_eq!(found, [RaceKind::AsyncRead]);
        let mut done = HappensBefore::default();
        done.learn(9, u32::MAX, 4);
        b.0[0].fence(1, &[Space::shared(0)]);
        let found = races(&mut s, |s, mut r| {
            s.read(0, 16, &Now { access: unit(&b, 3), ..b.by(0) }, &mut r);
            b.0[0].acquire(1, &done);
            s.write(0, 16, &b.by(0), &mut r);
        });
        assert!(found.is_empty());
    }

    #[test]
    fn a_granule_written_whole_again_is_one_cell_again() {
        let (mut s, b) = (Shadow::new(16), Block::new());
        s.write(0, 2, &b.by(0), &mut |_| {});
        assert!(matches!(s.granules[0], Granule::Split(_)));
        s.write(0, 16, &b.by(0), &mut |_| {});
        assert!(matches!(s.granules[0], Granule::Whole(_)));
    }
}
