//! Roles, pipelines, loops over tiles, and the asynchronous statements that they hold.

use tilewright_machine::{CacheHint, RedOp};

use super::expr::mistyped;
use super::{Parser, Res, syntax};
use crate::build::{Head, Named};
use crate::cluster::Multicast;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::Expr;
use crate::names::is_reserved;
use crate::nearest::nearest;
use crate::program::{
    AsyncCopyAttrs, BarrierId, BarrierKind, CopyAttrs, Dealer, Literal, ParamId, PipelineId, Side, StmtKind,
    SyncScope, TileOrder,
};
use crate::renamed::{Place, renamed_message};

/// The words after the operands of a `copy.async`; the last is one of core programs.
const HOW: [&str; 8] = ["multicast", "pair", "add", "outside", "evict_first", "evict_last", "threads", "tma"];

/// The words that begin the order of a loop over tiles.
const ORDERS: [&str; 3] = ["grouped", "hilbert", "listed"];

/// The words after the operands of a `copy`.
const ATTRIBUTES: [&str; 4] = ["add", "max", "min", "outside"];

/// An error about a word that is none of these.
fn no_attribute(word: &str, span: Span, words: &[&str]) -> Diagnostic {
    let error = syntax(span, format!("`{word}` says nothing about a copy"))
        .label(format!("expected one of {}", words.join(", ")));
    match nearest(word, words.iter().copied()) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error.help(format!("there are {}", words.join(", "))),
    }
}

/// The blocks that share a copy by two words together, and true if one says it again.
fn together(before: Option<Multicast>, own: Multicast, span: Span) -> Res<(Multicast, bool)> {
    Ok(match (before, own) {
        (None, own) => (own, false),
        (Some(Multicast::Pair), Multicast::Along(mode)) | (Some(Multicast::Along(mode)), Multicast::Pair) => {
            (Multicast::Pairs(mode), false)
        }
        (Some(Multicast::Pair), Multicast::All) | (Some(Multicast::All), Multicast::Pair) => {
            let message = "`pair` with `multicast` to all blocks, of which some have the other half";
            let help = "name the mode of the cluster along which pairs have the same tile: `pair, multicast(0)` of `cluster(4)`, `pair, multicast(1)` of `cluster(2, 2)`";
            return Err(syntax(span, message).help(help).into());
        }
        (Some(_), own) => (own, true),
    })
}

impl<'a> Parser<'a> {
    /// Passes `.async` behind the word `copy` or `gemm`; false if it does not follow.
    pub(super) fn eat_async(&mut self, word: &str, form: &str) -> Res<bool> {
        if !self.eat(".") {
            return Ok(false);
        }
        if !self.eat_word("async") {
            let help = format!("there are `{word}({form})` and `{word}.async({form})`");
            return Err(self.unexpected(&format!("`async` after `{word}.`")).help(help).into());
        }
        Ok(true)
    }

    /// `, add` or `, outside = -inf`, and the closing parenthesis.
    pub(super) fn attributes(&mut self) -> Res<CopyAttrs> {
        let mut how = CopyAttrs::default();
        if !self.eat(",") {
            self.expect(")", "after the destination")?;
            return Ok(how);
        }
        self.list(")", |p| {
            let (word, span) = p.word("`add`, `max`, `min` or `outside = …`")?;
            let again = match RedOp::ALL.into_iter().find(|op| op.name() == word) {
                Some(op) => how.combine.replace(op).is_some(),
                None if word == "outside" => {
                    let value = p.outside()?;
                    how.outside.replace(value).is_some()
                }
                None => return Err(no_attribute(word, span, &ATTRIBUTES).into()),
            };
            if again {
                let message = format!("`{word}` comes after another word that says the same or the opposite");
                return Err(syntax(span, message)
                    .help("say each thing once; `add`, `max` and `min` exclude each other")
                    .into());
            }
            Ok(())
        })?;
        Ok(how)
    }

