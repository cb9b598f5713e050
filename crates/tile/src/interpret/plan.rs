//! A program of either form, prepared for one launch: its statements as operations.

mod places;
mod registers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tilewright_machine::{DType, Memory, RedOp};

use super::bound::Accumulation;
use super::error::InterpretError;
use super::executable::{Executable, PipelineRow};
use super::launch::{tensor_shape, tensor_strides};
use super::op::{
    Barrier, Branch, ClusterReduction, Combining, Entered, FlagOf, GridBarrier, How, Metadata, Numbers, Op,
    Order, PartOf, Pipeline, Plan, Printable, Printing, Product, ReduceBy, RolePlan, Side, Step,
    TupleFunction,
};
use super::quote::Quote;
use super::round::round;
use super::shapes::Around;
use crate::arith::{Types, combined};
use crate::barriers::Turns;
use crate::cluster::{Multicast, Peers};
use crate::core::{Slot, TileOrder};
use crate::diagnostic::Origin;
use crate::elementwise::Combination;
use crate::expr::{Expr, SymbolId};
use crate::printer::statement_text;
use crate::program;
use crate::program::{
    AsyncCopyAttrs, Barrier as Row, BarrierId, BarrierKind, CombineForm, Dealer, Fetch, Flag, Form,
    Iteration, Literal, ParamId, PipelineId, PrintItem, StmtKind, SyncScope, TensorId,
};
use crate::rows::Rows;
use crate::statement;

/// A statement of the form of a program.
type Stmt<P> = program::Stmt<<P as Executable>::Form>;
/// A reference of the form of a program.
type TensorRef<P> = program::TensorRef<<P as Executable>::Form>;

