//! The report of a run.

use serde::Serialize;
use tilewright_machine::PrintLog;

use crate::findings::{Fault, Findings, Misuse, Race, Traffic};
use crate::profile::Profile;
use crate::trace::Trace;

/// The outcome of a [`run`](crate::run).
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Blocks executed.
    pub blocks: u64,
    /// Warps executed.
    pub warps: u64,
    /// Warp instructions executed, branches and loop rounds included.
    pub instructions: u64,
    /// Races on shared and global memory, one for each pair of statements, buffer and kind; at most [`RACE_LIMIT`](crate::RACE_LIMIT).
    pub races: Vec<Race>,
    /// Accesses out of bounds, one entry an instruction: reads gave 0, writes were dropped.
    pub out_of_bounds: Vec<Fault>,
    /// Accesses not aligned to their size, one entry an instruction: reads gave 0, writes were dropped.
    pub misaligned: Vec<Fault>,
    /// Reads of shared bytes and of registers that nothing had written, one entry an instruction and memory.
    pub uninitialised: Vec<Fault>,
    /// Misuse of mbarriers, asynchronous engines and the registers that they own, one entry a statement and rule.
    pub protocol: Vec<Misuse>,
    /// Warp requests to shared memory, asynchronous copies' writes included.
    pub shared_requests: u64,
    /// Wavefronts they took.
    pub shared_wavefronts: u64,
    /// Wavefronts beyond what they need without bank conflicts.
    pub shared_conflicts: u64,
    /// Warp requests to global memory.
    pub global_requests: u64,
    /// 32-byte sectors they touched, each counted once a request.
    pub global_sectors: u64,
    /// Bytes that lanes asked global memory for.
    pub global_bytes: u64,
    /// The same counts by tile statement and instruction, in program order.
    pub traffic: Vec<Traffic>,
    /// Matrix products executed (warp instructions).
    pub mma_count: u64,
    /// Matrix products of warpgroups executed.
    pub wgmma_count: u64,
    /// Bytes that tensor and bulk copies moved.
    pub tma_bytes: u64,
    /// Cost of each instruction of each tile statement, in program order; empty without [`Config::profile`](crate::Config::profile).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<Profile>,
    /// The execution of the cluster that was to be traced.
    #[serde(skip)]
    pub trace: Option<Trace>,
    /// The first of what blocks print: tensors as they were when threads came to the statement.
    #[serde(skip)]
    pub printed: PrintLog,
    /// An estimate of the kernel's duration in cycles; the model is described in the crate's documentation.
    pub estimated_cycles: u64,
}

impl Report {
    /// True if nothing wrong was found: no race, no misuse, nothing out of bounds, misaligned or uninitialised.
    pub fn is_clean(&self) -> bool {
        self.races.is_empty()
            && self.out_of_bounds.is_empty()
            && self.misaligned.is_empty()
            && self.uninitialised.is_empty()
            && self.protocol.is_empty()
    }

    /// Everything wrong that was found.
    pub fn findings(&self) -> Findings {
        Findings {
            races: self.races.clone(),
            out_of_bounds: self.out_of_bounds.clone(),
            misaligned: self.misaligned.clone(),
            uninitialised: self.uninitialised.clone(),
            protocol: self.protocol.clone(),
        }
    }

    /// Everything wrong that was found, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        self.findings().problems()
    }
}
