//! Findings of the simulator as messages to the program's author: in words of the program, at its statements, with what would be right.
//!
//! Findings about the same statements are one message: copies of an unrolled loop, and all that one statement overwrites. What follows from
//! another finding is no message of its own. Bytes, threads, instructions and mbarriers are notes that [`Detail::Machine`] asks for.

mod access;
mod clash;
mod deadlock;
mod overlap;
mod protocol;
mod race;
mod reader;
mod refusal;
mod result;
mod statements;

use tilewright_compiler::Kernel;
use tilewright_runtime::Sizes;
use tilewright_sim::Findings;
use tilewright_tile::{Code, Diagnostic};

use reader::Reader;

pub(crate) use protocol::broken;
pub use reader::Detail;
pub use refusal::refusal;
pub use result::wrong_results;

/// Messages about what a run of a kernel at these sizes has found, the most telling first.
pub fn findings(kernel: &Kernel, sizes: &Sizes, found: &Findings, detail: Detail) -> Vec<Diagnostic> {
    if found.is_clean() {
        return Vec::new();
    }
    let reader = Reader::new(kernel, sizes, detail);
    let mut all = race::races(&reader, &found.races);
    all.extend(access::faults(&reader, found));
    all.extend(protocol::misuses(&reader, &found.protocol));
    // Races first: what is in flight, unwritten or wrong often follows from them.
    all.sort_by_key(|d| (d.code != Code::Assertion, d.code != Code::Race, d.code != Code::InFlight));
    all
}
