//! What each instruction of a tile statement costs: warp instructions, bytes, cycles of issue and of waiting.

use serde::Serialize;
use tilewright_machine::{BulkOp, Memory, SyncOp, TensorOp};
use tilewright_simt::{OriginId, Position};

use crate::context::Context;
use crate::decode::{Code, Instruction, Program, Source, sync_name};
use crate::report::Counts;
use crate::trace::Tracer;
use crate::warp::{State, Warp};
use crate::wgmma::WgmmaTable;

/// What kind of instruction it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Arithmetic, addresses, branches and loops.
    Scalar,
    /// Loads, stores, copies and shuffles.
    Memory,
    /// Matrix products.
    Tensor,
    /// Barriers, mbarriers, fences and waits.
    Barrier,
}

/// Bytes by the memories that they come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bytes {
    /// Read from global memory, tensor and bulk copies not included.
    pub global_read: u64,
    /// Written to global memory, tensor and bulk copies not included.
    pub global_written: u64,
    /// Read from shared memory, by warps and by products of warpgroups.
    pub shared_read: u64,
    /// Written to shared memory by warps and their asynchronous copies.
    pub shared_written: u64,
    /// Moved into shared memory by tensor and bulk copies, once for each request.
    pub unit_read: u64,
    /// Moved out of shared memory by tensor and bulk copies.
    pub unit_written: u64,
}

impl Bytes {
    /// Adds others.
    pub fn add(&mut self, other: &Bytes) {
        self.global_read += other.global_read;
        self.global_written += other.global_written;
        self.shared_read += other.shared_read;
        self.shared_written += other.shared_written;
        self.unit_read += other.unit_read;
        self.unit_written += other.unit_written;
    }
}

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
    /// What they moved.
    pub bytes: Bytes,
    /// Requests, and what they took.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Where an instruction's bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Nowhere,
    Load(Memory),
    Store(Memory),
    /// From global to shared memory by a thread.
    Async,
    UnitLoad,
    UnitStore,
    /// From shared memory into a product, so many bytes a warp instruction.
    Product(u64),
}

/// The instructions of a statement that are counted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub origin: u32,
    pub name: &'static str,
    pub class: Class,
    flow: Flow,
}

impl Row {
    /// The row of an instruction of a program that is decoded so far.
    pub(crate) fn new(program: &Program<'_>, code: &Code, origin: u32) -> Self {
        let named = |statement: &u32| program.statements.get(*statement as usize).map_or("", |s| s.name);
        let (name, class, flow) = match code {
            Code::Load(t) | Code::Lookup { transfer: t, .. } => {
                (named(&t.statement), Class::Memory, Flow::Load(t.memory))
            }
            Code::Store(t) => (named(&t.statement), Class::Memory, Flow::Store(t.memory)),
            Code::AsyncCopy { statement, .. } => (named(statement), Class::Memory, Flow::Async),
            Code::Matrix { statement, table, .. } => {
                let store = program.matrices[*table as usize].store;
                let flow = if store { Flow::Store(Memory::Shared) } else { Flow::Load(Memory::Shared) };
                (named(statement), Class::Memory, flow)
            }
            Code::Mma { table, .. } => {
                (program.products[*table as usize].name(), Class::Tensor, Flow::Nowhere)
            }
            Code::Shuffle { mode, .. } => (mode.mnemonic(), Class::Memory, Flow::Nowhere),
            Code::Wgmma { statement, table, a, .. } => {
                let bytes = product_bytes(&program.wgmmas[*table as usize], a);
                (named(statement), Class::Tensor, Flow::Product(bytes / 4))
            }
            Code::Tensor(copy) => {
                let flow = if copy.op == TensorOp::Load { Flow::UnitLoad } else { Flow::UnitStore };
                (named(&copy.statement), Class::Memory, flow)
            }
            Code::Bulk(copy) => {
                let flow = match copy.op {
                    BulkOp::Load => Flow::UnitLoad,
                    BulkOp::Store => Flow::UnitStore,
                    _ => Flow::Nowhere,
                };
                (named(&copy.statement), Class::Memory, flow)
            }
            Code::Mbarrier { statement, .. } | Code::Sync { statement, .. } => {
                (named(statement), Class::Barrier, Flow::Nowhere)
            }
            _ => ("scalar", Class::Scalar, Flow::Nowhere),
        };
        Row { origin, name, class, flow }
    }

    fn bytes(&self, calls: u64, counts: &Counts) -> Bytes {
        let (global, shared) = (counts.global_bytes, counts.shared_bytes);
        let none = Bytes::default();
        match self.flow {
            Flow::Nowhere => none,
            Flow::Load(Memory::Shared) => Bytes { shared_read: shared, ..none },
            Flow::Load(_) => Bytes { global_read: global, shared_read: shared, ..none },
            Flow::Store(Memory::Shared) => Bytes { shared_written: shared, ..none },
            Flow::Store(_) => Bytes { global_written: global, ..none },
            Flow::Async => Bytes { global_read: global, shared_written: shared, ..none },
            Flow::UnitLoad => Bytes { unit_read: global, ..none },
            Flow::UnitStore => Bytes { unit_written: global, ..none },
            Flow::Product(bytes) => Bytes { shared_read: calls * bytes, ..none },
        }
    }
}

