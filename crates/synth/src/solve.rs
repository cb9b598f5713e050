//! Thread-value layouts of register tensors: anchors and propagation (Hexcute, Algorithm 1).
//!
//! Tensors that registers connect (matrix products, casts, elementwise statements, register copies) form components,
//! separated by memory. Pinned layouts come first, then matrix products, then, in a component that has neither, the
//! copy that moves the most data. From there layouts follow by equality, until a statement finds two that clash.

use tilewright_machine::{Arch, Memory, mmas};
use tilewright_tile::{
    Code, Diagnostic, ElemExpr, ShapeOp, Stmt, StmtKind, TensorId, TensorKind, TileRef, Verified,
};

use crate::access::{coalesced, widest_vector};
use crate::facts::Facts;
use crate::gemm;
use crate::plan::{GemmPlan, TvLayout};
use crate::shapes;

/// Where a tensor's layout comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Index of the statement that fixed it; `None` for a pinned layout.
    pub statement: Option<usize>,
    /// In words.
    pub why: String,
}

/// The layouts of all register tensors.
pub struct Registers {
    /// One entry a tensor; `None` for other memories.
    pub layouts: Vec<Option<(TvLayout, Origin)>>,
    /// One entry a statement.
    pub gemms: Vec<Option<GemmPlan>>,
}

/// Every statement, in the order of [`Verified::visit`], with the depth of loops around it.
pub fn statements(verified: &Verified) -> Vec<(Stmt, usize)> {
    let mut all = Vec::new();
    verified.visit(&mut |stmt, depth| {
        // Bodies are visited on their own; without them a loop is small to copy.
        let stmt = match &stmt.kind {
            StmtKind::For { counter, lo, hi, .. } => Stmt {
                kind: StmtKind::For { counter: *counter, lo: lo.clone(), hi: hi.clone(), body: Vec::new() },
                span: stmt.span,
            },
            _ => stmt.clone(),
        };
        all.push((stmt, depth));
    });
    all
}

/// The register tensors that a statement asks to be distributed alike.
fn alike(verified: &Verified, stmt: &Stmt) -> Vec<TensorId> {
    match &stmt.kind {
        StmtKind::Cast { dst, src } => vec![*dst, *src],
        StmtKind::Elementwise { dst, expr } => {
            let mut all = vec![*dst];
            all.extend(ElemExpr::tensors(expr));
            all.dedup();
            all
        }
        StmtKind::Copy { src, dst } => {
            let register = |t: TensorId| verified.program().tensor(t).memory() == Memory::Register;
            if register(src.tensor) && register(dst.tensor) {
                vec![src.tensor, dst.tensor]
            } else {
                Vec::new()
            }
        }
        StmtKind::Gather { dst, index, .. } => vec![*dst, *index],
        StmtKind::Join { a, b, .. } => vec![*a, *b],
        StmtKind::Split { lo, hi, .. } => vec![*lo, *hi],
        _ => Vec::new(),
    }
}

struct Solver<'a> {
    verified: &'a Verified,
    facts: &'a Facts<'a>,
    arch: Arch,
    statements: &'a [(Stmt, usize)],
    layouts: Vec<Option<(TvLayout, Origin)>>,
    gemms: Vec<Option<GemmPlan>>,
}

