//! Recipes: everything that launches of a kernel read of it, as data.
//!
//! A recipe owns what it says and knows nothing of programs, so that it can be written to a file and read without a compiler.

use std::error::Error;
use std::fmt;

use crate::dtype::DType;
use crate::formula::{Formula, Item};
use crate::view::MAX_RANK;

/// The most parameters of a kernel, and the most that its function has.
pub const MOST_PARAMS: usize = 64;
/// The most tensor maps of a kernel.
pub const MOST_MAPS: usize = 16;
/// The most counters of loops in [`Recipe::bounds`].
const MOST_COUNTERS: u32 = 4096;
/// Threads of a block, at most (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; also below).
const MOST_THREADS: u32 = 1024;
/// Blocks of a cluster, at most.
const MOST_CLUSTER: u32 = 16;
/// Bytes of shared memory of a block, at most.
const MOST_SHARED: u32 = 227 * 1024;

/// The GPUs that code is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The name, as in PTX's `.target`.
    pub name: String,
    /// The compute capability.
    pub capability: (u32, u32),
    /// True if the code runs on this compute capability alone.
    pub specific: bool,
}

impl Target {
    /// True if a GPU of this compute capability runs the code.
    pub fn runs_on(&self, capability: (u32, u32)) -> bool {
        if self.specific { capability == self.capability } else { capability >= self.capability }
    }
}

/// A run-time size.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Size {
    /// The name.
    pub name: String,
    /// The value where none is given by name.
    pub default: i64,
    /// The code relies on the size being a multiple of this.
    pub multiple: i64,
    /// The largest value.
    pub most: i64,
}

impl Size {
    /// A size on which the code relies for nothing.
    pub fn new(name: impl Into<String>, default: i64, most: i64) -> Self {
        Size { name: name.into(), default, multiple: 1, most }
    }
}

/// The type of a number that a launch passes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Scalar {
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// Signed integer of 32 bits.
    I32,
    /// Unsigned integer of 32 bits.
    U32,
    /// Signed integer of 64 bits.
    I64,
    /// Unsigned integer of 64 bits.
    U64,
}

impl Scalar {
    /// The name in the tile language.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
            Scalar::I32 => "i32",
            Scalar::U32 => "u32",
            Scalar::I64 => "i64",
            Scalar::U64 => "u64",
        }
    }
}

/// A kernel's access to a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Access {
    /// It only reads it.
    Read,
    /// It writes it, and may read it.
    Write,
}

/// The zeros that a part of a workspace holds before a launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Zeros {
    /// It may hold anything.
    #[default]
    None,
    /// It holds zeros before each launch.
    Before,
    /// It holds zeros before the first launch, and each launch leaves zeros.
    Left,
}

impl Zeros {
    /// Every value.
    pub const ALL: [Zeros; 3] = [Zeros::None, Zeros::Before, Zeros::Left];

    /// The name in packs.
    pub fn name(self) -> &'static str {
        match self {
            Zeros::None => "none",
            Zeros::Before => "before",
            Zeros::Left => "left",
        }
    }
}

/// A tensor parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TensorParam {
    /// The element type.
    pub dtype: DType,
    /// The extents, over sizes; the first of an array of tensors is their number.
    pub shape: Vec<Formula>,
    /// The strides in elements, over sizes; the first of an array of tensors is of no memory.
    pub strides: Vec<Formula>,
    /// The access.
    pub access: Access,
    /// True if no kernel that may run at the same time writes it.
    pub constant: bool,
    /// Its address is a multiple of this, in bytes.
    pub alignment: u32,
    /// True for an array of tensors, which a launch passes as a table of their addresses.
    pub array: bool,
    /// True if it is a part of the workspace of a launch, and no argument.
    pub workspace: bool,
    /// Zeros that it holds before a launch, as a part of the workspace. A [`Chain`](crate::Chain) sees to it.
    pub zeros: Zeros,
}

impl TensorParam {
    /// A tensor that is read, at a multiple of 16 bytes.
    pub fn new(dtype: DType, shape: Vec<Formula>, strides: Vec<Formula>) -> Self {
        TensorParam {
            dtype,
            shape,
            strides,
            access: Access::Read,
            constant: false,
            alignment: 16,
            array: false,
            workspace: false,
            zeros: Zeros::None,
        }
    }
}

