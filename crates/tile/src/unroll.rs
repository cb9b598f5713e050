//! Expands `unroll for` and the branches whose condition is then known, splits loops in which a branch on the counter has products, and
//! makes a tensor of every part of a register tensor.
//!
//! Needs: a verified program. Keeps: its meaning. Afterwards no loop is an `unroll for`, no condition a literal, and no operand a part of a
//! tensor ([`TensorKind::Part`]); ids of tensors are new ones, without those that nothing uses.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::breaks;
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin};
use crate::expr::{Expr, IntOp, SymbolId};
use crate::ids::{StmtId, StmtIds};
use crate::names::{fresh_name, names_of};
use crate::program::{
    OperandMut, Pipeline, Stmt, StmtKind, Symbol, SymbolKind, Tensor, TensorId, TensorKind, Use,
};
use crate::split::{self, Fact, Threshold};
use crate::verified::Verified;
use crate::verify::verify;

/// The most statements that a program with unrolled loops may expand to.
pub const MAX_STATEMENTS: usize = 4096;

/// The program with every `unroll for` replaced by its rounds, the counter by its value.
///
/// A tensor that is defined in the body becomes one a round, and so does the counter of a loop in it. A register tensor that is
/// indexed becomes a tensor for each value of its indices: `ra[:, :, 1]` is `ra_1`. All else stays.
///
/// # Errors
///
/// More than [`MAX_STATEMENTS`] statements; an index that is outside its mode in some round, and whatever else a round
/// violates of the rules of [`verify`].
///
/// ```
/// use tilewright_tile::{Constants, parse, unroll, verify};
/// let source = "kernel k(x: f32[4, 64]) grid(1) threads(32) {
///     gx = global_view(x, (4, 64) : (e0, e1))
///     r = register_tensor(f32, [64, 2])
///     unroll for i in 0..4 {
///         copy(gx[i, :], r[:, i % 2])
///     }
/// }";
/// let plain = unroll(&verify(&parse(source)?, &Constants::new())?)?;
/// assert!(plain.program().to_string().contains("copy(gx[3, :], r_1)"));
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
pub fn unroll(v: &Verified) -> Result<Verified, Diagnostics> {
    let program = v.program();
    let unrolled =
        program.symbols.iter().any(|s| matches!(s.kind, SymbolKind::Unrolled | SymbolKind::UnrolledBy(_)));
    let indexed: BTreeSet<TensorId> = program
        .tensors
        .iter()
        .filter_map(|t| match t.kind {
            TensorKind::Part { of, .. } => Some(of),
            _ => None,
        })
        .collect();
    let mut decided = false;
    v.visit(&mut |stmt, _| match &stmt.kind {
        StmtKind::If { condition, .. } => decided |= condition.as_int().is_some() || breaks::in_branch(stmt),
        kind => decided |= !splits(kind, &Expr::clone).is_empty(),
    });
    if !unrolled && indexed.is_empty() && !decided {
        return Ok(v.clone());
    }
    let mut pass = Unroll {
        v,
        indexed,
        ids: program.statements.clone(),
        symbols: program.symbols.clone(),
        tensors: Vec::new(),
        pipelines: program.pipelines.clone(),
        names: names_of(program),
        values: BTreeMap::new(),
        now: BTreeMap::new(),
        stages: BTreeMap::new(),
        rounds: Vec::new(),
        facts: Vec::new(),
        statements: 0,
    };
    let body = pass.block(&program.body)?;
    let mut expanded = program.clone();
    (expanded.body, expanded.symbols, expanded.tensors) = (body, pass.symbols, pass.tensors);
    (expanded.pipelines, expanded.statements) = (pass.pipelines, pass.ids);
    // What holds for the loop need not hold for each of its rounds. One message a place is enough.
    verify(&expanded, v.constants()).map_err(|Diagnostics(all)| {
        let mut seen = BTreeSet::new();
        Diagnostics(all.into_iter().filter(|d| seen.insert((d.span.key(), d.code.name()))).collect())
    })
}

