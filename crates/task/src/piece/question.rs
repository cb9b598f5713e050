//! The system of the question "do two pieces meet?": unknowns for each variable on both sides, whole or by the digits that modes of several
//! leaves count, and the relation between the sides.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_layout::Coord;

use super::affine::{Affine, Term, Var, VarRow, Vars};
use super::system::{Form, System, Unknown};
use super::{Guard, Piece, Relation};
use crate::partition::Extent;

/// A question of [`Piece::meets`] on its way to a system: what each variable and each digit is on both sides.
pub(super) struct Question<'a, F> {
    vars: &'a Vars,
    relation: &'a F,
    pub(super) system: System,
    /// The places at which the digits of a variable are cut, beside 1.
    cuts: BTreeMap<Var, BTreeSet<i64>>,
    /// The forms of a variable, one a side.
    values: BTreeMap<Var, [Form; 2]>,
    /// The forms of a variable's digits: its cuts, and a form for each digit between, one list a side.
    digits: BTreeMap<Var, (Vec<i64>, [Vec<Form>; 2])>,
    /// Digits that are not decomposed: unknowns of their own.
    loose: BTreeMap<Term, [Form; 2]>,
}

impl<'a, F: Fn(Var) -> Relation> Question<'a, F> {
    pub(super) fn new(vars: &'a Vars, relation: &'a F) -> Self {
        Question {
            vars,
            relation,
            system: System::default(),
            cuts: Default::default(),
            values: Default::default(),
            digits: Default::default(),
            loose: Default::default(),
        }
    }

    /// Takes in the variables of a piece.
    pub(super) fn note(&mut self, piece: &Piece) {
        let colours = piece.steps.iter().flat_map(|step| &step.colours);
        let offset = piece.place.iter().flat_map(|place| &place.offset);
        for form in colours.chain(offset).chain(piece.guards.iter().map(Guard::form)) {
            for (term, _) in form.terms() {
                match term {
                    Term::Var(var) => {
                        self.cuts.entry(*var).or_default();
                    }
                    Term::Digit { of, below, extent } => {
                        self.cuts.entry(*of).or_default().extend([*below, below * extent]);
                    }
                }
            }
        }
    }

    /// The relation of a variable: that of a counter, and of a definition that of all counters in it.
    fn related(&self, var: Var) -> Relation {
        match &self.vars.row(var).definition {
            None => (self.relation)(var),
            Some((_, a, b)) => {
                let same = |form: &Affine| form.vars().iter().all(|v| self.related(*v) == Relation::Same);
                if same(a) && same(b) { Relation::Same } else { Relation::Any }
            }
        }
    }

    /// True if every solution is one of the question: no variable stands for an operation, and no digit for itself.
    pub(super) fn exact(&self) -> bool {
        self.loose.is_empty() && self.values.keys().all(|var| self.vars.row(*var).definition.is_none())
    }

    /// Makes the unknowns of every variable, and relates both sides.
    pub(super) fn relate(&mut self) {
        for (var, cuts) in self.cuts.clone() {
            let row = self.vars.row(var).clone();
            let relation = self.related(var);
            let cuts: Vec<i64> = cuts.into_iter().filter(|cut| *cut > 1).collect();
            let chain = cuts.iter().scan(1i64, |below, cut| {
                let divides = cut % *below == 0;
                *below = *cut;
                Some(divides)
            });
            let digits = !cuts.is_empty()
                && chain.clone().all(|divides| divides)
                && row.least.is_some_and(|least| least >= 0);
            if digits {
                self.by_digits(var, &row, relation, cuts);
            } else {
                self.by_value(var, &row, relation);
            }
        }
    }

