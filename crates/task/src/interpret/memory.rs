//! The tensors of a run, their views, and footprints: which iterations of the loops around have touched which elements.

use tilewright_machine::{DType, Elements};
use tilewright_tile::{Code, Diagnostic, Origin, SymbolId};

use super::unknown;
use crate::partition::Partition;
use crate::program::Program;

/// A place outside of the tensor.
const OUTSIDE: u32 = u32::MAX;
/// No iteration.
const NOBODY: u32 = u32::MAX;

/// A part of a tensor: the elements at compact coordinates, the last mode fastest.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) object: usize,
    pub(super) shape: Vec<i64>,
    /// For each element its number in the tensor.
    places: Vec<u32>,
}

impl View {
    /// The same shape with no elements.
    pub(super) fn absent(mut self) -> View {
        self.places.fill(OUTSIDE);
        self
    }

    /// A piece of a partition of this view. The partition has the piece.
    pub(super) fn part(&self, partition: &Partition, colour: &[i64]) -> View {
        let rank = self.shape.len();
        // Each index of a mode with the coordinates that it adds.
        let table = |mode: &crate::partition::Mode, indices: std::ops::Range<i64>| -> Vec<Vec<i64>> {
            let coordinates = |i| {
                let at = mode.layout.eval(i);
                (0..rank).map(|d| at.component(d)).collect()
            };
            indices.map(coordinates).collect()
        };
        let mut start = vec![0; rank];
        for (mode, at) in partition.colour_modes().iter().zip(colour) {
            for step in table(mode, *at..*at + 1) {
                start.iter_mut().zip(step).for_each(|(sum, step)| *sum += step);
            }
        }
        let shape: Vec<i64> = partition.shape().iter().map(|extent| extent.unwrap_or(1)).collect();
        let modes = partition.point_modes().iter().zip(&shape);
        let tables: Vec<Vec<Vec<i64>>> = modes.map(|(mode, extent)| table(mode, 0..*extent)).collect();
        let mut coordinates = vec![start];
        for table in &tables {
            let with = |at: &Vec<i64>| -> Vec<Vec<i64>> {
                table.iter().map(|step| at.iter().zip(step).map(|(a, b)| a + b).collect()).collect()
            };
            coordinates = coordinates.iter().flat_map(with).collect();
        }
        let place = |at: &Vec<i64>| {
            let inside = at.iter().zip(&self.shape).all(|(at, extent)| (0..*extent).contains(at));
            let number = at.iter().zip(&self.shape).fold(0, |number, (at, extent)| number * extent + at);
            if inside { self.places[number as usize] } else { OUTSIDE }
        };
        let places = coordinates.iter().map(place).collect();
        View { object: self.object, shape, places }
    }

    fn inside(&self) -> impl Iterator<Item = usize> + '_ {
        self.places.iter().filter(|place| **place != OUTSIDE).map(|place| *place as usize)
    }
}

/// A tensor.
struct Object {
    dtype: DType,
    shape: Vec<i64>,
    elements: Elements,
    /// The elements that something has written.
    written: Vec<bool>,
}

/// An element for messages: its coordinate.
pub(super) struct Element(Vec<i64>);

impl Element {
    pub(super) fn text(&self) -> String {
        let numbers: Vec<String> = self.0.iter().map(i64::to_string).collect();
        format!("element [{}]", numbers.join(", "))
    }
}

/// A use of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Read,
    Write,
    Add,
}

/// An iteration that has touched an element, and another one if there is.
type Touch = [u32; 2];

/// A `prange` that runs: who has touched the tensors that were there when it began.
struct Parallel {
    span: Origin,
    counters: Vec<SymbolId>,
    ranges: Vec<(i64, i64)>,
    /// The number of the iteration at hand.
    iteration: u32,
    /// Per tensor, per element: the iterations that have read it, written it, added to it.
    touched: Vec<[Vec<Touch>; 3]>,
}

/// Two iterations that touch one element.
pub(super) struct Clash {
    span: Origin,
    counters: Vec<SymbolId>,
    iterations: [Vec<i64>; 2],
    element: Element,
    adds: bool,
}

