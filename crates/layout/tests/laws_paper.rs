//! The numbered laws of the paper, (11) to (31), and those of its semimodules, at every coordinate of random layouts:
//! sizes to 4096, ranks to 5, depths to 3, strides with gaps, zeros and negatives. 256 cases each; `PROPTEST_CASES` asks
//! for more.

use proptest::prelude::*;
use std::collections::BTreeSet;
use tilewright_layout::*;

/// Nests leaves at random to a depth of at most 3, as `cuts` say.
fn nest<S: Stride>(leaves: &[(i64, S)], cuts: &[u8], depth: usize) -> Layout<S> {
    let one = |l: &(i64, S)| Layout::from_leaves(std::slice::from_ref(l)).unwrap();
    let mut modes = Vec::new();
    let mut at = 0;
    while at < leaves.len() {
        let cut = usize::from(cuts[at % cuts.len()]);
        let take = (1 + cut % 3).min(leaves.len() - at);
        if depth > 1 && cut % 2 == 1 {
            modes.push(nest(&leaves[at..at + take], &cuts[1..], depth - 1));
            at += take;
        } else {
            modes.push(one(&leaves[at]));
            at += 1;
        }
    }
    Layout::concat(&modes).unwrap()
}

fn shaped<S: Stride + 'static>(
    extents: Vec<i64>,
    stride: impl Strategy<Value = S> + Clone + 'static,
) -> impl Strategy<Value = Layout<S>> {
    let leaf = (prop::sample::select(extents), stride);
    let leaves = prop::collection::vec(leaf, 1..=7);
    (leaves, prop::collection::vec(any::<u8>(), 12), 0..3usize).prop_map(|(mut leaves, cuts, depth)| {
        while leaves.len() > 1 && leaves.iter().map(|l| l.0).product::<i64>() > 4096 {
            leaves.pop();
        }
        if depth == 0 && leaves.len() == 1 {
            return Layout::from_leaves(&leaves).unwrap();
        }
        let mut layout = nest(&leaves, &cuts, depth + 1);
        if layout.rank() > 5 {
            leaves.truncate(5);
            layout = nest(&leaves, &cuts, depth + 1);
        }
        layout
    })
}

fn extents() -> Vec<i64> {
    vec![1, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8, 16]
}

fn anything() -> impl Strategy<Value = Layout> {
    let strides = vec![0i64, 0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 64, 97, -1, -2, -8, -15];
    shaped(extents(), prop::sample::select(strides))
}

/// Prefix products in random order with holes and zeros, so that most operations apply.
fn chained() -> impl Strategy<Value = Layout> {
    let leaf = (prop::sample::select(extents()), prop::sample::select(vec![0i64, 1, 1, 1, 2, 3]));
    (prop::collection::vec(leaf, 1..=5), prop::collection::vec(any::<u8>(), 12)).prop_flat_map(
        |(leaves, cuts)| {
            let (mut current, mut size, mut out) = (1, 1, Vec::new());
            for (s, hole) in leaves {
                if size * s > 4096 {
                    continue;
                }
                size *= s;
                out.push((s, current * hole));
                current *= if hole == 0 { 1 } else { hole * s };
            }
            Just(out).prop_shuffle().prop_map(move |leaves| nest(&leaves, &cuts, 3))
        },
    )
}

fn basis() -> impl Strategy<Value = Coord> + Clone {
    let path = prop::sample::select(vec![vec![0usize], vec![1], vec![2, 0], vec![2, 1]]);
    let factor = prop::sample::select(vec![0i64, 1, 1, 2, 3, 4, 8, -1, 16]);
    (path, factor).prop_map(|(p, k)| Coord::nested(&p).unwrap().scale(k))
}

fn coordinates() -> impl Strategy<Value = Layout<Coord>> {
    shaped(extents(), basis())
}

fn bits() -> impl Strategy<Value = Layout<F2>> {
    let strides = vec![0u64, 1, 1, 2, 4, 4, 8, 16, 32, 3, 5, 9, 17, 10, 18, 36, 64, 72];
    shaped(vec![1, 2, 2, 4, 4, 8], prop::sample::select(strides).prop_map(F2))
}

