//! Weights of a few bits: the order in which kernels read them, and checkpoints of quantisers.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tilewright::kernels::gemm_weights::{Checkpoint, StoredWeights};
use tilewright::machine::DType;

use crate::error::{Class, said};

/// The extents of the weights of `n` rows of `k` in the order of the kernels: elements of the type `dtype`, of which `group` neighbours share a scale.
#[pyfunction]
pub fn stored_weights(py: Python<'_>, dtype: &str, group: i64, n: i64, k: i64) -> PyResult<(i64, i64, i64)> {
    let known = dtype.parse().ok().filter(|dtype: &DType| StoredWeights::TYPES.contains(dtype));
    let Some(dtype) = known else {
        return Err(said(py, Class::Launch, format!("`{dtype}` is no type of stored weights")));
    };
    if group < 16 || group.count_ones() != 1 {
        let message = format!("`group` is a power of two from 16 on, and not {group}");
        return Err(said(py, Class::Launch, message));
    }
    let order = StoredWeights::new(dtype, Some(group));
    let units = (n.max(0) as u64).div_ceil(StoredWeights::ROWS as u64) as i64;
    let columns = (k.max(0) as u64).div_ceil(order.columns() as u64) as i64;
    Ok((units, columns * order.pieces(), order.piece()))
}

/// The words of a tensor of 32 bits.
fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// The weights of a checkpoint by `awq` or `gptq`: rows `[n, k / 2]` of two weights a byte, the first in the lower half, and zero points `[k / group, n]` of a byte each.
/// Tensors are given as their bytes.
#[pyfunction]
#[pyo3(signature = (form, shape, group, weights, zeros, groups=None))]
pub fn read_checkpoint<'py>(
    py: Python<'py>,
    form: &str,
    shape: [usize; 2],
    group: usize,
    weights: &[u8],
    zeros: &[u8],
    groups: Option<&[u8]>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (weights, zeros) = (words(weights), words(zeros));
    let groups: Option<Vec<i32>> =
        groups.map(|bytes| words(bytes).into_iter().map(u32::cast_signed).collect());
    let checkpoint = match form {
        "awq" => Checkpoint::Awq { weights: &weights, zeros: &zeros },
        "gptq" => Checkpoint::Gptq { weights: &weights, zeros: &zeros, groups: groups.as_deref() },
        other => {
            return Err(said(
                py,
                Class::Launch,
                format!("`{other}` is no form of checkpoints; awq and gptq are"),
            ));
        }
    };
    let read = py.detach(|| checkpoint.read(shape, group)).map_err(|error| said(py, Class::Launch, error))?;
    let rows: Vec<u8> = read.weights.chunks(2).map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4).collect();
    Ok((PyBytes::new(py, &rows), PyBytes::new(py, &read.zeros)))
}
