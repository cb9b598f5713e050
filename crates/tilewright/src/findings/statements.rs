//! Statements of a program by their places: what findings of the simulator name.

use tilewright_compiler::Kernel;
use tilewright_simt::Position;
use tilewright_tile::core::{Stmt, StmtKind, TensorRef};
use tilewright_tile::statement::SyncScope;
use tilewright_tile::{Origin, Span, named_statement_text};

/// A statement of the core program, and where it stands.
pub(super) struct Site<'a> {
    pub(super) stmt: &'a Stmt,
    /// The number of its role.
    pub(super) role: Option<usize>,
    /// The loops, branches and stages around it, outermost first, each with its number among the statements.
    pub(super) around: Vec<(usize, &'a Stmt)>,
}

/// The statements of a kernel in the order of the text.
pub(super) struct Statements<'a> {
    kernel: &'a Kernel,
    sites: Vec<Site<'a>>,
}

impl<'a> Statements<'a> {
    pub(super) fn new(kernel: &'a Kernel) -> Self {
        let mut all = Statements { kernel, sites: Vec::new() };
        all.add(&kernel.core.body, None, &mut Vec::new());
        for (number, role) in kernel.core.roles().iter().enumerate() {
            all.add(&role.body, Some(number), &mut Vec::new());
        }
        all
    }

    fn add(&mut self, body: &'a [Stmt], role: Option<usize>, around: &mut Vec<(usize, &'a Stmt)>) {
        for stmt in body {
            let number = self.sites.len();
            self.sites.push(Site { stmt, role, around: around.clone() });
            around.push((number, stmt));
            self.add(stmt.kind.body(), role, around);
            around.pop();
        }
    }

    pub(super) fn site(&self, number: usize) -> &Site<'a> {
        &self.sites[number]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Site<'a>)> {
        self.sites.iter().enumerate()
    }

    /// The number of the statement at a position: of copies of one in unrolled loops, that with this text.
    pub(super) fn at(&self, position: Option<Position>, origin: &str) -> Option<usize> {
        let here = |stmt: &Stmt| match (position, stmt.span) {
            (Some(Position::Text(byte)), Origin::Text(span)) => byte == span.start,
            (Some(Position::Rust(place)), Origin::Rust(other)) => place == other,
            (None, _) => true,
            _ => false,
        };
        let found: Vec<usize> = self.iter().filter(|(_, site)| here(site.stmt)).map(|(n, _)| n).collect();
        let text = |number: &usize| named_statement_text(&self.kernel.core, self.site(*number).stmt);
        let first = found.first().copied().filter(|_| position.is_some());
        found.into_iter().find(|number| text(number) == origin).or(first)
    }

    /// The place of a statement that a finding names: of the whole statement, if the program has it.
    pub(super) fn place(&self, position: Option<Position>, origin: &str) -> Origin {
        let place = self.at(position, origin).map(|number| self.site(number).stmt.span);
        place.unwrap_or(match position {
            Some(Position::Text(byte)) => Origin::Text(Span { start: byte, end: byte }),
            Some(Position::Rust(location)) => Origin::Rust(location),
            None => Origin::Unknown,
        })
    }

    /// The statement as its author wrote it, on one line.
    pub(super) fn said(&self, position: Option<Position>, origin: &str) -> String {
        self.written(self.place(position, origin)).unwrap_or_else(|| self.words(origin))
    }

    /// The place and the words of a statement of which its text alone is known.
    pub(super) fn of_text(&self, origin: &str) -> (Origin, String) {
        let place = self.at(None, origin).map_or(Origin::Unknown, |number| self.site(number).stmt.span);
        (place, self.written(place).unwrap_or_else(|| self.words(origin)))
    }

    /// The text at a place.
    pub(super) fn written(&self, place: Origin) -> Option<String> {
        self.kernel.program().sources.quote(place.text()?)
    }

    fn words(&self, origin: &str) -> String {
        self.kernel.program().unnamed().said(&self.kernel.core.unnamed().said(origin))
    }

    /// The reference by which a statement writes a tensor of memory, if it does.
    pub(super) fn written_by(&self, number: usize) -> Option<&'a TensorRef> {
        let stmt = self.site(number).stmt;
        stmt.kind.references().into_iter().find(|(used, _)| used.writes()).map(|(_, reference)| reference)
    }

    /// The statements that use a tensor of this name, to read it or to write it.
    pub(super) fn using(&self, name: &str, writes: bool) -> Vec<usize> {
        let core = &self.kernel.core;
        let uses = |stmt: &Stmt| {
            let ids = if writes { stmt.kind.writes() } else { stmt.kind.reads() };
            ids.iter().any(|id| core.tensor(*id).name == name)
        };
        let mut found: Vec<usize> = Vec::new();
        for (number, site) in self.iter().filter(|(_, site)| uses(site.stmt)) {
            // Copies of one statement are one.
            let same = |other: &usize| self.site(*other).stmt.span.key() == site.stmt.span.key();
            if !site.stmt.span.is_unknown() && !found.iter().any(same) {
                found.push(number);
            }
        }
        found
    }

    /// True if all threads of the role meet between two of its statements, as the text goes from one to the other.
    pub(super) fn meets_between(&self, first: usize, second: usize) -> bool {
        let role = self.site(first).role;
        let meets = |stmt: &Stmt| match &stmt.kind {
            StmtKind::Sync(scope) => !matches!(scope, SyncScope::Warpgroup),
            StmtKind::SyncGrid { .. } | StmtKind::ClusterReduce { .. } => true,
            _ => false,
        };
        self.iter()
            .filter(|(number, _)| (first + 1..second).contains(number))
            .any(|(_, site)| site.role == role && meets(site.stmt))
    }

    /// The innermost loop around both statements.
    pub(super) fn common_loop(&self, first: usize, second: usize) -> Option<&'a Stmt> {
        let other = &self.site(second).around;
        let both = self.site(first).around.iter().rev().filter(|(n, _)| other.iter().any(|(m, _)| n == m));
        both.map(|(_, stmt)| *stmt).find(|stmt| stmt.kind.repeats())
    }

    /// The header of a loop as its author wrote it: `for i in 0..n`.
    pub(super) fn loop_words(&self, stmt: &Stmt) -> String {
        let words = self.written(stmt.span).unwrap_or_else(|| named_statement_text(&self.kernel.core, stmt));
        let words = words.split('{').next().unwrap_or_default().trim().to_string();
        if words.is_empty() { "the loop".to_string() } else { format!("`{words}`") }
    }

    /// The name of the role of a statement or thread, `role `load``.
    pub(super) fn role_words(&self, role: usize) -> String {
        self.kernel.core.roles().get(role).map_or(String::new(), |role| format!("role `{}`", role.name))
    }

    /// The number of the role that a thread has.
    pub(super) fn role_of_thread(&self, thread: u32) -> Option<usize> {
        let has = |first: u32, threads: u32| (first..first + threads).contains(&thread);
        self.kernel.core.roles().iter().position(|role| has(role.first, role.threads))
    }
}
