//! Roles, pipelines, loops over tiles, clusters and asynchronous products.

use std::collections::BTreeMap;

use tilewright_tile::{Argument, Code, Constants, InterpretError, Program, Verified, parse, unroll, verify};

use crate::common::{desugar, interpret, through_core};

const GEMM: &str = "
size m = 40, n = 70, k = 50
const BM = 16, BN = 32, BK = 16, STAGES = 3, SMS = 4

kernel gemm(a: f16[m, k], b: f16[n, k], c: f16[m, n])
    grid(min(SMS, ceil_div(m, BM) * ceil_div(n, BN))) threads(384)
{
    ga = global_view(a, (BM, ceil_div(m, BM), BK, ceil_div(k, BK)) : (e0, BM * e0, e1, BK * e1))
    gb = global_view(b, (BN, ceil_div(n, BN), BK, ceil_div(k, BK)) : (e0, BN * e0, e1, BK * e1))
    gc = global_view(c, (BM, ceil_div(m, BM), 16, ceil_div(n, 16)) : (e0, BM * e0, e1, 16 * e1))
    sa = shared_tensor(f16, [BM, BK])
    sb = shared_tensor(f16, [BN, BK])
    sc = shared_tensor(f16, [BM, 16, 2])
    ab = pipeline(STAGES, sa, sb)
    warpgroup math(2) registers(240) {
        for (ti, tj) in tiles(ceil_div(m, BM), ceil_div(n, BN), grouped(12, serpentine)) {
            rc = register_tensor(f32, [BM, BN])
            fill(rc, 0.0)
            for kk2 in 0..ceil_div(k, BK) {
                consume ab {
                    gemm.async(rc, sa, sb, warpgroups = (1, 2))
                    commit_gemm()
                    wait_gemm(1)
                }
            }
            wait_gemm(0)
            rh = cast(rc, f16)
            unroll for j in 0..BN / 16 {
                wait_group(1)
                syncthreads()
                rj = slice(rh, 1, j * 16, 16)
                copy(rj, sc[:, :, j % 2])
                syncthreads()
                copy.async(sc[:, :, j % 2], gc[:, ti, :, tj * (BN / 16) + j])
                commit_group()
            }
        }
        wait_group(0)
    }
    warpgroup load(1) registers(24) {
        for (tm, tn) in tiles(ceil_div(m, BM), ceil_div(n, BN), grouped(12, serpentine)) {
            for kk in 0..ceil_div(k, BK) {
                produce ab {
                    copy.async(ga[:, tm, :, kk], sa, evict_last)
                    copy.async(gb[:, tn, :, kk], sb)
                }
            }
        }
    }
}";

fn read(source: &str) -> Program {
    parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn verified(source: &str) -> Verified {
    verify(&read(source), &Constants::new()).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn tensor(args: &[Argument], i: usize) -> &[f64] {
    match &args[i] {
        Argument::Tensor(data) => data,
        Argument::Scalar(_) | Argument::Integers(_) => panic!("a number"),
    }
}

fn numbers(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + seed * 11 + i * i) % 17) as f64 - 8.0).collect()
}

#[test]
fn a_product_by_roles_is_the_product() {
    let v = verified(GEMM);
    for v in [v.clone(), unroll(&v).unwrap()] {
        let (m, n, k) = (40, 70, 50);
        let (a, b) = (numbers(m * k, 1), numbers(n * k, 2));
        let mut args = [a.clone(), b.clone(), vec![f64::NAN; m * n]].map(Argument::Tensor);
        interpret(&v, &BTreeMap::new(), &mut args).unwrap();
        for i in 0..m {
            for j in 0..n {
                let sum: f64 = (0..k).map(|p| a[i * k + p] * b[j * k + p]).sum();
                assert_eq!(
                    tensor(&args, 2)[i * n + j],
                    tilewright_tile::interpret::round(tilewright_machine::DType::F16, sum)
                );
            }
        }
    }
}

#[test]
fn the_text_of_roles_reads_back() {
    let program = read(GEMM);
    let text = program.to_string();
    assert_eq!(read(&text), program, "{text}");
    let folded = verified(GEMM);
    assert_eq!(&read(&folded.program().to_string()), folded.program());
}

