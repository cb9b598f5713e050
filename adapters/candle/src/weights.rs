//! Linear layers whose weights are integers of 4 bits.

use candle_core::{DType, Error, Result, Tensor};
use tilewright_kernels::gemm_weights::StoredWeights;
use tilewright_launch::DType as Element;

use crate::apply::{Operator, apply, run};
use crate::host;
use crate::linear::Product;
use crate::operand::Operands;
use crate::plan::{Plan, Read, Write};

/// A linear layer without bias, `x · (scale ∘ (w − zero))ᵀ`, with weights `w[n, k]` of 4 bits that share scales in groups along k.
///
/// Weights that lie on a GPU are brought into the order in which kernels read them once, when the layer is made; that takes one of Hopper's (sm_90).
#[derive(Clone, Debug)]
pub struct LinearW4 {
    /// The weights, `[n, k / 2]` bytes of two each, the first in the lower half.
    rows: Tensor,
    /// The same in the order of the kernels.
    stored: Option<Tensor>,
    scales: Tensor,
    zeros: Option<Tensor>,
    group: usize,
}

impl LinearW4 {
    /// A layer of weights `rows[n, k / 2]` (u8: two weights each, the first in the lower half), with `scales[⌈k / group⌉, n]` of f16 or bf16. With `zeros`, of the shape and the type of the
    /// scales, weights are from 0 to 15, as of AWQ and GPTQ; without, they are from −8 to 7. A group is a power of two from 16 on.
    ///
    /// # Errors
    ///
    /// As of [`linear`](crate::linear).
    pub fn new(rows: &Tensor, scales: &Tensor, zeros: Option<&Tensor>, group: usize) -> Result<LinearW4> {
        if group < 16 || !group.is_power_of_two() {
            let message =
                format!("`group` of {} is a power of two from 16 on, and not {group}", Weights::NAME);
            return Err(Error::Msg(message).bt());
        }
        let signed = zeros.is_none();
        let repacked = rows.device().is_cuda();
        let stored = repacked.then(|| run(&Repack { signed, group }, &[rows])).transpose()?;
        let stored = stored.and_then(|stored| stored.into_iter().next());
        let layer =
            LinearW4 { rows: rows.clone(), stored, scales: scales.clone(), zeros: zeros.cloned(), group };
        Ok(layer)
    }

    /// The layer's result for `x[…, k]` of the scales' type. Gradients flow to `x`.
    ///
    /// # Errors
    ///
    /// As of [`linear`](crate::linear).
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [signed, stored] = [self.zeros.is_none(), self.stored.is_some()];
        let operator = Weights { signed, stored, group: self.group, layer: self.clone() };
        let w = self.stored.as_ref().unwrap_or(&self.rows);
        match &self.zeros {
            None => apply(operator, &[x, &self.scales, w]),
            Some(zeros) => apply(operator, &[x, &self.scales, w, zeros]),
        }
    }

    /// The weights as floats of the scales' type, `[n, k]`.
    ///
    /// # Errors
    ///
    /// Whatever candle refuses.
    pub fn dequantised(&self) -> Result<Tensor> {
        let (n, half) = self.rows.dims2()?;
        let k = 2 * half;
        let bytes = self.rows.to_dtype(DType::F32)?;
        let high = (&bytes / 16.0)?.floor()?;
        let low = (bytes - (&high * 16.0)?)?;
        let values = Tensor::stack(&[low, high], 2)?.reshape((n, k))?;
        // A scale, or a zero point, for each weight: `[groups, n]` becomes `[n, k]`.
        let each = |of_groups: &Tensor| -> Result<Tensor> {
            let columns = of_groups.to_dtype(DType::F32)?.t()?.contiguous()?.unsqueeze(2)?;
            let (n, groups, _) = columns.dims3()?;
            let all = columns.broadcast_as((n, groups, self.group))?.reshape((n, groups * self.group))?;
            all.narrow(1, 0, k)
        };
        let centred = match &self.zeros {
            Some(zeros) => (values - each(zeros)?)?,
            None => (&values - (values.ge(8.0)?.to_dtype(DType::F32)? * 16.0)?)?,
        };
        (centred * each(&self.scales)?)?.to_dtype(self.scales.dtype())
    }
}

/// The type of weights in kernels.
fn element(signed: bool) -> Element {
    if signed { Element::I4 } else { Element::U4 }
}

/// The order in which kernels read weights.
fn order(signed: bool, group: usize) -> StoredWeights {
    use tilewright_machine::DType;
    StoredWeights::new(if signed { DType::I4 } else { DType::U4 }, Some(group as i64))
}

