//! Statements with the loops around them, and the values that expressions take there at sample sizes.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::axes::Labels;
use super::values::Values;
use crate::diagnostic::Origin;
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::program::{Operand, Program, Stmt, StmtKind, Symbol, SymbolKind, TensorRef, TileOrder, Use};
use crate::remedy;
use crate::verified::Verified;

/// Points of one expression that are looked at, at most; one with more is left alone.
const MOST_POINTS: u64 = 1 << 18;

/// A counter with the bounds of its loop.
#[derive(Clone, Debug)]
pub(super) struct Counter<'a> {
    pub(super) symbol: SymbolId,
    pub(super) lo: Expr,
    pub(super) hi: &'a Expr,
    /// The place of the loop.
    pub(super) span: Origin,
}

/// A statement of a block and what is around it.
#[derive(Clone)]
pub(super) struct Site<'a> {
    pub(super) stmt: &'a Stmt,
    /// The counters of the loops around, outermost first.
    pub(super) counters: Vec<Counter<'a>>,
    /// The role that it belongs to, by the place of its statement in the body.
    pub(super) role: Option<usize>,
    /// The conditions of the branches around.
    pub(super) conditions: Vec<&'a Expr>,
    /// True if the number of times that it runs is not that of its loops: behind `while`, a `break` or a condition that data decides.
    pub(super) open: bool,
}

/// The statements of a program, in the order of the text.
pub(super) struct Sites<'a> {
    pub(super) verified: &'a Verified,
    /// The values of sizes, by symbol.
    sizes: Vec<Option<i64>>,
    pub(super) all: Vec<Site<'a>>,
    values: OnceCell<Values>,
    pub(super) labels: OnceCell<Labels>,
}

/// Values of sizes.
pub(super) struct Sample {
    values: Vec<Option<i64>>,
    pub(super) grid: [i64; 3],
    /// The sizes that are not as given, with their values.
    pub(super) changed: Vec<(SymbolId, i64)>,
}

/// The values of names at one block and in one iteration of each loop.
pub(super) struct Point<'a> {
    sample: &'a Sample,
    pub(super) block: [i64; 3],
    counters: Vec<(SymbolId, i64)>,
}

impl Scope for Point<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        let counter = self.counters.iter().rev().find(|(counter, _)| *counter == id);
        counter.map(|(_, value)| *value).or(self.sample.values.get(id.0 as usize).copied().flatten())
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(self.block[axis.index()])
    }
}

impl Sample {
    /// The values of sizes alone.
    pub(super) fn eval(&self, expr: &Expr) -> Option<i64> {
        expr.eval(&Point { sample: self, block: [0; 3], counters: Vec::new() })
    }

    /// The value in a block, outside of loops.
    pub(super) fn eval_in(&self, expr: &Expr, block: [i64; 3]) -> Option<i64> {
        expr.eval(&Point { sample: self, block, counters: Vec::new() })
    }

    /// ` at m = 1025`; nothing at the given sizes.
    pub(super) fn words(&self, program: &Program) -> String {
        let each: Vec<String> = self
            .changed
            .iter()
            .map(|(id, value)| format!("{} = {value}", program.symbol(*id).name))
            .collect();
        if each.is_empty() { String::new() } else { format!(" at {}", each.join(", ")) }
    }
}

/// The symbols and the axes of the grid in an expression.
pub(super) fn names(expr: &Expr, symbols: &mut BTreeSet<SymbolId>, axes: &mut [bool; 3]) {
    match expr {
        Expr::Int(_) | Expr::Scalar(_) => {}
        Expr::Symbol(id) => {
            symbols.insert(*id);
        }
        Expr::Block(axis) => axes[axis.index()] = true,
        Expr::Binary(_, a, b) => {
            names(a, symbols, axes);
            names(b, symbols, axes);
        }
        Expr::Element(_, index) => index.iter().for_each(|e| names(e, symbols, axes)),
    }
}

/// True if the expression has the symbol.
pub(super) fn mentions(expr: &Expr, symbol: SymbolId) -> bool {
    let (mut symbols, mut axes) = (BTreeSet::new(), [false; 3]);
    names(expr, &mut symbols, &mut axes);
    symbols.contains(&symbol)
}

