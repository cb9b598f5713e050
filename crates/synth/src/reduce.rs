//! Reductions along a mode: within threads, then lanes by butterflies, then warps through shared memory. Copies of an
//! element take no part twice, and only one of those who hold a partial result stores it (Linear Layouts, section 5.1
//! and table 4). Threads and tiles that are no powers of two are reduced digit by digit ([`Along`]).

use tilewright_layout::{Dim, HTuple, Layout, LinearLayout, Split};
use tilewright_machine::{Class, Timing};

use crate::along::{Along, Exchange};
use crate::linear::Bits;
use crate::movement::{BARRIER_CYCLES, Between, Movement, Trip, WAVEFRONT_CYCLES, halves, movement, trip};
use crate::reject::Reject;
use crate::shapes;
use crate::tv::TvLayout;

/// The plan of a `reduce`.
#[derive(Clone, PartialEq, Debug)]
pub struct ReducePlan {
    /// For each value of a thread's partial result the values of the operand that it combines.
    pub local: Vec<Vec<u32>>,
    /// Distances of the lanes that exchange partial results.
    pub lanes: Vec<u32>,
    /// The exchange of what lanes cannot put together.
    pub meeting: Meeting,
    /// From the layout in which the result arises to that of the result's tensor.
    pub last: Movement,
    /// 32-bit words of a partial result.
    pub words: u32,
}

/// The exchange of partial results through shared memory.
#[derive(Clone, PartialEq, Debug)]
pub enum Meeting {
    /// Each warp has all of the mode.
    None,
    /// Between powers of two of warps: each stores its partial results, each loads those of all, the parts of one result in
    /// consecutive registers.
    Warps(Box<Trip>),
    /// Between any threads.
    Threads(Exchange),
}

impl Meeting {
    /// Bytes of shared memory for partial results of so many words.
    pub fn shared_bytes(&self, words: u32) -> u32 {
        match self {
            Meeting::None => 0,
            Meeting::Warps(trip) => trip.bytes,
            Meeting::Threads(exchange) => 4 * exchange.words(words),
        }
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        match self {
            Meeting::None => 0,
            Meeting::Warps(trip) => trip.cycles(timing),
            Meeting::Threads(_) => self.calls() * WAVEFRONT_CYCLES + 2 * BARRIER_CYCLES,
        }
    }

    /// Accesses of one thread.
    pub fn calls(&self) -> u32 {
        match self {
            Meeting::None => 0,
            Meeting::Warps(trip) => trip.calls(),
            Meeting::Threads(exchange) => exchange.items[0] * (exchange.extent + 1),
        }
    }
}

impl ReducePlan {
    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        self.meeting.shared_bytes(self.words).max(self.last.shared_bytes())
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let combine = halves(timing.cost(Class::MinF32));
        let combined: usize = self.local.iter().map(|v| v.len().saturating_sub(1)).sum();
        let rounds = self.lanes.len() as u32 * self.local.len() as u32;
        combined as u32 * combine
            + rounds * (halves(timing.cost(Class::Shuffle)) + combine)
            + self.meeting.cycles(timing)
            + self.last.cycles(timing)
    }

    /// Instructions of one thread that access shared memory.
    pub fn shared_instructions(&self) -> u32 {
        self.meeting.calls() + if let Movement::Shared(t) = &self.last { t.calls() } else { 0 }
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
    let words = words_of(bits);
    let (local, lanes, meeting, partial) = match over_bits(src, (shape, result), axis, words, timing) {
        Ok(found) => found,
        Err(Reject::TooLarge) => return Err(Reject::TooLarge),
        Err(_) => {
            let along = Along::new(src, shape, axis)?;
            let mut lanes = along.lanes();
            lanes.sort_unstable();
            let meeting = along.meeting()?.map_or(Meeting::None, Meeting::Threads);
            (along.rows, lanes, meeting, along.without)
        }
    };
    let between = Between { from: &partial, to: dst, shape: result, threads, bits, timing };
    let (last, _) = movement(&between)?;
    let lanes = lanes.into_iter().map(|k| 1 << k).collect();
    Ok(ReducePlan { local, lanes, meeting, last, words })
}

