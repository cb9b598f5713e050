//! A block: its shared memory, the accesses to it and to global memory with all their checks, and the scheduler of its
//! warps.

use tilewright_machine::Memory;

use crate::context::{Context, SHARED_BASE};
use crate::cycles::Pipes;
use crate::error::SimError;
use crate::memory::Buffer;
use crate::shadow::{Access, Shadow};
use crate::sink::{FaultKind, Sink, Site, Wrong};
use crate::tables::MmaTiles;
use crate::warp::{State, Warp};

/// What uninitialised shared bytes read as: as `f16`, `bf16` and `f32` a NaN.
const POISON: u8 = 0xff;

/// A block that is being executed.
pub(crate) struct Block<'a> {
    pub context: &'a Context<'a>,
    pub index: [u32; 3],
    pub sink: Sink,
    pub pipes: Pipes,
    pub tiles: MmaTiles,
    shared: Vec<u8>,
    shadow: Option<Shadow>,
    /// Block barriers passed, plus 1.
    epoch: u32,
}

/// The findings of a block and how long it took.
pub(crate) struct Outcome {
    pub sink: Sink,
    /// Cycles from start to end, alone on a multiprocessor.
    pub cycles: u64,
    /// Cycles for which its busiest unit was occupied.
    pub busy: u64,
}

impl<'a> Block<'a> {
    fn new(context: &'a Context<'a>, linear: u64) -> Self {
        let bytes = context.program.function.shared_bytes;
        let watched = context.config.check_races || context.config.check_uninitialised;
        Block {
            context,
            index: context.block(linear),
            sink: Sink::new(context.program.statements.len()),
            pipes: Pipes::default(),
            tiles: MmaTiles::default(),
            shared: vec![POISON; bytes as usize],
            shadow: watched.then(|| Shadow::new(bytes)),
            epoch: 1,
        }
    }

    fn access(&self, site: &Site) -> Access {
        Access::new(self.epoch, site.warp_epoch, site.origin, site.thread, site.collective)
    }

    fn wrong(&mut self, site: &Site, kind: FaultKind, memory: Memory, address: i64, bytes: u32, write: bool) {
        self.sink.fault(self.context, self.index, site, Wrong { kind, memory, address, bytes, write });
    }

    /// The offset in the window of an access that is aligned and lies in a shared buffer; any other is reported.
    pub(crate) fn shared_offset(
        &mut self,
        site: &Site,
        address: u32,
        bytes: u32,
        write: bool,
    ) -> Option<u32> {
        let offset = address.wrapping_sub(SHARED_BASE);
        let inside = address >= SHARED_BASE && self.context.owners.find(offset, bytes).is_some();
        if inside && address.is_multiple_of(bytes) {
            return Some(offset);
        }
        let kind = if inside { FaultKind::Misaligned } else { FaultKind::OutOfBounds };
        let address = i64::from(address) - i64::from(SHARED_BASE);
        self.wrong(site, kind, Memory::Shared, address, bytes, write);
        None
    }

    /// The buffer and offset of an access that is aligned and in bounds; any other is reported.
    pub(crate) fn global_offset(
        &mut self,
        site: &Site,
        address: u64,
        bytes: u32,
        write: bool,
    ) -> Option<(&'a Buffer, u64)> {
        let found = self.context.memory.locate(address).filter(|(b, _, o)| o + u64::from(bytes) <= b.size());
        match found {
            Some((buffer, _, offset)) if offset.is_multiple_of(u64::from(bytes)) => {
                return Some((buffer, offset));
            }
            Some(_) => self.wrong(site, FaultKind::Misaligned, Memory::Global, address as i64, bytes, write),
            None => self.wrong(site, FaultKind::OutOfBounds, Memory::Global, address as i64, bytes, write),
        }
        None
    }

