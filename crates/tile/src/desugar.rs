//! Replaces statements that no single instruction family does by those that do.
//!
//! Needs: a verified program, without parts of register tensors ([`crate::unroll()`]). Keeps: its meaning, and every id. Afterwards there is no `rearrange` and no copy from
//! shared to global memory.

use std::collections::{BTreeSet, HashSet};

use crate::expr::Expr;
use crate::ids::{StmtId, StmtIds};
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

/// The program without the rearrangements among the statements `which`, replaced as [`desugar`] does; copies from global to shared memory among them go through a new register tensor, at once. All else stays.
pub fn desugar_rearrangements(v: &Verified, which: &BTreeSet<StmtId>) -> Verified {
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

/// The statements to replace.
struct Which<'a> {
    copies: bool,
    /// All, or those that are among these statements.
    rearrangements: Option<&'a BTreeSet<StmtId>>,
}

fn run(v: &Verified, which: Which<'_>) -> Verified {
    let mut result = v.clone();
    let program = v.program();
    let names = names_of(program);
    let mut pass = Desugar {
        v,
        which,
        ids: program.statements.clone(),
        tensors: program.tensors.clone(),
        names,
        defined: BTreeSet::new(),
    };
    result.program.body = pass.block(&program.body);
    (result.program.tensors, result.program.statements) = (pass.tensors, pass.ids);
    result
}

struct Desugar<'a> {
    v: &'a Verified,
    which: Which<'a>,
    ids: StmtIds,
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
            match self.replaced(stmt) {
                Some(kinds) => out.extend(kinds.into_iter().map(|kind| Stmt {
                    id: self.ids.fresh(Some(stmt.id)),
                    kind,
                    span: stmt.span,
                })),
                None => {
                    self.defined.extend(stmt.kind.assigned());
                    let mut stmt = stmt.clone();
                    if let Some(body) = stmt.kind.body_mut() {
                        *body = self.block(&std::mem::take(body));
                    }
                    out.push(stmt);
                }
            }
        }
        out
    }

    /// The statements that a statement is replaced by; `None` if it stays.
    fn replaced(&mut self, stmt: &Stmt) -> Option<Vec<StmtKind>> {
        let listed = self.which.rearrangements.is_some_and(|which| which.contains(&stmt.id));
        match &stmt.kind {
            StmtKind::Rearrange { dst, src } if listed || self.which.rearrangements.is_none() => {
                let shape = self.v.shape(*src).into_iter().map(Expr::Int).collect();
                let tmp = self.fresh(*src, "staged", TensorKind::Shared { shape, pinned: None });
                let define = self.defined.insert(*dst).then_some(StmtKind::Define(*dst));
                let trip = [
                    StmtKind::Define(tmp),
                    StmtKind::Sync,
                    StmtKind::Copy { src: whole(*src, stmt), dst: whole(tmp, stmt) },
                    StmtKind::Sync,
                    StmtKind::Copy { src: whole(tmp, stmt), dst: whole(*dst, stmt) },
                ];
                Some(define.into_iter().chain(trip).collect())
            }
            // Threads that store do not add: such a copy stays what it is.
            StmtKind::CopyAsync { how, .. } if how.add => None,
            StmtKind::Copy { src, dst } | StmtKind::CopyAsync { src, dst, .. }
                if self.which.copies
                    && stmt.kind.copied().is_some()
                    && self.is_shared(src)
                    && self.is_view(dst)
                    || listed && self.is_view(src) && self.is_shared(dst) =>
            {
                let shape = self.v.tile(src).shape.into_iter().map(Expr::Int).collect();
                let tmp = self.fresh(src.tensor, "loaded", TensorKind::Register { shape, pinned: None });
                Some(vec![
                    StmtKind::Define(tmp),
                    StmtKind::Copy { src: src.clone(), dst: whole(tmp, stmt) },
                    StmtKind::Copy { src: whole(tmp, stmt), dst: dst.clone() },
                ])
            }
            _ => None,
        }
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
