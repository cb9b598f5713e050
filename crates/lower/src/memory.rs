//! Addresses and guards of accesses.
//!
//! An address is a base per thread plus constants. Global addresses sum the terms that change least first, so that the
//! builder can hoist what does not change in a loop. Shared addresses with a swizzle use that it is linear over bits: where
//! the bits of a thread's offset and of a call's offset are disjoint, `S(t + c) = S(t) ⊕ S(c)`, and the part of `S(c)` that no
//! thread's bits meet is a plain constant.

use tilewright_layout::{Layout, SwizzledLayout, compose};
use tilewright_machine::ScalarOp;
use tilewright_simt::{Address, Build, Builder, Operand, Special, Value};
use tilewright_synth::{Access, Divisibility, access, divisibility::gcd};
use tilewright_tile::{Expr, GlobalTile, SymbolId};

use crate::scalar::{self, both, predicate};

/// The addresses of a statement's accesses to global memory.
pub struct GlobalAddressing<'a> {
    tile: &'a GlobalTile,
    /// Pointer to the buffer; of an array of tensors, to the one in which the tile lies.
    pointer: Operand,
    /// Bits of an element.
    bits: u32,
    /// Per mode of the buffer: tile coordinate → coordinate.
    dims: Vec<Layout>,
    /// Per mode: the thread's coordinate, base included.
    coordinates: Vec<Operand>,
    /// Per mode: its stride.
    strides: Vec<scalar::Stride>,
    /// Per mode: what its coordinates are compared with, if the access can leave it.
    bounds: Vec<Option<Bound>>,
    /// True if addresses and guards of calls may be computed before the loop. Each then holds registers all the while.
    hoist: bool,
}

/// The end of a mode that accesses may leave.
#[derive(Clone, Copy)]
struct Bound {
    extent: Operand,
    /// True if a coordinate may be negative.
    negative: bool,
    /// True if the extent is known not to be negative.
    natural: bool,
}

impl Bound {
    /// Adds the conditions that a coordinate lies within the mode.
    fn conditions(self, b: &mut Builder, coordinate: Operand, conditions: &mut Vec<Operand>) {
        let Bound { extent, negative, natural } = self;
        if negative && natural {
            // As an unsigned number a negative coordinate is beyond every extent.
            conditions.push(b.scalar(ScalarOp::LtU32, &[coordinate, extent]));
            return;
        }
        conditions.push(b.scalar(ScalarOp::LtI32, &[coordinate, extent]));
        if negative {
            conditions.push(b.scalar(ScalarOp::GeI32, &[coordinate, scalar::int(0)]));
        }
    }
}

/// The coordinate along a mode that a register tensor indexes.
#[derive(Clone, Copy)]
pub struct Row {
    /// The index, which may lie anywhere.
    pub index: Operand,
    /// True if an index that lies within the mode leads nowhere outside of the buffer ([`covers`]).
    pub covers: bool,
}

/// True if every index of a mode of this extent leads to a coordinate that the buffer has.
pub fn covers(tile: &GlobalTile, extent: &Expr) -> bool {
    let Some((along, 1)) = tile.indexed else { return false };
    let alone = tile.modes.iter().flatten().all(|(_, dim, scale)| *dim != along || *scale == 0);
    alone && tile.base[along as usize].as_int() == Some(0) && tile.shape[along as usize] == *extent
}

/// Calls of one statement whose addresses are worth keeping through a loop.
const HOISTED_CALLS: usize = 8;

