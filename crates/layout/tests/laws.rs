//! The laws of the algebra, at every coordinate of small random layouts. 256 cases each; `PROPTEST_CASES` asks for more.

use proptest::prelude::*;
use std::collections::BTreeSet;
use tilewright_layout::*;

/// A layout with at most four leaves, nested at random.
fn layouts(strides: impl Strategy<Value = i64> + Clone + 'static) -> impl Strategy<Value = Layout> {
    let leaf = (prop::sample::select(vec![1i64, 2, 2, 3, 4, 4, 6, 8]), strides);
    (prop::collection::vec(leaf, 1..=4), 0..4u8).prop_map(|(leaves, nesting)| {
        let all: Vec<Layout> = leaves.iter().map(|l| Layout::from_leaves(&[*l]).unwrap()).collect();
        let (front, back) = all.split_at(all.len() / 2);
        match nesting {
            0 => Layout::from_leaves(&leaves).unwrap(),
            1 => Layout::concat(&all).unwrap(),
            2 => Layout::concat(&[Layout::concat(front).unwrap(), Layout::concat(back).unwrap()]).unwrap(),
            _ => Layout::concat(&[Layout::concat(&all).unwrap()]).unwrap(),
        }
    })
}

fn anything() -> impl Strategy<Value = Layout> {
    layouts(prop::sample::select(vec![0i64, 0, 1, 1, 2, 3, 4, 5, 6, 8, 8, 12, 16, 24, 32, 64, -1, -2, -8]))
}

fn not_negative() -> impl Strategy<Value = Layout> {
    layouts(prop::sample::select(vec![0i64, 1, 1, 2, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]))
}

/// Layouts with strides in chains, so that most operations apply: prefix products of the extents in random order, with
/// random holes.
fn chained() -> impl Strategy<Value = Layout> {
    let leaf = (prop::sample::select(vec![1i64, 2, 3, 4, 8]), prop::sample::select(vec![1i64, 1, 1, 2, 3]));
    prop::collection::vec(leaf, 1..=4).prop_flat_map(|leaves| {
        let mut current = 1;
        let mut out = Vec::new();
        for (s, hole) in leaves {
            out.push((s, current * hole));
            current *= hole * s;
        }
        Just(out).prop_shuffle().prop_map(|leaves| {
            let all: Vec<Layout> = leaves.iter().map(|l| Layout::from_leaves(&[*l]).unwrap()).collect();
            Layout::concat(&all).unwrap()
        })
    })
}

/// [`chained`] with some modes backwards.
fn backwards() -> impl Strategy<Value = Layout> {
    (chained(), prop::collection::vec(any::<bool>(), 4)).prop_map(|(a, signs)| {
        let turned = a.leaves().into_iter().zip(signs).map(|((s, d), back)| (s, if back { -d } else { d }));
        Layout::from_leaves(&turned.collect::<Vec<_>>()).unwrap()
    })
}

/// Evaluation by the definition, independent of the crate's: the last leaf takes what is left.
fn reference(layout: &Layout, index: i64) -> i64 {
    let leaves = layout.leaves();
    let mut rest = index;
    let mut sum = 0;
    for (k, (s, d)) in leaves.iter().enumerate() {
        let c = if k + 1 == leaves.len() { rest } else { rest.rem_euclid(*s) };
        rest = rest.div_euclid(*s);
        sum += c * d;
    }
    sum
}

fn check_composition(a: &Layout, b: &Layout) -> Result<bool, TestCaseError> {
    let Ok(r) = compose(a, b) else { return Ok(false) };
    prop_assert!(b.shape().compatible(r.shape()), "{a} o {b} = {r}");
    for i in 0..b.size() {
        prop_assert_eq!(reference(&r, i), reference(a, reference(b, i)), "{} o {} = {} at {}", a, b, r, i);
    }
    Ok(true)
}

