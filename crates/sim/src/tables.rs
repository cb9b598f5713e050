//! Index tables of collective instructions, made once a program from the layouts of their rows.

use half::f16;
use std::sync::LazyLock;
use tilewright_layout::Layout;
use tilewright_machine::{CopyRow, DType, Memory, MmaRow, Scaling, Sparsity};

use crate::wgmma::Number;

/// For each value of a fragment, the position in the instruction tile of each lane's.
type Lanes = Vec<[u16; 32]>;

fn lanes(tv: &Layout) -> Lanes {
    let values = tv.size() / 32;
    (0..values).map(|v| std::array::from_fn(|lane| tv.eval(lane as i64 + 32 * v) as u16)).collect()
}

fn fits(tv: &Layout, size: i64) -> bool {
    tv.size() % 32 == 0 && tv.size() <= 1 << 15 && tv.image().iter().all(|i| (0..size).contains(i))
}

/// A copy between tensor memory and registers as data: for each register the cell of each lane of the warp.
#[derive(Debug)]
pub(crate) struct CopyTable {
    pub row: &'static CopyRow,
    pub lanes: u32,
    pub columns: u32,
    pub cells: Vec<[u32; 32]>,
}

impl CopyTable {
    pub(crate) fn new(row: &'static CopyRow, lanes: u32, registers: u32) -> Self {
        let tv = row.register_tv();
        let cells =
            (0..i64::from(registers)).map(|r| std::array::from_fn(|t| tv.eval(t as i64 + 32 * r) as u32));
        CopyTable { row, lanes, columns: 32 * registers / lanes, cells: cells.collect() }
    }

    pub(crate) fn loads(&self) -> bool {
        self.row.dst == Memory::Register
    }
}

/// A matrix copy as data: shared rows on one side, registers on the other, an instruction tile between.
#[derive(Debug)]
pub(crate) struct MatrixTable {
    /// True if it writes shared memory.
    pub store: bool,
    /// For each lane whose address counts, the tile positions of its row's eight elements.
    pub memory: Vec<[u16; 8]>,
    /// For each 16-bit value of the fragment, each lane's tile position.
    pub register: Lanes,
}

impl MatrixTable {
    /// The table of a row, or what the simulator lacks for it.
    pub(crate) fn new(row: &CopyRow) -> Result<Self, &'static str> {
        let (memory, register) = (row.memory_tv(), row.register_tv());
        if row.unit_bits != 16 || row.bytes != 16 {
            return Err("only rows of eight 16-bit elements are");
        }
        let rows = memory.size() / 8;
        let size = register.size();
        if memory.size() != size || size > 256 || rows > 32 || !fits(register, size) || !fits(memory, size) {
            return Err("its layouts do not fit one warp");
        }
        let memory = (0..rows)
            .map(|lane| std::array::from_fn(|u| memory.eval(lane + rows * u as i64) as u16))
            .collect();
        let store = row.dst == Memory::Shared;
        Ok(MatrixTable { store, memory, register: lanes(register) })
    }
}

/// `f16` to `f32`, by bits.
static F16: LazyLock<Vec<f32>> =
    LazyLock::new(|| (0..=u16::MAX).map(|b| f16::from_bits(b).to_f32()).collect());

/// `f16` to `f32`, by bits.
pub(crate) fn half_table() -> &'static [f32] {
    &F16
}

/// A matrix product as data.
#[derive(Debug)]
pub(crate) struct MmaTable {
    row: &'static MmaRow,
    a: Lanes,
    b: Lanes,
    c: Lanes,
    /// The places of a sparse A's elements.
    meta: Option<Lanes>,
    scales: Option<ScaleTables>,
}

/// The scales of a block-scaled product as data, with the numbers of the factors' elements and of the scales by their bits.
#[derive(Debug)]
struct ScaleTables {
    places: [Lanes; 2],
    elements: [Vec<f64>; 2],
    scales: Vec<f64>,
}

/// The operand tiles of a product, kept between products to save their allocation.
#[derive(Debug, Default)]
pub(crate) struct MmaTiles {
    floats: Operands<f32>,
    integers: Operands<i32>,
    /// Those of products of `f64`.
    wide: [Vec<f64>; 3],
}

