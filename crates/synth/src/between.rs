//! Statements between register tensors whose layouts are known: their plans, or why there is none.

use std::collections::BTreeSet;

use tilewright_machine::{Arch, Memory, Timing};
use tilewright_tile::core::{Program, StmtKind};
use tilewright_tile::{Code, Diagnostic, ReduceOp, TensorId};

use crate::copies::{self, global_copy};
use crate::divisibility::Divisibility;
use crate::plan::{CopyPlan, StmtPlan};
use crate::reason::NotTaken;
use crate::reject::Reject;
use crate::tv::{TvLayout, moves, moves_through};
use crate::{gather, movement, reduce, shapes};

/// How a statement sees its operand's layout: in the coordinates of its result.
pub(crate) type See<'a> = &'a dyn Fn(&TvLayout) -> Option<TvLayout>;

/// The movement from one register tensor to another, the operand seen through a coordinate map.
pub(crate) fn moved(
    verified: &Program,
    timing: &Timing,
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    (src, dst): (TensorId, TensorId),
    map: Option<See<'_>>,
) -> Result<(movement::Movement, Vec<NotTaken>), Reject> {
    let (Some(from), Some(to)) = (register(src), register(dst)) else {
        return Err(Reject::NoLayout);
    };
    let from = match map {
        Some(map) => map(&from).ok_or(Reject::ShapeNotComposed)?,
        None => from,
    };
    movement::movement(&movement::Between {
        from: &from,
        to: &to,
        shape: &verified.shape(dst),
        threads: i64::from(verified.threads()),
        bits: carried(verified, dst),
        timing,
    })
}

/// Bits in which an element travels between threads: its own, at least a byte.
pub(crate) fn carried(verified: &Program, id: TensorId) -> u32 {
    verified.tensor(id).dtype.bits().max(8)
}

/// The plan of a statement between register tensors of which the layouts are known.
pub(crate) fn between_registers(
    verified: &Program,
    timing: &Timing,
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    stmt: &tilewright_tile::core::Stmt,
) -> Option<Result<(StmtPlan, Vec<NotTaken>), Refusal>> {
    let layout = |id: TensorId| register(id).ok_or(Reject::NoLayout);
    let shape = |id: TensorId| verified.shape(id);
    let threads = i64::from(verified.threads());
    let bits = |id: TensorId| carried(verified, id);
    let moves_of = |movement: Result<(movement::Movement, Vec<NotTaken>), Reject>| {
        movement.map(|(movement, others)| (StmtPlan::Move(movement), others)).map_err(Refusal::from)
    };
    let refusal = Refusals { verified, register };
    Some(match &stmt.kind {
        StmtKind::Rearrange { dst, src } => moves_of(moved(verified, timing, register, (*src, *dst), None)),
        StmtKind::Shape { dst, src, op } => {
            let (from, to) = (shape(*src), shape(*dst));
            let see = |tv: &TvLayout| {
                let there = shapes::seen(tv, &shapes::forward(op, &from, &to)?)?;
                match op {
                    tilewright_tile::core::ShapeOp::Broadcast(_) => shapes::repeated(&there, &from, &to),
                    _ => Some(there),
                }
            };
            // A broadcast's values are repeated in the operand's own registers.
            let broadcast = || -> Result<StmtPlan, Reject> {
                let map = shapes::backward(op, &from, &to).ok_or(Reject::TooLarge)?;
                let begin = shapes::begins(op, &from);
                let (src, dst) = (layout(*src)?, layout(*dst)?);
                let moves = moves_through(&src, &dst, threads, &|place| begin + map.eval(place));
                let moves = moves.ok_or(Reject::NotHeld)?;
                Ok(StmtPlan::Move(movement::Movement::Registers(moves)))
            };
            match broadcast() {
                Ok(plan) => Ok((plan, Vec::new())),
                Err(why) if matches!(op, tilewright_tile::core::ShapeOp::Slice { .. }) => Err(why.into()),
                Err(_) if !matches!(op, tilewright_tile::core::ShapeOp::Broadcast(_)) => {
                    moves_of(moved(verified, timing, register, (*src, *dst), Some(&see)))
                }
                Err(_) => Err(refusal.broadcast(*dst, *src)),
            }
        }
        StmtKind::Join { dst, a, b } => (|| {
            let size: i64 = shape(*a).iter().product();
            let whole = layout(*dst)?;
            let (first, a, b) = (*a, layout(*a)?, layout(*b)?);
            let swap = |moves: Vec<(u32, u32)>| moves.into_iter().map(|(s, d)| (d, s)).collect::<Vec<_>>();
            let half = |tv: &TvLayout, offset: i64| halves(tv, &whole, offset, threads).map(swap);
            let why = || refusal.halves(*dst, first, true);
            let (lo, hi) = (half(&a, 0).ok_or_else(why)?, half(&b, size).ok_or_else(why)?);
            Ok((StmtPlan::Halves([lo, hi]), Vec::new()))
        })(),
        StmtKind::Split { lo, hi, src } => (|| {
            let size: i64 = shape(*lo).iter().product();
            let whole = layout(*src)?;
            let (a, b) = (layout(*lo)?, layout(*hi)?);
            let half = |tv: &TvLayout, offset: i64| halves(tv, &whole, offset, threads);
            let why = || refusal.halves(*src, *lo, false);
            let (lo, hi) = (half(&a, 0).ok_or_else(why)?, half(&b, size).ok_or_else(why)?);
            Ok((StmtPlan::Halves([lo, hi]), Vec::new()))
        })(),
        StmtKind::Reduce { dst, src, axis, op } => (|| {
            let plan = reduce::reduce(
                &layout(*src)?,
                &layout(*dst)?,
                (&shape(*src), &shape(*dst)),
                *axis,
                (threads, bits(*dst)),
                timing,
            );
            let plan = plan.map_err(|why| refusal.reduce(*src, *axis, *op).unwrap_or(why.into()))?;
            Ok((StmtPlan::Reduce(plan), Vec::new()))
        })(),
        StmtKind::Gather { dst, src, axis, .. } => (|| {
            let planned = gather::gather(
                &layout(*src)?,
                &layout(*dst)?,
                (&shape(*src), &shape(*dst)),
                *axis,
                bits(*dst),
                timing,
            );
            let (plan, others) =
                planned.map_err(|why| refusal.gather(&[*src, *dst], *axis).unwrap_or(why.into()))?;
            Ok((StmtPlan::Gather(plan), others))
        })(),
        _ => return None,
    })
}

