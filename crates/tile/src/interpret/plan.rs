//! A program prepared for one launch: every reference becomes a table of offsets, so that running a block only adds and
//! indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tilewright_machine::{DType, Memory};

use super::bound::Accumulation;
use super::coverage::Coverage;
use super::shapes::{self, Around};
use super::{InterpretError, round, tensor_shape, tensor_strides};
use crate::arith::{Rounded, rounded};
use crate::diagnostic::Origin;
use crate::expr::{Expr, SymbolId};
use crate::printer::statement_text;
use crate::program::{
    self, BinaryOp, ParamId, PipelineId, ReduceOp, ShapeOp, Stmt, StmtKind, SymbolKind, TensorId, TensorKind,
    TensorRef, TileOrder, UnaryOp,
};
use crate::verified::Verified;

/// A program prepared for one launch.
pub(super) struct Plan {
    pub(super) tensors: usize,
    /// The asynchronous copies and products, as messages name them.
    pub(super) flights: Vec<String>,
    /// The statement of each of them, by its number in the masks; empty without masks.
    pub(super) flight_statements: Vec<usize>,
    pub(super) pipelines: Vec<Pipeline>,
    /// Blocks of a cluster.
    pub(super) cluster: i64,
    /// Extent and stride of each parameter of one mode, whose elements may be integers of the kernel; (0, 0) of others.
    pub(super) lists: Vec<(i64, i64)>,
    /// True if the blocks of a cluster depend on each other, by sums or by stages that each fills for all.
    pub(super) meets: bool,
    /// The roles in the order of the text; of a program without roles one that does everything.
    pub(super) roles: Vec<RolePlan>,
}

/// The operations of a role.
pub(super) struct RolePlan {
    /// Its name, if the program has roles.
    pub(super) name: Option<String>,
    pub(super) ops: Vec<Op>,
}

/// A pipeline.
pub(super) struct Pipeline {
    pub(super) name: String,
    pub(super) stages: i64,
    /// The tensors of a stage, and the number of elements of each.
    pub(super) tensors: Vec<(usize, usize)>,
    /// The role that fills it.
    pub(super) producer: Option<usize>,
    /// The roles that read it.
    pub(super) consumers: Vec<usize>,
    /// True if each block of a cluster fills its stages for all.
    pub(super) multicast: bool,
}

impl Pipeline {
    /// The place of a role among the consuming roles.
    pub(super) fn reader(&self, role: usize) -> Option<usize> {
        self.consumers.iter().position(|consumer| *consumer == role)
    }

    /// True if the tensor is part of a stage.
    pub(super) fn has(&self, tensor: usize) -> bool {
        self.tensors.iter().any(|(part, _)| *part == tensor)
    }
}