    /// `= -inf`, the value of what lies outside.
    fn outside(&mut self) -> Res<Literal> {
        self.expect("=", "and the value of what lies outside")?;
        if self.eat_word("nan") { Ok(f64::NAN.into()) } else { Ok(self.signed_number()?.into()) }
    }

    /// `(1)` behind `multicast`, or nothing.
    fn multicast(&mut self) -> Res<Multicast> {
        if !self.eat("(") {
            return Ok(Multicast::All);
        }
        let mode = self.mode()?;
        self.expect(")", "after the mode of the cluster")?;
        Ok(Multicast::Along(mode))
    }

    /// `, multicast, evict_last` and the closing parenthesis.
    pub(super) fn how(&mut self) -> Res<AsyncCopyAttrs> {
        let mut how = AsyncCopyAttrs::default();
        if !self.eat(",") {
            self.expect(")", "after the destination")?;
            return Ok(how);
        }
        self.list(")", |p| {
            let (word, span) =
                p.word("`multicast`, `pair`, `add`, `evict_first`, `evict_last` or `threads`")?;
            let hint = match word {
                "evict_first" => Some(CacheHint::EvictFirst),
                "evict_last" => Some(CacheHint::EvictLast),
                _ => None,
            };
            let again = match word {
                "multicast" | "pair" => {
                    let own = if word == "pair" { Multicast::Pair } else { p.multicast()? };
                    let (both, again) = together(how.multicast, own, p.since(span))?;
                    how.multicast = Some(both);
                    again
                }
                "add" => std::mem::replace(&mut how.add, true),
                "threads" => std::mem::replace(&mut how.threads, true),
                "outside" => {
                    let value = p.outside()?;
                    how.outside.replace(value).is_some()
                }
                "tma" if p.core.is_some() => std::mem::replace(&mut how.tensor, true),
                _ if hint.is_some() => std::mem::replace(&mut how.hint, hint).is_some(),
                _ => {
                    let words = if p.core.is_some() { &HOW[..] } else { &HOW[..HOW.len() - 1] };
                    return Err(no_attribute(word, span, words).into());
                }
            };
            if again {
                let message = format!("`{word}` comes after another word that says the same or the opposite");
                return Err(syntax(span, message)
                    .help("say each thing once; `evict_first` and `evict_last` exclude each other")
                    .into());
            }
            Ok(())
        })?;
        Ok(how)
    }

    /// `(c, a, b, meta, scales = (sa, sb), warpgroups = (2, 1))` of a `gemm.async`.
    pub(super) fn gemm_async(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `gemm.async`")?;
        let c = self.tensor("the accumulator")?;
        self.expect(",", "and the left factor")?;
        let a = self.source()?;
        self.expect(",", "and the right factor")?;
        let b = self.reference()?;
        let (meta, no_meta) = self.metadata("warpgroups")?;
        let (scales, no_scales) = self.scales(|p, _| p.reference())?;
        let warpgroups = self.shares("warpgroups")?;
        self.expect(
            ")",
            "after the right factor, its metadata `, meta`, `, scales = (A, B)`, or `, warpgroups = (M, N)`",
        )?;
        if let (Some(c), Some(a), Some(b), false) = (c, a, b, no_meta || no_scales) {
            let span = self.since(start);
            self.build.emit(StmtKind::GemmAsync { c, a, b, meta, scales, warpgroups }, span);
        }
        Ok(())
    }

    /// `p = pipeline(STAGES, sa, sb)`; the opening parenthesis is passed.
    pub(super) fn pipeline(&mut self, name: &str, span: Span) -> Res<()> {
        let stages = self.expr()?;
        let mut tensors = Vec::new();
        let mut missing = false;
        if self.eat(",") {
            self.list(")", |p| {
                match p.named_tensor("a shared tensor")? {
                    Some(id) => tensors.push(id),
                    None => missing = true,
                }
                Ok(())
            })?;
        } else {
            self.expect(")", "after the number of stages, or `,` and the shared tensors of a stage")?;
        }
        let whole = self.since(span);
        if missing {
            self.poison_new(name, span);
            return Ok(());
        }
        match self.build.declare_pipeline(name, whole, stages, tensors) {
            Ok(id) => {
                self.build.emit(StmtKind::Pipeline(id), whole);
                Ok(())
            }
            Err(error) => self.report(error),
        }
    }

