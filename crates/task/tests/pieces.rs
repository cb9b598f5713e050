//! Partitions and pieces against all coordinates of small tensors.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestRng;
use tilewright_layout::{Layout, complement};
use tilewright_machine::Processor;
use tilewright_task::partition::{Cut, Extent, Instruction, Partition};
use tilewright_task::piece::{Affine, Cover, Guard, Meeting, Piece, Relation, Var, Vars};
use tilewright_task::program::MmaOperand;

fn known(extents: &[i64]) -> Vec<Extent> {
    extents.iter().copied().map(Some).collect()
}

fn below(rng: &mut TestRng, n: i64) -> i64 {
    rng.random_range(0..n)
}

/// A random partition of a tensor of these extents.
fn partition(rng: &mut TestRng, extents: &[i64]) -> Partition {
    let size: i64 = extents.iter().product();
    if below(rng, 3) == 0 && size > 1 {
        // Threads that count some run of the elements, and values that count the others.
        let divisors: Vec<i64> = (1..=size).filter(|d| size % d == 0).collect();
        let stride = divisors[below(rng, divisors.len() as i64) as usize];
        let counts: Vec<i64> = (1..=size / stride).filter(|d| size / stride % d == 0).collect();
        let threads =
            Layout::new(counts[below(rng, counts.len() as i64) as usize].into(), stride.into()).unwrap();
        let values = complement(&threads, size).unwrap();
        let layout = Layout::concat(&[threads, values]).unwrap();
        if let Ok(partition) = Partition::tv(&known(extents), &layout) {
            return partition;
        }
    }
    let cuts: Vec<Cut> = extents
        .iter()
        .enumerate()
        .map(|(d, extent)| match below(rng, 4) {
            0 => Cut::Whole,
            1 if d > 0 => Cut::Index,
            _ => Cut::Block(1 + below(rng, extent + 1)),
        })
        .collect();
    Partition::blocks(&known(extents), &cuts).unwrap()
}

/// A random piece with colours over counters, and its conditions.
fn piece(rng: &mut TestRng, extents: &[i64], vars: &mut Vars, counters: &[Var]) -> Piece {
    let mut piece = Piece::whole(&known(extents));
    for _ in 0..below(rng, 5) {
        let shape: Vec<i64> = piece.shape().iter().map(|e| e.unwrap()).collect();
        if shape.is_empty() {
            break;
        }
        let partition = partition(rng, &shape);
        let colours: Vec<Affine> = partition
            .colours()
            .iter()
            .map(|extent| {
                let extent = extent.unwrap();
                let fits: Vec<Var> =
                    counters.iter().copied().filter(|v| vars.row(*v).most.unwrap() < extent).collect();
                if !fits.is_empty() && below(rng, 3) > 0 {
                    Affine::var(fits[below(rng, fits.len() as i64) as usize])
                } else {
                    Affine::constant(below(rng, extent))
                }
            })
            .collect();
        piece = piece.part(&partition, &colours, vars).unwrap();
    }
    if below(rng, 6) == 0 {
        let counter = Affine::var(counters[below(rng, counters.len() as i64) as usize]);
        piece = piece.when([Guard::Zero(counter.plus(&Affine::constant(1), -below(rng, 2)))]);
    }
    piece
}

fn value(form: &Affine, at: &BTreeMap<Var, i64>) -> i64 {
    use tilewright_task::piece::Term;
    form.terms().iter().fold(form.rest(), |sum, (term, factor)| {
        sum + factor
            * match term {
                Term::Var(var) => at[var],
                Term::Digit { of, below, extent } => at[of] / below % extent,
            }
    })
}

/// The elements of a piece, through its partitions one by one.
fn elements(piece: &Piece, at: &BTreeMap<Var, i64>) -> BTreeSet<Vec<i64>> {
    let holds = piece.guards().iter().all(|guard| match guard {
        Guard::Zero(form) => value(form, at) == 0,
        Guard::AtLeastZero(form) => value(form, at) >= 0,
    });
    if !holds {
        return BTreeSet::new();
    }
    let mut points = vec![Vec::new()];
    for extent in piece.shape() {
        points = points
            .into_iter()
            .flat_map(|point: Vec<i64>| {
                (0..extent.unwrap()).map(move |c| point.iter().copied().chain([c]).collect())
            })
            .collect();
    }
    for step in piece.steps().iter().rev() {
        let colours: Vec<i64> = step.colours.iter().map(|c| value(c, at)).collect();
        points = points.iter().map(|point| step.partition.coordinate(&colours, point).unwrap()).collect();
        // Beyond the edge of a tensor on the way there is nothing.
        points.retain(|at| step.partition.contains(at));
    }
    points.into_iter().collect()
}

