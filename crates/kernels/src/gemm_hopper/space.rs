//! The tuning space.

use tilewright_machine::{Arch, DType};

use super::{Cluster, HopperGemmConfig, Order};

impl HopperGemmConfig {
    /// The configurations worth trying for a problem, in no order of merit: every one compiles, as far as the rules of
    /// [`reject`](Self::reject) know, and has tiles in proportion to the problem.
    pub fn space(arch: Arch, m: i64, n: i64, k: i64) -> impl Iterator<Item = HopperGemmConfig> {
        Self::grid().filter(move |c| c.suits(m, n, k) && c.reject(arch).is_none())
    }

    /// The same for factors of another type: stages of as many bytes.
    pub fn space_of(dtype: DType, arch: Arch, [m, n, k]: [i64; 3]) -> impl Iterator<Item = HopperGemmConfig> {
        let of_type = move |c: HopperGemmConfig| HopperGemmConfig {
            dtype,
            bk: c.bk * i64::from(16 / dtype.bits().clamp(8, 16)),
            ..c
        };
        Self::grid().map(of_type).filter(move |c| c.suits(m, n, k) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones: the deepest pipelines that shared memory has room for, and
    /// tiles that are no power of two, with which a problem may need fewer rounds of all multiprocessors.
    pub fn grid() -> impl Iterator<Item = HopperGemmConfig> {
        let tiles =
            [(64, 1), (128, 1), (128, 2), (192, 3), (256, 2)].into_iter().flat_map(|(bm, warpgroups)| {
                [16, 32, 64, 96, 112, 128, 160, 192, 224, 256].map(|bn| (bm, warpgroups, bn))
            });
        let rings = tiles.flat_map(|tile| {
            let rings =
                [(32, 6), (32, 8), (64, 3), (64, 4), (64, 5), (64, 6), (64, 8), (64, 12), (128, 2), (128, 3)];
            rings.map(|ring| (tile, ring))
        });
        let shares = rings.flat_map(|both| {
            [Cluster::None, Cluster::AlongM(2), Cluster::AlongN(2)].map(|cluster| (both, cluster))
        });
        let orders =
            [Order::Bands(8), Order::Bands(12), Order::Bands(16), Order::Snake(12), Order::Hilbert(3)];
        shares.flat_map(move |(((bm, warpgroups, bn), (bk, stages)), cluster)| {
            orders.map(|order| HopperGemmConfig {
                bm,
                bn,
                bk,
                stages,
                warpgroups,
                cluster,
                order,
                // A third math warpgroup leaves 160 registers for each thread.
                math_registers: if warpgroups > 2 { 160 } else { 240 },
                ..Self::default()
            })
        })
    }

    /// Whether the tile is not out of proportion to the problem.
    fn suits(&self, m: i64, n: i64, k: i64) -> bool {
        let (mut of_m, mut of_n) = self.sides((self.bm, self.bn));
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        of_m *= blocks_m;
        of_n *= blocks_n;
        let (least_m, least_n) = self.sides((64, 16));
        (of_m <= least_m || of_m < 2 * m)
            && (of_n <= least_n || of_n < 2 * n)
            && (self.bk <= 32 || self.bk < 2 * k)
    }
}
