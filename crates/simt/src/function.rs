//! The thread-level program: what one thread of a block runs.
//!
//! Scalars and addresses are SSA values, each defined once by one instruction and visible from there to the end of its
//! block. Fragments are [`Array`]s of 32-bit registers: mutable places that keep their registers and their order for
//! life, because tensor-core instructions name registers and an accumulator must not change its name between
//! issues. Control flow is structured: counted loops and two-way branches. Effects happen in program order.

mod op;

use std::fmt;
use std::panic::Location;

pub use op::Op;
use serde::{Serialize, Serializer};
use tilewright_machine::{Arch, BoxShape, DType, Major, RegType};

/// An SSA value; its type is in [`Function::values`]. Prints as `%7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A register array; its row is in [`Function::arrays`]. Prints as `@2`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ArrayId(pub u32);

/// One 32-bit register of an array. Prints as `@2[5]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Reg {
    /// The array.
    pub array: ArrayId,
    /// The position in it.
    pub index: u32,
}

/// The scales of one factor of a block-scaled product: neighbouring bytes of a register, from this one on. Prints as `@2[5].1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScaleBytes {
    /// The register.
    pub register: Reg,
    /// The first byte, 0 the lowest.
    pub byte: u32,
}

impl fmt::Display for ScaleBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.register, self.byte)
    }
}

/// An operand: a value, or a literal bit pattern of the type that the operation wants there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A literal.
    Imm(u64),
}

impl Operand {
    /// The bits of a literal.
    pub fn literal(self) -> Option<u64> {
        match self {
            Operand::Imm(bits) => Some(bits),
            Operand::Value(_) => None,
        }
    }
}

impl From<Value> for Operand {
    fn from(value: Value) -> Self {
        Operand::Value(value)
    }
}

/// A statement of the tile program that instructions come from; an index into [`Function::origins`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct OriginId(pub u32);

/// An argument that a launch passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionParam {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: FunctionParamKind,
}

/// The kind of a [`FunctionParam`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FunctionParamKind {
    /// A 64-bit pointer to global memory.
    Pointer,
    /// A signed 32-bit integer.
    I32,
    /// An `f32`.
    F32,
    /// A 64-bit integer.
    I64,
    /// An `f64`.
    F64,
    /// A tensor map of 128 bytes, by value: an index into [`Function::tensor_maps`]. A launch gives the tensor's extents and strides.
    TensorMap(u32),
    /// A 64-bit pointer to 64-bit pointers to global memory, as many as a launch gives.
    Pointers,
    /// A 64-bit pointer to tensor maps in global memory, which differ in the tensor's address alone: an index into [`Function::tensor_maps`].
    TensorMaps(u32),
}

impl FunctionParamKind {
    /// The kind of a number of a type.
    pub fn number(dtype: DType) -> Self {
        match dtype {
            DType::F32 => FunctionParamKind::F32,
            DType::F64 => FunctionParamKind::F64,
            DType::I64 | DType::U64 => FunctionParamKind::I64,
            _ => FunctionParamKind::I32,
        }
    }

    /// The register that holds its value.
    pub fn register(self) -> RegType {
        match self {
            FunctionParamKind::Pointer
            | FunctionParamKind::Pointers
            | FunctionParamKind::TensorMaps(_)
            | FunctionParamKind::I64
            | FunctionParamKind::F64 => RegType::B64,
            FunctionParamKind::I32 | FunctionParamKind::F32 | FunctionParamKind::TensorMap(_) => RegType::B32,
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            FunctionParamKind::Pointer => "pointer",
            FunctionParamKind::I32 => "i32",
            FunctionParamKind::F32 => "f32",
            FunctionParamKind::I64 => "i64",
            FunctionParamKind::F64 => "f64",
            FunctionParamKind::TensorMap(_) => "tensor map",
            FunctionParamKind::Pointers => "pointers",
            FunctionParamKind::TensorMaps(_) => "tensor maps",
        }
    }

    /// The tensor map that it passes, or of which it passes several.
    pub fn map(self) -> Option<u32> {
        match self {
            FunctionParamKind::TensorMap(map) | FunctionParamKind::TensorMaps(map) => Some(map),
            _ => None,
        }
    }
}

/// A tensor map: a tensor in global memory and the box that copies move. Extents and strides come with the launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// The name of the tensor.
    pub name: String,
    /// The box.
    pub shape: BoxShape,
}

/// A matrix descriptor: its upper half is known when the kernel is compiled, its lower half (address and leading offset) is a
/// value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorValue {
    /// Bits 0 to 31, `B32`.
    pub low: Operand,
    /// Bits 32 to 63.
    pub high: u32,
}

/// The scales of one factor of a block-scaled product with its sums in tensor memory: cells from an address on, of which it takes neighbouring bytes from this
/// one on. Prints as `[%7+4].1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScaleCells {
    /// The address in tensor memory of the first column.
    pub address: Address,
    /// The first byte of each cell, 0 the lowest.
    pub byte: u32,
}

impl fmt::Display for ScaleCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.address, self.byte)
    }
}

/// The metadata of the sparse left factor of a product with its sums in tensor memory: cells from an address on. Prints as `[%7+4]/1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MetadataCells {
    /// The address in tensor memory of the first column.
    pub address: Address,
    /// The sparsity selector: the column of a pair that the instruction reads, of 16-bit factors.
    pub selector: u32,
}

impl fmt::Display for MetadataCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.selector)
    }
}

