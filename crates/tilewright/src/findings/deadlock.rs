//! Deadlocks on the simulator in the interpreter's words: roles that wait, for stages of pipelines, for each other, for blocks.

use std::collections::BTreeSet;

use tilewright_sim::{Awaited, BarrierState, Waiting};
use tilewright_tile::core::StmtKind;
use tilewright_tile::interpret::{InterpretError, Wait, WaitFor};
use tilewright_tile::{BarrierId, Diagnostic, Operand, PipelineId, Side, Use};

use super::reader::Reader;

/// A block with what its warps do when nothing can go on.
struct Stuck<'a> {
    reader: &'a Reader<'a>,
    waits: &'a [Waiting],
    ended: &'a [([u32; 3], u32)],
    barriers: &'a [BarrierState],
}

/// The message of a deadlock.
pub(super) fn message(
    reader: &Reader<'_>,
    waits: &[Waiting],
    ended: &[([u32; 3], u32)],
    barriers: &[BarrierState],
) -> Diagnostic {
    let stuck = Stuck { reader, waits, ended, barriers };
    let mut told: Vec<Wait> = Vec::new();
    for wait in waits.iter().filter_map(|waiting| stuck.wait(waiting)) {
        let same =
            |other: &Wait| (&other.role, other.block, &other.what) == (&wait.role, wait.block, &wait.what);
        if !told.iter().any(same) {
            told.push(wait);
        }
    }
    let machine = waits.iter().map(ToString::to_string);
    reader.told(InterpretError::Deadlock { waits: told }.diagnostic(), machine)
}

impl Stuck<'_> {
    /// The number of the role of a warp.
    fn role(&self, warp: u32) -> Option<usize> {
        self.reader.statements.role_of_thread(32 * warp)
    }

    /// A role as messages name it, with what has become of it in a block.
    fn named(&self, role: usize, block: [u32; 3]) -> String {
        let name = self.reader.statements.role_words(role);
        let goes_on = |warp: &u32| self.role(*warp) == Some(role);
        let waits = self.waits.iter().any(|w| w.block == block && w.warps.iter().any(goes_on));
        let ended = self.ended.iter().any(|(of, warp)| *of == block && goes_on(warp));
        if ended && !waits { format!("{name} (which has ended)") } else { name }
    }

    /// The wait of warps in words of the program.
    fn wait(&self, waiting: &Waiting) -> Option<Wait> {
        let Waiting { block, warps, origin, position, on, what } = waiting;
        let statements = &self.reader.statements;
        let role = warps.first().and_then(|warp| self.role(*warp));
        let statement = statements.said(*position, origin);
        let other = |statement| WaitFor::Threads { statement, what: what.clone() };
        let awaited = match on {
            Awaited::Mbarrier { buffer, offset } => {
                self.stage(*block, buffer, *offset).unwrap_or_else(|| other(statement))
            }
            Awaited::Named { id, phases } => self.come((*id, *phases), role, *block, statement),
            Awaited::Block => {
                WaitFor::Barrier { statement, time: None, by: vec!["the other threads".to_string()] }
            }
            Awaited::Cluster => WaitFor::Cluster { statement },
            Awaited::Word { now } => {
                WaitFor::Flag { statement, now: i64::from(*now), of: block.map(i64::from) }
            }
            Awaited::Warpgroup | Awaited::Products | Awaited::Registers => other(statement),
        };
        let several = self.waits.iter().any(|other| other.block != *block);
        let cluster = self.reader.kernel.function.cluster.max(1);
        let name = |role: usize| self.reader.kernel.core.roles()[role].name.clone();
        Some(Wait {
            role: role.map(name),
            block: (several && cluster > 1).then_some((block[0] % cluster) as usize),
            what: awaited,
            span: statements.place(*position, origin),
        })
    }

    /// The wait for a stage, of which a byte of the pipeline's barriers tells.
    fn stage(&self, block: [u32; 3], buffer: &str, offset: u64) -> Option<WaitFor> {
        let name = buffer.strip_suffix(".barriers")?;
        let core = &self.reader.kernel.core;
        let id = PipelineId(core.pipelines.iter().position(|p| p.name == name)? as u32);
        let stages = core.pipeline(id).stages as usize;
        let (index, pipeline) = ((offset / 8) as usize, name.to_string());
        let phases = |barrier: &BarrierState| {
            barrier.block == block && barrier.buffer == *buffer && barrier.offset == offset
        };
        let phases = self.barriers.iter().find(|b| phases(b)).map_or(0, |b| b.phases as usize);
        if index < stages {
            let by = self.roles_of(id, Side::Produce, block);
            return Some(WaitFor::Full { pipeline, stage: index, time: phases * stages + index + 1, by });
        }
        let stage = index - stages;
        let by = self.roles_of(id, Side::Consume, block);
        Some(WaitFor::Free { pipeline, stage, stages, time: (phases + 1) * stages + stage + 1, by })
    }

    /// The roles on a side of a pipeline.
    fn roles_of(&self, id: PipelineId, side: Side, block: [u32; 3]) -> Vec<String> {
        let on = |kind: &StmtKind| matches!(kind, StmtKind::Stage { pipeline, side: of, .. } if (*pipeline, *of) == (id, side));
        let roles: BTreeSet<usize> = self
            .reader
            .statements
            .iter()
            .filter(|(_, site)| on(&site.stmt.kind))
            .filter_map(|(_, site)| site.role)
            .collect();
        roles.into_iter().map(|role| self.named(role, block)).collect()
    }

    /// The wait at a barrier of the block: a named one, or that of a role's threads.
    fn come(
        &self,
        (id, phases): (u32, u32),
        role: Option<usize>,
        block: [u32; 3],
        statement: String,
    ) -> WaitFor {
        let core = &self.reader.kernel.core;
        let numbers = core.barrier_numbers();
        let named =
            (0..core.barriers.len() as u32).map(BarrierId).find(|barrier| numbers.named(*barrier) == id);
        let Some(barrier) = named else {
            let by = role.map_or("the other threads".to_string(), |role| {
                format!("the other threads of {}", self.reader.statements.role_words(role))
            });
            return WaitFor::Barrier { statement, time: None, by: vec![by] };
        };
        let comes = |kind: &StmtKind| {
            let at = |operand: &Operand<'_, tilewright_tile::core::Core>| matches!(operand, Operand::Barrier(used, of) if *used != Use::Define && **of == barrier);
            kind.operands().iter().any(at)
        };
        let here = |role: usize| {
            let waits = |w: &&Waiting| {
                w.block == block && matches!(w.on, Awaited::Named { id: other, .. } if other == id)
            };
            self.waits.iter().filter(waits).any(|w| w.warps.iter().any(|warp| self.role(*warp) == Some(role)))
        };
        let roles: BTreeSet<usize> = self
            .reader
            .statements
            .iter()
            .filter(|(_, site)| comes(&site.stmt.kind))
            .filter_map(|(_, site)| site.role)
            .collect();
        let by = roles.into_iter().filter(|role| !here(*role)).map(|role| self.named(role, block)).collect();
        WaitFor::Barrier { statement, time: Some(phases as usize + 1), by }
    }
}
