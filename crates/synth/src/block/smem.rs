//! The map of a block's shared memory: the tensors that roles share, then what each has for itself, then the barriers of
//! pipelines.

use std::collections::BTreeMap;

use tilewright_machine::{Arch, LaunchControl, per_register, registers_of};
use tilewright_tile::core::{Program, StmtKind};
use tilewright_tile::{Code, Dealer, Diagnostic, PipelineId, TensorId};

use super::part::Part;
use super::tensor_memory::TensorMemoryMap;
use super::tiles::{AnswerSlot, TileSlot, wanted};
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

/// The places of a part's tensors.
pub struct PartMemory {
    /// The offset of each of its shared tensors.
    pub offsets: Vec<u32>,
    /// Of each of its tensors the buffer, if it is a shared one.
    pub buffers: Vec<Option<u32>>,
    /// The offset of the buffer that its statements use one after the other.
    pub scratch: u32,
}

/// The memory that a part's reductions over the blocks of a cluster go through.
#[derive(Clone, Copy, Debug)]
pub struct ClusterReduceSlot {
    /// The offset of the buffer.
    pub buffer: u32,
    /// The offset of its two barriers: for what is there to be read, and for what has been read by all.
    pub barriers: u32,
    /// Registers of a thread that go through at a time, a multiple of 4.
    pub registers: u32,
}

/// Registers of a thread that take part in a reduction over a cluster at a time, at most.
const MOST_REGISTERS: u32 = 32;

/// The registers of a thread that a part's reductions over the cluster send through at a time; 0 without any.
fn reduced(part: &Part<'_>) -> u32 {
    let (mut most, mut least) = (0, 0);
    if part.verified.cluster() == 1 {
        return most;
    }
    let values = |id: TensorId| part.synthesis.register(id).map_or(0, |tv| tv.count() as u32);
    part.verified.visit(&mut |stmt, _| match &stmt.kind {
        StmtKind::ClusterReduce { dst, .. } => {
            let bits = part.verified.tensor(*dst).dtype.bits();
            most = most.max(values(*dst).div_ceil(per_register(bits)) * registers_of(bits));
        }
        StmtKind::ClusterCombine { dsts, .. } => {
            let words: u32 =
                dsts.iter().map(|dst| registers_of(part.verified.tensor(*dst).dtype.bits())).sum();
            // A tuple goes through whole.
            least = words.max(least);
            most = most.max(words * dsts.first().map_or(0, |dst| values(*dst)));
        }
        _ => {}
    });
    most.min(MOST_REGISTERS).max(least).next_multiple_of(4)
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
    /// The memory in which the blocks of a cluster show each other what they reduce: for each part of the program, if it has such reductions.
    pub cluster_reduce: Vec<Option<ClusterReduceSlot>>,
    /// The barriers of each pipeline.
    pub barriers: BTreeMap<PipelineId, Barriers>,
    /// The map of tensor memory, if there is some.
    pub tensor_memory: Option<TensorMemoryMap>,
    /// The numbers of tiles that are dealt out.
    pub tiles: BTreeMap<Dealer, TileSlot>,
}

/// Buffers, placed one after the other.
#[derive(Default)]
struct Placed {
    buffers: Vec<Buffer>,
    /// The end of the last one.
    end: u32,
}

impl Placed {
    /// Adds a buffer at an offset; its number.
    fn put_at(&mut self, name: &str, at: u32, bytes: u32) -> u32 {
        self.buffers.push(Buffer { name: name.to_string(), at, bytes });
        self.end = self.end.max(at.saturating_add(bytes));
        self.buffers.len() as u32 - 1
    }

    /// Adds a buffer behind the others; its offset and number.
    fn put(&mut self, name: &str, align: u32, bytes: u32) -> (u32, u32) {
        let at = self.end.next_multiple_of(align);
        (at, self.put_at(name, at, bytes))
    }

