//! Rows that warps decide for: the check of a `if any` whose layouts are known.
//!
//! A warp votes with what it holds of the condition, and does the body for the elements that it holds of what the body writes. So that a
//! row is done by all or by none of those who hold it, each warp that holds elements of a row holds the row's condition, and
//! warps that share a row hold the same elements of the condition.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tilewright_machine::Memory;
use tilewright_tile::core::{Program, Stmt, StmtKind};
use tilewright_tile::rows::Rows;
use tilewright_tile::{Code, Diagnostic, StmtMap, TensorId, statement_text};

use crate::plan::StmtPlan;
use crate::tv::TvLayout;
use crate::{limits, reduce};

/// Threads of a warp.
const WARP: i64 = 32;

/// A row that a warp cannot decide for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apart {
    /// The warp does not hold an element of the row's condition.
    Lacks {
        /// The warp.
        warp: i64,
        /// The row.
        row: u32,
    },
    /// Two warps hold the row, and other elements of the condition, so that one may do the body without the other.
    Shares {
        /// The warps.
        warps: [i64; 2],
        /// The row.
        row: u32,
    },
    /// The tensor has no rows of the condition.
    NoRows,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Apart::Lacks { warp, row } => {
                write!(f, "warp {warp} holds elements of row {row}, and not all of that row's condition")
            }
            Apart::Shares { warps: [a, b], row } => {
                write!(
                    f,
                    "warps {a} and {b} both hold row {row}, and different other rows of the condition: one might enter alone"
                )
            }
            Apart::NoRows => f.write_str("it has no rows of the condition"),
        }
    }
}

