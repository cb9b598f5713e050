//! The Rust DSL makes what the text form reads, and reports mistakes.

use std::fs;
use std::path::Path;

use tilewright_machine::{Arch, DType, Memory, Processor};
use tilewright_task::dsl::{Arg, TaskBuilder, float, integer, read, read_write, write};
use tilewright_task::mapping::{AttributeKind, Placement};
use tilewright_task::parse;
use tilewright_task::program::MmaOperand;
use tilewright_tile::dsl::{index, where_};
use tilewright_tile::{Code, Expr};

use DType::{F16, F32};

/// `examples/tasks/gemm_dual.task`.
#[test]
fn a_product_is_built_as_it_is_written() {
    let mut t = TaskBuilder::new();
    for name in ["m", "n", "k"] {
        t.size(name, 4096);
    }
    let matrices = || {
        let of = |name: &str, rows| read(name, F16, [rows, "K"]);
        [write("c", F16, ["M", "N"]), of("a", "M"), of("b1", "N"), of("b2", "N")]
    };
    let dual = t.task("dual", matrices());
    let operands = [read_write("c", F32, ["M", "N"]), read("a", F16, ["M", "K"]), read("b", F16, ["N", "K"])];
    let gemm_add = t.task("gemm_add", operands);
    let store = t.task("store", [write("c", F16, ["M", "N"]), read("x", F32, ["M", "N"])]);
    // Bodies in another order than that of the tasks, which is the text's.
    t.inner(store, "chunks", |s| {
        let chunk = s.tunable("CHUNK");
        let [m, n] = ["M", "N"].map(|name| s.extent(name));
        let [c, x] = ["c", "x"].map(|name| s.formal(name));
        let (cp, xp) = (s.blocks("cp", c, [&m, &chunk]), s.blocks("xp", x, [&m, &chunk]));
        s.srange("q", n / &chunk, |s, q| {
            let at = || [Expr::Int(0), q.clone()];
            s.launch(store, [cp.at(at()), xp.at(at())]);
        });
    });
    t.leaf(store, "round", |k, formals| {
        let [c, x] = formals.tensors();
        k.cast_to(&c, x);
    });
    t.leaf(gemm_add, "product", |k, formals| {
        let [c, a, b] = formals.tensors();
        k.gemm(&c, a, b);
    });
    t.inner(dual, "host", |s| {
        let (u, v) = s.tunables("U", "V");
        let [m, n, k] = ["M", "N", "K"].map(|name| s.extent(name));
        let [c, a, b1, b2] = ["c", "a", "b1", "b2"].map(|name| s.formal(name));
        let (cp, ap) = (s.blocks("cp", c, [&u, &v]), s.blocks("ap", a, [&u, &k]));
        let (p1, p2) = (s.blocks("p1", b1, [&v, &k]), s.blocks("p2", b2, [&v, &k]));
        s.prange(["i", "j"], [m.ceil_div(&u), n.ceil_div(&v)], |s, [i, j]| {
            let first = |at: &Expr| [at.clone(), 0.into()];
            s.launch(dual, [cp.at([&i, &j]), ap.at(first(&i)), p1.at(first(&j)), p2.at(first(&j))]);
        });
    });
    t.inner(dual, "block", |s| {
        let w = s.tunable("W");
        let [m, n, k] = ["M", "N", "K"].map(|name| s.extent(name));
        let [c, a, b1, b2] = ["c", "a", "b1", "b2"].map(|name| s.formal(name));
        let ap = s.blocks("ap", a, [&m, &w]);
        let (p1, p2) = (s.blocks("p1", b1, [&n, &w]), s.blocks("p2", b2, [&n, &w]));
        let acc = s.filled("acc", F32, [&m, &n], 0.0);
        s.srange("kk", k.ceil_div(&w), |s, kk| {
            for p in [p1, p2] {
                let at = || [Expr::Int(0), kk.clone()];
                s.launch(gemm_add, [acc.into(), ap.at(at()), p.at(at())]);
            }
        });
        s.launch(store, [c, acc]);
    });
    t.mapping("h200", Arch::SM_90A, |m| {
        let global = [Memory::Global; 4];
        let host = m.row(dual, "host").entry().on(Processor::Host).memories(global);
        host.set("U", 128).set("V", 256).persistent(12, true);
        let block = m.row(dual, "block").on(Processor::Block).memories(global).set("W", 64);
        block.warpspecialize(2).pipeline(2).attribute(AttributeKind::InFlight(1.into()));
        let shared = [Memory::Register, Memory::Shared, Memory::Shared];
        m.row(gemm_add, "product").on(Processor::Block).memories(shared);
        let chunks = m.row(store, "chunks").on(Processor::Block);
        let chunks = chunks.memories([Memory::Global, Memory::Register]).set("CHUNK", 64);
        chunks.pipeline(2).calls("store.round");
        m.row(store, "round").on(Processor::Block).memories([Memory::Shared, Memory::Register]);
    });
    let program = t.finish().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tasks/gemm_dual.task");
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(program.to_string(), parse(&text).unwrap().to_string());
    assert_eq!(program, parse(&text).unwrap());
}