/// The axes of the grid in an expression.
pub(super) fn axes(expr: &Expr) -> [bool; 3] {
    let (mut symbols, mut axes) = (BTreeSet::new(), [false; 3]);
    names(expr, &mut symbols, &mut axes);
    axes
}

impl<'a> Sites<'a> {
    /// The statements of a program, at these values of sizes or their defaults.
    pub(super) fn of(verified: &'a Verified, given: &BTreeMap<String, i64>) -> Self {
        let value = |symbol: &Symbol| match symbol.kind {
            SymbolKind::Size(default) => Some(given.get(&symbol.name).copied().unwrap_or(default)),
            _ => None,
        };
        let sizes = verified.program().symbols.iter().map(value).collect();
        let mut sites =
            Sites { verified, sizes, all: Vec::new(), values: OnceCell::new(), labels: OnceCell::new() };
        sites.body(&verified.program().body, (&mut Vec::new(), &mut Vec::new()), None, false);
        sites
    }

    fn body(
        &mut self,
        body: &'a [Stmt],
        (counters, conditions): (&mut Vec<Counter<'a>>, &mut Vec<&'a Expr>),
        role: Option<usize>,
        open: bool,
    ) {
        let mut open = open;
        for stmt in body {
            let role = match stmt.kind {
                StmtKind::Role { .. } => Some(self.all.len()),
                _ => role,
            };
            let around = conditions.clone();
            self.all.push(Site { stmt, counters: counters.clone(), role, conditions: around, open });
            let (before, branches) = (counters.len(), conditions.len());
            let mut within = open;
            match &stmt.kind {
                StmtKind::For { counter, lo, hi, condition, .. } => {
                    counters.push(Counter { symbol: *counter, lo: lo.clone(), hi, span: stmt.span });
                    within |= condition.is_some() || stmt.kind.may_break();
                }
                StmtKind::Tiles { row, col, previous, rows, cols, .. } => {
                    let both = [(row, rows), (col, cols)];
                    let last = previous.iter().flat_map(|[i, j]| [(i, rows), (j, cols)]);
                    for (symbol, hi) in both.into_iter().chain(last) {
                        counters.push(Counter { symbol: *symbol, lo: Expr::Int(0), hi, span: stmt.span });
                    }
                }
                StmtKind::If { condition, .. } => {
                    let mut reads = false;
                    condition.elements(&mut |_| reads = true);
                    within |= reads;
                    conditions.push(condition);
                }
                StmtKind::IfAny { .. } => within = true,
                StmtKind::Drain { .. } => {
                    // The counters of the loop before it.
                    let loops = self.all.iter().rev().find_map(|site| match &site.stmt.kind {
                        StmtKind::Tiles { previous: Some([i, j]), rows, cols, .. } => {
                            Some([(*i, rows), (*j, cols)].map(|(symbol, hi)| Counter {
                                symbol,
                                lo: Expr::Int(0),
                                hi,
                                span: site.stmt.span,
                            }))
                        }
                        _ => None,
                    });
                    counters.extend(loops.into_iter().flatten());
                }
                StmtKind::Break { .. } => open = true,
                _ => {}
            }
            self.body(stmt.kind.body(), (counters, conditions), role, within);
            counters.truncate(before);
            conditions.truncate(branches);
        }
    }

    /// The values of tensors, which are worked out once.
    pub(super) fn values(&self) -> &Values {
        self.values.get_or_init(|| Values::of(self))
    }

