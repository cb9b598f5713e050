//! Index-set splitting: a loop in whose iterations conditions on its counter decide whether products are issued becomes loops one behind the
//! other, in each of which every such condition is known.
//!
//! An assembler that sees asynchronous products behind a branch cannot tell which accumulators are in flight where both ways meet, and
//! waits for each product (`ptxas` says C7514). A loop `for j in 0..n + 1` with `if j < n` and `if j > 0` around products becomes its first
//! iteration, those in the middle and the last; what is left of a range is empty where a bound says so.

use crate::expr::{Expr, IntOp, SymbolId};
use crate::program::{Operand, Stmt, StmtKind, Use};
use crate::statement;

/// The most conditions by which a loop is split: each may double the number of loops.
const MOST: usize = 3;

/// A condition on a counter: it is less than a number (`below`), or it is not.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Threshold {
    at: Expr,
    below: bool,
}

/// A condition that holds in a part of a loop's iterations, or does not.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fact {
    counter: SymbolId,
    threshold: Threshold,
    holds: bool,
}

/// Iterations of a loop, from the first to one past the last, with what is known in them.
pub(crate) struct Part {
    pub(crate) bounds: [Expr; 2],
    pub(crate) known: Vec<(Threshold, bool)>,
}

impl Fact {
    /// Makes the fact that a condition on a counter holds, or does not.
    pub(crate) fn new(counter: SymbolId, (threshold, holds): (Threshold, bool)) -> Fact {
        Fact { counter, threshold, holds }
    }

    /// The value of a condition, if this decides it.
    pub(crate) fn decides(&self, condition: &Expr) -> Option<bool> {
        let Threshold { at, below } = threshold(self.counter, condition)?;
        (at == self.threshold.at).then_some(self.holds == (below == self.threshold.below))
    }
}

/// The conditions on a counter by which its loop is split: those of branches with asynchronous products. `seen` is an expression as it is
/// where the loop is expanded.
pub(crate) fn thresholds(counter: SymbolId, body: &[Stmt], seen: &dyn Fn(&Expr) -> Expr) -> Vec<Threshold> {
    let mut inner = vec![counter];
    statement::visit(body, 0, &mut |stmt, _| {
        inner.extend(stmt.kind.operands().into_iter().filter_map(|operand| match operand {
            Operand::Counter(Use::Define, id) => Some(*id),
            _ => None,
        }));
    });
    let mut found: Vec<Threshold> = Vec::new();
    let mut note = |condition: &Expr| {
        let Some(threshold) = threshold(counter, &seen(condition)) else { return };
        let mut varies = false;
        threshold.at.symbols(&mut |id| varies |= inner.contains(&id));
        if !varies && found.iter().all(|known| known.at != threshold.at) && found.len() < MOST {
            found.push(threshold);
        }
    };
    statement::visit(body, 0, &mut |stmt, _| {
        if let StmtKind::If { condition, body, .. } = &stmt.kind
            && issues(body)
        {
            conjuncts(condition, &mut note);
        }
    });
    // Literals first: what remains of a range is then likelier to be known.
    found.sort_by_key(|threshold| threshold.at.as_int().is_none());
    found
}

/// The conditions of a conjunction, or of a disjunction.
fn conjuncts(condition: &Expr, note: &mut impl FnMut(&Expr)) {
    match condition {
        Expr::Binary(IntOp::And | IntOp::Or, a, b) => {
            conjuncts(a, note);
            conjuncts(b, note);
        }
        other => note(other),
    }
}

/// True if one of the statements, or of those inside, is an asynchronous product.
fn issues(body: &[Stmt]) -> bool {
    let mut issues = false;
    statement::visit(body, 0, &mut |stmt, _| issues |= matches!(stmt.kind, StmtKind::GemmAsync { .. }));
    issues
}

