//! Laws of linear layouts (*Linear Layouts*, LL), checked at every index of random ones.

use proptest::prelude::*;
use tilewright_layout::{AffineLayout, Blocked, Dim, Layout, LinearLayout, Split, Swizzle, SwizzledLayout};

/// Dimensions of these names with `bits` in all.
fn dims(names: &'static [&'static str], bits: u32) -> impl Strategy<Value = Vec<Dim>> {
    prop::collection::vec(0..=bits, names.len() - 1).prop_map(move |mut cuts| {
        cuts.sort_unstable();
        cuts.push(bits);
        let mut from = 0;
        let sizes = cuts.into_iter().map(|to| to - std::mem::replace(&mut from, to));
        names.iter().zip(sizes).map(|(name, bits)| Dim::new(*name, bits)).collect()
    })
}

const INS: &[&str] = &["register", "lane", "warp"];
const OUTS: &[&str] = &["x", "y"];

fn any_linear(
    ins: &'static [&'static str],
    outs: &'static [&'static str],
) -> impl Strategy<Value = LinearLayout> {
    (0u32..=6, 0u32..=6).prop_flat_map(move |(from, to)| {
        (dims(ins, from), dims(outs, to), prop::collection::vec(0..1u64 << to, from as usize))
            .prop_map(|(ins, outs, columns)| LinearLayout::from_columns(ins, outs, columns).unwrap())
    })
}

/// A random sequence of independent vectors: unit vectors, shuffled and added to each other.
fn invertible(bits: u32) -> impl Strategy<Value = Vec<u64>> {
    let units: Vec<u64> = (0..bits).map(|i| 1 << i).collect();
    let sums = prop::collection::vec((0..bits.max(1) as usize, 0..bits.max(1) as usize), 0..12);
    (Just(units).prop_shuffle(), sums).prop_map(|(mut columns, sums)| {
        for (to, from) in sums {
            if to != from && !columns.is_empty() {
                columns[to] ^= columns[from];
            }
        }
        columns
    })
}

fn surjective() -> impl Strategy<Value = LinearLayout> {
    (0u32..=5, 0u32..=3).prop_flat_map(|(to, more)| {
        let others = prop::collection::vec(0..1u64 << to, more as usize);
        let columns = (invertible(to), others).prop_map(|(a, b)| [a, b].concat()).prop_shuffle();
        (dims(INS, to + more), dims(OUTS, to), columns)
            .prop_map(|(ins, outs, columns)| LinearLayout::from_columns(ins, outs, columns).unwrap())
    })
}

fn bijective() -> impl Strategy<Value = LinearLayout> {
    (0u32..=6).prop_flat_map(|bits| {
        (dims(INS, bits), dims(OUTS, bits), invertible(bits))
            .prop_map(|(ins, outs, columns)| LinearLayout::from_columns(ins, outs, columns).unwrap())
    })
}

/// A distributed layout (LL definition 4.10) to `dim0` and `dim1`: a permutation with some zeros.
fn distributed() -> impl Strategy<Value = LinearLayout> {
    (1u32..=6, 0u32..=2).prop_flat_map(|(to, zeros)| {
        let columns: Vec<u64> = (0..to).map(|i| 1 << i).chain((0..zeros).map(|_| 0)).collect();
        (dims(INS, to + zeros), dims(OUTS, to), Just(columns).prop_shuffle())
            .prop_map(|(ins, outs, columns)| LinearLayout::from_columns(ins, outs, columns).unwrap())
    })
}

fn indices(layout: &LinearLayout) -> std::ops::Range<u64> {
    0..1 << layout.in_bits()
}

fn unit(dims: &[Dim]) -> LinearLayout {
    let bits: u32 = dims.iter().map(|d| d.bits).sum();
    LinearLayout::from_columns(dims.to_vec(), dims.to_vec(), (0..bits).map(|i| 1 << i).collect()).unwrap()
}

fn low_and_high(index: u64, low: &[Dim], high: &[Dim]) -> u64 {
    // The index over the joined dimensions whose parts are `index` over low dimensions, then high ones.
    let (mut joined, mut at) = (0, 0);
    let places = |dims: &[Dim], k: usize| dims[..k].iter().map(|d| d.bits).sum::<u32>();
    let low_bits: u32 = low.iter().map(|d| d.bits).sum();
    for (k, (l, h)) in low.iter().zip(high).enumerate() {
        let a = index >> places(low, k) & (l.size() - 1);
        let b = index >> (low_bits + places(high, k)) & (h.size() - 1);
        joined |= (a | b << l.bits) << at;
        at += l.bits + h.bits;
    }
    joined
}

