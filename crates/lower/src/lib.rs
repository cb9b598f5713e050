//! Lowering: from a synthesised tile program to what one thread runs.
//!
//! Statements are lowered in order. Loops over instruction calls are unrolled: an address is a base per thread plus
//! constants, and the builder hoists what does not change in a loop. Asynchronous copies are waited for before the next
//! `syncthreads`, or before the thread's own next read of the tensor: a tile program's `copy` is synchronous. A `copy.async` is
//! waited for only by the program's own `wait_group`. Where both kinds are in flight, the wait for a `copy` completes the
//! `copy.async`s too (`cp.async.wait_all`): right, but the pipeline runs dry there.

mod bits;
mod collective;
mod copy;
mod elements;
mod elementwise;
mod memory;
mod movement;
mod order;
mod packed;
mod scalar;

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Arch, Memory, SyncOp};
use tilewright_simt::{ArrayId, Builder, Function, FunctionParamKind, Operand, Reg};
use tilewright_synth::{Facts, GemmPlan, Multiples, SHARED_ALIGN, StmtPlan, Synthesis};
use tilewright_tile::{
    Code, Diagnostic, Expr, ParamKind, Span, Stmt, StmtKind, SymbolId, TensorId, Verified, statement_text,
};

/// The largest run-time size and the largest extent of a buffer's mode: coordinates are 32 bits wide, and a tile may
/// reach its own extent past the end.
pub const MAX_EXTENT: i64 = (1 << 31) - (1 << 21);

/// A state that synthesis should have ruled out: a mistake of the compiler.
fn internal(span: Span, what: &str) -> Diagnostic {
    Diagnostic::new(Code::Unsatisfiable, span, format!("lowering met {what}"))
        .help("this is a mistake of the compiler: please report it with the program")
}

struct Lower<'a> {
    verified: &'a Verified,
    synthesis: &'a Synthesis,
    facts: &'a Facts<'a>,
    arch: Arch,
    b: Builder,
    /// The fragment of each register tensor.
    arrays: Vec<Option<ArrayId>>,
    /// The offset of each shared tensor.
    shared: Vec<u32>,
    /// Values of sizes and of the counters in scope: the verifier has seen that no other is used.
    symbols: BTreeMap<SymbolId, Operand>,
    /// Shared tensors with instructions in flight that do a synchronous copy.
    pending: BTreeSet<TensorId>,
    /// The offset of the buffer that statements use one after the other.
    scratch: u32,
    /// Whether a statement before has used it.
    scratch_used: bool,
    /// Loops around the statement.
    loops: u32,
    /// Index of the next statement, in the order of [`Verified::visit`].
    next: usize,
    /// When products want what.
    ranks: order::Ranks,
}

/// Lowers a program with its synthesis, which must be of this very program.
///
/// # Errors
///
/// A [`Diagnostic`] if the program cannot be expressed; after a successful synthesis that is a mistake of the compiler.
pub fn lower(
    verified: &Verified,
    synthesis: &Synthesis,
    arch: Arch,
    multiples: &Multiples,
) -> Result<Function, Diagnostic> {
    let program = verified.program();
    let facts = Facts::new(verified, multiples);
    let mut b = Builder::new(program.name.clone(), arch, verified.threads());
    for param in &program.params {
        let kind = match param.kind {
            ParamKind::Tensor { .. } => FunctionParamKind::Pointer,
            ParamKind::Scalar { .. } => FunctionParamKind::F32,
        };
        b.add_param(param.name.clone(), kind);
    }
    let mut symbols = BTreeMap::new();
    for (id, symbol, _) in program.sizes() {
        let param = b.add_param(symbol.name.clone(), FunctionParamKind::I32);
        symbols.insert(id, Operand::Value(b.param(param)));
    }
    let (mut arrays, mut shared) = (Vec::new(), Vec::new());
    for (i, tensor) in program.tensors.iter().enumerate() {
        let id = TensorId(i as u32);
        arrays.push(match tensor.memory() {
            Memory::Register => {
                let tv = synthesis.register(id);
                let tv = tv.ok_or_else(|| internal(tensor.span, "a register tensor without a layout"))?;
                Some(b.add_array(
                    tensor.name.clone(),
                    elements::registers(tv.count() as u32, tensor.dtype.bits()),
                ))
            }
            _ => None,
        });
        let offset =
            synthesis.allocation.offsets.iter().find(|(t, _)| *t == id).map_or(0, |(_, offset)| *offset);
        if let Some((_, bytes)) = synthesis.shared(id) {
            b.add_shared_at(tensor.name.clone(), offset, bytes);
        }
        shared.push(offset);
    }
    let scratch = if synthesis.scratch_bytes > 0 {
        b.add_shared("exchange", synthesis.scratch_bytes, SHARED_ALIGN)
    } else {
        0
    };
    let mut lower = Lower {
        verified,
        synthesis,
        facts: &facts,
        arch,
        b,
        arrays,
        shared,
        symbols,
        pending: BTreeSet::new(),
        scratch,
        scratch_used: false,
        loops: 0,
        next: 0,
        ranks: order::ranks(verified, synthesis),
    };
    lower.block(&program.body)?;
    let mut function = lower.b.finish();
    tilewright_simt::passes::dead_code(&mut function);
    Ok(function)
}

