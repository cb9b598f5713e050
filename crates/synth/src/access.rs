//! From thread-value layouts to memory accesses: coalesced layouts for copies, vectors for per-thread instructions, and the
//! rows that a matrix instruction's lanes address.
//!
//! The constraint of a copy (Hexcute, Fig. 19 a) is `f∘p⁻¹ = g∘q⁻¹`, with `g` the layout of the register tensor, `q` the
//! instruction's layout on the register side and `p` the one on the memory side. Given `g` it is solved for `f = g∘q⁻¹∘p`: which
//! coordinates the pointers of the threads name. What is left to ask is that memory has each pointer's elements in one
//! contiguous, aligned run.

use std::collections::BTreeSet;

use tilewright_layout::{Layout, compose};
use tilewright_machine::{CopyKind, CopyRow, Memory};
use tilewright_tile::core::{Program, StmtKind, TileRef};
use tilewright_tile::{GlobalTile, TensorId};

use crate::divisibility::{Divisibility, gcd};
use crate::reject::Reject;
use crate::tv::{Access, Call, TvLayout, flat};

/// For each mode of the buffer, the layout tile coordinate → coordinate in that mode (relative to the tile's base).
pub fn buffer_layouts(tile: &GlobalTile) -> Option<Vec<Layout>> {
    (0..tile.shape.len())
        .map(|dim| {
            let leaves: Vec<(i64, i64)> = tile
                .modes
                .iter()
                .flatten()
                .map(|(extent, d, scale)| (*extent, if *d as usize == dim { *scale } else { 0 }))
                .collect();
            Layout::from_leaves(&leaves).ok()
        })
        .collect()
}

/// The buffer's mode whose stride is the literal 1, if there is one.
pub fn contiguous_mode(tile: &GlobalTile) -> Option<usize> {
    // The last of several wins: a mode of extent 1 in front of it may have stride 1 too.
    tile.strides.iter().rposition(|s| s.as_int() == Some(1))
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

/// Whether `n` contiguous elements of the buffer at a tile coordinate that is a multiple of `n` are aligned to their
/// size and lie wholly inside or wholly outside; if not, why.
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
    for (dim, stride) in tile.strides.iter().enumerate() {
        if dim != mode && !divisibility.is_multiple(stride, n) {
            return Err(Reject::StrideUnaligned(dim, n));
        }
    }
    let extent = extents(tile)[mode];
    if !divisibility.is_multiple(&tile.shape[mode], n) && !divisibility.stays_inside(tile, mode, extent) {
        return Err(Reject::ExtentUnaligned(mode, n));
    }
    Ok(())
}

/// A mode of a tile, or a leaf of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leaf {
    extent: i64,
    /// Stride in the tile's linear coordinate.
    stride: i64,
    /// Steps in its mode of the buffer.
    scale: i64,
    /// Whether it is part of the chain.
    chained: bool,
}

/// The leaves of a tile by where they lie in memory. First come those that continue each other there, the chain: along the
/// buffer's contiguous mode, each leaf's step the product of the extents before it, so that together they are a run of
/// neighbours. The others follow, those that lie closest in memory first, as far as that is known.
fn leaves_by_memory(tile: &TileRef) -> Vec<Leaf> {
    let Some(global) = &tile.global else {
        let n = tile.shape.len();
        let mut stride = 1;
        let mut leaves: Vec<Leaf> = Vec::new();
        for (i, extent) in tile.shape.iter().enumerate() {
            leaves.push(Leaf { extent: *extent, stride, scale: 1, chained: i + 1 == n });
            stride *= extent;
        }
        leaves.reverse();
        return leaves;
    };
    let contiguous = contiguous_mode(global);
    let last = global.shape.len();
    let mut stride = 1;
    let mut leaves = Vec::new();
    for (extent, dim, scale) in global.modes.iter().flatten() {
        // Row-major buffers: later modes lie closer; column-major ones the other way round.
        let distance = if contiguous == Some(0) && last > 1 { *dim as usize } else { last - *dim as usize };
        let leaf = Leaf { extent: *extent, stride, scale: *scale, chained: false };
        leaves.push((Some(*dim as usize) == contiguous, distance, leaf));
        stride *= extent;
    }
    let mut next = 1;
    while let Some((_, _, leaf)) = leaves
        .iter_mut()
        .find(|(along, _, leaf)| *along && !leaf.chained && leaf.extent > 1 && leaf.scale == next)
    {
        leaf.chained = true;
        next *= leaf.extent;
    }
    leaves.sort_by_key(|(_, distance, leaf)| {
        (!leaf.chained, if leaf.chained { 0 } else { *distance }, leaf.scale)
    });
    leaves.into_iter().map(|(_, _, leaf)| leaf).collect()
}

