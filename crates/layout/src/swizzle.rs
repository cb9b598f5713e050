//! Swizzles: permutations of offsets that exclusive-or some bits onto others, so that neighbouring rows fall into
//! different banks of shared memory. A swizzled layout applies its layout first, then its swizzle.

use crate::error::{LayoutError, overflow};
use crate::layout::Layout;
use crate::text::Cursor;
use std::fmt;
use std::str::FromStr;

/// The swizzle `Sw<bits,base,shift>`, CuTe's `Swizzle<B,M,S>`: `x ↦ x ^ ((x >> S) & (((1 << B) − 1) << M))`. `bits` bits
/// from bit `base` on change, by those that lie `shift` higher. It is its own inverse.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Swizzle {
    bits: u32,
    base: u32,
    shift: u32,
}

impl Swizzle {
    /// The swizzle that changes nothing.
    pub const NONE: Swizzle = Swizzle { bits: 0, base: 0, shift: 0 };

    /// The swizzle that changes `bits` bits from bit `base` on, by those `shift` higher. An error where the two groups of
    /// bits overlap (`shift < bits`) or reach beyond 62 bits.
    ///
    /// ```
    /// use tilewright_layout::Swizzle;
    /// let sw = Swizzle::new(3, 4, 3)?;
    /// assert_eq!(sw.apply(0b1010_000_0001), 0b1010_010_0001);
    /// assert_eq!(sw.apply(sw.apply(12345)), 12345);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn new(bits: u32, base: u32, shift: u32) -> Result<Swizzle, LayoutError> {
        let top = bits.checked_add(base).and_then(|n| n.checked_add(shift));
        if top.is_some_and(|n| n <= 62) && shift >= bits {
            Ok(Swizzle { bits, base, shift })
        } else {
            Err(LayoutError::BadSwizzle { bits, base, shift })
        }
    }

    /// The number of bits changed.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The lowest bit changed.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// The distance from the bits changed to those they are changed by.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// The swizzled offset. The law: `apply(apply(x)) == x`.
    pub fn apply(&self, offset: i64) -> i64 {
        offset ^ ((offset >> self.shift) & (((1i64 << self.bits) - 1) << self.base))
    }

    /// The offsets after which the pattern repeats, a power of two; 1 where no offset changes. The law:
    /// `apply(k·period + x) = k·period + apply(x)`.
    ///
    /// ```
    /// use tilewright_layout::Swizzle;
    /// assert_eq!(Swizzle::new(3, 4, 3)?.period(), 1024);
    /// assert_eq!(Swizzle::NONE.period(), 1);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn period(&self) -> i64 {
        if self.is_identity() { 1 } else { 1 << (self.bits + self.base + self.shift) }
    }

    /// True if no offset changes.
    pub fn is_identity(&self) -> bool {
        self.bits == 0
    }

    /// Reads the text form from a cursor at its `Sw`.
    pub fn read(cursor: &mut Cursor<'_>) -> Result<Swizzle, LayoutError> {
        cursor.expect("Sw")?;
        cursor.expect("<")?;
        let mut numbers = [0u32; 3];
        for (k, number) in numbers.iter_mut().enumerate() {
            if k > 0 {
                cursor.expect(",")?;
            }
            let offset = cursor.pos();
            *number = u32::try_from(cursor.integer()?).map_err(|_| LayoutError::Parse {
                offset,
                message: "a parameter of a swizzle must be between 0 and 62".to_string(),
            })?;
        }
        cursor.expect(">")?;
        Swizzle::new(numbers[0], numbers[1], numbers[2])
    }
}

impl Default for Swizzle {
    fn default() -> Swizzle {
        Swizzle::NONE
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}

impl FromStr for Swizzle {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Swizzle, LayoutError> {
        let mut cursor = Cursor::new(text);
        let swizzle = Swizzle::read(&mut cursor)?;
        cursor.end()?;
        Ok(swizzle)
    }
}

/// The composition `swizzle ∘ layout`: the layout first, then the swizzle on its value. Prints as
/// `Sw<3,4,3> o (8,64):(64,1)`, or as just the layout where the swizzle changes nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SwizzledLayout {
    /// Applied last.
    pub swizzle: Swizzle,
    /// Applied first.
    pub layout: Layout,
}

impl SwizzledLayout {
    /// The layout followed by the swizzle.
    pub fn new(swizzle: Swizzle, layout: Layout) -> SwizzledLayout {
        SwizzledLayout { swizzle, layout }
    }

    /// The value at an integral coordinate: `swizzle(layout(index))`.
    pub fn eval(&self, index: i64) -> i64 {
        self.swizzle.apply(self.layout.eval(index))
    }

    /// The value at any coordinate compatible with the shape.
    pub fn eval_coord(&self, coord: &crate::HTuple<i64>) -> Result<i64, LayoutError> {
        Ok(self.swizzle.apply(self.layout.eval_coord(coord)?))
    }

