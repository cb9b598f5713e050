//! The knowledge of a tuner about an operator: its sizes, the configurations worth trying for a problem with an estimate of each, and what is
//! varied around a good one. By name and as text, so that a tuner is the same for every operator.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

use tilewright_machine::{Arch, Features};

use crate::config::{Config, ConfigError, apply, configured, differences};
use crate::model::Model;
use crate::parts::Estimate;

/// The kind of a size: problems whose sizes differ a little share a choice, and this says what a little is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeKind {
    /// Rows or columns of a result: shared out among blocks.
    Extent,
    /// The length of sums: the steps of a block.
    Depth,
    /// A number of problems; 1 where it is not given.
    Count,
    /// An extent that not every problem has.
    Index,
}

impl SizeKind {
    /// Returns whether a problem may lack the size.
    pub fn is_optional(self) -> bool {
        matches!(self, SizeKind::Count | SizeKind::Index)
    }
}

/// A problem of an operator, by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SameProblem {
    /// The operator.
    pub operator: &'static str,
    /// The sizes.
    pub sizes: BTreeMap<String, i64>,
    /// Parameters that are given.
    pub pinned: Vec<(String, String)>,
}

/// A configuration of a tuning space.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The parameters that differ from the defaults, in the operator's order.
    pub parameters: Vec<(&'static str, String)>,
    /// The estimated time in microseconds.
    pub estimate: f64,
    /// True if the configuration is in proportion to the problem, as all points of a space are.
    pub suits: bool,
}

/// The processor for which times are estimated.
#[derive(Clone, Copy, Debug)]
pub struct Chip<'a> {
    /// The architecture.
    pub arch: Arch,
    /// The model of a kernel's time.
    pub model: &'a Model,
}

impl From<Arch> for Chip<'static> {
    /// Any processor of the architecture, with the model of its usual device.
    fn from(arch: Arch) -> Self {
        Chip { arch, model: Model::of_arch(arch) }
    }
}

/// A tuning space for a problem.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Space {
    /// The points that the operator's rules accept, by estimated time.
    pub points: Vec<Point>,
    /// Points that these rules refused, or that are out of proportion to the problem.
    pub refused: usize,
    /// The rule that refused one of them, where it is known: of those that are in proportion to the problem one whose features the architecture has, if there are such.
    pub because: Option<String>,
}

/// The arguments of a launch for a problem, as far as they are integers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Launch {
    /// The sizes of the programs, those of the problem among them.
    pub sizes: BTreeMap<String, i64>,
    /// Elements of tensors of integers that decide what is read, by the tensors' names.
    pub integers: BTreeMap<&'static str, Integers>,
}

/// The elements of a tensor of integers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Integers {
    /// The first one, and the step from each to the next. They are the same for all configurations.
    Line {
        /// The first element.
        first: i64,
        /// From each to the next.
        step: i64,
    },
    /// One by one; they may be a configuration's own.
    Table(Vec<i64>),
}

impl Integers {
    /// The element of this number; 0 behind a table's end.
    pub fn element(&self, number: i64) -> i64 {
        match self {
            Integers::Line { first, step } => first + step * number,
            Integers::Table(values) => {
                usize::try_from(number).ok().and_then(|at| values.get(at)).copied().unwrap_or(0)
            }
        }
    }
}

impl Launch {
    /// The launch that has the sizes of the problem, with integers of any value.
    pub fn of(sizes: &BTreeMap<String, i64>) -> Launch {
        Launch { sizes: sizes.clone(), integers: BTreeMap::new() }
    }
}

