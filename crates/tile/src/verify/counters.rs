//! Counters in global memory: parameters that statements change without a view.

use tilewright_machine::DType;

use super::checker::{Allowed, Checker, count};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, IntOp};
use crate::printer::expr_text;
use crate::program::{
    Dealer, Flag, Param, ParamId, ParamKind, Program, Stmt, StmtKind, TensorKind, TileOrder,
};

/// The tiles that a loop walks.
#[derive(Clone, PartialEq)]
struct Walk {
    rows: Expr,
    cols: Expr,
    order: TileOrder,
}

/// The statement that first uses a counter: a loop, with the roles that walk its tiles, or a barrier of the grid.
pub(super) struct Counter {
    walk: Option<Walk>,
    span: Origin,
    roles: Vec<Option<usize>>,
}

/// The reason why a parameter is no counter, with what would be right.
fn no_counter(row: &Param) -> Option<(Code, String, &'static str)> {
    let name = &row.name;
    let help = "declare a counter as `next: i32[1]`";
    match &row.kind {
        ParamKind::Tensor { shape, .. } if !row.is_constant() && *shape != [Expr::Int(1)] => {
            Some((Code::ShapeMismatch, format!("`{name}` does not have one element"), help))
        }
        _ => no_words(row, help),
    }
}

/// The reason why elements of a parameter are no words by which blocks tell each other how far they are.
fn no_words(row: &Param, help: &'static str) -> Option<(Code, String, &'static str)> {
    let name = &row.name;
    match &row.kind {
        ParamKind::Scalar { .. } => Some((Code::TypeMismatch, format!("`{name}` is a number"), help)),
        ParamKind::Tensor { .. } if row.is_constant() => {
            let help = "a counter changes: remove `constant`";
            Some((Code::Misplaced, format!("`{name}` is `constant`"), help))
        }
        ParamKind::Tensor { .. } => (row.dtype != DType::I32)
            .then(|| (Code::TypeMismatch, format!("`{name}` is of type {}", row.dtype), help)),
    }
}

/// Parameters that have views.
fn viewed(program: &Program) -> impl Iterator<Item = (ParamId, Origin)> {
    program.tensors.iter().filter_map(|tensor| match &tensor.kind {
        TensorKind::View { param, .. } => Some((*param, tensor.span)),
        _ => None,
    })
}

/// The factors of a product: the number, and the others in an order that products of the same ones share.
fn factors(of: &Expr) -> (i64, Vec<String>) {
    fn collect(of: &Expr, number: &mut i64, others: &mut Vec<String>) {
        match of {
            Expr::Int(value) => *number = number.saturating_mul(*value),
            Expr::Binary(IntOp::Mul, a, b) => {
                collect(a, number, others);
                collect(b, number, others);
            }
            other => others.push(format!("{other:?}")),
        }
    }
    let (mut number, mut others) = (1, Vec::new());
    collect(of, &mut number, &mut others);
    others.sort();
    (number, others)
}

/// The statements of a body with those in them, each with true if it stands in no loop over tiles that the launch deals out.
fn statements<'a>(body: &'a [Stmt], outside: bool, found: &mut Vec<(&'a Stmt, bool)>) {
    for stmt in body {
        found.push((stmt, outside));
        let deals = matches!(stmt.kind, StmtKind::Tiles { dynamic: Some(Dealer::Launch), .. });
        statements(stmt.kind.body(), outside && !deals, found);
    }
}

