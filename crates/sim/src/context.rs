//! Context of a launch, which all its blocks share: the program, the arguments, and where buffers lie.

use tilewright_machine::{BoxShape, Memory, MemoryOrder, SyncOp, TensorMemory};
use tilewright_simt::{Function, FunctionParamKind, Op, SharedBuffer};

use crate::config::{Argument, Config};
use crate::decode::Program;
use crate::error::SimError;
use crate::global::written;
use crate::memory::GlobalMemory;

/// Most blocks of a grid.
const GRID_LIMIT: u64 = i32::MAX as u64;

/// A tensor that a launch passes for a tensor map.
#[derive(Debug)]
pub(crate) struct BoundMap {
    /// The address of its first element.
    pub address: u64,
    /// Extents, dimension 0 first.
    pub extents: Vec<u64>,
    /// Strides in bytes of dimensions 1 and up.
    pub strides: Vec<u64>,
}

/// A launch.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub program: Program<'a>,
    pub memory: &'a GlobalMemory,
    pub config: &'a Config,
    pub owners: Owners,
    /// The bits that `param` gives.
    pub args: Vec<u64>,
    /// By the function's tensor maps: the tensor, or the tensors of an array, that a parameter passes.
    pub maps: Vec<Vec<BoundMap>>,
    /// The buffers of arguments, with their parameters' names.
    buffers: Vec<(u32, String)>,
    /// By number: whether the buffer is one whose reads may race, for the function writes it.
    watched: Vec<bool>,
    /// True if launches before this one may still run when it begins.
    overlaps: bool,
    pub grid: [u32; 3],
    /// Clusters that run together, under one scheduler: what some write decides what others do.
    pub together: u64,
}

