//! Lowering: from a synthesised tile program to what one thread runs.
//!
//! Statements are lowered in order. Loops over instruction calls are unrolled: an address is a base per thread plus
//! constants, and the builder hoists what does not change in a loop. Asynchronous copies are waited for before the next
//! `syncthreads`, or before the thread's own next read of the tensor: a tile program's `copy` is synchronous. A `copy.async` is
//! waited for only by the program's own `wait_group`. Where both kinds are in flight, the wait for a `copy` completes the
//! `copy.async`s too (`cp.async.wait_all`): right, but the pipeline runs dry there.
//!
//! The roles of a program are lowered one after the other, each as a side of one branch on the warp's index: `roles.rs`. A mechanism
//! has a file: `tma.rs`, `wgmma.rs`, `pipeline.rs` and `release.rs` (stages of pipelines), `cluster_reduce.rs`, `persistent.rs`.

mod arg;
mod asm;
mod async_state;
mod barriers;
mod bits;
mod cluster_reduce;
mod collective;
mod context;
mod copy;
mod counter;
mod elements;
mod elementwise;
mod fetch;
mod flags;
mod integer;
mod maps;
mod memory;
mod metadata;
mod movement;
mod packed;
mod persistent;
mod pipeline;
mod print;
mod release;
mod roles;
mod rows;
mod scalar;
mod scan;
mod schedule;
mod smem;
mod sort;
mod start;
mod tensor_memory;
mod tma;
mod walk;
mod wgmma;
mod wide;

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::Metadata;
use tilewright_machine::{Arch, Memory, ScalarOp, SyncOp};
use tilewright_simt::{ArrayId, Build, Builder, Function, FunctionParamKind, Operand, Position, Special};
use tilewright_synth::block::{BlockPlan, Part};
use tilewright_synth::{CopyPlan, Divisibility, GemmPlan, Multiples, StmtPlan};
use tilewright_tile::core::{Program, Stmt, StmtKind, Tensor};
use tilewright_tile::{
    CombineForm, CopyAttrs, Diagnostic, Expr, Origin, ParamKind, SymbolId, TensorId, named_statement_text,
};

use async_state::AsyncState;
use barriers::Barriers;
use context::{Lower, internal};
pub use maps::MapRecipe;
use maps::Maps;
use schedule::FirstUse;
use start::Start;
use tensor_memory::Columns;

/// The largest run-time size and the largest extent of a buffer's mode: coordinates are 32 bits wide, and a tile may
/// reach its own extent past the end.
pub const MAX_EXTENT: i64 = (1 << 31) - (1 << 21);

/// The number of groups that a wait leaves in flight.
fn count_of(groups: i64, span: Origin) -> Result<u32, Diagnostic> {
    u32::try_from(groups).map_err(|_| internal(span, "a wait for an unknown number"))
}

/// A lowered program.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The program of one thread.
    pub function: Function,
    /// One recipe a tensor map of the function.
    pub maps: Vec<MapRecipe>,
}

/// The parts' common ground.
struct Block<'a> {
    whole: &'a Program,
    plan: &'a BlockPlan,
    arch: Arch,
    multiples: &'a Multiples,
    /// Tensor memory.
    columns: Option<Columns<'a>>,
    /// The values of sizes.
    symbols: BTreeMap<SymbolId, Operand>,
    start: Start,
}

