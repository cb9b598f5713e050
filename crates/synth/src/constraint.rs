//! Thread-value constraints (Hexcute, Fig. 19): one equation a statement over the layouts of the register tensors it
//! connects, which can be printed and solved for any one unknown.
//!
//! A layout is a map (thread, value) → coordinate. `f(x)` is the layout of tensor `x`; `σ` and `μ` map the coordinates
//! of one tile to those of another. A copy between registers and memory ties one register tensor to an instruction, which
//! is solved for the memory's side in [`access`]; it connects no two register tensors.

use tilewright_layout::Layout;
use tilewright_machine::{Memory, tensor_gather};
use tilewright_tile::core::{Program, ShapeOp, Stmt, StmtKind};
use tilewright_tile::{CombineForm, CopyAttrs, ElemExpr, Fetch, ScanOperands, TensorId};

use crate::async_layout::tma::gathered_indices;
use crate::divisibility::Divisibility;
use crate::tv::TvLayout;
use crate::{access, reduce, rows, shapes};

/// The demands of a statement on the layouts of its register tensors.
#[derive(Clone, PartialEq, Debug)]
pub struct Constraint {
    /// The statement, by its number in the order of [`Program::visit`].
    pub statement: usize,
    /// The equation.
    pub equation: Equation,
}

/// An equation over thread-value layouts.
#[derive(Clone, PartialEq, Debug)]
pub enum Equation {
    /// `f₁ = f₂ = … = fₙ`: elementwise statements, casts, register copies (tp-elem), reductions of a mode of extent 1.
    Equal(Vec<TensorId>),
    /// `f(dst) = σ∘f(src)`: a shape statement; also an operand of an elementwise statement whose extents of 1 repeat.
    Shape {
        /// The result.
        dst: TensorId,
        /// The operand.
        src: TensorId,
        /// The operation.
        op: ShapeOp,
    },
    /// `f(whole) = (f(half), its values above by the size of the half)`: one side of a join or a split.
    Half {
        /// The tensor with both halves.
        whole: TensorId,
        /// The first half.
        half: TensorId,
        /// True if the whole is the result.
        joins: bool,
    },
    /// `g = μ∘f`, with `μ` leaving out a mode (tp-reduce).
    Reduce {
        /// The result, `g`.
        dst: TensorId,
        /// The operand, `f`.
        src: TensorId,
        /// The mode that is left out.
        axis: u32,
    },
    /// `f(by) = μ∘f`, with `μ` from the coordinates of a tile to those of the mode that `by` indexes: each thread holds the indices of what it
    /// copies.
    Indexed {
        /// The register tensor that indexes the mode.
        by: TensorId,
        /// `μ`.
        map: Layout,
        /// The threads' part of the tile, `f`.
        tile: IndexedPart,
    },
    /// The three equations of a matrix product (tp-gemm).
    Gemm {
        /// The accumulator.
        c: TensorId,
        /// The left factor.
        a: TensorId,
        /// The right factor.
        b: TensorId,
        /// The metadata of a sparse left factor.
        meta: Option<TensorId>,
        /// The scales of blocks of both factors.
        scales: Option<[TensorId; 2]>,
    },
    /// Each warp holds the condition of every row of which it holds an element, and warps that share a row hold one part of the condition
    /// ([`rows::apart`]): a tensor that the body of an `if any` writes.
    Rows {
        /// The condition.
        condition: TensorId,
        /// The mode along which one true element decides.
        axis: u32,
        /// The tensor that is written.
        of: TensorId,
    },
    /// `f∘p⁻¹ = g∘q⁻¹`, with `g` the register tensor's layout, `p` and `q` an instruction's, and `f` the coordinates that
    /// threads address in memory (tp-copy).
    Memory {
        /// The register tensor.
        register: TensorId,
        /// The tensor in memory.
        memory: TensorId,
    },
}

