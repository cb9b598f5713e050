//! The tree as text: a line a loop and a call, its formals with their pieces and memories.

use super::{Argument, CallId, Item, LoopId, Tree};
use crate::mapping::Placement;
use crate::piece::{Affine, Guard, Piece, Vars};
use crate::program::Program;

impl Tree {
    /// The tree as text, what `--emit tree` prints.
    pub fn text(&self, program: &Program) -> String {
        let mut out = format!("mapping {} for {}\n", self.mapping, self.arch);
        self.item(program, &self.root, 0, &mut out);
        out
    }

    fn item(&self, program: &Program, item: &Item, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        match item {
            Item::Loop(id, items) => {
                out.push_str(&format!("{indent}{}\n", self.loop_text(*id)));
                items.iter().for_each(|item| self.item(program, item, depth + 1, out));
            }
            Item::Call(id, items) => {
                out.push_str(&format!("{indent}{}\n", self.call_text(program, *id)));
                for object in self.objects.iter().filter(|object| object.maker == Some(*id)) {
                    let shape: Vec<String> = object.shape.iter().map(|e| self.vars.text(e)).collect();
                    let memory = placement(object.placement);
                    let line = format!(
                        "{indent}  {}: {}[{}] {memory}\n",
                        object.name,
                        object.dtype,
                        shape.join(", ")
                    );
                    out.push_str(&line);
                }
                items.iter().for_each(|item| self.item(program, item, depth + 1, out));
            }
            Item::Leaf(id) => out.push_str(&format!("{indent}leaf {}\n", self.call_text(program, *id))),
        }
    }

    /// The head of a loop.
    pub(crate) fn loop_text(&self, id: LoopId) -> String {
        let row = self.loop_(id);
        let counters = row.counters.iter().zip(&row.ranges).map(|(counter, (lo, hi))| {
            let counter = self.vars.text(&Affine::var(*counter));
            format!("{counter} in {}..{}", self.vars.text(lo), self.vars.text(hi))
        });
        let counters = counters.collect::<Vec<_>>().join(", ");
        format!("{} {counters} on {}", row.kind.name(), row.processor)
    }

    /// A call: its instance, its level, its formals.
    fn call_text(&self, program: &Program, id: CallId) -> String {
        let call = self.call(id);
        let task = program.task(call.task);
        let arguments = task.formals.iter().zip(&call.arguments).map(|(formal, argument)| match argument {
            Argument::Tensor(tensor) => {
                let object = &self.object(tensor.object).name;
                let memory = tensor.chain.last().map_or("none", |placed| placement(placed.placement));
                format!("{} = {object}{}: {memory}", formal.name, piece_text(&tensor.piece, &self.vars))
            }
            Argument::Integer(value) => format!("{} = {}", formal.name, self.vars.text(value)),
            Argument::Float(_) => formal.name.clone(),
        });
        let arguments: Vec<String> = arguments.collect();
        format!(
            "{}.{} on {} ({})",
            task.name,
            task.variant(call.variant).name,
            call.processor,
            arguments.join(", ")
        )
    }
}

/// The memory as a mapping writes it.
pub(crate) fn placement(placement: Placement) -> &'static str {
    use tilewright_machine::Memory;
    match placement {
        Placement::None => "none",
        Placement::In(Memory::Global) => "global",
        Placement::In(Memory::Shared) => "shared",
        Placement::In(Memory::Register) => "register",
    }
}

/// A piece: the colours of each step, and its conditions.
pub(crate) fn piece_text(piece: &Piece, vars: &Vars) -> String {
    let mut text = String::new();
    for step in piece.steps() {
        let colours: Vec<String> = step.colours.iter().map(|colour| vars.text(colour)).collect();
        text += &format!("[{}]", colours.join(", "));
    }
    for guard in piece.guards() {
        text += &match guard {
            Guard::Zero(form) => format!(" when {} == 0", vars.text(form)),
            Guard::AtLeastZero(form) => format!(" when {} >= 0", vars.text(form)),
        };
    }
    text
}
