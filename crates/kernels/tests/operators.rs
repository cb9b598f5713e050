//! Every operator at edge sizes: the interpreter, the simulator and a reference of plain loops agree, nothing races, and `ptxas`
//! needs no spills.

use crate::common::{
    Launch, Tensors, absolute, agree, assemble, bounds, close, in_turn, kernel_for, nightly, ptxas, random,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::gemm::{self, GemmConfig, Precision};
use tilewright_kernels::gemm_hopper::{self, Batch, Epilogue, HopperGemmConfig, Inputs, Major, Part};
use tilewright_kernels::text::TEXT_OPERATORS;
use tilewright_kernels::w4a16::{self, W4A16Config, Way};
use tilewright_kernels::{ConfigError, Loads, OPERATORS, Operator, Path, operator};
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
    // Zero points are integers, as the differences are then.
    let z = if config.zeros { random(&mut rng, DType::I4, n * groups) } else { Vec::new() };
    let group = config.group.map(|group| group as usize);
    let (exact, bound) = w4a16_exact([&a, &w, &s, &z], [n, k], group);
    let inputs = [(DType::F16, a), (DType::I4, w), (DType::F16, s)];
    let zeros = config.zeros.then_some((DType::F16, z));
    let inputs: Vec<_> = inputs.into_iter().chain(zeros).collect();
    agree(&config.program().unwrap(), arch, size, &[k as u64], &inputs, &exact, &bound)
}

/// The product of activations, weights, scales and zero points, and how far each element may be from it: a scaled weight is rounded to f16 ahead of it.
fn w4a16_exact([a, w, s, z]: [&[f64]; 4], [n, k]: [i64; 2], group: Option<usize>) -> (Vec<f64>, Vec<f64>) {
    let sizes = [n as usize, k as usize];
    let exact = w4a16::reference(a, w, [s, z], sizes, group);
    let lowered: Vec<f64> = z.iter().map(|zero| -zero.abs()).collect();
    let magnitudes = w4a16::reference(&absolute(a), &absolute(w), [&absolute(s), &lowered], sizes, group);
    let bound = bounds(DType::F16, 1.0, k, &exact, &magnitudes);
    (exact, bound)
}

