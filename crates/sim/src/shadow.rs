//! Shadow memory: who last wrote each shared byte, who has read it since, and whether those accesses are ordered.
//!
//! Exact to the byte, and cheap where 16 bytes share their history: such a granule has one cell, and is split into a
//! cell a byte when an access touches a part of it.
//!
//! Two accesses are ordered when a block barrier lies between them, when they are of the same warp and a warp barrier
//! lies between them, or when the same thread makes both. A matrix instruction moves data between lanes, so it is
//! nobody's own access: it is ordered with a lane's plain accesses only by a barrier.

use crate::report::RaceKind;

/// Bytes of a granule.
const GRANULE: u32 = 16;
/// The access is a matrix instruction's.
const COLLECTIVE: u16 = 1;
/// The byte is the destination of an asynchronous copy in flight.
const PENDING: u16 = 2;

/// One access, as the shadow remembers it. `epoch` 0 means that there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    /// Block barriers passed, plus 1.
    pub epoch: u32,
    /// Warp or block barriers that the thread's warp has passed.
    pub warp_epoch: u32,
    /// The tile statement.
    pub origin: u32,
    /// The thread in its block.
    pub thread: u16,
    flags: u16,
}

impl Access {
    pub(crate) fn new(epoch: u32, warp_epoch: u32, origin: u32, thread: u32, collective: bool) -> Self {
        let flags = if collective { COLLECTIVE } else { 0 };
        Access { epoch, warp_epoch, origin, thread: thread as u16, flags }
    }

    fn happened(&self) -> bool {
        self.epoch != 0
    }

    fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn warp(&self) -> u16 {
        self.thread / 32
    }

    /// Whether a barrier lies between this access and the later one `now`.
    fn is_before_barrier_of(&self, now: &Access) -> bool {
        self.epoch != now.epoch || (self.warp() == now.warp() && self.warp_epoch != now.warp_epoch)
    }

    fn same_agent(&self, now: &Access, both_write: bool) -> bool {
        let (a, b) = (self.is(COLLECTIVE), now.is(COLLECTIVE));
        self.thread == now.thread && a == b && (!a || both_write)
    }

