//! Conversions between register layouts: the rounds of shuffles that [`Reorder`] plans, and the swizzles of
//! [`optimal_swizzle`], against counting element by element.

use proptest::prelude::*;
use tilewright_layout::*;

/// A layout of `register`, `lane` and `warp` over one mode: the columns in the order of `deal`, zeros where broadcast.
fn dealt(tile: u32, registers: &[u64], lanes: &[u64], warps: &[u64]) -> LinearLayout {
    let dims = vec![
        Dim::new("register", registers.len() as u32),
        Dim::new("lane", lanes.len() as u32),
        Dim::new("warp", warps.len() as u32),
    ];
    let columns = [registers, lanes, warps].concat();
    LinearLayout::from_columns(dims, vec![Dim::new("x", tile)], columns).unwrap()
}

/// A tile of `tile` bits dealt to registers, `lanes` and `warps` at random; `zeros` columns more are 0.
fn distributed(tile: u32, lanes: usize, warps: usize) -> impl Strategy<Value = LinearLayout> {
    let units: Vec<u64> = (0..tile).map(|i| 1 << i).collect();
    (Just(units).prop_shuffle(), prop::collection::vec(0..6u8, lanes + warps), any::<u64>()).prop_map(
        move |(units, zero, _)| {
            let mut units = units.into_iter();
            let mut take = |zero: &u8| if *zero == 0 { 0 } else { units.next().unwrap_or(0) };
            let threads: Vec<u64> = zero.iter().map(&mut take).collect();
            let rest: Vec<u64> = units.collect();
            dealt(tile, &rest, &threads[..lanes], &threads[lanes..])
        },
    )
}

/// Any surjective layout: a distributed one after a random invertible map of the tile.
fn mixed(tile: u32, lanes: usize, warps: usize) -> impl Strategy<Value = LinearLayout> {
    (distributed(tile, lanes, warps), prop::collection::vec((0..tile, 0..tile), 0..12)).prop_map(
        move |(layout, additions)| {
            // Elementary additions of rows keep the map of the tile invertible.
            let columns = layout
                .columns()
                .iter()
                .map(|c| additions.iter().filter(|(i, j)| i != j).fold(*c, |c, (i, j)| c ^ (c >> i & 1) << j))
                .collect();
            LinearLayout::from_columns(layout.ins().to_vec(), layout.outs().to_vec(), columns).unwrap()
        },
    )
}

fn pairs() -> impl Strategy<Value = (LinearLayout, LinearLayout)> {
    (3..10u32, 1..6usize, 0..3usize, any::<bool>()).prop_flat_map(|(tile, lanes, warps, plain)| {
        if plain {
            (distributed(tile, lanes, warps).boxed(), distributed(tile, lanes, warps).boxed())
        } else {
            (mixed(tile, lanes, warps).boxed(), mixed(tile, lanes, warps).boxed())
        }
    })
}

fn bits(layout: &LinearLayout) -> [u32; 3] {
    ["register", "lane", "warp"].map(|d| layout.bases(d).len() as u32)
}

proptest! {
    #[test]
    fn every_element_arrives((a, b) in pairs()) {
        let r = Reorder::new(&a, &b).unwrap();
        let [registers, lanes, warps] = bits(&b);
        let operand = bits(&a)[0];
        for w in 0..1u64 << warps {
            for l in 0..1u64 << lanes {
                for y in 0..1u64 << registers {
                    let wanted = b.at(y | l << registers | w << (registers + lanes));
                    let direct = r.source.at(y | l << registers | w << (registers + lanes));
                    prop_assert_eq!(a.at(direct), wanted, "source of {} to {}", a, b);
                    if r.exchange == Exchange::Warps {
                        continue;
                    }
                    let found = r.trace(y, l, w);
                    prop_assert_eq!(a.at(found), wanted, "rounds of {} to {} at {} {} {}", a, b, y, l, w);
                    prop_assert_eq!(found >> (operand + lanes), w, "another warp");
                    if r.exchange != Exchange::Lanes {
                        prop_assert_eq!(found >> operand & ((1 << lanes) - 1), l, "another lane");
                    }
                    if r.exchange == Exchange::Nothing {
                        prop_assert_eq!(found & ((1 << operand) - 1), y, "another register");
                    }
                    // What can be packed is in the same lane, and in a register that differs in the one bit alone.
                    for (j, i) in &r.packable {
                        prop_assert_eq!(r.trace(y ^ 1 << j, l, w), found ^ 1 << i);
                    }
                }
            }
        }
        prop_assert!(r.exchanges() <= 1 << registers);
        prop_assert_eq!(r.exchange == Exchange::Nothing, a == b.clone(), "{} to {}", a, b);
    }

    #[test]
    fn distributed_layouts_within_a_warp_never_need_shared_memory(
        (a, order) in (4..10u32, 1..6usize).prop_flat_map(|(tile, lanes)| {
            let lanes = lanes.min(tile as usize);
            (distributed(tile, lanes, 0), Just((0..tile).collect::<Vec<_>>()).prop_shuffle())
        }).prop_filter("nothing is broadcast", |(a, _)| a.is_bijective())
    ) {
        // The same tile with its bits renamed: any exchange of registers and lanes.
        let columns = a.columns().iter().map(|c| 1u64 << order[c.trailing_zeros() as usize]).collect();
        let b = LinearLayout::from_columns(a.ins().to_vec(), a.outs().to_vec(), columns).unwrap();
        let r = Reorder::new(&a, &b).unwrap();
        prop_assert!(r.exchange != Exchange::Warps);
        // One register a round at most, and none that stays within its thread.
        let common = a.bases("register").iter().filter(|c| b.bases("register").contains(c)).count();
        prop_assert!(r.packable.len() == common, "{} of {} are packable from {} to {}", r.packable.len(), common, a, b);
    }
}

