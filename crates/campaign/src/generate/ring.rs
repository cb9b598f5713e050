//! Rings of stages that a program manages itself, with asynchronous copies and groups.

use super::draft::{Case, Draft, bits, columns_layout, rows_layout};
use crate::dice::Dice;

/// A ring: tile i + `ahead` is on its way while tile i is read.
pub fn ring(dice: &mut Dice) -> Case {
    let warps = dice.pick(&[2i64, 4, 2, 8]);
    let threads = 32 * warps;
    let (m, n) = (threads, warps * dice.pick(&[2i64, 4, 8]).min(64 / warps));
    let stages = dice.range(2, 4);
    let rounds = stages + dice.range(1, 3);
    let dtype = dice.pick(&["f16", "f32", "bf16", "f32", "e4m3"]);
    let arch = dice.pick(&["sm_80", "sm_90a", "sm_89"]);
    let arch = if dtype == "e4m3" { "sm_90a" } else { arch };
    let mut draft = Draft::default();
    let columns = rounds * n - if dice.once_in(3) { dice.range(0, n - 1) } else { 0 };
    // Rows of whole words, known when the kernel is compiled, and a layout that keeps them: then the copies are asynchronous.
    let words = 32 / bits(dtype);
    let columns = columns / words * words;
    let short = if dice.once_in(4) { dice.range(0, m / 2) } else { 0 };
    let (rows, k) = (draft.size("m", m - short), columns);
    draft.params.push(format!("x: {dtype}[{rows}, {k}]"));
    draft.params.push(format!("y: {dtype}[{rows}, {k}]"));
    draft.params.push(format!("z: {dtype}[{rows}, {k}]"));
    for (view, param) in [("gx", "x"), ("gy", "y"), ("gz", "z")] {
        draft.line(format!(
            "{view} = global_view({param}, ({m}, {n}, ceil_div({k}, {n})) : (e0, e1, {n} * e1))"
        ));
    }
    let row = n + dice.pick(&[0, 0, words, 4 * words]);
    draft.line(format!(
        "s = shared_tensor({dtype}, [{m}, {n}, {stages}], layout = ({m}, {n}, {stages}) : ({row}, 1, {}))",
        row * m
    ));
    let by_rows = rows_layout(dice, threads, m, n);
    let by_columns = columns_layout(threads, m, n);
    // All stages but the one that is read are on their way, or one fewer, which needs no other barrier.
    let ahead = if stages > 2 && dice.once_in(3) { stages - 2 } else { stages - 1 };
    let split = dice.once_in(3);
    let copies = |draft: &mut Draft, tile: &str, slot: &str| {
        draft.line(format!("copy.async(gx[:, :, {tile}], s[:, :, {slot}])"));
    };
    draft.open(format!("unroll for p in 0..{ahead}"));
    copies(&mut draft, "p", "p");
    draft.line("commit_group()");
    draft.close();
    draft.open(format!("for i in 0..ceil_div({k}, {n})"));
    if split {
        // The copy goes first, behind a barrier that frees its stage; then the wait leaves one group more in flight.
        if ahead == stages - 1 {
            draft.line("syncthreads() // needed for s");
        }
        copies(&mut draft, &format!("i + {ahead}"), &format!("(i + {ahead}) % {stages}"));
        draft.line("commit_group() // needed for s");
        draft.line(format!("wait_group({ahead}) // needed for s"));
        draft.line("syncthreads() // needed for s");
    } else {
        draft.line(format!("wait_group({}) // needed for s", ahead - 1));
        draft.line("syncthreads() // needed for s");
        if ahead < stages - 1 {
            // The copy fills a stage that nobody reads in this round or the next: the barrier may as well stand behind it.
            draft.line("free = register_tensor(f32, [32])");
        }
        copies(&mut draft, &format!("i + {ahead}"), &format!("(i + {ahead}) % {stages}"));
        draft.line("commit_group() // needed for s");
    }
    draft.line(format!("a = register_tensor({dtype}, [{m}, {n}], layout = {by_rows})"));
    draft.line(format!("b = register_tensor({dtype}, [{m}, {n}], layout = {by_columns})"));
    draft.line(format!("copy(s[:, :, i % {stages}], a)"));
    draft.line(format!("copy(s[:, :, i % {stages}], b)"));
    draft.line("copy(a, gy[:, :, i])");
    if dtype == "e4m3" {
        draft.line("copy(b, gz[:, :, i])");
    } else {
        draft.line("c = b * 0.5 + 1.0");
        draft.line("copy(c, gz[:, :, i])");
    }
    draft.close();
    Case { text: draft.text("1", threads, &[1]), arch, family: "ring" }
}
