//! Support for the tests of all operators: running programs in all executions, bounds of errors, and `ptxas`.

#![allow(dead_code)] // Each test binary uses some of it.

pub mod attention;

use std::collections::BTreeMap;
use std::process::Command;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Kernel, Options, compile};
use tilewright_kernels::gemm_hopper::{HopperGemmConfig, Rasterization};
use tilewright_machine::{Arch, DType, Number};
use tilewright_runtime::{Arg, LaunchOptions, SimDevice, Sizes, Tensor};
use tilewright_sim::Report;
use tilewright_tile::interpret::{Argument, interpret, tensor_len, tensors_of_array};
use tilewright_tile::{Param, ParamId, ParamKind, Program};

const SIZES: [&str; 3] = ["m", "n", "k"];

pub fn kernel_for(program: &Program, arch: Arch, [m, n, k]: [i64; 3]) -> Kernel {
    let options = Options::new(arch).for_own_sizes(program, &[("m", m), ("n", n), ("k", k)]);
    compile(program, &options).unwrap_or_else(|e| panic!("{m} × {n} × {k}: {e}\n{program}"))
}

/// Random elements of a type: floats in [−1, 1), integers of the whole range.
pub fn random(rng: &mut ChaCha8Rng, dtype: DType, len: i64) -> Vec<f64> {
    let mut draw = || match dtype.range() {
        Some((low, high)) => rng.random_range(low..=high) as f64,
        None => dtype.decode(dtype.encode(rng.random_range(-1.0..1.0))),
    };
    (0..len).map(|_| draw()).collect()
}

/// Tensors by name, as f64: what goes in, and what memory that is written holds before.
pub type Tensors = BTreeMap<String, Vec<f64>>;

/// Programs in the order of their launches, with the sizes by name.
pub struct Launch<'a> {
    /// The programs; tensors of the same name are the same.
    pub programs: &'a [Program],
    /// The sizes.
    pub sizes: &'a [(&'a str, i64)],
    /// Scalars by name; the others have their defaults.
    pub scalars: &'a [(&'a str, f64)],
}

