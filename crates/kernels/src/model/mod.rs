//! The model of a kernel's time: the numbers from which estimates of products by TMA and wgmma follow, one text file a device.
//!
//! ```text
//! # comment
//! device: NVIDIA H200
//! clock  1580  cycles/us  where the value is from
//! ```
//!
//! A line is a number: name, value, unit, source. What a file lacks is as in the built-in model. The built-in models are in `models/`;
//! `tilewright calibrate --model` fits the numbers of a GPU.

mod numbers;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use tilewright_machine::{Arch, Tcgen05Row};

pub use numbers::{Number, Numbers, Quantity};

/// The text of the built-in model, which has every number.
const BUILT_IN: &str = include_str!("../../models/nvidia-h200.txt");

/// The texts of the models of other devices, which have what differs.
const OTHERS: [&str; 2] =
    [include_str!("../../models/nvidia-h100-80gb-hbm3.txt"), include_str!("../../models/nvidia-b200.txt")];

/// The device whose model those of sm_100a and sm_103a have.
const BLACKWELL: &str = "NVIDIA B200";

/// The model of a device: its numbers, and the source of each.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    device: String,
    numbers: Numbers,
    /// In the order of the numbers.
    sources: Vec<String>,
}

impl Model {
    /// The model that comes with the kernels.
    pub fn built_in() -> &'static Model {
        static MODEL: LazyLock<Model> = LazyLock::new(|| {
            let none = Model {
                device: String::new(),
                numbers: Numbers::same(f64::NAN),
                sources: vec![String::new(); Numbers::ALL.len()],
            };
            let (model, _) = none.read(BUILT_IN).expect("the built-in model is a literal that a test parses");
            model
        });
        &MODEL
    }

    /// The model of a device, by its name: the one that comes with the kernels, or the [built-in](Self::built_in) one where none does.
    pub fn of_device(name: &str) -> &'static Model {
        static MODELS: LazyLock<[Model; OTHERS.len()]> = LazyLock::new(|| {
            OTHERS.map(|text| text.parse().expect("the models are literals that a test parses"))
        });
        MODELS.iter().find(|model| model.device == name).unwrap_or(Model::built_in())
    }

    /// The model of the device that an architecture is usually asked about.
    pub fn of_arch(arch: Arch) -> &'static Model {
        if arch.has(Tcgen05Row::NEEDS) { Model::of_device(BLACKWELL) } else { Model::built_in() }
    }

    /// The device, by its name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The values.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The numbers with their values and sources.
    pub fn lines(&self) -> impl Iterator<Item = (&'static Number, f64, &str)> {
        let sources = self.sources.iter().map(String::as_str);
        Numbers::ALL.iter().zip(sources).map(|(number, source)| (number, number.of(&self.numbers), source))
    }

    /// The same for another device.
    #[must_use]
    pub fn for_device(mut self, device: &str) -> Self {
        self.device = device.to_string();
        self
    }

    /// The same with other values, whose sources are those of these.
    #[must_use]
    pub fn with_numbers(mut self, numbers: Numbers) -> Self {
        self.numbers = numbers;
        self
    }

    /// The same with another value of a number.
    #[must_use]
    pub fn with(mut self, number: &Number, value: f64, source: &str) -> Self {
        number.set(&mut self.numbers, value);
        let place = Numbers::ALL.iter().position(|other| other.name == number.name);
        if let Some(own) = place.and_then(|place| self.sources.get_mut(place)) {
            *own = source.to_string();
        }
        self
    }

    /// The same with the numbers that a text has; and the lines of these, by the numbers' places.
    fn read(mut self, text: &str) -> Result<(Self, Vec<Option<usize>>), ModelError> {
        let (mut device, mut seen) = (None, vec![None; Numbers::ALL.len()]);
        let last = text.lines().count().max(1);
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or("").trim();
            let fails = |mistake| ModelError { line, mistake };
            if content.is_empty() {
                continue;
            }
            if device.is_none() {
                let name = content.strip_prefix("device:").map(str::trim).filter(|name| !name.is_empty());
                device = Some(name.ok_or_else(|| fails(ModelMistake::NoDevice))?.to_string());
                continue;
            }
            let (place, value, source) = numbered(content).map_err(fails)?;
            if let Some(first) = seen[place] {
                let name = Numbers::ALL[place].name;
                return Err(fails(ModelMistake::Twice { name, first }));
            }
            seen[place] = Some(line);
            Numbers::ALL[place].set(&mut self.numbers, value);
            self.sources[place] = source.to_string();
        }
        self.device = device.ok_or(ModelError { line: last, mistake: ModelMistake::NoDevice })?;
        Ok((self, seen))
    }
}

/// The place of the number on a line, its value and its source.
fn numbered(text: &str) -> Result<(usize, f64, &str), ModelMistake> {
    let (name, rest) = split(text);
    let place = Numbers::ALL.iter().position(|number| number.name == name);
    let place = place.ok_or_else(|| ModelMistake::Unknown { name: name.to_string(), near: near(name) })?;
    let ((value, rest), number) = (split(rest), &Numbers::ALL[place]);
    let (unit, source) = split(rest);
    for (what, text) in [("value", value), ("unit", unit), ("source", source)] {
        if text.is_empty() {
            return Err(ModelMistake::Missing(what));
        }
    }
    let positive = value.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
    let amount =
        positive.ok_or_else(|| ModelMistake::Value { name: number.name, text: value.to_string() })?;
    if unit != number.unit.to_string() {
        return Err(ModelMistake::Unit { name: number.name, unit: number.unit, given: unit.to_string() });
    }
    Ok((place, amount, source))
}

