//! Arrays in files, for inputs and outputs of kernels: NumPy's `.npy` and `.safetensors`.
//!
//! Both formats are read and written by this module, so that an element goes through [`DType::encode`] and [`DType::decode`] as every other
//! does. Sources: the NumPy enhancement proposal 1 and `numpy.lib.format` for `.npy`; the format section of the safetensors
//! repository's README for `.safetensors`.

mod npy;
mod safetensors;

use std::fmt;
use std::path::{Path, PathBuf};

use tilewright_machine::{DType, Elements};

/// The largest file that is read, in bytes.
const LIMIT: u64 = 1 << 36;

/// An array, row-major (the last mode contiguous).
#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    /// The element type in the file.
    pub element: &'static Element,
    /// The extents.
    pub shape: Vec<usize>,
    /// The elements.
    pub values: Elements,
}

/// An element type of files.
#[derive(Debug)]
pub struct Element {
    /// The name in messages: that of the language, where it has the type.
    pub name: &'static str,
    /// The letter and the bytes in `.npy`; some have none.
    npy: Option<&'static str>,
    /// The name in `.safetensors`.
    safetensors: &'static str,
    /// The type that has the bytes of its elements.
    dtype: DType,
}

impl PartialEq for Element {
    fn eq(&self, other: &Element) -> bool {
        self.name == other.name
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Element {
    /// The type that has the bytes of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of an element.
    fn bytes(&self) -> usize {
        (self.dtype.bits() / 8) as usize
    }
}

const fn element(
    dtype: DType,
    name: &'static str,
    npy: Option<&'static str>,
    safetensors: &'static str,
) -> Element {
    Element { name, npy, safetensors, dtype }
}

/// Every element type that files have and this module reads.
static ELEMENTS: [Element; 16] = [
    element(DType::F64, "f64", Some("f8"), "F64"),
    element(DType::F32, "f32", Some("f4"), "F32"),
    element(DType::F16, "f16", Some("f2"), "F16"),
    element(DType::BF16, "bf16", None, "BF16"),
    element(DType::E4M3, "e4m3", None, "F8_E4M3"),
    element(DType::E5M2, "e5m2", None, "F8_E5M2"),
    element(DType::UE8M0, "ue8m0", None, "F8_E8M0"),
    element(DType::I8, "i8", Some("i1"), "I8"),
    element(DType::U8, "u8", Some("u1"), "U8"),
    element(DType::I16, "i16", Some("i2"), "I16"),
    element(DType::U16, "u16", Some("u2"), "U16"),
    element(DType::I32, "i32", Some("i4"), "I32"),
    element(DType::U32, "u32", Some("u4"), "U32"),
    element(DType::I64, "i64", Some("i8"), "I64"),
    element(DType::U64, "u64", Some("u8"), "U64"),
    element(DType::Bool, "bool", Some("b1"), "BOOL"),
];

/// Further element types of arrays in memory: floats of six bits in a byte each, which files have packed or not at all.
static IN_MEMORY: [Element; 2] =
    [element(DType::E3M2, "e3m2", None, ""), element(DType::E2M3, "e2m3", None, "")];

/// Reasons why an array cannot be read, written, or used.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// The file cannot be read or written.
    #[error("cannot {verb} `{}`: {error}", path.display())]
    Io {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: std::io::Error,
    },
    /// The file is not of its format.
    #[error("`{}` is not a file of its format: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The mistake.
        reason: String,
    },
    /// A file of several tensors has none of this name.
    #[error("`{}` has no tensor `{name}`; it has {}", path.display(), list(known))]
    NoTensor {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// The file's name ends in nothing that is known.
    #[error("`{}` is neither a `.npy` nor a `.safetensors` file", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// The bytes are no array.
    #[error("{reason}")]
    Bytes {
        /// The mistake.
        reason: String,
    },
    /// The elements are of a type that the tensor's cannot take.
    #[error("it has elements of type {found}, and the tensor has {wanted}: {help}")]
    Type {
        /// The type in the file.
        found: &'static str,
        /// The tensor's.
        wanted: DType,
        /// The remedy.
        help: &'static str,
    },
    /// An integer is outside the range of the tensor's type.
    #[error("its element {at} is {value}, and the tensor's type {wanted} reaches from {low} to {high}")]
    Range {
        /// The number of the element, row-major.
        at: usize,
        /// Its value.
        value: f64,
        /// The tensor's type.
        wanted: DType,
        /// The type's smallest value.
        low: f64,
        /// Its largest.
        high: f64,
    },
    /// The shape is another one.
    #[error("it has shape {found:?}, and the tensor has {wanted:?}")]
    Shape {
        /// The shape in the file.
        found: Vec<usize>,
        /// The tensor's.
        wanted: Vec<i64>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

/// The smallest and the largest value of an integer type, and of truth values; `None` for floats.
fn range(dtype: DType) -> Option<[i128; 2]> {
    match dtype.range() {
        Some((low, high)) => Some([low, high]),
        None if dtype.is_float() => None,
        None => Some([0, 1]),
    }
}

impl Array {
    /// The elements as a tensor of this type and shape takes them. Floats go to floats of any width, rounded to nearest even when they are
    /// encoded; integers to integers, if the type reaches as far.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Shape`], [`ArrayError::Type`], [`ArrayError::Range`].
    pub fn for_tensor(&self, dtype: DType, shape: &[i64]) -> Result<Elements, ArrayError> {
        if self.shape.len() != shape.len() || self.shape.iter().zip(shape).any(|(a, b)| *a as i64 != *b) {
            return Err(ArrayError::Shape { found: self.shape.clone(), wanted: shape.to_vec() });
        }
        if self.element.dtype.is_float() != dtype.is_float() {
            let help = if dtype.is_float() {
                "convert the array to a float type"
            } else {
                "convert the array to an integer type"
            };
            return Err(ArrayError::Type { found: self.element.name, wanted: dtype, help });
        }
        let Some([low, high]) = range(dtype) else {
            return Ok(Elements::rounded(dtype, self.values.floats()));
        };
        let integers: Vec<i128> = match &self.values {
            Elements::Floats(values) => values.iter().map(|x| *x as i128).collect(),
            Elements::Integers(values) => values.clone(),
        };
        if let Some(at) = integers.iter().position(|x| !(low..=high).contains(x)) {
            let value = integers[at] as f64;
            return Err(ArrayError::Range { at, value, wanted: dtype, low: low as f64, high: high as f64 });
        }
        Ok(if dtype.is_wide_integer() {
            Elements::Integers(integers)
        } else {
            Elements::Floats(integers.into_iter().map(|x| x as f64).collect())
        })
    }

    /// The array of these little-endian bytes, row-major: elements of the type with this name, of those that files have, or `e3m2` or `e2m3`.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Bytes`].
    pub fn of_bytes(element: &str, shape: Vec<usize>, bytes: &[u8]) -> Result<Self, ArrayError> {
        let all = || ELEMENTS.iter().chain(&IN_MEMORY);
        let found = all().find(|e| e.name == element);
        let unknown = || {
            let known: Vec<&str> = all().map(|e| e.name).collect();
            ArrayError::Bytes {
                reason: format!("elements of type {element} are not read; {} are", known.join(", ")),
            }
        };
        decoded(found.ok_or_else(unknown)?, shape, bytes).map_err(|reason| ArrayError::Bytes { reason })
    }

    /// Reads a file: `a.npy`, `a.safetensors:name`, or `a.safetensors` where it has one tensor.
    ///
    /// # Errors
    ///
    /// [`ArrayError`].
    pub fn read(place: &Place) -> Result<Self, ArrayError> {
        let Place { path, name } = place;
        let io = |error| ArrayError::Io { verb: "read", path: path.clone(), error };
        let size = std::fs::metadata(path).map_err(io)?.len();
        if size > LIMIT {
            let reason = format!("it has {size} bytes, more than {LIMIT}");
            return Err(ArrayError::Format { path: path.clone(), reason });
        }
        let bytes = std::fs::read(path).map_err(io)?;
        let format = |reason| ArrayError::Format { path: path.clone(), reason };
        match place.format()? {
            Format::Npy => npy::read(&bytes).map_err(format),
            Format::Safetensors => {
                let tensors = safetensors::Tensors::of(&bytes).map_err(format)?;
                let known = tensors.names();
                let name = match (name, known.as_slice()) {
                    (Some(name), _) => name.clone(),
                    (None, [only]) => only.clone(),
                    (None, _) => {
                        let reason = format!("it has several tensors: add `:NAME`, of {}", list(&known));
                        return Err(format(reason));
                    }
                };
                tensors.read(&name).map_err(format)?.ok_or(ArrayError::NoTensor {
                    path: path.clone(),
                    name,
                    known,
                })
            }
        }
    }

    /// Writes elements of a type to files, several tensors of one `.safetensors` file together. `.npy` has no `bf16` and no 8-bit floats:
    /// they are written as `f32`, exactly; elements of fewer than 8 bits as bytes.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Io`], [`ArrayError::Unknown`].
    pub fn write(path: &Path, tensors: &[Written<'_>]) -> Result<(), ArrayError> {
        let place = Place { path: path.to_path_buf(), name: None };
        let bytes = match (place.format()?, tensors) {
            (Format::Npy, [one]) => npy::write(one),
            (Format::Npy, _) => {
                let reason = "a `.npy` file holds one array: give each output a file of its own".to_string();
                return Err(ArrayError::Format { path: path.to_path_buf(), reason });
            }
            (Format::Safetensors, all) => safetensors::write(all),
        };
        std::fs::write(path, bytes).map_err(|error| ArrayError::Io {
            verb: "write",
            path: path.to_path_buf(),
            error,
        })
    }
}

/// An array to be written: its name, type and shape, and its elements, row-major.
#[derive(Clone, Debug)]
pub struct Written<'a> {
    /// The name in a file of several.
    pub name: &'a str,
    /// The type.
    pub dtype: DType,
    /// The extents.
    pub shape: &'a [i64],
    /// The elements.
    pub values: &'a Elements,
}

impl Written<'_> {
    /// The name of the type that holds all values of the array's, in bytes of its own, and the elements as little-endian bytes.
    pub fn bytes(&self) -> (&'static str, Vec<u8>) {
        let element = element_of(self.dtype, false);
        (element.name, encode(element, self.values))
    }
}

/// The type in files that holds all values of a type, in bytes of its own.
fn element_of(dtype: DType, npy: bool) -> &'static Element {
    let fits = |e: &&Element| e.name == dtype.name() && (!npy || e.npy.is_some());
    let wide = if dtype.is_float() {
        "f32"
    } else if range(dtype).is_some_and(|[low, _]| low < 0) {
        "i8"
    } else {
        "u8"
    };
    let by_name = |name: &str| ELEMENTS.iter().find(|e| e.name == name);
    ELEMENTS.iter().find(fits).or_else(|| by_name(wide)).unwrap_or(&ELEMENTS[0])
}

/// The little-endian bytes of elements.
fn encode(element: &Element, values: &Elements) -> Vec<u8> {
    let bits = (0..values.len()).map(|at| values.bits(element.dtype, at).unwrap_or(0));
    bits.flat_map(|bits| bits.to_le_bytes().into_iter().take(element.bytes())).collect()
}

/// The format of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Npy,
    Safetensors,
}

