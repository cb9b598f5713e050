//! Register layout conversion (LL 5.4). All maps are linear over F2; the source map leads from
//! where an element is wanted to where it is: (register, lane, warp) of the result → (register, lane, warp) of the operand.

use super::elimination::{Echelon, apply, complement, kernel, multiply};
use super::{Dim, LinearLayout, refuse, total};
use crate::error::LayoutError;

/// The names of the inputs of a register layout, in the order used here.
const PLACES: [&str; 3] = ["register", "lane", "warp"];

/// Scope of the exchange between two register layouts, from cheap to expensive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// Nothing: every thread has its elements in the right registers.
    Nothing,
    /// Registers of each thread, among themselves.
    Registers,
    /// Lanes of a warp exchange elements.
    Lanes,
    /// Warps exchange elements: only shared memory does that.
    Warps,
}

/// A conversion between register layouts within warps, as rounds of shuffles with the registers of each lane permuted
/// before and after. Indices of registers, lanes and warps are integers that add by exclusive or.
///
/// Let `y` be a register of the result and `l`, `w` a lane and a warp. Then, with all that follows from the columns:
///
/// 1. *before*: every lane sees its registers permuted, `seen[x] = operand[x ⊕ before(l,w)]`;
/// 2. in *round* `k`, for every `k` in the span of the registers of the result, each lane offers `seen[offer(k)]` and
///    receives from lane `from(l,w) ⊕ step(k)`: `got[k]`;
/// 3. *after*: `result[y] = got[y ⊕ after(l)]`.
///
/// Nothing is exchanged in round `k` where `from` is the identity and `step(k)` is 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reorder {
    /// Scope of the exchange.
    pub exchange: Exchange,
    /// Source of each element of the result in the operand.
    pub source: LinearLayout,
    /// For each bit of the lane and then of the warp: added to the register of the operand before the rounds.
    pub before: Vec<u64>,
    /// For each bit of a register of the result: the register of the operand offered in that round, as seen.
    pub offer: Vec<u64>,
    /// For each bit of a register of the result: added to the lane that is read.
    pub step: Vec<u64>,
    /// For each bit of the lane and then of the warp: the lane that is read.
    pub from: Vec<u64>,
    /// For each bit of the lane: added to the register of the result after the rounds.
    pub after: Vec<u64>,
    /// Pairs (bit of the result's register, bit of the operand's register) that neither rounds nor permutations touch:
    /// elements that differ in them only travel together, packed into one word.
    pub packable: Vec<(u32, u32)>,
}

impl Reorder {
    /// Plan of the conversion of a tile from layout `a` to layout `b`. Inputs are `register`, `lane` and `warp`, outputs are the same
    /// by name and size; `a` must hold every element. Where an element is held several times the nearest copy is taken: the
    /// thread's own, else one of its warp (LL 5.4, "minimizing movement", "promoting broadcasting").
    ///
    /// ```
    /// use tilewright_layout::{Exchange, LinearLayout, Reorder};
    /// let a: LinearLayout = "[register: 1 2; lane: 4 8] -> [x:16]".parse()?;
    /// let b: LinearLayout = "[register: 2 1; lane: 4 8] -> [x:16]".parse()?;
    /// let c: LinearLayout = "[register: 4 2; lane: 1 8] -> [x:16]".parse()?;
    /// assert_eq!(Reorder::new(&a, &a)?.exchange, Exchange::Nothing);
    /// assert_eq!(Reorder::new(&a, &b)?.exchange, Exchange::Registers);
    /// let r = Reorder::new(&a, &c)?;
    /// assert_eq!((r.exchange, r.packable), (Exchange::Lanes, vec![(1, 1)]));
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn new(a: &LinearLayout, b: &LinearLayout) -> Result<Reorder, LayoutError> {
        let b = b.transpose_outs_like(a)?;
        for layout in [a, &b] {
            if let Some(dim) = layout.ins().iter().find(|d| !PLACES.contains(&d.name.as_str())) {
                let reason = format!("input {} is not one of register, lane, warp", dim.name);
                return refuse("a conversion between register layouts", layout, reason);
            }
        }
        let sizes = |l: &LinearLayout| PLACES.map(|p| l.bases(p).len() as u32);
        let ([registers, lanes, warps], [to_registers, to_lanes, to_warps]) = (sizes(a), sizes(&b));
        if (lanes, warps) != (to_lanes, to_warps) {
            return refuse(
                "a conversion between register layouts",
                a,
                format!("{b} has other lanes or warps"),
            );
        }
        let all = a.out_bits() + registers.max(to_registers) + lanes + warps;
        if all > super::MAX_BITS {
            let reason = format!(
                "the tile, registers, lanes and warps together have {all} bits, more than {}",
                super::MAX_BITS
            );
            return refuse("a conversion between register layouts", a, reason);
        }
        let columns = |l: &LinearLayout| PLACES.iter().flat_map(|p| l.bases(p).to_vec()).collect::<Vec<_>>();
        let (from, to) = (columns(a), columns(&b));
        let (source, exchange) =
            nearest(&from, &to, [registers, lanes, warps], to_registers).ok_or_else(|| {
                LayoutError::Inadmissible {
                    operation: "a conversion between register layouts",
                    layout: a.to_string(),
                    reason: format!("it does not hold all that {b} wants"),
                }
            })?;
        let dims = |registers: u32| {
            vec![Dim::new("register", registers), Dim::new("lane", lanes), Dim::new("warp", warps)]
        };
        let source = LinearLayout::from_columns(dims(to_registers), dims(registers), source)?;
        let bare = Reorder {
            exchange,
            source,
            before: Vec::new(),
            offer: Vec::new(),
            step: Vec::new(),
            from: Vec::new(),
            after: Vec::new(),
            packable: Vec::new(),
        };
        match bare.exchange {
            Exchange::Warps => Ok(bare),
            _ => Ok(bare.rounds().unwrap_or(Reorder { exchange: Exchange::Warps, ..bare })),
        }
    }

