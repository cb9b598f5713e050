//! Elementwise statements, casts and fills: value by value, by the operations that [`tilewright_tile::arith`] defines, and rounded
//! once to the result's type. Where [`packed`] instructions give the same bits, they are taken.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tilewright_layout::{Layout, compose};
use tilewright_machine::{DType, ScalarOp};
use tilewright_simt::{ArrayId, Build, Builder, Operand, Reg, Special};
use tilewright_synth::{TvLayout, cast, moves};
use tilewright_tile::{BinaryOp, Compute, Diagnostic, ElemExpr, Origin, Rounded, TensorId, UnaryOp, rounded};

use crate::context::{Lower, internal};
use crate::wide::{self, convert};
use crate::{asm, elements, integer, packed, scalar};

impl Lower<'_> {
    pub(crate) fn fill(&mut self, dst: TensorId, value: f64) -> Result<(), Diagnostic> {
        let array = self.array(dst)?;
        let dtype = self.verified.tensor(dst).dtype;
        let words = elements::words_of_literal(dtype, value);
        let count = elements::registers(self.count(dst)?, dtype.bits());
        for index in 0..count {
            self.b.write(Reg { array, index }, Operand::Imm(u64::from(words[index as usize % 2])));
        }
        Ok(())
    }

    /// A cast, by the rows that [`cast`] chooses. Each thread has the values of both sides, perhaps in different orders.
    pub(crate) fn cast(&mut self, dst: TensorId, src: TensorId) -> Result<(), Diagnostic> {
        let dtype = |id| self.verified.tensor(id).dtype;
        let (from, to) = (dtype(src), dtype(dst));
        let (source, target) = (self.array(src)?, self.array(dst)?);
        let count = self.count(dst)?;
        let held = elements::registers(self.count(src)?, from.bits());
        let words = elements::read_words(self.b, source, held);
        let order = self.order_of_cast(dst, src, count)?;
        if from == to || to.bits() != 16 {
            let results = cast::emit(&mut elements::Into(self.b), from, to, &words, &order);
            elements::write_words(self.b, target, results);
            return Ok(());
        }
        // What products multiply comes register by register, in the order in which they want it.
        let per = tilewright_machine::per_register(to.bits());
        for index in self.first_use.registers(dst, elements::registers(count, to.bits()), to.bits()) {
            let order = &order[(index * per) as usize..((index + 1) * per).min(count) as usize];
            let results = cast::emit(&mut elements::Into(self.b), from, to, &words, order);
            for word in results {
                self.b.write(Reg { array: target, index }, word);
            }
        }
        Ok(())
    }

    /// For each value of a cast's result the operand's.
    fn order_of_cast(&self, dst: TensorId, src: TensorId, count: u32) -> Result<Vec<u32>, Diagnostic> {
        let (Some(to), Some(from)) = (self.synthesis.register(dst), self.synthesis.register(src)) else {
            return Ok((0..count).collect());
        };
        if to.same_function(from) {
            return Ok((0..count).collect());
        }
        let span = self.verified.tensor(dst).span;
        let moves = moves(from, to, i64::from(self.verified.threads()));
        let moves = moves.ok_or_else(|| internal(span, "a cast between threads"))?;
        Ok(moves.into_iter().map(|(source, _)| source).collect())
    }

    /// An elementwise statement. `parts` are the operands that repeat, each with the value that each of the result's takes.
    pub(crate) fn elementwise(
        &mut self,
        dst: TensorId,
        expr: &ElemExpr,
        parts: &[(TensorId, Vec<u32>)],
    ) -> Result<(), Diagnostic> {
        let parts: BTreeMap<TensorId, &[u32]> =
            parts.iter().map(|(id, values)| (*id, values.as_slice())).collect();
        let array = self.array(dst)?;
        let dtype = self.verified.tensor(dst).dtype;
        let count = self.count(dst)?;
        if let ElemExpr::Tensor(src) = expr {
            // Nothing is computed: an element of any type stays what it is.
            let words =
                elements::read_words(self.b, self.array(*src)?, elements::registers(count, dtype.bits()));
            elements::write_words(self.b, array, words);
            return Ok(());
        }
        // A register of the result may be one of the operands': its elements are all read before it is written.
        if packed::applies(expr, dtype) {
            let ids = expr.tensors();
            let arrays: BTreeMap<TensorId, ArrayId> =
                ids.into_iter().map(|id| Ok((id, self.array(id)?))).collect::<Result<_, Diagnostic>>()?;
            for index in self.first_use.registers(dst, elements::registers(count, dtype.bits()), dtype.bits())
            {
                let mut read = |b: &mut Builder, id: TensorId| match parts.get(&id) {
                    None => b.read(Reg { array: arrays[&id], index }),
                    Some(values) => elements::read_pair(b, arrays[&id], values, index),
                };
                let word = packed::register(self.b, (self.arch, dtype), expr, &mut read);
                self.b.write(Reg { array, index }, word);
            }
            return Ok(());
        }
        let (tree, mut coordinates) = self.typed(dst, expr, parts)?;
        if let Rounded::Convert([from, _], inner) = &tree
            && from.is_packed()
            && from.dtype() == dtype
        {
            for index in self.first_use.registers(dst, elements::registers(count, dtype.bits()), dtype.bits())
            {
                let word = self.pair(inner, (index, count), &mut coordinates)?;
                self.b.write(Reg { array, index }, word);
            }
            return Ok(());
        }
        let per_register = tilewright_machine::per_register(dtype.bits());
        for first in (0..count).step_by(per_register as usize) {
            let values = first..(first + per_register).min(count);
            let results: Vec<Operand> =
                values.map(|value| self.element(&tree, value, &mut coordinates)).collect::<Result<_, _>>()?;
            match dtype {
                DType::Bool => {
                    let word = cast::pack_truths(&mut elements::Into(self.b), &results);
                    self.b.write(elements::place(array, first, dtype.bits()).0, word);
                }
                DType::I32 | DType::U32 => self.b.write(Reg { array, index: first }, results[0]),
                _ => elements::write_register(self.b, array, dtype, first, &results),
            }
        }
        Ok(())
    }

    /// Values `2 · index` and `2 · index + 1` of a tree in packed arithmetic, of so many: the register in which they lie. The second is anything where
    /// there is none.
    fn pair(
        &mut self,
        tree: &Rounded,
        (index, count): (u32, u32),
        coordinates: &mut Coordinates<'_>,
    ) -> Result<Operand, Diagnostic> {
        let (arch, at) = (self.arch, (index, count));
        if let Rounded::Convert([_, to], x) = tree
            && let Some((id, dtype)) = self.element_of_type(x, *to)
        {
            let array = self.array(id)?;
            return Ok(match coordinates.parts.get(&id) {
                None => self.b.read(elements::place(array, 2 * index, dtype.bits()).0),
                Some(values) => elements::read_pair(self.b, array, values, index),
            });
        }
        Ok(match tree {
            Rounded::Number(compute, x) => packed::both(compute.dtype(), *x),
            Rounded::Unary(op @ (UnaryOp::Neg | UnaryOp::Abs), _, x) => {
                let x = self.pair(x, at, coordinates)?;
                packed::sign(self.b, *op, x)
            }
            Rounded::Binary(op, compute, x, y) if packed::has(*op) => {
                let (x, y) = (self.pair(x, at, coordinates)?, self.pair(y, at, coordinates)?);
                packed::binary(self.b, (arch, compute.dtype()), *op, [x, y])
            }
            Rounded::Fma(compute, operands) => {
                let mut words = Vec::new();
                for x in &**operands {
                    words.push(self.pair(x, at, coordinates)?);
                }
                packed::fma(self.b, compute.dtype(), &words)
            }
            Rounded::Where(compute, operands) => {
                let [c, x, y] = &**operands;
                let mut halves = Vec::new();
                for value in 2 * index..(2 * index + 2).min(count) {
                    halves.push(match self.holds(c, value, coordinates)? {
                        Some(holds) => Operand::Imm(u64::from(holds)),
                        None => self.element(c, value, coordinates)?,
                    });
                }
                if let [Operand::Imm(first), rest @ ..] = &halves[..]
                    && rest.iter().all(|half| *half == Operand::Imm(*first))
                {
                    return self.pair(if *first == 1 { x } else { y }, at, coordinates);
                }
                let (x, y) = (self.pair(x, at, coordinates)?, self.pair(y, at, coordinates)?);
                let mut choice = |half| match half {
                    Operand::Imm(holds) => [y, x][holds as usize],
                    half => choose(self.b, *compute, half, x, y),
                };
                let chosen: Vec<Operand> = halves.into_iter().map(&mut choice).collect();
                match chosen[..] {
                    // The lower half of the first, the upper half of the second.
                    [low, high] => self.b.scalar(ScalarOp::PrmtB32, &[low, high, Operand::Imm(0x7610)]),
                    _ => chosen[0],
                }
            }
            _ => {
                let low = self.element(tree, 2 * index, coordinates)?;
                if 2 * index + 1 == count {
                    return Ok(low);
                }
                let high = self.element(tree, 2 * index + 1, coordinates)?;
                elements::join(self.b, &[low, high], 16)
            }
        })
    }

    /// The tensor that a tree is an element of, if that is of the type of packed arithmetic.
    fn element_of_type(&self, tree: &Rounded, compute: Compute) -> Option<(TensorId, DType)> {
        let Rounded::Tensor(id) = tree else { return None };
        let dtype = self.verified.tensor(*id).dtype;
        (compute.is_packed() && dtype == compute.dtype()).then_some((*id, dtype))
    }

    /// The truth values of an elementwise statement, one a value of the thread.
    pub(crate) fn truths(
        &mut self,
        dst: TensorId,
        expr: &ElemExpr,
        parts: &[(TensorId, Vec<u32>)],
    ) -> Result<Vec<Operand>, Diagnostic> {
        let parts = parts.iter().map(|(id, values)| (*id, values.as_slice())).collect();
        let (tree, mut coordinates) = self.typed(dst, expr, parts)?;
        (0..self.count(dst)?).map(|value| self.element(&tree, value, &mut coordinates)).collect()
    }

    /// The typed expression of an elementwise statement.
    fn typed<'p>(
        &self,
        dst: TensorId,
        expr: &ElemExpr,
        parts: BTreeMap<TensorId, &'p [u32]>,
    ) -> Result<(Rounded, Coordinates<'p>), Diagnostic> {
        let row = self.verified.tensor(dst);
        let tree = rounded(expr, row.dtype, self.verified)
            .map_err(|_| internal(row.span, "types that clash, which the verifier refuses"))?;
        Ok((tree, Coordinates { dst: Some(dst), axes: BTreeMap::new(), parts, operands: &[] }))
    }

    /// The results of a function that puts tuples together.
    pub(crate) fn function_of(
        &mut self,
        trees: &[Rounded],
        operands: &[Operand],
    ) -> Result<Vec<Operand>, Diagnostic> {
        let (axes, parts) = (BTreeMap::new(), BTreeMap::new());
        let mut coordinates = Coordinates { dst: None, axes, parts, operands };
        trees.iter().map(|tree| self.element(tree, 0, &mut coordinates)).collect()
    }

    fn element(
        &mut self,
        tree: &Rounded,
        value: u32,
        coordinates: &mut Coordinates<'_>,
    ) -> Result<Operand, Diagnostic> {
        if let Rounded::Where(_, operands) = tree
            && let Some(holds) = self.holds(&operands[0], value, coordinates)?
        {
            return self.element(&operands[if holds { 1 } else { 2 }], value, coordinates);
        }
        if let Rounded::Convert([_, to], x) = tree
            && let Some((id, dtype)) = self.element_of_type(x, *to)
        {
            let value = coordinates.parts.get(&id).map_or(value, |values| values[value as usize]);
            let (reg, shift) = elements::place(self.array(id)?, value, dtype.bits());
            let word = self.b.read(reg);
            return Ok(packed::half(self.b, word, shift));
        }
        if let Some((base, constant)) = self.displaced(tree, value, coordinates)? {
            // Hoisted, each value's would hold a register through the loop.
            return Ok(self.b.hoisting(false, |b| scalar::add(b, base, scalar::int(constant))));
        }
        let mut operands = Vec::new();
        for x in tree.operands() {
            operands.push(self.element(x, value, coordinates)?);
        }
        Ok(match tree {
            Rounded::Tensor(id) => {
                let array = self.array(*id)?;
                let value = coordinates.parts.get(id).map_or(value, |values| values[value as usize]);
                match self.verified.tensor(*id).dtype {
                    DType::I32 | DType::U32 => self.b.read(Reg { array, index: value }),
                    DType::Bool => {
                        let (reg, shift) = elements::place(array, value, DType::Bool.bits());
                        let word = self.b.read(reg);
                        cast::read_truth(&mut elements::Into(self.b), word, shift)
                    }
                    dtype => elements::read(self.b, array, value, dtype),
                }
            }
            Rounded::Number(compute, x) => Operand::Imm(compute.dtype().encode(*x)),
            Rounded::Integer(compute, x) => Operand::Imm(compute.dtype().encode_integer(*x)),
            Rounded::Scalar(param) => Operand::Value(self.b.param(param.0)),
            Rounded::Int(e) if e.is_condition() => {
                let truth = self.expr(e);
                self.b.scalar(ScalarOp::NeI32, &[truth, scalar::int(0)])
            }
            Rounded::Int(e) => self.expr(e),
            Rounded::Index(axis) => self.coordinate(*axis, value, coordinates)?,
            Rounded::Operand(number) => coordinates
                .operands
                .get(*number as usize)
                .copied()
                .ok_or_else(|| internal(Origin::Unknown, "an operand of a function that is not passed"))?,
            // Where no argument is subnormal, nothing tells the forms that take such for 0 from the others, which are twice as long.
            Rounded::Unary(UnaryOp::Rsqrt, _, x) if x.is_normal() => {
                self.b.scalar(ScalarOp::RsqrtFtzF32, &operands)
            }
            Rounded::Unary(op @ (UnaryOp::Log | UnaryOp::Log2), _, x) if x.is_normal() => {
                let log2 = self.b.scalar(ScalarOp::Lg2FtzF32, &operands);
                if *op == UnaryOp::Log { natural(self.b, log2) } else { log2 }
            }
            Rounded::Unary(op, compute, _) if compute.is_packed() => {
                packed::unary(self.b, *op, *compute, operands[0])
            }
            Rounded::Binary(op, compute, _, _) if compute.is_packed() => {
                packed::operator(self.b, self.arch, *op, *compute, [operands[0], operands[1]])
            }
            Rounded::Unary(op, compute, _) => unary(self.b, *op, *compute, operands[0]),
            Rounded::Binary(op, compute, _, _) => binary(self.b, *op, *compute, [operands[0], operands[1]]),
            Rounded::Fma(compute, _) if compute.is_packed() => {
                packed::fma(self.b, compute.dtype(), &operands)
            }
            Rounded::Fma(Compute::F64, _) => self.b.scalar(ScalarOp::FmaF64, &operands),
            Rounded::Fma(..) => self.b.scalar(ScalarOp::FmaF32, &operands),
            Rounded::Convert([from, to], _) => convert(self.b, *from, *to, operands[0]),
            Rounded::Where(compute, _) => {
                let [c, x, y] = [operands[0], operands[1], operands[2]];
                choose(self.b, *compute, c, x, y)
            }
            // Registers have no types.
            Rounded::Bitcast(..) => operands[0],
            Rounded::Asm(asm) => asm::emit(self.b, asm, &operands),
        })
    }

    /// A coordinate, or a sum or difference with one, as what all values of a thread have in common and a constant; `None` of others. It is computed
    /// where it is used, which is often a branch that few iterations take.
    fn displaced(
        &mut self,
        tree: &Rounded,
        value: u32,
        coordinates: &mut Coordinates<'_>,
    ) -> Result<Option<(Operand, i64)>, Diagnostic> {
        match tree {
            Rounded::Index(axis) => {
                let (tv, known) = self.along(*axis, coordinates)?;
                let Some(threads) = &known.threads else { return Ok(None) };
                let (threads, constant) = (threads.clone(), known.of(tv.value_offset(i64::from(value))));
                let thread = Operand::Value(self.b.special(Special::ThreadIndex));
                let base = self.b.hoisting(false, |b| scalar::layout(b, &threads, thread));
                Ok(Some((base, constant)))
            }
            Rounded::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), Compute::I32 | Compute::U32, x, y) => {
                let sides = [self.displaced(x, value, coordinates)?, self.displaced(y, value, coordinates)?];
                if sides == [None, None] {
                    return Ok(None);
                }
                let [first, second] = sides;
                let mut of = |side: Option<(Operand, i64)>, tree: &Rounded| match side {
                    Some(side) => Ok(side),
                    None => self.element(tree, value, coordinates).map(|operand| (operand, 0)),
                };
                let ((a, left), (b, right)) = (of(first, x)?, of(second, y)?);
                let base = self.b.hoisting(false, |on| integer::binary(on, *op, Compute::I32, [a, b]));
                Ok(Some((base, if *op == BinaryOp::Add { left + right } else { left - right })))
            }
            _ => Ok(None),
        }
    }

    /// True or false if a comparison of a coordinate with a literal is that for a value of every thread; `None` if it is not known.
    fn holds(
        &mut self,
        condition: &Rounded,
        value: u32,
        coordinates: &mut Coordinates<'_>,
    ) -> Result<Option<bool>, Diagnostic> {
        let Rounded::Binary(BinaryOp::Lt, _, x, y) = condition else { return Ok(None) };
        let (Rounded::Index(axis), Rounded::Integer(_, bound)) = (&**x, &**y) else { return Ok(None) };
        let (tv, known) = self.along(*axis, coordinates)?;
        let Some((low, high)) = known.bounds else { return Ok(None) };
        let (step, bound) = (known.of(tv.value_offset(i64::from(value))), i64::from(*bound as i32));
        Ok(if high + step < bound {
            Some(true)
        } else if low + step >= bound {
            Some(false)
        } else {
            None
        })
    }

    /// The layout of the result, and the coordinates along one of its modes.
    fn along<'c>(
        &self,
        axis: u32,
        coordinates: &'c mut Coordinates<'_>,
    ) -> Result<(&TvLayout, &'c Along), Diagnostic> {
        let missing = || internal(Origin::Unknown, "coordinates of what has no layout");
        let dst = coordinates.dst.ok_or_else(missing)?;
        let tv = self.synthesis.register(dst).ok_or_else(missing)?;
        let known = match coordinates.axes.entry(axis) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Along::new(&self.verified.shape(dst), axis, tv)),
        };
        Ok((tv, known))
    }

    /// The coordinate of a value along a mode, where that of the thread's first value and a constant do not add up to it.
    fn coordinate(
        &mut self,
        axis: u32,
        value: u32,
        coordinates: &mut Coordinates<'_>,
    ) -> Result<Operand, Diagnostic> {
        let (tv, known) = self.along(axis, coordinates)?;
        let tv = tv.clone();
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let base = scalar::layout(self.b, tv.threads(), thread);
        let place = scalar::add(self.b, base, scalar::int(tv.value_offset(i64::from(value))));
        let place = scalar::divide(self.b, place, known.stride);
        Ok(scalar::remainder(self.b, place, known.extent))
    }
}