/// A file, and the name of a tensor in it. As text `FILE` or `FILE:NAME`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The name of a tensor in a `.safetensors` file.
    pub name: Option<String>,
}

impl Place {
    /// Reads the text form; `None` for a text in which no file of a known format stands.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((path, name)) = text.split_once(".safetensors:") {
            let path = PathBuf::from(format!("{path}.safetensors"));
            return Some(Place { path, name: Some(name.to_string()) });
        }
        let place = Place { path: PathBuf::from(text), name: None };
        place.format().is_ok().then_some(place)
    }

    fn format(&self) -> Result<Format, ArrayError> {
        match self.path.extension().and_then(|e| e.to_str()) {
            Some("npy") => Ok(Format::Npy),
            Some("safetensors") => Ok(Format::Safetensors),
            _ => Err(ArrayError::Unknown { path: self.path.clone() }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}:{name}", self.path.display()),
            None => write!(f, "{}", self.path.display()),
        }
    }
}

/// The elements of `bytes`.
fn decoded(element: &'static Element, shape: Vec<usize>, bytes: &[u8]) -> Result<Array, String> {
    let count = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent));
    let wanted = count.and_then(|n| n.checked_mul(element.bytes()));
    if wanted != Some(bytes.len()) {
        return Err(format!("an array of {} and shape {shape:?} has {} bytes of data", element, bytes.len()));
    }
    let bits = |chunk: &[u8]| chunk.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    let values = Elements::of_bits(element.dtype, bytes.chunks_exact(element.bytes()).map(bits));
    Ok(Array { element, shape, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read_back_from_both_formats() {
        let folder = tempfile::tempdir().unwrap();
        for dtype in DType::ALL {
            let values = Elements::rounded(dtype, [0.0, 1.0, 2.0, 96.0, -3.0, 0.5, 1e30]);
            let values = values.picked(if dtype.is_float() { 0..6 } else { 1..7 });
            let shape = [2, 3];
            for (file, name) in [("a.npy", None), ("a.safetensors", Some("x"))] {
                let path = folder.path().join(file);
                let written = Written { name: "x", dtype, shape: &shape, values: &values };
                Array::write(&path, std::slice::from_ref(&written)).unwrap();
                let place = Place { path, name: name.map(str::to_string) };
                let array = Array::read(&place).unwrap();
                assert_eq!(array.for_tensor(dtype, &shape).unwrap(), values, "{dtype} {file}");
                let nameless = Place { name: None, ..place };
                assert_eq!(Array::read(&nameless).unwrap(), array);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let array = |name: &str, values: &[f64]| Array {
            element: ELEMENTS.iter().find(|e| e.name == name).unwrap(),
            shape: vec![values.len()],
            values: Elements::rounded(name.parse().unwrap(), values.iter().copied()),
        };
        let said =
            |array: &Array, dtype, shape: &[i64]| array.for_tensor(dtype, shape).unwrap_err().to_string();
        assert_eq!(
            said(&array("i64", &[1.0, 300.0]), DType::I8, &[2]),
            "its element 1 is 300, and the tensor's type i8 reaches from -128 to 127"
        );
        assert_eq!(
            said(&array("f32", &[1.0]), DType::I32, &[1]),
            "it has elements of type f32, and the tensor has i32: convert the array to an integer type"
        );
        assert_eq!(
            said(&array("f32", &[1.0, 2.0]), DType::F16, &[2, 1]),
            "it has shape [2], and the tensor has [2, 1]"
        );
        assert!(array("f64", &[1.0]).for_tensor(DType::BF16, &[1]).is_ok());
    }

    #[test]
    fn places_are_read() {
        let place = Place::parse("a/b.safetensors:model.w").unwrap();
        assert_eq!((place.path.to_str(), place.name.as_deref()), (Some("a/b.safetensors"), Some("model.w")));
        assert_eq!(place.to_string(), "a/b.safetensors:model.w");
        assert!(Place::parse("x.npy").is_some() && Place::parse("x.bin").is_none());
    }
}
