//! The address of shared memory, and global memory: buffers of bytes that blocks read and write in parallel.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The address of the shared window in its block. Not 0, so that code that forgets to add it is out of bounds; the rank in
/// the cluster is added from bit 24 on.
pub(crate) const SHARED_BASE: u32 = 1024;

/// The buffer's part of a virtual address starts at this bit, so that each buffer has 2⁴⁰ bytes of its own.
const BUFFER_SHIFT: u32 = 40;

/// A buffer of one [`GlobalMemory`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, serde::Serialize)]
pub struct BufferId(u32);

impl BufferId {
    /// The number of the buffer: 0 for the first of its memory.
    pub fn index(self) -> u32 {
        self.0
    }

    /// The virtual address of its first byte.
    pub(crate) fn address(self) -> u64 {
        (u64::from(self.0) + 1) << BUFFER_SHIFT
    }
}

#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: usize,
    /// True if no launch that the simulated one may overlap writes it.
    constant: bool,
    words: Vec<AtomicU32>,
    /// Held while two words are changed as one.
    pairs: Mutex<()>,
}

impl Buffer {
    pub(crate) fn size(&self) -> u64 {
        self.bytes as u64
    }

    /// True if no launch that the simulated one may overlap writes it.
    pub(crate) fn is_constant(&self) -> bool {
        self.constant
    }

    /// Word `index`; 0 outside.
    pub(crate) fn word(&self, index: usize) -> u32 {
        self.words.get(index).map_or(0, |w| w.load(Ordering::Relaxed))
    }

    /// Replaces word `index`; nothing outside.
    pub(crate) fn set_word(&self, index: usize, value: u32) {
        if let Some(word) = self.words.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Replaces the bits of `mask` in word `index`, leaving the others to threads that write them meanwhile.
    pub(crate) fn set_bits(&self, index: usize, mask: u32, value: u32) {
        self.update(index, |old| (old & !mask) | (value & mask));
    }

    /// Replaces word `index` by a function of it, as one step; nothing outside.
    pub(crate) fn update(&self, index: usize, f: impl Fn(u32) -> u32) {
        let Some(word) = self.words.get(index) else { return };
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) = word.compare_exchange_weak(old, f(old), Ordering::Relaxed, Ordering::Relaxed) {
            old = now;
        }
    }

    /// Replaces words `index` and the next by a function of both, the first the lower half, as one step; nothing outside.
    pub(crate) fn update_pair(&self, index: usize, f: impl Fn(u64) -> u64) {
        let Some([low, high]) = self.words.get(index..index + 2) else { return };
        let _held = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let old = u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32;
        let new = f(old);
        low.store(new as u32, Ordering::Relaxed);
        high.store((new >> 32) as u32, Ordering::Relaxed);
    }

    /// Reads bytes from an offset on; those outside are left as they are.
    pub(crate) fn load(&self, offset: u64, to: &mut [u8]) {
        let mut at = offset as usize;
        let mut rest = to;
        while !rest.is_empty() && at < self.bytes {
            let bytes = self.word(at / 4).to_le_bytes();
            let len = (4 - at % 4).min(rest.len());
            rest[..len].copy_from_slice(&bytes[at % 4..at % 4 + len]);
            rest = &mut rest[len..];
            at += len;
        }
    }

    /// Writes bytes from an offset on; those outside are dropped.
    pub(crate) fn store(&self, offset: u64, from: &[u8]) {
        let mut at = offset as usize;
        let mut rest = &from[..from.len().min(self.bytes.saturating_sub(at))];
        while !rest.is_empty() {
            let len = (4 - at % 4).min(rest.len());
            let value = rest[..len].iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
            let shift = 8 * (at % 4) as u32;
            match len {
                4 => self.set_word(at / 4, value),
                _ => self.set_bits(at / 4, (u32::MAX >> (32 - 8 * len)) << shift, value << shift),
            }
            rest = &rest[len..];
            at += len;
        }
    }
}

/// The global memory of a simulated GPU. Blocks of a running kernel read and write it in parallel.
#[derive(Debug, Default)]
pub struct GlobalMemory {
    buffers: Vec<Option<Buffer>>,
}

