//! Checks of the body: scopes, and what each statement asks of its operands.

use std::collections::BTreeSet;

use tilewright_machine::{DType, Memory, WARP, WARPGROUP};

use super::shapes::Site;
use super::{Allowed, Checker, Life, count, depends_on, shape_text, static_shape};
use crate::build::before;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{
    AsyncCopyAttrs, ElemExpr, ParamKind, Program, Stmt, StmtKind, SymbolKind, TensorId, TensorKind,
    TensorRef, ViewLeaf, ViewMode,
};

/// A tensor as a statement sees it.
pub(super) struct Operand {
    pub(super) memory: Memory,
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
}

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
            self.statement(stmt, threads, &mut defined);
        }
        self.depth -= 1;
        for id in defined {
            self.life[id] = Life::Gone(kind);
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
            StmtKind::Copy { src, dst } => self.copy(src, dst, span),
            StmtKind::CopyAsync { src, dst, how } => self.copy_async(src, dst, *how, span),
            StmtKind::GemmAsync { c, a, b, warpgroups } => {
                self.gemm_async(*c, (a, b), warpgroups.as_ref(), threads, span);
            }
            StmtKind::WaitDependencies | StmtKind::LaunchDependents => {}
            StmtKind::CommitGemm => self.whole_warpgroups("commit_gemm", threads, span),
            StmtKind::WaitGemm(groups) => self.wait_gemm(groups, threads, span),
            StmtKind::ClusterSum { dst } => self.cluster_sum(*dst, span),
            StmtKind::Pipeline(id) => self.pipeline(*id, span),
            StmtKind::Role { name, warpgroups, body, .. } => {
                let outer = self.role;
                self.role = self.role_names.iter().position(|role| role == name);
                let own = warpgroups
                    .as_int()
                    .and_then(|n| u32::try_from(n.checked_mul(i64::from(WARPGROUP))?).ok());
                self.block(body, own, "role");
                self.role = outer;
            }
            StmtKind::Stage { pipeline, side, body } => {
                self.stage((*pipeline, *side), body, threads, span);
            }
            StmtKind::Tiles { row, col, previous, rows, cols, order, body } => {
                self.tiles(rows, cols, order, span);
                let counters = [*row, *col].into_iter().chain(previous.iter().flatten().copied());
                self.counting(counters, |check| check.block(body, threads, "loop"));
            }
            StmtKind::Drain { previous, body } => {
                self.counting(*previous, |check| check.block(body, threads, "`drain`"));
            }
            StmtKind::Commit => {}
            StmtKind::Wait(groups) => self.wait(groups, span),
            StmtKind::Gemm { c, a, b, warps } => {
                self.gemm(*c, *a, *b, span);
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
            StmtKind::Gather { dst, src, index, axis } => {
                let site = Site { statement: "gather", span, threads, defined };
                self.gather(*dst, *src, *index, *axis, site);
            }
            StmtKind::Sync => {}
            StmtKind::For { counter, lo, hi, body } => {
                for (bound, what) in [(lo, "the loop's first value"), (hi, "the loop's end")] {
                    if self.program.symbol(*counter).kind == SymbolKind::Unrolled {
                        self.known(bound, span, what);
                    } else {
                        self.expr(bound, Allowed::All, span, what);
                    }
                }
                self.counting([*counter], |check| check.block(body, threads, "loop"));
            }
        }
    }

    pub(super) fn define(&mut self, id: TensorId, defined: &mut Vec<usize>) {
        self.life[id.0 as usize] = Life::Alive;
        self.home[id.0 as usize] = self.role;
        defined.push(id.0 as usize);
    }

    /// The tensor itself, or the one that it is a part of.
    pub(super) fn base(&self, id: TensorId) -> TensorId {
        match self.program.tensor(id).kind {
            TensorKind::Part { of, .. } => of,
            _ => id,
        }
    }

    /// Checks that a tensor, or what it is a part of, may be used here.
    fn alive(&mut self, id: TensorId, span: Origin) -> bool {
        self.exists(id, span) && self.belongs(self.base(id), span)
    }

    /// Checks that a tensor, or what it is a part of, is defined here.
    pub(super) fn exists(&mut self, id: TensorId, span: Origin) -> bool {
        let id = self.base(id);
        let tensor = self.program.tensor(id);
        let error = match self.life[id.0 as usize] {
            Life::Alive => return !self.broken[id.0 as usize],
            Life::Undefined => Diagnostic::new(
                Code::UnknownName,
                span,
                format!("`{}` is used before it is defined", tensor.name),
            )
            .help("define it on an earlier line"),
            Life::Gone(block) => Diagnostic::new(
                Code::UnknownName,
                span,
                format!("`{}` is defined inside a {block} and does not exist after it", tensor.name),
            )
            .help(before(block)),
        };
        self.report(error.label("used here").related(tensor.span, "defined here"));
        false
    }

    // Operands.

    /// A tensor, or a part of one, that must be in registers.
    pub(super) fn register(&mut self, id: TensorId, span: Origin, statement: &str) -> Option<Operand> {
        if !self.alive(id, span) {
            return None;
        }
        let (tensor, memory) = (self.program.tensor(id), self.program.tensor(self.base(id)).memory());
        if memory != Memory::Register {
            // A word of the language, or a description.
            let statement =
                if statement.contains(' ') { statement.to_string() } else { format!("`{statement}`") };
            self.report(
                Diagnostic::new(
                    Code::WrongMemory,
                    span,
                    format!("{statement} works on register tensors; `{}` is in {memory} memory", tensor.name),
                )
                .related(tensor.span, "defined here")
                .help("copy it to a register tensor first"),
            );
            return None;
        }
        let shape = self.register_shape(id, span)?;
        Some(Operand { memory, dtype: tensor.dtype, shape })
    }

    /// The shape of a register tensor, or of a part of one.
    fn register_shape(&mut self, id: TensorId, span: Origin) -> Option<Vec<i64>> {
        let program = self.program;
        match &program.tensor(id).kind {
            TensorKind::Part { of, index, .. } => {
                let span = program.tensor(id).span.or(span);
                let shape = self.tile_at(*of, index, span, true)?;
                self.same_modes(*of, index.iter().map(Option::is_some).collect(), span)?;
                Some(shape)
            }
            kind => {
                let shape = static_shape(kind);
                self.same_modes(id, vec![false; shape.len()], span)?;
                Some(shape)
            }
        }
    }

    /// All uses of a register tensor index the same modes.
    fn same_modes(&mut self, id: TensorId, modes: Vec<bool>, span: Origin) -> Option<()> {
        let tensor = self.program.tensor(id);
        let name = tensor.name.as_str();
        if modes.contains(&true) && matches!(&tensor.kind, TensorKind::Register { pinned: Some(_), .. }) {
            let message = format!("`{name}` is indexed, and its layout is pinned");
            self.report(
                Diagnostic::new(Code::LayoutConflict, span, message)
                    .related(tensor.span, "pinned here")
                    .help("each part of an indexed register tensor has a layout of its own: pin none"),
            );
            return None;
        }
        let (first, at) = self.indexed.entry(id).or_insert((modes.clone(), span)).clone();
        if first == modes {
            return Some(());
        }
        let message = format!("`{name}` is indexed in other modes here than in an earlier statement");
        self.report(
            Diagnostic::new(Code::WrongRank, span, message)
                .related(at, "the earlier use")
                .help("all uses of a register tensor index the same modes, or none"),
        );
        None
    }

    /// A tensor as a copy refers to it.
    pub(super) fn reference(&mut self, r: &TensorRef, stmt: Origin) -> Option<Operand> {
        let span = r.span.or(stmt);
        if !self.alive(r.tensor, span) {
            return None;
        }
        let tensor = self.program.tensor(r.tensor);
        let name = tensor.name.as_str();
        let memory = tensor.memory();
        let mut shape = match &tensor.kind {
            TensorKind::View { .. } | TensorKind::Shared { .. } => {
                self.tile_at(r.tensor, &r.index, span, false)?
            }
            TensorKind::Register { .. } | TensorKind::Part { .. } if r.index.is_empty() => {
                let memory = self.program.tensor(self.base(r.tensor)).memory();
                if memory != Memory::Register {
                    let message = format!("`{name}` names a part of a tensor in {memory} memory");
                    self.report(
                        Diagnostic::new(Code::WrongMemory, span, message).help("index the reference"),
                    );
                    return None;
                }
                self.register_shape(r.tensor, span)?
            }
            TensorKind::Register { .. } | TensorKind::Part { .. } => {
                let message = format!("the reference indexes the register tensor `{name}` itself");
                let help = "a statement names a part of a register tensor: `KernelBuilder::part` makes one";
                self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
                return None;
            }
        };
        if r.transposed {
            if memory == Memory::Register {
                self.report(
                    Diagnostic::new(
                        Code::WrongMemory,
                        span,
                        format!("the register tensor `{name}` cannot be transposed"),
                    )
                    .related(tensor.span, "defined here")
                    .help(format!("inside a copy only shared and global tensors are: write `t = transpose({name})` first")),
                );
                return None;
            }
            shape.reverse();
        }
        Some(Operand { memory, dtype: tensor.dtype, shape })
    }

    /// The shape of the modes of a tensor that an index keeps. With `known`, the index is known when `unroll for` is expanded.
    fn tile_at(
        &mut self,
        id: TensorId,
        index: &[Option<Expr>],
        span: Origin,
        known: bool,
    ) -> Option<Vec<i64>> {
        let program = self.program;
        let tensor = program.tensor(id);
        let name = tensor.name.as_str();
        // The extent of each mode, or why it is none.
        let extents: Vec<Result<i64, String>> = match &tensor.kind {
            TensorKind::View { modes, .. } => modes.iter().map(|mode| extent_of(program, mode)).collect(),
            kind => static_shape(kind).into_iter().map(Ok).collect(),
        };
        if !index.is_empty() && index.len() != extents.len() {
            self.report(
                Diagnostic::new(
                    Code::WrongRank,
                    span,
                    format!(
                        "`{name}` has {} and is indexed with {}",
                        count(extents.len(), "mode"),
                        index.len()
                    ),
                )
                .related(tensor.span, "defined here")
                .help("give one entry a mode: `:` keeps it, an expression fixes it"),
            );
            return None;
        }
        let mut shape = Vec::new();
        let mut ok = true;
        for (i, extent) in extents.iter().enumerate() {
            match (index.get(i), extent) {
                (Some(Some(at)), _) => {
                    let what = format!("an index of `{name}`");
                    ok &= if known {
                        self.known(at, span, &what)
                    } else {
                        self.expr(at, Allowed::All, span, &what)
                    };
                    if let (Some(value), Ok(extent)) = (at.as_int(), extent)
                        && !(0..*extent).contains(&value)
                    {
                        let message = format!(
                            "the index {value} is outside mode {i} of `{name}`, which has extent {extent}"
                        );
                        self.report(Diagnostic::new(Code::BadValue, span, message));
                        ok = false;
                    }
                }
                (_, Ok(extent)) if *extent >= 1 => shape.push(*extent),
                (_, Ok(_)) => return None,
                (_, Err(why)) => {
                    self.report(
                        Diagnostic::new(
                            Code::BadValue,
                            span,
                            format!("mode {i} of `{name}` is kept, but its extent {why}"),
                        )
                        .related(tensor.span, "defined here")
                        .help("a tile's extents are constants: index this mode, e.g. with a loop's counter"),
                    );
                    ok = false;
                }
            }
        }
        if !ok {
            return None;
        }
        if shape.is_empty() {
            self.report(
                Diagnostic::new(
                    Code::WrongRank,
                    span,
                    format!("every mode of `{name}` is indexed: no tile is left"),
                )
                .help("keep at least one mode with `:`"),
            );
            return None;
        }
        let size = shape.iter().try_fold(1i64, |product, e| product.checked_mul(*e));
        self.tile_limit(name, size, span)?;
        Some(shape)
    }

    /// `copy.async(src, dst, how)`.
    fn copy_async(&mut self, src: &TensorRef, dst: &TensorRef, how: AsyncCopyAttrs, span: Origin) {
        let before = self.errors.len();
        self.copy(src, dst, span);
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

    pub(super) fn same_type(&mut self, a: TensorId, b: TensorId, span: Origin, rule: &str, help: &str) {
        let (x, y) = (self.program.tensor(a), self.program.tensor(b));
        if x.dtype != y.dtype {
            self.report(
                Diagnostic::new(
                    Code::TypeMismatch,
                    span,
                    format!("{rule}: `{}` is {}, `{}` is {}", x.name, x.dtype, y.name, y.dtype),
                )
                .help(help),
            );
        }
    }

    // Statements.

    fn copy(&mut self, src: &TensorRef, dst: &TensorRef, span: Origin) {
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
            let mut reversed = to.shape.clone();
            reversed.reverse();
            let help = if from.shape == reversed {
                "one is the transpose of the other: write `transpose(…)` around the global or shared one"
            } else {
                "both sides of a copy have one shape"
            };
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
        if let TensorKind::View { param, modes, .. } = &self.program.tensor(dst.tensor).kind {
            self.outputs[param.0 as usize] = true;
            let kept = modes.iter().enumerate().filter(|(i, _)| !matches!(dst.index.get(*i), Some(Some(_))));
            let leaves: Vec<&ViewLeaf> = kept.flat_map(|(_, mode)| &mode.leaves).collect();
            if leaves.iter().any(|l| l.scale == Expr::Int(0) && l.extent != Expr::Int(1)) {
                self.report(
                    Diagnostic::new(
                        Code::BadValue,
                        span,
                        format!("`{dst_name}` has a stride of 0: several elements of the tile would be written to one place"),
                    )
                    .help("a view that repeats elements can only be read"),
                );
            } else if let Some(dim) = overlap(&leaves) {
                self.report(
                    Diagnostic::new(
                        Code::BadValue,
                        span,
                        format!("`{dst_name}` has steps along `e{dim}` that meet: several elements of the tile would be written to one place"),
                    )
                    .help("a view whose elements overlap can only be read"),
                );
            }
        }
    }

    fn gemm(&mut self, c: TensorId, a: TensorId, b: TensorId, span: Origin) {
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
        let fits = acc.shape[0] == left.shape[0]
            && acc.shape[1] == right.shape[0]
            && left.shape[1] == right.shape[1];
        if !fits {
            let list: Vec<String> = [&acc, &left, &right]
                .into_iter()
                .zip(names)
                .map(|(o, name)| format!("`{name}` {}", shape_text(&o.shape)))
                .collect();
            self.report(
                Diagnostic::new(
                    Code::ShapeMismatch,
                    span,
                    format!("the shapes of this gemm do not fit: {}", list.join(", ")),
                )
                .help("shapes are c: [M, N], a: [M, K], b: [N, K]; the right factor is stored N by K"),
            );
        }
        let legal = left.dtype == right.dtype
            && match left.dtype {
                DType::F16 => matches!(acc.dtype, DType::F16 | DType::F32),
                DType::BF16 => acc.dtype == DType::F32,
                _ => false,
            };
        if !legal {
            self.report(
                Diagnostic::new(
                    Code::TypeMismatch,
                    span,
                    format!("there is no gemm of {} and {} into {}", left.dtype, right.dtype, acc.dtype),
                )
                .help(
                    if left.dtype == right.dtype && matches!(left.dtype, DType::F16 | DType::BF16) {
                        "f16 and f16 into f32 or f16; bf16 and bf16 into f32"
                    } else {
                        "f16 and f16 into f32 or f16; bf16 and bf16 into f32; cast the factors to f16 first"
                    },
                ),
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
        let Some(operand) = self.register(dst, span, "fill") else { return };
        let stored = operand.dtype.decode(operand.dtype.encode(value));
        // 8-bit floats saturate: what lies above the largest is out of range too.
        let largest = operand.dtype.decode(operand.dtype.encode(f64::INFINITY));
        let fits = if operand.dtype.is_float() {
            value.is_finite() == stored.is_finite() && (stored.abs() < largest || value.abs() <= largest)
        } else {
            stored == value
        };
        if !fits || value.is_nan() {
            self.report(
                Diagnostic::new(Code::BadValue, span, format!("{value} is not a value of {}", operand.dtype))
                    .help(format!("the nearest is {stored}")),
            );
        }
    }

    /// `dst = f(operands)`: all in registers, of one shape; defines `dst` if it is new.
    fn assignment(
        &mut self,
        dst: TensorId,
        operands: &[TensorId],
        span: Origin,
        threads: Option<u32>,
        defined: &mut Vec<usize>,
        statement: &str,
    ) -> bool {
        let mut ok = true;
        let mut first: Option<(TensorId, Vec<i64>)> = None;
        for id in operands {
            let Some(operand) = self.register(*id, span, statement) else {
                ok = false;
                continue;
            };
            match &first {
                Some((other, shape)) if *shape != operand.shape => {
                    self.shapes_differ(*other, shape, *id, &operand.shape, span);
                    ok = false;
                }
                Some(_) => {}
                None => first = Some((*id, operand.shape)),
            }
        }
        if self.life[dst.0 as usize] == Life::Undefined {
            self.define(dst, defined);
            if !ok {
                // Its shape came from a wrong operand: what follows from it is not reported.
                self.broken[dst.0 as usize] = true;
                return false;
            }
            self.definition(dst, span, threads);
        }
        let Some(target) = self.register(dst, span, statement) else { return false };
        if let Some((other, shape)) = &first
            && ok
            && *shape != target.shape
        {
            self.shapes_differ(*other, shape, dst, &target.shape, span);
            return false;
        }
        ok
    }

    pub(super) fn shapes_differ(
        &mut self,
        a: TensorId,
        a_shape: &[i64],
        b: TensorId,
        b_shape: &[i64],
        span: Origin,
    ) {
        let (x, y) = (self.program.tensor(a), self.program.tensor(b));
        self.report(
            Diagnostic::new(
                Code::ShapeMismatch,
                span,
                format!(
                    "`{}` has shape {}, `{}` has {}",
                    x.name,
                    shape_text(a_shape),
                    y.name,
                    shape_text(b_shape)
                ),
            )
            .related(x.span, "defined here")
            .related(y.span, "defined here")
            .help("all tensors of this statement have one shape"),
        );
    }

    fn elementwise(
        &mut self,
        dst: TensorId,
        expr: &ElemExpr,
        span: Origin,
        threads: Option<u32>,
        defined: &mut Vec<usize>,
    ) {
        self.elem_leaves(expr, span);
        let mut operands = expr.tensors();
        operands.sort_unstable();
        operands.dedup();
        if !self.assignment(dst, &operands, span, threads, defined, "an elementwise expression") {
            return;
        }
        for id in operands {
            let rule = "an elementwise expression and its result have one element type";
            self.same_type(dst, id, span, rule, "cast the operands to one type first");
        }
        let dtype = self.program.tensor(dst).dtype;
        if !dtype.is_float() {
            self.report(
                Diagnostic::new(
                    Code::TypeMismatch,
                    span,
                    format!("elementwise expressions work on floats; `{}` is {dtype}", self.name(dst)),
                )
                .help("cast the operands to f32 first"),
            );
        }
    }

    fn elem_leaves(&mut self, expr: &ElemExpr, span: Origin) {
        match expr {
            ElemExpr::Tensor(_) => {}
            ElemExpr::Number(value) => {
                if value.is_nan() {
                    self.report(Diagnostic::new(
                        Code::BadValue,
                        span,
                        "a literal of the expression is not a number",
                    ));
                }
            }
            ElemExpr::Scalar(id) => {
                let param = self.program.param(*id);
                if matches!(param.kind, ParamKind::Tensor { .. }) {
                    self.report(
                        Diagnostic::new(
                            Code::TypeMismatch,
                            span,
                            format!("the parameter `{}` is a tensor", param.name),
                        )
                        .help("copy a tile of it into a register tensor first"),
                    );
                }
            }
            ElemExpr::Int(e) => {
                self.expr(e, Allowed::All, span, "an integer of the expression");
            }
            ElemExpr::Unary(_, x) => self.elem_leaves(x, span),
            ElemExpr::Binary(_, x, y) => {
                self.elem_leaves(x, span);
                self.elem_leaves(y, span);
            }
        }
    }
}

/// The constant extent of a view's mode, or why it is none.
fn extent_of(program: &Program, mode: &ViewMode) -> Result<i64, String> {
    let extent = mode.leaves.iter().try_fold(1i64, |product, l| product.checked_mul(l.extent.as_int()?));
    extent.ok_or_else(|| {
        let runtime = mode.leaves.iter().find(|l| l.extent.as_int().is_none());
        runtime.map_or("overflows".to_string(), |l| format!("depends on {}", depends_on(program, &l.extent)))
    })
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
