//! A lint about coordinates within a tile that are used as if they were those of the tensor: masks by `index` that are the same in every tile, coordinates
//! of the largest element of a chunk.
//!
//! A coordinate is followed from `index(axis)`, or from `argmax`, to where it meets elements of a tile. If the tile begins at a place that blocks or loops move,
//! and no integer that names them was added on the way, the coordinate is the tile's alone.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::axes::{Axes, Label, Movers, Place};
use super::points::Sites;
use super::values::{Id, Node};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::Expr;
use crate::program::{BinaryOp, ShapeOp};

/// The mode of which a coordinate is one.
#[derive(Clone, PartialEq, Debug)]
enum Of {
    /// A mode of the value.
    Mode(usize),
    /// The difference of the coordinates along two modes.
    Difference(usize, usize),
    /// A mode of another tile, which lies there.
    Tile(Box<Place>),
}

/// A coordinate that takes part in a value.
#[derive(Clone, PartialEq, Debug)]
struct Coordinate {
    of: Of,
    /// Names of the integers that were added.
    named: Movers,
    /// The value that it is.
    from: Id,
    /// True once its bits have been mixed with others, as a hash does.
    mixed: bool,
}

struct Analysis<'x, 's, 'a> {
    axes: &'x Axes<'s, 'a>,
    known: RefCell<Vec<Option<Vec<Coordinate>>>>,
    open: RefCell<BTreeSet<Id>>,
    found: RefCell<Vec<Found>>,
}

/// A coordinate that is the tile's alone: the statement that uses it, and the tile's places.
type Found = (usize, Coordinate, Vec<Place>);

/// Coordinates along a mode that is no more.
fn without_mode(of: &Of, gone: usize) -> Option<Of> {
    let shifted = |mode: usize| (mode != gone).then_some(mode - usize::from(mode > gone));
    match of {
        Of::Mode(mode) => shifted(*mode).map(Of::Mode),
        Of::Difference(x, y) => Some(Of::Difference(shifted(*x)?, shifted(*y)?)),
        Of::Tile(_) => Some(of.clone()),
    }
}

fn mapped(of: &Of, map: impl Fn(usize) -> Option<usize>) -> Option<Of> {
    match of {
        Of::Mode(mode) => map(*mode).map(Of::Mode),
        Of::Difference(x, y) => Some(Of::Difference(map(*x)?, map(*y)?)),
        Of::Tile(_) => Some(of.clone()),
    }
}