/// The threads' part of a tile of which a mode is indexed.
#[derive(Clone, PartialEq, Debug)]
pub enum IndexedPart {
    /// That of a register tensor.
    Register(TensorId),
    /// That of a copy without registers, by vectors of so many elements.
    Vectors(TvLayout, i64),
}

/// The constraints of a program, in the order of its statements. A rearrangement has none: that is what it is for.
pub fn constraints(
    verified: &Program,
    divisibility: &Divisibility<'_>,
    statements: &[(&Stmt, usize)],
) -> Vec<Constraint> {
    let memory = |t: TensorId| verified.tensor(t).memory();
    // A mode of extent 1 leaves every element where it is.
    let reduced = |dst: TensorId, src: TensorId, axis: u32| match verified.shape(src).get(axis as usize) {
        Some(1) => Equation::Equal(if dst == src { vec![dst] } else { vec![dst, src] }),
        _ => Equation::Reduce { dst, src, axis },
    };
    let mut all = Vec::new();
    for (statement, (stmt, _)) in statements.iter().enumerate() {
        indexed(verified, divisibility, stmt, &mut |equation| all.push(Constraint { statement, equation }));
        let mut push = |equation| all.push(Constraint { statement, equation });
        match &stmt.kind {
            StmtKind::Cast { dst, src } => push(Equation::Equal(vec![*dst, *src])),
            StmtKind::Elementwise { dst, expr } => {
                let (mut tensors, mut parts) = (vec![*dst], Vec::new());
                let shape = verified.shape(*dst);
                for t in ElemExpr::tensors(expr) {
                    let group = if verified.shape(t) == shape { &mut tensors } else { &mut parts };
                    if !group.contains(&t) {
                        group.push(t);
                    }
                }
                push(Equation::Equal(tensors));
                for src in parts {
                    let op = ShapeOp::Broadcast(shape.clone());
                    push(Equation::Shape { dst: *dst, src, op });
                }
            }
            StmtKind::Copy { src, dst, how: CopyAttrs { fetch: Some(Fetch { old, compare, .. }), .. } } => {
                let mut alike = vec![src.tensor];
                for tensor in [Some(*old), *compare].into_iter().flatten() {
                    if !alike.contains(&tensor) {
                        alike.push(tensor);
                    }
                }
                if alike.len() > 1 {
                    push(Equation::Equal(alike));
                }
                push(Equation::Memory { register: src.tensor, memory: dst.tensor });
            }
            StmtKind::Copy { src, dst, .. } => match (memory(src.tensor), memory(dst.tensor)) {
                (Memory::Register, Memory::Register) => push(Equation::Equal(vec![src.tensor, dst.tensor])),
                // The layout is pinned: each warp reaches lanes of its own.
                (Memory::Tensor, _) | (_, Memory::Tensor) => {}
                (Memory::Register, _) => {
                    push(Equation::Memory { register: src.tensor, memory: dst.tensor });
                }
                (_, Memory::Register) => {
                    push(Equation::Memory { register: dst.tensor, memory: src.tensor });
                }
                _ => {}
            },
            StmtKind::Gemm { c, a, b, meta, scales, .. } => {
                push(Equation::Gemm { c: *c, a: *a, b: *b, meta: *meta, scales: *scales });
            }
            StmtKind::IfAny { condition, axis, body } => {
                for of in rows::outside(verified, (stmt, body), statements) {
                    push(Equation::Rows { condition: *condition, axis: *axis, of });
                }
            }
            StmtKind::Gather { dst, index, .. } => push(Equation::Equal(vec![*dst, *index])),
            StmtKind::Shape { dst, src, op } => {
                push(Equation::Shape { dst: *dst, src: *src, op: op.clone() });
            }
            StmtKind::Join { dst, a, b } => {
                push(Equation::Equal(vec![*a, *b]));
                push(Equation::Half { whole: *dst, half: *a, joins: true });
            }
            StmtKind::Split { lo, hi, src } => {
                push(Equation::Equal(vec![*lo, *hi]));
                push(Equation::Half { whole: *src, half: *lo, joins: false });
            }
            StmtKind::Reduce { dst, src, axis, .. } => {
                push(reduced(*dst, *src, *axis));
            }
            StmtKind::Combine { dsts, srcs, axis, form, .. } => {
                let mut alike: Vec<TensorId> = Vec::new();
                let results = if *form == CombineForm::Reduce { &[][..] } else { dsts };
                for tensor in results.iter().chain(srcs) {
                    if !alike.contains(tensor) {
                        alike.push(*tensor);
                    }
                }
                push(Equation::Equal(alike));
                if *form == CombineForm::Reduce {
                    for dst in dsts {
                        push(reduced(*dst, srcs[0], *axis));
                    }
                }
            }
            StmtKind::ClusterCombine { dsts, .. } => push(Equation::Equal(dsts.clone())),
            StmtKind::Arg { value, index, src, axis, .. } => {
                for dst in [*value, *index] {
                    push(reduced(dst, *src, *axis));
                }
            }
            StmtKind::Sort { dst, src, carried, .. } => {
                let mut alike = vec![*dst];
                for tensor in [Some(*src), carried.map(|c| c[0]), carried.map(|c| c[1])].into_iter().flatten()
                {
                    if !alike.contains(&tensor) {
                        alike.push(tensor);
                    }
                }
                push(Equation::Equal(alike));
            }
            StmtKind::Scan { dst, operands, axis, .. } => {
                let (operands, before) = match operands {
                    ScanOperands::One { src, .. } => (vec![*src], None),
                    ScanOperands::Linear { a, b, before } => (vec![*a, *b], *before),
                };
                let mut alike = vec![*dst];
                for operand in &operands {
                    if !alike.contains(operand) {
                        alike.push(*operand);
                    }
                }
                push(Equation::Equal(alike));
                if let Some(before) = before {
                    push(Equation::Reduce { dst: before, src: operands[0], axis: *axis });
                }
            }
            _ => {}
        }
    }
    all
}

