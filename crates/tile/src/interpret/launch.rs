//! Values of a launch's sizes in a kernel: its grid, and the shapes of its tensors.

use std::collections::BTreeMap;

use super::error::InterpretError;
use super::executable::Executable;
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::program::{ParamId, ParamKind};

/// The values of sizes (and of open loops' counters), by symbol.
pub(super) struct Sizes<'a>(pub(super) &'a [Option<i64>]);

impl Scope for Sizes<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.0.get(id.0 as usize).copied().flatten()
    }

    fn block(&self, _: Axis) -> Option<i64> {
        None
    }
}

/// The value of every size; counters have none.
pub(super) fn symbol_values(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<Option<i64>>, InterpretError> {
    let rows = program.sizes();
    if let Some(name) = sizes.keys().find(|name| rows.iter().all(|(_, known, _)| known != name)) {
        let known: Vec<&str> = rows.iter().map(|(_, name, _)| *name).collect();
        let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        return Err(InterpretError::UnknownSize { name: name.clone(), known });
    }
    let mut values = vec![None; program.symbols()];
    for (id, name, default) in rows {
        let value = sizes.get(name).copied().unwrap_or(default);
        if value < 1 {
            return Err(InterpretError::BadSize { name: name.to_string(), value });
        }
        values[id.0 as usize] = Some(value);
    }
    Ok(values)
}

/// The value of every size, in the order of declaration: what a launch passes after the parameters.
pub fn size_values(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<i64>, InterpretError> {
    let values = symbol_values(program, sizes)?;
    Ok(program.sizes().into_iter().filter_map(|(id, _, _)| values[id.0 as usize]).collect())
}

fn value(
    expr: &Expr,
    values: &[Option<i64>],
    most: i64,
    what: impl Fn() -> String,
) -> Result<i64, InterpretError> {
    match expr.eval(&Sizes(values)) {
        None => Err(InterpretError::NoValue { what: what() }),
        Some(value) if !(1..=most).contains(&value) => {
            Err(InterpretError::OutOfRange { what: what(), value, most })
        }
        Some(value) => Ok(value),
    }
}

/// The number of blocks along x, y and z; 1 where the kernel's grid has no such dimension.
pub fn grid(program: &impl Executable, sizes: &BTreeMap<String, i64>) -> Result<[u32; 3], InterpretError> {
    let values = symbol_values(program, sizes)?;
    let mut grid = [1u32; 3];
    let most = [0x7fff_ffff, 65535, 65535];
    for (i, expr) in program.grid().iter().enumerate().take(3) {
        let what = || format!("the grid's {} extent", ["x", "y", "z"][i]);
        grid[i] = value(expr, &values, most[i], what)? as u32;
    }
    let cluster = program.cluster();
    if grid[0] % cluster != 0 {
        return Err(InterpretError::PartOfCluster { blocks: grid[0], cluster });
    }
    Ok(grid)
}

/// The shape of a tensor parameter; empty for a scalar.
pub fn tensor_shape(
    program: &impl Executable,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<i64>, InterpretError> {
    let values = symbol_values(program, sizes)?;
    let row = &program.params()[param.0 as usize];
    match &row.kind {
        ParamKind::Tensor { shape, .. } => shape
            .iter()
            .map(|e| value(e, &values, i64::MAX, || format!("an extent of `{}`", row.name)))
            .collect(),
        ParamKind::Scalar { .. } => Ok(Vec::new()),
    }
}

/// The strides of a tensor parameter, in elements; empty for a scalar.
pub fn tensor_strides(
    program: &impl Executable,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<i64>, InterpretError> {
    let values = symbol_values(program, sizes)?;
    let row = &program.params()[param.0 as usize];
    let what = || format!("a stride of `{}`", row.name);
    program.strides(param).iter().map(|e| value(e, &values, i64::MAX, what)).collect()
}

/// The number of elements that a tensor parameter spans: one more than the offset of its last element. 1 for a scalar.
pub fn tensor_len(
    program: &impl Executable,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<usize, InterpretError> {
    let shape = tensor_shape(program, param, sizes)?;
    let strides = tensor_strides(program, param, sizes)?;
    let last =
        shape.iter().zip(&strides).try_fold(0i64, |sum, (n, d)| sum.checked_add((n - 1).checked_mul(*d)?));
    last.and_then(|last| usize::try_from(last.checked_add(1)?).ok()).ok_or_else(|| InterpretError::NoValue {
        what: format!("the number of elements of `{}`", program.params()[param.0 as usize].name),
    })
}
