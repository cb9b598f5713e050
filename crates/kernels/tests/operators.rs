//! Every operator at edge sizes: the interpreter, the simulator and a reference of plain loops agree, nothing races, and `ptxas`
//! needs no spills.

mod common;

use common::{absolute, agree, assemble, bounds, kernel_for, ptxas, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::gemm::{self, GemmConfig};
use tilewright_kernels::text::TEXT_OPERATORS;
use tilewright_kernels::w4a16::{self, W4A16Config};
use tilewright_kernels::{ConfigError, OPERATORS, Operator, Path, operator};
use tilewright_machine::{Arch, DType};
use tilewright_sim::Report;
use tilewright_tile::renamed::{Place, RENAMED};
use tilewright_tile::{Stmt, parse};

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
            check_gemm(&config, Arch::SM_80, size);
        }
    }
}

#[test]
fn the_default_gemm_is_right_without_conflicts() {
    for arch in [Arch::SM_80, Arch::SM_90A] {
        for dtype in [DType::F16, DType::BF16] {
            let config = GemmConfig { dtype, ..GemmConfig::default() };
            assert_eq!(
                check_gemm(&config, arch, [128, 128, 192]).shared_conflicts,
                0,
                "{config:?} on {arch}"
            );
        }
    }
    check_gemm(&GemmConfig::default(), Arch::SM_80, [129, 127, 65]);
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
            check_w4a16(&config, Arch::SM_80, size);
        }
    }
}

#[test]
fn the_default_w4a16_is_right_without_conflicts() {
    for arch in [Arch::SM_80, Arch::SM_90A] {
        let report = check_w4a16(&W4A16Config::default(), arch, [16, 256, 768]);
        assert_eq!(report.shared_conflicts, 0, "{arch}");
    }
    for size in [[1, 130, 300], [17, 40, 130]] {
        check_w4a16(&W4A16Config::default(), Arch::SM_80, size);
    }
}

/// The operators that are built in Rust; `text.rs` tests the others.
fn built_in_rust() -> impl Iterator<Item = &'static Operator> {
    OPERATORS.iter().filter(|operator| TEXT_OPERATORS.iter().all(|text| text.name != operator.name))
}

#[test]
fn ptxas_needs_no_spills() {
    let Some(ptxas) = ptxas() else { return };
    for operator in built_in_rust() {
        let program = (operator.programs)(&[]).unwrap().remove(0);
        for arch in [Arch::SM_80, Arch::SM_90A].into_iter().filter(|arch| arch.has(operator.needs)) {
            let kernel = kernel_for(&program, arch, [1024, 4096, 4096]);
            assert_eq!(assemble(&ptxas, operator.name, &kernel, arch), 0, "{} spills", operator.name);
        }
    }
}

#[test]
fn programs_print_and_parse_back() {
    for operator in OPERATORS {
        assert!(operator.least_architecture().has(operator.needs), "{}", operator.name);
    }
    for operator in built_in_rust() {
        let program = (operator.programs)(&[("stages", "3")]).unwrap().remove(0);
        assert_eq!(parse(&program.to_string()).unwrap(), program, "{}", operator.name);
    }
}

#[test]
fn spaces_are_large_and_valid() {
    let gemms: Vec<GemmConfig> = GemmConfig::space(Arch::SM_80, 4096, 4096, 4096).collect();
    assert!(gemms.len() >= 100, "{}", gemms.len());
    assert!(gemms.iter().any(|c| c.bm == 96) && gemms.iter().any(|c| c.bn == 192));
    assert!(gemms.contains(&GemmConfig { bm: 128, ..GemmConfig::default() }));
    let few = W4A16Config::space(Arch::SM_80, 16, 4096, 4096, Some(128)).collect::<Vec<_>>();
    assert!(few.len() >= 100 && few.iter().all(|c| c.bm <= 16), "{}", few.len());
    // A smaller architecture has a smaller space, and every point left out has its reason.
    let has = |arch: Arch| GemmConfig::space(arch, 4096, 4096, 4096).count();
    assert!(has(Arch::SM_89) < has(Arch::SM_80) && has(Arch::SM_80) < has(Arch::SM_90A));
    let left_out = GemmConfig::grid().filter_map(|c| c.reject(Arch::SM_80)).collect::<Vec<_>>();
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
    assert!(deep.reject(Arch::SM_80).is_some_and(|r| r.contains("fewer stages")));
    assert_eq!(deep.reject(Arch::SM_90A), None);
    let uneven = W4A16Config { group: Some(96), ..W4A16Config::default() };
    assert!(uneven.program().is_err_and(|e| e.to_string().contains("multiple of bk = 128")));
    assert!(
        operator("conv").is_err_and(|e| e.to_string().contains("gemm, gemm_hopper, gemm_fp8_blocks, w4a16"))
    );
}

#[test]
fn old_names_of_parameters_and_values_are_refused_with_the_new_ones() {
    for row in RENAMED {
        let given = match row.place {
            Place::Language => continue,
            Place::Parameter => (row.old, "1".to_string()),
            Place::Value => ("rasterization", format!("{}(8)", row.old)),
        };
        let said = |error| matches!(error, ConfigError::Renamed { new, .. } if new == row.new);
        let mut asked = OPERATORS.iter().map(|operator| (operator.programs)(&[(given.0, &given.1)]));
        assert!(asked.any(|result| result.is_err_and(said)), "{}", row.old);
    }
}

#[test]
fn messages_about_operators_name_the_line_that_builds_the_statement() {
    fn all_are_of_operators(body: &[Stmt]) {
        for stmt in body {
            let location = stmt.span.rust().expect("a call in Rust");
            assert!(location.file().starts_with("crates/kernels/src/"), "{location}");
            all_are_of_operators(stmt.kind.body());
        }
    }
    // The programs of attention are texts, whose lines messages name.
    for operator in built_in_rust().filter(|operator| !operator.name.starts_with("attention")) {
        for program in (operator.programs)(&[]).unwrap() {
            all_are_of_operators(&program.body);
        }
    }
    // An architecture without what the operator uses.
    let program = &(operator("gemm_hopper").unwrap().programs)(&[]).unwrap()[0];
    let errors = compile(program, &Options::new(Arch::SM_80)).err().unwrap();
    let place = errors.0[0].span.rust().expect("a call in Rust");
    assert!(place.file().starts_with("crates/kernels/src/"), "{errors}");
    assert!(errors.to_string().contains(&format!("--> {place}")), "{errors}");
    // A tile that no matrix instruction divides.
    let mut constants = Options::new(Arch::SM_80);
    constants.constants.insert("BK".to_string(), 12);
    let program = GemmConfig::default().program().unwrap();
    let errors = compile(&program, &constants).err().unwrap();
    assert!(errors.to_string().contains("--> crates/kernels/src/gemm.rs:"), "{errors}");
}
