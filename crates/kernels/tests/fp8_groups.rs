//! `gemm_fp8_blocks` by groups of rows, padded or not, with rows that lie anywhere or not, and with experts that have room for more rows than they have: at edge
//! sizes in all executions, registers, and what is refused.

use crate::common::{Launch, Tensors, absolute, assemble, bounds, close, in_turn, kernel_for, ptxas, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::ConfigError;
use tilewright_kernels::gemm_fp8_blocks::{self, BLOCK, Fp8BlocksConfig};
use tilewright_kernels::gemm_hopper::{Batch, Cluster, Rasterization};
use tilewright_machine::{Arch, DType};

/// One math warpgroup, 64 × 64 tiles and four blocks.
fn small() -> Fp8BlocksConfig {
    Fp8BlocksConfig {
        bm: 64,
        bn: 64,
        stages: 2,
        warpgroups: 1,
        cluster: Cluster::None,
        rasterization: Rasterization::Grouped(2),
        sm_count: 4,
        batch: Batch::Ragged,
        ..Fp8BlocksConfig::default()
    }
}

fn configs() -> Vec<Fp8BlocksConfig> {
    let small = small();
    let gather = Fp8BlocksConfig { gather: true, load_registers: 104, ..small };
    vec![
        small,
        Fp8BlocksConfig { batch: Batch::Grouped, overlap_epilogue: false, ..small },
        Fp8BlocksConfig { swap: true, bn: 16, ..small },
        Fp8BlocksConfig {
            batch: Batch::Grouped,
            swap: true,
            bn: 32,
            part: Some(16),
            out: DType::F32,
            ..small
        },
        Fp8BlocksConfig { part: Some(16), bn: 48, cluster: Cluster::AlongN(2), ..small },
        gather,
        Fp8BlocksConfig { batch: Batch::Grouped, ..gather },
        Fp8BlocksConfig { swap: true, bn: 32, part: Some(16), overlap_epilogue: false, ..gather },
        Fp8BlocksConfig { swap: true, bn: 8, dependent: true, ..gather },
        Fp8BlocksConfig { batch: Batch::None, cluster: Cluster::AlongM(2), ..gather },
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

/// Groups with these rows, each of which has room for so many rows, or as many as it has.
fn tables(config: &Fp8BlocksConfig, counts: &[i64], room: Option<i64>) -> Tables {
    let tile = if config.swap { config.bn } else { config.bm };
    let padded = config.batch == Batch::Grouped;
    // Unused tiles stand first and last.
    let mut tables = Tables { groups: vec![], first: vec![], ends: vec![], of_row: vec![] };
    for (group, count) in counts.iter().enumerate() {
        let begin = tables.of_row.len() as i64;
        tables.of_row.extend((0..*count).map(|_| Some(group)));
        tables.ends.push(begin + count);
        let all = match room {
            Some(room) => room,
            None if padded => (count + tile - 1) / tile * tile,
            None => *count,
        };
        for row in (0..if room.is_some() { all } else { *count }).step_by(tile as usize) {
            tables.groups.push(group as i64);
            tables.first.push(begin + row);
        }
        // Rows of padding are multiplied as those of their group.
        tables.of_row.extend((*count..all).map(|_| padded.then_some(group)));
    }
    if !padded {
        tables.groups.push(-1);
        tables.first.push(0);
    }
    tables
}

fn check(config: &Fp8BlocksConfig, counts: &[i64], room: Option<i64>, [n, k]: [i64; 2], seeds: &[u64]) {
    let mut rng = ChaCha8Rng::seed_from_u64((n * 3 + k) as u64);
    let Tables { groups, first, ends, of_row } = tables(config, counts, room);
    let (m, g) = (of_row.len() as i64, counts.len() as i64);
    let grouped = config.batch != Batch::None;
    let matrices = if grouped { g } else { 1 };
    let (deep, wide) = ((k + BLOCK - 1) / BLOCK, (n + BLOCK - 1) / BLOCK);
    // Of rows that lie anywhere there are fewer, and some of those of C are of zeros.
    let r = if config.gather { m / 2 + 1 } else { m };
    let rows: Vec<i64> = match config.gather {
        true => (0..m).map(|row| if row % 5 == 3 { -1 } else { (row * 7 + 2) % r }).collect(),
        false => (0..m).collect(),
    };
    let a = random(&mut rng, config.a, r * k);
    let b = random(&mut rng, config.b, matrices * n * k);
    let sa = random(&mut rng, DType::F32, deep * r);
    let sb = random(&mut rng, DType::F32, matrices * wide * deep);
    let product = |f: &dyn Fn(&[f64]) -> Vec<f64>| -> Vec<f64> {
        let row = |i: usize| {
            let (Ok(row), Some(group)) = (usize::try_from(rows[i]), of_row[i]) else {
                return vec![0.0; n as usize];
            };
            let group = if grouped { group } else { 0 };
            let a = f(&a[row * k as usize..][..k as usize]);
            let b = f(&b[group * (n * k) as usize..][..(n * k) as usize]);
            let sa: Vec<f64> = (0..deep).map(|l| sa[(l * r) as usize + row]).collect();
            let sb = f(&sb[group * (wide * deep) as usize..][..(wide * deep) as usize]);
            gemm_fp8_blocks::reference((&a, &b), (&f(&sa), &sb), [1, n as usize, k as usize])
        };
        (0..m as usize).flat_map(row).collect()
    };
    let exact = product(&<[f64]>::to_vec);
    let bound = bounds(config.out, 0.0, k, &exact, &product(&absolute));
    let floats = |numbers: &[i64]| numbers.iter().map(|number| *number as f64).collect::<Vec<f64>>();
    let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let mut given: Tensors = [
        ("a", a.clone()),
        ("b", b.clone()),
        ("sa", sa.clone()),
        ("sb", sb.clone()),
        ("rows", floats(&rows)),
        ("groups", floats(&groups)),
        ("first", floats(&first)),
        ("ends", floats(&ends)),
    ]
    .map(|(name, values)| (name.to_string(), values))
    .into();
    given.retain(|name, _| program.params.iter().any(|param| param.name == *name));
    let sizes = [("m", m), ("n", n), ("k", k), ("g", g), ("t", groups.len() as i64), ("r", r)];
    let programs = [program];
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {counts:?}, {n} × {k}, of {config:?}");
        let mut c = results["c"].clone();
        for (row, _) in
            of_row.iter().enumerate().filter(|(_, group)| config.batch == Batch::Ragged && group.is_none())
        {
            let c = &mut c[row * n as usize..][..n as usize];
            assert!(c.iter().all(|x| x.is_nan()), "row {row} of {at}");
            c.fill(0.0);
        }
        close(&at, &c, &exact, &bound);
    }
}

#[test]
fn groups_of_rows_are_right_at_edges() {
    for (i, config) in configs().into_iter().enumerate() {
        let size = [[72, 136], [130, 264], [1, 1]][i % 3];
        check(&config, &[0, 5, 70, 1], None, size, &[1]);
    }
    for config in [0, 5, 7].map(|i| configs()[i]) {
        check(&config, &[3, 65], None, [200, 400], &[1, 2, 3]);
    }
}

/// Experts whose rows lie in rooms of the same size: what lies behind the rows that there are is neither multiplied nor written.
#[test]
fn rooms_of_groups_are_masked() {
    let config = small();
    check(&config, &[0, 5, 70, 128], Some(128), [72, 136], &[1, 2]);
    check(&Fp8BlocksConfig { swap: true, bn: 16, ..config }, &[20, 0, 1], Some(32), [72, 264], &[1]);
}

#[test]
fn nothing_spills() {
    let Some(ptxas) = ptxas() else { return };
    let many = Fp8BlocksConfig {
        batch: Batch::Ragged,
        cluster: Cluster::None,
        load_registers: 40,
        math_registers: 216,
        ..Fp8BlocksConfig::default()
    };
    let gather = Fp8BlocksConfig { gather: true, load_registers: 72, overlap_epilogue: false, ..many };
    let few = Fp8BlocksConfig { swap: true, bm: 64, bn: 16, warpgroups: 1, stages: 10, ..gather };
    for (i, config) in [many, gather, few].into_iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 4096, 7168]);
        assert!(!config.gather || kernel.ptx.contains("cp.async.cg"), "{config:?}");
        if !in_turn(i + 1, 2) {
            continue;
        }
        assert_eq!(assemble(&ptxas, &format!("fp8_groups_{i}"), &kernel, Arch::SM_90A), 0, "{config:?}");
    }
}

#[test]
fn mistakes_about_groups_name_the_field_and_what_would_be_right() {
    let says = |config: Fp8BlocksConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let default = Fp8BlocksConfig::default();
    says(Fp8BlocksConfig { batch: Batch::Packed, ..default }, "batch", "none, grouped or ragged");
    says(Fp8BlocksConfig { batch: Batch::Grouped, ..default }, "cluster", "different groups");
    let gather = Fp8BlocksConfig { batch: Batch::Ragged, cluster: Cluster::None, gather: true, ..default };
    says(gather, "load_registers", "at least 64 with gather=true");
    says(Fp8BlocksConfig { cluster: Cluster::AlongN(2), load_registers: 64, ..gather }, "gather", "along m");
}
