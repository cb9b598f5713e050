//! What instructions and the chip cost: one table an architecture, a text file that a person can read and compare.
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
//! issue, latency, source. *Issue* is the number of cycles for which one warp's instruction occupies its unit; how many
//! of a unit a multiprocessor has says [`Unit::count`]. *Latency* is the number of cycles until the result can be used. An
//! entry's name is that of a copy row, of a matrix row, or of a class of scalar operations ([`ScalarOp::class`]).
//!
//! The built-in tables are in `tables/`; `tilewright calibrate` prints one for the GPU at hand. `docs/calibrate.md` says how
//! each figure is measured.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::arch::{Arch, ArchSpec, UnknownArch};
use crate::copy::{CopyRow, Scope, copy_rows};
use crate::mma::mma_rows;
use crate::scalar::ScalarOp;

/// What an instruction occupies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Unit {
    /// The tensor core.
    Tensor,
    /// The pipe of `f32` arithmetic and of integer products.
    Fma,
    /// The pipe of integer sums, logic, comparisons, selections and most conversions.
    Alu,
    /// The pipe of transcendental functions and of conversions from floats to integers.
    Mufu,
    /// The load/store unit: shared memory, global memory and shuffles.
    Lsu,
    /// The scheduler's issue slots: sequences of several instructions.
    Issue,
}

