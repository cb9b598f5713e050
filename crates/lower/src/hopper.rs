//! Hopper's asynchronous units: tensor copies, the matrix products of warpgroups, roles, and walks over tiles. `stages.rs` has the
//! stages of pipelines.
//!
//! # Who does what
//!
//! A tensor copy is started by one thread: the elected one of the role's first warp. A role that does nothing else is that one thread.
//! Fences between threads and asynchronous units: `proxies.rs`.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{
    Descriptor, MbarrierOp, ProxyFence, ScalarOp, ShuffleMode, SyncOp, TensorOp, copy_named,
};
use tilewright_simt::{
    Address, ArrayId, Builder, DescriptorValue, Factor, Inst, Op, Operand, Reg, Special, TensorMap, Value,
};
use tilewright_synth::{Facts, LeftPlan, OperandPlan, ProductPlan, StmtPlan, TensorPlan};
use tilewright_tile::order::{self, Arithmetic};
use tilewright_tile::{
    Diagnostic, Expr, PipelineId, Role, Side, Span, Stmt, StmtKind, SymbolId, TensorId, TensorRef, TileOrder,
    Verified,
};

use crate::held::Held;
use crate::places::{Places, SumPlace};
use crate::scalar::{self, add, int};
use crate::stages::{Position, Rings};
use crate::{Lower, MapRecipe, Part, elements, internal};

/// Calls `visit` for every statement with its plan, and the innermost stage that it is in.
fn walk<'a>(
    body: &'a [Stmt],
    plans: &'a [StmtPlan],
    next: &mut usize,
    stage: Option<(PipelineId, Side)>,
    visit: &mut impl FnMut(&'a Stmt, &'a StmtPlan, Option<(PipelineId, Side)>),
) {
    for stmt in body {
        let plan = plans.get(*next).unwrap_or(&StmtPlan::None);
        *next += 1;
        visit(stmt, plan, stage);
        let inner = match &stmt.kind {
            StmtKind::Stage { pipeline, side, .. } => Some((*pipeline, *side)),
            _ => stage,
        };
        walk(stmt.kind.body(), plans, next, inner, visit);
    }
}

pub(crate) fn walk_part<'a>(
    part: &Part<'a>,
    visit: &mut impl FnMut(&'a Stmt, &'a StmtPlan, Option<(PipelineId, Side)>),
) {
    walk(&part.verified.program().body, &part.synthesis.statements, &mut 0, None, visit);
}

/// The index of the thread's warp in the block, the same in all its lanes as far as the assembler can see.
fn warp_index(b: &mut Builder) -> Operand {
    let thread = Operand::Value(b.special(Special::ThreadIndex));
    let warp = b.scalar(ScalarOp::ShrU32, &[thread, int(5)]);
    b.shuffle(warp, ShuffleMode::Idx, int(0))
}

/// A condition as a value.
pub(crate) fn condition(b: &mut Builder, op: ScalarOp, x: Operand, y: Operand) -> Option<Value> {
    match b.scalar(op, &[x, y]) {
        Operand::Value(value) => Some(value),
        Operand::Imm(_) => None,
    }
}

/// How a part sums over the blocks of a cluster.
#[derive(Clone, Copy)]
pub struct Sum {
    place: SumPlace,
    /// Arrivals that end a phase of its barriers: every warp of the part, in every block.
    arrivals: u32,
    blocks: u32,
}

