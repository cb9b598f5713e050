//! Matrix products of a warpgroup: their tables, the unit that executes them in order, and their arithmetic.

use std::collections::VecDeque;
use std::sync::LazyLock;

use tilewright_machine::{DType, Descriptor, Major, WgmmaRow};

use crate::clock::{Agent, HappensBefore};
use crate::memory::SHARED_BASE;
use crate::tables::{column, half_table, multiply_kept};

/// Bytes that lie together in an operand.
pub(crate) const CHUNK: u32 = 16;

/// The place of a chunk that lies in no shared buffer.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// For each value of a fragment, the position in the tile of each thread's.
type Threads = Vec<[u16; 128]>;

/// A product as data.
#[derive(Debug)]
pub(crate) struct WgmmaTable {
    pub row: &'static WgmmaRow,
    a: Threads,
    c: Threads,
    /// The places of a sparse A's elements.
    meta: Option<Threads>,
}

/// The left factor of a product that has been issued.
#[derive(Clone, Debug)]
pub(crate) enum Left {
    /// In these registers.
    Registers(Vec<u32>),
    /// In these chunks of shared memory.
    Shared(Operand),
}

/// An operand in shared memory: where its chunks lie, in the order of [`chunks`].
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub places: Vec<u32>,
    pub major: Major,
}

/// A product that has been issued.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// Index into the program's tables.
    pub table: u32,
    pub d: Vec<u32>,
    pub a: Left,
    pub b: Operand,
    /// The register of metadata.
    pub meta: Option<u32>,
    pub accumulate: bool,
}

/// The matrix unit of a warpgroup.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub agent: Agent,
    /// Products that have been issued and not executed, in order.
    pub queue: VecDeque<Product>,
    /// Products that have been executed.
    pub executed: u32,
    /// Cycle at which it is free.
    pub free: u64,
    /// Of the last products that have been issued: their numbers, and what their warps had executed.
    executions: VecDeque<(u32, HappensBefore)>,
}

/// Products whose executions are kept.
const KEPT: usize = 64;

impl Unit {
    pub(crate) fn new(agent: Agent) -> Self {
        Unit { agent, queue: VecDeque::new(), executed: 0, free: 0, executions: VecDeque::new() }
    }

    /// Issues a product, which ends after what its warps had executed.
    pub(crate) fn issue(&mut self, product: Product, executed: HappensBefore) {
        self.queue.push_back(product);
        self.executions.push_back((self.issued(), executed));
        if self.executions.len() > KEPT {
            self.executions.pop_front();
        }
    }

    /// Events that the warps had executed before they issued the last of the first `products` products.
    pub(crate) fn execution(&self, products: u32) -> Option<&HappensBefore> {
        self.executions.iter().rev().find(|(number, _)| *number <= products).map(|(_, executed)| executed)
    }

    /// Products that have been issued.
    pub(crate) fn issued(&self) -> u32 {
        self.executed + self.queue.len() as u32
    }
}

fn threads(tv: &tilewright_layout::Layout) -> Threads {
    (0..tv.size() / 128).map(|v| std::array::from_fn(|t| tv.eval(t as i64 + 128 * v) as u16)).collect()
}

impl WgmmaTable {
    pub(crate) fn new(row: &'static WgmmaRow) -> Self {
        let meta = row.sparsity.as_ref().map(|sparsity| threads(&sparsity.meta_tv));
        WgmmaTable { row, a: threads(&row.a_tv), c: threads(&row.c_tv), meta }
    }

    /// Offsets in the window of the chunks of an operand of `mn` rows, by its descriptor alone.
    pub(crate) fn places(&self, bits: u64, major: Major, left: bool) -> Vec<u32> {
        let (mn, k, dtype) = match left {
            true => (WgmmaRow::M, self.row.a_columns(), self.row.a),
            false => (self.row.n, self.row.k, self.row.b),
        };
        operand_places(bits, major, (mn, k), dtype)
    }
}

/// Offsets in the window of the chunks of an operand of `mn`×`k` elements, by its descriptor alone.
pub(crate) fn operand_places(bits: u64, major: Major, (mn, k): (i64, i64), dtype: DType) -> Vec<u32> {
    let descriptor = Descriptor::decode(bits);
    let swizzle = descriptor.swizzle.bytes();
    let bytes = i64::from(dtype.bits() / 8);
    let place = |(mn, k)| {
        let address = i64::from(descriptor.start) + descriptor.offset(major, mn, k, bytes);
        let address = swizzle.apply(address) as u32 & 0x3ffff;
        address.wrapping_sub(SHARED_BASE)
    };
    chunks(mn, k, bytes, major).map(place).collect()
}

/// The (mn, k) of the first element of each 16 bytes of an operand.
fn chunks(mn: i64, k: i64, bytes: i64, major: Major) -> impl Iterator<Item = (i64, i64)> {
    let per = i64::from(CHUNK) / bytes;
    let (rows, inner) = if major == Major::K { (mn, k / per) } else { (k, mn / per) };
    (0..rows).flat_map(move |row| {
        (0..inner).map(move |i| if major == Major::K { (row, per * i) } else { (per * i, row) })
    })
}

