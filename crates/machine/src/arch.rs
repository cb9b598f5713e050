//! Architectures: one row each, with the limits and the rates that the cost model and the simulator use.
//! Figures: CUDA C++ Programming Guide, table of technical specifications per compute capability.

use std::fmt;
use std::str::FromStr;

/// A GPU architecture that kernels are compiled for. Ordered: a later one runs everything an earlier one does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Arch {
    /// Ampere data centre (A100).
    Sm80,
    /// Ada (L40, RTX 40).
    Sm89,
    /// Hopper (H100, H200), with the instructions that are specific to it.
    Sm90a,
}

/// The limits of an architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The name, as in PTX's `.target`.
    pub name: &'static str,
    /// The lowest PTX version that knows the target and every instruction of the rows for it.
    pub ptx_version: &'static str,
    /// Shared memory that one thread block may use, in bytes (with opt-in).
    pub shared_bytes_per_block: u32,
    /// Threads that one block may have.
    pub threads_per_block: u32,
    /// 32-bit registers that one thread may have.
    pub registers_per_thread: u32,
    /// 32-bit registers of one multiprocessor, shared by its resident blocks.
    pub registers_per_multiprocessor: u32,
    /// Threads that one multiprocessor holds.
    pub threads_per_multiprocessor: u32,
    /// Multiprocessors of the architecture's usual chip (A100, L40, H100).
    pub multiprocessors: u32,
}

impl Arch {
    /// Every architecture, oldest first.
    pub const ALL: [Arch; 3] = [Arch::Sm80, Arch::Sm89, Arch::Sm90a];

    /// The row of this architecture.
    pub fn limits(self) -> Limits {
        match self {
            Arch::Sm80 => Limits {
                name: "sm_80",
                ptx_version: "7.4",
                shared_bytes_per_block: 163 * 1024,
                threads_per_block: 1024,
                registers_per_thread: 255,
                registers_per_multiprocessor: 65536,
                threads_per_multiprocessor: 2048,
                multiprocessors: 108,
            },
            Arch::Sm89 => Limits {
                name: "sm_89",
                ptx_version: "8.1",
                shared_bytes_per_block: 99 * 1024,
                threads_per_multiprocessor: 1536,
                multiprocessors: 142,
                ..Arch::Sm80.limits()
            },
            Arch::Sm90a => Limits {
                name: "sm_90a",
                ptx_version: "8.0",
                shared_bytes_per_block: 227 * 1024,
                multiprocessors: 132,
                ..Arch::Sm80.limits()
            },
        }
    }
}

impl Limits {
    /// 32-bit registers that a thread of a block of `threads` can have: the block's share of the multiprocessor, in
    /// whole groups of eight, up to the limit of a thread.
    pub fn registers_of_a_thread(&self, threads: u32) -> u32 {
        (self.registers_per_multiprocessor / threads.max(1) / 8 * 8).min(self.registers_per_thread)
    }

    /// 32-bit registers that a launch sets aside for each thread of a block of `threads` whose roles then share them out by
    /// `setmaxnreg`: the block's share of the multiprocessor, in whole groups of eight (PTX ISA, `setmaxnreg`: the per-CTA register pool).
    pub fn registers_of_a_thread_at_launch(&self, threads: u32) -> u32 {
        self.registers_per_multiprocessor / threads.max(1) / 8 * 8
    }

    /// Blocks that are resident on one multiprocessor together, at least 1: each has some threads, registers a thread, and bytes
    /// of shared memory.
    pub fn resident_blocks(&self, threads: u32, registers: u32, shared_bytes: u32) -> u32 {
        let threads = threads.max(1);
        let by_threads = self.threads_per_multiprocessor / threads;
        let by_registers = self.registers_per_multiprocessor / (threads * registers).max(1);
        // A block's limit is a multiprocessor's, less the 1 KiB that the system takes of each block.
        let by_shared = (self.shared_bytes_per_block + 1024) / (shared_bytes + 1024);
        by_threads.min(by_registers).min(by_shared).clamp(1, 32)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.limits().name)
    }
}

/// The text is not the name of a supported architecture.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("architecture `{0}` is not supported; supported are sm_80, sm_89, sm_90a")]
pub struct UnknownArch(pub String);

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Arch::ALL.into_iter().find(|a| a.limits().name == s).ok_or_else(|| UnknownArch(s.to_string()))
    }
}

/// Where a tensor lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Memory {
    /// Device memory, visible to every block.
    Global,
    /// On-chip memory of one thread block.
    Shared,
    /// The registers of the block's threads.
    Register,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Memory::Global => "global",
            Memory::Shared => "shared",
            Memory::Register => "register",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse(), Ok(arch));
        }
        assert!("sm_75".parse::<Arch>().unwrap_err().to_string().contains("sm_80"));
    }
}
