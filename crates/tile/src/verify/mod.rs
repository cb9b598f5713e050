//! Program to [`Verified`]: every rule of the language that the grammar does not express, checked after the constants
//! have their values.

mod asynchronous;
mod deadlock;
mod definitions;
mod fold;
mod header;
mod launches;
mod pipelines;
mod products;
mod roles;
mod shapes;
mod statements;
mod tiles;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin};
use crate::expr::{Axis, Expr, IntOp, SymbolId};
use crate::names::nearest;
use crate::program::{
    Param, ParamId, ParamKind, PipelineId, Program, StmtKind, SymbolKind, TensorId, TensorKind,
};
use crate::verified::{Constants, Verified};
use tilewright_machine::DType;

/// The most elements that a tensor of the block has.
pub const MAX_TILE: i64 = 1 << 20;
/// After how many mistakes the verifier gives up.
const MAX_ERRORS: usize = 50;

/// Checks a program for given values of its constants; those not named keep their defaults.
///
/// The invariants that [`Verified`] then holds:
///
/// 1. **Constants.** Every given name is a constant. A default is an expression over earlier constants. Every constant
///    has a value.
/// 2. **Sizes.** A size's default is at least 1.
/// 3. **Names.** Every name is an identifier and no word of the language. No two things share one (the kernel's own name
///    stands apart). Ids are indices of the program's tables, and each statement has its own.
/// 4. **Parameters.** A tensor parameter has at least one mode; its extents and strides are expressions over sizes and
///    constants, literals among them at least 1; strides, where given, are one a mode. A scalar is an `f32`.
/// 5. **Launch.** The grid has one to three extents over sizes and constants, literals among them at least 1 and within
///    what the hardware takes (2³¹−1, 65535, 65535). The block has a multiple of 32 threads, at most 1024, known when
///    the kernel is compiled. A cluster has 1 to 16 blocks, a constant; a literal extent of the grid along x is a multiple.
/// 6. **Scope.** A tensor is defined once, before its uses, and used only within the loop, role or stage that defines it. A
///    counter is used only in its own loop's body.
/// 7. **Expressions.** No division by a literal zero, no overflow of literals.
/// 8. **Register and shared tensors.** At least one mode; every extent is a positive constant; at most 2²⁰ elements. A
///    pinned register layout has two modes, the first of as many threads as the block has, and reaches every element of
///    the tile and nothing else, once but for thread modes of stride 0. A pinned shared layout has the tile's shape and gives every element an offset of its
///    own, none negative.
/// 9. **Views.** One offset, and at most one end, a mode of the buffer, one or more leaves a mode; leaves walk modes that the buffer has;
///    scales are constants, none negative; literal extents are at least 1.
/// 10. **References.** An index has one entry a mode; a literal index lies within a literal extent. The
///     modes that are kept (at least one) have constant extents, at most 2²⁰ elements together. Only global and shared
///     tensors are transposed.
/// 11. **Copy.** Both tiles have one shape and one element type; at least one of both is in registers, or one is global
///     and the other shared. A view that is written has no scale of 0.
/// 12. **Gemm.** Three register tensors of two modes: M×N, M×K, N×K. The factors are both `f16` or both `bf16`; the
///     accumulator is `f32`, or `f16` with `f16` factors, and is not a factor.
/// 13. **Cast, rearrange.** Both in registers, of one shape; a rearrangement keeps the element type.
/// 14. **Fill.** A register tensor; the value is in the range of its element type (integers: exactly).
/// 15. **Elementwise.** The result and all tensors that are read are in registers, of one shape and of one
///     floating-point type; scalars are scalar parameters.
/// 16. **Transpose, reshape, expand, slice, broadcast.** Both in registers, of one element type; the result is not the operand,
///     and has the shape that the statement gives it. The order of a transpose lists every mode of the operand once. A
///     reshape gives positive constants, whose product is the operand's number of elements. A new mode stands at 0 to
///     the operand's number of modes. A slice has a positive constant extent, and begins at an expression over constants and
///     counters of `unroll for`, so that it lies within its mode. A broadcast gives one positive constant a mode: the mode's extent, or any where
///     that is 1.
/// 17. **Join, split.** All in registers, of one element type. The parts are two tensors of one shape (at least one
///     mode); the whole has one mode more, its last, of extent 2. No result is an operand; the two halves of a split
///     are two tensors.
/// 18. **Reduce.** Both in registers, of one element type; the mode is one of the operand. The result has the other
///     modes, or shape `[1]` if there are none. The operand of a sum is no 8-bit integer.
/// 19. **Gather.** All in registers; the index is `i32`, has as many modes as what is read, the mode among them, and
///     equal extents but for that mode. The result has the index's shape and the element type of what is read.
/// 20. **Asynchronous copies.** From a view to a shared tensor, or from a shared tensor to a view. The number of a `wait_group` is
///     at least 0, over constants and counters of `unroll for`. `add` goes to a view of `f32`, `f16`, `bf16` or `i32`; `multicast`
///     stands in a `produce`, in clusters of several blocks. In a `produce` the destination is a tensor of the stage.
/// 21. **Unrolled loops.** The bounds of an `unroll for` are expressions over constants and counters of the `unroll for` around.
/// 22. **Parts of register tensors.** An index is an expression over constants and counters of `unroll for`. All uses of a
///     register tensor index the same modes; one of which modes are indexed has no pinned layout. A part is an operand, and
///     nothing is assigned to it.
///
/// 23. **Roles.** They stand at the outermost level, and beside them only definitions and pipelines. A role has a positive constant
///     number of warpgroups, together as many threads as the block. Registers are given for all roles or for none: constants,
///     multiples of 8 from 24 to 240, for all threads together at most 65536.
/// 24. **What a role uses.** Register tensors that it defines, and shared tensors that no other role uses, but for stages.
/// 25. **Pipelines.** They are defined at the outermost level, once, of 1 to 64 stages (a constant); a tensor is that of one
///     pipeline, once. Something fills its stages and something reads them: with roles, one role fills, and
///     one or several others read every stage.
/// 26. **Stages.** The tensors of a pipeline are used only in its `produce`, which only writes them, and all of them, and in its
///     `consume`, which only reads them. One stage of a pipeline is at hand at a time. There is no `syncthreads` in a `produce`.
/// 27. **Loops over tiles.** The grid has one extent, or others of 1. The rows of a group are at least 1, the order of a Hilbert
///     curve is from 1 to 8: constants. A `drain` stands right behind a loop with `after`, and has its counters.
/// 28. **Asynchronous products.** The block or role has whole warpgroups. `c` is a register tensor M×N, `a` a shared or register
///     tensor M×K, `b` a shared tensor N×K. Factors and accumulator are `f16` or 8-bit floats into `f32` or `f16`; `bf16` or
///     `f32` into `f32`; `i8` and `i8` or `u8` and `u8` into `i32`. The accumulator is not a factor. Given warpgroups are positive
///     constants whose product is the number of warpgroups. The number of a `wait_gemm` is a constant from 0 to 7.
/// 29. **Products in flight.** As far as the order of the statements shows it, nothing but another asynchronous product touches an
///     accumulator before the `wait_gemm` that covers it, or overwrites a factor; products that read a stage are in a group when its
///     `consume` ends; and fewer than all stages of a pipeline are held by products in flight when the next is to be read.
/// 30. **Sums over clusters.** A register tensor of `f32`, in clusters of several blocks, outside of stages.
/// 31. **Elements as integers.** The buffer is a tensor parameter of one mode, of type `i32`, that no statement writes. Elements stand where
///     counters may: not in the grid, nor in the shapes and strides of parameters.
/// 32. **Launches that overlap.** No statement writes a parameter that is `constant`. A kernel that waits for the launches before it or lets
///     those behind it begin waits in every block, whatever its sizes. As far as the order of the statements shows it, no role accesses a
///     parameter that is not `constant` before it waits or gets a stage from a role that did.
///
/// 33. **Deadlocks.** As far as the text shows it, whatever the sizes, no role waits for ever for a stage to be filled or released, and each
///     reads as many stages as are filled. Pipelines may lead in a circle.
///
/// Reports every violation it finds, up to fifty; of rules 29, 32 and 33 once there are no others.
///
/// ```
/// use tilewright_tile::{Code, Constants, parse, verify};
/// let source = "const T = 100
///     kernel idle(x: f32[4]) grid(1) threads(T) { }";
/// let errors = verify(&parse(source)?, &Constants::new()).unwrap_err();
/// assert_eq!(errors.0[0].code, Code::BadLaunch);
/// assert!(verify(&parse(source)?, &Constants::from([("T".to_string(), 96)])).is_ok());
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
pub fn verify(program: &Program, constants: &Constants) -> Result<Verified, Diagnostics> {
    let (values, by_name) = constant_values(program, constants)?;
    let folded = fold::program(program, &values);
    let mut check = Checker::new(program, &folded);
    check.names();
    check.params();
    let threads = check.launch();
    check.cluster();
    if check.ids_are_legal() {
        check.roles(threads);
        check.body(threads);
        check.uses();
        check.elements_stay();
        if check.errors.is_empty() {
            let mut errors = products::check(&folded);
            errors.extend(launches::check(&folded));
            errors.extend(deadlock::check(&folded));
            errors.into_iter().for_each(|error| check.report(error));
        }
    }
    let Checker { errors, inputs, outputs, elements, .. } = check;
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    let strides = folded.params.iter().map(Param::strides).collect();
    let listed = |used: &[bool]| {
        used.iter().enumerate().filter(|(_, u)| **u).map(|(i, _)| ParamId(i as u32)).collect::<Vec<_>>()
    };
    Ok(Verified {
        source: Arc::new(program.clone()),
        constants: by_name,
        threads: threads.unwrap_or(0),
        strides,
        outputs: listed(&outputs),
        inputs: listed(&inputs),
        elements: elements.into_keys().collect(),
        program: folded,
    })
}