#[test]
fn stages_as_a_mode_mean_the_same() {
    let staged = through_core(&verified(GEMM), |program| _ = tilewright_tile::core::multi_buffer(program));
    let text = staged.to_string();
    assert!(text.contains("ab.produced]") && text.contains("ab.consumed]"), "{text}");
    let mut args = [numbers(40 * 50, 1), numbers(70 * 50, 2), vec![0.0; 40 * 70]].map(Argument::Tensor);
    interpret(&verified(GEMM), &BTreeMap::new(), &mut args).unwrap();
}

/// A kernel over 8×8 matrices `x` and `y`, with a view of each and a shared tensor.
fn small(header: &str, body: &str) -> String {
    format!(
        "size n = 8, z = 1
        kernel small(x: f32[8, 8], y: f32[n, 8]) {header} {{
            gx = global_view(x, (8, 8) : (e0, e1))
            gy = global_view(y, (8, 8) : (e0, e1))
            s = shared_tensor(f32, [8, 8])
            {body}
        }}"
    )
}

const BLOCK: &str = "grid(1) threads(256)";

fn run(source: &str) -> Result<Vec<f64>, InterpretError> {
    run_with(source, &[])
}

fn run_with(source: &str, sizes: &[(&str, i64)]) -> Result<Vec<f64>, InterpretError> {
    let sizes: BTreeMap<String, i64> = sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    let rows = sizes.get("n").copied().unwrap_or(8) as usize;
    let v = verified(source);
    let mut args = [numbers(64, 3), vec![0.0; rows * 8]].map(Argument::Tensor);
    interpret(&v, &sizes, &mut args)?;
    Ok(tensor(&args, 1).to_vec())
}

fn refused(source: &str) -> String {
    run(source).unwrap_err().to_string()
}

#[test]
fn stages_come_in_the_order_in_which_they_were_filled() {
    let source = small(
        BLOCK,
        "p = pipeline(2, s)
        warpgroup read(1) {
            r = register_tensor(f32, [8, 8])
            sum = register_tensor(f32, [8, 8])
            fill(sum, 0.0)
            for j in 0..3 {
                consume p { copy(s, r) }
                sum = 10.0 * sum + r
            }
            copy(sum, gy)
        }
        warpgroup fill_(1) {
            t = register_tensor(f32, [8, 8])
            for i in 0..3 {
                fill(t, 1.0)
                t = t + float(i)
                produce p { copy(t, s) }
            }
        }",
    );
    assert_eq!(run(&source).unwrap(), vec![123.0; 64]);
}

#[test]
fn one_body_may_fill_and_read_and_a_new_stage_holds_nothing() {
    let source = small(
        BLOCK,
        "p = pipeline(2, s)
        r = register_tensor(f32, [8, 8])
        produce p { copy.async(gx, s) }
        produce p { copy.async(gx[:, :], s) }
        consume p { copy(s, r) }
        consume p { copy(s, r) }
        copy(r, gy)",
    );
    assert_eq!(run(&source).unwrap(), numbers(64, 3));
    // Only a half of the second stage is written: the other is not what the first stage held.
    let source = small(
        BLOCK,
        "h = shared_tensor(f32, [8, 4, 2])
        p = pipeline(2, h)
        r = register_tensor(f32, [8, 4])
        gh = global_view(x, (8, 4, 2) : (e0, e1, 4 * e1))
        oh = global_view(y, (8, 4, 2) : (e0, e1, 4 * e1))
        produce p { copy.async(gh[:, :, 0], h[:, :, 0]); copy.async(gh[:, :, 1], h[:, :, 1]) }
        produce p { copy.async(gh[:, :, 0], h[:, :, 0]) }
        consume p { copy(h[:, :, 1], r) }
        consume p { copy(h[:, :, 1], r) }
        copy(r, oh[:, :, 0])",
    );
    assert!(run(&source).unwrap().chunks(8).all(|row| row[..4].iter().all(|x| x.is_nan())));
}