/// Lowers a program with the synthesis of each of its parts and the plan of the block. `whole` is the program of all parts, from
/// which each was taken.
///
/// # Errors
///
/// A [`Diagnostic`] if the program cannot be expressed, which is a mistake of the compiler after a successful synthesis.
pub fn lower(
    whole: &Program,
    parts: &[Part<'_>],
    plan: &BlockPlan,
    arch: Arch,
    multiples: &Multiples,
) -> Result<Lowered, Diagnostic> {
    let mut b = Builder::new(whole.name.clone(), arch, whole.threads());
    b.set_cluster(whole.cluster());
    b.set_resident(whole.resident());
    for param in &whole.params {
        let kind = match param.kind {
            ParamKind::Tensor { array: true, .. } => FunctionParamKind::Pointers,
            ParamKind::Tensor { .. } => FunctionParamKind::Pointer,
            ParamKind::Scalar { .. } => FunctionParamKind::number(param.dtype),
        };
        b.add_param(param.name.clone(), kind);
    }
    let mut symbols = BTreeMap::new();
    for (id, symbol, _) in whole.sizes() {
        let param = b.add_param(symbol.name.clone(), FunctionParamKind::I32);
        symbols.insert(id, Operand::Value(b.param(param)));
    }
    for buffer in &plan.memory.buffers {
        b.add_shared_at(buffer.name.clone(), buffer.at, buffer.bytes);
    }
    let mut maps = Maps::default();
    let start = Start::emit(&mut b, (whole, parts), plan, multiples, &symbols);
    let tensor_memory = plan.memory.tensor_memory.as_ref();
    let columns = tensor_memory.map(|map| tensor_memory::address(&mut b, map)).transpose()?;
    let mut bodies = Vec::new();
    let block = Block { whole, plan, arch, multiples, columns, symbols, start };
    for (i, part) in parts.iter().enumerate() {
        let mut emit = |b: &mut Builder| lower_part(&block, (i, part), &mut maps, b);
        match part.role {
            Some(role) => {
                let (result, body) = b.side(emit);
                result?;
                bodies.push((role, body));
            }
            None => emit(&mut b)?,
        }
    }
    roles::roles(&mut b, bodies, block.start.warp);
    if let Some(columns) = columns {
        let reached = plan.roles.iter().any(|role| role.ends_with_cluster);
        tensor_memory::free(&mut b, columns, reached);
    }
    let recipes = maps.finish(&mut b);
    let mut function = b.finish();
    tilewright_simt::passes::dead_code(&mut function);
    Ok(Lowered { function, maps: recipes })
}

/// Lowers one part into the block that the builder is in.
fn lower_part(
    block: &Block<'_>,
    (index, part): (usize, &Part<'_>),
    maps: &mut Maps,
    b: &mut Builder,
) -> Result<(), Diagnostic> {
    let divisibility = Divisibility::new(part.verified, block.multiples);
    let arrays = fragments(part, b);
    let (role, memory) = (&block.plan.roles[index], &block.plan.memory.parts[index]);
    // Who multiplies has no register to spare for an election that is long past.
    let warp = block.start.warp.filter(|_| role.single_thread);
    let state = AsyncState::new(block.whole, part.role, (role, &block.plan.pipelines), warp, b);
    let mut lower = Lower {
        verified: part.verified,
        synthesis: part.synthesis,
        divisibility: &divisibility,
        arch: block.arch,
        b,
        maps,
        arrays,
        memory,
        symbols: block.symbols.clone(),
        slots: BTreeMap::new(),
        pending_copies: BTreeSet::new(),
        scratch_used: false,
        loops: 0,
        first_use: FirstUse::of(part.verified, part.synthesis),
        streams: BTreeMap::new(),
        decisions: BTreeMap::new(),
        role,
        pipelines: &block.plan.pipelines,
        columns: block.columns,
        tiles: &block.plan.tiles,
        part: index,
        first_tile: block.start.first_tile.filter(|first| first.part == index),
        barriers: Barriers::new(block.whole, index),
        state,
    };
    let team = lower.state.team;
    lower.as_team(team, |lower| lower.part(&part.verified.body))
}

/// The register arrays of a part's fragments.
fn fragments(part: &Part<'_>, b: &mut Builder) -> Vec<Option<ArrayId>> {
    let touched = part.verified.touched();
    let fragment = |(i, tensor): (usize, &Tensor)| match tensor.memory() {
        Memory::Register if touched.contains(&TensorId(i as u32)) => {
            let tv = part.synthesis.register(TensorId(i as u32))?;
            let registers = elements::registers(tv.count() as u32, tensor.dtype.bits());
            Some(b.add_array(tensor.name.clone(), registers))
        }
        _ => None,
    };
    part.verified.tensors.iter().enumerate().map(fragment).collect()
}

impl Lower<'_> {
    fn block(&mut self, body: &[Stmt]) -> Result<(), Diagnostic> {
        for (i, stmt) in body.iter().enumerate() {
            if let StmtKind::Fill { dst, value } = &stmt.kind
                && *value == 0.0
                && (self.begins_ahead(*dst) || self.starts_afresh(*dst, &body[i + 1..]))
            {
                continue;
            }
            if let Some(condition) = self.decides(body, i) {
                self.decisions.insert(condition, stmt.clone());
                continue;
            }
            self.statement(stmt)?;
        }
        Ok(())
    }

    /// Tells the builder which statement comes, and which shared tensors it names.
    fn begin(&mut self, stmt: &Stmt) {
        let position = match stmt.span {
            Origin::Unknown => None,
            Origin::Text(span) => Some(Position::Text(span.start)),
            Origin::Rust(location) => Some(Position::Rust(location)),
        };
        self.b.set_origin_at(named_statement_text(self.verified, stmt), position);
        for tensor in stmt.kind.reads().into_iter().chain(stmt.kind.writes()) {
            if let Some(Some(buffer)) = self.memory.buffers.get(tensor.0 as usize) {
                self.b.name_shared(*buffer);
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt) -> Result<(), Diagnostic> {
        let plan = self.synthesis.plan(stmt)?;
        self.begin(stmt);
        match (&stmt.kind, plan) {
            (
                StmtKind::Define(_) | StmtKind::Pipeline(_) | StmtKind::Barrier(_) | StmtKind::Let { .. },
                _,
            ) => {}
            (StmtKind::Copy { dst, .. }, StmtPlan::Copy(_)) if self.synthesis.streamed.contains(&stmt.id) => {
                self.streams.insert(dst.tensor, stmt.clone());
            }
            (
                StmtKind::Copy { src, dst, how: CopyAttrs { fetch: Some(fetch), .. } },
                StmtPlan::Copy(CopyPlan::Fetch { access, bytes, .. }),
            ) => self.fetch((src, dst), *fetch, (access, *bytes))?,
            (StmtKind::Copy { src, dst, how }, StmtPlan::Copy(plan)) => {
                self.copy((src, dst), plan, how.outside, true)?;
            }
            (StmtKind::CopyAsync { src, dst, .. }, StmtPlan::Copy(plan)) => {
                // What fills a stage is waited for when the stage is handed on.
                let waited = self.state.fills_stage();
                self.copy((src, dst), plan, None, waited)?;
            }
            (StmtKind::CopyAsync { src, dst, .. }, StmtPlan::Tma(plan)) => {
                self.tensor_copy(src, dst, plan)?
            }
            (StmtKind::Commit, _) => self.commit_copies(),
            (StmtKind::Wait(groups), _) => {
                let groups = count_of(*groups, stmt.span)?;
                self.wait_group(groups, self.role.sync.waits_for_writes(stmt.id));
            }
            (StmtKind::GemmAsync { c, a, b, meta, .. }, StmtPlan::Wgmma(plan)) => {
                self.product(*c, (a, b), *meta, plan)?;
            }
            (StmtKind::GemmAsync { c, a, b, meta, scales, .. }, StmtPlan::Sums(plan)) => {
                let scales = scales.as_ref().map(|scales| (stmt.id, scales));
                self.sums(*c, (a, b), (*meta, scales), plan, stmt.span)?;
            }
            (StmtKind::Copy { src, dst, .. }, StmtPlan::TensorCopy(plan)) => {
                self.copy_of_sums((src, dst), plan, stmt.span)?;
            }
            (StmtKind::Fill { dst, .. }, _) if self.is_in_tensor_memory(*dst) => {
                return Err(self.fill_without_product(*dst, stmt.span));
            }
            (StmtKind::CommitGemm, _) => self.commit_gemm(stmt.id),
            (StmtKind::WaitGemm(groups), _) => self.wait_gemm(stmt.id, count_of(*groups, stmt.span)?),
            (StmtKind::Gemm { c, a, b, meta, scales, .. }, StmtPlan::Gemm(plan)) => {
                self.gemm(stmt, [*c, *a, *b], (*meta, *scales), plan)?;
            }
            (StmtKind::Cast { dst, src }, _) => self.cast(*dst, *src)?,
            (StmtKind::Fill { dst, value }, _) => self.fill(*dst, *value)?,
            (StmtKind::Elementwise { dst, expr }, StmtPlan::Repeat(parts)) => {
                self.elementwise(*dst, expr, parts)?;
            }
            (StmtKind::Elementwise { dst, expr }, _) => self.elementwise(*dst, expr, &[])?,
            (
                StmtKind::Rearrange { dst, src } | StmtKind::Shape { dst, src, .. },
                StmtPlan::Move(movement),
            ) => self.rearrange(*src, *dst, movement, stmt.span)?,
            (StmtKind::Join { dst, a, b }, StmtPlan::Halves(halves)) => self.join([*a, *b], *dst, halves)?,
            (StmtKind::Split { lo, hi, src }, StmtPlan::Halves(halves)) => {
                self.split(*src, [*lo, *hi], halves)?;
            }
            (StmtKind::Reduce { dst, src, op, .. }, StmtPlan::Reduce(plan)) => {
                self.reduce(*dst, *src, *op, plan, stmt.span)?;
            }
            (StmtKind::Shape { dst, src, .. }, StmtPlan::Pick(plan)) => {
                self.pick(*dst, *src, plan, stmt.span)?;
            }
            (StmtKind::Arg { value, index, src, op, .. }, StmtPlan::Arg(plan)) => {
                self.arg([*value, *index], *src, *op, plan, stmt.span)?;
            }
            (StmtKind::Sort { dst, src, carried, descending, .. }, StmtPlan::Sort(plan)) => {
                self.sort((*dst, *src), *carried, *descending, plan, stmt.span)?;
            }
            (StmtKind::Scan { dst, operands, reverse, .. }, StmtPlan::Scan(plan)) => {
                self.scan(*dst, operands, plan, *reverse, stmt.span)?;
            }
            (StmtKind::Combine { dsts, srcs, by, .. }, StmtPlan::Combine(plan)) => {
                self.combined_reduction((dsts, srcs), by, plan, stmt.span)?;
            }
            (StmtKind::Combine { dsts, srcs, by, form, .. }, StmtPlan::Scan(plan)) => {
                let reverse = *form == CombineForm::Scan { reverse: true };
                self.combined_scan((dsts, srcs), by, plan, reverse, stmt.span)?;
            }
            (StmtKind::Gather { dst, src, index, .. }, StmtPlan::Gather(plan)) => {
                self.gather((*dst, *src, *index), plan, stmt.span)?;
            }
            (StmtKind::ClusterReduce { dst, op }, _) => {
                self.fences(stmt.id);
                self.cluster_reduce(*dst, *op, stmt.span)?;
            }
            (StmtKind::ClusterCombine { dsts, by }, _) => {
                self.fences(stmt.id);
                self.cluster_combine(dsts, by, stmt.span)?;
            }
            (StmtKind::Sync(scope), _) => {
                self.wait_for_copies(None);
                self.fences(stmt.id);
                self.sync_threads(*scope, stmt.id);
            }
            (StmtKind::Arrive(barrier), _) => {
                self.wait_for_copies(None);
                self.fences(stmt.id);
                let (id, threads) = self.barriers.named(*barrier);
                self.b.sync(SyncOp::BarrierArrive { id, threads });
            }
            (StmtKind::SyncGrid { counter }, _) => {
                self.wait_for_copies(None);
                self.fences(stmt.id);
                self.sync_grid(*counter, stmt.span)?;
            }
            (StmtKind::Signal { flag, value, combine }, _) => {
                self.wait_for_copies(None);
                self.fences(stmt.id);
                self.signal(flag, value, *combine, stmt.span)?;
            }
            (StmtKind::Await { flag, least }, _) => {
                self.wait_for_copies(None);
                self.fences(stmt.id);
                self.await_flag(flag, least);
            }
            (StmtKind::Ticket { symbol, flag, count }, _) => {
                self.wait_for_copies(None);
                self.fences(stmt.id);
                self.ticket(*symbol, flag, count, stmt.span)?;
            }
            (StmtKind::WaitDependencies, _) => self.b.sync(SyncOp::DependencyWait),
            (StmtKind::LaunchDependents, _) => self.b.sync(SyncOp::DependentsLaunch),
            (StmtKind::Stage { pipeline, side, body, .. }, _) => {
                self.stage((*pipeline, *side), body, stmt)?
            }
            (StmtKind::Break { condition }, _) => self.leave_loop(condition),
            (StmtKind::Assert { condition, .. }, _) => self.assert(condition)?,
            (StmtKind::Print { items, iteration, .. }, _) => self.print(stmt, items, iteration)?,
            (StmtKind::If { condition, body, .. }, _) => self.branch(condition, body)?,
            (StmtKind::IfAny { condition, body, .. }, _) => self.branch_of_rows(*condition, body)?,
            (StmtKind::For { counter, lo, hi, condition, body }, _) => {
                self.repeat(*counter, (lo, hi, condition.as_ref()), body)?;
            }
            (StmtKind::Tiles { row, col, previous, rows, cols, order, dynamic, body }, _) => {
                let walk = (order, *dynamic);
                self.tiles(stmt, [*row, *col], *previous, (rows, cols), walk, body)?;
            }
            (StmtKind::Drain { previous, body }, _) => self.drain(*previous, body, stmt.span)?,
            (
                StmtKind::Copy { .. }
                | StmtKind::CopyAsync { .. }
                | StmtKind::GemmAsync { .. }
                | StmtKind::Role { .. }
                | StmtKind::InTurn { .. }
                | StmtKind::Gemm { .. }
                | StmtKind::Rearrange { .. }
                | StmtKind::Shape { .. }
                | StmtKind::Join { .. }
                | StmtKind::Split { .. }
                | StmtKind::Reduce { .. }
                | StmtKind::Scan { .. }
                | StmtKind::Combine { .. }
                | StmtKind::Arg { .. }
                | StmtKind::Sort { .. }
                | StmtKind::Gather { .. },
                _,
            ) => return Err(internal(stmt.span, "a statement without a plan")),
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        counter: SymbolId,
        (lo, hi, condition): (&Expr, &Expr, Option<&Expr>),
        body: &[Stmt],
    ) -> Result<(), Diagnostic> {
        let (lo, hi) = (self.expr(lo), self.expr(hi));
        // Copies in flight when the loop begins may be read in it.
        self.wait_for_copies(None);
        self.in_loop([lo, hi, Operand::Imm(1)], |lower, value| {
            lower.symbols.insert(counter, Operand::Value(value));
            if let Some(condition) = condition {
                let ends = lower.condition(&condition.negated());
                if let Some(ends) = scalar::predicate(lower.b, Some(ends)) {
                    lower.b.break_where(ends);
                }
            }
            lower.loops += 1;
            let result = lower.block(body);
            lower.loops -= 1;
            // The next iteration may read what this one has in flight.
            lower.wait_for_copies(None);
            lower.symbols.remove(&counter);
            result
        })
    }

    /// `break if condition`, in the body of a loop.
    fn leave_loop(&mut self, condition: &Expr) {
        let leaves = self.condition(condition);
        // Copies in flight may be read behind the loop.
        self.wait_for_copies(None);
        match leaves {
            Operand::Imm(0) => {}
            Operand::Imm(_) => {
                let thread = Operand::Value(self.b.special(Special::ThreadIndex));
                let always = scalar::condition(self.b, ScalarOp::GeI32, thread, scalar::int(0));
                always.into_iter().for_each(|always| self.b.break_where(always));
            }
            Operand::Value(leaves) => self.b.break_where(leaves),
        }
    }

    /// One side of a branch. What does not depend on it is computed before: where the branch is in a loop, before that.
    fn branch(&mut self, condition: &Expr, body: &[Stmt]) -> Result<(), Diagnostic> {
        let holds = self.condition(condition);
        // Copies in flight are waited for on either way.
        self.wait_for_copies(None);
        let holds = match holds {
            Operand::Imm(0) => return Ok(()),
            Operand::Imm(_) => return self.block(body),
            Operand::Value(holds) => holds,
        };
        self.b.open_branch();
        let result = self.block(body);
        self.wait_for_copies(None);
        self.b.close_branch(holds);
        result
    }

    /// A product. The copies of streamed operands stand in it: each step along K is loaded while the one before multiplies.
    fn gemm(
        &mut self,
        stmt: &Stmt,
        [c, a, b]: [TensorId; 3],
        (meta, scales): (Option<TensorId>, Option<[TensorId; 2]>),
        plan: &GemmPlan,
    ) -> Result<(), Diagnostic> {
        let (ac, aa, ab) = (self.array(c)?, self.array(a)?, self.array(b)?);
        let mut metadata = meta.map(|meta| Metadata::new(self, meta)).transpose()?;
        let mut scales = match scales {
            Some([left, right]) => Some([Metadata::new(self, left)?, Metadata::new(self, right)?]),
            None => None,
        };
        let mut streams = Vec::new();
        for operand in [a, b] {
            if let Some(copy) = self.streams.remove(&operand) {
                streams.push(self.stream(copy)?);
            }
        }
        let step = plan.step();
        for (i, call) in plan.calls.iter().enumerate() {
            if !streams.is_empty() && i % step == 0 {
                for stream in &mut streams {
                    self.begin(stream.copy());
                    self.load_before(stream, i + 2 * step);
                }
                self.begin(stmt);
            }
            let d = elements::places(ac, &call.c, plan.row.c.bits());
            let x = elements::places(aa, &call.a, plan.row.a.bits());
            let y = elements::places(ab, &call.b, plan.row.b.bits());
            match (&mut metadata, &mut scales, &call.scales) {
                (Some(metadata), ..) => {
                    let meta = metadata.register(self.b, &call.meta);
                    self.b.sparse_mma(plan.row, d, x, y, meta);
                }
                (None, Some([left, right]), Some([of_left, of_right])) => {
                    let scales = [left.scales(self.b, of_left), right.scales(self.b, of_right)];
                    self.b.scaled_mma(plan.row, d, [x, y], scales);
                }
                _ => self.b.mma(plan.row, d, x, y),
            }
        }
        Ok(())
    }
}
