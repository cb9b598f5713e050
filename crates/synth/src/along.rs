//! The distribution of a mode over a block: which of its digits a thread's values, a warp's lanes and the other threads count. Scans
//! go through these from the finest to the coarsest; reductions in any order.
//!
//! A thread's index is cut into digits, each of which steps along the mode, along others, or is a copy. A digit of two lanes is a
//! bit of the lane, and shuffles exchange what lanes hold. All others, odd ones too, meet in shared memory: [`Exchange`].

use std::collections::BTreeSet;

use tilewright_layout::{Layout, compose};

use crate::linear::LANES;
use crate::reject::Reject;
use crate::shapes;
use crate::tv::TvLayout;

/// A digit of the thread's index.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Digit {
    /// Threads that it counts in.
    divisor: i64,
    extent: i64,
    /// Its step along the mode.
    along: i64,
    /// Its step in the tile without the mode.
    rest: i64,
}

impl Digit {
    /// The bit of the lane that it is.
    fn lane_bit(&self) -> Option<u32> {
        let within = self.extent == 2 && self.divisor.count_ones() == 1 && self.divisor < LANES;
        within.then(|| self.divisor.trailing_zeros())
    }
}

/// The counter of a digit of the mode.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Counter {
    Values,
    Lane(u32),
    /// A digit of the thread's index, by its number.
    Threads(usize),
}

/// A step of a scan: who counts the next digits of the mode.
#[derive(Clone, PartialEq, Debug)]
pub enum Stage {
    /// So many neighbouring values of a thread, or groups of them.
    Values(u32),
    /// Bits of the lane, the finest first.
    Lanes(Vec<u32>),
    /// Threads that meet in shared memory.
    Threads(Exchange),
}

/// An exchange of what threads have put together, through shared memory: of every item, `extent` parts lie there.
#[derive(Clone, PartialEq, Debug)]
pub struct Exchange {
    /// Parts of an item.
    pub extent: u32,
    /// Thread → its part.
    pub part: Layout,
    /// Thread → its number among those that hold other items: those that share items have one number.
    pub place: Layout,
    /// Items of a thread, and of those how many a row has.
    pub items: [u32; 2],
    /// Words from one of a thread's items to the next: as many as there are numbers.
    pub step: u32,
    /// Thread → 0 for those who store: of several that hold the same, one.
    pub copies: Layout,
}

impl Exchange {
    /// Words from one part to the next.
    pub fn stride(&self) -> u32 {
        self.step * self.items[0]
    }

    /// Words of shared memory for items of so many words.
    pub fn words(&self, of_item: u32) -> u32 {
        self.stride() * self.extent * of_item
    }
}

/// A mode of a tile as the threads hold it.
#[derive(Clone, PartialEq, Debug)]
pub struct Along {
    /// For each value of the tile without the mode (`shapes::without`) the values along it, in order.
    pub rows: Vec<Vec<u32>>,
    /// The coordinate along the mode of value 0 of a thread.
    pub first: Layout,
    /// The coordinates along the mode of each row's values, relative to that.
    pub offsets: Vec<i64>,
    /// The layout of the tile without the mode.
    pub without: TvLayout,
    digits: Vec<Digit>,
    /// Digits of the mode, from the finest: step, extent.
    counters: Vec<(i64, i64, Counter)>,
    /// Extent of the mode.
    extent: i64,
}

/// The place of a bit of a coordinate along a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A bit of the number of the value in its row.
    Value(u32),
    /// A bit of the lane.
    Lane(u32),
    /// A bit of the part of an exchange.
    Part(u32),
}

/// The place of a coordinate of a mode: see [`Along::holder`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holder {
    /// The number of the value in its row.
    pub value: usize,
    /// The bits of the lane that are set.
    pub lanes: u32,
    /// The part of the exchange.
    pub part: u32,
}

