//! Inputs of a checked kernel: random by default, else ranges, constants, normal deviates, or arrays of files.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::Kernel;
use tilewright_machine::{DType, Elements, Number};
use tilewright_tile::interpret::{Argument, InterpretError, tensor_len, tensor_shape, tensor_strides};
use tilewright_tile::{
    Axis, Expr, ParamId, ParamKind, Program, Scope, StmtKind, SymbolId, TensorId, TensorKind, Verified,
};

use crate::arrays::{Array, ArrayError, Place};
use crate::check::{CheckError, CheckOptions};

/// The elements of an input.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// One number.
    Constant(f64),
    /// Uniform from `low` to `high`, which is excluded; of an integer tensor, integers.
    Uniform {
        /// The least.
        low: f64,
        /// The end.
        high: f64,
    },
    /// Normally distributed.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
    /// The elements of an array of the tensor's shape; of an array of tensors, with its first mode.
    Array(Array),
    /// The elements of each tensor of an array of tensors.
    Arrays(Vec<Array>),
    /// The elements in the order of the tensor's memory: what a kernel before this one left.
    Memory(Elements),
}

/// Reasons why an input cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The text says nothing that is known.
    #[error(
        "`{text}` is no input: write a number, a range `0..500`, `'normal(0, 1)'` (in quotes, for the shell), or a file `x.npy` or `x.safetensors:name`, of an array of tensors one each, `a.npy,b.npy`"
    )]
    Text {
        /// The text.
        text: String,
    },
    /// A range without a number in it.
    #[error("the range {low}..{high} has no {what} in it; its end is excluded")]
    Empty {
        /// The least.
        low: f64,
        /// The end.
        high: f64,
        /// `integer` or `number`.
        what: &'static str,
    },
    /// A number that the type does not have.
    #[error("{value} is no {dtype}: the type reaches from {low} to {high}, in integers")]
    Value {
        /// The number.
        value: f64,
        /// The type.
        dtype: DType,
        /// The type's smallest value.
        low: f64,
        /// Its largest.
        high: f64,
    },
    /// No tensor of this name is read.
    #[error("no tensor of this name is read; the inputs are {known}")]
    NotRead {
        /// The names of the inputs.
        known: String,
    },
    /// The memory has another number of elements.
    #[error("it has {given} elements, and the tensor spans {wanted}")]
    Length {
        /// Elements given.
        given: usize,
        /// Elements of the tensor's memory.
        wanted: usize,
    },
    /// Another number of files than tensors of an array.
    #[error("{given} files are given, and it is an array of {wanted} tensors")]
    Files {
        /// Files given.
        given: usize,
        /// Tensors of the array.
        wanted: i64,
    },
    /// Several files for one tensor.
    #[error("{given} files are given, and it is one tensor")]
    OneTensor {
        /// Files given.
        given: usize,
    },
    /// The file's.
    #[error(transparent)]
    Array(#[from] ArrayError),
}

/// The arguments of `normal(mean, deviation)`.
fn normal(text: &str) -> Option<(f64, f64)> {
    let inside = text.strip_prefix("normal(")?.strip_suffix(')')?;
    let (mean, deviation) = inside.split_once(',')?;
    let deviation: f64 = deviation.trim().parse().ok().filter(|d: &f64| *d >= 0.0 && d.is_finite())?;
    Some((mean.trim().parse().ok().filter(|m: &f64| m.is_finite())?, deviation))
}

