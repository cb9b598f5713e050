//! Errors of launches.

use std::error::Error;
use std::fmt;

use crate::dtype::DType;
use crate::recipe::{Param, RecipeError};

/// A launch, or something before it, that did not work. Each names the kernel and what clashes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LaunchError {
    /// There is no driver, or it does not start.
    NoDriver {
        /// The reason.
        reason: String,
    },
    /// The driver lacks a function.
    DriverTooOld {
        /// The function.
        symbol: &'static str,
    },
    /// Code was loaded by another driver library than a GPU's.
    OtherDriver {
        /// The function.
        entry: String,
        /// The GPU.
        device: String,
    },
    /// No context is current in this thread.
    NoContext,
    /// There are fewer GPUs.
    NoSuchDevice {
        /// The device that was asked for.
        ordinal: u32,
        /// The devices that there are.
        count: u32,
    },
    /// A call of the driver failed.
    Driver {
        /// Activity that failed.
        action: String,
        /// The driver's name for the error.
        code: String,
        /// The driver's description.
        message: String,
    },
    /// The driver did not take the code.
    Load {
        /// The kernel.
        kernel: String,
        /// The driver's name for the error.
        code: String,
        /// The log of the driver's assembler, or its description of the error.
        log: String,
    },
    /// A launch was refused by the driver, or an earlier one has failed.
    Launch {
        /// The kernel.
        kernel: String,
        /// The driver's name for the error.
        code: String,
        /// The driver's description.
        message: String,
    },
    /// A recipe that no launch can follow.
    Recipe {
        /// The kernel.
        kernel: String,
        /// The rule that it breaks.
        error: RecipeError,
    },
    /// The GPU cannot run the code.
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
    NotResident {
        /// The kernel.
        kernel: String,
        /// Blocks of the grid.
        blocks: u64,
        /// Blocks that the GPU holds at once.
        resident: u32,
    },
    /// Too many or too few sizes are given.
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
    NoValue {
        /// The kernel.
        kernel: String,
        /// The number.
        what: String,
    },
    /// A number of the launch is out of range at these sizes.
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
    PartOfCluster {
        /// The kernel.
        kernel: String,
        /// Blocks along x.
        blocks: u32,
        /// Blocks of a cluster.
        cluster: u32,
    },
    /// An integer of the kernel does not fit in 32 bits at these sizes.
    TooWide {
        /// The kernel.
        kernel: String,
        /// The integer.
        what: String,
        /// A value that it can take.
        value: i64,
    },
    /// A stride of a tensor that is copied by tensor maps is no multiple of 16 bytes.
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
    /// A kernel writes a tensor, and is given a view for reading, or an array of tensors that is not writable.
    NotMutable {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
    },
    /// A tensor has another element type than its parameter.
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
    ConstantWritten {
        /// The kernel.
        kernel: String,
        /// The parameter that is constant.
        constant: String,
        /// The parameter through which the memory is written.
        written: String,
    },
    /// Two tensors of an array that the kernel writes are at one address.
    SharedResult {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
        /// The numbers of both.
        tensors: [usize; 2],
    },
    /// An array of tensors has another number of them than its parameter.
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
    Workspace {
        /// The kernel.
        kernel: String,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are given; 0 of a workspace that is at no multiple of 256.
        given: u64,
    },
    /// A kernel records assertions and prints, and has no buffer for them.
    NoRecords {
        /// The kernel.
        kernel: String,
        /// Bytes of the buffer.
        bytes: u64,
    },
    /// Kernels of a chain have different things by one name.
    OtherThing {
        /// The kernel.
        kernel: String,
        /// The parameter.
        param: String,
    },
    /// A chain has too many arguments.
    ChainParams {
        /// The first kernel.
        kernel: String,
        /// The number of its arguments.
        given: usize,
        /// The most that there may be.
        most: usize,
    },
    /// A stream is being captured, and the launch is not prepared: a capture must not wait for that.
    NotReady {
        /// The kernel.
        kernel: String,
    },
}

