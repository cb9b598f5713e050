//! The copy-in/copy-out form of a tree (paper, 4.2.1), with events, and its vectorised form (4.2.2): the programs in which the paper's compiler
//! begins. Nothing is emitted from them; they say in the paper's own terms which copies placement leaves out, and which synchronisation
//! parallel loops ask for before it is known who touches what.

use std::collections::BTreeMap;

use tilewright_machine::Processor;

use crate::instantiate::{Argument, CallId, Item, LoopId, ObjectId, Tree};
use crate::mapping::Placement;
use crate::piece::Affine;
use crate::program::{LoopKind, Program};

/// An event, by its number.
pub type EventId = usize;

/// A dimension of an event array: its extent as text, and the processors that its entries are of.
pub type Dimension = (String, Processor);

/// An index into an event array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// The entry of a counter: `e[i]`.
    Own(String),
    /// All entries: `e[:]`.
    All,
}

/// A wait for an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The event.
    pub event: EventId,
    /// An index a dimension.
    pub index: Vec<At>,
}

/// An operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// `c1 = tensor([M, N], none)`.
    Tensor {
        /// The name.
        name: String,
        /// The extents.
        shape: Vec<String>,
        /// The memory.
        placement: Placement,
    },
    /// `i = warp_id()`: what a loop that has been flattened counts.
    Id {
        /// The counter.
        counter: String,
        /// The level.
        processor: Processor,
    },
    /// `e: () = copy(…), {…}` or `call(…)`: the text is what is done.
    Asynchronous {
        /// The event.
        event: EventId,
        /// The action.
        text: String,
        /// The events that it waits for.
        waits: Vec<Wait>,
    },
    /// A loop.
    For {
        /// The event of its end.
        event: EventId,
        /// True of a parallel one.
        parallel: bool,
        /// The level of its iterations.
        processor: Processor,
        /// The head: counters and ranges.
        head: String,
        /// The counters.
        counters: Vec<String>,
        /// The events that it waits for.
        waits: Vec<Wait>,
        /// Its iteration.
        body: Vec<Operation>,
        /// The events of the end of an iteration.
        yields: Vec<Wait>,
    },
}

/// A program with events.
#[derive(Clone, PartialEq, Debug)]
pub struct Listing {
    /// The dimensions of each event.
    pub events: Vec<Vec<Dimension>>,
    /// The operations.
    pub operations: Vec<Operation>,
}

/// A tensor under its name, with the events that the next use of it waits for.
#[derive(Clone, Default)]
struct State {
    /// The last writer, or what it was written by in parallel.
    written: Vec<Wait>,
    /// The readers since.
    read: Vec<Wait>,
}

/// The body of a call under construction, with the names of the tensors in it.
struct Scope {
    call: CallId,
    /// The names of its formals.
    formals: BTreeMap<usize, String>,
    /// The names of tensors that bodies make, by object.
    locals: BTreeMap<ObjectId, String>,
}

struct Build<'a> {
    program: &'a Program,
    tree: &'a Tree,
    events: Vec<Vec<Dimension>>,
    names: BTreeMap<String, usize>,
}

/// The copy-in/copy-out form: at each call a fresh tensor for each formal, a copy into it if it is read, the callee, and a copy back if it is
/// written. The law: in program order every operation waits for the last writes of what it reads, and for the reads and writes of what it
/// overwrites, in its own body; a body's end is an event of the body around.
pub fn discipline(program: &Program, tree: &Tree) -> Listing {
    let mut build = Build { program, tree, events: Vec::new(), names: BTreeMap::new() };
    let mut operations = Vec::new();
    if let Item::Call(id, items) = &tree.root {
        let formals = build.formals(*id);
        for (name, _) in formals.values() {
            build.names.insert(name.clone(), 0);
        }
        let formals = formals.into_iter().map(|(at, (name, _))| (at, name)).collect();
        let mut scope = Scope { call: *id, formals, locals: BTreeMap::new() };
        build.body(&mut scope, items, &mut BTreeMap::new(), &mut operations);
    }
    Listing { events: build.events, operations }
}

