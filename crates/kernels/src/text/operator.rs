//! An operator whose program is a text file: its row, its parameters, and the programs and points of its space.

use std::borrow::Cow;
use std::fmt;

use std::collections::{BTreeMap, HashSet};

use tilewright_machine::{Arch, DType, Features, SyncOp};
use tilewright_tile::{Expr, Program, SymbolKind, parse};

use super::space;
use crate::config::{Codec, ConfigError, Parameter, dtype_of, list, number, refusal};
use crate::tuning::{Point, SizeKind, Space};

/// Sizes by name.
pub type Sizes = BTreeMap<String, i64>;

/// Tensors and scalars by name, row-major, as f64.
pub type Values = BTreeMap<String, Vec<f64>>;

/// An operator whose program is a text file.
#[derive(Clone, Copy, Debug)]
pub struct TextOperator {
    /// The name.
    pub name: &'static str,
    /// The formula that it computes.
    pub about: &'static str,
    /// Programs of the operator, the first of them the default, which is right at all sizes.
    pub forms: &'static [Form],
    /// The tile constants that are parameters.
    pub knobs: &'static [Knob],
    /// The sizes, in the order in which people name them.
    pub sizes: &'static [(&'static str, SizeKind)],
    /// Sizes, in the order of `sizes`, at which tiles meet every kind of edge.
    pub edges: &'static [&'static [i64]],
    /// Sizes of a large problem, in whole vectors.
    pub large: &'static [i64],
    /// Sizes of tables of which rows are picked, and numbers of sequences that rows are divided into: the work does not grow with them.
    pub(crate) tables: &'static [&'static str],
    /// Ranges of integer parameters, from 0 to a size: `("ids", "v")`.
    pub indices: &'static [(&'static str, &'static str)],
    /// Of these, those that name a number once; the others, as many as there are too few numbers, are -1.
    pub distinct: &'static [&'static str],
    /// Ranges of floating-point parameters that have no meaning elsewhere; of the others it is from -1 to 1.
    pub floats: &'static [(&'static str, f64, f64)],
    /// Tensors of f32 of the tile's size that a thread holds at once.
    pub(crate) live: i64,
    /// Rows that a block of the form `shared` has in shared memory for each row of the result.
    pub(crate) staged: i64,
    /// The configurations worth trying for sizes in the order of `sizes`.
    pub(crate) space: fn(&TextOperator, &[i64]) -> Vec<Setting>,
    /// Elements of `dtype` that are read and written, each counted once.
    pub traffic: fn(&[i64]) -> f64,
    /// The results, in f64, of inputs that are exact. Scalars are tensors of one element.
    pub reference: fn(&Sizes, &Values) -> Values,
    /// Largest distance of a result, by name, from the reference: this many roundings to its type, plus an absolute part.
    pub tolerance: fn(&str) -> (f64, f64),
    /// The features that it needs.
    pub needs: Features,
    /// Types that the parameter `dtype` may be.
    pub types: &'static [DType],
    /// True where elements are added to memory in an open order, so that the bits of results differ from run to run.
    pub open_order: bool,
    /// True where some access moves less than 16 bytes at a time even if all sizes are multiples of vectors: a few numbers a row.
    pub narrow: bool,
}

/// A program of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The value of the parameter `form`.
    pub name: &'static str,
    /// The files of the programs, in the folder of the table.
    pub files: &'static [&'static str],
    /// The programs, which are launched in this order; tensors of the same name are the same.
    pub texts: &'static [&'static str],
    /// The sizes that it is for.
    pub limit: Limit,
    /// The features that it needs beside those of the operator.
    pub needs: Features,
}

/// The names of forms, with a description.
const FORMS: &[(&str, &str)] = &[
    ("tiles", "any tiles of the tensor"),
    ("chunks", "rows of any length, in chunks"),
    ("row", "rows in registers, bn · cluster >= n"),
    ("shared", "rows in shared memory, bn · pieces · cluster >= n"),
    ("vectors", "rows of multiples of 8"),
    ("direct", "all rows of some columns in one block"),
    ("groups", "maxima of groups of columns first"),
    ("bins", "bins in shared memory"),
    ("parts", "parts of the columns by blocks of their own"),
    ("hopper", "TMA and wgmma, for sm_90a"),
    ("shifted", "a load for each of the shifted inputs"),
    ("pairs", "two threads a channel"),
    ("blocks", "a fixed number of blocks, the last of which puts their results together"),
    ("quads", "four threads a channel, eight steps at a time"),
    ("few", "four threads a channel, sixteen steps at a time"),
];

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let about = FORMS.iter().find(|(name, _)| *name == self.name);
        about.map_or(Ok(()), |(_, about)| write!(f, ": {about}"))
    }
}