/// The coordinates of a tensor's elements along those of its modes that an expression asks for, and their places in operands that repeat.
struct Coordinates<'a> {
    /// The result; none of a function that puts tuples together.
    dst: Option<TensorId>,
    /// The operands of such a function.
    operands: &'a [Operand],
    parts: BTreeMap<TensorId, &'a [u32]>,
    axes: BTreeMap<u32, Along>,
}

/// The coordinates of a tile's elements along a mode.
struct Along {
    /// Elements from a coordinate to the next.
    stride: i64,
    extent: i64,
    /// Thread → coordinate of its first value, where those of its values add to it.
    threads: Option<Layout>,
    /// The least and the largest of these.
    bounds: Option<(i64, i64)>,
}

impl Along {
    fn new(shape: &[i64], axis: u32, tv: &TvLayout) -> Self {
        let axis = axis as usize;
        let stride: i64 = shape[..axis].iter().product();
        let mut along = Along { stride, extent: shape[axis], threads: None, bounds: None };
        let adds = |thread| {
            (0..tv.count() as i64).all(|value| {
                let (base, step) = (along.of(tv.thread_offset(thread)), along.of(tv.value_offset(value)));
                along.of(tv.at(thread, value)) == base + step
            })
        };
        if (0..tv.threads().size()).all(adds) {
            let mode = |(mode, extent): (usize, &i64)| (*extent, i64::from(mode == axis));
            let modes: Vec<(i64, i64)> = shape.iter().enumerate().map(mode).collect();
            let projection = Layout::from_leaves(&modes);
            let firsts = || (0..tv.threads().size()).map(|thread| along.of(tv.thread_offset(thread)));
            along.bounds = firsts().min().zip(firsts().max());
            along.threads = projection.ok().and_then(|projection| compose(&projection, tv.threads()).ok());
        }
        along
    }

