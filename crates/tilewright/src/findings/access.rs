//! Accesses that go wrong by themselves: outside of their tensor, at an address that is not aligned, of what nothing has written.

use tilewright_sim::{Fault, Findings};
use tilewright_tile::core::TensorKind;
use tilewright_tile::{Code, Diagnostic, TensorId, new_each_round};

use super::reader::Reader;

/// Statements beside the first that a message marks.
const RELATED: usize = 4;

/// The messages of wrong accesses, one a statement and kind.
pub(super) fn faults(reader: &Reader<'_>, found: &Findings) -> Vec<Diagnostic> {
    let kinds = [
        (Code::OutOfBounds, &found.out_of_bounds),
        (Code::Misaligned, &found.misaligned),
        (Code::Uninitialised, &found.uninitialised),
    ];
    let mut all: Vec<Diagnostic> = Vec::new();
    for (code, list) in kinds {
        for fault in list {
            // What has not come, for nothing orders it, was not written either.
            let raced = code == Code::Uninitialised && races(found, fault);
            let message = message(reader, code, fault);
            let repeats = |d: &Diagnostic| {
                d.code == code && d.span.key() == message.span.key() && d.message == message.message
            };
            if !raced && !all.iter().any(repeats) {
                all.push(message);
            }
        }
    }
    all
}

/// True if the statement takes part in a race for the same buffer.
fn races(found: &Findings, fault: &Fault) -> bool {
    let of = |origin: &String, position| *origin == fault.origin && position == fault.position;
    found.races.iter().any(|race| {
        let reads = [&race.first, &race.second].into_iter().any(|p| !p.write && of(&p.origin, p.position));
        race.buffer == fault.buffer && reads
    })
}

fn message(reader: &Reader<'_>, code: Code, fault: &Fault) -> Diagnostic {
    let said = reader.statements.said(fault.position, &fault.origin);
    let place = reader.statements.place(fault.position, &fault.origin);
    let (does, tensor) = (if fault.write { "writes" } else { "reads" }, &fault.buffer);
    let [x, y, z] = fault.block;
    let times = if fault.count == 1 { String::new() } else { format!(", {} times", fault.count) };
    let note = format!("first by thread {} of block ({x}, {y}, {z}){times}", fault.thread);
    let diagnostic = match code {
        Code::Uninitialised => unwritten(reader, fault, &said),
        Code::Misaligned => Diagnostic::new(
            code,
            place,
            format!(
                "`{said}` {does} {} bytes at once at byte {} of `{tensor}`, which is no multiple of {}",
                fault.bytes, fault.offset, fault.bytes
            ),
        )
        .help("let tensors begin at multiples of 16 bytes, and give sizes that the kernel was compiled for"),
        _ if tensor.is_empty() => Diagnostic::new(
            code,
            place,
            format!("`{said}` {does} {} memory that belongs to no tensor", fault.memory),
        )
        .help("let the indices of its tensors stay within their modes"),
        _ => {
            let message =
                format!("`{said}` {does} outside of `{tensor}`: byte {} of {}", fault.offset, fault.size);
            Diagnostic::new(code, place, message).help(in_range(reader, fault))
        }
    };
    let machine = [format!("`{}`: {fault}", fault.instruction)];
    let label =
        if code == Code::Uninitialised { format!("reads `{tensor}`") } else { format!("{does} `{tensor}`") };
    reader.told(Diagnostic { span: place, ..diagnostic.label(label) }.note(note), machine)
}

/// The remedy of an access outside of a tensor.
fn in_range(reader: &Reader<'_>, fault: &Fault) -> String {
    let row = reader.kernel.core.tensors.iter().find(|row| row.name == fault.buffer);
    match row.map(|row| &row.kind) {
        Some(TensorKind::Shared { shape, .. }) => {
            let shape: Vec<String> = shape.iter().map(i64::to_string).collect();
            format!(
                "`{}` has the shape [{}]: let each index stay below its extent, as `i % extent` does",
                fault.buffer,
                shape.join(", ")
            )
        }
        _ => "let the indices of the copy stay within the modes of its view".to_string(),
    }
}

/// Reads of elements that nothing has written, with the statements that write the tensor.
fn unwritten(reader: &Reader<'_>, fault: &Fault, said: &str) -> Diagnostic {
    let tensor = &fault.buffer;
    let writers = reader.statements.using(tensor, true);
    let message = if writers.is_empty() {
        format!("`{said}` reads `{tensor}`, which no statement writes")
    } else {
        format!("`{said}` reads elements of `{tensor}` that nothing has written")
    };
    let place = reader.statements.place(fault.position, &fault.origin);
    let mut diagnostic = Diagnostic::new(Code::Uninitialised, place, message);
    for number in writers.iter().take(RELATED) {
        let span = reader.statements.site(*number).stmt.span;
        if span.key() != place.key() {
            diagnostic = diagnostic.related(span, format!("writes `{tensor}`"));
        }
    }
    let verified = &reader.kernel.verified;
    let id = verified.program().tensors.iter().position(|row| row.name == *tensor);
    if let Some(round) = id.and_then(|id| new_each_round(verified, TensorId(id as u32))) {
        let about = format!("a new tensor in each round of `{}`", round.counter);
        return diagnostic.related(round.place, about).help(round.help);
    }
    diagnostic.help(match (writers.is_empty(), fault.memory) {
        (true, "shared") => format!("copy something to `{tensor}` before, and put `syncthreads()` between; or read the tensor that is meant"),
        (true, _) => format!("write `{tensor}` before, by a copy, `fill` or an assignment"),
        (false, "shared") => {
            format!("write all of `{tensor}` before it is read, in every round and branch, and put `syncthreads()` between")
        }
        (false, _) => format!("write all of `{tensor}` before it is read, in every round and branch"),
    })
}
