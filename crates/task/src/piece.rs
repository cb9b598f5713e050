//! Pieces: what a chain of partitions leads to, each with colours that may be symbolic. The place of a piece is one layout, point →
//! coordinate of the object, plus an offset that is affine in counters: partitions compose as layouts do.
//!
//! Each question has three answers, of which one says that it is not decided; a compiler that takes that for the worse one is right. In
//! what is decided the answers are exact: tests compare them with all coordinates of small tensors.

mod affine;
mod along;
mod question;
mod system;

use std::collections::BTreeSet;

use tilewright_layout::{Coord, Layout, Stride, compose_coordinates};

pub use affine::{Affine, Term, Var, VarRow, Vars};
pub use system::{Answer, Form, System, Unknown};

use crate::partition::{Extent, Mode, Partition, PartitionError, by_mode};
use along::{Along, AlongMode};
use question::Question;

/// Points of a piece that are counted one by one.
const POINTS: i64 = 1 << 16;

/// A step from a tensor to a piece of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// The partition.
    pub partition: Partition,
    /// The colour, one entry a mode of colours.
    pub colours: Vec<Affine>,
}

/// The place of a piece: point → coordinate of the object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The coordinate of point 0, one entry a mode of the object.
    pub offset: Vec<Affine>,
    /// The modes of the points.
    pub points: Vec<Mode>,
}

/// A condition on counters.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Guard {
    /// The form is zero.
    Zero(Affine),
    /// The form is not negative.
    AtLeastZero(Affine),
}

impl Guard {
    /// The form.
    pub fn form(&self) -> &Affine {
        match self {
            Guard::Zero(form) | Guard::AtLeastZero(form) => form,
        }
    }
}

/// A piece of an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    extents: Vec<Extent>,
    steps: Vec<Step>,
    guards: Vec<Guard>,
    /// Nothing where the partitions compose to no layout.
    place: Option<Place>,
    limits: Vec<Limit>,
    shape: Vec<Extent>,
}

/// An edge on the way to a piece: points whose coordinates in a tensor on the way lie beyond its extents do not exist.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Limit {
    /// The steps that lead to the tensor.
    depth: usize,
    /// Its extents.
    extents: Vec<Extent>,
    /// Point of the piece → coordinate of the tensor.
    place: Place,
}

/// A set of elements as offset and strides, the same for pieces that differ only in the names of their points.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Region {
    /// The first coordinate.
    pub offset: Vec<Affine>,
    /// Along each mode of the object the (stride, extent) pairs that the points count, smallest first, coalesced; an extent is nothing
    /// where it is known at run time only.
    pub modes: Vec<Vec<(i64, Extent)>>,
}

/// A relation between the values of a counter on both sides of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The same value.
    Same,
    /// The second is greater by this.
    By(i64),
    /// The second is greater.
    Later,
    /// Any two values.
    Any,
}

/// Two pieces at one element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Witness {
    /// The counters of the first piece, with their values.
    pub first: Vec<(Var, i64)>,
    /// Those of the second.
    pub second: Vec<(Var, i64)>,
    /// The element, a coordinate of the object.
    pub element: Vec<i64>,
}

/// The answer to "do two pieces have an element in common?".
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// Never.
    Apart,
    /// Here they do.
    At(Witness),
    /// Not decided.
    Perhaps,
}

/// The answer to "is every element in there?".
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cover {
    /// Always.
    Yes,
    /// This element is not.
    Misses(Vec<i64>),
    /// Not decided.
    Perhaps,
}

impl Piece {
    /// All of an object.
    pub fn whole(extents: &[Extent]) -> Piece {
        let points =
            extents.iter().enumerate().map(|(d, extent)| Mode::leaf(*extent, Coord::basis(d))).collect();
        let place = Place { offset: vec![Affine::default(); extents.len()], points };
        Piece {
            extents: extents.to_vec(),
            steps: Vec::new(),
            guards: Vec::new(),
            place: Some(place),
            limits: Vec::new(),
            shape: extents.to_vec(),
        }
    }