fn symbols() -> impl Strategy<Value = Poly> + Clone {
    let forms = ["0", "1", "k", "2*n", "k*n", "n^2-3", "-k+7", "4"];
    prop::sample::select(forms.to_vec()).prop_map(|t| t.parse::<Poly>().unwrap())
}

fn semimodule<M: Stride>(a: i64, b: i64, m: &M, n: &M, p: &M) -> Result<(), TestCaseError> {
    prop_assert_eq!(&m.scale(1), m);
    prop_assert_eq!(m.add(&n.add(p)), m.add(n).add(p));
    prop_assert_eq!(m.scale(b).scale(a), m.scale(a * b));
    prop_assert_eq!(&m.add(&M::zero()), m);
    prop_assert_eq!(m.scale(0), M::zero());
    prop_assert_eq!(m.add(n), n.add(m));
    prop_assert_eq!(m.checked_add(n), Some(m.add(n)));
    prop_assert_eq!(m.checked_scale(a), Some(m.scale(a)));
    if M::LINEAR {
        prop_assert_eq!(m.scale(a + b), m.scale(a).add(&m.scale(b)));
    }
    Ok(())
}

/// Evaluation by definition: the sum of the scaled strides at the natural coordinate.
fn reference<S: Stride>(layout: &Layout<S>, index: i64) -> S {
    let leaves = layout.leaves();
    let (mut rest, mut sum) = (index, S::zero());
    for (k, (s, d)) in leaves.iter().enumerate() {
        let c = if k + 1 == leaves.len() { rest } else { rest.rem_euclid(*s) };
        rest = rest.div_euclid(*s);
        sum = sum.add(&d.scale(c));
    }
    sum
}

fn law_11<S: Stride>(layout: &Layout<S>) -> Result<(), TestCaseError> {
    let modes = layout.modes();
    for i in 0..layout.size() {
        let (mut rest, mut sum) = (i, S::zero());
        for mode in &modes {
            sum = sum.add(&mode.eval(rest % mode.size()));
            rest /= mode.size();
        }
        prop_assert_eq!(&sum, &layout.eval(i));
        prop_assert_eq!(reference(layout, i), sum);
    }
    Ok(())
}

fn laws_13_to_15<S: Stride>(a: &Layout<S>) -> Result<(), TestCaseError> {
    let r = coalesce(a);
    prop_assert_eq!(r.size(), a.size());
    prop_assert!(r.depth() <= 1);
    for i in 0..a.size() {
        prop_assert_eq!(r.eval(i), a.eval(i), "{} of {} at {}", r, a, i);
    }
    Ok(())
}

