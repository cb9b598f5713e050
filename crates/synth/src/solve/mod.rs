//! Thread-value layouts of register tensors: anchors and propagation (Hexcute, Algorithm 1).
//!
//! Constraints ([`constraint`](crate::constraint)) connect register tensors into components, separated by memory. Pinned
//! layouts come first, then matrix products, then, in a component that has neither, the copy that moves the most data. From
//! there a queue of ready constraints leads layouts on, until one finds two that clash.
//!
//! A matrix product is a decision: its [`TiledMma`] is one of several. The search over them is depth-first: a product of
//! which no operand has a layout branches; one that meets another through registers takes an arrangement that fits what it
//! meets, such as the first product's accumulator as its left factor. Where none fits, the clash says which operand of which
//! statement must be rearranged.
//!
//! The search after a product depends on what came before only through the layouts that it still meets (`Solver::frontier`): a
//! dead end is looked at once for each such interface, so a search that finds nothing takes time that is linear in the number of
//! products, and one that finds something the same for each solution. Beyond that, a search ends with its [steps](Budget::steps).

mod anchors;
mod descend;
mod products;
mod propagate;
mod solution;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use tilewright_machine::{Arch, DType, MmaKind};
use tilewright_tile::core::{Program, Stmt, StmtKind, TileRef};
use tilewright_tile::{Code, Diagnostic, Origin, StmtId, TensorId};

use crate::along::Along;
use crate::constraint::{Constraint, components, constraints};
use crate::divisibility::Divisibility;
use crate::explain::Words;
use crate::gemm::{GemmLayouts, TiledMma};
use crate::reduce;
use crate::rows::{self, Apart};
use crate::tv::TvLayout;
pub(crate) use solution::nothing_found;
pub use solution::{Budget, Clash, Exhausted, Found, Registers};

/// The thread-value constraints of a program, and how they are solved.
pub struct Solver<'a> {
    verified: &'a Program,
    divisibility: &'a Divisibility<'a>,
    arch: Arch,
    statements: &'a [(&'a Stmt, usize)],
    constraints: Vec<Constraint>,
    /// For each tensor the constraints that it takes part in.
    touching: Vec<Vec<usize>>,
    /// The tensors that statements meet together: those of each constraint, then those of each gather.
    members: Vec<Vec<TensorId>>,
    /// For each tensor the members that it is among.
    groups: Vec<Vec<usize>>,
    /// The statements that are matrix products.
    products: Vec<usize>,
    /// For each tensor the last product that meets it.
    last_product: Vec<Option<usize>>,
    /// For each matrix product the arrangements that fit its tile; products of the same tile share them.
    arrangements: Vec<Rc<TiledMmas>>,
    /// Results that hold for other programs too.
    cache: Rc<Cache>,
    /// Copies between register tensors and other memories ([`Solver::anchors`]).
    anchors: Vec<Anchor>,
    /// For each result of a join the tile in memory whose order its values take.
    joined: HashMap<TensorId, TileRef>,
    /// For each result of a cast that is only stored the tile of global memory whose order its values may take.
    stored_casts: HashMap<TensorId, TileRef>,
    /// For each tensor the modes along which it is reduced.
    reduced: HashMap<TensorId, BTreeSet<usize>>,
    /// The tensors that statements name.
    touched: BTreeSet<TensorId>,
    /// Steps taken so far.
    steps: Cell<u64>,
}

/// A copy that can say how a register tensor is distributed.
struct Anchor {
    statement: usize,
    tensor: TensorId,
    /// The tile in memory.
    tile: TileRef,
    /// Elements of a vector.
    vector: i64,
    /// True if a broadcast repeats the register tensor.
    repeated: bool,
}

/// The arrangements of a product with the layouts of its operands. None for statements of other kinds.
#[derive(Default)]
struct TiledMmas {
    /// Their number in the [`Cache`].
    number: usize,
    /// M, N and K.
    extents: (i64, i64, i64),
    all: Vec<TiledMma>,
    layouts: Vec<GemmLayouts>,
}

