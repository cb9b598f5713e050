//! Random choices, the same on every machine for the same seed.

/// A generator of random numbers: SplitMix64 (Steele, Lea, Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of a job of a campaign.
    pub fn of(seed: u64, job: u64) -> Dice {
        let mut dice = Dice(seed ^ 0x6a09_e667_f3bc_c909);
        let first = dice.word();
        Dice(first ^ job.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.word() % n as u64) as usize }
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of a list that is not empty.
    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_jobs_differ() {
        let mut dice = Dice::of(1, 2);
        for _ in 0..1000 {
            assert!((-3..=4).contains(&dice.range(-3, 4)));
            assert!(dice.below(7) < 7);
        }
        assert_eq!(Dice::of(1, 2).word(), Dice::of(1, 2).word());
        assert_ne!(Dice::of(1, 2).word(), Dice::of(1, 3).word());
        assert_ne!(Dice::of(1, 2).word(), Dice::of(2, 2).word());
    }
}
