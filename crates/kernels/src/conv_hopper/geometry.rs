//! The sizes of a convolution: what its tensors are, and how pixels, taps and channels are counted.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, KernelBuilder, steps, tile};
use tilewright_tile::{Expr, ViewMode};

use super::choices::{Pass, Shape};
use crate::warp_specialized::{Along, Boxes, digits};

/// A mode of images.
pub(super) struct Axis {
    pub input: Expr,
    pub output: Expr,
    pub taps: i64,
    pub stride: i64,
    pub dilation: i64,
    /// Zeros in front.
    pub front: i64,
    /// Pixels of a tile.
    pub side: Expr,
}

/// The packed copies (see `pack.rs`): rows of images, and of the filter, whose taps along the last mode are channels beside each other.
pub(super) struct Packed {
    /// Channels of a pixel, as given and of the copy.
    pub given: Expr,
    pub channels: Expr,
    /// Pixels of a row: those of the image with its padding, and some behind.
    pub pixels: Expr,
    /// Taps of a row of the filter, and of those the ones that are no padding.
    pub taps: i64,
    pub filled: i64,
    /// Pixels of an image's row, the zeros in front of them, and the pixels from one output to the next.
    pub row: Expr,
    pub front: i64,
    pub stride: i64,
}

/// See the [module](self).
pub(super) struct Geometry {
    /// Images; where a filter is one tap and nothing is between pixels, all pixels.
    pub images: Expr,
    /// Images of a tile.
    pub several: Expr,
    pub axes: Vec<Axis>,
    /// Channels of x and of y, of a group; of x those of a packed window, where there are any.
    pub c: Expr,
    pub kout: Expr,
    pub groups: Option<Expr>,
    pub packed: Option<Packed>,
    /// The pass, where tiles are of the next pixels: what is read or written without taps is a matrix then.
    pub im2col: Option<Pass>,
}

/// The names of an image's modes and of their extents in a tile, slowest first, with default sizes.
const AXES: [(&str, &str, i64); 3] = [("d", "BZ", 8), ("h", "BP", 56), ("w", "BQ", 56)];

/// Elements of 16 bytes, of which TMA wants strides to be multiples.
pub(super) const VECTOR: i64 = 8;

impl Geometry {
    /// Declares the sizes and the tile.
    pub fn declare(t: &mut KernelBuilder, shape: &Shape, tiled: bool) -> Self {
        let Shape { windows, fold: sides, .. } = shape;
        let nb = t.size("nb", 32);
        let skipped = AXES.len() - windows.len();
        let inputs: Vec<Expr> =
            AXES[skipped..].iter().map(|(name, _, default)| t.size(name, *default)).collect();
        let (c, kout) = (t.size("c", 64), t.size("kout", 64));
        let groups = (shape.groups > 1).then(|| t.constant("G", shape.groups));
        let boxed = tiled && shape.im2col.is_none();
        let several = if boxed { t.constant("BI", sides[0]) } else { sides[0].into() };
        if shape.pointwise {
            let images = inputs.iter().fold(nb, |all, extent| all * extent);
            let (axes, packed, im2col) = (Vec::new(), None, None);
            return Geometry { images, several, axes, c, kout, groups, packed, im2col };
        }
        let axis = |(i, input): (usize, Expr)| {
            let one = &windows[i];
            let side = match sides.get(i + 1) {
                Some(side) if tiled => t.constant(AXES[skipped + i].1, *side),
                Some(side) => (*side).into(),
                None => 1.into(),
            };
            let lost = one.dilation * (one.taps - 1) + 1 - one.padding.front - one.padding.back;
            let reach = if lost > 0 { &input - lost } else { &input + -lost };
            let output = if one.stride == 1 { reach + 1 } else { reach / one.stride + 1 };
            Axis {
                output: if lost == 1 && one.stride == 1 { input.clone() } else { output },
                input,
                taps: one.taps,
                stride: one.stride,
                dilation: one.dilation,
                front: one.padding.front,
                side,
            }
        };
        let axes = inputs.into_iter().enumerate().map(axis).collect();
        let (packed, im2col) = (None, shape.im2col);
        let mut geometry = Geometry { images: nb, several, axes, c, kout, groups, packed, im2col };
        if let Some(pack) = shape.pack {
            geometry.pack(pack);
        }
        geometry
    }

