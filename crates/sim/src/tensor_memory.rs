//! Tensor memory: its cells and what of it is allocated, the copies of warps, and the products of threads with their sums there, which complete in the order of
//! their issue.
//!
//! An access comes after what its warp has learnt by the last `tcgen05.fence::after_thread_sync` before it, and after the warp's own copies that it has waited
//! for; a copy that is waited for is passed on by the next `tcgen05.fence::before_thread_sync`, a product by a commit.
//!
//! A product of a pair, which its even block issues, accesses the memory of both blocks, at the same places.

mod execute;
mod scales;
mod sparse;

use std::collections::VecDeque;
use std::ops::Range;

use tilewright_machine::{DType, Major, Tcgen05Row, TensorMemory as Shape, Unit};

use crate::clock::{Agent, HappensBefore, Space, View, lanes};
use crate::cluster::Cluster;
use crate::decode::{Place, Slot, Source};
use crate::mbarrier::Posted;
use crate::rule::Rule;
use crate::shadow::{ASYNC, Access, Kind, Now, ORDINARY, Shadow};
use crate::sink::Site;
use crate::tables::CopyTable;
use crate::warp::Warp;
use crate::wgmma::{CHUNK, NOWHERE, Number, Operand, operand_places};

const LANES: u32 = Shape::LANES as u32;
/// Content of cells that nothing has written.
const POISON: u32 = u32::MAX;

/// Lanes of some columns.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    lanes: Range<u32>,
    columns: Range<u32>,
}

/// Columns that the block has allocated.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    first: u32,
    columns: u32,
    site: Site,
}

/// Columns that a block frees, and what its warp knows.
#[derive(Clone, Debug)]
struct Freeing {
    site: Site,
    cells: Cells,
    number: (Agent, u32),
    known: HappensBefore,
}

/// The tensor memory of a block.
#[derive(Debug)]
pub(crate) struct TensorMemory {
    /// By lane, then by column.
    cells: Vec<u32>,
    /// Bytes, in the same order.
    shadow: Option<Shadow>,
    allocated: Vec<Allocation>,
    /// Columns that the block of a pair has freed and the other one has not yet.
    freeing: Vec<Freeing>,
    relinquished: bool,
}

impl TensorMemory {
    pub(crate) fn new(watched: bool) -> Self {
        TensorMemory {
            cells: vec![POISON; (LANES * Shape::COLUMNS) as usize],
            shadow: watched.then(|| Shadow::new(4 * LANES * Shape::COLUMNS)),
            allocated: Vec::new(),
            freeing: Vec::new(),
            relinquished: false,
        }
    }

    fn at(lane: u32, column: u32) -> usize {
        (lane * Shape::COLUMNS + column) as usize
    }

    /// The first column that the block has allocated, from which tensors count theirs.
    fn base(&self) -> u32 {
        self.allocated.first().map_or(0, |allocation| allocation.first)
    }

    /// The left factor that lies from a column on: each cell has the neighbours along k that a word holds, the first in its low bits.
    fn read_left<T: Number>(&self, row: &Tcgen05Row, column: u32, mut set: impl FnMut(usize, usize, T)) {
        let (bits, decode) = (row.a.bits(), T::decode(row.a));
        let (cells, each) = (row.a_layout(), (32 / bits) as usize);
        for word in 0..row.left_columns() as usize / each {
            for i in 0..row.m as usize {
                let cell = cells.eval((i + row.m as usize * word) as i64) as u32;
                let value = self.cells[TensorMemory::at(cell % LANES, column + cell / LANES)];
                for at in 0..each {
                    let element = value >> (at as u32 * bits) & (u32::MAX >> (32 - bits));
                    set(i, each * word + at, decode(element));
                }
            }
        }
    }

    fn has(&self, columns: &Range<u32>) -> bool {
        let within = |a: &Allocation| a.first <= columns.start && columns.end <= a.first + a.columns;
        self.allocated.iter().any(within)
    }
}

/// The accesses of a warp to tensor memory.
#[derive(Debug, Default)]
pub(crate) struct TensorAccesses {
    /// Loads and stores that it has issued.
    copies: [u32; 2],
    /// Registers that loads in flight write.
    pub loading: Vec<u32>,
    /// The warp's own copies that it has waited for.
    own: HappensBefore,
    /// Those of them that no fence has passed on.
    waited: HappensBefore,
    /// By lanes: the clock that their accesses come after.
    after: Vec<(u32, HappensBefore)>,
}

