//! Mutation by text: a line is deleted, done twice or exchanged with its neighbour, or a number is changed, in a program that is right. What
//! somebody does by mistake has to be refused, warned of or found, or to change nothing.
//!
//! A mutant that is right and silent computes what it says. If that is something else than the original computes, it needs a reason
//! ([`reason`]): nothing in the text says which of both is meant.

use serde::{Deserialize, Serialize};
use tilewright::check::{CheckOptions, Expected, watched};
use tilewright::compiler::compile;
use tilewright::machine::Arch;
use tilewright::tile::{Param, ParamId, parse};

use crate::dice::Dice;
use crate::judge::How;

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A line is gone.
    Delete,
    /// A line stands there twice.
    Duplicate,
    /// A line and the next have changed places.
    Swap,
    /// A number is another.
    Number,
}

impl Change {
    /// Name, for counters.
    pub fn name(self) -> &'static str {
        match self {
            Change::Delete => "delete",
            Change::Duplicate => "duplicate",
            Change::Swap => "swap",
            Change::Number => "number",
        }
    }
}

/// A text with one change.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The kind.
    pub change: Change,
    /// The lines that are changed, as they were.
    pub before: Vec<String>,
    /// The same lines, as they are; empty where they are gone.
    pub after: Vec<String>,
    /// The text.
    pub text: String,
}

/// The digits in a line that are numbers of their own, as ranges of bytes.
fn numbers(line: &str) -> Vec<std::ops::Range<usize>> {
    let bytes = line.as_bytes();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.';
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at].is_ascii_digit() && (at == 0 || !word(bytes[at - 1])) {
            let end = (at..bytes.len()).find(|i| !bytes[*i].is_ascii_digit()).unwrap_or(bytes.len());
            all.push(at..end);
            at = end;
        } else {
            at += 1;
        }
    }
    all
}

/// Changes a text in one place: a statement, a declaration or a number, but not the sizes, which are the problem's.
pub fn mutant(text: &str, dice: &mut Dice) -> Option<Mutant> {
    let lines: Vec<&str> = text.lines().collect();
    let open: Vec<usize> = (0..lines.len())
        .filter(|i| {
            let line = lines[*i].trim();
            !(line.is_empty() || line.starts_with("size ") || matches!(line, "{" | "}"))
        })
        .collect();
    if open.is_empty() {
        return None;
    }
    let at = dice.pick(&open);
    let change = dice.pick(&[
        Change::Delete,
        Change::Delete,
        Change::Duplicate,
        Change::Swap,
        Change::Swap,
        Change::Number,
        Change::Number,
        Change::Number,
    ]);
    let line = lines[at].to_string();
    let (before, after) = match change {
        Change::Delete => (vec![line], Vec::new()),
        Change::Duplicate => (vec![line.clone()], vec![line.clone(), line]),
        Change::Swap => {
            let next = lines.get(at + 1)?.to_string();
            (vec![line.clone(), next.clone()], vec![next, line])
        }
        Change::Number => {
            let all = numbers(&line);
            if all.is_empty() {
                return None;
            }
            let range = dice.pick(&all);
            let old: i64 = line[range.clone()].parse().ok()?;
            let new = match dice.below(6) {
                0 => old.checked_add(1)?,
                1 => (old - 1).max(0),
                2 => old.checked_mul(2)?,
                3 => old / 2,
                4 => 0,
                _ => dice.pick(&[1, 2, 3, 4, 8, 16, 32, 64]),
            };
            let changed = format!("{}{new}{}", &line[..range.start], &line[range.end..]);
            (vec![line], vec![changed])
        }
    };
    if before == after {
        return None;
    }
    let rest = at + before.len();
    let all = lines[..at].iter().map(ToString::to_string).chain(after.iter().cloned());
    let all: Vec<String> = all.chain(lines[rest..].iter().map(ToString::to_string)).collect();
    Some(Mutant { change, before, after, text: all.join("\n") + "\n" })
}

/// The meaning of a program: its parameters, and what the interpreter makes of its inputs.
pub struct Meaning {
    params: Vec<Param>,
    outputs: Vec<ParamId>,
    expected: Expected,
    /// Warnings of the run and of the lints.
    pub warnings: Vec<String>,
}

/// The meaning of a text with the inputs of a judgement; `None` if it has none.
pub fn meaning(text: &str, how: &How) -> Option<Meaning> {
    let program = parse(text).ok()?;
    let arch: Arch = how.arch.parse().ok()?;
    let kernel = compile(&program, &how.options(&program, arch)).ok()?;
    let options = CheckOptions { seed: how.inputs, ..CheckOptions::default() };
    let (expected, warnings) = watched(&kernel, &options).ok()?;
    let warnings = warnings.iter().map(|w| format!("{}: {}", w.code, w.message)).collect();
    let (params, outputs) = (program.params.clone(), kernel.verified.outputs().to_vec());
    Some(Meaning { params, outputs, expected, warnings })
}

/// The difference of two meanings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// None, within the bounds of both.
    Equal,
    /// The parameters are others: it is another kernel, to whoever calls it.
    Parameters,
    /// An output has other elements.
    Output(String),
}

