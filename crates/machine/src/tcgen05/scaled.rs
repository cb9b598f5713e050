//! Products with their sums in tensor memory and scales of blocks along K of both factors: their kinds, and the places of scales in shared and in
//! tensor memory.
//!
//! Scales lie in tensor memory, four of a row in a cell. `tcgen05.cp` brings them there from shared memory, a chunk of 128 rows at a time: row r of a
//! chunk has its four scales in lane r % 32 and column r / 32, and the other three quarters of the lanes have copies ([`SumsScaling::cell`]). An instruction takes
//! one, two or all four bytes of the cells, from one on that its descriptor names, so that a chunk serves four steps of 32 bytes along K, two, or one.
//!
//! Sources: PTX ISA 9.1, sections 9.7.16.10.7 (block scaling, layouts of scales) and 9.7.16.8 (`tcgen05.cp`, `.32x128b` with `.warpx4`); CUTLASS
//! `include/cute/atom/mma_traits_sm100.hpp` (`tmem_sf_frg`).

use tilewright_layout::Layout;

use super::{Tcgen05Row, row};
use crate::dtype::DType;
use crate::wgmma::{Descriptor, Major, SwizzleMode};

/// The scales of blocks of both factors of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SumsScaling {
    /// The type of scales.
    pub dtype: DType,
    /// Elements of a block along K.
    pub block: i64,
}

impl SumsScaling {
    /// Rows of a chunk of scales.
    pub const ROWS: i64 = 128;
    /// Scales of each row of a chunk, one a byte of a cell.
    pub const SCALES: i64 = 4;
    /// Bytes of a chunk in shared memory.
    pub const BYTES: i64 = SumsScaling::ROWS * SumsScaling::SCALES;
    /// Columns of a chunk in tensor memory.
    pub const COLUMNS: u32 = 4;
    /// The name of the copy of a chunk in reports and in the tables of cycles.
    pub const COPY: &str = "tcgen05.cp";
    /// The mnemonic of that copy.
    pub const COPY_MNEMONIC: &str = "tcgen05.cp.cta_group::1.32x128b.warpx4";

    /// The scales of blocks of so many elements of a row of `k` of them: `None` where these are no blocks.
    pub fn new(dtype: DType, k: i64, scales: i64) -> Option<SumsScaling> {
        (scales > 0 && k % scales == 0).then(|| SumsScaling { dtype, block: k / scales })
    }

    /// Rows of scales that come to tensor memory for a factor of so many: those of whole chunks, of which products read the factor's.
    pub fn rows_for(rows: i64) -> i64 {
        (rows + Self::ROWS - 1) / Self::ROWS * Self::ROWS
    }

    /// (row, scale), rows fastest, → byte in shared memory: chunks of 128 rows and four scales, those of the same scales one behind the other. `None` where the
    /// extents are no multiples of a chunk's.
    pub fn shared_layout(rows: i64, scales: i64) -> Option<Layout> {
        if rows % Self::ROWS != 0 || scales % Self::SCALES != 0 || rows * scales == 0 {
            return None;
        }
        let blocks = rows / Self::ROWS;
        // A row's four scales are neighbours, and of every 32nd row.
        format!(
            "((32,4,{blocks}),(4,{})):((16,4,{}),(1,{}))",
            scales / Self::SCALES,
            Self::BYTES,
            blocks * Self::BYTES
        )
        .parse()
        .ok()
    }

    /// The descriptor of a chunk in shared memory, with its start at 0: 32 rows of 16 bytes, one behind the other.
    pub fn chunk() -> Descriptor {
        Descriptor { start: 0, leading: 0, stride: 128, swizzle: SwizzleMode::None }
    }

    /// Columns of tensor memory for so many rows and scales.
    pub fn columns(rows: i64, scales: i64) -> u32 {
        (rows / Self::ROWS * (scales / Self::SCALES)) as u32 * Self::COLUMNS
    }

