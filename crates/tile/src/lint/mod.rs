//! Lints: programs that the verifier accepts and that hardly mean what they say. Each is found without a run, has a name, and is allowed
//! where the text says so: `// allow: short-loop` on the line of the statement, on a line of its own above it, or above `kernel` for
//! the whole kernel.
//!
//! Lints look at the sizes that are given, or the defaults. Those about grids and loops look at each size a little larger and a little smaller,
//! too, so that what holds for multiples of a tile alone is seen. What they cannot follow (elements of tables, `while`) they leave alone.

mod allow;
mod axes;
mod coordinate;
mod coverage;
mod edge;
mod partial;
mod points;
mod reach;
mod recurrence;
mod results;
mod roles;
mod scale;
mod softmax;
mod strides;
mod structure;
mod text;
mod values;

use std::collections::BTreeMap;

use crate::diagnostic::{Code, Diagnostic};
use crate::verified::Verified;
use points::Sites;

/// A search and the codes of what it finds: one, but where lints look at the same.
struct Lint {
    codes: &'static [Code],
    find: for<'a, 'b> fn(&'b Sites<'a>) -> Vec<Diagnostic>,
}

/// Every lint, in the order of the documentation.
const LINTS: &[Lint] = &[
    Lint { codes: &[Code::IdleAxis], find: structure::idle_axes },
    Lint { codes: &[Code::UnusedTensor], find: structure::unused_tensors },
    Lint { codes: &[Code::ReadBeforeWrite], find: structure::reads_before_writes },
    Lint { codes: &[Code::IdleBarrier], find: structure::idle_barriers },
    Lint { codes: &[Code::FillInAccumulation], find: structure::fills_in_accumulations },
    Lint { codes: &[Code::ShortGrid, Code::StepOfView], find: coverage::tiles },
    Lint { codes: &[Code::ShortLoop], find: coverage::short_loops },
    Lint { codes: &[Code::RolesDiffer], find: roles::differ },
    Lint { codes: &[Code::UnmaskedEdge], find: edge::unmasked },
    Lint { codes: &[Code::AxesMixed], find: axes::mixed },
    Lint { codes: &[Code::TileCoordinate], find: coordinate::of_tiles },
    Lint { codes: &[Code::TileExtent], find: results::means_of_tiles },
    Lint { codes: &[Code::NotRescaled], find: recurrence::not_rescaled },
    Lint { codes: &[Code::CarryLost], find: recurrence::carries_lost },
    Lint { codes: &[Code::PartOfCluster], find: results::parts_of_clusters },
    Lint { codes: &[Code::NarrowSum], find: recurrence::narrow_sums },
    Lint { codes: &[Code::ExtremumStart], find: recurrence::extremum_starts },
    Lint { codes: &[Code::SignedScale], find: results::signed_scales },
    Lint { codes: &[Code::MaximumNotAdded], find: results::maxima_not_added },
    Lint { codes: &[Code::ConstantResult], find: results::constant_results },
    Lint { codes: &[Code::ReshapeByRows], find: results::reshapes_by_rows },
    Lint { codes: &[Code::SumNotReset], find: recurrence::sums_not_reset },
    Lint { codes: &[Code::RepeatedTerm], find: partial::repeated_terms },
    Lint { codes: &[Code::FunctionOfPart], find: partial::functions_of_parts },
    Lint { codes: &[Code::ScaleBeyondType], find: scale::beyond_types },
    Lint { codes: &[Code::MaximumNotSubtracted], find: softmax::maxima_not_subtracted },
    Lint { codes: &[Code::MaskWithWeight], find: softmax::masks_with_weight },
    Lint { codes: &[Code::SoftmaxAxis], find: softmax::axes_of_softmax },
    Lint { codes: &[Code::StridesOverlap], find: strides::overlaps },
    Lint { codes: &[Code::IdleBlocks], find: reach::idle_blocks },
    Lint { codes: &[Code::IndexBeyond], find: reach::beyond },
];

/// Findings about a program at these values of sizes, in the order of the text; those that it allows are left out. Sizes that have none are at
/// their defaults.
pub fn lint(program: &Verified, sizes: &BTreeMap<String, i64>) -> Vec<Diagnostic> {
    let sites = Sites::of(program, sizes);
    let found = LINTS.iter().flat_map(|lint| {
        let found = (lint.find)(&sites);
        debug_assert!(found.iter().all(|finding| lint.codes.contains(&finding.code)));
        found
    });
    let allowed = allow::Allowed::of(program.program());
    let mut found: Vec<Diagnostic> = found.filter(|finding| !allowed.covers(finding)).collect();
    found.extend(allow::unknown(&program.program().sources));
    found.sort_by_key(|finding| (finding.span.key(), finding.code.name()));
    // One message of a kind about a place is enough.
    found.dedup_by(|a, b| a.code == b.code && a.span.key() == b.span.key());
    found
}

/// The codes of all lints that a text may allow, in the order of the documentation.
pub fn lints() -> impl Iterator<Item = Code> {
    LINTS.iter().flat_map(|lint| lint.codes).copied()
}