impl Unit {
    /// Every unit.
    pub const ALL: [Unit; 6] = [Unit::Tensor, Unit::Fma, Unit::Alu, Unit::Mufu, Unit::Lsu, Unit::Issue];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Tensor => "tensor",
            Unit::Fma => "fma",
            Unit::Alu => "alu",
            Unit::Mufu => "mufu",
            Unit::Lsu => "lsu",
            Unit::Issue => "issue",
        }
    }

    /// How many a multiprocessor has: one in each of its four parts, but one load/store unit in all.
    pub fn count(self) -> u32 {
        if self == Unit::Lsu { 1 } else { 4 }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A figure of the whole chip, or of one multiprocessor beside its instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Rate {
    /// The clock of the multiprocessors, in MHz.
    ClockMhz,
    /// Multiprocessors.
    Multiprocessors,
    /// Warp schedulers of a multiprocessor.
    Schedulers,
    /// Bytes that shared memory gives one multiprocessor a cycle.
    SharedBytes,
    /// Bytes that the L2 cache gives one multiprocessor a cycle, all reading at once.
    L2Bytes,
    /// Bytes that DRAM gives one multiprocessor a cycle, all reading at once.
    DramBytes,
    /// Bytes that one multiprocessor stores to global memory a cycle, when it goes on for long.
    StoreBytes,
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
    pub const ALL: [Rate; 13] = [
        Rate::ClockMhz,
        Rate::Multiprocessors,
        Rate::Schedulers,
        Rate::SharedBytes,
        Rate::L2Bytes,
        Rate::DramBytes,
        Rate::StoreBytes,
        Rate::L1Latency,
        Rate::L2Latency,
        Rate::DramLatency,
        Rate::Barrier4,
        Rate::Barrier8,
        Rate::LaunchUs,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Rate::ClockMhz => "clock_mhz",
            Rate::Multiprocessors => "multiprocessors",
            Rate::Schedulers => "schedulers",
            Rate::SharedBytes => "shared_bytes_per_clock",
            Rate::L2Bytes => "l2_bytes_per_clock",
            Rate::DramBytes => "dram_bytes_per_clock",
            Rate::StoreBytes => "store_bytes_per_clock",
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

/// Classes of scalar operations with the unit that they occupy, in the order of tables. `shfl` is the warp shuffle;
/// packed half-precision arithmetic (`fma.f16x2`) has an entry though no operation is of its class yet.
pub const CLASSES: &[(&str, Unit)] = &[
    ("fma.f32", Unit::Fma),
    ("fma.f16x2", Unit::Fma),
    ("min.f32", Unit::Alu),
    ("add.i32", Unit::Alu),
    ("min.i32", Unit::Alu),
    ("lop3", Unit::Alu),
    ("shift", Unit::Alu),
    ("prmt", Unit::Alu),
    ("bfe", Unit::Alu),
    ("bfi", Unit::Alu),
    ("setp", Unit::Alu),
    ("selp", Unit::Alu),
    ("imad", Unit::Fma),
    ("imad.wide", Unit::Fma),
    ("add.i64", Unit::Alu),
    ("mul.i64", Unit::Fma),
    ("shift.b64", Unit::Alu),
    ("extend.i64", Unit::Alu),
    ("cvt.f16x2.f32", Unit::Alu),
    ("cvt.f32.f16", Unit::Fma),
    ("cvt.f32.i32", Unit::Alu),
    ("cvt.i32.f32", Unit::Mufu),
    ("cvt.i16", Unit::Alu),
    ("cvt.f8", Unit::Alu),
    ("ex2", Unit::Mufu),
    ("lg2", Unit::Mufu),
    ("rsqrt", Unit::Mufu),
    ("sqrt.f32", Unit::Issue),
    ("div.f32", Unit::Issue),
    ("div.i32", Unit::Issue),
    ("shfl", Unit::Lsu),
];

impl ScalarOp {
    /// The class of operations that cost the same: the name of its entry in a [`Timing`].
    pub fn class(self) -> &'static str {
        use ScalarOp::*;
        match self {
            AddI32 | SubI32 => "add.i32",
            MulI32 => "imad",
            DivI32 | RemI32 => "div.i32",
            MinI32 | MaxI32 => "min.i32",
            AndB32 | OrB32 | XorB32 | Lop3B32 => "lop3",
            ShlB32 | ShrU32 => "shift",
            BfeU32 | BfeS32 => "bfe",
            BfiB32 => "bfi",
            PrmtB32 => "prmt",
            ExtendI64 => "extend.i64",
            Mapa => "cvt.i16",
            MulWide => "imad.wide",
            AddI64 => "add.i64",
            MulI64 => "mul.i64",
            ShlB64 | ShrI64 => "shift.b64",
            LtI32 | GeI32 | EqI32 | NeI32 | AndPred | XorPred => "setp",
            Select => "selp",
            // Negation and absolute value are mostly modifiers of what uses them; alone, they are a sum.
            AddF32 | SubF32 | MulF32 | FmaF32 | NegF32 | AbsF32 => "fma.f32",
            MinF32 | MaxF32 => "min.f32",
            DivF32 => "div.f32",
            SqrtF32 => "sqrt.f32",
            RsqrtF32 => "rsqrt",
            Ex2F32 | Ex2FtzF32 | RcpFtzF32 => "ex2",
            Lg2F32 => "lg2",
            LowB16 | ExtendB16 | LowB32 => "cvt.i16",
            F32FromF16 => "cvt.f32.f16",
            F16FromF32 | BF16FromF32 | F16x2FromF32 | BF16x2FromF32 => "cvt.f16x2.f32",
            F32FromI32 => "cvt.f32.i32",
            I32FromF32 => "cvt.i32.f32",
            AddF16x2 | SubF16x2 | MulF16x2 | FmaF16x2 | AddBF16x2 | SubBF16x2 | MulBF16x2 | FmaBF16x2 => {
                "fma.f16x2"
            }
            MinF16x2 | MaxF16x2 | MinBF16x2 | MaxBF16x2 => "min.f32",
            F16x2FromE4M3x2 | E4M3x2FromF16x2 | E5M2x2FromF16x2 | E4M3x2FromF32 | E5M2x2FromF32 => "cvt.f8",
        }
    }
}

/// The cost of an instruction or of a class of operations.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The row's name, or the class's.
    pub name: String,
    /// What it occupies.
    pub unit: Unit,
    /// Cycles for which one warp's instruction occupies one such unit.
    pub issue: f64,
    /// Cycles until its result can be used. Of a load from global memory: where the data are in the L2 cache. Of a store:
    /// until a load sees it (shared memory), or the same as issue (global memory, for which nobody waits).
    pub latency: f64,
    /// Where the figures are from.
    pub source: String,
}

/// A rate's value.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Which rate.
    pub rate: Rate,
    /// Its value.
    pub value: f64,
    /// Where it is from.
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

/// The tables of the architectures that come with the compiler, and of those that [`Arch::new`] has made.
static TABLES: LazyLock<RwLock<HashMap<Arch, &'static Timing>>> = LazyLock::new(|| {
    let table = |arch: Arch| -> &'static Timing {
        let timing = Timing::parse(arch.spec().timing, |name| named(arch, name));
        Box::leak(Box::new(timing.expect("the built-in tables are literals that a test parses")))
    };
    RwLock::new(Arch::ALL.into_iter().map(|arch| (arch, table(arch))).collect())
});

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
        if let Some(rate) = Rate::ALL.into_iter().find(|rate| table.rate(*rate).is_none()) {
            return Err(missing(rate.name()));
        }
        if let Some((name, _)) = entry_names(arch).into_iter().find(|(name, _)| table.of(name).is_none()) {
            return Err(missing(name));
        }
        let mut tables = TABLES.write().unwrap_or_else(PoisonError::into_inner);
        tables.entry(arch).or_insert_with(|| Box::leak(Box::new(table)));
        Ok(arch)
    }
}

/// The names that a table of this architecture has entries for: copies, matrix products, classes of scalar operations.
pub fn entry_names(arch: Arch) -> Vec<(&'static str, Unit)> {
    let mma = mma_rows().iter().filter(|row| arch.has(row.needs)).map(|row| (row.name, Unit::Tensor));
    // What a peer's memory costs is not measured: its rows carry figures of their own.
    let own = |row: &&CopyRow| arch.has(row.needs) && row.scope == Scope::Cta;
    let copies = copy_rows().iter().filter(own).map(|row| (row.name, Unit::Lsu));
    mma.chain(copies).chain(CLASSES.iter().copied()).collect()
}

