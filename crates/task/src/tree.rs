//! The tree of instances of a mapping as text: what `tilewright tasks` prints.

use std::fmt::Write;

use tilewright_machine::Processor;
use tilewright_tile::Diagnostic;

use crate::mapping::{Mapping, Placement};
use crate::program::{Inner, LaunchId, Program, Stmt, StmtKind};
use crate::resolve::{Target, resolve};

/// The instances of a mapping from its entry down, each at the launches that lead to it, with levels, memories and tunables. Leaves without a
/// row of their own take the places that others give their tensors.
///
/// ```
/// let program = tilewright_task::parse(
///     "size n = 100
///      task clear(x: write f32[N]) {
///          inner host {
///              tunable T
///              xp = blocks(x, [T])
///              for i in prange(ceil_div(N, T)) { launch zero(xp[i]) }
///          }
///      }
///      task zero(x: write f32[N]) { leaf all { fill(x, 0.0) } }
///      mapping a100 for sm_80 { entry clear.host on host(global) { T = 32 } }",
/// )?;
/// let text = "a100 for sm_80
/// clear.host on host(x: global) { T = 32 }
///     for i in prange(ceil_div(N, T))
///         launch zero(xp[i]): zero.all on host(x: none), by default
/// ";
/// assert_eq!(tilewright_task::tree(&program, &program.mappings[0])?, text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// A launch without an instance, or with several.
pub fn tree(program: &Program, mapping: &Mapping) -> Result<String, Diagnostic> {
    let mut text = format!("{} for {}\n", mapping.name, mapping.arch);
    if let Some(entry) = mapping.entry() {
        let level = mapping.instance(entry).processor.unwrap_or(Processor::Host);
        let mut tree = Tree { program, mapping, text: &mut text };
        tree.target(Target::Instance(entry), level, 0, 0)?;
    }
    Ok(text)
}

/// The deepest nesting of launches that is shown.
const MAX_DEPTH: usize = 64;
/// The most bytes of a tree.
const MAX_TEXT: usize = 1 << 20;

struct Tree<'a> {
    program: &'a Program,
    mapping: &'a Mapping,
    text: &'a mut String,
}

impl Tree<'_> {
    /// The line of a target, behind what is on it, and the launches of its body.
    fn target(
        &mut self,
        target: Target,
        level: Processor,
        indent: usize,
        depth: usize,
    ) -> Result<(), Diagnostic> {
        let (task, variant) = target.variant(self.mapping);
        let task = self.program.task(task);
        let variant = task.variant(variant);
        let row = match target {
            Target::Instance(id) => Some(self.mapping.instance(id)),
            Target::Leaf(..) => None,
        };
        let memories = row.and_then(|row| row.memories.as_ref());
        let memory = |k: usize| memories.and_then(|list| list.get(k)).copied().unwrap_or(Placement::None);
        let tensors: Vec<String> = task
            .tensors()
            .enumerate()
            .map(|(k, (i, ..))| format!("{}: {}", task.formals[i].name, memory(k)))
            .collect();
        let name = row
            .map_or_else(|| format!("{}.{}", task.name, variant.name), |row| self.program.instance_name(row));
        let of = match row.and_then(|row| row.name.as_ref()) {
            Some(_) => format!(" = {}.{}", task.name, variant.name),
            None => String::new(),
        };
        // Writing to a string does not fail.
        let _ = write!(self.text, "{name}{of} on {level}({})", tensors.join(", "));
        match row {
            Some(row) => {
                let settings = self.program.settings(row);
                if !settings.is_empty() {
                    let _ = write!(self.text, " {{ {settings} }}");
                }
                let none = Inner::default();
                let inner = variant.inner().unwrap_or(&none);
                for attribute in &row.attributes {
                    let _ = write!(self.text, " {}", self.program.attribute(inner, &attribute.kind));
                }
                self.text.push('\n');
            }
            None => self.text.push_str(", by default\n"),
        }
        if let (Some(inner), Target::Instance(caller)) = (variant.inner(), target)
            && depth < MAX_DEPTH
        {
            self.body(inner, &inner.statements, (caller, level), indent + 1, depth)?;
        }
        Ok(())
    }

    fn body(
        &mut self,
        inner: &Inner,
        body: &[Stmt],
        caller: (crate::mapping::InstanceId, Processor),
        indent: usize,
        depth: usize,
    ) -> Result<(), Diagnostic> {
        for stmt in body {
            if self.text.len() > MAX_TEXT {
                break;
            }
            match &stmt.kind {
                StmtKind::For { head, body } => {
                    let text = self.program.loop_head(inner, *head);
                    let _ = writeln!(self.text, "{:width$}{text}", "", width = 4 * indent);
                    self.body(inner, body, caller, indent + 1, depth)?;
                }
                StmtKind::Launch(id) => self.launch(inner, *id, caller, indent, depth)?,
                StmtKind::Tunable(_)
                | StmtKind::Let { .. }
                | StmtKind::Tensor(_)
                | StmtKind::Partition(_) => {}
            }
        }
        Ok(())
    }

    fn launch(
        &mut self,
        inner: &Inner,
        id: LaunchId,
        (caller, level): (crate::mapping::InstanceId, Processor),
        indent: usize,
        depth: usize,
    ) -> Result<(), Diagnostic> {
        let target = resolve(self.program, self.mapping, caller, id)?;
        let task = self.program.task(self.mapping.instance(caller).task);
        let text = self.program.launch(task, inner, inner.launch(id));
        let _ = write!(self.text, "{:width$}{text}: ", "", width = 4 * indent);
        self.target(target, target.processor(self.mapping, level), indent, depth + 1)
    }
}
