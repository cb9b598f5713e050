//! Statements of leaves as statements of the kernel: the fragment's tensors become the places that the graph gives them, its integers those of the
//! call.

use std::collections::BTreeMap;

use tilewright_machine::Memory;
use tilewright_tile::statement::ShapeOp;
use tilewright_tile::{
    Constants, Diagnostic, ElemExpr, Expr, Operand, OperandMut, Origin, ParamId, Stmt, StmtKind, SymbolId,
    Tensor, TensorId, TensorKind, TensorRef, Use,
};

use super::{Emit, Res, refused};
use crate::environment::Environment;
use crate::graph::{Access, Group, Node, NodeId, Op, ReplicaId};
use crate::instantiate::{Argument, Call};
use crate::leaf::transposed;
use crate::partition::Extent;
use crate::program::{FloatArg, Leaf, LeafFormal, SymbolKind};

/// A statement of a leaf at its place.
struct Context<'p> {
    leaf: &'p Leaf,
    node: Node,
    call: Call,
    constants: Environment,
    /// Tensors that are a formal transposed.
    views: BTreeMap<TensorId, TensorId>,
    /// Symbols and tensors that the statement defines itself.
    symbols: BTreeMap<SymbolId, SymbolId>,
    tensors: BTreeMap<TensorId, TensorId>,
    /// Statements in front: parts and transposes of what is read.
    before: Vec<Stmt>,
}