/// The kind of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParamKind {
    /// A tensor, or an array of such.
    Tensor(TensorParam),
    /// A number.
    Scalar(Scalar),
}

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Param {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: ParamKind,
}

impl Param {
    /// A parameter.
    pub fn new(name: impl Into<String>, kind: ParamKind) -> Self {
        Param { name: name.into(), kind }
    }
}

/// A parameter of the function that the driver launches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Passed {
    /// The address of the tensor of a parameter; of an array, that of the table of the tensors' addresses.
    Tensor(u32),
    /// The number for a parameter.
    Scalar(u32),
    /// A size, as an `i32`.
    Size(u32),
    /// A tensor map, by value; of an array, the address of its tensors' maps.
    Map(u32),
    /// The address of the buffer of records of assertions and prints.
    Records,
}

/// The rearrangement of a box in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Swizzle {
    /// None.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
    /// Within 128 bytes, 32 at a time.
    B128Atom32,
}

/// A tensor map: a tensor and the box that copies move.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Map {
    /// The parameter that is the tensor, or an array of such.
    pub param: u32,
    /// The element type.
    pub dtype: DType,
    /// Extents of the box in shared memory, dimension 0 first; in im2col mode the channels of a pixel, and pixels.
    pub extents: Vec<u32>,
    /// Steps in the tensor from one element of the box to the next.
    pub steps: Vec<u32>,
    /// The rearrangement of the box.
    pub swizzle: Swizzle,
    /// Extents of the tensor in elements, dimension 0 first, which is contiguous.
    pub tensor_extents: Vec<Formula>,
    /// Strides of the tensor in elements, from dimension 1 on.
    pub tensor_strides: Vec<Formula>,
    /// The bounding box of the im2col mode (`cuTensorMapEncodeIm2col`); `None` of a map of boxes.
    pub corners: Option<Corners>,
}

/// The bounding box of a tensor map in im2col mode, along the dimensions between the first and the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corners {
    /// The place of the first pixel, relative to the tensor's first.
    pub lower: Vec<i32>,
    /// The place of the last one, relative to the tensor's last.
    pub upper: Vec<i32>,
}

/// The most pixels of a load in im2col mode (PTX ISA, `cp.async.bulk.tensor`; CUDA driver API, `cuTensorMapEncodeIm2col`).
const MOST_PIXELS: i64 = 1024;

impl Map {
    /// Dimensions of the tensor.
    pub fn rank(&self) -> usize {
        if self.corners.is_some() { self.steps.len() } else { self.extents.len() }
    }

    /// A map of a box without steps and without a swizzle.
    pub fn new(
        param: u32,
        dtype: DType,
        extents: Vec<u32>,
        tensor_extents: Vec<Formula>,
        tensor_strides: Vec<Formula>,
    ) -> Self {
        let steps = vec![1; extents.len()];
        let (swizzle, corners) = (Swizzle::None, None);
        Map { param, dtype, extents, steps, swizzle, tensor_extents, tensor_strides, corners }
    }
}

/// A part of the list that shows that every integer of a kernel fits in 32 bits.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Bound {
    /// The formula, each integer in it, and its value with a distance added fit in 32 bits.
    Fits {
        /// The words for it in messages.
        what: String,
        /// The formula.
        formula: Formula,
        /// The distance.
        reach: i64,
    },
    /// A counter takes the values from the least of a formula to the greatest of another. If there are none, the bounds behind this that
    /// are of its body do not matter.
    Range {
        /// The words for it in messages.
        what: String,
        /// The counter's number.
        counter: u32,
        /// Its least value.
        least: Formula,
        /// Its greatest value, but for what is added.
        most: Formula,
        /// The number that is added.
        beyond: i64,
        /// The number of bounds of its body.
        body: u32,
    },
    /// The bounds behind this matter where a condition may be other than 0.
    When {
        /// The words for it in messages.
        what: String,
        /// The condition.
        condition: Formula,
        /// The number of bounds that it is for.
        body: u32,
    },
}

