//! The integers of a kernel that must fit in 32 bits, as a list that is made without sizes.
//!
//! Each entry is an expression over sizes, block indices, elements, integer parameters and counters; counters have ranges, which earlier entries give. The list
//! is all that a check at given sizes needs of the program: `ranges.rs` goes through it here, and a launch through what a compiler makes of it.

use super::executable::Executable;
use super::launch::extent_of_grid;
use super::quote::Quote;
use crate::core::Coord;
use crate::diagnostic::Origin;
use crate::expr::{Axis, Expr, IntOp, SymbolId};
use crate::program::{Operand, ParamId, ParamKind, Stmt, StmtKind, TensorRef, TileOrder};

/// An entry of the list.
#[derive(Clone, PartialEq, Debug)]
pub enum Bound {
    /// The expression, each integer in it, and its value with a distance added fit in 32 bits.
    Fits {
        /// The words for it in messages.
        what: Quote,
        /// The expression.
        expr: Expr,
        /// The distance.
        reach: i128,
    },
    /// A counter takes the values from the least of an expression to the greatest of another, to which a number is added. If there are none, the
    /// entries of its body, which follow, do not matter.
    Range {
        /// The words for both expressions in messages.
        what: Quote,
        /// The counter.
        counter: SymbolId,
        /// The expression of its least value.
        least: Expr,
        /// The expression of its greatest value.
        most: Expr,
        /// The number that is added.
        beyond: i64,
        /// The number of entries of its body.
        body: usize,
    },
    /// The entries that follow matter where a condition may hold.
    When {
        /// The words for it in messages.
        what: Quote,
        /// The condition.
        condition: Expr,
        /// The number of entries that it is for.
        body: usize,
    },
}

struct Collector<'a, P> {
    program: &'a P,
    bounds: Vec<Bound>,
}

