//! Roles, pipelines, loops over tiles, and the asynchronous statements of Hopper.

use tilewright_machine::RedOp;

use super::{Buffer, Elem, KernelBuilder, Reference, Source, Tensor};
use crate::build::Head;
use crate::diagnostic::{Code, Origin};
use crate::expr::Expr;
use crate::program::{
    AsyncCopyAttrs, BarrierId, BarrierKind, Dealer, Flag, PipelineId, ReduceOp, Side, StmtKind, SyncScope,
    TensorId, TileOrder,
};

/// A pipeline: a ring of stages of shared tensors.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// `None` after a mistake.
    id: Option<PipelineId>,
    owner: u64,
}

/// A named barrier, or turns: of the roles that come to it.
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// `None` after a mistake.
    id: Option<BarrierId>,
    owner: u64,
}

/// `grouped(rows)`: groups of so many rows of tiles, each column by column. Of one row: row by row.
pub fn grouped(rows: impl Into<Expr>) -> TileOrder {
    TileOrder::Grouped { rows: rows.into(), serpentine: false }
}

/// `grouped(rows, serpentine)`: the same, every second group from its last column to its first.
pub fn serpentine(rows: impl Into<Expr>) -> TileOrder {
    TileOrder::Grouped { rows: rows.into(), serpentine: true }
}

/// `hilbert(order)`: squares of 2ˢ×2ˢ tiles, each along a Hilbert curve.
pub fn hilbert(order: impl Into<Expr>) -> TileOrder {
    TileOrder::Hilbert { order: order.into() }
}

/// `listed(table)`: the tiles whose numbers, row by row, the elements of a tensor of type `i32` are, in its order.
pub fn listed(table: &Buffer) -> TileOrder {
    TileOrder::Listed { table: table.param }
}

/// The walk over tiles of [`KernelBuilder::for_tiles`]: their order, and who does which.
#[derive(Clone, Debug)]
pub struct Walk {
    order: TileOrder,
    dynamic: Option<Deals>,
}

/// Source of tiles that are dealt out.
#[derive(Clone, Copy, Debug)]
enum Deals {
    Counter(Buffer),
    Launch,
}

impl From<TileOrder> for Walk {
    fn from(order: TileOrder) -> Self {
        Walk { order, dynamic: None }
    }
}

/// `tiles(…, order, dynamic = counter)`: each cluster takes the next tile of the order that no other has taken. The counter, `i32[1]`, is 0
/// when a launch begins and when it ends.
pub fn dynamic(order: TileOrder, counter: &Buffer) -> Walk {
    Walk { order, dynamic: Some(Deals::Counter(*counter)) }
}

/// `tiles(…, order, dynamic)`: the same without a counter, of a grid with a cluster for each tile: one that runs takes the tiles of those that have not begun.
pub fn launched(order: TileOrder) -> Walk {
    Walk { order, dynamic: Some(Deals::Launch) }
}

