//! Recipes: what launches read of a kernel, as data that a program without the compiler follows.

use std::collections::{BTreeMap, HashSet};

use tilewright_launch as launch;
use tilewright_launch::{Formula, FormulaError, Item, Op, Recipe, RecipeError};
use tilewright_machine::{Arch, DType, SwizzleMode, SyncOp};
use tilewright_simt::FunctionParamKind;
use tilewright_simt::record::BUFFER_BYTES;
use tilewright_tile::interpret;
use tilewright_tile::{Expr, IntOp, ParamId, ParamKind, SymbolId, Verified};

use crate::{Kernel, MAX_EXTENT};

/// Bytes at a multiple of which tensors begin: what the widest accesses of a thread, of TMA and of bulk copies need.
const ALIGNMENT: u32 = 16;

/// A kernel of which there is no recipe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoRecipe {
    /// An expression is too large to be kept.
    #[error("{what}: {error}")]
    Formula {
        /// The words for the expression.
        what: String,
        /// The limit.
        error: FormulaError,
    },
    /// A number is beyond what launches follow.
    #[error(transparent)]
    Limit(#[from] RecipeError),
    /// The kernel's function does not take what its program says that a launch passes: an internal compiler error.
    #[error("the code of kernel `{kernel}` does not fit its program")]
    Inconsistent {
        /// The kernel.
        kernel: String,
    },
}

/// The type by its name there; both crates have a list, and a test compares them.
fn dtype(of: DType) -> Result<launch::DType, NoRecipe> {
    let unknown = || NoRecipe::Inconsistent { kernel: of.name().to_string() };
    launch::DType::named(of.name()).ok_or_else(unknown)
}

fn swizzle(mode: SwizzleMode) -> launch::Swizzle {
    match mode {
        SwizzleMode::None => launch::Swizzle::None,
        SwizzleMode::B32 => launch::Swizzle::B32,
        SwizzleMode::B64 => launch::Swizzle::B64,
        SwizzleMode::B128 => launch::Swizzle::B128,
        SwizzleMode::B128Atom32 => launch::Swizzle::B128Atom32,
    }
}

fn op(of: IntOp) -> Op {
    match of {
        IntOp::Add => Op::Add,
        IntOp::Sub => Op::Sub,
        IntOp::Mul => Op::Mul,
        IntOp::Div => Op::Div,
        IntOp::Rem => Op::Rem,
        IntOp::CeilDiv => Op::CeilDiv,
        IntOp::Min => Op::Min,
        IntOp::Max => Op::Max,
        IntOp::Eq => Op::Eq,
        IntOp::Ne => Op::Ne,
        IntOp::Lt => Op::Lt,
        IntOp::Le => Op::Le,
        IntOp::Gt => Op::Gt,
        IntOp::Ge => Op::Ge,
        IntOp::And => Op::And,
        IntOp::Or => Op::Or,
    }
}

/// Numbers of a program's sizes and counters in its recipe.
struct Names {
    sizes: BTreeMap<SymbolId, u32>,
    counters: BTreeMap<SymbolId, u32>,
}

impl Names {
    fn counter(&mut self, symbol: SymbolId) -> u32 {
        let next = self.counters.len() as u32;
        *self.counters.entry(symbol).or_insert(next)
    }

    fn push(&mut self, expr: &Expr, items: &mut Vec<Item>) {
        match expr {
            Expr::Int(value) => items.push(Item::Int(*value)),
            Expr::Symbol(symbol) => items.push(match self.sizes.get(symbol) {
                Some(size) => Item::Size(*size),
                None => Item::Counter(self.counter(*symbol)),
            }),
            Expr::Block(axis) => items.push(Item::Block(axis.index() as u32)),
            Expr::Scalar(param) => items.push(Item::Scalar(param.0)),
            Expr::Element(_, index) => {
                index.iter().for_each(|entry| self.push(entry, items));
                items.push(Item::Element(index.len() as u32));
            }
            Expr::Binary(of, a, b) => {
                self.push(a, items);
                self.push(b, items);
                items.push(Item::Op(op(*of)));
            }
        }
    }

