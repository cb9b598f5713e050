//! Atomic operations with a value, of which no result depends on the order, and barriers of the grid.

use super::draft::{Case, Draft};
use crate::dice::Dice;

/// The blocks leave something, meet, and each reads what others left.
pub fn meetings(dice: &mut Dice) -> Case {
    let (tile, blocks) = (dice.pick(&[32i64, 64, 128]), dice.range(1, 6));
    let mut draft = Draft::default();
    let n = draft.size("n", blocks * tile - dice.range(0, tile - 1));
    for name in ["x", "w", "y"] {
        draft.params.push(format!("{name}: f32[{n}]"));
        draft.line(format!(
            "g{name} = global_view({name}, ({tile}, ceil_div({n}, {tile})) : (e0, {tile} * e0))"
        ));
    }
    draft.params.push("meet: i32[1]".to_string());
    draft.line(format!("r = register_tensor(f32, [{tile}])"));
    draft.line("copy(gx[:, block.x], r)");
    let rounds = dice.range(1, 3);
    draft.open(format!("for k in 0..{rounds}"));
    draft.line("copy(r, gw[:, block.x])");
    draft.line("syncgrid(meet)");
    draft.line(format!("copy(gw[:, (block.x + {}) % ceil_div({n}, {tile})], r)", dice.range(1, 5)));
    draft.line("syncgrid(meet)");
    draft.close();
    draft.line("copy(r, gy[:, block.x])");
    let arch = dice.pick(&["sm_80", "sm_90a"]);
    Case { text: draft.text(&format!("ceil_div({n}, {tile})"), tile.min(64), &[1]), arch, family: "meetings" }
}

/// The blocks hand tiles on by flags, and the last one that draws a ticket adds what all have.
pub fn flags(dice: &mut Dice) -> Case {
    let (tile, blocks) = (dice.pick(&[32i64, 64, 128]), dice.range(2, 6));
    let mut draft = Draft::default();
    let n = draft.size("n", blocks * tile - dice.range(0, tile - 1));
    let view = |draft: &mut Draft, name: &str| {
        draft.params.push(format!("{name}: f32[{n}]"));
        draft.line(format!(
            "g{name} = global_view({name}, ({tile}, ceil_div({n}, {tile})) : (e0, {tile} * e0))"
        ));
    };
    view(&mut draft, "x");
    draft.params.push(format!("done: i32[{blocks}]"));
    draft.line(format!("r = register_tensor(f32, [{tile}])"));
    draft.line("copy(gx[:, block.x], r)");
    for round in 1..=dice.range(1, 3) {
        view(&mut draft, &format!("w{round}"));
        let from = format!("(block.x + {}) % {blocks}", dice.range(1, blocks - 1));
        draft.line(format!("copy(r, gw{round}[:, block.x])"));
        draft.line(format!("signal(done[block.x], 1, add) // needed for gw{round}"));
        draft.line(format!("wait(done[{from}] >= {round}) // needed for gw{round}"));
        draft.line(format!("copy(gw{round}[:, {from}], r)"));
    }
    view(&mut draft, "p");
    draft.params.push(format!("y: f32[{tile}]"));
    draft.params.push("last: i32[1]".to_string());
    draft.line(format!("gy = global_view(y, ({tile}) : (e0))"));
    draft.line("copy(r, gp[:, block.x])");
    draft.line(format!("let turn = ticket(last[0], {blocks})"));
    draft.open(format!("if turn == {blocks} - 1"));
    draft.line(format!("all = register_tensor(f32, [{tile}])"));
    draft.line("fill(all, 0.0)");
    draft.open(format!("for i in 0..{blocks}"));
    draft.line("copy(gp[:, i], r)");
    draft.line("all = all + r");
    draft.close();
    draft.line("copy(all, gy)");
    draft.close();
    let arch = dice.pick(&["sm_80", "sm_90a"]);
    Case { text: draft.text(&format!("ceil_div({n}, {tile})"), tile.min(64), &[1]), arch, family: "flags" }
}

/// Each element of a view is changed several times by the block whose it is; and elements take places in a list, of which it is known which
/// are taken.
pub fn changes(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["i32", "u32", "f32", "i64", "u64", "f64", "f16"]);
    let threads = dice.pick(&[32i64, 64, 128]);
    let tile = dice.pick(&[32i64, 128, 256]);
    let blocks = dice.range(1, 4);
    let mut draft = Draft::default();
    let n = draft.size("n", blocks * tile - dice.range(0, tile - 1));
    for name in ["x", "y", "z"] {
        draft.params.push(format!("{name}: {dtype}[{n}]"));
        draft.line(format!("g{name} = global_view({name}[block.x * {tile} :], ({tile}) : (e0))"));
    }
    draft.line(format!("r = register_tensor({dtype}, [{tile}])"));
    draft.line("copy(gx, r)");
    let mut last = "r".to_string();
    for step in 0..dice.range(1, 4) {
        let all = ["add", "max", "min", "exchange", "cas"];
        let op = if dtype == "f16" { "add" } else { dice.pick(&all) };
        let operands = if op == "cas" { format!("{last}, r") } else { last.clone() };
        let next = format!("o{step}");
        draft.line(format!("{next} = atomic_{op}(gy, {operands})"));
        last = next;
    }
    draft.line(format!("copy({last}, gz)"));
    let counted = dice.range(1, 2 * tile);
    draft.params.push("tail: i32[1]".to_string());
    draft.params.push(format!("places: i32[{n}]"));
    draft.line("gt = global_view(tail, (1) : (e0))");
    draft.line(format!("gp = global_view(places, ({n}) : (e0))"));
    draft.line(format!("zero = register_tensor(i32, [{tile}])"));
    draft.line("fill(zero, 0)");
    draft.line(format!("inside = zero + block.x * {tile} + index(0) < {n} and index(0) < {counted}"));
    draft.line("one = where(inside, zero + 1, zero)");
    draft.line("first = where(inside, zero, zero - 1)");
    draft.line("place = atomic_add(gt[first], one)");
    draft.line(format!("at = where(inside, (place & 65535) % {n}, zero - 1)"));
    draft.line("copy(one, gp[at], add)");
    let arch = dice.pick(&["sm_80", "sm_90a"]);
    Case { text: draft.text(&format!("ceil_div({n}, {tile})"), threads, &[1]), arch, family: "atomics" }
}