impl TensorAccesses {
    /// The clock that accesses of these lanes come after.
    fn view(&self, lanes: u32) -> HappensBefore {
        let mut known = self.own.clone();
        for (_, more) in self.after.iter().filter(|(of, _)| lanes & !of == 0) {
            known.join(more);
        }
        known
    }
}

/// The left factor of a product.
#[derive(Clone, Debug)]
enum Left {
    /// In shared memory.
    Shared(Operand),
    /// In tensor memory, from this column on.
    Tensor(u32),
}

/// A copy of scales that has been issued.
#[derive(Clone, Debug)]
pub(crate) struct ScaleCopy {
    /// The blocks that copy, each from its own shared memory to its own tensor memory.
    blocks: Range<u32>,
    column: u32,
    /// The place of each row in shared memory.
    places: Vec<u32>,
}

/// The scales of a factor: their first column and the first byte of each cell.
type Scales = (u32, u32);

/// Columns of scales from an address on.
struct Scaled {
    address: u32,
    columns: u32,
}

impl Scaled {
    /// The cells of a factor's scales.
    fn of(address: u32, rows: i64) -> Scaled {
        Scaled { address, columns: (rows as u32).div_ceil(32) }
    }

    /// The first column and all cells; others than those of the blocks that multiply are reported.
    fn within(&self, cluster: &mut Cluster<'_>, site: &Site, blocks: &Range<u32>) -> Option<(u32, Cells)> {
        let column = cluster.column(site, self.address, "scales begin");
        let cells = Cells { lanes: 0..LANES, columns: column..column + self.columns };
        let mut blocks = blocks.clone();
        blocks.all(|rank| cluster.allocated(site, rank, &cells.columns)).then_some((column, cells))
    }
}

/// The places of a factor's 16 bytes in shared memory, in the order of its rows.
fn factor_places(bits: u64, major: Major, (mn, k): (i64, i64), dtype: DType) -> Vec<u32> {
    // Elements that share a byte are neighbours along K.
    match i64::from(dtype.bits()) {
        few @ ..8 => operand_places(bits, major, (mn, k * few / 8), DType::U8),
        _ => operand_places(bits, major, (mn, k), dtype),
    }
}

/// A product that has been issued.
#[derive(Clone, Debug)]
pub(crate) struct SumsProduct {
    row: &'static Tcgen05Row,
    rank: u32,
    site: Site,
    column: u32,
    a: Left,
    b: Operand,
    scales: Option<[Scales; 2]>,
    /// The column of the metadata of a sparse left factor.
    meta: Option<u32>,
    accumulate: bool,
}

/// Something that a thread has asked the tensor cores for.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Product(Box<SumsProduct>),
    /// A copy of scales.
    Scales(Box<ScaleCopy>),
    /// Arrivals, behind the products before them.
    Commit(Vec<Posted>),
}

/// The products and commits of a warp's threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct TensorUnit {
    tasks: VecDeque<Task>,
    issued: u32,
    /// Cycle at which its last product is complete.
    complete: u64,
}

/// The lanes of sums of so many rows.
fn lanes_of(m: i64) -> Vec<Range<u32>> {
    let each = if m == Shape::LANES { 32 } else { 16 };
    (0..LANES / 32).map(|warp| 32 * warp..32 * warp + each).collect()
}

/// A product as an instruction: its row and its operands.
pub(crate) struct Issued<'a> {
    pub row: &'static Tcgen05Row,
    pub d: Place,
    pub factors: [&'a Source; 2],
    /// The places of the scales of both factors, and the first byte of each.
    pub scales: Option<[(Place, u32); 2]>,
    /// The place of the metadata of a sparse left factor, with the sparsity selector.
    pub meta: Option<(Place, u32)>,
    pub accumulate: Slot,
}

impl Warp {
    /// Reports threads that do together what one does.
    fn alone(&self, cluster: &mut Cluster<'_>, site: &Site) {
        let threads = self.active.count_ones();
        if threads != 1 {
            cluster.misuse(site, Rule::Issuer, || {
                format!(
                    "{threads} threads of the warp execute it, and each that does issues it: one thread must"
                )
            });
        }
    }

