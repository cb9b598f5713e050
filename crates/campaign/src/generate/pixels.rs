//! Tiles of the next pixels of images: views that fold modes, which tensor copies read in im2col mode.

use super::draft::{Case, Draft, bits, columns_layout, rows_layout};
use crate::dice::Dice;

/// A convolution along a mode of an image.
struct Axis {
    name: &'static str,
    extent: i64,
    taps: i64,
    stride: i64,
    dilation: i64,
    front: i64,
    back: i64,
}

impl Axis {
    fn random(dice: &mut Dice, name: &'static str, most: i64) -> Axis {
        let (taps, dilation) = (dice.range(1, 3), dice.range(1, 2));
        let (stride, front, back) = (dice.range(1, 3), dice.range(0, 2), dice.range(0, 2));
        let least = (dilation * (taps - 1) + 1 - front - back).max(1);
        Axis { name, extent: least + dice.range(0, most), taps, stride, dilation, front, back }
    }

    /// Zeros around, less the reach of the taps: added to the extent before it is divided by the stride.
    fn lost(&self) -> i64 {
        self.front + self.back - self.dilation * (self.taps - 1) - 1
    }

    /// Outputs along it, given its extent's text.
    fn outputs(&self, extent: &str) -> String {
        let added = |number: i64| match number {
            ..0 => format!("{extent} - {}", -number),
            _ => format!("{extent} + {number}"),
        };
        match self.stride {
            1 => added(self.lost() + 1),
            stride => format!("({}) / {stride} + 1", added(self.lost())),
        }
    }
}

/// The pixels that each tap of a convolution meets, a tile of the next 128 outputs at a time.
pub fn pixels(dice: &mut Dice) -> Case {
    let dtype = dice.pick(&["f16", "bf16", "f32", "e4m3", "i32"]);
    let (m, threads) = (128, 128);
    let wide = 128 / bits(dtype);
    // Rows of a tile that swizzles span, and that warps share by columns.
    let n = 32 * dice.pick(&[1, 2, 4]) * 8 / bits(dtype);
    let channels = n * dice.range(1, 2) - wide * dice.range(0, n / wide - 1);
    let axes: Vec<Axis> = match dice.range(1, 3) {
        1 => vec![Axis::random(dice, "w", 40)],
        2 => ["h", "w"].map(|name| Axis::random(dice, name, 8)).into(),
        _ => ["d", "h", "w"].map(|name| Axis::random(dice, name, 2)).into(),
    };
    let mut draft = Draft::default();
    let images = dice.range(1, 3);
    let images = draft.size("nb", images);
    let extents: Vec<String> = axes.iter().map(|axis| draft.size(axis.name, axis.extent)).collect();
    let outputs: Vec<String> = axes.iter().zip(&extents).map(|(axis, extent)| axis.outputs(extent)).collect();
    let all = outputs.iter().fold(images.clone(), |all, outputs| format!("{all} * ({outputs})"));
    let taps: i64 = axes.iter().map(|axis| axis.taps).product();
    draft.params.push(format!("x: {dtype}[{images}, {}, {channels}]", extents.join(", ")));
    for copy in ["y", "z"] {
        draft.params.push(format!("{copy}: {dtype}[{all}, {taps}, {channels}]"));
    }
    let folded = axes.len() + 2;
    let offsets: Vec<String> = axes.iter().map(|axis| format!("-{} :", axis.front)).collect();
    let list = |of: Vec<String>| of.join(", ");
    let shape = list(axes.iter().map(|axis| axis.taps.to_string()).collect());
    let steps = axes.iter().zip(1..).map(|(axis, mode)| format!("{} * e{mode}", axis.dilation));
    let steps = list(steps.collect());
    let digits = list(outputs.iter().rev().cloned().chain([images.clone()]).collect());
    let along = axes.iter().enumerate().rev();
    let along = along.map(|(i, axis)| format!("{} * e{}", axis.stride, i + 1));
    let along = list(along.chain(["e0".to_string()]).collect());
    let last = folded - 1;
    draft.line(format!(
        "gx = global_view(x[:, {}, :], ({m}, ceil_div({all}, {m}), {shape}, {n}, ceil_div({channels}, {n})) : (e{folded}, {m} * e{folded}, {steps}, e{last}, {n} * e{last}), fold = ({digits}) : ({along}))",
        offsets.join(", ")
    ));
    for copy in ["y", "z"] {
        draft.line(format!(
            "g{copy} = global_view({copy}, ({m}, ceil_div({all}, {m}), {taps}, {n}, ceil_div({channels}, {n})) : (e0, {m} * e0, e1, e2, {n} * e2))"
        ));
    }
    draft.line(format!("s = shared_tensor({dtype}, [{m}, {n}])"));
    draft.line(format!("ring = pipeline({}, s)", dice.range(1, 3)));
    let bound = format!("{taps} * ceil_div({channels}, {n})");
    // The digits of a tap's number, the last mode of an image fastest.
    let mut indices = Vec::new();
    let mut before = 1;
    for axis in axes.iter().rev() {
        indices.push(format!("i / {before} % {}", axis.taps));
        before *= axis.taps;
    }
    indices.reverse();
    draft.open("warpgroup load(1)");
    draft.open(format!("for i in 0..{bound}"));
    draft.open("produce ring");
    let hint = dice.pick(&["", "", ", evict_last", ", evict_first"]);
    draft.line(format!("copy.async(gx[:, block.x, {}, :, i / {taps}], s{hint})", indices.join(", ")));
    draft.close();
    draft.close();
    draft.close();
    draft.open("warpgroup read(1)");
    draft.open(format!("for j in 0..{bound}"));
    let (by_rows, by_columns) = (rows_layout(dice, threads, m, n), columns_layout(threads, m, n));
    draft.line(format!("a = register_tensor({dtype}, [{m}, {n}], layout = {by_rows})"));
    draft.line(format!("b = register_tensor({dtype}, [{m}, {n}], layout = {by_columns})"));
    draft.open("consume ring");
    draft.line("copy(s, a)");
    draft.line("copy(s, b)");
    draft.close();
    draft.line(format!("copy(a, gy[:, block.x, j % {taps}, :, j / {taps}])"));
    draft.line(format!("copy(b, gz[:, block.x, j % {taps}, :, j / {taps}])"));
    draft.close();
    draft.close();
    let arch = dice.pick(&["sm_90a", "sm_90a", "sm_100a", "sm_120a"]);
    Case { text: draft.text(&format!("ceil_div({all}, {m})"), 256, &[1]), arch, family: "pixels" }
}
