//! The integers that pieces' colours are made of: affine forms over counters and over what is not affine in them, which stands as
//! a variable of its own.

use std::collections::HashMap;

use tilewright_tile::expr::IntOp;

/// A counter, or an integer that is not affine in counters: an index into [`Vars`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Var(pub u32);

/// A part of an affine form.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Term {
    /// A variable.
    Var(Var),
    /// `var / below % extent`: a digit of a variable, as a mode of several leaves counts it.
    Digit {
        /// The variable.
        of: Var,
        /// The product of the extents below.
        below: i64,
        /// The digit's extent.
        extent: i64,
    },
}

/// An affine form: a constant and terms with factors, ascending, none of them zero.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Affine {
    constant: i64,
    terms: Vec<(Term, i64)>,
}

impl Affine {
    /// A constant.
    pub fn constant(constant: i64) -> Affine {
        Affine { constant, terms: Vec::new() }
    }

    /// A variable.
    pub fn var(var: Var) -> Affine {
        Affine { constant: 0, terms: vec![(Term::Var(var), 1)] }
    }

    /// A term.
    pub fn term(term: Term) -> Affine {
        Affine { constant: 0, terms: vec![(term, 1)] }
    }

    /// The constant part.
    pub fn rest(&self) -> i64 {
        self.constant
    }

    /// The terms with their factors.
    pub fn terms(&self) -> &[(Term, i64)] {
        &self.terms
    }

    /// The value, where there are no terms.
    pub fn value(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The variable that the form is, with nothing added.
    pub fn as_var(&self) -> Option<Var> {
        match (&self.terms[..], self.constant) {
            ([(Term::Var(var), 1)], 0) => Some(*var),
            _ => None,
        }
    }

    /// `self + by · other`.
    pub fn plus(&self, other: &Affine, by: i64) -> Affine {
        let mut terms = self.terms.clone();
        for (term, factor) in &other.terms {
            let factor = factor.saturating_mul(by);
            match terms.binary_search_by(|(t, _)| t.cmp(term)) {
                Ok(at) => terms[at].1 = terms[at].1.saturating_add(factor),
                Err(at) => terms.insert(at, (term.clone(), factor)),
            }
        }
        terms.retain(|(_, factor)| *factor != 0);
        Affine { constant: self.constant.saturating_add(other.constant.saturating_mul(by)), terms }
    }

    /// `by · self`.
    pub fn times(&self, by: i64) -> Affine {
        Affine::default().plus(self, by)
    }

    /// The variables that occur, ascending.
    pub fn vars(&self) -> Vec<Var> {
        let mut vars: Vec<Var> = self
            .terms
            .iter()
            .map(|(term, _)| match term {
                Term::Var(var) | Term::Digit { of: var, .. } => *var,
            })
            .collect();
        vars.sort_unstable();
        vars.dedup();
        vars
    }
}

/// A variable's row.
#[derive(Clone, PartialEq, Debug)]
pub struct VarRow {
    /// The name, where the text has one.
    pub name: Option<String>,
    /// The least value, if it is known.
    pub least: Option<i64>,
    /// The greatest value, if it is known.
    pub most: Option<i64>,
    /// The operation that it is the result of; nothing for a counter.
    pub definition: Option<(IntOp, Affine, Affine)>,
}

/// The variables of an instantiated program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Vars {
    rows: Vec<VarRow>,
    defined: HashMap<(IntOp, Affine, Affine), Var>,
}

impl Vars {
    /// A new variable between two bounds, both included.
    pub fn fresh(&mut self, name: &str, least: Option<i64>, most: Option<i64>) -> Var {
        self.rows.push(VarRow { name: Some(name.to_string()), least, most, definition: None });
        Var(self.rows.len() as u32 - 1)
    }

    /// The row of a variable.
    pub fn row(&self, var: Var) -> &VarRow {
        &self.rows[var.0 as usize]
    }

    /// The number of variables.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// True if the form depends on the variable, through definitions too.
    pub fn depends(&self, form: &Affine, on: Var) -> bool {
        form.vars().into_iter().any(|var| self.var_depends(var, on))
    }

    fn var_depends(&self, var: Var, on: Var) -> bool {
        let through = |(_, a, b): &(IntOp, Affine, Affine)| self.depends(a, on) || self.depends(b, on);
        var == on || self.row(var).definition.as_ref().is_some_and(through)
    }

    /// The least and the greatest value of a form, where they are known.
    pub fn range(&self, form: &Affine) -> (Option<i64>, Option<i64>) {
        let (mut least, mut most) = (Some(form.constant), Some(form.constant));
        for (term, factor) in &form.terms {
            let (low, high) = match term {
                Term::Var(var) => (self.row(*var).least, self.row(*var).most),
                Term::Digit { extent, .. } => (Some(0), Some(extent - 1)),
            };
            let (low, high) = if *factor > 0 { (low, high) } else { (high, low) };
            let sum = |sum: Option<i64>, bound: Option<i64>| sum?.checked_add(bound?.checked_mul(*factor)?);
            (least, most) = (sum(least, low), sum(most, high));
        }
        (least, most)
    }