    /// The coordinate of the element at a place of the tile.
    fn of(&self, place: i64) -> i64 {
        place / self.stride % self.extent
    }
}

/// The second where a predicate holds, else the third.
fn choose(b: &mut Builder, compute: Compute, c: Operand, x: Operand, y: Operand) -> Operand {
    if compute != Compute::Bool {
        let select = if compute.bits() == 64 { ScalarOp::SelectB64 } else { ScalarOp::Select };
        return b.scalar(select, &[x, y, c]);
    }
    // (c and x) or (not c and y)
    let no = b.scalar(ScalarOp::NotPred, &[c]);
    let [x, y] = [[c, x], [no, y]].map(|both| b.scalar(ScalarOp::AndPred, &both));
    b.scalar(ScalarOp::OrPred, &[x, y])
}

/// An operator on two values.
pub fn binary(b: &mut Builder, op: BinaryOp, compute: Compute, [x, y]: [Operand; 2]) -> Operand {
    match compute {
        // Of packed arithmetic what `packed::operator` leaves to this.
        Compute::F32 | Compute::F16 | Compute::BF16 => float_operator(b, op, x, y),
        Compute::F64 => wide::binary(b, op, [x, y]),
        Compute::I32 | Compute::U32 | Compute::I64 | Compute::U64 => integer::binary(b, op, compute, [x, y]),
        Compute::Bool => match op {
            BinaryOp::And => b.scalar(ScalarOp::AndPred, &[x, y]),
            BinaryOp::Or => b.scalar(ScalarOp::OrPred, &[x, y]),
            BinaryOp::Ne => b.scalar(ScalarOp::XorPred, &[x, y]),
            // There is no other on truth values.
            _ => {
                let differ = b.scalar(ScalarOp::XorPred, &[x, y]);
                b.scalar(ScalarOp::NotPred, &[differ])
            }
        },
    }
}