/// The operand tiles of products of one kind of number.
#[derive(Debug, Default)]
struct Operands<T> {
    /// Of a sparse A the elements that are there.
    a: Vec<T>,
    /// For each element of a sparse A its column of the whole factor.
    columns: Vec<u16>,
    b: Vec<T>,
    c: Vec<T>,
}

impl MmaTable {
    /// The table of a row, or what the simulator lacks for it.
    pub(crate) fn new(row: &'static MmaRow) -> Result<Self, &'static str> {
        let all = |of: fn(DType) -> bool| row.factors().into_iter().all(of);
        let integers = all(|dtype| dtype.range().is_some() && dtype.bits() <= 8) && row.c == DType::I32;
        let floats = all(DType::is_float) && row.c.is_float();
        if !(integers || floats) || row.a.bits() != row.b.bits() {
            return Err("only products of floats, and of integers of at most 8 bits into i32, are");
        }
        let (m, n, k) = (row.m, row.n, row.k);
        let left = m * row.a_columns();
        let meta = row.sparsity.as_ref().map(|sparsity| &sparsity.meta_tv);
        let fit = fits(&row.a_tv, left) && fits(&row.b_tv, n * k) && fits(&row.c_tv, m * n);
        if !(fit && meta.is_none_or(|tv| fits(tv, left))) {
            return Err("its layouts do not fit its tile");
        }
        let meta = meta.map(lanes);
        let numbers = |dtype: DType| (0..1u32 << dtype.bits()).map(|bits| dtype.decode(bits)).collect();
        let scales = row.scaling.as_ref().map(|scaling| ScaleTables {
            places: [&scaling.a_tv, &scaling.b_tv].map(lanes),
            elements: row.factors().map(numbers),
            scales: numbers(scaling.dtype),
        });
        Ok(MmaTable { row, a: lanes(&row.a_tv), b: lanes(&row.b_tv), c: lanes(&row.c_tv), meta, scales })
    }

    /// A lane whose metadata the instruction reads, and a group in it, whose places do not increase.
    pub(crate) fn disorder(&self, regs: &[[u32; 32]], meta: Option<u32>) -> Option<(usize, u32)> {
        disorder(self.row.sparsity.as_ref()?, &regs[meta? as usize])
    }

    /// The row's name.
    pub(crate) fn name(&self) -> &'static str {
        self.row.name
    }

    /// `d += a · bᵀ`, the fragments in `regs` at the given indices, with metadata, or scales from a byte of a register on. Products and sums are
    /// `f32`, in the order of rising k; the result is rounded once to the accumulator's type. Those of integers are `i32`, modulo 2³². With
    /// scales products are exact.
    pub(crate) fn execute(
        &self,
        regs: &mut [[u32; 32]],
        [d, a, b]: [&[u32]; 3],
        (meta, scales): (Option<u32>, Option<[(u32, u32); 2]>),
        tiles: &mut MmaTiles,
    ) {
        if let (Some(tables), Some(scaling), Some(scales)) = (&self.scales, &self.row.scaling, scales) {
            return self.execute_scaled((tables, scaling), regs, [d, a, b], scales, &mut tiles.wide);
        }
        match self.row.c {
            DType::F64 => self.execute_wide(regs, [d, a, b], &mut tiles.wide),
            DType::I32 => self.execute_in(regs, [d, a, b], meta, &mut tiles.integers),
            _ => self.execute_in(regs, [d, a, b], meta, &mut tiles.floats),
        }
    }

