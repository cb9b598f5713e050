//! Values of a launch's sizes in a kernel: its grid, and the shapes of its tensors.

use std::collections::BTreeMap;

use super::InterpretError;
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::program::{ParamId, ParamKind, SymbolKind};
use crate::verified::Verified;

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
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<Option<i64>>, InterpretError> {
    let program = v.program();
    let known: Vec<&str> = program.sizes().map(|(_, s, _)| s.name.as_str()).collect();
    if let Some(name) = sizes.keys().find(|name| !known.contains(&name.as_str())) {
        let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        return Err(InterpretError::UnknownSize { name: name.clone(), known });
    }
    program
        .symbols
        .iter()
        .map(|s| match &s.kind {
            SymbolKind::Size(default) => {
                let value = sizes.get(&s.name).copied().unwrap_or(*default);
                if value < 1 {
                    return Err(InterpretError::BadSize { name: s.name.clone(), value });
                }
                Ok(Some(value))
            }
            SymbolKind::Constant(value) => Ok(value.as_int()),
            SymbolKind::Counter | SymbolKind::Unrolled => Ok(None),
        })
        .collect()
}

/// The value of every size, in the order of declaration: what a launch passes after the parameters.
pub fn size_values(v: &Verified, sizes: &BTreeMap<String, i64>) -> Result<Vec<i64>, InterpretError> {
    let values = symbol_values(v, sizes)?;
    Ok(v.program().sizes().filter_map(|(id, _, _)| values[id.0 as usize]).collect())
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
pub fn grid(v: &Verified, sizes: &BTreeMap<String, i64>) -> Result<[u32; 3], InterpretError> {
    let values = symbol_values(v, sizes)?;
    let mut grid = [1u32; 3];
    let most = [0x7fff_ffff, 65535, 65535];
    for (i, expr) in v.program().grid.iter().enumerate().take(3) {
        let what = || format!("the grid's {} extent", ["x", "y", "z"][i]);
        grid[i] = value(expr, &values, most[i], what)? as u32;
    }
    let cluster = v.cluster();
    if grid[0] % cluster != 0 {
        return Err(InterpretError::PartOfCluster { blocks: grid[0], cluster });
    }
    Ok(grid)
}

/// The shape of a tensor parameter; empty for a scalar.
pub fn tensor_shape(
    v: &Verified,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<i64>, InterpretError> {
    let values = symbol_values(v, sizes)?;
    let row = v.program().param(param);
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
    v: &Verified,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<i64>, InterpretError> {
    let values = symbol_values(v, sizes)?;
    let row = v.program().param(param);
    let what = || format!("a stride of `{}`", row.name);
    v.strides(param).iter().map(|e| value(e, &values, i64::MAX, what)).collect()
}

/// The number of elements that a tensor parameter spans: one more than the offset of its last element. 1 for a scalar.
pub fn tensor_len(
    v: &Verified,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<usize, InterpretError> {
    let shape = tensor_shape(v, param, sizes)?;
    let strides = tensor_strides(v, param, sizes)?;
    let last =
        shape.iter().zip(&strides).try_fold(0i64, |sum, (n, d)| sum.checked_add((n - 1).checked_mul(*d)?));
    last.and_then(|last| usize::try_from(last.checked_add(1)?).ok()).ok_or_else(|| InterpretError::NoValue {
        what: format!("the number of elements of `{}`", v.program().param(param).name),
    })
}
