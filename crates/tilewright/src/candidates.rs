//! Every candidate of a program's synthesis, run on a device: how good the choice was, as a function. `tilewright candidates`
//! prints it.

use tilewright_compiler::{Kernel, Options, compile};
use tilewright_machine::{DType, Elements};
use tilewright_runtime::{Device, Scales};
use tilewright_synth::CandidateNote;
use tilewright_tile::{Diagnostics, Program, StmtKind};

use crate::check::{CheckError, CheckOptions, prepare};

/// Errors of [`candidates`].
#[derive(Debug, thiserror::Error)]
pub enum CandidatesError {
    /// The program does not compile.
    #[error("{0}")]
    Compile(#[from] Diagnostics),
    /// The device refused or failed.
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// A candidate that was run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The search's note: instructions, estimate and reason for its place.
    pub note: CandidateNote,
    /// Milliseconds of a launch, the median of all rounds; of the simulator the cycles that it estimates.
    pub time: f64,
    /// True if its outputs agree with those of the first candidate that was run.
    pub agrees: bool,
    /// Bytes that the driver spilled, on a GPU.
    pub spilled: Option<u32>,
}

/// Time over the fastest's up to which candidates are timed again.
const CONTENDS: f64 = 1.05;

/// Compiles and runs every possible candidate of a program, `rounds` times in turns after a launch that warms up. Then those within
/// 5 % of the fastest, and the chosen one, are timed in as many rounds again, and the medians of these alone are their times: the
/// least of many times is less than its candidate takes.
///
/// # Errors
///
/// The compiler's diagnostics of the program, and the device's errors of a launch.
pub fn candidates(
    program: &Program,
    options: &Options,
    device: &dyn Device,
    inputs: &CheckOptions,
    rounds: usize,
) -> Result<Vec<Measured>, CandidatesError> {
    let first = compile(program, options)?;
    let notes: Vec<&CandidateNote> =
        first.explanation.candidates.iter().filter(|c| c.estimate.is_some()).collect();
    let kernels = compile_all(program, options, &notes)?;
    let mut prepared = prepare(&first, device, inputs)?;
    let mut measured: Vec<(Vec<f64>, bool, Option<u32>)> = Vec::new();
    let mut expected = None;
    for (_, kernel) in &kernels {
        prepared.restore(kernel, device)?;
        let report = device.launch(kernel, &prepared.sizes, &prepared.args()).map_err(CheckError::from)?;
        let results = prepared.read(kernel, device)?;
        let agrees = match &expected {
            None => {
                expected = Some(results);
                true
            }
            Some(expected) => agree(kernel, expected, &results),
        };
        let spilled = report.cuda().map(|c| c.local_bytes);
        let cycles = report.sim().map(|s| s.estimated_cycles as f64);
        measured.push((cycles.into_iter().collect(), agrees, spilled));
    }
    let (sizes, args) = (&prepared.sizes, prepared.args());
    let mut all: Vec<usize> = (0..kernels.len()).collect();
    for _ in 0..2 {
        let mut timed: Vec<Vec<f64>> = vec![Vec::new(); kernels.len()];
        for _ in 0..rounds {
            for &i in &all {
                let timing = device.time(&kernels[i].1, sizes, &args, 1, 5).map_err(CheckError::from)?;
                timed[i].extend(timing.map(|t| t.median_ms));
            }
        }
        for (measured, times) in measured.iter_mut().zip(timed).filter(|(_, times)| !times.is_empty()) {
            measured.0 = times;
        }
        let fastest = measured.iter().map(|(times, ..)| median(times)).fold(f64::INFINITY, f64::min);
        all.retain(|&i| kernels[i].0.chosen || median(&measured[i].0) <= CONTENDS * fastest);
    }
    let all = kernels.into_iter().zip(measured);
    Ok(all
        .map(|((note, _), (times, agrees, spilled))| Measured { note, time: median(&times), agrees, spilled })
        .collect())
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Compiles candidates on all cores.
fn compile_all(
    program: &Program,
    options: &Options,
    notes: &[&CandidateNote],
) -> Result<Vec<(CandidateNote, Kernel)>, Diagnostics> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let share = notes.len().div_ceil(cores).max(1);
    let one = |note: &CandidateNote| {
        let wanted = options.clone().with_candidate(note.number);
        Ok((note.clone(), compile(program, &wanted)?))
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = notes
            .chunks(share)
            .map(|part| {
                scope.spawn(|| part.iter().map(|note| one(note)).collect::<Result<Vec<_>, Diagnostics>>())
            })
            .collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

/// True if two candidates left the same in every output, within what other orders of sums may separate: relative to the larger of the
/// element and the scale of those of its size ([`Scales`]). No interpreter is asked, so that sizes may be a GPU's.
fn agree(kernel: &Kernel, expected: &[Option<Elements>], actual: &[Option<Elements>]) -> bool {
    let (mut integers, mut narrow) = (false, false);
    let dtype = |id| kernel.program().tensor(id).dtype;
    kernel.verified.visit(&mut |stmt, _| match &stmt.kind {
        StmtKind::Cast { dst, src } => integers |= dtype(*src).is_float() && !dtype(*dst).is_float(),
        StmtKind::Gemm { c, .. } | StmtKind::GemmAsync { c, .. } => narrow |= dtype(*c) == DType::F16,
        _ => {}
    });
    let sums = if narrow { 64.0 * DType::F16.epsilon() } else { 1e-3 };
    kernel.verified.outputs().iter().all(|id| {
        let param = kernel.program().param(*id);
        let (Some(expected), Some(actual)) = (&expected[id.0 as usize], &actual[id.0 as usize]) else {
            return true;
        };
        let slack: f64 = if !param.dtype.is_float() && integers { 1.0 } else { 0.0 };
        let tolerance = 4.0 * param.dtype.epsilon() + sums;
        // Most candidates give the same bits: scales are made for the first element that differs.
        let mut scales = None;
        (0..expected.len()).filter(|&at| !expected.same(actual, at)).all(|at| {
            let scales = scales.get_or_insert_with(|| Scales::of(expected.floats()));
            let e = expected.get(at).unwrap_or(f64::NAN);
            let most = slack.max(tolerance * e.abs().max(scales.at(e)));
            expected.distance(actual, at) <= most
        })
    })
}

/// Time of the chosen candidate over that of the fastest.
pub fn regret(measured: &[Measured]) -> f64 {
    let best = measured.iter().map(|m| m.time).fold(f64::INFINITY, f64::min);
    measured.iter().find(|m| m.note.chosen).map_or(f64::NAN, |m| m.time / best)
}

/// The rank correlation (Spearman's) of estimates and times; not a number for fewer than three candidates.
pub fn rank_correlation(measured: &[Measured]) -> f64 {
    let n = measured.len();
    if n < 3 {
        return f64::NAN;
    }
    // Equal values share the mean of their ranks.
    let ranks = |values: Vec<f64>| -> Vec<f64> {
        values
            .iter()
            .map(|x| {
                let below = values.iter().filter(|y| *y < x).count() as f64;
                let equal = values.iter().filter(|y| *y == x).count() as f64;
                below + (equal - 1.0) / 2.0
            })
            .collect()
    };
    let estimated = ranks(
        measured.iter().map(|m| m.note.estimate.as_ref().map_or(f64::NAN, |e| e.cycles as f64)).collect(),
    );
    let timed = ranks(measured.iter().map(|m| m.time).collect());
    let mean = (n as f64 - 1.0) / 2.0;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    dot(&estimated, &timed) / (dot(&estimated, &estimated) * dot(&timed, &timed)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::Arch;
    use tilewright_runtime::SimDevice;

    #[test]
    fn every_candidate_of_a_product_gives_the_same_result() {
        let program = tilewright_tile::parse(include_str!("../../../examples/gemm_shared.tile")).unwrap();
        let options = Options::new(Arch::SM_90A).constant("BM", 32).constant("BN", 32);
        let sizes = [("m", 50), ("n", 40), ("k", 48)].map(|(n, v)| (n.to_string(), v)).into();
        let inputs = CheckOptions { sizes, ..CheckOptions::default() };
        let all = candidates(&program, &options, &SimDevice::default(), &inputs, 0).unwrap();
        assert!(all.len() > 10, "{}", all.len());
        assert!(all.iter().all(|m| m.agrees && m.time > 0.0));
        assert_eq!(all.iter().filter(|m| m.note.chosen).count(), 1);
        assert!(regret(&all) >= 1.0 && rank_correlation(&all).abs() <= 1.0 + 1e-9);
    }
}
