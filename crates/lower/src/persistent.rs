//! Persistent loops: walks of a block over tiles, and the tile of the iteration before.

use tilewright_machine::ScalarOp;
use tilewright_simt::{Builder, Operand, Reg, Special};
use tilewright_tile::order::{self, Arithmetic};
use tilewright_tile::{Diagnostic, Expr, Origin, Stmt, SymbolId, TileOrder};

use crate::scalar::{self, add, int};
use crate::{Lower, internal};

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
    /// `for (row, col) previous (i, j) in tiles(rows, cols, order)`.
    pub(crate) fn tiles(
        &mut self,
        counters: [SymbolId; 2],
        previous: Option<[SymbolId; 2]>,
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
        if let Some(previous) = previous {
            let array = self.b.add_array("tile.before", 2);
            regs = vec![Reg { array, index: 0 }, Reg { array, index: 1 }];
            self.units.previous.extend(previous.into_iter().zip(regs.iter().copied()));
            // Before the first tile: one outside.
            for (reg, extent) in regs.iter().zip([rows, cols]) {
                self.b.write(*reg, extent);
            }
        }
        let counter = self.b.open_loop();
        let (r, c) = order::tile(&mut Emit(&mut self.b), order, counter.into(), rows, cols);
        self.symbols.extend(counters.into_iter().zip([r, c]));
        self.read_before(previous);
        self.loops += 1;
        let result = self.block(body);
        self.loops -= 1;
        self.settle(None);
        for (reg, now) in regs.into_iter().zip([r, c]) {
            self.b.write(reg, now);
        }
        for counter in counters.iter().chain(previous.iter().flatten()) {
            self.symbols.remove(counter);
        }
        self.b.close_loop(counter, first, all, step);
        result
    }

    /// `drain`, after the loop over tiles whose last it knows.
    pub(crate) fn drain(
        &mut self,
        previous: [SymbolId; 2],
        body: &[Stmt],
        span: Origin,
    ) -> Result<(), Diagnostic> {
        if !previous.iter().all(|counter| self.units.previous.contains_key(counter)) {
            return Err(internal(span, "a `drain` without its loop"));
        }
        self.read_before(Some(previous));
        let result = self.block(body);
        for counter in previous {
            self.symbols.remove(&counter);
        }
        result
    }

    /// Gives the counters of the previous iteration's tile their values.
    fn read_before(&mut self, previous: Option<[SymbolId; 2]>) {
        for counter in previous.into_iter().flatten() {
            if let Some(reg) = self.units.previous.get(&counter) {
                let value = self.b.read(*reg);
                self.symbols.insert(counter, value);
            }
        }
    }
}
