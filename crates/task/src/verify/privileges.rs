//! Privileges: what a task does with its formals, against what it may do.

use tilewright_tile::{Code, Diagnostic, Origin, Stmt, StmtKind, TensorId, TensorKind};

use crate::program::{
    ArgumentKind, FormalKind, Inner, Leaf, LeafFormal, Piece, Privilege, Program, Task, Variant,
};

/// The privilege that one has who may do both.
fn widened(has: Privilege, wants: Privilege) -> Privilege {
    match (has, wants) {
        (Privilege::Write, Privilege::Read) | (Privilege::Read, _) | (Privilege::Add, _) => {
            Privilege::ReadWrite
        }
        (has, _) => has,
    }
}

/// True if a task with the one privilege may launch another with the other. What a task may `write` it has written before it reads it.
fn allows(has: Privilege, wants: Privilege) -> bool {
    match has {
        Privilege::Read => wants == Privilege::Read,
        Privilege::Add => wants == Privilege::Add,
        Privilege::Write | Privilege::ReadWrite => true,
    }
}

/// The launches of an inner variant: no more than it may, no argument beside one that is written, and every `write` formal written.
pub(super) fn inner(
    program: &Program,
    task: &Task,
    variant: &Variant,
    inner: &Inner,
    errors: &mut Vec<Diagnostic>,
) {
    let mut written = vec![false; task.formals.len()];
    for launch in &inner.launches {
        let callee = program.task(launch.task);
        let text = program.launch(task, inner, launch);
        // Arguments that are not always there may exclude each other: those the interpreter judges.
        let mut tensors: Vec<(usize, Privilege, &Piece, Origin)> = Vec::new();
        for (i, (formal, argument)) in callee.formals.iter().zip(&launch.arguments).enumerate() {
            let (FormalKind::Tensor { privilege: wants, .. }, ArgumentKind::Tensor { piece, when }) =
                (&formal.kind, &argument.kind)
            else {
                continue;
            };
            if when.is_none() {
                tensors.push((i, *wants, piece, argument.span));
            }
            let tensor = inner.tensor(inner.tensor_of(piece));
            let Some(number) = tensor.formal else { continue };
            let FormalKind::Tensor { privilege: has, dtype, shape } = &task.formals[number].kind else {
                continue;
            };
            written[number] |= wants.writes();
            if allows(*has, *wants) {
                continue;
            }
            let does = match wants {
                Privilege::Read => "reads",
                Privilege::Add => "adds to",
                Privilege::Write | Privilege::ReadWrite => "writes",
            };
            let message =
                format!("`{text}` {does} `{}`, which `{}` has `{}` only", tensor.name, task.name, has.name());
            let wider = widened(*has, *wants).name();
            errors.push(
                Diagnostic::new(Code::Privilege, argument.span, message)
                    .related(task.formals[number].span, "declared here")
                    .related(formal.span, format!("`{}` in the task that is launched", wants.name()))
                    .help(format!(
                        "declare `{}: {wider} {dtype}[{}]`, or take a tensor of the variant's own",
                        tensor.name,
                        program.exprs(shape)
                    )),
            );
        }
        for (k, (i, first, a, span)) in tensors.iter().enumerate() {
            for (j, second, b, other) in &tensors[k + 1..] {
                if (first.writes() || second.writes()) && meet(inner, a, b) {
                    let written = if first.writes() { i + 1 } else { j + 1 };
                    let message = format!(
                        "arguments {} and {} of `{text}` overlap, and {written} is written",
                        i + 1,
                        j + 1
                    );
                    errors.push(
                        Diagnostic::new(Code::Overlap, *span, message)
                            .related(*other, "the other")
                            .help("give the task a tensor of its own to write"),
                    );
                }
            }
        }
    }
    for (formal, written) in task.formals.iter().zip(written) {
        if matches!(formal.kind, FormalKind::Tensor { privilege: Privilege::Write, .. }) && !written {
            errors.push(never_written(task, variant, &formal.name, formal.span, variant.span));
        }
    }
}

/// The message about a `write` formal that a variant does not write.
fn never_written(task: &Task, variant: &Variant, name: &str, declared: Origin, at: Origin) -> Diagnostic {
    let message = format!("`{name}` is `write`, and `{}.{}` never writes it", task.name, variant.name);
    Diagnostic::new(Code::NotWritten, at, message)
        .related(declared, "declared here")
        .help(format!("write it, or declare `{name}` with `read` or `read_write`"))
}

