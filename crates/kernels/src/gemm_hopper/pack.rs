//! The kernel ahead of a product whose factors TMA cannot read: it copies them to rows that are multiples of 128 bytes, with zeros behind
//! their ends. Rows of any stride are read in pieces as wide as their alignment allows, and written 16 bytes a thread.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, KernelBuilder, block_x, tile};
use tilewright_tile::{Expr, Program};

use super::{HopperGemmConfig, Major};
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

/// Lines of a block's tile, and bytes of each; its threads.
const LINES: i64 = 32;
const LINE_BYTES: i64 = 256;
const THREADS: i64 = 128;

/// A factor and its copy.
struct Copied {
    name: &'static str,
    dtype: DType,
    /// The mode that counts contiguous lines: 0 where they run along k.
    line: u32,
    from: Buffer,
    to: Buffer,
    /// Tiles along a line, and all.
    across: Expr,
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
        let (factors, dtypes) = (self.pack.factors(), [self.dtype, self.right()]);
        let rows = ["m", "n"].map(|name| (name, factors[usize::from(name == "n")]));
        let rows = rows.map(|(name, packed)| packed.then(|| t.size(name, 4096)));
        let k = t.size("k", 4096);
        let shape = [t.constant("LINES", LINES), t.constant("COLUMNS", LINE_BYTES / bytes(self.dtype))];
        let pad = packed_lines(&mut t, self.dtype);
        let copies: Vec<Copied> = (0..2)
            .filter_map(|i| {
                let height = rows[i].clone()?;
                let (name, major) = (["a", "b"][i], [self.a, self.b][i]);
                let problem = Problem::one(height.clone(), height.clone());
                let from = problem.matrix(&mut t, name, dtypes[i], [&height, &k], major, None);
                let to = problem.packed(&mut t, i, dtypes[i], [&height, &k], major, &pad);
                let (lines, inner) = if major == Major::K { (&height, &k) } else { (&k, &height) };
                let across = inner.ceil_div(&shape[1]);
                let tiles = lines.ceil_div(&shape[0]) * &across;
                Some(Copied {
                    name,
                    dtype: dtypes[i],
                    line: u32::from(major != Major::K),
                    from,
                    to,
                    across,
                    tiles,
                })
            })
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
}

impl Copied {
    /// Copies the tile of a number.
    fn write(&self, t: &mut KernelBuilder, shape: &[Expr; 2], number: Expr) {
        let Copied { name, dtype, line, from, to, across, .. } = self;
        let (down, along) = (&number / across * &shape[0], number % across * &shape[1]);
        let start = if *line == 0 { [down, along] } else { [along, down] };
        let modes = || [tile(*line, &shape[0]), tile(1 - line, &shape[1])];
        let source = t.global_view(&format!("g{name}"), from.from(start.clone()), modes());
        let target = t.global_view(&format!("gp{name}"), to.from(start), modes());
        let values = t.register_tensor(&format!("r{name}"), *dtype, shape);
        t.copy(source, values);
        t.copy(values, target);
    }
}