    /// Places what a part has for itself; `common` are the offsets and buffers of tensors that roles share.
    fn part(&mut self, part: &Part<'_>, common: &BTreeMap<TensorId, (u32, u32)>) -> PartMemory {
        let tensors = &part.verified.tensors;
        let (mut offsets, mut buffers) = (vec![0; tensors.len()], vec![None; tensors.len()]);
        let mut private = Vec::new();
        for (i, offset) in offsets.iter_mut().enumerate() {
            let id = TensorId(i as u32);
            match (common.get(&id), part.synthesis.shared(id)) {
                (Some((at, buffer)), _) => (*offset, buffers[i]) = (*at, Some(*buffer)),
                (None, Some((_, bytes))) => private.push((id, bytes)),
                (None, None) => {}
            }
        }
        let base = self.end.next_multiple_of(ASYNC_ALIGN);
        let allocation = allocate(part.verified, &private);
        for (id, at) in &allocation.offsets {
            let bytes = private.iter().find(|(t, _)| t == id).map_or(0, |(_, bytes)| *bytes);
            let i = id.0 as usize;
            offsets[i] = base + at;
            buffers[i] = Some(self.put_at(&tensors[i].name, base + at, bytes));
        }
        if allocation.bytes > 0 {
            self.end = base.saturating_add(allocation.bytes);
        }
        let scratch = match part.synthesis.scratch_bytes {
            0 => 0,
            bytes => self.put("exchange", SHARED_ALIGN, bytes).0,
        };
        PartMemory { offsets, buffers, scratch }
    }
}

/// Places everything.
///
/// # Errors
///
/// More shared memory than a block has.
pub fn map(whole: &Program, parts: &[Part<'_>], arch: Arch) -> Result<SharedMemoryMap, Diagnostic> {
    let mut common: BTreeMap<TensorId, (u32, u32)> = BTreeMap::new();
    let mut placed = Placed::default();
    if parts.iter().any(|p| p.role.is_some()) {
        for stmt in &whole.body {
            let StmtKind::Define(id) = stmt.kind else { continue };
            if let Some((_, bytes)) = parts.iter().find_map(|p| p.synthesis.shared(id)) {
                common.insert(id, placed.put(&whole.tensor(id).name, ASYNC_ALIGN, bytes));
            }
        }
    }
    let memories = parts.iter().map(|part| placed.part(part, &common)).collect();
    let mut barriers = BTreeMap::new();
    for (i, pipeline) in whole.pipelines.iter().enumerate() {
        let stages = pipeline.stages;
        let (at, _) = placed.put(&format!("{}.barriers", pipeline.name), 8, 16 * stages);
        barriers.insert(PipelineId(i as u32), Barriers { at, stages });
    }
    let mut tensor_memory = super::tensor_memory::map(whole)?;
    if let Some(map) = &mut tensor_memory {
        map.word = placed.put("tensor memory", 4, 4).0;
    }
    let mut slot = |part: &Part<'_>| {
        let registers = reduced(part);
        (registers > 0).then(|| {
            let (barriers, _) = placed.put("cluster_reduce.barriers", 8, 16);
            let (buffer, _) =
                placed.put("cluster_reduce", SHARED_ALIGN, 4 * registers * part.verified.threads());
            ClusterReduceSlot { buffer, barriers, registers }
        })
    };
    let cluster_reduce = parts.iter().map(&mut slot).collect();
    let mut tiles = BTreeMap::new();
    for (dealer, (stages, of_barriers)) in wanted(whole, parts) {
        let name = dealer.counter().map_or("launch", |counter| &*whole.param(counter).name);
        let (words, _) = placed.put(&format!("{name}.tiles"), 8, 4 * stages);
        let barriers =
            (of_barriers > 0).then(|| placed.put(&format!("{name}.tiles.barriers"), 8, of_barriers).0);
        let answer = (dealer == Dealer::Launch).then(|| {
            let bytes = LaunchControl::ANSWER_BYTES;
            let (place, _) = placed.put("launch.answer", bytes, bytes);
            AnswerSlot { place, barrier: placed.put("launch.answer.barrier", 8, 8).0 }
        });
        tiles.insert(dealer, TileSlot { words, barriers, stages, answer });
    }
    let (bytes, limit) = (placed.end, arch.limits().shared_bytes_per_block);
    if bytes > limit {
        let sizes: Vec<String> = placed.buffers.iter().map(|b| format!("`{}` {}", b.name, b.bytes)).collect();
        let span = whole.pipelines.first().map_or(whole.threads_span, |p| p.span);
        return Err(Diagnostic::new(
            Code::SharedMemoryExceeded,
            span,
            format!("the block's shared memory takes {bytes} bytes, and {arch} has {limit} for a block"),
        )
        .help(format!("make the tiles smaller or the stages fewer; in bytes: {}", sizes.join(", "))));
    }
    let buffers = placed.buffers;
    Ok(SharedMemoryMap { buffers, parts: memories, cluster_reduce, barriers, tensor_memory, tiles })
}