proptest! {
    #[test]
    fn evaluation(a in anything()) {
        let image = a.image();
        let shape = a.shape().clone();
        for i in 0..a.size() {
            prop_assert_eq!(a.eval(i), reference(&a, i));
            prop_assert_eq!(image[i as usize], reference(&a, i));
            prop_assert_eq!(a.eval_coord(&idx2crd(i, &shape)).unwrap(), reference(&a, i));
            prop_assert_eq!(crd2idx(&idx2crd(i, &shape), &shape), Ok(i));
        }
        for i in [-3, -1, a.size(), a.size() + 5] {
            prop_assert_eq!(a.eval(i), reference(&a, i));
        }
        let (low, high) = (image.iter().min().unwrap(), image.iter().max().unwrap());
        prop_assert_eq!(a.cosize(), high - low + 1);
        let set: BTreeSet<i64> = image.iter().copied().collect();
        prop_assert_eq!(a.is_injective(), set.len() == image.len());
        prop_assert_eq!(a.is_compact(), set.iter().copied().eq(0..a.size()));
    }

    #[test]
    fn text_round_trip(a in anything()) {
        prop_assert_eq!(a.to_string().parse::<Layout>().unwrap(), a.clone());
        let spaced = a.to_string().replace(',', " , ").replace('(', " ( ").replace(':', " : ");
        prop_assert_eq!(spaced.parse::<Layout>().unwrap(), a);
    }

    #[test]
    fn coalescing(a in anything()) {
        let r = coalesce(&a);
        prop_assert_eq!(r.size(), a.size());
        prop_assert!(r.depth() <= 1);
        for i in 0..a.size() {
            prop_assert_eq!(r.eval(i), a.eval(i));
        }
        let leaves = r.leaves();
        prop_assert!(leaves.windows(2).all(|w| w[0].0 * w[0].1 != w[1].1), "not least: {}", r);
    }

    #[test]
    fn composition_of_anything(a in anything(), b in anything()) {
        check_composition(&a, &b)?;
    }

    #[test]
    fn composition_of_chains(a in anything(), b in chained()) {
        check_composition(&a, &b)?;
    }

    #[test]
    fn composition_below_a_broadcast(b in not_negative(), extent in prop::sample::select(vec![2i64, 4, 8, 64])) {
        let a = Layout::from_leaves(&[(extent, 1), (16, 0)]).unwrap();
        check_composition(&a, &b)?;
        check_composition(&Layout::from_leaves(&[(extent, 0), (16, 1)]).unwrap(), &b)?;
    }

    #[test]
    fn identities(a in anything()) {
        let id = Layout::identity(a.size());
        let right = compose(&a, &id).unwrap();
        let left = compose(&Layout::identity(a.cosize()), &a).unwrap();
        for i in 0..a.size() {
            prop_assert_eq!(right.eval(i), a.eval(i));
            prop_assert_eq!(left.eval(i), a.eval(i));
        }
    }

    #[test]
    fn complements(a in prop_oneof![chained(), backwards(), anything()], cotarget in 1i64..200) {
        let Ok(r) = complement(&a, cotarget) else { return Ok(()) };
        let unbounded = complement_unbounded(&a).unwrap();
        let image: BTreeSet<i64> = a.image().into_iter().collect();
        for (c, end) in [(&r, r.size()), (&unbounded, unbounded.size() + 20)] {
            for i in 1..end {
                prop_assert!(!image.contains(&c.eval(i)), "{}: {} at {}", a, c, i);
                prop_assert!(c.eval(i - 1) < c.eval(i), "{}: {} at {}", a, c, i);
            }
        }
    }

    /// Copies of a layout at the values of its complement do not meet, also of modes that run backwards, and none is refused whose modes
    /// do not overlap.
    #[test]
    fn copies_at_the_complement_do_not_meet(a in backwards(), cotarget in 1i64..200) {
        let (bounded, unbounded) = (complement(&a, cotarget).unwrap(), complement_unbounded(&a).unwrap());
        for c in [&bounded, &unbounded] {
            let extent = c.size() + if c == &unbounded { 20 } else { 0 };
            let mut copies = BTreeSet::new();
            for shift in 0..extent {
                for v in a.image() {
                    prop_assert!(copies.insert(v + c.eval(shift)), "{}: {} at {}", a, c, shift);
                }
            }
        }
        prop_assert!(a.size() * bounded.size() >= cotarget.min(a.cosize()), "{}: {}", a, bounded);
        let forwards: Vec<(i64, i64)> = a.leaves().iter().map(|(s, d)| (*s, d.abs())).collect();
        prop_assert_eq!(complement(&Layout::from_leaves(&forwards).unwrap(), cotarget).unwrap(), bounded);
    }

    /// A grid that goes nowhere needs no complement.
    #[test]
    fn copies_in_place(a in anything(), n in 1i64..5) {
        let r = logical_product(&a, &Layout::from_leaves(&[(n, 0)]).unwrap()).unwrap();
        for i in 0..r.size() {
            prop_assert_eq!(r.eval(i), a.eval(i % a.size()));
        }
    }

    #[test]
    fn inverses(a in prop_oneof![chained(), anything()]) {
        let right = right_inverse(&a);
        for k in 0..right.size() {
            prop_assert_eq!(a.eval(right.eval(k)), k);
        }
        if let Ok(left) = left_inverse(&a) {
            for k in 0..a.size() {
                prop_assert_eq!(a.eval(left.eval(a.eval(k))), a.eval(k), "{} of {}", left, a);
                if a.is_injective() {
                    prop_assert_eq!(left.eval(a.eval(k)), k);
                }
            }
        }
        match inverse(&a) {
            Ok(r) => for k in 0..a.size() {
                prop_assert_eq!(a.eval(r.eval(k)), k);
                prop_assert_eq!(r.eval(a.eval(k)), k);
            },
            Err(_) => prop_assert!(!a.image().into_iter().collect::<BTreeSet<_>>().into_iter().eq(0..a.size())),
        }
    }

    #[test]
    fn divides(a in not_negative(), b in chained()) {
        let Ok(r) = logical_divide(&a, &b) else { return Ok(()) };
        prop_assert_eq!(r.rank(), 2);
        prop_assert!(b.shape().compatible(r.mode(0).unwrap().shape()));
        for i in 0..b.size() {
            prop_assert_eq!(r.mode(0).unwrap().eval(i), a.eval(b.eval(i)));
        }
        let values: BTreeSet<i64> = r.image().into_iter().collect();
        prop_assert!(a.image().iter().all(|v| values.contains(v)), "{} / {} = {}", a, b, r);
        if r.size() == a.size() {
            let (mut x, mut y) = (a.image(), r.image());
            x.sort_unstable();
            y.sort_unstable();
            prop_assert_eq!(x, y);
        }
        prop_assert_eq!(flat_divide(&a, &b).unwrap().image(), r.image());
        prop_assert_eq!(tiled_divide(&a, &b).unwrap().image(), r.image());
    }

    #[test]
    fn products(a in chained(), b in chained()) {
        let Ok(r) = logical_product(&a, &b) else { return Ok(()) };
        prop_assert_eq!(r.mode(0).unwrap(), a.clone());
        prop_assert!(b.shape().compatible(r.mode(1).unwrap().shape()));
        prop_assert!(r.is_injective(), "{} x {} = {}", a, b, r);
        if let (Ok(blocked), Ok(raked)) = (blocked_product(&a, &b), raked_product(&a, &b)) {
            for other in [blocked, raked] {
                let (mut x, mut y) = (other.image(), r.image());
                x.sort_unstable();
                y.sort_unstable();
                prop_assert_eq!(x, y);
            }
        }
    }

    #[test]
    fn swizzles_permute(bits in 0u32..4, base in 0u32..5, more in 0u32..3) {
        let sw = Swizzle::new(bits, base, bits + more).unwrap();
        let all = 1i64 << (2 * bits + more + base);
        let values: BTreeSet<i64> = (0..all).map(|x| sw.apply(x)).collect();
        prop_assert!(values.into_iter().eq(0..all));
        prop_assert!((0..all).all(|x| sw.apply(sw.apply(x)) == x));
        prop_assert_eq!(sw.to_string().parse::<Swizzle>().unwrap(), sw);
    }

    #[test]
    fn any_text_is_a_layout_or_an_error(text in any::<String>()) {
        let _ = text.parse::<Layout>();
        let _ = text.parse::<SwizzledLayout>();
        let _ = text.parse::<Coord>();
    }
}

