//! Latency and throughput tables: one an architecture, a text file that a person can read and compare. No other place has cycles.
//!
//! ```text
//! # comment
//! arch: sm_90a
//! clock_mhz: 1980        where the figure is from
//! ldmatrix.x4  lsu  4  33  where the figures are from
//! ```
//!
//! `like: sm_90a` says that what the table lacks is as in the built-in table of another architecture: a chip that nobody has measured.
//! Other lines with a colon after their first word are rates of the chip ([`Rate`]); all others are entries: name, unit,
//! issue, latency, source. *Issue* is the number of cycles for which one warp's instruction occupies its unit;
//! [`Unit::count`] says how many of it a multiprocessor has. *Latency* is the number of cycles until the result can be used. An
//! entry's name is that of a copy row, of a matrix row, of a class of operations ([`Class`](crate::op::Class)), or of a kind of warpgroup product with
//! its `n` ([`WgmmaKind`](crate::op::WgmmaKind)): such a product occupies all four tensor cores for its issue.
//!
//! The built-in tables are in `tables/`; `tilewright calibrate` prints one for the current GPU. `docs/calibrate.md` says how
//! each figure is measured.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::arch::{Arch, ArchSpec, Memory, UnknownArch};
use crate::copy::CopyRow;
use crate::features::Feature;
use crate::op::{OpKey, TCGEN05_KNOTS, Unit, WGMMA_KNOTS};
use crate::tcgen05::Tcgen05Row;
use crate::wgmma::WgmmaRow;

/// A figure of the whole chip, or of one multiprocessor beside its instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Rate {
    /// The clock of the multiprocessors, in MHz.
    ClockMhz,
    /// Multiprocessors.
    Multiprocessors,
    /// Bytes that shared memory gives one multiprocessor a cycle.
    SharedBytes,
    /// Bytes that the L2 cache gives one multiprocessor a cycle, all reading at once.
    L2Bytes,
    /// Bytes that DRAM gives one multiprocessor a cycle, all reading at once.
    DramBytes,
    /// Bytes that one multiprocessor stores to global memory a cycle, when it goes on for long.
    StoreBytes,
    /// Bytes that a multiprocessor's tensor memory accelerator moves into shared memory a cycle.
    TmaLoadBytes,
    /// Bytes that it moves out of shared memory a cycle.
    TmaStoreBytes,
    /// Cycles of a load that hits the L1 cache.
    L1Latency,
    /// Cycles of a load that hits the L2 cache.
    L2Latency,
    /// Cycles of a load from DRAM.
    DramLatency,
    /// Cycles of a block barrier among 4 warps that arrive together.
    Barrier4,
    /// Cycles of a block barrier among 8 warps that arrive together.
    Barrier8,
    /// Microseconds of a kernel that does nothing.
    LaunchUs,
}

impl Rate {
    /// Every rate, in the order of tables.
    pub const ALL: [Rate; 14] = [
        Rate::ClockMhz,
        Rate::Multiprocessors,
        Rate::SharedBytes,
        Rate::L2Bytes,
        Rate::DramBytes,
        Rate::StoreBytes,
        Rate::TmaLoadBytes,
        Rate::TmaStoreBytes,
        Rate::L1Latency,
        Rate::L2Latency,
        Rate::DramLatency,
        Rate::Barrier4,
        Rate::Barrier8,
        Rate::LaunchUs,
    ];

