//! Parameters of operators: declared once as the fields of a configuration, read and written by name.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use tilewright_machine::{Arch, CacheHint, DType, Features};
use tilewright_tile::renamed::{Place, renamed};
use tilewright_tile::{Diagnostics, Program};

/// The reason why a configuration has no program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field has a value that the operator cannot have.
    #[error("`{field}` = {value}: {wanted}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The values that would be right.
        wanted: String,
    },
    /// There is no operator of this name.
    #[error("there is no operator `{name}`; there are {known}")]
    UnknownOperator {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The operator has no parameter of this name.
    #[error("`{operator}` has no parameter `{name}`; its parameters are {known}")]
    UnknownParameter {
        /// The operator.
        operator: &'static str,
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The parameter, or the value, has another name now.
    #[error("`{operator}`: `{old}` is called `{new}` now")]
    Renamed {
        /// The operator.
        operator: &'static str,
        /// The old name.
        old: String,
        /// The name that it has now.
        new: &'static str,
    },
    /// The program could not be built.
    #[error(transparent)]
    Program(#[from] Diagnostics),
}

impl ConfigError {
    pub(crate) fn value(field: &'static str, value: impl fmt::Display, wanted: impl Into<String>) -> Self {
        ConfigError::Value { field, value: value.to_string(), wanted: wanted.into() }
    }
}

/// A parameter of an operator, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// The value where none is given.
    pub default: String,
    /// A description.
    pub about: Cow<'static, str>,
}

/// A field of a configuration.
pub(crate) struct Field<C> {
    pub name: &'static str,
    pub about: &'static str,
    /// The value as text.
    pub get: fn(&C) -> String,
    /// Sets the value from its text.
    pub set: fn(&mut C, &str) -> Result<(), ConfigError>,
    /// Takes the value of another configuration.
    pub take: fn(&mut C, &C),
}

/// A configuration whose fields are [`parameters!`].
pub(crate) trait Config: Default + 'static {
    /// The operator's name.
    const NAME: &'static str;
    /// The fields.
    const FIELDS: &'static [Field<Self>];

    /// The programs, to be launched in this order.
    fn build(&self) -> Result<Vec<Program>, ConfigError>;
}

/// Defines a configuration and [`Config`] for it: each field once, with its documentation, type, text form (a constant of
/// [`Codec`]) and default. The closing line names the method that makes the programs.
macro_rules! parameters {
    (
        $(#[$meta:meta])*
        pub struct $Config:ident, $name:literal, $programs:ident {
            $($(#[doc = $doc:literal])+ $field:ident: $type:ty as $codec:ident = $default:expr,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub struct $Config {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for $Config {
            fn default() -> Self {
                $Config { $($field: $default,)+ }
            }
        }

        impl $crate::config::Config for $Config {
            const NAME: &'static str = $name;
            const FIELDS: &'static [$crate::config::Field<Self>] = &[$($crate::config::Field {
                name: stringify!($field),
                about: concat!($($doc),+).trim_ascii(),
                get: |config| ($crate::config::Codec::<$type>::$codec.write)(&config.$field),
                set: |config, text| {
                    let read = $crate::config::Codec::<$type>::$codec.read;
                    config.$field = read(stringify!($field), text)?;
                    Ok(())
                },
                take: |config, other| config.$field = Clone::clone(&other.$field),
            },)+];

            fn build(&self) -> Result<Vec<tilewright_tile::Program>, $crate::config::ConfigError> {
                self.$programs()
            }
        }
    };
}
pub(crate) use parameters;

/// The text form of a parameter's values.
pub(crate) struct Codec<T> {
    /// Reads a value; the field is for the error.
    pub read: fn(&'static str, &str) -> Result<T, ConfigError>,
    /// Writes a value.
    pub write: fn(&T) -> String,
}

impl<T: fmt::Display + FromStr<Err: Into<String>>> Codec<T> {
    /// Values that know their own text form.
    pub const OWN: Self = Codec {
        read: |field, text| text.parse().map_err(|wanted: T::Err| ConfigError::value(field, text, wanted)),
        write: T::to_string,
    };
}

impl Codec<i64> {
    /// An integer.
    pub const INT: Self = Codec { read: number, write: i64::to_string };
}

impl Codec<bool> {
    /// `true` or `false`.
    pub const FLAG: Self = Codec {
        read: |field, text| {
            text.parse().map_err(|_| ConfigError::value(field, text, "must be true or false"))
        },
        write: bool::to_string,
    };
}

impl Codec<Option<bool>> {
    /// `true` or `false`, or `auto`.
    pub const AUTO: Self = Codec {
        read: |field, text| {
            let read = |text: &str| text.parse();
            optional("auto", text, |text| {
                read(text).map_err(|_| ConfigError::value(field, text, "must be true, false or auto"))
            })
        },
        write: |flag| optional_text("auto", flag),
    };
}

impl Codec<Option<i64>> {
    /// A number of columns, or `widest`.
    pub const WIDEST: Self = Codec {
        read: |field, text| optional("widest", text, |text| number(field, text)),
        write: |columns| optional_text("widest", columns),
    };
}

impl Codec<Option<CacheHint>> {
    /// A hint for the L2 cache, or `none`.
    pub const HINT: Self = Codec {
        read: |field, text| {
            optional("none", text, |text| {
                let known = [CacheHint::EvictFirst, CacheHint::EvictLast];
                let found = known.into_iter().find(|hint| hint.name() == text);
                found
                    .ok_or_else(|| ConfigError::value(field, text, "must be none, evict_first or evict_last"))
            })
        },
        write: |hint| hint.map_or("none", CacheHint::name).to_string(),
    };
}

/// `None` for the word, else what `read` makes of the text.
pub(crate) fn optional<T>(
    none: &str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, ConfigError>,
) -> Result<Option<T>, ConfigError> {
    if text == none { Ok(None) } else { read(text).map(Some) }
}

/// The text of a value, or the word for none.
pub(crate) fn optional_text<T: fmt::Display>(none: &str, value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| none.to_string(), T::to_string)
}