    /// The lane, of each quarter of the lanes, and the column of a row's scales.
    pub fn cell(row: i64) -> (u32, u32) {
        ((row % 32) as u32, (row / 32) as u32)
    }

    /// Scales of a row that an instruction of `k` columns takes.
    pub fn taken(&self, k: i64) -> i64 {
        k / self.block
    }
}

impl Tcgen05Row {
    /// The instruction descriptor of a block-scaled product whose factors are contiguous along these modes, with the first bytes of the cells of A's and of B's scales
    /// (PTX ISA 9.1, section 9.7.16.4.2, the table for `.kind::mxf8f6f4`, `.kind::mxf4` and `.kind::mxf4nvf4`).
    pub fn scaled_instruction(
        &self,
        scaling: &SumsScaling,
        [of_a, of_b]: [u32; 2],
        [a, b]: [Major; 2],
    ) -> u32 {
        let code = |dtype: DType| match dtype {
            DType::E5M2 | DType::E2M1 => 1,
            _ => 0,
        };
        let along = |major: Major| u32::from(major == Major::Mn);
        let exponents = u32::from(scaling.dtype == DType::UE8M0);
        of_b << 4
            | code(self.a) << 7
            | code(self.b) << 10
            | along(a) << 15
            | along(b) << 16
            | (self.n as u32 / 8) << 17
            | exponents << 23
            | ((self.m * self.blocks) as u32 / 16) << 24
            | of_a << 29
    }
}

/// The block-scaled products of 128 rows in each of so many blocks, and so many columns.
pub(super) fn scaled_rows(blocks: i64, n: i64) -> impl Iterator<Item = Tcgen05Row> {
    use DType::{E2M1, E4M3, E5M2, UE4M3, UE8M0};
    let bytes = [E4M3, E5M2].into_iter().flat_map(|a| [E4M3, E5M2].map(|b| (a, b, UE8M0, 32)));
    let packed = [(E2M1, E2M1, UE8M0, 32), (E2M1, E2M1, UE4M3, 16)];
    bytes.chain(packed).map(move |(a, b, scale, block)| {
        // Without a size `ptxas` 13.0 takes `.block32`, which needs PTX 8.8.
        let (format, kind, ptx_version) = match (a.bits(), block) {
            (8, _) => ("mx", "mxf8f6f4.block_scale.scale_vec::1X", "8.6"),
            (_, 32) => ("mx", "mxf4.block_scale.scale_vec::2X", "8.6"),
            _ => ("nv", "mxf4nvf4.block_scale.scale_vec::4X", "8.7"),
        };
        let plain = row(blocks, [128, n], (a, b));
        Tcgen05Row {
            name: plain.name.replace("tcgen05.mma.", &format!("tcgen05.mma.{format}.")),
            mnemonic: format!("tcgen05.mma.cta_group::{blocks}.kind::{kind}"),
            scaling: Some(SumsScaling { dtype: scale, block }),
            ptx_version,
            ..plain
        }
    })
}

/// The row of one block's block-scaled product of these types (A, B) and extents.
pub fn scaled_tcgen05(
    a: DType,
    b: DType,
    scaling: SumsScaling,
    extents: [i64; 2],
) -> Option<&'static Tcgen05Row> {
    of_blocks(1, (a, b), scaling, extents)
}

/// The same of a pair of blocks, of which each has so many rows of A and D with their scales, half of the rows of B, and the scales of all of these.
///
/// Source: PTX ISA 9.1, section 9.7.16.10.7 (layouts of scales); CUTLASS `tmem_sf_frg`, by which each block has the scales of all rows of B.
pub fn scaled_tcgen05_pair(
    a: DType,
    b: DType,
    scaling: SumsScaling,
    extents: [i64; 2],
) -> Option<&'static Tcgen05Row> {
    of_blocks(2, (a, b), scaling, extents)
}

