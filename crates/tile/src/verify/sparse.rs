//! Products with a sparse left factor, of which two elements of every four along K are there.

use tilewright_machine::{
    Memory, MmaKind, Sparsity, has_sparse_tcgen05, mmas_of, product_needs, product_types, wgmmas,
};

use super::checker::{Checker, shape_text};
use super::operands::Operand;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::{TensorId, TensorRef};

/// The shapes of a product with a sparse left factor.
const SHAPES: &str = "shapes are c: [M, N], a: [M, K / 2], b: [N, K], meta: [M, K / 2]";

/// The types of asynchronous products with a sparse left factor.
const ASYNCHRONOUS: &str = "f16 and f16, or 8-bit floats, into f32 or f16; bf16 and bf16 into f32; i8 and i8, or u8 and u8, into i32";

/// The types of products into tensor memory with a sparse left factor.
const INTO_TENSOR_MEMORY: &str = "f16 and f16, bf16 and bf16, or 8-bit floats, into f32; i8 and u8 into i32";

impl Checker<'_> {
    /// `gemm.async(c, a, b, meta)` with its sums in tensor memory, of matrices.
    pub(super) fn sparse_sums(
        &mut self,
        [(c, acc), (a, left), (b, right)]: [(TensorId, &Operand); 3],
        (meta, scales): (TensorId, Option<&[TensorRef; 2]>),
        span: Origin,
    ) {
        let names = [c, a, b, meta].map(|id| self.name(id));
        if let Some([scale, _]) = scales {
            let message = format!(
                "a sparse product has no scales; `{}` has metadata, `{}`, and scales, `{}`",
                names[1],
                names[3],
                self.name(scale.tensor)
            );
            let help = "leave the metadata out, or multiply the factor by its scales before";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
            return;
        }
        let reference = TensorRef { span, ..TensorRef::whole(meta) };
        let Some(metadata) = self.reference(&reference, span) else { return };
        if metadata.memory != Memory::Tensor {
            let message = format!(
                "the metadata of a product into tensor memory are read from there; `{}` is in {} memory",
                names[3], metadata.memory
            );
            let help = "copy them to `places = tensor_memory(u2, [M, K / 2])`, the stage of a pipeline that threads fill";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        self.sparse_operands(
            "gemm.async",
            [acc, left, right, &metadata].into_iter().zip(names).collect::<Vec<_>>().as_slice(),
            (has_sparse_tcgen05(left.dtype, right.dtype, acc.dtype), " in tensor memory", INTO_TENSOR_MEMORY),
            span,
        );
    }

    /// `gemm(c, a, b, meta)` or `gemm.async(c, a, b, meta)` of matrices.
    pub(super) fn sparse_gemm(
        &mut self,
        word: &str,
        [(c, acc), (a, left), (b, right)]: [(TensorId, &Operand); 3],
        meta: TensorId,
        span: Origin,
    ) {
        let Some(metadata) = self.register(meta, span, word) else { return };
        let names = [c, a, b, meta].map(|id| self.name(id));
        let types;
        let (known, help) = match word == "gemm.async" {
            true => (wgmmas(left.dtype, right.dtype, acc.dtype, true).next().is_some(), ASYNCHRONOUS),
            false => {
                types = format!("factors of one type: {}", product_types(mmas_of(MmaKind::Sparse)));
                let row = product_needs([left.dtype, right.dtype], acc.dtype, MmaKind::Sparse);
                (row.is_some(), types.as_str())
            }
        };
        let operands: Vec<(&Operand, &str)> = [acc, left, right, &metadata].into_iter().zip(names).collect();
        if !self.sparse_operands(word, &operands, (known, "", help), span) {
            return;
        }
        if c == a || (c == b && right.memory == Memory::Register) {
            let message = format!("the accumulator `{}` is also a factor", names[0]);
            self.report(
                Diagnostic::new(Code::BadValue, span, message)
                    .help("copy the factor to another register tensor"),
            );
        }
    }

    /// Checks the types and the shapes of C, A, B and metadata, with their names, of which instructions are `known` or not; false where metadata are none.
    fn sparse_operands(
        &mut self,
        word: &str,
        operands: &[(&Operand, &str)],
        (known, place, help): (bool, &str, &str),
        span: Origin,
    ) -> bool {
        let [(acc, _), (left, _), (right, _), (metadata, name)] = operands else { return false };
        if metadata.dtype != Sparsity::META {
            let message =
                format!("the metadata of `{word}` are {}; `{name}` is {}", Sparsity::META, metadata.dtype);
            let help = "the fourth operand has for each element of a sparse left factor its place in its group of four, 0 to 3";
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
            return false;
        }
        let (m, n) = (&acc.shape, &right.shape);
        let columns = n[1] / Sparsity::GROUP * Sparsity::KEPT;
        let fits = m[0] == left.shape[0]
            && m[1] == n[0]
            && left.shape[1] == columns
            && n[1] % Sparsity::GROUP == 0
            && metadata.shape == left.shape;
        if !fits {
            let list: Vec<String> = operands
                .iter()
                .map(|(operand, name)| format!("`{name}` {}", shape_text(&operand.shape)))
                .collect();
            let message = format!("the shapes of this sparse product do not fit: {}", list.join(", "));
            self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(SHAPES));
        }
        if !known {
            let message = format!(
                "there is no sparse {word} of {} and {} into {}{place}",
                left.dtype, right.dtype, acc.dtype
            );
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
        true
    }
}
