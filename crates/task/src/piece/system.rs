//! Systems of linear equations over bounded integers, solved exactly by a search with a budget: the one question that pieces ask of the
//! numbers in them. An equation bounds the next unknown by what the others reach, and rules out residues by the greatest common
//! divisor of their factors.

/// Steps of one search; a system that takes more is not decided.
const STEPS: u32 = 20_000;

/// The answer for a system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// There is no solution.
    None,
    /// A solution: a value for each unknown.
    Some(Vec<i64>),
    /// Not decided: the search was too long, or an unknown has no bounds.
    Undecided,
}

/// An unknown, as an index.
pub type Unknown = usize;

/// A linear form over unknowns: terms and a constant.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Form {
    /// (unknown, factor); an unknown may occur more than once.
    pub terms: Vec<(Unknown, i64)>,
    /// The constant.
    pub constant: i64,
}

impl Form {
    /// Adds `by · other`.
    pub fn add(&mut self, other: &Form, by: i64) {
        self.terms.extend(other.terms.iter().map(|(unknown, factor)| (*unknown, factor.saturating_mul(by))));
        self.constant = self.constant.saturating_add(other.constant.saturating_mul(by));
    }

    /// The form of one unknown.
    pub fn unknown(unknown: Unknown) -> Form {
        Form { terms: vec![(unknown, 1)], constant: 0 }
    }

    /// A constant.
    pub fn constant(constant: i64) -> Form {
        Form { terms: Vec::new(), constant }
    }
}

/// A system: unknowns within bounds, and forms that are zero.
#[derive(Clone, Default, Debug)]
pub struct System {
    bounds: Vec<(Option<i64>, Option<i64>)>,
    rows: Vec<Form>,
}

impl System {
    /// A new unknown between two bounds, both included; nothing where there is none.
    pub fn unknown(&mut self, least: Option<i64>, most: Option<i64>) -> Unknown {
        self.bounds.push((least, most));
        self.bounds.len() - 1
    }

    /// Requires that the form is zero.
    pub fn zero(&mut self, form: Form) {
        self.rows.push(form);
    }

    /// Requires that the form is at least zero. `most` bounds it from above, where that is known.
    pub fn at_least_zero(&mut self, mut form: Form, most: Option<i64>) {
        let slack = self.unknown(Some(0), most);
        form.terms.push((slack, -1));
        self.zero(form);
    }

    /// Takes out the rows in which two unknowns occur that no other row has, with factors 1 and -1 and no upper bound: whatever the others
    /// are, these two make up for it. Gives the two with the row.
    fn always_solved(&self, rows: &mut Vec<(Vec<i64>, i64)>) -> Vec<(Unknown, Unknown, Form)> {
        let mut free = Vec::new();
        let alone = |rows: &[(Vec<i64>, i64)], k: usize, factor: i64, at: usize| {
            let unbounded = matches!(self.bounds[k], (Some(_), None));
            let only = |(other, (factors, _)): (usize, &(Vec<i64>, i64))| {
                factors[k] == if other == at { factor } else { 0 }
            };
            unbounded && rows.iter().enumerate().all(only)
        };
        let mut at = 0;
        while at < rows.len() {
            let find = |factor: i64| (0..self.bounds.len()).find(|k| alone(rows, *k, factor, at));
            match (find(1), find(-1)) {
                (Some(up), Some(down)) => {
                    let (factors, constant) = rows.remove(at);
                    let terms = factors.into_iter().enumerate().filter(|(_, factor)| *factor != 0).collect();
                    free.push((up, down, Form { terms, constant }));
                }
                _ => at += 1,
            }
        }
        free
    }

