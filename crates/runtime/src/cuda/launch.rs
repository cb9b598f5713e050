//! Launches: their code, grid and parameters.

use std::ffi::c_uint;
use std::ptr;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tilewright_compiler::Kernel;

use super::driver::failed;
use super::load::{waits_for_blocks, waits_for_others};
use super::prepared::{MapKey, Parameter, Prepared, cluster_attribute};
use super::records::RecordBuffer;
use super::{CudaDevice, lock};
use crate::arg::{Arg, LaunchOptions, Sizes};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::RuntimeError;
use crate::launch::{Mapped, Passed, check};

/// The compute capability with which clusters and dependent launches came.
const HOPPER: (u32, u32) = (9, 0);
/// Tensor maps that a device keeps.
const MAPS_KEPT: usize = 1024;

impl CudaDevice {
    /// The tensor map of the tensor in this buffer, encoded when it is first asked for. The context is current.
    fn tensor_map(
        &self,
        kernel: &Kernel,
        mapped: &Mapped<'_>,
        buffer: &Buffer,
    ) -> Result<sys::CUtensorMap, RuntimeError> {
        let map = kernel.function.tensor_maps.get(mapped.map as usize);
        let map = map.ok_or_else(|| RuntimeError::Inconsistent { kernel: kernel.program().name.clone() })?;
        let key = MapKey {
            shape: map.shape.clone(),
            pointer: self.address(buffer)?,
            extents: mapped.extents.clone(),
            strides: mapped.strides.clone(),
        };
        let mut maps = lock(&self.maps);
        if let Some(known) = maps.get(&key) {
            return Ok(*known);
        }
        let encoded = key.encode().map_err(failed(format!("encoding the tensor map of `{}`", map.name)))?;
        if maps.len() >= MAPS_KEPT {
            maps.clear();
        }
        maps.insert(key, encoded);
        Ok(encoded)
    }

    /// Memory of the GPU with these words.
    fn words(&self, words: &[u64]) -> Result<Buffer, RuntimeError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let buffer = self.alloc(bytes.len())?;
        self.upload(&buffer, &bytes)?;
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
        let launch = check(kernel, sizes, args, self.id, &self.info.name)?;
        self.bind()?;
        let loaded = self.load(kernel)?;
        if waits_for_blocks(kernel) {
            let blocks = launch.grid.iter().map(|extent| u64::from(*extent)).product();
            let resident = self.resident_blocks(kernel)?;
            if blocks > u64::from(resident) {
                let kernel = kernel.program().name.clone();
                return Err(RuntimeError::NotResident { kernel, blocks, resident });
            }
        }
        let inconsistent = || RuntimeError::Inconsistent { kernel: kernel.program().name.clone() };
        let mut buffers = Vec::new();
        let mut parameters = Vec::with_capacity(launch.params.len());
        for passed in &launch.params {
            parameters.push(match passed {
                Passed::Buffer(buffer) => {
                    buffers.push((*buffer).clone());
                    Parameter::Word(self.address(buffer)?)
                }
                Passed::Number(_, bits) => Parameter::Word(*bits),
                Passed::TensorMap(mapped) => {
                    let buffer = mapped.buffers.first().ok_or_else(inconsistent)?;
                    Parameter::Map(self.tensor_map(kernel, mapped, buffer)?)
                }
                Passed::Buffers(each) => {
                    let addresses = each.iter().map(|buffer| self.address(buffer));
                    let pointers = self.words(&addresses.collect::<Result<Vec<_>, _>>()?)?;
                    let address = self.address(&pointers)?;
                    buffers.extend(each.iter().map(|buffer| (*buffer).clone()).chain([pointers]));
                    Parameter::Word(address)
                }
                Passed::TensorMaps(mapped) => {
                    let maps = mapped.buffers.iter().map(|buffer| self.tensor_map(kernel, mapped, buffer));
                    let maps = maps.collect::<Result<Vec<_>, _>>()?;
                    let words: Vec<u64> = maps.iter().flat_map(|map| map.opaque).collect();
                    let maps = self.words(&words)?;
                    let address = self.address(&maps)?;
                    buffers.push(maps);
                    Parameter::Word(address)
                }
            });
        }
        let records = kernel.recording.as_ref().map(|_| RecordBuffer::new(&self.context)).transpose();
        let records = records.map_err(failed("allocating memory for records of assertions and prints"))?;
        parameters.extend(records.as_ref().map(|buffer| Parameter::Word(buffer.address)));
        let dependent = options.dependent && self.capability >= HOPPER && waits_for_others(kernel);
        Ok(Prepared {
            kernel: kernel.program().name.clone(),
            loaded,
            grid: launch.grid,
            threads: kernel.threads(),
            cluster: kernel.function.cluster,
            shared_bytes: kernel.shared_bytes(),
            dependent,
            parameters,
            records,
            _buffers: buffers,
        })
    }

    /// Occupancy: blocks of the kernel that the GPU holds at once, in whole clusters: the grid of a kernel whose blocks take one tile after
    /// another.
    pub fn resident_blocks(&self, kernel: &Kernel) -> Result<u32, RuntimeError> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as COUNT;
        self.bind()?;
        let loaded = self.load(kernel)?;
        let cluster = kernel.function.cluster;
        let ask = || -> Result<u32, DriverError> {
            if cluster > 1 {
                let mut attributes = [cluster_attribute(cluster)];
                let config = sys::CUlaunchConfig {
                    gridDimX: cluster,
                    gridDimY: 1,
                    gridDimZ: 1,
                    blockDimX: kernel.threads(),
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: kernel.shared_bytes(),
                    hStream: ptr::null_mut(),
                    attrs: attributes.as_mut_ptr(),
                    numAttrs: attributes.len() as c_uint,
                };
                let mut clusters = 0;
                // SAFETY: the function is loaded; the configuration and its attributes live until after the call, and the driver
                // has the function (`load`).
                unsafe {
                    sys::cuOccupancyMaxActiveClusters(&raw mut clusters, loaded.function, &raw const config)
                }
                .result()?;
                return Ok(clusters.unsigned_abs() * cluster);
            }
            // SAFETY: the function is loaded.
            let each = unsafe {
                result::occupancy::max_active_block_per_multiprocessor(
                    loaded.function,
                    kernel.threads().cast_signed(),
                    kernel.shared_bytes() as usize,
                )
            }?;
            Ok(each.unsigned_abs() * self.context.attribute(COUNT)?.unsigned_abs())
        };
        ask().map_err(failed(format!(
            "asking how many blocks of kernel `{}` run at once",
            kernel.program().name
        )))
    }
}