impl Input {
    /// Reads the text form: `0.5`, `-inf`, `0..500`, `normal(0, 1)`, `x.npy`, `x.safetensors:name`, `a.npy,b.npy`. Files are read at once.
    ///
    /// # Errors
    ///
    /// [`InputError::Text`], and [`InputError::Array`] of a file.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let text = text.trim();
        let wrong = || InputError::Text { text: text.to_string() };
        let places: Option<Vec<Place>> = text.split(',').map(|file| Place::parse(file.trim())).collect();
        if let Some(places) = places.filter(|places| places.len() > 1) {
            return Ok(Input::Arrays(places.iter().map(Array::read).collect::<Result<_, _>>()?));
        }
        if let Some(place) = Place::parse(text) {
            return Ok(Input::Array(Array::read(&place)?));
        }
        if let Some((mean, deviation)) = normal(text) {
            return Ok(Input::Normal { mean, deviation });
        }
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
        match text.split_once("..") {
            None => number(text).map(Input::Constant),
            Some((low, high)) => {
                let (low, high) = (number(low)?, number(high)?);
                if !(low < high && low.is_finite() && high.is_finite()) {
                    return Err(InputError::Empty { low, high, what: "number" });
                }
                Ok(Input::Uniform { low, high })
            }
        }
    }

    /// The elements of a tensor's memory; those that belong to no element of the tensor, between its strides, are of `rest`.
    fn elements(&self, tensor: &Tensor, rng: &mut impl Rng, rest: Elements) -> Result<Elements, InputError> {
        let Tensor { dtype, shape, strides, .. } = tensor;
        let dtype = *dtype;
        let rounded = |x: f64| dtype.decode(dtype.encode(x));
        let of = |values: Vec<f64>| Elements::rounded(dtype, values);
        let count = rest.len();
        match self {
            Input::Constant(value) => {
                let [low, high] = [-1e300, 1e300].map(rounded);
                if !dtype.is_float() && rounded(*value) != *value {
                    return Err(InputError::Value { value: *value, dtype, low, high });
                }
                Ok(of(vec![*value; count]))
            }
            Input::Uniform { low, high } if dtype.is_float() => {
                Ok(of((0..count).map(|_| rng.random_range(*low..*high)).collect()))
            }
            Input::Uniform { low, high } => {
                let (first, end) = (low.ceil() as i64, high.ceil() as i64);
                if first >= end {
                    return Err(InputError::Empty { low: *low, high: *high, what: "integer" });
                }
                if let Some(value) =
                    [first, end - 1].map(|x| x as f64).into_iter().find(|x| rounded(*x) != *x)
                {
                    let [low, high] = [-1e300, 1e300].map(rounded);
                    return Err(InputError::Value { value, dtype, low, high });
                }
                if dtype.is_wide_integer() {
                    let drawn = (0..count).map(|_| rng.random_range(first..end).into());
                    return Ok(Elements::Integers(drawn.collect()));
                }
                Ok(of((0..count).map(|_| rng.random_range(first..end) as f64).collect()))
            }
            Input::Normal { mean, deviation } => {
                let mut one = || {
                    // Box and Muller, A Note on the Generation of Random Normal Deviates (1958).
                    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
                    mean + deviation * (-2.0 * libm::log(u)).sqrt() * libm::cos(std::f64::consts::TAU * v)
                };
                Ok(of((0..count).map(|_| one()).collect()))
            }
            Input::Array(array) => {
                let mut memory = rest;
                let elements = array.for_tensor(dtype, shape)?;
                for (number, at) in offsets(shape, strides).enumerate() {
                    memory.put(at, &elements, number);
                }
                Ok(memory)
            }
            Input::Arrays(arrays) => {
                let (given, tensors) = (arrays.len(), shape.first().copied().unwrap_or(0));
                if !tensor.array {
                    return Err(InputError::OneTensor { given });
                }
                if given as i64 != tensors {
                    return Err(InputError::Files { given, wanted: tensors });
                }
                let mut memory = rest;
                for (tensor, array) in arrays.iter().enumerate() {
                    let elements = array.for_tensor(dtype, &shape[1..])?;
                    let first = tensor * strides[0] as usize;
                    for (number, at) in offsets(&shape[1..], &strides[1..]).enumerate() {
                        memory.put(first + at, &elements, number);
                    }
                }
                Ok(memory)
            }
            Input::Memory(values) if values.len() == count => Ok(values.clone()),
            Input::Memory(values) => Err(InputError::Length { given: values.len(), wanted: count }),
        }
    }
}

/// The offsets of a tensor's elements, row-major.
pub fn offsets(shape: &[i64], strides: &[i64]) -> impl Iterator<Item = usize> {
    let count = shape.iter().product::<i64>().max(0) as usize;
    (0..count).map(move |index| {
        let mut rest = index as i64;
        let mut offset = 0;
        for (extent, stride) in shape.iter().zip(strides).rev() {
            offset += rest % extent * stride;
            rest /= extent;
        }
        offset as usize
    })
}

