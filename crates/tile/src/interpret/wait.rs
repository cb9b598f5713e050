//! Waits of roles, as messages name them.

use std::fmt;

use crate::diagnostic::Origin;

/// A role that waits.
#[derive(Clone, PartialEq, Debug)]
pub struct Wait {
    /// The role; `None` in a program without roles.
    pub role: Option<String>,
    /// The rank of its block in the cluster, where blocks of a cluster depend on each other.
    pub block: Option<usize>,
    /// The event that it waits for.
    pub what: WaitFor,
    /// The statement at which it waits.
    pub span: Origin,
}

/// An event that a role waits for.
#[derive(Clone, PartialEq, Debug)]
pub enum WaitFor {
    /// `produce`: a stage that others have to release.
    Free {
        /// The pipeline.
        pipeline: String,
        /// The number of the stage in its ring.
        stage: usize,
        /// The stages of the ring, all of which are full.
        stages: usize,
        /// The number of times that the role has come to the pipeline, with this one.
        time: usize,
        /// The roles that have not released it.
        by: Vec<String>,
    },
    /// `consume`: a stage that another role has to fill.
    Full {
        /// The pipeline.
        pipeline: String,
        /// The number of the stage in its ring.
        stage: usize,
        /// The number of times that the role has come to the pipeline, with this one.
        time: usize,
        /// The roles that have not filled it.
        by: Vec<String>,
    },
    /// `syncthreads(b)`, `in_turn t`: roles that have to come.
    Barrier {
        /// The statement.
        statement: String,
        /// The number of times that the role has come, with this one, if it is known.
        time: Option<usize>,
        /// The roles that have not come as often.
        by: Vec<String>,
    },
    /// A flag that is not yet what the role waits for.
    Flag {
        /// The statement.
        statement: String,
        /// The value of the flag.
        now: i64,
        /// The index of the block in the grid.
        of: [i64; 3],
    },
    /// A statement that the blocks of the cluster do together.
    Cluster {
        /// The statement.
        statement: String,
    },
    /// Something else that the threads of the role wait for together.
    Threads {
        /// The statement.
        statement: String,
        /// The awaited event, as text.
        what: String,
    },
}

impl Wait {
    /// The role that waits: `role "math"`, `the kernel`.
    pub fn who(&self) -> String {
        match self.block {
            Some(block) => format!("{} of block {block} of the cluster", who(&self.role)),
            None => who(&self.role),
        }
    }

    /// The statement at which it waits, without a body.
    pub fn statement(&self) -> String {
        match &self.what {
            WaitFor::Free { pipeline, .. } => format!("produce {pipeline}"),
            WaitFor::Full { pipeline, .. } => format!("consume {pipeline}"),
            WaitFor::Barrier { statement, .. }
            | WaitFor::Cluster { statement }
            | WaitFor::Threads { statement, .. }
            | WaitFor::Flag { statement, .. } => statement.clone(),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits in `{}`", self.who(), self.statement())?;
        match &self.what {
            WaitFor::Free { stage, stages, time, by, .. } => {
                let (time, by) = (ordinal(*time), by.join(" and "));
                let full = if *stages == 1 {
                    "it is full".to_string()
                } else {
                    format!("{stages} of {stages} are full")
                };
                write!(
                    f,
                    ", the {time} time, for a free stage: {full}, and {by} has not released stage {stage}"
                )
            }
            WaitFor::Full { stage, time, by, .. } => {
                let (time, by) = (ordinal(*time), by.join(" and "));
                write!(f, ", the {time} time, for a full stage: {by} has not filled stage {stage}")
            }
            WaitFor::Barrier { time, by, .. } => {
                let time = time.map_or(String::new(), |time| format!(", the {} time,", ordinal(time)));
                write!(f, "{time} for {} to come", by.join(" and "))
            }
            WaitFor::Cluster { .. } => write!(f, " for the other blocks"),
            WaitFor::Threads { what, .. } => write!(f, " for {what}"),
            WaitFor::Flag { now, of: [x, y, z], .. } => {
                write!(f, " in block ({x}, {y}, {z}) for a flag, which is {now}")
            }
        }
    }
}

/// `1st`, `2nd`, `11th`.
pub(super) fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// The role's name as messages have it; without roles, all threads.
pub(crate) fn who(role: &Option<String>) -> String {
    role.as_ref().map_or_else(|| "the kernel".to_string(), |role| format!("role `{role}`"))
}