    /// `b = named_barrier()`, `t = turns()`; the opening parenthesis is passed.
    pub(super) fn named_barrier(&mut self, name: &str, span: Span, kind: BarrierKind) -> Res<()> {
        self.expect(")", "after `(`: the roles that come to it are those that use it")?;
        let whole = self.since(span);
        match self.build.declare_barrier(name, whole, kind) {
            Ok(id) => {
                self.build.emit(StmtKind::Barrier(id), whole);
                Ok(())
            }
            Err(error) => self.report(error),
        }
    }

    /// `syncthreads()`, `syncthreads(warpgroup)` or `syncthreads(b)`; the word is passed.
    pub(super) fn sync_threads(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `syncthreads`")?;
        let scope = if self.at(")") {
            Some(SyncScope::All)
        } else if self.eat_word("warpgroup") {
            Some(SyncScope::Warpgroup)
        } else {
            self.barrier()?.map(SyncScope::Barrier)
        };
        self.expect(")", "after `syncthreads(`, `warpgroup` or the name of a barrier")?;
        if let Some(scope) = scope {
            let span = self.since(start);
            self.build.emit(StmtKind::Sync(scope), span);
        }
        Ok(())
    }

    /// `arrive(b)`; the word is passed.
    pub(super) fn arrive(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `arrive`")?;
        let barrier = self.barrier()?;
        self.expect(")", "after the name of the barrier")?;
        if let Some(barrier) = barrier {
            let span = self.since(start);
            self.build.emit(StmtKind::Arrive(barrier), span);
        }
        Ok(())
    }

    /// `in_turn t { … }`; the word is passed.
    pub(super) fn in_turn(&mut self, start: Span) -> Res<()> {
        let barrier = |named| if let Named::Barrier(id) = named { Some(id) } else { None };
        let turns =
            self.named_thing("turns", "turns", barrier, "make them beside the roles first: `t = turns()`")?;
        self.skip_newlines();
        self.depth(start)?;
        let header = self.since(start);
        self.build.begin(Head::InTurn { turns });
        self.block()?;
        self.build.end(header);
        Ok(())
    }

    /// A named barrier's name; `None` after a mistake about it.
    fn barrier(&mut self) -> Res<Option<BarrierId>> {
        let barrier = |named| if let Named::Barrier(id) = named { Some(id) } else { None };
        let help = "make one beside the roles first: `ready = named_barrier()`";
        self.named_thing("a named barrier", "a named barrier", barrier, help)
    }

    /// `warpgroup load(1) registers(24) { … }`; the word is passed.
    pub(super) fn role(&mut self, start: Span) -> Res<()> {
        let (name, span) = self.word("a name for the role")?;
        self.expect("(", "and the number of the role's warpgroups")?;
        let warpgroups = self.expr()?;
        self.expect(")", "after the number of warpgroups")?;
        let mut registers = None;
        if self.eat_word("registers") {
            self.expect("(", "and the registers of a thread")?;
            registers = Some(self.expr()?);
            self.expect(")", "after the number of registers")?;
        } else if !self.at("{") && self.token().tok == crate::lexer::Tok::Word {
            return Err(self.unexpected("`registers(…)` or `{`").into());
        }
        self.skip_newlines();
        self.depth(start)?;
        let header = self.since(start);
        if let Err(error) = self.build.begin_role(name, span, warpgroups, registers) {
            self.report(error)?;
        }
        self.block()?;
        self.build.end(header);
        Ok(())
    }

