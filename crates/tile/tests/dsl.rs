//! The Rust DSL makes the programs that the text form reads; its misuse is reported, never a panic.

use tilewright_machine::DType::{F16, F32, F64, I32, U64};
use tilewright_machine::RedOp;
use tilewright_tile::dsl::{KernelBuilder, block_x, block_y, float, nested, steps, tile};
use tilewright_tile::{Code, Constants, Diagnostic, Program, ReduceOp, Stmt, parse, verify};

fn gemm(shared: bool) -> Program {
    let mut k = KernelBuilder::new(if shared { "gemm_shared" } else { "gemm" });
    let [m, n, kk] = ["m", "n", "k"].map(|name| k.size(name, 1024));
    let tiles = if shared { [128, 128, 32] } else { [64, 64, 16] };
    let bm = k.constant("BM", tiles[0]);
    let bn = k.constant("BN", tiles[1]);
    let bk = k.constant("BK", tiles[2]);
    let a = k.tensor("a", F16, [&m, &kk]);
    let b = k.tensor("b", F16, [&n, &kk]);
    let c = k.tensor("c", F16, [&m, &n]);
    k.grid([m.ceil_div(&bm), n.ceil_div(&bn)]);
    k.threads(128);
    let iterations = kk.ceil_div(&bk);
    let modes = |rows| [tile(0, rows), tile(1, &bk), steps(1, &iterations, &bk)];
    let ga = k.global_view("ga", a.from([block_x() * &bm, 0.into()]), modes(&bm));
    let gb = k.global_view("gb", b.from([block_y() * &bn, 0.into()]), modes(&bn));
    let staged =
        shared.then(|| (k.shared_tensor("sa", F16, [&bm, &bk]), k.shared_tensor("sb", F16, [&bn, &bk])));
    let ra = k.register_tensor("ra", F16, [&bm, &bk]);
    let rb = k.register_tensor("rb", F16, [&bn, &bk]);
    let rc = k.register_tensor("rc", F32, [&bm, &bn]);
    k.fill(&rc, 0.0);
    k.for_range("ki", 0, &iterations, |k, ki| {
        if let Some((sa, sb)) = staged {
            k.copy(ga.at(&ki), sa);
            k.copy(gb.at(&ki), sb);
            k.syncthreads();
            k.copy(sa, ra);
            k.copy(sb, rb);
            k.gemm(&rc, ra, rb);
            k.syncthreads();
        } else {
            k.copy(ga.at(&ki), ra);
            k.copy(gb.at(&ki), rb);
            k.gemm(&rc, ra, rb);
        }
    });
    let rc_f16 = k.cast("rc_f16", rc, F16);
    let sc = k.shared_tensor("sc", F16, [&bm, &bn]);
    k.copy(rc_f16, sc);
    k.syncthreads();
    let rc1 = k.register_tensor("rc1", F16, [&bm, &bn]);
    k.copy(sc, rc1);
    let gc = k.global_view("gc", c.from([block_x() * &bm, block_y() * &bn]), [tile(0, &bm), tile(1, &bn)]);
    k.copy(rc1, gc);
    k.finish().unwrap()
}

#[test]
fn a_pipeline_in_rust_equals_the_one_in_text() {
    let mut k = KernelBuilder::new("pipe");
    let x = k.tensor("x", F16, [64, 128]);
    k.grid([1]);
    k.threads(128);
    let gx = k.global_view("gx", &x, [tile(0, 64), tile(1, 16), steps(1, 8, 16)]);
    let s = k.shared_tensor("s", F16, [64, 16, 4]);
    let r = k.register_tensor("r", F16, [64, 16, 2]);
    k.unroll_for("i", 0, 4, |k, i| {
        k.copy_async(gx.at(&i), s.at(&i));
        k.commit_group();
    });
    k.wait_group(1);
    k.syncthreads();
    k.unroll_for("j", 0, 2, |k, j| {
        k.copy(s.at(&j), r.at(&j));
        let part = k.part(r.at(&j));
        k.define("t", part + part);
    });
    let text = "kernel pipe(x: f16[64, 128]) grid(1) threads(128) {
        gx = global_view(x[:, :], (64, 16, 8) : (e0, e1, 16 * e1))
        s = shared_tensor(f16, [64, 16, 4])
        r = register_tensor(f16, [64, 16, 2])
        unroll for i in 0..4 {
            copy.async(gx[:, :, i], s[:, :, i])
            commit_group()
        }
        wait_group(1)
        syncthreads()
        unroll for j in 0..2 {
            copy(s[:, :, j], r[:, :, j])
            t = r[:, :, j] + r[:, :, j]
        }
    }";
    assert_eq!(k.finish().unwrap(), parse(text).unwrap());
}

