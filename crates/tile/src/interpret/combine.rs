//! Tuples that a function of the program puts together, in several groupings: a right kernel takes any of them, and a function for which they
//! differ is not associative.

use super::bound::Element;
use super::buffer::Buffer;
use super::error::InterpretError;
use super::op::{Combining, TupleFunction};
use super::role::Role;
use crate::arith::{Compute, Rounded};
use crate::program::{BinaryOp, CombineForm, UnaryOp};

/// A tuple of elements.
type Tuple = Vec<Element>;

/// Half a unit in the last place of the floats that are computed with, relative; `None` of integers and truth values.
fn rounding(compute: Compute) -> Option<f64> {
    match compute {
        Compute::F32 => Some(1.0 / (1u64 << 24) as f64),
        Compute::F64 => Some(1.0 / (1u64 << 53) as f64),
        _ => None,
    }
}

/// A result whose rounding depends on what was put together before: the error of this rounding is part of the bound.
fn rounded(compute: Compute, x: Element) -> Element {
    let Some(unit) = rounding(compute) else { return x };
    let error = x.value.abs() * unit;
    if error.is_finite() { Element::new(x.value, x.bound + error) } else { x }
}

/// The element that others, of other groupings, lie around; `None` where they do not fit together.
fn together(first: Element, others: &[Element]) -> Result<Element, [f64; 2]> {
    let mut reach: f64 = 0.0;
    for other in others {
        let both = first.bound + other.bound;
        let same = first.value == other.value || first.value.is_nan() && other.value.is_nan();
        if first.rest != other.rest && both == 0.0 {
            return Err([first.value, other.value]);
        }
        if !same
            && both.is_finite()
            && ((first.value - other.value).abs() > both || first.value.is_nan() != other.value.is_nan())
        {
            return Err([first.value, other.value]);
        }
        reach = reach.max(other.bound);
    }
    let bound = first.bound + reach;
    Ok(Element { bound: if bound.is_nan() { f64::INFINITY } else { bound }, ..first })
}