/// The equations of the modes that register tensors index in a copy.
fn indexed(
    verified: &Program,
    divisibility: &Divisibility<'_>,
    stmt: &Stmt,
    push: &mut impl FnMut(Equation),
) {
    let threads = i64::from(verified.threads());
    if let StmtKind::CopyAsync { src, how, .. } = &stmt.kind
        && how.tensor
    {
        let tile = verified.tile(src);
        let Some((indexed, map)) = tile.indexed.as_ref().zip(access::index_map(&tile)) else { return };
        let held = gathered_indices(tile.shape.first().copied().unwrap_or(0), threads);
        let tile = held.map(|held| IndexedPart::Vectors(held, i64::from(tensor_gather().boxes())));
        tile.into_iter().for_each(|tile| push(Equation::Indexed { by: indexed.by, map: map.clone(), tile }));
        return;
    }
    let Some((src, dst)) = stmt.kind.copied() else { return };
    let ends = [src, dst].map(|r| verified.tile(r));
    let register = ends.iter().find(|tile| tile.memory == Memory::Register);
    for tile in &ends {
        let (Some(indexed), Some(map)) = (&tile.indexed, access::index_map(tile)) else { continue };
        let part = match register {
            Some(register) => Some(IndexedPart::Register(register.tensor)),
            None => access::copy_layout(divisibility, &ends[0], threads)
                .map(|(tv, n)| IndexedPart::Vectors(tv, n)),
        };
        let by = indexed.by;
        part.into_iter().for_each(|tile| push(Equation::Indexed { by, map: map.clone(), tile }));
    }
}

