//! The types of core programs, and what is asked of one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tilewright_layout::{Layout, SwizzledLayout};
use tilewright_machine::{DType, Memory};

use crate::arith::Types;
use crate::barriers::{BarrierNumbers, Team, barriers_of, meets_by_warpgroup};
use crate::diagnostic::Origin;
use crate::expr::{Expr, SymbolId};
use crate::ids::{StmtId, StmtIds};
use crate::printer::Names;
use crate::program::Unnamed;
use crate::program::{
    Barrier, BarrierId, Param, ParamId, ParamKind, PipelineId, Side, TensorId, ViewLeaf, ViewMode,
};
use crate::statement::{self, Form};
use crate::unnamed::Expressions;
use crate::verified::{GlobalTile, IndexedTile, extent_of};

/// The form of core programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Core;

/// A statement of a core program.
pub type Stmt = statement::Stmt<Core>;
/// Statement of a core program without its identity and place.
pub type StmtKind = statement::StmtKind<Core>;
/// A tensor as a statement of a core program uses it.
pub type TensorRef = statement::TensorRef<Core>;
/// Relation between the result of a shape statement of a core program and its operand.
pub type ShapeOp = statement::ShapeOp<Core>;
/// The order of tiles of a loop of a core program.
pub type TileOrder = statement::TileOrder<Core>;
/// The operands of a statement of a core program.
pub type Operand<'a> = statement::Operand<'a, Core>;
/// The operands of a statement of a core program, to change them.
pub type OperandMut<'a> = statement::OperandMut<'a, Core>;
/// A tensor as a statement of a core program sees it.
pub type TileRef = crate::verified::TileRef<Core>;

/// A construct that core programs do not have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Never {}

/// The stage of a pipeline that a `produce` or `consume` around the statement has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Slot {
    /// The pipeline.
    pub pipeline: PipelineId,
    /// The side.
    pub side: Side,
}

/// An entry of an index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Coord {
    /// An expression.
    Expr(Expr),
    /// The stage of a pipeline.
    Slot(Slot),
}

impl Coord {
    /// The number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        self.expr().and_then(Expr::as_int)
    }

    /// The expression, if it is one.
    pub fn expr(&self) -> Option<&Expr> {
        match self {
            Coord::Expr(e) => Some(e),
            Coord::Slot(_) => None,
        }
    }
}

impl Form for Core {
    type Int = i64;
    type Index = Coord;
    type RoleName = Never;

    fn value(int: &i64) -> Option<i64> {
        Some(*int)
    }

    fn int(int: &i64) -> Expr {
        Expr::Int(*int)
    }

    fn role(name: &Never) -> &str {
        match *name {}
    }

    fn write_index(out: &mut dyn fmt::Write, names: &dyn Names, index: &Coord) -> fmt::Result {
        match index {
            Coord::Expr(e) => crate::printer::write_expr(out, names, e),
            Coord::Slot(slot) => write!(out, "{}.{}", names.pipeline(slot.pipeline), slot.side.end()),
        }
    }
}

/// Outcome of a pass: the program changed, or it did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// It did.
    Yes,
    /// It left it as it was.
    No,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Self {
        if changed { Changed::Yes } else { Changed::No }
    }
}

