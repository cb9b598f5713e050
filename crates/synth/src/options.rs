//! Options of a synthesis.

use std::collections::BTreeMap;
use std::sync::Arc;

use tilewright_machine::{Arch, Timing};
use tilewright_tile::core::Program;

use crate::divisibility::Multiples;
use crate::solve::Budget;

/// Options of a synthesis.
#[derive(Clone, Debug)]
pub struct Options {
    /// The architecture.
    pub arch: Arch,
    /// Sizes that are multiples of numbers, which may be relied on.
    pub multiples: Multiples,
    /// Sizes for which candidates are compared; those not named have their defaults.
    pub sizes: BTreeMap<String, i64>,
    /// Bounds of the search.
    pub budget: Budget,
    /// The candidate to take, by its number in the report, instead of the one with the fewest cycles.
    pub candidate: Option<usize>,
    /// Mechanisms that are left out, to measure what they are worth.
    pub without: Ablation,
    /// The costs of instructions and of the chip, where they are not the built-in table of the architecture.
    pub timing: Option<Arc<Timing>>,
    /// Registers that a thread may have, where that is not what the block's threads leave it: a role's budget.
    pub registers: Option<u32>,
}

/// Parts of synthesis that can be left out, to measure what they are worth (Hexcute, Fig. 14; its first version, Fig. 20).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ablation {
    /// Shared tensors are laid out as they are copied from global memory, without a swizzle.
    pub shared_layouts: bool,
    /// Fragments are distributed as is natural for the copy that loads them, and rearranged for every matrix product.
    pub thread_values: bool,
}

impl Options {
    /// Candidates that a search looks at unless told otherwise.
    pub const CANDIDATES: usize = 256;

    /// Steps that a search takes at most unless told otherwise: a fraction of a second.
    pub const STEPS: u64 = 1_000_000;

    /// Nothing asked for but the architecture, given what is known of sizes.
    pub fn new(arch: Arch, multiples: Multiples) -> Self {
        let budget = Budget { solutions: Options::CANDIDATES, seed: 0, steps: Options::STEPS };
        let without = Ablation::default();
        Options {
            arch,
            multiples,
            sizes: BTreeMap::new(),
            budget,
            candidate: None,
            without,
            timing: None,
            registers: None,
        }
    }

    /// Registers that a thread of a program may have.
    pub fn registers_of_a_thread(&self, verified: &Program) -> u32 {
        let limits = self.arch.limits();
        let own = self
            .registers
            .unwrap_or_else(|| limits.registers_of_a_thread(verified.threads() * verified.resident()));
        own.min(limits.registers_per_thread)
    }

    /// The table that costs are taken from.
    pub fn timing(&self) -> &Timing {
        self.timing.as_deref().unwrap_or_else(|| tilewright_machine::timing(self.arch))
    }
}
