//! Mutants of a program's text: mistakes that only its author makes, which no single instruction shows. Each is compiled like any program.

use tilewright_machine::Memory;
use tilewright_tile::{
    Expr, IntOp, OperandMut, Program, Stmt, TensorId, TensorKind, TensorRef, statement_text,
};

use super::mutant::{Edit, Kind, Mutant};

/// Every such mutant of a program.
pub(super) fn mutants(program: &Program) -> Vec<Mutant> {
    let mut all = Vec::new();
    let mut add = |kind, what: String, origin: String, mutated: Program| {
        let (block, edit) = (Vec::new(), Edit::Program(Box::new(mutated)));
        all.push(Mutant { kind, what, origin, ordinal: 0, block, index: 0, edit });
    };
    // A stage of a tensor with stages of its own: the next one instead.
    let mut number = 0;
    while let Some(sites) = at(program, number, |stmt| sites(program, stmt)) {
        for (reference, mode) in sites {
            let mut mutated = program.clone();
            let mut text = (String::new(), String::new());
            change(&mut mutated, number, |stmt| {
                text.1 = statement_text(program, stmt);
                if let Some(r) = references(stmt).into_iter().nth(reference) {
                    let extent = extent(program, r.tensor, mode);
                    text.0 = program.tensor(r.tensor).name.clone();
                    if let (Some(Some(index)), Some(extent)) = (r.index.get_mut(mode), extent) {
                        let next = Expr::binary(IntOp::Add, index.clone(), Expr::Int(1));
                        *index = Expr::binary(IntOp::Rem, next, extent);
                    }
                }
            });
            add(Kind::Slot, format!("{}: the next in mode {mode}", text.0), text.1, mutated);
        }
        number += 1;
    }
    // The buffers of a tensor that has several: the first instead of each.
    for id in buffered(program) {
        let mut mutated = program.clone();
        every(&mut mutated.body, &mut |stmt| {
            for r in references(stmt).into_iter().filter(|r| r.tensor == id) {
                r.index.iter_mut().flatten().for_each(|index| *index = Expr::Int(0));
            }
        });
        let name = program.tensor(id).name.clone();
        add(Kind::Reuse, "the first buffer for all".to_string(), name, mutated);
    }
    // A shared tensor that another one like it could be taken for.
    let shared: Vec<TensorId> =
        (0..program.tensors.len() as u32).map(TensorId).filter(|id| own(program, *id)).collect();
    for (k, second) in shared.iter().enumerate() {
        let tensor = |id: &TensorId| program.tensor(*id);
        let shape = |id: &TensorId| match &tensor(id).kind {
            TensorKind::Shared { shape, .. } => Some(shape.clone()),
            _ => None,
        };
        let like =
            |first: &&TensorId| tensor(first).dtype == tensor(second).dtype && shape(first) == shape(second);
        let Some(first) = shared[..k].iter().find(like) else { continue };
        let mut mutated = program.clone();
        every(&mut mutated.body, &mut |stmt| {
            references(stmt).into_iter().filter(|r| r.tensor == *second).for_each(|r| r.tensor = *first);
        });
        add(Kind::Reuse, format!("`{}` for it", tensor(first).name), tensor(second).name.clone(), mutated);
    }
    all
}

/// True if a tensor is a shared one that belongs to no pipeline.
fn own(program: &Program, id: TensorId) -> bool {
    program.tensor(id).memory() == Memory::Shared
        && !program.pipelines.iter().any(|p| p.tensors.contains(&id))
}

/// The extent of a mode of a shared tensor.
fn extent(program: &Program, id: TensorId, mode: usize) -> Option<Expr> {
    match &program.tensor(id).kind {
        TensorKind::Shared { shape, .. } => shape.get(mode).cloned(),
        _ => None,
    }
}

/// The tensors that a statement names with indices.
fn references(stmt: &mut Stmt) -> Vec<&mut TensorRef> {
    let reference = |operand| if let OperandMut::Reference(_, r) = operand { Some(r) } else { None };
    stmt.kind.operands_mut().into_iter().filter_map(reference).collect()
}

/// The indices of shared tensors in a statement: which reference, which mode.
fn sites(program: &Program, stmt: &Stmt) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for (k, r) in references(&mut stmt.clone()).into_iter().enumerate() {
        if own(program, r.tensor) {
            let fixed = r.index.iter().enumerate().filter(|(_, index)| index.is_some());
            all.extend(fixed.map(|(mode, _)| (k, mode)));
        }
    }
    all
}

/// Shared tensors of no pipeline that statements name with indices that are not all the same number.
fn buffered(program: &Program) -> Vec<TensorId> {
    let mut found: Vec<TensorId> = Vec::new();
    let mut number = 0;
    while let Some(ids) = at(program, number, |stmt| {
        let mut stmt = stmt.clone();
        let named = references(&mut stmt).into_iter();
        let varies =
            named.filter(|r| own(program, r.tensor) && r.index.iter().flatten().any(|i| *i != Expr::Int(0)));
        varies.map(|r| r.tensor).collect::<Vec<_>>()
    }) {
        for id in ids {
            if !found.contains(&id) {
                found.push(id);
            }
        }
        number += 1;
    }
    found
}

/// Calls `f` with every statement, the outer ones first.
fn every(body: &mut [Stmt], f: &mut dyn FnMut(&mut Stmt)) {
    for stmt in body {
        f(stmt);
        if let Some(inner) = stmt.kind.body_mut() {
            every(inner, f);
        }
    }
}

/// Applies `f` to the statement of this number, in the order of [`every`].
fn at<T>(program: &Program, number: usize, f: impl Fn(&Stmt) -> T) -> Option<T> {
    let (mut next, mut found) = (0, None);
    every(&mut program.body.clone(), &mut |stmt| {
        if next == number {
            found = Some(f(stmt));
        }
        next += 1;
    });
    found
}

/// Changes the statement of this number.
fn change(program: &mut Program, number: usize, mut f: impl FnMut(&mut Stmt)) {
    let mut next = 0;
    every(&mut program.body, &mut |stmt| {
        if next == number {
            f(stmt);
        }
        next += 1;
    });
}
