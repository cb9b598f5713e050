//! The explanation of a synthesis: what was chosen for each tensor and statement, what it costs, and why each
//! alternative lost. It is data first (it serialises), text second.

use std::fmt;

use serde::Serialize;
use tilewright_machine::SwizzleMode;
use tilewright_tile::core::{Program, Stmt};
use tilewright_tile::{StmtId, TensorId, statement_text};

use crate::cost::Estimate;
use crate::plan::{PipelinePlan, ReleaseDelay};
use crate::reason::{Lost, NotTaken, Why};

/// Reasons of the compiler's choices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// One entry a register or shared tensor, in order of definition.
    pub tensors: Vec<TensorNote>,
    /// One entry a statement that moves data, multiplies or computes, in program order.
    pub statements: Vec<StatementNote>,
    /// 32-bit registers of fragments that are live at once, per thread, at most.
    pub fragment_registers: u32,
    /// Shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// The tensors in tensor memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensor_memory: Vec<ColumnsNote>,
    /// The pipelines.
    pub pipelines: Vec<PipelineNote>,
    /// The fences and waits that order accesses of threads and of asynchronous engines.
    pub synchronisation: Vec<SyncNote>,
    /// The equations over thread-value layouts.
    pub constraints: Vec<ConstraintNote>,
    /// Rearrangements that were inserted where statements clash.
    pub inserted: Vec<String>,
    /// Every candidate that was looked at.
    pub candidates: Vec<CandidateNote>,
    /// Counts of the search, and why it ended.
    pub search: SearchNote,
    /// The estimate of the chosen candidate.
    pub estimate: Estimate,
}

/// A tensor in tensor memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnsNote {
    /// Its name.
    pub name: String,
    /// The first of its columns, counted from the first that the block allocates.
    pub first: u32,
    /// Columns of all stages.
    pub columns: u32,
    /// The tensor over whose columns it lies, for they are never needed together.
    pub over: Option<String>,
}

impl fmt::Display for ColumnsNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} to {}", self.name, self.first, (self.first + self.columns).saturating_sub(1))?;
        match &self.over {
            Some(over) => write!(f, " over `{over}`"),
            None => Ok(()),
        }
    }
}

/// A pipeline: the arrivals and bytes that its barriers count, and when its stages are released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PipelineNote {
    /// Its name.
    pub name: String,
    /// The byte at which it is declared in the source text.
    pub position: u32,
    /// Its plan.
    #[serde(flatten)]
    pub plan: PipelinePlan,
}

/// A fence between threads and asynchronous engines, or a form of a wait, that was chosen or left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SyncNote {
    /// The statement, or the pipeline.
    pub text: String,
    /// The byte at which it begins in the source text.
    pub position: u32,
    /// The choice.
    pub what: String,
    /// Reason.
    pub why: String,
}

/// An equation over thread-value layouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConstraintNote {
    /// The connected component that it belongs to.
    pub component: usize,
    /// The statement that it comes from.
    pub statement: String,
    /// The equation.
    pub equation: String,
}

/// The decisions for a tensor.
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
    /// Shared tensors: the byte at which it begins in the block's shared memory.
    pub offset: u32,
    /// The reason for the layout.
    pub why: String,
}

/// The decisions for a statement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatementNote {
    /// The statement.
    #[serde(skip)]
    pub id: StmtId,
    /// The statement, as printed.
    pub text: String,
    /// Byte offset in the source (0 for programs that were not read from text).
    pub position: u32,
    /// The instruction, by name; of a copy through registers both. Of an elementwise statement the operations on one value, `(exp, 2 fma)`.
    pub instruction: String,
    /// Values of one thread for an elementwise statement; else instruction calls of one thread (per-thread instructions) or warp (collective ones).
    pub calls: u32,
    /// Bytes that one thread moves with one call; multiply-adds of one call for a matrix product.
    pub per_call: u32,
    /// Of copies: from where to where, as in the Hexcute paper's tables III and IV: `G2S`, `G2R`, `S2R`, `R2S`, `R2G` for
    /// global memory, shared memory and registers; empty for other statements.
    pub level: String,
    /// Of copies: the shared tensor, or the view of global memory where there is none; empty for other statements.
    pub tensor: String,
    /// Of copies: the tensor memory accelerator moves a whole box with one instruction.
    pub by_tma: bool,
    /// Of products of warpgroups: the shared tensors that they read by matrix descriptors, with no copy to registers.
    pub by_descriptor: Vec<String>,
    /// Of casts of elements of at most 8 bits: the values of one thread; else 0.
    pub small_values: u32,
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
    /// The instructions that were not chosen, each with its reason.
    pub alternatives: Vec<Alternative>,
}