/// True if pieces have elements in common for certain.
fn meet(inner: &Inner, a: &Piece, b: &Piece) -> bool {
    if inner.tensor_of(a) != inner.tensor_of(b) {
        return false;
    }
    match (a, b) {
        (Piece::Whole(_), _) | (_, Piece::Whole(_)) => true,
        (Piece::Part { partition: p, colours: a }, Piece::Part { partition: q, colours: b }) => {
            p == q && a == b
        }
    }
}

/// The statements of a leaf: no formal that it may read only is written, and each that it may write only is, before it is read.
pub(super) fn leaf(task: &Task, variant: &Variant, leaf: &Leaf, errors: &mut Vec<Diagnostic>) {
    for (formal, meaning) in task.formals.iter().zip(&leaf.formals) {
        let (FormalKind::Tensor { privilege, .. }, LeafFormal::Tensor(tensor)) = (&formal.kind, meaning)
        else {
            continue;
        };
        let mut uses = Uses { leaf, tensor: *tensor, written: None, read_first: None, certain: false };
        uses.body(&leaf.fragment.body, true);
        let name = &formal.name;
        if let (Privilege::Read, Some(at)) = (privilege, uses.written) {
            let message = format!("`{}.{}` writes `{name}`, which is `read` only", task.name, variant.name);
            errors.push(
                Diagnostic::new(Code::Privilege, at, message).related(formal.span, "declared here").help(
                    format!("declare `{name}` with `read_write`, or give the result a name of its own"),
                ),
            );
        }
        if *privilege != Privilege::Write {
            continue;
        }
        if let Some(at) = uses.read_first {
            let message = format!(
                "`{}.{}` reads `{name}` before it has written it, and `{name}` is `write` only",
                task.name, variant.name
            );
            errors.push(
                Diagnostic::new(Code::Privilege, at, message)
                    .related(formal.span, "declared here")
                    .help(format!("declare `{name}` with `read_write`, or write all of it first")),
            );
        } else if uses.written.is_none() {
            errors.push(never_written(task, variant, name, formal.span, variant.span));
        } else if !uses.certain {
            let message = format!(
                "`{name}` is `write`, and `{}.{}` writes it in a branch or a loop that may not be done",
                task.name, variant.name
            );
            errors.push(
                Diagnostic::new(Code::NotWritten, uses.written.unwrap_or(formal.span), message)
                    .related(formal.span, "declared here")
                    .help(format!("write it on every way, or declare `{name}` with `read_write`")),
            );
        }
    }
}

/// The uses of a tensor in the order of the text.
struct Uses<'a> {
    leaf: &'a Leaf,
    tensor: TensorId,
    /// The first statement that writes it.
    written: Option<Origin>,
    /// A statement that reads it before one has written it for certain.
    read_first: Option<Origin>,
    /// A statement that is done in any case writes it.
    certain: bool,
}

impl Uses<'_> {
    /// The tensor, or a part of it.
    fn is_it(&self, id: TensorId) -> bool {
        let of = match self.leaf.fragment.tensor(id).kind {
            TensorKind::Part { of, .. } => of,
            _ => id,
        };
        of == self.tensor
    }

    fn body(&mut self, statements: &[Stmt], always: bool) {
        for (i, stmt) in statements.iter().enumerate() {
            let reads = stmt.kind.reads().into_iter().any(|id| self.is_it(id));
            if reads && !self.certain && self.read_first.is_none() && self.written.is_none() {
                self.read_first = Some(stmt.span);
            }
            if stmt.kind.writes().into_iter().any(|id| self.is_it(id)) {
                self.written = self.written.or(Some(stmt.span));
                self.certain |= always;
            }
            // Both sides of a branch are done in any case together.
            if let (StmtKind::If { otherwise: false, body, .. }, Some(next)) =
                (&stmt.kind, statements.get(i + 1))
                && next.kind.is_otherwise()
            {
                let before = self.certain;
                let mut sides = [false; 2];
                for (side, statements) in sides.iter_mut().zip([body.as_slice(), next.kind.body()]) {
                    self.certain = before;
                    self.body(statements, always);
                    *side = self.certain;
                }
                self.certain = before || sides == [true; 2];
                continue;
            }
            if stmt.kind.is_otherwise() && i > 0 {
                continue;
            }
            let before = self.certain;
            self.body(stmt.kind.body(), false);
            self.certain |= before;
        }
    }
}
