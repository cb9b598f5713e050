//! Running one block.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tilewright_machine::DType;

use super::plan::{Access, Code, Op, Plan, Side, Tile};
use super::round::round_all;
use super::{Buffer, InterpretError, round, shapes};
use crate::expr::{Axis, Expr, Scope, SymbolId};

/// An asynchronous copy in flight: what it writes, and where.
struct InFlight {
    tensor: usize,
    places: Vec<usize>,
    values: Vec<f64>,
}

struct Block<'a> {
    plan: &'a Plan,
    buffers: &'a [Buffer<'a>],
    index: [i64; 3],
    /// Sizes, and counters of open loops, by symbol.
    values: Vec<Option<i64>>,
    /// Each tensor's elements, leftmost mode fastest.
    tiles: Vec<Vec<f64>>,
    /// A tile on its way from one side of a copy to the other.
    moving: Vec<f64>,
    /// For each element of a tensor the asynchronous copy that is on its way there; empty before the first.
    awaited: Vec<Vec<Option<usize>>>,
    /// Groups of asynchronous copies, the oldest first.
    groups: VecDeque<Vec<InFlight>>,
    /// The copies that are in no group yet.
    open: Vec<InFlight>,
}

impl Scope for Block<'_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.values.get(id.0 as usize).copied().flatten()
    }

    fn block(&self, axis: Axis) -> Option<i64> {
        Some(self.index[axis.index()])
    }
}

/// An intermediate value of an elementwise expression.
enum Value {
    One(f64),
    Each(Vec<f64>),
}

