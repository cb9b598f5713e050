//! The state of the verifier on its way through a program, and the checks of expressions.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::DType;

use super::counters::Counter;
use super::rows::Deciding;
use super::stage::{Issues, OpenStage, Use};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Axis, Expr, IntOp, SymbolId};
use crate::program::{
    BarrierId, ParamId, ParamKind, PipelineId, Program, StmtKind, SymbolKind, TensorId, TensorKind,
};

/// The most mistakes that the verifier reports.
const MAX_ERRORS: usize = 50;

/// The names that an expression may refer to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Sizes.
    Sizes,
    /// Sizes, block indices, and the counters of the loops around.
    All,
}

/// The state of a tensor's life.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Undefined,
    Alive,
    /// Its loop, role or stage has ended.
    Gone(&'static str),
}

/// The loop that a `break` leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    /// There is no loop around.
    Nothing,
    /// The loop around.
    Loop,
    /// None, for this block stands between, or is the loop.
    Within(&'static str),
}

pub(super) struct Checker<'a> {
    /// As written, for names and constants in messages.
    pub(super) source: &'a Program,
    /// With constants folded.
    pub(super) program: &'a Program,
    pub(super) errors: Vec<Diagnostic>,
    pub(super) life: Vec<Life>,
    /// Tensors whose definition was wrong: uses of them are not reported again.
    pub(super) broken: Vec<bool>,
    /// For each counter, true while its loop is open.
    pub(super) counting: Vec<bool>,
    pub(super) inputs: Vec<bool>,
    pub(super) outputs: Vec<bool>,
    /// The parameters whose elements are integers of the kernel, and where the first is read.
    pub(super) elements: BTreeMap<ParamId, Origin>,
    /// The modes of a register tensor that its first use indexes, and the place of that use.
    pub(super) indexed: BTreeMap<TensorId, (Vec<bool>, Origin)>,
    /// The number of blocks of statements that are open, the kernel's own among them.
    pub(super) depth: usize,
    /// The roles at the outermost level, in the order of the text.
    pub(super) role_names: Vec<&'a str>,
    /// The role at hand, by its number.
    pub(super) role: Option<usize>,
    /// The role in which each tensor is defined.
    pub(super) home: Vec<Option<usize>>,
    /// The first role that uses each shared tensor.
    pub(super) user: Vec<Option<usize>>,
    /// The pipeline of which each tensor is a stage.
    pub(super) stage_of: Vec<Option<PipelineId>>,
    /// True for the pipelines that have been defined.
    pub(super) piped: Vec<bool>,
    /// True for the named barriers that have been defined.
    pub(super) barred: Vec<bool>,
    /// The turns at hand, outermost first.
    pub(super) turns: Vec<BarrierId>,
    /// The stages at hand, outermost first.
    pub(super) stages: Vec<OpenStage>,
    /// The tensors of each open stage that the latest branch writes.
    pub(super) branches: Vec<BTreeSet<TensorId>>,
    /// The counters that deal out tiles, and by which the grid meets.
    pub(super) counters: BTreeMap<ParamId, Counter>,
    /// The loop whose tiles the launch deals out, with the roles that walk them.
    pub(super) launched: Option<Counter>,
    /// The parameters whose elements are flags, with the first statement of each.
    pub(super) flags: BTreeMap<ParamId, Origin>,
    /// Every `produce` and `consume` so far.
    pub(super) uses: Vec<Use>,
    /// For each pipeline the first tensor of a stage that its consumer writes, and the place.
    pub(super) rewritten: BTreeMap<PipelineId, (TensorId, Origin)>,
    /// The tensors of one-stage pipelines in tensor memory that a `fill` has certainly begun.
    pub(super) begun: BTreeSet<TensorId>,
    /// The pipelines whose sums a `fill` ahead of their stages begins, with the role that does.
    pub(super) ahead: Vec<(TensorId, Option<usize>, Origin)>,
    /// By role: who issues products in tensor memory.
    pub(super) issues: BTreeMap<Option<usize>, Issues>,
    /// The loop that a `break` ends; the block around it that it cannot leave, if there is one between.
    pub(super) leaves: Leaves,
    /// The `if any` around.
    pub(super) deciding: Option<Deciding>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(source: &'a Program, program: &'a Program) -> Self {
        let mut stage_of = vec![None; program.tensors.len()];
        for (i, pipeline) in program.pipelines.iter().enumerate() {
            for tensor in &pipeline.tensors {
                if let Some(slot) = stage_of.get_mut(tensor.0 as usize) {
                    slot.get_or_insert(PipelineId(i as u32));
                }
            }
        }
        let role_names = program.body.iter().filter_map(|stmt| match &stmt.kind {
            StmtKind::Role { name, .. } => Some(name.as_str()),
            _ => None,
        });
        Checker {
            source,
            program,
            errors: Vec::new(),
            life: vec![Life::Undefined; program.tensors.len()],
            broken: vec![false; program.tensors.len()],
            counting: vec![false; program.symbols.len()],
            inputs: vec![false; program.params.len()],
            outputs: vec![false; program.params.len()],
            elements: BTreeMap::new(),
            indexed: BTreeMap::new(),
            depth: 0,
            role_names: role_names.collect(),
            role: None,
            home: vec![None; program.tensors.len()],
            user: vec![None; program.tensors.len()],
            stage_of,
            piped: vec![false; program.pipelines.len()],
            barred: vec![false; program.barriers.len()],
            turns: Vec::new(),
            stages: Vec::new(),
            branches: Vec::new(),
            counters: BTreeMap::new(),
            launched: None,
            flags: BTreeMap::new(),
            uses: Vec::new(),
            rewritten: BTreeMap::new(),
            begun: BTreeSet::new(),
            ahead: Vec::new(),
            issues: BTreeMap::new(),
            leaves: Leaves::Nothing,
            deciding: None,
        }
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        // A tensor that is an operand twice is wrong once.
        let known = self.errors.iter().any(|e| e.repeats(&diagnostic));
        if self.errors.len() < MAX_ERRORS && !known {
            self.errors.push(diagnostic);
        }
    }

    pub(super) fn name(&self, id: TensorId) -> &'a str {
        &self.program.tensor(id).name
    }

    /// Checks an expression: what it refers to, and that its literals fold.
    pub(super) fn expr(&mut self, expr: &Expr, allowed: Allowed, span: Origin, what: &str) -> bool {
        let problem = self.problem(expr, allowed);
        if let Some((code, problem, help)) = problem {
            self.report(Diagnostic::new(code, span, format!("{what} {problem}")).help(help));
            return false;
        }
        self.note_elements(expr, span);
        true
    }

    fn problem(&self, expr: &Expr, allowed: Allowed) -> Option<(Code, String, &'static str)> {
        match expr {
            Expr::Int(_) => None,
            Expr::Symbol(id) => {
                let Some(symbol) = self.program.symbols.get(id.0 as usize) else {
                    let text = format!("refers to symbol {}, which does not exist", id.0);
                    return Some((Code::UnknownName, text, "use the expressions that the builder returns"));
                };
                match symbol.kind {
                    SymbolKind::Constant(_) | SymbolKind::Size(_) => None,
                    // Names that have a value have been replaced by it.
                    SymbolKind::Let => Some((
                        Code::UnknownName,
                        format!("uses `{}`, which no `let` has given a value", symbol.name),
                        "a name stands for its integer behind its `let`, to the end of the block around",
                    )),
                    SymbolKind::Ticket if allowed == Allowed::Sizes => Some((
                        Code::BadValue,
                        format!("depends on the ticket `{}`", symbol.name),
                        "only sizes and constants are known here",
                    )),
                    SymbolKind::Ticket if !self.counting[id.0 as usize] => Some((
                        Code::UnknownName,
                        format!("uses the ticket `{}` where no `ticket` has drawn it", symbol.name),
                        "a ticket is known behind its `let`, to the end of the block around",
                    )),
                    SymbolKind::Counter | SymbolKind::UnrolledBy(_) | SymbolKind::Unrolled
                        if allowed == Allowed::Sizes =>
                    {
                        Some((
                            Code::BadValue,
                            format!("depends on the counter `{}`", symbol.name),
                            "only sizes and constants are known here",
                        ))
                    }
                    SymbolKind::Counter | SymbolKind::UnrolledBy(_) | SymbolKind::Unrolled
                        if !self.counting[id.0 as usize] =>
                    {
                        Some((
                            Code::UnknownName,
                            format!("uses the counter `{}` outside its loop", symbol.name),
                            "a counter has a value only in its own loop's body",
                        ))
                    }
                    SymbolKind::Ticket
                    | SymbolKind::Counter
                    | SymbolKind::UnrolledBy(_)
                    | SymbolKind::Unrolled => None,
                }
            }
            Expr::Block(axis) if allowed == Allowed::Sizes => {
                let axis = ["x", "y", "z"][axis.index()];
                let text = format!("depends on block.{axis}");
                Some((Code::BadValue, text, "only sizes and constants are known here"))
            }
            Expr::Block(Axis::X | Axis::Y | Axis::Z) => None,
            Expr::Element(param, index) => {
                let problem = self.element_problem(*param, index.len(), allowed);
                problem.or_else(|| index.iter().find_map(|e| self.problem(e, allowed)))
            }
            Expr::Scalar(param) => self.scalar_problem(*param, allowed),
            Expr::Binary(op, a, b) => {
                let divides = matches!(op, IntOp::Div | IntOp::Rem | IntOp::CeilDiv);
                if divides && b.as_int() == Some(0) {
                    let help = "the divisor's constants make it 0: give them other values";
                    return Some((Code::BadValue, "divides by zero".to_string(), help));
                }
                if a.as_int().is_some() && b.as_int().is_some() {
                    let text = "does not fit in 64 bits".to_string();
                    return Some((Code::BadValue, text, "use smaller constants"));
                }
                self.problem(a, allowed).or_else(|| self.problem(b, allowed))
            }
        }
    }

    /// The mistake in using a scalar parameter as an integer.
    fn scalar_problem(&self, param: ParamId, allowed: Allowed) -> Option<(Code, String, &'static str)> {
        let Some(row) = self.program.params.get(param.0 as usize) else {
            let text = format!("refers to parameter {}, which does not exist", param.0);
            return Some((Code::UnknownName, text, "use the integers that the builder returns"));
        };
        if !row.is_signed_integer() {
            let text = format!("uses `{}`, which is no signed integer", row.name);
            return Some((Code::TypeMismatch, text, "integers are parameters such as `k: i32 = 1`"));
        }
        (allowed == Allowed::Sizes).then(|| {
            let text = format!("depends on the parameter `{}`", row.name);
            (Code::BadValue, text, "only sizes and constants are known here")
        })
    }

    /// The mistake in reading an element of a parameter with so many indices, but for these.
    fn element_problem(
        &self,
        param: ParamId,
        indices: usize,
        allowed: Allowed,
    ) -> Option<(Code, String, &'static str)> {
        let Some(row) = self.program.params.get(param.0 as usize) else {
            let text = format!("refers to parameter {}, which does not exist", param.0);
            return Some((Code::UnknownName, text, "use the buffers that the builder returns"));
        };
        let name = &row.name;
        let modes = match &row.kind {
            ParamKind::Tensor { shape, .. } if shape.len() == indices => None,
            ParamKind::Tensor { shape, .. } => {
                let (modes, indices) = (count(shape.len(), "mode"), count(indices, "index"));
                Some(format!("has {modes}, at {}", indices.replace("indexs", "indices")))
            }
            ParamKind::Scalar { .. } => Some("is a number".to_string()),
        };
        if let Some(modes) = modes {
            let text = format!("reads an element of `{name}`, which {modes}");
            return Some((
                Code::WrongRank,
                text,
                "an element of a tensor has one index a mode: `table[b, j]`",
            ));
        }
        if row.dtype != DType::I32 {
            let text = format!("reads an element of `{name}`, which is of type {}", row.dtype);
            return Some((Code::TypeMismatch, text, "integers are elements of tensors of type i32"));
        }
        (allowed == Allowed::Sizes).then(|| {
            let text = format!("depends on an element of `{name}`");
            (Code::BadValue, text, "only sizes and constants are known here")
        })
    }

    /// Notes the parameters of which an expression reads elements.
    fn note_elements(&mut self, expr: &Expr, span: Origin) {
        expr.elements(&mut |param| {
            self.inputs[param.0 as usize] = true;
            self.elements.entry(param).or_insert(span);
        });
    }

    /// A tensor whose elements are integers of the kernel is not written.
    pub(super) fn elements_stay(&mut self) {
        let written: Vec<_> =
            self.elements.iter().filter(|(param, _)| self.outputs[param.0 as usize]).collect();
        let errors: Vec<Diagnostic> = written
            .into_iter()
            .map(|(param, span)| {
                let row = self.program.param(*param);
                let message = format!(
                    "an element of `{}` is an integer here, and the kernel writes `{}`",
                    row.name, row.name
                );
                Diagnostic::new(Code::Misplaced, *span, message)
                    .related(row.span, "the buffer")
                    .help("integers are read from buffers that the kernel does not write")
            })
            .collect();
        errors.into_iter().for_each(|error| self.report(error));
    }

    /// The value of an expression over constants.
    pub(super) fn literal(&mut self, expr: &Expr, span: Origin, what: &str) -> Option<i64> {
        if let Some(value) = expr.as_int() {
            return Some(value);
        }
        if !self.expr(expr, Allowed::All, span, what) {
            return None;
        }
        let depends = depends_on(self.program, expr);
        self.report(
            Diagnostic::new(
                Code::BadValue,
                span,
                format!("{what} is not known when the kernel is compiled: it depends on {depends}"),
            )
            .help("use numbers and constants here"),
        );
        None
    }

    /// Checks that an expression is over constants and counters of `unroll for`, so that it is known once those loops are expanded.
    pub(super) fn known(&mut self, expr: &Expr, span: Origin, what: &str) -> bool {
        if !self.expr(expr, Allowed::All, span, what) {
            return false;
        }
        let program = self.program;
        let counts = |s: SymbolId| matches!(program.symbol(s).kind, SymbolKind::Unrolled);
        let Some(depends) = first_unknown(program, expr, &counts) else { return true };
        self.report(
            Diagnostic::new(
                Code::BadValue,
                span,
                format!("{what} is not known when the kernel is compiled: it depends on {depends}"),
            )
            .help("use numbers, constants and counters of `unroll for`: `unroll for kk in 0..4 { … }`"),
        );
        false
    }

    /// The value of an extent: a constant, at least 1.
    pub(super) fn extent(&mut self, expr: &Expr, span: Origin, what: &str) -> Option<i64> {
        let value = self.literal(expr, span, what)?;
        self.at_least_one(expr, span, what).then_some(value)
    }

    /// Checks that an expression, if it is a literal, is at least 1.
    pub(super) fn at_least_one(&mut self, expr: &Expr, span: Origin, what: &str) -> bool {
        match expr.as_int() {
            Some(value) if value < 1 => {
                self.report(
                    Diagnostic::new(
                        Code::BadValue,
                        span,
                        format!("{what} is {value}; it must be at least 1"),
                    )
                    .label(format!("{value}")),
                );
                false
            }
            _ => true,
        }
    }
}

