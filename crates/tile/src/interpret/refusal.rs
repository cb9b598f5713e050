//! Refusals of the interpreter as messages with their places.

use super::error::InterpretError;
use super::quote::Quote;
use super::wait::{Wait, who};
use crate::cluster::{Multicast, Peers};
use crate::diagnostic::{Code, Diagnostic, Origin};

impl InterpretError {
    /// The error with a place for what it quotes, where that has none.
    pub(super) fn at(mut self, span: Origin) -> Self {
        if let InterpretError::NoValue { what } = &mut self {
            what.span = what.span.or(span);
        }
        self
    }

    /// The kind of mistake.
    pub fn code(&self) -> Code {
        match self {
            InterpretError::UnknownSize { .. } => Code::UnknownName,
            InterpretError::BadSize { .. }
            | InterpretError::ArgumentCount { .. }
            | InterpretError::ArgumentKind { .. }
            | InterpretError::ArgumentLength { .. }
            | InterpretError::PartOfCluster { .. }
            | InterpretError::CounterBegins { .. }
            | InterpretError::OutOfRange { .. } => Code::BadLaunch,
            InterpretError::NoValue { .. } | InterpretError::TooWide { .. } => Code::BadValue,
            InterpretError::TypeClash { .. } => Code::TypeMismatch,
            InterpretError::IndexOutside { .. }
            | InterpretError::SliceOutside { .. }
            | InterpretError::FoldedAhead { .. } => Code::OutOfBounds,
            InterpretError::NoTicket { .. } | InterpretError::Disorder { .. } => Code::BadValue,
            InterpretError::InFlight { .. } | InterpretError::NeverWaitedFor { .. } => Code::InFlight,
            InterpretError::NotAssociative { .. } => Code::NotAssociative,
            InterpretError::ClusterApart { .. }
            | InterpretError::MulticastApart { .. }
            | InterpretError::MulticastCounts { .. }
            | InterpretError::PairApart { .. } => Code::BlocksDiffer,
            InterpretError::NoStage { .. }
            | InterpretError::UnreadStages { .. }
            | InterpretError::ComesAgain { .. }
            | InterpretError::ComesMore { .. }
            | InterpretError::Deadlock { .. } => Code::Deadlock,
            InterpretError::Assertion { .. } => Code::Assertion,
            InterpretError::RowsDiffer { .. } => Code::RowsDiffer,
        }
    }

    /// The part of the program that the error is about.
    fn quoted(&self) -> Option<&Quote> {
        match self {
            InterpretError::BadSize { name: quote, .. }
            | InterpretError::NoValue { what: quote }
            | InterpretError::TooWide { what: quote, .. }
            | InterpretError::OutOfRange { what: quote, .. }
            | InterpretError::TypeClash { statement: quote }
            | InterpretError::IndexOutside { statement: quote, .. }
            | InterpretError::FoldedAhead { view: quote, .. }
            | InterpretError::InFlight { statement: quote, .. }
            | InterpretError::NeverWaitedFor { flight: quote }
            | InterpretError::UnreadStages { pipeline: quote, .. }
            | InterpretError::SliceOutside { statement: quote, .. }
            | InterpretError::NotAssociative { statement: quote, .. }
            | InterpretError::ClusterApart { statement: quote }
            | InterpretError::ComesAgain { statement: quote, .. }
            | InterpretError::ComesMore { barrier: quote, .. }
            | InterpretError::CounterBegins { name: quote, .. }
            | InterpretError::NoTicket { statement: quote, .. }
            | InterpretError::MulticastApart { statement: quote, .. }
            | InterpretError::MulticastCounts { statement: quote, .. }
            | InterpretError::Assertion { text: quote, .. }
            | InterpretError::Disorder { statement: quote, .. }
            | InterpretError::RowsDiffer { statement: quote, .. }
            | InterpretError::PartOfCluster { extent: quote, .. } => Some(quote),
            InterpretError::PairApart { steps, .. } => {
                steps.iter().rev().find(|step| !step.span.is_unknown())
            }
            InterpretError::UnknownSize { .. }
            | InterpretError::ArgumentCount { .. }
            | InterpretError::ArgumentKind { .. }
            | InterpretError::ArgumentLength { .. }
            | InterpretError::NoStage { .. }
            | InterpretError::Deadlock { .. } => None,
        }
    }