/// A thread's index cut into digits that each step along at most one of both.
fn digits(along: &Layout, rest: &Layout) -> Result<Vec<Digit>, Reject> {
    let size = along.size();
    let mut cuts = BTreeSet::from([1, size]);
    for layout in [along, rest] {
        let mut done = 1;
        for (extent, _) in tilewright_layout::coalesce(layout).leaves() {
            done *= extent;
            cuts.insert(done);
        }
    }
    for bit in [2, 4, 8, 16, LANES] {
        let below = cuts.range(..=bit).next_back().copied().unwrap_or(1);
        let above = cuts.range(bit..).next().copied().unwrap_or(size);
        if bit % below == 0 && above % bit == 0 {
            cuts.insert(bit);
        }
    }
    let cuts: Vec<i64> = cuts.into_iter().collect();
    cuts.windows(2)
        .map(|pair| {
            let [divisor, next] = [pair[0], pair[1]];
            let digit = Digit {
                divisor,
                extent: next / divisor,
                along: along.eval(divisor),
                rest: rest.eval(divisor),
            };
            match (next % divisor, digit.along, digit.rest) {
                (0, 0, _) | (0, _, 0) => Ok(digit),
                (0, ..) => Err(Reject::Diagonal("thread")),
                _ => Err(Reject::ModeCrossed),
            }
        })
        .collect()
}

impl Along {
    /// Mode `axis` of a tile of `shape`.
    ///
    /// # Errors
    ///
    /// The reason for which threads do not hold the mode digit by digit: they step along it and another mode at once, or hold an
    /// element twice.
    pub fn new(tv: &TvLayout, shape: &[i64], axis: u32) -> Result<Along, Reject> {
        let extent = shape[axis as usize];
        let inner: i64 = shape[..axis as usize].iter().product();
        let rest = shapes::without(axis, shape).ok_or(Reject::TooLarge)?;
        let along = shapes::only(axis, shape).ok_or(Reject::TooLarge)?;
        let without = shapes::seen(tv, &rest).ok_or(Reject::ModeStays)?;
        let first = compose(&along, tv.threads())?;
        let digits = digits(&first, &compose(&rest, tv.threads())?)?;
        // Neither modes below nor the mode itself carry.
        let low = |coordinate: i64| coordinate % inner;
        let most = |offsets: &mut dyn Iterator<Item = i64>| offsets.map(low).max().unwrap_or(0);
        let threads = most(&mut (0..tv.threads().size()).map(|t| tv.thread_offset(t)));
        if threads + most(&mut (0..tv.count() as i64).map(|v| tv.value_offset(v))) >= inner {
            return Err(Reject::ModeCrossed);
        }
        let mut counters: Vec<(i64, i64, Counter)> = compose(&along, tv.values())?
            .leaves()
            .into_iter()
            .filter(|(extent, step)| *extent > 1 && *step > 0)
            .map(|(extent, step)| (step, extent, Counter::Values))
            .collect();
        for (number, digit) in digits.iter().enumerate().filter(|(_, digit)| digit.along > 0) {
            let counter = digit.lane_bit().map_or(Counter::Threads(number), Counter::Lane);
            counters.push((digit.along, digit.extent, counter));
        }
        counters.sort_by_key(|(step, ..)| *step);
        let mut reached = 1;
        for (step, extent, _) in &counters {
            if *step != reached {
                return Err(Reject::HeldTwice);
            }
            reached *= extent;
        }
        if reached != extent {
            return Err(Reject::HeldTwice);
        }
        let mut made =
            Along { rows: Vec::new(), first, offsets: Vec::new(), without, digits, counters, extent };
        made.hold(tv, inner, |coordinate| rest.eval(coordinate))?;
        Ok(made)
    }

    /// Finds the values of each row.
    fn hold(&mut self, tv: &TvLayout, inner: i64, rest: impl Fn(i64) -> i64) -> Result<(), Reject> {
        let places: Vec<i64> =
            (0..self.without.count() as i64).map(|v| self.without.value_offset(v)).collect();
        let mut rows: Vec<Vec<(i64, u32)>> = vec![Vec::new(); places.len()];
        for value in 0..tv.count() {
            let coordinate = tv.value_offset(value as i64);
            let row = places.iter().position(|place| *place == rest(coordinate));
            rows[row.ok_or(Reject::NoPlace)?].push((coordinate / inner % self.extent, value as u32));
        }
        let values = |(step, extent, counter): &(i64, i64, Counter)| {
            matches!(counter, Counter::Values).then_some((*extent, *step))
        };
        let values: Vec<(i64, i64)> = self.counters.iter().filter_map(values).collect();
        self.offsets = if values.is_empty() { vec![0] } else { Layout::from_leaves(&values)?.table() };
        for row in &mut rows {
            row.sort_unstable();
            row.dedup_by_key(|(at, _)| *at);
            if row.iter().map(|(at, _)| *at).ne(self.offsets.iter().copied()) {
                return Err(Reject::Diagonal("value"));
            }
        }
        self.rows = rows.into_iter().map(|row| row.into_iter().map(|(_, value)| value).collect()).collect();
        Ok(())
    }