/// The value of every symbol that is a constant, and all constants by name.
fn constant_values(
    program: &Program,
    given: &Constants,
) -> Result<(Vec<Option<i64>>, Constants), Diagnostics> {
    let mut errors = Vec::new();
    let names: Vec<&str> = program.constants().map(|(_, s, _)| s.name.as_str()).collect();
    for name in given.keys() {
        if names.contains(&name.as_str()) {
            continue;
        }
        let shown: String = name.chars().take(60).collect();
        let list =
            if names.is_empty() { "it has none".to_string() } else { format!("it has {}", names.join(", ")) };
        let help = match nearest(&shown, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? {list}"),
            None => list,
        };
        let message = format!("the kernel `{}` has no constant `{shown}`", program.name);
        errors.push(Diagnostic::new(Code::UnknownName, Origin::Unknown, message).help(help));
    }
    let mut values: Vec<Option<i64>> = vec![None; program.symbols.len()];
    let mut by_name = Constants::new();
    for (id, symbol, default) in program.constants() {
        let value = match given.get(&symbol.name) {
            Some(value) => Some(*value),
            None => {
                let folded = default.substitute(&|s| values.get(s.0 as usize).copied().flatten());
                folded.as_int()
            }
        };
        match value {
            Some(value) => {
                values[id.0 as usize] = Some(value);
                by_name.insert(symbol.name.clone(), value);
            }
            None => errors.push(
                Diagnostic::new(
                    Code::BadValue,
                    symbol.span,
                    format!("the default of the constant `{}` has no value", symbol.name),
                )
                .help("a default is an expression over numbers and earlier constants; it may not divide by zero or overflow"),
            ),
        }
    }
    if errors.is_empty() { Ok((values, by_name)) } else { Err(Diagnostics(errors)) }
}