#[test]
fn stages_that_are_missing_or_left_over_are_refused() {
    let body = |filled: u32, read: u32| {
        small(
            BLOCK,
            &format!(
                "p = pipeline(2, s)
                warpgroup load(1) {{
                    for i in 0..{filled} * z {{ produce p {{ copy.async(gx, s) }} }}
                }}
                warpgroup math(1) {{
                    r = register_tensor(f32, [8, 8])
                    for j in 0..{read} * z {{ consume p {{ copy(s, r) }} }}
                    copy(r, gy)
                }}"
            ),
        )
    };
    assert_eq!(run(&body(5, 5)).unwrap(), numbers(64, 3));
    let missing = "`consume p` has no stage to read: role `load` produced 3 stages";
    assert_eq!(refused(&body(3, 4)), missing);
    let left = |n: &str, filled: usize, end: &str| {
        format!("`produce p` filled {n} that role `math` does not read, of {filled} {end}")
    };
    assert_eq!(refused(&body(4, 3)), left("1 stage", 4, "in all"));
    assert_eq!(refused(&body(9, 3)), left("2 stages", 5, "before it waits for a free one"));
}

/// A role that fills four stages, and two that read them and write the sum of what they read, each a half of `y`.
fn two_readers(reads: [&str; 2]) -> String {
    let reader = |name: &str, count: &str, half: usize| {
        format!(
            "warpgroup {name}(1) {{
                r_{name} = register_tensor(f32, [8, 8])
                sum_{name} = register_tensor(f32, [8, 8])
                fill(sum_{name}, 0.0)
                for j_{name} in 0..{count} {{
                    consume p {{ copy(s, r_{name}) }}
                    sum_{name} = 10.0 * sum_{name} + r_{name}
                }}
                copy(sum_{name}, gh[:, {half}, :])
            }}"
        )
    };
    let body = format!(
        "gh = global_view(y, (8, 2, 8) : (e0, 8 * e0, e1))
        p = pipeline(2, s)
        {}
        warpgroup fill_(1) {{
            t = register_tensor(f32, [8, 8])
            for i in 0..4 * z {{
                fill(t, 1.0)
                t = t + float(i)
                produce p {{ copy(t, s) }}
            }}
        }}
        {}",
        reader("a", reads[0], 0),
        reader("b", reads[1], 1)
    );
    small("grid(1) threads(384)", &body)
}

#[test]
fn each_consuming_role_reads_every_stage() {
    assert_eq!(run_with(&two_readers(["4 * z", "4 * z"]), &[("n", 16)]).unwrap(), vec![1234.0; 128]);
    let late = run_with(&two_readers(["4 * z", "3 * z"]), &[("n", 16)]).unwrap_err().to_string();
    assert_eq!(late, "`produce p` filled 1 stage that role `b` does not read, of 4 in all");
    let stuck = run_with(&two_readers(["4 * z", "1 * z"]), &[("n", 16)]).unwrap_err().to_string();
    assert_eq!(
        stuck,
        "`produce p` filled 2 stages that role `b` does not read, of 3 before it waits for a free one"
    );
}

/// Two roles that hand each other tiles: `a` begins, `rounds` times.
fn exchange(first: &str, rounds: &str) -> String {
    let body = format!(
        "u = shared_tensor(f32, [8, 8])
        p = pipeline(1, s)
        q = pipeline(1, u)
        warpgroup a(1) {{
            x = register_tensor(f32, [8, 8])
            copy(gx, x)
            for i in {first}..{rounds} {{
                x = x + 1.0
                produce p {{ copy(x, s) }}
                consume q {{ copy(u, x) }}
            }}
            copy(x, gy)
        }}
        warpgroup b(1) {{
            w = register_tensor(f32, [8, 8])
            for j in 0..{rounds} {{
                consume p {{ copy(s, w) }}
                w = 2.0 * w
                produce q {{ copy(w, u) }}
            }}
        }}"
    );
    small(BLOCK, &body)
        .replace("kernel small(x:", "kernel small(x_:")
        .replace("global_view(x,", "global_view(x_,")
}

#[test]
fn roles_hand_each_other_tiles() {
    let expected: Vec<f64> = numbers(64, 3).iter().map(|x| 8.0 * x + 14.0).collect();
    assert_eq!(run(&exchange("0", "3 * z")).unwrap(), expected);
    assert_eq!(run(&exchange("0", "3")).unwrap(), expected);
    let error = run(&exchange("1", "3 * z")).unwrap_err();
    let message = "`consume p` has no stage to read: role `a` produced 2 stages";
    assert_eq!(error.to_string(), message);
    assert_eq!(error.diagnostic().code, Code::Deadlock);
}

