//! Records of a `print`.

use tilewright_machine::printed::shown_coordinates;
use tilewright_machine::{DType, Elements, Printed, PrintedItem, PrintedTensor};

use super::error::InterpretError;
use super::op::{Printable, Printing, Tile};
use super::quote::Quote;
use super::role::Role;
use crate::expr::Expr;

/// Bits of the number of a record below those of the role.
const ROLE_SHIFT: u32 = 40;

impl Role<'_> {
    /// Makes a record of a `print`, if records are kept.
    pub(super) fn print(&mut self, of: &Printing) -> Result<(), InterpretError> {
        for item in &of.items {
            if let Printable::Tensor { tile, .. } = item {
                self.landed(tile, "reads", &of.text)?;
            }
        }
        let Some(log) = &self.plan.printed else { return Ok(()) };
        let number = (self.number as u64) << ROLE_SHIFT | self.printed;
        self.printed += 1;
        let block = self.index.map(|i| u32::try_from(i).unwrap_or(0));
        let locked = || log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !locked().keeps(block, number) {
            locked().leave_out();
            return Ok(());
        }
        let value = |e: &Expr| self.value(e, || "an integer that is printed".to_string());
        let iteration = of.iteration.iter().map(value).collect::<Result<_, _>>()?;
        let mut items = Vec::new();
        for item in &of.items {
            items.push(match item {
                Printable::Integer(e) => PrintedItem::Integer(value(e)?),
                Printable::Tensor { tile, dtype, shape, extents } => {
                    PrintedItem::Tensor(self.printed(tile, *dtype, (shape, extents), &of.text)?)
                }
            });
        }
        locked().push(number, Printed { statement: of.statement.number(), block, iteration, items });
        Ok(())
    }

    fn printed(
        &self,
        tile: &Tile,
        dtype: DType,
        (shape, extents): (&[i64], &[i64]),
        text: &Quote,
    ) -> Result<PrintedTensor, InterpretError> {
        let (places, from) = (self.places(tile, text)?, &self.tiles[tile.tensor]);
        let element = |at: &Vec<i64>| {
            let place = at.iter().zip(shape).rev().fold(0, |sum, (x, extent)| sum * extent + x);
            from.get(*places.get(place as usize)?).copied()
        };
        let shown = shown_coordinates(extents).iter().filter_map(element).collect::<Vec<_>>();
        let bounds = shown.iter().map(|x| x.bound as f32).collect();
        let elements = if dtype.is_wide_integer() {
            Elements::Integers(shown.into_iter().map(|x| x.integer()).collect())
        } else {
            Elements::Floats(shown.into_iter().map(|x| x.value).collect())
        };
        Ok(PrintedTensor { dtype, shape: extents.to_vec(), elements, bounds })
    }
}