fn assignments(vars: &Vars, counters: &[Var]) -> Vec<BTreeMap<Var, i64>> {
    counters.iter().fold(vec![BTreeMap::new()], |list, var| {
        let most = vars.row(*var).most.unwrap();
        let extended = |at: BTreeMap<Var, i64>| {
            (0..=most).map(move |c| at.iter().map(|(k, v)| (*k, *v)).chain([(*var, c)]).collect())
        };
        list.into_iter().flat_map(extended).collect()
    })
}

fn cases() -> u32 {
    if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 10_000 } else { 400 }
}

#[test]
fn pieces_answer_as_their_elements_do() {
    let (mut apart, mut met, mut open) = (0, 0, 0);
    let (mut within, mut missed, mut unsure) = (0, 0, 0);
    for seed in 0..u64::from(cases()) {
        let mut rng = TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &{
            let mut bytes = [7u8; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            bytes
        });
        let mut vars = Vars::default();
        let counters: Vec<Var> =
            (0..2).map(|k| vars.fresh(&format!("c{k}"), Some(0), Some(1 + below(&mut rng, 3)))).collect();
        let rank = 1 + below(&mut rng, 3);
        let extents: Vec<i64> = (0..rank).map(|_| [2, 3, 4, 6, 8][below(&mut rng, 5) as usize]).collect();
        let p = piece(&mut rng, &extents, &mut vars, &counters);
        let q = piece(&mut rng, &extents, &mut vars, &counters);
        let list = assignments(&vars, &counters);
        let placed = p.place().is_some() && q.place().is_some();

        // The places say the coordinates that the partitions do.
        if p.vars().is_empty()
            && let Some(found) = p.elements()
        {
            assert_eq!(found, elements(&p, &list[0]), "seed {seed}: {p:?}");
        }

        // Both in one iteration, a later iteration, and any.
        for relation in [Relation::Same, Relation::Later, Relation::By(1), Relation::Any] {
            let related = |v: Var, a: &BTreeMap<Var, i64>, b: &BTreeMap<Var, i64>| {
                let relation = if v == counters[0] { relation } else { Relation::Same };
                match relation {
                    Relation::Same => a[&v] == b[&v],
                    Relation::By(by) => b[&v] == a[&v] + by,
                    Relation::Later => b[&v] > a[&v],
                    Relation::Any => true,
                }
            };
            let truth = list.iter().any(|a| {
                list.iter().any(|b| {
                    counters.iter().all(|v| related(*v, a, b))
                        && !elements(&p, a).is_disjoint(&elements(&q, b))
                })
            });
            match p.meets(&q, &vars, |v| if v == counters[0] { relation } else { Relation::Same }) {
                Meeting::Apart => {
                    assert!(!truth, "seed {seed} {relation:?}: {p:?} {q:?}");
                    apart += 1;
                }
                Meeting::At(witness) => {
                    let mut sides = [&witness.first, &witness.second]
                        .map(|side| side.iter().copied().collect::<BTreeMap<_, _>>());
                    // Counters that a piece does not name are free, as far as the relation says.
                    let fit = |side: &BTreeMap<Var, i64>, at: &BTreeMap<Var, i64>| {
                        side.iter().all(|(var, c)| at[var] == *c)
                    };
                    let pair = list.iter().flat_map(|a| list.iter().map(move |b| (a, b))).find(|(a, b)| {
                        fit(&sides[0], a) && fit(&sides[1], b) && counters.iter().all(|v| related(*v, a, b))
                    });
                    let (a, b) = pair.unwrap_or_else(|| panic!("seed {seed} {relation:?}: {witness:?}"));
                    assert!(elements(&p, a).contains(&witness.element), "seed {seed}: {witness:?} {p:?}");
                    assert!(elements(&q, b).contains(&witness.element), "seed {seed}: {witness:?} {q:?}");
                    sides[0].clear();
                    met += 1;
                }
                Meeting::Perhaps => open += u32::from(placed),
            }
        }

        let truth = list.iter().all(|at| elements(&p, at).is_subset(&elements(&q, at)));
        match p.contained(&q, &vars) {
            Cover::Yes => {
                assert!(truth, "seed {seed}: {p:?} {q:?}");
                within += 1;
            }
            Cover::Misses(element) => {
                let lacks = |at| elements(&p, at).contains(&element) && !elements(&q, at).contains(&element);
                assert!(list.iter().any(lacks), "seed {seed}: {element:?} {p:?} {q:?}");
                missed += 1;
            }
            Cover::Perhaps => unsure += u32::from(placed && p.vars().is_empty() && q.vars().is_empty()),
        }
        if p.same(&q) {
            for at in &list {
                assert_eq!(elements(&p, at), elements(&q, at), "seed {seed}: {p:?} {q:?}");
            }
        }

        let union = |c: &BTreeMap<Var, i64>| -> BTreeSet<Vec<i64>> {
            let alike = list.iter().filter(|at| at[&counters[1]] == c[&counters[1]]);
            alike.flat_map(|at| elements(&p, at)).collect()
        };
        let whole = Piece::whole(&known(&extents));
        let all = elements(&whole, &list[0]);
        match p.covers(&whole, &vars, &counters[..1]) {
            Cover::Yes => assert!(list.iter().all(|c| union(c) == all), "seed {seed}: {p:?}"),
            Cover::Misses(element) => {
                assert!(list.iter().any(|c| !union(c).contains(&element)), "seed {seed}")
            }
            Cover::Perhaps => {}
        }
    }
    // Pieces whose partitions compose are decided: all of what does not depend on counters, and nearly all of the rest.
    assert!(open * 50 < apart + met, "{apart} {met} {open}");
    assert!(within > 30 && missed > 30 && unsure == 0, "{within} {missed} {unsure}");
}

