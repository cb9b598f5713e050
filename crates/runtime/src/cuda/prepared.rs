//! Launches that are ready: parameters, tensor maps, attributes, and putting them on a stream.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use tilewright_machine::{BoxShape, SwizzleMode, tensor_map_l2_promotion, tensor_map_type};

use super::module::Loaded;
use super::records::RecordBuffer;
use super::stream::CudaStream;
use crate::buffer::Buffer;

// What the driver reads and writes, by its header.
const _: () = assert!(size_of::<sys::CUtensorMap>() == 128 && align_of::<sys::CUtensorMap>() >= 64);
const _: () = assert!(size_of::<sys::CUlaunchAttribute>() == 72 && size_of::<sys::CUlaunchConfig>() == 56);

/// The tensor and the box that a tensor map is encoded from.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct MapKey {
    pub(super) shape: BoxShape,
    pub(super) pointer: sys::CUdeviceptr,
    /// In elements, dimension 0 first.
    pub(super) extents: Vec<u64>,
    /// In bytes, from dimension 1 on.
    pub(super) strides: Vec<u64>,
}

/// The driver's name for a swizzle.
fn map_swizzle(mode: SwizzleMode) -> sys::CUtensorMapSwizzle {
    use sys::CUtensorMapSwizzle as Swizzle;
    match mode {
        SwizzleMode::None => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        SwizzleMode::B32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        SwizzleMode::B64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        SwizzleMode::B128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

/// The driver's name for the L2 cache's fills by a tensor of these strides in bytes.
fn map_l2_promotion(strides: &[u64]) -> sys::CUtensorMapL2promotion {
    use sys::CUtensorMapL2promotion as Promotion;
    match tensor_map_l2_promotion(strides) {
        3 => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        _ => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    }
}

/// The driver's name for an element type, from its number.
fn map_type(code: u32) -> Option<sys::CUtensorMapDataType> {
    use sys::CUtensorMapDataType as Type;
    let all = [
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    ];
    all.into_iter().find(|ty| *ty as u32 == code)
}

impl MapKey {
    /// Asks the driver. The context is current, and the driver has the function: kernels with tensor maps are not loaded otherwise.
    pub(super) fn encode(&self) -> Result<sys::CUtensorMap, DriverError> {
        let invalid = || DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE);
        let ty = tensor_map_type(self.shape.dtype).and_then(map_type).ok_or_else(invalid)?;
        let rank = self.shape.extents.len();
        if self.shape.check().is_err() || self.extents.len() != rank || self.strides.len() + 1 != rank {
            return Err(invalid());
        }
        let reach = self.shape.reach();
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: the map is aligned as its type says; extents, box and steps have as many elements as the rank, strides one
        // fewer; the driver reads them and does not touch the tensor.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                ty,
                rank as u32,
                ptr::with_exposed_provenance_mut(self.pointer as usize),
                self.extents.as_ptr(),
                self.strides.as_ptr(),
                reach.as_ptr(),
                self.shape.steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                map_swizzle(self.shape.swizzle),
                map_l2_promotion(&self.strides),
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()?;
        Ok(map)
    }
}

/// An attribute of a launch; `set` writes its member of the union, whose other bytes are zero.
fn attribute(
    id: sys::CUlaunchAttributeID,
    set: impl FnOnce(&mut sys::CUlaunchAttributeValue),
) -> sys::CUlaunchAttribute {
    let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
    set(&mut value);
    sys::CUlaunchAttribute { id, pad: [0; 4], value }
}

/// Clusters of this many blocks, along x.
pub(super) fn cluster_attribute(blocks: u32) -> sys::CUlaunchAttribute {
    attribute(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, |value| {
        value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
    })
}

/// The launch may begin when the one before it allows it.
fn dependent_attribute() -> sys::CUlaunchAttribute {
    attribute(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, |value| {
        value.programmaticStreamSerializationAllowed = 1;
    })
}

/// A parameter of a function.
pub(super) enum Parameter {
    /// At most eight bytes, the low ones of the word.
    Word(u64),
    /// A tensor map.
    Map(sys::CUtensorMap),
}

/// A launch that can be put on a stream, any number of times, also one that is being captured: it neither allocates nor waits.
pub(super) struct Prepared {
    /// The kernel's name.
    pub(super) kernel: String,
    pub(super) loaded: Arc<Loaded>,
    pub(super) grid: [u32; 3],
    pub(super) threads: u32,
    pub(super) cluster: u32,
    pub(super) shared_bytes: u32,
    pub(super) dependent: bool,
    pub(super) parameters: Vec<Parameter>,
    /// The buffer of the kernel's records, to which its last parameter points.
    pub(super) records: Option<RecordBuffer>,
    /// Buffers that the parameters point to, and those that what they point to points to.
    pub(super) _buffers: Vec<Buffer>,
}

impl Prepared {
    pub(super) fn enqueue(&self, stream: &CudaStream) -> Result<(), DriverError> {
        let pointer = |parameter: &Parameter| -> *mut c_void {
            match parameter {
                // Little-endian: the low bytes of the word are the parameter.
                Parameter::Word(word) => ptr::from_ref(word).cast_mut().cast(),
                Parameter::Map(map) => ptr::from_ref(map).cast_mut().cast(),
            }
        };
        let mut pointers: Vec<*mut c_void> = self.parameters.iter().map(pointer).collect();
        let [x, y, z] = self.grid;
        let mut attributes = Vec::with_capacity(2);
        if self.cluster > 1 {
            attributes.push(cluster_attribute(self.cluster));
        }
        if self.dependent {
            attributes.push(dependent_attribute());
        }
        if attributes.is_empty() {
            // SAFETY: the function has one parameter for each pointer, of at most eight bytes or a tensor map, as `Kernel` promises and
            // `check` compares; the driver reads them before it returns. Buffers are as large as the kernel's shapes (`check`), and
            // stay alive as long as `self`, which outlives the work on the stream.
            return unsafe {
                sys::cuLaunchKernel(
                    self.loaded.function,
                    x,
                    y,
                    z,
                    self.threads,
                    1,
                    1,
                    self.shared_bytes,
                    stream.raw,
                    pointers.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
            .result();
        }
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: stream.raw,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as c_uint,
        };
        // SAFETY: as above; the configuration and its attributes live until after the call, and the driver has the function (`load`).
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                self.loaded.function,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
        .result()
    }
}

/// Memory and code that empty the L2 cache.
pub(super) struct Scrub {
    pub(super) buffer: Buffer,
    /// Reads the buffer.
    pub(super) read: Prepared,
}

#[cfg(test)]
mod tests {
    use tilewright_machine::DType;

    use super::*;

    #[test]
    fn names_of_the_driver_have_the_numbers_of_the_machine() {
        for mode in SwizzleMode::ALL {
            assert_eq!(map_swizzle(mode) as u32, mode.tensor_map_code());
        }
        for dtype in DType::ALL {
            if let Some(code) = tensor_map_type(dtype) {
                assert_eq!(map_type(code).map(|ty| ty as u32), Some(code), "{dtype}");
            }
        }
        for strides in [&[][..], &[8192, 256], &[8192, 128], &[8208]] {
            assert_eq!(map_l2_promotion(strides) as u32, tensor_map_l2_promotion(strides), "{strides:?}");
        }
        assert_eq!([&[512, 256][..], &[512, 128]].map(tensor_map_l2_promotion), [3, 2]);
    }

    #[test]
    fn attributes_have_their_bytes_where_the_driver_reads_them() {
        let bytes = |value: &sys::CUlaunchAttribute| -> Vec<i8> {
            assert_eq!(std::mem::offset_of!(sys::CUlaunchAttribute, value), 8);
            // SAFETY: every byte of the union is initialised, `attribute` has cleared them all.
            unsafe { value.value.pad }.to_vec()
        };
        let cluster = cluster_attribute(2);
        assert_eq!(cluster.id as u32, 4);
        assert_eq!(bytes(&cluster)[..16], [2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let dependent = dependent_attribute();
        assert_eq!(dependent.id as u32, 6);
        assert_eq!(bytes(&dependent)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