/// The conditions by which a loop is split.
fn splits(kind: &StmtKind, seen: &dyn Fn(&Expr) -> Expr) -> Vec<Threshold> {
    match kind {
        StmtKind::For { counter, condition: None, body, .. } if !kind.may_break() => {
            split::thresholds(*counter, body, seen)
        }
        _ => Vec::new(),
    }
}

struct Unroll<'a> {
    v: &'a Verified,
    /// Register tensors of which statements name parts.
    indexed: BTreeSet<TensorId>,
    ids: StmtIds,
    symbols: Vec<Symbol>,
    /// The new table.
    tensors: Vec<Tensor>,
    /// Each with its new tensors once its definition has been passed.
    pipelines: Vec<Pipeline>,
    names: HashSet<String>,
    /// The replacement of a counter: its value, or a counter of its own.
    values: BTreeMap<SymbolId, Expr>,
    /// The new tensor of each tensor that is defined.
    now: BTreeMap<TensorId, TensorId>,
    /// The new tensors of each indexed tensor that is defined, by the values of its indices.
    stages: BTreeMap<TensorId, BTreeMap<Vec<i64>, TensorId>>,
    /// The rounds that are being expanded, outermost first.
    rounds: Vec<i64>,
    /// Facts about the counters of the parts of loops around.
    facts: Vec<Fact>,
    statements: usize,
}

