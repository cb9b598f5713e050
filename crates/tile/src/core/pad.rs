//! Pads modes of register tensors to longer extents, so that threads can share them evenly.
//!
//! Keeps: the program's meaning, and every id. Modes that statements make alike are padded together. Loads read 0 beyond the tile, stores
//! write nothing there, and reductions along a padded mode see the operation's neutral element.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Core, Expr, Program, ShapeOp, Stmt, StmtId, StmtKind, TensorId, TensorKind, TensorRef, TileRef, ViewMode,
};
use crate::expr::IntOp;
use crate::program::{BinaryOp, ElemExpr, PrintItem, ReduceOp, ViewLeaf};
use crate::rows::Rows;
use crate::statement;
use tilewright_machine::{DType, Memory};

/// A mode of a register tensor.
type Mode = (TensorId, usize);

/// Modes of register tensors that have one extent, whichever it is: nothing but copies to and from global memory fixes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FreeExtent {
    /// The extent.
    pub extent: i64,
    /// The modes: register tensor, and mode.
    pub modes: BTreeSet<(TensorId, usize)>,
    /// The copies between registers and global memory of tensors that have it.
    pub copies: Vec<StmtId>,
}

/// The extents that may be padded.
pub fn free_extents(program: &Program) -> Vec<FreeExtent> {
    let mut alike = Alike { program, parent: BTreeMap::new(), fixed: BTreeSet::new(), copies: Vec::new() };
    program.visit(&mut |stmt, _| alike.statement(stmt));
    let mut classes: BTreeMap<Mode, FreeExtent> = BTreeMap::new();
    let modes: Vec<Mode> = alike.parent.keys().copied().collect();
    for mode in modes {
        let extent = program.shape(mode.0)[mode.1];
        let root = alike.root(mode);
        let new = || FreeExtent { extent, modes: BTreeSet::new(), copies: Vec::new() };
        classes.entry(root).or_insert_with(new).modes.insert(mode);
    }
    for mode in std::mem::take(&mut alike.fixed) {
        classes.remove(&alike.root(mode));
    }
    for (mode, copy) in std::mem::take(&mut alike.copies) {
        classes.entry(alike.root(mode)).and_modify(|class| class.copies.push(copy));
    }
    classes.into_values().filter(|class| class.extent > 1 && !class.copies.is_empty()).collect()
}

/// The modes that statements make alike, found statement by statement.
struct Alike<'a> {
    program: &'a Program,
    parent: BTreeMap<Mode, Mode>,
    /// Modes of which the extent is what it is.
    fixed: BTreeSet<Mode>,
    copies: Vec<(Mode, StmtId)>,
}

