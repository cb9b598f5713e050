//! Robust nonlinear least squares with bounds and a prior for every unknown, by the method of Levenberg and Marquardt (Marquardt, An Algorithm for
//! Least-Squares Estimation of Nonlinear Parameters, 1963).

use crate::error::TuneError;

/// Residuals, in standard deviations, beyond which they count linearly.
const FAR: f64 = 2.0;
/// The step of differences.
const STEP: f64 = 1e-3;
/// Iterations at most, and the part by which the last one must have made the sum less.
const ITERATIONS: usize = 40;
const ENOUGH: f64 = 1e-4;
/// Damping at first, its factors after a step that is taken and one that is not, and the damping at which the search gives up.
const DAMPING: f64 = 1e-2;
const LESS: f64 = 0.3;
const MORE: f64 = 4.0;
const MOST: f64 = 1e8;

/// The unknowns for which the sum of squares is least.
pub(super) struct Solved {
    pub values: Vec<f64>,
    /// Their standard deviations.
    pub deviations: Vec<f64>,
}

/// Unknowns that begin at 0 with these standard deviations, and stay within `farthest` of it, for which the residuals are least. One whose
/// standard deviation is 0 stays at 0.
pub(super) fn least_squares(
    spread: &[f64],
    farthest: f64,
    residuals: impl Fn(&[f64]) -> Result<Vec<f64>, TuneError>,
) -> Result<Solved, TuneError> {
    let count = spread.len();
    let cost = |x: &[f64], r: &[f64]| -> f64 {
        let data: f64 = r.iter().map(|r| huber(*r)).sum();
        let prior = x.iter().zip(spread).filter(|(_, s)| **s > 0.0).map(|(x, s)| (x / s).powi(2));
        data + prior.sum::<f64>()
    };
    let mut x = vec![0.0; count];
    let mut r = residuals(&x)?;
    let (mut least, mut damping) = (cost(&x, &r), DAMPING);
    for _ in 0..ITERATIONS {
        let (normal, gradient) = equations(&x, &r, spread, &residuals)?;
        let before = least;
        while damping < MOST {
            let mut damped = normal.clone();
            damped.iter_mut().enumerate().for_each(|(i, row)| row[i] *= 1.0 + damping);
            let step = solve(&factor(damped), &gradient);
            let next: Vec<f64> =
                x.iter().zip(&step).map(|(x, step)| (x - step).clamp(-farthest, farthest)).collect();
            let there = residuals(&next)?;
            let sum = cost(&next, &there);
            if sum < least {
                (x, r, least, damping) = (next, there, sum, damping * LESS);
                break;
            }
            damping *= MORE;
        }
        if before - least <= ENOUGH * before {
            break;
        }
    }
    let (normal, _) = equations(&x, &r, spread, &residuals)?;
    let lower = factor(normal);
    let deviation = |i: usize| {
        let unit: Vec<f64> = (0..count).map(|j| f64::from(u8::from(i == j))).collect();
        solve(&lower, &unit)[i].sqrt()
    };
    Ok(Solved { deviations: (0..count).map(deviation).collect(), values: x })
}

/// The loss of a residual.
fn huber(r: f64) -> f64 {
    if r.abs() <= FAR { r * r } else { FAR * (2.0 * r.abs() - FAR) }
}

/// The normal equations: JᵀWJ and JᵀWr, with the priors.
fn equations(
    x: &[f64],
    r: &[f64],
    spread: &[f64],
    residuals: &impl Fn(&[f64]) -> Result<Vec<f64>, TuneError>,
) -> Result<(Vec<Vec<f64>>, Vec<f64>), TuneError> {
    let mut columns = Vec::with_capacity(x.len());
    for i in 0..x.len() {
        if spread[i] == 0.0 {
            columns.push(vec![0.0; r.len()]);
            continue;
        }
        let mut moved = x.to_vec();
        moved[i] += STEP;
        let there = residuals(&moved)?;
        columns.push(there.iter().zip(r).map(|(a, b)| (a - b) / STEP).collect::<Vec<f64>>());
    }
    let weights: Vec<f64> = r.iter().map(|r| (FAR / r.abs().max(FAR)).min(1.0)).collect();
    let weighted = |a: &[f64], b: &[f64]| -> f64 {
        weights.iter().zip(a.iter().zip(b)).map(|(w, (a, b))| w * a * b).sum()
    };
    let mut normal = vec![vec![0.0; x.len()]; x.len()];
    for i in 0..x.len() {
        for j in 0..=i {
            normal[i][j] = weighted(&columns[i], &columns[j]);
            normal[j][i] = normal[i][j];
        }
        // One that is held has an equation of its own, which says that it does not move.
        normal[i][i] += if spread[i] > 0.0 { spread[i].powi(-2) } else { 1.0 };
    }
    let prior = |i: usize| if spread[i] > 0.0 { x[i] / spread[i].powi(2) } else { 0.0 };
    let gradient = (0..x.len()).map(|i| weighted(&columns[i], r) + prior(i)).collect();
    Ok((normal, gradient))
}

/// The lower triangular factor of a positive matrix (Cholesky).
fn factor(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    for i in 0..a.len() {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            let rest = a[i][j] - known;
            a[i][j] = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / a[j][j] };
        }
    }
    a
}

/// The solution of factor · factorᵀ · x = b.
fn solve(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x = b.to_vec();
    for i in 0..x.len() {
        let known: f64 = (0..i).map(|k| factor[i][k] * x[k]).sum();
        x[i] = (x[i] - known) / factor[i][i];
    }
    for i in (0..x.len()).rev() {
        let known: f64 = (i + 1..x.len()).map(|k| factor[k][i] * x[k]).sum();
        x[i] = (x[i] - known) / factor[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_fitted_in_spite_of_an_outlier() {
        // y = 2 · exp(0.5 t), one of whose points is far off.
        let points: Vec<(f64, f64)> =
            (0..12).map(|t| (f64::from(t), 2.0 * (0.05 * f64::from(t)).exp())).collect();
        let residuals = |x: &[f64]| {
            let of = |(i, (t, y)): (usize, &(f64, f64))| {
                let y = if i == 7 { y * 3.0 } else { *y };
                ((1.0 + x[0]) * ((0.1 + x[1]) * t).exp() - y) / 0.01
            };
            Ok(points.iter().enumerate().map(of).collect())
        };
        let Solved { values, deviations } = least_squares(&[10.0, 10.0, 0.5], 4.0, residuals).unwrap();
        assert!((values[0] - 1.0).abs() < 0.01 && (values[1] + 0.05).abs() < 0.002, "{values:?}");
        // Nothing says anything of the third.
        assert!(values[2] == 0.0 && (deviations[2] - 0.5).abs() < 1e-9 && deviations[0] < 0.05);
    }

    #[test]
    fn bounds_hold() {
        let residuals = |x: &[f64]| Ok(vec![x[0] + x[1] - 7.0]);
        let Solved { values, .. } = least_squares(&[100.0, 0.0], 9.0, residuals).unwrap();
        assert!((values[0] - 7.0).abs() < 0.01 && values[1] == 0.0, "{values:?}");
        let Solved { values, .. } = least_squares(&[100.0], 1.0, |x| Ok(vec![x[0] - 7.0])).unwrap();
        assert_eq!(values, [1.0]);
    }
}
