//! Memory instructions of a warp.

use tilewright_machine::{Memory, SECTOR_BYTES, global_sectors, shared_wavefronts};

use crate::bulk::reduce;
use crate::clock::{Agent, HappensBefore, lanes};
use crate::cluster::Cluster;
use crate::decode::{Place, Slot, Transfer};
use crate::global::Touch;
use crate::queues::InFlight;
use crate::shadow::{ASYNC, ORDINARY};
use crate::sink::Site;
use crate::tables::MatrixTable;
use crate::warp::Warp;

impl Warp {
    pub(crate) fn site(&self, statement: u32, origin: u32, lane: usize) -> Site {
        let thread = 32 * self.index + lane as u32;
        Site { statement, origin, rank: self.rank, thread, agent: self.agent, collective: false }
    }

    /// Cycle at which the address and the guard are ready.
    pub(crate) fn address_ready(&self, place: Place, guard: Option<Slot>) -> u64 {
        let base = self.timing.values[place.base as usize];
        guard.map_or(base, |g| base.max(self.timing.values[g as usize]))
    }

    pub(crate) fn shared_address(&self, place: Place, lane: usize) -> u32 {
        (self.values[place.base as usize][lane] as u32).wrapping_add(place.offset as u32)
    }

    pub(crate) fn global_address(&self, place: Place, lane: usize) -> u64 {
        self.values[place.base as usize][lane].wrapping_add(i64::from(place.offset) as u64)
    }

    pub(crate) fn guarded(&self, guard: Option<Slot>) -> u32 {
        guard.map_or(self.active, |g| self.active & self.where_true(g))
    }

    /// Executes a load; returns wavefronts lost to bank conflicts.
    pub(crate) fn load(&mut self, cluster: &mut Cluster<'_>, transfer: &Transfer, origin: u32) -> u64 {
        let Transfer { statement, memory, bytes, regs, place, guard, outside, .. } = transfer;
        let reading = self.guarded(*guard);
        for (reg, outside) in regs.iter().zip(outside.iter().cycle()) {
            lanes(self.active & !reading).for_each(|lane| self.registers[*reg as usize][lane] = *outside);
        }
        if *memory == Memory::Shared {
            let mut addresses = [None; 32];
            for lane in lanes(reading) {
                let site = self.site(*statement, origin, lane);
                let address = self.shared_address(*place, lane);
                let found = match transfer.peer {
                    true => cluster.cluster_offset(&site, address, *bytes, false),
                    false => cluster.shared_offset(&site, address, *bytes, false).map(|o| (self.rank, o)),
                };
                addresses[lane] = found.map(|(_, offset)| offset);
                let data = found.map_or([0; 16], |(rank, o)| cluster.read_shared(&site, rank, o, *bytes));
                for (i, reg) in regs.iter().enumerate().take(4) {
                    self.registers[*reg as usize][lane] = word(&data, i);
                }
            }
            return count_shared(cluster, self.agent, *statement, &addresses, *bytes);
        }
        let mut addresses = [None; 32];
        for lane in lanes(reading) {
            let site = self.site(*statement, origin, lane);
            let address = self.global_address(*place, lane);
            let data = read_global(cluster, &site, address, *bytes, &mut addresses[lane], true);
            for (i, reg) in regs.iter().enumerate().take(4) {
                self.registers[*reg as usize][lane] = data[i];
            }
        }
        count_global(cluster, *statement, &addresses, *bytes);
        0
    }

    /// Executes a lookup in global memory.
    pub(crate) fn lookup(&mut self, cluster: &mut Cluster<'_>, dst: Slot, transfer: &Transfer, origin: u32) {
        let Transfer { statement, bytes, place, guard, .. } = transfer;
        let reading = self.guarded(*guard);
        let mut addresses = [None; 32];
        for lane in lanes(self.active) {
            let mut data = [0; 4];
            if reading & (1 << lane) != 0 {
                let site = self.site(*statement, origin, lane);
                let address = self.global_address(*place, lane);
                data = read_global(cluster, &site, address, *bytes, &mut addresses[lane], true);
            }
            self.values[dst as usize][lane] = u64::from(data[0]) | u64::from(data[1]) << 32;
        }
        count_global(cluster, *statement, &addresses, *bytes);
    }