/// Wavefronts by the definition: lane by lane, word by word.
fn counted(memory: &LinearLayout, layout: &LinearLayout, log_bytes: u32, vector: u32) -> u64 {
    let offsets = memory.inverse().unwrap().compose(layout).unwrap();
    let registers = offsets.bases("register").len() as u32;
    let lanes = offsets.bases("lane").len() as u32;
    let bytes = 1u64 << (vector + log_bytes);
    let phase = if bytes > 4 { 128 / bytes } else { 32 };
    let mut total = 0;
    let all: Vec<u64> = (0..1u64 << lanes).collect();
    for group in all.chunks(phase as usize) {
        let mut words: Vec<u64> = group
            .iter()
            .flat_map(|lane| {
                let start = offsets.at(lane << registers) << log_bytes;
                // The vector's elements are contiguous and aligned.
                let start = start & !(bytes - 1);
                (start / 4)..=((start + bytes - 1) / 4)
            })
            .collect();
        words.sort_unstable();
        words.dedup();
        let mut banks = [0u64; 32];
        words.iter().for_each(|w| banks[(w % 32) as usize] += 1);
        total += banks.iter().max().unwrap();
    }
    total
}

fn wide_pairs() -> impl Strategy<Value = (LinearLayout, LinearLayout, u32)> {
    (5..12u32, 0..3usize, 0..4u32, any::<bool>()).prop_flat_map(|(tile, warps, log, plain)| {
        let sides = if plain {
            (distributed(tile, 5, warps).boxed(), distributed(tile, 5, warps).boxed())
        } else {
            (mixed(tile, 5, warps).boxed(), mixed(tile, 5, warps).boxed())
        };
        (sides.0, sides.1, Just(log))
    })
}

