//! Pipelines with several consuming roles, and pipelines that lead in a circle.

use super::draft::{Case, Draft, columns_layout, expression, rows_layout};
use crate::dice::Dice;

/// One role fills stages, two or three read every one of them, each in its own layout.
pub fn fan_out(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f32", "f16", "bf16", "i32", "u8", "f64", "i64", "u16"]);
    let (m, n) = (128, 4 * dice.pick(&[4i64, 8]));
    let (stages, rounds) = (dice.range(1, 3), dice.range(1, 5));
    let readers = dice.range(2, 3);
    let asynchronous = !dice.once_in(4);
    let mut draft = Draft::default();
    let k = draft.size("k", rounds * n);
    draft.params.push(format!("x: {dtype}[{m}, {k}]"));
    let tiles = format!("({m}, {n}, ceil_div({k}, {n})) : (e0, e1, {n} * e1)");
    draft.line(format!("gx = global_view(x, {tiles})"));
    for i in 0..readers {
        draft.params.push(format!("y{i}: {dtype}[{m}, {k}]"));
        draft.line(format!("gy{i} = global_view(y{i}, {tiles})"));
    }
    draft.line(format!("s = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line(format!("p = pipeline({stages}, s)"));
    let bound = format!("ceil_div({k}, {n})");
    draft.open("warpgroup load(1)");
    draft.open(format!("for i in 0..{bound}"));
    draft.open("produce p");
    draft.line(format!("{}(gx[:, :, i], s)", if asynchronous { "copy.async" } else { "copy" }));
    draft.close();
    draft.close();
    draft.close();
    for i in 0..readers {
        let layout = if dice.once_in(2) { rows_layout(dice, 128, m, n) } else { columns_layout(128, m, n) };
        draft.open(format!("warpgroup read{i}(1)"));
        draft.open(format!("for j{i} in 0..{bound}"));
        draft.line(format!("a{i} = register_tensor({dtype}, [{m}, {n}], layout = {layout})"));
        draft.open("consume p");
        draft.line(format!("copy(s, a{i})"));
        draft.close();
        draft.line(format!("copy(a{i}, gy{i}[:, :, j{i}])"));
        draft.close();
        draft.close();
    }
    Case { text: draft.text("1", 128 * (1 + readers), &[1]), arch: "sm_90a", family: "fan-out" }
}

/// Two roles hand each other tiles both ways, some iterations long; sometimes also a turn, which a pipeline without tensors gives.
pub fn exchange(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f32", "f16", "bf16"]);
    let (m, n) = (128, 4 * dice.pick(&[2i64, 4, 8]));
    let (there, back, rounds) = (dice.range(1, 2), dice.range(1, 3), dice.range(1, 5));
    let turns = dice.once_in(2);
    let mut draft = Draft::default();
    let rounds = draft.size("r", rounds);
    for param in ["x", "y", "z"] {
        draft.params.push(format!("{param}: {dtype}[{m}, {n}]"));
        draft.line(format!("g{param} = global_view({param}, ({m}, {n}) : (e0, e1))"));
    }
    draft.line(format!("sp = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line(format!("sq = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line(format!("there = pipeline({there}, sp)"));
    draft.line(format!("back = pipeline({back}, sq)"));
    if turns {
        draft.line("turn = pipeline(1)");
    }
    let by_rows = rows_layout(dice, 128, m, n);
    let by_columns = columns_layout(128, m, n);
    draft.open("warpgroup first(1)");
    draft.line(format!("a = register_tensor({dtype}, [{m}, {n}])"));
    draft.line("copy(gx, a)");
    draft.open(format!("for i in 0..{rounds}"));
    draft.open("produce there");
    draft.line("copy(a, sp)");
    draft.close();
    if turns {
        draft.open("consume turn");
        draft.close();
    }
    draft.line(format!("b = register_tensor({dtype}, [{m}, {n}], layout = {by_rows})"));
    draft.open("consume back");
    draft.line("copy(sq, b)");
    draft.close();
    let text = expression(dice, &["b".to_string()], 2);
    draft.line(format!("a = min(max(b + {text}, -4.0), 4.0)"));
    draft.close();
    draft.line("copy(a, gy)");
    draft.close();
    draft.open("warpgroup second(1)");
    draft.line(format!("c = register_tensor({dtype}, [{m}, {n}], layout = {by_columns})"));
    draft.line(format!("d = register_tensor({dtype}, [{m}, {n}])"));
    draft.line("fill(d, 0.0)");
    draft.open(format!("for j in 0..{rounds}"));
    draft.open("consume there");
    draft.line("copy(sp, c)");
    draft.close();
    if turns {
        draft.open("produce turn");
        draft.close();
    }
    let text = expression(dice, &["c".to_string()], 2);
    draft.line(format!("e = min(max(c + {text}, -4.0), 4.0)"));
    draft.line("d = rearrange(e)");
    draft.open("produce back");
    draft.line("copy(e, sq)");
    draft.close();
    draft.close();
    draft.line("copy(d, gz)");
    draft.close();
    Case { text: draft.text("1", 256, &[1]), arch: "sm_90a", family: "exchange" }
}
