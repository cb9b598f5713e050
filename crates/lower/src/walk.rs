//! Walks over tiles: from a tile's number to its row and column.

use std::collections::BTreeMap;

use tilewright_machine::ScalarOp;
use tilewright_simt::{Build, Builder, Operand, Reg, Special};
use tilewright_synth::Divisibility;
use tilewright_tile::core::{Program, TileOrder};
use tilewright_tile::rasterization::{self, Arithmetic};
use tilewright_tile::{Expr, StmtId, SymbolId};

use crate::scalar::{self, Division, add, condition, int};

/// The tiles that a block walks, where they are not dealt out.
pub struct Walk {
    /// Rows and columns of tiles, and their product.
    pub rows: Operand,
    pub cols: Operand,
    pub tiles: Operand,
    /// The number of the block's first tile, and the distance to its next.
    pub first: Operand,
    pub step: Operand,
}

impl Walk {
    /// The walk over so many tiles; `symbols` are the values of sizes and counters.
    pub fn new(
        b: &mut Builder,
        program: &Program,
        (rows, cols): (&Expr, &Expr),
        divisibility: &Divisibility<'_>,
        symbols: &BTreeMap<SymbolId, Operand>,
    ) -> Walk {
        let expr = |b: &mut Builder, e: &Expr| {
            scalar::expr_dividing(b, divisibility, &|id| symbols[&id], e, Division::Reciprocal)
        };
        let cluster = i64::from(program.cluster());
        let (rows, cols) = (expr(b, rows), expr(b, cols));
        let tiles = b.scalar(ScalarOp::MulI32, &[rows, cols]);
        let block = Operand::Value(b.special(Special::BlockIndex(0)));
        let first = scalar::divide(b, block, cluster);
        let blocks = expr(b, &program.grid.first().cloned().unwrap_or(Expr::Int(1)));
        let step = scalar::divide(b, blocks, cluster);
        Walk { rows, cols, tiles, first, step }
    }

    /// Row and column of the tile of a number.
    pub fn tile(&self, b: &mut Builder, order: &TileOrder, number: Operand) -> [Operand; 2] {
        rasterization::tile(&mut Emit(b), order, number, self.rows, self.cols).into()
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
            Operand::Value(_) => self.0.scalar(ScalarOp::DivU32, &[a, b]),
        }
    }
    fn rem(&mut self, a: Operand, b: Operand) -> Operand {
        match b {
            Operand::Imm(divisor) => scalar::remainder(self.0, a, divisor as i64),
            // The quotient is asked for too.
            Operand::Value(_) => {
                let whole = self.0.scalar(ScalarOp::DivU32, &[a, b]);
                let whole = self.0.scalar(ScalarOp::MulI32, &[whole, b]);
                self.0.scalar(ScalarOp::SubI32, &[a, whole])
            }
        }
    }
    fn min(&mut self, a: Operand, b: Operand) -> Operand {
        self.0.scalar(ScalarOp::MinI32, &[a, b])
    }
}

/// The tile with which a loop over tiles begins, computed before the loop by the thread that does all of its part.
#[derive(Clone, Copy)]
pub struct FirstTile {
    /// The number of the part.
    pub part: usize,
    /// The loop.
    pub statement: StmtId,
    /// Row and column of the tile at hand.
    pub tile: [Reg; 2],
}

impl FirstTile {
    /// Row and column of the tile of a number: those at hand for the first of the walk, and else computed.
    pub fn or_next(
        self,
        b: &mut Builder,
        (walk, order): (&Walk, &TileOrder),
        number: Operand,
    ) -> [Operand; 2] {
        if let Some(next) = condition(b, ScalarOp::NeI32, number, walk.first) {
            b.only_where(next, |b| self.compute(b, (walk, order), number));
        }
        self.tile.map(|reg| b.read(reg))
    }

    /// Computes row and column of the tile of a number.
    pub fn compute(self, b: &mut Builder, (walk, order): (&Walk, &TileOrder), number: Operand) {
        let tile = walk.tile(b, order, number);
        for (reg, of) in self.tile.into_iter().zip(tile) {
            b.write(reg, of);
        }
    }
}
