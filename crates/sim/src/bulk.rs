//! Copies by the tensor memory accelerator: between a tensor or contiguous bytes in global memory and shared memory, and to the shared
//! memory of a peer.

use std::ops::RangeBounds;

use tilewright_machine::{BoxShape, Corners, Memory, RedForm, RedOp, Reduction, SwizzleMode, TensorOp};

use crate::clock::{Agent, HappensBefore, lanes};
use crate::cluster::Cluster;
use crate::context::BoundMap;
use crate::flight::{Course, Flight, MapId, Request};
use crate::global::Touch;
use crate::memory::{Buffer, SHARED_BASE};
use crate::rule::Rule;
use crate::shadow::{ASYNC, Access, Kind};
use crate::sink::{FaultKind, Site};

/// Bytes that a swizzle moves together, and that copies are multiples of.
const UNIT: u32 = 16;

/// Bits of an address in the cluster's window below the block's rank.
const LOCAL: u32 = (1 << 24) - 1;

/// The alignment in shared memory of rows that are gathered (PTX ISA 8.6, `cp.async.bulk.tensor`).
const GATHER_ALIGN: u32 = 128;

/// Most bytes that a copy moves: more than a block's shared memory.
const BYTES_LIMIT: u32 = 1 << 20;

/// The place of a unit of a box that lies in no shared buffer.
const NOWHERE: u32 = u32::MAX;

/// The block whose mbarrier a copy to a block signals: that one, or that of its pair with a parity.
fn signalled(target: u32, parity: Option<u32>) -> u32 {
    parity.map_or(target, |parity| target / 2 * 2 + parity)
}

/// Offsets of the 16-byte units of a box at an offset of the window.
fn places(offset: u32, bytes: u32, swizzle: SwizzleMode) -> impl Iterator<Item = u32> {
    let swizzle = swizzle.bytes();
    (0..bytes / UNIT).map(move |i| {
        let address = i64::from(SHARED_BASE + offset / UNIT * UNIT) + i64::from(UNIT * i);
        swizzle.apply(address) as u32 - SHARED_BASE
    })
}

impl<'a> Cluster<'a> {
    /// Starts a copy.
    pub(crate) fn launch(&mut self, request: Request) {
        let swizzle = self.swizzle(&request.course);
        self.check_request(&request, swizzle);
        let Request { site, course, shared, bytes, barrier, multicast, even, group: (group, time), ready } =
            request;
        let (local, bytes) = (shared & LOCAL, bytes.min(BYTES_LIMIT) / UNIT * UNIT);
        let store = course.is_store();
        let offset = local.wrapping_sub(SHARED_BASE);
        let inside =
            |units: &[u32]| -> Vec<u32> { units.iter().copied().filter(|u| *u != NOWHERE).collect() };
        let units = self.units_of(&site, offset, bytes, swizzle, !store);
        let (mut source, mut destination, mut targets, mut signals) =
            (Vec::new(), Vec::new(), Vec::new(), None);
        let (mut missing, mut parity) = (None, None);
        match &course {
            _ if store => source = units,
            Course::Peer { address } => {
                if barrier.is_some_and(|b| b >> 24 != address >> 24) {
                    let message = || "its mbarrier is not one of the block that it copies to".to_string();
                    self.misuse(&site, Rule::Place, message);
                }
                source = units;
                let offset = (address & LOCAL).wrapping_sub(SHARED_BASE);
                destination = self.units_of(&site, offset, bytes, SwizzleMode::None, true);
                targets.extend(self.peer(&site, address >> 24));
            }
            _ => {
                let of = barrier.and_then(|b| self.peer(&site, b >> 24));
                let pairs = self.context.program.function.pairs && (multicast.is_none() || even);
                let of_pair = of.filter(|of| of / 2 == site.rank / 2);
                if pairs && of_pair.is_some() && matches!(course, Course::Tensor { .. }) {
                    // A copy to one block of a pair may signal the other.
                    parity = of_pair.map(|of| of % 2);
                } else if barrier.is_some() && of != Some(site.rank) {
                    self.misuse(&site, Rule::Place, || "its mbarrier is not one of this block".to_string());
                }
                destination = units;
                match multicast {
                    None => targets.push(site.rank),
                    Some(mask) => {
                        let found = |rank| self.peer(&site, rank as u32).ok_or(rank);
                        let (peers, none): (Vec<_>, Vec<_>) = lanes(mask).map(found).partition(Result::is_ok);
                        targets.extend(peers.into_iter().flatten());
                        missing = none.into_iter().find_map(Result::err);
                    }
                }
            }
        }
        if let Some(none) = missing {
            self.misuse(&site, Rule::Place, || format!("the cluster has no block {none}"));
        }
        if !store {
            signals = barrier.map(|b| (b & LOCAL).wrapping_sub(SHARED_BASE));
        }
        let known = targets
            .first()
            .zip(signals)
            .and_then(|(rank, b)| self.barriers.get(&(signalled(*rank, parity), b)));
        let writes = (self.stores_of(site.agent), time);
        let number = known.map_or((self.copies_of(site.agent), time), |b| (b.agent, b.landing_time()));
        if !source.is_empty() {
            self.watch_unit(&site, site.rank, (&inside(&source), UNIT), Kind::Read, number, None);
        }
        for target in &targets {
            if let Some(key) = signals.map(|barrier| (signalled(*target, parity), barrier))
                && self.barrier(&site, key)
            {
                self.visible(&site, key);
            }
            let to = (&inside(&destination)[..], UNIT);
            self.watch_unit(&site, *target, to, Kind::Issue, number, None);
        }
        match &course {
            _ if store && self.context.config.check_global => {
                let data = self.gather(&site, &source, bytes);
                self.watch_course(&site, &course, &data, bytes, (writes.0, writes.1, ASYNC));
            }
            Course::Peer { .. } | Course::Answer => {}
            _ => self.watch_course(&site, &course, &[], bytes, (number.0, number.1, ASYNC)),
        }
        if !matches!(course, Course::Answer) {
            self.sink.tma_bytes += u64::from(bytes);
        }
        let mut executed = HappensBefore::default();
        if signals.is_some() {
            self.know[site.agent as usize].release(site.lanes(), &mut executed);
        }
        self.flights.push(Flight {
            site,
            course,
            bytes,
            source,
            destination,
            targets,
            barrier: signals,
            parity,
            group,
            data: None,
            ready,
            executed,
        });
    }

