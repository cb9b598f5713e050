//! Records: the configuration found for a problem, as it is written, and the conditions under which it holds.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tilewright_kernels::{ConfigError, Operator};
use tilewright_tile::renamed::{Place, renamed};

use crate::problem::{Candidate, Problem, Target};

/// The form of records that this version writes and reads.
pub const FORMAT: u32 = 1;

/// The version of this compiler.
pub const COMPILER: &str = env!("CARGO_PKG_VERSION");

/// A configuration that lost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunnerUp {
    /// Its parameters, as text.
    pub configuration: String,
    /// Its median time.
    pub microseconds: f64,
    /// Its place by estimate in the space, from 0; none if it is of the search around others.
    pub estimate_rank: Option<usize>,
}

/// Conditions of measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Content of the L2 cache before each run: `dirty` (emptied by writing) or `clean` (by reading).
    pub l2: String,
    /// Seconds that the device rests before each turn.
    pub rest_seconds: f64,
}

/// Origin of a configuration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Time of the measurement, in seconds since 1970.
    pub unix_seconds: u64,
    /// The origin.
    pub conditions: Conditions,
    /// Turns that the configuration had in the last contest.
    pub rounds: usize,
    /// Configurations that were measured.
    pub measured: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// The reason for which the search ended.
    pub stop: String,
    /// The configuration whose result its result was compared with; none if there was no other.
    pub checked_against: Option<String>,
}

/// Configuration found for a problem.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The operator.
    pub operator: String,
    /// The pinned parameters, as text.
    pub pinned: String,
    /// The sizes that were measured.
    pub sizes: BTreeMap<String, i64>,
    /// The class of shapes that it is for.
    pub class: String,
    /// The device.
    pub device: String,
    /// The architecture.
    pub arch: String,
    /// The version of the compiler that was measured.
    pub compiler: String,
    /// The SHA-256 of the printed programs of the configuration.
    pub programs: String,
    /// True if those programs are the ones that were measured; false after their hash was brought up to date without measuring.
    pub remeasured: bool,
    /// The configuration: parameters that differ from the defaults, as text.
    pub configuration: String,
    /// Its median time.
    pub microseconds: f64,
    /// Its place by estimate in the space, from 0; none if it is of the search around others.
    pub estimate_rank: Option<usize>,
    /// The configurations that lost, fastest first.
    pub runners_up: Vec<RunnerUp>,
    /// Its origin.
    pub measured: Measured,
}

/// Reasons why a record is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stale {
    /// It is no record.
    #[error("it cannot be read ({0})")]
    Corrupt(String),
    /// It has another form.
    #[error("it has form {0}, and this version reads form {FORMAT}")]
    Format(u32),
    /// It is for something else.
    #[error("it is for another {what}: {recorded}, not {wanted}")]
    Other {
        /// The difference.
        what: &'static str,
        /// Value in the record.
        recorded: String,
        /// Expected value.
        wanted: String,
    },
    /// Another compiler was measured.
    #[error("compiler {recorded} was measured, and this is {COMPILER}")]
    Compiler {
        /// The version in the record.
        recorded: String,
    },
    /// The operator does not know the configuration.
    #[error("its configuration is not accepted: {0}")]
    Configuration(#[source] ConfigError),
    /// The operator's rules refuse the configuration.
    #[error("its configuration cannot run: {0}")]
    Rejected(String),
    /// It does not keep a pinned parameter.
    #[error("its configuration `{configuration}` does not keep {pinned}")]
    Unpinned {
        /// The configuration.
        configuration: String,
        /// The parameters to keep.
        pinned: String,
    },
    /// The programs changed.
    #[error("the program of `{configuration}` has changed since it was measured")]
    Program {
        /// The configuration.
        configuration: String,
    },
}

/// The hash of a configuration's programs, which a process works out once: records of a device are compared with each problem.
fn hash_of(operator: &Operator, candidate: &Candidate) -> Result<String, ConfigError> {
    static HASHES: Mutex<BTreeMap<(&str, Candidate), String>> = Mutex::new(BTreeMap::new());
    let known = || HASHES.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (operator.name, candidate.clone());
    if let Some(hash) = known().get(&key) {
        return Ok(hash.clone());
    }
    let hash = candidate.hash(operator)?;
    known().insert(key, hash.clone());
    Ok(hash)
}

impl Record {
    /// Reads one line.
    ///
    /// # Errors
    ///
    /// [`Stale::Format`] for another form, else [`Stale::Corrupt`].
    pub fn parse(text: &str) -> Result<Self, Stale> {
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let corrupt = |e: serde_json::Error| Stale::Corrupt(e.to_string());
        let form: Form = serde_json::from_str(text).map_err(corrupt)?;
        if form.format != FORMAT {
            return Err(Stale::Format(form.format));
        }
        let mut record: Record = serde_json::from_str(text).map_err(corrupt)?;
        let Record { pinned, configuration, runners_up, measured, .. } = &mut record;
        let lost = runners_up.iter_mut().map(|runner_up| &mut runner_up.configuration);
        let texts = [pinned, configuration].into_iter().chain(lost).chain(&mut measured.checked_against);
        texts.for_each(|text| *text = with_new_names(text));
        Ok(record)
    }