    /// The piece of this one that a partition has at a colour. The law: its point `x` is this piece's point `P(colour, x)`. An error where
    /// the partition is of another shape, or a colour that is known is none.
    pub fn part(
        &self,
        partition: &Partition,
        colours: &[Affine],
        vars: &mut Vars,
    ) -> Result<Piece, PartitionError> {
        if partition.tensor().len() != self.shape.len() {
            return Err(PartitionError::Rank { rank: self.shape.len(), given: partition.tensor().len() });
        }
        let extents = partition.colours();
        let known: Option<Vec<i64>> = colours.iter().map(Affine::value).collect();
        let beyond = |(colour, extent): (&Affine, &Extent)| {
            colour.value().is_some_and(|c| c < 0 || extent.is_some_and(|extent| c >= extent))
        };
        if colours.len() != extents.len() || colours.iter().zip(&extents).any(beyond) {
            let colour = known.unwrap_or_else(|| colours.iter().map(|c| c.value().unwrap_or(0)).collect());
            return Err(PartitionError::Bounds { colour, extents });
        }
        let mut steps = self.steps.clone();
        steps.push(Step { partition: partition.clone(), colours: colours.to_vec() });
        let mut place = self.place.as_ref().and_then(|place| place.part(partition, colours, vars));
        let mut limits = Vec::with_capacity(self.limits.len());
        let inner = (!self.steps.is_empty() && !partition.stays_inside()).then(|| Limit {
            depth: self.steps.len(),
            extents: self.shape.clone(),
            place: Place::identity(&self.shape),
        });
        for limit in self.limits.iter().cloned().chain(inner) {
            match limit.place.part(partition, colours, vars) {
                Some(place) => limits.push(Limit { place, ..limit }),
                None => place = None,
            }
        }
        Ok(Piece {
            extents: self.extents.clone(),
            steps,
            guards: self.guards.clone(),
            place,
            limits,
            shape: partition.shape(),
        })
    }

    /// The piece to which the first steps of this one lead, under the same conditions.
    pub fn prefix(&self, depth: usize, vars: &mut Vars) -> Result<Piece, PartitionError> {
        let mut piece = Piece::whole(&self.extents);
        for step in &self.steps[..depth.min(self.steps.len())] {
            piece = piece.part(&step.partition, &step.colours, vars)?;
        }
        Ok(piece.when(self.guards.iter().cloned()))
    }

    /// The piece, where a condition holds; it has no elements where it does not.
    pub fn when(mut self, guards: impl IntoIterator<Item = Guard>) -> Piece {
        self.guards.extend(guards);
        self.guards.sort();
        self.guards.dedup();
        self
    }

    /// The extents of the object.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The partitions on the way, outermost first.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The conditions under which it has elements.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The place; nothing where no layout has it.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// The extents of its points.
    pub fn shape(&self) -> &[Extent] {
        &self.shape
    }

    /// True if it may have points beyond the edge of a piece on the way to it: other points than those beyond the object's edge do not exist there.
    pub fn reaches_beyond(&self, vars: &Vars) -> bool {
        self.limits.iter().any(|limit| {
            limit.extents.iter().enumerate().any(|(d, extent)| {
                // An extent that is known at run time only is the object's own.
                let Some(extent) = extent else { return false };
                let leaves = limit.place.leaves();
                let moving =
                    leaves.iter().map(|(n, stride)| (*n, stride.component(d))).filter(|leaf| leaf.1 != 0);
                let reach = moving.map(|(n, stride)| Some((n? - 1).checked_mul(stride)?.max(0)));
                let reach = reach.sum::<Option<i64>>();
                let most =
                    vars.range(&limit.place.offset[d]).1.zip(reach).and_then(|(a, b)| a.checked_add(b));
                most.is_none_or(|most| most >= *extent)
            })
        })
    }

    /// The number of its points, where all extents are known.
    pub fn size(&self) -> Option<i64> {
        self.shape.iter().try_fold(1i64, |size, extent| size.checked_mul((*extent)?))
    }

