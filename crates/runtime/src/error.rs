//! Errors of launches, transfers and devices.

use std::fmt;

use tilewright_compiler::NoRecipe;
use tilewright_launch::LaunchError;
use tilewright_machine::{Arch, DType};
use tilewright_sim::SimError;
use tilewright_tile::interpret::{InterpretError, Quote};

/// A dimension of a tensor map, and the mode of the parameter that it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapDimension {
    /// The dimension of the map, 0 is contiguous.
    pub dimension: usize,
    /// The mode of the parameter, if it is one of them.
    pub mode: Option<usize>,
}

impl fmt::Display for MapDimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Some(mode) => write!(f, "mode {mode}"),
            None => write!(f, "dimension {} of its map", self.dimension),
        }
    }
}

/// A rule of tensor maps that a tensor breaks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TensorMapError {
    /// A stride is no multiple of 16 bytes.
    #[error("the stride of {place} is {elements} elements; it must be a multiple of {multiple} (16 bytes)")]
    Stride {
        /// The dimension.
        place: MapDimension,
        /// The stride in elements.
        elements: i64,
        /// Required divisor.
        multiple: i64,
    },
    /// A stride is not positive, or too large.
    #[error("the stride of {place} is {elements} elements; it must be from 1 to {most}")]
    StrideRange {
        /// The dimension.
        place: MapDimension,
        /// The stride in elements.
        elements: i64,
        /// The most elements that it may be.
        most: i64,
    },
    /// An extent is not positive, or too large.
    #[error("the extent of {place} is {extent}; it must be from 1 to {most}")]
    Extent {
        /// The dimension.
        place: MapDimension,
        /// The extent.
        extent: i64,
        /// The largest extent.
        most: i64,
    },
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParamOf {
    /// The parameter's name.
    pub param: String,
    /// The kernel's name.
    pub kernel: String,
}

