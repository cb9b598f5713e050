//! Stages of pipelines and statements of roles, as the checks note them.

use std::collections::BTreeSet;

use crate::diagnostic::Origin;
use crate::program::{PipelineId, Side, StmtKind, TensorId};

/// A stage that is open.
pub(super) struct OpenStage {
    pub(super) pipeline: PipelineId,
    pub(super) side: Side,
    /// The tensors of it that have been written.
    pub(super) written: BTreeSet<TensorId>,
}

/// A `produce` or `consume`, and the role it stands in, by its number.
pub(super) struct Use {
    pub(super) pipeline: PipelineId,
    pub(super) side: Side,
    pub(super) role: Option<usize>,
    pub(super) span: Origin,
}

/// The statements of a role, as far as products in tensor memory ask for them.
#[derive(Default)]
pub(super) struct Issues {
    /// The first such product.
    pub(super) product: Option<(TensorId, Origin)>,
    /// The first statement that threads do together.
    pub(super) together: Option<Origin>,
}

/// The word of a side.
pub(super) fn word(side: Side) -> &'static str {
    match side {
        Side::Produce => "produce",
        Side::Consume => "consume",
    }
}

/// The stages in a statement, each pipeline's sides once.
pub(super) fn stages_of(kind: &StmtKind) -> Vec<(PipelineId, Side)> {
    let mut all = Vec::new();
    let mut add = |found: Vec<(PipelineId, Side)>| {
        for stage in found {
            if !all.contains(&stage) {
                all.push(stage);
            }
        }
    };
    if let StmtKind::Stage { pipeline, side, .. } = kind {
        add(vec![(*pipeline, *side)]);
    }
    kind.body().iter().for_each(|stmt| add(stages_of(&stmt.kind)));
    all
}