    /// The result of an operation: folded where both are constants, affine where it can be, a variable that stands for it otherwise. Nothing
    /// where two constants have no result.
    pub fn apply(&mut self, op: IntOp, a: &Affine, b: &Affine) -> Option<Affine> {
        if let (Some(a), Some(b)) = (a.value(), b.value()) {
            return op.apply(a, b).map(Affine::constant);
        }
        match (op, a.value(), b.value()) {
            (IntOp::Add, ..) => return Some(a.plus(b, 1)),
            (IntOp::Sub, ..) => return Some(a.plus(b, -1)),
            (IntOp::Mul, Some(by), _) => return Some(b.times(by)),
            (IntOp::Mul, _, Some(by)) => return Some(a.times(by)),
            (IntOp::Div | IntOp::CeilDiv, _, Some(1)) => return Some(a.clone()),
            (IntOp::Rem, _, Some(1)) => return Some(Affine::constant(0)),
            (IntOp::Div | IntOp::CeilDiv, _, Some(by))
                if by > 0 && a.constant % by == 0 && a.terms.iter().all(|(_, factor)| factor % by == 0) =>
            {
                let terms = a.terms.iter().map(|(term, factor)| (term.clone(), factor / by)).collect();
                return Some(Affine { constant: a.constant / by, terms });
            }
            _ => {}
        }
        let key = (op, a.clone(), b.clone());
        if let Some(var) = self.defined.get(&key) {
            return Some(Affine::var(*var));
        }
        let (least, most) = self.bounds(op, a, b);
        let row = VarRow { name: None, least, most, definition: Some(key.clone()) };
        self.rows.push(row);
        let var = Var(self.rows.len() as u32 - 1);
        self.defined.insert(key, var);
        Some(Affine::var(var))
    }

    /// Bounds of an operation by those of its operands.
    fn bounds(&self, op: IntOp, a: &Affine, b: &Affine) -> (Option<i64>, Option<i64>) {
        let ((a_least, a_most), (b_least, b_most)) = (self.range(a), self.range(b));
        match op {
            op if op.is_condition() => (Some(0), Some(1)),
            IntOp::Rem if b_least.is_some_and(|b| b > 0) => (Some(0), b_most.map(|b| b - 1)),
            IntOp::Div | IntOp::CeilDiv => match b.value() {
                Some(by) if by > 0 => {
                    let divide = |x: Option<i64>| x.and_then(|x| op.apply(x, by));
                    (divide(a_least), divide(a_most))
                }
                _ => (None, None),
            },
            IntOp::Min => {
                let most = match (a_most, b_most) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                (a_least.zip(b_least).map(|(a, b)| a.min(b)), most)
            }
            IntOp::Max => (a_least.max(b_least), a_most.zip(b_most).map(|(a, b)| a.max(b))),
            _ => (None, None),
        }
    }

    /// The form as text: names of counters, definitions in parentheses.
    pub fn text(&self, form: &Affine) -> String {
        let mut text = String::new();
        for (term, factor) in &form.terms {
            let name = match term {
                Term::Var(var) => self.var_text(*var),
                Term::Digit { of, below: 1, extent } => format!("{} % {extent}", self.var_text(*of)),
                Term::Digit { of, below, extent } => format!("{} / {below} % {extent}", self.var_text(*of)),
            };
            let product = match factor.abs() {
                1 => name,
                by => format!("{by} * {name}"),
            };
            match (text.is_empty(), *factor > 0) {
                (true, true) => text = product,
                (true, false) => text = format!("-{product}"),
                (false, true) => text += &format!(" + {product}"),
                (false, false) => text += &format!(" - {product}"),
            }
        }
        match (text.is_empty(), form.constant) {
            (true, constant) => constant.to_string(),
            (false, 0) => text,
            (false, constant) if constant > 0 => format!("{text} + {constant}"),
            (false, constant) => format!("{text} - {}", -constant),
        }
    }

    fn var_text(&self, var: Var) -> String {
        let row = self.row(var);
        match (&row.name, &row.definition) {
            (Some(name), _) => name.clone(),
            (None, Some((op, a, b))) => {
                let (a, b) = (self.text(a), self.text(b));
                match op {
                    IntOp::CeilDiv => format!("ceil_div({a}, {b})"),
                    IntOp::Min => format!("min({a}, {b})"),
                    IntOp::Max => format!("max({a}, {b})"),
                    op => format!("({a} {} {b})", symbol(*op)),
                }
            }
            (None, None) => format!("v{}", var.0),
        }
    }
}

/// The operator between two operands.
fn symbol(op: IntOp) -> &'static str {
    match op {
        IntOp::Add => "+",
        IntOp::Sub => "-",
        IntOp::Mul => "*",
        IntOp::Div => "/",
        IntOp::Rem => "%",
        IntOp::Eq => "==",
        IntOp::Ne => "!=",
        IntOp::Lt => "<",
        IntOp::Le => "<=",
        IntOp::Gt => ">",
        IntOp::Ge => ">=",
        IntOp::And => "and",
        IntOp::Or => "or",
        IntOp::CeilDiv => "ceil_div",
        IntOp::Min => "min",
        IntOp::Max => "max",
    }
}