impl Plan {
    /// The plan of a launch with these sizes; with the places of statements in the order of the text, the operations of each are marked.
    pub(super) fn new<P: Executable>(
        executable: &P,
        sizes: &BTreeMap<String, i64>,
        numbers: Option<&Numbers>,
    ) -> Result<Plan, InterpretError> {
        let rows = executable.pipelines();
        let (mut products, mut reductions, mut orders, mut waits) = (false, false, false, false);
        let mut launched = false;
        let mut shared: BTreeMap<usize, BTreeSet<Peers>> = BTreeMap::new();
        let cluster_shape = executable.cluster_shape();
        let (mut of_pairs, mut sums) = (BTreeSet::new(), Vec::new());
        executable.visit(&mut |stmt| match &stmt.kind {
            StmtKind::GemmAsync { c, a, b, scales, .. } => {
                products = true;
                let scales = scales.iter().flatten().map(|scale| scale.tensor).collect::<Vec<_>>();
                sums.push((*c, a.tensor, b.tensor, scales));
            }
            StmtKind::ClusterReduce { .. } | StmtKind::ClusterCombine { .. } => reductions = true,
            StmtKind::SyncGrid { .. } | StmtKind::Await { .. } => waits = true,
            StmtKind::Signal { .. } | StmtKind::Ticket { .. } => orders = true,
            StmtKind::Tiles { dynamic: Some(dealer), .. } => {
                orders = true;
                launched |= *dealer == Dealer::Launch;
            }
            StmtKind::Copy { how, .. } if how.fetch.is_some() => orders = true,
            StmtKind::CopyAsync { dst, how: AsyncCopyAttrs { multicast: Some(multicast), .. }, .. } => {
                let pipeline = rows.iter().position(|row| row.tensors.contains(&dst.tensor));
                if multicast.halves() {
                    of_pairs.insert(dst.tensor);
                }
                pipeline.into_iter().for_each(|pipeline| {
                    shared.entry(pipeline).or_default().extend(multicast.alike(&cluster_shape));
                });
            }
            _ => {}
        });
        // The blocks of a pair multiply together, so that their sums are begun and complete together.
        let mut sides: BTreeMap<usize, program::Side> = BTreeMap::new();
        let mut pair_sums = BTreeSet::new();
        for (c, a, b, scales) in sums.into_iter().filter(|(_, _, b, _)| of_pairs.contains(b)) {
            pair_sums.extend([c, executable.part(c).map_or(c, |(whole, _)| whole)]);
            let read = [a, b].into_iter().chain(scales).map(|tensor| (tensor, program::Side::Consume));
            for (tensor, side) in read.chain([(c, program::Side::Produce)]) {
                let Some(pipeline) = rows.iter().position(|row| row.tensors.contains(&tensor)) else {
                    continue;
                };
                shared.entry(pipeline).or_default().insert(Multicast::Pair.peers(&cluster_shape));
                sides.insert(pipeline, side);
            }
        }
        let bodies: Vec<&[Stmt<P>]> = executable.roles().into_iter().map(|(_, body)| body).collect();
        let mut making = Making {
            program: executable,
            sizes,
            products,
            pair_sums,
            numbers,
            number: 0,
            flights: Vec::new(),
            flight_statements: Vec::new(),
            reductions: 0,
            branches: Vec::new(),
            rows: None,
            defined: BTreeSet::new(),
            turns: Turns::of(executable.barriers(), &bodies),
            role: 0,
        };
        let roles = making.roles()?;
        let pipeline = |(i, row): (usize, &PipelineRow<'_>)| {
            let on = |side| -> Vec<usize> {
                let slot = Slot { pipeline: PipelineId(i as u32), side };
                let uses = |role: &(usize, &RolePlan)| uses(&role.1.ops, slot);
                roles.iter().enumerate().filter(uses).map(|(number, _)| number).collect()
            };
            Pipeline {
                name: Quote::new(row.name, row.span),
                stages: row.stages,
                tensors: row.tensors.iter().map(|id| (id.0 as usize, executable.elements(*id))).collect(),
                producer: on(program::Side::Produce).first().copied(),
                consumers: on(program::Side::Consume),
                multicast: shared.get(&i).cloned().unwrap_or_default(),
                pair: sides.get(&i).copied(),
                keeps: row.stages == 1
                    && row.tensors.iter().all(|id| executable.tensor(*id).0 == Memory::Tensor),
            }
        };
        let pipelines = rows.iter().enumerate().map(pipeline).collect();
        let of_turns =
            making.turns.iter().flat_map(|(id, turns)| turns.roles.iter().map(|(_, row)| (row.0, id.0)));
        let mut names: BTreeMap<u32, u32> =
            (0..executable.barriers().len() as u32).map(|id| (id, id)).collect();
        names.extend(of_turns);
        let barrier = |(row, id): (u32, u32)| {
            let Row { name, kind, span } = &executable.barriers()[id as usize];
            let noun = if *kind == BarrierKind::Turns { "the turns" } else { "the named barrier" };
            Barrier {
                name: Quote::new(format!("{noun} `{name}`"), *span),
                roles: (0..roles.len()).filter(|number| comes(&roles[*number].ops, row as usize)).collect(),
            }
        };
        let barriers = names.into_iter().map(barrier).collect();
        let common = shared_by_roles(executable);
        let modes = |i| {
            let param = ParamId(i as u32);
            let extents = tensor_shape(executable, param, sizes)?;
            Ok(extents.into_iter().zip(tensor_strides(executable, param, sizes)?).collect())
        };
        Ok(Plan {
            modes: (0..executable.params().len()).map(modes).collect::<Result<_, InterpretError>>()?,
            tensors: executable.tensors(),
            order: Order::default(),
            printed: None,
            progress: None,
            made: None,
            depends: orders || waits,
            launched,
            grid: waits.then(|| GridBarrier::new(roles.len())),
            names: executable.params().iter().map(|row| Quote::new(&row.name, row.span)).collect(),
            pipelines,
            barriers,
            common,
            cluster: i64::from(executable.cluster()),
            cluster_shape,
            meets: reductions || !shared.is_empty(),
            flights: making.flights,
            flight_statements: making.flight_statements,
            branches: making.branches,
            entered: Entered::None,
            roles,
        })
    }
}

/// True if one of the operations fills, or reads, stages of a pipeline.
fn uses(ops: &[Step], of: Slot) -> bool {
    ops.iter().any(|step| match &step.op {
        Op::Stage { slot, body, .. } => *slot == of || uses(body, of),
        Op::For { body, .. } | Op::If { body, .. } | Op::IfAny { body, .. } | Op::Tiles { body, .. } => {
            uses(body, of)
        }
        _ => false,
    })
}

