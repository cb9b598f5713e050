//! Partitions of a body at known values of its integers.

use std::collections::BTreeMap;

use tilewright_machine::Processor;
use tilewright_tile::{Code, Diagnostic, Expr, Origin, SymbolId};

use crate::environment::Environment;
use crate::partition::{Cut, Extent, Instruction, Partition, PartitionError};
use crate::program::{self, Inner, PartitionKind, ProcessorArg, Program};

/// The processors that tunables stand for.
pub type Processors = BTreeMap<SymbolId, Processor>;

/// The partition that a row of a body makes of a tensor of these extents. The extents of blocks must have values, but for those that are
/// written as the tensor's own.
///
/// # Errors
///
/// A partition that cannot be made, at its place.
pub fn partition(
    program: &Program,
    inner: &Inner,
    row: &program::Partition,
    extents: &[Extent],
    values: &Environment,
    processors: &Processors,
) -> Result<Partition, Diagnostic> {
    let level = |processor: &ProcessorArg| match processor {
        ProcessorArg::Level(level) => Ok(*level),
        ProcessorArg::Tunable(symbol) => processors.get(symbol).copied().ok_or_else(|| {
            let message = format!("the tunable `{}` has no value", program.symbol(*symbol).name);
            Diagnostic::new(Code::Tunable, row.span, message)
        }),
    };
    let refused = |error: PartitionError| refused(inner, row, row.span, &error);
    match &row.kind {
        PartitionKind::Blocks { shape } => {
            let own = &inner.tensor(row.tensor).shape;
            let mut cuts = Vec::with_capacity(shape.len());
            for (mode, extent) in shape.iter().enumerate() {
                let unknown = extents.get(mode) == Some(&None);
                cuts.push(match extent {
                    Expr::Int(1) => Cut::Index,
                    extent if unknown && own.get(mode) == Some(extent) => Cut::Whole,
                    extent => Cut::Block(values.value(program, extent, row.span)?),
                });
            }
            Partition::blocks(extents, &cuts).map_err(refused)
        }
        PartitionKind::Mma { instruction, processor, operand } => {
            let Some(found) = Instruction::named(instruction) else {
                let message = format!("there is no instruction `{instruction}`");
                return Err(Diagnostic::new(Code::UnknownName, row.span, message).help(
                    "an instruction is e.g. `wgmma_64x256x16` or `mma_16x8x16`: its family and M, N and K",
                ));
            };
            Partition::mma(extents, &found, level(processor)?, *operand).map_err(refused)
        }
        PartitionKind::Tv { layout, .. } => Partition::tv(extents, layout).map_err(refused),
    }
}

/// The message about a partition that cannot be made, or about a piece that it does not have.
pub fn refused(inner: &Inner, row: &program::Partition, span: Origin, error: &PartitionError) -> Diagnostic {
    let tensor = inner.tensor(row.tensor);
    let (name, of) = (&row.name, &tensor.name);
    let list = |values: &[i64]| values.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let pieces = |extents: &[Extent]| {
        let text = extents.iter().map(|extent| extent.map_or("?".to_string(), |extent| extent.to_string()));
        text.collect::<Vec<_>>().join(" × ")
    };
    let error = match error {
        PartitionError::Rank { rank, given } => {
            let message = format!("`{name}` cuts {given} modes, and `{of}` has {rank}");
            return Diagnostic::new(Code::WrongRank, span, message).related(tensor.span, "the tensor");
        }
        PartitionError::NotPositive { mode, extent } => {
            let message = format!("the blocks of `{name}` have {extent} coordinates along mode {mode}");
            return Diagnostic::new(Code::BadValue, span, message).help("an extent of a block is at least 1");
        }
        PartitionError::Bounds { colour, extents } if colour.len() != extents.len() => {
            let message =
                format!("`{name}` has pieces along {} modes, and {} are given", extents.len(), colour.len());
            return Diagnostic::new(Code::WrongRank, span, message).related(row.span, "the partition");
        }
        PartitionError::Bounds { colour, extents } => Diagnostic::new(
            Code::PartitionBounds,
            span,
            format!("piece [{}] of `{name}`, which has {} pieces", list(colour), pieces(extents)),
        )
        .related(row.span, "the partition"),
        other => Diagnostic::new(Code::PartitionBounds, span, format!("`{name}` cannot cut `{of}`: {other}")),
    };
    error.related(tensor.span, "the tensor")
}