impl Lower<'_> {
    fn array(&self, tensor: TensorId) -> Result<ArrayId, Diagnostic> {
        let span = self.verified.program().tensor(tensor).span;
        self.arrays[tensor.0 as usize].ok_or_else(|| internal(span, "a tensor that is not in registers"))
    }

    /// Values a thread holds of a register tensor.
    fn count(&self, tensor: TensorId) -> Result<u32, Diagnostic> {
        let span = self.verified.program().tensor(tensor).span;
        let tv = self.synthesis.register(tensor);
        tv.map(|tv| tv.count() as u32).ok_or_else(|| internal(span, "a register tensor without a layout"))
    }

    fn expr(&mut self, e: &Expr) -> Operand {
        let symbols = &self.symbols;
        scalar::expr(&mut self.b, self.facts, &|id| symbols[&id], e)
    }

    /// Waits for asynchronous copies: of one tensor, or of all.
    fn settle(&mut self, tensor: Option<TensorId>) {
        if tensor.map_or(!self.pending.is_empty(), |t| self.pending.contains(&t)) {
            self.b.sync(SyncOp::AsyncWaitAll);
            self.pending.clear();
        }
    }

    fn block(&mut self, body: &[Stmt]) -> Result<(), Diagnostic> {
        body.iter().try_for_each(|stmt| self.statement(stmt))
    }

    fn statement(&mut self, stmt: &Stmt) -> Result<(), Diagnostic> {
        let index = self.next;
        self.next += 1;
        let synthesis = self.synthesis;
        let plan = &synthesis.statements[index];
        self.b.set_origin(statement_text(self.verified.program(), stmt));
        match (&stmt.kind, plan) {
            (StmtKind::Define(_), _) => Ok(()),
            (StmtKind::Copy { src, dst }, StmtPlan::Copy(plan)) => self.copy(src, dst, plan, true),
            (StmtKind::CopyAsync { src, dst }, StmtPlan::Copy(plan)) => self.copy(src, dst, plan, false),
            (StmtKind::Commit, _) => {
                self.b.sync(SyncOp::AsyncCommit);
                Ok(())
            }
            (StmtKind::Wait(groups), _) => {
                let groups = groups.as_int().and_then(|n| u32::try_from(n).ok());
                let groups = groups.ok_or_else(|| internal(stmt.span, "a wait for an unknown number"))?;
                self.b.sync(SyncOp::AsyncWaitGroup(groups));
                Ok(())
            }
            (StmtKind::Gemm { c, a, b, .. }, StmtPlan::Gemm(plan)) => self.gemm(*c, *a, *b, plan),
            (StmtKind::Cast { dst, src }, _) => self.cast(*dst, *src),
            (StmtKind::Fill { dst, value }, _) => self.fill(*dst, *value),
            (StmtKind::Elementwise { dst, expr }, _) => self.elementwise(*dst, expr),
            (StmtKind::Sync, _) => {
                self.settle(None);
                self.b.sync(SyncOp::Barrier);
                Ok(())
            }
            (StmtKind::For { counter, lo, hi, body }, _) => self.repeat(*counter, lo, hi, body),
            (
                StmtKind::Rearrange { dst, src } | StmtKind::Shape { dst, src, .. },
                StmtPlan::Move(movement),
            ) => {
                let ends = (self.array(*src)?, self.array(*dst)?);
                let counts = (self.count(*src)?, self.count(*dst)?);
                let bits = self.verified.program().tensor(*dst).dtype.bits();
                self.movement_of(ends, counts, bits, movement, stmt.span)
            }
            (StmtKind::Join { dst, a, b }, StmtPlan::Halves(halves)) => {
                let (to, sides) = (self.array(*dst)?, [self.array(*a)?, self.array(*b)?]);
                let bits = self.verified.program().tensor(*dst).dtype.bits();
                let moves: Vec<(ArrayId, u32, u32)> = halves
                    .iter()
                    .zip(sides)
                    .flat_map(|(moves, side)| moves.iter().map(move |(s, d)| (side, *s, *d)))
                    .collect();
                self.moves(&moves, to, bits);
                Ok(())
            }
            (StmtKind::Split { lo, hi, src }, StmtPlan::Halves(halves)) => {
                let from = self.array(*src)?;
                let bits = self.verified.program().tensor(*src).dtype.bits();
                for (half, moves) in [lo, hi].into_iter().zip(halves) {
                    let to = self.array(*half)?;
                    let moves: Vec<(ArrayId, u32, u32)> = moves.iter().map(|(s, d)| (from, *s, *d)).collect();
                    self.moves(&moves, to, bits);
                }
                Ok(())
            }
            (StmtKind::Reduce { dst, src, op, .. }, StmtPlan::Reduce(plan)) => {
                self.reduce(*dst, *src, *op, plan, stmt.span)
            }
            (StmtKind::Gather { dst, src, index, .. }, StmtPlan::Gather(plan)) => {
                self.gather((*dst, *src, *index), plan, stmt.span)
            }
            (
                StmtKind::Copy { .. }
                | StmtKind::CopyAsync { .. }
                | StmtKind::Gemm { .. }
                | StmtKind::Rearrange { .. }
                | StmtKind::Shape { .. }
                | StmtKind::Join { .. }
                | StmtKind::Split { .. }
                | StmtKind::Reduce { .. }
                | StmtKind::Gather { .. },
                _,
            ) => Err(internal(stmt.span, "a statement without a plan")),
        }
    }

    fn repeat(&mut self, counter: SymbolId, lo: &Expr, hi: &Expr, body: &[Stmt]) -> Result<(), Diagnostic> {
        let (lo, hi) = (self.expr(lo), self.expr(hi));
        // What is in flight when the loop begins may be read in it.
        self.settle(None);
        let value = self.b.open_loop();
        self.symbols.insert(counter, Operand::Value(value));
        self.loops += 1;
        let result = self.block(body);
        self.loops -= 1;
        // The next round may read what this one has in flight.
        self.settle(None);
        self.symbols.remove(&counter);
        self.b.close_loop(value, lo, hi, Operand::Imm(1));
        result
    }

    fn gemm(&mut self, c: TensorId, a: TensorId, b: TensorId, plan: &GemmPlan) -> Result<(), Diagnostic> {
        let (ac, aa, ab) = (self.array(c)?, self.array(a)?, self.array(b)?);
        let regs = |array: ArrayId, values: &[u32], bits: u32| -> Vec<Reg> {
            values
                .chunks((32 / bits) as usize)
                .map(|chunk| elements::place(array, chunk[0], bits).0)
                .collect()
        };
        for call in &plan.calls {
            let d = regs(ac, &call.c, plan.row.c.bits());
            let x = regs(aa, &call.a, plan.row.ab.bits());
            let y = regs(ab, &call.b, plan.row.ab.bits());
            self.b.mma(plan.row, d, x, y);
        }
        Ok(())
    }
}
