//! The description of an architecture.

use crate::features::Features;

/// The description of an architecture.
#[derive(Clone, Debug)]
pub struct ArchSpec {
    /// The name, as in PTX's `.target`.
    pub name: &'static str,
    /// The lowest PTX version that knows the target and every instruction of the rows for it.
    pub ptx_version: &'static str,
    /// The compute capability.
    pub capability: (u32, u32),
    /// True if its code runs on this compute capability alone (targets with an `a`), not on later ones.
    pub specific: bool,
    /// Sizes.
    pub limits: Limits,
    /// The features that it has.
    pub features: Features,
    /// The text of its latency and throughput table ([`mod@crate::timing`]).
    pub timing: &'static str,
}

/// The limits of an architecture (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
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
    /// Blocks that one multiprocessor holds.
    pub blocks_per_multiprocessor: u32,
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
        by_threads.min(by_registers).min(by_shared).clamp(1, self.blocks_per_multiprocessor)
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::Arch;

    #[test]
    fn a_multiprocessor_holds_so_many_blocks_of_a_warp() {
        let held = |name: &str| name.parse::<Arch>().unwrap().limits().resident_blocks(32, 16, 0);
        assert_eq!(["sm_80", "sm_90a", "sm_100a", "sm_103a"].map(held), [32; 4]);
        assert_eq!(["sm_86", "sm_87"].map(held), [16; 2]);
        assert_eq!(["sm_89", "sm_120a", "sm_121a"].map(held), [24; 3]);
        // As many blocks of two warps have all threads, but on the chips with 16 blocks.
        let held = |name: &str| name.parse::<Arch>().unwrap().limits().resident_blocks(64, 16, 0);
        assert_eq!(["sm_80", "sm_86", "sm_89"].map(held), [32, 16, 24]);
    }
}
