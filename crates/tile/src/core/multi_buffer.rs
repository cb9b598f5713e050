//! Multi-buffering: adds a stage mode to the tensors of pipelines.
//!
//! Needs: no tensor of a pipeline has one yet. Keeps: its meaning, and every id. Afterwards each shared tensor of a pipeline has one more
//! mode, its last: the stages. In a `produce` or `consume` every reference to it fixes that mode at the [`Slot`].

use std::collections::BTreeMap;

use tilewright_layout::{Layout, SwizzledLayout};

use super::{Changed, Coord, OperandMut, PipelineId, Program, Slot, Stmt, StmtKind, TensorId, TensorKind};

/// Adds the stages of pipelines to their tensors as a mode.
pub fn multi_buffer(program: &mut Program) -> Changed {
    let mut staged = BTreeMap::new();
    for (i, pipeline) in program.pipelines.iter().enumerate() {
        for tensor in &pipeline.tensors {
            if let TensorKind::Shared { shape, pinned } = &mut program.tensors[tensor.0 as usize].kind {
                staged.insert(*tensor, (PipelineId(i as u32), shape.len()));
                shape.push(i64::from(pipeline.stages));
                *pinned = pinned.as_ref().and_then(|layout| with_stages(layout, i64::from(pipeline.stages)));
            }
        }
    }
    program.bodies_mut().for_each(|body| block(body, &staged, &mut Vec::new()));
    Changed::from(!staged.is_empty())
}

/// A pinned layout of one stage, repeated: stages begin at multiples of what the swizzle repeats after.
fn with_stages(layout: &SwizzledLayout, stages: i64) -> Option<SwizzledLayout> {
    let swizzle = layout.swizzle;
    let period = 1i64 << (swizzle.bits() + swizzle.base() + swizzle.shift());
    let apart = layout.layout.cosize().checked_add(period - 1)? / period * period;
    let stages = Layout::from_leaves(&[(stages, apart)]).ok()?;
    let mut modes =
        (0..layout.layout.rank()).map(|i| layout.layout.mode(i)).collect::<Result<Vec<_>, _>>().ok()?;
    modes.push(stages);
    Some(SwizzledLayout { layout: Layout::concat(&modes).ok()?, swizzle })
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
