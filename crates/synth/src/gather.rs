//! Gathers along a mode (Linear Layouts, section 5.5): by shuffles where all elements along the mode are in one warp, else
//! through shared memory. The index says, bit by bit, which register and lane, or which offset, is added to where the
//! other coordinates lead.

use tilewright_layout::{LayoutError, LinearLayout, Reorder, SharedAccess, single_element_swizzle};
use tilewright_machine::{Arch, Class, CopyRow, Memory, Timing};

use crate::linear::Bits;
use crate::movement::{BARRIER_CYCLES, Side, WAVEFRONT_CYCLES, halves, per_thread};
use crate::reason::{Lost, NotTaken};
use crate::reject::Reject;
use crate::tv::TvLayout;

/// A gather by shuffles.
#[derive(Clone, PartialEq, Debug)]
pub struct WarpGather {
    /// The operand's layout.
    pub from: Bits,
    /// The layout of index and result.
    pub to: Bits,
    /// (register, lane, warp) of the result → those of the operand at index 0.
    pub source: LinearLayout,
    /// For each bit of the index: what it adds to the operand's register and lane.
    pub index: Vec<(u64, u64)>,
    /// A basis of the registers that lanes and indices lead to: the candidates that a lane chooses from.
    pub candidates: Vec<u64>,
    /// Shuffles for each element of the result: one for each word that a lane may want.
    pub shuffles: u32,
}

/// A gather through shared memory.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedGather {
    /// The operand's side.
    pub store: Side,
    /// Offset in elements → the operand's tile.
    pub memory: LinearLayout,
    /// The layout of index and result.
    pub to: Bits,
    /// (register, lane, warp) of the result → offset at index 0.
    pub offsets: LinearLayout,
    /// For each bit of the index: what it adds to the offset.
    pub index: Vec<u64>,
    /// The load of one element.
    pub load: &'static CopyRow,
    /// Wavefronts to expect of a load whose indices are random (`random_wavefronts`).
    pub wavefronts: f64,
    /// Bytes of shared memory.
    pub bytes: u32,
}

/// The plan of a `gather`.
#[derive(Clone, PartialEq, Debug)]
pub enum GatherPlan {
    /// Within warps.
    Warp(Box<WarpGather>),
    /// Through shared memory.
    Shared(Box<SharedGather>),
}

impl GatherPlan {
    /// The instruction, as reports name it.
    pub fn name(&self) -> String {
        match self {
            GatherPlan::Warp(_) => "shfl.sync".to_string(),
            GatherPlan::Shared(g) => format!("{} + {}", g.store.row.name, g.load.name),
        }
    }

    /// Instruction calls of one thread.
    pub fn calls(&self) -> u32 {
        match self {
            GatherPlan::Warp(g) => (g.shuffles << g.to.register_bits()) * g.to.slices() as u32,
            GatherPlan::Shared(g) => g.store.calls() + (1 << g.to.register_bits()) * g.to.slices() as u32,
        }
    }

    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        if let GatherPlan::Shared(g) = self { g.bytes } else { 0 }
    }

    /// Half cycles of the multiprocessor for one warp. The arithmetic on indices goes beside the shuffles and the accesses to shared
    /// memory: of an H200's gathers of 32-bit elements of 128×64 and 64×128, a second shuffle took 1.17 cycles and two more 0.85 each, a
    /// way through shared memory as many as it has wavefronts (`bench/README.md`).
    pub fn cycles(&self, timing: &Timing) -> u32 {
        match self {
            GatherPlan::Warp(g) => {
                let elements = (1 << g.to.register_bits()) * g.to.slices() as u32;
                let selections = (1 << g.candidates.len()) - 1 + g.candidates.len() as u32;
                let shuffles = g.shuffles * halves(timing.cost(Class::Shuffle));
                elements * shuffles.max((selections + INDEX_OPS) * halves(timing.cost(Class::Selp)))
            }
            GatherPlan::Shared(g) => {
                let elements = (1 << g.to.register_bits()) * g.to.slices() as u32;
                let loads = (f64::from(elements * WAVEFRONT_CYCLES) * g.wavefronts).round() as u32;
                let arithmetic = elements * INDEX_OPS * halves(timing.cost(Class::Lop3));
                (g.store.cycles(timing) + loads).max(arithmetic) + 2 * BARRIER_CYCLES
            }
        }
    }
}

/// Operations that make an address or a lane of an index.
const INDEX_OPS: u32 = 3;

