//! The check of a product of `gemm_hopper`: interpreter, simulator and plain loops.

#![allow(dead_code)] // Each test binary uses some of it.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm_hopper::{
    self, Batch, Cluster, Dual, FillMode, Form, HopperGemmConfig, Inputs, Major, Part, Precision, Triangle,
};
use tilewright_machine::{Arch, DType};
use tilewright_sim::Report;

use crate::common::{Launch, Tensors, absolute, bounds, close, random};

/// Rows of A of each of `l` groups, by tile and by row.
pub struct Groups {
    /// The group of each tile.
    tiles: Vec<i64>,
    /// The first row of each tile.
    first: Vec<i64>,
    /// The row behind the last of each group.
    ends: Vec<i64>,
    /// The group of each row.
    groups: Vec<i64>,
}

impl Groups {
    /// Groups of any number of rows, none among them, with tiles of padding between them or rows of no group behind.
    pub fn new(config: &HopperGemmConfig, l: i64, m: i64) -> Groups {
        let rows = if config.swap { config.bn } else { config.bm };
        if config.batch != Batch::Ragged {
            let count = (m + rows - 1) / rows;
            let of = |t: i64| if t % 3 == 1 { -1 } else { t * (l - 1).max(1) / count };
            let tiles: Vec<i64> = (0..count).map(of).collect();
            let groups = (0..m).map(|row| tiles[(row / rows) as usize]).collect();
            return Groups { tiles, first: Vec::new(), ends: Vec::new(), groups };
        }
        let owned = if m > 3 { m - 2 } else { m };
        let (mut tiles, mut first, mut groups) = (vec![-1], vec![0], vec![-1; m as usize]);
        let mut ends = Vec::new();
        for group in 0..l {
            let begin = ends.last().copied().unwrap_or(0);
            let end = if group == l - 1 { owned } else { owned * (group + 1) * (group + 1) / (l * l) };
            let end = if group % 4 == 1 && group < l - 1 { begin } else { end };
            for row in (begin..end).step_by(rows as usize) {
                tiles.push(group);
                first.push(row);
            }
            groups[begin as usize..end as usize].fill(group);
            ends.push(end);
        }
        tiles.push(-1);
        first.push(m - 1);
        Groups { tiles, first, ends, groups }
    }
}

/// Both matrices in one: rows behind rows, or of transposes lines of both side by side.
fn halves(config: &HopperGemmConfig, b: &[f64], up: &[f64], n: i64) -> Vec<f64> {
    if config.b == Major::K {
        return [b, up].concat();
    }
    let lines = |of: &[f64]| of.chunks(n as usize).map(<[f64]>::to_vec).collect::<Vec<_>>();
    lines(b).into_iter().zip(lines(up)).flat_map(|(b, up)| [b, up].concat()).collect()
}

/// Scales from 1/4 to 4.
pub fn scales(rng: &mut ChaCha8Rng, dtype: DType, count: i64) -> Vec<f64> {
    let drawn = random(rng, DType::F32, count);
    drawn.into_iter().map(|x| dtype.decode(dtype.encode((2.0 * x.clamp(-1.0, 1.0)).exp2()))).collect()
}

/// Factors of so many rows and columns whose elements are multiplied by the scales of their blocks.
pub fn scaled(
    factor: &[f64],
    scales: &[f64],
    (major, [rows, k]): (Major, [usize; 2]),
    block: usize,
) -> Vec<f64> {
    let of = |i: usize| {
        let (row, column) = match major {
            Major::K => (i / k, i % k),
            Major::Mn => (i / (rows * k) * rows + i % rows, i / rows % k),
        };
        scales[row * k.div_ceil(block) + column / block]
    };
    factor.iter().enumerate().map(|(i, x)| x * of(i)).collect()
}

/// The sums of the absolute values of the products of real numbers.
fn magnitudes(
    config: &HopperGemmConfig,
    a: &[f64],
    b: &[f64],
    groups: &[i64],
    sizes: [usize; 4],
) -> Vec<f64> {
    let real = HopperGemmConfig { conj_a: false, conj_b: false, ..*config };
    let mut sums = gemm_hopper::sums(&real, &absolute(a), &absolute(b), groups, sizes);
    if config.complex {
        // That of the real part is a difference: the sum of the conjugate's.
        let other = HopperGemmConfig { conj_b: true, ..real };
        let other = gemm_hopper::sums(&other, &absolute(a), &absolute(b), groups, sizes);
        sums.iter_mut().zip(other).step_by(2).for_each(|(sum, other)| *sum = other);
    }
    sums
}