/// The knowledge of a tuner about an operator. Sizes and parameters are given by name; estimates are closed forms, for ranking.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The sizes of a problem, in the order in which people name them.
    pub sizes: &'static [(&'static str, SizeKind)],
    /// Parameters that say what is computed: never varied.
    pub meaning: &'static [&'static str],
    /// Values of such parameters that make no difference to times: what is known of one holds for the others.
    pub alike: &'static [(&'static str, &'static [&'static str])],
    /// Parameters in which configurations of different families differ. A tuner measures several families.
    pub family: &'static [&'static str],
    /// Parameters that are varied around a good configuration, in this order, with the values worth trying.
    pub secondary: &'static [(&'static str, &'static [&'static str])],
    /// The configurations worth trying where the given parameters are pinned.
    pub space: OnChip<Space>,
    /// One configuration: the given parameters that differ from the defaults, with its estimate.
    pub point: OnChip<Point>,
    /// The estimate of a configuration with its parts.
    pub estimate: OnChip<Estimate>,
    /// The reason why a configuration cannot run on an architecture, if it cannot: whatever the sizes, as far as the operator's rules know.
    pub reject: Reject,
    /// The launch of a configuration: the sizes of its programs where they are not those of the problem alone.
    pub launch: ForProblem<Launch>,
    /// The problem of another operator that one is, if it is one: choices and records are then those of the other.
    pub same: ForProblem<Option<SameProblem>>,
}

/// Something for a problem on an architecture, from its sizes and from parameters, both by name.
pub type ForProblem<T> = fn(Arch, &BTreeMap<String, i64>, &[(&str, &str)]) -> Result<T, ConfigError>;

/// Something that rests on estimates, for a problem on a processor, from its sizes and from parameters, both by name.
pub type OnChip<T> = for<'a> fn(Chip<'a>, &BTreeMap<String, i64>, &[(&str, &str)]) -> Result<T, ConfigError>;

/// The reason why parameters do not go together on an architecture, if they do not.
pub type Reject = fn(Arch, &[(&str, &str)]) -> Option<String>;

/// A configuration that can be tuned.
pub(crate) trait Tunable: Config + Clone + Eq + Hash {
    const SIZES: &'static [(&'static str, SizeKind)];
    const MEANING: &'static [&'static str];
    const ALIKE: &'static [(&'static str, &'static [&'static str])] = &[];
    const FAMILY: &'static [&'static str];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])];

    /// Every point worth a thought, whatever the problem.
    fn points() -> impl Iterator<Item = Self>;
    /// The forms in which a point is worth a thought for a problem, whose sizes are in the order of `SIZES`.
    fn forms(self, _sizes: &[i64]) -> Vec<Self> {
        vec![self]
    }
    /// A point of [`points`](Self::points) to which parameters were given, with what follows from them for those that were not.
    fn fitted(self, _given: &dyn Fn(&str) -> bool) -> Self {
        self
    }
    /// Returns whether the point is in proportion to the problem, whose sizes are in the order of `SIZES`.
    fn suits(&self, sizes: &[i64]) -> bool;
    /// The reason why the point cannot run, if it cannot.
    fn reject(&self, arch: Arch) -> Option<String>;
    /// The features that it needs, where points need different ones.
    fn needs(&self) -> Features {
        Features::NONE
    }
    /// The estimated time in microseconds.
    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64;
    /// The same with its parts, where the estimate has some.
    fn explained(&self, chip: Chip<'_>, sizes: &[i64]) -> Estimate {
        Estimate::whole(self.estimate(chip, sizes))
    }
    /// The launch for a problem, if more than its sizes decides about it.
    fn launch(&self, _: Arch, _: &[i64]) -> Result<Option<Launch>, ConfigError> {
        Ok(None)
    }
}

pub(crate) const fn tuning<C: Tunable>() -> Tuning {
    Tuning {
        sizes: C::SIZES,
        meaning: C::MEANING,
        alike: C::ALIKE,
        family: C::FAMILY,
        secondary: C::SECONDARY,
        space: space::<C>,
        point: |chip, sizes, given| {
            let (config, sizes) = (counted::<C>(given)?, values::<C>(sizes)?);
            Ok(Point {
                parameters: differences(&config),
                estimate: config.estimate(chip, &sizes),
                suits: config.suits(&sizes),
            })
        },
        estimate: |chip, sizes, given| Ok(counted::<C>(given)?.explained(chip, &values::<C>(sizes)?)),
        reject: |arch, given| match configured::<C>(given) {
            Ok(config) => config.reject(arch),
            Err(error) => Some(error.to_string()),
        },
        launch: |arch, sizes, given| {
            let own = configured::<C>(given)?.launch(arch, &values::<C>(sizes)?)?;
            Ok(own.unwrap_or_else(|| Launch::of(sizes)))
        },
        same: |_, _, _| Ok(None),
    }
}

