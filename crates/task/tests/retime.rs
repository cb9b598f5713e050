//! Launches that are late: what a mapping may move, and what it says of the rest.

use crate::common;
use tilewright_task::parse;
use tilewright_task::passes::graph;

fn outcome(text: &str, mapping: &str) -> String {
    let program = parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let mapping = program.mappings.iter().find(|row| row.name == mapping).unwrap();
    match graph(&program, mapping) {
        Ok(graph) => graph.text(),
        Err(errors) => errors.0.iter().map(|error| format!("{}: {error}\n", error.code)).collect(),
    }
}

#[test]
fn what_the_round_waits_for_cannot_be_late() {
    common::mappings(|name, program, _| {
        if name != "attention.fa3" {
            return;
        }
        let text = program.to_string();
        let scores = text.replace("launch scores(x, q, kp[j, 0])", "scores: launch scores(x, q, kp[j, 0])");
        common::snapshot("late.needed", &outcome(&scores.replace("late(values)", "late(scores)"), "fa3"));
        let single =
            text.replace("persistent(grouped(1))", "").replace("launch finish", "out: launch finish");
        common::snapshot("late.no_next_tile", &outcome(&single.replace("late(values)", "late(out)"), "fa3"));
    });
}

#[test]
fn products_in_flight_leave_a_stage_free() {
    common::mappings(|name, program, _| {
        if name == "gemm.h200" {
            let text = program
                .to_string()
                .replace("pipeline(4) in_flight(1) shared", "pipeline(2) in_flight(2) shared");
            common::snapshot("in_flight.stages", &outcome(&text, "h200"));
        }
    });
}

/// Sums of pieces: LAST is what stands last in an iteration, ROWS what the row of the block says.
const SUMS: &str = "size n = 1024
task f(y: write f32[P], x: read f32[N]) {
    inner host {
        xp = blocks(x, [N])
        yp = blocks(y, [P])
        for b in prange(1) { launch f(yp[b], xp[b]) } }
    inner body {
        t = tensor(f32, [64])
        sum = tensor(f32, [64])
        xp = blocks(x, [64])
        launch zero(sum)
        launch set(t, xp[0])
        for j in srange(N / 64) {
            add: launch add(sum, t)
            next: launch set(t, xp[j])
            LAST
        }
        launch set(y, sum) }
}
task zero(y: write f32[N]) { leaf all { fill(y, 0.0) } }
task set(y: write f32[N], x: read f32[N]) { leaf all { y = x } }
task add(y: read_write f32[N], x: read f32[N]) { leaf all { y = y + x } }
mapping m for sm_90a {
    entry f.host on host (global, global)
    f.body on block (global, global) local(t = register) local(sum = register) ROWS
    set.all on block (register, register)
}
";

fn sums(last: &str, rows: &str) -> String {
    outcome(&SUMS.replace("LAST", last).replace("ROWS", rows), "m")
}

#[test]
fn a_second_stage_makes_room_for_what_is_read_later() {
    common::snapshot("late.stages", &sums("", "late(add)"));
}

#[test]
fn what_is_changed_in_the_same_round_cannot_be_read_later() {
    // It is changed, not replaced: no stage is free of it.
    let text = SUMS.replace("next: launch set(t", "next: launch add(t").replace("LAST", "");
    common::snapshot("late.changed", &outcome(&text.replace("ROWS", "late(add)"), "m"));
}

#[test]
fn a_launch_moves_by_the_loop_around_it() {
    let nested = "for k in srange(2) { inner: launch add(sum, t) }";
    common::snapshot("late.other_loop", &sums(nested, "late(inner, j)"));
    common::snapshot("late.own_loop", &sums(nested, "late(inner, k)"));
}

#[test]
fn chunks_leave_behind_a_loop_that_does_not_wait_for_them() {
    common::mappings(|name, program, _| {
        if name != "gemm.deferred" {
            return;
        }
        let text = program.to_string();
        common::snapshot("late.over", &outcome(&text, "deferred"));
        // The copy as a whole.
        let whole = text
            .replace("move.chunks on block(global, register) { CHUNK = 64 } pipeline(2) -> move.all", "")
            .replace(
                "move.all on block(shared, register)",
                "move.all on block(shared, register) pipeline(2)",
            );
        common::snapshot("late.over_no_loop", &outcome(&whole, "deferred"));
        // What is read by chunks is the sum itself, to which the loop adds.
        let summed = text
            .replace("launch store(h, acc)", "")
            .replace("out: launch move(c, h)", "out: launch store(c, acc)")
            .replace(
                "store.round on block(register, register)",
                "store.chunks on block(global, register) { CHUNK = 64 } pipeline(2) -> store.round\n    store.round on block(shared, register)",
            )
            .replace("move.chunks on block(global, register) { CHUNK = 64 } pipeline(2) -> move.all", "")
            .replace("move.all on block(shared, register)", "");
        common::snapshot("late.over_waits", &outcome(&summed, "deferred"));
    });
}
