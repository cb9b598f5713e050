//! Graphs of random programs under random mappings: what statements read and what parameters hold at the end is the same by reference, after
//! placement, after retiming, and in any order that the edges allow.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tilewright_machine::{Feature, Memory};
use tilewright_task::graph::{Access, Graph, Group, Item, NodeId, Op, ReplicaId, verify_graph};
use tilewright_task::instantiate::instantiate;
use tilewright_task::parse;
use tilewright_task::passes::depend::depend;
use tilewright_task::passes::fit::fit;
use tilewright_task::passes::join::join;
use tilewright_task::passes::place::place;
use tilewright_task::passes::retime::retime;
use tilewright_task::passes::rings::rings;
use tilewright_task::passes::schedule::schedule;
use tilewright_task::passes::synchronise::synchronise;
use tilewright_task::passes::with_rings;
use tilewright_task::piece::{Affine, Guard, Piece, Term, Var, Vars};

const N: i64 = 10;

struct Author {
    rng: TestRng,
    labels: usize,
    /// The labels of launches in loops.
    looped: Vec<String>,
    rows: Vec<String>,
    callees: Vec<String>,
}

impl Author {
    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Launches and loops of a body.
    fn body(&mut self, counters: &[String], depth: usize) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.below(3) {
            if depth < 2 && self.below(3) == 0 {
                let counter = format!("at{}", self.labels + counters.len());
                let iterations = self.pick(&["1", "2", "3", "ceil_div(N, 4)", "N - 10", "N - 8"]);
                let inner: Vec<String> = counters.iter().cloned().chain([counter.clone()]).collect();
                let inner = self.body(&inner, depth + 1);
                text += &format!("for {counter} in srange({iterations}) {{\n{inner}}}\n");
                continue;
            }
            let (task, label) = (self.pick(&["step", "set"]), format!("l{}", self.labels));
            self.labels += 1;
            if !counters.is_empty() {
                self.looped.push(label.clone());
            }
            let grain = self.pick(&["", "4", "4", "2"]);
            let mut objects = vec!["x", "z", "t", "w"];
            let first = objects.remove(self.below(4));
            let second = objects[self.below(3)];
            let mut piece = |object: &str| {
                if grain.is_empty() {
                    return object.to_string();
                }
                let colours = ["0", "1", "2"];
                let colour = match counters.len() {
                    0 => colours[self.rng.random_range(0..3)].to_string(),
                    n => match self.rng.random_range(0..3) {
                        0 => colours[self.rng.random_range(0..3)].to_string(),
                        _ => counters[self.rng.random_range(0..n)].clone(),
                    },
                };
                format!("{object}{grain}[{colour}]")
            };
            let (first, second) = (piece(first), piece(second));
            text += &format!("{label}: launch {task}({first}, {second})\n");
            let memories = ["global", "shared", "shared", "register", "none"];
            let (a, b) = (self.pick(&memories), self.pick(&memories));
            self.rows.push(format!("r{label} = {task}.all on block ({a}, {b})"));
            self.callees.push(format!("{label} = r{label}"));
        }
        text
    }
}

/// A mapping: the architecture, if it has some launches in loops late, and the bytes of shared memory that it allows.
#[derive(Clone, Copy)]
struct Wanted {
    arch: &'static str,
    late: bool,
    shared: Option<i64>,
}

const BY_REFERENCE: Wanted = Wanted { arch: "sm_90a", late: false, shared: None };
const LATE: Wanted = Wanted { late: true, ..BY_REFERENCE };