/// A launch, a transfer or a device that did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// There is no CUDA on this machine.
    #[error("CUDA is not available: {reason}")]
    NoCuda {
        /// The reason.
        reason: String,
    },
    /// There are fewer GPUs.
    #[error("there is no CUDA device {ordinal}; this machine has {count}, numbered from 0")]
    NoSuchDevice {
        /// The device that was asked for.
        ordinal: u32,
        /// The devices that there are.
        count: u32,
    },
    /// The text names no device.
    #[error("`{0}` is not a device; devices are auto, sim, cuda, cuda:0, cuda:1, …")]
    UnknownDevice(String),
    /// The blocks of a kernel wait for each other, and do not all run at once.
    #[error(
        "kernel `{kernel}` has {blocks} blocks that wait for each other (`syncgrid`, `wait`), and this GPU holds {resident} at once; choose a smaller grid"
    )]
    NotResident {
        /// The kernel.
        kernel: String,
        /// Blocks of the grid.
        blocks: u64,
        /// Blocks that the GPU holds at once.
        resident: u32,
    },
    /// A call of the CUDA driver failed.
    #[error("{action}: {code} ({message})")]
    Driver {
        /// Activity that failed.
        action: String,
        /// The driver's name for the error.
        code: String,
        /// The driver's description.
        message: String,
    },
    /// A library could not be loaded.
    #[error("{library} is not available: {reason}")]
    NoLibrary {
        /// The library's name.
        library: &'static str,
        /// The reason, and how to say where it is.
        reason: String,
    },
    /// A library refused something, or failed.
    #[error("{library}: {action}: {status}")]
    Library {
        /// The library's name.
        library: &'static str,
        /// Activity that failed.
        action: String,
        /// The library's name for the error.
        status: String,
    },
    /// The driver did not take the PTX.
    #[error("the driver rejects the PTX of kernel `{kernel}`: {code}\n{log}")]
    Load {
        /// The kernel.
        kernel: String,
        /// The driver's name for the error.
        code: String,
        /// The log of the driver's assembler.
        log: String,
    },
    /// A kernel failed while it ran on a GPU.
    #[error(
        "kernel `{kernel}` failed while it ran: {code} ({message}); open the device again before using it further"
    )]
    Kernel {
        /// The kernel.
        kernel: String,
        /// The driver's name for the error.
        code: String,
        /// The driver's description.
        message: String,
    },
    /// The simulator could not run a kernel to its end.
    #[error("kernel `{kernel}` failed on the simulator: {error}")]
    Simulator {
        /// The kernel.
        kernel: String,
        /// Findings of the simulator.
        error: Box<SimError>,
    },
    /// The device cannot run code for the kernel's architecture.
    #[error(
        "kernel `{kernel}` is compiled for {arch}, which {device} (compute capability {major}.{minor}) cannot run"
    )]
    UnsupportedArch {
        /// The kernel.
        kernel: String,
        /// Target architecture.
        arch: Arch,
        /// The device.
        device: String,
        /// The device's compute capability, before the dot.
        major: u32,
        /// The device's compute capability, after the dot.
        minor: u32,
    },
    /// The device has less shared memory than a block needs.
    #[error("a block of kernel `{kernel}` needs {needed} bytes of shared memory; {device} has {available}")]
    SharedMemory {
        /// The kernel.
        kernel: String,
        /// Bytes that a block needs.
        needed: u32,
        /// Bytes that a block may have.
        available: u32,
        /// The device.
        device: String,
    },
    /// There are too many or too few arguments.
    #[error("kernel `{kernel}` takes {expected} arguments ({params}); {given} are given")]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Number expected.
        expected: usize,
        /// Their names.
        params: String,
        /// Number given.
        given: usize,
    },
    /// A number is given for a tensor, or a buffer for a number.
    #[error("parameter `{param}` of kernel `{kernel}` is {expected}; {given} is given")]
    ArgumentKind {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// Its kind.
        expected: &'static str,
        /// Given kind.
        given: &'static str,
    },
    /// A tensor parameter has no buffer of its name.
    #[error("tensor `{param}` of kernel `{kernel}` has no buffer")]
    Unbound {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
    },
    /// A tensor has another element type than its parameter.
    #[error(
        "parameter `{param}` of kernel `{kernel}` has elements of type {expected}; the tensor has {given}"
    )]
    ArgumentType {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The parameter's element type.
        expected: DType,
        /// The tensor's.
        given: DType,
    },
    /// An array of tensors has another number of them than its parameter.
    #[error(
        "parameter `{param}` of kernel `{kernel}` is an array of {expected} tensors at these sizes; {given} are given"
    )]
    TensorCount {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// Tensors of the parameter.
        expected: usize,
        /// Tensors that are given.
        given: usize,
    },
    /// Two tensors of an array that the kernel writes are one buffer.
    #[error(
        "kernel `{kernel}` writes the tensors of `{param}`, of which numbers {} and {} are the same buffer: each needs its own",
        tensors[0], tensors[1]
    )]
    SharedResult {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The numbers of both.
        tensors: [usize; 2],
    },
    /// A buffer is too small for its parameter.
    #[error(
        "the buffer for parameter `{param}` of kernel `{kernel}` has {actual} bytes; at these sizes it needs {needed}"
    )]
    BufferTooSmall {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// Bytes that the parameter's shape takes.
        needed: usize,
        /// Bytes of the buffer.
        actual: usize,
    },
    /// A tensor map cannot describe a parameter.
    #[error(
        "parameter `{param}` of kernel `{kernel}` is copied by tensor maps, which do not take it at these sizes: {error}"
    )]
    TensorMap {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The rule of tensor maps that they break.
        error: TensorMapError,
    },
    /// A parameter is `constant`, which says that no launch of a sequence writes it, and one does.
    #[error(
        "`{}` of kernel `{}` is constant, and kernel `{}` of the same sequence writes its buffer, as `{}`: leave `constant` away, or \
         pass another buffer",
        constant.param, constant.kernel, written.kernel, written.param
    )]
    ConstantWritten {
        /// The parameter that is constant.
        constant: ParamOf,
        /// The parameter through which the buffer is written.
        written: ParamOf,
    },
    /// A buffer belongs to another device.
    #[error("a buffer of another device is given to {device}")]
    ForeignBuffer {
        /// The device that was to use it.
        device: String,
    },
    /// Data and buffer differ in size.
    #[error("{given} {unit} are given for a buffer of {expected}")]
    DataLength {
        /// The size of the data.
        given: usize,
        /// The size of the buffer.
        expected: usize,
        /// Unit.
        unit: &'static str,
    },
    /// A size or an extent of a tensor is beyond what 32-bit coordinates reach
    /// ([`MAX_EXTENT`](tilewright_compiler::MAX_EXTENT)).
    #[error("{what} of kernel `{kernel}` is {value}; {limit} is the most that a launch takes")]
    SizeTooLarge {
        /// The kernel.
        kernel: String,
        /// The size or extent.
        what: Quote,
        /// Its value.
        value: i64,
        /// The largest that is possible.
        limit: i64,
    },
    /// The kernel was compiled for sizes that are multiples of something, and this one is not.
    #[error("kernel `{kernel}` is compiled for multiples of {multiple} as size `{size}`; {value} is none")]
    BrokenAssumption {
        /// The kernel.
        kernel: String,
        /// The size.
        size: String,
        /// Required divisor.
        multiple: i64,
        /// Its value.
        value: i64,
    },
    /// A size is not the kernel's or not positive, the grid is empty or larger than hardware takes, or an expression has no
    /// value.
    #[error("kernel `{kernel}` cannot be launched at these sizes: {error}")]
    Sizes {
        /// The kernel.
        kernel: String,
        /// The interpreter's refusal of the sizes.
        error: Box<InterpretError>,
    },
    /// The kernel is beyond what launches follow.
    #[error("kernel `{kernel}` cannot be launched: {error}")]
    NoRecipe {
        /// The kernel.
        kernel: String,
        /// The limit.
        error: Box<NoRecipe>,
    },
    /// A launch is refused behind this crate's own checks.
    #[error(transparent)]
    Launch(Box<LaunchError>),
    /// The kernel's function does not take what its program says that a launch passes: an internal compiler error.
    #[error("the code of kernel `{kernel}` does not fit its program")]
    Inconsistent {
        /// The kernel.
        kernel: String,
    },
}
