//! Decoding of the instructions of a body, with their costs and the tables of those that are collective.

use tilewright_machine::{
    CopyKind, CopyRow, DType, MbarrierOp, Memory, MmaRow, OpKey, ProxyFence, ScalarOp, Scope, SyncOp,
    TensorOp, TensorRow, WgmmaRow, timing,
};
use tilewright_simt::{Address, Factor, Inst, Op, Operand, Reg, Value};

use super::{
    Atomic, BulkCopy, Code, Decoder, Instruction, Nature, Place, Slot, Source, Statement, TensorCopy,
    Transfer, name_of,
};
use crate::error::SimError;
use crate::tables::{CopyTable, MatrixTable, MmaTable};
use crate::wgmma::WgmmaTable;

impl Decoder<'_> {
    fn slot(&mut self, operand: Operand) -> Slot {
        let bits = match operand {
            Operand::Value(value) => return value.0,
            Operand::Imm(bits) => bits,
        };
        let (first, literals) = &mut self.program.literals;
        *self.literals.entry(bits).or_insert_with(|| {
            literals.push(bits);
            (*first + literals.len() - 1) as Slot
        })
    }

    fn place(&mut self, address: &Address) -> Place {
        Place { base: self.slot(address.base), offset: address.offset }
    }

    fn regs(&self, regs: &[Reg]) -> Vec<u32> {
        regs.iter().map(|r| self.bases[r.array.0 as usize] + r.index).collect()
    }

    fn source(&mut self, factor: &Factor) -> Source {
        match factor {
            Factor::Registers(regs) => Source::Registers(self.regs(regs)),
            Factor::Shared { descriptor, major } => {
                Source::Shared { low: self.slot(descriptor.low), high: descriptor.high, major: *major }
            }
            Factor::Tensor(address) => Source::Tensor(self.place(address)),
        }
    }

    fn statement(&mut self, inst: &Inst) -> u32 {
        let (origin, name) = (inst.origin.0, name_of(&inst.op));
        let statements = &mut self.program.statements;
        *self.statements.entry((origin, name)).or_insert_with(|| {
            statements.push(Statement { origin, name, nature: Nature::of(&inst.op) });
            (statements.len() - 1) as u32
        })
    }

    fn unsupported(&self, instruction: &str, reason: &'static str, origin: u32) -> SimError {
        SimError::Unsupported {
            instruction: instruction.to_string(),
            reason,
            origin: self.program.origin(origin),
        }
    }

    fn emit(&mut self, code: Code, (statement, origin): (u32, u32), issue: u32, latency: u32) -> u32 {
        let row = self.program.row(&code, origin);
        let rows = &mut self.program.rows;
        let row = *self.rows.entry((origin, row.name)).or_insert_with(|| {
            rows.push(row);
            (rows.len() - 1) as u32
        });
        self.program.code.push(Instruction { code, statement, origin, row, issue, latency });
        (self.program.code.len() - 1) as u32
    }

    /// Issue and latency of an instruction by the architecture's table, in whole cycles.
    fn cost(&self, key: impl Into<OpKey>) -> (u32, u32) {
        let cost = timing(self.program.function.arch).cost(key);
        (cost.whole_issue(), cost.whole_latency())
    }

    /// The same for a copy, by what the load/store unit has to do.
    fn copy_cost(&self, row: &CopyRow) -> (u32, u32) {
        let timing = timing(self.program.function.arch);
        (timing.lsu_issue(row).round() as u32, timing.cost(row).whole_latency())
    }

    pub(super) fn block(&mut self, body: &[Inst]) -> Result<(), SimError> {
        body.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), SimError> {
        let (statement, origin) = (self.statement(inst), inst.origin.0);
        let at = (statement, origin);
        let (code, (issue, latency)) = match &inst.op {
            Op::Special { dst, special } => (Code::Special { dst: dst.0, special: *special }, (1, 4)),
            Op::Param { dst, param } => (Code::Param { dst: dst.0, param: *param }, (1, 4)),
            Op::Scalar { dst, op, args } => (self.scalar(*dst, *op, args, origin)?, self.cost(*op)),
            // Moves between registers: PTX printing names the register instead.
            Op::ReadReg { dst, src } => (Code::ReadReg { dst: dst.0, src: self.regs(&[*src])[0] }, (0, 0)),
            Op::WriteReg { dst, src } => {
                (Code::WriteReg { dst: self.regs(&[*dst])[0], src: self.slot(*src) }, (0, 0))
            }
            Op::Load { row, dst, address, guard, outside } => {
                let transfer = self.transfer(statement, row, row.src, dst, address, guard.map(|g| g.0));
                let transfer = Transfer { outside: *outside, ..transfer };
                (Code::Load(transfer), self.copy_cost(row))
            }
            Op::Lookup { row, dst, address, guard } => {
                let transfer = self.transfer(statement, row, row.src, &[], address, guard.map(|g| g.0));
                (Code::Lookup { dst: dst.0, transfer }, self.copy_cost(row))
            }
            Op::Store { row, src, address, guard } => {
                let transfer = self.transfer(statement, row, row.dst, src, address, guard.map(|g| g.0));
                (Code::Store(transfer), self.copy_cost(row))
            }
            Op::Atomic { row, order, dst, address, operands, guard } => {
                let (place, dst, guard) = (self.place(address), dst.map(|dst| dst.0), guard.map(|g| g.0));
                let operands = operands.iter().map(|operand| self.slot(*operand)).collect();
                let atomic = Atomic { statement, row, order: *order, dst, place, operands, guard };
                (Code::Atomic(atomic), self.cost(*row))
            }
            Op::Await { address, until, operand } => {
                let (place, operand) = (self.place(address), self.slot(*operand));
                (Code::Await { statement, place, until: *until, operand }, self.cost(SyncOp::AsyncWaitAll))
            }
            Op::AsyncCopy { row, dst, src, guard } => {
                if !matches!(row.bytes, 4 | 8 | 16) {
                    return Err(self.unsupported(row.name, "it does not move 4, 8 or 16 bytes", origin));
                }
                let (dst, src, guard) = (self.place(dst), self.place(src), guard.map(|g| g.0));
                (Code::AsyncCopy { statement, bytes: row.bytes, dst, src, guard }, self.copy_cost(row))
            }
            Op::Matrix { row, regs, address } => {
                let (table, place) = (self.matrix_table(row, origin)?, self.place(address));
                (Code::Matrix { statement, table, regs: self.regs(regs), place }, self.cost(*row))
            }
            Op::Mma { row, d, a, b, meta, scales } => {
                let table = self.mma_table(row, origin)?;
                let (d, a, b) = (self.regs(d), self.regs(a), self.regs(b));
                let meta = self.regs(meta.as_slice()).first().copied();
                let scales =
                    scales.map(|scales| scales.map(|scale| (self.regs(&[scale.register])[0], scale.byte)));
                (Code::Mma { table, d, a, b, meta, scales }, self.cost(*row))
            }
            Op::Shuffle { dst, src, mode, operand } => {
                let (src, operand) = (self.slot(*src), self.slot(*operand));
                (Code::Shuffle { dst: dst.0, src, mode: *mode, operand }, self.cost(*mode))
            }
            Op::Wgmma { row, d, a, b, meta, accumulate } => {
                let table = self.wgmma_table(row);
                let (d, a, b) = (self.regs(d), self.source(a), self.source(b));
                let meta = self.regs(meta.as_slice()).first().copied();
                let code =
                    Code::Wgmma { statement, table, d, a, b, meta, accumulate: self.slot(*accumulate) };
                let cost = timing(self.program.function.arch).wgmma(row);
                (code, (cost.whole_issue(), cost.whole_latency()))
            }
            Op::Tcgen05 { row, d, a, b, scales, meta, accumulate } => {
                self.program.sums = true;
                let (d, accumulate) = (self.place(d), self.slot(*accumulate));
                let (a, b) = (self.source(a), self.source(b));
                let scales = scales.map(|both| both.map(|one| (self.place(&one.address), one.byte)));
                let a_shared = matches!(a, Source::Shared { .. });
                let cost = timing(self.program.function.arch).tcgen05(row, a_shared);
                let meta = meta.map(|meta| (self.place(&meta.address), meta.selector));
                let code = Code::Sums { statement, row, d, a, b, scales, meta, accumulate };
                (code, (cost.whole_issue(), cost.whole_latency()))
            }
            Op::ScaleCopy { chunk, to } => {
                self.program.sums = true;
                let (low, to) = (self.slot(chunk.low), self.place(to));
                let code = Code::ScaleCopy { statement, low, high: chunk.high, to };
                (code, self.cost(tilewright_machine::Class::TensorScales))
            }
            Op::TensorCopy { row, regs, address } => {
                self.program.sums = true;
                let (table, place) = (self.tensor_table(row), self.place(address));
                let (issue, latency) = self.cost(*row);
                let issue = issue * row.registers();
                (Code::TensorCopy { statement, table, regs: self.regs(regs), place }, (issue, latency))
            }
            Op::TensorAllocate { columns, to } => {
                self.program.sums = true;
                let to = self.place(to);
                (Code::TensorAllocate { statement, columns: *columns, to }, self.cost(MbarrierOp::Init))
            }
            Op::TensorFree { columns, address } => {
                let address = self.slot(*address);
                (Code::TensorFree { statement, columns: *columns, address }, self.cost(MbarrierOp::Init))
            }
            Op::TensorMap { dst, number, .. } => {
                let cost = self.cost(SyncOp::FenceProxyAsync(ProxyFence::Global));
                (Code::TensorMap { dst: dst.0, number: self.slot(*number) }, cost)
            }
            Op::Tensor { row, map, one, coords, shared, barrier, multicast, even, .. } => {
                let bytes = self.box_bytes(row, *map, origin)?;
                let coords = coords.iter().map(|c| self.slot(*c)).collect();
                let (shared, barrier) = (self.place(shared), barrier.map(|b| self.place(&b)));
                let (op, map, multicast) = (row.op, *map, multicast.map(|m| self.slot(m)));
                let one = one.map(|one| self.slot(one));
                let even = *even;
                let copy =
                    TensorCopy { statement, op, map, one, bytes, coords, shared, barrier, multicast, even };
                (Code::Tensor(copy), self.cost(op))
            }
            Op::Bulk { op, shared, other, bytes, barrier } => {
                let (shared, other, bytes) = (self.place(shared), self.place(other), self.slot(*bytes));
                let barrier = barrier.map(|b| self.place(&b));
                (Code::Bulk(BulkCopy { statement, op: *op, shared, other, bytes, barrier }), self.cost(*op))
            }
            Op::TryCancel { answer, barrier } => {
                self.program.cancels = true;
                let (answer, barrier) = (self.place(answer), self.place(barrier));
                (
                    Code::TryCancel { statement, answer, barrier },
                    self.cost(tilewright_machine::Class::LaunchControl),
                )
            }
            Op::Cancelled { dst, answer } => {
                let answer = self.regs(answer);
                (Code::Cancelled { dst: dst.0, answer }, self.cost(ScalarOp::BfeU32))
            }
            Op::Mbarrier { op, address, operand } => {
                self.program.roles = true;
                let (place, operand) = (self.place(address), self.slot(*operand));
                (Code::Mbarrier { statement, op: *op, place, operand }, (self.cost(*op).0, 0))
            }
            Op::Elect { dst } => (Code::Elect { dst: dst.0 }, (1, 4)),
            Op::Asm { dst, means, .. } => {
                let (unit, args) = (ScalarOp::AddI32.class().unit(), [self.slot(*means), 0, 0, 0]);
                let eval = |args: &[u64]| args[0];
                (Code::Scalar { dst: dst.0, eval, args, count: 1, unit }, self.cost(ScalarOp::AddI32))
            }
            Op::Assert { holds } => (Code::Assert { holds: self.slot(*holds) }, (0, 0)),
            Op::Print { what, operands } => {
                let operands = operands.iter().map(|operand| self.slot(*operand)).collect();
                (Code::Print { what: what.clone(), operands }, (0, 0))
            }
            Op::Vote { dst, src } => (Code::Vote { dst: dst.0, src: self.slot(*src) }, (1, 4)),
            Op::Sync(op) => {
                if let SyncOp::NamedBarrier { id, threads } | SyncOp::BarrierArrive { id, threads } = op
                    && (!(1..=15).contains(id) || *threads == 0 || !threads.is_multiple_of(32))
                {
                    let reason = "barriers have numbers from 1 to 15 and whole warps";
                    return Err(self.unsupported("bar.sync", reason, origin));
                }
                let all = self.program.function.threads;
                self.program.roles |= matches!(op, SyncOp::NamedBarrier { threads, .. } if *threads < all);
                (Code::Sync { statement, op: *op }, (self.cost(*op).0, 0))
            }
            Op::BarrierSync { id, threads } => {
                self.program.roles |= *threads < self.program.function.threads;
                let cost = self.cost(SyncOp::NamedBarrier { id: 1, threads: *threads });
                (Code::BarrierSync { statement, id: self.slot(*id), threads: *threads }, (cost.0, 0))
            }
            Op::For { counter, lo, hi, step, body } => {
                return self.repeat(*counter, [*lo, *hi, *step], body, at);
            }
            // The loop sets its end.
            Op::Break { condition } => (Code::Break { condition: condition.0, end: 0 }, (1, 4)),
            Op::If { condition, then, otherwise } => return self.branch(*condition, [then, otherwise], at),
        };
        self.emit(code, at, issue, latency);
        Ok(())
    }

    fn scalar(&mut self, dst: Value, op: ScalarOp, args: &[Operand], origin: u32) -> Result<Code, SimError> {
        let row = op.row();
        if args.len() > 4 {
            return Err(self.unsupported(row.name, "it has more than four operands", origin));
        }
        let mut slots = [0; 4];
        for (slot, arg) in slots.iter_mut().zip(args) {
            *slot = self.slot(*arg);
        }
        let (count, unit) = (args.len() as u8, op.class().unit());
        Ok(Code::Scalar { dst: dst.0, eval: row.eval, args: slots, count, unit })
    }

    fn matrix_table(&mut self, row: &'static CopyRow, origin: u32) -> Result<u32, SimError> {
        if let Some(table) = self.matrices.get(row.name) {
            return Ok(*table);
        }
        let table = MatrixTable::new(row).map_err(|e| self.unsupported(row.name, e, origin))?;
        self.program.matrices.push(table);
        let index = (self.program.matrices.len() - 1) as u32;
        self.matrices.insert(row.name, index);
        Ok(index)
    }

    fn mma_table(&mut self, row: &'static MmaRow, origin: u32) -> Result<u32, SimError> {
        if let Some(table) = self.products.get(row.name) {
            return Ok(*table);
        }
        let table = MmaTable::new(row).map_err(|e| self.unsupported(row.name, e, origin))?;
        self.program.products.push(table);
        let index = (self.program.products.len() - 1) as u32;
        self.products.insert(row.name, index);
        Ok(index)
    }

    fn wgmma_table(&mut self, row: &'static WgmmaRow) -> u32 {
        let wgmmas = &mut self.program.wgmmas;
        *self.wgmmas.entry(row.name.as_str()).or_insert_with(|| {
            wgmmas.push(WgmmaTable::new(row));
            (wgmmas.len() - 1) as u32
        })
    }

    fn tensor_table(&mut self, row: &'static CopyRow) -> u32 {
        let tables = &mut self.program.tensor_copies;
        let known = tables.iter().position(|table| table.row.name == row.name);
        known.unwrap_or_else(|| {
            let (lanes, registers) = match row.kind {
                CopyKind::Tensor { lanes, registers } => (lanes, registers),
                _ => (32, row.registers()),
            };
            tables.push(CopyTable::new(row, lanes, registers));
            tables.len() - 1
        }) as u32
    }

    /// Bytes of the boxes of a tensor map.
    fn box_bytes(&self, row: &TensorRow, map: u32, origin: u32) -> Result<u32, SimError> {
        let shape = &self.program.function.tensor_maps[map as usize].shape;
        let adds = matches!(shape.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::I32);
        if row.op == TensorOp::Add && !adds {
            return Err(self.unsupported(&row.name, "its element type has no sum", origin));
        }
        Ok(shape.bytes() as u32 * row.boxes())
    }

    fn repeat(
        &mut self,
        counter: Value,
        [lo, hi, step]: [Operand; 3],
        body: &[Inst],
        at: (u32, u32),
    ) -> Result<(), SimError> {
        let (lo, hi) = (self.slot(lo), self.slot(hi));
        let begin = self.emit(Code::LoopBegin { counter: counter.0, lo, hi, end: 0 }, at, 1, 4);
        self.block(body)?;
        let code = Code::LoopEnd { counter: counter.0, hi, step: self.slot(step), begin };
        let position = self.emit(code, at, 3, 4);
        for instruction in &mut self.program.code[begin as usize..position as usize] {
            match &mut instruction.code {
                // Loops within have set theirs.
                Code::LoopBegin { end, .. } | Code::Break { end, .. } if *end == 0 => *end = position,
                _ => {}
            }
        }
        Ok(())
    }

    fn branch(
        &mut self,
        condition: Value,
        [then, otherwise]: [&[Inst]; 2],
        at: (u32, u32),
    ) -> Result<(), SimError> {
        let start = self.emit(Code::If { condition: condition.0, otherwise: 0 }, at, 1, 4);
        self.block(then)?;
        let middle = self.emit(Code::Else { end: 0 }, at, 0, 0);
        self.block(otherwise)?;
        let last = self.emit(Code::EndIf, at, 0, 0);
        for (at, to) in [(start, middle), (middle, last)] {
            if let Code::If { otherwise: target, .. } | Code::Else { end: target } =
                &mut self.program.code[at as usize].code
            {
                *target = to;
            }
        }
        Ok(())
    }

    fn transfer(
        &mut self,
        statement: u32,
        row: &'static CopyRow,
        memory: Memory,
        regs: &[Reg],
        address: &Address,
        guard: Option<Slot>,
    ) -> Transfer {
        Transfer {
            statement,
            memory,
            peer: row.scope == Scope::Cluster,
            bytes: row.bytes,
            regs: self.regs(regs),
            place: self.place(address),
            guard,
            outside: [0; 2],
            reduction: row.reduction(),
        }
    }
}
