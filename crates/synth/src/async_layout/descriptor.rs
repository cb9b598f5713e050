//! Operands of `wgmma` in shared memory: the layouts that the hardware reads, and the descriptor of a layout.
//!
//! A layout here maps the operand's coordinate (mn, k), mn fastest, → offset in elements, before the swizzle. An operand of an
//! instruction is a sub-tile of it; its descriptor exists if the sub-tile's own layout, which must be the same wherever the
//! sub-tile lies, is one that a descriptor describes.

use tilewright_layout::{HTuple, Layout, SwizzledLayout};
use tilewright_machine::{Descriptor, Major, SwizzleMode};

use crate::reject::DescriptorReject;

/// The layout of a tile that is contiguous along mode `along` in rows of the swizzle's span, as tensor copies write it: (the tile's
/// coordinate) → offset in elements of `bits` bits. The other modes follow in their order; last come the spans of mode `along`.
/// `None` where the mode is no multiple of the span.
pub fn swizzle_atom_layout(
    shape: &[i64],
    along: usize,
    mode: SwizzleMode,
    bits: u32,
) -> Option<SwizzledLayout> {
    let span = i64::from(mode.span() * 8 / bits);
    if shape[along] % span != 0 {
        return None;
    }
    let row: Vec<i64> = (0..shape.len()).map(|mode| if mode == along { span } else { 1 }).collect();
    let spans_last: Vec<i64> = (0..shape.len()).map(|mode| i64::from(mode == along)).collect();
    let row = Layout::column_major(HTuple::from_flat(row)).ok()?;
    let rows = SwizzledLayout::new(mode.elements(bits), row);
    rows.tile_to_shape(&HTuple::from_flat(shape.to_vec()), &HTuple::from_flat(spans_last)).ok()
}

/// The form of an operand's descriptor: all but its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorTemplate {
    /// The mode along which it is contiguous.
    pub major: Major,
    /// The descriptor with its start at 0.
    pub descriptor: Descriptor,
}

