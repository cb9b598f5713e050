//! The explanation of a synthesis: what was chosen for each tensor and statement, what it costs, and why each
//! alternative lost. It is data first (it serialises), text second.

use std::fmt;

use serde::Serialize;

/// Why the compiler did what it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// One entry a register or shared tensor, in order of definition.
    pub tensors: Vec<TensorNote>,
    /// One entry a statement that moves data or multiplies, in program order.
    pub statements: Vec<StatementNote>,
    /// 32-bit registers of fragments that are live at once, per thread, at most.
    pub fragment_registers: u32,
    /// Shared memory of a block in bytes.
    pub shared_bytes: u32,
}

/// What was decided for a tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorNote {
    /// Its name.
    pub name: String,
    /// `register` or `shared`.
    pub memory: String,
    /// Element type.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<i64>,
    /// Its layout, in the text form of the layout crate.
    pub layout: String,
    /// Register tensors: 32-bit registers a thread. Shared tensors: bytes.
    pub size: u32,
    /// Where the layout comes from.
    pub why: String,
}

/// What was decided for a statement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatementNote {
    /// The statement, as printed.
    pub text: String,
    /// Byte offset in the source (0 for programs that were not read from text).
    pub position: u32,
    /// The instruction, by name; of a copy through registers both.
    pub instruction: String,
    /// Instruction calls of one thread (per-thread instructions) or warp (collective ones).
    pub calls: u32,
    /// Bytes that one thread moves with one call; multiply-adds of one call for a matrix product.
    pub per_call: u32,
    /// Contiguous bytes at one global address; 0 if global memory takes no part.
    pub global_bytes: u32,
    /// Contiguous bytes at one shared address; 0 if shared memory takes no part.
    pub shared_bytes: u32,
    /// Of the calls, those that access shared memory.
    pub shared_calls: u32,
    /// Shared-memory wavefronts of one execution by the whole block.
    pub wavefronts: u32,
    /// Of those, the ones that bank conflicts add.
    pub bank_conflicts: u32,
    /// Issue cycles of one execution by one warp, conflicts included.
    pub cycles: u32,
    /// What else was possible, and why it lost.
    pub alternatives: Vec<Alternative>,
}

/// An instruction that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alternative {
    /// Its name.
    pub instruction: String,
    /// Why it lost.
    pub reason: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tensors")?;
        for t in &self.tensors {
            let shape: Vec<String> = t.shape.iter().map(ToString::to_string).collect();
            let size = if t.memory == "shared" {
                format!("{} bytes", t.size)
            } else {
                format!("{} registers a thread", t.size)
            };
            writeln!(f, "  {}: {} {} [{}], {size}", t.name, t.memory, t.dtype, shape.join(", "))?;
            writeln!(f, "      layout  {}", t.layout)?;
            writeln!(f, "      why     {}", t.why)?;
        }
        writeln!(f, "statements")?;
        for s in &self.statements {
            writeln!(f, "  {}", s.text)?;
            write!(f, "      {} × {}", s.calls, s.instruction)?;
            if s.global_bytes > 0 {
                write!(f, ", {}-byte global accesses", s.global_bytes)?;
            }
            if s.shared_bytes > 0 {
                write!(
                    f,
                    ", {}-byte shared accesses, {} bank conflicts in {} wavefronts",
                    s.shared_bytes, s.bank_conflicts, s.wavefronts
                )?;
            }
            writeln!(f, ", {} cycles a warp", s.cycles)?;
            // Alternatives that lost for one reason share a line.
            let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
            for a in &s.alternatives {
                match groups.iter_mut().find(|(_, reason)| *reason == a.reason) {
                    Some((names, _)) => names.push(&a.instruction),
                    None => groups.push((vec![&a.instruction], &a.reason)),
                }
            }
            for (names, reason) in groups {
                writeln!(f, "      not {}: {reason}", names.join(", "))?;
            }
        }
        writeln!(
            f,
            "block: {} bytes of shared memory, at most {} fragment registers a thread live at once",
            self.shared_bytes, self.fragment_registers
        )
    }
}
