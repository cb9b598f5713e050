//! The call of an operator of `tilewright-ops`, without memory: names, options, types and shapes.

use std::borrow::Cow;

use candle_core::{DType, Shape};
use tilewright_launch::{View, ViewMut};
use tilewright_ops::{Call, Library};

/// The value of an option.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    Text(Cow<'static, str>),
    Number(i64),
}

/// A tensor that kernels read, by the name and in the shape that they have for it.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) name: &'static str,
    #[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code, reason = "only kernels have it"))]
    pub(crate) dtype: tilewright_launch::DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
}

/// A tensor that kernels write, with what candle has for it.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) as_read: Read,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

/// A call of an operator.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) operator: &'static str,
    pub(crate) options: Vec<(&'static str, Choice)>,
    pub(crate) numbers: Vec<(&'static str, f32)>,
    pub(crate) reads: Vec<Read>,
    pub(crate) writes: Vec<Write>,
}

/// The type by which kernels know candle's elements. Integers that are places or lengths are signed there.
pub(crate) fn element(dtype: DType) -> Option<tilewright_launch::DType> {
    use tilewright_launch::DType as Element;
    Some(match dtype {
        DType::F16 => Element::F16,
        DType::BF16 => Element::BF16,
        DType::F32 => Element::F32,
        DType::F64 => Element::F64,
        DType::I32 | DType::U32 => Element::I32,
        DType::I64 => Element::I64,
        DType::U8 => Element::U8,
        _ => return None,
    })
}

impl Read {
    /// A tensor of a type that candle has none for.
    pub(crate) fn of_type(name: &'static str, dtype: tilewright_launch::DType, shape: &[usize]) -> Read {
        let shape: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
        let strides = (0..shape.len()).map(|mode| shape[mode + 1..].iter().product()).collect();
        Read { name, dtype, shape, strides }
    }

    /// A tensor of candle's type and of these extents.
    pub(crate) fn new(name: &'static str, dtype: DType, shape: &[usize]) -> Read {
        // A type that kernels have none for has been refused by its operator.
        let dtype = element(dtype).unwrap_or(tilewright_launch::DType::U8);
        Read::of_type(name, dtype, shape)
    }

    /// The same memory with its modes in the opposite order.
    pub(crate) fn transposed(mut self) -> Read {
        self.shape.reverse();
        self.strides.reverse();
        self
    }
}

impl Write {
    /// A result of candle's type, in the shape that kernels have for it and in candle's.
    pub(crate) fn new(name: &'static str, dtype: DType, kernels: &[usize], shape: impl Into<Shape>) -> Write {
        Write { as_read: Read::new(name, dtype, kernels), dtype, shape: shape.into() }
    }
}

impl Plan {
    /// A call with nothing but tensors.
    pub(crate) fn new(operator: &'static str, reads: Vec<Read>, writes: Vec<Write>) -> Plan {
        Plan { operator, options: Vec::new(), numbers: Vec::new(), reads, writes }
    }

    /// With an option of a word.
    pub(crate) fn word(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Plan {
        self.options.push((name, Choice::Text(value.into())));
        self
    }

    /// With an option of a number.
    pub(crate) fn option(mut self, name: &'static str, value: usize) -> Plan {
        self.options.push((name, Choice::Number(value as i64)));
        self
    }

    /// With a number of the launch.
    pub(crate) fn number(mut self, name: &'static str, value: f64) -> Plan {
        self.numbers.push((name, value as f32));
        self
    }

    /// The call of a library with tensors in the order of `reads` and `writes`.
    #[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code, reason = "only kernels are called so"))]
    pub(crate) fn call<'a>(
        &'a self,
        library: &'a Library,
        reads: &'a [View<'_>],
        writes: &'a mut [ViewMut<'_>],
    ) -> Call<'a> {
        let mut call = library.operator(self.operator);
        for (name, choice) in &self.options {
            call = match choice {
                Choice::Text(text) => call.option(name, text.as_ref()),
                Choice::Number(number) => call.option(name, *number),
            };
        }
        for (name, number) in &self.numbers {
            call = call.arg(name, *number);
        }
        for (read, view) in self.reads.iter().zip(reads) {
            call = call.arg(read.name, view);
        }
        for (write, view) in self.writes.iter().zip(writes) {
            call = call.arg(write.as_read.name, view);
        }
        call
    }
}
