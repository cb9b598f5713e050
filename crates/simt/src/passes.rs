//! Clean-up passes. Folding, sharing and hoisting happen in the [`Builder`](crate::Builder); what is left is here.

use crate::function::{Function, Inst, Op, Operand};

/// Removes pure instructions whose values nothing uses, and loops and branches with nothing in them.
/// Needs: nothing. Keeps: the order of everything else. Returns whether it changed anything.
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
