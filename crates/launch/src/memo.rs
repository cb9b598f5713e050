//! Results that are kept: found without a lock and without an allocation, while others add to them.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Lists of results.
const BUCKETS: usize = 64;

/// A result, and the one that was there before it.
struct Node<K, V> {
    key: K,
    value: V,
    next: *const Node<K, V>,
}

/// Results by keys. They are only added, up to a number, and live as long as the table does: who reads one needs no lock.
pub struct Memo<K, V> {
    buckets: [AtomicPtr<Node<K, V>>; BUCKETS],
    len: AtomicUsize,
    most: usize,
}

// SAFETY: the nodes are owned by the table, and are only read once they are in it.
unsafe impl<K: Send, V: Send> Send for Memo<K, V> {}
// SAFETY: as above; several threads read keys and values, and any thread adds or drops them.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Memo<K, V> {}

/// A number of a sequence of integers, for [`Memo`].
#[inline]
pub fn hash(values: impl IntoIterator<Item = u64>) -> u64 {
    // Multiples of an odd constant near 2^64/φ, whose upper bits depend on all bits of the values.
    values
        .into_iter()
        .fold(0, |sum: u64, value| (sum.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl<K, V> Memo<K, V> {
    /// An empty table of at most so many results.
    pub fn new(most: usize) -> Self {
        Memo { buckets: [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS], len: AtomicUsize::new(0), most }
    }

    fn bucket(&self, hash: u64) -> &AtomicPtr<Node<K, V>> {
        &self.buckets[(hash >> 58) as usize % BUCKETS]
    }

    /// The result for the key with this number ([`hash`]) for which the function says yes.
    pub fn get(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<&V> {
        let mut at: *const Node<K, V> = self.bucket(hash).load(Ordering::Acquire);
        // SAFETY: nodes in a list are complete (they were published by a release), are never changed, and live as long as `self`.
        while let Some(node) = unsafe { at.as_ref() } {
            if is(&node.key) {
                return Some(&node.value);
            }
            at = node.next;
        }
        None
    }

    /// Adds a result for a key with this number. Of two threads that add one for the same key at the same time, both may succeed; both results are right.
    ///
    /// # Errors
    ///
    /// The result, if the table is full.
    pub fn insert(&self, hash: u64, key: K, value: V) -> Result<&V, V> {
        if self.len.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.len.fetch_sub(1, Ordering::Relaxed);
            return Err(value);
        }
        let bucket = self.bucket(hash);
        let node = Box::into_raw(Box::new(Node { key, value, next: ptr::null() }));
        let mut first = bucket.load(Ordering::Acquire);
        loop {
            // SAFETY: nobody else has the node yet.
            unsafe { (*node).next = first };
            match bucket.compare_exchange_weak(first, node, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: the node is never changed again, and lives as long as `self`.
                Ok(_) => return Ok(unsafe { &(*node).value }),
                Err(now) => first = now,
            }
        }
    }

    /// True of a table that takes one more result.
    pub fn has_room(&self) -> bool {
        self.len() < self.most
    }

    /// True of a table without results.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of results.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

impl<K, V> Drop for Memo<K, V> {
    fn drop(&mut self) {
        for bucket in &mut self.buckets {
            let mut at = *bucket.get_mut();
            while !at.is_null() {
                // SAFETY: `insert` made the node of a box, and nobody has the table any more.
                let node = unsafe { Box::from_raw(at) };
                at = node.next.cast_mut();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_found_until_it_is_full() {
        let memo: Memo<u64, String> = Memo::new(1000);
        for key in 0..1000u64 {
            assert!(memo.get(hash([key]), |k| *k == key).is_none());
            assert_eq!(memo.insert(hash([key]), key, key.to_string()).unwrap(), &key.to_string());
        }
        assert_eq!(memo.insert(hash([1000]), 1000, String::new()), Err(String::new()));
        assert_eq!(memo.len(), 1000);
        assert!((0..1000).all(|key| memo.get(hash([key]), |k| *k == key) == Some(&key.to_string())));
    }

    #[test]
    fn threads_add_and_read_at_once() {
        let memo: Memo<u64, u64> = Memo::new(4000);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let memo = &memo;
                scope.spawn(move || {
                    for i in 0..1000 {
                        let key = i * 4 + thread;
                        memo.insert(hash([key]), key, key * 3).unwrap();
                        assert_eq!(memo.get(hash([key]), |k| *k == key), Some(&(key * 3)));
                        if let Some(other) = memo.get(hash([key ^ 1]), |k| *k == key ^ 1) {
                            assert_eq!(*other, (key ^ 1) * 3);
                        }
                    }
                });
            }
        });
        assert!((0..4000).all(|key| memo.get(hash([key]), |k| *k == key) == Some(&(key * 3))));
    }
}
