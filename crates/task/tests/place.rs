//! Placement against its meaning and against the paper's rules (figure 10) in random order, over random programs of one buffer: replicas of
//! overlapping pieces and of pieces that depend on counters, in loops that may run no time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tilewright_task::passes::place::equations::{Class, ClassIx, Problem, Stmt};

const ELEMENTS: usize = 4;
const WHOLE: u64 = 0b1111;

/// The iterations of a loop, which placement knows of or not.
type Iterations = BTreeMap<u32, usize>;

struct Generator {
    rng: TestRng,
    classes: Vec<Class>,
    iterations: Iterations,
    accesses: u32,
    loops: u32,
}

impl Generator {
    fn below(&mut self, n: u32) -> u32 {
        self.rng.random_range(0..n)
    }

    fn class(&mut self, class: Class, replica: u32) -> ClassIx {
        // Replicas of one piece in two memories are two classes; the memory is in no table of the problem.
        let _ = replica;
        self.classes.push(class);
        self.classes.len() - 1
    }

    fn body(&mut self, around: &[u32], known: &mut BTreeMap<(u64, Option<u32>, u32), ClassIx>) -> Vec<Stmt> {
        let mut body = Vec::new();
        for _ in 0..1 + self.below(4) {
            if around.len() < 2 && self.below(5) < 2 {
                let id = self.loops;
                self.loops += 1;
                let (runs, iterations) =
                    [(true, 1), (true, 2), (true, 3), (false, 0), (false, 1), (false, 2)]
                        [self.below(6) as usize];
                self.iterations.insert(id, iterations);
                let inner: Vec<u32> = around.iter().copied().chain([id]).collect();
                let inner = self.body(&inner, known);
                body.push(Stmt::Loop { id, runs, body: inner });
                continue;
            }
            // 0: the buffer itself; 1, 2: replicas in two memories.
            let memory = [0, 1, 1, 2][self.below(4) as usize];
            let (atoms, depends) = if memory > 0 && !around.is_empty() && self.below(10) < 3 {
                (WHOLE, Some(around[self.below(around.len() as u32) as usize]))
            } else {
                let pieces = [WHOLE, 0b0011, 0b1100, 0b0110];
                let count = if memory == 0 { 3 } else { 4 };
                (pieces[self.below(count) as usize], None)
            };
            let class = match known.get(&(atoms, depends, memory)) {
                Some(class) => *class,
                None => {
                    let class = Class {
                        home: memory == 0,
                        atoms,
                        exact: depends.is_none(),
                        depends: depends.into_iter().collect(),
                    };
                    let class = self.class(class, memory);
                    known.insert((atoms, depends, memory), class);
                    class
                }
            };
            let reads = self.below(10) < 7;
            let writes = !reads || self.below(2) == 0;
            let id = self.accesses;
            self.accesses += 1;
            body.push(Stmt::Access { id, class, reads, writes, whole: true, floor: 0 });
        }
        body
    }
}

