//! Instructions that move data between memories, one row a form.
//!
//! A row's two layouts map (lane, unit) → *index in the instruction tile*, one for the side of the source and one for
//! the side of the destination: what lane `t` reads as its unit `v` on the source side lands where the other layout has
//! the same index. `unit_bits` says what a unit is. The layouts are the semantics: synthesis solves constraints
//! with them and the simulator moves data by them (Hexcute, section IV-A).
//!
//! Sources: PTX ISA 8.0, sections 9.7.8 and 9.7.13 (`ldmatrix`, `stmatrix`, `cp.async`).

use std::sync::LazyLock;

use tilewright_layout::Layout;

use crate::arch::{Arch, Memory};
use crate::atomic::AtomicOp;
use crate::features::{Feature, Features};
use crate::red::Reduction;

/// The part that each thread of a warp has in a copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CopyKind {
    /// Each thread moves its own bytes.
    PerThread,
    /// Each thread starts a copy of its own bytes that completes at a later wait (`cp.async`).
    Async,
    /// The warp moves 8×8 matrices of 16-bit elements together: lane `i` holds the address of row `i % 8` of matrix
    /// `i / 8` (`ldmatrix`, `stmatrix`).
    Matrix {
        /// Matrices moved by one instruction: 1, 2 or 4.
        count: u32,
        /// Transposes each matrix on its way.
        trans: bool,
    },
    /// The warp moves cells of tensor memory together, from an address that is the same in all lanes (`tcgen05.ld`, `tcgen05.st`).
    Tensor {
        /// Lanes of tensor memory.
        lanes: u32,
        /// Registers of a thread.
        registers: u32,
    },
    /// Each thread combines its own elements with those in memory, each as one step, and gets nothing back (`red`).
    Reduction(Reduction),
    /// Each thread changes one element of memory as one step and gets what was there (`atom`).
    Atomic(AtomicOp),
}

/// Blocks whose shared memory an instruction reaches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// That of the thread's block.
    Cta,
    /// That of any block of the cluster, at an address that `mapa` gives.
    Cluster,
}

/// An instruction that moves data.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyRow {
    /// The name in reports, e.g. `ldmatrix.x4`.
    pub name: &'static str,
    /// PTX mnemonic with all its qualifiers.
    pub mnemonic: &'static str,
    /// The part of each thread.
    pub kind: CopyKind,
    /// Blocks whose shared memory it reaches.
    pub scope: Scope,
    /// The memory that is read.
    pub src: Memory,
    /// The memory that is written.
    pub dst: Memory,
    /// Bytes at one address: the contiguous run in memory that one lane's address names. It must be aligned to its size.
    pub bytes: u32,
    /// Bits of the unit that the layouts count.
    pub unit_bits: u32,
    /// (lane, unit) → index in the instruction tile, source side.
    pub src_tv: Layout,
    /// (lane, unit) → index in the instruction tile, destination side.
    pub dst_tv: Layout,
    /// The features that an architecture must have.
    pub needs: Features,
}

impl CopyRow {
    /// True if the instruction involves the whole warp.
    pub fn is_collective(&self) -> bool {
        matches!(self.kind, CopyKind::Matrix { .. } | CopyKind::Tensor { .. })
    }

    /// 32-bit registers a lane needs for its fragment (sub-word fragments need one).
    pub fn registers(&self) -> u32 {
        match self.kind {
            CopyKind::Matrix { count, .. } => count,
            CopyKind::Tensor { registers, .. } => registers,
            _ => self.bytes.div_ceil(4),
        }
    }

    /// Bytes that one lane receives or gives.
    pub fn bytes_per_lane(&self) -> u32 {
        match self.kind {
            CopyKind::Matrix { count, .. } => 4 * count,
            CopyKind::Tensor { registers, .. } => 4 * registers,
            _ => self.bytes,
        }
    }

    /// The layout of the side that lies in memory.
    pub fn memory_tv(&self) -> &Layout {
        if self.src == Memory::Register { &self.dst_tv } else { &self.src_tv }
    }

    /// The layout of the register side.
    pub fn register_tv(&self) -> &Layout {
        if self.src == Memory::Register { &self.src_tv } else { &self.dst_tv }
    }
}