    /// Executes a store; returns wavefronts lost to bank conflicts.
    pub(crate) fn store(&mut self, cluster: &mut Cluster<'_>, transfer: &Transfer, origin: u32) -> u64 {
        let Transfer { statement, memory, bytes, regs, place, guard, reduction, .. } = transfer;
        let writing = self.guarded(*guard);
        let data_of = |registers: &[[u32; 32]], lane: usize| {
            let mut data = [0; 16];
            for (to, reg) in data.chunks_exact_mut(4).zip(regs) {
                to.copy_from_slice(&registers[*reg as usize][lane].to_le_bytes());
            }
            data
        };
        if *memory == Memory::Shared {
            let mut addresses = [None; 32];
            for lane in lanes(writing) {
                let site = self.site(*statement, origin, lane);
                let offset = cluster.shared_offset(&site, self.shared_address(*place, lane), *bytes, true);
                addresses[lane] = offset;
                let Some(offset) = offset else { continue };
                let data = data_of(&self.registers, lane);
                match reduction {
                    None => cluster.write_shared(&site, offset, *bytes, &data),
                    Some(by) => cluster.reduce_shared(&site, offset, &data[..*bytes as usize], *by),
                }
            }
            return count_shared(cluster, self.agent, *statement, &addresses, *bytes);
        }
        let mut addresses = [None; 32];
        for lane in lanes(writing) {
            let site = self.site(*statement, origin, lane);
            let address = self.global_address(*place, lane);
            let Some((buffer, number, offset)) = cluster.global_offset(&site, address, *bytes, true) else {
                continue;
            };
            let range = (number, offset, u64::from(*bytes));
            let data = data_of(&self.registers, lane);
            if let Some(by) = reduction {
                cluster.watch_global(&site, range, Touch::Add, &[], None);
                addresses[lane] = Some(address);
                reduce(buffer, offset, &data[..*bytes as usize], *by);
                continue;
            }
            cluster.watch_global(&site, range, Touch::Write, &data[..*bytes.min(&16) as usize], None);
            addresses[lane] = Some(address);
            let index = (offset / 4) as usize;
            for (i, reg) in regs.iter().enumerate() {
                let value = self.registers[*reg as usize][lane];
                if *bytes >= 4 {
                    buffer.set_word(index + i, value);
                } else {
                    let shift = 8 * (offset % 4) as u32;
                    buffer.set_bits(index, (u32::MAX >> (32 - 8 * bytes)) << shift, value << shift);
                }
            }
        }
        count_global(cluster, *statement, &addresses, *bytes);
        0
    }

    /// Issues an asynchronous copy that the cycle model has arrive at `ready`; returns wavefronts lost to bank conflicts.
    pub(crate) fn async_copy(
        &mut self,
        cluster: &mut Cluster<'_>,
        statement: u32,
        origin: u32,
        bytes: u32,
        (dst, src): (Place, Place),
        guard: Option<Slot>,
        ready: u64,
    ) -> u64 {
        let reading = self.guarded(guard);
        let (mut to, mut from) = ([None; 32], [None; 32]);
        for lane in lanes(self.active) {
            let site = self.site(statement, origin, lane);
            let mut fetch = 0;
            if reading & (1 << lane) != 0 {
                // The source is read as late as the instruction may: when the copy lands.
                let address = self.global_address(src, lane);
                if let Some((_, number, offset)) = cluster.global_offset(&site, address, bytes, false) {
                    from[lane] = Some(address);
                    if !cluster.context.watches(number) {
                        cluster.check_launches(&site, (number, offset), Touch::Read);
                    } else {
                        self.queue.fetches += 1;
                        fetch = self.queue.fetches;
                        let unit = (cluster.fetches_of(self.agent), fetch, ASYNC | ORDINARY);
                        let range = (number, offset, u64::from(bytes));
                        cluster.watch_global(&site, range, Touch::Read, &[], Some(unit));
                    }
                }
            }
            to[lane] = cluster.shared_offset(&site, self.shared_address(dst, lane), bytes, true);
            if let Some(offset) = to[lane] {
                cluster.issue_async(&site, offset, bytes);
                let (group, lane, bytes) = (self.queue.committed[lane], lane as u8, bytes as u8);
                self.queue.copies.push(InFlight {
                    lane,
                    bytes,
                    group,
                    offset,
                    statement,
                    origin,
                    from: from[lane as usize],
                    fetch,
                    landed: false,
                    ready,
                });
            }
        }
        count_global(cluster, statement, &from, bytes);
        count_shared(cluster, self.agent, statement, &to, bytes)
    }

