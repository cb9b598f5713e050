//! Tuning mappings of task programs: candidates are the mappings of a space ([`tilewright_task::space`]), of which few are compiled. From the
//! file's own mapping on, those whose estimates are least are varied, a number or two at a time.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_task::mapping::Choice;
use tilewright_task::space::{Axis, axes, with};
use tilewright_task::{Mapping, Program as TaskProgram, lower, verify};
use tilewright_tile::{Constants, Diagnostics, Program, Verified};

/// Mappings that are varied in one round.
const BEAM: usize = 3;
/// Mappings that are compiled at most, where a space is too large to compile all.
const COMPILED: usize = 192;
/// Mappings that the front end or synthesis may refuse besides.
const REFUSED: usize = 1024;

/// A mapping with the numbers that a search may change.
#[derive(Clone, Debug)]
pub(crate) struct MappingSpace {
    program: TaskProgram,
    mapping: Mapping,
    axes: Vec<Axis>,
    kernels: Vec<Program>,
}

impl MappingSpace {
    /// The space of a mapping of a verified program.
    ///
    /// # Errors
    ///
    /// Refusals of the front end about the mapping itself.
    pub fn new(program: &TaskProgram, mapping: &Mapping) -> Result<Self, Diagnostics> {
        let axes = axes(program, mapping, &Constants::new()).map_err(Diagnostics::from)?;
        let kernels = programs(lower(program, mapping)?);
        let mut program = program.clone();
        program.mappings = vec![mapping.clone()];
        Ok(MappingSpace { program, mapping: mapping.clone(), axes, kernels })
    }

    /// The numbers by name, with their values.
    pub fn space(&self) -> Vec<(String, Vec<i64>)> {
        self.axes.iter().map(|axis| (axis.name.clone(), axis.values.clone())).collect()
    }

    /// The kernels of the mapping itself.
    pub fn kernels(&self) -> &[Program] {
        &self.kernels
    }

    /// The program with this mapping alone, printed.
    pub fn text(&self) -> String {
        self.program.to_string()
    }

    /// The mapping with these numbers.
    fn mapping(&self, values: &Constants) -> Mapping {
        let given = self.axes.iter().filter_map(|axis| Some((axis, *values.get(&axis.name)?)));
        with(&self.mapping, given)
    }

    /// The mapping with these numbers as a file has it.
    pub fn mapping_text(&self, values: &Constants) -> String {
        self.program.mapping(&self.mapping(values))
    }

