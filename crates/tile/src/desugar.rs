//! Replaces statements that no single instruction family does by those that do.
//!
//! Needs: a verified program, without parts of register tensors ([`crate::unroll()`]). Keeps: its meaning, and every id. Afterwards there is no `rearrange` and no copy from
//! shared to global memory.

use std::collections::{BTreeSet, HashSet};

use crate::expr::Expr;
use crate::program::{Program, Stmt, StmtKind, Tensor, TensorId, TensorKind, TensorRef};
use crate::verified::Verified;

/// The program without rearrangements and without copies from shared to global memory.
///
/// `dst = rearrange(src)` becomes a trip through a new shared tensor: definition, `syncthreads`, `copy(src, tmp)`,
/// `syncthreads`, `copy(tmp, dst)`. The first barrier keeps a later round of a loop from overwriting what threads still
/// read. `copy(s, g)` from shared to global becomes two copies through a new register tensor.
pub fn desugar(v: &Verified) -> Verified {
    run(v, Which { copies: true, rearrangements: None })
}

/// The program without the rearrangements that are statements `which`, in the order of [`Verified::visit`], replaced as
/// [`desugar`] does; copies from global to shared memory among them go through a new register tensor, at once. All else stays.
pub fn desugar_rearrangements(v: &Verified, which: &BTreeSet<usize>) -> Verified {
    run(v, Which { copies: false, rearrangements: Some(which) })
}

/// The program without copies from shared to global memory, replaced as [`desugar`] does. Rearrangements stay.
pub fn desugar_copies(v: &Verified) -> Verified {
    run(v, Which { copies: true, rearrangements: Some(&BTreeSet::new()) })
}

/// Every name of a program.
pub(crate) fn names_of(program: &Program) -> HashSet<String> {
    let symbols = program.symbols.iter().map(|s| &s.name);
    let params = program.params.iter().map(|p| &p.name);
    let pipelines = program.pipelines.iter().map(|p| &p.name);
    let roles = program.body.iter().filter_map(|stmt| match &stmt.kind {
        StmtKind::Role { name, .. } => Some(name),
        _ => None,
    });
    let tensors = program.tensors.iter().map(|t| &t.name);
    symbols.chain(params).chain(tensors).chain(pipelines).chain(roles).cloned().collect()
}

/// A name that nothing has yet, made of another and a suffix.
pub(crate) fn fresh_name(names: &mut HashSet<String>, of: &str, suffix: &str) -> String {
    // The base is cut so that the name stays a legal one.
    let base: String = of.chars().take(100).collect();
    let name = (0..)
        .map(|i: u64| if i == 0 { format!("{base}_{suffix}") } else { format!("{base}_{suffix}_{i}") })
        .find(|name| !names.contains(name))
        .unwrap_or_default();
    names.insert(name.clone());
    name
}

/// What to replace.
struct Which<'a> {
    copies: bool,
    /// All, or those that are statements of these numbers.
    rearrangements: Option<&'a BTreeSet<usize>>,
}

fn run(v: &Verified, which: Which<'_>) -> Verified {
    let mut result = v.clone();
    let program = v.program();
    let names = names_of(program);
    let mut pass =
        Desugar { v, which, next: 0, tensors: program.tensors.clone(), names, defined: BTreeSet::new() };
    result.program.body = pass.block(&program.body);
    result.program.tensors = pass.tensors;
    result
}

struct Desugar<'a> {
    v: &'a Verified,
    which: Which<'a>,
    /// The number of the next statement.
    next: usize,
    tensors: Vec<Tensor>,
    names: HashSet<String>,
    defined: BTreeSet<TensorId>,
}

impl Desugar<'_> {
    /// A new tensor named after another.
    fn fresh(&mut self, like: TensorId, suffix: &str, kind: TensorKind) -> TensorId {
        let of = &self.tensors[like.0 as usize];
        let (dtype, span) = (of.dtype, of.span);
        let name = fresh_name(&mut self.names, &of.name, suffix);
        let id = TensorId(self.tensors.len() as u32);
        self.tensors.push(Tensor { name, dtype, kind, span });
        id
    }

    fn block(&mut self, body: &[Stmt]) -> Vec<Stmt> {
        let mut out = Vec::new();
        for stmt in body {
            let mut push = |kind| out.push(Stmt { kind, span: stmt.span });
            let number = self.next;
            self.next += 1;
            let rearrange = self.which.rearrangements.is_none_or(|which| which.contains(&number));
            match &stmt.kind {
                StmtKind::Rearrange { dst, src } if rearrange => {
                    let shape = self.v.shape(*src).into_iter().map(Expr::Int).collect();
                    let tmp = self.fresh(*src, "staged", TensorKind::Shared { shape, pinned: None });
                    if self.defined.insert(*dst) {
                        push(StmtKind::Define(*dst));
                    }
                    push(StmtKind::Define(tmp));
                    push(StmtKind::Sync);
                    push(StmtKind::Copy { src: whole(*src, stmt), dst: whole(tmp, stmt) });
                    push(StmtKind::Sync);
                    push(StmtKind::Copy { src: whole(tmp, stmt), dst: whole(*dst, stmt) });
                }
                // Threads that store do not add: such a copy stays what it is.
                StmtKind::CopyAsync { how, .. } if how.add => push(stmt.kind.clone()),
                StmtKind::Copy { src, dst } | StmtKind::CopyAsync { src, dst, .. }
                    if self.which.copies
                        && stmt.kind.copied().is_some()
                        && self.is_shared(src)
                        && self.is_view(dst)
                        || self.which.rearrangements.is_some_and(|which| which.contains(&number))
                            && self.is_view(src)
                            && self.is_shared(dst) =>
                {
                    let shape = self.v.tile(src).shape.into_iter().map(Expr::Int).collect();
                    let tmp = self.fresh(src.tensor, "loaded", TensorKind::Register { shape, pinned: None });
                    push(StmtKind::Define(tmp));
                    push(StmtKind::Copy { src: src.clone(), dst: whole(tmp, stmt) });
                    push(StmtKind::Copy { src: whole(tmp, stmt), dst: dst.clone() });
                }
                other => {
                    self.defined.extend(other.assigned());
                    let mut kind = other.clone();
                    if let Some(body) = kind.body_mut() {
                        *body = self.block(other.body());
                    }
                    push(kind);
                }
            }
        }
        out
    }

    fn is_shared(&self, r: &TensorRef) -> bool {
        matches!(self.tensors[r.tensor.0 as usize].kind, TensorKind::Shared { .. })
    }

    fn is_view(&self, r: &TensorRef) -> bool {
        matches!(self.tensors[r.tensor.0 as usize].kind, TensorKind::View { .. })
    }
}

fn whole(tensor: TensorId, stmt: &Stmt) -> TensorRef {
    TensorRef { span: stmt.span, ..TensorRef::whole(tensor) }
}
