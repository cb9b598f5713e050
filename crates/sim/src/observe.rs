//! Observation of a warp: its instructions are counted, and traced.

use tilewright_machine::{Memory, SyncOp};

use crate::context::Context;
use crate::decode::{Code, Instruction, sync_name};
use crate::findings::Class;
use crate::memory::SHARED_BASE;
use crate::profile::{Cost, Observer};
use crate::trace::StageEnd;
use crate::warp::{State, Warp};

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
                tracer.wait(agent, what, program.position(row.origin), (end, after));
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
            Code::Atomic(_) => lanes * 4,
            Code::AsyncCopy { bytes, .. } => lanes * u64::from(*bytes),
            Code::Tensor(copy) => lanes * u64::from(copy.bytes),
            Code::Matrix { regs, .. } => 128 * regs.len() as u64,
            _ => 0,
        }
    }

    /// The awaited event of an instruction, as text.
    fn awaited(&self, context: &Context<'_>, code: &Code) -> String {
        match code {
            Code::Mbarrier { place, .. } => {
                let lane = self.active.trailing_zeros().min(31) as usize;
                format!("wait {}", barrier_name(context, self.shared_address(*place, lane)))
            }
            Code::Await { .. } => "wait for a word of global memory".to_string(),
            Code::Sync { op: SyncOp::NamedBarrier { id, .. }, .. } => format!("wait barrier {id}"),
            Code::BarrierSync { .. } => "wait barrier of a warpgroup".to_string(),
            Code::Sync { op: SyncOp::Barrier, .. } => "wait barrier 0".to_string(),
            Code::Sync { op, .. } => format!("wait {}", sync_name(*op)),
            _ => "wait for the warpgroup".to_string(),
        }
    }
}

/// The name of the mbarrier at an address of a block.
fn barrier_name(context: &Context<'_>, address: u32) -> String {
    let offset = (address & 0xff_ffff).wrapping_sub(SHARED_BASE);
    match stage_end(context, offset) {
        Some(StageEnd { pipeline, stage, full: true }) => format!("{pipeline}.full[{stage}]"),
        Some(StageEnd { pipeline, stage, full: false }) => format!("{pipeline}.empty[{stage}]"),
        None => {
            let (buffer, at, _) = context.describe(Memory::Shared, i64::from(offset as i32));
            format!("{buffer}[{}]", at / 8)
        }
    }
}

/// The stage whose mbarrier lies at an offset of the window. Of the buffer `P.barriers` of a pipeline, the first half says that stages are
/// full, the second that they are empty.
pub(crate) fn stage_end(context: &Context<'_>, offset: u32) -> Option<StageEnd> {
    let (buffer, at, bytes) = context.describe(Memory::Shared, i64::from(offset as i32));
    let pipeline = buffer.strip_suffix(".barriers")?.to_string();
    let (index, stages) = (u32::try_from(at / 8).ok()?, (bytes / 16) as u32);
    let full = index < stages;
    Some(StageEnd { pipeline, stage: if full { index } else { index - stages }, full })
}
