//! Convolutions by plain loops, and the sizes at which they are tested.

use super::HopperConvConfig;
use super::choices::{Pass, Window};
use crate::epilogue::{EpilogueOp, OperandKind};
use crate::gemm_hopper::Inputs;

/// The sizes of a convolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConvSizes {
    /// Images.
    pub nb: i64,
    /// Extents of an image, slowest first: d, h and w, those that it has.
    pub image: Vec<i64>,
    /// Channels of x.
    pub c: i64,
    /// Channels of y.
    pub kout: i64,
}

impl ConvSizes {
    /// The extents of an image of y; `None` if it has no pixel.
    pub fn output(&self, config: &HopperConvConfig) -> Option<Vec<i64>> {
        let along = |(extent, one): (&i64, Window)| {
            let reach = extent + one.padding.front + one.padding.back - one.dilation * (one.taps - 1) - 1;
            (reach >= 0).then(|| reach / one.stride + 1)
        };
        self.image.iter().zip(config.shape()).map(along).collect()
    }

    /// Sizes of a launch, by name: `c` and `kout` are channels of a group.
    pub fn named(&self, config: &HopperConvConfig) -> Vec<(&'static str, i64)> {
        let names = &["d", "h", "w"][3 - self.image.len().min(3)..];
        let image = names.iter().copied().zip(self.image.iter().copied());
        [("nb", self.nb)]
            .into_iter()
            .chain(image)
            .chain([("c", self.c / config.groups), ("kout", self.kout / config.groups)])
            .collect()
    }

    /// Elements of x, f and y. An image without outputs has none.
    pub fn elements(&self, config: &HopperConvConfig) -> [i64; 3] {
        let pixels = |extents: &[i64]| self.nb * extents.iter().product::<i64>();
        let taps: i64 = config.shape().iter().map(|one| one.taps).product();
        let output = self.output(config).map_or(0, |extents| pixels(&extents));
        [pixels(&self.image) * self.c, self.kout * taps * self.c / config.groups, output * self.kout]
    }
}

/// Sizes at which tiles meet every kind of edge: images of a pixel, odd extents, channels that no vector divides, and those that TMA takes without
/// being whole tiles.
pub fn edge_sizes(config: &HopperConvConfig) -> Vec<ConvSizes> {
    let image = |extents: [i64; 3]| extents[3 - config.shape().len()..].to_vec();
    let sizes = |nb, extents, c, kout| ConvSizes { nb, image: image(extents), c, kout };
    let all = [
        sizes(1, [1, 1, 1], 8, 8),
        sizes(3, [2, 7, 7], 64, 24),
        sizes(2, [3, 9, 21], 24, 65),
        sizes(1, [5, 6, 5], 3, 16),
        sizes(2, [2, 5, 17], 65, 72),
    ];
    let groups = config.groups;
    let divided = |mut sizes: ConvSizes| {
        (sizes.c, sizes.kout) = (sizes.c * groups, sizes.kout * groups);
        sizes
    };
    all.into_iter().map(divided).filter(|sizes| sizes.output(config).is_some()).collect()
}

/// An index into a row-major tensor.
fn place(extents: &[i64], index: &[i64]) -> i64 {
    extents.iter().zip(index).fold(0, |at, (extent, i)| at * extent + i)
}

/// Calls `f` with every index below the extents.
fn each(extents: &[i64], mut f: impl FnMut(&[i64])) {
    let mut index = vec![0; extents.len()];
    for number in 0..extents.iter().product::<i64>() {
        let mut rest = number;
        for (i, extent) in index.iter_mut().zip(extents).rev() {
            *i = rest % extent;
            rest /= extent;
        }
        f(&index);
    }
}

/// The sums of a convolution in f64, row-major, of the two factors of its pass: x and f, dy and f, or dy and x. A factor that is too short reads as 0.
pub fn reference(config: &HopperConvConfig, sizes: &ConvSizes, [left, right]: [&[f64]; 2]) -> Vec<f64> {
    let shape = config.shape();
    let taps: Vec<i64> = shape.iter().map(|one| one.taps).collect();
    let Some(output) = sizes.output(config) else { return Vec::new() };
    let [of_x, of_f, of_y] = sizes.elements(config);
    let length = match config.pass {
        Pass::Fprop => of_y,
        Pass::Dgrad => of_x,
        Pass::Wgrad => of_f,
    };
    let mut result = vec![0.0; usize::try_from(length).unwrap_or(0)];
    let (c, kout) = (sizes.c / config.groups, sizes.kout / config.groups);
    let read = |values: &[f64], at: i64| values.get(at as usize).copied().unwrap_or(0.0);
    let mut pair = |pixel: i64, tap: i64, out: i64| {
        for k in 0..sizes.kout {
            let group = k / kout;
            for channel in 0..c {
                let x = pixel * sizes.c + group * c + channel;
                let f = (k * taps.iter().product::<i64>() + tap) * c + channel;
                let y = out * sizes.kout + k;
                let (at, value) = match config.pass {
                    Pass::Fprop => (y, read(left, x) * read(right, f)),
                    Pass::Dgrad => (x, read(left, y) * read(right, f)),
                    Pass::Wgrad => (f, read(left, y) * read(right, x)),
                };
                if let Some(sum) = result.get_mut(at as usize) {
                    *sum += value;
                }
            }
        }
    };
    for image in 0..sizes.nb {
        each(&output, |out| {
            each(&taps, |tap| {
                let along = out.iter().zip(tap).zip(&shape);
                let at: Vec<i64> = along
                    .map(|((out, tap), one)| out * one.stride + tap * one.dilation - one.padding.front)
                    .collect();
                if at.iter().zip(&sizes.image).all(|(at, extent)| (0..*extent).contains(at)) {
                    let pixels = |extents: &[i64]| image * extents.iter().product::<i64>();
                    let pixel = pixels(&sizes.image) + place(&sizes.image, &at);
                    pair(pixel, place(&taps, tap), pixels(&output) + place(&output, out));
                }
            });
        });
    }
    result
}

/// The result before it is rounded: sums after the epilogue, whose rows have so many channels.
pub fn finish(config: &HopperConvConfig, inputs: &Inputs, sums: &[f64], channels: usize) -> Vec<f64> {
    let value = |(at, sum): (usize, &f64)| {
        config.epilogue.parts().fold(*sum, |v, part| {
            let operand = part.operand(config.result());
            let values: Vec<f64> = operand
                .iter()
                .map(|operand| {
                    let place = match operand.kind {
                        OperandKind::Scalar(_) => 0,
                        OperandKind::Row => at / channels,
                        OperandKind::Column => at % channels,
                        OperandKind::Matrix | OperandKind::Result => at,
                    };
                    inputs.named(&operand.name).get(place).copied().unwrap_or(0.0)
                })
                .collect();
            part.reference(v, &values, [at / channels, at % channels])
        })
    };
    sums.iter().enumerate().map(value).collect()
}
