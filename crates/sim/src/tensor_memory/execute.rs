//! Products with their sums in tensor memory, as they complete.

use super::{LANES, Left, SumsProduct, TensorMemory};
use crate::cluster::Cluster;
use crate::wgmma::{Number, read};

impl Cluster<'_> {
    /// Executes a product: of floats sums are `f32` in the order of rising k.
    pub(super) fn execute_sums<T: Number>(&mut self, product: &SumsProduct) {
        self.check_metadata(product);
        let SumsProduct { row, rank, b, .. } = product;
        let (part, k) = (row.right_rows() as usize, row.k as usize);
        let mut right = vec![T::default(); row.n as usize * k];
        let blocks = *rank..*rank + row.blocks as u32;
        for (rank, right) in blocks.clone().zip(right.chunks_exact_mut(part * k)) {
            read(b, (part, k), row.b, self.shared(rank), |j, kk, x| right[j * k + kk] = x);
        }
        blocks.for_each(|rank| self.execute_sums_of(rank, product, &right));
    }

    /// Executes a product in one of its blocks, of all rows of the right factor.
    fn execute_sums_of<T: Number>(&mut self, rank: u32, product: &SumsProduct, right: &[T]) {
        let SumsProduct { row, column, a, accumulate, .. } = product;
        let cta = &mut self.ctas[rank as usize];
        let Some(memory) = &mut cta.tensor else { return };
        let (m, k) = (row.m as usize, row.left_columns() as usize);
        let mut left = vec![T::default(); k * m];
        match a {
            Left::Shared(a) => read(a, (m, k), row.a, &cta.shared, |i, kk, x| left[kk * m + i] = x),
            Left::Tensor(column) => memory.read_left(row, *column, |i, kk, x| left[kk * m + i] = x),
        }
        let columns = product.meta.map(|column| memory.columns_of_sparse(row, column));
        let cells = row.d_layout();
        let mut sums = vec![T::default(); m];
        let decode = T::decode_sum(row.c);
        for (j, right) in right.chunks_exact(row.k as usize).enumerate() {
            let at = |i: usize| {
                let cell = cells.eval((i + m * j) as i64) as u32;
                TensorMemory::at(cell % LANES, column + cell / LANES)
            };
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = if *accumulate { decode(memory.cells[at(i)]) } else { T::default() };
            }
            match &columns {
                None => {
                    for (left, right) in left.chunks_exact(m).zip(right) {
                        for (sum, left) in sums.iter_mut().zip(left) {
                            *sum = sum.fma(*left, *right);
                        }
                    }
                }
                Some(columns) => {
                    for (left, columns) in left.chunks_exact(m).zip(columns.chunks_exact(m)) {
                        for ((sum, left), column) in sums.iter_mut().zip(left).zip(columns) {
                            *sum = sum.fma(*left, right[usize::from(*column)]);
                        }
                    }
                }
            }
            for (i, sum) in sums.iter().enumerate() {
                memory.cells[at(i)] = sum.encode(row.c);
            }
        }
    }
}