/// True if one of the operations comes to a named barrier.
fn comes(ops: &[Step], barrier: usize) -> bool {
    ops.iter().any(|step| match &step.op {
        Op::Come { barrier: other, .. } => *other == barrier,
        Op::Stage { body, .. }
        | Op::For { body, .. }
        | Op::If { body, .. }
        | Op::IfAny { body, .. }
        | Op::Tiles { body, .. } => comes(body, barrier),
        _ => false,
    })
}

/// The shared tensors that several roles use outside of stages.
fn shared_by_roles<P: Executable>(program: &P) -> Vec<(usize, usize)> {
    let mut seen: BTreeMap<TensorId, usize> = BTreeMap::new();
    for (_, body) in program.roles() {
        used(body).into_iter().for_each(|id| *seen.entry(id).or_default() += 1);
    }
    let staged: BTreeSet<TensorId> =
        program.pipelines().iter().flat_map(|row| row.tensors.iter().copied()).collect();
    let several = seen.into_iter().filter(|(_, roles)| *roles > 1).map(|(id, _)| id);
    let common = several.filter(|id| program.tensor(*id).0 == Memory::Shared && !staged.contains(id));
    common.map(|id| (id.0 as usize, program.elements(id))).collect()
}

/// The tensors that statements read or write, with those in their bodies.
fn used<F: Form>(body: &[program::Stmt<F>]) -> BTreeSet<TensorId> {
    let mut tensors = BTreeSet::new();
    statement::visit(body, 0, &mut |stmt, _| tensors.extend(operands(&stmt.kind)));
    tensors
}

/// A plan under way.
struct Making<'a, P> {
    program: &'a P,
    sizes: &'a BTreeMap<String, i64>,
    /// True if there are asynchronous products.
    products: bool,
    /// The sums that the blocks of a pair multiply into together.
    pair_sums: BTreeSet<TensorId>,
    /// The places of statements in the order of the text, for the masks, and that of the statement at hand.
    numbers: Option<&'a Numbers>,
    number: usize,
    flights: Vec<Quote>,
    flight_statements: Vec<usize>,
    /// The number of reductions over clusters so far.
    reductions: usize,
    /// The `if any` so far.
    branches: Vec<Branch>,
    /// The rows of the `if any` around, and the tensors that are there outside of it.
    rows: Option<(Rows, BTreeSet<TensorId>)>,
    /// The tensors that are defined so far, and not in iterations of unrolled loops that are over.
    defined: BTreeSet<TensorId>,
    /// The turns that roles take.
    turns: BTreeMap<BarrierId, Turns>,
    /// The number of the role at hand.
    role: usize,
}

