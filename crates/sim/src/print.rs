//! Records of a `print`, of which each warp brings its part.

use std::collections::BTreeMap;

use tilewright_machine::printed::shown_coordinates;
use tilewright_machine::{Elements, Printed, PrintedItem, PrintedTensor};
use tilewright_simt::printed::{linear, unknown};
use tilewright_simt::{Print, PrintItem};

use crate::clock::lanes;
use crate::cluster::{Cluster, Cta};
use crate::warp::Warp;

/// An element of a few bytes of a block's shared memory, by the bit at which it begins; 0 outside.
fn shared_bits(cta: &Cta, bit: i64, bits: u32) -> u64 {
    let byte = |k: i64| {
        let at = usize::try_from(bit / 8 + k).ok();
        at.and_then(|at| cta.shared.get(at)).map_or(0, |byte| u64::from(*byte))
    };
    let word = (0..i64::from(bits.div_ceil(8))).rev().fold(0, |word, k| word << 8 | byte(k));
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    word >> (bit % 8) & mask
}

impl Warp {
    /// Brings the active lanes' part of a record. The first warp that comes begins it, with the integers and what shared memory holds then: no
    /// access is checked, and nothing is ordered.
    pub(crate) fn print(&mut self, cluster: &mut Cluster<'_>, print: &Print, slots: &[u32]) {
        let pc = self.pc;
        let times = self.printed.entry(pc).or_insert(0);
        let execution = (pc, *times);
        *times += 1;
        let Some(first) = lanes(self.active).next() else { return };
        let cta = &mut cluster.ctas[self.rank as usize];
        let (block, begun) = (cta.index, cta.printed.len() as u64);
        let number = *cta.printed.entry(execution).or_insert(begun);
        let begins = number == begun;
        let log = &mut cluster.sink.printed;
        if !log.keeps(block, number) && log.get_mut(block, number).is_none() {
            if begins {
                log.leave_out();
            }
            return;
        }
        let integer = |slot: &u32| i64::from(self.values[*slot as usize][first] as u32 as i32);
        let Some((thread, rest)) = slots.split_first() else { return };
        let (counters, mut rest) = rest.split_at(print.counters as usize);
        let mut operands = Vec::new();
        for item in &print.items {
            let (taken, left) = rest.split_at(item.operands());
            operands.push(taken);
            rest = left;
        }
        if begins {
            let items = print.items.iter().zip(&operands).map(|(item, slots)| match item {
                PrintItem::Integer => PrintedItem::Integer(slots.first().map_or(0, integer)),
                PrintItem::Registers { dtype, .. } => PrintedItem::Tensor(unknown(*dtype, item.shape())),
                PrintItem::Shared { dtype, buffer, layout, tile, fixed } => {
                    let mut index = slots.iter().map(integer);
                    let fixed: Vec<Option<i64>> =
                        fixed.iter().map(|fixed| fixed.then(|| index.next().unwrap_or(0))).collect();
                    let bits = |at: &Vec<i64>| {
                        let mut kept = at.iter();
                        let whole: Vec<i64> = fixed
                            .iter()
                            .map(|fixed| fixed.or_else(|| kept.next().copied()).unwrap_or(0))
                            .collect();
                        let inside = whole.iter().zip(tile).all(|(x, extent)| (0..*extent).contains(x));
                        let element = layout.swizzle.apply(layout.layout.eval(linear(&whole, tile)));
                        let bit = i64::from(*buffer) * 8 + element * i64::from(dtype.bits());
                        if inside { shared_bits(cta, bit, dtype.bits()) } else { 0 }
                    };
                    let shape = item.shape();
                    let all: Vec<u64> = shown_coordinates(&shape).iter().map(bits).collect();
                    PrintedItem::Tensor(PrintedTensor {
                        dtype: *dtype,
                        elements: Elements::of_bits(*dtype, all),
                        shape,
                        bounds: Vec::new(),
                    })
                }
            });
            let (items, iteration) = (items.collect(), counters.iter().map(integer).collect());
            log.push(number, Printed { statement: print.statement, block, iteration, items });
        }
        let Some(record) = log.get_mut(block, number) else { return };
        for ((item, slots), shown) in print.items.iter().zip(&operands).zip(&mut record.items) {
            if let PrintedItem::Tensor(shown) = shown {
                self.bring(thread, (item, slots), shown);
            }
        }
    }

    /// Puts the elements that the active lanes hold of a register tensor into a record.
    fn bring(&self, thread: &u32, (item, slots): (&PrintItem, &[u32]), shown: &mut PrintedTensor) {
        let PrintItem::Registers { dtype, threads, values, tile, shape } = item else { return };
        let coordinates = shown_coordinates(shape);
        let places: BTreeMap<i64, usize> =
            coordinates.iter().enumerate().map(|(place, at)| (linear(at, tile), place)).collect();
        let (values, bits) = (values.table(), dtype.bits());
        for lane in lanes(self.active) {
            let first = threads.eval(i64::from(self.values[*thread as usize][lane] as u32));
            for (value, offset) in values.iter().enumerate() {
                let Some(place) = places.get(&(first + offset)) else { continue };
                let bit = value * bits as usize;
                let word =
                    |k: usize| slots.get(bit / 32 + k).map_or(0, |slot| self.values[*slot as usize][lane]);
                let whole =
                    if bits == 64 { word(0) & 0xffff_ffff | word(1) << 32 } else { word(0) >> (bit % 32) };
                let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
                shown.elements.put(*place, &Elements::of_bits(*dtype, [whole & mask]), 0);
            }
        }
    }
}
