//! `gemm_weights` by groups of rows, padded or not, with rows that lie anywhere or not: at edge sizes in all executions, registers, and what is refused.

use crate::common::{Launch, Tensors, absolute, assemble, bounds, close, in_turn, kernel_for, ptxas, random};
use crate::weights::target;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::ConfigError;
use tilewright_kernels::gemm_weights::{self, Batch, Cluster, Factors, Scaled, Schedule, WeightsConfig};
use tilewright_machine::{Arch, DType};

/// One math warpgroup, 64 × 16 tiles and four blocks.
fn small() -> WeightsConfig {
    WeightsConfig {
        bm: 64,
        stages: 3,
        warpgroups: 1,
        schedule: Schedule::DataParallel,
        sm_count: 4,
        batch: Batch::Ragged,
        ..WeightsConfig::default()
    }
}

fn configs() -> Vec<WeightsConfig> {
    let small = small();
    let gather = WeightsConfig { gather: true, load_registers: 56, ..small };
    vec![
        small,
        WeightsConfig { batch: Batch::Grouped, group: Some(64), bk: 192, overlap_epilogue: true, ..small },
        WeightsConfig { bm: 128, warpgroups: 2, cluster: Cluster::AlongN(2), ..small },
        WeightsConfig { group: None, weights: DType::U8, zeros: true, scale: Some(DType::F32), ..small },
        gather,
        WeightsConfig { batch: Batch::Grouped, zeros: true, weights: DType::U4, bn: 32, ..gather },
        WeightsConfig { scaled: Scaled::Weights, bk: 64, dtype: DType::BF16, dependent: true, ..gather },
        WeightsConfig { cluster: Cluster::AlongK(2), group: None, weights: DType::E4M3, bn: 8, ..gather },
        WeightsConfig {
            weights: DType::E2M1,
            scale: Some(DType::UE8M0),
            group: Some(32),
            part: 32,
            ..gather
        },
        WeightsConfig { batch: Batch::None, bn: 24, ..gather },
    ]
}

/// The rows of groups.
struct Tables {
    /// The group of each tile, its first row, and the row behind each group's last.
    groups: Vec<i64>,
    first: Vec<i64>,
    ends: Vec<i64>,
    /// The group of each row; `None`: of none.
    of_row: Vec<Option<usize>>,
}

/// Groups with these rows.
fn tables(config: &WeightsConfig, counts: &[i64]) -> Tables {
    let padded = config.batch == Batch::Grouped;
    let mut tables = Tables { groups: vec![], first: vec![], ends: vec![], of_row: vec![] };
    for (group, count) in counts.iter().enumerate() {
        let begin = tables.of_row.len() as i64;
        tables.of_row.extend((0..*count).map(|_| Some(group)));
        tables.ends.push(begin + count);
        for row in (0..*count).step_by(config.bn as usize) {
            tables.groups.push(group as i64);
            tables.first.push(begin + row);
        }
        // Rows of padding are multiplied as those of their group.
        let all = if padded { (count + config.bn - 1) / config.bn * config.bn } else { *count };
        tables.of_row.extend((*count..all).map(|_| Some(group)));
    }
    if !padded {
        tables.groups.push(-1);
        tables.first.push(0);
    }
    tables
}