    /// The same with one kind of number.
    fn execute_in<T: Number>(
        &self,
        regs: &mut [[u32; 32]],
        [d, a, b]: [&[u32]; 3],
        meta: Option<u32>,
        tiles: &mut Operands<T>,
    ) {
        let (m, n, k) = (self.row.m as usize, self.row.n as usize, self.row.k as usize);
        let ([of_a, of_b], sums) = (self.row.factors(), self.row.c);
        let left = m * self.row.a_columns() as usize;
        gather(&mut tiles.a, left, &self.a, of_a.bits(), regs, a, T::decode(of_a));
        gather(&mut tiles.b, n * k, &self.b, of_b.bits(), regs, b, T::decode(of_b));
        gather(&mut tiles.c, m * n, &self.c, sums.bits(), regs, d, T::decode_sum(sums));
        if let (Some(sparsity), Some(table), Some(meta)) = (&self.row.sparsity, &self.meta, meta) {
            tiles.columns.resize(left, 0);
            for (value, positions) in table.iter().enumerate() {
                let words = positions.iter().zip(&regs[meta as usize]).enumerate();
                for (_, (position, word)) in words.filter(|(lane, _)| sparsity.reads(*lane as u32)) {
                    let position = usize::from(*position);
                    tiles.columns[position] = column(position / m, word >> (2 * value) & 3);
                }
            }
            for (j, c) in tiles.c.chunks_exact_mut(m).enumerate() {
                multiply_kept(c, &tiles.a, &tiles.columns, |k| tiles.b[j + n * k]);
            }
        } else if m == 16 {
            multiply::<T, 16>(&mut tiles.c, &tiles.a, &tiles.b, n);
        } else {
            for (i, c) in tiles.c.iter_mut().enumerate() {
                for j in 0..k {
                    *c = c.fma(tiles.a[i % m + m * j], tiles.b[i / m + n * j]);
                }
            }
        }
        scatter(&tiles.c, &self.c, sums, regs, d);
    }

    /// The same with scales of blocks.
    fn execute_scaled(
        &self,
        (tables, scaling): (&ScaleTables, &Scaling),
        regs: &mut [[u32; 32]],
        [d, a, b]: [&[u32]; 3],
        scales: [(u32, u32); 2],
        [left, right, of_blocks]: &mut [Vec<f64>; 3],
    ) {
        let (m, n, k) = (self.row.m as usize, self.row.n as usize, self.row.k as usize);
        let (bits, block) = (self.row.a.bits(), scaling.block as usize);
        let per = tilewright_machine::per_register(bits) as usize;
        let sides = [(&mut *left, m, &self.a, a), (&mut *right, n, &self.b, b)];
        for (side, (tile, rows, table, from)) in sides.into_iter().enumerate() {
            of_blocks.resize(rows * k / block, 0.0);
            let (register, byte) = scales[side];
            for (value, positions) in tables.places[side].iter().enumerate() {
                let words = positions.iter().zip(&regs[register as usize]).enumerate();
                for (_, (position, word)) in words.filter(|(lane, _)| scaling.reads(*lane as u32, side == 1))
                {
                    let bits = word >> (8 * (byte + value as u32)) & 0xff;
                    of_blocks[usize::from(*position)] = tables.scales[bits as usize];
                }
            }
            tile.resize(rows * k, 0.0);
            for (value, positions) in table.iter().enumerate() {
                let shift = (value % per) as u32 * bits;
                for (position, word) in positions.iter().zip(&regs[from[value / per] as usize]) {
                    let position = usize::from(*position);
                    let element = tables.elements[side][(word >> shift & (u32::MAX >> (32 - bits))) as usize];
                    tile[position] = element * of_blocks[position / rows / block * rows + position % rows];
                }
            }
        }
        for (value, positions) in self.c.iter().enumerate() {
            for (sum, position) in regs[d[value] as usize].iter_mut().zip(positions) {
                let (i, j) = (usize::from(*position) % m, usize::from(*position) / m);
                let product = |x: usize| left[i + m * x] * right[j + n * x];
                // A product of two numbers of at most eight places is exact, and added in double precision, then rounded.
                let add = |sum: f32, x: usize| (f64::from(sum) + product(x)) as f32;
                *sum = (0..k).fold(f32::from_bits(*sum), add).to_bits();
            }
        }
    }

