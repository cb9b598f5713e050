//! Plans: launches of a kernel at fixed sizes, with all that is known of them checked and computed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::bounds;
use crate::driver::{LaunchAttribute, TensorMap};
use crate::error::LaunchError;
use crate::formula::{Fault, Formula};
use crate::gpu::Gpu;
use crate::kernel::Ready;
use crate::map::{MAP_ALIGNMENT, STRIDE_LIMIT, Shape};
use crate::memo::Memo;
use crate::module::Module;
use crate::recipe::{Access, Param, ParamKind, Recipe, Scalar, TensorParam};
use crate::view::MAX_RANK;

/// Blocks along x, y and z, at most (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
const MOST_BLOCKS: [i64; 3] = [0x7fff_ffff, 65535, 65535];
/// Tensor maps that a plan keeps, of each of its kernel's: those of the addresses that were used last.
const MAPS_KEPT: usize = 1024;
/// Tuples of integer arguments that a plan remembers as checked: those that were used last.
const INTEGERS_KEPT: usize = 1024;
/// Parts of a workspace begin at multiples of this.
pub(crate) const WORKSPACE_ALIGNMENT: u64 = 256;
/// The compute capability with which dependent launches came.
const HOPPER: (u32, u32) = (9, 0);

/// A tensor as a plan expects it.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) rank: usize,
    pub(crate) shape: [i64; MAX_RANK],
    pub(crate) strides: [i64; MAX_RANK],
    /// Bytes from the first element to behind the last; of an array, of each of its tensors.
    pub(crate) bytes: u64,
    /// The place in the workspace.
    pub(crate) workspace: Option<u64>,
    /// Of an array: the places of its tensors' maps in its table, by map.
    pub(crate) tables: Vec<(u32, u64)>,
    /// Bytes of an array's table.
    pub(crate) table_bytes: u64,
}

/// A tensor map of a plan.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) param: u32,
    pub(crate) array: bool,
    pub(crate) shape: Shape,
    /// By address.
    pub(crate) known: Memo<u64, TensorMap>,
}

impl<K, V> fmt::Debug for Memo<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memo").field(&self.len()).finish()
    }
}

/// The launches of a kernel at fixed sizes.
#[derive(Clone)]
pub struct Plan(pub(crate) Arc<Planned>);

pub(crate) struct Planned {
    pub(crate) ready: Arc<Ready>,
    sizes: Box<[i64]>,
    pub(crate) grid: [u32; 3],
    /// Sizes as the function takes them.
    pub(crate) size_words: Box<[u64]>,
    /// By parameter; nothing of numbers.
    pub(crate) tensors: Box<[Option<Expected>]>,
    pub(crate) maps: Box<[Mapped]>,
    workspace_bytes: u64,
    /// Attributes of launches: a cluster, if there is any, and the permission to begin early.
    pub(crate) attributes: [LaunchAttribute; 2],
    /// The number of attributes without the last.
    pub(crate) attribute_count: u32,
    pub(crate) may_depend: bool,
    /// Parameters that are arguments.
    pub(crate) arguments: usize,
    /// Constant parameters with those that are written.
    pub(crate) clashes: Box<[(usize, usize)]>,
    /// Tuples of integer arguments for which every integer of the kernel fits, where that depends on them.
    pub(crate) integers: Option<Memo<Box<[i64]>, ()>>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("kernel", &self.0.ready.recipe.name)
            .field("sizes", &self.0.sizes)
            .field("grid", &self.0.grid)
            .finish_non_exhaustive()
    }
}

/// Values of formulas at the sizes of a plan, with their names in errors.
struct Values<'a> {
    recipe: &'a Recipe,
    sizes: &'a [i64],
}

impl Values<'_> {
    fn name(&self) -> String {
        self.recipe.name.clone()
    }

    fn of(&self, formula: &Formula, most: i64, what: impl Fn() -> String) -> Result<i64, LaunchError> {
        match formula.value(self.sizes) {
            None => Err(LaunchError::NoValue { kernel: self.name(), what: what() }),
            Some(value) if !(1..=most).contains(&value) => {
                Err(LaunchError::OutOfRange { kernel: self.name(), what: what(), value, least: 1, most })
            }
            Some(value) => Ok(value),
        }
    }
}