    /// Makes the taps along the last mode channels of windows, whose neighbours overlap.
    fn pack(&mut self, multiple: i64) {
        let Some(last) = self.axes.last_mut() else { return };
        let channels = self.c.ceil_div(multiple) * multiple;
        let taps = packed_taps(last.taps, multiple);
        self.packed = Some(Packed {
            pixels: (&last.output - 1) * last.stride + taps,
            taps,
            filled: last.taps,
            row: last.input.clone(),
            front: last.front,
            stride: last.stride,
            given: self.c.clone(),
            channels: channels.clone(),
        });
        let (output, side) = (last.output.clone(), last.side.clone());
        *last = Axis { input: output.clone(), output, taps: 1, stride: 1, dilation: 1, front: 0, side };
        self.c = channels * taps;
    }

    /// The mode of channels of x, y and their gradients; groups are counted by the one before, if there are any.
    pub fn channels(&self) -> u32 {
        1 + self.axes.len() as u32 + u32::from(self.groups.is_some())
    }

    /// The mode of groups.
    pub fn group(&self) -> Option<u32> {
        self.groups.as_ref().map(|_| 1 + self.axes.len() as u32)
    }

    /// The shape of x (or dx), or of y (or dy).
    pub fn image_shape(&self, output: bool) -> Vec<Expr> {
        let axes = self.axes.iter().map(|axis| if output { &axis.output } else { &axis.input });
        let channels = if output { &self.kout } else { &self.c };
        [&self.images].into_iter().chain(axes).chain(&self.groups).chain([channels]).cloned().collect()
    }

    /// The number of pixels of x, or of y.
    pub fn pixels(&self, output: bool) -> Expr {
        let axes = self.axes.iter().map(|axis| if output { &axis.output } else { &axis.input });
        axes.fold(self.images.clone(), |all, extent| all * extent)
    }

    /// The shape of the result of a pass over pixels, or of what the weight gradient reads beside x: a matrix where tiles are of the next pixels.
    pub fn plain_shape(&self, output: bool) -> Vec<Expr> {
        if self.im2col.is_none() {
            return self.image_shape(output);
        }
        let channels = if output { &self.kout } else { &self.c };
        [self.pixels(output)].into_iter().chain(self.groups.clone()).chain([channels.clone()]).collect()
    }

    /// The modes of its channels and of its groups.
    pub fn plain_channels(&self) -> (u32, Option<u32>) {
        match self.im2col {
            Some(_) => (1 + u32::from(self.groups.is_some()), self.groups.as_ref().map(|_| 1)),
            None => (self.channels(), self.group()),
        }
    }

    /// The pixels that the first taps of those of a tile meet, as one mode, with steps from tile to tile of a size; and the modes that it folds.
    pub fn folded(&self, size: &Expr) -> ([ViewMode; 2], Vec<ViewMode>) {
        let data = self.im2col == Some(Pass::Dgrad);
        let (mode, all) = (self.channels() + 1, self.pixels(!data));
        let axes = self.numbered(1).rev().map(|(mode, axis)| match data {
            true => steps(mode, &axis.input, 1),
            false => steps(mode, &axis.output, axis.stride),
        });
        let fold = axes.chain([tile(0, &self.images)]).collect();
        ([tile(mode, size), steps(mode, all.ceil_div(size), size)], fold)
    }

    /// The shape of the filter.
    pub fn filter_shape(&self) -> Vec<Expr> {
        let taps = self.axes.iter().map(|axis| axis.taps.into());
        let groups = self.groups.iter().cloned();
        groups.chain([self.kout.clone()]).chain(taps).chain([self.c.clone()]).collect()
    }

    /// The mode of the filter that counts output channels; those of taps follow, then the input channels'.
    pub fn of_filter(&self) -> u32 {
        u32::from(self.groups.is_some())
    }

    /// Rows and columns of the result as a matrix.
    pub fn matrix(&self, pass: Pass) -> [Expr; 2] {
        let groups = self.groups.clone().unwrap_or(1.into());
        match pass {
            Pass::Fprop => [self.pixels(true), &self.kout * groups],
            Pass::Dgrad => [self.pixels(false), &self.c * groups],
            Pass::Wgrad => [&self.kout * groups, &self.c * self.taps()],
        }
    }

