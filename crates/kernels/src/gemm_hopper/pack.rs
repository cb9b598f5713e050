//! The kernel ahead of a product whose factors TMA or wgmma cannot read as they are: it copies them to rows that are multiples of 128 bytes, with zeros
//! behind their ends. Rows of any stride are read in pieces as wide as their alignment allows, and written 16 bytes a thread. On the way floats of six bits become those of eight, factors in f32 are
//! transposed to lines along k and split into parts, and each row of a complex B becomes the two rows that real and imaginary parts of C are products with.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Tensor, block_x, steps, tile};
use tilewright_tile::{Expr, Program, ViewMode};

use super::{Batch, HopperGemmConfig, Major, Precision};
use crate::config::ConfigError;
use crate::warp_specialized::{Problem, bytes, packed_lines};

/// The factors that are copied to aligned rows before they are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Pack {
    /// None: both are read where they lie.
    #[default]
    None,
    /// The first, to `packed_a`.
    A,
    /// The second, to `packed_b`.
    B,
    /// Both.
    Both,
}

impl Pack {
    /// All of them.
    pub const ALL: [Pack; 4] = [Pack::None, Pack::A, Pack::B, Pack::Both];

    /// Packs these factors.
    pub fn of(both: [bool; 2]) -> Self {
        match both {
            [false, false] => Pack::None,
            [true, false] => Pack::A,
            [false, true] => Pack::B,
            [true, true] => Pack::Both,
        }
    }

    /// Returns whether A is packed, and whether B is.
    pub fn factors(self) -> [bool; 2] {
        [matches!(self, Pack::A | Pack::Both), matches!(self, Pack::B | Pack::Both)]
    }
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pack::None => "none",
            Pack::A => "a",
            Pack::B => "b",
            Pack::Both => "ab",
        })
    }
}

impl FromStr for Pack {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Pack::ALL.into_iter().find(|pack| pack.to_string() == text).ok_or("must be none, a, b or ab")
    }
}

/// Lines of a block's tile, and bytes of each in memory; its threads.
const LINES: i64 = 32;
const LINE_BYTES: i64 = 256;
const THREADS: i64 = 128;

/// The way of complex numbers into the product of real ones.
#[derive(Clone, Copy)]
enum Pairs {
    /// There are none, or they lie as the product reads them.
    Whole,
    /// Pairs stay pairs while they are transposed.
    Kept,
    /// A row b becomes the rows (re b, −im b) and (im b, re b), whose products with (re a, im a) are the parts of a · b: with these signs of the
    /// imaginary parts of a and b.
    Expanded { signs: [f64; 2] },
}

/// A factor and its copy.
struct Copied {
    name: &'static str,
    dtype: DType,
    /// The type of the copy, of one part.
    multiplied: DType,
    /// The parts that a factor in f32 is split into.
    precision: Option<Precision>,
    pairs: Pairs,
    /// The mode that counts contiguous lines of both: 0 where they run along k.
    line: u32,
    /// The copy has its lines along k, and the factor has not.
    transposed: bool,
    from: Buffer,
    to: Buffer,
    /// The number of matrices.
    several: Option<Expr>,
    /// Tiles along a line, those of a matrix, and all.
    across: Expr,
    each: Expr,
    tiles: Expr,
}

impl HopperGemmConfig {
    /// The factors that a kernel ahead copies, of those that TMA cannot read: not where a second matrix goes with B.
    pub(super) fn packable(&self, unaligned: Pack) -> Pack {
        Pack::of([unaligned.factors()[0], unaligned.factors()[1] && self.dual.matrices() == 1])
    }