#[test]
fn what_products_in_flight_use_is_not_touched() {
    // No round of the loop waits, which only the sizes tell.
    let product = |then: &str| {
        small(
            BLOCK,
            &format!(
                "rc = register_tensor(f32, [8, 8])
                fill(rc, 0.0)
                copy(gx, s)
                syncthreads()
                gemm.async(rc, s, s)
                commit_gemm()
                for i in 1..z {{ wait_gemm(0) }}
                {then}
                wait_gemm(0)
                copy(rc, gy)"
            ),
        )
    };
    let x = numbers(64, 3);
    let row = |i: usize| &x[8 * i..8 * i + 8];
    let expected: Vec<f64> =
        (0..64).map(|at| row(at / 8).iter().zip(row(at % 8)).map(|(a, b)| a * b).sum()).collect();
    assert_eq!(run(&product("")).unwrap(), expected);
    assert_eq!(run_with(&product("t = rc + rc"), &[("z", 2)]).unwrap(), expected);
    let flight = "that `gemm.async(rc, s, s)` has in flight: no wait covers it yet";
    assert_eq!(refused(&product("t = rc + rc")), format!("`t = rc + rc` reads an element of `rc` {flight}"));
    assert_eq!(
        refused(&product("fill(rc, 1.0)")),
        format!("`fill(rc, 1.0)` writes an element of `rc` {flight}")
    );
    assert_eq!(refused(&product("copy(gx, s)")), format!("`copy(gx, s)` writes an element of `s` {flight}"));
    // Another product may add to it, and what it reads may be read.
    let twice: Vec<f64> = expected.iter().map(|x| 2.0 * x).collect();
    let again = "gemm.async(rc, s, s)\ncommit_gemm()\nr = register_tensor(f32, [8, 8])\ncopy(s, r)";
    assert_eq!(run(&product(again)).unwrap(), twice);
}

#[test]
fn parts_in_flight_are_told_apart() {
    let body = |used: &str| {
        small(
            BLOCK,
            &format!(
                "rc = register_tensor(f32, [8, 8, 2])
                copy(gx, s)
                syncthreads()
                unroll for i in 0..2 {{
                    fill(rc[:, :, i], 0.0)
                }}
                unroll for j in 0..1 {{
                    gemm.async(rc[:, :, j], s, s)
                    commit_gemm()
                }}
                copy(rc[:, :, {used}], gy)"
            ),
        )
    };
    assert_eq!(run(&body("1")).unwrap(), vec![0.0; 64]);
    assert!(
        refused(&body("0"))
            .contains("reads an element of `rc` that `gemm.async(rc[:, :, j], s, s)` has in flight")
    );
    // Once the loop is expanded, the order of the statements shows it.
    assert!(unroll(&verified(&body("1"))).is_ok());
    let error = unroll(&verified(&body("0"))).unwrap_err().0.remove(0);
    assert_eq!(error.code, Code::Misplaced);
}

#[test]
fn factors_are_what_the_tensor_cores_read() {
    let product = |dtype: &str, acc: &str, x: f64, y: f64, k: usize, c: f64| {
        let source = format!(
            "kernel p(x: {dtype}[64, {k}], y: {dtype}[64, {k}], c: {acc}[64, 64]) grid(1) threads(128) {{
                gx = global_view(x, (64, {k}) : (e0, e1))
                gy = global_view(y, (64, {k}) : (e0, e1))
                gc = global_view(c, (64, 64) : (e0, e1))
                a = shared_tensor({dtype}, [64, {k}])
                b = shared_tensor({dtype}, [64, {k}])
                copy.async(gx, a)
                copy.async(gy, b)
                commit_group()
                wait_group(0)
                syncthreads()
                r = register_tensor({acc}, [64, 64])
                copy(gc, r)
                gemm.async(r, a, b)
                commit_gemm()
                wait_gemm(0)
                copy(r, gc)
            }}"
        );
        let mut args = [vec![x; 64 * k], vec![y; 64 * k], vec![c; 64 * 64]].map(Argument::Tensor);
        interpret(&verified(&source), &BTreeMap::new(), &mut args).unwrap();
        tensor(&args, 2)[77]
    };
    // 1 + 2⁻¹⁰ + 2⁻¹¹ is cut, not rounded, to 1 + 2⁻¹⁰.
    let (fine, cut) = (1.0 + 2f64.powi(-10) + 2f64.powi(-11), 1.0 + 2f64.powi(-10));
    assert_eq!(product("f32", "f32", fine, 1.0, 8, 1.0), 1.0 + 8.0 * cut);
    assert_eq!(product("i8", "i32", -128.0, 127.0, 32, 1.0), 1.0 - 32.0 * 128.0 * 127.0);
    assert_eq!(product("u8", "i32", 1.0, 1.0, 32, 2147483647.0), -2147483648.0 + 31.0);
    assert_eq!(product("e4m3", "f16", 1.5, -2.0, 32, 1.0), 1.0 - 96.0);
}