fn problem(seed: u64) -> (Problem, Iterations) {
    let mut bytes = [3u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut generator =
        Generator { rng, classes: Vec::new(), iterations: BTreeMap::new(), accesses: 0, loops: 0 };
    let mut known = BTreeMap::new();
    let body = generator.body(&[], &mut known);
    // Pieces that depend on one counter alike are the same, in whatever memory: each has every element of the other.
    let classes = generator.classes;
    let symbolic = |c: &Class| !c.depends.is_empty();
    let mut holds = Vec::new();
    for (a, x) in classes.iter().enumerate() {
        for (b, y) in classes.iter().enumerate() {
            if a != b && symbolic(x) && x.depends == y.depends {
                holds.push((a, b));
            }
        }
    }
    (Problem { classes, apart: Vec::new(), holds, body, wanted: true }, generator.iterations)
}

fn piece(class: &Class, counters: &BTreeMap<u32, usize>) -> Vec<usize> {
    match class.depends.first() {
        Some(on) => vec![counters[on] % ELEMENTS],
        None => (0..ELEMENTS).filter(|e| class.atoms >> e & 1 == 1).collect(),
    }
}

/// A value: who wrote it, in which iteration, with what in sight.
type Value = (u32, Vec<(u32, usize)>, usize, Vec<u64>);

/// A run: what each access read, what the buffer holds at the end, and how many copies there were.
#[derive(Default)]
struct Run {
    home: Vec<Option<Value>>,
    replicas: BTreeMap<ClassIx, BTreeMap<usize, Option<Value>>>,
    reads: Vec<(u32, Vec<u64>)>,
    copies: usize,
}

fn digest(value: &Option<Value>) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Run {
    fn go(
        &mut self,
        problem: &Problem,
        body: &[Stmt],
        iterations: &Iterations,
        at: &BTreeMap<u32, usize>,
        by_reference: bool,
    ) {
        for stmt in body {
            match stmt {
                Stmt::Loop { id, body, .. } => {
                    for iteration in 0..iterations[id] {
                        let mut at = at.clone();
                        at.insert(*id, iteration);
                        self.go(problem, body, iterations, &at, by_reference);
                    }
                }
                Stmt::In(class) => {
                    let piece = piece(&problem.classes[*class], at);
                    let copied = piece.iter().map(|e| (*e, self.home[*e].clone())).collect();
                    self.replicas.insert(*class, copied);
                    self.copies += 1;
                }
                Stmt::Out(class) => {
                    for e in piece(&problem.classes[*class], at) {
                        self.home[e] = self.replicas.get(class).and_then(|r| r.get(&e)).cloned().flatten();
                    }
                    self.copies += 1;
                }
                Stmt::Access { id, class, reads, writes, .. } => {
                    let row = &problem.classes[*class];
                    let piece = piece(row, at);
                    let direct = by_reference || row.home;
                    let mut seen = Vec::new();
                    if *reads {
                        seen = piece
                            .iter()
                            .map(|e| {
                                let absent = None;
                                digest(if direct {
                                    &self.home[*e]
                                } else {
                                    self.replicas.get(class).and_then(|r| r.get(e)).unwrap_or(&absent)
                                })
                            })
                            .collect();
                        self.reads.push((*id, seen.clone()));
                    }
                    if *writes {
                        for e in piece {
                            let counters = at.iter().map(|(k, v)| (*k, *v)).collect();
                            let value = Some((*id, counters, e, seen.clone()));
                            if direct {
                                self.home[e] = value;
                            } else {
                                self.replicas.entry(*class).or_default().insert(e, value);
                            }
                        }
                    }
                }
            }
        }
    }

    fn of(problem: &Problem, body: &[Stmt], iterations: &Iterations, by_reference: bool) -> Run {
        let initial = (0..ELEMENTS).map(|e| Some((u32::MAX, Vec::new(), e, Vec::new()))).collect();
        let mut run = Run { home: initial, ..Run::default() };
        run.go(problem, body, iterations, &BTreeMap::new(), by_reference);
        run
    }

    fn same(&self, other: &Run) -> bool {
        self.home == other.home && self.reads == other.reads
    }
}

/// A copy in before each access that reads a replica, and out after each that writes one: where the paper begins.
fn every_copy(problem: &Problem, body: &[Stmt]) -> Vec<Stmt> {
    let mut built = Vec::new();
    for stmt in body {
        match stmt {
            Stmt::Loop { id, runs, body } => {
                built.push(Stmt::Loop { id: *id, runs: *runs, body: every_copy(problem, body) });
            }
            Stmt::Access { class, reads, writes, .. } if !problem.classes[*class].home => {
                built.extend(reads.then_some(Stmt::In(*class)));
                built.push(stmt.clone());
                built.extend(writes.then_some(Stmt::Out(*class)));
            }
            stmt => built.push(stmt.clone()),
        }
    }
    built
}

/// The rules of figure 10, in the form that is sound, one at a time.
struct Rules<'a> {
    problem: &'a Problem,
}

enum Rule {
    Delete,
    HoistIn,
    HoistBoth,
}