impl Build<'_> {
    /// The tensor formals of a call, with their names and shapes.
    fn formals(&self, id: CallId) -> BTreeMap<usize, (String, Vec<String>)> {
        let call = self.tree.call(id);
        let formals = &self.program.task(call.task).formals;
        let tensors = call.arguments.iter().enumerate().filter_map(|(at, argument)| match argument {
            Argument::Tensor(tensor) => {
                let shape = tensor.shape.iter().map(|extent| self.tree.vars.text(extent)).collect();
                Some((at, (formals[at].name.clone(), shape)))
            }
            _ => None,
        });
        tensors.collect()
    }

    fn event(&mut self) -> EventId {
        self.events.push(Vec::new());
        self.events.len() - 1
    }

    fn fresh(&mut self, name: &str) -> String {
        let count = self.names.entry(name.to_string()).or_default();
        *count += 1;
        format!("{name}{count}")
    }

    /// The operations of a body. Gives the events of its end: those of the last uses of each tensor.
    fn body(
        &mut self,
        scope: &mut Scope,
        items: &[Item],
        states: &mut BTreeMap<String, State>,
        out: &mut Vec<Operation>,
    ) {
        for item in items {
            match item {
                Item::Loop(id, body) => self.loop_(scope, *id, body, states, out),
                Item::Call(callee, body) => self.call(scope, *callee, body, states, out),
                Item::Leaf(callee) => self.call(scope, *callee, &[], states, out),
            }
        }
    }

    fn loop_(
        &mut self,
        scope: &mut Scope,
        id: LoopId,
        body: &[Item],
        states: &mut BTreeMap<String, State>,
        out: &mut Vec<Operation>,
    ) {
        let row = self.tree.loop_(id);
        let parallel = row.kind == LoopKind::Prange;
        let event = self.event();
        let vars = &self.tree.vars;
        let counters: Vec<String> = row.counters.iter().map(|var| vars.text(&Affine::var(*var))).collect();
        let ranges: Vec<String> =
            row.ranges.iter().map(|(lo, hi)| format!("[{}, {})", vars.text(lo), vars.text(hi))).collect();
        let head = format!("{} in {}", counters.join(", "), ranges.join(" × "));
        let extents: Vec<String> = row.ranges.iter().map(|(lo, hi)| vars.text(&hi.plus(lo, -1))).collect();
        let (mut inner, mut operations) = (BTreeMap::new(), Vec::new());
        let known: Vec<String> = states.keys().cloned().collect();
        self.body(scope, body, &mut inner, &mut operations);
        // What the loop waits for: whatever its body's first uses of a tensor would wait for outside.
        let mut waits: Vec<Wait> = Vec::new();
        let mut yields: Vec<Wait> = Vec::new();
        for (name, state) in &inner {
            let (reads, writes) = (!state.read.is_empty(), !state.written.is_empty());
            if known.contains(name)
                && let Some(outside) = states.get(name)
            {
                add(&mut waits, &outside.written);
                if writes {
                    add(&mut waits, &outside.read);
                }
            }
            // The end of an iteration is the last use of each tensor that lives outside of it.
            let lives = scope.formals.values().chain(scope.locals.values()).any(|outer| outer == name);
            if lives && writes {
                add(&mut yields, &state.written);
            }
            if lives && reads {
                add(&mut yields, &state.read);
            }
        }
        let yields = latest(yields, &operations);
        if parallel {
            self.events[event] = extents.into_iter().map(|extent| (extent, row.processor)).collect();
        }
        let index = vec![At::All; if parallel { counters.len() } else { 0 }];
        let done = Wait { event, index };
        for (name, state) in inner {
            let outside = states.entry(name).or_default();
            if !state.written.is_empty() {
                *outside = State { written: vec![done.clone()], read: Vec::new() };
            } else if !state.read.is_empty() {
                outside.read.push(done.clone());
            }
        }
        let processor = row.processor;
        out.push(Operation::For {
            event,
            parallel,
            processor,
            head,
            counters,
            waits,
            body: operations,
            yields,
        });
    }

    /// The name of what the caller passes: a formal of its own, or a tensor that its body makes; and the colours of a piece of it.
    fn passed(
        &mut self,
        scope: &mut Scope,
        callee: CallId,
        formal: usize,
        out: &mut Vec<Operation>,
    ) -> (String, String) {
        let Some(Argument::Tensor(tensor)) = self.tree.call(callee).arguments.get(formal) else {
            return (String::new(), String::new());
        };
        // The chain's link before this one is the caller's formal; without, the object is the caller's own.
        let links = &tensor.chain;
        let before = links.len().checked_sub(2).map(|at| &links[at]);
        let (name, steps) = match before {
            Some(link) if link.call == scope.call => {
                let name = scope.formals.get(&link.formal).cloned().unwrap_or_default();
                (name, link.piece.steps().len())
            }
            _ => {
                let object = self.tree.object(tensor.object);
                let name = match scope.locals.get(&tensor.object) {
                    Some(name) => name.clone(),
                    None => {
                        let name = self.fresh(&object.name);
                        let shape = object.shape.iter().map(|extent| self.tree.vars.text(extent)).collect();
                        let placement = object.placement;
                        out.push(Operation::Tensor { name: name.clone(), shape, placement });
                        scope.locals.insert(tensor.object, name.clone());
                        name
                    }
                };
                (name, 0)
            }
        };
        let colours = tensor.piece.steps()[steps..].iter().map(|step| {
            let colours: Vec<String> =
                step.colours.iter().map(|colour| self.tree.vars.text(colour)).collect();
            format!("[{}]", colours.join(", "))
        });
        let text = format!("{name}{}", colours.collect::<String>());
        (name, text)
    }

    fn call(
        &mut self,
        scope: &mut Scope,
        callee: CallId,
        body: &[Item],
        states: &mut BTreeMap<String, State>,
        out: &mut Vec<Operation>,
    ) {
        let row = self.tree.call(callee).clone();
        let task = self.program.task(row.task);
        let leaf = task.variant(row.variant).leaf().is_some();
        let mut inner: BTreeMap<usize, String> = BTreeMap::new();
        let mut inner_states: BTreeMap<String, State> = BTreeMap::new();
        let mut backs = Vec::new();
        let mut copied: Vec<Wait> = Vec::new();
        for (formal, (name, shape)) in self.formals(callee) {
            let Some(Argument::Tensor(tensor)) = row.arguments.get(formal) else { continue };
            let (outer, outer_text) = self.passed(scope, callee, formal, out);
            let fresh = self.fresh(&name);
            let placement = tensor.chain.last().map_or(Placement::None, |link| link.placement);
            out.push(Operation::Tensor { name: fresh.clone(), shape, placement });
            inner.insert(formal, fresh.clone());
            let state = states.entry(outer.clone()).or_default();
            if tensor.privilege.reads() {
                let waits = state.written.clone();
                let event = self.event();
                let text = format!("copy({outer_text}, {fresh})");
                out.push(Operation::Asynchronous { event, text, waits });
                let done = Wait { event, index: Vec::new() };
                state.read.push(done.clone());
                copied.push(done.clone());
                inner_states.insert(fresh.clone(), State { written: vec![done], read: Vec::new() });
            }
            if tensor.privilege.writes() {
                backs.push((fresh, outer, outer_text));
            }
        }
        if leaf {
            let event = self.event();
            let names: Vec<&str> = inner.values().map(String::as_str).collect();
            let text = format!("call({}, {})", task.variant_name(row.variant), names.join(", "));
            out.push(Operation::Asynchronous { event, text, waits: copied.clone() });
            let done = Wait { event, index: Vec::new() };
            for (fresh, ..) in &backs {
                inner_states.insert(fresh.clone(), State { written: vec![done.clone()], read: Vec::new() });
            }
        } else {
            let mut scope = Scope { call: callee, formals: inner, locals: BTreeMap::new() };
            self.body(&mut scope, body, &mut inner_states, out);
        }
        for (fresh, outer, outer_text) in backs {
            let mut waits = inner_states.get(&fresh).map(|state| state.written.clone()).unwrap_or_default();
            let state = states.entry(outer).or_default();
            // What has been read of it by this call is behind the callee already.
            let before: Vec<Wait> =
                state.read.iter().filter(|wait| !copied.contains(wait)).cloned().collect();
            add(&mut waits, &before);
            add(&mut waits, &state.written.iter().filter(|_| copied.is_empty()).cloned().collect::<Vec<_>>());
            let event = self.event();
            out.push(Operation::Asynchronous { event, text: format!("copy({fresh}, {outer_text})"), waits });
            *state = State { written: vec![Wait { event, index: Vec::new() }], read: Vec::new() };
        }
    }
}

