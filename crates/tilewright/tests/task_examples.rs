//! The mappings of `examples/tasks` as kernels: compiled for their architectures, assembled without spills and without a word of `ptxas` where there is one, and
//! simulated beside the interpreter at sizes that no tile divides (multiples of what TMA needs), with several interleavings of warps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright::check::CheckOptions;
use tilewright::compiler::{Kernel, Options, compile};
use tilewright::machine::Arch;
use tilewright::runtime::SimDevice;
use tilewright::sequence::check_in_order;
use tilewright::sim::Config;
use tilewright::task::{Mapping, Program, lower, parse};
use tilewright::tile::Verified;

/// Sizes at which tiles reach beyond the edges of their tensors, by the name of the file.
const SIZES: [(&str, &[(&str, i64)]); 9] = [
    ("gemm", &[("m", 136), ("n", 72), ("k", 328)]),
    ("gemm_batched", &[("l", 2), ("m", 72), ("n", 40), ("k", 72)]),
    ("gemm_dual", &[("m", 72), ("n", 264), ("k", 136)]),
    ("gemm_sum", &[("m", 72), ("n", 264), ("k", 136)]),
    ("attention", &[("l", 1), ("s", 136), ("t", 200)]),
    ("attention_causal", &[("l", 1), ("s", 136), ("t", 136)]),
    ("mlp", &[("m", 72), ("f", 136)]),
    ("mlp_two_kernels", &[("m", 72), ("f", 136)]),
    ("gated", &[("m", 72), ("n", 136), ("k", 200)]),
];

fn examples() -> Vec<(String, Program)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tasks");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let program = parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        (path.file_stem().unwrap().to_string_lossy().into_owned(), program)
    };
    paths.into_iter().map(read).collect()
}

/// Each mapping of each example with its kernels for the sizes; a thread an example.
fn kernels(each: impl Fn(&str, &Mapping, &[Kernel], &[(&str, i64)]) + Sync) {
    let of_example = |file: String, program: Program| {
        let (_, sizes) = SIZES.iter().find(|(of, _)| *of == file).unwrap();
        let program = program.with_constants(&[("D".to_string(), 128)].into_iter().collect());
        for mapping in &program.mappings {
            let name = format!("{file}.{}", mapping.name);
            let lowered = lower(&program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
            let one = |lowered: &Verified| {
                let options = Options::new(mapping.arch).for_own_sizes(lowered.program(), sizes);
                compile(lowered.program(), &options).unwrap_or_else(|errors| panic!("{name}: {errors}"))
            };
            each(&name, mapping, &lowered.iter().map(one).collect::<Vec<Kernel>>(), sizes);
        }
    };
    std::thread::scope(|scope| {
        for (file, program) in examples() {
            scope.spawn(|| of_example(file, program));
        }
    });
}

/// Path of `ptxas`, if there is one.
fn ptxas() -> Option<PathBuf> {
    let found = std::env::var_os("TILEWRIGHT_PTXAS").map(PathBuf::from).or_else(|| {
        std::env::split_paths(&std::env::var_os("PATH")?).map(|p| p.join("ptxas")).find(|p| p.is_file())
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI has no ptxas: set TILEWRIGHT_PTXAS");
        println!("no ptxas: nothing is assembled");
    }
    found
}

/// Asserts that a kernel is assembled, that it spills nothing, and that `ptxas` does not complain about it.
fn assembles(ptxas: &Path, name: &str, kernel: &Kernel, arch: Arch) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernel.ptx");
    std::fs::write(&file, &kernel.ptx).unwrap();
    let mut command = Command::new(ptxas);
    command.args([format!("-arch={arch}").as_str(), "-v", "-o", "/dev/null"]).arg(&file);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
    assert!(output.status.success(), "{name}: {text}");
    for word in ["C75", "warning", "advisory", "Potential"] {
        assert!(!text.contains(word), "{name} is complained about: {text}");
    }
    assert!(text.contains(" 0 bytes spill stores, 0 bytes spill loads"), "{name} spills: {text}");
}

#[test]
fn examples_are_right_for_every_interleaving_and_spill_nothing() {
    let ptxas = ptxas();
    kernels(|name, mapping, kernels, sizes| {
        if let Some(ptxas) = &ptxas {
            kernels.iter().for_each(|kernel| assembles(ptxas, name, kernel, mapping.arch));
        }
        let kernels: Vec<&Kernel> = kernels.iter().collect();
        let sizes: BTreeMap<String, i64> =
            sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        // By day one order of events, each night three.
        let every = std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some();
        for seed in if every { 0..3 } else { 1..2 } {
            let device = SimDevice::new(Config { seed, ..Config::default() });
            let options = CheckOptions { sizes: sizes.clone(), seed, ..CheckOptions::default() };
            let ran = check_in_order(&kernels, &device, &options);
            let ran = ran.unwrap_or_else(|error| panic!("{name}: {error}"));
            for outcome in &ran.outcomes {
                let right = outcome.is_right() && outcome.comparisons.iter().all(|c| c.unbounded == 0);
                assert!(right, "{name}, seed {seed}: {:?}\n{:?}", outcome.comparisons, outcome.findings);
            }
            assert!(ran.is_right(), "{name}, seed {seed}: {:?}", ran.together);
        }
    });
}
