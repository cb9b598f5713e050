//! Multi-buffering: adds a stage mode to the tensors of pipelines.
//!
//! Keeps: its meaning, and every id. Tensors that have it already stay as they are. Afterwards each shared tensor of a pipeline has one more
//! mode, its last: the stages. In a `produce` or `consume` every reference to it fixes that mode at the [`Slot`].

use std::collections::BTreeMap;

use tilewright_layout::SwizzledLayout;

use super::{Changed, Coord, OperandMut, PipelineId, Program, Slot, Stmt, StmtKind, TensorId, TensorKind};

/// Adds the stages of pipelines to their tensors as a mode.
pub fn multi_buffer(program: &mut Program) -> Changed {
    let mut staged = BTreeMap::new();
    let before = program.staged();
    for (i, pipeline) in program.pipelines.iter().enumerate() {
        for tensor in pipeline.tensors.iter().filter(|id| !before.contains(id)) {
            if let TensorKind::Shared { shape, pinned } = &mut program.tensors[tensor.0 as usize].kind {
                staged.insert(*tensor, (PipelineId(i as u32), shape.len()));
                shape.push(i64::from(pipeline.stages));
                *pinned = pinned.as_ref().and_then(|layout| with_stages(layout, shape));
            }
        }
    }
    program.bodies_mut().for_each(|body| block(body, &staged, &mut Vec::new()));
    Changed::from(!staged.is_empty())
}

/// The layout of a tensor whose last mode is its stages, from a pinned one of a single stage.
fn with_stages(layout: &SwizzledLayout, shape: &[i64]) -> Option<SwizzledLayout> {
    layout.with_stages(shape, &[shape.len() - 1], layout.stage_distance(1)?).ok()
}

fn block(body: &mut [Stmt], staged: &BTreeMap<TensorId, (PipelineId, usize)>, open: &mut Vec<Slot>) {
    for stmt in body {
        let depth = open.len();
        if let StmtKind::Stage { pipeline, side, .. } = &stmt.kind {
            open.push(Slot { pipeline: *pipeline, side: *side });
        }
        for operand in stmt.kind.operands_mut() {
            match operand {
                OperandMut::Reference(_, r) => {
                    let Some((pipeline, rank)) = staged.get(&r.tensor) else { continue };
                    let Some(slot) = open.iter().find(|slot| slot.pipeline == *pipeline) else { continue };
                    r.index.resize(*rank, None);
                    r.index.push(Some(Coord::Slot(*slot)));
                }
                OperandMut::Body(body) => block(body, staged, open),
                _ => {}
            }
        }
        open.truncate(depth);
    }
}
