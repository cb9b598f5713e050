//! Checks that ended with an error.

use tilewright_compiler::Kernel;
use tilewright_runtime::{RuntimeError, Sizes};
use tilewright_sim::SimError;
use tilewright_tile::{Code, Diagnostic, Origin};

use super::reader::{Detail, Reader};
use super::{deadlock, findings};
use crate::check::CheckError;

/// Messages about a check that ended with an error: a deadlock on the simulator with the roles that wait.
pub fn refusal(kernel: &Kernel, sizes: &Sizes, error: &CheckError, detail: Detail) -> Vec<Diagnostic> {
    let CheckError::Runtime(RuntimeError::Simulator { error, .. }) = error else {
        return vec![error.diagnostic(kernel.program())];
    };
    match &**error {
        SimError::Deadlock { waits, ended, barriers, found, .. } => {
            let reader = Reader::new(kernel, sizes, detail);
            let mut all = vec![deadlock::message(&reader, waits, ended, barriers)];
            all.extend(findings(kernel, sizes, found, detail));
            all
        }
        SimError::StepLimit { limit, .. } => {
            let message = format!("a block has executed {limit} warp instructions and has not ended");
            let help = "does a loop run too often? Smaller sizes (`-p NAME=VALUE`) take fewer";
            vec![Diagnostic::new(Code::Endless, kernel.program().grid_span, message).help(help)]
        }
        SimError::LoopOverflow { origin, .. } => {
            let reader = Reader::new(kernel, sizes, detail);
            let (span, said) = reader.statements.of_text(origin);
            let message = format!("the counter of `{said}` overflows before it reaches its end");
            vec![Diagnostic::new(Code::BadValue, span, message).help("the integers of a kernel have 32 bits")]
        }
        SimError::DivergentCollective { origin, .. }
        | SimError::DivergentBarrier { origin, .. }
        | SimError::DivergentWarpgroup { origin, .. } => {
            let reader = Reader::new(kernel, sizes, detail);
            let (span, said) = reader.statements.of_text(origin);
            let message = format!("only a part of the threads comes to `{said}`, which takes all of them");
            let machine = [format!("{error}")];
            vec![reader.told(Diagnostic::new(Code::Protocol, span, message), machine)]
        }
        other => vec![Diagnostic::new(Code::BadLaunch, Origin::Unknown, other.to_string())],
    }
}