/// A product of which one warpgroup copies and two multiply:
///
/// ```
/// use tilewright_machine::{CacheHint, DType::{F16, F32}};
/// use tilewright_tile::dsl::{KernelBuilder, serpentine, steps, tile};
/// use tilewright_tile::{AsyncCopyAttrs, Constants, parse, verify};
///
/// let mut k = KernelBuilder::new("product");
/// let [m, n, kk] = ["m", "n", "k"].map(|name| k.size(name, 1024));
/// let a = k.tensor("a", F16, [&m, &kk]);
/// let b = k.tensor("b", F16, [&n, &kk]);
/// let c = k.tensor("c", F16, [&m, &n]);
/// k.grid([132]);
/// k.threads(384);
/// let [rows, cols, steps_of_k] = [m.ceil_div(128), n.ceil_div(256), kk.ceil_div(64)];
/// let ga = k.global_view("ga", &a, [tile(0, 128), steps(0, &rows, 128), tile(1, 64), steps(1, &steps_of_k, 64)]);
/// let gb = k.global_view("gb", &b, [tile(0, 256), steps(0, &cols, 256), tile(1, 64), steps(1, &steps_of_k, 64)]);
/// let gc = k.global_view("gc", &c, [tile(0, 128), steps(0, &rows, 128), tile(1, 256), steps(1, &cols, 256)]);
/// let sa = k.shared_tensor("sa", F16, [128, 64]);
/// let sb = k.shared_tensor("sb", F16, [256, 64]);
/// let ab = k.pipeline("ab", 4, [&sa, &sb]);
/// k.role("load", 1, Some(24.into()), |k| {
///     k.for_tiles(["tm", "tn"], &rows, &cols, serpentine(12), |k, tm, tn| {
///         k.for_range("i", 0, &steps_of_k, |k, i| {
///             k.produce(&ab, |k| {
///                 let last = AsyncCopyAttrs { hint: Some(CacheHint::EvictLast), ..AsyncCopyAttrs::default() };
///                 k.copy_async_with(ga.index([None, Some(tm), None, Some(i.clone())]), sa, last);
///                 k.copy_async(gb.index([None, Some(tn), None, Some(i)]), sb);
///             });
///         });
///     });
/// });
/// k.role("math", 2, Some(240.into()), |k| {
///     k.for_tiles(["row", "col"], &rows, &cols, serpentine(12), |k, row, col| {
///         let rc = k.register_tensor("rc", F32, [128, 256]);
///         k.fill(&rc, 0.0);
///         k.for_range("j", 0, &steps_of_k, |k, _| {
///             k.consume(&ab, |k| {
///                 k.gemm_async(&rc, sa, sb);
///                 k.commit_gemm();
///                 k.wait_gemm(1);
///             });
///         });
///         k.wait_gemm(0);
///         let h = k.cast("h", &rc, F16);
///         k.copy(h, gc.index([None, Some(row), None, Some(col)]));
///     });
/// });
/// let program = k.finish()?;
///
/// let text = "size m = 1024, n = 1024, k = 1024
///     kernel product(a: f16[m, k], b: f16[n, k], c: f16[m, n]) grid(132) threads(384) {
///         ga = global_view(a, (128, ceil_div(m, 128), 64, ceil_div(k, 64)) : (e0, 128 * e0, e1, 64 * e1))
///         gb = global_view(b, (256, ceil_div(n, 256), 64, ceil_div(k, 64)) : (e0, 256 * e0, e1, 64 * e1))
///         gc = global_view(c, (128, ceil_div(m, 128), 256, ceil_div(n, 256)) : (e0, 128 * e0, e1, 256 * e1))
///         sa = shared_tensor(f16, [128, 64])
///         sb = shared_tensor(f16, [256, 64])
///         ab = pipeline(4, sa, sb)
///         warpgroup load(1) registers(24) {
///             for (tm, tn) in tiles(ceil_div(m, 128), ceil_div(n, 256), grouped(12, serpentine)) {
///                 for i in 0..ceil_div(k, 64) {
///                     produce ab {
///                         copy.async(ga[:, tm, :, i], sa, evict_last)
///                         copy.async(gb[:, tn, :, i], sb)
///                     }
///                 }
///             }
///         }
///         warpgroup math(2) registers(240) {
///             for (row, col) in tiles(ceil_div(m, 128), ceil_div(n, 256), grouped(12, serpentine)) {
///                 rc = register_tensor(f32, [128, 256])
///                 fill(rc, 0.0)
///                 for j in 0..ceil_div(k, 64) {
///                     consume ab {
///                         gemm.async(rc, sa, sb)
///                         commit_gemm()
///                         wait_gemm(1)
///                     }
///                 }
///                 wait_gemm(0)
///                 h = cast(rc, f16)
///                 copy(h, gc[:, row, :, col])
///             }
///         }
///     }";
/// assert_eq!(program, parse(text)?);
/// verify(&program, &Constants::new())?;
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
impl KernelBuilder {
    /// The blocks of a cluster, neighbours along x.
    #[track_caller]
    pub fn cluster(&mut self, blocks: impl Into<Expr>) {
        self.cluster_shape([blocks]);
    }

    /// The blocks of a cluster along each of its modes.
    #[track_caller]
    pub fn cluster_shape<E: Into<Expr>>(&mut self, extents: impl IntoIterator<Item = E>) {
        self.build.program.cluster = extents.into_iter().map(Into::into).collect();
        self.build.program.cluster_span = Origin::caller();
    }