    /// The rates of an architecture.
    pub fn all(arch: Arch) -> impl Iterator<Item = Rate> {
        let tma = [Rate::TmaLoadBytes, Rate::TmaStoreBytes];
        Rate::ALL.into_iter().filter(move |rate| !tma.contains(rate) || arch.has(Feature::Tma))
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Rate::ClockMhz => "clock_mhz",
            Rate::Multiprocessors => "multiprocessors",
            Rate::SharedBytes => "shared_bytes_per_clock",
            Rate::L2Bytes => "l2_bytes_per_clock",
            Rate::DramBytes => "dram_bytes_per_clock",
            Rate::StoreBytes => "store_bytes_per_clock",
            Rate::TmaLoadBytes => "tma_load_bytes_per_clock",
            Rate::TmaStoreBytes => "tma_store_bytes_per_clock",
            Rate::L1Latency => "l1_latency",
            Rate::L2Latency => "l2_latency",
            Rate::DramLatency => "dram_latency",
            Rate::Barrier4 => "barrier_4_warps",
            Rate::Barrier8 => "barrier_8_warps",
            Rate::LaunchUs => "launch_us",
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Cycles of an instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// The unit that it occupies.
    pub unit: Unit,
    /// Cycles for which one warp's instruction occupies one such unit.
    pub issue: f64,
    /// Cycles until its result can be used.
    pub latency: f64,
}

impl Cost {
    /// Cycles of the multiprocessor that one warp's instruction takes, with all units of the kind at work.
    pub fn share(self) -> f64 {
        self.issue / f64::from(self.unit.count())
    }

    /// The issue in whole cycles, at least 1.
    pub fn whole_issue(self) -> u32 {
        self.issue.round().max(1.0) as u32
    }

    /// The latency in whole cycles, at least 1.
    pub fn whole_latency(self) -> u32 {
        self.latency.round().max(1.0) as u32
    }
}

/// A line of a table with the cost of an instruction.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The instruction.
    pub key: OpKey,
    /// Cycles for which one warp's instruction occupies one such unit.
    pub issue: f64,
    /// Cycles until its result can be used. Of a load from global memory: where the data are in the L2 cache. Of a store:
    /// until a load sees it (shared memory), or the same as issue (global memory, for which nobody waits).
    pub latency: f64,
    /// The source of the figures.
    pub source: String,
}

/// A rate's value.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The rate.
    pub rate: Rate,
    /// Its value.
    pub value: f64,
    /// The source of the value.
    pub source: String,
}

/// The table of an architecture.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    /// The architecture.
    pub arch: Arch,
    /// The chip's rates, each at most once.
    pub figures: Vec<Figure>,
    /// The entries, each name at most once.
    pub entries: Vec<Entry>,
}

/// The beginning of the source of what is taken from another architecture.
const TAKEN: &str = "taken from ";

/// The tables of the architectures that come with the compiler, and of those that [`Arch::new`] has made.
static TABLES: LazyLock<RwLock<HashMap<Arch, &'static Timing>>> = LazyLock::new(|| {
    RwLock::new(Arch::ALL.into_iter().map(|arch| (arch, &*Box::leak(Box::new(built_in(arch))))).collect())
});

/// The built-in table of an architecture, read.
fn built_in(arch: Arch) -> Timing {
    let timing = Timing::read(arch.spec().timing, |name| named(arch, name), &built_in);
    timing.expect("the built-in tables are literals that a test parses")
}

/// The built-in table of an architecture.
pub fn timing(arch: Arch) -> &'static Timing {
    let tables = TABLES.read().unwrap_or_else(PoisonError::into_inner);
    tables.get(&arch).expect("an architecture comes into being with its table")
}

/// The architecture that a table is for, which must have this name.
fn named(arch: Arch, name: &str) -> Result<Arch, TimingMistake> {
    if arch.name() == name {
        Ok(arch)
    } else {
        Err(TimingMistake::OtherArch { arch, name: name.to_string() })
    }
}

impl Arch {
    /// An architecture that is not among [`Arch::ALL`].
    ///
    /// # Errors
    ///
    /// Its table cannot be read, or lacks a rate or an instruction of its features.
    pub fn new(spec: &'static ArchSpec) -> Result<Arch, TimingError> {
        let arch = Arch::of(spec);
        let table = Timing::parse(spec.timing, |name| named(arch, name))?;
        let missing = |name: &str| TimingError {
            line: spec.timing.lines().count().max(1),
            mistake: TimingMistake::Incomplete(name.to_string()),
        };
        if let Some(rate) = Rate::all(arch).find(|rate| table.figure(*rate).is_none()) {
            return Err(missing(rate.name()));
        }
        if let Some(key) = OpKey::all(arch).into_iter().find(|key| table.entry(*key).is_none()) {
            return Err(missing(&key.to_string()));
        }
        let mut tables = TABLES.write().unwrap_or_else(PoisonError::into_inner);
        tables.entry(arch).or_insert_with(|| Box::leak(Box::new(table)));
        Ok(arch)
    }
}

