//! Norms and softmax of rows.

use candle_core::{D, DType, Result, Tensor};

use crate::apply::{Operator, apply, run};
use crate::host;
use crate::operand::Operands;
use crate::plan::{Plan, Read, Write};

/// The type of sums over rows.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// A norm of rows: `x · s · w`, or `(x − mean) · s · w + b`.
pub(crate) struct Norm<const CENTRED: bool> {
    pub(crate) eps: f64,
}

/// The operands' types and shapes: rows, and vectors of their length.
fn rows<const CENTRED: bool>(operands: &Operands<'_>, vectors: usize) -> Result<(DType, [usize; 2])> {
    let dtype = operands.float(0)?;
    operands.alike(1)?;
    let [m, n] = operands.rows(0)?;
    for at in 1..=vectors {
        operands.extents(at, &[n])?;
    }
    Ok((dtype, [m, n]))
}

impl<const CENTRED: bool> Operator for Norm<CENTRED> {
    const NAME: &'static str = if CENTRED { "tilewright layer_norm" } else { "tilewright rms_norm" };
    const OPERANDS: &'static [&'static str] = &["x", "w", "b"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let vectors = if CENTRED { 2 } else { 1 };
        let (dtype, [m, n]) = rows::<CENTRED>(operands, vectors)?;
        let mut reads = vec![Read::new("x", dtype, &[m, n]), Read::new("w", dtype, &[n])];
        if CENTRED {
            reads.push(Read::new("b", dtype, &[n]));
        }
        let writes = vec![Write::new("y", dtype, &[m, n], operands.shape(0))];
        let operator = if CENTRED { "layernorm" } else { "rmsnorm" };
        Ok(Plan::new(operator, reads, writes).number("eps", self.eps))
    }

    fn host(&self, _plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        vec![host::norm(&operands[0], &operands[1], operands.get(2).map(Vec::as_slice), self.eps)]
    }

    fn gradients(
        &self,
        operands: &[&Tensor],
        _results: &[Tensor],
        grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let (x, w) = (operands[0], operands[1]);
        let results = run(&NormBackward::<CENTRED> { eps: self.eps }, &[x, w, grad])?;
        results.into_iter().map(|gradient| gradient.to_dtype(x.dtype()).map(Some)).collect()
    }
}

/// The gradients of a norm's operands, from that of its result.
pub(crate) struct NormBackward<const CENTRED: bool> {
    pub(crate) eps: f64,
}

impl<const CENTRED: bool> Operator for NormBackward<CENTRED> {
    const NAME: &'static str =
        if CENTRED { "tilewright layer_norm backward" } else { "tilewright rms_norm backward" };
    const OPERANDS: &'static [&'static str] = &["x", "w", "dy"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let (dtype, [m, n]) = rows::<CENTRED>(operands, 1)?;
        operands.extents(2, operands.dims(0))?;
        let rows = |name| Read::new(name, dtype, &[m, n]);
        let reads = vec![rows("x"), Read::new("w", dtype, &[n]), rows("dy")];
        let vector = |name| Write::new(name, wide(dtype), &[n], n);
        let mut writes = vec![Write::new("dx", dtype, &[m, n], operands.shape(0)), vector("dw")];
        if CENTRED {
            writes.push(vector("db"));
        }
        let operator = if CENTRED { "layernorm_backward" } else { "rmsnorm_backward" };
        Ok(Plan::new(operator, reads, writes).number("eps", self.eps))
    }

    fn host(&self, _plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        host::norm_backward(&operands[0], &operands[1], &operands[2], self.eps, CENTRED).into()
    }
}

/// Softmax of rows.
pub(crate) struct Softmax;

impl Operator for Softmax {
    const NAME: &'static str = "tilewright softmax";
    const OPERANDS: &'static [&'static str] = &["x"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let (dtype, rows) = (operands.float(0)?, operands.rows(0)?);
        let reads = vec![Read::new("x", dtype, &rows)];
        Ok(Plan::new("softmax", reads, vec![Write::new("y", dtype, &rows, operands.shape(0))]))
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        vec![host::softmax(&operands[0], plan.reads[0].shape[1] as usize)]
    }

    fn gradients(
        &self,
        operands: &[&Tensor],
        results: &[Tensor],
        grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let dtype = operands[0].dtype();
        let (y, g) = (results[0].to_dtype(wide(dtype))?, grad.to_dtype(wide(dtype))?);
        let weighted = (&y * &g)?;
        let dx = (&weighted - y.broadcast_mul(&weighted.sum_keepdim(D::Minus1)?)?)?;
        Ok(vec![Some(dx.to_dtype(dtype)?)])
    }
}

/// `x · rsqrt(mean(x²) + eps) · w` over the last dimension. Types are f16, bf16 or f32, on the host also f64, the same of both; gradients flow to both.
///
/// # Errors
///
/// As of [`linear`](crate::linear).
pub fn rms_norm(x: &Tensor, w: &Tensor, eps: f64) -> Result<Tensor> {
    apply(Norm::<false> { eps }, &[x, w])
}

/// `(x − mean(x)) · rsqrt(var(x) + eps) · w + b` over the last dimension. Types are those of [`rms_norm`]; gradients flow to all three.
///
/// # Errors
///
/// As of [`linear`](crate::linear).
pub fn layer_norm(x: &Tensor, w: &Tensor, b: &Tensor, eps: f64) -> Result<Tensor> {
    apply(Norm::<true> { eps }, &[x, w, b])
}

/// Softmax over the last dimension, with sums in f32. Types are those of [`rms_norm`]; gradients flow through.
///
/// # Errors
///
/// As of [`linear`](crate::linear).
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    apply(Softmax, &[x])
}