    /// Numbers in words: `gemm.host.U=128 gemm.late.late=out`.
    pub fn shown(&self, values: &Constants) -> String {
        let of = |name: &String| self.axes.iter().find(|axis| axis.name == *name);
        let word = |(name, value): (&String, &i64)| {
            let value = of(name).map(|axis| axis.shown(&self.program, &self.mapping, *value));
            format!("{name}={}", value.unwrap_or_default())
        };
        values.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// The tile programs of the mapping with these numbers.
    ///
    /// # Errors
    ///
    /// Refusals of the front end, which takes milliseconds, and no synthesis.
    pub fn lowered(&self, values: &Constants) -> Result<Vec<Program>, Diagnostics> {
        let mut program = self.program.clone();
        program.mappings = vec![self.mapping(values)];
        verify(&program, &Constants::new())?;
        Ok(programs(lower(&program, &program.mappings[0])?))
    }

    /// The value of a number under an assignment.
    fn value(&self, axis: &Axis, values: &Constants) -> Option<i64> {
        values.get(&axis.name).copied().or(axis.own)
    }

    /// Assignments that differ from one in a number; and in two, a step each, where both decide how much a block computes, or who computes it.
    pub fn neighbours(&self, values: &Constants) -> Vec<Constants> {
        let mut found = Vec::new();
        let changed = |with: &[(&Axis, i64)]| {
            let mut changed = values.clone();
            for (axis, value) in with {
                match axis.own == Some(*value) {
                    true => changed.remove(&axis.name),
                    false => changed.insert(axis.name.clone(), *value),
                };
            }
            changed
        };
        for axis in &self.axes {
            let own = self.value(axis, values);
            let others = axis.values.iter().filter(|value| Some(**value) != own);
            found.extend(others.map(|value| changed(&[(axis, *value)])));
        }
        let steps: Vec<(&Axis, BTreeSet<i64>)> = self
            .axes
            .iter()
            .filter(|axis| matches!(axis.choice, Choice::Tunable(_) | Choice::Warpgroups | Choice::Pipeline))
            .map(|axis| (axis, self.steps(axis, values)))
            .collect();
        for (at, (first, here)) in steps.iter().enumerate() {
            for (second, there) in &steps[at + 1..] {
                let pairs = here.iter().flat_map(|x| there.iter().map(move |y| (*x, *y)));
                found.extend(pairs.map(|(x, y)| changed(&[(first, x), (second, y)])));
            }
        }
        found
    }

    /// The next values below and above, and half and twice the value.
    fn steps(&self, axis: &Axis, values: &Constants) -> BTreeSet<i64> {
        let Some(own) = self.value(axis, values) else { return BTreeSet::new() };
        let below = axis.values.iter().copied().filter(|value| *value < own).max();
        let above = axis.values.iter().copied().filter(|value| *value > own).min();
        let scaled = axis.values.iter().copied().filter(|value| *value == 2 * own || 2 * *value == own);
        below.into_iter().chain(above).chain(scaled).collect()
    }

    /// Climbs from the mapping itself: varies those whose estimates are least, until none of the best is left to vary or enough are compiled.
    /// `compile` gives the estimate of each of a list of assignments; of those that are refused none.
    pub fn climb(&self, mut compile: impl FnMut(Vec<Constants>) -> Vec<(Constants, Option<f64>)>) {
        let mut known: BTreeMap<Constants, Option<f64>> = BTreeMap::new();
        let mut varied: BTreeSet<Constants> = BTreeSet::new();
        known.extend(compile(vec![Constants::new()]));
        loop {
            let able = known.values().flatten().count();
            if able >= COMPILED || known.len() - able >= REFUSED {
                break;
            }
            let mut best: Vec<(f64, &Constants)> =
                known.iter().filter_map(|(values, estimate)| Some(((*estimate)?, values))).collect();
            best.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
            let next: Vec<Constants> = best
                .iter()
                .take(2 * BEAM)
                .map(|(_, values)| (*values).clone())
                .filter(|values| !varied.contains(values))
                .take(BEAM)
                .collect();
            if next.is_empty() {
                break;
            }
            let mut fresh: BTreeSet<Constants> = BTreeSet::new();
            for values in next {
                fresh.extend(self.neighbours(&values).into_iter().filter(|other| !known.contains_key(other)));
                varied.insert(values);
            }
            known.extend(compile(fresh.into_iter().collect()));
        }
    }
}

fn programs(kernels: Vec<Verified>) -> Vec<Program> {
    kernels.iter().map(|kernel| kernel.program().clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(text: &str) -> MappingSpace {
        let program = tilewright_task::parse(text).unwrap();
        MappingSpace::new(&program, &program.mappings[0]).unwrap()
    }

    #[test]
    fn a_climb_finds_the_least_estimate_and_ends() {
        let text = include_str!("../../../examples/tasks/gemm.task");
        let space = space(text);
        let value = |values: &Constants, name: &str, own: i64| values.get(name).copied().unwrap_or(own);
        // Least at a tile of 256 × 128, which is two numbers from the mapping's own, and with a deeper pipeline.
        let estimate = |values: &Constants| {
            let (u, v) = (value(values, "gemm.host.U", 128), value(values, "gemm.host.V", 256));
            let deep = value(values, "gemm.block.pipeline", 4);
            let refused = u * v != 1 << 15;
            (!refused).then_some((u - 256).abs() as f64 + (deep - 6).abs() as f64)
        };
        let mut met = BTreeMap::new();
        space.climb(|wanted| {
            let said: Vec<_> = wanted.into_iter().map(|values| (values.clone(), estimate(&values))).collect();
            for (values, _) in &said {
                assert!(met.insert(values.clone(), estimate(values)).is_none(), "{values:?} twice");
            }
            said
        });
        let best = met.iter().filter_map(|(values, estimate)| Some(((*estimate)?, values)));
        let best = best.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        assert_eq!(best.0, 0.0, "{:?}", best.1);
        assert_eq!(
            (best.1["gemm.host.U"], best.1["gemm.host.V"], best.1["gemm.block.pipeline"]),
            (256, 128, 6)
        );
        assert!(met.len() <= COMPILED + REFUSED + 3 * 400, "{}", met.len());
    }
}
