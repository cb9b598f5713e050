//! The choices about a convolution, as data: its pass, and numbers along each of its modes.

use std::fmt;
use std::str::FromStr;

/// The pass of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pass {
    /// Forward: y from x and the filter f.
    Fprop,
    /// The data gradient: dx from dy and f.
    Dgrad,
    /// The weight gradient: df from dy and x.
    Wgrad,
}

impl Pass {
    /// All of them.
    pub const ALL: [Pass; 3] = [Pass::Fprop, Pass::Dgrad, Pass::Wgrad];
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pass::Fprop => "fprop",
            Pass::Dgrad => "dgrad",
            Pass::Wgrad => "wgrad",
        })
    }
}

impl FromStr for Pass {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Pass::ALL.into_iter().find(|pass| pass.to_string() == text).ok_or("must be fprop, dgrad or wgrad")
    }
}

/// The most numbers of a [`Numbers`]: images and three modes of an image.
const MOST: usize = 4;

/// One number for all modes, or one a mode, slowest first: `3`, `3x1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PerMode<T> {
    values: [T; MOST],
    count: usize,
}

impl<T: Copy> PerMode<T> {
    /// The same number for every mode.
    pub fn all(value: T) -> Self {
        PerMode { values: [value; MOST], count: 1 }
    }

    /// Numbers of one to four modes; `None` for others.
    pub fn each(values: &[T]) -> Option<Self> {
        let first = *values.first()?;
        let mut all = [first; MOST];
        all.get_mut(..values.len())?.copy_from_slice(values);
        Some(PerMode { values: all, count: values.len() })
    }

    /// The numbers of so many modes, if it has these.
    pub fn of(&self, modes: usize) -> Option<&[T]> {
        if self.count == 1 || self.count == modes { self.values.get(..modes) } else { None }
    }

    /// The numbers as they were given.
    pub fn given(&self) -> &[T] {
        &self.values[..self.count]
    }
}

impl<T: Copy + fmt::Display> fmt::Display for PerMode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.given().iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("x"))
    }
}

impl<T: Copy + FromStr> FromStr for PerMode<T> {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "must be a number, or one a mode joined with `x`, slowest first: 3x1";
        let values = text.split('x').map(|part| part.parse().map_err(|_| wanted));
        PerMode::each(&values.collect::<Result<Vec<T>, _>>()?).ok_or(wanted)
    }
}

/// Zeros in front of a mode and behind it: `1`, or `2:0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Padding {
    /// In front.
    pub front: i64,
    /// Behind.
    pub back: i64,
}

impl Padding {
    /// As many on both sides.
    pub fn both(zeros: i64) -> Self {
        Padding { front: zeros, back: zeros }
    }
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Padding { front, back } = self;
        if front == back { write!(f, "{front}") } else { write!(f, "{front}:{back}") }
    }
}

impl FromStr for Padding {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (front, back) = text.split_once(':').unwrap_or((text, text));
        Ok(Padding { front: front.parse()?, back: back.parse()? })
    }
}

/// A convolution along one mode of an image.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub taps: i64,
    pub stride: i64,
    pub dilation: i64,
    pub padding: Padding,
}

/// A convolution and its tile.
pub(crate) struct Shape {
    /// Along each mode of an image, slowest first.
    pub windows: Vec<Window>,
    pub groups: i64,
    /// Each output depends on the pixel at its place alone.
    pub pointwise: bool,
    /// Images and pixels along each mode of a tile; all pixels in the first place where there are no modes.
    pub fold: Vec<i64>,
    /// Channels of which those of a packed copy are a multiple, where taps along the last mode are channels of it.
    pub pack: Option<i64>,
    /// The pass, where tiles are of the next pixels.
    pub im2col: Option<Pass>,
}