/// The names that an expression may refer to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Sizes.
    Sizes,
    /// Sizes, block indices, and the counters of the loops around.
    All,
}

/// The state of a tensor's life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Undefined,
    Alive,
    /// Its loop, role or stage has ended.
    Gone(&'static str),
}

struct Checker<'a> {
    /// As written, for names and constants in messages.
    source: &'a Program,
    /// With constants folded.
    program: &'a Program,
    errors: Vec<Diagnostic>,
    life: Vec<Life>,
    /// Tensors whose definition was wrong: uses of them are not reported again.
    broken: Vec<bool>,
    /// For each counter, true while its loop is open.
    counting: Vec<bool>,
    inputs: Vec<bool>,
    outputs: Vec<bool>,
    /// The parameters whose elements are integers of the kernel, and where the first is read.
    elements: BTreeMap<ParamId, Origin>,
    /// Which modes of a register tensor its first use indexes, and where that use is.
    indexed: BTreeMap<TensorId, (Vec<bool>, Origin)>,
    /// The number of blocks of statements that are open, the kernel's own among them.
    depth: usize,
    /// The roles at the outermost level, in the order of the text.
    role_names: Vec<&'a str>,
    /// The role at hand, by its number.
    role: Option<usize>,
    /// The role in which each tensor is defined.
    home: Vec<Option<usize>>,
    /// The first role that uses each shared tensor.
    user: Vec<Option<usize>>,
    /// The pipeline of which each tensor is a stage.
    stage_of: Vec<Option<PipelineId>>,
    /// Which pipelines have been defined.
    piped: Vec<bool>,
    /// The stages at hand, outermost first.
    stages: Vec<pipelines::OpenStage>,
    /// Every `produce` and `consume` so far.
    uses: Vec<pipelines::Use>,
}

