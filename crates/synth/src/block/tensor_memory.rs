//! The map of a block's tensor memory: its tensors side by side, each with the stages of its pipeline.

use std::collections::BTreeMap;

use tilewright_machine::{Memory, TensorMemory};
use tilewright_tile::core::Program;
use tilewright_tile::{Code, Diagnostic, PipelineId, TensorId};

/// The place of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns {
    /// The pipeline of which it is a stage.
    pub pipeline: PipelineId,
    /// The first column.
    pub first: u32,
    /// Columns of a stage.
    pub stage: u32,
    /// Those of all stages.
    pub all: u32,
}

/// The map of tensor memory.
#[derive(Clone, Debug)]
pub struct TensorMemoryMap {
    /// Columns that are allocated.
    pub columns: u32,
    /// The word of shared memory that gets their address.
    pub word: u32,
    /// The tensors.
    pub tensors: BTreeMap<TensorId, Columns>,
}

/// Places the tensors; `None` where there are none. The word is placed by the map of shared memory.
///
/// # Errors
///
/// More columns than there are.
pub fn map(whole: &Program) -> Result<Option<TensorMemoryMap>, Diagnostic> {
    let (mut tensors, mut end, mut span) = (BTreeMap::new(), 0u32, None);
    for (i, pipeline) in whole.pipelines.iter().enumerate() {
        for id in pipeline.tensors.iter().filter(|id| whole.tensor(**id).memory() == Memory::Tensor) {
            let stage = whole.shape(*id).get(1).map_or(0, |n| *n as u32);
            let all = stage.saturating_mul(pipeline.stages);
            tensors.insert(*id, Columns { pipeline: PipelineId(i as u32), first: end, stage, all });
            end = end.saturating_add(all);
            span = span.or(Some(whole.tensor(*id).span));
        }
    }
    let Some(span) = span else { return Ok(None) };
    let Some(columns) = TensorMemory::allocation(end) else {
        let list: Vec<String> = tensors
            .iter()
            .map(|(id, columns)| {
                let stages = whole.pipeline(columns.pipeline).stages;
                format!("`{}` {} × {stages}", whole.tensor(*id).name, columns.stage)
            })
            .collect();
        let message = format!(
            "the block's tensor memory takes {end} columns, and a multiprocessor has {}",
            TensorMemory::COLUMNS
        );
        let help = format!("make the tiles narrower or the stages fewer; in columns: {}", list.join(", "));
        return Err(Diagnostic::new(Code::Unsatisfiable, span, message).help(help));
    };
    Ok(Some(TensorMemoryMap { columns, word: 0, tensors }))
}
