//! Corrections of estimates by measurements: a Gaussian process over the logarithm of measured times as multiples of their estimates
//! (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapter 2). Two configurations are wrong alike as far as
//! their parameters and sizes are alike.

use std::collections::BTreeMap;

use tilewright_kernels::{Estimate, Part, Resource, Tuning};

use crate::problem::Candidate;

/// Standard deviations of the logarithm of measured over estimated time: of what is common to a device, of what configurations have in common at
/// sizes, of each part of an estimate, of each parameter in which families differ, of each that is varied around a good configuration, of
/// a configuration alone, and of a measurement. Chosen by how well the records of an H200 predict each other and by searches with simulated timings.
const OF_DEVICE: f64 = 0.3;
const COMMON: f64 = 0.05;
const OF_PART: f64 = 0.1;
const OF_FAMILY: f64 = 0.02;
const OF_SECONDARY: f64 = 0.006;
const ALONE: f64 = 0.003;
const NOISE: f64 = 0.003;

/// Binary logarithms of sizes over which errors of estimates are alike, but for those that are common to a device: by 1/e after half a doubling. Where records of other
/// sizes said more, choices for 100 products of an H200 were 3.0 % slower than the tuned ones, and 2.2 % with this.
const SIZES_ALIKE: f64 = 0.5;

/// Binary logarithms of numbers as values of a parameter over which they are alike.
const VALUES_ALIKE: f64 = 0.5;

/// The sharpness with which a step's time belongs to what wants most of it.
const SHARPNESS: f64 = 6.0;

/// A configuration at sizes on a device.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Place {
    candidate: Candidate,
    /// The device, where it is another than the one at hand.
    elsewhere: Option<String>,
    /// Binary logarithms.
    sizes: Vec<f64>,
    /// The parts of the estimate, as shares of it.
    shares: Vec<f64>,
}

impl Place {
    pub fn new(candidate: Candidate, sizes: &BTreeMap<String, i64>, estimate: &Estimate) -> Self {
        let sizes = sizes.values().map(|size| (*size as f64).log2()).collect();
        Place { candidate, elsewhere: None, sizes, shares: shares(estimate) }
    }

    /// The same on another device.
    pub fn on(self, device: &str) -> Self {
        Place { elsewhere: Some(device.to_string()), ..self }
    }

    /// The configuration.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The part of the errors of estimates that two places have in common for their sizes, from 0 to 1.
    pub fn nearness(&self, other: &Place) -> f64 {
        (-self.distance(&other.sizes) / SIZES_ALIKE).exp()
    }

    /// The distance from sizes, as binary logarithms: the root of the sum of squares of the binary logarithms of their quotients.
    pub fn distance(&self, sizes: &[f64]) -> f64 {
        self.sizes.iter().zip(sizes).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    }
}

/// The parts of an estimate as shares of it; that of the steps by what a step waits for.
fn shares(estimate: &Estimate) -> Vec<f64> {
    // An estimate that says that a configuration cannot run has no shares.
    if !estimate.microseconds.is_finite() {
        return vec![0.0; Part::ALL.len() + Resource::ALL.len()];
    }
    let share = |part: Part| estimate.part(part) / estimate.microseconds;
    let mut shares: Vec<f64> = Part::ALL.into_iter().map(share).collect();
    if let Some(steps) = &estimate.steps {
        let of_steps = std::mem::take(&mut shares[Part::Steps as usize]);
        let most = steps.wanted[steps.bound() as usize];
        let weights = steps.wanted.map(|wanted| (wanted / most).powf(SHARPNESS));
        let sum: f64 = weights.iter().sum();
        shares.extend(weights.map(|weight| of_steps * weight / sum));
    } else {
        shares.extend([0.0; Resource::ALL.len()]);
    }
    shares
}

/// The expected time of a configuration as a multiple of its estimate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Corrected {
    /// The expected logarithm.
    pub log: f64,
    /// Its standard deviation.
    pub deviation: f64,
}

/// The measurements that corrections follow from.
pub(crate) struct Correction<'a> {
    alike: Alike<'a>,
    places: Vec<Place>,
    logs: Vec<f64>,
    /// The lower triangular factor of the covariance of the measurements, row by row.
    factor: Vec<Vec<f64>>,
    /// The inverse of the covariance times the logarithms.
    weights: Vec<f64>,
}