impl Launch<'_> {
    /// Compiles the programs for their sizes.
    pub fn kernels(&self, arch: Arch) -> Vec<Kernel> {
        let compiled = |program: &Program| {
            let options = Options::new(arch).for_own_sizes(program, self.sizes);
            compile(program, &options).unwrap_or_else(|e| panic!("{:?}: {e}\n{program}", self.sizes))
        };
        self.programs.iter().map(compiled).collect()
    }

    /// Runs the programs on the interpreter, and on the simulator with each of the seeds, which compute the same bits: the tensors behind
    /// each, and the last report of every program. Tensors that are not given are NaN at first. Nothing races.
    pub fn run(&self, arch: Arch, seeds: &[u64], given: &Tensors) -> (Tensors, Tensors, Vec<Report>) {
        let kernels = self.kernels(arch);
        let simulate = |seed: u64| {
            let device = SimDevice::new(tilewright_sim::Config { seed, ..Default::default() });
            let mut tensors: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
            for kernel in &kernels {
                for (name, param, values, count) in buffers(kernel, &self.sizes_of(kernel), given) {
                    // Those of an array lie one behind the other in what is given.
                    let each = values.chunks(values.len() / count);
                    let made = |of: &[f64]| Tensor::from_f64(&device, param.dtype, of).unwrap();
                    tensors.entry(name).or_insert_with(|| each.map(made).collect());
                }
            }
            // The kernels behind the first may begin before it has ended.
            let mut sequence = device.sequence();
            for (i, kernel) in kernels.iter().enumerate() {
                let sizes = self.sizes_of(kernel);
                let params = kernel.program().params.iter();
                let arguments: Vec<Arg<'_>> = params
                    .map(|param| match param.kind {
                        ParamKind::Tensor { array: true, .. } => Arg::Tensors(&tensors[&param.name]),
                        ParamKind::Tensor { .. } => Arg::Tensor(&tensors[&param.name][0]),
                        ParamKind::Scalar { default } => {
                            Arg::number(param.dtype, self.scalar(&param.name, default))
                        }
                    })
                    .collect();
                sequence.push(kernel, &sizes, &arguments, LaunchOptions { dependent: i > 0 }).unwrap();
            }
            let reports: Vec<Report> =
                sequence.run().unwrap().iter().map(|report| report.sim().unwrap().clone()).collect();
            for report in &reports {
                assert_eq!(report.problems(), Vec::<String>::new(), "{:?}, seed {seed}", self.sizes);
            }
            let read = tensors.iter().map(|(name, tensors)| {
                (name.clone(), tensors.iter().flat_map(|tensor| tensor.read(&device).unwrap()).collect())
            });
            (read.collect::<Tensors>(), reports)
        };
        let (simulated, reports) = simulate(seeds[0]);
        for seed in &seeds[1..] {
            let same = simulate(*seed).0.iter().all(|(name, values)| {
                values.iter().map(|v| v.to_bits()).eq(simulated[name].iter().map(|v| v.to_bits()))
            });
            assert!(same, "{:?}: seeds {} and {seed} differ", self.sizes, seeds[0]);
        }

        let mut interpreted = Tensors::new();
        for kernel in &kernels {
            let sizes = self.sizes_of(kernel);
            for (name, _, values, _) in buffers(kernel, &sizes, given) {
                interpreted.entry(name).or_insert(values);
            }
            let params = &kernel.program().params;
            let mut arguments: Vec<Argument> = params
                .iter()
                .map(|param| match param.kind {
                    ParamKind::Tensor { .. } => Argument::Tensor(interpreted[&param.name].clone()),
                    ParamKind::Scalar { default } => Argument::Scalar(self.scalar(&param.name, default)),
                })
                .collect();
            interpret(&kernel.verified, &sizes, &mut arguments).unwrap();
            for (param, argument) in params.iter().zip(arguments) {
                if let Argument::Tensor(values) = argument {
                    interpreted.insert(param.name.clone(), values);
                }
            }
        }
        (simulated, interpreted, reports)
    }

    fn scalar(&self, name: &str, default: Number) -> Number {
        self.scalars.iter().find(|(other, _)| *other == name).map_or(default, |(_, value)| (*value).into())
    }

    /// The sizes that a kernel has.
    fn sizes_of(&self, kernel: &Kernel) -> Sizes {
        let has = |name: &str| kernel.program().sizes().any(|(_, symbol, _)| symbol.name == name);
        self.sizes
            .iter()
            .filter(|(name, _)| has(name))
            .map(|(name, value)| (name.to_string(), *value))
            .collect()
    }
}

/// The tensor parameters of a kernel with what they hold at first, and the number of tensors: of an array several.
fn buffers<'a>(
    kernel: &'a Kernel,
    sizes: &Sizes,
    given: &Tensors,
) -> Vec<(String, &'a Param, Vec<f64>, usize)> {
    let params = kernel.program().params.iter().enumerate();
    let tensors = params.filter(|(_, param)| matches!(param.kind, ParamKind::Tensor { .. }));
    let buffer = |(i, param): (usize, &'a Param)| {
        let count = tensors_of_array(&kernel.verified, ParamId(i as u32), sizes).unwrap();
        let len = tensor_len(&kernel.verified, ParamId(i as u32), sizes).unwrap();
        let values = given.get(&param.name).cloned().unwrap_or_else(|| vec![f64::NAN; len]);
        assert_eq!(values.len(), len, "{}", param.name);
        (param.name.clone(), param, values, count.unwrap_or(1))
    };
    tensors.map(buffer).collect()
}

/// Every element is within its bound of what is expected.
pub fn close(what: &str, actual: &[f64], expected: &[f64], bound: &[f64]) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, ((actual, expected), bound)) in actual.iter().zip(expected).zip(bound).enumerate() {
        let error = (actual - expected).abs();
        assert!(error <= *bound, "{what}, element {i}: {actual}, not {expected} ± {bound}");
    }
}

/// Runs the program on these inputs and an output of `m × n`, its last parameter: interpreter, simulator and `reference` agree, where
/// `bound` says how far each element may be from the reference. Whatever the simulator's seed, it computes the same bits.
pub fn agree(
    program: &Program,
    arch: Arch,
    size: [i64; 3],
    seeds: &[u64],
    inputs: &[(DType, Vec<f64>)],
    reference: &[f64],
    bound: &[f64],
) -> Report {
    let sizes: Vec<(&str, i64)> = SIZES.into_iter().zip(size).collect();
    let launch = Launch { programs: std::slice::from_ref(program), sizes: &sizes, scalars: &[] };
    let names = program.params.iter().map(|param| param.name.clone());
    let given: Tensors = names.zip(inputs.iter().map(|(_, values)| values.clone())).collect();
    let (simulated, interpreted, mut reports) = launch.run(arch, seeds, &given);
    let output = &program.params.last().unwrap().name;
    close(&format!("the simulator at {size:?}"), &simulated[output], reference, bound);
    close(&format!("the interpreter at {size:?}"), &interpreted[output], reference, bound);
    reports.remove(0)
}

