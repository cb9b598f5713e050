//! Results that are kept: found without a lock and without an allocation, while others add to them and take their places.
//!
//! A table is made of sets of a few places, and a key's number says which set is its own. In a full set a result takes the place of the one that was used the longest ago, unless
//! somebody reads that. Who finds a result waits for nobody: a place is read, or changed, or left alone. Only who adds the first results of a set may wait, for its memory.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Places of a set.
const WAYS: usize = 16;
/// The mark of a place whose result is being changed, beside the number of its readers.
const CHANGING: usize = 1 << (usize::BITS - 1);
/// The number of a place without a result.
const NONE: u64 = 0;

/// A place: a result with its key, once there is one.
struct Place<K, V> {
    /// The number of readers, and the mark.
    readers: AtomicUsize,
    result: UnsafeCell<Option<Box<(K, V)>>>,
}

struct Set<K, V> {
    /// By place the number of its key, beside each other, for they are looked through. Places are filled in order, and never become empty.
    numbers: [AtomicU64; WAYS],
    /// By place the time of its last use.
    used: [AtomicU64; WAYS],
    /// The time, from 1 on, which moves on when another place than the last is used.
    time: AtomicU64,
    /// Numbers of keys that were asked for last while there was no room, and the turn of the next.
    passed: [AtomicU64; WAYS],
    turn: AtomicUsize,
    places: [Place<K, V>; WAYS],
}

/// A set, once there is a result in it.
type Lazy<K, V> = OnceLock<Box<Set<K, V>>>;

/// Results by keys, of which a number is kept: those that were used last, of the keys that share a set.
pub struct Memo<K, V> {
    sets: Box<[Lazy<K, V>]>,
    /// Places of a set that are used.
    ways: usize,
    len: AtomicUsize,
}

// SAFETY: the results are owned by the table; whoever has a `Reading` reads one, and only who took a place that nobody reads changes or drops what is there (`Memo::insert`).
unsafe impl<K: Send, V: Send> Send for Memo<K, V> {}
// SAFETY: as above; several threads read keys and values, and any thread adds or drops them.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Memo<K, V> {}

/// A result that is being read: it stays until this ends.
pub struct Reading<'m, K, V> {
    /// Counted as read.
    place: &'m Place<K, V>,
}

/// A number of a sequence of integers, for [`Memo`].
#[inline]
pub fn hash(values: impl IntoIterator<Item = u64>) -> u64 {
    // Multiples of an odd constant near 2^64/φ, whose upper bits depend on all bits of the values.
    values
        .into_iter()
        .fold(0, |sum: u64, value| (sum.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl<K, V> Place<K, V> {
    const fn new() -> Self {
        Place { readers: AtomicUsize::new(0), result: UnsafeCell::new(None) }
    }

    /// The place, read; `None` while its result is being changed.
    #[inline]
    fn read(&self) -> Option<Reading<'_, K, V>> {
        // What was written ahead of the end of a change is seen behind this.
        if self.readers.fetch_add(1, Ordering::Acquire) & CHANGING != 0 {
            self.readers.fetch_sub(1, Ordering::Release);
            return None;
        }
        Some(Reading { place: self })
    }
}

impl<K, V> Reading<'_, K, V> {
    /// The key and the value; `None` of a place that never had any.
    #[inline]
    fn result(&self) -> Option<&(K, V)> {
        // SAFETY: nobody changes the result while the place has a reader (`Memo::insert`), and this is one until it is dropped.
        unsafe { &*self.place.result.get() }.as_deref()
    }
}

impl<K, V> Deref for Reading<'_, K, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        match self.result() {
            Some((_, value)) => value,
            None => unreachable!("places that are handed out have a result"),
        }
    }
}

impl<K, V> Drop for Reading<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // What was read is read before anybody changes it.
        self.place.readers.fetch_sub(1, Ordering::Release);
    }
}

impl<K, V> Set<K, V> {
    const fn new() -> Self {
        Set {
            numbers: [const { AtomicU64::new(NONE) }; WAYS],
            used: [const { AtomicU64::new(0) }; WAYS],
            time: AtomicU64::new(1),
            passed: [const { AtomicU64::new(NONE) }; WAYS],
            turn: AtomicUsize::new(0),
            places: [const { Place::new() }; WAYS],
        }
    }