/// Plans a gather from a tensor of `shape` along `axis` into one of `result` shape.
///
/// # Errors
///
/// Reason for which the distributions do not allow it.
pub fn gather(
    src: &TvLayout,
    dst: &TvLayout,
    (shape, result): (&[i64], &[i64]),
    axis: u32,
    bits: u32,
    timing: &Timing,
) -> Result<(GatherPlan, Vec<NotTaken>), Reject> {
    let k = axis as usize;
    if !(shape[k] as u64).is_power_of_two() || !(result[k] as u64).is_power_of_two() {
        return Err(Reject::OddMode);
    }
    let (from, to) = (Bits::new(src, shape)?, Bits::new(dst, result)?);
    if from.slices() > 1 || to.slices() > 1 {
        return Err(Reject::OddTile);
    }
    let name = format!("dim{axis}");
    let other = elsewhere(from.linear(), to.linear(), &name)?;
    let warp = within_warps(&from, &to, &other, &name, bits)?;
    let shared = through_shared(&from, &to, &other, &name, bits, timing.arch)?;
    let Some(warp) = warp else {
        let lost = NotTaken::rejected("shfl.sync", Reject::SeveralWarps);
        return Ok((GatherPlan::Shared(Box::new(shared)), vec![lost]));
    };
    let (a, b) = (GatherPlan::Warp(Box::new(warp)), GatherPlan::Shared(Box::new(shared)));
    let (by_warp, by_shared) = (a.cycles(timing), b.cycles(timing));
    let (taken, other) = if by_warp <= by_shared { (a, b) } else { (b, a) };
    let why = Lost::Slower { cycles: by_warp.max(by_shared), against: by_warp.min(by_shared) };
    Ok((taken, vec![NotTaken { instruction: other.name(), why }]))
}

/// The places of the result's modes other than `axis` in the operand's tile: `to` with `axis` zero, over the operand's
/// outputs.
fn elsewhere(from: &LinearLayout, to: &LinearLayout, axis: &str) -> Result<LinearLayout, LayoutError> {
    let columns = to
        .columns()
        .iter()
        .map(|c| {
            let parts = to.unflatten_out(*c);
            let (mut column, mut at) = (0, 0);
            for (out, part) in from.outs().iter().zip(parts) {
                column |= if out.name == axis { 0 } else { part << at };
                at += out.bits;
            }
            column
        })
        .collect();
    LinearLayout::from_columns(to.ins().to_vec(), from.outs().to_vec(), columns)
}

/// The unit vectors of one mode of the operand's tile.
fn units(from: &LinearLayout, axis: &str) -> Vec<u64> {
    let mut at = 0;
    for out in from.outs() {
        if out.name == axis {
            return (at..at + out.bits).map(|i| 1 << i).collect();
        }
        at += out.bits;
    }
    Vec::new()
}

fn within_warps(
    from: &Bits,
    to: &Bits,
    other: &LinearLayout,
    axis: &str,
    bits: u32,
) -> Result<Option<WarpGather>, LayoutError> {
    let reorder = Reorder::new(from.linear(), other)?;
    // Rounds do not matter here, only that the warp is the same.
    let same_warp = {
        let outs = reorder.source.outs();
        let low = outs[0].bits + outs[1].bits;
        let ins = reorder.source.ins();
        let first = (ins[0].bits + ins[1].bits) as usize;
        reorder.source.columns().iter().enumerate().all(|(k, c)| {
            let own = if k >= first { 1u64 << (k - first) } else { 0 };
            c >> low == own
        })
    };
    let inverse = from.linear().right_inverse()?;
    let (registers, lanes) = (inverse.outs()[0].bits, inverse.outs()[1].bits);
    let index: Vec<u64> = units(from.linear(), axis).into_iter().map(|unit| inverse.at(unit)).collect();
    if !same_warp || index.iter().any(|i| i >> (registers + lanes) != 0) {
        return Ok(None);
    }
    let index: Vec<(u64, u64)> =
        index.into_iter().map(|i| (i & ((1 << registers) - 1), i >> registers)).collect();
    // What a lane may want besides what its register of the result says.
    let ins = reorder.source.ins();
    let by_threads = &reorder.source.columns()[ins[0].bits as usize..];
    let mask = (1u64 << registers) - 1;
    let mut candidates: Vec<u64> = Vec::new();
    for register in by_threads.iter().map(|c| c & mask).chain(index.iter().map(|i| i.0)) {
        // A basis of unit vectors: layouts over integers have no others here.
        for bit in (0..registers).map(|i| 1u64 << i).filter(|bit| register & bit != 0) {
            if !candidates.contains(&bit) {
                candidates.push(bit);
            }
        }
    }
    candidates.sort_unstable();
    // Neighbours in a register travel together; elements of 64 bits take two words.
    let together = tilewright_machine::per_register(bits);
    let words = candidates.iter().filter(|c| **c >= u64::from(together)).count();
    let shuffles = bits.div_ceil(32) << words;
    let (from, to, source) = (from.clone(), to.clone(), reorder.source);
    Ok(Some(WarpGather { from, to, source, index, candidates, shuffles }))
}

