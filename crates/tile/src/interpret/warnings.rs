//! Meaning of the masks of a run: warnings with a place, the elements, and the number that would be right.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::Memory;

use super::coverage::{Coverage, Found, Number, Seen};
use super::error::InterpretError;
use super::launch::{grid, symbol_values, tensor_shape, tensor_strides};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Axis, Expr, Scope, SymbolId};
use crate::printer::{expr_text, statement_text};
use crate::program::{
    CopyAttrs, ParamId, ParamKind, Stmt, StmtKind, TensorId, TensorKind, TensorRef, TileOrder,
};
use crate::verified::{GlobalTile, Verified};

/// Ranges of coordinates that a message lists.
const RANGES: usize = 3;

/// A reason why a tile moves along its buffer.
#[derive(Clone)]
enum Mover {
    /// The blocks of the grid.
    Grid(Axis),
    /// A loop's iterations; the statement that it is.
    Loop(SymbolId, Number),
}

/// A copy from or to a parameter.
struct Site<'a> {
    number: Number,
    stmt: &'a Stmt,
    writes: bool,
    view: TensorId,
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

/// The values of expressions at one block and in one iteration of each loop.
struct Point<'a> {
    values: &'a [Option<i64>],
    block: [i64; 3],
    counters: BTreeMap<SymbolId, i64>,
}

impl Scope for Point<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.counters.get(&id).copied().or(self.values.get(id.0 as usize).copied().flatten())
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(self.block[axis.index()])
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