/// One statement.
pub(super) enum Op {
    /// The next operations are part of the statement of this number, for the masks.
    Mark(usize),
    /// The tensor begins, with so many elements.
    Define { tensor: usize, len: usize },
    /// `dst = src`, element by element in the order of the tile's linear coordinate.
    Copy { src: Side, dst: Side, len: usize, text: String },
    /// The same, the destination at the wait; `add` to what is there, rounded to this type. The number is that of the copy in
    /// [`Plan::flights`].
    CopyAsync { src: Side, dst: Side, add: Option<DType>, flight: usize },
    /// The asynchronous copies since the last are a group.
    Commit,
    /// All groups but so many are complete.
    Wait(Expr),
    /// The parts of register tensors that the next operation has for operands are taken out.
    TakeParts { parts: Arc<[PartOf]>, text: String },
    /// They are put back.
    PutParts { parts: Arc<[PartOf]>, text: String },
    /// An error where the blocks of the cluster do not all mean the same tile.
    Alike { access: Box<Access>, text: String },
    /// An error where a tile that is read, or written, is in flight.
    Landed { reads: Vec<Tile>, writes: Vec<Tile>, text: String },
    /// `c += a · bᵀ`.
    Gemm { c: usize, a: usize, b: usize, shape: [usize; 3], how: Accumulation },
    /// The same, after which `place`, where `c` lies, is not touched, and its factors are not written, until the wait. The factors lose
    /// the low bits of `f32` that the tensor cores do not have.
    GemmAsync(Box<Product>),
    /// The asynchronous products since the last are a group.
    CommitGemm,
    /// All groups of products but so many are complete.
    WaitGemm(Expr),
    /// The tensor becomes the sum over the cluster's blocks; the number tells one such statement from another.
    ClusterSum { dst: usize, number: usize, text: String, span: Origin },
    /// One stage of a pipeline.
    Stage { pipeline: usize, produce: bool, slot: Option<usize>, body: Vec<Op>, span: Origin },
    /// A loop over tiles.
    /// `after`: the counters that are the row and the column of the previous iteration, and of the last one after the loop.
    Tiles {
        row: usize,
        col: usize,
        previous: Option<[usize; 2]>,
        rows: Expr,
        cols: Expr,
        order: TileOrder,
        body: Vec<Op>,
    },
    /// `dst = src`, rounded to the type if there is one; perhaps to `f32` first.
    Convert { dst: usize, src: usize, dtype: Option<DType>, through_f32: bool },
    /// Every element becomes the value.
    Fill { dst: usize, len: usize, value: f64 },
    /// `dst = expression`.
    Elementwise { dst: usize, len: usize, code: Code, dtype: DType },
    /// `dst = src` element by element; `None` for their own order.
    Pick { dst: usize, src: usize, order: Option<Vec<u32>> },
    /// `dst = src` from a coordinate of a mode on; `order` counts from there.
    Slice { dst: usize, src: usize, order: Vec<u32>, start: Expr, most: i64, stride: i64, text: String },
    /// `dst = a`, then `b`.
    Join { dst: usize, a: usize, b: usize },
    /// `lo = src`'s first half, `hi =` its second.
    Split { lo: usize, hi: usize, src: usize },
    /// `dst = src` put together along a mode.
    Reduce { dst: usize, src: usize, around: Around, op: ReduceOp, dtype: DType },
    /// `dst = src` at the places that `index` names along a mode.
    Gather { dst: usize, src: usize, around: Around, index: usize, along: Around },
    /// A loop. Of an unrolled one, `unrolled` are the tensors that its body defines: each iteration has some for itself.
    For { counter: usize, lo: Expr, hi: Expr, unrolled: Option<Vec<usize>>, body: Vec<Op> },
}

/// An asynchronous product.
pub(super) struct Product {
    pub(super) c: usize,
    /// The place of `c`, which may be a part of a tensor.
    pub(super) place: Tile,
    pub(super) a: Side,
    pub(super) b: Side,
    /// The places of the operands, of which each may be a part of a tensor.
    pub(super) reads: [Tile; 2],
    pub(super) shape: [usize; 3],
    pub(super) how: Accumulation,
    /// The factors are `f32`, of which the upper 19 bits count.
    pub(super) tf32: bool,
    pub(super) flight: usize,
}

/// A part of a register tensor.
pub(super) struct PartOf {
    /// The tensor in which the statement finds it.
    pub(super) part: usize,
    pub(super) tile: Tile,
}

/// A tile of a tensor of the block.
pub(super) struct Tile {
    pub(super) tensor: usize,
    /// The name in messages.
    pub(super) name: String,
    /// The offset of each element; `None` for the whole tensor in its own order.
    pub(super) order: Option<Vec<u32>>,
    /// The modes that are fixed.
    pub(super) fixed: Vec<Fixed>,
}

/// A mode that an index fixes.
pub(super) struct Fixed {
    pub(super) mode: usize,
    pub(super) index: Expr,
    pub(super) extent: i64,
    pub(super) stride: i64,
}

/// One side of a copy.
pub(super) enum Side {
    /// A tile of the block.
    Tile(Tile),
    /// A tile of a buffer.
    Global(Box<Access>),
}