fn through_shared(
    from: &Bits,
    to: &Bits,
    other: &LinearLayout,
    axis: &str,
    bits: u32,
    arch: Arch,
) -> Result<SharedGather, Reject> {
    // Lanes that read where they wrote meet no conflict; what indices choose is in random columns of the same rows.
    let (memory, access, _): (LinearLayout, SharedAccess, SharedAccess) =
        single_element_swizzle(from.linear(), from.linear(), bits)?;
    let inverse = memory.inverse()?;
    let offsets = inverse.compose(other)?;
    let index = units(from.linear(), axis).into_iter().map(|unit| inverse.at(unit)).collect();
    let store = per_thread(Memory::Register, Memory::Shared, (bits << access.vector.len()) / 8, arch)?;
    let elements = 1u64 << memory.in_bits();
    let bytes = u32::try_from(elements * u64::from(bits) / 8).map_err(|_| Reject::TooLarge)?;
    // A warp reads at random from the modes' words of its rows, which the swizzle spreads over all banks.
    let lanes = to.linear().part("lane", axis)?;
    let along = lanes.iter().filter(|c| **c != 0).count() as u32;
    let elements = from.linear().out_size(axis) as u32 >> along;
    let wavefronts = random_wavefronts(elements * bits.min(32) / 32, bits.div_ceil(32));
    Ok(SharedGather {
        wavefronts,
        store: Side { bits: from.clone(), access, row: store },
        memory,
        to: to.clone(),
        offsets,
        index,
        load: per_thread(Memory::Shared, Memory::Register, bits / 8, arch)?,
        bytes,
    })
}

/// The wavefronts to expect of a load by 32 lanes of words at random, where each bank has so many of the words, and each lane reads a number of
/// `words` that lie side by side: for each phase the largest number of different words in one bank. As many lanes as there are banks for
/// them choose each of all words with the same probability; exponential generating functions count in how many ways no bank has more than
/// `most` of them.
fn random_wavefronts(in_a_bank: u32, words: u32) -> f64 {
    let lanes = (32 / words.max(1)) as usize;
    let in_a_bank = f64::from(in_a_bank.max(1));
    let times = |x: &[f64], y: &[f64]| -> Vec<f64> {
        (0..=lanes).map(|n| (0..=n).map(|k| x[k] * y[n - k]).sum()).collect()
    };
    // Of words each chosen at least once: (e^x - 1)^j, and of all words of a bank so many sets of j.
    let factorials: Vec<f64> = (0..=lanes)
        .scan(1.0, |f, n| {
            *f *= (n as f64).max(1.0);
            Some(*f)
        })
        .collect();
    let chosen: Vec<f64> = (0..=lanes).map(|n| if n == 0 { 0.0 } else { 1.0 / factorials[n] }).collect();
    let mut power: Vec<f64> = (0..=lanes).map(|n| f64::from(u8::from(n == 0))).collect();
    let (mut sets, mut expected, mut bank) = (1.0, 0.0, power.clone());
    let ways = factorials[lanes] / (in_a_bank * lanes as f64).powi(lanes as i32);
    for most in 0..lanes {
        // The probability that some bank has more than `most`.
        let banks = (0..lanes.ilog2()).fold(bank.clone(), |banks, _| times(&banks, &banks));
        expected += 1.0 - ways * banks[lanes];
        power = times(&power, &chosen);
        sets *= (in_a_bank - most as f64).max(0.0) / (most as f64 + 1.0);
        bank.iter_mut().zip(&power).for_each(|(bank, power)| *bank += sets * power);
    }
    expected * f64::from(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 20,000 simulated loads have it.
    #[test]
    fn random_loads_meet_in_banks() {
        for (in_a_bank, words, expected) in
            [(1, 1, 1.0), (2, 1, 2.0), (4, 1, 2.78), (8, 1, 3.15), (64, 1, 3.48), (1, 2, 2.0)]
        {
            let found = random_wavefronts(in_a_bank, words);
            assert!((found - expected).abs() < 0.02, "{in_a_bank} {words}: {found}");
        }
    }
}