/// How many steps of each leaf a vector of `n` neighbours takes: all of the first ones of the chain, a part of the next.
/// `None` where the chain is too short, or has no such part.
fn taken(leaves: &[Leaf], n: i64) -> Option<Vec<i64>> {
    let mut left = n;
    let steps = leaves
        .iter()
        .map(|leaf| {
            let all = leaf.chained && left % leaf.extent == 0;
            let part = leaf.chained && leaf.extent % left == 0;
            let steps = if all {
                leaf.extent
            } else if part {
                left
            } else {
                1
            };
            // What a leaf in the middle does not divide ends the vector.
            if left > 1 && steps == 1 && leaf.extent > 1 {
                return None;
            }
            left /= steps;
            Some(steps)
        })
        .collect::<Option<Vec<i64>>>()?;
    (left == 1).then_some(steps)
}

/// Whether vectors of `n` neighbours of a global tile start at multiples of `n` wherever the leaves that they do not take lead
/// them; if not, why.
fn leaves_fit(tile: &TileRef, n: i64) -> Result<(), Reject> {
    let Some(global) = &tile.global else { return Ok(()) };
    let (Some(mode), leaves) = (contiguous_mode(global), leaves_by_memory(tile)) else { return Ok(()) };
    let steps = taken(&leaves, n).ok_or(Reject::NoRun(n))?;
    // What is left of a leaf that a vector takes a part of goes on where the vector ends.
    let own: Vec<i64> = leaves.iter().zip(&steps).filter(|(_, s)| **s > 1).map(|(l, _)| l.stride).collect();
    let mut stride = 1;
    for (extent, dim, scale) in global.modes.iter().flatten() {
        let walks = *dim as usize == mode && *extent > 1 && !own.contains(&stride);
        if walks && scale % n != 0 {
            return Err(Reject::StepsUnaligned(mode, n));
        }
        stride *= extent;
    }
    Ok(())
}