/// The shape of stored weights in kernels.
fn stored_shape(order: &StoredWeights, [n, k]: [usize; 2]) -> [usize; 3] {
    let [columns, pieces, piece] =
        [order.columns(), order.pieces(), order.piece()].map(|number| number as usize);
    [n.div_ceil(StoredWeights::ROWS as usize), k.div_ceil(columns) * pieces, piece]
}

/// The product.
pub(crate) struct Weights {
    pub(crate) signed: bool,
    /// True of weights in the order of the kernels.
    pub(crate) stored: bool,
    pub(crate) group: usize,
    pub(crate) layer: LinearW4,
}

impl Operator for Weights {
    const NAME: &'static str = "tilewright linear of 4 bits";
    const OPERANDS: &'static [&'static str] = &["x", "scales", "w", "zeros"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let dtype = operands.float(0)?;
        operands.same_type(1, 0)?;
        operands.one_of(2, &[DType::U8])?;
        let ([m, k], [_, n]) = (operands.rows(0)?, operands.modes(1)?);
        let scales = [k.div_ceil(self.group), n];
        operands.extents(1, &scales)?;
        let order = order(self.signed, self.group);
        match self.stored {
            true => operands.extents(2, &[order.count([n, k]) / 2])?,
            false => operands.extents(2, &[n, k / 2])?,
        }
        if !k.is_multiple_of(2) {
            let error = Error::Msg(format!("{k} columns are no whole bytes of weights"));
            return Err(operands.refused(0, error, "has an odd number of columns"));
        }
        let mut reads = vec![
            Read::new("a", dtype, &[m, k]),
            Read::new("s", dtype, &scales),
            Read::of_type("w", element(self.signed), &stored_shape(&order, [n, k])),
        ];
        if !self.signed {
            operands.same_type(3, 0)?;
            operands.extents(3, &scales)?;
            reads.push(Read::new("z", dtype, &scales));
        }
        let mut shape = operands.dims(0).to_vec();
        if let Some(last) = shape.last_mut() {
            *last = n;
        }
        let plan = Plan::new("gemm_weights", reads, vec![Write::new("c", dtype, &[m, n], shape)]);
        Ok(plan.option("group", self.group))
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let [m, k] = [0, 1].map(|mode| plan.reads[0].shape[mode] as usize);
        let n = plan.reads[1].shape[1] as usize;
        let mut weights = nibbles(&operands[2]);
        for (row, weights) in weights.chunks_mut(k).enumerate() {
            for (column, weight) in weights.iter_mut().enumerate() {
                let at = column / self.group * n + row;
                let zero = match operands.get(3) {
                    Some(zeros) => zeros[at],
                    None if *weight >= 8.0 => 16.0,
                    None => 0.0,
                };
                *weight = (*weight - zero) * operands[1][at];
            }
        }
        vec![host::product(&operands[0], &weights, [m, n, k])]
    }

    fn gradients(
        &self,
        operands: &[&Tensor],
        _results: &[Tensor],
        grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let x = operands[0];
        let w = self.layer.dequantised()?;
        let (n, k) = w.dims2()?;
        let flat = grad.reshape((x.elem_count() / k, n))?;
        let dx = run(&Product { transposed: [false, true] }, &[&flat, &w])?.remove(0);
        Ok(vec![Some(dx.reshape(x.shape())?)])
    }
}

/// The weights of bytes, the lower half first.
fn nibbles(bytes: &[f64]) -> Vec<f64> {
    bytes.iter().flat_map(|byte| [(*byte as u8 & 15).into(), (*byte as u8 >> 4).into()]).collect()
}

/// Weights in rows, brought into the order of the kernels.
pub(crate) struct Repack {
    pub(crate) signed: bool,
    pub(crate) group: usize,
}

impl Operator for Repack {
    const NAME: &'static str = "tilewright repack of 4 bits";
    const OPERANDS: &'static [&'static str] = &["rows"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        operands.one_of(0, &[DType::U8])?;
        let [n, half] = operands.modes(0)?;
        let (k, order) = (2 * half, order(self.signed, self.group));
        let reads = vec![Read::of_type("x", element(self.signed), &[n, k])];
        let shape = stored_shape(&order, [n, k]);
        let as_read = Read::of_type("w", element(self.signed), &shape);
        let writes = vec![Write { as_read, dtype: DType::U8, shape: (order.count([n, k]) / 2).into() }];
        let plan = Plan::new("repack_weights", reads, writes);
        let word = if self.signed { "i4" } else { "u4" };
        Ok(plan.word("weights", word).option("group", self.group))
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let [n, k] = [0, 1].map(|mode| plan.reads[0].shape[mode] as usize);
        let stored = order(self.signed, self.group).pack(&nibbles(&operands[0]), [n, k], 0.0);
        vec![stored.chunks(2).map(|pair| pair[0] + 16.0 * pair.get(1).copied().unwrap_or(0.0)).collect()]
    }
}
