//! Every operator at edge sizes: the interpreter, the simulator and a reference of plain loops agree, nothing races, and `ptxas`
//! needs no spills.

use std::process::Command;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Kernel, Options, compile};
use tilewright_kernels::gemm::{self, GemmConfig};
use tilewright_kernels::gemm_hopper::{self, Cluster, HopperGemmConfig, Major, Order};
use tilewright_kernels::w4a16::{self, W4A16Config};
use tilewright_kernels::{ConfigError, OPERATORS, Path, operator};
use tilewright_machine::{Arch, CacheHint, DType};
use tilewright_runtime::{Arg, Device, SimDevice, Sizes, Tensor};
use tilewright_sim::Report;
use tilewright_tile::interpret::{Argument, interpret};
use tilewright_tile::{Program, parse};

const SIZES: [&str; 3] = ["m", "n", "k"];

fn kernel_for(program: &Program, arch: Arch, [m, n, k]: [i64; 3]) -> Kernel {
    let options = Options::new(arch).for_sizes(program, &[("m", m), ("n", n), ("k", k)]);
    compile(program, &options).unwrap_or_else(|e| panic!("{m} × {n} × {k}: {e}\n{program}"))
}

/// Random elements of a type: floats in [−1, 1), integers of the whole range.
fn random(rng: &mut ChaCha8Rng, dtype: DType, len: i64) -> Vec<f64> {
    let mut draw = || match dtype.range() {
        Some((low, high)) => f64::from(rng.random_range(low..=high)),
        None => dtype.decode(dtype.encode(rng.random_range(-1.0..1.0))),
    };
    (0..len).map(|_| draw()).collect()
}

/// Runs the program on these inputs and an output of `m × n`: interpreter, simulator and `reference` agree, where `bound` says
/// how far each element may be from the reference. Whatever the simulator's seed, it computes the same bits.
fn agree(
    program: &Program,
    arch: Arch,
    size: [i64; 3],
    seeds: &[u64],
    inputs: &[(DType, Vec<f64>)],
    reference: &[f64],
    bound: &[f64],
) -> Report {
    let kernel = kernel_for(program, arch, size);
    let sizes: Sizes = SIZES.iter().map(|s| s.to_string()).zip(size).collect();
    let mut all: Vec<Vec<f64>> = inputs.iter().map(|(_, values)| values.clone()).collect();
    all.push(vec![f64::NAN; reference.len()]);
    let dtypes: Vec<DType> = program.params.iter().map(|p| p.dtype).collect();

    let simulate = |seed: u64| {
        let device = SimDevice::new(tilewright_sim::Config { seed, ..Default::default() });
        let tensors: Vec<Tensor> =
            dtypes.iter().zip(&all).map(|(d, v)| Tensor::from_f64(&device, *d, v).unwrap()).collect();
        let arguments: Vec<Arg<'_>> = tensors.iter().map(|t| Arg::Buffer(t.buffer())).collect();
        let report = device.launch(&kernel, &sizes, &arguments).unwrap();
        let report = report.sim().unwrap().clone();
        assert_eq!(report.problems(), Vec::<String>::new(), "{size:?}, seed {seed}");
        (tensors.last().unwrap().read(&device).unwrap(), report)
    };
    let (simulated, report) = simulate(seeds[0]);
    for seed in &seeds[1..] {
        assert!(simulate(*seed).0 == simulated, "{size:?}: seeds {} and {seed} differ", seeds[0]);
    }

    let mut arguments: Vec<Argument> = all.into_iter().map(Argument::Tensor).collect();
    interpret(&kernel.verified, &sizes, &mut arguments).unwrap();
    let Some(Argument::Tensor(interpreted)) = arguments.pop() else {
        panic!("the last parameter is a scalar")
    };

    for (i, (expected, bound)) in reference.iter().zip(bound).enumerate() {
        for (who, actual) in [("the simulator", simulated[i]), ("the interpreter", interpreted[i])] {
            let error = (actual - expected).abs();
            assert!(error <= *bound, "{who} at {size:?}, element {i}: {actual}, not {expected} ± {bound}");
        }
    }
    report
}

/// How far a result may be from the exact one: `roundings` of each product to `dtype`, sums in f32, one rounding at the end.
/// `magnitudes` are the sums of the products' absolute values.
fn bounds(dtype: DType, roundings: f64, k: i64, exact: &[f64], magnitudes: &[f64]) -> Vec<f64> {
    let each = |(c, sum): (&f64, &f64)| {
        let inner = sum * (roundings * dtype.epsilon() + (k + 8) as f64 * f64::powi(2.0, -23));
        inner + (c.abs() + inner) * dtype.epsilon() + 1e-7
    };
    exact.iter().zip(magnitudes).map(each).collect()
}

