//! An estimate of what a launch takes, made before it begins.

use std::collections::{BTreeMap, HashMap};

use super::launch::symbol_values;
use super::{InterpretError, grid, tensor_len};
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::program::{ParamId, ParamKind, Stmt, StmtKind};
use crate::verified::Verified;

/// The work of a launch on a CPU, as an estimate that depends on nothing but the program and its sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Blocks.
    pub blocks: u64,
    /// Operations of a block, of the kind that a core does in about a nanosecond: the mean of a few blocks.
    pub operations: u64,
    /// Elements of all tensors of global memory.
    pub elements: u64,
}

impl Work {
    /// Operations of all blocks.
    pub fn total(&self) -> u64 {
        self.blocks.saturating_mul(self.operations)
    }
}

/// Operations of an element of a statement, with what the simulator keeps of the accesses to it (4096 · 4096 elements that are copied through
/// shared memory take half a minute of a core), the instructions of a statement for a warp, the start of a block. A multiplication and
/// addition of a product is one.
const ELEMENT: u64 = 500;
const WARP: u64 = 300;
const BLOCK: u64 = 10_000;

/// Estimates a launch.
///
/// # Errors
///
/// Sizes that the kernel does not have, or for which the grid or a tensor has no extent.
pub fn work(v: &Verified, sizes: &BTreeMap<String, i64>) -> Result<Work, InterpretError> {
    let extents = grid(v, sizes)?.map(i64::from);
    let values = symbol_values(v, sizes)?;
    let blocks = extents.iter().map(|e| *e as u64).product();
    // The first block, the last, and one in the middle.
    let places = [0, 1, 2].map(|part| extents.map(|e| (e - 1) * part / 2));
    let operations = places.map(|block| {
        let mut at = At { v, values: &values, block, blocks, counters: HashMap::new() };
        u128::from(at.body(&v.program().body).saturating_add(BLOCK))
    });
    let mean = operations.iter().sum::<u128>() / places.len() as u128;
    let mut elements = 0u64;
    for (i, param) in v.program().params.iter().enumerate() {
        if matches!(param.kind, ParamKind::Tensor { .. }) {
            elements = elements.saturating_add(tensor_len(v, ParamId(i as u32), sizes)? as u64);
        }
    }
    Ok(Work { blocks, operations: u64::try_from(mean).unwrap_or(u64::MAX), elements })
}

/// A place in a launch: sizes, a block, counters in the middle of their ranges, and elements of tensors as 0,
/// scalar parameters at their defaults.
struct At<'a> {
    v: &'a Verified,
    values: &'a [Option<i64>],
    block: [i64; 3],
    blocks: u64,
    counters: HashMap<SymbolId, i64>,
}

impl Scope for At<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.counters.get(&id).copied().or_else(|| self.values.get(id.0 as usize).copied().flatten())
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(self.block[axis as usize])
    }

    fn element(&self, _: ParamId, _: &[i64]) -> Option<i64> {
        Some(0)
    }

    fn scalar(&self, param: ParamId) -> Option<i64> {
        self.v.program().param(param).integer()
    }
}

impl At<'_> {
    fn body(&mut self, stmts: &[Stmt]) -> u64 {
        stmts.iter().fold(0, |sum, stmt| sum.saturating_add(self.statement(stmt)))
    }

    fn value(&self, expr: &Expr) -> i64 {
        expr.eval(self).unwrap_or(1)
    }

    fn statement(&mut self, stmt: &Stmt) -> u64 {
        let warps = u64::from(self.v.threads() / tilewright_machine::WARP).max(1);
        match &stmt.kind {
            StmtKind::For { counter, lo, hi, body, .. } => {
                let (lo, hi) = (self.value(lo), self.value(hi));
                let rounds = hi.saturating_sub(lo).max(0);
                self.counters.insert(*counter, lo.saturating_add(rounds / 2));
                let one = if rounds > 0 { self.body(body) } else { 0 };
                one.saturating_add(WARP * warps).saturating_mul(rounds as u64)
            }
            StmtKind::Tiles { row, col, previous, rows, cols, body, .. } => {
                let tiles = self.value(rows).max(0).saturating_mul(self.value(cols).max(0)) as u64;
                let share = tiles.div_ceil((self.blocks / u64::from(self.v.cluster())).max(1));
                let counters = [row, col].into_iter().chain(previous.iter().flatten());
                self.counters.extend(counters.map(|counter| (*counter, 0)));
                self.body(body).saturating_add(WARP * warps).saturating_mul(share)
            }
            StmtKind::If { condition, .. } if self.value(condition) == 0 => 0,
            StmtKind::Stage { body, .. } => self.body(body).saturating_add(WARP * warps),
            StmtKind::Gemm { c, b, .. } => self.product(&self.v.shape(*c), &self.v.shape(*b)),
            StmtKind::GemmAsync { c, b, .. } => self.product(&self.v.shape(*c), &self.v.tile(b).shape),
            kind if !kind.body().is_empty() => self.body(kind.body()),
            kind => {
                let named = match kind.copied() {
                    Some((src, _)) => vec![self.v.tile(src).shape],
                    None => kind.writes().into_iter().map(|id| self.v.shape(id)).collect(),
                };
                let elements = named.iter().map(|shape| size(shape)).max().unwrap_or(0);
                elements.saturating_mul(ELEMENT).saturating_add(WARP * warps)
            }
        }
    }

    /// Operations of a matrix product whose accumulator and right factor have these shapes.
    fn product(&self, c: &[i64], b: &[i64]) -> u64 {
        size(c).saturating_mul(b.last().map_or(1, |k| (*k).max(1) as u64))
    }
}

fn size(shape: &[i64]) -> u64 {
    shape.iter().fold(1u64, |product, e| product.saturating_mul((*e).max(0) as u64))
}