proptest! {
    #[test]
    fn maps_are_linear(l in any_linear(INS, OUTS), i in any::<u64>(), j in any::<u64>()) {
        let mask = (1u64 << l.in_bits()) - 1;
        prop_assert_eq!(l.at(0), 0);
        prop_assert_eq!(l.at((i ^ j) & mask), l.at(i & mask) ^ l.at(j & mask));
    }

    #[test]
    fn text_reads_back(l in any_linear(INS, OUTS)) {
        prop_assert_eq!(l.to_string().parse::<LinearLayout>().unwrap(), l);
    }

    #[test]
    fn composition(
        c in any_linear(INS, OUTS), b_columns in any::<[u64; 6]>(), a_columns in any::<[u64; 6]>(),
    ) {
        // b leads from c's outputs, in another order, to z; a from z to w.
        let take = |columns: &[u64], n: u32, bits: u32| -> Vec<u64> {
            columns.iter().take(n as usize).map(|c| c & ((1 << bits) - 1)).collect()
        };
        let ins: Vec<Dim> = c.outs().iter().rev().cloned().collect();
        let b = LinearLayout::from_columns(
            ins, vec![Dim::new("z", 5)], take(&b_columns, c.out_bits(), 5)).unwrap();
        let a = LinearLayout::from_columns(
            vec![Dim::new("z", 6)], vec![Dim::new("w", 4)], take(&a_columns, 6, 4)).unwrap();
        let b_after_c = b.compose(&c).unwrap();
        for i in indices(&c) {
            let parts = c.unflatten_out(c.at(i));
            let named: Vec<(&str, u64)> =
                c.outs().iter().zip(&parts).map(|(d, p)| (d.name.as_str(), *p)).collect();
            prop_assert_eq!(b_after_c.unflatten_out(b_after_c.at(i)), b.apply(&named).unwrap());
        }
        let left = a.compose(&b).unwrap().compose(&c).unwrap();
        prop_assert_eq!(left, a.compose(&b_after_c).unwrap());
        prop_assert_eq!(unit(c.outs()).compose(&c).unwrap(), c.clone());
        prop_assert_eq!(c.compose(&unit(c.ins())).unwrap(), c);
    }

    #[test]
    fn product_is_the_direct_sum(a in any_linear(INS, OUTS), b in any_linear(INS, OUTS)) {
        let p = a.product(&b).unwrap();
        let both = a.in_bits() + b.in_bits();
        for i in 0..1u64 << both {
            let (low, high) = (i & ((1 << a.in_bits()) - 1), i >> a.in_bits());
            let image = a.at(low) | b.at(high) << a.out_bits();
            let joined = low_and_high(i, a.ins(), b.ins());
            prop_assert_eq!(p.at(joined), low_and_high(image, a.outs(), b.outs()));
        }
        prop_assert_eq!(a.product(&LinearLayout::empty()).unwrap(), a.clone());
        prop_assert_eq!(LinearLayout::empty().product(&a).unwrap(), a);
    }

    #[test]
    fn product_is_associative_and_division_undoes_it(
        a in any_linear(INS, OUTS), b in any_linear(INS, OUTS), c in any_linear(INS, OUTS),
    ) {
        let ab = a.product(&b).unwrap();
        prop_assert_eq!(ab.product(&c).unwrap(), a.product(&b.product(&c).unwrap()).unwrap());
        prop_assert_eq!(ab.left_divide(&a), Some(b.clone()));
        prop_assert_eq!(ab.right_divide(&b), Some(a.clone()));
        // Where there is any quotient, it is one.
        if let Some(q) = c.left_divide(&a) {
            prop_assert_eq!(a.product(&q).unwrap(), c.clone());
        }
        if let Some(q) = c.right_divide(&a) {
            prop_assert_eq!(q.product(&a).unwrap(), c);
        }
    }

    #[test]
    fn quotients_of_tiles(l in distributed(), cut in 0u32..6) {
        // Every identity that a layout begins with divides it.
        let n = l.contiguous("register").min(1 << cut).min(l.out_size("x"));
        let tile = LinearLayout::identity(n, "register", "x").unwrap();
        let q = l.left_divide(&tile).unwrap();
        prop_assert_eq!(tile.product(&q).unwrap().transpose(&["x", "y"]).unwrap().transpose_ins(INS).unwrap(), l);
    }

    #[test]
    fn inverses(l in bijective()) {
        let inverse = l.inverse().unwrap();
        prop_assert_eq!(l.compose(&inverse).unwrap(), unit(l.outs()));
        prop_assert_eq!(inverse.compose(&l).unwrap(), unit(l.ins()));
        prop_assert_eq!(inverse.inverse().unwrap(), l);
    }

    #[test]
    fn right_inverses_leave_free_bits_zero(l in surjective()) {
        let right = l.right_inverse().unwrap();
        prop_assert_eq!(l.compose(&right).unwrap(), unit(l.outs()));
        let free = l.free_bits();
        let count: u32 = free.iter().map(|(_, mask)| mask.count_ones()).sum();
        prop_assert_eq!(count, l.in_bits() - l.rank());
        for o in 0..1u64 << l.out_bits() {
            let index = right.at(o);
            for (part, (_, mask)) in right.unflatten_out(index).iter().zip(&free) {
                prop_assert_eq!(part & mask, 0);
            }
            // The owner of an element is where it is read, and the only one.
            prop_assert!(l.is_owner(index));
        }
        prop_assert_eq!(indices(&l).filter(|i| l.is_owner(*i)).count(), 1 << l.out_bits());
        prop_assert_eq!(l.copies() << l.out_bits(), 1 << l.in_bits());
    }

    #[test]
    fn invert_and_compose(a in any_linear(INS, OUTS), b in surjective()) {
        // Into the outputs of b, a is some layout of as many bits.
        let mask = (1u64 << b.out_bits()) - 1;
        let columns = a.columns().iter().map(|c| c & mask).collect();
        let a = LinearLayout::from_columns(a.ins().to_vec(), b.outs().to_vec(), columns).unwrap();
        let r = b.invert_and_compose(&a).unwrap();
        prop_assert_eq!(b.compose(&r).unwrap(), a.clone());
        prop_assert_eq!(r, b.right_inverse().unwrap().compose(&a).unwrap());
    }

    #[test]
    fn invert_and_compose_without_surjectivity(b in any_linear(INS, OUTS), x in any_linear(INS, OUTS)) {
        // What is reached is found, from larger outputs, too; what is not is refused.
        let columns = x.columns().iter().map(|c| b.at(c & ((1 << b.in_bits()) - 1))).collect();
        let reached = LinearLayout::from_columns(x.ins().to_vec(), b.outs().to_vec(), columns).unwrap();
        prop_assert_eq!(b.compose(&b.invert_and_compose(&reached).unwrap()).unwrap(), reached);
        prop_assert_eq!(b.invert_and_compose(&unit(b.outs())).is_ok(), b.is_surjective());
        let wide = b.product(&LinearLayout::zeros(1, 4, "lane", "x").unwrap()).unwrap();
        let found = wide.invert_and_compose(&b).unwrap();
        prop_assert_eq!(found, b.invert_and_compose(&b).unwrap());
    }

    #[test]
    fn rank_and_nullity(l in any_linear(INS, OUTS)) {
        let (kernel, image) = (l.kernel(), l.image());
        prop_assert_eq!(kernel.len() as u32 + l.rank(), l.in_bits());
        prop_assert_eq!(image.len() as u32, l.rank());
        prop_assert!(kernel.iter().all(|k| l.at(*k) == 0 && *k != 0));
        let distinct: std::collections::BTreeSet<u64> = indices(&l).map(|i| l.at(i)).collect();
        prop_assert_eq!(distinct.len(), 1 << l.rank());
        let basis = LinearLayout::from_columns(
            vec![Dim::new("n", image.len() as u32)], l.outs().to_vec(), image).unwrap();
        prop_assert!(basis.is_injective());
        let spanned: std::collections::BTreeSet<u64> = indices(&basis).map(|i| basis.at(i)).collect();
        prop_assert_eq!(spanned, distinct);
        let zeros = indices(&l).filter(|i| l.at(*i) == 0).count();
        prop_assert_eq!(zeros, 1 << kernel.len());
    }

    #[test]
    fn closed_under_product_and_composition(a in distributed(), b in distributed()) {
        prop_assert!(a.is_distributed());
        prop_assert!(a.product(&b).unwrap().is_distributed());
        let bits = a.out_bits();
        let swizzle = LinearLayout::from_columns(
            a.outs().to_vec(), vec![Dim::new("z", bits)], (0..bits).rev().map(|i| 1 << i).collect()).unwrap();
        prop_assert!(swizzle.is_memory());
        prop_assert!(swizzle.compose(&a).unwrap().is_distributed());
    }

    #[test]
    fn transposition_and_reshape_are_free(l in distributed()) {
        let t = l.transpose(&["y", "x"]).unwrap();
        prop_assert!(t.is_distributed());
        for i in indices(&l) {
            let (mut there, back) = (t.unflatten_out(t.at(i)), l.unflatten_out(l.at(i)));
            there.reverse();
            prop_assert_eq!(there, back);
        }
        prop_assert_eq!(t.transpose(&["x", "y"]).unwrap(), l.clone());
        let sizes = (l.out_size("x"), l.out_size("y"));
        let r = l.reshape(&[("all", sizes.0 * sizes.1)]).unwrap();
        prop_assert!(r.is_distributed());
        // The first mode counts fastest in both.
        prop_assert!(indices(&l).all(|i| r.at(i) == l.at(i)));
        prop_assert_eq!(r.reshape(&[("x", sizes.0), ("y", sizes.1)]).unwrap(), l);
    }

    #[test]
    fn join_split_expand_broadcast_slice(l in distributed()) {
        let joined = l.join("register", "half").unwrap();
        prop_assert!(joined.is_distributed());
        let registers = l.in_size("register");
        for i in indices(&l) {
            let (register, rest) = (i % registers, i / registers);
            let held = l.unflatten_out(l.at(i));
            for half in 0..2 {
                let index = register + registers * (half + 2 * rest);
                let found = joined.unflatten_out(joined.at(index));
                prop_assert_eq!(found, [&held[..], &[half]].concat());
            }
        }
        prop_assert_eq!(joined.split("half").unwrap(), l.clone());
        let expanded = l.expand(1, "one").unwrap();
        prop_assert!(expanded.is_distributed());
        prop_assert!(indices(&l).all(|i| expanded.at(i) == l.at(i)));
        prop_assert_eq!(expanded.slice("one").unwrap(), l.clone());
        let wide = expanded.broadcast("register", "one", 4).unwrap();
        prop_assert!(wide.is_distributed());
        for i in indices(&l) {
            let (register, rest) = (i % registers, i / registers);
            for k in 0..4 {
                let found = wide.unflatten_out(wide.at(register + registers * (k + 4 * rest)));
                prop_assert_eq!(found, [l.unflatten_out(l.at(i))[0], k, l.unflatten_out(l.at(i))[1]]);
            }
        }
        let sliced = l.slice("y").unwrap();
        prop_assert!(sliced.is_distributed());
        for i in indices(&l) {
            prop_assert_eq!(sliced.unflatten_out(sliced.at(i))[0], l.unflatten_out(l.at(i))[0]);
        }
        prop_assert!(sliced.drop_zeros("register").equal_up_to_broadcast(&sliced));
    }

    #[test]
    fn affine_flips_and_slices(l in any_linear(INS, OUTS), start in 0u64..64, bits in 0u32..6) {
        let flipped = AffineLayout::from(l.clone()).flip("x").unwrap();
        for i in indices(&l) {
            let (old, new) = (l.unflatten_out(l.at(i)), l.unflatten_out(flipped.at(i)));
            prop_assert_eq!((new[0], new[1]), (l.out_size("x") - 1 - old[0], old[1]));
        }
        prop_assert_eq!(flipped.flip("x").unwrap(), AffineLayout::from(l.clone()));
        let (x, size) = (l.out_size("x"), 1u64 << bits.min(l.outs()[0].bits));
        let start = start % x / size * size;
        for layout in [AffineLayout::from(l.clone()), flipped] {
            let there: Vec<u64> =
                indices(&l).filter(|i| (start..start + size).contains(&(layout.at(*i) % x))).collect();
            match layout.slice_mode("x", start, size) {
                Ok(held) => {
                    let mut found: Vec<u64> = indices(held.linear()).map(|i| held.at(i)).collect();
                    found.sort_unstable();
                    prop_assert_eq!(found, there);
                    let composed = layout.compose(&held).unwrap();
                    prop_assert!(indices(held.linear()).all(|i| composed.at(i) == layout.at(held.at(i))));
                }
                Err(_) => prop_assert!(there.is_empty()),
            }
        }
    }

    #[test]
    fn from_and_to_cute(l in any_linear(&["index"], &["offset"])) {
        let f2 = l.to_f2_layout().unwrap();
        for i in indices(&l) {
            prop_assert_eq!(f2.eval(i as i64).0, l.at(i));
        }
        let back = LinearLayout::from_f2_layout(&f2, "index", "offset").unwrap();
        prop_assert!(indices(&l).all(|i| back.at(i) == l.at(i)));
        if let Some(layout) = l.to_layout() {
            prop_assert!(indices(&l).all(|i| layout.eval(i as i64) as u64 == l.at(i)));
            let back = LinearLayout::from_layout(&layout, "index", "offset").unwrap();
            prop_assert_eq!(back.columns(), l.columns());
        }
        if let Some(swizzled) = l.to_swizzled() {
            let value = |i: u64| swizzled.swizzle.apply(swizzled.layout.eval(i as i64)) as u64;
            prop_assert!(indices(&l).all(|i| value(i) == l.at(i)));
        }
    }

    #[test]
    fn swizzled_layouts_go_there_and_back(
        order in Just(vec![0u32, 1, 2, 3, 4, 5]).prop_shuffle(), b in 0u32..=3, m in 0u32..=2, s in 0u32..=3,
    ) {
        let leaves: Vec<(i64, i64)> = order.iter().map(|k| (2, 1 << k)).collect();
        let layout = Layout::from_leaves(&leaves).unwrap();
        let swizzle = Swizzle::new(b, m, s.max(b)).unwrap();
        let swizzled = SwizzledLayout { swizzle, layout };
        let l = LinearLayout::from_swizzled(&swizzled, "index", "offset").unwrap();
        let value = |w: &SwizzledLayout, i: u64| w.swizzle.apply(w.layout.eval(i as i64)) as u64;
        prop_assert!(indices(&l).all(|i| value(&swizzled, i) == l.at(i)));
        let back = l.to_swizzled().unwrap();
        prop_assert!(indices(&l).all(|i| value(&back, i) == l.at(i)));
    }

    #[test]
    fn splits_are_pointwise(
        rows in 0u32..3, lanes in 0u32..4, odd in prop::sample::select(vec![1i64, 3, 5, 7]), power in 0u32..3,
    ) {
        // 2^lanes lanes of 2^rows rows each; odd·2^power columns in registers.
        let (r, n, c) = (1i64 << rows, 1i64 << lanes, odd << power);
        let height = r * n;
        let registers: Layout = format!("({r},{c}):(1,{height})").parse().unwrap();
        let lane: Layout = format!("{n}:{r}").parse().unwrap();
        let inputs = [("register", &registers), ("lane", &lane)];
        let split = Split::new(&inputs, &(height, c).into()).unwrap();
        prop_assert_eq!(split.slice_count(), odd);
        let power_columns = 1u64 << power;
        for l in 0..n as u64 {
            for i in 0..split.linear.in_size("register") {
                for slice in 0..odd {
                    let image = split.linear.apply(&[("register", i), ("lane", l)]).unwrap();
                    let index = split.indices[0].eval(i as i64) + split.slices[0].eval(slice);
                    let place = split.places[0].eval(slice);
                    prop_assert!(image[1] < power_columns);
                    let coordinate = image[0] as i64 + height * image[1] as i64 + place;
                    prop_assert_eq!(coordinate, registers.eval(index) + lane.eval(l as i64));
                }
            }
        }
    }

    #[test]
    fn vectors_and_permuted_division(l in distributed()) {
        let flat = l.flatten_outs("offset");
        let bits = flat.vector_bits("register");
        // Registers in that order are contiguous, and no register leads to the next bit.
        let rest = (0..flat.bases("register").len() as u32).filter(|j| !bits.contains(j));
        let order: Vec<u32> = bits.iter().copied().chain(rest).collect();
        let permuted = flat.permute_bits("register", &order).unwrap();
        prop_assert!(permuted.contiguous("register") >= 1 << bits.len());
        prop_assert!(!flat.bases("register").contains(&(1 << bits.len())));
        let tile = LinearLayout::identity(1 << bits.len(), "register", "offset").unwrap();
        let (order, quotient) = flat.divide_permuting(&tile, "register").unwrap();
        let permuted = flat.permute_bits("register", &order).unwrap();
        prop_assert_eq!(tile.product(&quotient).unwrap(), permuted);
        let larger = LinearLayout::identity(2 << bits.len(), "register", "offset").unwrap();
        prop_assert!(flat.divide_permuting(&larger, "register").is_none());
    }

    #[test]
    fn blocked_layouts_hold_everything(
        sizes in prop::collection::vec((0u32..3, 0u32..3, 0u32..2, 0u32..5), 1..=3),
        order in Just(vec![0usize, 1, 2]).prop_shuffle(),
    ) {
        let order: Vec<usize> = order.into_iter().filter(|k| *k < sizes.len()).collect();
        let of = |f: fn(&(u32, u32, u32, u32)) -> u32| sizes.iter().map(|s| 1 << f(s)).collect::<Vec<u64>>();
        let (registers, lanes, warps, shape) = (of(|s| s.0), of(|s| s.1), of(|s| s.2), of(|s| s.3));
        let (in_lanes, in_warps) = (lanes.iter().product::<u64>(), warps.iter().product::<u64>());
        let blocked = Blocked { registers, lanes, warps, order };
        let l = blocked.layout(&shape).unwrap();
        prop_assert!(l.is_distributed());
        prop_assert_eq!((l.in_size("lane"), l.in_size("warp")), (in_lanes, in_warps));
        // Only lanes and warps hold what others hold.
        prop_assert!(l.bases("register").iter().all(|c| *c != 0));
        // Reducing a mode leaves a distributed layout of the other modes.
        let sliced = l.sliced(0).unwrap();
        prop_assert!(sliced.is_distributed());
        prop_assert_eq!(sliced.outs().len(), shape.len() - 1);
    }
}

