//! `print`: what the simulator shows of registers and shared memory, with the layouts by which it finds elements.

use tilewright_machine::Memory;
use tilewright_simt::{Print, PrintItem, Reg};
use tilewright_tile::core::{Core, Stmt, TensorRef};
use tilewright_tile::{Diagnostic, Iteration, PrintItem as Item};

use crate::context::{Lower, internal};
use crate::elements;

impl Lower<'_> {
    /// `print(text, items)`. Copies in flight are not waited for.
    pub(crate) fn print(
        &mut self,
        stmt: &Stmt,
        items: &[Item<Core>],
        iteration: &Option<Iteration>,
    ) -> Result<(), Diagnostic> {
        let mut operands = vec![self.thread()];
        let counters = iteration.as_deref().unwrap_or_default();
        for (_, value) in counters {
            operands.push(self.expr(value));
        }
        let mut shown = Vec::new();
        for item in items {
            shown.push(match item {
                Item::Integer(value) => {
                    operands.push(self.expr(value));
                    PrintItem::Integer
                }
                Item::Tensor { of, extents } => self.printed(stmt, of, extents, &mut operands)?,
            });
        }
        let statement = self.verified.statements.written(stmt.id).number();
        self.b.print(Print { statement, counters: counters.len() as u32, items: shown }, operands);
        Ok(())
    }

    fn printed(
        &mut self,
        stmt: &Stmt,
        of: &TensorRef,
        extents: &Option<Vec<i64>>,
        operands: &mut Vec<tilewright_simt::Operand>,
    ) -> Result<PrintItem, Diagnostic> {
        let (dtype, whole) = (self.verified.tensor(of.tensor).dtype, self.verified.shape(of.tensor));
        if self.verified.tensor(of.tensor).memory() == Memory::Register {
            let tv = self.synthesis.register(of.tensor);
            let tv = tv.ok_or_else(|| internal(stmt.span, "a register tensor without a layout"))?.clone();
            let array = self.array(of.tensor)?;
            let registers = elements::registers(tv.count() as u32, dtype.bits());
            operands.extend((0..registers).map(|index| self.b.read(Reg { array, index })));
            return Ok(PrintItem::Registers {
                dtype,
                threads: tv.threads().clone(),
                values: tv.values().clone(),
                shape: extents.clone().unwrap_or_else(|| whole.clone()),
                tile: whole,
            });
        }
        let layout = self.synthesis.shared(of.tensor);
        let layout = layout.ok_or_else(|| internal(stmt.span, "a shared tensor without a layout"))?.0.clone();
        let buffer = self.memory.offsets[of.tensor.0 as usize];
        for entry in of.index.iter().flatten() {
            operands.push(self.coord(entry, stmt.span)?);
        }
        let fixed = (0..whole.len()).map(|mode| of.index.get(mode).is_some_and(Option::is_some)).collect();
        Ok(PrintItem::Shared { dtype, buffer, layout, tile: whole, fixed })
    }
}