/// The parts of the iterations `lo..hi`, in their order, without those that are known to be empty.
pub(crate) fn parts(bounds: [Expr; 2], thresholds: &[Threshold]) -> Vec<Part> {
    let Some((first, rest)) = thresholds.split_first() else {
        return vec![Part { bounds, known: Vec::new() }];
    };
    let [lo, hi] = bounds;
    let halves = [
        ([lo.clone(), extreme(IntOp::Min, first.at.clone(), hi.clone())], first.below),
        ([extreme(IntOp::Max, lo, first.at.clone()), hi], !first.below),
    ];
    let mut found = Vec::new();
    for (bounds, holds) in halves {
        if difference(&bounds[0], &bounds[1]).is_some_and(|left| left >= 0) {
            continue;
        }
        for mut part in parts(bounds, rest) {
            part.known.insert(0, (first.clone(), holds));
            found.push(part);
        }
    }
    found
}

/// The smaller or the larger of two expressions, by what is known of them.
fn extreme(op: IntOp, a: Expr, b: Expr) -> Expr {
    match difference(&a, &b) {
        Some(difference) if (difference <= 0) == (op == IntOp::Min) => a,
        Some(_) => b,
        None => Expr::binary(op, a, b),
    }
}

/// `a - b`, if that is one number.
fn difference(a: &Expr, b: &Expr) -> Option<i64> {
    let mut terms = Terms::of(a)?;
    terms.add(&Terms::of(b)?, -1)?;
    terms.atoms.is_empty().then_some(terms.constant)
}

/// A condition as a threshold of a counter, if it is one.
fn threshold(counter: SymbolId, condition: &Expr) -> Option<Threshold> {
    let Expr::Binary(op, a, b) = condition else { return None };
    let mut terms = Terms::of(a)?;
    terms.add(&Terms::of(b)?, -1)?;
    // The condition as `terms < 0`, or its opposite.
    let opposite = match op {
        IntOp::Lt => false,
        IntOp::Le => {
            terms.constant = terms.constant.checked_sub(1)?;
            false
        }
        IntOp::Ge => true,
        IntOp::Gt => {
            terms.constant = terms.constant.checked_sub(1)?;
            true
        }
        _ => return None,
    };
    let place = terms.atoms.iter().position(|(atom, _)| *atom == Expr::Symbol(counter))?;
    let (_, factor) = terms.atoms.remove(place);
    let mut mentions = false;
    terms.atoms.iter().for_each(|(atom, _)| atom.symbols(&mut |id| mentions |= id == counter));
    if mentions {
        return None;
    }
    let (at, below) = match factor {
        // counter + rest < 0
        1 => (terms.times(-1)?.expr()?, true),
        // rest - counter < 0: the counter is at least rest + 1
        -1 => {
            terms.constant = terms.constant.checked_add(1)?;
            (terms.expr()?, false)
        }
        _ => return None,
    };
    Some(Threshold { at, below: below != opposite })
}

/// A sum of expressions with factors, and of a number.
#[derive(Clone, Default)]
struct Terms {
    atoms: Vec<(Expr, i64)>,
    constant: i64,
}

impl Terms {
    fn of(e: &Expr) -> Option<Terms> {
        Some(match e {
            Expr::Int(value) => Terms { atoms: Vec::new(), constant: *value },
            Expr::Binary(op @ (IntOp::Add | IntOp::Sub), a, b) => {
                let mut sum = Terms::of(a)?;
                sum.add(&Terms::of(b)?, if *op == IntOp::Add { 1 } else { -1 })?;
                sum
            }
            Expr::Binary(IntOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
                (Some(factor), _) => Terms::of(b)?.times(factor)?,
                (_, Some(factor)) => Terms::of(a)?.times(factor)?,
                _ => Terms { atoms: vec![(e.clone(), 1)], constant: 0 },
            },
            _ => Terms { atoms: vec![(e.clone(), 1)], constant: 0 },
        })
    }

