//! Codes of messages, as one table: each has a name, a kind, a sentence that says what it means, and a page, `docs/codes/NAME.md`, with a wrong and
//! a right program. `crates/cli/tests/codes.rs` runs both.
//!
//! A new code is a row here and a page: without the page this does not compile. A page has the sentence of the row, the meaning with usual causes and
//! remedies, `## Wrong` with a program and the command that finds it, `## Right` with the same program mended; `TILEWRIGHT_BLESS=1` writes what the command
//! prints.

use std::fmt;

use crate::nearest::nearest;

/// The stage that finds a mistake, which is also how bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The program is refused: by the parser, the verifier, synthesis, lowering, the interpreter or a launch; or a run on the simulator finds it wrong.
    Error,
    /// The interpreter, which follows what a run reads and writes, warns of it.
    Warning,
    /// A lint warns of it, without a run; a text may allow it by its name.
    Lint,
}

/// Makes [`Code`] of a table: by kind the codes, each with its sentence and its name.
macro_rules! codes {
    ($($kind:ident { $($(#[doc = $doc:literal])+ $code:ident = $name:literal,)+ })+) => {
        /// The kind of mistake that a [`Diagnostic`](crate::Diagnostic) is about. The text form is stable: tools may match on it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Code {
            $($($(#[doc = $doc])+ $code,)+)+
        }

        impl Code {
            /// Every code, in the order of its kind.
            pub const ALL: &'static [Code] = &[$($(Code::$code,)+)+];

            /// The stable text form, e.g. `shape-mismatch`.
            pub fn name(self) -> &'static str {
                match self { $($(Code::$code => $name,)+)+ }
            }

            /// The stage that finds it.
            pub fn kind(self) -> Kind {
                match self { $($(Code::$code => Kind::$kind,)+)+ }
            }

            /// Meaning, as one sentence.
            pub fn summary(self) -> &'static str {
                match self { $($(Code::$code => concat!($($doc),+).trim_ascii_start(),)+)+ }
            }

            /// The page that explains it, `docs/codes/NAME.md`, in Markdown: its meaning, a wrong program with what is printed, and a right one.
            pub fn page(self) -> &'static str {
                match self { $($(Code::$code => include_str!(concat!("../codes/", $name, ".md")),)+)+ }
            }
        }
    };
}

codes! {
    Error {
        /// The text is not a program of the language's grammar.
        Syntax = "syntax",
        /// A name is used that nothing declares.
        UnknownName = "unknown-name",
        /// A name is declared twice.
        DuplicateName = "duplicate-name",
        /// A number or an expression has no legal value here (a tile size of zero, a division by zero, an overflow).
        BadValue = "bad-value",
        /// A tensor has the wrong number of modes.
        WrongRank = "wrong-rank",
        /// Two shapes that must be equal are not.
        ShapeMismatch = "shape-mismatch",
        /// An operand lives in a memory the statement cannot use.
        WrongMemory = "wrong-memory",
        /// Element types do not fit together.
        TypeMismatch = "type-mismatch",
        /// No instruction or no layout satisfies the statement's constraints; other shapes, types or layouts would.
        Unsatisfiable = "unsatisfiable",
        /// Two layout constraints contradict each other.
        LayoutConflict = "layout-conflict",
        /// The block's shared tensors do not fit.
        SharedMemoryExceeded = "shared-memory-exceeded",
        /// The block's register tensors do not fit.
        RegistersExceeded = "registers-exceeded",
        /// The architecture is unknown or lacks something the program needs.
        UnsupportedArchitecture = "unsupported-architecture",
        /// A launch that is not possible: threads or grid outside what the hardware takes, sizes or arguments that do not fit.
        BadLaunch = "bad-launch",
        /// A statement stands where it cannot (outside its stage, its role, before a wait), or lacks its counterpart.
        Misplaced = "misplaced",
        /// Roles wait for each other for ever.
        Deadlock = "deadlock",
        /// Results depend on which rows enter an `if any` beside those that must.
        RowsDiffer = "rows-differ",
        /// Two accesses to the same elements, at least one of which writes, with nothing that orders them.
        Race = "race",
        /// Memory is touched while an asynchronous copy or product still reads or writes it.
        InFlight = "in-flight",
        /// An access outside of the memory that its tensor has.
        OutOfBounds = "out-of-bounds",
        /// An access at an address that is no multiple of its size.
        Misaligned = "misaligned",
        /// Memory or a register is read that nothing has written.
        Uninitialised = "uninitialised",
        /// A rule of barriers, pipelines or asynchronous engines is broken.
        Protocol = "protocol",
        /// A block executes more instructions than a run is given.
        Endless = "endless",
        /// Elements of an output are not what the interpreter computes.
        WrongResult = "wrong-result",
        /// An assertion of the program does not hold.
        Assertion = "assertion",
        /// A function that puts elements together gives another result where others of them are put together first.
        NotAssociative = "not-associative",
        /// Blocks of a cluster do not do alike what they do together.
        BlocksDiffer = "blocks-differ",
        /// A device that is not there, or that cannot run the kernel.
        NoDevice = "no-device",
        /// A device, its driver or a library failed.
        DeviceFailed = "device-failed",
        /// A run that would take more time or memory than there is.
        TooLarge = "too-large",
        /// A task does with a tensor what it has no privilege for.
        Privilege = "privilege",
        /// A task does not write every element of a tensor that it has as `write`.
        NotWritten = "not-written",
        /// Two arguments of a launch have elements in common, and one of them is written.
        Overlap = "overlap",
        /// Iterations of a `prange` touch the same element, and one of them writes it.
        ParallelWrites = "parallel-writes",
        /// A piece that a partition does not have, or a partition that does not fit its tensor.
        PartitionBounds = "partition-bounds",
        /// A tunable of an instance has no value, or none that it can have.
        Tunable = "tunable",
        /// A launch for which a mapping has no instance.
        Unmapped = "unmapped",
        /// A launch for which a mapping has several instances, or a name that stands for several things.
        Ambiguous = "ambiguous",
        /// A processor level that the architecture or the place in the tree of instances does not allow.
        Level = "level",
        /// A memory in which an instance cannot hold a tensor.
        Memory = "memory",
        /// A tensor without a memory of its own, which two uses want in different places.
        None = "none",
        /// A statement that cannot be shared out over processors as a mapping has it.
        NotSeparable = "not-separable",
        /// A launch cannot be moved to a later iteration.
        Late = "late",
        /// A program and a mapping for which there is no tile program.
        NotEmitted = "not-emitted",
        /// A core program that was given as text violates an invariant of core programs.
        Invariant = "invariant",
        /// The compiler itself is wrong, not the program.
        Internal = "internal",
    }
    Warning {
        /// Elements of an output that nothing writes.
        PartlyWritten = "partly-written",
        /// Elements of an input that nothing reads.
        PartlyRead = "partly-read",
        /// Elements of an output that are written more than once, with different values.
        WrittenAgain = "written-again",
        /// A result that is overwritten before anything reads it, or that nothing reads.
        OverwrittenUnread = "overwritten-unread",
        /// An output depends on elements of a register or shared tensor that nothing had written.
        ReadUnwritten = "read-unwritten",
        /// Elements of an output that are no numbers (NaN), though all inputs are numbers.
        NotANumber = "not-a-number",
        /// An output that is 0 everywhere, though its inputs are not.
        AllZero = "all-zero",
    }
    Lint {
        /// `block.y` or `block.z` in a kernel whose grid has no such extent.
        IdleAxis = "idle-axis",
        /// A tensor that no statement uses, or a result that nothing reads.
        UnusedTensor = "unused-tensor",
        /// A register or shared tensor that is read before any statement has written it.
        ReadBeforeWrite = "read-before-write",
        /// A barrier that orders nothing.
        IdleBarrier = "idle-barrier",
        /// An accumulator that is filled anew in every iteration of the loop that adds to it.
        FillInAccumulation = "fill-in-accumulation",
        /// A grid whose blocks do not reach all of an output.
        ShortGrid = "short-grid",
        /// A loop that ends before the last iteration of a view.
        ShortLoop = "short-loop",
        /// A view whose tiles overlap, or leave elements out.
        StepOfView = "step-of-view",
        /// Roles that go through a pipeline in different orders, or a different number of times.
        RolesDiffer = "roles-differ",
        /// A reduction over elements that lie outside of a tensor.
        UnmaskedEdge = "unmasked-edge",
        /// Tensors that lie along different modes of their buffers are combined, or stored elsewhere than they belong.
        AxesMixed = "axes-mixed",
        /// A coordinate within a tile that is used as if it were one of the tensor.
        TileCoordinate = "tile-coordinate",
        /// A sum over the elements of a tensor that is divided by the tile's extent.
        TileExtent = "tile-extent",
        /// Sums relative to a running maximum that are not scaled where it grows.
        NotRescaled = "not-rescaled",
        /// A scan by chunks whose carry is overwritten, or that begins anew in each.
        CarryLost = "carry-lost",
        /// A reduction over a block's part, where others are put together over the cluster.
        PartOfCluster = "part-of-cluster",
        /// A sum over many iterations that is kept in 16 bits.
        NarrowSum = "narrow-sum",
        /// A running maximum or minimum that begins with a number that data may not reach.
        ExtremumStart = "extremum-start",
        /// A scale for signed numbers that is the maximum of the numbers, and not of their magnitudes.
        SignedScale = "signed-scale",
        /// A logarithm of a sum of exponentials to which the maximum is not added again.
        MaximumNotAdded = "maximum-not-added",
        /// An expression that has one value whatever its operands hold.
        ConstantResult = "constant-result",
        /// A reduction over groups of a reshaped tensor that are not of neighbours.
        ReshapeByRows = "reshape-by-rows",
        /// An accumulator that is stored for each tile and never begins anew.
        SumNotReset = "sum-not-reset",
        /// A term that does not belong to a part of a sum, and is added with every part.
        RepeatedTerm = "repeated-term",
        /// A function that is not linear, of a part of a sum.
        FunctionOfPart = "function-of-part",
        /// A scale by which the largest magnitude becomes more than the narrow type holds.
        ScaleBeyondType = "scale-beyond-type",
        /// Strides by which several elements of a parameter have one place.
        StridesOverlap = "strides-overlap",
        /// A softmax whose exponentials overflow, for no maximum is subtracted.
        MaximumNotSubtracted = "maximum-not-subtracted",
        /// A mask that sets scores of a softmax to a number whose exponential counts.
        MaskWithWeight = "mask-with-weight",
        /// A softmax whose maximum or sum belongs to another axis than it is used along.
        SoftmaxAxis = "softmax-axis",
        /// Blocks of the grid all of whose tiles lie outside.
        IdleBlocks = "idle-blocks",
        /// An iteration of a view behind its last, which reads nothing.
        IndexBeyond = "index-beyond",
        /// `// allow:` with a name that no lint has.
        UnknownLint = "unknown-lint",
    }
}

impl Code {
    /// The code of a name.
    pub fn named(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// The code whose name is nearest to this, if one is near.
    pub fn nearest(name: &str) -> Option<Code> {
        Code::named(nearest(name, Code::ALL.iter().map(|code| code.name()))?)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