impl Plan {
    pub(crate) fn new(ready: &Arc<Ready>, sizes: &[i64]) -> Result<Plan, LaunchError> {
        let recipe = &*ready.recipe;
        let kernel = || recipe.name.clone();
        let size_words = check_sizes(recipe, sizes)?;
        let values = Values { recipe, sizes };
        let mut grid = [1u32; 3];
        for (axis, formula) in recipe.grid.iter().enumerate().take(3) {
            let what = || format!("the grid's {} extent", ["x", "y", "z"][axis]);
            grid[axis] = values.of(formula, MOST_BLOCKS[axis], what)? as u32;
        }
        if !grid[0].is_multiple_of(recipe.cluster) {
            let (blocks, cluster) = (grid[0], recipe.cluster);
            return Err(LaunchError::PartOfCluster { kernel: kernel(), blocks, cluster });
        }
        if let Some(resident) = ready.resident {
            let blocks = grid.iter().map(|extent| u64::from(*extent)).product();
            if blocks > u64::from(resident) {
                return Err(LaunchError::NotResident { kernel: kernel(), blocks, resident });
            }
        }
        let integers = if bounds::depends_on_scalars(recipe) {
            Some(Memo::new(INTEGERS_KEPT))
        } else {
            check_bounds(recipe, sizes, grid, &[])?;
            None
        };
        let mut tensors = Vec::with_capacity(recipe.params.len());
        let mut workspace_bytes = 0u64;
        for param in &recipe.params {
            tensors.push(match &param.kind {
                ParamKind::Tensor(tensor) => {
                    let mut expected = expected(&values, param, tensor)?;
                    if tensor.workspace {
                        expected.workspace = Some(workspace_bytes);
                        let rounded = expected.bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
                        workspace_bytes = workspace_bytes.saturating_add(rounded);
                    }
                    Some(expected)
                }
                ParamKind::Scalar(_) => None,
            });
        }
        let mut maps = Vec::with_capacity(recipe.maps.len());
        for number in 0..recipe.maps.len() {
            maps.push(mapped(&values, number, &mut tensors)?);
        }
        let mut attributes = [LaunchAttribute::dependent(); 2];
        if recipe.cluster > 1 {
            attributes[0] = LaunchAttribute::cluster(recipe.cluster);
        }
        let given = |param: &&Param| !matches!(&param.kind, ParamKind::Tensor(tensor) if tensor.workspace);
        Ok(Plan(Arc::new(Planned {
            ready: ready.clone(),
            sizes: sizes.into(),
            grid,
            size_words: size_words.into(),
            tensors: tensors.into(),
            maps: maps.into(),
            workspace_bytes,
            attributes,
            attribute_count: u32::from(recipe.cluster > 1),
            may_depend: recipe.waits && ready.module.gpu().capability() >= HOPPER,
            arguments: recipe.params.iter().filter(given).count(),
            clashes: clashes(recipe).into(),
            integers,
        })))
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.0.ready.recipe
    }

    /// The code, on its GPU.
    pub fn module(&self) -> &Module {
        &self.0.ready.module
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        self.0.ready.module.gpu()
    }

    /// The sizes, in the order of [`Recipe::sizes`].
    pub fn sizes(&self) -> &[i64] {
        &self.0.sizes
    }

    /// Blocks along x, y and z.
    pub fn grid(&self) -> [u32; 3] {
        self.0.grid
    }

    /// Bytes of the workspace that a launch needs, at a multiple of 256; 0 if it needs none.
    pub fn workspace_bytes(&self) -> u64 {
        self.0.workspace_bytes
    }

    /// The shape and the strides, in elements, of the tensor of a parameter at these sizes; `None` of a number.
    pub fn tensor(&self, param: usize) -> Option<(&[i64], &[i64])> {
        let expected = self.0.tensors.get(param)?.as_ref()?;
        Some((&expected.shape[..expected.rank], &expected.strides[..expected.rank]))
    }

    /// The number of tensor maps that are kept, of all tensors.
    pub fn tensor_maps(&self) -> usize {
        self.0.maps.iter().map(|mapped| mapped.known.len()).sum()
    }

    /// The bytes of the table of an array of tensors, which lie at these addresses. A launch takes their place in the GPU's memory, at a multiple of
    /// 128 bytes, as its argument for the parameter ([`Arg::table`](crate::Arg::table), [`Raw::Ptr`](crate::Raw::Ptr)).
    ///
    /// # Errors
    ///
    /// The parameter is no array, has another number of tensors, or is written and two are at one address; an address is no multiple of what the kernel relies
    /// on; the driver fails.
    pub fn table(&self, param: usize, addresses: &[u64]) -> Result<Vec<u8>, LaunchError> {
        let recipe = self.recipe();
        let kernel = || recipe.name.clone();
        let names = recipe.params.get(param).map_or("", |param| &param.name);
        let name = || names.to_string();
        let array = recipe.tensor(param as u32).filter(|tensor| tensor.array);
        let known = array.zip(self.0.tensors.get(param).and_then(Option::as_ref));
        let Some((tensor, expected)) = known else {
            let (expected, given) = ("no array", "an array of tensors");
            return Err(LaunchError::ArgumentKind { kernel: kernel(), param: name(), expected, given });
        };
        let count = usize::try_from(expected.shape[0]).unwrap_or(usize::MAX);
        if addresses.len() != count {
            let (param, given) = (name(), addresses.len());
            return Err(LaunchError::TensorCount { kernel: kernel(), param, expected: count, given });
        }
        let alignment = tensor.alignment;
        if let Some(pointer) = addresses.iter().find(|at| !at.is_multiple_of(u64::from(alignment))) {
            let (param, pointer) = (name(), *pointer);
            return Err(LaunchError::Alignment { kernel: kernel(), param, alignment, pointer });
        }
        if tensor.access == Access::Write {
            let mut first = HashMap::new();
            for (number, address) in addresses.iter().enumerate() {
                if let Some(other) = first.insert(*address, number) {
                    let (param, tensors) = (name(), [other, number]);
                    return Err(LaunchError::SharedResult { kernel: kernel(), param, tensors });
                }
            }
        }
        let mut bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
        for (map, place) in &expected.tables {
            bytes.resize(*place as usize, 0);
            for address in addresses {
                let encoded = self.encode(*map as usize, *address)?;
                bytes.extend(encoded.0.iter().flat_map(|word| word.to_le_bytes()));
            }
        }
        Ok(bytes)
    }