/// Parameters by which estimates divide: of what they count there is at least one.
const COUNTS: [&str; 17] = [
    "blocks",
    "bm",
    "bn",
    "bk",
    "chunk",
    "d",
    "group",
    "groups",
    "pack",
    "part",
    "pixels",
    "rows",
    "split",
    "sm_count",
    "stride",
    "warpgroups",
    "warps",
];

/// The configuration with the given values, of which estimates may be made.
fn counted<C: Config>(given: &[(&str, &str)]) -> Result<C, ConfigError> {
    let config = configured::<C>(given)?;
    for (name, value) in given {
        let count = COUNTS.into_iter().find(|count| count == name);
        if let (Some(field), Ok(..=0)) = (count, value.parse::<i64>()) {
            return Err(ConfigError::value(field, value, "must be at least 1"));
        }
    }
    Ok(config)
}

/// The sizes in the order of `SIZES`.
fn values<C: Tunable>(sizes: &BTreeMap<String, i64>) -> Result<Vec<i64>, ConfigError> {
    let value = |(name, kind): &(&'static str, SizeKind)| match sizes.get(*name) {
        Some(value) if *value >= 1 => Ok(*value),
        Some(value) => Err(ConfigError::value(name, value, "a size must be at least 1")),
        None if kind.is_optional() => Ok(1),
        None => Err(ConfigError::value(name, "nothing", "the problem's size must be given")),
    };
    C::SIZES.iter().map(value).collect()
}

fn space<C: Tunable>(
    chip: Chip<'_>,
    sizes: &BTreeMap<String, i64>,
    pinned: &[(&str, &str)],
) -> Result<Space, ConfigError> {
    let sizes = values::<C>(sizes)?;
    // Says what is wrong with them once, not at every point.
    counted::<C>(pinned)?;
    let (mut space, mut seen, mut admitted) = (Space::default(), HashSet::new(), false);
    let forms = C::points().flat_map(|mut point| match apply(&mut point, pinned) {
        Ok(()) => point.forms(&sizes),
        Err(_) => Vec::new(),
    });
    for mut point in forms {
        apply(&mut point, pinned)?;
        point = point.fitted(&|field| pinned.iter().any(|(name, _)| *name == field));
        if !seen.insert(point.clone()) {
            continue;
        }
        if !point.suits(&sizes) {
            space.refused += 1;
            continue;
        }
        if let Some(reason) = point.reject(chip.arch) {
            space.refused += 1;
            let has = chip.arch.has(point.needs());
            if space.because.is_none() || has && !admitted {
                (space.because, admitted) = (Some(reason), has);
            }
            continue;
        }
        let estimate = point.estimate(chip, &sizes);
        space.points.push(Point { parameters: differences(&point), estimate, suits: true });
    }
    // Of equals the one that is nearest to the defaults.
    space
        .points
        .sort_by(|a, b| a.estimate.total_cmp(&b.estimate).then(a.parameters.len().cmp(&b.parameters.len())));
    Ok(space)
}

/// The sizes of a matrix product, or of several.
pub(crate) const MNKL: &[(&str, SizeKind)] =
    &[("m", SizeKind::Extent), ("n", SizeKind::Extent), ("k", SizeKind::Depth), ("l", SizeKind::Count)];

/// Types of elements whose products take as long.
pub(crate) const HALVES: &[(&str, &[&str])] = &[("dtype", &["f16", "bf16"])];

/// The first three sizes.
pub(crate) fn three(sizes: &[i64]) -> [i64; 3] {
    [0, 1, 2].map(|i| sizes.get(i).copied().unwrap_or(1))
}