impl Emit<'_> {
    /// The statements of a leaf's statement.
    pub(super) fn statement(&mut self, id: NodeId) -> Res<Vec<Stmt>> {
        let node = self.graph.node(id).clone();
        let call = self.graph.tree.call(node.call).clone();
        let program = self.program;
        let leaf = program.task(call.task).variant(call.variant).leaf();
        let Op::Statement { number, .. } = node.op else {
            return Err(Diagnostic::internal(node.span, "a copy as a statement"));
        };
        let Some((leaf, stmt)) = leaf.and_then(|leaf| Some((leaf, leaf.fragment.body.get(number)?))) else {
            return Err(Diagnostic::internal(node.span, "a statement of no leaf"));
        };
        let mut context = Context {
            leaf,
            constants: Environment::of(program, &Constants::default())?,
            views: transposed(leaf),
            node,
            call,
            symbols: BTreeMap::new(),
            tensors: BTreeMap::new(),
            before: Vec::new(),
        };
        if let Some(replica) = self.moves(&context, id, stmt) {
            let StmtKind::Elementwise { expr: ElemExpr::Tensor(source), .. } = &stmt.kind else {
                return Err(Diagnostic::internal(context.node.span, "a move of no tensor"));
            };
            let tensor = self.operand(&mut context, *source, Use::Read)?;
            self.moved.insert(replica, tensor);
            return Ok(context.before);
        }
        let kind = match (&stmt.kind, self.groups.get(&id)) {
            (StmtKind::Gemm { c, a, b, meta, scales: None, .. }, Some(Group::Products)) => {
                let c = self.operand(&mut context, *c, Use::Accumulate)?;
                let a = self.factor(&mut context, *a)?;
                let b = self.factor(&mut context, *b)?;
                let meta = meta.map(|meta| self.operand(&mut context, meta, Use::Read)).transpose()?;
                let warpgroups = self.shares(&context)?;
                StmtKind::GemmAsync { c, a, b, meta, scales: None, warpgroups }
            }
            _ => {
                let mut kind = stmt.kind.clone();
                self.convert(&mut context, &mut kind)?;
                kind
            }
        };
        let span = context.node.span;
        let issued = matches!(kind, StmtKind::GemmAsync { .. }) && self.last.get(&id) == Some(&id);
        let mut out = context.before;
        out.push(self.stmt(kind, span));
        if issued {
            out.push(self.stmt(StmtKind::CommitGemm, span));
        }
        Ok(out)
    }

    /// The place that a statement only moves another tensor to, where copies alone read it before anything changes that tensor: its registers are
    /// the other's.
    fn moves(&self, context: &Context<'_>, id: NodeId, stmt: &Stmt) -> Option<ReplicaId> {
        let StmtKind::Elementwise { expr: ElemExpr::Tensor(_), .. } = &stmt.kind else { return None };
        let written = context.node.accesses.iter().find(|access| access.writes && !access.reads)?;
        let read = context.node.accesses.iter().find(|access| access.reads && !access.writes)?;
        let (to, from) = (written.replica?, read.replica?);
        let graph = self.graph;
        if graph.object(written.object).dtype != graph.object(read.object).dtype
            || !written.piece.same(&graph.replica(to).piece)
            || graph.replica(to).memory != Some(Memory::Register)
            || self.pinned.contains_key(&to)
        {
            return None;
        }
        let order = graph.ordered();
        let uses = |replica: ReplicaId| {
            let touches = move |other: &&NodeId| {
                graph.node(**other).accesses.iter().any(|access| access.replica == Some(replica))
            };
            order.iter().filter(touches).copied().collect::<Vec<NodeId>>()
        };
        let place = |other: NodeId| order.iter().position(|at| *at == other);
        let readers: Vec<NodeId> = uses(to).into_iter().filter(|other| *other != id).collect();
        let last = readers.iter().filter_map(|other| place(*other)).max()?;
        let copies = readers.iter().all(|other| {
            let other_row = graph.node(*other);
            matches!(other_row.op, Op::Copy(of, _) if of == to)
                && (other_row.body, &other_row.late) == (context.node.body, &context.node.late)
                && place(*other) > place(id)
        });
        let changed = uses(from).into_iter().any(|other| {
            let writes =
                graph.node(other).accesses.iter().any(|access| access.replica == Some(from) && access.writes);
            writes && place(other) > place(id) && place(other) < Some(last)
        });
        (copies && !changed).then_some(to)
    }

    /// A factor of an asynchronous product: in shared memory or in registers.
    fn factor(&mut self, context: &mut Context<'_>, tensor: TensorId) -> Res<TensorRef> {
        let of = context.views.get(&tensor).copied();
        let access = access(context, of.unwrap_or(tensor)).cloned();
        if let Some(access) = access
            && let Some(replica) = access.replica
            && self.graph.replica(replica).memory == Some(Memory::Shared)
        {
            let reference = self.in_shared(replica, &access.piece, context.node.span)?;
            return Ok(TensorRef { transposed: of.is_some(), ..reference });
        }
        Ok(TensorRef::whole(self.operand(context, tensor, Use::Read)?))
    }

    /// The warpgroups that share a product along its rows and columns, where the mapping cuts the sum among them.
    fn shares(&self, context: &Context<'_>) -> Res<Option<[Expr; 2]>> {
        let sum = context.node.accesses.iter().find(|access| access.writes).and_then(|access| access.replica);
        let spread = sum.map(|replica| &self.graph.replica(replica).spread);
        let level = spread
            .into_iter()
            .flatten()
            .find(|(level, _)| *level == tilewright_machine::Processor::Warpgroup);
        let Some((_, partition)) = level else { return Ok(None) };
        let counts: Option<Vec<i64>> = partition.colours().into_iter().collect();
        Ok(match counts.as_deref() {
            Some([m, n]) => Some([Expr::Int(*m), Expr::Int(*n)]),
            _ => None,
        })
    }

    /// The register tensor of a fragment's tensor.
    fn operand(&mut self, context: &mut Context<'_>, tensor: TensorId, used: Use) -> Res<TensorId> {
        if let Some(own) = context.tensors.get(&tensor) {
            return Ok(*own);
        }
        let span = context.node.span;
        let row = context.leaf.fragment.tensor(tensor);
        if let TensorKind::Part { of, index, shape } = &row.kind {
            let of = self.operand(context, *of, used)?;
            let exprs = |emit: &Self, context: &Context<'_>, list: &[Expr]| {
                list.iter().map(|e| emit.integer_of(context, e)).collect::<Res<Vec<Expr>>>()
            };
            let shape = exprs(self, context, shape)?;
            let mut fixed = Vec::new();
            for entry in index {
                fixed.push(entry.as_ref().map(|e| self.integer_of(context, e)).transpose()?);
            }
            let whole = self.out.tensor(of).clone();
            let kind = TensorKind::Part { of, index: fixed, shape };
            let part = self.tensor(whole.name, whole.dtype, kind, span);
            return Ok(part);
        }
        if let Some(of) = context.views.get(&tensor).copied() {
            let src = self.operand(context, of, Use::Read)?;
            let TensorKind::Register { shape, .. } = self.out.tensor(src).kind.clone() else {
                return Err(Diagnostic::internal(span, "a transpose of no register tensor"));
            };
            let name = self.names.local(&row.name);
            let kind = TensorKind::Register { shape: shape.iter().rev().cloned().collect(), pinned: None };
            let dst = self.tensor(name, row.dtype, kind, span);
            let op = ShapeOp::Transpose((0..shape.len() as u32).rev().collect());
            context.before.push(self.stmt(StmtKind::Shape { dst, src, op }, span));
            context.tensors.insert(tensor, dst);
            return Ok(dst);
        }
        let Some(access) = access(context, tensor).cloned() else {
            // The statement's own: defined in its body.
            let name = self.names.local(&row.name);
            let shape = self.shape_of(context, tensor)?;
            let own = self.tensor(name, row.dtype, TensorKind::Register { shape, pinned: None }, span);
            context.tensors.insert(tensor, own);
            return Ok(own);
        };
        let Some(replica) = access.replica else {
            return Err(Diagnostic::internal(span, "a use without a place"));
        };
        if self.graph.replica(replica).memory != Some(Memory::Register) {
            let name = &self.graph.object(access.object).name;
            return Err(Diagnostic::internal(span, format!("`{name}` is not in registers")));
        }
        if used.writes() && !access.piece.same(&self.graph.replica(replica).piece) {
            return Err(self.part_written(replica, span));
        }
        let whole = match access.own {
            Some(own) => self.own_register(context, replica, own)?,
            None => self.register(replica, span)?,
        };
        let mut before = std::mem::take(&mut context.before);
        let part = self.in_registers(replica, whole, &access.piece, &mut before, span)?;
        context.before = before;
        Ok(part)
    }

    /// The register tensor that stands for a place.
    pub(super) fn register(&mut self, replica: ReplicaId, span: Origin) -> Res<TensorId> {
        if let Some(tensor) = self.moved.get(&replica).or(self.registers.get(&replica)) {
            return Ok(*tensor);
        }
        let row = self.graph.replica(replica);
        if row.stages.is_some_and(|stages| stages.depth > 1) {
            let object = self.graph.object(row.object);
            let message = format!(
                "`{}` is in registers, and needs a second buffer for the launch that is late",
                object.name
            );
            return Err(refused(span, message).help("give it the memory `shared`, or leave `late` out"));
        }
        let object_id = row.object;
        let object = self.graph.object(object_id).clone();
        let shape = self.extents(row.piece.shape(), &object.name, object.span)?;
        // A parameter has the name itself.
        let outside = object.param || self.workspaces.contains_key(&object_id);
        let name = self.names.local(&if outside { format!("r{}", object.name) } else { object.name.clone() });
        let (pinned, span) = self.pinned_register(replica, object.span)?;
        let tensor = self.tensor(name, object.dtype, TensorKind::Register { shape, pinned }, span);
        self.registers.insert(replica, tensor);
        Ok(tensor)
    }

    /// The register tensor of a leaf's own tensor, of the fragment's shape.
    fn own_register(&mut self, context: &Context<'_>, replica: ReplicaId, own: TensorId) -> Res<TensorId> {
        if let Some(tensor) = self.registers.get(&replica) {
            return Ok(*tensor);
        }
        let row: &Tensor = context.leaf.fragment.tensor(own);
        let shape = self.shape_of(context, own)?;
        let name = self.names.local(&row.name);
        let tensor = self.tensor(name, row.dtype, TensorKind::Register { shape, pinned: None }, row.span);
        self.registers.insert(replica, tensor);
        Ok(tensor)
    }

    /// The shape of a fragment's tensor.
    fn shape_of(&self, context: &Context<'_>, tensor: TensorId) -> Res<Vec<Expr>> {
        match &context.leaf.fragment.tensor(tensor).kind {
            TensorKind::Register { shape, .. } => shape.iter().map(|e| self.integer_of(context, e)).collect(),
            _ => Err(Diagnostic::internal(context.node.span, "a leaf's tensor that is not in registers")),
        }
    }

    /// Extents that are known when the kernel is compiled.
    pub(super) fn extents(&self, shape: &[Extent], name: &str, span: Origin) -> Res<Vec<Expr>> {
        let known = shape.iter().map(|extent| {
            extent.map(Expr::Int).ok_or_else(|| {
                let message =
                    format!("`{name}` has an extent that is known at run time only, and is used as a whole");
                refused(span, message).help("cut it by `blocks` into pieces of known extents")
            })
        });
        known.collect()
    }

    /// Puts what a statement's operands stand for in their place.
    fn convert(&mut self, context: &mut Context<'_>, kind: &mut StmtKind) -> Res<()> {
        if let StmtKind::Elementwise { dst, expr } = kind {
            self.elementwise(context, expr)?;
            *dst = self.operand(context, *dst, Use::Assign)?;
            return Ok(());
        }
        // Bodies first define their counters.
        for operand in kind.operands() {
            if let Operand::Counter(Use::Define, symbol) = operand {
                let row = context.leaf.fragment.symbol(*symbol).clone();
                let symbol_kind = match row.kind {
                    tilewright_tile::SymbolKind::UnrolledBy(by) => {
                        tilewright_tile::SymbolKind::UnrolledBy(self.integer_of(context, &by)?)
                    }
                    other => other,
                };
                let new = self.symbol(&row.name, symbol_kind, context.node.span);
                context.symbols.insert(*symbol, new);
            }
        }
        let mut failed = None;
        for operand in kind.operands_mut() {
            let done = match operand {
                OperandMut::Tensor(used, tensor) => {
                    self.operand(context, *tensor, used).map(|new| *tensor = new)
                }
                OperandMut::Reference(used, reference) => self.reference_of(context, reference, used),
                OperandMut::Constant(e) | OperandMut::Expr(e) => {
                    self.integer_of(context, e).map(|new| *e = new)
                }
                OperandMut::Counter(_, symbol) => {
                    if let Some(new) = context.symbols.get(symbol) {
                        *symbol = *new;
                    }
                    Ok(())
                }
                OperandMut::Scalar(param) => self.scalar(context, *param).and_then(|found| match found {
                    Scalar::Param(new) => {
                        *param = new;
                        Ok(())
                    }
                    Scalar::Number(_) | Scalar::Integer(_) => Err(refused(
                        context.node.span,
                        "a number that a launch passes to a statement like this",
                    )
                    .help("pass a formal of the entry")),
                }),
                OperandMut::Body(body) => {
                    let mut out = Vec::new();
                    let mut result = Ok(());
                    // What a body's statements need in front stands in the body.
                    let outer = std::mem::take(&mut context.before);
                    for stmt in std::mem::take(body) {
                        let mut kind = stmt.kind;
                        result = result.and_then(|()| self.convert(context, &mut kind));
                        out.append(&mut context.before);
                        let span = stmt.span.or(context.node.span);
                        out.push(self.stmt(kind, span));
                    }
                    context.before = outer;
                    *body = out;
                    result
                }
                OperandMut::Pipeline(..) | OperandMut::Barrier(..) | OperandMut::Param(..) => {
                    Err(Diagnostic::internal(context.node.span, "a statement that no leaf has"))
                }
            };
            if let Err(error) = done {
                failed = failed.or(Some(error));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn reference_of(&mut self, context: &mut Context<'_>, reference: &mut TensorRef, used: Use) -> Res<()> {
        reference.tensor = self.operand(context, reference.tensor, used)?;
        for index in reference.index.iter_mut().flatten() {
            *index = self.integer_of(context, index)?;
        }
        if let Some(indexed) = &mut reference.indexed {
            indexed.by = self.operand(context, indexed.by, Use::Read)?;
        }
        Ok(())
    }

    /// The value of a fragment's integer at the call.
    fn integer_of(&self, context: &Context<'_>, expr: &Expr) -> Res<Expr> {
        let span = context.node.span;
        Ok(match expr {
            Expr::Int(value) => Expr::Int(*value),
            Expr::Binary(op, a, b) => {
                Expr::binary(*op, self.integer_of(context, a)?, self.integer_of(context, b)?)
            }
            Expr::Symbol(id) => {
                if let Some(own) = context.symbols.get(id) {
                    return Ok(Expr::Symbol(*own));
                }
                let outside = context.leaf.symbols.iter().find(|(inside, _)| inside == id).map(|(_, of)| *of);
                let Some(outside) = outside else {
                    return Err(Diagnostic::internal(span, "an integer that the leaf does not have"));
                };
                if let Some(form) = context.call.symbols.get(&outside) {
                    return self.expr(form, span);
                }
                match self.program.symbol(outside).kind {
                    SymbolKind::Constant(_) => Expr::Int(self.program_constant(context, outside)?),
                    _ => return Err(Diagnostic::internal(span, "an integer without a value")),
                }
            }
            Expr::Scalar(param) => {
                let formal = formal_of(context.leaf, *param);
                match formal.and_then(|formal| context.call.arguments.get(formal)) {
                    Some(Argument::Integer(form)) => self.expr(form, span)?,
                    _ => return Err(Diagnostic::internal(span, "an integer formal without a value")),
                }
            }
            Expr::Block(_) | Expr::Element(..) => {
                return Err(Diagnostic::internal(span, "an integer of a kernel in a leaf"));
            }
        })
    }

    fn program_constant(&self, context: &Context<'_>, id: SymbolId) -> Res<i64> {
        context.constants.value(self.program, &Expr::Symbol(id), context.node.span)
    }

    /// Puts what an expression's operands stand for in their place.
    fn elementwise(&mut self, context: &mut Context<'_>, expr: &mut ElemExpr) -> Res<()> {
        match expr {
            ElemExpr::Tensor(tensor) => *tensor = self.operand(context, *tensor, Use::Read)?,
            ElemExpr::Int(value) => *value = self.integer_of(context, value)?,
            ElemExpr::Scalar(param) => {
                *expr = match self.scalar(context, *param)? {
                    Scalar::Param(param) => ElemExpr::Scalar(param),
                    Scalar::Number(value) => ElemExpr::Number(value),
                    Scalar::Integer(value) => ElemExpr::Int(value),
                };
            }
            ElemExpr::Unary(_, x) | ElemExpr::Packed(_, x) | ElemExpr::Bitcast(_, x) => {
                self.elementwise(context, x)?;
            }
            ElemExpr::Binary(_, x, y) => {
                self.elementwise(context, x)?;
                self.elementwise(context, y)?;
            }
            ElemExpr::Where(parts) => {
                for part in parts.iter_mut() {
                    self.elementwise(context, part)?;
                }
            }
            ElemExpr::Asm(asm) => {
                for operand in asm.operands.iter_mut().chain([&mut asm.means]) {
                    self.elementwise(context, operand)?;
                }
            }
            ElemExpr::Number(_) | ElemExpr::Index(_) | ElemExpr::Operand(_) => {}
        }
        Ok(())
    }

    /// The number that a scalar formal stands for.
    fn scalar(&self, context: &Context<'_>, param: ParamId) -> Res<Scalar> {
        let span = context.node.span;
        let formal = formal_of(context.leaf, param);
        match formal.and_then(|formal| context.call.arguments.get(formal)) {
            Some(Argument::Float(FloatArg::Literal(value))) => Ok(Scalar::Number(*value)),
            Some(Argument::Float(FloatArg::Constant(at))) => match self.program.numbers.get(*at) {
                Some(number) => Ok(Scalar::Number(number.value)),
                None => Err(Diagnostic::internal(span, "a constant that is not there")),
            },
            Some(Argument::Integer(form)) => Ok(Scalar::Integer(self.expr(form, span)?)),
            Some(Argument::Float(FloatArg::Formal(formal))) => match self.params.get(formal) {
                Some(param) => Ok(Scalar::Param(*param)),
                None => Err(Diagnostic::internal(span, "a formal that is not there")),
            },
            _ => Err(Diagnostic::internal(span, "a number without a value")),
        }
    }
}

/// The meaning of a formal that is a number.
enum Scalar {
    Param(ParamId),
    Number(f64),
    Integer(Expr),
}

/// The formal of a leaf that a scalar parameter of its fragment is.
fn formal_of(leaf: &Leaf, param: ParamId) -> Option<usize> {
    leaf.formals.iter().position(|formal| *formal == LeafFormal::Scalar(param))
}

/// The access by which a node uses a tensor of its leaf's fragment.
fn access<'c>(context: &'c Context<'_>, tensor: TensorId) -> Option<&'c Access> {
    let formal = context.leaf.formals.iter().position(|formal| *formal == LeafFormal::Tensor(tensor));
    context.node.accesses.iter().find(|access| match formal {
        Some(formal) => access.formal == Some(formal),
        None => access.formal.is_none() && access.own == Some(tensor),
    })
}
