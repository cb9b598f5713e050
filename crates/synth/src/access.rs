//! From thread-value layouts to memory accesses: coalesced layouts for copies, vectors for per-thread instructions, and the
//! rows that a matrix instruction's lanes address.
//!
//! The constraint of a copy (Hexcute, Fig. 19 a) is `f∘p⁻¹ = g∘q⁻¹`, with `g` the layout of the register tensor, `q` the
//! instruction's layout on the register side and `p` the one on the memory side. Given `g` it is solved for `f = g∘q⁻¹∘p`: which
//! coordinates the pointers of the threads name. What is left to ask is that memory has each pointer's elements in one
//! contiguous, aligned run.

use std::collections::BTreeSet;

use tilewright_layout::{
    Coord, HTuple, Layout, LayoutError, Stride, coalesce, compose, logical_divide, nullspace, right_inverse,
    squeeze, zipped_divide_by_mode,
};
use tilewright_machine::{CopyKind, CopyRow, Memory};
use tilewright_tile::core::{Program, StmtKind, TileRef};
use tilewright_tile::{GlobalTile, TensorId};

use crate::divisibility::{Divisibility, gcd};
use crate::linear::LANES;
use crate::reject::Reject;
use crate::tv::{Access, Call, TvLayout, linear_coordinate};

/// Tile coordinate → coordinate in the buffer, relative to the tile's base.
pub fn buffer_coordinates(tile: &GlobalTile) -> Option<Layout<Coord>> {
    let step = |dim: u32, scale: i64| Coord::basis(dim as usize).checked_scale(scale);
    let modes = tile.modes.iter().flatten();
    let leaves = modes.map(|(extent, dim, scale)| Some((*extent, step(*dim, *scale)?)));
    Layout::from_leaves(&leaves.collect::<Option<Vec<_>>>()?).ok()
}

/// For each mode of the buffer, the layout tile coordinate → coordinate in that mode (relative to the tile's base).
pub fn buffer_layouts(tile: &GlobalTile) -> Option<Vec<Layout>> {
    let coordinates = buffer_coordinates(tile)?;
    Some((0..tile.shape.len()).map(|dim| coordinates.component(dim)).collect())
}

/// The buffer's mode whose stride is the literal 1, if there is one.
pub fn contiguous_mode(tile: &GlobalTile) -> Option<usize> {
    // The last of several wins: a mode of extent 1 in front of it may have stride 1 too.
    tile.modes_in_memory().rfind(|dim| tile.strides[*dim].as_int() == Some(1))
}

/// The largest coordinate that the tile reaches in each mode of the buffer, plus one.
pub fn extents(tile: &GlobalTile) -> Vec<i64> {
    (0..tile.shape.len())
        .map(|dim| {
            1 + tile
                .modes
                .iter()
                .flatten()
                .filter(|(_, d, scale)| *d as usize == dim && *scale > 0)
                .map(|(extent, _, scale)| (extent - 1) * scale)
                .sum::<i64>()
        })
        .collect()
}

/// Checks that `n` contiguous elements of the buffer at a tile coordinate that is a multiple of `n` are aligned to their
/// size and lie wholly inside or wholly outside.
pub fn vector_fits(
    divisibility: &Divisibility<'_>,
    tile: &GlobalTile,
    mode: usize,
    n: i64,
) -> Result<(), Reject> {
    if n == 1 {
        return Ok(());
    }
    if !divisibility.is_multiple(&tile.base[mode], n) {
        return Err(Reject::OffsetUnaligned(mode, n));
    }
    for dim in tile.modes_in_memory() {
        if dim != mode && !divisibility.is_multiple(&tile.strides[dim], n) {
            return Err(Reject::StrideUnaligned(dim, n));
        }
    }
    if tile.indexed.is_some_and(|(along, step)| along as usize == mode && step % n != 0) {
        return Err(Reject::StepsUnaligned(mode, n));
    }
    let extent = extents(tile)[mode];
    if !divisibility.is_multiple(&tile.shape[mode], n) && !divisibility.stays_inside(tile, mode, extent) {
        return Err(Reject::ExtentUnaligned(mode, n));
    }
    Ok(())
}

/// A tile in the order of memory, as far as that is known.
struct MemoryOrder {
    /// Place among neighbours → tile coordinate: the modes that continue each other along the buffer's contiguous mode, from the
    /// first element on. A single element where there are none.
    run: Layout,
    /// The other modes, those that lie closest in memory first.
    rest: Layout,
}