/// A core program: one kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The kernel's name.
    pub name: String,
    /// Sizes and counters, by the ids of the surface program.
    pub symbols: BTreeMap<SymbolId, Symbol>,
    /// Parameters; extents and strides are over sizes.
    pub params: Vec<Param>,
    /// Strides of each tensor parameter in elements, empty for scalars.
    pub strides: Vec<Vec<Expr>>,
    /// Parameters that statements write, in order.
    pub outputs: Vec<ParamId>,
    /// Parameters that statements read, or of which an element is an integer of the kernel, in order.
    pub inputs: Vec<ParamId>,
    /// Parameters of which elements are integers of the kernel, in order.
    pub elements: Vec<ParamId>,
    /// Blocks along x, y and z, over sizes.
    pub grid: Vec<Expr>,
    /// The place of the grid.
    pub grid_span: Origin,
    /// Threads of a block.
    pub threads: u32,
    /// Place of the number of threads.
    pub threads_span: Origin,
    /// Blocks that one multiprocessor has registers for, at least.
    pub resident: u32,
    /// Blocks of a cluster along each of its modes.
    pub cluster: Vec<u32>,
    /// The place of the cluster.
    pub cluster_span: Origin,
    /// Every tensor.
    pub tensors: Vec<Tensor>,
    /// Every pipeline.
    pub pipelines: Vec<Pipeline>,
    /// Every named barrier.
    pub barriers: Vec<Barrier>,
    /// The ids of statements.
    pub statements: StmtIds,
    /// Statements of all threads; of a program with roles, those that the roles share: definitions of views, shared tensors and pipelines.
    pub body: Vec<Stmt>,
    /// The roles, in the order of their threads; none if all threads do the same.
    pub roles: Vec<Role>,
}

/// A size or a counter.
#[derive(Clone, PartialEq, Debug)]
pub struct Symbol {
    /// The name.
    pub name: String,
    /// The default of a size; `None` for a counter.
    pub size: Option<i64>,
    /// Place of its declaration.
    pub span: Origin,
}

/// A tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Memory it lives in, and its shape there.
    pub kind: TensorKind,
    /// Place of its definition.
    pub span: Origin,
    /// Expression whose value it holds, where the author gave that no name.
    pub unnamed: Unnamed,
}

/// Memory a tensor lives in, and its shape there.
#[derive(Clone, PartialEq, Debug)]
pub enum TensorKind {
    /// A view of a parameter.
    View {
        /// The parameter.
        param: ParamId,
        /// The buffer's coordinate at which the view begins.
        offsets: Vec<Expr>,
        /// Coordinate it ends at, if before the buffer.
        ends: Vec<Option<Expr>>,
        /// Its modes. Scales are literals, and so are extents of modes that some reference keeps.
        modes: Vec<ViewMode>,
        /// The leaves of the mode that folds modes of the parameter, of which scales are literals too; none where there is no such mode.
        fold: Vec<ViewLeaf>,
    },
    /// A shared tensor.
    Shared {
        /// Its shape; the stages of a pipeline are its last mode.
        shape: Vec<i64>,
        /// A given layout (tile coordinate → offset in elements).
        pinned: Option<SwizzledLayout>,
    },
    /// A tensor in tensor memory; of a pipeline, one stage, which is that of the `produce` or `consume` around a statement.
    Tensor {
        /// Its shape.
        shape: Vec<i64>,
    },
    /// A register tensor.
    Register {
        /// Its shape.
        shape: Vec<i64>,
        /// A given layout ((thread, value) → linear coordinate in the tile).
        pinned: Option<Layout>,
    },
}

impl Tensor {
    /// Memory it lives in.
    pub fn memory(&self) -> Memory {
        match self.kind {
            TensorKind::View { .. } => Memory::Global,
            TensorKind::Shared { .. } => Memory::Shared,
            TensorKind::Tensor { .. } => Memory::Tensor,
            TensorKind::Register { .. } => Memory::Register,
        }
    }
}

/// A pipeline.
#[derive(Clone, PartialEq, Debug)]
pub struct Pipeline {
    /// The name.
    pub name: String,
    /// Its stages.
    pub stages: u32,
    /// The tensors of a stage.
    pub tensors: Vec<TensorId>,
    /// Place of its definition.
    pub span: Origin,
}

/// A role: what some warpgroups of the block do.
#[derive(Clone, Debug)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Its first thread in the block.
    pub first: u32,
    /// Its threads.
    pub threads: u32,
    /// Registers of each thread; `None`: an even share.
    pub registers: Option<u32>,
    /// The statement of the surface program.
    pub id: StmtId,
    /// Place of its declaration.
    pub span: Origin,
    /// Its statements.
    pub body: Vec<Stmt>,
}

