//! Linear layers: products with bias and activation in one kernel.

use std::borrow::Cow;

use candle_core::{CpuStorage, DType, InplaceOp3, Layout, Result, Tensor};

use crate::apply::{Operator, apply, run};
use crate::host;
use crate::operand::Operands;
use crate::plan::{Plan, Read, Write};

/// A function that a linear layer ends with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Activation {
    /// None.
    #[default]
    None,
    /// The larger of each value and 0.
    Relu,
    /// Gelu, by tanh: candle's `Tensor::gelu`.
    Gelu,
    /// Silu.
    Silu,
}

/// √(2/π) and the cubic term of gelu by tanh.
const GELU: [f64; 2] = [0.797_884_560_802_865_4, 0.044_715];

impl Activation {
    fn name(self) -> Option<&'static str> {
        match self {
            Activation::None => None,
            Activation::Relu => Some("relu"),
            Activation::Gelu => Some("gelu"),
            Activation::Silu => Some("silu"),
        }
    }

    fn of(self, x: f64) -> f64 {
        match self {
            Activation::None => x,
            Activation::Relu => x.max(0.0),
            Activation::Gelu => 0.5 * x * (1.0 + (GELU[0] * (x + GELU[1] * x * x * x)).tanh()),
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }

    /// The gradient of its argument `x`, from that of its value.
    fn gradient(self, x: &Tensor, grad: &Tensor) -> Result<Tensor> {
        let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let (v, g) = (x.to_dtype(wide)?, grad.to_dtype(wide)?);
        let slope = match self {
            Activation::None => return Ok(grad.clone()),
            Activation::Relu => v.gt(0.0)?.to_dtype(wide)?,
            Activation::Silu => {
                let s = (v.neg()?.exp()? + 1.0)?.recip()?;
                (&s * ((&v * (1.0 - &s)?)? + 1.0)?)?
            }
            Activation::Gelu => {
                let square = v.sqr()?;
                let t = ((&v * ((&square * GELU[1])? + 1.0)?)? * GELU[0])?.tanh()?;
                let inner = ((square * (3.0 * GELU[1]))? + 1.0)?;
                let rise = ((&v * (1.0 - t.sqr()?)?)? * inner)? * (0.5 * GELU[0]);
                (((t + 1.0)? * 0.5)? + rise?)?
            }
        };
        (g * slope)?.to_dtype(grad.dtype())
    }
}

/// The operations of a product's epilogue, as `tilewright kernels` has them.
fn epilogue(bias: bool, activation: Activation) -> Option<Cow<'static, str>> {
    match (bias, activation.name()) {
        (false, None) => None,
        (true, None) => Some("bias".into()),
        (false, Some(name)) => Some(name.into()),
        (true, Some(name)) => Some(format!("bias+{name}").into()),
    }
}

/// The bits of a factor in f32 that are multiplied: all of them but the last two.
fn precise(plan: Plan, dtype: DType) -> Plan {
    if dtype == DType::F32 { plan.word("dtype", "f32").word("precision", "tf32x3") } else { plan }
}

/// `activation(x[…, k] · w[n, k]ᵀ + bias[n])`.
pub(crate) struct Linear {
    pub(crate) activation: Activation,
}

impl Operator for Linear {
    const NAME: &'static str = "tilewright linear";
    const OPERANDS: &'static [&'static str] = &["x", "w", "bias"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let dtype = operands.float(0)?;
        operands.alike(1)?;
        let ([m, k], [n, _]) = (operands.rows(0)?, operands.modes(1)?);
        operands.extents(1, &[n, k])?;
        let bias = operands.count() > 2;
        let mut reads = vec![Read::new("a", dtype, &[m, k]), Read::new("b", dtype, &[n, k])];
        if bias {
            operands.extents(2, &[n])?;
            reads.push(Read::new("bias", dtype, &[n]));
        }
        let mut shape = operands.dims(0).to_vec();
        if let Some(last) = shape.last_mut() {
            *last = n;
        }
        let plan = precise(Plan::new("gemm", reads, vec![Write::new("c", dtype, &[m, n], shape)]), dtype);
        Ok(match epilogue(bias, self.activation) {
            Some(parts) => plan.word("epilogue", parts),
            None => plan,
        })
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let [m, k] = [0, 1].map(|mode| plan.reads[0].shape[mode] as usize);
        let n = plan.reads[1].shape[0] as usize;
        let mut c = host::product(&operands[0], &operands[1], [m, n, k]);
        for row in c.chunks_mut(n) {
            for (column, value) in row.iter_mut().enumerate() {
                let bias = operands.get(2).map_or(0.0, |bias| bias[column]);
                *value = self.activation.of(*value + bias);
            }
        }
        vec![c]
    }

    fn gradients(
        &self,
        operands: &[&Tensor],
        _results: &[Tensor],
        grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let (x, w) = (operands[0], operands[1]);
        let grad = match self.activation {
            Activation::None => grad.clone(),
            activation => {
                let sums = run(&Linear { activation: Activation::None }, operands)?;
                activation.gradient(&sums[0], grad)?
            }
        };
        let (n, k) = w.dims2()?;
        let rows = x.elem_count() / k;
        let (flat, of_x) = (grad.reshape((rows, n))?, x.reshape((rows, k))?);
        let dx = run(&Product { transposed: [false, true] }, &[&flat, w])?.remove(0).reshape(x.shape())?;
        let dw = run(&Product { transposed: [true, true] }, &[&flat, &of_x])?.remove(0);
        let mut gradients = vec![Some(dx), Some(dw)];
        if operands.len() > 2 {
            let wide = if flat.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            gradients.push(Some(flat.to_dtype(wide)?.sum(0)?.to_dtype(flat.dtype())?));
        }
        Ok(gradients)
    }
}