    /// The same of `f64`, whose sums are rounded after each product.
    fn execute_wide(
        &self,
        regs: &mut [[u32; 32]],
        [d, a, b]: [&[u32]; 3],
        [left, right, sums]: &mut [Vec<f64>; 3],
    ) {
        let (m, n, k) = (self.row.m as usize, self.row.n as usize, self.row.k as usize);
        let both = |regs: &[[u32; 32]], from: &[u32], value: usize, lane: usize| {
            let [low, high] = [0, 1].map(|half| u64::from(regs[from[2 * value + half] as usize][lane]));
            f64::from_bits(low | high << 32)
        };
        for (tile, size, table, from) in [
            (&mut *left, m * k, &self.a, a),
            (&mut *right, n * k, &self.b, b),
            (&mut *sums, m * n, &self.c, d),
        ] {
            tile.resize(size, 0.0);
            for (value, positions) in table.iter().enumerate() {
                for (lane, position) in positions.iter().enumerate() {
                    tile[usize::from(*position)] = both(regs, from, value, lane);
                }
            }
        }
        for (i, c) in sums.iter_mut().enumerate() {
            for j in 0..k {
                *c = left[i % m + m * j].mul_add(right[i / m + n * j], *c);
            }
        }
        for (value, positions) in self.c.iter().enumerate() {
            for (lane, position) in positions.iter().enumerate() {
                let bits = sums[usize::from(*position)].to_bits();
                regs[d[2 * value] as usize][lane] = bits as u32;
                regs[d[2 * value + 1] as usize][lane] = (bits >> 32) as u32;
            }
        }
    }
}

/// The column of the whole factor of an element that is in column `kept` of a sparse one, and at `place` of its group.
pub(crate) fn column(kept: usize, place: u32) -> u16 {
    let [group, of_group] = [Sparsity::GROUP, Sparsity::KEPT].map(|n| n as usize);
    (kept / of_group * group + place as usize) as u16
}

/// Adds to a column of sums that of a product with a sparse A. What the metadata leave out is multiplied by nothing: 0 times an infinity of
/// B would be no number.
pub(crate) fn multiply_kept<T: Number>(c: &mut [T], a: &[T], columns: &[u16], b: impl Fn(usize) -> T) {
    for (a, columns) in a.chunks_exact(c.len()).zip(columns.chunks_exact(c.len())) {
        for ((sum, a), column) in c.iter_mut().zip(a).zip(columns) {
            *sum = sum.fma(*a, b(usize::from(*column)));
        }
    }
}

/// A lane whose metadata are read, and a group in it, whose places do not increase.
pub(crate) fn disorder(sparsity: &Sparsity, words: &[u32; 32]) -> Option<(usize, u32)> {
    let read = words.iter().enumerate().filter(|(lane, _)| sparsity.reads(*lane as u32));
    read.filter_map(|(lane, word)| Some((lane, Sparsity::disorder(*word)?))).next()
}

fn multiply<T: Number, const M: usize>(c: &mut [T], a: &[T], b: &[T], n: usize) {
    for (column, c) in c.chunks_exact_mut(M).enumerate() {
        let mut sum = [T::default(); M];
        sum.copy_from_slice(c);
        for (a, b) in a.chunks_exact(M).zip(b.chunks_exact(n)) {
            let scale = b[column];
            for (sum, a) in sum.iter_mut().zip(a) {
                *sum = sum.fma(*a, scale);
            }
        }
        c.copy_from_slice(&sum);
    }
}

fn gather<T: Number>(
    tile: &mut Vec<T>,
    size: usize,
    table: &Lanes,
    bits: u32,
    regs: &[[u32; 32]],
    from: &[u32],
    convert: impl Fn(u32) -> T,
) {
    tile.resize(size, T::default());
    let per_register = tilewright_machine::per_register(bits) as usize;
    let mask = u32::MAX >> (32 - bits);
    for (value, positions) in table.iter().enumerate() {
        let reg = &regs[from[value / per_register] as usize];
        let shift = (value % per_register) as u32 * bits;
        for (position, word) in positions.iter().zip(reg) {
            tile[usize::from(*position)] = convert(word >> shift & mask);
        }
    }
}

fn scatter<T: Number>(tile: &[T], table: &Lanes, dtype: DType, regs: &mut [[u32; 32]], to: &[u32]) {
    let bits = dtype.bits();
    let per_register = tilewright_machine::per_register(bits) as usize;
    for (value, positions) in table.iter().enumerate() {
        let reg = &mut regs[to[value / per_register] as usize];
        let shift = (value % per_register) as u32 * bits;
        let mask = (u32::MAX >> (32 - bits)) << shift;
        for (position, word) in positions.iter().zip(reg) {
            *word = (*word & !mask) | tile[usize::from(*position)].encode(dtype) << shift;
        }
    }
}