    /// Reads shared bytes, at most 16, at an offset that [`shared_offset`](Self::shared_offset) gave.
    pub(crate) fn read_shared(&mut self, site: &Site, offset: u32, bytes: u32) -> [u8; 16] {
        let access = self.access(site);
        if let Some(shadow) = &mut self.shadow {
            let (sink, context, index) = (&mut self.sink, self.context, self.index);
            sink.next_access();
            shadow.read(offset, bytes, access, &mut |e| sink.event(context, index, site, bytes, false, e));
        }
        let mut data = [0; 16];
        let (start, len) = (offset as usize, bytes.min(16) as usize);
        if let Some(from) = self.shared.get(start..start + len) {
            data[..len].copy_from_slice(from);
        }
        data
    }

    /// Writes shared bytes, at most 16, at an offset that [`shared_offset`](Self::shared_offset) gave.
    pub(crate) fn write_shared(&mut self, site: &Site, offset: u32, bytes: u32, data: &[u8; 16]) {
        let access = self.access(site);
        if let Some(shadow) = &mut self.shadow {
            let (sink, context, index) = (&mut self.sink, self.context, self.index);
            sink.next_access();
            shadow.write(offset, bytes, access, &mut |e| sink.event(context, index, site, bytes, true, e));
        }
        self.put(offset, bytes, data);
    }

    /// Notes that an asynchronous copy into shared bytes is in flight.
    pub(crate) fn issue_async(&mut self, site: &Site, offset: u32, bytes: u32) {
        let access = self.access(site);
        if let Some(shadow) = &mut self.shadow {
            let (sink, context, index) = (&mut self.sink, self.context, self.index);
            sink.next_access();
            shadow.issue(offset, bytes, access, &mut |e| sink.event(context, index, site, bytes, true, e));
        }
    }

    /// Lands an asynchronous copy.
    pub(crate) fn land_async(&mut self, site: &Site, offset: u32, bytes: u32, data: &[u8; 16]) {
        let access = self.access(site);
        if let Some(shadow) = &mut self.shadow {
            shadow.land(offset, bytes, access);
        }
        self.put(offset, bytes, data);
    }

    fn put(&mut self, offset: u32, bytes: u32, data: &[u8; 16]) {
        let (start, len) = (offset as usize, bytes.min(16) as usize);
        if let Some(to) = self.shared.get_mut(start..start + len) {
            to.copy_from_slice(&data[..len]);
        }
    }
}

/// A generator of numbers for choices that hardware leaves open (splitmix64).
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
    }
}

/// Executes one block to its end.
pub(crate) fn execute<'a>(context: &'a Context<'a>, linear: u64) -> Result<Outcome, SimError> {
    let mut block = Block::new(context, linear);
    let threads = context.program.function.threads;
    let mut warps: Vec<Warp> =
        (0..threads.div_ceil(32)).map(|w| Warp::new(&context.program, w, threads)).collect();
    let seed = context.config.seed;
    let mut choices = Choices(seed ^ linear.wrapping_mul(0x2545_f491_4f6c_dd1d));
    loop {
        let mut order: Vec<usize> = (0..warps.len()).collect();
        if seed != 0 {
            choices.shuffle(&mut order);
        }
        for warp in order {
            warps[warp].run(&mut block)?;
        }
        let end = block.pipes.end_segment(warps.iter().map(|w| w.timing.clock).max().unwrap_or(0));
        let waiting = warps.iter().filter(|w| w.state == State::AtBarrier).count();
        if waiting == 0 {
            return Ok(Outcome { sink: block.sink, cycles: end, busy: block.pipes.busy() });
        }
        if waiting < warps.len() {
            let first = warps.iter().find(|w| w.state == State::AtBarrier);
            let barrier = first.and_then(|w| context.program.code.get(w.pc.checked_sub(1)?));
            let origin = barrier.map_or(0, |i| i.origin);
            return Err(SimError::Deadlock {
                origin: context.program.origin(origin),
                block: block.index,
                waiting: waiting as u32,
                exited: (warps.len() - waiting) as u32,
            });
        }
        block.epoch = block.epoch.wrapping_add(1).max(1);
        warps.iter_mut().for_each(|warp| warp.release(end));
    }
}