/// A tensor parameter at the sizes of a launch.
struct Tensor {
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    len: usize,
    /// True for an array of tensors.
    array: bool,
}

impl Tensor {
    fn of(kernel: &Kernel, id: ParamId, sizes: &BTreeMap<String, i64>) -> Result<Self, InterpretError> {
        Ok(Tensor {
            dtype: kernel.program().param(id).dtype,
            shape: tensor_shape(&kernel.verified, id, sizes)?,
            strides: tensor_strides(&kernel.verified, id, sizes)?,
            len: tensor_len(&kernel.verified, id, sizes)?,
            array: kernel.program().param(id).is_array(),
        })
    }
}

/// The arguments of a launch: what the options give, else random elements. What is given for one parameter changes those of no other.
pub(crate) fn arguments(
    kernel: &Kernel,
    sizes: &BTreeMap<String, i64>,
    options: &CheckOptions,
) -> Result<Vec<Argument>, CheckError> {
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let mut arguments = Vec::new();
    for (i, param) in kernel.program().params.iter().enumerate() {
        if let ParamKind::Scalar { default } = param.kind {
            // The launch passes a number of the type, so the interpreter computes with one too.
            let value = options.scalars.get(&param.name).copied().unwrap_or(default);
            arguments.push(Argument::Scalar(Number::of_bits(param.dtype, value.bits(param.dtype))));
            continue;
        }
        let id = ParamId(i as u32);
        let tensor = Tensor::of(kernel, id, sizes)?;
        let read = kernel.verified.inputs().contains(&id);
        let indexes = kernel.verified.elements().contains(&id);
        let counts = kernel.verified.counters().contains(&id);
        let mut rows = Rows::of(kernel, id, sizes).map(|rows| rows.shuffled(&mut rng));
        let dtype = param.dtype;
        let mut draw = || -> u64 {
            if let Some(rows) = &mut rows {
                return dtype.encode_integer(i128::from(rows.draw(&mut rng)));
            }
            if read && !indexes && dtype.is_wide_integer() {
                // Half of them small, so that sums of them are seen to be right, and half of the whole range.
                let bits = rng.random::<u64>();
                return if bits & 1 == 0 { bits } else { dtype.encode_integer(i128::from(bits >> 44)) };
            }
            let x = match (read, dtype.range()) {
                (false, None) => f64::NAN,
                (false, Some(_)) => 85.0,
                (true, _) if counts => 0.0,
                (true, _) if indexes => f64::from(rng.random_range(-2..8)),
                (true, None) if dtype == DType::Bool => f64::from(rng.random_range(0..2)),
                (true, None) => rng.random_range(-1.0..1.0),
                (true, Some((low, high))) => {
                    rng.random_range(low.max(-1_000_000) as i64..=high.min(1_000_000) as i64) as f64
                }
            };
            dtype.encode(x)
        };
        let drawn = Elements::of_bits(dtype, (0..tensor.len).map(|_| draw()));
        let values = match options.inputs.get(&param.name) {
            None => drawn,
            Some(input) => {
                let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
                rng.set_stream(i as u64 + 1);
                input
                    .elements(&tensor, &mut rng, drawn)
                    .map_err(|error| CheckError::Input { name: param.name.clone(), error })?
            }
        };
        arguments.push(Argument::tensor(values));
    }
    Ok(arguments)
}

/// The use of a tensor parameter whose elements, as they are, index a mode of a view or of a shared tensor.
struct Rows {
    /// The extent of the mode, the least of several.
    extent: i64,
    /// True if a row may be named once only: what is written there does not combine.
    once: bool,
    /// Rows that are left to be named.
    left: Vec<i64>,
}

impl Rows {
    /// Indices beyond either end of the mode that are drawn, too.
    const BEYOND: i64 = 2;
    /// Rows that are told apart, at most.
    const MOST: i64 = 1 << 20;

