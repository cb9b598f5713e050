//! Shadow memory: who last wrote each shared byte, who has read it since, and whether those accesses are ordered.
//!
//! Exact to the byte, and cheap where 16 bytes share their history: such a granule has one cell, and is split into a
//! cell a byte when an access touches a part of it.
//!
//! Two accesses are ordered when whoever makes the second knows of the first ([`View`]), or when the same thread makes both.
//! A matrix instruction moves data between lanes, so it is nobody's own access: it is ordered with a lane's plain accesses
//! only by a barrier. What an asynchronous unit accesses after an ordinary write must also be fenced.

use crate::clock::{Agent, View, lanes};
use crate::report::RaceKind;

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

/// One access, as the shadow remembers it. Time 0 means that there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    /// The agent's time.
    pub time: u32,
    /// Index into the program's statements.
    pub statement: u32,
    /// The lanes that make it; all of a unit's or a matrix instruction's.
    pub lanes: u32,
    /// Who makes it.
    pub agent: Agent,
    /// The thread in its block.
    pub thread: u16,
    /// The block in its cluster.
    pub rank: u8,
    /// Of what sort it is.
    pub flags: u8,
}

impl Access {
    fn happened(&self) -> bool {
        self.time != 0
    }

    /// Whether it has this flag.
    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Lanes of this access that are not those of the later one `now`, in whose program order they would come before.
    fn others(&self, now: &Access, view: &View<'_>, both_write: bool) -> u32 {
        if self.is(ASYNC) {
            return self.lanes;
        }
        if self.is(COLLECTIVE) {
            let same =
                both_write && now.is(COLLECTIVE) && self.thread == now.thread && self.agent == now.agent;
            return if same { 0 } else { self.lanes };
        }
        let own = lanes(self.lanes).filter(|lane| view.is_lane(self.agent, 1 << lane));
        let own = own.fold(0, |mask, lane| mask | 1 << lane);
        if now.is(COLLECTIVE) { self.lanes } else { self.lanes & !own }
    }
}

/// What an access ran into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A race with an earlier access.
    Race { kind: RaceKind, first: Access, first_writes: bool, offset: u32 },
    /// The byte was never written.
    Uninitialised { offset: u32 },
}

/// An access that is being made, and what its maker knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    /// The access.
    pub access: Access,
    /// The knowledge.
    pub view: View<'a>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Cell {
    write: Access,
    /// Readers since the last write that do not know of each other.
    reads: Vec<Access>,
}

impl Cell {
    fn pending(&self, offset: u32, report: &mut impl FnMut(Event)) -> bool {
        let pending = self.write.is(PENDING);
        if pending {
            report(Event::Race {
                kind: RaceKind::AsyncPending,
                first: self.write,
                first_writes: true,
                offset,
            });
        }
        pending
    }

    fn read(&mut self, now: &Now<'_>, offset: u32, report: &mut impl FnMut(Event)) {
        if !self.pending(offset, report) {
            if self.write.happened() {
                check(&self.write, true, now, false, offset, report);
            } else {
                report(Event::Uninitialised { offset });
            }
        }
        self.remember_reader(now);
    }

    fn remember_reader(&mut self, Now { access: now, view }: &Now<'_>) {
        let same = |r: &Access| r.agent == now.agent && r.flags == now.flags;
        if let Some(read) = self.reads.iter_mut().find(|r| same(r) && r.time == now.time) {
            // Of lanes that race, any one is named.
            read.lanes |= now.lanes;
            return;
        }
        self.reads.retain(|r| {
            let replaced = same(r) && r.lanes & !now.lanes == 0;
            !replaced && !view.sees(r.agent, r.time, r.lanes)
        });
        self.reads.push(*now);
    }

    fn write(&mut self, now: &Now<'_>, pending: bool, offset: u32, report: &mut impl FnMut(Event)) {
        if !self.pending(offset, report) {
            if self.write.happened() {
                check(&self.write, true, now, true, offset, report);
            }
            for read in &self.reads {
                if check(read, false, now, true, offset, report) {
                    break;
                }
            }
        }
        self.write = now.access;
        if pending {
            self.write.flags |= PENDING;
        }
        self.reads.clear();
    }
}

