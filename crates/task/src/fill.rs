//! Tensors with a value: `acc = tensor(f32, [M, N], 0.0)` is a tensor, and behind it a launch of a task that no text declares, whose only leaf
//! fills it. Everything behind the two front ends sees tasks and launches alone.

use tilewright_tile as tile;
use tilewright_tile::{Expr, SymbolId, TensorKind};

use crate::program::{
    Argument, ArgumentKind, Body, FloatArg, Formal, FormalKind, Inner, Launch, LaunchId, Leaf, LeafFormal,
    Number, Piece, Privilege, Program, Stmt, StmtKind, Symbol, SymbolKind, Task, TaskId, Tensor, TensorId,
    Variant,
};

/// Adds the launches that give tensors their values, with their tasks. Needs: a program without such launches.
pub(crate) fn fill(program: &mut Program) {
    let Program { symbols, numbers, tasks, .. } = program;
    let declared = tasks.len();
    let mut made = Vec::new();
    for variant in tasks.iter_mut().flat_map(|task| &mut task.variants) {
        let Body::Inner(inner) = &mut variant.body else { continue };
        let statements = std::mem::take(&mut inner.statements);
        inner.statements = block(statements, inner, &mut |tensor| {
            let value = match tensor.value? {
                FloatArg::Literal(value) => value,
                FloatArg::Constant(at) => numbers.get(at).map(|number: &Number| number.value)?,
                FloatArg::Formal(_) => return None,
            };
            made.push(task(tensor, value, symbols));
            Some(TaskId((declared + made.len() - 1) as u32))
        });
    }
    tasks.extend(made);
}

/// The statements of a block with the launches behind tensors that have a value.
fn block(
    statements: Vec<Stmt>,
    inner: &mut Inner,
    task_of: &mut impl FnMut(&Tensor) -> Option<TaskId>,
) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(statements.len());
    for mut stmt in statements {
        if let StmtKind::For { body, .. } = &mut stmt.kind {
            *body = block(std::mem::take(body), inner, task_of);
        }
        let (kind, span) = (stmt.kind.clone(), stmt.span);
        out.push(stmt);
        if let StmtKind::Tensor(id) = kind
            && let Some(task) = task_of(inner.tensor(id))
        {
            let launch = LaunchId(inner.launches.len() as u32);
            inner.launches.push(Launch { label: None, task, arguments: vec![whole(id, span)], span });
            out.push(Stmt { kind: StmtKind::Launch(launch), span });
        }
    }
    out
}

fn whole(tensor: TensorId, span: tile::Origin) -> Argument {
    Argument { kind: ArgumentKind::Tensor { piece: Piece::Whole(tensor), when: None }, span }
}

/// A task that fills tensors of the type and the rank of this one.
fn task(tensor: &Tensor, value: f64, symbols: &mut Vec<Symbol>) -> Task {
    let Tensor { dtype, span, .. } = *tensor;
    let modes = 0..tensor.shape.len() as u32;
    let first = symbols.len() as u32;
    let name = |mode: u32| format!("N{mode}");
    symbols.extend(modes.clone().map(|mode| Symbol { name: name(mode), kind: SymbolKind::Extent, span }));
    let extents: Vec<SymbolId> = modes.clone().map(|mode| SymbolId(first + mode)).collect();
    // In the fragment, the extents are the only symbols.
    let symbol =
        |mode: u32| tile::Symbol { name: name(mode), kind: tile::SymbolKind::Constant(Expr::Int(1)), span };
    let shape = modes.clone().map(|mode| Expr::Symbol(SymbolId(mode))).collect();
    let mut fragment = tile::Program {
        name: "all".to_string(),
        symbols: modes.clone().map(symbol).collect(),
        params: Vec::new(),
        grid: vec![Expr::Int(1)],
        grid_span: span,
        threads: Expr::Int(0),
        threads_span: span,
        resident: Expr::Int(1),
        cluster: vec![Expr::Int(1)],
        cluster_span: span,
        tensors: vec![tile::Tensor {
            name: tensor.name.clone(),
            dtype,
            kind: TensorKind::Register { shape, pinned: None },
            span,
            unnamed: tile::Unnamed::default(),
        }],
        pipelines: Vec::new(),
        barriers: Vec::new(),
        statements: tile::StmtIds::default(),
        body: Vec::new(),
        space: Vec::new(),
        sources: tile::Sources::default(),
    };
    let dst = tile::TensorId(0);
    fragment.body = vec![fragment.statement(tile::StmtKind::Fill { dst, value }, span)];
    let symbols = modes.map(SymbolId).zip(extents.iter().copied()).collect();
    let leaf = Leaf { fragment, formals: vec![LeafFormal::Tensor(dst)], symbols };
    let shape = extents.iter().map(|extent| Expr::Symbol(*extent)).collect();
    let kind = FormalKind::Tensor { privilege: Privilege::Write, dtype, shape };
    Task {
        name: "fill".to_string(),
        formals: vec![Formal { name: tensor.name.clone(), kind, span }],
        extents,
        variants: vec![Variant { name: "all".to_string(), body: Body::Leaf(Box::new(leaf)), span }],
        fills: true,
        span,
    }
}
