//! Races of two writes: elements that several blocks, iterations, rows or statements write.

use std::collections::BTreeSet;

use tilewright_machine::Memory;
use tilewright_tile::core::{Coord, StmtKind, TensorKind};
use tilewright_tile::{Code, Diagnostic, Expr, SymbolId};

use super::clash::{Between, Clash, actor};
use super::reader::Reader;

/// Integers on which the place of a tile depends.
#[derive(Default)]
struct Depends {
    axes: BTreeSet<usize>,
    symbols: BTreeSet<SymbolId>,
}

impl Depends {
    fn add(&mut self, e: &Expr) {
        match e {
            Expr::Block(axis) => _ = self.axes.insert(axis.index()),
            Expr::Symbol(symbol) => _ = self.symbols.insert(*symbol),
            Expr::Binary(_, a, b) => {
                self.add(a);
                self.add(b);
            }
            Expr::Element(_, index) => index.iter().for_each(|e| self.add(e)),
            Expr::Int(_) | Expr::Scalar(_) => {}
        }
    }
}

/// The message of a race of two writes.
pub(super) fn message(reader: &Reader<'_>, clash: &Clash<'_>) -> Diagnostic {
    let tensor = &clash.race.buffer;
    let [first, second] = clash.parties();
    let [a, b] = [first, second].map(|p| reader.statements.said(p.position, &p.origin));
    let who = match clash.between {
        Between::Threads => "several threads",
        Between::Roles => "several roles",
        Between::Cluster => "several blocks of the cluster",
        Between::Blocks => "several blocks",
    };
    let actors = [first, second].map(|p| actor(reader, clash.between, p));
    if clash.is_alone() {
        let message = format!(
            "race on `{tensor}`: {who} write the same elements in `{b}`, and which value stays is open"
        );
        let label = format!("{} and {} write them", actors[0], actors[1]);
        return Diagnostic::new(Code::Race, clash.places[1], message).label(label).help(alone(reader, clash));
    }
    let message = format!(
        "race on `{tensor}`: {who} write the same elements, in `{a}` and in `{b}`, and which value stays is open"
    );
    Diagnostic::new(Code::Race, clash.places[1], message)
        .label(format!("{} writes them", actors[1]))
        .related(clash.places[0], format!("{} writes them", actors[0]))
        .help(two(reader, clash))
}

/// The remedy of a statement that writes elements more than once.
fn alone(reader: &Reader<'_>, clash: &Clash<'_>) -> String {
    let tensor = &clash.race.buffer;
    let add = format!("if the results are to be added, `copy(…, {tensor}, add)`");
    let Some(number) = clash.numbers[1] else { return format!("let each element be written once; {add}") };
    let core = &reader.kernel.core;
    let Some(reference) = reader.statements.written_by(number) else {
        return format!("let each element be written once; {add}");
    };
    if let Some(indexed) = &reference.indexed {
        let by = &core.tensor(indexed.by).name;
        return format!("`{by}` sends several rows to one place: let its elements differ; {add}");
    }
    let view = &core.tensor(reference.tensor).name;
    let depends = depends(reader, number);
    let [a, b] = [clash.race.first.block, clash.race.second.block];
    let axis = |i: &usize| ["block.x", "block.y", "block.z"][*i];
    let differ: Vec<usize> = (0..3).filter(|i| a[*i] != b[*i]).collect();
    if clash.between >= Between::Cluster {
        if let Some(missing) = differ.iter().find(|i| !depends.axes.contains(i)) {
            let axis = axis(missing);
            return format!(
                "the place that it writes does not depend on `{axis}`, in which these blocks differ: let `{view}` begin at a tile of its own \
                 for each `{axis}`, or leave that extent out of the grid; {}",
                if core.tensor(reference.tensor).memory() == Memory::Global {
                    format!("if the blocks' results are to be added, `copy(…, {view}, add)`")
                } else {
                    add
                }
            );
        }
        return format!(
            "the tiles of these blocks overlap: let the step from block to block be the length of the tile, in `{view}` and in the grid"
        );
    }
    let site = reader.statements.site(number);
    let missing = site.around.iter().rev().find_map(|(_, stmt)| match &stmt.kind {
        StmtKind::For { counter, .. } if !depends.symbols.contains(counter) => Some((*stmt, *counter)),
        _ => None,
    });
    if let Some((stmt, counter)) = missing {
        return format!(
            "every round of {} writes the same place: index `{view}` by `{}`, or write once behind the loop; a barrier would only hide it",
            reader.statements.loop_words(stmt),
            core.symbol(counter).name
        );
    }
    format!(
        "the tiles that it writes overlap: let the step of `{view}` from tile to tile be the length of the tile; a barrier would only hide it"
    )
}

/// The integers on which the place that a statement writes depends.
fn depends(reader: &Reader<'_>, number: usize) -> Depends {
    let mut depends = Depends::default();
    let Some(reference) = reader.statements.written_by(number) else { return depends };
    for entry in reference.index.iter().flatten() {
        if let Coord::Expr(e) = entry {
            depends.add(e);
        }
    }
    if let TensorKind::View { offsets, ends, .. } = &reader.kernel.core.tensor(reference.tensor).kind {
        offsets.iter().chain(ends.iter().flatten()).for_each(|e| depends.add(e));
    }
    depends
}

/// The remedy of two statements that write the same elements.
fn two(reader: &Reader<'_>, clash: &Clash<'_>) -> String {
    let tensor = &clash.race.buffer;
    let [a, b] = clash.parties().map(|p| reader.statements.said(p.position, &p.origin));
    match clash.between {
        Between::Threads => format!(
            "let each write a place of its own; if `{b}` is meant to replace what `{a}` has written, put `syncthreads()` between"
        ),
        Between::Roles => "let each role write a place of its own, or let one come behind the other by a named barrier (`arrive(b)`, `syncthreads(b)`)"
            .to_string(),
        Between::Cluster | Between::Blocks => format!(
            "let one block write these elements of `{tensor}`; results of several are added by `copy(…, add)`, or combined in a second kernel"
        ),
    }
}