/// Solves the thread-value constraints of the whole program.
pub fn registers(
    verified: &Verified,
    facts: &Facts<'_>,
    arch: Arch,
    statements: &[(Stmt, usize)],
) -> Result<Registers, Diagnostic> {
    let mut solver = Solver {
        verified,
        facts,
        arch,
        statements,
        layouts: vec![None; verified.program().tensors.len()],
        gemms: vec![None; statements.len()],
    };
    solver.pinned()?;
    for (i, (stmt, _)) in statements.iter().enumerate() {
        if matches!(stmt.kind, StmtKind::Gemm { .. }) {
            solver.gemm(i)?;
        }
    }
    solver.propagate()?;
    for i in 0..statements.len() {
        solver.gather(i)?;
    }
    while let Some((i, tensor, tile)) = solver.next_anchor() {
        let threads = i64::from(verified.threads());
        let (n, _) = widest_vector(facts, &tile, threads, 16);
        let tv = coalesced(&tile, threads, n).ok_or_else(|| solver.too_large(tensor))?;
        // A transposed use names the tile in the statement's order; register tensors are never transposed themselves.
        let why = match tile.memory {
            Memory::Global => {
                format!(
                    "coalesces the global accesses of `{}`: {n} contiguous elements a thread",
                    solver.text(i)
                )
            }
            _ => format!("{n} elements of a row a thread, for `{}`", solver.text(i)),
        };
        solver.set(tensor, tv, Origin { statement: Some(i), why })?;
        solver.propagate()?;
    }
    for (i, tensor) in verified.program().tensors.iter().enumerate() {
        if tensor.memory() == Memory::Register && solver.layouts[i].is_none() {
            let id = TensorId(i as u32);
            let tile = verified.tile(&id.into());
            let n = widest_vector(facts, &tile, i64::from(verified.threads()), 16).0;
            let tv =
                coalesced(&tile, i64::from(verified.threads()), n).ok_or_else(|| solver.too_large(id))?;
            solver.set(
                id,
                tv,
                Origin { statement: None, why: "no statement asks for more than a row-wise one".into() },
            )?;
            solver.propagate()?;
        }
    }
    solver.check_gemms()?;
    Ok(Registers { layouts: solver.layouts, gemms: solver.gemms })
}