    fn times(mut self, factor: i64) -> Option<Terms> {
        for (_, count) in &mut self.atoms {
            *count = count.checked_mul(factor)?;
        }
        self.atoms.retain(|(_, count)| *count != 0);
        self.constant = self.constant.checked_mul(factor)?;
        Some(self)
    }

    fn add(&mut self, other: &Terms, factor: i64) -> Option<()> {
        for (atom, count) in &other.atoms {
            let more = count.checked_mul(factor)?;
            match self.atoms.iter_mut().find(|(known, _)| known == atom) {
                Some((_, count)) => *count = count.checked_add(more)?,
                None => self.atoms.push((atom.clone(), more)),
            }
        }
        self.atoms.retain(|(_, count)| *count != 0);
        self.constant = self.constant.checked_add(other.constant.checked_mul(factor)?)?;
        Some(())
    }

    /// The sum: what is added, then what is taken away.
    fn expr(mut self) -> Option<Expr> {
        self.atoms.sort_by_key(|(_, count)| *count < 0);
        let mut sum: Option<Expr> = None;
        for (atom, count) in self.atoms {
            let term = |count: i64| if count == 1 { atom.clone() } else { atom.clone() * count };
            sum = Some(match sum {
                Some(before) if count < 0 => before - term(count.checked_neg()?),
                Some(before) => before + term(count),
                None if count < 0 => Expr::Int(0) - term(count.checked_neg()?),
                None => term(count),
            });
        }
        Some(match sum {
            None => Expr::Int(self.constant),
            Some(sum) if self.constant < 0 => sum - self.constant.checked_neg()?,
            Some(sum) => sum + self.constant,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(id: u32) -> Expr {
        Expr::Symbol(SymbolId(id))
    }

    #[test]
    fn conditions_are_thresholds() {
        let (i, n) = (symbol(0), symbol(1));
        let is = |condition: &Expr, at: Expr, below| {
            assert_eq!(threshold(SymbolId(0), condition), Some(Threshold { at, below }), "{condition:?}");
        };
        is(&i.less(n.clone()), n.clone(), true);
        is(&i.greater(0), Expr::Int(1), false);
        is(&i.at_least(n.clone()), n.clone(), false);
        is(&(i.clone() + 1).at_most(n.clone()), n.clone(), true);
        is(&(n.clone() - 1 - &i).greater(0), n.clone() - 1, true);
        is(&(n.clone() - 1).less(i.clone()), n.clone(), false);
        assert_eq!(threshold(SymbolId(0), &(i.clone() * 2).less(n.clone())), None);
        assert_eq!(threshold(SymbolId(0), &i.equals(n.clone())), None);
        assert_eq!(threshold(SymbolId(0), &i.less(i.min(n.clone()))), None);
    }

    #[test]
    fn parts_keep_every_iteration_in_order() {
        let (i, n) = (symbol(0), symbol(1));
        let thresholds: Vec<Threshold> = [i.greater(0), i.less(n.clone())]
            .iter()
            .map(|condition| threshold(SymbolId(0), condition).unwrap())
            .collect();
        let parts = parts([Expr::Int(0), n.clone() + 1], &thresholds);
        assert_eq!(parts.len(), 4);
        for count in 0..5 {
            let value = |e: &Expr| e.substitute(&|_| Some(Expr::Int(count))).as_int().unwrap();
            let mut seen = Vec::new();
            for part in &parts {
                for at in value(&part.bounds[0])..value(&part.bounds[1]) {
                    let facts = part.known.iter().cloned().map(|known| Fact::new(SymbolId(0), known));
                    let decide = |condition: &Expr| facts.clone().find_map(|fact| fact.decides(condition));
                    assert_eq!(decide(&i.greater(0)), Some(at > 0));
                    assert_eq!(decide(&i.at_least(n.clone())), Some(at >= count));
                    seen.push(at);
                }
            }
            assert_eq!(seen, (0..count + 1).collect::<Vec<_>>());
        }
    }
}