impl<'a> Checker<'a> {
    fn new(source: &'a Program, program: &'a Program) -> Self {
        let mut stage_of = vec![None; program.tensors.len()];
        for (i, pipeline) in program.pipelines.iter().enumerate() {
            for tensor in &pipeline.tensors {
                if let Some(slot) = stage_of.get_mut(tensor.0 as usize) {
                    slot.get_or_insert(PipelineId(i as u32));
                }
            }
        }
        let role_names = program.body.iter().filter_map(|stmt| match &stmt.kind {
            StmtKind::Role { name, .. } => Some(name.as_str()),
            _ => None,
        });
        Checker {
            source,
            program,
            errors: Vec::new(),
            life: vec![Life::Undefined; program.tensors.len()],
            broken: vec![false; program.tensors.len()],
            counting: vec![false; program.symbols.len()],
            inputs: vec![false; program.params.len()],
            outputs: vec![false; program.params.len()],
            elements: BTreeMap::new(),
            indexed: BTreeMap::new(),
            depth: 0,
            role_names: role_names.collect(),
            role: None,
            home: vec![None; program.tensors.len()],
            user: vec![None; program.tensors.len()],
            stage_of,
            piped: vec![false; program.pipelines.len()],
            stages: Vec::new(),
            uses: Vec::new(),
        }
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        // A tensor that is an operand twice is wrong once.
        let known = self.errors.iter().any(|e| e.repeats(&diagnostic));
        if self.errors.len() < MAX_ERRORS && !known {
            self.errors.push(diagnostic);
        }
    }

