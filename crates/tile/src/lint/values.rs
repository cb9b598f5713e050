//! Values that tensors of a block hold, as a graph: what each is computed from, over loops and branches.
//!
//! A statement that assigns to a tensor makes a value of the values of its operands; expressions are taken apart, and what is computed twice of the same
//! operands is one value. A tensor that a loop changes has a value of its own at the loop's head ([`Node::Carried`]), which is what it held
//! before or what the last iteration left. Shared tensors are followed like registers where they are read and written as a whole in one role;
//! stages of pipelines and of rings are what the copies to them brought.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tilewright_machine::{DType, Memory};

use super::points::Sites;
use crate::expr::Expr;
use crate::program::{
    ArgOp, BinaryOp, ElemExpr, ParamId, ReduceOp, ScanOperands, ShapeOp, Stmt, StmtKind, TensorId,
    TensorKind, TensorRef, UnaryOp, Use,
};

/// A value's number. What it is computed from has a smaller one, but for [`Node::Carried`].
pub(super) type Id = usize;

/// Operation of which a value is the result. Statements are named by their places in [`Sites::all`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Node {
    /// A literal, by its bits.
    Number(u64),
    /// An integer of the program.
    Integer(Expr),
    /// A scalar parameter.
    Scalar(ParamId),
    /// `index(axis)`.
    Index(u32),
    /// A tile of a parameter, as the statement reads it.
    Load(usize),
    /// A part of a shared tensor, or a stage of it that copies of other roles fill, as the statement reads it.
    Slot(usize, TensorId),
    Unary(UnaryOp, Id),
    Binary(BinaryOp, Id, Id),
    Where([Id; 3]),
    Cast(DType, Id),
    Shape(ShapeOp, Id),
    Reduce(ReduceOp, u32, Id),
    /// A reduction over the cluster.
    Cluster(usize, Id),
    /// A scan of operands along an axis; with the state before.
    Scan(u32, Vec<Id>, Option<Id>),
    /// The largest or the smallest along an axis.
    Extreme(ArgOp, u32, Id),
    /// Its coordinate.
    Coordinate(ArgOp, u32, Id),
    /// `c += a · bᵀ`, by the statement.
    Product(usize, [Id; 3]),
    /// A result of a statement that is not followed further: its number there, and its operands.
    Made(usize, usize, Vec<Id>),
    /// One of two: behind a branch, or where a part of the first is overwritten.
    Either(usize, [Id; 2]),
    /// A tensor at the head of the loop of this number.
    Carried(usize, TensorId),
}

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) node: Node,
    pub(super) shape: Vec<i64>,
    /// The element type, where the value is that of a tensor.
    pub(super) dtype: Option<DType>,
    /// The statement that makes it first.
    pub(super) site: usize,
}

/// A loop, and the tensors that it changes.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    /// The statement.
    pub(super) site: usize,
    /// The number of statements in it.
    pub(super) len: usize,
    /// For each tensor what it holds before the loop, and what an iteration leaves.
    pub(super) carried: BTreeMap<TensorId, [Option<Id>; 2]>,
}

/// A copy of a value to a parameter.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) site: usize,
    pub(super) value: Id,
    /// The reference to the view.
    pub(super) to: TensorRef,
}

/// A copy to a part of a shared tensor, or to a stage.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    pub(super) value: Id,
    pub(super) to: TensorRef,
}

/// The values of a program.
#[derive(Default)]
pub(super) struct Values {
    pub(super) all: Vec<Value>,
    pub(super) loops: Vec<Loop>,
    pub(super) stores: Vec<Store>,
    /// For each shared tensor that is filled by parts or stages the copies that do.
    pub(super) fillings: BTreeMap<TensorId, Vec<Filling>>,
    /// The values that statements assign to tensors.
    pub(super) assigned: Vec<(usize, TensorId, Id)>,
    /// Values of `x - x` and the like, which are written so: a way to make a constant of a tensor's shape.
    pub(super) idioms: BTreeSet<Id>,
}

impl Values {
    pub(super) fn of(sites: &Sites<'_>) -> Values {
        let mut builder = Builder {
            sites,
            values: Values::default(),
            known: HashMap::new(),
            now: BTreeMap::new(),
            next: 0,
        };
        builder.body(&sites.program().body);
        builder.values
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.all[id].node
    }