/// 32-bit words of an element of so many bits in the type that it is computed with.
pub fn words_of(bits: u32) -> u32 {
    tilewright_machine::registers_of(bits)
}

/// Values that a thread combines, bits of the lane that exchange, the exchange of warps, and the layout of what comes of it.
type Steps = (Vec<Vec<u32>>, Vec<u32>, Meeting, TvLayout);

/// The plan of a slice of one coordinate of a mode that threads share: those that hold it hand it to the others.
#[derive(Clone, PartialEq, Debug)]
pub struct PickPlan {
    /// The value of each row.
    pub values: Vec<u32>,
    /// The bits of the lane along the mode, and those of the lane that holds it.
    pub lanes: [u32; 2],
    /// The exchange between threads, and the part that is wanted.
    pub meeting: Option<(Exchange, u32)>,
    /// From the layout in which the result arises to that of its tensor.
    pub last: Movement,
    /// 32-bit words of an element.
    pub words: u32,
}

/// The plan of an `argmax` or an `argmin`.
#[derive(Clone, PartialEq, Debug)]
pub struct ArgPlan {
    /// The rows and the coordinates of their values.
    pub along: Along,
    /// The exchange between threads.
    pub meeting: Option<Exchange>,
    /// From the layout in which the results arise to those of their tensors.
    pub last: [Movement; 2],
    /// 32-bit words of an element with its coordinate.
    pub words: u32,
}

impl PickPlan {
    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        let exchange = self.meeting.as_ref().map_or(0, |(exchange, _)| 4 * exchange.words(self.words));
        exchange.max(self.last.shared_bytes())
    }

    /// Shuffles and accesses to shared memory of one thread.
    pub fn calls(&self) -> u32 {
        let shuffles = if self.lanes[0] == 0 { 0 } else { self.values.len() as u32 };
        shuffles + self.shared_calls() + self.last.calls()
    }

    /// Accesses to shared memory of one thread.
    pub fn shared_calls(&self) -> u32 {
        self.meeting.as_ref().map_or(0, |(exchange, _)| 2 * self.words * exchange.items[0])
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let shuffles = if self.lanes[0] == 0 { 0 } else { self.values.len() as u32 };
        let barriers = if self.meeting.is_some() { 2 * BARRIER_CYCLES } else { 0 };
        shuffles * halves(timing.cost(Class::Shuffle))
            + self.shared_calls() * WAVEFRONT_CYCLES
            + barriers
            + self.last.cycles(timing)
    }

    /// The instructions, as reports name them.
    pub fn name(&self) -> String {
        let shared = if self.meeting.is_some() { ", through shared memory" } else { "" };
        format!("shfl.sync{shared}")
    }
}

impl ArgPlan {
    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        let last = self.last.iter().map(Movement::shared_bytes).max().unwrap_or(0);
        last.max(self.meeting.as_ref().map_or(0, |exchange| 4 * exchange.words(self.words)))
    }

    /// Accesses to shared memory of one thread.
    pub fn shared_calls(&self) -> u32 {
        self.meeting.as_ref().map_or(0, |exchange| self.words * exchange.items[0] * (exchange.extent + 1))
    }

    fn shuffles(&self) -> u32 {
        self.words * (self.along.lanes().len() * self.along.rows.len()) as u32
    }

    /// Shuffles and accesses to shared memory of one thread.
    pub fn calls(&self) -> u32 {
        self.shuffles() + self.shared_calls() + self.last.iter().map(Movement::calls).sum::<u32>()
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let values: usize = self.along.rows.iter().map(Vec::len).sum();
        let combine = halves(timing.cost(Class::MinF32));
        let last: u32 = self.last.iter().map(|last| last.cycles(timing)).sum();
        let barriers = if self.meeting.is_some() { 2 * BARRIER_CYCLES } else { 0 };
        ARG_OPS * values as u32 * combine
            + self.shuffles() * (halves(timing.cost(Class::Shuffle)) + 3 * combine)
            + self.shared_calls() * WAVEFRONT_CYCLES
            + barriers
            + last
    }
}

