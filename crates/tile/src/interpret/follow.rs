//! Masks that follow the operations of a role: each is looked at before it is done.

use super::access::Corner;
use super::coverage::{Mask, Missing, State, Watch, join};
use super::error::InterpretError;
use super::op::{Access, Combining, Metadata, Op, PartOf, Repeats, Scanned, Side, Tile};
use super::quote::Quote;
use super::role::Role;
use super::shapes::Around;
use crate::arith::Rounded;
use crate::program::{Asserted, CombineForm};

impl Watch<'_> {
    fn read_tile(
        &mut self,
        role: &Role<'_>,
        tile: &Tile,
        text: &Quote,
    ) -> Result<Option<Mask>, InterpretError> {
        if tile.indexed.is_some() {
            let targets = role.targets(tile, text)?;
            let places: Vec<usize> = targets.iter().copied().flatten().collect();
            let mask = self.read(tile.tensor, Some(&places));
            return Ok(mask.map(|mask| {
                let mut found = mask.missing.iter();
                let missing = targets.iter().map(|at| at.is_some() && found.next() == Some(&true));
                Mask { missing: missing.collect(), origin: mask.origin }
            }));
        }
        if self.state(tile.tensor).missing.is_none() || tile.order.is_none() {
            return Ok(self.read(tile.tensor, None));
        }
        let places = role.places(tile, text)?;
        Ok(self.read(tile.tensor, Some(&places)))
    }

    fn read_side(
        &mut self,
        role: &Role<'_>,
        side: &Side,
        text: &Quote,
    ) -> Result<Option<Mask>, InterpretError> {
        match side {
            Side::Tile(tile) => self.read_tile(role, tile, text),
            Side::Global(_) => Ok(None),
        }
    }

    fn copy(
        &mut self,
        role: &Role<'_>,
        [src, dst]: [&Side; 2],
        combines: bool,
        text: &Quote,
    ) -> Result<(), InterpretError> {
        let mask = self.read_side(role, src, text)?;
        for by in [src, dst].into_iter().filter_map(Side::indices) {
            if let Some(unwritten) = self.read(by, None) {
                self.reached(unwritten.origin);
            }
        }
        match dst {
            // What is combined is there already.
            Side::Tile(tile) if combines => {
                let before = self.read_tile(role, tile, text)?;
                if before.is_none() && mask.is_some() {
                    let (places, mask) = written(role, tile, mask, text)?;
                    self.write_part(tile.tensor, &places, self.len(tile.tensor), mask);
                }
            }
            Side::Tile(Tile { tensor, order: None, .. }) => self.write(*tensor, mask, false),
            Side::Tile(tile) => {
                if self.state(tile.tensor).missing.is_some() || mask.is_some() {
                    let (places, mask) = written(role, tile, mask, text)?;
                    self.write_part(tile.tensor, &places, self.len(tile.tensor), mask);
                }
                self.state(tile.tensor).unread = None;
            }
            Side::Global(access) => {
                if let Some(mask) = mask
                    && inside(role, access, &mask.missing)?
                {
                    self.reached(mask.origin);
                }
            }
        }
        Ok(())
    }

    /// Looks at an operation before it is done.
    pub(super) fn before(&mut self, role: &Role<'_>, op: &Op) -> Result<(), InterpretError> {
        match op {
            Op::Define { tensor, len } => {
                *self.state(*tensor) = State { missing: Missing::new(vec![true; *len], None), unread: None };
            }
            Op::Copy { src, dst, how, text, .. } => {
                self.copy(role, [src, dst], how.combine.is_some(), text)?;
            }
            Op::Fetch { src, dst, old, compare, text, .. } => {
                let mut mask = self.read(*src, None);
                if let Some(compare) = compare {
                    mask = mask.or(self.read(*compare, None));
                }
                if let Side::Tile(tile) = dst {
                    mask = mask.or(self.read_tile(role, tile, text)?);
                }
                self.write(*old, mask, false);
            }
            Op::CopyAsync { src, dst, how, flight } => {
                self.copy(role, [src, dst], how.combine.is_some(), role.flight(*flight))?;
            }
            Op::TakeParts { parts, text } => self.take_parts(role, parts, text)?,
            Op::PutParts { parts, text } => self.put_parts(role, parts, text)?,
            Op::Gemm { c, a, b, sparse, scales, shape, .. } => {
                let left = self.read(*a, None);
                let mut factors = [self.sparse(left, sparse.as_deref()), self.read(*b, None)];
                for (factor, scale) in factors.iter_mut().zip(scales.iter().flatten()) {
                    let mask = self.read(*scale, None);
                    *factor = factor.take().or(mask);
                }
                self.product(*c, factors, *shape);
            }
            Op::GemmAsync(product) => {
                let text = role.flight(product.flight);
                let factors = [&product.a, &product.b].map(|side| self.read_side(role, side, text));
                let [a, b] = factors;
                let mut factors = [self.sparse(a?, product.sparse.as_deref()), b?];
                let rows = product.shape[..2].iter();
                for ((factor, scale), rows) in
                    factors.iter_mut().zip(product.scales.iter().flatten()).zip(rows)
                {
                    let mask = self.read_side(role, scale, text)?;
                    *factor = factor.take().or(mask.and_then(|mask| first_rows(mask, *rows, product.blocks)));
                }
                self.product(product.c, factors, product.shape);
            }
            Op::ClusterReduce { dsts, .. } => dsts.iter().for_each(|dst| self.state(*dst).unread = None),
            Op::Convert { dst, src, .. } => {
                let mask = self.read(*src, None);
                self.write(*dst, mask, false);
            }
            Op::Fill { dst, .. } => {
                self.write(*dst, None, false);
                // What a `fill` writes is there in case nothing else does.
                self.state(*dst).unread = None;
            }
            Op::Elementwise { dst, tree, repeats, .. } => {
                let mask = self.elementwise(tree, repeats);
                self.write(*dst, mask, false);
            }
            Op::Pick { .. }
            | Op::Slice { .. }
            | Op::Join { .. }
            | Op::Split { .. }
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::Combine(_)
            | Op::Arg { .. }
            | Op::Sort { .. }
            | Op::Gather { .. } => self.shape(role, op)?,
            Op::IfAny { condition, .. } => {
                if let Some(unwritten) = self.read(*condition, None) {
                    self.reached(unwritten.origin);
                }
            }
            Op::OfRows { dst, op } => self.of_rows(role, dst, op)?,
            Op::Assert { condition, .. } => {
                if let Asserted::All(tensor) = condition
                    && let Some(unwritten) = self.read(tensor.0 as usize, None)
                {
                    self.reached(unwritten.origin);
                }
            }
            // Nothing depends on what is shown.
            Op::Print(_)
            | Op::Commit
            | Op::Wait(_)
            | Op::Alike { .. }
            | Op::Landed { .. }
            | Op::CommitGemm
            | Op::WaitGemm(_)
            | Op::Stage { .. }
            | Op::Tiles { .. }
            | Op::SyncGrid { .. }
            | Op::Come { .. }
            | Op::Signal { .. }
            | Op::Await { .. }
            | Op::Ticket { .. }
            | Op::Mark(_)
            | Op::For { .. }
            | Op::Break { .. }
            | Op::If { .. } => {}
        }
        Ok(())
    }

    /// Looks at an operation that leaves the elements of rows that have not entered a branch as they are.
    fn of_rows(&mut self, role: &Role<'_>, dst: &[(usize, Vec<u32>)], op: &Op) -> Result<(), InterpretError> {
        let mut before = Vec::new();
        for (tensor, _) in dst {
            let state = self.state(*tensor);
            state.unread = None;
            before.push(state.missing.clone());
        }
        self.before(role, op)?;
        for ((tensor, rows), before) in dst.iter().zip(before) {
            let entered = |at: usize| role.rows.get(rows[at] as usize).copied().unwrap_or(true);
            let len = self.len(*tensor);
            let state = self.state(*tensor);
            state.unread = None;
            let is = |mask: &Option<Missing>, at: usize| mask.as_ref().is_some_and(|mask| mask.places[at]);
            let places =
                (0..len).map(|at| is(if entered(at) { &state.missing } else { &before }, at)).collect();
            let origin = [&state.missing, &before].into_iter().flatten().find_map(|mask| mask.origin);
            state.missing = Missing::new(places, origin);
        }
        Ok(())
    }

    /// Looks at an operation that gives elements other places, or puts them together along a mode.
    fn shape(&mut self, role: &Role<'_>, op: &Op) -> Result<(), InterpretError> {
        match op {
            Op::Pick { dst, src, order } => {
                let mask = self.read(*src, None);
                let mask = mask.map(|mask| match order {
                    None => mask,
                    Some(order) => pick(&mask, order.iter().map(|&o| o as usize)),
                });
                self.write(*dst, mask, false);
            }
            Op::Slice { dst, src, order, start, stride, .. } => {
                let start = role.value(start, || "the beginning of a slice".to_string())?;
                let first = usize::try_from(start * stride).unwrap_or(0);
                let len = self.len(*src);
                let places: Vec<usize> = order.iter().map(|&o| (first + o as usize).min(len - 1)).collect();
                let mask = self.read(*src, Some(&places));
                self.write(*dst, mask, false);
            }
            Op::Join { dst, a, b } => {
                let masks = [self.read(*a, None), self.read(*b, None)];
                let origin = masks.iter().flatten().map(|mask| mask.origin).next();
                let halves = masks.map(|mask| mask.map_or(vec![false; self.len(*a)], |mask| mask.missing));
                self.write(*dst, origin.map(|origin| Mask { missing: halves.concat(), origin }), false);
            }
            Op::Split { lo, hi, src } => {
                let mask = self.read(*src, None);
                let half = self.len(*src) / 2;
                let halves = [0..half, half..2 * half].map(|part| mask.as_ref().map(|mask| pick(mask, part)));
                let [low, high] = halves;
                self.write(*lo, low, false);
                self.write(*hi, high, false);
            }
            Op::Reduce { dst, src, around, .. } => {
                let mask = self.read(*src, None);
                self.write(*dst, mask.map(|mask| Mask { missing: around.any(&mask.missing), ..mask }), false);
            }
            Op::Sort { dst, src, carried, .. } => {
                // An element that was not written may end anywhere.
                let mut mask = self.read(*src, None);
                if let Some([_, with]) = carried
                    && let Some(other) = self.read(*with, None)
                {
                    mask = mask.or(Some(other));
                }
                let len = self.len(*dst);
                let origin = mask.map(|mask| mask.origin);
                for result in [Some(*dst), carried.map(|[result, _]| result)].into_iter().flatten() {
                    let missing = origin.map(|origin| Mask { missing: vec![true; len], origin });
                    self.write(result, missing, false);
                }
            }
            Op::Combine(combining) => self.combine(combining),
            Op::Arg { value, index, src, around, .. } => {
                let mask = self.read(*src, None);
                let along = mask.map(|mask| (around.any(&mask.missing), mask.origin));
                for result in [*value, *index] {
                    let missing = along.as_ref().map(|(missing, origin)| (missing.clone(), *origin));
                    self.write(result, missing.map(|(missing, origin)| Mask { missing, origin }), false);
                }
            }
            Op::Scan { dst, operands, around, reverse, .. } => self.scan(*dst, operands, *around, *reverse),
            Op::Gather { dst, src, index, .. } => {
                // What is taken is not worked out: each element may be what was not written.
                let masks = [self.read(*index, None), self.read(*src, None)];
                let [index_mask, src_mask] = masks;
                let len = self.len(*index);
                let mask = index_mask.or(src_mask.map(|mask| Mask { missing: vec![true; len], ..mask }));
                self.write(*dst, mask, false);
            }
            _ => {}
        }
        Ok(())
    }

    /// Every result is there if all of the tuples that come to it are.
    fn combine(&mut self, Combining { dsts, srcs, around, form, .. }: &Combining) {
        let mut mask: Option<Mask> = None;
        for src in srcs {
            match (self.read(*src, None), &mut mask) {
                (Some(other), Some(mask)) => join(&mut mask.missing, &other.missing),
                (Some(other), None) => mask = Some(other),
                (None, _) => {}
            }
        }
        let (mut missing, origin) = match mask {
            Some(mask) => (mask.missing, Some(mask.origin)),
            None => (Vec::new(), None),
        };
        if origin.is_some() {
            match form {
                CombineForm::Reduce => missing = around.any(&missing),
                CombineForm::Scan { reverse } => {
                    for row in around.rows() {
                        let mut places: Vec<usize> = row.collect();
                        if *reverse {
                            places.reverse();
                        }
                        let mut before = false;
                        for at in places {
                            before |= missing[at];
                            missing[at] = before;
                        }
                    }
                }
            }
        }
        for dst in dsts {
            self.write(*dst, origin.map(|origin| Mask { missing: missing.clone(), origin }), false);
        }
    }

    /// An element of a scan is there if those up to it are, and what comes before.
    fn scan(&mut self, dst: usize, operands: &Scanned, around: Around, reverse: bool) {
        let mut mask: Option<Mask> = None;
        for id in operands.whole() {
            match (self.read(id, None), &mut mask) {
                (Some(other), Some(mask)) => join(&mut mask.missing, &other.missing),
                (Some(other), None) => mask = Some(other),
                (None, _) => {}
            }
        }
        let before = operands.before().and_then(|id| self.read(id, None));
        let len = self.len(dst);
        if let (None, Some(before)) = (&mask, &before) {
            mask = Some(Mask { missing: vec![false; len], origin: before.origin });
        }
        if let Some(mask) = &mut mask {
            for (number, row) in around.rows().enumerate() {
                let mut places: Vec<usize> = row.collect();
                if reverse {
                    places.reverse();
                }
                let mut missing = before.as_ref().is_some_and(|before| before.missing[number]);
                for at in places {
                    missing |= mask.missing[at];
                    mask.missing[at] = missing;
                }
            }
        }
        self.write(dst, mask, false);
    }

    /// The parts of register tensors that an operation has for operands are taken out.
    fn take_parts(&mut self, role: &Role<'_>, parts: &[PartOf], text: &Quote) -> Result<(), InterpretError> {
        for part in parts {
            let places = role.places(&part.tile, text)?;
            let whole = self.state(part.tile.tensor);
            whole.unread = None;
            let missing = whole.missing.as_ref().and_then(|missing| {
                Missing::new(places.iter().map(|&at| missing.places[at]).collect(), missing.origin)
            });
            *self.state(part.part) = State { missing, unread: None };
        }
        Ok(())
    }

    /// They are put back.
    fn put_parts(&mut self, role: &Role<'_>, parts: &[PartOf], text: &Quote) -> Result<(), InterpretError> {
        for part in parts {
            let missing = std::mem::take(self.state(part.part)).missing;
            let places = role.places(&part.tile, text)?;
            let whole = self.len(part.tile.tensor);
            // What was unwritten and still is keeps its own origin.
            let unwritten = missing.as_ref().is_some_and(|missing| missing.origin.is_none());
            let here = (self.stmt(), part.tile.tensor);
            let mask = missing
                .map(|missing| Mask { missing: missing.places, origin: missing.origin.unwrap_or(here) });
            let before = self.state(part.tile.tensor).missing.as_ref().and_then(|missing| missing.origin);
            self.write_part(part.tile.tensor, &places, whole, mask);
            if let (true, Some(missing)) = (unwritten, &mut self.state(part.tile.tensor).missing) {
                missing.origin = before;
            }
        }
        Ok(())
    }

    /// The mask of a sparse factor with its metadata.
    fn sparse(&mut self, mask: Option<Mask>, meta: Option<&Metadata>) -> Option<Mask> {
        let meta = meta.and_then(|meta| self.read(meta.tensor, None));
        mask.or(meta)
    }

    /// `c += a · bᵀ`: an element of `c` is there if it was, and the rows of both factors are.
    fn product(&mut self, c: usize, [a, b]: [Option<Mask>; 2], [m, n, _]: [usize; 3]) {
        let sums = self.read(c, None);
        let origin = [&sums, &a, &b].into_iter().flatten().map(|mask| mask.origin).next();
        let mask = origin.map(|origin| {
            let rows = |mask: Option<Mask>, count: usize| {
                let row =
                    |i: usize, mask: &Mask| mask.missing[i..].iter().step_by(count).any(|missing| *missing);
                mask.map(|mask| (0..count).map(|i| row(i, &mask)).collect::<Vec<bool>>())
            };
            let (left, right) = (rows(a, m), rows(b, n));
            let at = |rows: &Option<Vec<bool>>, i: usize| rows.as_ref().is_some_and(|rows| rows[i]);
            let sum = |i: usize| sums.as_ref().is_some_and(|mask| mask.missing[i]);
            let missing = (0..m * n).map(|i| sum(i) || at(&left, i % m) || at(&right, i / m)).collect();
            Mask { missing, origin }
        });
        self.write(c, mask, true);
    }

    fn elementwise(&mut self, tree: &Rounded, repeats: &Repeats) -> Option<Mask> {
        let mut mask: Option<Mask> = None;
        tensors(tree, &mut |tensor| {
            let other = self.read(tensor, None).map(|mask| match repeats.get(&tensor) {
                None => mask,
                Some(places) => pick(&mask, places.iter().map(|at| *at as usize)),
            });
            if let Some(other) = other {
                match &mut mask {
                    None => mask = Some(other),
                    Some(mask) => join(&mut mask.missing, &other.missing),
                }
            }
        });
        mask
    }
}