impl Constraint {
    /// The register tensors that it connects.
    pub fn tensors(&self) -> Vec<TensorId> {
        match &self.equation {
            Equation::Equal(tensors) => tensors.clone(),
            Equation::Shape { dst, src, .. } | Equation::Reduce { dst, src, .. } => vec![*dst, *src],
            Equation::Half { whole, half, .. } => vec![*whole, *half],
            Equation::Gemm { c, a, b, meta, scales } => {
                let beside = meta.iter().chain(scales.iter().flatten());
                [c, a, b].into_iter().chain(beside).copied().collect()
            }
            Equation::Memory { register, .. } => vec![*register],
            Equation::Indexed { by, tile: IndexedPart::Register(register), .. } => vec![*by, *register],
            Equation::Indexed { by, .. } => vec![*by],
            Equation::Rows { condition, of, .. } => vec![*of, *condition],
        }
    }

    /// The equation as text, with the program's own names.
    pub fn text(&self, verified: &Program) -> String {
        let f = |id: &TensorId| {
            let tensor = verified.tensor(*id);
            format!("f({})", tensor.unnamed.text().unwrap_or(&tensor.name))
        };
        match &self.equation {
            Equation::Equal(tensors) => tensors.iter().map(f).collect::<Vec<_>>().join(" = "),
            Equation::Shape { dst, src, op } => format!("{} = {}∘{}", f(dst), op.name(), f(src)),
            Equation::Half { whole, half, .. } => {
                let size: i64 = verified.shape(*half).iter().product();
                format!("{} = ({}, 2:{size})", f(whole), f(half))
            }
            Equation::Reduce { dst, src, axis } => {
                format!("{} = μ∘{}, μ without mode {axis}", f(dst), f(src))
            }
            Equation::Gemm { c, a, b, meta, scales } => {
                let (c, a, b) = (f(c), f(a), f(b));
                let rows = format!(
                    "μ_M∘({c}∘p_C⁻¹)∘η_M = μ_M∘({a}∘p_A⁻¹)∘η_M, μ_N∘({c}∘p_C⁻¹)∘η_N = μ_N∘({b}∘p_B⁻¹)∘η_N"
                );
                match meta {
                    None => {
                        let columns = format!("{rows}, μ_K∘({a}∘p_A⁻¹)∘η_K = μ_K∘({b}∘p_B⁻¹)∘η_K");
                        // Scales lie with the rows of their factors.
                        let beside = scales.iter().flatten().zip([(&a, 'A', 'M'), (&b, 'B', 'N')]);
                        beside.fold(columns, |text, (scale, (factor, letter, mode))| {
                            let scale = f(scale);
                            format!(
                                "{text}, μ_{mode}∘({scale}∘p_S{letter}⁻¹)∘η_{mode} = μ_{mode}∘({factor}∘p_{letter}⁻¹)∘η_{mode}"
                            )
                        })
                    }
                    // Groups of K: four columns of B, two of A and of its metadata.
                    Some(meta) => format!(
                        "{rows}, μ_G∘({a}∘p_A⁻¹)∘η_G = μ_G∘({b}∘p_B⁻¹)∘η_G, {a}∘p_A⁻¹ = {}∘p_E⁻¹",
                        f(meta)
                    ),
                }
            }
            Equation::Indexed { by, map, tile } => {
                let of = match tile {
                    IndexedPart::Register(register) => f(register),
                    IndexedPart::Vectors(tv, _) => tv.layout().to_string(),
                };
                format!("{} = {map}∘{of}", f(by))
            }
            Equation::Rows { condition, axis, of } => {
                format!("warps of {} decide by {}, rows without mode {axis}", f(of), f(condition))
            }
            Equation::Memory { register, memory } => format!("{}∘p⁻¹ = {}∘q⁻¹", f(memory), f(register)),
        }
    }