impl Rules<'_> {
    fn overlap(&self, a: ClassIx, b: ClassIx) -> bool {
        self.problem.classes[a].atoms & self.problem.classes[b].atoms != 0
    }

    fn reads_home(&self, stmt: &Stmt, c: ClassIx) -> bool {
        match stmt {
            Stmt::Access { class, reads, .. } => {
                self.problem.classes[*class].home && *reads && self.overlap(*class, c)
            }
            Stmt::In(class) => self.overlap(*class, c),
            Stmt::Out(_) => false,
            Stmt::Loop { body, .. } => body.iter().any(|stmt| self.reads_home(stmt, c)),
        }
    }

    fn writes_home(&self, stmt: &Stmt, c: ClassIx) -> bool {
        match stmt {
            Stmt::Access { class, writes, .. } => {
                self.problem.classes[*class].home && *writes && self.overlap(*class, c)
            }
            Stmt::Out(class) => self.overlap(*class, c),
            Stmt::In(_) => false,
            Stmt::Loop { body, .. } => body.iter().any(|stmt| self.writes_home(stmt, c)),
        }
    }

    fn writes_replica(&self, stmt: &Stmt, c: ClassIx) -> bool {
        match stmt {
            Stmt::Access { class, writes, .. } => *class == c && *writes,
            Stmt::In(class) => *class == c,
            Stmt::Out(_) => false,
            Stmt::Loop { body, .. } => body.iter().any(|stmt| self.writes_replica(stmt, c)),
        }
    }

    /// The places at which a rule applies: the loops that lead to a body, and the position there.
    fn places(&self, body: &[Stmt], path: &mut Vec<usize>, found: &mut Vec<(Vec<usize>, Rule)>) {
        for (i, stmt) in body.iter().enumerate() {
            path.push(i);
            match stmt {
                Stmt::In(c) => {
                    // 10a and 10c: the replica has just been copied, one way or the other.
                    for before in body[..i].iter().rev() {
                        if *before == Stmt::In(*c) || *before == Stmt::Out(*c) {
                            found.push((path.clone(), Rule::Delete));
                            break;
                        }
                        if self.writes_home(before, *c) || self.writes_replica(before, *c) {
                            break;
                        }
                    }
                }
                Stmt::Out(c) => {
                    // 10a: overwritten before anyone reads it.
                    for after in &body[i + 1..] {
                        if *after == Stmt::Out(*c) {
                            found.push((path.clone(), Rule::Delete));
                            break;
                        }
                        if self.reads_home(after, *c) || self.writes_home(after, *c) {
                            break;
                        }
                    }
                }
                Stmt::Loop { id, body: inner, .. } => {
                    // 10b.
                    if let Some((Stmt::In(c), rest)) = inner.split_first()
                        && !self.problem.classes[*c].depends.contains(id)
                    {
                        match rest.split_last() {
                            Some((last, between)) if *last == Stmt::Out(*c) => {
                                let copies = |s: &Stmt| *s == Stmt::In(*c) || *s == Stmt::Out(*c);
                                let clean = |s: &Stmt| {
                                    !self.reads_home(s, *c) && !self.writes_home(s, *c) && !copies(s)
                                };
                                if between.iter().all(clean) {
                                    found.push((path.clone(), Rule::HoistBoth));
                                }
                            }
                            _ => {
                                let clean =
                                    |s: &Stmt| !self.writes_home(s, *c) && !self.writes_replica(s, *c);
                                if rest.iter().all(clean) {
                                    found.push((path.clone(), Rule::HoistIn));
                                }
                            }
                        }
                    }
                    self.places(inner, path, found);
                }
                Stmt::Access { .. } => {}
            }
            path.pop();
        }
    }

    fn apply(body: &mut Vec<Stmt>, path: &[usize], rule: &Rule) {
        let (at, rest) = path.split_first().unwrap();
        if !rest.is_empty() {
            if let Stmt::Loop { body, .. } = &mut body[*at] {
                Rules::apply(body, rest, rule);
            }
            return;
        }
        match (rule, &mut body[*at]) {
            (Rule::HoistIn, Stmt::Loop { body: inner, .. }) => {
                let copy = inner.remove(0);
                body.insert(*at, copy);
            }
            (Rule::HoistBoth, Stmt::Loop { body: inner, .. }) => {
                let (copy_in, copy_out) = (inner.remove(0), inner.pop().unwrap());
                body.insert(at + 1, copy_out);
                body.insert(*at, copy_in);
            }
            _ => {
                body.remove(*at);
            }
        }
    }

    fn to_the_end(&self, body: &[Stmt], rng: &mut TestRng) -> Vec<Stmt> {
        let mut body = every_copy(self.problem, body);
        loop {
            let mut found = Vec::new();
            self.places(&body, &mut Vec::new(), &mut found);
            if found.is_empty() {
                return body;
            }
            let (path, rule) = &found[rng.random_range(0..found.len())];
            Rules::apply(&mut body, path, rule);
        }
    }
}

