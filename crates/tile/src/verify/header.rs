//! Checks of what stands around the body: names, parameters, launch; and that ids are indices of their tables.

use super::checker::{Allowed, Checker, count};
use crate::build::check_name;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::SymbolId;
use crate::ids::StmtId;
use crate::names::is_identifier;
use crate::program::{
    Operand, Param, ParamKind, PipelineId, Program, Stmt, StmtKind, Symbol, SymbolKind, TensorId, TensorKind,
    Use,
};
use std::collections::{HashMap, HashSet};
use tilewright_machine::{DType, MAX_RESIDENT_THREADS, MAX_THREADS, WARP};

/// The names that exist at a statement: where each is declared, and the tensor that it stands for, if it does for one.
type Visible<'p> = HashMap<&'p str, (Origin, Option<TensorId>)>;

/// Finds names that a body declares where they exist already: the name, its place, and that of the first.
fn scopes<'p>(
    program: &'p Program,
    body: &'p [Stmt],
    visible: &mut Visible<'p>,
    again: &mut Vec<(&'p str, Origin, Origin)>,
) {
    let mut of_block = Vec::new();
    for stmt in body {
        let mut of_stmt = Vec::new();
        let mut declare =
            |name: &'p str, span: Origin, tensor: Option<TensorId>, list: &mut Vec<&'p str>| match visible
                .get(name)
            {
                Some((_, known)) if tensor.is_some() && *known == tensor => {}
                Some((first, _)) => again.push((name, span, *first)),
                None => {
                    visible.insert(name, (span, tensor));
                    list.push(name);
                }
            };
        for operand in stmt.kind.operands() {
            match operand {
                Operand::Tensor(Use::Define | Use::Assign, id) => {
                    if let Some(row) = program.tensors.get(id.0 as usize) {
                        declare(&row.name, row.span, Some(*id), &mut of_block);
                    }
                }
                Operand::Counter(Use::Define, id) => {
                    let Some(row) = program.symbols.get(id.0 as usize) else { continue };
                    let list = if stmt.kind.names_integer() { &mut of_block } else { &mut of_stmt };
                    declare(&row.name, row.span, None, list);
                }
                _ => {}
            }
        }
        scopes(program, stmt.kind.body(), visible, again);
        of_stmt.iter().for_each(|name| _ = visible.remove(name));
    }
    of_block.iter().for_each(|name| _ = visible.remove(name));
}

