//! Statements between register tensors whose layouts are known: their plans, or why there is none.

use std::collections::BTreeSet;

use tilewright_machine::{Arch, Memory, Timing};
use tilewright_tile::core::{Program, ShapeOp, Stmt, StmtKind};
use tilewright_tile::{Code, CombineForm, Diagnostic, ScanOperands, TensorId};

use crate::copies::{self, global_copy};
use crate::divisibility::Divisibility;
use crate::movement::Movement;
use crate::plan::{CopyPlan, StmtPlan};
use crate::reason::NotTaken;
use crate::reject::Reject;
use crate::tv::{TvLayout, moves, moves_through};
use crate::{combine, gather, movement, reduce, scan, shapes, sort};

/// An operand's layout as a statement sees it: in the coordinates of its result.
pub(crate) type See<'a> = &'a dyn Fn(&TvLayout) -> Option<TvLayout>;

/// Bits in which an element travels between threads: its own, at least a byte.
fn carried(verified: &Program, id: TensorId) -> u32 {
    verified.tensor(id).dtype.bits().max(8)
}

/// A plan with what else was possible, or why there is none.
type Planned = Result<(StmtPlan, Vec<NotTaken>), Refusal>;

/// Plans of statements between register tensors of which the layouts are known.
pub(crate) struct Planner<'a> {
    /// The program.
    pub verified: &'a Program,
    /// The table of the architecture.
    pub timing: &'a Timing,
    /// The layouts.
    pub register: &'a dyn Fn(TensorId) -> Option<TvLayout>,
}