fn absolute(values: &[f64]) -> Vec<f64> {
    values.iter().map(|x| x.abs()).collect()
}

fn check_gemm(config: &GemmConfig, arch: Arch, size: [i64; 3]) -> Report {
    let [m, n, k] = size;
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let a = random(&mut rng, config.dtype, m * k);
    let b = random(&mut rng, config.dtype, n * k);
    let exact = gemm::reference(&a, &b, n as usize, k as usize);
    let magnitudes = gemm::reference(&absolute(&a), &absolute(&b), n as usize, k as usize);
    let bound = bounds(config.dtype, 0.0, k, &exact, &magnitudes);
    let inputs = [(config.dtype, a), (config.dtype, b)];
    agree(&config.program().unwrap(), arch, size, &[k as u64], &inputs, &exact, &bound)
}

fn check_w4a16(config: &W4A16Config, arch: Arch, size: [i64; 3]) -> Report {
    let [m, n, k] = size;
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let groups = config.group.map_or(1, |group| (k + group - 1) / group);
    let a = random(&mut rng, DType::F16, m * k);
    let w = random(&mut rng, DType::I4, n * k);
    let s = random(&mut rng, DType::F16, n * groups);
    let group = config.group.map(|group| group as usize);
    let exact = w4a16::reference(&a, &w, &s, n as usize, k as usize, group);
    let sizes = (n as usize, k as usize);
    let magnitudes = w4a16::reference(&absolute(&a), &absolute(&w), &absolute(&s), sizes.0, sizes.1, group);
    // A scaled weight is rounded to f16 before the product.
    let bound = bounds(DType::F16, 1.0, k, &exact, &magnitudes);
    let inputs = [(DType::F16, a), (DType::I4, w), (DType::F16, s)];
    agree(&config.program().unwrap(), arch, size, &[k as u64], &inputs, &exact, &bound)
}

fn check_hopper(config: &HopperGemmConfig, size: [i64; 3], seeds: &[u64]) -> Report {
    let [m, n, k] = size;
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let a = random(&mut rng, config.dtype, m * k);
    let b = random(&mut rng, config.dtype, n * k);
    let exact = gemm_hopper::reference(config, &a, &b, size.map(|s| s as usize));
    let magnitudes = gemm_hopper::reference(config, &absolute(&a), &absolute(&b), size.map(|s| s as usize));
    let bound = bounds(config.dtype, 0.0, k, &exact, &magnitudes);
    let inputs = [(config.dtype, a), (config.dtype, b)];
    agree(&config.program().unwrap(), Arch::Sm90a, size, seeds, &inputs, &exact, &bound)
}

/// One math warpgroup, 64 × 64 tiles and four blocks: every block takes several tiles, and the ring wraps within one.
fn small_hopper() -> HopperGemmConfig {
    HopperGemmConfig {
        bm: 64,
        bn: 64,
        stages: 3,
        warpgroups: 1,
        order: Order::Bands(2),
        sms: 4,
        ..HopperGemmConfig::default()
    }
}

/// Configurations in which everything that there is to choose is chosen differently once.
fn hopper_configs() -> Vec<HopperGemmConfig> {
    let small = small_hopper();
    let default = HopperGemmConfig { sms: 4, ..HopperGemmConfig::default() };
    vec![
        small,
        HopperGemmConfig { a: Major::Mn, in_flight: 0, order: Order::Snake(2), ..small },
        HopperGemmConfig { b: Major::Mn, in_flight: 2, order: Order::Hilbert(1), ..small },
        HopperGemmConfig { a: Major::Mn, b: Major::Mn, dtype: DType::BF16, ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), b: Major::Mn, in_flight: 2, ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(4), b: Major::Mn, order: Order::Snake(1), ..small },
        HopperGemmConfig { bm: 128, bn: 112, stages: 2, warpgroups: 2, buffers: 3, ..small },
        HopperGemmConfig { bn: 192, a: Major::Mn, ..default },
        HopperGemmConfig {
            bk: 32,
            chunk: Some(32),
            buffers: 1,
            dtype: DType::BF16,
            stages: 1,
            in_flight: 0,
            ..small
        },
        HopperGemmConfig { deferred: true, chunk: Some(16), ..small },
        HopperGemmConfig {
            deferred: true,
            cluster: Cluster::AlongM(2),
            bn: 48,
            buffers: 2,
            b: Major::Mn,
            in_flight: 2,
            ..small
        },
        HopperGemmConfig { deferred: true, swap: true, cluster: Cluster::AlongN(2), in_flight: 0, ..small },
        HopperGemmConfig { swap: true, bn: 16, stages: 5, hint_b: Some(CacheHint::EvictFirst), ..small },
        HopperGemmConfig {
            swap: true,
            bm: 128,
            bn: 64,
            warpgroups: 2,
            cluster: Cluster::AlongM(2),
            a: Major::Mn,
            hint_a: Some(CacheHint::EvictLast),
            hint_c: Some(CacheHint::EvictFirst),
            ..small
        },
        HopperGemmConfig { deferred: true, sms: 2, ..default },
        default,
    ]
}