impl Role {
    /// The tensors that its statements define, read or write.
    pub fn touched(&self) -> BTreeSet<TensorId> {
        touched(&self.body)
    }
}

fn touched(body: &[Stmt]) -> BTreeSet<TensorId> {
    let mut touched = BTreeSet::new();
    statement::visit(body, 0, &mut |stmt, _| {
        touched.extend(stmt.kind.tensors().into_iter().map(|(_, id)| id))
    });
    touched
}

/// Roles are equal that do the same, whatever their ids.
impl PartialEq for Role {
    fn eq(&self, other: &Self) -> bool {
        let key = |role: &Self| (role.first, role.threads, role.registers);
        self.name == other.name && key(self) == key(other) && self.body == other.body
    }
}

impl Types for Program {
    fn tensor(&self, id: TensorId) -> DType {
        self.tensors.get(id.0 as usize).map_or(DType::F32, |tensor| tensor.dtype)
    }

    fn scalar(&self, id: ParamId) -> DType {
        self.params.get(id.0 as usize).map_or(DType::F32, |param| param.dtype)
    }
}

impl Program {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Blocks that one multiprocessor has registers for, at least.
    pub fn resident(&self) -> u32 {
        self.resident
    }

    /// Blocks of a cluster, neighbours along x.
    pub fn cluster(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// Blocks of a cluster along each of its modes.
    pub fn cluster_shape(&self) -> &[u32] {
        &self.cluster
    }

    /// The symbol's row.
    pub fn symbol(&self, id: SymbolId) -> &Symbol {
        &self.symbols[&id]
    }

    /// The run-time sizes, in the order in which a launch passes them.
    pub fn sizes(&self) -> impl Iterator<Item = (SymbolId, &Symbol, i64)> {
        self.symbols.iter().filter_map(|(id, symbol)| Some((*id, symbol, symbol.size?)))
    }

    /// The parameter's row.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.0 as usize]
    }

    /// Memory a tensor lives in, and its shape there; `None` of an id that the program does not have.
    pub(super) fn kind(&self, id: TensorId) -> Option<&TensorKind> {
        self.tensors.get(id.0 as usize).map(|row| &row.kind)
    }

    /// The tensor's row.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// The pipeline's row.
    pub fn pipeline(&self, id: PipelineId) -> &Pipeline {
        &self.pipelines[id.0 as usize]
    }

    /// The named barrier's row.
    pub fn barrier(&self, id: BarrierId) -> &Barrier {
        &self.barriers[id.0 as usize]
    }

    /// The numbers of the block's barriers.
    pub fn barrier_numbers(&self) -> BarrierNumbers {
        let team = |threads: u32, body: &[Stmt]| Team {
            warpgroups: threads / tilewright_machine::WARPGROUP,
            by_warpgroup: meets_by_warpgroup(body),
        };
        let teams: Vec<Team> = match &self.roles[..] {
            [] => vec![team(self.threads, &self.body)],
            roles => roles.iter().map(|role| team(role.threads, &role.body)).collect(),
        };
        BarrierNumbers::new(&teams, !self.roles.is_empty(), self.barriers.len())
    }

    /// Threads of the roles that come to a named barrier.
    pub fn threads_at(&self, id: BarrierId) -> u32 {
        let comes = |role: &&Role| barriers_of(&role.body).contains(&id);
        self.roles.iter().filter(comes).map(|role| role.threads).sum()
    }

    /// The roles, in the order of their threads.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Strides of a tensor parameter, in elements, over literals and sizes.
    pub fn strides(&self, param: ParamId) -> &[Expr] {
        &self.strides[param.0 as usize]
    }

    /// Extents of a tensor parameter, over literals and sizes; empty for scalars.
    pub fn buffer_shape(&self, param: ParamId) -> &[Expr] {
        match &self.param(param).kind {
            ParamKind::Tensor { shape, .. } => shape,
            ParamKind::Scalar { .. } => &[],
        }
    }

    /// Parameters that the kernel writes, in order.
    pub fn outputs(&self) -> &[ParamId] {
        &self.outputs
    }

