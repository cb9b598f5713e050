//! A program under construction, its names and their scopes: shared by the parser and the Rust DSL.

mod results;

use std::collections::{HashMap, HashSet};

use tilewright_layout::Layout;
use tilewright_machine::DType;

use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, SymbolId};
use crate::ids::{StmtId, StmtIds};
use crate::names::{is_identifier, is_reserved};
use crate::nearest::nearest;
use crate::program::Unnamed;
use crate::program::{
    Barrier, BarrierId, BarrierKind, Dealer, ElemExpr, Param, ParamId, ParamKind, Pipeline, PipelineId,
    Program, Side, Stmt, StmtKind, Symbol, SymbolKind, Tensor, TensorId, TensorKind, TensorRef, TileOrder,
};
use crate::sources::Sources;
use crate::unnamed::{self, Nameless};

/// The meaning of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    Symbol(SymbolId),
    Param(ParamId),
    Tensor(TensorId),
    Pipeline(PipelineId),
    Barrier(BarrierId),
    Role,
    /// A function.
    Function,
    /// The argument of a function that is no name: an index into [`Builder::given`].
    Given(usize),
    /// Something whose declaration was wrong: uses of it are not reported again.
    Poisoned,
}

/// An argument of a function that is no name.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// An integer.
    Integer(Expr),
    /// A number: an elementwise expression without tensors.
    Number(ElemExpr),
    /// A part of a view or of a shared tensor.
    Tensor(TensorRef),
    /// A thing of another front end: its noun in messages.
    Other(&'static str),
}

impl Given {
    /// Its noun in messages.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Given::Integer(_) => "an integer",
            Given::Number(_) => "a number",
            Given::Tensor(_) => "a part of a tensor",
            Given::Other(noun) => noun,
        }
    }
}

/// The names inside a function, of one of its calls, with the names that they have in the program.
struct Frame {
    function: String,
    names: HashMap<String, String>,
}

struct Entry {
    named: Named,
    span: Origin,
    /// The kind of block it was defined in, once that has ended.
    ended: Option<&'static str>,
}

/// A statement that holds others, but for those.
pub(crate) enum Head {
    For {
        counter: SymbolId,
        lo: Expr,
        hi: Expr,
        condition: Option<Expr>,
    },
    Tiles {
        row: SymbolId,
        col: SymbolId,
        previous: Option<[SymbolId; 2]>,
        rows: Expr,
        cols: Expr,
        order: TileOrder,
        dynamic: Option<Dealer>,
    },
    If {
        condition: Expr,
        otherwise: bool,
    },
    /// Of no condition after a mistake about it.
    IfAny {
        condition: Option<TensorId>,
        axis: u32,
    },
    Drain {
        previous: [SymbolId; 2],
    },
    Role {
        name: String,
        warpgroups: Expr,
        registers: Option<Expr>,
    },
    /// Of no pipeline after a mistake about its name.
    /// Of no turns after a mistake about their name.
    InTurn {
        turns: Option<BarrierId>,
    },
    Stage {
        pipeline: Option<PipelineId>,
        side: Side,
    },
    /// A block of another front end, whose names end with it.
    Scope(&'static str),
}

impl Head {
    /// Its name in messages.
    fn name(&self) -> &'static str {
        match self {
            Head::For { .. } | Head::Tiles { .. } => "loop",
            Head::If { .. } | Head::IfAny { .. } => "branch",
            Head::Drain { .. } => "`drain`",
            Head::Role { .. } => "role",
            Head::InTurn { .. } => "turn",
            Head::Stage { .. } => "stage",
            Head::Scope(name) => name,
        }
    }