pub fn check(config: &WeightsConfig, counts: &[i64], [n, k]: [i64; 2], seeds: &[u64]) {
    let mut rng = ChaCha8Rng::seed_from_u64((n * 3 + k) as u64);
    let Tables { groups, first, ends, of_row } = tables(config, counts);
    let (m, g) = (of_row.len() as i64, counts.len() as i64);
    let grouped = config.batch != Batch::None;
    let matrices = if grouped { g } else { 1 };
    // Of rows that lie anywhere there are fewer, and some of those of C are of zeros.
    let r = if config.gather { m / 2 + 1 } else { m };
    let rows: Vec<i64> = match config.gather {
        true => (0..m).map(|row| if row % 5 == 3 { -1 } else { (row * 7 + 2) % r }).collect(),
        false => (0..m).collect(),
    };
    let stored = config.stored();
    let deep = config.group.map_or(1, |group| (k + group - 1) / group);
    let each = stored.count([n as usize, k as usize]);
    let a = random(&mut rng, config.dtype, r * k);
    let w = random(&mut rng, config.weights, matrices * each as i64);
    let scales = config.scales();
    // Scales have no sign.
    let s = absolute(&random(&mut rng, scales, matrices * deep * n));
    let s: Vec<f64> = s.iter().map(|x| scales.decode(scales.encode(x + 0.01))).collect();
    let z = random(&mut rng, DType::U4, if config.zeros { matrices * deep * n } else { 0 });
    let (group, vectors) = (config.group.map(|group| group as usize), (deep * n) as usize);
    let product = |f: &dyn Fn(&[f64]) -> Vec<f64>, sign: f64| -> Vec<f64> {
        let row = |i: usize| {
            let (Ok(row), Some(number)) = (usize::try_from(rows[i]), of_row[i]) else {
                return vec![0.0; n as usize];
            };
            let number = if grouped { number } else { 0 };
            let a = f(&a[row * k as usize..][..k as usize]);
            let w = f(&stored.unpack(&w[number * each..][..each], [n as usize, k as usize]));
            let of = |vector: &[f64]| {
                vector.get(number * vectors..).map_or(vec![], |v| v[..vectors.min(v.len())].to_vec())
            };
            let z: Vec<f64> = of(&z).iter().map(|z| sign * z).collect();
            gemm_weights::reference(
                Factors { a: &a, w: &w, s: &of(&s), z: &z },
                [1, n as usize, k as usize],
                group,
            )
        };
        (0..m as usize).flat_map(row).collect()
    };
    let exact = product(&<[f64]>::to_vec, 1.0);
    // Of a difference the magnitudes add up.
    let scaled = config.scaled == Scaled::Weights && config.group.is_some();
    let bound = bounds(config.dtype, if scaled { 2.0 } else { 0.0 }, k, &exact, &product(&absolute, -1.0));
    let floats = |numbers: &[i64]| numbers.iter().map(|number| *number as f64).collect::<Vec<f64>>();
    let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let mut given: Tensors = [
        ("a", a.clone()),
        ("w", w.clone()),
        ("s", s.clone()),
        ("z", z.clone()),
        ("rows", floats(&rows)),
        ("groups", floats(&groups)),
        ("first", floats(&first)),
        ("ends", floats(&ends)),
    ]
    .map(|(name, values)| (name.to_string(), values))
    .into();
    given.retain(|name, _| program.params.iter().any(|param| param.name == *name));
    let sizes = [("m", m), ("n", n), ("k", k), ("g", g), ("t", groups.len() as i64), ("r", r)];
    let sizes: Vec<(&str, i64)> = sizes
        .into_iter()
        .filter(|(name, _)| program.symbols.iter().any(|symbol| symbol.name == *name))
        .collect();
    let launch = Launch { programs: std::slice::from_ref(&program), sizes: &sizes, scalars: &[] };
    let (simulated, interpreted, _) = launch.run(target(config), seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        close(&format!("{who} at {counts:?} × {n} × {k} of {config:?}"), &results["c"], &exact, &bound);
    }
}

#[test]
fn products_by_groups_are_right_at_edges() {
    for (i, config) in configs().into_iter().enumerate() {
        check(&config, &[9, 0, 37], [72, 168], &[i as u64]);
        if in_turn(i, 3) {
            check(&config, &[1], [1, 1], &[1]);
            check(&config, &[17, 3, 16, 0], [72, 264], &[1, 2]);
        }
    }
}

/// Tiles of few rows and of many.
fn wide() -> Vec<WeightsConfig> {
    let few = WeightsConfig {
        batch: Batch::Ragged,
        gather: true,
        schedule: Schedule::DataParallel,
        load_registers: 56,
        math_registers: 224,
        ..WeightsConfig::default()
    };
    vec![
        WeightsConfig { bn: 8, stages: 16, ..few },
        WeightsConfig {
            bn: 128,
            scaled: Scaled::Weights,
            stages: 4,
            load_registers: 104,
            math_registers: 200,
            ..few
        },
    ]
}

#[test]
fn threads_copy_rows_in_whole_pieces_and_need_no_spills() {
    for (i, config) in wide().into_iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 4096, 4096]);
        let report = kernel.explanation.to_string();
        assert!(
            report
                .contains("cp.async.16, 16-byte global accesses, 16-byte shared accesses, 0 bank conflicts"),
            "{report}"
        );
        if let Some(ptxas) = ptxas().filter(|_| in_turn(i, 2)) {
            assert_eq!(
                assemble(&ptxas, &format!("weights_groups_{i}"), &kernel, Arch::SM_90A),
                0,
                "{config:?}"
            );
        }
    }
}

#[test]
fn mistakes_about_groups_name_the_field_and_what_would_be_right() {
    let says = |config: WeightsConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let groups = small();
    says(WeightsConfig { batch: Batch::Packed, ..groups }, "batch", "none, grouped or ragged");
    says(WeightsConfig { schedule: Schedule::StreamK, ..groups }, "schedule", "data_parallel");
    let two = WeightsConfig { bm: 128, warpgroups: 2, ..groups };
    says(WeightsConfig { cluster: Cluster::AlongM(2), ..two }, "cluster", "different groups");
    let gather = WeightsConfig { gather: true, ..two };
    says(gather, "load_registers", "with gather=true");
    says(WeightsConfig { cluster: Cluster::AlongN(2), ..gather }, "gather", "along m or along k");
    says(
        WeightsConfig { batch: Batch::None, schedule: Schedule::StreamK, ..gather },
        "schedule",
        "data_parallel",
    );
}