    fn formula(&mut self, expr: &Expr, what: impl FnOnce() -> String) -> Result<Formula, NoRecipe> {
        let mut items = Vec::new();
        self.push(expr, &mut items);
        Formula::new(items).map_err(|error| NoRecipe::Formula { what: what(), error })
    }

    fn formulas(&mut self, exprs: &[Expr], what: impl Fn() -> String) -> Result<Vec<Formula>, NoRecipe> {
        exprs.iter().map(|expr| self.formula(expr, &what)).collect()
    }

    /// The list of bounds, without what is known to hold: literals, and what an earlier entry of the same body or of one around says.
    fn bounds(
        &mut self,
        list: &[interpret::Bound],
        known: &mut Vec<HashSet<(Formula, i64)>>,
    ) -> Result<Vec<launch::Bound>, NoRecipe> {
        let mut made = Vec::new();
        let mut at = 0;
        while let Some(bound) = list.get(at) {
            at += 1;
            match bound {
                interpret::Bound::Fits { what, expr, reach } => {
                    // A distance beyond 64 bits is as much too far as the largest of them.
                    let reach = i64::try_from(*reach).unwrap_or(if *reach < 0 { i64::MIN } else { i64::MAX });
                    let formula = self.formula(expr, || what.text.clone())?;
                    let fits = |value: Option<i64>| value.is_some_and(|value| i32::try_from(value).is_ok());
                    let literal = match formula.items() {
                        [Item::Int(value)] => fits(Some(*value)) && fits(value.checked_add(reach)),
                        _ => false,
                    };
                    let entry = (formula, reach);
                    if literal || known.iter().any(|known| known.contains(&entry)) {
                        continue;
                    }
                    let formula = entry.0.clone();
                    if let Some(known) = known.last_mut() {
                        known.insert(entry);
                    }
                    made.push(launch::Bound::Fits { what: what.text.clone(), formula, reach });
                }
                interpret::Bound::Range { what, counter, least, most, beyond, body } => {
                    let counter = self.counter(*counter);
                    for known in known.iter_mut() {
                        // What was known of other values of the counter is not known of these.
                        known.retain(|(formula, _)| !formula.items().contains(&Item::Counter(counter)));
                    }
                    let (least, most) = (
                        self.formula(least, || what.text.clone())?,
                        self.formula(most, || what.text.clone())?,
                    );
                    let inner = self.body(&list[at..at + body], known)?;
                    let (what, beyond, of_body) = (what.text.clone(), *beyond, inner.len() as u32);
                    made.push(launch::Bound::Range { what, counter, least, most, beyond, body: of_body });
                    made.extend(inner);
                    at += body;
                }
                interpret::Bound::When { what, condition, body } => {
                    let condition = self.formula(condition, || what.text.clone())?;
                    let inner = self.body(&list[at..at + body], known)?;
                    let (what, of_body) = (what.text.clone(), inner.len() as u32);
                    made.push(launch::Bound::When { what, condition, body: of_body });
                    made.extend(inner);
                    at += body;
                }
            }
        }
        Ok(made)
    }

    fn body(
        &mut self,
        list: &[interpret::Bound],
        known: &mut Vec<HashSet<(Formula, i64)>>,
    ) -> Result<Vec<launch::Bound>, NoRecipe> {
        known.push(HashSet::new());
        let made = self.bounds(list, known);
        known.pop();
        made
    }
}

