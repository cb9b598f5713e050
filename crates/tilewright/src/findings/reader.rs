//! A kernel whose findings are told, and how deep messages go.

use tilewright_compiler::Kernel;
use tilewright_runtime::Sizes;
use tilewright_tile::Diagnostic;

use super::statements::Statements;

/// Depth of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// Statements, tensors, roles, pipelines and stages.
    #[default]
    Program,
    /// Notes on threads, instructions, bytes, mbarriers and parities beside them.
    Machine,
}

/// A kernel whose findings are told.
pub(super) struct Reader<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) sizes: &'a Sizes,
    pub(super) statements: Statements<'a>,
    detail: Detail,
}

impl<'a> Reader<'a> {
    pub(super) fn new(kernel: &'a Kernel, sizes: &'a Sizes, detail: Detail) -> Self {
        Reader { kernel, sizes, statements: Statements::new(kernel), detail }
    }

    /// The message in the author's words, with a note on the machine where it is asked for.
    pub(super) fn told(
        &self,
        diagnostic: Diagnostic,
        machine: impl IntoIterator<Item = String>,
    ) -> Diagnostic {
        let mut diagnostic = diagnostic;
        if self.detail == Detail::Machine {
            diagnostic.notes.extend(machine);
        }
        self.kernel.program().unnamed().in_words_of(self.kernel.core.unnamed().in_words_of(diagnostic))
    }
}
