//! Orders loads and casts by the first use of their values in a matrix product.
//!
//! A statement on a whole fragment is many instructions, and a product many more. If what feeds a product is computed in the
//! order in which the product's instructions take it, the first of them may begin when the first registers are there, and the
//! assembler finds loads, conversions and products side by side.

use std::collections::HashMap;

use tilewright_synth::{Call, StmtPlan, Synthesis, moves, statements};
use tilewright_tile::TensorId;
use tilewright_tile::core::{Program, StmtKind};

/// For each tensor, for each value, the number of the first instruction of a product that takes it.
pub struct FirstUse(HashMap<TensorId, Vec<u32>>);

/// The numbers that belong to a result's values, by the operand's values, whose order a cast may change.
fn by_operand(synthesis: &Synthesis, (dst, src): (TensorId, TensorId), of: &[u32]) -> Vec<u32> {
    let order = match (synthesis.register(src), synthesis.register(dst)) {
        (Some(from), Some(to)) if !from.same_function(to) => moves(from, to, 1),
        _ => None,
    };
    let Some(order) = order else { return of.to_vec() };
    let mut used = vec![u32::MAX; of.len()];
    for (source, value) in order {
        used[source as usize] = of[value as usize];
    }
    used
}

impl FirstUse {
    /// The first uses of the operands of matrix products, and of the tensors that they are computed from value by value.
    pub fn of(verified: &Program, synthesis: &Synthesis) -> FirstUse {
        let mut first: HashMap<TensorId, Vec<u32>> = HashMap::new();
        let count = |id: TensorId| synthesis.register(id).map_or(0, |tv| tv.count());
        let statements = statements(verified);
        for (stmt, _) in &statements {
            let (StmtKind::Gemm { a, b, meta, scales, .. }, Some(StmtPlan::Gemm(plan))) =
                (&stmt.kind, synthesis.statements.get(stmt.id))
            else {
                continue;
            };
            for (i, call) in plan.calls.iter().enumerate() {
                let metadata = meta.map(|meta| (meta, &call.meta));
                let of_blocks = scales.iter().flatten().copied().zip(call.scales.iter().flatten());
                let factors = [(*a, &call.a), (*b, &call.b)];
                for (id, values) in factors.into_iter().chain(metadata).chain(of_blocks) {
                    let of = first.entry(id).or_insert_with(|| vec![u32::MAX; count(id)]);
                    for v in values {
                        of[*v as usize] = of[*v as usize].min(i as u32);
                    }
                }
            }
        }
        // Operands of a statement that computes value by value are used in the order of its result.
        for (stmt, _) in statements.iter().rev() {
            let (dst, sources) = match &stmt.kind {
                StmtKind::Cast { dst, src } => (*dst, vec![*src]),
                StmtKind::Elementwise { dst, expr } => (*dst, expr.tensors()),
                _ => continue,
            };
            let Some(of) = first.get(&dst).cloned() else { continue };
            for src in sources {
                if src != dst && count(src) == of.len() {
                    let used = by_operand(synthesis, (dst, src), &of);
                    first.entry(src).or_insert(used);
                }
            }
        }
        FirstUse(first)
    }

    /// The numbers of a fragment's registers, by their first use.
    pub fn registers(&self, tensor: TensorId, registers: u32, bits: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..registers).collect();
        if let Some(first) = self.0.get(&tensor) {
            let per = tilewright_machine::per_register(bits) as usize;
            let rank = |index: u32| first.chunks(per).nth(index as usize).and_then(|c| c.iter().min());
            order.sort_by_key(|index| (rank(*index).copied(), *index));
        }
        order
    }

    /// The number of the first instruction of a product that takes a value of a call.
    pub fn of_call(&self, tensor: TensorId, call: &Call) -> u32 {
        let first = self.0.get(&tensor);
        let of = |v: &u32| first.and_then(|first| first.get(*v as usize)).copied();
        call.values.iter().filter_map(of).min().unwrap_or(0)
    }

    /// The calls that load a fragment, by the first use of their values.
    pub fn calls<'c>(&self, tensor: TensorId, calls: &'c [Call]) -> Vec<&'c Call> {
        let mut order: Vec<&Call> = calls.iter().collect();
        if let Some(first) = self.0.get(&tensor) {
            order
                .sort_by_key(|call| call.values.iter().filter_map(|v| first.get(*v as usize)).min().copied());
        }
        order
    }
}
