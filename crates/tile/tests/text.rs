//! The text form: round trips, and texts that are no programs.

use proptest::prelude::*;
use tilewright_machine::CacheHint;
use tilewright_machine::{DType, RedOp};
use tilewright_tile::dsl::{
    Elem, KernelBuilder, Pipeline, Tensor, block_x, block_y, float, grouped, hilbert, nested, serpentine,
    steps, tile,
};
use tilewright_tile::{
    ArgOp, AsyncCopyAttrs, Code, CombineForm, Constants, CopyAttrs, Expr, Multicast, Program, ReduceOp, core,
    parse, verify,
};

const SHAPES: &str = "const A = 4, B = 8
kernel shapes(x: f32[A, B]) grid(1) threads(32) {
    gx = global_view(x, (A, B) : (e0, e1))
    r = register_tensor(f32, [A, B])
    copy(gx, r)
    t = transpose(r)
    u = reshape(t, [B, 2, A / 2])
    v = transpose(u, 1, 0, 2)
    m = reduce(v, max, 1)
    w = expand(m, 0)
    b = broadcast(w, [3, 2, A / 2])
    j = join(t, t)
    p, q = split(j)
    i = cast(p, i32)
    g = gather(q, i, 0)
    r = transpose(g)
}";

const ROLES: &str = "const A = 64, STAGES = 3
kernel roles(constant x: f16[A, A] : (A, 1), y: f32[A, A]) grid(8) threads(256) cluster(2) {
    gx = global_view(x, (A, A) : (e0, e1))
    gy = global_view(y, (A, A) : (e0, e1))
    s = shared_tensor(f16, [A, A])
    t = shared_tensor(f32, [A, A])
    p = pipeline(STAGES, s)
    warpgroup load(1) registers(24) {
        for (i, j) previous (k, l) in tiles(4, 4, grouped(2, serpentine)) {
            produce p { copy.async(gx, s, multicast, evict_last) }
        } drain {
            launch_dependents()
        }
        wait_dependencies()
    }
    warpgroup math(1) registers(240) {
        wait_dependencies()
        for (row, col) in tiles(4, 4, hilbert(1)) {
            r = register_tensor(f32, [A, A])
            fill(r, 0.0)
            consume p {
                gemm.async(r, s, transpose(s), warpgroups = (1, 1))
                commit_gemm()
            }
            wait_gemm(0)
            cluster_reduce(r, sum)
            h = slice(r, 1, A / 2, 8)
            copy(r, t)
            syncthreads()
            copy.async(t, gy, add)
            commit_group()
            wait_group(0)
        }
        launch_dependents()
    }
}";

const EXAMPLES: [(&str, &str); 5] = [
    ("gemm", include_str!("../../../examples/gemm.tile")),
    ("gemm_shared", include_str!("../../../examples/gemm_shared.tile")),
    ("transpose", include_str!("../../../examples/transpose.tile")),
    ("shapes", SHAPES),
    ("roles", ROLES),
];