/// An operator on two `f32`.
fn float_operator(b: &mut Builder, op: BinaryOp, x: Operand, y: Operand) -> Operand {
    let (op, operands) = match op {
        // A unit in the last place, where a quotient may be off by two.
        BinaryOp::FastDiv if x == Operand::Imm(u64::from(1f32.to_bits())) => {
            return b.scalar(ScalarOp::RcpFtzF32, &[y]);
        }
        BinaryOp::Add => (ScalarOp::AddF32, [x, y]),
        BinaryOp::Sub => (ScalarOp::SubF32, [x, y]),
        BinaryOp::Mul => (ScalarOp::MulF32, [x, y]),
        BinaryOp::FastDiv => (ScalarOp::DivApproxFtzF32, [x, y]),
        BinaryOp::Min => (ScalarOp::MinF32, [x, y]),
        BinaryOp::Max => (ScalarOp::MaxF32, [x, y]),
        BinaryOp::Eq => (ScalarOp::EqF32, [x, y]),
        BinaryOp::Ne => (ScalarOp::NeF32, [x, y]),
        BinaryOp::Lt => (ScalarOp::LtF32, [x, y]),
        BinaryOp::Le => (ScalarOp::LeF32, [x, y]),
        BinaryOp::Gt => (ScalarOp::LtF32, [y, x]),
        BinaryOp::Ge => (ScalarOp::LeF32, [y, x]),
        // The others have no floats for operands.
        BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::MulHi
        | BinaryOp::BitAnd
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::And
        | BinaryOp::Or => (ScalarOp::DivF32, [x, y]),
    };
    b.scalar(op, &operands)
}

