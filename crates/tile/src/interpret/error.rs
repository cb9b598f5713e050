//! Errors of an interpretation.

use super::quote::Quote;
use super::wait::{Wait, WaitFor, ordinal, who};
use crate::cluster::{Multicast, Peers};
use crate::diagnostic::Origin;

/// An asynchronous copy or product that is under way.
#[derive(Clone, PartialEq, Debug)]
pub struct Underway {
    /// True of a product: its groups are those of `commit_gemm`.
    pub product: bool,
    /// The number of groups that were committed after its own; `None` if it is in no group yet.
    pub later: Option<usize>,
    /// The latest wait: the number of groups that it leaves, and its place.
    pub waited: Option<(i64, Origin)>,
}

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
        name: Quote,
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
        what: Quote,
    },
    /// An integer of the kernel does not fit in the 32 bits that kernels compute with, at these sizes.
    #[error("{what} can reach {value}: the integers of a kernel have 32 bits")]
    TooWide {
        /// The expression.
        what: Quote,
        /// A value it can take.
        value: i64,
        /// The remedy, where one is known.
        help: Option<String>,
    },
    /// Types clash in an elementwise expression, which the verifier refuses.
    #[error("`{statement}`: the types of its operands clash")]
    TypeClash {
        /// The statement.
        statement: Quote,
    },
    /// An index of a tensor is outside its mode.
    #[error(
        "`{statement}`: the index {index} is outside mode {mode} of `{tensor}`, which has extent {extent}"
    )]
    IndexOutside {
        /// The statement.
        statement: Quote,
        /// The tensor.
        tensor: String,
        /// The mode.
        mode: usize,
        /// The index.
        index: i64,
        /// The mode's extent.
        extent: i64,
    },
    /// A tile of a view that folds modes begins ahead of the first element along the folded mode.
    #[error("a tile of `{view}` begins at {at} along the mode that folds others, ahead of the first element")]
    FoldedAhead {
        /// The view.
        view: Quote,
        /// The coordinate.
        at: i64,
    },
    /// An element is read or written between an asynchronous copy or product that writes it and the wait that completes that, or
    /// written while one reads it.
    #[error(
        "`{statement}` {access} an element of `{tensor}` that `{flight}` has in flight: no wait covers it yet"
    )]
    InFlight {
        /// The statement that comes too early.
        statement: Quote,
        /// `reads` or `writes`.
        access: &'static str,
        /// The shared or register tensor.
        tensor: String,
        /// The asynchronous copy or product.
        flight: Quote,
        /// The state that it is in.
        state: Box<Underway>,
    },
    /// A copy to global memory that no wait completes.
    #[error("`{flight}` is still in flight at the end: its writes are done once a `wait_group` covers it")]
    NeverWaitedFor {
        /// The asynchronous copy.
        flight: Quote,
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
        pipeline: Quote,
        /// The role that should read them.
        role: Option<String>,
        /// Number of stages that it does not read.
        left: usize,
        /// Number of stages filled.
        filled: usize,
        /// True if the role that fills them has ended; otherwise it waits for a free stage.
        ended: bool,
        /// True if several roles read the pipeline, none of them every stage: each perhaps a share.
        shared: bool,
    },
    /// A slice begins where it does not fit.
    #[error("`{statement}`: the slice begins at {start}, and fits from 0 to {most}")]
    SliceOutside {
        /// The statement.
        statement: Quote,
        /// The coordinate at which it begins.
        start: i64,
        /// The largest coordinate at which it may begin.
        most: i64,
    },
    /// A function that puts elements together gives other results where others of them are put together first.
    #[error(
        "`{statement}`: the function is not associative: result {result} comes to {results:?} for two ways of putting the same elements together"
    )]
    NotAssociative {
        /// The statement.
        statement: Quote,
        /// The number of the result, from 0.
        result: usize,
        /// Two results of the same elements.
        results: [f64; 2],
    },
    /// Blocks of a cluster wait for each other at different statements, or one ends while others wait.
    #[error("`{statement}`: the blocks of the cluster do not all reach it at the same time")]
    ClusterApart {
        /// The statement at which one waits.
        statement: Quote,
    },
    /// A role comes to a named barrier again before the others have come.
    #[error(
        "`{statement}`: {} comes the {} time, and not all others have come the time before: nothing makes it wait for them",
        who(role), ordinal(*time)
    )]
    ComesAgain {
        /// The statement.
        statement: Quote,
        /// The role.
        role: Option<String>,
        /// The number of times that it has come, with this one.
        time: usize,
    },
    /// A role comes to a named barrier more often than another.
    #[error("{} comes to {barrier} {} times, and {} {}", who(&roles[0]), times[0], who(&roles[1]), times[1])]
    ComesMore {
        /// The barrier, `the named barrier b`, or the turns.
        barrier: Quote,
        /// The roles.
        roles: Box<[Option<String>; 2]>,
        /// The number of times that each comes.
        times: [usize; 2],
    },
    /// A counter that deals out tiles is not 0 when the launch begins.
    #[error(
        "`{name}` counts the tiles that blocks have taken, and is {value} when the launch begins; it must be 0"
    )]
    CounterBegins {
        /// The parameter.
        name: Quote,
        /// Its element.
        value: f64,
    },
    /// A flag of which blocks draw tickets is not the number of one.
    #[error(
        "`{statement}`: the flag is {ticket}, and tickets go from 0 up to one less than their number, {count}"
    )]
    NoTicket {
        /// The statement.
        statement: Quote,
        /// The value of the flag.
        ticket: i64,
        /// The number of tickets.
        count: i64,
    },
    /// Blocks of a cluster are to share a copy, and copy different tiles.
    #[error("`{statement}`: the blocks {} do not all copy the same tile", of_cluster(*multicast))]
    MulticastApart {
        /// The statement.
        statement: Quote,
        /// The blocks that are to share it.
        multicast: Multicast,
        /// The same as ranks.
        peers: Peers,
    },
    /// The blocks of a cluster fill stages for each other, and not equally many.
    #[error(
        "`{statement}`: the blocks of a cluster share its copies (`multicast` or `pair`), and block {} of the cluster fills {}, block {} {}; all must fill as many",
        blocks[0], stages(counts[0]), blocks[1], counts[1]
    )]
    MulticastCounts {
        /// The statement, `produce ab`.
        statement: Quote,
        /// Two blocks that fill stages for each other, by their ranks in the cluster.
        blocks: [usize; 2],
        /// The number of stages that each of them fills.
        counts: [usize; 2],
    },
    /// The blocks of a pair multiply otherwise.
    #[error(
        "the blocks of a pair multiply together, and behind {} block {} of the cluster comes to {}, block {} to {}",
        stages(*before), blocks[0], steps[0], blocks[1], steps[1]
    )]
    PairApart {
        /// The step of each, `consume ab`, a product or a `fill` with the values of its indices, or the role's end.
        steps: Box<[Quote; 2]>,
        /// The ranks of the pair's blocks in the cluster.
        blocks: [usize; 2],
        /// The number of stages that begin before.
        before: usize,
    },
    /// Roles wait for each other for ever.
    #[error("deadlock: {}{}", joined(waits), freed(waits).map_or(String::new(), |help| format!("; {help}")))]
    Deadlock {
        /// The roles that do not end.
        waits: Vec<Wait>,
    },
    /// The places of a sparse factor's elements do not increase within a group of four.
    #[error(
        "`{statement}`: the places {} and {} of group {group} in row {row} of `{meta}` do not increase",
        places[0], places[1]
    )]
    Disorder {
        /// The product.
        statement: Quote,
        /// The metadata.
        meta: String,
        /// The row.
        row: usize,
        /// The group along K.
        group: usize,
        /// The places of its two elements; not a number where nothing has written one.
        places: [f64; 2],
    },
    /// An assertion does not hold.
    #[error(
        "assertion `{text}` does not hold in block ({}, {}, {}){}",
        block[0], block[1], block[2], element.map_or(String::new(), |at| format!(", at element {at} of the tile"))
    )]
    Assertion {
        /// Its words.
        text: Quote,
        /// The block.
        block: [i64; 3],
        /// The first element that is false, leftmost mode fastest.
        element: Option<usize>,
    },
    /// The results depend on which rows enter an `if any` beside those that must.
    #[error(
        "`{statement}`: warps may enter it for other rows too, and then the results differ: element {element} of `{param}` is {only} \
         where only the rows with a true element enter, and {all} where all do"
    )]
    RowsDiffer {
        /// The statement.
        statement: Quote,
        /// The output.
        param: String,
        /// The offset of the element.
        element: usize,
        /// Its value where only the rows that must enter do.
        only: f64,
        /// Its value where all rows do.
        all: f64,
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
        /// The extent of the grid along x.
        extent: Quote,
        /// The number of blocks of a cluster.
        of: Quote,
    },
    /// An extent or a stride is not positive, or the grid is outside what the hardware takes, at these sizes.
    #[error("{what} is {value}; it must be from 1 to {most}")]
    OutOfRange {
        /// The expression.
        what: Quote,
        /// Its value.
        value: i64,
        /// The largest legal value.
        most: i64,
        /// The remedy, where one is known.
        help: Option<String>,
    },
}

/// Words about what frees a stage, where a role waits for one.
fn freed(waits: &[Wait]) -> Option<&'static str> {
    let stage = |wait: &Wait| !matches!(wait.what, WaitFor::Barrier { .. });
    let held = "a stage is free once each `consume` of it has ended and a `wait_gemm` covers every group of products that reads it";
    waits.iter().any(stage).then_some(held)
}

/// `along mode 1 of the cluster`.
fn of_cluster(multicast: Multicast) -> String {
    match multicast {
        Multicast::All => "of the cluster".to_string(),
        Multicast::Along(mode) => format!("along mode {mode} of the cluster"),
        Multicast::Pair => "of a pair".to_string(),
        Multicast::Pairs(mode) => format!("of the pairs along mode {mode} of the cluster"),
    }
}

/// `3 stages`.
fn stages(n: usize) -> String {
    format!("{n} stage{}", if n == 1 { "" } else { "s" })
}

fn joined(waits: &[Wait]) -> String {
    let list: Vec<String> = waits.iter().map(Wait::to_string).collect();
    list.join("; ")
}
