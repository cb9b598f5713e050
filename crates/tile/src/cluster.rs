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
    /// `pair, multicast(i)`: the pairs that lie along mode `i` of the cluster. A block brings a part of its half to those that have the same half.
    Pairs(u32),
}

impl Multicast {
    /// True if each block of a pair has a half of the tile.
    pub fn halves(self) -> bool {
        matches!(self, Multicast::Pair | Multicast::Pairs(_))
    }

    /// The word for it, as far as it stands alone.
    pub fn word(self) -> &'static str {
        if self.halves() { "pair" } else { "multicast" }
    }

    /// The blocks that must mean the same tile: a block's peers of each.
    pub fn alike(self, shape: &[u32]) -> Vec<Peers> {
        match self {
            Multicast::Pairs(_) => vec![Multicast::Pair.peers(shape), self.peers(shape)],
            _ => vec![self.peers(shape)],
        }
    }

    /// The blocks of a cluster of a shape that copy together. A mode that the shape does not have is one block long.
    pub fn peers(self, shape: &[u32]) -> Peers {
        match self {
            Multicast::All => Peers { blocks: shape.iter().product(), stride: 1 },
            // An odd cluster is refused.
            Multicast::Pair => Peers { blocks: 2.min(shape.iter().product()), stride: 1 },
            Multicast::Pairs(mode) => {
                let Peers { blocks, stride } = Multicast::Along(mode).peers(shape);
                // Of the mode along which the blocks of pairs lie every second one.
                match stride % 2 {
                    0 => Peers { blocks, stride },
                    _ => Peers { blocks: (blocks / 2).max(1), stride: 2 * stride },
                }
            }
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
    fn pairs_share_halves_with_blocks_of_the_same_place() {
        let ranks =
            |mode, shape: &[u32], rank| Multicast::Pairs(mode).peers(shape).ranks(rank).collect::<Vec<_>>();
        assert_eq!(ranks(0, &[4], 3), [1, 3]);
        assert_eq!(ranks(0, &[4, 2], 6), [4, 6]);
        assert_eq!(ranks(1, &[4, 2], 6), [2, 6]);
        assert_eq!(ranks(1, &[2, 4], 5), [1, 3, 5, 7]);
        assert_eq!(ranks(1, &[1, 8], 5), [1, 3, 5, 7]);
        assert_eq!(ranks(0, &[2], 1), [1]);
        let alike = Multicast::Pairs(0).alike(&[8]);
        assert_eq!(alike, [Peers { blocks: 2, stride: 1 }, Peers { blocks: 4, stride: 2 }]);
    }

    #[test]
    fn every_block_has_one_place_among_its_peers() {
        for shape in [[1, 4], [2, 2], [4, 2], [2, 8]] {
            for multicast in [
                Multicast::All,
                Multicast::Along(0),
                Multicast::Along(1),
                Multicast::Pair,
                Multicast::Pairs(0),
                Multicast::Pairs(1),
            ] {
                let peers = multicast.peers(&shape);
                for rank in 0..shape[0] * shape[1] {
                    assert_eq!(peers.ranks(rank).nth(peers.place(rank) as usize), Some(rank));
                }
            }
        }
    }
}
