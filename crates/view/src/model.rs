//! The data of a page.

use std::collections::BTreeMap;

use serde::Serialize;
use tilewright::runtime::Sizes;
use tilewright::sim::{Phase, Profile, SharedRequest, Trace};
use tilewright::synth::cost::Estimate;
use tilewright::synth::{
    Alternative, CandidateNote, ConstraintNote, PipelineNote, SearchNote, StatementNote, SyncNote,
};
use tilewright::tile::{Diagnostic, Sources};

/// The kernels of a file with all that a page shows of them.
#[derive(Debug, Serialize)]
pub struct Page {
    /// The version of Tilewright.
    pub version: &'static str,
    /// Words of the language that are no calls, and those of them that are element types, for the colours of the text.
    pub words: [Vec<&'static str>; 2],
    /// The texts that places are in, the program's own first.
    pub files: Vec<SourceFile>,
    /// The kernels, in the order of the file.
    pub kernels: Vec<Kernel>,
    #[serde(skip)]
    pub(crate) sources: Sources,
}

/// A text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceFile {
    /// The path, for people.
    pub path: String,
    /// The text.
    pub text: String,
}

/// A place in a text. Lines and columns count from 1, columns in UTF-16 code units, as JavaScript and language servers count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Place {
    /// Index of the file.
    pub file: usize,
    /// The first line.
    pub line: usize,
    /// The first column.
    pub column: usize,
    /// The last line.
    pub end_line: usize,
    /// One past the last column.
    pub end_column: usize,
}

/// A kernel.
#[derive(Debug, Serialize)]
pub struct Kernel {
    /// The name.
    pub name: String,
    /// The architecture that it is compiled for.
    pub arch: String,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// The sizes that it is compiled for.
    pub sizes: Sizes,
    /// Values of the tile constants.
    pub constants: BTreeMap<String, i64>,
    /// Sizes with the number that each is a multiple of.
    pub assumptions: Vec<(String, i64)>,
    /// Blocks along x, y and z at the sizes; none where the grid has no extent.
    pub grid: Option<[u32; 3]>,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Bytes of shared memory that a block may have.
    pub shared_limit: u32,
    /// 32-bit registers of a thread for fragments that are live at once, at most.
    pub fragment_registers: u32,
    /// The estimate at the sizes.
    pub estimate: Estimate,
    /// Passes with the milliseconds that each took.
    pub passes: Vec<(String, f64)>,
    /// Roles of warpgroups; none where all threads do the same.
    pub roles: Vec<Role>,
    /// Register and shared tensors.
    pub tensors: Vec<Tensor>,
    /// Tensors and barriers in shared memory, by rising offset.
    pub buffers: Vec<Buffer>,
    /// Statements, in the order of the text.
    pub statements: Vec<Statement>,
    /// Pipelines.
    pub pipelines: Vec<Pipeline>,
    /// Fences and waits that were chosen or left out, each with the index of its statement.
    pub synchronisation: Vec<(Option<usize>, SyncNote)>,
    /// Rearrangements that were inserted where statements clash.
    pub inserted: Vec<String>,
    /// Equations over thread-value layouts.
    pub constraints: Vec<ConstraintNote>,
    /// Candidates that were looked at.
    pub candidates: Vec<CandidateNote>,
    /// Counts of the search.
    pub search: SearchNote,
    /// PTX beside the statements.
    pub ptx: Ptx,
    /// Warnings, and what the simulator found.
    pub messages: Vec<Message>,
    /// A run on the simulator.
    pub run: Option<Run>,
    /// Reason why there is none.
    pub not_run: Option<String>,
}

/// Warpgroups that do something of their own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Role {
    /// The name.
    pub name: String,
    /// Its first warp in the block.
    pub first_warp: u32,
    /// Its warps.
    pub warps: u32,
    /// Registers of each thread; none: an even share.
    pub registers: Option<u32>,
}

