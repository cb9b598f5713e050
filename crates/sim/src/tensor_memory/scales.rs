//! Scales in tensor memory: the copies of chunks that bring them there, and the products that take them.
//!
//! A copy is done in its turn among the products of its thread, before those that are issued later, and after those before, whose scales it may overwrite:
//! the PTX ISA lists the first order (9.1, section 9.7.16.6.4), and CUTLASS and DeepGEMM rely on the second.

use tilewright_machine::{DType, Major, SumsScaling, Tcgen05Row, Unit};

use super::{LANES, Left, ScaleCopy, Scaled, Scales, SumsProduct, Task, TensorMemory};
use crate::cluster::Cluster;
use crate::decode::{Place, Slot};
use crate::rule::Rule;
use crate::shadow::Kind;
use crate::sink::Site;
use crate::warp::Warp;
use crate::wgmma::{CHUNK, NOWHERE, Operand, operand_places};

/// Rows of a chunk in shared memory, of 16 bytes.
const ROWS: i64 = SumsScaling::BYTES / 16;

/// The elements of a factor of so many rows and columns, of a few bits each, or of a byte: `set(row, k, bits)`.
fn elements(
    operand: &Operand,
    (rows, k): (usize, usize),
    bits: u32,
    shared: &[u8],
    mut set: impl FnMut(usize, usize, u32),
) {
    let per = (8 * CHUNK / bits) as usize;
    let along_k = operand.major == Major::K;
    let inner = (if along_k { k } else { rows }) / per;
    for (chunk, place) in operand.places.iter().enumerate() {
        let (line, first) = (chunk / inner, chunk % inner * per);
        let data = shared.get(*place as usize..).and_then(|s| s.get(..CHUNK as usize)).unwrap_or(&[0; 16]);
        for i in 0..per {
            let at = i as u32 * bits;
            let code = u32::from(data[at as usize / 8]) >> (at % 8) & (u32::MAX >> (32 - bits));
            if along_k { set(line, first + i, code) } else { set(first + i, line, code) }
        }
    }
}

impl Warp {
    /// Issues the copy of the active lane.
    pub(crate) fn scale_copy(
        &mut self,
        cluster: &mut Cluster<'_>,
        (low, high): (Slot, u32),
        to: Place,
        (statement, origin): (u32, u32),
        (busy, latency): (u64, u64),
    ) {
        let lane = self.active.trailing_zeros().min(31) as usize;
        let site = self.site(statement, origin, lane);
        self.alone(cluster, &site);
        let pairs = cluster.context.program.function.pairs;
        let Some(blocks) = cluster.multiplying(&site, if pairs { 2 } else { 1 }) else { return };
        let (unit, agent) = (self.tensor_unit(), cluster.products_of(self.agent));
        let number = (agent, cluster.tensor_units[unit].issued + 1);
        let mut view = self.tensor.view(1 << lane);
        view.learn(agent, u32::MAX, number.1);
        let bits = self.values[low as usize][lane] & 0xffff_ffff | u64::from(high) << 32;
        cluster.described(&site, bits, "of a chunk of scales");
        let mut places = operand_places(bits, Major::K, (ROWS, i64::from(CHUNK)), DType::U8);
        cluster.inside(&site, &mut places);
        let inside: Vec<u32> = places.iter().copied().filter(|place| *place != NOWHERE).collect();
        let cells = Scaled { address: self.shared_address(to, lane), columns: SumsScaling::COLUMNS };
        let Some((column, cells)) = cells.within(cluster, &site, &blocks) else { return };
        for rank in blocks.clone() {
            cluster.watch_unit(&site, rank, (&inside, CHUNK), Kind::Read, number, Some(&view));
            cluster.watch_tensor(&site, rank, &cells, Kind::Write, number, &view);
        }
        let ready = self.address_ready(to, None).max(self.timing.values[low as usize]);
        let pipes = &mut cluster.ctas[self.rank as usize].pipes;
        let mut begin = self.timing.order(pipes, Unit::Tensor, ready, busy);
        for rank in blocks.clone() {
            begin = cluster.ctas[rank as usize].pipes.multiply(begin, busy, busy);
        }
        let unit = &mut cluster.tensor_units[unit];
        unit.issued += 1;
        unit.complete = unit.complete.max(begin + busy.max(latency));
        unit.tasks.push_back(Task::Scales(Box::new(ScaleCopy { blocks, column, places })));
    }
}