impl<P: Executable> Making<'_, P> {
    /// The operations of each role, after the definitions that stand beside the roles as far as it uses them.
    fn roles(&mut self) -> Result<Vec<RolePlan>, InterpretError> {
        let program = self.program;
        let staged: BTreeSet<TensorId> =
            program.pipelines().iter().flat_map(|row| row.tensors.iter().copied()).collect();
        let common: BTreeSet<usize> = shared_by_roles(program).into_iter().map(|(id, _)| id).collect();
        let mut roles = Vec::new();
        for (name, inner) in program.roles() {
            let (tensors, mut ops) = (used(inner), Vec::new());
            for stmt in program.body() {
                let elsewhere = |id: &TensorId| staged.contains(id) || common.contains(&(id.0 as usize));
                let needs = |id| tensors.contains(id) && !elsewhere(id);
                if matches!(&stmt.kind, StmtKind::Define(id) if needs(id)) {
                    self.statement(stmt, false, &mut ops)?;
                }
            }
            self.role = roles.len();
            ops.extend(self.of_turns(Turns::begins, false));
            ops.extend(self.block(inner, false)?);
            ops.extend(self.of_turns(Turns::ends, true));
            roles.push(RolePlan { name: Some(name.to_string()), ops });
        }
        if roles.is_empty() {
            roles.push(RolePlan { name: None, ops: self.block(program.body(), false)? });
        }
        Ok(roles)
    }

    /// Operations of the role at hand at the barriers of turns, when it begins or ends.
    fn of_turns(&self, which: fn(&Turns, usize) -> Option<BarrierId>, waits: bool) -> Vec<Step> {
        let op = |(id, turns): (&BarrierId, &Turns)| {
            let span = self.program.barriers().get(id.0 as usize).map_or(Origin::Unknown, |row| row.span);
            let text = Quote::new(format!("in_turn {}", self.program.names().barrier(*id)), span);
            let barrier = which(turns, self.role)?.0 as usize;
            Some(Step::part_of(None, span, Op::Come { barrier, waits, text }))
        };
        self.turns.iter().filter_map(op).collect()
    }

    fn block(&mut self, body: &[Stmt<P>], filling: bool) -> Result<Vec<Step>, InterpretError> {
        let mut ops = Vec::new();
        for stmt in body {
            self.statement(stmt, filling, &mut ops)?;
        }
        Ok(ops)
    }

    /// One statement; `filling` in a `produce`, where asynchronous copies are complete before it ends.
    fn statement(
        &mut self,
        stmt: &Stmt<P>,
        filling: bool,
        ops: &mut Vec<Step>,
    ) -> Result<(), InterpretError> {
        let step = |op| Step::part_of(Some(stmt.id), stmt.span, op);
        if let Some(number) = self.numbers.and_then(|numbers| numbers.get(stmt.id)) {
            self.number = *number;
            ops.push(step(Op::Mark(*number)));
        }
        self.defined.extend(stmt.kind.assigned());
        let Some(op) = self.operation(stmt, filling, ops)? else { return Ok(()) };
        let op = self.of_rows(stmt, op);
        ops.extend(self.landed(stmt).map(step));
        let parts = operands(&stmt.kind).into_iter().filter_map(|id| self.part(id));
        let parts: Arc<[PartOf]> = parts.collect();
        if parts.is_empty() {
            ops.push(self.whole(stmt, op));
        } else {
            let text = self.text(stmt);
            ops.push(step(Op::TakeParts { parts: parts.clone(), text: text.clone() }));
            ops.push(self.whole(stmt, op));
            ops.push(step(Op::PutParts { parts, text }));
        }
        Ok(())
    }

    /// The operation of a statement, with the tensors that it reads and writes.
    fn whole(&self, stmt: &Stmt<P>, op: Op) -> Step {
        let numbers = |ids: Vec<TensorId>| ids.into_iter().map(|id| id.0 as usize).collect();
        Step {
            reads: numbers(stmt.kind.reads()),
            writes: numbers(stmt.kind.writes()),
            copies: stmt.kind.copied().is_some() || stmt.kind.fetch().is_some(),
            ..Step::part_of(Some(stmt.id), stmt.span, op)
        }
    }

    /// The operation of a statement: within an `if any`, on the rows that enter it. A tensor that is defined in there has no others.
    fn of_rows(&self, stmt: &Stmt<P>, op: Op) -> Op {
        let Some((rows, outside)) = &self.rows else { return op };
        let base = |id: TensorId| self.program.part(id).map_or(id, |(of, _)| of);
        // What is a stage is there outside.
        let staged = |id: TensorId| self.program.tensor(id).0 == Memory::Tensor;
        let written = stmt.kind.writes().into_iter().filter(|id| outside.contains(&base(*id)) || staged(*id));
        let rows_of = |id: TensorId| {
            let shape = self.program.shape(id);
            if staged(id) { rows.of_parts(&shape) } else { rows.of(&shape) }
        };
        let dst: Vec<_> = written.filter_map(|id| Some((id.0 as usize, rows_of(id)?))).collect();
        if dst.is_empty() { op } else { Op::OfRows { dst, op: Box::new(op) } }
    }

    /// `if any(condition, axis) { body }`.
    fn if_any(
        &mut self,
        stmt: &Stmt<P>,
        (condition, axis): (TensorId, u32),
        body: &[Stmt<P>],
    ) -> Result<Op, InterpretError> {
        let shape = self.program.shape(condition);
        let rows = Rows::new(shape.clone(), axis);
        let of = rows.as_ref().and_then(|rows| rows.of(&shape)).unwrap_or_default();
        let count = rows.as_ref().map_or(0, |rows| rows.count() as usize);
        let number = self.branches.len();
        self.branches.push(Branch { text: self.text(stmt) });
        let outside = self.defined.clone();
        self.rows = rows.map(|rows| (rows, outside));
        let body = self.block(body, false);
        self.rows = None;
        Ok(Op::IfAny { number, condition: condition.0 as usize, rows: of, count, body: body? })
    }

    /// The operation of a statement, if it has one of its own; what comes before it is appended to `ops`.
    fn operation(
        &mut self,
        stmt: &Stmt<P>,
        filling: bool,
        ops: &mut Vec<Step>,
    ) -> Result<Option<Op>, InterpretError> {
        let step = |op| Step::part_of(Some(stmt.id), stmt.span, op);
        Ok(Some(match &stmt.kind {
            StmtKind::Copy { src, dst, .. } => self.copy(stmt, src, dst)?,
            StmtKind::CopyAsync { src, dst, how } if filling => {
                if let (Some(multicast), Side::Global(access)) = (how.multicast, self.side(src)?) {
                    ops.push(step(Op::Alike { access, multicast, text: self.text(stmt) }));
                }
                self.copy(stmt, src, dst)?
            }
            StmtKind::CopyAsync { src, dst, how } => Op::CopyAsync {
                src: self.side(src)?,
                dst: self.side(dst)?,
                how: self.how(how.outside, how.add.then_some(RedOp::Add), dst.tensor),
                flight: self.flight(stmt),
            },
            StmtKind::Commit => Op::Commit,
            StmtKind::Wait(groups) => Op::Wait(P::Form::int(groups)),
            StmtKind::Gemm { c, a, b, meta, scales, .. } => {
                let (left, right) = (self.program.shape(*a), self.program.shape(*b));
                let shape = [left[0], right[0], right[1]].map(|n| n as usize);
                let how = Accumulation {
                    factors: [*a, *b].map(|id| self.dtype(id)),
                    sums: self.dtype(*c),
                    scaled: scales.is_some(),
                };
                let sparse = meta.map(|meta| self.metadata(stmt, meta));
                let scales = scales.map(|scales| scales.map(|scale| scale.0 as usize));
                let [c, a, b] = [c, a, b].map(|id| id.0 as usize);
                Op::Gemm { c, a, b, sparse, scales, shape, how }
            }
            StmtKind::GemmAsync { c, a, b, meta, scales, .. } => {
                self.product(stmt, *c, (a, b), (*meta, scales.as_ref()))?
            }
            StmtKind::Combine { dsts, srcs, by, axis, form } => {
                self.combining(stmt, (dsts, srcs), by, (*axis, *form))?
            }
            StmtKind::CommitGemm => Op::CommitGemm,
            StmtKind::WaitGemm(groups) => Op::WaitGemm(P::Form::int(groups)),
            StmtKind::ClusterReduce { dst, op } => {
                self.reductions += 1;
                let by = ReduceBy::Op(*op, self.dtype(*dst));
                self.cluster_reduction(stmt, &[*dst], by)
            }
            StmtKind::ClusterCombine { dsts, by } => {
                self.reductions += 1;
                let function = self.function(stmt, dsts, by)?;
                self.cluster_reduction(stmt, dsts, ReduceBy::Function(function))
            }
            StmtKind::Sync(SyncScope::Barrier(id)) => self.coming(stmt, *id, true),
            StmtKind::Arrive(id) => self.coming(stmt, *id, false),
            StmtKind::InTurn { turns, body } => {
                let turns = self.turns.get(turns).cloned();
                let come = |which: fn(&Turns, usize) -> Option<BarrierId>, role: usize| {
                    turns.as_ref().and_then(|turns| which(turns, role))
                };
                let [waits, passes] = [come(Turns::waits, self.role), come(Turns::passes, self.role)];
                ops.extend(waits.map(|barrier| step(self.coming(stmt, barrier, true))));
                body.iter().try_for_each(|stmt| self.statement(stmt, filling, ops))?;
                ops.extend(passes.map(|barrier| step(self.coming(stmt, barrier, false))));
                return Ok(None);
            }
            StmtKind::SyncGrid { counter } => {
                Op::SyncGrid { counter: counter.0 as usize, text: self.text(stmt) }
            }
            StmtKind::Signal { flag, value, combine } => {
                Op::Signal { flag: self.flag(stmt, flag), value: value.clone(), combine: *combine }
            }
            StmtKind::Await { flag, least } => {
                Op::Await { flag: self.flag(stmt, flag), least: least.clone() }
            }
            StmtKind::Ticket { symbol, flag, count } => {
                Op::Ticket { symbol: symbol.0 as usize, flag: self.flag(stmt, flag), count: count.clone() }
            }
            StmtKind::For { counter, lo, hi, condition, body } => {
                self.iterations(*counter, (lo, hi, condition), body, filling)?
            }
            StmtKind::If { condition, body, .. } => {
                Op::If { condition: condition.clone(), body: self.block(body, filling)? }
            }
            StmtKind::IfAny { condition, axis, body } => self.if_any(stmt, (*condition, *axis), body)?,
            StmtKind::Break { condition } => Op::Break { condition: condition.clone() },
            StmtKind::Assert { condition, text } => {
                Op::Assert { condition: condition.clone(), text: Quote::new(text, stmt.span) }
            }
            StmtKind::Print { items, iteration, .. } => self.print(stmt, items, iteration)?,
            StmtKind::Tiles { row, col, previous, rows, cols, order, dynamic, body } => Op::Tiles {
                row: row.0 as usize,
                col: col.0 as usize,
                previous: previous.map(|previous| previous.map(|counter| counter.0 as usize)),
                rows: rows.clone(),
                cols: cols.clone(),
                order: order_of(order),
                dynamic: *dynamic,
                body: self.block(body, filling)?,
            },
            StmtKind::Drain { body, .. } => {
                body.iter().try_for_each(|stmt| self.statement(stmt, filling, ops))?;
                return Ok(None);
            }
            StmtKind::Stage { pipeline, side, body } => {
                let slot = Slot { pipeline: *pipeline, side: *side };
                let filling = filling || *side == program::Side::Produce;
                Op::Stage { slot, body: self.block(body, filling)?, span: stmt.span }
            }
            _ => {
                let mut op = self.of_registers(stmt)?;
                if let (Some(Op::Fill { pair, .. }), StmtKind::Fill { dst, .. }) = (&mut op, &stmt.kind)
                    && self.pair_sums.contains(dst)
                {
                    *pair = Some(self.flight(stmt));
                }
                return Ok(op);
            }
        }))
    }

    /// `print(text, items)`.
    fn print(
        &self,
        stmt: &Stmt<P>,
        items: &[PrintItem<P::Form>],
        iteration: &Option<Iteration>,
    ) -> Result<Op, InterpretError> {
        let item = |item: &PrintItem<P::Form>| match item {
            PrintItem::Integer(value) => Printable::Integer(value.clone()),
            PrintItem::Tensor { of, extents } => {
                let shape = self.program.tile(of).shape;
                let extents = extents.clone().unwrap_or_else(|| shape.clone());
                Printable::Tensor { tile: self.referenced(of), dtype: self.dtype(of.tensor), shape, extents }
            }
        };
        let iteration = iteration.iter().flatten().map(|(_, value)| value.clone()).collect();
        let items = items.iter().map(item).collect();
        Ok(Op::Print(Box::new(Printing { statement: stmt.id, items, iteration, text: self.text(stmt) })))
    }

    /// A reduction over the blocks of a cluster, the latest by number.
    fn cluster_reduction(&self, stmt: &Stmt<P>, dsts: &[TensorId], by: ReduceBy) -> Op {
        let reduction = ClusterReduction { by, text: self.text(stmt) };
        Op::ClusterReduce { dsts: places(dsts), number: self.reductions, reduction }
    }

    /// The function that puts tuples of tensors together.
    fn function(
        &self,
        stmt: &Stmt<P>,
        srcs: &[TensorId],
        by: &Combination,
    ) -> Result<TupleFunction, InterpretError> {
        let dtypes: Vec<DType> = srcs.iter().map(|src| self.dtype(*src)).collect();
        let trees = combined(by, &dtypes, &ElementTypes(self.program))
            .map_err(|_| InterpretError::TypeClash { statement: self.text(stmt) })?;
        Ok(TupleFunction { trees, dtypes, text: self.text(stmt) })
    }

    /// A role comes to a named barrier.
    fn coming(&self, stmt: &Stmt<P>, barrier: BarrierId, waits: bool) -> Op {
        Op::Come { barrier: barrier.0 as usize, waits, text: self.text(stmt) }
    }

    fn flag(&self, stmt: &Stmt<P>, flag: &Flag) -> FlagOf {
        FlagOf { param: flag.param.0 as usize, index: flag.index.clone(), text: self.text(stmt) }
    }

    /// Tuples that a function of the program puts together.
    fn combining(
        &self,
        stmt: &Stmt<P>,
        (dsts, srcs): (&[TensorId], &[TensorId]),
        by: &Combination,
        (axis, form): (u32, CombineForm),
    ) -> Result<Op, InterpretError> {
        Ok(Op::Combine(Box::new(Combining {
            dsts: places(dsts),
            srcs: places(srcs),
            function: self.function(stmt, srcs, by)?,
            around: Around::new(&self.program.shape(srcs[0]), axis),
            form,
        })))
    }

    /// The statement as messages quote it: as the author wrote it, where that is known.
    fn text(&self, stmt: &Stmt<P>) -> Quote {
        let program = self.program.written().filter(|_| stmt.kind.body().is_empty());
        let written = program.and_then(|program| program.sources.quote(stmt.span.text()?));
        let text = written.unwrap_or_else(|| statement_text(self.program.names(), stmt));
        Quote::new(text, stmt.span)
    }

    fn dtype(&self, id: TensorId) -> DType {
        self.program.tensor(id).1
    }

    fn copy(&self, stmt: &Stmt<P>, src: &TensorRef<P>, dst: &TensorRef<P>) -> Result<Op, InterpretError> {
        let len = self.program.tile(src).shape.iter().product::<i64>() as usize;
        let outside = if let StmtKind::Copy { how, .. } = &stmt.kind { how.outside } else { None };
        if let Some(Fetch { op, old, compare }) = stmt.kind.fetch() {
            return Ok(Op::Fetch {
                src: src.tensor.0 as usize,
                dst: self.side(dst)?,
                old: old.0 as usize,
                compare: compare.map(|compare| compare.0 as usize),
                op,
                dtype: self.dtype(dst.tensor),
                text: self.text(stmt),
            });
        }
        let how = self.how(outside, stmt.kind.combines(), dst.tensor);
        Ok(Op::Copy { src: self.side(src)?, dst: self.side(dst)?, len, how, text: self.text(stmt) })
    }

    /// The attributes of a copy to a tensor.
    fn how(&self, outside: Option<Literal>, combine: Option<RedOp>, dst: TensorId) -> How {
        let dtype = self.dtype(dst);
        let outside = round(dtype, outside.map_or(0.0, |value| value.value()));
        How { outside, combine: combine.map(|op| (op, dtype)) }
    }

    /// The metadata of a product's left factor.
    fn metadata(&self, stmt: &Stmt<P>, meta: TensorId) -> Box<Metadata> {
        let name = self.program.names().tensor(meta).to_string();
        Box::new(Metadata { tensor: meta.0 as usize, name, text: self.text(stmt) })
    }

    /// An asynchronous product.
    fn product(
        &mut self,
        stmt: &Stmt<P>,
        c: TensorId,
        (a, b): (&TensorRef<P>, &TensorRef<P>),
        (meta, scales): (Option<TensorId>, Option<&[TensorRef<P>; 2]>),
    ) -> Result<Op, InterpretError> {
        let (left, right) = (self.program.tile(a), self.program.tile(b));
        let mut reads = vec![self.factor(a), self.factor(b)];
        reads.extend(meta.map(|meta| self.place(meta)));
        reads.extend(scales.into_iter().flatten().map(|scale| self.factor(scale)));
        let blocks = scales.map_or(0, |[scale, _]| self.program.tile(scale).shape[1] as usize);
        let scales = match scales {
            Some([left, right]) => Some([self.side(left)?, self.side(right)?]),
            None => None,
        };
        Ok(Op::GemmAsync(Box::new(Product {
            c: c.0 as usize,
            place: self.place(c),
            a: self.side(a)?,
            b: self.side(b)?,
            reads,
            sparse: meta.map(|meta| self.metadata(stmt, meta)),
            shape: [left.shape[0], right.shape[0], right.shape[1]].map(|n| n as usize),
            how: Accumulation {
                factors: [left.dtype, right.dtype],
                sums: self.dtype(c),
                scaled: scales.is_some(),
            },
            scales,
            blocks,
            flies: self.program.tensor(c).0 != Memory::Tensor,
            pair: self.pair_sums.contains(&c),
            flight: self.flight(stmt),
        })))
    }

    /// A loop.
    fn iterations(
        &mut self,
        counter: SymbolId,
        (lo, hi, condition): (&Expr, &Expr, &Option<Expr>),
        body: &[Stmt<P>],
        filling: bool,
    ) -> Result<Op, InterpretError> {
        let unrolled = self.program.names().is_unrolled(counter);
        let before = self.defined.clone();
        let body = self.block(body, filling)?;
        let unrolled = unrolled.then(|| {
            let defined = std::mem::replace(&mut self.defined, before);
            defined.difference(&self.defined).map(|id| id.0 as usize).collect()
        });
        let (lo, hi, condition) = (lo.clone(), hi.clone(), condition.clone());
        Ok(Op::For { counter: counter.0 as usize, lo, hi, condition, unrolled, body })
    }

    /// The number of an asynchronous copy or product.
    fn flight(&mut self, stmt: &Stmt<P>) -> usize {
        self.flights.push(self.text(stmt));
        self.flight_statements.push(self.number);
        self.flights.len() - 1
    }

    /// Asks that the register tensors of a statement be in no product in flight, but for a product's own accumulator.
    fn landed(&self, stmt: &Stmt<P>) -> Option<Op> {
        if !self.products {
            return None;
        }
        let registers = |ids: Vec<TensorId>| {
            let ids = ids.into_iter().filter(|id| {
                let sums = matches!(&stmt.kind, StmtKind::GemmAsync { c, .. } if c == id);
                !sums && self.program.tensor(*id).0 == Memory::Register
            });
            ids.map(|id| self.place(id)).collect::<Vec<_>>()
        };
        let (reads, writes) = (registers(stmt.kind.reads()), registers(stmt.kind.writes()));
        let text = || self.text(stmt);
        (!reads.is_empty() || !writes.is_empty()).then(|| Op::Landed { reads, writes, text: text() })
    }
}