    /// The swizzle of a copy: that of its tensor map.
    fn swizzle(&self, course: &Course) -> SwizzleMode {
        let Course::Tensor { map, .. } = course else { return SwizzleMode::None };
        let maps = &self.context.program.function.tensor_maps;
        maps.get(map.index as usize).map_or(SwizzleMode::None, |map| map.shape.swizzle)
    }

    /// True if a copy gathers rows: it has a coordinate for each.
    fn gathers(&self, course: &Course) -> bool {
        let Course::Tensor { map, coords, .. } = course else { return false };
        self.map(*map).is_some_and(|(_, shape, ..)| gathers(shape, coords))
    }

    /// Reports what is wrong with a request by itself.
    fn check_request(&mut self, request: &Request, swizzle: SwizzleMode) {
        let Request { site, course, shared, bytes, .. } = request;
        let tensor = matches!(course, Course::Tensor { .. });
        // Rows that are gathered need not begin where the swizzle repeats, which is one of addresses.
        let aligned = match tensor {
            true if self.gathers(course) => GATHER_ALIGN,
            true => swizzle.period(),
            false => UNIT,
        };
        let local = shared & LOCAL;
        if self.peer(site, shared >> 24) != Some(site.rank) {
            self.misuse(site, Rule::Place, || {
                format!("address {shared:#x} is not in the block's own shared memory")
            });
        }
        if !local.is_multiple_of(aligned) {
            let why = if tensor { format!(" (boxes with {swizzle})") } else { String::new() };
            self.misuse(site, Rule::Alignment, || {
                let offset = i64::from(local) - i64::from(SHARED_BASE);
                format!("shared address {offset} of the window is no multiple of {aligned}{why}")
            });
        }
        if *bytes == 0 || !bytes.is_multiple_of(UNIT) {
            self.misuse(site, Rule::Bytes, || format!("it moves {bytes} bytes, which is no multiple of 16"));
        }
        if let Course::Tensor { map, .. } = course
            && self.map(*map).is_none()
        {
            self.misuse(site, Rule::Place, || format!("there is no tensor map {}", map.number));
        }
        // What follows was seen on H100 and H200 (bench/litmus/tensor_*.cu); the PTX ISA does not say it.
        if let Course::Tensor { map, coords, .. } = course
            && let Some((_, shape, ..)) = self.map(*map)
            && let Some(first) = coords.first()
        {
            let bits = i64::from(shape.dtype.bits());
            if i64::from(*first) * bits % (8 * i64::from(UNIT)) != 0 {
                let dtype = shape.dtype;
                self.misuse(site, Rule::Alignment, || {
                    format!("a box begins at coordinate {first} of dimension 0, which is no multiple of 16 bytes of {dtype}: devices take it for an illegal instruction")
                });
            }
        }
        if let Course::Tensor { map, coords, .. } = course
            && let Some((bound, shape, ..)) = self.map(*map)
            && let Some(corners) = &shape.corners
            && let Some(message) = wrong_pixels(bound, shape, corners, coords)
        {
            self.misuse(site, Rule::Place, || message);
        }
        if let Course::Tensor { op, coords, .. } = course
            && *op != TensorOp::Load
            && let Some(mode) = coords.iter().position(|at| *at < 0)
        {
            self.misuse(site, Rule::Place, || {
                format!(
                    "a box is written at coordinate {} of dimension {mode}, and devices take negative ones for illegal instructions",
                    coords[mode]
                )
            });
        }
        if *bytes > BYTES_LIMIT {
            self.misuse(site, Rule::Bytes, || format!("it moves {bytes} bytes, more than there are"));
        }
        if let Course::Global { address, .. } = course
            && !address.is_multiple_of(u64::from(UNIT))
        {
            let (address, bytes) = (*address as i64, UNIT);
            self.wrong(site, FaultKind::Misaligned, Memory::Global, address, bytes, course.is_store());
        }
    }

