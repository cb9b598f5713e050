//! The order of a product's tiles. Blocks take tiles by turns, and a place of the table of tiles that no expert has is no work: where the rows of a group of tiles times the
//! places are as many as blocks run, the same blocks come upon such places each time, and others do their work.

use super::choose::Tiled;
use crate::warp_specialized::Rasterization;

/// Rows of tiles of a group, by preference.
const GROUPS: [i64; 4] = [12, 16, 24, 32];

/// The part of its tiles that a block may have more than in the most even order, one in so many.
const UNEVEN: i64 = 16;

/// The tiles of a product: those of its columns by places of the table, of which the first have work.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    columns: i64,
    places: i64,
    with_work: i64,
}

/// Tiles with work that each of some blocks has, by runs of neighbours in the order of all tiles.
struct Turns {
    /// Tiles that a block has beside those of the one before it, and those that all have.
    more: Vec<i64>,
    all: i64,
}

impl Turns {
    fn of(blocks: i64) -> Self {
        Turns { more: vec![0; blocks.max(1) as usize + 1], all: 0 }
    }

    /// Adds a run of so many tiles from a place in the order on.
    fn add(&mut self, first: i64, count: i64) {
        let blocks = self.more.len() as i64 - 1;
        self.all += count / blocks;
        let (from, rest) = (first % blocks, count % blocks);
        for (from, to) in [(from, (from + rest).min(blocks)), (0, from + rest - blocks)] {
            if from < to {
                self.more[from as usize] += 1;
                self.more[to as usize] -= 1;
            }
        }
    }

    /// The tiles of the block that has the most.
    fn most(&self) -> i64 {
        let each = self.more.iter().scan(0, |sum, more| {
            *sum += more;
            Some(*sum)
        });
        self.all + each.max().unwrap_or(0)
    }
}

/// The tiles of the block that has the most, in groups of so many rows; `swapped`: the rows of tiles are those of columns, and else of places.
fn most(tiles: Tiles, group: i64, blocks: i64, swapped: bool) -> i64 {
    let Tiles { columns, places, with_work } = tiles;
    let (rows, cols) = if swapped { (columns, places) } else { (places, columns) };
    let mut turns = Turns::of(blocks);
    let mut first = 0;
    while first < rows {
        let height = group.min(rows - first);
        let begin = first * cols;
        if swapped {
            turns.add(begin, height * with_work);
        } else {
            let here = (with_work - first).clamp(0, height);
            for col in 0..cols {
                turns.add(begin + col * height, here);
            }
        }
        first += height;
    }
    turns.most()
}

/// The product in an order in which no block has many more tiles than others; as it is where it has an order of its own.
pub(super) fn ordered(tiled: Tiled, columns: i64, places: i64, with_work: i64) -> Tiled {
    let usual = Rasterization::Grouped(GROUPS[0]);
    if tiled.rasterization() != usual {
        return tiled;
    }
    let [along_columns, clusters] = tiled.clusters();
    let columns = (columns + along_columns - 1) / along_columns;
    let tiles = Tiles { columns, places, with_work: with_work.min(places) };
    let each = GROUPS.map(|group| (group, most(tiles, group, clusters, tiled.swaps())));
    let least = each.iter().map(|(_, most)| *most).min().unwrap_or(0);
    let even = each.into_iter().find(|(_, most)| *most <= least + least / UNEVEN);
    tiled.in_order(Rasterization::Grouped(even.map_or(GROUPS[0], |(group, _)| group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, tile by tile.
    fn counted(tiles: Tiles, group: i64, blocks: i64, swapped: bool) -> i64 {
        let (rows, cols) =
            if swapped { (tiles.columns, tiles.places) } else { (tiles.places, tiles.columns) };
        let mut each = vec![0; blocks as usize];
        let mut at = 0;
        for first in (0..rows).step_by(group as usize) {
            for col in 0..cols {
                for row in first..rows.min(first + group) {
                    let place = if swapped { col } else { row };
                    each[(at % blocks) as usize] += i64::from(place < tiles.with_work);
                    at += 1;
                }
            }
        }
        each.into_iter().max().unwrap()
    }

    #[test]
    fn the_most_tiles_of_a_block_are_those_that_are_counted() {
        for (columns, places, with_work) in [(112, 11, 8), (5, 40, 33), (224, 13, 8), (1, 1, 1), (30, 3, 0)] {
            let tiles = Tiles { columns, places, with_work };
            for (group, blocks) in [(12, 132), (16, 66), (1, 7), (32, 114), (500, 132)] {
                for swapped in [false, true] {
                    let found = most(tiles, group, blocks, swapped);
                    assert_eq!(found, counted(tiles, group, blocks, swapped), "{tiles:?} {group} {blocks}");
                }
            }
        }
    }

    #[test]
    fn no_block_is_left_without_work_where_a_group_and_the_places_are_as_many_as_blocks() {
        // 12 rows by 11 places are 132 tiles: blocks from the 96th on would have none, and others 10.
        let tiles = Tiles { columns: 112, places: 11, with_work: 8 };
        assert_eq!((most(tiles, 12, 132, true), most(tiles, 16, 132, true)), (10, 7));
    }
}