    /// Asks the driver for a tensor map.
    #[cold]
    pub(crate) fn encode(&self, map: usize, pointer: u64) -> Result<TensorMap, LaunchError> {
        let driver = self.0.ready.module.gpu().driver();
        let mapped = &self.0.maps[map];
        let name = &self.recipe().params[mapped.param as usize].name;
        mapped
            .shape
            .encode(driver, pointer)
            .map_err(driver.failed(format!("encoding the tensor map of `{name}`")))
    }

    /// Checks the bounds for these integer arguments, by parameter.
    #[cold]
    pub(crate) fn check_integers(&self, scalars: &[Option<i64>]) -> Result<(), LaunchError> {
        check_bounds(self.recipe(), &self.0.sizes, self.0.grid, scalars)
    }
}

impl Recipe {
    /// Checks that every integer of the kernel fits in 32 bits at these sizes, with these values of integer parameters (by parameter). A
    /// [`Plan`] does so once.
    ///
    /// # Errors
    ///
    /// A grid that is out of range, or the first integer that may not fit.
    pub fn check_bounds(&self, sizes: &[i64], integers: &[Option<i64>]) -> Result<(), LaunchError> {
        let values = Values { recipe: self, sizes };
        let mut grid = [1u32; 3];
        for (axis, formula) in self.grid.iter().enumerate().take(3) {
            let what = || format!("the grid's {} extent", ["x", "y", "z"][axis]);
            grid[axis] = values.of(formula, MOST_BLOCKS[axis], what)? as u32;
        }
        check_bounds(self, sizes, grid, integers)
    }
}

fn check_bounds(
    recipe: &Recipe,
    sizes: &[i64],
    grid: [u32; 3],
    scalars: &[Option<i64>],
) -> Result<(), LaunchError> {
    bounds::check(recipe, sizes, grid, scalars).map_err(|broken| {
        let (kernel, what) = (recipe.name.clone(), broken.what.to_string());
        match broken.fault {
            Fault::NoValue => LaunchError::NoValue { kernel, what },
            Fault::TooWide(value) => LaunchError::TooWide { kernel, what, value },
        }
    })
}

/// The sizes as the function takes them.
fn check_sizes(recipe: &Recipe, sizes: &[i64]) -> Result<Vec<u64>, LaunchError> {
    let kernel = || recipe.name.clone();
    if sizes.len() != recipe.sizes.len() {
        let names: Vec<&str> = recipe.sizes.iter().map(|size| size.name.as_str()).collect();
        return Err(LaunchError::SizeCount {
            kernel: kernel(),
            expected: recipe.sizes.len(),
            names: names.join(", "),
            given: sizes.len(),
        });
    }
    let word = |(size, value): (&crate::recipe::Size, &i64)| {
        let (name, value) = (size.name.clone(), *value);
        let most = size.most.min(i64::from(i32::MAX));
        if !(1..=most).contains(&value) {
            return Err(LaunchError::Size { kernel: kernel(), size: name, value, most });
        }
        if value % size.multiple != 0 {
            let multiple = size.multiple;
            return Err(LaunchError::BrokenAssumption { kernel: kernel(), size: name, multiple, value });
        }
        Ok(value.cast_unsigned())
    };
    recipe.sizes.iter().zip(sizes).map(word).collect()
}