fn cases() -> u64 {
    if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 20_000 } else { 600 }
}

#[test]
fn placement_is_sound_and_no_worse_than_the_rules_in_any_order() {
    let (mut ours, mut best, mut all) = (0, 0, 0);
    for seed in 0..cases() {
        let (problem, iterations) = problem(seed);
        let placed = problem.solve();
        let means = Run::of(&problem, &problem.body, &iterations, true);
        assert!(
            Run::of(&problem, &placed, &iterations, false).same(&means),
            "seed {seed}: {problem:?}\n{placed:?}"
        );
        // Copies are counted where every loop runs: before one that does not, one that was hoisted is too many.
        let once: Iterations = iterations.iter().map(|(id, n)| (*id, (*n).max(1))).collect();
        let means = Run::of(&problem, &problem.body, &once, true);
        let run = Run::of(&problem, &placed, &once, false);
        assert!(run.same(&means), "seed {seed}: {problem:?}\n{placed:?}");
        let rules = Rules { problem: &problem };
        let mut bytes = [5u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let counts = (0..6).map(|_| {
            let rewritten = rules.to_the_end(&problem.body, &mut rng);
            let run = Run::of(&problem, &rewritten, &once, false);
            assert!(run.same(&means), "the rules at seed {seed}: {rewritten:?}");
            run.copies
        });
        let least = counts.min().unwrap();
        assert!(
            run.copies <= least,
            "seed {seed}: {} copies, {least} by rules: {problem:?}\n{placed:?}",
            run.copies
        );
        ours += run.copies;
        best += least;
        all += Run::of(&problem, &every_copy(&problem, &problem.body), &once, false).copies;
    }
    // Fewer than the rules in all, which see neither other bodies nor overlapping pieces.
    assert!(ours < best && best < all, "{ours} {best} {all}");
}

#[test]
fn placement_does_not_depend_on_the_order_of_classes() {
    for seed in 0..cases() / 4 {
        let (problem, _) = problem(seed);
        let n = problem.classes.len();
        let reversed = |c: ClassIx| n - 1 - c;
        fn renamed(body: &[Stmt], to: &impl Fn(ClassIx) -> ClassIx) -> Vec<Stmt> {
            let stmt = |stmt: &Stmt| match stmt {
                Stmt::Access { id, class, reads, writes, whole, floor } => Stmt::Access {
                    id: *id,
                    class: to(*class),
                    reads: *reads,
                    writes: *writes,
                    whole: *whole,
                    floor: *floor,
                },
                Stmt::Loop { id, runs, body } => Stmt::Loop { id: *id, runs: *runs, body: renamed(body, to) },
                Stmt::In(class) => Stmt::In(to(*class)),
                Stmt::Out(class) => Stmt::Out(to(*class)),
            };
            body.iter().map(stmt).collect()
        }
        let other = Problem {
            classes: problem.classes.iter().rev().cloned().collect(),
            apart: Vec::new(),
            holds: problem.holds.iter().map(|(a, b)| (reversed(*a), reversed(*b))).collect(),
            body: renamed(&problem.body, &reversed),
            wanted: true,
        };
        let copies = |body: &[Stmt]| {
            fn list(body: &[Stmt], out: &mut Vec<Stmt>) {
                // Copies at one place have no order: they are sorted between other statements.
                let mut at = out.len();
                for stmt in body {
                    match stmt {
                        Stmt::Loop { id, runs, body } => {
                            out.push(Stmt::Loop { id: *id, runs: *runs, body: Vec::new() });
                            list(body, out);
                            out.push(Stmt::Loop { id: *id, runs: *runs, body: Vec::new() });
                            at = out.len();
                        }
                        Stmt::Access { .. } => {
                            out.push(stmt.clone());
                            at = out.len();
                        }
                        copy => {
                            out.push(copy.clone());
                            out[at..].sort_by_key(|copy| format!("{copy:?}"));
                        }
                    }
                }
            }
            let mut out = Vec::new();
            list(body, &mut out);
            out
        };
        assert_eq!(copies(&problem.solve()), copies(&renamed(&other.solve(), &reversed)), "seed {seed}");
    }
}
