//! Mappings in Rust.

use tilewright_layout::SwizzledLayout;
use tilewright_machine::{Memory, Processor};
use tilewright_tile::{Code, Expr, Origin, SymbolId};

use super::TaskBuilder;
use crate::mapping::{
    Attribute, AttributeKind, Callee, Instance, InstanceId, Mapping, Placement, Rasterization, Setting,
    SettingValue,
};
use crate::program::{Inner, LaunchId, LoopId, TaskId, TensorId, VariantId};

impl From<Memory> for Placement {
    fn from(memory: Memory) -> Self {
        Placement::In(memory)
    }
}

/// A value of a tunable.
impl<E: Into<Expr>> From<E> for SettingValue {
    fn from(value: E) -> Self {
        SettingValue::Integer(value.into())
    }
}

/// A mapping under construction.
pub struct MappingBuilder<'a> {
    builder: &'a mut TaskBuilder,
    /// The mapping, with the rows of its own alone.
    mapping: Mapping,
    /// The instances that rows name: the row, the label of a launch, the name, the place.
    callees: Vec<(usize, Option<String>, String, Origin)>,
}

/// A row of a mapping, to which methods add.
pub struct Row<'a, 'b> {
    of: &'a mut MappingBuilder<'b>,
    at: usize,
}

impl<'a> MappingBuilder<'a> {
    pub(super) fn build(
        builder: &'a mut TaskBuilder,
        mapping: Mapping,
        inherited: Vec<Instance>,
        rows: impl FnOnce(&mut MappingBuilder<'_>),
    ) -> Mapping {
        let mut of = MappingBuilder { builder, mapping, callees: Vec::new() };
        rows(&mut of);
        let own = std::mem::replace(&mut of.mapping.instances, inherited);
        let mut merged = of.mapping.clone();
        let at = merged.put(own, |row| of.name(row));
        of.mapping = merged;
        for (row, label, name, span) in std::mem::take(&mut of.callees) {
            let row = at[row];
            let named = |instance: &Instance| of.name(instance) == name;
            let Some(instance) = of.mapping.instances.iter().position(named) else {
                of.builder.error(Code::UnknownName, span, format!("no instance is named `{name}`"));
                continue;
            };
            let launch = match label {
                None => None,
                Some(label) => {
                    let found = of.inner(row).launches.iter().position(|l| l.label.as_ref() == Some(&label));
                    if found.is_none() {
                        let message = format!("no launch has the label `{label}`");
                        of.builder.error(Code::UnknownName, span, message);
                        continue;
                    }
                    found.map(|at| LaunchId(at as u32))
                }
            };
            let callee = Callee { launch, instance: InstanceId(instance as u32), span };
            of.mapping.instances[row].callees.push(callee);
        }
        of.mapping
    }

    fn name(&self, instance: &Instance) -> String {
        let task = &self.builder.tasks[instance.task.index()];
        instance.name.clone().unwrap_or_else(|| task.variant_name(instance.variant))
    }

    /// The body of a row's variant; of a leaf one that has the task's tensors alone.
    fn inner(&self, row: usize) -> Inner {
        let instance = &self.mapping.instances[row];
        self.builder.tasks[instance.task.index()].body(instance.variant).into_owned()
    }

    /// `task.variant …`: a row. A variant that the task does not have is a mistake, for which the first stands in.
    #[track_caller]
    pub fn row<'s>(&'s mut self, task: TaskId, variant: &str) -> Row<'s, 'a> {
        let span = Origin::caller();
        let row = &self.builder.tasks[task.index()];
        let found = row.variant_named(variant);
        if found.is_none() {
            let message = format!("`{}` has no variant `{variant}`", row.name);
            self.builder.error(Code::UnknownName, span, message);
        }
        self.mapping.instances.push(Instance {
            entry: false,
            name: None,
            task,
            variant: found.unwrap_or(VariantId(0)),
            processor: None,
            memories: None,
            tunables: Vec::new(),
            attributes: Vec::new(),
            callees: Vec::new(),
            span,
        });
        let at = self.mapping.instances.len() - 1;
        Row { of: self, at }
    }
}

impl Row<'_, '_> {
    fn instance(&mut self) -> &mut Instance {
        &mut self.of.mapping.instances[self.at]
    }

    /// `entry`: a kernel begins with it.
    pub fn entry(mut self) -> Self {
        self.instance().entry = true;
        self
    }

    /// `name = …`: a name for the instance.
    pub fn named(mut self, name: &str) -> Self {
        self.instance().name = Some(name.to_string());
        self
    }

    /// `on processor`.
    pub fn on(mut self, processor: Processor) -> Self {
        self.instance().processor = Some(processor);
        self
    }