    /// Notes what a copy does to global memory; `data` is what it writes, if it writes.
    fn watch_course(
        &mut self,
        site: &Site,
        course: &Course,
        data: &[u8],
        bytes: u32,
        unit: (Agent, u32, u8),
    ) {
        if !self.context.config.check_global {
            return;
        }
        match course {
            Course::Tensor { op, map, coords } => {
                let touch = match op {
                    TensorOp::Load => Touch::Read,
                    TensorOp::Add => Touch::Add,
                    _ => Touch::Write,
                };
                let Some((bound, shape, _, number)) = self.map(*map) else { return };
                if touch == Touch::Read && !self.context.watches(number) {
                    if self.context.depends(number, false) {
                        let mut first = None;
                        rows(bound, shape, coords, |_, global, _| first = first.or(Some(global)));
                        if let Some(first) = first {
                            self.check_launches(site, (number, first), touch);
                        }
                    }
                    return;
                }
                rows(bound, shape, coords, |at, global, len| {
                    let data = data.get(at..at + len).unwrap_or_default();
                    self.watch_global(site, (number, global, len as u64), touch, data, Some(unit));
                });
            }
            Course::Global { store, address } => {
                let Some((buffer, number, offset)) = self.context.memory.locate(address & !15) else {
                    return;
                };
                let touch = if *store { Touch::Write } else { Touch::Read };
                // What lies outside is reported, and left.
                let inside = buffer.size().saturating_sub(offset).min(u64::from(bytes));
                let data = data.get(..inside as usize).unwrap_or_default();
                self.watch_global(site, (number, offset, inside), touch, data, Some(unit));
            }
            Course::Peer { .. } | Course::Answer => {}
        }
    }

    /// Offsets of the units of a box; those that lie in no shared buffer are reported.
    fn units_of(
        &mut self,
        site: &Site,
        offset: u32,
        bytes: u32,
        swizzle: SwizzleMode,
        write: bool,
    ) -> Vec<u32> {
        let mut units = Vec::with_capacity((bytes / UNIT) as usize);
        if offset > LOCAL {
            let address = i64::from(offset.wrapping_add(SHARED_BASE));
            self.wrong(site, FaultKind::OutOfBounds, Memory::Shared, address, bytes, write);
            return vec![NOWHERE; (bytes / UNIT) as usize];
        }
        let (mut outside, mut barrier) = (None, false);
        for unit in places(offset, bytes, swizzle) {
            let inside = self.context.owners.find(unit, UNIT).is_some();
            if !inside {
                outside = outside.or(Some(unit));
            }
            barrier |= inside && self.barrier_within((site.rank, unit), UNIT);
            units.push(if inside { unit } else { NOWHERE });
        }
        if let Some(unit) = outside {
            let address = i64::from(unit) + i64::from(SHARED_BASE);
            self.wrong(site, FaultKind::OutOfBounds, Memory::Shared, address, UNIT, write);
        }
        if barrier {
            self.misuse(site, Rule::Barrier, || "it accesses the bytes of an mbarrier".to_string());
        }
        units
    }

