//! Elementwise statements: the tree of [`crate::arith`], operation by operation on whole tiles.

use super::bound::{Element, UNWRITTEN};
use super::buffer::Buffer;
use super::error::InterpretError;
use super::op::Repeats;
use super::role::Role;
use crate::arith::Rounded;

/// An intermediate value of an elementwise expression.
pub(super) enum Value {
    /// The same for every element.
    One(Element),
    /// One an element.
    Each(Vec<Element>),
}

impl Value {
    /// As a tile of so many elements.
    pub(super) fn tile(self, len: usize) -> Vec<Element> {
        match self {
            Value::One(x) => vec![x; len],
            Value::Each(tile) => tile,
        }
    }

    fn at(&self, index: usize) -> Element {
        match self {
            Value::One(x) => *x,
            Value::Each(tile) => tile[index],
        }
    }
}

fn map(x: Value, op: impl Fn(Element) -> Element) -> Value {
    match x {
        Value::One(x) => Value::One(op(x)),
        Value::Each(mut tile) => {
            tile.iter_mut().for_each(|x| *x = op(*x));
            Value::Each(tile)
        }
    }
}

fn map2(x: Value, y: Value, op: impl Fn(Element, Element) -> Element) -> Value {
    match (x, y) {
        (x, Value::One(y)) => map(x, |x| op(x, y)),
        (Value::One(x), y) => map(y, |y| op(x, y)),
        (Value::Each(mut tile), Value::Each(other)) => {
            tile.iter_mut().zip(other).for_each(|(x, y)| *x = op(*x, y));
            Value::Each(tile)
        }
    }
}

fn map3(x: Value, y: Value, z: Value, op: impl Fn(Element, Element, Element) -> Element) -> Value {
    let len = [&x, &y, &z].iter().find_map(|value| match value {
        Value::Each(tile) => Some(tile.len()),
        Value::One(_) => None,
    });
    match len {
        None => Value::One(op(x.at(0), y.at(0), z.at(0))),
        Some(len) => Value::Each((0..len).map(|i| op(x.at(i), y.at(i), z.at(i))).collect()),
    }
}

impl Role<'_> {
    /// The value of an elementwise expression whose result has a shape.
    pub(super) fn elementwise(
        &self,
        tree: &Rounded,
        shape: &[usize],
        repeats: &Repeats,
    ) -> Result<Value, InterpretError> {
        let of = |x: &Rounded| self.elementwise(x, shape, repeats);
        Ok(match tree {
            Rounded::Tensor(id) => {
                let tile = &self.tiles[id.0 as usize];
                Value::Each(match repeats.get(&(id.0 as usize)) {
                    None => tile.clone(),
                    Some(places) => places.iter().map(|at| tile[*at as usize]).collect(),
                })
            }
            Rounded::Number(_, x) => Value::One(Element::exact(*x)),
            Rounded::Integer(_, x) => Value::One(Element::of_integer(*x)),
            Rounded::Scalar(id) => Value::One(match &self.buffers[id.0 as usize] {
                Buffer::Scalar(x) => *x,
                Buffer::Input(_) | Buffer::Integers(_) | Buffer::Output { .. } => Element::exact(f64::NAN),
            }),
            Rounded::Int(e) => {
                let value = self.value(e, || "an integer of an elementwise expression".to_string())?;
                Value::One(Element::exact(value as f64))
            }
            Rounded::Index(axis) => {
                let mode = *axis as usize;
                let before: usize = shape[..mode].iter().product();
                let len: usize = shape.iter().product();
                let at = |i: usize| Element::exact((i / before % shape[mode]) as f64);
                Value::Each((0..len).map(at).collect())
            }
            // Only a combination has operands: `Role::combine` gives them.
            Rounded::Operand(_) => Value::One(UNWRITTEN),
            Rounded::Unary(op, compute, x) => map(of(x)?, |x| Element::unary(*op, *compute, x)),
            Rounded::Binary(op, compute, x, y) => {
                map2(of(x)?, of(y)?, |x, y| Element::binary(*op, *compute, x, y))
            }
            Rounded::Fma(compute, operands) => {
                let [x, y, z] = &**operands;
                map3(of(x)?, of(y)?, of(z)?, |x, y, z| Element::fma(*compute, x, y, z))
            }
            Rounded::Where(_, operands) => {
                let [c, x, y] = &**operands;
                map3(of(c)?, of(x)?, of(y)?, Element::choose)
            }
            Rounded::Bitcast([from, to], x) => map(of(x)?, |x| Element::bitcast(*from, *to, x)),
            Rounded::Convert([from, to], x) => map(of(x)?, |x| Element::convert(*from, *to, x)),
            Rounded::Asm(asm) => map(of(&asm.operands[0])?, |x| x.off_by(asm.within)),
        })
    }
}