    fn name(&self, id: TensorId) -> &'a str {
        &self.program.tensor(id).name
    }

    /// Checks an expression: what it refers to, and that its literals fold.
    fn expr(&mut self, expr: &Expr, allowed: Allowed, span: Origin, what: &str) -> bool {
        let problem = self.problem(expr, allowed);
        if let Some((code, problem, help)) = problem {
            self.report(Diagnostic::new(code, span, format!("{what} {problem}")).help(help));
            return false;
        }
        self.note_elements(expr, span);
        true
    }

    fn problem(&self, expr: &Expr, allowed: Allowed) -> Option<(Code, String, &'static str)> {
        match expr {
            Expr::Int(_) => None,
            Expr::Symbol(id) => {
                let Some(symbol) = self.program.symbols.get(id.0 as usize) else {
                    let text = format!("refers to symbol {}, which does not exist", id.0);
                    return Some((Code::UnknownName, text, "use the expressions that the builder returns"));
                };
                match symbol.kind {
                    SymbolKind::Constant(_) | SymbolKind::Size(_) => None,
                    SymbolKind::Counter | SymbolKind::Unrolled if allowed == Allowed::Sizes => Some((
                        Code::BadValue,
                        format!("depends on the counter `{}`", symbol.name),
                        "only sizes and constants are known here",
                    )),
                    SymbolKind::Counter | SymbolKind::Unrolled if !self.counting[id.0 as usize] => Some((
                        Code::UnknownName,
                        format!("uses the counter `{}` outside its loop", symbol.name),
                        "a counter has a value only in its own loop's body",
                    )),
                    SymbolKind::Counter | SymbolKind::Unrolled => None,
                }
            }
            Expr::Block(axis) if allowed == Allowed::Sizes => {
                let axis = ["x", "y", "z"][axis.index()];
                let text = format!("depends on block.{axis}");
                Some((Code::BadValue, text, "only sizes and constants are known here"))
            }
            Expr::Block(Axis::X | Axis::Y | Axis::Z) => None,
            Expr::Element(param, index) => {
                self.element_problem(*param, allowed).or_else(|| self.problem(index, allowed))
            }
            Expr::Binary(op, a, b) => {
                let divides = matches!(op, IntOp::Div | IntOp::Rem | IntOp::CeilDiv);
                if divides && b.as_int() == Some(0) {
                    let help = "the divisor's constants make it 0: give them other values";
                    return Some((Code::BadValue, "divides by zero".to_string(), help));
                }
                if a.as_int().is_some() && b.as_int().is_some() {
                    let text = "does not fit in 64 bits".to_string();
                    return Some((Code::BadValue, text, "use smaller constants"));
                }
                self.problem(a, allowed).or_else(|| self.problem(b, allowed))
            }
        }
    }

    /// The mistake in reading an element of a parameter, but for the index.
    fn element_problem(&self, param: ParamId, allowed: Allowed) -> Option<(Code, String, &'static str)> {
        let Some(row) = self.program.params.get(param.0 as usize) else {
            let text = format!("refers to parameter {}, which does not exist", param.0);
            return Some((Code::UnknownName, text, "use the buffers that the builder returns"));
        };
        let name = &row.name;
        let modes = match &row.kind {
            ParamKind::Tensor { shape, .. } if shape.len() == 1 => None,
            ParamKind::Tensor { shape, .. } => Some(format!("has {}", count(shape.len(), "mode"))),
            ParamKind::Scalar { .. } => Some("is a number".to_string()),
        };
        if let Some(modes) = modes {
            let text = format!("reads an element of `{name}`, which {modes}");
            return Some((Code::WrongRank, text, "integers are elements of tensors of one mode"));
        }
        if row.dtype != DType::I32 {
            let text = format!("reads an element of `{name}`, which is of type {}", row.dtype);
            return Some((Code::TypeMismatch, text, "integers are elements of tensors of type i32"));
        }
        (allowed == Allowed::Sizes).then(|| {
            let text = format!("depends on an element of `{name}`");
            (Code::BadValue, text, "only sizes and constants are known here")
        })
    }

    /// Notes the parameters of which an expression reads elements.
    fn note_elements(&mut self, expr: &Expr, span: Origin) {
        expr.elements(&mut |param| {
            self.inputs[param.0 as usize] = true;
            self.elements.entry(param).or_insert(span);
        });
    }

    /// A tensor whose elements are integers of the kernel is not written.
    fn elements_stay(&mut self) {
        let written: Vec<_> =
            self.elements.iter().filter(|(param, _)| self.outputs[param.0 as usize]).collect();
        let errors: Vec<Diagnostic> = written
            .into_iter()
            .map(|(param, span)| {
                let row = self.program.param(*param);
                let message = format!(
                    "an element of `{}` is an integer here, and the kernel writes `{}`",
                    row.name, row.name
                );
                Diagnostic::new(Code::Misplaced, *span, message)
                    .related(row.span, "the buffer")
                    .help("integers are read from buffers that the kernel does not write")
            })
            .collect();
        errors.into_iter().for_each(|error| self.report(error));
    }

    /// The value of an expression over constants.
    fn literal(&mut self, expr: &Expr, span: Origin, what: &str) -> Option<i64> {
        if let Some(value) = expr.as_int() {
            return Some(value);
        }
        if !self.expr(expr, Allowed::All, span, what) {
            return None;
        }
        let depends = depends_on(self.program, expr);
        self.report(
            Diagnostic::new(
                Code::BadValue,
                span,
                format!("{what} is not known when the kernel is compiled: it depends on {depends}"),
            )
            .help("use numbers and constants here"),
        );
        None
    }

    /// Checks that an expression is over constants and counters of `unroll for`, so that it is known once those loops are expanded.
    fn known(&mut self, expr: &Expr, span: Origin, what: &str) -> bool {
        if !self.expr(expr, Allowed::All, span, what) {
            return false;
        }
        let program = self.program;
        let counts = |s: SymbolId| matches!(program.symbol(s).kind, SymbolKind::Unrolled);
        let Some(depends) = first_unknown(program, expr, &counts) else { return true };
        self.report(
            Diagnostic::new(
                Code::BadValue,
                span,
                format!("{what} is not known when the kernel is compiled: it depends on {depends}"),
            )
            .help("use numbers, constants and counters of `unroll for`: `unroll for kk in 0..4 { … }`"),
        );
        false
    }

    /// The value of an extent: a constant, at least 1.
    fn extent(&mut self, expr: &Expr, span: Origin, what: &str) -> Option<i64> {
        let value = self.literal(expr, span, what)?;
        self.at_least_one(expr, span, what).then_some(value)
    }

    /// Checks that an expression, if it is a literal, is at least 1.
    fn at_least_one(&mut self, expr: &Expr, span: Origin, what: &str) -> bool {
        match expr.as_int() {
            Some(value) if value < 1 => {
                self.report(
                    Diagnostic::new(
                        Code::BadValue,
                        span,
                        format!("{what} is {value}; it must be at least 1"),
                    )
                    .label(format!("{value}")),
                );
                false
            }
            _ => true,
        }
    }
}