impl<'a> Context<'a> {
    /// Checks a launch and decodes its function.
    pub(crate) fn new(
        function: &'a Function,
        grid: [u32; 3],
        memory: &'a GlobalMemory,
        args: &[Argument],
        config: &'a Config,
    ) -> Result<Self, SimError> {
        if !grid
            .iter()
            .try_fold(1u64, |n, g| n.checked_mul(u64::from(*g)))
            .is_some_and(|n| (1..=GRID_LIMIT).contains(&n))
        {
            return Err(SimError::Grid(grid));
        }
        if function.cluster == 0 || !grid[0].is_multiple_of(function.cluster) {
            return Err(SimError::Cluster { grid: grid[0], cluster: function.cluster });
        }
        let limits = function.arch.limits();
        if !(1..=limits.threads_per_block).contains(&function.threads) {
            return Err(SimError::Threads { threads: function.threads, limit: limits.threads_per_block });
        }
        let ends = function.shared.iter().map(|b| b.offset.saturating_add(b.bytes));
        let bytes = ends.fold(function.shared_bytes, u32::max);
        if bytes > limits.shared_bytes_per_block {
            return Err(SimError::SharedMemory { bytes, limit: limits.shared_bytes_per_block });
        }
        if args.len() != function.params.len() {
            return Err(SimError::ArgumentCount { expected: function.params.len(), given: args.len() });
        }
        let mut bits = Vec::with_capacity(args.len());
        let mut buffers = Vec::new();
        let mut maps: Vec<Vec<BoundMap>> = function.tensor_maps.iter().map(|_| Vec::new()).collect();
        for (param, arg) in function.params.iter().zip(args) {
            if let Some(unknown) = arg.buffers().iter().find(|id| memory.size(**id).is_none()) {
                return Err(SimError::UnknownBuffer { name: param.name.clone(), buffer: unknown.index() });
            }
            let value = match (param.kind, arg) {
                (FunctionParamKind::Pointer, Argument::Buffer(id)) => {
                    buffers.push((id.index(), param.name.clone()));
                    id.address()
                }
                (FunctionParamKind::Pointers, Argument::Buffers { pointers, buffers: each }) => {
                    let number = each.iter().enumerate();
                    buffers.extend(number.map(|(i, id)| (id.index(), format!("{}[{i}]", param.name))));
                    buffers.push((pointers.index(), param.name.clone()));
                    pointers.address()
                }
                (FunctionParamKind::TensorMap(index), Argument::TensorMap { extents, strides, .. })
                | (FunctionParamKind::TensorMaps(index), Argument::TensorMaps { extents, strides, .. }) => {
                    let name = &param.name;
                    let fail = |reason| SimError::TensorMap { name: name.clone(), reason };
                    let known = function.tensor_maps.get(index as usize).zip(maps.get_mut(index as usize));
                    let Some((map, slot)) = known else {
                        return Err(fail(format!("the function has no tensor map {index}")));
                    };
                    for buffer in arg.buffers() {
                        let size = memory.size(*buffer).unwrap_or(0) as u64;
                        check_tensor(&map.shape, extents, strides, size).map_err(fail)?;
                        let (extents, strides) = (extents.clone(), strides.clone());
                        slot.push(BoundMap { address: buffer.address(), extents, strides });
                        buffers.push((buffer.index(), param.name.clone()));
                    }
                    0
                }
                (FunctionParamKind::I32, Argument::I32(x)) => u64::from(*x as u32),
                (FunctionParamKind::F32, Argument::F32(x)) => u64::from(x.to_bits()),
                (FunctionParamKind::I64, Argument::I64(x)) => x.cast_unsigned(),
                (FunctionParamKind::F64, Argument::F64(x)) => x.to_bits(),
                (kind, arg) => {
                    let expected = match kind {
                        FunctionParamKind::Pointer => "a pointer",
                        FunctionParamKind::I32 => "an i32",
                        FunctionParamKind::F32 => "an f32",
                        FunctionParamKind::I64 => "an i64",
                        FunctionParamKind::F64 => "an f64",
                        FunctionParamKind::TensorMap(_) => "a tensor map",
                        FunctionParamKind::Pointers => "pointers",
                        FunctionParamKind::TensorMaps(_) => "tensor maps",
                    };
                    let given = match arg {
                        Argument::Buffer(_) => "a buffer",
                        Argument::I32(_) => "an i32",
                        Argument::F32(_) => "an f32",
                        Argument::I64(_) => "an i64",
                        Argument::F64(_) => "an f64",
                        Argument::TensorMap { .. } => "a tensor for a tensor map",
                        Argument::Buffers { .. } => "buffers",
                        Argument::TensorMaps { .. } => "tensors for tensor maps",
                    };
                    return Err(SimError::ArgumentKind { name: param.name.clone(), expected, given });
                }
            };
            bits.push(value);
        }
        if let Some(missing) = maps.iter().position(Vec::is_empty) {
            let name = function.tensor_maps[missing].name.clone();
            return Err(SimError::TensorMap { name, reason: "no parameter passes it".to_string() });
        }
        let program = Program::new(function)?;
        let mut watched = Vec::new();
        if config.check_global {
            let written = written(function);
            let passed = args.iter().zip(0..).filter(|(_, param)| written.contains(param));
            for buffer in passed.flat_map(|(arg, _)| arg.buffers()) {
                let index = buffer.index() as usize;
                watched.resize(watched.len().max(index + 1), false);
                watched[index] = true;
            }
        }
        let owners = Owners::new(function);
        let blocks = grid.iter().map(|g| u64::from(*g)).product::<u64>();
        let together = together(function, blocks)?;
        let overlaps = config.check_global && config.overlaps && waits_or_lets_begin(function);
        Ok(Context {
            program,
            memory,
            config,
            owners,
            args: bits,
            maps,
            buffers,
            watched,
            overlaps,
            grid,
            together,
        })
    }

    /// True if reads of a buffer may race.
    pub(crate) fn watches(&self, buffer: u32) -> bool {
        self.watched.get(buffer as usize).copied().unwrap_or(false)
    }

    /// True if an access to a buffer has to come after a wait for the launches before this one.
    pub(crate) fn depends(&self, buffer: u32, write: bool) -> bool {
        self.overlaps && (write || !self.memory.is_constant(buffer))
    }

    /// The name of a global buffer: the parameter's that passes it.
    pub(crate) fn name(&self, buffer: u32) -> String {
        let name = self.buffers.iter().find(|(i, _)| *i == buffer).map(|(_, name)| name.clone());
        name.unwrap_or_else(|| format!("buffer {buffer}"))
    }

    /// The number of clusters.
    pub(crate) fn clusters(&self) -> u64 {
        self.grid.iter().map(|g| u64::from(*g)).product::<u64>() / u64::from(self.program.function.cluster)
    }