/// The moves from the whole to the half of it that begins at `offset`: (value of the whole, value of the half).
pub(crate) fn halves(
    half: &TvLayout,
    whole: &TvLayout,
    offset: i64,
    threads: i64,
) -> Option<Vec<(u32, u32)>> {
    let moves = moves_through(whole, half, threads, &|place| place + offset)?;
    (2 * half.count() == whole.count()).then_some(moves)
}

/// A statement between registers that no plan does.
pub(crate) fn cannot_move(stmt: &tilewright_tile::core::Stmt, why: &Refusal) -> Diagnostic {
    Diagnostic::new(Code::LayoutConflict, stmt.span, why.message.clone()).help(why.help.clone())
}

/// Why no plan does a statement between registers, and what would be right.
pub(crate) struct Refusal {
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

/// Words for refusals, with the program's own names.
pub(crate) struct Refusals<'a> {
    verified: &'a Program,
    register: &'a dyn Fn(TensorId) -> Option<TvLayout>,
}

impl Refusals<'_> {
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

    fn broadcast(&self, dst: TensorId, src: TensorId) -> Refusal {
        let (to, from) = (self.name(dst), self.name(src));
        Refusal {
            message: format!(
                "threads hold elements of `{to}` that repeat elements of `{from}` held by others: {}, and {}",
                self.is(src),
                self.is(dst)
            ),
            help: format!("redistribute `{from}` before it: `x = rearrange({from})` and broadcast `x`"),
        }
    }

    /// Of a join into `whole`, or a split of it.
    fn halves(&self, whole: TensorId, half: TensorId, joins: bool) -> Refusal {
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

    /// Of a mode that a number of threads share which is no power of two.
    fn reduce(&self, src: TensorId, axis: u32, op: ReduceOp) -> Option<Refusal> {
        let (name, along) = (self.name(src), self.spread(src, axis as usize).len());
        let (op, block) = (op.name(), self.verified.threads());
        let odd = !along.is_power_of_two();
        let spreads = format!("`{name}` spreads mode {axis} over {along} threads");
        let otherwise = if block.is_power_of_two() { " or over a power of two of them" } else { "" };
        (odd || (along > 1 && !block.is_power_of_two())).then(|| Refusal {
            message: if odd {
                format!("{spreads}, and a {op} across threads needs a power of two")
            } else {
                format!("{spreads} of a block of {block}, and a {op} across threads needs a power of two in the block")
            },
            help: format!(
                "redistribute `{name}` before it, `x = rearrange({name}, layout = …)`, so that mode {axis} lies within each \
                 thread{otherwise}"
            ),
        })
    }

    /// Of a mode whose extent is no power of two.
    fn gather(&self, tensors: &[TensorId], axis: u32) -> Option<Refusal> {
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
    stmt: &tilewright_tile::core::Stmt,
) -> Result<Option<(StmtPlan, Vec<NotTaken>)>, Diagnostic> {
    let StmtKind::Copy { src, dst } = &stmt.kind else { return Ok(None) };
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
            let (plan, others) = global_copy(divisibility, arch, &tv, &verified.tile(view), is_load)
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