impl<'a> GlobalAddressing<'a> {
    /// Prepares the addresses of an access; `row` is the coordinate along a mode that a register tensor indexes.
    pub fn new(
        b: &mut Builder,
        divisibility: &Divisibility<'_>,
        tile: &'a GlobalTile,
        (access, row): (&Access, Option<Row>),
        bits: u32,
        symbol: &dyn Fn(SymbolId) -> Operand,
    ) -> Option<Self> {
        let eval = |b: &mut Builder, e: &Expr| scalar::expr(b, divisibility, symbol, e);
        let dims = access::buffer_layouts(tile)?;
        let extents = access::extents(tile);
        let thread = Operand::Value(b.special(Special::ThreadIndex));
        let (mut coordinates, mut strides, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
        for (d, layout) in dims.iter().enumerate() {
            let threads = compose(layout, &access.threads).ok()?;
            let own = scalar::layout(b, &threads, thread);
            let base = eval(b, &tile.base[d]);
            let mut coordinate = scalar::add(b, own, base);
            let reaches = tile.indexed.is_some_and(|(along, _)| along as usize == d);
            let step = tile.indexed.filter(|(along, _)| *along as usize == d);
            if let (Some((_, step)), Some(row)) = (step, row) {
                let along = b.scalar(ScalarOp::MulI32, &[row.index, scalar::int(step)]);
                coordinate = scalar::add(b, coordinate, along);
            }
            coordinates.push(coordinate);
            strides.push(scalar::stride(b, divisibility, symbol, &tile.strides[d]));
            let negative = !divisibility.is_nonnegative(&tile.base[d])
                || tile.modes.iter().flatten().any(|(_, dim, scale)| *dim as usize == d && *scale < 0);
            let inside = !negative
                && (divisibility.stays_inside(tile, d, extents[d])
                    || reaches && row.is_some_and(|row| row.covers));
            let natural = divisibility.is_nonnegative(&tile.shape[d]);
            bounds.push(if inside {
                None
            } else {
                Some(Bound { extent: eval(b, &tile.shape[d]), negative, natural })
            });
        }
        let pointer = match (tile.tensor_of_array(), tile.shape.first()) {
            (Some(index), Some(number)) => {
                let at = eval(b, index);
                let inside = scalar::lies_inside(b, divisibility, symbol, (index, at), number);
                scalar::tensor_of_array(b, tile.param, at, inside)
            }
            _ => Operand::Value(b.param(tile.param.0)),
        };
        let hoist = access.calls.len() <= HOISTED_CALLS;
        Some(GlobalAddressing { tile, pointer, bits, dims, coordinates, strides, bounds, hoist })
    }

    /// The place of a call, and the condition under which it lies in the buffer.
    pub fn call(&self, b: &mut Builder, offset: i64) -> (Place, Option<Value>) {
        b.hoisting(self.hoist, |b| self.place(b, offset))
    }

    fn place(&self, b: &mut Builder, offset: i64) -> (Place, Option<Value>) {
        // Offsets count bytes; of elements of a few bits, elements.
        let bytes = i64::from(self.bits / 8).max(1);
        let (mut conditions, mut terms, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let mut constant = 0i64;
        for d in 0..self.dims.len() {
            let step = self.dims[d].eval(offset);
            let at = self.coordinates[d];
            if let Some(bound) = self.bounds[d] {
                let coordinate = scalar::add(b, at, scalar::int(step));
                bound.conditions(b, coordinate, &mut conditions);
            }
            if !self.tile.modes_in_memory().contains(&d) {
                continue;
            }
            // Offsets in bytes: `coordinate · (stride · bytes)` for literal strides, else scaled after the product.
            let literal = self.tile.strides[d].as_int().and_then(|s| s.checked_mul(bytes));
            let shift = i64::from(bytes.trailing_zeros());
            if let Some(stride) = literal.filter(|s| i32::try_from(*s).is_ok()) {
                terms.push(b.scalar(ScalarOp::MulWide, &[at, scalar::int(stride)]));
                constant += step * stride;
            } else if let scalar::Stride::Wide(stride) = self.strides[d] {
                // A product of 64 bits takes several instructions: one for all calls, and a call's own step apart.
                let product = scalar::product(b, at, self.strides[d]);
                terms.push(b.scalar(ScalarOp::ShlB64, &[product, scalar::int(shift)]));
                for part in parts(step) {
                    steps.push(b.scalar(ScalarOp::MulI64, &[stride, Operand::Imm((part * bytes) as u64)]));
                }
            } else {
                let coordinate = scalar::add(b, at, scalar::int(step));
                let product = scalar::product(b, coordinate, self.strides[d]);
                terms.push(b.scalar(ScalarOp::ShlB64, &[product, scalar::int(shift)]));
            }
        }
        // What changes least comes first, so that conditions and sums of what is loop-invariant are themselves invariant.
        conditions.sort_by_key(|c| b.depth(*c));
        let guard = conditions.into_iter().fold(None, |guard, c| Some(both(b, guard, c)));
        terms.sort_by_key(|t| b.depth(*t));
        terms.append(&mut steps);
        if self.bits < 8 {
            return (self.part_of_byte(b, &terms, constant), predicate(b, guard));
        }
        let mut base = self.pointer;
        for term in terms {
            base = b.scalar(ScalarOp::AddI64, &[base, term]);
        }
        let offset = match i32::try_from(constant) {
            Ok(offset) => offset,
            Err(_) => {
                base = b.scalar(ScalarOp::AddI64, &[base, Operand::Imm(constant as u64)]);
                0
            }
        };
        (Place { address: Address { base, offset }, bit: None }, predicate(b, guard))
    }

    /// The place of an element of a few bits, `constant` elements and the terms from the buffer's start.
    fn part_of_byte(&self, b: &mut Builder, terms: &[Operand], constant: i64) -> Place {
        let log = (8 / self.bits).trailing_zeros();
        let mut elements = Operand::Imm(0);
        for term in terms {
            elements = b.scalar(ScalarOp::AddI64, &[elements, *term]);
        }
        // Whole bytes are a plain constant, as far as it reaches.
        let rest = constant & ((1 << log) - 1);
        let (near, far) = match i32::try_from((constant - rest) >> log) {
            Ok(offset) => (rest, offset),
            Err(_) => (constant, 0),
        };
        let elements = b.scalar(ScalarOp::AddI64, &[elements, Operand::Imm(near as u64)]);
        let bytes = b.scalar(ScalarOp::ShrI64, &[elements, scalar::int(i64::from(log))]);
        let base = b.scalar(ScalarOp::AddI64, &[self.pointer, bytes]);
        let low = b.scalar(ScalarOp::LowB32, &[elements]);
        Place { address: Address { base, offset: far }, bit: Some(bit_of(b, low, self.bits)) }
    }
}

/// A step as a sum of powers of two, the largest first: sums of the steps of several calls share their beginnings, and few products.
fn parts(step: i64) -> impl Iterator<Item = i64> {
    let sign = step.signum();
    (0..63).rev().map(move |bit| sign * (step.abs() & 1 << bit)).filter(|part| *part != 0)
}

/// The bit of its byte at which element number `element` begins.
fn bit_of(b: &mut Builder, element: Operand, bits: u32) -> Operand {
    let within = b.scalar(ScalarOp::AndB32, &[element, scalar::int(i64::from(8 / bits - 1))]);
    b.scalar(ScalarOp::ShlB32, &[within, scalar::int(i64::from(bits.trailing_zeros()))])
}

/// The beginning of an access.
#[derive(Clone, Copy)]
pub struct Place {
    /// The byte.
    pub address: Address,
    /// The bit of that byte, of elements of a few bits: 0 where an access begins at a byte.
    pub bit: Option<Operand>,
}

/// Adds a condition to a guard.
pub fn narrow(b: &mut Builder, guard: Option<Value>, condition: Option<Operand>) -> Option<Value> {
    match condition {
        None => guard,
        Some(condition) => {
            let all = both(b, guard.map(Operand::Value), condition);
            predicate(b, Some(all))
        }
    }
}

/// The offset at which the indices of a reference to a shared tensor put its tile: in elements, before the swizzle.
#[derive(Default)]
pub struct Offset {
    /// The part that is known when the kernel is compiled.
    pub constant: i64,
    /// The part that is computed at run time.
    dynamic: Option<Operand>,
    /// A number that divides the dynamic part.
    multiple: i64,
    /// Holds where the dynamic indices lie within their modes; `None` where they are known to.
    pub inside: Option<Operand>,
}

impl Offset {
    /// Adds the value of a mode at an index.
    pub fn add(&mut self, b: &mut Builder, term: Operand, mode: &Layout) {
        let sum = self.dynamic.map_or(term, |sum| scalar::add(b, sum, term));
        self.dynamic = Some(sum);
        let strides = mode.leaves().into_iter().filter(|(extent, _)| *extent > 1).map(|(_, stride)| stride);
        self.multiple = strides.fold(self.multiple, gcd);
    }
}

/// An address outside every block's shared memory: an access through an index that is out of range goes there, and the machine
/// refuses it. No offset within a block's memory leads back.
const NOWHERE: i64 = 0x7f00_0000;

/// The addresses of a statement's accesses to a shared tensor.
pub struct SharedAddressing {
    layout: SwizzledLayout,
    /// Statement's tile coordinate → offset before the swizzle.
    memory: Layout,
    /// Bits of an element.
    bits: u32,
    /// Added to constant offsets before the swizzle.
    constant: i64,
    buffer: i64,
    base: Operand,
    /// Added after the swizzle, in bytes.
    apart: Option<Operand>,
    /// Holds where the tile's indices are in range.
    inside: Option<Operand>,
    /// The thread's offset in elements, before the swizzle and after.
    plain: Operand,
    swizzled: Operand,
    /// Bits that some thread's offset has, before the swizzle and after.
    plain_bits: i64,
    swizzled_bits: i64,
}

impl SharedAddressing {
    /// Prepares the addresses of an access to a tensor at `buffer` bytes in the block's window, its tile at an offset.
    ///
    /// An offset that is a multiple of the swizzle's period is added after it; any other before.
    ///
    pub fn new(
        b: &mut Builder,
        layout: &SwizzledLayout,
        own: &Layout,
        access: &Access,
        (bits, buffer): (u32, u32),
        at: Offset,
    ) -> Option<Self> {
        let memory = compose(&layout.layout, own).ok()?;
        let threads = compose(&memory, &access.threads).ok()?;
        let thread = Operand::Value(b.special(Special::ThreadIndex));
        let mut plain = scalar::layout(b, &threads, thread);
        // What is added after the swizzle is a whole number of bytes.
        let per_byte = i64::from(8 / bits.min(8));
        let period = layout.swizzle.period().max(per_byte);
        let after = at.dynamic.filter(|_| at.multiple % period == 0);
        let before = at.dynamic.filter(|_| after.is_none());
        if let Some(before) = before {
            plain = scalar::add(b, plain, before);
        }
        let swizzled = scalar::swizzle(b, layout.swizzle, plain);
        let offsets = threads.image();
        // A sum with what is not known has any bits.
        let plain_bits = if before.is_some() { -1 } else { offsets.iter().fold(0, |a, x| a | x) };
        let swizzled_bits = offsets.iter().fold(0, |a, x| a | layout.swizzle.apply(*x));
        let base = Operand::Value(b.special(Special::SharedBase));
        Some(SharedAddressing {
            layout: layout.clone(),
            memory,
            bits,
            constant: at.constant % period,
            buffer: i64::from(buffer) + (at.constant - at.constant % period) * i64::from(bits) / 8,
            base,
            apart: after.map(|after| {
                let whole = scalar::divide(b, after, per_byte);
                scalar::scale(b, whole, i64::from(bits.max(8) / 8))
            }),
            inside: at.inside,
            plain,
            swizzled,
            plain_bits,
            swizzled_bits,
        })
    }

    /// The place of a call.
    pub fn call(&self, b: &mut Builder, offset: i64) -> Place {
        let constant = self.memory.eval(offset) + self.constant;
        let (elements, rest) = if self.layout.swizzle.is_identity() {
            (self.plain, constant)
        } else if self.plain_bits & constant == 0 {
            let constant = self.layout.swizzle.apply(constant);
            let meets = constant & self.swizzled_bits;
            if self.bits >= 8 && meets < self.layout.swizzle.period() {
                // What is added is a multiple of the period, and the window begins at one: one sum serves all calls.
                let bytes = i64::from(self.bits / 8);
                let scaled = scalar::scale(b, self.swizzled, bytes);
                let base = scalar::add(b, self.base, scaled);
                let base = self.apart.map_or(base, |apart| scalar::add(b, base, apart));
                // Hoisted, each call's would hold a register.
                let base =
                    b.hoisting(false, |b| b.scalar(ScalarOp::XorB32, &[base, scalar::int(meets * bytes)]));
                return self.within(b, base, (constant & !meets) * bytes, None);
            }
            (b.scalar(ScalarOp::XorB32, &[self.swizzled, scalar::int(meets)]), constant & !meets)
        } else {
            let sum = scalar::add(b, self.plain, scalar::int(constant));
            (scalar::swizzle(b, self.layout.swizzle, sum), 0)
        };
        let place = |b: &mut Builder, base: Operand, offset: i64, bit: Option<Operand>| {
            let base = self.apart.map_or(base, |apart| scalar::add(b, base, apart));
            self.within(b, base, offset, bit)
        };
        if self.bits < 8 {
            let per_byte = i64::from(8 / self.bits);
            let near = rest % per_byte;
            let elements = scalar::add(b, elements, scalar::int(near));
            let bytes = scalar::divide(b, elements, per_byte);
            let base = scalar::add(b, self.base, bytes);
            let bit = bit_of(b, elements, self.bits);
            return place(b, base, (rest - near) / per_byte, Some(bit));
        }
        let bytes = i64::from(self.bits / 8);
        let scaled = scalar::scale(b, elements, bytes);
        let base = scalar::add(b, self.base, scaled);
        place(b, base, rest * bytes, None)
    }

    /// A place in the buffer, or nowhere where the tile's indices are out of range.
    fn within(&self, b: &mut Builder, mut base: Operand, offset: i64, bit: Option<Operand>) -> Place {
        if let Some(inside) = self.inside {
            base = b.scalar(ScalarOp::Select, &[base, scalar::int(NOWHERE), inside]);
        }
        Place { address: Address { base, offset: (self.buffer + offset) as i32 }, bit }
    }
}
