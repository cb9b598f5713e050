//! Between linear layouts and CuTe layouts. Both count the first mode fastest, so where both exist they are the same
//! function of integers: bit `j` of an index leads to the layout's value at `2^j`.
//!
//! | from | to | when it exists |
//! | --- | --- | --- |
//! | [`Layout`] over integers | linear | extents are powers of two and no two bits' strides share a bit |
//! | [`Layout`] over [`F2`] | linear | extents are powers of two and no stride carries within its mode |
//! | [`SwizzledLayout`] | linear | its layout is linear |
//! | linear | [`Layout`] over [`F2`] | always |
//! | linear | [`Layout`] over integers | no two columns share a bit |
//! | linear | [`SwizzledLayout`] | some `Sw<b,m,s>` makes that so |
//! | [`Layout`] with other extents | [`Split`] | its odd factors lead to odd factors of the tile |

use super::{Dim, LinearLayout, refuse};
use crate::error::LayoutError;
use crate::htuple::{HTuple, Shape};
use crate::layout::Layout;
use crate::stride::{Coord, F2};
use crate::swizzle::{Swizzle, SwizzledLayout};

/// The values at the powers of two; an error where extents are not powers of two.
fn columns_of<S>(
    extents: &[i64],
    text: &dyn std::fmt::Display,
    value: impl Fn(i64) -> S,
) -> Result<Vec<S>, LayoutError> {
    if let Some(extent) = extents.iter().find(|e| e.count_ones() != 1) {
        return refuse(
            "conversion to a linear layout",
            text,
            format!("extent {extent} is not a power of two"),
        );
    }
    let bits: u32 = extents.iter().map(|e| e.trailing_zeros()).sum();
    Ok((0..bits).map(|j| value(1 << j)).collect())
}

fn single(input: &str, output: &str, columns: Vec<u64>) -> Result<LinearLayout, LayoutError> {
    let bits = 64 - columns.iter().fold(0, |all, c| all | c).leading_zeros();
    LinearLayout::from_columns(
        vec![Dim::new(input, columns.len() as u32)],
        vec![Dim::new(output, bits)],
        columns,
    )
}

impl LinearLayout {
    /// The linear layout with the values of `layout`, from one input to one output just large enough.
    ///
    /// The law: `R(i) = L(i)` at every index. An error where no linear layout has these values.
    ///
    /// ```
    /// use tilewright_layout::{Layout, LinearLayout};
    /// let l = LinearLayout::from_layout(&"((2,2),4):((1,8),2)".parse()?, "index", "offset")?;
    /// assert_eq!(l.to_string(), "[index: 1 8 2 4] -> [offset:16]");
    /// assert!(LinearLayout::from_layout(&"4:3".parse()?, "index", "offset").is_err()); // 3 + 6 = 9, 3 ⊕ 6 = 5
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn from_layout(layout: &Layout, input: &str, output: &str) -> Result<LinearLayout, LayoutError> {
        let extents: Vec<i64> = layout.shape().leaves().into_iter().copied().collect();
        let columns = columns_of(&extents, layout, |i| layout.eval(i))?;
        let mut seen = 0i64;
        for column in &columns {
            // Sums are exclusive ors exactly where no two bits meet.
            if *column < 0 || seen & column != 0 {
                let reason =
                    format!("adding {column} carries; strides of distinct bits must not share a bit");
                return refuse("conversion to a linear layout", layout, reason);
            }
            seen |= column;
        }
        single(input, output, columns.into_iter().map(|c| c as u64).collect())
    }

    /// The linear layout with the values of a layout over bit strings.
    pub fn from_f2_layout(
        layout: &Layout<F2>,
        input: &str,
        output: &str,
    ) -> Result<LinearLayout, LayoutError> {
        let extents: Vec<i64> = layout.shape().leaves().into_iter().copied().collect();
        let columns = columns_of(&extents, layout, |i| layout.eval(i).0)?;
        if let Some((extent, stride)) = layout.leaves().iter().find(|(s, d)| *s > 1 && d.bits(*s).is_none()) {
            let reason = format!("mode {extent}:{stride} carries, so that it is not linear over its bits");
            return refuse("conversion to a linear layout", layout, reason);
        }
        single(input, output, columns)
    }