    /// A solution, if there is one.
    pub fn solve(&self) -> Answer {
        if self.bounds.iter().any(|(least, most)| matches!((least, most), (Some(a), Some(b)) if a > b)) {
            return Answer::None;
        }
        let mut rows: Vec<(Vec<i64>, i64)> = Vec::with_capacity(self.rows.len());
        for form in &self.rows {
            let mut factors = vec![0i64; self.bounds.len()];
            for (unknown, factor) in &form.terms {
                factors[*unknown] = factors[*unknown].saturating_add(*factor);
            }
            rows.push((factors, form.constant));
        }
        let free = self.always_solved(&mut rows);
        // Bounded unknowns first, the greatest factors first: then each equation rules out most.
        let weight = |k: usize| rows.iter().map(|(factors, _)| factors[k].unsigned_abs()).max().unwrap_or(0);
        let bounded = |k: usize| matches!(self.bounds[k], (Some(_), Some(_)));
        let mut order: Vec<usize> = (0..self.bounds.len()).filter(|k| weight(*k) > 0).collect();
        order.sort_by_key(|k| (!bounded(*k), std::cmp::Reverse(weight(*k)), *k));
        let rest: Vec<Vec<Rest>> = rows
            .iter()
            .map(|(factors, _)| {
                let mut rest = vec![Rest::default(); order.len() + 1];
                for (at, k) in order.iter().enumerate().rev() {
                    rest[at] = rest[at + 1].with(factors[*k], self.bounds[*k]);
                }
                rest
            })
            .collect();
        let mut values: Vec<i64> =
            self.bounds.iter().map(|(least, most)| least.or(*most).unwrap_or(0)).collect();
        let mut sums: Vec<i128> = rows.iter().map(|(_, constant)| i128::from(*constant)).collect();
        let mut search =
            Search { bounds: &self.bounds, rows: &rows, rest: &rest, order: &order, steps: STEPS };
        match search.go(0, &mut sums, &mut values) {
            Some(true) => {
                for (up, down, row) in free {
                    // What the row lacks, one of the two makes up for.
                    let lack =
                        row.terms.iter().fold(-row.constant, |lack, (k, factor)| lack - factor * values[*k]);
                    values[if lack >= 0 { up } else { down }] += lack.abs();
                }
                Answer::Some(values)
            }
            Some(false) => Answer::None,
            None => Answer::Undecided,
        }
    }
}

/// The reach of the unknowns that are left of an equation, and the greatest common divisor of their factors.
#[derive(Clone, Default, Debug)]
struct Rest {
    least: i128,
    most: i128,
    below: bool,
    above: bool,
    divisor: i128,
}

impl Rest {
    fn with(&self, factor: i64, (least, most): (Option<i64>, Option<i64>)) -> Rest {
        let mut rest = self.clone();
        if factor == 0 {
            return rest;
        }
        let factor = i128::from(factor);
        let (low, high) = if factor > 0 { (least, most) } else { (most, least) };
        match low {
            Some(low) => rest.least += factor * i128::from(low),
            None => rest.below = true,
        }
        match high {
            Some(high) => rest.most += factor * i128::from(high),
            None => rest.above = true,
        }
        rest.divisor = gcd(rest.divisor, factor);
        rest
    }

    /// True if the rest can make up for the sum, as far as reach and divisor say.
    fn allows(&self, sum: i128) -> bool {
        let need = -sum;
        (self.below || need >= self.least)
            && (self.above || need <= self.most)
            && if self.divisor == 0 { need == 0 } else { need % self.divisor == 0 }
    }
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs()
}

struct Search<'a> {
    bounds: &'a [(Option<i64>, Option<i64>)],
    rows: &'a [(Vec<i64>, i64)],
    rest: &'a [Vec<Rest>],
    order: &'a [usize],
    steps: u32,
}

impl Search<'_> {
    fn go(&mut self, at: usize, sums: &mut [i128], values: &mut [i64]) -> Option<bool> {
        self.steps = self.steps.checked_sub(1)?;
        if !self.rest.iter().zip(sums.iter()).all(|(rest, sum)| rest[at].allows(*sum)) {
            return Some(false);
        }
        let Some(&k) = self.order.get(at) else { return Some(true) };
        let (mut least, mut most) = (self.bounds[k].0.map(i128::from), self.bounds[k].1.map(i128::from));
        for ((factors, _), (rest, sum)) in self.rows.iter().zip(self.rest.iter().zip(sums.iter())) {
            let factor = i128::from(factors[k]);
            if factor == 0 {
                continue;
            }
            // factor · x lies between what the rest cannot make up for.
            let rest = &rest[at + 1];
            let low = (!rest.above).then(|| -sum - rest.most);
            let high = (!rest.below).then(|| -sum - rest.least);
            let (low, high) = if factor > 0 { (low, high) } else { (high.map(|x| -x), low.map(|x| -x)) };
            let factor = factor.abs();
            let low = low.map(|x| x.div_euclid(factor) + i128::from(x.rem_euclid(factor) != 0));
            let high = high.map(|x| x.div_euclid(factor));
            least = least.max(low);
            most = match (most, high) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let (Some(least), Some(most)) = (least, most) else { return None };
        let mut value = least;
        while value <= most {
            values[k] = i64::try_from(value).ok()?;
            for ((factors, _), sum) in self.rows.iter().zip(sums.iter_mut()) {
                *sum += i128::from(factors[k]) * value;
            }
            let found = self.go(at + 1, sums, values);
            for ((factors, _), sum) in self.rows.iter().zip(sums.iter_mut()) {
                *sum -= i128::from(factors[k]) * value;
            }
            if found? {
                return Some(true);
            }
            value += 1;
        }
        Some(false)
    }
}