fn layout(text: &str) -> Layout {
    text.parse().expect("the layouts of instruction rows are literals that a test parses")
}

pub(crate) fn per_thread(src: Memory, dst: Memory, bytes: u32) -> CopyRow {
    let name = match (src, dst, bytes) {
        (Memory::Global, _, 16) => "ld.global.v4.b32",
        (Memory::Global, _, 8) => "ld.global.v2.b32",
        (Memory::Global, _, 4) => "ld.global.b32",
        (Memory::Global, _, 2) => "ld.global.u16",
        (Memory::Global, _, _) => "ld.global.u8",
        (_, Memory::Global, 16) => "st.global.v4.b32",
        (_, Memory::Global, 8) => "st.global.v2.b32",
        (_, Memory::Global, 4) => "st.global.b32",
        (_, Memory::Global, 2) => "st.global.u16",
        (_, Memory::Global, _) => "st.global.u8",
        (Memory::Shared, _, 16) => "ld.shared.v4.b32",
        (Memory::Shared, _, 8) => "ld.shared.v2.b32",
        (Memory::Shared, _, 4) => "ld.shared.b32",
        (Memory::Shared, _, 2) => "ld.shared.u16",
        (Memory::Shared, _, _) => "ld.shared.u8",
        (_, _, 16) => "st.shared.v4.b32",
        (_, _, 8) => "st.shared.v2.b32",
        (_, _, 4) => "st.shared.b32",
        (_, _, 2) => "st.shared.u16",
        (_, _, _) => "st.shared.u8",
    };
    // (T1,V bytes) -> byte
    let tv = layout(&format!("(1,{bytes}):(0,1)"));
    CopyRow {
        name,
        mnemonic: name,
        kind: CopyKind::PerThread,
        scope: Scope::Cta,
        src,
        dst,
        bytes,
        unit_bits: 8,
        src_tv: tv.clone(),
        dst_tv: tv,
        needs: Features::NONE,
    }
}

fn cp_async(bytes: u32) -> CopyRow {
    let (name, mnemonic) = match bytes {
        16 => ("cp.async.16", "cp.async.cg.shared.global"),
        8 => ("cp.async.8", "cp.async.ca.shared.global"),
        _ => ("cp.async.4", "cp.async.ca.shared.global"),
    };
    CopyRow {
        name,
        mnemonic,
        kind: CopyKind::Async,
        needs: Feature::CpAsync.into(),
        ..per_thread(Memory::Global, Memory::Shared, bytes)
    }
}

fn peer(bytes: u32) -> CopyRow {
    let name = match bytes {
        16 => "ld.shared::cluster.v4.b32",
        8 => "ld.shared::cluster.v2.b32",
        _ => "ld.shared::cluster.b32",
    };
    CopyRow {
        name,
        mnemonic: name,
        scope: Scope::Cluster,
        needs: Feature::Cluster.into(),
        ..per_thread(Memory::Shared, Memory::Register, bytes)
    }
}

