//! Containment along one mode of an object.

use std::collections::BTreeSet;

use super::POINTS;
use super::affine::{Affine, Vars};
use crate::partition::{Extent, contiguous};

/// [`Piece::contained`] along one mode of the object.
pub(super) struct AlongMode<'a> {
    pub(super) extent: Extent,
    pub(super) inner: (&'a Affine, &'a [(Extent, i64)]),
    pub(super) outer: (&'a Affine, &'a [(Extent, i64)]),
}

/// The answer along one mode.
pub(super) enum Along {
    Yes,
    Misses(i64),
    /// The inner piece has no coordinate here.
    Empty,
    Perhaps,
}

impl AlongMode<'_> {
    pub(super) fn contained(&self, vars: &Vars) -> Along {
        let (outer_offset, outer) = self.outer;
        let (inner_offset, inner) = self.inner;
        let reach = contiguous(outer);
        // The outer piece has the whole mode.
        let whole = reach.is_none_or(|reach| self.extent.is_some_and(|extent| reach >= extent));
        if outer_offset.value() == Some(0) && whole {
            return Along::Yes;
        }
        let apart = inner_offset.plus(outer_offset, -1);
        // The inner piece lies within consecutive coordinates of the outer one.
        let span: Extent = inner.iter().try_fold(0i64, |span, (extent, stride)| {
            if *stride < 0 { None } else { span.checked_add(((*extent)? - 1).checked_mul(*stride)?) }
        });
        let (least, most) = vars.range(&apart);
        let ends = reach.is_none_or(|reach| {
            most.zip(span).and_then(|(most, span)| most.checked_add(span)).is_some_and(|end| end < reach)
        });
        if least.is_some_and(|least| least >= 0) && ends {
            return Along::Yes;
        }
        let (Some(apart), Some(inner), Some(outer)) = (apart.value(), sums(inner), sums(outer)) else {
            return Along::Perhaps;
        };
        match (self.extent, inner_offset.value()) {
            (Some(extent), Some(offset)) => {
                let mut inside = inner.iter().filter(|x| (0..extent).contains(&(offset + **x))).peekable();
                if inside.peek().is_none() {
                    return Along::Empty;
                }
                match inside.find(|x| !outer.contains(&(apart + **x))) {
                    None => Along::Yes,
                    Some(x) => Along::Misses(offset + x),
                }
            }
            _ if inner.iter().all(|x| outer.contains(&(apart + x))) => Along::Yes,
            _ => Along::Perhaps,
        }
    }
}

/// The sums of the leaves, where they are known and few.
fn sums(leaves: &[(Extent, i64)]) -> Option<BTreeSet<i64>> {
    let mut sums = BTreeSet::from([0i64]);
    for (extent, stride) in leaves {
        let extent = (*extent)?;
        if (sums.len() as i64).checked_mul(extent)? > POINTS {
            return None;
        }
        sums = sums.iter().flat_map(|x| (0..extent).map(move |c| x + c * stride)).collect();
    }
    Some(sums)
}
