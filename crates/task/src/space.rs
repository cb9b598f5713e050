//! Spaces of mappings: the choices that a search has, and the mapping that each assignment of them makes.

use tilewright_tile::{Constants, Diagnostic, Expr, Origin};

use crate::environment::Environment;
use crate::mapping::{
    Attribute, AttributeKind, Choice, Dimension, Instance, InstanceId, Mapping, Rasterization, Setting,
    SettingValue, Value,
};
use crate::program::{Inner, LaunchId, LoopKind, Program};

/// A choice of a search, with the values that it may take.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// The name, unique in the mapping: `gemm.host.U`, `gemm.block.pipeline`.
    pub name: String,
    /// The instance.
    pub instance: InstanceId,
    /// The choice.
    pub choice: Choice,
    /// The values, in rising order where nobody has written them down. Of [`Choice::Late`], 0 is `none`, and n the launch n − 1 of the variant.
    pub values: Vec<i64>,
    /// The value that the mapping itself has; nothing where it leaves it to a default.
    pub own: Option<i64>,
}

/// The stages of a pipeline that a search tries.
const STAGES: [i64; 6] = [2, 3, 4, 5, 6, 8];
/// The rows of a group of tiles that a search tries.
const ROWS: [i64; 5] = [1, 4, 8, 12, 16];
/// The factors by which a search changes a tunable.
const FACTORS: [(i64, i64); 7] = [(1, 4), (1, 2), (3, 4), (1, 1), (3, 2), (2, 1), (4, 1)];

impl Axis {
    /// The value in words: a number, or of [`Choice::Late`] the label of a launch.
    pub fn shown(&self, program: &Program, mapping: &Mapping, value: i64) -> String {
        match (self.choice, usize::try_from(value - 1)) {
            (Choice::Late, Err(_)) => "none".to_string(),
            (Choice::Late, Ok(at)) => {
                let inner = inner(program, mapping.instance(self.instance));
                let launch = inner.and_then(|inner| inner.launches.get(at));
                launch.and_then(|launch| launch.label.clone()).unwrap_or_else(|| "none".to_string())
            }
            _ => value.to_string(),
        }
    }

    /// Gives an instance a value of this choice.
    fn apply(&self, instance: &mut Instance, value: i64) {
        let number = Expr::Int(value);
        let span = instance.span;
        let kind = match self.choice {
            Choice::Tunable(tunable) => {
                let value = SettingValue::Integer(number);
                match instance.tunables.iter_mut().find(|setting| setting.tunable == tunable) {
                    Some(setting) => setting.value = value,
                    None => instance.tunables.push(Setting { tunable, value, span }),
                }
                return;
            }
            Choice::Late => {
                // The loop that the mapping names stays with its launch.
                let named = instance.attributes.iter().find_map(|attribute| match attribute.kind {
                    AttributeKind::Late { launch, head } if i64::from(launch.0) + 1 == value => head,
                    _ => None,
                });
                instance.attributes.retain(|attribute| !matches!(attribute.kind, AttributeKind::Late { .. }));
                if let Ok(at) = u32::try_from(value - 1) {
                    let kind = AttributeKind::Late { launch: LaunchId(at), head: named };
                    instance.attributes.push(Attribute { kind, span });
                }
                return;
            }
            Choice::Pipeline => AttributeKind::Pipeline { head: None, least: number.clone(), most: number },
            Choice::InFlight => AttributeKind::InFlight(number),
            Choice::Warps => AttributeKind::Warps(number),
            Choice::Warpgroups => AttributeKind::Warpspecialize { warpgroups: Some(number), store: false },
            Choice::Rows => {
                AttributeKind::Persistent(Some(Rasterization::Grouped { rows: number, serpentine: true }))
            }
        };
        match instance.attributes.iter_mut().find(|attribute| has(self.choice, &attribute.kind)) {
            Some(attribute) => replace(&mut attribute.kind, kind),
            None => instance.attributes.push(Attribute { kind, span }),
        }
    }
}

