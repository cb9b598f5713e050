//! Rows that the blocks of a cluster hold together.

use super::draft::{Case, Draft, bits, dtype, floats, is_float};
use crate::dice::Dice;

/// Reductions over a cluster of tensors of several types, of whole tiles and of what their rows come to, some iterations long.
pub fn rows(dice: &mut Dice) -> Case {
    let dtype = dtype(dice);
    let dtype = if bits(dtype) < 8 { "i8" } else { dtype };
    let blocks = dice.pick(&[2i64, 3, 4, 8]);
    let threads = 32 * dice.range(1, 4);
    let (m, n) = (dice.range(1, 4), dice.range(1, 65));
    let iterations = dice.range(1, 3);
    let computes = is_float(dtype) || bits(dtype) >= 32;
    let mut operation = || {
        let ops = ["max", "min", "sum", "product"];
        let count = if computes { 4 } else { 2 };
        dice.pick(&ops[..count])
    };
    let [first, second, third] = [operation(), operation(), operation()];
    let mut draft = Draft::default();
    let k = draft.size("k", iterations);
    for param in ["x", "y"] {
        draft.params.push(format!("{param}: {dtype}[{k}, {m}, {}]", blocks * n));
    }
    draft.params.push(format!("z: {dtype}[{k}, {m}, {blocks}]"));
    draft.open(format!("for i in 0..{k}"));
    for param in ["x", "y"] {
        let offset = format!("i :, :, block.x % {blocks} * {n} :");
        draft.line(format!("g{param} = global_view({param}[{offset}], ({m}, {n}) : (e1, e2))"));
    }
    draft.line(format!("gz = global_view(z[i :, :, block.x % {blocks} :], ({m}) : (e1))"));
    draft.line(format!("r = register_tensor({dtype}, [{m}, {n}])"));
    draft.line("copy(gx, r)");
    if is_float(dtype) {
        let text = floats(dice, &["r".to_string()], dtype, 2);
        draft.line(format!("r = min(max(r + {text}, -4.0), 4.0)"));
    }
    draft.line(format!("s = reduce(r, {first}, 1)"));
    draft.line(format!("cluster_reduce(s, {first})"));
    draft.line("copy(s, gz)");
    if dice.once_in(2) {
        draft.line(format!("cluster_reduce(r, {second})"));
    }
    if dice.once_in(2) {
        draft.line(format!("t = reduce(r, {third}, 0)"));
        draft.line(format!("cluster_reduce(t, {third})"));
        draft.line(format!("cluster_reduce(r, {second})"));
    }
    if (is_float(dtype) || bits(dtype) >= 32) && dice.once_in(2) {
        // Neither of the two functions rounds.
        let by = if dice.once_in(2) {
            "fn(a, b, c, d) { return max(a, c), min(b, d) }"
        } else {
            "fn(a, b, c, d) { return where(a < c, c, a), where(a < c, d, where(c < a, b, max(b, d))) }"
        };
        draft.line("u, v = reduce((r, r), fn(a, b, c, d) { return max(a, c), min(b, d) }, 1)");
        draft.line(format!("cluster_reduce((u, v), {by})"));
        draft.line("r = max(r, expand(v, 1))");
    }
    draft.line("copy(r, gy)");
    draft.close();
    Case { text: draft.text(&blocks.to_string(), threads, &[blocks]), arch: "sm_90a", family: "cluster" }
}
