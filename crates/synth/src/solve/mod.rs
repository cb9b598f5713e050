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
//! What follows a product depends on what came before only through the layouts that it still meets (`Solver::frontier`): a
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

use tilewright_machine::Arch;
use tilewright_tile::core::{Program, Stmt, StmtKind, TileRef};
use tilewright_tile::{Code, Diagnostic, Origin, StmtId, TensorId};

use crate::constraint::{Constraint, components, constraints};
use crate::explain::Words;
use crate::facts::Facts;
use crate::gemm::{GemmLayouts, TiledMma};
use crate::tv::TvLayout;
pub(crate) use solution::nothing_found;
pub use solution::{Budget, Clash, Exhausted, Found, Registers};

/// Every statement, in the order of [`Program::visit`], with the depth of loops around it.
pub fn statements(verified: &Program) -> Vec<(&Stmt, usize)> {
    let mut all = Vec::new();
    verified.visit(&mut |stmt, depth| all.push((stmt, depth)));
    all
}

/// The thread-value constraints of a program, and how they are solved.
pub struct Solver<'a> {
    verified: &'a Program,
    facts: &'a Facts<'a>,
    arch: Arch,
    statements: &'a [(&'a Stmt, usize)],
    constraints: Vec<Constraint>,
    /// For each tensor the constraints that it takes part in.
    touching: Vec<Vec<usize>>,
    /// For each matrix product the arrangements that fit its tile; products of the same tile share them.
    arrangements: Vec<Rc<TiledMmas>>,
    /// The arrangements that agree with layouts of operands that are known, for products that share theirs.
    fitting: RefCell<HashMap<FittingKey, Rc<Vec<TiledMma>>>>,
    /// Copies between register tensors and other memories ([`Solver::anchors`]).
    anchors: Vec<Anchor>,
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
}

/// The arrangements of a product with the layouts of its operands. None for statements of other kinds.
#[derive(Default)]
struct TiledMmas {
    /// The first product that has them.
    first: usize,
    all: Vec<TiledMma>,
    layouts: Vec<GemmLayouts>,
}

/// The first product with the same arrangements, and the known layouts of C, A and B.
type FittingKey = (usize, [Option<TvLayout>; 3]);

impl<'a> Solver<'a> {
    /// Builds the constraints.
    ///
    /// # Errors
    ///
    /// A matrix product that no instruction does.
    pub fn new(
        verified: &'a Program,
        facts: &'a Facts<'a>,
        arch: Arch,
        statements: &'a [(&'a Stmt, usize)],
    ) -> Result<Self, Diagnostic> {
        let constraints = constraints(verified, statements);
        let mut touching = vec![Vec::new(); verified.tensors.len()];
        for (i, constraint) in constraints.iter().enumerate() {
            for tensor in constraint.tensors() {
                touching[tensor.0 as usize].push(i);
            }
        }
        let mut solver = Solver {
            verified,
            facts,
            arch,
            statements,
            constraints,
            touching,
            arrangements: Vec::new(),
            fitting: RefCell::default(),
            anchors: Solver::anchors(verified, facts, statements),
            touched: verified.touched(),
            steps: Cell::new(0),
        };
        let none = Rc::new(TiledMmas::default());
        for (i, (stmt, _)) in statements.iter().enumerate() {
            let StmtKind::Gemm { c, a, warps, .. } = &stmt.kind else {
                solver.arrangements.push(none.clone());
                continue;
            };
            let dtypes = |i: usize| match &statements[i].0.kind {
                StmtKind::Gemm { c, a, warps, .. } => {
                    let dtype = |t: &TensorId| verified.tensor(*t).dtype;
                    Some((dtype(c), dtype(a), warps))
                }
                _ => None,
            };
            let own = Some((verified.tensor(*c).dtype, verified.tensor(*a).dtype, warps));
            let like = (0..i).find(|j| dtypes(*j) == own && solver.extents(*j) == solver.extents(i));
            let arrangements = match like {
                Some(j) => solver.arrangements[j].clone(),
                None => Rc::new(solver.arrange(i)?),
            };
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

    /// Where a statement is in the source text.
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
        let StmtKind::Gemm { c, a, .. } = self.statements[i].0.kind else { return (1, 1, 1) };
        let shape = self.verified.shape(c);
        (shape[0], shape[1], self.verified.shape(a)[1])
    }
}
