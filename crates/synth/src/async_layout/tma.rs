//! Tensor copies: from where a tile lies in global memory and how it is laid out in shared memory to boxes that the tensor memory
//! accelerator moves.
//!
//! The layout of the shared tile, turned around, says which coordinate of the tile comes next in shared memory; the view says
//! along which mode of the buffer that is. What is contiguous in both, from the first element on, is the box; what is left is one copy
//! each.

use tilewright_layout::{HTuple, Layout, SwizzledLayout, compose, right_inverse};
use tilewright_machine::{
    BoxShape, CacheHint, DType, SwizzleMode, TensorOp, TensorRow, tensor_gather, tensor_row,
};
use tilewright_tile::core::TileRef;
use tilewright_tile::{Expr, GlobalTile, Peers};

use super::halves::{half_of_rows, second_half};
use super::pixels;
use crate::access::buffer_coordinates;
use crate::divisibility::Divisibility;
use crate::reject::TmaReject;
use crate::tv::TvLayout;

/// A copy of a box.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TmaCall {
    /// Added to the coordinates of the tile's first element, one a dimension of the box.
    pub coords: Vec<i64>,
    /// Bytes from the tile's first element in shared memory.
    pub shared: i64,
}

/// The halves of a tile of which each block of a pair has one, both at the same place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Halves {
    /// The dimension of the box along which they lie.
    pub dim: usize,
    /// Coordinates along it from the even block's half to the odd one's.
    pub step: i64,
}

/// The division of a copy among blocks of a cluster: each copies a part of the box to all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// The blocks.
    pub peers: Peers,
    /// The dimension of the box that is shared out.
    pub dim: usize,
    /// Coordinates along it from one block's part to the next's.
    pub step: i64,
    /// Bytes of shared memory from one block's part to the next's.
    pub bytes: i64,
}

/// The plan of a copy by the tensor memory accelerator. Of elements that share bytes its unit is a word of 32 bits where
/// places are multiples of that, so that a box's row is as long as can be, else a byte; of others an element.
#[derive(Clone, PartialEq, Debug)]
pub struct TmaPlan {
    /// The instruction.
    pub row: &'static TensorRow,
    /// The box, in units.
    pub shape: BoxShape,
    /// Elements of a unit, neighbours along the contiguous mode.
    pub per_unit: i64,
    /// The modes of the buffer, in the order of the box's dimensions.
    pub dims: Vec<u32>,
    /// Of a contiguous mode that has two dimensions of the map, the units of the first, a span of the swizzle; the second counts spans, and
    /// is the dimension besides the first with that mode.
    pub span: Option<i64>,
    /// One copy each.
    pub calls: Vec<TmaCall>,
    /// The halves of a pair's blocks, of which the box is a part of one.
    pub halves: Option<Halves>,
    /// The division among blocks.
    pub multicast: Option<Multicast>,
    /// The hint for the L2 cache.
    pub hint: Option<CacheHint>,
    /// The division of rows that are gathered among threads: the calls are those of one thread.
    pub gather: Option<Gather>,
}

/// Rows that are gathered, some by each of the first threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gather {
    /// Threads that hold rows, each as many as the instruction has. In a block that has a half of the tile those copy that hold its rows.
    pub threads: i64,
    /// Rows of a thread.
    pub rows: i64,
    /// Bytes of shared memory from one thread's rows to the next's.
    pub bytes: i64,
}

/// The indices that each of so many threads holds to gather rows: those of its own, of threads behind the last those of the first again; as coordinates of
/// the tile, whose first mode rows are. `None` where threads do not divide into such that gather.
pub fn gathered_indices(rows: i64, threads: i64) -> Option<TvLayout> {
    let at_once = i64::from(tensor_gather().boxes());
    let gathering = rows / at_once;
    if gathering == 0 || rows % at_once != 0 || threads % gathering != 0 {
        return None;
    }
    let shape = |of: Vec<i64>| HTuple::from_flat(of);
    let held = Layout::new(shape(vec![gathering, threads / gathering]), shape(vec![at_once, 0])).ok()?;
    TvLayout::new(held, Layout::new(shape(vec![at_once]), shape(vec![1])).ok()?).ok()
}