/// The waits that no other of them implies by what its operation waits for.
fn latest(waits: Vec<Wait>, operations: &[Operation]) -> Vec<Wait> {
    let mut behind: BTreeMap<EventId, Vec<EventId>> = BTreeMap::new();
    for operation in operations {
        if let Operation::Asynchronous { event, waits, .. } | Operation::For { event, waits, .. } = operation
        {
            let direct = waits.iter().map(|wait| wait.event);
            let further = waits.iter().filter_map(|wait| behind.get(&wait.event)).flatten().copied();
            let all: Vec<EventId> = direct.chain(further).collect();
            behind.insert(*event, all);
        }
    }
    let implied = |wait: &Wait| {
        waits.iter().any(|other| behind.get(&other.event).is_some_and(|all| all.contains(&wait.event)))
    };
    waits.iter().filter(|wait| !implied(wait)).cloned().collect()
}

fn add(waits: &mut Vec<Wait>, more: &[Wait]) {
    for wait in more {
        if !waits.contains(wait) {
            waits.push(wait.clone());
        }
    }
}

/// The listing without its loops over warpgroups, warps and threads, which the hardware runs: from the inside out, each becomes its body, in which
/// the counter is the processor's number. Events inside gain a dimension, of which uses inside wait for their own entry; who waited for the
/// loop waits for all entries of what an iteration ended with.
pub fn vectorise(listing: &Listing) -> Listing {
    let mut events = listing.events.clone();
    let mut ends: BTreeMap<EventId, Vec<Wait>> = BTreeMap::new();
    let operations = flatten(&listing.operations, &mut events, &mut ends);
    Listing { events, operations }
}

