//! Products with a sparse left factor (`tcgen05.mma.sp`): of every four elements along K two are there, and metadata in tensor memory have the places of
//! these.
//!
//! Sources: PTX ISA 9.1, section 9.7.16 (sparse matrices); CUTLASS `include/cute/atom/mma_traits_sm100_frag.hpp` (`tmem_e_frg`: the cells of metadata of 128 rows); JAX
//! `jax/experimental/mosaic/gpu/tcgen05.py` (16 bits: pairs of columns, of which the sparsity selector of the instruction descriptor names one).

use tilewright_layout::Layout;

use super::{Tcgen05Row, TensorMemory, row};
use crate::dtype::DType;
use crate::mma::Sparsity;

/// Bit 2 of an instruction descriptor: the left factor is sparse (PTX ISA 9.1, section 9.7.16.4.2).
const SPARSE: u32 = 1 << 2;

/// Places of metadata in a cell.
const OF_A_CELL: i64 = 16;

/// The metadata that an instruction takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// The first column, from that of the metadata on.
    pub column: u32,
    /// The column of a pair that an instruction of 16-bit factors reads; 0 of others.
    pub selector: u32,
}

/// (m, c), m fastest → place in tensor memory, of which a cell has 16, of the metadata of 128 rows that begin at column 0. Factors have elements of so many bits, and `c` counts the
/// columns of A that are there, so many. `None` where they are no whole columns of tensor memory.
pub fn metadata_layout(bits: u32, columns: i64) -> Option<Layout> {
    if columns % OF_A_CELL != 0 || columns == 0 {
        return None;
    }
    let cells = columns / OF_A_CELL;
    let text = match bits {
        // Eight neighbours along K of rows m and m + 8 share a cell, and the next eight lie eight lanes on.
        16 => format!("((8,2,8),(8,2,{cells})):((16,8,256),(1,128,2048))"),
        8 => format!("(128,(16,{cells})):(16,(1,2048))"),
        _ => return None,
    };
    text.parse().ok()
}

impl Tcgen05Row {
    /// Columns of A: half of K of a sparse one.
    pub fn left_columns(&self) -> i64 {
        if self.sparse { self.k / Sparsity::GROUP * Sparsity::KEPT } else { self.k }
    }

    /// Columns of tensor memory that the metadata of an instruction take.
    pub fn metadata_columns(&self) -> u32 {
        TensorMemory::columns_of(self.left_columns(), Sparsity::META)
    }

    /// The metadata of the instruction of this number along K.
    pub fn places(&self, step: u32) -> Places {
        match self.a.bits() {
            16 => Places { column: step & !1, selector: step & 1 },
            _ => Places { column: step * self.metadata_columns(), selector: 0 },
        }
    }

    /// Bits of the instruction descriptor for a sparse left factor and a selector.
    pub fn sparse_bits(selector: u32) -> u32 {
        SPARSE | selector
    }

    /// Columns along K of which there must be a multiple: those of a pair of columns of metadata.
    pub fn whole_k(&self) -> i64 {
        if self.sparse && self.a.bits() == 16 { 2 * self.k } else { self.k }
    }
}

/// The products of 128 rows with a sparse left factor, of so many columns.
pub(super) fn sparse_row(n: i64, types: (DType, DType)) -> Tcgen05Row {
    let dense = row(1, [TensorMemory::LANES, n], types);
    let k = 2 * dense.k;
    Tcgen05Row {
        name: dense
            .name
            .replace("tcgen05.mma.", "tcgen05.mma.sp.")
            .replace(&format!("k{}.", dense.k), &format!("k{k}.")),
        mnemonic: dense.mnemonic.replace("tcgen05.mma.", "tcgen05.mma.sp."),
        k,
        sparse: true,
        ..dense
    }
}

/// The row of one block's product with a sparse left factor of these types (A, B, D) and extents.
pub fn sparse_tcgen05(a: DType, b: DType, c: DType, [m, n]: [i64; 2]) -> Option<&'static Tcgen05Row> {
    sparse_rows().find(|row| (row.a, row.b, row.c, row.m, row.n) == (a, b, c, m, n))
}

/// True if there are products with a sparse left factor of these types (A, B, D).
pub fn has_sparse_tcgen05(a: DType, b: DType, c: DType) -> bool {
    sparse_rows().any(|row| (row.a, row.b, row.c) == (a, b, c))
}

fn sparse_rows() -> impl Iterator<Item = &'static Tcgen05Row> {
    super::tcgen05_rows().iter().filter(|row| row.sparse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wgmma::Major;

    #[test]
    fn metadata_have_places_of_their_own() {
        for bits in [8, 16] {
            for columns in [32, 64] {
                let mut image = metadata_layout(bits, columns).unwrap().image();
                image.sort_unstable();
                assert_eq!(image, (0..128 * columns).collect::<Vec<_>>(), "{bits}");
            }
            assert_eq!(metadata_layout(bits, 24), None);
        }
        assert_eq!(metadata_layout(32, 32), None);
        // The lane, the column and the place in a cell.
        let place = |bits, m: i64, c: i64| {
            let at = metadata_layout(bits, 32).unwrap().eval(m + 128 * c);
            (at / 16 % 128, at / 2048, at % 16)
        };
        assert_eq!(place(8, 77, 21), (77, 1, 5));
        assert_eq!(place(16, 8 + 3, 5), (3, 0, 8 + 5));
        assert_eq!(place(16, 5 * 16 + 3, 16 + 8 + 5), (5 * 16 + 8 + 3, 1, 5));
    }

    #[test]
    fn instructions_take_the_metadata_of_their_columns() {
        for row in sparse_rows() {
            assert_eq!(row.k * i64::from(row.a.bits()), 512, "{}", row.name);
            assert!(row.name.contains(&format!(".sp.m128n{}k{}.", row.n, row.k)), "{}", row.name);
            // Two instructions take two columns, or two each.
            let columns: Vec<(u32, u32)> =
                (0..4).map(|step| row.places(step)).map(|places| (places.column, places.selector)).collect();
            let wanted = if row.a.bits() == 16 {
                [(0, 0), (0, 1), (2, 0), (2, 1)]
            } else {
                [(0, 0), (2, 0), (4, 0), (6, 0)]
            };
            assert_eq!(columns, wanted, "{}", row.name);
        }
        let half = sparse_tcgen05(DType::F16, DType::F16, DType::F32, [128, 64]).unwrap();
        assert_eq!((half.whole_k(), half.left_columns(), half.metadata_columns()), (64, 16, 1));
        let bytes = sparse_tcgen05(DType::E4M3, DType::E5M2, DType::F32, [128, 64]).unwrap();
        assert_eq!((bytes.whole_k(), bytes.left_columns(), bytes.metadata_columns()), (64, 32, 2));
        assert_eq!(bytes.instruction(Major::K, Major::K) & Tcgen05Row::sparse_bits(3), 0);
        assert!(has_sparse_tcgen05(DType::I8, DType::U8, DType::I32));
        assert!(!has_sparse_tcgen05(DType::F32, DType::F32, DType::F32));
    }
}
