//! Errors of launches.

use crate::dtype::DType;
use crate::recipe::RecipeError;

/// A launch, or something before it, that did not work. Each names the kernel and what clashes.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// There is no driver, or it does not start.
    #[error("CUDA is not available: {reason}")]
    NoDriver {
        /// The reason.
        reason: String,
    },
    /// The driver lacks a function.
    #[error("CUDA is not available: the installed CUDA driver is too old: it has no {symbol}")]
    DriverTooOld {
        /// The function.
        symbol: &'static str,
    },
    /// Code was loaded by another driver library than a GPU's.
    #[error("the code of `{entry}` was loaded by another driver library than that of {device}")]
    OtherDriver {
        /// The function.
        entry: String,
        /// The GPU.
        device: String,
    },
    /// No context is current in this thread.
    #[error(
        "this thread has no current CUDA context: make one current (an engine does when it chooses its device), or take `Gpu::primary`"
    )]
    NoContext,
    /// There are fewer GPUs.
    #[error("there is no CUDA device {ordinal}; this machine has {count}, numbered from 0")]
    NoSuchDevice {
        /// The device that was asked for.
        ordinal: u32,
        /// The devices that there are.
        count: u32,
    },
    /// A call of the driver failed.
    #[error("{action}: {code} ({message})")]
    Driver {
        /// Activity that failed.
        action: String,
        /// The driver's name for the error.
        code: String,
        /// The driver's description.
        message: String,
    },
    /// The driver did not take the code.
    #[error("the driver rejects the code of kernel `{kernel}`: {code}\n{log}")]
    Load {
        /// The kernel.
        kernel: String,
        /// The driver's name for the error.
        code: String,
        /// The log of the driver's assembler, or its description of the error.
        log: String,
    },
    /// A launch was refused by the driver, or an earlier one has failed.
    #[error(
        "the driver does not launch kernel `{kernel}`: {code} ({message}); the context of its GPU must be current and the stream one of it, \
         and an error of work that was launched before is reported here too"
    )]
    Launch {
        /// The kernel.
        kernel: String,
        /// The driver's name for the error.
        code: String,
        /// The driver's description.
        message: String,
    },
    /// A recipe that no launch can follow.
    #[error("kernel `{kernel}` cannot be launched: {error}")]
    Recipe {
        /// The kernel.
        kernel: String,
        /// The rule that it breaks.
        error: RecipeError,
    },
    /// The GPU cannot run the code.
    #[error(
        "kernel `{kernel}` is compiled for {target}, which {device} (compute capability {}.{}) cannot run",
        capability.0, capability.1
    )]
    UnsupportedTarget {
        /// The kernel.
        kernel: String,
        /// The target of its code.
        target: String,
        /// The GPU.
        device: String,
        /// The GPU's compute capability.
        capability: (u32, u32),
    },
    /// The GPU has less shared memory than a block needs.
    #[error("a block of kernel `{kernel}` needs {needed} bytes of shared memory; {device} has {available}")]
    SharedMemory {
        /// The kernel.
        kernel: String,
        /// Bytes that a block needs.
        needed: u32,
        /// Bytes that a block may have.
        available: u32,
        /// The GPU.
        device: String,
    },
    /// The blocks of a kernel wait for each other, and do not all run at once.
    #[error(
        "kernel `{kernel}` has {blocks} blocks that wait for each other, and this GPU holds {resident} at once; choose a smaller grid"
    )]
    NotResident {
        /// The kernel.
        kernel: String,
        /// Blocks of the grid.
        blocks: u64,
        /// Blocks that the GPU holds at once.
        resident: u32,
    },
    /// Too many or too few sizes are given.
    #[error("kernel `{kernel}` takes {expected} sizes ({names}); {given} are given")]
    SizeCount {
        /// The kernel.
        kernel: String,
        /// The number of its sizes.
        expected: usize,
        /// Their names.
        names: String,
        /// The number given.
        given: usize,
    },
    /// A size is out of range.
    #[error("size `{size}` of kernel `{kernel}` is {value}; it must be from 1 to {most}")]
    Size {
        /// The kernel.
        kernel: String,
        /// The size.
        size: String,
        /// Its value.
        value: i64,
        /// The largest value.
        most: i64,
    },
    /// The code relies on a size being a multiple of something, and it is not.
    #[error("kernel `{kernel}` is compiled for multiples of {multiple} as size `{size}`; {value} is none")]
    BrokenAssumption {
        /// The kernel.
        kernel: String,
        /// The size.
        size: String,
        /// The divisor.
        multiple: i64,
        /// Its value.
        value: i64,
    },
    /// A number of the launch divides by zero or overflows at these sizes.
    #[error("{what} of kernel `{kernel}` has no value at these sizes: it divides by zero or overflows")]
    NoValue {
        /// The kernel.
        kernel: String,
        /// The number.
        what: String,
    },
    /// A number of the launch is out of range at these sizes.
    #[error("{what} of kernel `{kernel}` is {value} at these sizes; it must be from {least} to {most}")]
    OutOfRange {
        /// The kernel.
        kernel: String,
        /// The number.
        what: String,
        /// Its value.
        value: i64,
        /// The least that it may be.
        least: i64,
        /// The most that it may be.
        most: i64,
    },
    /// The grid is not made of whole clusters.
    #[error(
        "the grid of kernel `{kernel}` has {blocks} blocks along x at these sizes, and its clusters have {cluster}"
    )]
    PartOfCluster {
        /// The kernel.
        kernel: String,
        /// Blocks along x.
        blocks: u32,
        /// Blocks of a cluster.
        cluster: u32,
    },
    /// An integer of the kernel does not fit in 32 bits at these sizes.
    #[error(
        "kernel `{kernel}`: {what} can reach {value} at these sizes: the integers of a kernel have 32 bits"
    )]
    TooWide {
        /// The kernel.
        kernel: String,
        /// The integer.
        what: String,
        /// A value that it can take.
        value: i64,
    },
    /// A stride of a tensor that is copied by tensor maps is no multiple of 16 bytes.
    #[error(
        "`{param}` of kernel `{kernel}` is copied by tensor maps, whose strides are multiples of {multiple} elements (16 bytes); one is \
         {elements} at these sizes"
    )]
    MapStride {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The stride in elements.
        elements: i64,
        /// The divisor.
        multiple: i64,
    },
    /// Too many or too few arguments are given.
    #[error("kernel `{kernel}` takes {expected} arguments ({params}); {given} are given")]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// The number of its parameters.
        expected: usize,
        /// Their names.
        params: String,
        /// The number given.
        given: usize,
    },
    /// An argument is of another kind than its parameter.
    #[error("parameter `{param}` of kernel `{kernel}` is {expected}; {given} is given")]
    ArgumentKind {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// Its kind.
        expected: &'static str,
        /// The kind given.
        given: &'static str,
    },
    /// A kernel writes a tensor, and is given a view for reading.
    #[error("kernel `{kernel}` writes `{param}`: give it a `&mut ViewMut`")]
    NotMutable {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
    },
    /// A tensor has another element type than its parameter.
    #[error("`{param}` of kernel `{kernel}` has elements of type {expected}; the tensor has {given}")]
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
    /// A tensor has another shape than its parameter.
    #[error("`{param}` of kernel `{kernel}` has shape {expected:?} at these sizes; the tensor has {given:?}")]
    Shape {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The parameter's shape.
        expected: Vec<i64>,
        /// The tensor's.
        given: Vec<i64>,
    },
    /// A tensor has other strides than its parameter.
    #[error(
        "`{param}` of kernel `{kernel}` has strides {expected:?} at these sizes; the tensor has {given:?}"
    )]
    Strides {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The parameter's strides, in elements.
        expected: Vec<i64>,
        /// The tensor's.
        given: Vec<i64>,
    },
    /// The address of a tensor is no multiple of what the kernel relies on.
    #[error(
        "`{param}` of kernel `{kernel}` begins at a multiple of {alignment} bytes; the tensor is at {pointer:#x}"
    )]
    Alignment {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The divisor of addresses.
        alignment: u32,
        /// The address given.
        pointer: u64,
    },
    /// A tensor that is constant for a kernel is given as one that it writes, too.
    #[error(
        "`{constant}` of kernel `{kernel}` is constant, and the kernel writes the same memory as `{written}`"
    )]
    ConstantWritten {
        /// The kernel.
        kernel: String,
        /// The parameter that is constant.
        constant: String,
        /// The parameter through which the memory is written.
        written: String,
    },
    /// Two tensors of an array that the kernel writes are at one address.
    #[error(
        "kernel `{kernel}` writes the tensors of `{param}`, of which numbers {} and {} are at the same address: each needs its own",
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
    /// An array of tensors has another number of them than its parameter.
    #[error(
        "`{param}` of kernel `{kernel}` is an array of {expected} tensors at these sizes; {given} are given"
    )]
    TensorCount {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The number of tensors of the parameter.
        expected: usize,
        /// The number given.
        given: usize,
    },
    /// The workspace is too small, not aligned, or not given.
    #[error(
        "kernel `{kernel}` needs a workspace of {needed} bytes at a multiple of 256 at these sizes; {given} are given"
    )]
    Workspace {
        /// The kernel.
        kernel: String,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are given; 0 of a workspace that is at no multiple of 256.
        given: u64,
    },
    /// A kernel records assertions and prints, and has no buffer for them.
    #[error(
        "kernel `{kernel}` records assertions and prints: give it a buffer of {bytes} bytes, filled with zeros"
    )]
    NoRecords {
        /// The kernel.
        kernel: String,
        /// Bytes of the buffer.
        bytes: u64,
    },
    /// Kernels of a chain have different things by one name.
    #[error("`{param}` of kernel `{kernel}` is something else than what the kernels ahead of it call so")]
    OtherThing {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
    },
    /// A chain has too many arguments.
    #[error("the chain of kernels that begins with `{kernel}` has {given} arguments; {most} is the most")]
    ChainParams {
        /// The first kernel.
        kernel: String,
        /// The number of its arguments.
        given: usize,
        /// The most that there may be.
        most: usize,
    },
    /// A stream is being captured, and the launch is not prepared: a capture must not wait for that.
    #[error(
        "kernel `{kernel}` is not ready for these sizes, and the stream is being captured: make the plan before the capture (`Kernel::plan`)"
    )]
    NotReady {
        /// The kernel.
        kernel: String,
    },
}