/// True of the attribute that a choice changes.
fn has(choice: Choice, kind: &AttributeKind) -> bool {
    matches!(
        (choice, kind),
        (Choice::Pipeline, AttributeKind::Pipeline { head: None, .. })
            | (Choice::InFlight, AttributeKind::InFlight(_))
            | (Choice::Warps, AttributeKind::Warps(_))
            | (Choice::Warpgroups, AttributeKind::Warpspecialize { .. })
            | (Choice::Rows, AttributeKind::Persistent(_) | AttributeKind::Order(_))
            | (Choice::Late, AttributeKind::Late { .. })
    )
}

/// Changes the number of an attribute, and nothing else of it.
fn replace(old: &mut AttributeKind, new: AttributeKind) {
    match (old, new) {
        (
            AttributeKind::Warpspecialize { warpgroups, .. },
            AttributeKind::Warpspecialize { warpgroups: number, .. },
        ) => *warpgroups = number,
        (
            AttributeKind::Persistent(Some(Rasterization::Grouped { rows, .. })),
            AttributeKind::Persistent(Some(Rasterization::Grouped { rows: number, .. })),
        )
        | (
            AttributeKind::Order(Rasterization::Grouped { rows, .. }),
            AttributeKind::Persistent(Some(Rasterization::Grouped { rows: number, .. })),
        ) => *rows = number,
        (AttributeKind::Order(order), AttributeKind::Persistent(Some(new))) => *order = new,
        (old, new) => *old = new,
    }
}

/// The body of an instance that launches; nothing of a leaf.
fn inner<'a>(program: &'a Program, instance: &Instance) -> Option<&'a Inner> {
    program.task(instance.task).variant(instance.variant).inner()
}

/// The axes of a mapping: those of its `space` attributes; where it has none, of every number in its rows.
///
/// # Errors
///
/// `bad-value`: a number of a row without a value.
pub fn axes(program: &Program, mapping: &Mapping, constants: &Constants) -> Result<Vec<Axis>, Diagnostic> {
    let environment = Environment::of(program, constants)?;
    let reader = Reader { program, mapping, environment: &environment };
    let declared = reader.declared()?;
    if declared.is_empty() { reader.derived() } else { Ok(declared) }
}

/// The mapping with a value for some of its axes, without `space` attributes.
pub fn with<'a>(mapping: &Mapping, values: impl IntoIterator<Item = (&'a Axis, i64)>) -> Mapping {
    let mut changed = mapping.clone();
    for instance in &mut changed.instances {
        instance.attributes.retain(|attribute| !matches!(attribute.kind, AttributeKind::Space(_)));
    }
    for (axis, value) in values {
        axis.apply(&mut changed.instances[axis.instance.index()], value);
    }
    changed
}

/// A mapping whose numbers are read.
struct Reader<'a> {
    program: &'a Program,
    mapping: &'a Mapping,
    environment: &'a Environment,
}

