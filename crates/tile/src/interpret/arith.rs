//! Elementwise statements: the tree of [`crate::arith`], operation by operation on whole tiles.

use super::bound::Element;
use super::buffer::Buffer;
use super::error::InterpretError;
use super::op::Code;
use super::role::Role;
use crate::program::{BinaryOp, UnaryOp};

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

fn unary(op: UnaryOp, x: Value) -> Value {
    map(x, |x| Element::unary(op, x))
}

fn binary(op: BinaryOp, x: Value, y: Value) -> Value {
    match (x, y) {
        (x, Value::One(y)) => map(x, |x| Element::binary(op, x, y)),
        (Value::One(x), y) => map(y, |y| Element::binary(op, x, y)),
        (Value::Each(mut tile), Value::Each(other)) => {
            tile.iter_mut().zip(other).for_each(|(x, y)| *x = Element::binary(op, *x, y));
            Value::Each(tile)
        }
    }
}

fn fma(x: Value, y: Value, z: Value) -> Value {
    let len = [&x, &y, &z].iter().find_map(|value| match value {
        Value::Each(tile) => Some(tile.len()),
        Value::One(_) => None,
    });
    match len {
        None => Value::One(Element::fma(x.at(0), y.at(0), z.at(0))),
        Some(len) => Value::Each((0..len).map(|i| Element::fma(x.at(i), y.at(i), z.at(i))).collect()),
    }
}

impl Role<'_> {
    /// The value of an elementwise expression.
    pub(super) fn elementwise(&self, code: &Code) -> Result<Value, InterpretError> {
        Ok(match code {
            Code::Tensor(id) => Value::Each(self.tiles[*id].clone()),
            Code::Number(x) => Value::One(Element::exact(f64::from(*x))),
            Code::Scalar(id) => Value::One(Element::exact(match &self.buffers[*id] {
                Buffer::Scalar(x) => *x,
                Buffer::Input(_) | Buffer::Output { .. } => f64::NAN,
            })),
            Code::Int(e) => {
                let value = self.value(e, || "an integer of an elementwise expression".to_string())?;
                Value::One(Element::exact(f64::from(value as f32)))
            }
            Code::Unary(op, x) => unary(*op, self.elementwise(x)?),
            Code::Binary(op, x, y) => binary(*op, self.elementwise(x)?, self.elementwise(y)?),
            Code::Fma(operands) => {
                let [x, y, z] = &**operands;
                fma(self.elementwise(x)?, self.elementwise(y)?, self.elementwise(z)?)
            }
        })
    }
}