#[test]
fn copies_to_global_memory_are_waited_for() {
    let body = |then: &str| {
        small(BLOCK, &format!("copy(gx, s)\nsyncthreads()\ncopy.async(s, gy)\ncommit_group()\n{then}"))
    };
    assert_eq!(run(&body("wait_group(0)")).unwrap(), numbers(64, 3));
    assert_eq!(
        refused(&body("wait_group(1)")),
        "`copy.async(s, gy)` is still in flight at the end: its writes are done once a `wait_group` covers it"
    );
    assert_eq!(
        refused(&body("copy(gx, s)\nwait_group(0)")),
        "`copy(gx, s)` writes an element of `s` that `copy.async(s, gy)` has in flight: no wait covers it yet"
    );
    // Two read the same; the first is done, the second is not.
    let two = "copy.async(s, gy)\ncommit_group()\nwait_group(1)\ncopy(gx, s)\nwait_group(0)";
    assert!(refused(&body(two)).contains("writes an element of `s`"));
    let read = "r = register_tensor(f32, [8, 8])\ncopy(s, r)\nwait_group(0)";
    assert_eq!(run(&body(read)).unwrap(), numbers(64, 3));
}

#[test]
fn blocks_add_to_global_memory() {
    let source = small(
        "grid(5) threads(128)",
        "r = register_tensor(f32, [8, 8])
        fill(r, 1.0)
        r = r + float(block.x)
        copy(r, s)
        syncthreads()
        copy.async(s, gy, add)
        commit_group()
        wait_group(0)",
    );
    assert_eq!(run(&source).unwrap(), vec![15.0; 64]);
    let v = verified(&source);
    assert!(v.inputs().contains(&v.outputs()[0]), "what is added to is read");
}

/// Counts how often each of `rows`×`cols` tiles is done.
fn visits(rows: i64, cols: i64, blocks: i64, cluster: i64, order: &str) -> Vec<f64> {
    let source = format!(
        "size m = {rows}, n = {cols}
        kernel visits(y: f32[m, n]) grid({blocks}) threads(32) cluster({cluster}) {{
            gy = global_view(y, (1, 1, m, n) : (e0, e1, e0, e1))
            s = shared_tensor(f32, [1, 1])
            r = register_tensor(f32, [1, 1])
            fill(r, 1.0)
            copy(r, s)
            syncthreads()
            for (i, j) in tiles(m, n{order}) {{
                copy.async(s, gy[:, :, i, j], add)
            }}
            commit_group()
            wait_group(0)
        }}"
    );
    let mut args = [Argument::Tensor(vec![0.0; (rows * cols) as usize])];
    interpret(&verified(&source), &BTreeMap::new(), &mut args).unwrap();
    tensor(&args, 0).to_vec()
}

#[test]
fn clusters_share_the_tiles() {
    for order in ["", ", grouped(3)", ", grouped(2, serpentine)", ", hilbert(1)", ", hilbert(2)"] {
        for (rows, cols) in [(1, 1), (1, 7), (5, 4), (7, 6), (4, 8)] {
            for (blocks, cluster) in [(1, 1), (3, 1), (40, 1), (4, 2), (8, 4)] {
                let all = visits(rows, cols, blocks, cluster, order);
                assert_eq!(all, vec![cluster as f64; all.len()], "{rows}×{cols} {blocks}/{cluster}{order}");
            }
        }
    }
}