/// A program with a mapping.
fn program(seed: u64, Wanted { arch, late, shared }: Wanted) -> String {
    let mut bytes = [11u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut author = Author { rng, labels: 0, looped: Vec::new(), rows: Vec::new(), callees: Vec::new() };
    let body = author.body(&[], 0) + &author.body(&[], 0);
    let memories = ["register", "shared"];
    let (t, w) = (author.pick(&memories), author.pick(&memories));
    let mut moved = BTreeSet::new();
    while late && !author.looped.is_empty() && (moved.is_empty() || author.below(3) == 0) {
        let at = author.below(author.looped.len());
        moved.insert(author.looped[at].clone());
    }
    let moved: String = moved.iter().map(|label| format!(" late({label})")).collect();
    let moved = if late { format!("{moved} pipeline(2)") } else { moved };
    let bound = shared.map_or(String::new(), |bytes| format!(" pipeline(1..2) shared <= {bytes}"));
    let head = if author.below(2) == 0 || shared.is_some() { "const N = 10" } else { "size n = 10" };
    let parts: String = ["x", "z", "t", "w"]
        .iter()
        .map(|o| format!("{o}4 = blocks({o}, [4])\n{o}2 = blocks({o}, [2])\n"))
        .collect();
    format!(
        "{head}
task f(x: read_write f32[N], z: read_write f32[N]) {{
inner host {{
for b in prange(1) {{ launch f(x, z) }}
}}
inner body {{
t = tensor(f32, [N])
w = tensor(f32, [N])
{parts}launch set(t, x)
launch set(w, z)
{body}}}
}}
task step(y: read_write f32[P], x: read f32[P]) {{ leaf all {{ y = y + x }} }}
task set(y: write f32[P], x: read f32[P]) {{ leaf all {{ y = x }} }}
mapping m for {arch} {{
entry f.host on host (global, global)
f.body on block (global, global) local(t = {t}) local(w = {w}){moved}{bound} -> first, {}
first = set.all on block (none, none)
{}
}}
",
        author.callees.join(", "),
        author.rows.join("\n")
    )
}

fn value(vars: &Vars, form: &Affine, at: &BTreeMap<Var, i64>) -> i64 {
    form.terms().iter().fold(form.rest(), |sum, (term, factor)| {
        let of = |var: &Var| match (at.get(var), &vars.row(*var).definition) {
            (Some(value), _) => *value,
            (None, Some((op, a, b))) => op.apply(value(vars, a, at), value(vars, b, at)).unwrap(),
            // A size.
            (None, None) => N,
        };
        sum + factor
            * match term {
                Term::Var(var) => of(var),
                Term::Digit { of: var, below, extent } => of(var) / below % extent,
            }
    })
}

/// The elements of a piece of a tensor of `N`, through its partitions one by one.
fn elements(vars: &Vars, piece: &Piece, at: &BTreeMap<Var, i64>) -> Vec<i64> {
    assert!(piece.guards().iter().all(|guard| matches!(guard, Guard::Zero(_))));
    let extent = piece.shape()[0].unwrap_or(N);
    let mut points: Vec<i64> = (0..extent).collect();
    let mut extents = vec![N];
    for step in piece.steps() {
        extents.push(step.partition.shape()[0].unwrap_or(N));
    }
    for (step, extent) in piece.steps().iter().zip(extents).rev() {
        let colours: Vec<i64> = step.colours.iter().map(|c| value(vars, c, at)).collect();
        // A colour beyond the last names no elements.
        let coordinate = |point: i64| step.partition.coordinate(&colours, &[point]).ok().map(|at| at[0]);
        points = points.into_iter().filter_map(coordinate).filter(|c| (0..extent).contains(c)).collect();
    }
    points
}

#[derive(Default)]
struct Run {
    /// Contents of places, by object, place and stage.
    stores: BTreeMap<(u32, Option<u32>, i64), BTreeMap<i64, u64>>,
    /// The iterations so far, by the loop that takes stages in turn.
    iterations: BTreeMap<u32, i64>,
    /// A digest of what each statement read, by node and iteration.
    reads: BTreeMap<(u32, Vec<i64>), u64>,
    copies: usize,
    /// Copies that have been issued and not waited for, if that is asked for.
    flight: Option<Vec<Flight>>,
    /// All of the loops around runs in this iteration.
    steady: bool,
    /// Copies in flight that nodes were let run beside.
    beside: usize,
}

/// An element of a place in a stage.
type Element = ((u32, Option<u32>, i64), i64);

/// A copy that goes on.
struct Flight {
    group: Group,
    reads: BTreeSet<Element>,
    writes: BTreeSet<Element>,
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Run {
    fn node(&mut self, graph: &Graph, id: NodeId, at: &BTreeMap<Var, i64>) {
        let vars = &graph.tree.vars;
        let node = graph.node(id);
        let stages: Vec<i64> = node.accesses.iter().map(|access| self.stage(graph, id, access, at)).collect();
        let stage = |access: &Access| {
            let of = node.accesses.iter().position(|other| std::ptr::eq(other, access));
            stages[of.unwrap()]
        };
        let key = |access: &Access| (access.object.0, access.replica.map(|replica| replica.0), stage(access));
        if let Some(mut flight) = self.flight.take() {
            for wait in &node.waits {
                let left = if self.steady { wait.left } else { 0 };
                let issued = flight.iter().filter(|copy| copy.group == wait.group).count();
                let mut finished = issued.saturating_sub(left as usize);
                flight.retain(|copy| {
                    let finishes = copy.group == wait.group && finished > 0;
                    finished -= usize::from(finishes);
                    !finishes
                });
            }
            let of = |writes: bool| {
                let mut out: BTreeSet<Element> = BTreeSet::new();
                for access in node.accesses.iter().filter(|a| if writes { a.writes } else { a.reads }) {
                    out.extend(elements(vars, &access.piece, at).into_iter().map(|e| (key(access), e)));
                }
                out
            };
            let (reads, writes) = (of(false), of(true));
            for copy in &flight {
                let apart = copy.writes.is_disjoint(&reads)
                    && copy.writes.is_disjoint(&writes)
                    && copy.reads.is_disjoint(&writes);
                assert!(apart, "node {} does not wait for a copy\n{}", id.0, graph.text());
                let places = copy.reads.union(&copy.writes).filter_map(|((_, place, _), _)| *place);
                let writes = writes.iter().filter_map(|((_, place, _), _)| *place);
                let same = places.flat_map(|a| others(graph, a)).any(|a| writes.clone().any(|b| a == b));
                assert!(!same, "node {} does not wait for a copy in the same memory\n{}", id.0, graph.text());
            }
            self.beside += flight.len();
            if let Op::Copy(from, to) = node.op {
                let group = match (graph.replica(from).memory, graph.replica(to).memory) {
                    (Some(Memory::Global), Some(Memory::Shared)) => Some(Group::CopiesIn),
                    (Some(Memory::Shared), Some(Memory::Global)) => {
                        graph.tree.arch.has(Feature::Tma).then_some(Group::CopiesOut)
                    }
                    _ => None,
                };
                flight.extend(group.map(|group| Flight { group, reads, writes }));
            }
            self.flight = Some(flight);
        }
        // What is written is gone from where it was.
        for access in node.accesses.iter().filter(|access| access.writes) {
            for gone in access.replica.into_iter().flat_map(|place| others(graph, place.0)) {
                self.stores.retain(|(_, place, _), _| *place != Some(gone));
            }
        }
        if let Op::Copy(..) = &node.op {
            self.copies += 1;
            let [from, to] = &node.accesses[..] else { panic!("a copy has two sides") };
            let store = self.stores.entry(key(from)).or_default().clone();
            for element in elements(vars, &from.piece, at) {
                let value = store.get(&element).copied().unwrap_or(0);
                self.stores.entry(key(to)).or_default().insert(element, value);
            }
            return;
        }
        let iterations: Vec<i64> = at.values().copied().collect();
        let mut seen = Vec::new();
        for access in node.accesses.iter().filter(|access| access.reads) {
            let store = self.stores.entry(key(access)).or_default();
            let piece = elements(vars, &access.piece, at);
            seen.extend(piece.iter().map(|element| (*element, store.get(element).copied().unwrap_or(0))));
        }
        let seen = hash(&seen);
        self.reads.insert((id.0, iterations.clone()), seen);
        for access in node.accesses.iter().filter(|access| access.writes) {
            for element in elements(vars, &access.piece, at) {
                let value = hash((id.0, &iterations, element, seen));
                self.stores.entry(key(access)).or_default().insert(element, value);
            }
        }
    }

    /// The stage that an access uses. A loop's first iteration takes the stage behind the one that the last iteration of an earlier run took.
    fn stage(&self, graph: &Graph, id: NodeId, access: &Access, at: &BTreeMap<Var, i64>) -> i64 {
        let Some(stages) = access.replica.and_then(|replica| graph.replica(replica).stages) else { return 0 };
        let so_far = self.iterations.get(&stages.head.0).copied().unwrap_or(0);
        let inside = graph.tree.around(graph.node(id).body).contains(&stages.head);
        let row = graph.tree.loop_(stages.head);
        let version = match inside {
            true => {
                so_far + at[&row.counters[0]] - value(&graph.tree.vars, &row.ranges[0].0, at) - access.behind
            }
            false => so_far - 1,
        };
        version.rem_euclid(stages.depth)
    }

    fn items(&mut self, graph: &Graph, items: &[Item], at: &BTreeMap<Var, i64>, rng: &mut Option<TestRng>) {
        let order = match rng {
            Some(rng) => allowed(graph, items, rng),
            None => (0..items.len()).collect(),
        };
        for k in order {
            self.item(graph, &items[k], at, rng);
        }
    }

    fn item(&mut self, graph: &Graph, item: &Item, at: &BTreeMap<Var, i64>, rng: &mut Option<TestRng>) {
        match item {
            Item::Node(id) => self.node(graph, *id, at),
            Item::Loop(id, body) => {
                let row = graph.tree.loop_(*id);
                let [counter] = row.counters[..] else { panic!("one counter") };
                let (lo, hi) = &row.ranges[0];
                let (lo, hi) = (value(&graph.tree.vars, lo, at), value(&graph.tree.vars, hi, at));
                if hi <= lo {
                    return;
                }
                let late = |item: &Item| {
                    let mut nodes = BTreeSet::new();
                    inside(item, &mut nodes);
                    let late: BTreeSet<i64> =
                        nodes.iter().map(|node| graph.node(*node).late_in(*id)).collect();
                    assert!(late.len() < 2, "an item is late as a whole");
                    late.first().copied().unwrap_or(0)
                };
                let late: Vec<i64> = body.iter().map(late).collect();
                let outside = self.steady;
                for time in lo..hi + late.iter().max().copied().unwrap_or(0) {
                    let order = match rng {
                        Some(rng) => allowed(graph, body, rng),
                        None => (0..body.len()).collect(),
                    };
                    self.steady = outside && late.iter().all(|late| (lo..hi).contains(&(time - late)));
                    for k in order {
                        let iteration = time - late[k];
                        if (lo..hi).contains(&iteration) {
                            let at = at.iter().map(|(k, v)| (*k, *v)).chain([(counter, iteration)]).collect();
                            self.item(graph, &body[k], &at, rng);
                        }
                    }
                }
                self.steady = outside;
                *self.iterations.entry(id.0).or_default() += hi - lo;
            }
        }
    }

    /// A run of the graph; with random numbers, in a random order that the edges allow within each iteration.
    fn of(graph: &Graph, mut rng: Option<TestRng>) -> Run {
        Run { steady: true, ..Run::default() }.through(graph, &mut rng)
    }

    /// A run in the order of the graph with copies that go on until something waits for them.
    fn asynchronous(graph: &Graph) -> Run {
        Run { steady: true, flight: Some(Vec::new()), ..Run::default() }.through(graph, &mut None)
    }

    fn through(self, graph: &Graph, rng: &mut Option<TestRng>) -> Run {
        let mut run = self;
        // What parameters hold at first.
        for (id, object) in graph.objects.iter().enumerate().filter(|(_, object)| object.param) {
            let places = graph.replicas.iter().enumerate();
            let mut homes = places.filter(|(_, r)| r.object.index() == id && r.of.is_none());
            let home = homes.next().map(|(at, _)| at as u32);
            let initial: BTreeMap<i64, u64> =
                (0..N).map(|element| (element, hash((&object.name, element)))).collect();
            run.stores.insert((id as u32, home, 0), initial);
        }
        run.items(graph, &graph.order, &BTreeMap::new(), rng);
        run
    }

    /// The parameters' contents.
    fn results(&self, graph: &Graph) -> Vec<BTreeMap<i64, u64>> {
        let params = graph.objects.iter().enumerate().filter(|(_, object)| object.param);
        params
            .map(|(id, _)| {
                let home = graph.replicas.iter().position(|r| r.object.index() == id && r.of.is_none());
                self.stores.get(&(id as u32, home.map(|at| at as u32), 0)).cloned().unwrap_or_default()
            })
            .collect()
    }
}

fn inside(item: &Item, out: &mut BTreeSet<NodeId>) {
    match item {
        Item::Node(id) => {
            out.insert(*id);
        }
        Item::Loop(_, items) => items.iter().for_each(|item| inside(item, out)),
    }
}

/// The places that lie in the memory of one.
fn others(graph: &Graph, place: u32) -> Vec<u32> {
    let overlays = graph.shared.iter().flat_map(|memory| &memory.overlays);
    let other = |(a, b): &(ReplicaId, ReplicaId)| match (a.0 == place, b.0 == place) {
        (true, _) => Some(b.0),
        (_, true) => Some(a.0),
        _ => None,
    };
    overlays.filter_map(other).collect()
}

/// A random order of a body's items in which nothing goes before what it waits for in the same iteration.
fn allowed(graph: &Graph, items: &[Item], rng: &mut TestRng) -> Vec<usize> {
    let nodes: Vec<BTreeSet<NodeId>> = items
        .iter()
        .map(|item| {
            let mut nodes = BTreeSet::new();
            inside(item, &mut nodes);
            nodes
        })
        .collect();
    let waits = |a: usize, b: usize| {
        graph.edges.iter().any(|edge| {
            edge.distance.iter().all(|d| *d == 0)
                && nodes[a].contains(&edge.to)
                && nodes[b].contains(&edge.from)
        })
    };
    let (mut order, mut left): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..items.len()).collect());
    while !left.is_empty() {
        let ready: Vec<usize> =
            left.iter().copied().filter(|a| left.iter().all(|b| a == b || !waits(*a, *b))).collect();
        let next = ready[rng.random_range(0..ready.len())];
        order.push(next);
        left.retain(|k| *k != next);
    }
    order
}