/// The sizes that a form is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Any.
    None,
    /// The blocks of a cluster have together as many columns as this size says.
    Whole(&'static str),
    /// This size is a multiple of 8, and elements have 16 bits: rows are whole vectors of 16 bytes.
    Vectors(&'static str),
}

/// A tile constant that is a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The parameter's name.
    pub name: &'static str,
    /// The constant's.
    pub constant: &'static str,
    /// A description.
    pub about: &'static str,
}

/// A configuration: the type, the form and the value of each knob, in the order of [`TextOperator::knobs`]. `None` is the file's
/// default.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Setting {
    pub dtype: DType,
    pub form: usize,
    /// Programs begin by waiting for the launches ahead of them.
    pub dependent: bool,
    pub knobs: Vec<i64>,
}

/// Elements of 16 bits in a vector of 16 bytes.
pub(crate) const VECTOR: i64 = 8;

/// Types of floating-point tensors of elementwise programs and of those with sums.
pub(crate) const FLOATS: &[DType] = &[DType::F16, DType::BF16, DType::F32];

/// Types of the factors of matrix products.
pub(crate) const FACTORS: &[DType] = &[DType::F16, DType::BF16];

impl TextOperator {
    /// The programs of the files, parsed.
    pub(super) fn parsed(
        &self,
        form: usize,
        dtype: DType,
        dependent: bool,
    ) -> Result<Vec<Program>, ConfigError> {
        let read = |text: &&str| {
            let text = if dtype == DType::F16 { Cow::Borrowed(*text) } else { with_type(text, dtype).into() };
            if dependent { parse(&waiting(&text)) } else { parse(&text) }
        };
        Ok(self.forms[form].texts.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The defaults of a form.
    fn defaults(&self, form: usize) -> Result<Setting, ConfigError> {
        let programs = self.parsed(form, DType::F16, false)?;
        let value = |knob: &Knob| {
            let mut constants = programs.iter().flat_map(Program::constants);
            let found = constants.find(|(_, symbol, _)| symbol.name == knob.constant);
            found.and_then(|(_, _, default)| default.as_int()).unwrap_or(1)
        };
        Ok(Setting {
            dtype: DType::F16,
            form,
            dependent: false,
            knobs: self.knobs.iter().map(value).collect(),
        })
    }

    /// The setting of values by name; those not named have the defaults of the form.
    pub(super) fn setting(&self, given: &[(&str, &str)]) -> Result<Setting, ConfigError> {
        let form = match given.iter().find(|(name, _)| *name == "form") {
            Some((_, value)) => self.form(value)?,
            None => 0,
        };
        let mut setting = self.defaults(form)?;
        self.apply(&mut setting, given)?;
        Ok(setting)
    }

    fn form(&self, value: &str) -> Result<usize, ConfigError> {
        let names = || list(self.forms.iter().map(|form| form.name));
        self.forms
            .iter()
            .position(|form| form.name == value)
            .ok_or_else(|| ConfigError::value("form", value, format!("must be one of {}", names())))
    }

    /// Sets the given values.
    fn apply(&self, setting: &mut Setting, given: &[(&str, &str)]) -> Result<(), ConfigError> {
        for (name, value) in given {
            match *name {
                "dtype" => setting.dtype = dtype_of(self.types, "dtype", value)?,
                "form" if self.forms.len() > 1 => setting.form = self.form(value)?,
                "dependent" => setting.dependent = (Codec::<bool>::FLAG.read)("dependent", value)?,
                _ => {
                    let Some(at) = self.knobs.iter().position(|knob| knob.name == *name) else {
                        let known = self.parameters();
                        return Err(ConfigError::UnknownParameter {
                            operator: self.name,
                            name: name.to_string(),
                            known: list(known.iter().map(|parameter| parameter.name)),
                        });
                    };
                    setting.knobs[at] = number(self.knobs[at].name, value)?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether programs of the form have the knob: their texts name its constant.
    pub(super) fn has(&self, form: usize, knob: &Knob) -> bool {
        let words = |text: &&'static str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        self.forms[form].texts.iter().flat_map(words).any(|word| word == knob.constant)
    }

    pub(super) fn check(&self, setting: &Setting) -> Result<(), ConfigError> {
        let form = &self.forms[setting.form];
        for (knob, value) in self.knobs.iter().zip(&setting.knobs).filter(|(_, value)| **value != 1) {
            if !self.has(setting.form, knob) {
                let message = format!("must be left out with form={}", form.name);
                return Err(ConfigError::value(knob.name, value, message));
            }
        }
        if matches!(form.limit, Limit::Vectors(_)) && setting.dtype.bits() != 16 {
            return Err(ConfigError::value(
                "dtype",
                setting.dtype,
                format!("must be f16 or bf16 with form={}", form.name),
            ));
        }
        for (knob, value) in self.knobs.iter().zip(&setting.knobs) {
            if *value < 1 {
                return Err(ConfigError::value(knob.name, value, "must be at least 1"));
            }
            if knob.name == "cluster" && ![1, 2, 4, 8].contains(value) {
                return Err(ConfigError::value(knob.name, value, "must be 1, 2, 4 or 8"));
            }
            if knob.name == "k" && *value > 1024 {
                return Err(ConfigError::value(knob.name, value, "must be at most 1024"));
            }
            let has = self.has(setting.form, knob);
            if has && knob.name == "threads" && (*value % 32 != 0 || *value > 1024) {
                return Err(ConfigError::value(knob.name, value, "must be a multiple of 32, at most 1024"));
            }
        }
        Ok(())
    }

    /// The reason why the programs for these parameters cannot run on an architecture, if they cannot.
    pub(super) fn reject(&self, arch: Arch, given: &[(&str, &str)]) -> Option<String> {
        match self.setting(given).and_then(|setting| self.check(&setting).map(|()| setting)) {
            Ok(setting) if setting.dependent => refusal(arch, SyncOp::DependencyWait.needs(), Ok(())),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    /// The parameters.
    pub fn parameters(&self) -> Vec<Parameter> {
        let default = self.defaults(0).map(|setting| setting.knobs).unwrap_or_default();
        let dtype = Parameter {
            name: "dtype",
            default: "f16".to_string(),
            about: "The type of floating-point tensors: f16, bf16 or f32 (of matrix products f16 or bf16)."
                .into(),
        };
        let form = (self.forms.len() > 1).then(|| Parameter {
            name: "form",
            default: self.forms[0].name.to_string(),
            about: format!(
                "The program: {}.",
                self.forms.iter().map(Form::to_string).collect::<Vec<_>>().join("; ")
            )
            .into(),
        });
        let knobs = self.knobs.iter().zip(default).map(|(knob, value)| Parameter {
            name: knob.name,
            default: value.to_string(),
            about: knob.about.into(),
        });
        let dependent = Parameter {
            name: "dependent",
            default: "false".to_string(),
            about: "true: programmatic dependent launch, on sm_90a: a kernel may begin before the one ahead of it has ended, and waits for its results by itself.".into(),
        };
        [dtype].into_iter().chain(form).chain(knobs).chain([dependent]).collect()
    }

    /// The programs for values of parameters by name, in the order of their launches.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the parameter.
    pub fn programs(&self, given: &[(&str, &str)]) -> Result<Vec<Program>, ConfigError> {
        let setting = self.setting(given)?;
        self.check(&setting)?;
        let mut programs = self.parsed(setting.form, setting.dtype, setting.dependent)?;
        for (knob, value) in self.knobs.iter().zip(&setting.knobs) {
            let symbols = programs.iter_mut().flat_map(|program| &mut program.symbols);
            for symbol in symbols.filter(|symbol| symbol.name == knob.constant) {
                if matches!(symbol.kind, SymbolKind::Constant(_)) {
                    symbol.kind = SymbolKind::Constant(Expr::Int(*value));
                }
            }
        }
        Ok(programs)
    }

    /// The given parameters that differ from the defaults.
    pub(super) fn differences(&self, setting: &Setting) -> Result<Vec<(&'static str, String)>, ConfigError> {
        let default = self.defaults(setting.form)?;
        let mut words = Vec::new();
        if setting.dtype != default.dtype {
            words.push(("dtype", setting.dtype.to_string()));
        }
        if setting.form != 0 {
            words.push(("form", self.forms[setting.form].name.to_string()));
        }
        let knobs = self.knobs.iter().zip(setting.knobs.iter().zip(&default.knobs));
        words.extend(
            knobs.filter(|(_, (a, b))| a != b).map(|(knob, (value, _))| (knob.name, value.to_string())),
        );
        if setting.dependent {
            words.push(("dependent", "true".to_string()));
        }
        Ok(words)
    }

    /// True if there is a knob of this name.
    pub(crate) fn has_knob(&self, name: &str) -> bool {
        self.knobs.iter().any(|knob| knob.name == name)
    }

    /// The value of a knob, if there is one of this name.
    pub(crate) fn knob(&self, setting: &Setting, name: &str) -> Option<i64> {
        let at = self.knobs.iter().position(|knob| knob.name == name)?;
        setting.knobs.get(at).copied()
    }

    /// The columns that a cluster of blocks holds together.
    fn held_columns(&self, setting: &Setting) -> Option<i64> {
        let columns = self.knob(setting, "bn")?;
        let parts = ["pieces", "cluster"].map(|name| self.knob(setting, name).unwrap_or(1));
        parts.into_iter().try_fold(columns, i64::checked_mul)
    }

    /// The sizes in the order of `sizes`.
    pub(super) fn values(&self, sizes: &Sizes) -> Result<Vec<i64>, ConfigError> {
        let value = |(name, kind): &(&'static str, SizeKind)| match sizes.get(*name) {
            Some(value) if *value >= 1 => Ok(*value),
            Some(value) => Err(ConfigError::value(name, value, "a size must be at least 1")),
            None if *kind == SizeKind::Count => Ok(1),
            None => Err(ConfigError::value(name, "nothing", "the problem's size must be given")),
        };
        self.sizes.iter().map(value).collect()
    }

    /// Returns whether the form is for the sizes.
    pub(super) fn holds(&self, setting: &Setting, sizes: &[i64]) -> bool {
        let value = |size: &str| {
            let names = self.sizes.iter().map(|(name, _)| *name);
            names.zip(sizes).find(|(name, _)| *name == size).map_or(1, |(_, value)| *value)
        };
        match self.forms[setting.form].limit {
            Limit::None => true,
            Limit::Whole(size) => self.held_columns(setting).is_some_and(|columns| value(size) <= columns),
            Limit::Vectors(size) => value(size) % VECTOR == 0,
        }
    }

    /// The configurations worth trying, by estimated time.
    ///
    /// # Errors
    ///
    /// For sizes that are missing and parameters that there are not.
    pub fn points(&self, arch: Arch, sizes: &Sizes, pinned: &[(&str, &str)]) -> Result<Space, ConfigError> {
        let values = self.values(sizes)?;
        self.setting(pinned)?;
        let (mut space, mut seen) = (Space::default(), HashSet::new());
        for mut setting in (self.space)(self, &values) {
            self.apply(&mut setting, pinned)?;
            if !seen.insert(setting.clone()) {
                continue;
            }
            let clusters = self.knob(&setting, "cluster").is_some_and(|blocks| blocks > 1);
            let lacks = clusters && !arch.has(SyncOp::ClusterBarrier.needs());
            let lacks = lacks || !arch.has(self.forms[setting.form].needs);
            let lacks = lacks || setting.dependent && !arch.has(SyncOp::DependencyWait.needs());
            if lacks || self.check(&setting).is_err() || !self.holds(&setting, &values) {
                space.refused += 1;
                continue;
            }
            space.points.push(Point {
                parameters: self.differences(&setting)?,
                estimate: space::estimate(self, &setting, arch, &values),
                suits: true,
            });
        }
        space.points.sort_by(|a, b| {
            a.estimate.total_cmp(&b.estimate).then(a.parameters.len().cmp(&b.parameters.len()))
        });
        Ok(space)
    }
}

/// The text with kernels that begin by waiting for the launches ahead of them, and that let those behind them begin.
fn waiting(text: &str) -> String {
    let Some((before, kernel)) = text.split_once("\nkernel ") else { return text.to_string() };
    let begun = kernel.replacen('{', "{\n    wait_dependencies()\n    launch_dependents()", 1);
    format!("{before}\nkernel {begun}")
}

/// The text with another type in place of the word `f16`.
fn with_type(text: &str, dtype: DType) -> String {
    let (dtype, mut result, mut rest) = (dtype.to_string(), String::new(), text);
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(at) = rest.find("f16") {
        let (before, after) = (&rest[..at], &rest[at + 3..]);
        let alone = !before.ends_with(is_word) && !after.starts_with(is_word);
        result.push_str(before);
        result.push_str(if alone { &dtype } else { "f16" });
        rest = after;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_put_in_place_of_whole_words() {
        assert_eq!(with_type("x: f16[m], bf16, f16x2, (f16)", DType::F32), "x: f32[m], bf16, f16x2, (f32)");
    }
}