/// Parameters by what estimates may be wrong about them.
struct Alike<'a> {
    family: &'a [&'a str],
    secondary: Vec<&'a str>,
    /// The variance of all of them.
    parameters: f64,
}

impl Alike<'_> {
    /// The variance that a parameter has.
    fn variance(&self, name: &str) -> f64 {
        if self.family.contains(&name) {
            OF_FAMILY.powi(2)
        } else if self.secondary.contains(&name) {
            OF_SECONDARY.powi(2)
        } else {
            0.0
        }
    }

    /// The variance of a configuration.
    fn own(&self, place: &Place) -> f64 {
        self.covariance(place, place)
    }

    fn covariance(&self, a: &Place, b: &Place) -> f64 {
        let of_device = if a.elsewhere == b.elsewhere { OF_DEVICE.powi(2) } else { 0.0 };
        of_device + self.beside_device(a, b)
    }

    /// The covariance but for what is common to a device.
    fn beside_device(&self, a: &Place, b: &Place) -> f64 {
        let alike: f64 = a.shares.iter().zip(&b.shares).map(|(a, b)| a * b).sum();
        let mut alike = COMMON.powi(2) + OF_PART.powi(2) * alike + self.parameters;
        if a.candidate == b.candidate {
            alike += ALONE.powi(2);
        }
        let differs = |name: &str, one: Option<&str>, other: Option<&str>| {
            self.variance(name) * (1.0 - likeness(one, other))
        };
        for (name, value) in &a.candidate.0 {
            let other = b.candidate.value(name);
            if other != Some(value) {
                alike -= differs(name, Some(value), other);
            }
        }
        for (name, value) in &b.candidate.0 {
            if a.candidate.value(name).is_none() {
                alike -= differs(name, None, Some(value));
            }
        }
        alike * a.nearness(b)
    }
}

/// The likeness of two values that differ: of numbers by their quotient, of others none. A default is like no other value.
fn likeness(a: Option<&str>, b: Option<&str>) -> f64 {
    let number = |text: Option<&str>| text?.parse::<f64>().ok().filter(|x| *x > 0.0);
    match (number(a), number(b)) {
        (Some(a), Some(b)) => (-(a / b).log2().abs() / VALUES_ALIKE).exp(),
        _ => 0.0,
    }
}

impl<'a> Correction<'a> {
    /// Corrections of an operator's estimates by these logarithms of measured over estimated time.
    pub fn new(tuning: &'a Tuning, measured: Vec<(Place, f64)>) -> Self {
        let secondary = tuning.secondary.iter().map(|(name, _)| *name).collect();
        let (places, logs) = measured.into_iter().unzip();
        let mut correction = Correction {
            alike: Alike { family: tuning.family, secondary, parameters: 0.0 },
            places,
            logs,
            factor: Vec::new(),
            weights: Vec::new(),
        };
        let alike = &correction.alike;
        let secondary = alike.secondary.iter().filter(|name| !alike.family.contains(name));
        let names = alike.family.iter().chain(secondary);
        correction.alike.parameters = names.map(|name| alike.variance(name)).sum();
        for n in 0..correction.places.len() {
            correction.factorise(n);
        }
        correction.weights = correction.backward(correction.forward(&correction.logs));
        correction
    }

    /// One more measurement.
    pub fn push(&mut self, place: Place, log: f64) {
        self.places.push(place);
        self.logs.push(log);
        self.factorise(self.places.len() - 1);
        self.weights = self.backward(self.forward(&self.logs));
    }

    /// Adds a row to the factor (Cholesky).
    fn factorise(&mut self, n: usize) {
        let with = |other: &Place| self.alike.covariance(&self.places[n], other);
        let column: Vec<f64> = self.places[..n].iter().map(with).collect();
        let mut row = self.forward(&column);
        let rest = self.alike.own(&self.places[n]) + NOISE.powi(2) - row.iter().map(|x| x * x).sum::<f64>();
        // What is left is at least the noise of the measurement.
        row.push(rest.max(NOISE.powi(2)).sqrt());
        self.factor.push(row);
    }

