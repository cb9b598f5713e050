//! Sequences of instructions for whoever takes them.

use crate::features::Features;
use crate::scalar::ScalarOp;

/// Takes instructions as they are chosen: emits them into a program, evaluates them, or counts them.
pub trait Emit {
    /// An operand.
    type Value: Copy + PartialEq;

    /// True if the architecture has all of these features.
    fn has(&self, needs: Features) -> bool;

    /// `op(args)`. What was asked for before may be given again.
    fn op(&mut self, op: ScalarOp, args: &[Self::Value]) -> Self::Value;

    /// A literal of 32 bits.
    fn literal(&mut self, bits: u32) -> Self::Value;

    /// A literal of 64 bits.
    fn wide_literal(&mut self, bits: u64) -> Self::Value;
}
