//! Types and numbers of the CUDA driver API, from the "CUDA Driver API" reference (`cuda.h` of CUDA 12).

use std::ffi::{c_int, c_uint, c_void};

/// `CUcontext`.
pub type Context = *mut c_void;
/// `CUdevice`.
pub type Device = c_int;
/// `CUdeviceptr`.
pub type DevicePointer = u64;
/// `CUstream`.
pub type RawStream = *mut c_void;
/// `CUevent`.
pub type Event = *mut c_void;
/// `CUmodule`.
pub type ModuleHandle = *mut c_void;
/// `CUlibrary`.
pub type LibraryHandle = *mut c_void;
/// `CUkernel`.
pub type KernelHandle = *mut c_void;
/// `CUfunction`.
pub type Function = *mut c_void;
/// `CUgraph`.
pub type Graph = *mut c_void;
/// `CUgraphExec`.
pub type GraphExec = *mut c_void;

/// `CUtensorMap`: what the tensor memory accelerator reads of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u64; 16]);

/// `CUlaunchAttribute`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(8))]
pub struct LaunchAttribute {
    /// `CUlaunchAttributeID`.
    pub id: c_uint,
    /// Nothing.
    pub pad: [u8; 4],
    /// The union of the values: words of 32 bits, the first ones first.
    pub value: [u32; 16],
}

impl LaunchAttribute {
    /// Nothing.
    pub const NONE: LaunchAttribute = LaunchAttribute { id: 0, pad: [0; 4], value: [0; 16] };

    fn new<const N: usize>(id: c_uint, words: [u32; N]) -> Self {
        let mut attribute = LaunchAttribute { id, ..LaunchAttribute::NONE };
        attribute.value[..N].copy_from_slice(&words);
        attribute
    }

    /// Clusters of so many blocks, along x (`CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`).
    pub fn cluster(blocks: u32) -> Self {
        LaunchAttribute::new(4, [blocks, 1, 1])
    }

    /// The launch may begin when the one before it allows it (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`).
    pub fn dependent() -> Self {
        LaunchAttribute::new(6, [1])
    }
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks along x, y and z.
    pub grid: [c_uint; 3],
    /// Threads of a block along x, y and z.
    pub block: [c_uint; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: c_uint,
    /// The stream.
    pub stream: RawStream,
    /// The attributes.
    pub attributes: *const LaunchAttribute,
    /// The number of attributes.
    pub attribute_count: c_uint,
}

// What the driver reads and writes, by its header.
const _: () = assert!(size_of::<TensorMap>() == 128 && align_of::<TensorMap>() == 64);
const _: () = assert!(size_of::<LaunchAttribute>() == 72 && size_of::<LaunchConfig>() == 56);

/// A number of a device (`CUdevice_attribute`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[non_exhaustive]
pub enum DeviceAttribute {
    /// The clock in kilohertz.
    ClockRate = 13,
    /// Multiprocessors.
    MultiprocessorCount = 16,
    /// The compute capability, before the dot.
    CapabilityMajor = 75,
    /// The compute capability, after the dot.
    CapabilityMinor = 76,
    /// Bytes of shared memory that a block may have.
    SharedMemoryPerBlock = 97,
}

/// A number of a function (`CUfunction_attribute`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[non_exhaustive]
pub enum FunctionAttribute {
    /// Bytes of static shared memory.
    StaticSharedBytes = 1,
    /// Bytes of local memory of a thread.
    LocalBytes = 3,
    /// Registers of a thread.
    Registers = 4,
    /// Bytes of dynamic shared memory that launches may ask for.
    MaxDynamicSharedBytes = 8,
    /// 1 if launches may have clusters that not every GPU runs.
    NonPortableCluster = 14,
}

/// An option of the driver's assembler (`CUjit_option`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum JitOption {
    InfoLog = 3,
    InfoLogBytes = 4,
    ErrorLog = 5,
    ErrorLogBytes = 6,
    LineInfo = 13,
}

/// `CU_STREAM_NON_BLOCKING`: the stream does not wait for the default stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: during a capture this thread makes no call that a capture forbids.
pub const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTALLOC_DEVICEMAP`: memory of the host that every context has, at an address of the GPU's.
pub const HOST_PORTABLE_AND_MAPPED: c_uint = 3;
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_NOT_FOUND`.
pub(crate) const NOT_FOUND: c_int = 500;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`: the legacy stream, while another one is captured.
pub(crate) const CAPTURE_IMPLICIT: c_int = 906;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
pub(crate) const CAPTURE_NONE: c_int = 0;
/// `CU_TENSOR_MAP_INTERLEAVE_NONE`, and `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`.
pub(crate) const MAP_PLAIN: c_int = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_their_bytes_where_the_driver_reads_them() {
        assert_eq!(std::mem::offset_of!(LaunchAttribute, value), 8);
        let cluster = LaunchAttribute::cluster(2);
        assert_eq!((cluster.id, &cluster.value[..4]), (4, &[2, 1, 1, 0][..]));
        let dependent = LaunchAttribute::dependent();
        assert_eq!((dependent.id, &dependent.value[..2]), (6, &[1, 0][..]));
    }
}
