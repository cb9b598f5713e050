//! The operations of a role that never wait.

use std::borrow::Cow;

use tilewright_machine::DType;

use super::bound::{Element, UNWRITTEN};
use super::error::InterpretError;
use super::fold;
use super::gemm::{gemm, scaled};
use super::op::{Op, Scanned};
use super::quote::Quote;
use super::ring::Ring;
use super::role::Role;
use super::shapes;
use crate::program::Asserted;

impl<'a> Role<'a> {
    /// Does an operation that neither waits nor has a body.
    pub(super) fn operation(&mut self, op: &'a Op, rings: &mut [Ring]) -> Result<(), InterpretError> {
        match op {
            Op::Mark(stmt) => {
                if let Some(watch) = &mut self.watch {
                    watch.at(*stmt);
                }
            }
            Op::Copy { src, dst, len, how, text } => self.copy(src, dst, *len, *how, text)?,
            Op::Fetch { src, dst, old, compare, op, dtype, text } => {
                self.change((*src, *compare), dst, *old, (*op, *dtype), text)?;
            }
            Op::CopyAsync { src, dst, how, flight } => self.copy_async(src, dst, *how, *flight)?,
            Op::Commit => self.copies.commit(),
            Op::Wait(groups) => {
                let left = self.value(groups, || "a number of groups".to_string())?;
                self.waited[0] = Some((left, self.at));
                self.copies.complete(left).into_iter().for_each(|copy| self.land(copy, rings));
            }
            Op::Landed { reads, writes, text } => {
                reads.iter().try_for_each(|tile| self.landed(tile, "reads", text))?;
                writes.iter().try_for_each(|tile| self.landed(tile, "writes", text))?;
            }
            Op::Alike { access, multicast, text } => self.alike(access, *multicast, text)?,
            Op::GemmAsync(product) => self.gemm_async(product, rings)?,
            Op::CommitGemm => self.products.commit(),
            Op::WaitGemm(groups) => {
                let left = self.value(groups, || "a number of groups".to_string())?;
                self.waited[1] = Some((left, self.at));
                self.products.complete(left).into_iter().for_each(|product| self.land(product, rings));
            }
            Op::TakeParts { parts, text } => self.take_parts(parts, text)?,
            Op::PutParts { parts, text } => self.put_parts(parts, text)?,
            Op::OfRows { dst, op } => self.of_rows(dst, op, rings)?,
            Op::Assert { condition, text } => self.asserted(condition, text)?,
            Op::Print(printing) => self.print(printing)?,
            op => {
                self.compute(op)?;
                if !self.plan.branches.is_empty() {
                    self.rounded_openly(op);
                }
            }
        }
        Ok(())
    }

    /// Checks an assertion.
    fn asserted(&self, condition: &Asserted, text: &Quote) -> Result<(), InterpretError> {
        let false_at = match condition {
            Asserted::Integer(condition) => {
                (self.value(condition, || "the condition of an assertion".to_string())? == 0).then_some(None)
            }
            Asserted::All(tensor) => {
                self.tiles[tensor.0 as usize].iter().position(|element| element.value == 0.0).map(Some)
            }
        };
        let Some(element) = false_at else { return Ok(()) };
        Err(InterpretError::Assertion { text: text.clone(), block: self.index, element })
    }

