//! A lint about the strides of a parameter: elements of which two have one place.

use std::collections::BTreeSet;

use super::points::{Sample, Sites};
use super::structure::params;
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::Expr;
use crate::printer::expr_text;
use crate::program::{ParamKind, StmtKind};

/// The mode whose step is too short, and the mode inside it, at these sizes. Modes of one element have no step.
fn overlap(sample: &Sample, shape: &[Expr], strides: &[Expr]) -> Option<(usize, usize)> {
    let mut modes = Vec::new();
    for (mode, (extent, stride)) in shape.iter().zip(strides).enumerate() {
        let (extent, stride) = (sample.eval(extent)?, sample.eval(stride)?);
        if extent > 1 {
            modes.push((stride, extent, mode));
        }
    }
    modes.sort_unstable();
    let (mut reach, mut inner) = (0i64, None);
    for (stride, extent, mode) in modes {
        if let Some(inner) = inner.filter(|_| stride <= reach) {
            return Some((mode, inner));
        }
        reach = reach.checked_add(stride.checked_mul(extent - 1)?)?;
        inner = Some(mode);
    }
    None
}

/// Parameters that are written, and of which several elements have one place by their strides.
pub(super) fn overlaps(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let (program, source) = (sites.program(), &*sites.verified.source);
    let plain = sites.all.iter().filter(|site| match &site.stmt.kind {
        StmtKind::Copy { how, .. } => how.combine.is_none() && how.fetch.is_none(),
        StmtKind::CopyAsync { how, .. } => !how.add,
        _ => false,
    });
    let written: BTreeSet<_> = plain
        .flat_map(|site| params(program, site.stmt))
        .filter_map(|(writes, param)| writes.then_some(param))
        .collect();
    let mut found = Vec::new();
    for param in written {
        let (row, said) = (program.param(param), source.param(param));
        let ParamKind::Tensor { shape, strides: Some(strides), array, .. } = &row.kind else { continue };
        let ParamKind::Tensor { shape: extents, strides: Some(steps), .. } = &said.kind else { continue };
        // Strides are those within each tensor of an array.
        let first = usize::from(*array);
        let (Some(shape), Some(extents)) = (shape.get(first..), extents.get(first..)) else { continue };
        let symbols = |all: &[Expr]| {
            let mut symbols = BTreeSet::new();
            all.iter().for_each(|e| e.symbols(&mut |id| _ = symbols.insert(id)));
            symbols
        };
        // Steps over sizes of their own follow no extent: they are looked at as they are given.
        let own = symbols(strides).is_subset(&symbols(shape));
        let varied: Vec<&Expr> = if own { shape.iter().collect() } else { Vec::new() };
        for sample in sites.samples(&varied) {
            let Some((mode, inner)) = overlap(&sample, shape, strides) else { continue };
            let text = |e: &Expr| expr_text(source, e);
            let message = format!(
                "elements of `{}` share places{}: mode {} steps by `{}`, and mode {} has `{}` elements `{}` apart",
                said.name,
                sample.words(program),
                mode + first,
                text(&steps[mode]),
                inner + first,
                text(&extents[inner]),
                text(&steps[inner])
            );
            let mut right = steps.clone();
            right[mode] = if steps[inner] == Expr::Int(1) {
                extents[inner].clone()
            } else {
                extents[inner].clone() * &steps[inner]
            };
            let right: Vec<String> = right.iter().map(text).collect();
            let help = format!(
                "let mode {} step over all of mode {}: strides `({})`",
                mode + first,
                inner + first,
                right.join(", ")
            );
            found.push(Diagnostic::new(Code::StridesOverlap, row.span, message).help(help));
            break;
        }
    }
    found
}
