//! Checks a thread-level program.
//!
//! The invariants, in the order in which they are checked:
//!
//! 1. every value is defined once, before its uses, in a block that encloses them;
//! 2. operands have the types that the operation's row asks for;
//! 3. registers lie in their arrays;
//! 4. memory instructions have as many registers as their row moves, and addresses of their memory's width;
//! 5. matrix products have the registers of their row;
//! 6. instructions exist on the function's architecture, and what PTX wants as a literal is one;
//! 7. literal loop steps are positive;
//! 8. a tensor copy has the dimensions of its map, whose box the hardware takes, an mbarrier if it is a load, and a row of its rank; of a map that
//!    is one of several, which one;
//! 9. a matrix product of a warpgroup has the registers of its row, its right factor in shared memory, and factors that are contiguous
//!    along M or N only where they have 16 bits; its accumulator names no register twice, and none of its left factor; the block's
//!    threads are whole warpgroups;
//! 10. literals of barriers, mbarriers, bulk copies and register budgets are what the hardware takes;
//! 11. a cluster has 1 to 16 blocks; more than one where the architecture has clusters;
//! 12. every tensor map, or array of such, is one parameter;
//! 13. shared buffers lie within the block's shared bytes; those that are never in use together may overlap, and statements name only
//!     those that there are.

use std::collections::{HashMap, HashSet};

use tilewright_machine::{
    Arch, BulkOp, CopyKind, Feature, Features, LaunchControl, Major, MbarrierOp, Memory, RegType, ScalarOp,
    SumsScaling, SyncOp, Tcgen05Row, TensorMemory, TensorOp, TensorRow, WgmmaRow,
};

use crate::function::{Address, Factor, Function, FunctionParamKind, Inst, Op, Operand, Reg, Special, Value};

/// A broken invariant: an internal compiler error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid thread-level program: {message} (in `{origin}`)")]
pub struct VerifyError {
    /// The invariant that is broken.
    pub message: String,
    /// The tile statement that the instruction comes from.
    pub origin: String,
}

/// Refuses what needs features that the architecture lacks.
fn lacks(arch: Arch, name: &str, needs: Features) -> Result<(), String> {
    let missing = arch.lacks(needs);
    if missing == Features::NONE {
        Ok(())
    } else {
        Err(format!("{name} needs {missing}, which {arch} does not have"))
    }
}

struct Checker<'a> {
    function: &'a Function,
    visible: Vec<bool>,
    defined: Vec<bool>,
    /// The index of the tensor maps that a value is one of.
    maps: HashMap<Value, u32>,
    /// True directly in the body of a loop.
    in_loop: bool,
}