/// The first thing in an expression that is not a constant, for messages.
pub(super) fn depends_on(program: &Program, expr: &Expr) -> String {
    first_unknown(program, expr, &|_| false).unwrap_or_else(|| "an overflow".to_string())
}

/// The first thing in an expression that is neither a constant nor `known`, for messages.
fn first_unknown(program: &Program, expr: &Expr, known: &impl Fn(SymbolId) -> bool) -> Option<String> {
    match expr {
        Expr::Int(_) => None,
        Expr::Symbol(id) if known(*id) => None,
        Expr::Symbol(id) => {
            let symbol = program.symbols.get(id.0 as usize)?;
            Some(match symbol.kind {
                SymbolKind::Counter | SymbolKind::UnrolledBy(_) | SymbolKind::Unrolled => {
                    format!("the counter `{}`", symbol.name)
                }
                SymbolKind::Let => format!("`{}`", symbol.name),
                SymbolKind::Ticket => format!("the ticket `{}`", symbol.name),
                SymbolKind::Constant(_) | SymbolKind::Size(_) => format!("the size `{}`", symbol.name),
            })
        }
        Expr::Block(axis) => Some(format!("block.{}", ["x", "y", "z"][axis.index()])),
        Expr::Element(param, _) => {
            Some(format!("an element of `{}`", program.params.get(param.0 as usize)?.name))
        }
        Expr::Scalar(param) => {
            Some(format!("the parameter `{}`", program.params.get(param.0 as usize)?.name))
        }
        Expr::Binary(_, a, b) => {
            first_unknown(program, a, known).or_else(|| first_unknown(program, b, known))
        }
    }
}

/// `1 mode`, `2 modes`.
pub(super) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A shape as messages show it.
pub(super) fn shape_text(shape: &[i64]) -> String {
    let list: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", list.join(", "))
}

/// The constant extents of a register or shared tensor; those that are none count as 0.
pub(super) fn static_shape(kind: &TensorKind) -> Vec<i64> {
    match kind {
        TensorKind::Register { shape, .. }
        | TensorKind::Shared { shape, .. }
        | TensorKind::Tensor { shape }
        | TensorKind::Part { shape, .. } => shape.iter().map(|e| e.as_int().unwrap_or(0)).collect(),
        TensorKind::View { .. } => Vec::new(),
    }
}