    /// Fills in the rounds; `None` where lanes that read one lane need different registers of it and cannot be told to
    /// read others.
    fn rounds(&self) -> Option<Reorder> {
        let ins = self.source.ins();
        let (registers, lanes, warps) = (ins[0].bits, ins[1].bits, ins[2].bits);
        let of_operand = self.source.outs();
        let register_bits = of_operand[0].bits;
        let split = |c: &u64| {
            let parts = super::unflatten(of_operand, *c);
            (parts[0], parts[1])
        };
        let all: Vec<(u64, u64)> = self.source.columns().iter().map(split).collect();
        let (by_register, rest) = all.split_at(registers as usize);
        let (by_lane, by_warp) = rest.split_at(lanes as usize);
        let firsts = |pairs: &[(u64, u64)]| pairs.iter().map(|p| p.0).collect::<Vec<_>>();
        let seconds = |pairs: &[(u64, u64)]| pairs.iter().map(|p| p.1).collect::<Vec<_>>();
        let (s_rr, s_lr, s_rl, s_ll) =
            (firsts(by_register), seconds(by_register), firsts(by_lane), seconds(by_lane));

        // Lanes k that would all read the lane that lane 0 reads, and want other registers of it, read in rounds of their
        // own: after(k) is a register of the result whose elements come from elsewhere.
        let mut reached = Echelon::of(&s_ll);
        let mut wanting = Vec::new();
        let mut told = Echelon::default();
        for k in kernel(&s_ll) {
            if told.insert(apply(&s_rl, k), 0) {
                wanting.push(k);
            }
        }
        let mut detours = Vec::new();
        for (j, step) in s_lr.iter().enumerate() {
            if detours.len() < wanting.len() && reached.insert(*step, 0) {
                detours.push(1u64 << j);
            }
        }
        if detours.len() < wanting.len() {
            return None;
        }
        // The linear map with after(wanting[i]) = detours[i] that is 0 on unit vectors which complete the `wanting`.
        let units = complement(&wanting, lanes);
        let basis: Vec<u64> = wanting.iter().chain(&units).copied().collect();
        let coordinates = Echelon::of(&basis);
        let after: Vec<u64> = (0..lanes)
            .map(|i| coordinates.solve(1 << i).map(|c| apply(&detours, c & ((1 << detours.len()) - 1))))
            .collect::<Option<_>>()?;
        let sum = |a: Vec<u64>, b: &[u64]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<_>>();
        let from = sum(multiply(&s_lr, &after), &s_ll);
        let wanted = sum(multiply(&s_rr, &after), &s_rl);
        if kernel(&from).iter().any(|k| apply(&wanted, *k) != 0) {
            return None;
        }
        // What the lane that is read offers must depend on that lane: before ∘ from = wanted.
        let inverse = {
            let mut columns = from.clone();
            columns.extend(complement(&from, lanes));
            Echelon::of(&columns)
        };
        let on_lanes: Vec<u64> = (0..lanes)
            .map(|i| inverse.solve(1 << i).map(|c| apply(&wanted, c & ((1 << lanes) - 1))))
            .collect::<Option<_>>()?;
        let offer = sum(multiply(&on_lanes, &s_lr), &s_rr);
        let on_warps: Vec<u64> = by_warp.iter().map(|(r, l)| r ^ apply(&on_lanes, *l)).collect();

        let before: Vec<u64> = on_lanes.into_iter().chain(on_warps).collect();
        let from: Vec<u64> = from.into_iter().chain(by_warp.iter().map(|p| p.1)).collect();
        debug_assert_eq!(from.len(), (lanes + warps) as usize);
        let packable = (0..registers)
            .filter_map(|j| {
                let i = offer[j as usize];
                let alone = i.is_power_of_two()
                    && s_lr[j as usize] == 0
                    && before.iter().all(|b| b & i == 0)
                    && after.iter().all(|a| a >> j & 1 == 0)
                    && (0..registers).all(|o| o == j || offer[o as usize] & i == 0);
                alone.then(|| (j, i.trailing_zeros()))
            })
            .filter(|(_, i)| *i < register_bits)
            .collect();
        Some(Reorder { before, offer, step: s_lr, from, after, packable, ..self.clone() })
    }