    /// Completes one of the copies.
    pub(crate) fn complete(&mut self, index: usize) {
        let mut flight = self.flights.remove(index);
        if flight.is_store() {
            self.finish_store(&mut flight);
        } else {
            self.land_in(&mut flight, ..);
        }
    }

    /// Completes one of the copies in a part: reads what a store is to write, or lands the bytes in one of the blocks that receive them.
    pub(crate) fn complete_part(&mut self, index: usize, part: usize) {
        let flight = &mut self.flights[index];
        match flight.targets.len() {
            _ if flight.is_store() => self.read_source(index),
            0 | 1 => self.complete(index),
            targets => {
                let mut flight = flight.clone();
                self.land_in(&mut flight, part % targets..part % targets + 1);
                self.flights[index] = flight;
            }
        }
    }

    /// Lands the bytes in some of the blocks that receive them, which receive them no more.
    fn land_in(&mut self, flight: &mut Flight, targets: impl RangeBounds<usize>) {
        let data = flight.data.take().unwrap_or_else(|| match &flight.course {
            Course::Tensor { map, coords, .. } => self.gather_box(*map, coords, flight.bytes),
            Course::Global { address, .. } => self.read_bytes(&flight.site, *address, flight.bytes),
            Course::Peer { .. } => self.gather(&flight.site, &flight.source, flight.bytes),
            Course::Answer => self.answer(),
        });
        let targets: Vec<u32> = flight.targets.drain(targets).collect();
        for target in &targets {
            let key = flight.barrier.map(|b| (signalled(*target, flight.parity), b));
            let known = key.and_then(|key| self.barriers.get(&key));
            let (agent, time) =
                known.map_or((self.copies_of(flight.site.agent), 1), |b| (b.agent, b.landing_time()));
            let issue = self.access(&flight.site);
            let access = Access { agent, time, lanes: u32::MAX, flags: ASYNC, ..issue };
            if self.ctas[*target as usize].running == 0 {
                let target = *target - self.peers(*target).start;
                self.misuse(&flight.site, Rule::Ended, || {
                    format!("block {target} of the cluster ends before the copy into its shared memory is complete")
                });
            }
            for (unit, bytes) in flight.destination.iter().zip(data.chunks_exact(UNIT as usize)) {
                if *unit != NOWHERE {
                    self.land(*target, *unit, bytes, access);
                }
            }
            let Some(barrier) = key.and_then(|key| self.barriers.get_mut(&key)) else { continue };
            barrier.clock().join_executed(&flight.executed);
            match barrier.complete(u64::from(flight.bytes), flight.ready) {
                Ok(ended) => self.ended(&flight.site, key.unwrap_or_default(), ended),
                Err(_) => self.misuse(&flight.site, Rule::Bytes, || {
                    "the mbarrier has received over a MiB more than it was told to expect".to_string()
                }),
            }
        }
        flight.data = Some(data);
    }

    /// Reads what a store is to write, if it has not yet.
    pub(crate) fn read_source(&mut self, index: usize) {
        if self.flights[index].data.is_none() {
            let Flight { site, source, bytes, .. } = &self.flights[index];
            let data = self.gather(site, source, *bytes);
            self.flights[index].data = Some(data);
        }
    }

    /// Reports the stores that nothing has waited for: the memory that they read goes with its block.
    pub(crate) fn report_unread(&mut self) {
        let unread = |f: &&Flight| f.is_store() && f.data.is_none();
        let sites: Vec<Site> = self.flights.iter().filter(unread).map(|f| f.site).collect();
        for site in sites {
            self.misuse(&site, Rule::Ended, || {
                "its block ends before it has read shared memory: no wait covers it".to_string()
            });
        }
    }

    fn gather(&self, site: &Site, source: &[u32], bytes: u32) -> Vec<u8> {
        let shared = self.shared(site.rank);
        let mut data = vec![0; bytes as usize];
        for (to, unit) in data.chunks_exact_mut(UNIT as usize).zip(source) {
            if let Some(from) = shared.get(*unit as usize..).and_then(|s| s.get(..UNIT as usize)) {
                to.copy_from_slice(from);
            }
        }
        data
    }