    /// The index of a cluster's first block, x fastest.
    pub(crate) fn first_block(&self, cluster: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        let blocks = u64::from(self.program.function.cluster);
        let x = x / blocks;
        [(cluster % x * blocks) as u32, (cluster / x % y) as u32, (cluster / x / y) as u32]
    }

    /// The index of the block that comes so many after this one in the grid, x fastest.
    pub(crate) fn block_behind(&self, [x, y, z]: [u32; 3], rank: u32) -> [u32; 3] {
        let [width, height, _] = self.grid;
        let at = x + rank;
        let rows = y + at / width;
        [at % width, rows % height, z + rows / height]
    }

    /// The shared buffer that an access by a statement at an offset of the window means: its name, the offset in it and its size.
    pub(crate) fn describe_shared(&self, origin: u32, offset: i64) -> (String, i64, u64) {
        let found = u32::try_from(offset).ok().and_then(|at| self.owners.of(origin, at));
        match found.and_then(|index| self.owners.buffers.get(index)) {
            Some(b) => (b.name.clone(), offset - i64::from(b.offset), u64::from(b.bytes)),
            None => self.describe(Memory::Shared, offset),
        }
    }

    /// The buffer at an address (shared: an offset in the window; tensor memory: four times a cell, from the first column of the block's on; register: its number in the register file): its name, the offset in it and its size. Where there
    /// is none, no name, the address and 0.
    pub(crate) fn describe(&self, memory: Memory, address: i64) -> (String, i64, u64) {
        let none = (String::new(), address, 0);
        if memory == Memory::Register {
            let (name, index, count) = self.program.fragment(address as u32);
            return (name.to_string(), i64::from(index), u64::from(count));
        }
        if memory == Memory::Tensor {
            let column = address / 4 / TensorMemory::LANES;
            let found = self.program.tensor_at(column as u32);
            return found.and_then(|index| self.program.function.tensor_memory.get(index)).map_or(
                none,
                |b| {
                    let bytes = 4 * TensorMemory::LANES;
                    (
                        b.name.clone(),
                        address - bytes * i64::from(b.column),
                        bytes as u64 * u64::from(b.columns),
                    )
                },
            );
        }
        if memory == Memory::Shared {
            // The last buffer that begins at or before the address: an access beyond its end is most likely meant for it.
            let buffer = self.owners.buffers.iter().rev().find(|b| i64::from(b.offset) <= address);
            return buffer
                .map_or(none, |b| (b.name.clone(), address - i64::from(b.offset), u64::from(b.bytes)));
        }
        let Some((buffer, index, offset)) = self.memory.locate(address as u64) else { return none };
        (self.name(index), offset as i64, buffer.size())
    }
}

/// Blocks that run under one scheduler where what they do depends on its order.
const TOGETHER: u64 = 256;

/// The most blocks that words of global memory order.
const ORDERED: u64 = 1024;

/// The clusters of a launch that run together: all, where words of global memory order what they do; some, where what they do depends on the
/// order of their atomic operations; else each by itself.
fn together(function: &Function, blocks: u64) -> Result<u64, SimError> {
    let (mut takes, mut meets) = (false, false);
    function.visit(&mut |inst| match &inst.op {
        Op::Atomic { row, dst, order, .. } if row.memory == Memory::Global => {
            takes |= dst.is_some();
            meets |= *order != MemoryOrder::Relaxed;
        }
        Op::Await { .. } => meets = true,
        Op::TryCancel { .. } => takes = true,
        _ => {}
    });
    if meets && blocks > ORDERED {
        return Err(SimError::Together { blocks, limit: ORDERED });
    }
    let most = match (meets, takes) {
        (true, _) => ORDERED,
        (false, true) => TOGETHER,
        (false, false) => 1,
    };
    Ok((most / u64::from(function.cluster)).max(1))
}

/// True if a function is made for launches that overlap.
fn waits_or_lets_begin(function: &Function) -> bool {
    let mut found = false;
    function.visit(&mut |inst| {
        found |= matches!(inst.op, Op::Sync(SyncOp::DependencyWait | SyncOp::DependentsLaunch));
    });
    found
}