#[test]
fn clusters_add_up_what_their_blocks_have() {
    let body = "r = register_tensor(f32, [8, 8])
        v = global_view(y[block.x * 8 :, :], (8, 8) : (e0, e1))
        fill(r, 1.0)
        r = r + float(block.x)
        cluster_reduce(r, sum)
        cluster_reduce(r, sum)
        copy(r, v)";
    let result = run_with(&small("grid(6) threads(128) cluster(3)", body), &[("n", 48)]).unwrap();
    let expected: Vec<f64> = [18.0, 18.0, 18.0, 45.0, 45.0, 45.0].iter().flat_map(|x| vec![*x; 64]).collect();
    assert_eq!(result, expected);
    // The sums of f32 are added in the order of the ranks: 2²⁴, then 1, then 1 more are lost one by one.
    let lost = "r = register_tensor(f32, [8, 8])
        fill(r, 16777216.0)
        for i in 0..min(block.x, 1) { fill(r, 1.0) }
        cluster_reduce(r, sum)
        copy(r, gy)";
    assert_eq!(run(&small("grid(3) threads(128) cluster(3)", lost)).unwrap(), vec![16777216.0; 64]);
    let apart = "r = register_tensor(f32, [8, 8])
        fill(r, 1.0)
        for i in 0..block.x { cluster_reduce(r, sum) }
        copy(r, gy)";
    let message = "`cluster_reduce(r, sum)`: the blocks of the cluster do not all reach it at the same time";
    assert_eq!(refused(&small("grid(2) threads(128) cluster(2)", apart)), message);
    let other = "r = register_tensor(f32, [8, 8])
        fill(r, 1.0)
        for i in 0..block.x { cluster_reduce(r, sum) }
        for j in block.x..1 { cluster_reduce(r, sum) }
        copy(r, gy)";
    assert_eq!(refused(&small("grid(2) threads(128) cluster(2)", other)), message);
}

#[test]
fn the_grid_is_made_of_whole_clusters() {
    let source = small("grid(n) threads(128) cluster(4)", "");
    assert!(run(&source).is_ok());
    let error = run_with(&source, &[("n", 10)]).unwrap_err().to_string();
    assert_eq!(error, "the grid has 10 blocks along x, which is no multiple of the 4 blocks of a cluster");
}

#[test]
fn what_a_cluster_shares_is_one_tile() {
    let body = |offset: &str| {
        small(
            "grid(4) threads(256) cluster(2)",
            &format!(
                "v = global_view(x[{offset} :, :], (8, 8) : (e0, e1))
                p = pipeline(2, s)
                warpgroup load(1) {{ produce p {{ copy.async(v, s, multicast) }} }}
                warpgroup math(1) {{
                    r = register_tensor(f32, [8, 8])
                    consume p {{ copy(s, r) }}
                }}"
            ),
        )
    };
    assert!(run(&body("block.x / 2 * 4")).is_ok());
    let message = "`copy.async(v, s, multicast)`: the blocks of the cluster do not all copy the same tile";
    assert_eq!(refused(&body("block.x * 4")), message);
}

#[test]
fn slices_are_parts_of_registers() {
    let source = small(
        BLOCK,
        "r = register_tensor(f32, [8, 8])
        copy(gx, r)
        o = global_view(y, (8, 2, 4) : (e0, e1, 2 * e1))
        unroll for i in 0..4 {
            t = slice(r, 1, 6 - 2 * i, 2)
            copy(t, o[:, :, i])
        }",
    );
    let x = numbers(64, 3);
    let expected: Vec<f64> = (0..64).map(|at| x[at / 8 * 8 + 6 - at % 8 / 2 * 2 + at % 2]).collect();
    assert_eq!(run(&source).unwrap(), expected);
    let outside = source.replace("6 - 2 * i", "8 - 2 * i");
    let message = "`t = slice(r, 1, 8 - 2 * i, 2)`: the slice begins at 8, and fits from 0 to 6";
    assert_eq!(refused(&outside), message);
    let rows = small(
        BLOCK,
        "r = register_tensor(f32, [8, 8])\ncopy(gx, r)\nt = slice(r, 0, 3, 1)\no = global_view(y, (1, 8) : (e0, e1))\ncopy(t, o)",
    );
    assert_eq!(run(&rows).unwrap()[..8], x[24..32]);
}

