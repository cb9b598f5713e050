//! The tree as text: a line a loop and a call, with the row of the mapping, and its formals with their pieces and memories.

use super::{Argument, CallId, Item, LoopId, Tree};
use crate::mapping::{Mapping, Placement};
use crate::piece::{Affine, Guard, Piece, Vars};
use crate::program::{Inner, Program};

impl Tree {
    /// The tree as text, what `tilewright tasks` prints.
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
    /// let mapping = &program.mappings[0];
    /// let tree = tilewright_task::instantiate::instantiate(&program, mapping)?;
    /// let text = "a100 for sm_80
    /// clear.host on host(x = x: global) { T = 32 }
    ///   prange i in 0..ceil_div(n, 32) on host
    ///     zero.all on host(x = x[i]: none), by default
    /// ";
    /// assert_eq!(tree.text(&program, mapping), text);
    /// # Ok::<(), tilewright_tile::Diagnostics>(())
    /// ```
    pub fn text(&self, program: &Program, mapping: &Mapping) -> String {
        let mut out = format!("{} for {}\n", self.mapping, self.arch);
        self.item(program, mapping, &self.root, 0, &mut out);
        out
    }

    fn item(&self, program: &Program, mapping: &Mapping, item: &Item, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        match item {
            Item::Loop(id, items) => {
                *out += &format!("{indent}{}\n", self.loop_text(*id));
                items.iter().for_each(|item| self.item(program, mapping, item, depth + 1, out));
            }
            Item::Call(id, items) => {
                *out += &format!("{indent}{}\n", self.call_text(program, mapping, *id));
                for object in self.objects.iter().filter(|object| object.maker == Some(*id)) {
                    let shape: Vec<String> = object.shape.iter().map(|e| self.vars.text(e)).collect();
                    let (name, dtype, shape) = (&object.name, object.dtype, shape.join(", "));
                    *out += &format!("{indent}  {name}: {dtype}[{shape}] {}\n", object.placement);
                }
                items.iter().for_each(|item| self.item(program, mapping, item, depth + 1, out));
            }
            Item::Leaf(id) => *out += &format!("{indent}{}\n", self.call_text(program, mapping, *id)),
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

    /// A call: its row of the mapping, with its formals.
    fn call_text(&self, program: &Program, mapping: &Mapping, id: CallId) -> String {
        let call = self.call(id);
        let task = program.task(call.task);
        let variant = task.variant(call.variant);
        let arguments = task.formals.iter().zip(&call.arguments).map(|(formal, argument)| match argument {
            Argument::Tensor(tensor) => {
                let object = &self.object(tensor.object).name;
                let memory = tensor.chain.last().map_or(Placement::None, |placed| placed.placement);
                format!("{} = {object}{}: {memory}", formal.name, piece_text(&tensor.piece, &self.vars))
            }
            Argument::Integer(value) => format!("{} = {}", formal.name, self.vars.text(value)),
            Argument::Float(_) => formal.name.clone(),
        });
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let of = format!("{} on {}({arguments})", task.variant_name(call.variant), call.processor);
        let Some(row) = call.instance.map(|id| mapping.instance(id)) else { return of + ", by default" };
        let mut text = row.name.as_ref().map_or(String::new(), |name| format!("{name} = ")) + &of;
        let settings = program.settings(row);
        if !settings.is_empty() {
            text += &format!(" {{ {settings} }}");
        }
        let none = Inner::default();
        let inner = variant.inner().unwrap_or(&none);
        for attribute in &row.attributes {
            text += &format!(" {}", program.attribute(inner, &attribute.kind));
        }
        text
    }
}

/// A piece: the colours of each step, and its conditions.
pub(crate) fn piece_text(piece: &Piece, vars: &Vars) -> String {
    let mut text = String::new();
    for step in piece.steps() {
        let colours: Vec<String> = step.colours.iter().map(|colour| vars.text(colour)).collect();
        text += &format!("[{}]", colours.join(", "));
    }
    text + &guards_text(piece.guards(), vars)
}

/// Conditions, each as ` when j == 0`.
pub(crate) fn guards_text(guards: &[Guard], vars: &Vars) -> String {
    let one = |guard: &Guard| match guard {
        Guard::Zero(form) => format!(" when {} == 0", vars.text(form)),
        Guard::AtLeastZero(form) => format!(" when {} >= 0", vars.text(form)),
    };
    guards.iter().map(one).collect()
}
