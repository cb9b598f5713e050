//! The core program of a verified surface program, and of a text.

use std::collections::{BTreeMap, HashSet};

use tilewright_machine::WARPGROUP;

use super::{Coord, Core, Never, Pipeline, Program, Role, Slot, Symbol, Tensor, TensorKind};
use crate::barriers::Turns;
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin};
use crate::expr::{Expr, SymbolId};
use crate::ids::StmtIds;
use crate::names::{fresh_name, names_of};
use crate::parser::{CoreText, RoleText, core_text};
use crate::program::{self, Barrier, BarrierId, BarrierKind, Param, Stmt, StmtKind, SymbolKind, SyncScope};
use crate::statement::{Convert, Surface};
use crate::verified::Verified;

/// Makes the core program of a program whose `unroll for` loops are expanded ([`unroll`](crate::unroll())).
///
/// # Errors
///
/// An integer that has no value, an `unroll for`, or a part of a register tensor: internal errors.
pub fn build(v: &Verified) -> Result<Program, Diagnostic> {
    let program = v.program();
    let bodies = program.body.iter().filter(|stmt| matches!(stmt.kind, StmtKind::Role { .. }));
    let bodies: Vec<&[Stmt]> = bodies.map(|stmt| stmt.kind.body()).collect();
    let turns = Turns::of(&program.barriers, &bodies);
    let mut convert = Build { turns, ids: program.statements.clone(), ..Build::default() };
    let (mut body, mut roles, mut first) = (Vec::new(), Vec::new(), 0);
    for stmt in &v.program().body {
        convert.span = stmt.span;
        let StmtKind::Role { name, warpgroups, registers, body: inner } = &stmt.kind else {
            body.append(&mut convert.body(std::slice::from_ref(stmt))?);
            continue;
        };
        let threads = WARPGROUP * convert.number(warpgroups)?;
        let registers = registers.as_ref().map(|n| convert.number(n)).transpose()?;
        convert.role = roles.len();
        let mut of_role = convert.of_turns(Turns::begins, StmtKind::Arrive, stmt);
        of_role.append(&mut convert.body(inner)?);
        of_role.extend(convert.of_turns(Turns::ends, |id| StmtKind::Sync(SyncScope::Barrier(id)), stmt));
        let (name, inner) = (name.clone(), of_role);
        roles.push(Role { name, first, threads, registers, id: stmt.id, span: stmt.span, body: inner });
        first += threads;
    }
    convert.program(v.program(), body, roles)
}

/// Reads a core program from its text form, which `Display` writes; `docs/core-program.md` has the grammar.
///
/// The result is resolved (every name stands for a declared thing) but not checked: see [`check`](super::check()).
///
/// The law: `parse(&program.to_string())` is [`program.renumbered()`](Program::renumbered()) for every program that [`build`] and the passes
/// made.
///
/// # Errors
///
/// The first mistake of grammar; of a text without any, every mistake about names and numbers, up to twenty.
///
/// ```
/// let program = tilewright_tile::core::parse(
///     "core double(x: f32[128], y: f32[128])
///          grid(1) threads(128)
///          declare {
///              gx = global_view(x[:], (128) : (e0))
///              gy = global_view(y[:], (128) : (e0))
///              r = register_tensor(f32, [128])
///          }
///      {
///          define gx
///          define gy
///          define r
///          copy(gx, r)
///          r = 2.0 * r
///          copy(r, gy)
///      }",
/// )?;
/// assert_eq!(tilewright_tile::core::parse(&program.to_string())?, program);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
pub fn parse(source: &str) -> Result<Program, Diagnostics> {
    let CoreText { program, slots, roles } = core_text(source)?;
    let slots = slots.into_iter().map(|(id, (pipeline, side))| (id, Slot { pipeline, side })).collect();
    let mut convert = Build { written: true, slots, ids: program.statements.clone(), ..Build::default() };
    let body = convert.body(&program.body)?;
    let role = |RoleText { name, first, threads, registers, stmt }| {
        let Stmt { id, kind, span } = stmt;
        let body = convert.body(kind.body())?;
        Ok(Role { name, first, threads, registers, id, span, body })
    };
    let roles = roles.into_iter().map(role).collect::<Result<_, Diagnostic>>()?;
    Ok(convert.program(&program, body, roles)?)
}