/// The sums over clusters of each part.
pub fn sums(whole: &Verified, parts: &[Part<'_>], places: &Places) -> Vec<Option<Sum>> {
    let blocks = whole.cluster();
    let one = |(part, place): (&Part<'_>, &Option<SumPlace>)| {
        place.map(|place| Sum { place, arrivals: part.verified.threads() / 32 * blocks, blocks })
    };
    parts.iter().zip(&places.sums).map(one).collect()
}

/// Makes the barriers of pipelines and sums, and has every thread wait until they are there.
pub fn prologue(b: &mut Builder, rings: &Rings, sums: &[Option<Sum>]) {
    if rings.is_empty() && sums.iter().all(Option::is_none) {
        return;
    }
    b.set_origin("the barriers of pipelines");
    let warp = warp_index(b);
    let base = Operand::Value(b.special(Special::SharedBase));
    let elected = b.elect();
    let first = condition(b, ScalarOp::EqI32, warp, int(0));
    let mine = first.map(|first| b.scalar(ScalarOp::AndPred, &[first.into(), elected.into()]));
    if let Some(Operand::Value(mine)) = mine {
        b.open_branch();
        for ring in rings.values() {
            for stage in 0..ring.stages {
                for (at, count) in [(ring.at, ring.full), (ring.at + 8 * ring.stages, ring.empty)] {
                    let address = Address { base, offset: (at + 8 * stage) as i32 };
                    b.mbarrier(MbarrierOp::Init, address, int(i64::from(count)));
                }
            }
        }
        for sum in sums.iter().flatten() {
            for at in [sum.place.barriers, sum.place.barriers + 8] {
                let address = Address { base, offset: at as i32 };
                b.mbarrier(MbarrierOp::Init, address, int(i64::from(sum.arrivals)));
            }
        }
        b.sync(SyncOp::FenceMbarrierInit);
        b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
        b.close_branch(mine);
    }
    let shared = rings.values().any(|ring| ring.blocks > 1) || sums.iter().any(Option::is_some);
    b.sync(if shared { SyncOp::ClusterBarrier } else { SyncOp::Barrier });
}

/// Puts the roles' bodies side by side: each warp does that of its role.
pub fn roles(b: &mut Builder, mut bodies: Vec<(Role<'_>, Vec<Inst>)>) {
    let Some((_, last)) = bodies.pop() else { return };
    b.set_origin("the roles of warpgroups");
    let warp = warp_index(b);
    let conditions: Vec<Option<Value>> = bodies
        .iter()
        .map(|(role, _)| {
            condition(b, ScalarOp::LtI32, warp, int(i64::from((role.first + role.threads) / 32)))
        })
        .collect();
    let mut otherwise = last;
    while let (Some((_, then)), Some(condition)) =
        (bodies.pop(), conditions.get(bodies.len()).copied().flatten())
    {
        b.open_branch();
        b.if_else(condition, then, otherwise);
        otherwise = b.close_side();
    }
    b.append(otherwise);
}

/// The tensor maps of a function, each once.
#[derive(Default)]
pub struct Maps {
    all: Vec<(TensorMap, MapRecipe)>,
}

impl Maps {
    fn index(&mut self, map: TensorMap, recipe: MapRecipe) -> u32 {
        let known = self.all.iter().position(|(m, r)| *r == recipe && m.shape == map.shape);
        known.unwrap_or_else(|| {
            self.all.push((map, recipe));
            self.all.len() - 1
        }) as u32
    }

    /// Adds the maps to the function, as its last parameters.
    pub fn finish(self, b: &mut Builder) -> Vec<MapRecipe> {
        let mut recipes = Vec::new();
        for (map, recipe) in self.all {
            b.add_tensor_map(map);
            recipes.push(recipe);
        }
        recipes
    }
}

/// What a part needs for asynchronous units.
pub struct Units<'a> {
    pub(crate) rings: &'a Rings,
    /// The tensor maps so far.
    pub maps: Maps,
    /// Which stages products in flight hold back.
    pub(crate) held: Held,
    pub(crate) positions: BTreeMap<(PipelineId, bool), Position>,
    /// The stage that is being filled or read.
    pub(crate) stage: Option<(PipelineId, Side, Operand)>,
    /// The part's first warp in the block, and its warp's index.
    pub(crate) warps: (u32, Operand),
    /// Whether this lane is the elected one of its warp.
    pub(crate) elected: Option<Value>,
    /// Whether this thread starts tensor copies; `None` where only one thread is here.
    pub(crate) starts: Option<Value>,
    /// Whether the part has tensor copies out of shared memory, and asynchronous copies of threads outside stages.
    stores: bool,
    pub(crate) copies: bool,
    /// For each accumulator that a fill starts afresh, a register: 0 while nothing has been added.
    begun: BTreeMap<TensorId, Reg>,
    /// Accumulators whose next product is the first.
    fresh: BTreeSet<TensorId>,
    /// Whether the part does nothing but start tensor copies: one thread does it.
    alone: bool,
    /// How the part sums over the blocks of a cluster, and the parities of the two barriers.
    sum: Option<(Sum, [Reg; 2])>,
    /// The registers of counters that are the row and the column of the round before's tile.
    after: BTreeMap<SymbolId, Reg>,
}

impl<'a> Units<'a> {
    /// Begins a part: its registers, its thread's index, which of its threads start copies.
    pub fn new(
        whole: &Verified,
        part: &Part<'_>,
        (rings, sum): (&'a Rings, Option<Sum>),
        maps: Maps,
        facts: &Facts<'_>,
        b: &mut Builder,
    ) -> Self {
        let (mut stores, mut copies, mut products, mut plain) = (false, false, false, false);
        let mut sides = BTreeSet::new();
        let mut tensors = false;
        walk_part(part, &mut |stmt, plan, stage| match (&stmt.kind, plan) {
            (StmtKind::CopyAsync { .. }, StmtPlan::Tensor(plan)) => {
                tensors = true;
                if plan.row.op != TensorOp::Load {
                    (stores, plain) = (true, true);
                }
            }
            (StmtKind::CopyAsync { .. }, _) => {
                plain = true;
                copies |= !matches!(stage, Some((_, Side::Produce)));
            }
            (StmtKind::GemmAsync { .. }, _) => (products, plain) = (true, true),
            (StmtKind::Stage { pipeline, side, .. }, _) => {
                plain |= *side == Side::Consume;
                sides.insert((*pipeline, *side == Side::Produce));
            }
            (
                StmtKind::For { .. }
                | StmtKind::Tiles { .. }
                | StmtKind::Finally { .. }
                | StmtKind::Define(_)
                | StmtKind::Pipeline(_)
                | StmtKind::WaitDependencies
                | StmtKind::LaunchDependents,
                _,
            ) => {}
            _ => plain = true,
        });
        let first = part.role.map_or(0, |role| role.first / 32);
        let mut units = Units {
            rings,
            maps,
            held: Held::new(part.verified.program(), facts),
            positions: BTreeMap::new(),
            stage: None,
            warps: (first, int(0)),
            elected: None,
            starts: None,
            stores,
            copies,
            begun: BTreeMap::new(),
            fresh: BTreeSet::new(),
            alone: false,
            sum: None,
            after: BTreeMap::new(),
        };
        if let Some(role) = part.role {
            b.set_origin(format!("warpgroup {}", role.name));
            let own = whole.roles().iter().map(|r| r.registers).collect::<Option<Vec<u32>>>();
            let limits = tilewright_machine::Arch::Sm90a.limits();
            let entry = limits.registers_of_a_thread(whole.threads());
            if let (Some(registers), Some(_)) = (role.registers, own)
                && registers != entry
            {
                b.sync(SyncOp::SetMaxRegisters { more: registers > entry, registers });
            }
        }
        let asynchronous = tensors || !sides.is_empty() || products;
        if asynchronous {
            let warp = warp_index(b);
            units.warps.1 = warp;
            let elected = b.elect();
            units.elected = Some(elected);
            units.starts = condition(b, ScalarOp::EqI32, warp, int(i64::from(first)))
                .map(|mine| b.scalar(ScalarOp::AndPred, &[mine.into(), elected.into()]))
                .and_then(|both| if let Operand::Value(value) = both { Some(value) } else { None });
        }
        if let Some(role) = part.role {
            let thread = b.special(Special::ThreadIndex);
            let own = b.scalar(ScalarOp::SubI32, &[thread.into(), int(i64::from(role.first))]);
            let index = whole.roles().iter().position(|r| r.first == role.first).unwrap_or(0) as u32;
            let barrier = SyncOp::NamedBarrier { id: index + 1, threads: role.threads };
            if let Operand::Value(own) = own {
                b.set_team(Some((own, barrier)));
            }
        }
        for (id, produces) in sides {
            let name = &whole.program().pipeline(id).name;
            let side = if produces { "produced" } else { "consumed" };
            let (kept, ages) = (units.held.kept(id), units.held.ages());
            let position = Position::new(b, format!("{name}.{side}"), produces, kept, ages);
            units.positions.insert((id, produces), position);
        }
        units.sum = sum.map(|sum| {
            let array = b.add_array("sum.parities", 2);
            let parities = [0, 1].map(|index| Reg { array, index });
            // Nothing is there to be read at first, and everything has been read.
            b.write(parities[0], int(0));
            b.write(parities[1], int(1));
            (sum, parities)
        });
        units.alone = !plain && tensors && part.role.is_some();
        units
    }

    /// Whether what is copied fills a stage.
    pub fn fills_stage(&self) -> bool {
        matches!(self.stage, Some((_, Side::Produce, _)))
    }

    /// Closes a group of copies.
    pub fn commit(&self, b: &mut Builder) {
        if self.copies || !self.stores {
            b.sync(SyncOp::AsyncCommit);
        }
        if self.stores {
            b.sync(SyncOp::BulkCommit);
        }
    }

    /// Waits for groups of copies; of tensor copies to global memory for their `writes` too.
    pub fn wait(&self, b: &mut Builder, groups: u32, writes: bool) {
        if self.copies || !self.stores {
            b.sync(SyncOp::AsyncWaitGroup(groups));
        }
        if self.stores {
            b.sync(if writes { SyncOp::BulkWait(groups) } else { SyncOp::BulkWaitRead(groups) });
        }
    }
}

/// Emits code for integer arithmetic without signs.
struct Emit<'a>(&'a mut Builder);

impl Arithmetic for Emit<'_> {
    type Value = Operand;

    fn constant(&mut self, value: i64) -> Operand {
        int(value)
    }
    fn add(&mut self, a: Operand, b: Operand) -> Operand {
        add(self.0, a, b)
    }
    fn sub(&mut self, a: Operand, b: Operand) -> Operand {
        self.0.scalar(ScalarOp::SubI32, &[a, b])
    }
    fn mul(&mut self, a: Operand, b: Operand) -> Operand {
        match b {
            Operand::Imm(factor) => scalar::scale(self.0, a, factor as i64),
            Operand::Value(_) => self.0.scalar(ScalarOp::MulI32, &[a, b]),
        }
    }
    fn div(&mut self, a: Operand, b: Operand) -> Operand {
        match b {
            Operand::Imm(divisor) => scalar::divide(self.0, a, divisor as i64),
            Operand::Value(_) => self.0.scalar(ScalarOp::DivI32, &[a, b]),
        }
    }
    fn rem(&mut self, a: Operand, b: Operand) -> Operand {
        match b {
            Operand::Imm(divisor) => scalar::remainder(self.0, a, divisor as i64),
            Operand::Value(_) => self.0.scalar(ScalarOp::RemI32, &[a, b]),
        }
    }
    fn min(&mut self, a: Operand, b: Operand) -> Operand {
        self.0.scalar(ScalarOp::MinI32, &[a, b])
    }
}