/// A tensor parameter, or a number.
fn param(verified: &Verified, names: &mut Names, id: ParamId) -> Result<launch::Param, NoRecipe> {
    let row = &verified.program().params[id.0 as usize];
    let kind = match &row.kind {
        ParamKind::Tensor { shape, constant, array, .. } => {
            let what = || format!("the shape of `{}`", row.name);
            let shape = names.formulas(shape, what)?;
            let strides = names.formulas(verified.strides(id), what)?;
            let mut tensor = launch::TensorParam::new(dtype(row.dtype)?, shape, strides);
            if verified.outputs().contains(&id) {
                tensor.access = launch::Access::Write;
            }
            (tensor.constant, tensor.array, tensor.alignment) = (*constant, *array, ALIGNMENT);
            launch::ParamKind::Tensor(tensor)
        }
        ParamKind::Scalar { .. } => launch::ParamKind::Scalar(match row.dtype {
            DType::F32 => launch::Scalar::F32,
            DType::F64 => launch::Scalar::F64,
            DType::I64 => launch::Scalar::I64,
            DType::U64 => launch::Scalar::U64,
            DType::U32 => launch::Scalar::U32,
            _ => launch::Scalar::I32,
        }),
    };
    Ok(launch::Param::new(row.name.clone(), kind))
}

fn target(arch: Arch) -> launch::Target {
    let spec = arch.spec();
    launch::Target { name: spec.name.to_string(), capability: spec.capability, specific: spec.specific }
}

fn outline_with(verified: &Verified, arch: Arch) -> Result<(Recipe, Names), NoRecipe> {
    let program = verified.program();
    let sizes = program.sizes().zip(0..).map(|((id, ..), number)| (id, number)).collect();
    let mut names = Names { sizes, counters: BTreeMap::new() };
    let mut recipe = Recipe::new(program.name.clone(), program.name.clone(), target(arch));
    recipe.sizes = program
        .sizes()
        .map(|(_, row, default)| launch::Size::new(row.name.clone(), default, MAX_EXTENT))
        .collect();
    recipe.most_extent = MAX_EXTENT;
    recipe.cluster = verified.cluster();
    recipe.grid = names.formulas(&program.grid, || "the grid".to_string())?;
    for id in (0..program.params.len() as u32).map(ParamId) {
        recipe.params.push(param(verified, &mut names, id)?);
    }
    let bounds = interpret::bounds(verified);
    recipe.bounds = names.body(&bounds, &mut Vec::new())?;
    Ok((recipe, names))
}

/// The parts of a recipe that a program has before it is compiled: sizes, parameters, grid, bounds.
///
/// # Errors
///
/// [`NoRecipe`] of a program that is too large for one.
pub fn outline(verified: &Verified, arch: Arch) -> Result<Recipe, NoRecipe> {
    outline_with(verified, arch).map(|(recipe, _)| recipe)
}

