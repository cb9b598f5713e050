//! Values of a launch's sizes in a kernel: its grid, and the shapes of its tensors.

use std::collections::BTreeMap;

use super::error::InterpretError;
use super::executable::Executable;
use super::quote::Quote;
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::printer::expr_text;
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
            let name = Quote::new(name, program.size_span(id));
            return Err(InterpretError::BadSize { name, value });
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

/// The value of an expression at these sizes, from 1 to `most`.
fn value(
    expr: &Expr,
    values: &[Option<i64>],
    most: i64,
    what: impl Fn() -> Quote,
) -> Result<i64, InterpretError> {
    match expr.eval(&Sizes(values)) {
        None => Err(InterpretError::NoValue { what: what() }),
        Some(value) if !(1..=most).contains(&value) => {
            Err(InterpretError::OutOfRange { what: what(), value, most, help: None })
        }
        Some(value) => Ok(value),
    }
}

/// Blocks that a launch has at most along x, y and z (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
const MOST_BLOCKS: [i64; 3] = [0x7fff_ffff, 65535, 65535];

const AXES: [&str; 3] = ["x", "y", "z"];

/// An extent of the grid as messages name it.
pub(super) fn extent_of_grid(program: &impl Executable, axis: usize) -> Quote {
    Quote::new(format!("the grid's {} extent", AXES[axis.min(2)]), program.launch_spans()[0])
}

/// The number of blocks along x, y and z; 1 where the kernel's grid has no such dimension.
pub fn grid(program: &impl Executable, sizes: &BTreeMap<String, i64>) -> Result<[u32; 3], InterpretError> {
    let values = symbol_values(program, sizes)?;
    let mut grid = [1u32; 3];
    for (i, expr) in program.grid().iter().enumerate().take(3) {
        let extent = value(expr, &values, MOST_BLOCKS[i], || extent_of_grid(program, i));
        grid[i] = extent.map_err(|error| with_help(error, program, i, &values))? as u32;
    }
    let cluster = program.cluster();
    if grid[0] % cluster != 0 {
        return Err(part_of_cluster(program, grid[0], cluster));
    }
    Ok(grid)
}

/// The refusal of a grid that is not made of whole clusters.
fn part_of_cluster(program: &impl Executable, blocks: u32, cluster: u32) -> InterpretError {
    let [grid_span, cluster_span] = program.launch_spans();
    let (extent, of) = match program.written() {
        Some(written) => {
            let text = |expr: Option<&Expr>| expr.map_or(String::new(), |expr| expr_text(written, expr));
            let extent = |extent| match text(Some(extent)) {
                sum if written.cluster.len() > 1 && sum.contains(' ') => format!("({sum})"),
                extent => extent,
            };
            let extents: Vec<String> = written.cluster.iter().map(extent).collect();
            (text(written.grid.first()), extents.join(" * "))
        }
        None => {
            let extent = program.grid().first().map(|expr| expr_text(program.names(), expr));
            (extent.unwrap_or_default(), cluster.to_string())
        }
    };
    let (extent, of) = (Quote::new(extent, grid_span), Quote::new(of, cluster_span));
    InterpretError::PartOfCluster { blocks, cluster, extent, of }
}

/// The refusal of an extent of the grid, with the remedy.
fn with_help(
    error: InterpretError,
    program: &impl Executable,
    axis: usize,
    values: &[Option<i64>],
) -> InterpretError {
    let InterpretError::OutOfRange { what, value, most, .. } = error else { return error };
    let text = |expr: &Expr| match program.written() {
        Some(written) => expr_text(written, expr),
        None => expr_text(program.names(), expr),
    };
    let grid: &[Expr] = program.written().map_or(program.grid(), |written| &written.grid);
    let help = if value < 1 {
        let extent = grid.get(axis).map_or(String::new(), text);
        format!(
            "each extent is at least 1: an extent that rounds up, as `ceil_div` does, or `max({extent}, 1)`"
        )
    } else if axis > 0 {
        let extents = [grid.first(), grid.get(axis)].map(|expr| expr.map_or(String::new(), text));
        let fits = program.grid().first().and_then(|expr| expr.eval(&Sizes(values)));
        let letter = AXES[axis.min(2)];
        match (extents, fits.is_some_and(|x| x <= most)) {
            ([x, y], true) => {
                let mut exchanged = vec![y, x.clone()];
                exchanged.extend(grid.iter().skip(2).map(text));
                if axis == 2 {
                    exchanged = vec![exchanged[0].clone(), grid.get(1).map_or(String::new(), text), x];
                }
                while exchanged.len() > 1 && exchanged.last().is_some_and(|extent| extent == "1") {
                    exchanged.pop();
                }
                format!(
                    "only x takes so many: exchange the two, `grid({})`, and `block.x` with `block.{letter}`",
                    exchanged.join(", ")
                )
            }
            _ => {
                format!("only x takes so many: let each block do several of those along {letter}, in a loop")
            }
        }
    } else {
        "let each block do several tiles, in a loop".to_string()
    };
    InterpretError::OutOfRange { what, value, most, help: Some(help) }
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
            .map(|e| {
                value(e, &values, i64::MAX, || Quote::new(format!("an extent of `{}`", row.name), row.span))
            })
            .collect(),
        ParamKind::Scalar { .. } => Ok(Vec::new()),
    }
}

/// The number of tensors of an array; `None` of any other parameter.
pub fn tensors_of_array(
    program: &impl Executable,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<Option<usize>, InterpretError> {
    if !program.params()[param.0 as usize].is_array() {
        return Ok(None);
    }
    let shape = tensor_shape(program, param, sizes)?;
    Ok(shape.first().and_then(|tensors| usize::try_from(*tensors).ok()))
}

/// The strides of a tensor parameter, in elements; empty for a scalar.
pub fn tensor_strides(
    program: &impl Executable,
    param: ParamId,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<i64>, InterpretError> {
    let values = symbol_values(program, sizes)?;
    let row = &program.params()[param.0 as usize];
    let what = || Quote::new(format!("a stride of `{}`", row.name), row.span);
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
        what: {
            let row = &program.params()[param.0 as usize];
            Quote::new(format!("the number of elements of `{}`", row.name), row.span)
        },
    })
}