    /// The linear layout with the values of a swizzled layout: the swizzle applied to every column.
    ///
    /// ```
    /// use tilewright_layout::{LinearLayout, SwizzledLayout};
    /// let sw: SwizzledLayout = "Sw<1,0,1> o (2,2):(2,1)".parse()?;
    /// let l = LinearLayout::from_swizzled(&sw, "index", "offset")?;
    /// assert_eq!(l.to_string(), "[index: 3 1] -> [offset:4]");
    /// assert_eq!(l.to_swizzled().unwrap(), sw);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn from_swizzled(
        layout: &SwizzledLayout,
        input: &str,
        output: &str,
    ) -> Result<LinearLayout, LayoutError> {
        let linear = LinearLayout::from_layout(&layout.layout, input, output)?;
        let columns = linear.columns().iter().map(|c| layout.swizzle.apply(*c as i64) as u64).collect();
        single(input, output, columns)
    }

    /// The CuTe layout over bit strings with these values, a mode for each input, outputs counted as one integer.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l: LinearLayout = "[lane: 1 3; warp: 4 8] -> [offset:16]".parse()?;
    /// assert_eq!(l.to_f2_layout()?.to_string(), "((2,2),4):((f1,f3),f4)");
    /// assert!(l.to_layout().is_none());
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn to_f2_layout(&self) -> Result<Layout<F2>, LayoutError> {
        self.modes(F2)
    }

    /// The CuTe layout over integers with these values, where there is one: no two columns share a bit.
    pub fn to_layout(&self) -> Option<Layout> {
        let mut seen = 0;
        for column in self.columns() {
            if seen & column != 0 {
                return None;
            }
            seen |= column;
        }
        self.modes(|c| c as i64).ok()
    }

    fn modes<S: crate::stride::Stride>(&self, stride: impl Fn(u64) -> S) -> Result<Layout<S>, LayoutError> {
        let mut modes = Vec::new();
        for dim in self.ins() {
            let leaves: Vec<(i64, S)> = self.bases(&dim.name).iter().map(|c| (2, stride(*c))).collect();
            modes.push(crate::coalesce(&Layout::from_leaves(&leaves)?));
        }
        match modes.len() {
            1 => Ok(modes.remove(0)),
            _ => Layout::concat(&modes),
        }
    }

    /// The swizzled layout with these values, where there is one: some `Sw<b,m,s>` after a layout over integers. The
    /// identity first, then the fewest bits.
    pub fn to_swizzled(&self) -> Option<SwizzledLayout> {
        if let Some(layout) = self.to_layout() {
            return Some(layout.into());
        }
        let bits = self.out_bits();
        for b in 1..=bits / 2 {
            for m in 0..=bits - 2 * b {
                for s in b..=bits - b - m {
                    if !crate::work::spend(8 + self.columns.len() as u64) {
                        return None;
                    }
                    let swizzle = Swizzle::new(b, m, s).ok()?;
                    // A swizzle with its shift upwards is its own inverse.
                    let columns = self.columns().iter().map(|c| swizzle.apply(*c as i64) as u64).collect();
                    let plain = LinearLayout { ins: self.ins.clone(), outs: self.outs.clone(), columns };
                    if let Some(layout) = plain.to_layout() {
                        return Some(SwizzledLayout { swizzle, layout });
                    }
                }
            }
        }
        None
    }
}

/// A layout of any extents as two: a linear layout of the powers of two in it, and the odd factors beside it.
///
/// With an index of the linear part and a slice for each odd factor, the tile's coordinate is that of the linear part plus
/// that of the slice, digit by digit without a carry. What the linear part says of lanes, warps and vectors holds in
/// every slice, so conversions, shuffles and swizzles work slice by slice as long as odd factors stay within the input
/// that has them: register tiles of 96×64 or 224 columns, not 3 lanes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// The part of powers of two. Its outputs are `dim0`, `dim1`, …: the powers of two in the tile's modes.
    pub linear: LinearLayout,
    /// For each input, in order: from the index of the linear part to the index of the whole input.
    pub indices: Vec<Layout>,
    /// For each input, in order: from its slice to the index of the whole input, with stride 0 nowhere; `1:0` where the
    /// input has no odd factor.
    pub slices: Vec<Layout>,
    /// For each input, in order: from its slice to the tile's coordinate.
    pub places: Vec<Layout>,
}

/// The operation, as errors name it.
const SPLIT: &str = "a split into powers of two";

/// The linear part of a [`Split`], leaf by leaf.
struct SplitParts<'a> {
    tile: &'a Shape,
    extents: Vec<i64>,
    /// The strides of the tile's linear coordinate.
    units: Vec<i64>,
    /// The power of two in each extent.
    low: Vec<i64>,
    /// The part of each digit of the tile that is filled already; adding must not carry.
    reach: Vec<i64>,
    outs: Vec<Dim>,
    columns: Vec<u64>,
}

impl<'a> SplitParts<'a> {
    fn new(tile: &'a Shape) -> Self {
        let extents: Vec<i64> = tile.leaves().into_iter().copied().collect();
        let before =
            |unit: &mut i64, extent: &i64| Some(std::mem::replace(unit, unit.saturating_mul(*extent)));
        let units = extents.iter().scan(1i64, before).collect();
        let bits = extents.iter().map(|extent| extent.trailing_zeros());
        let outs = bits.clone().enumerate().map(|(k, bits)| Dim::new(format!("dim{k}"), bits)).collect();
        let (low, reach) = (bits.map(|bits| 1i64 << bits).collect(), vec![0; extents.len()]);
        SplitParts { tile, extents, units, low, reach, outs, columns: Vec::new() }
    }