    /// `packed_a` and `packed_b`, a tile of either a block.
    pub(super) fn packing(&self) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("pack");
        let factors = self.packs();
        let rows = ["m", "n"].map(|name| (name, factors[usize::from(name == "n")]));
        let [m, n] = rows.map(|(name, packed)| packed.then(|| t.size(name, 4096)));
        let k = t.size("k", 4096);
        let products = (self.batch != Batch::None && !self.batch.has_groups()).then(|| t.size("l", 4));
        let matrices =
            products.clone().or_else(|| (self.batch.has_groups() && factors[1]).then(|| t.size("g", 8)));
        let shape = [t.constant("LINES", LINES), t.constant("COLUMNS", LINE_BYTES / bytes(self.dtype))];
        let pad = packed_lines(&mut t, self.multiplied()[0]);
        let one = || Expr::from(1);
        let problem = Problem::several(
            m.clone().unwrap_or_else(one),
            n.clone().unwrap_or_else(one),
            products,
            matrices,
        )
        .of_batch(self.batch);
        let copies: Vec<Copied> = [m, n]
            .into_iter()
            .enumerate()
            .filter_map(|(i, rows)| Some(self.copied(&mut t, i, (&problem, &rows?, &k), (&shape, &pad))))
            .collect();
        let all = copies.iter().skip(1).fold(copies[0].tiles.clone(), |all, copy| all + &copy.tiles);
        t.grid([all]);
        t.threads(THREADS);
        t.wait_dependencies();
        match &copies[..] {
            [first, second] => t.if_else(
                block_x().less(&first.tiles),
                |t| first.write(t, &shape, block_x()),
                |t| second.write(t, &shape, block_x() - &first.tiles),
            ),
            some => some.iter().for_each(|only| only.write(&mut t, &shape, block_x())),
        }
        t.launch_dependents();
        Ok(t.finish()?)
    }

    /// Declares factor A (0) or B (1) of so many rows, and its copy.
    fn copied(
        &self,
        t: &mut KernelBuilder,
        i: usize,
        (problem, rows, k): (&Problem, &Expr, &Expr),
        (shape, pad): (&[Expr; 2], &Expr),
    ) -> Copied {
        let (name, dtype) = (["a", "b"][i], [self.dtype, self.right()][i]);
        let (from_major, major) = ([self.a, self.b][i], self.majors()[i]);
        let several = [&problem.products, &problem.matrices][i].as_ref();
        let transposed = from_major != major;
        let sign = |conjugate: bool| if conjugate { -1.0 } else { 1.0 };
        let pairs = match (self.complex, i) {
            (true, 1) => Pairs::Expanded { signs: [sign(self.conj_a), sign(self.conj_b)] },
            (true, _) if transposed => Pairs::Kept,
            _ => Pairs::Whole,
        };
        // The matrix of real numbers.
        let length = if self.complex { k * 2 } else { k.clone() };
        let height = if matches!(pairs, Pairs::Expanded { .. }) { rows * 2 } else { rows.clone() };
        let from = match pairs {
            Pairs::Whole => problem.matrix(t, name, dtype, [rows, &length], from_major, several),
            _ => problem.pairs(t, name, dtype, [rows, k], from_major, several),
        };
        let to = problem.packed(t, i, self.multiplied()[i], [&height, &length], major, (pad, self.parts()));
        let (lines, inner) = if major == Major::K { (rows, &length) } else { (&length, rows) };
        let across = inner.ceil_div(&shape[1]);
        let each = lines.ceil_div(&shape[0]) * &across;
        let tiles = several.map_or_else(|| each.clone(), |several| &each * several);
        Copied {
            name,
            dtype,
            multiplied: self.multiplied()[i],
            precision: (dtype == DType::F32).then_some(self.precision),
            pairs,
            line: u32::from(major != Major::K),
            transposed,
            from,
            to,
            several: several.cloned(),
            across,
            each,
            tiles,
        }
    }
}

impl Copied {
    /// Copies the tile of a number.
    fn write(&self, t: &mut KernelBuilder, shape: &[Expr; 2], number: Expr) {
        let (which, number) = match &self.several {
            Some(_) => (Some(&number / &self.each), number % &self.each),
            None => (None, number),
        };
        let (down, along) = (&number / &self.across * &shape[0], number % &self.across * &shape[1]);
        match self.pairs {
            Pairs::Whole => {
                let start = if self.line == 0 { [&down, &along] } else { [&along, &down] };
                let modes = [(self.line, &shape[0]), (1 - self.line, &shape[1])];
                let start: Vec<Expr> = start.into_iter().cloned().collect();
                let values = self.load(t, which.as_ref(), &start, &modes);
                let outer = self.outer(which.as_ref());
                let modes = modes.map(|(mode, extent)| tile(outer + mode, extent));
                self.store(t, "", values, which.as_ref(), (&start, &modes));
            }
            Pairs::Kept => {
                let values = self.load_pairs(t, which.as_ref(), [&down, &along], shape);
                self.store_pairs(t, "", values, which.as_ref(), ([&down, &along], 1), shape);
            }
            Pairs::Expanded { signs: [of_a, of_b] } => {
                let values = self.load_pairs(t, which.as_ref(), [&down, &along], shape);
                let (re, im) = t.split(&format!("re_{}", self.name), &format!("im_{}", self.name), values);
                let signed =
                    |value: Tensor, sign: f64| if sign < 0.0 { -Elem::from(value) } else { value.into() };
                let real = t.join(&format!("for_re_{}", self.name), re, signed(im, -of_a * of_b));
                let imaginary = t.join(&format!("for_im_{}", self.name), signed(im, of_b), signed(re, of_a));
                let row = &down * 2;
                self.store_pairs(t, "_re", real, which.as_ref(), ([&row, &along], 2), shape);
                self.store_pairs(t, "_im", imaginary, which.as_ref(), ([&(row + 1), &along], 2), shape);
            }
        }
    }