impl TmaPlan {
    /// The instruction with its box, as reports name it: `tma.load.2d of 64×128 (128-byte swizzle)`.
    pub fn name(&self) -> String {
        let extents: Vec<String> = self.shape.extents.iter().map(ToString::to_string).collect();
        let half = if self.halves.is_some() { ", a pair's half" } else { "" };
        let multicast =
            self.multicast.map_or(String::new(), |s| format!(", multicast to {}", s.peers.blocks));
        let steps: Vec<String> = self.shape.steps.iter().map(ToString::to_string).collect();
        let steps = if self.shape.skips() { format!(", steps {}", steps.join("×")) } else { String::new() };
        format!("{} of {} ({}{steps}{half}{multicast})", self.row.name, extents.join("×"), self.shape.swizzle)
    }

    /// Blocks that each copy some of the rows that threads gather.
    fn blocks_of_rows(&self) -> u64 {
        if self.halves.is_some() { 2 } else { 1 }
    }

    /// Bytes that land in a block's shared memory, or leave it.
    pub fn bytes(&self) -> u64 {
        let blocks = self.multicast.map_or(1, |share| u64::from(share.peers.blocks));
        let threads = self.gather.map_or(1, |gather| gather.threads as u64 / self.blocks_of_rows());
        self.shape.bytes() * u64::from(self.row.boxes()) * self.calls.len() as u64 * blocks * threads
    }
}

/// A run of the tile in shared memory: so many steps along a mode of the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    extent: i64,
    dim: u32,
    step: i64,
    /// Elements of shared memory from one to the next.
    apart: i64,
}

/// The contents of shared memory, from the first element on, as walks through the buffer.
pub(super) fn walks(layout: &Layout, tile: &TileRef, global: &GlobalTile) -> Result<Vec<Walk>, TmaReject> {
    let size: i64 = tile.shape.iter().product();
    let inverse = right_inverse(layout);
    let second = second_half(layout);
    if layout.size() != size || inverse.size() * if second.is_some() { 2 } else { 1 } != size {
        return Err(TmaReject::Gaps);
    }
    // Offset in shared memory → tile coordinate → coordinate in the buffer.
    let buffer = buffer_coordinates(global).ok_or(TmaReject::ModesCrossed)?;
    let buffer = compose(&buffer, &inverse).map_err(|_| TmaReject::ModesCrossed)?;
    let mut apart = 1;
    let mut found: Vec<Walk> = Vec::new();
    for (extent, step) in buffer.leaves().into_iter().filter(|(extent, _)| *extent > 1) {
        let [(basis, step)] = step.terms() else {
            return Err(TmaReject::ModesCrossed);
        };
        let (dim, step) = (basis.path()[0] as u32, *step);
        match found.last_mut() {
            // It goes on where the last one ends.
            Some(last) if last.dim == dim && last.step * last.extent == step => last.extent *= extent,
            _ => found.push(Walk { extent, dim, step, apart }),
        }
        apart *= extent;
    }
    Ok(found)
}

/// The step from the half of one block of a pair to that of the other, where a tile has halves.
pub(super) fn between_halves(layout: &Layout, global: &GlobalTile) -> Result<Option<Walk>, TmaReject> {
    let Some(at) = second_half(layout) else { return Ok(None) };
    let step = Layout::from_leaves(&[(2, at)]).map_err(|_| TmaReject::ModesCrossed)?;
    let buffer = buffer_coordinates(global).ok_or(TmaReject::ModesCrossed)?;
    let step = compose(&buffer, &step).map_err(|_| TmaReject::ModesCrossed)?;
    match &step.leaves()[..] {
        [(2, step)] => match step.terms() {
            [(basis, step)] => {
                Ok(Some(Walk { extent: 2, dim: basis.path()[0] as u32, step: *step, apart: 0 }))
            }
            _ => Err(TmaReject::ModesCrossed),
        },
        _ => Err(TmaReject::ModesCrossed),
    }
}

