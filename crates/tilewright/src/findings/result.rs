//! Outputs that are not what the interpreter computes.

use tilewright_compiler::Kernel;
use tilewright_runtime::DeviceKind;
use tilewright_tile::core::TensorKind;
use tilewright_tile::{Code, Diagnostic, Origin};

use crate::check::Comparison;

/// Statements beside the first that a message marks.
const RELATED: usize = 3;

/// Messages about outputs that are not the interpreter's, `explained` where findings say why.
pub fn wrong_results(
    kernel: &Kernel,
    comparisons: &[Comparison],
    device: DeviceKind,
    explained: bool,
) -> Vec<Diagnostic> {
    comparisons.iter().filter_map(|c| wrong(kernel, c, device, explained)).collect()
}

/// The message of an output with wrong elements.
fn wrong(kernel: &Kernel, c: &Comparison, device: DeviceKind, explained: bool) -> Option<Diagnostic> {
    let worst = c.worst.as_ref().filter(|_| c.wrong > 0)?;
    let part = if c.wrong == c.elements { "all".to_string() } else { format!("{} of", c.wrong) };
    let message =
        format!("{part} {} elements of `{}` are not what the interpreter computes", c.elements, c.name);
    let mut places = writers(kernel, &c.name).into_iter();
    let param = kernel.program().params.iter().find(|p| p.name == c.name);
    let first = places.next().or(param.map(|p| p.span)).unwrap_or(Origin::Unknown);
    let mut diagnostic = Diagnostic::new(Code::WrongResult, first, message)
        .label(format!("writes `{}`", c.name))
        .note(format!(
            "the worst, {:?}, is {} and should be {}, within {:.1e}",
            worst.at, worst.actual, worst.expected, worst.bound
        ));
    for place in places.take(RELATED) {
        diagnostic = diagnostic.related(place, format!("writes `{}`", c.name));
    }
    let help = match (explained, device) {
        (true, _) => return Some(diagnostic),
        (false, DeviceKind::Sim) => {
            "nothing that the simulator looks for explains it, so that it is likely a mistake of the compiler: please report it with the program"
        }
        (false, _) => {
            "run it with `--device sim`, which looks for races and for memory that nothing has written"
        }
    };
    Some(diagnostic.help(help))
}

/// The places of the statements that write a parameter.
fn writers(kernel: &Kernel, name: &str) -> Vec<Origin> {
    let core = &kernel.core;
    let mut places: Vec<Origin> = Vec::new();
    core.visit(&mut |stmt, _| {
        let writes = stmt.kind.writes().into_iter().any(|id| match &core.tensor(id).kind {
            TensorKind::View { param, .. } => core.param(*param).name == name,
            _ => false,
        });
        if writes && !places.iter().any(|known| known.key() == stmt.span.key()) {
            places.push(stmt.span);
        }
    });
    places
}