/// Runs the block with this index.
pub(super) fn block(
    plan: &Plan,
    buffers: &[Buffer<'_>],
    index: [i64; 3],
    values: Vec<Option<i64>>,
) -> Result<(), InterpretError> {
    Block {
        plan,
        buffers,
        index,
        values,
        tiles: vec![Vec::new(); plan.tensors],
        moving: Vec::new(),
        awaited: vec![Vec::new(); plan.tensors],
        groups: VecDeque::new(),
        open: Vec::new(),
    }
    .run(&plan.ops)
}

impl Block<'_> {
    fn value(&self, expr: &Expr, what: impl Fn() -> String) -> Result<i64, InterpretError> {
        expr.eval(self).ok_or_else(|| InterpretError::NoValue { what: what() })
    }

    fn run(&mut self, ops: &[Op]) -> Result<(), InterpretError> {
        ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), InterpretError> {
        match op {
            Op::Define { tensor, len } => {
                self.tiles[*tensor].clear();
                self.tiles[*tensor].resize(*len, f64::NAN);
            }
            Op::Copy { src, dst, len, text } => self.copy(src, dst, *len, text)?,
            Op::CopyAsync { src, dst, copy } => self.copy_async(src, dst, *copy)?,
            Op::Commit => self.groups.push_back(std::mem::take(&mut self.open)),
            Op::Wait(groups) => {
                let left = self.value(groups, || "a number of groups".to_string())?;
                while i64::try_from(self.groups.len()).unwrap_or(i64::MAX) > left
                    && let Some(group) = self.groups.pop_front()
                {
                    group.into_iter().for_each(|copy| self.land(copy));
                }
            }
            Op::Parts { parts, op, text } => {
                for part in parts {
                    let places = self.places(&part.tile, text)?;
                    let whole = &self.tiles[part.tile.tensor];
                    self.tiles[part.part] = places.iter().map(|&o| whole[o]).collect();
                }
                self.op(op)?;
                for part in parts {
                    let places = self.places(&part.tile, text)?;
                    let values = std::mem::take(&mut self.tiles[part.part]);
                    let whole = &mut self.tiles[part.tile.tensor];
                    places.into_iter().zip(values).for_each(|(o, x)| whole[o] = x);
                }
            }
            Op::Gemm { c, a, b, shape, dtype } => {
                let mut acc = std::mem::take(&mut self.tiles[*c]);
                gemm(&mut acc, &self.tiles[*a], &self.tiles[*b], *shape, *dtype);
                self.tiles[*c] = acc;
            }
            Op::Convert { dst, src, dtype, through_f32 } => {
                let mut tile = std::mem::take(&mut self.tiles[*dst]);
                if dst != src {
                    tile.clone_from(&self.tiles[*src]);
                }
                if *through_f32 {
                    round_all(DType::F32, &mut tile);
                }
                if let Some(dtype) = dtype {
                    round_all(*dtype, &mut tile);
                }
                self.tiles[*dst] = tile;
            }
            Op::Fill { dst, len, value } => {
                self.tiles[*dst].clear();
                self.tiles[*dst].resize(*len, *value);
            }
            Op::Elementwise { dst, len, code, dtype } => {
                let mut tile = match self.elementwise(code)? {
                    Value::One(x) => vec![x; *len],
                    Value::Each(tile) => tile,
                };
                round_all(DType::F32, &mut tile);
                if *dtype != DType::F32 {
                    round_all(*dtype, &mut tile);
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
            Op::For { counter, lo, hi, body } => {
                let lo = self.value(lo, || "a loop's first value".to_string())?;
                let hi = self.value(hi, || "a loop's end".to_string())?;
                for i in lo..hi {
                    self.values[*counter] = Some(i);
                    self.run(body)?;
                }
                self.values[*counter] = None;
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
    fn places(&self, tile: &Tile, statement: &str) -> Result<Vec<usize>, InterpretError> {
        let start = self.start(tile, statement)?;
        Ok(match &tile.order {
            None => (0..self.tiles[tile.tensor].len()).collect(),
            Some(order) => order.iter().map(|&o| start + o as usize).collect(),
        })
    }

    /// An error where an element of the tile waits for an asynchronous copy.
    fn landed(&self, tile: &Tile, access: &'static str, statement: &str) -> Result<(), InterpretError> {
        let awaited = &self.awaited[tile.tensor];
        if awaited.is_empty() {
            return Ok(());
        }
        let copy = self.places(tile, statement)?.into_iter().find_map(|place| awaited[place]);
        copy.map_or(Ok(()), |copy| {
            Err(InterpretError::InFlight {
                statement: statement.to_string(),
                access,
                tensor: tile.name.clone(),
                copy: self.plan.copies[copy].clone(),
            })
        })
    }

    /// Reads one side of a copy.
    fn fetch(&self, src: &Side, moving: &mut Vec<f64>, text: &str) -> Result<(), InterpretError> {
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
            Side::Global(access) => self.store(access, &moving)?,
        }
        self.moving = moving;
        Ok(())
    }

    fn copy_async(&mut self, src: &Side, dst: &Side, copy: usize) -> Result<(), InterpretError> {
        let text = &self.plan.copies[copy];
        let mut values = Vec::new();
        self.fetch(src, &mut values, text)?;
        // The verifier knows that the destination is a shared tensor.
        let Side::Tile(tile) = dst else { return Ok(()) };
        self.landed(tile, "writes", text)?;
        let places = self.places(tile, text)?;
        let awaited = &mut self.awaited[tile.tensor];
        awaited.resize(self.tiles[tile.tensor].len(), None);
        places.iter().for_each(|&place| awaited[place] = Some(copy));
        self.open.push(InFlight { tensor: tile.tensor, places, values });
        Ok(())
    }

    /// Completes an asynchronous copy.
    fn land(&mut self, copy: InFlight) {
        for (place, x) in copy.places.into_iter().zip(copy.values) {
            self.tiles[copy.tensor][place] = x;
            self.awaited[copy.tensor][place] = None;
        }
    }

    fn base(&self, access: &Access) -> Result<Vec<i64>, InterpretError> {
        access.base.iter().map(|e| self.value(e, || format!("an offset of `{}`", access.name))).collect()
    }

    fn load(&self, access: &Access, out: &mut Vec<f64>) -> Result<(), InterpretError> {
        let base = self.base(access)?;
        let start = access.start_if_inside(&base);
        match (&self.buffers[access.param], start) {
            (Buffer::Input(data), Some(start)) => {
                out.extend(access.offsets.iter().map(|o| data[(start + o) as usize]));
            }
            (Buffer::Output(data), Some(start)) => {
                let read = |o: &i64| f64::from_bits(data[(start + o) as usize].load(Ordering::Relaxed));
                out.extend(access.offsets.iter().map(read));
            }
            (Buffer::Input(data), None) => {
                access.each(&base, |offset| out.push(offset.map_or(0.0, |o| data[o])))
            }
            (Buffer::Output(data), None) => access.each(&base, |offset| {
                out.push(offset.map_or(0.0, |o| f64::from_bits(data[o].load(Ordering::Relaxed))));
            }),
            // The verifier knows that a view is of a tensor.
            (Buffer::Scalar(_), _) => out.resize(access.offsets.len(), f64::NAN),
        }
        Ok(())
    }

    fn store(&self, access: &Access, tile: &[f64]) -> Result<(), InterpretError> {
        let base = self.base(access)?;
        let Buffer::Output(data) = &self.buffers[access.param] else { return Ok(()) };
        if let Some(start) = access.start_if_inside(&base) {
            for (o, x) in access.offsets.iter().zip(tile) {
                data[(start + o) as usize].store(x.to_bits(), Ordering::Relaxed);
            }
            return Ok(());
        }
        let mut values = tile.iter();
        access.each(&base, |offset| {
            if let (Some(o), Some(x)) = (offset, values.next()) {
                data[o].store(x.to_bits(), Ordering::Relaxed);
            }
        });
        Ok(())
    }

    fn elementwise(&self, code: &Code) -> Result<Value, InterpretError> {
        Ok(match code {
            Code::Tensor(id) => Value::Each(self.tiles[*id].clone()),
            Code::Number(x) => Value::One(*x),
            Code::Scalar(id) => Value::One(match &self.buffers[*id] {
                Buffer::Scalar(x) => *x,
                Buffer::Input(_) | Buffer::Output(_) => f64::NAN,
            }),
            Code::Int(e) => {
                let value = self.value(e, || "an integer of an elementwise expression".to_string())?;
                Value::One(round(DType::F32, value as f64))
            }
            Code::Unary(op, x) => match self.elementwise(x)? {
                Value::One(x) => Value::One(op.apply(x)),
                Value::Each(mut tile) => {
                    tile.iter_mut().for_each(|x| *x = op.apply(*x));
                    Value::Each(tile)
                }
            },
            Code::Binary(op, x, y) => match (self.elementwise(x)?, self.elementwise(y)?) {
                (Value::One(x), Value::One(y)) => Value::One(op.apply(x, y)),
                (Value::One(x), Value::Each(mut tile)) => {
                    tile.iter_mut().for_each(|y| *y = op.apply(x, *y));
                    Value::Each(tile)
                }
                (Value::Each(mut tile), Value::One(y)) => {
                    tile.iter_mut().for_each(|x| *x = op.apply(*x, y));
                    Value::Each(tile)
                }
                (Value::Each(mut tile), Value::Each(other)) => {
                    tile.iter_mut().zip(other).for_each(|(x, y)| *x = op.apply(*x, y));
                    Value::Each(tile)
                }
            },
        })
    }
}

impl Access {
    /// The offset of the first element, where the whole tile lies within the buffer.
    fn start_if_inside(&self, base: &[i64]) -> Option<i64> {
        let reach = self.reach.as_ref()?;
        let mut start = 0i64;
        for (((b, reach), extent), stride) in base.iter().zip(reach).zip(&self.shape).zip(&self.strides) {
            if *b < 0 || b.checked_add(*reach)? >= *extent {
                return None;
            }
            start += b * stride;
        }
        Some(start)
    }

    /// Calls `visit` for every element of the tile with its offset in the buffer, `None` outside.
    fn each(&self, base: &[i64], mut visit: impl FnMut(Option<usize>)) {
        let mut digits = vec![0i64; self.leaves.len()];
        let mut coordinate: Vec<i128> = Vec::with_capacity(base.len());
        for _ in 0..self.offsets.len() {
            coordinate.clear();
            coordinate.extend(base.iter().map(|b| i128::from(*b)));
            for ((_, dim, scale), digit) in self.leaves.iter().zip(&digits) {
                coordinate[*dim] += i128::from(*digit) * i128::from(*scale);
            }
            let inside = coordinate.iter().zip(&self.shape).all(|(c, n)| (0..i128::from(*n)).contains(c));
            // Within the buffer the offset is less than its length.
            let offset = || {
                coordinate.iter().zip(&self.strides).map(|(c, d)| c * i128::from(*d)).sum::<i128>() as usize
            };
            visit(inside.then(offset));
            for (digit, (extent, _, _)) in digits.iter_mut().zip(&self.leaves) {
                *digit += 1;
                if *digit < *extent {
                    break;
                }
                *digit = 0;
            }
        }
    }
}

/// `c += a · bᵀ` with every tile's leftmost mode contiguous: a column of `c` takes multiples of columns of `a`.
fn gemm(c: &mut [f64], a: &[f64], b: &[f64], [m, n, k]: [usize; 3], dtype: DType) {
    for (j, column) in c.chunks_exact_mut(m).enumerate() {
        let mut p = 0;
        while p + 4 <= k {
            let factors = [0, 1, 2, 3].map(|i| b[j + (p + i) * n]);
            let [a0, a1, a2, a3] = [0, 1, 2, 3].map(|i| &a[(p + i) * m..][..m]);
            for ((((x, a0), a1), a2), a3) in column.iter_mut().zip(a0).zip(a1).zip(a2).zip(a3) {
                *x += (a0 * factors[0] + a1 * factors[1]) + (a2 * factors[2] + a3 * factors[3]);
            }
            p += 4;
        }
        while p < k {
            let factor = b[j + p * n];
            for (x, y) in column.iter_mut().zip(&a[p * m..][..m]) {
                *x += y * factor;
            }
            p += 1;
        }
        round_all(dtype, column);
    }
}
