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

mod bits;
mod cluster_reduce;
mod collective;
mod copy;
mod elements;
mod elementwise;
mod memory;
mod movement;
mod packed;
mod persistent;
mod pipeline;
mod release;
mod roles;
mod scalar;
mod schedule;
mod smem;
mod tma;
mod wgmma;

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Arch, Memory, SyncOp};
use tilewright_simt::{ArrayId, Build, Builder, Function, FunctionParamKind, Operand, Position, Reg};
use tilewright_synth::block::pipeline::Pipelines;
use tilewright_synth::block::role::RolePlan;
use tilewright_synth::block::smem::PartMemory;
use tilewright_synth::block::{BlockPlan, Part};
use tilewright_synth::{Divisibility, GemmPlan, Multiples, StmtPlan, Synthesis};
use tilewright_tile::core::{Coord, Program, Slot, Stmt, StmtKind, Tensor};
use tilewright_tile::{
    Diagnostic, Expr, Origin, ParamId, ParamKind, StmtId, SymbolId, TensorId, statement_text,
};

/// The largest run-time size and the largest extent of a buffer's mode: coordinates are 32 bits wide, and a tile may
/// reach its own extent past the end.
pub const MAX_EXTENT: i64 = (1 << 31) - (1 << 21);

/// The number of groups that a wait leaves in flight.
fn count_of(groups: i64, span: Origin) -> Result<u32, Diagnostic> {
    u32::try_from(groups).map_err(|_| internal(span, "a wait for an unknown number"))
}

/// A state that synthesis should have ruled out.
fn internal(span: Origin, what: &str) -> Diagnostic {
    Diagnostic::internal(span, format_args!("lowering met {what}"))
}

/// How a launch makes a tensor map: the tensor as the map sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapRecipe {
    /// The parameter that is the tensor's buffer.
    pub param: ParamId,
    /// Extents, dimension 0 (which is contiguous) first, over sizes.
    pub extents: Vec<Expr>,
    /// Strides of the dimensions from 1 on, in elements, over sizes.
    pub strides: Vec<Expr>,
}

/// A lowered program.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// What one thread runs.
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
    /// The values of sizes.
    symbols: BTreeMap<SymbolId, Operand>,
}

struct Lower<'a> {
    verified: &'a Program,
    synthesis: &'a Synthesis,
    divisibility: &'a Divisibility<'a>,
    arch: Arch,
    b: &'a mut Builder,
    /// The tensor maps so far.
    maps: &'a mut tma::Maps,
    /// The fragment of each register tensor.
    arrays: Vec<Option<ArrayId>>,
    /// The offsets of shared tensors, their buffers, by which reports name them, and the scratch buffer.
    memory: &'a PartMemory,
    /// Values of sizes and of the counters in scope: the verifier has seen that no other is used.
    symbols: BTreeMap<SymbolId, Operand>,
    /// The numbers of the stages that statements around have.
    slots: BTreeMap<Slot, Operand>,
    /// Shared tensors that synchronous copies in flight fill.
    pending_copies: BTreeSet<TensorId>,
    /// Whether a statement before has used the scratch buffer.
    scratch_used: bool,
    /// Loops around the statement.
    loops: u32,
    /// The first use of each value in a product.
    first_use: schedule::FirstUse,
    /// The plan of the part.
    role: &'a RolePlan,
    /// The pipelines of the block.
    pipelines: &'a Pipelines,
    /// The state of asynchronous operations.
    state: roles::AsyncState,
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
    let program = whole;
    let mut b = Builder::new(program.name.clone(), arch, whole.threads());
    b.set_cluster(whole.cluster());
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
    smem::buffers(&plan.memory, &mut b);
    let mut maps = tma::Maps::default();
    pipeline::prologue(&mut b, plan);
    let mut bodies = Vec::new();
    let block = Block { whole, plan, arch, multiples, symbols };
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
    roles::roles(&mut b, bodies);
    let recipes = maps.finish(&mut b);
    let mut function = b.finish();
    tilewright_simt::passes::dead_code(&mut function);
    Ok(Lowered { function, maps: recipes })
}