/// `a · bᵀ` of `a[m, k]` and `b[n, k]`, each of which may be stored transposed.
pub(crate) struct Product {
    pub(crate) transposed: [bool; 2],
}

impl Product {
    /// m, n and k, by the shapes of the factors as they are stored.
    fn sizes(&self, a: [usize; 2], b: [usize; 2]) -> [usize; 3] {
        let [[m, k], [n, _]] = [(a, self.transposed[0]), (b, self.transposed[1])]
            .map(|([rows, columns], swapped)| if swapped { [columns, rows] } else { [rows, columns] });
        [m, n, k]
    }
}

impl Operator for Product {
    const NAME: &'static str = "tilewright product";
    const OPERANDS: &'static [&'static str] = &["a", "b"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let dtype = operands.float(0)?;
        operands.alike(1)?;
        let (a, b) = (operands.modes(0)?, operands.modes(1)?);
        let [m, n, k] = self.sizes(a, b);
        operands.extents(1, &if self.transposed[1] { [k, n] } else { [n, k] })?;
        let factor = |name, shape: [usize; 2], swapped: bool| {
            let factor = Read::new(name, dtype, &shape);
            if swapped { factor.transposed() } else { factor }
        };
        let reads = vec![factor("a", a, self.transposed[0]), factor("b", b, self.transposed[1])];
        let mut plan =
            precise(Plan::new("gemm", reads, vec![Write::new("c", dtype, &[m, n], (m, n))]), dtype);
        if self.transposed[0] {
            plan = plan.word("a", "m");
        }
        if self.transposed[1] {
            plan = plan.word("b", "n");
        }
        Ok(plan)
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let extent = |read: usize, mode: usize| plan.reads[read].shape[mode] as usize;
        let [m, n, k] = [extent(0, 0), extent(1, 0), extent(0, 1)];
        // A factor that is stored transposed has rows of m, or n.
        let rows = |at: usize, rows| match self.transposed[at] {
            true => Cow::Owned(host::transposed(&operands[at], [k, rows])),
            false => Cow::Borrowed(&operands[at]),
        };
        vec![host::product(&rows(0, m), &rows(1, n), [m, n, k])]
    }
}

/// `activation(x[…, k] · w[n, k]ᵀ + bias[n])` in one kernel. Types are f16, bf16 or f32, the same of all three; on the host also f64. Gradients flow to all three: two products, and one
/// more where there is an activation, whose argument is not kept.
///
/// The layout of `w` is that of candle's `Linear`. Of f32, factors have 22 of their 24 bits.
///
/// # Errors
///
/// Operands whose types, shapes, layouts or devices do not go together; whatever the library of kernels refuses, as [`candle_core::Error::Cuda`] of an [`OpsError`](tilewright_ops::OpsError).
pub fn linear(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, activation: Activation) -> Result<Tensor> {
    let operator = Linear { activation };
    match bias {
        Some(bias) => apply(operator, &[x, w, bias]),
        None => apply(operator, &[x, w]),
    }
}

/// `c[…, n] += x[…, k] · w[n, k]ᵀ` in one kernel and in c's memory, such as for a residual stream. Nothing of it has gradients.
///
/// # Errors
///
/// As of [`linear`].
pub fn add_linear(c: &Tensor, x: &Tensor, w: &Tensor) -> Result<()> {
    c.inplace_op3(x, w, &AddLinear)
}

/// Linear layers that add to what is there.
pub(crate) struct AddLinear;

impl Operator for AddLinear {
    const NAME: &'static str = "tilewright add_linear";
    const OPERANDS: &'static [&'static str] = &["c", "x", "w"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let dtype = operands.float(0)?;
        operands.alike(1)?;
        let ([m, k], [n, _]) = (operands.rows(1)?, operands.modes(2)?);
        operands.extents(2, &[n, k])?;
        let mut shape = operands.dims(1).to_vec();
        if let Some(last) = shape.last_mut() {
            *last = n;
        }
        operands.extents(0, &shape)?;
        let reads = vec![Read::new("a", dtype, &[m, k]), Read::new("b", dtype, &[n, k])];
        let plan = Plan::new("gemm", reads, vec![Write::new("c", dtype, &[m, n], shape)]);
        Ok(precise(plan, dtype).word("epilogue", "beta").number("beta", 1.0))
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let [m, k] = [0, 1].map(|mode| plan.reads[0].shape[mode] as usize);
        let n = plan.reads[1].shape[0] as usize;
        let mut c = host::product(&operands[1], &operands[2], [m, n, k]);
        c.iter_mut().zip(&operands[0]).for_each(|(sum, before)| *sum += before);
        vec![c]
    }
}

impl InplaceOp3 for AddLinear {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn cpu_fwd(
        &self,
        s1: &mut CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<()> {
        let (_, mut results) = crate::apply::on_host(self, &[(&*s1, l1), (s2, l2), (s3, l3)])?;
        host::put(s1, l1, results.remove(0), Self::NAME)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        s1: &mut candle_core::CudaStorage,
        l1: &Layout,
        s2: &candle_core::CudaStorage,
        l2: &Layout,
        s3: &candle_core::CudaStorage,
        l3: &Layout,
    ) -> Result<()> {
        use candle_core::backend::BackendStorage;
        let plan = crate::apply::planned(self, vec![(s1.dtype(), l1), (s2.dtype(), l2), (s3.dtype(), l3)])?;
        crate::gpu::run_into(&plan, (s1, l1), &[(s2, l2), (s3, l3)])
    }
}