fn read(source: &str) -> Program {
    parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn round_trip(source: &str) {
    let program = read(source);
    let text = program.to_string();
    assert_eq!(read(&text), program, "{text}");
    assert_eq!(read(&text).to_string(), text);
}

#[test]
fn the_examples_verify_and_round_trip() {
    for (name, source) in EXAMPLES {
        round_trip(source);
        let program = read(source);
        assert_eq!(program.name, name);
        let verified = verify(&program, &Constants::new()).unwrap();
        // The folded program is a program too.
        round_trip(&verified.program().to_string());
    }
}

#[test]
fn quotients_of_literals_among_elements_stay_those_of_integers() {
    for value in [
        "int(83) / 0",
        "n + int(83) % 0 * 2",
        "max(n, int(7) / 0)",
        "ceil_div(83, 0)",
        "(int(83) / 0 + 5) * n",
    ] {
        round_trip(&format!(
            "size n = 4\nkernel k(x: f32[4]) grid(1) threads(32) {{ gx = global_view(x, (4) : (e0))\nr = register_tensor(f32, [4])\ncopy(gx, r)\nr = r + float({value}) }}"
        ));
    }
}

fn first_error(source: &str) -> (Code, String) {
    let error = parse(source).expect_err("a mistake").0.remove(0);
    assert!(
        error
            .span
            .text()
            .is_some_and(|span| span.start <= span.end && span.end as usize <= source.len().max(1)),
        "{error:?}"
    );
    (error.code, error.message)
}

#[test]
fn texts_that_are_no_programs_are_refused_at_their_place() {
    let long_name = "x".repeat(1000);
    let kernel = |body: &str| format!("kernel k(x: f32[4]) grid(1) threads(32) {{ {body} }}");
    let deep = |open: &str, middle: &str, close: &str, n: usize| open.repeat(n) + middle + &close.repeat(n);
    let sources = [
        String::new(),
        " \n\n// nothing\n# here\n".to_string(),
        "\u{0}\u{1}\u{7f}ELF".to_string(),
        String::from_utf8_lossy(&(0..=255).collect::<Vec<u8>>()).to_string(),
        "}{".to_string(),
        "(".repeat(100_000),
        "{".repeat(100_000),
        "(".repeat(100_000) + &")".repeat(100_000),
        deep("(", "1", ")", 100_000),
        kernel(&format!("r = register_tensor(f32, [{}])", deep("(", "1", ")", 1000))),
        kernel(&format!("r = register_tensor(f32, [4])\n t = {}r", "-".repeat(100_000))),
        kernel(&format!("r = register_tensor(f32, [4])\n t = r{}", " + r".repeat(100_000))),
        kernel(&format!("r = register_tensor(f32, [block.x{}])", " + block.x".repeat(100_000))),
        kernel(&format!("g = global_view(x[:], (4) : ({}e0))", "block.x * ".repeat(50_000))),
        kernel(&format!("r = register_tensor(f32, [4], layout = {})", deep("(", "1", ")", 200))),
        kernel(&(0..100_000).map(|i| format!("copy(u{i}, v{i}); ")).collect::<String>()),
        kernel(&deep("for i in 0..4 { ", "", "}", 50_000)),
        kernel(&long_name),
        kernel(&"9".repeat(5000)),
        format!("size {}", "m = 1, ".repeat(50_000)),
        "kernel".to_string(),
        "kernel k(".to_string(),
        "size m = 1 kernel k() grid(1) threads(32) { }".to_string(),
    ];
    for source in sources {
        let (code, message) = first_error(&source);
        assert!(!message.is_empty() && message.len() < 300, "{message}");
        assert!(
            matches!(code, Code::Syntax | Code::UnknownName | Code::DuplicateName | Code::BadValue),
            "{message}"
        );
    }
    let (code, message) = first_error(&"x".repeat(10 << 20));
    assert_eq!(code, Code::Syntax);
    assert!(message.contains("more than 1048576 bytes"), "{message}");
    // Deep enough for people is not too deep.
    parse(&kernel(&format!("r = register_tensor(f32, [{}])", deep("(", "1", ")", 150)))).unwrap();
    parse(&kernel(&format!("r = register_tensor(f32, [4])\n t = r{}", " + r".repeat(150)))).unwrap();
    let loops: String = (0..150).map(|i| format!("for c{i} in 0..1 {{ ")).collect();
    let nested = parse(&kernel(&format!("{loops}{}", "}".repeat(150)))).unwrap();
    verify(&nested, &Constants::new()).unwrap();
}

#[test]
fn mistakes_about_names_are_reported_together_with_near_names() {
    let source = include_str!("../../../examples/gemm.tile")
        .replace("copy(ga[", "copy(gaa[")
        .replace("gemm(rc,", "gemm(r_c,");
    let errors = parse(&source).unwrap_err().0;
    let told: Vec<_> = errors.iter().map(|e| (e.code, e.help.as_deref().unwrap_or(""))).collect();
    assert_eq!(told, [(Code::UnknownName, "did you mean `ga`?"), (Code::UnknownName, "did you mean `rc`?")]);
    assert_eq!(&source[errors[0].span.text().unwrap().range()], "gaa");
}

#[test]
fn an_unknown_constant_is_answered_with_the_constants() {
    let program = read(EXAMPLES[0].1);
    let error = verify(&program, &Constants::from([("BQ".to_string(), 3)])).unwrap_err().0.remove(0);
    assert_eq!(error.code, Code::UnknownName);
    assert!(error.help.unwrap().contains("BM, BN, BK"));
}

#[test]
fn layout_of_the_text_does_not_matter() {
    let plain = read(
        "size m = 4\nkernel k(x: f32[m]) grid(m) threads(32) {\nr = register_tensor(f32, [4])\nt = r + r\n}",
    );
    let odd = read(
        "\u{feff}size m = 4; kernel k // the name\r\n (\n x\n:\nf32[\nm\n],) # a comma may follow\n grid(m,)\n\n threads(\n32)\n\n\n\
         {;; r=register_tensor(f32,[4,],);;t=r+\n\n r }\n\n",
    );
    assert_eq!(plain, odd);
}

/// Tensors, a pipeline and a scalar that statements of a random program use.
struct Scene {
    tensors: [Tensor; 4],
    pipeline: Pipeline,
    scalar: Elem,
}

/// Decisions, taken from random bytes.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self, n: u8) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first % n
    }

    fn expr(&mut self, leaves: &[Expr], depth: u8) -> Expr {
        let kind = if depth == 0 { self.next(3) } else { self.next(10) };
        match kind {
            0 => Expr::Int(i64::from(self.next(200)) - 50),
            1 | 2 => leaves[self.next(leaves.len() as u8) as usize].clone(),
            _ => {
                let (a, b) = (self.expr(leaves, depth - 1), self.expr(leaves, depth - 1));
                match kind {
                    3 => a + b,
                    4 => a - b,
                    5 => a * b,
                    6 => a / b,
                    7 => a % b,
                    8 => a.ceil_div(b),
                    _ if self.next(2) == 0 => a.min(b),
                    _ => a.max(b),
                }
            }
        }
    }

    fn elem(&mut self, r: &Tensor, scalar: &Elem, leaves: &[Expr], depth: u8) -> Elem {
        match if depth == 0 { self.next(4) } else { self.next(14) } {
            0 => r.into(),
            1 => scalar.clone(),
            2 => Elem::from((f64::from(self.next(255)) - 99.0) * 1.1e-3f64.powi(i32::from(self.next(4)))),
            3 => float(self.expr(leaves, 2)),
            kind => {
                let a = self.elem(r, scalar, leaves, depth - 1);
                match kind {
                    4 => a.abs(),
                    5 => a.exp(),
                    6 => -a,
                    7 => -a.log(),
                    8 => a + self.elem(r, scalar, leaves, depth - 1),
                    9 => a - self.elem(r, scalar, leaves, depth - 1),
                    10 => a * self.elem(r, scalar, leaves, depth - 1),
                    11 => a / self.elem(r, scalar, leaves, depth - 1),
                    12 => a.min(self.elem(r, scalar, leaves, depth - 1)),
                    _ => a.max(self.elem(r, scalar, leaves, depth - 1)),
                }
            }
        }
    }

    fn program(&mut self) -> Program {
        let mut k = KernelBuilder::new("random");
        let m = k.size("m", i64::from(self.next(100)));
        let t = k.constant("T", i64::from(self.next(40)));
        let default = self.expr(std::slice::from_ref(&t), 3);
        let w = k.constant("W", default);
        let n = k.size("n", 17);
        let ids = k.tensor("ids", DType::I32, [&n]);
        let element = ids.element(block_x() * 2 + &m);
        if self.next(2) == 0 {
            k.mark_constant(&ids);
        }
        let all = [m.clone(), n.clone(), t.clone(), w.clone(), block_x(), block_y(), element];
        let extents = [self.expr(&all[..4], 2), self.expr(&all[..4], 2)];
        let x = k.tensor("x", DType::ALL[self.next(DType::ALL.len() as u8) as usize], extents);
        let strides = [self.expr(&all[..4], 2), 1.into()];
        let y = k.strided_tensor("y", DType::F32, [&m, &n], strides);
        let scalar = k.scalar("alpha", f64::from(self.next(7)) - 3.5);
        let grid: Vec<Expr> = (0..self.next(3) + 1).map(|_| self.expr(&all[..4], 2)).collect();
        k.grid(grid);
        k.threads(self.expr(&all[2..4], 2));
        let scale = self.expr(&all[2..4], 3);
        let offsets = [self.expr(&all, 3), self.expr(&all, 1)];
        let extent = self.expr(&all[2..4], 2);
        let mut from = x.from(offsets);
        for mode in 0..self.next(3) {
            from = from.until(usize::from(mode), self.expr(&all, 2));
        }
        let g = k.global_view(
            "g",
            from,
            [nested([tile(0, &extent), steps(1, 4, &scale)]), tile(1, &t), steps(1, &n, &w)],
        );
        let h = k.global_view("h", &y, [tile(1, &t), tile(0, &w)]);
        let r = k.register_tensor("r", DType::F32, [&t, &w]);
        let s = k.shared_tensor("s", DType::F32, [&w, &t]);
        let p = k.pipeline("p", self.expr(&all[2..4], 2), [&s]);
        if self.next(2) == 0 {
            k.cluster_shape([self.expr(&all[2..4], 1), self.expr(&all[2..4], 1)]);
        }
        let scene = Scene { tensors: [g, h, r, s], pipeline: p, scalar };
        self.statements(&mut k, &scene, &all, 3, &mut 0);
        k.finish().unwrap()
    }

    fn statements(&mut self, k: &mut KernelBuilder, scene: &Scene, all: &[Expr], depth: u8, fresh: &mut u32) {
        let Scene { tensors: [g, h, r, s], pipeline, scalar } = scene;
        for _ in 0..self.next(6) {
            *fresh += 1;
            let name = format!("t{fresh}");
            match self.next(25) {
                16 if depth > 0 => {
                    let order = self.expr(&all[2..4], 1);
                    let order = [grouped, serpentine, hilbert][self.next(3) as usize](order);
                    let (rows, cols) = (self.expr(all, 1), self.expr(all, 2));
                    k.for_tiles([&name, &format!("{name}c")], rows, cols, order, |k, row, col| {
                        let inner = [all, &[row, col]].concat();
                        self.statements(k, scene, &inner, depth - 1, fresh);
                    });
                }
                24 if depth > 0 => {
                    let extents = [self.expr(all, 1), self.expr(all, 2)];
                    let names = ["", "c", "b", "bc"].map(|end| format!("{name}{end}"));
                    let names = names.each_ref().map(String::as_str);
                    let body = |k: &mut KernelBuilder, tile: [Expr; 2], before: [Expr; 2]| {
                        let inner = [all, &tile, &before].concat();
                        self.statements(k, scene, &inner, depth - 1, fresh);
                    };
                    k.for_tiles_after(names, extents, grouped(2), body, |k, [row, _]| {
                        k.copy(g.index([Some(row), None, None]), r);
                    });
                }
                17 if depth > 0 => {
                    let registers = (self.next(2) == 0).then(|| self.expr(&all[2..4], 1));
                    k.role(&name, self.expr(&all[2..4], 1), registers, |k| {
                        self.statements(k, scene, all, depth - 1, fresh);
                    });
                }
                18 if depth > 0 => {
                    k.produce(pipeline, |k| self.statements(k, scene, all, depth - 1, fresh));
                    k.consume(pipeline, |k| self.statements(k, scene, all, depth - 1, fresh));
                }
                19 => {
                    let hint = [None, Some(CacheHint::EvictFirst), Some(CacheHint::EvictLast)];
                    let how = AsyncCopyAttrs {
                        multicast: [
                            None,
                            Some(Multicast::All),
                            Some(Multicast::Along(1)),
                            Some(Multicast::Pair),
                            Some(Multicast::Pairs(1)),
                        ][self.next(5) as usize],
                        add: self.next(2) == 0,
                        hint: hint[self.next(3) as usize],
                        threads: self.next(4) == 0,
                        ..AsyncCopyAttrs::default()
                    };
                    k.copy_async_with(h, s.transpose(), how);
                    k.copy_async(s, h.transpose());
                    k.commit_group();
                    k.wait_group(self.expr(&all[2..4], 1));
                }
                20 => {
                    let c = k.cast(&name, r, DType::F32);
                    k.gemm_async(&c, [r, s][self.next(2) as usize], s.transpose());
                    k.gemm_async_over(&c, s, s, [self.expr(&all[2..4], 1), 2.into()]);
                    k.commit_gemm();
                    k.wait_gemm(self.expr(&all[2..4], 1));
                    k.cluster_reduce(&c, ReduceOp::ALL[self.next(4) as usize]);
                }
                21 => {
                    let (start, extent) = (self.expr(all, 2), self.expr(&all[2..4], 1));
                    let t = k.slice(&name, r, u32::from(self.next(3)), start, extent);
                    k.slice_to(r, t, 1, self.expr(&all[2..4], 1));
                }
                22 => {
                    k.wait_dependencies();
                    k.launch_dependents();
                }
                0 => {
                    let outside =
                        [None, Some(1.0.into()), Some(f64::NAN.into()), Some(f64::NEG_INFINITY.into())];
                    let combine = [None, Some(RedOp::Add), Some(RedOp::Max), Some(RedOp::Min)];
                    let (outside, combine) = (outside[self.next(4) as usize], combine[self.next(4) as usize]);
                    k.copy_with(h, r, CopyAttrs { outside, combine, fetch: None });
                }
                1 => k.copy(s.transpose(), r),
                2 => k.copy(g.index([None, Some(self.expr(all, 2)), None]), r),
                3 => k.copy(r, h.transpose()),
                4 => {
                    let value = self.elem(r, scalar, all, 4);
                    // Without a tensor there is no shape.
                    k.define(&name, value + r);
                }
                5 => k.assign(r, self.elem(r, scalar, all, 4)),
                6 => {
                    let c = k.cast(&name, r, DType::ALL[self.next(DType::ALL.len() as u8) as usize]);
                    k.gemm(&c, r, c);
                }
                7 => {
                    k.rearrange(
                        &name,
                        r,
                        (self.next(2) == 0).then(|| "(32,(2,3)):(1,(32,64))".parse().unwrap()),
                    );
                }
                8 if depth > 0 => {
                    let (lo, hi) = (self.expr(all, 1), self.expr(all, 2));
                    k.for_range(&name, lo, hi, |k, counter| {
                        let mut inner = all.to_vec();
                        inner.push(counter);
                        self.statements(k, scene, &inner, depth - 1, fresh);
                    });
                }
                9 => {
                    let order: Vec<u32> = (0..self.next(4)).map(|_| u32::from(self.next(3))).collect();
                    let t = k.permute(&name, r, order);
                    k.permute_to(r, t, [1, 0]);
                }
                10 => {
                    // An extent of −1 is refused as text, for other languages mean the one that is left.
                    let extent = |expr| if expr == Expr::Int(-1) { Expr::Int(1) } else { expr };
                    let shape: Vec<Expr> =
                        (0..self.next(4)).map(|_| extent(self.expr(&all[2..4], 2))).collect();
                    let t = k.reshape(&name, [r, s, g][self.next(3) as usize], shape);
                    k.reshape_to(r, t);
                }
                11 => {
                    let t = k.expand(&name, r, u32::from(self.next(4)));
                    let shape: Vec<Expr> = (0..3).map(|_| self.expr(&all[2..4], 2)).collect();
                    let wide = k.broadcast(&format!("{name}w"), t, shape);
                    k.broadcast_to(&wide, r);
                }
                12 => {
                    let t = k.join(&name, r, [r, h][self.next(2) as usize]);
                    let (lo, hi) = k.split(&format!("{name}lo"), &format!("{name}hi"), t);
                    k.split_to(&hi, [r, &lo][self.next(2) as usize], t);
                    k.join_to(&t, lo, hi);
                }
                13 => {
                    let op = ReduceOp::ALL[self.next(4) as usize];
                    let t = k.reduce(&name, r, op, u32::from(self.next(3)));
                    k.reduce_to(&t, r, op, u32::from(self.next(3)));
                    let (axis, reverse) = (u32::from(self.next(3)), self.next(2) == 1);
                    let s = k.scan(&format!("{name}s"), r, op, axis, reverse);
                    let h = k.scan_linear(&format!("{name}h"), [&s, r], axis, None, reverse);
                    let form =
                        if reverse { CombineForm::Reduce } else { CombineForm::Scan { reverse: false } };
                    let names = [format!("{name}m"), format!("{name}e")];
                    let names = names.each_ref().map(String::as_str);
                    k.combine(&names, &[r, &s], (axis, form), |one, other| {
                        let top = one[0].clone().max(other[0].clone());
                        vec![top.clone(), (one[0].clone() - top).exp() * one[1].clone() + other[1].clone()]
                    });
                    let (v, i) = k.arg(
                        &format!("{name}v"),
                        &format!("{name}i"),
                        r,
                        ArgOp::ALL[self.next(2) as usize],
                        axis,
                    );
                    k.arg_to(&v, &i, r, ArgOp::Min, axis);
                    let (o, p) =
                        k.sort_with([&format!("{name}o"), &format!("{name}p")], [r, &s], axis, reverse);
                    k.sort_to(&o, &p, axis, !reverse);
                    k.scan_linear_to(&s, [r, &h], axis, Some(&t), !reverse);
                }
                14 => {
                    let index = k.cast(&name, r, DType::I32);
                    let t = k.gather(&format!("{name}g"), r, index, u32::from(self.next(3)));
                    k.gather_to(r, t, index, 1);
                }
                _ => {
                    k.fill(r, f64::from(self.next(100)) / 7.0 - 5.0);
                    k.syncthreads();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_programs_read_back_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let program = Choices(&bytes).program();
        let text = program.to_string();
        prop_assert_eq!(&read(&text), &program, "{}", text);
        if let Ok(verified) = verify(&program, &Constants::new()) {
            let folded = verified.program().to_string();
            prop_assert_eq!(&read(&folded), verified.program(), "{}", folded);
            let mut program = tilewright_tile::unroll(&verified).map(|v| core::build(&v).unwrap()).unwrap();
            let passes: [fn(&mut core::Program) -> core::Changed; 2] = [core::multi_buffer, core::desugar_copies];
            for pass in passes {
                pass(&mut program);
                let text = program.to_string();
                let again = core::parse(&text).unwrap_or_else(|d| panic!("{d}\nin\n{text}"));
                prop_assert_eq!(&again, &program.renumbered(), "{}", text);
                prop_assert!(core::check(&again).is_ok(), "{:?}\nof\n{}", core::check(&again), text);
            }
        }
    }

    #[test]
    fn damaged_programs_never_panic(
        which in 0..EXAMPLES.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, "[-a-z0-9_()\\[\\]{}:,.*/+=%; \n]{0,6}"), 1..4),
    ) {
        let mut source = EXAMPLES[which].1.to_string();
        for (at, len, new) in cuts {
            let chars: Vec<char> = source.chars().collect();
            let at = at.index(chars.len());
            let end = (at + len).min(chars.len());
            source = chars[..at].iter().chain(&new.chars().collect::<Vec<_>>()).chain(&chars[end..]).collect();
        }
        if let Ok(program) = parse(&source) {
            prop_assert_eq!(&read(&program.to_string()), &program);
            let _ = verify(&program, &Constants::new()).map(|v| tilewright_tile::unroll(&v).map(|v| core::build(&v)));
        }
    }

    #[test]
    fn any_text_is_answered(source in "\\PC{0,200}") {
        let _ = parse(&source);
        let _ = core::parse(&source);
        let _ = core::parse(&format!("core {source}"));
    }
}

#[test]
fn the_programs_in_the_documentation_are_programs() {
    let guide = include_str!("../../../docs/tile-language.md");
    let sources: Vec<&str> =
        guide.split("```tile\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert_eq!(sources.len(), 16);
    for source in sources {
        round_trip(source);
        verify(&read(source), &Constants::new()).unwrap();
    }
    for (word, _) in tilewright_tile::words() {
        assert!(guide.contains(word), "{word}");
    }
}

#[test]
fn the_guide_to_hopper_has_the_example() {
    let guide = include_str!("../../../docs/hopper.md");
    let (_, rest) = guide.split_once("```tile\n").unwrap();
    let program = read(rest.split_once("```").unwrap().0);
    let example = include_str!("../../../examples/gemm_hopper.tile");
    assert_eq!(program.to_string(), read(example).to_string());
    let lines = example.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")).count();
    assert!(guide.contains(&format!("{lines} lines that are neither empty nor comments")), "{lines}");
}
