//! The shape of clusters, and the blocks that a multicast reaches.

/// The blocks that copy one tile together: each brings a part of it to all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Multicast {
    /// `multicast`: all blocks of the cluster.
    All,
    /// `multicast(i)`: those that lie along mode `i` of the cluster, alike along its other mode.
    Along(u32),
    /// `pair`: blocks 2i and 2i + 1 of the cluster, of which each keeps the part that it brings.
    Pair,
}

impl Multicast {
    /// The blocks of a cluster of a shape that copy together. A mode that the shape does not have is one block long.
    pub fn peers(self, shape: &[u32]) -> Peers {
        match self {
            Multicast::All => Peers { blocks: shape.iter().product(), stride: 1 },
            // An odd cluster is refused.
            Multicast::Pair => Peers { blocks: 2.min(shape.iter().product()), stride: 1 },
            Multicast::Along(mode) => {
                let (before, from) = shape.split_at(shape.len().min(mode as usize));
                Peers { blocks: from.first().copied().unwrap_or(1), stride: before.iter().product() }
            }
        }
    }
}

/// Blocks of a cluster whose ranks are equally far apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peers {
    /// Their number.
    pub blocks: u32,
    /// From one's rank to the next's.
    pub stride: u32,
}

impl Peers {
    /// The place of a block among its peers.
    pub fn place(self, rank: u32) -> u32 {
        rank / self.stride % self.blocks
    }

    /// The ranks of a block's peers, its own among them.
    pub fn ranks(self, rank: u32) -> impl Iterator<Item = u32> {
        let first = rank - self.place(rank) * self.stride;
        (0..self.blocks).map(move |place| first + place * self.stride)
    }

    /// The ranks of the peers of block 0, as the bits of a mask.
    pub fn mask(self) -> u32 {
        self.ranks(0).fold(0, |mask, rank| mask | 1 << rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_differ_along_a_mode_of_the_cluster_alone() {
        let ranks = |multicast: Multicast, rank| multicast.peers(&[2, 4]).ranks(rank).collect::<Vec<_>>();
        assert_eq!(ranks(Multicast::Along(0), 5), [4, 5]);
        assert_eq!(ranks(Multicast::Along(1), 5), [1, 3, 5, 7]);
        assert_eq!(ranks(Multicast::All, 5), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Multicast::Along(1).peers(&[2, 4]).mask(), 0b0101_0101);
        assert_eq!(Multicast::Along(2).peers(&[2, 4]).blocks, 1);
        assert_eq!(ranks(Multicast::Pair, 5), [4, 5]);
    }

    #[test]
    fn every_block_has_one_place_among_its_peers() {
        for shape in [[1, 4], [2, 2], [4, 2], [2, 8]] {
            for multicast in [Multicast::All, Multicast::Along(0), Multicast::Along(1), Multicast::Pair] {
                let peers = multicast.peers(&shape);
                for rank in 0..shape[0] * shape[1] {
                    assert_eq!(peers.ranks(rank).nth(peers.place(rank) as usize), Some(rank));
                }
            }
        }
    }
}