    /// The variables of its colours and conditions.
    pub fn vars(&self) -> Vec<Var> {
        let colours = self.steps.iter().flat_map(|step| &step.colours);
        let forms = colours.chain(self.guards.iter().map(Guard::form));
        forms.flat_map(Affine::vars).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// True if its elements may differ from one value of the variable to the next.
    pub fn depends(&self, vars: &Vars, on: Var) -> bool {
        let guards = self.guards.iter().any(|guard| vars.depends(guard.form(), on));
        guards
            || match &self.place {
                Some(place) => place.offset.iter().any(|form| vars.depends(form, on)),
                None => self.steps.iter().flat_map(|step| &step.colours).any(|form| vars.depends(form, on)),
            }
    }

    /// The elements as a region; nothing where a leaf of the place moves along two modes at once, or there is no place.
    pub fn region(&self) -> Option<Region> {
        let place = self.place.as_ref()?;
        let modes = by_mode(&place.leaves(), self.extents.len())?;
        let modes = modes
            .into_iter()
            .map(|leaves| {
                let mut leaves: Vec<(i64, Extent)> =
                    leaves.into_iter().map(|(extent, stride)| (stride, extent)).collect();
                leaves.sort_by_key(|(stride, _)| *stride);
                let mut merged: Vec<(i64, Extent)> = Vec::new();
                for (stride, extent) in leaves {
                    match merged.last_mut() {
                        Some((before, count)) if count.is_some_and(|count| stride == *before * count) => {
                            *count = count.zip(extent).map(|(count, extent)| count * extent);
                        }
                        _ => merged.push((stride, extent)),
                    }
                }
                merged
            })
            .collect();
        Some(Region { offset: place.offset.clone(), modes })
    }

    /// True if both are the same set of elements for certain: one chain of partitions, or one region.
    pub fn same(&self, other: &Piece) -> bool {
        let regions = || {
            let places = || self.place.is_some() && self.place == other.place;
            places() || self.region().zip(other.region()).is_some_and(|(a, b)| a == b)
        };
        self.extents == other.extents
            && self.guards == other.guards
            && (self.steps == other.steps || (self.limits == other.limits && regions()))
    }

    /// Decides if two pieces of one object meet, in any iterations that stand in the relation. The law: `Apart` where no values of
    /// counters in range have a common coordinate of the object under both pieces' conditions, `At` with one where some do.
    pub fn meets(&self, other: &Piece, vars: &Vars, relation: impl Fn(Var) -> Relation) -> Meeting {
        let (Some(first), Some(second)) = (&self.place, &other.place) else { return Meeting::Perhaps };
        let mut question = Question::new(vars, &relation);
        question.note(self);
        question.note(other);
        question.relate();
        for (piece, side) in [(self, 0), (other, 1)] {
            for guard in &piece.guards {
                let form = question.form(guard.form(), side);
                match guard {
                    Guard::Zero(_) => question.system.zero(form),
                    Guard::AtLeastZero(_) => question.system.at_least_zero(form),
                }
            }
        }
        let points: Vec<Vec<Unknown>> =
            [first, second].iter().map(|place| question.points(&place.leaves())).collect();
        let mut coordinates = Vec::with_capacity(self.extents.len());
        for (d, extent) in self.extents.iter().enumerate() {
            let sides: Vec<Form> = [first, second]
                .iter()
                .enumerate()
                .map(|(side, place)| {
                    let mut form = question.form(&place.offset[d], side);
                    let leaves = place.leaves();
                    form.terms.extend(
                        points[side].iter().zip(&leaves).map(|(at, (_, stride))| (*at, stride.component(d))),
                    );
                    form
                })
                .collect();
            let mut difference = sides[0].clone();
            difference.add(&sides[1], -1);
            question.system.zero(difference);
            // The element is one of the object.
            if let Some(extent) = extent {
                let mut within = Form::constant(extent - 1);
                within.add(&sides[0], -1);
                question.system.at_least_zero(within);
            }
            coordinates.push(sides[0].clone());
        }
        for (side, piece) in [self, other].into_iter().enumerate() {
            for limit in &piece.limits {
                let leaves = limit.place.leaves();
                // Leaves that the way to the tensor refines otherwise than the way to the object are not related.
                if leaves
                    .iter()
                    .map(|leaf| leaf.0)
                    .ne([first, second][side].leaves().iter().map(|leaf| leaf.0))
                {
                    return Meeting::Perhaps;
                }
                for (d, extent) in limit.extents.iter().enumerate() {
                    let Some(extent) = extent else { continue };
                    let mut within = Form::constant(extent - 1);
                    within.add(&question.form(&limit.place.offset[d], side), -1);
                    let along = points[side].iter().zip(&leaves);
                    within.terms.extend(along.map(|(at, (_, stride))| (*at, -stride.component(d))));
                    question.system.at_least_zero(within);
                }
            }
        }
        match question.system.solve() {
            Answer::None => Meeting::Apart,
            Answer::Undecided => Meeting::Perhaps,
            Answer::Some(_) if !question.exact() => Meeting::Perhaps,
            Answer::Some(values) => {
                let value = |form: &Form| -> i64 {
                    form.terms.iter().fold(form.constant, |sum, (k, factor)| sum + factor * values[*k])
                };
                let mut counters = |side: usize, piece: &Piece| {
                    let vars = piece.vars().into_iter();
                    vars.map(|var| (var, value(&question.form(&Affine::var(var), side)))).collect()
                };
                Meeting::At(Witness {
                    first: counters(0, self),
                    second: counters(1, other),
                    element: coordinates.iter().map(value).collect(),
                })
            }
        }
    }

    /// Decides if every element of this piece is one of `other`, whatever the counters are. The law: `Yes` where each coordinate of the
    /// object that a point of this one has is one of `other`; `Misses` one that is not.
    pub fn contained(&self, other: &Piece, vars: &Vars) -> Cover {
        if !other.guards.iter().all(|guard| self.guards.contains(guard)) {
            return Cover::Perhaps;
        }
        if self.steps.starts_with(&other.steps) && self.extents == other.extents {
            return Cover::Yes;
        }
        if !self.limits.is_empty() || !other.limits.is_empty() {
            return match (self.elements(), other.elements()) {
                (Some(inner), Some(outer)) => match inner.into_iter().find(|at| !outer.contains(at)) {
                    None => Cover::Yes,
                    Some(at) if self.guards.is_empty() => Cover::Misses(at),
                    Some(_) => Cover::Perhaps,
                },
                // Fewer elements than without edges, so that what contains those contains these.
                _ if other.limits.is_empty() => match self.contained_by_place(other, vars) {
                    Cover::Misses(_) => Cover::Perhaps,
                    cover => cover,
                },
                _ => Cover::Perhaps,
            };
        }
        self.contained_by_place(other, vars)
    }

    /// [`contained`](Self::contained) by places alone.
    fn contained_by_place(&self, other: &Piece, vars: &Vars) -> Cover {
        let (Some(inner), Some(outer)) = (&self.place, &other.place) else { return Cover::Perhaps };
        let rank = self.extents.len();
        let (Some(inner_modes), Some(outer_modes)) =
            (by_mode(&inner.leaves(), rank), by_mode(&outer.leaves(), rank))
        else {
            let (Some(inner), Some(outer)) = (self.elements(), other.elements()) else {
                return Cover::Perhaps;
            };
            return match inner.into_iter().find(|at| !outer.contains(at)) {
                None => Cover::Yes,
                Some(at) if self.guards.is_empty() => Cover::Misses(at),
                Some(_) => Cover::Perhaps,
            };
        };
        let mut undecided = false;
        let (mut first, mut missing) = (Vec::with_capacity(rank), None);
        for d in 0..rank {
            let mode = AlongMode {
                extent: self.extents[d],
                inner: (&inner.offset[d], &inner_modes[d]),
                outer: (&outer.offset[d], &outer_modes[d]),
            };
            match mode.contained(vars) {
                Along::Yes => {}
                Along::Misses(at) => missing = missing.or(Some((d, at))),
                Along::Empty => return Cover::Yes,
                Along::Perhaps => undecided = true,
            }
            first.push(inner.offset[d].value().unwrap_or(0));
        }
        match missing {
            None if undecided => Cover::Perhaps,
            None => Cover::Yes,
            // An element lacks one mode; the others are those of the first point, if that is known to exist.
            Some((d, at)) => {
                first[d] = at;
                let exists = self.guards.is_empty()
                    && inner.offset.iter().enumerate().all(|(k, form)| {
                        let inside = |c: i64| self.extents[k].is_none_or(|extent| c < extent);
                        k == d || form.value().is_some_and(inside)
                    });
                if exists { Cover::Misses(first) } else { Cover::Perhaps }
            }
        }
    }

    /// Decides if the pieces at all values of these counters have every element of `whole`, which has none of these counters. The law is that
    /// of [`contained`](Self::contained), with the union of the pieces for `other`.
    pub fn covers(&self, whole: &Piece, vars: &Vars, counters: &[Var]) -> Cover {
        // An edge of `whole` itself is none of its elements; other edges may be.
        let harmless = |limit: &Limit| limit.depth == whole.steps.len();
        let nested = self.steps.starts_with(&whole.steps)
            && self.limits.iter().all(harmless)
            && self.steps.iter().all(|step| step.partition.is_disjoint());
        if !whole.limits.is_empty() || !(self.limits.is_empty() || nested) {
            return Cover::Perhaps;
        }
        match self.over(vars, counters) {
            Some(union) if union.guards.iter().all(|guard| whole.guards.contains(guard)) => {
                whole.contained_by_place(&union, vars)
            }
            _ => Cover::Perhaps,
        }
    }

    /// The elements, where colours and extents are known and they are few; conditions are not asked.
    pub fn elements(&self) -> Option<BTreeSet<Vec<i64>>> {
        let place = self.place.as_ref()?;
        let size = self.size()?;
        if size > POINTS {
            return None;
        }
        let known = |place: &Place| place.offset.iter().all(|form| form.value().is_some());
        if !known(place) || !self.limits.iter().all(|limit| known(&limit.place)) {
            return None;
        }
        let inside = |at: &[i64], extents: &[Extent]| {
            at.iter().zip(extents).all(|(c, e)| *c >= 0 && e.is_none_or(|e| *c < e))
        };
        let mut elements = BTreeSet::new();
        for k in 0..size {
            let mut rest = k;
            let digit = |extent: &Extent| {
                let extent = extent.unwrap_or(1);
                let digit = rest % extent;
                rest /= extent;
                digit
            };
            let point: Vec<i64> = self.shape.iter().map(digit).collect();
            let at = |place: &Place| place.coordinate(&point, |_| 0);
            let coordinate = at(place);
            if inside(&coordinate, &self.extents)
                && self.limits.iter().all(|limit| inside(&at(&limit.place), &limit.extents))
            {
                elements.insert(coordinate);
            }
        }
        Some(elements)
    }

    /// The union of the pieces at all values of the counters, which become points; nothing where that is no layout.
    fn over(&self, vars: &Vars, counters: &[Var]) -> Option<Piece> {
        let free = |form: &Affine| counters.iter().all(|var| !vars.depends(form, *var));
        if !self.guards.iter().all(|guard| free(guard.form())) {
            return None;
        }
        let place = self.place.as_ref()?;
        let mut strides: Vec<(Term, Coord)> = Vec::new();
        let mut offset = Vec::with_capacity(place.offset.len());
        for (d, form) in place.offset.iter().enumerate() {
            let mut rest = Affine::constant(form.rest());
            for (term, factor) in form.terms() {
                let (Term::Var(of) | Term::Digit { of, .. }) = term;
                if !counters.contains(of) {
                    rest = rest.plus(&Affine::term(term.clone()), *factor);
                    continue;
                }
                let step = Coord::basis(d).scale(*factor);
                match strides.iter_mut().find(|(other, _)| other == term) {
                    Some((_, stride)) => *stride = stride.add(&step),
                    None => strides.push((term.clone(), step)),
                }
                if let Term::Var(var) = term {
                    rest = rest.plus(&Affine::constant(vars.row(*var).least?), *factor);
                }
            }
            if !free(&rest) {
                return None;
            }
            offset.push(rest);
        }
        // Digits of one counter are independent where they are different leaves of one mode; a counter that occurs both whole and by digits
        // is not decided.
        let mut points = place.points.clone();
        for (k, (term, stride)) in strides.iter().enumerate() {
            let (Term::Var(of) | Term::Digit { of, .. }) = term;
            let extent = match term {
                Term::Var(var) => {
                    let row = vars.row(*var);
                    row.least.zip(row.most).map(|(least, most)| most - least + 1)
                }
                Term::Digit { below, extent, .. } => {
                    let row = vars.row(*of);
                    let full = row.least == Some(0)
                        && row.most.is_some_and(|most| (most + 1) % (below * extent) == 0);
                    if !full {
                        return None;
                    }
                    Some(*extent)
                }
            };
            for (other, _) in &strides[k + 1..] {
                let apart = match (term, other) {
                    (
                        Term::Digit { of: a, below: x, extent: n },
                        Term::Digit { of: b, below: y, extent: m },
                    ) => a != b || (x * n <= *y && y % (x * n) == 0) || (y * m <= *x && x % (y * m) == 0),
                    (Term::Var(a) | Term::Digit { of: a, .. }, Term::Var(b) | Term::Digit { of: b, .. }) => {
                        a != b
                    }
                };
                if !apart {
                    return None;
                }
            }
            if extent.is_some_and(|extent| extent < 1) {
                return None;
            }
            points.push(Mode::leaf(extent, stride.clone()));
        }
        let shape = points.iter().map(|mode| mode.extent).collect();
        Some(Piece {
            extents: self.extents.clone(),
            steps: self.steps.clone(),
            guards: self.guards.clone(),
            place: Some(Place { offset, points }),
            limits: Vec::new(),
            shape,
        })
    }
}

impl Place {
    /// The place of all of a tensor.
    fn identity(extents: &[Extent]) -> Place {
        let points =
            extents.iter().enumerate().map(|(d, extent)| Mode::leaf(*extent, Coord::basis(d))).collect();
        Place { offset: vec![Affine::default(); extents.len()], points }
    }

