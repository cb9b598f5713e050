//! A run on the simulator, which a page shows.

use std::collections::BTreeMap;

use tilewright::check::{CheckError, CheckOptions, Comparison, check};
use tilewright::compiler::Kernel as Compiled;
use tilewright::machine::Number;
use tilewright::runtime::{SimDevice, Sizes};
use tilewright::sim::Config;
use tilewright::tile::interpret::{grid, work};

use crate::model::{Result, Run, Timeline};

/// Operations ([`work`]) up to which a kernel is run at the sizes that are given: some seconds.
pub const WORK_LIMIT: u64 = 1 << 31;

/// Reasons why there is no run.
#[derive(Debug)]
pub enum NotRun {
    /// It was not wanted.
    Unwanted,
    /// No sizes that the kernel may be launched with take a short time.
    TooLong,
    /// The launch was refused, or failed.
    Refused(Box<CheckError>),
}

impl std::fmt::Display for NotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotRun::Unwanted => f.write_str("a run was not asked for"),
            NotRun::TooLong => f.write_str(
                "a run would take long at every size that the kernel is compiled for: give smaller sizes with -p",
            ),
            NotRun::Refused(why) => write!(f, "the run failed: {why}"),
        }
    }
}

/// Runs a kernel on the simulator at the given sizes. Where that would take more than a few seconds, sizes are halved, the largest first, as
/// long as they are what the kernel assumes.
///
/// # Errors
///
/// Reasons why there is no run.
pub fn simulate(
    kernel: &Compiled,
    sizes: &Sizes,
    scalars: &BTreeMap<String, Number>,
) -> std::result::Result<Run, NotRun> {
    let smaller = affordable(kernel, sizes)?;
    let config = Config { profile: true, trace: Some(0), ..Config::default() };
    let options =
        CheckOptions { sizes: smaller.clone(), scalars: scalars.clone(), ..CheckOptions::default() };
    let refused = |why| NotRun::Refused(Box::new(why));
    let outcome = check(kernel, &SimDevice::new(config), &options).map_err(refused)?;
    let grid = grid(&kernel.verified, &smaller).map_err(|why| refused(why.into()))?;
    let (verdict, right) = (outcome.verdict().to_string(), outcome.is_right());
    let result = |c: &Comparison| Result { name: c.name.clone(), wrong: c.wrong, text: c.to_string() };
    let results = outcome.comparisons.iter().map(result).collect();
    let report = outcome.report.sim().cloned().unwrap_or_default();
    Ok(Run {
        smaller: smaller != *sizes,
        sizes: smaller,
        grid,
        verdict,
        right,
        results,
        cycles: report.estimated_cycles,
        shared_wavefronts: report.shared_wavefronts,
        shared_conflicts: report.shared_conflicts,
        global_sectors: report.global_sectors,
        timeline: Timeline::default(),
        requests: Vec::new(),
        profile: report.profile,
        trace: report.trace,
        findings: outcome.findings,
        warnings: outcome.warnings,
    })
}

/// The sizes, or smaller ones, at which a run takes no more than [`WORK_LIMIT`].
fn affordable(kernel: &Compiled, sizes: &Sizes) -> std::result::Result<Sizes, NotRun> {
    let mut sizes = sizes.clone();
    loop {
        let work = work(&kernel.verified, &sizes).map_err(|why| NotRun::Refused(Box::new(why.into())))?;
        if work.total() <= WORK_LIMIT {
            return Ok(sizes);
        }
        let multiple = |name: &String| {
            kernel.assumptions.iter().find(|a| a.size == *name).map_or(1, |assumption| assumption.multiple)
        };
        let halves = |(name, value): &(&String, &mut i64)| **value > 1 && (**value / 2) % multiple(name) == 0;
        let largest = sizes.iter_mut().filter(halves).max_by_key(|(_, value)| **value);
        let Some((_, value)) = largest else { return Err(NotRun::TooLong) };
        *value /= 2;
    }
}
