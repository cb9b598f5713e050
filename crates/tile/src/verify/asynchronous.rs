//! Checks of asynchronous copies and products, and of sums over clusters.

use tilewright_machine::{AtomicOp, DType, Memory};

use super::checker::{Checker, count, shape_text};
use super::remedies::PRODUCT;
use super::stage::{OpenStage, word};
use super::statements::is_value;
use crate::cluster::Multicast;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{AsyncCopyAttrs, CopyAttrs, Literal, ReduceOp, Side, TensorId, TensorRef};

/// The most groups of products that a `wait_gemm` leaves in flight.
const MAX_GROUPS: i64 = 7;

impl Checker<'_> {
    /// Checks the flags of a `copy.async`, whose operands are legal.
    pub(super) fn how(&mut self, dst: &TensorRef, how: AsyncCopyAttrs, span: Origin) {
        let to = self.program.tensor(dst.tensor);
        let stores = to.memory() == Memory::Global;
        let filling = self.stages.iter().rev().find(|stage| stage.side == Side::Produce);
        if let Some(filling) = filling.map(|stage| stage.pipeline)
            && self.stage_of[dst.tensor.0 as usize] != Some(filling)
        {
            let name = self.pipeline_name(filling);
            let message = format!(
                "`copy.async` in `produce {name}` writes `{}`, which is no part of the stage",
                to.name
            );
            let help = format!("a copy that fills no stage stands outside `produce {name}`");
            self.misplaced(span, message, help);
        }
        if dst.indexed.is_some() && !stores {
            let message = format!("`copy.async` writes rows of `{}` that a register tensor names", to.name);
            let help = "where an index lies outside it would write zeros: write `copy(…)`, which goes through registers";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        }
        if let Some(multicast) = how.multicast {
            self.multicast(multicast, span);
        }
        if how.add && !stores {
            let message =
                format!("`add` adds to global memory, and `{}` is in {} memory", to.name, to.memory());
            let help = "copy to a register tensor, and add there";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        } else if how.add && !matches!(to.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I32) {
            let message = format!("there is no `add` of {}, which is what `{}` holds", to.dtype, to.name);
            self.report(
                Diagnostic::new(Code::TypeMismatch, span, message).help("f32, f16, bf16 and i32 are added"),
            );
        }
        let shares = how.multicast.map(Multicast::word);
        let words = [(shares.is_some(), shares.unwrap_or_default()), (how.add, "add")];
        if let Some(word) = words.into_iter().find(|(is, _)| *is)
            && how.threads
        {
            let word = word.1;
            let message = format!("`{word}` is what TMA does, and `threads` leaves the copy to threads");
            let help = format!("leave out `threads`, or `{word}`");
            self.misplaced(span, message, help);
        }
        if let Some(value) = how.outside.map(Literal::value)
            && value.to_bits() != 0.0f64.to_bits()
        {
            let message = format!("`copy.async` writes zeros where its source lies outside, not {value}");
            let help = "only what goes through registers has another value there: `copy(…, outside = …)`";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// `multicast` or `pair` of an asynchronous copy.
    fn multicast(&mut self, multicast: Multicast, span: Origin) {
        let program = self.program;
        let word = multicast.word();
        if let Multicast::Along(mode) | Multicast::Pairs(mode) = multicast {
            let modes = program.cluster.len();
            let Some(extent) = program.cluster.get(mode as usize) else {
                let message = format!(
                    "`multicast({mode})` is along mode {mode} of the cluster, which has {}",
                    count(modes, "mode")
                );
                let help = "modes count from 0: of `cluster(2, 4)`, `multicast(0)` reaches 2 blocks, `multicast(1)` 4, and `multicast` all";
                self.report(
                    Diagnostic::new(Code::WrongRank, span, message)
                        .related(program.cluster_span, "the cluster")
                        .help(help),
                );
                return;
            };
            if extent.as_int() == Some(1) && self.clustered() {
                let message = format!(
                    "`multicast({mode})` reaches one block: the cluster's mode {mode} is one block long"
                );
                let help = "blocks along the other mode share a tile with the number of that one, those of the whole cluster with `multicast`";
                self.misplaced(span, message, help);
                return;
            }
            let extent = |extent: &Expr| extent.as_int().and_then(|extent| u32::try_from(extent).ok());
            let shape: Option<Vec<u32>> = program.cluster.iter().map(extent).collect();
            if multicast.halves() && shape.is_some_and(|shape| multicast.peers(&shape).blocks == 1) {
                let message = format!(
                    "`pair, multicast({mode})` reaches no other pair: one lies along mode {mode} of the cluster"
                );
                let help = "pairs along a mode share a tile with the number of that one: `multicast(1)` of `cluster(2, 2)`, `multicast(0)` of `cluster(4)`; leave `multicast` out where each pair has its own";
                self.misplaced(span, message, help);
                return;
            }
        }
        if filling_none(&self.stages) || !self.clustered() {
            let message = if self.clustered() {
                format!("`{word}` stands outside `produce`")
            } else {
                format!("`{word}` in clusters of one block")
            };
            let help = format!(
                "every block of a cluster of several fills its stage with what is read once: \
                 `cluster(2)`, and `{word}` in a `produce`"
            );
            self.misplaced(span, message, help);
        }
        let blocks = program.cluster.iter().filter_map(Expr::as_int).find(|blocks| *blocks > 1);
        if let (true, Some(blocks)) = (multicast.halves(), blocks.filter(|blocks| blocks % 2 != 0)) {
            let message = format!("`pair` in clusters of which {blocks} blocks lie along the first mode");
            self.report(
                Diagnostic::new(Code::BadLaunch, span, message)
                    .related(program.cluster_span, "the cluster")
                    .help("blocks 2i and 2i + 1 of a cluster are a pair: make it `cluster(2)`, or another even number"),
            );
        }
    }

    /// `copy(src, dst, how)`.
    pub(super) fn copy(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        how: CopyAttrs,
        threads: Option<u32>,
        span: Origin,
    ) {
        self.folded_copy(src, span);
        self.folded_copy(dst, span);
        let before = self.errors.len();
        self.transfer(src, dst, how.combine.is_some() || how.fetch.is_some(), span);
        if self.errors.len() > before {
            return;
        }
        self.copy_of_sums((src, dst), how.combine.is_some() || how.fetch.is_some(), threads, span);
        if self.errors.len() > before {
            return;
        }
        let tensor = |r: &TensorRef| self.program.tensor(self.base(r.tensor));
        let (from, to) = (tensor(src), tensor(dst));
        if let Some(value) = how.outside.map(Literal::value) {
            if from.memory() != Memory::Global && src.indexed.is_none() {
                let message = format!("nothing lies outside of `{}`, which is no global tensor", from.name);
                let help = "`outside` is the value of what a copy reads beyond the end of a global tensor";
                self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            } else if !is_value(from.dtype, value) {
                self.no_value(from.dtype, value, span);
            }
        }
        if let Some(fetch) = how.fetch {
            return self.fetch((src, dst), fetch.op, span);
        }
        let Some(op) = how.combine else { return };
        if to.memory() == Memory::Register || from.memory() == Memory::Global {
            let message = format!(
                "`{}` combines with memory what registers hold, and this copies {} memory to {} memory",
                op.name(),
                from.memory(),
                to.memory()
            );
            let help = "copy to a register tensor, and write the operation there: `t = t + u`";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        } else if !op.types().contains(&to.dtype) {
            let types: Vec<String> = op.types().iter().map(ToString::to_string).collect();
            let message =
                format!("there is no `{}` of {}, which is what `{}` holds", op.name(), to.dtype, to.name);
            let help = format!("there is one of {}", types.join(", "));
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
    }

    /// `old = atomic_add(dst, src)`: memory is changed by what registers hold, of a type that there is an operation for.
    fn fetch(&mut self, (src, dst): (&TensorRef, &TensorRef), op: AtomicOp, span: Origin) {
        let word = op.word().unwrap_or_default();
        let tensor = |id: TensorId| self.program.tensor(self.base(id));
        let (from, to) = (tensor(src.tensor), tensor(dst.tensor));
        if to.memory() == Memory::Register || from.memory() != Memory::Register {
            let message = format!(
                "`{word}` changes memory by what registers hold; `{}` is in {} memory, `{}` in {} memory",
                to.name,
                to.memory(),
                from.name,
                from.memory()
            );
            let help = "first a part of a view or of a shared tensor, then a register tensor: `old = atomic_add(gx[:, i], r)`";
            return self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
        }
        if !op.types().contains(&to.dtype) {
            let types: Vec<String> = op.types().iter().map(ToString::to_string).collect();
            let message = format!("there is no `{word}` of {}, which is what `{}` holds", to.dtype, to.name);
            let help = format!("there is one of {}", types.join(", "));
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
    }

    /// Checks that whole warpgroups do what concerns asynchronous products.
    pub(super) fn whole_warpgroups(&mut self, word: &str, threads: Option<u32>, span: Origin) {
        if let Some(threads) = threads.filter(|threads| threads % 128 != 0) {
            let message =
                format!("`{word}` is done by whole warpgroups of 128 threads, and there are {threads}");
            let help = "give the block or the role a multiple of 128 threads";
            self.report(Diagnostic::new(Code::BadLaunch, span, message).help(help));
        }
    }

    /// `gemm.async(c, a, b)`.
    pub(super) fn gemm_async(
        &mut self,
        c: TensorId,
        (a, b, meta): (&TensorRef, &TensorRef, Option<TensorId>),
        warpgroups: Option<&[Expr; 2]>,
        threads: Option<u32>,
        span: Origin,
    ) {
        self.whole_warpgroups("gemm.async", threads, span);
        if let Some(r) = [a, b].into_iter().find(|r| r.indexed.is_some()) {
            let message = format!(
                "`{}` is indexed by a register tensor, and products read no rows from anywhere",
                self.name(r.tensor)
            );
            let help = "gather the rows into a shared tensor: `copy(s[id, :], r)`, `copy(r, t)`";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        if let Some(warpgroups) = warpgroups {
            self.warpgroups(warpgroups, threads, span);
        }
        let acc = self.register(c, span, "gemm.async");
        let (left, right) = (self.reference(a, span), self.reference(b, span));
        let (Some(acc), Some(left), Some(right)) = (acc, left, right) else { return };
        let names = [c, a.tensor, b.tensor].map(|id| self.name(id));
        for (operand, name, memories, text) in [
            (&left, names[1], &[Memory::Shared, Memory::Register][..], "shared memory or registers"),
            (&right, names[2], &[Memory::Shared][..], "shared memory"),
        ] {
            if !memories.contains(&operand.memory) {
                let message = format!(
                    "this factor of `gemm.async` is read from {text}; `{name}` is in {} memory",
                    operand.memory
                );
                self.report(Diagnostic::new(Code::WrongMemory, span, message).help(
                    "the left factor lies in shared memory or registers, the right one in shared memory",
                ));
                return;
            }
        }
        let shapes = [&acc.shape, &left.shape, &right.shape];
        if let Some((shape, name)) = shapes.into_iter().zip(names).find(|(shape, _)| shape.len() != 2) {
            let message =
                format!("`gemm.async` multiplies matrices; `{name}` has {}", count(shape.len(), "mode"));
            self.report(
                Diagnostic::new(Code::WrongRank, span, message)
                    .help("shapes are c: [M, N], a: [M, K], b: [N, K]"),
            );
            return;
        }
        if let Some(meta) = meta {
            let operands = [(c, &acc), (a.tensor, &left), (b.tensor, &right)];
            self.sparse_gemm("gemm.async", operands, meta, span);
            return;
        }
        let [m, l, r] = shapes;
        if m[0] != l[0] || m[1] != r[0] || l[1] != r[1] {
            let list: Vec<String> = shapes
                .into_iter()
                .zip(names)
                .map(|(shape, name)| format!("`{name}` {}", shape_text(shape)))
                .collect();
            let message = format!("the shapes of this product do not fit: {}", list.join(", "));
            let whole = a.index.is_empty() && b.index.is_empty() && left.memory == Memory::Shared;
            let help = match whole {
                true => {
                    let operands = [(names[0], &m[..]), (names[1], &l[..]), (names[2], &r[..])];
                    self.product_help("gemm.async", operands, [a.transposed, b.transposed])
                }
                false => PRODUCT.to_string(),
            };
            self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(help));
        }
        let bytes = |dtype| matches!(dtype, DType::E4M3 | DType::E5M2);
        let legal = match (left.dtype, right.dtype, acc.dtype) {
            (DType::F16, DType::F16, DType::F16 | DType::F32)
            | (DType::BF16, DType::BF16, DType::F32)
            | (DType::F32, DType::F32, DType::F32)
            | (DType::I8, DType::I8, DType::I32)
            | (DType::U8, DType::U8, DType::I32) => true,
            (left, right, DType::F16 | DType::F32) => bytes(left) && bytes(right),
            _ => false,
        };
        if !legal {
            let message =
                format!("there is no gemm.async of {} and {} into {}", left.dtype, right.dtype, acc.dtype);
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(
                "f16 and f16, or 8-bit floats, into f32 or f16; bf16 and bf16, or f32 and f32, into f32; \
                 i8 and i8, or u8 and u8, into i32",
            ));
        }
        if c == a.tensor {
            let message = format!("the accumulator `{}` is also a factor", names[0]);
            let help = "copy the factor to another register tensor";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// The warpgroups of a product are those of the role.
    fn warpgroups(&mut self, warpgroups: &[Expr; 2], threads: Option<u32>, span: Origin) {
        let [m, n] = warpgroups.each_ref().map(|e| self.literal(e, span, "a number of warpgroups"));
        let (Some(m), Some(n), Some(threads)) = (m, n, threads) else { return };
        let all = i64::from(threads / 128);
        if m < 1 || n < 1 || m.checked_mul(n) != Some(all) {
            let here = if self.role.is_some() { "role" } else { "block" };
            let message = format!("the product is given {m}×{n} warpgroups, and the {here} has {all}");
            let help = "give numbers of at least 1 whose product is the number of warpgroups";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// `wait_gemm(n)`.
    pub(super) fn wait_gemm(&mut self, groups: &Expr, threads: Option<u32>, span: Origin) {
        self.whole_warpgroups("wait_gemm", threads, span);
        if let Some(n) = self.literal(groups, span, "the number of groups")
            && !(0..=MAX_GROUPS).contains(&n)
        {
            let message = format!("the number of groups is {n}; it must be from 0 to {MAX_GROUPS}");
            let help = "`wait_gemm(1)` waits until at most the latest group of products is in flight";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
        }
    }

    /// `cluster_reduce(dst, op)`.
    pub(super) fn cluster_reduce(&mut self, dst: TensorId, op: ReduceOp, span: Origin) {
        if let Some(operand) = self.register(dst, span, "cluster_reduce") {
            self.computes(dst, op, operand.dtype, span);
        }
        self.outside_of_stages("cluster_reduce", span);
    }

    /// Asks that a statement at which blocks wait for each other stands in no stage.
    pub(super) fn outside_of_stages(&mut self, statement: &str, span: Origin) {
        if let Some(stage) = self.stages.last() {
            let message =
                format!("`{statement}` inside `{} {}`", word(stage.side), self.pipeline_name(stage.pipeline));
            self.misplaced(span, message, "the blocks of a cluster wait for each other: place it outside");
        }
    }
}

/// True if no stage is being filled.
fn filling_none(stages: &[OpenStage]) -> bool {
    !stages.iter().any(|stage| stage.side == Side::Produce)
}