fn of_blocks(
    blocks: i64,
    (a, b): (DType, DType),
    scaling: SumsScaling,
    [m, n]: [i64; 2],
) -> Option<&'static Tcgen05Row> {
    let is = |row: &&Tcgen05Row| {
        (row.scaling, row.blocks) == (Some(scaling), blocks) && (row.a, row.b, row.m, row.n) == (a, b, m, n)
    };
    super::tcgen05_rows().iter().find(is)
}

/// True if there are block-scaled products of these types (A, B, D).
pub fn has_scaled_tcgen05(a: DType, b: DType, c: DType, scaling: SumsScaling) -> bool {
    c == DType::F32 && scaled_tcgen05(a, b, scaling, [128, 128]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_descriptors_are_those_of_cutlass() {
        let with = |a, dtype, block, ids, majors| {
            let scaling = SumsScaling { dtype, block };
            scaled_tcgen05(a, a, scaling, [128, 256]).unwrap().scaled_instruction(&scaling, ids, majors)
        };
        let bits = |a, dtype, block, ids| with(a, dtype, block, ids, [Major::K; 2]);
        let along_n = with(DType::E4M3, DType::UE8M0, 32, [0, 0], [Major::K, Major::Mn]);
        assert_eq!(along_n, 0x08c0_0000 | 1 << 16);
        assert_eq!(bits(DType::E4M3, DType::UE8M0, 32, [0, 0]), 0x08c0_0000);
        assert_eq!(bits(DType::E2M1, DType::UE4M3, 16, [0, 0]), 0x0840_0480);
        let pair = scaled_tcgen05_pair(
            DType::E4M3,
            DType::E4M3,
            SumsScaling { dtype: DType::UE8M0, block: 32 },
            [128, 256],
        );
        let pair = pair.unwrap();
        assert_eq!((pair.blocks, pair.right_rows()), (2, 128));
        let of_pair = pair.scaled_instruction(&pair.scaling.unwrap(), [0, 0], [Major::K; 2]);
        assert_eq!(of_pair, 0x10c0_0000);
        let third = bits(DType::E5M2, DType::UE8M0, 32, [3, 2]);
        assert_eq!(third, 0x08c0_0000 | 1 << 7 | 1 << 10 | 2 << 4 | 3 << 29);
        assert_eq!(
            scaled_tcgen05(
                DType::E2M1,
                DType::E2M1,
                SumsScaling { dtype: DType::UE4M3, block: 32 },
                [128, 128]
            ),
            None
        );
    }

    #[test]
    fn chunks_have_a_row_of_scales_in_each_cell() {
        assert_eq!(SumsScaling::shared_layout(64, 4), None);
        assert_eq!(SumsScaling::shared_layout(128, 2), None);
        assert_eq!(SumsScaling::chunk().encode() | Tcgen05Row::DESCRIPTOR, 0x0000_4008_0000_0000);
        for (rows, scales) in [(128, 4), (256, 4), (256, 16)] {
            let layout = SumsScaling::shared_layout(rows, scales).unwrap();
            assert!(layout.is_bijective_onto(rows * scales));
            for row in 0..rows {
                for scale in 0..scales {
                    let byte = layout.eval(row + rows * scale);
                    let chunk = row / 128 + rows / 128 * (scale / 4);
                    // Lane and column of the copy: 32 rows of four words.
                    let (line, word) = (byte % 512 / 16, byte % 16 / 4);
                    let (lane, column) = SumsScaling::cell(row % 128);
                    assert_eq!((byte / 512, line, word), (chunk, i64::from(lane), i64::from(column)));
                    assert_eq!(byte % 4, scale % 4);
                }
            }
        }
        assert_eq!(SumsScaling::columns(256, 16), 32);
        assert_eq!([16, 128, 144, 192, 256].map(SumsScaling::rows_for), [128, 128, 256, 256, 256]);
    }
}