/// A function of one value.
pub fn unary(b: &mut Builder, op: UnaryOp, compute: Compute, x: Operand) -> Operand {
    if compute.bits() == 64 {
        return wide::unary(b, op, compute, x);
    }
    let integer = compute.is_integer();
    match op {
        UnaryOp::Neg if integer => b.scalar(ScalarOp::SubI32, &[scalar::int(0), x]),
        UnaryOp::Abs if compute == Compute::U32 => x,
        UnaryOp::Abs if integer => {
            let negated = b.scalar(ScalarOp::SubI32, &[scalar::int(0), x]);
            b.scalar(ScalarOp::MaxI32, &[x, negated])
        }
        UnaryOp::Neg => b.scalar(ScalarOp::NegF32, &[x]),
        UnaryOp::Abs => b.scalar(ScalarOp::AbsF32, &[x]),
        UnaryOp::Sqrt => b.scalar(ScalarOp::SqrtF32, &[x]),
        UnaryOp::Rsqrt => b.scalar(ScalarOp::RsqrtF32, &[x]),
        UnaryOp::Exp => {
            let scaled = b.scalar(ScalarOp::MulF32, &[x, scalar::float(std::f64::consts::LOG2_E)]);
            b.scalar(ScalarOp::Ex2FtzF32, &[scaled])
        }
        UnaryOp::Exp2 => b.scalar(ScalarOp::Ex2FtzF32, &[x]),
        UnaryOp::Log => {
            let log2 = b.scalar(ScalarOp::Lg2F32, &[x]);
            natural(b, log2)
        }
        UnaryOp::Log2 => b.scalar(ScalarOp::Lg2F32, &[x]),
        UnaryOp::Tanh => tanh(b, x),
        UnaryOp::Sin => {
            let angle = remainder_of_angle(b, x);
            b.scalar(ScalarOp::SinF32, &[angle])
        }
        UnaryOp::Cos => {
            let angle = remainder_of_angle(b, x);
            b.scalar(ScalarOp::CosF32, &[angle])
        }
        UnaryOp::Erf => erf(b, x),
        UnaryOp::Floor => b.scalar(ScalarOp::FloorF32, &[x]),
        UnaryOp::Ceil => b.scalar(ScalarOp::CeilF32, &[x]),
        UnaryOp::Round => b.scalar(ScalarOp::RoundF32, &[x]),
        UnaryOp::Float => match compute {
            Compute::Bool => b.scalar(ScalarOp::Select, &[scalar::float(1.0), scalar::float(0.0), x]),
            Compute::U32 => b.scalar(ScalarOp::F32FromU32, &[x]),
            _ => b.scalar(ScalarOp::F32FromI32, &[x]),
        },
        UnaryOp::Int if compute == Compute::Bool => {
            b.scalar(ScalarOp::Select, &[scalar::int(1), scalar::int(0), x])
        }
        UnaryOp::Int => x,
        UnaryOp::Not => b.scalar(ScalarOp::NotPred, &[x]),
    }
}