/// A number that a product computes with.
pub(crate) trait Number: Copy + Default {
    fn decode(dtype: DType) -> impl Fn(u32) -> Self;
    /// Of an accumulator, which is not truncated where it has 32 bits.
    fn decode_sum(dtype: DType) -> impl Fn(u32) -> Self;
    fn encode(self, dtype: DType) -> u32;
    fn fma(self, a: Self, b: Self) -> Self;
}

/// Floats in a byte to `f32`, by type and bits.
static BYTES: LazyLock<[Vec<f32>; 4]> = LazyLock::new(|| {
    [DType::E4M3, DType::E5M2, DType::E3M2, DType::E2M3]
        .map(|dtype| (0..256u32).map(|bits| dtype.decode(bits) as f32).collect())
});

impl Number for f32 {
    fn decode(dtype: DType) -> impl Fn(u32) -> f32 {
        let table: &'static [f32] = match dtype {
            DType::F16 => half_table(),
            DType::E4M3 => &BYTES[0],
            DType::E5M2 => &BYTES[1],
            DType::E3M2 => &BYTES[2],
            DType::E2M3 => &BYTES[3],
            _ => &[],
        };
        move |bits| match dtype {
            DType::BF16 => f32::from_bits(bits << 16),
            // The lower bits of a tf32 are not read.
            DType::F32 => f32::from_bits(bits & !0x1fff),
            _ => table.get(bits as usize).copied().unwrap_or(f32::NAN),
        }
    }

    fn decode_sum(dtype: DType) -> impl Fn(u32) -> f32 {
        let narrow = Self::decode(dtype);
        move |bits| if dtype == DType::F32 { f32::from_bits(bits) } else { narrow(bits) }
    }

    fn encode(self, dtype: DType) -> u32 {
        if dtype == DType::F32 { self.to_bits() } else { dtype.encode(f64::from(self)) as u32 }
    }

    fn fma(self, a: f32, b: f32) -> f32 {
        self + a * b
    }
}

impl Number for i32 {
    fn decode(dtype: DType) -> impl Fn(u32) -> i32 {
        let (signed, unused) = (dtype.is_signed(), 32 - dtype.bits());
        move |bits| if signed { (bits << unused) as i32 >> unused } else { bits as i32 }
    }

    fn decode_sum(_: DType) -> impl Fn(u32) -> i32 {
        |bits| bits as i32
    }

    fn encode(self, _: DType) -> u32 {
        self as u32
    }

    fn fma(self, a: i32, b: i32) -> i32 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

/// Tiles of one kind of number, kept between products to save their allocation.
#[derive(Debug, Default)]
pub(crate) struct Tiles<T> {
    /// `[k][m]`, of a sparse A the elements that are there.
    a: Vec<T>,
    /// `[k][m]`: for each element of a sparse A its column of the whole factor.
    columns: Vec<u16>,
    /// `[n][k]`.
    b: Vec<T>,
    /// `[n][m]`.
    c: Vec<T>,
}

/// Rows of A and D that are computed together.
const BLOCK: usize = 16;
const M: usize = WgmmaRow::M as usize;

impl<T: Number> Tiles<T> {
    /// Adds the product of both factors.
    fn multiply(&mut self, k: usize) {
        for (c, b) in self.c.chunks_exact_mut(M).zip(self.b.chunks_exact(k)) {
            for (i, c) in c.chunks_exact_mut(BLOCK).enumerate() {
                let mut sum = [T::default(); BLOCK];
                sum.copy_from_slice(c);
                for (a, b) in self.a[BLOCK * i..].chunks(M).zip(b) {
                    for (sum, a) in sum.iter_mut().zip(&a[..BLOCK]) {
                        *sum = sum.fma(*a, *b);
                    }
                }
                c.copy_from_slice(&sum);
            }
        }
    }

    /// Adds the product of both factors, the left of which is sparse.
    fn multiply_kept(&mut self, k: usize) {
        for (c, b) in self.c.chunks_exact_mut(M).zip(self.b.chunks_exact(k)) {
            multiply_kept(c, &self.a, &self.columns, |k| b[k]);
        }
    }
}

/// The registers of the four warps.
pub(crate) type Registers<'a> = [&'a mut [[u32; 32]]; 4];

impl WgmmaTable {
    /// Executes products one after the other, all of this table and into the same registers. Products and sums are `f32` in the order of
    /// rising k, rounded once a product to D's type; of integers `i32`.
    pub(crate) fn execute(
        &self,
        products: &[Product],
        registers: &mut Registers<'_>,
        shared: &[u8],
        (floats, integers): (&mut Tiles<f32>, &mut Tiles<i32>),
    ) {
        if self.row.a.is_float() {
            self.compute(products, registers, shared, floats);
        } else {
            self.compute(products, registers, shared, integers);
        }
    }