    pub(super) fn program(&self) -> &'a Program {
        self.verified.program()
    }

    /// The grid that the views ask for at these sizes, if it is another.
    pub(super) fn wanted_grid(&self) -> Option<String> {
        let sample = self.samples(&[]).into_iter().next()?;
        remedy::grid(self.verified, &|e| sample.eval(e))
    }

    /// True for the counter of a loop.
    pub(super) fn is_counter(&self, id: SymbolId) -> bool {
        !matches!(self.program().symbol(id).kind, SymbolKind::Size(_) | SymbolKind::Constant(_))
    }

    /// The sizes, then with each that `of` names a little larger and a little smaller. Those at which the launch is none are left out.
    pub(super) fn samples(&self, of: &[&Expr]) -> Vec<Sample> {
        let program = self.program();
        let mut wanted = BTreeSet::new();
        of.iter().for_each(|e| names(e, &mut wanted, &mut [false; 3]));
        let mut all = vec![Vec::new()];
        for id in wanted {
            if let Some(size) = self.sizes.get(id.0 as usize).copied().flatten() {
                all.extend([size.saturating_add(1), size - 1].map(|value| vec![(id, value)]));
            }
        }
        all.into_iter()
            .filter_map(|changed| {
                let mut values = self.sizes.clone();
                for (id, value) in &changed {
                    if *value < 1 {
                        return None;
                    }
                    values[id.0 as usize] = Some(*value);
                }
                let mut sample = Sample { values, grid: [1; 3], changed };
                for (i, extent) in program.grid.iter().enumerate().take(3) {
                    sample.grid[i] = sample.eval(extent).filter(|extent| *extent > 0)?;
                }
                Some(sample)
            })
            .collect()
    }

    /// Calls `visit` at every block and every iteration that makes a difference to these expressions; false where their values are not
    /// known, or too many.
    pub(super) fn points(
        &self,
        sample: &Sample,
        counters: &[Counter<'a>],
        of: &[&Expr],
        visit: &mut dyn FnMut(&Point<'_>),
    ) -> bool {
        let (mut symbols, mut axes) = (BTreeSet::new(), [false; 3]);
        of.iter().for_each(|e| names(e, &mut symbols, &mut axes));
        // The bounds of a loop that counts are counted, too.
        let mut needed = Vec::new();
        for counter in counters.iter().rev() {
            if symbols.contains(&counter.symbol) {
                names(&counter.lo, &mut symbols, &mut axes);
                names(counter.hi, &mut symbols, &mut axes);
                needed.push(counter);
            }
        }
        needed.reverse();
        let extents: Vec<i64> = (0..3).map(|i| if axes[i] { sample.grid[i] } else { 1 }).collect();
        let blocks = extents.iter().fold(1i64, |product, extent| product.saturating_mul(*extent));
        if blocks as u64 > MOST_POINTS {
            return false;
        }
        let mut left = MOST_POINTS;
        for block in 0..blocks {
            let block =
                [block % extents[0], block / extents[0] % extents[1], block / extents[0] / extents[1]];
            let mut point = Point { sample, block, counters: Vec::new() };
            if !iterate(&needed, &mut point, &mut left, visit) {
                return false;
            }
        }
        true
    }

    /// The references of copies to views of a parameter, with their statements: reads, or writes.
    pub(super) fn references(&self, writes: bool) -> impl Iterator<Item = (&Site<'a>, &'a TensorRef)> {
        self.all.iter().flat_map(move |site| {
            let wanted = move |operand: Operand<'a>| match operand {
                Operand::Reference(used, r) if used.writes() == writes || used == Use::Accumulate => Some(r),
                _ => None,
            };
            site.stmt.kind.operands().into_iter().filter_map(wanted).map(move |r| (site, r))
        })
    }
}

/// Goes through the iterations of loops from the outermost on.
fn iterate(
    counters: &[&Counter<'_>],
    point: &mut Point<'_>,
    left: &mut u64,
    visit: &mut dyn FnMut(&Point<'_>),
) -> bool {
    let Some((first, rest)) = counters.split_first() else {
        visit(point);
        return true;
    };
    let (Some(lo), Some(hi)) = (first.lo.eval(point), first.hi.eval(point)) else { return false };
    let trips = (hi - lo).max(0) as u64;
    if trips > *left {
        return false;
    }
    *left -= trips;
    for value in lo..hi {
        point.counters.push((first.symbol, value));
        let known = iterate(rest, point, left, visit);
        point.counters.pop();
        if !known {
            return false;
        }
    }
    true
}

/// True for an order of tiles that a table gives: then not every tile need be there.
pub(super) fn is_listed(stmt: &Stmt) -> bool {
    matches!(&stmt.kind, StmtKind::Tiles { order: TileOrder::Listed { .. }, .. })
}