impl Checker<'_> {
    fn operand(&self, operand: Operand, ty: RegType) -> Result<(), String> {
        let Operand::Value(value) = operand else { return Ok(()) };
        match self.visible.get(value.0 as usize) {
            Some(true) => {}
            Some(false) => return Err(format!("{value} is used where it is not defined")),
            None => return Err(format!("{value} does not exist")),
        }
        let actual = self.function.type_of(value);
        if actual == ty { Ok(()) } else { Err(format!("{value} is {actual:?} where {ty:?} is wanted")) }
    }

    fn regs(&self, regs: &[Reg], count: u32) -> Result<(), String> {
        if regs.len() as u32 != count {
            return Err(format!("{} registers where the instruction has {count}", regs.len()));
        }
        for reg in regs {
            match self.function.arrays.get(reg.array.0 as usize) {
                Some(array) if reg.index < array.registers => {}
                _ => return Err(format!("{reg} is outside its array")),
            }
        }
        Ok(())
    }

    fn address(&self, address: &Address, memory: Memory) -> Result<(), String> {
        self.operand(address.base, if memory == Memory::Global { RegType::B64 } else { RegType::B32 })
    }

    fn guard(&self, guard: Option<Value>) -> Result<(), String> {
        guard.map_or(Ok(()), |g| self.operand(Operand::Value(g), RegType::Pred))
    }

    /// Checks that all warps of each warpgroup of the block exist.
    fn warpgroups(&self, name: &str) -> Result<(), String> {
        let threads = self.function.threads;
        if threads.is_multiple_of(128) {
            Ok(())
        } else {
            Err(format!("{name} in a block of {threads} threads"))
        }
    }

    fn sync(&self, op: SyncOp) -> Result<(), String> {
        match op {
            SyncOp::NamedBarrier { id, threads } | SyncOp::BarrierArrive { id, threads } => {
                let all = self.function.threads.next_multiple_of(32);
                let fits =
                    (1..16).contains(&id) && threads.is_multiple_of(32) && (1..=all).contains(&threads);
                if fits {
                    Ok(())
                } else {
                    Err(format!("barrier {id} of {threads} threads, of which the block has {all}"))
                }
            }
            SyncOp::SetMaxRegisters { registers, .. } => {
                self.warpgroups("a register budget")?;
                let fits = (24..=256).contains(&registers) && registers.is_multiple_of(8);
                if fits { Ok(()) } else { Err(format!("a budget of {registers} registers")) }
            }
            SyncOp::WgmmaFence | SyncOp::WgmmaCommit | SyncOp::WgmmaWait(_) => {
                self.warpgroups("a product's wait")
            }
            _ => Ok(()),
        }
    }

    fn define(&mut self, value: Value, ty: RegType, scope: &mut Vec<Value>) -> Result<(), String> {
        let index = value.0 as usize;
        match self.defined.get_mut(index) {
            None => return Err(format!("{value} does not exist")),
            Some(true) => return Err(format!("{value} is defined twice")),
            Some(slot) => *slot = true,
        }
        if self.function.type_of(value) != ty {
            return Err(format!(
                "{value} is defined as {ty:?} but declared {:?}",
                self.function.type_of(value)
            ));
        }
        self.visible[index] = true;
        scope.push(value);
        Ok(())
    }

    fn inst(&mut self, inst: &Inst, scope: &mut Vec<Value>) -> Result<(), VerifyError> {
        let fail =
            |message: String| VerifyError { message, origin: self.function.origin(inst.origin).to_string() };
        let function = self.function;
        let exists = |name: &str, needs: Features| lacks(function.arch, name, needs);
        let check = || -> Result<(), String> {
            match &inst.op {
                Op::Special { special: Special::ClusterRank, .. } => {
                    exists("%cluster_ctarank", Feature::Cluster.into())
                }
                Op::Special { .. } => Ok(()),
                Op::Sync(op) => {
                    exists(&op.spelling(), op.needs())?;
                    self.sync(*op)
                }
                Op::BarrierSync { id, threads } => {
                    // The number is that of a barrier if the first is.
                    self.sync(SyncOp::NamedBarrier { id: 1, threads: *threads })?;
                    self.operand(*id, RegType::B32)
                }
                Op::Param { param, .. } => match function.params.get(*param as usize).map(|p| p.kind) {
                    Some(FunctionParamKind::TensorMap(_)) => Err("a tensor map is no value".to_string()),
                    Some(_) => Ok(()),
                    None => Err("no such parameter".to_string()),
                },
                Op::Scalar { op, args, .. } => {
                    exists(op.row().name, op.needs())?;
                    if let (ScalarOp::Lop3B32, Some(Operand::Value(_))) = (op, args.get(3)) {
                        return Err("the table of a lop3 is not a literal".to_string());
                    }
                    let row = op.row();
                    if row.operands.len() != args.len() {
                        return Err(format!("{} takes {} operands", row.name, row.operands.len()));
                    }
                    row.operands.iter().zip(args).try_for_each(|(ty, arg)| self.operand(*arg, *ty))
                }
                Op::ReadReg { src, .. } => self.regs(&[*src], 1),
                Op::WriteReg { dst, src } => {
                    self.regs(&[*dst], 1)?;
                    self.operand(*src, RegType::B32)
                }
                Op::Load { row, dst, address, guard, .. } => {
                    exists(row.name, row.needs)?;
                    if row.kind != CopyKind::PerThread || row.dst != Memory::Register {
                        return Err(format!("{} is not a load", row.name));
                    }
                    self.regs(dst, row.registers())?;
                    self.address(address, row.src)?;
                    self.guard(*guard)
                }
                Op::Lookup { row, address, guard, .. } => {
                    exists(row.name, row.needs)?;
                    let plain = row.kind == CopyKind::PerThread && row.src == Memory::Global;
                    if !plain || !matches!(row.bytes, 4 | 8) {
                        return Err(format!("{} loads no word of global memory", row.name));
                    }
                    self.address(address, Memory::Global)?;
                    self.guard(*guard)
                }
                Op::Store { row, src, address, guard } => {
                    exists(row.name, row.needs)?;
                    let stores = matches!(row.kind, CopyKind::PerThread | CopyKind::Reduction(_));
                    if !stores || row.src != Memory::Register {
                        return Err(format!("{} is not a store", row.name));
                    }
                    self.regs(src, row.registers())?;
                    self.address(address, row.dst)?;
                    self.guard(*guard)
                }
                Op::Atomic { row, order, dst, address, operands, guard } => {
                    if row.op.operands() != operands.len() {
                        return Err(format!("{} takes {} operands", row.name, row.op.operands()));
                    }
                    if dst.is_none() && !row.has_plain_form(*order) {
                        return Err(format!("{} always has a result", row.name));
                    }
                    self.address(address, row.memory)?;
                    operands.iter().try_for_each(|operand| self.operand(*operand, row.register()))?;
                    self.guard(*guard)
                }
                Op::Await { address, operand, .. } => {
                    self.address(address, Memory::Global)?;
                    self.operand(*operand, RegType::B32)
                }
                Op::AsyncCopy { row, dst, src, guard } => {
                    exists(row.name, row.needs)?;
                    if row.kind != CopyKind::Async {
                        return Err(format!("{} is not asynchronous", row.name));
                    }
                    self.address(dst, Memory::Shared)?;
                    self.address(src, Memory::Global)?;
                    self.guard(*guard)
                }
                Op::Matrix { row, regs, address } => {
                    exists(row.name, row.needs)?;
                    if !matches!(row.kind, CopyKind::Matrix { .. }) {
                        return Err(format!("{} is not a matrix copy", row.name));
                    }
                    self.regs(regs, row.registers())?;
                    self.address(address, Memory::Shared)
                }
                Op::Mma { row, d, a, b, meta, scales } => {
                    exists(row.name, row.needs)?;
                    let (na, nb, nc) = row.registers();
                    self.regs(d, nc)?;
                    self.regs(a, na)?;
                    self.regs(b, nb)?;
                    self.regs(meta.as_slice(), u32::from(row.sparsity.is_some()))?;
                    let registers: Vec<Reg> = scales.iter().flatten().map(|scale| scale.register).collect();
                    self.regs(&registers, 2 * u32::from(row.scaling.is_some()))?;
                    let bytes = row.scaling.as_ref().map_or(1, |scaling| row.k / scaling.block) as u32;
                    match scales.iter().flatten().find(|scale| scale.byte % bytes != 0 || scale.byte >= 4) {
                        Some(scale) => Err(format!("{} has no {bytes} scales at {scale}", row.name)),
                        None => Ok(()),
                    }
                }
                Op::Shuffle { src, operand, .. } => {
                    self.operand(*src, RegType::B32)?;
                    self.operand(*operand, RegType::B32)
                }
                Op::Wgmma { row, d, a, b, meta, accumulate } => {
                    exists(&row.name, WgmmaRow::NEEDS)?;
                    self.warpgroups(&row.name)?;
                    let (na, nd) = row.registers();
                    self.regs(d, nd)?;
                    self.regs(meta.as_slice(), u32::from(row.sparsity.is_some()))?;
                    self.operand(*accumulate, RegType::Pred)?;
                    for factor in [a, b] {
                        match factor {
                            Factor::Registers(regs) => self.regs(regs, na)?,
                            Factor::Shared { descriptor, major } => {
                                self.operand(descriptor.low, RegType::B32)?;
                                if *major == Major::Mn && !row.takes_mn_major() {
                                    return Err(format!("{} with a factor that is {major}", row.name));
                                }
                            }
                            Factor::Tensor(_) => {
                                return Err(format!("{} with a factor in tensor memory", row.name));
                            }
                        }
                    }
                    if matches!(b, Factor::Registers(_)) {
                        return Err(format!("{} with its right factor in registers", row.name));
                    }
                    let mut taken: HashSet<Reg> = HashSet::new();
                    let left = if let Factor::Registers(regs) = a { regs.as_slice() } else { &[] };
                    let twice = d
                        .iter()
                        .find(|r| !taken.insert(**r))
                        .or_else(|| left.iter().chain(meta).find(|r| taken.contains(r)));
                    twice.map_or(Ok(()), |r| Err(format!("{} with {r} twice", row.name)))
                }
                Op::Tcgen05 { row, d, a, b, scales, meta, accumulate } => {
                    exists(&row.name, row.needs())?;
                    if (row.blocks == 2) != function.pairs {
                        let blocks = if function.pairs { "pairs of blocks" } else { "single blocks" };
                        return Err(format!("{} in a function of {blocks}", row.name));
                    }
                    self.address(d, Memory::Tensor)?;
                    self.operand(*accumulate, RegType::Pred)?;
                    if scales.is_some() != row.scaling.is_some() {
                        let with = if scales.is_some() { "with" } else { "without" };
                        return Err(format!("{} {with} scales", row.name));
                    }
                    if meta.is_some() != row.sparse {
                        let with = if row.sparse { "without" } else { "with" };
                        return Err(format!("{} {with} metadata", row.name));
                    }
                    if let Some(meta) = meta {
                        self.address(&meta.address, Memory::Tensor)?;
                        if meta.selector > u32::from(row.a.bits() == 16) {
                            return Err(format!("{} has no metadata at {meta}", row.name));
                        }
                    }
                    let taken = row.scaling.map_or(1, |scaling| scaling.taken(row.k)) as u32;
                    for scales in scales.iter().flatten() {
                        self.address(&scales.address, Memory::Tensor)?;
                        if scales.byte % taken != 0 || scales.byte >= SumsScaling::SCALES as u32 {
                            return Err(format!("{} has no {taken} scales at {scales}", row.name));
                        }
                    }
                    if let Factor::Tensor(address) = a {
                        self.address(address, Memory::Tensor)?;
                        if scales.is_some() {
                            return Err(format!("{} with scales and a factor in tensor memory", row.name));
                        }
                    }
                    let shared = [a, b].into_iter().skip(usize::from(matches!(a, Factor::Tensor(_))));
                    for factor in shared {
                        let Factor::Shared { descriptor, major } = factor else {
                            let place = if matches!(factor, Factor::Tensor(_)) {
                                "tensor memory"
                            } else {
                                "registers"
                            };
                            return Err(format!("{} with a factor in {place}", row.name));
                        };
                        self.operand(descriptor.low, RegType::B32)?;
                        if *major == Major::Mn && !row.takes_mn_major() {
                            return Err(format!("{} with a factor that is {major}", row.name));
                        }
                    }
                    Ok(())
                }
                Op::ScaleCopy { chunk, to } => {
                    exists(SumsScaling::COPY, Tcgen05Row::NEEDS)?;
                    self.operand(chunk.low, RegType::B32)?;
                    self.address(to, Memory::Tensor)
                }
                Op::TensorCopy { row, regs, address } => {
                    exists(row.name, row.needs)?;
                    if !matches!(row.kind, CopyKind::Tensor { .. }) {
                        return Err(format!("{} does not copy tensor memory", row.name));
                    }
                    self.regs(regs, row.registers())?;
                    self.address(address, Memory::Tensor)
                }
                Op::TensorAllocate { columns, .. } | Op::TensorFree { columns, .. } => {
                    exists("tensor memory", Tcgen05Row::NEEDS)?;
                    if TensorMemory::allocation(*columns) != Some(*columns) {
                        return Err(format!(
                            "{columns} columns of tensor memory: a power of two from {} to {}",
                            TensorMemory::LEAST_COLUMNS,
                            TensorMemory::COLUMNS
                        ));
                    }
                    match &inst.op {
                        Op::TensorAllocate { to, .. } => self.address(to, Memory::Shared),
                        Op::TensorFree { address, .. } => self.operand(*address, RegType::B32),
                        _ => Ok(()),
                    }
                }
                Op::TensorMap { map, number, guard, .. } => {
                    exists("a tensor map", TensorRow::NEEDS)?;
                    let several = FunctionParamKind::TensorMaps(*map);
                    if function.params.iter().all(|param| param.kind != several) {
                        return Err("no such tensor maps".to_string());
                    }
                    guard.map_or(Ok(()), |guard| self.operand(guard.into(), RegType::Pred))?;
                    self.operand(*number, RegType::B32)
                }
                Op::Tensor { row, map, one, coords, shared, barrier, multicast, even, .. } => {
                    let several = FunctionParamKind::TensorMaps(*map);
                    let several = function.params.iter().any(|param| param.kind == several);
                    let right = match one {
                        None => !several,
                        Some(Operand::Value(value)) => several && self.maps.get(value) == Some(map),
                        Some(Operand::Imm(_)) => false,
                    };
                    if !right {
                        return Err(format!("{} without a tensor map, or with another", row.name));
                    }
                    one.iter().try_for_each(|one| self.operand(*one, RegType::B64))?;
                    let needs = multicast.map_or(row.needs(), |_| row.needs() | TensorRow::MULTICAST_NEEDS);
                    exists(&row.name, needs)?;
                    let map = function.tensor_maps.get(*map as usize).ok_or("no such tensor map")?;
                    map.shape.check().map_err(|e| e.to_string())?;
                    let rank = row.rank as usize;
                    let wanted = row.coordinates() + row.offsets();
                    let mode = map.shape.corners.is_some() == row.im2col;
                    if map.shape.rank() != rank || !mode || coords.len() as u32 != wanted {
                        return Err(format!("{} of a box of {} dimensions", row.name, coords.len()));
                    }
                    if row.gathers.is_some() && map.shape.extents[1..].iter().any(|extent| *extent != 1) {
                        return Err(format!("{} of boxes of several rows", row.name));
                    }
                    let load = row.op == TensorOp::Load;
                    if barrier.is_some() != load || (multicast.is_some() && !load) {
                        return Err(format!("{} with the operands of another", row.name));
                    }
                    if *even && (multicast.is_none() || !function.pairs) {
                        return Err(format!("{} that signals the even blocks of no pairs", row.name));
                    }
                    coords.iter().chain(multicast).try_for_each(|c| self.operand(*c, RegType::B32))?;
                    self.address(shared, Memory::Shared)?;
                    barrier.iter().try_for_each(|b| self.address(b, Memory::Shared))
                }
                Op::Bulk { op, shared, other, bytes, barrier } => {
                    exists(op.name(), op.needs())?;
                    if barrier.is_some() != (*op != BulkOp::Store) {
                        return Err(format!("{} with the operands of another", op.name()));
                    }
                    self.address(shared, Memory::Shared)?;
                    let memory = if *op == BulkOp::Peer { Memory::Shared } else { Memory::Global };
                    self.address(other, memory)?;
                    self.operand(*bytes, RegType::B32)?;
                    if let Operand::Imm(bytes) = bytes
                        && (*bytes == 0 || !bytes.is_multiple_of(16))
                    {
                        return Err(format!("{} of {bytes} bytes", op.name()));
                    }
                    barrier.iter().try_for_each(|b| self.address(b, Memory::Shared))
                }
                Op::TryCancel { answer, barrier } => {
                    exists("clusterlaunchcontrol", LaunchControl::NEEDS)?;
                    self.address(answer, Memory::Shared)?;
                    self.address(barrier, Memory::Shared)
                }
                Op::Cancelled { answer, .. } => {
                    exists("clusterlaunchcontrol", LaunchControl::NEEDS)?;
                    self.regs(answer, LaunchControl::ANSWER_BYTES / 4)
                }
                Op::Mbarrier { op, address, operand } => {
                    exists(op.name(), op.needs())?;
                    self.address(address, Memory::Shared)?;
                    self.operand(*operand, RegType::B32)?;
                    let most = (1 << 20) - 1;
                    let range = match op {
                        MbarrierOp::Init => 1..=most,
                        MbarrierOp::ArriveExpect => 0..=most,
                        MbarrierOp::CommitPeers => 1..=0xffff,
                        op if op.waits() => 0..=1,
                        _ => 0..=0,
                    };
                    match operand {
                        Operand::Imm(bits) if !range.contains(bits) => {
                            Err(format!("{} with {bits}", op.name()))
                        }
                        _ => Ok(()),
                    }
                }
                Op::Elect { .. } => exists("elect.sync", Feature::Elect.into()),
                Op::Vote { src, .. } | Op::Assert { holds: src } => self.operand(*src, RegType::Pred),
                Op::Asm { result, types, args, means, .. } => {
                    if types.len() != args.len() {
                        return Err(format!("{} types of {} operands", types.len(), args.len()));
                    }
                    self.operand(*means, *result)?;
                    args.iter().zip(types).try_for_each(|(arg, ty)| self.operand(*arg, *ty))
                }
                Op::Print { what, operands } => {
                    if operands.len() != what.operands() {
                        return Err(format!(
                            "a print of {} operands with {}",
                            what.operands(),
                            operands.len()
                        ));
                    }
                    operands.iter().try_for_each(|operand| self.operand(*operand, RegType::B32))
                }
                Op::For { lo, hi, step, .. } => {
                    self.operand(*lo, RegType::B32)?;
                    self.operand(*hi, RegType::B32)?;
                    self.operand(*step, RegType::B32)?;
                    match step {
                        Operand::Imm(bits) if *bits as i32 <= 0 => Err(format!("loop step {}", *bits as i32)),
                        _ => Ok(()),
                    }
                }
                Op::Break { .. } if !self.in_loop => Err("a break outside of a loop's body".to_string()),
                Op::If { condition, .. } | Op::Break { condition } => {
                    self.operand(Operand::Value(*condition), RegType::Pred)
                }
            }
        };
        check().map_err(fail)?;
        if let Some(dst) = inst.op.defines() {
            let ty = match &inst.op {
                Op::Scalar { op, .. } => op.row().result,
                Op::Param { param, .. } => function.params[*param as usize].kind.register(),
                Op::Elect { .. } | Op::Vote { .. } => RegType::Pred,
                Op::Lookup { row, .. } if row.bytes == 8 => RegType::B64,
                Op::TensorMap { .. } => RegType::B64,
                Op::Atomic { row, .. } => row.register(),
                Op::Asm { result, .. } => *result,
                _ => RegType::B32,
            };
            self.define(dst, ty, scope).map_err(|message| VerifyError {
                message,
                origin: function.origin(inst.origin).to_string(),
            })?;
        }
        match &inst.op {
            Op::For { counter, body, .. } => {
                let mut inner = Vec::new();
                self.define(*counter, RegType::B32, &mut inner).map_err(|message| VerifyError {
                    message,
                    origin: function.origin(inst.origin).to_string(),
                })?;
                self.within(body, inner, true)
            }
            Op::If { then, otherwise, .. } => {
                self.within(then, Vec::new(), false)?;
                self.within(otherwise, Vec::new(), false)
            }
            _ => Ok(()),
        }
    }

    /// Checks the statements of a loop, or of one side of a branch.
    fn within(&mut self, body: &[Inst], scope: Vec<Value>, in_loop: bool) -> Result<(), VerifyError> {
        let outer = std::mem::replace(&mut self.in_loop, in_loop);
        let result = self.block(body, scope);
        self.in_loop = outer;
        result
    }

    fn block(&mut self, body: &[Inst], mut scope: Vec<Value>) -> Result<(), VerifyError> {
        for inst in body {
            self.inst(inst, &mut scope)?;
        }
        for value in scope {
            self.visible[value.0 as usize] = false;
        }
        Ok(())
    }
}