/// One of these types.
pub(crate) fn dtype_of(known: &[DType], field: &'static str, text: &str) -> Result<DType, ConfigError> {
    known.iter().copied().find(|dtype| dtype.to_string() == text).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(DType::to_string).collect();
        let wanted = match names.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            _ => names.concat(),
        };
        ConfigError::value(field, text, format!("must be {wanted}"))
    })
}

/// An integer of the command line.
pub(crate) fn number(field: &'static str, text: &str) -> Result<i64, ConfigError> {
    text.parse().map_err(|_| ConfigError::value(field, text, "must be an integer"))
}

/// A text of names.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The parameters of an operator.
pub(crate) fn parameter_list<C: Config>() -> Vec<Parameter> {
    let default = C::default();
    let parameter =
        |f: &Field<C>| Parameter { name: f.name, default: (f.get)(&default), about: f.about.into() };
    C::FIELDS.iter().map(parameter).collect()
}

/// The defaults, but for the given values.
pub(crate) fn configured<C: Config>(given: &[(&str, &str)]) -> Result<C, ConfigError> {
    let mut config = C::default();
    apply(&mut config, given)?;
    Ok(config)
}

/// Sets the given values.
pub(crate) fn apply<C: Config>(config: &mut C, given: &[(&str, &str)]) -> Result<(), ConfigError> {
    let renamed = |place, old: &str| {
        let new = renamed(place, old)?;
        Some(ConfigError::Renamed { operator: C::NAME, old: old.to_string(), new })
    };
    for (name, value) in given {
        let Some(field) = C::FIELDS.iter().find(|field| field.name == *name) else {
            return Err(renamed(Place::Parameter, name).unwrap_or_else(|| ConfigError::UnknownParameter {
                operator: C::NAME,
                name: name.to_string(),
                known: list(C::FIELDS.iter().map(|field| field.name)),
            }));
        };
        let word = value.split('(').next().unwrap_or(value);
        (field.set)(config, value).map_err(|error| renamed(Place::Value, word).unwrap_or(error))?;
    }
    Ok(())
}

/// The parameters that differ from the defaults, in the operator's order.
pub(crate) fn differences<C: Config>(config: &C) -> Vec<(&'static str, String)> {
    let default = C::default();
    let values = C::FIELDS.iter().map(|field| (field.name, (field.get)(config), (field.get)(&default)));
    values.filter(|(_, value, default)| value != default).map(|(name, value, _)| (name, value)).collect()
}

/// Checks that parameters that say nothing in a form have their usual values.
pub(crate) fn says_nothing<C: Config>(
    config: &C,
    form: impl fmt::Display,
    idle: impl Fn(&str) -> bool,
) -> Result<(), ConfigError> {
    let default = C::default();
    for field in C::FIELDS.iter().filter(|field| idle(field.name)) {
        let (value, usual) = ((field.get)(config), (field.get)(&default));
        if value != usual {
            let wanted = format!("says nothing with form={form}: must be {usual}");
            return Err(ConfigError::value(field.name, value, wanted));
        }
    }
    Ok(())
}

/// The value of a parameter as text, if there is one of this name.
pub(crate) fn value_of<C: Config>(config: &C, name: &str) -> Option<String> {
    C::FIELDS.iter().find(|field| field.name == name).map(|field| (field.get)(config))
}

/// The reason why a configuration cannot run on an architecture: features that it lacks, or else what its check found.
pub(crate) fn refusal(arch: Arch, needs: Features, checked: Result<(), ConfigError>) -> Option<String> {
    let missing = arch.lacks(needs);
    if missing != Features::NONE {
        return Some(format!("{arch} lacks {missing}"));
    }
    checked.err().map(|error| error.to_string())
}