/// Everything that launches of a kernel read of it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Recipe {
    /// The kernel's name, for messages.
    pub name: String,
    /// The name of its function in the code.
    pub entry: String,
    /// The GPUs that the code is for.
    pub target: Target,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks of a cluster, along x.
    pub cluster: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// True if it waits for the grids that it depends on: it may begin before those have ended.
    pub waits: bool,
    /// True if its blocks wait for each other: all must run at once.
    pub resident: bool,
    /// Bytes of the buffer of records of its assertions and prints, if it has any.
    pub records: Option<u64>,
    /// The run-time sizes, in the order in which a launch gives them.
    pub sizes: Vec<Size>,
    /// The parameters, in order.
    pub params: Vec<Param>,
    /// The parameters of the function, in order.
    pub passed: Vec<Passed>,
    /// The grid's extents along x, y and z, over sizes.
    pub grid: Vec<Formula>,
    /// The largest extent of a tensor.
    pub most_extent: i64,
    /// The list that shows that every integer of the kernel fits in 32 bits.
    pub bounds: Vec<Bound>,
    /// The tensor maps.
    pub maps: Vec<Map>,
}

/// A recipe that no launch can follow.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RecipeError {
    /// A number is outside its limits.
    Limit {
        /// The number.
        what: String,
        /// Its value.
        value: i64,
        /// The least that it may be.
        least: i64,
        /// The most that it may be.
        most: i64,
    },
    /// Something refers to a size, a parameter, a map or a counter that there is not.
    Reference {
        /// The part that refers to it.
        what: String,
        /// The kind of what is missing.
        of: &'static str,
        /// Its number.
        number: u32,
    },
    /// A parameter is used as what it is not.
    Kind {
        /// The part that uses it.
        what: String,
        /// The parameter.
        param: String,
    },
    /// Two lists that belong together have other lengths.
    Length {
        /// The list.
        what: String,
        /// Its length.
        given: usize,
        /// The length that it must have.
        expected: usize,
    },
    /// An element type has no tensor maps.
    MapType {
        /// The map.
        what: String,
        /// The type.
        dtype: DType,
    },
    /// A name that a driver cannot have.
    Entry,
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecipeError::Limit { what, value, least, most } => {
                write!(f, "{what} is {value}; it is from {least} to {most}")
            }
            RecipeError::Reference { what, of, number } => {
                write!(f, "{what} refers to {of} {number}, which the recipe does not have")
            }
            RecipeError::Kind { what, param } => {
                write!(f, "{what} takes parameter `{param}`, which is of another kind")
            }
            RecipeError::Length { what, given, expected } => {
                write!(f, "{what} has {given} entries; {expected} belong to it")
            }
            RecipeError::MapType { what, dtype } => {
                write!(f, "{what} has elements of type {dtype}, of which there are no tensor maps")
            }
            RecipeError::Entry => f.write_str("the name of the function is empty, or has a NUL character"),
        }
    }
}

impl Error for RecipeError {}

fn limit(
    what: impl FnOnce() -> String,
    value: impl Into<i64>,
    least: i64,
    most: impl Into<i64>,
) -> Result<(), RecipeError> {
    let (value, most) = (value.into(), most.into());
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(RecipeError::Limit { what: what(), value, least, most })
}

fn length(what: impl FnOnce() -> String, given: usize, expected: usize) -> Result<(), RecipeError> {
    if given == expected { Ok(()) } else { Err(RecipeError::Length { what: what(), given, expected }) }
}

impl Recipe {
    /// A kernel of one thread without parameters, sizes and bounds, with a grid of one block.
    pub fn new(name: impl Into<String>, entry: impl Into<String>, target: Target) -> Self {
        Recipe {
            name: name.into(),
            entry: entry.into(),
            target,
            threads: 1,
            cluster: 1,
            shared_bytes: 0,
            waits: false,
            resident: false,
            records: None,
            sizes: Vec::new(),
            params: Vec::new(),
            passed: Vec::new(),
            grid: vec![Formula::int(1)],
            most_extent: i64::from(i32::MAX),
            bounds: Vec::new(),
            maps: Vec::new(),
        }
    }

    /// The sizes in order, those not named with their defaults; `None` if the kernel has no size of a name.
    pub fn values(&self, named: &[(&str, i64)]) -> Option<Vec<i64>> {
        let known = |(name, _): &(&str, i64)| self.sizes.iter().any(|size| size.name == *name);
        let value = |size: &Size| {
            let given = named.iter().find(|(name, _)| *name == size.name);
            given.map_or(size.default, |(_, value)| *value)
        };
        named.iter().all(known).then(|| self.sizes.iter().map(value).collect())
    }