fn tensor_kind(kind: &program::TensorKind, convert: &mut Build) -> Result<TensorKind, Diagnostic> {
    Ok(match kind {
        program::TensorKind::View { param, offsets, ends, modes, fold } => TensorKind::View {
            param: *param,
            offsets: offsets.clone(),
            ends: ends.clone(),
            modes: modes.clone(),
            fold: fold.clone(),
        },
        program::TensorKind::Shared { shape, pinned } => {
            TensorKind::Shared { shape: convert.ints(shape)?, pinned: pinned.clone() }
        }
        program::TensorKind::Tensor { shape } => TensorKind::Tensor { shape: convert.ints(shape)? },
        program::TensorKind::Register { shape, pinned } => {
            TensorKind::Register { shape: convert.ints(shape)?, pinned: pinned.clone() }
        }
        program::TensorKind::Part { .. } => {
            return Err(convert.refuse("a part of a register tensor"));
        }
    })
}

/// The conversion of what is written at a place.
#[derive(Default)]
struct Build {
    span: Origin,
    /// True if an author wrote a core program: else the surface's verifier has seen what is converted.
    written: bool,
    /// The symbols that stand for slots.
    slots: BTreeMap<SymbolId, Slot>,
    /// The turns that roles take, and the number of the role at hand.
    turns: BTreeMap<BarrierId, Turns>,
    role: usize,
    /// The ids of statements.
    ids: StmtIds,
}

impl Build {
    /// An error about something that a core program cannot hold.
    fn refuse(&self, what: &str) -> Diagnostic {
        if self.written {
            return Diagnostic::new(Code::BadValue, self.span, format!("a core program cannot hold {what}"))
                .help("shapes, stages, threads, groups and warps are literals there");
        }
        Diagnostic::internal(self.span, format_args!("the core program cannot hold {what}"))
    }

    fn ints(&mut self, list: &[Expr]) -> Result<Vec<i64>, Diagnostic> {
        list.iter().map(|e| self.int(e)).collect()
    }

    /// A number that is not negative.
    fn number(&mut self, e: &Expr) -> Result<u32, Diagnostic> {
        let value = self.int(e)?;
        u32::try_from(value).map_err(|_| self.refuse(&format!("{value} here")))
    }

    /// The named barriers, with those of turns.
    fn barriers(&self, program: &program::Program, names: &mut HashSet<String>) -> Vec<Barrier> {
        let mut rows: Vec<Barrier> =
            program.barriers.iter().map(|row| Barrier { kind: BarrierKind::Named, ..row.clone() }).collect();
        let others = self.turns.iter().flat_map(|(id, turns)| turns.roles.iter().skip(1).map(|_| *id));
        for id in others {
            let Barrier { name, span, .. } = program.barrier(id);
            rows.push(Barrier {
                name: fresh_name(names, name, "turn"),
                kind: BarrierKind::Named,
                span: *span,
            });
        }
        rows
    }

    /// A statement that a turn of another means.
    fn of_turn(&mut self, kind: super::StmtKind, of: &Stmt) -> super::Stmt {
        super::Stmt { id: self.ids.fresh(Some(of.id)), kind, span: of.span }
    }

    /// Statements of the role at hand at the barriers of turns, when it begins or ends.
    fn of_turns(
        &mut self,
        which: fn(&Turns, usize) -> Option<BarrierId>,
        kind: impl Fn(BarrierId) -> super::StmtKind,
        role: &Stmt,
    ) -> Vec<super::Stmt> {
        let barriers: Vec<BarrierId> =
            self.turns.values().filter_map(|turns| which(turns, self.role)).collect();
        barriers.into_iter().map(|barrier| self.of_turn(kind(barrier), role)).collect()
    }

    /// A turn: a wait for it, its body, and the arrival that passes it on.
    fn in_turn(
        &mut self,
        stmt: &Stmt,
        turns: BarrierId,
        body: &[Stmt],
    ) -> Result<Vec<super::Stmt>, Diagnostic> {
        let Some(turns) = self.turns.get(&turns).cloned() else { return Err(self.refuse("turns")) };
        let [Some(waits), Some(passes)] = [turns.waits(self.role), turns.passes(self.role)] else {
            return Err(self.refuse("the turn of no role"));
        };
        let mut found = vec![self.of_turn(StmtKind::Sync(SyncScope::Barrier(waits)), stmt)];
        found.append(&mut self.body(body)?);
        found.push(self.of_turn(StmtKind::Arrive(passes), stmt));
        Ok(found)
    }

