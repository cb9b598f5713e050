//! Broken rules of barriers, assertions and launches that overlap.

use tilewright_compiler::Kernel;
use tilewright_sim::{Misuse, Rule};
use tilewright_tile::core::StmtKind;
use tilewright_tile::{BarrierId, Code, Diagnostic, Origin};

use super::reader::Reader;

/// The messages of broken rules, one a statement and rule.
pub(super) fn misuses(reader: &Reader<'_>, misuses: &[Misuse]) -> Vec<Diagnostic> {
    let mut all: Vec<Diagnostic> = Vec::new();
    for misuse in misuses {
        let message = message(reader, misuse);
        let repeats = |d: &Diagnostic| d.span.key() == message.span.key() && d.message == message.message;
        if !all.iter().any(repeats) {
            all.push(message);
        }
    }
    all
}

/// Text with the names of named barriers for their numbers.
fn named(reader: &Reader<'_>, text: &str) -> String {
    let core = &reader.kernel.core;
    let numbers = core.barrier_numbers();
    let mut text = text.to_string();
    for (i, barrier) in core.barriers.iter().enumerate().rev() {
        let number = numbers.named(BarrierId(i as u32));
        text = text.replace(&format!("barrier {number}"), &format!("`{}`", barrier.name));
    }
    text
}

fn message(reader: &Reader<'_>, misuse: &Misuse) -> Diagnostic {
    let said = reader.statements.said(misuse.position, &misuse.origin);
    let place = reader.statements.place(misuse.position, &misuse.origin);
    let [x, y, z] = misuse.block;
    let times = if misuse.count == 1 { String::new() } else { format!(", {} times", misuse.count) };
    let note = format!("first by thread {} of block ({x}, {y}, {z}){times}", misuse.thread);
    let machine = [format!("`{}`: {misuse}", misuse.instruction)];
    if misuse.rule == Rule::Assertion {
        let message = format!("the assertion does not hold: `{said}`");
        let diagnostic = Diagnostic::new(Code::Assertion, place, message).label("it is false");
        return reader.told(diagnostic.note(note), machine);
    }
    let who = reader.statements.role_of_thread(misuse.thread);
    let who = who.map_or("a thread".to_string(), |role| reader.statements.role_words(role));
    let message =
        format!("`{said}`: {}", named(reader, &misuse.message).replacen("it ", &format!("{who} "), 1));
    let mut diagnostic = Diagnostic::new(Code::Protocol, place, message).note(note);
    diagnostic.help = Some(help(misuse.rule).to_string());
    reader.told(diagnostic, machine)
}

/// The message of an assertion that a GPU has found false, by its sentence, which has the assertion's words.
pub(crate) fn broken(kernel: &Kernel, sentence: String) -> Diagnostic {
    let mut place = Origin::Unknown;
    kernel.core.visit(&mut |stmt, _| {
        if let StmtKind::Assert { text, .. } = &stmt.kind
            && sentence.contains(text.as_str())
        {
            place = place.or(stmt.span);
        }
    });
    Diagnostic::new(Code::Assertion, place, sentence).label("it is false")
}

/// The remedy of a broken rule.
fn help(rule: Rule) -> &'static str {
    match rule {
        Rule::Arrivals | Rule::Phase => {
            "let a `syncthreads` of a second barrier, or a pipeline (`produce`, `consume`), make it wait for the others before it comes again"
        }
        Rule::Ended => "let all take part equally often, and wait for what is in flight before the end",
        Rule::Dependency => {
            "put `wait_dependencies()` before the first access, in each role that makes one, or declare the parameter `constant` if no launch writes it"
        }
        Rule::Disagree => "let all threads that meet come to the same statement",
        Rule::Registers => {
            "give `registers(r)` as multiples of 8 from 24 to 256, that fit together into 65536 of a block"
        }
        Rule::Metadata => {
            "write metadata as `tilewright_kernels::sparse::compress` does, the lower of the two places of a group first, in whole tiles"
        }
        _ => {
            "the compiler keeps this rule by itself: unless another finding explains it, please report it with the program"
        }
    }
}
