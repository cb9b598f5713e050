//! Meaning of the masks of a run: warnings with a place, the elements, and the number that would be right.

mod short;

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::Memory;

use super::coverage::{Coverage, Found, Number, Seen};
use super::error::InterpretError;
use super::launch::{grid, symbol_values, tensor_shape, tensor_strides};
use short::Short;

use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, SymbolId};
use crate::printer::statement_text;
use crate::program::{
    CopyAttrs, ParamId, ParamKind, Stmt, StmtKind, TensorId, TensorKind, TensorRef, TileOrder,
};
use crate::remedy;
use crate::verified::{GlobalTile, Verified};

/// Ranges of coordinates that a message lists.
const RANGES: usize = 3;

/// A copy from or to a parameter.
struct Site<'a> {
    number: Number,
    stmt: &'a Stmt,
    writes: bool,
    view: TensorId,
    reference: &'a TensorRef,
    tile: GlobalTile,
    /// The loops around, outermost first.
    loops: Vec<Number>,
    /// True if elements of a buffer say where, or how often.
    by_data: bool,
}

struct Report<'a> {
    coverage: &'a Coverage<'a>,
    v: &'a Verified,
    sizes: &'a BTreeMap<String, i64>,
    values: Vec<Option<i64>>,
    grid: [i64; 3],
    sites: Vec<Site<'a>>,
    warnings: Vec<Diagnostic>,
}

impl Site<'_> {
    /// True if the counter by itself indexes a mode of the view.
    fn is_indexed_by(&self, counter: SymbolId) -> bool {
        self.reference.index.contains(&Some(Expr::Symbol(counter)))
    }
}

/// The findings of the masks of a run over these sizes, in the order of the text.
pub(super) fn warnings(
    coverage: &Coverage<'_>,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<Diagnostic>, InterpretError> {
    let v = coverage.v;
    let mut report = Report {
        coverage,
        v,
        sizes,
        values: symbol_values(v, sizes)?,
        grid: grid(v, sizes)?.map(i64::from),
        sites: Vec::new(),
        warnings: Vec::new(),
    };
    let mut number = 0;
    report.collect(&v.program().body, &mut number, &mut Vec::new(), false);
    for i in 0..v.program().params.len() {
        report.param(ParamId(i as u32))?;
    }
    let found = coverage.found();
    report.lost(&found);
    report.sums();
    report.unwritten(&found);
    drop(found);
    report.warnings.sort_by_key(|warning| warning.span.key());
    Ok(report.warnings)
}

/// True if an element of a buffer takes part.
fn by_data(e: &Expr) -> bool {
    match e {
        Expr::Element(..) => true,
        Expr::Binary(_, a, b) => by_data(a) || by_data(b),
        Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) | Expr::Scalar(_) => false,
    }
}

