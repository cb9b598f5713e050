//! Text to task program, on the tokens, the integer expressions and the statements of the tile language ([`Cursor`]).
//!
//! A text is read four times: its declarations, the headers of its tasks, the bodies of their variants, and its mappings. So everything may
//! stand before what it needs, but for constants, which are over earlier ones. Mistakes are collected; behind one of them the text is read on
//! at the next statement.

mod inner;
mod leaf;
mod mapping;

use std::collections::{BTreeMap, BTreeSet};

use tilewright_tile::{Code, Cursor, Diagnostic, Diagnostics, Expr, Local, Sources, Span, SymbolId, nearest};

use crate::program::{
    Body, Formal, FormalKind, Inner, Number, PartitionId, Privilege, Program, Symbol, SymbolKind, Task,
    TaskId, TensorId, Variant,
};

type Res<T> = Result<T, Diagnostics>;

/// Reads tasks and mappings from their text; `docs/tasks.md` has the grammar.
///
/// The result is resolved (every name stands for a declared thing) but not checked: see [`verify`](crate::verify()).
///
/// The law: `parse(&program.to_string()) == Ok(program)` for every program that `parse` or the Rust DSL made.
///
/// ```
/// let program = tilewright_task::parse(
///     "task double(y: write f32[N], x: read f32[N]) { leaf all { y = x + x } }",
/// )?;
/// assert_eq!(program.tasks[0].name, "double");
/// assert_eq!(tilewright_task::parse(&program.to_string())?, program);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// Every mistake of grammar and of names, up to twenty, in the order of the text.
pub fn parse(source: &str) -> Res<Program> {
    parse_file(&Sources::new("", source))
}

/// [`parse`] of a file, whose path messages name.
///
/// # Errors
///
/// Those of [`parse`].
pub fn parse_file(sources: &Sources) -> Res<Program> {
    let mut reader = Reader {
        cursor: Cursor::new(sources),
        kinds: Vec::new(),
        numbers: Vec::new(),
        tasks: Vec::new(),
        mappings: Vec::new(),
        things: BTreeMap::new(),
        broken: BTreeSet::new(),
        inner: Inner::default(),
        labels: BTreeMap::new(),
    };
    // An error that ends the reading is one too many: those before it are told.
    let ended = reader.file().err();
    let Reader { cursor, kinds, numbers, tasks, mappings, .. } = reader;
    let symbols = match (cursor.finish(), ended) {
        (_, Some(errors)) | (Err(errors), None) => return Err(errors),
        (Ok(symbols), None) => symbols,
    };
    let symbols = symbols.into_iter().zip(kinds);
    let symbols = symbols.map(|(row, kind)| Symbol { name: row.name, kind, span: row.span }).collect();
    let mut program = Program { symbols, numbers, tasks, mappings, sources: sources.clone() };
    crate::fill::fill(&mut program);
    Ok(program)
}

/// A thing that a name of ours stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thing {
    /// A constant that is no integer: an index into [`Program::numbers`].
    Number(usize),
    /// A formal of type `f32`: an index into [`Task::formals`].
    Float(usize),
    /// A tensor of an inner variant.
    Tensor(TensorId),
    /// A partition of an inner variant.
    Partition(PartitionId),
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    /// The kind of each of the cursor's symbols.
    kinds: Vec<SymbolKind>,
    numbers: Vec<Number>,
    tasks: Vec<Task>,
    mappings: Vec<crate::mapping::Mapping>,
    things: BTreeMap<Local, Thing>,
    /// Tasks whose header could not be read: launches of them are not complained about.
    broken: BTreeSet<TaskId>,
    /// The inner variant that is being read.
    inner: Inner,
    /// The labels of its launches, with their places.
    labels: BTreeMap<String, Span>,
}

/// An item of the text: the token behind its first word.
#[derive(Clone, Copy)]
enum Item {
    Task(usize),
    Mapping(usize),
}

/// A task's name stands in front of its formals.
const TASK: &str = "e.g. `task clear(x: write f32[M, N]) { leaf zero { fill(x, 0.0) } }`";