impl<P: Executable> Collector<'_, P> {
    fn fits(&mut self, what: Quote, expr: &Expr) {
        self.bounds.push(Bound::Fits { what, expr: expr.clone(), reach: 0 });
    }

    /// Strides have 64 bits: sums and products of what has 32.
    fn stride(&mut self, what: &Quote, e: &Expr) {
        match e {
            Expr::Int(_) => {}
            Expr::Binary(IntOp::Add | IntOp::Mul, a, b) => {
                self.stride(what, a);
                self.stride(what, b);
            }
            other => self.fits(what.clone(), other),
        }
    }

    fn reference(&mut self, reference: &TensorRef<P::Form>, span: Origin) {
        let tile = self.program.tile(reference);
        let name = self.program.names().tensor(reference.tensor);
        for (_, index) in &tile.fixed {
            // A slot is the number of a stage.
            if let Coord::Expr(index) = P::coord(index) {
                self.fits(Quote::new(format!("an index of `{name}`"), span), &index);
            }
        }
        let Some(global) = &tile.global else { return };
        let what = Quote::new(format!("an offset of `{name}`"), span);
        let end = Quote::new(format!("the end of `{name}`"), span);
        for (extent, _, step) in global.folded.iter().flat_map(|folded| &folded.leaves) {
            self.fits(end.clone(), &(extent.clone() * *step));
        }
        for (dim, base) in global.base.iter().enumerate() {
            self.fits(what.clone(), base);
            self.fits(end.clone(), &global.shape[dim]);
            let leaves = global.modes.iter().flatten().filter(|(_, d, _)| *d as usize == dim);
            let reach: i128 =
                leaves.map(|(extent, _, scale)| i128::from(extent - 1) * i128::from(*scale)).sum();
            self.bounds.push(Bound::Fits { what: what.clone(), expr: base.clone(), reach });
        }
    }

    /// A counter's values, and the entries of its body, which `body` adds.
    fn counting(
        &mut self,
        what: Quote,
        counter: SymbolId,
        (least, most, beyond): (Expr, Expr, i64),
        body: impl FnOnce(&mut Self),
    ) {
        let at = self.bounds.len();
        self.bounds.push(Bound::Range { what, counter, least, most, beyond, body: 0 });
        body(self);
        let added = self.bounds.len() - at - 1;
        if let Bound::Range { body, .. } = &mut self.bounds[at] {
            *body = added;
        }
    }

    fn block(&mut self, body: &[Stmt<P::Form>]) {
        body.iter().for_each(|stmt| self.statement(stmt));
    }

    fn statement(&mut self, stmt: &Stmt<P::Form>) {
        let quote = |text: &str| Quote::new(text, stmt.span);
        let nothing = |_: &mut Self| {};
        match &stmt.kind {
            StmtKind::For { counter, lo, hi, condition, body } => {
                let name = self.program.names().symbol(*counter);
                let what = quote(&format!("a bound of the loop over `{name}`"));
                self.counting(what, *counter, (lo.clone(), hi.clone(), -1), |list| {
                    if let Some(condition) = condition {
                        list.fits(quote("the condition of a loop"), condition);
                    }
                    list.block(body);
                });
            }
            StmtKind::If { condition, body, .. } => {
                let at = self.bounds.len();
                let what = quote("the condition of a branch");
                self.bounds.push(Bound::When { what, condition: condition.clone(), body: 0 });
                self.block(body);
                let added = self.bounds.len() - at - 1;
                if let Bound::When { body, .. } = &mut self.bounds[at] {
                    *body = added;
                }
            }
            StmtKind::Ticket { symbol, flag, count } => {
                for entry in &flag.index {
                    self.fits(quote("the index of a flag"), entry);
                }
                // Of another number a run is refused.
                let range = (Expr::Int(0), count.max(1), -1);
                self.counting(quote("the number of tickets"), *symbol, range, nothing);
            }
            StmtKind::Tiles { row, col, previous, rows, cols, order, body, .. } => {
                let [of_rows, of_cols] =
                    ["the number of rows of tiles", "the number of columns of tiles"].map(quote);
                self.fits(of_rows.clone(), rows);
                self.fits(of_cols.clone(), cols);
                // The previous iteration's tile, or one behind the last; also in the `drain` behind the loop.
                for (counter, (extent, what)) in
                    previous.iter().flatten().zip([(rows, &of_rows), (cols, &of_cols)])
                {
                    self.counting(what.clone(), *counter, (extent.min(0), extent.max(0), 0), nothing);
                }
                // Past the last tile, a block's number goes one step too far.
                let tiles = rows.max(0) * cols.max(0) + Expr::Block(Axis::X);
                self.bounds.push(Bound::Fits { what: quote("the number of tiles"), expr: tiles, reach: 1 });
                // A number of no tile stands for one outside where tiles are listed.
                let [rows, cols] = match order {
                    TileOrder::Listed { .. } => [(rows.max(0), 0), (cols.max(1), -1)],
                    _ => [(rows.clone(), -1), (cols.clone(), -1)],
                };
                self.counting(of_rows, *row, (Expr::Int(0), rows.0, rows.1), |list| {
                    list.counting(of_cols, *col, (Expr::Int(0), cols.0, cols.1), |list| list.block(body));
                });
            }
            kind => {
                for operand in kind.operands() {
                    match operand {
                        Operand::Reference(_, r) => self.reference(r, stmt.span),
                        Operand::Expr(e) => self.fits(quote("an integer of the kernel"), e),
                        Operand::Body(body) => self.block(body),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The list of a program.
pub fn bounds(program: &impl Executable) -> Vec<Bound> {
    let mut list = Collector { program, bounds: Vec::new() };
    for (i, extent) in program.grid().iter().enumerate() {
        list.fits(extent_of_grid(program, i), extent);
    }
    for (i, param) in program.params().iter().enumerate() {
        if let ParamKind::Tensor { shape, .. } = &param.kind {
            for extent in shape {
                list.fits(Quote::new(format!("an extent of `{}`", param.name), param.span), extent);
            }
            for stride in program.strides(ParamId(i as u32)) {
                list.stride(&Quote::new(format!("a stride of `{}`", param.name), param.span), stride);
            }
        }
    }
    program.bodies().into_iter().for_each(|body| list.block(body));
    list.bounds
}