#[test]
fn a_part_is_assigned_to() {
    let mut k = KernelBuilder::new("parts");
    k.grid([1]);
    k.threads(128);
    let r = k.register_tensor("r", F32, [64, 2]);
    let q = k.register_tensor("q", F32, [64]);
    let part = k.part(r.at(0));
    k.fill(&q, 0.0);
    k.assign(&part, q + 1.0);
    let next = k.part(r.at(1));
    k.assign(&next, q);
    let text = "kernel parts() grid(1) threads(128) {
        r = register_tensor(f32, [64, 2])
        q = register_tensor(f32, [64])
        fill(q, 0.0)
        r[:, 0] = q + 1.0
        r[:, 1] = q
    }";
    let program = k.finish().unwrap();
    assert_eq!(program, parse(text).unwrap());
    verify(&program, &Constants::new()).unwrap();

    let mut k = KernelBuilder::new("transposed");
    let r = k.register_tensor("r", F32, [64, 2]);
    k.part(r.at(0).transpose());
    assert_eq!(k.finish().unwrap_err().0[0].code, Code::WrongMemory);
}

/// Expressions become the same statements in both front ends, and their text form reads back.
#[test]
fn expressions_stand_where_tensors_may() {
    let mut k = KernelBuilder::new("nested");
    let x = k.tensor("x", F16, [8, 64]);
    k.grid([1]);
    k.threads(128);
    let gx = k.global_view("gx", &x, [tile(0, 8), tile(1, 64)]);
    let r = k.register_tensor("r", F16, [8, 64]);
    let acc = k.register_tensor("acc", F32, [8, 8]);
    k.copy(gx, r);
    k.fill(&acc, 0.0);
    let v = k.cast("v", r, F32);
    let largest = v.reduce_keep(ReduceOp::Max, 1).broadcast([8, 64]);
    let e = k.define("e", (v - largest).exp());
    let pair = k.register_tensor("pair", F32, [8, 64, 2]);
    let second = k.part(pair.at(1));
    k.assign(&second, e.rearrange(None) * 2.0);
    k.gemm(&acc, (e * e).cast(F16), r);
    k.copy((e / e.reduce_keep(ReduceOp::Sum, 1).broadcast([8, 64])).cast(F16), gx);
    let scan =
        k.define("flat", acc.permute([]).reshape([64]).join(acc.reshape([64])).reduce(ReduceOp::Min, 1));
    k.assign(&scan, scan.expand(0).slice(0, 0, 1).reshape([64]));
    let program = k.finish().unwrap();
    let text = "kernel nested(x: f16[8, 64]) grid(1) threads(128) {
        gx = global_view(x, (8, 64) : (e0, e1))
        r = register_tensor(f16, [8, 64])
        acc = register_tensor(f32, [8, 8])
        copy(gx, r)
        fill(acc, 0.0)
        v = cast(r, f32)
        e = exp(v - broadcast(reduce(v, max, 1, keep), [8, 64]))
        pair = register_tensor(f32, [8, 64, 2])
        pair[:, :, 1] = rearrange(e) * 2.0
        gemm(acc, cast(e * e, f16), r)
        copy(cast(e / broadcast(reduce(e, sum, 1, keep), [8, 64]), f16), gx)
        flat = reduce(join(reshape(transpose(acc), [64]), reshape(acc, [64])), min, 1)
        flat = reshape(slice(expand(flat, 0), 0, 0, 1), [64])
    }";
    assert_eq!(program, parse(text).unwrap());
    verify(&program, &Constants::new()).unwrap();
    let flat = program.to_string();
    assert!(flat.contains("v_max = reduce(v, max, 1)\n    v_expand = expand(v_max, 1)"), "{flat}");
    assert!(flat.contains("copy(e_f16_1, gx)"), "{flat}");
    assert_eq!(program, parse(&flat).unwrap());
}

