//! Checks of roles, pipelines and loops over tiles.

use crate::program::{PipelineId, Program, Side, Stmt, StmtKind};

/// The roles of a program, by their numbers in the order of the text, each pipeline's producer before its consumer; among several
/// the first of the text. `None` where roles wait for each other in a circle.
pub(crate) fn role_order(program: &Program) -> Option<Vec<usize>> {
    let roles: Vec<&Stmt> =
        program.body.iter().filter(|stmt| matches!(stmt.kind, StmtKind::Role { .. })).collect();
    let stages: Vec<Vec<(PipelineId, Side)>> = roles.iter().map(|role| stages_of(&role.kind)).collect();
    let mut order = Vec::new();
    while order.len() < roles.len() {
        let is_next = |role: &usize| {
            let consumes = |id: PipelineId| stages[*role].contains(&(id, Side::Consume));
            let waits = |other: &usize| {
                stages[*other].iter().any(|(id, side)| *side == Side::Produce && consumes(*id))
            };
            !order.contains(role) && !(0..roles.len()).any(|other| !order.contains(&other) && waits(&other))
        };
        order.push((0..roles.len()).find(is_next)?);
    }
    Some(order)
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