    /// `produce ab { … }` or `consume ab { … }`; the word is passed.
    pub(super) fn stage(&mut self, side: Side, start: Span) -> Res<()> {
        let pipeline = self.named_pipeline()?;
        self.skip_newlines();
        self.depth(start)?;
        let header = self.since(start);
        self.build.begin_stage(pipeline, side);
        self.block()?;
        self.build.end(header);
        Ok(())
    }

    /// A pipeline's name; `None` after a mistake about it.
    pub(super) fn named_pipeline(&mut self) -> Res<Option<PipelineId>> {
        let pipeline = |named| if let Named::Pipeline(id) = named { Some(id) } else { None };
        let help = "make one of shared tensors first: `p = pipeline(4, sa, sb)`";
        self.named_thing("a pipeline", "a pipeline", pipeline, help)
    }

    /// The thing that a name stands for, of the kind that `pick` takes and `noun` names; `None` after a mistake about it.
    fn named_thing<T>(
        &mut self,
        what: &str,
        noun: &str,
        pick: impl Fn(Named) -> Option<T>,
        help: &str,
    ) -> Res<Option<T>> {
        let (name, span) = self.word(what)?;
        if is_reserved(name) {
            return Err(self.misplaced_word(name, span, what).into());
        }
        let named = match self.build.lookup(name, span, noun) {
            Ok(named) => named,
            Err(error) => {
                self.report(error)?;
                return Ok(None);
            }
        };
        if let Some(found) = pick(named) {
            return Ok(Some(found));
        }
        let is = match named {
            Named::Poisoned => return Ok(None),
            Named::Tensor(_) => "a tensor",
            Named::Param(_) => "a parameter",
            Named::Pipeline(_) => "a pipeline",
            Named::Barrier(_) => "a named barrier",
            Named::Role => "a role",
            Named::Symbol(_) => "an integer",
            Named::Function => "a function",
            Named::Given(given) => self.build.given[given].noun(),
        };
        self.report(mistyped(name, span, is, noun).help(help))?;
        Ok(None)
    }