/// Messages have the text of an expression, and not the name that its tensor gets.
#[test]
fn messages_name_expressions() {
    let mut k = KernelBuilder::new("k");
    k.grid([1]);
    k.threads(128);
    let x = k.tensor("x", F16, [8, 64]);
    let gx = k.global_view("gx", &x, [tile(0, 8), tile(1, 64)]);
    let r = k.register_tensor("r", F16, [8, 64]);
    k.copy(gx, r);
    k.copy(r.reduce_keep(ReduceOp::Max, 1).cast(F32), gx);
    let errors = verify(&k.finish().unwrap(), &Constants::new()).unwrap_err();
    let text = errors.to_string();
    assert!(text.contains("`cast(reduce(r, max, 1, keep), f32)` is f32, `gx` is f16"), "{text}");
    assert!(!text.contains("r_"), "{text}");
}

#[test]
fn the_examples_in_rust_equal_the_examples_in_text() {
    assert_eq!(gemm(false), parse(include_str!("../../../examples/gemm.tile")).unwrap());
    assert_eq!(gemm(true), parse(include_str!("../../../examples/gemm_shared.tile")).unwrap());

    let mut k = KernelBuilder::new("transpose");
    let m = k.size("m", 1024);
    let n = k.size("n", 1024);
    let bm = k.constant("BM", 64);
    let bn = k.constant("BN", 64);
    let x = k.tensor("x", F32, [&m, &n]);
    let y = k.tensor("y", F32, [&n, &m]);
    let alpha = k.scalar("alpha", 2.0);
    k.grid([m.ceil_div(&bm), n.ceil_div(&bn)]);
    k.threads(256);
    let (row, column) = (block_x() * &bm, block_y() * &bn);
    let gx = k.global_view("gx", x.from([&row, &column]), [tile(0, &bm), tile(1, &bn)]);
    let gy = k.global_view("gy", y.from([&column, &row]), [tile(0, &bn), tile(1, &bm)]);
    let s = k.shared_tensor("s", F32, [&bm, &bn]);
    k.copy(gx, s);
    k.syncthreads();
    let r = k.register_tensor("r", F32, [&bn, &bm]);
    k.copy(s.transpose(), r);
    let t = k.define("t", alpha * r + r.tanh());
    k.copy(t, gy);
    assert_eq!(k.finish().unwrap(), parse(include_str!("../../../examples/transpose.tile")).unwrap());
}

#[test]
fn what_the_builder_makes_reads_back() {
    let mut k = KernelBuilder::new("all");
    let n = k.size("n", 64);
    let x = k.strided_tensor("x", F32, [&n, &n], [1.into(), n.clone()]);
    let ids = k.tensor("ids", I32, [&n]);
    let beta = k.scalar("beta", -0.5);
    k.grid([1]);
    k.threads(32);
    let g = k.global_view("g", &x, [nested([tile(0, 8), tile(1, 4)]), steps(1, 2, 4)]);
    let r = k.register_tensor("r", F32, [32]);
    k.copy(g.at(ids.element(ids.element(0) + 1)), r);
    let t = k.define("t", -(&r - 2.0) / beta.max(r).sqrt() + 3.0 * r.exp() * float(&n) - -r);
    k.assign(&t, t * t.min(1.5).abs());
    let u = k.rearrange("u", t, Some("(32,1):(1,0)".parse().unwrap()));
    let h = k.cast("h", u, F16);
    k.cast_to(&u, h);
    k.rearrange_to(&t, u);
    let s = k.shared_tensor_with("s", F32, [32], "32:1".parse::<tilewright_layout::Layout>().unwrap());
    k.copy(t, s);
    let program = k.finish().unwrap();
    assert_eq!(parse(&program.to_string()).unwrap(), program, "{program}");
    assert!(program.to_string().contains("copy(g[:, ids[ids[0] + 1]], r)"), "{program}");
}

#[test]
fn elements_of_buffers_of_another_kernel_are_refused() {
    let mut other = KernelBuilder::new("other");
    let ids = other.tensor("ids", I32, [4]);
    let mut k = KernelBuilder::new("one");
    k.grid([ids.element(0)]);
    k.threads(32);
    let errors = k.finish().unwrap_err();
    assert_eq!(errors.0[0].message, "an expression of another kernel is used");
}