proptest! {
    #[test]
    fn swizzles_repeat_after_their_period(bits in 0u32..4, base in 0u32..5, more in 0u32..3, k in 0i64..5) {
        let swizzle = Swizzle::new(bits, base, bits + more).unwrap();
        let period = swizzle.period();
        for x in 0..2 * period {
            prop_assert_eq!(swizzle.apply(k * period + x), k * period + swizzle.apply(x));
        }
        // No smaller power of two is a period.
        if period > 1 {
            let half = period / 2;
            prop_assert!((0..period).any(|x| swizzle.apply(half + x) != half + swizzle.apply(x)));
        }
    }

    #[test]
    fn stages_are_copies_of_the_tile(
        (bits, base, more) in (0u32..4, 0u32..3, 0u32..3),
        (rows, columns, order) in (1i64..9, 1i64..9, any::<bool>()),
        (first, second, align) in (1i64..4, 1i64..4, 1i64..10),
        between in any::<bool>(),
    ) {
        let swizzle = Swizzle::new(bits, base, bits + more).unwrap();
        let strides = if order { (1, rows) } else { (columns, 1) };
        let tile = Layout::new((rows, columns).into(), strides.into()).unwrap();
        let tile = SwizzledLayout::new(swizzle, tile);
        let distance = tile.stage_distance(align).unwrap();
        prop_assert!(distance >= tile.layout.cosize() && distance % align == 0);
        let (shape, stages) = if between {
            ([rows, first, columns, second], [1, 3])
        } else {
            ([first, rows, columns, second], [0, 3])
        };
        let all = tile.with_stages(&shape, &stages, distance).unwrap();
        let mut values = std::collections::BTreeSet::new();
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            for (p, q) in (0..first).flat_map(|p| (0..second).map(move |q| (p, q))) {
                let at: [i64; 4] = if between { [i, p, j, q] } else { [p, i, j, q] };
                let value = all.eval_coord(&(at[0], at[1], at[2], at[3]).into()).unwrap();
                prop_assert_eq!(value, (p + first * q) * distance + tile.eval(i + rows * j));
                // Offsets under a swizzle may reach beyond the cosize, never beyond the distance.
                prop_assert!(values.insert(value));
            }
        }
        if swizzle.period() > 1 {
            prop_assert!(tile.with_stages(&shape, &stages, distance + 1).is_err());
        }
    }
}
