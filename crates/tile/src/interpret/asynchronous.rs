//! Asynchronous copies and products of a role: from the statement to the wait that covers it.

use super::bound::Element;
use super::error::{InterpretError, Underway};
use super::flight::{Effect, InFlight, Mark, Touched};
use super::gemm::{Left, gemm, scaled};
use super::op::{How, Metadata, Product, Side, Tile};
use super::quote::Quote;
use super::ring::Ring;
use super::role::Role;

impl<'a> Role<'a> {
    /// An error where an element of the tile is in flight: what is read must not be on its way, what is written must not be read
    /// either.
    pub(super) fn landed(
        &self,
        tile: &Tile,
        access: &'static str,
        statement: &Quote,
    ) -> Result<(), InterpretError> {
        let (awaited, held) = (&self.awaited[tile.tensor], &self.held[tile.tensor]);
        let held = if access == "writes" { held.as_slice() } else { &[] };
        if awaited.is_empty() && held.is_empty() {
            return Ok(());
        }
        let places = self.places(tile, statement)?;
        let at = |marks: &[Option<Mark>], place: usize| marks.get(place).copied().flatten();
        let mark = places.into_iter().find_map(|place| at(awaited, place).or(at(held, place)));
        mark.map_or(Ok(()), |mark| {
            Err(InterpretError::InFlight {
                statement: statement.clone(),
                access,
                tensor: tile.name.clone(),
                flight: self.plan.flights[mark.flight].clone(),
                state: Box::new(self.underway(mark)),
            })
        })
    }

    /// The state of what is under way.
    fn underway(&self, mark: Mark) -> Underway {
        let all = [&self.copies, &self.products];
        let has = |flights: &[InFlight<'_>]| flights.iter().any(|flight| flight.mark == mark);
        let product = has(&all[1].open) || all[1].groups.iter().any(|group| has(group));
        let groups = &all[usize::from(product)].groups;
        let later = groups.iter().rev().position(|group| has(group));
        Underway { product, later, waited: self.waited[usize::from(product)] }
    }

    /// Those places of the current instance of the tensor.
    fn touched(&self, tensor: usize, places: Vec<usize>) -> Touched {
        Touched { tensor, instance: self.instance[tensor], places }
    }

    /// Marks what an asynchronous copy or product writes and reads, until it lands.
    fn take_off(
        &mut self,
        flight: usize,
        effect: Effect<'a>,
        writes: Option<Touched>,
        reads: Vec<Touched>,
    ) -> InFlight<'a> {
        self.serial += 1;
        let mark = Mark { serial: self.serial, flight };
        let tiles = &self.tiles;
        let set = |marks: &mut Vec<Vec<Option<Mark>>>, touched: &Touched| {
            let marks = &mut marks[touched.tensor];
            marks.resize(tiles[touched.tensor].len().max(marks.len()), None);
            touched.places.iter().for_each(|&place| marks[place] = Some(mark));
        };
        writes.iter().for_each(|part| set(&mut self.awaited, part));
        reads.iter().for_each(|part| set(&mut self.held, part));
        InFlight { mark, effect, writes, reads, stages: Vec::new() }
    }

    /// Completes an asynchronous copy or product.
    pub(super) fn land(&mut self, flight: InFlight<'a>, rings: &mut [Ring]) {
        if let Some(watch) = &mut self.watch {
            watch.at(self.plan.flight_statements[flight.mark.flight]);
        }
        // A later one may have marked the same places.
        let clear = |marks: &mut Vec<Option<Mark>>, places: &[usize]| {
            for &place in places {
                if let Some(slot) = marks.get_mut(place) {
                    *slot = slot.filter(|mark| *mark != flight.mark);
                }
            }
        };
        let write = |tile: &mut Vec<Element>, places: &[usize]| {
            if let Effect::Tile { values } = &flight.effect {
                places.iter().zip(values).for_each(|(place, x)| tile[*place] = *x);
            }
        };
        for Touched { tensor, instance, places } in flight.writes.iter() {
            if self.instance[*tensor] == *instance {
                write(&mut self.tiles[*tensor], places);
                clear(&mut self.awaited[*tensor], places);
            } else if let Some(stored) = self.stored.get_mut(&(*tensor, *instance)) {
                write(&mut stored.tile, places);
                clear(&mut stored.awaited, places);
            }
        }
        for Touched { tensor, instance, places } in &flight.reads {
            if self.instance[*tensor] == *instance {
                clear(&mut self.held[*tensor], places);
            } else if let Some(stored) = self.stored.get_mut(&(*tensor, *instance)) {
                clear(&mut stored.held, places);
            }
        }
        if let Effect::Global { access, corner, values, combine } = flight.effect {
            self.store(access, &corner, &values, combine);
        }
        for (pipeline, stage) in flight.stages {
            if let Some(reader) = self.plan.pipelines[pipeline].reader(self.number) {
                rings[pipeline].complete(reader, stage);
            }
        }
    }