impl Meaning {
    /// Compares the outputs with those of another program.
    pub fn difference(&self, other: &Meaning) -> Difference {
        if self.params != other.params {
            return Difference::Parameters;
        }
        if self.outputs != other.outputs {
            return Difference::Output("the outputs are other tensors".to_string());
        }
        for id in &self.outputs {
            let i = id.0 as usize;
            let of = |meaning: &Meaning| meaning.expected.arguments.get(i).and_then(|a| a.elements());
            let (Some(x), Some(y)) = (of(self), of(other)) else { continue };
            let bound = |meaning: &Meaning, k: usize| {
                let bounds = meaning.expected.bounds.get(i).and_then(Option::as_ref);
                f64::from(bounds.and_then(|b| b.get(k)).copied().unwrap_or(0.0))
            };
            let name = &self.params[i].name;
            if x.len() != y.len() {
                return Difference::Output(format!(
                    "`{name}` has {} elements instead of {}",
                    y.len(),
                    x.len()
                ));
            }
            for k in 0..x.len() {
                let near = x.distance(&y, k) <= bound(self, k).max(bound(other, k));
                if !x.same(&y, k) && !near {
                    let number = |of: &tilewright::machine::Elements| of.get(k).unwrap_or(f64::NAN);
                    return Difference::Output(format!(
                        "element {k} of `{name}` is {} instead of {}",
                        number(&y),
                        number(&x)
                    ));
                }
            }
        }
        Difference::Equal
    }
}

/// The call that a line is, or whose result it assigns: `copy`, `reduce`; an empty word of another expression.
fn call(line: &str) -> &str {
    let text = line.trim();
    let text = text.split_once(" = ").map_or(text, |(_, value)| value);
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(text.len());
    if text[end..].starts_with('(') { &text[..end] } else { "" }
}

/// Statements that compute new values of what registers hold, elementwise or along a mode: what they are for is the formula's.
const FORMULAS: [&str; 24] = [
    "", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sin", "cos", "erf", "floor", "ceil", "round",
    "float", "int", "where", "max", "min", "abs", "reduce", "scan", "cast", "gather",
];

/// The reason why no rule can see that a silent mutant is not what was meant; `None` if one should.
pub fn reason(mutant: &Mutant) -> Option<&'static str> {
    let text = |lines: &[String]| lines.iter().map(|line| line.trim().to_string()).collect::<Vec<_>>();
    let (before, after) = (text(&mutant.before), text(&mutant.after));
    let assigns = |line: &String| line.contains(" = ") && FORMULAS.contains(&call(line));
    match mutant.change {
        Change::Number => {
            let (old, new) = (before.first()?, after.first()?);
            match call(old) {
                _ if assigns(old) => Some("number_of_a_formula"),
                // `fill(t, 0.5)`: where 0 begins a sum, what it should be is known (`extremum-start`).
                "fill" if !new.contains(" 0.0)") && !old.contains(" 0.0)") => Some("number_of_a_formula"),
                _ if old.contains("outside = ") => Some("value_outside"),
                _ => None,
            }
        }
        Change::Delete | Change::Duplicate => {
            before.first().filter(|line| assigns(line)).map(|_| "step_of_a_formula")
        }
        Change::Swap => before.iter().all(assigns).then_some("order_of_a_formula"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_stand_alone() {
        let of =
            |line: &str| numbers(line).into_iter().map(|range| line[range].to_string()).collect::<Vec<_>>();
        assert_eq!(of("x1 = float(12) * 0.5 + e0 + 7"), ["12", "0", "7"]);
        assert_eq!(of("copy(ga[:, :, i + 2], sa)"), ["2"]);
    }

    #[test]
    fn mutants_differ_in_what_they_say() {
        let text = "size m = 64\nkernel f(x: f16[m, 8]) grid(1) threads(32)\n{\n    r = register_tensor(f16, [8, 8])\n    fill(r, 0.0)\n}\n";
        let mut dice = Dice::of(1, 1);
        for _ in 0..200 {
            if let Some(mutant) = mutant(text, &mut dice) {
                assert_ne!(mutant.text, text);
                assert!(mutant.text.starts_with("size m = 64\n"));
                assert!(mutant.before.iter().all(|line| text.contains(line.as_str())));
            }
        }
    }

    #[test]
    fn reasons_are_of_formulas_alone() {
        let of = |change, before: &[&str], after: &[&str]| {
            let lines = |all: &[&str]| all.iter().map(ToString::to_string).collect();
            reason(&Mutant { change, before: lines(before), after: lines(after), text: String::new() })
        };
        assert_eq!(of(Change::Number, &["y = x * 0.5"], &["y = x * 1.5"]), Some("number_of_a_formula"));
        assert_eq!(of(Change::Delete, &["v = v * scale"], &[]), Some("step_of_a_formula"));
        assert_eq!(of(Change::Delete, &["copy(a, b)"], &[]), None);
        assert_eq!(of(Change::Number, &["for i in 0..4 {"], &["for i in 0..3 {"]), None);
    }
}