    /// The leaves of the points.
    pub fn leaves(&self) -> Vec<(Extent, Coord)> {
        self.points.iter().flat_map(Mode::leaves).collect()
    }

    /// The place of a part: this one composed with the partition, its colours added to the offset.
    fn part(&self, partition: &Partition, colours: &[Affine], vars: &mut Vars) -> Option<Place> {
        let modes: Vec<&Mode> = partition.colour_modes().iter().chain(partition.point_modes()).collect();
        let through = self.through(&modes)?;
        let (through_colours, points) = through.split_at(colours.len());
        let mut offset = self.offset.clone();
        for (mode, colour) in through_colours.iter().zip(colours) {
            let mut below = 1i64;
            let leaves = mode.leaves();
            let last = leaves.len() - 1;
            for (k, (extent, stride)) in leaves.into_iter().enumerate() {
                let at = match (colour.value(), colour.as_var()) {
                    // The last leaf extends, and a layout of one leaf has all of the colour.
                    (Some(colour), _) => {
                        let over = colour.div_euclid(below);
                        Affine::constant(if k == last { over } else { over.rem_euclid(extent?) })
                    }
                    (None, _) if last == 0 => colour.clone(),
                    (None, Some(of)) => Affine::term(Term::Digit { of, below, extent: extent? }),
                    (None, None) => {
                        let over =
                            vars.apply(tilewright_tile::IntOp::Div, colour, &Affine::constant(below))?;
                        vars.apply(tilewright_tile::IntOp::Rem, &over, &Affine::constant(extent?))?
                    }
                };
                for (d, form) in offset.iter_mut().enumerate() {
                    *form = form.plus(&at, stride.component(d));
                }
                below = below.checked_mul(extent.unwrap_or(1))?;
            }
        }
        Some(Place { offset, points: points.to_vec() })
    }

