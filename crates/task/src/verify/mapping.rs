//! Mappings: levels, memories, tunables, and the instances that launches go to.

use std::collections::BTreeSet;

use tilewright_machine::{Memory, Processor, levels};
use tilewright_tile::{Code, Diagnostic, Expr, Origin};

use crate::environment::Environment;
use crate::mapping::{
    Attribute, AttributeKind, Dimension, Instance, InstanceId, Mapping, Placement, Rasterization,
    SettingValue, Value,
};
use crate::program::{Inner, LaunchId, LoopKind, Program, StmtKind, SymbolKind};
use crate::resolve::{Target, resolve};

/// The most values of a choice of a `space`.
const MOST_VALUES: i64 = 256;

/// Checks a mapping.
pub(super) fn check(
    program: &Program,
    mapping: &Mapping,
    values: &Environment,
    errors: &mut Vec<Diagnostic>,
) {
    let entries: Vec<(InstanceId, &Instance)> =
        mapping.instances().filter(|(_, instance)| instance.entry).collect();
    let entry = match entries[..] {
        [(entry, _)] => Some(entry),
        [] => {
            let message = format!("no instance of `{}` is the entry", mapping.name);
            let error = Diagnostic::new(Code::Unmapped, mapping.span, message);
            errors.push(error.help("mark the one that a kernel begins with: `entry gemm.host on host …`"));
            None
        }
        [(_, first), (_, second), ..] => {
            let message = format!("two instances of `{}` are the entry", mapping.name);
            let error = Diagnostic::new(Code::Ambiguous, second.span, message);
            errors.push(error.related(first.span, "the first one").help("a mapping has one entry"));
            None
        }
    };
    let mut check = Checker { program, mapping, values, errors };
    for (_, instance) in mapping.instances() {
        check.instance(instance);
    }
    if let Some(entry) = entry {
        check.entry(mapping.instance(entry));
        let mut reached: BTreeSet<(InstanceId, Processor)> = BTreeSet::new();
        let level = mapping.instance(entry).processor.unwrap_or(Processor::Host);
        check.tree(entry, level, &mut reached, &mut Vec::new());
        if check.errors.is_empty() {
            check.reached(&reached.into_iter().map(|(id, _)| id).collect());
        }
    }
}

struct Checker<'a> {
    program: &'a Program,
    mapping: &'a Mapping,
    values: &'a Environment,
    errors: &'a mut Vec<Diagnostic>,
}