/// Lowers one part into the block that the builder is in.
fn lower_part(
    block: &Block<'_>,
    (index, part): (usize, &Part<'_>),
    maps: &mut tma::Maps,
    b: &mut Builder,
) -> Result<(), Diagnostic> {
    let divisibility = Divisibility::new(part.verified, block.multiples);
    let arrays = fragments(part, b);
    let (role, memory) = (&block.plan.roles[index], &block.plan.memory.parts[index]);
    let state = roles::AsyncState::new(block.whole, part.role, role, b);
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
        first_use: schedule::first_use(part.verified, part.synthesis),
        role,
        pipelines: &block.plan.pipelines,
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

impl Build for Lower<'_> {
    fn builder(&mut self) -> &mut Builder {
        self.b
    }
}

impl Lower<'_> {
    fn array(&self, tensor: TensorId) -> Result<ArrayId, Diagnostic> {
        let span = self.verified.tensor(tensor).span;
        self.arrays[tensor.0 as usize].ok_or_else(|| internal(span, "a tensor that is not in registers"))
    }

    /// Values a thread holds of a register tensor.
    fn count(&self, tensor: TensorId) -> Result<u32, Diagnostic> {
        let span = self.verified.tensor(tensor).span;
        let tv = self.synthesis.register(tensor);
        tv.map(|tv| tv.count() as u32).ok_or_else(|| internal(span, "a register tensor without a layout"))
    }

    fn expr(&mut self, e: &Expr) -> Operand {
        let symbols = &self.symbols;
        scalar::expr(self.b, self.divisibility, &|id| symbols[&id], e)
    }

    /// An entry of an index.
    fn coord(&mut self, coord: &Coord, span: Origin) -> Result<Operand, Diagnostic> {
        match coord {
            Coord::Expr(e) => Ok(self.expr(e)),
            Coord::Slot(slot) => {
                let number = self.slots.get(slot).copied();
                number.ok_or_else(|| internal(span, "a stage outside of its pipeline"))
            }
        }
    }

    /// Waits for the asynchronous copies that do synchronous ones: of one tensor, or of all.
    fn wait_for_copies(&mut self, tensor: Option<TensorId>) {
        if tensor.map_or(!self.pending_copies.is_empty(), |t| self.pending_copies.contains(&t)) {
            self.b.sync(SyncOp::AsyncWaitAll);
            self.pending_copies.clear();
        }
    }

    /// The fences that stand at a statement, behind what is in flight.
    fn fences(&mut self, statement: StmtId) {
        let fences = self.role.sync.fences(statement).to_vec();
        if !fences.is_empty() {
            self.wait_for_copies(None);
        }
        for fence in fences {
            self.b.sync(SyncOp::FenceProxyAsync(fence));
        }
    }

    fn block(&mut self, body: &[Stmt]) -> Result<(), Diagnostic> {
        for (i, stmt) in body.iter().enumerate() {
            if let StmtKind::Fill { dst, value } = &stmt.kind
                && *value == 0.0
                && self.starts_afresh(*dst, &body[i + 1..])
            {
                continue;
            }
            self.statement(stmt)?;
        }
        Ok(())
    }

    fn statement(&mut self, stmt: &Stmt) -> Result<(), Diagnostic> {
        let synthesis = self.synthesis;
        let plan = synthesis.plan(stmt)?;
        let position = match stmt.span {
            Origin::Unknown => None,
            Origin::Text(span) => Some(Position::Text(span.start)),
            Origin::Rust(location) => Some(Position::Rust(location)),
        };
        self.b.set_origin_at(statement_text(self.verified, stmt), position);
        for tensor in stmt.kind.reads().into_iter().chain(stmt.kind.writes()) {
            if let Some(Some(buffer)) = self.memory.buffers.get(tensor.0 as usize) {
                self.b.name_shared(*buffer);
            }
        }
        match (&stmt.kind, plan) {
            (StmtKind::Define(_), _) => Ok(()),
            (StmtKind::Copy { src, dst }, StmtPlan::Copy(plan)) => self.copy(src, dst, plan, true),
            (StmtKind::CopyAsync { src, dst, .. }, StmtPlan::Copy(plan)) => {
                // What fills a stage is waited for when the stage is handed on.
                let waited = self.state.fills_stage();
                self.copy(src, dst, plan, waited)
            }
            (StmtKind::CopyAsync { src, dst, .. }, StmtPlan::Tma(plan)) => self.tensor_copy(src, dst, plan),
            (StmtKind::Commit, _) => {
                self.commit_copies();
                Ok(())
            }
            (StmtKind::Wait(groups), _) => {
                let groups = count_of(*groups, stmt.span)?;
                let writes = self.role.sync.waits_for_writes(stmt.id);
                self.wait_group(groups, writes);
                Ok(())
            }
            (StmtKind::GemmAsync { c, a, b, .. }, StmtPlan::Wgmma(plan)) => self.product(*c, a, b, plan),
            (StmtKind::CommitGemm, _) => {
                self.commit_gemm(stmt.id);
                Ok(())
            }
            (StmtKind::WaitGemm(groups), _) => {
                let groups = count_of(*groups, stmt.span)?;
                self.wait_gemm(stmt.id, groups);
                Ok(())
            }
            (StmtKind::Stage { pipeline, side, body, .. }, _) => self.stage((*pipeline, *side), body, stmt),
            (StmtKind::Tiles { row, col, previous, rows, cols, order, body }, _) => {
                self.tiles([*row, *col], *previous, (rows, cols), order, body)
            }
            (StmtKind::Drain { previous, body }, _) => self.drain(*previous, body, stmt.span),
            (StmtKind::Pipeline(_), _) => Ok(()),
            (StmtKind::WaitDependencies, _) => {
                self.b.sync(SyncOp::DependencyWait);
                Ok(())
            }
            (StmtKind::LaunchDependents, _) => {
                self.b.sync(SyncOp::DependentsLaunch);
                Ok(())
            }
            (StmtKind::ClusterSum { dst }, _) => {
                self.fences(stmt.id);
                self.cluster_sum(*dst, stmt.span)
            }
            (StmtKind::Gemm { c, a, b, .. }, StmtPlan::Gemm(plan)) => self.gemm(*c, *a, *b, plan),
            (StmtKind::Cast { dst, src }, _) => self.cast(*dst, *src),
            (StmtKind::Fill { dst, value }, _) => self.fill(*dst, *value),
            (StmtKind::Elementwise { dst, expr }, _) => self.elementwise(*dst, expr),
            (StmtKind::Sync, _) => {
                self.wait_for_copies(None);
                self.fences(stmt.id);
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
                let bits = self.verified.tensor(*dst).dtype.bits();
                self.movement_of(ends, counts, bits, movement, stmt.span)
            }
            (StmtKind::Join { dst, a, b }, StmtPlan::Halves(halves)) => {
                let (to, sides) = (self.array(*dst)?, [self.array(*a)?, self.array(*b)?]);
                let bits = self.verified.tensor(*dst).dtype.bits();
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
                let bits = self.verified.tensor(*src).dtype.bits();
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
                | StmtKind::GemmAsync { .. }
                | StmtKind::Role { .. }
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
        // Copies in flight when the loop begins may be read in it.
        self.wait_for_copies(None);
        self.in_loop([lo, hi, Operand::Imm(1)], |lower, value| {
            lower.symbols.insert(counter, Operand::Value(value));
            lower.loops += 1;
            let result = lower.block(body);
            lower.loops -= 1;
            // The next iteration may read what this one has in flight.
            lower.wait_for_copies(None);
            lower.symbols.remove(&counter);
            result
        })
    }

    fn gemm(&mut self, c: TensorId, a: TensorId, b: TensorId, plan: &GemmPlan) -> Result<(), Diagnostic> {
        let (ac, aa, ab) = (self.array(c)?, self.array(a)?, self.array(b)?);
        let regs = |array: ArrayId, values: &[u32], bits: u32| -> Vec<Reg> {
            values
                .chunks(tilewright_machine::per_register(bits) as usize)
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
