//! Kernels on candle's streams and in candle's memory.
#![allow(unsafe_code, reason = "candle's memory and streams are lent to kernels")]

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use candle_core::cuda_backend::{CudaStorageSlice, WrapErr};
use candle_core::{CudaDevice, CudaStorage, DType, Device, Error, Layout, Result};
use half::{bf16, f16};
use tilewright_launch::{Gpu, Stream, View, ViewMut, Workspace};
use tilewright_ops::Library;

use crate::plan::{Plan, Read};

/// The library of each GPU, by candle's number.
static LIBRARIES: RwLock<BTreeMap<usize, Library>> = RwLock::new(BTreeMap::new());

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Cuda(Box::new(error)).bt()
}

/// The library of the GPU with a number, which is made when it is first asked for.
fn of_gpu(ordinal: usize) -> Result<Library> {
    if let Some(library) = LIBRARIES.read().unwrap_or_else(PoisonError::into_inner).get(&ordinal) {
        return Ok(library.clone());
    }
    // candle's contexts are the primary ones.
    let gpu = Gpu::primary(u32::try_from(ordinal)?).map_err(failed)?;
    let library = Library::for_gpu(&gpu).map_err(failed)?;
    Ok(LIBRARIES.write().unwrap_or_else(PoisonError::into_inner).entry(ordinal).or_insert(library).clone())
}

fn ordinal(device: &Device) -> Result<usize> {
    Ok(device.as_cuda_device()?.cuda_stream().context().ordinal())
}

/// The library of kernels that operations on a device take theirs from: for `warm_up`, `specialisations` and `pack`.
///
/// # Errors
///
/// A device that is no CUDA device, or one that no kernels are compiled for.
pub fn library(device: &Device) -> Result<Library> {
    of_gpu(ordinal(device)?)
}

/// Makes operations on a device take their kernels from a library from now on: a strict one, or one with a pack.
///
/// # Errors
///
/// A device that is no CUDA device.
pub fn use_library(device: &Device, library: Library) -> Result<()> {
    let ordinal = ordinal(device)?;
    LIBRARIES.write().unwrap_or_else(PoisonError::into_inner).insert(ordinal, library);
    Ok(())
}

/// The address of a tensor, and what tells candle's other streams of the use when it is dropped.
macro_rules! address {
    ($slice:expr, $pointer:ident, $layout:expr, $stream:expr, $op:expr) => {{
        let offset = $layout.start_offset() as u64;
        macro_rules! of {
            ($values:expr, $ty:ty) => {{
                let (pointer, guard) = $values.$pointer($stream);
                (pointer + offset * size_of::<$ty>() as u64, guard)
            }};
        }
        Ok(match $slice {
            CudaStorageSlice::U8(values) => of!(values, u8),
            CudaStorageSlice::U32(values) => of!(values, u32),
            CudaStorageSlice::I32(values) => of!(values, i32),
            CudaStorageSlice::F16(values) => of!(values, f16),
            CudaStorageSlice::BF16(values) => of!(values, bf16),
            CudaStorageSlice::F32(values) => of!(values, f32),
            CudaStorageSlice::F64(values) => of!(values, f64),
            _ => return Err(Error::Msg(format!("`{}` takes no elements of this type", $op)).bt()),
        })
    }};
}

fn read<'a>(
    storage: &'a CudaStorage,
    layout: &Layout,
    stream: &'a CudaStream,
    plan: &Plan,
) -> Result<(u64, SyncOnDrop<'a>)> {
    address!(&storage.slice, device_ptr, layout, stream, plan.operator)
}

fn written<'a>(
    storage: &'a mut CudaStorage,
    layout: &Layout,
    stream: &'a CudaStream,
    plan: &Plan,
) -> Result<(u64, SyncOnDrop<'a>)> {
    address!(&mut storage.slice, device_ptr_mut, layout, stream, plan.operator)
}