impl Unroll<'_> {
    fn block(&mut self, body: &[Stmt]) -> Result<Vec<Stmt>, Diagnostic> {
        let mut out = Vec::new();
        for stmt in body {
            self.statement(stmt, &mut out)?;
        }
        Ok(out)
    }

    /// Counts a statement of the result.
    fn count(&mut self, span: Origin) -> Result<(), Diagnostic> {
        self.statements += 1;
        if self.statements <= MAX_STATEMENTS {
            return Ok(());
        }
        let message =
            format!("the program has more than {MAX_STATEMENTS} statements once its loops are unrolled");
        Err(Diagnostic::new(Code::BadValue, span, message)
            .help("unroll fewer rounds, or write `for` without `unroll`"))
    }

    fn statement(&mut self, stmt: &Stmt, out: &mut Vec<Stmt>) -> Result<(), Diagnostic> {
        let span = stmt.span;
        let program = self.v.program();
        if let StmtKind::For { counter, lo, hi, body, .. } = &stmt.kind
            && program.symbol(*counter).kind == SymbolKind::Unrolled
        {
            return self.rounds(*counter, (lo, hi), body, span, out);
        }
        if let StmtKind::For { counter, lo, hi, body, .. } = &stmt.kind
            && let SymbolKind::UnrolledBy(factor) = &program.symbol(*counter).kind
        {
            let factor = factor.as_int().unwrap_or(1);
            return self.by_factor(stmt, (*counter, factor), [lo, hi], body, out);
        }
        let thresholds = splits(&stmt.kind, &|e| self.expr(e));
        if let StmtKind::For { counter, lo, hi, body, .. } = &stmt.kind
            && !thresholds.is_empty()
        {
            return self.split(
                stmt,
                *counter,
                (split::parts([self.expr(lo), self.expr(hi)], &thresholds), body),
                out,
            );
        }
        // The verifier has put the value where the name was used.
        if matches!(stmt.kind, StmtKind::Let { .. }) {
            return Ok(());
        }
        if let StmtKind::If { condition, body, .. } = &stmt.kind
            && let Some(holds) = self.resolved(self.expr(condition)).as_int()
        {
            return self.decided(holds != 0, body, out);
        }
        if let StmtKind::Pipeline(id) = &stmt.kind {
            let tensors = program.pipeline(*id).tensors.iter();
            let tensors = tensors.map(|t| self.operand(*t, span)).collect::<Result<_, _>>()?;
            self.pipelines[id.0 as usize].tensors = tensors;
        }
        if let StmtKind::Fill { dst, value } = &stmt.kind
            && let Some(parts) = self.stages.get(dst).cloned()
        {
            // All of an indexed tensor: each of its parts.
            for dst in parts.into_values() {
                self.count(span)?;
                let kind = StmtKind::Fill { dst, value: *value };
                out.push(Stmt { id: self.ids.fresh(Some(stmt.id)), kind, span });
            }
            return Ok(());
        }
        for id in stmt.kind.assigned() {
            if self.indexed.contains(&id) {
                self.define_stages(id, stmt, out)?;
                return Ok(());
            }
            if !self.now.contains_key(&id) {
                let new = self.tensor(id, &[], self.v.program().tensor(id).kind.clone());
                self.now.insert(id, new);
            }
        }
        self.count(span)?;
        let mut kind = self.kind(&stmt.kind)?;
        if let StmtKind::If { condition, .. } = &mut kind {
            *condition = self.resolved(condition.clone());
        }
        if let StmtKind::For { body, .. } = &mut kind {
            *body = breaks::flat(std::mem::take(body), &mut self.ids);
        }
        out.push(Stmt { id: self.id(stmt.id), kind, span });
        Ok(())
    }

    /// The statements of a branch that is taken, or not, whatever the sizes.
    fn decided(&mut self, taken: bool, body: &[Stmt], out: &mut Vec<Stmt>) -> Result<(), Diagnostic> {
        if taken {
            let (now, stages) = (self.now.clone(), self.stages.clone());
            let inner = self.block(body);
            (self.now, self.stages) = (now, stages);
            out.extend(inner?);
        }
        Ok(())
    }

    /// The id of a statement of the result: the statement's own, or one for the iteration.
    fn id(&mut self, id: StmtId) -> StmtId {
        if self.rounds.is_empty() { id } else { self.ids.fresh(Some(id)) }
    }

    /// The rounds of an unrolled loop.
    fn rounds(
        &mut self,
        counter: SymbolId,
        (lo, hi): (&Expr, &Expr),
        body: &[Stmt],
        span: Origin,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diagnostic> {
        let bound = |e: Expr| {
            e.as_int().ok_or_else(|| {
                let message = "a bound of the unrolled loop has no value: it divides by zero or overflows";
                Diagnostic::new(Code::BadValue, span, message).help("choose other constants")
            })
        };
        let (lo, hi) = (bound(self.expr(lo))?, bound(self.expr(hi))?);
        for round in lo..hi {
            // A round counts too: its body may be empty.
            self.count(span)?;
            out.extend(self.iteration((counter, Expr::Int(round)), round, body)?);
        }
        self.values.remove(&counter);
        Ok(())
    }

    /// The loop of so many iterations at a time, and the loop of those that are left over.
    fn by_factor(
        &mut self,
        stmt: &Stmt,
        (counter, factor): (SymbolId, i64),
        [lo, hi]: [&Expr; 2],
        body: &[Stmt],
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diagnostic> {
        let (lo, hi) = (self.expr(lo), self.expr(hi));
        let count = (hi.clone() - &lo).max(0);
        let whole = count.clone() / factor;
        let group = self.fresh_counter(counter, &factor.to_string());
        let at = |round: i64| lo.clone() + Expr::Symbol(group) * factor + round;
        let mut inner = Vec::new();
        for round in 0..factor {
            self.count(stmt.span)?;
            inner.extend(self.iteration((counter, at(round)), round, body)?);
        }
        let (id, span) = (self.id(stmt.id), stmt.span);
        let (lo_of_groups, hi_of_groups) = (Expr::Int(0), whole.clone());
        let kind = StmtKind::For {
            counter: group,
            lo: lo_of_groups,
            hi: hi_of_groups,
            condition: None,
            body: inner,
        };
        out.push(Stmt { id, kind, span });
        let first = lo + whole * factor;
        if first != hi {
            let left = self.fresh_counter(counter, "left");
            let inner = self.iteration((counter, Expr::Symbol(left)), factor, body)?;
            let id = self.ids.fresh(Some(stmt.id));
            let kind = StmtKind::For { counter: left, lo: first, hi, condition: None, body: inner };
            out.push(Stmt { id, kind, span });
        }
        self.values.remove(&counter);
        Ok(())
    }

    /// The loops over the parts of a loop's iterations, in each of which the conditions that split it are known.
    fn split(
        &mut self,
        stmt: &Stmt,
        counter: SymbolId,
        (parts, body): (Vec<split::Part>, &[Stmt]),
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diagnostic> {
        for (number, split::Part { bounds: [lo, hi], known }) in parts.into_iter().enumerate() {
            self.count(stmt.span)?;
            let part = self.fresh_counter(counter, &number.to_string());
            let facts = self.facts.len();
            self.facts.extend(known.into_iter().map(|known| Fact::new(part, known)));
            let inner = self.iteration((counter, Expr::Symbol(part)), number as i64, body);
            self.facts.truncate(facts);
            let kind = StmtKind::For { counter: part, lo, hi, condition: None, body: inner? };
            out.push(Stmt { id: self.ids.fresh(Some(stmt.id)), kind, span: stmt.span });
        }
        self.values.remove(&counter);
        Ok(())
    }

    /// A condition, as far as what is known of counters does not decide it.
    fn resolved(&self, condition: Expr) -> Expr {
        if let Some(holds) = self.facts.iter().find_map(|fact| fact.decides(&condition)) {
            return Expr::Int(i64::from(holds));
        }
        match condition {
            Expr::Binary(op @ (IntOp::And | IntOp::Or), a, b) => {
                Expr::binary(op, self.resolved(*a), self.resolved(*b))
            }
            other => other,
        }
    }

    /// The statements of an iteration, with this value of the counter.
    fn iteration(
        &mut self,
        (counter, value): (SymbolId, Expr),
        round: i64,
        body: &[Stmt],
    ) -> Result<Vec<Stmt>, Diagnostic> {
        self.values.insert(counter, value);
        self.rounds.push(round);
        let (now, stages) = (self.now.clone(), self.stages.clone());
        let expanded = self.block(body);
        // What the body defined is gone; the next round makes its own.
        (self.now, self.stages) = (now, stages);
        self.rounds.pop();
        expanded
    }

    /// A counter of a loop that is made of another's.
    fn fresh_counter(&mut self, like: SymbolId, suffix: &str) -> SymbolId {
        let row = self.v.program().symbol(like);
        let name = fresh_name(&mut self.names, &row.name, suffix);
        self.symbols.push(Symbol { name, kind: SymbolKind::Counter, span: row.span });
        SymbolId(self.symbols.len() as u32 - 1)
    }

    /// The counter of a loop: within unrolled rounds, one of the round.
    fn counter(&mut self, counter: SymbolId) -> SymbolId {
        if self.rounds.is_empty() {
            return counter;
        }
        let id = SymbolId(self.symbols.len() as u32);
        let row = self.v.program().symbol(counter);
        let name = fresh_name(&mut self.names, &row.name, &suffix(&self.rounds));
        self.symbols.push(Symbol { name, ..row.clone() });
        self.values.insert(counter, Expr::Symbol(id));
        id
    }

    /// A new tensor for one of the program: under its own name outside of unrolled rounds.
    fn tensor(&mut self, id: TensorId, stage: &[i64], mut kind: TensorKind) -> TensorId {
        let row = self.v.program().tensor(id);
        let numbers: Vec<i64> = self.rounds.iter().chain(stage).copied().collect();
        let name = if numbers.is_empty() {
            row.name.clone()
        } else {
            fresh_name(&mut self.names, &row.name, &suffix(&numbers))
        };
        kind.exprs_mut(&mut |e| *e = self.expr(e));
        let unnamed = row.unnamed.clone();
        self.tensors.push(Tensor { name, dtype: row.dtype, kind, span: row.span, unnamed });
        TensorId((self.tensors.len() - 1) as u32)
    }

    /// Defines the tensors that the parts of a tensor become.
    fn define_stages(&mut self, id: TensorId, stmt: &Stmt, out: &mut Vec<Stmt>) -> Result<(), Diagnostic> {
        let span = stmt.span;
        let program = self.v.program();
        // All uses index the same modes.
        let part = program.tensors.iter().find_map(|t| match &t.kind {
            TensorKind::Part { of, index, shape } if *of == id => Some((index, shape)),
            _ => None,
        });
        let Some((index, shape)) = part else { return Ok(()) };
        let extents: Vec<i64> = self
            .v
            .shape(id)
            .into_iter()
            .zip(index)
            .filter_map(|(extent, entry)| entry.as_ref().map(|_| extent))
            .collect();
        let count: i64 = extents.iter().product();
        let mut stages = BTreeMap::new();
        for n in 0..count {
            self.count(span)?;
            let mut rest = n;
            let at: Vec<i64> = extents
                .iter()
                .map(|extent| {
                    let digit = rest % extent;
                    rest /= extent;
                    digit
                })
                .collect();
            let new = self.tensor(id, &at, TensorKind::Register { shape: shape.clone(), pinned: None });
            stages.insert(at, new);
            out.push(Stmt { id: self.ids.fresh(Some(stmt.id)), kind: StmtKind::Define(new), span });
        }
        self.stages.insert(id, stages);
        Ok(())
    }

    /// The new tensor that an operand names.
    fn operand(&self, id: TensorId, span: Origin) -> Result<TensorId, Diagnostic> {
        let row = self.v.program().tensor(id);
        let TensorKind::Part { of, index, .. } = &row.kind else {
            let missing =
                || Diagnostic::new(Code::UnknownName, span, format!("`{}` is not defined here", row.name));
            return self.now.get(&id).copied().ok_or_else(missing);
        };
        let span = row.span.or(span);
        let extents = self.v.shape(*of);
        let mut at = Vec::new();
        for (mode, entry) in index.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let name = &self.v.program().tensor(*of).name;
            let Some(value) = self.expr(entry).as_int() else {
                let message = format!("an index of `{name}` has no value: it divides by zero or overflows");
                return Err(Diagnostic::new(Code::BadValue, span, message).help("use smaller numbers"));
            };
            if !(0..extents[mode]).contains(&value) {
                let message = format!(
                    "the index {value} is outside mode {mode} of `{name}`, which has extent {}",
                    extents[mode]
                );
                return Err(Diagnostic::new(Code::BadValue, span, message)
                    .help("an unrolled loop reaches it: count modulo the extent"));
            }
            at.push(value);
        }
        let stage = self.stages.get(of).and_then(|stages| stages.get(&at)).copied();
        stage.ok_or_else(|| {
            Diagnostic::new(Code::UnknownName, span, format!("`{}` is not defined here", row.name))
        })
    }

    fn expr(&self, e: &Expr) -> Expr {
        match e {
            Expr::Symbol(id) => self.values.get(id).unwrap_or(e).clone(),
            Expr::Binary(op, a, b) => Expr::binary(*op, self.expr(a), self.expr(b)),
            Expr::Element(param, index) => {
                Expr::Element(*param, index.iter().map(|e| self.expr(e)).collect())
            }
            Expr::Int(_) | Expr::Block(_) | Expr::Scalar(_) => e.clone(),
        }
    }

    /// A statement with its tensors and counters replaced.
    fn kind(&mut self, kind: &StmtKind) -> Result<StmtKind, Diagnostic> {
        let mut kind = kind.clone();
        for operand in kind.operands_mut() {
            match operand {
                OperandMut::Tensor(_, id) => *id = self.operand(*id, Origin::Unknown)?,
                OperandMut::Reference(_, r) => {
                    r.tensor = self.operand(r.tensor, r.span)?;
                    if let Some(indexed) = &mut r.indexed {
                        indexed.by = self.operand(indexed.by, r.span)?;
                    }
                    r.index.iter_mut().flatten().for_each(|e| *e = self.expr(e));
                }
                OperandMut::Constant(e) | OperandMut::Expr(e) => *e = self.expr(e),
                OperandMut::Counter(Use::Define, id) => *id = self.counter(*id),
                // The loop before has given its counters their names.
                OperandMut::Counter(_, id) => {
                    if let Some(Expr::Symbol(of_round)) = self.values.get(id) {
                        *id = *of_round;
                    }
                }
                OperandMut::Body(body) => *body = self.block(body)?,
                OperandMut::Pipeline(..)
                | OperandMut::Barrier(..)
                | OperandMut::Scalar(_)
                | OperandMut::Param(..) => {}
            }
        }
        Ok(kind)
    }
}

/// `1_0` of rounds 1 and 0.
fn suffix(numbers: &[i64]) -> String {
    let list: Vec<String> = numbers.iter().map(|n| n.to_string().replace('-', "m")).collect();
    list.join("_")
}