fn uses(e: &Expr, mover: &Mover) -> bool {
    match (e, mover) {
        (Expr::Binary(_, a, b), _) => uses(a, mover) || uses(b, mover),
        (Expr::Element(_, index), _) => index.iter().any(|e| uses(e, mover)),
        (Expr::Block(axis), Mover::Grid(own)) => axis == own,
        (Expr::Symbol(id), Mover::Loop(own, _)) => id == own,
        _ => false,
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
        (reference, writes): (&TensorRef, bool),
        loops: &[Number],
        data: bool,
    ) {
        if let Some(tile) = self.v.tile(reference).global {
            let by_data = data || tile.indexed.is_some() || tile.base.iter().chain(&tile.shape).any(by_data);
            let (view, loops) = (reference.tensor, loops.to_vec());
            self.sites.push(Site { number, stmt, writes, view, tile, loops, by_data });
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

    /// The movers of tiles: the grid, and the loops around a statement, outermost first, each with how often. A loop whose bounds depend
    /// on those around it counts as often as in their first or last iteration, whichever is more.
    fn movers(&self, site: &Site<'_>) -> Vec<(Mover, i64, i64)> {
        let (mut point, mut end) = (self.origin(), self.origin());
        let grid = [Axis::X, Axis::Y, Axis::Z].map(|axis| (Mover::Grid(axis), 0, self.grid[axis.index()]));
        let mut movers = grid.to_vec();
        for number in &site.loops {
            let counted = match &self.coverage.stmts[*number].kind {
                StmtKind::For { counter, lo, hi, .. } => vec![(*counter, lo.clone(), hi.clone())],
                StmtKind::Tiles { row, col, rows, cols, previous, .. } => {
                    let mut all =
                        vec![(*row, Expr::Int(0), rows.clone()), (*col, Expr::Int(0), cols.clone())];
                    let earlier = previous.map(|[p, q]| [(p, rows.clone()), (q, cols.clone())]);
                    all.extend(earlier.into_iter().flatten().map(|(id, end)| (id, Expr::Int(0), end)));
                    all
                }
                _ => Vec::new(),
            };
            for (id, lo, hi) in counted {
                let bounds = |at: &Point<'_>| (lo.eval(at).unwrap_or(0), hi.eval(at).unwrap_or(0));
                let ((first, stop), (late, last)) = (bounds(&point), bounds(&end));
                point.counters.insert(id, first);
                end.counters.insert(id, (last - 1).max(late));
                movers.push((Mover::Loop(id, *number), first, (stop - first).max(last - late)));
            }
        }
        movers
    }

    fn origin(&self) -> Point<'_> {
        Point { values: &self.values, block: [0; 3], counters: BTreeMap::new() }
    }

    /// The position of a tile along a mode of its buffer, and what moves it.
    fn reach(&self, site: &Site<'_>, mode: usize) -> Option<Reach> {
        let movers = self.movers(site);
        let at = |moved: Option<&Mover>| {
            let mut point = self.origin();
            for (mover, first, _) in &movers {
                let here = match (mover, moved) {
                    (Mover::Grid(a), Some(Mover::Grid(b))) => a == b,
                    (Mover::Loop(a, _), Some(Mover::Loop(b, _))) => a == b,
                    _ => false,
                };
                match mover {
                    Mover::Grid(axis) => point.block[axis.index()] = i64::from(here),
                    Mover::Loop(id, _) => {
                        point.counters.insert(*id, first + i64::from(here));
                    }
                }
            }
            site.tile.base[mode].eval(&point)
        };
        let first = at(None)?;
        let leaves = site.tile.modes.iter().flatten().filter(|(n, dim, _)| *dim as usize == mode && *n > 1);
        let mut moves: Vec<(Option<Mover>, i64, i64)> =
            leaves.map(|(n, _, scale)| (None, *scale, *n)).collect();
        for (mover, _, count) in &movers {
            if uses(&site.tile.base[mode], mover) {
                moves.push((Some(mover.clone()), at(Some(mover))? - first, *count));
            }
        }
        moves.sort_by_key(|(_, step, _)| *step);
        let bound = site.tile.shape[mode].eval(&self.origin())?;
        Some(Reach { first, moves, bound })
    }

    /// The reason why a statement does not get to these coordinates of a mode, and what would reach them.
    fn short(&self, site: &Site<'_>, mode: usize, runs: &[(i64, i64)], rank: usize) -> Option<Short> {
        let Reach { first, moves, bound } = self.reach(site, mode)?;
        let (from, to) = (runs.first()?.0, runs.last()?.1);
        let way = along(rank, mode);
        let mut covered = 1;
        // A step that is longer than what lies between.
        for (mover, step, count) in &moves {
            if *step > covered && *count > 1 {
                let (name, place) = match mover {
                    Some(mover) => (self.name(mover), self.place(mover)),
                    None => (self.v.program().tensor(site.view).name.clone(), None),
                };
                let help = format!(
                    "`{name}` steps by {step} along {way}, and a step covers {covered}: a step of {covered} leaves out nothing"
                );
                return Some(Short { help, place });
            }
            covered += step.max(&0) * (count - 1).max(0);
        }
        if moves.iter().all(|(mover, _, _)| mover.is_none()) {
            let unused = self.movers(site).into_iter().find(|(mover, _, count)| {
                let moves = |site: &Site<'_>| site.tile.base.iter().any(|base| uses(base, mover));
                *count > 1 && matches!(mover, Mover::Grid(_)) && !moves(site)
            });
            let unused = unused.map(|(mover, _, count)| (self.name(&mover), count));
            let unused = unused.map_or(String::new(), |(name, count)| {
                format!("; the grid has {count} blocks along `{name}`, which it does not use")
            });
            let last = first + covered - 1;
            let help = format!("it covers {first}..{last} of {way}, and nothing moves it along them{unused}");
            return Some(Short { help, place: None });
        }
        if from < first && to < first {
            return Some(Short { help: format!("it begins at {first} of {way}"), place: None });
        }
        if first + covered >= bound {
            return None;
        }
        // The longest step has too few iterations.
        let (mover, step, count) = moves.last().filter(|(_, step, _)| *step > 0)?;
        let mover = mover.as_ref()?;
        let inner = covered - step * (count - 1).max(0);
        let need = (bound - first - inner + step - 1).div_euclid(*step) + 1;
        let name = self.name(mover);
        let (has, place) = match mover {
            Mover::Grid(axis) => (
                format!("the grid has {count}"),
                (self.v.program().grid_span, format!("{count} along {}", ["x", "y", "z"][axis.index()])),
            ),
            Mover::Loop(_, number) => {
                let stmt = self.coverage.stmts[*number];
                (format!("the loop over `{name}` has {count}"), (stmt.span, format!("{count} rounds")))
            }
        };
        let plain = (bound + step - 1).div_euclid(*step) == need && first == 0;
        let text = self.count_text(site, mode, *step).filter(|_| plain);
        let help = match text {
            Some(text) => format!("`{text}` is {need}, and {has}"),
            None => format!("{need} would reach the end of {way}, and {has}"),
        };
        Some(Short { help, place: Some(place).filter(|(span, _)| !span.is_unknown()) })
    }

    /// The number of steps of a mode, in the program's names: `ceil_div(m, BM)`.
    fn count_text(&self, site: &Site<'_>, mode: usize, step: i64) -> Option<String> {
        let source = &self.v.source;
        let ParamKind::Tensor { shape, .. } = &source.param(site.tile.param).kind else { return None };
        let extent = expr_text(&**source, shape.get(mode)?);
        let constant = |id: SymbolId| self.v.constants().get(&source.symbol(id).name).copied().map(Expr::Int);
        let is_step = |e: &&Expr| e.substitute(&constant).as_int() == Some(step);
        let TensorKind::View { offsets, modes, .. } = &source.tensor(site.view).kind else { return None };
        let mut factors = Vec::new();
        factors_of(offsets.get(mode)?, &mut factors);
        let leaves = modes.iter().flat_map(|m| &m.leaves).filter(|leaf| leaf.dim as usize == mode);
        let scales: Vec<&Expr> = leaves.map(|leaf| &leaf.scale).collect();
        let step = factors
            .into_iter()
            .chain(scales)
            .find(is_step)
            .map_or(step.to_string(), |e| expr_text(&**source, e));
        Some(if step == "1" { extent } else { format!("ceil_div({extent}, {step})") })
    }

    fn name(&self, mover: &Mover) -> String {
        match mover {
            Mover::Grid(axis) => format!("block.{}", ["x", "y", "z"][axis.index()]),
            Mover::Loop(id, _) => self.v.program().symbol(*id).name.clone(),
        }
    }

    fn place(&self, mover: &Mover) -> Option<(Origin, String)> {
        let Mover::Loop(_, number) = mover else { return None };
        let span = self.coverage.stmts[*number].span;
        (!span.is_unknown()).then(|| (span, "this loop".to_string()))
    }

    /// The reason why a statement writes elements again: what does not move it, or moves it by less than it writes.
    fn repeated(&self, site: &Site<'_>) -> Option<String> {
        let rank = site.tile.base.len();
        for (mover, _, count) in self.movers(site).into_iter().filter(|(_, _, count)| *count > 1) {
            let tiles = |site: &Site<'_>| {
                site.loops.iter().any(|n| matches!(self.coverage.stmts[*n].kind, StmtKind::Tiles { .. }))
            };
            // The blocks of a loop over tiles share out its tiles.
            if matches!(mover, Mover::Grid(_)) && tiles(site) {
                continue;
            }
            if !site.tile.base.iter().any(|base| uses(base, &mover)) {
                let name = self.name(&mover);
                return Some(match mover {
                    Mover::Grid(_) => format!(
                        "the grid has {count} along `{name}`, and where it writes does not depend on that"
                    ),
                    Mover::Loop(..) => format!(
                        "the loop over `{name}` has {count} rounds, and where it writes does not depend on that"
                    ),
                });
            }
        }
        for mode in 0..rank {
            let reach = self.reach(site, mode)?;
            let mut covered = 1;
            for (mover, step, count) in &reach.moves {
                if let Some(mover) = mover
                    && *step > 0
                    && *step < covered
                    && *count > 1
                {
                    let (name, way) = (self.name(mover), along(rank, mode));
                    return Some(format!(
                        "`{name}` steps by {step} along {way}, and a step writes {covered}"
                    ));
                }
                covered += step.max(&0) * (count - 1).max(0);
            }
        }
        // A loop whose number of iterations differs.
        let open = |(mover, _, _): &(Mover, i64, i64)| {
            matches!(mover, Mover::Loop(..)) && !site.tile.base.iter().any(|base| uses(base, mover))
        };
        self.movers(site).into_iter().rev().find(open).map(|(mover, _, _)| {
            format!("where it writes does not depend on the loop over `{}`", self.name(&mover))
        })
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
            let help = format!("write all of `{name}` before it is read");
            let warning = self.warn(Code::ReadUnwritten, span, message);
            warning.label = "reads what nothing has written".to_string();
            warning.related = vec![(written, "holds anything until it is written".to_string())];
            warning.help = Some(help);
        }
    }
}

/// The number that would be right, and the place that is short of it.
struct Short {
    help: String,
    place: Option<(Origin, String)>,
}

/// The position of a tile along a mode of its buffer, and its movement.
struct Reach {
    first: i64,
    /// Movers with the elements of a step and the number of steps; the view's own modes have no mover. The longest step is the last.
    moves: Vec<(Option<Mover>, i64, i64)>,
    /// The end of the buffer, or of the view of it.
    bound: i64,
}

/// Both sides of every product in an expression.
fn factors_of<'a>(e: &'a Expr, found: &mut Vec<&'a Expr>) {
    if let Expr::Binary(op, a, b) = e {
        if *op == crate::expr::IntOp::Mul {
            found.extend([&**a, &**b]);
        }
        factors_of(a, found);
        factors_of(b, found);
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