    fn races_with(&self, now: &Access, both_write: bool) -> bool {
        self.happened() && !self.is_before_barrier_of(now) && !self.same_agent(now, both_write)
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

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cell {
    write: Access,
    /// Two readers since the last write, of different threads, chosen so that any racing writer races with one.
    reads: [Access; 2],
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

    fn read(&mut self, now: &Access, offset: u32, report: &mut impl FnMut(Event)) {
        if !self.pending(offset, report) {
            if !self.write.happened() {
                report(Event::Uninitialised { offset });
            } else if self.write.races_with(now, false) {
                report(Event::Race {
                    kind: RaceKind::ReadWrite,
                    first: self.write,
                    first_writes: true,
                    offset,
                });
            }
        }
        self.remember_reader(now);
    }

    fn remember_reader(&mut self, now: &Access) {
        let [first, second] = &mut self.reads;
        let same = |a: &Access| a.thread == now.thread && a.is(COLLECTIVE) == now.is(COLLECTIVE);
        if first.epoch != now.epoch || (second.epoch != now.epoch && same(first)) {
            (*first, *second) = (*now, Access::default());
        } else if same(first) {
            *first = *now;
        } else if second.epoch != now.epoch || same(second) {
            *second = *now;
        } else if first.warp() == second.warp() {
            // Every writer races with one of two readers of different warps; else the latest warp epoch counts.
            if first.warp() != now.warp() || second.warp_epoch != now.warp_epoch {
                *second = *now;
            } else if first.warp_epoch != now.warp_epoch {
                *first = *now;
            }
        }
    }

    fn write(&mut self, now: &Access, pending: bool, offset: u32, report: &mut impl FnMut(Event)) {
        if !self.pending(offset, report) {
            if self.write.races_with(now, true) {
                report(Event::Race {
                    kind: RaceKind::WriteWrite,
                    first: self.write,
                    first_writes: true,
                    offset,
                });
            }
            if let Some(read) = self.reads.iter().find(|r| r.races_with(now, false)) {
                report(Event::Race { kind: RaceKind::ReadWrite, first: *read, first_writes: false, offset });
            }
        }
        let mut write = *now;
        if pending {
            write.flags |= PENDING;
        }
        *self = Cell { write, reads: [Access::default(); 2] };
    }
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
                    let mut cells = Box::new([*cell; GRANULE as usize]);
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
                        *granule = Granule::Whole(cells[0]);
                    }
                }
            }
            at = stop;
        }
    }

    /// A read of `bytes` at `offset`.
    pub(crate) fn read(&mut self, offset: u32, bytes: u32, now: Access, report: &mut impl FnMut(Event)) {
        self.visit(offset, bytes, |cell, at| cell.read(&now, at, report));
    }

    /// A write of `bytes` at `offset`.
    pub(crate) fn write(&mut self, offset: u32, bytes: u32, now: Access, report: &mut impl FnMut(Event)) {
        self.visit(offset, bytes, |cell, at| cell.write(&now, false, at, report));
    }

    /// The issue of an asynchronous copy into these bytes.
    pub(crate) fn issue(&mut self, offset: u32, bytes: u32, now: Access, report: &mut impl FnMut(Event)) {
        self.visit(offset, bytes, |cell, at| cell.write(&now, true, at, report));
    }

    /// The landing of an asynchronous copy in these bytes: a write of the waiting thread at its wait.
    pub(crate) fn land(&mut self, offset: u32, bytes: u32, now: Access) {
        self.visit(offset, bytes, |cell, _| *cell = Cell { write: now, reads: [Access::default(); 2] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(thread: u32, epoch: u32, warp_epoch: u32) -> Access {
        Access::new(epoch, warp_epoch, thread, thread, false)
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
        let mut s = Shadow::new(64);
        let found = races(&mut s, |s, mut r| {
            s.write(0, 2, by(0, 1, 0), &mut r);
            s.write(2, 2, by(1, 1, 0), &mut r);
            s.write(16, 16, by(2, 1, 0), &mut r);
            s.read(14, 2, by(3, 1, 0), &mut r);
        });
        assert!(found.is_empty());
        assert_eq!(races(&mut s, |s, mut r| s.write(1, 1, by(1, 1, 0), &mut r)), [RaceKind::WriteWrite]);
        assert_eq!(races(&mut s, |s, mut r| s.read(30, 4, by(3, 1, 0), &mut r)), [RaceKind::ReadWrite]);
    }

    #[test]
    fn barriers_order_and_warp_barriers_only_within_the_warp() {
        let mut s = Shadow::new(16);
        let found = races(&mut s, |s, mut r| {
            s.write(0, 16, by(0, 1, 0), &mut r);
            s.read(0, 16, by(1, 1, 1), &mut r);
            s.write(0, 16, by(2, 1, 2), &mut r);
            s.write(0, 16, by(40, 2, 3), &mut r);
        });
        assert!(found.is_empty());
        assert_eq!(races(&mut s, |s, mut r| s.read(0, 4, by(0, 2, 9), &mut r)), [RaceKind::ReadWrite]);
    }

    #[test]
    fn a_writer_races_with_any_reader_but_itself() {
        // The writer's own read comes last, and a reader before it is remembered all the same.
        for readers in [[0, 1], [1, 0], [33, 1], [1, 33]] {
            let mut s = Shadow::new(16);
            let found = races(&mut s, |s, mut r| {
                s.write(0, 16, by(1, 1, 0), &mut r);
                for thread in readers {
                    s.read(0, 16, by(thread, 2, 1), &mut r);
                }
                s.write(0, 16, by(1, 2, 1), &mut r);
            });
            assert_eq!(found, [RaceKind::ReadWrite], "{readers:?}");
        }
    }

    #[test]
    fn readers_of_an_earlier_warp_epoch_do_not_hide_later_ones() {
        let mut s = Shadow::new(16);
        let found = races(&mut s, |s, mut r| {
            s.write(0, 4, by(0, 1, 0), &mut r);
            s.read(0, 4, by(1, 2, 1), &mut r);
            s.read(0, 4, by(2, 2, 1), &mut r);
            s.read(0, 4, by(3, 2, 2), &mut r);
            s.write(0, 4, by(4, 2, 2), &mut r);
        });
        assert_eq!(found, [RaceKind::ReadWrite]);
    }

    #[test]
    fn a_copy_in_flight_races_with_everybody() {
        let mut s = Shadow::new(16);
        assert!(races(&mut s, |s, mut r| s.issue(0, 16, by(0, 1, 0), &mut r)).is_empty());
        assert_eq!(races(&mut s, |s, mut r| s.read(0, 2, by(0, 7, 9), &mut r)), [RaceKind::AsyncPending]);
        s.land(0, 16, by(0, 8, 9));
        assert!(races(&mut s, |s, mut r| s.read(0, 2, by(0, 8, 9), &mut r)).is_empty());
        assert_eq!(races(&mut s, |s, mut r| s.read(0, 2, by(1, 8, 9), &mut r)), [RaceKind::ReadWrite]);
    }

    #[test]
    fn a_granule_written_whole_again_is_one_cell_again() {
        let mut s = Shadow::new(16);
        s.write(0, 2, by(0, 1, 0), &mut |_| {});
        assert!(matches!(s.granules[0], Granule::Split(_)));
        s.write(0, 16, by(0, 1, 0), &mut |_| {});
        assert!(matches!(s.granules[0], Granule::Whole(_)));
    }
}
