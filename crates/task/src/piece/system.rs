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

/// Least and greatest value of an unknown, both included; nothing where there is none.
type Bounds = (Option<i64>, Option<i64>);

/// A system: unknowns within bounds, forms that are zero, and forms that are not negative.
#[derive(Clone, Default, Debug)]
pub struct System {
    bounds: Vec<Bounds>,
    rows: Vec<(Form, Kind)>,
}

/// The meaning of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The form is zero.
    Zero,
    /// The form is at least zero.
    AtLeastZero,
}

/// A row: the factors of all unknowns, the constant, the meaning.
#[derive(Clone, Debug)]
struct Row {
    factors: Vec<i64>,
    constant: i64,
    kind: Kind,
}

impl System {
    /// A new unknown between two bounds, both included; nothing where there is none.
    pub fn unknown(&mut self, least: Option<i64>, most: Option<i64>) -> Unknown {
        self.bounds.push((least, most));
        self.bounds.len() - 1
    }

    /// Requires that the form is zero.
    pub fn zero(&mut self, form: Form) {
        self.rows.push((form, Kind::Zero));
    }

    /// Requires that the form is at least zero.
    pub fn at_least_zero(&mut self, form: Form) {
        self.rows.push((form, Kind::AtLeastZero));
    }

    /// A solution, if there is one.
    pub fn solve(&self) -> Answer {
        let mut bounds = self.bounds.clone();
        if bounds.iter().any(|(least, most)| matches!((least, most), (Some(a), Some(b)) if a > b)) {
            return Answer::None;
        }
        let mut rows: Vec<Row> = Vec::with_capacity(self.rows.len());
        for (form, kind) in &self.rows {
            let mut factors = vec![0i64; bounds.len()];
            for (unknown, factor) in &form.terms {
                factors[*unknown] = factors[*unknown].saturating_add(*factor);
            }
            rows.push(Row { factors, constant: form.constant, kind: *kind });
        }
        rows.retain(|row| !row.holds(&bounds));
        let free = always_solved(&bounds, &mut rows);
        let pairs = differences(&mut bounds, &mut rows);
        // Bounded unknowns first, the greatest factors first: then each equation rules out most.
        let weight = |k: usize| rows.iter().map(|row| row.factors[k].unsigned_abs()).max().unwrap_or(0);
        let bounded = |k: usize| matches!(bounds[k], (Some(_), Some(_)));
        let mut order: Vec<usize> = (0..bounds.len()).filter(|k| weight(*k) > 0).collect();
        order.sort_by_key(|k| (!bounded(*k), std::cmp::Reverse(weight(*k)), *k));
        let rest: Vec<Vec<Rest>> = rows
            .iter()
            .map(|row| {
                let mut rest = vec![Rest::default(); order.len() + 1];
                for (at, k) in order.iter().enumerate().rev() {
                    rest[at] = rest[at + 1].with(row.factors[*k], bounds[*k]);
                }
                rest
            })
            .collect();
        let mut values: Vec<i64> = bounds.iter().map(|(least, most)| least.or(*most).unwrap_or(0)).collect();
        let mut sums: Vec<i128> = rows.iter().map(|row| i128::from(row.constant)).collect();
        let mut search = Search { bounds: &bounds, rows: &rows, rest: &rest, order: &order, steps: STEPS };
        match search.go(0, &mut sums, &mut values) {
            Some(true) => {
                for (first, second, (least_first, least_second)) in pairs {
                    let difference = values[first];
                    values[first] = least_first.max(least_second + difference);
                    values[second] = values[first] - difference;
                }
                for (up, row) in free {
                    // What the row lacks, this unknown makes up for.
                    let sum = row.factors.iter().zip(&values).fold(row.constant, |sum, (f, v)| sum + f * v);
                    values[up] += (-sum).max(0);
                }
                Answer::Some(values)
            }
            Some(false) => Answer::None,
            None => Answer::Undecided,
        }
    }
}

impl Row {
    /// True if it holds whatever the unknowns are.
    fn holds(&self, bounds: &[Bounds]) -> bool {
        let rest = self.factors.iter().zip(bounds).fold(Rest::default(), |rest, (f, b)| rest.with(*f, *b));
        self.kind == Kind::AtLeastZero && !rest.below && i128::from(self.constant) + rest.least >= 0
    }
}

