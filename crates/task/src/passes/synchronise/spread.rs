//! Questions about spreads: which processors touch which elements, and who must wait for whom.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Memory, Processor};

use crate::graph::{Access, Edge, Graph, Index, Spread, Why};
use crate::piece::{Affine, Piece, Vars};

/// Elements that are followed one by one.
const ELEMENTS: i64 = 1 << 16;

/// The index of an edge's event, a level of processors each: `Own` as long as no two different processors of the level touch a common element
/// through both ends (of what is read it is enough that each finds it among what it wrote itself), then `All`. Empty where the ends have no
/// spread. The law: no implementation with these spreads can synchronise less.
pub fn event(graph: &Graph, edge: &Edge) -> Vec<Index> {
    let (from, to) = (graph.node(edge.from), graph.node(edge.to));
    let mut index: Option<Vec<Index>> = None;
    for first in &from.accesses {
        for second in &to.accesses {
            let conflict = first.replica == second.replica
                && first.object == second.object
                && (first.writes || second.writes);
            if !conflict {
                continue;
            }
            let (first, second) = (spread_of(graph, first), spread_of(graph, second));
            if first.spread.is_empty() && second.spread.is_empty() {
                continue;
            }
            let between = between(graph, &first, &second, edge.why);
            index = Some(match index {
                None => between,
                Some(index) => both(&index, &between),
            });
        }
    }
    index.unwrap_or_default()
}

/// The access with the spread of its place, where synthesis decides its own: registers are used as they are held.
fn spread_of(graph: &Graph, access: &Access) -> Access {
    let mut access = access.clone();
    let place = access.replica.map(|replica| graph.replica(replica));
    if let Some(place) = place
        && access.spread.is_empty()
        && place.memory == Some(Memory::Register)
        && place.piece.same(&access.piece)
    {
        access.spread = place.spread.clone();
    }
    access
}

/// The levels of a spread, outermost first.
fn levels(spread: &Spread) -> Vec<Processor> {
    spread.iter().map(|(level, _)| *level).collect()
}

/// The index that waits for what either waits for.
fn both(a: &[Index], b: &[Index]) -> Vec<Index> {
    let longer = a.len().max(b.len());
    let at = |index: &[Index], k: usize| index.get(k).copied().unwrap_or(Index::All);
    let mut out = Vec::with_capacity(longer);
    for k in 0..longer {
        let all = out.last() == Some(&Index::All);
        let own = !all && at(a, k) == Index::Own && at(b, k) == Index::Own;
        out.push(if own { Index::Own } else { Index::All });
    }
    out
}

fn between(graph: &Graph, first: &Access, second: &Access, why: Why) -> Vec<Index> {
    let all = levels(if first.spread.len() >= second.spread.len() { &first.spread } else { &second.spread });
    let waits = || vec![Index::All; all.len()];
    if levels(&first.spread) != levels(&second.spread) || !first.piece.same(&second.piece) {
        return waits();
    }
    if first.spread == second.spread && why == Why::True {
        return vec![Index::Own; all.len()];
    }
    let vars = &graph.tree.vars;
    let (Some(writers), Some(readers)) =
        (touched(&first.piece, &first.spread, vars), touched(&second.piece, &second.spread, vars))
    else {
        return waits();
    };
    // How many levels, from the outermost, the processors at every common element agree on.
    let agree = |a: &[i64], b: &[i64]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let mut depth = all.len();
    for (element, these) in &readers {
        for reader in these {
            let Some(those) = writers.get(element) else { continue };
            let shared = those.iter().map(|writer| agree(writer, reader));
            let shared = if why == Why::True { shared.max() } else { shared.min() };
            depth = depth.min(shared.unwrap_or(all.len()));
        }
    }
    (0..all.len()).map(|level| if level < depth { Index::Own } else { Index::All }).collect()
}

/// The processors that touch each point of a piece under a spread; nothing where there are too many, or an extent is not known.
fn touched(piece: &Piece, spread: &Spread, vars: &Vars) -> Option<BTreeMap<Vec<i64>, BTreeSet<Vec<i64>>>> {
    if piece.size()? > ELEMENTS {
        return None;
    }
    let mut parts: Vec<(Vec<i64>, Piece)> = vec![(Vec::new(), Piece::whole(piece.shape()))];
    let mut vars = vars.clone();
    for (_, partition) in spread {
        let extents: Vec<i64> = partition.colours().into_iter().collect::<Option<_>>()?;
        // One mode of colours counts processors; the others have one colour.
        let mode = extents.iter().position(|extent| *extent > 1).unwrap_or(0);
        let count = *extents.get(mode)?;
        let mut finer = Vec::with_capacity(parts.len() * count as usize);
        for (processors, part) in parts {
            for at in 0..count {
                let colours: Vec<Affine> =
                    (0..extents.len()).map(|k| Affine::constant(if k == mode { at } else { 0 })).collect();
                let piece = part.part(partition, &colours, &mut vars).ok()?;
                finer.push((processors.iter().copied().chain([at]).collect(), piece));
            }
        }
        parts = finer;
    }
    let mut touched: BTreeMap<Vec<i64>, BTreeSet<Vec<i64>>> = BTreeMap::new();
    for (processors, part) in parts {
        for element in part.elements()? {
            touched.entry(element).or_default().insert(processors.clone());
        }
    }
    Some(touched)
}