    /// Adds a leaf of `extent` steps and gives its stride in the tile's linear coordinate; or why it has no place.
    fn add(&mut self, extent: i64, step: &Coord) -> Result<i64, String> {
        let digits: Vec<i64> = (0..self.extents.len()).map(|k| step.component(k)).collect();
        let stride: i64 = digits.iter().zip(&self.units).map(|(d, unit)| d.saturating_mul(*unit)).sum();
        if digits.iter().any(|d| *d < 0) {
            return Err(format!("stride {stride} is negative"));
        }
        for ((digit, full), size) in digits.iter().zip(&mut self.reach).zip(&self.extents) {
            let more = (extent - 1).checked_mul(*digit).and_then(|more| more.checked_add(*full));
            match more.filter(|more| more < size) {
                Some(more) => *full = more,
                None => return Err(format!("mode {extent}:{stride} carries in {}", self.tile)),
            }
        }
        let bits = extent.trailing_zeros();
        for j in 0..bits {
            let (mut column, mut from) = (0u64, 0);
            for ((digit, low), out) in digits.iter().zip(&self.low).zip(&self.outs) {
                let digit = digit << j;
                if digit >= *low && digit != 0 {
                    return Err(format!("mode {extent}:{stride} leads to an odd factor of {}", self.tile));
                }
                column |= (digit as u64) << from;
                from += out.bits;
            }
            self.columns.push(column);
        }
        let whole = |(digit, low): (&i64, &i64)| (digit << bits) % low == 0;
        if extent >> bits > 1 && !digits.iter().zip(&self.low).all(whole) {
            return Err(format!("the odd factor of mode {extent}:{stride} leads within a power of two"));
        }
        Ok(stride)
    }

    fn linear(self, ins: Vec<Dim>) -> Result<LinearLayout, LayoutError> {
        let mut seen = 0;
        for column in &self.columns {
            if seen & column != 0 {
                let columns = format!("columns of {}", self.tile);
                return refuse(SPLIT, columns, "two bits lead to one bit of the tile");
            }
            seen |= column;
        }
        LinearLayout::from_columns(ins, self.outs, self.columns)
    }
}

impl Split {
    /// Splits a layout given input by input: each leads from its index to a part of the tile's coordinate, all parts
    /// add up, and the tile counts the first mode of `tile` fastest.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Split};
    /// // 32 lanes of 2 rows each and 3·8 registers hold a tile of 64×24.
    /// let lanes: Layout = "32:2".parse()?;
    /// let registers: Layout = "(2,24):(1,64)".parse()?;
    /// let split = Split::new(&[("register", &registers), ("lane", &lanes)], &(64, 24).into())?;
    /// assert_eq!(
    ///     split.linear.to_string(),
    ///     "[register: (1,0) (0,1) (0,2) (0,4); lane: (2,0) (4,0) (8,0) (16,0) (32,0)] -> [dim0:64, dim1:8]"
    /// );
    /// assert_eq!((split.slices[0].to_string(), split.places[0].to_string()), ("3:16".into(), "3:512".into()));
    /// // 3 lanes for 3 columns do not cross: the odd factor is the lanes'.
    /// assert!(Split::new(&[("lane", &"(8,4):(3,1)".parse()?)], &(3, 8).into()).is_err());
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn new(inputs: &[(&str, &Layout)], tile: &Shape) -> Result<Split, LayoutError> {
        tile.check_shape()?;
        let mut parts = SplitParts::new(tile);
        let names = Layout::new(
            HTuple::from_flat(parts.extents.clone()),
            HTuple::from_flat((0..parts.extents.len()).map(Coord::basis).collect()),
        )?;
        let mut ins = Vec::new();
        let (mut indices, mut slices, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (name, layout) in inputs {
            let (mut bits, mut index, mut slice, mut place) = (0, Vec::new(), Vec::new(), Vec::new());
            let mut at = 1i64;
            // The digits of the tile's coordinate that each leaf counts; a leaf that goes on into the next mode is split.
            for (extent, step) in crate::compose(&names, layout)?.leaves() {
                let (power, odd) = (1i64 << extent.trailing_zeros(), extent >> extent.trailing_zeros());
                let stride = parts.add(extent, &step).or_else(|reason| refuse(SPLIT, layout, reason))?;
                bits += power.trailing_zeros();
                index.extend((power > 1).then_some((power, at)));
                if odd > 1 {
                    slice.push((odd, at * power));
                    place.push((odd, stride * power));
                }
                at = at.saturating_mul(extent);
            }
            ins.push(Dim::new(*name, bits));
            indices.push(Layout::from_leaves(&index)?);
            slices.push(Layout::from_leaves(&slice)?);
            places.push(Layout::from_leaves(&place)?);
        }
        Ok(Split { linear: parts.linear(ins)?, indices, slices, places })
    }

    /// The slices of all inputs: odd index → the tile's coordinate, in the order of the inputs. Layouts of equal places
    /// can be converted into each other slice by slice.
    pub fn slice_count(&self) -> i64 {
        self.places.iter().map(Layout::size).product()
    }
}
