//! A function of a user's own at the end of an epilogue: an expression over the value, its row and column, vectors, matrices and numbers. It is read
//! as those of attention are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_machine::DType;
use tilewright_tile::dsl::{Elem, KernelBuilder, index};

use super::HopperGemmConfig;
use crate::attention::{Expression, Function, Scalars, clash};
use crate::config::{Codec, ConfigError, dtype_of, optional, optional_text};
use crate::epilogue::{EpilogueOp, EpilogueTile, Operand, OperandKind};
use crate::interned::Text;
use crate::warp_specialized::bytes;

/// The types of tensors that a function reads.
const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// A function that was read.
pub(super) struct UserFunction {
    function: Function,
    operands: Vec<Operand>,
}

/// Functions by what they were read of: a tuner asks for the same one at every point.
static READ: Mutex<BTreeMap<[&'static str; 3], Arc<UserFunction>>> = Mutex::new(BTreeMap::new());

impl Codec<Option<Text>> {
    /// An expression, or `none`.
    pub(super) const FUNCTION: Self = Codec {
        read: |_, text| optional("none", text, |text| Ok(Text::from(text))),
        write: |expression| optional_text("none", expression),
    };
}

impl Codec<Text> {
    /// Declarations of scalars, or `none`.
    pub(super) const SCALARS: Self = Codec {
        read: |field, text| {
            let scalars =
                text.parse::<Scalars>().map_err(|wanted| ConfigError::value(field, text, wanted))?;
            Ok(Text::from(scalars.0.as_str()))
        },
        write: written,
    };

    /// Declarations of tensors, or `none`.
    pub(super) const TENSORS: Self = Codec {
        read: |field, text| {
            let text = if text == "none" { "" } else { text };
            tensors(field, text)?;
            Ok(Text::from(text))
        },
        write: written,
    };
}

fn written(text: &Text) -> String {
    if text.as_str().is_empty() { "none".to_string() } else { text.to_string() }
}

/// The declarations of a list, which commas in brackets do not end.
fn declarations(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let ends = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    };
    text.split(ends).map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The vectors and matrices that a text declares.
fn tensors(field: &'static str, text: &str) -> Result<Vec<Operand>, ConfigError> {
    let each = |part: &str| {
        let wrong =
            || ConfigError::value(field, part, "must be declared as x: f32[n], x: f32[m] or x: f16[m, n]");
        let (name, rest) = part.split_once(':').ok_or_else(wrong)?;
        let (dtype, shape) = rest.trim().split_once('[').ok_or_else(wrong)?;
        let shape: String = shape.chars().filter(|c| !c.is_whitespace()).collect();
        let kind = match shape.as_str() {
            "n]" => OperandKind::Column,
            "m]" => OperandKind::Row,
            "m,n]" => OperandKind::Matrix,
            _ => return Err(wrong()),
        };
        Ok(Operand::new(name.trim(), kind, dtype_of(&TYPES, field, dtype.trim())?))
    };
    declarations(text).into_iter().map(each).collect()
}

/// The numbers that a text declares.
fn numbers(field: &'static str, text: &str) -> Result<Vec<Operand>, ConfigError> {
    let each = |part: &str| {
        let wrong = || ConfigError::value(field, part, "must be a number in f32, as slope: f32 = 0.5");
        let (name, rest) = part.split_once(':').ok_or_else(wrong)?;
        let (dtype, default) = rest.split_once('=').ok_or_else(wrong)?;
        let default = default.trim().parse::<f64>().ok().filter(|x| x.is_finite() && dtype.trim() == "f32");
        Ok(Operand::new(name.trim(), OperandKind::Scalar(default.ok_or_else(wrong)?), DType::F32))
    };
    declarations(text).into_iter().map(each).collect()
}

impl HopperGemmConfig {
    /// Goes on with the function and the caller's operations behind it.
    pub(super) fn with_function<T>(
        &self,
        custom: &[&dyn EpilogueOp],
        body: impl FnOnce(&[&dyn EpilogueOp]) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let own = self.user_function()?;
        let own = own.iter().map(|function| &**function as &dyn EpilogueOp);
        let all: Vec<&dyn EpilogueOp> = own.chain(custom.iter().copied()).collect();
        body(&all).map_err(|error| self.named_twice(error))
    }

    /// The error for a program with a name that the function's declarations have too.
    fn named_twice(&self, error: ConfigError) -> ConfigError {
        let ConfigError::Program(mut errors) = error else { return error };
        for (field, text) in [("tensors", self.tensors), ("scalars", self.scalars)] {
            match clash(field, text.as_str(), errors) {
                ConfigError::Program(others) => errors = others,
                clashing => return clashing,
            }
        }
        ConfigError::Program(errors)
    }

    /// The function, read; `None`: there is none.
    pub(super) fn user_function(&self) -> Result<Option<Arc<UserFunction>>, ConfigError> {
        let (scalars, names) = (self.scalars.as_str(), self.tensors.as_str());
        let Some(function) = self.function else {
            let idle =
                [("scalars", scalars), ("tensors", names)].into_iter().find(|(_, text)| !text.is_empty());
            return match idle {
                Some((field, text)) => {
                    Err(ConfigError::value(field, text, "says nothing with function=none: must be none"))
                }
                None => Ok(None),
            };
        };
        let operands = [tensors("tensors", names)?, numbers("scalars", scalars)?].concat();
        let wide = |o: &&Operand| o.kind == OperandKind::Matrix && bytes(o.dtype) > bytes(self.result());
        if let Some(matrix) = operands.iter().find(wide) {
            let wanted = format!("a matrix must have no wider elements than c: {}", self.result());
            return Err(ConfigError::value("tensors", format!("{}: {}", matrix.name, matrix.dtype), wanted));
        }
        let key = [function.as_str(), scalars, names];
        let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = known.get(&key) {
            return Ok(Some(Arc::clone(read)));
        }
        let elements = operands.iter().filter(|o| !matches!(o.kind, OperandKind::Scalar(_)));
        let elements: Vec<&str> = elements.map(|o| o.name.as_str()).collect();
        let function = Expression(function.to_string()).read_values("function", &elements, scalars)?;
        let read = Arc::new(UserFunction { function, operands });
        known.insert(key, Arc::clone(&read));
        Ok(Some(read))
    }
}

impl EpilogueOp for UserFunction {
    fn name(&self) -> &str {
        "function"
    }

    fn operands(&self, _: DType) -> Vec<Operand> {
        self.operands.clone()
    }

    fn apply(&self, _: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem {
        let [row, col] = &tile.origin;
        let axis = u32::from(tile.transposed);
        self.function.elem(&|name| match name {
            "x" => tile.value.into(),
            "i" => Elem::from(row) + index(axis),
            "j" => Elem::from(col) + index(1 - axis),
            name => {
                let at = self.operands.iter().position(|operand| operand.name == name);
                at.and_then(|at| tile.operands.get(at)).cloned().unwrap_or_else(|| f64::NAN.into())
            }
        })
    }

    fn reference(&self, value: f64, operands: &[f64], at: [usize; 2]) -> f64 {
        self.function.value_at(&|name| match name {
            "x" => (value, false),
            "i" => (at[0] as f64, true),
            "j" => (at[1] as f64, true),
            name => {
                let place = self.operands.iter().position(|operand| operand.name == name);
                (place.and_then(|place| operands.get(place)).copied().unwrap_or(f64::NAN), false)
            }
        })
    }
}
