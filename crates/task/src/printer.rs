//! Task program to text: the canonical form, which [`parse`](crate::parse()) reads back to the same program.

use std::fmt::{self, Display, Write};

use tilewright_layout::Layout;
use tilewright_machine::DType;
use tilewright_tile::program::{BarrierId, BarrierKind, ParamId, PipelineId};
use tilewright_tile::{Expr, Names, SymbolId, body_text, expr_text, number_text};

use crate::mapping::{
    AttributeKind, Choice, Dimension, Instance, Mapping, Placement, Rasterization, SettingValue, Value,
};
use crate::program::{
    ArgumentKind, Body, FloatArg, FormalKind, Inner, Launch, LaunchId, LoopId, MmaOperand, PartitionKind,
    Piece, ProcessorArg, Program, Range, Stmt, StmtKind, Symbol, SymbolKind, Task,
};

/// The names of symbols; a task program has no other names that integer expressions or statements of tiles use.
struct SymbolNames<'a>(&'a [Symbol]);

impl Names for SymbolNames<'_> {
    fn symbol(&self, id: SymbolId) -> &str {
        self.0.get(id.0 as usize).map_or("?", |row| &row.name)
    }
    fn param(&self, _: ParamId) -> &str {
        "?"
    }
    fn tensor(&self, _: tilewright_tile::TensorId) -> &str {
        "?"
    }
    fn pipeline(&self, _: PipelineId) -> &str {
        "?"
    }
    fn barrier(&self, _: BarrierId) -> &str {
        "?"
    }
    fn barrier_kind(&self, _: BarrierId) -> BarrierKind {
        BarrierKind::Named
    }
    fn is_size(&self, _: SymbolId) -> bool {
        false
    }
    fn is_unrolled(&self, _: SymbolId) -> bool {
        false
    }
    fn unrolled_by(&self, _: SymbolId) -> Option<&Expr> {
        None
    }
    fn dtype(&self, _: tilewright_tile::TensorId) -> Option<DType> {
        None
    }
    fn rank(&self, _: tilewright_tile::TensorId) -> usize {
        0
    }
    fn pinned(&self, _: tilewright_tile::TensorId) -> Option<&Layout> {
        None
    }
    fn write_tensor(&self, out: &mut dyn Write, _: tilewright_tile::TensorId) -> fmt::Result {
        out.write_str("?")
    }
    fn write_pipeline(&self, out: &mut dyn Write, _: PipelineId) -> fmt::Result {
        out.write_str("?")
    }
    fn unnamed(&self, _: tilewright_tile::TensorId) -> Option<&str> {
        None
    }
}

impl Program {
    /// An integer expression in the program's names.
    pub fn expr(&self, expr: &Expr) -> String {
        expr_text(&SymbolNames(&self.symbols), expr)
    }

    /// Expressions with commas between.
    pub fn exprs(&self, exprs: &[Expr]) -> String {
        exprs.iter().map(|expr| self.expr(expr)).collect::<Vec<_>>().join(", ")
    }

    /// The piece of a launch in a variant, as it is written.
    pub fn piece(&self, inner: &Inner, piece: &Piece) -> String {
        match piece {
            Piece::Whole(tensor) => inner.tensor(*tensor).name.clone(),
            Piece::Part { partition, colours } => {
                format!("{}[{}]", inner.partition(*partition).name, self.exprs(colours))
            }
        }
    }

    /// A launch of a variant, as it is written.
    pub fn launch(&self, task: &Task, inner: &Inner, launch: &Launch) -> String {
        let argument = |kind: &ArgumentKind| match kind {
            ArgumentKind::Tensor { piece, when } => {
                let when = when.as_ref().map_or(String::new(), |when| format!(" when {}", self.expr(when)));
                self.piece(inner, piece) + &when
            }
            ArgumentKind::Integer(value) => self.expr(value),
            ArgumentKind::Float(value) => self.float(task, *value),
        };
        let arguments: Vec<String> = launch.arguments.iter().map(|a| argument(&a.kind)).collect();
        let label = launch.label.as_ref().map_or(String::new(), |label| format!("{label}: "));
        format!("{label}launch {}({})", self.task(launch.task).name, arguments.join(", "))
    }

    /// A number of type `f32` in a body of a task, as it is written.
    fn float(&self, task: &Task, value: FloatArg) -> String {
        match value {
            FloatArg::Formal(formal) => task.formals[formal].name.clone(),
            FloatArg::Constant(constant) => self.numbers[constant].name.clone(),
            FloatArg::Literal(value) => float_text(value),
        }
    }

