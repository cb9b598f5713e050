//! Ranges of sizes, and the kernels for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rayon::prelude::*;

use crate::base::{Base, Options};
use crate::class::Member;
use crate::error::OpsError;
use crate::library::{Asked, Chosen, Library, May, class_sizes};
use crate::sizes::Sizes;
use crate::value::Value;

/// Sizes of a range: one, or all from one to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span(RangeInclusive<i64>);

impl Span {
    /// The sizes, of which there is one at least, from 1 on.
    pub(crate) fn range(self, operator: &str, size: &str) -> Result<RangeInclusive<i64>, OpsError> {
        if self.0.is_empty() || *self.0.start() < 1 {
            let (operator, size) = (operator.to_string(), size.to_string());
            return Err(OpsError::Range { operator, size, first: *self.0.start(), last: *self.0.end() });
        }
        Ok(self.0)
    }
}

impl From<i64> for Span {
    fn from(size: i64) -> Self {
        Span(size..=size)
    }
}

impl From<RangeInclusive<i64>> for Span {
    fn from(range: RangeInclusive<i64>) -> Self {
        Span(range)
    }
}

/// Problems of an operator: options, and a range for each size. A call whose sizes are in it runs by the kernels that are listed for it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "problems do nothing before a library is given them"]
pub struct Problems {
    name: String,
    options: Options,
    sizes: BTreeMap<String, Span>,
    dependent: bool,
}

impl AsRef<Problems> for Problems {
    fn as_ref(&self) -> &Problems {
        self
    }
}

impl Problems {
    /// Problems of an operator, by its name.
    pub fn of(operator: impl Into<String>) -> Self {
        Problems { name: operator.into(), options: Options::new(), sizes: BTreeMap::new(), dependent: false }
    }

    /// With an option. What follows from arguments of a call (types, extents that kernels have as constants) is an option here.
    pub fn option<'a>(mut self, name: impl Into<String>, value: impl Into<Value<'a>>) -> Self {
        let (name, value) = (name.into(), value.into().text().into_owned());
        self.options.retain(|(other, _)| *other != name);
        self.options.push((name, value));
        self
    }

    /// With a size, or a range of it.
    pub fn size(mut self, name: impl Into<String>, sizes: impl Into<Span>) -> Self {
        self.sizes.insert(name.into(), sizes.into());
        self
    }

    /// With kernels that may begin before the launch ahead of them has ended.
    pub fn dependent(mut self, dependent: bool) -> Self {
        self.dependent = dependent;
        self
    }

    fn asked<'a>(&'a self, sizes: &Sizes) -> Asked<'a, 'static> {
        let (name, options) = (self.name.as_str(), self.options.clone());
        Asked {
            name,
            options,
            sizes: sizes.clone(),
            types: Vec::new(),
            argument: &|_| None,
            dependent: self.dependent,
        }
    }

    /// Sizes, of each class some.
    fn samples(&self, library: &Library) -> Result<Vec<Sizes>, OpsError> {
        let bases: Vec<Arc<Base>> =
            library.members(&self.asked(&Sizes::new()))?.filter_map(Result::ok).collect();
        let mut all = vec![Sizes::new()];
        for (name, span) in &self.sizes {
            let range = span.clone().range(&self.name, name)?;
            let kinds: Vec<_> = bases
                .iter()
                .flat_map(|base| class_sizes(base))
                .filter(|(own, ..)| own == name)
                .map(|(_, kind, limit)| (kind, limit))
                .collect();
            let mut seen: BTreeSet<Vec<Member>> = BTreeSet::new();
            let first = range.filter(|size| {
                seen.insert(
                    kinds.iter().map(|(kind, limit)| Member::of(name, *size, *kind, *limit)).collect(),
                )
            });
            let samples: Vec<i64> = first.collect();
            all = all
                .iter()
                .flat_map(|sizes| {
                    samples.iter().map(|size| {
                        let mut sizes = sizes.clone();
                        sizes.insert(name.clone(), *size);
                        sizes
                    })
                })
                .collect();
        }
        Ok(all)
    }

    /// The configurations of all classes, each once.
    fn chosen(&self, library: &Library) -> Result<Vec<Arc<Chosen>>, OpsError> {
        let samples = self.samples(library)?;
        samples
            .par_iter()
            .map(|sizes| Ok(library.find(&self.asked(sizes), May::Everything)?.chosen))
            .collect()
    }
}

/// Matrix products, `c[m, n] = a[m, k] · b[n, k]ᵀ`.
///
/// ```
/// use tilewright_ops::Gemm;
/// let problems = Gemm::f16().m(1..=8192).n(4096).k(4096).epilogue("bias+gelu");
/// # let _ = problems;
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "problems do nothing before a library is given them"]
pub struct Gemm(Problems);