/// A register or shared tensor with its layout.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tensor {
    /// The name in the core program, which has a tensor for each part and each iteration that was unrolled.
    pub name: String,
    /// The name in the text; none of the value of an expression.
    pub word: Option<String>,
    /// Of a tensor that the author did not name, the expression whose value it holds.
    pub expression: Option<String>,
    /// The place of its definition.
    pub place: Option<Place>,
    /// `register` or `shared`.
    pub memory: String,
    /// Element type.
    pub dtype: String,
    /// Bits of an element.
    pub bits: u32,
    /// The shape.
    pub shape: Vec<i64>,
    /// The layout, as text.
    pub layout: String,
    /// Of a register tensor: (extent, stride) pairs of the thread mode, leftmost fastest.
    pub threads: Vec<(i64, i64)>,
    /// Of a register tensor: those of the value mode.
    pub values: Vec<(i64, i64)>,
    /// Of a shared tensor: (extent, stride in elements) pairs of each mode.
    pub modes: Vec<Vec<(i64, i64)>>,
    /// Of a shared tensor: bits, base and shift of the swizzle of offsets in elements.
    pub swizzle: [u32; 3],
    /// Register tensors: 32-bit registers of a thread. Shared tensors: bytes.
    pub size: u32,
    /// Shared tensors: the first byte in the block's shared memory.
    pub offset: u32,
    /// Reason for the layout.
    pub why: String,
}

/// A part of the block's shared memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Buffer {
    /// The tensor, or what else is there.
    pub name: String,
    /// The first byte.
    pub offset: u32,
    /// Bytes.
    pub bytes: u32,
}

/// A pipeline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pipeline {
    /// Names of the shared tensors of a stage.
    pub tensors: Vec<String>,
    /// Its barriers, and when stages are released.
    #[serde(flatten)]
    pub note: PipelineNote,
}

/// Kind of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Moves data from or to global memory.
    Global,
    /// Moves data between shared memory and registers.
    Shared,
    /// Multiplies matrices.
    Product,
    /// Computes on elements, or moves them between registers.
    Compute,
    /// Waits, or orders what others do.
    Synchronisation,
    /// Loops, branches, roles, and what belongs to no statement.
    Control,
}

/// A statement at a place of the text, with all that became of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Statement {
    /// Place of its first byte; none of what no text stands for.
    pub place: Option<Place>,
    /// Calls of functions that led there, the innermost first.
    pub calls: Vec<CallSite>,
    /// The statement, as printed: of one that was unrolled, the first.
    pub text: String,
    /// Its kind.
    pub kind: Kind,
    /// Index of the role that it belongs to.
    pub role: Option<usize>,
    /// Names of the register and shared tensors that it reads or writes.
    pub tensors: Vec<String>,
    /// Decisions: several where iterations that were unrolled differ.
    pub choices: Vec<Choice>,
    /// Costs of its instructions in the run on the simulator.
    pub costs: Vec<Profile>,
}

/// A call of a function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CallSite {
    /// The function.
    pub name: String,
    /// The place of the call.
    pub place: Place,
}

/// A decision about a statement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// Copies of the statement for which the same was decided.
    pub count: usize,
    /// The decision.
    #[serde(flatten)]
    pub note: StatementNote,
    /// Reasons, each with the instructions that lost for it.
    pub lost: Vec<(String, Vec<String>)>,
}

impl Choice {
    /// That of a note, its alternatives by their reasons.
    pub(crate) fn of(mut note: StatementNote) -> Self {
        let mut lost: Vec<(String, Vec<String>)> = Vec::new();
        for Alternative { instruction, reason } in std::mem::take(&mut note.alternatives) {
            match lost.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(instruction),
                None => lost.push((reason, vec![instruction])),
            }
        }
        Choice { count: 1, note, lost }
    }
}

/// A kernel's PTX without its line table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Ptx {
    /// The lines.
    pub lines: Vec<String>,
    /// By line, the index of the statement that it was made for: of those at one place (a function's, called several times) the first.
    pub statements: Vec<Option<usize>>,
    /// True if lines were left out at the end.
    pub cut: bool,
}

