//! Leaves as kernels: the statements of a leaf between copies of its formals, which the tile verifier checks and the tile interpreter
//! runs. So one piece of code defines what a statement means, in a leaf and in a tile program.

use std::collections::{BTreeMap, HashSet};

use tilewright_tile::statement::ShapeOp;
use tilewright_tile::{
    Constants, CopyAttrs, Diagnostic, Diagnostics, Expr, Origin, Param, ParamId, ParamKind, StmtKind, Tensor,
    TensorId, TensorKind, TensorRef, Unnamed, Verified, ViewLeaf, ViewMode,
};

use crate::environment::Environment;
use crate::passes::depend::operands;
use crate::program::{FormalKind, Leaf, LeafFormal, Privilege, Program, Task, Variant};

/// A leaf as a kernel of one block.
#[derive(Clone, Debug)]
pub struct LeafKernel {
    /// The kernel.
    pub verified: Verified,
    /// The parameter of each formal, in the order of [`Task::formals`].
    pub params: Vec<ParamId>,
}

/// The threads of the block: the interpreter has none, and the verifier wants some.
const THREADS: i64 = 32;

/// The leaf of a variant, for values of the constants of the text and of the task's extents by name. A formal that is read is copied in from a
/// parameter of its shape and one that is written copied out; an `add` formal is 0 at first.
///
/// # Errors
///
/// Mistakes that the tile verifier finds.
pub fn kernel(
    task: &Task,
    variant: &Variant,
    leaf: &Leaf,
    values: &Constants,
) -> Result<LeafKernel, Diagnostics> {
    let mut program = leaf.fragment.clone();
    program.name = format!("{}_{}", task.name, variant.name);
    program.grid = vec![Expr::Int(1)];
    program.threads = Expr::Int(THREADS);
    let mut taken: HashSet<String> = program.symbols.iter().map(|row| row.name.clone()).collect();
    taken.extend(program.params.iter().map(|row| row.name.clone()));
    taken.extend(program.tensors.iter().map(|row| row.name.clone()));
    let mut fresh = |base: &str| {
        let mut name = format!("{base}_");
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        name
    };
    let (mut before, mut behind, mut params) = (Vec::new(), Vec::new(), Vec::new());
    for (formal, meaning) in task.formals.iter().zip(&leaf.formals) {
        let (register, privilege, dtype) = match (meaning, &formal.kind) {
            (LeafFormal::Scalar(param), _) => {
                params.push(*param);
                continue;
            }
            (LeafFormal::Tensor(tensor), FormalKind::Tensor { privilege, dtype, .. }) => {
                (*tensor, *privilege, *dtype)
            }
            (LeafFormal::Tensor(_), _) => {
                return Err(Diagnostic::internal(formal.span, "a formal of a leaf of another kind").into());
            }
        };
        let span = formal.span;
        let TensorKind::Register { shape, .. } = program.tensor(register).kind.clone() else {
            return Err(Diagnostic::internal(span, "a formal that is no register tensor").into());
        };
        let param = ParamId(program.params.len() as u32);
        params.push(param);
        let kind = ParamKind::Tensor { shape: shape.clone(), strides: None, array: false, constant: false };
        program.params.push(Param { name: fresh(&formal.name), dtype, kind, span });
        let view = TensorId(program.tensors.len() as u32);
        let mode = |(dim, extent): (u32, &Expr)| ViewMode {
            leaves: vec![ViewLeaf { extent: extent.clone(), dim, scale: Expr::Int(1) }],
        };
        let kind = TensorKind::View {
            param,
            offsets: vec![Expr::Int(0); shape.len()],
            ends: vec![None; shape.len()],
            modes: (0..).zip(&shape).map(mode).collect(),
            fold: Vec::new(),
        };
        program.tensors.push(Tensor {
            name: fresh(&formal.name),
            dtype,
            kind,
            span,
            unnamed: Unnamed::default(),
        });
        before.extend([StmtKind::Define(view), StmtKind::Define(register)].map(|kind| (kind, span)));
        let [outside, inside] = [view, register].map(TensorRef::whole);
        let copy = |src, dst| (StmtKind::Copy { src, dst, how: CopyAttrs::default() }, span);
        match privilege {
            Privilege::Read | Privilege::ReadWrite => before.push(copy(outside.clone(), inside.clone())),
            Privilege::Add => before.push((StmtKind::Fill { dst: register, value: 0.0 }, span)),
            Privilege::Write => {}
        }
        if privilege.writes() {
            behind.push(copy(inside, outside));
        }
    }
    let mut around = |statements: Vec<(StmtKind, Origin)>| -> Vec<tilewright_tile::Stmt> {
        statements.into_iter().map(|(kind, span)| program.statement(kind, span)).collect()
    };
    let (mut body, behind) = (around(before), around(behind));
    body.append(&mut program.body);
    body.extend(behind);
    program.body = body;
    Ok(LeafKernel { verified: tilewright_tile::verify(&program, values)?, params })
}

/// Tensors of a leaf that are a formal transposed, which the leaf reads alone: views of it, each with the formal's register tensor.
pub(crate) fn transposed(leaf: &Leaf) -> BTreeMap<TensorId, TensorId> {
    let mut used = Vec::new();
    leaf.fragment.body.iter().for_each(|stmt| operands(stmt, true, &mut used));
    let written = |tensor: TensorId| used.iter().filter(|(of, _, writes)| *of == tensor && *writes).count();
    let formal = |tensor: TensorId| leaf.formals.contains(&LeafFormal::Tensor(tensor));
    let view = |stmt: &tilewright_tile::Stmt| match &stmt.kind {
        StmtKind::Shape { dst, src, op: ShapeOp::Transpose(_) }
            if !formal(*dst) && formal(*src) && (written(*src), written(*dst)) == (0, 1) =>
        {
            Some((*dst, *src))
        }
        _ => None,
    };
    leaf.fragment.body.iter().filter_map(view).collect()
}

impl Leaf {
    /// The values of constants of the fragment by name: those of the symbols of the task program that they stand for.
    ///
    /// # Errors
    ///
    /// A symbol without a value.
    pub fn constants(&self, program: &Program, values: &Environment) -> Result<Constants, Diagnostic> {
        let value = |(inside, outside): &(tilewright_tile::SymbolId, tilewright_tile::SymbolId)| {
            let symbol = program.symbol(*outside);
            let value = values.0.get(outside.0 as usize).copied().flatten();
            let value =
                value.ok_or_else(|| Diagnostic::internal(symbol.span, "a constant without a value"))?;
            Ok((self.fragment.symbol(*inside).name.clone(), value))
        };
        self.symbols.iter().map(value).collect()
    }
}
