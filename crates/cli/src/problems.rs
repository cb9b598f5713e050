//! Findings of the simulator, beside the statements that they are about.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Element, Level, Renderer, Snippet};
use tilewright::sim::{Fault, Misuse, Party, Race, RaceKind, Report};
use tilewright::simt::Position;
use tilewright::tile::sources::File;
use tilewright::tile::{Sources, Span};

use crate::load::Loaded;

/// Problems that are printed; of the others, the number.
const LIMIT: usize = 10;

/// Message for a thread that starts an asynchronous operation again before it has ended.
const STARTS: &str = "starts what is still in flight";

/// Longer lines are not shown.
const LINE_LIMIT: usize = 400;

/// Positions of statements in the texts.
pub struct Places<'a> {
    sources: &'a Sources,
    shown: bool,
}

impl<'a> Places<'a> {
    /// Those of a program.
    pub fn new(loaded: &'a Loaded) -> Self {
        let sources = &loaded.sources;
        Places { sources, shown: sources.text().lines().all(|line| line.len() <= LINE_LIMIT) }
    }

    /// The file of a position, and the line in it, counted from 1.
    pub fn at(&self, position: u32) -> Option<(&'a str, usize)> {
        let at = self.sources.locate(Span { start: position, end: position }).span.start;
        let file = self.sources.file(at);
        let before = file.text.as_bytes().get(..(at - file.start) as usize)?;
        Some((file.path, before.iter().filter(|b| **b == b'\n').count() + 1))
    }

    /// The line of a position, counted from 1.
    pub fn line(&self, position: u32) -> Option<usize> {
        self.at(position).map(|(_, line)| line)
    }

    /// The statement that begins at a position, as far as its line goes, in its file; and the call that led there, if a function's did.
    fn place(&self, position: Option<Position>) -> Option<(File<'a>, Range<usize>, Option<Range<usize>>)> {
        let start = position?.text()?;
        let place = self.sources.locate(Span { start, end: start });
        let file = self.sources.file(place.span.start);
        let start = place.span.start.checked_sub(file.start)? as usize;
        let line = file.text.get(start..)?.lines().next()?;
        let code = line.split("//").next().and_then(|code| code.split(['#', ';']).next()).unwrap_or(line);
        let code = code.trim_end_matches(['{', ' ', '\t']);
        let call =
            place.calls.last().map(|(_, call)| *call).filter(|call| self.sources.file(call.start) == file);
        let call = call.map(|call| {
            let range = call.range();
            range.start - file.start as usize..range.end - file.start as usize
        });
        (self.shown && !code.is_empty()).then_some((file, start..start + code.len(), call))
    }
}

/// A problem: what it is, where and who, and what would help.
struct Problem {
    /// The kind: of an unrolled loop's statements, problems of one kind at the same places are shown once.
    kind: String,
    title: String,
    /// Positions of statements with what is to be said about them, the one that shows the problem first.
    parties: Vec<(Option<Position>, String)>,
    help: Option<String>,
}

fn race(race: &Race) -> Problem {
    let Race { first, second, suggestion, .. } = race;
    let does = |p: &Party, word: &str| {
        let unit = if p.asynchronous && word != STARTS { "the asynchronous operation of " } else { "" };
        let block =
            if first.block == second.block { String::new() } else { format!(" of block {:?}", p.block) };
        format!("{unit}thread {}{block} {word} (`{}`)", p.thread, p.instruction)
    };
    let word = |p: &Party| if p.write { "writes" } else { "reads" };
    let before = match race.kind {
        RaceKind::AsyncPending | RaceKind::AsyncRead => STARTS,
        _ => word(first),
    };
    let title = race.to_string();
    let title = title.strip_suffix(&format!(": {suggestion}")).unwrap_or(&title);
    Problem {
        kind: format!("{:?} {}", race.kind, race.buffer),
        title: title.to_string(),
        parties: vec![(second.position, does(second, word(second))), (first.position, does(first, before))],
        help: Some(suggestion.clone()).filter(|s| !s.is_empty()),
    }
}