    /// The error with the places in the program of what it names, and the remedy.
    pub fn diagnostic(&self) -> Diagnostic {
        let waits = match self {
            InterpretError::Deadlock { waits } => waits.as_slice(),
            InterpretError::NoStage { wait, .. } => std::slice::from_ref(&**wait),
            _ => &[],
        };
        if let Some((first, others)) = waits.split_first() {
            let label = |wait: &Wait| format!("{} waits here", wait.who());
            let diagnostic = Diagnostic::new(self.code(), first.span, self.to_string()).label(label(first));
            return others
                .iter()
                .fold(diagnostic, |diagnostic, wait| diagnostic.related(wait.span, label(wait)));
        }
        let span = self.quoted().map_or(Origin::Unknown, |quote| quote.span);
        let mut diagnostic = Diagnostic::new(self.code(), span, self.to_string()).label(self.label());
        if let InterpretError::InFlight { flight, state, .. } = self {
            diagnostic = diagnostic.related(flight.span, "in flight since here");
            if let Some((left, span)) = state.waited {
                let last = if left == 1 {
                    "the latest group".to_string()
                } else {
                    format!("the latest {left} groups")
                };
                let text = if left == 0 {
                    "this wait came before it".to_string()
                } else {
                    format!("this wait leaves {last} in flight")
                };
                diagnostic = diagnostic.related(span, text);
            }
        }
        if let InterpretError::PartOfCluster { of, cluster, .. } = self {
            diagnostic = diagnostic.related(of.span, format!("clusters of {cluster}"));
        }
        diagnostic.help = self.help();
        diagnostic
    }

    /// Words for the mark under the place.
    fn label(&self) -> String {
        match self {
            InterpretError::Assertion { .. } => "it is false".to_string(),
            InterpretError::PartOfCluster { blocks, .. } => format!("{blocks} blocks along x"),
            InterpretError::OutOfRange { value, .. } => format!("{value}"),
            InterpretError::InFlight { access, tensor, .. } => format!("{access} `{tensor}`"),
            InterpretError::UnreadStages { left, role, .. } => {
                format!("{left} of its stages are left by {}", who(role))
            }
            _ => String::new(),
        }
    }