    /// The statement; `None` after a mistake.
    fn with(self, body: Vec<Stmt>) -> Option<StmtKind> {
        Some(match self {
            Head::For { counter, lo, hi, condition } => StmtKind::For { counter, lo, hi, condition, body },
            Head::Tiles { row, col, previous, rows, cols, order, dynamic } => {
                StmtKind::Tiles { row, col, previous, rows, cols, order, dynamic, body }
            }
            Head::If { condition, otherwise } => StmtKind::If { condition, otherwise, body },
            Head::IfAny { condition, axis } => StmtKind::IfAny { condition: condition?, axis, body },
            Head::Drain { previous } => StmtKind::Drain { previous, body },
            Head::Role { name, warpgroups, registers } => {
                StmtKind::Role { name, warpgroups, registers, body }
            }
            Head::InTurn { turns } => StmtKind::InTurn { turns: turns?, body },
            Head::Stage { pipeline, side } => StmtKind::Stage { pipeline: pipeline?, side, body },
            Head::Scope(_) => return None,
        })
    }
}

/// A block that has begun.
struct Open {
    head: Head,
    id: StmtId,
    outer: Vec<Stmt>,
    names: Vec<String>,
}

/// A program under construction.
pub(crate) struct Builder {
    pub(crate) program: Program,
    /// The tensors that have no names yet.
    pub(crate) nameless: Vec<Nameless>,
    names: HashMap<String, Entry>,
    open: Vec<Open>,
    body: Vec<Stmt>,
    /// The functions whose copies are being read, the innermost last.
    frames: Vec<Frame>,
    /// Words of the text: a name that is made is none of them.
    pub(crate) taken: HashSet<String>,
    /// Arguments of functions that are no names.
    pub(crate) given: Vec<Given>,
    /// True if a function was put in the place of a call.
    inlined: bool,
    /// True if counters and tensors are declared before the statements, so that no statement declares one.
    pub(crate) declared: bool,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder {
            program: Program {
                name: String::new(),
                symbols: Vec::new(),
                params: Vec::new(),
                grid: Vec::new(),
                grid_span: Origin::Unknown,
                threads: Expr::Int(0),
                threads_span: Origin::Unknown,
                resident: Expr::Int(1),
                cluster: vec![Expr::Int(1)],
                cluster_span: Origin::Unknown,
                tensors: Vec::new(),
                pipelines: Vec::new(),
                barriers: Vec::new(),
                statements: StmtIds::default(),
                body: Vec::new(),
                space: Vec::new(),
                sources: Sources::default(),
            },
            nameless: Vec::new(),
            names: HashMap::new(),
            open: Vec::new(),
            body: Vec::new(),
            frames: Vec::new(),
            taken: HashSet::new(),
            given: Vec::new(),
            inlined: false,
            declared: false,
        }
    }

    /// The entry of a name, as it is written where the text is being read.
    fn entry(&self, name: &str) -> Option<&Entry> {
        let Some(frame) = self.frames.last() else { return self.names.get(name) };
        match frame.names.get(name) {
            Some(inner) => self.names.get(inner),
            None => self.names.get(name).filter(|entry| self.is_global(entry.named)),
        }
    }

    /// True if functions see what stands outside of them by its name.
    fn is_global(&self, named: Named) -> bool {
        match named {
            Named::Symbol(id) => {
                matches!(self.program.symbol(id).kind, SymbolKind::Size(_) | SymbolKind::Constant(_))
            }
            Named::Function => true,
            _ => false,
        }
    }

    /// A name that nothing has and that no text mentions, made of another.
    fn made(&self, base: &str) -> String {
        let free = |made: &String| {
            !self.taken.contains(made) && !self.names.contains_key(made) && !is_reserved(made)
        };
        let numbered = |i: u64| if i == 0 { base.to_string() } else { format!("{base}_{i}") };
        (0..).map(numbered).find(free).unwrap_or_default()
    }

    /// Binds a name until the enclosing block ends; the name that it has in the program.
    fn bind(&mut self, name: &str, span: Origin, named: Named) -> Result<String, Diagnostic> {
        let legal = check_name(name, span);
        // Inside a function a name hides one outside.
        let known = match self.frames.last() {
            None => self.names.get(name),
            Some(frame) => frame.names.get(name).and_then(|inner| self.names.get(inner)),
        };
        // What was wrong before may be declared again.
        let stands = |entry: &&Entry| entry.ended.is_none() && entry.named != Named::Poisoned;
        if let Some(entry) = known.filter(stands) {
            return Err(Diagnostic::new(
                Code::DuplicateName,
                span,
                format!("the name `{name}` is declared twice"),
            )
            .label("declared again here")
            .related(entry.span, "first declared here")
            .help("a name stands for one thing until its block ends: choose another"));
        }
        let inner = match self.frames.last() {
            None => name.to_string(),
            Some(frame) => {
                let base: String = format!("{}_{name}", frame.function).chars().take(100).collect();
                self.made(&base)
            }
        };
        // A poisoned entry keeps later uses of an illegal name from being reported once more.
        let named = if legal.is_ok() { named } else { Named::Poisoned };
        self.names.insert(inner.clone(), Entry { named, span, ended: None });
        if let Some(frame) = self.frames.last_mut() {
            frame.names.insert(name.to_string(), inner.clone());
        }
        if let Some(innermost) = self.open.last_mut() {
            innermost.names.push(inner.clone());
        }
        legal.map(|()| inner)
    }

    /// Begins a function's copy: its parameters, each with what a call gives for it, and names of its own.
    pub(crate) fn enter(&mut self, function: &str, params: Vec<(String, Origin, Named)>) {
        self.inlined = true;
        self.frames.push(Frame { function: function.to_string(), names: HashMap::new() });
        for (name, span, named) in params {
            // Names of parameters were checked where the function is defined.
            let _ = self.bind(&name, span, named);
        }
    }

    /// Ends the innermost function's copy.
    pub(crate) fn leave(&mut self) {
        self.frames.pop();
    }

    /// Binds a name to what it stands for, until the function's copy ends.
    pub(crate) fn declare_given(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        given: Given,
    ) -> Result<(), Diagnostic> {
        let named = self.give(given);
        self.bind(name, span.into(), named).map(|_| ())
    }

    /// Binds the name of a function.
    pub(crate) fn declare_function(&mut self, name: &str, span: impl Into<Origin>) -> Result<(), Diagnostic> {
        self.bind(name, span.into(), Named::Function).map(|_| ())
    }

    /// Keeps an argument that is no name.
    pub(crate) fn give(&mut self, given: Given) -> Named {
        self.given.push(given);
        Named::Given(self.given.len() - 1)
    }

    /// Binds a name to a symbol that is declared already, until the enclosing block ends.
    pub(crate) fn bind_symbol(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        symbol: SymbolId,
    ) -> Result<(), Diagnostic> {
        self.bind(name, span.into(), Named::Symbol(symbol)).map(|_| ())
    }

    /// Binds a name whose declaration was wrong.
    pub(crate) fn poison(&mut self, name: &str, span: impl Into<Origin>) {
        let span = span.into();
        // Should the name be taken, there is nothing to suppress.
        let _ = self.bind(name, span, Named::Poisoned);
    }

    pub(crate) fn declare_symbol(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        kind: SymbolKind,
    ) -> Result<SymbolId, Diagnostic> {
        let span = span.into();
        let id = SymbolId(self.program.symbols.len() as u32);
        let name = self.bind(name, span, Named::Symbol(id))?;
        self.program.symbols.push(Symbol { name, kind, span });
        Ok(id)
    }

    /// The name of a ticket, to the end of the block around: the declared one, or a new one.
    pub(crate) fn declare_ticket(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
    ) -> Result<SymbolId, Diagnostic> {
        self.counter(name, span.into(), SymbolKind::Ticket)
    }

    pub(crate) fn declare_param(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        dtype: DType,
        kind: ParamKind,
    ) -> Result<ParamId, Diagnostic> {
        let span = span.into();
        let id = ParamId(self.program.params.len() as u32);
        let name = self.bind(name, span, Named::Param(id))?;
        self.program.params.push(Param { name, dtype, kind, span });
        Ok(id)
    }

    pub(crate) fn declare_tensor(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        dtype: DType,
        kind: TensorKind,
    ) -> Result<TensorId, Diagnostic> {
        let span = span.into();
        let id = TensorId(self.program.tensors.len() as u32);
        let name = self.bind(name, span, Named::Tensor(id))?;
        self.program.tensors.push(Tensor { name, dtype, kind, span, unnamed: Unnamed::default() });
        Ok(id)
    }

    /// The meaning of a visible name; `what` says in the message what was looked for.
    pub(crate) fn lookup(
        &self,
        name: &str,
        span: impl Into<Origin>,
        what: &str,
    ) -> Result<Named, Diagnostic> {
        let span = span.into();
        match self.entry(name) {
            Some(Entry { named, ended: None, .. }) => Ok(*named),
            Some(Entry { span: defined, ended: Some(block), .. }) => Err(Diagnostic::new(
                Code::UnknownName,
                span,
                format!("`{name}` is defined inside a {block} and does not exist after it"),
            )
            .label(format!("used outside its {block}"))
            .related(*defined, "defined here")
            .help(before(block))),
            None if self.names.contains_key(name) => {
                let function = self.frames.last().map_or("", |frame| frame.function.as_str());
                Err(Diagnostic::new(
                    Code::UnknownName,
                    span,
                    format!(
                        "the function `{function}` does not see `{name}`, which is defined outside of it"
                    ),
                )
                .label("not a parameter")
                .help(format!(
                    "give it as an argument: `fn {function}(…, {name})`; constants and sizes are seen"
                )))
            }
            None => {
                let near = nearest(name, self.visible_names());
                let diagnostic =
                    Diagnostic::new(Code::UnknownName, span, format!("nothing is named `{name}`"));
                Err(match near {
                    Some(near) => diagnostic.label("not declared").help(format!("did you mean `{near}`?")),
                    None => diagnostic.label(format!("{what} was expected")),
                })
            }
        }
    }

    /// The names that are visible, as they are written where the text is being read.
    fn visible_names(&self) -> Vec<&str> {
        let visible = |name: &&str| self.entry(name).is_some_and(|entry| entry.ended.is_none());
        match self.frames.last() {
            None => self.names.keys().map(String::as_str).filter(visible).collect(),
            Some(frame) => {
                frame.names.keys().chain(self.names.keys()).map(String::as_str).filter(visible).collect()
            }
        }
    }

    /// The meaning of a name that is visible.
    pub(crate) fn get(&self, name: &str) -> Option<Named> {
        self.entry(name).filter(|e| e.ended.is_none()).map(|e| e.named)
    }

    /// Checks that a tensor's name is visible.
    pub(crate) fn visible(&self, tensor: TensorId, at: Origin) -> Result<(), Diagnostic> {
        let tensor = match self.program.tensor(tensor).kind {
            TensorKind::Part { of, .. } => of,
            _ => tensor,
        };
        let name = &self.program.tensor(tensor).name;
        // Inside a function the tensors of its callers are seen by other names.
        if !self.frames.is_empty() && self.names.get(name).is_some_and(|entry| entry.ended.is_none()) {
            return Ok(());
        }
        self.lookup(name, at, "a tensor").map(|_| ())
    }

    pub(crate) fn emit(&mut self, kind: StmtKind, span: impl Into<Origin>) {
        let stmt = self.program.statement(kind, span.into());
        self.push(stmt);
    }

    /// Adds a statement to the block at hand.
    pub(crate) fn push(&mut self, stmt: Stmt) {
        self.body.push(stmt);
    }

    /// The number of blocks that are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The number of blocks that are open, and of calls of functions that are being read.
    pub(crate) fn nesting(&self) -> (usize, usize) {
        (self.open.len(), self.frames.len())
    }

    /// Goes back to a nesting: what began since ends, after a mistake in it.
    pub(crate) fn unwind(&mut self, blocks: usize, calls: usize) {
        self.frames.truncate(calls);
        while self.open.len() > blocks {
            self.end(Origin::Unknown);
        }
    }

    /// Takes the latest statement out of the block at hand.
    pub(crate) fn take_last(&mut self) -> Option<Stmt> {
        self.body.pop()
    }

    /// Opens a block.
    pub(crate) fn begin(&mut self, head: Head) {
        let outer = std::mem::take(&mut self.body);
        let id = self.program.statements.fresh(None);
        self.open.push(Open { head, id, outer, names: Vec::new() });
    }

    /// The counter of this name: the declared one, or, `after` others, the one that is next declared.
    fn next_counter(&self, name: &str, after: u32) -> SymbolId {
        match self.get(name) {
            Some(Named::Symbol(id)) if self.declared => id,
            _ => SymbolId(self.program.symbols.len() as u32 + after),
        }
    }

    /// A counter of the loop that has just begun.
    fn counter(&mut self, name: &str, span: Origin, kind: SymbolKind) -> Result<SymbolId, Diagnostic> {
        if self.declared {
            return match self.lookup(name, span, "a counter")? {
                Named::Symbol(id) => Ok(id),
                _ => Err(Diagnostic::new(Code::TypeMismatch, span, format!("`{name}` is not a counter"))
                    .help(format!("declare one: `counter {name}_`"))),
            };
        }
        let counter = SymbolId(self.program.symbols.len() as u32);
        let bound = self.bind(name, span, Named::Symbol(counter));
        let inner = bound.as_ref().map_or_else(|_| name.to_string(), String::clone);
        self.program.symbols.push(Symbol { name: inner, kind, span });
        bound.map(|_| counter)
    }

    /// Opens a loop; its counter, of this kind, is visible until [`Builder::end`].
    pub(crate) fn begin_for(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        (lo, hi): (Expr, Expr),
        kind: SymbolKind,
    ) -> Result<SymbolId, Diagnostic> {
        let span = span.into();
        let counter = self.next_counter(name, 0);
        self.begin(Head::For { counter, lo, hi, condition: None });
        self.counter(name, span, kind)
    }

    /// Gives the loop that has just begun a condition, in which its counter stands.
    pub(crate) fn only_while(&mut self, of: Expr) {
        if let Some(Open { head: Head::For { condition, .. }, .. }) = self.open.last_mut() {
            *condition = Some(of);
        }
    }

    /// Opens a loop over tiles. Its counters, visible until [`Builder::end`], are two, of a tile's row and column, or four: those of
    /// the previous iteration's tile too.
    pub(crate) fn begin_tiles(
        &mut self,
        counters: &[(&str, impl Into<Origin> + Copy)],
        (rows, cols): (Expr, Expr),
        (order, dynamic): (TileOrder, Option<Dealer>),
    ) -> Vec<Result<SymbolId, Diagnostic>> {
        let [row, col, i, j] = [0, 1, 2, 3].map(|n: u32| {
            let name = counters.get(n as usize).map_or("", |(name, _)| *name);
            self.next_counter(name, n)
        });
        self.begin(Head::Tiles {
            row,
            col,
            previous: (counters.len() > 2).then_some([i, j]),
            rows,
            cols,
            order,
            dynamic,
        });
        counters.iter().map(|(name, span)| self.counter(name, (*span).into(), SymbolKind::Counter)).collect()
    }

    /// Opens the `drain` of the loop over tiles that has just ended: the counters of its last round's tile are visible until
    /// [`Builder::end`]. Whether the loop has such counters; without, nothing is opened.
    pub(crate) fn begin_drain(&mut self) -> bool {
        let Some(StmtKind::Tiles { previous: Some(previous), .. }) = self.body.last().map(|stmt| &stmt.kind)
        else {
            return false;
        };
        let previous = *previous;
        self.begin(Head::Drain { previous });
        for counter in previous {
            let name = self.program.symbol(counter).name.clone();
            // A name that was taken stands for something else.
            if let Some(entry) = self.names.get_mut(&name)
                && entry.named == Named::Symbol(counter)
            {
                entry.ended = None;
                if let Some(innermost) = self.open.last_mut() {
                    innermost.names.push(name);
                }
            }
        }
        true
    }

    /// Opens a role, whose name is taken from here on.
    pub(crate) fn begin_role(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        warpgroups: Expr,
        registers: Option<Expr>,
    ) -> Result<(), Diagnostic> {
        let span = span.into();
        let bound = self.bind(name, span, Named::Role);
        let inner = bound.as_ref().map_or_else(|_| name.to_string(), String::clone);
        self.begin(Head::Role { name: inner, warpgroups, registers });
        bound.map(|_| ())
    }

    /// Opens a stage of a pipeline; of none, whose statements are not kept, after a mistake about its name.
    pub(crate) fn begin_stage(&mut self, pipeline: Option<PipelineId>, side: Side) {
        self.begin(Head::Stage { pipeline, side });
    }

    /// Closes the innermost block.
    pub(crate) fn end(&mut self, span: impl Into<Origin>) {
        let span = span.into();
        if let Some(ended) = self.open.pop() {
            for name in &ended.names {
                if let Some(entry) = self.names.get_mut(name).filter(|entry| entry.ended.is_none()) {
                    entry.ended = Some(ended.head.name());
                }
            }
            let body = std::mem::replace(&mut self.body, ended.outer);
            if let Some(kind) = ended.head.with(body) {
                self.body.push(Stmt { id: ended.id, kind, span });
            }
        }
    }

    pub(crate) fn declare_pipeline(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        stages: Expr,
        tensors: Vec<TensorId>,
    ) -> Result<PipelineId, Diagnostic> {
        let span = span.into();
        let id = PipelineId(self.program.pipelines.len() as u32);
        let name = self.bind(name, span, Named::Pipeline(id))?;
        self.program.pipelines.push(Pipeline { name, stages, tensors, span });
        Ok(id)
    }

    pub(crate) fn declare_barrier(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        kind: BarrierKind,
    ) -> Result<BarrierId, Diagnostic> {
        let span = span.into();
        let id = BarrierId(self.program.barriers.len() as u32);
        let name = self.bind(name, span, Named::Barrier(id))?;
        self.program.barriers.push(Barrier { name, kind, span });
        Ok(id)
    }

    pub(crate) fn finish(mut self, end: impl Into<Origin>) -> Program {
        let end = end.into();
        while !self.open.is_empty() {
            self.end(end);
        }
        self.program.body = self.body;
        // The tables of a core program stand as they are written.
        unnamed::name(&mut self.program, self.nameless, self.inlined && !self.declared);
        self.program
    }

    /// The register tensor that an assignment to `name` writes: the one of that name, or a new one.
    pub(crate) fn assign(
        &mut self,
        name: &str,
        span: impl Into<Origin>,
        dtype: DType,
        shape: Vec<Expr>,
        pinned: Option<Layout>,
    ) -> Result<Option<TensorId>, Diagnostic> {
        let span = span.into();
        match self.get(name) {
            None if self.declared => {
                self.poison(name, span);
                Err(Diagnostic::new(Code::UnknownName, span, format!("nothing is named `{name}`"))
                    .help(format!("declare the result: `{name} = register_tensor(f32, [64, 64])`")))
            }
            None => self.declare_tensor(name, span, dtype, TensorKind::Register { shape, pinned }).map(Some),
            Some(Named::Tensor(id)) if pinned.is_none() => Ok(Some(id)),
            Some(Named::Tensor(id)) => Err(Diagnostic::new(
                Code::LayoutConflict,
                span,
                format!("`{name}` exists already, so its layout cannot be given here"),
            )
            .related(self.program.tensor(id).span, "defined here")
            .help("give the layout where the tensor is defined")),
            Some(Named::Poisoned) => Ok(None),
            Some(_) => {
                let error = self.bound_anew(name, span);
                Err(error.unwrap_or_else(|| Diagnostic::internal(span, "a name that can be assigned to")))
            }
        }
    }

    /// The message about an assignment to a name that stands for no tensor of registers. Uses of the name from here on are not reported.
    pub(crate) fn bound_anew(&mut self, name: &str, span: Origin) -> Option<Diagnostic> {
        let entry = self.entry(name).filter(|entry| entry.ended.is_none())?;
        let (declared, noun) = (entry.span, self.noun(entry.named)?);
        let message = format!("`{name}` is {noun} already, and a name stands for one thing");
        let error = Diagnostic::new(Code::DuplicateName, span, message)
            .label("assigned here")
            .related(declared, "declared here")
            .help(format!(
                "choose another name for the result, here and where it is read: `{} = …`",
                self.made(name)
            ));
        let inner = self.frames.last().and_then(|frame| frame.names.get(name)).map_or(name, String::as_str);
        if let Some(entry) = self.names.get_mut(inner) {
            entry.named = Named::Poisoned;
        }
        Some(error)
    }

    /// The kind of thing that a name stands for; `None` for tensors, to which something can be assigned.
    fn noun(&self, named: Named) -> Option<&'static str> {
        Some(match named {
            Named::Tensor(_) | Named::Poisoned => return None,
            Named::Symbol(id) => match self.program.symbol(id).kind {
                SymbolKind::Constant(_) => "a constant",
                SymbolKind::Size(_) => "a size",
                SymbolKind::Let => "the name of an integer",
                SymbolKind::Ticket => "a ticket",
                SymbolKind::Counter | SymbolKind::UnrolledBy(_) | SymbolKind::Unrolled => "a loop's counter",
            },
            Named::Param(id) => match self.program.param(id).kind {
                ParamKind::Tensor { .. } => "a parameter (a tensor in global memory)",
                ParamKind::Scalar { .. } => "a parameter (a scalar)",
            },
            Named::Pipeline(_) => "a pipeline",
            Named::Barrier(_) => "a barrier",
            Named::Role => "a role",
            Named::Function => "a function",
            Named::Given(_) => "the argument of a function",
        })
    }
}

