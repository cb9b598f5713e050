//! The tables of a program in the order of its text.

use std::collections::BTreeMap;

use crate::expr::{Expr, SymbolId};
use crate::ids::{BarrierId, PipelineId, TensorId};
use crate::program::{Program, TensorKind};
use crate::statement::{OperandMut, Stmt};

/// New numbers, in the order in which they are asked for.
struct Numbers<T> {
    given: BTreeMap<u32, u32>,
    order: Vec<T>,
}

impl<T: Copy> Numbers<T> {
    fn new() -> Self {
        Numbers { given: BTreeMap::new(), order: Vec::new() }
    }

    fn of(&mut self, old: u32, id: T) -> u32 {
        let next = self.order.len() as u32;
        let given = *self.given.entry(old).or_insert(next);
        if given == next {
            self.order.push(id);
        }
        given
    }
}

struct Tables {
    symbols: Numbers<SymbolId>,
    tensors: Numbers<TensorId>,
    pipelines: Numbers<PipelineId>,
    barriers: Numbers<BarrierId>,
}

impl Program {
    /// The same program with its tables in the order in which its text declares what is in them, as the parser has them: sizes and constants stand
    /// before all other symbols, in their order. What no statement mentions goes.
    pub fn in_order(mut self) -> Program {
        let mut tables = Tables {
            symbols: Numbers::new(),
            tensors: Numbers::new(),
            pipelines: Numbers::new(),
            barriers: Numbers::new(),
        };
        let declared = self.sizes().map(|(id, ..)| id).chain(self.constants().map(|(id, ..)| id));
        let mut declared: Vec<SymbolId> = declared.collect();
        declared.sort();
        for id in declared {
            tables.symbols.of(id.0, id);
        }
        let mut body = std::mem::take(&mut self.body);
        self.number(&mut body, &mut tables);
        self.body = body;
        let Tables { symbols, tensors, pipelines, barriers } = tables;
        self.symbols = symbols.order.iter().map(|id| self.symbol(*id).clone()).collect();
        self.tensors = tensors.order.iter().map(|id| self.tensor(*id).clone()).collect();
        self.pipelines = pipelines.order.iter().map(|id| self.pipeline(*id).clone()).collect();
        self.barriers = barriers.order.iter().map(|id| self.barrier(*id).clone()).collect();
        let number = |id: SymbolId| {
            let new = symbols.given.get(&id.0).copied().unwrap_or(id.0);
            Some(Expr::Symbol(SymbolId(new)))
        };
        self.exprs_mut(&mut |expr| *expr = expr.substitute(&number));
        for tensor in &mut self.tensors {
            if let TensorKind::Part { of, .. } = &mut tensor.kind {
                of.0 = tensors.given.get(&of.0).copied().unwrap_or(of.0);
            }
        }
        for pipeline in &mut self.pipelines {
            for tensor in &mut pipeline.tensors {
                tensor.0 = tensors.given.get(&tensor.0).copied().unwrap_or(tensor.0);
            }
        }
        self
    }

    fn number(&self, body: &mut [Stmt], tables: &mut Tables) {
        let tensor = |id: &mut TensorId, tables: &mut Tables| {
            if let TensorKind::Part { of, .. } = self.tensor(*id).kind {
                tables.tensors.of(of.0, of);
            }
            id.0 = tables.tensors.of(id.0, *id);
        };
        for stmt in body {
            for operand in stmt.kind.operands_mut() {
                match operand {
                    OperandMut::Tensor(_, id) => tensor(id, tables),
                    OperandMut::Reference(_, reference) => {
                        tensor(&mut reference.tensor, tables);
                        if let Some(indexed) = &mut reference.indexed {
                            tensor(&mut indexed.by, tables);
                        }
                    }
                    OperandMut::Counter(_, id) => id.0 = tables.symbols.of(id.0, *id),
                    OperandMut::Pipeline(_, id) => id.0 = tables.pipelines.of(id.0, *id),
                    OperandMut::Barrier(_, id) => id.0 = tables.barriers.of(id.0, *id),
                    OperandMut::Body(body) => self.number(body, tables),
                    OperandMut::Constant(_)
                    | OperandMut::Expr(_)
                    | OperandMut::Scalar(_)
                    | OperandMut::Param(..) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn a_parsed_program_is_in_order() {
        let text = include_str!("../../../examples/gemm_hopper.tile");
        let program = parse(text).unwrap();
        assert_eq!(program.clone().in_order(), program);
    }
}
