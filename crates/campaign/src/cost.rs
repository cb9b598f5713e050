//! A bound on what the interpreter and the simulator have to do for a program, before they do it.

use tilewright::tile::{
    Axis, Expr, ParamId, ParamKind, Program, Scope, Stmt, StmtKind, SymbolId, SymbolKind, TensorKind,
};

/// Elements that all statements of all blocks touch together, and elements of all parameters.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Elements touched.
    pub work: f64,
    /// Elements of parameters.
    pub elements: f64,
}

/// Values of names: sizes at their defaults, counters where their loops begin.
struct Names<'a> {
    values: &'a [Option<i64>],
}

impl Scope for Names<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.values.get(id.0 as usize).copied().flatten()
    }

    fn block(&self, _axis: Axis) -> Option<i64> {
        Some(0)
    }

    fn element(&self, _param: ParamId, _index: &[i64]) -> Option<i64> {
        Some(7)
    }

    fn scalar(&self, _param: ParamId) -> Option<i64> {
        Some(7)
    }
}

/// The cost of a program at the defaults of its sizes.
pub fn cost(program: &Program) -> Cost {
    let mut values = vec![None; program.symbols.len()];
    for (i, symbol) in program.symbols.iter().enumerate() {
        values[i] = match &symbol.kind {
            SymbolKind::Size(default) => Some(*default),
            SymbolKind::Constant(default) => default.eval(&Names { values: &values }),
            SymbolKind::Let
            | SymbolKind::Ticket
            | SymbolKind::Counter
            | SymbolKind::UnrolledBy(_)
            | SymbolKind::Unrolled => None,
        };
    }
    let product = |extents: &[Expr], values: &[Option<i64>]| -> f64 {
        extents.iter().map(|e| value(e, values).unwrap_or(1).max(1) as f64).product()
    };
    let mut elements = 0.0;
    for param in &program.params {
        if let ParamKind::Tensor { shape, strides, array, .. } = &param.kind {
            let dense = product(shape, &values);
            let (number, shape) = shape.split_at(usize::from(*array).min(shape.len()));
            let spread = strides.as_ref().map_or(0.0, |strides| {
                let reach = |(e, s): (&Expr, &Expr)| {
                    value(e, &values).unwrap_or(1) as f64
                        * value(s, &values).unwrap_or(1).unsigned_abs() as f64
                };
                shape.iter().zip(strides).map(reach).sum()
            });
            elements += dense.max(product(number, &values) * spread);
        }
    }
    let blocks = product(&program.grid, &values);
    let each = body(program, &program.body, &mut values) + 32.0;
    Cost { work: blocks * each, elements }
}

fn value(expr: &Expr, values: &[Option<i64>]) -> Option<i64> {
    expr.eval(&Names { values })
}

/// Elements of a tensor, or the block's threads where they are more: each takes part in a statement on a small tile too.
fn size(program: &Program, stmt: &Stmt, values: &[Option<i64>]) -> f64 {
    let threads = value(&program.threads, values).unwrap_or(1) as f64;
    let mut most = 1.0f64;
    for id in stmt.kind.reads().into_iter().chain(stmt.kind.writes()) {
        let tensor = program.tensor(id);
        if let TensorKind::Register { shape, .. }
        | TensorKind::Shared { shape, .. }
        | TensorKind::Part { shape, .. } = &tensor.kind
        {
            let extent = |e: &Expr| value(e, values).unwrap_or(1).max(1) as f64;
            most = most.max(threads).max(shape.iter().map(extent).product());
        }
    }
    match &stmt.kind {
        // A product is as many elements as its accumulator, times K: the factor's elements over the accumulator's rows is a guess.
        StmtKind::Gemm { .. } | StmtKind::GemmAsync { .. } => most * 64.0,
        _ => most,
    }
}

fn body(program: &Program, stmts: &[Stmt], values: &mut [Option<i64>]) -> f64 {
    stmts.iter().map(|stmt| statement(program, stmt, values)).sum()
}

fn statement(program: &Program, stmt: &Stmt, values: &mut [Option<i64>]) -> f64 {
    let rounds = match &stmt.kind {
        StmtKind::Let { symbol, value: of } => {
            values[symbol.0 as usize] = value(of, values);
            0.0
        }
        StmtKind::For { counter, lo, hi, .. } => {
            let (low, high) = (value(lo, values), value(hi, values));
            values[counter.0 as usize] = low;
            match (low, high) {
                (Some(low), Some(high)) => high.saturating_sub(low).max(0) as f64,
                _ => 8.0,
            }
        }
        StmtKind::Tiles { row, col, rows, cols, .. } => {
            let (rows, cols) = (value(rows, values).unwrap_or(8), value(cols, values).unwrap_or(8));
            values[row.0 as usize] = Some(0);
            values[col.0 as usize] = Some(0);
            rows.max(0) as f64 * cols.max(0) as f64
        }
        _ => 1.0,
    };
    let inner = body(program, stmt.kind.body(), values);
    let own = if stmt.kind.body().is_empty() { size(program, stmt, values) } else { 1.0 };
    rounds * (inner + own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright::tile::parse;

    #[test]
    fn loops_and_blocks_multiply() {
        let text = |n: u32| {
            format!(
                "size n = {n}\nkernel f(x: f32[n, 64]) grid(n) threads(32) {{\n r = register_tensor(f32, [64])\n \
                 for i in 0..n {{\n fill(r, 0.0)\n }}\n}}"
            )
        };
        let work = |n| cost(&parse(&text(n)).expect("a program")).work;
        assert!(work(1000) > 5000.0 * work(10));
        assert!(work(10) > 6400.0);
        assert_eq!(cost(&parse(&text(10)).expect("a program")).elements, 640.0);
    }
}