#[test]
fn random_programs_mean_the_same_by_reference_placed_and_reordered() {
    let cases = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 4000 } else { 150 };
    let (mut copies, mut ran) = (0, 0);
    for seed in 0..cases {
        let text = program(seed, BY_REFERENCE);
        let program = parse(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        let tree = match instantiate(&program, &program.mappings[0]) {
            Ok(tree) => tree,
            // A colour beyond the last, where all is known.
            Err(errors) => {
                assert!(
                    errors.0.iter().all(|e| e.code.to_string() == "partition-bounds"),
                    "{errors}\n{text}"
                );
                continue;
            }
        };
        let mut graph =
            depend(&program, tree).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        ran += 1;
        let by_reference = Run::of(&graph, None);
        let mut bytes = [13u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let check = |graph: &Graph, rng: Option<TestRng>| {
            assert_eq!(verify_graph(graph), [""; 0], "seed {seed}: {text}{}", graph.text());
            let run = Run::of(graph, rng);
            assert_eq!(run.results(graph), by_reference.results_of(), "seed {seed}: {text}{}", graph.text());
            assert_eq!(run.reads, by_reference.reads, "seed {seed}: {text}{}", graph.text());
            run.copies
        };
        check(&graph, Some(rng.clone()));
        join(&program, &mut graph).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        place(&program, &mut graph).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        synchronise(&program, &mut graph).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        copies += check(&graph, None);
        check(&graph, Some(rng));
    }
    assert!(copies > cases as usize && 2 * ran > cases, "{copies} copies in {ran} programs of {cases}");
}

#[test]
fn what_is_late_means_the_same_in_any_order_that_the_edges_allow() {
    let cases = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 20000 } else { 300 };
    let mut beside = 0;
    let (mut moved, mut refused, mut late_stages, mut staged) = (0, 0, 0, 0);
    for seed in 0..cases {
        let text = program(seed, LATE);
        if !text.contains("late(") {
            continue;
        }
        let program = parse(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        let Ok(tree) = instantiate(&program, &program.mappings[0]) else { continue };
        let mut graph = depend(&program, tree).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let by_reference = Run::of(&graph, None);
        join(&program, &mut graph).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        place(&program, &mut graph).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        if let Err(errors) = retime(&program, &program.mappings[0], &mut graph) {
            assert!(errors.0.iter().all(|error| error.code.to_string() == "late"), "{errors}\n{text}");
            refused += 1;
            continue;
        }
        moved += 1;
        late_stages += u64::from(graph.replicas.iter().any(|place| place.stages.is_some()));
        rings(&program, &program.mappings[0], &mut graph).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        staged += u64::from(graph.replicas.iter().any(|place| place.stages.is_some()));
        assert_eq!(verify_graph(&graph), [""; 0], "seed {seed}: {text}{}", graph.text());
        schedule(&program, &program.mappings[0], &mut graph)
            .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert_eq!(verify_graph(&graph), [""; 0], "seed {seed}: {text}{}", graph.text());
        beside += Run::asynchronous(&graph).beside;
        for order in 0..3 {
            let mut bytes = [17u8; 32];
            bytes[..8].copy_from_slice(&(3 * seed + order).to_le_bytes());
            let rng = (order > 0).then(|| TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
            let run = Run::of(&graph, rng);
            assert_eq!(run.reads, by_reference.reads, "seed {seed}: {text}{}", graph.text());
            assert_eq!(run.results(&graph), by_reference.results_of(), "seed {seed}: {text}{}", graph.text());
        }
    }
    let seen = [moved, refused, late_stages, staged, beside as u64];
    assert!(
        moved.min(refused).min(staged) > cases / 20 && late_stages > 0 && beside > 100,
        "{seen:?} of {cases}"
    );
}

#[test]
fn places_in_one_memory_are_never_needed_together() {
    let cases = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 6000 } else { 50 };
    let (mut overlaid, mut shrunk, mut refused) = (0, 0, 0);
    for seed in 0..cases {
        let bytes = 128 * (2 + seed as i64 % 4);
        let text = program(seed, Wanted { arch: "sm_80", late: false, shared: Some(bytes) });
        let program = parse(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        let mapping = &program.mappings[0];
        let Ok(tree) = instantiate(&program, mapping) else { continue };
        let mut graph = depend(&program, tree).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let by_reference = Run::of(&graph, None);
        place(&program, &mut graph).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        rings(&program, mapping, &mut graph).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let depths = |graph: &Graph| graph.rings.iter().map(|ring| ring.depth).collect::<Vec<_>>();
        let before = depths(&graph);
        if let Err(errors) = fit(&program, mapping, &mut graph, with_rings) {
            let code = |error: &tilewright_tile::Diagnostic| error.code.to_string();
            assert!(errors.0.iter().all(|e| code(e) == "shared-memory-exceeded"), "{errors}\n{text}");
            refused += 1;
            continue;
        }
        assert!(graph.shared.iter().all(|memory| memory.bytes <= bytes), "{text}");
        overlaid += u64::from(graph.shared.iter().any(|memory| !memory.overlays.is_empty()));
        shrunk += u64::from(depths(&graph) != before);
        schedule(&program, mapping, &mut graph).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert_eq!(verify_graph(&graph), [""; 0], "seed {seed}: {text}{}", graph.text());
        Run::asynchronous(&graph);
        for order in 0..3 {
            let mut bytes = [19u8; 32];
            bytes[..8].copy_from_slice(&(3 * seed + order).to_le_bytes());
            let rng = (order > 0).then(|| TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
            let run = Run::of(&graph, rng);
            assert_eq!(run.reads, by_reference.reads, "seed {seed}: {text}{}", graph.text());
            assert_eq!(run.results(&graph), by_reference.results_of(), "seed {seed}: {text}{}", graph.text());
        }
    }
    let seen = [overlaid, shrunk, refused];
    assert!(overlaid.min(shrunk).min(refused) > cases / 50, "{seen:?} of {cases}");
}

impl Run {
    /// The parameters' contents after a run without places: they are the first objects.
    fn results_of(&self) -> Vec<BTreeMap<i64, u64>> {
        (0..2).map(|id| self.stores.get(&(id, None, 0)).cloned().unwrap_or_default()).collect()
    }
}