    fn compute<T: Number>(
        &self,
        products: &[Product],
        registers: &mut Registers<'_>,
        shared: &[u8],
        tiles: &mut Tiles<T>,
    ) {
        let (n, k) = (self.row.n as usize, self.row.k as usize);
        let columns = self.row.a_columns() as usize;
        tiles.a.resize(M * columns, T::default());
        tiles.b.resize(n * k, T::default());
        tiles.c.resize(M * n, T::default());
        for (i, product) in products.iter().enumerate() {
            match &product.a {
                Left::Registers(regs) => {
                    place(&mut tiles.a, &self.a, self.row.a, registers, regs, T::decode(self.row.a));
                }
                Left::Shared(operand) => {
                    read(operand, (M, columns), self.row.a, shared, |mn, k, x| tiles.a[k * M + mn] = x);
                }
            }
            read(&product.b, (n, k), self.row.b, shared, |mn, kk, x| tiles.b[mn * k + kk] = x);
            if !product.accumulate {
                tiles.c.fill(T::default());
            } else if i == 0 {
                let decode = T::decode_sum(self.row.c);
                place(&mut tiles.c, &self.c, self.row.c, registers, &product.d, decode);
            }
            if self.find_columns(registers, product.meta, &mut tiles.columns) {
                tiles.multiply_kept(k);
            } else {
                tiles.multiply(k);
            }
            if self.row.c.bits() < 32 {
                let decode = T::decode_sum(self.row.c);
                tiles.c.iter_mut().for_each(|c| *c = decode(c.encode(self.row.c)));
            }
        }
        if let Some(last) = products.last() {
            self.scatter(&tiles.c, registers, &last.d);
        }
    }

    /// The column of the whole factor of each element of a sparse A, by its metadata; false where A is not sparse.
    fn find_columns(&self, registers: &Registers<'_>, meta: Option<u32>, columns: &mut Vec<u16>) -> bool {
        let (Some(sparsity), Some(table), Some(meta)) = (&self.row.sparsity, &self.meta, meta) else {
            return false;
        };
        columns.resize(M * self.row.a_columns() as usize, 0);
        for (value, positions) in table.iter().enumerate() {
            for (warp, positions) in registers.iter().zip(positions.chunks_exact(32)) {
                let words = positions.iter().zip(&warp[meta as usize]).enumerate();
                for (_, (position, word)) in words.filter(|(lane, _)| sparsity.reads(*lane as u32)) {
                    let position = usize::from(*position);
                    columns[position] = column(position / M, word >> (2 * value) & 3);
                }
            }
        }
        true
    }

    fn scatter<T: Number>(&self, tile: &[T], registers: &mut Registers<'_>, to: &[u32]) {
        let (dtype, bits) = (self.row.c, self.row.c.bits());
        let per = tilewright_machine::per_register(bits) as usize;
        for (value, positions) in self.c.iter().enumerate() {
            let shift = (value % per) as u32 * bits;
            let mask = (u32::MAX >> (32 - bits)) << shift;
            for (warp, positions) in registers.iter_mut().zip(positions.chunks_exact(32)) {
                let words = &mut warp[to[value / per] as usize];
                for (word, position) in words.iter_mut().zip(positions) {
                    let encoded = tile[usize::from(*position)].encode(dtype);
                    *word = (*word & !mask) | encoded << shift;
                }
            }
        }
    }
}

/// Reads fragments from the registers of four warps.
fn place<T: Number>(
    tile: &mut [T],
    table: &Threads,
    dtype: DType,
    registers: &Registers<'_>,
    from: &[u32],
    decode: impl Fn(u32) -> T,
) {
    let bits = dtype.bits();
    let per = tilewright_machine::per_register(bits) as usize;
    let mask = u32::MAX >> (32 - bits);
    for (value, positions) in table.iter().enumerate() {
        let shift = (value % per) as u32 * bits;
        for (warp, positions) in registers.iter().zip(positions.chunks_exact(32)) {
            for (word, position) in warp[from[value / per] as usize].iter().zip(positions) {
                tile[usize::from(*position)] = decode(word >> shift & mask);
            }
        }
    }
}

/// Reads an operand from shared memory; what lies in no buffer is zero.
pub(crate) fn read<T: Number>(
    operand: &Operand,
    (mn, k): (usize, usize),
    dtype: DType,
    shared: &[u8],
    mut set: impl FnMut(usize, usize, T),
) {
    let decode = T::decode(dtype);
    let bytes = (dtype.bits() / 8) as usize;
    let all = chunks(mn as i64, k as i64, bytes as i64, operand.major);
    for ((mn, k), place) in all.zip(&operand.places) {
        let (mn, k) = (mn as usize, k as usize);
        let data = shared.get(*place as usize..).and_then(|s| s.get(..CHUNK as usize)).unwrap_or(&[0; 16]);
        for (i, element) in data.chunks_exact(bytes).enumerate() {
            let bits = element.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
            if operand.major == Major::K {
                set(mn, k + i, decode(bits))
            } else {
                set(mn + i, k, decode(bits))
            }
        }
    }
}
