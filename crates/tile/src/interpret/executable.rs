//! Programs that the interpreter runs: the surface's, which it defines, and the core's, which must do the same.

use tilewright_machine::{DType, Memory};

use crate::core::{self, Coord, Core};
use crate::diagnostic::Origin;
use crate::expr::{Expr, SymbolId};
use crate::printer::Names;
use crate::program::{
    Barrier, Form, Param, ParamId, Program, Stmt, StmtKind, Surface, TensorId, TensorKind, TensorRef,
};
use crate::statement;
use crate::verified::{TileRef, Verified};

/// A pipeline of an [`Executable`].
pub struct PipelineRow<'a> {
    /// The name.
    pub name: &'a str,
    /// The number of stages.
    pub stages: i64,
    /// The shared tensors of a stage.
    pub tensors: &'a [TensorId],
    /// The place of its definition.
    pub span: Origin,
}

/// A program as the interpreter asks for it, in either form: its tables, its statements, and where the tiles of references lie.
///
/// In a core program whose tensors have a mode of stages, that mode is indexed by a [`Slot`](core::Slot), whose value is that of the stage
/// at hand.
pub trait Executable: Sync {
    /// The form of its statements.
    type Form: Form;

    /// Names, for messages.
    fn names(&self) -> &dyn Names;
    /// The program as its author wrote it, with names for its constants; none of a core program.
    fn written(&self) -> Option<&Program>;
    /// The places of the grid and of the cluster.
    fn launch_spans(&self) -> [Origin; 2];
    /// The place of a size's declaration.
    fn size_span(&self, id: SymbolId) -> Origin;
    /// The parameters.
    fn params(&self) -> &[Param];
    /// Strides of a tensor parameter in elements, over literals and sizes; empty for a scalar.
    fn strides(&self, param: ParamId) -> &[Expr];
    /// The parameters that statements write, in order.
    fn outputs(&self) -> &[ParamId];
    /// Blocks along x, y and z, over literals and sizes.
    fn grid(&self) -> &[Expr];
    /// Blocks of a cluster along each of its modes.
    fn cluster_shape(&self) -> Vec<u32>;
    /// Blocks of a cluster.
    fn cluster(&self) -> u32 {
        self.cluster_shape().iter().product()
    }
    /// The run-time sizes with their names and defaults, in the order in which a launch passes them.
    fn sizes(&self) -> Vec<(SymbolId, &str, i64)>;
    /// One more than the largest number of a symbol.
    fn symbols(&self) -> usize;
    /// The number of tensors.
    fn tensors(&self) -> usize;
    /// Memory and element type of a tensor.
    fn tensor(&self, id: TensorId) -> (Memory, DType);
    /// The parameter that a tensor is a view of.
    fn viewed(&self, id: TensorId) -> Option<ParamId>;
    /// The register tensor that a tensor is a part of, and the index of that part.
    fn part(&self, id: TensorId) -> Option<(TensorId, &[Option<Expr>])>;
    /// The shape of a register or shared tensor.
    fn shape(&self, id: TensorId) -> Vec<i64>;
    /// Resolves a reference of a statement.
    fn tile(&self, reference: &TensorRef<Self::Form>) -> TileRef<Self::Form>;
    /// The pipelines, by id.
    fn pipelines(&self) -> Vec<PipelineRow<'_>>;
    /// The named barriers and turns, by id.
    fn barriers(&self) -> &[Barrier];
    /// The statements of all threads; of a program with roles, the definitions that they share.
    fn body(&self) -> &[Stmt<Self::Form>];
    /// The roles with their bodies, in the order of their threads; none if all threads do the same.
    fn roles(&self) -> Vec<(&str, &[Stmt<Self::Form>])>;
    /// The outermost bodies, which have every statement of the program once.
    fn bodies(&self) -> Vec<&[Stmt<Self::Form>]>;
    /// An entry of an index.
    fn coord(index: &<Self::Form as Form>::Index) -> Coord;

    /// The number of elements of a register or shared tensor.
    fn elements(&self, id: TensorId) -> usize {
        self.shape(id).iter().product::<i64>() as usize
    }

    /// Calls `visit` for every statement, each before its body.
    fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Stmt<Self::Form>)) {
        for body in self.bodies() {
            statement::visit(body, 0, &mut |stmt, _| visit(stmt));
        }
    }
}

impl Executable for Verified {
    type Form = Surface;

    fn names(&self) -> &dyn Names {
        self.program()
    }

    fn written(&self) -> Option<&Program> {
        Some(&self.source)
    }

    fn launch_spans(&self) -> [Origin; 2] {
        [self.program().grid_span, self.program().cluster_span]
    }

    fn size_span(&self, id: SymbolId) -> Origin {
        self.program().symbol(id).span
    }

    fn params(&self) -> &[Param] {
        &self.program().params
    }

    fn strides(&self, param: ParamId) -> &[Expr] {
        self.strides(param)
    }

    fn outputs(&self) -> &[ParamId] {
        self.outputs()
    }

    fn grid(&self) -> &[Expr] {
        &self.program().grid
    }