    /// Value that a loop carries: what the tensor holds before the loop, and what an iteration leaves.
    pub(super) fn sides(&self, head: usize, tensor: TensorId) -> [Option<Id>; 2] {
        self.loops.get(head).and_then(|all| all.carried.get(&tensor)).copied().unwrap_or_default()
    }

    /// The literal that a value is.
    pub(super) fn number(&self, id: Id) -> Option<f64> {
        match self.node(id) {
            Node::Number(bits) => Some(f64::from_bits(*bits)),
            Node::Integer(e) => e.as_int().map(|x| x as f64),
            Node::Cast(_, of) | Node::Shape(_, of) | Node::Unary(UnaryOp::Float | UnaryOp::Int, of) => {
                self.number(*of)
            }
            Node::Unary(UnaryOp::Neg, of) => self.number(*of).map(|x| -x),
            Node::Carried(head, tensor) => match self.sides(*head, *tensor) {
                [Some(entry), Some(back)] if back == id => self.number(entry),
                _ => None,
            },
            _ => None,
        }
    }

    /// The values that a value is computed from; of a carried value both sides.
    pub(super) fn operands(&self, id: Id) -> Vec<Id> {
        match self.node(id) {
            Node::Number(_) | Node::Integer(_) | Node::Scalar(_) | Node::Index(_) | Node::Load(_) => {
                Vec::new()
            }
            Node::Slot(_, tensor) => {
                self.fillings.get(tensor).into_iter().flatten().map(|filling| filling.value).collect()
            }
            Node::Unary(_, x)
            | Node::Cast(_, x)
            | Node::Shape(_, x)
            | Node::Reduce(_, _, x)
            | Node::Cluster(_, x)
            | Node::Extreme(_, _, x)
            | Node::Coordinate(_, _, x) => vec![*x],
            Node::Binary(_, x, y) => vec![*x, *y],
            Node::Where(operands) | Node::Product(_, operands) => operands.to_vec(),
            Node::Scan(_, operands, before) => operands.iter().chain(before).copied().collect(),
            Node::Made(_, _, operands) => operands.clone(),
            Node::Either(_, sides) => sides.to_vec(),
            Node::Carried(head, tensor) => self.sides(*head, *tensor).into_iter().flatten().collect(),
        }
    }

    /// All values that some are computed from, themselves among them; those that `through` refuses are not looked behind.
    pub(super) fn behind(&self, of: &[Id], through: impl Fn(Id) -> bool) -> BTreeSet<Id> {
        let (mut seen, mut left) = (BTreeSet::new(), of.to_vec());
        while let Some(id) = left.pop() {
            if seen.insert(id) && through(id) {
                left.extend(self.operands(id));
            }
        }
        seen
    }

    /// True if a value is computed from another, or is it.
    pub(super) fn depends(&self, id: Id, on: Id) -> bool {
        self.behind(&[id], |_| true).contains(&on)
    }

    /// The value without casts and changes of shape.
    pub(super) fn plain(&self, id: Id) -> Id {
        match self.node(id) {
            Node::Cast(_, x) | Node::Shape(_, x) => self.plain(*x),
            _ => id,
        }
    }

    /// True for a statement in the body of a loop.
    pub(super) fn inside(&self, head: usize, site: usize) -> bool {
        let of = &self.loops[head];
        (of.site + 1..=of.site + of.len).contains(&site)
    }
}

struct Builder<'s, 'a> {
    sites: &'s Sites<'a>,
    values: Values,
    known: HashMap<(Node, Vec<i64>, Option<DType>), Id>,
    /// The value that each tensor holds.
    now: BTreeMap<TensorId, Id>,
    /// The place of the next statement.
    next: usize,
}

/// The register or shared tensors that statements write, with those inside.
fn changed(sites: &Sites<'_>, body: &[Stmt], all: &mut BTreeSet<TensorId>) {
    for stmt in body {
        for (used, id) in stmt.kind.tensors() {
            let id = match &sites.program().tensor(id).kind {
                TensorKind::Part { of, .. } => *of,
                _ => id,
            };
            if used.writes() || used == Use::Define {
                all.insert(id);
            }
        }
        changed(sites, stmt.kind.body(), all);
    }
}

