//! Instantiated trees: those of `examples/tasks` as text, and what a mapping gets wrong.

use crate::common;
use tilewright_task::instantiate::instantiate;
use tilewright_task::parse;

#[test]
fn trees_of_the_examples() {
    common::mappings(|name, program, mapping| {
        let tree = instantiate(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        common::snapshot(&format!("{name}.tree"), &tree.text(program, mapping));
    });
}

const PROGRAM: &str = "size n = 64
task f(x: read_write f32[N]) {
    inner parts { tunable W
        xp = blocks(x, [W])
        for i in prange(ceil_div(N, W)) { launch f(xp[i]) } }
    inner third { xp = blocks(x, [16])
        launch f(xp[4]) }
    leaf all { x = x + x }
}
";

fn message(mapping: &str) -> String {
    let program = parse(&format!("{PROGRAM}mapping m for sm_80 {{\n{mapping}\n}}\n")).unwrap();
    match instantiate(&program, &program.mappings[0]) {
        Ok(tree) => tree.text(&program, &program.mappings[0]),
        Err(errors) => errors.0.iter().map(|error| format!("{}: {error}\n", error.code)).collect(),
    }
}

#[test]
fn what_a_mapping_lacks_is_named() {
    let says = |mapping: &str, text: &str| {
        let message = message(mapping);
        assert!(message.contains(text), "{message}");
    };
    says(
        "entry f.parts on host (global)\nf.all on block (register)",
        "tunable: `f.parts` has no value for `W`",
    );
    says(
        "entry f.parts on block (global) { W = 16 }\nf.all on host (global)",
        "level: `host` under `block` in the tree of instances",
    );
    says(
        "entry f.parts on host (shared) { W = 16 }\nf.all on block (register)",
        "memory: the level `host` does not see `x` in shared memory",
    );
    says(
        "entry f.parts on host (global) { W = 16 }\nf.all on warpgroup (register)",
        "level: sm_80 has no level `warpgroup` (host, block, warp, thread)",
    );
    says(
        "entry f.parts on host (global) { W = 64 } -> third\nthird = f.third on block (global) -> f.all\nf.all on block (register)",
        "partition-bounds: `xp`: piece [4] of a partition into 4 pieces",
    );
    says(
        "entry f.parts on host (global) { W = 64 } -> again\nagain = f.parts on block (global) { W = 64 } -> again",
        "unmapped: instances lead to each other more than 64 calls deep",
    );
}