impl Planner<'_> {
    /// The plan of a statement; `None` if it is no statement between register tensors.
    pub(crate) fn plan(&self, stmt: &Stmt) -> Option<Result<(StmtPlan, Vec<NotTaken>), Diagnostic>> {
        let plan = match &stmt.kind {
            StmtKind::Rearrange { dst, src } => self.moved((*src, *dst), None),
            StmtKind::Shape { dst, src, op } => self.shape(*dst, *src, op),
            StmtKind::Join { dst, a, b } => self.halves(*dst, [*a, *b], true),
            StmtKind::Split { lo, hi, src } => self.halves(*src, [*lo, *hi], false),
            StmtKind::Reduce { dst, src, axis, .. } => self.reduce(*dst, *src, *axis),
            StmtKind::Arg { value, index, src, axis, .. } => self.arg([*value, *index], *src, *axis),
            StmtKind::Scan { dst, operands, axis, .. } => self.scan(*dst, operands, *axis),
            StmtKind::Combine { dsts, srcs, axis, form, .. } => self.combine(dsts, srcs, *axis, *form),
            StmtKind::Sort { dst, carried, axis, .. } => {
                self.sort(*dst, carried.map(|[_, with]| with), *axis)
            }
            StmtKind::Gather { dst, src, axis, .. } => self.gather(*dst, *src, *axis),
            StmtKind::Signal { .. } | StmtKind::Await { .. } => Ok((StmtPlan::Flag { bytes: 0 }, Vec::new())),
            StmtKind::Ticket { .. } => Ok((StmtPlan::Flag { bytes: 4 }, Vec::new())),
            StmtKind::Elementwise { dst, expr } => {
                let shape = self.verified.shape(*dst);
                let mut parts: Vec<TensorId> = expr.tensors();
                parts.retain(|id| self.verified.shape(*id) != shape);
                parts.sort_unstable();
                parts.dedup();
                if parts.is_empty() {
                    return None;
                }
                self.repeat(*dst, parts)
            }
            _ => return None,
        };
        Some(plan.map_err(|why| Diagnostic::new(Code::LayoutConflict, stmt.span, why.message).help(why.help)))
    }

    fn layout(&self, id: TensorId) -> Result<TvLayout, Reject> {
        (self.register)(id).ok_or(Reject::NoLayout)
    }

    fn threads(&self) -> i64 {
        i64::from(self.verified.threads())
    }

    /// The movement from one register tensor to another, the operand seen through a coordinate map.
    pub(crate) fn movement(
        &self,
        (src, dst): (TensorId, TensorId),
        map: Option<See<'_>>,
    ) -> Result<(Movement, Vec<NotTaken>), Reject> {
        let (from, to) = (self.layout(src)?, self.layout(dst)?);
        let from = match map {
            Some(map) => map(&from).ok_or(Reject::ShapeNotComposed)?,
            None => from,
        };
        movement::movement(&movement::Between {
            from: &from,
            to: &to,
            shape: &self.verified.shape(dst),
            threads: self.threads(),
            bits: carried(self.verified, dst),
            timing: self.timing,
        })
    }

    fn moved(&self, ends: (TensorId, TensorId), map: Option<See<'_>>) -> Planned {
        let (plan, others) = self.movement(ends, map)?;
        Ok((StmtPlan::Move(plan), others))
    }

    fn shape(&self, dst: TensorId, src: TensorId, op: &ShapeOp) -> Planned {
        let (from, to) = (self.verified.shape(src), self.verified.shape(dst));
        let see = |tv: &TvLayout| shapes::lifted(tv, &shapes::backward(op, &from, &to)?);
        // A broadcast's values are repeated in the operand's own registers.
        let within_threads = || -> Result<StmtPlan, Reject> {
            let map = shapes::backward(op, &from, &to).ok_or(Reject::TooLarge)?;
            let begin = shapes::begins(op, &from);
            let (src, dst) = (self.layout(src)?, self.layout(dst)?);
            let moves = moves_through(&src, &dst, self.threads(), &|place| begin + map.eval(place));
            Ok(StmtPlan::Move(Movement::Registers(moves.ok_or(Reject::NotHeld)?)))
        };
        match (within_threads(), op) {
            (Ok(plan), _) => Ok((plan, Vec::new())),
            (Err(_), ShapeOp::Slice { axis, start, .. }) if to[*axis as usize] == 1 => {
                let layouts = [self.layout(src)?, self.layout(dst)?];
                let across = (self.threads(), carried(self.verified, dst));
                let plan = reduce::pick(&layouts, (&from, &to), (*axis, *start), across, self.timing)?;
                Ok((StmtPlan::Pick(plan), Vec::new()))
            }
            (Err(_), ShapeOp::Slice { axis, start, .. }) => Err(self.no_slice(dst, src, (*axis, *start))),
            (Err(_), ShapeOp::Broadcast(_)) => Err(self.no_broadcast(dst, src)),
            (Err(_), _) => self.moved((src, dst), Some(&see)),
        }
    }

    /// The values of operands that repeat in the result of an elementwise statement.
    fn repeat(&self, dst: TensorId, parts: Vec<TensorId>) -> Planned {
        let (whole, shape) = (self.layout(dst)?, self.verified.shape(dst));
        let values = |part: TensorId| -> Result<(TensorId, Vec<u32>), Reject> {
            let map = shapes::broadcast(&self.verified.shape(part), &shape).ok_or(Reject::TooLarge)?;
            let held = self.layout(part)?;
            let moves = moves_through(&held, &whole, self.threads(), &|place| map.eval(place));
            Ok((part, moves.ok_or(Reject::NotHeld)?.into_iter().map(|(from, _)| from).collect()))
        };
        let parts = parts.into_iter().map(values).collect::<Result<_, _>>()?;
        Ok((StmtPlan::Repeat(parts), Vec::new()))
    }

    /// A join of halves into a whole, or a split of it.
    fn halves(&self, whole: TensorId, sides: [TensorId; 2], joins: bool) -> Planned {
        let size: i64 = self.verified.shape(sides[0]).iter().product();
        let layout = self.layout(whole)?;
        let layouts = [self.layout(sides[0])?, self.layout(sides[1])?];
        let half = |side: usize| {
            let moves = halves(&layouts[side], &layout, side as i64 * size, self.threads());
            let mut moves = moves.ok_or_else(|| self.no_halves(whole, sides[0], joins))?;
            if joins {
                moves.iter_mut().for_each(|(from, to)| std::mem::swap(from, to));
            }
            Ok::<_, Refusal>(moves)
        };
        Ok((StmtPlan::Halves([half(0)?, half(1)?]), Vec::new()))
    }

    fn reduce(&self, dst: TensorId, src: TensorId, axis: u32) -> Planned {
        let (shape, result) = (self.verified.shape(src), self.verified.shape(dst));
        let across = (self.threads(), carried(self.verified, dst));
        let plan = reduce::reduce(
            &self.layout(src)?,
            &self.layout(dst)?,
            (&shape, &result),
            axis,
            across,
            self.timing,
        );
        Ok((StmtPlan::Reduce(plan?), Vec::new()))
    }

    fn arg(&self, results: [TensorId; 2], src: TensorId, axis: u32) -> Planned {
        let shape = self.verified.shape(src);
        let result = self.verified.shape(results[0]);
        let layouts = [self.layout(results[0])?, self.layout(results[1])?];
        let bits = results.map(|id| carried(self.verified, id));
        let across = (self.threads(), bits);
        let plan = reduce::arg(&self.layout(src)?, &layouts, (&shape, &result), axis, across, self.timing)?;
        Ok((StmtPlan::Arg(plan), Vec::new()))
    }

    /// 32-bit words of an element in the type that it is computed with.
    fn words(&self, id: TensorId) -> u32 {
        reduce::words_of(self.verified.tensor(id).dtype.bits())
    }

    fn sort(&self, dst: TensorId, carried: Option<TensorId>, axis: u32) -> Planned {
        // With what goes along goes the place that it had.
        let words = self.words(dst) + carried.map_or(0, |with| 1 + self.words(with));
        let plan = sort::sort(&self.layout(dst)?, &self.verified.shape(dst), axis, words)?;
        Ok((StmtPlan::Sort(plan), Vec::new()))
    }

    fn scan(&self, dst: TensorId, operands: &ScanOperands, axis: u32) -> Planned {
        let (layout, shape) = (self.layout(dst)?, self.verified.shape(dst));
        let (words, before) = match operands {
            ScanOperands::One { .. } => (self.words(dst), None),
            ScanOperands::Linear { before, .. } => (2 * self.words(dst), *before),
        };
        let first = before.map(|id| self.layout(id)).transpose()?;
        let before = first.as_ref().map(|tv| (tv, self.threads(), carried(self.verified, dst)));
        let plan = scan::scan(&layout, &shape, axis, words, before, self.timing)?;
        Ok((StmtPlan::Scan(plan), Vec::new()))
    }

    fn combine(&self, dsts: &[TensorId], srcs: &[TensorId], axis: u32, form: CombineForm) -> Planned {
        let (layout, shape) = (self.layout(srcs[0])?, self.verified.shape(srcs[0]));
        if form != CombineForm::Reduce {
            let words = srcs.iter().map(|src| reduce::words_of(carried(self.verified, *src))).sum();
            return Ok((
                StmtPlan::Scan(scan::scan(&layout, &shape, axis, words, None, self.timing)?),
                Vec::new(),
            ));
        }
        let result = self.verified.shape(dsts[0]);
        let results = dsts.iter().map(|dst| Ok((self.layout(*dst)?, carried(self.verified, *dst))));
        let results: Vec<(TvLayout, u32)> = results.collect::<Result<_, Reject>>()?;
        let plan = combine::reduce(&layout, &results, (&shape, &result), axis, self.threads(), self.timing)?;
        Ok((StmtPlan::Combine(plan), Vec::new()))
    }

    fn gather(&self, dst: TensorId, src: TensorId, axis: u32) -> Planned {
        let (shape, result) = (self.verified.shape(src), self.verified.shape(dst));
        let bits = carried(self.verified, dst);
        let plan = gather::gather(
            &self.layout(src)?,
            &self.layout(dst)?,
            (&shape, &result),
            axis,
            bits,
            self.timing,
        );
        let (plan, others) = plan.map_err(|why| self.no_gather(&[src, dst], axis).unwrap_or(why.into()))?;
        Ok((StmtPlan::Gather(plan), others))
    }
}

