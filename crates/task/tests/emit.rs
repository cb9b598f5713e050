//! Emitted programs: their text, their verifier, and programs that are written by hand.

#[path = "common/nameless.rs"]
mod nameless;

use crate::common;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tilewright_machine::Elements;
use tilewright_task::{Interpretation, Mapping, Program, emit, interpret, lower, parse, passes};
use tilewright_tile::{
    Argument, Expr, Module, Param, ParamKind, Program as Tile, Sources, SymbolId, SymbolKind, parse_module,
};

use nameless::nameless;

/// The only kernel of a mapping.
fn emitted(program: &Program, mapping: &str) -> Tile {
    let mapping = program.mappings.iter().find(|row| row.name == mapping).unwrap();
    let graph = passes::graph(program, mapping).unwrap_or_else(|errors| panic!("{}: {errors}", mapping.name));
    let kernels =
        emit(program, mapping, &graph).unwrap_or_else(|errors| panic!("{}: {errors}", mapping.name));
    let [kernel] = <[Tile; 1]>::try_from(kernels).unwrap();
    kernel
}

#[test]
fn examples_verify_and_read_back() {
    common::mappings(|name, program, mapping| {
        let graph = passes::graph(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let kernels = emit(program, mapping, &graph).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let module = Module::of(kernels);
        let text = module.to_string();
        common::snapshot(&format!("{name}.tile"), &text);
        let again = parse_module(Sources::new("", text.as_str()), &mut |_, _| Err(String::new()));
        let again = again.unwrap_or_else(|errors| panic!("{name}: {errors:?}\n{text}"));
        assert_eq!(again.programs, module.programs, "{name}:\n{text}");
        for kernel in &module.programs {
            if let Err(errors) = tilewright_tile::verify(kernel, &Default::default()) {
                panic!("{name}: {errors}\n{text}");
            }
        }
    });
}

#[test]
fn gemm_on_hopper_is_the_program_that_is_written_by_hand() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = fs::read_to_string(examples.join("tasks/gemm.task")).unwrap();
    // The order in which the program by hand takes its tiles.
    let program = parse(&text.replace("grouped(12, serpentine)", "grouped(12)")).unwrap();
    let by_hand = fs::read_to_string(examples.join("gemm_hopper.tile")).unwrap();
    let by_hand = tilewright_tile::parse(&by_hand).unwrap();
    let (emitted, by_hand) = (nameless(&emitted(&program, "h200")), nameless(&by_hand));
    assert!(emitted == by_hand, "emitted:\n{emitted}\nby hand:\n{by_hand}");
}

/// Arguments by name: numbers between −1 and 1 of the types of parameters, and scalars' defaults; those that are there stay.
fn arguments(
    kernel: &Tile,
    sizes: &BTreeMap<String, i64>,
    seed: u64,
    known: &mut BTreeMap<String, Argument>,
) {
    let size = |id: SymbolId| {
        let row = kernel.symbol(id);
        let SymbolKind::Size(default) = row.kind else { return None };
        Some(Expr::Int(sizes.get(&row.name).copied().unwrap_or(default)))
    };
    let argument = |param: &Param| match &param.kind {
        ParamKind::Scalar { default } => Argument::Scalar(*default),
        ParamKind::Tensor { shape, .. } => {
            let extents = shape.iter().map(|extent| extent.substitute(&size).as_int().unwrap());
            let mut state = param.name.bytes().fold(seed, |state, byte| state * 31 + u64::from(byte));
            let next = |_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((state >> 33) % 2001) as f64 / 1000.0 - 1.0
            };
            Argument::tensor(Elements::rounded(param.dtype, (0..extents.product::<i64>()).map(next)))
        }
    };
    for param in &kernel.params {
        known.entry(param.name.clone()).or_insert_with(|| argument(param));
    }
}