    /// The tensor parameter with this name, for changes: to make it a part of the workspace, say.
    pub fn tensor_mut(&mut self, name: &str) -> Option<&mut TensorParam> {
        self.params.iter_mut().find(|param| param.name == name).and_then(|param| match &mut param.kind {
            ParamKind::Tensor(tensor) => Some(tensor),
            ParamKind::Scalar(_) => None,
        })
    }

    /// The number of counters in the bounds.
    pub(crate) fn counters(&self) -> usize {
        let counter = |bound: &Bound| match bound {
            Bound::Range { counter, .. } => *counter as usize + 1,
            _ => 0,
        };
        self.bounds.iter().map(counter).max().unwrap_or(0)
    }

    /// The tensor of a parameter.
    pub(crate) fn tensor(&self, param: u32) -> Option<&TensorParam> {
        match &self.params.get(param as usize)?.kind {
            ParamKind::Tensor(tensor) => Some(tensor),
            ParamKind::Scalar(_) => None,
        }
    }

    /// Checks that launches can follow the recipe: numbers are within limits, and what it refers to is there.
    ///
    /// # Errors
    ///
    /// The first rule that it breaks.
    pub fn check(&self) -> Result<(), RecipeError> {
        if self.entry.is_empty() || self.entry.contains('\0') {
            return Err(RecipeError::Entry);
        }
        limit(|| "the number of threads".into(), self.threads, 1, MOST_THREADS)?;
        limit(|| "the number of blocks of a cluster".into(), self.cluster, 1, MOST_CLUSTER)?;
        limit(|| "the number of bytes of shared memory".into(), self.shared_bytes, 0, MOST_SHARED)?;
        let count = |what: &str, len: usize, most: usize| limit(|| what.into(), len as i64, 0, most as i64);
        count("the number of sizes", self.sizes.len(), MOST_PARAMS)?;
        count("the number of parameters", self.params.len(), MOST_PARAMS)?;
        count("the number of parameters of the function", self.passed.len(), MOST_PARAMS)?;
        count("the number of tensor maps", self.maps.len(), MOST_MAPS)?;
        limit(|| "the number of extents of the grid".into(), self.grid.len() as i64, 1, 3)?;
        limit(|| "the largest extent of a tensor".into(), self.most_extent, 1, i64::from(i32::MAX))?;
        for size in &self.sizes {
            let most = i64::from(i32::MAX);
            limit(|| format!("the most of size `{}`", size.name), size.most, 1, most)?;
            limit(|| format!("the multiple of size `{}`", size.name), size.multiple, 1, most)?;
        }
        for formula in &self.grid {
            self.check_formula("the grid", formula, false)?;
        }
        for param in &self.params {
            let ParamKind::Tensor(tensor) = &param.kind else { continue };
            let what = |of: &str| format!("{of} of `{}`", param.name);
            limit(|| what("the number of modes"), tensor.shape.len() as i64, 0, MAX_RANK as i64)?;
            length(|| what("the list of strides"), tensor.strides.len(), tensor.shape.len())?;
            let alignment = if tensor.alignment.is_power_of_two() { tensor.alignment } else { 0 };
            limit(|| what("the alignment"), alignment, 1, 256)?;
            if tensor.array && (tensor.shape.is_empty() || tensor.workspace) {
                return Err(RecipeError::Kind {
                    what: "an array of tensors".into(),
                    param: param.name.clone(),
                });
            }
            for formula in tensor.shape.iter().chain(&tensor.strides) {
                self.check_formula(&what("the shape"), formula, false)?;
            }
        }
        for (number, map) in self.maps.iter().enumerate() {
            self.check_map(number, map)?;
        }
        self.check_passed()?;
        self.check_list()
    }