/// A tile of a buffer.
pub(super) struct Access {
    pub(super) param: usize,
    /// The name in messages.
    pub(super) name: String,
    /// The coordinate of the first element.
    pub(super) base: Vec<Expr>,
    /// The buffer's shape, as far as the view reaches.
    pub(super) shape: Vec<Expr>,
    /// The buffer's strides.
    pub(super) strides: Vec<i64>,
    /// The distance that the tile reaches from its first element along each mode of the buffer; `None` if that overflows.
    pub(super) reach: Option<Vec<i64>>,
    /// For each element its offset from the first: right where the tile lies within the buffer.
    pub(super) offsets: Vec<i64>,
    /// For each leaf of the tile (extent, buffer mode, scale), leftmost fastest.
    pub(super) leaves: Vec<(i64, usize, i64)>,
}

/// An elementwise expression: [`Rounded`], with the places of tensors and parameters.
pub(super) enum Code {
    Tensor(usize),
    Number(f32),
    Scalar(usize),
    Int(Expr),
    Unary(UnaryOp, Box<Code>),
    Binary(BinaryOp, Box<Code>, Box<Code>),
    Fma(Box<[Code; 3]>),
}

impl Plan {
    pub(super) fn new(
        v: &Verified,
        sizes: &BTreeMap<String, i64>,
        coverage: Option<&Coverage<'_>>,
    ) -> Result<Plan, InterpretError> {
        let program = v.program();
        let (mut products, mut sums) = (false, false);
        let mut shared = BTreeSet::new();
        let of = |tensor| program.pipelines.iter().position(|row| row.tensors.contains(&tensor));
        v.visit(&mut |stmt, _| match &stmt.kind {
            StmtKind::GemmAsync { .. } => products = true,
            StmtKind::ClusterSum { .. } => sums = true,
            StmtKind::CopyAsync { dst, how, .. } if how.multicast => {
                shared.extend(of(dst.tensor).map(|i| PipelineId(i as u32)));
            }
            _ => {}
        });
        let mut making = Making {
            v,
            sizes,
            products,
            coverage,
            number: 0,
            flights: Vec::new(),
            flight_statements: Vec::new(),
            sums: 0,
            defined: BTreeSet::new(),
        };
        let roles = making.roles()?;
        let len = |id: &TensorId| v.shape(*id).iter().product::<i64>() as usize;
        let pipelines = program.pipelines.iter().enumerate().map(|(i, row)| {
            let on = |produce| -> Vec<usize> {
                let uses = |role: &(usize, &RolePlan)| uses(&role.1.ops, i, produce);
                roles.iter().enumerate().filter(uses).map(|(number, _)| number).collect()
            };
            Pipeline {
                name: row.name.clone(),
                stages: row.stages.as_int().unwrap_or(1),
                tensors: row.tensors.iter().map(|id| (id.0 as usize, len(id))).collect(),
                producer: on(true).first().copied(),
                consumers: on(false),
                multicast: shared.contains(&PipelineId(i as u32)),
            }
        });
        let pipelines = pipelines.collect();
        let list = |param| match (&*tensor_shape(v, param, sizes)?, &*tensor_strides(v, param, sizes)?) {
            ([extent], [stride]) => Ok((*extent, *stride)),
            _ => Ok((0, 0)),
        };
        let lists = (0..program.params.len()).map(|i| list(ParamId(i as u32)));
        Ok(Plan {
            lists: lists.collect::<Result<_, InterpretError>>()?,
            tensors: program.tensors.len(),
            pipelines,
            cluster: i64::from(v.cluster()),
            meets: sums || !shared.is_empty(),
            flights: making.flights,
            flight_statements: making.flight_statements,
            roles,
        })
    }
}

/// True if one of the operations fills, or reads, stages of the pipeline.
fn uses(ops: &[Op], of: usize, fills: bool) -> bool {
    ops.iter().any(|op| match op {
        Op::Stage { pipeline, produce, body, .. } => {
            *pipeline == of && *produce == fills || uses(body, of, fills)
        }
        Op::For { body, .. } | Op::Tiles { body, .. } => uses(body, of, fills),
        _ => false,
    })
}