/// A factor of an asynchronous matrix product.
#[derive(Clone, PartialEq, Debug)]
pub enum Factor {
    /// In the warpgroup's registers; only the left factor.
    Registers(Vec<Reg>),
    /// In shared memory.
    Shared {
        /// Its matrix descriptor.
        descriptor: DescriptorValue,
        /// Along which mode it is contiguous.
        major: Major,
    },
    /// In tensor memory, from lane 0 on; only the left factor of a product with its sums there.
    Tensor(Address),
}

impl Factor {
    /// The lower half of its descriptor, if it lies in shared memory, or its address in tensor memory.
    fn low(&self) -> Option<Operand> {
        match self {
            Factor::Shared { descriptor, .. } => Some(descriptor.low),
            Factor::Tensor(address) => Some(address.base),
            Factor::Registers(_) => None,
        }
    }
}

/// A buffer in shared memory, at a fixed offset of the block's window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedBuffer {
    /// The name of the tensor it holds.
    pub name: String,
    /// Byte offset in the block's window.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// A tensor in tensor memory: columns from the block's first on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorBuffer {
    /// The name of the tensor it holds.
    pub name: String,
    /// The first column.
    pub column: u32,
    /// The number of columns.
    pub columns: u32,
}

/// A register array: a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// The name of the tensor it holds a part of.
    pub name: String,
    /// Number of 32-bit registers.
    pub registers: u32,
}

/// A register with a value the hardware provides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Special {
    /// The thread's index in its block.
    ThreadIndex,
    /// The block's index along x, y or z (0, 1, 2).
    BlockIndex(u8),
    /// The address of the block's shared window in the shared address space.
    SharedBase,
    /// The block's rank in its cluster.
    ClusterRank,
    /// The low 32 bits of the multiprocessor's cycle counter, read now: not pure, and ordered like an effect.
    Clock,
}

impl Special {
    /// True if it has the same value whenever a thread reads it.
    pub fn is_constant(self) -> bool {
        self != Special::Clock
    }
}

/// A byte address: a value plus a constant. Shared addresses are 32 bits wide, global ones 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The base.
    pub base: Operand,
    /// Bytes added to it.
    pub offset: i32,
}

/// An instruction: what it does, and where it comes from.
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// The operation.
    pub op: Op,
    /// The tile statement it comes from.
    pub origin: OriginId,
}

/// The position of a tile statement in its source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Position {
    /// The byte of the text at which it begins.
    Text(u32),
    /// The call in Rust that made it.
    Rust(&'static Location<'static>),
}

impl Position {
    /// The byte at which it begins in the text, of a program that was parsed.
    pub fn text(self) -> Option<u32> {
        match self {
            Position::Text(byte) => Some(byte),
            Position::Rust(_) => None,
        }
    }
}

/// A number, or `file:line:column`.
impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Position::Text(byte) => serializer.serialize_u32(*byte),
            Position::Rust(location) => serializer.collect_str(location),
        }
    }
}

/// A thread-level program.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// The entry point's name.
    pub name: String,
    /// The architecture it needs.
    pub arch: Arch,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that one multiprocessor has registers for, at least.
    pub resident: u32,
    /// Blocks of a cluster, along x; 1 where there are no clusters.
    pub cluster: u32,
    /// True if blocks 2i and 2i + 1 of a cluster are a pair: they allocate and free tensor memory together, the first issues products for both
    /// ([`Tcgen05Row::blocks`](tilewright_machine::Tcgen05Row::blocks)), and tensor copies to one block may signal an mbarrier of the other.
    pub pairs: bool,
    /// Parameters, in launch order.
    pub params: Vec<FunctionParam>,
    /// Tensor maps, to which parameters refer.
    pub tensor_maps: Vec<TensorMap>,
    /// Shared buffers, by rising offset.
    pub shared: Vec<SharedBuffer>,
    /// Bytes of shared memory that a block needs.
    pub shared_bytes: u32,
    /// Tensors in tensor memory, by rising column.
    pub tensor_memory: Vec<TensorBuffer>,
    /// The type of each value.
    pub values: Vec<RegType>,
    /// The register arrays.
    pub arrays: Vec<Array>,
    /// Tile statements that instructions come from, as text for messages.
    pub origins: Vec<String>,
    /// The position of the statement of each origin in its source.
    pub positions: Vec<Option<Position>>,
    /// For each origin the shared buffers that its statement names, as indices into [`Function::shared`]: those that its accesses mean
    /// where buffers lie at the same place. May be shorter than the origins: nothing is said of the rest.
    pub named: Vec<Vec<u32>>,
    /// The code that each thread runs.
    pub body: Vec<Inst>,
}

impl Function {
    /// The type of a value.
    pub fn type_of(&self, value: Value) -> RegType {
        self.values[value.0 as usize]
    }

    /// The text of an origin.
    pub fn origin(&self, id: OriginId) -> &str {
        self.origins.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The position of an origin's statement in its source.
    pub fn position(&self, id: OriginId) -> Option<Position> {
        self.positions.get(id.0 as usize).copied().flatten()
    }

    /// Calls `visit` on every instruction, a loop or branch before what it holds.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Inst)) {
        fn go<'a>(body: &'a [Inst], visit: &mut impl FnMut(&'a Inst)) {
            for inst in body {
                visit(inst);
                match &inst.op {
                    Op::For { body, .. } => go(body, visit),
                    Op::If { then, otherwise, .. } => {
                        go(then, visit);
                        go(otherwise, visit);
                    }
                    _ => {}
                }
            }
        }
        go(&self.body, visit);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Display for ArrayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.array, self.index)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Value(value) => value.fmt(f),
            Operand::Imm(bits) if *bits < 1 << 20 => write!(f, "{bits}"),
            Operand::Imm(bits) => write!(f, "{bits:#x}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => write!(f, "[{}]", self.base),
            offset => write!(f, "[{}{offset:+}]", self.base),
        }
    }
}