impl Cluster<'_> {
    /// Reports a descriptor of what the tensor cores read for tensor memory that is none.
    pub(super) fn described(&mut self, site: &Site, bits: u64, what: &str) {
        if bits & Tcgen05Row::DESCRIPTOR == 0 {
            self.misuse(site, Rule::Place, || {
                format!("{bits:#x} is no descriptor {what}: bit 46 is not set")
            });
        }
    }

    /// Executes a copy: each quarter of the lanes gets the chunk, in each of the blocks that of its own shared memory.
    pub(super) fn execute_scale_copy(&mut self, copy: &ScaleCopy) {
        copy.blocks.clone().for_each(|rank| self.execute_scale_copy_of(rank, copy));
    }

    fn execute_scale_copy_of(&mut self, rank: u32, copy: &ScaleCopy) {
        let cta = &mut self.ctas[rank as usize];
        let Some(memory) = &mut cta.tensor else { return };
        for (row, place) in copy.places.iter().enumerate() {
            let bytes = cta.shared.get(*place as usize..).and_then(|s| s.get(..16)).unwrap_or(&[0; 16]);
            for (word, bytes) in bytes.chunks_exact(4).enumerate() {
                let bits = bytes.iter().rev().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
                for quarter in 0..LANES / 32 {
                    let cell = TensorMemory::at(32 * quarter + row as u32, copy.column + word as u32);
                    memory.cells[cell] = bits;
                }
            }
        }
    }

    /// Executes a block-scaled product: products of scaled values are exact, and added to sums in `f32` in the order of rising k.
    pub(super) fn execute_scaled_sums(
        &mut self,
        product: &SumsProduct,
        scaling: &SumsScaling,
        scales: [Scales; 2],
    ) {
        let SumsProduct { row, rank, b, .. } = product;
        let (part, k) = (row.right_rows() as usize, row.k as usize);
        let of_elements = numbers(row.b);
        let mut right = vec![0f64; row.n as usize * k];
        let blocks = *rank..*rank + row.blocks as u32;
        for (number, rank) in blocks.clone().enumerate() {
            elements(b, (part, k), row.b.bits(), self.shared(rank), |j, kk, bits| {
                right[(number * part + j) * k + kk] = of_elements[bits as usize];
            });
        }
        blocks.for_each(|rank| self.execute_scaled_sums_of(rank, product, (scaling, scales), &right));
    }

    /// Executes a block-scaled product in one of its blocks, of all rows of the right factor, which each block has the scales of.
    fn execute_scaled_sums_of(
        &mut self,
        rank: u32,
        product: &SumsProduct,
        (scaling, scales): (&SumsScaling, [Scales; 2]),
        right: &[f64],
    ) {
        let SumsProduct { row, column, a, accumulate, .. } = product;
        let cta = &mut self.ctas[rank as usize];
        // Neither the language nor the verifier of functions has a left factor in tensor memory with scales.
        let (Some(memory), Left::Shared(a)) = (&mut cta.tensor, a) else { return };
        let (m, n, k) = (row.m as usize, row.n as usize, row.k as usize);
        let (of_elements, of_blocks) = (numbers(row.a), numbers(scaling.dtype));
        let block = scaling.block as usize;
        let scale = |(first, byte): Scales, i: usize, kk: usize| {
            let (lane, cell) = SumsScaling::cell(i as i64);
            let byte = byte + (kk / block) as u32;
            of_blocks[(memory.cells[TensorMemory::at(lane, first + cell)] >> (8 * byte) & 0xff) as usize]
        };
        let [of_a, of_b] = scales;
        let mut left = vec![0f64; k * m];
        elements(a, (m, k), row.a.bits(), &cta.shared, |i, kk, bits| {
            left[kk * m + i] = of_elements[bits as usize] * scale(of_a, i, kk);
        });
        let mut scaled = vec![0f64; n * k];
        for (at, scaled) in scaled.iter_mut().enumerate() {
            *scaled = right[at] * scale(of_b, at / k, at % k);
        }
        let cells = row.d_layout();
        let mut sums = vec![0f32; m];
        for (j, right) in scaled.chunks_exact(k).enumerate() {
            let at = |i: usize| {
                let cell = cells.eval((i + m * j) as i64) as u32;
                TensorMemory::at(cell % LANES, column + cell / LANES)
            };
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = if *accumulate { f32::from_bits(memory.cells[at(i)]) } else { 0.0 };
            }
            for (left, right) in left.chunks_exact(m).zip(right) {
                for (sum, left) in sums.iter_mut().zip(left) {
                    *sum = (f64::from(*sum) + left * right) as f32;
                }
            }
            for (i, sum) in sums.iter().enumerate() {
                memory.cells[at(i)] = sum.to_bits();
            }
        }
    }
}

/// The numbers of a type's codes.
fn numbers(dtype: DType) -> Vec<f64> {
    (0..1u32 << dtype.bits()).map(|bits| dtype.decode(bits)).collect()
}