    fn of(kernel: &Kernel, param: ParamId, sizes: &BTreeMap<String, i64>) -> Option<Rows> {
        let v = &kernel.verified;
        v.program().param(param).dtype.range()?;
        let mut holders: BTreeSet<TensorId> = BTreeSet::new();
        let mut rows: Option<Rows> = None;
        // In the order of the text: what holds elements of the parameter is defined before it indexes.
        v.visit(&mut |stmt, _| {
            let held = |id: &TensorId| holders.contains(id);
            match &stmt.kind {
                StmtKind::Copy { src, dst, .. } => {
                    let view = matches!(&v.program().tensor(src.tensor).kind, TensorKind::View { param: of, .. } if *of == param);
                    if view || held(&src.tensor) {
                        holders.insert(dst.tensor);
                    }
                }
                StmtKind::Cast { dst, src } | StmtKind::Rearrange { dst, src } | StmtKind::Shape { dst, src, .. }
                    if held(src) =>
                {
                    holders.insert(*dst);
                }
                _ => {}
            }
            for (used, r) in stmt.kind.references() {
                let Some(tile) = v.tile(r).indexed.filter(|tile| holders.contains(&tile.by)) else { continue };
                let Some(extent) = value_of(v, &tile.extent, sizes) else { continue };
                let once = used.writes() && !stmt.kind.reads_its_destination();
                rows = Some(match rows.take() {
                    Some(rows) => Rows { extent: rows.extent.min(extent), once: rows.once || once, ..rows },
                    None => Rows { extent, once, left: Vec::new() },
                });
            }
        });
        rows
    }

    /// The rows that may be named once, in any order.
    fn shuffled(mut self, rng: &mut impl Rng) -> Rows {
        if self.once {
            let end = self.extent.min(Rows::MOST) + Rows::BEYOND;
            self.left = (-Rows::BEYOND..end).collect();
            for i in (1..self.left.len()).rev() {
                self.left.swap(i, rng.random_range(0..=i));
            }
        }
        self
    }

    /// The next index; −1, which names no row, where all are taken.
    fn draw(&mut self, rng: &mut impl Rng) -> i64 {
        if self.once {
            self.left.pop().unwrap_or(-1)
        } else {
            rng.random_range(-Rows::BEYOND..self.extent + Rows::BEYOND)
        }
    }
}

/// The value of an expression over sizes.
fn value_of(v: &Verified, expr: &Expr, sizes: &BTreeMap<String, i64>) -> Option<i64> {
    struct At<'a>(&'a Verified, &'a BTreeMap<String, i64>);
    impl Scope for At<'_> {
        fn symbol(&self, id: SymbolId) -> Option<i64> {
            self.1.get(&self.0.program().symbol(id).name).copied()
        }

        fn block(&self, _: Axis) -> Option<i64> {
            None
        }
    }
    expr.eval(&At(v, sizes))
}

/// Refuses inputs for what no kernel of these reads.
///
/// # Errors
///
/// [`CheckError::Input`] with [`InputError::NotRead`].
pub fn all_read<'a>(
    kernels: impl IntoIterator<Item = &'a Kernel>,
    inputs: &BTreeMap<String, Input>,
) -> Result<(), CheckError> {
    let mut known: Vec<&str> = Vec::new();
    for kernel in kernels {
        let read = kernel.verified.inputs().iter().chain(kernel.verified.elements());
        known.extend(read.map(|id| kernel.program().param(*id).name.as_str()));
    }
    known.dedup();
    match inputs.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            Err(CheckError::Input { name: name.clone(), error: InputError::NotRead { known } })
        }
    }
}

