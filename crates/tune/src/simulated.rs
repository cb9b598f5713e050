//! A simulated device for tests: its times are those of a model with other numbers, times what no estimate knows.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::Chip;
use tilewright_kernels::model::{Model, Numbers, Quantity};
use tilewright_machine::Arch;

use crate::problem::{Candidate, Problem, sha256};

/// Parts by which a number of the simulated device differs from the built-in one, at most; by which what no estimate knows changes the time
/// of a family, of a value of a parameter, and of a value in a family; and by which a measurement is off.
const NUMBERS: f64 = 0.2;
const FAMILY: f64 = 0.03;
const VALUE: f64 = 0.003;
const BOTH: f64 = 0.0015;
const NOISE: f64 = 0.002;

/// A device that is simulated.
pub(crate) struct Simulated<'a> {
    problem: &'a Problem,
    model: Model,
    seed: u64,
    known: HashMap<Candidate, f64>,
}

impl<'a> Simulated<'a> {
    /// A device that belongs to a seed, for a problem.
    pub fn new(problem: &'a Problem, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut model = Model::built_in().clone();
        for number in Numbers::ALL {
            let factor = 1.0 + NUMBERS * (2.0 * rng.random::<f64>() - 1.0);
            let value = number.of(model.numbers());
            // A factor near one is no more wrong than what it says.
            let other = match number.unit {
                Quantity::Factor => 1.0 + (value - 1.0) * factor,
                _ => value * factor,
            };
            model = model.with(number, other, "simulated");
        }
        Simulated { problem, model, seed, known: HashMap::new() }
    }

    /// A number between −1 and 1 that belongs to a text.
    fn drawn(&self, text: &str) -> f64 {
        let digits = &sha256(&format!("{} {text}", self.seed))[..8];
        f64::from(u32::from_str_radix(digits, 16).unwrap()) / f64::from(u32::MAX) * 2.0 - 1.0
    }

    /// The time without noise.
    pub fn time(&mut self, candidate: &Candidate) -> f64 {
        if let Some(time) = self.known.get(candidate) {
            return *time;
        }
        let tuning = self.problem.tuning();
        let chip = Chip { arch: Arch::SM_90A, model: &self.model };
        let point = (tuning.point)(chip, self.problem.sizes(), &candidate.given()).unwrap();
        let family = |(name, _): &&(String, String)| tuning.family.contains(&name.as_str());
        let family: Vec<&(String, String)> = candidate.0.iter().filter(family).collect();
        let family = format!("{family:?}");
        let mut log = FAMILY * self.drawn(&family);
        for (name, _) in tuning.secondary {
            let value = format!("{name}={:?}", candidate.value(name));
            log += VALUE * self.drawn(&value) + BOTH * self.drawn(&format!("{family} {value}"));
        }
        let time = point.estimate * log.exp();
        self.known.insert(candidate.clone(), time);
        time
    }

    /// The time with noise.
    pub fn measured(&mut self, candidate: &Candidate) -> f64 {
        let noise = self.drawn(&format!("noise {candidate}"));
        self.time(candidate) * (1.0 + NOISE * noise)
    }
}