fn flatten(
    operations: &[Operation],
    events: &mut [Vec<Dimension>],
    ends: &mut BTreeMap<EventId, Vec<Wait>>,
) -> Vec<Operation> {
    let mut out = Vec::new();
    for operation in operations {
        match operation {
            Operation::For { event, parallel, processor, head, counters, waits, body, yields } => {
                let mut body = flatten(body, events, ends);
                let mut yields = replaced(yields, ends);
                let waits = replaced(waits, ends);
                if !parallel || *processor <= Processor::Block {
                    let (event, parallel, processor) = (*event, *parallel, *processor);
                    let (head, counters) = (head.clone(), counters.clone());
                    out.push(Operation::For {
                        event,
                        parallel,
                        processor,
                        head,
                        counters,
                        waits,
                        body,
                        yields,
                    });
                    continue;
                }
                let dimensions = events[*event].clone();
                let inside = events_of(&body);
                for event in &inside {
                    events[*event].splice(0..0, dimensions.iter().cloned());
                }
                let own: Vec<At> = counters.iter().cloned().map(At::Own).collect();
                let point = |wait: &mut Wait| {
                    if inside.contains(&wait.event) {
                        wait.index.splice(0..0, own.iter().cloned());
                    }
                };
                each_wait(&mut body, &mut |waits_of: &mut Vec<Wait>| waits_of.iter_mut().for_each(point));
                // What the loop waited for, its first operations do.
                first_wait(&mut body, &inside, &waits);
                for wait in &mut yields {
                    if inside.contains(&wait.event) {
                        wait.index.splice(0..0, vec![At::All; counters.len()]);
                    }
                }
                ends.insert(*event, yields);
                let ids = counters
                    .iter()
                    .map(|counter| Operation::Id { counter: counter.clone(), processor: *processor });
                out.extend(ids);
                out.extend(body);
            }
            Operation::Asynchronous { event, text, waits } => out.push(Operation::Asynchronous {
                event: *event,
                text: text.clone(),
                waits: replaced(waits, ends),
            }),
            operation => out.push(operation.clone()),
        }
    }
    out
}

/// Waits with those for a flattened loop replaced by those for what its iterations ended with.
fn replaced(waits: &[Wait], ends: &BTreeMap<EventId, Vec<Wait>>) -> Vec<Wait> {
    let mut out = Vec::new();
    for wait in waits {
        match ends.get(&wait.event) {
            // The loop's own dimensions are first; what is waited for of the entries of loops around stays.
            Some(yields) => add(&mut out, yields),
            None => add(&mut out, std::slice::from_ref(wait)),
        }
    }
    out
}