/// The natural logarithm of what has this logarithm to base 2.
fn natural(b: &mut Builder, log2: Operand) -> Operand {
    b.scalar(ScalarOp::MulF32, &[log2, scalar::float(std::f64::consts::LN_2)])
}

/// The remainder of an angle by 2π, from −π to π, in double precision on the way.
fn remainder_of_angle(b: &mut Builder, x: Operand) -> Operand {
    use ScalarOp::*;
    let double = |x: f64| Operand::Imm(x.to_bits());
    let wide = b.scalar(F64FromF32, &[x]);
    let turns = b.scalar(MulF64, &[wide, double(0.5 * std::f64::consts::FRAC_1_PI)]);
    let whole = b.scalar(RoundF64, &[turns]);
    let rest = b.scalar(FmaF64, &[whole, double(-2.0 * std::f64::consts::PI), wide]);
    b.scalar(F32FromF64, &[rest])
}

/// The argument at which [`erf`] passes from a polynomial to an exponential.
const ERF_SMALL: f32 = 0.95;
/// erf(x)/x − 1 by powers of x², the lowest first, up to [`ERF_SMALL`]: 2.2·10⁻⁸ off with these coefficients.
const ERF: [f32; 6] =
    [0.128_379_15, -0.376_124_62, 0.112_814_665, -0.026_753_334, 0.004_973_117_3, -0.000_588_677_53];