impl MemoryOrder {
    fn new(tile: &TileRef) -> Result<Self, LayoutError> {
        let Some(global) = &tile.global else {
            // In memory of ours the last mode is contiguous.
            let mut modes = linear_coordinate(tile.shape.clone())?.modes();
            let run = modes.pop().unwrap_or_else(Layout::trivial);
            modes.reverse();
            return Ok(MemoryOrder { run, rest: Layout::concat(&modes)? });
        };
        let contiguous = contiguous_mode(global);
        // Row-major buffers: later modes lie closer; column-major ones the other way round.
        let first_is_closest = contiguous == Some(0) && global.shape.len() > 1;
        let extents = global.modes.iter().flatten().map(|(extent, ..)| *extent).collect();
        let tile_modes = linear_coordinate(extents)?.modes();
        let mut modes: Vec<(&(i64, u32, i64), Layout)> =
            global.modes.iter().flatten().zip(tile_modes).filter(|((extent, ..), _)| *extent > 1).collect();
        let (mut run, mut next) = (Vec::new(), 1);
        while let Some(at) =
            modes.iter().position(|((_, dim, scale), _)| Some(*dim as usize) == contiguous && *scale == next)
        {
            let ((extent, ..), mode) = modes.remove(at);
            next *= extent;
            run.push(mode);
        }
        modes.sort_by_key(|((_, dim, scale), _)| {
            let dim = i64::from(*dim);
            (if first_is_closest { dim } else { -dim }, *scale)
        });
        let rest: Vec<Layout> = modes.into_iter().map(|(_, mode)| mode).collect();
        Ok(MemoryOrder { run: Layout::concat(&run)?, rest: Layout::concat(&rest)? })
    }

    /// The run divided into vectors: (element of a vector, vector) → tile coordinate. `None` where it has no whole ones.
    fn vectors(&self, n: i64) -> Option<Layout> {
        let whole = self.run.size() % n == 0;
        whole.then(|| logical_divide(&self.run, &Layout::identity(n)).ok()).flatten()
    }
}

/// The elements of a vector that a thread should hold of a tile: those that [`widest_access`] finds, but never a part of a
/// byte, of the tile or of what is distributed like it, where the tile's contiguous extent allows a whole one: only whole
/// bytes can be stored.
pub fn widest_vector(
    divisibility: &Divisibility<'_>,
    tile: &TileRef,
    threads: i64,
    max_bytes: u32,
) -> (i64, Option<Reject>) {
    let (n, why) = widest_access(divisibility, tile, threads, max_bytes);
    let byte = elements_of_a_byte(divisibility.program(), tile.tensor);
    let whole = MemoryOrder::new(tile).is_ok_and(|order| order.vectors(byte).is_some());
    (if whole { n.max(byte) } else { n }, why)
}

/// The most elements that share a byte of a tensor, or of one that registers connect it with.
fn elements_of_a_byte(verified: &Program, tensor: TensorId) -> i64 {
    let program = verified;
    if program.tensors.iter().all(|t| t.dtype.per_byte() == 1) {
        return 1;
    }
    let in_registers = |id: TensorId| program.tensor(id).memory() == Memory::Register;
    let mut reached = BTreeSet::from([tensor]);
    loop {
        let before = reached.len();
        verified.visit(&mut |stmt, _| {
            let group = match &stmt.kind {
                StmtKind::Copy { src, dst, .. } => vec![src.tensor, dst.tensor],
                StmtKind::Cast { dst, src } | StmtKind::Shape { dst, src, .. } => vec![*dst, *src],
                StmtKind::Elementwise { dst, expr } => [vec![*dst], expr.tensors()].concat(),
                StmtKind::Join { dst, a, b } => vec![*dst, *a, *b],
                StmtKind::Split { lo, hi, src } => vec![*lo, *hi, *src],
                _ => Vec::new(),
            };
            // Memory separates: only the tensor asked for is a way from it to registers.
            let joins = |id: &TensorId| reached.contains(id) && (*id == tensor || in_registers(*id));
            if group.iter().any(joins) {
                reached.extend(group);
            }
        });
        if reached.len() == before {
            break;
        }
    }
    reached.iter().map(|id| i64::from(program.tensor(*id).dtype.per_byte())).max().unwrap_or(1)
}