/// The moves from the whole to the half of it that begins at `offset`: (value of the whole, value of the half).
fn halves(half: &TvLayout, whole: &TvLayout, offset: i64, threads: i64) -> Option<Vec<(u32, u32)>> {
    let moves = moves_through(whole, half, threads, &|place| place + offset)?;
    (2 * half.count() == whole.count()).then_some(moves)
}

/// Reason for which no plan does a statement between registers, and the remedy.
struct Refusal {
    message: String,
    help: String,
}

impl From<Reject> for Refusal {
    fn from(why: Reject) -> Self {
        Refusal {
            message: format!("the threads do not hold what this statement needs: {why}"),
            help: "redistribute an operand before it: `x = rearrange(…)`, with a layout of its own where one is needed"
                .to_string(),
        }
    }
}

/// The message and the help for a broadcast from one layout to another that repeats what other threads hold.
pub(crate) fn repeats_of_others(
    verified: &Program,
    (dst, dst_tv): (TensorId, &TvLayout),
    (src, src_tv): (TensorId, &TvLayout),
) -> (String, String) {
    let (to, from) = (&verified.tensor(dst).name, &verified.tensor(src).name);
    let (to_tv, from_tv) = (dst_tv.layout(), src_tv.layout());
    let message = format!(
        "threads hold elements of `{to}` that repeat elements of `{from}` held by others: `{from}` is {from_tv}, and `{to}` is {to_tv}"
    );
    (message, format!("redistribute `{from}` before it: `x = rearrange({from})` and broadcast `x`"))
}