impl Kernel {
    /// Everything that launches read of the kernel, as data: what `tilewright-launch` follows with [`Kernel::ptx`], without the compiler.
    ///
    /// ```
    /// use tilewright_compiler::{Options, compile};
    /// let program = tilewright_tile::parse(
    ///     "size n = 1024
    ///      kernel double(x: f32[n], y: f32[n]) grid(ceil_div(n, 128)) threads(128) {
    ///          gx = global_view(x[block.x * 128 :], (128) : (e0))
    ///          gy = global_view(y[block.x * 128 :], (128) : (e0))
    ///          r = register_tensor(f32, [128])
    ///          copy(gx, r)
    ///          s = r + r
    ///          copy(s, gy)
    ///      }",
    /// )?;
    /// let kernel = compile(&program, &Options::new(tilewright_machine::Arch::SM_80))?;
    /// let recipe = kernel.recipe()?;
    /// assert_eq!((recipe.entry.as_str(), recipe.threads), ("double", 128));
    /// assert_eq!(recipe.grid[0].value(&[300]), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NoRecipe`] of a kernel that is beyond what launches follow.
    pub fn recipe(&self) -> Result<Recipe, NoRecipe> {
        let function = &self.function;
        let (mut recipe, mut names) = outline_with(&self.verified, function.arch)?;
        let inconsistent = || NoRecipe::Inconsistent { kernel: self.program().name.clone() };
        recipe.entry = function.name.clone();
        (recipe.threads, recipe.shared_bytes) = (function.threads, function.shared_bytes);
        recipe.cluster = function.cluster.max(1);
        recipe.records = self.recording.as_ref().map(|_| BUFFER_BYTES as u64);
        function.visit(&mut |inst| {
            recipe.waits |= inst.op == tilewright_simt::Op::Sync(SyncOp::DependencyWait);
            recipe.resident |= matches!(inst.op, tilewright_simt::Op::Await { .. });
        });
        for size in &mut recipe.sizes {
            let assumed = self.assumptions.iter().find(|assumption| assumption.size == size.name);
            size.multiple = assumed.map_or(1, |assumption| assumption.multiple);
        }
        for (map, tensor) in self.maps.iter().zip(&function.tensor_maps) {
            let what = || format!("a tensor map of `{}`", tensor.name);
            let (box_shape, extents) = (&tensor.shape, names.formulas(&map.extents, what)?);
            let strides = names.formulas(&map.strides, what)?;
            let of = dtype(box_shape.dtype)?;
            let mut made = launch::Map::new(map.param.0, of, box_shape.extents.clone(), extents, strides);
            made.steps.clone_from(&box_shape.steps);
            made.swizzle = swizzle(box_shape.swizzle);
            made.corners = box_shape.corners.as_ref().map(|corners| launch::Corners {
                lower: corners.lower.clone(),
                upper: corners.upper.clone(),
            });
            recipe.maps.push(made);
        }
        let params = recipe.params.iter().zip(0..).map(|(param, number)| match param.kind {
            launch::ParamKind::Scalar(_) => launch::Passed::Scalar(number),
            _ => launch::Passed::Tensor(number),
        });
        let sizes = (0..recipe.sizes.len() as u32).map(launch::Passed::Size);
        let maps = (0..recipe.maps.len() as u32).map(launch::Passed::Map);
        let passed: Vec<launch::Passed> = params.chain(sizes).chain(maps).collect();
        let kinds = passed.iter().map(|passed| self.kind_of(passed));
        if !kinds.eq(function.params.iter().map(|param| Some(param.kind))) {
            return Err(inconsistent());
        }
        recipe.passed = passed;
        recipe.passed.extend(self.recording.iter().map(|_| launch::Passed::Records));
        recipe.check()?;
        Ok(recipe)
    }

    /// The kind of the function's parameter that a launch passes so.
    fn kind_of(&self, passed: &launch::Passed) -> Option<FunctionParamKind> {
        let row = |number: u32| self.program().params.get(number as usize);
        Some(match *passed {
            launch::Passed::Tensor(number) if row(number)?.is_array() => FunctionParamKind::Pointers,
            launch::Passed::Tensor(_) => FunctionParamKind::Pointer,
            launch::Passed::Scalar(number) => FunctionParamKind::number(row(number)?.dtype),
            launch::Passed::Size(_) => FunctionParamKind::I32,
            launch::Passed::Map(map) if self.maps.get(map as usize)?.array => {
                FunctionParamKind::TensorMaps(map)
            }
            launch::Passed::Map(map) => FunctionParamKind::TensorMap(map),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use tilewright_machine::{tensor_map_l2_promotion, tensor_map_type};

    use super::*;

    #[test]
    fn the_launch_crate_has_the_types_and_the_numbers_of_the_machine() {
        assert_eq!(launch::DType::ALL.len(), DType::ALL.len());
        for of in DType::ALL {
            let there = dtype(of).unwrap();
            assert_eq!((there.bits(), there.name()), (of.bits(), of.name()));
            assert_eq!(there.map_code().map(i32::unsigned_abs), tensor_map_type(of), "{of}");
        }
        for mode in SwizzleMode::ALL.into_iter().chain([SwizzleMode::B128Atom32]) {
            assert_eq!(mode.tensor_map_code(), swizzle(mode).map_code().unsigned_abs());
        }
        for strides in [&[][..], &[8192, 256], &[8192, 128], &[8208], &[512, 256], &[512, 128]] {
            assert_eq!(launch::l2_promotion(strides).unsigned_abs(), tensor_map_l2_promotion(strides));
        }
    }
}