impl Timing {
    /// The line of an instruction, where the table has one.
    pub fn entry(&self, key: impl Into<OpKey>) -> Option<&Entry> {
        let key = key.into();
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The line of a rate, where the table has one.
    pub fn figure(&self, rate: Rate) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.rate == rate)
    }

    /// The cost of an instruction of the architecture. What the table lacks is as in the built-in one.
    pub fn cost(&self, key: impl Into<OpKey>) -> Cost {
        let key = key.into();
        let entry = self.entry(key).or_else(|| timing(self.arch).entry(key));
        let entry = entry.expect("every instruction of an architecture has a line, as its making checks");
        Cost { unit: key.unit(), issue: entry.issue, latency: entry.latency }
    }

    /// Cycles of the load/store unit for one warp's copy. Where global memory takes part, the table's issue is the rate of the caches; the unit
    /// itself moves as many bytes a cycle as shared memory gives.
    pub fn lsu_issue(&self, row: &CopyRow) -> f64 {
        if row.src == Memory::Global || row.dst == Memory::Global {
            (f64::from(32 * row.bytes) / self.rate(Rate::SharedBytes)).max(1.0)
        } else {
            self.cost(row).issue
        }
    }

    /// The cost of a product of a warpgroup: all tensor cores of the multiprocessor are occupied for its issue.
    pub fn wgmma(&self, row: &WgmmaRow) -> Cost {
        self.between(row.n, &WGMMA_KNOTS, |n| self.cost(OpKey::Wgmma(row.kind(), n)))
    }

    /// The cost of a product with sums in tensor memory and its left factor in shared memory, or in tensor memory: all tensor cores of the multiprocessor are
    /// occupied for its issue.
    pub fn tcgen05(&self, row: &Tcgen05Row, a_shared: bool) -> Cost {
        let key = |n| if a_shared { OpKey::Tcgen05(row.m * row.blocks, n) } else { OpKey::Tcgen05Left(n) };
        self.between(row.n, &TCGEN05_KNOTS, |n| self.cost(key(n)))
    }

    /// The cost at `n` on the line between those at the knots around it.
    fn between(&self, n: i64, knots: &[i64], at: impl Fn(i64) -> Cost) -> Cost {
        let upper = knots.iter().copied().find(|knot| *knot >= n).unwrap_or(n);
        let lower = knots.iter().copied().rfind(|knot| *knot <= n).unwrap_or(n);
        let (low, high) = (at(lower), at(upper));
        let share = (n - lower) as f64 / (upper - lower).max(1) as f64;
        let between = |a: f64, b: f64| a + (b - a) * share;
        Cost {
            unit: Unit::Tensor,
            issue: between(low.issue, high.issue),
            latency: between(low.latency, high.latency),
        }
    }

    /// The value of a rate of the architecture. What the table lacks is as in the built-in one.
    pub fn rate(&self, rate: Rate) -> f64 {
        let figure = self.figure(rate).or_else(|| timing(self.arch).figure(rate));
        figure.expect("every rate of an architecture has a line, as its making checks").value
    }

    /// This table, with what it lacks taken from the built-in one of its architecture.
    pub fn completed(mut self) -> Self {
        self.complete_from(timing(self.arch));
        self
    }

    /// The source of each line.
    fn sources(&mut self) -> impl Iterator<Item = &mut String> {
        let figures = self.figures.iter_mut().map(|figure| &mut figure.source);
        figures.chain(self.entries.iter_mut().map(|entry| &mut entry.source))
    }

    /// Takes what it lacks, and its architecture has, from another table.
    fn complete_from(&mut self, other: &Timing) {
        for figure in &other.figures {
            if self.figure(figure.rate).is_none() {
                self.figures.push(figure.clone());
            }
        }
        let known = OpKey::all(self.arch);
        for entry in &other.entries {
            if self.entry(entry.key).is_none() && known.contains(&entry.key) {
                self.entries.push(entry.clone());
            }
        }
    }

    /// Reads a table whose `arch:` line is understood by `find`.
    fn parse(text: &str, find: impl Fn(&str) -> Result<Arch, TimingMistake>) -> Result<Timing, TimingError> {
        Timing::read(text, find, &|like| timing(like).clone())
    }

    /// Reads a table; `table_of` has that of the architecture that it resembles.
    fn read(
        text: &str,
        find: impl Fn(&str) -> Result<Arch, TimingMistake>,
        table_of: &dyn Fn(Arch) -> Timing,
    ) -> Result<Timing, TimingError> {
        let mut parser = Parser { table: None, like: None, seen: Vec::new() };
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or("").trim();
            if !content.is_empty() {
                let line = index + 1;
                parser.line(content, line, &find).map_err(|mistake| TimingError { line, mistake })?;
            }
        }
        let last = text.lines().count().max(1);
        let mut table = parser.table.ok_or(TimingError { line: last, mistake: TimingMistake::NoArch })?;
        if let Some(like) = parser.like {
            let mut other = table_of(like);
            other.sources().for_each(|source| {
                if !source.starts_with(TAKEN) {
                    *source = format!("{TAKEN}{like}");
                }
            });
            table.complete_from(&other);
        }
        Ok(table)
    }
}