/// What is fastest for problems of few rows, and with results that leave late.
fn tuned_hopper() -> Vec<HopperGemmConfig> {
    let default = HopperGemmConfig::default();
    let deferred = HopperGemmConfig { deferred: true, ..default };
    let swapped = HopperGemmConfig { swap: true, hint_b: Some(CacheHint::EvictFirst), ..default };
    vec![
        deferred,
        HopperGemmConfig { bn: 192, ..deferred },
        HopperGemmConfig { bn: 112, stages: 6, hint_b: Some(CacheHint::EvictFirst), ..deferred },
        HopperGemmConfig { cluster: Cluster::AlongM(2), order: Order::Snake(12), ..deferred },
        HopperGemmConfig { bm: 64, bn: 16, stages: 20, warpgroups: 1, ..swapped },
        HopperGemmConfig { bn: 64, stages: 8, cluster: Cluster::AlongM(2), ..swapped },
    ]
}

#[test]
fn gemm_hopper_is_right_at_edges() {
    for config in hopper_configs() {
        for size in gemm_hopper::edge_sizes(&config) {
            check_hopper(&config, size, &[size[2] as u64]);
        }
    }
}

#[test]
fn gemm_hopper_computes_the_same_whatever_the_order_of_events() {
    let small = small_hopper();
    let configs = [
        small,
        HopperGemmConfig { cluster: Cluster::AlongM(2), in_flight: 0, ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), in_flight: 2, buffers: 1, ..small },
        HopperGemmConfig { sms: 2, ..HopperGemmConfig::default() },
        HopperGemmConfig { deferred: true, chunk: Some(16), ..small },
        HopperGemmConfig {
            deferred: true,
            cluster: Cluster::AlongM(2),
            chunk: Some(32),
            in_flight: 2,
            ..small
        },
        HopperGemmConfig { deferred: true, swap: true, cluster: Cluster::AlongM(2), buffers: 3, ..small },
    ];
    for config in configs {
        check_hopper(&config, [200, 200, 328], &[1, 2, 3, 4, 5]);
    }
}

#[test]
fn the_default_gemm_hopper_is_right_without_conflicts() {
    for (a, b) in [(Major::K, Major::K), (Major::K, Major::Mn), (Major::Mn, Major::K), (Major::Mn, Major::Mn)]
    {
        for dtype in [DType::F16, DType::BF16] {
            let config = HopperGemmConfig { dtype, a, b, ..HopperGemmConfig::default() };
            let report = check_hopper(&config, [128, 256, 128], &[7]);
            assert_eq!(report.shared_conflicts, 0, "{config:?}");
        }
    }
    for config in tuned_hopper() {
        let report = check_hopper(&HopperGemmConfig { sms: 2, ..config }, [128, 256, 320], &[7]);
        assert_eq!(report.shared_conflicts, 0, "{config:?}");
    }
}

#[test]
fn a_swapped_gemm_hopper_leaves_by_transposing_stores() {
    for config in tuned_hopper().into_iter().filter(|config| config.swap) {
        let kernel = kernel_for(&config.program().unwrap(), Arch::Sm90a, [16, 4096, 4096]);
        let report = kernel.explanation.to_string();
        assert!(
            !report.contains("not tma") && report.contains("× stmatrix.x4.trans,"),
            "{config:?}: {report}"
        );
        assert!(kernel.ptx.contains("cache_hint"), "{config:?}");
    }
}