/// The tensors that a statement reads or writes, with those in it.
fn used(stmt: &Stmt) -> BTreeSet<TensorId> {
    let mut tensors: BTreeSet<TensorId> = operands(&stmt.kind).into_iter().collect();
    stmt.kind.body().iter().for_each(|stmt| tensors.extend(used(stmt)));
    tensors
}

/// A plan under way.
struct Making<'a> {
    v: &'a Verified,
    sizes: &'a BTreeMap<String, i64>,
    /// True if there are asynchronous products.
    products: bool,
    /// The masks, and the statement at hand by its number in them.
    coverage: Option<&'a Coverage<'a>>,
    number: usize,
    flights: Vec<String>,
    flight_statements: Vec<usize>,
    /// The number of sums over clusters so far.
    sums: usize,
    /// The tensors that are defined so far, and not in iterations of unrolled loops that are over.
    defined: BTreeSet<TensorId>,
}

impl Making<'_> {
    /// The operations of each role, after the definitions that stand beside the roles as far as it uses them.
    fn roles(&mut self) -> Result<Vec<RolePlan>, InterpretError> {
        let body = &self.v.program().body;
        let staged: BTreeSet<TensorId> =
            self.v.program().pipelines.iter().flat_map(|row| row.tensors.iter().copied()).collect();
        let mut roles = Vec::new();
        for role in body {
            let StmtKind::Role { name, body: inner, .. } = &role.kind else { continue };
            let (tensors, mut ops) = (used(role), Vec::new());
            for stmt in body {
                let needs = |id| tensors.contains(id) && !staged.contains(id);
                if matches!(&stmt.kind, StmtKind::Define(id) if needs(id)) {
                    self.statement(stmt, false, &mut ops)?;
                }
            }
            ops.extend(self.block(inner, false)?);
            roles.push(RolePlan { name: Some(name.clone()), ops });
        }
        if roles.is_empty() {
            roles.push(RolePlan { name: None, ops: self.block(body, false)? });
        }
        Ok(roles)
    }

    fn block(&mut self, body: &[Stmt], filling: bool) -> Result<Vec<Op>, InterpretError> {
        let mut ops = Vec::new();
        for stmt in body {
            self.statement(stmt, filling, &mut ops)?;
        }
        Ok(ops)
    }

    /// One statement; `filling` in a `produce`, where asynchronous copies are complete before it ends.
    fn statement(&mut self, stmt: &Stmt, filling: bool, ops: &mut Vec<Op>) -> Result<(), InterpretError> {
        let (v, sizes) = (self.v, self.sizes);
        if let Some(number) = self.coverage.and_then(|coverage| coverage.number(stmt)) {
            self.number = number;
            ops.push(Op::Mark(number));
        }
        let text = || statement_text(v.program(), stmt);
        let len = |id: crate::TensorId| v.shape(id).iter().product::<i64>() as usize;
        let dtype = |id: crate::TensorId| v.program().tensor(id).dtype;
        self.defined.extend(stmt.kind.assigned());
        let op = match &stmt.kind {
            StmtKind::Define(id) => match v.program().tensor(*id).kind {
                // A view has no elements of its own.
                crate::TensorKind::View { .. } => return Ok(()),
                _ => Op::Define { tensor: id.0 as usize, len: len(*id) },
            },
            StmtKind::Copy { src, dst } => {
                let len = v.tile(src).shape.iter().product::<i64>() as usize;
                Op::Copy { src: side(v, sizes, src)?, dst: side(v, sizes, dst)?, len, text: text() }
            }
            StmtKind::CopyAsync { src, dst, how } if filling => {
                let len = v.tile(src).shape.iter().product::<i64>() as usize;
                if let (true, Side::Global(access)) = (how.multicast, side(v, sizes, src)?) {
                    ops.push(Op::Alike { access, text: text() });
                }
                Op::Copy { src: side(v, sizes, src)?, dst: side(v, sizes, dst)?, len, text: text() }
            }
            StmtKind::CopyAsync { src, dst, how } => Op::CopyAsync {
                src: side(v, sizes, src)?,
                dst: side(v, sizes, dst)?,
                add: how.add.then(|| dtype(dst.tensor)),
                flight: self.flight(text()),
            },
            StmtKind::Commit => Op::Commit,
            StmtKind::Wait(groups) => Op::Wait(groups.clone()),
            StmtKind::Gemm { c, a, b, .. } => {
                let (left, right) = (v.shape(*a), v.shape(*b));
                let shape = [left[0], right[0], left[1]].map(|n| n as usize);
                let how = Accumulation { factors: dtype(*a), sums: dtype(*c) };
                Op::Gemm { c: c.0 as usize, a: a.0 as usize, b: b.0 as usize, shape, how }
            }
            StmtKind::GemmAsync { c, a, b, .. } => {
                let (left, right) = (v.tile(a), v.tile(b));
                Op::GemmAsync(Box::new(Product {
                    c: c.0 as usize,
                    place: self.place(*c),
                    a: side(v, sizes, a)?,
                    b: side(v, sizes, b)?,
                    reads: [self.factor(a), self.factor(b)],
                    shape: [left.shape[0], right.shape[0], left.shape[1]].map(|n| n as usize),
                    how: Accumulation { factors: left.dtype, sums: dtype(*c) },
                    tf32: left.dtype == DType::F32,
                    flight: self.flight(text()),
                }))
            }
            StmtKind::CommitGemm => Op::CommitGemm,
            StmtKind::WaitGemm(groups) => Op::WaitGemm(groups.clone()),
            StmtKind::ClusterSum { dst } => {
                self.sums += 1;
                Op::ClusterSum { dst: dst.0 as usize, number: self.sums, text: text(), span: stmt.span }
            }
            StmtKind::Cast { dst, src } | StmtKind::Rearrange { dst, src } => {
                // A cast to a float goes through `f32`.
                let through_f32 = dtype(*src) == DType::I32 && dtype(*dst).is_float();
                // What is of the type already stays as it is: an infinity of `e5m2` does not saturate.
                let rounded = (dtype(*src) != dtype(*dst)).then(|| dtype(*dst));
                Op::Convert { dst: dst.0 as usize, src: src.0 as usize, dtype: rounded, through_f32 }
            }
            StmtKind::Fill { dst, value } => {
                Op::Fill { dst: dst.0 as usize, len: len(*dst), value: round(dtype(*dst), *value) }
            }
            StmtKind::Elementwise { dst, expr } => Op::Elementwise {
                dst: dst.0 as usize,
                len: len(*dst),
                code: code(&rounded(expr)),
                dtype: dtype(*dst),
            },
            StmtKind::Shape { dst, src, op: op @ ShapeOp::Slice { axis, start, .. } } => {
                let (from, to, mode) = (v.shape(*src), v.shape(*dst), *axis as usize);
                Op::Slice {
                    dst: dst.0 as usize,
                    src: src.0 as usize,
                    order: shapes::order(op, &from, &to).unwrap_or_default(),
                    start: start.clone(),
                    most: from[mode] - to[mode],
                    stride: from[..mode].iter().product(),
                    text: text(),
                }
            }
            StmtKind::Shape { dst, src, op } => Op::Pick {
                dst: dst.0 as usize,
                src: src.0 as usize,
                order: shapes::order(op, &v.shape(*src), &v.shape(*dst)),
            },
            StmtKind::Join { dst, a, b } => {
                Op::Join { dst: dst.0 as usize, a: a.0 as usize, b: b.0 as usize }
            }
            StmtKind::Split { lo, hi, src } => {
                Op::Split { lo: lo.0 as usize, hi: hi.0 as usize, src: src.0 as usize }
            }
            StmtKind::Reduce { dst, src, op, axis } => Op::Reduce {
                dst: dst.0 as usize,
                src: src.0 as usize,
                around: Around::new(&v.shape(*src), *axis),
                op: *op,
                dtype: dtype(*dst),
            },
            StmtKind::Gather { dst, src, index, axis } => Op::Gather {
                dst: dst.0 as usize,
                src: src.0 as usize,
                around: Around::new(&v.shape(*src), *axis),
                index: index.0 as usize,
                along: Around::new(&v.shape(*index), *axis),
            },
            StmtKind::Sync
            | StmtKind::WaitDependencies
            | StmtKind::LaunchDependents
            | StmtKind::Pipeline(_) => return Ok(()),
            StmtKind::For { counter, lo, hi, body } => {
                let unrolled = v.program().symbol(*counter).kind == SymbolKind::Unrolled;
                let SymbolId(counter) = *counter;
                let before = self.defined.clone();
                let body = self.block(body, filling)?;
                let unrolled = unrolled.then(|| {
                    let defined = std::mem::replace(&mut self.defined, before);
                    defined.difference(&self.defined).map(|id| id.0 as usize).collect()
                });
                Op::For { counter: counter as usize, lo: lo.clone(), hi: hi.clone(), unrolled, body }
            }
            StmtKind::Tiles { row, col, previous, rows, cols, order, body } => Op::Tiles {
                row: row.0 as usize,
                col: col.0 as usize,
                previous: previous.map(|previous| previous.map(|counter| counter.0 as usize)),
                rows: rows.clone(),
                cols: cols.clone(),
                order: order.clone(),
                body: self.block(body, filling)?,
            },
            StmtKind::Drain { body, .. } => {
                return body.iter().try_for_each(|stmt| self.statement(stmt, filling, ops));
            }
            // `Plan::new` makes a plan of each.
            StmtKind::Role { .. } => return Ok(()),
            StmtKind::Stage { pipeline, side, slot, body } => {
                let produce = *side == program::Side::Produce;
                Op::Stage {
                    pipeline: pipeline.0 as usize,
                    produce,
                    slot: slot.map(|slot| slot.0 as usize),
                    body: self.block(body, filling || produce)?,
                    span: stmt.span,
                }
            }
        };
        if self.products
            && let Some(landed) = self.landed(&stmt.kind, text)
        {
            ops.push(landed);
        }
        let parts: Vec<PartOf> = operands(&stmt.kind).into_iter().filter_map(|id| part(v, id)).collect();
        if parts.is_empty() {
            ops.push(op);
        } else {
            let parts: Arc<[PartOf]> = parts.into();
            ops.push(Op::TakeParts { parts: parts.clone(), text: text() });
            ops.push(op);
            ops.push(Op::PutParts { parts, text: text() });
        }
        Ok(())
    }

    /// The number of an asynchronous copy or product.
    fn flight(&mut self, text: String) -> usize {
        self.flights.push(text);
        self.flight_statements.push(self.number);
        self.flights.len() - 1
    }

    /// The place of a register tensor, or of a part of one.
    fn place(&self, id: TensorId) -> Tile {
        match &self.v.program().tensor(id).kind {
            TensorKind::Part { of, index, .. } => tile_of(self.v, *of, index, false),
            _ => tile_of(self.v, id, &[], false),
        }
    }

    /// The place of an operand of a product.
    fn factor(&self, r: &TensorRef) -> Tile {
        match self.v.program().tensor(r.tensor).memory() {
            Memory::Register => self.place(r.tensor),
            _ => tile_of(self.v, r.tensor, &r.index, r.transposed),
        }
    }

    /// Asks that the register tensors of a statement be in no product in flight, but for a product's own accumulator.
    fn landed(&self, kind: &StmtKind, text: impl Fn() -> String) -> Option<Op> {
        let registers = |ids: Vec<TensorId>| {
            let ids = ids.into_iter().filter(|id| {
                let own = matches!(kind, StmtKind::GemmAsync { c, .. } if c == id);
                !own && self.v.program().tensor(*id).memory() == Memory::Register
            });
            ids.map(|id| self.place(id)).collect::<Vec<_>>()
        };
        let (reads, writes) = (registers(kind.reads()), registers(kind.writes()));
        (!reads.is_empty() || !writes.is_empty()).then(|| Op::Landed { reads, writes, text: text() })
    }
}