    /// An error where a copy to global memory is still in flight.
    pub(super) fn stores_are_done(&self) -> Result<(), InterpretError> {
        let mut flights = self.copies.groups.iter().flatten().chain(&self.copies.open);
        flights.find(|flight| matches!(flight.effect, Effect::Global { .. })).map_or(Ok(()), |flight| {
            Err(InterpretError::NeverWaitedFor { flight: self.plan.flights[flight.mark.flight].clone() })
        })
    }

    /// The left factor of a product of `m` rows.
    pub(super) fn left<'t>(
        &self,
        a: &'t [Element],
        sparse: Option<&Metadata>,
        m: usize,
    ) -> Result<Left<'t>, InterpretError> {
        let Some(Metadata { tensor, name, text }) = sparse else { return Ok(Left::dense(a)) };
        Left::sparse(a, &self.tiles[*tensor], m).map_err(|at| InterpretError::Disorder {
            statement: text.clone(),
            meta: name.clone(),
            row: at.row,
            group: at.group,
            places: at.places,
        })
    }

    pub(super) fn gemm_async(
        &mut self,
        product: &'a Product,
        rings: &mut [Ring],
    ) -> Result<(), InterpretError> {
        let text = &self.plan.flights[product.flight];
        let mut factors = [Vec::new(), Vec::new()];
        let (mut reads, mut stages) = (Vec::new(), Vec::new());
        for (side, factor) in [&product.a, &product.b].into_iter().zip(&mut factors) {
            self.fetch(side, factor, 0.0, text)?;
        }
        let of_factors = factors.iter_mut().zip([product.shape[0], product.shape[1]]);
        for (side, (factor, rows)) in product.scales.iter().flatten().zip(of_factors) {
            let mut scales = Vec::new();
            self.fetch(side, &mut scales, 0.0, text)?;
            *factor = scaled(factor, &scales, rows, product.blocks);
        }
        let read = if product.flies { product.reads.as_slice() } else { &[] };
        for place in read {
            reads.push(self.touched(place.tensor, self.places(place, text)?));
            let holds = self.plan.pipelines.iter().position(|pipeline| pipeline.has(place.tensor));
            if let Some(pipeline) = holds
                && let Some(reader) = self.plan.pipelines[pipeline].reader(self.number)
                && let Some(stage) = rings[pipeline].hold(reader)
            {
                stages.push((pipeline, stage));
            }
        }
        let [a, b] = factors;
        let a = self.left(&a, product.sparse.as_deref(), product.shape[0])?;
        let mut c = std::mem::take(&mut self.tiles[product.c]);
        gemm(&mut c, a, &b, product.shape, product.how);
        self.tiles[product.c] = c;
        if !product.flies {
            return Ok(());
        }
        let place = self.touched(product.place.tensor, self.places(&product.place, text)?);
        let flight = self.take_off(product.flight, Effect::Nothing, Some(place), reads);
        self.products.open.push(InFlight { stages, ..flight });
        Ok(())
    }

    pub(super) fn copy_async(
        &mut self,
        src: &'a Side,
        dst: &'a Side,
        how: How,
        flight: usize,
    ) -> Result<(), InterpretError> {
        let text = &self.plan.flights[flight];
        let mut values = Vec::new();
        self.fetch(src, &mut values, how.outside, text)?;
        let reads = match src {
            Side::Tile(tile) => vec![self.touched(tile.tensor, self.places(tile, text)?)],
            Side::Global(_) => Vec::new(),
        };
        let (effect, writes) = match dst {
            Side::Tile(tile) => {
                self.landed(tile, "writes", text)?;
                let places = self.places(tile, text)?;
                (Effect::Tile { values }, Some(self.touched(tile.tensor, places)))
            }
            Side::Global(access) => {
                let (corner, combine) = (self.corner(access)?, how.combine);
                (Effect::Global { access, corner, values, combine }, None)
            }
        };
        let flight = self.take_off(flight, effect, writes, reads);
        self.copies.open.push(flight);
        Ok(())
    }
}