/// The widest vector, in elements, with which a tile can be copied by coalesced accesses, and why not wider.
pub fn widest_access(
    divisibility: &Divisibility<'_>,
    tile: &TileRef,
    threads: i64,
    max_bytes: u32,
) -> (i64, Option<Reject>) {
    let bits = tile.dtype.bits();
    let Ok(order) = MemoryOrder::new(tile) else { return (1, Some(Reject::TooLarge)) };
    let run = order.run.size();
    if run == 1 {
        return (1, Some(Reject::TileNotContiguous));
    }
    let total: i64 = tile.shape.iter().product();
    let mut n = i64::from((max_bytes * 8 / bits).max(1));
    let mut why = None;
    while n > 1 {
        let reason = if run % n != 0 {
            Some(Reject::RunUneven(run, n))
        } else if order.vectors(n).is_none() {
            Some(Reject::LeavesUneven(n))
        } else if total / n < threads && n * i64::from(bits) > 32 {
            Some(Reject::IdleThreads(n, threads))
        } else {
            let global = tile.global.as_ref().and_then(|global| Some((global, contiguous_mode(global)?)));
            global.and_then(|(global, mode)| {
                let fits = vector_fits(divisibility, global, mode, n);
                fits.and_then(|()| rest_fits(global, mode, &order, n)).err()
            })
        };
        match reason {
            None => return (n, why),
            Some(reason) => {
                why.get_or_insert(reason);
                n /= 2;
            }
        }
    }
    (1, why)
}

/// Checks that vectors of `n` neighbours along `mode` start at multiples of `n` wherever the modes beside the run lead them.
fn rest_fits(global: &GlobalTile, mode: usize, order: &MemoryOrder, n: i64) -> Result<(), Reject> {
    let along = buffer_coordinates(global).ok_or(Reject::TooLarge)?.component(mode);
    let aligned = compose(&along, &order.rest)?.divisor() % n == 0;
    if aligned { Ok(()) } else { Err(Reject::StepsUnaligned(mode, n)) }
}

/// A thread-value layout in which consecutive threads hold consecutive vectors of `n` elements in memory. The values of a
/// thread begin with a vector, in memory's order, whatever modes of a view it is made of.
pub fn coalesced(tile: &TileRef, threads: i64, n: i64) -> Option<TvLayout> {
    spread(&MemoryOrder::new(tile).ok()?, threads, n, threads).map(|(tv, _)| tv)
}

/// A [`coalesced`] layout in which as few warps as possible share a run of memory: none shares what its lanes reduce along the run. A warp
/// still accesses neighbours at once.
pub fn coalesced_by_warp(tile: &TileRef, threads: i64, n: i64) -> Option<TvLayout> {
    let order = MemoryOrder::new(tile).ok()?;
    let (all, idle) = spread(&order, threads, n, threads)?;
    let mut lanes = LANES;
    while lanes < threads {
        match spread(&order, threads, n, lanes) {
            Some((tv, left)) if left <= idle => return Some(tv),
            _ => lanes *= 2,
        }
    }
    Some(all)
}

/// The layout in which consecutive threads hold consecutive vectors of `n` elements, at most `lanes` of them along the run; and how many
/// threads hold the same elements.
fn spread(order: &MemoryOrder, threads: i64, n: i64, lanes: i64) -> Option<(TvLayout, i64)> {
    let divided = order.vectors(n)?;
    let run = squeeze(&divided.mode(1).ok()?);
    let vectors = squeeze(&Layout::concat(&[run.clone(), order.rest.clone()]).ok()?);
    let (mut left, mut first, mut before) = (threads, lanes, 1);
    let along = vectors.modes().into_iter().map(|mode| {
        let most = if before < run.size() { first } else { left };
        let along = gcd(mode.size(), gcd(most, left));
        before *= mode.size();
        first /= along;
        left /= along;
        Layout::identity(along)
    });
    let along: Vec<Layout> = along.collect();
    let shares = zipped_divide_by_mode(&vectors, &along).ok()?;
    let threads = Layout::concat(&[shares.mode(0).ok()?, Layout::broadcast(left)]).ok()?;
    let values = Layout::concat(&[divided.mode(0).ok()?, shares.mode(1).ok()?]).ok()?;
    Some((TvLayout::new(squeeze(&threads), squeeze(&values)).ok()?, left))
}

/// True if the tile's run of memory lies along one of its modes, from the first element on.
pub fn runs_along(tile: &TileRef, axis: usize) -> bool {
    let unit: i64 = tile.shape[..axis].iter().product();
    let within =
        |(extent, stride): (i64, i64)| extent == 1 || (unit..unit * tile.shape[axis]).contains(&stride);
    MemoryOrder::new(tile)
        .is_ok_and(|order| order.run.size() > 1 && order.run.leaves().into_iter().all(within))
}

