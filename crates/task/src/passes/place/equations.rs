//! The equations of placement for one buffer: when a replica is valid, when an element of the buffer is wanted, and in which loops a replica
//! stays. Each is one fixpoint, so there is no order in which copies go.
//!
//! A program is loops around accesses. An access is through a *class*: a piece of the buffer, in the buffer itself or in a replica. Copies in
//! and out of replicas are what is asked for.

use std::collections::BTreeMap;

/// A class, as an index into [`Problem::classes`].
pub type ClassIx = usize;

/// The elements of a buffer as far as pieces tell them apart: a bit each.
pub type Atoms = u64;

/// A class: a piece of the buffer, in the buffer itself or in a replica of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// True of a piece that is used where it is, in the buffer.
    pub home: bool,
    /// The elements that the piece may have.
    pub atoms: Atoms,
    /// True if it has them always.
    pub exact: bool,
    /// The loops on whose counters the piece depends.
    pub depends: Vec<u32>,
}

/// A statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stmt {
    /// An access through a class.
    Access {
        /// Its number.
        id: u32,
        /// The class.
        class: ClassIx,
        /// It reads, before it writes.
        reads: bool,
        /// It writes.
        writes: bool,
        /// It touches every element of the class's piece. One that writes a part alone reads, too: the replica has the others.
        whole: bool,
        /// The innermost loops in which its replica stays at any rate: those beyond so many from the outside.
        floor: usize,
    },
    /// A loop.
    Loop {
        /// Its number.
        id: u32,
        /// True if it is known to run at least once.
        runs: bool,
        /// The statements of an iteration.
        body: Vec<Stmt>,
    },
    /// A copy from the buffer into the replica of a class.
    In(ClassIx),
    /// A copy from the replica of a class to the buffer.
    Out(ClassIx),
}

/// A buffer with its classes and the accesses to it, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The classes.
    pub classes: Vec<Class>,
    /// Pairs of classes whose pieces never meet, beside those that have no atom in common.
    pub apart: Vec<(ClassIx, ClassIx)>,
    /// Pairs of classes of which the first has every element of the second, beside those that atoms show.
    pub holds: Vec<(ClassIx, ClassIx)>,
    /// The program.
    pub body: Vec<Stmt>,
    /// True if the buffer is read after the program.
    pub wanted: bool,
}

impl Problem {
    fn overlap(&self, a: ClassIx, b: ClassIx) -> bool {
        a == b
            || (self.classes[a].atoms & self.classes[b].atoms != 0
                && !self.apart.contains(&(a, b))
                && !self.apart.contains(&(b, a)))
    }

    /// True if `a` has every element of `b` for certain.
    fn covers(&self, a: ClassIx, b: ClassIx) -> bool {
        let (x, y) = (&self.classes[a], &self.classes[b]);
        a == b || self.holds.contains(&(a, b)) || (x.exact && y.atoms & !x.atoms == 0)
    }

    fn depends(&self, class: ClassIx, on: u32) -> bool {
        self.classes[class].depends.contains(&on)
    }

    /// The program with the copies in and out that replicas need, and no others. The laws: every read sees what it would see if all
    /// accesses were to the buffer itself; and the buffer holds that at the end, where it is read.
    pub fn solve(&self) -> Vec<Stmt> {
        let mut solver =
            Solver { problem: self, scopes: BTreeMap::new(), ins: BTreeMap::new(), outs: BTreeMap::new() };
        solver.scopes(&self.body, &mut Vec::new(), &mut Vec::new());
        let classes = self.classes.len();
        let mut valid = vec![false; classes];
        solver.forward(&self.body, &mut Vec::new(), &mut valid, true);
        let elements = self.classes.iter().fold(0, |all, class| all | class.atoms);
        let mut wanted =
            Wanted { atoms: if self.wanted { elements } else { 0 }, classes: vec![self.wanted; classes] };
        solver.backward(&self.body, &mut Vec::new(), &mut wanted, true);
        solver.build(&self.body, &mut Vec::new())
    }

    /// True if the replica of a class stays through a loop: its piece is the same in all iterations, nobody else touches it in a way that would
    /// show, and what is copied out behind the loop has been there.
    pub fn stays(&self, class: ClassIx, id: u32, runs: bool, body: &[Stmt]) -> bool {
        if self.depends(class, id) {
            return false;
        }
        let list = accesses(body);
        let mut mine = list.iter().filter(|access| access.0 == class);
        let written = mine.clone().any(|access| access.2);
        if written && !runs && !mine.next().is_some_and(|first| first.1) {
            return false;
        }
        list.iter()
            .filter(|access| access.0 != class && self.overlap(access.0, class))
            .all(|access| !access.2 && !written)
    }
}