impl Checker<'_> {
    /// An entry has sizes for its extents, and its formals have defaults or are given.
    fn entry(&mut self, instance: &Instance) {
        let task = self.program.task(instance.task);
        if let Err(error) = super::entry_extents(self.program, task, &Default::default()) {
            self.errors.push(error.related(instance.span, "the entry"));
        }
    }

    fn instance(&mut self, instance: &Instance) {
        let name = self.program.instance_name(instance);
        let task = self.program.task(instance.task);
        if let Some(level) = instance.processor {
            self.level(level, instance.span);
        }
        let tensors = task.tensors().count();
        if let Some(memories) = &instance.memories {
            if memories.len() != tensors {
                let message =
                    format!("`{name}` has {tensors} tensors, and {} memories are given", memories.len());
                let error = Diagnostic::new(Code::Memory, instance.span, message);
                let names: Vec<&str> = task.tensors().map(|(i, ..)| task.formals[i].name.as_str()).collect();
                errors_help(self.errors, error, format!("one for each of {}", names.join(", ")));
            }
            if let Some(level) = instance.processor {
                for ((i, ..), placement) in task.tensors().zip(memories) {
                    self.holds(level, *placement, &task.formals[i].name, instance.span);
                }
            }
        }
        let body = task.body(instance.variant);
        let inner = &*body;
        for tunable in inner.tunables() {
            let settings: Vec<_> =
                instance.tunables.iter().filter(|setting| setting.tunable == tunable).collect();
            let row = self.program.symbol(tunable);
            match settings[..] {
                [_] => {}
                [] => {
                    let value = match row.kind {
                        SymbolKind::TunableProcessor => "warp",
                        _ => "64",
                    };
                    let message = format!("`{name}` has no value for `{}`", row.name);
                    let error = Diagnostic::new(Code::Tunable, instance.span, message)
                        .related(row.span, "declared here");
                    errors_help(self.errors, error, format!("give it one: `{{ {} = {value} }}`", row.name));
                }
                [first, second, ..] => {
                    let message = format!("`{name}` has two values for `{}`", row.name);
                    self.errors.push(
                        Diagnostic::new(Code::Tunable, second.span, message)
                            .related(first.span, "the first one"),
                    );
                }
            }
        }
        for setting in &instance.tunables {
            match &setting.value {
                SettingValue::Processor(level) => self.level(*level, setting.span),
                SettingValue::Integer(value) => {
                    self.constant(value, setting.span, 1);
                }
            }
        }
        for (k, attribute) in instance.attributes.iter().enumerate() {
            self.attribute(instance, inner, attribute);
            let same = |other: &&Attribute| repeats(&other.kind, &attribute.kind);
            if let Some(first) = instance.attributes[..k].iter().find(same) {
                let error =
                    Diagnostic::new(Code::DuplicateName, attribute.span, "an attribute is given twice");
                self.errors.push(error.related(first.span, "the first one"));
            }
        }
    }

    /// The architecture has the level.
    fn level(&mut self, level: Processor, span: Origin) {
        let arch = self.mapping.arch;
        if levels::level(arch, level).is_none() {
            let names: Vec<&str> = levels::levels(arch).map(|row| row.processor.name()).collect();
            let message = format!("{arch} has no level `{level}`; it has {}", names.join(", "));
            self.errors
                .push(Diagnostic::new(Code::Level, span, message).related(self.mapping.span, "the mapping"));
        }
    }

    fn holds(&mut self, level: Processor, placement: Placement, tensor: &str, span: Origin) {
        let Placement::In(memory) = placement else { return };
        if levels::holds(level, memory) {
            return;
        }
        let outermost = levels::memories().iter().find(|row| row.memory == memory).map(|row| row.outermost);
        let error = match memory {
            Memory::Shared => {
                format!("the {level} does not see shared memory, in which `{tensor}` is to lie")
            }
            _ => format!("the {level} cannot hold `{tensor}` in {memory} memory"),
        };
        let error = Diagnostic::new(Code::Memory, span, error);
        let help = outermost.map(|outermost| {
            format!("tensors lie in {memory} memory from the level `{outermost}` down; a {level} has them in `global` memory")
        });
        self.errors.push(match help {
            Some(help) => error.help(help),
            None => error,
        });
    }

    /// The value of an integer of a mapping, at least so large.
    fn constant(&mut self, expr: &Expr, span: Origin, least: i64) -> Option<i64> {
        let mut other = None;
        expr.visit(&mut |part| {
            if let Expr::Symbol(id) = part
                && !matches!(self.program.symbol(*id).kind, SymbolKind::Constant(_))
            {
                other = Some(self.program.symbol(*id));
            }
        });
        if let Some(row) = other {
            let message = format!("`{}` is no constant, and a mapping is for all sizes", row.name);
            let error = Diagnostic::new(Code::BadValue, span, message).related(row.span, "declared here");
            errors_help(self.errors, error, "give a number, or a `const`".to_string());
            return None;
        }
        match self.values.value(self.program, expr, span) {
            Err(error) => {
                self.errors.push(error);
                None
            }
            Ok(value) if value < least => {
                let message = format!("{value} is too small: it is at least {least}");
                self.errors.push(Diagnostic::new(Code::BadValue, span, message));
                None
            }
            Ok(value) => Some(value),
        }
    }

    fn attribute(&mut self, instance: &Instance, inner: &Inner, attribute: &Attribute) {
        let span = attribute.span;
        match &attribute.kind {
            AttributeKind::Warpspecialize { warpgroups, .. } => {
                if let Some(warpgroups) = warpgroups {
                    self.constant(warpgroups, span, 1);
                }
                self.level(Processor::Warpgroup, span);
            }
            AttributeKind::Pipeline { least, most, .. } => {
                let least = self.constant(least, span, 1);
                let most = self.constant(most, span, 1);
                if least.zip(most).is_some_and(|(least, most)| least > most) {
                    let error =
                        Diagnostic::new(Code::BadValue, span, "the least number of stages is above the most");
                    self.errors.push(error);
                }
            }
            AttributeKind::Shared(bytes) => {
                let most = i64::from(self.mapping.arch.limits().shared_bytes_per_block);
                if let Some(bytes) = self.constant(bytes, span, 1)
                    && bytes > most
                {
                    let arch = self.mapping.arch;
                    let message = format!("a block of {arch} has {most} bytes of shared memory, not {bytes}");
                    self.errors.push(Diagnostic::new(Code::BadValue, span, message));
                }
            }
            AttributeKind::Warps(count) => {
                self.constant(count, span, 1);
            }
            AttributeKind::InFlight(groups) => {
                self.constant(groups, span, 0);
            }
            AttributeKind::Order(
                Rasterization::Grouped { rows: number, .. } | Rasterization::Hilbert { order: number },
            ) => {
                self.constant(number, span, 1);
                let persistent = |other: &&Attribute| matches!(other.kind, AttributeKind::Persistent(_));
                if let Some(other) = instance.attributes.iter().find(persistent) {
                    let error = Diagnostic::new(Code::Misplaced, span, "`order` beside `persistent`")
                        .related(other.span, "`persistent`");
                    self.errors
                        .push(error.help(
                            "the order of a persistent kernel stands in it: `persistent(grouped(12))`",
                        ));
                }
                if !inner.loops.iter().any(|head| head.kind == LoopKind::Prange) {
                    let error =
                        Diagnostic::new(Code::Misplaced, span, "`order` of a variant without `prange`");
                    self.errors.push(error.help("it belongs to the instance whose `prange` is the grid"));
                }
            }
            AttributeKind::Persistent(order) => {
                match order {
                    Some(
                        Rasterization::Grouped { rows: number, .. }
                        | Rasterization::Hilbert { order: number },
                    ) => {
                        self.constant(number, span, 1);
                    }
                    None => {}
                }
                if !inner.loops.iter().any(|head| head.kind == LoopKind::Prange) {
                    let error =
                        Diagnostic::new(Code::Misplaced, span, "`persistent` of a variant without `prange`");
                    self.errors.push(error.help("it belongs to the instance whose `prange` is the grid"));
                }
            }
            AttributeKind::Cluster { counter, blocks } => {
                self.level(Processor::Cluster, span);
                let most = levels::level(self.mapping.arch, Processor::Cluster).and_then(|row| row.most);
                if let Some(blocks) = self.constant(blocks, span, 1)
                    && most.is_some_and(|most| blocks > i64::from(most))
                {
                    let message = format!("a cluster has at most {} blocks, not {blocks}", most.unwrap_or(1));
                    self.errors.push(Diagnostic::new(Code::BadValue, span, message));
                }
                let head = inner.loops.iter().find(|head| head.counters.contains(counter));
                if head.is_some_and(|head| head.kind == LoopKind::Srange) {
                    let name = &self.program.symbol(*counter).name;
                    let message =
                        format!("`{name}` is the counter of a `srange`, whose iterations run in order");
                    let error = Diagnostic::new(Code::Misplaced, span, message);
                    self.errors.push(error.help("blocks of a cluster are iterations of a `prange`"));
                }
            }
            AttributeKind::Late { launch, head } => self.late(inner, *launch, head.is_some(), span),
            AttributeKind::Local { tensor, placement } => {
                let row = inner.tensor(*tensor);
                if row.formal.is_some() {
                    let message = format!("`{}` is a formal, not a tensor of the variant's own", row.name);
                    let error = Diagnostic::new(Code::Memory, span, message);
                    self.errors.push(error.help("its memory stands in the list behind the level"));
                }
                let level = instance.processor.unwrap_or(Processor::Block);
                self.holds(level, *placement, &row.name.clone(), span);
                if level == Processor::Thread && *placement == Placement::In(Memory::Shared) {
                    let message = format!(
                        "a thread cannot hold `{}` in shared memory: no other thread has it",
                        row.name
                    );
                    self.errors.push(
                        Diagnostic::new(Code::Memory, span, message)
                            .help("make the tensor at the level of a warp or of the block"),
                    );
                }
            }
            AttributeKind::Registers { load, compute } => {
                for registers in [load, compute] {
                    if let Some(value) = self.constant(registers, span, 24)
                        && (value > 240 || value % 8 != 0)
                    {
                        let message = format!("{value} registers: they are a multiple of 8 from 24 to 240");
                        self.errors.push(Diagnostic::new(Code::BadValue, span, message));
                    }
                }
            }
            AttributeKind::Space(dimensions) => dimensions.iter().for_each(|dimension| self.space(dimension)),
            AttributeKind::Layout { .. } => {}
        }
    }

    /// The ranges of a dimension have values, and not too many.
    fn space(&mut self, dimension: &Dimension) {
        let mut count = 0_i64;
        for value in &dimension.values {
            let Value::Integers { first, last, step } = *value else { continue };
            let wrong = match (first > last, step < 1) {
                (true, _) => Some((
                    format!("`{first}..{last}` has no values"),
                    format!("the lower end stands first: `{last}..{first}`"),
                )),
                (_, true) => Some((format!("a step of {step}"), "a step is 1 at least".to_string())),
                _ => None,
            };
            if let Some((message, help)) = wrong {
                self.errors.push(Diagnostic::new(Code::BadValue, dimension.span, message).help(help));
                return;
            }
            count = count.saturating_add(last.saturating_sub(first) / step + 1);
        }
        if count > MOST_VALUES {
            let message = format!("{count} values of one choice: there are {MOST_VALUES} at most");
            let error = Diagnostic::new(Code::BadValue, dimension.span, message);
            self.errors.push(
                error.help("a search tries all of them: name those that differ, e.g. `64 | 128 | 256`"),
            );
        }
    }

    /// A launch moves to a later iteration of a loop around it, or of the persistent kernel.
    fn late(&mut self, inner: &Inner, launch: LaunchId, named: bool, span: Origin) {
        let persistent = |instance: &Instance| {
            instance.attributes.iter().any(|attribute| matches!(attribute.kind, AttributeKind::Persistent(_)))
        };
        if named
            || in_srange(&inner.statements, inner, launch, false)
            || self.mapping.instances.iter().any(persistent)
        {
            return;
        }
        let label = inner.launch(launch).label.as_deref().unwrap_or("?").to_string();
        let message =
            format!("`late({label})`: the launch is in no `srange`, and the kernel is not persistent");
        let error = Diagnostic::new(Code::Late, span, message)
            .related(inner.launch(launch).span, "the launch")
            .label("no iteration comes later");
        self.errors.push(error.help("give the entry `persistent(…)`, so that a next tile follows"));
    }

    /// Follows the launches of an instance.
    fn tree(
        &mut self,
        id: InstanceId,
        level: Processor,
        reached: &mut BTreeSet<(InstanceId, Processor)>,
        around: &mut Vec<InstanceId>,
    ) {
        let instance = self.mapping.instance(id);
        let name = self.program.instance_name(instance);
        if around.contains(&id) {
            let message = format!("`{name}` launches itself");
            let error = Diagnostic::new(Code::Level, instance.span, message);
            errors_help(self.errors, error, "name another instance with `->`".to_string());
            return;
        }
        let first = !reached.iter().any(|(known, _)| *known == id);
        if !reached.insert((id, level)) {
            return;
        }
        around.push(id);
        let inner = self.program.task(instance.task).variant(instance.variant).inner();
        for launch in (0..inner.map_or(0, |inner| inner.launches.len() as u32)).map(LaunchId) {
            let target = match resolve(self.program, self.mapping, id, launch) {
                Ok(target) => target,
                Err(error) => {
                    if first {
                        self.errors.push(error);
                    }
                    continue;
                }
            };
            let Target::Instance(callee) = target else { continue };
            let below = self.mapping.instance(callee);
            let of_callee = target.processor(self.mapping, level);
            if of_callee < level {
                let message = format!(
                    "`{}` on the {of_callee} is launched by `{name}` on the {level}, which is below",
                    self.program.instance_name(below)
                );
                let error =
                    Diagnostic::new(Code::Level, below.span, message).related(instance.span, "the caller");
                errors_help(self.errors, error, format!("`on {level}`, or a level below it"));
                continue;
            }
            self.tree(callee, of_callee, reached, around);
        }
        around.pop();
    }

    /// Every row is used.
    fn reached(&mut self, reached: &BTreeSet<InstanceId>) {
        for (id, instance) in self.mapping.instances() {
            if !reached.contains(&id) {
                let name = self.program.instance_name(instance);
                let message = format!("nothing launches `{name}`");
                let error = Diagnostic::new(Code::Unmapped, instance.span, message);
                errors_help(self.errors, error, format!("leave the row out, or name it: `-> {name}`"));
            }
        }
    }
}