/// Calls `visit` for every tensor that an expression reads.
fn tensors(tree: &Rounded, visit: &mut impl FnMut(usize)) {
    if let Rounded::Tensor(id) = tree {
        visit(id.0 as usize);
    }
    for operand in tree.operands() {
        tensors(operand, visit);
    }
}

impl Side {
    /// The register tensor that indexes a mode of it.
    fn indices(&self) -> Option<usize> {
        match self {
            Side::Tile(tile) => tile.indexed.as_ref().map(|(indices, ..)| indices.by),
            Side::Global(access) => access.indexed.as_ref().map(|indexed| indexed.indices.by),
        }
    }
}

/// The places that a copy to a tile writes, and their part of a mask.
fn written(
    role: &Role<'_>,
    tile: &Tile,
    mask: Option<Mask>,
    text: &Quote,
) -> Result<(Vec<usize>, Option<Mask>), InterpretError> {
    let places = role.places(tile, text)?;
    if tile.indexed.is_none() {
        return Ok((places, mask));
    }
    let inside: Vec<bool> = role.targets(tile, text)?.iter().map(Option::is_some).collect();
    let mask = mask.map(|mask| {
        let kept = mask.missing.iter().zip(&inside).filter(|(_, inside)| **inside);
        Mask { missing: kept.map(|(missing, _)| *missing).collect(), origin: mask.origin }
    });
    Ok((places, mask))
}

fn pick(mask: &Mask, places: impl Iterator<Item = usize>) -> Mask {
    Mask { missing: places.map(|at| mask.missing[at]).collect(), origin: mask.origin }
}

/// True if an element that is missing lies within the buffer.
fn inside(role: &Role<'_>, access: &Access, missing: &[bool]) -> Result<bool, InterpretError> {
    let corner: Corner = role.corner(access)?;
    if access.start_if_inside(&corner).is_some() {
        return Ok(missing.contains(&true));
    }
    let (mut missing, mut any) = (missing.iter(), false);
    access.each(&corner, |offset| any |= missing.next() == Some(&true) && offset.is_some());
    Ok(any)
}

/// The mask of the first rows of a tile of so many columns: `None` where nothing of them is missing.
fn first_rows(mask: Mask, rows: usize, columns: usize) -> Option<Mask> {
    let apart = mask.missing.len() / columns.max(1);
    let missing: Vec<bool> =
        mask.missing.chunks(apart.max(1)).flat_map(|column| &column[..rows]).copied().collect();
    missing.contains(&true).then_some(Mask { missing, ..mask })
}
