//! Launches: their code, grid and parameters.

use tilewright_compiler::Kernel;
use tilewright_launch::{Plan, Raw};
use tilewright_machine::DType;

use super::CudaDevice;
use super::driver::{failed, launch_error};
use super::prepared::Prepared;
use super::records::RecordBuffer;
use crate::arg::{Arg, LaunchOptions, Sizes};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::RuntimeError;
use crate::launch::{Passed, check};

impl CudaDevice {
    /// Memory of the GPU with these bytes.
    fn bytes(&self, bytes: &[u8]) -> Result<Buffer, RuntimeError> {
        let buffer = self.alloc(bytes.len())?;
        self.upload(&buffer, bytes)?;
        Ok(buffer)
    }

    /// Checks a launch and makes everything for it: code, grid and parameters. The context is current afterwards.
    pub(super) fn prepare(
        &self,
        kernel: &Kernel,
        sizes: &Sizes,
        args: &[Arg<'_>],
        options: LaunchOptions,
    ) -> Result<Prepared, RuntimeError> {
        let inconsistent = || RuntimeError::Inconsistent { kernel: kernel.program().name.clone() };
        // It says what is wrong in the program's words; a plan says the same of what is left.
        let launch = check(kernel, sizes, args, self.id, &self.info.name)?;
        self.bind()?;
        let (loaded, ready) = self.load(kernel)?;
        let plan = ready.plan(&launch.sizes).map_err(launch_error)?;
        if plan.grid() != launch.grid {
            return Err(inconsistent());
        }
        let mut buffers = Vec::new();
        let mut raw = Vec::with_capacity(args.len());
        for (number, (param, passed)) in kernel.program().params.iter().zip(&launch.params).enumerate() {
            raw.push(match passed {
                Passed::Buffer(buffer) => {
                    buffers.push((*buffer).clone());
                    Raw::Ptr(self.address(buffer)?)
                }
                Passed::Buffers(each) => {
                    let table = self.table(&plan, number, each)?;
                    let address = self.address(&table)?;
                    buffers.extend(each.iter().map(|buffer| (*buffer).clone()).chain([table]));
                    Raw::Ptr(address)
                }
                Passed::Number(_, bits) => number_of(param.dtype, *bits),
                Passed::TensorMap(_) | Passed::TensorMaps(_) => return Err(inconsistent()),
            });
        }
        let records = kernel.recording.as_ref().map(|_| RecordBuffer::new(&self.gpu)).transpose();
        let records = records.map_err(failed("allocating memory for records of assertions and prints"))?;
        let mut wanted = tilewright_launch::LaunchOptions::new().dependent(options.dependent);
        if let Some(records) = &records {
            // SAFETY: the memory is as long as recordings are, and lives as long as the launch that is prepared.
            wanted = unsafe { wanted.records(records.address) };
        }
        let prepared = plan.prepare_raw(&raw, &wanted).map_err(launch_error)?;
        Ok(Prepared { kernel: kernel.program().name.clone(), loaded, prepared, records, _buffers: buffers })
    }

    /// The table of an array of tensors, in the GPU's memory.
    fn table(&self, plan: &Plan, param: usize, each: &[&Buffer]) -> Result<Buffer, RuntimeError> {
        let addresses = each.iter().map(|buffer| self.address(buffer)).collect::<Result<Vec<_>, _>>()?;
        self.bytes(&plan.table(param, &addresses).map_err(launch_error)?)
    }

    /// Occupancy: blocks of the kernel that the GPU holds at once, in whole clusters: the grid of a kernel whose blocks take one tile after
    /// another.
    pub fn resident_blocks(&self, kernel: &Kernel) -> Result<u32, RuntimeError> {
        self.bind()?;
        let (_loaded, ready) = self.load(kernel)?;
        ready.resident_blocks().map_err(launch_error)
    }
}

/// The number with these bits, as an argument for a scalar parameter of a type.
fn number_of(dtype: DType, bits: u64) -> Raw {
    match dtype {
        DType::F32 => Raw::F32(f32::from_bits(bits as u32)),
        DType::F64 => Raw::F64(f64::from_bits(bits)),
        DType::I64 => Raw::I64(bits.cast_signed()),
        DType::U64 => Raw::U64(bits),
        DType::U32 => Raw::U32(bits as u32),
        _ => Raw::I32((bits as u32).cast_signed()),
    }
}
