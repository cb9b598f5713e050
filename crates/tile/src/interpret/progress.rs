//! Whether the roles of a block, and of the blocks of its cluster, can go on to their ends.
//!
//! A role fills, reads and frees stages in an order of its own, and waits for nothing but stages and the other blocks of a
//! `cluster_sum`. Each pipeline has one role that fills it and one that reads it, so whether one role goes on never keeps another from
//! it, and any order of their steps tells whether all come to an end.

use super::InterpretError;
use super::plan::Plan;

/// What a role does to other roles, or waits for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Step {
    /// A `produce` of this pipeline begins, once a stage is free.
    Fill(u32),
    /// It has filled its stage.
    Filled(u32),
    /// A `consume` begins, once a stage is full.
    Read(u32),
    /// The oldest stage that is not free becomes free.
    Free(u32),
    /// A `cluster_sum`: goes on once the role has come here in all blocks.
    Meet,
}

/// What one role of a block does, in order; of a program without roles, all.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) role: Option<String>,
    pub(super) steps: Vec<Step>,
}

/// How many stages of a pipeline a block has begun to fill, has filled, has begun to read and has freed.
#[derive(Clone, Default)]
struct Count {
    begun: usize,
    filled: usize,
    read: usize,
    freed: usize,
}

/// A role on its way.
struct Process<'a> {
    block: usize,
    steps: &'a Steps,
    at: usize,
    /// How often it has met its peers, or has come to do so.
    met: usize,
    meets: bool,
}

/// An error where some roles of these blocks, all those of a cluster that share anything, wait for ever.
pub(super) fn check(plan: &Plan, blocks: &[Vec<Steps>]) -> Result<(), InterpretError> {
    let mut counts = vec![vec![Count::default(); plan.pipelines.len()]; blocks.len()];
    alike(plan, blocks)?;
    let mut processes: Vec<Process<'_>> = blocks
        .iter()
        .enumerate()
        .flat_map(|(block, roles)| {
            roles.iter().map(move |steps| Process { block, steps, at: 0, met: 0, meets: false })
        })
        .collect();
    loop {
        let mut moved = false;
        for i in 0..processes.len() {
            while may_go_on(plan, &counts, &processes, i) {
                go_on(&mut processes[i], &mut counts);
                moved = true;
            }
            if let Some(Step::Meet) = processes[i].steps.steps.get(processes[i].at)
                && !std::mem::replace(&mut processes[i].meets, true)
            {
                processes[i].met += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let left: Vec<String> = processes.iter().filter_map(|process| waits(plan, &counts, process)).collect();
    if left.is_empty() { Ok(()) } else { Err(InterpretError::Deadlock { waits: left.join("; ") }) }
}

/// The blocks that share the stages of a pipeline with one.
fn sharing(plan: &Plan, ring: usize, block: usize, all: usize) -> std::ops::Range<usize> {
    if plan.pipelines[ring].multicast { 0..all } else { block..block + 1 }
}

fn may_go_on(plan: &Plan, counts: &[Vec<Count>], processes: &[Process<'_>], i: usize) -> bool {
    let process = &processes[i];
    let least = |ring: usize, of: fn(&Count) -> usize| {
        let blocks = sharing(plan, ring, process.block, counts.len());
        blocks.map(|block| of(&counts[block][ring])).min().unwrap_or(0)
    };
    match process.steps.steps.get(process.at) {
        None => false,
        Some(Step::Fill(ring)) => {
            let ring = *ring as usize;
            let begun = counts[process.block][ring].begun;
            begun < least(ring, |count| count.freed) + plan.pipelines[ring].stages.max(1) as usize
        }
        Some(Step::Read(ring)) => {
            let ring = *ring as usize;
            counts[process.block][ring].read < least(ring, |count| count.filled)
        }
        Some(Step::Filled(_) | Step::Free(_)) => true,
        Some(Step::Meet) => {
            let peers = processes.iter().filter(|peer| peer.steps.role == process.steps.role);
            process.meets && peers.into_iter().all(|peer| peer.met >= process.met)
        }
    }
}

fn go_on(process: &mut Process<'_>, counts: &mut [Vec<Count>]) {
    let counts = &mut counts[process.block];
    match process.steps.steps[process.at] {
        Step::Fill(ring) => counts[ring as usize].begun += 1,
        Step::Filled(ring) => counts[ring as usize].filled += 1,
        Step::Read(ring) => counts[ring as usize].read += 1,
        Step::Free(ring) => counts[ring as usize].freed += 1,
        Step::Meet => process.meets = false,
    }
    process.at += 1;
}

/// `1st`, `2nd`, `11th`.
fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// What a role that does not go on waits for.
fn waits(plan: &Plan, counts: &[Vec<Count>], process: &Process<'_>) -> Option<String> {
    let step = process.steps.steps.get(process.at)?;
    let mut who =
        process.steps.role.as_ref().map_or("the kernel".to_string(), |role| format!("role `{role}`"));
    if counts.len() > 1 {
        who = format!("{who} of block {} of the cluster", process.block);
    }
    let count = |ring: u32| (&plan.pipelines[ring as usize], &counts[process.block][ring as usize]);
    Some(match step {
        Step::Fill(ring) => {
            let (row, count) = count(*ring);
            let held = match row.stages {
                1 => "the only one is".to_string(),
                stages => format!("all {stages} are"),
            };
            format!(
                "{who} waits in `produce {}`, the {} time, for a free stage ({held} filled and not given back)",
                row.name,
                ordinal(count.begun + 1)
            )
        }
        Step::Read(ring) => {
            let (row, count) = count(*ring);
            format!(
                "{who} waits in `consume {}`, the {} time, for a full stage",
                row.name,
                ordinal(count.read + 1)
            )
        }
        _ => format!("{who} waits in `cluster_sum` for the other blocks"),
    })
}

/// An error where the blocks of a cluster do not fill a pipeline's stages as often that each fills for all.
fn alike(plan: &Plan, blocks: &[Vec<Steps>]) -> Result<(), InterpretError> {
    for (ring, row) in plan.pipelines.iter().enumerate().filter(|(_, row)| row.multicast) {
        let filled = |roles: &Vec<Steps>| {
            let steps = roles.iter().flat_map(|steps| &steps.steps);
            steps.filter(|step| **step == Step::Filled(ring as u32)).count()
        };
        let counts: Vec<usize> = blocks.iter().map(filled).collect();
        let first = counts.first().copied().unwrap_or(0);
        if let Some(other) = counts.iter().position(|count| *count != first) {
            return Err(InterpretError::MulticastCounts {
                statement: format!("produce {}", row.name),
                other,
                counts: [first, counts[other]],
            });
        }
    }
    Ok(())
}
