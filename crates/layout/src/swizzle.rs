//! Swizzles: permutations of offsets that exclusive-or some bits onto others, so that neighbouring rows fall into
//! different banks of shared memory. A swizzled layout applies its layout first, then its swizzle.

use crate::error::LayoutError;
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

    /// Whether no offset changes.
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
    /// What is applied last.
    pub swizzle: Swizzle,
    /// What is applied first.
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
