//! Movements between register tensors: moves, rounds of shuffles, and trips through shared memory. Registers of a slice are
//! indices over bits; [`Bits::value`](tilewright_synth::linear::Bits::value) gives the value of the fragment.

use std::collections::HashMap;

use tilewright_layout::LinearLayout;
use tilewright_machine::{ScalarOp, ShuffleMode, SyncOp};
use tilewright_simt::{Address, ArrayId, Operand, Reg, Special};
use tilewright_synth::cast;
use tilewright_synth::movement::{Movement, Shuffles, Side, Trip};
use tilewright_tile::{Diagnostic, Origin, TensorId};

use crate::bits::{assemble, bit, linear_map};
use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{add, int, predicate};

/// An element on its way: a word, and the byte at which the element starts.
pub type Element = (Operand, u32);

/// The bits of `index` spread to the places `bits`.
fn expand(index: u64, bits: &[u32]) -> u64 {
    bits.iter().enumerate().fold(0, |all, (k, bit)| all | (index >> k & 1) << bit)
}

/// The other way around.
fn compress(spread: u64, bits: &[u32]) -> u64 {
    bits.iter().enumerate().fold(0, |all, (k, bit)| all | (spread >> bit & 1) << k)
}

/// Moves that all begin in one fragment.
pub fn moves_from(src: ArrayId, moves: &[(u32, u32)]) -> Vec<(ArrayId, u32, u32)> {
    moves.iter().map(|(from, to)| (src, *from, *to)).collect()
}