/// Walks over two dimensions of the contiguous mode, where shared memory has more of it in a row than a swizzle spans: one of so many
/// units, and one, numbered `outer`, of such spans. `None` where spans are not the steps of all walks.
fn in_spans(walks: &[Walk], contiguous: u32, outer: u32, span: i64) -> Option<Vec<Walk>> {
    let (first, others) = walks.split_first()?;
    if first.dim != contiguous || first.step != 1 || first.extent <= span || first.extent % span != 0 {
        return None;
    }
    let mut found = vec![
        Walk { extent: span, ..*first },
        Walk { extent: first.extent / span, dim: outer, step: 1, apart: first.apart * span },
    ];
    for walk in others {
        found.push(match walk.dim == contiguous {
            true if walk.step % span == 0 => Walk { dim: outer, step: walk.step / span, ..*walk },
            true => return None,
            false => *walk,
        });
    }
    Some(found)
}

/// Walks over units of so many elements, neighbours along the contiguous mode and in shared memory.
fn in_units(walks: Vec<Walk>, contiguous: u32, per_unit: i64) -> Result<Vec<Walk>, TmaReject> {
    if per_unit == 1 {
        return Ok(walks);
    }
    let within = TmaReject::WithinByte(contiguous as usize, per_unit);
    let mut units = Vec::new();
    for (i, mut walk) in walks.into_iter().enumerate() {
        let along = walk.dim == contiguous;
        let divides = |x: i64| if x % per_unit == 0 { Ok(x / per_unit) } else { Err(within.clone()) };
        if i == 0 {
            if !along || walk.step != 1 {
                return Err(within);
            }
            walk.extent = divides(walk.extent)?;
        } else {
            walk.apart = divides(walk.apart)?;
            walk.step = if along { divides(walk.step)? } else { walk.step };
        }
        units.push(walk);
    }
    Ok(units)
}

/// A tile in shared memory.
pub struct SharedTile {
    /// The tile's coordinate → offset in elements from where it begins.
    pub layout: SwizzledLayout,
    /// Numbers of elements of which sums are where the tile begins in its tensor.
    pub begins: Vec<i64>,
}

impl SharedTile {
    /// Checks that the tile begins at a multiple of so many bytes, wherever in its tensor it lies.
    ///
    /// # Errors
    ///
    /// The place where it can begin instead.
    pub fn begins_at(&self, multiple: u32, bits: u32) -> Result<(), TmaReject> {
        let bytes = |elements: &i64| elements * i64::from(bits) / 8;
        match self.begins.iter().map(bytes).find(|begin| begin % i64::from(multiple) != 0) {
            Some(begin) => Err(TmaReject::BeginsWithin(begin, multiple)),
            None => Ok(()),
        }
    }

    /// The swizzle of a tensor map that stores elements of so many bits as the layout does.
    ///
    /// # Errors
    ///
    /// The layout's swizzle, which tensor maps do not have.
    pub(super) fn swizzle(&self, bits: u32) -> Result<SwizzleMode, TmaReject> {
        let swizzle = self.layout.swizzle;
        SwizzleMode::of(&swizzle, bits).ok_or(TmaReject::Swizzle(swizzle))
    }
}

/// Checks that a view ends where its buffer does, as a tensor map's extents are the buffer's.
///
/// # Errors
///
/// The first mode that ends elsewhere.
pub(super) fn ends_with_buffer(
    divisibility: &Divisibility<'_>,
    global: &GlobalTile,
) -> Result<(), TmaReject> {
    let buffer = divisibility.program().buffer_shape(global.param);
    match buffer.iter().zip(&global.shape).position(|(whole, seen)| whole != seen) {
        Some(dim) => Err(TmaReject::ViewEnds(dim)),
        None => Ok(()),
    }
}

