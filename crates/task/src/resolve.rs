//! The instance that each launch of a mapping goes to: what a row says, and the defaults for what it does not say.

use tilewright_machine::Processor;
use tilewright_tile::{Code, Diagnostic};

use crate::mapping::{InstanceId, Mapping};
use crate::program::{Body, LaunchId, Program, TaskId, VariantId};

/// The end of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// An instance.
    Instance(InstanceId),
    /// The only variant of a task without an instance, a leaf: it runs where its caller does, and its tensors take the places that others
    /// give them.
    Leaf(TaskId, VariantId),
}

impl Target {
    /// The task and the variant.
    pub fn variant(self, mapping: &Mapping) -> (TaskId, VariantId) {
        match self {
            Target::Instance(id) => {
                let instance = mapping.instance(id);
                (instance.task, instance.variant)
            }
            Target::Leaf(task, variant) => (task, variant),
        }
    }

    /// The level on which it runs, launched from a level.
    pub fn processor(self, mapping: &Mapping, caller: Processor) -> Processor {
        match self {
            Target::Instance(id) => mapping.instance(id).processor.unwrap_or(caller),
            Target::Leaf(..) => caller,
        }
    }
}

/// The target of a launch of an instance: the one that its row names for the launch or for the task; else the only other instance of the
/// task that no row names; else the task's only variant, if that is a leaf.
///
/// # Errors
///
/// [`Code::Unmapped`] without such an instance, [`Code::Ambiguous`] with several.
pub fn resolve(
    program: &Program,
    mapping: &Mapping,
    caller: InstanceId,
    launch: LaunchId,
) -> Result<Target, Diagnostic> {
    let row = mapping.instance(caller);
    let variant = program.task(row.task).variant(row.variant);
    let Some(inner) = variant.inner() else {
        return Err(Diagnostic::internal(row.span, "a leaf launches"));
    };
    let statement = inner.launch(launch);
    let task = statement.task;
    let of_launch = row.callees.iter().find(|callee| callee.launch == Some(launch));
    if let Some(callee) = of_launch {
        return Ok(Target::Instance(callee.instance));
    }
    let of_task: Vec<InstanceId> = row
        .callees
        .iter()
        .filter(|callee| callee.launch.is_none() && mapping.instance(callee.instance).task == task)
        .map(|callee| callee.instance)
        .collect();
    let instances: Vec<InstanceId> = mapping
        .instances()
        .filter(|(id, instance)| instance.task == task && *id != caller)
        .map(|(id, _)| id)
        .collect();
    let named = |id: &InstanceId| {
        mapping.instances.iter().any(|row| row.callees.iter().any(|callee| callee.instance == *id))
    };
    let free: Vec<InstanceId> = instances.iter().copied().filter(|id| !named(id)).collect();
    let candidates = if of_task.is_empty() { free } else { of_task };
    let caller_name = program.instance_name(row);
    let task_name = &program.task(task).name;
    let names = |ids: &[InstanceId]| -> String {
        let names: Vec<String> =
            ids.iter().map(|id| format!("`{}`", program.instance_name(mapping.instance(*id)))).collect();
        names.join(" or ")
    };
    match candidates[..] {
        [only] => Ok(Target::Instance(only)),
        [] if instances.is_empty() => match &program.task(task).variants[..] {
            [only] if matches!(only.body, Body::Leaf(_)) => Ok(Target::Leaf(task, VariantId(0))),
            variants => {
                let could: Vec<String> =
                    variants.iter().map(|variant| format!("`{task_name}.{}`", variant.name)).collect();
                let message = format!(
                    "`{}` has no instance of `{task_name}` for `launch {task_name}` in `{caller_name}`",
                    mapping.name
                );
                Err(Diagnostic::new(Code::Unmapped, row.span, message)
                    .related(statement.span, "the launch")
                    .help(format!("give it a row: {}", could.join(" or "))))
            }
        },
        [] => {
            let message = format!(
                "no instance of `{task_name}` is left for `launch {task_name}` in `{caller_name}`: other rows name {}",
                names(&instances)
            );
            let first = &mapping.instance(instances[0]);
            Err(Diagnostic::new(Code::Unmapped, row.span, message)
                .related(statement.span, "the launch")
                .help(format!("name one here, too: `-> {}`", program.instance_name(first))))
        }
        _ => {
            let message =
                format!("`launch {task_name}` in `{caller_name}` could go to {}", names(&candidates));
            let first = program.instance_name(mapping.instance(candidates[0]));
            Err(Diagnostic::new(Code::Ambiguous, row.span, message)
                .related(statement.span, "the launch")
                .help(format!("name one with `->`: `{caller_name} … -> {first}`")))
        }
    }
}