/// Shape, strides and bytes of a tensor.
fn expected(values: &Values<'_>, param: &Param, tensor: &TensorParam) -> Result<Expected, LaunchError> {
    let mut expected = Expected {
        rank: tensor.shape.len(),
        shape: [1; MAX_RANK],
        strides: [1; MAX_RANK],
        bytes: 0,
        workspace: None,
        tables: Vec::new(),
        table_bytes: 0,
    };
    let mut last = Some(0i64);
    for (mode, (extent, stride)) in tensor.shape.iter().zip(&tensor.strides).enumerate() {
        let what = || format!("the extent of mode {mode} of `{}`", param.name);
        expected.shape[mode] = values.of(extent, values.recipe.most_extent, what)?;
        let what = || format!("the stride of mode {mode} of `{}`", param.name);
        expected.strides[mode] = values.of(stride, i64::MAX, what)?;
        let steps = if tensor.array && mode == 0 { 0 } else { expected.shape[mode] - 1 };
        last = last.and_then(|last| last.checked_add(steps.checked_mul(expected.strides[mode])?));
    }
    let elements = last.and_then(|last| last.checked_add(1)).ok_or_else(|| LaunchError::NoValue {
        kernel: values.name(),
        what: format!("the number of elements of `{}`", param.name),
    })?;
    expected.bytes = tensor.dtype.bytes_of(elements.unsigned_abs());
    if tensor.array {
        expected.table_bytes = (expected.shape[0].unsigned_abs() * 8).next_multiple_of(128);
    }
    Ok(expected)
}

/// A tensor map at these sizes.
fn mapped(
    values: &Values<'_>,
    number: usize,
    tensors: &mut [Option<Expected>],
) -> Result<Mapped, LaunchError> {
    let recipe = values.recipe;
    let map = &recipe.maps[number];
    let param = &recipe.params[map.param as usize];
    let what = |of: &str, dimension: usize| {
        format!("{of} of dimension {dimension} of the tensor map of `{}`", param.name)
    };
    let mut extents = Vec::with_capacity(map.tensor_extents.len());
    for (dimension, formula) in map.tensor_extents.iter().enumerate() {
        let extent = values.of(formula, recipe.most_extent, || what("the extent", dimension))?;
        extents.push(extent.unsigned_abs());
    }
    let bytes = i64::from(map.dtype.bits() / 8);
    let mut strides = Vec::with_capacity(map.tensor_strides.len());
    for (dimension, formula) in (1..).zip(&map.tensor_strides) {
        let most = (STRIDE_LIMIT - 1) / bytes;
        let elements = values.of(formula, most, || what("the stride", dimension))?;
        let multiple = MAP_ALIGNMENT / bytes;
        if elements % multiple != 0 {
            let (kernel, param) = (values.name(), param.name.clone());
            return Err(LaunchError::MapStride { kernel, param, elements, multiple });
        }
        strides.push((elements * bytes).unsigned_abs());
    }
    // A copy into what the map has and the tensor lacks would go astray.
    let rest = extents.iter().skip(1).zip(&strides);
    let last = rest.fold(extents[0] * bytes.unsigned_abs(), |sum, (extent, stride)| {
        sum.saturating_add((extent - 1).saturating_mul(*stride))
    });
    let array = recipe.tensor(map.param).is_some_and(|tensor| tensor.array);
    let inconsistent = || LaunchError::NoValue { kernel: values.name(), what: what("the shape", 0) };
    let expected = tensors.get_mut(map.param as usize).and_then(Option::as_mut).ok_or_else(inconsistent)?;
    if last > expected.bytes {
        return Err(LaunchError::OutOfRange {
            kernel: values.name(),
            what: format!("the number of bytes that the tensor map of `{}` reaches", param.name),
            value: i64::try_from(last).unwrap_or(i64::MAX),
            least: 1,
            most: i64::try_from(expected.bytes).unwrap_or(i64::MAX),
        });
    }
    if array {
        expected.tables.push((number as u32, expected.table_bytes));
        expected.table_bytes += expected.shape[0].unsigned_abs() * 128;
    }
    let shape = Shape::new(map, extents, strides).ok_or_else(inconsistent)?;
    Ok(Mapped { param: map.param, array, shape, known: Memo::new(if array { 0 } else { MAPS_KEPT }) })
}

/// Constant parameters with those that are written.
fn clashes(recipe: &Recipe) -> Vec<(usize, usize)> {
    let tensor = |number: usize| recipe.tensor(number as u32).filter(|tensor| !tensor.array);
    let all = 0..recipe.params.len();
    let constant = all.clone().filter(|n| tensor(*n).is_some_and(|t| t.constant));
    let written = |n: &usize| tensor(*n).is_some_and(|t| t.access == Access::Write);
    constant.flat_map(|constant| all.clone().filter(written).map(move |other| (constant, other))).collect()
}

impl Scalar {
    /// The words for it in messages.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Scalar::F32 => "an f32",
            Scalar::F64 => "an f64",
            Scalar::I32 => "an i32",
            Scalar::U32 => "a u32",
            Scalar::I64 => "an i64",
            Scalar::U64 => "a u64",
        }
    }
}
