//! Reductions along a mode: within threads, then lanes by butterflies, then warps through shared memory. Copies of an
//! element take no part twice, and only one of those who hold a partial result stores it (Linear Layouts, section 5.1
//! and table 4).

use tilewright_layout::{Dim, HTuple, Layout, LinearLayout, Split, compose, nullspace};
use tilewright_machine::{Class, Timing};

use crate::linear::{Bits, LANES};
use crate::movement::{Between, Movement, Trip, halves, movement, trip};
use crate::reject::{LanesAlone, Reject};
use crate::shapes;
use crate::tv::TvLayout;

/// The plan of a `reduce`.
#[derive(Clone, PartialEq, Debug)]
pub struct ReducePlan {
    /// For each value of a thread's partial result the values of the operand that it combines.
    pub local: Vec<Vec<u32>>,
    /// Distances of the lanes that exchange partial results.
    pub lanes: Vec<u32>,
    /// The exchange between warps: each stores its partial results, each loads those of all, the parts of one result in
    /// consecutive registers.
    pub warps: Option<Box<Trip>>,
    /// From the layout in which the result arises to that of the result's tensor.
    pub last: Movement,
}

impl ReducePlan {
    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        self.warps.as_ref().map_or(0, |t| t.bytes).max(self.last.shared_bytes())
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let combine = halves(timing.cost(Class::MinF32));
        let combined: usize = self.local.iter().map(|v| v.len().saturating_sub(1)).sum();
        let rounds = self.lanes.len() as u32 * self.local.len() as u32;
        combined as u32 * combine
            + rounds * (halves(timing.cost(Class::Shuffle)) + combine)
            + self.warps.as_ref().map_or(0, |t| t.cycles(timing))
            + self.last.cycles(timing)
    }

    /// Instructions of one thread that access shared memory.
    pub fn shared_instructions(&self) -> u32 {
        self.warps.as_ref().map_or(0, |t| t.calls())
            + if let Movement::Shared(t) = &self.last { t.calls() } else { 0 }
    }
}

/// The layout in which the result of a reduction arises: that of the operand without the mode.
pub fn arises(src: &TvLayout, shape: &[i64], axis: u32) -> Option<TvLayout> {
    shapes::seen(src, &shapes::without(axis, shape)?)
}

/// Plans a reduction of a tensor of `shape` along `axis` into one of `result` shape.
///
/// # Errors
///
/// The reason why the distribution of the operand does not allow it.
pub fn reduce(
    src: &TvLayout,
    dst: &TvLayout,
    (shape, result): (&[i64], &[i64]),
    axis: u32,
    (threads, bits): (i64, u32),
    timing: &Timing,
) -> Result<ReducePlan, Reject> {
    let map = shapes::without(axis, shape).ok_or(Reject::TooLarge)?;
    let partial = arises(src, shape, axis).ok_or(Reject::ModeStays)?;
    let count = partial.count() as i64;
    let mut local = vec![Vec::new(); count as usize];
    for s in 0..src.count() as i64 {
        let place = map.eval(src.at(0, s)) - partial.at(0, 0);
        let found = (0..count).find(|v| partial.at(0, *v) - partial.at(0, 0) == place);
        local[found.ok_or(Reject::NoPlace)? as usize].push(s as u32);
    }
    let name = format!("dim{axis}");
    // Threads that hold different elements hold the same result: a thread mode walks along the reduced mode.
    let crosses = nullspace(partial.threads()) != nullspace(src.threads());
    let over_bits = Bits::new(src, shape);
    let (mut lanes, mut parts) = (Vec::new(), Vec::new());
    match over_bits {
        Ok(bits) => {
            let along = |input: &str| bits.linear().part(input, &name);
            let others = bits.linear().slice(&name)?;
            for (input, found) in [("lane", &mut lanes), ("warp", &mut parts)] {
                for (k, column) in along(input)?.into_iter().enumerate() {
                    if column != 0 && others.bases(input)[k] != 0 {
                        return Err(Reject::Diagonal(input));
                    }
                    if column != 0 {
                        found.push(k as u32);
                    }
                }
            }
        }
        Err(_) if !crosses => {}
        Err(e) => {
            lanes = lanes_alone(src, (shape, axis), &local)
                .map_err(|alone| Reject::NotBits(Box::new(e), alone))?;
        }
    }
    let warps = if parts.is_empty() {
        None
    } else {
        let bits = Bits::new(&partial, result)?;
        let (store, load) = across_warps(&bits, &parts)?;
        // Partial results have 32 bits.
        Some(Box::new(trip(&store, &load, 32, timing.arch)?))
    };
    let between = Between { from: &partial, to: dst, shape: result, threads, bits, timing };
    let (last, _) = movement(&between)?;
    Ok(ReducePlan { local, lanes: lanes.into_iter().map(|k| 1 << k).collect(), warps, last })
}

