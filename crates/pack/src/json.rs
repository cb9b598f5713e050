//! Values of a header, with the path to each for errors.

use serde_json::{Map, Value};

use crate::error::PackError;

/// A value, and the path to it.
#[derive(Clone)]
pub(crate) struct At<'a> {
    pub(crate) value: &'a Value,
    pub(crate) place: String,
}

impl<'a> At<'a> {
    pub(crate) fn wrong<T>(&self, expected: &'static str) -> Result<T, PackError> {
        Err(PackError::Field { place: self.place.clone(), expected })
    }

    /// A field of an object; null if it has none of the name.
    pub(crate) fn field(&self, name: &str) -> Result<At<'a>, PackError> {
        let Value::Object(object) = self.value else { return self.wrong("an object") };
        let value = object.get(name).unwrap_or(&Value::Null);
        Ok(At { value, place: format!("{}.{name}", self.place) })
    }

    pub(crate) fn list(&self) -> Result<Vec<At<'a>>, PackError> {
        let Value::Array(list) = self.value else { return self.wrong("a list") };
        let entry = |(i, value)| At { value, place: format!("{}[{i}]", self.place) };
        Ok(list.iter().enumerate().map(entry).collect())
    }

    pub(crate) fn text(&self) -> Result<String, PackError> {
        match self.value {
            Value::String(text) => Ok(text.clone()),
            _ => self.wrong("a text"),
        }
    }

    pub(crate) fn integer(&self) -> Result<i64, PackError> {
        self.value.as_i64().map_or_else(|| self.wrong("an integer"), Ok)
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self) -> Result<T, PackError> {
        T::try_from(self.integer()?).or_else(|_| self.wrong("an integer in range"))
    }

    pub(crate) fn truth(&self) -> Result<bool, PackError> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            Value::Null => Ok(false),
            _ => self.wrong("true or false"),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.value.is_null()
    }
}

/// An object of these fields, without those that are null, false or empty lists.
pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let says = |(_, value): &(&str, Value)| {
        !matches!(value, Value::Null | Value::Bool(false))
            && value.as_array().is_none_or(|list| !list.is_empty())
    };
    Value::Object(
        fields.into_iter().filter(says).map(|(name, value)| (name.to_string(), value)).collect::<Map<_, _>>(),
    )
}