/// Help for a tensor that is used after the block that defines it.
pub(crate) fn before(block: &str) -> String {
    match block {
        "role" => "what a role defines is its own: define it in the role that uses it".to_string(),
        "task" | "variant" => {
            format!("names of a {block} are its own: give it as an argument, or declare a constant")
        }
        _ => format!("define it before the {block}"),
    }
}

/// True if the list has each of `0..rank` once.
pub(crate) fn is_permutation(order: &[u32], rank: usize) -> bool {
    let mut seen = vec![false; rank];
    order.len() == rank
        && order
            .iter()
            .all(|&mode| seen.get_mut(mode as usize).is_some_and(|slot| !std::mem::replace(slot, true)))
}

/// An error where the text cannot be a name.
pub(crate) fn check_name(name: &str, span: impl Into<Origin>) -> Result<(), Diagnostic> {
    let span = span.into();
    if !is_identifier(name) {
        let shown: String = name.chars().take(40).collect();
        return Err(Diagnostic::new(Code::Syntax, span, format!("`{}` is not a name", shown.escape_debug()))
            .help("a name is a letter or `_`, then letters, digits and `_`"));
    }
    if is_reserved(name) {
        return Err(Diagnostic::new(
            Code::DuplicateName,
            span,
            format!("`{name}` is a word of the language"),
        )
        .label("cannot be a name")
        .help(format!("choose another name, such as `{name}_`",)));
    }
    Ok(())
}
