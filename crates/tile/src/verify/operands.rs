//! Operands of statements: tensors that are alive, where they must be, and the shapes of their tiles.

use tilewright_machine::{DType, Memory};

use super::checker::{Allowed, Checker, Life, count, depends_on, shape_text, static_shape};
use crate::build::before;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{IndexedMode, Program, TensorId, TensorKind, TensorRef, ViewLeaf, ViewMode};

/// A tensor as a statement sees it.
pub(super) struct Operand {
    pub(super) memory: Memory,
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
}

/// A statement's name and place, and what it needs of the body around it.
pub(super) struct Site<'a> {
    pub(super) statement: &'static str,
    pub(super) span: Origin,
    pub(super) threads: Option<u32>,
    pub(super) defined: &'a mut Vec<usize>,
}

/// The rule of most statements.
pub(super) const ONE_SHAPE: &str = "all tensors of this statement have one shape";

impl Checker<'_> {
    pub(super) fn define(&mut self, id: TensorId, defined: &mut Vec<usize>) {
        self.life[id.0 as usize] = Life::Alive;
        self.home[id.0 as usize] = self.role;
        defined.push(id.0 as usize);
    }

    /// The tensor itself, or the one that it is a part of.
    pub(super) fn base(&self, id: TensorId) -> TensorId {
        match self.program.tensor(id).kind {
            TensorKind::Part { of, .. } => of,
            _ => id,
        }
    }

    /// Checks that a tensor, or what it is a part of, may be used here.
    pub(super) fn alive(&mut self, id: TensorId, span: Origin) -> bool {
        self.exists(id, span) && self.belongs(self.base(id), span)
    }

    /// Checks that a tensor, or what it is a part of, is defined here.
    pub(super) fn exists(&mut self, id: TensorId, span: Origin) -> bool {
        let id = self.base(id);
        let tensor = self.program.tensor(id);
        let error = match self.life[id.0 as usize] {
            Life::Alive => return !self.broken[id.0 as usize],
            Life::Undefined => Diagnostic::new(
                Code::UnknownName,
                span,
                format!("`{}` is used before it is defined", tensor.name),
            )
            .help("define it on an earlier line"),
            Life::Gone(block) => Diagnostic::new(
                Code::UnknownName,
                span,
                format!("`{}` is defined inside a {block} and does not exist after it", tensor.name),
            )
            .help(before(block)),
        };
        self.report(error.label("used here").related(tensor.span, "defined here"));
        false
    }

    /// A tensor, or a part of one, that must be in registers.
    pub(super) fn register(&mut self, id: TensorId, span: Origin, statement: &str) -> Option<Operand> {
        self.in_registers(id, span, statement, false)
    }

    /// The same for a statement that does to each part of a tensor what it does to the whole.
    pub(super) fn register_by_parts(
        &mut self,
        id: TensorId,
        span: Origin,
        statement: &str,
    ) -> Option<Operand> {
        self.in_registers(id, span, statement, true)
    }

    fn in_registers(
        &mut self,
        id: TensorId,
        span: Origin,
        statement: &str,
        by_parts: bool,
    ) -> Option<Operand> {
        if !self.alive(id, span) {
            return None;
        }
        let (tensor, memory) = (self.program.tensor(id), self.program.tensor(self.base(id)).memory());
        if memory != Memory::Register {
            let help = self.to_registers_help(id, statement);
            // A word of the language, or a description.
            let statement =
                if statement.contains(' ') { statement.to_string() } else { format!("`{statement}`") };
            self.report(
                Diagnostic::new(
                    Code::WrongMemory,
                    span,
                    format!("{statement} works on register tensors; `{}` is in {memory} memory", tensor.name),
                )
                .related(tensor.span, "defined here")
                .help(help),
            );
            return None;
        }
        let shape = self.register_shape(id, span, by_parts)?;
        Some(Operand { memory, dtype: tensor.dtype, shape })
    }

    /// The shape of a register tensor, or of a part of one. With `by_parts`, all of a tensor may be named whose parts others name.
    fn register_shape(&mut self, id: TensorId, span: Origin, by_parts: bool) -> Option<Vec<i64>> {
        let program = self.program;
        match &program.tensor(id).kind {
            TensorKind::Part { of, index, .. } => {
                let span = program.tensor(id).span.or(span);
                let shape = self.tile_at(*of, index, None, (span, true))?;
                self.same_modes(*of, index.iter().map(Option::is_some).collect(), span)?;
                Some(shape)
            }
            kind => {
                let shape = static_shape(kind);
                if !by_parts {
                    self.same_modes(id, vec![false; shape.len()], span)?;
                }
                Some(shape)
            }
        }
    }

    /// All uses of a register tensor index the same modes.
    fn same_modes(&mut self, id: TensorId, modes: Vec<bool>, span: Origin) -> Option<()> {
        let tensor = self.program.tensor(id);
        let name = tensor.name.as_str();
        if modes.contains(&true) && matches!(&tensor.kind, TensorKind::Register { pinned: Some(_), .. }) {
            let message = format!("`{name}` is indexed, and its layout is pinned");
            self.report(
                Diagnostic::new(Code::LayoutConflict, span, message)
                    .related(tensor.span, "pinned here")
                    .help("each part of an indexed register tensor has a layout of its own: pin none"),
            );
            return None;
        }
        let (first, at) = self.indexed.entry(id).or_insert((modes.clone(), span)).clone();
        if first == modes {
            return Some(());
        }
        let message = format!("`{name}` is indexed in other modes here than in an earlier statement");
        self.report(
            Diagnostic::new(Code::WrongRank, span, message)
                .related(at, "the earlier use")
                .help("all uses of a register tensor index the same modes, or none"),
        );
        None
    }

    /// A tensor as a copy refers to it.
    pub(super) fn reference(&mut self, r: &TensorRef, stmt: Origin) -> Option<Operand> {
        let span = r.span.or(stmt);
        if !self.alive(r.tensor, span) {
            return None;
        }
        let tensor = self.program.tensor(r.tensor);
        let name = tensor.name.as_str();
        let memory = tensor.memory();
        let mut shape = match &tensor.kind {
            TensorKind::View { .. } | TensorKind::Shared { .. } | TensorKind::Tensor { .. } => {
                let indexed = match r.indexed {
                    Some(indexed) => Some((indexed.mode as usize, self.number_of_indices(r, indexed, span)?)),
                    None => None,
                };
                self.tile_at(r.tensor, &r.index, indexed, (span, false))?
            }
            TensorKind::Register { .. } | TensorKind::Part { .. } if r.index.is_empty() => {
                let memory = self.program.tensor(self.base(r.tensor)).memory();
                if memory != Memory::Register {
                    let message = format!("`{name}` names a part of a tensor in {memory} memory");
                    self.report(
                        Diagnostic::new(Code::WrongMemory, span, message).help("index the reference"),
                    );
                    return None;
                }
                self.register_shape(r.tensor, span, false)?
            }
            TensorKind::Register { .. } | TensorKind::Part { .. } => {
                let (message, help) = match r.indexed {
                    Some(_) => (
                        format!("a register tensor indexes `{name}`, which is in registers"),
                        "views and shared tensors are indexed so; in registers there is `gather(r, index, axis)`",
                    ),
                    None => (
                        format!("the reference indexes the register tensor `{name}` itself"),
                        "a statement names a part of a register tensor: `KernelBuilder::part` makes one",
                    ),
                };
                self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
                return None;
            }
        };
        if r.transposed {
            if memory == Memory::Register {
                self.report(
                    Diagnostic::new(
                        Code::WrongMemory,
                        span,
                        format!("the register tensor `{name}` cannot be transposed"),
                    )
                    .related(tensor.span, "defined here")
                    .help(format!("inside a copy only shared and global tensors are: write `t = transpose({name})` first")),
                );
                return None;
            }
            shape.reverse();
        }
        Some(Operand { memory, dtype: tensor.dtype, shape })
    }

    /// The number of indices of a register tensor that indexes a mode.
    fn number_of_indices(&mut self, r: &TensorRef, indexed: IndexedMode, span: Origin) -> Option<i64> {
        let operand = self.register(indexed.by, span, "an index")?;
        if !matches!(r.index.get(indexed.mode as usize), Some(None)) {
            let message =
                format!("mode {} of `{}` has no index of its own", indexed.mode, self.name(r.tensor));
            let help =
                "give one entry a mode: `:` keeps it, an expression fixes it, a register tensor indexes it";
            self.report(Diagnostic::new(Code::WrongRank, span, message).help(help));
            return None;
        }
        let (name, by) = (self.name(r.tensor), self.name(indexed.by));
        if operand.dtype != DType::I32 {
            let message = format!("`{by}` is {}, and an index is i32", operand.dtype);
            let help = format!("cast it: `x = cast({by}, i32)`, and index by `x`");
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
            return None;
        }
        let [extent] = operand.shape[..] else {
            let modes = count(operand.shape.len(), "mode");
            let message = format!("`{by}` has {modes}, and an index of a mode has one");
            let help = format!("reshape it: `x = reshape({by}, [N])`, and index by `x`");
            self.report(Diagnostic::new(Code::WrongRank, span, message).help(help));
            return None;
        };
        if let TensorKind::View { modes, .. } = &self.program.tensor(r.tensor).kind
            && modes.get(indexed.mode as usize).is_some_and(|mode| mode.leaves.len() != 1)
        {
            let message = format!("mode {} of `{name}` is nested, and `{by}` indexes it", indexed.mode);
            let help = "an index steps along one mode of the buffer: give the view a mode for it";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
            return None;
        }
        if let TensorKind::View { fold, .. } = &self.program.tensor(r.tensor).kind
            && !fold.is_empty()
        {
            let message = format!("`{name}` folds modes of its buffer, and `{by}` indexes it");
            let help = "rows that lie anywhere are of a view that folds none";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
            return None;
        }
        Some(extent)
    }

    /// The shape of the modes of a tensor that an index keeps; `indexed`: the mode that a register tensor indexes, and how many indices that has. With `known`, the index is known when `unroll for` is expanded.
    fn tile_at(
        &mut self,
        id: TensorId,
        index: &[Option<Expr>],
        indexed: Option<(usize, i64)>,
        (span, known): (Origin, bool),
    ) -> Option<Vec<i64>> {
        let program = self.program;
        let tensor = program.tensor(id);
        let name = tensor.name.as_str();
        // The extent of each mode, or why it is none.
        let extents: Vec<Result<i64, String>> = match &tensor.kind {
            TensorKind::View { modes, .. } => modes.iter().map(|mode| extent_of(program, mode)).collect(),
            kind => static_shape(kind).into_iter().map(Ok).collect(),
        };
        if !index.is_empty() && index.len() != extents.len() {
            let modes = count(extents.len(), "mode");
            let message = format!("`{name}` has {modes} and is indexed with {}", index.len());
            self.report(
                Diagnostic::new(Code::WrongRank, span, message)
                    .related(tensor.span, "defined here")
                    .help("give one entry a mode: `:` keeps it, an expression fixes it"),
            );
            return None;
        }
        let mut shape = Vec::new();
        let mut ok = self.lies_in_one_tensor(id, index, indexed, span);
        for (i, extent) in extents.iter().enumerate() {
            if let Some((_, indices)) = indexed.filter(|(mode, _)| *mode == i) {
                shape.push(indices);
                continue;
            }
            match (index.get(i), extent) {
                (Some(Some(at)), _) => ok &= self.fixed_mode(id, (i, extent), at, span, known),
                (_, Ok(extent)) if *extent >= 1 => shape.push(*extent),
                (_, Ok(_)) => return None,
                (_, Err(why)) => {
                    let message = format!("mode {i} of `{name}` is kept, but its extent {why}");
                    self.report(
                        Diagnostic::new(Code::BadValue, span, message)
                            .related(tensor.span, "defined here")
                            .help(
                                "a tile's extents are constants: index this mode, e.g. with a loop's counter",
                            ),
                    );
                    ok = false;
                }
            }
        }
        if !ok {
            return None;
        }
        if shape.is_empty() {
            let message = format!("every mode of `{name}` is indexed: no tile is left");
            self.report(
                Diagnostic::new(Code::WrongRank, span, message).help("keep at least one mode with `:`"),
            );
            return None;
        }
        let size = shape.iter().try_fold(1i64, |product, e| product.checked_mul(*e));
        self.tile_limit(name, size, span)?;
        Some(shape)
    }

    /// Checks that a tile of a view of an array of tensors lies in one of these.
    fn lies_in_one_tensor(
        &mut self,
        id: TensorId,
        index: &[Option<Expr>],
        indexed: Option<(usize, i64)>,
        span: Origin,
    ) -> bool {
        let program = self.program;
        let tensor = program.tensor(id);
        let TensorKind::View { param, modes, .. } = &tensor.kind else { return true };
        let row = program.param(*param);
        if !row.is_array() {
            return true;
        }
        let counts = |leaf: &ViewLeaf| leaf.dim == 0 && leaf.extent.as_int() != Some(1);
        let kept = |i: usize| !matches!(index.get(i), Some(Some(_)));
        let by_tensor = |i: usize| indexed.is_some_and(|(mode, _)| mode == i);
        let mut over = modes.iter().enumerate().filter(|(i, mode)| match by_tensor(*i) {
            true => mode.leaves.iter().any(|leaf| leaf.dim == 0),
            false => kept(*i) && mode.leaves.iter().any(counts),
        });
        let Some((mode, _)) = over.next() else { return true };
        let (name, array) = (&tensor.name, &row.name);
        let message = format!("mode {mode} of `{name}` goes from tensor to tensor of the array `{array}`");
        self.report(
            Diagnostic::new(Code::BadValue, span, message).related(row.span, "an array of tensors").help(
                "a tile lies in one tensor: index this mode, or begin the view at one, `[i :, m0 :, :]`",
            ),
        );
        false
    }

    /// Checks an index that fixes a mode of this extent.
    fn fixed_mode(
        &mut self,
        id: TensorId,
        (mode, extent): (usize, &Result<i64, String>),
        at: &Expr,
        span: Origin,
        known: bool,
    ) -> bool {
        let name = self.name(id);
        let what = format!("an index of `{name}`");
        let legal = match known {
            true => self.known(at, span, &what),
            false => self.expr(at, Allowed::All, span, &what),
        };
        if let (Some(value), Ok(extent)) = (at.as_int(), extent)
            && !(0..*extent).contains(&value)
        {
            let message =
                format!("the index {value} is outside mode {mode} of `{name}`, which has extent {extent}");
            self.report(Diagnostic::new(Code::BadValue, span, message));
            return false;
        }
        legal
    }

    pub(super) fn same_type(&mut self, a: TensorId, b: TensorId, span: Origin, rule: &str, help: &str) {
        let (x, y) = (self.program.tensor(a), self.program.tensor(b));
        if x.dtype != y.dtype {
            self.report(
                Diagnostic::new(
                    Code::TypeMismatch,
                    span,
                    format!("{rule}: `{}` is {}, `{}` is {}", x.name, x.dtype, y.name, y.dtype),
                )
                .help(help),
            );
        }
    }

    pub(super) fn shapes_differ(
        &mut self,
        (a, a_shape): (TensorId, &[i64]),
        (b, b_shape): (TensorId, &[i64]),
        span: Origin,
        rule: &str,
    ) {
        let (x, y) = (self.program.tensor(a), self.program.tensor(b));
        self.report(
            Diagnostic::new(
                Code::ShapeMismatch,
                span,
                format!(
                    "`{}` has shape {}, `{}` has {}",
                    x.name,
                    shape_text(a_shape),
                    y.name,
                    shape_text(b_shape)
                ),
            )
            .related(x.span, format!("{} here", shape_text(a_shape)))
            .related(y.span, format!("{} here", shape_text(b_shape)))
            .help(rule),
        );
    }
}

/// The constant extent of a view's mode, or why it is none.
pub(super) fn extent_of(program: &Program, mode: &ViewMode) -> Result<i64, String> {
    let extent = mode.leaves.iter().try_fold(1i64, |product, l| product.checked_mul(l.extent.as_int()?));
    extent.ok_or_else(|| {
        let runtime = mode.leaves.iter().find(|l| l.extent.as_int().is_none());
        runtime.map_or("overflows".to_string(), |l| format!("depends on {}", depends_on(program, &l.extent)))
    })
}