    /// The place at which the rounds find the element of (register, lane, warp) of the result, as one integer over the operand's
    /// inputs: for checking.
    pub fn trace(&self, register: u64, lane: u64, warp: u64) -> u64 {
        let lanes = self.source.ins()[1].bits;
        let here = lane | warp << lanes;
        let round = register ^ apply(&self.after, lane);
        let from = apply(&self.from, here) ^ apply(&self.step, round);
        let offered = apply(&self.offer, round) ^ apply(&self.before, from | warp << lanes);
        offered | (from | warp << lanes) << self.source.outs()[0].bits
    }

    /// Rounds that are really exchanges, of those with distinct results: those in which some lane reads another.
    pub fn exchanges(&self) -> u64 {
        let rounds = Echelon::of(&self.round_columns()).rank();
        let lanes = self.step.iter().filter(|s| **s != 0).copied().collect::<Vec<_>>();
        let still = self.from.iter().enumerate().all(|(i, f)| {
            let lanes = self.source.ins()[1].bits as usize;
            *f == if i < lanes { 1 << i } else { 0 }
        });
        let all = 1u64 << rounds;
        if still { all - (all >> Echelon::of(&lanes).rank()) } else { all }
    }

    fn round_columns(&self) -> Vec<u64> {
        let registers = total(&self.source.outs()[..1]);
        self.offer.iter().zip(&self.step).map(|(o, s)| o | s << registers).collect()
    }
}

/// The source map with the least movement that all its columns allow, and what it moves. `bits` are the bits of the
/// operand's registers, lanes and warps.
fn nearest(from: &[u64], to: &[u64], bits: [u32; 3], to_registers: u32) -> Option<(Vec<u64>, Exchange)> {
    let [registers, lanes, warps] = bits;
    // Rows above the tile's say where the element is: its warp, its lane, its register.
    let tile = 64 - from.iter().chain(to).map(|c| c.leading_zeros()).min().unwrap_or(64);
    let places = registers + lanes + warps;
    if tile + places > 62 {
        return None;
    }
    let unit = |j: u32| 1u64 << (tile + j);
    let stage = |mask: u64| {
        let columns: Vec<u64> = from.iter().enumerate().map(|(j, c)| c | (unit(j as u32) & mask)).collect();
        Echelon::of(&columns)
    };
    let range = |low: u32, high: u32| ((1u64 << (tile + high)) - 1) & !((1u64 << (tile + low)) - 1);
    let (registers_mask, lane_mask, warp_mask) =
        (range(0, registers), range(registers, registers + lanes), range(registers + lanes, places));
    let masks = [registers_mask | lane_mask | warp_mask, lane_mask | warp_mask, warp_mask, 0];
    let stages = masks.map(stage);
    let (mut source, mut worst) = (Vec::new(), 0);
    for (j, column) in to.iter().enumerate() {
        let j = j as u32;
        // The same register, lane or warp of the operand; a register that the operand does not have is 0.
        let here = if j < to_registers {
            if j < registers { unit(j) } else { 0 }
        } else {
            unit(j - to_registers + registers)
        };
        let found = stages
            .iter()
            .zip(masks)
            .enumerate()
            .find_map(|(k, (echelon, mask))| echelon.solve(column | (here & mask)).map(|x| (k, x)));
        let (k, x) = found?;
        worst = worst.max(k);
        source.push(x);
    }
    let exchange = match worst {
        0 if to_registers == registers => Exchange::Nothing,
        0 | 1 => Exchange::Registers,
        2 => Exchange::Lanes,
        _ => Exchange::Warps,
    };
    Some((source, exchange))
}