/// The tensors that a statement reads or writes, each once.
fn operands(kind: &StmtKind) -> Vec<TensorId> {
    let mut all = kind.reads();
    all.extend(kind.writes());
    all.sort_unstable();
    all.dedup();
    all
}

/// A part of a register tensor; `None` for a whole tensor.
fn part(v: &Verified, id: TensorId) -> Option<PartOf> {
    let TensorKind::Part { of, index, .. } = &v.program().tensor(id).kind else { return None };
    Some(PartOf { part: id.0 as usize, tile: tile_of(v, *of, index, false) })
}

/// The tile of a tensor of the block at an index.
fn tile_of(v: &Verified, id: TensorId, index: &[Option<Expr>], transposed: bool) -> Tile {
    let (mut kept, mut fixed) = (Vec::new(), Vec::new());
    let mut stride = 1;
    for (mode, extent) in v.shape(id).into_iter().enumerate() {
        match index.get(mode) {
            Some(Some(index)) => fixed.push(Fixed { mode, index: index.clone(), extent, stride }),
            _ => kept.push((extent, stride)),
        }
        stride *= extent;
    }
    // Seen in reverse, the tensor's last mode counts fastest.
    if transposed {
        kept.reverse();
    }
    let order = (transposed || !fixed.is_empty())
        .then(|| table(kept.into_iter()).into_iter().map(|o| o as u32).collect());
    Tile { tensor: id.0 as usize, name: v.program().tensor(id).name.clone(), order, fixed }
}