/// Rows of experts: the interpreter, the simulator and plain products of each expert's rows agree. Expert 0 has `rows[0]` rows, and so on.
fn check_experts(config: &W4A16Config, rows: &[i64], [n, k]: [i64; 2]) {
    let mut rng = ChaCha8Rng::seed_from_u64((n * 3 + k) as u64);
    let (m, g) = (rows.iter().sum::<i64>(), rows.len() as i64);
    let (groups, group) =
        (config.group.map_or(1, |group| (k + group - 1) / group), config.group.map(|group| group as usize));
    // Rows of activations, of which some are nobody's, in the order of an odd step.
    let held = if config.gather { m + 3 } else { m };
    let (a, w) = (random(&mut rng, DType::F16, held * k), random(&mut rng, DType::I4, g * n * k));
    let s = random(&mut rng, DType::F16, g * n * groups);
    let z = if config.zeros { random(&mut rng, DType::I4, g * n * groups) } else { Vec::new() };
    let place = |row: i64| if config.gather { (row * 5 + 2) % held } else { row };
    let (mut of_tiles, mut first, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let (mut exact, mut bound, mut at) = (Vec::new(), Vec::new(), 0);
    for (expert, count) in (0..).zip(rows) {
        let of =
            |all: &[f64], each: i64| all[(expert * each) as usize..((expert + 1) * each) as usize].to_vec();
        let own: Vec<f64> = (at..at + count)
            .flat_map(|row| a[(place(row) * k) as usize..((place(row) + 1) * k) as usize].to_vec())
            .collect();
        let zeros = if config.zeros { of(&z, n * groups) } else { Vec::new() };
        let (of_expert, bounds) =
            w4a16_exact([&own, &of(&w, n * k), &of(&s, n * groups), &zeros], [n, k], group);
        exact.extend(of_expert);
        bound.extend(bounds);
        for tile in 0..(count + config.bm - 1) / config.bm {
            of_tiles.push(expert as f64);
            first.push((at + tile * config.bm) as f64);
        }
        at += count;
        ends.push(at as f64);
    }
    // A tile that nobody uses.
    of_tiles.push(-1.0);
    first.push(0.0);
    let sizes = [("m", m), ("n", n), ("k", k), ("g", g), ("t", of_tiles.len() as i64), ("r", held)];
    let rows = (0..m).map(|row| place(row) as f64).collect();
    let given = [
        ("a", a),
        ("w", w),
        ("s", s),
        ("z", z),
        ("rows", rows),
        ("groups", of_tiles),
        ("first", first),
        ("ends", ends),
    ];
    let program = config.program().unwrap();
    let given: Tensors = given.into_iter().map(|(name, values)| (name.to_string(), values)).collect();
    let launch = Launch { programs: std::slice::from_ref(&program), sizes: &sizes, scalars: &[] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_80, &[k as u64], &given);
    close("the simulator", &simulated["c"], &exact, &bound);
    close("the interpreter", &interpreted["c"], &exact, &bound);
}

#[test]
fn gemm_is_right_at_edges() {
    let small = GemmConfig { bm: 64, bn: 32, stages: 3, ..GemmConfig::default() };
    let configs = [
        small,
        GemmConfig { dtype: DType::BF16, bm: 32, bn: 64, bk: 64, kk: 32, results: Path::Direct, ..small },
        GemmConfig { bm: 96, bn: 48, bk: 32, kk: 32, stages: 2, ..small },
        GemmConfig { bm: 16, bn: 64, bk: 64, kk: 64, stages: 5, ..small },
    ];
    for config in configs {
        for size in gemm::edge_sizes(&config) {
            check_gemm(&config, Arch::SM_80, size);
        }
    }
}

/// `l` products of a configuration: interpreter and simulator agree with plain loops, by the reference of `gemm_hopper`.
fn check_products(config: &GemmConfig, arch: Arch, [l, m, n, k]: [i64; 4]) -> Report {
    let GemmConfig { dtype, a, b, batch, epilogue, .. } = *config;
    let out = config.result();
    let like = HopperGemmConfig { out: Some(out), a, b, batch, epilogue, ..HopperGemmConfig::default() };
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let mut draw = |dtype: DType, len: i64| random(&mut rng, dtype, len);
    let (a, b) = (draw(dtype, l * m * k), draw(dtype, l * n * k));
    let inputs = Inputs {
        alpha: 0.75,
        row_scale: draw(DType::F32, l * m),
        col_scale: draw(DType::F32, l * n),
        bias: draw(out, if out == DType::I32 { 0 } else { l * n }),
        residual: draw(out, if epilogue.has(Part::Residual) { l * m * n } else { 0 }),
        beta: -0.5,
        c: draw(out, if epilogue.has(Part::Beta) { l * m * n } else { 0 }),
        ..Inputs::default()
    };
    let sizes = [l, m, n, k].map(|size| size as usize);
    let [products, rows, columns, _] = sizes;
    let sums = gemm_hopper::sums(&like, &a, &b, &[], sizes);
    let magnitudes = gemm_hopper::sums(&like, &absolute(&a), &absolute(&b), &[], sizes);
    let exact = gemm_hopper::finish(&like, &inputs, &sums, &[], [products, rows, columns]);
    // Errors of a product of two elements, and of the sums; integers are exact, but for their epilogue.
    let (of_product, of_sums, of_function) = match (dtype, config.precision) {
        (DType::F32, Precision::Tf32) => (2f64.powi(-9), 2f64.powi(-23), 2f64.powi(-10)),
        (DType::F32, Precision::Tf32x3) => (2f64.powi(-20), 2f64.powi(-23), 2f64.powi(-10)),
        (DType::F64, _) => (0.0, 2f64.powi(-52), 2f64.powi(-40)),
        (_, _) if out == DType::I32 => (0.0, 0.0, 0.0),
        (_, _) if dtype.range().is_some() => (0.0, 2f64.powi(-24) / k as f64, 2f64.powi(-10)),
        (_, _) => (0.0, 2f64.powi(-23), 2f64.powi(-10)),
    };
    let of_function = if epilogue.is_empty() { 0.0 } else { of_function };
    let unrounded: Vec<f64> = (exact.iter().zip(&sums).zip(&magnitudes))
        .map(|((v, sum), size)| {
            let inner = size * (of_product + (k + 8) as f64 * of_sums);
            1.13 * inner + (v.abs() + sum.abs() + 2.0) * of_function
        })
        .collect();
    let bound: Vec<f64> =
        exact.iter().zip(&unrounded).map(|(v, inner)| inner + (v.abs() + inner) * out.epsilon()).collect();

    let programs = config.programs().unwrap();
    let given = [
        ("a", a),
        ("b", b),
        ("row_scale", inputs.row_scale.clone()),
        ("col_scale", inputs.col_scale.clone()),
        ("bias", inputs.bias.clone()),
        ("residual", inputs.residual.clone()),
        ("row_sums", vec![1.0; products * rows]),
        ("col_sums", vec![1.0; products * columns]),
    ];
    let mut given: Tensors = given.map(|(name, values)| (name.to_string(), values)).into();
    if epilogue.has(Part::Beta) {
        given.insert("c".to_string(), inputs.c.clone());
    }
    given.retain(|name, _| programs.iter().any(|p| p.params.iter().any(|param| param.name == *name)));
    let mut launched = vec![("m", m), ("n", n), ("k", k)];
    launched.extend((batch != Batch::None).then_some(("l", l)));
    if batch == Batch::Strided {
        launched.extend([("step_a", m * k), ("step_b", n * k), ("step_c", m * n)]);
    }
    let launch = Launch {
        programs: &programs,
        sizes: &launched,
        scalars: &[("alpha", inputs.alpha), ("beta", inputs.beta)],
    };
    let (simulated, interpreted, mut reports) = launch.run(arch, &[k as u64], &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {:?} of {config:?}", [l, m, n, k]);
        close(&at, &results["c"], &exact, &bound);
        for (part, count, over) in
            [(Part::RowSums, products * rows, n), (Part::ColSums, products * columns, m)]
        {
            if !epilogue.has(part) {
                continue;
            }
            let (mut total, mut within) = (vec![1.0; count], vec![1e-5 * over as f64; count]);
            for (i, (v, bound)) in exact.iter().zip(&unrounded).enumerate() {
                let place = match part {
                    Part::RowSums => i / columns,
                    _ => i / (rows * columns) * columns + i % columns,
                };
                total[place] += v;
                within[place] += bound + v.abs() * 1e-6 * over as f64;
            }
            close(&format!("{} of {at}", part.name()), &results[part.name()], &total, &within);
        }
    }
    reports.remove(0)
}

/// Small tiles of a type, with 64 bytes in a stage.
fn small_gemm(dtype: DType) -> GemmConfig {
    let in_bytes = |bytes: i64| 8 * bytes / i64::from(dtype.bits());
    GemmConfig {
        dtype,
        bm: 32,
        bn: 32,
        bk: in_bytes(64),
        kk: in_bytes(32),
        stages: 3,
        threads: 64,
        ..GemmConfig::default()
    }
}

/// A small tile of every type that is multiplied without scales; `scaled.rs` has those with.
fn small_gemms() -> impl Iterator<Item = GemmConfig> {
    GemmConfig::FACTORS.into_iter().filter(|dtype| *dtype != DType::E2M1).map(small_gemm)
}

/// The first of these architectures that has what a configuration needs.
fn least(config: &GemmConfig) -> Arch {
    let found =
        [Arch::SM_80, Arch::SM_89, Arch::SM_120A].into_iter().find(|arch| config.reject(*arch).is_none());
    found.unwrap_or_else(|| panic!("{config:?} is for no architecture"))
}

#[test]
fn gemm_has_every_type() {
    for small in small_gemms() {
        let (dtype, arch) = (small.dtype, least(&small));
        let later = if small.reject(Arch::SM_90A).is_some() { arch } else { Arch::SM_90A };
        check_products(&small, arch, [1, 33, 31, small.bk + 1]);
        let direct = GemmConfig { results: Path::Direct, ..small };
        check_products(&direct, later, [1, 16, 40, 2 * small.bk]);
        let report = check_products(&small, arch, [1, 32, 64, 2 * small.bk]);
        assert_eq!(report.shared_conflicts, 0, "{dtype}");
        let transposed = GemmConfig { a: Major::Mn, b: Major::Mn, ..small };
        check_products(&transposed, arch, [1, 40, 24, small.bk + 3]);
        for [m, n, k] in gemm::edge_sizes(&small).into_iter().filter(|_| nightly()) {
            check_products(&small, arch, [1, m, n, k]);
            check_products(&transposed, later, [1, m, n, k]);
        }
    }
    let exact = GemmConfig { precision: Precision::Tf32x3, ..small_gemm(DType::F32) };
    check_products(&exact, Arch::SM_80, [1, 33, 31, 100]);
    for dtype in [DType::I4, DType::U4] {
        let wide = GemmConfig { widen: true, ..small_gemm(dtype) };
        check_products(&wide, Arch::SM_90A, [1, 33, 31, wide.bk + 1]);
        let report = check_products(&wide, Arch::SM_90A, [1, 32, 64, 2 * wide.bk]);
        assert_eq!(report.shared_conflicts, 0, "{dtype}");
    }
}

/// Tensor copies by a warpgroup of their own, products by `mma.sync`: what Blackwell without `tcgen05` has, and Hopper too.
#[test]
fn products_loaded_by_tensor_copies_are_right() {
    let loaded = |dtype| GemmConfig { bm: 64, threads: 128, loads: Loads::Tma, ..small_gemm(dtype) };
    let epilogue = "alpha+bias+gelu".parse().unwrap();
    let half = loaded(DType::F16);
    for (config, arch, sizes) in [
        (half, Arch::SM_120A, [1, 70, 31, 2 * half.bk + 8]),
        // Rows that begin anywhere are copied by the role's threads.
        (half, Arch::SM_120A, [1, 65, 33, half.bk + 1]),
        (loaded(DType::E4M3), Arch::SM_120A, [1, 65, 33, 208]),
        (GemmConfig { split: 2, results: Path::Direct, ..half }, Arch::SM_90A, [1, 65, 40, 3 * half.bk]),
        (
            GemmConfig { batch: Batch::Packed, epilogue, ..loaded(DType::BF16) },
            Arch::SM_100A,
            [2, 33, 72, 72],
        ),
    ] {
        check_products(&config, arch, sizes);
    }
    let report = check_products(&half, Arch::SM_120A, [1, 64, 64, 4 * half.bk]);
    assert_eq!(report.shared_conflicts, 0);
    let kernel = kernel_for(&half.program().unwrap(), Arch::SM_120A, [1024; 3]);
    for instruction in ["cp.async.bulk.tensor.2d.shared::cta", "mbarrier.try_wait", "mma.sync"] {
        assert!(kernel.ptx.contains(instruction), "{instruction}");
    }
    // What 256 threads have at entry is enough for these fragments.
    for instruction in ["cp.async.c", "wgmma", "setmaxnreg"] {
        assert!(!kernel.ptx.contains(instruction), "{instruction}");
    }
    if let Some(ptxas) = ptxas() {
        assert_eq!(assemble(&ptxas, "loads", &kernel, Arch::SM_120A), 0, "it spills");
    }
    let refused = |config: GemmConfig| config.validate().unwrap_err().to_string();
    assert!(half.reject(Arch::SM_89).unwrap().contains("transaction barriers, TMA"));
    assert!(refused(GemmConfig { threads: 96, ..half }).contains("a multiple of 128"));
    assert!(refused(GemmConfig { a: Major::Mn, ..half }).contains("a=k and b=k"));
    assert!(refused(GemmConfig { loads: Loads::Tma, ..small_gemm(DType::U4) }).contains("no whole bytes"));
}

#[test]
fn factors_of_4_bits_are_cast_where_tensor_cores_have_8() {
    let chosen = |arch: Arch| {
        let sizes =
            [("m", 4096), ("n", 4096), ("k", 4096)].map(|(name, size)| (name.to_string(), size)).into();
        let tuning = operator("gemm").unwrap().tuning.unwrap();
        let space = (tuning.space)(arch.into(), &sizes, &[("dtype", "i4")]).unwrap();
        space.points[0].parameters.iter().any(|(name, value)| *name == "widen" && value == "true")
    };
    // Tensor cores since Hopper have none.
    assert_eq!(Arch::ALL.map(chosen), Arch::ALL.map(|arch| arch.spec().capability >= (9, 0)));
}

#[test]
fn three_products_of_tf32_are_nearly_as_exact_as_f32() {
    let [m, n, k] = [32, 32, 1024];
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (a, b) = (random(&mut rng, DType::F32, m * k), random(&mut rng, DType::F32, n * k));
    let exact = gemm::reference(&a, &b, n as usize, k as usize);
    let error = |c: &[f64]| {
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        norm(&mut c.iter().zip(&exact).map(|(x, y)| x - y)) / norm(&mut exact.iter().copied())
    };
    let single = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0f32, |sum, (x, y)| sum + (x * y) as f32);
    let rows = |of: &[f64]| of.chunks(k as usize).map(<[f64]>::to_vec).collect::<Vec<_>>();
    let plain: Vec<f64> = rows(&a)
        .iter()
        .flat_map(|x| rows(&b).iter().map(|y| f64::from(single(x, y))).collect::<Vec<_>>())
        .collect();
    let by = |precision: Precision| {
        let config = GemmConfig { precision, ..small_gemm(DType::F32) };
        let given = [("a".to_string(), a.clone()), ("b".to_string(), b.clone())].into();
        let sizes = [("m", m), ("n", n), ("k", k)];
        let launch = Launch { programs: &config.programs().unwrap(), sizes: &sizes, scalars: &[] };
        error(&launch.run(Arch::SM_80, &[1], &given).0["c"])
    };
    let [one, three, f32] = [by(Precision::Tf32), by(Precision::Tf32x3), error(&plain)];
    assert!(
        three < 2.0 * f32 && one > 100.0 * f32 && one < 2e-3,
        "tf32 {one:e}, tf32x3 {three:e}, f32 {f32:e}"
    );
}