impl TiledMmas {
    /// The layouts that an arrangement makes, of these or another one of a product of the same extents.
    fn layouts_of(&self, by: &TiledMma) -> Option<GemmLayouts> {
        let (m, n, k) = self.extents;
        let made = self.all.iter().position(|other| other == by).map(|at| self.layouts[at].clone());
        made.or_else(|| by.layouts(m, n, k))
    }
}

/// The arrangements of products, for the solvers of programs that differ in some statements: found once for all of them.
#[derive(Default)]
pub struct Cache {
    arrangements: RefCell<Vec<(ProductKey, Rc<TiledMmas>)>>,
    /// The arrangements that agree with layouts of operands that are known.
    fitting: RefCell<HashMap<FittingKey, Rc<Vec<TiledMma>>>>,
    /// Reasons for which a layout of a tile of this shape is not put together along a mode; `None` where it is.
    along: RefCell<HashMap<AlongKey, Option<String>>>,
    /// Rows for which warps cannot decide.
    apart: RefCell<HashMap<ApartKey, Option<Apart>>>,
    /// True where threads hold of a broadcast's operand what they hold of its result.
    repeats: RefCell<HashMap<RepeatsKey, bool>>,
}

/// The layouts and shapes of a broadcast's result and operand.
type RepeatsKey = [(TvLayout, Vec<i64>); 2];

/// The layouts and shapes of a condition and of what is written, and the condition's mode.
type ApartKey = ([(TvLayout, Vec<i64>); 2], u32);

/// A layout, its shape, the mode, and whether it is reduced.
type AlongKey = (TvLayout, Vec<i64>, u32, bool);

impl Cache {
    /// A row for which the warps cannot decide, if there is one.
    fn apart(&self, [condition, of]: [(&TvLayout, Vec<i64>); 2], axis: u32, threads: i64) -> Option<Apart> {
        let key = ([(condition.0.clone(), condition.1), (of.0.clone(), of.1)], axis);
        if let Some(known) = self.apart.borrow().get(&key) {
            return *known;
        }
        let [(condition, shape), (of, of_shape)] = &key.0;
        let found = rows::apart((condition, shape), axis, (of, of_shape), threads);
        self.apart.borrow_mut().insert(key, found);
        found
    }

    /// True if threads hold of a broadcast's operand what they hold of its result, which `holds` finds.
    fn repeats(&self, key: RepeatsKey, holds: impl FnOnce(&RepeatsKey) -> bool) -> bool {
        if let Some(known) = self.repeats.borrow().get(&key) {
            return *known;
        }
        let found = holds(&key);
        self.repeats.borrow_mut().insert(key, found);
        found
    }

    /// The reason for which a reduction, or a scan, does not go along a mode of this layout.
    fn refusal(&self, tv: &TvLayout, shape: &[i64], axis: u32, reduces: bool) -> Option<String> {
        let key = (tv.clone(), shape.to_vec(), axis, reduces);
        if let Some(known) = self.along.borrow().get(&key) {
            return known.clone();
        }
        let why = if reduces { reduce::refusal(tv, shape, axis) } else { Along::new(tv, shape, axis).err() };
        let reason = why.map(|why| why.to_string());
        self.along.borrow_mut().insert(key, reason.clone());
        reason
    }
}

/// The element types of C and A, the kind of product, the warps that are asked for, M, N and K, and the longest run along M.
type ProductKey = (DType, [DType; 2], MmaKind, Option<[i64; 2]>, (i64, i64, i64), i64);

/// The number of a product's arrangements, and the known layouts of C, A, B and what is beside them.
type FittingKey = (usize, [Option<TvLayout>; 5]);

