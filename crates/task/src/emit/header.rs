//! The kernel around the statements: sizes, parameters, the grid, the roles with their warpgroups and registers.

use std::collections::BTreeSet;

use tilewright_machine::{Feature, Memory, Number, Processor, Rate, WARP, WARPGROUP, timing};
use tilewright_tile::{
    self as tile, Axis, Constants, Diagnostic, Expr, IntOp, Origin, Param, ParamKind, Stmt, StmtKind,
    TileOrder,
};

use super::{Emit, Res, refused};
use crate::environment::Environment;
use crate::graph::{Item, Node, Role};
use crate::instantiate::{LoopId, ObjectId};
use crate::mapping::{Attribute, AttributeKind, Rasterization};
use crate::program::{FormalKind, LoopKind, SymbolKind};

/// Registers of a thread that copies: the fewest that `setmaxnreg` leaves one (PTX ISA 9.7.19.5).
const COPYING: i64 = 24;
/// Registers of a thread of a role, at most.
const MOST_REGISTERS: i64 = 240;
/// Registers of a multiprocessor (CUDA C++ Programming Guide, technical specifications).
const REGISTERS: i64 = 65536;
/// Threads of a block that nothing else says.
const THREADS: i64 = 128;

/// The way in which blocks share the iterations of the outermost parallel loop.
pub(super) enum Blocks<'g> {
    /// There is no such loop: one block.
    One(&'g [Item]),
    /// An iteration a block.
    Grid(LoopId, &'g [Item]),
    /// Blocks take iterations in an order, with `persistent` one after another.
    Tiles(LoopId, &'g [Item], Option<Rasterization>),
}

impl<'a> Emit<'a> {
    /// The whole program.
    pub(super) fn kernel(mut self) -> Res<tile::Program> {
        self.signature()?;
        let blocks = self.blocks()?;
        if let Blocks::Grid(id, _) | Blocks::Tiles(id, ..) = &blocks {
            self.ordered = matches!(blocks, Blocks::Tiles(..));
            self.cluster = self.cluster_of(*id)?;
        }
        self.guard_rings();
        self.pin()?;
        self.places()?;
        let warpgroups = self.warpgroups()?;
        let roles: Vec<Role> =
            [Role::Load, Role::Compute, Role::Store].into_iter().filter(|role| self.has(*role)).collect();
        self.roles_apart()?;
        let mut body = Vec::new();
        for role in &roles {
            body.push((*role, self.of_role(*role, &blocks)?));
        }
        self.grid(&blocks)?;
        self.all_pinned()?;
        let mut statements: Vec<Stmt> = std::mem::take(&mut self.definitions).into_iter().flatten().collect();
        match warpgroups {
            Some(compute) => {
                let count = |role: Role| if role == Role::Compute { compute } else { 1 };
                let all: i64 = roles.iter().map(|role| count(*role)).sum();
                self.out.threads = Expr::Int(all * i64::from(WARPGROUP));
                let registers = self.registers_of(&roles, compute)?;
                for (role, body) in body {
                    let registers = registers.map(|[copying, computing]| {
                        Expr::Int(if role == Role::Compute { computing } else { copying })
                    });
                    let (name, warpgroups) = (role.name().to_string(), Expr::Int(count(role)));
                    let kind = StmtKind::Role { name, warpgroups, registers, body };
                    statements.push(self.stmt(kind, Origin::Unknown));
                }
            }
            None => {
                self.out.threads = Expr::Int(self.threads()?);
                statements.extend(body.into_iter().flat_map(|(_, body)| body));
            }
        }
        self.out.body = statements;
        if !self.cluster.is_empty() {
            self.out.cluster = self.cluster.iter().map(|mode| Expr::Int(mode.blocks)).collect();
            self.out.cluster_span = self.cluster[0].span;
        }
        if self.number.is_some() {
            self.drop_sizes();
        }
        Ok(names_in_order(self.out))
    }

    /// True if a node is of the role.
    fn has(&self, role: Role) -> bool {
        self.graph.nodes.iter().any(|node| node.role == role)
    }

    /// Sizes, and the parameters of the entry.
    fn signature(&mut self) -> Res<()> {
        let Some(entry) = self.graph.tree.calls.first().cloned() else {
            return Err(Diagnostic::internal(self.mapping.span, "a tree without an entry"));
        };
        let program = self.program;
        let task = program.task(entry.task);
        self.out.name = match self.number {
            Some(number) => format!("{}_{number}", task.name),
            None => task.name.clone(),
        };
        for extent in &task.extents {
            let name = program.symbol(*extent).name.to_lowercase();
            let size = program.symbols.iter().find_map(|row| match row.kind {
                SymbolKind::Size(default) if row.name == name => Some((default, row.span)),
                _ => None,
            });
            let Some((default, span)) = size else {
                let symbol = program.symbol(*extent);
                let message = format!(
                    "`{}` is the entry, and its extent `{}` has no size `{name}`",
                    task.name, symbol.name
                );
                return Err(refused(symbol.span, message)
                    .help(format!("declare it, with a default: `size {name} = 1024`")));
            };
            let Some(var) = entry.symbols.get(extent).and_then(|form| form.as_var()) else { continue };
            let name = self.names.global(&name);
            self.out.symbols.push(tile::Symbol { name, kind: tile::SymbolKind::Size(default), span });
            let id = tile::SymbolId(self.out.symbols.len() as u32 - 1);
            self.bound.insert(var, Expr::Symbol(id));
        }
        let outside = self.outside();
        for (at, (formal, argument)) in task.formals.iter().zip(&entry.arguments).enumerate() {
            if let crate::instantiate::Argument::Tensor(tensor) = argument
                && self.number.is_some()
                && !outside.contains(&tensor.object)
            {
                continue;
            }
            let (dtype, kind) = match (&formal.kind, argument) {
                (FormalKind::Tensor { dtype, .. }, crate::instantiate::Argument::Tensor(tensor)) => {
                    let shape = tensor.shape.iter().map(|extent| self.expr(extent, formal.span));
                    let shape = shape.collect::<Res<Vec<Expr>>>()?;
                    (*dtype, ParamKind::Tensor { shape, strides: None, array: false, constant: false })
                }
                (FormalKind::Float(default), _) => {
                    let default = Number::Float(f64::from(default.unwrap_or(0.0) as f32));
                    (tilewright_machine::DType::F32, ParamKind::Scalar { default })
                }
                (FormalKind::Integer(symbol), argument) => {
                    let default = match program.symbol(*symbol).kind {
                        SymbolKind::Scalar(default) => default.unwrap_or(0),
                        _ => 0,
                    };
                    let param = tile::ParamId(self.out.params.len() as u32);
                    if let crate::instantiate::Argument::Integer(form) = argument
                        && let Some(var) = form.as_var()
                    {
                        self.bound.insert(var, Expr::Scalar(param));
                    }
                    let default = Number::Integer(default.into());
                    (tilewright_machine::DType::I32, ParamKind::Scalar { default })
                }
                _ => return Err(Diagnostic::internal(formal.span, "an argument of another kind")),
            };
            let name = self.names.global(&formal.name);
            self.params.insert(at, tile::ParamId(self.out.params.len() as u32));
            self.out.params.push(Param { name, dtype, kind, span: formal.span });
        }
        self.workspaces(&outside)
    }

    /// The objects with a place in global memory that the kernel uses.
    fn outside(&self) -> BTreeSet<ObjectId> {
        let accesses = self.graph.nodes.iter().flat_map(|node| &node.accesses);
        let global = accesses.filter_map(|access| access.replica).map(|id| self.graph.replica(id));
        global.filter(|row| row.memory == Some(Memory::Global)).map(|row| row.object).collect()
    }

    /// Parameters for tensors of the host, which kernels leave for one another.
    fn workspaces(&mut self, outside: &BTreeSet<ObjectId>) -> Res<()> {
        for id in outside.iter().filter(|_| self.number.is_some()) {
            let Some(row) = self.graph.tree.objects.get(id.index()).cloned() else { continue };
            if row.param.is_some() || row.processor >= Processor::Block || row.body.is_some() {
                continue;
            }
            let shape = row.shape.iter().map(|extent| self.expr(extent, row.span));
            let shape = shape.collect::<Res<Vec<Expr>>>()?;
            let kind = ParamKind::Tensor { shape, strides: None, array: false, constant: false };
            let name = self.names.global(&row.name);
            self.workspaces.insert(*id, tile::ParamId(self.out.params.len() as u32));
            self.out.params.push(Param { name, dtype: row.dtype, kind, span: row.span });
        }
        Ok(())
    }

    /// Leaves out the sizes that a kernel among several does not mention.
    fn drop_sizes(&mut self) {
        let mut mentioned = BTreeSet::new();
        self.out.exprs_mut(&mut |expr| {
            expr.visit(&mut |part| {
                if let Expr::Symbol(id) = part {
                    mentioned.insert(*id);
                }
            });
        });
        for (at, row) in self.out.symbols.iter_mut().enumerate() {
            let size = matches!(row.kind, tile::SymbolKind::Size(_));
            if size && !mentioned.contains(&tile::SymbolId(at as u32)) {
                // What nothing mentions goes, but for sizes and constants.
                row.kind = tile::SymbolKind::Let;
            }
        }
    }

    /// The loop whose iterations blocks share.
    fn blocks(&self) -> Res<Blocks<'a>> {
        let graph = self.graph;
        let [Item::Loop(id, items)] = &graph.order[..] else {
            if let Some(outer) = graph.order.iter().find_map(|item| match item {
                Item::Loop(id, _) if graph.tree.loop_(*id).kind == LoopKind::Prange => Some(*id),
                _ => None,
            }) {
                let span = graph.tree.loop_(outer).span;
                return Err(refused(span, "the host has work beside its parallel loops of blocks")
                    .help("launch it in a parallel loop of blocks: each is a kernel"));
            }
            return Ok(Blocks::One(&graph.order));
        };
        let row = graph.tree.loop_(*id);
        if row.kind == LoopKind::Srange {
            if row.processor < Processor::Block || prange_within(self, items) {
                return Err(refused(
                    row.span,
                    "a loop of the host around blocks launches a kernel an iteration",
                )
                .help("put the loop into a variant on level `block`"));
            }
            return Ok(Blocks::One(&graph.order));
        }
        if row.processor != Processor::Block {
            let message = format!("a parallel loop over the level `{}` is no grid of blocks", row.processor);
            return Err(refused(row.span, message).help("run the instances in it `on block`"));
        }
        let ordered = self.attributes_of(*id).find_map(|attribute| match &attribute.kind {
            AttributeKind::Persistent(order) => Some(order.clone()),
            AttributeKind::Order(order) => Some(Some(order.clone())),
            _ => None,
        });
        Ok(match ordered {
            Some(order) => Blocks::Tiles(*id, items, order),
            None => Blocks::Grid(*id, items),
        })
    }

    /// The attributes of the instance in whose variant a loop stands.
    fn attributes_of(&self, id: LoopId) -> impl Iterator<Item = &'a Attribute> {
        let call = self.graph.tree.call(self.graph.tree.loop_(id).call);
        let mapping = self.mapping;
        call.instance.into_iter().flat_map(move |id| &mapping.instance(id).attributes)
    }

    /// The first attribute of an instance in the tree that is wanted.
    fn attribute<T>(&self, wanted: impl Fn(&'a Attribute) -> Option<T>) -> Option<T> {
        let calls = self.graph.calls();
        let instances = calls.iter().filter_map(|id| self.graph.tree.call(*id).instance);
        let mut attributes = instances.flat_map(|id| &self.mapping.instance(id).attributes);
        attributes.find_map(wanted)
    }

    /// The value of an integer of an attribute.
    pub(super) fn integer(&self, expr: &Expr, span: Origin) -> Res<i64> {
        Environment::of(self.program, &Constants::default())?.value(self.program, expr, span)
    }

    /// The warpgroups of the role that computes, with `warpspecialize`.
    fn warpgroups(&self) -> Res<Option<i64>> {
        let found = self.attribute(|attribute| match &attribute.kind {
            AttributeKind::Warpspecialize { warpgroups, .. } => Some((warpgroups, attribute.span)),
            _ => None,
        });
        found
            .map(|(warpgroups, span)| match warpgroups {
                Some(warpgroups) => self.integer(warpgroups, span),
                None => Ok(1),
            })
            .transpose()
    }

    /// The threads of a block without roles.
    fn threads(&self) -> Res<i64> {
        let warps = self.attribute(|attribute| match &attribute.kind {
            AttributeKind::Warps(warps) => Some((warps, attribute.span)),
            _ => None,
        });
        match warps {
            Some((warps, span)) => Ok(self.integer(warps, span)? * i64::from(WARP)),
            None => Ok(THREADS),
        }
    }

    /// The registers of a thread that copies and of one that computes: those of `registers`, else the fewest and what they leave.
    fn registers_of(&self, roles: &[Role], compute: i64) -> Res<Option<[i64; 2]>> {
        let given = self.attribute(|attribute| match &attribute.kind {
            AttributeKind::Registers { load, compute } => Some((load, compute, attribute.span)),
            _ => None,
        });
        if let Some((load, compute, span)) = given {
            return Ok(Some([self.integer(load, span)?, self.integer(compute, span)?]));
        }
        let copying = roles.iter().filter(|role| **role != Role::Compute).count() as i64;
        if !self.graph.tree.arch.has(Feature::SetMaxRegisters) || compute < 1 || copying == 0 {
            return Ok(None);
        }
        let eights = |registers: i64| registers / 8 * 8;
        let all = eights(REGISTERS / ((compute + copying) * i64::from(WARPGROUP))) * (compute + copying);
        let computing = eights((all - copying * COPYING) / compute).min(MOST_REGISTERS);
        Ok(Some([COPYING, computing]))
    }

    /// The blocks of the launch.
    fn grid(&mut self, blocks: &Blocks<'_>) -> Res<()> {
        self.out.grid = match blocks {
            Blocks::One(_) => vec![Expr::Int(1)],
            Blocks::Grid(id, _) => {
                let mut counts = self.clusters(*id)?;
                if let Some(mode) = self.cluster.first() {
                    counts[mode.at] =
                        Expr::binary(IntOp::Mul, counts[mode.at].clone(), Expr::Int(mode.blocks));
                }
                let (outer, inner) = counts.split_at(counts.len().saturating_sub(2));
                let folded = outer.iter().cloned().reduce(|a, b| Expr::binary(IntOp::Mul, a, b));
                inner.iter().cloned().chain(folded).collect()
            }
            Blocks::Tiles(id, ..) => {
                let tiles = self.clusters(*id)?.into_iter().reduce(|a, b| Expr::binary(IntOp::Mul, a, b));
                let tiles = tiles.unwrap_or(Expr::Int(1));
                let most = timing(self.graph.tree.arch).rate(Rate::Multiprocessors) as i64;
                let blocks: i64 = self.cluster.iter().map(|mode| mode.blocks).product();
                // With `order`, each takes one.
                let persistent =
                    |attribute: &Attribute| matches!(attribute.kind, AttributeKind::Persistent(_));
                let clusters = match self.attributes_of(*id).any(persistent) {
                    true => Expr::binary(IntOp::Min, Expr::Int(most / blocks), tiles),
                    false => tiles,
                };
                vec![Expr::binary(IntOp::Mul, clusters, Expr::Int(blocks))]
            }
        };
        Ok(())
    }

    /// The iterations of each counter of a loop.
    pub(super) fn counts(&self, id: LoopId) -> Res<Vec<Expr>> {
        let row = self.graph.tree.loop_(id);
        row.ranges.iter().map(|(lo, hi)| self.expr(&hi.plus(lo, -1), row.span)).collect()
    }

    /// Gives the counters of the loop of blocks their values, given the integers that a block has: of a tile its row and column, else its
    /// indices. The statements name what is computed.
    pub(super) fn bind_blocks(&mut self, id: LoopId, given: &[Expr], name: bool) -> Res<Vec<Stmt>> {
        let row = self.graph.tree.loop_(id).clone();
        let counts = self.clusters(id)?;
        let n = row.counters.len();
        // The last counters have an integer of their own each; those before share the one that is left.
        let own = if n > given.len() { given.len() - 1 } else { n };
        let mut statements = Vec::new();
        for (at, var) in row.counters.iter().enumerate() {
            let index = if at + own >= n {
                match n > given.len() {
                    true => given[given.len() - own + (at + own - n)].clone(),
                    false => given[at].clone(),
                }
            } else {
                let below = counts[at + 1..n - own].iter().cloned();
                let over = match below.reduce(|a, b| Expr::binary(IntOp::Mul, a, b)) {
                    Some(below) => Expr::binary(IntOp::Div, given[0].clone(), below),
                    None => given[0].clone(),
                };
                if at == 0 { over } else { Expr::binary(IntOp::Rem, over, counts[at].clone()) }
            };
            let index = if self.ordered { self.in_cluster(*var, index) } else { index };
            let value = Expr::binary(IntOp::Add, index, self.expr(&row.ranges[at].0, row.span)?);
            let value = match value {
                Expr::Binary(..) if name => {
                    let text = self.vars.row(*var).name.clone().unwrap_or_default();
                    let symbol = self.symbol(&text, tile::SymbolKind::Let, row.span);
                    statements.push(self.stmt(StmtKind::Let { symbol, value }, row.span));
                    Expr::Symbol(symbol)
                }
                value => value,
            };
            self.bound.insert(*var, value);
        }
        Ok(statements)
    }

    /// The integers that a block of a grid has for `n` counters.
    pub(super) fn block_indices(n: usize) -> Vec<Expr> {
        match n {
            0 | 1 => vec![Expr::Block(Axis::X)],
            2 => vec![Expr::Block(Axis::X), Expr::Block(Axis::Y)],
            _ => vec![Expr::Block(Axis::Z), Expr::Block(Axis::X), Expr::Block(Axis::Y)],
        }
    }

    /// The rows and columns of the loop over tiles: the last counter along columns, the others along rows.
    pub(super) fn rows_and_columns(&self, id: LoopId) -> Res<(Expr, Expr)> {
        let mut counts = self.clusters(id)?;
        let cols = if counts.len() > 1 { counts.pop() } else { None };
        let rows = counts.into_iter().reduce(|a, b| Expr::binary(IntOp::Mul, a, b));
        Ok((rows.unwrap_or(Expr::Int(1)), cols.unwrap_or(Expr::Int(1))))
    }

    /// The order of tiles.
    pub(super) fn tile_order(&self, order: &Option<Rasterization>, span: Origin) -> Res<TileOrder> {
        Ok(match order {
            None => TileOrder::Grouped { rows: Expr::Int(1), serpentine: false },
            Some(Rasterization::Grouped { rows, serpentine }) => {
                TileOrder::Grouped { rows: Expr::Int(self.integer(rows, span)?), serpentine: *serpentine }
            }
            Some(Rasterization::Hilbert { order }) => {
                TileOrder::Hilbert { order: Expr::Int(self.integer(order, span)?) }
            }
        })
    }

    /// Refuses roles that share what no ring hands over.
    fn roles_apart(&self) -> Res<()> {
        let graph = self.graph;
        let place = |node: &Node, other: &Node| {
            node.accesses.iter().find_map(|x| {
                let shared = other.accesses.iter().any(|y| x.replica == y.replica && (x.writes || y.writes));
                let replica = x.replica.filter(|_| shared)?;
                let ring =
                    graph.rings.iter().any(|ring| ring.places.contains(&replica) && ring.from != ring.to);
                (!ring).then_some(replica)
            })
        };
        for edge in &graph.edges {
            let (from, to) = (graph.node(edge.from), graph.node(edge.to));
            if from.role == to.role {
                continue;
            }
            if let Some(replica) = place(from, to) {
                let row = graph.replica(replica);
                let memory = row.memory.map_or("no".to_string(), |memory| memory.to_string());
                let message = format!(
                    "`{}` in {memory} memory is written by the role that {} and used by the one that {}, and no ring hands it over",
                    graph.object(row.object).name,
                    from.role.verb(),
                    to.role.verb()
                );
                return Err(refused(to.span, message)
                    .related(from.span, "the other role")
                    .help("leave `warpspecialize` out, or give the tensor another memory"));
            }
        }
        Ok(())
    }
}

/// True if a parallel loop of blocks is in there.
fn prange_within(emit: &Emit<'_>, items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Node(_) => false,
        Item::Loop(id, items) => {
            let row = emit.graph.tree.loop_(*id);
            let host = emit.graph.tree.call(row.call).processor < Processor::Block;
            (row.kind == LoopKind::Prange && host) || prange_within(emit, items)
        }
    })
}

/// The program with its tables in the order of its text, as the parser has them.
fn names_in_order(program: tile::Program) -> tile::Program {
    program.in_order()
}