    fn finish_store(&mut self, flight: &mut Flight) {
        let data =
            flight.data.take().unwrap_or_else(|| self.gather(&flight.site, &flight.source, flight.bytes));
        match &flight.course {
            Course::Tensor { op, map, coords } => self.scatter_box(*op, *map, coords, &data),
            Course::Global { address, .. } => {
                for (i, unit) in data.chunks_exact(UNIT as usize).enumerate() {
                    let address = address.wrapping_add(u64::from(UNIT) * i as u64) & !15;
                    if let Some((buffer, _, offset)) = self.global_offset(&flight.site, address, UNIT, true) {
                        buffer.store(offset, unit);
                    }
                }
            }
            Course::Peer { .. } | Course::Answer => {}
        }
    }

    fn read_bytes(&mut self, site: &Site, address: u64, bytes: u32) -> Vec<u8> {
        let mut data = vec![0; bytes as usize];
        for (i, unit) in data.chunks_exact_mut(UNIT as usize).enumerate() {
            let address = address.wrapping_add(u64::from(UNIT) * i as u64) & !15;
            if let Some((buffer, _, offset)) = self.global_offset(site, address, UNIT, false) {
                buffer.load(offset, unit);
            }
        }
        data
    }

    fn map(&self, map: MapId) -> Option<(&'a BoundMap, &'a BoxShape, &'a Buffer, u32)> {
        let bound = self.context.maps.get(map.index as usize)?.get(map.number as usize)?;
        let shape = &self.context.program.function.tensor_maps.get(map.index as usize)?.shape;
        let (buffer, number, _) = self.context.memory.locate(bound.address)?;
        Some((bound, shape, buffer, number))
    }

    fn gather_box(&self, map: MapId, coords: &[i32], bytes: u32) -> Vec<u8> {
        let mut data = vec![0; bytes as usize];
        if let Some((bound, shape, buffer, _)) = self.map(map) {
            rows(bound, shape, coords, |at, global, len| {
                if let Some(to) = data.get_mut(at..at + len) {
                    buffer.load(global, to);
                }
            });
        }
        data
    }

    fn scatter_box(&self, op: TensorOp, map: MapId, coords: &[i32], data: &[u8]) {
        let Some((bound, shape, buffer, _)) = self.map(map) else { return };
        let sum = Reduction { op: RedOp::Add, dtype: shape.dtype, form: RedForm::Instruction };
        rows(bound, shape, coords, |at, global, len| {
            let Some(from) = data.get(at..at + len) else { return };
            if op == TensorOp::Add { reduce(buffer, global, from, sum) } else { buffer.store(global, from) }
        });
    }
}

/// Calls `f` with each run of a box that lies inside the tensor, or of each of the rows that are gathered: its byte in shared memory, its byte in the
/// buffer, and its length.
fn rows(bound: &BoundMap, shape: &BoxShape, coords: &[i32], mut f: impl FnMut(usize, u64, usize)) {
    if let Some(corners) = &shape.corners {
        return rows_of_pixels(bound, shape, corners, coords, f);
    }
    if !gathers(shape, coords) {
        return rows_of_box(bound, shape, coords, f);
    }
    for (number, row) in coords[1..].iter().enumerate() {
        let begin = number * shape.bytes() as usize;
        rows_of_box(bound, shape, &[coords[0], *row], |at, global, len| f(begin + at, global, len));
    }
}

/// True if there are coordinates for each of several rows.
fn gathers(shape: &BoxShape, coords: &[i32]) -> bool {
    shape.corners.is_none() && coords.len() > shape.extents.len()
}

/// The last place along dimension `at + 1` at which a bounding box has pixels.
fn last_pixel(bound: &BoundMap, corners: &Corners, at: usize) -> i64 {
    bound.extents.get(at + 1).map_or(1, |e| *e as i64) - 1
        + corners.upper.get(at).map_or(0, |c| i64::from(*c))
}

/// The mistake in the coordinates and offsets of a load in im2col mode: the first pixel is one of the bounding box, at a step from its lower corner,
/// and offsets are as many bits as they have.
fn wrong_pixels(bound: &BoundMap, shape: &BoxShape, corners: &Corners, coords: &[i32]) -> Option<String> {
    let rank = shape.rank();
    let (coords, offsets) = coords.split_at(coords.len().min(rank));
    for (at, lower) in corners.lower.iter().enumerate() {
        let (dim, first, last) = (at + 1, i64::from(*lower), last_pixel(bound, corners, at));
        let (place, step) = (i64::from(coords[dim]), i64::from(shape.steps[dim]));
        if !(first..=last).contains(&place) || (place - first) % step != 0 {
            return Some(format!(
                "the first pixel is at {place} along dimension {dim}, and those of the bounding box from {first} to {last} in steps of {step}"
            ));
        }
    }
    let most = Corners::offsets(rank);
    let wrong = offsets.iter().find(|offset| !most.contains(&i64::from(**offset)))?;
    Some(format!(
        "an offset of pixels is {wrong}, and those of {rank} dimensions are from 0 to {}",
        most.end()
    ))
}

