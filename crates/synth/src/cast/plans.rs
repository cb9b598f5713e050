//! Casts as lists of instructions, which can be counted, named and evaluated.

use std::collections::HashMap;

use tilewright_machine::{Arch, DType, Emit, Features, ScalarOp, Timing, conversion_needs};

use super::{emit, registers};

/// An operand of a recorded [`Step`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arg {
    /// A register of the cast's operand.
    Source(u32),
    /// The result of a step.
    Step(u32),
    /// A literal.
    Literal(u64),
}

/// An instruction of a [`Plan`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// The row.
    pub op: ScalarOp,
    /// Its operands.
    pub args: Vec<Arg>,
}

/// The instructions of a cast, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// One entry an instruction of one thread.
    pub steps: Vec<Step>,
    /// The registers of the result.
    pub results: Vec<Arg>,
}

/// Records instructions, each once.
pub(super) struct Record {
    pub(super) arch: Arch,
    pub(super) steps: Vec<Step>,
    pub(super) made: HashMap<Step, u32>,
}

impl Emit for Record {
    type Value = Arg;

    fn has(&self, needs: Features) -> bool {
        self.arch.has(needs)
    }

    fn op(&mut self, op: ScalarOp, args: &[Arg]) -> Arg {
        let literals: Option<Vec<u64>> =
            args.iter().map(|a| if let Arg::Literal(bits) = a { Some(*bits) } else { None }).collect();
        if let Some(literals) = literals {
            return Arg::Literal((op.row().eval)(&literals));
        }
        let step = Step { op, args: args.to_vec() };
        let next = self.steps.len() as u32;
        let index = *self.made.entry(step.clone()).or_insert(next);
        if index == next {
            self.steps.push(step);
        }
        Arg::Step(index)
    }

    fn literal(&mut self, bits: u32) -> Arg {
        Arg::Literal(u64::from(bits))
    }

    fn wide_literal(&mut self, bits: u64) -> Arg {
        Arg::Literal(bits)
    }
}

impl Plan {
    /// Instructions of one thread by row, in the order in which they first occur.
    pub fn instructions(&self) -> Vec<(ScalarOp, u32)> {
        let mut counts: Vec<(ScalarOp, u32)> = Vec::new();
        for step in &self.steps {
            match counts.iter_mut().find(|(op, _)| *op == step.op) {
                Some((_, count)) => *count += 1,
                None => counts.push((step.op, 1)),
            }
        }
        counts
    }

    /// The rows, as reports name them: `prmt + lop3 + fma.rn.f16x2`.
    pub fn name(&self) -> String {
        let rows: Vec<&str> = self
            .instructions()
            .iter()
            .map(|(op, _)| {
                let row = op.row();
                row.mnemonic.strip_suffix(".b32").unwrap_or(row.mnemonic)
            })
            .collect();
        if rows.is_empty() { "nothing".to_string() } else { rows.join(" + ") }
    }

    /// Instructions of one thread.
    pub fn calls(&self) -> u32 {
        self.steps.len() as u32
    }

    /// Issue cycles of one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        self.steps.iter().map(|step| timing.cost(step.op).issue).sum::<f64>() as u32
    }

    /// The result's registers for these of the operand.
    pub fn evaluate(&self, words: &[u32]) -> Vec<u32> {
        let mut done: Vec<u64> = Vec::with_capacity(self.steps.len());
        let value = |arg: &Arg, done: &[u64]| match arg {
            Arg::Source(k) => words.get(*k as usize).map_or(0, |w| u64::from(*w)),
            Arg::Step(k) => done.get(*k as usize).copied().unwrap_or(0),
            Arg::Literal(bits) => *bits,
        };
        for step in &self.steps {
            let args: Vec<u64> = step.args.iter().map(|a| value(a, &done)).collect();
            done.push((step.op.row().eval)(&args));
        }
        self.results.iter().map(|r| value(r, &done) as u32).collect()
    }
}

/// An architecture lacks the rows of a cast.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a conversion from {from} to {to} needs {missing}, which {arch} does not have")]
pub struct Unsupported {
    /// The operand's type.
    pub from: DType,
    /// The result's type.
    pub to: DType,
    /// The features that the target lacks.
    pub missing: Features,
    /// The target.
    pub arch: Arch,
}

/// True if an architecture has the rows of a cast.
///
/// # Errors
///
/// [`Unsupported`] names the features that it lacks.
pub fn supported(from: DType, to: DType, arch: Arch) -> Result<(), Unsupported> {
    let missing = arch.lacks(conversion_needs(from, to));
    if missing == Features::NONE { Ok(()) } else { Err(Unsupported { from, to, missing, arch }) }
}

/// The instructions of a cast of `values` elements a thread.
///
/// # Errors
///
/// [`Unsupported`] where the architecture lacks the rows.
pub fn plan(from: DType, to: DType, arch: Arch, values: u32) -> Result<Plan, Unsupported> {
    plan_in_order(from, to, arch, &(0..values).collect::<Vec<_>>())
}

/// [`plan()`] where value `i` of the result is value `order[i]` of the operand.
///
/// # Errors
///
/// [`Unsupported`] where the architecture lacks the rows.
pub fn plan_in_order(from: DType, to: DType, arch: Arch, order: &[u32]) -> Result<Plan, Unsupported> {
    supported(from, to, arch)?;
    let held = order.iter().max().map_or(0, |last| last + 1);
    let words: Vec<Arg> = (0..registers(held, from.bits())).map(Arg::Source).collect();
    let mut record = Record { arch, steps: Vec::new(), made: HashMap::new() };
    let results = emit(&mut record, from, to, &words, order);
    Ok(Plan { steps: record.steps, results })
}