#[test]
fn gemm_hopper_copies_by_tensor_maps_and_shares_in_clusters() {
    for cluster in [Cluster::None, Cluster::AlongM(2), Cluster::AlongN(4)] {
        for (a, b) in
            [(Major::K, Major::K), (Major::K, Major::Mn), (Major::Mn, Major::K), (Major::Mn, Major::Mn)]
        {
            for bn in [112, 192, 256] {
                let config = HopperGemmConfig { a, b, bn, cluster, ..HopperGemmConfig::default() };
                if config.reject(Arch::Sm90a).is_some() {
                    continue;
                }
                let kernel = kernel_for(&config.program().unwrap(), Arch::Sm90a, [1000, 2000, 1016]);
                let report = kernel.explanation.to_string();
                assert!(!report.contains("not tma"), "{config:?}: {report}");
                assert_eq!(report.contains("multicast to"), cluster != Cluster::None, "{config:?}: {report}");
            }
        }
    }
}

#[test]
fn gemm_is_right_at_edges() {
    let small = GemmConfig { bm: 64, bn: 32, stages: 3, ..GemmConfig::default() };
    let configs = [
        small,
        GemmConfig { dtype: DType::BF16, bm: 32, bn: 64, bk: 64, kk: 32, epilogue: Path::Direct, ..small },
        GemmConfig { bm: 96, bn: 48, bk: 32, kk: 32, stages: 2, ..small },
        GemmConfig { bm: 16, bn: 64, bk: 64, kk: 64, stages: 5, ..small },
    ];
    for config in configs {
        for size in gemm::edge_sizes(&config) {
            check_gemm(&config, Arch::Sm80, size);
        }
    }
}

#[test]
fn the_default_gemm_is_right_without_conflicts() {
    for arch in [Arch::Sm80, Arch::Sm90a] {
        for dtype in [DType::F16, DType::BF16] {
            let config = GemmConfig { dtype, ..GemmConfig::default() };
            assert_eq!(
                check_gemm(&config, arch, [128, 128, 192]).shared_conflicts,
                0,
                "{config:?} on {arch}"
            );
        }
    }
    check_gemm(&GemmConfig::default(), Arch::Sm80, [129, 127, 65]);
}

#[test]
fn w4a16_is_right_at_edges() {
    let small = W4A16Config { bn: 32, bk: 64, kk: 32, stages: 3, group: Some(64), ..W4A16Config::default() };
    let configs = [
        small,
        W4A16Config { group: None, bm: 32, bn: 64, bk: 32, stages: 2, ..small },
        W4A16Config { group: Some(128), bm: 64, bn: 64, epilogue: Path::Staged, ..small },
        W4A16Config { weights: Path::Direct, ..small },
        W4A16Config { group: Some(128), kk: 64, bk: 64, bn: 96, ..small },
    ];
    for config in configs {
        for size in w4a16::edge_sizes(&config) {
            check_w4a16(&config, Arch::Sm80, size);
        }
    }
}

#[test]
fn the_default_w4a16_is_right_without_conflicts() {
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let report = check_w4a16(&W4A16Config::default(), arch, [16, 256, 768]);
        assert_eq!(report.shared_conflicts, 0, "{arch}");
    }
    for size in [[1, 130, 300], [17, 40, 130]] {
        check_w4a16(&W4A16Config::default(), Arch::Sm80, size);
    }
}