/// Takes out the rows that an unknown which no other row has makes up for, whatever the others are: it has no upper bound, and the row is at
/// least zero.
fn always_solved(bounds: &[Bounds], rows: &mut Vec<Row>) -> Vec<(Unknown, Row)> {
    let mut free = Vec::new();
    let mut at = 0;
    while at < rows.len() {
        let alone = |k: usize| {
            let only = |(other, row): (usize, &Row)| row.factors[k] == i64::from(other == at);
            matches!(bounds[k], (_, None)) && rows.iter().enumerate().all(only)
        };
        match (0..bounds.len()).find(|k| rows[at].kind == Kind::AtLeastZero && alone(*k)) {
            Some(up) => free.push((up, rows.remove(at))),
            None => at += 1,
        }
    }
    free
}

/// Makes one unknown of two of which every row has the difference alone. Gives both with their least values.
fn differences(bounds: &mut [Bounds], rows: &mut [Row]) -> Vec<(Unknown, Unknown, (i64, i64))> {
    let mut pairs = Vec::new();
    let mut taken = vec![false; bounds.len()];
    for first in 0..bounds.len() {
        let (Some(least), Some(most)) = bounds[first] else { continue };
        let moves = |rows: &[Row]| rows.iter().any(|row| row.factors[first] != 0);
        if taken[first] || !moves(rows) {
            continue;
        }
        let opposite = |k: &usize| {
            !taken[*k]
                && *k != first
                && rows.iter().all(|row| row.factors[*k] == -row.factors[first])
                && matches!(bounds[*k], (Some(_), Some(_)))
        };
        let Some(second) = (first + 1..bounds.len()).find(opposite) else { continue };
        let (Some(least_second), Some(most_second)) = bounds[second] else { continue };
        bounds[first] = (Some(least - most_second), Some(most - least_second));
        rows.iter_mut().for_each(|row| row.factors[second] = 0);
        taken[first] = true;
        taken[second] = true;
        pairs.push((first, second, (least, least_second)));
    }
    pairs
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
    fn with(&self, factor: i64, (least, most): Bounds) -> Rest {
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
    fn allows(&self, sum: i128, kind: Kind) -> bool {
        let need = -sum;
        if kind == Kind::AtLeastZero {
            return self.above || need <= self.most;
        }
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
    bounds: &'a [Bounds],
    rows: &'a [Row],
    rest: &'a [Vec<Rest>],
    order: &'a [usize],
    steps: u32,
}

impl Search<'_> {
    fn go(&mut self, at: usize, sums: &mut [i128], values: &mut [i64]) -> Option<bool> {
        self.steps = self.steps.checked_sub(1)?;
        let mut each = self.rest.iter().zip(self.rows).zip(sums.iter());
        if !each.all(|((rest, row), sum)| rest[at].allows(*sum, row.kind)) {
            return Some(false);
        }
        let Some(&k) = self.order.get(at) else { return Some(true) };
        let (mut least, mut most) = (self.bounds[k].0.map(i128::from), self.bounds[k].1.map(i128::from));
        for (row, (rest, sum)) in self.rows.iter().zip(self.rest.iter().zip(sums.iter())) {
            let factor = i128::from(row.factors[k]);
            if factor == 0 {
                continue;
            }
            // factor · x lies between what the rest cannot make up for.
            let rest = &rest[at + 1];
            let low = (!rest.above).then(|| -sum - rest.most);
            let high = (!rest.below && row.kind == Kind::Zero).then(|| -sum - rest.least);
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
            for (row, sum) in self.rows.iter().zip(sums.iter_mut()) {
                *sum += i128::from(row.factors[k]) * value;
            }
            let found = self.go(at + 1, sums, values);
            for (row, sum) in self.rows.iter().zip(sums.iter_mut()) {
                *sum -= i128::from(row.factors[k]) * value;
            }
            if found? {
                return Some(true);
            }
            value += 1;
        }
        Some(false)
    }
}