    /// `(global, none, …)`: a memory for each formal that is a tensor.
    pub fn memories<P: Into<Placement>>(mut self, memories: impl IntoIterator<Item = P>) -> Self {
        self.instance().memories = Some(memories.into_iter().map(Into::into).collect());
        self
    }

    /// `{ name = value }`: the value of a tunable.
    #[track_caller]
    pub fn set(self, name: &str, value: impl Into<SettingValue>) -> Self {
        self.setting(name, value.into(), Origin::caller())
    }

    /// `{ name = processor }`.
    #[track_caller]
    pub fn set_processor(self, name: &str, processor: Processor) -> Self {
        self.setting(name, SettingValue::Processor(processor), Origin::caller())
    }

    fn setting(mut self, name: &str, value: SettingValue, span: Origin) -> Self {
        let symbols = &self.of.builder.symbols;
        let tunables: Vec<SymbolId> = self.of.inner(self.at).tunables().collect();
        let found = tunables.into_iter().find(|id| symbols[id.0 as usize].name == name);
        match found {
            Some(tunable) => self.instance().tunables.push(Setting { tunable, value, span }),
            None => {
                let message = format!("the variant has no tunable `{name}`");
                self.of.builder.error(Code::Tunable, span, message);
            }
        }
        self
    }

    /// An attribute.
    #[track_caller]
    pub fn attribute(mut self, kind: AttributeKind) -> Self {
        let span = Origin::caller();
        self.instance().attributes.push(Attribute { kind, span });
        self
    }

    /// `warpspecialize(warpgroups)`.
    #[track_caller]
    pub fn warpspecialize(self, warpgroups: impl Into<Expr>) -> Self {
        self.attribute(AttributeKind::Warpspecialize { warpgroups: Some(warpgroups.into()), store: false })
    }

    /// `pipeline(stages)`.
    #[track_caller]
    pub fn pipeline(self, stages: impl Into<Expr>) -> Self {
        let stages = stages.into();
        self.attribute(AttributeKind::Pipeline { head: None, least: stages.clone(), most: stages })
    }

    /// `persistent(grouped(rows, serpentine))`.
    #[track_caller]
    pub fn persistent(self, rows: impl Into<Expr>, serpentine: bool) -> Self {
        let order = Rasterization::Grouped { rows: rows.into(), serpentine };
        self.attribute(AttributeKind::Persistent(Some(order)))
    }

    /// `order(grouped(rows, serpentine))`.
    #[track_caller]
    pub fn order(self, rows: impl Into<Expr>, serpentine: bool) -> Self {
        self.attribute(AttributeKind::Order(Rasterization::Grouped { rows: rows.into(), serpentine }))
    }

    /// `late(label)`.
    #[track_caller]
    pub fn late(self, label: &str) -> Self {
        let span = Origin::caller();
        let launches = self.of.inner(self.at).launches;
        match launches.iter().position(|launch| launch.label.as_deref() == Some(label)) {
            Some(at) => self.attribute(AttributeKind::Late { launch: LaunchId(at as u32), head: None }),
            None => {
                let message = format!("no launch of the variant has the label `{label}`");
                self.of.builder.error(Code::Late, span, message);
                self
            }
        }
    }

    /// `layout(tensor = layout)`: the layout of the tensor's place.
    #[track_caller]
    pub fn layout(self, tensor: &str, layout: SwizzledLayout) -> Self {
        let span = Origin::caller();
        match self.of.inner(self.at).tensors.iter().position(|row| row.name == tensor) {
            Some(at) => self.attribute(AttributeKind::Layout { tensor: TensorId(at as u32), layout }),
            None => {
                let message = format!("the variant has no tensor `{tensor}`");
                self.of.builder.error(Code::UnknownName, span, message);
                self
            }
        }
    }

    /// The loop of the variant whose counters have this one; for attributes that name a loop.
    #[track_caller]
    pub fn loop_of(&mut self, counter: &str) -> LoopId {
        let span = Origin::caller();
        let symbols = &self.of.builder.symbols;
        let has = |id: &SymbolId| symbols[id.0 as usize].name == counter;
        let found = self.of.inner(self.at).loops.iter().position(|head| head.counters.iter().any(has));
        if found.is_none() {
            let message = format!("the variant has no loop with the counter `{counter}`");
            self.of.builder.error(Code::UnknownName, span, message);
        }
        LoopId(found.unwrap_or(0) as u32)
    }

    /// `-> name`: the instance to which launches of its task go.
    #[track_caller]
    pub fn calls(self, name: &str) -> Self {
        self.of.callees.push((self.at, None, name.to_string(), Origin::caller()));
        self
    }

    /// `-> label = name`: the instance to which the launch of a label goes.
    #[track_caller]
    pub fn calls_for(self, label: &str, name: &str) -> Self {
        self.of.callees.push((self.at, Some(label.to_string()), name.to_string(), Origin::caller()));
        self
    }
}
