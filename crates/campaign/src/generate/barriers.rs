//! Roles that meet at named barriers, take turns, or write to stages that they hold.

use super::draft::{Case, Draft, columns_layout, expression, rows_layout};
use crate::dice::Dice;

/// One of them.
pub fn any(dice: &mut Dice) -> Case {
    match dice.below(3) {
        0 => handed(dice),
        1 => turns(dice),
        _ => held(dice),
    }
}

/// One role writes a tile into shared memory, the other reads it, as often as the loops go; two barriers order them.
fn handed(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f32", "f16", "i32"]);
    let (m, n) = (128, 4 * dice.pick(&[2i64, 4, 8]));
    let rounds = dice.range(2, 4);
    let mut draft = Draft::default();
    let k = draft.size("k", rounds * n);
    for param in ["x", "y"] {
        draft.params.push(format!("{param}: {dtype}[{m}, {k}]"));
        draft.line(format!(
            "g{param} = global_view({param}, ({m}, {n}, ceil_div({k}, {n})) : (e0, e1, {n} * e1))"
        ));
    }
    draft.line(format!("s = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line("full = named_barrier()");
    draft.line("free = named_barrier()");
    let (by_rows, by_columns) = (rows_layout(dice, 128, m, n), columns_layout(128, m, n));
    draft.open("warpgroup write(1)");
    draft.open(format!("for i in 0..ceil_div({k}, {n})"));
    draft.line(format!("a = register_tensor({dtype}, [{m}, {n}], layout = {by_rows})"));
    draft.line("copy(gx[:, :, i], a)");
    draft.line("copy(a, s)");
    draft.line("arrive(full) // needed for s");
    draft.line("syncthreads(free) // needed for s");
    draft.close();
    draft.close();
    draft.open("warpgroup read(1)");
    draft.open(format!("for j in 0..ceil_div({k}, {n})"));
    draft.line(format!("b = register_tensor({dtype}, [{m}, {n}], layout = {by_columns})"));
    draft.line("syncthreads(full) // needed for s");
    draft.line("copy(s, b)");
    draft.line("arrive(free) // needed for s");
    draft.line("copy(b, gy[:, :, j])");
    draft.close();
    draft.close();
    let arch = dice.pick(&["sm_80", "sm_90a"]);
    Case { text: draft.text("1", 256, &[1]), arch, family: "barriers" }
}

/// Two or three roles change one tile in shared memory, each in its turn.
fn turns(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f32", "f16", "bf16"]);
    let (m, n) = (128, 4 * dice.pick(&[2i64, 4]));
    let roles = dice.range(2, 3);
    let mut draft = Draft::default();
    let rounds = dice.range(1, 4);
    let rounds = draft.size("r", rounds);
    for param in ["x", "y"] {
        draft.params.push(format!("{param}: {dtype}[{m}, {n}]"));
        draft.line(format!("g{param} = global_view({param}, ({m}, {n}) : (e0, e1))"));
    }
    draft.line(format!("s = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line("t = turns()");
    for role in 0..roles {
        let layout = if role % 2 == 0 { rows_layout(dice, 128, m, n) } else { columns_layout(128, m, n) };
        draft.open(format!("warpgroup role{role}(1)"));
        draft.line(format!("a{role} = register_tensor({dtype}, [{m}, {n}], layout = {layout})"));
        if role == 0 {
            draft.line("copy(gx, a0)");
            draft.open("in_turn t");
            draft.line("copy(a0, s)");
            draft.close();
        } else {
            draft.open("in_turn t");
            draft.close();
        }
        draft.open(format!("for step{role} in 0..{rounds}"));
        draft.open("in_turn t");
        draft.line(format!("copy(s, a{role})"));
        let text = expression(dice, &[format!("a{role}")], 2);
        draft.line(format!("a{role} = min(max(a{role} + {text}, -4.0), 4.0)"));
        // Lanes may read for each other.
        draft.line("syncthreads()");
        draft.line(format!("copy(a{role}, s)"));
        draft.close();
        draft.close();
        draft.open("in_turn t");
        if role == 0 {
            draft.line("copy(s, a0)");
        }
        draft.close();
        if role == 0 {
            draft.line("copy(a0, gy)");
        }
        draft.close();
    }
    let arch = dice.pick(&["sm_80", "sm_90a"]);
    Case { text: draft.text("1", 128 * roles, &[1]), arch, family: "turns" }
}

/// The role that holds a stage brings its tile into another layout through the stage itself, and may store it from there.
fn held(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f32", "f16", "bf16"]);
    let (m, n) = (128, 32 * dice.pick(&[1i64, 2]));
    let (stages, rounds) = (dice.range(1, 3), dice.range(1, 4));
    let asynchronous = dice.once_in(2);
    let mut draft = Draft::default();
    let k = draft.size("k", rounds * n);
    for param in ["x", "y"] {
        draft.params.push(format!("{param}: {dtype}[{m}, {k}]"));
        draft.line(format!(
            "g{param} = global_view({param}, ({m}, {n}, ceil_div({k}, {n})) : (e0, e1, {n} * e1))"
        ));
    }
    draft.line(format!("s = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line(format!("p = pipeline({stages}, s)"));
    draft.open("warpgroup load(1)");
    draft.open(format!("for i in 0..ceil_div({k}, {n})"));
    draft.open("produce p");
    draft.line("copy.async(gx[:, :, i], s)");
    draft.close();
    draft.close();
    draft.close();
    let (by_rows, by_columns) = (rows_layout(dice, 128, m, n), columns_layout(128, m, n));
    draft.open("warpgroup math(1)");
    draft.open(format!("for j in 0..ceil_div({k}, {n})"));
    draft.line(format!("a = register_tensor({dtype}, [{m}, {n}], layout = {by_rows})"));
    draft.line(format!("b = register_tensor({dtype}, [{m}, {n}], layout = {by_columns})"));
    draft.open("consume p");
    draft.line("copy(s, a)");
    draft.line("copy(s, b)");
    let text = expression(dice, &["b".to_string()], 2);
    draft.line(format!("b = min(max(b + {text}, -4.0), 4.0)"));
    draft.line("syncthreads() // needed for s");
    draft.line("copy(b, s)");
    draft.line("syncthreads() // needed for s");
    if asynchronous {
        draft.line("copy.async(s, gy[:, :, j])");
        draft.line("commit_group()");
        draft.line("wait_group(0)");
    } else {
        draft.line("copy(s, a)");
        draft.line("copy(a, gy[:, :, j])");
    }
    draft.close();
    draft.close();
    draft.close();
    Case { text: draft.text("1", 256, &[1]), arch: "sm_90a", family: "held" }
}