    /// Notes that a place is used. Of two threads at the same time both may be the last: an order of uses that nobody could tell.
    #[inline]
    fn use_now(&self, way: usize) {
        let time = self.time.load(Ordering::Relaxed);
        if self.used[way].load(Ordering::Relaxed) != time {
            self.time.store(time + 1, Ordering::Relaxed);
            self.used[way].store(time + 1, Ordering::Relaxed);
        }
    }

    /// Takes a place that nobody reads: an empty one, or the one that was used the longest ago. `None` where all are read or changed.
    fn take(&self, ways: usize) -> Option<usize> {
        let mut tried = [false; WAYS];
        for _ in 0..ways {
            let age = |way: &usize| match self.numbers[*way].load(Ordering::Relaxed) {
                NONE => (0, *way),
                _ => (1 + self.used[*way].load(Ordering::Relaxed), *way),
            };
            let oldest = (0..ways).filter(|way| !tried[*way]).min_by_key(age)?;
            // Readers that have ended have read what they did; those that come see the mark.
            let taken = self.places[oldest].readers.compare_exchange(
                0,
                CHANGING,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return Some(oldest);
            }
            tried[oldest] = true;
        }
        None
    }
}

impl<K, V> Memo<K, V> {
    /// An empty table of at most so many results.
    pub fn new(most: usize) -> Self {
        let ways = most.min(WAYS);
        let sets = most.checked_div(ways).unwrap_or(0);
        Memo { sets: (0..sets).map(|_| OnceLock::new()).collect(), ways, len: AtomicUsize::new(0) }
    }

    /// The set of a number, and the number as places have it; no set in a table of no results.
    #[inline]
    fn set(&self, hash: u64) -> (Option<&Lazy<K, V>>, u64) {
        // The upper half of the number, as a part of the number of sets.
        let at = ((hash >> 32) * self.sets.len() as u64) >> 32;
        (self.sets.get(at as usize), hash.max(NONE + 1))
    }

    /// The result for the key with this number ([`hash`]) for which the function says yes.
    #[inline]
    pub fn get(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<Reading<'_, K, V>> {
        let (set, number) = self.set(hash);
        let set = set?.get()?;
        for (way, known) in set.numbers[..self.ways].iter().enumerate() {
            let known = known.load(Ordering::Relaxed);
            if known == NONE {
                break;
            }
            if known != number {
                continue;
            }
            // A result that is being changed is one that is no longer there, or not yet.
            let Some(reading) = set.places[way].read() else { continue };
            if reading.result().is_some_and(|(key, _)| is(key)) {
                set.use_now(way);
                return Some(reading);
            }
        }
        None
    }

    /// True if it is worth to add a result for the key with this number: there is room, or the key is one of the last that there was no room for. Else it is noted, so that a result
    /// takes another's place when it is asked for twice.
    pub fn wants(&self, hash: u64) -> bool {
        let (set, number) = self.set(hash);
        let Some(set) = set else { return false };
        let Some(set) = set.get() else { return true };
        let is = |wanted: u64| move |known: &AtomicU64| known.load(Ordering::Relaxed) == wanted;
        if set.numbers[..self.ways].iter().any(is(NONE)) || set.passed.iter().any(is(number)) {
            return true;
        }
        let turn = set.turn.fetch_add(1, Ordering::Relaxed) % WAYS;
        set.passed[turn].store(number, Ordering::Relaxed);
        false
    }

