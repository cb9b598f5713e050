//! The map of a block's tensor memory: its tensors side by side, each with the stages of its pipeline, and the scales of block-scaled products.
//!
//! The scales of a product have columns of their own once, whatever the stages of the shared tensor that they come from: the thread that issues the products copies them
//! there in turn with its products. Products of one role that read the same shared tensor share the columns.

use std::collections::BTreeMap;

use tilewright_machine::{Memory, SumsScaling, TensorMemory};
use tilewright_tile::core::{Program, Stmt, StmtKind};
use tilewright_tile::{Code, Diagnostic, PipelineId, StmtId, TensorId};

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
    /// The first columns of the scales of A and of B, by product.
    pub scales: BTreeMap<StmtId, [u32; 2]>,
    /// The shared tensors of scales, each with the first of its columns and their number.
    pub scale_tensors: Vec<(TensorId, u32, u32)>,
}

/// The columns of scales so far.
struct ScaleColumns<'a> {
    whole: &'a Program,
    end: u32,
    by_product: BTreeMap<StmtId, [u32; 2]>,
    tensors: Vec<(TensorId, u32, u32)>,
}

impl ScaleColumns<'_> {
    /// Places the scales of the products of a body, given those that its part has.
    fn body(&mut self, body: &[Stmt], placed: &mut BTreeMap<TensorId, u32>) {
        for stmt in body {
            if let StmtKind::GemmAsync { scales: Some(scales), .. } = &stmt.kind {
                let columns = scales.each_ref().map(|scale| {
                    *placed.entry(scale.tensor).or_insert_with(|| {
                        let [rows, of_row] = self.whole.tile(scale).shape[..] else { return self.end };
                        let (first, columns) = (self.end, SumsScaling::columns(rows, of_row));
                        self.tensors.push((scale.tensor, first, columns));
                        self.end = self.end.saturating_add(columns);
                        first
                    })
                });
                self.by_product.insert(stmt.id, columns);
            }
            self.body(stmt.kind.body(), placed);
        }
    }
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
    let mut scales = ScaleColumns { whole, end, by_product: BTreeMap::new(), tensors: Vec::new() };
    for body in std::iter::once(&whole.body).chain(whole.roles().iter().map(|role| &role.body)) {
        scales.body(body, &mut BTreeMap::new());
    }
    let ScaleColumns { end, by_product, tensors: scale_tensors, .. } = scales;
    let Some(columns) = TensorMemory::allocation(end) else {
        let of_scales =
            scale_tensors.iter().map(|(id, _, columns)| format!("`{}` {columns}", whole.tensor(*id).name));
        let list: Vec<String> = tensors
            .iter()
            .map(|(id, columns)| {
                let stages = whole.pipeline(columns.pipeline).stages;
                format!("`{}` {} × {stages}", whole.tensor(*id).name, columns.stage)
            })
            .chain(of_scales)
            .collect();
        let message = format!(
            "the block's tensor memory takes {end} columns, and a multiprocessor has {}",
            TensorMemory::COLUMNS
        );
        let help = format!("make the tiles narrower or the stages fewer; in columns: {}", list.join(", "));
        return Err(Diagnostic::new(Code::Unsatisfiable, span, message).help(help));
    };
    Ok(Some(TensorMemoryMap { columns, word: 0, tensors, scales: by_product, scale_tensors }))
}