proptest! {
    /// `table()[i] == eval(i)`.
    #[test]
    fn a_table_holds_the_value_of_every_index(a in anything()) {
        let values: Vec<i64> = (0..a.size()).map(|i| a.eval(i)).collect();
        prop_assert_eq!(a.table(), values);
    }

    /// A layout is found again from its table, and nothing else is: the result always has the table.
    #[test]
    fn a_layout_is_found_from_its_table(a in anything(), at in any::<prop::sample::Index>(), by in -2i64..3) {
        prop_assert_eq!(Layout::from_table(&a.table()), Some(coalesce(&a)));
        let mut other = a.table();
        let at = at.index(other.len());
        other[at] += by;
        if let Some(found) = Layout::from_table(&other) {
            prop_assert_eq!(found.table(), other);
        }
    }

    #[test]
    fn squeezing_and_filtering(a in anything()) {
        let squeezed = squeeze(&a);
        prop_assert_eq!(squeezed.table(), a.table());
        prop_assert!(squeezed.size() == 1 || squeezed.leaves().iter().all(|(s, _)| *s > 1));
        let filtered = filter_zeros(&a);
        prop_assert!(filtered.congruent(&a));
        prop_assert_eq!(filtered.size() * nullspace(&a).size(), a.size());
        let values = |l: &Layout| l.image().into_iter().collect::<BTreeSet<i64>>();
        prop_assert_eq!(values(&filtered), values(&a));
    }

    #[test]
    fn alignment(a in prop_oneof![chained(), not_negative()]) {
        let divisor = a.divisor();
        prop_assert!(a.image().iter().all(|v| *v == 0 || v % divisor == 0));
        prop_assert_eq!(divisor, a.leaves().iter().filter(|l| l.0 > 1 && l.1 != 0).map(|l| l.1).reduce(gcd).unwrap_or(0));
        let (n, run) = (max_alignment(&a), right_inverse(&a));
        prop_assert_eq!(run.size() % n, 0);
        // The values are whole vectors, each at a multiple of its length.
        let values: BTreeSet<i64> = a.image().into_iter().collect();
        prop_assert!(values.iter().all(|v| (0..n).all(|i| values.contains(&(v - v % n + i)))));
    }

    #[test]
    fn a_swizzled_cosize_is_one_more_than_the_greatest_value(a in not_negative(), bits in 0u32..3, base in 0u32..3) {
        let swizzled = SwizzledLayout::new(Swizzle::new(bits, base, 3).unwrap(), a);
        let greatest = (0..swizzled.layout.size()).map(|i| swizzled.eval(i)).max().unwrap();
        prop_assert!(swizzled.cosize() > greatest);
        if !swizzled.swizzle.is_identity() && swizzled.layout.cosize() % (1 << (bits + base)) != 0 {
            prop_assert_eq!(swizzled.cosize(), greatest + 1);
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