    /// The axes with their modes in a tensor, where the first has this one.
    pub fn numbered(&self, first: u32) -> impl DoubleEndedIterator<Item = (u32, &Axis)> {
        self.axes.iter().enumerate().map(move |(i, axis)| (first + i as u32, axis))
    }

    /// Taps of a filter.
    pub fn taps(&self) -> i64 {
        self.axes.iter().map(|axis| axis.taps).product()
    }

    /// The parameter of a factor.
    pub fn tensor(&self, t: &mut KernelBuilder, name: &str, dtype: DType) -> Buffer {
        if let (Some(packed), "x") = (&self.packed, name) {
            return packed.windows(t, dtype, self.image_shape(false));
        }
        if self.packed.is_some() && name == "f" {
            return t.tensor("packed_f", dtype, self.filter_shape());
        }
        let shape = match name {
            "f" => self.filter_shape(),
            "x" => self.image_shape(false),
            _ if self.im2col == Some(Pass::Wgrad) => self.plain_shape(true),
            _ => self.image_shape(true),
        };
        t.tensor(name, dtype, shape)
    }

    /// The boxes of pixels whose outputs a tile has, among those of y; or the pixels of x that their first tap meets.
    pub fn outputs(&self, of_x: bool) -> Boxes {
        let mut boxes = Boxes { sides: Vec::new(), walks: Vec::new() };
        for (mode, axis) in self.numbered(1).rev() {
            let step = if of_x { axis.stride } else { 1 };
            boxes.sides.push(Along::new(mode, &axis.side, step));
            boxes.walks.push(Along::new(mode, axis.output.ceil_div(&axis.side), &axis.side * step));
        }
        self.over_images(&mut boxes);
        boxes
    }

    /// The boxes of pixels of dx, of each residue of their places by the stride one behind the other; or those of dy that they begin at.
    pub fn inputs(&self, of_dx: bool) -> Boxes {
        let mut boxes = Boxes { sides: Vec::new(), walks: Vec::new() };
        for (mode, axis) in self.numbered(1).rev() {
            let step = if of_dx { axis.stride } else { 1 };
            let all = if axis.stride == 1 { axis.input.clone() } else { axis.input.ceil_div(axis.stride) };
            boxes.sides.push(Along::new(mode, &axis.side, step));
            boxes.walks.push(Along::new(mode, all.ceil_div(&axis.side), &axis.side * step));
        }
        self.over_images(&mut boxes);
        if of_dx {
            let strided = self.numbered(1).rev().filter(|(_, axis)| axis.stride > 1);
            boxes.walks.extend(strided.map(|(mode, axis)| Along::new(mode, axis.stride, 1)));
        }
        boxes
    }

    fn over_images(&self, boxes: &mut Boxes) {
        boxes.sides.push(Along::new(0, &self.several, 1));
        boxes.walks.push(Along::new(0, self.images.ceil_div(&self.several), &self.several));
    }

    /// The numbers of a tap along each axis, given its number, the last axis fastest: of axes with several taps.
    pub fn tap(&self, number: &Expr) -> Vec<Expr> {
        let several: Vec<i64> = self.axes.iter().map(|axis| axis.taps).filter(|taps| *taps > 1).collect();
        let counts: Vec<Expr> = several.into_iter().map(Into::into).collect();
        digits(number, &counts)
    }
}

impl Packed {
    /// The packed images as windows of the taps of each output, one a pixel of `shape`.
    fn windows(&self, t: &mut KernelBuilder, dtype: DType, shape: Vec<Expr>) -> Buffer {
        let row = &self.pixels * &self.channels;
        let mut strides = vec![Expr::from(1), &self.channels * self.stride, row];
        for extent in shape[1..shape.len() - 2].iter().rev() {
            let behind = &strides[strides.len() - 1];
            strides.push(behind * extent);
        }
        strides.reverse();
        t.strided_tensor("packed_x", dtype, shape, strides)
    }
}

/// Taps of a row of the packed filter: so many that its windows, of a multiple of `multiple` channels a tap, are multiples of 16 bytes.
pub(super) fn packed_taps(taps: i64, multiple: i64) -> i64 {
    let whole = (1..=VECTOR).find(|n| n * multiple % VECTOR == 0).unwrap_or(VECTOR);
    (taps + whole - 1) / whole * whole
}
