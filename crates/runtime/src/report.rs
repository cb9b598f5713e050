//! Reports of launches.

use tilewright_compiler::Kernel;
use tilewright_machine::PrintLog;
use tilewright_simt::record::{Broken, Records};

/// Report of one launch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LaunchReport {
    /// On the simulator: what it counted.
    Sim(Box<tilewright_sim::Report>),
    /// On a GPU.
    Cuda(CudaReport),
}

impl LaunchReport {
    /// Duration of the kernel, on a device with a clock.
    pub fn milliseconds(&self) -> Option<f64> {
        match self {
            LaunchReport::Sim(_) => None,
            LaunchReport::Cuda(report) => Some(report.milliseconds),
        }
    }

    /// Everything wrong that the device found, one sentence each. The simulator finds races, accesses outside a buffer, … Hardware does
    /// not look for these; where it meets one that it cannot survive, the launch itself is an error. A GPU finds what kernels that were compiled
    /// with [`Options::debug`](tilewright_compiler::Options::debug) assert.
    pub fn problems(&self) -> Vec<String> {
        match self {
            LaunchReport::Sim(report) => report.problems(),
            LaunchReport::Cuda(report) => report.broken.clone(),
        }
    }

    /// Records of what the kernel printed, from a device that has them: a GPU has those of kernels that were compiled with
    /// [`Options::debug`](tilewright_compiler::Options::debug).
    pub fn printed(&self) -> Option<&PrintLog> {
        match self {
            LaunchReport::Sim(report) => Some(&report.printed),
            LaunchReport::Cuda(report) => report.records.as_ref().map(|records| &records.printed),
        }
    }

    /// The simulator's report.
    pub fn sim(&self) -> Option<&tilewright_sim::Report> {
        match self {
            LaunchReport::Sim(report) => Some(report),
            LaunchReport::Cuda(_) => None,
        }
    }

    /// The GPU's report.
    pub fn cuda(&self) -> Option<&CudaReport> {
        match self {
            LaunchReport::Sim(_) => None,
            LaunchReport::Cuda(report) => Some(report),
        }
    }
}

/// Report of one launch on a GPU.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct CudaReport {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// 32-bit registers of a thread, as the driver's assembler allotted them.
    pub registers_per_thread: u32,
    /// Bytes of local memory of a thread: registers that were spilled.
    pub local_bytes: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Warnings of the driver's assembler: e.g. products of warpgroups that wait for one another.
    pub advisories: Vec<String>,
    /// Duration of the kernel, between two events around it. One launch of a kernel that ran never before is no
    /// measurement; see [`Device::time`](crate::Device::time).
    pub milliseconds: f64,
    /// The kernel's assertions that do not hold, a sentence each.
    pub broken: Vec<String>,
    /// Records of the kernel's assertions and prints, of one that was compiled with
    /// [`Options::debug`](tilewright_compiler::Options::debug).
    pub records: Option<Records>,
}

/// The assertions of a kernel that do not hold, a sentence each.
pub(crate) fn assertions(kernel: &Kernel, records: &Records) -> Vec<String> {
    let sentence = |broken: &Broken| {
        let [x, y, z] = broken.block;
        let Broken { thread, count, .. } = broken;
        let statement = kernel.function.origin(broken.origin);
        let times = if *count == 1 { String::new() } else { format!(", and {} times more", count - 1) };
        format!("`{statement}` does not hold in thread {thread} of block ({x}, {y}, {z}){times}")
    };
    records.broken.iter().map(sentence).collect()
}

/// Durations of several runs of a kernel, each between two events around it.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    /// The middle run (the mean of the two middle ones of an even number).
    pub median_ms: f64,
    /// The fastest run.
    pub min_ms: f64,
    /// The slowest run.
    pub max_ms: f64,
    /// The mean of all runs.
    pub mean_ms: f64,
    /// Every run, in order.
    pub runs_ms: Vec<f64>,
}

impl Timing {
    /// The statistics of these runs; `None` if there are none.
    pub fn of(runs_ms: Vec<f64>) -> Option<Self> {
        let mut sorted = runs_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let (min_ms, max_ms) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let median_ms = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        let mean_ms = sorted.iter().sum::<f64>() / n as f64;
        Some(Timing { median_ms, min_ms, max_ms, mean_ms, runs_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        assert_eq!(Timing::of(Vec::new()), None);
        let t = Timing::of(vec![3.0, 1.0, 8.0]).unwrap();
        assert_eq!((t.median_ms, t.min_ms, t.max_ms, t.mean_ms), (3.0, 1.0, 8.0, 4.0));
        assert_eq!(t.runs_ms, [3.0, 1.0, 8.0]);
        assert_eq!(Timing::of(vec![4.0, 1.0]).unwrap().median_ms, 2.5);
    }
}
