//! The choice of the next word on the host.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A way to choose words by their scores.
#[derive(Clone, Debug)]
pub struct Sampler {
    temperature: f32,
    top_p: f32,
    rng: ChaCha8Rng,
}

impl Sampler {
    /// Words by their probabilities at a temperature, of the most probable ones that have `top_p` together. A temperature of 0 takes the most
    /// probable word.
    pub fn new(temperature: f32, top_p: f32, seed: u64) -> Self {
        Sampler { temperature, top_p, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The next word.
    pub fn next(&mut self, scores: &[f32]) -> u32 {
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        let score = |word: u32| scores[word as usize];
        let largest = order.iter().copied().reduce(|a, b| if score(b) > score(a) { b } else { a });
        let Some(largest) = largest else { return 0 };
        if self.temperature <= 0.0 {
            return largest;
        }
        order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        let weight = |word: u32| ((score(word) - score(largest)) / self.temperature).exp();
        let total: f32 = order.iter().map(|word| weight(*word)).sum();
        // The shortest list of the most probable words that has `top_p` together.
        let mut sum = 0.0;
        let enough = order.iter().position(|word| {
            sum += weight(*word);
            sum >= self.top_p * total
        });
        let kept = &order[..enough.map_or(order.len(), |last| last + 1)];
        let share = (self.rng.next_u32() >> 8) as f32 / (1u32 << 24) as f32;
        let mut left = share * kept.iter().map(|word| weight(*word)).sum::<f32>();
        for word in kept {
            left -= weight(*word);
            if left < 0.0 {
                return *word;
            }
        }
        kept.last().copied().unwrap_or(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_samplers_take_the_largest_and_the_first_of_equals() {
        assert_eq!(Sampler::new(0.0, 1.0, 0).next(&[1.0, 3.0, 3.0, 2.0]), 1);
    }

    #[test]
    fn samples_follow_their_probabilities() {
        let scores = [0f32, 2f32.ln(), -10.0, 1f32.ln()];
        let mut sampler = Sampler::new(1.0, 0.9, 1);
        let mut counts = [0; 4];
        for _ in 0..4000 {
            counts[sampler.next(&scores) as usize] += 1;
        }
        assert_eq!(counts[2], 0, "a word beyond `top_p`");
        assert!((1850..2150).contains(&counts[1]), "{counts:?}");
        let mut narrow = Sampler::new(1.0, 0.4, 1);
        assert!((0..100).all(|_| narrow.next(&scores) == 1));
    }
}