    /// `name = pipeline(stages, tensors…)`: a ring of stages, each with a tensor for every one of these shared tensors.
    #[track_caller]
    pub fn pipeline<'a>(
        &mut self,
        name: &str,
        stages: impl Into<Expr>,
        tensors: impl IntoIterator<Item = &'a Tensor>,
    ) -> Pipeline {
        let mut ids = Vec::new();
        let mut usable = true;
        for tensor in tensors {
            match self.usable(tensor) {
                Some(id) => ids.push(id),
                None => usable = false,
            }
        }
        if !usable {
            return Pipeline { id: None, owner: self.owner };
        }
        let declared = self.build.declare_pipeline(name, Origin::caller(), stages.into(), ids);
        let id = self.note(declared);
        if let Some(id) = id {
            self.build.emit(StmtKind::Pipeline(id), Origin::caller());
        }
        Pipeline { id, owner: self.owner }
    }

    /// `name = named_barrier()`: a barrier of the roles that come to it.
    #[track_caller]
    pub fn named_barrier(&mut self, name: &str) -> Barrier {
        self.barrier(name, BarrierKind::Named)
    }

    /// `name = turns()`: roles take turns, in the order in which they are written.
    #[track_caller]
    pub fn turns(&mut self, name: &str) -> Barrier {
        self.barrier(name, BarrierKind::Turns)
    }

    #[track_caller]
    fn barrier(&mut self, name: &str, kind: BarrierKind) -> Barrier {
        let declared = self.build.declare_barrier(name, Origin::caller(), kind);
        let id = self.note(declared);
        if let Some(id) = id {
            self.build.emit(StmtKind::Barrier(id), Origin::caller());
        }
        Barrier { id, owner: self.owner }
    }

    /// `in_turn turns { body }`: waits until it is the role's turn, and passes the turn to the next role behind the body.
    #[track_caller]
    pub fn in_turn(&mut self, turns: &Barrier, body: impl FnOnce(&mut Self)) {
        if self.too_deep() {
            return;
        }
        let turns = self.owned_barrier(turns);
        self.build.begin(Head::InTurn { turns });
        body(self);
        self.build.end(Origin::caller());
    }

    /// `syncthreads(barrier)`: waits until the threads of all roles that come to the barrier have come.
    #[track_caller]
    pub fn sync_at(&mut self, barrier: &Barrier) {
        if let Some(id) = self.owned_barrier(barrier) {
            self.build.emit(StmtKind::Sync(SyncScope::Barrier(id)), Origin::caller());
        }
    }

    /// `arrive(barrier)`: comes to the barrier and does not wait.
    #[track_caller]
    pub fn arrive(&mut self, barrier: &Barrier) {
        if let Some(id) = self.owned_barrier(barrier) {
            self.build.emit(StmtKind::Arrive(id), Origin::caller());
        }
    }

    /// `syncthreads(warpgroup)`: the threads of each warpgroup wait for each other.
    #[track_caller]
    pub fn sync_warpgroup(&mut self) {
        self.build.emit(StmtKind::Sync(SyncScope::Warpgroup), Origin::caller());
    }

    #[track_caller]
    fn owned_barrier(&mut self, barrier: &Barrier) -> Option<BarrierId> {
        barrier.id.filter(|_| self.owned(Some(barrier.owner), 0))
    }

    /// `warpgroup name(warpgroups) registers(registers) { body }`: what the block's next warpgroups do, each of their threads with so
    /// many registers; without a number, with an even share. Tensors made in the body exist only there.
    #[track_caller]
    pub fn role(
        &mut self,
        name: &str,
        warpgroups: impl Into<Expr>,
        registers: Option<Expr>,
        body: impl FnOnce(&mut Self),
    ) {
        if self.too_deep() {
            return;
        }
        let begun = self.build.begin_role(name, Origin::caller(), warpgroups.into(), registers);
        self.note(begun);
        body(self);
        self.build.end(Origin::caller());
    }

    /// `produce pipeline { body }`: waits for a free stage, and hands it on once the body has filled it.
    #[track_caller]
    pub fn produce(&mut self, pipeline: &Pipeline, body: impl FnOnce(&mut Self)) {
        self.stage(pipeline, Side::Produce, body);
    }

    /// `consume pipeline { body }`: waits for a full stage, and gives it back once nothing reads it any more.
    #[track_caller]
    pub fn consume(&mut self, pipeline: &Pipeline, body: impl FnOnce(&mut Self)) {
        self.stage(pipeline, Side::Consume, body);
    }

    #[track_caller]
    fn stage(&mut self, pipeline: &Pipeline, side: Side, body: impl FnOnce(&mut Self)) {
        if self.too_deep() {
            return;
        }
        let owned = self.owned(Some(pipeline.owner), 0);
        let mut id = pipeline.id.filter(|_| owned);
        if let Some(known) = id {
            let name = self.build.program.pipeline(known).name.clone();
            let visible = self.build.lookup(&name, Origin::caller(), "a pipeline");
            id = self.note(visible).map(|_| known);
        }
        self.build.begin_stage(id, side);
        body(self);
        self.build.end(Origin::caller());
    }

    /// `for (row, col) in tiles(rows, cols, order) { body }`: this block's share of the tiles. The names are those of a tile's row and
    /// column; [`grouped`], [`serpentine`], [`hilbert`] and [`listed`] are orders; [`dynamic`] and [`launched`] deal the tiles out.
    #[track_caller]
    pub fn for_tiles(
        &mut self,
        names: [&str; 2],
        rows: impl Into<Expr>,
        cols: impl Into<Expr>,
        walk: impl Into<Walk>,
        body: impl FnOnce(&mut Self, Expr, Expr),
    ) {
        if self.too_deep() {
            return;
        }
        let [row, col] = self.begin_tiles(names, (rows.into(), cols.into()), walk.into());
        body(self, row, col);
        self.build.end(Origin::caller());
    }

    /// `for (row, col) previous (i, j) in tiles(rows, cols, order) { body } drain { last }`: [`for_tiles`](Self::for_tiles), in which `body` gets
    /// the round's tile and that of the previous iteration, each as row and column; in the first round that is (`rows`, `cols`). `last` is
    /// done once, after the last round, and gets that round's tile. The names are those of `row`, `col`, `i` and `j`.
    #[track_caller]
    pub fn for_tiles_after(
        &mut self,
        names: [&str; 4],
        [rows, cols]: [Expr; 2],
        walk: impl Into<Walk>,
        body: impl FnOnce(&mut Self, [Expr; 2], [Expr; 2]),
        last: impl FnOnce(&mut Self, [Expr; 2]),
    ) {
        if self.too_deep() {
            return;
        }
        let [row, col, i, j] = self.begin_tiles(names, (rows, cols), walk.into());
        body(self, [row, col], [i.clone(), j.clone()]);
        self.build.end(Origin::caller());
        if self.build.begin_drain() {
            last(self, [i, j]);
            self.build.end(Origin::caller());
        }
    }

    #[track_caller]
    fn begin_tiles<const N: usize>(
        &mut self,
        names: [&str; N],
        extents: (Expr, Expr),
        walk: Walk,
    ) -> [Expr; N] {
        let at = Origin::caller();
        let dealer = walk.dynamic.and_then(|dealer| match dealer {
            Deals::Counter(counter) => {
                let owned = self.owned(Some(counter.owner), counter.param.0);
                owned.then_some(Dealer::Counter(counter.param))
            }
            Deals::Launch => Some(Dealer::Launch),
        });
        let walk = (walk.order, dealer);
        let begun = self.build.begin_tiles(&names.map(|name| (name, at)), extents, walk);
        let mut begun = begun.into_iter();
        names.map(|_| begun.next().and_then(|counter| self.note(counter)).map_or(Expr::Int(0), Expr::Symbol))
    }

    /// `copy.async(src, dst, …)`: [`copy_async`](Self::copy_async), and what else it does.
    #[track_caller]
    pub fn copy_async_with(
        &mut self,
        src: impl Into<Reference>,
        dst: impl Into<Reference>,
        how: AsyncCopyAttrs,
    ) {
        self.copies(src.into(), dst.into(), |src, dst| StmtKind::CopyAsync { src, dst, how });
    }

    /// `gemm.async(c, a, b)`: `c += a · bᵀ` by the tensor cores of warpgroups, complete at a later [`wait_gemm`](Self::wait_gemm).
    #[track_caller]
    pub fn gemm_async(&mut self, c: &Tensor, a: impl Into<Source>, b: impl Into<Reference>) {
        self.product((c, a.into(), b.into()), None, None, None);
    }

    /// `gemm.async(c, a, b, scales = (left, right))`: with scales of blocks of both factors, in shared memory; its sums are in tensor memory.
    #[track_caller]
    pub fn gemm_async_scaled(
        &mut self,
        c: &Tensor,
        a: impl Into<Source>,
        b: impl Into<Reference>,
        (left, right): (impl Into<Reference>, impl Into<Reference>),
    ) {
        let scales = [left.into(), right.into()];
        self.product((c, a.into(), b.into()), None, Some(scales), None);
    }

    /// `gemm.async(c, a, b, warpgroups = (m, n))`: with the warpgroups along M and along N.
    #[track_caller]
    pub fn gemm_async_over(
        &mut self,
        c: &Tensor,
        a: impl Into<Source>,
        b: impl Into<Reference>,
        warpgroups: [Expr; 2],
    ) {
        self.product((c, a.into(), b.into()), None, None, Some(warpgroups));
    }

    /// `gemm.async(c, a, b, meta)`: with a sparse left factor, and the places of its elements.
    #[track_caller]
    pub fn gemm_async_sparse(
        &mut self,
        c: &Tensor,
        a: impl Into<Source>,
        b: impl Into<Reference>,
        meta: impl Into<Elem>,
        warpgroups: Option<[Expr; 2]>,
    ) {
        let Some(meta) = self.operand(meta) else { return };
        self.product((c, a.into(), b.into()), Some(meta), None, warpgroups);
    }

    #[track_caller]
    fn product(
        &mut self,
        (c, a, b): (&Tensor, Source, Reference),
        meta: Option<TensorId>,
        scales: Option<[Reference; 2]>,
        warpgroups: Option<[Expr; 2]>,
    ) {
        let operands = (self.usable(c), self.source(a), self.reference(b));
        let scales = match scales.map(|scales| scales.map(|scale| self.reference(scale))) {
            Some([Some(left), Some(right)]) => Some([left, right]),
            Some(_) => return,
            None => None,
        };
        if let (Some(c), Some(a), Some(b)) = operands {
            self.build.emit(StmtKind::GemmAsync { c, a, b, meta, scales, warpgroups }, Origin::caller());
        }
    }

    /// `commit_gemm()`.
    #[track_caller]
    pub fn commit_gemm(&mut self) {
        self.build.emit(StmtKind::CommitGemm, Origin::caller());
    }

    /// `wait_gemm(groups)`.
    #[track_caller]
    pub fn wait_gemm(&mut self, groups: impl Into<Expr>) {
        self.build.emit(StmtKind::WaitGemm(groups.into()), Origin::caller());
    }

    /// `cluster_reduce(dst, op)`: each element becomes what those of all blocks of the cluster come to.
    #[track_caller]
    pub fn cluster_reduce(&mut self, dst: &Tensor, op: ReduceOp) {
        if let Some(dst) = self.usable(dst) {
            self.build.emit(StmtKind::ClusterReduce { dst, op }, Origin::caller());
        }
    }

    /// `syncgrid(counter)`: the barrier of all blocks of the grid.
    #[track_caller]
    pub fn sync_grid(&mut self, counter: &Buffer) {
        if self.owned(Some(counter.owner), counter.param.0) {
            self.build.emit(StmtKind::SyncGrid { counter: counter.param }, Origin::caller());
        }
    }

    /// `signal(flag[index], value)`, or with an operation `signal(flag[index], value, add)`: what the threads did before is published.
    #[track_caller]
    pub fn signal(
        &mut self,
        flag: &Buffer,
        index: impl IntoIterator<Item = Expr>,
        value: impl Into<Expr>,
        combine: Option<RedOp>,
    ) {
        if let Some(flag) = self.flag(flag, index) {
            self.build.emit(StmtKind::Signal { flag, value: value.into(), combine }, Origin::caller());
        }
    }

    /// `wait(flag[index] >= least)`: the threads wait, and come after what was published with the flag.
    #[track_caller]
    pub fn wait(&mut self, flag: &Buffer, index: impl IntoIterator<Item = Expr>, least: impl Into<Expr>) {
        if let Some(flag) = self.flag(flag, index) {
            self.build.emit(StmtKind::Await { flag, least: least.into() }, Origin::caller());
        }
    }

    /// `let name = ticket(flag[index], count)`: the number of those who drew before, from 0 to `count - 1`.
    #[track_caller]
    pub fn ticket(
        &mut self,
        name: &str,
        flag: &Buffer,
        index: impl IntoIterator<Item = Expr>,
        count: impl Into<Expr>,
    ) -> Expr {
        let at = Origin::caller();
        let flag = self.flag(flag, index);
        let declared = self.build.declare_ticket(name, at);
        let (Some(symbol), Some(flag)) = (self.note(declared), flag) else { return Expr::Int(0) };
        self.build.emit(StmtKind::Ticket { symbol, flag, count: count.into() }, at);
        Expr::Symbol(symbol)
    }

    #[track_caller]
    fn flag(&mut self, flag: &Buffer, index: impl IntoIterator<Item = Expr>) -> Option<Flag> {
        let owned = self.owned(Some(flag.owner), flag.param.0);
        owned.then(|| Flag { param: flag.param, index: index.into_iter().collect() })
    }

    /// `wait_dependencies()`.
    #[track_caller]
    pub fn wait_dependencies(&mut self) {
        self.build.emit(StmtKind::WaitDependencies, Origin::caller());
    }

    /// `launch_dependents()`.
    #[track_caller]
    pub fn launch_dependents(&mut self) {
        self.build.emit(StmtKind::LaunchDependents, Origin::caller());
    }

    /// Records a mistake where one more block would nest too deep.
    #[track_caller]
    pub(super) fn too_deep(&mut self) -> bool {
        let deep = self.build.depth() >= crate::parser::MAX_DEPTH as usize;
        if deep {
            let message = format!("loops nest deeper than {} levels", crate::parser::MAX_DEPTH);
            self.misuse(Code::Syntax, message, "flatten the loops");
        }
        deep
    }
}