/// A kernel in which `row + 10 · col` of each tile waits in a register for the next round, which writes it.
const LATE: &str = "
size m = 5, n = 4
const SMS = 3
kernel late(y: f32[m, n]) grid(SMS) threads(32) {
    gy = global_view(y, (1, 1, m, n) : (e0, e1, e0, e1))
    r = register_tensor(f32, [1, 1])
    fill(r, -1.0)
    for (i, j) previous (p, q) in tiles(m, n, grouped(2, serpentine)) {
        copy(r, gy[:, :, p, q])
        r = float(i + 10 * j)
    } drain {
        copy(r, gy[:, :, p, q])
    }
}";

#[test]
fn a_round_knows_the_tile_of_the_round_before() {
    let v = verified(LATE);
    assert_eq!(read(&v.program().to_string()), *v.program());
    // Of 40 blocks 20 have no tile, and write nothing.
    for blocks in [1, 2, 3, 7, 20, 40] {
        let constants = Constants::from([("SMS".to_string(), blocks)]);
        let v = verify(&read(LATE), &constants).unwrap();
        let mut args = [Argument::Tensor(vec![f64::NAN; 20])];
        interpret(&v, &BTreeMap::new(), &mut args).unwrap();
        let expected: Vec<f64> = (0..20).map(|at| f64::from(at / 4 + 10 * (at % 4))).collect();
        assert_eq!(tensor(&args, 0), expected, "{blocks} blocks");
    }
}

#[test]
fn loops_in_unrolled_rounds_have_their_own_last_tiles() {
    let source = small(
        "grid(1) threads(32)",
        "v = global_view(y, (1, 1, 8, 8) : (e0, e1, e0, e1))
        r = register_tensor(f32, [1, 1])
        unroll for u in 0..2 {
            fill(r, 0.0)
            for (i, j) previous (p, q) in tiles(8, 4) {
                copy(r, v[:, :, p, q + 4 * u])
                r = float(1 + 10 * i + j + 4 * u)
            } drain {
                copy(r, v[:, :, p, q + 4 * u])
            }
        }",
    );
    let expected: Vec<f64> = (0..64).map(|at| f64::from(1 + 10 * (at / 8) + at % 8)).collect();
    let v = verified(&source);
    for v in [v.clone(), unroll(&v).unwrap()] {
        let mut args = [numbers(64, 3), vec![0.0; 64]].map(Argument::Tensor);
        interpret(&v, &BTreeMap::new(), &mut args).unwrap();
        assert_eq!(tensor(&args, 1), expected);
        let text = v.program().to_string();
        assert_eq!(read(&text).to_string(), text);
    }
}

#[test]
fn a_finally_stands_behind_its_loop() {
    let mut program = read(LATE);
    let end = program.body.len();
    program.body.swap(end - 2, end - 1);
    let errors = verify(&program, &Constants::new()).unwrap_err().0;
    assert_eq!(errors[0].code, Code::Misplaced);
    assert!(errors[0].message.contains("behind no loop"), "{}", errors[0].message);
}

