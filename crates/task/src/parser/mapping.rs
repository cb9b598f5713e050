//! Mappings: a row an instance.

use std::collections::BTreeMap;

use tilewright_machine::{Arch, Memory, Processor};
use tilewright_tile::{Code, Diagnostic, Diagnostics, Expr, Span, SymbolId, nearest};

use super::{Reader, Res};
use crate::mapping::{
    Attribute, AttributeKind, Callee, Choice, Dimension, Instance, InstanceId, Mapping, Placement,
    Rasterization, Setting, SettingValue, Value,
};
use crate::program::{Inner, LaunchId, LoopId, SymbolKind, TaskId, TensorId, VariantId};

/// The words of attributes.
const ATTRIBUTES: [&str; 13] = [
    "warpspecialize",
    "pipeline",
    "shared",
    "warps",
    "persistent",
    "order",
    "cluster",
    "late",
    "in_flight",
    "local",
    "layout",
    "registers",
    "space",
];

/// The instances that a row names, read before all rows are known.
struct Named {
    label: Option<(String, Span)>,
    /// Its name, or its task and variant.
    instance: (String, Option<String>),
    span: Span,
}

impl Reader<'_> {
    /// `name for arch { rows }`, `name for arch like other { rows }`; the word is passed.
    pub(super) fn mapping(&mut self) -> Res<()> {
        const EXAMPLE: &str =
            "e.g. `mapping h200 for sm_90a { entry gemm.host on host(global, global, global) }`";
        let from = self.cursor.position();
        let (name, span) = match self.cursor.name("the mapping's name") {
            Ok(read) => read,
            Err(errors) => return self.cursor.keep(super::with_help(errors, EXAMPLE), from),
        };
        if let Some(first) = self.mappings.iter().find(|mapping| mapping.name == name) {
            let message = format!("two mappings are named `{name}`");
            let error =
                Diagnostic::new(Code::DuplicateName, span, message).related(first.span, "the first one");
            self.cursor.report(error)?;
        }
        let head = self.head(EXAMPLE);
        let (arch, instances) = match head {
            Ok(head) => head,
            Err(errors) => return self.cursor.keep(errors, from),
        };
        let mut mapping = Mapping { name: name.to_string(), arch, instances, span: span.into() };
        let (mut rows, mut named) = (Vec::new(), Vec::new());
        let close = self.cursor.closing();
        self.cursor.expect("{", "and the instances")?;
        loop {
            self.cursor.skip_newlines();
            if self.cursor.eat("}") {
                break;
            }
            let from = self.cursor.position();
            match self.instance() {
                Ok((instance, callees)) => {
                    rows.push(instance);
                    named.push(callees);
                }
                Err(errors) => {
                    self.cursor.keep(errors, from)?;
                    if self.cursor.position() == from || self.cursor.position() > close {
                        self.cursor.go_to(close);
                    }
                }
            }
        }
        let at = mapping.put(rows, |row| self.instance_name(row));
        self.callees(&mut mapping, at.into_iter().zip(named).collect())?;
        self.mappings.push(mapping);
        Ok(())
    }

    /// The name that a row goes by.
    fn instance_name(&self, row: &Instance) -> String {
        let task = &self.tasks[row.task.index()];
        row.name.clone().unwrap_or_else(|| task.variant_name(row.variant))
    }

    /// The architecture, and the rows of the mapping that this one is like.
    fn head(&mut self, example: &str) -> Res<(Arch, Vec<Instance>)> {
        if !self.cursor.eat_word("for") {
            return Err(self.cursor.unexpected("`for` and an architecture").help(example).into());
        }
        let (arch, span) = self.cursor.word("an architecture")?;
        let arch = arch.parse().map_err(|error: tilewright_machine::UnknownArch| {
            Diagnostic::new(Code::UnsupportedArchitecture, span, error.to_string())
        })?;
        let mut rows = Vec::new();
        if self.cursor.eat_word("like") {
            let (name, span) = self.cursor.name("the name of a mapping")?;
            match self.mappings.iter().find(|mapping| mapping.name == name) {
                Some(mapping) => rows.clone_from(&mapping.instances),
                None => {
                    let message = format!("no mapping above is named `{name}`");
                    let error = Diagnostic::new(Code::UnknownName, span, message);
                    let near = nearest(name, self.mappings.iter().map(|mapping| mapping.name.as_str()));
                    self.cursor.report(match near {
                        Some(near) => error.help(format!("did you mean `{near}`?")),
                        None => error.help("a mapping stands before those that are like it"),
                    })?;
                }
            }
        }
        self.cursor.skip_newlines();
        if !self.cursor.at("{") {
            return Err(self.cursor.unexpected("`{` and the instances").help(example).into());
        }
        Ok((arch, rows))
    }

    /// A row; the instances that it names.
    fn instance(&mut self) -> Res<(Instance, Vec<Named>)> {
        let start = self.cursor.span();
        let entry = self.cursor.peek_word() == Some("entry")
            && !self.cursor.is_ahead(1, "=")
            && !self.cursor.is_ahead(1, ".");
        if entry {
            self.cursor.eat_word("entry");
        }
        let mut name = None;
        if self.cursor.is_ahead(1, "=") {
            name = Some(self.cursor.name("the instance's name")?.0.to_string());
            self.cursor.expect("=", "after the instance's name")?;
        }
        let (task, variant) = self.task_and_variant()?;
        let mut processor = None;
        if self.cursor.eat_word("on") {
            let (word, span) = self.cursor.word("a processor")?;
            let level: Processor = word.parse().map_err(|error: tilewright_machine::UnknownProcessor| {
                let error_ = Diagnostic::new(Code::UnknownName, span, error.to_string());
                match nearest(word, Processor::ALL.map(Processor::name)) {
                    Some(near) => error_.help(format!("did you mean `{near}`?")),
                    None => error_,
                }
            })?;
            processor = Some(level);
        }
        let mut memories = None;
        if self.cursor.eat("(") {
            let mut list = Vec::new();
            loop {
                self.cursor.skip_newlines();
                if self.cursor.eat(")") {
                    break;
                }
                list.push(self.memory()?);
                if !self.cursor.eat(",") && !self.cursor.at(")") {
                    return Err(self.cursor.unexpected("`)` or `,`").into());
                }
            }
            memories = Some(list);
        }
        let inner = self.tasks[task.index()].body(variant).into_owned();
        let mut tunables = Vec::new();
        if self.cursor.eat("{") {
            loop {
                self.cursor.skip_newlines();
                if self.cursor.eat("}") {
                    break;
                }
                tunables.push(self.setting(task, variant, &inner)?);
                self.cursor.skip_newlines();
                if !self.cursor.eat(",") && !self.cursor.at("}") {
                    return Err(self.cursor.unexpected("`}` or `,`").into());
                }
            }
        }
        let mut attributes = Vec::new();
        while let Some(word) = self.cursor.peek_word() {
            let start = self.cursor.span();
            let kind = self.attribute(word, &inner)?;
            attributes.push(Attribute { kind, span: self.cursor.since(start).into() });
        }
        let mut callees = Vec::new();
        if self.cursor.eat("->") {
            loop {
                self.cursor.skip_newlines();
                callees.push(self.callee()?);
                if !self.cursor.eat(",") {
                    break;
                }
            }
        }
        let span = self.cursor.since(start);
        self.cursor.end_of_statement().map_err(|errors| {
            super::with_help(
                errors,
                "a row is `task.variant on LEVEL (MEMORIES) { TUNABLES } ATTRIBUTES -> CALLEES`",
            )
        })?;
        let callees_read = Vec::new();
        let instance = Instance {
            entry,
            name,
            task,
            variant,
            processor,
            memories,
            tunables,
            attributes,
            callees: callees_read,
            span: span.into(),
        };
        Ok((instance, callees))
    }

    /// `gemm.host`.
    fn task_and_variant(&mut self) -> Res<(TaskId, VariantId)> {
        let (name, span) = self.cursor.word("a task")?;
        let Some(id) = self.tasks.iter().position(|task| task.name == name) else {
            let error = Diagnostic::new(Code::UnknownName, span, format!("no task is named `{name}`"));
            let near = nearest(name, self.tasks.iter().map(|task| task.name.as_str()));
            return Err(near
                .map_or(error.clone(), |near| error.help(format!("did you mean `{near}`?")))
                .into());
        };
        self.cursor.expect(".", "and a variant of the task")?;
        if self.broken.contains(&TaskId(id as u32)) {
            // What is wrong is told where the task is declared.
            return Err(Diagnostics(Vec::new()));
        }
        let (variant, span) = self.cursor.word("a variant")?;
        let task = &self.tasks[id];
        let Some(variant) = task.variant_named(variant) else {
            let message = format!("`{name}` has no variant `{variant}`");
            let error = Diagnostic::new(Code::UnknownName, span, message).related(task.span, "declared here");
            let names: Vec<&str> = task.variants.iter().map(|variant| variant.name.as_str()).collect();
            return Err(error.help(format!("it has {}", names.join(", "))).into());
        };
        Ok((TaskId(id as u32), variant))
    }

    fn memory(&mut self) -> Res<Placement> {
        let (word, span) = self.cursor.word("a memory, or `none`")?;
        Ok(match word {
            "none" => Placement::None,
            "global" => Placement::In(Memory::Global),
            "shared" => Placement::In(Memory::Shared),
            "register" => Placement::In(Memory::Register),
            other => {
                let names = ["none", "global", "shared", "register"];
                let message = format!("there is no memory `{other}`; there are {}", names.join(", "));
                let error = Diagnostic::new(Code::UnknownName, span, message);
                return Err(match nearest(other, names) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error,
                }
                .into());
            }
        })
    }

    /// `U = 128`, `PROC = warp`.
    fn setting(&mut self, task: TaskId, variant: VariantId, inner: &Inner) -> Res<Setting> {
        let (name, span) = self.cursor.name("a tunable")?;
        let tunable = self.tunable(name, span, (task, variant), inner)?;
        self.cursor.expect("=", "and the tunable's value")?;
        let start = self.cursor.span();
        let value = match self.kinds[tunable.0 as usize] {
            SymbolKind::TunableProcessor => {
                let (word, span) = self.cursor.word("a processor")?;
                SettingValue::Processor(word.parse().map_err(
                    |error: tilewright_machine::UnknownProcessor| {
                        Diagnostic::new(Code::UnknownName, span, error.to_string())
                    },
                )?)
            }
            _ => SettingValue::Integer(self.cursor.expr()?),
        };
        Ok(Setting { tunable, value, span: self.cursor.since(start).into() })
    }

    fn tunable(
        &self,
        name: &str,
        span: Span,
        (task, variant): (TaskId, VariantId),
        inner: &Inner,
    ) -> Res<SymbolId> {
        let symbols = self.cursor.symbols();
        let names: Vec<(&str, SymbolId)> =
            inner.tunables().map(|id| (symbols[id.0 as usize].name.as_str(), id)).collect();
        if let Some((_, id)) = names.iter().find(|(known, _)| *known == name) {
            return Ok(*id);
        }
        let task = &self.tasks[task.index()];
        let variant = task.variant(variant);
        let message = format!("`{}.{}` has no tunable `{name}`", task.name, variant.name);
        let error = Diagnostic::new(Code::Tunable, span, message).related(variant.span, "declared here");
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        Err(match names.is_empty() {
            true => error.help("it has none"),
            false => error.help(format!("it has {}", names.join(", "))),
        }
        .into())
    }

    // Attributes.

    fn attribute(&mut self, word: &str, inner: &Inner) -> Res<AttributeKind> {
        let span = self.cursor.span();
        if !ATTRIBUTES.contains(&word) {
            let error = Diagnostic::new(Code::Syntax, span, format!("there is no attribute `{word}`"));
            return Err(match nearest(word, ATTRIBUTES) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help(format!("there are {}", ATTRIBUTES.join(", "))),
            }
            .into());
        }
        self.cursor.eat_word(word);
        Ok(match word {
            "warpspecialize" => self.warpspecialize()?,
            "pipeline" => self.pipeline(inner)?,
            "shared" => {
                self.cursor.expect("<=", "and a number of bytes, as in `shared <= 232448`")?;
                AttributeKind::Shared(self.cursor.expr()?)
            }
            "warps" => AttributeKind::Warps(self.one_integer()?),
            "in_flight" => AttributeKind::InFlight(self.one_integer()?),
            "persistent" if self.cursor.eat("(") => AttributeKind::Persistent(Some(self.rasterization()?)),
            "persistent" => AttributeKind::Persistent(None),
            "order" => {
                self.cursor.expect("(", "and a rasterization order, as in `order(grouped(16))`")?;
                AttributeKind::Order(self.rasterization()?)
            }
            "cluster" => {
                self.cursor.expect("(", "and a counter, as in `cluster(i = 2)`")?;
                let (name, span) = self.cursor.name("a counter")?;
                let symbols = self.cursor.symbols();
                let counters = inner.loops.iter().flat_map(|head| &head.counters);
                let found: Vec<SymbolId> =
                    counters.copied().filter(|id| symbols[id.0 as usize].name == name).collect();
                let counter = self.one_of(&found, name, span, "counter")?;
                self.cursor.expect("=", "and the number of blocks")?;
                let blocks = self.cursor.expr()?;
                self.cursor.expect(")", "after the number of blocks")?;
                AttributeKind::Cluster { counter, blocks }
            }
            "late" => {
                self.cursor.expect("(", "and the label of a launch, as in `late(out)`")?;
                let launch = self.labelled(inner)?;
                let head = if self.cursor.eat(",") { Some(self.loop_named(inner)?) } else { None };
                self.cursor.expect(")", "after the launch")?;
                AttributeKind::Late { launch, head }
            }
            "local" => {
                self.cursor.expect("(", "and a tensor, as in `local(acc = register)`")?;
                let tensor = self.tensor_of(inner)?;
                self.cursor.expect("=", "and a memory")?;
                let placement = self.memory()?;
                self.cursor.expect(")", "after the memory")?;
                AttributeKind::Local { tensor, placement }
            }
            "layout" => {
                let close = self.cursor.closing();
                self.cursor.expect("(", "and a tensor, as in `layout(x = (64,64):(64,1))`")?;
                let tensor = self.tensor_of(inner)?;
                self.cursor.expect("=", "and a layout")?;
                let layout = self.cursor.layout(close)?;
                self.cursor.expect(")", "after the layout")?;
                AttributeKind::Layout { tensor, layout }
            }
            "registers" => {
                self.cursor.expect("(", "and numbers, as in `registers(24, 240)`")?;
                let load = self.cursor.expr()?;
                self.cursor.expect(",", "and the registers of a thread that computes")?;
                let compute = self.cursor.expr()?;
                self.cursor.expect(")", "after the registers")?;
                AttributeKind::Registers { load, compute }
            }
            _ => AttributeKind::Space(self.space(inner)?),
        })
    }

    fn one_integer(&mut self) -> Res<Expr> {
        self.cursor.expect("(", "and a number")?;
        let value = self.cursor.expr()?;
        self.cursor.expect(")", "after the number")?;
        Ok(value)
    }

    fn warpspecialize(&mut self) -> Res<AttributeKind> {
        let (mut warpgroups, mut store) = (None, false);
        if self.cursor.eat("(") {
            warpgroups = Some(self.cursor.expr()?);
            if self.cursor.eat(",") {
                if !self.cursor.eat_word("store") {
                    return Err(self
                        .cursor
                        .unexpected("`store`")
                        .help("e.g. `warpspecialize(2, store)`")
                        .into());
                }
                store = true;
            }
            self.cursor.expect(")", "after the warpgroups")?;
        }
        Ok(AttributeKind::Warpspecialize { warpgroups, store })
    }

    fn pipeline(&mut self, inner: &Inner) -> Res<AttributeKind> {
        self.cursor.expect("(", "and a number of stages, as in `pipeline(4)`")?;
        let head = match self.cursor.is_ahead(1, ":") {
            true => {
                let head = self.loop_named(inner)?;
                self.cursor.expect(":", "after the loop")?;
                Some(head)
            }
            false => None,
        };
        let least = self.cursor.expr()?;
        let most = if self.cursor.eat("..") { self.cursor.expr()? } else { least.clone() };
        self.cursor.expect(")", "after the number of stages")?;
        Ok(AttributeKind::Pipeline { head, least, most })
    }

    /// `grouped(12, serpentine))`, with the parenthesis behind.
    fn rasterization(&mut self) -> Res<Rasterization> {
        let (word, span) = self.cursor.word("a rasterization order")?;
        let order = match word {
            "grouped" => {
                self.cursor.expect("(", "and the rows of a group")?;
                let rows = self.cursor.expr()?;
                let mut serpentine = false;
                if self.cursor.eat(",") {
                    serpentine = self.cursor.eat_word("serpentine");
                    if !serpentine {
                        return Err(self.cursor.unexpected("`serpentine`").into());
                    }
                }
                self.cursor.expect(")", "after the rows of a group")?;
                Rasterization::Grouped { rows, serpentine }
            }
            "hilbert" => Rasterization::Hilbert { order: self.one_integer()? },
            other => {
                let message = format!("there is no rasterization order `{other}`");
                return Err(Diagnostic::new(Code::UnknownName, span, message)
                    .help("there are `grouped(n)`, `grouped(n, serpentine)` and `hilbert(s)`")
                    .into());
            }
        };
        self.cursor.expect(")", "after the rasterization order")?;
        Ok(order)
    }

    /// `{ U = 64 | 128, pipeline = 2..6, late = out | none, KB = 64..160 step 16 }`.
    fn space(&mut self, inner: &Inner) -> Res<Vec<Dimension>> {
        self.cursor.expect("{", "and the values of tunables")?;
        let mut dimensions = Vec::new();
        loop {
            self.cursor.skip_newlines();
            if self.cursor.eat("}") {
                return Ok(dimensions);
            }
            let start = self.cursor.span();
            let (name, span) = self.cursor.word("a tunable, or an attribute such as `pipeline`")?;
            let choice = match Choice::ATTRIBUTES.into_iter().find(|choice| choice.word() == Some(name)) {
                Some(choice) => choice,
                None => {
                    let symbols = self.cursor.symbols();
                    let found: Vec<SymbolId> =
                        inner.tunables().filter(|id| symbols[id.0 as usize].name == name).collect();
                    Choice::Tunable(self.one_of(&found, name, span, "tunable")?)
                }
            };
            self.cursor.expect("=", "and the values")?;
            let mut values = Vec::new();
            loop {
                values.push(match choice {
                    Choice::Late if self.cursor.eat_word("none") => Value::Launch(None),
                    Choice::Late => Value::Launch(Some(self.labelled(inner)?)),
                    _ => {
                        let first = self.cursor.integer()?;
                        let last = if self.cursor.eat("..") { self.cursor.integer()? } else { first };
                        let step = if self.cursor.eat_word("step") { self.cursor.integer()? } else { 1 };
                        Value::Integers { first, last, step }
                    }
                });
                if !self.cursor.eat("|") {
                    break;
                }
            }
            dimensions.push(Dimension { choice, values, span: self.cursor.since(start).into() });
            self.cursor.skip_newlines();
            if !self.cursor.eat(",") && !self.cursor.at("}") {
                return Err(self.cursor.unexpected("`}` or `,`").into());
            }
        }
    }

    /// The only one of those that a name stands for in the variant.
    fn one_of<T: Copy>(&self, found: &[T], name: &str, span: Span, noun: &str) -> Res<T> {
        match found {
            [one] => Ok(*one),
            [] => {
                let message = format!("the variant has no {noun} `{name}`");
                Err(Diagnostic::new(Code::UnknownName, span, message).into())
            }
            _ => {
                let message = format!("the variant has {} of the name `{name}`", found.len());
                Err(Diagnostic::new(Code::Ambiguous, span, message)
                    .help("give each a name of its own in the variant")
                    .into())
            }
        }
    }

    fn labelled(&mut self, inner: &Inner) -> Res<LaunchId> {
        let (name, span) = self.cursor.name("the label of a launch")?;
        let launches = inner.launches.iter().enumerate();
        let found: Vec<LaunchId> = launches
            .filter(|(_, launch)| launch.label.as_deref() == Some(name))
            .map(|(i, _)| LaunchId(i as u32))
            .collect();
        if found.is_empty() {
            let message = format!("no launch of the variant has the label `{name}`");
            let error = Diagnostic::new(Code::Late, span, message);
            return Err(error.help(format!("give it one: `{name}: launch …`")).into());
        }
        self.one_of(&found, name, span, "launch")
    }

    fn loop_named(&mut self, inner: &Inner) -> Res<LoopId> {
        let (name, span) = self.cursor.name("the counter of a loop")?;
        let symbols = self.cursor.symbols();
        let has = |counters: &[SymbolId]| counters.iter().any(|id| symbols[id.0 as usize].name == name);
        let loops = inner.loops.iter().enumerate();
        let found: Vec<LoopId> =
            loops.filter(|(_, head)| has(&head.counters)).map(|(i, _)| LoopId(i as u32)).collect();
        self.one_of(&found, name, span, "loop with the counter")
    }

    fn tensor_of(&mut self, inner: &Inner) -> Res<TensorId> {
        let (name, span) = self.cursor.name("a tensor of the variant")?;
        let tensors = inner.tensors.iter().enumerate();
        let found: Vec<TensorId> =
            tensors.filter(|(_, tensor)| tensor.name == name).map(|(i, _)| TensorId(i as u32)).collect();
        self.one_of(&found, name, span, "tensor")
    }

    // Callees.

    /// `wg`, `out = store.round`.
    fn callee(&mut self) -> Res<Named> {
        let mut label = None;
        if self.cursor.is_ahead(1, "=") {
            let (name, span) = self.cursor.name("the label of a launch")?;
            label = Some((name.to_string(), span));
            self.cursor.expect("=", "after the label")?;
        }
        let start = self.cursor.span();
        let (name, _) = self.cursor.word("an instance")?;
        let name = name.to_string();
        let variant = match self.cursor.eat(".") {
            true => Some(self.cursor.word("a variant")?.0.to_string()),
            false => None,
        };
        Ok(Named { label, instance: (name, variant), span: self.cursor.since(start) })
    }

    /// The instances that rows name.
    fn callees(&mut self, mapping: &mut Mapping, named: Vec<(usize, Vec<Named>)>) -> Res<()> {
        let mut by_name: BTreeMap<String, InstanceId> = BTreeMap::new();
        for (i, instance) in mapping.instances.iter().enumerate() {
            let id = InstanceId(i as u32);
            let name = self.instance_name(instance);
            if let Some(first) = by_name.insert(name.clone(), id) {
                let first = mapping.instance(first).span;
                let message = format!("two instances are named `{name}`");
                let error = Diagnostic::new(Code::DuplicateName, instance.span, message);
                let error = error.related(first, "the first one");
                self.cursor.report(error.help("give it a name: `other = task.variant …`"))?;
            }
        }
        for (i, callees) in named {
            for callee in callees {
                let callee = self.resolved(mapping, i, callee, &by_name);
                match callee {
                    Ok(callee) => mapping.instances[i].callees.push(callee),
                    Err(error) => self.cursor.report(error)?,
                }
            }
        }
        Ok(())
    }

    fn resolved(
        &self,
        mapping: &Mapping,
        caller: usize,
        callee: Named,
        by_name: &BTreeMap<String, InstanceId>,
    ) -> Result<Callee, Diagnostic> {
        let name = match callee.instance {
            (name, None) => name,
            (task, Some(variant)) => format!("{task}.{variant}"),
        };
        let Some(instance) = by_name.get(&name) else {
            let message = format!("no instance is named `{name}`");
            let error = Diagnostic::new(Code::UnknownName, callee.span, message);
            return Err(match nearest(&name, by_name.keys().map(String::as_str)) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => {
                    error.help("an instance goes by the name that its row gives it, or by `task.variant`")
                }
            });
        };
        let caller = &mapping.instances[caller];
        let task = &self.tasks[caller.task.index()];
        let variant = task.variant(caller.variant);
        let launches = variant.inner().map_or(&[][..], |inner| &inner.launches);
        let launched = mapping.instance(*instance).task;
        let launch = match callee.label {
            None => None,
            Some((label, span)) => {
                let found = launches.iter().position(|launch| launch.label.as_ref() == Some(&label));
                let Some(found) = found else {
                    let message =
                        format!("no launch of `{}.{}` has the label `{label}`", task.name, variant.name);
                    let error = Diagnostic::new(Code::UnknownName, span, message);
                    return Err(error.help(format!("give it one: `{label}: launch …`")));
                };
                Some(LaunchId(found as u32))
            }
        };
        let fits = |id: LaunchId| launches[id.index()].task == launched;
        let all = (0..launches.len()).map(|i| LaunchId(i as u32));
        if !launch.map_or_else(|| all.clone().any(fits), fits) {
            let launched = &self.tasks[launched.index()].name;
            let message = format!("`{name}` is an instance of `{launched}`, which is not launched there");
            return Err(
                Diagnostic::new(Code::Unmapped, callee.span, message).related(variant.span, "the caller")
            );
        }
        Ok(Callee { launch, instance: *instance, span: callee.span.into() })
    }
}
