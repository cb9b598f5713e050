//! Mutants: what is changed in a function, and where.

use std::fmt;

use tilewright_machine::{RegType, ScalarOp};
use tilewright_simt::{Function, Inst, Op, Operand, Value};
use tilewright_tile::Program;

/// Kind of difference between a mutant and its kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Kind {
    /// A synchronisation is missing.
    Delete,
    /// A synchronisation waits for less, or for something else: a group more stays in flight, an mbarrier counts other bytes or
    /// arrivals or has the other parity, a barrier has a warp less, an arrival or wait orders less, a multicast reaches other blocks.
    Weaken,
    /// A counter of stages, phases or products is not written, or a branch that rows decide is not taken.
    Skip,
    /// More threads do the elected thread's work, or the lanes of a warp do not vote.
    Guard,
    /// Two synchronisations with nothing between them are in the other order.
    Swap,
    /// A wait is for a group more.
    Strengthen,
    /// A fence between proxies covers other state spaces.
    Space,
    /// A fence between proxies is another role's.
    Move,
    /// A copy, a product or an mbarrier is of the next stage.
    Slot,
    /// A loop has a round less.
    Short,
    /// A buffer is used for what has one of its own.
    Reuse,
    /// The wait for the kernels before stands behind the first access to global memory.
    Late,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 12] = [
        Kind::Delete,
        Kind::Weaken,
        Kind::Skip,
        Kind::Guard,
        Kind::Swap,
        Kind::Strengthen,
        Kind::Space,
        Kind::Move,
        Kind::Slot,
        Kind::Short,
        Kind::Reuse,
        Kind::Late,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Delete => "delete",
            Kind::Weaken => "weaken",
            Kind::Skip => "skip",
            Kind::Guard => "guard",
            Kind::Swap => "swap",
            Kind::Strengthen => "strengthen",
            Kind::Space => "space",
            Kind::Move => "move",
            Kind::Slot => "slot",
            Kind::Short => "short",
            Kind::Reuse => "reuse",
            Kind::Late => "late",
        })
    }
}

/// A way to make a function wrong. [`Mutant::apply`] does it.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The kind.
    pub kind: Kind,
    /// Description of the change.
    pub what: String,
    /// The tile statement that the instruction comes from.
    pub origin: String,
    /// Position among the mutants of the same kind, description and statement, counted from 1.
    pub ordinal: usize,
    /// The block of instructions: from the outermost in, the position of a loop or branch and whether its second side is meant.
    pub(super) block: Vec<(usize, bool)>,
    /// The position in the block.
    pub(super) index: usize,
    pub(super) edit: Edit,
}

/// Change of an instruction.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Remove,
    Replace(Op),
    /// The operand of an operation on an mbarrier becomes `op(operand, literal)`.
    Operand(ScalarOp, u64),
    /// A branch becomes its first side.
    Unguard,
    /// A branch has another condition.
    Condition(Value),
    /// The instruction goes behind the one at this position.
    Behind(usize),
    /// The instruction goes to the beginning of another block.
    Elsewhere(Vec<(usize, bool)>),
    /// Instructions with results of these types stand before the instruction, which becomes another.
    Insert(Vec<RegType>, Vec<Op>, Op),
    /// A loop ends a step earlier.
    Short,
    /// The program is another, and is compiled.
    Program(Box<Program>),
}

impl fmt::Display for Mutant {
    /// The name: unique among the mutants of a function.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in `{}` #{}", self.kind, self.what, self.origin, self.ordinal)
    }
}

impl Mutant {
    /// The mutated function.
    pub fn apply(&self, function: &Function) -> Function {
        let mut mutated = function.clone();
        let fresh = Value(mutated.values.len() as u32);
        match &self.edit {
            Edit::Operand(..) | Edit::Short => mutated.values.push(RegType::B32),
            Edit::Insert(types, ..) => mutated.values.extend(types),
            Edit::Program(_) => return mutated,
            _ => {}
        }
        let Some(body) = block_of_mut(&mut mutated.body, &self.block) else { return mutated };
        if self.index >= body.len() {
            return mutated;
        }
        if let Edit::Elsewhere(to) = &self.edit {
            let moved = body.remove(self.index);
            if let Some(body) = block_of_mut(&mut mutated.body, to) {
                body.insert(0, moved);
            }
            return mutated;
        }
        self.edit.apply(body, self.index, fresh);
        mutated
    }

    /// The mutated program, of a mutant of the program's text.
    pub fn program(&self) -> Option<&Program> {
        if let Edit::Program(program) = &self.edit { Some(program) } else { None }
    }
}

/// The block of instructions at the end of a way.
pub(super) fn block_of<'a>(function: &'a Function, way: &[(usize, bool)]) -> Option<&'a [Inst]> {
    way.iter().try_fold(&function.body[..], |body, (position, second)| match &body.get(*position)?.op {
        Op::For { body, .. } => Some(&body[..]),
        Op::If { otherwise, .. } if *second => Some(&otherwise[..]),
        Op::If { then, .. } => Some(&then[..]),
        _ => None,
    })
}

fn block_of_mut<'a>(mut body: &'a mut Vec<Inst>, way: &[(usize, bool)]) -> Option<&'a mut Vec<Inst>> {
    for (position, second) in way {
        body = match &mut body.get_mut(*position)?.op {
            Op::For { body, .. } => body,
            Op::If { otherwise, .. } if *second => otherwise,
            Op::If { then, .. } => then,
            _ => return None,
        };
    }
    Some(body)
}

impl Edit {
    fn apply(&self, body: &mut Vec<Inst>, index: usize, fresh: Value) {
        match self {
            Edit::Remove => {
                body.remove(index);
            }
            Edit::Replace(op) => body[index].op = op.clone(),
            Edit::Operand(op, literal) => {
                let origin = body[index].origin;
                let (Op::Mbarrier { operand, .. } | Op::Tensor { multicast: Some(operand), .. }) =
                    &mut body[index].op
                else {
                    return;
                };
                match *operand {
                    Operand::Imm(bits) => *operand = Operand::Imm((op.row().eval)(&[bits, *literal])),
                    value => {
                        *operand = fresh.into();
                        let args = vec![value, Operand::Imm(*literal)];
                        body.insert(index, Inst { op: Op::Scalar { dst: fresh, op: *op, args }, origin });
                    }
                }
            }
            Edit::Unguard => {
                let Op::If { then, .. } = &mut body[index].op else { return };
                let then = std::mem::take(then);
                body.splice(index..=index, then);
            }
            Edit::Condition(value) => {
                if let Op::If { condition, .. } = &mut body[index].op {
                    *condition = *value;
                }
            }
            Edit::Behind(other) => body[index..=*other].rotate_left(1),
            Edit::Insert(_, before, op) => {
                let origin = body[index].origin;
                body[index].op = op.clone();
                body.splice(index..index, before.iter().map(|op| Inst { op: op.clone(), origin }));
            }
            Edit::Short => {
                let origin = body[index].origin;
                let Op::For { hi, step, .. } = &mut body[index].op else { return };
                let args = vec![*hi, *step];
                *hi = fresh.into();
                let op = Op::Scalar { dst: fresh, op: ScalarOp::SubI32, args };
                body.insert(index, Inst { op, origin });
            }
            Edit::Elsewhere(_) | Edit::Program(_) => {}
        }
    }
}
