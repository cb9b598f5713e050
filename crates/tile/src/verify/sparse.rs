//! Products with a sparse left factor, of which two elements of every four along K are there.

use tilewright_machine::{Memory, MmaKind, Sparsity, mmas_of, product_needs, product_types, wgmmas};

use super::checker::{Checker, shape_text};
use super::operands::Operand;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::TensorId;

/// The shapes of a product with a sparse left factor.
const SHAPES: &str = "shapes are c: [M, N], a: [M, K / 2], b: [N, K], meta: [M, K / 2]";

/// The types of asynchronous products with a sparse left factor.
const ASYNCHRONOUS: &str = "f16 and f16, or 8-bit floats, into f32 or f16; bf16 and bf16 into f32; i8 and i8, or u8 and u8, into i32";

impl Checker<'_> {
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
        if metadata.dtype != Sparsity::META {
            let message = format!(
                "the metadata of `{word}` are {}; `{}` is {}",
                Sparsity::META,
                names[3],
                metadata.dtype
            );
            let help = "the fourth operand has for each element of a sparse left factor its place in its group of four, 0 to 3";
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
            return;
        }
        let (m, n) = (&acc.shape, &right.shape);
        let columns = n[1] / Sparsity::GROUP * Sparsity::KEPT;
        let fits = m[0] == left.shape[0]
            && m[1] == n[0]
            && left.shape[1] == columns
            && n[1] % Sparsity::GROUP == 0
            && metadata.shape == left.shape;
        if !fits {
            let list: Vec<String> = [acc, left, right, &metadata]
                .into_iter()
                .zip(names)
                .map(|(operand, name)| format!("`{name}` {}", shape_text(&operand.shape)))
                .collect();
            let message = format!("the shapes of this sparse product do not fit: {}", list.join(", "));
            self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(SHAPES));
        }
        let asynchronous = word == "gemm.async";
        let known = match asynchronous {
            true => wgmmas(left.dtype, right.dtype, acc.dtype, true).next().is_some(),
            false => product_needs([left.dtype, right.dtype], acc.dtype, MmaKind::Sparse).is_some(),
        };
        if !known {
            let message =
                format!("there is no sparse {word} of {} and {} into {}", left.dtype, right.dtype, acc.dtype);
            let help = match asynchronous {
                true => ASYNCHRONOUS.to_string(),
                false => format!("factors of one type: {}", product_types(mmas_of(MmaKind::Sparse))),
            };
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
        if c == a || (c == b && right.memory == Memory::Register) {
            let message = format!("the accumulator `{}` is also a factor", names[0]);
            self.report(
                Diagnostic::new(Code::BadValue, span, message)
                    .help("copy the factor to another register tensor"),
            );
        }
    }
}
