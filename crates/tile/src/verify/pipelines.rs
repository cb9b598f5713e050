//! Checks of pipelines and their stages.

use std::collections::BTreeSet;

use super::checker::Checker;
use super::stage::{OpenStage, Use, word};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::{PipelineId, Side, Stmt, StmtKind, TensorId, TensorKind};

/// The most stages of a pipeline.
const MAX_STAGES: i64 = 64;

impl Checker<'_> {
    /// A statement in a `consume` writes a tensor of the stage at hand.
    fn held_stage_is_written(
        &mut self,
        id: TensorId,
        pipeline: PipelineId,
        asynchronous: bool,
        span: Origin,
    ) {
        let (name, row) = (self.name(id), self.pipeline_name(pipeline));
        if asynchronous {
            let message = format!("`{name}` is filled by an asynchronous copy in `consume {row}`");
            self.misplaced(
                span,
                message,
                "a stage is filled in `produce`; the role that holds it writes to it with `copy` from registers",
            );
            return;
        }
        self.rewritten.entry(pipeline).or_insert((id, span));
    }

    /// A stage that its consumer writes is read by nobody else.
    fn rewritten_stages(&mut self) {
        let program = self.program;
        for (pipeline, (id, span)) in std::mem::take(&mut self.rewritten) {
            let consumes = |at: &&Use| at.pipeline == pipeline && at.side == Side::Consume;
            let roles: BTreeSet<Option<usize>> =
                self.uses.iter().filter(consumes).map(|at| at.role).collect();
            if roles.len() < 2 {
                continue;
            }
            let names: Vec<String> =
                roles.iter().flatten().map(|role| format!("`{}`", self.role_names[*role])).collect();
            let message = format!(
                "`{}` is written in `consume {}`, and the roles {} all read the stage",
                self.name(id),
                program.pipeline(pipeline).name,
                names.join(" and ")
            );
            self.misplaced(
                span,
                message,
                "a role writes to a stage that it alone reads; else write to a shared tensor of its own",
            );
        }
    }

    /// `p = pipeline(stages, tensors…)`.
    pub(super) fn pipeline(&mut self, id: PipelineId, span: Origin) {
        let program = self.program;
        let row = program.pipeline(id);
        let name = &row.name;
        if std::mem::replace(&mut self.piped[id.0 as usize], true) {
            let message = format!("`{name}` is defined twice");
            self.report(Diagnostic::new(Code::DuplicateName, span, message).help("remove one definition"));
        }
        let what = format!("the number of stages of `{name}`");
        if let Some(stages) = self.literal(&row.stages, span, &what)
            && !(1..=MAX_STAGES).contains(&stages)
        {
            let message = format!("{what} is {stages}; it must be from 1 to {MAX_STAGES}");
            self.report(Diagnostic::new(Code::BadValue, span, message).help("2 to 8 are usual"));
        }
        self.one_memory(&row.tensors, name, span);
        for (i, tensor) in row.tensors.iter().enumerate() {
            if !self.exists(*tensor, span) {
                continue;
            }
            let of = program.tensor(*tensor);
            if !matches!(of.kind, TensorKind::Shared { .. } | TensorKind::Tensor { .. }) {
                let message =
                    format!("a stage is made of shared tensors; `{}` is in {} memory", of.name, of.memory());
                self.report(
                    Diagnostic::new(Code::WrongMemory, span, message)
                        .related(of.span, "defined here")
                        .help("define it with `shared_tensor`"),
                );
            }
            let first = self.stage_of[tensor.0 as usize];
            if first != Some(id) || row.tensors[..i].contains(tensor) {
                let first = self.pipeline_name(first.unwrap_or(id));
                let message = format!("`{}` is a stage of `{first}` already", of.name);
                let help = "each shared tensor belongs to one pipeline, once";
                self.report(Diagnostic::new(Code::DuplicateName, span, message).help(help));
            }
        }
    }

    /// `produce p { … }`, `consume p { … }`.
    pub(super) fn stage(
        &mut self,
        (pipeline, side): (PipelineId, Side),
        body: &[Stmt],
        threads: Option<u32>,
        span: Origin,
    ) {
        let program = self.program;
        let name = self.pipeline_name(pipeline);
        if !self.piped[pipeline.0 as usize] {
            let message = format!("the pipeline `{name}` is used before it is defined");
            self.report(
                Diagnostic::new(Code::UnknownName, span, message).help("define it on an earlier line"),
            );
        }
        if let Some(outer) = self.stages.iter().find(|stage| stage.pipeline == pipeline) {
            let message = format!("`{} {name}` inside `{} {name}`", word(side), word(outer.side));
            self.misplaced(span, message, "one stage of a pipeline at a time");
        }
        self.uses.push(Use { pipeline, side, role: self.role, span });
        self.stages.push(OpenStage { pipeline, side, written: BTreeSet::new() });
        self.block(body, threads, "stage");
        let Some(stage) = self.stages.pop() else { return };
        if side == Side::Produce {
            for tensor in program.pipeline(pipeline).tensors.iter().filter(|t| !stage.written.contains(t)) {
                if self.broken[tensor.0 as usize] {
                    continue;
                }
                let message = format!("a stage of `{name}` is handed on without `{}`", self.name(*tensor));
                let help = format!("every `produce {name}` writes all tensors of the stage");
                self.misplaced(span, message, help);
            }
        }
    }

    /// Each pipeline leads from one role to one or several others.
    pub(super) fn uses(&mut self) {
        self.rewritten_stages();
        self.filled_ahead();
        let program = self.program;
        let roles = !self.role_names.is_empty();
        let name = |role: Option<usize>| role.map_or("", |role| self.role_names[role]);
        let mut errors = Vec::new();
        for (i, row) in program.pipelines.iter().enumerate() {
            let of = |side| {
                self.uses.iter().filter(move |at| at.pipeline == PipelineId(i as u32) && at.side == side)
            };
            let producer = of(Side::Produce).next();
            if let Some(first) = producer {
                if let Some(other) = of(Side::Produce).find(|at| at.role != first.role) {
                    let (first_name, other_name) = (name(first.role), name(other.role));
                    let message = format!(
                        "the roles `{first_name}` and `{other_name}` both fill stages of `{}`",
                        row.name
                    );
                    let help = "stages are filled in one order, which one role gives them: \
                                a pipeline for each producing role";
                    errors.push((other.span, message, help.to_string(), Some((first.span, first_name))));
                } else if let Some(at) = of(Side::Consume).find(|at| roles && at.role == first.role) {
                    let message =
                        format!("the role `{}` both fills and reads stages of `{}`", name(at.role), row.name);
                    let help = "a pipeline leads to other roles; within a role a shared tensor and \
                                `syncthreads` do";
                    errors.push((at.span, message, help.to_string(), None));
                }
            }
            let consumer = of(Side::Consume).next();
            for (user, verb, word) in [(producer, "fills", "produce"), (consumer, "reads", "consume")] {
                if user.is_none() && self.piped[i] {
                    let message = format!("nothing {verb} the stages of `{}`", row.name);
                    errors.push((row.span, message, format!("there is no `{word} {}`", row.name), None));
                }
            }
        }
        for (span, message, help, related) in errors {
            let diagnostic = Diagnostic::new(Code::Misplaced, span, message).help(help);
            self.report(match related {
                Some((span, role)) => diagnostic.related(span, format!("`{role}` fills one here")),
                None => diagnostic,
            });
        }
    }

    /// In a `produce` a stage is only written. In a `consume` the one role that reads the pipeline may write a stage too, by `copy`.
    pub(super) fn accesses(&mut self, stmt: &Stmt) {
        for (ids, side) in [(stmt.kind.reads(), Side::Produce), (stmt.kind.writes(), Side::Consume)] {
            for id in ids {
                let sums = self.in_tensor_memory(id);
                let stage = self.stage_of[self.base(id).0 as usize];
                let open = self.stages.iter_mut().rev().find(|open| Some(open.pipeline) == stage);
                let Some(open) = open else { continue };
                if side == Side::Consume && open.side == side {
                    let (pipeline, asynchronous) =
                        (open.pipeline, matches!(stmt.kind, StmtKind::CopyAsync { .. }));
                    self.held_stage_is_written(id, pipeline, asynchronous, stmt.span);
                } else if open.side == side && sums {
                    if !open.written.contains(&id) && !self.begun.contains(&id) {
                        self.sums_of_nothing(id, stmt.span);
                    }
                } else if open.side == side {
                    let pipeline = open.pipeline;
                    let (name, pipeline) = (self.name(id), self.pipeline_name(pipeline));
                    let message =
                        format!("`{name}` is read in `produce {pipeline}`, where it is only written");
                    self.misplaced(stmt.span, message, "read it in the role that consumes the stage");
                } else if side == Side::Consume {
                    open.written.insert(id);
                }
            }
        }
    }
}