impl Solver<'_> {
    fn text(&self, i: usize) -> String {
        tilewright_tile::statement_text(self.verified.program(), &self.statements[i].0)
    }

    fn name(&self, id: TensorId) -> &str {
        &self.verified.program().tensor(id).name
    }

    fn too_large(&self, id: TensorId) -> Diagnostic {
        let tensor = self.verified.program().tensor(id);
        Diagnostic::new(Code::BadValue, tensor.span, format!("`{}` is too large to be laid out", tensor.name))
    }

    fn pinned(&mut self) -> Result<(), Diagnostic> {
        for (i, tensor) in self.verified.program().tensors.iter().enumerate() {
            let TensorKind::Register { pinned: Some(layout), .. } = &tensor.kind else { continue };
            // The verifier has checked that it has two modes, the first of the block's threads, and covers the tile.
            let tv = TvLayout::from_layout(layout.clone()).map_err(|_| self.too_large(TensorId(i as u32)))?;
            self.set(
                TensorId(i as u32),
                tv,
                Origin { statement: None, why: "given by the program".to_string() },
            )?;
        }
        Ok(())
    }

    fn gemm(&mut self, i: usize) -> Result<(), Diagnostic> {
        let StmtKind::Gemm { c, a, b } = &self.statements[i].0.kind else { return Ok(()) };
        let (c, a, b) = (*c, *a, *b);
        let span = self.statements[i].0.span;
        let program = self.verified.program();
        let (ab, acc) = (program.tensor(a).dtype, program.tensor(c).dtype);
        let shape = self.verified.shape(c);
        let (m, n, k) = (shape[0], shape[1], self.verified.shape(a)[1]);
        let warps = i64::from(self.verified.threads()) / 32;
        let rows: Vec<_> = mmas(ab, acc, self.arch).collect();
        if rows.is_empty() {
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!("{} has no matrix instruction that multiplies {ab} into {acc}", self.arch),
            )
            .label(format!("`{}` is {acc}, `{}` is {ab}", self.name(c), self.name(a)))
            .help("multiply f16 into f32 or f16, or bf16 into f32".to_string()));
        }
        let Some(row) = rows.iter().find(|r| m % r.m == 0 && n % r.n == 0 && k % r.k == 0).copied() else {
            let smallest = rows[rows.len() - 1];
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!("no matrix instruction tiles a product of {m}×{n}×{k}"),
            )
            .label(format!("`{}` is {m}×{n}, `{}` is {m}×{k}", self.name(c), self.name(a)))
            .help(format!(
                "the smallest instruction for these types is {}: make M a multiple of {}, N of {} and K of {}",
                smallest.name, smallest.m, smallest.n, smallest.k
            )));
        };
        let layouts = gemm::anchor(row, m, n, k, warps).map_err(|e| {
            Diagnostic::new(Code::Unsatisfiable, span, format!("the product cannot be laid out: {e}"))
        })?;
        let text = self.text(i);
        let (wm, wn) = layouts.warps;
        let why = |operand: &str| {
            let idle = if wm * wn < warps {
                format!(", each part in {} warps", warps / (wm * wn))
            } else {
                String::new()
            };
            format!("operand {operand} of {} over {wm}×{wn} warps{idle}, for `{text}`", row.name)
        };
        // A layout that is already there is kept: whether the three fit is checked when all are known.
        for (id, tv, operand) in [(c, layouts.c, "C"), (a, layouts.a, "A"), (b, layouts.b, "B")] {
            if self.layouts[id.0 as usize].is_none() {
                self.set(id, tv, Origin { statement: Some(i), why: why(operand) })?;
            }
        }
        self.gemms[i] = Some(GemmPlan { row, warps: layouts.warps, calls: Vec::new() });
        Ok(())
    }

    /// Anchors a gather along the contiguous mode: its elements in neighbouring lanes, so that one shuffle finds each.
    fn gather(&mut self, i: usize) -> Result<(), Diagnostic> {
        let StmtKind::Gather { dst, src, index, axis } = &self.statements[i].0.kind else { return Ok(()) };
        let (dst, src, index, axis) = (*dst, *src, *index, *axis as usize);
        let (from, to) = (self.verified.shape(src), self.verified.shape(dst));
        let known = |id: TensorId| self.layouts[id.0 as usize].is_some();
        let powers = from.iter().chain(&to).all(|e| (*e as u64).is_power_of_two());
        if axis + 1 != from.len() || !powers || known(dst) || known(src) || known(index) {
            return Ok(());
        }
        let along = from[axis].min(to[axis]).min(crate::linear::LANES);
        let threads = i64::from(self.verified.threads());
        let why = format!("elements along mode {axis} in {along} neighbouring lanes, for `{}`", self.text(i));
        for (id, shape) in [(src, &from), (dst, &to), (index, &to)] {
            // In place the two are one.
            if self.layouts[id.0 as usize].is_none() {
                let Some(tv) = shapes::across(shape, axis, along, threads) else { return Ok(()) };
                self.set(id, tv, Origin { statement: Some(i), why: why.clone() })?;
            }
        }
        self.propagate()
    }

    fn check_gemms(&mut self) -> Result<(), Diagnostic> {
        for i in 0..self.statements.len() {
            let (StmtKind::Gemm { c, a, b }, Some(plan)) = (&self.statements[i].0.kind, &self.gemms[i])
            else {
                continue;
            };
            let (c, a, b) = (*c, *a, *b);
            let get = |id: TensorId| self.layouts[id.0 as usize].as_ref();
            let (Some(lc), Some(la), Some(lb)) = (get(c), get(a), get(b)) else {
                let span = self.statements[i].0.span;
                return Err(Diagnostic::new(
                    Code::Unsatisfiable,
                    span,
                    "an operand of this product has no layout",
                ));
            };
            let shape = self.verified.shape(c);
            let k = self.verified.shape(a)[1];
            let threads = i64::from(self.verified.threads());
            let row = plan.row;
            let Some(calls) = gemm::calls(row, (shape[0], shape[1], k), &lc.0, &la.0, &lb.0, threads) else {
                let mut error = Diagnostic::new(
                    Code::LayoutConflict,
                    self.statements[i].0.span,
                    format!(
                        "the layouts of `{}`, `{}` and `{}` do not fit one arrangement of {}",
                        self.name(c),
                        self.name(a),
                        self.name(b),
                        row.name
                    ),
                )
                .label("this product wants its operands arranged by its own accumulator")
                .help(format!(
                    "give it an operand of its own: `x = rearrange({})` and use `x` here",
                    self.name(a)
                ));
                for (id, (_, origin)) in [(c, lc), (a, la), (b, lb)] {
                    if let Some(other) = origin.statement
                        && other != i
                    {
                        let span = self.statements[other].0.span;
                        error =
                            error.related(span, format!("`{}` is fixed here: {}", self.name(id), origin.why));
                    }
                }
                return Err(error);
            };
            if let Some(plan) = &mut self.gemms[i] {
                plan.calls = calls;
            }
        }
        Ok(())
    }

    fn set(&mut self, id: TensorId, tv: TvLayout, origin: Origin) -> Result<(), Diagnostic> {
        let dtype = self.verified.program().tensor(id).dtype;
        let registers = (tv.count() as u32 * dtype.bits()).div_ceil(32);
        let limit = self.arch.limits().registers_of_a_thread(self.verified.threads());
        if registers > limit {
            let tensor = self.verified.program().tensor(id);
            let size: i64 = self.verified.shape(id).iter().product();
            let threads = self.verified.threads();
            // Threads that hold what others hold too are of no use: more of them would not help.
            let copies: i64 = tv.threads().leaves().iter().filter(|l| l.1 == 0).map(|l| l.0).product();
            let help = if copies > 1 && origin.why.contains("each part in") {
                format!(
                    "the tile does not divide among the {} warps, so {copies} of them hold the same part: choose a tile \
                     whose instruction tiles divide among the warps",
                    threads / 32
                )
            } else {
                "make the tile smaller, use more threads, or keep it in shared memory".to_string()
            };
            return Err(Diagnostic::new(
                Code::RegistersExceeded,
                tensor.span,
                format!(
                    "`{}` needs {registers} registers of each of the {threads} threads, and {} has {limit} for each",
                    tensor.name, self.arch
                ),
            )
            .label(format!("{size} elements of {dtype} over {threads} threads"))
            .help(help));
        }
        self.layouts[id.0 as usize] = Some((tv, origin));
        Ok(())
    }

    fn propagate(&mut self) -> Result<(), Diagnostic> {
        loop {
            let mut changed = false;
            for i in 0..self.statements.len() {
                changed |= self.through_shape(i, false)?;
                let group = alike(self.verified, &self.statements[i].0);
                let Some(known) = group.iter().copied().find(|t| self.layouts[t.0 as usize].is_some()) else {
                    continue;
                };
                let Some((tv, origin)) = self.layouts[known.0 as usize].clone() else { continue };
                for other in group {
                    match &self.layouts[other.0 as usize] {
                        None => {
                            let why = format!("the same as `{}`, for `{}`", self.name(known), self.text(i));
                            self.set(other, tv.clone(), Origin { statement: Some(i), why })?;
                            changed = true;
                        }
                        Some((theirs, their_origin)) if !theirs.same_function(&tv) => {
                            // Registers may differ in the order of a thread's values, if only data moves.
                            let threads = i64::from(self.verified.threads());
                            let permuted = match &self.statements[i].0.kind {
                                StmtKind::Copy { src, .. } if src.tensor == known => {
                                    crate::moves(&tv, theirs, threads).is_some()
                                }
                                StmtKind::Copy { .. } => crate::moves(theirs, &tv, threads).is_some(),
                                _ => false,
                            };
                            if !permuted {
                                return Err(self.conflict(
                                    i,
                                    (known, &tv, &origin),
                                    (other, theirs, their_origin),
                                ));
                            }
                        }
                        Some(_) => {}
                    }
                }
            }
            // Only where nothing else asks for it is the result of a broadcast held whole by those who hold the operand.
            if !changed && !self.broadcast_forward()? {
                return Ok(());
            }
        }
    }

    fn broadcast_forward(&mut self) -> Result<bool, Diagnostic> {
        for i in 0..self.statements.len() {
            if self.through_shape(i, true)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Leads a layout through a shape statement or a reduction to a tensor that has none; whether one was set. Broadcasts
    /// lead forward only where `repeat` says so.
    fn through_shape(&mut self, i: usize, repeat: bool) -> Result<bool, Diagnostic> {
        let layout = |id: TensorId| self.layouts[id.0 as usize].as_ref().map(|l| &l.0);
        let shape = |id: TensorId| self.verified.shape(id);
        let size = |id: TensorId| shape(id).iter().product::<i64>();
        // Of the two ends of a statement the one that has a layout, and what the other gets.
        let ends = |src: TensorId, dst: TensorId| match (layout(src), layout(dst)) {
            (Some(tv), None) => Some((tv, true)),
            (None, Some(tv)) => Some((tv, false)),
            _ => None,
        };
        let found = match &self.statements[i].0.kind {
            StmtKind::Shape { dst, src, op } => ends(*src, *dst).and_then(|(tv, there)| {
                let (from, to) = (shape(*src), shape(*dst));
                let tv = match (there, op) {
                    (true, ShapeOp::Broadcast(_)) if !repeat => return None,
                    (true, ShapeOp::Broadcast(_)) => {
                        shapes::repeated(&shapes::seen(tv, &shapes::forward(op, &from, &to)?)?, &from, &to)
                    }
                    (true, _) => shapes::seen(tv, &shapes::forward(op, &from, &to)?),
                    (false, _) => shapes::seen(tv, &shapes::backward(op, &from, &to)?),
                }?;
                Some(if there { (*src, *dst, tv) } else { (*dst, *src, tv) })
            }),
            StmtKind::Join { dst, a, .. } => ends(*a, *dst).and_then(|(tv, there)| {
                if there {
                    Some((*a, *dst, shapes::joined(tv, size(*a))?))
                } else {
                    Some((*dst, *a, shapes::halved(tv, size(*a))?))
                }
            }),
            StmtKind::Split { lo, src, .. } => ends(*src, *lo).and_then(|(tv, there)| {
                if there {
                    Some((*src, *lo, shapes::halved(tv, size(*lo))?))
                } else {
                    Some((*lo, *src, shapes::joined(tv, size(*lo))?))
                }
            }),
            StmtKind::Reduce { dst, src, axis, .. } => match (layout(*src), layout(*dst)) {
                (Some(tv), None) => crate::reduce::arises(tv, &shape(*src), *axis).map(|tv| (*src, *dst, tv)),
                _ => None,
            },
            _ => None,
        };
        let Some((from, to, tv)) = found else { return Ok(false) };
        let why = format!("what `{}` makes of `{}`", self.text(i), self.name(from));
        self.set(to, tv, Origin { statement: Some(i), why })?;
        Ok(true)
    }

    fn conflict(
        &self,
        i: usize,
        (first, first_tv, first_origin): (TensorId, &TvLayout, &Origin),
        (second, second_tv, second_origin): (TensorId, &TvLayout, &Origin),
    ) -> Diagnostic {
        let (a, b) = (self.name(first), self.name(second));
        let mut error = Diagnostic::new(
            Code::LayoutConflict,
            self.statements[i].0.span,
            format!(
                "`{a}` and `{b}` must be distributed alike here, but `{a}` is {} and `{b}` is {}",
                first_tv.layout(),
                second_tv.layout()
            ),
        )
        .label("wants one layout for both")
        .help(format!("redistribute one of them: `x = rearrange({b})` and use `x` here"));
        for (name, origin) in [(a, first_origin), (b, second_origin)] {
            if let Some(other) = origin.statement {
                error = error.related(
                    self.statements[other].0.span,
                    format!("`{name}` is fixed here: {}", origin.why),
                );
            }
        }
        error
    }

    /// The copy that moves the most data, global memory first, among those of register tensors without a layout: its
    /// statement, the register tensor, and the tile in memory.
    fn next_anchor(&self) -> Option<(usize, TensorId, TileRef)> {
        let mut candidates = Vec::new();
        for (i, (stmt, _)) in self.statements.iter().enumerate() {
            let StmtKind::Copy { src, dst } = &stmt.kind else { continue };
            for (register, memory) in [(src, dst), (dst, src)] {
                let tensor = self.verified.program().tensor(register.tensor);
                if tensor.memory() != Memory::Register || self.layouts[register.tensor.0 as usize].is_some() {
                    continue;
                }
                let tile = self.verified.tile(memory);
                if tile.memory == Memory::Register {
                    continue;
                }
                let bits = tile.shape.iter().product::<i64>() * i64::from(tile.dtype.bits());
                let vector = widest_vector(self.facts, &tile, i64::from(self.verified.threads()), 16).0;
                let key = (tile.memory == Memory::Global, bits, vector, std::cmp::Reverse(i));
                candidates.push((key, (i, register.tensor, tile)));
            }
        }
        candidates.into_iter().max_by_key(|(key, _)| *key).map(|(_, anchor)| anchor)
    }
}