    /// The remedy.
    fn help(&self) -> Option<String> {
        Some(match self {
            InterpretError::TooWide { help, .. } | InterpretError::OutOfRange { help, .. } => {
                return help.clone();
            }
            InterpretError::PartOfCluster { extent, of, .. } => format!(
                "a cluster for each of `{extent}`: `grid({extent} * {of}, …)`; or whole clusters, whose last blocks lie outside of the \
                 tensors: `grid(ceil_div({extent}, {of}) * {of}, …)`",
            ),
            InterpretError::NoValue { .. } => {
                "keep the divisor from being 0: `max(divisor, 1)`, or other sizes".to_string()
            }
            InterpretError::IndexOutside { tensor, mode, extent, .. } => format!(
                "mode {mode} of `{tensor}` goes from 0 to {}: take the index `% {extent}`, or give the mode more room",
                extent - 1
            ),
            InterpretError::FoldedAhead { .. } => {
                "its coordinates count from 0: let the index that leads along it be none below that".to_string()
            }
            InterpretError::SliceOutside { most, .. } => {
                format!("keep its beginning in range: `min(max(begin, 0), {most})`")
            }
            InterpretError::InFlight { state, .. } => {
                let (wait, commit) = match state.product {
                    true => ("wait_gemm", "commit_gemm()"),
                    false => ("wait_group", "commit_group()"),
                };
                match state.later {
                    None => format!("it is in no group yet: `{commit}` behind it, and `{wait}(0)` before this statement"),
                    Some(0) => format!("its group is the latest: `{wait}(0)` before this statement covers it"),
                    Some(later) => format!(
                        "{later} group{} committed after its own: `{wait}({later})` before this statement covers it",
                        if later == 1 { " was" } else { "s were" }
                    ),
                }
            }
            InterpretError::NeverWaitedFor { .. } => {
                "put `commit_group()` and `wait_group(0)` behind it, before the program or the role ends".to_string()
            }
            InterpretError::NotAssociative { .. } => {
                "`reduce` and `scan` put elements together in any groups: write a function f for which f(f(x, y), z) is f(x, f(y, z)); \
                 means carry a sum and a count, differences are sums of what is negated"
                    .to_string()
            }
            InterpretError::ClusterApart { .. } => {
                "let every block of the cluster come to it equally often: conditions and bounds of loops around it must not depend on \
                 `block.x` within a cluster"
                    .to_string()
            }
            InterpretError::MulticastApart { multicast: Multicast::All, .. } => {
                "with `multicast` the blocks of a cluster share one tile, so its coordinates must be the same in all of them: \
                 let them depend on `block.x / CLUSTER` alone, or leave `multicast` out"
                    .to_string()
            }
            InterpretError::MulticastApart { multicast: Multicast::Along(mode), peers, .. } => {
                let Peers { blocks, stride } = peers;
                let place = match stride {
                    1 => format!("block.x % {blocks}"),
                    stride => format!("block.x / {stride} % {blocks}"),
                };
                format!(
                    "with `multicast({mode})` the blocks along mode {mode} of the cluster share one tile, so its coordinates must not \
                     depend on a block's place along it, `{place}`; name the mode along which the tile is the same, or leave \
                     `multicast` out"
                )
            }
            InterpretError::MulticastApart { multicast: Multicast::Pair, .. } => {
                "with `pair` the blocks 2i and 2i + 1 of a cluster share one tile, so its coordinates must not depend on \
                 `block.x % 2`: name the tile of the pair, or leave `pair` out"
                    .to_string()
            }
            InterpretError::MulticastApart { multicast: Multicast::Pairs(mode), .. } => {
                format!(
                    "with `pair, multicast({mode})` the blocks of the pairs along mode {mode} of the cluster share one tile, so its \
                     coordinates must not depend on a block's place in its pair or along that mode: leave `multicast({mode})` out where \
                     each pair has a tile of its own"
                )
            }
            InterpretError::MulticastCounts { .. } => {
                "let the loop around have the same bounds in all blocks of a cluster: they must not depend on `block.x` within it"
                    .to_string()
            }
            InterpretError::PairApart { .. } => {
                "one thread multiplies for both blocks of a pair: loops, conditions and indices of that role must not depend on \
                 `block.x % 2`"
                    .to_string()
            }
            InterpretError::NoTicket { count, .. } => {
                format!("the flag of a ticket is at first a number from 0 to {}: fill it with 0", count - 1)
            }
            InterpretError::CounterBegins { name, .. } => format!("fill `{name}` with 0 before the launch"),
            InterpretError::ComesAgain { .. } => {
                "let a `syncthreads` of the same barrier, or a pipeline, make it wait for the others before it comes again".to_string()
            }
            InterpretError::ComesMore { .. } => {
                "let all roles of a barrier come to it equally often: the loops around its statements must have the same number of \
                 iterations"
                    .to_string()
            }
            InterpretError::Disorder { .. } => {
                "write metadata as `tilewright_kernels::sparse::compress` does, the lower of the two places first; outside of a tensor a copy reads 0 and 0, \
                 which are no two places, so that metadata have whole tiles"
                    .to_string()
            }
            InterpretError::RowsDiffer { .. } => {
                "write the body so that a row for which it is done without need has the same results, or use `where(c, x, y)`".to_string()
            }
            InterpretError::UnreadStages { pipeline, shared: true, .. } => format!(
                "each role that consumes `{pipeline}` reads every stage of it, and does not share them with the others: for a share of \
                 the stages give each role a pipeline and tensors of its own, say `{pipeline}_0` and `{pipeline}_1`, that are filled in turn"
            ),
            InterpretError::UnreadStages { pipeline, .. } => {
                format!("let the loops around `produce {pipeline}` and `consume {pipeline}` have the same number of iterations")
            }
            InterpretError::NoStage { .. } => {
                "let the loops around `produce` and `consume` of the pipeline have the same number of iterations".to_string()
            }
            _ => return None,
        })
    }
}
