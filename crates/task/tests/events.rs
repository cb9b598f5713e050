//! Event graphs of the examples, and figures 8 and 9 of the paper, as text.

use crate::common;
use std::collections::BTreeSet;

use tilewright_task::graph::verify_graph;
use tilewright_task::instantiate::instantiate;
use tilewright_task::parse;
use tilewright_task::passes::depend::depend;
use tilewright_task::passes::discipline::{discipline, vectorise};
use tilewright_task::passes::graph;
use tilewright_task::piece::{Affine, Piece, Vars};

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
        let graph = graph(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let texts = [graph.text(), graph.copies_text(program), graph.memory_text()];
        common::snapshot(&format!("{name}.places"), &texts.join("\n"));
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

/// The same by the paper's five levels: every partition in hand, down to the threads.
const FIVE_LEVELS: &str = "size m = 128, n = 256, k = 64
task gemm(c: write f32[M, N], a: read f16[M, K], b: read f16[N, K]) {
    inner host { tunable U, V
        cp = blocks(c, [U, V])
        ap = blocks(a, [U, K])
        bp = blocks(b, [V, K])
        for x, y in prange(ceil_div(M, U), ceil_div(N, V)) { launch gemm(cp[x, y], ap[x, 0], bp[y, 0]) } }
    inner block { tunable W
        ap = blocks(a, [M, W])
        bp = blocks(b, [N, W])
        acc = tensor(f32, [M, N])
        launch clear(acc)
        for kk in srange(ceil_div(K, W)) { launch gemm_add(acc, ap[0, kk], bp[0, kk]) }
        launch store(c, acc) }
}
task clear(c: write f32[M, N]) {
    inner tile { tunable WGS
        cp = blocks(c, [M / WGS, N])
        for w in prange(WGS) { launch clear(cp[w, 0]) } }
    inner part { tunable PIECES, PROC: processor
        cp = mma(c, wgmma_64x256x16, PROC, C)
        for i in prange(PIECES) { launch clear(cp[i]) } }
    leaf zero { fill(c, 0.0) }
}
task gemm_add(c: read_write f32[M, N], a: read f16[M, K], b: read f16[N, K]) {
    inner tile { tunable WGS
        cp = blocks(c, [M / WGS, N])
        ap = blocks(a, [M / WGS, K])
        for w in prange(WGS) { launch gemm_add(cp[w, 0], ap[w, 0], b) } }
    inner part { tunable PIECES, PROC: processor
        cp = mma(c, wgmma_64x256x16, PROC, C)
        ap = mma(a, wgmma_64x256x16, PROC, A)
        bp = mma(b, wgmma_64x256x16, PROC, B)
        for i in prange(PIECES) { launch gemm_add(cp[i], ap[i], bp[i]) } }
    leaf product { gemm(c, a, b) }
    inner along_k { tunable PARTS
        ap = blocks(a, [M, K / PARTS])
        bp = blocks(b, [N, K / PARTS])
        for p in prange(PARTS) { launch gemm_add(c, ap[0, p], bp[0, p]) } }
}
task store(c: write f32[M, N], x: read f32[M, N]) { leaf all { c = x } }
mapping levels for sm_90a {
    entry gemm.host on host (global, global, global) { U = 128, V = 256 }
    gemm.block on block (global, global, global) { W = 64 }
    zero_wg = clear.tile on block (none) { WGS = 2 } -> zero_warp
    zero_warp = clear.part on warpgroup (none) { PIECES = 4, PROC = warp } -> zero_lane
    zero_lane = clear.part on warp (none) { PIECES = 32, PROC = thread } -> zero
    zero = clear.zero on thread (register)
    tile = gemm_add.tile on block (none, shared, shared) { WGS = 2 } -> wg
    wg = gemm_add.part on warpgroup (none, shared, shared) { PIECES = 4, PROC = warp } -> wp
    wp = gemm_add.part on warp (none, shared, shared) { PIECES = 32, PROC = thread } -> lane
    lane = gemm_add.product on thread (register, shared, shared)
    store.all on block (none, none)
}
";

fn joined(text: &str) -> Result<tilewright_task::graph::Graph, tilewright_tile::Diagnostics> {
    let program = parse(text)?;
    graph(&program, &program.mappings[0])
}

#[test]
fn five_levels_are_one_product_with_the_instruction_s_layout() {
    let graph = joined(FIVE_LEVELS).unwrap_or_else(|errors| panic!("{errors}"));
    common::snapshot("five_levels.joined", &graph.text());
    // Each thread of each warpgroup holds of the accumulator what the instruction's row says.
    let acc = graph.replicas.iter().find(|place| place.spread.len() == 3).unwrap();
    let row = tilewright_machine::wgmma_rows().iter().find(|row| row.n == 256 && row.k == 16).unwrap();
    let mut vars = Vars::default();
    for thread in 0..256 {
        let processors = [thread / 128, thread / 32 % 4, thread % 32];
        let mut piece = Piece::whole(&[Some(128), Some(256)]);
        for ((_, partition), at) in acc.spread.iter().zip(processors) {
            let mut colours = vec![Affine::constant(at)];
            colours.resize(partition.colours().len(), Affine::constant(0));
            piece = piece.part(partition, &colours, &mut vars).unwrap();
        }
        let held: BTreeSet<Vec<i64>> = (0..128)
            .map(|value| row.c_tv.eval(thread % 128 + 128 * value))
            .map(|at| vec![at % 64 + 64 * (thread / 128), at / 64])
            .collect();
        assert_eq!(piece.elements().unwrap(), held, "thread {thread}");
    }
}

/// Two statements shared out over the threads of a warp: `FIRST` writes `t`, `SECOND` reads it.
const TWO: &str = "size n = 64
task f(y: write f32[N], x: read f32[N]) {
    inner host {
        yp = blocks(y, [64])
        xp = blocks(x, [64])
        for b in prange(ceil_div(N, 64)) { launch f(yp[b], xp[b]) } }
    inner two {
        t = tensor(f32, [N])
        first: launch g(t, x)
        second: launch g(y, t) }
}
task g(y: write f32[N], x: read f32[N]) {
    inner runs {
        yp = blocks(y, [2])
        xp = blocks(x, [2])
        for i in prange(32) { launch g(yp[i], xp[i]) } }
    inner strided {
        yp = tv(y, (32,2):(1,32), thread)
        xp = tv(x, (32,2):(1,32), thread)
        for i in prange(32) { launch g(yp[i], xp[i]) } }
    leaf twice { y = x + x }
    leaf placed { y = x + float(index(0)) }
}
mapping m for sm_80 {
    entry f.host on host (global, global)
    f.two on block (global, global) LOCAL -> first = g.FIRST, second = g.SECOND
    g.runs on warp (none, none) -> g.LEAF
    g.strided on warp (none, none) -> g.LEAF
    g.LEAF on thread (register, register)
}
";

fn two(local: &str, first: &str, second: &str, leaf: &str) -> String {
    let text = TWO.replace("LOCAL", local).replace("FIRST", first).replace("SECOND", second);
    match joined(&text.replace("LEAF", leaf)) {
        Ok(graph) => graph.text(),
        Err(errors) => errors.0.iter().map(|error| format!("{}: {error}\n", error.code)).collect(),
    }
}

#[test]
fn threads_wait_for_each_other_only_where_they_must() {
    // In registers each thread finds its own; in shared memory, too, as long as both share it out alike.
    common::snapshot("two.alike", &two("local(t = register)", "runs", "runs", "twice"));
    common::snapshot("two.alike_in_shared", &two("local(t = shared)", "strided", "strided", "twice"));
    // Otherwise all wait for all.
    common::snapshot("two.otherwise_in_shared", &two("local(t = shared)", "runs", "strided", "twice"));
    // Registers of others cannot be read.
    common::snapshot("two.otherwise", &two("local(t = register)", "runs", "strided", "twice"));
    common::snapshot("two.placed", &two("local(t = register)", "runs", "runs", "placed"));
}

#[test]
fn iterations_that_meet_are_named() {
    // Sums of rows are written by the blocks of every column, unless all but the first leave them out.
    let program = "size m = 8, n = 8
task f(y: write f32[M], x: read f32[M, N]) {
    inner host {
        yp = blocks(y, [4])
        xp = blocks(x, [4, 4])
        for i, j in prange(ceil_div(M, 4), ceil_div(N, 4)) { launch f(yp[i]GUARD, xp[i, j]) } }
    leaf all { y = reduce(x, sum, 1) }
}
mapping m for sm_80 {
    entry f.host on host (global, global)
    f.all on block (register, register)
}
";
    let errors = joined(&program.replace("GUARD", "")).unwrap_err();
    let message = "parallel-writes: iterations (i, j) = (0, 0) and (0, 1) of `prange` touch element [0] of `y`, and one of them writes it";
    let said: Vec<String> =
        errors.0.iter().map(|error| format!("{}: {}", error.code, error.message)).collect();
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("parallel-writes: iterations (i, j) = ("), "{} {message}", said[0]);
    let graph = joined(&program.replace("GUARD", " when j == 0")).unwrap_or_else(|errors| panic!("{errors}"));
    common::snapshot("guarded.joined", &graph.text());
}

