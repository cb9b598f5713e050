//! Tiles that grow: how the families of layouts are made, step by step.

use super::{Dim, LinearLayout, log2};
use crate::error::LayoutError;

/// The name of mode `k`.
pub(super) fn mode(k: usize) -> String {
    format!("dim{k}")
}

/// A layout that grows by places of one mode at a time, with outputs `dim0`, `dim1`, … from the start.
///
/// ```
/// use tilewright_layout::TileBuilder;
/// let tile = TileBuilder::new(&["register", "lane"], 2)?.run("register", 1, 2)?.run("lane", 0, 4)?;
/// let l = tile.fit("register", &[8, 2], &[1, 0])?;
/// assert_eq!(l.to_string(), "[register: (0,1) (4,0); lane: (1,0) (2,0)] -> [dim0:8, dim1:2]");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TileBuilder(pub(super) LinearLayout);

impl TileBuilder {
    /// No places yet: of these inputs, into `rank` modes.
    pub fn new(inputs: &[&str], rank: usize) -> Result<TileBuilder, LayoutError> {
        let ins = inputs.iter().map(|i| Dim::new(*i, 0)).collect();
        let outs = (0..rank).map(|k| Dim::new(mode(k), 0)).collect();
        LinearLayout::from_columns(ins, outs, Vec::new()).map(TileBuilder)
    }

    /// The next `count` places of mode `k`, bit by bit.
    pub fn run(self, input: &str, k: usize, count: u64) -> Result<TileBuilder, LayoutError> {
        self.0.product(&LinearLayout::identity(count, input, &mode(k))?).map(TileBuilder)
    }

    /// `count` holders of the same elements.
    pub fn still(self, input: &str, count: u64) -> Result<TileBuilder, LayoutError> {
        let bits = log2("a tile", input, count)?;
        let same =
            LinearLayout::from_columns(vec![Dim::new(input, bits)], Vec::new(), vec![0; bits as usize])?;
        self.0.product(&same).map(TileBuilder)
    }

    /// As many places of mode `k` as make its size `extent`; none where it is as large already.
    pub fn reach(self, input: &str, k: usize, extent: u64) -> Result<TileBuilder, LayoutError> {
        let count = (extent / self.0.outs[k].size()).max(1);
        self.run(input, k, count)
    }

    /// The tile repeated as another layout says: their product.
    pub fn product(self, other: &LinearLayout) -> Result<TileBuilder, LayoutError> {
        self.0.product(other).map(TileBuilder)
    }

    /// A run of `counts` along each mode, in this order; along `whole` they hold the same.
    pub fn runs(
        self,
        input: &str,
        counts: &[u64],
        order: &[usize],
        whole: Option<usize>,
    ) -> Result<TileBuilder, LayoutError> {
        order.iter().try_fold(self, |tile, k| {
            if whole == Some(*k) { tile.still(input, counts[*k]) } else { tile.run(input, *k, counts[*k]) }
        })
    }

    /// The tile on a tensor of `shape`: repeated along `input` where it is smaller, mode by mode in this order; where it is
    /// larger, what leads out of the tensor becomes 0.
    pub fn fit(self, input: &str, shape: &[u64], order: &[usize]) -> Result<LinearLayout, LayoutError> {
        let tile = order.iter().try_fold(self, |tile, k| tile.reach(input, *k, shape[*k]))?.0;
        let outs: Vec<Dim> =
            shape.iter().enumerate().map(|(k, size)| Dim::new(mode(k), size.trailing_zeros())).collect();
        let cut = |column: &u64| {
            let parts = super::unflatten(&tile.outs, *column);
            let places = outs.iter().scan(0, |at, out| {
                let here = *at;
                *at += out.bits;
                Some(here)
            });
            let inside = parts.iter().zip(shape).map(|(part, size)| if part < size { *part } else { 0 });
            inside.zip(places).fold(0, |sum, (part, at)| sum | part << at)
        };
        let columns = tile.columns.iter().map(cut).collect();
        LinearLayout::from_columns(tile.ins, outs, columns)
    }
}
