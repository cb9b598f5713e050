//! Checks of pairs: blocks 2i and 2i + 1 of a cluster, which multiply together.
//!
//! A pair's product reads the right factor from both blocks, of which each has half: nothing else can read it. One thread of the even block issues the products
//! of both, so that what it waits for and what it gives back is both blocks'.

use std::collections::BTreeMap;

use tilewright_machine::{Memory, TensorMemory};

use super::checker::static_shape;
use crate::cluster::Multicast;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::program::{PipelineId, Program, Side, Stmt, StmtKind, TensorId, TensorRef};
use crate::statement::{self, Form};

/// A product into tensor memory.
struct Product<'a> {
    c: TensorId,
    a: &'a TensorRef,
    b: &'a TensorRef,
    scales: Option<&'a [TensorRef; 2]>,
    span: Origin,
}

impl<'a> Product<'a> {
    /// Its operands in shared memory.
    fn operands(&self) -> impl Iterator<Item = &'a TensorRef> + use<'a> {
        [self.a, self.b].into_iter().chain(self.scales.into_iter().flatten())
    }
}

/// The statements that pairs depend on.
#[derive(Default)]
struct Found<'a> {
    /// The first copy of each tensor with `pair`, and the first without.
    copies: [BTreeMap<TensorId, Origin>; 2],
    /// The first copy of each tensor with a `multicast` to the other block of a pair.
    multicasts: BTreeMap<TensorId, Origin>,
    products: Vec<Product<'a>>,
    /// Other statements that read shared tensors.
    readers: Vec<(TensorId, Origin)>,
    /// Every `consume`, with the role that it stands in.
    consumers: Vec<(PipelineId, Option<&'a str>, Origin)>,
    /// The roles that multiply into tensor memory.
    multiply: Vec<Option<&'a str>>,
    /// Numbers that decide what is multiplied, and are certainly others in each of the two blocks: words for them, and the role that they stand in.
    apart: Vec<(&'static str, Option<&'a str>, Origin)>,
}

/// A block of the first pair, where every name stands for one number.
struct Names {
    block: i64,
    value: i64,
}

impl Scope for Names {
    fn symbol(&self, _: SymbolId) -> Option<i64> {
        Some(self.value)
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(if axis == Axis::X { self.block } else { 0 })
    }
}

/// Numbers that names stand for, where an expression is asked whether it differs: a difference by all of them is one that does not depend on sizes.
const TRIED: [i64; 3] = [2, 7, 64];

/// True if an expression certainly has another value in each block of the first pair.
fn differs(expr: &Expr) -> bool {
    TRIED.into_iter().all(|value| {
        let [even, odd] = [0, 1].map(|block| expr.eval(&Names { block, value }));
        even.zip(odd).is_some_and(|(even, odd)| even != odd)
    })
}

/// True if statements begin stages, or change sums.
fn multiplies(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| {
        matches!(&stmt.kind, StmtKind::Stage { .. } | StmtKind::GemmAsync { .. } | StmtKind::Fill { .. })
            || multiplies(stmt.kind.body())
    })
}

/// The expressions of a statement that decide what is multiplied, with words for them.
fn deciding(kind: &StmtKind) -> Option<(&'static str, Vec<&Expr>)> {
    match kind {
        StmtKind::If { condition, body, .. } if multiplies(body) => Some(("the condition", vec![condition])),
        StmtKind::Break { condition } => Some(("the condition", vec![condition])),
        StmtKind::For { lo, hi, condition, body, .. } if multiplies(body) => {
            Some(("the number of iterations", [lo, hi].into_iter().chain(condition).collect()))
        }
        StmtKind::Tiles { rows, cols, body, .. } if multiplies(body) => {
            Some(("the number of tiles", vec![rows, cols]))
        }
        StmtKind::GemmAsync { a, b, scales, .. } => {
            let operands = [a, b].into_iter().chain(scales.iter().flatten());
            Some((
                "an index of a factor",
                operands.flat_map(|operand| operand.index.iter().flatten()).collect(),
            ))
        }
        _ => None,
    }
}

impl<'a> Found<'a> {
    fn body(&mut self, program: &Program, body: &'a [Stmt], role: Option<&'a str>) {
        for stmt in body {
            let mut inside = role;
            if let Some((what, of)) = deciding(&stmt.kind)
                && of.into_iter().any(differs)
            {
                self.apart.push((what, role, stmt.span));
            }
            match &stmt.kind {
                StmtKind::Role { name, .. } => inside = Some(name),
                StmtKind::Stage { pipeline, side: Side::Consume, .. } => {
                    self.consumers.push((*pipeline, role, stmt.span));
                }
                StmtKind::CopyAsync { src, dst, how } => {
                    self.readers.push((src.tensor, stmt.span));
                    let pair = how.multicast.is_some_and(Multicast::halves);
                    self.copies[usize::from(!pair)].entry(dst.tensor).or_insert(stmt.span);
                    if how.multicast.is_some_and(|multicast| !pair && !is_between_pairs(program, multicast)) {
                        self.multicasts.entry(dst.tensor).or_insert(stmt.span);
                    }
                }
                StmtKind::GemmAsync { c, a, b, scales, .. }
                    if program.tensor(*c).memory() == Memory::Tensor =>
                {
                    let scales = scales.as_ref();
                    self.products.push(Product { c: *c, a, b, scales, span: stmt.span });
                    self.multiply.push(role);
                    let others = scales.into_iter().flatten().map(|scale| scale.tensor).chain([a.tensor]);
                    self.readers.extend(others.map(|id| (id, stmt.span)));
                }
                kind => self.readers.extend(kind.reads().into_iter().map(|id| (id, stmt.span))),
            }
            self.body(program, stmt.kind.body(), inside);
        }
    }
}