    /// Executes a wait of the active lanes: all their copies land, or those of all their closed groups but the last `n`.
    pub(crate) fn land(&mut self, cluster: &mut Cluster<'_>, but: Option<u32>) {
        let (active, committed) = (self.active, self.queue.committed);
        let mut copies = std::mem::take(&mut self.queue.copies);
        let mut fetched = [0; 32];
        copies.retain(|copy| {
            let lane = usize::from(copy.lane);
            let covered = but.is_none_or(|n| copy.group < committed[lane].saturating_sub(n));
            let lands = covered && active & (1 << lane) != 0;
            if lands {
                if !copy.landed {
                    self.arrive(cluster, copy);
                }
                let site = self.site(copy.statement, copy.origin, lane);
                cluster.land_async(&site, copy.offset, u32::from(copy.bytes));
                fetched[lane] = copy.fetch.max(fetched[lane]);
                self.timing.clock = self.timing.clock.max(copy.ready);
            }
            !lands
        });
        self.queue.copies = copies;
        let fetches = cluster.fetches_of(self.agent);
        for lane in lanes(active).filter(|lane| fetched[*lane] != 0) {
            let mut pair = HappensBefore::default();
            pair.learn(fetches, 1 << lane, fetched[lane] + 1);
            cluster.know[self.agent as usize].acquire(1 << lane, &pair);
        }
    }