/// Runs of coordinates as text: `64..99`, `32..63, 96..127 and 6 more ranges`.
fn ranges(runs: &[(i64, i64)]) -> String {
    let one = |(first, last): &(i64, i64)| {
        if first == last { first.to_string() } else { format!("{first}..{last}") }
    };
    let shown: Vec<String> = runs.iter().take(RANGES).map(one).collect();
    let more = runs.len().saturating_sub(RANGES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more ranges") };
    format!("{}{more}", shown.join(", "))
}

/// `rows`, `columns`, `elements`, or the number of the mode.
fn mode_text(rank: usize, mode: usize, runs: &[(i64, i64)]) -> String {
    let one = matches!(runs, [(first, last)] if first == last);
    let plural = if one { "" } else { "s" };
    match (rank, mode) {
        (1, _) => format!("element{plural} {}", ranges(runs)),
        (2, 0) => format!("row{plural} {}", ranges(runs)),
        (2, _) => format!("column{plural} {}", ranges(runs)),
        _ => format!("coordinate{plural} {} of mode {mode}", ranges(runs)),
    }
}

fn along(rank: usize, mode: usize) -> String {
    match (rank, mode) {
        (1, _) => "its elements".to_string(),
        (2, 0) => "its rows".to_string(),
        (2, _) => "its columns".to_string(),
        _ => format!("mode {mode}"),
    }
}

/// The elements of a tensor that are marked.
struct Marked {
    shape: Vec<i64>,
    count: i64,
    /// By mode, the runs of coordinates of which every element is marked.
    slices: Vec<Vec<(i64, i64)>>,
    /// By mode, the first and the last coordinate of a marked element.
    bounds: Vec<(i64, i64)>,
    /// True if the slices are all that is marked.
    whole_slices: bool,
}

impl Marked {
    /// Those for which `marked` holds, by their offsets; `None` where it holds for none.
    fn new(shape: &[i64], strides: &[i64], marked: impl Fn(usize) -> bool) -> Option<Marked> {
        let total: i64 = shape.iter().product();
        let mut counts: Vec<Vec<i64>> = shape.iter().map(|n| vec![0; *n as usize]).collect();
        let mut at = vec![0i64; shape.len()];
        let mut offset = 0i64;
        let mut count = 0;
        for _ in 0..total {
            if marked(offset as usize) {
                count += 1;
                at.iter().zip(&mut counts).for_each(|(c, counts)| counts[*c as usize] += 1);
            }
            // The last mode counts fastest.
            for mode in (0..shape.len()).rev() {
                at[mode] += 1;
                offset += strides[mode];
                if at[mode] < shape[mode] {
                    break;
                }
                offset -= strides[mode] * shape[mode];
                at[mode] = 0;
            }
        }
        if count == 0 {
            return None;
        }
        let runs = |full: &dyn Fn(i64) -> bool, extent: i64| {
            let mut runs: Vec<(i64, i64)> = Vec::new();
            for c in (0..extent).filter(|c| full(*c)) {
                match runs.last_mut() {
                    Some((_, last)) if *last + 1 == c => *last = c,
                    _ => runs.push((c, c)),
                }
            }
            runs
        };
        let slices: Vec<Vec<(i64, i64)>> = shape
            .iter()
            .zip(&counts)
            .map(|(extent, counts)| runs(&|c| counts[c as usize] == total / extent, *extent))
            .collect();
        let bounds = counts.iter().map(|counts| {
            let first = counts.iter().position(|n| *n > 0).unwrap_or(0);
            let last = counts.iter().rposition(|n| *n > 0).unwrap_or(0);
            (first as i64, last as i64)
        });
        let outside: i64 = shape
            .iter()
            .zip(&slices)
            .map(|(extent, runs)| extent - runs.iter().map(|(first, last)| last - first + 1).sum::<i64>())
            .product();
        let whole_slices = total - outside == count;
        Some(Marked { shape: shape.to_vec(), count, bounds: bounds.collect(), slices, whole_slices })
    }

    fn all(&self) -> bool {
        self.count == self.shape.iter().product::<i64>()
    }

    fn text(&self) -> String {
        let rank = self.shape.len();
        let list = |modes: Vec<String>, word: &str| modes.join(word);
        if self.whole_slices {
            let modes = self.slices.iter().enumerate().filter(|(_, runs)| !runs.is_empty());
            return list(modes.map(|(mode, runs)| mode_text(rank, mode, runs)).collect(), " and ");
        }
        let within = self.bounds.iter().enumerate().map(|(mode, run)| mode_text(rank, mode, &[*run]));
        let total: i64 = self.bounds.iter().map(|(first, last)| last - first + 1).product();
        let within = list(within.collect(), ", ");
        if total == self.count { within } else { format!("{} elements within {within}", self.count) }
    }

    /// Modes with the runs along them, those that are whole slices first.
    fn runs(&self) -> Vec<(usize, Vec<(i64, i64)>)> {
        let whole = self.slices.iter().cloned().enumerate().filter(|(_, runs)| !runs.is_empty());
        let part = self.bounds.iter().enumerate().map(|(mode, run)| (mode, vec![*run]));
        if self.whole_slices { whole.collect() } else { part.collect() }
    }
}

/// Two copies through different views of the same elements.
fn twins<'s, 'a>(sites: &[&'s Site<'a>]) -> Option<(&'s Site<'a>, &'s Site<'a>)> {
    let same = |a: &Site<'_>, b: &Site<'_>| {
        a.view != b.view && a.tile.base == b.tile.base && a.tile.modes == b.tile.modes && a.loops == b.loops
    };
    sites.iter().enumerate().find_map(|(i, later)| {
        let earlier = sites[..i].iter().find(|earlier| same(earlier, later))?;
        Some((*earlier, *later))
    })
}

/// True if elements of a buffer decide about a `break`.
fn ends_by_data(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break { condition } => by_data(condition),
        StmtKind::If { condition, body, .. } => {
            crate::breaks::in_branch(stmt) && by_data(condition) || ends_by_data(body)
        }
        _ => false,
    })
}

