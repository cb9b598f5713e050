//! Tiles that a role reads and writes: where they lie in its tensors and in global buffers.

use tilewright_machine::{AtomicOp, DType};

use super::access::Corner;
use super::bound::Element;
use super::error::InterpretError;
use super::op::{Access, Combine, How, IndexedSteps, Order, PartOf, Side, Tile};
use super::quote::Quote;
use super::role::Role;
use crate::cluster::Multicast;
use crate::expr::Expr;

impl Role<'_> {
    /// Takes the parts of register tensors out that a statement has for operands.
    pub(super) fn take_parts(&mut self, parts: &[PartOf], text: &Quote) -> Result<(), InterpretError> {
        for part in parts {
            let places = self.places(&part.tile, text)?;
            let whole = &self.tiles[part.tile.tensor];
            self.tiles[part.part] = places.iter().map(|&o| whole[o]).collect();
        }
        Ok(())
    }

    /// Puts them back.
    pub(super) fn put_parts(&mut self, parts: &[PartOf], text: &Quote) -> Result<(), InterpretError> {
        for part in parts {
            let places = self.places(&part.tile, text)?;
            let values = std::mem::take(&mut self.tiles[part.part]);
            let whole = &mut self.tiles[part.tile.tensor];
            places.into_iter().zip(values).for_each(|(o, x)| whole[o] = x);
        }
        Ok(())
    }

    /// An error where the blocks of a multicast do not all mean the same tile.
    pub(super) fn alike(
        &mut self,
        access: &Access,
        multicast: Multicast,
        text: &Quote,
    ) -> Result<(), InterpretError> {
        let (corner, at) = (self.corner(access)?, self.index[0]);
        let rank = at % self.plan.cluster;
        for peers in multicast.alike(&self.plan.cluster_shape) {
            for peer in peers.ranks(rank as u32) {
                self.index[0] = at - rank + i64::from(peer);
                let other = self.corner(access);
                self.index[0] = at;
                if other? != corner {
                    return Err(InterpretError::MulticastApart { statement: text.clone(), multicast, peers });
                }
            }
        }
        Ok(())
    }

    /// The offset of the first element of a tile of the block.
    fn start(&self, tile: &Tile, statement: &Quote) -> Result<usize, InterpretError> {
        let mut start = 0;
        for fixed in &tile.fixed {
            let index = self.coord(&fixed.index, || format!("an index of `{}`", tile.name))?;
            if !(0..fixed.extent).contains(&index) {
                return Err(InterpretError::IndexOutside {
                    statement: statement.clone(),
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
    pub(super) fn places(&self, tile: &Tile, statement: &Quote) -> Result<Vec<usize>, InterpretError> {
        if tile.indexed.is_some() {
            return Ok(self.targets(tile, statement)?.into_iter().flatten().collect());
        }
        let start = self.start(tile, statement)?;
        Ok(match &tile.order {
            None => (0..self.tiles[tile.tensor].len()).collect(),
            Some(order) => order.iter().map(|&o| start + o as usize).collect(),
        })
    }

    /// The offset of each element of a tile of the block with a mode that a register tensor indexes; `None` outside of the mode.
    pub(super) fn targets(
        &self,
        tile: &Tile,
        statement: &Quote,
    ) -> Result<Vec<Option<usize>>, InterpretError> {
        let start = self.start(tile, statement)?;
        let (Some(order), Some((indices, extent, stride))) = (&tile.order, &tile.indexed) else {
            return Ok(self.places(tile, statement)?.into_iter().map(Some).collect());
        };
        let by = &self.tiles[indices.by];
        let target = |(&o, &i): (&u32, &u32)| {
            let row = named(by[i as usize].value, *extent)?;
            Some(start + o as usize + row * *stride as usize)
        };
        Ok(order.iter().zip(&indices.of).map(target).collect())
    }

    /// Reads one side of a copy.
    pub(super) fn fetch(
        &self,
        src: &Side,
        moving: &mut Vec<Element>,
        outside: f64,
        text: &Quote,
    ) -> Result<(), InterpretError> {
        moving.clear();
        match src {
            Side::Tile(tile) => {
                self.landed(tile, "reads", text)?;
                let from = &self.tiles[tile.tensor];
                if tile.indexed.is_some() {
                    let elements = self.targets(tile, text)?.into_iter();
                    moving.extend(elements.map(|at| at.map_or(Element::exact(outside), |at| from[at])));
                    return Ok(());
                }
                let start = self.start(tile, text)?;
                match &tile.order {
                    None => moving.extend_from_slice(from),
                    Some(order) => moving.extend(order.iter().map(|&o| from[start + o as usize])),
                }
                Ok(())
            }
            Side::Global(access) => self.load(access, moving, outside),
        }
    }

    pub(super) fn copy(
        &mut self,
        src: &Side,
        dst: &Side,
        len: usize,
        how: How,
        text: &Quote,
    ) -> Result<(), InterpretError> {
        let mut moving = std::mem::take(&mut self.moving);
        self.fetch(src, &mut moving, how.outside, text)?;
        debug_assert_eq!(moving.len(), len);
        match dst {
            Side::Tile(tile) => {
                self.landed(tile, "writes", text)?;
                if tile.indexed.is_some() {
                    let targets = self.targets(tile, text)?;
                    let to = &mut self.tiles[tile.tensor];
                    for (at, x) in targets.into_iter().zip(&moving).filter_map(|(at, x)| Some((at?, *x))) {
                        to[at] = how.combine.map_or(x, |(op, dtype)| to[at].combined(op, x, dtype));
                    }
                    self.moving = moving;
                    return Ok(());
                }
                let start = self.start(tile, text)?;
                let to = &mut self.tiles[tile.tensor];
                match (&tile.order, how.combine) {
                    (None, Some((op, dtype))) => {
                        to.iter_mut().zip(&moving).for_each(|(old, x)| *old = old.combined(op, *x, dtype));
                    }
                    (Some(order), Some((op, dtype))) => order.iter().zip(&moving).for_each(|(&o, &x)| {
                        let old = &mut to[start + o as usize];
                        *old = old.combined(op, x, dtype);
                    }),
                    (None, None) => std::mem::swap(to, &mut moving),
                    (Some(order), None) => {
                        order.iter().zip(&moving).for_each(|(&o, &x)| to[start + o as usize] = x);
                    }
                }
            }
            Side::Global(access) => {
                let corner = self.corner(access)?;
                self.store(access, &corner, &moving, how.combine);
            }
        }
        self.moving = moving;
        Ok(())
    }

    /// Changes elements of memory one after the other, each with what was there as a result; 0 where an element lies outside.
    pub(super) fn change(
        &mut self,
        (src, compare): (usize, Option<usize>),
        dst: &Side,
        old: usize,
        (op, dtype): (AtomicOp, DType),
        text: &Quote,
    ) -> Result<(), InterpretError> {
        let values = self.tiles[src].clone();
        let expected = compare.map(|compare| self.tiles[compare].clone());
        let mut results = vec![Element::exact(0.0); values.len()];
        let targets = match dst {
            Side::Tile(tile) => {
                self.landed(tile, "writes", text)?;
                self.targets(tile, text)?
            }
            Side::Global(access) => {
                let (corner, mut targets) = (self.corner(access)?, Vec::new());
                access.each(&corner, |offset| targets.push(offset));
                targets
            }
        };
        let mut order: Vec<usize> = (0..values.len()).collect();
        if self.plan.order == Order::Descending {
            order.reverse();
        }
        for at in order {
            let Some(place) = targets.get(at).copied().flatten() else { continue };
            let x = values[at];
            let found = match dst {
                Side::Tile(tile) => self.tiles[tile.tensor][place],
                Side::Global(access) => {
                    if let Some(watch) = &self.watch {
                        watch.loaded(access.param, place);
                        watch.stored(access.param, place, None);
                    }
                    self.buffers[access.param].read(place)
                }
            };
            results[at] = found;
            let bits = |y: &Element| match dtype.is_wide_integer() {
                true => dtype.encode_integer((*y).integer()),
                false => dtype.encode(y.value),
            };
            let same = |y: &Element| bits(y) == bits(&found);
            let new = match op {
                AtomicOp::Combine(op) => match dst {
                    Side::Global(access) => {
                        self.buffers[access.param].combine(place, x, (op, dtype));
                        continue;
                    }
                    Side::Tile(_) => found.combined(op, x, dtype),
                },
                AtomicOp::CompareAndSwap if !expected.as_ref().is_some_and(|of| same(&of[at])) => continue,
                AtomicOp::CompareAndSwap | AtomicOp::Exchange => x,
                AtomicOp::Increment => {
                    let (count, most) = (dtype.encode(found.value), dtype.encode(x.value));
                    Element::exact(dtype.decode(if count >= most { 0 } else { count + 1 }))
                }
            };
            match dst {
                Side::Tile(tile) => self.tiles[tile.tensor][place] = new,
                Side::Global(access) => self.buffers[access.param].write(place, new),
            }
        }
        self.tiles[old] = results;
        Ok(())
    }

    // Global buffers.

    /// The corner of a tile at the sizes, the block and the counters at hand.
    pub(super) fn corner(&self, access: &Access) -> Result<Corner, InterpretError> {
        let all = |list: &[Expr], what: &str| -> Result<Vec<i64>, _> {
            list.iter().map(|e| self.value(e, || format!("{what} of `{}`", access.name))).collect()
        };
        let steps = match &access.indexed {
            None => None,
            Some(IndexedSteps { indices, extent, scale, .. }) => {
                let extent = self.value(extent, || format!("an extent of `{}`", access.name))?;
                let named = self.tiles[indices.by].iter().map(|x| named(x.value, extent));
                Some(named.map(|row| Some(row? as i64 * scale)).collect())
            }
        };
        for (mode, index, extent) in &access.within {
            let index = self.value(index, || format!("an index of `{}`", access.name))?;
            let extent = self.value(extent, || format!("an extent of `{}`", access.name))?;
            if !(0..extent).contains(&index) {
                let (statement, tensor) = (Quote::new(&access.name, access.span), access.name.clone());
                return Err(InterpretError::IndexOutside { statement, tensor, mode: *mode, index, extent });
            }
        }
        let base = all(&access.base, "an offset")?;
        if let Some(at) = base.last().copied().filter(|at| *at < 0 && !access.folded.is_empty()) {
            return Err(InterpretError::FoldedAhead { view: Quote::new(&access.name, access.span), at });
        }
        let folded = access.folded.iter();
        let digits =
            folded.map(|(extent, ..)| self.value(extent, || format!("an extent of `{}`", access.name)));
        let digits = digits.collect::<Result<_, _>>()?;
        Ok(Corner { base, ends: all(&access.shape, "the end")?, steps, digits })
    }

    /// Reads a tile of a buffer; what lies outside has this value.
    pub(super) fn load(
        &self,
        access: &Access,
        out: &mut Vec<Element>,
        outside: f64,
    ) -> Result<(), InterpretError> {
        let corner = self.corner(access)?;
        let start = access.start_if_inside(&corner);
        if let Some(watch) = &self.watch {
            access.visit(&corner, |offset| watch.loaded(access.param, offset));
        }
        let buffer = &self.buffers[access.param];
        match start {
            Some(start) => out.extend(access.offsets.iter().map(|o| buffer.read((start + o) as usize))),
            None => access.each(&corner, |offset| {
                out.push(offset.map_or(Element::exact(outside), |o| buffer.read(o)));
            }),
        }
        Ok(())
    }

    /// Writes a tile to a buffer from a coordinate on, or combines it with what is there.
    pub(super) fn store(&self, access: &Access, corner: &Corner, tile: &[Element], combine: Option<Combine>) {
        let buffer = &self.buffers[access.param];
        if let Some(watch) = &self.watch {
            access.visit_with(corner, tile, |offset, x: Element| match combine {
                Some(_) => watch.stored(access.param, offset, None),
                None => watch.replaced(access.param, offset, || {
                    let changes = !buffer.read(offset).same_value(x);
                    buffer.write(offset, x);
                    changes
                }),
            });
        }
        let put = |offset: usize, x: Element| match combine {
            None => buffer.write(offset, x),
            Some(by) => buffer.combine(offset, x, by),
        };
        access.visit_with(corner, tile, put);
    }
}

/// The coordinate that an index names along a mode; `None` outside of it, and where nothing has written the index.
fn named(index: f64, extent: i64) -> Option<usize> {
    (index >= 0.0 && index < extent as f64).then_some(index as usize)
}