impl GlobalMemory {
    /// A memory with no buffer.
    pub fn new() -> Self {
        GlobalMemory::default()
    }

    /// A new buffer of `bytes` zeros.
    pub fn alloc(&mut self, bytes: usize) -> BufferId {
        let words = (0..bytes.div_ceil(4)).map(|_| AtomicU32::new(0)).collect();
        self.buffers.push(Some(Buffer { bytes, constant: false, words, pairs: Mutex::new(()) }));
        BufferId((self.buffers.len() - 1) as u32)
    }

    /// A new buffer of pointers to buffers, which no launch writes.
    pub fn alloc_pointers(&mut self, buffers: &[BufferId]) -> BufferId {
        let id = self.alloc(8 * buffers.len());
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.address().to_le_bytes()).collect();
        self.write(id, &bytes);
        self.mark_constant(id);
        id
    }

    /// From now on no launch that a simulated one may overlap writes the buffer, so that kernels may read it before they wait for the
    /// launches before them (see [`Config::overlaps`](crate::Config::overlaps)). Does nothing where the buffer is freed or another memory's.
    pub fn mark_constant(&mut self, buffer: BufferId) {
        if let Some(Some(buffer)) = self.buffers.get_mut(buffer.0 as usize) {
            buffer.constant = true;
        }
    }

    /// Releases a buffer; its number is not given out again, so a stale pointer is out of bounds.
    pub fn free(&mut self, id: BufferId) {
        if let Some(buffer) = self.buffers.get_mut(id.0 as usize) {
            *buffer = None;
        }
    }

    /// True if no launch that the simulated one may overlap writes the buffer of this number.
    pub(crate) fn is_constant(&self, buffer: u32) -> bool {
        self.buffers.get(buffer as usize).and_then(Option::as_ref).is_some_and(Buffer::is_constant)
    }

    /// The size of a buffer in bytes; `None` for one that this memory does not hold.
    pub fn size(&self, id: BufferId) -> Option<usize> {
        self.buffer(id.0).map(|b| b.bytes)
    }

    /// Replaces the first `data.len()` bytes of a buffer. What lies beyond its end is dropped, as is everything for a
    /// buffer that this memory does not hold ([`size`](Self::size) tells).
    pub fn write(&self, id: BufferId, data: &[u8]) {
        if let Some(buffer) = self.buffer(id.0) {
            buffer.store(0, data);
        }
    }

    /// The bytes of a buffer; none for one that this memory does not hold.
    pub fn read(&self, id: BufferId) -> Vec<u8> {
        let Some(buffer) = self.buffer(id.0) else { return Vec::new() };
        let mut bytes: Vec<u8> =
            buffer.words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(buffer.bytes);
        bytes
    }

    fn buffer(&self, index: u32) -> Option<&Buffer> {
        self.buffers.get(index as usize)?.as_ref()
    }

    /// The buffer that a virtual address points into or beyond, its number, and the offset in it.
    pub(crate) fn locate(&self, address: u64) -> Option<(&Buffer, u32, u64)> {
        let index = u32::try_from((address >> BUFFER_SHIFT).checked_sub(1)?).ok()?;
        let offset = address & ((1 << BUFFER_SHIFT) - 1);
        Some((self.buffer(index)?, index, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_sizes_need_not_be_words() {
        let mut memory = GlobalMemory::new();
        let (a, b) = (memory.alloc(7), memory.alloc(4));
        memory.write(a, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(memory.read(a), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(memory.read(b), [0; 4]);
        memory.write(a, &[9]);
        assert_eq!(memory.read(a), [9, 2, 3, 4, 5, 6, 7]);
        memory.free(a);
        assert_eq!((memory.size(a), memory.size(b)), (None, Some(4)));
        assert!(memory.read(a).is_empty());
    }

    #[test]
    fn addresses_lead_back_to_their_buffer() {
        let mut memory = GlobalMemory::new();
        let _first = memory.alloc(16);
        let id = memory.alloc(16);
        let (buffer, index, offset) = memory.locate(id.address() + 12).unwrap();
        assert_eq!((buffer.size(), index, offset), (16, 1, 12));
        assert!(memory.locate(12).is_none());
        assert!(memory.locate(u64::MAX).is_none());
    }
}