    /// `(row, col)` of a loop over tiles.
    pub(super) fn counters(&mut self) -> Res<[(&'a str, Span); 2]> {
        self.expect("(", "and the names of a tile's row and column")?;
        let row = self.word("a name for the tile's row")?;
        self.expect(",", "and a name for the tile's column")?;
        let col = self.word("a name for the tile's column")?;
        self.expect(")", "after the name of the tile's column")?;
        Ok([row, col])
    }

    /// `for (row, col) in tiles(rows, cols, order) { … }` or `for (row, col) previous (i, j) in tiles(…) { … } drain { … }`; the `for`
    /// is passed.
    pub(super) fn tiles(&mut self, start: Span) -> Res<()> {
        let mut counters = self.counters()?.to_vec();
        self.refuse_old("after")?;
        if self.eat_word("previous") {
            counters.extend(self.counters()?);
        }
        if !self.eat_word("in") || !self.at_word("tiles") {
            let help = "e.g. `for (row, col) in tiles(ceil_div(m, BM), ceil_div(n, BN), grouped(8)) { … }`";
            return Err(self.unexpected("`in tiles(…)`").help(help).into());
        }
        self.next();
        self.expect("(", "and the numbers of rows and columns")?;
        let rows = self.expr()?;
        self.expect(",", "and the number of columns")?;
        let cols = self.expr()?;
        let (order, dynamic) = self.walk()?;
        self.skip_newlines();
        self.depth(start)?;
        let header = self.since(start);
        for counter in self.build.begin_tiles(&counters, (rows, cols), (order, dynamic)) {
            if let Err(error) = counter {
                self.report(error)?;
            }
        }
        self.block()?;
        self.build.end(header);
        let start = self.span();
        if self.core.is_some() {
            return self.core_drains();
        }
        self.refuse_old("finally")?;
        if !self.eat_word("drain") {
            return Ok(());
        }
        if !self.build.begin_drain() {
            return Err(syntax(
                start,
                "`drain` behind a loop that does not name the previous iteration's tile",
            )
            .related(header, "the loop")
            .help(
                "write `for (row, col) previous (i, j) in tiles(…)`: `drain` knows the last tile as `(i, j)`",
            )
            .into());
        }
        self.skip_newlines();
        self.block()?;
        self.build.end(start);
        Ok(())
    }

    /// An error where the next word is this one, which has another name now.
    fn refuse_old(&self, old: &str) -> Res<()> {
        match renamed_message(Place::Language, old).filter(|_| self.at_word(old)) {
            Some(message) => Err(syntax(self.span(), message).into()),
            None => Ok(()),
        }
    }

    /// `, grouped(12), dynamic = counter)` or `, grouped(12), dynamic)`, of which each may be missing.
    fn walk(&mut self) -> Res<(TileOrder, Option<Dealer>)> {
        let mut order = TileOrder::Grouped { rows: Expr::Int(1), serpentine: false };
        let mut dynamic = None;
        if !self.eat(",") {
            self.expect(")", "after the number of columns, or `,` and an order")?;
            return Ok((order, dynamic));
        }
        self.skip_newlines();
        if !self.at_word("dynamic") && !self.at(")") {
            order = self.order()?;
            self.eat(",");
            self.skip_newlines();
        }
        if self.eat_word("dynamic") {
            dynamic = Some(Dealer::Launch);
            if self.eat("=") {
                let counter = self.named_param("the parameter that counts the tiles")?;
                dynamic = counter.map(Dealer::Counter);
            }
            self.eat(",");
        }
        self.expect(")", "after the order, or `,` and `dynamic` or `dynamic = …`")?;
        Ok((order, dynamic))
    }

    /// `syncgrid(counter)`; the word is passed.
    pub(super) fn sync_grid(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `syncgrid`")?;
        let counter = self.named_param("the parameter by which the blocks meet")?;
        self.expect(")", "after the parameter")?;
        if let Some(counter) = counter {
            let span = self.since(start);
            self.build.emit(StmtKind::SyncGrid { counter }, span);
        }
        Ok(())
    }

    /// A tensor parameter's name; `None` after a mistake about it.
    pub(super) fn named_param(&mut self, what: &str) -> Res<Option<ParamId>> {
        let param = |named| if let Named::Param(id) = named { Some(id) } else { None };
        let help = "name a tensor parameter of type i32 of the kernel, e.g. `next: i32[1]`";
        self.named_thing(what, "a parameter", param, help)
    }

    /// `grouped(12)`, `grouped(12, serpentine)`, `hilbert(3)` or `listed(table)`.
    fn order(&mut self) -> Res<TileOrder> {
        self.refuse_old("bands")?;
        let (word, span) = self.word("`grouped(…)`, `hilbert(…)`, `listed(…)` or `dynamic`")?;
        if !ORDERS.contains(&word) {
            let error = syntax(span, format!("there is no order `{word}` of tiles"))
                .label("expected `grouped`, `hilbert`, `listed` or `dynamic`");
            return Err(match nearest(word, ORDERS.into_iter().chain(["dynamic"])) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help(
                    "there are `grouped(8)`, `grouped(8, serpentine)`, `hilbert(3)` and `listed(table)`; behind them `dynamic` or `dynamic = counter`",
                ),
            }
            .into());
        }
        self.expect("(", &format!("after `{word}`"))?;
        if word == "listed" {
            let table = self.named_param("the parameter that lists the tiles")?;
            self.expect(")", "after the parameter that lists the tiles")?;
            // After a mistake the program is never made.
            return Ok(TileOrder::Listed { table: table.unwrap_or(ParamId(0)) });
        }
        let number = self.expr()?;
        if word == "hilbert" {
            self.expect(")", "after the order of the curve")?;
            return Ok(TileOrder::Hilbert { order: number });
        }
        let serpentine = self.eat(",") && {
            self.refuse_old("snake")?;
            self.eat_word("serpentine")
        };
        self.expect(")", "after the rows of a group, or `, serpentine`")?;
        Ok(TileOrder::Grouped { rows: number, serpentine })
    }
}
