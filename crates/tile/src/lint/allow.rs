//! `// allow: name` in the text of a program.

use std::collections::BTreeMap;

use crate::diagnostic::{Code, Diagnostic, Span};
use crate::nearest::nearest;
use crate::program::Program;
use crate::sources::Sources;

/// The lints that a program's texts allow, and where.
pub(super) struct Allowed<'a> {
    sources: &'a Sources,
    /// For each file, by its first byte, and line the names.
    lines: BTreeMap<(u32, usize), Vec<&'a str>>,
    /// The names above the kernel, for all of it.
    kernel: Vec<&'a str>,
}

/// The names behind `allow:` in the comment of a line.
fn names(line: &str) -> Option<impl Iterator<Item = &str>> {
    let comment = line.find("//").map(|at| &line[at + 2..]).or(line.find('#').map(|at| &line[at + 1..]))?;
    let names = comment.trim_start().strip_prefix("allow:")?;
    Some(names.split(',').map(str::trim).filter(|name| !name.is_empty()))
}

/// True for a line with nothing but a comment.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with('#')
}

impl<'a> Allowed<'a> {
    /// The lints that the texts of a program allow.
    pub(super) fn of(program: &'a Program) -> Self {
        let sources = &program.sources;
        let mut allowed = Allowed { sources, lines: BTreeMap::new(), kernel: Vec::new() };
        for file in sources.all() {
            let mut pending: Vec<&str> = Vec::new();
            for (number, line) in file.text.lines().enumerate() {
                let found: Vec<&str> = names(line).into_iter().flatten().collect();
                if is_comment(line) {
                    pending.extend(found);
                    continue;
                }
                if line.trim().is_empty() {
                    continue;
                }
                let mut here = std::mem::take(&mut pending);
                here.extend(found);
                if here.is_empty() {
                    continue;
                }
                let head = line.trim_start().strip_prefix("kernel ").map(str::trim_start);
                if head.is_some_and(|head| head.starts_with(program.name.as_str())) {
                    allowed.kernel.extend(here);
                } else {
                    allowed.lines.insert((file.start, number), here);
                }
            }
        }
        allowed
    }

    /// True for a finding that the text allows.
    pub(super) fn covers(&self, finding: &Diagnostic) -> bool {
        let name = finding.code.name();
        if self.kernel.contains(&name) {
            return true;
        }
        let Some(span) = finding.span.text() else { return false };
        let file = self.sources.file(span.start);
        self.names_at(file.start, self.line(span)).is_some_and(|names| names.contains(&name))
    }

    fn line(&self, span: Span) -> usize {
        let span = self.sources.locate(span).span;
        let file = self.sources.file(span.start);
        let before = (span.start - file.start) as usize;
        file.text.as_bytes()[..before.min(file.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    fn names_at(&self, file: u32, line: usize) -> Option<&Vec<&'a str>> {
        self.lines.get(&(file, line))
    }
}

/// Names that the texts allow and no lint has.
pub(super) fn unknown(sources: &Sources) -> Vec<Diagnostic> {
    let known: Vec<&str> = super::lints().map(Code::name).collect();
    let mut unknown = Vec::new();
    for file in sources.all() {
        let mut start = file.start as usize;
        for line in file.text.split_inclusive('\n') {
            for name in names(line.trim_end()).into_iter().flatten() {
                if known.contains(&name) {
                    continue;
                }
                let at = start + (name.as_ptr() as usize - line.as_ptr() as usize);
                let message = format!("there is no lint `{name}`");
                let finding = Diagnostic::new(Code::UnknownLint, Span::new(at, at + name.len()), message);
                unknown.push(match nearest(name, known.iter().copied()) {
                    Some(meant) => finding.help(format!("did you mean `{meant}`?")),
                    None => finding.help(format!("the lints are {}", known.join(", "))),
                });
            }
            start += line.len();
        }
    }
    unknown
}