#[test]
fn gemm_has_batches_parts_and_epilogues() {
    let epilogue = |text: &str| text.parse::<Epilogue>().unwrap();
    let [half, single, double, byte, nibble, bit] =
        [DType::F16, DType::F32, DType::F64, DType::I8, DType::I4, DType::U1].map(small_gemm);
    let configs = [
        GemmConfig { batch: Batch::Packed, epilogue: epilogue("alpha+bias+gelu+residual"), ..half },
        GemmConfig {
            batch: Batch::Strided,
            epilogue: epilogue("row_scale+col_scale+silu"),
            a: Major::Mn,
            ..half
        },
        GemmConfig { batch: Batch::Packed, epilogue: epilogue("row_sums+col_sums"), ..single },
        GemmConfig { batch: Batch::Pointers, b: Major::Mn, epilogue: epilogue("alpha+beta+bias"), ..half },
        GemmConfig { epilogue: epilogue("alpha+bias+relu+residual+row_sums"), ..double },
        GemmConfig { epilogue: epilogue("row_scale+col_scale+bias"), out: Some(DType::BF16), ..byte },
        GemmConfig { split: 3, epilogue: epilogue("bias+relu"), results: Path::Direct, ..half },
        GemmConfig { split: 2, ..byte },
        GemmConfig { split: 2, epilogue: epilogue("row_sums"), out: Some(DType::F32), ..byte },
        GemmConfig { epilogue: epilogue("row_scale+col_scale+bias"), out: Some(DType::F16), ..nibble },
        GemmConfig { batch: Batch::Packed, ..nibble },
        GemmConfig { split: 2, epilogue: epilogue("alpha+relu"), out: Some(DType::F32), ..bit },
        GemmConfig { split: 9, epilogue: epilogue("bias+residual"), ..double },
        GemmConfig { batch: Batch::Strided, epilogue: epilogue("alpha+beta+relu"), ..half },
        GemmConfig { split: 2, epilogue: epilogue("beta"), ..single },
    ];
    for config in configs {
        let l = if config.batch == Batch::None { 1 } else { 3 };
        check_products(&config, Arch::SM_80, [l, 35, 33, 4 * config.bk + 1]);
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
        W4A16Config { weights: Way::Direct, ..small },
        W4A16Config { group: Some(128), kk: 64, bk: 64, bn: 96, ..small },
        // Several groups of a stage, of two parts each.
        W4A16Config { bk: 192, stages: 2, zeros: true, ..small },
        W4A16Config { weights: Way::Cast, bk: 128, zeros: true, ..small },
    ];
    for config in configs {
        for size in w4a16::edge_sizes(&config) {
            check_w4a16(&config, Arch::SM_80, size);
        }
    }
}