/// True of a multicast to blocks of other pairs that have the same place there: those of a mode of the cluster that begins behind whole pairs.
fn is_between_pairs(program: &Program, multicast: Multicast) -> bool {
    let extent = |extent: &Expr| extent.as_int().and_then(|extent| u32::try_from(extent).ok());
    let shape: Option<Vec<u32>> = program.cluster.iter().map(extent).collect();
    shape.is_some_and(|shape| multicast.peers(&shape).stride.is_multiple_of(2))
}

/// True of a copy by which each block of a pair fills its half of a tensor.
pub(crate) fn is_half<F: Form>(kind: &statement::StmtKind<F>, id: TensorId) -> bool {
    matches!(kind, statement::StmtKind::CopyAsync { dst, how, .. }
        if dst.tensor == id && how.multicast.is_some_and(Multicast::halves))
}

/// Checks a program that is right otherwise.
pub(super) fn check(program: &Program) -> Vec<Diagnostic> {
    let mut found = Found::default();
    found.body(program, &program.body, None);
    let Found { copies: [pairs, whole], multicasts, products, readers, consumers, multiply, apart } = &found;
    let Some((_, first)) = pairs.iter().next() else { return Vec::new() };
    let name = |id: TensorId| program.tensor(id).name.as_str();
    let mut errors = Vec::new();
    let mut report =
        |code: Code, span: Origin, message: String, (at, label): (Origin, &str), help: String| {
            errors.push(Diagnostic::new(code, span, message).related(at, label).help(help));
        };
    for (id, copy) in pairs {
        let name = name(*id);
        if let Some(other) = whole.get(id) {
            let message = format!("`{name}` is copied without `pair` here, and with it elsewhere");
            let help = format!(
                "a block of a pair has half of `{name}` or all of it: write `pair` in all copies, or in none"
            );
            report(Code::Misplaced, *other, message, (*copy, "with `pair`"), help);
        }
        if let Some((_, span)) = readers.iter().find(|(read, _)| read == id) {
            let message =
                format!("`{name}` is copied with `pair`, so that a block has half of it, and this reads it");
            let help = format!(
                "only the right factor of a `gemm.async` into tensor memory is read from both blocks: leave `pair` out, or let `{name}` be that alone"
            );
            report(Code::Misplaced, *span, message, (*copy, "each block copies half"), help);
        } else if products.iter().all(|product| product.b.tensor != *id) {
            let message =
                format!("`{name}` is copied with `pair`, and no product into tensor memory reads it");
            let help = "what a pair shares is the right factor of `gemm.async(acc, a, b)`, with `acc` in tensor memory".to_string();
            errors.push(Diagnostic::new(Code::Misplaced, *copy, message).help(help));
            return errors;
        }
    }
    for Product { c, a, b, span, .. } in products {
        let at = (*first, "a pair's copy");
        if !pairs.contains_key(&b.tensor) {
            let message =
                format!("this product is of one block, for `{}` is not copied with `pair`", name(b.tensor));
            let help = "all products of a kernel into tensor memory are of pairs, or none: write `pair` for each right factor".to_string();
            report(Code::Misplaced, *span, message, at, help);
            continue;
        }
        let rows = static_shape(&program.tensor(*c).kind).first().copied().unwrap_or(0);
        if rows != TensorMemory::LANES {
            let message = format!("a pair multiplies 128 rows in each block, and `{}` has {rows}", name(*c));
            report(
                Code::ShapeMismatch,
                *span,
                message,
                at,
                "let the tile have 128 rows, or leave `pair` out".to_string(),
            );
        }
        if program.tensor(a.tensor).memory() == Memory::Tensor {
            let message =
                format!("the left factor of a pair's product, `{}`, is in tensor memory", name(a.tensor));
            report(
                Code::WrongMemory,
                *span,
                message,
                at,
                "let it be in shared memory, or leave `pair` out".to_string(),
            );
        }
    }
    for (what, _, span) in apart.iter().filter(|(_, role, _)| multiply.contains(role)) {
        let message =
            format!("{what} differs between the blocks of a pair, for both of which one thread multiplies");
        let help = "let nothing in the role that multiplies depend on `block.x % 2`, or leave `pair` out"
            .to_string();
        report(Code::BlocksDiffer, *span, message, (*first, "a pair's copy"), help);
    }
    let stages = |id: TensorId| program.pipelines.iter().position(|pipeline| pipeline.tensors.contains(&id));
    let mut read: Vec<usize> =
        products.iter().flat_map(Product::operands).filter_map(|r| stages(r.tensor)).collect();
    read.sort_unstable();
    read.dedup();
    for pipeline in read {
        let row = &program.pipelines[pipeline];
        for (id, span) in multicasts.iter().filter(|(id, _)| row.tensors.contains(id)) {
            let message = format!(
                "`{}` is copied with `multicast` to both blocks of a pair, for a stage that pairs multiply",
                name(*id)
            );
            let help = "each block of a pair has a tile of its own, which other pairs may share: `multicast(1)` of `cluster(2, 2)`; leave `multicast` or `pair` out".to_string();
            report(Code::Misplaced, *span, message, (*first, "a pair's copy"), help);
        }
        let of = |at: &&(PipelineId, Option<&str>, Origin)| at.0.0 as usize == pipeline;
        if let Some((_, role, span)) = consumers.iter().filter(of).find(|at| !multiply.contains(&at.1)) {
            let message = format!(
                "`{}` reads stages of `{}`, which the even block of a pair is told of alone",
                role.unwrap_or_default(),
                row.name
            );
            let help = "give what another role reads a pipeline of its own, or leave `pair` out".to_string();
            report(Code::Misplaced, *span, message, (*first, "a pair's copy"), help);
        }
    }
    errors
}