    /// Parameters that the kernel reads, in order.
    pub fn inputs(&self) -> &[ParamId] {
        &self.inputs
    }

    /// The shape of a register or shared tensor, or of a view's modes where they are static.
    pub fn shape(&self, tensor: TensorId) -> Vec<i64> {
        match &self.tensor(tensor).kind {
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape } => shape.clone(),
            TensorKind::View { .. } => self.tile(&TensorRef::whole(tensor)).shape,
        }
    }

    /// Resolves a reference of a statement of this program.
    pub fn tile(&self, reference: &TensorRef) -> TileRef {
        let tensor = self.tensor(reference.tensor);
        let (mut shape, mut global, mut fixed) = (Vec::new(), None, Vec::new());
        let indices = reference.indexed.map(|indexed| {
            let shape = self.shape(indexed.by);
            (indexed.mode as usize, shape.first().copied().unwrap_or(1))
        });
        match &tensor.kind {
            TensorKind::Register { shape: extents, .. }
            | TensorKind::Shared { shape: extents, .. }
            | TensorKind::Tensor { shape: extents } => {
                for (mode, extent) in extents.iter().enumerate() {
                    match reference.index.get(mode) {
                        Some(Some(coord)) => fixed.push((mode, coord.clone())),
                        _ => shape.push(indices.filter(|(at, _)| *at == mode).map_or(*extent, |(_, n)| n)),
                    }
                }
            }
            TensorKind::View { param, offsets, ends, modes, fold } => {
                // The verifier knows that a view is not indexed by a slot.
                let index: Vec<Option<&Expr>> =
                    reference.index.iter().map(|entry| entry.as_ref().and_then(Coord::expr)).collect();
                let array = self.param(*param).is_array();
                let buffer = (*param, self.buffer_shape(*param), self.strides(*param), array);
                let (extents, tile) =
                    GlobalTile::new(buffer, (offsets, ends), (modes, fold), &index, indices);
                (shape, global) = (extents, Some(tile));
            }
        }
        let indexed = IndexedTile::new(reference, |mode| match &tensor.kind {
            TensorKind::View { modes, .. } => modes.get(mode).map_or(Expr::Int(1), extent_of),
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape } => Expr::Int(shape.get(mode).copied().unwrap_or(1)),
        });
        TileRef::new(reference, (tensor.memory(), tensor.dtype), (shape, global), (fixed, indexed))
    }

    /// Calls `visit` for every statement, loops and stages before their bodies, with the number of loops around it.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Stmt, usize)) {
        statement::visit(&self.body, 0, visit);
        self.roles.iter().for_each(|role| statement::visit(&role.body, 0, visit));
    }

    /// The outermost bodies: the program's and those of its roles.
    pub fn bodies_mut(&mut self) -> impl Iterator<Item = &mut Vec<Stmt>> {
        std::iter::once(&mut self.body).chain(self.roles.iter_mut().map(|role| &mut role.body))
    }

    /// The shared tensors whose last mode is the stages of their pipeline: those that some statement uses at a [`Slot`].
    pub fn staged(&self) -> BTreeSet<TensorId> {
        let mut staged = BTreeSet::new();
        self.visit(&mut |stmt, _| {
            let at_slot = |r: &TensorRef| r.index.iter().any(|c| matches!(c, Some(Coord::Slot(_))));
            let references = stmt.kind.references().into_iter().filter(|(_, r)| at_slot(r));
            staged.extend(references.map(|(_, r)| r.tensor));
        });
        staged
    }

    /// The tensors that statements define, read or write. The tables of a role's program list others too: the whole program's.
    pub fn touched(&self) -> BTreeSet<TensorId> {
        let roles = self.roles.iter().flat_map(Role::touched);
        touched(&self.body).into_iter().chain(roles).collect()
    }

    /// The program of role `index` alone: the definitions that it uses, and its body. Its threads are the role's. Tables and ids are those of
    /// the whole program.
    pub fn of_role(&self, index: usize) -> Program {
        let role = &self.roles[index];
        let tensors = role.touched();
        let mut pipelines = BTreeSet::new();
        statement::visit(&role.body, 0, &mut |stmt, _| {
            if let StmtKind::Stage { pipeline, .. } = &stmt.kind {
                pipelines.insert(*pipeline);
            }
        });
        let used = |stmt: &&Stmt| match &stmt.kind {
            StmtKind::Define(id) => tensors.contains(id),
            StmtKind::Pipeline(id) => pipelines.contains(id),
            StmtKind::Barrier(id) => barriers_of(&role.body).contains(id),
            _ => false,
        };
        let body = self.body.iter().filter(used).chain(&role.body).cloned().collect();
        Program { body, threads: role.threads, roles: Vec::new(), ..self.tables() }
    }

    /// The program without its statements.
    fn tables(&self) -> Program {
        Program {
            name: self.name.clone(),
            symbols: self.symbols.clone(),
            params: self.params.clone(),
            strides: self.strides.clone(),
            outputs: self.outputs.clone(),
            inputs: self.inputs.clone(),
            elements: self.elements.clone(),
            grid: self.grid.clone(),
            grid_span: self.grid_span,
            threads: self.threads,
            threads_span: self.threads_span,
            resident: self.resident,
            cluster: self.cluster.clone(),
            cluster_span: self.cluster_span,
            tensors: self.tensors.clone(),
            pipelines: self.pipelines.clone(),
            barriers: self.barriers.clone(),
            statements: self.statements.clone(),
            body: Vec::new(),
            roles: Vec::new(),
        }
    }

    /// Pins the layout of a register tensor.
    pub fn pin_register(&mut self, id: TensorId, layout: Layout) {
        if let TensorKind::Register { pinned, .. } = &mut self.tensors[id.0 as usize].kind {
            *pinned = Some(layout);
        }
    }

    /// Pins the layout of a shared tensor.
    pub fn pin_shared(&mut self, id: TensorId, layout: SwizzledLayout) {
        if let TensorKind::Shared { pinned, .. } = &mut self.tensors[id.0 as usize].kind {
            *pinned = Some(layout);
        }
    }

    /// Marks asynchronous copies as done by the tensor memory accelerator, or as not.
    pub fn mark_tensor_copies(&mut self, which: &BTreeSet<StmtId>) {
        fn go(body: &mut [Stmt], which: &BTreeSet<StmtId>) {
            for stmt in body {
                if let StmtKind::CopyAsync { how, .. } = &mut stmt.kind {
                    how.tensor = which.contains(&stmt.id);
                }
                if let Some(body) = stmt.kind.body_mut() {
                    go(body, which);
                }
            }
        }
        self.bodies_mut().for_each(|body| go(body, which));
    }

    /// A new tensor, named after another with a suffix.
    pub(crate) fn add_tensor(&mut self, like: TensorId, suffix: &str, kind: TensorKind) -> TensorId {
        let Tensor { name, dtype, span, .. } = self.tensor(like).clone();
        let name = crate::names::fresh_name(&mut self.names(), &name, suffix);
        self.tensors.push(Tensor { name, dtype, kind, span, unnamed: Unnamed::default() });
        TensorId((self.tensors.len() - 1) as u32)
    }

    /// The expressions of the tensors that the author did not name.
    pub fn unnamed(&self) -> Expressions {
        Expressions::of(self.tensors.iter().map(|row| (&row.name, &row.unnamed)))
    }

    /// Every name of the program.
    fn names(&self) -> std::collections::HashSet<String> {
        let symbols = self.symbols.values().map(|s| &s.name);
        let params = self.params.iter().map(|p| &p.name);
        let tensors = self.tensors.iter().map(|t| &t.name);
        let pipelines = self.pipelines.iter().map(|p| &p.name);
        let barriers = self.barriers.iter().map(|b| &b.name);
        let roles = self.roles.iter().map(|r| &r.name);
        symbols.chain(params).chain(tensors).chain(pipelines).chain(barriers).chain(roles).cloned().collect()
    }
}