fn errors_help(errors: &mut Vec<Diagnostic>, error: Diagnostic, help: String) {
    errors.push(error.help(help));
}

/// True if the second of two attributes says again what the first says.
fn repeats(first: &AttributeKind, second: &AttributeKind) -> bool {
    use AttributeKind as Kind;
    match (first, second) {
        (Kind::Pipeline { head: a, .. }, Kind::Pipeline { head: b, .. }) => a == b,
        (Kind::Late { launch: a, .. }, Kind::Late { launch: b, .. }) => a == b,
        (Kind::Local { tensor: a, .. }, Kind::Local { tensor: b, .. })
        | (Kind::Layout { tensor: a, .. }, Kind::Layout { tensor: b, .. }) => a == b,
        (Kind::Cluster { counter: a, .. }, Kind::Cluster { counter: b, .. }) => a == b,
        _ => std::mem::discriminant(first) == std::mem::discriminant(second),
    }
}

/// True if the launch stands in a `srange`.
fn in_srange(body: &[crate::program::Stmt], inner: &Inner, launch: LaunchId, inside: bool) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Launch(id) => inside && *id == launch,
        StmtKind::For { head, body } => {
            in_srange(body, inner, launch, inside || inner.head(*head).kind == LoopKind::Srange)
        }
        _ => false,
    })
}