/// Reports how an access and an earlier one race, if they do.
fn check(
    first: &Access,
    first_writes: bool,
    now: &Now<'_>,
    writes: bool,
    offset: u32,
    report: &mut impl FnMut(Event),
) -> bool {
    let both_write = first_writes && writes;
    if both_write && first.is(ATOMIC) && now.access.is(ATOMIC) {
        return false;
    }
    let mut others = 0;
    let seen = |lanes: u32| match first_writes {
        true => now.view.sees(first.agent, first.time, lanes),
        false => now.view.sees_read(first.agent, first.time, lanes),
    };
    let ordered = seen(first.lanes) || {
        others = first.others(&now.access, &now.view, both_write);
        others == 0 || (others != first.lanes && seen(others))
    };
    let unfenced = || {
        let proxy = now.access.is(ASYNC) && !now.access.is(ORDINARY);
        first_writes
            && !first.is(ASYNC)
            && proxy
            && !now.view.sees_fenced(first.agent, first.time, first.lanes)
    };
    let kind = match (first.is(ASYNC), first_writes) {
        _ if ordered && unfenced() => RaceKind::MissingProxyFence,
        _ if ordered => return false,
        (true, true) => RaceKind::AsyncPending,
        (true, false) => RaceKind::AsyncRead,
        _ if both_write => RaceKind::WriteWrite,
        _ => RaceKind::ReadWrite,
    };
    let mut first = *first;
    if !first.is(ASYNC | COLLECTIVE) && !ordered {
        // A reader stands for several lanes: name one that races.
        first.thread = first.thread / 32 * 32 + others.trailing_zeros() as u16;
    }
    report(Event::Race { kind, first, first_writes, offset });
    true
}

#[derive(Clone, Debug)]
enum Granule {
    Whole(Cell),
    Split(Box<[Cell; GRANULE as usize]>),
}

/// The shadow of a block's shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    granules: Vec<Granule>,
}

impl Shadow {
    pub(crate) fn new(bytes: u32) -> Self {
        Shadow { granules: vec![Granule::Whole(Cell::default()); bytes.div_ceil(GRANULE) as usize] }
    }

    /// Applies `f` to the cells of a range, with the offset of each cell's first byte.
    fn visit(&mut self, offset: u32, bytes: u32, mut f: impl FnMut(&mut Cell, u32)) {
        let mut at = offset;
        let end = offset.saturating_add(bytes);
        while at < end {
            let index = at / GRANULE;
            let stop = end.min((index + 1) * GRANULE);
            let Some(granule) = self.granules.get_mut(index as usize) else { return };
            let complete = stop - at == GRANULE;
            match granule {
                Granule::Whole(cell) if complete => f(cell, at),
                Granule::Whole(cell) => {
                    let mut cells = Box::new(std::array::from_fn(|_| cell.clone()));
                    cells[(at % GRANULE) as usize..][..(stop - at) as usize]
                        .iter_mut()
                        .zip(at..)
                        .for_each(|(cell, at)| f(cell, at));
                    *granule = Granule::Split(cells);
                }
                Granule::Split(cells) => {
                    cells[(at % GRANULE) as usize..][..(stop - at) as usize]
                        .iter_mut()
                        .zip(at..)
                        .for_each(|(cell, at)| f(cell, at));
                    if complete && cells.iter().all(|cell| *cell == cells[0]) {
                        *granule = Granule::Whole(cells[0].clone());
                    }
                }
            }
            at = stop;
        }
    }

    /// A read of `bytes` at `offset`.
    pub(crate) fn read(&mut self, offset: u32, bytes: u32, now: &Now<'_>, report: &mut impl FnMut(Event)) {
        self.visit(offset, bytes, |cell, at| cell.read(now, at, report));
    }

    /// A write of `bytes` at `offset`.
    pub(crate) fn write(&mut self, offset: u32, bytes: u32, now: &Now<'_>, report: &mut impl FnMut(Event)) {
        self.visit(offset, bytes, |cell, at| cell.write(now, false, at, report));
    }

    /// The issue of an asynchronous copy into these bytes.
    pub(crate) fn issue(&mut self, offset: u32, bytes: u32, now: &Now<'_>, report: &mut impl FnMut(Event)) {
        self.visit(offset, bytes, |cell, at| cell.write(now, true, at, report));
    }

    /// The landing of an asynchronous copy in these bytes: a write of whoever waits, at the wait, or of a unit.
    pub(crate) fn land(&mut self, offset: u32, bytes: u32, access: Access) {
        self.visit(offset, bytes, |cell, _| {
            cell.write = access;
            cell.reads.clear();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Knowledge, Pair};

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
            Now { access, view: warp.view(lane) }
        }

        fn warp_barrier(&mut self, warp: usize) {
            self.0[warp].meet_lanes();
        }

        fn barrier(&mut self) {
            let mut all = Pair::default();
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
        b.0[0].fence(1);
        let found = races(&mut s, |s, mut r| {
            s.read(0, 16, &Now { access: unit(&b, 2), ..b.by(0) }, &mut r);
            s.write(0, 16, &b.by(0), &mut r);
        });
        assert_eq!(found, [RaceKind::AsyncRead]);
        let mut done = Pair::default();
        done.learn(9, u32::MAX, 4);
        b.0[0].fence(1);
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
