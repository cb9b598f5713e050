//! Random task programs under random mappings: each is refused with a message that has a place, or its tile program verifies, reads back from its text, and
//! computes the bits of the task interpreter.

use std::collections::BTreeMap;
use std::fmt::Write;

use tilewright_machine::Elements;
use tilewright_task::{Interpretation, Program, interpret, lower, parse, passes, verify};
use tilewright_tile::{Argument, Code, Diagnostics, ParamKind};

/// Random choices, by the numbers of splitmix64.
struct Words(u64);

impl Words {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % count.max(1) as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn is(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// Leaves that the programs are made of, each with a word for its privileges.
const LEAVES: &str = "
task set(y: write f32[P, Q], x: read f32[P, Q]) { leaf all { y = x } }
task turn(y: write f32[P, Q], x: read f32[P, Q]) { leaf all { y = 0.5 - x } }
task add(y: read_write f32[P, Q], x: read f32[P, Q]) { leaf all { y = y + 0.75 * x } }
task spread(y: read_write f32[P, Q], x: read f32[P, Q]) { leaf all { y = y - expand(reduce(x, max, 1), 1) } }
task clear(y: write f32[P, Q]) { leaf all { fill(y, 0.25) } }
task multiply(c: read_write f32[P, Q], a: read f16[P, W], b: read f16[Q, W]) { leaf all { gemm(c, a, b) } }
";

struct Body<'w> {
    w: &'w mut Words,
    text: String,
    /// Labels of launches in loops.
    labels: Vec<String>,
    inside: bool,
    named: usize,
    /// Partitions of tensors into chunks of columns.
    cut: Vec<&'static str>,
    loops: usize,
}

impl Body<'_> {
    /// Tensors that a statement may write, and all that it may read.
    const LOCAL: [&'static str; 3] = ["s", "t", "u"];
    const ALL: [&'static str; 5] = ["s", "t", "u", "x", "z"];

    fn piece(&mut self, tensor: &'static str, counter: Option<&str>) -> String {
        match counter {
            Some(counter) => {
                if !self.cut.contains(&tensor) {
                    self.cut.push(tensor);
                }
                format!("{tensor}p[0, {counter}]")
            }
            None => tensor.to_string(),
        }
    }

    fn launch(&mut self, counter: Option<&str>, indent: &str) {
        let leaf = self.w.one(&["set", "turn", "add", "spread", "add"]);
        let to = self.w.one(&Self::LOCAL);
        let others: Vec<&'static str> = Self::ALL.iter().copied().filter(|name| *name != to).collect();
        let from = self.w.one(&others);
        let (to, from) = (self.piece(to, counter), self.piece(from, counter));
        let label = if self.w.is(3) {
            let label = format!("l{}", self.named);
            self.named += 1;
            if self.inside {
                self.labels.push(label.clone());
            }
            format!("{label}: ")
        } else {
            String::new()
        };
        writeln!(self.text, "{indent}{label}launch {leaf}({to}, {from})").unwrap();
    }

    fn statements(&mut self, depth: usize, counter: Option<&str>, indent: &str) {
        for _ in 0..1 + self.w.below(3) {
            if depth < 2 && self.w.is(3) {
                let name = format!("q{}", self.loops);
                self.loops += 1;
                let count = self.w.one(&["1", "2", "3", "2"]);
                // Chunks are picked by a loop over all of them.
                let chunks = counter.is_none() && self.w.is(2);
                let count = if chunks { "Q / C" } else { count };
                writeln!(self.text, "{indent}for {name} in srange({count}) {{").unwrap();
                let outer = std::mem::replace(&mut self.inside, true);
                let inner = if chunks { Some(name.as_str()) } else { counter };
                self.statements(depth + 1, inner, &format!("{indent}    "));
                writeln!(self.text, "{indent}}}").unwrap();
                self.inside = outer;
            } else {
                self.launch(counter, indent);
            }
        }
    }
}

/// The text of a program with one mapping.
fn text(w: &mut Words) -> String {
    let product = w.is(3);
    let arch = w.one(&["sm_80", "sm_90a", "sm_90a"]);
    let (rows, columns, chunk) = w.one(&[(64, 64, 32), (64, 32, 16), (128, 32, 8)]);
    let mut body = Body {
        w,
        text: String::new(),
        labels: Vec::new(),
        inside: false,
        named: 0,
        cut: Vec::new(),
        loops: 0,
    };
    body.statements(0, None, "        ");
    let last = body.w.one(&Body::LOCAL);
    let (inside, labels, mut cut) = (body.text, body.labels, body.cut);
    let in_chunks = w.is(2);
    if in_chunks {
        for tensor in ["y", last] {
            if !cut.contains(&tensor) {
                cut.push(tensor);
            }
        }
    }
    let mut text = String::from("size m = 100, n = 90, k = 70\nconst C = CHUNK\n");
    text += LEAVES;
    // A second result, of the blocks of one column alone.
    let second = w.is(3).then(|| w.one(&Body::LOCAL));
    let mut factors = if product { ", a: read f16[M, K], b: read f16[N, K]" } else { "" }.to_string();
    if second.is_some() {
        factors += &format!(", v: write f32[M, {columns}]");
    }
    writeln!(
        text,
        "task f(y: write f32[M, N], x: read f32[M, N], z: read f32[M, N]{factors}) {{\n    inner host {{"
    )
    .unwrap();
    for name in ["y", "x", "z"] {
        writeln!(text, "        {name}p = blocks({name}, [{rows}, {columns}])").unwrap();
    }
    let mut given = String::new();
    if product {
        writeln!(text, "        ap = blocks(a, [{rows}, K])\n        bp = blocks(b, [{columns}, K])")
            .unwrap();
        given += ", ap[i, 0], bp[j, 0]";
    }
    let mut factors = if product { ", a: read f16[P, K], b: read f16[Q, K]" } else { "" }.to_string();
    if second.is_some() {
        writeln!(text, "        vp = blocks(v, [{rows}, {columns}])").unwrap();
        given += ", vp[i, 0] when j == 0";
        factors += ", v: write f32[P, Q]";
    }
    writeln!(
        text,
        "        for i, j in prange(ceil_div(M, {rows}), ceil_div(N, {columns})) {{\n            out: launch body(yp[i, j], xp[i, j], zp[i, j]{given})\n        }}\n    }}\n}}\n\
         task body(y: write f32[P, Q], x: read f32[P, Q], z: read f32[P, Q]{factors}) {{\n    inner all {{"
    )
    .unwrap();
    for name in Body::LOCAL {
        writeln!(text, "        {name} = tensor(f32, [P, Q])").unwrap();
    }
    for name in &cut {
        writeln!(text, "        {name}p = blocks({name}, [P, C])").unwrap();
    }
    if product {
        writeln!(text, "        ak = blocks(a, [P, 16])\n        bk = blocks(b, [Q, 16])").unwrap();
    }
    for name in Body::LOCAL {
        let first = w.one(&["launch clear(NAME)", "launch set(NAME, x)", "launch turn(NAME, z)"]);
        writeln!(text, "        {}", first.replace("NAME", name)).unwrap();
    }
    if product {
        let sum = w.one(&Body::LOCAL);
        writeln!(text, "        for kk in srange(ceil_div(K, 16)) {{\n            launch multiply({sum}, ak[0, kk], bk[0, kk])\n        }}").unwrap();
    }
    text += &inside;
    if in_chunks {
        writeln!(text, "        for e in srange(Q / C) {{\n            leave: launch set(yp[0, e], {last}p[0, e])\n        }}").unwrap();
    } else {
        writeln!(text, "        leave: launch set(y, {last})").unwrap();
    }
    if let Some(name) = second {
        writeln!(text, "        launch set(v, {name})").unwrap();
    }
    text += "    }\n}\n";
    // The mapping.
    let program = text.clone();
    let memory = |w: &mut Words| w.one(&["register", "register", "register", "register", "shared", "none"]);
    let tensors = 3 + if product { 2 } else { 0 } + usize::from(second.is_some());
    let host = vec!["global"; tensors].join(", ");
    let persistent = if w.is(2) { " persistent(grouped(2))" } else { "" };
    let late = if !persistent.is_empty() && w.is(4) { " late(out)" } else { "" };
    let cluster = if arch == "sm_90a" && w.is(4) { " cluster(i = 2)" } else { "" };
    writeln!(text, "mapping m for {arch} {{\n    entry f.host on host({host}){persistent}{cluster}{late}")
        .unwrap();
    let of = |w: &mut Words| w.one(&["global", "global", "none", "shared"]);
    let mut memories: Vec<&str> = (0..3).map(|_| of(w)).collect();
    if product {
        memories.extend([w.one(&["global", "none"]); 2]);
    }
    if second.is_some() {
        memories.push(of(w));
    }
    let mut row = format!("    body.all on block({})", memories.join(", "));
    for name in Body::LOCAL {
        if !w.is(4) {
            // What is written by parts is in memory.
            let parts = program.contains(&format!("({name}p["));
            let memories =
                if parts { ["shared", "shared", "register"] } else { ["register", "register", "shared"] };
            row += &format!(" local({name} = {})", w.one(&memories));
        }
    }
    if arch == "sm_90a" && w.is(2) {
        row += w.one(&[" warpspecialize(1)", " warpspecialize(1)", " warpspecialize(1, store)"]);
    }
    if w.is(2) {
        row += w.one(&[" pipeline(2)", " pipeline(3)", " pipeline(1)"]);
    }
    if w.is(3)
        && let Some(label) = labels.first()
    {
        row += &format!(" late({label})");
    }
    text += &row;
    text += "\n";
    for leaf in ["set", "turn", "add", "spread", "multiply"] {
        if !w.is(4) && text.contains(&format!("launch {leaf}(")) {
            let first = memory(w);
            let others = if leaf == "multiply" {
                w.one(&["shared, shared", "register, register"]).to_string()
            } else {
                memory(w).to_string()
            };
            writeln!(text, "    {leaf}.all on block({first}, {others})").unwrap();
        }
    }
    text += "}\n";
    text.replace("CHUNK", &chunk.to_string())
}

/// Outcome of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Emitted,
    Refused,
}

fn placed(errors: &Diagnostics, text: &str) {
    for error in &errors.0 {
        assert!(error.code != Code::Internal && !error.span.is_unknown(), "{errors}\n{text}");
    }
}

fn outcome(text: &str, seed: u64) -> Outcome {
    let program: Program = parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    if let Err(errors) = verify(&program, &Default::default()) {
        placed(&errors, text);
        return Outcome::Refused;
    }
    let mapping = &program.mappings[0];
    let graph = match passes::graph(&program, mapping) {
        Ok(graph) => graph,
        Err(errors) => {
            placed(&errors, text);
            return Outcome::Refused;
        }
    };
    let kernel = match tilewright_task::emit(&program, mapping, &graph) {
        Ok(kernels) => kernels[0].clone(),
        Err(errors) => {
            placed(&errors, text);
            return Outcome::Refused;
        }
    };
    let printed = kernel.to_string();
    let again =
        tilewright_tile::parse(&printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}\n{text}"));
    assert_eq!(again, kernel, "{printed}");
    let kernels = lower(&program, mapping).unwrap_or_else(|errors| panic!("{errors}\n{printed}\n{text}"));
    let [kernel] = &kernels[..] else { panic!("{text}") };
    let has = |name: &str| kernel.program().params.iter().any(|param| param.name == name);
    let (factors, second) = (has("a"), has("v"));
    let sizes = [("m", 70), ("n", 50), ("k", 40)].into_iter().filter(|(name, _)| factors || *name != "k");
    let sizes: BTreeMap<String, i64> = sizes.map(|(name, value)| (name.to_string(), value)).collect();
    let mut w = Words(seed ^ 0x5555);
    let mut tensor = |dtype, count: i64| {
        Argument::tensor(Elements::rounded(dtype, (0..count).map(|_| w.below(2001) as f64 / 1000.0 - 1.0)))
    };
    use tilewright_machine::DType::{F16, F32};
    let mut args: Vec<Argument> = (0..3).map(|_| tensor(F32, 70 * 50)).collect();
    if factors {
        args.extend([tensor(F16, 70 * 40), tensor(F16, 50 * 40)]);
    }
    let results = if second { vec![0, args.len()] } else { vec![0] };
    if let Some(param) = kernel.program().params.iter().find(|param| param.name == "v") {
        let ParamKind::Tensor { shape, .. } = &param.kind else { panic!("{printed}") };
        args.push(tensor(F32, 70 * shape[1].as_int().unwrap()));
    }
    let (mut expected, mut found) = (args.clone(), args);
    let how = Interpretation { sizes: sizes.clone(), seed, ..Interpretation::default() };
    if let Err(errors) = interpret(&program, mapping, &how, &mut expected) {
        placed(&errors, text);
        return Outcome::Refused;
    }
    if let Err(error) = tilewright_tile::interpret(kernel, &sizes, &mut found) {
        panic!("{error}\n{printed}\n{text}");
    }
    for at in results {
        let (expected, found) = (expected[at].elements().unwrap(), found[at].elements().unwrap());
        let differ = (0..expected.len()).find(|at| !expected.same_bits(&found, *at));
        assert_eq!(differ, None, "{printed}\n{text}");
    }
    Outcome::Emitted
}

#[test]
fn random_programs_are_refused_with_a_place_or_keep_their_bits() {
    let cases = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 10_000 } else { 60 };
    let first: u64 = std::env::var("TILEWRIGHT_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut emitted = 0;
    for seed in first..first + cases {
        let text = format!("// seed {seed}\n{}", text(&mut Words(seed)));
        emitted += u64::from(outcome(&text, seed) == Outcome::Emitted);
    }
    assert!(emitted * 4 > cases, "{emitted} of {cases} are emitted");
}