fn events_of(operations: &[Operation]) -> Vec<EventId> {
    let mut out = Vec::new();
    for operation in operations {
        match operation {
            Operation::Asynchronous { event, .. } => out.push(*event),
            Operation::For { event, body, .. } => {
                out.push(*event);
                out.extend(events_of(body));
            }
            Operation::Tensor { .. } | Operation::Id { .. } => {}
        }
    }
    out
}

fn each_wait(operations: &mut [Operation], visit: &mut impl FnMut(&mut Vec<Wait>)) {
    for operation in operations {
        match operation {
            Operation::Asynchronous { waits, .. } => visit(waits),
            Operation::For { waits, body, yields, .. } => {
                visit(waits);
                visit(yields);
                each_wait(body, visit);
            }
            Operation::Tensor { .. } | Operation::Id { .. } => {}
        }
    }
}

/// Adds waits to the operations that wait for nothing inside.
fn first_wait(operations: &mut [Operation], inside: &[EventId], more: &[Wait]) {
    for operation in operations {
        if let Operation::Asynchronous { waits, .. } | Operation::For { waits, .. } = operation
            && !waits.iter().any(|wait| inside.contains(&wait.event))
        {
            add(waits, more);
        }
    }
}

impl Listing {
    /// The listing as text, in the form of the paper's figures 8 and 9.
    pub fn text(&self) -> String {
        // Events are numbered in the order of the text.
        let mut numbers = BTreeMap::new();
        fn number(operations: &[Operation], numbers: &mut BTreeMap<EventId, usize>) {
            for operation in operations {
                if let Operation::Asynchronous { event, .. } | Operation::For { event, .. } = operation {
                    let next = numbers.len() + 1;
                    numbers.insert(*event, next);
                }
                if let Operation::For { body, .. } = operation {
                    number(body, numbers);
                }
            }
        }
        number(&self.operations, &mut numbers);
        let mut out = String::new();
        self.lines(&self.operations, &numbers, 0, &mut out);
        out
    }

    fn lines(
        &self,
        operations: &[Operation],
        numbers: &BTreeMap<EventId, usize>,
        depth: usize,
        out: &mut String,
    ) {
        let indent = "  ".repeat(depth);
        let name = |event: &EventId| numbers.get(event).map_or("?".to_string(), |n| format!("e{n}"));
        let kind = |event: &EventId| {
            let dimensions: Vec<String> =
                self.events[*event].iter().map(|(extent, level)| format!("({extent}, {level})")).collect();
            if dimensions.is_empty() { "()".to_string() } else { format!("[{}]", dimensions.join(", ")) }
        };
        let list = |waits: &[Wait]| {
            let wait = |wait: &Wait| {
                let index: Vec<&str> = wait
                    .index
                    .iter()
                    .map(|at| match at {
                        At::Own(counter) => counter.as_str(),
                        At::All => ":",
                    })
                    .collect();
                let index = if index.is_empty() { String::new() } else { format!("[{}]", index.join(", ")) };
                format!("{}{index}", name(&wait.event))
            };
            waits.iter().map(wait).collect::<Vec<_>>().join(", ")
        };
        for operation in operations {
            *out += &match operation {
                Operation::Tensor { name, shape, placement: memory } => {
                    format!("{indent}{name} = tensor([{}], {})\n", shape.join(", "), memory)
                }
                Operation::Id { counter, processor } => format!("{indent}{counter} = {processor}_id()\n"),
                Operation::Asynchronous { event, text, waits } => {
                    format!("{indent}{}: {} = {text}, {{{}}}\n", name(event), kind(event), list(waits))
                }
                Operation::For { event, parallel, head, waits, body, yields, .. } => {
                    let word = if *parallel { "pfor" } else { "for" };
                    let mut text = format!(
                        "{indent}{}: {} = {word} {head}, {{{}}} do\n",
                        name(event),
                        kind(event),
                        list(waits)
                    );
                    self.lines(body, numbers, depth + 1, &mut text);
                    text += &format!("{indent}  yield {}\n", list(yields));
                    text
                }
            };
        }
    }
}