/// Memory for a result.
fn allocated(device: &CudaDevice, dtype: DType, elements: usize) -> Result<CudaStorage> {
    // SAFETY: the kernels write every element.
    let slice = unsafe {
        match dtype {
            DType::U8 => CudaStorageSlice::U8(device.alloc(elements)?),
            DType::F16 => CudaStorageSlice::F16(device.alloc(elements)?),
            DType::BF16 => CudaStorageSlice::BF16(device.alloc(elements)?),
            DType::F32 => CudaStorageSlice::F32(device.alloc(elements)?),
            DType::F64 => CudaStorageSlice::F64(device.alloc(elements)?),
            other => return Err(Error::Msg(format!("no result has elements of {}", other.as_str())).bt()),
        }
    };
    Ok(CudaStorage { slice, device: device.clone() })
}

/// Runs a call on the stream of its operands' device; returns the results.
pub(crate) fn run(plan: &Plan, given: &[(&CudaStorage, &Layout)]) -> Result<Vec<CudaStorage>> {
    let Some((first, _)) = given.first() else { return Ok(Vec::new()) };
    let made =
        plan.writes.iter().map(|write| allocated(&first.device, write.dtype, write.shape.elem_count()));
    let mut made = made.collect::<Result<Vec<_>>>()?;
    let layouts: Vec<Layout> = plan.writes.iter().map(|write| Layout::contiguous(&write.shape)).collect();
    launch(plan, &first.device, given, made.iter_mut().zip(&layouts).collect())?;
    Ok(made)
}

/// The same with a result that there is memory for.
pub(crate) fn run_into(
    plan: &Plan,
    (into, layout): (&mut CudaStorage, &Layout),
    given: &[(&CudaStorage, &Layout)],
) -> Result<()> {
    let device = into.device.clone();
    launch(plan, &device, given, vec![(into, layout)])
}

fn launch(
    plan: &Plan,
    device: &CudaDevice,
    given: &[(&CudaStorage, &Layout)],
    results: Vec<(&mut CudaStorage, &Layout)>,
) -> Result<()> {
    let stream = device.cuda_stream();
    stream.context().bind_to_thread().w()?;
    let library = of_gpu(stream.context().ordinal())?;
    // Until the launches are on the stream.
    let mut guards = Vec::with_capacity(given.len() + results.len());
    let mut reads = Vec::with_capacity(given.len());
    for ((storage, layout), Read { dtype, shape, strides, .. }) in given.iter().zip(&plan.reads) {
        let (pointer, guard) = read(storage, layout, &stream, plan)?;
        guards.push(guard);
        // SAFETY: the tensor has these elements, and candle frees it on a stream that waits for this one.
        reads.push(unsafe { View::new(pointer, *dtype, shape).with_strides(strides) });
    }
    let mut writes = Vec::with_capacity(plan.writes.len());
    for ((storage, layout), write) in results.into_iter().zip(&plan.writes) {
        let (pointer, guard) = written(storage, layout, &stream, plan)?;
        guards.push(guard);
        // SAFETY: as above, and nobody else has the result.
        writes.push(unsafe { ViewMut::new(pointer, write.as_read.dtype, &write.as_read.shape) });
    }
    let call = plan.call(&library, &reads, &mut writes);
    let bytes = call.workspace_bytes().map_err(failed)?;
    // SAFETY: candle's stream lives as long as the device, and its context is current.
    let on = unsafe { Stream::borrow(stream.cu_stream().cast()) };
    if bytes == 0 {
        return call.run(on).map_err(failed);
    }
    // SAFETY: kernels read nothing of it that they have not written.
    let mut memory = unsafe { device.alloc::<u8>(usize::try_from(bytes)?)? };
    let (pointer, guard) = memory.device_ptr_mut(&stream);
    // SAFETY: the memory has these bytes; it is freed on this stream, behind the launches.
    let mut workspace = unsafe { Workspace::new(pointer, bytes) };
    let done = call.workspace(&mut workspace).run(on).map_err(failed);
    drop(guard);
    done
}