/// The copy of a tile between a view and a shared tile, by tensor copies. `peers`: the blocks of the cluster that share it, if any do.
///
/// # Errors
///
/// The reason why tensor copies cannot do it.
pub fn plan(
    divisibility: &Divisibility<'_>,
    op: TensorOp,
    tile: &TileRef,
    shared: &SharedTile,
    peers: Option<Peers>,
    hint: Option<CacheHint>,
) -> Result<TmaPlan, TmaReject> {
    if tile.global.as_ref().is_some_and(|global| global.folded.is_some()) {
        return pixels::plan(divisibility, op, tile, shared, peers, hint);
    }
    if tile.indexed.is_some() {
        return gather(divisibility, op, tile, shared, peers, hint);
    }
    if tile.dtype.per_byte() == 1 {
        return plan_in(tile.dtype, divisibility, op, tile, shared, peers, hint);
    }
    if op == TensorOp::Add {
        return Err(TmaReject::SubByteSum(tile.dtype));
    }
    let plan = |unit| plan_in(unit, divisibility, op, tile, shared, peers, hint);
    plan(DType::I32).or_else(|_| plan(DType::U8))
}

/// A copy of rows from places of their own, some by each thread.
fn gather(
    divisibility: &Divisibility<'_>,
    op: TensorOp,
    tile: &TileRef,
    shared: &SharedTile,
    peers: Option<Peers>,
    hint: Option<CacheHint>,
) -> Result<TmaPlan, TmaReject> {
    let (Some(global), Some(indexed)) = (&tile.global, &tile.indexed) else {
        return Err(TmaReject::NotAView);
    };
    let (row, bits) = (tensor_gather(), i64::from(tile.dtype.bits()));
    let at_once = i64::from(row.boxes());
    let Some((along, 1)) =
        global.indexed.filter(|_| op == TensorOp::Load && peers.is_none() && !global.array)
    else {
        return Err(TmaReject::Gathered);
    };
    let [rows, columns] = tile.shape[..] else { return Err(TmaReject::Gathered) };
    let (along, inner) = (along as usize, 1 - (along as usize).min(1));
    let threads = rows / at_once;
    let matrix = global.strides.len() == 2 && tile.dtype.per_byte() == 1;
    // An index behind the mode's end is one behind the buffer's.
    let whole = global.shape.get(along) == Some(&indexed.extent);
    if indexed.at != 0 || !matrix || !whole || rows % at_once != 0 {
        return Err(TmaReject::Gathered);
    }
    ends_with_buffer(divisibility, global)?;
    if global.strides[inner].as_int() != Some(1) {
        return Err(TmaReject::BufferNotContiguous);
    }
    let multiple = 16 * 8 / bits;
    if !divisibility.is_multiple(&global.strides[along], multiple) {
        return Err(TmaReject::StepsUnaligned(along, multiple));
    }
    if !divisibility.is_multiple(&global.base[inner], multiple) {
        return Err(TmaReject::BeginsUnaligned(inner, multiple));
    }
    // The columns of a tile are neighbours in the buffer.
    if global.base[along] != Expr::Int(0)
        || global.modes.get(1).is_none_or(|of| of[..] != [(columns, inner as u32, 1)])
    {
        return Err(TmaReject::ModesCrossed);
    }
    let swizzle = shared.swizzle(tile.dtype.bits())?;
    let width = if swizzle == SwizzleMode::None { columns } else { i64::from(swizzle.span()) * 8 / bits };
    if width > columns || columns % width != 0 {
        return Err(TmaReject::ModesCrossed);
    }
    // Rows of a thread lie behind each other, and so do those of neighbouring threads of a block.
    let whole = &shared.layout.layout;
    let halved = second_half(whole).is_some();
    let half =
        halved.then(|| half_of_rows(whole, rows, columns).ok_or(TmaReject::ModesCrossed)).transpose()?;
    let layout = half.as_ref().unwrap_or(whole);
    let held = if halved { rows / 2 } else { rows };
    let place = |r: i64, c: i64| layout.eval(r + held * c);
    let follows = |r: i64, c: i64| place(r, c) == place(0, c / width * width) + r * width + c % width;
    let whole_threads = held % at_once == 0 && layout.size() == held * columns;
    if !whole_threads || !(0..held).all(|r| (0..columns).all(|c| follows(r, c))) {
        return Err(TmaReject::ModesCrossed);
    }
    let shape = BoxShape::dense(tile.dtype, vec![width as u32, 1], swizzle);
    shape.check()?;
    let bytes = bits / 8;
    let group = Gather { threads, rows: at_once, bytes: at_once * width * bytes };
    if group.bytes % GATHER_ALIGN != 0 {
        return Err(TmaReject::BoxBeginsWithin(group.bytes, GATHER_ALIGN as u32));
    }
    let call = |i: i64| TmaCall { coords: vec![i * width, 0], shared: place(0, i * width) * bytes };
    let calls: Vec<TmaCall> = (0..columns / width).map(call).collect();
    shared.begins_at(swizzle.period(), tile.dtype.bits())?;
    let dims = vec![inner as u32, along as u32];
    Ok(TmaPlan {
        row,
        shape,
        per_unit: 1,
        dims,
        span: None,
        calls,
        halves: halved.then_some(Halves { dim: 1, step: held }),
        multicast: None,
        hint,
        gather: Some(group),
    })
}