    fn check_formula(&self, what: &str, formula: &Formula, of_bounds: bool) -> Result<(), RecipeError> {
        let absent = |of, number| Err(RecipeError::Reference { what: what.to_string(), of, number });
        for item in formula.items() {
            match *item {
                Item::Size(size) if size as usize >= self.sizes.len() => return absent("size", size),
                Item::Counter(counter) if !of_bounds || counter >= MOST_COUNTERS => {
                    return absent("counter", counter);
                }
                Item::Block(axis) if !of_bounds || axis > 2 => return absent("the block's index", axis),
                Item::Scalar(param) => {
                    let integer = self.params.get(param as usize).map(|param| &param.kind)
                        == Some(&ParamKind::Scalar(Scalar::I32));
                    if !of_bounds || !integer {
                        return absent("integer parameter", param);
                    }
                }
                Item::Element(count) if !of_bounds => return absent("elements at", count),
                _ => {}
            }
        }
        Ok(())
    }

    fn check_map(&self, number: usize, map: &Map) -> Result<(), RecipeError> {
        let what = |of: &str| format!("{of} of tensor map {number}");
        if self.tensor(map.param).is_none() {
            return Err(RecipeError::Reference { what: what("the tensor"), of: "tensor", number: map.param });
        }
        if map.dtype.map_code().is_none() {
            return Err(RecipeError::MapType { what: format!("tensor map {number}"), dtype: map.dtype });
        }
        let rank = map.rank();
        let least = if map.corners.is_some() { 3 } else { 1 };
        limit(|| what("the number of dimensions"), rank as i64, least, 5)?;
        length(|| what("the list of steps"), map.steps.len(), rank)?;
        length(|| what("the list of extents"), map.tensor_extents.len(), rank)?;
        length(|| what("the list of strides"), map.tensor_strides.len(), rank - 1)?;
        for step in &map.steps {
            limit(|| what("a step"), *step, 1, 8)?;
        }
        match &map.corners {
            Some(corners) => {
                length(|| what("the list of extents of the box"), map.extents.len(), 2)?;
                for (extent, most) in map.extents.iter().zip([256, MOST_PIXELS]) {
                    limit(|| what("an extent"), *extent, 1, most)?;
                }
                let most = 1i64 << (16 / (rank as i64 - 2) - 1);
                for list in [&corners.lower, &corners.upper] {
                    length(|| what("a list of corners"), list.len(), rank - 2)?;
                    list.iter().try_for_each(|at| limit(|| what("a corner"), *at, -most, most - 1))?;
                }
            }
            None => {
                for (extent, step) in map.extents.iter().zip(&map.steps) {
                    limit(|| what("an extent"), *extent, 1, 256)?;
                    limit(|| what("the reach"), extent.saturating_mul(*step), 1, 256)?;
                }
            }
        }
        for formula in map.tensor_extents.iter().chain(&map.tensor_strides) {
            self.check_formula(&what("an extent"), formula, false)?;
        }
        Ok(())
    }

    fn check_passed(&self) -> Result<(), RecipeError> {
        for (number, passed) in self.passed.iter().enumerate() {
            let what = || format!("parameter {number} of the function");
            let absent = |of, number| Err(RecipeError::Reference { what: what(), of, number });
            match *passed {
                Passed::Tensor(param) if self.tensor(param).is_none() => return absent("tensor", param),
                Passed::Scalar(param) => match self.params.get(param as usize) {
                    Some(Param { kind: ParamKind::Scalar(_), .. }) => {}
                    _ => return absent("number", param),
                },
                Passed::Size(size) if size as usize >= self.sizes.len() => return absent("size", size),
                Passed::Map(map) if map as usize >= self.maps.len() => return absent("tensor map", map),
                Passed::Records if self.records.is_none() => return absent("buffer of records", 0),
                _ => {}
            }
        }
        Ok(())
    }

    fn check_list(&self) -> Result<(), RecipeError> {
        for (at, bound) in self.bounds.iter().enumerate() {
            let rest = (self.bounds.len() - at - 1) as i64;
            let body = |body: u32| limit(|| format!("the body of bound {at}"), body, 0, rest);
            match bound {
                Bound::Fits { what, formula, .. } => self.check_formula(what, formula, true)?,
                Bound::Range { what, counter, least, most, body: bounds, .. } => {
                    limit(|| "the number of a counter".into(), *counter, 0, MOST_COUNTERS - 1)?;
                    self.check_formula(what, least, true)?;
                    self.check_formula(what, most, true)?;
                    body(*bounds)?;
                }
                Bound::When { what, condition, body: bounds } => {
                    self.check_formula(what, condition, true)?;
                    body(*bounds)?;
                }
            }
        }
        Ok(())
    }
}