impl<'a> Solver<'a> {
    /// Builds the constraints.
    ///
    /// # Errors
    ///
    /// A matrix product that no instruction does.
    pub fn new(
        verified: &'a Program,
        divisibility: &'a Divisibility<'a>,
        arch: Arch,
        statements: &'a [(&'a Stmt, usize)],
    ) -> Result<Self, Diagnostic> {
        Solver::with(verified, divisibility, arch, statements, Rc::default())
    }

    /// [`new`](Self::new), with what solvers of like programs for as many threads of the same architecture have found.
    ///
    /// # Errors
    ///
    /// A matrix product that no instruction does.
    pub fn with(
        verified: &'a Program,
        divisibility: &'a Divisibility<'a>,
        arch: Arch,
        statements: &'a [(&'a Stmt, usize)],
        cache: Rc<Cache>,
    ) -> Result<Self, Diagnostic> {
        let constraints = constraints(verified, divisibility, statements);
        let mut touching = vec![Vec::new(); verified.tensors.len()];
        for (i, constraint) in constraints.iter().enumerate() {
            for tensor in constraint.tensors() {
                touching[tensor.0 as usize].push(i);
            }
        }
        let mut members: Vec<Vec<TensorId>> = constraints.iter().map(Constraint::tensors).collect();
        let mut products = Vec::new();
        let mut last_product = vec![None; verified.tensors.len()];
        for (i, (stmt, _)) in statements.iter().enumerate() {
            match &stmt.kind {
                // The operand of a gather is in no constraint with the others.
                StmtKind::Gather { dst, src, index, .. } => members.push(vec![*dst, *src, *index]),
                StmtKind::Gemm { c, a, b, meta, scales, .. } => {
                    products.push(i);
                    for t in [c, a, b].into_iter().chain(meta).chain(scales.iter().flatten()) {
                        last_product[t.0 as usize] = Some(i);
                    }
                }
                _ => {}
            }
        }
        let mut groups = vec![Vec::new(); verified.tensors.len()];
        for (number, group) in members.iter().enumerate() {
            group.iter().for_each(|t| groups[t.0 as usize].push(number));
        }
        let anchors = Solver::anchors(verified, divisibility, statements, &constraints);
        let mut solver = Solver {
            verified,
            divisibility,
            arch,
            statements,
            touching,
            members,
            groups,
            products,
            last_product,
            arrangements: Vec::new(),
            cache,
            joined: anchors::joined(&anchors, &constraints),
            stored_casts: anchors::stored_casts(verified, statements, &anchors, &constraints),
            reduced: anchors::reduced(verified, &constraints),
            anchors,
            constraints,
            touched: verified.touched(),
            steps: Cell::new(0),
        };
        let none = Rc::new(TiledMmas::default());
        for i in 0..statements.len() {
            let arrangements = solver.arrangements(i)?.unwrap_or_else(|| none.clone());
            solver.arrangements.push(arrangements);
        }
        Ok(solver)
    }

    /// The constraints.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// The component of each register tensor.
    pub fn components(&self) -> Vec<Option<usize>> {
        components(self.verified, &self.constraints)
    }

    /// Steps that searches have taken so far (see [`Budget::steps`]).
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    fn step(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_add(steps));
    }

    /// The place of a statement in the source text.
    fn span(&self, id: StmtId) -> Origin {
        let stmt = self.statements.iter().find(|(stmt, _)| stmt.id == id);
        stmt.map_or(Origin::Unknown, |(stmt, _)| stmt.span)
    }

    fn words(&self) -> Words<'_> {
        Words { verified: self.verified, statements: self.statements }
    }

    fn name(&self, id: TensorId) -> &str {
        &self.verified.tensor(id).name
    }

    fn too_large(&self, id: TensorId) -> Diagnostic {
        let tensor = self.verified.tensor(id);
        Diagnostic::new(Code::BadValue, tensor.span, format!("`{}` is too large to be laid out", tensor.name))
    }

    /// M, N and K of product `i`.
    pub(crate) fn extents(&self, i: usize) -> (i64, i64, i64) {
        self.arrangements[i].extents
    }
}