/// Checks a tensor by the rules of `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col`, and that it lies in its buffer.
fn check_tensor(shape: &BoxShape, extents: &[u64], strides: &[u64], size: u64) -> Result<(), String> {
    shape.check().map_err(|e| e.to_string())?;
    let rank = shape.rank();
    if extents.len() != rank || strides.len() + 1 != rank {
        return Err(format!(
            "a box of {rank} dimensions wants {rank} extents and {} strides, not {} and {}",
            rank - 1,
            extents.len(),
            strides.len()
        ));
    }
    if let Some((dim, extent)) = extents.iter().enumerate().find(|(_, e)| !(1..=1 << 31).contains(*e)) {
        return Err(format!("extent {extent} of dimension {dim} is not between 1 and 2^31"));
    }
    for (dim, stride) in (1..).zip(strides) {
        if !stride.is_multiple_of(16) || *stride >= 1 << 40 {
            return Err(format!("stride {stride} of dimension {dim} is no multiple of 16 below 2^40"));
        }
    }
    let last = extents[1..]
        .iter()
        .zip(strides)
        .try_fold(extents[0] * u64::from(shape.dtype.bits() / 8), |n, (e, s)| {
            n.checked_add((e - 1).checked_mul(*s)?)
        });
    match last {
        Some(bytes) if bytes <= size => Ok(()),
        _ => Err(format!(
            "the tensor of extents {extents:?} and strides {strides:?} leaves its buffer of {size} bytes"
        )),
    }
}

/// Map from bytes of shared memory to the buffers that hold them.
#[derive(Debug)]
pub(crate) struct Owners {
    buffers: Vec<SharedBuffer>,
    /// For each 16 bytes, the buffer that holds all of them.
    granules: Vec<Option<u16>>,
    /// Of each origin, the buffers that its statement names, where buffers lie at the same place; else empty.
    named: Vec<Vec<u32>>,
}

impl Owners {
    fn new(function: &Function) -> Self {
        let mut buffers = function.shared.clone();
        if buffers.is_empty() {
            buffers.push(SharedBuffer {
                name: "shared".to_string(),
                offset: 0,
                bytes: function.shared_bytes,
            });
        }
        let holds = |granule: u32| {
            let buffer = buffers.iter().position(|b| contains(b, 16 * granule, 16));
            buffer.and_then(|b| u16::try_from(b).ok())
        };
        let granules = (0..function.shared_bytes.div_ceil(16)).map(holds).collect();
        let overlap = |(i, a): (usize, &SharedBuffer)| {
            let behind = buffers[i + 1..].iter();
            behind.into_iter().any(|b| a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
        };
        let named = if buffers.iter().enumerate().any(overlap) { function.named.clone() } else { Vec::new() };
        Owners { buffers, granules, named }
    }

    /// The buffer that an access by a statement means, if buffers share memory and the statement says which. It counts from 1.
    pub(crate) fn meant(&self, origin: u32, offset: u32) -> u16 {
        let Some(named) = self.named.get(origin as usize) else { return 0 };
        let mut found =
            named.iter().filter(|b| self.buffers.get(**b as usize).is_some_and(|b| contains(b, offset, 1)));
        match (found.next(), found.next()) {
            (Some(buffer), None) => u16::try_from(buffer + 1).unwrap_or(0),
            _ => 0,
        }
    }

    /// The buffer that an access by a statement means, or one that holds the byte.
    pub(crate) fn of(&self, origin: u32, offset: u32) -> Option<usize> {
        let meant = usize::from(self.meant(origin, offset));
        meant.checked_sub(1).or_else(|| self.find(offset, 1))
    }

    /// The buffer that holds all of these bytes.
    pub(crate) fn find(&self, offset: u32, bytes: u32) -> Option<usize> {
        let granule = self.granules.get((offset / 16) as usize)?;
        match granule {
            Some(buffer) if offset % 16 + bytes <= 16 => Some(usize::from(*buffer)),
            _ => self.buffers.iter().position(|b| contains(b, offset, bytes)),
        }
    }
}

fn contains(buffer: &SharedBuffer, offset: u32, bytes: u32) -> bool {
    offset >= buffer.offset
        && u64::from(offset) + u64::from(bytes) <= u64::from(buffer.offset) + u64::from(buffer.bytes)
}
