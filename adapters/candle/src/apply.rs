//! Operators as candle's operations: on the host by references of plain loops, on a GPU by kernels, with gradients.

use std::sync::{Mutex, PoisonError};

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, DeviceLocation, Error, Layout, Result, Shape,
    Storage, Tensor,
};

use crate::host;
use crate::operand::Operands;
use crate::plan::Plan;

/// An operator with its options.
pub(crate) trait Operator: Send + Sync + 'static {
    /// The name in messages.
    const NAME: &'static str;
    /// The names of the operands.
    const OPERANDS: &'static [&'static str];

    /// The call of the kernels, which has the shapes of the results; refuses operands that do not fit.
    fn plan(&self, operands: &Operands<'_>) -> Result<Plan>;

    /// The results' elements by plain loops, from those of the operands.
    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>>;

    /// The gradients of the first operands, from all operands, the results and the gradient of the first result.
    fn gradients(
        &self,
        _operands: &[&Tensor],
        _results: &[Tensor],
        _grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        Err(Error::BackwardNotSupported { op: Self::NAME }.bt())
    }
}

/// The call for operands of these types and layouts.
pub(crate) fn planned<O: Operator>(operator: &O, given: Vec<(DType, &Layout)>) -> Result<Plan> {
    operator.plan(&Operands::new(O::NAME, O::OPERANDS, given)?)
}

/// The results on the host.
pub(crate) fn on_host<O: Operator>(
    operator: &O,
    given: &[(&CpuStorage, &Layout)],
) -> Result<(Plan, Vec<CpuStorage>)> {
    use candle_core::backend::BackendStorage;
    let plan = planned(operator, given.iter().map(|(storage, layout)| (storage.dtype(), *layout)).collect())?;
    let values = given.iter().map(|(storage, layout)| host::read(storage, layout, O::NAME));
    let values = values.collect::<Result<Vec<_>>>()?;
    let results = operator.host(&plan, &values);
    let written =
        results.iter().zip(&plan.writes).map(|(values, write)| host::write(values, write.dtype, O::NAME));
    let written = written.collect::<Result<Vec<_>>>()?;
    Ok((plan, written))
}

/// The results on a GPU.
#[cfg(feature = "cuda")]
pub(crate) fn on_gpu<O: Operator>(
    operator: &O,
    given: &[(&CudaStorage, &Layout)],
) -> Result<(Plan, Vec<CudaStorage>)> {
    use candle_core::backend::BackendStorage;
    let plan = planned(operator, given.iter().map(|(storage, layout)| (storage.dtype(), *layout)).collect())?;
    let results = crate::gpu::run(&plan, given)?;
    Ok((plan, results))
}

/// A tensor of a result, without a history.
fn tensor(storage: Storage, shape: &Shape) -> Tensor {
    Tensor::from_storage(storage, shape.clone(), BackpropOp::none(), false)
}

/// The error for an operand on another device than the first.
fn elsewhere<O: Operator>(lhs: DeviceLocation, rhs: &Storage, at: usize) -> Error {
    let rhs = rhs.device().location();
    let name = O::OPERANDS.get(at).copied().unwrap_or("an operand");
    let error = Error::DeviceMismatchBinaryOp { lhs, rhs, op: O::NAME }.bt();
    error.context(format!("`{name}` of {} is on another device than `{}`", O::NAME, O::OPERANDS[0]))
}

/// The storages of operands, which are all of one kind of device; an error if one is of another.
macro_rules! all_on {
    ($kind:ident, $operator:ty, $first:expr, $given:expr) => {
        $given
            .iter()
            .enumerate()
            .map(|(at, (storage, layout))| match &**storage {
                Storage::$kind(storage) => Ok((storage, *layout)),
                other => Err(elsewhere::<$operator>($first.device().location(), other, at)),
            })
            .collect::<Result<Vec<_>>>()
    };
}

/// Runs an operator on tensors. The results have no history.
pub(crate) fn run<O: Operator>(operator: &O, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
    let locked: Vec<_> = operands.iter().map(|operand| operand.storage_and_layout()).collect();
    let Some((first, _)) = locked.first() else {
        return Err(Error::OpRequiresAtLeastOneTensor { op: O::NAME }.bt());
    };
    match &**first {
        Storage::Cpu(_) => {
            let (plan, results) = on_host(operator, &all_on!(Cpu, O, first, locked)?)?;
            let both = results.into_iter().zip(&plan.writes);
            Ok(both.map(|(result, write)| tensor(Storage::Cpu(result), &write.shape)).collect())
        }
        #[cfg(feature = "cuda")]
        Storage::Cuda(_) => {
            let (plan, results) = on_gpu(operator, &all_on!(Cuda, O, first, locked)?)?;
            let both = results.into_iter().zip(&plan.writes);
            Ok(both.map(|(result, write)| tensor(Storage::Cuda(result), &write.shape)).collect())
        }
        #[cfg(not(feature = "cuda"))]
        Storage::Cuda(_) => Err(Error::NotCompiledWithCudaSupport.bt()),
        Storage::Metal(_) => Err(Error::Metal(format!("{} has no kernels for Metal", O::NAME).into()).bt()),
    }
}