#[test]
fn counters_of_tiles_are_in_range() {
    // The number of tiles must fit in 32 bits, and so must what is computed with a tile's row.
    let source = "size m = 4
        kernel far(x: f32[m]) grid(1) threads(32) {
            g = global_view(x, (1, m) : (e0, e0))
            r = register_tensor(f32, [1])
            for (i, j) in tiles(m, FACTOR) { copy(g[:, i * SCALE], r) }
        }";
    let check = |factor: &str, scale: &str, m: i64| {
        let source = source.replace("FACTOR", factor).replace("SCALE", scale);
        let sizes = BTreeMap::from([("m".to_string(), m)]);
        tilewright_tile::interpret::check_ranges(&verified(&source), &sizes, &BTreeMap::new())
            .map_err(|error| error.to_string())
    };
    assert_eq!(check("4", "1", 1000), Ok(()));
    assert!(check("1000000", "1", 100_000).unwrap_err().contains("the number of tiles can reach"));
    assert!(check("4", "1000000", 2_000).is_ok());
    assert!(check("4", "1000000", 20_000).unwrap_err().contains("19999000000"));
    // The tile before the first is one further.
    let after = source.replace("for (i, j)", "for (t, u) previous (i, j)");
    let sizes = BTreeMap::from([("m".to_string(), 2147)]);
    let ranges = |source: &str| {
        let source = source.replace("FACTOR", "4").replace("SCALE", "1000465");
        tilewright_tile::interpret::check_ranges(&verified(&source), &sizes, &BTreeMap::new())
            .map_err(|error| error.to_string())
    };
    assert_eq!(ranges(source), Ok(()));
    assert!(ranges(&after).unwrap_err().contains("2147998355"));
    let behind = after.replace("copy(g[:, i * SCALE], r) }", "} drain { copy(g[:, i * SCALE], r) }");
    assert!(ranges(&behind).unwrap_err().contains("2147998355"));
}

#[test]
fn a_loop_around_loops_of_products_is_read_in_time() {
    let depth = 120;
    let loops: String =
        (0..depth).map(|i| format!("for c{i} in 0..n {{ gemm.async(rc, s, s)\ncommit_gemm()\n")).collect();
    let source = small(
        BLOCK,
        &format!(
            "rc = register_tensor(f32, [8, 8])\nfill(rc, 0.0)\n{loops}{}\nwait_gemm(0)",
            "}".repeat(depth)
        ),
    );
    verified(&source);
}

#[test]
fn passes_go_into_roles_and_stages() {
    let source = small(
        BLOCK,
        "t = shared_tensor(f32, [8, 8])
        p = pipeline(2, s)
        warpgroup load(1) {
            for (i, j) in tiles(1, 1) { produce p { copy(gx, s) } }
        }
        warpgroup math(1) {
            r = register_tensor(f32, [8, 8])
            consume p {
                copy(s, r)
                m = rearrange(r)
                copy(m, t)
                syncthreads()
                copy(t, gy)
            }
        }",
    );
    let v = verified(&source);
    let plain = through_core(&v, desugar);
    let text = plain.to_string();
    assert!(!text.contains("rearrange") && !text.contains("copy(t, gy)"), "{text}");
    let mut args = [numbers(64, 3), vec![0.0; 64]].map(Argument::Tensor);
    interpret(&v, &BTreeMap::new(), &mut args).unwrap();
    assert_eq!(tensor(&args, 1), numbers(64, 3));

    let inserted = through_core(&v, |program| {
        let mut before = None;
        program.visit(&mut |stmt, _| {
            if tilewright_tile::statement_text(&*program, stmt) == "copy(m, t)" {
                before = Some(stmt.id);
            }
        });
        let m = program.tensors.iter().position(|t| t.name == "m").unwrap();
        let m = tilewright_tile::TensorId(m as u32);
        tilewright_tile::core::insert_rearrangement(program, before.unwrap(), m).unwrap();
    });
    let text = inserted.to_string();
    assert!(text.contains("m_moved = rearrange(m)\n            copy(m_moved, t)"), "{text}");
    let mut found = [numbers(64, 3), vec![0.0; 64]].map(Argument::Tensor);
    tilewright_tile::interpret(&inserted, &BTreeMap::new(), &mut found).unwrap();
    assert_eq!(found, args);
}

#[test]
fn what_is_not_written_is_what_is_meant() {
    let source = small(
        "grid(2) threads(128) cluster(1)",
        "for (i, j) in tiles(z, z,) {
            r = register_tensor(f32, [8, 8])
            copy(gx, r)
            copy(r, s)
            syncthreads()
            copy.async(s, gy, evict_first, add,)
        }
        commit_group()
        wait_group(0)",
    );
    let text = read(&source).to_string();
    assert!(!text.contains("cluster"), "{text}");
    assert!(text.contains("in tiles(z, z, grouped(1)) {"), "{text}");
    assert!(text.contains("copy.async(s, gy, add, evict_first)"), "{text}");
    assert_eq!(read(&text), read(&source));
    assert_eq!(run(&source).unwrap(), numbers(64, 3), "one block has the only tile");
}