/// The error of a product of two factors in f32, in roundings to f32.
fn roundings(config: &HopperGemmConfig) -> f64 {
    let bits = match (config.dtype, config.precision) {
        // Both factors are cut off behind 11 bits.
        (DType::F32, Precision::Tf32) => -9,
        // Each rest has 13 bits, of which 11 stay; the product of both is left out.
        (DType::F32, Precision::Tf32x3) => -20,
        (DType::F32, Precision::Bf16x6) => -25,
        _ => return 0.0,
    };
    f64::powi(2.0, bits) / DType::F32.epsilon()
}

/// Interpreter, simulator and a reference of plain loops agree on `l` products of a configuration, and on what its epilogue adds to
/// sums of rows and columns.
pub fn check(config: &HopperGemmConfig, [l, m, n, k]: [i64; 4], seeds: &[u64]) -> Report {
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let out = config.result();
    let mut draw = |dtype: DType, len: i64| random(&mut rng, dtype, len);
    // With groups there is one matrix A.
    let grouped = matches!(config.batch, Batch::Grouped | Batch::Ragged);
    let of_a = if grouped { 1 } else { l };
    // Numbers of an element, and of all columns of c.
    let numbers = if config.complex { 2 } else { 1 };
    let columns = numbers * n;
    let (mut a, mut b) =
        (draw(config.dtype, numbers * of_a * m * k), draw(config.right(), numbers * l * n * k));
    for (i, a) in a.iter_mut().enumerate().filter(|_| config.triangular != Triangle::None) {
        let i = i as i64 % (m * k);
        let (row, column) = if config.a == Major::K { (i / k, i % k) } else { (i % m, i / m) };
        let zero = match config.triangular {
            Triangle::None => false,
            Triangle::Lower => column > row,
            Triangle::Upper => column < row,
        };
        *a = if zero { 0.0 } else { *a };
    }
    if config.fill == FillMode::Symmetric {
        b.clone_from(&a);
    }
    // With rows that lie anywhere, those of A are fewer than those of C, and some are of zeros.
    let rows_there = m / 2 + 1;
    let rows: Vec<i64> =
        (0..m).map(|row| if row % 7 == 3 { -1 } else { (row * 13 + 5) % rows_there }).collect();
    let stored = a[..(if config.gather { rows_there * k } else { 0 }) as usize].to_vec();
    if config.gather {
        let row = |at: &i64| match usize::try_from(*at) {
            Ok(at) => stored[at * k as usize..][..k as usize].to_vec(),
            Err(_) => vec![0.0; k as usize],
        };
        a = rows.iter().flat_map(row).collect();
    }
    // Factors as they are stored, and scales of their blocks.
    let stored_factors = config.scales.map(|scale| {
        let block = if scale == DType::UE4M3 { 16 } else { 32 };
        let blocks = (k + block - 1) / block;
        let rows_of_a = if config.gather { rows_there } else { of_a * m };
        let [of_a, of_b] = [rows_of_a, l * n].map(|rows| scales(&mut rng, scale, rows * blocks));
        // Both factors are one matrix.
        let of_b = if config.fill == FillMode::Symmetric { of_a.clone() } else { of_b };
        let with = |factor: &mut Vec<f64>, scales: &[f64], (major, rows): (Major, i64)| {
            let values = scaled(factor, scales, (major, [rows as usize, k as usize]), block as usize);
            std::mem::replace(factor, values)
        };
        let row = |at: &i64| match usize::try_from(*at) {
            Ok(at) => of_a[at * blocks as usize..][..blocks as usize].to_vec(),
            Err(_) => vec![1.0; blocks as usize],
        };
        let gathered: Vec<f64> = match config.gather {
            true => rows.iter().flat_map(row).collect(),
            false => of_a.clone(),
        };
        let as_stored = with(&mut a, &gathered, (config.a, m));
        let a = if config.gather { stored.clone() } else { as_stored };
        [(a, of_a), (with(&mut b, &of_b, (config.b, n)), of_b)]
    });
    let mut draw = |dtype: DType, len: i64| random(&mut rng, dtype, len);
    let inputs = Inputs {
        alpha: 0.75,
        row_scale: draw(DType::F32, of_a * m),
        col_scale: draw(DType::F32, l * n),
        bias: draw(out, l * columns),
        residual: draw(out, of_a * m * columns),
        beta: -0.5,
        c: if config.epilogue.has(Part::Beta) { draw(out, of_a * m * columns) } else { Vec::new() },
        ..Inputs::default()
    };
    let mut inputs = inputs;
    if config.fill == FillMode::Symmetric {
        for values in [&mut inputs.residual, &mut inputs.c] {
            let given = values.clone();
            for (i, value) in values.iter_mut().enumerate() {
                let (of, row, column) = (i as i64 / (m * m), i as i64 / m % m, i as i64 % m);
                *value = given[(of * m * m + row.max(column) * m + row.min(column)) as usize];
            }
        }
    }
    let second = config.dual != Dual::None;
    let mut up = draw(config.right(), if second { l * n * k } else { 0 });
    let [gate_bias, up_bias] = [0, 1].map(|_| draw(out, if config.dual_bias { l * n } else { 0 }));
    // A second matrix as it is stored, and its scales.
    let stored_up = config.scales.filter(|_| second).map(|scale| {
        let block = if scale == DType::UE4M3 { 16 } else { 32 };
        let of_up = scales(&mut rng, scale, l * n * ((k + block - 1) / block));
        let values = scaled(&up, &of_up, (config.b, [n as usize, k as usize]), block as usize);
        (std::mem::replace(&mut up, values), of_up)
    });
    let inputs = Inputs { gate_bias, up_bias, ..inputs };
    let sizes = [l, m, n, k].map(|size| size as usize);
    let Groups { tiles, first, ends, groups } = Groups::new(config, l, m);
    let all = [sizes[0], sizes[1], sizes[2]];
    let of_rows = |a: &[f64]| gemm_hopper::row_sums(config, a, &groups, [sizes[0], sizes[1], sizes[3]]);
    let rows_of_a = (of_rows(&a), of_rows(&absolute(&a)));
    let product = |b: &[f64]| {
        let sums = gemm_hopper::sums(config, &a, b, &groups, sizes);
        let magnitudes = magnitudes(config, &a, b, &groups, sizes);
        let terms = numbers * config.precision.products().len() as i64;
        let inner = bounds(DType::F32, roundings(config), terms * k + 8, &sums, &magnitudes);
        (sums, inner)
    };
    let approximate = config.epilogue.has(Part::Gelu) || config.epilogue.has(Part::Silu);
    let rough = |approximate| if approximate { f64::powi(2.0, -10) } else { f64::powi(2.0, -22) };
    let (mut sums, mut inner) = product(&b);
    if second {
        let (others, beside) = product(&up);
        let combined = gemm_hopper::combined(config, &inputs, [&sums, &others], &groups, all);
        // No bias is above 1.
        let rough = rough(matches!(config.dual, Dual::GeluMul | Dual::SiluMul));
        let each = |i: usize| match config.dual {
            Dual::Add => inner[i] + beside[i],
            _ => {
                let (gate, up) = (sums[i].abs() + 1.0, others[i].abs() + 1.0);
                1.13 * inner[i] * up + gate * beside[i] + gate * up * rough
            }
        };
        inner = (0..sums.len()).map(each).collect();
        sums = combined;
    }
    let exact = gemm_hopper::finish(config, &inputs, &sums, &groups, all);
    // No scale is above 1, and no activation is steeper than 1.13; functions are approximated to 2⁻¹⁰.
    let rough = rough(approximate);
    let unrounded: Vec<f64> = exact
        .iter()
        .zip(&sums)
        .zip(&inner)
        .map(|((v, sum), inner)| {
            1.13 * inner + (v.abs() + sum.abs() + 2.0) * if config.epilogue.is_empty() { 0.0 } else { rough }
        })
        .collect();
    let bound: Vec<f64> = exact
        .iter()
        .zip(&unrounded)
        .map(|(v, inner)| inner + (v.abs() + inner) * out.epsilon() + 1e-7)
        .collect();

    // Both matrices of a product are one behind the other.
    let each = (n * k) as usize;
    let b = match config.fused {
        true => b.chunks(each).zip(up.chunks(each)).flat_map(|(b, up)| halves(config, b, up, n)).collect(),
        false => b,
    };
    let mut given: Tensors = [
        ("a", if config.gather { stored } else { a }),
        ("rows", rows.iter().map(|row| *row as f64).collect()),
        ("b", b),
        ("up", up),
        ("gate_bias", inputs.gate_bias.clone()),
        ("up_bias", inputs.up_bias.clone()),
        ("row_scale", inputs.row_scale.clone()),
        ("col_scale", inputs.col_scale.clone()),
        ("bias", inputs.bias.clone()),
        ("residual", inputs.residual.clone()),
        ("groups", tiles.iter().map(|group| *group as f64).collect()),
        ("first", first.iter().map(|row| *row as f64).collect()),
        ("ends", ends.iter().map(|row| *row as f64).collect()),
        ("row_sums", vec![1.0; (of_a * m) as usize]),
        ("col_sums", vec![1.0; (l * n) as usize]),
    ]
    .map(|(name, values)| (name.to_string(), values))
    .into();
    if config.epilogue.has(Part::Beta) {
        given.insert("c".to_string(), inputs.c.clone());
    }
    if let Some([(a, of_a), (b, of_b)]) = stored_factors {
        let all = match stored_up {
            Some((up, of_up)) if config.fused => {
                let matrices = b.chunks(each).zip(up.chunks(each));
                let rows = of_b.len() / l as usize;
                let of_rows = of_b.chunks(rows).zip(of_up.chunks(rows));
                vec![
                    ("b", matrices.flat_map(|(b, up)| halves(config, b, up, n)).collect()),
                    ("b_scale", of_rows.flat_map(|(b, up)| [b, up].concat()).collect()),
                ]
            }
            Some((up, of_up)) => vec![("b", b), ("b_scale", of_b), ("up", up), ("up_scale", of_up)],
            None => vec![("b", b), ("b_scale", of_b)],
        };
        let all = [("a", a), ("a_scale", of_a)].into_iter().chain(all);
        given.extend(all.map(|(name, values)| (name.to_string(), values)));
    }
    given.retain(|name, _| programs.iter().any(|p| p.params.iter().any(|param| param.name == *name)));
    let mut launched = vec![("m", m), ("n", n), ("k", k)];
    if config.batch != Batch::None {
        launched.push((if grouped { "g" } else { "l" }, l));
    }
    if config.batch == Batch::Ragged {
        launched.push(("t", tiles.len() as i64));
    }
    if config.gather {
        launched.push(("r", rows_there));
    }
    if config.batch == Batch::Strided {
        launched.extend([("step_a", numbers * m * k), ("step_c", m * columns)]);
        let of_b = if config.fused { 2 * n * k } else { numbers * n * k };
        launched.extend([("step_b", of_b), ("step_up", n * k)]);
    }
    let launch = Launch {
        programs: &programs,
        sizes: &launched,
        scalars: &[("alpha", inputs.alpha), ("beta", inputs.beta)],
    };
    let arch = if config.form == Form::Tcgen05 { Arch::SM_100A } else { Arch::SM_90A };
    let (simulated, interpreted, mut reports) = launch.run(arch, seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {:?} of {config:?}", [l, m, n, k]);
        let [m, n] = [sizes[1], columns as usize];
        let mut c = results["c"].clone();
        if config.batch == Batch::Ragged {
            // Nothing writes the rows of no group.
            for row in (0..m).filter(|row| groups[*row] < 0) {
                assert!(c[row * n..][..n].iter().all(|x| x.is_nan()), "row {row} of {at}");
                c[row * n..][..n].copy_from_slice(&exact[row * n..][..n]);
            }
        }
        if config.fill == FillMode::Lower {
            // Nothing writes the tiles above the diagonal.
            let tile = config.bm as usize
                * if let Cluster::AlongM(blocks) = config.cluster { blocks as usize } else { 1 };
            let above = |i: &usize| (i % n / tile) > (i / n % m / tile);
            for i in (0..c.len()).filter(above) {
                let kept = if inputs.c.is_empty() {
                    c[i].is_nan() || out.range().is_some()
                } else {
                    c[i] == inputs.c[i]
                };
                assert!(kept, "element {i} of {at}");
                c[i] = exact[i];
            }
        }
        close(&at, &c, &exact, &bound);
        if config.sums_a {
            let (exact, magnitudes) = &rows_of_a;
            let bound: Vec<f64> =
                magnitudes.iter().map(|sum| sum * (k + 8) as f64 * f64::powi(2.0, -24)).collect();
            close(&format!("sums_a of {at}"), &results["sums_a"], exact, &bound);
        }
        for (part, count, over) in [(Part::RowSums, of_a as usize * m, n), (Part::ColSums, sizes[0] * n, m)] {
            if !config.epilogue.has(part) {
                continue;
            }
            let place = |i: usize| match part {
                Part::RowSums => Some(i / n),
                _ if grouped => usize::try_from(groups[i / n]).ok().map(|group| group * n + i % n),
                _ => Some(i / (m * n) * n + i % n),
            };
            let (mut total, mut within) = (vec![1.0; count], vec![1e-5 * over as f64; count]);
            for (i, (v, bound)) in exact.iter().zip(&unrounded).enumerate() {
                let Some(place) = place(i) else { continue };
                total[place] += v;
                within[place] += bound + v.abs() * 1e-6 * over as f64;
            }
            close(&format!("{} of {at}", part.name()), &results[part.name()], &total, &within);
        }
    }
    reports.remove(0)
}

pub fn check_hopper(config: &HopperGemmConfig, [m, n, k]: [i64; 3], seeds: &[u64]) -> Report {
    check(config, [1, m, n, k], seeds)
}