impl Lower<'_> {
    /// The whole of a part.
    pub(crate) fn part(&mut self, body: &[Stmt]) -> Result<(), Diagnostic> {
        if self.units.alone {
            return self.alone(|lower| lower.block(body));
        }
        self.block(body)?;
        if self.units.stores {
            // Shared memory must outlive the copies that read it.
            self.b.sync(SyncOp::BulkWaitRead(0));
        }
        let shared = self.units.rings.values().any(|ring| ring.blocks > 1);
        if shared || self.units.sum.is_some() {
            // A block must not end while its peers may still reach its memory.
            self.b.sync(SyncOp::ClusterBarrier);
        }
        Ok(())
    }

    /// Does something with the one thread that starts tensor copies.
    fn alone(&mut self, body: impl FnOnce(&mut Self) -> Result<(), Diagnostic>) -> Result<(), Diagnostic> {
        let Some(starts) = self.units.starts.take() else { return body(self) };
        self.b.open_branch();
        let floor = self.b.floor_here();
        let result = body(self);
        self.b.set_floor(floor);
        self.b.close_branch(starts);
        self.units.starts = Some(starts);
        result
    }

    pub(crate) fn shared_base(&mut self) -> Operand {
        Operand::Value(self.b.special(Special::SharedBase))
    }

    /// Does something where a condition holds, if there is one.
    pub(crate) fn guarded(&mut self, condition: Option<Value>, body: impl FnOnce(&mut Self)) {
        match condition {
            None => body(self),
            Some(condition) => {
                self.b.open_branch();
                let floor = self.b.floor_here();
                body(self);
                self.b.set_floor(floor);
                self.b.close_branch(condition);
            }
        }
    }

    /// Where a tensor begins in the block's window: a constant, and what is not known, in units of 16 bytes if `coarse`, else bytes.
    fn begins(
        &mut self,
        reference: &TensorRef,
        coarse: bool,
        span: Span,
    ) -> Result<(i64, Option<Operand>), Diagnostic> {
        let tile = self.verified.tile(reference);
        let (layout, _) = self
            .synthesis
            .shared(reference.tensor)
            .ok_or_else(|| internal(span, "a shared tensor without a layout"))?;
        let bytes = i64::from(tile.dtype.bits() / 8);
        let unit = if coarse { 16 } else { 1 };
        let mut constant = i64::from(self.shared[reference.tensor.0 as usize]);
        let mut dynamic: Option<Operand> = None;
        for (mode, index) in &tile.fixed {
            let mode = layout.layout.mode(*mode).map_err(|_| internal(span, "a mode that is not there"))?;
            if let Some(index) = index.as_int() {
                constant += mode.eval(index) * bytes;
                continue;
            }
            let scaled: Vec<(i64, i64)> =
                mode.leaves().into_iter().map(|(e, s)| (e, s * bytes / unit)).collect();
            let scaled = tilewright_layout::Layout::from_leaves(&scaled)
                .map_err(|_| internal(span, "a stage that is too far away"))?;
            let index = self.expr(index);
            let term = scalar::layout(&mut self.b, &scaled, index);
            dynamic = Some(match dynamic {
                Some(sum) => add(&mut self.b, sum, term),
                None => term,
            });
        }
        Ok((constant, dynamic))
    }

    /// A copy by the tensor memory accelerator.
    pub(crate) fn tensor_copy(
        &mut self,
        src: &TensorRef,
        dst: &TensorRef,
        plan: &TensorPlan,
    ) -> Result<(), Diagnostic> {
        let loads = plan.row.op == TensorOp::Load;
        let (view, shared) = if loads { (src, dst) } else { (dst, src) };
        let tile = self.verified.tile(view);
        let span = view.span;
        let global = tile.global.ok_or_else(|| internal(span, "a tensor copy without a view"))?;
        let param = self.verified.program().param(global.param);
        let dims: Vec<usize> = plan.dims.iter().map(|d| *d as usize).collect();
        let recipe = MapRecipe {
            param: global.param,
            extents: dims.iter().map(|d| global.shape[*d].clone()).collect(),
            strides: dims[1..].iter().map(|d| global.strides[*d].clone()).collect(),
        };
        let map = TensorMap { name: param.name.clone(), shape: plan.shape.clone() };
        let map = self.units.maps.index(map, recipe);
        let rank = plan.share.map(|_| Operand::Value(self.b.special(Special::ClusterRank)));
        let mut base: Vec<Operand> = Vec::new();
        for (k, dim) in dims.iter().enumerate() {
            let mut at = self.expr(&global.base[*dim]);
            if let (Some(share), Some(rank)) = (plan.share.filter(|s| s.dim == k), rank) {
                let own = scalar::scale(&mut self.b, rank, share.step);
                at = add(&mut self.b, at, own);
            }
            base.push(at);
        }
        let (constant, dynamic) = self.begins(shared, false, span)?;
        let mut at = self.shared_base();
        if let Some(dynamic) = dynamic {
            at = add(&mut self.b, at, dynamic);
        }
        if let (Some(share), Some(rank)) = (plan.share, rank) {
            let own = scalar::scale(&mut self.b, rank, share.bytes);
            at = add(&mut self.b, at, own);
        }
        let barrier = match self.units.stage {
            Some((id, Side::Produce, slot)) if loads => {
                let ring = self.units.rings.get(&id).cloned();
                let ring = ring.ok_or_else(|| internal(span, "a pipeline without barriers"))?;
                Some(self.barrier(&ring, false, slot))
            }
            _ if loads => return Err(internal(span, "a tensor copy that fills no stage")),
            _ => None,
        };
        let multicast = plan.share.map(|share| int((1 << share.blocks) - 1));
        let mut copies = Vec::new();
        for call in &plan.calls {
            let mut coords = Vec::new();
            for (at, more) in base.iter().zip(&call.coords) {
                coords.push(add(&mut self.b, *at, int(*more)));
            }
            let shared = Address { base: at, offset: (constant + call.shared) as i32 };
            copies.push(Op::Tensor {
                row: plan.row,
                map,
                coords,
                shared,
                barrier,
                multicast,
                hint: plan.hint,
            });
        }
        let starts = self.units.starts;
        self.guarded(starts, |lower| copies.into_iter().for_each(|copy| lower.b.bulk(copy)));
        Ok(())
    }

    /// The lower half of an operand's descriptor, for the part of this warpgroup.
    fn descriptor(
        &mut self,
        reference: &TensorRef,
        operand: &OperandPlan,
        (along, count): (i64, i64),
        span: Span,
    ) -> Result<DescriptorValue, Diagnostic> {
        let (constant, dynamic) = self.begins(reference, true, span)?;
        let base = self.shared_base();
        let start = add(&mut self.b, base, int(constant));
        let window = self.b.scalar(ScalarOp::AndB32, &[start, int(0x3ffff)]);
        let units = self.b.scalar(ScalarOp::ShrU32, &[window, int(4)]);
        let bits = Descriptor { start: 0, ..operand.descriptor }.encode();
        let mut low = self.b.scalar(ScalarOp::OrB32, &[units, Operand::Imm(bits & 0xffff_ffff)]);
        if operand.warpgroup != 0 && count > 1 {
            let (first, warp) = self.units.warps;
            let own = add(&mut self.b, warp, int(-i64::from(first)));
            let group = self.b.scalar(ScalarOp::ShrU32, &[own, int(2)]);
            let over = scalar::divide(&mut self.b, group, along);
            let index = scalar::remainder(&mut self.b, over, count);
            let part = scalar::scale(&mut self.b, index, operand.warpgroup / 16);
            low = add(&mut self.b, low, part);
        }
        if let Some(dynamic) = dynamic {
            low = add(&mut self.b, low, dynamic);
        }
        Ok(DescriptorValue { low, high: (bits >> 32) as u32 })
    }

    /// `gemm.async(c, a, b)`.
    pub(crate) fn product(
        &mut self,
        c: TensorId,
        a: &TensorRef,
        b: &TensorRef,
        plan: &ProductPlan,
    ) -> Result<(), Diagnostic> {
        let span = self.verified.program().tensor(c).span;
        let accumulator = self.array(c)?;
        let regs = |array: ArrayId, values: &[u32], bits: u32| -> Vec<Reg> {
            values
                .chunks((32 / bits) as usize)
                .map(|chunk| elements::place(array, chunk[0], bits).0)
                .collect()
        };
        let [gm, gn] = plan.warpgroups;
        let right = self.descriptor(b, &plan.b, (gm, gn), span)?;
        let left = match &plan.a {
            LeftPlan::Shared(operand) => Some((self.descriptor(a, operand, (1, gm), span)?, operand.major)),
            LeftPlan::Registers => None,
        };
        let left_array = if left.is_none() { Some(self.array(a.tensor)?) } else { None };
        // The first product after a fill does not read what the accumulator holds.
        let begun = self.units.begun.get(&c).copied();
        let first = if self.units.fresh.remove(&c) {
            Operand::Imm(0)
        } else if let Some(begun) = begun {
            let added = self.b.read(begun);
            self.b.scalar(ScalarOp::NeI32, &[added, int(0)])
        } else {
            Operand::Imm(1)
        };
        self.b.sync(SyncOp::WgmmaFence);
        let at = |lower: &mut Self, low: DescriptorValue, bytes: i64| {
            let sum = add(&mut lower.b, low.low, int(bytes / 16));
            DescriptorValue { low: sum, ..low }
        };
        for call in &plan.calls {
            let d = regs(accumulator, &call.c, plan.row.c.bits());
            let x = match (left, left_array) {
                (Some((descriptor, major)), _) => {
                    Factor::Shared { descriptor: at(self, descriptor, call.a_at), major }
                }
                (None, Some(array)) => Factor::Registers(regs(array, &call.a, plan.row.a.bits())),
                (None, None) => return Err(internal(span, "a product without its left factor")),
            };
            let y = Factor::Shared { descriptor: at(self, right, call.b_at), major: plan.b.major };
            let accumulate = if call.first { first } else { Operand::Imm(1) };
            self.b.wgmma(plan.row, d, x, y, accumulate);
        }
        if let Some(begun) = begun {
            self.b.write(begun, int(1));
        }
        Ok(())
    }

    /// `cluster_sum(c)`: every block shows its part in its shared memory, a few registers of each thread at a time, and every thread
    /// adds what the same thread of each block shows, in the order of ranks.
    pub(crate) fn cluster_sum(&mut self, tensor: TensorId, span: Span) -> Result<(), Diagnostic> {
        let Some((sum, [full, free])) = self.units.sum else {
            return Err(internal(span, "a sum without a place"));
        };
        let (array, count) = (self.array(tensor)?, self.count(tensor)?);
        let wide = |row: &str| copy_named(row).ok_or_else(|| internal(span, "a row that is not there"));
        let (widths, names) = if count % 4 == 0 {
            (4, ["st.shared.v4.b32", "ld.shared::cluster.v4.b32"])
        } else {
            (1, ["st.shared.b32", "ld.shared::cluster.b32"])
        };
        let (store, load) = (wide(names[0])?, wide(names[1])?);
        let threads = self.verified.threads();
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let base = self.shared_base();
        let own = scalar::scale(&mut self.b, thread, i64::from(4 * widths));
        let buffer = add(&mut self.b, base, int(i64::from(sum.place.buffer)));
        let mine = add(&mut self.b, buffer, own);
        let lane = self.b.scalar(ScalarOp::AndB32, &[thread, int(31)]);
        let barriers = add(&mut self.b, base, int(i64::from(sum.place.barriers)));
        let there = self.b.scalar(ScalarOp::Mapa, &[barriers, lane]);
        let tells = condition(&mut self.b, ScalarOp::LtI32, lane, int(i64::from(sum.blocks)));
        let peers: Vec<Operand> = (0..sum.blocks)
            .map(|rank| self.b.scalar(ScalarOp::Mapa, &[mine, int(i64::from(rank))]))
            .collect();
        let parts = self.b.add_array("sum.parts", widths * sum.blocks);
        let some = |array: ArrayId, first: u32| -> Vec<Reg> {
            (first..first + widths).map(|index| Reg { array, index }).collect()
        };
        let tell = |lower: &mut Self, offset: i32| {
            lower.b.sync(SyncOp::WarpBarrier);
            lower.guarded(tells, |lower| {
                lower.b.mbarrier(MbarrierOp::ArriveCluster, Address { base: there, offset }, int(0));
            });
        };
        let groups: Vec<u32> = (0..count / widths).map(|g| widths * g).collect();
        for chunk in groups.chunks((sum.place.registers / widths) as usize) {
            let offset = |i: usize| (i as u32 * 4 * widths * threads) as i32;
            self.wait_flip(barriers, 8, free);
            for (i, first) in chunk.iter().enumerate() {
                self.b.store(store, some(array, *first), Address { base: mine, offset: offset(i) }, None);
            }
            tell(self, 0);
            self.wait_flip(barriers, 0, full);
            for (i, first) in chunk.iter().enumerate() {
                for (rank, peer) in peers.iter().enumerate() {
                    let regs = some(parts, widths * rank as u32);
                    self.b.load(load, regs, Address { base: *peer, offset: offset(i) }, None);
                }
                for k in 0..widths {
                    let mut total = self.b.read(Reg { array: parts, index: k });
                    for rank in 1..sum.blocks {
                        let next = self.b.read(Reg { array: parts, index: widths * rank + k });
                        total = self.b.scalar(ScalarOp::AddF32, &[total, next]);
                    }
                    self.b.write(Reg { array, index: first + k }, total);
                }
            }
            tell(self, 8);
        }
        Ok(())
    }

    /// Waits for the phase of a barrier, across the cluster, whose parity a register holds, and flips it.
    fn wait_flip(&mut self, base: Operand, offset: i32, parity: Reg) {
        let now = self.b.read(parity);
        self.b.mbarrier(MbarrierOp::WaitCluster, Address { base, offset }, now);
        let next = self.b.scalar(ScalarOp::XorB32, &[now, int(1)]);
        self.b.write(parity, next);
    }

    /// Whether a fill with zero can be left out because the next thing that happens to the tensor is a product that need not read it.
    /// If so, the product is told.
    pub(crate) fn starts_afresh(&mut self, tensor: TensorId, rest: &[Stmt]) -> bool {
        let Some(looped) = self.next_is_product(tensor, rest) else { return false };
        if !looped {
            self.units.fresh.insert(tensor);
            return true;
        }
        let begun = match self.units.begun.get(&tensor) {
            Some(begun) => *begun,
            None => {
                let name = format!("{}.begun", self.verified.program().tensor(tensor).name);
                let begun = Reg { array: self.b.add_array(name, 1), index: 0 };
                self.units.begun.insert(tensor, begun);
                begun
            }
        };
        self.b.write(begun, int(0));
        true
    }

    /// Whether the next statement that touches a tensor is sure to be a product that adds to it, and if so, whether it is in a loop.
    fn next_is_product(&self, tensor: TensorId, rest: &[Stmt]) -> Option<bool> {
        fn touches(stmt: &Stmt, tensor: TensorId) -> bool {
            stmt.kind.reads().contains(&tensor)
                || stmt.kind.writes().contains(&tensor)
                || stmt.kind.body().iter().any(|s| touches(s, tensor))
        }
        let stmt = rest.iter().find(|s| touches(s, tensor))?;
        match &stmt.kind {
            StmtKind::GemmAsync { c, a, .. } if *c == tensor && a.tensor != tensor => Some(false),
            StmtKind::For { lo, hi, body, .. } if self.facts.has_round(lo, hi) => {
                self.next_is_product(tensor, body).map(|_| true)
            }
            StmtKind::Stage { body, .. } => self.next_is_product(tensor, body),
            _ => None,
        }
    }

    /// `for (row, col) after (i, j) in tiles(rows, cols, order)`.
    pub(crate) fn tiles(
        &mut self,
        counters: [SymbolId; 2],
        after: Option<[SymbolId; 2]>,
        (rows, cols): (&Expr, &Expr),
        order: &TileOrder,
        body: &[Stmt],
    ) -> Result<(), Diagnostic> {
        let cluster = i64::from(self.verified.cluster());
        let (rows, cols) = (self.expr(rows), self.expr(cols));
        let all = self.b.scalar(ScalarOp::MulI32, &[rows, cols]);
        let block = Operand::Value(self.b.special(Special::BlockIndex(0)));
        let first = scalar::divide(&mut self.b, block, cluster);
        let grid = self.verified.program().grid.first().cloned().unwrap_or(Expr::Int(1));
        let blocks = self.expr(&grid);
        let step = scalar::divide(&mut self.b, blocks, cluster);
        self.settle(None);
        let mut regs = Vec::new();
        if let Some(after) = after {
            let array = self.b.add_array("tile.before", 2);
            regs = vec![Reg { array, index: 0 }, Reg { array, index: 1 }];
            self.units.after.extend(after.into_iter().zip(regs.iter().copied()));
            // Before the first tile: one outside.
            for (reg, extent) in regs.iter().zip([rows, cols]) {
                self.b.write(*reg, extent);
            }
        }
        let counter = self.b.open_loop();
        let (r, c) = order::tile(&mut Emit(&mut self.b), order, counter.into(), rows, cols);
        self.symbols.extend(counters.into_iter().zip([r, c]));
        self.read_before(after);
        self.loops += 1;
        let result = self.block(body);
        self.loops -= 1;
        self.settle(None);
        for (reg, now) in regs.into_iter().zip([r, c]) {
            self.b.write(reg, now);
        }
        for counter in counters.iter().chain(after.iter().flatten()) {
            self.symbols.remove(counter);
        }
        self.b.close_loop(counter, first, all, step);
        result
    }

    /// `finally`, after the loop over tiles whose last it knows.
    pub(crate) fn finally(
        &mut self,
        after: [SymbolId; 2],
        body: &[Stmt],
        span: Span,
    ) -> Result<(), Diagnostic> {
        if !after.iter().all(|counter| self.units.after.contains_key(counter)) {
            return Err(internal(span, "a `finally` without its loop"));
        }
        self.read_before(Some(after));
        let result = self.block(body);
        for counter in after {
            self.symbols.remove(&counter);
        }
        result
    }

    /// Gives the counters of the round before's tile their values.
    fn read_before(&mut self, after: Option<[SymbolId; 2]>) {
        for counter in after.into_iter().flatten() {
            if let Some(reg) = self.units.after.get(&counter) {
                let value = self.b.read(*reg);
                self.symbols.insert(counter, value);
            }
        }
    }
}