/// An instruction that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alternative {
    /// Its name.
    pub instruction: String,
    /// Reason for which it lost.
    pub reason: String,
}

/// A candidate in a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateNote {
    /// Its number, by which it can be asked for.
    pub number: usize,
    /// The arrangement of each matrix product, one text for those that share it.
    pub arrangements: Vec<String>,
    /// The instruction of each copy that touches shared memory, in program order.
    pub instructions: Vec<String>,
    /// The estimate; none where the candidate is not possible.
    pub estimate: Option<Estimate>,
    /// True if it was chosen.
    pub chosen: bool,
    /// Reason for which it was chosen, lost, or is not possible.
    pub why: String,
}

/// The counts of a search, and why it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Default)]
pub struct SearchNote {
    /// Candidates that were looked at.
    pub candidates: usize,
    /// Candidates that the budget allows.
    pub budget: usize,
    /// Branches that ended in a clash of layouts.
    pub clashes: usize,
    /// Reason for which the search ended.
    pub stopped: String,
    /// Steps that it took ([`Budget::steps`](crate::Budget::steps)): the same on every machine.
    pub steps: u64,
    /// The seed of the order in which it went.
    pub seed: u64,
}

/// Reasons in words, with the names of a program.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// The program.
    pub verified: &'a Program,
    /// Those of its statements that reasons name.
    pub statements: &'a [(&'a Stmt, usize)],
}

impl Words<'_> {
    fn text(&self, id: StmtId) -> String {
        let stmt = self.statements.iter().find(|(stmt, _)| stmt.id == id);
        stmt.map_or_else(|| id.to_string(), |(stmt, _)| statement_text(self.verified, stmt))
    }

    fn name(&self, id: TensorId) -> &str {
        &self.verified.tensor(id).name
    }

    /// Reason for a tensor's layout.
    pub fn why(&self, why: &Why) -> String {
        match why {
            Why::Pinned => "given by the program".to_string(),
            Why::Operand { stmt, operand, by } => {
                format!("operand {operand:?} of {by}, for `{}`", self.text(*stmt))
            }
            Why::Coalesced { stmt, vector } => format!(
                "coalesces the global accesses of `{}`: {vector} contiguous elements a thread",
                self.text(*stmt)
            ),
            Why::RowVectors { stmt, vector } => {
                format!("{vector} elements of a row a thread, for `{}`", self.text(*stmt))
            }
            Why::GatherLanes { stmt, axis, lanes } => {
                format!(
                    "elements along mode {axis} in {lanes} neighbouring lanes, for `{}`",
                    self.text(*stmt)
                )
            }
            Why::ScanRuns { stmt, axis } => {
                format!("a run along mode {axis} in each thread, for `{}`", self.text(*stmt))
            }
            Why::SameAs { stmt, tensor } => {
                format!("the same as `{}`, for `{}`", self.name(*tensor), self.text(*stmt))
            }
            Why::DerivedFrom { stmt, tensor } => {
                format!("what `{}` makes of `{}`", self.text(*stmt), self.name(*tensor))
            }
            Why::RowMajor => "no statement asks for more than a row-wise one".to_string(),
            Why::Wgmma { row, warpgroups: [m, n] } => {
                format!("an operand of {} by {m} × {n} warpgroups", row.name)
            }
            Why::TensorMemory { row } => {
                format!("each warp has the rows of its own lanes of tensor memory, for {}", row.name)
            }
            Why::AsyncEngines { swizzle, tensor_copies, products } => {
                let copies = match tensor_copies {
                    1 => "a tensor copy moves it in boxes".to_string(),
                    n => format!("{n} tensor copies move it in boxes"),
                };
                let uses = match (products, tensor_copies) {
                    (Some(products), 0) => format!("{products} reads it"),
                    (Some(products), _) => format!("{products} reads it and {copies}"),
                    (None, _) => copies,
                };
                match swizzle {
                    SwizzleMode::None => format!("{uses}, without a swizzle"),
                    _ => format!("the widest swizzle with which {uses}: {swizzle}"),
                }
            }
            Why::SharedByRoles => {
                "what several roles share is laid out before each is looked at alone".to_string()
            }
            Why::Unified { constraint, stage } => {
                format!("unified from its copies: {constraint}{}", stage_text(*stage))
            }
            Why::Agreed { constraint, stage } => {
                format!("unified from the copies of all roles: {constraint}{}", stage_text(*stage))
            }
        }
    }

    /// Reason for which an instruction was not taken.
    pub fn lost(&self, lost: &Lost) -> String {
        match lost {
            Lost::Rejected(why) => why.to_string(),
            Lost::Contradicts { constraint, other, stmt, error } => {
                format!("its layout {constraint} contradicts {other} of `{}`: {error}", self.text(*stmt))
            }
            Lost::MoreCalls { calls, against } => format!("{calls} calls against {against}"),
            Lost::MoreCycles { cycles, against } => {
                format!("{cycles} issue cycles a warp without conflicts, against {against}")
            }
            Lost::DearerInAll { cycles, total } => format!(
                "{cycles} issue cycles a warp, but its bank conflicts, or the instruction it forces on another copy, raise the total above {total} cycles"
            ),
            Lost::Slower { cycles, against } => format!("{cycles} issue cycles a warp, against {against}"),
            Lost::RowBytes { tensor, bytes } => {
                let bytes: Vec<String> = bytes.iter().map(ToString::to_string).collect();
                let name = self.name(*tensor);
                format!("a row of `{name}` has {} bytes, no multiple of 16", bytes.join(" or "))
            }
        }
    }

    /// An instruction that was not taken.
    pub fn alternative(&self, other: &NotTaken) -> Alternative {
        Alternative { instruction: other.instruction.clone(), reason: self.lost(&other.why) }
    }
}