/// [`plan`] in units of a type that tensor maps have.
fn plan_in(
    unit: DType,
    divisibility: &Divisibility<'_>,
    op: TensorOp,
    tile: &TileRef,
    shared: &SharedTile,
    peers: Option<Peers>,
    hint: Option<CacheHint>,
) -> Result<TmaPlan, TmaReject> {
    let Some(global) = &tile.global else { return Err(TmaReject::NotAView) };
    let bits = tile.dtype.bits();
    let per_unit = i64::from(unit.bits() / bits);
    let bytes = i64::from(unit.bits() / 8);
    let layout = &shared.layout;
    let swizzle = shared.swizzle(bits)?;
    ends_with_buffer(divisibility, global)?;
    // The map is of the modes in memory: of an array of tensors each has one of its own.
    let modes = global.modes_in_memory();
    let (first, rank) = (modes.start, modes.len());
    if rank > 5 {
        return Err(TmaReject::Rank(rank));
    }
    // Boxes that are read may begin ahead of the tensor. An H100 takes one that is written at such coordinates for an illegal instruction.
    let ahead = |dim: &usize| divisibility.begins_ahead(&global.base[*dim]);
    if let Some(dim) = modes.clone().find(ahead).filter(|_| op != TensorOp::Load) {
        return Err(TmaReject::BeginsAhead(dim));
    }
    let inner = modes.clone().find(|dim| global.strides[*dim].as_int() == Some(1));
    let inner = inner.ok_or(TmaReject::BufferNotContiguous)?;
    let contiguous = (inner - first) as u32;
    for dim in modes.filter(|dim| *dim != inner) {
        let multiple = 16 * 8 / i64::from(bits);
        if !divisibility.is_multiple(&global.strides[dim], multiple) {
            return Err(TmaReject::StepsUnaligned(dim, multiple));
        }
    }
    // H100 and H200 take other boxes for illegal instructions (bench/litmus/tensor_load_within.cu).
    let multiple = 16 * 8 / i64::from(bits);
    if !divisibility.is_multiple(&global.base[inner], multiple) {
        return Err(TmaReject::BeginsUnaligned(inner, multiple));
    }
    let ends = [&global.base[inner], &global.shape[inner]];
    if !ends.iter().all(|end| divisibility.is_multiple(end, per_unit)) {
        return Err(TmaReject::WithinByte(inner, per_unit));
    }
    let row_limit = if swizzle == SwizzleMode::None { MAX_EXTENT } else { i64::from(swizzle.span()) / bytes };
    let mut walks = walks(&layout.layout, tile, global)?;
    // Behind the others, so that it changes with them.
    let halved = between_halves(&layout.layout, global)?;
    walks.extend(halved);
    let walks = walks.into_iter().map(|walk| Walk { dim: walk.dim - first as u32, ..walk }).collect();
    let walks = in_units(walks, contiguous, per_unit)?;
    let spans = || {
        let whole = |end: &&Expr| divisibility.is_multiple(end, row_limit * per_unit);
        let splits = swizzle != SwizzleMode::None && rank < 5 && ends.iter().all(whole);
        splits.then(|| in_spans(&walks, contiguous, rank as u32, row_limit)).flatten()
    };
    let spans = spans();
    let span = spans.is_some().then_some(row_limit);
    let rank = rank + usize::from(span.is_some());
    let most_step = if op == TensorOp::Load { MOST_STEP } else { 1 };
    let mut walks = spans.unwrap_or(walks);
    let second = if halved.is_some() { walks.pop() } else { None };
    let mut folded = Folded::new(contiguous, rank, [row_limit, most_step], walks);
    let halves = second.map(|second| folded.halves(second)).transpose()?;
    let period = i64::from(swizzle.period());
    let multicast = peers.map(|peers| folded.share_out(peers, bytes, period)).transpose()?;
    let extents = folded.extents.iter().map(|e| *e as u32).collect();
    let steps = folded.steps.iter().map(|s| *s as u32).collect();
    let shape = BoxShape { dtype: unit, extents, steps, swizzle, corners: None };
    shape.check()?;
    let calls = folded.calls(bytes)?;
    if let Some(call) = calls.iter().find(|c| c.shared % i64::from(swizzle.period()) != 0) {
        return Err(TmaReject::BoxBeginsWithin(call.shared, swizzle.period()));
    }
    shared.begins_at(swizzle.period(), bits)?;
    let row = tensor_row(op, rank as u32).ok_or(TmaReject::NoRow)?;
    let spans_of = global.strides.len() - first;
    let mode = |dim: u32| first as u32 + if dim as usize == spans_of { contiguous } else { dim };
    let dims = folded.dims.into_iter().map(mode).collect();
    Ok(TmaPlan { row, shape, per_unit, dims, span, calls, halves, multicast, hint, gather: None })
}

