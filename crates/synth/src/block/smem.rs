//! Where everything lies in a block's shared memory: the tensors that roles share, then what each has for itself, then the barriers of
//! pipelines.

use std::collections::BTreeMap;

use tilewright_machine::Arch;
use tilewright_tile::core::{Program, StmtKind};
use tilewright_tile::{Code, Diagnostic, PipelineId, TensorId};

use super::part::Part;
use crate::allocate::allocate;
use crate::{ASYNC_ALIGN, SHARED_ALIGN};

/// A buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its name, for reports.
    pub name: String,
    /// Its offset.
    pub at: u32,
    /// Its size.
    pub bytes: u32,
}

/// Where a part's tensors lie.
pub struct PartMemory {
    /// The offset of each of its shared tensors.
    pub offsets: Vec<u32>,
    /// Of each of its tensors the buffer, if it is a shared one.
    pub buffers: Vec<Option<u32>>,
    /// The offset of the buffer that its statements use one after the other.
    pub scratch: u32,
}

/// Where a part's sums over the blocks of a cluster go through.
#[derive(Clone, Copy, Debug)]
pub struct ClusterReduceSlot {
    /// The offset of the buffer.
    pub buffer: u32,
    /// The offset of its two barriers: for what is there to be read, and for what has been read by all.
    pub barriers: u32,
    /// Registers of a thread that go through at a time, a multiple of 4.
    pub registers: u32,
}

/// Registers of a thread that take part in a sum over a cluster at a time, at most.
const SUM_REGISTERS: u32 = 32;

/// The most registers of a thread that a part's sums over the cluster have; 0 without any.
fn summed(part: &Part<'_>) -> u32 {
    let mut most = 0;
    part.verified.visit(&mut |stmt, _| {
        if let StmtKind::ClusterSum { dst } = &stmt.kind {
            most = most.max(part.synthesis.register(*dst).map_or(0, |tv| tv.count() as u32));
        }
    });
    most
}

/// The barriers of a pipeline: 8 bytes a stage for full ones, then as many for empty ones.
#[derive(Clone, Copy, Debug)]
pub struct Barriers {
    /// The offset.
    pub at: u32,
    /// Stages of the pipeline.
    pub stages: u32,
}

/// The map of a block's shared memory.
pub struct SharedMemoryMap {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// By part.
    pub parts: Vec<PartMemory>,
    /// Where the blocks of a cluster show each other their parts of a sum: for each part of the program, if it has sums.
    pub cluster_reduce: Vec<Option<ClusterReduceSlot>>,
    /// The barriers of each pipeline.
    pub barriers: BTreeMap<PipelineId, Barriers>,
}

/// Places everything.
///
/// # Errors
///
/// More shared memory than a block has.
pub fn map(whole: &Program, parts: &[Part<'_>], arch: Arch) -> Result<SharedMemoryMap, Diagnostic> {
    let program = whole;
    let mut common: BTreeMap<TensorId, (u32, u32)> = BTreeMap::new();
    let mut next = 0u32;
    let mut all = Vec::new();
    let mut put = |name: &str, at: u32, bytes: u32| -> u32 {
        all.push(Buffer { name: name.to_string(), at, bytes });
        (all.len() - 1) as u32
    };
    if parts.iter().any(|p| p.role.is_some()) {
        for stmt in &program.body {
            let StmtKind::Define(id) = stmt.kind else { continue };
            let bytes = parts.iter().find_map(|p| p.synthesis.shared(id)).map(|(_, bytes)| bytes);
            if let Some(bytes) = bytes {
                let at = next.next_multiple_of(ASYNC_ALIGN);
                let buffer = put(&program.tensor(id).name, at, bytes);
                common.insert(id, (at, buffer));
                next = at.saturating_add(bytes);
            }
        }
    }
    let mut placed = Vec::new();
    for part in parts {
        let tensors = &part.verified.tensors;
        let mut offsets = vec![0; tensors.len()];
        let mut buffers = vec![None; tensors.len()];
        let mut own = Vec::new();
        for (i, offset) in offsets.iter_mut().enumerate() {
            let id = TensorId(i as u32);
            match (common.get(&id), part.synthesis.shared(id)) {
                (Some((at, buffer)), _) => (*offset, buffers[i]) = (*at, Some(*buffer)),
                (None, Some((_, bytes))) => own.push((id, bytes)),
                (None, None) => {}
            }
        }
        let base = next.next_multiple_of(ASYNC_ALIGN);
        let allocation = allocate(part.verified, &own);
        for (id, at) in &allocation.offsets {
            offsets[id.0 as usize] = base + at;
            let bytes = own.iter().find(|(t, _)| t == id).map_or(0, |(_, bytes)| *bytes);
            buffers[id.0 as usize] = Some(put(&tensors[id.0 as usize].name, base + at, bytes));
        }
        if allocation.bytes > 0 {
            next = base.saturating_add(allocation.bytes);
        }
        let mut scratch = 0;
        if part.synthesis.scratch_bytes > 0 {
            scratch = next.next_multiple_of(SHARED_ALIGN);
            put("exchange", scratch, part.synthesis.scratch_bytes);
            next = scratch.saturating_add(part.synthesis.scratch_bytes);
        }
        placed.push(PartMemory { offsets, buffers, scratch });
    }
    let mut barriers = BTreeMap::new();
    for (i, pipeline) in program.pipelines.iter().enumerate() {
        let stages = pipeline.stages;
        let at = next.next_multiple_of(8);
        put(&format!("{}.barriers", pipeline.name), at, 16 * stages);
        barriers.insert(PipelineId(i as u32), Barriers { at, stages });
        next = at.saturating_add(16 * stages);
    }
    let mut sums = Vec::new();
    for part in parts {
        let registers = summed(part).next_multiple_of(4).min(SUM_REGISTERS);
        sums.push((registers > 0).then(|| {
            let (barriers, bytes) = (next.next_multiple_of(8), 4 * registers * part.verified.threads());
            let buffer = (barriers + 16).next_multiple_of(SHARED_ALIGN);
            put("sum.barriers", barriers, 16);
            put("sum", buffer, bytes);
            next = buffer.saturating_add(bytes);
            ClusterReduceSlot { buffer, barriers, registers }
        }));
    }
    let limit = arch.limits().shared_bytes_per_block;
    if next > limit {
        let sizes: Vec<String> = all.iter().map(|b| format!("`{}` {}", b.name, b.bytes)).collect();
        let span = program.pipelines.first().map_or(program.threads_span, |p| p.span);
        return Err(Diagnostic::new(
            Code::SharedMemoryExceeded,
            span,
            format!("the block's shared memory takes {next} bytes, and {arch} has {limit} for a block"),
        )
        .help(format!("make the tiles smaller or the stages fewer; in bytes: {}", sizes.join(", "))));
    }
    Ok(SharedMemoryMap { buffers: all, parts: placed, cluster_reduce: sums, barriers })
}