fn laws_16_and_17<S: Stride>(a: &Layout<S>, b: &Layout) -> Result<(), TestCaseError> {
    if let Ok(r) = compose(a, b) {
        prop_assert!(b.compatible(&r), "{} o {} = {}", a, b, r);
        for i in 0..b.size() {
            prop_assert_eq!(r.eval(i), reference(a, b.eval(i)), "{} o {} = {} at {}", a, b, r, i);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn definition_2_16_semimodules(
        a in -50i64..50, b in -50i64..50,
        m in prop::array::uniform3(-99i64..99),
        c in prop::array::uniform3(basis()),
        f in prop::array::uniform3(any::<u64>().prop_map(F2)),
        s in prop::array::uniform3(symbols()),
    ) {
        semimodule(a, b, &m[0], &m[1], &m[2])?;
        semimodule(a, b, &c[0].add(&c[1]), &c[1], &c[2])?;
        semimodule(a, b, &f[0], &f[1], &f[2])?;
        semimodule(a, b, &s[0], &s[1], &s[2])?;
    }

    #[test]
    fn text_round_trips(a in anything(), c in coordinates(), f in bits(), s in shaped(extents(), symbols())) {
        prop_assert_eq!(a.to_string().parse::<Layout>(), Ok(a));
        prop_assert_eq!(c.to_string().parse::<Layout<Coord>>(), Ok(c));
        prop_assert_eq!(f.to_string().parse::<Layout<F2>>(), Ok(f));
        prop_assert_eq!(s.to_string().parse::<Layout<Poly>>(), Ok(s));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-+*^0-9efkn(),:<>_ ]{0,30}") {
        let _ = text.parse::<Layout<Coord>>();
        let _ = text.parse::<Layout<F2>>();
        let _ = text.parse::<Layout<Poly>>();
        let _ = text.parse::<Tiler>();
        let _ = text.parse::<Slice>();
    }

    #[test]
    fn equations_4_and_5_coordinates(a in anything(), beyond in -20i64..5000) {
        let shape = a.shape();
        for i in 0..a.size() {
            let natural = idx2crd(i, shape);
            prop_assert!(natural.congruent(shape) && shape.contains(&natural));
            prop_assert_eq!(crd2idx(&natural, shape), Ok(i));
            prop_assert_eq!(map_coordinate(&natural, shape, &a.size().into()), Ok(i.into()));
            prop_assert_eq!(a.eval_coord(&natural).unwrap(), a.eval(i));
        }
        let outside = idx2crd(a.size() + beyond.abs(), shape);
        prop_assert!(!shape.contains(&outside));
        prop_assert_eq!(natural_coordinate(&beyond.into(), shape).unwrap(), idx2crd(beyond, shape));
    }

    #[test]
    fn equation_7_linear_form(c in coordinates(), f in bits()) {
        let (bases, matrix) = c.linear_form();
        for i in 0..c.size() {
            let natural = idx2crd(i, c.shape());
            for (basis, row) in bases.iter().zip(&matrix) {
                let sum: i64 = row.iter().zip(natural.leaves()).map(|(d, c)| d * c).sum();
                prop_assert_eq!(c.eval(i).component_at(basis.path()), sum);
            }
        }
        if let Ok(split) = f.split_bits() {
            for i in 0..f.size() {
                prop_assert_eq!(split.eval(i), f.eval(i));
            }
        }
    }

    #[test]
    fn equation_10_slices(a in anything(), open in prop::collection::vec(any::<bool>(), 8), seed in 0i64..4096) {
        let natural = idx2crd(seed % a.size(), a.shape());
        let mut k = 0;
        let at = Slice(natural.map(|c| { k += 1; (!open[k % 8]).then_some(*c) }));
        let (value, rest) = slice(&a, &at).unwrap();
        for i in 0..rest.size() {
            // Fill the holes with the i-th coordinate of what is left.
            let mut left = i;
            let extents: Vec<i64> = a.shape().leaves().into_iter().copied().collect();
            let mut k = 0;
            let whole = at.0.map(|c| {
                k += 1;
                c.unwrap_or_else(|| { let d = left % extents[k - 1]; left /= extents[k - 1]; d })
            });
            prop_assert_eq!(a.eval_coord(&whole).unwrap(), value + rest.eval(i), "{} {}", a, at);
        }
    }

    #[test]
    fn equation_11_concatenation(a in anything(), c in coordinates(), f in bits()) {
        law_11(&a)?;
        law_11(&c)?;
        law_11(&f)?;
    }

    #[test]
    fn equation_12_by_mode(a in anything(), b in chained(), c in chained()) {
        if a.rank() < 2 { return Ok(()) }
        let tiler = Tiler::Modes(vec![b.clone().into(), c.clone().into()]);
        if let Ok(r) = compose_tiler(&a, &tiler) {
            prop_assert_eq!(r.mode(0), compose(&a.mode(0).unwrap(), &b));
            prop_assert_eq!(r.mode(1), compose(&a.mode(1).unwrap(), &c));
        }
        if let (Ok(l), Ok(z)) = (logical_divide_tiler(&a, &tiler), zipped_divide_tiler(&a, &tiler)) {
            prop_assert_eq!(l.mode(0), logical_divide(&a.mode(0).unwrap(), &b));
            prop_assert_eq!(z.rank(), 2);
            prop_assert_eq!(z.mode(0), compose_tiler(&Layout::concat(&a.modes()[..2]).unwrap(), &tiler));
        }
    }

    #[test]
    fn equations_13_to_15_coalesce(a in anything(), b in chained(), c in coordinates(), f in bits()) {
        laws_13_to_15(&a)?;
        laws_13_to_15(&b)?;
        laws_13_to_15(&c)?;
        laws_13_to_15(&f)?;
    }

    #[test]
    fn equations_16_and_17_composition(a in anything(), b in anything(), c in chained()) {
        laws_16_and_17(&a, &b)?;
        laws_16_and_17(&a, &c)?;
        laws_16_and_17(&c, &a)?;
    }

    #[test]
    fn equations_16_and_17_other_left_sides(a in coordinates(), f in bits(), b in anything(), c in chained()) {
        laws_16_and_17(&a, &b)?;
        laws_16_and_17(&a, &c)?;
        laws_16_and_17(&f, &b)?;
        laws_16_and_17(&f, &c)?;
    }

    #[test]
    fn equations_16_and_17_coordinates_right(a in anything(), b in coordinates(), f in bits()) {
        let value = |l: &Layout, c: &Coord| -> i64 {
            c.terms().iter().map(|(e, k)| {
                let mode = e.path().iter().fold(l.clone(), |m, i| m.mode(*i).unwrap());
                reference(&mode, *k)
            }).sum()
        };
        if let Ok(r) = compose_coordinates(&a, &b) {
            prop_assert!(b.compatible(&r));
            for i in 0..b.size() {
                prop_assert_eq!(r.eval(i), value(&a, &b.eval(i)), "{} o {} = {} at {}", a, b, r, i);
            }
        }
        if let Ok(r) = compose_f2(&a, &f) {
            prop_assert!(f.compatible(&r));
            for i in 0..f.size() {
                prop_assert_eq!(r.eval(i), reference(&a, f.eval(i).0 as i64));
            }
        }
    }

    #[test]
    fn equation_18_associativity(a in anything(), b in chained(), c in chained()) {
        if c.cosize() > b.size() || b.cosize() > a.size() { return Ok(()) }
        if let (Ok(bc), Ok(ab)) = (compose(&b, &c), compose(&a, &b))
            && let (Ok(x), Ok(y)) = (compose(&a, &bc), compose(&ab, &c)) {
            prop_assert_eq!(x.image(), y.image());
        }
    }

    #[test]
    fn equations_19_to_23_refusals_are_right(a in anything(), s in 2i64..40, d in 1i64..40) {
        // Where the base case is refused, no refinement of s:d has these values: the first run does not divide s.
        let b = Layout::from_leaves(&[(s, d)]).unwrap();
        if compose(&a, &b).is_err() {
            let f: Vec<i64> = (0..s).map(|i| reference(&a, i * d)).collect();
            prop_assert!(!refines(&f), "{} o {}", a, b);
        }
    }

    #[test]
    fn equation_24_right_inverse(a in anything(), b in chained(), c in coordinates(), f in bits()) {
        for a in [&a, &b] {
            let r = right_inverse(a);
            for k in 0..r.size() {
                prop_assert_eq!(a.eval(r.eval(k)), k);
            }
        }
        if let Ok(r) = right_inverse_coordinates(&c) {
            for k in r.shape().coordinates().unwrap() {
                let at = r.eval_coord(&k).unwrap();
                // r refines the profile: its own coordinate, made coarse, is what c must give.
                let value = c.eval(at);
                let shape = r.shape();
                let coarse = value.to_htuple(&profile(&c)).unwrap();
                prop_assert_eq!(crd2idx(&coarse, shape).ok().map(|i| idx2crd(i, shape)), Some(k));
            }
        }
        if let Ok(r) = right_inverse_f2(&f) {
            for k in 0..r.size() {
                prop_assert_eq!(f.eval(r.eval(k).0 as i64), F2(k as u64));
            }
        }
    }

    #[test]
    fn equation_25_common_sublayout(a in chained(), b in chained()) {
        let r = max_common_layout(&a, &b);
        for k in 0..r.size() {
            prop_assert!((0..a.size()).contains(&r.eval(k)));
            prop_assert_eq!((a.eval(r.eval(k)), b.eval(r.eval(k))), (k, k), "{} {} {}", a, b, r);
        }
    }

    #[test]
    fn equation_26_left_inverse(a in anything(), b in chained(), c in coordinates(), f in bits()) {
        for a in [&a, &b] {
            if let Ok(r) = left_inverse(a) {
                for k in 0..a.size() {
                    prop_assert_eq!(a.eval(r.eval(a.eval(k))), a.eval(k));
                }
            }
        }
        if let Ok(r) = left_inverse_coordinates(&c) {
            for k in 0..c.size() {
                let value = c.eval(k).to_htuple(&profile(&c)).unwrap();
                prop_assert_eq!(c.eval(r.eval_coord(&value).unwrap()), c.eval(k), "{} of {}", r, c);
            }
        }
        if let Ok(r) = left_inverse_f2(&f) {
            for k in 0..f.size() {
                let back = r.eval(f.eval(k).0 as i64).0 as i64;
                prop_assert_eq!(f.eval(back), f.eval(k), "{} of {}", r, f);
            }
        }
    }

    #[test]
    fn equations_27_to_29_complement(a in chained(), c in coordinates()) {
        if let Ok(r) = complement_unbounded(&a) {
            let image: BTreeSet<i64> = a.image().into_iter().collect();
            for i in 1..r.size() + 20 {
                prop_assert!(!image.contains(&r.eval(i)), "{} of {}", r, a);
                prop_assert!(r.eval(i - 1) < r.eval(i));
            }
        }
        if let Ok(r) = complement_coordinates(&c, None) {
            let image: BTreeSet<Coord> = c.image().into_iter().collect();
            prop_assert!(profile(&c).weakly_congruent(r.shape()));
            for i in 1..r.size() {
                prop_assert!(!image.contains(&r.eval(i)), "{} of {}", r, c);
            }
        }
    }

    #[test]
    fn equations_30_and_31_divide(b in chained(), n in 1i64..4096) {
        let n = n.max(b.cosize());
        if let Ok(star) = logical_divide(&Layout::identity(n), &b) {
            let plus = right_inverse(&star);
            for i in 0..star.size() {
                prop_assert_eq!(star.eval(plus.eval(star.eval(i))), star.eval(i), "{} / {} = {}", n, b, star);
            }
            for k in 0..plus.size() {
                prop_assert_eq!(plus.eval(star.eval(plus.eval(k))), plus.eval(k));
            }
            let values: BTreeSet<i64> = star.image().into_iter().collect();
            prop_assert!((0..n).all(|k| values.contains(&k))); // surjective onto 0..n
        }
    }

    #[test]
    fn admissibility(a in chained(), t in chained()) {
        let image: BTreeSet<i64> = a.image().into_iter().collect();
        if let Ok(r) = admissible(&a, &t) {
            for i in 0..t.size() {
                prop_assert!((0..a.size()).contains(&r.eval(i)));
                prop_assert_eq!(a.eval(r.eval(i)), t.eval(i));
            }
        }
        if !t.image().iter().all(|v| image.contains(v)) {
            prop_assert!(admissible(&a, &t).is_err());
        }
    }

    #[test]
    fn recasts(a in chained(), n in prop::sample::select(vec![2i64, 3, 4, 8])) {
        let spread = |l: &Layout| -> BTreeSet<i64> {
            l.image().into_iter().flat_map(|v| (0..n).map(move |j| n * v + j)).collect()
        };
        if let Ok(r) = recast(&a, 8 * n, 8) {
            prop_assert_eq!(r.image().into_iter().collect::<BTreeSet<_>>(), spread(&a), "{} {}", a, r);
        }
        if let Ok(r) = recast(&a, 8, 8 * n) {
            prop_assert_eq!(spread(&r), a.image().into_iter().collect::<BTreeSet<_>>(), "{} {}", a, r);
        }
    }

    /// Widths of which neither divides the other, as sets of bits; and none is refused that could be.
    #[test]
    fn recasts_between_any_widths(
        a in chained(),
        from in prop::sample::select(vec![4i64, 6, 8, 12, 16, 24, 32]),
        to in prop::sample::select(vec![4i64, 6, 8, 12, 16, 24, 48]),
    ) {
        let bits = |l: &Layout, width: i64| -> BTreeSet<i64> {
            l.image().into_iter().flat_map(|v| (0..width).map(move |j| width * v + j)).collect()
        };
        let memory = bits(&a, from);
        match recast(&a, from, to) {
            Ok(r) => {
                prop_assert_eq!(bits(&r, to), memory, "{} {} {}: {}", a, from, to, r);
                prop_assert_eq!(r.size() * to, a.size() * from);
            }
            Err(_) => {
                let whole = memory.iter().all(|bit| (0..to).all(|j| memory.contains(&(bit / to * to + j))));
                let held = from % to != 0 && to % from != 0 || from > to;
                let nowhere = held && a.leaves().iter().all(|(s, d)| *s > 1 && *d != 1);
                prop_assert!(!whole || nowhere, "{} {} {}", a, from, to);
            }
        }
    }

    #[test]
    fn swizzles_and_bits(a in chained(), (bits, base, more) in (0u32..4, 0u32..4, 0u32..2)) {
        let sl = SwizzledLayout::new(Swizzle::new(bits, base, bits + more).unwrap(), a.clone());
        if let Ok(f) = sl.to_f2() {
            prop_assert!(a.compatible(&f));
            for i in 0..a.size() {
                prop_assert_eq!(f.eval(i), F2(sl.eval(i) as u64));
            }
        }
    }

    #[test]
    fn nullspaces(a in anything(), f in bits()) {
        let n = nullspace(&a);
        let at: BTreeSet<i64> = n.image().into_iter().collect();
        prop_assert_eq!(at.len() as i64, n.size());
        prop_assert!(at.iter().all(|i| a.eval(*i) == 0));
        if let Ok(n) = nullspace_f2(&f) {
            let at: BTreeSet<i64> = n.image().into_iter().map(|x| x.0 as i64).collect();
            let zeros: BTreeSet<i64> = (0..f.size()).filter(|i| f.eval(*i) == F2(0)).collect();
            prop_assert_eq!(at, zeros);
        }
    }
}

/// True if some layout of depth at most 1 and this size has these values. In its coalesced form the first extent is the
/// length of the linear run; anything else divides it.
fn refines(f: &[i64]) -> bool {
    if f.len() <= 1 {
        return true;
    }
    (2..=f.len()).rev().filter(|run| f.len().is_multiple_of(*run)).any(|run| {
        let linear = (0..run).all(|i| f[i] == f[1] * i as i64);
        let rest: Vec<i64> = f.iter().step_by(run).copied().collect();
        linear && (0..f.len()).all(|i| f[i] == f[i % run] + rest[i / run]) && refines(&rest)
    })
}

/// The profile of the coordinates that `basis` draws: as far as `c` uses it.
fn profile(c: &Layout<Coord>) -> HTuple<i64> {
    let used: Vec<Vec<usize>> = c
        .leaves()
        .iter()
        .filter(|l| l.0 > 1)
        .flat_map(|l| l.1.terms().iter().map(|t| t.0.path().to_vec()))
        .collect();
    let top = used.iter().map(|p| p[0]).max();
    let modes = (0..top.map_or(0, |t| t + 1)).map(|k| {
        let inner = used.iter().filter(|p| p[0] == k && p.len() > 1).map(|p| p[1]).max();
        match inner {
            None => HTuple::Leaf(0),
            Some(n) => HTuple::Tuple(vec![HTuple::Leaf(0); n + 1]),
        }
    });
    let modes: Vec<HTuple<i64>> = modes.collect();
    if modes.is_empty() { HTuple::Leaf(0) } else { HTuple::Tuple(modes) }
}