    /// Adds a result for a key with this number, in a full set in the place of the one that was used the longest ago. Of two threads that add one for the same key at the same time, both may
    /// succeed; both results are right.
    ///
    /// # Errors
    ///
    /// The result, if others use all places that it could have.
    pub fn insert(&self, hash: u64, key: K, value: V) -> Result<Reading<'_, K, V>, V> {
        let (set, number) = self.set(hash);
        let Some(set) = set else { return Err(value) };
        let set = set.get_or_init(|| Box::new(Set::new()));
        let Some(way) = set.take(self.ways) else { return Err(value) };
        let place = &set.places[way];
        // SAFETY: the place has the mark, and had no reader when it got it: whoever comes goes away without a look (`Place::read`), and nobody else takes it (`Set::take`).
        let before = unsafe { (*place.result.get()).replace(Box::new((key, value))) };
        set.numbers[way].store(number, Ordering::Relaxed);
        set.use_now(way);
        // The mark goes, and a reader is there: the one that is returned.
        place.readers.fetch_sub(CHANGING - 1, Ordering::Release);
        if before.is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Reading { place })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Keys with one number share a set.
    const SHARED: u64 = 5;

    fn has(memo: &Memo<u64, u64>, key: u64) -> bool {
        memo.get(SHARED, |known| *known == key).is_some_and(|value| *value == key * 3)
    }

    #[test]
    fn what_is_added_is_found_while_there_is_room() {
        let memo: Memo<u64, String> = Memo::new(1024);
        for key in 0..100u64 {
            assert!(memo.get(hash([key]), |k| *k == key).is_none());
            let kept = memo.insert(hash([key]), key, key.to_string()).ok().unwrap();
            assert_eq!(*kept, key.to_string());
        }
        assert_eq!(memo.len(), 100);
        let found = |key| memo.get(hash([key]), |k| *k == key).is_some_and(|value| *value == key.to_string());
        assert!((0..100).all(found));
        let none: Memo<u64, u64> = Memo::new(0);
        assert!(none.insert(SHARED, 1, 3).is_err() && !none.wants(SHARED) && none.is_empty());
    }

    #[test]
    fn what_was_used_the_longest_ago_gives_way() {
        let memo: Memo<u64, u64> = Memo::new(3);
        for key in 0..3 {
            drop(memo.insert(SHARED, key, key * 3));
        }
        assert!(has(&memo, 0) && has(&memo, 2) && has(&memo, 0));
        drop(memo.insert(SHARED, 3, 9));
        assert_eq!([0, 1, 2, 3].map(|key| has(&memo, key)), [true, false, true, true]);
        // The last uses were of 0, 2 and 3.
        drop(memo.insert(SHARED, 4, 12));
        assert_eq!([0, 2, 3, 4].map(|key| has(&memo, key)), [false, true, true, true]);
        assert_eq!(memo.len(), 3);
    }

    #[test]
    fn what_is_read_stays_until_it_was_read() {
        let memo: Memo<u64, Arc<u64>> = Memo::new(2);
        let first = memo.insert(SHARED, 0, Arc::new(7)).ok().unwrap();
        drop(memo.insert(SHARED, 1, Arc::new(8)));
        // The first was used the longest ago, and is read: the second gives way.
        let second = memo.insert(SHARED, 2, Arc::new(9)).ok().unwrap();
        assert!(memo.get(SHARED, |key| *key == 1).is_none());
        assert_eq!(memo.insert(SHARED, 3, Arc::new(10)).err(), Some(Arc::new(10)));
        let value = Arc::clone(&first);
        drop(first);
        drop(memo.insert(SHARED, 3, Arc::new(10)));
        assert_eq!((Arc::strong_count(&value), **second), (1, 9));
    }

    #[test]
    fn what_is_asked_for_once_takes_no_place() {
        let memo: Memo<u64, u64> = Memo::new(2);
        let numbers = [1u64, 2, 3, 4].map(|key| key << 8);
        for number in &numbers[..2] {
            assert!(memo.wants(*number));
            drop(memo.insert(*number, *number, 0));
        }
        assert!(!memo.wants(numbers[2]) && !memo.wants(numbers[3]));
        assert!(memo.wants(numbers[2]) && memo.wants(numbers[3]));
    }

    #[test]
    fn threads_add_and_read_at_once() {
        const THREADS: u64 = 4;
        let rounds: u64 = if cfg!(miri) { 40 } else { 2000 };
        // Two sets: keys come back long after their results gave way.
        let memo: Memo<u64, Box<u64>> = Memo::new(2 * WAYS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let memo = &memo;
                scope.spawn(move || {
                    for i in 0..rounds {
                        let key = (i * 7 + thread * 13) % 60;
                        let number = hash([key]);
                        match memo.get(number, |known| *known == key) {
                            Some(kept) => assert_eq!(**kept, key * 3),
                            None => match memo.insert(number, key, Box::new(key * 3)) {
                                Ok(kept) => assert_eq!(**kept, key * 3),
                                Err(value) => assert_eq!(*value, key * 3),
                            },
                        }
                    }
                });
            }
        });
        assert!(memo.len() <= 2 * WAYS);
    }
}