/// A layout in which the threads hold the same values, those that lie closest together in a tile's memory first.
pub fn in_memory_order(tile: &TileRef, tv: &TvLayout) -> Option<TvLayout> {
    let order = MemoryOrder::new(tile).ok()?;
    let places = right_inverse(&Layout::concat(&[order.run, order.rest]).ok()?);
    let mut leaves = tv.values().leaves();
    leaves.sort_by_key(|(_, stride)| places.eval(*stride));
    TvLayout::new(tv.threads().clone(), squeeze(&Layout::from_leaves(&leaves).ok()?)).ok()
}

/// A layout in which the threads hold the same values, [in the order of a tile's memory](in_memory_order), where that puts neighbours in memory into
/// one register and the given order does not.
pub fn packed_in_memory_order(tile: &TileRef, tv: &TvLayout) -> Option<TvLayout> {
    let per_register = i64::from(tilewright_machine::per_register(tile.dtype.bits()));
    let run = MemoryOrder::new(tile).ok()?.run;
    if run.size() < per_register || tv.count() as i64 % per_register != 0 {
        return None;
    }
    let packs = |tv: &TvLayout| (0..per_register).all(|value| tv.value_offset(value) == run.eval(value));
    let ordered = in_memory_order(tile, tv)?;
    (!packs(tv) && packs(&ordered)).then_some(ordered)
}

/// A tile's coordinate → which of the indices of its indexed mode is the coordinate's.
pub fn index_map(tile: &TileRef) -> Option<Layout> {
    let at = tile.indexed.as_ref()?.at;
    let strides: Vec<i64> = (0..tile.shape.len()).map(|mode| i64::from(mode == at)).collect();
    Layout::new(HTuple::from_flat(tile.shape.clone()), HTuple::from_flat(strides)).ok()
}

/// The layout in which the threads copy a tile from global to shared memory: vectors as wide as they can be, those of neighbouring threads
/// beside each other; with that width in elements.
pub fn copy_layout(divisibility: &Divisibility<'_>, tile: &TileRef, threads: i64) -> Option<(TvLayout, i64)> {
    let n = widest_access(divisibility, tile, threads, 16).0;
    Some((coalesced(tile, threads, n)?, n))
}

/// For each call of an access to a tile with an indexed mode, the value of the index's fragment that every thread needs for it; `None` if a
/// thread does not hold it.
pub fn held_indices(tile: &TileRef, access: &Access, held: &TvLayout, threads: i64) -> Option<Vec<u32>> {
    let map = index_map(tile)?;
    let of = |call: &Call| {
        let needs = |thread: i64| map.eval(access.threads.eval(thread) + call.offset);
        let holds = |value: &i64| (0..threads).all(|thread| held.at(thread, *value) == needs(thread));
        (0..held.count() as i64).find(holds).map(|value| value as u32)
    };
    access.calls.iter().map(of).collect()
}

/// True if some threads hold the same elements as others.
pub fn is_broadcast(threads: &Layout) -> bool {
    nullspace(threads).size() > 1
}

/// The share of the warps that an asynchronous copy keeps busy: of threads with the same elements the first one copies them.
pub fn busy_warps(threads: &Layout) -> f64 {
    let warps = threads.size() as f64 / LANES as f64;
    (1.0 / nullspace(threads).size() as f64).max(1.0 / warps)
}

/// True if `layout(thread + offset) = layout(thread) + layout(offset)` for the coordinates of all threads and all offsets: no digit of
/// a coordinate is carried from one mode of the layout into the next. Without odd factors that always holds.
pub fn adds(layout: &Layout, threads: &[i64], offsets: impl Iterator<Item = i64> + Clone) -> bool {
    let mut below = 1;
    let layout = coalesce(layout);
    let inner = layout.shape().leaves();
    inner[..inner.len() - 1].iter().all(|extent| {
        below *= **extent;
        let thread = threads.iter().map(|t| t % below).max().unwrap_or(0);
        let offset = offsets.clone().map(|c| c % below).max().unwrap_or(0);
        thread + offset < below
    })
}

/// True if the values of a vector fill registers, or an aligned part of one, in order.
fn packs(values: &[u32], bits: u32) -> bool {
    let together = (tilewright_machine::per_register(bits) as usize).min(values.len());
    values.chunks(together).all(|chunk| {
        chunk[0] % together as u32 == 0 && chunk.iter().enumerate().all(|(i, v)| *v == chunk[0] + i as u32)
    })
}