/// A number as tables show it: at most two digits after the point.
pub fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}:", self.rate);
        write!(f, "{name:<24} {:>8}  {}", number(self.value), self.source)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { key, issue, latency, source } = self;
        let (name, unit) = (key.to_string(), key.unit().name());
        write!(f, "{name:<24} {unit:<6} {:>6} {:>7}  {source}", number(*issue), number(*latency))
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "arch: {}", self.arch)?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "{figure}"))?;
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

/// A mistake in a line of a table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimingMistake {
    /// No `arch:` line comes before everything else.
    #[error("the first line that is no comment must be `arch: NAME`, e.g. `arch: sm_90a`")]
    NoArch,
    /// The architecture is not supported.
    #[error(transparent)]
    Arch(#[from] UnknownArch),
    /// The table of an architecture's description is that of another.
    #[error("the table is that of `{name}`, and the architecture is {arch}")]
    OtherArch {
        /// The architecture.
        arch: Arch,
        /// The name in the table.
        name: String,
    },
    /// The table of an architecture's description lacks a line.
    #[error("there is no line for `{0}`; `like: NAME` takes what is not measured from another architecture")]
    Incomplete(String),
    /// The word before the colon is no rate.
    #[error("`{0}` is not a rate of the chip; rates are {rates}", rates = list(Rate::ALL.iter().map(|r| r.name())))]
    UnknownRate(String),
    /// The name is no row's and no class's.
    #[error("`{name}` is not an instruction of {arch}{near}")]
    UnknownName {
        /// The name.
        name: String,
        /// The table's architecture.
        arch: Arch,
        /// The known names that resemble it, as the end of the message.
        near: String,
    },
    /// The unit is another.
    #[error("`{name}` occupies the unit `{unit}`, not `{given}`")]
    OtherUnit {
        /// The instruction.
        name: String,
        /// Its unit.
        unit: Unit,
        /// The unit in the table.
        given: String,
    },
    /// The line ends too early.
    #[error(
        "the {0} is missing; an entry is `name unit issue latency source`, e.g. `ldmatrix.x4 lsu 4 33 measured`"
    )]
    Missing(&'static str),
    /// A rate has no value.
    #[error("the value is missing; a rate is `name: value source`, e.g. `clock_mhz: 1980 measured`")]
    MissingValue,
    /// The text is no number.
    #[error("the {what} is `{text}`; it must be a number above 0, e.g. 4 or 1.5")]
    Number {
        /// The quantity.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// The name came before.
    #[error("`{name}` is given twice; line {first} has it already")]
    Twice {
        /// The name.
        name: String,
        /// The line that has it first.
        first: usize,
    },
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// An error in the text of a table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {mistake}")]
pub struct TimingError {
    /// The line, counted from 1.
    pub line: usize,
    /// The mistake.
    pub mistake: TimingMistake,
}

/// The known names that begin as `name` does, as the end of a message.
fn near(name: &str, arch: Arch) -> String {
    let known: Vec<String> = OpKey::all(arch).iter().map(OpKey::to_string).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let head = name.split('.').next().unwrap_or(name);
    let alike: Vec<&str> =
        known.iter().copied().filter(|n| n.split('.').next() == Some(head)).take(12).collect();
    if alike.is_empty() {
        let heads: Vec<&str> = known.iter().map(|n| n.split('.').next().unwrap_or(n)).collect();
        let mut seen = Vec::new();
        heads.into_iter().for_each(|h| {
            if !seen.contains(&h) {
                seen.push(h)
            }
        });
        format!("; names begin with {}", list(seen.into_iter()))
    } else {
        format!("; did you mean one of {}?", list(alike.into_iter()))
    }
}

fn positive(what: &'static str, text: &str) -> Result<f64, TimingMistake> {
    let value = text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
    value.ok_or_else(|| TimingMistake::Number { what, text: text.to_string() })
}

/// The first word, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

struct Parser {
    table: Option<Timing>,
    /// The architecture that the table resembles.
    like: Option<Arch>,
    /// Names with their lines.
    seen: Vec<(String, usize)>,
}

impl Parser {
    fn once(&mut self, name: &str, line: usize) -> Result<(), TimingMistake> {
        if let Some((_, first)) = self.seen.iter().find(|(n, _)| n == name) {
            return Err(TimingMistake::Twice { name: name.to_string(), first: *first });
        }
        self.seen.push((name.to_string(), line));
        Ok(())
    }

    fn line(
        &mut self,
        text: &str,
        line: usize,
        find: &impl Fn(&str) -> Result<Arch, TimingMistake>,
    ) -> Result<(), TimingMistake> {
        let (first, rest) = word(text);
        let Some(table) = &self.table else {
            let arch = first.strip_suffix(':').filter(|name| *name == "arch").ok_or(TimingMistake::NoArch)?;
            self.once(arch, line)?;
            let arch = find(word(rest).0)?;
            self.table = Some(Timing { arch, figures: Vec::new(), entries: Vec::new() });
            return Ok(());
        };
        let arch = table.arch;
        if let Some(name) = first.strip_suffix(':') {
            self.once(name, line)?;
            if name == "like" {
                self.like = Some(word(rest).0.parse()?);
                return Ok(());
            }
            let rate = Rate::ALL.into_iter().find(|r| r.name() == name);
            let rate = rate.ok_or_else(|| TimingMistake::UnknownRate(name.to_string()))?;
            let (value, source) = word(rest);
            if value.is_empty() {
                return Err(TimingMistake::MissingValue);
            }
            let figure = Figure { rate, value: positive("value", value)?, source: source.to_string() };
            self.table.iter_mut().for_each(|table| table.figures.push(figure.clone()));
            return Ok(());
        }
        let Some(key) = OpKey::all(arch).into_iter().find(|key| key.to_string() == first) else {
            return Err(TimingMistake::UnknownName {
                name: first.to_string(),
                arch,
                near: near(first, arch),
            });
        };
        self.once(first, line)?;
        let (unit, rest) = word(rest);
        let (issue, rest) = word(rest);
        let (latency, source) = word(rest);
        for (what, text) in [("unit", unit), ("issue", issue), ("latency", latency), ("source", source)] {
            if text.is_empty() {
                return Err(TimingMistake::Missing(what));
            }
        }
        if unit != key.unit().name() {
            let (name, given) = (first.to_string(), unit.to_string());
            return Err(TimingMistake::OtherUnit { name, unit: key.unit(), given });
        }
        let entry = Entry {
            key,
            issue: positive("issue", issue)?,
            latency: positive("latency", latency)?,
            source: source.to_string(),
        };
        self.table.iter_mut().for_each(|table| table.entries.push(entry.clone()));
        Ok(())
    }
}

impl FromStr for Timing {
    type Err = TimingError;

    fn from_str(text: &str) -> Result<Self, TimingError> {
        Timing::parse(text, |name| Ok(name.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::copy_rows;
    use crate::dtype::DType;
    use crate::features::Features;
    use crate::mma::mma_rows;
    use crate::op::{Class, WgmmaKind};
    use crate::scalar::ScalarOp;
    use crate::sync::MbarrierOp;
    use crate::tcgen05::{tcgen05_rows, tensor_memory_copies};
    use crate::tensor::{BulkOp, TensorRow, tensor_rows};
    use crate::wgmma::{wgmma_rows, wgmmas};

    #[test]
    fn the_built_in_tables_are_complete() {
        for arch in Arch::ALL {
            let table = timing(arch);
            assert_eq!(table.arch, arch);
            for rate in Rate::all(arch) {
                assert!(table.figure(rate).is_some(), "{arch} lacks {rate}");
            }
            for key in OpKey::all(arch) {
                let entry = table.entry(key).unwrap_or_else(|| panic!("{arch} lacks {key}"));
                assert!(entry.latency > 0.0 && entry.issue > 0.0, "{arch} {key}");
            }
            assert_eq!(table.entries.len(), OpKey::all(arch).len(), "{arch}");
            assert_eq!(table.figures.len(), Rate::all(arch).count(), "{arch}");
            assert_eq!(table.clone().completed(), *table);
        }
    }

    #[test]
    fn every_row_has_a_line_on_every_chip_that_has_its_features() {
        for arch in Arch::ALL {
            let table = timing(arch);
            let has = |needs: Features, key: OpKey| !arch.has(needs) || table.entry(key).is_some();
            assert!(copy_rows().iter().all(|row| has(row.needs, row.into())), "{arch}");
            assert!(mma_rows().iter().all(|row| has(row.needs, row.into())), "{arch}");
            assert!(ScalarOp::ALL.iter().all(|op| has(op.needs(), (*op).into())), "{arch}");
            assert!(MbarrierOp::ALL.iter().all(|op| has(op.needs(), (*op).into())), "{arch}");
            assert!(BulkOp::ALL.iter().all(|op| has(op.needs(), (*op).into())), "{arch}");
            assert!(tensor_rows().iter().all(|row| has(TensorRow::NEEDS, row.op.into())), "{arch}");
            for row in wgmma_rows().iter().filter(|_| arch.has(WgmmaRow::NEEDS)) {
                assert!(table.wgmma(row).issue > 0.0, "{arch} {}", row.name);
            }
            for row in tcgen05_rows().iter().filter(|row| arch.has(row.needs())) {
                let [shared, left] = [true, false].map(|shared| table.tcgen05(row, shared).issue);
                assert!(shared >= left && left >= row.n as f64 / 2.0, "{arch} {}", row.name);
            }
            assert!(tensor_memory_copies().iter().all(|row| has(row.needs, row.into())), "{arch}");
        }
    }

    #[test]
    fn products_of_a_warpgroup_between_two_lines_are_between_their_figures() {
        let table: Timing =
            "arch: sm_90a\nwgmma.n64.f32.f16 tensor 32 40 a\nwgmma.n128.f32.f16 tensor 64 72 a"
                .parse()
                .unwrap();
        let of = |n| {
            let row = wgmmas(DType::BF16, DType::BF16, DType::F32, false).find(|row| row.n == n).unwrap();
            let cost = table.wgmma(row);
            (cost.issue, cost.latency)
        };
        assert_eq!([of(64), of(80), of(128)], [(32.0, 40.0), (40.0, 48.0), (64.0, 72.0)]);
        let built_in = timing(Arch::SM_90A);
        // The built-in table has the lines that this one lacks.
        let cost = built_in.cost(OpKey::Wgmma(WgmmaKind::HalfF32, 256));
        assert_eq!(of(256), (cost.issue, cost.latency));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = OpKey::all(Arch::SM_90A).iter().map(OpKey::to_string).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn tables_print_and_parse_back() {
        for arch in Arch::ALL {
            let table = timing(arch);
            assert_eq!(table.to_string().parse::<Timing>().as_ref(), Ok(table));
        }
        assert_eq!([4.0, 1.5, 28.125, 0.5].map(number), ["4", "1.5", "28.12", "0.5"]);
    }

    #[test]
    fn what_a_table_lacks_is_the_built_in() {
        let own: Timing = "arch: sm_90a # mine\n\nclock_mhz: 1500 a\nlop3 alu 3 5 a b\n".parse().unwrap();
        assert_eq!(own.entry(Class::Lop3).map(|e| (e.issue, e.source.as_str())), Some((3.0, "a b")));
        assert_eq!(own.cost(Class::Prmt), timing(Arch::SM_90A).cost(Class::Prmt));
        let completed = own.completed();
        assert_eq!(completed.rate(Rate::ClockMhz), 1500.0);
        assert_eq!(completed.cost(Class::Lop3).issue, 3.0);
        assert_eq!(completed.entry(Class::Prmt), timing(Arch::SM_90A).entry(Class::Prmt));
    }

    #[test]
    fn mistakes_name_the_line_and_what_would_be_right() {
        let cases = [
            ("", "line 1: the first line that is no comment must be `arch: NAME`"),
            ("# c\nlop3 alu 1 4 x", "line 2: the first line that is no comment must be `arch: NAME`"),
            ("arch: sm_75", "line 1: architecture `sm_75` is not supported; supported are sm_80"),
            ("arch: sm_80\n\nspeed: 3 x", "line 3: `speed` is not a rate of the chip; rates are clock_mhz, "),
            ("arch: sm_80\nclock_mhz:", "line 2: the value is missing; a rate is `name: value source`"),
            ("arch: sm_80\nclock_mhz: fast x", "line 2: the value is `fast`; it must be a number above 0"),
            (
                "arch: sm_80\nlaunch_us: 1 x\nlaunch_us: 2 x",
                "line 3: `launch_us` is given twice; line 2 has it",
            ),
            ("arch: sm_80\narch: sm_80", "line 2: `arch` is given twice; line 1 has it"),
            ("arch: sm_80\nldmatrix.x8 lsu 1 1 x", "did you mean one of ldmatrix.x4, ldmatrix.x4.trans, "),
            (
                "arch: sm_80\nstmatrix.x4 lsu 1 1 x",
                "line 2: `stmatrix.x4` is not an instruction of sm_80; names",
            ),
            ("arch: sm_80\nlop3 lut 1 4 x", "line 2: `lop3` occupies the unit `alu`, not `lut`"),
            (
                "arch: sm_80\nlop3",
                "line 2: the unit is missing; an entry is `name unit issue latency source`",
            ),
            ("arch: sm_80\nlop3 alu", "line 2: the issue is missing"),
            ("arch: sm_80\nlop3 alu 1", "line 2: the latency is missing"),
            ("arch: sm_80\nlop3 alu 1 4", "line 2: the source is missing"),
            ("arch: sm_80\nlop3 alu 0 4 x", "line 2: the issue is `0`; it must be a number above 0"),
            ("arch: sm_80\nlop3 alu 1 nan x", "line 2: the latency is `nan`; it must be a number above 0"),
            (
                "arch: sm_80\nlop3 alu 1 4 x\nlop3 alu 1 4 x",
                "line 3: `lop3` is given twice; line 2 has it already",
            ),
        ];
        for (text, message) in cases {
            let error = text.parse::<Timing>().unwrap_err().to_string();
            assert!(error.contains(message), "{text:?} says {error}");
        }
    }
}
