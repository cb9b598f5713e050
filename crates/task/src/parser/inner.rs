//! Inner variants: tunables, names of integers, tensors, partitions, launches and loops.

use tilewright_tile::{Code, Diagnostic, Expr, Span, SymbolId, nearest};

use super::{Reader, Res, Thing};
use crate::program::{
    Argument, ArgumentKind, FloatArg, FormalKind, Inner, Launch, LaunchId, Loop, LoopId, LoopKind,
    MmaOperand, Partition, PartitionId, PartitionKind, Piece, ProcessorArg, Range, Stmt, StmtKind,
    SymbolKind, TaskId, Tensor, TensorId,
};

/// The deepest nesting of loops.
const MAX_DEPTH: usize = 200;

/// Words that begin a statement of an inner variant.
const STATEMENTS: [&str; 3] = ["tunable", "launch", "for"];

impl Reader<'_> {
    /// The block of an inner variant; its name is passed.
    pub(super) fn inner(&mut self, id: TaskId) -> Res<Inner> {
        self.inner = Inner::default();
        self.labels.clear();
        self.cursor.begin_scope("variant");
        let task = self.tasks[id.index()].clone();
        for extent in &task.extents {
            let shown = self.cursor.show(*extent);
            self.note(shown)?;
        }
        for (i, formal) in task.formals.iter().enumerate() {
            let span = formal.span.text().unwrap_or_default();
            match &formal.kind {
                FormalKind::Tensor { dtype, shape, .. } => {
                    let tensor = TensorId(self.inner.tensors.len() as u32);
                    self.inner.tensors.push(Tensor {
                        name: formal.name.clone(),
                        formal: Some(i),
                        dtype: *dtype,
                        shape: shape.clone(),
                        value: None,
                        span: formal.span,
                    });
                    self.bind(&formal.name, span, "a tensor", Thing::Tensor(tensor))?;
                }
                FormalKind::Float(_) => self.bind(&formal.name, span, "a number", Thing::Float(i))?,
                FormalKind::Integer(symbol) => {
                    let shown = self.cursor.show(*symbol);
                    self.note(shown)?;
                }
            }
        }
        let statements = self.block(0)?;
        self.cursor.end_scope();
        let mut inner = std::mem::take(&mut self.inner);
        inner.statements = statements;
        Ok(inner)
    }

    /// `{ statements }`.
    fn block(&mut self, depth: usize) -> Res<Vec<Stmt>> {
        let close = self.cursor.closing();
        self.cursor.expect("{", "and the statements")?;
        let mut statements = Vec::new();
        loop {
            self.cursor.skip_newlines();
            if self.cursor.eat("}") {
                return Ok(statements);
            }
            let from = self.cursor.position();
            let scopes = self.cursor.scopes();
            let read = self.statement(depth).and_then(|stmt| {
                self.cursor.end_of_statement()?;
                Ok(stmt)
            });
            match read {
                Ok(stmt) => statements.extend(stmt),
                Err(errors) => {
                    self.cursor.end_scopes(scopes);
                    self.cursor.keep(errors, from)?;
                    if self.cursor.position() == from || self.cursor.position() > close {
                        self.cursor.go_to(close);
                    }
                }
            }
        }
    }

    /// A statement; none after a mistake that was reported.
    fn statement(&mut self, depth: usize) -> Res<Option<Stmt>> {
        let start = self.cursor.span();
        let Some(word) = self.cursor.peek_word() else {
            let error = self.cursor.unexpected("a statement");
            return Err(error.help("e.g. `cp = blocks(c, [U, V])` or `launch clear(acc)`").into());
        };
        let kind = if self.cursor.is_ahead(1, "=") {
            self.assignment()?
        } else if self.cursor.is_ahead(1, ":") || word == "launch" {
            self.launch()?.map(StmtKind::Launch)
        } else if word == "tunable" {
            self.tunables(depth)?
        } else if word == "for" {
            self.for_loop(depth)?
        } else {
            let error = Diagnostic::new(Code::Syntax, start, format!("`{word}` does not begin a statement"))
                .label("a statement was expected");
            let error = match nearest(word, STATEMENTS) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help(
                    "an inner variant does not touch data: its statements are `tunable`, `name = …`, `launch` and `for`; what computes is a `leaf`",
                ),
            };
            return Err(error.into());
        };
        let span = self.cursor.since(start);
        Ok(kind.map(|kind| Stmt { kind, span: span.into() }))
    }

    /// `tunable U, PROC: processor`.
    fn tunables(&mut self, depth: usize) -> Res<Option<StmtKind>> {
        let start = self.cursor.span();
        self.cursor.eat_word("tunable");
        let mut symbols = Vec::new();
        loop {
            let (name, span) = self.cursor.name("the tunable's name")?;
            let mut kind = SymbolKind::Tunable;
            if self.cursor.eat(":") {
                let at = self.cursor.span();
                let (word, _) = self.cursor.word("`processor`")?;
                if word != "processor" {
                    let message = format!("a tunable is an integer or a processor, not `{word}`");
                    return Err(Diagnostic::new(Code::Syntax, at, message)
                        .help("e.g. `tunable W, PROC: processor`")
                        .into());
                }
                kind = SymbolKind::TunableProcessor;
            }
            symbols.extend(self.declare(name, span, kind)?);
            if !self.cursor.eat(",") {
                break;
            }
            self.cursor.skip_newlines();
        }
        if depth > 0 {
            let error = Diagnostic::new(Code::Misplaced, start, "a tunable inside a loop")
                .help("an instance gives one value: write it before the loop");
            self.cursor.report(error)?;
        }
        Ok(Some(StmtKind::Tunable(symbols)))
    }

    /// `name = …`.
    fn assignment(&mut self) -> Res<Option<StmtKind>> {
        let (name, span) = self.cursor.name("a name")?;
        self.cursor.expect("=", "and a value")?;
        self.cursor.skip_newlines();
        let call = self.cursor.is_ahead(1, "(");
        let read = match self.cursor.peek_word() {
            Some("tensor") if call => self.tensor(name, span),
            Some(word @ ("blocks" | "mma" | "tv")) if call => self.partition(word, name, span),
            _ => self.integer(name, span),
        };
        if read.is_err() && !self.cursor.is_known(name) {
            self.cursor.poison(name, span);
        }
        read
    }

    /// An expression that a name stands for.
    fn integer(&mut self, name: &str, span: Span) -> Res<Option<StmtKind>> {
        let value = self.cursor.condition()?;
        let symbol = self.declare(name, span, SymbolKind::Let)?;
        Ok(symbol.map(|symbol| StmtKind::Let { symbol, value }))
    }

    /// `[U, V]`.
    fn shape(&mut self) -> Res<Vec<Expr>> {
        self.cursor.expect("[", "and the shape")?;
        let mut shape = Vec::new();
        self.cursor.list("]", |cursor| {
            shape.push(cursor.expr()?);
            Ok(())
        })?;
        Ok(shape)
    }

    /// `tensor(f32, [M, N])`, `tensor(f32, [M, N], 0.0)`.
    fn tensor(&mut self, name: &str, span: Span) -> Res<Option<StmtKind>> {
        self.cursor.eat_word("tensor");
        self.cursor.expect("(", "and the element type")?;
        let dtype = self.cursor.dtype()?;
        self.cursor.expect(",", "and the shape")?;
        let shape = self.shape()?;
        let mut value = None;
        if self.cursor.eat(",") {
            let at = self.cursor.span();
            value = self.float_argument()?;
            if let Some(FloatArg::Formal(_)) = value {
                let message =
                    "the value of a tensor is a number that is known here, not a formal of the task";
                return Err(Diagnostic::new(Code::TypeMismatch, at, message)
                    .help("launch a leaf that writes the tensor")
                    .into());
            }
        }
        self.cursor.expect(")", "after the tensor")?;
        let tensor = TensorId(self.inner.tensors.len() as u32);
        self.inner.tensors.push(Tensor {
            name: name.to_string(),
            formal: None,
            dtype,
            shape,
            value,
            span: span.into(),
        });
        self.bind(name, span, "a tensor", Thing::Tensor(tensor))?;
        Ok(Some(StmtKind::Tensor(tensor)))
    }

    /// `blocks(c, [U, V])`, `mma(c, wgmma_64x256x16, warp, C)`, `tv(x, (8,4):(4,1), thread)`.
    fn partition(&mut self, word: &str, name: &str, span: Span) -> Res<Option<StmtKind>> {
        self.cursor.eat_word(word);
        let close = self.cursor.closing();
        self.cursor.expect("(", "and the tensor")?;
        let tensor = self.tensor_named()?;
        self.cursor.expect(",", "and how it is cut")?;
        let kind = match word {
            "blocks" => PartitionKind::Blocks { shape: self.shape()? },
            "mma" => {
                let (instruction, _) = self.cursor.word("an instruction")?;
                self.cursor.expect(",", "and a processor")?;
                let processor = self.processor()?;
                self.cursor.expect(",", "and an operand")?;
                let at = self.cursor.span();
                let operand = match self.cursor.word("an operand")?.0 {
                    "A" => MmaOperand::A,
                    "B" => MmaOperand::B,
                    "C" => MmaOperand::C,
                    other => {
                        let message = format!("an instruction has the operands A, B and C, and no `{other}`");
                        return Err(Diagnostic::new(Code::UnknownName, at, message)
                            .help("C is M × N, A is M × K and B is N × K")
                            .into());
                    }
                };
                PartitionKind::Mma { instruction: instruction.to_string(), processor, operand }
            }
            _ => {
                let end = self.cursor.last_comma(close);
                let layout = self.cursor.layout(end)?;
                self.cursor.expect(",", "and a processor")?;
                PartitionKind::Tv { layout, processor: self.processor()? }
            }
        };
        self.cursor.expect(")", "after the partition")?;
        let Some(tensor) = tensor else {
            self.cursor.poison(name, span);
            return Ok(None);
        };
        let partition = PartitionId(self.inner.partitions.len() as u32);
        self.inner.partitions.push(Partition { name: name.to_string(), tensor, kind, span: span.into() });
        self.bind(name, span, "a partition", Thing::Partition(partition))?;
        Ok(Some(StmtKind::Partition(partition)))
    }

    /// A processor level, or a tunable that stands for one.
    fn processor(&mut self) -> Res<ProcessorArg> {
        let (word, span) = self.cursor.word("a processor")?;
        if let Some(symbol) = self.cursor.symbol(word)
            && self.kinds[symbol.0 as usize] == SymbolKind::TunableProcessor
        {
            return Ok(ProcessorArg::Tunable(symbol));
        }
        word.parse().map(ProcessorArg::Level).map_err(|error: tilewright_machine::UnknownProcessor| {
            Diagnostic::new(Code::UnknownName, span, error.to_string()).into()
        })
    }

    /// The thing that a name here stands for; `None` after a mistake about it.
    fn thing(&mut self, what: &str) -> Res<Option<(Thing, Span)>> {
        let (name, span) = self.cursor.name(what)?;
        let local = self.cursor.local(name, span, what);
        let local = self.note(local)?.flatten();
        Ok(local.and_then(|local| self.things.get(&local)).map(|thing| (*thing, span)))
    }

    fn mistyped(&self, span: Span, thing: Thing, what: &str) -> Diagnostic {
        let is = match thing {
            Thing::Number(_) | Thing::Float(_) => "a number",
            Thing::Tensor(_) => "a tensor",
            Thing::Partition(_) => "a partition",
        };
        let name = self.cursor.text(span);
        Diagnostic::new(Code::TypeMismatch, span, format!("`{name}` is {is}, not {what}"))
            .label(format!("expected {what}"))
    }

    fn tensor_named(&mut self) -> Res<Option<TensorId>> {
        match self.thing("a tensor")? {
            Some((Thing::Tensor(tensor), _)) => Ok(Some(tensor)),
            Some((thing, span)) => {
                let error = self.mistyped(span, thing, "a tensor");
                self.cursor.report(error).map(|()| None)
            }
            None => Ok(None),
        }
    }

    /// `launch f(…)`, `label: launch f(…)`; none after a mistake that was reported.
    fn launch(&mut self) -> Res<Option<LaunchId>> {
        let start = self.cursor.span();
        let mut label = None;
        if self.cursor.is_ahead(1, ":") {
            let (name, span) = self.cursor.name("a label")?;
            self.cursor.expect(":", "after the label")?;
            if let Some(first) = self.labels.insert(name.to_string(), span) {
                let message = format!("two launches have the label `{name}`");
                let error = Diagnostic::new(Code::DuplicateName, span, message);
                self.cursor.report(error.related(first, "the first one"))?;
            }
            label = Some(name.to_string());
        }
        if !self.cursor.eat_word("launch") {
            return Err(self.cursor.unexpected("`launch`").help("e.g. `out: launch store(c, acc)`").into());
        }
        let (name, span) = self.cursor.word("the name of a task")?;
        let Some(id) = self.tasks.iter().position(|task| task.name == name) else {
            let error = Diagnostic::new(Code::UnknownName, span, format!("no task is named `{name}`"));
            let near = nearest(name, self.tasks.iter().map(|task| task.name.as_str()));
            return Err(match near {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help("a task is declared beside this one: `task name(…) { … }`"),
            }
            .into());
        };
        let task = TaskId(id as u32);
        self.cursor.expect("(", "and the arguments")?;
        if self.broken.contains(&task) {
            return Ok(None);
        }
        let formals = self.tasks[id].formals.clone();
        let mut arguments = Vec::new();
        let mut wrong = false;
        loop {
            self.cursor.skip_newlines();
            if self.cursor.eat(")") {
                break;
            }
            let Some(formal) = formals.get(arguments.len()) else {
                return Err(self.wrong_count(span, id, "more").into());
            };
            let start = self.cursor.span();
            let kind = match formal.kind {
                FormalKind::Tensor { .. } => self.tensor_argument()?,
                FormalKind::Integer(_) => Some(ArgumentKind::Integer(self.cursor.condition()?)),
                FormalKind::Float(_) => self.float_argument()?.map(ArgumentKind::Float),
            };
            wrong |= kind.is_none();
            // What stands for a mistake is dropped with the launch.
            let kind = kind.unwrap_or(ArgumentKind::Integer(Expr::Int(1)));
            arguments.push(Argument { kind, span: self.cursor.since(start).into() });
            self.cursor.skip_newlines();
            if !self.cursor.eat(",") && !self.cursor.at(")") {
                return Err(self.cursor.unexpected("`)` or `,`").into());
            }
        }
        if arguments.len() < formals.len() {
            return Err(self.wrong_count(span, id, &arguments.len().to_string()).into());
        }
        if wrong {
            return Ok(None);
        }
        let launch = LaunchId(self.inner.launches.len() as u32);
        let span = self.cursor.since(start).into();
        self.inner.launches.push(Launch { label, task, arguments, span });
        Ok(Some(launch))
    }

    fn wrong_count(&self, span: Span, task: usize, given: &str) -> Diagnostic {
        let task = &self.tasks[task];
        let formals: Vec<&str> = task.formals.iter().map(|formal| formal.name.as_str()).collect();
        let message = format!("`{}` takes {} arguments, and {given} are given", task.name, formals.len());
        Diagnostic::new(Code::Syntax, span, message)
            .related(task.span, "declared here")
            .help(format!("its formals are {}", formals.join(", ")))
    }

    /// `acc`, `cp[i, j]`, `yp[i] when j == 0`; none after a mistake that was reported.
    fn tensor_argument(&mut self) -> Res<Option<ArgumentKind>> {
        let Some((thing, span)) = self.thing("a tensor or a partition")? else {
            // The index is read, so that what follows is.
            if self.cursor.at("[") {
                self.colours()?;
            }
            return Ok(None);
        };
        let piece = match thing {
            Thing::Tensor(tensor) if !self.cursor.at("[") => Piece::Whole(tensor),
            Thing::Tensor(_) => {
                let name = self.cursor.text(span).to_string();
                let message = format!("`{name}` is a tensor, and only partitions are indexed");
                return Err(Diagnostic::new(Code::TypeMismatch, span, message)
                    .help(format!("cut it first: `{name}p = blocks({name}, […])`"))
                    .into());
            }
            Thing::Partition(_) if !self.cursor.at("[") => {
                let name = self.cursor.text(span).to_string();
                let message = format!("`{name}` is a partition, and a launch takes one of its pieces");
                return Err(Diagnostic::new(Code::TypeMismatch, span, message)
                    .help(format!("say which: `{name}[i, j]`"))
                    .into());
            }
            Thing::Partition(partition) => Piece::Part { partition, colours: self.colours()? },
            Thing::Number(_) | Thing::Float(_) => {
                let error = self.mistyped(span, thing, "a tensor or a partition");
                self.cursor.report(error)?;
                return Ok(None);
            }
        };
        let when = if self.cursor.eat_word("when") { Some(self.cursor.condition()?) } else { None };
        Ok(Some(ArgumentKind::Tensor { piece, when }))
    }

    /// `[i, j]`.
    fn colours(&mut self) -> Res<Vec<Expr>> {
        self.cursor.expect("[", "and the colours of a piece")?;
        let mut colours = Vec::new();
        self.cursor.list("]", |cursor| {
            colours.push(cursor.expr()?);
            Ok(())
        })?;
        Ok(colours)
    }

    /// A formal of type `f32`, a constant, or a literal.
    fn float_argument(&mut self) -> Res<Option<FloatArg>> {
        if self.cursor.peek_word().is_none() || self.cursor.at_float() {
            return Ok(Some(FloatArg::Literal(self.cursor.number()?)));
        }
        match self.thing("a number of type `f32`")? {
            Some((Thing::Float(formal), _)) => Ok(Some(FloatArg::Formal(formal))),
            Some((Thing::Number(constant), _)) => Ok(Some(FloatArg::Constant(constant))),
            Some((thing, span)) => {
                let error = self.mistyped(span, thing, "a number of type `f32`");
                self.cursor.report(error).map(|()| None)
            }
            None => Ok(None),
        }
    }

    /// `for i, j in prange(M, N) { … }`, `for j in srange(1..n) { … }`.
    fn for_loop(&mut self, depth: usize) -> Res<Option<StmtKind>> {
        const EXAMPLE: &str = "e.g. `for i, j in prange(M, N) { … }` or `for kk in srange(K) { … }`";
        let start = self.cursor.span();
        self.cursor.eat_word("for");
        let mut names = Vec::new();
        loop {
            names.push(self.cursor.name("a counter")?);
            if !self.cursor.eat(",") {
                break;
            }
        }
        if !self.cursor.eat_word("in") {
            return Err(self.cursor.unexpected("`in`").help(EXAMPLE).into());
        }
        let kind = match self.cursor.peek_word() {
            Some("srange") => LoopKind::Srange,
            Some("prange") => LoopKind::Prange,
            _ => return Err(self.cursor.unexpected("`srange` or `prange`").help(EXAMPLE).into()),
        };
        self.cursor.eat_word(kind.name());
        let at = self.cursor.span();
        self.cursor.expect("(", "and the number of iterations")?;
        let mut ranges = Vec::new();
        self.cursor.list(")", |cursor| {
            let first = cursor.expr()?;
            ranges.push(match cursor.eat("..") {
                true => Range { lo: first, hi: cursor.expr()? },
                false => Range { lo: Expr::Int(0), hi: first },
            });
            Ok(())
        })?;
        let span = self.cursor.since(start);
        if ranges.len() != names.len() {
            let message = format!("{} counters, and {} ranges", names.len(), ranges.len());
            let error =
                Diagnostic::new(Code::Syntax, self.cursor.since(at), message).related(start, "the loop");
            return Err(error.help(EXAMPLE).into());
        }
        if depth >= MAX_DEPTH {
            let message = format!("loops nest deeper than {MAX_DEPTH} levels");
            return Err(Diagnostic::new(Code::Syntax, start, message).into());
        }
        self.cursor.skip_newlines();
        if !self.cursor.at("{") {
            return Err(self.cursor.unexpected("`{` and the loop's statements").help(EXAMPLE).into());
        }
        self.cursor.begin_scope("loop");
        let mut counters: Vec<SymbolId> = Vec::new();
        for (name, span) in names {
            counters.extend(self.declare(name, span, SymbolKind::Counter)?);
        }
        let head = LoopId(self.inner.loops.len() as u32);
        self.inner.loops.push(Loop { kind, counters, ranges, span: span.into() });
        let body = self.block(depth + 1)?;
        self.cursor.end_scope();
        Ok(Some(StmtKind::For { head, body }))
    }
}