    /// Moves the bytes of an asynchronous copy.
    fn arrive(&self, cluster: &mut Cluster<'_>, copy: &InFlight) {
        let site = self.site(copy.statement, copy.origin, usize::from(copy.lane));
        let mut data = [0; 16];
        if let Some(address) = copy.from {
            let words = read_global(cluster, &site, address, u32::from(copy.bytes), &mut None, false);
            for (to, word) in data.chunks_exact_mut(4).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
        cluster.put(self.rank, copy.offset, &data[..usize::from(copy.bytes).min(16)]);
    }

    /// Moves the bytes of one of the asynchronous copies before any wait for it.
    pub(crate) fn land_early(&mut self, cluster: &mut Cluster<'_>, index: usize) {
        if let Some(copy) = self.queue.copies.get(index).copied().filter(|copy| !copy.landed) {
            self.arrive(cluster, &copy);
            self.queue.copies[index].landed = true;
        }
    }

    /// Executes a matrix load or store; returns wavefronts lost to bank conflicts.
    pub(crate) fn matrix(
        &mut self,
        cluster: &mut Cluster<'_>,
        table: &MatrixTable,
        statement: u32,
        origin: u32,
        regs: &[u32],
        place: Place,
    ) -> u64 {
        let mut tile = [0u16; 256];
        let mut addresses = [None; 32];
        if table.store {
            for (value, positions) in table.register.iter().enumerate() {
                let (words, shift) = (&self.registers[regs[value / 2] as usize], 16 * (value % 2));
                for (position, word) in positions.iter().zip(words) {
                    tile[usize::from(*position)] = (word >> shift) as u16;
                }
            }
        }
        for (lane, positions) in table.memory.iter().enumerate() {
            let site = Site { collective: true, ..self.site(statement, origin, lane) };
            let offset = cluster.shared_offset(&site, self.shared_address(place, lane), 16, table.store);
            addresses[lane] = offset;
            let Some(offset) = offset else { continue };
            if table.store {
                let mut data = [0; 16];
                for (to, position) in data.chunks_exact_mut(2).zip(positions) {
                    to.copy_from_slice(&tile[usize::from(*position)].to_le_bytes());
                }
                cluster.write_shared(&site, offset, 16, &data);
            } else {
                let data = cluster.read_shared(&site, self.rank, offset, 16);
                for (from, position) in data.chunks_exact(2).zip(positions) {
                    tile[usize::from(*position)] = u16::from_le_bytes([from[0], from[1]]);
                }
            }
        }
        if !table.store {
            for (pair, reg) in table.register.chunks_exact(2).zip(regs) {
                let words = &mut self.registers[*reg as usize];
                for (lane, word) in words.iter_mut().enumerate() {
                    let [low, high] = [pair[0][lane], pair[1][lane]].map(|p| u32::from(tile[usize::from(p)]));
                    *word = low | high << 16;
                }
            }
        }
        count_shared(cluster, self.agent, statement, &addresses, 16)
    }
}

fn word(data: &[u8; 16], i: usize) -> u32 {
    u32::from_le_bytes([data[4 * i], data[4 * i + 1], data[4 * i + 2], data[4 * i + 3]])
}

/// Reads up to four words (fewer than 4 bytes zero-extended) and notes the address if it is in bounds.
fn read_global(
    cluster: &mut Cluster<'_>,
    site: &Site,
    address: u64,
    bytes: u32,
    noted: &mut Option<u64>,
    watch: bool,
) -> [u32; 4] {
    let mut words = [0; 4];
    if let Some((buffer, number, offset)) = cluster.global_offset(site, address, bytes, false) {
        if watch {
            cluster.watch_global(site, (number, offset, u64::from(bytes)), Touch::Read, &[], None);
        }
        *noted = Some(address);
        let index = (offset / 4) as usize;
        if bytes >= 4 {
            let count = (bytes / 4).min(4) as usize;
            words[..count].iter_mut().enumerate().for_each(|(i, word)| *word = buffer.word(index + i));
        } else {
            words[0] = (buffer.word(index) >> (8 * (offset % 4))) & (u32::MAX >> (32 - 8 * bytes));
        }
    }
    words
}

/// Counts a shared request; returns wavefronts lost to bank conflicts.
fn count_shared(
    cluster: &mut Cluster<'_>,
    agent: Agent,
    statement: u32,
    offsets: &[Option<u32>; 32],
    bytes: u32,
) -> u64 {
    let waves = shared_wavefronts(offsets, bytes);
    if waves.ideal > 0 {
        if let Some(tracer) = cluster.observer.as_mut().and_then(|o| o.tracer.as_mut()) {
            let program = &cluster.context.program;
            tracer.request(agent as usize, statement, offsets, (bytes, waves), program);
        }
        let counts = &mut cluster.sink.counts[statement as usize];
        counts.shared_requests += 1;
        counts.shared_wavefronts += u64::from(waves.actual);
        counts.shared_ideal += u64::from(waves.ideal);
        counts.shared_bytes += offsets.iter().flatten().count() as u64 * u64::from(bytes);
    }
    u64::from(waves.conflicts())
}

fn count_global(cluster: &mut Cluster<'_>, statement: u32, addresses: &[Option<u64>; 32], bytes: u32) {
    let lanes = addresses.iter().flatten().count() as u64;
    if lanes > 0 {
        let counts = &mut cluster.sink.counts[statement as usize];
        counts.global_requests += 1;
        let sectors = u64::from(global_sectors(addresses, bytes));
        counts.global_sectors += sectors;
        counts.global_ideal += sectors.min((lanes * u64::from(bytes)).div_ceil(SECTOR_BYTES));
        counts.global_bytes += lanes * u64::from(bytes);
    }
}