    fn by_value(&mut self, var: Var, row: &VarRow, relation: Relation) {
        let first = Form::unknown(self.system.unknown(row.least, row.most));
        let span = row.least.zip(row.most).map(|(least, most)| most - least);
        let second = match relation {
            Relation::Same => first.clone(),
            relation => {
                let mut second = first.clone();
                match relation {
                    Relation::By(by) => second.constant += by,
                    Relation::Later => {
                        second.terms.push((self.system.unknown(Some(1), span), 1));
                    }
                    _ => second.terms.push((self.system.unknown(span.map(|s| -s), span), 1)),
                }
                // A later value is not below the least.
                let later =
                    matches!(relation, Relation::Later) || matches!(relation, Relation::By(by) if by >= 0);
                self.within(&second, row.least.filter(|_| !later), row.most);
                second
            }
        };
        self.values.insert(var, [first, second]);
    }

    /// Requires that a form is between two bounds.
    fn within(&mut self, form: &Form, least: Option<i64>, most: Option<i64>) {
        if let Some(most) = most {
            let mut below = Form::constant(most);
            below.add(form, -1);
            self.system.at_least_zero(below);
        }
        if let Some(least) = least {
            let mut above = form.clone();
            above.constant -= least;
            self.system.at_least_zero(above);
        }
    }

    fn by_digits(&mut self, var: Var, row: &VarRow, relation: Relation, cuts: Vec<i64>) {
        let mut edges = vec![1];
        edges.extend(cuts);
        let mut sides: Vec<(Vec<Form>, Form)> = Vec::new();
        for side in 0..2 {
            if side == 1 && relation == Relation::Same {
                sides.push(sides[0].clone());
                continue;
            }
            let (mut forms, mut value) = (Vec::new(), Form::default());
            for (k, edge) in edges.iter().enumerate() {
                let most = match edges.get(k + 1) {
                    Some(next) => Some(next / edge - 1),
                    None => row.most.map(|most| most / edge),
                };
                let digit = Form::unknown(self.system.unknown(Some(0), most));
                value.add(&digit, *edge);
                forms.push(digit);
            }
            self.within(&value, row.least, row.most);
            sides.push((forms, value));
        }
        let (first, second) = (sides[0].clone(), sides[1].clone());
        let mut apart = second.1.clone();
        apart.add(&first.1, -1);
        match relation {
            Relation::By(by) => {
                apart.constant -= by;
                self.system.zero(apart);
            }
            Relation::Later => {
                apart.constant -= 1;
                self.system.at_least_zero(apart);
            }
            Relation::Same | Relation::Any => {}
        }
        self.values.insert(var, [first.1, second.1]);
        self.digits.insert(var, (edges, [first.0, second.0]));
    }

    /// Unknowns for the points of a place.
    pub(super) fn points(&mut self, leaves: &[(Extent, Coord)]) -> Vec<Unknown> {
        leaves
            .iter()
            .map(|(extent, _)| self.system.unknown(Some(0), extent.map(|extent| extent - 1)))
            .collect()
    }

    /// An affine form on one side.
    pub(super) fn form(&mut self, form: &Affine, side: usize) -> Form {
        let mut sum = Form::constant(form.rest());
        for (term, factor) in form.terms() {
            let part = match term {
                Term::Var(var) => match self.values.get(var) {
                    Some(values) => values[side].clone(),
                    None => continue,
                },
                Term::Digit { of, below, extent } => match self.digits.get(of) {
                    Some((edges, forms)) => {
                        let mut part = Form::default();
                        for (edge, digit) in edges.iter().zip(&forms[side]) {
                            if edge >= below && *edge < below * extent {
                                part.add(digit, edge / below);
                            }
                        }
                        part
                    }
                    None => self.loose(term, *of, *extent)[side].clone(),
                },
            };
            sum.add(&part, *factor);
        }
        sum
    }

    fn loose(&mut self, term: &Term, of: Var, extent: i64) -> [Form; 2] {
        if let Some(forms) = self.loose.get(term) {
            return forms.clone();
        }
        let first = Form::unknown(self.system.unknown(Some(0), Some(extent - 1)));
        let second = match self.related(of) {
            Relation::Same => first.clone(),
            _ => Form::unknown(self.system.unknown(Some(0), Some(extent - 1))),
        };
        self.loose.insert(term.clone(), [first.clone(), second.clone()]);
        [first, second]
    }
}