#[test]
fn packed_arithmetic_and_numbers_of_64_bits_in_rust_equal_those_in_text() {
    let mut k = KernelBuilder::new("numbers");
    let [x, y] = [("x", F16), ("y", F64)].map(|(name, dtype)| k.tensor(name, dtype, [64]));
    let z = k.tensor("z", U64, [64]);
    let step = k.number("step", F64, 0.1);
    let seed = k.number("seed", U64, u64::MAX);
    let count = k.number("count", I32, -3i64);
    k.grid([1]);
    k.threads(32);
    let views = [("gx", x), ("gy", y), ("gz", z)];
    let [gx, gy, gz] = views.map(|(name, of)| k.global_view(name, &of, [tile(0, 64)]));
    let [r, s] = [("r", F16), ("s", F64)].map(|(name, dtype)| k.register_tensor(name, dtype, [64]));
    let t = k.register_tensor("t", U64, [64]);
    k.copy(gx, r);
    k.copy(gy, s);
    k.copy(gz, t);
    k.assign(&r, (r * r + 0.1).f16x2());
    k.assign(&s, s * step);
    k.assign(&t, t + seed + count);
    k.copy(r, gx);
    k.copy(s, gy);
    k.copy(t, gz);
    let program = k.finish().unwrap();
    let text = "kernel numbers(x: f16[64], y: f64[64], z: u64[64], step: f64 = 0.1, seed: u64 = 0xffffffffffffffff, count: i32 = -3)
            grid(1) threads(32) {
            gx = global_view(x, (64) : (e0))
            gy = global_view(y, (64) : (e0))
            gz = global_view(z, (64) : (e0))
            r = register_tensor(f16, [64])
            s = register_tensor(f64, [64])
            t = register_tensor(u64, [64])
            copy(gx, r)
            copy(gy, s)
            copy(gz, t)
            r = f16x2(r * r + 0.1)
            s = s * step
            t = t + seed + count
            copy(r, gx)
            copy(s, gy)
            copy(t, gz)
        }";
    assert_eq!(program, parse(text).unwrap());
    assert_eq!(program, parse(&program.to_string()).unwrap());
    verify(&program, &Constants::new()).unwrap();
}

#[test]
fn branches_names_and_loops_in_rust_equal_those_in_text() {
    let mut k = KernelBuilder::new("control");
    let n = k.size("n", 256);
    let x = k.tensor("x", F32, [&n]);
    let table = k.tensor("table", I32, [4, 8]);
    let turn = k.integer("turn", I32, 3);
    k.grid([n.ceil_div(64)]);
    k.threads(64);
    let row = k.let_integer("row", block_x() * 64);
    let gx = k.global_view("gx", x.from([row.clone()]), [tile(0, 64)]);
    let r = k.register_tensor("r", F32, [64]);
    k.copy(gx, r);
    k.unroll_for_by("i", 4, 0, &turn, |k, i| {
        let known = table.element_at([0.into(), i.clone()]).greater(0).or(i.equals(&turn).negated());
        k.if_else(
            known.and(row.less(&n)),
            |k| k.assign(&r, &r * 2.0),
            |k| k.if_then(i.at_least(2), |k| k.assign(&r, &r + 1.0)),
        );
    });
    k.for_while(
        "j",
        0,
        9,
        |j| table.element_at([1.into(), j.clone()]).at_most(j),
        |k, _| {
            k.assign(&r, &r + 3.0);
        },
    );
    k.copy(r, gx);
    let program = k.finish().unwrap();
    let text = "size n = 256
        kernel control(x: f32[n], table: i32[4, 8], turn: i32 = 3) grid(ceil_div(n, 64)) threads(64) {
            let row = block.x * 64
            gx = global_view(x[row :], (64) : (e0))
            r = register_tensor(f32, [64])
            copy(gx, r)
            unroll(4) for i in 0..turn {
                if (table[0, i] > 0 or not i == turn) and row < n {
                    r = r * 2.0
                } else {
                    if i >= 2 { r = r + 1.0 }
                }
            }
            for j in 0..9 while table[1, j] <= j { r = r + 3.0 }
            copy(r, gx)
        }";
    assert_eq!(program, parse(text).unwrap());
    assert_eq!(program, parse(&program.to_string()).unwrap());
    verify(&program, &Constants::new()).unwrap();
}