impl Role<'_> {
    /// `m, s = reduce((x, e), f, axis)`, `m, s = scan((x, e), f, axis)`.
    pub(super) fn combine(&mut self, of: &Combining) -> Result<(), InterpretError> {
        let mut results: Vec<Vec<Element>> = match of.form {
            CombineForm::Reduce => vec![Vec::new(); of.dsts.len()],
            CombineForm::Scan { .. } => of.srcs.iter().map(|src| self.tiles[*src].clone()).collect(),
        };
        for row in of.around.rows() {
            let mut places: Vec<usize> = row.collect();
            if of.form == (CombineForm::Scan { reverse: true }) {
                places.reverse();
            }
            let tuples: Vec<Tuple> =
                places.iter().map(|at| of.srcs.iter().map(|src| self.tiles[*src][*at]).collect()).collect();
            let chain = self.chain(&of.function, &tuples)?;
            match of.form {
                CombineForm::Reduce => {
                    let Some(last) = chain.last() else { continue };
                    let function = &of.function;
                    let others = [self.tree(function, &tuples)?, self.backwards(function, &tuples)?];
                    for (k, result) in results.iter_mut().enumerate() {
                        result.push(self.agreed(
                            function,
                            k,
                            last[k],
                            &others.each_ref().map(|other| other[k]),
                        )?);
                    }
                }
                CombineForm::Scan { .. } => {
                    let halves = self.halves(&of.function, &tuples)?;
                    for (at, (one, other)) in places.iter().zip(chain.iter().zip(&halves)) {
                        for (k, result) in results.iter_mut().enumerate() {
                            result[*at] = self.agreed(&of.function, k, one[k], &[other[k]])?;
                        }
                    }
                }
            }
        }
        for (dst, result) in of.dsts.iter().zip(results) {
            self.tiles[*dst] = result;
        }
        Ok(())
    }

    /// The tuples of all blocks of a cluster, given for each block by tensor: what they come to, by tensor.
    pub(super) fn across_blocks(
        &self,
        of: &TupleFunction,
        blocks: &[Vec<Vec<Element>>],
    ) -> Result<Vec<Vec<Element>>, InterpretError> {
        let mut results = vec![Vec::new(); of.trees.len()];
        let count = blocks.iter().flatten().map(Vec::len).min().unwrap_or(0);
        for at in 0..count {
            let tuples: Vec<Tuple> =
                blocks.iter().map(|block| block.iter().map(|tile| tile[at]).collect()).collect();
            let chain = self.chain(of, &tuples)?;
            let Some(last) = chain.last() else { continue };
            let others = [self.tree(of, &tuples)?, self.backwards(of, &tuples)?];
            for (k, result) in results.iter_mut().enumerate() {
                result.push(self.agreed(of, k, last[k], &others.each_ref().map(|other| other[k]))?);
            }
        }
        Ok(results)
    }

    /// Result `k` as the groupings have it, rounded to its type.
    fn agreed(
        &self,
        of: &TupleFunction,
        k: usize,
        first: Element,
        others: &[Element],
    ) -> Result<Element, InterpretError> {
        let found = together(first, others).map_err(|results| InterpretError::NotAssociative {
            statement: of.text.clone(),
            result: k,
            results,
        })?;
        Ok(found.round(of.dtypes[k]))
    }

    /// One after the other: what those up to each come to.
    fn chain(&self, of: &TupleFunction, tuples: &[Tuple]) -> Result<Vec<Tuple>, InterpretError> {
        let mut results: Vec<Tuple> = Vec::with_capacity(tuples.len());
        for tuple in tuples {
            results.push(match results.last() {
                Some(before) => self.both(of, before, tuple)?,
                None => tuple.clone(),
            });
        }
        Ok(results)
    }

    /// The last first.
    fn backwards(&self, of: &TupleFunction, tuples: &[Tuple]) -> Result<Tuple, InterpretError> {
        let mut rest = tuples.iter().rev();
        let mut result = rest.next().cloned().unwrap_or_default();
        for tuple in rest {
            result = self.both(of, tuple, &result)?;
        }
        Ok(result)
    }

    /// Pairs of pairs.
    fn tree(&self, of: &TupleFunction, tuples: &[Tuple]) -> Result<Tuple, InterpretError> {
        let mut level = tuples.to_vec();
        while level.len() > 1 {
            let pair = |pair: &[Tuple]| match pair {
                [first, second] => self.both(of, first, second),
                pair => Ok(pair[0].clone()),
            };
            level = level.chunks(2).map(pair).collect::<Result<_, _>>()?;
        }
        Ok(level.pop().unwrap_or_default())
    }

    /// Half by half: what the first half comes to goes before all of the second.
    fn halves(&self, of: &TupleFunction, tuples: &[Tuple]) -> Result<Vec<Tuple>, InterpretError> {
        if tuples.len() < 2 {
            return Ok(tuples.to_vec());
        }
        let (first, second) = tuples.split_at(tuples.len() / 2);
        let mut results = self.halves(of, first)?;
        let Some(before) = results.last().cloned() else { return Ok(results) };
        for tuple in self.halves(of, second)? {
            results.push(self.both(of, &before, &tuple)?);
        }
        Ok(results)
    }

    /// Two tuples put together, the first before the second.
    fn both(&self, of: &TupleFunction, first: &Tuple, second: &Tuple) -> Result<Tuple, InterpretError> {
        let operands: Vec<Element> = first.iter().chain(second).copied().collect();
        of.trees.iter().map(|tree| self.operand_tree(tree, &operands)).collect()
    }

    /// The value of a function of operands.
    fn operand_tree(&self, tree: &Rounded, operands: &[Element]) -> Result<Element, InterpretError> {
        let x = |x: &Rounded| self.operand_tree(x, operands);
        Ok(match tree {
            Rounded::Operand(number) => operands[*number as usize],
            Rounded::Number(_, x) => Element::exact(*x),
            Rounded::Integer(_, x) => Element::of_integer(*x),
            Rounded::Scalar(id) => match &self.buffers[id.0 as usize] {
                Buffer::Scalar(x) => *x,
                Buffer::Input(_) | Buffer::Integers(_) | Buffer::Output { .. } => Element::exact(f64::NAN),
            },
            Rounded::Int(e) => {
                Element::exact(self.value(e, || "an integer of a function".to_string())? as f64)
            }
            // The verifier refuses them.
            Rounded::Tensor(_) | Rounded::Index(_) => Element::exact(f64::NAN),
            Rounded::Unary(op, compute, of) => {
                let value = Element::unary(*op, *compute, x(of)?);
                let rounds = match op {
                    UnaryOp::Sqrt => true,
                    UnaryOp::Float => compute.is_integer(),
                    op => op.error().is_some(),
                };
                // What is made of an integer is an `f32`.
                let compute = if compute.is_integer() { Compute::F32 } else { *compute };
                if rounds { rounded(compute, value) } else { value }
            }
            Rounded::Binary(op, compute, a, b) => {
                let value = Element::binary(*op, *compute, x(a)?, x(b)?);
                let rounds = matches!(
                    op,
                    BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::FastDiv
                );
                if rounds { rounded(*compute, value) } else { value }
            }
            Rounded::Fma(compute, of) => {
                rounded(*compute, Element::fma(*compute, x(&of[0])?, x(&of[1])?, x(&of[2])?))
            }
            Rounded::Where(_, of) => Element::choose(x(&of[0])?, x(&of[1])?, x(&of[2])?),
            Rounded::Bitcast([from, to], of) => Element::bitcast(*from, *to, x(of)?),
            Rounded::Convert([from, to], of) => Element::convert(*from, *to, x(of)?),
            Rounded::Asm(asm) => x(&asm.operands[0])?.off_by(asm.within),
        })
    }
}