/// The descriptor of the operand of `mn`×`k` elements that lies at coordinate (0, 0) of a tile with `rows` rows, and at every
/// multiple of its extents.
///
/// `plain` is the tile's layout, (row + rows · column) → offset in elements of `bits` bits, before the swizzle. The offsets at which
/// the layout moves on, by 8 rows or by a span, are the descriptor's, which may be contiguous along MN where the instruction takes that; then every element of every sub-tile is checked against
/// what the hardware reads.
///
/// # Errors
///
/// The reason why the hardware does not read this layout.
pub fn matrix_descriptor(
    plain: &Layout,
    swizzle: SwizzleMode,
    (rows, columns): (i64, i64),
    (mn, k): (i64, i64),
    (bits, takes_mn_major): (u32, bool),
) -> Result<DescriptorTemplate, DescriptorReject> {
    // Elements that share a byte are one: they must be neighbours along K.
    let per = i64::from((8 / bits).max(1));
    let bytes = i64::from(bits.div_ceil(8));
    let offsets = plain.table();
    let of_element = |i: i64, j: i64| {
        let element = i + rows * j;
        offsets.get(element as usize).copied().unwrap_or_else(|| plain.eval(element))
    };
    let together = |i: i64, j: i64| {
        let first = of_element(i, per * j);
        first % per == 0 && (1..per).all(|next| of_element(i, per * j + next) == first + next)
    };
    if columns % per != 0 || k % per != 0 {
        return Err(DescriptorReject::NotCovered([rows, columns], [mn, k]));
    }
    let (columns, k) = (columns / per, k / per);
    if per > 1 && !(0..columns).all(|j| (0..rows).all(|i| together(i, j))) {
        return Err(DescriptorReject::NotContiguous);
    }
    let at = |i: i64, j: i64| of_element(i, per * j) / per * bytes;
    if rows % mn != 0 || columns % k != 0 {
        return Err(DescriptorReject::NotCovered([rows, columns], [mn, k]));
    }
    let span = i64::from(swizzle.span());
    let row = span / bytes;
    // Contiguous along the mode in which the second element is the next.
    let major = if k > 1 && at(0, 1) == bytes {
        Major::K
    } else if at(1, 0) == bytes {
        Major::Mn
    } else {
        return Err(DescriptorReject::NotContiguous);
    };
    if major == Major::Mn && !takes_mn_major {
        return Err(DescriptorReject::NotAlongK(bits));
    }
    // Of 32 bits neighbours along MN are exchanged 32 bytes at a time, and nothing else is.
    if (swizzle == SwizzleMode::B128Atom32) != (major == Major::Mn && bits == 32) {
        return Err(DescriptorReject::Atoms(bits, major, swizzle));
    }
    let field = |offset: i64| u32::try_from(offset).ok().filter(|o| o % 16 == 0 && *o < 1 << 18);
    let step = |reached: bool, i: i64, j: i64| if reached { field(at(i, j) - at(0, 0)) } else { Some(16) };
    let (leading, stride) = match (major, swizzle) {
        (Major::K, SwizzleMode::None) => (step(k > row, 0, row), step(mn > 8, 8, 0)),
        (Major::K, _) => (Some(16), step(mn > 8, 8, 0)),
        (Major::Mn, SwizzleMode::None) => (step(k > 8, 0, 8), step(mn > row, row, 0)),
        (Major::Mn, swizzle) => {
            let lines = swizzle.lines();
            (step(mn > row, row, 0), step(k > lines, 0, lines))
        }
    };
    let (Some(leading), Some(stride)) = (leading, stride) else {
        return Err(DescriptorReject::RowsUnaligned);
    };
    let descriptor = Descriptor { start: 0, leading, stride, swizzle };
    let canonical = descriptor.layout(major, mn, k, bytes);
    if canonical.size() != mn * k {
        return Err(DescriptorReject::NotWhole([mn, k], swizzle));
    }
    let canonical = canonical.table();
    for j0 in (0..columns).step_by(k as usize) {
        for i0 in (0..rows).step_by(mn as usize) {
            let start = at(i0, j0);
            if start % 16 != 0 {
                return Err(DescriptorReject::Unaligned([i0, per * j0]));
            }
            for j in 0..k {
                for i in 0..mn {
                    if at(i0 + i, j0 + j) != start + canonical[(i + mn * j) as usize] {
                        return Err(DescriptorReject::Elsewhere([i0 + i, per * (j0 + j)], major, swizzle));
                    }
                }
            }
        }
    }
    Ok(DescriptorTemplate { major, descriptor })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every layout that tensor copies write is one that the hardware reads.
    #[test]
    fn swizzle_atom_layouts_have_descriptors() {
        for mode in SwizzleMode::ALL {
            for (along, major) in [(1, Major::K), (0, Major::Mn)] {
                let layout = swizzle_atom_layout(&[128, 128], along, mode, 16).unwrap();
                for mn in [64, 128] {
                    let template =
                        matrix_descriptor(&layout.layout, mode, (128, 128), (mn, 16), (16, true)).unwrap();
                    assert_eq!((template.major, template.descriptor.swizzle), (major, mode));
                }
            }
            let bytes = swizzle_atom_layout(&[64, 256], 1, mode, 8).unwrap();
            assert_eq!(
                matrix_descriptor(&bytes.layout, mode, (64, 256), (64, 32), (8, false)).unwrap().major,
                Major::K
            );
            let across = swizzle_atom_layout(&[128, 64], 0, mode, 8).unwrap();
            assert_eq!(
                matrix_descriptor(&across.layout, mode, (128, 64), (64, 32), (8, false)),
                Err(DescriptorReject::NotAlongK(8))
            );
            let template = matrix_descriptor(&across.layout, mode, (128, 64), (128, 32), (8, true)).unwrap();
            assert_eq!((template.major, template.descriptor.swizzle), (Major::Mn, mode));
        }
    }

    #[test]
    fn factors_of_32_bits_along_mn_have_atoms_of_32_bytes() {
        let mode = SwizzleMode::B128Atom32;
        let layout = swizzle_atom_layout(&[64, 32], 0, mode, 32).unwrap();
        assert_eq!(layout.to_string(), "Sw<2,3,2> o ((32,2),32):((1,1024),32)");
        let template = matrix_descriptor(&layout.layout, mode, (64, 32), (64, 8), (32, true)).unwrap();
        let Descriptor { leading, stride, .. } = template.descriptor;
        assert_eq!((template.major, leading, stride), (Major::Mn, 4096, 512));
        assert_eq!(template.descriptor.encode() >> 61, 1);
        assert_eq!(Descriptor::decode(template.descriptor.encode()), template.descriptor);
        let other = swizzle_atom_layout(&[64, 32], 0, SwizzleMode::B128, 32).unwrap();
        assert_eq!(
            matrix_descriptor(&other.layout, SwizzleMode::B128, (64, 32), (64, 8), (32, true)),
            Err(DescriptorReject::Atoms(32, Major::Mn, SwizzleMode::B128))
        );
    }

    #[test]
    fn the_usual_operand_has_the_usual_descriptor() {
        let layout = swizzle_atom_layout(&[128, 64], 1, SwizzleMode::B128, 16).unwrap();
        assert_eq!(layout.to_string(), "Sw<3,3,3> o (128,64):(64,1)");
        let template =
            matrix_descriptor(&layout.layout, SwizzleMode::B128, (128, 64), (64, 16), (16, true)).unwrap();
        assert_eq!(template.descriptor.encode(), 0x4000_0040_0001_0000);
    }

    #[test]
    fn other_layouts_have_none() {
        let padded: Layout = "(64,64):(72,1)".parse().unwrap();
        assert!(matrix_descriptor(&padded, SwizzleMode::B128, (64, 64), (64, 16), (16, true)).is_err());
        let apart: Layout = "(64,64):(2,128)".parse().unwrap();
        let reject = matrix_descriptor(&apart, SwizzleMode::None, (64, 64), (64, 16), (16, true));
        assert_eq!(reject, Err(DescriptorReject::NotContiguous));
        assert!(swizzle_atom_layout(&[64, 48], 1, SwizzleMode::B128, 16).is_none());
    }
}