impl Analysis<'_, '_, '_> {
    /// The movers that the integers of an expression name.
    fn named(&self, id: Id) -> Movers {
        let mut all = Movers::default();
        match self.axes.values.node(id) {
            Node::Integer(e) => all.add(&self.axes.movers(e)),
            Node::Unary(_, x) | Node::Cast(_, x) | Node::Shape(_, x) => all.add(&self.named(*x)),
            Node::Binary(_, x, y) => [x, y].into_iter().for_each(|x| all.add(&self.named(*x))),
            _ => {}
        }
        all
    }

    /// True for a literal, or an integer that names nothing that blocks or loops move and no size.
    fn is_constant(&self, id: Id) -> bool {
        match self.axes.values.node(id) {
            Node::Number(_) | Node::Integer(Expr::Int(_)) => true,
            Node::Unary(_, x) | Node::Cast(_, x) | Node::Shape(_, x) => self.is_constant(*x),
            _ => false,
        }
    }

    fn coordinates(&self, id: Id) -> Vec<Coordinate> {
        if let Some(known) = &self.known.borrow()[id] {
            return known.clone();
        }
        if !self.open.borrow_mut().insert(id) {
            return Vec::new();
        }
        let mut all = self.worked_out(id);
        all.dedup();
        all.truncate(8);
        self.open.borrow_mut().remove(&id);
        self.known.borrow_mut()[id] = Some(all.clone());
        all
    }

    fn worked_out(&self, id: Id) -> Vec<Coordinate> {
        let values = self.axes.values;
        let through = |x: &Id, map: &dyn Fn(&Of) -> Option<Of>| -> Vec<Coordinate> {
            let of = self.coordinates(*x).into_iter();
            of.filter_map(|c| Some(Coordinate { of: map(&c.of)?, ..c })).collect()
        };
        match values.node(id) {
            Node::Index(axis) => {
                vec![Coordinate {
                    of: Of::Mode(*axis as usize),
                    named: Movers::default(),
                    from: id,
                    mixed: false,
                }]
            }
            Node::Coordinate(_, axis, x) => {
                let place = self.axes.labels(*x).get(*axis as usize).and_then(Label::place).cloned();
                let of = place.map(|place| Of::Tile(Box::new(place)));
                let mut all: Vec<_> = of
                    .map(|of| Coordinate { of, named: Movers::default(), from: id, mixed: false })
                    .into_iter()
                    .collect();
                all.extend(through(x, &|of| without_mode(of, *axis as usize)));
                all
            }
            Node::Unary(_, x) | Node::Cast(_, x) | Node::Cluster(_, x) => self.coordinates(*x),
            Node::Shape(op, x) => through(x, &|of| match op {
                ShapeOp::Transpose(order) => {
                    mapped(of, |mode| order.iter().position(|from| *from as usize == mode))
                }
                ShapeOp::Expand { axis } => {
                    mapped(of, |mode| Some(mode + usize::from(mode >= *axis as usize)))
                }
                ShapeOp::Broadcast(_) => Some(of.clone()),
                ShapeOp::Slice { .. } | ShapeOp::Reshape(_) => mapped(of, |_| None),
            }),
            Node::Reduce(_, axis, x) | Node::Extreme(_, axis, x) => {
                through(x, &|of| without_mode(of, *axis as usize))
            }
            Node::Binary(op, x, y) => self.binary(id, *op, [*x, *y]),
            Node::Where(operands) => self.meeting(id, operands),
            Node::Either(_, sides) => sides.iter().flat_map(|x| self.coordinates(*x)).collect(),
            Node::Carried(head, tensor) => {
                let sides = values.sides(*head, *tensor).into_iter().flatten();
                sides.flat_map(|x| self.coordinates(x)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn binary(&self, id: Id, op: BinaryOp, [x, y]: [Id; 2]) -> Vec<Coordinate> {
        let (left, right) = (self.coordinates(x), self.coordinates(y));
        if left.is_empty() && right.is_empty() {
            return Vec::new();
        }
        let constant = self.is_constant(x) || self.is_constant(y);
        // Parts of a tile, and places that repeat in each.
        let within = matches!(op, BinaryOp::Rem | BinaryOp::BitAnd | BinaryOp::Div | BinaryOp::Shr);
        if constant && (within || op.compares()) {
            return left.into_iter().chain(right).filter(|coordinate| coordinate.mixed).collect();
        }
        if op == BinaryOp::BitXor {
            let all = self.meeting(id, &[x, y]).into_iter();
            return all.map(|coordinate| Coordinate { mixed: true, ..coordinate }).collect();
        }
        if op.compares()
            && let ([a], [b]) = (left.as_slice(), right.as_slice())
        {
            let mut named = a.named.clone();
            named.add(&b.named);
            return match (&a.of, &b.of) {
                (Of::Mode(m), Of::Mode(n)) if m != n => {
                    let of = Of::Difference(*m, *n);
                    self.resolved(id, vec![Coordinate { of, named, from: a.from, mixed: false }])
                }
                // Coordinates of one tile are compared with each other.
                _ => Vec::new(),
            };
        }
        self.meeting(id, &[x, y])
    }

    /// The coordinates of operands that meet in a value: an integer that is added to one names what it names.
    fn meeting(&self, id: Id, operands: &[Id]) -> Vec<Coordinate> {
        let mut all = Vec::new();
        for (i, x) in operands.iter().enumerate() {
            for mut coordinate in self.coordinates(*x) {
                for (_, other) in operands.iter().enumerate().filter(|(other, _)| *other != i) {
                    coordinate.named.add(&self.named(*other));
                }
                all.push(coordinate);
            }
        }
        self.resolved(id, all)
    }

    /// Leaves those coordinates whose tile is not known yet, and reports those that are the tile's alone.
    fn resolved(&self, id: Id, all: Vec<Coordinate>) -> Vec<Coordinate> {
        let value = &self.axes.values.all[id];
        let labels = self.axes.labels(id);
        all.into_iter().filter(|c| self.is_open(value.site, c, &labels)).collect()
    }

    /// True if it is not known yet whether a coordinate is the tile's alone.
    fn is_open(&self, site: usize, coordinate: &Coordinate, labels: &[Label]) -> bool {
        let place = |mode: usize| labels.get(mode).and_then(Label::place);
        let places: Vec<Place> = match &coordinate.of {
            Of::Mode(mode) => place(*mode).into_iter().cloned().collect(),
            Of::Difference(m, n) => match (place(*m), place(*n)) {
                (Some(x), Some(y)) => vec![x.clone(), y.clone()],
                _ => Vec::new(),
            },
            // Where the coordinates of chunks end up is seen when they are stored.
            Of::Tile(_) => return true,
        };
        if places.is_empty() {
            return true;
        }
        self.judge(site, coordinate, places);
        false
    }

    fn judge(&self, site: usize, coordinate: &Coordinate, places: Vec<Place>) {
        let bases: Option<Vec<&Expr>> = places.iter().map(|place| place.base.as_ref()).collect();
        let Some(bases) = bases else { return };
        if let [x, y] = bases.as_slice()
            && x == y
        {
            return;
        }
        let mut wanted = Movers::default();
        bases.iter().for_each(|base| wanted.add(&self.axes.movers(base)));
        // Counters of another role have other names for the same tiles.
        let visible = &self.axes.sites.all[site].counters;
        let known = wanted.counters.iter().all(|id| visible.iter().any(|c| c.symbol == *id));
        let named = match &coordinate.of {
            Of::Difference(..) => !coordinate.named.is_empty(),
            _ => wanted.within(&coordinate.named),
        };
        if known && !named && !wanted.is_empty() && !self.meet(site, &bases) {
            self.found.borrow_mut().push((site, coordinate.clone(), places));
        }
    }

    /// True in a branch that is taken only where two tiles begin at one place, or one at 0: there coordinates of tiles are as good as those of the tensor.
    fn meet(&self, site: usize, bases: &[&Expr]) -> bool {
        let sites = self.axes.sites;
        let conditions = &sites.all[site].conditions;
        let Some(sample) = sites.samples(&[]).into_iter().next().filter(|_| !conditions.is_empty()) else {
            return false;
        };
        let of: Vec<&Expr> = bases.iter().chain(conditions).copied().collect();
        let mut meet = true;
        let known = sites.points(&sample, &sites.all[site].counters, &of, &mut |point| {
            let taken = conditions.iter().all(|condition| condition.eval(point) != Some(0));
            let places: Vec<Option<i64>> = bases.iter().map(|base| base.eval(point)).collect();
            let together = match places.as_slice() {
                [Some(at)] => *at == 0,
                [Some(x), Some(y)] => x == y,
                _ => false,
            };
            meet &= !taken || together;
        });
        known && meet
    }

    /// Looks at what is stored: there coordinates meet the place where they end up.
    fn stores(&self) {
        for store in &self.axes.values.stores {
            let labels = self.axes.stored(store);
            for coordinate in self.coordinates(store.value) {
                match &coordinate.of {
                    Of::Tile(place) => {
                        // The counter is out of sight at the copy, and known where the coordinate was taken.
                        let site = self.axes.values.all[coordinate.from].site;
                        let moved = place.base.as_ref().map(|base| self.axes.movers(base));
                        let along = labels.iter().filter_map(Label::place).any(|to| {
                            to.base.as_ref().is_some_and(|to| {
                                moved.as_ref().is_some_and(|m| m.within(&self.axes.movers(to)))
                            })
                        });
                        if !along {
                            self.judge(site, &coordinate, vec![(**place).clone()]);
                        }
                    }
                    _ => {
                        self.is_open(store.site, &coordinate, &labels);
                    }
                }
            }
        }
    }

    /// The message of coordinates that one statement takes, each with the statement that uses it and the tile's places.
    fn report(&self, group: &[Found]) -> Option<Diagnostic> {
        let values = self.axes.values;
        let sites = self.axes.sites;
        let (site, first, _) = group.first()?;
        let made = values.all[first.from].site;
        let listed = |texts: Vec<String>| texts.join(" and ");
        let mut names: Vec<String> =
            group.iter().map(|(_, coordinate, _)| self.named_by(coordinate)).collect();
        names.dedup();
        let places = group.iter().flat_map(|(_, _, places)| places);
        let mut bases: Vec<String> = places
            .clone()
            .map(|place| format!("`{}` along {}", self.axes.base_text(place), self.axes.name(place)))
            .collect();
        let mut told = BTreeSet::new();
        bases.retain(|base| told.insert(base.clone()));
        let (count, stand) = if names.len() > 1 {
            ("count", "the same coordinates stand")
        } else {
            ("counts", "the same coordinate stands")
        };
        let message = format!(
            "{} {count} from the tile's first element, which lies at {}: {stand} for another element in every tile",
            listed(names),
            bases.join(" and at ")
        );
        let mut finding = Diagnostic::new(Code::TileCoordinate, sites.all[made].stmt.span, message)
            .help(self.remedy(group));
        if made != *site {
            finding = finding.related(sites.all[*site].stmt.span, "elements of the tensor are meant here");
        }
        let views: BTreeSet<_> = places.map(|place| place.view).collect();
        for view in views {
            let view = sites.program().tensor(view);
            finding = finding.related(view.span, format!("the tile of `{}`", view.name));
        }
        Some(finding)
    }

    fn named_by(&self, coordinate: &Coordinate) -> String {
        match self.axes.values.node(coordinate.from) {
            Node::Index(axis) => format!("`index({axis})`"),
            Node::Coordinate(op, ..) => format!("the coordinate that `{}` gives", op.name()),
            _ => "this coordinate".to_string(),
        }
    }

    /// Coordinates of the tensor in the place of those of the tile.
    fn remedy(&self, group: &[Found]) -> String {
        let values = self.axes.values;
        let base = |place: &Place| self.axes.base_text(place);
        if let [(_, row, at_row), (_, column, at_column)] = group
            && let ([row_place], [column_place]) = (at_row.as_slice(), at_column.as_slice())
            && let (Node::Index(m), Node::Index(n)) = (values.node(row.from), values.node(column.from))
        {
            let (row_base, column_base) = (base(row_place), base(column_place));
            // A tile's own numbering, rows of its length, where the tensor's rows are longer.
            let numbered = values.all.iter().any(|value| match &value.node {
                Node::Binary(BinaryOp::Mul, x, y) => [(x, y), (y, x)].into_iter().any(|(x, y)| {
                    values.plain(*x) == row.from && values.number(*y) == Some(column_place.len as f64)
                }),
                _ => false,
            });
            let extent = self.axes.extent_text(column_place);
            return if numbered {
                format!(
                    "add where the tile begins, and count rows of the tensor, which have `{extent}` elements: \
                     `({row_base} + index({m})) * {extent} + {column_base} + index({n})`"
                )
            } else {
                format!(
                    "add where the tile begins: `{row_base} + index({m})` and `{column_base} + index({n})`"
                )
            };
        }
        let Some((_, coordinate, places)) = group.first() else { return String::new() };
        match (&coordinate.of, values.node(coordinate.from), places.as_slice()) {
            (Of::Difference(m, n), _, [x, y]) => {
                format!("compare `{} + index({m})` with `{} + index({n})`", base(x), base(y))
            }
            (_, Node::Index(axis), [place]) => {
                format!("add where the tile begins: `{} + index({axis})`", base(place))
            }
            (_, _, [place, ..]) => format!("add where the tile begins: `… + {}`", base(place)),
            _ => "add where the tile begins".to_string(),
        }
    }
}

/// Coordinates within a tile that are used as if they were those of the tensor.
pub(super) fn of_tiles(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let axes = Axes::of(sites);
    let count = axes.values.all.len();
    let analysis = Analysis {
        axes: &axes,
        known: RefCell::new(vec![None; count]),
        open: RefCell::default(),
        found: RefCell::default(),
    };
    (0..count).for_each(|id| drop(analysis.coordinates(id)));
    analysis.stores();
    let mut found = analysis.found.take();
    let made = |(_, coordinate, _): &Found| analysis.axes.values.all[coordinate.from].site;
    found.sort_by_key(|of| (made(of), of.0));
    // One message for the statement that takes coordinates, of what uses each of them first.
    let groups = found.chunk_by(|x, y| made(x) == made(y));
    groups
        .filter_map(|group| {
            let mut each: Vec<Found> = Vec::new();
            for of in group {
                if !each.iter().any(|(_, known, _)| known.from == of.1.from) {
                    each.push(of.clone());
                }
            }
            each.sort_by_key(|(_, coordinate, _)| coordinate.from);
            analysis.report(&each)
        })
        .collect()
}
