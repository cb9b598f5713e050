//! Checks of the body: scopes, and what each statement asks of its operands.

mod assignments;

use std::collections::BTreeSet;

use tilewright_machine::{DType, Memory, MmaKind, WARP, WARPGROUP, mmas_of, product_needs, product_types};

use super::checker::{Allowed, Checker, Leaves, Life, count, shape_text};
use super::operands::Site;
use crate::breaks;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{
    Asserted, AsyncCopyAttrs, Fetch, Side, Stmt, StmtKind, SymbolKind, TensorId, TensorKind, TensorRef,
    ViewLeaf,
};

/// An elementwise statement in messages.
const ELEMENTWISE: &str = "an elementwise expression";
/// The most iterations that an `unroll(n) for` writes out at a time.
const MAX_FACTOR: i64 = 64;

impl Checker<'_> {
    /// Checks the kernel's body.
    pub(super) fn body(&mut self, threads: Option<u32>) {
        let program = self.program;
        self.block(&program.body, threads, "kernel");
    }

    /// The statements of a block of this kind.
    pub(super) fn block(&mut self, body: &[Stmt], threads: Option<u32>, kind: &'static str) {
        let mut defined = Vec::new();
        self.depth += 1;
        for (i, stmt) in body.iter().enumerate() {
            if let StmtKind::Drain { previous, .. } = &stmt.kind {
                self.drain(*previous, i.checked_sub(1).map(|i| &body[i].kind), stmt.span);
            }
            if let StmtKind::If { condition, otherwise: true, .. } = &stmt.kind {
                self.otherwise(condition, i.checked_sub(1).map(|i| &body[i].kind), stmt.span);
            }
            self.statement(stmt, threads, &mut defined);
            let behind = body[i + 1..].iter().find(|next| !next.kind.is_otherwise());
            let (always, may) = match &stmt.kind {
                StmtKind::Break { condition } => (condition.as_int() == Some(1), true),
                _ => (false, breaks::in_branch(stmt)),
            };
            if let Some(next) = behind.filter(|_| always || may && kind == "branch") {
                let message = match always {
                    true => "nothing is done behind `break`",
                    false => "in a branch nothing stands behind a `break`",
                };
                let error = Diagnostic::new(Code::Misplaced, next.span, message)
                    .related(stmt.span, "the loop may end here");
                self.report(
                    error.help(
                        "write it behind the branch, with a condition of its own: `if a and not b { … }`",
                    ),
                );
            }
        }
        self.depth -= 1;
        for id in defined {
            self.life[id] = Life::Gone(kind);
        }
        for stmt in body {
            if let StmtKind::Ticket { symbol, .. } = &stmt.kind {
                self.counting[symbol.0 as usize] = false;
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt, threads: Option<u32>, defined: &mut Vec<usize>) {
        let span = stmt.span;
        if let Some(part) = stmt.kind.assigned().into_iter().find(|id| self.base(*id) != *id) {
            let message =
                format!("`{}` is a part of a tensor: nothing can be assigned to it", self.name(part));
            let help = "assign to a tensor of its own, and `copy` that into the part";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        self.place(stmt);
        self.of_rows(stmt);
        self.issued(stmt);
        match &stmt.kind {
            StmtKind::Define(id) => {
                if self.life[id.0 as usize] != Life::Undefined {
                    let message = format!("`{}` is defined twice", self.name(*id));
                    self.report(
                        Diagnostic::new(Code::DuplicateName, span, message).help("remove one definition"),
                    );
                    return;
                }
                self.define(*id, defined);
                self.definition(*id, span, threads);
            }
            StmtKind::Let { value, .. } => {
                self.expr(value, Allowed::All, span, "the integer");
            }
            StmtKind::Copy { src, dst, how } => {
                self.copy((src, dst), *how, threads, span);
                if let Some(Fetch { op, old, compare }) = how.fetch {
                    let operands: Vec<TensorId> = [Some(src.tensor), compare].into_iter().flatten().collect();
                    let word = op.word().unwrap_or("atomic");
                    if self.assignment(old, &operands, span, threads, defined, word) {
                        let rule = format!("`{word}` keeps the element type");
                        for other in [Some(old), compare].into_iter().flatten() {
                            self.same_type(other, src.tensor, span, &rule, "cast it on a line of its own");
                        }
                    }
                }
            }
            StmtKind::CopyAsync { src, dst, how } => self.copy_async(src, dst, *how, span),
            StmtKind::GemmAsync { c, a, b, meta, scales, warpgroups } if self.in_tensor_memory(*c) => {
                self.sums(*c, (a, b, *meta), scales.as_ref(), warpgroups.as_ref(), span);
            }
            StmtKind::GemmAsync { c, scales: Some([scale, _]), .. } => {
                self.scales_of_warpgroups(*c, scale, span);
            }
            StmtKind::GemmAsync { c, a, b, meta, warpgroups, .. } => {
                self.gemm_async(*c, (a, b, *meta), warpgroups.as_ref(), threads, span);
            }
            StmtKind::WaitDependencies | StmtKind::LaunchDependents => {}
            StmtKind::CommitGemm => self.whole_warpgroups("commit_gemm", threads, span),
            StmtKind::WaitGemm(groups) => self.wait_gemm(groups, threads, span),
            StmtKind::ClusterReduce { dst, op } => self.cluster_reduce(*dst, *op, span),
            StmtKind::ClusterCombine { dsts, by } => {
                self.cluster_combine(dsts, by, Site { statement: "cluster_reduce", span, threads, defined });
            }
            StmtKind::Pipeline(id) => self.pipeline(*id, span),
            StmtKind::Commit => {}
            StmtKind::Sync(scope) => self.sync(*scope, threads, span),
            StmtKind::Arrive(id) => self.arrive(*id, span),
            StmtKind::Barrier(id) => self.named_barrier(*id, span),
            StmtKind::Break { condition } => self.leave(condition, span),
            StmtKind::Assert { condition, .. } => self.asserted(condition, span),
            StmtKind::Print { items, iteration, .. } => self.print(items, iteration.as_ref(), span),
            StmtKind::SyncGrid { counter } => self.sync_grid(*counter, span),
            StmtKind::Signal { flag, value, .. } => {
                self.flag(flag, span);
                self.expr(value, Allowed::All, span, "the value of the flag");
            }
            StmtKind::Await { flag, least } => {
                self.flag(flag, span);
                self.expr(least, Allowed::All, span, "the least value of the flag");
            }
            StmtKind::Ticket { symbol, flag, count } => {
                self.flag(flag, span);
                if self.expr(count, Allowed::All, span, "the number of tickets") {
                    self.at_least_one(count, span, "the number of tickets");
                }
                self.counting[symbol.0 as usize] = true;
            }
            StmtKind::Wait(groups) => self.wait(groups, span),
            StmtKind::Gemm { c, a, b, meta, scales, warps } => {
                self.gemm([*c, *a, *b], *meta, *scales, span);
                if let Some(warps) = warps {
                    self.warps(warps, threads, span);
                }
            }
            StmtKind::Cast { dst, src } => {
                self.assignment(*dst, &[*src], span, threads, defined, "cast");
            }
            StmtKind::Rearrange { dst, src } => {
                if !self.assignment(*dst, &[*src], span, threads, defined, "rearrange") {
                    return;
                }
                self.same_type(*dst, *src, span, "`rearrange` keeps the element type", "cast it first");
            }
            StmtKind::Fill { dst, value } if self.in_tensor_memory(*dst) => {
                self.fill_of_sums(*dst, *value, span);
            }
            StmtKind::Fill { dst, value } => self.fill(*dst, *value, span),
            StmtKind::Elementwise { dst, expr } => self.elementwise(*dst, expr, span, threads, defined),
            StmtKind::Shape { dst, src, op } => {
                self.shape(*dst, *src, op, Site { statement: op.name(), span, threads, defined });
            }
            StmtKind::Join { dst, a, b } => {
                self.join(*dst, *a, *b, Site { statement: "join", span, threads, defined });
            }
            StmtKind::Split { lo, hi, src } => {
                self.split(*lo, *hi, *src, Site { statement: "split", span, threads, defined });
            }
            StmtKind::Reduce { dst, src, op, axis } => {
                self.reduce(*dst, *src, *op, *axis, Site { statement: "reduce", span, threads, defined });
            }
            StmtKind::Scan { dst, operands, axis, .. } => {
                self.scan(*dst, *operands, *axis, Site { statement: "scan", span, threads, defined });
            }
            StmtKind::Combine { dsts, srcs, by, axis, form } => {
                let site = Site { statement: form.name(), span, threads, defined };
                self.combine((dsts, srcs), by, (*axis, *form), site);
            }
            StmtKind::Arg { value, index, src, op, axis } => {
                let site = Site { statement: op.name(), span, threads, defined };
                self.arg([*value, *index], *src, *axis, site);
            }
            StmtKind::Sort { dst, src, carried, axis, .. } => {
                self.sort((*dst, *src), *carried, *axis, Site { statement: "sort", span, threads, defined });
            }
            StmtKind::Gather { dst, src, index, axis } => {
                let site = Site { statement: "gather", span, threads, defined };
                self.gather(*dst, *src, *index, *axis, site);
            }
            StmtKind::Role { .. }
            | StmtKind::Stage { .. }
            | StmtKind::InTurn { .. }
            | StmtKind::Tiles { .. }
            | StmtKind::Drain { .. }
            | StmtKind::If { .. }
            | StmtKind::IfAny { .. }
            | StmtKind::For { .. } => self.with_body(stmt, threads),
        }
    }

    /// `assert(condition, text)`.
    fn asserted(&mut self, condition: &Asserted, span: Origin) {
        match condition {
            Asserted::Integer(condition) => {
                self.expr(condition, Allowed::All, span, "the condition");
            }
            Asserted::All(tensor) => {
                let Some(operand) = self.register(*tensor, span, "assert") else { return };
                if operand.dtype != DType::Bool {
                    let name = self.name(*tensor);
                    let message =
                        format!("`all` asks for truth values, and `{name}` is of type {}", operand.dtype);
                    self.report(
                        Diagnostic::new(Code::TypeMismatch, span, message)
                            .help("compare: `assert(all(t > 0.0), \"…\")`"),
                    );
                }
            }
        }
    }

    /// `break if condition`.
    fn leave(&mut self, condition: &Expr, span: Origin) {
        self.expr(condition, Allowed::All, span, "the condition");
        let message = match self.leaves {
            Leaves::Loop => return,
            Leaves::Nothing => "`break` outside of a loop".to_string(),
            Leaves::Within(block) => format!("`break` within {block}, which it cannot leave"),
        };
        self.misplaced(
            span,
            message,
            "it ends a `for` that is not unrolled, with nothing but branches over integers between",
        );
    }

    /// The block that a `break` in a statement's body leaves.
    fn left_by_break(&self, kind: &StmtKind) -> Leaves {
        match kind {
            StmtKind::For { counter, .. } if self.program.symbol(*counter).kind == SymbolKind::Counter => {
                Leaves::Loop
            }
            StmtKind::For { .. } => Leaves::Within("an unrolled loop"),
            StmtKind::If { .. } => self.leaves,
            StmtKind::IfAny { .. } => Leaves::Within("`if any`"),
            StmtKind::Stage { .. } => Leaves::Within("a stage"),
            StmtKind::InTurn { .. } => Leaves::Within("`in_turn`"),
            StmtKind::Tiles { .. } => Leaves::Within("a loop over tiles"),
            StmtKind::Drain { .. } => Leaves::Within("`drain`"),
            _ => Leaves::Nothing,
        }
    }

    /// A statement with others inside.
    fn with_body(&mut self, stmt: &Stmt, threads: Option<u32>) {
        let leaves = self.left_by_break(&stmt.kind);
        let outer = std::mem::replace(&mut self.leaves, leaves);
        let begun = self.begun.clone();
        self.holding(stmt, threads);
        if !matches!(stmt.kind, StmtKind::Stage { .. }) {
            // What a loop or a branch begins, others may find as it was.
            self.begun = begun;
        }
        self.leaves = outer;
    }

    fn holding(&mut self, stmt: &Stmt, threads: Option<u32>) {
        let span = stmt.span;
        match &stmt.kind {
            StmtKind::Role { name, warpgroups, body, .. } => {
                let outer = self.role;
                self.role = self.role_names.iter().position(|role| role == name);
                let threads = warpgroups
                    .as_int()
                    .and_then(|n| u32::try_from(n.checked_mul(i64::from(WARPGROUP))?).ok());
                self.block(body, threads, "role");
                self.role = outer;
            }
            StmtKind::Stage { pipeline, side, body } => {
                self.stage((*pipeline, *side), body, threads, span);
            }
            StmtKind::InTurn { turns, body } => self.in_turn(*turns, body, threads, span),
            StmtKind::Tiles { row, col, previous, rows, cols, order, dynamic, body } => {
                self.tiles(rows, cols, order, span);
                if let Some(dealer) = dynamic {
                    self.dealt(*dealer, (rows, cols), order, span);
                }
                let counters = [*row, *col].into_iter().chain(previous.iter().flatten().copied());
                self.counting(counters, |check| check.block(body, threads, "loop"));
            }
            StmtKind::Drain { previous, body } => {
                self.counting(*previous, |check| check.block(body, threads, "`drain`"));
            }
            StmtKind::If { condition, otherwise, body } => {
                self.expr(condition, Allowed::All, span, "the condition");
                // A stage is filled where both sides fill it.
                let before: Vec<_> = self.stages.iter().map(|stage| stage.written.clone()).collect();
                self.block(body, threads, "branch");
                let after = before.into_iter().zip(&mut self.stages);
                let sides: Vec<_> =
                    after.map(|(before, stage)| std::mem::replace(&mut stage.written, before)).collect();
                if *otherwise {
                    for (stage, (first, second)) in
                        self.stages.iter_mut().zip(self.branches.iter().zip(&sides))
                    {
                        stage.written.extend(first.intersection(second));
                    }
                }
                self.branches = sides;
            }
            StmtKind::IfAny { condition, axis, body } => {
                self.if_any((*condition, *axis), body, threads, span);
            }
            StmtKind::For { counter, lo, hi, condition, body } => {
                if let SymbolKind::UnrolledBy(factor) = &self.program.symbol(*counter).kind {
                    self.unrolled_by(factor, span);
                }
                for (bound, what) in [(lo, "the loop's first value"), (hi, "the loop's end")] {
                    if self.program.symbol(*counter).kind == SymbolKind::Unrolled {
                        self.known(bound, span, what);
                    } else {
                        self.expr(bound, Allowed::All, span, what);
                    }
                }
                let unrolled = self.program.symbol(*counter).kind != SymbolKind::Counter;
                if condition.is_some() && unrolled {
                    let message = "an unrolled loop has no condition".to_string();
                    self.misplaced(span, message, "write `for … while …` without `unroll`");
                }
                self.counting([*counter], |check| {
                    if let Some(condition) = condition {
                        check.expr(condition, Allowed::All, span, "the loop's condition");
                    }
                    check.block(body, threads, "loop");
                });
            }
            _ => {}
        }
    }

    /// The number of iterations that are written out at a time.
    fn unrolled_by(&mut self, factor: &Expr, span: Origin) {
        let what = "the number of iterations that are unrolled";
        if let Some(value) = self.literal(factor, span, what)
            && !(1..=MAX_FACTOR).contains(&value)
        {
            let message = format!("{what} is {value}; it must be from 1 to {MAX_FACTOR}");
            self.report(Diagnostic::new(Code::BadValue, span, message).help("2 to 8 are usual"));
        }
    }

    /// An `else` stands right behind the `if` with the opposite condition.
    fn otherwise(&mut self, condition: &Expr, before: Option<&StmtKind>, span: Origin) {
        let follows = matches!(before, Some(StmtKind::If { condition: of, otherwise: false, .. }) if of.negated() == *condition);
        if !follows {
            let message = "`else` without an `if` of the opposite condition before it".to_string();
            self.misplaced(span, message, "it follows the brace that ends the branch: `} else { … }`");
        }
    }

    /// `copy.async(src, dst, how)`.
    fn copy_async(&mut self, src: &TensorRef, dst: &TensorRef, how: AsyncCopyAttrs, span: Origin) {
        let before = self.errors.len();
        self.transfer(src, dst, how.add, span);
        let fills = self.stages.iter().any(|stage| stage.side == Side::Produce) && !how.threads;
        self.folded_copy(dst, span);
        if !fills {
            self.folded_copy(src, span);
        }
        let memory = |r: &TensorRef| self.program.tensor(self.base(r.tensor)).memory();
        let (from, to) = (memory(src), memory(dst));
        let legal = [(Memory::Global, Memory::Shared), (Memory::Shared, Memory::Global)];
        if self.errors.len() == before && !legal.contains(&(from, to)) {
            let message = format!(
                "`copy.async` goes between a global view and a shared tensor; `{}` is in {from} memory, `{}` in {to} memory",
                self.name(src.tensor),
                self.name(dst.tensor)
            );
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help("write `copy(…)`"));
        }
        if self.errors.len() == before {
            self.how(dst, how, span);
        }
    }

    /// Checks that a copy by threads, or one to memory, is of no view that folds modes.
    pub(super) fn folded_copy(&mut self, r: &TensorRef, span: Origin) {
        let tensor = self.program.tensor(r.tensor);
        let TensorKind::View { fold, .. } = &tensor.kind else { return };
        if fold.is_empty() {
            return;
        }
        let message =
            format!("`{}` folds modes of its buffer, and this copy is none that reads it", tensor.name);
        self.report(
            Diagnostic::new(Code::Misplaced, span, message)
                .related(tensor.span, "folded here")
                .help("tensor copies read such a view: `copy.async(view, stage)` in a `produce`"),
        );
    }

    /// `wait_group(n)`.
    fn wait(&mut self, groups: &Expr, span: Origin) {
        if self.known(groups, span, "the number of groups")
            && let Some(n) = groups.as_int()
            && u32::try_from(n).is_err()
        {
            let message = format!("the number of groups is {n}; it must be at least 0");
            let help = "`wait_group(1)` waits until at most the latest group is in flight";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// The warps of a product are known, at least one each way, and divide those of the block.
    fn warps(&mut self, warps: &[Expr; 2], threads: Option<u32>, span: Origin) {
        if !warps.iter().all(|e| self.known(e, span, "a number of warps")) {
            return;
        }
        let [Some(m), Some(n)] = warps.each_ref().map(Expr::as_int) else { return };
        let all = threads.map_or(i64::MAX, |threads| i64::from(threads / WARP));
        let fits =
            m >= 1 && n >= 1 && m.checked_mul(n).is_some_and(|used| threads.is_none() || all % used == 0);
        if !fits {
            let block = if threads.is_some() { format!(", and the block has {all}") } else { String::new() };
            let message = format!("the product is given {m}×{n} warps{block}");
            let help = "give numbers of at least 1 whose product divides the block's warps; warps beyond it repeat the work";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    // Statements.

    /// Checks what both kinds of copies ask for; of one that combines, more than one element may have the same place.
    pub(super) fn transfer(&mut self, src: &TensorRef, dst: &TensorRef, combines: bool, span: Origin) {
        let from = self.reference(src, span);
        let to = self.reference(dst, span);
        let (Some(from), Some(to)) = (from, to) else { return };
        let (src_name, dst_name) = (self.name(src.tensor), self.name(dst.tensor));
        let one_side_in_registers = from.memory == Memory::Register || to.memory == Memory::Register;
        if !one_side_in_registers && from.memory == to.memory {
            self.report(
                Diagnostic::new(
                    Code::WrongMemory,
                    span,
                    format!("`{src_name}` and `{dst_name}` are both in {} memory", from.memory),
                )
                .label("no such copy")
                .help("stage it through a register tensor: two copies"),
            );
        }
        if from.dtype != to.dtype {
            self.report(
                Diagnostic::new(
                    Code::TypeMismatch,
                    span,
                    format!(
                        "a copy keeps the element type: `{src_name}` is {}, `{dst_name}` is {}",
                        from.dtype, to.dtype
                    ),
                )
                .help(format!("convert in registers: `t = cast(r, {})`", to.dtype)),
            );
        }
        if from.shape != to.shape {
            let help = self.copy_help((src.tensor, &from), (dst.tensor, &to));
            self.report(
                Diagnostic::new(
                    Code::ShapeMismatch,
                    span,
                    format!(
                        "`{src_name}` has shape {} here, `{dst_name}` has {}",
                        shape_text(&from.shape),
                        shape_text(&to.shape)
                    ),
                )
                .related(self.program.tensor(src.tensor).span, format!("{} here", shape_text(&from.shape)))
                .related(self.program.tensor(dst.tensor).span, format!("{} here", shape_text(&to.shape)))
                .help(help),
            );
        }
        if let TensorKind::View { param, .. } = &self.program.tensor(src.tensor).kind {
            self.inputs[param.0 as usize] = true;
        }
        self.written(dst, combines, span);
    }

    /// Notes that a copy writes a view, whose elements must all have places of their own.
    fn written(&mut self, dst: &TensorRef, combines: bool, span: Origin) {
        let TensorKind::View { param, modes, .. } = &self.program.tensor(dst.tensor).kind else { return };
        self.outputs[param.0 as usize] = true;
        if combines {
            self.inputs[param.0 as usize] = true;
            return;
        }
        let kept = modes.iter().enumerate().filter(|(i, _)| !matches!(dst.index.get(*i), Some(Some(_))));
        let leaves: Vec<&ViewLeaf> = kept.flat_map(|(_, mode)| &mode.leaves).collect();
        let (steps, help) = if leaves.iter().any(|l| l.scale == Expr::Int(0) && l.extent != Expr::Int(1)) {
            ("a stride of 0".to_string(), "a view that repeats elements can only be read")
        } else if let Some(dim) = overlap(&leaves) {
            (format!("steps along `e{dim}` that meet"), "a view whose elements overlap can only be read")
        } else {
            return;
        };
        let name = self.name(dst.tensor);
        let message =
            format!("`{name}` has {steps}: several elements of the tile would be written to one place");
        self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
    }

    fn gemm(
        &mut self,
        [c, a, b]: [TensorId; 3],
        meta: Option<TensorId>,
        scales: Option<[TensorId; 2]>,
        span: Origin,
    ) {
        let operands = [c, a, b].map(|id| self.register(id, span, "gemm"));
        let [Some(acc), Some(left), Some(right)] = operands else { return };
        let names = [c, a, b].map(|id| self.name(id));
        for (operand, name) in [&acc, &left, &right].into_iter().zip(names) {
            if operand.shape.len() != 2 {
                self.report(
                    Diagnostic::new(
                        Code::WrongRank,
                        span,
                        format!(
                            "`gemm` multiplies matrices; `{name}` has {}",
                            count(operand.shape.len(), "mode")
                        ),
                    )
                    .help("shapes are c: [M, N], a: [M, K], b: [N, K]"),
                );
                return;
            }
        }
        if let Some(scales) = scales {
            self.scaled_gemm([(c, &acc), (a, &left), (b, &right)], (meta, scales), span);
            return;
        }
        if let Some(meta) = meta {
            self.sparse_gemm("gemm", [(c, &acc), (a, &left), (b, &right)], meta, span);
            return;
        }
        let fits = acc.shape[0] == left.shape[0]
            && acc.shape[1] == right.shape[0]
            && left.shape[1] == right.shape[1];
        if !fits {
            let list: Vec<String> = [&acc, &left, &right]
                .into_iter()
                .zip(names)
                .map(|(o, name)| format!("`{name}` {}", shape_text(&o.shape)))
                .collect();
            let shapes = [(names[0], &acc.shape[..]), (names[1], &left.shape), (names[2], &right.shape)];
            let help = self.product_help("gemm", shapes, [false; 2]);
            let message = format!("the shapes of this gemm do not fit: {}", list.join(", "));
            self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(help));
        }
        let same = left.dtype == right.dtype;
        let known = |dtype| mmas_of(MmaKind::Dense).any(|row| row.a == dtype);
        if product_needs([left.dtype, right.dtype], acc.dtype, MmaKind::Dense).is_none() {
            let cast = if same && known(left.dtype) { "" } else { "; cast the factors first" };
            self.report(
                Diagnostic::new(
                    Code::TypeMismatch,
                    span,
                    format!("there is no gemm of {} and {} into {}", left.dtype, right.dtype, acc.dtype),
                )
                .help(format!("factors of one type: {}{cast}", product_types(mmas_of(MmaKind::Dense)))),
            );
        }
        if c == a || c == b {
            let message = format!("the accumulator `{}` is also a factor", names[0]);
            self.report(
                Diagnostic::new(Code::BadValue, span, message)
                    .help("copy the factor to another register tensor"),
            );
        }
    }

    fn fill(&mut self, dst: TensorId, value: f64, span: Origin) {
        let Some(operand) = self.register_by_parts(dst, span, "fill") else { return };
        if value.is_nan() || !is_value(operand.dtype, value) {
            self.no_value(operand.dtype, value, span);
        }
    }

    /// Reports a literal that an element type does not have.
    pub(super) fn no_value(&mut self, dtype: DType, value: f64, span: Origin) {
        let nearest = dtype.decode(dtype.encode(value));
        self.report(
            Diagnostic::new(Code::BadValue, span, format!("{value} is not a value of {dtype}"))
                .help(format!("the nearest is {nearest}")),
        );
    }
}

/// The first mode of a buffer along which two coordinates of a tile with these leaves are one. Leaves whose extent or step is not known
/// are left out.
fn overlap(leaves: &[&ViewLeaf]) -> Option<u32> {
    let dims: BTreeSet<u32> = leaves.iter().map(|leaf| leaf.dim).collect();
    dims.into_iter().find(|dim| {
        let steps = leaves.iter().filter(|leaf| leaf.dim == *dim);
        let mut steps: Vec<(i64, i64)> =
            steps.filter_map(|leaf| Some((leaf.extent.as_int()?, leaf.scale.as_int()?))).collect();
        steps.retain(|(extent, _)| *extent > 1);
        steps.sort_by_key(|(_, step)| step.unsigned_abs());
        let mut reach = 0i64;
        let apart = steps.iter().all(|(extent, step)| {
            let beyond = step.saturating_abs() > reach;
            reach = reach.saturating_add(step.saturating_abs().saturating_mul(extent - 1));
            beyond
        });
        let elements = steps.iter().fold(1i64, |product, (extent, _)| product.saturating_mul(*extent));
        // Steps that interleave are looked at place by place; a tile has 2²⁰ elements at most.
        !apart && elements <= 1 << 20 && {
            let mut places = BTreeSet::from([0i64]);
            for (extent, step) in &steps {
                let walked = |at: i64| (0..*extent).map(move |i| at.saturating_add(i.saturating_mul(*step)));
                places = places.into_iter().flat_map(walked).collect();
            }
            (places.len() as i64) < elements
        }
    })
}

/// True if an element type has a number, or a float near it; NaN is one of every type of floats that has it.
pub(super) fn is_value(dtype: DType, value: f64) -> bool {
    let stored = dtype.decode(dtype.encode(value));
    // 8-bit floats saturate: what lies above the largest is out of range too.
    let largest = dtype.decode(dtype.encode(f64::INFINITY));
    match dtype.is_float() {
        true if value.is_nan() => stored.is_nan(),
        // Scales have no sign.
        true if value < 0.0 && !stored.is_sign_negative() => false,
        true => value.is_finite() == stored.is_finite() && (stored.abs() < largest || value.abs() <= largest),
        false => stored == value,
    }
}
