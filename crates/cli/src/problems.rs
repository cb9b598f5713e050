//! What the simulator found wrong, beside the statements that it is about.

use std::collections::HashMap;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Element, Level, Renderer, Snippet};
use tilewright::compiler::Kernel;
use tilewright::sim::{Fault, Misuse, Race, RaceKind, Report};
use tilewright::tile::statement_text;

use crate::load::Loaded;

/// Problems that are printed; of the others, the number.
const LIMIT: usize = 10;

/// Longer lines are not shown.
const LINE_LIMIT: usize = 400;

/// Where statements are in the source.
pub struct Places<'a> {
    path: &'a str,
    source: &'a str,
    statements: HashMap<String, Range<usize>>,
}

impl<'a> Places<'a> {
    /// Those of a kernel.
    pub fn new(loaded: &'a Loaded, kernel: &Kernel) -> Self {
        let source = loaded.source.as_str();
        let mut statements = HashMap::new();
        kernel.verified.visit(&mut |stmt, _| {
            let span = stmt.span.range();
            if let Some(text) = source.get(span.clone()).filter(|text| !text.is_empty()) {
                // Of loops, the head.
                let head = text.lines().next().unwrap_or("").trim_end_matches(['{', ' ']).len();
                let place = span.start..span.start + head;
                statements.entry(statement_text(kernel.program(), stmt)).or_insert(place);
            }
        });
        Places { path: &loaded.path, source, statements }
    }

    /// The line of a statement, counted from 1.
    pub fn line(&self, origin: &str) -> Option<usize> {
        let place = self.statements.get(origin)?;
        Some(self.source[..place.start].bytes().filter(|b| *b == b'\n').count() + 1)
    }

    fn place(&self, origin: &str) -> Option<Range<usize>> {
        let long = self.source.lines().any(|line| line.len() > LINE_LIMIT);
        self.statements.get(origin).filter(|_| !long).cloned()
    }
}

/// A problem: what it is, where and who, and what would help.
struct Problem {
    title: String,
    /// Statements with what is to be said about them, the one that shows the problem first.
    parties: Vec<(String, String)>,
    help: Option<&'static str>,
}

fn race(race: &Race) -> Problem {
    let does = |write| if write { "writes" } else { "reads" };
    let Race { first, second, .. } = race;
    let asynchronous = match race.kind {
        RaceKind::AsyncPending => "the asynchronous copy of thread",
        RaceKind::AsyncRead => "the asynchronous operation of thread",
        _ => "thread",
    };
    let unit = if race.kind == RaceKind::MissingProxyFence {
        "the asynchronous operation of thread"
    } else {
        "thread"
    };
    let same = first.origin == second.origin;
    let help = match race.kind {
        RaceKind::WriteWrite | RaceKind::ReadWrite if same => {
            "the statement races with itself, in the next round of a loop: put `syncthreads()` before or after it"
        }
        RaceKind::WriteWrite | RaceKind::ReadWrite => "put `syncthreads()` between the two statements",
        RaceKind::AsyncPending => {
            "wait for the copy first: `wait_group(0)` (or a larger number, of groups that may stay in flight), then \
             `syncthreads()`"
        }
        RaceKind::AsyncRead => {
            "let what reads the bytes end first: `wait_group(0)` after a copy, `wait_gemm(0)` after a product, then \
             `syncthreads()`"
        }
        RaceKind::MissingProxyFence => {
            "put `syncthreads()` between the two statements: it also makes what threads write visible to copies and \
             products"
        }
    };
    Problem {
        title: race.to_string(),
        parties: vec![
            (second.origin.clone(), format!("{unit} {} {}", second.thread, does(second.write))),
            (first.origin.clone(), format!("{asynchronous} {} {}", first.thread, does(first.write))),
        ],
        help: Some(help),
    }
}

fn fault(what: &str, fault: &Fault, help: Option<&'static str>) -> Problem {
    let does = if fault.write { "writes" } else { "reads" };
    Problem {
        title: format!("{what}: {fault}"),
        parties: vec![(
            fault.origin.clone(),
            format!("thread {} {does} with `{}`", fault.thread, fault.instruction),
        )],
        help,
    }
}

fn misuse(misuse: &Misuse) -> Problem {
    let owned = misuse.message.contains("no wgmma.wait_group covers it yet");
    Problem {
        title: misuse.to_string(),
        parties: vec![(
            misuse.origin.clone(),
            format!("thread {} in `{}`", misuse.thread, misuse.instruction),
        )],
        help: owned.then_some("wait for the product first: `commit_gemm()`, then `wait_gemm(0)`"),
    }
}

/// The problems of a report beside the statements that they are about, at most ten.
pub fn problems(places: &Places<'_>, report: &Report) -> String {
    let written = "write all of the tensor before it is read, and put `syncthreads()` between";
    let all: Vec<Problem> = report
        .races
        .iter()
        .map(race)
        .chain(report.out_of_bounds.iter().map(|f| fault("out of bounds", f, None)))
        .chain(report.misaligned.iter().map(|f| fault("misaligned", f, None)))
        .chain(report.uninitialised.iter().map(|f| fault("uninitialised", f, Some(written))))
        .chain(report.protocol.iter().map(misuse))
        .collect();
    let mut text: String = all.iter().take(LIMIT).map(|p| render(places, p) + "\n").collect();
    if all.len() > LIMIT {
        text.push_str(&format!("and {} more problems (--json lists all)\n", all.len() - LIMIT));
    }
    text
}

fn render(places: &Places<'_>, problem: &Problem) -> String {
    let found: Vec<(Range<usize>, &str)> = problem
        .parties
        .iter()
        .filter_map(|(origin, label)| places.place(origin).map(|place| (place, label.as_str())))
        .collect();
    let mut elements: Vec<Element<'_>> = Vec::new();
    if !found.is_empty() {
        let mut snippet = Snippet::source(places.source).path(places.path);
        for (i, (place, label)) in found.into_iter().enumerate() {
            let kind = if i == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            snippet = snippet.annotation(kind.span(place).label(label));
        }
        elements.push(snippet.into());
    }
    if let Some(help) = problem.help {
        elements.push(Level::HELP.message(help).into());
    }
    Renderer::styled().render(&[Level::ERROR.primary_title(problem.title.as_str()).elements(elements)])
}
