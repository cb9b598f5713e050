//! Convolutions of few channels, whose pixels are too short for TMA. A kernel ahead copies each row of an image with its padding, channels filled
//! up with zeros to a multiple; the taps of an output along that row are then one contiguous window, whose neighbours overlap (CUTLASS'
//! implicit products of few channels fill channels up too, and keep the taps apart). The filter is copied likewise, and of the weight gradient the
//! result is copied back.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, KernelBuilder, block_x, tile};
use tilewright_tile::{Expr, Program};

use super::geometry::{Geometry, Packed};
use super::{HopperConvConfig, Pass};
use crate::config::ConfigError;
use crate::warp_specialized::digits;

/// Elements of a block's tile, and its threads.
const ELEMENTS: i64 = 1024;
const THREADS: i64 = 128;

/// A copy between a tensor and its packed form, in tiles of one row each.
struct Copied<'a> {
    name: &'static str,
    dtype: DType,
    /// The two tensors, with as many modes.
    from: &'a Buffer,
    to: &'a Buffer,
    /// Extents of the modes in front of the last two, whose positions are counted, and how many of the first are in a tile.
    outer: Vec<Expr>,
    high: i64,
    /// Positions along the mode before the last: of a tile, of all, and in front of those of `from`.
    wide: i64,
    across: Expr,
    front: i64,
    /// Channels of a tile, and tiles along them.
    deep: i64,
    chunks: Expr,
}

impl Copied<'_> {
    /// Tiles along each mode.
    fn counts(&self) -> Vec<Expr> {
        let outer = self.outer.iter().enumerate();
        let outer = outer.map(|(i, extent)| if i == 0 { extent.ceil_div(self.high) } else { extent.clone() });
        outer.chain([self.across.ceil_div(self.wide), self.chunks.clone()]).collect()
    }

    fn tiles(&self) -> Expr {
        self.counts().into_iter().fold(1.into(), |all: Expr, count| all * count)
    }

    /// Copies the tile of a number.
    fn write(&self, t: &mut KernelBuilder, number: Expr) {
        let mut at = digits(&number, &self.counts());
        let last = at.len() - 1;
        at[0] = &at[0] * self.high;
        at[last - 1] = &at[last - 1] * self.wide;
        at[last] = &at[last] * self.deep;
        let mut source = at.clone();
        if self.front > 0 {
            source[last - 1] = &source[last - 1] - self.front;
        }
        let mut sides = vec![(last as u32 - 1, self.wide), (last as u32, self.deep)];
        if self.high > 1 {
            sides.insert(0, (0, self.high));
        }
        let modes = || sides.iter().map(|(mode, side)| tile(*mode, *side)).collect::<Vec<_>>();
        let name = self.name;
        let source = t.global_view(&format!("g{name}"), self.from.from(source), modes());
        let target = t.global_view(&format!("gp{name}"), self.to.from(at), modes());
        let shape: Vec<Expr> = sides.iter().map(|(_, side)| (*side).into()).collect();
        let values = t.register_tensor(&format!("r{name}"), self.dtype, shape);
        t.copy(source, values);
        t.copy(values, target);
    }
}

impl Geometry {
    /// The shape of images, or of the filter: as given, or packed.
    fn shape_of(&self, packed: &Packed, image: bool, is_packed: bool) -> Vec<Expr> {
        let outer = &self.axes[..self.axes.len() - 1];
        let outer = outer.iter().map(|axis| if image { axis.input.clone() } else { axis.taps.into() });
        let first = if image { &self.images } else { &self.kout };
        let [row, channels] = match (is_packed, image) {
            (true, true) => [packed.pixels.clone(), packed.channels.clone()],
            (true, false) => [packed.taps.into(), packed.channels.clone()],
            (false, true) => [packed.row.clone(), packed.given.clone()],
            (false, false) => [packed.filled.into(), packed.given.clone()],
        };
        [first.clone()].into_iter().chain(outer).chain([row, channels]).collect()
    }
}

/// The copies of one kernel, a tile of either a block.
fn copying(mut t: KernelBuilder, copies: &[Copied<'_>]) -> Result<Program, ConfigError> {
    t.grid([copies.iter().fold(0.into(), |all: Expr, copy| all + copy.tiles())]);
    t.threads(THREADS);
    t.wait_dependencies();
    match copies {
        [first, second] => {
            let before = first.tiles();
            t.if_else(
                block_x().less(&before),
                |t| first.write(t, block_x()),
                |t| second.write(t, block_x() - &before),
            );
        }
        some => some.iter().for_each(|only| only.write(&mut t, block_x())),
    }
    t.launch_dependents();
    Ok(t.finish()?)
}

impl HopperConvConfig {
    fn copied<'a>(
        &self,
        (geometry, packed): (&Geometry, &Packed),
        (name, image, dtype): (&'static str, bool, DType),
        [from, to]: [&'a Buffer; 2],
    ) -> Copied<'a> {
        let mut outer = geometry.shape_of(packed, image, true);
        let deep = self.pack.unwrap_or(1);
        outer.pop();
        let across = outer.pop().unwrap_or(1.into());
        let most = ELEMENTS / deep;
        let wide =
            if image { most } else { (packed.taps as u64).next_power_of_two().min(most as u64) as i64 };
        Copied {
            name,
            dtype,
            from,
            to,
            outer,
            high: if image { 1 } else { most / wide },
            wide,
            across,
            front: if image { packed.front } else { 0 },
            deep,
            chunks: packed.given.ceil_div(deep),
        }
    }

    /// `packed_x` from x, and of the forward pass `packed_f` from f.
    pub(super) fn packing(&self) -> Result<Option<Program>, ConfigError> {
        let mut t = KernelBuilder::new("pack");
        let geometry = Geometry::declare(&mut t, &self.described(), false);
        let Some(packed) = &geometry.packed else { return Ok(None) };
        let factors: &[(&'static str, &'static str, bool)] = match self.pass {
            Pass::Fprop => &[("x", "packed_x", true), ("f", "packed_f", false)],
            Pass::Dgrad | Pass::Wgrad => &[("x", "packed_x", true)],
        };
        let mut tensors = Vec::new();
        for (name, copy, image) in factors {
            let from = t.tensor(name, self.dtype, geometry.shape_of(packed, *image, false));
            let to = t.tensor(copy, self.dtype, geometry.shape_of(packed, *image, true));
            tensors.push([from, to]);
        }
        let copies: Vec<Copied<'_>> = factors
            .iter()
            .zip(&tensors)
            .map(|((name, _, image), [from, to])| {
                self.copied((&geometry, packed), (name, *image, self.dtype), [from, to])
            })
            .collect();
        copying(t, &copies).map(Some)
    }

    /// `df` from `packed_df`.
    pub(super) fn unpacking(&self) -> Result<Option<Program>, ConfigError> {
        let mut t = KernelBuilder::new("unpack");
        let geometry = Geometry::declare(&mut t, &self.described(), false);
        let Some(packed) = geometry.packed.as_ref().filter(|_| self.pass == Pass::Wgrad) else {
            return Ok(None);
        };
        let dtype = self.result();
        let from = t.tensor("packed_df", dtype, geometry.shape_of(packed, false, true));
        let to = t.tensor("df", dtype, geometry.shape_of(packed, false, false));
        let copy = self.copied((&geometry, packed), ("df", false, dtype), [&from, &to]);
        copying(t, &[copy]).map(Some)
    }
}
