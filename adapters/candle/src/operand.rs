//! Operands of an operator: their types and shapes, and the refusals, which are candle's errors with the operand's name around them.

use candle_core::{DType, Error, Layout, Result, Shape};

/// The operands of a call.
pub(crate) struct Operands<'a> {
    operator: &'static str,
    names: &'static [&'static str],
    given: Vec<(DType, &'a Layout)>,
}

impl<'a> Operands<'a> {
    /// Operands whose elements lie in row-major order, of which there are some.
    pub(crate) fn new(
        operator: &'static str,
        names: &'static [&'static str],
        given: Vec<(DType, &'a Layout)>,
    ) -> Result<Self> {
        let operands = Operands { operator, names, given };
        for (at, (_, layout)) in operands.given.iter().enumerate() {
            if layout.shape().elem_count() == 0 {
                return Err(operands.refused(at, Error::EmptyTensor { op: operator }, "has no elements"));
            }
            if !layout.is_contiguous() {
                let error = Error::RequiresContiguous { op: operator };
                return Err(operands.refused(
                    at,
                    error,
                    "is not in row-major order: call `.contiguous()` on it",
                ));
            }
        }
        Ok(operands)
    }

    /// An error of an operand, with its name.
    pub(crate) fn refused(&self, at: usize, error: Error, what: &str) -> Error {
        let name = self.names.get(at).copied().unwrap_or("an operand");
        error.bt().context(format!("`{name}` of {} {what}", self.operator))
    }

    /// The number of operands.
    pub(crate) fn count(&self) -> usize {
        self.given.len()
    }

    /// The type of an operand.
    pub(crate) fn dtype(&self, at: usize) -> DType {
        self.given[at].0
    }

    /// The extents of an operand.
    pub(crate) fn dims(&self, at: usize) -> &'a [usize] {
        self.given[at].1.dims()
    }

    /// The shape of an operand.
    pub(crate) fn shape(&self, at: usize) -> Shape {
        self.given[at].1.shape().clone()
    }

    /// The type of an operand, which is a float of 16 bits or more.
    pub(crate) fn float(&self, at: usize) -> Result<DType> {
        self.one_of(at, &[DType::F16, DType::BF16, DType::F32, DType::F64])
    }

    /// The type of an operand, which is one of some.
    pub(crate) fn one_of(&self, at: usize, types: &[DType]) -> Result<DType> {
        let dtype = self.dtype(at);
        if types.contains(&dtype) {
            return Ok(dtype);
        }
        let words: Vec<&str> = types.iter().map(|dtype| dtype.as_str()).collect();
        let error = Error::UnsupportedDTypeForOp(dtype, self.operator);
        Err(self.refused(at, error, &format!("is one of {}", words.join(", "))))
    }

    /// The operands from a place on have the type of the first.
    pub(crate) fn alike(&self, from: usize) -> Result<()> {
        for at in from..self.count() {
            self.same_type(at, 0)?;
        }
        Ok(())
    }

    /// Two operands have one type.
    pub(crate) fn same_type(&self, at: usize, other: usize) -> Result<()> {
        let (lhs, rhs) = (self.dtype(other), self.dtype(at));
        if lhs == rhs {
            return Ok(());
        }
        let error = Error::DTypeMismatchBinaryOp { lhs, rhs, op: self.operator };
        let name = self.names[other];
        Err(self.refused(at, error, &format!("has the type of `{name}`: convert one by `.to_dtype(…)`")))
    }

    /// The extents of an operand of so many modes.
    pub(crate) fn modes<const N: usize>(&self, at: usize) -> Result<[usize; N]> {
        self.dims(at).try_into().map_err(|_| {
            let shape = self.shape(at);
            let error = Error::UnexpectedNumberOfDims { expected: N, got: shape.rank(), shape };
            self.refused(at, error, "has another number of dimensions")
        })
    }

    /// The number of rows of an operand, which are all its dimensions but the last, and their length.
    pub(crate) fn rows(&self, at: usize) -> Result<[usize; 2]> {
        match self.dims(at) {
            [rows @ .., n] => Ok([rows.iter().product(), *n]),
            [] => {
                let shape = self.shape(at);
                let error = Error::UnexpectedNumberOfDims { expected: 1, got: 0, shape };
                Err(self.refused(at, error, "has rows"))
            }
        }
    }

    /// An operand has these extents.
    pub(crate) fn extents(&self, at: usize, expected: &[usize]) -> Result<()> {
        if self.dims(at) == expected {
            return Ok(());
        }
        let name = self.names[at];
        let error = Error::UnexpectedShape {
            msg: format!("the shape of `{name}`"),
            expected: expected.into(),
            got: self.shape(at),
        };
        Err(self.refused(at, error, "does not fit the others"))
    }
}