fn count(body: &[Stmt]) -> usize {
    body.iter().map(|stmt| 1 + count(stmt.kind.body())).sum()
}

impl Builder<'_, '_> {
    fn value(&mut self, node: Node, shape: Vec<i64>, dtype: Option<DType>, site: usize) -> Id {
        let key = (node, shape, dtype);
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        let id = self.values.all.len();
        self.values.all.push(Value { node: key.0.clone(), shape: key.1.clone(), dtype, site });
        self.known.insert(key, id);
        id
    }

    /// A value of a tensor's shape and type.
    fn of_tensor(&mut self, node: Node, tensor: TensorId, site: usize) -> Id {
        let shape = self.sites.verified.shape(tensor);
        self.value(node, shape, Some(self.sites.program().tensor(tensor).dtype), site)
    }

    fn read(&mut self, tensor: TensorId, site: usize) -> Id {
        if let TensorKind::Part { of, .. } = self.sites.program().tensor(tensor).kind {
            let whole = self.read(of, site);
            return self.of_tensor(Node::Made(0, tensor.0 as usize, vec![whole]), tensor, site);
        }
        match self.now.get(&tensor) {
            Some(id) => *id,
            // What nothing has written.
            None => self.of_tensor(Node::Made(site, 0, Vec::new()), tensor, site),
        }
    }

    fn write(&mut self, tensor: TensorId, value: Id, site: usize) {
        if let TensorKind::Part { of, .. } = self.sites.program().tensor(tensor).kind {
            let whole = self.read(of, site);
            let value = self.of_tensor(Node::Either(site, [whole, value]), of, site);
            self.now.insert(of, value);
            return;
        }
        self.values.assigned.push((site, tensor, value));
        self.now.insert(tensor, value);
    }

    fn made(&mut self, results: &[TensorId], operands: Vec<Id>, site: usize) {
        for (number, tensor) in results.iter().enumerate() {
            let value = self.of_tensor(Node::Made(site, number, operands.clone()), *tensor, site);
            self.write(*tensor, value, site);
        }
    }

    fn is_staged(&self, tensor: TensorId) -> bool {
        self.sites.program().pipelines.iter().any(|pipeline| pipeline.tensors.contains(&tensor))
    }

    /// True for a reference to all of a shared tensor that one role has for itself.
    fn is_whole(&self, r: &TensorRef) -> bool {
        r.index.iter().all(Option::is_none) && r.indexed.is_none() && !self.is_staged(r.tensor)
    }

    fn transposed(&mut self, r: &TensorRef, value: Id, site: usize) -> Id {
        if !r.transposed {
            return value;
        }
        let Value { shape, dtype, .. } = self.values.all[value].clone();
        let order = (0..shape.len() as u32).rev().collect();
        self.value(
            Node::Shape(ShapeOp::Transpose(order), value),
            shape.into_iter().rev().collect(),
            dtype,
            site,
        )
    }

    fn reference(&mut self, r: &TensorRef, site: usize) -> Id {
        let tile = self.sites.verified.tile(r);
        match tile.memory {
            Memory::Global => self.value(Node::Load(site), tile.shape, Some(tile.dtype), site),
            Memory::Shared if !self.is_whole(r) => {
                self.value(Node::Slot(site, r.tensor), tile.shape, Some(tile.dtype), site)
            }
            Memory::Shared | Memory::Register | Memory::Tensor => {
                let value = self.read(r.tensor, site);
                self.transposed(r, value, site)
            }
        }
    }

    fn copy(&mut self, (src, dst): (&TensorRef, &TensorRef), combines: bool, site: usize) {
        let value = self.reference(src, site);
        match self.sites.program().tensor(dst.tensor).memory() {
            Memory::Global => {
                self.values.stores.push(Store { site, value, to: dst.clone() });
            }
            Memory::Shared if !self.is_whole(dst) => {
                let filling = Filling { value, to: dst.clone() };
                self.values.fillings.entry(dst.tensor).or_default().push(filling);
            }
            _ if combines => {
                let before = self.read(dst.tensor, site);
                self.made(&[dst.tensor], vec![before, value], site);
            }
            _ => {
                let value = self.transposed(dst, value, site);
                self.write(dst.tensor, value, site);
            }
        }
    }

