//! Processor levels and memories as rows: the machine model of *Task-Based Tensor Computations on Modern GPUs* (Cypress, PLDI 2025), 3.1.
//!
//! Levels nest: each is made of processors of the next. A tensor in shared memory belongs to one block (PTX ISA 2.3), and one in registers to
//! threads (PTX ISA 5.1.1); an instance at the level of a block holds the latter shared out over the block's threads.

use std::fmt;
use std::str::FromStr;

use crate::arch::{Arch, Memory, WARP, WARPGROUP};
use crate::features::{Feature, Features};

/// A processor level, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Processor {
    /// The host, whose parallel iterations are a grid of blocks.
    Host,
    /// Blocks that share distributed shared memory.
    Cluster,
    /// Threads that share memory.
    Block,
    /// Four neighbouring warps.
    Warpgroup,
    /// Threads in lock-step.
    Warp,
    /// One thread.
    Thread,
}

impl Processor {
    /// Every level of any architecture, outermost first.
    pub const ALL: [Processor; 6] = [
        Processor::Host,
        Processor::Cluster,
        Processor::Block,
        Processor::Warpgroup,
        Processor::Warp,
        Processor::Thread,
    ];

    /// The name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Processor::Host => "host",
            Processor::Cluster => "cluster",
            Processor::Block => "block",
            Processor::Warpgroup => "warpgroup",
            Processor::Warp => "warp",
            Processor::Thread => "thread",
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a processor level.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no processor level `{0}`; there are {names}", names = Processor::ALL.map(Processor::name).join(", "))]
pub struct UnknownProcessor(pub String);

impl FromStr for Processor {
    type Err = UnknownProcessor;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Processor::ALL.into_iter().find(|p| p.name() == s).ok_or_else(|| UnknownProcessor(s.to_string()))
    }
}

/// A processor level of an architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LevelRow {
    /// The level.
    pub processor: Processor,
    /// The features that an architecture with this level has.
    pub needs: Features,
    /// Threads of one processor, where that is a fixed number.
    pub threads: Option<u32>,
    /// Most processors of the next level in one of these, where there is a limit that no other says.
    pub most: Option<u32>,
}

/// A memory, with the levels of those that hold tensors there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRow {
    /// The memory.
    pub memory: Memory,
    /// The outermost level whose instances hold tensors in it.
    pub outermost: Processor,
}

/// Blocks of a cluster: 8 are portable, 16 after opting in (CUDA C++ Programming Guide, thread block clusters).
const MOST_OF_CLUSTER: u32 = 16;

const LEVELS: [LevelRow; 6] = [
    LevelRow { processor: Processor::Host, needs: Features::NONE, threads: None, most: None },
    LevelRow {
        processor: Processor::Cluster,
        needs: Features::of(&[Feature::Cluster]),
        threads: None,
        most: Some(MOST_OF_CLUSTER),
    },
    LevelRow { processor: Processor::Block, needs: Features::NONE, threads: None, most: None },
    LevelRow {
        processor: Processor::Warpgroup,
        needs: Features::of(&[Feature::Wgmma]),
        threads: Some(WARPGROUP),
        most: Some(WARPGROUP / WARP),
    },
    LevelRow { processor: Processor::Warp, needs: Features::NONE, threads: Some(WARP), most: Some(WARP) },
    LevelRow { processor: Processor::Thread, needs: Features::NONE, threads: Some(1), most: None },
];

const MEMORIES: [MemoryRow; 3] = [
    MemoryRow { memory: Memory::Global, outermost: Processor::Host },
    MemoryRow { memory: Memory::Shared, outermost: Processor::Block },
    MemoryRow { memory: Memory::Register, outermost: Processor::Block },
];

/// The processor levels of an architecture, outermost first.
pub fn levels(arch: Arch) -> impl Iterator<Item = &'static LevelRow> {
    LEVELS.iter().filter(move |row| arch.has(row.needs))
}

/// The row of a level; `None` if the architecture has no such level.
pub fn level(arch: Arch, processor: Processor) -> Option<&'static LevelRow> {
    levels(arch).find(|row| row.processor == processor)
}

/// The memories, the widest first.
pub fn memories() -> &'static [MemoryRow] {
    &MEMORIES
}

/// True if an instance at the level holds tensors in the memory.
pub fn holds(processor: Processor, memory: Memory) -> bool {
    MEMORIES.iter().any(|row| row.memory == memory && row.outermost <= processor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_the_features() {
        let names = |arch| levels(arch).map(|row| row.processor.name()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(Arch::SM_80), "host block warp thread");
        assert_eq!(names(Arch::SM_90A), "host cluster block warpgroup warp thread");
        assert_eq!(level(Arch::SM_80, Processor::Warpgroup), None);
    }

    #[test]
    fn levels_and_memories_come_from_the_outside_in() {
        assert!(LEVELS.windows(2).all(|rows| rows[0].processor < rows[1].processor));
        assert!(holds(Processor::Host, Memory::Global) && !holds(Processor::Host, Memory::Shared));
        assert!(holds(Processor::Block, Memory::Register) && holds(Processor::Thread, Memory::Shared));
        for processor in Processor::ALL {
            assert_eq!(processor.to_string().parse(), Ok(processor));
        }
    }
}