/// The calls of a per-thread instruction of `row` between the registers of `tv` and a global tile; or why there are none.
pub fn global_access(
    divisibility: &Divisibility<'_>,
    tile: &TileRef,
    global: &GlobalTile,
    tv: &TvLayout,
    row: &CopyRow,
) -> Result<Access, Reject> {
    let bits = tile.dtype.bits();
    if row.bytes * 8 < bits {
        return Err(Reject::NarrowerThan(tile.dtype));
    }
    let n = i64::from(row.bytes * 8 / bits);
    let found = global_vectors(divisibility, tile, global, tv, n);
    if found.is_err() && row.bytes == 1 && row.src == Memory::Global {
        // An element of a few bits is taken out of the byte that holds it.
        return global_vectors(divisibility, tile, global, tv, 1);
    }
    found
}

/// The calls that move `n` elements at a time; or why there are none.
fn global_vectors(
    divisibility: &Divisibility<'_>,
    tile: &TileRef,
    global: &GlobalTile,
    tv: &TvLayout,
    n: i64,
) -> Result<Access, Reject> {
    if global.folded.is_some() {
        return Err(Reject::ViewLeaves);
    }
    let bits = tile.dtype.bits();
    let mut dims = buffer_layouts(global).ok_or(Reject::TooLarge)?;
    // Where a mode is indexed, the buffer's coordinate along it is that of an index: a vector has one.
    dims.extend(index_map(tile));
    let composed: Vec<Layout> = dims
        .iter()
        .map(|d| compose(d, tv.layout()))
        .collect::<Result<_, _>>()
        .map_err(Reject::BufferModes)?;
    let offsets = (0..tv.count() as i64).map(|v| tv.value_offset(v));
    let threads = tv.threads().image();
    if !dims.iter().all(|layout| adds(layout, &threads, offsets.clone())) {
        return Err(Reject::ViewLeaves);
    }
    let values: Vec<Vec<i64>> =
        composed.iter().map(|l| Ok(l.mode(1)?.table())).collect::<Result<_, Reject>>()?;
    let mut order: Vec<(Vec<i64>, u32)> =
        (0..tv.count()).map(|v| (values.iter().map(|places| places[v]).collect(), v as u32)).collect();
    let mode = contiguous_mode(global);
    if n > 1 {
        let mode = mode.ok_or(Reject::BufferNotContiguous)?;
        vector_fits(divisibility, global, mode, n)?;
        let threads = composed[mode].mode(0)?;
        if threads.divisor() % n != 0 {
            return Err(Reject::ThreadsUnaligned(n));
        }
        // By the other modes, then along the contiguous one.
        fn others(c: &[i64], mode: usize) -> impl Iterator<Item = &i64> {
            c[..mode].iter().chain(&c[mode + 1..])
        }
        order.sort_by(|(a, v), (b, w)| {
            others(a, mode).cmp(others(b, mode)).then((a[mode], v).cmp(&(b[mode], w)))
        });
    }
    let mut calls = Vec::new();
    for chunk in order.chunks(n as usize) {
        let vector: Vec<u32> = chunk.iter().map(|(_, v)| *v).collect();
        if n > 1 {
            let mode = mode.unwrap_or_default();
            let run = chunk.len() == n as usize
                && chunk[0].0[mode] % n == 0
                && chunk.iter().enumerate().all(|(i, (c, _))| {
                    c.iter().enumerate().all(|(d, x)| {
                        let expected = if d == mode { chunk[0].0[d] + i as i64 } else { chunk[0].0[d] };
                        *x == expected
                    })
                });
            if !run {
                return Err(Reject::NotConsecutive(n));
            }
            if !packs(&vector, bits) {
                return Err(Reject::NotPacked);
            }
        }
        calls.push(Call { offset: tv.value_offset(i64::from(vector[0])), values: vector });
    }
    calls.sort_by_key(|call| call.values[0]);
    Ok(Access {
        vector: n as u32,
        threads: tv.threads().clone(),
        calls,
        broadcast: is_broadcast(tv.threads()),
    })
}

/// The calls of `row` between the registers of `tv` and a shared tile of elements of `bits`, with the run of coordinates that
/// memory must have contiguous and aligned (address → tile coordinate); or why there are none.
pub fn shared_access(tv: &TvLayout, bits: u32, row: &CopyRow) -> Result<(Access, Layout), Reject> {
    match row.kind {
        CopyKind::Matrix { count, trans } => matrix_access(tv, bits, count as usize, trans),
        CopyKind::PerThread | CopyKind::Reduction(_) | CopyKind::Atomic(_) => {
            if row.bytes * 8 < bits {
                return Err(Reject::NarrowerThanElement);
            }
            let n = i64::from(row.bytes * 8 / bits);
            vector_run(tv, n)
        }
        CopyKind::Async | CopyKind::Tensor { .. } => Err(Reject::WithoutRegisters),
    }
}