fn matrix(store: bool, count: u32, trans: bool) -> CopyRow {
    let (name, mnemonic) = match (store, count, trans) {
        (false, 1, false) => ("ldmatrix.x1", "ldmatrix.sync.aligned.m8n8.x1.shared.b16"),
        (false, 2, false) => ("ldmatrix.x2", "ldmatrix.sync.aligned.m8n8.x2.shared.b16"),
        (false, _, false) => ("ldmatrix.x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        (false, 1, true) => ("ldmatrix.x1.trans", "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16"),
        (false, 2, true) => ("ldmatrix.x2.trans", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"),
        (false, _, true) => ("ldmatrix.x4.trans", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        (true, 1, false) => ("stmatrix.x1", "stmatrix.sync.aligned.m8n8.x1.shared.b16"),
        (true, 2, false) => ("stmatrix.x2", "stmatrix.sync.aligned.m8n8.x2.shared.b16"),
        (true, _, false) => ("stmatrix.x4", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        (true, 1, true) => ("stmatrix.x1.trans", "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16"),
        (true, 2, true) => ("stmatrix.x2.trans", "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16"),
        (true, _, true) => ("stmatrix.x4.trans", "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
    };
    // The instruction tile counts 64·matrix + 8·row + column, each matrix stored by rows.
    // (T(8·count),V8) -> (row, matrix, column): lane i has the address of a row.
    let memory_tv = layout(&format!("({},8):(8,1)", 8 * count));
    // (T32,V(2·count)) -> (M8·count,N8), transposed (N8,M8·count).
    let register_tv = if trans {
        layout(&format!("((4,8),(2,{count})):((16,1),(8,64))"))
    } else {
        layout(&format!("(32,(2,{count})):(2,(1,64))"))
    };
    let (src, dst, src_tv, dst_tv, needs) = if store {
        (Memory::Register, Memory::Shared, register_tv, memory_tv, Feature::StMatrix.into())
    } else {
        (Memory::Shared, Memory::Register, memory_tv, register_tv, Features::NONE)
    };
    CopyRow {
        name,
        mnemonic,
        kind: CopyKind::Matrix { count, trans },
        scope: Scope::Cta,
        src,
        dst,
        bytes: 16,
        unit_bits: 16,
        src_tv,
        dst_tv,
        needs,
    }
}

static ROWS: LazyLock<Vec<CopyRow>> = LazyLock::new(|| {
    let mut rows = Vec::new();
    for count in [4, 2, 1] {
        for trans in [false, true] {
            rows.push(matrix(false, count, trans));
            rows.push(matrix(true, count, trans));
        }
    }
    for bytes in [16, 8, 4] {
        rows.push(cp_async(bytes));
        rows.push(peer(bytes));
    }
    for bytes in [16, 8, 4, 2, 1] {
        rows.push(per_thread(Memory::Global, Memory::Register, bytes));
        rows.push(per_thread(Memory::Register, Memory::Global, bytes));
        rows.push(per_thread(Memory::Shared, Memory::Register, bytes));
        rows.push(per_thread(Memory::Register, Memory::Shared, bytes));
    }
    rows
});

/// Every copy instruction, collectives first, then by falling width: the order in which synthesis tries them.
pub fn copy_rows() -> &'static [CopyRow] {
    &ROWS
}

/// The rows of a scope that copy from `src` to `dst`, on any architecture, in the order of [`copy_rows`].
pub fn copies_anywhere(src: Memory, dst: Memory, scope: Scope) -> impl Iterator<Item = &'static CopyRow> {
    copy_rows().iter().filter(move |row| row.src == src && row.dst == dst && row.scope == scope)
}

/// The rows of a scope that copy from `src` to `dst` and exist on `arch`, in the order of [`copy_rows`].
pub fn copies(src: Memory, dst: Memory, scope: Scope, arch: Arch) -> impl Iterator<Item = &'static CopyRow> {
    copies_anywhere(src, dst, scope).filter(move |row| arch.has(row.needs))
}

/// The row with which each thread moves this many bytes of its own, on any architecture.
pub fn thread_copy(src: Memory, dst: Memory, scope: Scope, bytes: u32) -> Option<&'static CopyRow> {
    copies_anywhere(src, dst, scope).find(|row| row.kind == CopyKind::PerThread && row.bytes == bytes)
}

/// The row with this name.
pub fn copy_named(name: &str) -> Option<&'static CopyRow> {
    copy_rows().iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_every_row_cover_the_same_tile_exactly_once() {
        for row in copy_rows() {
            for side in [&row.src_tv, &row.dst_tv] {
                let mut image = side.image();
                image.sort_unstable();
                let n = row.src_tv.size();
                assert_eq!(image, (0..n).collect::<Vec<_>>(), "{}", row.name);
            }
            assert_eq!(row.src_tv.size(), row.dst_tv.size(), "{}", row.name);
            assert!(row.bytes.is_power_of_two());
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for row in copy_rows() {
            assert_eq!(copy_named(row.name), Some(row));
        }
    }

    #[test]
    fn every_pair_of_memories_has_a_scalar_row() {
        let pairs = [
            (Memory::Global, Memory::Register),
            (Memory::Register, Memory::Global),
            (Memory::Shared, Memory::Register),
            (Memory::Register, Memory::Shared),
        ];
        for (src, dst) in pairs {
            assert!(copies(src, dst, Scope::Cta, Arch::SM_80).any(|row| row.bytes == 1));
        }
        assert!(
            copies(Memory::Register, Memory::Shared, Scope::Cta, Arch::SM_80).all(|row| !row.is_collective())
        );
    }
}