    /// The composition with a layout applied before: `(swizzle ∘ layout) ∘ b = swizzle ∘ (layout ∘ b)`.
    pub fn compose(&self, b: &Layout) -> Result<SwizzledLayout, LayoutError> {
        Ok(SwizzledLayout { swizzle: self.swizzle, layout: crate::compose(&self.layout, b)? })
    }
}

impl SwizzledLayout {
    /// Number of offsets that hold every value, from 0 on: one more than the greatest value, or the layout's own cosize where that
    /// is whole blocks that the swizzle permutes. Strides are not negative.
    ///
    /// ```
    /// use tilewright_layout::SwizzledLayout;
    /// assert_eq!("Sw<1,1,1> o (4,3):(1,4)".parse::<SwizzledLayout>()?.cosize(), 12);
    /// assert_eq!("Sw<1,0,1> o 3:1".parse::<SwizzledLayout>()?.cosize(), 4);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn cosize(&self) -> i64 {
        let plain = self.layout.cosize();
        // The swizzle permutes each aligned block of this size: whole blocks stay what they are.
        let block = 1i64 << (self.swizzle.base + self.swizzle.bits);
        if self.swizzle.is_identity() || plain % block == 0 {
            return plain;
        }
        self.layout.image().into_iter().map(|offset| self.swizzle.apply(offset) + 1).max().unwrap_or(plain)
    }

    /// The least distance at which copies of this layout can follow each other: its cosize, rounded up to a multiple of the
    /// swizzle's period and of `align`. `None` where it does not fit into 63 bits.
    pub fn stage_distance(&self, align: i64) -> Option<i64> {
        let multiple = lcm(self.swizzle.period(), align.max(1))?;
        let rounded = self.layout.cosize().checked_add(multiple - 1)?;
        Some(rounded / multiple * multiple)
    }

    /// The layout repeated: of a tensor of `shape` whose modes at `stages` tell repetitions apart, and whose other modes are those
    /// of this layout. Stages lie `distance` offsets apart, the first stage mode counting fastest; `distance` is a multiple of the
    /// swizzle's period. The law: `S(x, s) = s·distance + self(x)`.
    ///
    /// ```
    /// use tilewright_layout::SwizzledLayout;
    /// let tile: SwizzledLayout = "Sw<1,1,1> o (4,4):(1,4)".parse()?;
    /// assert_eq!(tile.stage_distance(1), Some(16));
    /// assert_eq!(tile.with_stages(&[4, 4, 3], &[2], 16)?.to_string(), "Sw<1,1,1> o (4,4,3):(1,4,16)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn with_stages(
        &self,
        shape: &[i64],
        stages: &[usize],
        distance: i64,
    ) -> Result<SwizzledLayout, LayoutError> {
        let refuse = |reason: String| {
            let layout = self.to_string();
            Err(LayoutError::Inadmissible { operation: "a layout with stages", layout, reason })
        };
        if distance % self.swizzle.period() != 0 {
            let period = self.swizzle.period();
            return refuse(format!("stages {distance} apart: no multiple of the swizzle's period, {period}"));
        }
        let kept = shape.len() - (0..shape.len()).filter(|mode| stages.contains(mode)).count();
        // A tile of one mode may have any nesting.
        let mut tile = match kept {
            1 if self.layout.rank() != 1 => vec![self.layout.clone()],
            _ => self.layout.modes(),
        }
        .into_iter();
        if tile.len() != kept {
            return refuse(format!("it must have {kept} modes"));
        }
        let mut next = distance;
        let mut modes = Vec::with_capacity(shape.len());
        for (mode, extent) in shape.iter().enumerate() {
            if stages.contains(&mode) {
                modes.push(Layout::from_leaves(&[(*extent, next)])?);
                next = next.checked_mul(*extent).ok_or_else(|| overflow("the stages of a layout"))?;
            } else {
                modes.extend(tile.next());
            }
        }
        Ok(SwizzledLayout { swizzle: self.swizzle, layout: Layout::concat(&modes)? })
    }
}

/// The least common multiple of two positive numbers.
fn lcm(a: i64, b: i64) -> Option<i64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}

impl From<Layout> for SwizzledLayout {
    fn from(layout: Layout) -> SwizzledLayout {
        SwizzledLayout { swizzle: Swizzle::NONE, layout }
    }
}

impl fmt::Display for SwizzledLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.swizzle.is_identity() {
            write!(f, "{}", self.layout)
        } else {
            write!(f, "{} o {}", self.swizzle, self.layout)
        }
    }
}

impl FromStr for SwizzledLayout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<SwizzledLayout, LayoutError> {
        let mut cursor = Cursor::new(text);
        if cursor.peek() != Some('S') {
            return Ok(text.parse::<Layout>()?.into());
        }
        let swizzle = Swizzle::read(&mut cursor)?;
        if !cursor.eat("∘") {
            cursor.expect("o")?;
        }
        let shape = cursor.integers()?;
        cursor.expect(":")?;
        let stride = cursor.integers()?;
        cursor.end()?;
        Ok(SwizzledLayout { swizzle, layout: Layout::new(shape, stride)? })
    }
}