impl Reader<'_> {
    fn file(&mut self) -> Res<()> {
        let items = self.declarations()?;
        let mut bodies = Vec::new();
        for item in &items {
            if let Item::Task(at) = item {
                self.cursor.go_to(*at);
                bodies.push(self.header()?);
            }
        }
        for (i, body) in bodies.into_iter().enumerate() {
            if let Some(body) = body {
                self.cursor.go_to(body);
                self.body(TaskId(i as u32))?;
            }
        }
        for item in items {
            if let Item::Mapping(at) = item {
                self.cursor.go_to(at);
                self.mapping()?;
            }
        }
        Ok(())
    }

    /// Records a mistake, if there is one.
    fn note<T>(&mut self, result: Result<T, Diagnostic>) -> Res<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.cursor.report(error).map(|()| None),
        }
    }

    /// Declares a symbol; `None` after a mistake.
    fn declare(&mut self, name: &str, span: Span, kind: SymbolKind) -> Res<Option<SymbolId>> {
        use tilewright_tile::SymbolKind as Tile;
        // Of the kind that messages about it name.
        let tile = match &kind {
            SymbolKind::Constant(_) | SymbolKind::Tunable | SymbolKind::TunableProcessor => {
                Tile::Constant(Expr::Int(1))
            }
            SymbolKind::Size(_) | SymbolKind::Extent => Tile::Size(1),
            SymbolKind::Let => Tile::Let,
            SymbolKind::Counter | SymbolKind::Scalar(_) => Tile::Counter,
        };
        let declared = self.cursor.declare(name, span, tile);
        let id = self.note(declared)?;
        if id.is_some() {
            self.kinds.push(kind);
        }
        Ok(id)
    }

    /// Binds a name to a thing of ours; `None` after a mistake.
    fn bind(&mut self, name: &str, span: Span, noun: &'static str, thing: Thing) -> Res<()> {
        let declared = self.cursor.declare_local(name, span, noun);
        if let Some(local) = self.note(declared)? {
            self.things.insert(local, thing);
        }
        Ok(())
    }

    /// The declarations of the text; the other items.
    fn declarations(&mut self) -> Res<Vec<Item>> {
        let mut items = Vec::new();
        loop {
            self.cursor.skip_newlines();
            if self.cursor.at_end() {
                return Ok(items);
            }
            let from = self.cursor.position();
            match self.cursor.peek_word() {
                Some(word @ ("size" | "const")) => {
                    if let Err(errors) = self.declaration(word == "const") {
                        self.cursor.keep(errors, from)?;
                    }
                }
                Some(word @ ("task" | "mapping")) => {
                    let behind = from + 1;
                    items.push(if word == "task" { Item::Task(behind) } else { Item::Mapping(behind) });
                    self.pass_item(behind)?;
                }
                _ => {
                    let words = ["size", "const", "task", "mapping"];
                    let near = self.cursor.peek_word().and_then(|word| nearest(word, words));
                    let error = self.cursor.unexpected("`task`, `mapping`, `const` or `size`");
                    let error = match near {
                        Some(near) => error.help(format!("did you mean `{near}`?")),
                        None => error.help(TASK),
                    };
                    self.cursor.keep(error.into(), from)?;
                    if self.cursor.position() == from {
                        self.cursor.go_to(from + 1);
                    }
                }
            }
        }
    }

    /// Goes behind the block of the item whose first word was passed.
    fn pass_item(&mut self, behind: usize) -> Res<()> {
        self.cursor.go_to(behind);
        loop {
            let word = self.cursor.peek_word();
            if self.cursor.at_end() || matches!(word, Some("task" | "mapping" | "size" | "const")) {
                let error = self.cursor.unexpected("`{` and a block").help(TASK);
                return self.cursor.report(error);
            }
            let block = self.cursor.at("{");
            let bracket = block || self.cursor.at("(") || self.cursor.at("[");
            let next = if bracket { self.cursor.closing() } else { self.cursor.position() } + 1;
            self.cursor.go_to(next);
            if block {
                return Ok(());
            }
        }
    }

    /// `size m = 4096, n = 4096`, `const D = 128, LOW = -1.5e30`.
    fn declaration(&mut self, constants: bool) -> Res<()> {
        self.cursor.go_to(self.cursor.position() + 1);
        loop {
            let (name, span) = self.cursor.name("a name")?;
            self.cursor.expect("=", "and the default")?;
            if constants && self.cursor.at_float() {
                let value = self.cursor.number()?;
                let thing = Thing::Number(self.numbers.len());
                self.bind(name, span, "a number", thing)?;
                self.numbers.push(Number { name: name.to_string(), value, span: span.into() });
            } else if constants {
                let value = self.cursor.expr()?;
                self.declare(name, span, SymbolKind::Constant(value))?;
            } else {
                let value = self.cursor.integer()?;
                self.declare(name, span, SymbolKind::Size(value))?;
            }
            if !self.cursor.eat(",") {
                return self.cursor.end_of_statement();
            }
            self.cursor.skip_newlines();
        }
    }

    /// `name(formals) {`; the token of the block, `None` where the header could not be read.
    fn header(&mut self) -> Res<Option<usize>> {
        let id = TaskId(self.tasks.len() as u32);
        let span = self.cursor.span();
        let mut task = Task {
            name: self.cursor.peek_word().unwrap_or_default().to_string(),
            formals: Vec::new(),
            extents: Vec::new(),
            variants: Vec::new(),
            fills: false,
            span: span.into(),
        };
        let twice = self.tasks.iter().find(|other| other.name == task.name).map(|other| other.span);
        self.cursor.begin_scope("task");
        let mut read = self.formals(&mut task);
        self.cursor.end_scope();
        if let (Some(first), Ok(())) = (twice, &read) {
            let message = format!("two tasks are named `{}`", task.name);
            let error = Diagnostic::new(Code::DuplicateName, span, message).related(first, "the first one");
            read = Err(error.help("a task has several bodies as variants in one declaration").into());
        }
        self.tasks.push(task);
        match read {
            Ok(()) => Ok(Some(self.cursor.position())),
            Err(errors) => {
                self.broken.insert(id);
                let from = self.cursor.position();
                self.cursor.keep(errors, from)?;
                Ok(None)
            }
        }
    }

    fn formals(&mut self, task: &mut Task) -> Res<()> {
        self.cursor.word("the task's name").map_err(|errors| with_help(errors, TASK))?;
        self.cursor.skip_newlines();
        self.cursor.expect("(", "and the task's formals")?;
        let mut formals = Vec::new();
        loop {
            self.cursor.skip_newlines();
            if self.cursor.eat(")") {
                break;
            }
            formals.push(self.formal(&mut task.extents, formals.len())?);
            self.cursor.skip_newlines();
            if !self.cursor.eat(",") && !self.cursor.at(")") {
                return Err(self.cursor.unexpected("`)` or `,`").into());
            }
        }
        task.formals = formals;
        self.cursor.skip_newlines();
        if !self.cursor.at("{") {
            return Err(self.cursor.unexpected("`{` and the task's variants").help(TASK).into());
        }
        Ok(())
    }

    /// `c: write f16[M, N]`, `scale: f32 = 1.0`, `rest: i32`.
    fn formal(&mut self, extents: &mut Vec<SymbolId>, number: usize) -> Res<Formal> {
        const EXAMPLES: &str = "a tensor: `x: read f16[M, K]`; a number: `scale: f32` or `rest: i32`";
        let (name, span) = self.cursor.name("a formal")?;
        self.cursor.expect(":", "and the formal's privilege and type")?;
        let privilege = self.privilege();
        let at = self.cursor.span();
        let dtype = self.cursor.dtype().map_err(|errors| with_help(errors, EXAMPLES))?;
        let kind = match privilege {
            Some(privilege) => {
                self.cursor.expect("[", "and the shape")?;
                let mut shape = Vec::new();
                loop {
                    self.cursor.skip_newlines();
                    if self.cursor.eat("]") {
                        break;
                    }
                    shape.push(self.extent(extents)?);
                    if !self.cursor.eat(",") && !self.cursor.at("]") {
                        return Err(self.cursor.unexpected("`]` or `,`").into());
                    }
                }
                // Its name is taken; what it stands for is bound in the variants.
                let declared = self.cursor.declare_local(name, span, "a tensor");
                self.note(declared)?;
                FormalKind::Tensor { privilege, dtype, shape }
            }
            None if self.cursor.at("[") => {
                let message = format!("the tensor `{name}` has no privilege");
                return Err(Diagnostic::new(Code::Syntax, at, message)
                    .help("say what the task does with it, before the type: `read`, `write`, `read_write` or `add`")
                    .into());
            }
            None if dtype.name() == "f32" => {
                let default = if self.cursor.eat("=") { Some(self.cursor.number()?) } else { None };
                self.bind(name, span, "a number", Thing::Float(number))?;
                FormalKind::Float(default)
            }
            None if dtype.name() == "i32" => {
                let default = if self.cursor.eat("=") { Some(self.cursor.integer()?) } else { None };
                let symbol = self.declare(name, span, SymbolKind::Scalar(default))?;
                FormalKind::Integer(symbol.unwrap_or(SymbolId(0)))
            }
            None => {
                let message =
                    format!("`{name}` is a number of type `{dtype}`, and tasks take `f32` and `i32`");
                return Err(Diagnostic::new(Code::TypeMismatch, at, message).help(EXAMPLES).into());
            }
        };
        Ok(Formal { name: name.to_string(), kind, span: span.into() })
    }

    fn privilege(&mut self) -> Option<Privilege> {
        let word = self.cursor.peek_word()?;
        let found = Privilege::ALL.into_iter().find(|privilege| privilege.name() == word)?;
        self.cursor.eat_word(word);
        Some(found)
    }

    /// An extent of a formal: a name that stands for nothing yet is one of the task's.
    fn extent(&mut self, extents: &mut Vec<SymbolId>) -> Res<Expr> {
        let alone = self.cursor.is_ahead(1, ",") || self.cursor.is_ahead(1, "]");
        if let Some(word) = self.cursor.peek_word()
            && alone
            && !self.cursor.is_known(word)
        {
            let (name, span) = self.cursor.name("an extent")?;
            let symbol = self.declare(name, span, SymbolKind::Extent)?;
            extents.extend(symbol);
            return Ok(symbol.map_or(Expr::Int(1), Expr::Symbol));
        }
        self.cursor.expr()
    }

    /// The variants of a task, at its brace.
    fn body(&mut self, id: TaskId) -> Res<()> {
        let close = self.cursor.closing();
        self.cursor.expect("{", "and the task's variants")?;
        loop {
            self.cursor.skip_newlines();
            if self.cursor.position() >= close {
                break;
            }
            let from = self.cursor.position();
            let scopes = self.cursor.scopes();
            match self.variant(id) {
                Ok(variant) => self.tasks[id.index()].variants.push(variant),
                Err(errors) => {
                    self.cursor.end_scopes(scopes);
                    self.cursor.keep(errors, from)?;
                    if self.cursor.position() == from {
                        self.cursor.go_to(from + 1);
                    }
                }
            }
        }
        if self.tasks[id.index()].variants.is_empty() {
            let task = &self.tasks[id.index()];
            let message = format!("the task `{}` has no variant", task.name);
            let error = Diagnostic::new(Code::Syntax, task.span, message).help(
                "give it a body: `inner NAME { … }` partitions and launches, `leaf NAME { … }` computes",
            );
            self.cursor.report(error)?;
        }
        Ok(())
    }

    /// `inner name { … }`, `leaf name { … }`.
    fn variant(&mut self, id: TaskId) -> Res<Variant> {
        let word = self.cursor.peek_word();
        let leaf = match word {
            Some("inner") => false,
            Some("leaf") => true,
            _ => {
                let near = word.and_then(|word| nearest(word, ["inner", "leaf"]));
                let error = self.cursor.unexpected("`inner` or `leaf`");
                return Err(match near {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error.help(
                        "a task holds its variants: `inner NAME { … }` partitions and launches, `leaf NAME { … }` computes",
                    ),
                }
                .into());
            }
        };
        self.cursor.go_to(self.cursor.position() + 1);
        let (name, span) = self.cursor.word("the variant's name")?;
        let variants = &self.tasks[id.index()].variants;
        if let Some(first) = variants.iter().find(|variant| variant.name == name) {
            let message = format!("two variants of `{}` are named `{name}`", self.tasks[id.index()].name);
            let error = Diagnostic::new(Code::DuplicateName, span, message);
            return Err(error.related(first.span, "the first one").into());
        }
        self.cursor.skip_newlines();
        if !self.cursor.at("{") {
            return Err(self.cursor.unexpected("`{` and the variant's statements").into());
        }
        let body = match leaf {
            true => Body::Leaf(Box::new(self.leaf(id, name)?)),
            false => Body::Inner(self.inner(id)?),
        };
        self.cursor.end_of_statement()?;
        Ok(Variant { name: name.to_string(), body, span: span.into() })
    }
}

/// The mistakes with a help, where they have none.
fn with_help(errors: Diagnostics, help: &str) -> Diagnostics {
    let helped = |error: Diagnostic| if error.help.is_some() { error } else { error.help(help) };
    Diagnostics(errors.0.into_iter().map(helped).collect())
}
