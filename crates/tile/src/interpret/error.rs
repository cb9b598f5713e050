//! Errors of an interpretation.

use super::wait::{Wait, who};
use crate::diagnostic::{Code, Diagnostic};

/// An error of an interpretation: the launch is not possible, or what the program does has no meaning.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum InterpretError {
    /// A size is given that the kernel does not declare.
    #[error("the kernel has no size `{name}`; it has {known}")]
    UnknownSize {
        /// The name given.
        name: String,
        /// The names declared.
        known: String,
    },
    /// A size is less than 1.
    #[error("the size `{name}` is {value}; it must be at least 1")]
    BadSize {
        /// The size.
        name: String,
        /// The value given.
        value: i64,
    },
    /// The number of arguments is not the number of parameters.
    #[error("the kernel has {expected} parameters, and {found} arguments are given")]
    ArgumentCount {
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// A number is given for a tensor, or a tensor for a number.
    #[error("the parameter `{param}` is a {expected}")]
    ArgumentKind {
        /// The parameter.
        param: String,
        /// `tensor` or `number`.
        expected: &'static str,
    },
    /// A tensor argument has the wrong number of elements.
    #[error("the tensor `{param}` spans {expected} elements, and {found} are given")]
    ArgumentLength {
        /// The parameter.
        param: String,
        /// The number of elements that shape and strides span.
        expected: usize,
        /// The elements given.
        found: usize,
    },
    /// An expression divides by zero or overflows at these sizes.
    #[error("{what} has no value: it divides by zero or overflows")]
    NoValue {
        /// The expression.
        what: String,
    },
    /// An integer of the kernel does not fit in the 32 bits that kernels compute with, at these sizes.
    #[error("{what} can reach {value}: the integers of a kernel have 32 bits")]
    TooWide {
        /// The expression.
        what: String,
        /// A value it can take.
        value: i64,
    },
    /// Types clash in an elementwise expression, which the verifier refuses.
    #[error("`{statement}`: the types of its operands clash")]
    TypeClash {
        /// The statement.
        statement: String,
    },
    /// An index of a tensor is outside its mode.
    #[error(
        "`{statement}`: the index {index} is outside mode {mode} of `{tensor}`, which has extent {extent}"
    )]
    IndexOutside {
        /// The statement.
        statement: String,
        /// The tensor.
        tensor: String,
        /// The mode.
        mode: usize,
        /// The index.
        index: i64,
        /// The mode's extent.
        extent: i64,
    },
    /// An element is read or written between an asynchronous copy or product that writes it and the wait that completes that, or
    /// written while one reads it.
    #[error(
        "`{statement}` {access} an element of `{tensor}` that `{flight}` has in flight: no wait covers it yet"
    )]
    InFlight {
        /// The statement that comes too early.
        statement: String,
        /// `reads` or `writes`.
        access: &'static str,
        /// The shared or register tensor.
        tensor: String,
        /// The asynchronous copy or product.
        flight: String,
    },
    /// A copy to global memory that no wait completes.
    #[error("`{flight}` is still in flight at the end: its writes are done once a `wait_group` covers it")]
    NeverWaitedFor {
        /// The asynchronous copy.
        flight: String,
    },
    /// A stage is to be read, and the role that fills the stages has ended.
    #[error("`{}` has no stage to read: {} produced {}", wait.statement(), who(role), stages(*filled))]
    NoStage {
        /// The role that waits.
        wait: Box<Wait>,
        /// The role that fills the stages.
        role: Option<String>,
        /// Number of stages that it has filled.
        filled: usize,
    },
    /// Stages are filled that a role does not read.
    #[error(
        "`produce {pipeline}` filled {} that {} does not read, of {filled} {}",
        stages(*left), who(role), if *ended { "in all" } else { "before it waits for a free one" }
    )]
    UnreadStages {
        /// The pipeline.
        pipeline: String,
        /// The role that should read them.
        role: Option<String>,
        /// Number of stages that it does not read.
        left: usize,
        /// Number of stages filled.
        filled: usize,
        /// True if the role that fills them has ended; otherwise it waits for a free stage.
        ended: bool,
    },
    /// A slice begins where it does not fit.
    #[error("`{statement}`: the slice begins at {start}, and fits from 0 to {most}")]
    SliceOutside {
        /// The statement.
        statement: String,
        /// The coordinate at which it begins.
        start: i64,
        /// The largest coordinate at which it may begin.
        most: i64,
    },
    /// Blocks of a cluster wait for each other at different statements, or one ends while others wait.
    #[error("`{statement}`: the blocks of the cluster do not all reach it at the same time")]
    ClusterApart {
        /// The statement at which one waits.
        statement: String,
    },
    /// The blocks of a cluster are to share a copy, and copy different tiles.
    #[error("`{statement}`: the blocks of the cluster do not all copy the same tile")]
    MulticastApart {
        /// The statement.
        statement: String,
    },
    /// The blocks of a cluster fill stages for each other, and not equally many.
    #[error(
        "`{statement}`: the blocks of a cluster share its copies (`multicast`), and block 0 of the cluster fills {}, block {other} {}; all must fill as many",
        stages(counts[0]), counts[1]
    )]
    MulticastCounts {
        /// The statement, `produce ab`.
        statement: String,
        /// A block that fills another number than block 0, by its rank in the cluster.
        other: usize,
        /// The number of stages that block 0 fills, and that the other block fills.
        counts: [usize; 2],
    },
    /// Roles wait for each other for ever.
    #[error(
        "deadlock: {}; a stage is free once each `consume` of it has ended and a `wait_gemm` covers every group of products that reads it",
        joined(waits)
    )]
    Deadlock {
        /// The roles that do not end.
        waits: Vec<Wait>,
    },
    /// The grid is not made of whole clusters, at these sizes.
    #[error(
        "the grid has {blocks} blocks along x, which is no multiple of the {cluster} blocks of a cluster"
    )]
    PartOfCluster {
        /// Blocks along x.
        blocks: u32,
        /// Blocks of a cluster.
        cluster: u32,
    },
    /// An extent or a stride is not positive, or the grid is outside what the hardware takes, at these sizes.
    #[error("{what} is {value}; it must be from 1 to {most}")]
    OutOfRange {
        /// The expression.
        what: String,
        /// Its value.
        value: i64,
        /// The largest legal value.
        most: i64,
    },
}

/// `3 stages`.
fn stages(n: usize) -> String {
    format!("{n} stage{}", if n == 1 { "" } else { "s" })
}

fn joined(waits: &[Wait]) -> String {
    let list: Vec<String> = waits.iter().map(Wait::to_string).collect();
    list.join("; ")
}

impl InterpretError {
    /// The error with the places in the program's text of the statements that wait, for one that says who waits.
    pub fn diagnostic(&self) -> Option<Diagnostic> {
        let waits = match self {
            InterpretError::Deadlock { waits } => waits.as_slice(),
            InterpretError::NoStage { wait, .. } => std::slice::from_ref(&**wait),
            _ => return None,
        };
        let (first, others) = waits.split_first()?;
        let label = |wait: &Wait| format!("{} waits here", wait.who());
        let diagnostic = Diagnostic::new(Code::Deadlock, first.span, self.to_string()).label(label(first));
        Some(others.iter().fold(diagnostic, |diagnostic, wait| diagnostic.related(wait.span, label(wait))))
    }
}
