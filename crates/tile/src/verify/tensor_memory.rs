//! Checks of tensor memory: what it holds, who fills and who reads it.
//!
//! A tensor in tensor memory is a stage of a pipeline. Products add to it in `produce`, all issued by one thread, so that the role does nothing that its threads do
//! together; it is complete where its stage is full, and a `consume` copies it to registers. Or threads fill it in `produce`, and it is the left factor of products in
//! `consume`.
//!
//! The sums of a pipeline of one stage stay there: a `produce` goes on with them as the `consume` before has left them. What begins them is a `fill` in a stage, or one
//! ahead of all.

use tilewright_machine::{
    DType, Memory, Sparsity, TensorMemory, has_tcgen05, is_tcgen05_left, is_tcgen05_sum,
};

use super::checker::{Checker, count, shape_text, static_shape};
use super::operands::Operand;
use super::stage::{Use, word};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{PipelineId, Side, Stmt, StmtKind, TensorId, TensorKind, TensorRef};
use crate::statement;

/// The rows and the columns of a tile whose parts lie side by side.
fn matrix(shape: &[i64]) -> Vec<i64> {
    match shape {
        [m, n, parts @ ..] => vec![*m, n * parts.iter().product::<i64>()],
        _ => shape.to_vec(),
    }
}

impl Checker<'_> {
    pub(super) fn in_tensor_memory(&self, id: TensorId) -> bool {
        self.program.tensor(id).memory() == Memory::Tensor
    }

    /// `acc = tensor_memory(f32, [BM, BN])`, or of several parts side by side, `[BM, BN, parts]`.
    pub(super) fn tensor_memory(&mut self, id: TensorId, shape: &[Expr], span: Origin) {
        let tensor = self.program.tensor(id);
        let name = tensor.name.as_str();
        if self.tile_size(name, shape, span).is_none() {
            return;
        }
        let dtype = tensor.dtype;
        if !is_tcgen05_sum(dtype) && !is_tcgen05_left(dtype) && dtype != Sparsity::META {
            let message = format!(
                "tensor memory holds sums in f32 and i32, and left factors of products and their metadata; `{name}` is of {dtype}"
            );
            let help = format!("write `{name} = tensor_memory(f32, …)`, and cast what is copied from it");
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
            return;
        }
        let extents = static_shape(&tensor.kind);
        let [m, parts @ ..] = &extents[..] else { return };
        let columns = i64::from(TensorMemory::COLUMNS);
        let taken = i64::from(TensorMemory::columns_of(parts.iter().product(), dtype));
        let whole_cells = parts.first().is_some_and(|n| (n * i64::from(dtype.bits())) % 32 == 0);
        let rows = *m == TensorMemory::LANES || (*m == 64 && is_tcgen05_sum(dtype));
        if !rows || parts.is_empty() || taken > columns || !whole_cells {
            let message = format!("tensor memory holds no `{name}` of {}", shape_text(&extents));
            let help = match dtype {
                DType::F32 | DType::I32 => {
                    format!("sums have 64 or 128 rows, a lane each, and at most {columns} columns")
                }
                _ => format!(
                    "{} 128 rows, a lane each, and at most {} elements of {dtype} in whole columns of 32 bits",
                    if dtype == Sparsity::META { "metadata have" } else { "a left factor has" },
                    columns * 32 / i64::from(dtype.bits())
                ),
            };
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
        if self.stage_of[id.0 as usize].is_none() {
            let message = format!("`{name}` is in tensor memory, and in no pipeline");
            let help = format!(
                "its sums are complete where a stage is full: write `out = pipeline(2, {name})`, multiply in `produce out`, and copy in `consume out`"
            );
            self.misplaced(span, message, help);
        }
    }

    /// The tensors of a pipeline lie in one memory.
    pub(super) fn one_memory(&mut self, tensors: &[TensorId], pipeline: &str, span: Origin) {
        let of = |memory: bool| tensors.iter().find(|id| self.in_tensor_memory(**id) == memory).copied();
        if let (Some(sums), Some(other)) = (of(true), of(false)) {
            let message = format!(
                "`{pipeline}` has `{}` in tensor memory and `{}` in {} memory",
                self.name(sums),
                self.name(other),
                self.program.tensor(other).memory()
            );
            let help = "products fill the one, and copies the other: give each a pipeline of its own";
            self.misplaced(span, message, help);
        }
    }

    /// Notes what a statement asks of the role at hand.
    pub(super) fn issued(&mut self, stmt: &Stmt) {
        let product = match &stmt.kind {
            StmtKind::GemmAsync { c, .. } if self.in_tensor_memory(*c) => Some(*c),
            StmtKind::Fill { dst, .. } if self.in_tensor_memory(*dst) => return,
            StmtKind::Define(id) if !matches!(self.program.tensor(*id).kind, TensorKind::Register { .. }) => {
                return;
            }
            StmtKind::Let { .. }
            | StmtKind::Pipeline(_)
            | StmtKind::Barrier(_)
            | StmtKind::Role { .. }
            | StmtKind::Stage { .. }
            | StmtKind::For { .. }
            | StmtKind::If { .. }
            | StmtKind::Break { .. }
            | StmtKind::Tiles { .. }
            | StmtKind::Drain { .. }
            | StmtKind::WaitDependencies
            | StmtKind::LaunchDependents => return,
            _ => None,
        };
        let issues = self.issues.entry(self.role).or_default();
        match product {
            Some(c) => _ = issues.product.get_or_insert((c, stmt.span)),
            None => _ = issues.together.get_or_insert(stmt.span),
        }
    }

    /// A role that multiplies into tensor memory does nothing else: one thread issues.
    pub(super) fn issuers(&mut self) {
        for (role, issues) in std::mem::take(&mut self.issues) {
            let (Some((c, product)), Some(span)) = (issues.product, issues.together) else { continue };
            let who = role.map_or("the block".to_string(), |role| format!("`{}`", self.role_names[role]));
            let message = format!(
                "{who} multiplies into `{}` in tensor memory, which one thread issues, and its threads do this together",
                self.name(c)
            );
            self.report(
                Diagnostic::new(Code::Misplaced, span, message).related(product, "the product").help(
                    "let a role do nothing but multiply: `warpgroup multiply(1) { … }`, and others load and store",
                ),
            );
        }
    }

    /// True if the stage of a tensor in tensor memory that is being filled is at hand; another place is reported.
    fn filling(&mut self, id: TensorId, what: &str, span: Origin) -> bool {
        let Some(pipeline) = self.stage_of[id.0 as usize] else { return false };
        let open = self.stages.iter().find(|stage| stage.pipeline == pipeline);
        let Some(side) = open.map(|stage| stage.side) else { return false };
        if side == Side::Produce {
            return true;
        }
        let (name, pipeline) = (self.name(id), self.pipeline_name(pipeline));
        let message = format!("{what} `{name}` in `{} {pipeline}`", word(side));
        self.misplaced(
            span,
            message,
            format!("sums are made in `produce {pipeline}`, and read in `consume {pipeline}`"),
        );
        false
    }

    /// `gemm.async(c, a, b)` with its sums in tensor memory.
    pub(super) fn sums(
        &mut self,
        c: TensorId,
        (a, b, meta): (&TensorRef, &TensorRef, Option<TensorId>),
        scales: Option<&[TensorRef; 2]>,
        warpgroups: Option<&[Expr; 2]>,
        span: Origin,
    ) {
        if !self.alive(c, span) {
            return;
        }
        let (left, right) = (self.reference(a, span), self.reference(b, span));
        let (Some(mut left), Some(right)) = (left, right) else { return };
        let [sums, x, y] = [c, a.tensor, b.tensor].map(|id| self.name(id));
        let dtype = self.program.tensor(c).dtype;
        if !is_tcgen05_sum(dtype) {
            let message = format!("sums in tensor memory are of f32 or i32, and `{sums}` is of {dtype}");
            let help = format!("write `{sums} = tensor_memory(f32, …)`, and cast what is copied from it");
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
            return;
        }
        if left.memory == Memory::Tensor {
            if !self.is_left_factor(a, &left, c, span) {
                return;
            }
            left.shape = matrix(&left.shape);
        }
        let shared = |operand: &Operand, left: bool| {
            operand.memory == Memory::Shared || left && operand.memory == Memory::Tensor
        };
        if let Some((operand, name, _)) = [(&left, x, true), (&right, y, false)]
            .into_iter()
            .find(|(operand, _, left)| !shared(operand, *left))
        {
            let message = format!(
                "the factors of a product into tensor memory are read from shared memory, the left one from tensor memory too; `{name}` is in {} memory",
                operand.memory
            );
            let help = format!("copy it to a shared tensor, or let `{sums}` be a register tensor");
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        if warpgroups.is_some() {
            let message =
                format!("a product into tensor memory has no `warpgroups`, and `{sums}` is in tensor memory");
            let help = "one thread issues it for the whole tile";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        self.filling(c, "a product adds to", span);
        let of = Operand {
            memory: Memory::Tensor,
            dtype: self.program.tensor(c).dtype,
            shape: matrix(&static_shape(&self.program.tensor(c).kind)),
        };
        let shapes = [&of.shape, &left.shape, &right.shape];
        if let Some((shape, name)) = shapes.into_iter().zip([sums, x, y]).find(|(shape, _)| shape.len() != 2)
        {
            let message =
                format!("`gemm.async` multiplies matrices; `{name}` has {}", count(shape.len(), "mode"));
            let help = "shapes are c: [M, N], a: [M, K], b: [N, K]";
            self.report(Diagnostic::new(Code::WrongRank, span, message).help(help));
            return;
        }
        if let Some(meta) = meta {
            self.sparse_sums([(c, &of), (a.tensor, &left), (b.tensor, &right)], (meta, scales), span);
            return;
        }
        let [m, l, r] = shapes;
        if m[0] != l[0] || m[1] != r[0] || l[1] != r[1] {
            let list: Vec<String> = shapes
                .into_iter()
                .zip([sums, x, y])
                .map(|(shape, name)| format!("`{name}` {}", shape_text(shape)))
                .collect();
            let message = format!("the shapes of this product do not fit: {}", list.join(", "));
            let help = "shapes are c: [M, N], a: [M, K], b: [N, K]";
            self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(help));
        }
        if let Some(scales) = scales {
            self.scaled_sums([(c, &of), (a.tensor, &left), (b.tensor, &right)], scales, span);
            return;
        }
        if is_tcgen05_sum(of.dtype) && !has_tcgen05(left.dtype, right.dtype, of.dtype) {
            let message = format!(
                "there is no gemm.async of {} and {} into {} in tensor memory",
                left.dtype, right.dtype, of.dtype
            );
            let help = "f16 and f16, bf16 and bf16, f32 and f32 (as tf32), or 8-bit floats, into f32; i8 and u8 into i32";
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
    }

    /// True if a product may read its left factor in tensor memory so; what is wrong with it is reported.
    fn is_left_factor(&mut self, a: &TensorRef, left: &Operand, c: TensorId, span: Origin) -> bool {
        let name = self.name(a.tensor);
        let (message, help) = if a.tensor == c {
            (
                format!("`{name}` is the left factor of a product and its sums"),
                "give the sums columns of their own".to_string(),
            )
        } else if a.transposed || !a.index.is_empty() || a.indexed.is_some() {
            let what = if a.transposed { "transposed" } else { "indexed" };
            (
                format!("the left factor `{name}` is in tensor memory and {what}: products read all of it"),
                "multiply by the whole tensor, or read the factor from shared memory".to_string(),
            )
        } else if left.shape.first() != Some(&TensorMemory::LANES) {
            (
                format!(
                    "the left factor `{name}` in tensor memory has {} rows",
                    left.shape.first().unwrap_or(&0)
                ),
                "products read left factors of 128 rows there; those of 64 from shared memory".to_string(),
            )
        } else {
            return true;
        };
        self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        false
    }

    /// The pipeline of one stage of a tensor that is being filled ahead of it, where none is at hand.
    fn one_stage(&self, id: TensorId) -> Option<PipelineId> {
        let pipeline = self.stage_of[id.0 as usize]?;
        (self.program.pipeline(pipeline).stages.as_int() == Some(1)).then_some(pipeline)
    }

    /// `fill(c, 0)` of sums in tensor memory: in a stage, or, where there is one, ahead of it.
    pub(super) fn fill_of_sums(&mut self, dst: TensorId, value: f64, span: Origin) {
        // Of sums of another type than f32 their product is what is wrong.
        let mut summed = false;
        let sums = |kind: &StmtKind| matches!(kind, StmtKind::GemmAsync { c, .. } if *c == dst);
        statement::visit(&self.program.body, 0, &mut |stmt, _| summed |= sums(&stmt.kind));
        let dtype = self.program.tensor(dst).dtype;
        if (is_tcgen05_left(dtype) || dtype == Sparsity::META) && !is_tcgen05_sum(dtype) && !summed {
            let name = self.name(dst);
            let what = if dtype == Sparsity::META { "metadata" } else { "a left factor" };
            let message = format!("a fill begins sums, and `{name}` in tensor memory is {what} of {dtype}");
            let help = format!(
                "fill a register tensor, and `copy` that to `{name}`: a left factor is what threads store"
            );
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
            return;
        }
        let one = self.one_stage(dst);
        let ahead = one.filter(|of| self.stages.iter().all(|stage| stage.pipeline != *of));
        if !(if ahead.is_some() { self.exists(dst, span) } else { self.alive(dst, span) }) {
            return;
        }
        if ahead.is_some() {
            self.ahead.push((dst, self.role, span));
        } else {
            self.filling(dst, "a fill of", span);
        }
        if one.is_some() {
            self.begun.insert(dst);
        }
        if value != 0.0 {
            let name = self.name(dst);
            let message = format!("`{name}` in tensor memory is filled with {value}");
            let help = "the first product begins with 0 or with what is there: fill a register tensor, and copy that, or add it to the sums behind";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// Sums are begun ahead of their stages by the role that fills these.
    pub(super) fn filled_ahead(&mut self) {
        for (id, role, span) in std::mem::take(&mut self.ahead) {
            let Some(pipeline) = self.stage_of[id.0 as usize] else { continue };
            let fills = |at: &&Use| at.pipeline == pipeline && at.side == Side::Produce;
            if self.uses.iter().filter(fills).any(|at| at.role != role) {
                let (name, pipeline) = (self.name(id), self.pipeline_name(pipeline));
                let message =
                    format!("`{name}` is filled ahead of `produce {pipeline}`, which is in another role");
                let help = "the role that multiplies begins the sums".to_string();
                self.misplaced(span, message, help);
            }
        }
    }

    /// A product adds to sums that nothing has begun.
    pub(super) fn sums_of_nothing(&mut self, id: TensorId, span: Origin) {
        let name = self.name(id);
        let message = format!("a product adds to `{name}`, and nothing has been written to this stage of it");
        self.misplaced(
            span,
            message,
            format!("begin with `fill({name}, 0)`: the first product then overwrites it"),
        );
    }

    /// A copy from or to tensor memory, whose operands are legal each for itself.
    pub(super) fn copy_of_sums(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        combines: bool,
        threads: Option<u32>,
        span: Origin,
    ) {
        let memory = |r: &TensorRef| self.program.tensor(self.base(r.tensor)).memory();
        let (from, to) = (memory(src), memory(dst));
        let ends = [(src, from), (dst, to)];
        let Some((sums, _)) = ends.into_iter().find(|(_, memory)| *memory == Memory::Tensor) else { return };
        let name = self.name(sums.tensor);
        if !ends.iter().any(|(_, memory)| *memory == Memory::Register) {
            let message = format!(
                "this copy goes from {from} memory to {to} memory, and tensor memory is reached through registers",
            );
            let help = format!("copy `{name}` to a register tensor first");
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        if combines {
            let message = format!("nothing combines with `{name}` in tensor memory");
            let help = "copy to a register tensor, combine there, and copy that";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        }
        // Rows and columns are kept, and with them all parts or one.
        let fixed: Vec<bool> = sums.index.iter().map(Option::is_some).collect();
        let part = match &fixed[..] {
            [false, false, parts @ ..] => parts.iter().all(|fixed| *fixed),
            index => index.is_empty(),
        };
        if sums.transposed || !part || sums.indexed.is_some() {
            let what = if sums.transposed { "transposed" } else { "indexed" };
            let message =
                format!("`{name}` is in tensor memory and {what}: a warp reaches its own lanes of the whole");
            let help = format!(
                "copy all of it to a register tensor, or one of several parts: `{name} = tensor_memory(f32, [BM, BN, parts])` and `copy({name}[:, :, i], r)`"
            );
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        }
        self.whole_warpgroups("a copy of tensor memory", threads, span);
    }
}