/// The sizes that the shapes of arrays say: of each tensor `x: f16[m, n]` with an array, `m` and `n`.
pub fn sizes_of_arrays(program: &Program, inputs: &BTreeMap<String, Input>) -> BTreeMap<String, i64> {
    let mut sizes = BTreeMap::new();
    for param in &program.params {
        let ParamKind::Tensor { shape, .. } = &param.kind else { continue };
        let extents = match inputs.get(&param.name) {
            Some(Input::Array(array)) => array.shape.clone(),
            Some(Input::Arrays(arrays)) => {
                let each = arrays.first().map_or(&[][..], |array| &array.shape);
                [&[arrays.len()], each].concat()
            }
            _ => continue,
        };
        for (extent, found) in shape.iter().zip(&extents) {
            let Expr::Symbol(symbol) = extent else { continue };
            if let Some((_, size, _)) = program.sizes().find(|(id, ..)| id == symbol) {
                sizes.entry(size.name.clone()).or_insert(*found as i64);
            }
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, dtype: DType, shape: &[i64], strides: &[i64]) -> Result<Vec<f64>, InputError> {
        let len = 1 + shape.iter().zip(strides).map(|(n, d)| (n - 1) * d).sum::<i64>() as usize;
        let tensor = Tensor { dtype, shape: shape.to_vec(), strides: strides.to_vec(), len, array: false };
        let rest = Elements::from(vec![9.0; len]);
        let drawn = Input::parse(text)?.elements(&tensor, &mut ChaCha8Rng::seed_from_u64(0), rest)?;
        Ok(drawn.floats())
    }

    #[test]
    fn inputs_are_what_the_text_says() {
        let table = drawn("0..500", DType::I32, &[1000], &[1]).unwrap();
        assert!(table.iter().all(|x| x.fract() == 0.0 && (0.0..500.0).contains(x)));
        assert!(table.iter().any(|x| *x > 400.0) && table.iter().any(|x| *x < 100.0));
        let normal = drawn("normal(3, 0.5)", DType::F32, &[4000], &[1]).unwrap();
        let mean = normal.iter().sum::<f64>() / 4000.0;
        let deviation = (normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4000.0).sqrt();
        assert!((mean - 3.0).abs() < 0.05 && (deviation - 0.5).abs() < 0.05, "{mean} {deviation}");
        assert_eq!(drawn("-inf", DType::F16, &[2], &[1]).unwrap(), [f64::NEG_INFINITY; 2]);
        assert!(drawn("-2..-1.5", DType::F32, &[9], &[1]).unwrap().iter().all(|x| (-2.0..-1.5).contains(x)));
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text, dtype| drawn(text, dtype, &[2], &[1]).unwrap_err().to_string();
        assert!(said("0.25..0.5", DType::I8).contains("has no integer in it"));
        assert!(said("5..5", DType::F32).contains("has no number in it"));
        assert!(said("0..500", DType::I8).contains("499 is no i8: the type reaches from -128 to 127"));
        assert!(said("0.5", DType::I32).contains("0.5 is no i32"));
        assert!(said("normal(0)", DType::F32).contains("write a number, a range `0..500`"));
        assert!(said("no_such_file.npy", DType::F32).contains("cannot read `no_such_file.npy`"));
    }

    #[test]
    fn arrays_follow_strides() {
        assert_eq!(offsets(&[2, 3], &[1, 2]).collect::<Vec<_>>(), [0, 2, 4, 1, 3, 5]);
        let tensor =
            Tensor { dtype: DType::F32, shape: vec![2, 2], strides: vec![3, 1], len: 5, array: false };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let array = crate::arrays::Written {
            name: "x",
            dtype: DType::F32,
            shape: &[2, 2],
            values: &Elements::from(vec![1.0, 2.0, 3.0, 4.0]),
        };
        Array::write(&path, &[array]).unwrap();
        let input = Input::parse(&path.display().to_string()).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let memory = input.elements(&tensor, &mut rng, vec![9.0; 5].into()).unwrap();
        assert_eq!(memory.floats(), [1.0, 2.0, 9.0, 3.0, 4.0]);
    }

    #[test]
    fn files_are_tensors_of_an_array() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["first", "second"].map(|name| folder.path().join(format!("{name}.npy")));
        for (i, path) in files.iter().enumerate() {
            let values = Elements::from(vec![10.0 * i as f64, 10.0 * i as f64 + 1.0]);
            let array = crate::arrays::Written { name: "x", dtype: DType::F32, shape: &[2], values: &values };
            Array::write(path, &[array]).unwrap();
        }
        let text = files.map(|path| path.display().to_string()).join(",");
        let input = Input::parse(&text).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut given = |tensors: i64, array: bool| {
            let (shape, strides) = (vec![tensors, 2], vec![2, 1]);
            let len = 2 * tensors as usize;
            let tensor = Tensor { dtype: DType::F32, shape, strides, len, array };
            input.elements(&tensor, &mut rng, vec![9.0; len].into())
        };
        assert_eq!(given(2, true).unwrap().floats(), [0.0, 1.0, 10.0, 11.0]);
        let said = |error: InputError| error.to_string();
        assert!(said(given(3, true).unwrap_err()).contains("it is an array of 3 tensors"));
        assert!(said(given(2, false).unwrap_err()).contains("it is one tensor"));
    }
}