/// The accesses of a body: (class, reads, writes).
fn accesses(body: &[Stmt]) -> Vec<(ClassIx, bool, bool)> {
    let mut list = Vec::new();
    for stmt in body {
        match stmt {
            Stmt::Access { class, reads, writes, .. } => list.push((*class, *reads, *writes)),
            Stmt::Loop { body, .. } => list.extend(accesses(body)),
            Stmt::In(_) | Stmt::Out(_) => {}
        }
    }
    list
}

/// A read through the class that may come before a write of it, and a write for certain.
fn exposed(stmt: &Stmt, class: ClassIx) -> (bool, bool) {
    match stmt {
        Stmt::Access { class: of, reads, writes, whole, .. } => {
            (*of == class && *reads, *of == class && *writes && *whole)
        }
        Stmt::Loop { runs, body, .. } => {
            let (mut exposes, mut written) = (false, false);
            for stmt in body {
                let (reads, writes) = exposed(stmt, class);
                exposes |= reads && !written;
                written |= writes;
            }
            (exposes, written && *runs)
        }
        Stmt::In(_) | Stmt::Out(_) => (false, false),
    }
}

/// A statement's place: the positions that lead to it.
type Path = Vec<usize>;

/// Elements of the buffer that are read later, before they are overwritten.
#[derive(Clone, PartialEq)]
struct Wanted {
    /// The elements that are, as far as atoms tell.
    atoms: Atoms,
    /// The classes of whose piece an element is.
    classes: Vec<bool>,
}

struct Solver<'a> {
    problem: &'a Problem,
    /// For each statement of a scope's body, the classes that live around it: (reads, writes).
    scopes: BTreeMap<Path, BTreeMap<ClassIx, (bool, bool)>>,
    ins: BTreeMap<Path, Vec<ClassIx>>,
    outs: BTreeMap<Path, Vec<ClassIx>>,
}