fn code(tree: &Rounded) -> Code {
    match tree {
        Rounded::Tensor(id) => Code::Tensor(id.0 as usize),
        Rounded::Number(x) => Code::Number(*x),
        Rounded::Scalar(ParamId(id)) => Code::Scalar(*id as usize),
        Rounded::Int(e) => Code::Int(e.clone()),
        Rounded::Unary(op, x) => Code::Unary(*op, Box::new(code(x))),
        Rounded::Binary(op, x, y) => Code::Binary(*op, Box::new(code(x)), Box::new(code(y))),
        Rounded::Fma(operands) => Code::Fma(Box::new(operands.each_ref().map(code))),
    }
}

fn side(v: &Verified, sizes: &BTreeMap<String, i64>, r: &TensorRef) -> Result<Side, InterpretError> {
    let tile = v.tile(r);
    let Some(global) = tile.global else {
        return Ok(Side::Tile(tile_of(v, r.tensor, &r.index, r.transposed)));
    };
    let strides = tensor_strides(v, global.param, sizes)?;
    let leaves: Vec<(i64, usize, i64)> =
        global.modes.iter().flatten().map(|(n, dim, scale)| (*n, *dim as usize, *scale)).collect();
    let mut reach = Some(vec![0i64; strides.len()]);
    for (n, dim, scale) in &leaves {
        reach = reach.and_then(|mut reach| {
            reach[*dim] = reach[*dim].checked_add((n - 1).checked_mul(*scale)?)?;
            Some(reach)
        });
    }
    let offsets = table(leaves.iter().map(|(n, dim, scale)| (*n, scale.wrapping_mul(strides[*dim]))));
    Ok(Side::Global(Box::new(Access {
        param: global.param.0 as usize,
        name: v.program().tensor(r.tensor).name.clone(),
        base: global.base,
        shape: global.shape,
        strides,
        reach,
        offsets,
        leaves,
    })))
}

/// The value of a layout at every index, leftmost mode fastest.
pub(super) fn table(modes: impl Iterator<Item = (i64, i64)>) -> Vec<i64> {
    let mut values = vec![0i64];
    for (extent, stride) in modes {
        let inner = values.len();
        for c in 1..extent {
            for i in 0..inner {
                values.push(values[i].wrapping_add(c.wrapping_mul(stride)));
            }
        }
    }
    values
}
