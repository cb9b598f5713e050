//! Classes of sizes for which an operator's kernels are in a pack.

use std::fmt;

use crate::error::PackError;
use crate::json::{At, Json, object};

/// Sizes of a class along one of its axes: from one to another, those that are multiples of a number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Span {
    /// The name of the size.
    pub name: String,
    /// The least size.
    pub first: i64,
    /// The largest.
    pub last: i64,
    /// The number of which they are multiples.
    pub multiple: i64,
}

impl Span {
    /// Sizes from one to another.
    pub fn new(name: impl Into<String>, first: i64, last: i64) -> Self {
        Span { name: name.into(), first, last, multiple: 1 }
    }

    /// Those that are multiples of a number.
    pub fn multiples_of(self, multiple: i64) -> Self {
        Span { multiple, ..self }
    }

    pub(crate) fn has(&self, size: i64) -> bool {
        (self.first..=self.last).contains(&size) && size % self.multiple == 0
    }
}

/// The kernels of an operator for a class of sizes, in the order of their launches.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Class {
    /// The operator.
    pub operator: String,
    /// Options that are no defaults, by name: what is computed.
    pub options: Vec<(String, String)>,
    /// The sizes, by axes.
    pub sizes: Vec<Span>,
    /// The GPU that the kernels were chosen for, by its name; empty if they suit all alike.
    pub device: String,
    /// The names of the kernels in the pack.
    pub kernels: Vec<String>,
}

impl Class {
    /// Kernels of an operator for all sizes.
    pub fn new(operator: impl Into<String>, kernels: impl IntoIterator<Item = String>) -> Self {
        let (operator, kernels) = (operator.into(), kernels.into_iter().collect());
        Class { operator, options: Vec::new(), sizes: Vec::new(), device: String::new(), kernels }
    }

    /// True if these sizes, by name, are of the class. A size that is not among them is no reason against it.
    pub fn has(&self, sizes: &[(&str, i64)]) -> bool {
        self.sizes.iter().all(|span| {
            let given = sizes.iter().find(|(name, _)| *name == span.name);
            given.is_none_or(|(_, size)| span.has(*size))
        })
    }

    /// True if its options are these, in any order.
    pub(crate) fn is_with(&self, options: &[(&str, &str)]) -> bool {
        let has = |(name, value): &(&str, &str)| {
            self.options.iter().any(|(own, of_own)| own == name && of_own == value)
        };
        self.options.len() == options.len() && options.iter().all(has)
    }

    /// The number of multiples that the kernels rely on: more is better.
    pub(crate) fn relied(&self) -> i64 {
        self.sizes.iter().fold(1i64, |product, span| product.saturating_mul(span.multiple))
    }

    /// The words for what it ought to be, of a class that is not.
    fn fault(&self) -> Option<&'static str> {
        let names = |names: &mut dyn Iterator<Item = &String>| {
            let mut names: Vec<&String> = names.collect();
            names.sort();
            names.windows(2).any(|pair| pair[0] == pair[1])
        };
        if self.kernels.is_empty() {
            Some("a class with kernels")
        } else if self.sizes.iter().any(|span| span.first < 1 || span.last < span.first || span.multiple < 1)
        {
            Some("sizes from 1 on, and multiples of 1 at least")
        } else if names(&mut self.sizes.iter().map(|span| &span.name)) {
            Some("each size once")
        } else if names(&mut self.options.iter().map(|(name, _)| name)) {
            Some("each option once")
        } else {
            None
        }
    }

    /// Checks a class of a pack with kernels of these names.
    pub(crate) fn check(&self, place: &str, known: impl Fn(&str) -> bool) -> Result<(), PackError> {
        if let Some(expected) = self.fault() {
            return Err(PackError::Field { place: place.to_string(), expected });
        }
        match self.kernels.iter().find(|name| !known(name)) {
            Some(_) => {
                let expected = "names of kernels of the pack";
                Err(PackError::Field { place: place.to_string(), expected })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn write(&self) -> Json {
        let option =
            |(name, value): &(String, String)| Json::List(vec![name.as_str().into(), value.as_str().into()]);
        let span = |span: &Span| {
            object([
                ("name", span.name.as_str().into()),
                ("first", Json::Int(span.first)),
                ("last", Json::Int(span.last)),
                ("multiple", Json::Int(span.multiple)),
            ])
        };
        object([
            ("operator", self.operator.as_str().into()),
            ("options", Json::List(self.options.iter().map(option).collect())),
            ("sizes", Json::List(self.sizes.iter().map(span).collect())),
            ("device", self.device.as_str().into()),
            ("kernels", Json::List(self.kernels.iter().map(|name| name.as_str().into()).collect())),
        ])
    }

    pub(crate) fn read(at: &At<'_>) -> Result<Class, PackError> {
        let option = |at: &At<'_>| {
            let [name, value] = &at.list()?[..] else { return at.wrong("a name and a value") };
            Ok((name.text()?, value.text()?))
        };
        let span = |at: &At<'_>| {
            let of = |name| at.field(name)?.integer();
            let (first, last, multiple) = (of("first")?, of("last")?, of("multiple")?);
            Ok(Span { name: at.field("name")?.text()?, first, last, multiple })
        };
        Ok(Class {
            operator: at.field("operator")?.text()?,
            options: at.field("options")?.listed(option)?,
            sizes: at.field("sizes")?.listed(span)?,
            device: at.field("device")?.text()?,
            kernels: at.field("kernels")?.listed(|name| name.text())?,
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operator)?;
        for (name, value) in &self.options {
            write!(f, " {name}={value}")?;
        }
        for (number, Span { name, first, last, multiple }) in self.sizes.iter().enumerate() {
            f.write_str(if number == 0 { ": " } else { ", " })?;
            match (first == last, *last == i64::MAX) {
                (true, _) => write!(f, "{name} = {first}")?,
                (false, true) => write!(f, "{name} from {first} on")?,
                (false, false) => write!(f, "{name} from {first} to {last}")?,
            }
            if *multiple > 1 {
                write!(f, " by {multiple}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_its_sizes() {
        let mut class = Class::new("gemm", ["k".to_string()]);
        assert!(class.has(&[]) && class.is_with(&[]));
        class.sizes = vec![Span::new("m", 17, 32), Span::new("k", 1, i64::MAX).multiples_of(8)];
        class.options = vec![("a".into(), "m".into()), ("epilogue".into(), "bias".into())];
        assert!(class.has(&[("m", 17), ("n", 3), ("k", 64)]));
        for sizes in [[("m", 16), ("k", 64)], [("m", 33), ("k", 64)], [("m", 20), ("k", 63)]] {
            assert!(!class.has(&sizes), "{sizes:?}");
        }
        assert!(class.is_with(&[("epilogue", "bias"), ("a", "m")]));
        assert!(
            !class.is_with(&[("epilogue", "bias")]) && !class.is_with(&[("epilogue", "bias"), ("a", "k")])
        );
        assert_eq!(class.to_string(), "gemm a=m epilogue=bias: m from 17 to 32, k from 1 on by 8");
    }
}