/// −log₂(1 − erf(x)) by powers of x, the lowest first, from [`ERF_SMALL`] to 4: 1.4·10⁻⁹ of erf off with these coefficients.
const ERF_TAIL: [f32; 7] = [
    0.000_345_175_1,
    1.626_632_3,
    0.919_696_75,
    0.149_558_08,
    -0.031_881_835,
    0.004_344_078,
    -0.000_277_953_3,
];

/// erf(x) without a branch: x + x · p(x²) for small x, else 1 − 2^(−q(|x|)) with the sign of x.
fn erf(b: &mut Builder, x: Operand) -> Operand {
    use ScalarOp::*;
    let float = |x: f32| Operand::Imm(u64::from(x.to_bits()));
    let polynomial = |b: &mut Builder, coefficients: &[f32], at: Operand| {
        let mut powers = coefficients.iter().rev();
        let highest = float(powers.next().copied().unwrap_or(0.0));
        powers.fold(highest, |p, c| b.scalar(FmaF32, &[p, at, float(*c)]))
    };
    let size = b.scalar(AbsF32, &[x]);
    let square = b.scalar(MulF32, &[x, x]);
    let p = polynomial(b, &ERF, square);
    let small = b.scalar(FmaF32, &[p, x, x]);
    // From 4 on the result is 1.
    let clamped = b.scalar(MinF32, &[size, float(4.0)]);
    let q = polynomial(b, &ERF_TAIL, clamped);
    let negated = b.scalar(NegF32, &[q]);
    let power = b.scalar(Ex2FtzF32, &[negated]);
    let large = b.scalar(SubF32, &[float(1.0), power]);
    let signed = b.scalar(Lop3B32, &[x, Operand::Imm(0x8000_0000), large, Operand::Imm(0xea)]);
    // Numbers that are not negative are in the order of their bits, and a NaN is above all of them.
    let is_small = b.scalar(LtI32, &[size, float(ERF_SMALL)]);
    let result = b.scalar(Select, &[small, signed, is_small]);
    // The minimum has lost a NaN.
    let known = b.scalar(EqF32, &[x, x]);
    b.scalar(Select, &[result, x, known])
}

/// The argument at which [`tanh`] passes from the polynomial to the exponential.
const TANH_SMALL: f32 = 0.5625;
/// (tanh(x)/x − 1)/x² by powers of x², the lowest first: the minimax polynomial of the relative error of tanh up to [`TANH_SMALL`],
/// 4.6·10⁻⁸ with these coefficients.
const TANH: [f32; 4] = [-0.333_328_75, 0.133_190_8, -0.052_565_12, 0.016_232_92];