/// The elements of a vector that a thread should hold of a tile: as many as [`widest_access`] finds, but never a part of a
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
    let whole = taken(&leaves_by_memory(tile), byte).is_some();
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
                StmtKind::Copy { src, dst } => vec![src.tensor, dst.tensor],
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
    let leaves = leaves_by_memory(tile);
    if leaves.first().is_none_or(|leaf| !leaf.chained) {
        return (1, Some(Reject::TileNotContiguous));
    }
    let run: i64 = leaves.iter().filter(|leaf| leaf.chained).map(|leaf| leaf.extent).product();
    let total: i64 = tile.shape.iter().product();
    let mut n = i64::from((max_bytes * 8 / bits).max(1));
    let mut why = None;
    while n > 1 {
        let reason = if run % n != 0 {
            Some(Reject::RunUneven(run, n))
        } else if taken(&leaves, n).is_none() {
            Some(Reject::LeavesUneven(n))
        } else if total / n < threads && n * i64::from(bits) > 32 {
            Some(Reject::IdleThreads(n, threads))
        } else if let Some(global) = &tile.global {
            contiguous_mode(global).and_then(|mode| {
                vector_fits(divisibility, global, mode, n).and_then(|()| leaves_fit(tile, n)).err()
            })
        } else {
            None
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

/// A thread-value layout in which consecutive threads hold consecutive vectors of `n` elements in memory. The values of a
/// thread begin with a vector, in memory's order, whatever leaves of a view it is made of.
pub fn coalesced(tile: &TileRef, threads: i64, n: i64) -> Option<TvLayout> {
    let mut available = threads;
    let leaves = leaves_by_memory(tile);
    let steps = taken(&leaves, n)?;
    let (mut thread_leaves, mut value_leaves) = (Vec::new(), Vec::new());
    value_leaves
        .extend(leaves.iter().zip(&steps).filter(|(_, n)| **n > 1).map(|(leaf, n)| (*n, leaf.stride)));
    for (leaf, n) in leaves.iter().zip(steps) {
        let units = leaf.extent / n;
        let along = gcd(units, available);
        thread_leaves.push((along, leaf.stride * n));
        value_leaves.push((units / along, leaf.stride * n * along));
        available /= along;
    }
    thread_leaves.push((available, 0));
    TvLayout::new(flat(&thread_leaves).ok()?, flat(&value_leaves).ok()?).ok()
}

/// Whether some threads hold the same elements as others.
pub fn is_broadcast(threads: &Layout) -> bool {
    threads.leaves().iter().any(|(extent, stride)| *extent > 1 && *stride == 0)
}

/// Whether `layout(thread + offset) = layout(thread) + layout(offset)` for all threads of a mode and all offsets: no digit of a
/// coordinate is carried from one leaf of the layout into the next. Without odd factors that always holds.
pub fn adds(layout: &Layout, threads: &Layout, offsets: impl Iterator<Item = i64> + Clone) -> bool {
    let leaves = join_leaves(Vec::new(), layout.leaves());
    let mut below = 1;
    leaves.iter().rev().skip(1).rev().all(|(extent, _)| {
        below *= extent;
        let thread = threads.image().into_iter().map(|t| t % below).max().unwrap_or(0);
        let offset = offsets.clone().map(|c| c % below).max().unwrap_or(0);
        thread + offset < below
    })
}

/// Whether the values of a vector fill registers, or an aligned part of one, in order.
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
    let bits = tile.dtype.bits();
    let dims = buffer_layouts(global).ok_or(Reject::TooLarge)?;
    let composed: Vec<Layout> = dims
        .iter()
        .map(|d| compose(d, tv.layout()))
        .collect::<Result<_, _>>()
        .map_err(Reject::BufferModes)?;
    let offsets = (0..tv.count() as i64).map(|v| tv.value_offset(v));
    if !dims.iter().all(|layout| adds(layout, tv.threads(), offsets.clone())) {
        return Err(Reject::ViewLeaves);
    }
    let values: Vec<Layout> = composed.iter().map(|l| l.mode(1)).collect::<Result<_, _>>()?;
    let mut order: Vec<(Vec<i64>, u32)> =
        (0..tv.count() as i64).map(|v| (values.iter().map(|l| l.eval(v)).collect(), v as u32)).collect();
    let mode = contiguous_mode(global);
    if n > 1 {
        let mode = mode.ok_or(Reject::BufferNotContiguous)?;
        vector_fits(divisibility, global, mode, n)?;
        let threads = composed[mode].mode(0)?;
        if threads.leaves().iter().any(|(extent, stride)| *extent > 1 && stride % n != 0) {
            return Err(Reject::ThreadsUnaligned(n));
        }
        order.sort_by_key(|(c, v)| {
            let mut key = c.clone();
            let along = key.remove(mode);
            key.push(along);
            (key, *v)
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

/// A run of coordinates that an instruction wants contiguous in memory: (extent, stride in tile coordinates), leftmost
/// at consecutive addresses.
pub type Run = Vec<(i64, i64)>;

/// The calls of `row` between the registers of `tv` and a shared tile of elements of `bits`, with the run of coordinates that
/// memory must have contiguous and aligned; or why there are none.
pub fn shared_access(tv: &TvLayout, bits: u32, row: &CopyRow) -> Result<(Access, Run), Reject> {
    match row.kind {
        CopyKind::Matrix { count, trans } => matrix_access(tv, bits, count as usize, trans),
        CopyKind::PerThread => {
            if row.bytes * 8 < bits {
                return Err(Reject::NarrowerThanElement);
            }
            let n = i64::from(row.bytes * 8 / bits);
            vector_run(tv, n)
        }
        CopyKind::Async => Err(Reject::WithoutRegisters),
    }
}

/// Per-thread accesses of `n` values at a time, in the order of the values.
pub fn vector_run(tv: &TvLayout, n: i64) -> Result<(Access, Run), Reject> {
    let count = tv.count() as i64;
    if count % n != 0 {
        return Err(Reject::CountUneven(count, n));
    }
    let mut run = Run::new();
    let mut left = n;
    for (extent, stride) in tv.values().leaves() {
        if left == 1 {
            break;
        }
        let take = gcd(extent, left);
        if stride == 0 || (take != extent && take != left) {
            return Err(Reject::ValuesApart(n));
        }
        match run.last_mut() {
            Some((e, s)) if *s * *e == stride => *e *= take,
            _ => run.push((take, stride)),
        }
        left /= take;
    }
    if left != 1 {
        return Err(Reject::ValuesApart(n));
    }
    let calls = (0..count / n)
        .map(|i| Call {
            offset: tv.value_offset(i * n),
            values: (i * n..(i + 1) * n).map(|v| v as u32).collect(),
        })
        .collect();
    let access = Access {
        vector: n as u32,
        threads: tv.threads().clone(),
        calls,
        broadcast: is_broadcast(tv.threads()),
    };
    Ok((access, run))
}

/// Leaves that give `values[i]` for every i, from the lowest digit, if the values are sums over the bits of i; those that continue
/// each other are one leaf. The first value is 0, and there is a power of two of them.
fn leaves_of(values: &[i64]) -> Option<Vec<(i64, i64)>> {
    let linear = (0..values.len()).all(|i| {
        let bits = (0..values.len().ilog2()).filter(|b| i >> b & 1 == 1);
        values[i] == bits.map(|b| values[1 << b]).sum::<i64>()
    });
    let mut leaves: Vec<(i64, i64)> = Vec::new();
    for b in 0..values.len().ilog2() {
        let stride = values[1 << b];
        match leaves.last_mut() {
            Some((extent, first)) if *first * *extent == stride => *extent *= 2,
            _ => leaves.push((2, stride)),
        }
    }
    linear.then_some(leaves)
}

/// The rows that the lanes of `ldmatrix`/`stmatrix` address: `f = g∘q⁻¹∘p`, with each register of the fragment one matrix. The
/// instruction moves units of 16 bits and does not ask what they are: two elements of 8 bits or four of 4 bits, held by one
/// lane side by side, travel as one.
fn matrix_access(tv: &TvLayout, bits: u32, count: usize, trans: bool) -> Result<(Access, Run), Reject> {
    if bits > 16 || (trans && bits != 16) {
        return Err(Reject::UnitsOf16Bits);
    }
    if is_broadcast(tv.threads())
        && tv.threads().leaves().iter().take_while(|l| l.1 != 0).map(|l| l.0).product::<i64>() < 32
    {
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
    let lane = |l: i64| tv.thread_offset(l) - tv.thread_offset(0);
    let quads: Vec<i64> = (0..4).map(lane).collect();
    let rows: Vec<i64> = (0..8).map(|row| lane(4 * row)).collect();
    let additive = (0..32).all(|l| lane(l) == quads[l as usize % 4] + rows[l as usize / 4]);
    let leaves = (leaves_of(&inner), leaves_of(&quads), leaves_of(&rows));
    let (true, (Some(inner), Some(quads), Some(rows))) = (additive, leaves) else {
        return Err(Reject::NotMatrixRows);
    };
    // Rows are addressed one by one and may lie anywhere; what a row holds is the run.
    let (row_leaves, run) =
        if trans { (join_leaves(inner, quads), rows) } else { (rows, join_leaves(inner, quads)) };
    if run.iter().any(|leaf| leaf.1 == 0) {
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
    let mut threads = row_leaves;
    threads.push((count.min(2) as i64, s1));
    threads.push((count.div_ceil(2) as i64, s2));
    // Lanes whose addresses the instruction ignores repeat those of the first.
    threads.push((4 / count as i64, 0));
    let warps = tv.threads().size() / 32;
    if warps > 1 {
        let outer =
            compose(tv.threads(), &Layout::from_leaves(&[(warps, 32)])?).map_err(Reject::WarpsWithLanes)?;
        threads.extend(outer.leaves());
    }
    let kept: Vec<(i64, i64)> = threads.into_iter().filter(|(extent, _)| *extent > 1).collect();
    let threads = Layout::from_leaves(&kept)?;
    let vector = 128 / bits;
    Ok((Access { vector, threads, calls, broadcast: is_broadcast(tv.threads()) }, run))
}

/// Two lists of leaves as one, joined where the second continues the first.
fn join_leaves(mut first: Vec<(i64, i64)>, second: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    for (extent, stride) in second {
        match first.last_mut() {
            Some((e, s)) if *s * *e == stride => *e *= extent,
            _ => first.push((extent, stride)),
        }
    }
    first
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
                                    access.threads.eval(32 * warp + lane) + call.offset + e * run[0].1;
                                assert_eq!(actual, expected, "{} lane {lane} element {e}", row.name);
                            }
                        }
                    }
                }
            }
        }
    }
}
