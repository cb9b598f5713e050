//! Atomic operations of a warp, and its waits for words of global memory.

use std::cell::Cell;
use std::collections::btree_map::Entry;

use tilewright_machine::{AtomicOp, AtomicRow, Memory, Until};

use crate::clock::{HappensBefore, lanes};
use crate::cluster::Cluster;
use crate::decode::{Atomic, Place, Slot};
use crate::error::Awaited;
use crate::global::Touch;
use crate::sink::Site;
use crate::warp::{State, Wait, Warp, Word};

impl Warp {
    /// Executes an atomic operation, lane after lane.
    pub(crate) fn atomic(&mut self, cluster: &mut Cluster<'_>, atomic: &Atomic, origin: u32) {
        let Atomic { statement, row, dst, place, operands, guard, .. } = atomic;
        let doing = self.guarded(*guard);
        for lane in lanes(self.active) {
            let mut old = 0;
            if doing & (1 << lane) != 0 {
                let site = self.site(*statement, origin, lane);
                let mut values = [0; 2];
                for (value, slot) in values.iter_mut().zip(operands) {
                    *value = self.values[*slot as usize][lane];
                }
                old = if row.memory == Memory::Shared {
                    let address = self.shared_address(*place, lane);
                    cluster.atomic_shared(&site, address, row, values)
                } else {
                    let address = self.global_address(*place, lane);
                    cluster.atomic_global(&site, address, atomic, values)
                };
            }
            if let Some(dst) = dst {
                self.values[*dst as usize][lane] = old;
            }
        }
    }

    /// Cycle at which operands are ready.
    pub(crate) fn slots_ready(&self, slots: &[Slot]) -> u64 {
        slots.iter().map(|slot| self.timing.values[*slot as usize]).max().unwrap_or(0)
    }

    /// Waits for the words of the active lanes.
    pub(crate) fn await_words(
        &mut self,
        cluster: &mut Cluster<'_>,
        (place, until, operand): (Place, Until, Slot),
        site: (u32, u32),
    ) {
        let word = |lane: usize| Word {
            lane,
            address: self.global_address(place, lane),
            until,
            operand: self.values[operand as usize][lane] as u32,
            site,
        };
        self.state = State::Waiting(Wait::Words(lanes(self.active).map(word).collect()));
        self.look_at_words(cluster);
    }

    /// Looks whether the words are what lanes of the warp wait for, and lets those go on for which all are.
    pub(crate) fn look_at_words(&mut self, cluster: &mut Cluster<'_>) {
        let mut found: Vec<(Site, (u32, u64))> = Vec::new();
        let (rank, index, agent) = (self.rank, self.index, self.agent);
        self.waits_mut(&mut |state| {
            let State::Waiting(Wait::Words(words)) = state else { return };
            words.retain(|word| {
                let (statement, origin) = word.site;
                let thread = 32 * index + word.lane as u32;
                let site = Site { statement, origin, rank, thread, agent, collective: false };
                let Some((buffer, number, offset)) = cluster.global_offset(&site, word.address, 4, false)
                else {
                    return false;
                };
                let holds = word.until.holds(buffer.word((offset / 4) as usize), word.operand);
                if holds {
                    found.push((site, (number, offset)));
                }
                !holds
            });
            if words.is_empty() {
                *state = State::Running;
            }
        });
        for (site, word) in found {
            cluster.watch_global(&site, (word.0, word.1, 4), Touch::Add, &[], None);
            cluster.acquire_word(&site, word);
        }
        if matches!(self.state, State::Waiting(Wait::Words(_))) {
            self.switch();
        }
    }
}

impl Cluster<'_> {
    /// Changes an element of shared memory; what was there.
    fn atomic_shared(&mut self, site: &Site, address: u32, row: &AtomicRow, operands: [u64; 2]) -> u64 {
        let size = row.bytes();
        let Some(offset) = self.shared_offset(site, address, size, true) else { return 0 };
        self.watch_combine(site, offset, size);
        let (start, size) = (offset as usize, size as usize);
        let Some(bytes) = self.shared(site.rank).get(start..start + size) else { return 0 };
        let old = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.put(site.rank, offset, &row.apply(old, operands).to_le_bytes()[..size]);
        old
    }

    /// Changes an element of global memory; what was there.
    fn atomic_global(&mut self, site: &Site, address: u64, atomic: &Atomic, operands: [u64; 2]) -> u64 {
        let Atomic { row, order, dst, .. } = atomic;
        let size = row.bytes();
        let Some((buffer, number, offset)) = self.global_offset(site, address, size, true) else { return 0 };
        self.watch_global(site, (number, offset, size.into()), Touch::Add, &[], None);
        let word = (number, offset);
        if order.releases() {
            let mut clock = HappensBefore::default();
            self.know[site.agent as usize].release(site.lanes(), &mut clock);
            match self.words.entry(word) {
                // A store begins anew; other operations continue what they read from.
                Entry::Occupied(mut known) if dst.is_some() || row.op != AtomicOp::Exchange => {
                    known.get_mut().join(&clock);
                }
                Entry::Occupied(mut known) => *known.get_mut() = clock,
                Entry::Vacant(new) => _ = new.insert(clock),
            }
        } else if dst.is_none() && row.op == AtomicOp::Exchange {
            self.words.remove(&word);
        }
        if order.acquires() {
            self.acquire_word(site, word);
        }
        let (index, found) = ((offset / 4) as usize, Cell::new(0));
        // Other clusters may change it meanwhile.
        let change = |old: u64| {
            found.set(old);
            row.apply(old, operands)
        };
        match size {
            8 => buffer.update_pair(index, change),
            2 => {
                let shift = 8 * (offset % 4) as u32;
                buffer.update(index, |old| {
                    let new = change(u64::from(old >> shift & 0xffff)) as u32;
                    old & !(0xffff << shift) | new << shift
                });
            }
            _ => buffer.update(index, |old| change(old.into()) as u32),
        }
        self.changed = true;
        found.get()
    }

    /// A thread learns what releases of a word have published.
    fn acquire_word(&mut self, site: &Site, word: (u32, u64)) {
        if let Some(known) = self.words.get(&word) {
            self.know[site.agent as usize].acquire(site.lanes(), known);
        }
    }

    /// A word that a thread waits for, as text.
    pub(crate) fn describe_word(&self, word: &Word) -> (Awaited, String) {
        let (name, at, _) = self.context.describe(Memory::Global, word.address as i64);
        let now =
            self.context.memory.locate(word.address).map_or(0, |(b, _, o)| b.word((o / 4) as usize) as i32);
        let until = match word.until {
            Until::AtLeast => format!("at least {}", word.operand as i32),
            Until::SignDiffers => "the end of a phase".to_string(),
        };
        (Awaited::Word { now }, format!("element {} of `{name}`, which is {now}, to be {until}", at / 4))
    }
}