/// Per-thread accesses of `n` values at a time, in the order of the values, with the run of coordinates of such a vector.
pub fn vector_run(tv: &TvLayout, n: i64) -> Result<(Access, Layout), Reject> {
    vectors_in_order(tv, &Layout::identity(tv.count() as i64), n)
}

/// Further accesses of a per-thread instruction of `row`: those whose vectors are made of other values than neighbours in the order of the
/// registers' layout, each with the run of coordinates of a vector. A vector of an instruction names its registers, so any may stand in it; what
/// shares a register stays together. `shape` is the tile's.
pub fn reordered_accesses(tv: &TvLayout, shape: &[i64], bits: u32, row: &CopyRow) -> Vec<(Access, Layout)> {
    let n = i64::from(row.bytes * 8 / bits);
    if !matches!(row.kind, CopyKind::PerThread | CopyKind::Reduction(_)) {
        return Vec::new();
    }
    let orders = value_orders(tv, shape, i64::from(tilewright_machine::per_register(bits)), n);
    orders.iter().filter_map(|order| vectors_in_order(tv, order, n).ok()).collect()
}

/// Orders of the values, position → value, in which vectors of `n` begin with other modes of the values than the first: a register's values, then
/// one of the other modes with those that continue it, then what is left.
fn value_orders(tv: &TvLayout, shape: &[i64], per_register: i64, n: i64) -> Vec<Layout> {
    if n <= per_register || tv.count() as i64 % n != 0 {
        return Vec::new();
    }
    let Ok(divided) = logical_divide(tv.values(), &Layout::identity(per_register)) else { return Vec::new() };
    let Ok(registers) = divided.mode(1) else { return Vec::new() };
    // Of each mode the values from one to the next, and the coordinates.
    let (mut modes, mut step) = (Vec::new(), per_register);
    for (extent, stride) in coalesce(&registers).leaves() {
        for (extent, stride) in split_by_modes(extent, stride, shape) {
            modes.push((extent, step, stride));
            step *= extent;
        }
    }
    modes.retain(|(extent, ..)| *extent > 1);
    let begins = (1..modes.len()).filter(|first| modes[*first].2 != 0);
    let order = |first: usize| {
        let mut left = modes.clone();
        let mut taken = vec![(per_register, 1)];
        let mut next = Some(first);
        while let Some(at) = next {
            let (extent, step, stride) = left.remove(at);
            taken.push((extent, step));
            next = left.iter().position(|mode| mode.2 == stride * extent);
        }
        taken.extend(left.into_iter().map(|(extent, step, _)| (extent, step)));
        Layout::from_leaves(&taken).ok()
    };
    begins.filter_map(order).collect()
}

/// The parts, extents and strides, that a run of coordinates has in each mode of a tile of this shape, where it goes through several from one's end to
/// the next one's.
fn split_by_modes(mut extent: i64, mut stride: i64, shape: &[i64]) -> Vec<(i64, i64)> {
    let mut parts = Vec::new();
    let mut end = 1;
    for mode in shape {
        end *= mode;
        let whole = stride > 0 && stride < end && end % stride == 0 && extent % (end / stride) == 0;
        if whole && end / stride < extent {
            parts.push((end / stride, stride));
            extent /= end / stride;
            stride = end;
        }
    }
    parts.push((extent, stride));
    parts
}

/// Per-thread accesses of `n` values at a time, taken in an order, position → value, with the run of coordinates of such a vector.
fn vectors_in_order(tv: &TvLayout, order: &Layout, n: i64) -> Result<(Access, Layout), Reject> {
    let count = tv.count() as i64;
    if count % n != 0 {
        return Err(Reject::CountUneven(count, n));
    }
    let apart = |_| Reject::ValuesApart(n);
    let coordinates = compose(tv.values(), order).map_err(apart)?;
    let vectors = logical_divide(&coordinates, &Layout::identity(n)).map_err(apart)?;
    let run = coalesce(&vectors.mode(0)?);
    if is_broadcast(&run) {
        return Err(Reject::ValuesApart(n));
    }
    let call = |i: i64| {
        let values: Vec<u32> = (i * n..(i + 1) * n).map(|v| order.eval(v) as u32).collect();
        Call { offset: tv.value_offset(i64::from(values[0])), values }
    };
    let mut calls: Vec<Call> = (0..count / n).map(call).collect();
    calls.sort_by_key(|call| call.values[0]);
    let access = Access {
        vector: n as u32,
        threads: tv.threads().clone(),
        calls,
        broadcast: is_broadcast(tv.threads()),
    };
    Ok((access, run))
}