/// The numbers of tensors.
fn places(ids: &[TensorId]) -> Vec<usize> {
    ids.iter().map(|id| id.0 as usize).collect()
}

/// The tensors that a statement reads or writes, each once.
fn operands<F: Form>(kind: &StmtKind<F>) -> Vec<TensorId> {
    let mut all = kind.reads();
    all.extend(kind.writes());
    all.sort_unstable();
    all.dedup();
    all
}

/// The order of tiles with its numbers. The verifier knows that they have values.
fn order_of<F: Form>(order: &program::TileOrder<F>) -> TileOrder {
    match order {
        program::TileOrder::Grouped { rows, serpentine } => {
            TileOrder::Grouped { rows: F::value(rows).unwrap_or(1), serpentine: *serpentine }
        }
        program::TileOrder::Hilbert { order } => TileOrder::Hilbert { order: F::value(order).unwrap_or(1) },
        program::TileOrder::Listed { table } => TileOrder::Listed { table: *table },
    }
}

/// The element types of a program, for its expressions.
struct ElementTypes<'a, P>(&'a P);

impl<P: Executable> Types for ElementTypes<'_, P> {
    fn tensor(&self, id: TensorId) -> DType {
        self.0.tensor(id).1
    }

    fn scalar(&self, id: ParamId) -> DType {
        self.0.params()[id.0 as usize].dtype
    }
}
