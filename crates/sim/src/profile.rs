//! Profiles: the cost of each instruction of a tile statement, in warp instructions, bytes, cycles of issue and of waiting.

use std::ops::Range;

use serde::Serialize;
use tilewright_simt::{OriginId, Position};

use crate::context::Context;
use crate::decode::Program;
use crate::findings::{Bytes, Class, Counts, Row};
use crate::trace::Tracer;

/// The cost of one instruction in one tile statement, over all blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Profile {
    /// The tile statement.
    pub origin: String,
    /// Its position in the source.
    pub position: Option<Position>,
    /// The instruction row's name; scalar instructions of a statement are one row, `scalar`.
    pub instruction: &'static str,
    /// Its kind.
    pub class: Class,
    /// Warp instructions executed; a product of a warpgroup counts for each of its four warps.
    pub calls: u64,
    /// Cycles for which they occupied their unit, one of those that the multiprocessor has.
    pub unit_cycles: u64,
    /// Cycles of the warps' clocks in which they were issued.
    pub issue_cycles: u64,
    /// Cycles for which warps waited in them: for operands or a busy unit; in barriers and waits, for what these wait for.
    pub stall_cycles: u64,
    /// Bytes moved.
    pub bytes: Bytes,
    /// Requests, and what they took.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Cost of the instructions of a row so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub calls: u64,
    pub unit: u64,
    pub issue: u64,
    pub stall: u64,
}

impl Cost {
    pub(crate) fn add(&mut self, other: &Cost) {
        self.calls += other.calls;
        self.unit += other.unit;
        self.issue += other.issue;
        self.stall += other.stall;
    }
}

/// Counts what the warps of a cluster do, and writes it down if it is to be traced.
#[derive(Debug)]
pub(crate) struct Observer {
    /// By the program's rows.
    pub costs: Vec<Cost>,
    /// By warp: since when it has been waiting, in an instruction of which row, and for what.
    pub suspended: Vec<Option<(u64, u32, String)>>,
    pub tracer: Option<Tracer>,
}

impl Observer {
    /// That of clusters that run together, of `warps` warps, if their launch is observed.
    pub(crate) fn new(context: &Context<'_>, clusters: Range<u64>, warps: usize) -> Option<Box<Self>> {
        let blocks = u64::from(context.program.function.cluster);
        let traced = context.config.trace.is_some_and(|block| clusters.contains(&(block / blocks)));
        (context.config.profile || traced).then(|| {
            Box::new(Observer {
                costs: vec![Cost::default(); context.program.rows.len()],
                suspended: vec![None; warps],
                tracer: traced.then(|| Tracer::new(context, clusters.start * blocks, warps)),
            })
        })
    }

    /// Notes that a warp goes on.
    pub(crate) fn resume(&mut self, agent: usize, clock: u64, program: &Program<'_>) {
        let Some((since, row, what)) = self.suspended.get_mut(agent).and_then(Option::take) else { return };
        if let Some(cost) = self.costs.get_mut(row as usize) {
            cost.stall += clock - since;
        }
        if let Some(tracer) = &mut self.tracer {
            let origin = program.rows.get(row as usize).map(|row| row.origin);
            tracer.wait(agent, what, origin.and_then(|origin| program.position(origin)), (since, clock));
        }
    }
}

/// The profile of a program whose rows have cost this.
pub(crate) fn profile(program: &Program<'_>, costs: &[Cost], counts: &[Counts]) -> Vec<Profile> {
    let of = |row: &Row| {
        let mut sum = Counts::default();
        let own = program
            .statements
            .iter()
            .zip(counts)
            .filter(|(s, _)| (s.origin, s.name) == (row.origin, row.name));
        own.for_each(|(_, counts)| sum.add(counts));
        sum
    };
    let executed = program.rows.iter().zip(costs).filter(|(_, cost)| cost.calls > 0);
    executed
        .map(|(row, cost)| {
            let counts = of(row);
            Profile {
                origin: program.origin(row.origin),
                position: program.function.position(OriginId(row.origin)),
                instruction: row.name,
                class: row.class,
                calls: cost.calls,
                unit_cycles: cost.unit,
                issue_cycles: cost.issue,
                stall_cycles: cost.stall,
                bytes: row.bytes(cost.calls, &counts),
                counts,
            }
        })
        .collect()
}