    fn expression(&mut self, expr: &ElemExpr, shape: &[i64], site: usize) -> Id {
        let node = match expr {
            ElemExpr::Tensor(id) => return self.read(*id, site),
            ElemExpr::Number(x) => Node::Number(x.to_bits()),
            ElemExpr::Scalar(id) => Node::Scalar(*id),
            ElemExpr::Int(e) => Node::Integer(e.clone()),
            ElemExpr::Index(axis) => Node::Index(*axis),
            ElemExpr::Operand(number) => Node::Made(site, *number as usize, Vec::new()),
            ElemExpr::Unary(op, x) => Node::Unary(*op, self.expression(x, shape, site)),
            ElemExpr::Binary(op, x, y) => {
                let operands = [x, y].map(|x| self.expression(x, shape, site));
                Node::Binary(*op, operands[0], operands[1])
            }
            ElemExpr::Where(operands) => {
                Node::Where([0, 1, 2].map(|i| self.expression(&operands[i], shape, site)))
            }
            ElemExpr::Packed(_, x) => return self.expression(x, shape, site),
            // What the instructions compute is what they mean.
            ElemExpr::Asm(asm) => return self.expression(&asm.means, shape, site),
            ElemExpr::Bitcast(_, x) => {
                let x = self.expression(x, shape, site);
                Node::Made(site, x, vec![x])
            }
        };
        let value = self.value(node, shape.to_vec(), None, site);
        if matches!(expr, ElemExpr::Binary(_, x, y) if x == y) {
            self.values.idioms.insert(value);
        }
        value
    }

    fn elementwise(&mut self, dst: TensorId, expr: &ElemExpr, site: usize) {
        let shape = self.sites.verified.shape(dst);
        let value = self.expression(expr, &shape, site);
        let dtype = self.sites.program().tensor(dst).dtype;
        let value = match self.values.all[value].dtype {
            // Results in 16 bits are rounded: what an accumulator holds shows its type.
            None if dtype != DType::Bool => self.value(Node::Cast(dtype, value), shape, Some(dtype), site),
            Some(other) if other != dtype => self.value(Node::Cast(dtype, value), shape, Some(dtype), site),
            _ => value,
        };
        self.write(dst, value, site);
    }

    fn scan(&mut self, dst: TensorId, operands: &ScanOperands, axis: u32, site: usize) {
        let all: Vec<Id> = operands.tensors().into_iter().map(|id| self.read(id, site)).collect();
        let before = match operands {
            ScanOperands::Linear { before: Some(id), .. } => Some(self.read(*id, site)),
            _ => None,
        };
        let value = self.of_tensor(Node::Scan(axis, all, before), dst, site);
        self.write(dst, value, site);
    }

    /// The statements of a body, of which none need be done.
    fn branch(&mut self, body: &[Stmt], site: usize) {
        let before = self.now.clone();
        self.body(body);
        for (tensor, old) in before {
            if let Some(new) = self.now.get(&tensor).copied().filter(|new| *new != old) {
                let value = self.of_tensor(Node::Either(site, [old, new]), tensor, site);
                self.now.insert(tensor, value);
            }
        }
    }

    fn repeated(&mut self, body: &[Stmt], site: usize) {
        let head = self.values.loops.len();
        let mut written = BTreeSet::new();
        changed(self.sites, body, &mut written);
        let mut carried = BTreeMap::new();
        for tensor in written {
            if let Some(entry) = self.now.get(&tensor).copied() {
                carried.insert(tensor, [Some(entry), None]);
            }
        }
        let heads: Vec<TensorId> = carried.keys().copied().collect();
        self.values.loops.push(Loop { site, len: count(body), carried });
        for tensor in &heads {
            let value = self.of_tensor(Node::Carried(head, *tensor), *tensor, site);
            self.now.insert(*tensor, value);
        }
        self.body(body);
        for tensor in &heads {
            let back = self.now.get(tensor).copied();
            if let Some(sides) = self.values.loops[head].carried.get_mut(tensor) {
                sides[1] = back;
            }
            let value = self.of_tensor(Node::Carried(head, *tensor), *tensor, site);
            self.now.insert(*tensor, value);
        }
    }