proptest! {
    #[test]
    fn optimal_swizzles_have_no_conflicts((a, b, log_bytes) in wide_pairs()) {
        let (memory, store, load) = optimal_swizzle(&a, &b, 8 << log_bytes).unwrap();
        prop_assert!(memory.is_bijective());
        for (side, layout) in [(&store, &a), (&load, &b)] {
            let vector = side.vector.len() as u32;
            let offsets = memory.inverse().unwrap().compose(layout).unwrap();
            for (i, bit) in side.vector.iter().enumerate() {
                prop_assert_eq!(offsets.bases("register")[*bit as usize], 1 << i, "not a vector");
            }
            // Nothing else leads within a vector: it is aligned.
            let within = (1u64 << vector) - 1;
            let inside = offsets.columns().iter().filter(|c| *c & within != 0).count();
            prop_assert_eq!(inside, side.vector.len(), "not aligned: {}", offsets);
            // Lemma 9.4, exactly.
            let counted = counted(&memory, layout, log_bytes, vector);
            let broadcast = offsets.sublayout(&["lane"], &["offset"]).unwrap().rank() < 5;
            prop_assert!(counted == side.wavefronts || broadcast && counted < side.wavefronts);
        }
        // Without conflicts, both sides with the common vector, there would be this many wavefronts.
        let distributed = a.is_distributed() && b.is_distributed();
        let vector = a.bases("register").iter().filter(|c| **c != 0 && b.bases("register").contains(c)).count();
        let vector = vector.min(4 - log_bytes as usize) as u32;
        let ideal = |layout: &LinearLayout| {
            let registers = layout.sublayout(&["register"], &["x"]).unwrap().rank();
            (1u64 << (registers - vector)) << (vector + log_bytes).saturating_sub(2)
        };
        let found = store.instructions * store.wavefronts + load.instructions * load.wavefronts;
        prop_assert!(!distributed || found <= ideal(&a) + ideal(&b), "{} and {}", a, b);
    }
    #[test]
    fn single_elements_have_no_conflicts((a, b, log_bytes) in wide_pairs()) {
        let (memory, store, load) = single_element_swizzle(&a, &b, 8 << log_bytes).unwrap();
        prop_assert!(memory.is_bijective() && load.vector.is_empty());
        prop_assert_eq!(load.wavefronts, if log_bytes == 3 { 2 } else { 1 }, "{} through {}", b, memory);
        let vector = store.vector.len() as u32;
        prop_assert_eq!(store.wavefronts, wavefronts(&memory, &a, log_bytes, vector).unwrap());
    }

    #[test]
    fn wavefronts_are_those_that_are_counted(
        (layout, memory, log_bytes) in (5..11u32, 0..3u32).prop_flat_map(|(tile, log)| {
            (mixed(tile, 5, 1), mixed(tile, 0, 0), Just(log))
        })
    ) {
        let memory = memory.drop_zeros("register").rename_in("register", "offset").unwrap();
        let memory = memory.sublayout(&["offset"], &["x"]).unwrap();
        // One element at a time, any layout at all.
        let lanes = layout.bases("lane").len();
        prop_assert_eq!(lanes, 5);
        prop_assert_eq!(wavefronts(&memory, &layout, log_bytes, 0).unwrap(), counted(&memory, &layout, log_bytes, 0));
    }
}

/// Every bijection of a small space, as a matrix.
fn all_bijections(bits: u32) -> Vec<LinearLayout> {
    let mut found = vec![Vec::<u64>::new()];
    for _ in 0..bits {
        found = found
            .iter()
            .flat_map(|columns| {
                (1..1u64 << bits).map(move |c| {
                    let mut columns = columns.clone();
                    columns.push(c);
                    columns
                })
            })
            .filter(|columns| {
                let dims = vec![Dim::new("offset", columns.len() as u32)];
                let l = LinearLayout::from_columns(dims, vec![Dim::new("x", bits)], columns.clone()).unwrap();
                l.is_injective()
            })
            .collect();
    }
    found
        .into_iter()
        .map(|columns| {
            LinearLayout::from_columns(vec![Dim::new("offset", bits)], vec![Dim::new("x", bits)], columns)
                .unwrap()
        })
        .collect()
}

#[test]
fn no_memory_layout_of_a_small_tile_is_better() {
    // 16 elements of 8 bytes: a row of banks, all bijections of the tile (20160 of them).
    let all = all_bijections(4);
    assert_eq!(all.len(), 20160);
    // Warps of 32 lanes; those beyond the tile hold copies.
    let sides = [
        dealt(4, &[1], &[2, 4, 8, 0, 0], &[]),
        dealt(4, &[8], &[1, 2, 4, 0, 0], &[]),
        dealt(4, &[2, 1], &[4, 8, 0, 0, 0], &[]),
        dealt(4, &[], &[1, 2, 4, 8, 0], &[]),
        dealt(4, &[4], &[3, 10, 1, 0, 0], &[]),
        dealt(4, &[1, 2, 4], &[8, 0, 0, 0, 0], &[]),
    ];
    for a in &sides {
        for b in &sides {
            let (_, store, load) = optimal_swizzle(a, b, 64).unwrap();
            let found = store.instructions * store.wavefronts + load.instructions * load.wavefronts;
            let best = all
                .iter()
                .map(|memory| {
                    let side = |layout: &LinearLayout| {
                        let offsets = memory.inverse().unwrap().compose(layout).unwrap();
                        let distinct = layout.sublayout(&["register"], &["x"]).unwrap().rank();
                        let widest = offsets.vector_bits("register").len().min(1) as u32;
                        (0..=widest)
                            .filter(|v| {
                                let within = (1u64 << v) - 1;
                                let all = offsets.columns().iter();
                                all.filter(|c| *c & within != 0).count() == *v as usize
                            })
                            .map(|v| (1u64 << (distinct - v)) * wavefronts(memory, layout, 3, v).unwrap())
                            .min()
                            .unwrap()
                    };
                    side(a) + side(b)
                })
                .min()
                .unwrap();
            assert_eq!(found, best, "{a} to {b}");
        }
    }
}