/// The walks of a tile folded into a box, and those that are left.
pub(super) struct Folded {
    /// The modes of the buffer, in the order of the box's dimensions.
    dims: Vec<u32>,
    pub(super) extents: Vec<i64>,
    /// Steps of the buffer from one element to the next, one a dimension.
    steps: Vec<i64>,
    rest: Vec<Walk>,
}

impl Folded {
    /// The largest box that begins at the tile's first element: dimension 0 is the contiguous mode, at most `row_limit` long. Others may step
    /// over elements of the buffer, at most `most_step`.
    fn new(contiguous: u32, rank: usize, [row_limit, most_step]: [i64; 2], walks: Vec<Walk>) -> Self {
        let (mut dims, mut extents, mut steps, mut rest) =
            (vec![contiguous], vec![1i64], vec![1i64], Vec::new());
        let mut last = 0;
        for mut walk in walks {
            let at = dims.iter().position(|d| *d == walk.dim);
            // A walk continues the last dimension of the box, or begins one.
            let dimension = match at {
                _ if !rest.is_empty() => None,
                Some(at) if at == last && walk.step == extents[at] * steps[at] => Some(at),
                None if (1..=most_step).contains(&walk.step) && extents[last] > 1 => {
                    dims.push(walk.dim);
                    extents.push(1);
                    steps.push(walk.step);
                    Some(dims.len() - 1)
                }
                _ => None,
            };
            if let Some(at) = dimension {
                let limit = if walk.dim == contiguous { row_limit.min(MAX_EXTENT) } else { MAX_EXTENT };
                let room = (limit / (extents[at] * steps[at])).min(walk.extent);
                let inside = (1..=room).rev().find(|n| walk.extent % n == 0).unwrap_or(1);
                extents[at] *= inside;
                last = at;
                walk.extent /= inside;
                walk.step *= inside;
                walk.apart *= inside;
            }
            if walk.extent > 1 {
                rest.push(walk);
            }
        }
        for (step, _) in steps.iter_mut().zip(&extents).filter(|(_, extent)| **extent == 1) {
            *step = 1;
        }
        let missing: Vec<u32> = (0..rank as u32).filter(|dim| !dims.contains(dim)).collect();
        extents.resize(extents.len() + missing.len(), 1);
        steps.resize(extents.len(), 1);
        dims.extend(missing);
        Folded { dims, extents, steps, rest }
    }