impl LaunchError {
    /// The refusal of a number of arguments that is not that of the parameters.
    pub(crate) fn argument_count<'a>(
        kernel: String,
        params: impl Iterator<Item = &'a Param>,
        given: usize,
    ) -> Self {
        let names: Vec<&str> = params.map(|param| param.name.as_str()).collect();
        LaunchError::ArgumentCount { kernel, expected: names.len(), params: names.join(", "), given }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::NoDriver { reason } => write!(f, "CUDA is not available: {reason}"),
            LaunchError::DriverTooOld { symbol } => {
                write!(f, "CUDA is not available: the installed CUDA driver is too old: it has no {symbol}")
            }
            LaunchError::OtherDriver { entry, device } => {
                write!(f, "the code of `{entry}` was loaded by another driver library than that of {device}")
            }
            LaunchError::NoContext => f.write_str(
                "this thread has no current CUDA context: make one current (an engine does when it \
                 chooses its device), or take `Gpu::primary`",
            ),
            LaunchError::NoSuchDevice { ordinal, count } => {
                write!(f, "there is no CUDA device {ordinal}; this machine has {count}, numbered from 0")
            }
            LaunchError::Driver { action, code, message } => write!(f, "{action}: {code} ({message})"),
            LaunchError::Load { kernel, code, log } => {
                write!(f, "the driver rejects the code of kernel `{kernel}`: {code}\n{log}")
            }
            LaunchError::Launch { kernel, code, message } => write!(
                f,
                "the driver does not launch kernel `{kernel}`: {code} ({message}); the context of \
                 its GPU must be current and the stream one of it, and an error of work that was \
                 launched before is reported here too"
            ),
            LaunchError::Recipe { kernel, error } => {
                write!(f, "kernel `{kernel}` cannot be launched: {error}")
            }
            LaunchError::UnsupportedTarget { kernel, target, device, capability } => write!(
                f,
                "kernel `{kernel}` is compiled for {target}, which {device} (compute capability \
                 {}.{}) cannot run",
                capability.0, capability.1
            ),
            LaunchError::SharedMemory { kernel, needed, available, device } => write!(
                f,
                "a block of kernel `{kernel}` needs {needed} bytes of shared memory; {device} has \
                 {available}"
            ),
            LaunchError::NotResident { kernel, blocks, resident } => write!(
                f,
                "kernel `{kernel}` has {blocks} blocks that wait for each other, and this GPU holds \
                 {resident} at once; choose a smaller grid"
            ),
            LaunchError::SizeCount { kernel, expected, names, given } => {
                write!(f, "kernel `{kernel}` takes {expected} sizes ({names}); {given} are given")
            }
            LaunchError::Size { kernel, size, value, most } => {
                write!(f, "size `{size}` of kernel `{kernel}` is {value}; it must be from 1 to {most}")
            }
            LaunchError::BrokenAssumption { kernel, size, multiple, value } => write!(
                f,
                "kernel `{kernel}` is compiled for multiples of {multiple} as size `{size}`; {value} \
                 is none"
            ),
            LaunchError::NoValue { kernel, what } => write!(
                f,
                "{what} of kernel `{kernel}` has no value at these sizes: it divides by zero or \
                 overflows"
            ),
            LaunchError::OutOfRange { kernel, what, value, least, most } => write!(
                f,
                "{what} of kernel `{kernel}` is {value} at these sizes; it must be from {least} to \
                 {most}"
            ),
            LaunchError::PartOfCluster { kernel, blocks, cluster } => write!(
                f,
                "the grid of kernel `{kernel}` has {blocks} blocks along x at these sizes, and its \
                 clusters have {cluster}"
            ),
            LaunchError::TooWide { kernel, what, value } => write!(
                f,
                "kernel `{kernel}`: {what} can reach {value} at these sizes: the integers of a \
                 kernel have 32 bits"
            ),
            LaunchError::MapStride { kernel, param, elements, multiple } => write!(
                f,
                "`{param}` of kernel `{kernel}` is copied by tensor maps, whose strides are \
                 multiples of {multiple} elements (16 bytes); one is {elements} at these sizes"
            ),
            LaunchError::ArgumentCount { kernel, expected, params, given } => {
                write!(f, "kernel `{kernel}` takes {expected} arguments ({params}); {given} are given")
            }
            LaunchError::ArgumentKind { kernel, param, expected, given } => {
                write!(f, "parameter `{param}` of kernel `{kernel}` is {expected}; {given} is given")
            }
            LaunchError::NotMutable { kernel, param } => {
                write!(
                    f,
                    "kernel `{kernel}` writes `{param}`: give it a `&mut ViewMut`, or an array of tensors that is `writable`"
                )
            }
            LaunchError::ArgumentType { kernel, param, expected, given } => write!(
                f,
                "`{param}` of kernel `{kernel}` has elements of type {expected}; the tensor has \
                 {given}"
            ),
            LaunchError::Shape { kernel, param, expected, given } => write!(
                f,
                "`{param}` of kernel `{kernel}` has shape {expected:?} at these sizes; the tensor \
                 has {given:?}"
            ),
            LaunchError::Strides { kernel, param, expected, given } => write!(
                f,
                "`{param}` of kernel `{kernel}` has strides {expected:?} at these sizes; the tensor \
                 has {given:?}"
            ),
            LaunchError::Alignment { kernel, param, alignment, pointer } => write!(
                f,
                "`{param}` of kernel `{kernel}` begins at a multiple of {alignment} bytes; the \
                 tensor is at {pointer:#x}"
            ),
            LaunchError::ConstantWritten { kernel, constant, written } => write!(
                f,
                "`{constant}` of kernel `{kernel}` is constant, and the kernel writes the same \
                 memory as `{written}`"
            ),
            LaunchError::SharedResult { kernel, param, tensors } => write!(
                f,
                "kernel `{kernel}` writes the tensors of `{param}`, of which numbers {} and {} are \
                 at the same address: each needs its own",
                tensors[0], tensors[1]
            ),
            LaunchError::TensorCount { kernel, param, expected, given } => write!(
                f,
                "`{param}` of kernel `{kernel}` is an array of {expected} tensors at these sizes; \
                 {given} are given"
            ),
            LaunchError::Workspace { kernel, needed, given } => write!(
                f,
                "kernel `{kernel}` needs a workspace of {needed} bytes at a multiple of 256 at these \
                 sizes; {given} are given"
            ),
            LaunchError::NoRecords { kernel, bytes } => write!(
                f,
                "kernel `{kernel}` records assertions and prints: give it a buffer of {bytes} bytes, \
                 filled with zeros"
            ),
            LaunchError::OtherThing { kernel, param } => write!(
                f,
                "`{param}` of kernel `{kernel}` is something else than what the kernels ahead of it call so"
            ),
            LaunchError::ChainParams { kernel, given, most } => write!(
                f,
                "the chain of kernels that begins with `{kernel}` has {given} arguments; {most} is the most"
            ),
            LaunchError::NotReady { kernel } => write!(
                f,
                "kernel `{kernel}` is not ready for these sizes, and the stream is being captured: \
                 make the plan before the capture (`Kernel::plan`)"
            ),
        }
    }
}

impl Error for LaunchError {}
