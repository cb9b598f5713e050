//! A measurer without a device, and problems for it.
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use tilewright_compiler::Kernel;
use tilewright_kernels::Launch;
use tilewright_machine::Arch;
use tilewright_tune::{Conditions, Load, Measurer, Problem, Settings, Target, TuneError};

/// Gives the time that a function has for the printed program.
pub struct Fake {
    pub time: fn(&str) -> f64,
    pub refuse: fn(&str) -> Option<String>,
    pub difference: Option<String>,
    pub programs: BTreeMap<usize, String>,
    pub turns: BTreeMap<usize, usize>,
    pub compared: Vec<(usize, usize)>,
}

impl Fake {
    pub fn new(time: fn(&str) -> f64) -> Self {
        Fake {
            time,
            refuse: |_| None,
            difference: None,
            programs: BTreeMap::new(),
            turns: BTreeMap::new(),
            compared: Vec::new(),
        }
    }
}

impl Measurer for Fake {
    fn conditions(&self) -> Conditions {
        Conditions { l2: "dirty".to_string(), rest_seconds: 0.0 }
    }

    fn load(&mut self, id: usize, kernels: Vec<Kernel>, _: &Launch) -> Result<Load, TuneError> {
        let text = kernels[0].program().to_string();
        if let Some(reason) = (self.refuse)(&text) {
            return Ok(Load::Refused(reason));
        }
        self.programs.insert(id, text);
        Ok(Load::Ready)
    }

    fn time(&mut self, id: usize) -> Result<f64, TuneError> {
        let turns = self.turns.entry(id).or_default();
        *turns += 1;
        // A little noise that is the same in every run.
        let noise = 1.0 + 0.0005 * ((*turns * 7 + id * 3) % 5) as f64;
        Ok((self.time)(&self.programs[&id]) * noise)
    }

    fn difference(&mut self, id: usize, other: usize) -> Result<Option<String>, TuneError> {
        self.compared.push((id, other));
        Ok(self.difference.clone())
    }
}

pub fn problem(operator: &str, [m, n, k]: [i64; 3], pinned: &[(&str, &str)]) -> Problem {
    let sizes = [("m", m), ("n", n), ("k", k)].map(|(name, size)| (name.to_string(), size));
    Problem::new(operator, &sizes.into(), pinned).unwrap()
}

pub fn gpu() -> Target {
    Target::new("NVIDIA Fake", Arch::SM_90A)
}

pub fn quick() -> Settings {
    Settings { top: 4, budget: Duration::from_secs(600), ..Settings::default() }
}

/// 300 µs, less 100 for 96 columns and less 50 for three stages: what the estimate does not know.
pub fn columns_96(program: &str) -> f64 {
    let has = |what: &str| program.contains(what);
    300.0 - if has("BN = 96") { 100.0 } else { 0.0 } - if has("STAGES = 3") { 50.0 } else { 0.0 }
}