    /// The places of the bits of a coordinate along the mode, the lowest first.
    ///
    /// # Errors
    ///
    /// A digit that is no power of two.
    pub fn bits(&self) -> Result<Vec<Place>, Reject> {
        let (mut value, mut part) = (0, 0);
        let mut bits = Vec::new();
        let next = |count: &mut u32| {
            *count += 1;
            *count - 1
        };
        for (_, extent, counter) in &self.counters {
            if extent.count_ones() != 1 {
                return Err(Reject::OddMode);
            }
            for _ in 0..extent.trailing_zeros() {
                bits.push(match counter {
                    Counter::Values => Place::Value(next(&mut value)),
                    Counter::Lane(bit) => Place::Lane(*bit),
                    Counter::Threads(_) => Place::Part(next(&mut part)),
                });
            }
        }
        Ok(bits)
    }

    /// The exchange of all items of every row.
    ///
    /// # Errors
    ///
    /// A tile that is too large.
    pub fn meeting_of_all(&self) -> Result<Option<Exchange>, Reject> {
        let threads: Vec<usize> = self.counters.iter().filter_map(|c| number(c.2)).collect();
        if threads.is_empty() {
            return Ok(None);
        }
        // Every digit of the mode tells items apart.
        self.exchange(&threads, self.offsets.len(), 1).map(Some)
    }

    /// The bits of the lane that count the mode.
    pub fn lanes(&self) -> Vec<u32> {
        let lane = |(_, _, counter): &(i64, i64, Counter)| match counter {
            Counter::Lane(bit) => Some(*bit),
            _ => None,
        };
        self.counters.iter().filter_map(lane).collect()
    }

    /// The value of a row, the lane and the part of an exchange in which a coordinate of the mode is.
    pub fn holder(&self, at: i64) -> Holder {
        let (mut holder, mut part, mut value) = (Holder::default(), 1, 1);
        for (step, extent, counter) in &self.counters {
            let digit = at / step % extent;
            match counter {
                Counter::Values => {
                    holder.value += (digit * value) as usize;
                    value *= extent;
                }
                Counter::Lane(bit) => holder.lanes |= (digit as u32) << bit,
                Counter::Threads(_) => {
                    holder.part += (digit * part) as u32;
                    part *= extent;
                }
            }
        }
        holder
    }

    /// The exchange of a reduction: of every row one item, a part for each group of threads that lanes do not put together.
    ///
    /// # Errors
    ///
    /// A tile that is too large.
    pub fn meeting(&self) -> Result<Option<Exchange>, Reject> {
        let threads: Vec<usize> = self.counters.iter().filter_map(|c| number(c.2)).collect();
        if threads.is_empty() {
            return Ok(None);
        }
        self.exchange(&threads, 1, i64::MAX).map(Some)
    }

    /// The stages of a scan, the finest first.
    ///
    /// # Errors
    ///
    /// A tile that is too large.
    pub fn stages(&self) -> Result<Vec<Stage>, Reject> {
        let mut stages = Vec::new();
        // Items of a thread in a row before the stage.
        let (mut items, mut reached) = (self.offsets.len(), 1i64);
        let mut left = self.counters.as_slice();
        while let Some((_, _, kind)) = left.first() {
            let alike = |(_, _, other): &&(i64, i64, Counter)| {
                std::mem::discriminant(other) == std::mem::discriminant(kind)
            };
            let (group, others) = left.split_at(left.iter().take_while(alike).count());
            let extent: i64 = group.iter().map(|(_, extent, _)| extent).product();
            let next = reached * extent;
            stages.push(match kind {
                Counter::Values => {
                    items /= extent as usize;
                    Stage::Values(extent as u32)
                }
                Counter::Lane(_) => {
                    let bit = |c: &(i64, i64, Counter)| if let Counter::Lane(bit) = c.2 { bit } else { 0 };
                    Stage::Lanes(group.iter().map(bit).collect())
                }
                Counter::Threads(_) => {
                    let numbers: Vec<usize> = group.iter().filter_map(|c| number(c.2)).collect();
                    Stage::Threads(self.exchange(&numbers, items, next)?)
                }
            });
            (left, reached) = (others, next);
        }
        Ok(stages)
    }