    /// Modes whose strides are coordinates of the points, with the coordinates of the object that these have.
    fn through(&self, modes: &[&Mode]) -> Option<Vec<Mode>> {
        let single: Option<Vec<Coord>> = self
            .points
            .iter()
            .map(|mode| match &mode.leaves()[..] {
                [(_, stride)] => Some(stride.clone()),
                _ => None,
            })
            .collect();
        if let Some(strides) = single {
            // One leaf a mode: the points are linear.
            let linear = |stride: &Coord| {
                strides.iter().enumerate().try_fold(Coord::zero(), |sum, (k, step)| {
                    sum.checked_add(&step.checked_scale(stride.component(k))?)
                })
            };
            return modes
                .iter()
                .map(|mode| {
                    let leaves: Option<Vec<(i64, Coord)>> =
                        mode.layout.leaves().iter().map(|(n, d)| Some((*n, linear(d)?))).collect();
                    let layout = Layout::from_leaves(&leaves?).ok()?;
                    Some(Mode { extent: mode.extent, layout })
                })
                .collect();
        }
        let points: Vec<Layout<Coord>> = self.points.iter().map(|mode| mode.layout.clone()).collect();
        let inner: Vec<Layout<Coord>> = modes.iter().map(|mode| mode.layout.clone()).collect();
        if modes.iter().any(|mode| mode.extent.is_none()) {
            return None;
        }
        let composed =
            compose_coordinates(&Layout::concat(&points).ok()?, &Layout::concat(&inner).ok()?).ok()?;
        let composed = composed.modes();
        Some(
            composed
                .into_iter()
                .zip(modes)
                .map(|(layout, mode)| Mode { extent: mode.extent, layout })
                .collect(),
        )
    }

    /// The coordinate of a point at these values of the variables.
    pub fn coordinate(&self, point: &[i64], value: impl Fn(Var) -> i64) -> Vec<i64> {
        let sum = self
            .points
            .iter()
            .zip(point)
            .fold(Coord::zero(), |sum, (mode, at)| sum.add(&mode.layout.eval(*at)));
        let offset = |form: &Affine| {
            form.terms().iter().fold(form.rest(), |sum, (term, factor)| {
                sum + factor
                    * match term {
                        Term::Var(var) => value(*var),
                        Term::Digit { of, below, extent } => {
                            value(*of).div_euclid(*below).rem_euclid(*extent)
                        }
                    }
            })
        };
        self.offset.iter().enumerate().map(|(d, form)| offset(form) + sum.component(d)).collect()
    }
}