/// Largest distances of the results from the exact ones: `roundings` of each product to `dtype`, sums in f32, one rounding at the end.
/// `magnitudes` are the sums of the products' absolute values.
pub fn bounds(dtype: DType, roundings: f64, k: i64, exact: &[f64], magnitudes: &[f64]) -> Vec<f64> {
    let each = |(c, sum): (&f64, &f64)| {
        let inner = sum * (roundings * dtype.epsilon() + (k + 8) as f64 * f64::powi(2.0, -23));
        inner + (c.abs() + inner) * dtype.epsilon() + 1e-7
    };
    exact.iter().zip(magnitudes).map(each).collect()
}

pub fn absolute(values: &[f64]) -> Vec<f64> {
    values.iter().map(|x| x.abs()).collect()
}

/// Returns whether all cases of the long tests are run, as the nightly form of CI asks with `TILEWRIGHT_EVERY_POINT=1`.
pub fn nightly() -> bool {
    std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some_and(|value| value == "1")
}

/// Returns whether a case of a long test is run: by day one of `of` in turn, each night all.
pub fn in_turn(turn: usize, of: usize) -> bool {
    turn.is_multiple_of(of) || nightly()
}

/// Each configuration with each of its sizes, of which [`in_turn`] leaves by day one of `of`, each configuration and each size among them.
pub fn crossed<C: Copy, S>(
    configs: impl IntoIterator<Item = C>,
    sizes: impl Fn(&C) -> Vec<S>,
    of: usize,
) -> Vec<(C, S)> {
    let all = configs.into_iter().enumerate().flat_map(|(i, config)| {
        let sizes = sizes(&config).into_iter().enumerate();
        let some = sizes.filter(|(j, _)| in_turn(i + j, of)).map(|(_, size)| (config, size));
        some.collect::<Vec<_>>()
    });
    all.collect()
}

/// Path of `ptxas`, if there is one.
pub fn ptxas() -> Option<std::path::PathBuf> {
    let found = std::env::var_os("TILEWRIGHT_PTXAS").map(std::path::PathBuf::from).or_else(|| {
        std::env::split_paths(&std::env::var_os("PATH")?).map(|p| p.join("ptxas")).find(|p| p.is_file())
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI has no ptxas: set TILEWRIGHT_PTXAS");
        println!("no ptxas: nothing is assembled");
    }
    found
}

/// Assembles a kernel: nothing that `ptxas` would say beside its figures (that it serialises `wgmma`, that it ignores
/// `setmaxnreg`). The bytes of registers that it spills.
pub fn assemble(ptxas: &std::path::Path, name: &str, kernel: &Kernel, arch: Arch) -> u32 {
    let file = std::env::temp_dir().join(format!("tilewright-{}-{name}.{arch}.ptx", std::process::id()));
    std::fs::write(&file, &kernel.ptx).unwrap();
    let output = Command::new(ptxas)
        .args([format!("-arch={arch}").as_str(), "-v", "-o", "/dev/null"])
        .arg(&file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
    println!("{name} on {arch}: {text}");
    assert!(output.status.success(), "{name}: {text}");
    for word in ["C75", "warning", "advisory", "Potential"] {
        assert!(!text.contains(word), "{name} is complained about: {text}");
    }
    let spills = text.split(" bytes spill stores").next().and_then(|before| before.rsplit(' ').next());
    spills.unwrap().parse().unwrap()
}

/// One math warpgroup, 64 × 64 tiles and four blocks: every block takes several tiles, and the ring wraps within one.
pub fn small_hopper() -> HopperGemmConfig {
    HopperGemmConfig {
        bm: 64,
        bn: 64,
        stages: 3,
        warpgroups: 1,
        rasterization: Rasterization::Grouped(2),
        sm_count: 4,
        ..HopperGemmConfig::default()
    }
}