    /// The exchange between the threads that digits `parts` count, of so many items of each row. Digits of the mode that step by `next` or
    /// more tell items apart, as those of other modes do; of the threads that finer ones and copies count, one stores.
    fn exchange(&self, parts: &[usize], items: usize, next: i64) -> Result<Exchange, Reject> {
        let small = |n: i64| u32::try_from(n).map_err(|_| Reject::TooLarge);
        let mut steps = vec![0; self.digits.len()];
        let mut extent = 1;
        for number in parts {
            steps[*number] = extent;
            extent *= self.digits[*number].extent;
        }
        let (mut places, mut copies) = (vec![0; self.digits.len()], vec![0; self.digits.len()]);
        let mut step = 1;
        for (number, digit) in self.digits.iter().enumerate().filter(|(number, _)| !parts.contains(number)) {
            if digit.rest != 0 || digit.along >= next {
                places[number] = step;
                step *= digit.extent;
            } else {
                copies[number] = digit.divisor;
            }
        }
        let of = |steps: Vec<i64>| {
            let leaves = self.digits.iter().zip(steps).map(|(digit, step)| (digit.extent, step));
            Layout::from_leaves(&leaves.collect::<Vec<_>>())
        };
        let exchange = Exchange {
            extent: small(extent)?,
            part: of(steps)?,
            place: of(places)?,
            items: [small((items * self.rows.len()) as i64)?, small(items as i64)?],
            step: small(step)?,
            copies: of(copies)?,
        };
        small(step * extent * i64::from(exchange.items[0]) * 16)?;
        Ok(exchange)
    }
}

/// The number of the digit of the thread's index.
fn number(counter: Counter) -> Option<usize> {
    if let Counter::Threads(number) = counter { Some(number) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(text: &str, shape: &[i64], axis: u32) -> Result<Along, Reject> {
        Along::new(&TvLayout::from_layout(text.parse().unwrap()).unwrap(), shape, axis)
    }

    /// The row of a warpgroup's accumulator: pairs of values, four lanes, groups of values.
    #[test]
    fn the_rows_of_an_accumulator_are_pairs_of_values_then_lanes_then_values() {
        let made = along("((4,8,4),(2,2,32)):((128,1,16),(64,8,512))", &[64, 256], 1).unwrap();
        assert_eq!(made.rows.len(), 2);
        let stages = made.stages().unwrap();
        assert_eq!(stages, [Stage::Values(2), Stage::Lanes(vec![0, 1]), Stage::Values(32)]);
        assert!(made.meeting().unwrap().is_none());
    }

    /// Three warps share a row of 192: one exchange of three parts.
    #[test]
    fn an_odd_number_of_warps_meets_in_shared_memory() {
        let made = along("((32,3),(2,4)):((8,256),(4,1))", &[4, 192], 1).unwrap();
        assert_eq!(made.rows, [[0, 1], [2, 3], [4, 5], [6, 7]]);
        let [Stage::Values(2), Stage::Lanes(bits), Stage::Threads(exchange)] = &made.stages().unwrap()[..]
        else {
            panic!("{:?}", made.stages());
        };
        assert_eq!(bits, &[0, 1, 2, 3, 4]);
        assert_eq!((exchange.extent, exchange.stride(), exchange.words(1)), (3, 4, 12));
        assert_eq!((exchange.items, exchange.step), ([4, 1], 1));
        // Lane 0 of each warp stores.
        let stores: Vec<i64> = (0..96).filter(|t| exchange.copies.eval(*t) == 0).collect();
        assert_eq!(stores, [0, 32, 64]);
        assert_eq!(stores.iter().map(|t| exchange.part.eval(*t)).collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// Three lanes along the mode are no bits: threads meet in shared memory.
    #[test]
    fn odd_lanes_meet_in_shared_memory() {
        let made = along("((3,32),4):((1,3),96)", &[3, 128], 0).unwrap();
        let [Stage::Threads(exchange)] = &made.stages().unwrap()[..] else { panic!() };
        assert_eq!((exchange.extent, exchange.step, exchange.stride()), (3, 32, 128));
        assert_eq!((exchange.part.eval(4), exchange.place.eval(4)), (1, 1));
    }

    #[test]
    fn threads_that_step_along_two_modes_are_refused() {
        assert!(matches!(along("(32,1):(33,0)", &[32, 32], 0), Err(Reject::Diagonal(_))));
        assert!(matches!(along("(32,2):(1,0)", &[64], 0), Err(Reject::HeldTwice)));
    }
}