impl<'a> Report<'a> {
    fn collect(&mut self, body: &'a [Stmt], number: &mut Number, loops: &mut Vec<Number>, data: bool) {
        for stmt in body {
            let own = *number;
            *number += 1;
            match &stmt.kind {
                StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. } => {
                    for (reference, writes) in [(src, false), (dst, true)] {
                        self.site(stmt, own, (reference, writes), loops, data);
                    }
                }
                _ => {}
            }
            let data = data
                || match &stmt.kind {
                    StmtKind::For { lo, hi, condition, body, .. } => {
                        by_data(lo)
                            || by_data(hi)
                            || condition.as_ref().is_some_and(by_data)
                            || ends_by_data(body)
                    }
                    StmtKind::If { condition, .. } => by_data(condition),
                    StmtKind::Tiles { rows, cols, order, .. } => {
                        by_data(rows) || by_data(cols) || matches!(order, TileOrder::Listed { .. })
                    }
                    _ => false,
                };
            let repeats = stmt.kind.repeats();
            if repeats {
                loops.push(own);
            }
            self.collect(stmt.kind.body(), number, loops, data);
            if repeats {
                loops.pop();
            }
        }
    }

    fn site(
        &mut self,
        stmt: &'a Stmt,
        number: Number,
        (reference, writes): (&'a TensorRef, bool),
        loops: &[Number],
        data: bool,
    ) {
        if let Some(tile) = self.v.tile(reference).global {
            let by_data = data || tile.indexed.is_some() || tile.base.iter().chain(&tile.shape).any(by_data);
            let (view, loops) = (reference.tensor, loops.to_vec());
            self.sites.push(Site { number, stmt, writes, view, reference, tile, loops, by_data });
        }
    }

    fn warn(&mut self, code: Code, span: Origin, message: String) -> &mut Diagnostic {
        self.warnings.push(Diagnostic::new(code, span, message));
        let last = self.warnings.len() - 1;
        &mut self.warnings[last]
    }

    /// The mistakes with the elements of a parameter.
    fn param(&mut self, id: ParamId) -> Result<(), InterpretError> {
        let row = self.v.program().param(id);
        if !matches!(row.kind, ParamKind::Tensor { .. }) || self.v.counters().contains(&id) {
            return Ok(());
        }
        let (input, output) = (self.v.inputs().contains(&id), self.v.outputs().contains(&id));
        if !input && !output {
            let message = format!("`{}` is neither read nor written", row.name);
            self.warn(Code::PartlyRead, row.span, message).help =
                Some("leave it out, or copy from it or to it".into());
            return Ok(());
        }
        let shape = tensor_shape(self.v, id, self.sizes)?;
        let strides = tensor_strides(self.v, id, self.sizes)?;
        let coverage = self.coverage;
        let seen = &coverage.params[id.0 as usize];
        let sites = |writes: bool| {
            let of = |site: &&Site<'_>| site.tile.param == id && site.writes == writes;
            self.sites.iter().filter(of).map(|site| site.number).collect::<Vec<_>>()
        };
        // Where elements of buffers say what is touched, other elements would touch the rest.
        let by_data = self.sites.iter().any(|site| site.tile.param == id && site.by_data)
            || self.v.elements().contains(&id);
        if !by_data {
            let untouched = |at: usize| !(seen.is_written(at) || (input && seen.is_read(at)));
            if let Some(marked) = Marked::new(&shape, &strides, untouched) {
                self.untouched(id, &marked, output, &sites(output));
            }
        }
        if seen.any_written_again() {
            self.written_again(id, seen, (&shape, &strides));
        }
        Ok(())
    }

    fn untouched(&mut self, id: ParamId, marked: &Marked, output: bool, sites: &[Number]) {
        let name = &self.v.program().param(id).name;
        let (word, code) = match output {
            true => ("written", Code::PartlyWritten),
            false => ("read", Code::PartlyRead),
        };
        let message = match marked.all() {
            true => format!("nothing of `{name}` is {word}"),
            false => format!("`{name}` is not {word} in {}", marked.text()),
        };
        let sites: Vec<&Site<'_>> =
            self.sites.iter().filter(|s| s.writes == output && sites.contains(&s.number)).collect();
        if let Some((earlier, later)) = twins(&sites) {
            let view = |site: &Site<'_>| self.v.program().tensor(site.view);
            let [first, second] = [earlier, later].map(|site| view(site).name.clone());
            let begins = marked.runs().first().and_then(|(mode, runs)| Some((*mode, runs.first()?.0)));
            let way =
                begins.map(|(mode, from)| format!("at {from} along {}", along(marked.shape.len(), mode)));
            let warning = Diagnostic::new(code, later.stmt.span, message)
                .label(format!(
                    "`{second}` is where `{first}` is: both {} the same elements",
                    if output { "write" } else { "read" }
                ))
                .related(earlier.stmt.span, format!("through `{first}`"))
                .related(view(later).span, format!("`{second}` is defined here"))
                .help(format!(
                    "let `{second}` begin elsewhere{}",
                    way.map_or(String::new(), |way| format!(": {way}"))
                ));
            self.warnings.push(warning);
            return;
        }
        if let Some(warning) = self.exchanged(code, &message, &sites) {
            self.once(warning);
            return;
        }
        if let Some(warning) = self.turned(code, &message, &sites) {
            self.once(warning);
            return;
        }
        let reasons: Vec<(&Site<'_>, Short)> = sites
            .iter()
            .flat_map(|site| {
                let runs = marked.runs().into_iter();
                runs.filter_map(|(mode, runs)| {
                    Some((*site, self.short(site, mode, &runs, marked.shape.len())?))
                })
            })
            .collect();
        let Some(place) = reasons.first().map(|(site, _)| *site).or(sites.first().copied()) else { return };
        let (span, view) = (place.stmt.span, &self.v.program().tensor(place.view).name);
        let label = format!("{} `{name}` through `{view}`", if output { "writes" } else { "reads" });
        let mut helps: Vec<String> = Vec::new();
        let mut related: Vec<(Origin, String)> = Vec::new();
        for (_, short) in reasons.into_iter().filter(|(site, _)| site.number == place.number) {
            if !helps.contains(&short.help) {
                helps.push(short.help);
                related.extend(short.place);
            }
        }
        let warning = self.warn(code, span, message);
        warning.label = label;
        warning.related = related;
        warning.help = Some(helps.join("; ")).filter(|help| !help.is_empty());
    }

    /// The warning about counters that are exchanged, if these copies do not get to some elements since two of the loops around are.
    fn exchanged(&self, code: Code, message: &str, sites: &[&Site<'_>]) -> Option<Diagnostic> {
        let around = |pair: &remedy::Exchanged<'_>| {
            sites.iter().any(|site| pair.counters.iter().any(|counter| site.is_indexed_by(*counter)))
        };
        let pair = remedy::exchanged(self.v).into_iter().find(around)?;
        let (first, others) = pair.loops.split_first()?;
        let mut warning = Diagnostic::new(code, first.span, message).label(pair.message()).help(pair.help());
        for other in others {
            warning = warning.related(other.span, "and this loop");
        }
        for site in sites {
            let text = if site.writes { "writes through" } else { "reads through" };
            let view = &self.v.program().tensor(site.view).name;
            warning = warning.related(site.stmt.span, format!("{text} `{view}`"));
        }
        Some(warning)
    }

    /// The warning about a view that has the quotient of a block's number for the remainder.
    fn turned(&self, code: Code, message: &str, sites: &[&Site<'_>]) -> Option<Diagnostic> {
        let value = |e: &Expr| self.value(e);
        let turned = remedy::turned(self.v, &[&value]);
        let view = turned.into_iter().find(|view| sites.iter().any(|site| site.view == view.view))?;
        let place = self.v.program().tensor(view.view).span;
        Some(Diagnostic::new(code, place, message).label(view.message(self.v)).help(view.help()))
    }

    /// Says a mistake at one place once, with all that it leads to.
    fn once(&mut self, warning: Diagnostic) {
        let same = |other: &&mut Diagnostic| other.span == warning.span && other.help == warning.help;
        let Some(before) = self.warnings.iter_mut().find(same) else {
            self.warnings.push(warning);
            return;
        };
        // Elements that nothing writes are the worse, and come first.
        let mut all = [before.message.clone(), warning.message];
        if warning.code == Code::PartlyWritten && before.code != warning.code {
            before.code = warning.code;
            all.reverse();
        }
        before.message = all.join(", and ");
        before.related.extend(warning.related);
    }

    fn written_again(&mut self, id: ParamId, seen: &Seen, (shape, strides): (&[i64], &[i64])) {
        let numbers: BTreeSet<Number> = self
            .sites
            .iter()
            .filter(|site| site.writes && site.tile.param == id)
            .map(|site| site.number)
            .collect();
        for number in numbers {
            let by = |at: usize| seen.written_again(at) == Some(number);
            let Some(marked) = Marked::new(shape, strides, by) else { continue };
            let name = &self.v.program().param(id).name;
            let text = if marked.all() { "everywhere".to_string() } else { format!("in {}", marked.text()) };
            let message = format!("`{name}` is written more than once {text}, with different values");
            let stmt = self.coverage.stmts[number];
            let site = self.sites.iter().find(|site| site.writes && site.number == number);
            let help = site.and_then(|site| self.repeated(site));
            let warning = self.warn(Code::WrittenAgain, stmt.span, message);
            warning.label = "writes over what another round or block wrote".to_string();
            warning.help = help;
        }
    }

    /// Results that are overwritten before anything reads them.
    fn lost(&mut self, found: &Found) {
        for ((first, second, tensor), count) in &found.lost {
            if self.may_be_read_between(*first, *second, *tensor) {
                continue;
            }
            if self.never_read(*second, *tensor, *count) {
                continue;
            }
            let program = self.v.program();
            let [before, after] = [*first, *second].map(|number| self.coverage.stmts[number]);
            let name = &program.tensors[self.coverage.whole(*tensor)].name;
            let (before_text, after_text) = (statement_text(program, before), statement_text(program, after));
            let times = if *count == 1 { "once".to_string() } else { format!("{count} times") };
            let message = format!(
                "`{after_text}` overwrites what `{before_text}` left in `{name}` before anything reads it ({times})"
            );
            let product = matches!(before.kind, StmtKind::Gemm { .. } | StmtKind::GemmAsync { .. });
            let help = match &after.kind {
                StmtKind::Fill { .. } if product => "fill the sums before the loop that adds to them",
                _ => "read it first, or leave the first statement out",
            };
            let (here, there) = (after.span, before.span);
            let warning = self.warn(Code::OverwrittenUnread, here, message);
            warning.label = "overwrites it".to_string();
            warning.related = vec![(there, "what is lost".to_string())];
            warning.help = Some(help.to_string());
        }
    }

    /// Warns of a shared tensor that no statement reads; beside a copy that reads another of its shape a second time, which is likely
    /// meant for it. False of any other tensor.
    fn never_read(&mut self, writer: Number, tensor: usize, count: u64) -> bool {
        let program = self.v.program();
        let whole = self.coverage.whole(tensor);
        let row = &program.tensors[whole];
        let reads = |stmt: &Stmt| self.coverage.reads(stmt, tensor);
        if row.memory() != Memory::Shared || self.coverage.stmts.iter().any(|stmt| reads(stmt)) {
            return false;
        }
        let id = TensorId(whole as u32);
        let mut sources: Vec<&TensorRef> = Vec::new();
        let mut twice = None;
        for stmt in &self.coverage.stmts {
            let StmtKind::Copy { src, dst, .. } = &stmt.kind else { continue };
            let other = program.tensor(src.tensor);
            let alike = other.memory() == Memory::Shared
                && other.dtype == row.dtype
                && self.v.shape(src.tensor) == self.v.shape(id)
                && program.tensor(dst.tensor).memory() == Memory::Register;
            if alike && sources.contains(&src) {
                let meant = TensorRef { tensor: id, ..src.clone() };
                let meant = StmtKind::Copy { src: meant, dst: dst.clone(), how: CopyAttrs::default() };
                let meant = Stmt { kind: meant, ..(**stmt).clone() };
                twice = twice.or(Some((stmt.span, other.name.clone(), statement_text(program, &meant))));
            }
            sources.extend(alike.then_some(src));
        }
        let (name, span) = (row.name.clone(), self.coverage.stmts[writer].span);
        let left = format!("nothing reads what this leaves in `{name}`");
        if let Some((place, other, meant)) = twice {
            let message = format!("nothing reads `{name}`, and this reads `{other}` a second time");
            let warning = self.warn(Code::OverwrittenUnread, place, message);
            warning.label = format!("reads `{other}` again");
            warning.related = vec![(span, left)];
            warning.help = Some(format!("read `{name}` here: `{meant}`"));
        } else {
            let times = if count == 1 { "once".to_string() } else { format!("{count} times") };
            let message = format!("nothing reads `{name}`, which is overwritten {times}");
            let warning = self.warn(Code::OverwrittenUnread, span, message);
            warning.label = left;
            warning.help = Some(format!("read `{name}` where it is meant, or leave it out"));
        }
        true
    }

    /// True if a statement on the way from one to another may read the tensor, in a loop that did not run at these sizes perhaps.
    fn may_be_read_between(&self, first: Number, second: Number, tensor: usize) -> bool {
        let stmts = &self.coverage.stmts;
        let len = |number: Number| -> usize {
            fn count(stmt: &Stmt) -> usize {
                1 + stmt.kind.body().iter().map(count).sum::<usize>()
            }
            count(stmts[number])
        };
        // Those around: a statement's own number is followed by those of its body.
        let around = |number: Number| -> Vec<Number> {
            let repeats = |n: &Number| stmts[*n].kind.repeats() && (*n..*n + len(*n)).contains(&number);
            (0..number).filter(repeats).collect()
        };
        let (outer, inner) = (around(second), around(first));
        let mut between: BTreeSet<Number> = BTreeSet::new();
        for loops in inner.iter().filter(|n| !outer.contains(n)) {
            between.extend(*loops..*loops + len(*loops));
        }
        match inner.iter().rev().find(|n| outer.contains(n)) {
            _ if first < second => between.extend(first..second),
            Some(common) => {
                between.extend((*common..*common + len(*common)).filter(|n| *n > first || *n < second))
            }
            None => return true,
        }
        let others = between.into_iter().filter(|n| *n != first && *n != second);
        others.into_iter().any(|n| self.coverage.reads(stmts[n], tensor))
    }

    /// Products that nothing reads.
    fn sums(&mut self) {
        let stmts = &self.coverage.stmts;
        let mut unread: BTreeMap<usize, Number> = BTreeMap::new();
        for (number, stmt) in stmts.iter().enumerate() {
            if let StmtKind::Gemm { c, .. } | StmtKind::GemmAsync { c, .. } = &stmt.kind {
                unread.entry(self.coverage.whole(c.0 as usize)).or_insert(number);
            }
        }
        // What is put together over the cluster, or only shown, is not used.
        let uses = |stmt: &Stmt| {
            !matches!(
                stmt.kind,
                StmtKind::ClusterReduce { .. } | StmtKind::ClusterCombine { .. } | StmtKind::Print { .. }
            )
        };
        for stmt in stmts.iter().filter(|stmt| uses(stmt)) {
            let own = match &stmt.kind {
                StmtKind::Gemm { c, .. } | StmtKind::GemmAsync { c, .. } => Some(*c),
                _ => None,
            };
            for id in stmt.kind.reads().into_iter().filter(|id| own != Some(*id)) {
                unread.remove(&self.coverage.whole(id.0 as usize));
            }
        }
        for (tensor, number) in unread {
            let name = &self.v.program().tensors[tensor].name;
            let (message, span) = (format!("nothing reads the sums in `{name}`"), stmts[number].span);
            let warning = self.warn(Code::OverwrittenUnread, span, message);
            warning.label = "adds to them".to_string();
            warning.help = Some(format!("copy `{name}` to where the result belongs"));
        }
    }

    /// Reads of what nothing had written.
    fn unwritten(&mut self, found: &Found) {
        for ((number, tensor), places) in &found.unwritten {
            let whole = self.coverage.whole(*tensor);
            let program = self.v.program();
            let name = &program.tensors[whole].name;
            let shape = self.v.shape(TensorId(whole as u32));
            // The leftmost mode counts fastest.
            let strides: Vec<i64> =
                shape.iter().scan(1, |stride, n| Some(std::mem::replace(stride, *stride * n))).collect();
            let marked =
                Marked::new(&shape, &strides, |at| whole == *tensor && places.get(at) == Some(&true));
            let text = match &marked {
                Some(marked) if !marked.all() => format!("in {} ", marked.text()),
                _ => String::new(),
            };
            let stmt = self.coverage.stmts[*number];
            let statement = statement_text(program, stmt);
            let message = format!(
                "`{statement}` reads `{name}` {text}before anything has written it, and an output depends on that"
            );
            let (span, written) = (stmt.span, program.tensors[whole].span);
            let round = remedy::new_each_round(self.v, TensorId(whole as u32));
            let (about, help) = match round {
                Some(round) => (format!("a new tensor in each round of `{}`", round.counter), round.help),
                None => (
                    "holds anything until it is written".to_string(),
                    format!("write all of `{name}` before it is read"),
                ),
            };
            let warning = self.warn(Code::ReadUnwritten, span, message);
            warning.label = "reads what nothing has written".to_string();
            warning.related = vec![(written, about)];
            warning.help = Some(help);
        }
    }
}

impl Coverage<'_> {
    /// The register tensor that a tensor is a part of, or itself.
    pub(super) fn whole(&self, tensor: usize) -> usize {
        match self.v.program().tensors.get(tensor).map(|t| &t.kind) {
            Some(TensorKind::Part { of, .. }) => of.0 as usize,
            _ => tensor,
        }
    }

    /// True if the statement reads the tensor, or a part of it.
    pub(super) fn reads(&self, stmt: &Stmt, tensor: usize) -> bool {
        // A product reads what it adds to.
        let own = match &stmt.kind {
            StmtKind::Gemm { c, .. } | StmtKind::GemmAsync { c, .. } => Some(*c),
            _ => None,
        };
        let is = |id: &crate::TensorId| self.whole(id.0 as usize) == self.whole(tensor);
        stmt.kind.reads().iter().any(|id| is(id) && own != Some(*id)) || own.as_ref().is_some_and(is)
    }
}