/// Refusals, with the names of the program.
impl Planner<'_> {
    fn name(&self, id: TensorId) -> &str {
        &self.verified.tensor(id).name
    }

    /// A tensor and its layout.
    fn is(&self, id: TensorId) -> String {
        let layout = (self.register)(id).map_or_else(String::new, |tv| tv.layout().to_string());
        format!("`{}` is {layout}", self.name(id))
    }

    /// The coordinates along a mode that threads begin at.
    fn spread(&self, id: TensorId, axis: usize) -> BTreeSet<i64> {
        let shape = self.verified.shape(id);
        let unit: i64 = shape[..axis].iter().product();
        let starts = (self.register)(id).map_or_else(Vec::new, |tv| tv.threads().image());
        starts.into_iter().map(|start| start / unit % shape[axis]).collect()
    }

    fn no_broadcast(&self, dst: TensorId, src: TensorId) -> Refusal {
        match ((self.register)(dst), (self.register)(src)) {
            (Some(to), Some(from)) => {
                let (message, help) = repeats_of_others(self.verified, (dst, &to), (src, &from));
                Refusal { message, help }
            }
            _ => Reject::NoLayout.into(),
        }
    }

    /// Of a slice whose elements other threads hold.
    fn no_slice(&self, dst: TensorId, src: TensorId, (axis, start): (u32, i64)) -> Refusal {
        let (name, shape) = (self.name(src), self.verified.shape(dst));
        let last = start + shape[axis as usize] - 1;
        let message = format!(
            "a slice takes of each thread what it holds, and elements {start}..{last} of mode {axis} of `{name}` are held by some threads alone"
        );
        let index = if start == 0 { format!("index({axis})") } else { format!("index({axis}) + {start}") };
        let gather = format!(
            "let threads fetch them from others, of a tile that a warp can hold: `i = register_tensor(i32, {shape:?})`, `i = {index}`, and \
             `gather({name}, i, {axis})` for the slice"
        );
        let extent = self.verified.shape(src)[axis as usize];
        let help = match start {
            0 => format!(
                "to store the first of them, copy all of `{name}` through a view with {extent} coordinates along that mode: what lies outside of a tensor \
                 is not written; or {gather}"
            ),
            _ => gather,
        };
        Refusal { message, help }
    }

    /// Of a join into `whole`, or a split of it.
    fn no_halves(&self, whole: TensorId, half: TensorId, joins: bool) -> Refusal {
        let name = self.name(whole);
        let last = self.verified.shape(whole).len() - 1;
        let help = if joins {
            format!(
                "leave the layout of `{name}` open, or join into a new name and rearrange that: `{name} = rearrange(x)`"
            )
        } else {
            format!(
                "leave the layout of `{name}` open, or redistribute it before: `x = rearrange({name})` and split `x`"
            )
        };
        let message = if self.spread(whole, last).len() > 1 {
            let verb = if joins { "joins" } else { "splits" };
            let lanes = (self.register)(whole).is_some_and(|tv| {
                let unit: i64 = self.verified.shape(whole)[..last].iter().product();
                (0..32).any(|lane| tv.thread_offset(lane) / unit != tv.thread_offset(0) / unit)
            });
            let who = if lanes { "lanes" } else { "warps" };
            format!(
                "mode {last} of `{name}` is spread over {who}, and a thread that {verb} holds both halves of what it has"
            )
        } else {
            format!(
                "threads hold other elements of `{}` than of `{name}`: {}, and {}",
                self.name(half),
                self.is(half),
                self.is(whole)
            )
        };
        Refusal { message, help }
    }

    /// Of a mode whose extent is no power of two.
    fn no_gather(&self, tensors: &[TensorId], axis: u32) -> Option<Refusal> {
        let extent = |id: TensorId| self.verified.shape(id)[axis as usize];
        let odd = tensors.iter().copied().find(|id| !(extent(*id) as u64).is_power_of_two())?;
        let (name, now) = (self.name(odd), extent(odd));
        Some(Refusal {
            message: format!(
                "a gather runs along modes of power-of-two extents, and mode {axis} of `{name}` has {now}"
            ),
            help: format!(
                "make mode {axis} of `{name}` a power of two ({now} → {})",
                (now as u64).next_power_of_two()
            ),
        })
    }
}