    /// The head of a loop of a variant, as it is written.
    pub fn loop_head(&self, inner: &Inner, head: LoopId) -> String {
        let head = inner.head(head);
        let counters: Vec<&str> = head.counters.iter().map(|id| self.symbol(*id).name.as_str()).collect();
        let range = |range: &Range| match range.lo.as_int() {
            Some(0) => self.expr(&range.hi),
            _ => format!("{}..{}", self.expr(&range.lo), self.expr(&range.hi)),
        };
        let ranges: Vec<String> = head.ranges.iter().map(range).collect();
        format!("for {} in {}({})", counters.join(", "), head.kind.name(), ranges.join(", "))
    }

    /// The name by which a row of a mapping goes.
    pub fn instance_name(&self, instance: &Instance) -> String {
        instance.name.clone().unwrap_or_else(|| self.task(instance.task).variant_name(instance.variant))
    }

    fn declarations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self
            .symbols
            .iter()
            .filter_map(|symbol| match &symbol.kind {
                SymbolKind::Size(default) => Some(format!("{} = {default}", symbol.name)),
                _ => None,
            })
            .collect();
        for (i, symbol) in self.symbols.iter().enumerate() {
            match &symbol.kind {
                SymbolKind::Constant(default) => {
                    writeln!(f, "const {} = {}", symbol.name, self.expr(default))?;
                }
                SymbolKind::Size(default) => {
                    let first = !matches!(
                        i.checked_sub(1).map(|before| &self.symbols[before].kind),
                        Some(SymbolKind::Size(_))
                    );
                    let last =
                        !matches!(self.symbols.get(i + 1).map(|next| &next.kind), Some(SymbolKind::Size(_)));
                    write!(f, "{}{} = {default}", if first { "size " } else { ", " }, symbol.name)?;
                    f.write_str(if last { "\n" } else { "" })?;
                }
                _ => {}
            }
        }
        for number in &self.numbers {
            writeln!(f, "const {} = {}", number.name, float_text(number.value))?;
        }
        let declared = !sizes.is_empty()
            || !self.numbers.is_empty()
            || self.symbols.iter().any(|symbol| matches!(symbol.kind, SymbolKind::Constant(_)));
        f.write_str(if declared { "\n" } else { "" })
    }

    fn formals(&self, task: &Task) -> String {
        let formal = |formal: &crate::program::Formal| match &formal.kind {
            FormalKind::Tensor { privilege, dtype, shape } => {
                format!("{}: {} {dtype}[{}]", formal.name, privilege.name(), self.exprs(shape))
            }
            FormalKind::Float(default) => {
                let default = default.map_or(String::new(), |value| format!(" = {}", float_text(value)));
                format!("{}: f32{default}", formal.name)
            }
            FormalKind::Integer(symbol) => {
                let default = match self.symbol(*symbol).kind {
                    SymbolKind::Scalar(Some(value)) => format!(" = {value}"),
                    _ => String::new(),
                };
                format!("{}: i32{default}", formal.name)
            }
        };
        task.formals.iter().map(formal).collect::<Vec<_>>().join(", ")
    }

    fn body(
        &self,
        f: &mut fmt::Formatter<'_>,
        at: (&Task, &Inner),
        body: &[Stmt],
        depth: usize,
    ) -> fmt::Result {
        let (task, inner) = at;
        for stmt in body {
            // The tensor says what it is filled with.
            if matches!(stmt.kind, StmtKind::Launch(id) if self.task(inner.launch(id).task).fills) {
                continue;
            }
            write!(f, "{:width$}", "", width = 4 * depth)?;
            let name = |id: &SymbolId| self.symbol(*id).name.as_str();
            match &stmt.kind {
                StmtKind::Tunable(symbols) => {
                    let tunable = |id: &SymbolId| match self.symbol(*id).kind {
                        SymbolKind::TunableProcessor => format!("{}: processor", name(id)),
                        _ => name(id).to_string(),
                    };
                    let tunables: Vec<String> = symbols.iter().map(tunable).collect();
                    writeln!(f, "tunable {}", tunables.join(", "))?;
                }
                StmtKind::Let { symbol, value } => writeln!(f, "{} = {}", name(symbol), self.expr(value))?,
                StmtKind::Tensor(id) => {
                    let tensor = inner.tensor(*id);
                    let shape = self.exprs(&tensor.shape);
                    let value = tensor.value.map(|value| format!(", {}", self.float(task, value)));
                    let value = value.unwrap_or_default();
                    writeln!(f, "{} = tensor({}, [{shape}]{value})", tensor.name, tensor.dtype)?;
                }
                StmtKind::Partition(id) => {
                    let partition = inner.partition(*id);
                    let of = &inner.tensor(partition.tensor).name;
                    write!(f, "{} = ", partition.name)?;
                    let processor = |processor: &ProcessorArg| match processor {
                        ProcessorArg::Level(level) => level.name(),
                        ProcessorArg::Tunable(symbol) => name(symbol),
                    };
                    match &partition.kind {
                        PartitionKind::Blocks { shape } => {
                            writeln!(f, "blocks({of}, [{}])", self.exprs(shape))?;
                        }
                        PartitionKind::Mma { instruction, processor: level, operand } => {
                            let operand = match operand {
                                MmaOperand::A => "A",
                                MmaOperand::B => "B",
                                MmaOperand::C => "C",
                            };
                            writeln!(f, "mma({of}, {instruction}, {}, {operand})", processor(level))?;
                        }
                        PartitionKind::Tv { layout, processor: level } => {
                            writeln!(f, "tv({of}, {layout}, {})", processor(level))?;
                        }
                    }
                }
                StmtKind::Launch(id) => writeln!(f, "{}", self.launch(task, inner, inner.launch(*id)))?,
                StmtKind::For { head, body } => {
                    writeln!(f, "{} {{", self.loop_head(inner, *head))?;
                    self.body(f, at, body, depth + 1)?;
                    writeln!(f, "{:width$}}}", "", width = 4 * depth)?;
                }
            }
        }
        Ok(())
    }

    fn task_text(&self, f: &mut fmt::Formatter<'_>, task: &Task) -> fmt::Result {
        writeln!(f, "task {}({}) {{", task.name, self.formals(task))?;
        for variant in &task.variants {
            match &variant.body {
                Body::Inner(inner) => {
                    writeln!(f, "    inner {} {{", variant.name)?;
                    self.body(f, (task, inner), &inner.statements, 2)?;
                }
                Body::Leaf(leaf) => {
                    writeln!(f, "    leaf {} {{", variant.name)?;
                    f.write_str(&body_text(&leaf.fragment, &leaf.fragment.body, 2))?;
                }
            }
            f.write_str("    }\n")?;
        }
        f.write_str("}\n")
    }

    /// A mapping, as it is written.
    pub fn mapping(&self, mapping: &Mapping) -> String {
        let mut text = format!("mapping {} for {} {{\n", mapping.name, mapping.arch);
        for instance in &mapping.instances {
            text += &format!("    {}\n", self.instance(mapping, instance));
        }
        text + "}\n"
    }

    /// A row of a mapping, as it is written.
    pub fn instance(&self, mapping: &Mapping, instance: &Instance) -> String {
        let mut text = String::new();
        let task = self.task(instance.task);
        let inner = &task.body(instance.variant);
        if instance.entry {
            text += "entry ";
        }
        if let Some(name) = &instance.name {
            text += &format!("{name} = ");
        }
        text += &self.task(instance.task).variant_name(instance.variant);
        if let Some(processor) = instance.processor {
            text += &format!(" on {processor}");
        }
        if let Some(memories) = &instance.memories {
            let memories: Vec<String> = memories.iter().map(Placement::to_string).collect();
            text += &format!("({})", memories.join(", "));
        }
        if !instance.tunables.is_empty() {
            text += &format!(" {{ {} }}", self.settings(instance));
        }
        for attribute in &instance.attributes {
            text += &format!(" {}", self.attribute(inner, &attribute.kind));
        }
        if !instance.callees.is_empty() {
            let callee = |callee: &crate::mapping::Callee| {
                let name = self.instance_name(mapping.instance(callee.instance));
                match callee.launch {
                    Some(launch) => format!("{} = {name}", self.label(inner, launch)),
                    None => name,
                }
            };
            let callees: Vec<String> = instance.callees.iter().map(callee).collect();
            text += &format!(" -> {}", callees.join(", "));
        }
        text
    }

    /// The tunables of a row with their values.
    pub(crate) fn settings(&self, instance: &Instance) -> String {
        let setting = |setting: &crate::mapping::Setting| {
            let value = match &setting.value {
                SettingValue::Integer(value) => self.expr(value),
                SettingValue::Processor(processor) => processor.to_string(),
            };
            format!("{} = {value}", self.symbol(setting.tunable).name)
        };
        instance.tunables.iter().map(setting).collect::<Vec<_>>().join(", ")
    }

    fn label<'a>(&self, inner: &'a Inner, launch: LaunchId) -> &'a str {
        inner.launch(launch).label.as_deref().unwrap_or("?")
    }

    /// The counter by which a loop is named.
    fn counter(&self, inner: &Inner, head: LoopId) -> &str {
        inner.head(head).counters.first().map_or("?", |id| &self.symbol(*id).name)
    }

    /// An attribute of a row, as it is written.
    pub(crate) fn attribute(&self, inner: &Inner, attribute: &AttributeKind) -> String {
        match attribute {
            AttributeKind::Warpspecialize { warpgroups: None, .. } => "warpspecialize".to_string(),
            AttributeKind::Warpspecialize { warpgroups: Some(warpgroups), store } => {
                let store = if *store { ", store" } else { "" };
                format!("warpspecialize({}{store})", self.expr(warpgroups))
            }
            AttributeKind::Pipeline { head, least, most } => {
                let head = head.map_or(String::new(), |head| format!("{}: ", self.counter(inner, head)));
                let stages = match least == most {
                    true => self.expr(most),
                    false => format!("{}..{}", self.expr(least), self.expr(most)),
                };
                format!("pipeline({head}{stages})")
            }
            AttributeKind::Shared(bytes) => format!("shared <= {}", self.expr(bytes)),
            AttributeKind::Warps(warps) => format!("warps({})", self.expr(warps)),
            AttributeKind::Persistent(None) => "persistent".to_string(),
            AttributeKind::Persistent(Some(order)) => format!("persistent({})", self.rasterization(order)),
            AttributeKind::Order(order) => format!("order({})", self.rasterization(order)),
            AttributeKind::Cluster { counter, blocks } => {
                format!("cluster({} = {})", self.symbol(*counter).name, self.expr(blocks))
            }
            AttributeKind::Late { launch, head } => {
                let head = head.map_or(String::new(), |head| format!(", {}", self.counter(inner, head)));
                format!("late({}{head})", self.label(inner, *launch))
            }
            AttributeKind::InFlight(groups) => format!("in_flight({})", self.expr(groups)),
            AttributeKind::Local { tensor, placement } => {
                format!("local({} = {placement})", inner.tensor(*tensor).name)
            }
            AttributeKind::Layout { tensor, layout } => {
                format!("layout({} = {layout})", inner.tensor(*tensor).name)
            }
            AttributeKind::Registers { load, compute } => {
                format!("registers({}, {})", self.expr(load), self.expr(compute))
            }
            AttributeKind::Space(dimensions) => {
                let dimensions: Vec<String> =
                    dimensions.iter().map(|dimension| self.dimension(inner, dimension)).collect();
                format!("space {{ {} }}", dimensions.join(", "))
            }
        }
    }

    fn rasterization(&self, order: &Rasterization) -> String {
        match order {
            Rasterization::Grouped { rows, serpentine } => {
                let serpentine = if *serpentine { ", serpentine" } else { "" };
                format!("grouped({}{serpentine})", self.expr(rows))
            }
            Rasterization::Hilbert { order } => format!("hilbert({})", self.expr(order)),
        }
    }

    fn dimension(&self, inner: &Inner, dimension: &Dimension) -> String {
        let choice = match dimension.choice {
            Choice::Tunable(symbol) => self.symbol(symbol).name.as_str(),
            choice => choice.word().unwrap_or_default(),
        };
        let value = |value: &Value| match *value {
            Value::Launch(None) => "none".to_string(),
            Value::Launch(Some(launch)) => self.label(inner, launch).to_string(),
            Value::Integers { first, last, step: 1 } if first == last => first.to_string(),
            Value::Integers { first, last, step: 1 } => format!("{first}..{last}"),
            Value::Integers { first, last, step } => format!("{first}..{last} step {step}"),
        };
        let values: Vec<String> = dimension.values.iter().map(value).collect();
        format!("{choice} = {}", values.join(" | "))
    }
}

/// A number that is not an integer of the language, with a fraction or an exponent.
fn float_text(value: f64) -> String {
    let text = number_text(value);
    if text.contains(['.', 'e', 'n']) { text } else { format!("{text}.0") }
}

impl Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::None => f.write_str("none"),
            Placement::In(memory) => memory.fmt(f),
        }
    }
}

/// The canonical text form.
impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.declarations(f)?;
        for (i, task) in self.tasks.iter().filter(|task| !task.fills).enumerate() {
            f.write_str(if i > 0 { "\n" } else { "" })?;
            self.task_text(f, task)?;
        }
        for mapping in &self.mappings {
            f.write_str("\n")?;
            f.write_str(&self.mapping(mapping))?;
        }
        Ok(())
    }
}
