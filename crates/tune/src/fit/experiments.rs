//! The products and configurations that are timed: few that many numbers of the model show in.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tilewright_compiler::Kernel;

use super::Timed;
use crate::choose::MakeMeasurer;
use crate::error::TuneError;
use crate::measurer::Load;
use crate::problem::{Candidate, Problem, Target};
use crate::search::{Compiled, Progress, ProgressFn, compiled};

/// The list, one a line: operator, sizes, parameters that differ from the defaults. A test checks that every number of the model shows in it.
pub const EXPERIMENTS: &str = include_str!("../../models/experiments.txt");

/// Turns of each.
const ROUNDS: usize = 3;

/// A configuration of a product.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The product.
    pub problem: Problem,
    /// The configuration.
    pub candidate: Candidate,
}

/// The list.
///
/// # Errors
///
/// [`TuneError`] for a line that is wrong: none is, as a test checks.
pub fn experiments() -> Result<Vec<Experiment>, TuneError> {
    let lines = EXPERIMENTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let experiment = |line: &str| {
        let text = || TuneError::Text { text: line.to_string() };
        let [operator, sizes, configuration] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            return Err(text());
        };
        let size = |(name, size): (String, String)| Some((name, size.parse().ok()?));
        let sizes = Candidate::parse(sizes)?.0.into_iter().map(size).collect::<Option<BTreeMap<_, _>>>();
        let candidate = Candidate::parse(configuration)?;
        let problem = Problem::new(operator, &sizes.ok_or_else(text)?, &meaning(operator, &candidate)?)?;
        Ok(Experiment { problem, candidate })
    };
    lines.map(experiment).collect()
}

/// The parameters of a configuration that say what is computed.
pub(super) fn meaning<'a>(
    operator: &str,
    candidate: &'a Candidate,
) -> Result<Vec<(&'a str, &'a str)>, TuneError> {
    let meaning = tilewright_kernels::operator(operator)?.tuning.map_or(&[][..], |tuning| tuning.meaning);
    Ok(candidate.given().into_iter().filter(|(name, _)| meaning.contains(name)).collect())
}

/// The times of the list on a device, and what was refused, with the reason.
///
/// # Errors
///
/// [`TuneError::Device`] if the device fails.
pub fn timed(
    target: &Target,
    measurer: &mut MakeMeasurer<'_>,
    watch: &mut ProgressFn<'_>,
) -> Result<(Vec<Timed>, Vec<String>), TuneError> {
    let all = experiments()?;
    let (mut times, mut refused) = (Vec::new(), Vec::new());
    let mut rest = &all[..];
    while let Some(first) = rest.first() {
        // Those of one product share its tensors.
        let same = rest.iter().take_while(|e| e.problem.to_string() == first.problem.to_string()).count();
        let (product, others) = rest.split_at(same);
        let spent = (all.len() - rest.len()) as f64 / all.len() as f64;
        watch(Progress { spent, doing: first.problem.to_string() });
        rest = others;
        let kernels: Vec<Compiled> =
            product.par_iter().map(|e| compiled(&e.problem, target, &e.candidate)).collect();
        let mut measurer = measurer(&first.problem)?;
        let able: Vec<&Kernel> =
            kernels.iter().filter_map(|kernels| kernels.as_ref().ok()).flat_map(|(k, _)| k).collect();
        measurer.prefetch(&able);
        let mut loaded: Vec<(usize, Vec<f64>)> = Vec::new();
        for (id, kernels) in kernels.into_iter().enumerate() {
            let load = match kernels {
                Ok((kernels, launch)) => measurer.load(id, kernels, &launch)?,
                Err(reason) => Load::Refused(reason),
            };
            match load {
                Load::Ready => loaded.push((id, Vec::new())),
                Load::Refused(reason) => {
                    refused.push(format!("{} {}: {reason}", first.problem, product[id].candidate));
                }
            }
        }
        for _ in 0..ROUNDS {
            for (id, turns) in &mut loaded {
                turns.push(measurer.time(*id)?);
            }
        }
        for (id, mut turns) in loaded {
            turns.sort_by(f64::total_cmp);
            let Experiment { problem, candidate } = &product[id];
            times.push(Timed {
                device: target.device.clone(),
                operator: problem.operator().name.to_string(),
                sizes: problem.sizes().clone(),
                configuration: candidate.to_string(),
                microseconds: turns[turns.len() / 2],
            });
        }
    }
    Ok((times, refused))
}
