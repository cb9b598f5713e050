//! Emission: the graph of a mapping becomes a tile program, which can be printed, edited and compiled like one that is written by hand. Needs: a
//! graph after all passes. Keeps: what each node computes, of which values, and the order of the nodes of a role.
//!
//! | in the graph | in the tile program |
//! | --- | --- |
//! | the outermost `prange` of blocks | a grid; with `persistent` or `order` a loop over `tiles` |
//! | a parameter and its pieces | a `global_view` whose steps are modes ([`views`]) |
//! | a place in shared memory or in registers | a `shared_tensor`, a `register_tensor` |
//! | a role | a `warpgroup` with the loops in which it has nodes ([`roles`]) |
//! | a ring between roles | a `pipeline`, filled in `produce` and read in `consume` |
//! | a copy that the blocks of a cluster have in common | `multicast` ([`cluster`]) |
//! | a copy, a statement of a leaf | the statement of the tile language ([`copies`], [`leaf`]) |
//! | copies of a role that computes, into a ring | a loop whose copies run ahead ([`multistage`]) |
//! | what is late, over a loop | iterations of both by turns ([`deal`]) |
//! | nodes that nobody needs under a condition | an `if` ([`guarded`]) |
//! | waits and events | `wait_gemm`, `wait_group`, `syncthreads` ([`order`]) |
//!
//! A pattern without a tile program is refused, with the place and a remedy (`not-emitted`).

mod ahead;
mod cluster;
mod copies;
mod deal;
mod guarded;
mod header;
mod leaf;
mod multistage;
mod names;
mod numbers;
mod order;
mod pinned;
mod roles;
mod views;

use std::collections::BTreeMap;

use tilewright_tile::{
    self as tile, Code, Constants, Diagnostic, Diagnostics, Expr, Origin, ParamId, Stmt, StmtIds, StmtKind,
    SymbolId, TensorId, TensorKind, Unnamed, ViewMode,
};

use crate::graph::{Graph, Group, Item, NodeId, ReplicaId, Role};
use crate::instantiate::{LoopId, ObjectId};
use crate::mapping::Mapping;
use crate::passes::{graph, groups, schedule};
use crate::piece::{Guard, Var, Vars};
use crate::program::Program;
use names::Names;
use order::Order;
use views::SharedPlace;

type Res<T> = Result<T, Diagnostic>;

/// The tile programs of a graph, in the order in which their kernels run: one of each parallel loop of blocks that the host launches. Tensors of the host that
/// one leaves for another are parameters of both, by one name.
///
/// ```
/// let program = tilewright_task::parse(
///     "size n = 4096
///      task double(y: write f32[N], x: read f32[N]) {
///          inner host {
///              yp = blocks(y, [1024])
///              xp = blocks(x, [1024])
///              for i in prange(ceil_div(N, 1024)) { launch double(yp[i], xp[i]) }
///          }
///          leaf all { y = x + x }
///      }
///      mapping a100 for sm_80 {
///          entry double.host on host (global, global)
///          double.all on block (register, register)
///      }",
/// )?;
/// let mapping = &program.mappings[0];
/// let graph = tilewright_task::passes::graph(&program, mapping)?;
/// let kernels = tilewright_task::emit(&program, mapping, &graph)?;
/// let text = "size n = 4096
///
/// kernel double(y: f32[n], x: f32[n])
///     grid(ceil_div(n, 1024)) threads(128)
/// {
///     gx = global_view(x[:], (1024, ceil_div(n, 1024)) : (e0, 1024 * e0))
///     gy = global_view(y[:], (1024, ceil_div(n, 1024)) : (e0, 1024 * e0))
///     rx = register_tensor(f32, [1024])
///     copy(gx[:, block.x], rx)
///     ry = rx + rx
///     copy(ry, gy[:, block.x])
/// }
/// ";
/// assert_eq!(kernels[0].to_string(), text);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// `not-emitted`: a pattern that has no tile program.
pub fn emit(program: &Program, mapping: &Mapping, graph: &Graph) -> Result<Vec<tile::Program>, Diagnostics> {
    let kernels = graph.kernels();
    let several = kernels.len() > 1;
    let emitted = (1..).zip(&kernels).map(|(number, kernel)| {
        Emit::new(program, mapping, kernel, several.then_some(number)).and_then(Emit::kernel)
    });
    emitted.collect::<Res<Vec<tile::Program>>>().map_err(|error| Diagnostics(vec![error]))
}

/// The verified tile programs of a program under a mapping, in the order in which their kernels run: the graph by all passes, emitted. Needs: a verified
/// program.
///
/// # Errors
///
/// Those of the passes and of [`emit`], and those of the tile verifier, which say that they are about the tile program.
pub fn lower(program: &Program, mapping: &Mapping) -> Result<Vec<tile::Verified>, Diagnostics> {
    let graph = graph(program, mapping)?;
    let verified = |emitted: tile::Program| {
        tile::verify(&emitted, &Constants::default()).map_err(|errors| {
            let note = format!(
                "in the tile program of the mapping `{}` (`tilewright tasks --emit tile`)",
                mapping.name
            );
            Diagnostics(errors.0.into_iter().map(|error| error.note(note.clone())).collect())
        })
    };
    emit(program, mapping, &graph)?.into_iter().map(verified).collect()
}

