//! A choice as text: the parts of its estimate beside those of its rivals.

use std::fmt;

use tilewright_kernels::{Estimate, Part, Resource};

use crate::choose::{Contender, Why, text_of};
use crate::problem::Candidate;

/// Columns of a number, and of the names in front of them.
const NUMBER: usize = 10;
const NAME: usize = 26;

/// Resources that a step may wait for, beside the one that bounds it, are named if they want at least this part of what it wants.
const ALSO: f64 = 0.5;

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, in µs by the model of {}:", self.problem, self.model)?;
        let names = ["chosen", "second", "third", "fourth"];
        self.row(f, "", |place, _| Some(names.get(place).copied().unwrap_or("next").to_string()))?;
        for part in Part::ALL {
            if self.contenders.iter().any(|contender| contender.estimate.part(part) != 0.0) {
                let of = |contender: &Contender| contender.estimate.part(part);
                self.row(f, &part.to_string(), |_, c| (of(c) != 0.0).then(|| format!("{:.2}", of(c))))?;
            }
        }
        self.row(f, "estimate", |_, c| Some(format!("{:.2}", c.estimate.microseconds)))?;
        if self.contenders.iter().any(|contender| !contender.neighbours.is_empty()) {
            self.row(f, "corrected by records", |_, c| Some(format!("× {:.3}", c.correction)))?;
            let unproven = |c: &Contender| c.expected / (c.estimate.microseconds * c.correction);
            if self.contenders.iter().any(|c| unproven(c) > 1.001) {
                let shown = |c: &Contender| (unproven(c) > 1.001).then(|| format!("× {:.2}", unproven(c)));
                self.row(f, "nobody measured it", |_, c| shown(c))?;
            }
            self.row(f, "expected", |_, c| Some(format!("{:.2}", c.expected)))?;
        }
        if let Some(measured) = self.measured {
            self.row(f, "measured", |place, _| (place == 0).then(|| format!("{measured:.2}")))?;
        }
        for (place, contender) in self.contenders.iter().enumerate() {
            let name = names.get(place).copied().unwrap_or("next");
            writeln!(f, "\n{name}: {}", shown(&contender.candidate))?;
            writeln!(f, "  {}", contender.how)?;
            steps(f, &contender.estimate)?;
            for near in &contender.neighbours {
                writeln!(
                    f,
                    "  record: {} took {:.1} µs at {}, {:.3} of its estimate; alike by {:.2}",
                    if near.configuration.is_empty() { "the defaults" } else { &near.configuration },
                    near.microseconds,
                    text_of(&near.sizes),
                    near.ratio,
                    near.likeness
                )?;
            }
        }
        Ok(())
    }
}

impl Why {
    /// A line of the table, with a cell for each contender.
    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        cell: impl Fn(usize, &Contender) -> Option<String>,
    ) -> fmt::Result {
        let mut line = format!("  {name:<NAME$}");
        for (place, contender) in self.contenders.iter().enumerate() {
            let text = cell(place, contender).unwrap_or_else(|| "–".to_string());
            line.push_str(&format!("{text:>NUMBER$}"));
        }
        writeln!(f, "{}", line.trim_end())
    }
}

/// The steps along k of an estimate, with what bounds them.
fn steps(f: &mut fmt::Formatter<'_>, estimate: &Estimate) -> fmt::Result {
    let Some(steps) = &estimate.steps else { return Ok(()) };
    let bound = steps.bound();
    let most = steps.wanted[bound as usize];
    let wants = |resource: &Resource| steps.wanted[*resource as usize];
    let mut others: Vec<Resource> =
        Resource::ALL.into_iter().filter(|r| *r != bound && wants(r) >= ALSO * most).collect();
    others.sort_by(|a, b| wants(b).total_cmp(&wants(a)));
    let others: Vec<String> = others.iter().map(|r| format!("{r} ({:.0})", wants(r))).collect();
    let also = if others.is_empty() { String::new() } else { format!("; then {}", others.join(", ")) };
    writeln!(
        f,
        "  {:.2} tiles one after another × {:.1} steps × {:.0} cycles; a step waits for: {bound} ({most:.0}){also}",
        steps.waves, steps.steps, steps.cycles
    )
}

/// A candidate for people.
fn shown(candidate: &Candidate) -> String {
    if candidate.0.is_empty() { "the defaults".to_string() } else { candidate.to_string() }
}