    fn tensor_unit(&self) -> usize {
        self.agent as usize
    }

    /// Issues the product of the active lane.
    pub(crate) fn sums(
        &mut self,
        cluster: &mut Cluster<'_>,
        product: &Issued<'_>,
        (statement, origin): (u32, u32),
        (busy, latency): (u64, u64),
    ) {
        let lane = self.active.trailing_zeros().min(31) as usize;
        let site = self.site(statement, origin, lane);
        self.alone(cluster, &site);
        let row = product.row;
        let Some(blocks) = cluster.multiplying(&site, row.blocks as u32) else { return };
        let agent = cluster.products_of(self.agent);
        let unit = self.tensor_unit();
        let issued = cluster.tensor_units[unit].issued;
        let mut view = self.tensor.view(1 << lane);
        // The products of a thread follow each other, as far as they have the same sums.
        view.learn(agent, u32::MAX, issued + 1);
        let number = (agent, issued + 1);
        let mut ready = self.address_ready(product.d, Some(product.accumulate));
        let (mut operands, mut tensor) = (Vec::new(), None);
        for (source, left) in product.factors.iter().zip([true, false]) {
            let (low, high, major) = match source {
                Source::Shared { low, high, major } => (low, high, major),
                Source::Tensor(place) => {
                    ready = ready.max(self.address_ready(*place, None));
                    tensor = self.left_factor(cluster, &site, row, (*place, lane), number);
                    if tensor.is_none() {
                        return;
                    }
                    continue;
                }
                Source::Registers(_) => return,
            };
            ready = ready.max(self.timing.values[*low as usize]);
            let bits = self.values[*low as usize][lane] & 0xffff_ffff | u64::from(*high) << 32;
            cluster.described(&site, bits, "of a factor of tcgen05.mma");
            let (mn, k, dtype) =
                if left { (row.m, row.left_columns(), row.a) } else { (row.right_rows(), row.k, row.b) };
            let mut places = factor_places(bits, *major, (mn, k), dtype);
            cluster.inside(&site, &mut places);
            let inside: Vec<u32> = places.iter().copied().filter(|p| *p != NOWHERE).collect();
            for rank in blocks.clone() {
                cluster.watch_unit(&site, rank, (&inside, CHUNK), Kind::Read, number, Some(&view));
            }
            operands.push(Operand { places, major: *major });
        }
        let mut scales = Vec::new();
        for ((place, byte), rows) in product.scales.iter().flatten().zip([row.m, row.n]) {
            ready = ready.max(self.address_ready(*place, None));
            let of_factor = Scaled::of(self.shared_address(*place, lane), rows);
            let Some((column, cells)) = of_factor.within(cluster, &site, &blocks) else { return };
            for rank in blocks.clone() {
                cluster.watch_tensor(&site, rank, &cells, Kind::Read, number, &view);
            }
            scales.push((column, *byte));
        }
        let mut meta = None;
        if let Some((place, selector)) = product.meta {
            ready = ready.max(self.address_ready(place, None));
            meta = self.metadata(cluster, &site, (row, selector), (place, lane), number);
            if meta.is_none() {
                return;
            }
        }
        let address = self.shared_address(product.d, lane);
        let column = cluster.column(&site, address, "sums begin");
        let columns = column..column + row.columns();
        let accumulate = self.values[product.accumulate as usize][lane] != 0;
        if !blocks.clone().all(|rank| cluster.allocated(&site, rank, &columns)) {
            return;
        }
        let cells: Vec<Cells> =
            lanes_of(row.m).into_iter().map(|lanes| Cells { lanes, columns: columns.clone() }).collect();
        let watch = |cluster: &mut Cluster<'_>, kind, view: &HappensBefore| {
            for rank in blocks.clone() {
                cells.iter().for_each(|cells| cluster.watch_tensor(&site, rank, cells, kind, number, view));
            }
        };
        if accumulate {
            watch(cluster, Kind::Read, &view);
            // It writes what it has read.
            view.learn(agent, u32::MAX, issued + 2);
        }
        watch(cluster, Kind::Write, &view);
        let shared = u64::from(row.shared_cycles(tensor.is_none()));
        let pipes = &mut cluster.ctas[self.rank as usize].pipes;
        let mut begin = self.timing.order(pipes, Unit::Tensor, ready, busy);
        for rank in blocks {
            begin = cluster.ctas[rank as usize].pipes.multiply(begin, busy.max(shared), shared);
        }
        let Some(b) = operands.pop() else { return };
        let Some(a) = tensor.map(Left::Tensor).or_else(|| operands.pop().map(Left::Shared)) else { return };
        let scales = scales.try_into().ok();
        let product = SumsProduct { row, rank: self.rank, site, column, a, b, scales, meta, accumulate };
        let unit = &mut cluster.tensor_units[unit];
        unit.issued += 1;
        unit.complete = unit.complete.max(begin + busy.max(latency));
        unit.tasks.push_back(Task::Product(Box::new(product)));
        cluster.sink.wgmma_count += 1;
    }

    /// The column of a product's left factor in tensor memory, whose cells it reads; `None` where they are not the block's. Products of other sums that the thread
    /// has issued before are no reason to read what they write (PTX ISA 9.1, section 9.7.16.6.2).
    fn left_factor(
        &self,
        cluster: &mut Cluster<'_>,
        site: &Site,
        row: &'static Tcgen05Row,
        (place, lane): (Place, usize),
        number: (Agent, u32),
    ) -> Option<u32> {
        let column = cluster.column(site, self.shared_address(place, lane), "left factor begins");
        let columns = column..column + row.a_columns();
        let view = self.tensor.view(1 << lane);
        for rank in site.rank..site.rank + row.blocks as u32 {
            if !cluster.allocated(site, rank, &columns) {
                return None;
            }
            for lanes in lanes_of(row.m) {
                let cells = Cells { lanes, columns: columns.clone() };
                cluster.watch_tensor(site, rank, &cells, Kind::Read, number, &view);
            }
        }
        Some(column)
    }

    /// Commits the products of the active lane: an arrival at an mbarrier follows them, or one at that of each block whose rank is a bit of a mask.
    pub(crate) fn commit_sums(
        &mut self,
        cluster: &mut Cluster<'_>,
        place: Place,
        ranks: Option<u32>,
        at: (u32, u32),
    ) {
        let lane = self.active.trailing_zeros().min(31) as usize;
        let site = self.site(at.0, at.1, lane);
        self.alone(cluster, &site);
        let Some(key) = cluster.own_barrier(&site, self.shared_address(place, lane)) else { return };
        let agent = cluster.products_of(self.agent);
        let event = cluster.know[self.agent as usize].event(1 << lane, at.1);
        let mut clock = self.tensor.waited.clone();
        cluster.know[self.agent as usize].release(1 << lane, &mut clock);
        let unit = &cluster.tensor_units[self.agent as usize];
        clock.learn(agent, u32::MAX, unit.issued + 1);
        let time = self.timing.clock.max(unit.complete);
        let mut arrivals = Vec::new();
        for rank in ranks.map_or_else(|| vec![None], |ranks| lanes(ranks).map(Some).collect()) {
            let of = rank.map_or(Some(self.rank), |rank| cluster.peer(&site, rank as u32));
            let Some(of) = of else {
                let none = rank.unwrap_or_default();
                cluster.misuse(&site, Rule::Place, || format!("the cluster has no block {none}"));
                continue;
            };
            let key = (of, key.1);
            if of != self.rank {
                if !cluster.barrier(&site, key) {
                    continue;
                }
                cluster.visible(&site, key);
            }
            let clock = clock.clone();
            arrivals.push(Posted { site, event, key, expected: 0, clock, releases: false, time });
        }
        cluster.tensor_units[self.agent as usize].tasks.push_back(Task::Commit(arrivals));
    }

    /// Copies between tensor memory and the warp's registers.
    pub(crate) fn tensor_copy(
        &mut self,
        cluster: &mut Cluster<'_>,
        table: &CopyTable,
        regs: &[u32],
        address: u32,
        site: &Site,
    ) {
        let (first, column) = Shape::place(address);
        let own = Shape::LANES_OF_A_WARP * (self.index % 4);
        let cells = Cells { lanes: first..first + table.lanes, columns: column..column + table.columns };
        if first < own || cells.lanes.end > own + Shape::LANES_OF_A_WARP {
            let warp = self.index;
            cluster.misuse(site, Rule::Place, || {
                format!(
                    "it reaches lanes {first} to {} of tensor memory, and warp {warp} has lanes {own} to {}",
                    first + table.lanes - 1,
                    own + Shape::LANES_OF_A_WARP - 1
                )
            });
        }
        if cells.lanes.end > LANES || !cluster.allocated(site, self.rank, &cells.columns) {
            return;
        }
        let load = table.loads();
        let count = &mut self.tensor.copies[usize::from(!load)];
        *count += 1;
        let number = (cluster.tensor_copies_of(self.agent, load), *count);
        let view = self.tensor.view(self.live);
        let kind = if load { Kind::Read } else { Kind::Write };
        cluster.watch_tensor(site, self.rank, &cells, kind, number, &view);
        let Some(memory) = &mut cluster.ctas[self.rank as usize].tensor else { return };
        for (reg, of) in regs.iter().zip(&table.cells) {
            for (word, cell) in self.registers[*reg as usize].iter_mut().zip(of) {
                let at = TensorMemory::at(first + cell % table.lanes, column + cell / table.lanes);
                if load {
                    *word = memory.cells[at];
                } else {
                    memory.cells[at] = *word;
                }
            }
        }
        if load {
            self.tensor.loading.extend(regs);
        }
    }

    /// Waits for the warp's own loads, or stores.
    pub(crate) fn tensor_wait(&mut self, cluster: &mut Cluster<'_>, load: bool) {
        let agent = cluster.tensor_copies_of(self.agent, load);
        let below = self.tensor.copies[usize::from(!load)] + 1;
        for known in [&mut self.tensor.own, &mut self.tensor.waited] {
            known.learn(agent, u32::MAX, below);
        }
        if load {
            self.tensor.loading.clear();
        }
    }

    /// Lets others learn, by what synchronises them, of the copies that the lanes have waited for.
    pub(crate) fn tensor_before(&mut self, cluster: &mut Cluster<'_>) {
        cluster.know[self.agent as usize].acquire(self.active, &self.tensor.waited);
    }

    /// Accesses of the lanes from here on come after all that they know.
    pub(crate) fn tensor_after(&mut self, cluster: &mut Cluster<'_>) {
        let known = cluster.know[self.agent as usize].common(self.active);
        let active = self.active;
        self.tensor.after.retain(|(lanes, _)| *lanes != active);
        self.tensor.after.push((active, known));
    }

    /// Allocates columns; the address goes to shared memory.
    pub(crate) fn tensor_allocate(
        &mut self,
        cluster: &mut Cluster<'_>,
        columns: u32,
        to: Place,
        site: &Site,
    ) {
        let seed = cluster.context.config.seed;
        self.with_its_pair(cluster, site);
        let Some(memory) = &mut cluster.ctas[self.rank as usize].tensor else { return };
        let relinquished = memory.relinquished;
        let free: Vec<u32> = (0..=Shape::COLUMNS - columns)
            .step_by(Shape::LEAST_COLUMNS as usize)
            .filter(|first| {
                memory.allocated.iter().all(|a| first + columns <= a.first || a.first + a.columns <= *first)
            })
            .collect();
        let chosen = free.get((seed % free.len().max(1) as u64) as usize).copied();
        let before = memory.allocated.len();
        if let Some(first) = chosen {
            memory.allocated.push(Allocation { first, columns, site: *site });
        }
        let of_pair = cluster.pair_of(self.rank).and_then(|rank| cluster.ctas[rank as usize].tensor.as_ref());
        let of_pair = of_pair.and_then(|memory| memory.allocated.get(before)).map(|of_pair| of_pair.columns);
        if let Some(others) = of_pair.filter(|others| *others != columns) {
            cluster.misuse(site, Rule::Allocation, || {
                format!("it allocates {columns} columns of tensor memory, and the other block of the pair {others}")
            });
        }
        if relinquished {
            cluster.misuse(site, Rule::Allocation, || {
                "it allocates tensor memory after the block has given up its permit".to_string()
            });
        }
        let Some(first) = chosen else {
            cluster.misuse(site, Rule::Allocation, || {
                format!(
                    "{columns} columns of tensor memory are never free: the block holds the others itself"
                )
            });
            return;
        };
        // The address is stored as an ordinary instruction of one thread stores it.
        let one = Site { collective: false, ..*site };
        let address = self.shared_address(to, 0);
        if let Some(offset) = cluster.shared_offset(&one, address, 4, true) {
            let mut data = [0; 16];
            data[..4].copy_from_slice(&Shape::address(0, first).to_le_bytes());
            cluster.write_shared(&one, offset, 4, &data);
        }
    }

    /// Frees columns, which nobody may access any more: in pairs both blocks free theirs together, and each has to know of all accesses in both.
    pub(crate) fn tensor_free(&mut self, cluster: &mut Cluster<'_>, columns: u32, address: u32, site: &Site) {
        let (_, first) = Shape::place(address);
        let Some(memory) = &mut cluster.ctas[self.rank as usize].tensor else { return };
        let at = memory.allocated.iter().position(|a| (a.first, a.columns) == (first, columns));
        let Some(at) = at else {
            cluster.misuse(site, Rule::Allocation, || {
                format!("it frees {columns} columns from {first} on, which were not allocated so")
            });
            return;
        };
        memory.allocated.remove(at);
        let own = Freeing {
            site: *site,
            cells: Cells { lanes: 0..LANES, columns: first..first + columns },
            number: (self.agent, cluster.know[self.agent as usize].time),
            known: self.tensor.view(self.live),
        };
        let Some(other) = cluster.pair_of(self.rank) else {
            return cluster.watch_tensor(site, self.rank, &own.cells, Kind::Write, own.number, &own.known);
        };
        let of_pair = cluster.ctas[other as usize].tensor.as_mut().and_then(|memory| {
            let same = |freeing: &Freeing| freeing.cells.columns == own.cells.columns;
            memory.freeing.iter().position(same).map(|at| memory.freeing.remove(at))
        });
        let Some(of_pair) = of_pair else {
            if let Some(memory) = &mut cluster.ctas[self.rank as usize].tensor {
                memory.freeing.push(own);
            }
            return;
        };
        for rank in [self.rank, other] {
            let Freeing { site, cells, number, known } = &of_pair;
            cluster.watch_tensor(site, rank, cells, Kind::Write, *number, known);
            // They are one operation.
            let mut known = own.known.clone();
            known.learn(number.0, u32::MAX, number.1 + 1);
            cluster.watch_tensor(&own.site, rank, &own.cells, Kind::Write, own.number, &known);
        }
    }

    /// Reports that the other block of a pair, which allocates with this one, may not have begun.
    fn with_its_pair(&self, cluster: &mut Cluster<'_>, site: &Site) {
        let Some(other) = cluster.pair_of(self.rank) else { return };
        let first = other * cluster.context.program.function.threads.div_ceil(32);
        if !cluster.know[self.agent as usize].view(self.live).sees(first as Agent, 0, 1) {
            cluster.misuse(site, Rule::Allocation, || {
                "the other block of the pair may not have begun: no barrier of the cluster stands before"
                    .to_string()
            });
        }
    }
}