/// The refusal of a pattern.
fn refused(span: Origin, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::NotEmitted, span, message)
}

/// A tile program under construction.
struct Emit<'a> {
    program: &'a Program,
    mapping: &'a Mapping,
    graph: &'a Graph,
    /// The number of the kernel, where there are several: it has the sizes and the parameters that it uses.
    number: Option<usize>,
    /// The integers of the graph, and those that views add.
    vars: Vars,
    out: tile::Program,
    names: Names,
    /// The kinds of asynchronous nodes.
    groups: BTreeMap<NodeId, Group>,
    /// The last product of the group of each product.
    last: BTreeMap<NodeId, NodeId>,
    /// The expressions of integers: of sizes and scalars all the time, of counters in their loops.
    bound: BTreeMap<Var, Expr>,
    /// The parameters, by formals of the entry.
    params: BTreeMap<usize, ParamId>,
    /// The parameters that tensors of the host are.
    workspaces: BTreeMap<ObjectId, ParamId>,
    shared: BTreeMap<ReplicaId, SharedPlace>,
    /// The views that there are.
    views: Vec<(ParamId, Vec<ViewMode>, TensorId)>,
    /// Definitions in front of the roles: views, shared tensors, pipelines.
    definitions: [Vec<Stmt>; 3],
    /// The pipelines, by rings.
    pipelines: BTreeMap<usize, tile::PipelineId>,
    /// Blocks take tiles in an order.
    ordered: bool,
    /// The modes of a cluster of blocks.
    cluster: Vec<cluster::Mode>,
    role: Role,
    order: Order,
    /// The layouts that rows of the mapping pin.
    pinned: BTreeMap<ReplicaId, pinned::Pinned>,
    /// The register tensors of the role.
    registers: BTreeMap<ReplicaId, TensorId>,
    /// Places that are other places' registers: moved, and not changed since.
    moved: BTreeMap<ReplicaId, TensorId>,
    /// The counters of the iteration before, in a loop in which something is late.
    late: BTreeMap<Var, Expr>,
    /// Loops whose iterations are dealt to those of the loop that is their key, with their items.
    dealt: BTreeMap<LoopId, (LoopId, Vec<Item>)>,
    /// The conditions that hold where statements are.
    holds: Vec<Guard>,
    /// The rings whose stages are left out where conditions do not hold.
    guarded_rings: BTreeMap<usize, Vec<Guard>>,
    /// Nothing is left in flight where something is waited for.
    strict: bool,
}

impl<'a> Emit<'a> {
    fn new(program: &'a Program, mapping: &'a Mapping, graph: &'a Graph, number: Option<usize>) -> Res<Self> {
        let out = tile::Program {
            name: String::new(),
            symbols: Vec::new(),
            params: Vec::new(),
            grid: vec![Expr::Int(1)],
            grid_span: mapping.span,
            threads: Expr::Int(0),
            threads_span: mapping.span,
            resident: Expr::Int(1),
            cluster: vec![Expr::Int(1)],
            cluster_span: mapping.span,
            tensors: Vec::new(),
            pipelines: Vec::new(),
            barriers: Vec::new(),
            statements: StmtIds::default(),
            body: Vec::new(),
            space: Vec::new(),
            sources: program.sources.clone(),
        };
        let groups = schedule::kinds(program, graph);
        let last = groups::groups(graph, &groups);
        Ok(Emit {
            program,
            mapping,
            graph,
            number,
            vars: graph.tree.vars.clone(),
            out,
            names: Names::default(),
            groups,
            last,
            bound: BTreeMap::new(),
            params: BTreeMap::new(),
            workspaces: BTreeMap::new(),
            shared: BTreeMap::new(),
            views: Vec::new(),
            definitions: Default::default(),
            pipelines: BTreeMap::new(),
            ordered: false,
            cluster: Vec::new(),
            role: Role::Compute,
            order: Order::default(),
            pinned: BTreeMap::new(),
            registers: BTreeMap::new(),
            moved: BTreeMap::new(),
            late: BTreeMap::new(),
            dealt: BTreeMap::new(),
            holds: Vec::new(),
            guarded_rings: BTreeMap::new(),
            strict: false,
        })
    }

    /// A statement.
    fn stmt(&mut self, kind: StmtKind, span: Origin) -> Stmt {
        self.out.statement(kind, span)
    }

    /// A new tensor.
    fn tensor(
        &mut self,
        name: String,
        dtype: tilewright_machine::DType,
        kind: TensorKind,
        span: Origin,
    ) -> TensorId {
        self.out.tensors.push(tile::Tensor { name, dtype, kind, span, unnamed: Unnamed::default() });
        TensorId(self.out.tensors.len() as u32 - 1)
    }

    /// A new symbol of a body.
    fn symbol(&mut self, name: &str, kind: tile::SymbolKind, span: Origin) -> SymbolId {
        let name = self.names.local(name);
        self.out.symbols.push(tile::Symbol { name, kind, span });
        SymbolId(self.out.symbols.len() as u32 - 1)
    }
}
