//! Sparse left factors: the metadata in tensor memory, which threads have stored there.

use tilewright_machine::{Sparsity, Tcgen05Row, metadata_layout};

use super::{Cells, LANES, SumsProduct, TensorMemory};
use crate::clock::Agent;
use crate::cluster::Cluster;
use crate::decode::Place;
use crate::rule::Rule;
use crate::shadow::Kind;
use crate::sink::Site;
use crate::warp::{Warp, disordered};

/// Places in a cell.
const OF_A_CELL: i64 = 32 / Sparsity::META.bits() as i64;

impl Warp {
    /// The column of a product's metadata, whose cells it reads; `None` where they are not the block's.
    pub(super) fn metadata(
        &self,
        cluster: &mut Cluster<'_>,
        site: &Site,
        (row, selector): (&'static Tcgen05Row, u32),
        (place, lane): (Place, usize),
        number: (Agent, u32),
    ) -> Option<u32> {
        let column = cluster.column(site, self.shared_address(place, lane), "metadata begin");
        if !column.is_multiple_of(2) {
            cluster.misuse(site, Rule::Place, || {
                format!("its metadata begin at column {column}, and not at the first of two")
            });
        }
        let column = column + selector;
        let columns = column..column + row.metadata_columns();
        if !cluster.allocated(site, site.rank, &columns) {
            return None;
        }
        let view = self.tensor.view(1 << lane);
        let cells = Cells { lanes: 0..LANES, columns };
        cluster.watch_tensor(site, site.rank, &cells, Kind::Read, number, &view);
        Some(column)
    }
}

impl TensorMemory {
    /// For each element of a sparse left factor, `[k][m]`, its column of the whole factor.
    pub(super) fn columns_of_sparse(&self, row: &Tcgen05Row, column: u32) -> Vec<u16> {
        let (m, k) = (row.m, row.left_columns());
        let Some(layout) = metadata_layout(row.a.bits(), k) else { return vec![0; (m * k) as usize] };
        let of = |at: i64| {
            let place = layout.eval(at);
            let cell = (place / OF_A_CELL) as u32;
            let word = self.cells[TensorMemory::at(cell % LANES, column + cell / LANES)];
            let bits = (word >> ((place % OF_A_CELL) as u32 * Sparsity::META.bits())) & 3;
            (at / m / Sparsity::KEPT * Sparsity::GROUP) as u16 + bits as u16
        };
        (0..m * k).map(of).collect()
    }
}

impl Cluster<'_> {
    /// Reports a group of metadata whose places do not increase, where a product reads them.
    pub(super) fn check_metadata(&mut self, product: &SumsProduct) {
        let Some(first) = product.meta else { return };
        let Some(memory) = &self.ctas[product.rank as usize].tensor else { return };
        let columns = first..first + product.row.metadata_columns();
        let words = columns.flat_map(|column| (0..LANES).map(move |lane| TensorMemory::at(lane, column)));
        if let Some(group) = words.filter_map(|at| Sparsity::disorder(memory.cells[at])).next() {
            let site = product.site;
            self.misuse(&site, Rule::Metadata, || disordered(group));
        }
    }
}
