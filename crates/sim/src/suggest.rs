//! Suggestions: synchronisation that would order two racing accesses, in the words of the tile language.

use crate::context::Context;
use crate::decode::Nature;
use crate::findings::RaceKind;

/// An access of a race.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub nature: Nature,
    pub write: bool,
    /// The block of the grid, and the thread in it.
    pub block: [u32; 3],
    pub thread: u32,
}

/// Synchronisation that would order them.
pub(crate) fn suggestion(
    context: &Context<'_>,
    kind: RaceKind,
    global: bool,
    fence: Option<&'static str>,
    (first, second): (Side, Side),
) -> String {
    if let Some(fence) = fence {
        let who = if first.write { "writing" } else { "reading" };
        return format!(
            "the {who} threads need {fence} before the barrier or arrival that orders them; `syncthreads()` between places one"
        );
    }
    order(context, kind, global, (first, second)).to_string()
}

/// Synchronisation that would order them in time.
fn order(context: &Context<'_>, kind: RaceKind, global: bool, (first, second): (Side, Side)) -> &'static str {
    use Nature::{Copy, Load, Ordinary, Product, Store, Sums};
    let cluster = |block: [u32; 3]| (block[0] / context.program.function.cluster, block[1], block[2]);
    if global && cluster(first.block) != cluster(second.block) {
        return "nothing orders these blocks: let the one `signal` a flag behind its access and the other `wait` for it before, or \
                draw both a `ticket`, or meet in `syncgrid`; else let one block write these bytes, add them with an atomic addition, or launch another kernel";
    }
    let apart = first.block != second.block;
    let roles = context.program.roles && first.thread / 128 != second.thread / 128;
    match (kind, first.nature, second.nature) {
        (RaceKind::AsyncPending | RaceKind::AsyncRead, Store, _) if apart => {
            "add `wait_group(n)` that covers the store, and a barrier of the cluster, between"
        }
        (RaceKind::AsyncPending, Copy, _) => {
            "add `wait_group(n)` that covers the copy, and `syncthreads()` for the other threads, between"
        }
        (RaceKind::AsyncPending | RaceKind::AsyncRead, Store, _) if roles => {
            "wait with `wait_group(n)` for the store where it is started, and come behind that wait: by `syncthreads()`, or from another role \
             by a pipeline (`produce`, `consume`)"
        }
        (RaceKind::AsyncPending | RaceKind::AsyncRead, Store, _) => {
            "add `wait_group(n)` that covers the store, and `syncthreads()` for the other threads, between"
        }
        (RaceKind::AsyncPending, _, Load) => "the stage is filled again before it is full",
        (RaceKind::AsyncPending, Load, _) if second.write => "the stage is written before it is full",
        (RaceKind::AsyncPending, Load, _) => {
            "the stage is read before it is full: `consume`, or `wait_group(n)`, waits for it"
        }
        (RaceKind::AsyncRead, Product, Load) => {
            "the stage is filled again before the product has read it: `wait_gemm(n)` has to cover it before the stage is released"
        }
        (RaceKind::AsyncRead, Product, _) => {
            "add `wait_gemm(n)` that covers the product, and `syncthreads()` for the other threads, between"
        }
        (RaceKind::AsyncRead, Sums, Load) => {
            "the stage is filled again before the product has read it: a commit behind the product has to release the stage"
        }
        (RaceKind::AsyncPending | RaceKind::AsyncRead, Sums, _) => {
            "a product in tensor memory is complete where its commit arrives, and a copy behind its wait and the fences of tensor memory: \
             hand the sums over in a pipeline (`produce`, `consume`)"
        }
        (RaceKind::AsyncPending | RaceKind::AsyncRead, ..) => "wait for the operation between",
        (_, Ordinary, Load) if !global => "the stage is filled before its readers have released it",
        _ if apart => "add a barrier of the cluster between",
        _ if roles => {
            "hand the bytes over in a pipeline (`produce`, `consume`), or let both take part in a barrier between"
        }
        _ => "add `syncthreads()` between",
    }
}