impl Checker<'_> {
    /// `listed(table)`: a table of one mode whose elements are integers of the kernel.
    pub(super) fn listed(&mut self, table: ParamId, span: Origin) {
        self.expr(&Expr::Element(table, vec![Expr::Int(0)]), Allowed::All, span, "the list of tiles");
    }

    /// `dynamic` or `dynamic = counter` of a loop over tiles.
    pub(super) fn dealt(
        &mut self,
        dealer: Dealer,
        (rows, cols): (&Expr, &Expr),
        order: &TileOrder,
        span: Origin,
    ) {
        if let Some(counter) = dealer.counter() {
            let row = self.program.param(counter);
            if let Some((code, what, help)) = no_counter(row) {
                let message = format!("{what}, and counts how far the blocks are");
                let error = Diagnostic::new(code, span, message).related(row.span, "the parameter");
                self.report(error.help(help));
                return;
            }
        } else {
            self.cluster_a_tile((rows, cols), order, span);
        }
        let what = if dealer == Dealer::Launch { "the launch" } else { "a counter" };
        if self.depth != 1 + usize::from(self.role.is_some()) {
            let message = format!("a loop whose tiles {what} deals out stands in another statement");
            let help = match dealer {
                Dealer::Counter(_) => {
                    "every block walks the tiles of a counter once: write the loop at the outermost level of the kernel or of a role"
                }
                Dealer::Launch => {
                    "every block walks the tiles of the launch once: write the loop at the outermost level of the kernel or of a role"
                }
            };
            self.misplaced(span, message, help);
        }
        let walk = Some(Walk { rows: rows.clone(), cols: cols.clone(), order: order.clone() });
        let role = self.role;
        let known = match dealer {
            Dealer::Counter(counter) => self.counters.get_mut(&counter),
            Dealer::Launch => self.launched.as_mut(),
        };
        let Some(known) = known else {
            let first = Counter { walk, span, roles: vec![role] };
            match dealer {
                Dealer::Counter(counter) => _ = self.counters.insert(counter, first),
                Dealer::Launch => self.launched = Some(first),
            }
            return;
        };
        let first = known.span;
        let again = known.roles.contains(&role) || known.walk.is_none();
        let differs = known.walk != walk;
        known.roles.push(role);
        let name = dealer.counter().map(|counter| &*self.program.param(counter).name);
        match name {
            Some(name) if again => self.shared_counter(name, span, first),
            None if again => {
                let message = "the launch deals out the tiles of two loops";
                let error = Diagnostic::new(Code::Misplaced, span, message).related(first, "the other one");
                let help = "every block walks the tiles of the launch once: deal those of one loop out by a counter, `dynamic = next`";
                self.report(error.help(help));
            }
            name if differs => {
                let from = name.map_or("the launch".to_string(), |name| format!("`{name}`"));
                let message = format!("the roles that take tiles from {from} do not walk the same tiles");
                let error = Diagnostic::new(Code::Misplaced, span, message)
                    .related(first, "the loop of another role");
                self.report(error.help(
                    "write the same rows, columns and order in each role; every role gets the same sequence",
                ));
            }
            _ => {}
        }
    }

    /// Asks that the grid has a cluster for each tile: those that have not begun stand for theirs.
    fn cluster_a_tile(&mut self, (rows, cols): (&Expr, &Expr), order: &TileOrder, span: Origin) {
        let program = self.program;
        let mut tiles = Expr::binary(IntOp::Mul, rows.clone(), cols.clone());
        if let TileOrder::Listed { table } = order {
            match &program.param(*table).kind {
                ParamKind::Tensor { shape, .. } if shape.len() == 1 => tiles = shape[0].clone(),
                // Which is an error by itself.
                _ => return,
            }
        }
        let cluster = program.cluster.iter().cloned();
        let blocks = cluster.fold(tiles, |blocks, mode| Expr::binary(IntOp::Mul, mode, blocks));
        let grid = program.grid.first().cloned().unwrap_or(Expr::Int(1));
        if factors(&grid) != factors(&blocks) {
            let message = "the launch deals the tiles out, and its grid has not a cluster for each";
            let error =
                Diagnostic::new(Code::BadLaunch, span, message).related(program.grid_span, "the grid");
            let grid = expr_text(program, &blocks);
            self.report(error.help(format!(
                "write `grid({grid})`; with fewer blocks than tiles, deal them out by a counter: `dynamic = next`"
            )));
        }
    }

    /// No block waits for all others where some may never begin.
    pub(super) fn all_blocks_begin(&mut self) {
        let Some(launched) = self.launched.as_ref().map(|launched| launched.span) else { return };
        let meets = self.counters.values().find(|counter| counter.walk.is_none()).map(|counter| counter.span);
        if let Some(meets) = meets {
            let message = "`syncgrid` waits for blocks that may never begin";
            let error = Diagnostic::new(Code::Misplaced, meets, message);
            let error =
                error.related(launched, "clusters that run do the tiles of those that have not begun");
            self.report(error.help("deal the tiles out by a counter: `dynamic = next`"));
        }
        self.flags_of_all_blocks(launched);
    }

    /// No statement counts on what blocks do outside of tiles that the launch deals out: some never begin, and others do their tiles.
    fn flags_of_all_blocks(&mut self, launched: Origin) {
        let program = self.program;
        let mut all = Vec::new();
        statements(&program.body, true, &mut all);
        let signalled = |param: ParamId| {
            all.iter().find_map(|(stmt, outside)| match &stmt.kind {
                StmtKind::Signal { flag, .. } if *outside && flag.param == param => Some(stmt.span),
                _ => None,
            })
        };
        let why = "clusters that run do the tiles of those that have not begun";
        let help = "signal and count within the loop over tiles, each of which is done, or deal the tiles out by a counter: `dynamic = next`";
        let waits = all.iter().find_map(|(stmt, _)| match &stmt.kind {
            StmtKind::Await { flag, .. } => Some((stmt.span, flag.param, signalled(flag.param)?)),
            _ => None,
        });
        if let Some((span, param, signal)) = waits {
            let message = format!(
                "`wait` waits for `{}`, which blocks that never begin do not signal",
                program.param(param).name
            );
            let error = Diagnostic::new(Code::Misplaced, span, message)
                .related(signal, "a signal outside of the tiles")
                .related(launched, why);
            self.report(error.help(help));
        }
        let counts =
            all.iter().find(|(stmt, outside)| *outside && matches!(stmt.kind, StmtKind::Ticket { .. }));
        if let Some((ticket, _)) = counts {
            let message = "`ticket` counts blocks, of which some never begin";
            let error = Diagnostic::new(Code::Misplaced, ticket.span, message).related(launched, why);
            self.report(error.help(help));
        }
    }

    fn shared_counter(&mut self, name: &str, span: Origin, first: Origin) {
        let message = format!("`{name}` counts for two statements");
        let error = Diagnostic::new(Code::Misplaced, span, message).related(first, "the other one");
        let help = "a counter is for one loop of a role, or for the barriers of the grid: give each a counter of its own";
        self.report(error.help(help));
    }

    /// `syncgrid(counter)`.
    pub(super) fn sync_grid(&mut self, counter: ParamId, span: Origin) {
        let row = self.program.param(counter);
        if let Some((code, what, help)) = no_counter(row) {
            let message = format!("{what}, and counts how far the blocks are");
            self.report(Diagnostic::new(code, span, message).related(row.span, "the parameter").help(help));
            return;
        }
        let role = self.role;
        let Some(known) = self.counters.get(&counter) else {
            self.counters.insert(counter, Counter { walk: None, span, roles: vec![role] });
            return;
        };
        let first = known.span;
        if known.walk.is_some() {
            self.shared_counter(&row.name, span, first);
        } else if !known.roles.contains(&role) {
            let message = format!("two roles meet by `{}`", row.name);
            let error = Diagnostic::new(Code::Misplaced, span, message).related(first, "the other role");
            let help = "a role meets with the same role of all blocks: give each a counter of its own";
            self.report(error.help(help));
        }
    }

    /// The flag of a statement: an element of a parameter that nothing else touches.
    pub(super) fn flag(&mut self, flag: &Flag, span: Origin) {
        let row = self.program.param(flag.param);
        if let Some((code, what, help)) = no_words(row, "declare flags as `done: i32[blocks]`") {
            let message = format!("{what}, and its elements are flags");
            self.report(Diagnostic::new(code, span, message).related(row.span, "the parameter").help(help));
            return;
        }
        if let ParamKind::Tensor { shape, .. } = &row.kind
            && shape.len() != flag.index.len()
        {
            let [coordinates, modes] =
                [(flag.index.len(), "coordinate"), (shape.len(), "mode")].map(|(n, what)| count(n, what));
            let message = format!("the flag has {coordinates}, and `{}` {modes}", row.name);
            let error = Diagnostic::new(Code::ShapeMismatch, span, message);
            self.report(error.related(row.span, "the parameter").help("name an integer for each mode"));
        }
        for entry in &flag.index {
            self.expr(entry, Allowed::All, span, "the index of the flag");
        }
        self.flags.entry(flag.param).or_insert(span);
    }

    /// Nothing but loops over tiles and barriers of the grid uses their counters, and nothing but statements with flags touches these.
    pub(super) fn counters_are_apart(&mut self) {
        let both = self.flags.iter().find_map(|(id, at)| Some((*id, *at, self.counters.get(id)?.span)));
        if let Some((param, flag, counter)) = both {
            let message = format!("`{}` counts for two statements", self.program.param(param).name);
            let error = Diagnostic::new(Code::Misplaced, flag, message).related(counter, "the other one");
            self.report(error.help("give the flags a parameter of their own: `done: i32[blocks]`"));
        }
        let counters = self.counters.iter().map(|(id, of)| (*id, of.span));
        let flags = self.flags.iter().map(|(id, at)| (*id, *at));
        let found: Vec<(ParamId, Origin)> = counters.chain(flags).collect();
        for (param, span) in found {
            let row = self.program.param(param);
            let view = viewed(self.program).find(|(of, _)| *of == param).map(|(_, at)| at);
            if let Some(other) = view.or_else(|| self.elements.get(&param).copied()) {
                let message = format!(
                    "`{}` counts how far the blocks are, and the kernel uses it otherwise, too",
                    row.name
                );
                self.report(
                    Diagnostic::new(Code::Misplaced, span, message)
                        .related(other, "here")
                        .help("give the statement a parameter of its own: `next: i32[1]`"),
                );
            }
            (self.inputs[param.0 as usize], self.outputs[param.0 as usize]) = (true, true);
        }
    }
}