    /// Does an operation on whole tensors of the block.
    fn compute(&mut self, op: &'a Op) -> Result<(), InterpretError> {
        match op {
            Op::Define { tensor, len } => {
                self.tiles[*tensor].clear();
                self.tiles[*tensor].resize(*len, UNWRITTEN);
            }
            Op::Gemm { c, a, b, sparse, scales, shape, how } => {
                let mut acc = std::mem::take(&mut self.tiles[*c]);
                let factor = |factor: usize, scale: usize, rows: usize| match scales {
                    Some(scales) => {
                        let scales = &self.tiles[scales[scale]];
                        Cow::Owned(scaled(&self.tiles[factor], scales, rows, scales.len() / rows))
                    }
                    None => Cow::Borrowed(&self.tiles[factor][..]),
                };
                let (left, right) = (factor(*a, 0, shape[0]), factor(*b, 1, shape[1]));
                let left = self.left(&left, sparse.as_deref(), shape[0])?;
                gemm(&mut acc, left, &right, *shape, *how);
                self.tiles[*c] = acc;
            }
            Op::Convert { dst, src, dtype, through_f32 } => {
                let mut tile = std::mem::take(&mut self.tiles[*dst]);
                if dst != src {
                    tile.clone_from(&self.tiles[*src]);
                }
                let steps = [through_f32.then_some(DType::F32), *dtype];
                for dtype in steps.into_iter().flatten() {
                    tile.iter_mut().for_each(|x| *x = x.round(dtype));
                }
                self.tiles[*dst] = tile;
            }
            Op::Fill { dst, len, value, .. } => {
                self.tiles[*dst].clear();
                self.tiles[*dst].resize(*len, Element::exact(*value));
            }
            Op::Elementwise { dst, shape, tree, dtype, repeats } => {
                let len = shape.iter().product();
                let mut tile = self.elementwise(tree, shape, repeats)?.tile(len);
                if *dtype != DType::F32 {
                    tile.iter_mut().for_each(|x| *x = x.round(*dtype));
                }
                self.tiles[*dst] = tile;
            }
            Op::Reduce { dst, src, around, op, dtype } => {
                self.tiles[*dst] = fold::reduce(&self.tiles[*src], *around, *op, *dtype);
            }
            Op::Scan { dst, operands, around, dtype, reverse } => {
                let tile = |id: usize| self.tiles[id].as_slice();
                self.tiles[*dst] = match operands {
                    Scanned::One { src, op } => fold::scan(tile(*src), *around, (*op, *dtype), *reverse),
                    Scanned::Linear { a, b, before } => {
                        let before = before.map(tile);
                        fold::recurrence([tile(*a), tile(*b)], before, *around, *dtype, *reverse)
                    }
                };
            }
            Op::Combine(combining) => self.combine(combining)?,
            Op::Arg { value, index, src, around, op } => {
                let (values, places) = fold::arg(&self.tiles[*src], *around, *op);
                self.tiles[*value] = values;
                self.tiles[*index] = places;
            }
            Op::Sort { dst, src, carried, around, descending } => {
                let with = carried.map(|[_, with]| self.tiles[with].as_slice());
                let (sorted, values) = fold::sort(&self.tiles[*src], with, *around, *descending);
                self.tiles[*dst] = sorted;
                if let (Some([result, _]), Some(values)) = (carried, values) {
                    self.tiles[*result] = values;
                }
            }
            Op::Gather { dst, src, around, index, along } => {
                self.tiles[*dst] = shapes::gather(&self.tiles[*src], *around, &self.tiles[*index], *along);
            }
            op => self.reorder(op)?,
        }
        Ok(())
    }

    /// Does an operation that gives elements other places.
    fn reorder(&mut self, op: &'a Op) -> Result<(), InterpretError> {
        match op {
            Op::Pick { dst, src, order } => {
                let from = &self.tiles[*src];
                self.tiles[*dst] = match order {
                    None => from.clone(),
                    Some(order) => order.iter().map(|&o| from[o as usize]).collect(),
                };
            }
            Op::Slice { dst, src, order, start, most, stride, text } => {
                let start = self.value(start, || "the beginning of a slice".to_string())?;
                if !(0..=*most).contains(&start) {
                    let statement = text.clone();
                    return Err(InterpretError::SliceOutside { statement, start, most: *most });
                }
                let (from, first) = (&self.tiles[*src], (start * stride) as usize);
                self.tiles[*dst] = order.iter().map(|&o| from[first + o as usize]).collect();
            }
            Op::Join { dst, a, b } => {
                self.tiles[*dst] = [self.tiles[*a].as_slice(), self.tiles[*b].as_slice()].concat();
            }
            Op::Split { lo, hi, src } => {
                let from = &self.tiles[*src];
                let (first, second) = from.split_at(from.len() / 2);
                let (first, second) = (first.to_vec(), second.to_vec());
                self.tiles[*lo] = first;
                self.tiles[*hi] = second;
            }
            // These are steps of the role (`Role::step`), which may have to wait for others.
            Op::Fetch { .. }
            | Op::ClusterReduce { .. }
            | Op::SyncGrid { .. }
            | Op::Come { .. }
            | Op::Signal { .. }
            | Op::Await { .. }
            | Op::Ticket { .. }
            | Op::Stage { .. }
            | Op::Tiles { .. }
            | Op::For { .. }
            | Op::If { .. }
            | Op::Break { .. }
            | Op::IfAny { .. } => {}
            // `Role::operation` and `Role::compute` know these.
            Op::Mark(_)
            | Op::OfRows { .. }
            | Op::Assert { .. }
            | Op::Print(_)
            | Op::Define { .. }
            | Op::Copy { .. }
            | Op::CopyAsync { .. }
            | Op::Commit
            | Op::Wait(_)
            | Op::TakeParts { .. }
            | Op::PutParts { .. }
            | Op::Alike { .. }
            | Op::Landed { .. }
            | Op::Gemm { .. }
            | Op::GemmAsync(_)
            | Op::CommitGemm
            | Op::WaitGemm(_)
            | Op::Convert { .. }
            | Op::Fill { .. }
            | Op::Elementwise { .. }
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::Combine(_)
            | Op::Arg { .. }
            | Op::Sort { .. }
            | Op::Gather { .. } => {}
        }
        Ok(())
    }
}