    fn parts(&self) -> usize {
        self.precision.map_or(1, Precision::parts)
    }

    /// Modes of the copy ahead of its rows.
    fn outer(&self, which: Option<&Expr>) -> u32 {
        u32::from(which.is_some()) + u32::from(self.parts() > 1)
    }

    /// A tile of the factor, whose modes have these extents.
    fn load(
        &self,
        t: &mut KernelBuilder,
        which: Option<&Expr>,
        start: &[Expr],
        modes: &[(u32, &Expr)],
    ) -> Tensor {
        let name = self.name;
        let outer = u32::from(which.is_some());
        let from = self.from.from(which.into_iter().chain(start));
        let source =
            t.global_view(&format!("g{name}"), from, modes.iter().map(|(mode, e)| tile(mode + outer, *e)));
        let shape: Vec<&Expr> = modes.iter().map(|(_, extent)| *extent).collect();
        let values = t.register_tensor(&format!("r{name}"), self.dtype, shape.iter().copied());
        t.copy(source, values);
        if !self.transposed {
            return values;
        }
        // Neighbouring threads read neighbours in memory, and write neighbours of the transpose.
        let staged = t.shared_tensor(&format!("s{name}"), self.dtype, shape.iter().copied());
        let lines = t.register_tensor(&format!("l{name}"), self.dtype, shape.iter().copied());
        t.copy(values, staged);
        t.syncthreads();
        t.copy(staged, lines);
        lines
    }

    /// The same of complex numbers, whose parts are the last mode; `along` counts real numbers.
    fn load_pairs(
        &self,
        t: &mut KernelBuilder,
        which: Option<&Expr>,
        [down, along]: [&Expr; 2],
        shape: &[Expr; 2],
    ) -> Tensor {
        let (half, two) = (&shape[1] / 2, Expr::from(2));
        self.load(t, which, &[down.clone(), along / 2, 0.into()], &[(0, &shape[0]), (1, &half), (2, &two)])
    }

    /// Splits values and stores their parts.
    fn store(
        &self,
        t: &mut KernelBuilder,
        site: &str,
        values: Tensor,
        which: Option<&Expr>,
        (start, modes): (&[Expr], &[ViewMode]),
    ) {
        let name = self.name;
        let parts = match self.precision {
            Some(precision) => precision.split(t, &|word| format!("{word}_{name}{site}"), values),
            None if self.multiplied != self.dtype => {
                vec![t.cast(&format!("c{name}{site}"), values, self.multiplied)]
            }
            None => vec![values],
        };
        for (part, values) in parts.into_iter().enumerate() {
            let number = (self.parts() > 1).then(|| Expr::from(part as i64));
            let to = self.to.from(which.cloned().into_iter().chain(number).chain(start.iter().cloned()));
            let tag = if part == 0 { String::new() } else { part.to_string() };
            let target = t.global_view(&format!("gp{name}{tag}{site}"), to, modes.iter().cloned());
            t.copy(values, target);
        }
    }

    /// The same of pairs, in rows so far apart.
    fn store_pairs(
        &self,
        t: &mut KernelBuilder,
        site: &str,
        values: Tensor,
        which: Option<&Expr>,
        ([row, along], apart): ([&Expr; 2], i64),
        shape: &[Expr; 2],
    ) {
        let outer = self.outer(which);
        let rows = if apart == 1 { tile(outer, &shape[0]) } else { steps(outer, &shape[0], apart) };
        let modes = [rows, steps(outer + 1, &shape[1] / 2, 2), steps(outer + 1, 2, 1)];
        self.store(t, site, values, which, (&[row.clone(), along.clone()], &modes));
    }
}