impl Reader<'_> {
    /// The axes that `space` attributes declare.
    fn declared(&self) -> Result<Vec<Axis>, Diagnostic> {
        let mut axes = Vec::new();
        for (id, instance) in self.mapping.instances() {
            for attribute in &instance.attributes {
                let AttributeKind::Space(dimensions) = &attribute.kind else { continue };
                for dimension in dimensions {
                    axes.push(self.axis(id, dimension.choice, numbers(dimension))?);
                }
            }
        }
        Ok(axes)
    }

    /// An axis for every number of a row.
    fn derived(&self) -> Result<Vec<Axis>, Diagnostic> {
        let mut axes = Vec::new();
        for (id, instance) in self.mapping.instances() {
            let Some(inner) = inner(self.program, instance) else { continue };
            for setting in &instance.tunables {
                if matches!(setting.value, SettingValue::Integer(_)) {
                    axes.push(self.axis(id, Choice::Tunable(setting.tunable), Vec::new())?);
                }
            }
            let ordered = inner.loops.iter().any(|head| head.kind == LoopKind::Srange);
            for choice in Choice::ATTRIBUTES {
                let present = instance.attributes.iter().any(|attribute| has(choice, &attribute.kind));
                let values = match choice {
                    Choice::Pipeline if ordered && present => STAGES.to_vec(),
                    Choice::InFlight if present => vec![0, 1],
                    Choice::Warps if present => vec![4, 8],
                    Choice::Warpgroups if present => vec![1, 2, 3],
                    Choice::Rows if present => ROWS.to_vec(),
                    Choice::Late => {
                        let labelled = inner.launches.iter().enumerate();
                        let labelled = labelled.filter(|(_, launch)| launch.label.is_some());
                        let launches: Vec<i64> = labelled.map(|(at, _)| at as i64 + 1).collect();
                        if launches.is_empty() { Vec::new() } else { [vec![0], launches].concat() }
                    }
                    _ => continue,
                };
                axes.push(self.axis(id, choice, values)?);
            }
        }
        axes.retain(|axis| axis.values.len() > 1);
        Ok(axes)
    }

    /// The axis of a choice. Without values it takes multiples of its own.
    fn axis(&self, id: InstanceId, choice: Choice, mut values: Vec<i64>) -> Result<Axis, Diagnostic> {
        let instance = self.mapping.instance(id);
        let own = self.own(instance, choice)?;
        if let (true, Some(own)) = (values.is_empty(), own) {
            let scaled = FACTORS.iter().filter(|(_, by)| own % by == 0).map(|(factor, by)| own / by * factor);
            // Extents of tiles are multiples of 8; other numbers are counts of something that is there.
            values = scaled.filter(|value| *value == own || (own % 8 == 0 && value % 8 == 0)).collect();
            values.sort_unstable();
            values.dedup();
        }
        let word = match choice {
            Choice::Tunable(symbol) => self.program.symbol(symbol).name.as_str(),
            _ => choice.word().unwrap_or_default(),
        };
        let name = format!("{}.{word}", self.program.instance_name(instance));
        Ok(Axis { name, instance: id, choice, values, own })
    }

    /// The value that a row has for a choice.
    fn own(&self, instance: &Instance, choice: Choice) -> Result<Option<i64>, Diagnostic> {
        let value = |expr: &Expr, span: Origin| self.environment.value(self.program, expr, span).map(Some);
        if let Choice::Tunable(tunable) = choice {
            let setting = instance.tunables.iter().find(|setting| setting.tunable == tunable);
            return match setting.map(|setting| (&setting.value, setting.span)) {
                Some((SettingValue::Integer(number), span)) => value(number, span),
                _ => Ok(None),
            };
        }
        let attribute = instance.attributes.iter().find(|attribute| has(choice, &attribute.kind));
        match attribute.map(|attribute| (&attribute.kind, attribute.span)) {
            Some((AttributeKind::Pipeline { most: number, .. }, span))
            | Some((AttributeKind::InFlight(number) | AttributeKind::Warps(number), span))
            | Some((AttributeKind::Warpspecialize { warpgroups: Some(number), .. }, span))
            | Some((AttributeKind::Persistent(Some(Rasterization::Grouped { rows: number, .. })), span))
            | Some((AttributeKind::Order(Rasterization::Grouped { rows: number, .. }), span)) => {
                value(number, span)
            }
            Some((AttributeKind::Late { launch, .. }, _)) => Ok(Some(i64::from(launch.0) + 1)),
            None if choice == Choice::Late => Ok(Some(0)),
            _ => Ok(None),
        }
    }
}

/// The values of a dimension, each once, in the order of the text.
fn numbers(dimension: &Dimension) -> Vec<i64> {
    let mut all = Vec::new();
    for value in &dimension.values {
        match *value {
            Value::Launch(launch) => all.push(launch.map_or(0, |launch| i64::from(launch.0) + 1)),
            Value::Integers { first, last, step } => {
                all.extend((first..=last).step_by(usize::try_from(step).unwrap_or(1).max(1)));
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|value| seen.insert(*value));
    all
}