    /// Solves the equation for `unknown`, if it can be from what is known; with the tensor that it follows from. What is only
    /// one of several solutions (the operand of a reduction, the result of a broadcast) is given where `any` says so. Matrix
    /// products are solved by an [`TiledMma`](crate::gemm::TiledMma), memory's side by [`access`].
    pub fn solve<'l>(
        &self,
        verified: &Program,
        unknown: TensorId,
        known: &dyn Fn(TensorId) -> Option<&'l TvLayout>,
        any: bool,
    ) -> Option<(TensorId, TvLayout)> {
        let shape = |id: &TensorId| verified.shape(*id);
        match &self.equation {
            Equation::Equal(tensors) => {
                let from = tensors.iter().find(|t| **t != unknown && known(**t).is_some())?;
                Some((*from, known(*from)?.clone()))
            }
            Equation::Shape { dst, src, op } => {
                let (from, to) = (shape(src), shape(dst));
                if let ShapeOp::Slice { axis, start, .. } = op {
                    // A part does not say how the rest is held.
                    let whole = if unknown == *dst { known(*src)? } else { return None };
                    let part = shapes::sliced(whole, &from, &to, *axis, *start);
                    // One coordinate goes from the threads that hold it to those that hold others.
                    let spread =
                        || if to[*axis as usize] == 1 { reduce::arises(whole, &from, *axis) } else { None };
                    return Some((*src, part.or_else(spread)?));
                }
                let map = shapes::backward(op, &from, &to)?;
                if unknown == *src {
                    return Some((*dst, shapes::seen(known(*dst)?, &map)?));
                }
                match op {
                    ShapeOp::Broadcast(_) if any => Some((*src, shapes::repeated(known(*src)?, &map)?)),
                    ShapeOp::Broadcast(_) => None,
                    _ => Some((*src, shapes::lifted(known(*src)?, &map)?)),
                }
            }
            Equation::Half { whole, half, .. } => {
                let size: i64 = shape(half).iter().product();
                if unknown == *whole {
                    Some((*half, shapes::lifted(known(*half)?, &shapes::half(size)?)?))
                } else {
                    Some((*whole, shapes::halved(known(*whole)?, size)?))
                }
            }
            Equation::Reduce { dst, src, axis } => {
                if unknown == *dst {
                    Some((*src, reduce::arises(known(*src)?, &shape(src), *axis)?))
                } else {
                    let map = shapes::without(*axis, &shape(src))?;
                    any.then(|| Some((*dst, shapes::lifted(known(*dst)?, &map)?)))?
                }
            }
            Equation::Indexed { by, map, tile } if unknown == *by => match tile {
                IndexedPart::Register(register) => Some((*register, shapes::seen(known(*register)?, map)?)),
                IndexedPart::Vectors(tv, _) => Some((*by, shapes::seen(tv, map)?)),
            },
            // A row's one condition where the row is.
            Equation::Rows { condition, axis, of } if any && unknown == *condition => {
                let (condition, of_shape) = (shape(condition), shape(of));
                Some((*of, rows::held_rows(known(*of)?, (&condition, *axis), &of_shape)?))
            }
            Equation::Gemm { .. }
            | Equation::Memory { .. }
            | Equation::Indexed { .. }
            | Equation::Rows { .. } => None,
        }
    }
}

/// The connected components of the register tensors: those that constraints connect, memory between them. One entry a
/// tensor, the number of its component; `None` for tensors in other memories.
pub fn components(verified: &Program, constraints: &[Constraint]) -> Vec<Option<usize>> {
    let n = verified.tensors.len();
    let mut parent: Vec<usize> = (0..n).collect();
    fn root(parent: &mut [usize], mut i: usize) -> usize {
        while parent[i] != i {
            parent[i] = parent[parent[i]];
            i = parent[i];
        }
        i
    }
    for constraint in constraints {
        let tensors = constraint.tensors();
        for pair in tensors.windows(2) {
            let (a, b) = (root(&mut parent, pair[0].0 as usize), root(&mut parent, pair[1].0 as usize));
            parent[b.max(a)] = a.min(b);
        }
    }
    let mut numbers = std::collections::BTreeMap::new();
    (0..n)
        .map(|i| {
            let register = verified.tensors[i].memory() == Memory::Register;
            register.then(|| {
                let next = numbers.len();
                *numbers.entry(root(&mut parent, i)).or_insert(next)
            })
        })
        .collect()
}