/// The runs of pixels in im2col mode: one of channels of each.
fn rows_of_pixels(
    bound: &BoundMap,
    shape: &BoxShape,
    corners: &Corners,
    coords: &[i32],
    mut f: impl FnMut(usize, u64, usize),
) {
    let (element, rank) = (i64::from(shape.dtype.bits() / 8), shape.rank());
    let [channels, pixels] = shape.extents[..] else { return };
    let limit = |dim: usize| bound.extents.get(dim).map_or(1, |e| *e as i64);
    let (coords, offsets) = coords.split_at(coords.len().min(rank));
    let mut place: Vec<i64> = coords.iter().map(|at| i64::from(*at)).collect();
    let (first, images) = (place[0], rank - 1);
    let (from, to) = (first.max(0), (first + i64::from(channels)).min(limit(0)));
    for pixel in 0..i64::from(pixels) {
        let along = |dim: usize| place[dim] + offsets.get(dim - 1).map_or(0, |offset| i64::from(*offset));
        if from < to && (1..rank).all(|dim| (0..limit(dim)).contains(&along(dim))) {
            let global =
                (1..rank).map(|dim| along(dim) * bound.strides.get(dim - 1).map_or(0, |s| *s as i64));
            let global = from * element + global.sum::<i64>();
            let at = (pixel * i64::from(channels) + from - first) * element;
            f(at as usize, global as u64, ((to - from) * element) as usize);
        }
        // The next pixel of the bounding box, or the first of the next image's.
        let mut dim = 1;
        while dim < images {
            place[dim] += i64::from(shape.steps[dim]);
            if place[dim] <= last_pixel(bound, corners, dim - 1) {
                break;
            }
            place[dim] = i64::from(corners.lower[dim - 1]);
            dim += 1;
        }
        place[images] += i64::from(dim == images);
    }
}

/// The runs of one box.
fn rows_of_box(bound: &BoundMap, shape: &BoxShape, coords: &[i32], mut f: impl FnMut(usize, u64, usize)) {
    let element = i64::from(shape.dtype.bits() / 8);
    let extents: Vec<i64> = shape.extents.iter().map(|e| i64::from(*e)).collect();
    let limit = |dim: usize| bound.extents.get(dim).map_or(1, |e| *e as i64);
    let first = i64::from(coords[0]);
    let (from, to) = (first.max(0), (first + extents[0]).min(limit(0)));
    if from >= to {
        return;
    }
    let count: i64 = extents[1..].iter().product();
    'rows: for row in 0..count {
        let (mut rest, mut global) = (row, from * element);
        for (dim, extent) in extents.iter().enumerate().skip(1) {
            let at =
                i64::from(coords[dim]) + rest % extent * shape.steps.get(dim).map_or(1, |s| i64::from(*s));
            rest /= extent;
            if !(0..limit(dim)).contains(&at) {
                continue 'rows;
            }
            global += at * bound.strides.get(dim - 1).map_or(0, |s| *s as i64);
        }
        let at = (row * extents[0] + from - first) * element;
        f(at as usize, global as u64, ((to - from) * element) as usize);
    }
}

/// Combines elements with those in global memory, each as one step.
pub(crate) fn reduce(buffer: &Buffer, offset: u64, data: &[u8], Reduction { op, dtype, .. }: Reduction) {
    let bytes = (dtype.bits() / 8) as usize;
    for (i, element) in data.chunks_exact(bytes).enumerate() {
        let at = offset + (i * bytes) as u64;
        let term = element.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        if bytes == 8 {
            buffer.update_pair((at / 4) as usize, |old| op.combine(dtype, old, term));
            continue;
        }
        let shift = 8 * (at % 4) as u32;
        let mask = (u32::MAX >> (32 - dtype.bits())) << shift;
        buffer.update((at / 4) as usize, |old| {
            let result = op.combine(dtype, u64::from((old & mask) >> shift), term) as u32;
            (old & !mask) | (result << shift & mask)
        });
    }
}