/// The rows that the lanes of `ldmatrix`/`stmatrix` address: `f = g∘q⁻¹∘p`, with each register of the fragment one matrix. The
/// instruction moves units of 16 bits and does not ask what they are: two elements of 8 bits or four of 4 bits, held by one
/// lane side by side, travel as one.
fn matrix_access(tv: &TvLayout, bits: u32, count: usize, trans: bool) -> Result<(Access, Layout), Reject> {
    if bits > 16 || (trans && bits != 16) {
        return Err(Reject::UnitsOf16Bits);
    }
    let lanes = compose(tv.threads(), &Layout::identity(32)).map_err(|_| Reject::NotMatrixRows)?;
    if is_broadcast(&lanes) {
        return Err(Reject::LanesAlike);
    }
    let per = tilewright_machine::per_register(bits) as usize;
    let registers = tv.count() / per;
    if !tv.count().is_multiple_of(per) || registers == 0 || !registers.is_multiple_of(count) {
        return Err(Reject::NoMatrixGroups(tv.count(), count));
    }
    let first = |r: usize| tv.value_offset((per * r) as i64);
    let inner: Vec<i64> = (0..per as i64).map(|j| tv.value_offset(j) - tv.value_offset(0)).collect();
    let alike = |r: usize| {
        inner.iter().enumerate().all(|(j, x)| tv.value_offset((per * r + j) as i64) - first(r) == *x)
    };
    if !(0..registers).all(alike) {
        return Err(Reject::RegistersDiffer);
    }
    // A register is a part of a matrix's row, four lanes beside each other have the whole row, and eight times four all rows.
    let matrix = Layout::new((4, 8).into(), (1, 4).into()).and_then(|matrix| compose(&lanes, &matrix));
    let (Ok(matrix), Some(inner)) = (matrix, Layout::from_table(&inner)) else {
        return Err(Reject::NotMatrixRows);
    };
    let (quads, rows) = (matrix.mode(0)?, matrix.mode(1)?);
    // Rows are addressed one by one and may lie anywhere; what a row holds is the run.
    let along = coalesce(&Layout::concat(&[inner, quads])?);
    let (rows, run) = if trans { (along, coalesce(&rows)) } else { (rows, along) };
    if is_broadcast(&run) {
        return Err(Reject::LanesAlike);
    }
    let (s1, s2) = match count {
        1 => (0, 0),
        2 => (first(1) - first(0), 0),
        _ => (first(1) - first(0), first(2) - first(0)),
    };
    let mut calls = Vec::new();
    for group in 0..registers / count {
        let r0 = group * count;
        for j in 0..count {
            if first(r0 + j) - first(r0) != s1 * (j % 2) as i64 + s2 * (j / 2) as i64 {
                return Err(Reject::GroupsDiffer(count));
            }
        }
        calls.push(Call { offset: first(r0), values: (r0..r0 + count).map(|r| (per * r) as u32).collect() });
    }
    let warps = Layout::new((tv.threads().size() / 32).into(), 32.into())?;
    let warps = compose(tv.threads(), &warps).map_err(Reject::WarpsWithLanes)?;
    // Lanes whose addresses the instruction ignores repeat those of the first.
    let matrices = [count.min(2) as i64, count.div_ceil(2) as i64, 4 / count as i64];
    let matrices = Layout::new(matrices.into(), [s1, s2, 0].into())?;
    let threads = squeeze(&Layout::concat(&[rows, matrices, warps])?);
    let vector = 128 / bits;
    Ok((Access { vector, threads, calls, broadcast: is_broadcast(tv.threads()) }, run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::{Arch, Scope, copies, copy_named, mma_rows};

    /// Fig. 7 and appendix C of the Hexcute paper: the composite `g∘q⁻¹` of an `ldmatrix.x4` sends (17, 5) to 337.
    #[test]
    fn appendix_c_value_at_17_5() {
        let row = copy_named("ldmatrix.x4").unwrap();
        let g: Layout = "((4,8),(2,2,2)):((32,1),(16,8,256))".parse().unwrap();
        // The paper counts the instruction tile of 32×8 by columns; ours by rows of matrices.
        let inverse = tilewright_layout::inverse(row.register_tv()).unwrap();
        let paper_index = |r: i64, c: i64| 64 * (r / 8) + 8 * (r % 8) + c;
        assert_eq!(g.eval(inverse.eval(paper_index(17, 5))), 337);
    }

    #[test]
    fn f_equals_g_after_q_inverse_after_p() {
        // Every element that a lane's pointer names must be the element that the constraint says.
        let l = crate::gemm::TiledMma::plain(&mma_rows()[0], 64, 64, 4).layouts(64, 64, 32).unwrap();
        for (tv, trans) in [(&l.a, false), (&l.b, false), (&l.a, true), (&l.b, true)] {
            for row in copies(Memory::Shared, Memory::Register, Scope::Cta, Arch::SM_80) {
                let CopyKind::Matrix { count, trans: t } = row.kind else { continue };
                if t != trans {
                    continue;
                }
                let (access, run) = shared_access(tv, 16, row).unwrap();
                let q_inverse = tilewright_layout::inverse(row.register_tv()).unwrap();
                for call in &access.calls {
                    for warp in 0..4 {
                        for lane in 0..8 * i64::from(count) {
                            for e in 0..8 {
                                let index = row.memory_tv().eval(lane + 8 * i64::from(count) * e);
                                let tv_index = q_inverse.eval(index);
                                let (t, v) = (tv_index % 32, tv_index / 32);
                                let value = i64::from(call.values[(v / 2) as usize]) + v % 2;
                                let expected = tv.at(32 * warp + t, value);
                                let actual =
                                    access.threads.eval(32 * warp + lane) + call.offset + run.eval(e);
                                assert_eq!(actual, expected, "{} lane {lane} element {e}", row.name);
                            }
                        }
                    }
                }
            }
        }
    }

    /// A mode of the values that goes through two of the tile's is two; a register's values stay together.
    #[test]
    fn vectors_are_made_of_any_values() {
        let row = copy_named("st.shared.v4.b32").unwrap();
        let accesses = |layout: &str, bits: u32| {
            let tv = TvLayout::from_layout(layout.parse().unwrap()).unwrap();
            let accesses = reordered_accesses(&tv, &[32, 16], bits, row);
            let plain = |(access, run): &(Access, Layout)| {
                let calls = access.calls.iter().map(|call| (call.offset, call.values.clone()));
                (run.to_string(), calls.collect::<Vec<_>>())
            };
            accesses.iter().map(plain).collect::<Vec<_>>()
        };
        let calls = |offsets: [i64; 2], calls: [&[u32]; 2]| {
            offsets.into_iter().zip(calls.map(<[u32]>::to_vec)).collect()
        };
        let two: Vec<_> = calls([0, 16], [&[0, 2, 4, 6], &[1, 3, 5, 7]]);
        assert_eq!(accesses("((4,16),(2,4)):((128,1),(16,32))", 32), [("4:32".to_string(), two.clone())]);
        assert_eq!(accesses("((4,16),(2,4)):((32,1),(16,128))", 32), [("4:128".to_string(), two)]);
        let halves: Vec<_> = calls([0, 4], [&[0, 1, 4, 5, 8, 9, 12, 13], &[2, 3, 6, 7, 10, 11, 14, 15]]);
        assert_eq!(accesses("((4,8),(2,2,4)):((8,64),(1,4,32))", 16), [("(2,4):(1,32)".to_string(), halves)]);
    }

    /// Rows whose elements lanes reduce stay within a warp, as long as there are rows for the others.
    #[test]
    fn as_few_warps_as_possible_share_a_row() {
        let tile = |rows: i64, columns: i64| TileRef {
            tensor: TensorId(0),
            memory: Memory::Shared,
            dtype: tilewright_machine::DType::F16,
            shape: vec![rows, columns],
            fixed: Vec::new(),
            indexed: None,
            transposed: false,
            global: None,
            span: tilewright_tile::Origin::Unknown,
        };
        for (rows, columns, layout) in [
            (4, 1024, "((32,4),(8,4)):((32,1),(4,1024))"),
            (2, 1024, "((64,2),(8,2)):((16,1),(2,1024))"),
            (1, 1024, "(128,8):(8,1)"),
            (16, 128, "((16,8),(8,2)):((128,1),(16,8))"),
        ] {
            let tv = coalesced_by_warp(&tile(rows, columns), 128, 8).unwrap();
            assert_eq!(tv.layout().to_string(), layout);
            assert!(runs_along(&tile(rows, columns), 1) && !runs_along(&tile(rows, columns), 0));
        }
    }
}