    /// The program with the tables of `program` and these statements.
    fn program(
        &mut self,
        program: &program::Program,
        body: Vec<super::Stmt>,
        roles: Vec<Role>,
    ) -> Result<Program, Diagnostic> {
        // Blocks side by side may use one name for two things; here everything has its own.
        let (mut names, mut seen) = (names_of(program), HashSet::new());
        let mut distinct = |name: &String| match seen.insert(name.clone()) {
            true => name.clone(),
            false => fresh_name(&mut names, name, "2"),
        };
        let mut symbols = BTreeMap::new();
        for (i, row) in program.symbols.iter().enumerate() {
            let size = match row.kind {
                SymbolKind::Size(default) => Some(default),
                SymbolKind::Ticket => None,
                SymbolKind::Counter if !self.slots.contains_key(&SymbolId(i as u32)) => None,
                // Slots are no symbols; constants, names of integers and counters of expanded loops have their values.
                SymbolKind::Counter
                | SymbolKind::Constant(_)
                | SymbolKind::Unrolled
                | SymbolKind::UnrolledBy(_)
                | SymbolKind::Let => {
                    continue;
                }
            };
            symbols.insert(SymbolId(i as u32), Symbol { name: distinct(&row.name), size, span: row.span });
        }
        let mut tensors = Vec::new();
        for row in &program.tensors {
            self.span = row.span;
            let kind = tensor_kind(&row.kind, self)?;
            let (name, unnamed) = (distinct(&row.name), row.unnamed.clone());
            tensors.push(Tensor { name, dtype: row.dtype, kind, span: row.span, unnamed });
        }
        let mut pipelines = Vec::new();
        for row in &program.pipelines {
            self.span = row.span;
            let (name, stages) = (row.name.clone(), self.number(&row.stages)?);
            pipelines.push(Pipeline { name, stages, tensors: row.tensors.clone(), span: row.span });
        }
        self.span = program.threads_span;
        let threads = self.number(&program.threads)?;
        self.span = program.cluster_span;
        let mut result = Program {
            name: program.name.clone(),
            symbols,
            params: program.params.clone(),
            strides: program.params.iter().map(Param::strides).collect(),
            outputs: Vec::new(),
            inputs: Vec::new(),
            elements: Vec::new(),
            grid: program.grid.clone(),
            grid_span: program.grid_span,
            threads,
            threads_span: program.threads_span,
            resident: self.number(&program.resident)?,
            cluster: program.cluster.iter().map(|extent| self.number(extent)).collect::<Result<_, _>>()?,
            cluster_span: program.cluster_span,
            tensors,
            pipelines,
            barriers: self.barriers(program, &mut names),
            statements: self.ids.clone(),
            body,
            roles,
        };
        result.list_accesses();
        Ok(result)
    }
}

impl Convert<Surface, Core> for Build {
    type Error = Diagnostic;

    fn int(&mut self, e: &Expr) -> Result<i64, Diagnostic> {
        e.as_int().ok_or_else(|| self.refuse("an integer that is no literal"))
    }

    fn index(&mut self, e: &Expr) -> Result<Coord, Diagnostic> {
        Ok(match e {
            Expr::Symbol(id) if self.slots.contains_key(id) => Coord::Slot(self.slots[id]),
            e => Coord::Expr(e.clone()),
        })
    }

    fn role(&mut self, _: &String) -> Result<Never, Diagnostic> {
        Err(self.refuse("a role within another"))
    }

    fn body(&mut self, body: &[Stmt]) -> Result<Vec<super::Stmt>, Diagnostic> {
        let mut found = Vec::new();
        for stmt in body {
            self.span = stmt.span;
            match &stmt.kind {
                // The values of names stand where they were used.
                StmtKind::Let { .. } => {}
                StmtKind::InTurn { turns, body } => found.append(&mut self.in_turn(stmt, *turns, body)?),
                kind => found.push(super::Stmt { id: stmt.id, kind: self.kind(kind)?, span: stmt.span }),
            }
            if let StmtKind::Barrier(id) = stmt.kind
                && let Some(turns) = self.turns.get(&id).cloned()
            {
                let others = turns.roles.iter().skip(1);
                found.extend(others.map(|(_, other)| self.of_turn(StmtKind::Barrier(*other), stmt)));
            }
        }
        Ok(found)
    }
}
