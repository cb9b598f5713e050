//! Clean-up passes. Folding, sharing and hoisting happen in the [`Builder`](crate::Builder); what is left is here.

use crate::function::{Function, Inst, Op, Operand};

/// Removes pure instructions whose values nothing uses, the results of atomic operations that nothing uses, and loops and branches with nothing
/// in them. Needs: nothing. Keeps: the order of everything else. Returns whether it changed anything.
pub fn dead_code(function: &mut Function) -> bool {
    let mut changed = false;
    loop {
        let mut used = vec![false; function.values.len()];
        function.visit(&mut |inst: &Inst| {
            for operand in inst.op.operands() {
                if let Operand::Value(value) = operand {
                    used[value.0 as usize] = true;
                }
            }
        });
        if !sweep(&mut function.body, &used) {
            return changed;
        }
        changed = true;
    }
}

/// Applies a change to a body and to those within it, the outer ones first, and removes what is dead then. Returns whether it changed anything.
fn change_bodies(function: &mut Function, mut change: impl FnMut(&mut Vec<Inst>) -> bool) -> bool {
    fn within(body: &mut Vec<Inst>, change: &mut impl FnMut(&mut Vec<Inst>) -> bool) -> bool {
        let mut changed = change(body);
        for inst in body {
            match &mut inst.op {
                Op::For { body, .. } => changed |= within(body, change),
                Op::If { then, otherwise, .. } => {
                    changed |= within(then, change);
                    changed |= within(otherwise, change);
                }
                _ => {}
            }
        }
        changed
    }
    let changed = within(&mut function.body, &mut change);
    if changed {
        dead_code(function);
    }
    changed
}

/// Removes assertions and prints, and what computes their operands alone. Needs: nothing. Keeps: everything else. Returns whether it changed anything.
pub fn drop_diagnostics(function: &mut Function) -> bool {
    change_bodies(function, |body| {
        let before = body.len();
        body.retain(|inst| !matches!(inst.op, Op::Assert { .. } | Op::Print { .. }));
        body.len() != before
    })
}

/// Removes what instructions of PTX mean, and what computes that alone: who executes the instructions needs none of it. Needs: nothing. Keeps:
/// everything else. Returns whether it changed anything.
pub fn drop_meanings(function: &mut Function) -> bool {
    change_bodies(function, |body| {
        let mut changed = false;
        for inst in body {
            if let Op::Asm { means: means @ Operand::Value(_), .. } = &mut inst.op {
                *means = Operand::Imm(0);
                changed = true;
            }
        }
        changed
    })
}

fn sweep(body: &mut Vec<Inst>, used: &[bool]) -> bool {
    let before = body.len();
    let mut changed = false;
    for inst in body.iter_mut() {
        match &mut inst.op {
            Op::For { body, .. } => changed |= sweep(body, used),
            Op::If { then, otherwise, .. } => {
                changed |= sweep(then, used);
                changed |= sweep(otherwise, used);
            }
            Op::Atomic { dst, row, order, .. }
                if row.has_plain_form(*order) && dst.is_some_and(|dst| !used[dst.0 as usize]) =>
            {
                *dst = None;
                changed = true;
            }
            _ => {}
        }
    }
    body.retain(|inst| match &inst.op {
        Op::For { body, .. } => !body.is_empty(),
        Op::If { then, otherwise, .. } => !then.is_empty() || !otherwise.is_empty(),
        op => !(op.is_removable() && op.defines().is_some_and(|v| !used[v.0 as usize])),
    });
    changed || body.len() != before
}
