//! Checks of loops over tiles, and of counters.

use super::checker::{Allowed, Checker};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, SymbolId};
use crate::program::{StmtKind, TileOrder};
use crate::rasterization::MAX_HILBERT;

impl Checker<'_> {
    /// Does something while these counters count.
    pub(super) fn counting(
        &mut self,
        counters: impl IntoIterator<Item = SymbolId>,
        body: impl FnOnce(&mut Self),
    ) {
        let counters: Vec<usize> = counters.into_iter().map(|id| id.0 as usize).collect();
        for &index in &counters {
            if std::mem::replace(&mut self.counting[index], true) {
                let symbol = &self.program.symbols[index];
                let message = format!("the counter `{}` counts two loops at once", symbol.name);
                self.report(
                    Diagnostic::new(Code::DuplicateName, symbol.span, message)
                        .help("give each loop its own counter"),
                );
            }
        }
        body(self);
        counters.into_iter().for_each(|index| self.counting[index] = false);
    }

    /// `for (row, col) in tiles(rows, cols, order)`, but for its body.
    pub(super) fn tiles(&mut self, rows: &Expr, cols: &Expr, order: &TileOrder, span: Origin) {
        self.expr(rows, Allowed::All, span, "the number of rows of tiles");
        self.expr(cols, Allowed::All, span, "the number of columns of tiles");
        let number = match order {
            TileOrder::Grouped { rows, .. } => {
                Some((rows, "the number of rows of a group", i64::from(i32::MAX)))
            }
            TileOrder::Hilbert { order } => Some((order, "the order of a Hilbert curve", MAX_HILBERT)),
            TileOrder::Listed { table } => {
                self.listed(*table, span);
                None
            }
        };
        if let Some((number, what, most)) = number
            && let Some(value) = self.literal(number, span, what)
            && !(1..=most).contains(&value)
        {
            let message = format!("{what} is {value}; it must be from 1 to {most}");
            self.report(
                Diagnostic::new(Code::BadValue, span, message).help("e.g. `grouped(8)` or `hilbert(3)`"),
            );
        }
        if self.program.grid.iter().skip(1).any(|extent| *extent != Expr::Int(1)) {
            let message = "the blocks share tiles along x, and the grid has more than one along y or z";
            self.report(
                Diagnostic::new(Code::BadLaunch, span, message)
                    .related(self.program.grid_span, "the grid")
                    .help("write a grid of one dimension"),
            );
        }
    }

    /// A `drain` stands right behind the loop of whose last tile its counters are.
    pub(super) fn drain(&mut self, previous: [SymbolId; 2], before: Option<&StmtKind>, span: Origin) {
        if !matches!(before, Some(StmtKind::Tiles { previous: Some(of), .. }) if *of == previous) {
            let message =
                "a `drain` stands behind no loop over tiles of whose last it could tell".to_string();
            let help = "write `for (row, col) previous (i, j) in tiles(…) { … } drain { … }`";
            self.misplaced(span, message, help);
        }
    }
}
