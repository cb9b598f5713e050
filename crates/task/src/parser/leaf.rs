//! Leaves: statements of the tile language, with the formals of the task as their names.

use std::collections::BTreeMap;

use tilewright_machine::DType;
use tilewright_tile::{Expr, FragmentFormal, ParamId, SymbolId, TensorId};

use super::{Reader, Res};
use crate::program::{FormalKind, Leaf, LeafFormal, SymbolKind, TaskId};

impl Reader<'_> {
    /// A block of statements of the tile language; the variant's name is passed.
    pub(super) fn leaf(&mut self, id: TaskId, name: &str) -> Res<Leaf> {
        let task = self.tasks[id.index()].clone();
        let mut formals = Vec::new();
        let mut symbols: Vec<(SymbolId, SymbolId)> = Vec::new();
        let mut numbers: BTreeMap<SymbolId, SymbolId> = BTreeMap::new();
        for (i, (row, kind)) in self.cursor.symbols().iter().zip(&self.kinds).enumerate() {
            let outside = SymbolId(i as u32);
            let default = match kind {
                SymbolKind::Constant(default) => renumbered(default, &numbers),
                SymbolKind::Extent if task.extents.contains(&outside) => Expr::Int(1),
                _ => continue,
            };
            let inside = SymbolId(symbols.len() as u32);
            symbols.push((inside, outside));
            numbers.insert(outside, inside);
            formals.push(FragmentFormal::Constant { name: row.name.clone(), default, span: row.span });
        }
        for number in &self.numbers {
            let (name, span) = (number.name.clone(), number.span);
            formals.push(FragmentFormal::Number { name, value: number.value, span });
        }
        let (mut tensors, mut scalars) = (0, 0);
        let mut meanings = Vec::new();
        for formal in &task.formals {
            let (name, span) = (formal.name.clone(), formal.span);
            let mut scalar = |dtype| {
                meanings.push(LeafFormal::Scalar(ParamId(scalars)));
                scalars += 1;
                FragmentFormal::Scalar { name: name.clone(), dtype, span }
            };
            formals.push(match &formal.kind {
                FormalKind::Float(_) => scalar(DType::F32),
                FormalKind::Integer(_) => scalar(DType::I32),
                FormalKind::Tensor { dtype, shape, .. } => {
                    meanings.push(LeafFormal::Tensor(TensorId(tensors)));
                    tensors += 1;
                    let shape = shape.iter().map(|extent| renumbered(extent, &numbers)).collect();
                    FragmentFormal::Tensor { name, dtype: *dtype, shape, span }
                }
            });
        }
        let fragment = self.cursor.fragment(name, &formals)?;
        Ok(Leaf { fragment, formals: meanings, symbols })
    }
}

/// The expression with other numbers for its symbols. One without is a place holder of a mistake.
fn renumbered(expr: &Expr, numbers: &BTreeMap<SymbolId, SymbolId>) -> Expr {
    expr.substitute(&|id| Some(numbers.get(&id).map_or(Expr::Int(1), |id| Expr::Symbol(*id))))
}