/// The first thing in an expression that is not a constant, for messages.
fn depends_on(program: &Program, expr: &Expr) -> String {
    first_unknown(program, expr, &|_| false).unwrap_or_else(|| "an overflow".to_string())
}

/// The first thing in an expression that is neither a constant nor `known`, for messages.
fn first_unknown(program: &Program, expr: &Expr, known: &impl Fn(SymbolId) -> bool) -> Option<String> {
    match expr {
        Expr::Int(_) => None,
        Expr::Symbol(id) if known(*id) => None,
        Expr::Symbol(id) => {
            let symbol = program.symbols.get(id.0 as usize)?;
            Some(match symbol.kind {
                SymbolKind::Counter | SymbolKind::Unrolled => format!("the counter `{}`", symbol.name),
                SymbolKind::Constant(_) | SymbolKind::Size(_) => format!("the size `{}`", symbol.name),
            })
        }
        Expr::Block(axis) => Some(format!("block.{}", ["x", "y", "z"][axis.index()])),
        Expr::Element(param, _) => {
            Some(format!("an element of `{}`", program.params.get(param.0 as usize)?.name))
        }
        Expr::Binary(_, a, b) => {
            first_unknown(program, a, known).or_else(|| first_unknown(program, b, known))
        }
    }
}

/// `1 mode`, `2 modes`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A shape as messages show it.
fn shape_text(shape: &[i64]) -> String {
    let list: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", list.join(", "))
}

/// The constant extents of a register or shared tensor; those that are none count as 0.
fn static_shape(kind: &TensorKind) -> Vec<i64> {
    match kind {
        TensorKind::Register { shape, .. }
        | TensorKind::Shared { shape, .. }
        | TensorKind::Part { shape, .. } => shape.iter().map(|e| e.as_int().unwrap_or(0)).collect(),
        TensorKind::View { .. } => Vec::new(),
    }
}
