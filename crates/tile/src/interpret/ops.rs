//! The operations of a role that never wait.

use tilewright_machine::DType;

use super::bound::{Element, UNWRITTEN};
use super::gemm::gemm;
use super::plan::{Access, Op, PartOf, Side, Tile};
use super::ring::Ring;
use super::role::Role;
use super::{InterpretError, shapes};

impl<'a> Role<'a> {
    /// Does an operation that neither waits nor has a body.
    pub(super) fn operation(&mut self, op: &'a Op, rings: &mut [Ring]) -> Result<(), InterpretError> {
        match op {
            Op::Mark(stmt) => {
                if let Some(watch) = &mut self.watch {
                    watch.at(*stmt);
                }
            }
            Op::Define { tensor, len } => {
                self.tiles[*tensor].clear();
                self.tiles[*tensor].resize(*len, UNWRITTEN);
            }
            Op::Copy { src, dst, len, text } => self.copy(src, dst, *len, text)?,
            Op::CopyAsync { src, dst, add, flight } => self.copy_async(src, dst, *add, *flight)?,
            Op::Commit => self.copies.commit(),
            Op::Wait(groups) => {
                let left = self.value(groups, || "a number of groups".to_string())?;
                self.copies.complete(left).into_iter().for_each(|copy| self.land(copy, rings));
            }
            Op::Landed { reads, writes, text } => {
                reads.iter().try_for_each(|tile| self.landed(tile, "reads", text))?;
                writes.iter().try_for_each(|tile| self.landed(tile, "writes", text))?;
            }
            Op::Alike { access, text } => self.alike(access, text)?,
            Op::GemmAsync(product) => self.gemm_async(product, rings)?,
            Op::CommitGemm => self.products.commit(),
            Op::WaitGemm(groups) => {
                let left = self.value(groups, || "a number of groups".to_string())?;
                self.products.complete(left).into_iter().for_each(|product| self.land(product, rings));
            }
            Op::TakeParts { parts, text } => self.take_parts(parts, text)?,
            Op::PutParts { parts, text } => self.put_parts(parts, text)?,
            Op::Gemm { c, a, b, shape, how } => {
                let mut acc = std::mem::take(&mut self.tiles[*c]);
                gemm(&mut acc, &self.tiles[*a], &self.tiles[*b], *shape, *how);
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
            Op::Fill { dst, len, value } => {
                self.tiles[*dst].clear();
                self.tiles[*dst].resize(*len, Element::exact(*value));
            }
            Op::Elementwise { dst, len, code, dtype } => {
                let mut tile = self.elementwise(code)?.tile(*len);
                if *dtype != DType::F32 {
                    tile.iter_mut().for_each(|x| *x = x.round(*dtype));
                }
                self.tiles[*dst] = tile;
            }
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
            Op::Reduce { dst, src, around, op, dtype } => {
                self.tiles[*dst] = shapes::reduce(&self.tiles[*src], *around, *op, *dtype);
            }
            Op::Gather { dst, src, around, index, along } => {
                self.tiles[*dst] = shapes::gather(&self.tiles[*src], *around, &self.tiles[*index], *along);
            }
            // These are steps of the role (`Role::step`), which may have to wait for others.
            Op::ClusterSum { .. } | Op::Stage { .. } | Op::Tiles { .. } | Op::For { .. } => {}
        }
        Ok(())
    }

    /// Takes the parts of register tensors out that a statement has for operands.
    fn take_parts(&mut self, parts: &[PartOf], text: &str) -> Result<(), InterpretError> {
        for part in parts {
            let places = self.places(&part.tile, text)?;
            let whole = &self.tiles[part.tile.tensor];
            self.tiles[part.part] = places.iter().map(|&o| whole[o]).collect();
        }
        Ok(())
    }

    /// Puts them back.
    fn put_parts(&mut self, parts: &[PartOf], text: &str) -> Result<(), InterpretError> {
        for part in parts {
            let places = self.places(&part.tile, text)?;
            let values = std::mem::take(&mut self.tiles[part.part]);
            let whole = &mut self.tiles[part.tile.tensor];
            places.into_iter().zip(values).for_each(|(o, x)| whole[o] = x);
        }
        Ok(())
    }

    /// An error where the blocks of the cluster do not all mean the same tile.
    fn alike(&mut self, access: &Access, text: &str) -> Result<(), InterpretError> {
        let (corner, at) = (self.corner(access)?, self.index[0]);
        let first = at - at % self.plan.cluster;
        for peer in first..first + self.plan.cluster {
            self.index[0] = peer;
            let other = self.corner(access);
            self.index[0] = at;
            if other? != corner {
                return Err(InterpretError::MulticastApart { statement: text.to_string() });
            }
        }
        Ok(())
    }

    /// The offset of the first element of a tile of the block.
    fn start(&self, tile: &Tile, statement: &str) -> Result<usize, InterpretError> {
        let mut start = 0;
        for fixed in &tile.fixed {
            let index = self.value(&fixed.index, || format!("an index of `{}`", tile.name))?;
            if !(0..fixed.extent).contains(&index) {
                return Err(InterpretError::IndexOutside {
                    statement: statement.to_string(),
                    tensor: tile.name.clone(),
                    mode: fixed.mode,
                    index,
                    extent: fixed.extent,
                });
            }
            start += index * fixed.stride;
        }
        Ok(start as usize)
    }

    /// The offset of each element of a tile of the block.
    pub(super) fn places(&self, tile: &Tile, statement: &str) -> Result<Vec<usize>, InterpretError> {
        let start = self.start(tile, statement)?;
        Ok(match &tile.order {
            None => (0..self.tiles[tile.tensor].len()).collect(),
            Some(order) => order.iter().map(|&o| start + o as usize).collect(),
        })
    }

    /// Reads one side of a copy.
    pub(super) fn fetch(
        &self,
        src: &Side,
        moving: &mut Vec<Element>,
        text: &str,
    ) -> Result<(), InterpretError> {
        moving.clear();
        match src {
            Side::Tile(tile) => {
                self.landed(tile, "reads", text)?;
                let (from, start) = (&self.tiles[tile.tensor], self.start(tile, text)?);
                match &tile.order {
                    None => moving.extend_from_slice(from),
                    Some(order) => moving.extend(order.iter().map(|&o| from[start + o as usize])),
                }
                Ok(())
            }
            Side::Global(access) => self.load(access, moving),
        }
    }

    fn copy(&mut self, src: &Side, dst: &Side, len: usize, text: &str) -> Result<(), InterpretError> {
        let mut moving = std::mem::take(&mut self.moving);
        self.fetch(src, &mut moving, text)?;
        debug_assert_eq!(moving.len(), len);
        match dst {
            Side::Tile(tile) => {
                self.landed(tile, "writes", text)?;
                let start = self.start(tile, text)?;
                let to = &mut self.tiles[tile.tensor];
                match &tile.order {
                    None => std::mem::swap(to, &mut moving),
                    Some(order) => {
                        order.iter().zip(&moving).for_each(|(&o, &x)| to[start + o as usize] = x);
                    }
                }
            }
            Side::Global(access) => {
                let corner = self.corner(access)?;
                self.store(access, &corner, &moving, None);
            }
        }
        self.moving = moving;
        Ok(())
    }
}