impl Lower<'_> {
    /// The thread's index in its block.
    pub(crate) fn thread(&mut self) -> Operand {
        Operand::Value(self.b.special(Special::ThreadIndex))
    }

    /// A word of some values of a fragment, in order from its lowest bits.
    fn word_of(&mut self, array: ArrayId, values: &[u32], bits: u32) -> Operand {
        let places: Vec<(Reg, u32)> = values
            .iter()
            .map(|v| {
                let (reg, shift) = elements::place(array, *v, bits);
                (reg, shift / 8)
            })
            .collect();
        let parts = self.read_all(&places);
        self.pack(&parts, bits)
    }

    /// Reads each register once: elements of one register are elements of one word.
    fn read_all(&mut self, places: &[(Reg, u32)]) -> Vec<Element> {
        let mut words: HashMap<Reg, Operand> = HashMap::new();
        places
            .iter()
            .map(|(reg, byte)| (*words.entry(*reg).or_insert_with(|| self.b.read(*reg)), *byte))
            .collect()
    }

    /// A word of some elements, in order from its lowest bits.
    fn pack(&mut self, parts: &[Element], bits: u32) -> Operand {
        let bytes: Vec<Element> =
            parts.iter().flat_map(|(word, byte)| (0..bits / 8).map(move |k| (*word, byte + k))).collect();
        assemble(self.b, &bytes)
    }

    /// Writes all values of a fragment. What was read for them must have been read before.
    pub(crate) fn write_values(&mut self, array: ArrayId, values: &[Element], bits: u32) {
        let words: Vec<Operand> = values
            .chunks(tilewright_machine::per_register(bits) as usize)
            .map(|parts| self.pack(parts, bits))
            .collect();
        elements::write_words(self.b, array, words);
    }

    /// Moves between the fragments of one thread, (source value, destination value).
    pub(crate) fn moves(&mut self, moves: &[(ArrayId, u32, u32)], dst: ArrayId, bits: u32) {
        let mut ordered = moves.to_vec();
        ordered.sort_unstable_by_key(|m| m.2);
        if bits == 64 {
            let halves = |(array, from, to): &(ArrayId, u32, u32)| {
                [(*array, 2 * from, 2 * to), (*array, 2 * from + 1, 2 * to + 1)]
            };
            let halves: Vec<(ArrayId, u32, u32)> = ordered.iter().flat_map(halves).collect();
            return self.moves(&halves, dst, 32);
        }
        if bits < 8 {
            match whole_bytes(&ordered, bits) {
                Some(bytes) => self.moves(&bytes, dst, 8),
                None => self.few_bits(&ordered, dst, bits),
            }
            return;
        }
        let places: Vec<(Reg, u32)> = ordered
            .iter()
            .map(|(array, from, _)| {
                let (reg, shift) = elements::place(*array, *from, bits);
                (reg, shift / 8)
            })
            .collect();
        let values = self.read_all(&places);
        self.write_values(dst, &values, bits);
    }

    /// [`moves`](Self::moves) of elements of a few bits, one by one, in the order of their destinations.
    fn few_bits(&mut self, ordered: &[(ArrayId, u32, u32)], dst: ArrayId, bits: u32) {
        let mut words: HashMap<Reg, Operand> = HashMap::new();
        let results: Vec<Operand> = ordered
            .chunks(tilewright_machine::per_register(bits) as usize)
            .map(|group| {
                let parts: Vec<Operand> = group
                    .iter()
                    .map(|(array, from, _)| {
                        let (reg, shift) = elements::place(*array, *from, bits);
                        let word = *words.entry(reg).or_insert_with(|| self.b.read(reg));
                        self.b.scalar(ScalarOp::ShrU32, &[word, int(i64::from(shift))])
                    })
                    .collect();
                elements::join(self.b, &parts, bits)
            })
            .collect();
        elements::write_words(self.b, dst, results);
    }

    /// A fragment of elements of a few bits with each in a byte of its own.
    pub(crate) fn in_bytes(&mut self, array: ArrayId, bits: u32, count: u32) -> ArrayId {
        let words = elements::read_words(self.b, array, elements::registers(count, bits));
        let spread = cast::to_bytes(&mut elements::Into(self.b), &words, bits, count);
        let bytes = self.b.add_array("bytes", spread.len() as u32);
        elements::write_words(self.b, bytes, spread);
        bytes
    }

    /// The way back from [`in_bytes`](Self::in_bytes).
    pub(crate) fn out_of_bytes(&mut self, bytes: ArrayId, array: ArrayId, bits: u32, count: u32) {
        let words = elements::read_words(self.b, bytes, elements::registers(count, 8));
        let packed = cast::from_bytes(&mut elements::Into(self.b), &words, bits, count);
        elements::write_words(self.b, array, packed);
    }

    /// A movement from one register tensor to another.
    pub(crate) fn rearrange(
        &mut self,
        src: TensorId,
        dst: TensorId,
        movement: &Movement,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let ends = (self.array(src)?, self.array(dst)?);
        let counts = (self.count(src)?, self.count(dst)?);
        self.movement_of(ends, counts, self.verified.tensor(dst).dtype.bits(), movement, span)
    }

    /// `dst = join(a, b)`: the moves of both sides.
    pub(crate) fn join(
        &mut self,
        sides: [TensorId; 2],
        dst: TensorId,
        halves: &[Vec<(u32, u32)>; 2],
    ) -> Result<(), Diagnostic> {
        let sides = [self.array(sides[0])?, self.array(sides[1])?];
        let [first, second] = halves;
        let moves = [moves_from(sides[0], first), moves_from(sides[1], second)].concat();
        self.moves(&moves, self.array(dst)?, self.verified.tensor(dst).dtype.bits());
        Ok(())
    }

    /// `lo, hi = split(src)`: the moves to both sides.
    pub(crate) fn split(
        &mut self,
        src: TensorId,
        sides: [TensorId; 2],
        halves: &[Vec<(u32, u32)>; 2],
    ) -> Result<(), Diagnostic> {
        let (from, bits) = (self.array(src)?, self.verified.tensor(src).dtype.bits());
        for (side, moves) in sides.into_iter().zip(halves) {
            let to = self.array(side)?;
            self.moves(&moves_from(from, moves), to, bits);
        }
        Ok(())
    }

    /// A movement from one fragment to another, of `counts` values each. Between threads, elements of a few bits travel
    /// in bytes.
    pub(crate) fn movement_of(
        &mut self,
        ends: (ArrayId, ArrayId),
        counts: (u32, u32),
        bits: u32,
        movement: &Movement,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        if bits >= 8 || matches!(movement, Movement::Registers(_)) {
            return self.movement(ends, bits, movement, span);
        }
        let from = self.in_bytes(ends.0, bits, counts.0);
        let to = self.b.add_array("bytes", elements::registers(counts.1, 8));
        self.movement((from, to), 8, movement, span)?;
        self.out_of_bytes(to, ends.1, bits, counts.1);
        Ok(())
    }

    /// A movement from one fragment to another.
    pub(crate) fn movement(
        &mut self,
        (src, dst): (ArrayId, ArrayId),
        bits: u32,
        movement: &Movement,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        match movement {
            Movement::Registers(moves) => {
                self.moves(&moves_from(src, moves), dst, bits);
                Ok(())
            }
            Movement::Shuffles(shuffles) if bits == 64 => {
                let given = (shuffles.from.slices() as u32) << shuffles.from.register_bits();
                let taken = (shuffles.to.slices() as u32) << shuffles.to.register_bits();
                let halves = self.halves_of(src, given);
                let shuffled = halves.map(|half| {
                    let to = self.b.add_array("half", taken);
                    self.shuffles(shuffles, half, to, 32);
                    to
                });
                for index in 0..taken {
                    for (half, array) in (0..).zip(shuffled) {
                        let word = self.b.read(Reg { array, index });
                        self.b.write(Reg { array: dst, index: 2 * index + half }, word);
                    }
                }
                Ok(())
            }
            Movement::Shuffles(shuffles) => {
                self.shuffles(shuffles, src, dst, bits);
                Ok(())
            }
            Movement::Shared(trip) => self.trip(trip, (src, dst), bits, span),
        }
    }

    /// The lower and the upper halves of a fragment of so many elements of 64 bits.
    pub(crate) fn halves_of(&mut self, array: ArrayId, count: u32) -> [ArrayId; 2] {
        [0, 1].map(|half| {
            let to = self.b.add_array("half", count);
            for index in 0..count {
                let word = self.b.read(Reg { array, index: 2 * index + half });
                self.b.write(Reg { array: to, index }, word);
            }
            to
        })
    }

    /// Selects between pairs of words by the bits of the thread's index: afterwards word `x` is what word
    /// `x ⊕ columns(thread)` was. `free` are the places of the bits of a word's index in `columns`.
    fn permute_by_thread(&mut self, words: &mut [Operand], columns: &[u64], free: &[u32]) {
        let thread = self.thread();
        for (k, column) in columns.iter().enumerate().filter(|(_, c)| **c != 0) {
            let distance = compress(*column, free) as usize;
            let swap = bit(self.b, thread, k as u32);
            let old = words.to_vec();
            for (x, word) in words.iter_mut().enumerate() {
                *word = self.b.scalar(ScalarOp::Select, &[old[x ^ distance], old[x], swap]);
            }
        }
    }

    fn shuffles(&mut self, s: &Shuffles, src: ArrayId, dst: ArrayId, bits: u32) {
        let others = |registers: u32, taken: &dyn Fn(u32) -> bool| -> Vec<u32> {
            (0..registers).filter(|b| !taken(*b)).collect()
        };
        let free_from = others(s.from.register_bits(), &|b| s.packed.iter().any(|p| p.1 == b));
        let free_to = others(s.to.register_bits(), &|b| s.packed.iter().any(|p| p.0 == b));
        let packed_from: Vec<u32> = s.packed.iter().map(|p| p.1).collect();
        let packed_to: Vec<u32> = s.packed.iter().map(|p| p.0).collect();
        let in_a_word = 1u64 << s.packed.len();
        let lanes = s.reorder.source.ins()[1].bits as usize;
        let still = s.reorder.from.iter().enumerate().all(|(k, f)| *f == if k < lanes { 1 << k } else { 0 });
        let thread = self.thread();
        let lane = if still { int(0) } else { linear_map(self.b, &s.reorder.from, thread) };
        let count = (s.to.slices() as usize) << s.to.register_bits();
        let mut values: Vec<Element> = vec![(int(0), 0); count];
        for slice in 0..s.from.slices() {
            let mut words: Vec<Operand> = (0..1u64 << free_from.len())
                .map(|x| {
                    let base = expand(x, &free_from);
                    let values: Vec<u32> =
                        (0..in_a_word).map(|e| s.from.value(base | expand(e, &packed_from), slice)).collect();
                    self.word_of(src, &values, bits)
                })
                .collect();
            self.permute_by_thread(&mut words, &s.reorder.before, &free_from);
            let mut received: HashMap<(u64, u64), Operand> = HashMap::new();
            let mut got: Vec<Operand> = Vec::new();
            for k in 0..1u64 << free_to.len() {
                let register = expand(k, &free_to);
                let offer = compress(apply(&s.reorder.offer, register), &free_from);
                let step = apply(&s.reorder.step, register);
                let word = match received.get(&(offer, step)) {
                    Some(word) => *word,
                    None if still && step == 0 => words[offer as usize],
                    None => {
                        let (mode, operand) = if still {
                            (ShuffleMode::Bfly, int(step as i64))
                        } else {
                            let from = self.b.scalar(ScalarOp::XorB32, &[lane, int(step as i64)]);
                            (ShuffleMode::Idx, from)
                        };
                        self.b.shuffle(words[offer as usize], mode, operand)
                    }
                };
                received.insert((offer, step), word);
                got.push(word);
            }
            self.permute_by_thread(&mut got, &s.reorder.after, &free_to);
            for (k, word) in got.into_iter().enumerate() {
                for e in 0..in_a_word {
                    let register = expand(k as u64, &free_to) | expand(e, &packed_to);
                    values[s.to.value(register, slice) as usize] = (word, e as u32 * bits / 8);
                }
            }
        }
        self.write_values(dst, &values, bits);
    }

    /// A trip through the scratch buffer.
    pub(crate) fn trip(
        &mut self,
        trip: &Trip,
        (src, dst): (ArrayId, ArrayId),
        bits: u32,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        self.store_side(&trip.memory, &trip.store, src, bits, span)?;
        self.load_side(&trip.memory, &trip.load, dst, bits, span)
    }

    /// The addresses of a side's registers and threads: bytes for each bit of a register, and the thread's base.
    fn offsets(
        &mut self,
        memory: &LinearLayout,
        side: &Side,
        bits: u32,
        span: Origin,
    ) -> Result<(Vec<u64>, SharedBase), Diagnostic> {
        let offsets = memory.inverse().and_then(|m| m.compose(side.bits.linear()));
        let offsets = offsets.map_err(|_| internal(span, "a shared layout that is not a bijection"))?;
        let shift = (bits / 8).trailing_zeros();
        let bytes = |input: &str| offsets.bases(input).iter().map(|c| c << shift).collect::<Vec<u64>>();
        let threads: Vec<u64> = bytes("lane").into_iter().chain(bytes("warp")).collect();
        let thread = self.thread();
        let own = linear_map(self.b, &threads, thread);
        let reached = threads.iter().fold(0, |all, c| all | c);
        Ok((bytes("register"), SharedBase { own, reached, slice: 1 << (memory.in_bits() + shift) }))
    }

    /// The address of an access at `constant` bytes from the thread's own place.
    fn place(&mut self, base: &SharedBase, constant: u64, slice: i64) -> Address {
        let meets = constant & base.reached;
        let own = self.b.scalar(ScalarOp::XorB32, &[base.own, int(meets as i64)]);
        let window = Operand::Value(self.b.special(Special::SharedBase));
        let address = add(self.b, window, own);
        let rest = (constant & !base.reached) as i64 + slice * base.slice;
        Address { base: address, offset: self.memory.scratch as i32 + rest as i32 }
    }

    /// The registers that one access moves after another: for each the index without the vector's bits.
    fn calls(side: &Side) -> (Vec<u64>, Vec<u64>) {
        let vector = &side.access.vector;
        let others: Vec<u32> = (0..side.bits.register_bits()).filter(|b| !vector.contains(b)).collect();
        let calls = (0..1u64 << others.len()).map(|k| expand(k, &others)).collect();
        let elements = (0..1u64 << vector.len()).map(|e| expand(e, vector)).collect();
        (calls, elements)
    }

    /// Stores a fragment to the scratch buffer, each element by one of those who hold it, and waits for all.
    pub(crate) fn store_side(
        &mut self,
        memory: &LinearLayout,
        side: &Side,
        src: ArrayId,
        bits: u32,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        // Others may still read what they exchanged before.
        if self.scratch_used || self.loops > 0 {
            self.b.sync(SyncOp::Barrier);
        }
        self.scratch_used = true;
        let (registers, base) = self.offsets(memory, side, bits, span)?;
        let free = side.bits.linear().free_bits();
        let copies = |name: &str| free.iter().find(|f| f.0 == name).map_or(0, |f| f.1);
        let lanes = side.bits.linear().bases("lane").len();
        let mask = copies("lane") | copies("warp") << lanes;
        let guard = if mask == 0 {
            None
        } else {
            let thread = self.thread();
            let extra = self.b.scalar(ScalarOp::AndB32, &[thread, int(mask as i64)]);
            let first = self.b.scalar(ScalarOp::EqI32, &[extra, int(0)]);
            predicate(self.b, Some(first))
        };
        let (calls, elements) = Self::calls(side);
        let scratch = self.b.add_array("exchanged", side.row.registers());
        for slice in 0..side.bits.slices() {
            for call in &calls {
                let constant = apply(&registers, *call);
                let address = self.place(&base, constant, slice);
                let values: Vec<u32> = elements.iter().map(|e| side.bits.value(call | e, slice)).collect();
                let words: Vec<&[u32]> =
                    values.chunks(tilewright_machine::per_register(bits) as usize).collect();
                let aligned = words.iter().all(|w| is_register(w, bits));
                let regs = words
                    .iter()
                    .enumerate()
                    .flat_map(|(k, word)| {
                        if aligned {
                            return elements::places(src, word, bits);
                        }
                        let packed = self.word_of(src, word, bits);
                        let reg = Reg { array: scratch, index: k as u32 };
                        self.b.write(reg, packed);
                        vec![reg]
                    })
                    .collect();
                self.b.store(side.row, regs, address, guard);
            }
        }
        self.b.sync(SyncOp::Barrier);
        Ok(())
    }

    fn load_side(
        &mut self,
        memory: &LinearLayout,
        side: &Side,
        dst: ArrayId,
        bits: u32,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let (registers, base) = self.offsets(memory, side, bits, span)?;
        let (calls, elements) = Self::calls(side);
        let count = (side.bits.slices() as usize) << side.bits.register_bits();
        let per_register = tilewright_machine::per_register(bits);
        // Straight into the fragment where a call fills whole registers of it in order.
        let whole = |call: u64, slice: i64| {
            let values: Vec<u32> = elements.iter().map(|e| side.bits.value(call | e, slice)).collect();
            let fits = values.chunks(per_register as usize).all(|w| is_register(w, bits));
            fits.then_some(values)
        };
        let width = side.row.registers();
        let all: Vec<(i64, u64)> =
            (0..side.bits.slices()).flat_map(|s| calls.iter().map(move |c| (s, *c))).collect();
        let direct = all.iter().all(|(slice, call)| whole(*call, *slice).is_some());
        let arrived = if direct { dst } else { self.b.add_array("arrived", width * all.len() as u32) };
        let mut places: Vec<(Reg, u32)> = vec![(Reg { array: arrived, index: 0 }, 0); count];
        for (n, (slice, call)) in all.iter().enumerate() {
            let address = self.place(&base, apply(&registers, *call), *slice);
            let regs: Vec<Reg> = match whole(*call, *slice).filter(|_| direct) {
                Some(values) => elements::places(dst, &values, bits),
                None => (0..width).map(|k| Reg { array: arrived, index: n as u32 * width + k }).collect(),
            };
            for (k, e) in elements.iter().enumerate() {
                // Of elements in two registers, each call fills its own directly.
                let at = k as u32 * bits;
                places[side.bits.value(call | e, *slice) as usize] = (regs[(at / 32) as usize], at % 32 / 8);
            }
            self.b.load(side.row, regs, address, None);
        }
        if !direct {
            let values = self.read_all(&places);
            self.write_values(dst, &values, bits);
        }
        Ok(())
    }
}