impl AsRef<Problems> for Gemm {
    fn as_ref(&self) -> &Problems {
        &self.0
    }
}

impl Gemm {
    /// Of factors of `f16`, with a result of the same type.
    pub fn f16() -> Self {
        Gemm(Problems::of("gemm"))
    }

    /// The same of `bf16`.
    pub fn bf16() -> Self {
        Gemm(Problems::of("gemm").option("dtype", "bf16"))
    }

    /// With rows of the result.
    pub fn m(self, sizes: impl Into<Span>) -> Self {
        Gemm(self.0.size("m", sizes))
    }

    /// With columns of the result.
    pub fn n(self, sizes: impl Into<Span>) -> Self {
        Gemm(self.0.size("n", sizes))
    }

    /// With a length of the sums.
    pub fn k(self, sizes: impl Into<Span>) -> Self {
        Gemm(self.0.size("k", sizes))
    }

    /// Several products, one behind the other in memory.
    pub fn l(self, sizes: impl Into<Span>) -> Self {
        Gemm(self.0.option("batch", "packed").size("l", sizes))
    }

    /// With operations on the sums, as `"bias+gelu"`.
    pub fn epilogue(self, parts: &str) -> Self {
        Gemm(self.0.option("epilogue", parts))
    }

    /// With an option of the operator.
    pub fn option<'a>(self, name: &str, value: impl Into<Value<'a>>) -> Self {
        Gemm(self.0.option(name, value))
    }

    /// With kernels that may begin before the launch ahead of them has ended.
    pub fn dependent(self, dependent: bool) -> Self {
        Gemm(self.0.dependent(dependent))
    }
}

/// Kernels of one configuration, which run for classes of sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Specialisation {
    /// The operator.
    pub operator: &'static str,
    /// The parameters that are no defaults.
    pub parameters: String,
    /// The multiples that the kernels rely on, by size.
    pub multiples: Vec<(String, i64)>,
    /// The names of the kernels, in the order of their launches.
    pub kernels: Vec<String>,
    /// The classes of sizes.
    pub classes: Vec<String>,
}

impl fmt::Display for Specialisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = if self.parameters.is_empty() { "the defaults" } else { &self.parameters };
        write!(f, "{} {parameters}, for {}", self.operator, self.classes.join(", "))
    }
}

/// The kernels that are warm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Warm {
    /// Classes of sizes.
    pub classes: usize,
    /// Configurations.
    pub specialisations: usize,
    /// Kernels.
    pub kernels: usize,
}

impl Library {
    /// The kernels for all sizes of a range, in the order of their names. They are compiled for that, since the compiler has the last word, and not loaded.
    ///
    /// # Errors
    ///
    /// A range without a size, or sizes for which there is no kernel.
    pub fn specialisations(&self, problems: &impl AsRef<Problems>) -> Result<Vec<Specialisation>, OpsError> {
        let mut all: BTreeMap<String, Specialisation> = BTreeMap::new();
        for chosen in problems.as_ref().chosen(self)? {
            let kept = &chosen.kept;
            let entry = all.entry(kept.key.clone()).or_insert_with(|| Specialisation {
                operator: kept.operator.name,
                parameters: kept.parameters.to_string(),
                multiples: kept.multiples.iter().map(|(name, value)| (name.clone(), *value)).collect(),
                kernels: kept.entries.iter().map(|entry| entry.name.clone()).collect(),
                classes: Vec::new(),
            });
            let class = chosen.class.text();
            if !entry.classes.contains(&class) {
                entry.classes.push(class);
            }
        }
        Ok(all.into_values().collect())
    }

    /// Compiles and loads the kernels for all sizes of a range, several at a time. A strict library takes these sizes afterwards.
    ///
    /// # Errors
    ///
    /// As of [`Library::specialisations`]; what the driver refuses.
    pub fn warm_up(&self, problems: &impl AsRef<Problems>) -> Result<Warm, OpsError> {
        let chosen = problems.as_ref().chosen(self)?;
        let kept: BTreeMap<&str, _> =
            chosen.iter().map(|chosen| (chosen.kept.key.as_str(), &chosen.kept)).collect();
        let kernels = kept
            .par_iter()
            .map(|(_, kept)| kept.load(self.gpu()).map(<[_]>::len))
            .sum::<Result<usize, OpsError>>()?;
        Ok(Warm { classes: chosen.len(), specialisations: kept.len(), kernels })
    }
}
