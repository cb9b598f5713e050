//! Flags: what blocks tell each other by elements of parameters.

use tilewright_machine::{DType, RedOp};

use super::bound::Element;
use super::error::InterpretError;
use super::op::FlagOf;
use super::role::Role;
use crate::expr::Expr;

impl Role<'_> {
    /// The offset of a flag in its buffer; `None` outside of the parameter.
    fn flag_at(&self, flag: &FlagOf) -> Result<Option<usize>, InterpretError> {
        let mut offset = Some(0);
        for (entry, (extent, stride)) in flag.index.iter().zip(&self.plan.modes[flag.param]) {
            let at = self.value(entry, || format!("an index in `{}`", flag.text))?;
            offset = offset.filter(|_| (0..*extent).contains(&at)).map(|offset| offset + at * stride);
        }
        Ok(offset.map(|offset| offset as usize))
    }

    fn number_of(&self, value: &Expr, flag: &FlagOf) -> Result<i64, InterpretError> {
        self.value(value, || format!("the integer in `{}`", flag.text))
    }

    /// The value of a flag, an `i32`; `None` outside of the parameter.
    pub(super) fn flag_value(&self, flag: &FlagOf) -> Option<i64> {
        let at = self.flag_at(flag).ok()??;
        Some(self.buffers[flag.param].read(at).value as i64)
    }

    fn set_flag(&self, flag: &FlagOf, at: usize, value: i64) {
        // As an `i32`.
        let value = f64::from(value as i32);
        self.buffers[flag.param].write(at, Element::exact(value));
    }

    /// `signal(flag, value, combine)`.
    pub(super) fn signal(
        &self,
        flag: &FlagOf,
        value: &Expr,
        combine: Option<RedOp>,
    ) -> Result<(), InterpretError> {
        let value = self.number_of(value, flag)?;
        let Some(at) = self.flag_at(flag)? else { return Ok(()) };
        let Some(op) = combine else {
            self.set_flag(flag, at, value);
            return Ok(());
        };
        let old = self.buffers[flag.param].read(at).value as i64;
        let [old, new] = [old, value].map(|x| DType::I32.encode_integer(x.into()));
        let both = DType::I32.decode_integer(op.combine(DType::I32, old, new));
        self.set_flag(flag, at, both as i64);
        Ok(())
    }

    /// True if the flag of `wait(flag >= least)` is not yet so much.
    pub(super) fn waits_for(&self, flag: &FlagOf, least: &Expr) -> Result<bool, InterpretError> {
        let least = self.number_of(least, flag)?;
        let at = self.flag_at(flag)?;
        Ok(at.is_some_and(|at| (self.buffers[flag.param].read(at).value as i64) < least))
    }

    /// `ticket(flag, count)`.
    pub(super) fn ticket(&self, flag: &FlagOf, count: &Expr) -> Result<i64, InterpretError> {
        let count = self.number_of(count, flag)?;
        let Some(at) = self.flag_at(flag)? else { return Ok(0) };
        let ticket = self.buffers[flag.param].read(at).value as i64;
        if !(0..count).contains(&ticket) {
            return Err(InterpretError::NoTicket { statement: flag.text.clone(), ticket, count });
        }
        self.set_flag(flag, at, if ticket + 1 == count { 0 } else { ticket + 1 });
        Ok(ticket)
    }
}