impl Checker<'_> {
    pub(super) fn names(&mut self) {
        let program = self.source;
        if !is_identifier(&program.name) {
            self.report(
                Diagnostic::new(Code::Syntax, Origin::Unknown, "the kernel's name is not a name")
                    .help("a name is a letter or `_`, then letters, digits and `_`"),
            );
        }
        let mut seen: HashMap<&str, Origin> = HashMap::new();
        let scoped = |s: &&Symbol| !matches!(s.kind, SymbolKind::Size(_) | SymbolKind::Constant(_));
        let of_body = program.symbols.iter().filter(scoped).map(|s| (s.name.as_str(), s.span));
        let symbols = program.symbols.iter().filter(|s| !scoped(s)).map(|s| (s.name.as_str(), s.span));
        let params = program.params.iter().map(|p| (p.name.as_str(), p.span));
        // A part of a tensor is not declared.
        let declared = program.tensors.iter().filter(|t| !matches!(t.kind, TensorKind::Part { .. }));
        let tensors = declared.map(|t| (t.name.as_str(), t.span));
        let pipelines = program.pipelines.iter().map(|p| (p.name.as_str(), p.span));
        let barriers = program.barriers.iter().map(|b| (b.name.as_str(), b.span));
        let roles = program.body.iter().filter_map(|stmt| match &stmt.kind {
            StmtKind::Role { name, .. } => Some((name.as_str(), stmt.span)),
            _ => None,
        });
        for (name, span) in of_body.chain(tensors) {
            if let Err(error) = check_name(name, span) {
                self.report(error);
            }
        }
        let mut again = Vec::new();
        for (name, span) in symbols.chain(params).chain(pipelines).chain(barriers).chain(roles) {
            if let Err(error) = check_name(name, span) {
                self.report(error);
            }
            if let Some(first) = seen.insert(name, span) {
                again.push((name, span, first));
            }
        }
        let mut visible = seen.into_iter().map(|(name, span)| (name, (span, None))).collect();
        scopes(program, &program.body, &mut visible, &mut again);
        for (name, span, first) in again {
            self.report(
                Diagnostic::new(Code::DuplicateName, span, format!("the name `{name}` is declared twice"))
                    .related(first, "first declared here")
                    .help("a name stands for one thing until its block ends: choose another"),
            );
        }
        for (_, symbol, default) in program.sizes() {
            if default < 1 {
                self.report(
                    Diagnostic::new(
                        Code::BadValue,
                        symbol.span,
                        format!(
                            "the default of the size `{}` is {default}; it must be at least 1",
                            symbol.name
                        ),
                    )
                    .label("at least 1"),
                );
            }
        }
    }

    pub(super) fn params(&mut self) {
        let program = self.program;
        for param in &program.params {
            match &param.kind {
                ParamKind::Tensor { shape, strides, array, .. } => {
                    let modes = shape.len().saturating_sub(usize::from(*array));
                    if modes == 0 {
                        self.report(
                            Diagnostic::new(
                                Code::WrongRank,
                                param.span,
                                format!("the parameter `{}` has no modes", param.name),
                            )
                            .help(match array {
                                true => format!(
                                    "each tensor has a shape: `{}: {}[l][m, k]`",
                                    param.name, param.dtype
                                ),
                                false => format!("a number is written `{}: f32 = 1.0`", param.name),
                            }),
                        );
                    }
                    for e in shape {
                        let what = format!("an extent of `{}`", param.name);
                        if self.expr(e, Allowed::Sizes, param.span, &what) {
                            self.at_least_one(e, param.span, &what);
                        }
                    }
                    let Some(strides) = strides else { continue };
                    if strides.len() != modes {
                        self.report(
                            Diagnostic::new(
                                Code::WrongRank,
                                param.span,
                                format!(
                                    "`{}` has {} for {}",
                                    param.name,
                                    count(strides.len(), "stride"),
                                    count(modes, "mode")
                                ),
                            )
                            .help(match array {
                                true => "give one stride a mode of each tensor, or none for row-major",
                                false => "give one stride a mode, or none for row-major",
                            }),
                        );
                    }
                    for e in strides {
                        let what = format!("a stride of `{}`", param.name);
                        if self.expr(e, Allowed::Sizes, param.span, &what) {
                            self.at_least_one(e, param.span, &what);
                        }
                    }
                }
                ParamKind::Scalar { .. } if !Param::SCALARS.contains(&param.dtype) => self.report(
                    Diagnostic::new(
                        Code::TypeMismatch,
                        param.span,
                        format!(
                            "the scalar `{}` is {}; scalars are {}",
                            param.name,
                            param.dtype,
                            Param::SCALARS.map(DType::name).join(", ")
                        ),
                    )
                    .help(format!("write `{}: f32`", param.name)),
                ),
                ParamKind::Scalar { default } => {
                    if !default.fits(param.dtype) {
                        let text = format!("the default of `{}` is no {}", param.name, param.dtype);
                        let mistake = Diagnostic::new(Code::BadValue, param.span, text);
                        self.report(match param.dtype.range() {
                            Some(_) => {
                                mistake.help(format!("write an integer of {} bits", param.dtype.bits()))
                            }
                            None => mistake,
                        });
                    }
                }
            }
        }
    }

    /// Checks grid and threads; the number of threads, if it is legal.
    pub(super) fn launch(&mut self) -> Option<u32> {
        let program = self.program;
        let span = program.grid_span;
        if !(1..=3).contains(&program.grid.len()) {
            self.report(
                Diagnostic::new(
                    Code::BadLaunch,
                    span,
                    format!("the grid has {} dimensions; there are one to three", program.grid.len()),
                )
                .help("write e.g. `grid(ceil_div(m, BM), ceil_div(n, BN))`"),
            );
        }
        for (e, (axis, most)) in program.grid.iter().zip([("x", 0x7fff_ffff), ("y", 65535), ("z", 65535)]) {
            if !self.expr(e, Allowed::Sizes, span, &format!("the grid's {axis} extent")) {
                continue;
            }
            if let Some(value) = e.as_int()
                && !(1..=most).contains(&value)
            {
                self.report(
                    Diagnostic::new(Code::BadLaunch, span, format!("the grid's {axis} extent is {value}"))
                        .label(format!("from 1 to {most}")),
                );
            }
        }
        let span = program.threads_span;
        let threads = self.literal(&program.threads, span, "the number of threads")?;
        if !(1..=i64::from(MAX_THREADS)).contains(&threads) || threads % i64::from(WARP) != 0 {
            self.report(
                Diagnostic::new(Code::BadLaunch, span, format!("a block cannot have {threads} threads"))
                    .label("a multiple of 32, at most 1024")
                    .help("a block is made of warps of 32 threads; 128 or 256 is usual"),
            );
            return None;
        }
        self.resident(threads);
        Some(threads as u32)
    }

    /// Checks the number of blocks that a multiprocessor has registers for.
    fn resident(&mut self, threads: i64) {
        let (program, span) = (self.program, self.program.threads_span);
        let Some(blocks) = self.literal(&program.resident, span, "the number of resident blocks") else {
            return;
        };
        let most = i64::from(MAX_RESIDENT_THREADS) / threads;
        if !(1..=most.min(32)).contains(&blocks) {
            let message = format!("a multiprocessor cannot have {blocks} blocks of {threads} threads");
            let error = Diagnostic::new(Code::BadLaunch, span, message);
            self.report(error.label(format!("from 1 to {} blocks", most.min(32))));
        }
    }

    /// True if every id is an index of its table: always, for programs that the parser or the builder made.
    pub(super) fn ids_are_legal(&mut self) -> bool {
        let program = self.program;
        let views = program.tensors.iter().all(|t| match &t.kind {
            TensorKind::View { param, .. } => {
                matches!(
                    program.params.get(param.0 as usize).map(|p| &p.kind),
                    Some(ParamKind::Tensor { .. })
                )
            }
            TensorKind::Part { of, .. } => program
                .tensors
                .get(of.0 as usize)
                .is_some_and(|of| !matches!(of.kind, TensorKind::Part { .. })),
            TensorKind::Register { .. } | TensorKind::Shared { .. } | TensorKind::Tensor { .. } => true,
        });
        let ok = views
            && self.block_ids(&program.body)
            && self.statements_differ(&program.body, &mut HashSet::new());
        if !ok {
            self.report(
                Diagnostic::new(
                    Code::UnknownName,
                    Origin::Unknown,
                    "an id refers to nothing of this program",
                )
                .help("use ids and handles only in the program they were made for"),
            );
        }
        ok
    }

    /// True if every statement has an id of the program's that no other has.
    fn statements_differ(&self, body: &[Stmt], seen: &mut HashSet<StmtId>) -> bool {
        body.iter().all(|stmt| {
            self.program.statements.contains(stmt.id)
                && seen.insert(stmt.id)
                && self.statements_differ(stmt.kind.body(), seen)
        })
    }

    fn block_ids(&self, body: &[Stmt]) -> bool {
        let tensor = |id: &TensorId| (id.0 as usize) < self.program.tensors.len();
        let pipeline = |id: &PipelineId| {
            let row = self.program.pipelines.get(id.0 as usize);
            row.is_some_and(|row| row.tensors.iter().all(tensor))
        };
        let mut operands =
            body.iter().flat_map(|stmt| stmt.kind.operands().into_iter().map(move |o| (stmt, o)));
        operands.all(|(stmt, operand)| match operand {
            Operand::Tensor(_, id) => tensor(id),
            Operand::Reference(_, r) => {
                tensor(&r.tensor) && r.indexed.is_none_or(|indexed| tensor(&indexed.by))
            }
            Operand::Counter(_, id) => self.is_counter(*id, &stmt.kind),
            Operand::Pipeline(_, id) => pipeline(id),
            Operand::Barrier(_, id) => (id.0 as usize) < self.program.barriers.len(),
            Operand::Scalar(id) | Operand::Param(_, id) => (id.0 as usize) < self.program.params.len(),
            Operand::Body(body) => self.block_ids(body),
            Operand::Constant(_) | Operand::Expr(_) => true,
        })
    }

    /// True for the counter of a loop; of a `let`, for the name of an integer; of a ticket, for its name.
    fn is_counter(&self, id: SymbolId, of: &StmtKind) -> bool {
        let symbol = self.program.symbols.get(id.0 as usize);
        symbol.is_some_and(|s| match s.kind {
            SymbolKind::UnrolledBy(_) | SymbolKind::Unrolled => !of.names_integer(),
            SymbolKind::Let => matches!(of, StmtKind::Let { .. }),
            SymbolKind::Ticket => matches!(of, StmtKind::Ticket { .. }),
            // In a core program whatever counts is one.
            SymbolKind::Counter => !matches!(of, StmtKind::Let { .. }),
            SymbolKind::Constant(_) | SymbolKind::Size(_) => false,
        })
    }
}