/// The first word, and what follows it.
fn split(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

/// The end of a message about an unknown name: names that begin alike, else all.
fn near(name: &str) -> String {
    let all = || Numbers::ALL.iter().map(|number| number.name);
    let head: String = name.chars().take_while(|c| *c != '_').collect();
    let alike: Vec<&str> = all().filter(|other| !head.is_empty() && other.starts_with(&head)).collect();
    match alike[..] {
        [] => format!("numbers are {}", all().collect::<Vec<_>>().join(", ")),
        _ => format!("did you mean {}?", alike.join(" or ")),
    }
}

impl FromStr for Model {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        Ok(Model::built_in().clone().read(text)?.0)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device: {}", self.device)?;
        self.lines().try_for_each(|(Number { name, unit, .. }, value, source)| {
            writeln!(f, "{name:<20} {value:>9}  {unit:<15} {source}")
        })
    }
}

/// A mistake in a line of a model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelMistake {
    /// No `device:` line comes before everything else.
    #[error("the first line that is no comment must be `device: NAME`, e.g. `device: NVIDIA H200`")]
    NoDevice,
    /// The name is no number's.
    #[error("`{name}` is no number of the model; {near}")]
    Unknown {
        /// The name.
        name: String,
        /// The known names that resemble it, as the end of the message.
        near: String,
    },
    /// The line ends too early.
    #[error("the {0} is missing; a line is `name value unit source`, e.g. `launch 3.3 us measured`")]
    Missing(&'static str),
    /// The value is no number above zero.
    #[error("the value of `{name}` is `{text}`; it must be a number above 0, e.g. 4 or 1.5")]
    Value {
        /// The number.
        name: &'static str,
        /// The text.
        text: String,
    },
    /// The unit is another.
    #[error("`{name}` is in {unit}, not in `{given}`")]
    Unit {
        /// The number.
        name: &'static str,
        /// Its unit.
        unit: Quantity,
        /// The unit in the file.
        given: String,
    },
    /// The name came before.
    #[error("`{name}` is given twice; line {first} has it already")]
    Twice {
        /// The number.
        name: &'static str,
        /// The line that has it first.
        first: usize,
    },
}

/// An error in the text of a model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {mistake}")]
pub struct ModelError {
    /// The line, counted from 1.
    pub line: usize,
    /// The mistake.
    pub mistake: ModelMistake,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_model_has_every_number_with_its_source() {
        let (model, lines) = Model::built_in().clone().read(BUILT_IN).unwrap();
        assert!(lines.iter().all(Option::is_some) && model == *Model::built_in(), "{lines:?}");
        for (number, value, source) in model.lines() {
            assert!(value > 0.0 && !source.is_empty() && !number.about.is_empty(), "{}", number.name);
        }
        let mut names: Vec<&str> = Numbers::ALL.iter().map(|number| number.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Numbers::ALL.len());
    }

    #[test]
    fn devices_have_models_of_their_own() {
        for text in OTHERS {
            let model: Model = text.parse().unwrap();
            assert_eq!(Model::of_device(model.device()), &model);
            assert_ne!(model.numbers(), Model::built_in().numbers());
        }
        let built_in = Model::built_in();
        assert_eq!(Model::of_device(built_in.device()), built_in);
        assert_eq!(Model::of_device("a GPU that nobody measured"), built_in);
    }

    #[test]
    fn models_print_and_read_back() {
        let launch = Numbers::ALL.iter().find(|number| number.name == "launch").unwrap();
        let own = Model::built_in().clone().for_device("a GPU").with(launch, 2.71, "guessed");
        assert_eq!(own.to_string().parse::<Model>().as_ref(), Ok(&own));
        assert_eq!(own.numbers().launch, 2.71);
        // What a file lacks is the built-in.
        let short: Model = "# mine\ndevice: a GPU\nlaunch 2.71 us guessed # indeed\n".parse().unwrap();
        assert_eq!(short, own);
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        let cases = [
            ("", "line 1: the first line that is no comment must be `device: NAME`"),
            ("launch 1 us x", "line 1: the first line that is no comment must be `device: NAME`"),
            (
                "device: x\n\nlatency_of 1 us x",
                "line 3: `latency_of` is no number of the model; did you mean",
            ),
            ("device: x\nspeed 1 us x", "line 2: `speed` is no number of the model; numbers are clock, "),
            ("device: x\nlaunch 1 us", "line 2: the source is missing; a line is `name value unit source`"),
            ("device: x\nlaunch", "line 2: the value is missing"),
            ("device: x\nlaunch 0 us x", "line 2: the value of `launch` is `0`; it must be a number above 0"),
            ("device: x\nlaunch 1 ms x", "line 2: `launch` is in us, not in `ms`"),
            ("device: x\nlaunch 1 us x\nlaunch 2 us x", "line 3: `launch` is given twice; line 2 has it"),
        ];
        for (text, message) in cases {
            let said = text.parse::<Model>().unwrap_err().to_string();
            assert!(said.starts_with(message), "{text:?}: {said}");
        }
    }
}
