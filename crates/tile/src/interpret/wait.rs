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
    /// A statement that the blocks of the cluster do together.
    Cluster {
        /// The statement.
        statement: String,
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
            WaitFor::Cluster { statement } => statement.clone(),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits in `{}`", self.who(), self.statement())?;
        match &self.what {
            WaitFor::Free { stage, time, by, .. } => {
                let (time, by) = (ordinal(*time), by.join(" and "));
                write!(f, ", the {time} time, for stage {stage} to be free, which {by} has not released")
            }
            WaitFor::Full { stage, time, by, .. } => {
                let (time, by) = (ordinal(*time), by.join(" and "));
                write!(f, ", the {time} time, for stage {stage} to be full, which {by} has not filled")
            }
            WaitFor::Cluster { .. } => write!(f, " for the other blocks"),
        }
    }
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

/// The role's name as messages have it; without roles, all threads.
pub(crate) fn who(role: &Option<String>) -> String {
    role.as_ref().map_or_else(|| "the kernel".to_string(), |role| format!("role `{role}`"))
}