fn fault(what: &str, fault: &Fault) -> Problem {
    let does = if fault.write { "writes" } else { "reads" };
    let help = (what == "uninitialised").then(|| match fault.memory {
        "shared" => "write all of the tensor before it is read, and put `syncthreads()` between".to_string(),
        _ => "write all of the tensor before it is read".to_string(),
    });
    Problem {
        kind: format!("{what} {}", fault.buffer),
        title: format!("{what}: {fault}"),
        parties: vec![(fault.position, format!("thread {} {does} (`{}`)", fault.thread, fault.instruction))],
        help,
    }
}

fn misuse(misuse: &Misuse) -> Problem {
    Problem {
        kind: misuse.message.clone(),
        title: misuse.to_string(),
        parties: vec![(misuse.position, format!("thread {} (`{}`)", misuse.thread, misuse.instruction))],
        help: None,
    }
}

/// The problems of a report beside the statements that they are about, at most ten.
pub fn problems(places: &Places<'_>, report: &Report) -> String {
    let found = report
        .races
        .iter()
        .map(race)
        .chain(report.out_of_bounds.iter().map(|f| fault("out of bounds", f)))
        .chain(report.misaligned.iter().map(|f| fault("misaligned", f)))
        .chain(report.uninitialised.iter().map(|f| fault("uninitialised", f)))
        .chain(report.protocol.iter().map(misuse));
    let mut all: Vec<(Problem, usize)> = Vec::new();
    for problem in found {
        let at =
            |p: &Problem| p.parties.iter().map(|(position, _)| *position).collect::<Option<Vec<Position>>>();
        let same = |(p, _): &&mut (Problem, usize)| {
            p.kind == problem.kind && at(p).is_some() && at(p) == at(&problem)
        };
        match all.iter_mut().find(same) {
            Some((_, again)) => *again += 1,
            None => all.push((problem, 0)),
        }
    }
    let mut text: String =
        all.iter().take(LIMIT).map(|(p, again)| render(places, p, *again) + "\n").collect();
    if all.len() > LIMIT {
        text.push_str(&format!("and {} more problems (--json lists all)\n", all.len() - LIMIT));
    }
    text
}

/// A place of a problem: the file, the bytes, those of the call that they are part of, and the label.
type Placed<'a> = (File<'a>, Range<usize>, Option<Range<usize>>, &'a str);

fn render(places: &Places<'_>, problem: &Problem, again: usize) -> String {
    let found: Vec<Placed<'_>> = problem
        .parties
        .iter()
        .filter_map(|(position, label)| {
            let (file, place, call) = places.place(*position)?;
            Some((file, place, call, label.as_str()))
        })
        .collect();
    let mut elements: Vec<Element<'_>> = Vec::new();
    let mut files: Vec<File<'_>> = found.iter().map(|(file, ..)| *file).collect();
    files.dedup();
    for (n, file) in files.into_iter().enumerate() {
        let mut snippet = Snippet::source(file.text).path(file.path);
        for (i, (_, place, call, label)) in found.iter().filter(|(of, ..)| *of == file).enumerate() {
            let kind = if i == 0 && n == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            snippet = snippet.annotation(kind.span(place.clone()).label(*label));
            if let Some(call) = call {
                snippet =
                    snippet.annotation(AnnotationKind::Context.span(call.clone()).label("in this call"));
            }
        }
        elements.push(snippet.into());
    }
    if again > 0 {
        let note = format!("{again} more of this kind, between other copies of the same statements");
        elements.push(Level::NOTE.message(note).into());
    }
    if let Some(help) = &problem.help {
        elements.push(Level::HELP.message(help.as_str()).into());
    }
    Renderer::styled().render(&[Level::ERROR.primary_title(problem.title.as_str()).elements(elements)])
}