/// The distance of stages, if there are some.
fn stage_text(stage: Option<i64>) -> String {
    stage.map_or_else(String::new, |n| format!(", a stage every {n} elements"))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tensors")?;
        for t in &self.tensors {
            let shape: Vec<String> = t.shape.iter().map(ToString::to_string).collect();
            let size = if t.memory == "shared" {
                format!("{} bytes at {}", t.size, t.offset)
            } else {
                format!("{} registers a thread", t.size)
            };
            writeln!(f, "  {}: {} {} [{}], {size}", t.name, t.memory, t.dtype, shape.join(", "))?;
            writeln!(f, "      layout  {}", t.layout)?;
            writeln!(f, "      why     {}", t.why)?;
        }
        self.constraints(f)?;
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
            if s.small_values > 0 {
                write!(f, ", {:.2} a value", f64::from(s.calls) / f64::from(s.small_values))?;
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
        self.levels(f)?;
        self.pipelines(f)?;
        self.synchronisation(f)?;
        for text in &self.inserted {
            writeln!(f, "inserted {text}")?;
        }
        self.candidates(f)?;
        if !self.tensor_memory.is_empty() {
            let all: Vec<String> = self.tensor_memory.iter().map(ColumnsNote::to_string).collect();
            writeln!(f, "columns of tensor memory: {}", all.join(", "))?;
        }
        writeln!(
            f,
            "block: {} bytes of shared memory, at most {} fragment registers a thread live at once",
            self.shared_bytes, self.fragment_registers
        )
    }
}

impl Explanation {
    /// The choices, without constraints, alternatives and other candidates.
    pub fn chosen(&self) -> Explanation {
        let mut brief = self.without_search();
        brief.statements.iter_mut().for_each(|s| s.alternatives.clear());
        brief
    }

    /// Without constraints and candidates.
    pub fn without_search(&self) -> Explanation {
        Explanation { constraints: Vec::new(), candidates: Vec::new(), ..self.clone() }
    }

    fn constraints(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let components = self.constraints.iter().map(|c| c.component + 1).max().unwrap_or(0);
        for component in 0..components {
            writeln!(f, "constraints of component {component}")?;
            for c in self.constraints.iter().filter(|c| c.component == component) {
                writeln!(f, "  {}: {}", c.statement, c.equation)?;
            }
        }
        Ok(())
    }