/// Checks the invariants listed at the top of this module.
pub fn verify(function: &Function) -> Result<(), VerifyError> {
    if function.named.iter().flatten().any(|b| *b as usize >= function.shared.len()) {
        let message = "a statement names a shared buffer that there is not".to_string();
        return Err(VerifyError { message, origin: String::new() });
    }
    for buffer in &function.shared {
        if buffer.offset.checked_add(buffer.bytes).is_none_or(|end| end > function.shared_bytes) {
            let message = format!("shared buffer {} leaves the window", buffer.name);
            return Err(VerifyError { message, origin: String::new() });
        }
    }
    let clusters = if function.cluster > 1 { Feature::Cluster.into() } else { Features::NONE };
    let cluster = format!("a cluster of {} blocks", function.cluster);
    if !(1..=16).contains(&function.cluster) {
        return Err(VerifyError { message: cluster, origin: String::new() });
    }
    if function.pairs && !function.cluster.is_multiple_of(2) {
        let message = format!("pairs of blocks in {cluster}");
        return Err(VerifyError { message, origin: String::new() });
    }
    lacks(function.arch, &cluster, clusters)
        .map_err(|message| VerifyError { message, origin: String::new() })?;
    for (i, map) in function.tensor_maps.iter().enumerate() {
        if function.params.iter().filter(|p| p.kind.map() == Some(i as u32)).count() != 1 {
            let message = format!("tensor map {i} of {} is not one parameter", map.name);
            return Err(VerifyError { message, origin: String::new() });
        }
    }
    let n = function.values.len();
    let mut maps = HashMap::new();
    function.visit(&mut |inst| {
        if let Op::TensorMap { dst, map, .. } = inst.op {
            maps.insert(dst, map);
        }
    });
    let (visible, defined) = (vec![false; n], vec![false; n]);
    let mut checker = Checker { function, visible, defined, maps, in_loop: false };
    checker.block(&function.body, Vec::new())
}
