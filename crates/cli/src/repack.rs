//! `tilewright repack`: weights of checkpoints in the order in which `gemm_weights` reads them.

use std::process::ExitCode;

use tilewright::arrays::{Array, ArrayError, Place, Written};
use tilewright::kernels::gemm_weights::{Checkpoint, StoredWeights, WeightsConfig};
use tilewright::machine::{DType, Elements};

use crate::args::{CheckpointFormat, RepackArgs};
use crate::messages::{Failure, error, print};

/// Writes weights, and what there is of scales and zero points, to a file.
///
/// # Errors
///
/// Files that cannot be read or written, tensors that do not go together, and checkpoints whose columns are in the order of activations.
pub fn repack(args: &RepackArgs) -> Result<ExitCode, Failure> {
    let rows = match args.format {
        CheckpointFormat::Rows => rows(args)?,
        CheckpointFormat::Awq | CheckpointFormat::Gptq => checkpoint(args)?,
    };
    let Rows { weights, sizes: [n, k], dtype, others } = rows;
    let group = args.group.map(|group| group as i64);
    let formats = WeightsConfig { weights: dtype, group, ..WeightsConfig::default() };
    formats.check_formats().map_err(Failure::usage)?;
    let stored = StoredWeights::new(dtype, group);
    let packed = stored.pack(&weights, [n, k], 0.0);
    let columns = stored.columns() as usize;
    let shape = [
        n.div_ceil(StoredWeights::ROWS as usize) as i64,
        k.div_ceil(columns) as i64 * stored.pieces(),
        stored.piece(),
    ];
    let packed = Elements::rounded(dtype, packed);
    let mut tensors = vec![Written { name: "w", dtype, shape: &shape, values: &packed }];
    tensors.extend(others.iter().map(|(name, tensor)| Written {
        name,
        dtype: tensor.element.dtype(),
        shape: &tensor.shape,
        values: &tensor.values,
    }));
    Array::write(&args.output, &tensors).map_err(failure)?;
    let names: Vec<&str> = tensors.iter().map(|tensor| tensor.name).collect();
    print(&format!(
        "{n} rows of {k} weights of {dtype}, in units of {} × {columns}: {} in {}\n",
        StoredWeights::ROWS,
        names.join(", "),
        args.output.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Weights as rows, and the tensors that go with them.
struct Rows {
    weights: Vec<f64>,
    sizes: [usize; 2],
    dtype: DType,
    others: Vec<(&'static str, Vector)>,
}

/// A tensor as it is written.
struct Vector {
    element: &'static tilewright::arrays::Element,
    shape: Vec<i64>,
    values: Elements,
}

impl From<Array> for Vector {
    fn from(array: Array) -> Self {
        let shape = array.shape.iter().map(|extent| *extent as i64).collect();
        Vector { element: array.element, shape, values: array.values }
    }
}

fn failure(problem: ArrayError) -> Failure {
    Failure::program(error(problem))
}

/// A tensor of the layer, or the file's only one.
fn tensor(args: &RepackArgs, name: &str) -> Result<Array, ArrayError> {
    let name = match &args.layer {
        Some(layer) if name.is_empty() => Some(layer.clone()),
        Some(layer) => Some(format!("{layer}.{name}")),
        None => (!name.is_empty()).then(|| name.to_string()),
    };
    Array::read(&Place { path: args.file.clone(), name })
}

/// A matrix of elements of their own.
fn rows(args: &RepackArgs) -> Result<Rows, Failure> {
    let array = tensor(args, "").map_err(failure)?;
    let [n, k] = array.shape[..] else {
        let text = format!("weights are a matrix [n, k], and these have shape {:?}", array.shape);
        return Err(Failure::program(error(text)));
    };
    let elements = array.for_tensor(args.weights, &[n as i64, k as i64]).map_err(failure)?;
    Ok(Rows { weights: elements.floats(), sizes: [n, k], dtype: args.weights, others: Vec::new() })
}

/// A layer of AWQ or GPTQ.
fn checkpoint(args: &RepackArgs) -> Result<Rows, Failure> {
    let words = |array: &Array| -> Vec<u32> {
        array.values.floats().iter().map(|word| *word as i64 as u32).collect()
    };
    let read = |name: &str| tensor(args, name).map_err(failure);
    let (weights, zeros, scales) = (read("qweight")?, read("qzeros")?, read("scales")?);
    let ([across, down], [groups, n]) = (two(&weights, "qweight")?, two(&scales, "scales")?);
    let awq = args.format == CheckpointFormat::Awq;
    let k = if awq { across } else { across * 8 };
    let columns = if awq { down * 8 } else { down };
    let group = args.group.unwrap_or(k);
    if columns != n || groups * group != k {
        let text = format!(
            "`scales` of shape [{groups}, {n}] are not those of {columns} rows of {k} weights in groups of {group}: say --group"
        );
        return Err(Failure::program(error(text)));
    }
    let of_columns = match tensor(args, "g_idx") {
        Ok(array) => Some(array.values.floats().iter().map(|group| *group as i32).collect::<Vec<_>>()),
        Err(ArrayError::NoTensor { .. }) => None,
        Err(problem) => return Err(failure(problem)),
    };
    let (weights, zeros) = (words(&weights), words(&zeros));
    let checkpoint = match awq {
        true => Checkpoint::Awq { weights: &weights, zeros: &zeros },
        false => Checkpoint::Gptq { weights: &weights, zeros: &zeros, groups: of_columns.as_deref() },
    };
    let read = checkpoint.read([n, k], group).map_err(|problem| Failure::program(error(problem)))?;
    let numbers = |codes: &[u8]| codes.iter().map(|code| f64::from(*code)).collect::<Vec<f64>>();
    let zeros = Vector {
        element: scales.element,
        shape: vec![groups as i64, n as i64],
        values: Elements::rounded(scales.element.dtype(), numbers(&read.zeros)),
    };
    let weights = numbers(&read.weights);
    Ok(Rows { weights, sizes: [n, k], dtype: DType::U4, others: vec![("s", scales.into()), ("z", zeros)] })
}

/// The extents of a matrix.
fn two(array: &Array, name: &str) -> Result<[usize; 2], Failure> {
    match array.shape[..] {
        [rows, columns] => Ok([rows, columns]),
        _ => Err(Failure::program(error(format!("`{name}` is no matrix: it has shape {:?}", array.shape)))),
    }
}
