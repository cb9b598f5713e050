//! A compiled kernel: everything a launch needs, and nothing else.

use std::borrow::Cow;

use tilewright_lower::MapRecipe;
use tilewright_ptx::Lines;
use tilewright_simt::Function;
use tilewright_simt::record::{self, Recording};
use tilewright_synth::Explanation;
use tilewright_tile::{Expr, Program, SymbolId, Verified, core};

use crate::PassTime;

/// A compiled kernel, as a value.
///
/// A launch passes, in this order: for each parameter of the tile program a pointer (tensors) or an `f32` (scalars), then
/// each run-time size as a signed 32-bit integer, then the tensor maps by value. The grid comes from [`Kernel::verified`] and the sizes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// The program it was compiled from, verified and folded over the tile constants.
    pub verified: Verified,
    /// The core program: what its parts were synthesised from.
    pub core: core::Program,
    /// The thread-level program: what the simulator executes.
    pub function: Function,
    /// The sites of [`Kernel::ptx`] that record assertions and prints, of a kernel that was compiled with
    /// [`Options::debug`](crate::Options::debug) and has some: a launch passes the address of
    /// [a buffer](tilewright_simt::record::BUFFER_BYTES) behind all other parameters.
    pub recording: Option<Recording>,
    /// Recipes of the function's tensor maps, one each, by which a launch makes them.
    pub maps: Vec<MapRecipe>,
    /// The PTX text: what a driver loads. Its entry point is [`Function::name`].
    pub ptx: String,
    /// The source lines of the instructions of [`Kernel::ptx`]: none unless [`Options::lines`](crate::Options::lines) asked for them.
    pub lines: Lines,
    /// Assumptions of the code: each size is a multiple of its number. A launch with other sizes is refused.
    pub assumptions: Vec<Assumption>,
    /// Reasons of the compiler's choices.
    pub explanation: Explanation,
    /// Duration of each pass, in order.
    pub times: Vec<PassTime>,
}

/// A size that the compiled code takes to be a multiple of a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assumption {
    /// The size's name.
    pub size: String,
    /// The size is a multiple of this.
    pub multiple: i64,
}

impl Kernel {
    /// The program, folded over the tile constants.
    pub fn program(&self) -> &Program {
        self.verified.program()
    }

    /// This kernel with other code behind the same parameters: a thread-level program, and its PTX text as it is printed.
    pub fn with_function(&self, function: Function) -> Kernel {
        let ptx = tilewright_ptx::print(&function);
        Kernel { function, ptx, lines: Lines::default(), ..self.clone() }
    }

    /// The PTX text of one module with all of these kernels, compiled for one architecture and of different names, at least one: each is an entry point, as in its
    /// own [text](Kernel::ptx).
    pub fn module(kernels: &[&Kernel]) -> String {
        let functions: Vec<Cow<'_, Function>> = kernels.iter().map(|kernel| kernel.printed()).collect();
        let lines = kernels.iter().map(|kernel| &kernel.lines);
        let with_lines: Vec<(&Function, &Lines)> = functions.iter().map(Cow::as_ref).zip(lines).collect();
        tilewright_ptx::print_module(&with_lines)
    }

    /// The function that [`Kernel::ptx`] prints: where assertions and prints are recorded, with what records them.
    fn printed(&self) -> Cow<'_, Function> {
        let recorded = self.recording.as_ref().and_then(|_| record::recorded(&self.function));
        recorded.map_or(Cow::Borrowed(&self.function), |(function, _)| Cow::Owned(function))
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.function.threads
    }

    /// Bytes of dynamic shared memory that a launch asks for.
    pub fn shared_bytes(&self) -> u32 {
        self.function.shared_bytes
    }

    /// An assembler's messages about [`Kernel::ptx`], each that names a line of it with the statement that the line was made for.
    pub fn explain_log(&self, log: &str) -> String {
        let explained = |line: &str| match self.statement_named(line) {
            Some(statement) => format!("{line} (of `{statement}`)"),
            None => line.to_string(),
        };
        log.lines().map(explained).collect::<Vec<_>>().join("\n")
    }

    /// The statement that the line of PTX was made for which a message names as `line 12`.
    fn statement_named(&self, message: &str) -> Option<&str> {
        let behind = message.split_once("line ")?.1;
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        let before: Vec<&str> = self.ptx.lines().take(behind[..digits].parse().ok()?).collect();
        before.iter().rev().find_map(|line| line.strip_prefix("    // "))
    }

    /// The first assumption that these sizes (by symbol) break.
    pub fn broken_assumption(&self, size: impl Fn(SymbolId) -> i64) -> Option<(&Assumption, i64)> {
        self.program().sizes().find_map(|(id, symbol, _)| {
            let assumption = self.assumptions.iter().find(|a| a.size == symbol.name)?;
            let value = size(id);
            (value % assumption.multiple != 0).then_some((assumption, value))
        })
    }

    /// The grid's extents as expressions over sizes.
    pub fn grid(&self) -> &[Expr] {
        &self.program().grid
    }
}