/// The plan of a copy between registers and global memory, or from registers to registers.
pub(crate) fn direct(
    verified: &Program,
    divisibility: &Divisibility<'_>,
    arch: Arch,
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    stmt: &Stmt,
) -> Result<Option<(StmtPlan, Vec<NotTaken>)>, Diagnostic> {
    let StmtKind::Copy { src, dst, how } = &stmt.kind else { return Ok(None) };
    let memory = |t: TensorId| verified.tensor(t).memory();
    let fail = |why: Reject| {
        Diagnostic::new(Code::Unsatisfiable, stmt.span, format!("no instruction can do this copy: {why}"))
    };
    let layout = |id: TensorId| register(id).ok_or_else(|| fail(Reject::NoLayout));
    Ok(match (memory(src.tensor), memory(dst.tensor)) {
        (Memory::Global, Memory::Register) | (Memory::Register, Memory::Global) => {
            let is_load = memory(src.tensor) == Memory::Global;
            let (view, tensor) = if is_load { (src, dst.tensor) } else { (dst, src.tensor) };
            let tv = layout(tensor)?;
            let (plan, others) = global_copy(divisibility, arch, &tv, &verified.tile(view), (is_load, *how))
                .map_err(|why| {
                    let dtype = verified.tensor(tensor).dtype;
                    if is_load || dtype.bits() >= 8 {
                        return fail(why);
                    }
                    copies::shares_bytes(verified, stmt, dtype, &why)
                })?;
            Some((StmtPlan::Copy(plan), others))
        }
        (Memory::Register, Memory::Register) => {
            let (from, to) = (layout(src.tensor)?, layout(dst.tensor)?);
            let moves = moves(&from, &to, i64::from(verified.threads()))
                .ok_or_else(|| fail(Reject::DistributedDifferently))?;
            Some((StmtPlan::Copy(CopyPlan::Registers { moves }), Vec::new()))
        }
        _ => None,
    })
}