    /// The walks of a tile of pixels: channels and pixels are in the box, as far as these limits, and what is left leads along all dimensions.
    pub(super) fn of_pixels(dims: Vec<u32>, limits: [i64; 2], walks: Vec<Walk>) -> Self {
        let (mut extents, mut rest) = (vec![1; dims.len()], Vec::new());
        let mut at = 0;
        for mut walk in walks {
            // Channels come first, neighbours; behind them pixels.
            while at < 2 && walk.dim != dims[at] {
                at += 1;
            }
            if at < 2 && walk.step == extents[at] && rest.is_empty() {
                let room = (limits[at] / extents[at]).min(walk.extent);
                let inside = (1..=room).rev().find(|n| walk.extent % n == 0).unwrap_or(1);
                extents[at] *= inside;
                walk.extent /= inside;
                walk.step *= inside;
                walk.apart *= inside;
            }
            if walk.extent > 1 {
                rest.push(walk);
            }
        }
        let steps = vec![1; dims.len()];
        Folded { dims, extents, steps, rest }
    }

    /// Shares the box out among blocks of a cluster. Of the dimensions but the first the outermost with an extent is divided: its
    /// parts lie one after the other.
    pub(super) fn share_out(
        &mut self,
        peers: Peers,
        bytes: i64,
        period: i64,
    ) -> Result<Multicast, TmaReject> {
        let dim = (1..self.extents.len()).rev().find(|d| self.extents[*d] > 1).ok_or(TmaReject::SingleRow)?;
        let blocks = i64::from(peers.blocks);
        if self.extents[dim] % blocks != 0 {
            return Err(TmaReject::RowsUneven(self.extents[dim], peers.blocks));
        }
        self.extents[dim] /= blocks;
        let part: i64 = self.extents.iter().product::<i64>() * bytes;
        if part % period != 0 {
            return Err(TmaReject::PartUneven(part, period as u32));
        }
        Ok(Multicast { peers, dim, step: self.extents[dim] * self.steps[dim], bytes: part })
    }

    /// The halves of which each block of a pair copies its own.
    pub(super) fn halves(&self, second: Walk) -> Result<Halves, TmaReject> {
        let dim = self.dims.iter().position(|dim| *dim == second.dim).ok_or(TmaReject::MissingMode)?;
        Ok(Halves { dim, step: second.step })
    }

    /// One copy for each step of the walks that are left.
    pub(super) fn calls(&self, bytes: i64) -> Result<Vec<TmaCall>, TmaReject> {
        let mut calls = vec![TmaCall { coords: vec![0; self.dims.len()], shared: 0 }];
        for walk in &self.rest {
            let dim = self.dims.iter().position(|d| *d == walk.dim).ok_or(TmaReject::MissingMode)?;
            let step = |i: i64, call: &TmaCall| {
                let mut call = call.clone();
                call.coords[dim] += i * walk.step;
                call.shared += i * walk.apart * bytes;
                call
            };
            calls = (0..walk.extent).flat_map(|i| calls.iter().map(move |call| step(i, call))).collect();
        }
        if calls.len() > MAX_CALLS { Err(TmaReject::TooMany(calls.len())) } else { Ok(calls) }
    }
}

/// The alignment in shared memory of rows that are gathered (PTX ISA 8.6, `cp.async.bulk.tensor`).
const GATHER_ALIGN: i64 = 128;
/// Elements of a box along one dimension, at most.
const MAX_EXTENT: i64 = 256;
/// Steps of the buffer from one element of a box to the next, at most.
const MOST_STEP: i64 = tilewright_machine::MOST_STEP as i64;
/// Tensor copies for one statement, at most.
const MAX_CALLS: usize = 64;