#[test]
fn a_view_may_end_before_its_buffer() {
    let mut k = KernelBuilder::new("ends");
    let n = k.size("n", 64);
    let x = k.tensor("x", F32, [&n, &n]);
    k.grid([1]);
    k.threads(32);
    k.global_view(
        "g",
        x.from([block_x(), 0.into()]).until(0, block_x() + 4).until(1, &n - 1),
        [tile(0, 8), tile(1, 8)],
    );
    let program = k.finish().unwrap();
    assert!(program.to_string().contains("global_view(x[block.x : block.x + 4, : n - 1]"), "{program}");
    assert_eq!(parse(&program.to_string()).unwrap(), program);

    let mut k = KernelBuilder::new("beyond");
    let x = k.tensor("x", F32, [4]);
    k.grid([1]);
    k.threads(32);
    k.global_view("g", x.from([0]).until(1, 4), [tile(0, 4)]);
    let errors = k.finish().unwrap_err();
    assert_eq!(errors.0[0].message, "the view `g` ends along mode 1 of `x`, which has 1");
}

#[test]
fn misuse_is_reported_at_the_end() {
    let mut k = KernelBuilder::new("two words");
    let n = k.size("n", 4);
    k.size("n", 5);
    k.constant("grid", 1);
    let mut inner = None;
    k.for_range("i", 0, &n, |k, _| inner = Some(k.register_tensor("t", F32, [4])));
    let inner = inner.unwrap();
    k.fill(&inner, 1.0);
    let mut other = KernelBuilder::new("other");
    let foreign = other.register_tensor("f", F32, [4]);
    k.fill(&foreign, f64::NAN);
    k.define("u", 1.0 * foreign + inner);
    k.define("v", 2.0);
    let errors = k.finish().unwrap_err();
    let codes: Vec<Code> = errors.0.iter().map(|e| e.code).collect();
    let expected = [
        Code::DuplicateName,
        Code::DuplicateName,
        Code::UnknownName,
        Code::BadValue,
        Code::UnknownName,
        Code::UnknownName,
        Code::WrongRank,
        Code::Syntax,
    ];
    assert_eq!(codes, expected, "{errors}");
}

/// The line of this file that an error names.
fn line(error: &Diagnostic) -> u32 {
    let location = error.span.rust().expect("a call in Rust");
    assert_eq!(location.file(), file!(), "{error}");
    assert!(error.to_string().ends_with(&format!("--> {location}")) || !error.related.is_empty(), "{error}");
    location.line()
}

#[test]
fn mistakes_name_the_line_of_the_call() {
    // What the builder finds.
    let mut k = KernelBuilder::new("lines");
    let first = line!();
    k.size("n", 4);
    k.size("n", 5);
    let r = k.register_tensor("r", F32, [4]);
    let mut other = KernelBuilder::new("other");
    let foreign = other.register_tensor("f", F32, [4]);
    k.fill(&r, f64::NAN);
    k.join("j", r, foreign);
    k.pipeline("p", 2, [&r, &foreign]);
    k.define("u", r + foreign);
    k.define("v", 2.0);
    k.part(r.at(0).transpose());
    k.for_range("i", 0, 4, |k, _| {
        k.cluster_reduce(&foreign, ReduceOp::Sum);
    });
    k.reduce_to(&r, foreign, ReduceOp::Sum, 0);
    let errors = k.finish().unwrap_err();
    let lines: Vec<u32> = errors.0.iter().map(|error| line(error) - first).collect();
    assert_eq!(lines, [2, 6, 7, 8, 9, 10, 11, 13, 15], "{errors}");
    let (declared, label) = &errors.0[0].related[0];
    assert_eq!((declared.rust().unwrap().line() - first, label.as_str()), (1, "first declared here"));

    // What the verifier finds.
    let mut k = KernelBuilder::new("verified");
    let first = line!();
    let x = k.tensor("x", F16, [0]);
    k.grid([1]);
    k.threads(33);
    let r = k.register_tensor("r", F32, [4, 0]);
    let s = k.register_tensor("s", F32, [4]);
    k.for_range("i", 0, 4, |k, i| {
        k.wait_group(i);
    });
    let gx = k.global_view("gx", &x, [tile(0, 4)]);
    k.copy(gx, s);
    let _ = r;
    let errors = verify(&k.finish().unwrap(), &Constants::new()).unwrap_err();
    let mut lines: Vec<u32> = errors.0.iter().map(|error| line(error) - first).collect();
    lines.sort_unstable();
    assert_eq!(lines, [1, 3, 4, 7, 10], "{errors}");
}