#[test]
fn w4a16_of_experts_is_right() {
    let small = W4A16Config {
        batch: Batch::Ragged,
        bn: 32,
        bk: 64,
        kk: 32,
        stages: 3,
        group: Some(64),
        ..W4A16Config::default()
    };
    check_experts(&W4A16Config { gather: true, ..small }, &[17, 0, 5, 16], [40, 136]);
    check_experts(&W4A16Config { zeros: true, weights: Way::Cast, stages: 2, ..small }, &[3, 20], [72, 100]);
    check_experts(&W4A16Config { bk: 128, weights: Way::Direct, gather: true, ..small }, &[1, 1], [33, 64]);
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
fn ptxas_needs_no_spills_for_any_type() {
    let Some(ptxas) = ptxas() else { return };
    let whole = |small| GemmConfig { bm: 64, bn: 64, threads: 128, ..small };
    let tile = |dtype| whole(small_gemm(dtype));
    let exact = GemmConfig { precision: Precision::Tf32x3, ..tile(DType::F32) };
    let residual = "alpha+bias+gelu+residual".parse().unwrap();
    let added = GemmConfig { epilogue: residual, batch: Batch::Packed, ..tile(DType::BF16) };
    let wide = GemmConfig { widen: true, ..tile(DType::I4) };
    let configs = small_gemms().map(whole).chain([exact, added, wide]);
    for (turn, config) in configs.enumerate().filter(|(turn, _)| in_turn(*turn, 2)) {
        let arch = least(&config);
        let kernel = kernel_for(&config.program().unwrap(), arch, [1024, 1024, 1024]);
        assert_eq!(assemble(&ptxas, &format!("gemm-{turn}"), &kernel, arch), 0, "{config:?} spills");
    }
}

#[test]
fn programs_print_and_parse_back() {
    for operator in OPERATORS {
        assert!(operator.least_architecture().has(operator.needs), "{}", operator.name);
    }
    for operator in built_in_rust() {
        let staged = (operator.parameters)().iter().any(|parameter| parameter.name == "stages");
        // Three stages, or two where the default tile leaves no room for more.
        let some: &[&[(&str, &str)]] =
            if staged { &[&[("stages", "3")], &[("stages", "2")]] } else { &[&[]] };
        let fits = some.iter().find_map(|given| (operator.programs)(given).ok());
        let program = fits.unwrap_or_else(|| panic!("{} has no program", operator.name)).remove(0);
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
    let left_out = GemmConfig::grid().filter(|c| c.split == 1 && c.reject(Arch::SM_80).is_some()).count();
    // Parts of k are for few tiles, of which there are many here.
    assert!(gemms.iter().all(|c| c.split == 1));
    let whole = |c: &GemmConfig| c.split == 1;
    assert_eq!(GemmConfig::grid().filter(whole).count(), gemms.len() + left_out);
    assert!(GemmConfig::space(Arch::SM_80, 256, 256, 8192).any(|c| c.split == 8));
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
    says(GemmConfig { dtype: DType::I16, ..default }, "dtype", "f64, i8, u8, i4, u4, u1, e4m3, e5m2");
    says(GemmConfig { dtype: DType::I8, ..default }, "kk", "32, 64 or 128");
    says(GemmConfig { dtype: DType::U4, ..default }, "kk", "64, 128 or 256");
    says(GemmConfig { dtype: DType::U1, ..default }, "kk", "256, 512 or 1024");
    says(GemmConfig { dtype: DType::U1, kk: 256, ..default }, "bk", "multiple of 256");
    says(GemmConfig { dtype: DType::I4, out: Some(DType::F64), ..default }, "out", "sums of i4 are i32");
    says(GemmConfig { widen: true, ..default }, "widen", "dtype=f16");
    says(GemmConfig { out: Some(DType::F64), ..default }, "out", "sums of f16 are f32");
    says(GemmConfig { out: Some(DType::I32), ..default }, "out", "f32, f16, bf16");
    says(GemmConfig { precision: Precision::Tf32x3, ..default }, "precision", "dtype=f16");
    says(GemmConfig { batch: Batch::Grouped, ..default }, "batch", "packed, strided or pointers");
    says(GemmConfig { batch: Batch::Packed, split: 2, ..default }, "split", "one product");
    says(GemmConfig { split: 65, ..default }, "split", "64");
    let bytes = GemmConfig { kk: 32, bk: 64, ..default };
    let biased = Epilogue::new(&[Part::Bias]).unwrap();
    says(GemmConfig { dtype: DType::U8, epilogue: biased, ..bytes }, "epilogue", "out must be f16");
    let eighth = GemmConfig { dtype: DType::E4M3, ..bytes };
    assert!(eighth.reject(Arch::SM_80).is_some_and(|r| r.contains("FP8 products") && r.contains("sm_80")));
    assert_eq!(eighth.reject(Arch::SM_89), None);
    let added = Epilogue::new(&[Part::Residual]).unwrap();
    says(GemmConfig { epilogue: added, ..default }, "bm", "more threads");
    assert!(GemmConfig { epilogue: added, threads: 256, ..default }.program().is_ok());
    let old = (operator("gemm").unwrap().programs)(&[("epilogue", "direct")]);
    assert!(old.is_err_and(|e| e.to_string().contains("results=direct")));
    let deep = GemmConfig { stages: 11, ..default };
    assert!(deep.reject(Arch::SM_80).is_some_and(|r| r.contains("fewer stages")));
    assert_eq!(deep.reject(Arch::SM_90A), None);
    let uneven = W4A16Config { group: Some(96), ..W4A16Config::default() };
    assert!(uneven.program().is_err_and(|e| e.to_string().contains("multiple of bk = 128")));
    let several = W4A16Config { batch: Batch::Grouped, ..W4A16Config::default() };
    assert!(several.program().is_err_and(|e| e.to_string().contains("must be none or ragged")));
    let gathered = W4A16Config { gather: true, ..W4A16Config::default() };
    assert!(gathered.program().is_err_and(|e| e.to_string().contains("needs batch=ragged")));
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
    // The programs of attention and of layers of experts are texts, whose lines messages name.
    let texts = ["attention", "moe_"];
    for operator in
        built_in_rust().filter(|operator| !texts.iter().any(|text| operator.name.starts_with(text)))
    {
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
    assert!(errors.to_string().contains("--> crates/kernels/src/gemm/mainloop.rs:"), "{errors}");
}

#[test]
fn counts_of_nothing_are_refused_ahead_of_an_estimate() {
    let sizes_of = |name: &str| {
        let tuning = operator(name).unwrap().tuning.unwrap();
        tuning.sizes.iter().map(|(size, _)| (size.to_string(), 256)).collect()
    };
    for (name, field) in [
        ("attention_decode", "d"),
        ("attention_decode", "rows"),
        ("attention_sm80", "d"),
        ("attention_sm80", "warps"),
        ("conv_hopper", "groups"),
        ("conv_hopper", "stride"),
        ("gemm", "bm"),
        ("gemm", "bk"),
        ("gemm_hopper", "split"),
        ("gemm_hopper", "chunk"),
        ("gemm_hopper", "sm_count"),
        ("gemm_hopper", "warpgroups"),
        ("gemm_weights", "blocks"),
        ("gemm_weights", "group"),
        ("gemm_fp8_blocks", "part"),
    ] {
        let space = operator(name).unwrap().tuning.unwrap().space;
        let said = space(Arch::SM_90A.into(), &sizes_of(name), &[(field, "0")]).err().unwrap().to_string();
        assert_eq!(said, format!("`{field}` = 0: must be at least 1"), "{name}");
    }
    // Fewer blocks than a cluster has: without clusters there are configurations.
    let space = operator("gemm_hopper").unwrap().tuning.unwrap().space;
    assert!(
        !space(Arch::SM_90A.into(), &sizes_of("gemm_hopper"), &[("sm_count", "1")])
            .unwrap()
            .points
            .is_empty()
    );
    // One stage is no pipeline: the point takes forever, and is in no space.
    let tuning = operator("attention_decode").unwrap().tuning.unwrap();
    let point = (tuning.point)(Arch::SM_90A.into(), &sizes_of("attention_decode"), &[("stages", "1")]);
    assert!(point.unwrap().estimate.is_infinite());
}