impl Clash {
    pub(super) fn message(self, program: &Program, at: Origin) -> Diagnostic {
        let names: Vec<&str> = self.counters.iter().map(|id| program.symbol(*id).name.as_str()).collect();
        let tuple = |values: &[i64]| {
            let values: Vec<String> = values.iter().map(i64::to_string).collect();
            if values.len() == 1 { values[0].clone() } else { format!("({})", values.join(", ")) }
        };
        let named = if names.len() == 1 { names[0].to_string() } else { format!("({})", names.join(", ")) };
        let message = format!(
            "iterations {named} = {} and {} of `prange` both touch {}, and one of them {}",
            tuple(&self.iterations[0]),
            tuple(&self.iterations[1]),
            self.element.text(),
            if self.adds { "adds to it" } else { "writes it" },
        );
        Diagnostic::new(Code::ParallelWrites, at, message).related(self.span, "the loop").help(format!(
            "give each iteration a part of its own, or pass the argument in one of them: `… when {} == 0`",
            names.last().unwrap_or(&"i")
        ))
    }
}

/// The tensors of a run.
#[derive(Default)]
pub(super) struct Memory {
    objects: Vec<Object>,
    parallel: Vec<Parallel>,
}

impl Memory {
    /// A new tensor; without elements, with unknown ones.
    pub(super) fn object(&mut self, dtype: DType, shape: &[i64], elements: Option<Elements>) -> View {
        let count = shape.iter().product::<i64>() as usize;
        let written = vec![elements.is_some(); count];
        let elements = elements.unwrap_or_else(|| unknown(dtype, count));
        self.objects.push(Object { dtype, shape: shape.to_vec(), elements, written });
        View { object: self.objects.len() - 1, shape: shape.to_vec(), places: (0..count as u32).collect() }
    }

    /// The number of tensors, to which [`Memory::release`] goes back.
    pub(super) fn mark(&self) -> usize {
        self.objects.len()
    }

    /// Ends the life of newer tensors.
    pub(super) fn release(&mut self, mark: usize) {
        self.objects.truncate(mark);
    }

    pub(super) fn dtype(&self, object: usize) -> DType {
        self.objects[object].dtype
    }

    pub(super) fn elements(&self, object: usize) -> &Elements {
        &self.objects[object].elements
    }

    /// Makes the elements unknown.
    pub(super) fn forget(&mut self, view: &View) {
        let object = &mut self.objects[view.object];
        for at in view.inside() {
            object.written[at] = false;
            if let Elements::Floats(values) = &mut object.elements {
                values[at] = f64::NAN;
            }
        }
    }

    /// An element that nothing has written.
    pub(super) fn unwritten(&self, view: &View) -> Option<Element> {
        let object = &self.objects[view.object];
        view.inside().find(|at| !object.written[*at]).map(|at| object.element(at))
    }

    /// An element that both have.
    pub(super) fn common(&self, a: &View, b: &View) -> Option<Element> {
        let object = &self.objects[a.object];
        let mut of_first = vec![false; object.written.len()];
        a.inside().for_each(|at| of_first[at] = true);
        b.inside().find(|at| of_first[*at]).map(|at| object.element(at))
    }

    /// The elements of a view; 0 for those outside, and for all of them where asked.
    pub(super) fn gather(&self, view: &View, zero: bool) -> Elements {
        let outside = |place: &u32| zero || *place == OUTSIDE;
        match &self.objects[view.object].elements {
            Elements::Floats(values) => Elements::Floats(
                view.places.iter().map(|at| if outside(at) { 0.0 } else { values[*at as usize] }).collect(),
            ),
            Elements::Integers(values) => Elements::Integers(
                view.places.iter().map(|at| if outside(at) { 0 } else { values[*at as usize] }).collect(),
            ),
        }
    }