    fn body(&mut self, body: &[Stmt]) {
        for stmt in body {
            let site = self.next;
            self.next += 1;
            self.statement(stmt, site);
        }
    }

    fn statement(&mut self, stmt: &Stmt, site: usize) {
        match &stmt.kind {
            StmtKind::Copy { src, dst, how } if how.fetch.is_none() => {
                self.copy((src, dst), how.combine.is_some(), site);
            }
            StmtKind::CopyAsync { src, dst, how } => self.copy((src, dst), how.add, site),
            StmtKind::Fill { dst, value } => {
                let value = self.of_tensor(Node::Number(value.to_bits()), *dst, site);
                self.write(*dst, value, site);
            }
            StmtKind::Elementwise { dst, expr } => self.elementwise(*dst, expr, site),
            StmtKind::Cast { dst, src } => {
                let src = self.read(*src, site);
                let dtype = self.sites.program().tensor(*dst).dtype;
                let value = self.of_tensor(Node::Cast(dtype, src), *dst, site);
                self.write(*dst, value, site);
            }
            StmtKind::Rearrange { dst, src } => {
                let value = self.read(*src, site);
                self.write(*dst, value, site);
            }
            StmtKind::Shape { dst, src, op } => {
                let src = self.read(*src, site);
                let value = self.of_tensor(Node::Shape(op.clone(), src), *dst, site);
                self.write(*dst, value, site);
            }
            StmtKind::Reduce { dst, src, op, axis } => {
                let src = self.read(*src, site);
                let value = self.of_tensor(Node::Reduce(*op, *axis, src), *dst, site);
                self.write(*dst, value, site);
            }
            StmtKind::Scan { dst, operands, axis, .. } => self.scan(*dst, operands, *axis, site),
            StmtKind::Arg { value, index, src, op, axis } => {
                let src = self.read(*src, site);
                let first = self.of_tensor(Node::Extreme(*op, *axis, src), *value, site);
                let second = self.of_tensor(Node::Coordinate(*op, *axis, src), *index, site);
                self.write(*value, first, site);
                self.write(*index, second, site);
            }
            StmtKind::ClusterReduce { dst, .. } => {
                let src = self.read(*dst, site);
                let value = self.of_tensor(Node::Cluster(site, src), *dst, site);
                self.write(*dst, value, site);
            }
            StmtKind::Gemm { c, a, b, meta, scales, .. } => {
                scales.iter().flatten().for_each(|scale| _ = self.read(*scale, site));
                meta.iter().for_each(|meta| _ = self.read(*meta, site));
                let operands = [*c, *a, *b].map(|id| self.read(id, site));
                let value = self.of_tensor(Node::Product(site, operands), *c, site);
                self.write(*c, value, site);
            }
            StmtKind::GemmAsync { c, a, b, meta, scales, .. } => {
                scales.iter().flatten().for_each(|scale| _ = self.reference(scale, site));
                meta.iter().for_each(|meta| _ = self.read(*meta, site));
                let operands = [self.read(*c, site), self.reference(a, site), self.reference(b, site)];
                let value = self.of_tensor(Node::Product(site, operands), *c, site);
                self.write(*c, value, site);
            }
            StmtKind::For { body, .. } | StmtKind::Tiles { body, .. } => self.repeated(body, site),
            StmtKind::If { body, .. } | StmtKind::IfAny { body, .. } => self.branch(body, site),
            StmtKind::Role { body, .. } | StmtKind::Stage { body, .. } => self.body(body),
            StmtKind::InTurn { body, .. } | StmtKind::Drain { body, .. } => self.body(body),
            other => {
                let operands = other
                    .reads()
                    .into_iter()
                    .filter(|id| self.sites.program().tensor(*id).memory() == Memory::Register);
                let operands: Vec<TensorId> = operands.collect();
                let operands = operands.into_iter().map(|id| self.read(id, site)).collect();
                let results = other.tensors().into_iter().filter(|(used, id)| {
                    used.writes() && self.sites.program().tensor(*id).memory() == Memory::Register
                });
                let results: Vec<TensorId> = results.map(|(_, id)| id).collect();
                self.made(&results, operands, site);
            }
        }
    }
}