#[test]
fn numbers_labels_and_processors_are_built_as_they_are_written() {
    let mut t = TaskBuilder::new();
    let d = t.constant("D", 64);
    let low = t.number("LOW", -1.5e30);
    t.size("n", 100);
    let entry = t.task(
        "mask",
        [write("y", F32, ["N".into(), tilewright_task::dsl::Extent::from(&d)]), float("scale", Some(0.5))],
    );
    let rows = t.task(
        "rows",
        [write("y", F32, ["R", "C"]), float("scale", None), float("low", None), integer("rest", None)],
    );
    t.inner(entry, "host", |s| {
        let r = s.tunable("R");
        let level = s.tunable_processor("PROC");
        let (y, n) = (s.formal("y"), s.extent("N"));
        s.filled("lows", F32, [r.clone()], low);
        let scale = s.float("scale");
        let yp = s.blocks("yp", y, [r.clone(), d.clone()]);
        s.tv("tp", y, "(2,4):(4,1)".parse().unwrap(), level);
        s.mma("mp", y, "mma_16x8x16", level, MmaOperand::C);
        let count = s.let_integer("count", n.ceil_div(&r));
        s.srange_from("i", 0, count, |s, i| {
            let arguments: [Arg; 4] = [
                yp.at([i.clone(), 0.into()]).when(i.at_least(0)),
                scale.into(),
                low.into(),
                (n.clone() - i.clone() * &r).into(),
            ];
            s.labelled("out", rows, arguments);
        });
    });
    t.leaf(rows, "all", |k, formals| {
        let [y] = formals.tensors();
        let (scale, low, rest) = (formals.float("scale"), formals.float("low"), formals.integer("rest"));
        k.fill(&y, 1.0);
        k.if_then(rest.less(8), |k| {
            k.assign(&y, where_(index(0).lt(tilewright_tile::dsl::float(rest.clone())), scale, low))
        });
    });
    t.mapping("a100", Arch::SM_80, |m| {
        let row = m.row(entry, "host").entry().on(Processor::Host).memories([Memory::Global]);
        let row = row.set("R", 16).set_processor("PROC", Processor::Thread);
        row.attribute(AttributeKind::Persistent(None)).late("out").calls_for("out", "leaf");
        let leaf = m.row(rows, "all").named("leaf").on(Processor::Block).memories([Placement::None]);
        leaf.layout("y", "(128,64):(1,128)".parse().unwrap());
    });
    t.mapping_like("large", Arch::SM_80, "a100", |m| {
        let row = m.row(entry, "host").on(Processor::Host).memories([Memory::Global]);
        row.set("R", 32).set_processor("PROC", Processor::Thread).order(4, true).calls("leaf");
    });
    let program = t.finish().unwrap();
    let [_, large] = &program.mappings[..] else { panic!("{program}") };
    assert_eq!((large.instances.len(), large.instances[0].entry), (2, true), "{program}");
    let again = parse(&program.to_string()).unwrap_or_else(|errors| panic!("{errors}\n{program}"));
    assert_eq!(again, program);
    assert!(
        program.to_string().contains("out: launch rows(yp[i, 0] when i >= 0, scale, LOW, N - i * R)")
            || program.to_string().contains("when (i >= 0)")
    );
}

#[test]
fn mistakes_are_collected() {
    let mut t = TaskBuilder::new();
    let f = t.task("f", [write("x", F32, ["N"])]);
    t.task("f", [write("x", F32, ["N"]), read("x", F32, ["N"])]);
    let g = t.task("g", [write("x", F32, ["N"])]);
    let mut other = None;
    t.inner(f, "a", |s| other = Some(s.formal("x")));
    t.inner(g, "a", |s| {
        s.launch(f, [other.unwrap()]);
        s.launch(f, [Arg::from(1)]);
        s.formal("z");
        s.extent("M");
    });
    t.mapping("m", Arch::SM_80, |m| {
        m.row(g, "b").set("T", 1).calls("nobody");
    });
    let errors = t.finish().unwrap_err();
    let codes: Vec<Code> = errors.0.iter().map(|error| error.code).collect();
    let expected = [
        Code::DuplicateName,
        Code::DuplicateName,
        Code::UnknownName,
        Code::TypeMismatch,
        Code::UnknownName,
        Code::UnknownName,
        Code::UnknownName,
        Code::Tunable,
        Code::UnknownName,
        Code::Syntax,
    ];
    assert_eq!(codes, expected, "{errors}");
    assert!(errors.to_string().contains("dsl.rs"), "{errors}");
}