/// tanh(x) without cancellation or a branch: x + x³ · p(x²) for small x, else 1 − 2 / (1 + e²ˣ) with the sign of x.
fn tanh(b: &mut Builder, x: Operand) -> Operand {
    use ScalarOp::*;
    let float = |x: f32| Operand::Imm(u64::from(x.to_bits()));
    let size = b.scalar(AbsF32, &[x]);
    // A subnormal x has the square 0, and its polynomial is x.
    let square = b.scalar(MulF32, &[x, x]);
    let [c0, c1, c2, c3] = TANH.map(float);
    let p = [c2, c1, c0].into_iter().fold(c3, |p, c| b.scalar(FmaF32, &[p, square, c]));
    let cube = b.scalar(MulF32, &[p, square]);
    let small = b.scalar(FmaF32, &[cube, x, x]);
    // From e¹ on no operand or result is subnormal but the reciprocal of what is infinite compared with 1.
    let scaled = b.scalar(MulF32, &[size, scalar::float(2.0 * std::f64::consts::LOG2_E)]);
    let power = b.scalar(Ex2FtzF32, &[scaled]);
    let denominator = b.scalar(AddF32, &[power, float(1.0)]);
    let reciprocal = b.scalar(RcpFtzF32, &[denominator]);
    let large = b.scalar(FmaF32, &[reciprocal, float(-2.0), float(1.0)]);
    // (x and the sign's bit) or the value.
    let signed = b.scalar(Lop3B32, &[x, Operand::Imm(0x8000_0000), large, Operand::Imm(0xea)]);
    // Numbers that are not negative are in the order of their bits, and a NaN is above all of them.
    let is_small = b.scalar(LtI32, &[size, float(TANH_SMALL)]);
    b.scalar(Select, &[small, signed, is_small])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::Arch;

    /// The ends of all ranges, both signs, and numbers between.
    fn values() -> Vec<f32> {
        let ends = [0u32, 1, 2, 0x007f_ffff, 0x0080_0000, 0x3f7f_ffff, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000];
        let mut seed = 1u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed
        };
        let random: Vec<u32> = (0..200).map(|_| next()).collect();
        let near_one = random.clone().into_iter().map(|x| (120 + x % 14) << 23 | x >> 9);
        let all: Vec<u32> =
            ends.into_iter().chain(near_one).chain(random.clone()).chain([0x7fc0_0000]).collect();
        all.into_iter().flat_map(|x| [x, x ^ 0x8000_0000]).map(f32::from_bits).collect()
    }

    fn literal(x: f32) -> Operand {
        Operand::Imm(u64::from(x.to_bits()))
    }

    fn number(x: Operand) -> f32 {
        match x {
            Operand::Imm(bits) => f32::from_bits(bits as u32),
            Operand::Value(_) => panic!("literals fold"),
        }
    }

    fn same(x: f32, y: f32) -> bool {
        x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan()
    }

    #[test]
    fn rows_compute_what_the_interpreter_does() {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let all = values();
        for (i, x) in all.iter().enumerate() {
            use UnaryOp::*;
            for op in [Neg, Abs, Sqrt, Floor, Ceil, Round] {
                let found = number(unary(&mut b, op, Compute::F32, literal(*x)));
                assert!(same(found, op.apply(*x)), "{} {x:e}: {found:e}", op.name());
            }
            for y in &all {
                use BinaryOp::*;
                for op in [Add, Sub, Mul, Div, Min, Max] {
                    let found = number(binary(&mut b, op, Compute::F32, [literal(*x), literal(*y)]));
                    assert!(
                        op.apply(*x, *y).is_some_and(|expected| same(found, expected)),
                        "{op:?} {x:e} {y:e}: {found:e}"
                    );
                }
                let z = all[(i * 31 + 7) % all.len()];
                let found = number(b.scalar(ScalarOp::FmaF32, &[literal(*x), literal(*y), literal(z)]));
                assert!(same(found, x.mul_add(*y, z)), "{x:e} * {y:e} + {z:e}: {found:e}");
            }
        }
    }

    #[test]
    fn integer_rows_compute_what_the_interpreter_does() {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let words = [
            0u32,
            1,
            2,
            3,
            7,
            31,
            32,
            33,
            1000,
            0x7fff_ffff,
            0x8000_0000,
            0x8000_0001,
            0xd251_1f53,
            u32::MAX,
        ];
        let imm = |operand: Operand| match operand {
            Operand::Imm(bits) => bits,
            Operand::Value(_) => panic!("literals fold"),
        };
        for compute in [Compute::I32, Compute::U32] {
            let number = |word: u32| compute.wrap(i128::from(word));
            for (x, y) in words.iter().flat_map(|x| words.map(|y| (*x, y))) {
                let operands = [x, y].map(|word| Operand::Imm(u64::from(word)));
                for op in BinaryOp::ALL {
                    let expected = op.apply_integer(compute, number(x), number(y)).map(|value| value as u32);
                    let truth = op.compare(number(x) as f64, number(y) as f64).map(u32::from);
                    let Some(expected) = expected.or(truth) else { continue };
                    let found = imm(binary(&mut b, op, compute, operands)) as u32;
                    assert_eq!(found, expected, "{op:?} {compute:?} {x:#x} {y:#x}");
                }
            }
        }
    }

    #[test]
    fn functions_keep_their_bounds() {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let tiny = (0..2000).map(|i| f32::from_bits(i * 0x000e_1234 % 0x7f80_0000));
        for x in values().into_iter().chain(tiny.flat_map(|x| [x, -x])) {
            for op in UnaryOp::ALL.into_iter().filter(|op| op.error().is_some()) {
                let found = number(unary(&mut b, op, Compute::F32, literal(x)));
                let exact = op.exact(f64::from(x));
                let expected = op.apply(x);
                let right = same(found, expected)
                    || (f64::from(found) - exact).abs() <= op.error_at(f64::from(x), exact)
                    || found.is_infinite() && exact > f64::from(f32::MAX) * (1.0 - 1e-5);
                assert!(right, "{} {x:e}: {found:e}, should be {exact:e}", op.name());
            }
        }
    }
}