/// Asserts that the task interpreter and that of the emitted programs, one after another, have the same bits.
fn agrees(name: &str, program: &Program, mapping: &Mapping, sizes: &[(&str, i64)], seed: u64) {
    let sizes: BTreeMap<String, i64> = sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    let kernels = lower(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
    let mut known = BTreeMap::new();
    kernels.iter().for_each(|kernel| arguments(kernel.program(), &sizes, seed, &mut known));
    let entry = program.task(mapping.instance(mapping.entry().unwrap()).task);
    let mut expected: Vec<Argument> =
        entry.formals.iter().map(|formal| known[&formal.name].clone()).collect();
    let how = Interpretation { sizes: sizes.clone(), seed, ..Interpretation::default() };
    interpret(program, mapping, &how, &mut expected).unwrap_or_else(|errors| panic!("{name}: {errors}"));
    for kernel in &kernels {
        let params = &kernel.program().params;
        let mut args: Vec<Argument> = params.iter().map(|param| known[&param.name].clone()).collect();
        let own = kernel
            .program()
            .sizes()
            .map(|(_, row, default)| (row.name.clone(), sizes.get(&row.name).copied().unwrap_or(default)));
        if let Err(error) = tilewright_tile::interpret(kernel, &own.collect(), &mut args) {
            panic!("{name}: {error}\n{}", kernel.program());
        }
        known.extend(params.iter().map(|param| param.name.clone()).zip(args));
    }
    for (expected, formal) in expected.iter().zip(&entry.formals) {
        let (Some(expected), Some(found)) = (expected.elements(), known[&formal.name].elements()) else {
            continue;
        };
        let differ = (0..expected.len()).find(|at| !expected.same_bits(&found, *at));
        assert_eq!(differ, None, "{name}: `{}` at {sizes:?}, seed {seed}", formal.name);
    }
}

#[test]
fn examples_compute_what_their_tasks_do() {
    let sizes: [(&str, &[(&str, i64)]); 9] = [
        ("gemm", &[("m", 70), ("n", 40), ("k", 270)]),
        ("gemm_batched", &[("l", 2), ("m", 33), ("n", 20), ("k", 70)]),
        ("gemm_dual", &[("m", 40), ("n", 270), ("k", 65)]),
        ("gemm_sum", &[("m", 140), ("n", 300), ("k", 70)]),
        ("attention", &[("l", 2), ("s", 40), ("t", 300)]),
        ("attention_causal", &[("l", 2), ("s", 130), ("t", 160)]),
        ("mlp", &[("m", 40), ("f", 100)]),
        ("mlp_two_kernels", &[("m", 40), ("f", 72)]),
        ("gated", &[("m", 40), ("n", 150), ("k", 270)]),
    ];
    common::mappings(|name, program, mapping| {
        let file = name.split('.').next().unwrap();
        let (_, sizes) = sizes.iter().find(|(of, _)| *of == file).unwrap();
        // A smaller head: the bits are compared element by element.
        let head = if file.starts_with("mlp") { 64 } else { 16 };
        let program = program.with_constants(&[("D".to_string(), head)].into_iter().collect());
        agrees(name, &program, mapping, sizes, 1);
    });
}

/// The mapping `pairs` of `gemm.task` with other attributes of the host.
fn clusters(attributes: &str) -> Program {
    let (_, program) = common::examples().into_iter().find(|(name, _)| name == "gemm").unwrap();
    let text = program.to_string().replace("persistent(grouped(12)) cluster(i = 2)", attributes);
    parse(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn blocks_of_a_cluster_share_what_does_not_depend_on_their_counter() {
    for (name, attributes) in
        [("grid", "cluster(i = 2)"), ("both", "persistent(grouped(2)) cluster(i = 2) cluster(j = 2)")]
    {
        let program = clusters(attributes);
        let kernel = emitted(&program, "pairs");
        common::snapshot(&format!("cluster.{name}"), &kernel.to_string());
        assert_eq!(tilewright_tile::parse(&kernel.to_string()).unwrap(), kernel);
        let mapping = program.mappings.iter().find(|row| row.name == "pairs").unwrap();
        // The second block of the last cluster has nothing to do.
        agrees(name, &program, mapping, &[("m", 270), ("n", 40), ("k", 70)], 1);
    }
}

/// A program of `tests/run` or of the examples with other words.
fn changed(name: &str, changes: &[(&str, &str)]) -> Program {
    let (_, program) = common::examples().into_iter().find(|(of, _)| of == name).unwrap();
    let mut text = program.to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}\n{text}");
        text = text.replace(from, to);
    }
    parse(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn layouts_of_rows_are_those_of_tensors() {
    let product = "gemm_add.product on block(register, shared, shared)";
    let layout = "Sw<3,4,3> o (128,64):(64,1)";
    let program = changed("gemm", &[(product, &format!("{product} layout(a = {layout})"))]);
    assert_eq!(parse(&program.to_string()).unwrap(), program);
    let kernel = emitted(&program, "h200");
    assert!(
        kernel.to_string().contains(&format!("sa = shared_tensor(f16, [128, 64], layout = {layout})")),
        "{kernel}"
    );
    let mapping = &program.mappings[0];
    agrees("layout", &program, mapping, &[("m", 70), ("n", 40), ("k", 70)], 1);
    // Registers: (thread, value) to coordinate.
    let text = "size n = 300
        task double(y: write f32[N], x: read f32[N]) {
            inner host {
                yp = blocks(y, [256])
                xp = blocks(x, [256])
                for i in prange(ceil_div(N, 256)) { launch double(yp[i], xp[i]) }
            }
            leaf all { y = x + x }
        }
        mapping a100 for sm_80 {
            entry double.host on host(global, global)
            double.all on block(register, register) layout(x = (128,2):(2,1))
        }";
    let program = parse(text).unwrap();
    let kernel = emitted(&program, "a100");
    assert!(
        kernel.to_string().contains("rx = register_tensor(f32, [256], layout = (128,2):(2,1))"),
        "{kernel}"
    );
    agrees("registers", &program, &program.mappings[0], &[("n", 300)], 1);
}

#[test]
fn what_is_absent_is_not_brought() {
    // The sums are of another tensor, whose tiles only the blocks that store them need.
    let program = changed(
        "gemm_sum",
        &[
            (
                "y: write f32[M], a: read f16[M, K], b: read f16[N, K]) {\n    inner host",
                "y: write f32[M], a: read f16[M, K], b: read f16[N, K], z: read f16[M, K]) {\n    inner host",
            ),
            (
                "        bp = blocks(b, [V, K])\n",
                "        bp = blocks(b, [V, K])\n        zp = blocks(z, [U, K])\n",
            ),
            (
                "bp[j, 0])\n        }\n    }\n    inner block",
                "bp[j, 0], zp[i, 0])\n        }\n    }\n    inner block",
            ),
            (
                "        bp = blocks(b, [N, W])\n",
                "        bp = blocks(b, [N, W])\n        zp = blocks(z, [M, W])\n",
            ),
            ("add_rows(rows, ap[0, kk])", "add_rows(rows, zp[0, kk])"),
            ("host(global, global, global, global)", "host(global, global, global, global, global)"),
            ("block(global, global, global, global)", "block(global, global, global, global, global)"),
        ],
    );
    let kernel = emitted(&program, "h200");
    common::snapshot("absent.stages", &kernel.to_string());
    agrees("stages", &program, &program.mappings[0], &[("m", 140), ("n", 300), ("k", 70)], 1);
}

#[test]
fn a_loop_that_is_shorter_than_its_pipeline_brings_its_own_tiles() {
    let (_, program) = common::examples().into_iter().find(|(name, _)| name == "mlp_two_kernels").unwrap();
    let program = program.with_constants(&[("D".to_string(), 64)].into_iter().collect());
    let mapping = program.mappings.iter().find(|mapping| mapping.name == "ampere").unwrap();
    let kernels = lower(&program, mapping).unwrap();
    let text = kernels[0].program().to_string();
    let (before, _) = text.split_once("wait_group(2)").unwrap_or_else(|| panic!("{text}"));
    assert!(before.contains("unroll for kk_ahead in 0..2"), "{text}");
    assert_eq!(before.matches("commit_group()").count(), 2, "{text}");
}

#[test]
fn conditions_on_a_loop_are_in_it() {
    let text = "size n = 500
        task f(y: write f32[N], x: read f32[N]) {
            inner host {
                yp = blocks(y, [128])
                xp = blocks(x, [128])
                for i in prange(ceil_div(N, 128)) { launch body(yp[i], xp[i]) }
            }
        }
        task body(y: write f32[P], x: read f32[P]) {
            inner all {
                sum = tensor(f32, [P], 0.0)
                for e in srange(5) {
                    twice = tensor(f32, [P])
                    launch double(twice, x)
                    launch add(sum, twice)
                    launch keep(y when e == 4, sum)
                }
            }
        }
        task double(y: write f32[P], x: read f32[P]) { leaf all { y = x + x } }
        task add(y: read_write f32[P], x: read f32[P]) { leaf all { y = y + x } }
        task keep(y: write f32[P], x: read f32[P]) { leaf all { y = 0.5 * x } }
        mapping a100 for sm_80 {
            entry f.host on host(global, global)
            body.all on block(global, global)
            double.all on block(register, register)
            keep.all on block(register, register)
        }";
    let program = parse(text).unwrap();
    let kernel = emitted(&program, "a100").to_string();
    let (before, guarded) = kernel.split_once("if e == 4 {").unwrap_or_else(|| panic!("{kernel}"));
    assert!(before.contains("sum = sum + twice") && guarded.contains("0.5 * sum"), "{kernel}");
    agrees("conditions", &program, &program.mappings[0], &[("n", 300)], 1);
}

#[test]
fn a_product_in_parts_and_their_sum_are_two_kernels() {
    let text = "size m = 200, n = 130, k = 300
        task gemm(c: write f16[M, N], a: read f16[M, K], b: read f16[N, K]) {
            inner host {
                tunable S, U, V
                parts = tensor(f32, [S, M, N])
                pp = blocks(parts, [1, U, V])
                ap = blocks(a, [U, 96])
                bp = blocks(b, [V, 96])
                for s, i, j in prange(S, ceil_div(M, U), ceil_div(N, V)) {
                    launch part(pp[s, i, j], ap[i, s], bp[j, s])
                }
                sp = blocks(parts, [S, U, V])
                cp = blocks(c, [U, V])
                for i, j in prange(ceil_div(M, U), ceil_div(N, V)) {
                    launch sum(cp[i, j], sp[0, i, j])
                }
            }
        }
        task part(c: write f32[M, N], a: read f16[M, K], b: read f16[N, K]) {
            inner block {
                ap = blocks(a, [M, 32])
                bp = blocks(b, [N, 32])
                acc = tensor(f32, [M, N], 0.0)
                for kk in srange(ceil_div(K, 32)) { launch gemm_add(acc, ap[0, kk], bp[0, kk]) }
                launch keep(c, acc)
            }
        }
        task gemm_add(c: read_write f32[M, N], a: read f16[M, K], b: read f16[N, K]) {
            leaf product { gemm(c, a, b) }
        }
        task keep(c: write f32[M, N], x: read f32[M, N]) { leaf all { c = x } }
        task sum(c: write f16[M, N], x: read f32[S, M, N]) { leaf all { c = cast(reduce(x, sum, 0), f16) } }
        mapping a100 for sm_80 {
            entry gemm.host on host(global, global, global) { S = 4, U = 64, V = 64 } local(parts = global)
            part.block on block(global, global, global) warps(4) pipeline(3)
            gemm_add.product on block(register, shared, shared)
            keep.all on block(register, register)
            sum.all on block(register, register)
        }";
    let program = parse(text).unwrap();
    let kernels = lower(&program, &program.mappings[0]).unwrap_or_else(|errors| panic!("{errors}"));
    let params = |at: usize| -> Vec<&str> {
        kernels[at].program().params.iter().map(|param| param.name.as_str()).collect()
    };
    assert_eq!((kernels.len(), params(0), params(1)), (2, vec!["a", "b", "parts"], vec!["c", "parts"]));
    agrees("split", &program, &program.mappings[0], &[("m", 70), ("n", 40), ("k", 300)], 1);
}

#[test]
fn blocks_take_tiles_in_the_order_of_the_row() {
    for attributes in
        ["order(grouped(2))", "order(grouped(2, serpentine)) cluster(i = 2)", "order(hilbert(1))"]
    {
        let program = clusters(attributes);
        let kernel = emitted(&program, "pairs");
        let text = kernel.to_string();
        assert!(text.contains("in tiles(") && !text.contains("min(132"), "{text}");
        let mapping = program.mappings.iter().find(|row| row.name == "pairs").unwrap();
        agrees(attributes, &program, mapping, &[("m", 270), ("n", 300), ("k", 70)], 1);
    }
}

#[test]
fn clusters_that_are_no_neighbours_are_refused() {
    let refused = |attributes: &str| {
        let program = clusters(attributes);
        let mapping = program.mappings.iter().find(|row| row.name == "pairs").unwrap();
        let graph = passes::graph(&program, mapping).unwrap();
        let errors = emit(&program, mapping, &graph).unwrap_err();
        assert!(!errors.0[0].span.is_unknown());
        errors.to_string()
    };
    common::snapshot("cluster.not_along_x", &refused("cluster(j = 2)"));
}