impl Alike<'_> {
    fn root(&self, mut mode: Mode) -> Mode {
        while let Some(parent) = self.parent.get(&mode).filter(|parent| **parent != mode) {
            mode = *parent;
        }
        mode
    }

    fn join(&mut self, a: Mode, b: Mode) {
        for mode in [a, b] {
            self.parent.entry(mode).or_insert(mode);
        }
        let (a, b) = (self.root(a), self.root(b));
        self.parent.insert(a.max(b), a.min(b));
    }

    fn fix(&mut self, id: TensorId, mode: usize) {
        self.parent.entry((id, mode)).or_insert((id, mode));
        self.fixed.insert((id, mode));
    }

    fn is_register(&self, id: TensorId) -> bool {
        self.program.tensor(id).memory() == Memory::Register
    }

    fn rank(&self, id: TensorId) -> usize {
        self.program.shape(id).len()
    }

    fn fix_all(&mut self, id: TensorId) {
        (0..self.rank(id)).for_each(|mode| self.fix(id, mode));
    }

    /// Tensors of one shape, or of extents of 1 where it has others.
    fn elementwise(&mut self, dst: TensorId, others: &[TensorId]) {
        let shape = self.program.shape(dst);
        for other in others.iter().copied().chain([dst]) {
            for (mode, extent) in self.program.shape(other).into_iter().enumerate() {
                match shape.get(mode) {
                    Some(same) if *same == extent => self.join((dst, mode), (other, mode)),
                    _ => self.fix(other, mode),
                }
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Define(id) => {
                if let TensorKind::Register { pinned: Some(_), .. } = self.program.tensor(*id).kind {
                    self.fix_all(*id);
                }
            }
            // A print shows what was there before.
            StmtKind::Fill { .. } | StmtKind::Print { .. } => {}
            StmtKind::Cast { dst, src } | StmtKind::Rearrange { dst, src } => self.elementwise(*dst, &[*src]),
            StmtKind::Elementwise { dst, expr } => self.elementwise(*dst, &expr.tensors()),
            // An index has as many places as it has.
            StmtKind::Copy { src, dst, how }
                if src.indexed.is_none() && dst.indexed.is_none() && how.fetch.is_none() =>
            {
                self.copy(stmt, src, dst);
            }
            StmtKind::Shape { dst, src, op } => self.shape(*dst, *src, op),
            StmtKind::Join { dst, a, b } => self.halves(*dst, [*a, *b]),
            StmtKind::Split { lo, hi, src } => self.halves(*src, [*lo, *hi]),
            StmtKind::Reduce { dst, src, axis, .. } => {
                let (axis, kept) = (*axis as usize, self.rank(*dst) == self.rank(*src));
                for mode in (0..self.rank(*src)).filter(|mode| *mode != axis) {
                    let left = if mode > axis && !kept { mode - 1 } else { mode };
                    self.join((*src, mode), (*dst, left));
                }
                // The neutral element stands in an elementwise statement, which the other types do not have.
                let dtype = self.program.tensor(*src).dtype;
                if has_neutral(dtype) {
                    self.join((*src, axis), (*src, axis));
                } else {
                    self.fix(*src, axis);
                }
                if kept {
                    self.fix(*dst, axis);
                }
            }
            // The rows that it decides for stay what they are.
            StmtKind::IfAny { condition, axis, body } => {
                self.fix_all(*condition);
                if let Some(rows) = Rows::new(self.program.shape(*condition), *axis) {
                    statement::visit(body, 0, &mut |stmt, _| {
                        for id in stmt.kind.writes() {
                            let modes = rows.row_modes(&self.program.shape(id)).unwrap_or_default();
                            modes.into_iter().for_each(|mode| self.fix(id, mode));
                        }
                    });
                }
            }
            kind => {
                for (_, id) in kind.tensors() {
                    if self.is_register(id) {
                        self.fix_all(id);
                    }
                }
            }
        }
    }

    fn shape(&mut self, dst: TensorId, src: TensorId, op: &ShapeOp) {
        match op {
            ShapeOp::Transpose(order) => {
                for (mode, from) in order.iter().enumerate() {
                    self.join((dst, mode), (src, *from as usize));
                }
            }
            ShapeOp::Expand { axis } => {
                let axis = *axis as usize;
                self.fix(dst, axis);
                for mode in 0..self.rank(src) {
                    self.join((src, mode), (dst, if mode < axis { mode } else { mode + 1 }));
                }
            }
            ShapeOp::Broadcast(_) => self.elementwise(dst, &[src]),
            ShapeOp::Reshape(_) | ShapeOp::Slice { .. } => {
                [dst, src].into_iter().for_each(|id| self.fix_all(id))
            }
        }
    }

    fn halves(&mut self, whole: TensorId, halves: [TensorId; 2]) {
        for half in halves {
            (0..self.rank(half)).for_each(|mode| self.join((whole, mode), (half, mode)));
        }
        self.fix(whole, self.rank(whole) - 1);
    }

    fn copy(&mut self, stmt: &Stmt, src: &TensorRef, dst: &TensorRef) {
        match (self.is_register(src.tensor), self.is_register(dst.tensor)) {
            (true, true) => self.elementwise(dst.tensor, &[src.tensor]),
            (false, false) => {}
            (from, _) => {
                let (register, memory) = if from { (src, dst) } else { (dst, src) };
                let tile = self.program.tile(memory);
                for mode in 0..self.rank(register.tensor) {
                    let place = (register.tensor, mode);
                    if steps(&tile, mode).is_some() {
                        self.join(place, place);
                        self.copies.push((place, stmt.id));
                    } else {
                        self.fix(register.tensor, mode);
                    }
                }
            }
        }
    }
}

/// The buffer's mode along which a mode of a tile walks alone, and its step.
fn steps(tile: &TileRef, mode: usize) -> Option<(usize, i64)> {
    let global = tile.global.as_ref()?;
    let [(_, dim, step)] = global.modes[mode][..] else { return None };
    let walks =
        global.modes.iter().flatten().filter(|(extent, other, _)| *other == dim && *extent > 1).count();
    (step > 0 && walks <= 1).then_some((dim as usize, step))
}

/// Pads modes to another extent.
pub fn pad(program: &mut Program, class: &FreeExtent, to: i64) {
    let mut pass = Pad { class, to, copies: class.copies.iter().copied().collect() };
    for (id, mode) in &class.modes {
        if let TensorKind::Register { shape, .. } = &mut program.tensors[id.0 as usize].kind {
            shape[*mode] = to;
        }
    }
    let (body, roles) = (std::mem::take(&mut program.body), std::mem::take(&mut program.roles));
    program.body = pass.block(program, body);
    for mut role in roles {
        role.body = pass.block(program, role.body);
        program.roles.push(role);
    }
}

/// True for types with a value that changes no reduction and that an elementwise statement makes: floats of six and four bits have no NaN, a `ue8m0` no zero.
fn has_neutral(dtype: DType) -> bool {
    match dtype {
        DType::E3M2 | DType::E2M3 | DType::E2M1 | DType::UE8M0 => false,
        _ => dtype.is_float() || matches!(dtype, DType::I32 | DType::U32),
    }
}