/// The moves of whole bytes that moves of elements of a few bits, in the order of their destinations, come down to; `None`
/// where they split a byte.
fn whole_bytes(ordered: &[(ArrayId, u32, u32)], bits: u32) -> Option<Vec<(ArrayId, u32, u32)>> {
    let per_byte = 8 / bits;
    let byte = |group: &[(ArrayId, u32, u32)]| {
        let (array, from, to) = group[0];
        let whole = group.len() == per_byte as usize
            && from % per_byte == 0
            && group.iter().zip(from..).all(|(m, next)| (m.0, m.1) == (array, next));
        whole.then_some((array, from / per_byte, to / per_byte))
    };
    ordered.chunks(per_byte as usize).map(byte).collect()
}

/// True if these values are all those of one register, in order.
fn is_register(values: &[u32], bits: u32) -> bool {
    let all = tilewright_machine::per_register(bits) as usize;
    values.len() == all
        && values[0].is_multiple_of(all as u32)
        && values.iter().enumerate().all(|(k, v)| *v == values[0] + k as u32)
}

/// The place of a thread in the scratch buffer.
struct SharedBase {
    /// Its offset in bytes.
    own: Operand,
    /// The bits that some thread's offset has.
    reached: u64,
    /// Bytes of a slice.
    slice: i64,
}

/// The image of an index over bits.
pub(crate) fn apply(columns: &[u64], index: u64) -> u64 {
    columns.iter().enumerate().filter(|(k, _)| index >> k & 1 == 1).fold(0, |all, (_, c)| all ^ c)
}
