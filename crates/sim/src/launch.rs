//! Clusters of a launch that have not begun: they begin later, or clusters that run cancel them and do their work.
//!
//! Without a seed, as many begin at once as the GPU holds, and the others are cancelled in their order. With one, any number of any begin at once, others at
//! any time, which of them a request cancels is open, and one may find none although there are some (PTX ISA 8.6,
//! `clusterlaunchcontrol.try_cancel`: it may fail).

use crate::choices::Choices;
use crate::context::Context;
use crate::cycles::blocks_at_once;

/// Of so many requests one finds none, and in one of as many turns a cluster begins.
const SELDOM: usize = 16;

/// The clusters, among those that run together, that have neither begun nor been cancelled.
#[derive(Debug, Default)]
pub(crate) struct NotBegun {
    /// Their numbers, in the order of the grid.
    clusters: Vec<u32>,
    choices: Option<Choices>,
    /// Blocks that know that a request of theirs has found no cluster.
    refused: Vec<u32>,
}

impl NotBegun {
    /// Those of so many clusters that do not begin at once, of which the first in the order of the choices do.
    pub(crate) fn new(context: &Context<'_>, clusters: u32, choices: Option<&Choices>) -> Self {
        let function = context.program.function;
        let mut all = NotBegun {
            clusters: (0..clusters).collect(),
            choices: choices.map(|choices| Choices::new(choices.clone().next())),
            refused: Vec::new(),
        };
        let at_once = match &mut all.choices {
            Some(choices) => 1 + choices.below(clusters as usize) as u64,
            None => (blocks_at_once(function) / u64::from(function.cluster)).max(1),
        };
        for _ in 0..at_once {
            all.begin();
        }
        all
    }

    /// True if a cluster is among them.
    pub(crate) fn has(&self, cluster: u32) -> bool {
        self.clusters.contains(&cluster)
    }

    /// True if one of them begins now, while others run.
    pub(crate) fn some_begin(&mut self) -> bool {
        !self.clusters.is_empty() && self.choices.as_mut().is_some_and(|choices| choices.below(SELDOM) == 0)
    }

    /// One of them, which begins.
    pub(crate) fn begin(&mut self) -> Option<u32> {
        let number = self.choices.as_mut().map_or(0, |choices| choices.below(self.clusters.len()));
        (number < self.clusters.len()).then(|| self.clusters.remove(number))
    }

    /// One of them, which is cancelled.
    pub(crate) fn cancel(&mut self) -> Option<u32> {
        let finds_none = self.choices.as_mut().is_some_and(|choices| choices.below(SELDOM) == 0);
        if finds_none { None } else { self.begin() }
    }

    /// Notes that a block knows that a request of its has found no cluster.
    pub(crate) fn refuse(&mut self, rank: u32) {
        if !self.refused(rank) {
            self.refused.push(rank);
        }
    }

    /// True if a block knows that a request of its has found no cluster.
    pub(crate) fn refused(&self, rank: u32) -> bool {
        self.refused.contains(&rank)
    }
}