/// Where `ptxas` is, if it is anywhere.
fn ptxas() -> Option<std::path::PathBuf> {
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
fn assemble(ptxas: &std::path::Path, name: &str, kernel: &Kernel, arch: Arch) -> u32 {
    if let Some(folder) = std::env::var_os("TILEWRIGHT_PTX_DIR") {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.{arch}.ptx")), &kernel.ptx)
            .unwrap();
    }
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

#[test]
fn ptxas_needs_no_spills() {
    let Some(ptxas) = ptxas() else { return };
    for operator in OPERATORS {
        let program = (operator.program)(&[]).unwrap();
        for arch in [Arch::Sm80, Arch::Sm90a].into_iter().filter(|arch| *arch >= operator.since) {
            let kernel = kernel_for(&program, arch, [1024, 4096, 4096]);
            assert_eq!(assemble(&ptxas, operator.name, &kernel, arch), 0, "{} spills", operator.name);
        }
    }
}

#[test]
fn ptxas_needs_no_spills_for_any_gemm_hopper() {
    let Some(ptxas) = ptxas() else { return };
    let default = HopperGemmConfig::default();
    let wide = [
        HopperGemmConfig { bn: 224, cluster: Cluster::AlongM(2), order: Order::Hilbert(3), ..default },
        HopperGemmConfig { bn: 160, cluster: Cluster::AlongN(2), order: Order::Snake(12), ..default },
        HopperGemmConfig { bm: 256, bn: 128, buffers: 1, b: Major::Mn, ..default },
        HopperGemmConfig { bm: 192, warpgroups: 3, math_registers: 160, bn: 144, ..default },
    ];
    for (i, config) in hopper_configs().into_iter().chain(wide).chain(tuned_hopper()).enumerate() {
        let program = config.program().unwrap();
        let assemble = |name: &str, size: [i64; 3]| {
            let kernel = kernel_for(&program, Arch::Sm90a, size);
            assemble(&ptxas, &format!("gemm_hopper_{i}_{name}"), &kernel, Arch::Sm90a)
        };
        assert_eq!(assemble("whole", [4096, 4096, 4096]), 0, "{config:?} spills");
        assert_eq!(assemble("edges", [1000, 3000, 1016]), 0, "{config:?} spills");
        if i < 2 {
            // Threads copy element by element, where a few spilled registers are the least of it.
            assert!(assemble("odd", [1001, 3001, 1003]) < 1024, "{config:?}");
        }
    }
}

#[test]
fn programs_print_and_parse_back() {
    for operator in OPERATORS {
        let program = (operator.program)(&[("stages", "3")]).unwrap();
        assert_eq!(parse(&program.to_string()).unwrap(), program, "{}", operator.name);
    }
    for config in hopper_configs() {
        let program = config.program().unwrap();
        assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
    }
}

#[test]
fn spaces_are_large_and_valid() {
    let gemms: Vec<GemmConfig> = GemmConfig::space(Arch::Sm80, 4096, 4096, 4096).collect();
    assert!(gemms.len() >= 100, "{}", gemms.len());
    assert!(gemms.iter().any(|c| c.bm == 96) && gemms.iter().any(|c| c.bn == 192));
    assert!(gemms.contains(&GemmConfig { bm: 128, ..GemmConfig::default() }));
    let few = W4A16Config::space(Arch::Sm80, 16, 4096, 4096, Some(128)).collect::<Vec<_>>();
    assert!(few.len() >= 100 && few.iter().all(|c| c.bm <= 16), "{}", few.len());
    // A smaller architecture has a smaller space, and every point left out has its reason.
    let has = |arch: Arch| GemmConfig::space(arch, 4096, 4096, 4096).count();
    assert!(has(Arch::Sm89) < has(Arch::Sm80) && has(Arch::Sm80) < has(Arch::Sm90a));
    let left_out = GemmConfig::grid().filter_map(|c| c.reject(Arch::Sm80)).collect::<Vec<_>>();
    assert_eq!(GemmConfig::grid().count(), gemms.len() + left_out.len());
}

#[test]
fn mistakes_name_the_field_and_what_would_be_right() {
    let says = |config: GemmConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let default = GemmConfig::default();
    says(GemmConfig { bm: 100, ..default }, "bm", "multiple of 16");
    says(GemmConfig { bn: 0, ..default }, "bn", "multiple of 8");
    says(GemmConfig { bk: 40, ..default }, "bk", "multiple of 16");
    says(GemmConfig { kk: 24, ..default }, "kk", "16, 32 or 64");
    says(GemmConfig { stages: 0, ..default }, "stages", "from 1");
    says(GemmConfig { threads: 100, ..default }, "threads", "multiple of 32");
    says(GemmConfig { bm: 16, bn: 8, ..default }, "threads", "fewer threads");
    says(GemmConfig { bm: 256, bn: 256, ..default }, "bm", "more threads");
    says(GemmConfig { dtype: DType::F32, ..default }, "dtype", "f16 or bf16");
    let deep = GemmConfig { stages: 11, ..default };
    assert!(deep.reject(Arch::Sm80).is_some_and(|r| r.contains("fewer stages")));
    assert_eq!(deep.reject(Arch::Sm90a), None);
    let uneven = W4A16Config { group: Some(96), ..W4A16Config::default() };
    assert!(uneven.program().is_err_and(|e| e.to_string().contains("multiple of bk = 128")));
    assert!(operator("conv").is_err_and(|e| e.to_string().contains("gemm, gemm_hopper, w4a16")));
}

#[test]
fn mistakes_about_gemm_hopper_name_the_field_and_what_would_be_right() {
    let says = |config: HopperGemmConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let default = HopperGemmConfig::default();
    says(HopperGemmConfig { dtype: DType::F32, ..default }, "dtype", "f16 or bf16");
    says(HopperGemmConfig { bm: 64, ..default }, "bm", "64 for each of 2");
    says(HopperGemmConfig { bn: 100, ..default }, "bn", "multiple of 8");
    says(HopperGemmConfig { bk: 24, ..default }, "bk", "multiple of 16");
    says(HopperGemmConfig { stages: 0, ..default }, "stages", "from 1");
    says(HopperGemmConfig { stages: 5, ..default }, "stages", "fewer stages");
    says(HopperGemmConfig { warpgroups: 0, ..default }, "warpgroups", "from 1 to 7");
    says(HopperGemmConfig { in_flight: 4, ..default }, "in_flight", "from 0 to 3");
    says(HopperGemmConfig { chunk: Some(48), ..default }, "chunk", "divide bn = 256");
    says(HopperGemmConfig { bn: 96, chunk: Some(64), ..default }, "chunk", "divide bn = 96");
    says(HopperGemmConfig { buffers: 0, ..default }, "buffers", "from 1");
    says(HopperGemmConfig { cluster: Cluster::AlongM(3), ..default }, "cluster", "2, 4 or 8");
    says(
        HopperGemmConfig { bn: 120, cluster: Cluster::AlongM(2), ..default },
        "cluster",
        "cannot share 120 rows",
    );
    says(HopperGemmConfig { order: Order::Bands(0), ..default }, "order", "1 to 1024");
    says(HopperGemmConfig { order: Order::Hilbert(9), ..default }, "order", "0 to 8");
    says(HopperGemmConfig { load_registers: 20, ..default }, "load_registers", "multiple of 8 from 24");
    says(HopperGemmConfig { load_registers: 48, ..default }, "math_registers", "there are 65536");
    says(HopperGemmConfig { math_registers: 216, ..default }, "bn", "more warpgroups");
    says(HopperGemmConfig { sms: 0, ..default }, "sms", "from 1");
    assert_eq!(default.reject(Arch::Sm90a), None);
    assert!(default.reject(Arch::Sm80).is_some_and(|r| r.contains("sm_90a")));
    let set = |field: &str, value: &str| (operator("gemm_hopper").unwrap().program)(&[(field, value)]);
    for (field, value) in [
        ("a", "m"),
        ("b", "n"),
        ("cluster", "m2"),
        ("cluster", "n4"),
        ("cluster", "none"),
        ("order", "bands(8)"),
        ("order", "snake(12)"),
        ("order", "hilbert(4)"),
        ("chunk", "32"),
        ("chunk", "widest"),
        ("deferred", "true"),
        ("swap", "true"),
        ("hint_b", "evict_first"),
        ("hint_c", "none"),
        ("dtype", "bf16"),
    ] {
        assert!(set(field, value).is_ok(), "{field} = {value}: {:?}", set(field, value));
    }
    for (field, value, text) in [
        ("a", "n", "k or m"),
        ("b", "m", "k or n"),
        ("cluster", "2", "none, or m or n"),
        ("cluster", "m0", "none, or"),
        ("order", "rows", "hilbert(order)"),
        ("deferred", "yes", "true or false"),
        ("hint_a", "first", "none, evict_first or evict_last"),
        ("bm", "x", "integer"),
        ("dtype", "f32", "f16 or bf16"),
    ] {
        assert!(set(field, value).is_err_and(|e| e.to_string().contains(text)), "{field} = {value}");
    }
}

#[test]
fn the_space_of_gemm_hopper_compiles() {
    let all: Vec<HopperGemmConfig> = HopperGemmConfig::space(Arch::Sm90a, 1024, 6144, 4096).collect();
    assert!(all.len() >= 100, "{}", all.len());
    assert!(all.contains(&HopperGemmConfig::default()));
    for bn in [112, 160, 192, 224] {
        assert!(all.iter().any(|c| c.bn == bn), "{bn}");
    }
    assert_eq!(HopperGemmConfig::space(Arch::Sm80, 4096, 4096, 4096).count(), 0);
    assert!(HopperGemmConfig::space(Arch::Sm90a, 64, 4096, 4096).all(|c| c.bm <= 64 * 2));
    let left_out = HopperGemmConfig::grid().filter(|c| c.reject(Arch::Sm90a).is_some()).count();
    assert!(left_out > 0 && left_out < HopperGemmConfig::grid().count());
    for config in all.iter().step_by(all.len() / 40) {
        kernel_for(&config.program().unwrap(), Arch::Sm90a, [1024, 6144, 4096]);
    }
}
