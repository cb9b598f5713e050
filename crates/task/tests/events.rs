//! Event graphs of the examples, and figures 8 and 9 of the paper, as text.

mod common;

use tilewright_task::graph::verify_graph;
use tilewright_task::instantiate::instantiate;
use tilewright_task::parse;
use tilewright_task::passes::depend::depend;
use tilewright_task::passes::discipline::{discipline, vectorise};
use tilewright_task::passes::place::place;

#[test]
fn dependences_of_the_examples() {
    common::mappings(|name, program, mapping| {
        let tree = instantiate(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let graph = depend(program, tree).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert_eq!(verify_graph(&graph), [""; 0], "{name}");
        common::snapshot(&format!("{name}.events"), &graph.text());
    });
}

#[test]
fn places_of_the_examples() {
    common::mappings(|name, program, mapping| {
        let tree = instantiate(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let mut graph = depend(program, tree).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        place(program, &mut graph).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        common::snapshot(&format!("{name}.places"), &(graph.text() + "\n" + &graph.copies_text(program)));
        assert_eq!(verify_graph(&graph), [""; 0], "{name}\n{}", graph.text());
    });
}

/// The program of figure 5, with warps under the block, as figures 8 and 9 have it.
const FIGURE_5: &str = "size m = 64, n = 256, k = 64
task gemm(c: write f32[M, N], a: read f16[M, K], b: read f16[N, K]) {
    inner block { tunable W
        ap = blocks(a, [M, W])
        bp = blocks(b, [N, W])
        acc = tensor(f32, [M, N])
        launch clear(acc)
        for kk in srange(ceil_div(K, W)) { launch gemm_add(acc, ap[0, kk], bp[0, kk]) }
        launch store(c, acc) }
}
task clear(c: write f32[M, N]) {
    inner part { tunable PIECES, PROC: processor
        cp = mma(c, wgmma_64x256x16, PROC, C)
        for i in prange(PIECES) { launch clear(cp[i]) } }
    leaf zero { fill(c, 0.0) }
}
task gemm_add(c: read_write f32[M, N], a: read f16[M, K], b: read f16[N, K]) { leaf product { gemm(c, a, b) } }
task store(c: write f32[M, N], x: read f32[M, N]) { leaf all { c = x } }
task outer(c: write f32[M, N], a: read f16[M, K], b: read f16[N, K]) {
    inner host { tunable U, V
        cp = blocks(c, [U, V])
        ap = blocks(a, [U, K])
        bp = blocks(b, [V, K])
        for x, y in prange(ceil_div(M, U), ceil_div(N, V)) { launch gemm(cp[x, y], ap[x, 0], bp[y, 0]) } }
}
mapping figure for sm_90a {
    entry outer.host on host (global, global, global) { U = 64, V = 256 }
    gemm.block on block (none, global, global) { W = 64 }
    four = clear.part on block (none) { PIECES = 4, PROC = warp } -> lanes
    lanes = clear.part on warp (none) { PIECES = 32, PROC = thread } -> each
    each = clear.zero on thread (register)
    gemm_add.product on block (none, shared, shared)
    store.all on block (none, none)
}
";

#[test]
fn figures_8_and_9() {
    let program = parse(FIGURE_5).unwrap_or_else(|errors| panic!("{errors}"));
    let tree = instantiate(&program, &program.mappings[0]).unwrap_or_else(|errors| panic!("{errors}"));
    let listing = discipline(&program, &tree);
    common::snapshot("figure_8", &listing.text());
    common::snapshot("figure_9", &vectorise(&listing).text());
}