/// The value that changes no reduction: of a maximum or minimum of floats a NaN, which loses to every number.
fn neutral(op: ReduceOp, dtype: DType) -> ElemExpr {
    let number = match (op, dtype.is_float()) {
        (ReduceOp::Sum, true) => -0.0,
        (ReduceOp::Sum, false) => 0.0,
        (ReduceOp::Product, _) => 1.0,
        (_, true) => {
            let infinity = ElemExpr::Number(f64::INFINITY);
            return ElemExpr::binary(BinaryOp::Sub, infinity.clone(), infinity);
        }
        (ReduceOp::Max, false) if dtype == DType::U32 => 0.0,
        (ReduceOp::Min, false) if dtype == DType::U32 => f64::from(u32::MAX),
        (ReduceOp::Max, false) => f64::from(i32::MIN),
        (ReduceOp::Min, false) => f64::from(i32::MAX),
    };
    ElemExpr::Number(number)
}

struct Pad<'a> {
    class: &'a FreeExtent,
    to: i64,
    copies: BTreeSet<StmtId>,
}

impl Pad<'_> {
    fn has(&self, id: TensorId, mode: usize) -> bool {
        self.class.modes.contains(&(id, mode))
    }

    fn block(&mut self, program: &mut Program, body: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::new();
        for mut stmt in body {
            let before = match &mut stmt.kind {
                StmtKind::Copy { src, dst, .. } if self.copies.contains(&stmt.id) => {
                    let (register, memory) = if program.tensor(src.tensor).memory() == Memory::Register {
                        (src.tensor, dst)
                    } else {
                        (dst.tensor, src)
                    };
                    let view = self.view(program, register, memory);
                    *memory = TensorRef { span: memory.span, ..TensorRef::whole(view) };
                    vec![StmtKind::Define(view)]
                }
                StmtKind::Reduce { src, op, axis, .. } if self.has(*src, *axis as usize) => {
                    let kind = TensorKind::Register { shape: program.shape(*src), pinned: None };
                    let masked = program.add_tensor(*src, "masked", kind);
                    let dtype = program.tensor(*src).dtype;
                    let inside = ElemExpr::binary(
                        BinaryOp::Lt,
                        ElemExpr::Index(*axis),
                        ElemExpr::Number(self.class.extent as f64),
                    );
                    let neutral = neutral(*op, dtype);
                    let expr = ElemExpr::Where(Box::new([inside, ElemExpr::Tensor(*src), neutral]));
                    *src = masked;
                    vec![StmtKind::Elementwise { dst: masked, expr }]
                }
                StmtKind::Print { items, .. } => {
                    items.iter_mut().for_each(|item| self.shown(program, item));
                    Vec::new()
                }
                StmtKind::Shape { dst, op: ShapeOp::Broadcast(shape), .. } => {
                    *shape = program.shape(*dst);
                    Vec::new()
                }
                kind => {
                    if let Some(body) = kind.body_mut() {
                        *body = self.block(program, std::mem::take(body));
                    }
                    Vec::new()
                }
            };
            for kind in before {
                out.push(Stmt { id: program.statements.fresh(Some(stmt.id)), kind, span: stmt.span });
            }
            out.push(stmt);
        }
        out
    }

    /// Lets an item of a `print` show a padded tensor up to the extents that it had.
    fn shown(&self, program: &Program, item: &mut PrintItem<Core>) {
        let PrintItem::Tensor { of, extents } = item else { return };
        let shape = program.shape(of.tensor);
        for mode in (0..shape.len()).filter(|mode| self.has(of.tensor, *mode)) {
            extents.get_or_insert_with(|| shape.clone())[mode] = self.class.extent;
        }
    }

    /// A view of a copy's tile with the padded extent, which ends where the tile did.
    fn view(&self, program: &mut Program, register: TensorId, reference: &TensorRef) -> TensorId {
        let tile = program.tile(reference);
        let like = reference.tensor;
        let (Some(global), TensorKind::View { ends, .. }) = (&tile.global, &program.tensor(like).kind) else {
            return like;
        };
        let mut ends = ends.clone();
        let mut modes = Vec::new();
        for (mode, leaves) in global.modes.iter().enumerate() {
            let padded = steps(&tile, mode).filter(|_| self.has(register, mode));
            if let Some((dim, step)) = padded {
                let end = global.base[dim].clone() + ((self.class.extent - 1) * step + 1);
                // What ends the tile's mode in the buffer ends it here too.
                if end != global.shape[dim] {
                    ends[dim] = Some(Expr::binary(IntOp::Min, end, global.shape[dim].clone()));
                }
            }
            let leaf = |(extent, dim, scale): &(i64, u32, i64)| ViewLeaf {
                extent: Expr::Int(if padded.is_some() { self.to } else { *extent }),
                dim: *dim,
                scale: Expr::Int(*scale),
            };
            modes.push(ViewMode { leaves: leaves.iter().map(leaf).collect() });
        }
        // What threads copy folds no modes, and nothing else is padded.
        let kind = TensorKind::View {
            param: global.param,
            offsets: global.base.clone(),
            ends,
            modes,
            fold: Vec::new(),
        };
        program.add_tensor(like, "padded", kind)
    }
}