/// Operations on an element of an `argmax`: its key, a comparison and two selections.
const ARG_OPS: u32 = 9;

/// Plans a slice of one coordinate of a mode that threads share.
///
/// # Errors
///
/// The reason why the distribution of the operand does not allow it.
pub fn pick(
    [src, dst]: &[TvLayout; 2],
    (shape, result): (&[i64], &[i64]),
    (axis, start): (u32, i64),
    (threads, bits): (i64, u32),
    timing: &Timing,
) -> Result<PickPlan, Reject> {
    let along = Along::new(src, shape, axis)?;
    let holder = along.holder(start);
    let lanes = along.lanes().into_iter().fold(0, |all, bit| all | 1 << bit);
    let meeting = along.meeting()?.map(|exchange| (exchange, holder.part));
    let between = Between { from: &along.without, to: dst, shape: result, threads, bits, timing };
    let (last, _) = movement(&between)?;
    let values = along.rows.iter().map(|row| row[holder.value]).collect();
    Ok(PickPlan { values, lanes: [lanes, holder.lanes], meeting, last, words: words_of(bits) })
}

/// Plans an `argmax` or an `argmin` of a tensor of `shape` along `axis`.
///
/// # Errors
///
/// The reason why the distribution of the operand does not allow it.
pub fn arg(
    src: &TvLayout,
    results: &[TvLayout; 2],
    (shape, result): (&[i64], &[i64]),
    axis: u32,
    (threads, bits): (i64, [u32; 2]),
    timing: &Timing,
) -> Result<ArgPlan, Reject> {
    let along = Along::new(src, shape, axis)?;
    let last = |k: usize| {
        let between =
            Between { from: &along.without, to: &results[k], shape: result, threads, bits: bits[k], timing };
        movement(&between).map(|(movement, _)| movement)
    };
    let last = [last(0)?, last(1)?];
    Ok(ArgPlan { meeting: along.meeting()?, along, last, words: 1 + words_of(bits[0]) })
}

/// The reason for which a reduction does not go along a mode of this layout, if there is one.
pub fn refusal(src: &TvLayout, shape: &[i64], axis: u32) -> Option<Reject> {
    Along::new(src, shape, axis).err().filter(|_| bits_along(src, shape, axis).is_err())
}

/// The steps of a reduction where threads and tiles are powers of two, but for slices of registers.
fn over_bits(
    src: &TvLayout,
    (shape, result): (&[i64], &[i64]),
    axis: u32,
    words: u32,
    timing: &Timing,
) -> Result<Steps, Reject> {
    let map = shapes::without(axis, shape).ok_or(Reject::TooLarge)?;
    let partial = arises(src, shape, axis).ok_or(Reject::ModeStays)?;
    let count = partial.count() as i64;
    let mut local = vec![Vec::new(); count as usize];
    for s in 0..src.count() as i64 {
        let place = map.eval(src.at(0, s)) - partial.at(0, 0);
        let found = (0..count).find(|v| partial.at(0, *v) - partial.at(0, 0) == place);
        local[found.ok_or(Reject::NoPlace)? as usize].push(s as u32);
    }
    let [lanes, parts] = bits_along(src, shape, axis)?;
    let meeting = if parts.is_empty() {
        Meeting::None
    } else {
        let bits = Bits::new(&partial, result)?;
        let (store, load) = across_warps(&bits, &parts)?;
        Meeting::Warps(Box::new(trip(&store, &load, 32 * words, timing.arch)?))
    };
    Ok((local, lanes, meeting, partial))
}

/// The bits of the lane and of the warp that step along the mode.
fn bits_along(src: &TvLayout, shape: &[i64], axis: u32) -> Result<[Vec<u32>; 2], Reject> {
    let name = format!("dim{axis}");
    let bits = Bits::new(src, shape)?;
    let along = |input: &str| bits.linear().part(input, &name);
    let others = bits.linear().slice(&name)?;
    let (mut lanes, mut parts) = (Vec::new(), Vec::new());
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
    Ok([lanes, parts])
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
