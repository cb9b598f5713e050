//! The trace of a cluster as a timeline: tracks by role, events by statement.

use std::collections::BTreeMap;

use tilewright::compiler::Kernel as Compiled;
use tilewright::sim::{SharedRequest, Trace};
use tilewright::simt::Position;

use crate::model::{Request, Timeline, Track};
use crate::places::Places;
use crate::statements::Statements;

/// Events that a page has at most: those that begin first.
const EVENTS: usize = 24_000;

/// The categories of events, in the order of their indices.
const CATEGORIES: [&str; 4] = ["statement", "wait", "copy", "product"];

/// A trace as a timeline.
pub fn timeline(
    trace: &Trace,
    kernel: &Compiled,
    statements: &mut Statements,
    places: &mut Places<'_>,
) -> Timeline {
    let warps = kernel.threads().div_ceil(32);
    let roles = &kernel.core.roles;
    let role_of =
        |warp: u32| roles.iter().position(|r| (r.first..r.first + r.threads).contains(&(32 * warp)));
    let tracks = trace.tracks.iter().map(|track| {
        // The tensor cores of a warpgroup follow the warps and the tensor memory accelerator.
        let first =
            if track.number < warps { track.number } else { (track.number - warps).saturating_sub(1) * 4 };
        let is_unit = track.number == warps;
        Track {
            block: track.block,
            name: track.name.clone(),
            warp: (track.number < warps).then_some(track.number),
            role: if is_unit { None } else { role_of(first) },
        }
    });
    let mut timeline =
        Timeline { tracks: tracks.collect(), phases: trace.phases.clone(), ..Timeline::default() };
    timeline.cycles = trace.events.iter().map(|e| (e.start + e.cycles).max(e.args.lands)).max().unwrap_or(0);
    if trace.events.len() > EVENTS {
        let mut starts: Vec<u64> = trace.events.iter().map(|e| e.start).collect();
        starts.sort_unstable();
        timeline.cut = Some(starts[EVENTS]);
    }
    let by_number: BTreeMap<(u64, u32), usize> =
        trace.tracks.iter().enumerate().map(|(i, track)| ((track.block, track.number), i)).collect();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let cut = timeline.cut.unwrap_or(u64::MAX);
    for event in trace.events.iter().filter(|event| event.start < cut) {
        let (Some(track), Some(category)) = (
            by_number.get(&(event.block, event.track)),
            CATEGORIES.iter().position(|known| *known == event.category),
        ) else {
            continue;
        };
        let next = names.len();
        let name = *names.entry(event.name.clone()).or_insert(next);
        let statement = match event.position {
            Some(position) => statements.find(Some(position), (&event.name, None), places),
            None => None,
        };
        let columns = &mut timeline.events;
        columns.track.push(*track);
        columns.start.push(event.start);
        columns.cycles.push(event.cycles);
        columns.category.push(category);
        columns.statement.push(statement);
        columns.name.push(name);
        columns.bytes.push(event.args.bytes);
        columns.stall.push(event.args.stall);
        columns.lands.push(event.args.lands);
    }
    timeline.names = vec![String::new(); names.len()];
    for (name, index) in names {
        timeline.names[index] = name;
    }
    timeline
}

/// A request with the statement and the tensor that it is of.
pub fn request(request: &SharedRequest, kernel: &Compiled, statements: &Statements) -> Request {
    let position = request.position.and_then(Position::text);
    let statement = position.and_then(|position| statements.at(position));
    let first = request.offsets.iter().flatten().min().copied();
    let named: &[String] = statement.map_or(&[], |at| statements.list[at].tensors.as_slice());
    // Where tensors share memory, the one that the statement names.
    let holds = |offset: u32, of: &(u32, u32)| (of.0..of.0 + of.1).contains(&offset);
    let buffers = kernel.function.shared.iter();
    let mut here = buffers.filter(|b| first.is_some_and(|first| holds(first, &(b.offset, b.bytes))));
    let tensor = here.clone().find(|b| named.contains(&b.name)).or_else(|| here.next());
    Request { statement, tensor: tensor.map(|b| b.name.clone()), request: request.clone() }
}