/// A message about the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Message {
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The code.
    pub code: String,
    /// The sentence.
    pub message: String,
    /// A few words for the place.
    pub label: String,
    /// The place.
    pub place: Option<Place>,
    /// Other places that take part.
    pub related: Vec<Related>,
    /// Facts beside it, a sentence each.
    pub notes: Vec<String>,
    /// The remedy.
    pub help: Option<String>,
}

/// Another place of a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Related {
    /// The place.
    pub place: Option<Place>,
    /// A few words.
    pub message: String,
}

/// A run of a kernel.
#[derive(Debug, Serialize)]
pub struct Run {
    /// The sizes of the run.
    pub sizes: Sizes,
    /// True if they are smaller than those that the kernel is compiled for.
    pub smaller: bool,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// The comparison with the interpreter in a word.
    pub verdict: String,
    /// True if every output is right and the simulator found nothing.
    pub right: bool,
    /// The outputs.
    pub results: Vec<Result>,
    /// Cycles, as estimated from what was executed.
    pub cycles: u64,
    /// Wavefronts of shared memory.
    pub shared_wavefronts: u64,
    /// Of those, the ones that bank conflicts added.
    pub shared_conflicts: u64,
    /// 32-byte sectors of global memory.
    pub global_sectors: u64,
    /// One cluster, cycle by cycle.
    pub timeline: Timeline,
    /// By instruction, the request of a warp of that cluster to shared memory that took the most wavefronts.
    pub requests: Vec<Request>,
    #[serde(skip)]
    pub(crate) profile: Vec<Profile>,
    #[serde(skip)]
    pub(crate) trace: Option<Trace>,
    #[serde(skip)]
    pub(crate) findings: Vec<Diagnostic>,
    #[serde(skip)]
    pub(crate) warnings: Vec<Diagnostic>,
}

/// The comparison of an output with the interpreter's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Result {
    /// The output.
    pub name: String,
    /// Elements that are wrong.
    pub wrong: usize,
    /// The comparison as a sentence.
    pub text: String,
}

/// The execution of a cluster by the simulator's cycle model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Timeline {
    /// Cycles until the last event ends.
    pub cycles: u64,
    /// The cycle from which on events are left out.
    pub cut: Option<u64>,
    /// Warps and units.
    pub tracks: Vec<Track>,
    /// Texts that events name.
    pub names: Vec<String>,
    /// The events, column by column.
    pub events: Events,
    /// The ends of phases of pipelines' stages.
    pub phases: Vec<Phase>,
}

/// A warp or a unit of a block.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Track {
    /// The block's number in the grid.
    pub block: u64,
    /// The name.
    pub name: String,
    /// Of a warp, its number in the block.
    pub warp: Option<u32>,
    /// Index of the role that it belongs to.
    pub role: Option<usize>,
}

/// Events, a column for each property; those of a track follow each other.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Events {
    /// Index of the track.
    pub track: Vec<usize>,
    /// The first cycle.
    pub start: Vec<u64>,
    /// Cycles.
    pub cycles: Vec<u64>,
    /// Index in `statement`, `wait`, `copy`, `product`.
    pub category: Vec<usize>,
    /// Index of the statement.
    pub statement: Vec<Option<usize>>,
    /// Index of the name.
    pub name: Vec<usize>,
    /// Bytes that are moved.
    pub bytes: Vec<u64>,
    /// Cycles in which a warp waits for operands or a busy unit.
    pub stall: Vec<u64>,
    /// Of a copy, the cycle at which its bytes are there; else 0.
    pub lands: Vec<u64>,
}

/// The request of a warp to shared memory with the most wavefronts of a statement's instruction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Request {
    /// Index of the statement.
    pub statement: Option<usize>,
    /// Name of the tensor that it accesses; none of memory that statements use for themselves.
    pub tensor: Option<String>,
    /// The request.
    #[serde(flatten)]
    pub request: SharedRequest,
}