impl Timing {
    /// The entry with this name: a copy row's, a matrix row's or a class's.
    pub fn of(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// The entry of a scalar operation's class.
    pub fn of_scalar(&self, op: ScalarOp) -> Option<&Entry> {
        self.of(op.class())
    }

    /// The value of a rate.
    pub fn rate(&self, rate: Rate) -> Option<f64> {
        self.figures.iter().find(|f| f.rate == rate).map(|f| f.value)
    }

    /// This table, with what it lacks taken from the built-in one of its architecture.
    pub fn completed(mut self) -> Self {
        self.complete_from(timing(self.arch));
        self
    }

    /// Takes what it lacks, and its architecture has, from another table.
    fn complete_from(&mut self, other: &Timing) {
        for figure in &other.figures {
            if self.rate(figure.rate).is_none() {
                self.figures.push(figure.clone());
            }
        }
        let known = entry_names(self.arch);
        for entry in &other.entries {
            if self.of(&entry.name).is_none() && known.iter().any(|(name, _)| *name == entry.name) {
                self.entries.push(entry.clone());
            }
        }
    }

    /// Reads a table whose `arch:` line is understood by `find`.
    fn parse(text: &str, find: impl Fn(&str) -> Result<Arch, TimingMistake>) -> Result<Timing, TimingError> {
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
            table.complete_from(timing(like));
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
        let Entry { name, unit, issue, latency, source } = self;
        write!(f, "{name:<24} {:<6} {:>6} {:>7}  {source}", unit.name(), number(*issue), number(*latency))
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "arch: {}", self.arch)?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "{figure}"))?;
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

/// What is wrong with a line of a table.
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
    /// The unit does not exist.
    #[error("`{0}` is not a unit; units are {units}", units = list(Unit::ALL.iter().map(|u| u.name())))]
    UnknownUnit(String),
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
        /// What the number says.
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

/// A text that is no table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {mistake}")]
pub struct TimingError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub mistake: TimingMistake,
}

/// The known names that begin as `name` does, as the end of a message.
fn near(name: &str, arch: Arch) -> String {
    let known = entry_names(arch);
    let head = name.split('.').next().unwrap_or(name);
    let alike: Vec<&str> =
        known.iter().map(|(n, _)| *n).filter(|n| n.split('.').next() == Some(head)).take(12).collect();
    if alike.is_empty() {
        let heads: Vec<&str> = known.iter().map(|(n, _)| n.split('.').next().unwrap_or(n)).collect();
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
        if !entry_names(arch).iter().any(|(name, _)| *name == first) {
            return Err(TimingMistake::UnknownName {
                name: first.to_string(),
                arch,
                near: near(first, arch),
            });
        }
        self.once(first, line)?;
        let (unit, rest) = word(rest);
        let (issue, rest) = word(rest);
        let (latency, source) = word(rest);
        for (what, text) in [("unit", unit), ("issue", issue), ("latency", latency), ("source", source)] {
            if text.is_empty() {
                return Err(TimingMistake::Missing(what));
            }
        }
        let entry = Entry {
            name: first.to_string(),
            unit: Unit::ALL
                .into_iter()
                .find(|u| u.name() == unit)
                .ok_or_else(|| TimingMistake::UnknownUnit(unit.to_string()))?,
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

    #[test]
    fn the_built_in_tables_are_complete() {
        for arch in Arch::ALL {
            let table = timing(arch);
            assert_eq!(table.arch, arch);
            for rate in Rate::ALL {
                assert!(table.rate(rate).is_some(), "{arch} lacks {rate}");
            }
            for (name, _) in entry_names(arch) {
                let entry = table.of(name).unwrap_or_else(|| panic!("{arch} lacks {name}"));
                assert!(entry.latency > 0.0 && entry.issue > 0.0, "{arch} {name}");
            }
            assert_eq!(table.entries.len(), entry_names(arch).len(), "{arch}");
            assert_eq!(table.clone().completed(), *table);
        }
    }

    #[test]
    fn every_scalar_operation_has_an_entry() {
        for op in ScalarOp::ALL {
            assert!(timing(Arch::SM_90A).of_scalar(*op).is_some(), "{}: {}", op.row().name, op.class());
        }
    }

    #[test]
    fn names_of_rows_and_classes_do_not_clash() {
        let mut names: Vec<_> = entry_names(Arch::SM_90A).into_iter().map(|(name, _)| name).collect();
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
        assert_eq!(own.of("lop3").map(|e| (e.issue, e.source.as_str())), Some((3.0, "a b")));
        let all = own.completed();
        assert_eq!(all.rate(Rate::ClockMhz), Some(1500.0));
        assert_eq!(all.of("lop3").map(|e| e.issue), Some(3.0));
        assert_eq!(all.of("prmt"), timing(Arch::SM_90A).of("prmt"));
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
            (
                "arch: sm_80\nlop3 lut 1 4 x",
                "line 2: `lut` is not a unit; units are tensor, fma, alu, mufu, lsu",
            ),
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