    /// For each tensor in memory the bytes that one thread moves with one instruction, level by level (Hexcute, tables III
    /// and IV).
    fn levels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tensors: Vec<(&str, Vec<String>)> = Vec::new();
        let mut add = |tensor, entry: String| match tensors.iter_mut().find(|(name, _)| *name == tensor) {
            Some((_, entries)) if entries.contains(&entry) => {}
            Some((_, entries)) => entries.push(entry),
            None => tensors.push((tensor, vec![entry])),
        };
        for s in self.statements.iter().filter(|s| !s.level.is_empty()) {
            let by = if s.by_tma { " (TMA)" } else { "" };
            add(&s.tensor, format!("{} {}{by}", s.per_call, s.level));
        }
        for name in self.statements.iter().flat_map(|s| &s.by_descriptor) {
            add(name, "read by descriptors".to_string());
        }
        if !tensors.is_empty() {
            writeln!(f, "bytes a thread moves with one instruction")?;
        }
        for (name, entries) in tensors {
            writeln!(f, "  {name}: {}", entries.join(", "))?;
        }
        Ok(())
    }

    /// The pipelines: barriers, arrivals, byte counts, release.
    fn pipelines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pipelines.is_empty() {
            writeln!(f, "pipelines")?;
        }
        for PipelineNote { name, plan: p, .. } in &self.pipelines {
            let count = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            let (stages, barriers) = (count(p.stages, "stage"), count(2 * p.stages, "barrier"));
            writeln!(f, "  {name}: {stages}, {barriers} at {}", p.barriers)?;
            let full = count(p.full_arrivals, "arrival");
            writeln!(f, "      full     {full}, {} of tensor copies", count(p.tx_bytes, "byte"))?;
            if p.hand_over_delay > 0 {
                let late = count(p.hand_over_delay, "stage");
                writeln!(f, "      handed on {late} later, when the copies of its threads have arrived")?;
            }
            write!(f, "      empty    {}", count(p.empty_arrivals, "arrival"))?;
            match (p.pair, p.multicast) {
                (true, _) if p.sums => writeln!(f, " from both blocks of a pair, at its even one")?,
                (true, 1) => writeln!(f, " from the even block of a pair, which counts the bytes of both")?,
                (true, pairs) => writeln!(
                    f,
                    " from the even blocks of {pairs} pairs, of which each counts the bytes of both"
                )?,
                (false, 1) => writeln!(f)?,
                (false, blocks) => writeln!(f, " from {blocks} blocks")?,
            }
            let late = "when the products that read the stage are waited for";
            match p.release_delay {
                ReleaseDelay::Stages(0) => writeln!(f, "      release  at the end of `consume`")?,
                ReleaseDelay::Stages(n) => {
                    writeln!(f, "      release  {late}, at most {} later", count(n, "stage"))?
                }
                ReleaseDelay::Counted => writeln!(f, "      release  {late}, counted by age")?,
            }
        }
        Ok(())
    }

    /// The fences and waits that order accesses of threads and of asynchronous engines.
    fn synchronisation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.synchronisation.is_empty() {
            writeln!(f, "synchronisation")?;
        }
        for note in &self.synchronisation {
            writeln!(f, "  {}: {}", note.text, note.what)?;
            writeln!(f, "      {}", note.why)?;
        }
        Ok(())
    }

    /// The candidates, cheapest first, and how the search went.
    fn candidates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.candidates.is_empty() {
            return Ok(());
        }
        let mut order: Vec<&CandidateNote> = self.candidates.iter().collect();
        order.sort_by_key(|c| (!c.chosen, c.estimate.as_ref().map_or(u64::MAX, |e| e.cycles), c.number));
        writeln!(f, "candidates: {} looked at, {}", self.search.candidates, self.search.stopped)?;
        for c in order {
            let cycles = c.estimate.as_ref().map_or("-".to_string(), |e| e.cycles.to_string());
            let mark = if c.chosen { "*" } else { " " };
            write!(f, "  {mark}{:>3}  {cycles:>9} cycles", c.number)?;
            match c.arrangements.as_slice() {
                [] => writeln!(f)?,
                arrangements => writeln!(f, "  {}", arrangements.join("; "))?,
            }
            writeln!(f, "         {}", c.instructions.join(", "))?;
            writeln!(f, "         {}", c.why)?;
        }
        Ok(())
    }
}