impl<'a> Solver<'a> {
    /// The scope of each access's replica: the outermost loop up to which it stays.
    fn scopes(&mut self, body: &'a [Stmt], path: &mut Path, around: &mut Vec<(u32, bool, &'a [Stmt])>) {
        for (at, stmt) in body.iter().enumerate() {
            path.push(at);
            match stmt {
                Stmt::Loop { id, runs, body } => {
                    around.push((*id, *runs, body));
                    self.scopes(body, path, around);
                    around.pop();
                }
                Stmt::Access { class, reads, writes, floor, .. } if !self.problem.classes[*class].home => {
                    let mut level = around.len();
                    while level > *floor {
                        let (id, runs, body) = around[level - 1];
                        if !self.problem.stays(*class, id, runs, body) {
                            break;
                        }
                        level -= 1;
                    }
                    let place = path[..=level].to_vec();
                    let entry = self.scopes.entry(place).or_default().entry(*class).or_default();
                    entry.0 |= reads;
                    entry.1 |= writes;
                }
                _ => {}
            }
            path.pop();
        }
    }

    /// Clears what an iteration of a loop makes another piece.
    fn strip(&self, valid: &mut [bool], id: u32) {
        for (class, valid) in valid.iter_mut().enumerate() {
            *valid &= !self.problem.depends(class, id);
        }
    }

    /// Valid: a copy in or a write through the class makes it so, an overlapping write through another ends it; on all paths.
    fn forward(&mut self, body: &'a [Stmt], path: &mut Path, valid: &mut Vec<bool>, record: bool) {
        for (at, stmt) in body.iter().enumerate() {
            path.push(at);
            let here = self.scopes.get(path).cloned().unwrap_or_default();
            for (class, (reads, _)) in here {
                if reads && !valid[class] && exposed(stmt, class).0 {
                    if record {
                        self.ins.entry(path.clone()).or_default().push(class);
                    }
                    valid[class] = true;
                }
            }
            match stmt {
                Stmt::Access { class, writes: true, .. } => {
                    for (other, valid) in valid.iter_mut().enumerate() {
                        *valid &= other == *class || !self.problem.overlap(other, *class);
                    }
                    valid[*class] = !self.problem.classes[*class].home;
                }
                Stmt::Access { .. } | Stmt::In(_) | Stmt::Out(_) => {}
                Stmt::Loop { id, runs, body } => {
                    let before = valid.clone();
                    self.strip(valid, *id);
                    loop {
                        let mut after = valid.clone();
                        self.forward(body, path, &mut after, false);
                        self.strip(&mut after, *id);
                        let joined: Vec<bool> = valid.iter().zip(&after).map(|(a, b)| *a && *b).collect();
                        if joined == *valid {
                            break;
                        }
                        *valid = joined;
                    }
                    self.forward(body, path, valid, record);
                    self.strip(valid, *id);
                    if !runs {
                        valid.iter_mut().zip(before).for_each(|(valid, before)| *valid &= before);
                    }
                }
            }
            path.pop();
        }
    }

    fn want(&self, wanted: &mut Wanted, class: ClassIx) {
        wanted.atoms |= self.problem.classes[class].atoms;
        for (other, wanted) in wanted.classes.iter_mut().enumerate() {
            *wanted |= self.problem.overlap(class, other);
        }
    }

    fn overwrite(&self, wanted: &mut Wanted, class: ClassIx) {
        if self.problem.classes[class].exact {
            wanted.atoms &= !self.problem.classes[class].atoms;
        }
        for (other, wanted) in wanted.classes.iter_mut().enumerate() {
            *wanted &= !self.problem.covers(class, other);
        }
    }

    /// Takes what is wanted across the edge of an iteration: the piece of a class that depends on the counter is another one there.
    fn edge(&self, wanted: &mut Wanted, id: u32) {
        let some = wanted.atoms != 0;
        for (class, wanted) in wanted.classes.iter_mut().enumerate() {
            if self.problem.depends(class, id) {
                *wanted = some;
            }
        }
    }

    /// Wanted: a read of the buffer makes it so, a write of it through any class ends it; on some path.
    fn backward(&mut self, body: &'a [Stmt], path: &mut Path, wanted: &mut Wanted, record: bool) {
        for (at, stmt) in body.iter().enumerate().rev() {
            path.push(at);
            let here = self.scopes.get(path).cloned().unwrap_or_default();
            for (class, (_, writes)) in here {
                if writes {
                    if record
                        && wanted.classes[class]
                        && wanted.atoms & self.problem.classes[class].atoms != 0
                    {
                        self.outs.entry(path.clone()).or_default().push(class);
                    }
                    self.overwrite(wanted, class);
                }
            }
            match stmt {
                Stmt::Access { class, reads, writes, whole, .. } => {
                    if *writes && *whole {
                        self.overwrite(wanted, *class);
                    }
                    if *reads && self.problem.classes[*class].home {
                        self.want(wanted, *class);
                    }
                }
                Stmt::In(_) | Stmt::Out(_) => {}
                Stmt::Loop { id, runs, body } => {
                    let mut after = wanted.clone();
                    self.edge(&mut after, *id);
                    let mut around = after.clone();
                    loop {
                        let mut before = around.clone();
                        self.backward(body, path, &mut before, false);
                        self.edge(&mut before, *id);
                        let joined = either(&around, &before);
                        if joined == around {
                            break;
                        }
                        around = joined;
                    }
                    self.backward(body, path, &mut around, record);
                    self.edge(&mut around, *id);
                    *wanted = if *runs { around } else { either(&after, &around) };
                }
            }
            for class in self.ins.get(path).cloned().unwrap_or_default() {
                self.want(wanted, class);
            }
            path.pop();
        }
    }

    fn build(&self, body: &[Stmt], path: &mut Path) -> Vec<Stmt> {
        let mut built = Vec::new();
        for (at, stmt) in body.iter().enumerate() {
            path.push(at);
            let copies = |map: &BTreeMap<Path, Vec<ClassIx>>| map.get(&*path).cloned().unwrap_or_default();
            let (ins, outs) = (copies(&self.ins), copies(&self.outs));
            built.extend(ins.into_iter().map(Stmt::In));
            built.push(match stmt {
                Stmt::Loop { id, runs, body } => {
                    Stmt::Loop { id: *id, runs: *runs, body: self.build(body, path) }
                }
                stmt => stmt.clone(),
            });
            built.extend(outs.into_iter().map(Stmt::Out));
            path.pop();
        }
        built
    }
}

fn either(a: &Wanted, b: &Wanted) -> Wanted {
    Wanted {
        atoms: a.atoms | b.atoms,
        classes: a.classes.iter().zip(&b.classes).map(|(a, b)| *a || *b).collect(),
    }
}