    /// One line of JSON, without its end.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Key of the record: see [`Problem::key`].
    pub fn key(&self) -> String {
        let Record { operator, pinned, class, device, arch, .. } = self;
        format!("{operator} | {pinned} | {class} | {device} | {arch}")
    }

    /// The configuration, if the record holds for this problem on this device. `any_compiler` takes the record of another version whose
    /// programs are the same: what is shipped is of the version that measured it.
    ///
    /// # Errors
    ///
    /// The reason why it does not.
    pub fn holds(&self, problem: &Problem, target: &Target, any_compiler: bool) -> Result<Candidate, Stale> {
        let same = |what, recorded: &str, wanted: &str| {
            if recorded == wanted {
                return Ok(());
            }
            Err(Stale::Other { what, recorded: recorded.to_string(), wanted: wanted.to_string() })
        };
        same("operator", &self.operator, problem.operator().name)?;
        same("device", &self.device, &target.device)?;
        same("architecture", &self.arch, &target.arch.to_string())?;
        same("class of shapes", &self.class, &problem.class())?;
        same("set of pinned parameters", &self.pinned, &problem.pinned().to_string())?;
        if !any_compiler && self.compiler != COMPILER {
            return Err(Stale::Compiler { recorded: self.compiler.clone() });
        }
        let candidate =
            Candidate::parse(&self.configuration).map_err(|error| Stale::Corrupt(error.to_string()))?;
        let programs = hash_of(problem.operator(), &candidate).map_err(Stale::Configuration)?;
        if let Some(reason) = (problem.tuning().reject)(target.arch, &candidate.given()) {
            return Err(Stale::Rejected(reason));
        }
        let parameters = (problem.operator().parameters)();
        let default = |name: &str| parameters.iter().find(|p| p.name == name).map(|p| p.default.as_str());
        let kept = |(name, value): &(String, String)| {
            candidate.value(name).or_else(|| default(name)) == Some(value.as_str())
        };
        if !problem.pinned().0.iter().all(kept) {
            let (configuration, pinned) = (self.configuration.clone(), problem.pinned().to_string());
            return Err(Stale::Unpinned { configuration, pinned });
        }
        if programs != self.programs {
            return Err(Stale::Program { configuration: self.configuration.clone() });
        }
        Ok(candidate)
    }

    /// The problem that was measured.
    ///
    /// # Errors
    ///
    /// [`Stale::Corrupt`] if there is no such problem.
    pub fn problem(&self) -> Result<Problem, Stale> {
        let pinned = Candidate::parse(&self.pinned).map_err(|error| Stale::Corrupt(error.to_string()))?;
        Problem::new(&self.operator, &self.sizes, &pinned.given())
            .map_err(|error| Stale::Corrupt(error.to_string()))
    }

    /// The device that was measured.
    ///
    /// # Errors
    ///
    /// [`Stale::Corrupt`] for an architecture that there is not.
    pub fn target(&self) -> Result<Target, Stale> {
        let arch = self
            .arch
            .parse()
            .map_err(|error: tilewright_machine::UnknownArch| Stale::Corrupt(error.to_string()))?;
        Ok(Target::new(self.device.clone(), arch))
    }

    /// Brings the hash of the programs up to date, which are then no longer the ones that were measured; returns whether it changed.
    ///
    /// # Errors
    ///
    /// The reason why the configuration is no longer one.
    pub fn refresh(&mut self) -> Result<bool, Stale> {
        let (problem, target) = (self.problem()?, self.target()?);
        match self.holds(&problem, &target, true) {
            Ok(_) => Ok(false),
            Err(Stale::Program { .. }) => {
                let candidate = Candidate::parse(&self.configuration)
                    .map_err(|error| Stale::Corrupt(error.to_string()))?;
                self.programs = candidate.hash(problem.operator()).map_err(Stale::Configuration)?;
                self.remeasured = false;
                Ok(true)
            }
            Err(other) => Err(other),
        }
    }
}

/// The text of a configuration with the new names of parameters and values that had others when it was written.
fn with_new_names(text: &str) -> String {
    let word = |word: &str| {
        let Some((name, value)) = word.split_once('=') else { return word.to_string() };
        let (value, arguments) = value.split_at(value.find('(').unwrap_or(value.len()));
        let name = renamed(Place::Parameter, name).unwrap_or(name);
        format!("{name}={}{arguments}", renamed(Place::Value, value).unwrap_or(value))
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_of_old_records_get_the_new_names() {
        let old = "bm=256 order=snake(8) deferred=true sms=120 hint_b=evict_first";
        let new = "bm=256 rasterization=serpentine(8) overlap_epilogue=true sm_count=120 hint_b=evict_first";
        assert_eq!(with_new_names(old), new);
        assert_eq!(with_new_names(new), new);
        assert_eq!(with_new_names(""), "");
    }
}