/// Applies an operator to tensors, of which the first three may have gradients.
pub(crate) fn apply<O: Operator>(operator: O, operands: &[&Tensor]) -> Result<Tensor> {
    let (arguments, more) = operands.split_at(operands.len().min(3));
    let more = more.iter().map(|operand| (*operand).clone()).collect();
    let applied = Applied { operator, more, rest: Mutex::default() };
    match arguments {
        [a] => a.apply_op1(applied),
        [a, b] => a.apply_op2(b, applied),
        [a, b, c] => a.apply_op3(b, c, applied),
        _ => Err(Error::OpRequiresAtLeastOneTensor { op: O::NAME }.bt()),
    }
}

/// An operator in a graph of candle's: one application of it.
struct Applied<O> {
    operator: O,
    /// Operands beyond candle's three.
    more: Vec<Tensor>,
    /// Results beyond the first, which the gradients are made of.
    rest: Mutex<Vec<Tensor>>,
}

impl<O: Operator> Applied<O> {
    fn keep(&self, rest: Vec<Tensor>) {
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = rest;
    }

    fn forward_on_host(&self, given: &[(&CpuStorage, &Layout)]) -> Result<(CpuStorage, Shape)> {
        let locked: Vec<_> = self.more.iter().map(Tensor::storage_and_layout).collect();
        let mut all = given.to_vec();
        for (at, (storage, layout)) in locked.iter().enumerate() {
            match &**storage {
                Storage::Cpu(storage) => all.push((storage, *layout)),
                other => return Err(elsewhere::<O>(DeviceLocation::Cpu, other, given.len() + at)),
            }
        }
        let (plan, results) = on_host(&self.operator, &all)?;
        let mut results = results.into_iter().zip(&plan.writes);
        let first = results.next().ok_or(Error::UnwrapNone)?;
        self.keep(results.map(|(result, write)| tensor(Storage::Cpu(result), &write.shape)).collect());
        Ok((first.0, first.1.shape.clone()))
    }

    #[cfg(feature = "cuda")]
    fn forward_on_gpu(&self, given: &[(&CudaStorage, &Layout)]) -> Result<(CudaStorage, Shape)> {
        let locked: Vec<_> = self.more.iter().map(Tensor::storage_and_layout).collect();
        let mut all = given.to_vec();
        for (at, (storage, layout)) in locked.iter().enumerate() {
            match &**storage {
                Storage::Cuda(storage) => all.push((storage, *layout)),
                other => {
                    let gpu_id = given[0].0.device.cuda_stream().context().ordinal();
                    return Err(elsewhere::<O>(DeviceLocation::Cuda { gpu_id }, other, given.len() + at));
                }
            }
        }
        let (plan, results) = on_gpu(&self.operator, &all)?;
        let mut results = results.into_iter().zip(&plan.writes);
        let first = results.next().ok_or(Error::UnwrapNone)?;
        self.keep(results.map(|(result, write)| tensor(Storage::Cuda(result), &write.shape)).collect());
        Ok((first.0, first.1.shape.clone()))
    }

    fn backward<const N: usize>(
        &self,
        arguments: [&Tensor; N],
        result: &Tensor,
        grad: &Tensor,
    ) -> Result<[Option<Tensor>; N]> {
        // Gradients are not differentiated again.
        let detached = arguments.map(Tensor::detach);
        let operands: Vec<&Tensor> = detached.iter().chain(&self.more).collect();
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let results: Vec<Tensor> = std::iter::once(result.detach()).chain(rest).collect();
        let mut gradients = self.operator.gradients(&operands, &results, &grad.contiguous()?)?.into_iter();
        Ok([(); N].map(|()| gradients.next().flatten()))
    }
}

impl<O: Operator> CustomOp1 for Applied<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.forward_on_host(&[(storage, layout)])
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        self.forward_on_gpu(&[(storage, layout)])
    }

    fn bwd(&self, arg: &Tensor, res: &Tensor, grad_res: &Tensor) -> Result<Option<Tensor>> {
        self.backward([arg], res, grad_res).map(|[a]| a)
    }
}

impl<O: Operator> CustomOp2 for Applied<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.forward_on_host(&[(s1, l1), (s2, l2)])
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        s1: &CudaStorage,
        l1: &Layout,
        s2: &CudaStorage,
        l2: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.forward_on_gpu(&[(s1, l1), (s2, l2)])
    }

    fn bwd(
        &self,
        arg1: &Tensor,
        arg2: &Tensor,
        res: &Tensor,
        grad_res: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        self.backward([arg1, arg2], res, grad_res).map(|[a, b]| (a, b))
    }
}

impl<O: Operator> CustomOp3 for Applied<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.forward_on_host(&[(s1, l1), (s2, l2), (s3, l3)])
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        s1: &CudaStorage,
        l1: &Layout,
        s2: &CudaStorage,
        l2: &Layout,
        s3: &CudaStorage,
        l3: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.forward_on_gpu(&[(s1, l1), (s2, l2), (s3, l3)])
    }

    fn bwd(
        &self,
        arg1: &Tensor,
        arg2: &Tensor,
        arg3: &Tensor,
        res: &Tensor,
        grad_res: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        self.backward([arg1, arg2, arg3], res, grad_res).map(|[a, b, c]| (a, b, c))
    }
}