/// Bytes of shared memory that a product reads.
fn product_bytes(table: &WgmmaTable, a: &Source) -> u64 {
    let row = table.row;
    let left = if matches!(a, Source::Registers(_)) { 0 } else { tilewright_machine::WgmmaRow::M };
    ((left * row.k) as u64 * u64::from(row.a.bits()) + (row.n * row.k) as u64 * u64::from(row.b.bits())) / 8
}

/// What the instructions of a row have cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    calls: u64,
    unit: u64,
    issue: u64,
    stall: u64,
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
    suspended: Vec<Option<(u64, u32, String)>>,
    pub tracer: Option<Tracer>,
}

impl Observer {
    /// That of a cluster of so many warps, if its launch is observed.
    pub(crate) fn new(context: &Context<'_>, cluster: u64, warps: usize) -> Option<Box<Self>> {
        let blocks = u64::from(context.program.function.cluster);
        let traced = context.config.trace.is_some_and(|block| block / blocks == cluster);
        (context.config.profile || traced).then(|| {
            Box::new(Observer {
                costs: vec![Cost::default(); context.program.rows.len()],
                suspended: vec![None; warps],
                tracer: traced.then(|| Tracer::new(context, cluster * blocks, warps)),
            })
        })
    }

    /// Notes that a warp goes on.
    pub(crate) fn resume(&mut self, agent: usize, clock: u64) {
        let Some((since, row, what)) = self.suspended.get_mut(agent).and_then(Option::take) else { return };
        if let Some(cost) = self.costs.get_mut(row as usize) {
            cost.stall += clock - since;
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.wait(agent, what, since, clock);
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

impl Warp {
    /// Counts an instruction that has been executed; the warp's clock was at `before`.
    pub(crate) fn observe(
        &mut self,
        observer: &mut Observer,
        context: &Context<'_>,
        instruction: &Instruction,
        before: u64,
    ) {
        let unit = std::mem::take(&mut self.timing.spent);
        if matches!(instruction.code, Code::Else { .. } | Code::EndIf) {
            return;
        }
        let program = &context.program;
        let Some(row) = program.rows.get(instruction.row as usize) else { return };
        let after = self.timing.clock;
        // Units other than the scalar ones take a warp's instruction in one cycle.
        let most = match row.class {
            Class::Memory | Class::Tensor => 1,
            Class::Scalar | Class::Barrier => unit,
        };
        let issue = most.min(after - before);
        let suspended = matches!(self.state, State::Waiting(_));
        // Who is suspended has been waiting since the end of the issue.
        let stall = if suspended { 0 } else { after - before - issue };
        let agent = self.agent as usize;
        // Lanes on another side of a branch may wait while these run.
        observer.suspended[agent] = None;
        let cost = &mut observer.costs[instruction.row as usize];
        *cost = Cost {
            calls: cost.calls + 1,
            unit: cost.unit + unit,
            issue: cost.issue + issue,
            stall: cost.stall + stall,
        };
        if let Some(tracer) = &mut observer.tracer {
            let bytes = self.moved(&instruction.code);
            let waits = row.class == Class::Barrier;
            let end = if waits || suspended { before + issue } else { after };
            tracer.executed(agent, row, (before, end), if waits { 0 } else { stall }, bytes, program);
            if waits && stall > 0 {
                let what = self.awaited(context, &instruction.code);
                tracer.wait(agent, what, end, after);
            }
        }
        if suspended {
            let what = match observer.tracer {
                Some(_) => self.awaited(context, &instruction.code),
                None => String::new(),
            };
            observer.suspended[agent] = Some((before + issue, instruction.row, what));
        }
    }

    /// Bytes that an instruction moves, its guard not considered.
    fn moved(&self, code: &Code) -> u64 {
        let lanes = u64::from(self.active.count_ones());
        match code {
            Code::Load(t) | Code::Store(t) | Code::Lookup { transfer: t, .. } => lanes * u64::from(t.bytes),
            Code::AsyncCopy { bytes, .. } => lanes * u64::from(*bytes),
            Code::Tensor(copy) => lanes * u64::from(copy.bytes),
            Code::Matrix { regs, .. } => 128 * regs.len() as u64,
            _ => 0,
        }
    }

    /// What an instruction waits for, in words.
    fn awaited(&self, context: &Context<'_>, code: &Code) -> String {
        match code {
            Code::Mbarrier { place, .. } => {
                let lane = self.active.trailing_zeros().min(31) as usize;
                format!("wait {}", barrier_name(context, self.shared_address(*place, lane)))
            }
            Code::Sync { op: SyncOp::NamedBarrier { id, .. }, .. } => format!("wait barrier {id}"),
            Code::Sync { op: SyncOp::Barrier, .. } => "wait barrier 0".to_string(),
            Code::Sync { op, .. } => format!("wait {}", sync_name(*op)),
            _ => "wait for the warpgroup".to_string(),
        }
    }
}

/// The name of the mbarrier at an address of a block. Of the buffer `P.barriers` of a pipeline, the first half says that stages are full,
/// the second that they are empty.
fn barrier_name(context: &Context<'_>, address: u32) -> String {
    let offset = i64::from(address & 0xff_ffff) - i64::from(crate::context::SHARED_BASE);
    let (buffer, at, bytes) = context.describe(Memory::Shared, offset);
    let (index, stages) = (at / 8, (bytes / 16) as i64);
    match buffer.strip_suffix(".barriers") {
        Some(ring) if index < stages => format!("{ring}.full[{index}]"),
        Some(ring) => format!("{ring}.empty[{}]", index - stages),
        None => format!("{buffer}[{index}]"),
    }
}