    /// Writes the elements of a view, or adds to them.
    pub(super) fn scatter(&mut self, view: &View, from: &Elements, add: bool) {
        let object = &mut self.objects[view.object];
        for (k, at) in view.places.iter().enumerate().filter(|(_, at)| **at != OUTSIDE) {
            let at = *at as usize;
            object.written[at] |= !add;
            match (&mut object.elements, from) {
                (Elements::Floats(to), Elements::Floats(from)) if add => {
                    to[at] = sum(object.dtype, to[at], from[k]);
                }
                (Elements::Floats(to), Elements::Floats(from)) => to[at] = from[k],
                (Elements::Integers(to), Elements::Integers(from)) if add => {
                    let sum = object.dtype.encode_integer(to[at].wrapping_add(from[k]));
                    to[at] = object.dtype.decode_integer(sum);
                }
                (Elements::Integers(to), Elements::Integers(from)) => to[at] = from[k],
                // A leaf's parameter has the type of its argument.
                _ => {}
            }
        }
    }

    // Footprints.

    pub(super) fn begin_parallel(&mut self, span: Origin, counters: &[SymbolId], ranges: &[(i64, i64)]) {
        let nobody = |object: &Object| [(); 3].map(|()| vec![[NOBODY; 2]; object.written.len()]);
        let touched = self.objects.iter().map(nobody).collect();
        let (counters, ranges) = (counters.to_vec(), ranges.to_vec());
        self.parallel.push(Parallel { span, counters, ranges, iteration: 0, touched });
    }

    pub(super) fn iteration(&mut self, number: u64) {
        if let Some(innermost) = self.parallel.last_mut() {
            innermost.iteration = number as u32;
        }
    }

    pub(super) fn end_parallel(&mut self) {
        self.parallel.pop();
    }

    /// Notes an access in every `prange` around; an error where another iteration has touched an element.
    pub(super) fn access(&mut self, view: &View, access: Access) -> Result<(), Clash> {
        for parallel in &mut self.parallel {
            let Some([read, written, added]) = parallel.touched.get_mut(view.object) else { continue };
            let iteration = parallel.iteration;
            for at in view.inside() {
                let others = match access {
                    Access::Read => [[NOBODY; 2], written[at], added[at]],
                    Access::Write => [read[at], written[at], added[at]],
                    Access::Add => [read[at], written[at], [NOBODY; 2]],
                };
                let other = others.into_iter().flatten().find(|other| ![NOBODY, iteration].contains(other));
                if let Some(other) = other {
                    let element = self.objects[view.object].element(at);
                    let values = |number: u32| {
                        let mut rest = i64::from(number);
                        let mut values: Vec<i64> = Vec::new();
                        for (lo, hi) in parallel.ranges.iter().rev() {
                            values.push(lo + rest % (hi - lo));
                            rest /= hi - lo;
                        }
                        values.reverse();
                        values
                    };
                    let mut numbers = [other, iteration];
                    numbers.sort_unstable();
                    return Err(Clash {
                        span: parallel.span,
                        counters: parallel.counters.clone(),
                        iterations: numbers.map(values),
                        element,
                        adds: access == Access::Add,
                    });
                }
                let seen = match access {
                    Access::Read => &mut read[at],
                    Access::Write => &mut written[at],
                    Access::Add => &mut added[at],
                };
                match seen {
                    [first, _] if *first == NOBODY || *first == iteration => *first = iteration,
                    [_, second] => *second = iteration,
                }
            }
        }
        Ok(())
    }
}

/// The sum of two elements as a memory adds them: rounded, or modulo 2ⁿ.
fn sum(dtype: DType, a: f64, b: f64) -> f64 {
    if dtype.range().is_some() {
        return dtype.decode_integer(dtype.encode_integer((a + b) as i128)) as f64;
    }
    tilewright_tile::interpret::round(dtype, a + b)
}

impl Object {
    fn element(&self, at: usize) -> Element {
        let mut rest = at as i64;
        let mut coordinate = Vec::new();
        for extent in self.shape.iter().rev() {
            coordinate.push(rest % extent);
            rest /= extent;
        }
        coordinate.reverse();
        Element(coordinate)
    }
}
