//! Persistent loops over tiles, and the tile of the previous iteration.

use tilewright_machine::ScalarOp;
use tilewright_simt::{Build, Operand, Reg};
use tilewright_tile::core::{Stmt, TileOrder};
use tilewright_tile::{Dealer, Diagnostic, Expr, Origin, ParamId, SymbolId};

use crate::context::{Lower, internal};
use crate::scalar::{self, int};
use crate::walk::Walk;

impl Lower<'_> {
    /// `for (row, col) previous (i, j) in tiles(rows, cols, order, dynamic = counter)`, in which `= counter` may be missing, and `dynamic`.
    pub(crate) fn tiles(
        &mut self,
        stmt: &Stmt,
        counters: [SymbolId; 2],
        previous: Option<[SymbolId; 2]>,
        extents: (&Expr, &Expr),
        (order, dynamic): (&TileOrder, Option<Dealer>),
        body: &[Stmt],
    ) -> Result<(), Diagnostic> {
        let (divisibility, symbols) = (self.divisibility, &self.symbols);
        let walk = Walk::new(self.b, self.verified, extents, divisibility, symbols);
        let Walk { rows, cols, tiles, first, step } = walk;
        let begun = self.first_tile.filter(|known| known.statement == stmt.id);
        let count = match order {
            TileOrder::Listed { table } => {
                let extent = self.verified.buffer_shape(*table).first().cloned();
                self.expr(&extent.unwrap_or(Expr::Int(0)))
            }
            TileOrder::Grouped { .. } | TileOrder::Hilbert { .. } => tiles,
        };
        self.wait_for_copies(None);
        let mut regs = Vec::new();
        if let Some(previous) = previous {
            let array = self.b.add_array("tile.before", 2);
            regs = vec![Reg { array, index: 0 }, Reg { array, index: 1 }];
            self.state.previous_tile.extend(previous.into_iter().zip(regs.iter().copied()));
            // Before the first tile: one outside.
            for (reg, extent) in regs.iter().zip([rows, cols]) {
                self.b.write(*reg, extent);
            }
        }
        let queue = match dynamic {
            Some(dealer) => Some(self.begin_queue(dealer, (count, step), first, stmt.span)?),
            None => None,
        };
        let bounds =
            if queue.is_some() { [int(0), int(i64::from(i32::MAX)), int(1)] } else { [first, count, step] };
        self.in_loop(bounds, |lower, counter| {
            let mut number = Operand::Value(counter);
            if let Some(queue) = &queue {
                number = lower.next_number(queue);
            }
            if let TileOrder::Listed { table } = order {
                number = lower.listed_number(*table, number, tiles);
            }
            let [r, c] = match begun {
                Some(known) => known.or_next(lower.b, (&walk, order), number),
                None => walk.tile(lower.b, order, number),
            };
            lower.symbols.extend(counters.into_iter().zip([r, c]));
            lower.read_previous_tile(previous);
            lower.loops += 1;
            let result = lower.block(body);
            lower.loops -= 1;
            lower.wait_for_copies(None);
            for (reg, current) in regs.into_iter().zip([r, c]) {
                lower.b.write(reg, current);
            }
            if let Some(queue) = &queue {
                lower.hand_next(queue);
            }
            for counter in counters.iter().chain(previous.iter().flatten()) {
                lower.symbols.remove(counter);
            }
            result
        })
    }

    /// The number of the tile at a place of a list; `tiles` where it is that of none.
    fn listed_number(&mut self, table: ParamId, at: Operand, tiles: Operand) -> Operand {
        let symbols = &self.symbols;
        let number = scalar::listed(self.b, self.divisibility, &|id| symbols[&id], table, at);
        let above = self.b.scalar(ScalarOp::GeI32, &[number, int(0)]);
        let below = self.b.scalar(ScalarOp::LtI32, &[number, tiles]);
        let inside = self.b.scalar(ScalarOp::AndPred, &[above, below]);
        self.b.scalar(ScalarOp::Select, &[number, tiles, inside])
    }

    /// `drain`, after the loop over tiles whose last it knows.
    pub(crate) fn drain(
        &mut self,
        previous: [SymbolId; 2],
        body: &[Stmt],
        span: Origin,
    ) -> Result<(), Diagnostic> {
        if !previous.iter().all(|counter| self.state.previous_tile.contains_key(counter)) {
            return Err(internal(span, "a `drain` without its loop"));
        }
        self.read_previous_tile(Some(previous));
        let result = self.block(body);
        for counter in previous {
            self.symbols.remove(&counter);
        }
        result
    }

    /// Gives the counters of the previous iteration's tile their values.
    fn read_previous_tile(&mut self, previous: Option<[SymbolId; 2]>) {
        for counter in previous.into_iter().flatten() {
            if let Some(reg) = self.state.previous_tile.get(&counter) {
                let value = self.b.read(*reg);
                self.symbols.insert(counter, value);
            }
        }
    }
}
