//! Mutants about pairs of blocks: an address of the block itself in place of one of the even block, and what both blocks do in place of the even one.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::ScalarOp;
use tilewright_simt::{Function, Op, Operand, Special, Value};

use super::mutant::{Edit, Kind};

/// Values that tell the even block of a pair, in a function that has some.
#[derive(Default)]
pub(super) struct Pairs {
    /// Predicates that hold in the even block alone.
    even: BTreeSet<Value>,
    /// Ranks of the even block, with that of the block itself.
    ranks: BTreeMap<Value, Operand>,
}

impl Pairs {
    pub(super) fn of(function: &Function) -> Self {
        let mut found = Pairs::default();
        if !function.pairs {
            return found;
        }
        let (mut own, mut odd) = (BTreeSet::new(), BTreeSet::new());
        let is_in = |set: &BTreeSet<Value>, args: &[Operand]| matches!(args.first(), Some(Operand::Value(value)) if set.contains(value));
        function.visit(&mut |inst| match &inst.op {
            Op::Special { dst, special: Special::ClusterRank } => _ = own.insert(*dst),
            Op::Scalar { dst, op: ScalarOp::AndB32, args } if is_in(&own, args) => match args.get(1) {
                Some(Operand::Imm(1)) => _ = odd.insert(*dst),
                Some(Operand::Imm(imm)) if *imm == !1 => _ = found.ranks.insert(*dst, args[0]),
                _ => {}
            },
            Op::Scalar { dst, op: ScalarOp::EqI32, args } if is_in(&odd, args) => {
                found.even.insert(*dst);
            }
            _ => {}
        });
        found
    }

    /// True of a predicate that holds in the even block alone.
    pub(super) fn is_even(&self, value: Value) -> bool {
        self.even.contains(&value)
    }

    pub(super) fn edits(&self, op: &Op) -> Vec<(Kind, String, Edit)> {
        match op {
            Op::Scalar { dst, op: ScalarOp::Mapa, args } => {
                let own = match args.get(1) {
                    Some(Operand::Value(rank)) => self.ranks.get(rank),
                    _ => None,
                };
                let replaced = |own: &Operand| {
                    let args = vec![args[0], *own];
                    Edit::Replace(Op::Scalar { dst: *dst, op: ScalarOp::Mapa, args })
                };
                let what = "mapa: the block itself in place of the even one".to_string();
                own.map(|own| (Kind::Weaken, what, replaced(own))).into_iter().collect()
            }
            Op::If { condition, .. } if self.is_even(*condition) => {
                vec![(Kind::Guard, "both blocks of the pair".to_string(), Edit::Unguard)]
            }
            _ => Vec::new(),
        }
    }
}