impl Cluster<'_> {
    /// The other block of a block's pair, where blocks work in pairs.
    fn pair_of(&self, rank: u32) -> Option<u32> {
        self.context.program.function.pairs.then_some(rank ^ 1)
    }

    /// The column from which a product takes all lanes; an address of a lane behind the first is reported, by the words for what begins there.
    fn column(&mut self, site: &Site, address: u32, begins: &str) -> u32 {
        let (first, column) = Shape::place(address);
        if first != 0 {
            self.misuse(site, Rule::Place, || format!("its {begins} at lane {first}, and not at lane 0"));
        }
        column
    }

    /// The blocks, so many, that a product or a copy of scales works in; one that the odd block of a pair issues is reported.
    fn multiplying(&mut self, site: &Site, blocks: u32) -> Option<Range<u32>> {
        let pairs = blocks > 1;
        let blocks = site.rank..site.rank + blocks;
        if pairs && !site.rank.is_multiple_of(2) {
            self.misuse(site, Rule::Issuer, || {
                "the odd block of a pair issues it: the even one does for both".to_string()
            });
            return None;
        }
        if blocks.clone().any(|rank| self.ctas[rank as usize].running == 0) {
            self.misuse(site, Rule::Ended, || "the other block of the pair has ended".to_string());
        }
        Some(blocks)
    }

    /// The agent of a warp's loads from tensor memory, or of its stores.
    fn tensor_copies_of(&self, warp: Agent, load: bool) -> Agent {
        self.tensor_agents(if load { 0 } else { 1 }, warp)
    }

    /// The agent of the products of a warp's threads with sums in tensor memory.
    fn products_of(&self, warp: Agent) -> Agent {
        self.tensor_agents(2, warp)
    }

    /// The block gives up its permit.
    pub(crate) fn relinquish(&mut self, rank: u32) {
        if let Some(memory) = &mut self.ctas[rank as usize].tensor {
            memory.relinquished = true;
        }
    }

    /// True if a block has allocated these columns; others are reported.
    fn allocated(&mut self, site: &Site, rank: u32, columns: &Range<u32>) -> bool {
        let memory = &self.ctas[rank as usize].tensor;
        let has = memory.as_ref().is_some_and(|memory| memory.has(columns));
        if !has {
            let block = if rank == site.rank { "the block" } else { "the other block of the pair" };
            self.misuse(site, Rule::Allocation, || {
                format!(
                    "it reaches columns {} to {} of tensor memory, which {block} has not allocated",
                    columns.start,
                    columns.end - 1
                )
            });
        }
        has
    }

    /// Notes an access to cells of a block, by an asynchronous operation of this number that comes after what is known.
    fn watch_tensor(
        &mut self,
        site: &Site,
        rank: u32,
        cells: &Cells,
        kind: Kind,
        (agent, time): (Agent, u32),
        known: &HappensBefore,
    ) {
        self.sink.next_access();
        let access = Access { agent, time, lanes: u32::MAX, flags: ASYNC | ORDINARY, ..self.access(site) };
        let Cluster { ctas, sink, context, .. } = self;
        let first = ctas.first().map_or([0; 3], |cta| cta.index);
        let Some(memory) = &mut ctas[rank as usize].tensor else { return };
        let base = memory.base();
        let Some(shadow) = &mut memory.shadow else { return };
        let space = Space::shared(rank);
        let now = Now { access, view: View::common(known), space, tensor: 0 };
        let bytes = 4 * (cells.columns.end - cells.columns.start);
        let report = &mut |event| sink.tensor_event(context, first, site, (base, kind != Kind::Read), event);
        for lane in cells.lanes.clone() {
            let offset = 4 * TensorMemory::at(lane, cells.columns.start) as u32;
            match kind {
                Kind::Read => shadow.read(offset, bytes, &now, report),
                _ => shadow.write(offset, bytes, &now, report),
            }
        }
    }

    /// True if products or commits are outstanding.
    pub(crate) fn waiting_units(&self) -> Vec<usize> {
        (0..self.tensor_units.len()).filter(|unit| !self.tensor_units[*unit].tasks.is_empty()).collect()
    }

    /// Completes the first product or commit of a unit; the rest of its products up to the next commit too, where `whole`.
    pub(crate) fn complete_sums(&mut self, unit: usize, whole: bool) {
        while let Some(task) = self.tensor_units[unit].tasks.pop_front() {
            match task {
                Task::Product(product) => match (product.row.scaling, product.scales) {
                    (Some(scaling), Some(scales)) => self.execute_scaled_sums(&product, &scaling, scales),
                    _ if product.row.c == DType::I32 => self.execute_sums::<i32>(&product),
                    _ => self.execute_sums::<f32>(&product),
                },
                Task::Scales(copy) => self.execute_scale_copy(&copy),
                Task::Commit(arrivals) => {
                    arrivals.into_iter().for_each(|arrival| self.send(arrival));
                    return;
                }
            }
            if !whole {
                return;
            }
        }
    }

    /// Completes all that is outstanding at the end, and reports tensor memory that was not freed.
    pub(crate) fn end_of_tensor_memory(&mut self) {
        for unit in 0..self.tensor_units.len() {
            while !self.tensor_units[unit].tasks.is_empty() {
                self.complete_sums(unit, true);
            }
        }
        for rank in 0..self.ctas.len() {
            let left =
                self.ctas[rank].tensor.as_ref().map_or_else(Vec::new, |memory| memory.allocated.clone());
            for Allocation { columns, site, .. } in left {
                self.misuse(&site, Rule::Allocation, || {
                    format!("the block ends with {columns} columns of tensor memory that it has not freed")
                });
            }
        }
    }
}