#[test]
fn every_statement_names_the_line_of_its_call() {
    fn places(body: &[Stmt], lines: &mut Vec<u32>) {
        for stmt in body {
            let location = stmt.span.rust().expect("a call in Rust");
            assert_eq!(location.file(), file!());
            lines.push(location.line());
            places(stmt.kind.body(), lines);
        }
    }
    let program = gemm(true);
    let mut lines = Vec::new();
    places(&program.body, &mut lines);
    // In the order of the calls but for loops, whose call is around their bodies.
    assert!(lines.is_sorted(), "{lines:?}");
    let tables = program.symbols.iter().map(|s| s.span).chain(program.params.iter().map(|p| p.span));
    let tables = tables.chain(program.tensors.iter().map(|t| t.span));
    for span in tables.chain([program.grid_span, program.threads_span]) {
        assert_eq!(span.rust().expect("a call in Rust").file(), file!());
    }
}

#[test]
fn an_expression_may_not_grow_without_end() {
    let mut k = KernelBuilder::new("deep");
    let r = k.register_tensor("r", F32, [4]);
    let mut sum = 0.0 + r;
    for _ in 0..100_000 {
        sum = sum + r;
    }
    k.assign(&r, sum);
    assert_eq!(k.finish().unwrap_err().0[0].code, Code::Syntax);
}

#[test]
fn a_product_may_say_how_warps_share_it() {
    let mut k = KernelBuilder::new("over");
    let wm = k.constant("WM", 2);
    k.grid([1]);
    k.threads(128);
    let [a, b, c] =
        [("a", F16), ("b", F16), ("c", F32)].map(|(name, dtype)| k.register_tensor(name, dtype, [64, 64]));
    k.fill(&c, 0.0);
    k.gemm_over(&c, a, b, [wm, 2.into()]);
    let program = k.finish().unwrap();
    let text = program.to_string();
    assert!(text.contains("gemm(c, a, b, warps = (WM, 2))"), "{text}");
    assert_eq!(parse(&text).unwrap(), program);
    let verified = verify(&program, &Constants::new()).unwrap();
    assert!(verified.program().to_string().contains("warps = (2, 2)"));
}

#[test]
fn misuse_of_roles_and_pipelines_is_reported_at_the_end() {
    let mut k = KernelBuilder::new("misuse");
    let s = k.shared_tensor("s", F32, [32, 4]);
    let p = k.pipeline("p", 2, [&s]);
    // The name is taken: the handle stands for nothing, and its stages are dropped.
    let again = k.pipeline("p", 2, [&s]);
    k.produce(&again, |k| k.syncthreads());
    let mut inner = None;
    k.role("a", 1, None, |k| inner = Some(k.register_tensor("r", F32, [32, 4])));
    k.role("a", 1, None, |_| {});
    let inner = inner.unwrap();
    k.cluster_reduce(&inner, ReduceOp::Sum);
    let mut other = KernelBuilder::new("other");
    let foreign = other.register_tensor("f", F32, [4]);
    k.pipeline("q", 2, [&foreign]);
    other.consume(&p, |_| {});
    k.gemm_async(&foreign, s, s);
    k.for_tiles(["i", "i"], 4, 4, tilewright_tile::dsl::grouped(2), |_, _, _| {});
    // The second name is taken: of the tile before, a row is known and no column.
    let late = tilewright_tile::dsl::grouped(2);
    k.for_tiles_after(["j", "l", "o", "o"], [4.into(), 4.into()], late, |_, _, _| {}, |_, _| {});
    let codes = |k: KernelBuilder| k.finish().unwrap_err().0.iter().map(|e| e.code).collect::<Vec<_>>();
    let expected = [
        Code::DuplicateName,
        Code::DuplicateName,
        Code::UnknownName,
        Code::UnknownName,
        Code::UnknownName,
        Code::DuplicateName,
        Code::DuplicateName,
    ];
    assert_eq!(codes(k), expected);
    assert_eq!(codes(other), [Code::UnknownName]);
}