/// The bits of the lanes that walk along the mode, where no warp does: then it is no matter how many warps there are.
///
/// # Errors
///
/// The reason why lanes alone do not have the whole mode between them.
fn lanes_alone(
    src: &TvLayout,
    (shape, axis): (&[i64], u32),
    local: &[Vec<u32>],
) -> Result<Vec<u32>, LanesAlone> {
    let (axis, threads) = (axis as usize, src.threads());
    let unit: i64 = shape[..axis].iter().product();
    let digit = |coordinate: i64| coordinate / unit % shape[axis];
    let warps = Layout::new(HTuple::Leaf(threads.size() / LANES), HTuple::Leaf(LANES));
    let warps = warps.and_then(|warps| compose(threads, &warps))?;
    if (0..warps.size()).any(|warp| digit(warps.eval(warp)) != 0) {
        return Err(LanesAlone::Warps);
    }
    let lanes = compose(threads, &Layout::identity(LANES))?;
    let split = Split::new(&[("lane", &lanes)], &HTuple::from_flat(shape.to_vec()))?;
    let name = format!("dim{axis}");
    let others = split.linear.slice(&name)?;
    let along = split.linear.part("lane", &name)?;
    let mut found = Vec::new();
    for k in (0..along.len()).filter(|k| along[*k] != 0) {
        if others.bases("lane")[k] != 0 {
            return Err(LanesAlone::Diagonal);
        }
        found.push(k as u32);
    }
    // Each coordinate of the mode is one lane's and one value's.
    for values in local {
        let mut seen = vec![false; shape[axis] as usize];
        for value in values {
            for subset in 0..1i64 << found.len() {
                let lane: i64 = found.iter().enumerate().map(|(i, k)| (subset >> i & 1) << k).sum();
                let place = digit(src.value_offset(i64::from(*value))) + digit(lanes.eval(lane));
                match seen.get_mut(place as usize) {
                    Some(seen) if !*seen => *seen = true,
                    _ => return Err(LanesAlone::HeldTwice),
                }
            }
        }
        if seen.contains(&false) {
            return Err(LanesAlone::Incomplete);
        }
    }
    Ok(found)
}

/// The layouts of an exchange of partial results: both over the result's modes and a mode `part` that the warps `parts`
/// count; on the loading side every warp holds all parts, in its lowest registers.
fn across_warps(bits: &Bits, parts: &[u32]) -> Result<(Bits, Bits), tilewright_layout::LayoutError> {
    let linear = bits.linear();
    let above = linear.out_bits();
    let width = parts.len() as u32;
    let mut outs = linear.outs().to_vec();
    outs.push(Dim::new("part", width));
    let part = |k: usize| 1u64 << (above + k as u32);
    let stored = {
        let mut columns = linear.columns().to_vec();
        let first = columns.len() - linear.bases("warp").len();
        for (k, warp) in parts.iter().enumerate() {
            columns[first + *warp as usize] = part(k);
        }
        LinearLayout::from_columns(linear.ins().to_vec(), outs.clone(), columns)?
    };
    let loaded = {
        let mut columns: Vec<u64> = (0..parts.len()).map(part).collect();
        columns.extend(linear.columns());
        let mut ins = linear.ins().to_vec();
        ins[0].bits += width;
        LinearLayout::from_columns(ins, outs, columns)?
    };
    let store = Bits { split: Split { linear: stored, ..bits.split.clone() } };
    // Loaded registers count parts, then registers, then slices.
    let registers = 1i64 << (bits.register_bits() + width);
    let mut split = Split { linear: loaded, ..bits.split.clone() };
    split.indices[0] = Layout::identity(registers);
    split.slices[0] = Layout::new(HTuple::Leaf(bits.slices()), HTuple::Leaf(registers))?;
    Ok((store, Bits { split }))
}
