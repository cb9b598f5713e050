//! Core program to text, which [`parse`](super::parse()) reads back to the same program. The words are those of the surface, and the
//! tables stand before the statements, in their order: `declare { … }` has the counters, and every tensor, pipeline and barrier with all that
//! is known of it. `define t` says where its life begins. A stage is `ab.produced` or `ab.consumed`, a copy that TMA does has the word
//! `tma`, and a role its threads in the block: `role load(threads 128..256, registers 40) { … }`.

use std::fmt::{self, Display, Write};

use tilewright_layout::Layout;
use tilewright_machine::DType;

use super::{BarrierId, Expr, ParamId, PipelineId, Program, SymbolId, TensorId, TensorKind};
use crate::printer::{self, Names, Printer, ints, list};
use crate::program::BarrierKind;

/// The extents as the surface writes them.
fn extents(shape: &[i64]) -> Vec<Expr> {
    shape.iter().copied().map(Expr::Int).collect()
}

impl Names for Program {
    fn symbol(&self, id: SymbolId) -> &str {
        self.symbols.get(&id).map_or("?", |s| &s.name)
    }

    fn param(&self, id: ParamId) -> &str {
        self.params.get(id.0 as usize).map_or("?", |p| &p.name)
    }

    fn tensor(&self, id: TensorId) -> &str {
        self.tensors.get(id.0 as usize).map_or("?", |t| &t.name)
    }

    fn pipeline(&self, id: PipelineId) -> &str {
        self.pipelines.get(id.0 as usize).map_or("?", |p| &p.name)
    }

    fn barrier(&self, id: BarrierId) -> &str {
        self.barriers.get(id.0 as usize).map_or("?", |b| &b.name)
    }

    fn barrier_kind(&self, _: BarrierId) -> BarrierKind {
        BarrierKind::Named
    }

    fn is_size(&self, id: SymbolId) -> bool {
        self.symbols.get(&id).is_some_and(|s| s.size.is_some())
    }

    fn is_unrolled(&self, _: SymbolId) -> bool {
        false
    }

    fn unrolled_by(&self, _: SymbolId) -> Option<&Expr> {
        None
    }

    fn dtype(&self, id: TensorId) -> Option<DType> {
        self.tensors.get(id.0 as usize).map(|t| t.dtype)
    }

    fn rank(&self, id: TensorId) -> usize {
        self.tensors.get(id.0 as usize).map_or(0, |t| match &t.kind {
            TensorKind::View { modes, .. } => modes.len(),
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape } => shape.len(),
        })
    }

    fn pinned(&self, id: TensorId) -> Option<&Layout> {
        match self.tensors.get(id.0 as usize).map(|t| &t.kind) {
            Some(TensorKind::Register { pinned, .. }) => pinned.as_ref(),
            _ => None,
        }
    }

    fn write_tensor(&self, out: &mut dyn Write, id: TensorId) -> fmt::Result {
        let Some(row) = self.tensors.get(id.0 as usize) else { return out.write_str("?") };
        match &row.kind {
            TensorKind::Register { shape, pinned } => {
                printer::fragment(out, self, ("register", row.dtype), &extents(shape), pinned.as_ref())
            }
            TensorKind::Shared { shape, pinned } => {
                printer::fragment(out, self, ("shared", row.dtype), &extents(shape), pinned.as_ref())
            }
            TensorKind::Tensor { shape } => printer::tensor_memory(out, self, row.dtype, &extents(shape)),
            TensorKind::View { param, offsets, ends, modes, fold } => {
                printer::view(out, self, *param, (offsets, ends), (modes, fold))
            }
        }
    }

    fn write_pipeline(&self, out: &mut dyn Write, id: PipelineId) -> fmt::Result {
        let Some(row) = self.pipelines.get(id.0 as usize) else { return out.write_str("?") };
        printer::pipeline(out, self, &Expr::Int(i64::from(row.stages)), &row.tensors)
    }

    fn unnamed(&self, id: TensorId) -> Option<&str> {
        self.tensors.get(id.0 as usize)?.unnamed.text()
    }
}

impl Program {
    /// Writes the counters, tensors, pipelines and barriers, each kind in the order of its table.
    fn write_declarations(&self, out: &mut dyn Write) -> fmt::Result {
        let counters = self.symbols.values().filter(|symbol| symbol.size.is_none());
        let counters: Vec<&str> = counters.map(|symbol| symbol.name.as_str()).collect();
        let none = self.tensors.is_empty() && self.pipelines.is_empty() && self.barriers.is_empty();
        if counters.is_empty() && none {
            return Ok(());
        }
        out.write_str("    declare {\n")?;
        if !counters.is_empty() {
            writeln!(out, "        counter {}", counters.join(", "))?;
        }
        for (i, row) in self.tensors.iter().enumerate() {
            write!(out, "        {} = ", row.name)?;
            self.write_tensor(out, TensorId(i as u32))?;
            out.write_str("\n")?;
        }
        for (i, row) in self.pipelines.iter().enumerate() {
            write!(out, "        {} = ", row.name)?;
            self.write_pipeline(out, PipelineId(i as u32))?;
            out.write_str("\n")?;
        }
        for row in &self.barriers {
            writeln!(out, "        {} = named_barrier()", row.name)?;
        }
        out.write_str("    }\n")
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> =
            self.sizes().map(|(_, symbol, default)| format!("{} = {default}", symbol.name)).collect();
        if !sizes.is_empty() {
            write!(f, "size {}\n\n", sizes.join(", "))?;
        }
        write!(f, "core {}(", self.name)?;
        list(f, &self.params, |out, p| printer::param(out, self, p))?;
        f.write_str(")\n    grid(")?;
        ints(f, self, &self.grid)?;
        write!(f, ") threads({}", self.threads)?;
        if self.resident != 1 {
            write!(f, ", {}", self.resident)?;
        }
        f.write_str(")")?;
        if self.cluster != [1] {
            let extents: Vec<String> = self.cluster.iter().map(u32::to_string).collect();
            write!(f, " cluster({})", extents.join(", "))?;
        }
        f.write_str("\n")?;
        self.write_declarations(f)?;
        f.write_str("{\n")?;
        let mut printer = Printer::declared(self);
        printer.block(f, &self.body, 1)?;
        for role in &self.roles {
            write!(f, "    role {}(threads {}..{}", role.name, role.first, role.first + role.threads)?;
            if let Some(registers) = role.registers {
                write!(f, ", registers {registers}")?;
            }
            f.write_str(") {\n")?;
            printer.block(f, &role.body, 2)?;
            f.write_str("    }\n")?;
        }
        f.write_str("}\n")
    }
}