    /// The solution x of factor · x = b.
    fn forward(&self, b: &[f64]) -> Vec<f64> {
        let mut x: Vec<f64> = Vec::with_capacity(b.len());
        for (row, b) in self.factor.iter().zip(b) {
            let known: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            x.push((b - known) / row[row.len() - 1]);
        }
        x
    }

    /// The solution x of factorᵀ · x = b.
    fn backward(&self, mut b: Vec<f64>) -> Vec<f64> {
        for i in (0..b.len()).rev() {
            b[i] /= self.factor[i][i];
            for j in 0..i {
                b[j] -= self.factor[i][j] * b[i];
            }
        }
        b
    }

    /// The correction of a configuration at sizes.
    pub fn at(&self, place: &Place) -> Corrected {
        let with: Vec<f64> = self.places.iter().map(|other| self.alike.covariance(place, other)).collect();
        let log = with.iter().zip(&self.weights).map(|(a, b)| a * b).sum();
        let known: f64 = self.forward(&with).iter().map(|x| x * x).sum();
        Corrected { log, deviation: (self.alike.own(place) - known).max(0.0).sqrt() }
    }

    /// The places of the measurements by the part of an error that they share with a configuration at sizes, from 0 to 1 and beside what all of a device share,
    /// the most alike first.
    pub fn nearest(&self, place: &Place) -> Vec<(usize, f64)> {
        let alike =
            |other: &Place| self.alike.beside_device(place, other) / self.alike.beside_device(place, place);
        let mut all: Vec<(usize, f64)> = self.places.iter().map(alike).enumerate().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }
}

#[cfg(test)]
mod tests {
    use tilewright_kernels::operator;
    use tilewright_machine::Arch;

    use super::*;

    fn place(tuning: &Tuning, sizes: [i64; 3], text: &str) -> Place {
        let sizes = ["m", "n", "k"].into_iter().map(String::from).zip(sizes).collect();
        let candidate = Candidate::parse(text).unwrap();
        let estimate = (tuning.estimate)(Arch::SM_90A.into(), &sizes, &candidate.given()).unwrap();
        Place::new(candidate, &sizes, &estimate)
    }

    #[test]
    fn what_was_measured_is_expected_again_and_of_what_is_alike() {
        let tuning = operator("gemm_hopper").unwrap().tuning.unwrap();
        let of = |sizes, text| place(&tuning, sizes, text);
        let here = [4096, 4096, 4096];
        let measured =
            [("bn=128", 0.2), ("bn=128 rasterization=grouped(4)", 0.21), ("bm=64 bn=64 warpgroups=1", -0.1)];
        let samples = measured.map(|(text, log)| (of(here, text), log)).to_vec();
        let mut correction = Correction::new(&tuning, samples.clone());
        for (place, log) in &samples {
            let Corrected { log: expected, deviation } = correction.at(place);
            assert!((expected - log).abs() < 0.003 && deviation < 0.004, "{expected} {log} {deviation}");
        }
        // Without measurements nothing is corrected; the farther from them, the less is known.
        let none = Correction::new(&tuning, Vec::new());
        assert_eq!(none.at(&samples[0].0).log, 0.0);
        let places = ["bn=128 buffers=1", "bn=192", "swap=true bn=192 bk=32"].map(|text| of(here, text));
        let deviations = places.each_ref().map(|place| correction.at(place).deviation);
        assert!(deviations.is_sorted() && deviations[2] < none.at(&places[2]).deviation, "{deviations:?}");
        let far = of([512, 512, 32_768], "bn=128");
        assert!(correction.at(&far).deviation > correction.at(&samples[0].0).deviation);
        let nearest = correction.nearest(&places[0]);
        assert!(nearest[0].0 < 2 && nearest[2].0 == 2 && nearest[0].1 < 1.0, "{nearest:?}");
        // One more at a time is the same as all at once.
        let at_once = correction.at(&places[1]);
        let mut one_by_one = Correction::new(&tuning, samples[..1].to_vec());
        for (place, log) in samples[1..].iter().cloned() {
            one_by_one.push(place, log);
        }
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let again = one_by_one.at(&places[1]);
        assert!(close(again.log, at_once.log) && close(again.deviation, at_once.deviation));
        correction.push(places[1].clone(), 0.3);
        assert!(correction.at(&places[1]).log > at_once.log);
    }
}