/// A product with a sparse left factor, shared out over two warpgroups: CUT is how its metadata are cut.
const SPARSE: &str = "size m = 128, n = 128, k = 128
task f(c: write f32[M, N], a: read f16[M, H], e: read u2[M, H], b: read f16[N, K]) {
    inner host { tunable U, V
        cp = blocks(c, [U, V])
        ap = blocks(a, [U, 64])
        ep = blocks(e, [U, 64])
        bp = blocks(b, [V, 128])
        for x, y in prange(ceil_div(M, U), ceil_div(N, V)) { launch f(cp[x, y], ap[x, 0], ep[x, 0], bp[y, 0]) } }
    inner tile {
        cp = blocks(c, [M / 2, N])
        ap = blocks(a, [M / 2, H])
        ep = blocks(e, CUT)
        for w in prange(2) { launch f(cp[w, 0], ap[w, 0], ep[AT], b) } }
    leaf product {
        fill(c, 0.0)
        gemm(c, a, b, e) }
}
mapping m for sm_90a {
    entry f.host on host (global, global, global, global) { U = 128, V = 128 } -> f.tile
    f.tile on block (register, shared, shared, shared) -> f.product
    f.product on warpgroup (register, shared, shared, shared)
}
";

#[test]
fn metadata_of_a_sparse_factor_are_cut_as_it_is_and_come_to_registers() {
    let cut = |modes: &str, at: &str| joined(&SPARSE.replace("CUT", modes).replace("AT", at));
    let graph = cut("[M / 2, H]", "w, 0").unwrap_or_else(|errors| panic!("{errors}"));
    common::snapshot("sparse.joined", &graph.text());
    for (modes, at, message) in [
        ("[M, 32]", "0, w", "mode 1 of the factor `meta`, along which is summed, is cut"),
        ("[M, H]", "0, 0", "mode 0 of the sum and mode 0 of the factor `meta` are cut differently"),
    ] {
        let errors = cut(modes, at).unwrap_err();
        assert!(errors.0.iter().any(|error| error.message.ends_with(message)), "{errors}");
    }
}