/// The coordinates that each warp holds, ascending.
fn held(tv: &TvLayout, threads: i64) -> Vec<Vec<i64>> {
    let warp = |warp: i64| {
        let mut places: Vec<i64> = (warp * WARP..((warp + 1) * WARP).min(threads))
            .flat_map(|t| (0..tv.count() as i64).map(move |v| tv.at(t, v)))
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    (0..(threads + WARP - 1) / WARP).map(warp).collect()
}

/// A row of a tensor that the warps cannot decide for, if there is one. `condition` and `of` are layouts with shapes.
pub fn apart(
    (condition, shape): (&TvLayout, &[i64]),
    axis: u32,
    (of, of_shape): (&TvLayout, &[i64]),
    threads: i64,
) -> Option<Apart> {
    let Some(rows) = Rows::new(shape.to_vec(), axis) else { return Some(Apart::NoRows) };
    let (Some(row_of), Some(decided)) = (rows.of(of_shape), rows.of(shape)) else {
        return Some(Apart::NoRows);
    };
    let mut elements: BTreeMap<u32, usize> = BTreeMap::new();
    decided.iter().for_each(|row| *elements.entry(*row).or_default() += 1);
    let (votes, writes) = (held(condition, threads), held(of, threads));
    let mut first: BTreeMap<u32, usize> = BTreeMap::new();
    for (warp, places) in writes.iter().enumerate() {
        let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
        votes[warp].iter().for_each(|place| *seen.entry(decided[*place as usize]).or_default() += 1);
        let mut rows: Vec<u32> = places.iter().map(|place| row_of[*place as usize]).collect();
        rows.sort_unstable();
        rows.dedup();
        for row in rows {
            if seen.get(&row) != elements.get(&row) {
                return Some(Apart::Lacks { warp: warp as i64, row });
            }
            let other = *first.entry(row).or_insert(warp);
            if votes[other] != votes[warp] {
                return Some(Apart::Shares { warps: [other as i64, warp as i64], row });
            }
        }
    }
    None
}

/// The rows that threads hold of a tensor that has the rows of a condition with one element each.
pub fn held_rows(of: &TvLayout, (shape, axis): (&[i64], u32), of_shape: &[i64]) -> Option<TvLayout> {
    let rows = Rows::new(shape.to_vec(), axis)?;
    let modes = rows.row_modes(of_shape)?;
    // A condition that repeats has other coordinates.
    let alike = modes.iter().map(|at| of_shape[*at]).product::<i64>() == rows.count();
    if !alike || shape[axis as usize] != 1 {
        return None;
    }
    if rows.is_whole(of_shape) { reduce::arises(of, of_shape, axis) } else { Some(of.clone()) }
}

/// The register tensors that hold what the body of an `if any` leaves behind: those that it writes and that are there outside of it, and those that it copies to
/// tensor memory, which others read.
pub fn outside(
    program: &Program,
    (stmt, body): (&Stmt, &[Stmt]),
    statements: &[(&Stmt, usize)],
) -> BTreeSet<TensorId> {
    let in_registers = |id: &TensorId| program.tensor(*id).memory() == Memory::Register;
    let (mut inside, mut written, mut copied) = (BTreeSet::from([stmt.id]), BTreeSet::new(), BTreeSet::new());
    visit(body, &mut |inner| {
        inside.insert(inner.id);
        written.extend(inner.kind.writes().into_iter().filter(in_registers));
        if let StmtKind::Copy { src, dst, .. } = &inner.kind
            && !in_registers(&dst.tensor)
        {
            copied.insert(src.tensor);
        }
    });
    let others = statements.iter().filter(|(stmt, _)| !inside.contains(&stmt.id));
    let touched: BTreeSet<TensorId> = others.flat_map(|(stmt, _)| limits::touched(stmt)).collect();
    written.intersection(&touched).chain(&copied).copied().collect()
}

fn visit<'a>(body: &'a [Stmt], f: &mut impl FnMut(&'a Stmt)) {
    for stmt in body {
        f(stmt);
        visit(stmt.kind.body(), f);
    }
}

/// Checks that the statements in the body of an `if any` are done by each warp alone.
///
/// # Errors
///
/// A statement whose plan has the block's threads meet.
pub fn check_alone(stmt: &Stmt, plans: &StmtMap<StmtPlan>, program: &Program) -> Result<(), Diagnostic> {
    let StmtKind::IfAny { body, .. } = &stmt.kind else { return Ok(()) };
    let mut refused = None;
    visit(body, &mut |inner| {
        let meets = plans.get(inner.id).is_some_and(|plan| plan.scratch_bytes() > 0)
            || inner.kind.is_barrier()
            || matches!(inner.kind, StmtKind::Arrive(_));
        if meets && refused.is_none() {
            refused = Some(inner);
        }
    });
    let Some(inner) = refused else { return Ok(()) };
    let message = format!(
        "`{}` exchanges elements between warps, and not all warps enter `{}`",
        statement_text(program, inner),
        statement_text(program, stmt)
    );
    Err(Diagnostic::new(Code::Unsatisfiable, inner.span, message)
        .related(stmt.span, "each warp decides for itself")
        .help("do it before the branch, or share the tile among the warps so that each has whole rows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tv(text: &str) -> TvLayout {
        TvLayout::from_layout(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_warp_decides_for_rows_that_it_holds_alone() {
        // 64 threads, rows of 4: each thread one row.
        let rows = tv("(64,4):(1,64)");
        assert_eq!(apart((&rows, &[64, 4]), 1, (&rows, &[64, 4]), 64), None);
        let maximum = tv("(64,1):(1,0)");
        assert_eq!(apart((&maximum, &[64, 1]), 1, (&rows, &[64, 4]), 64), None);
        assert_eq!(apart((&maximum, &[64]), 0, (&rows, &[64, 4]), 64), Some(Apart::NoRows));
        // The other mode names rows now, which all warps have parts of.
        assert_eq!(
            apart((&rows, &[64, 4]), 0, (&rows, &[64, 4]), 64),
            Some(Apart::Lacks { warp: 0, row: 0 })
        );
    }

    #[test]
    fn warps_that_share_a_row_vote_alike() {
        // Two rows of 64; warp 0 holds the first halves, warp 1 the second, and the condition of both rows.
        let halves = tv("(64,2):(2,1)");
        let both = tv("(64,2):(0,1)");
        assert_eq!(apart((&both, &[2, 1]), 1, (&halves, &[2, 64]), 64), None);
        // Warp 1 holds the condition of a third row too.
        let more = tv("((32,2),3):((0,0),1)");
        assert_eq!(apart((&more, &[3, 1]), 1, (&tv("((32,2),3):((0,0),1)"), &[3]), 64), None);
        let apart_rows = tv("((32,2),2):((0,1),1)");
        assert_eq!(
            apart((&apart_rows, &[3, 1]), 1, (&apart_rows, &[3]), 64),
            Some(Apart::Shares { warps: [0, 1], row: 1 })
        );
    }
}