#[test]
fn roles_do_not_nest_without_end() {
    fn nest(k: &mut KernelBuilder, level: usize) {
        if level > 0 {
            k.role(&format!("r{level}"), 1, None, |k| nest(k, level - 1));
        }
    }
    let mut k = KernelBuilder::new("deep");
    nest(&mut k, 300);
    assert_eq!(k.finish().unwrap_err().0[0].code, Code::Syntax);
}

#[test]
fn branches_that_rows_decide_breaks_and_assertions_in_rust_equal_those_in_text() {
    let mut k = KernelBuilder::new("rows");
    let x = k.tensor("x", F32, [64, 32]);
    k.grid([1]);
    k.threads(64);
    let gx = k.global_view("gx", &x, [tile(0, 64), tile(1, 32)]);
    let r = k.register_tensor("r", F32, [64, 32]);
    k.copy(gx, r);
    k.for_range("i", 0, 4, |k, i| {
        k.assert(i.less(4), "small");
        k.if_any(r.gt(0.5), 1, |k| {
            k.assign(&r, r * 0.5);
        });
        k.break_if(i.greater(2));
    });
    k.assert_all(r.lt(1.0), "below 1");
    let s = k.shared_tensor("s", F32, [64, 32]);
    k.copy(r, s);
    k.syncthreads();
    k.print("items", [block_x().into(), r.into(), (r * 2.0).into(), s.index([None, Some(3.into())]).into()]);
    k.print("none", []);
    k.cluster_combine(&[&r], |a, b| vec![a[0].max(b[0].clone())]);
    k.copy(r, gx);
    let text = "kernel rows(x: f32[64, 32]) grid(1) threads(64) {
        gx = global_view(x, (64, 32) : (e0, e1))
        r = register_tensor(f32, [64, 32])
        copy(gx, r)
        for i in 0..4 {
            assert(i < 4, \"small\")
            if any(r > 0.5, 1) { r = r * 0.5 }
            break if i > 2
        }
        assert(all(r < 1.0), \"below 1\")
        s = shared_tensor(f32, [64, 32])
        copy(r, s)
        syncthreads()
        print(\"items\", block.x, r, r * 2.0, s[:, 3])
        print(\"none\")
        cluster_reduce(r, fn(a, b) { return max(a, b) })
        copy(r, gx)
    }";
    let (built, read) = (k.finish().unwrap(), parse(text).unwrap());
    assert_eq!(built.to_string(), read.to_string());
    assert_eq!(built, read);
    assert!(verify(&read, &Constants::new()).is_ok());
}

#[test]
fn flags_in_rust_equal_those_in_text() {
    let mut k = KernelBuilder::new("handed");
    let (x, y) = (k.tensor("x", F32, [64]), k.tensor("y", F32, [64]));
    let done = k.tensor("done", I32, [4, 2]);
    k.grid([4]);
    k.threads(64);
    let (gx, gy) = (k.global_view("gx", &x, [tile(0, 64)]), k.global_view("gy", &y, [tile(0, 64)]));
    let r = k.register_tensor("r", F32, [64]);
    k.wait(&done, [block_x() - 1, 0.into()], 1);
    k.copy(gx, r);
    k.signal(&done, [block_x(), 0.into()], 1, Some(RedOp::Max));
    k.signal(&done, [block_x(), 0.into()], block_x() + 1, None);
    let turn = k.ticket("turn", &done, [0.into(), 1.into()], 4);
    k.if_then(turn.equals(3), |k| {
        k.copy(r, gy);
    });
    let text = "kernel handed(x: f32[64], y: f32[64], done: i32[4, 2]) grid(4) threads(64) {
        gx = global_view(x, (64) : (e0))
        gy = global_view(y, (64) : (e0))
        r = register_tensor(f32, [64])
        wait(done[block.x - 1, 0] >= 1)
        copy(gx, r)
        signal(done[block.x, 0], 1, max)
        signal(done[block.x, 0], block.x + 1)
        let turn = ticket(done[0, 1], 4)
        if turn == 3 { copy(r, gy) }
    }";
    let (built, read) = (k.finish().unwrap(), parse(text).unwrap());
    assert_eq!(built.to_string(), read.to_string());
    assert_eq!(built, read);
    assert!(verify(&read, &Constants::new()).is_ok());
}