    fn cluster_shape(&self) -> Vec<u32> {
        self.cluster_shape()
    }

    fn sizes(&self) -> Vec<(SymbolId, &str, i64)> {
        self.program().sizes().map(|(id, row, default)| (id, row.name.as_str(), default)).collect()
    }

    fn symbols(&self) -> usize {
        self.program().symbols.len()
    }

    fn tensors(&self) -> usize {
        self.program().tensors.len()
    }

    fn tensor(&self, id: TensorId) -> (Memory, DType) {
        let row = self.program().tensor(id);
        (row.memory(), row.dtype)
    }

    fn viewed(&self, id: TensorId) -> Option<ParamId> {
        match self.program().tensor(id).kind {
            TensorKind::View { param, .. } => Some(param),
            _ => None,
        }
    }

    fn part(&self, id: TensorId) -> Option<(TensorId, &[Option<Expr>])> {
        match &self.program().tensor(id).kind {
            TensorKind::Part { of, index, .. } => Some((*of, index)),
            _ => None,
        }
    }

    fn shape(&self, id: TensorId) -> Vec<i64> {
        self.shape(id)
    }

    fn tile(&self, reference: &TensorRef) -> TileRef {
        self.tile(reference)
    }

    fn pipelines(&self) -> Vec<PipelineRow<'_>> {
        let stages = |row: &crate::Pipeline| row.stages.as_int().unwrap_or(1);
        let rows = self.program().pipelines.iter();
        rows.map(|p| PipelineRow { name: &p.name, stages: stages(p), tensors: &p.tensors, span: p.span })
            .collect()
    }

    fn barriers(&self) -> &[Barrier] {
        &self.program().barriers
    }

    fn body(&self) -> &[Stmt] {
        &self.program().body
    }

    fn roles(&self) -> Vec<(&str, &[Stmt])> {
        let roles = self.program().body.iter().filter_map(|stmt| match &stmt.kind {
            StmtKind::Role { name, body, .. } => Some((name.as_str(), body.as_slice())),
            _ => None,
        });
        roles.collect()
    }

    fn bodies(&self) -> Vec<&[Stmt]> {
        vec![&self.program().body]
    }

    fn coord(index: &Expr) -> Coord {
        Coord::Expr(index.clone())
    }
}

impl Executable for core::Program {
    type Form = Core;

    fn names(&self) -> &dyn Names {
        self
    }

    fn written(&self) -> Option<&Program> {
        None
    }

    fn launch_spans(&self) -> [Origin; 2] {
        [self.grid_span, self.cluster_span]
    }

    fn size_span(&self, id: SymbolId) -> Origin {
        self.symbols.get(&id).map_or(Origin::Unknown, |row| row.span)
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn strides(&self, param: ParamId) -> &[Expr] {
        self.strides(param)
    }

    fn outputs(&self) -> &[ParamId] {
        self.outputs()
    }

    fn grid(&self) -> &[Expr] {
        &self.grid
    }

    fn cluster_shape(&self) -> Vec<u32> {
        self.cluster_shape().to_vec()
    }

    fn sizes(&self) -> Vec<(SymbolId, &str, i64)> {
        self.sizes().map(|(id, row, default)| (id, row.name.as_str(), default)).collect()
    }

    fn symbols(&self) -> usize {
        self.symbols.keys().next_back().map_or(0, |id| id.0 as usize + 1)
    }

    fn tensors(&self) -> usize {
        self.tensors.len()
    }

    fn tensor(&self, id: TensorId) -> (Memory, DType) {
        let row = self.tensor(id);
        (row.memory(), row.dtype)
    }

    fn viewed(&self, id: TensorId) -> Option<ParamId> {
        match self.tensor(id).kind {
            core::TensorKind::View { param, .. } => Some(param),
            _ => None,
        }
    }

    fn part(&self, _: TensorId) -> Option<(TensorId, &[Option<Expr>])> {
        None
    }

    fn shape(&self, id: TensorId) -> Vec<i64> {
        self.shape(id)
    }

    fn tile(&self, reference: &core::TensorRef) -> core::TileRef {
        self.tile(reference)
    }

    fn pipelines(&self) -> Vec<PipelineRow<'_>> {
        let rows = self.pipelines.iter();
        rows.map(|p| PipelineRow {
            name: &p.name,
            stages: i64::from(p.stages),
            tensors: &p.tensors,
            span: p.span,
        })
        .collect()
    }

    fn barriers(&self) -> &[Barrier] {
        &self.barriers
    }

    fn body(&self) -> &[core::Stmt] {
        &self.body
    }

    fn roles(&self) -> Vec<(&str, &[core::Stmt])> {
        self.roles.iter().map(|role| (role.name.as_str(), role.body.as_slice())).collect()
    }

    fn bodies(&self) -> Vec<&[core::Stmt]> {
        std::iter::once(&self.body)
            .chain(self.roles.iter().map(|role| &role.body))
            .map(Vec::as_slice)
            .collect()
    }

    fn coord(index: &Coord) -> Coord {
        index.clone()
    }
}