#[test]
fn partitions_are_disjoint_and_complete_as_their_elements_are() {
    let strategy = (proptest::collection::vec(1i64..9, 1..4), any::<[u8; 32]>());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases()));
    let outcome = runner.run(&strategy, |(extents, seed)| {
        let mut rng = TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &seed);
        let p = partition(&mut rng, &extents);
        let mut seen: BTreeMap<Vec<i64>, u32> = BTreeMap::new();
        let counts = |modes: Vec<Extent>| -> Vec<Vec<i64>> {
            modes.iter().fold(vec![Vec::new()], |list: Vec<Vec<i64>>, n| {
                let more = |c: Vec<i64>| (0..n.unwrap()).map(move |k| c.iter().copied().chain([k]).collect());
                list.into_iter().flat_map(more).collect()
            })
        };
        for colour in counts(p.colours()) {
            for point in counts(p.shape()) {
                let at = p.coordinate(&colour, &point).unwrap();
                if p.contains(&at) {
                    *seen.entry(at).or_default() += 1;
                }
            }
        }
        prop_assert_eq!(p.is_complete(), seen.len() as i64 == extents.iter().product::<i64>(), "{}", p);
        prop_assert_eq!(p.is_disjoint(), seen.values().all(|n| *n == 1), "{}", p);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn threads_hold_what_the_instructions_say() {
    // Every warp's thread's elements of the accumulator, cut twice, are those of the row.
    for (name, tile) in [("wgmma_64x256x16", [64, 256]), ("wgmma_64x8x16", [64, 8])] {
        let instruction = Instruction::named(name).unwrap();
        let n = tile[1];
        let row = tilewright_machine::wgmma_rows().iter().find(|r| r.n == n && r.k == 16).unwrap();
        let mut vars = Vars::default();
        let whole = Piece::whole(&known(&tile));
        let warps = Partition::mma(&known(&tile), &instruction, Processor::Warp, MmaOperand::C).unwrap();
        let threads =
            Partition::mma(&known(&[16, n]), &instruction, Processor::Thread, MmaOperand::C).unwrap();
        for thread in 0..128 {
            let warp = whole.part(&warps, &[Affine::constant(thread / 32)], &mut vars).unwrap();
            let lane = warp.part(&threads, &[Affine::constant(thread % 32)], &mut vars).unwrap();
            let held: BTreeSet<Vec<i64>> =
                (0..n / 2).map(|v| row.c_tv.eval(thread + 128 * v)).map(|x| vec![x % 64, x / 64]).collect();
            assert_eq!(elements(&lane, &BTreeMap::new()), held, "{name} thread {thread}");
        }
    }
    // A warp's instruction is shared out among its threads, and repeats over larger tensors.
    let mma = Instruction::named("mma_16x8x16").unwrap();
    for (operand, extents) in
        [(MmaOperand::A, [32, 32]), (MmaOperand::B, [24, 32]), (MmaOperand::C, [32, 24])]
    {
        let p = Partition::mma(&known(&extents), &mma, Processor::Thread, operand).unwrap();
        assert!(p.is_complete());
        assert_eq!(p.is_disjoint(), operand == MmaOperand::C);
    }
    // Iterations over a partition meet where it is not disjoint.
    let mut vars = Vars::default();
    let t = vars.fresh("t", Some(0), Some(31));
    for (operand, apart) in [(MmaOperand::A, false), (MmaOperand::B, false), (MmaOperand::C, true)] {
        let p = Partition::mma(&known(&[16, 16]), &mma, Processor::Thread, operand).unwrap();
        let piece = Piece::whole(&known(&[16, 16])).part(&p, &[Affine::var(t)], &mut vars).unwrap();
        let meeting = piece.meets(&piece, &vars, |_| Relation::Later);
        assert_eq!(meeting == Meeting::Apart, apart, "{operand:?} {meeting:?}");
        assert_eq!(piece.covers(&Piece::whole(&known(&[16, 16])), &vars, &[t]), Cover::Yes);
    }
}

#[test]
fn mistakes_are_named() {
    let wgmma = Instruction::named("wgmma_64x256x16").unwrap();
    let says = |result: Result<Partition, tilewright_task::partition::PartitionError>| {
        result.map(|p| p.to_string()).unwrap_err().to_string()
    };
    assert_eq!(Instruction::named("wgmma_64x260x16"), None);
    assert_eq!(
        says(Partition::mma(&known(&[64, 72]), &wgmma, Processor::Warp, MmaOperand::A)),
        "mode 1 has 72 coordinates, which is not a multiple of 16, which wgmma_64x256x16 cuts it into"
    );
    let mma = Instruction::named("mma_16x8x16").unwrap();
    assert!(
        says(Partition::mma(&known(&[16, 8]), &mma, Processor::Warp, MmaOperand::C))
            .starts_with("`mma` does not share mma_16x8x16 out among processors of the level warp")
    );
    assert_eq!(
        says(Partition::tv(&known(&[4, 4]), &"(4,8):(4,1)".parse().unwrap())),
        "(4,8):(4,1) leads to element 19 of a tensor of 16"
    );
    assert_eq!(
        says(Partition::tv(&known(&[16]), &"16:1".parse().unwrap())),
        "16:1 is not (thread, value) → coordinate: it has 1 modes"
    );
    let blocks = Partition::blocks(&known(&[100]), &[Cut::Block(32)]).unwrap();
    assert_eq!(
        blocks.coordinate(&[4], &[0]).unwrap_err().to_string(),
        "piece [4] of a partition into 4 pieces"
    );
    assert_eq!(
        says(Partition::blocks(&known(&[4]), &[Cut::Block(0)])),
        "a block has 0 coordinates along mode 0; it has at least 1"
    );
}

#[test]
fn symbolic_colours_and_sizes_are_decided_by_structure() {
    let mut vars = Vars::default();
    let m: Extent = None;
    let a = Piece::whole(&[m, None]);
    let rows = Partition::blocks(&[m, None], &[Cut::Block(128), Cut::Whole]).unwrap();
    let i = vars.fresh("i", Some(0), None);
    let k = vars.fresh("kk", Some(0), None);
    let panel = a.part(&rows, &[Affine::var(i), Affine::constant(0)], &mut vars).unwrap();
    let steps = Partition::blocks(&[Some(128), None], &[Cut::Block(128), Cut::Block(64)]).unwrap();
    let tile = panel.part(&steps, &[Affine::constant(0), Affine::var(k)], &mut vars).unwrap();
    assert_eq!(tile.shape(), [Some(128), Some(64)]);
    // Tiles of other rows or other steps are apart, whatever the sizes are.
    assert_eq!(
        tile.meets(&tile, &vars, |v| if v == i { Relation::Later } else { Relation::Any }),
        Meeting::Apart
    );
    assert_eq!(
        tile.meets(&tile, &vars, |v| if v == k { Relation::Later } else { Relation::Same }),
        Meeting::Apart
    );
    assert!(matches!(tile.meets(&tile, &vars, |_| Relation::Same), Meeting::At(_)));
    // The tile of the step before is met one step later.
    let before = panel
        .part(&steps, &[Affine::constant(0), Affine::var(k).plus(&Affine::constant(1), -1)], &mut vars)
        .unwrap();
    let by = |by| move |v| if v == k { Relation::By(by) } else { Relation::Same };
    assert!(matches!(tile.meets(&before, &vars, by(1)), Meeting::At(_)));
    assert_eq!(tile.meets(&before, &vars, by(0)), Meeting::Apart);
    assert_eq!(tile.meets(&before, &vars, by(2)), Meeting::Apart);
    assert_eq!(tile.contained(&panel, &vars), Cover::Yes);
    assert_eq!(panel.contained(&a, &vars), Cover::Yes);
    assert!(rows.is_complete() && rows.is_disjoint());
    // A guard that excludes the others makes writes of one part apart: yp[i] when j == 0.
    let j = vars.fresh("j", Some(0), None);
    let y = Piece::whole(&[m]);
    let parts = Partition::blocks(&[m], &[Cut::Block(128)]).unwrap();
    let yp = y.part(&parts, &[Affine::var(i)], &mut vars).unwrap();
    let later = |v| if v == j { Relation::Later } else { Relation::Same };
    assert!(matches!(yp.meets(&yp, &vars, later), Meeting::At(_)));
    let once = yp.when([Guard::Zero(Affine::var(j))]);
    assert_eq!(once.meets(&once, &vars, later), Meeting::Apart);
}
