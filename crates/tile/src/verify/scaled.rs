//! Products with scales of blocks along K of both factors.

use tilewright_machine::{MmaKind, mma_rows, product_needs, scaled_types};

use super::checker::{Checker, shape_text};
use super::operands::Operand;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::TensorId;

/// The shapes of a product with scales.
const SHAPES: &str =
    "shapes are c: [M, N], a: [M, K], b: [N, K], scales: [M, K / V] and [N, K / V], of blocks of V elements";

impl Checker<'_> {
    /// `gemm(c, a, b, scales = (sa, sb))` of matrices.
    pub(super) fn scaled_gemm(
        &mut self,
        [(c, acc), (a, left), (b, right)]: [(TensorId, &Operand); 3],
        (meta, scales): (Option<TensorId>, [TensorId; 2]),
        span: Origin,
    ) {
        if let Some(meta) = meta {
            let message =
                format!("a sparse product has no scales; `{}` is given as metadata", self.name(meta));
            let help = "leave the metadata out, or multiply the factor by its scales before";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
            return;
        }
        let operands = scales.map(|scale| self.register(scale, span, "gemm"));
        let [Some(of_left), Some(of_right)] = operands else { return };
        let names = [c, a, b, scales[0], scales[1]].map(|id| self.name(id));
        let (k, blocks) = (left.shape[1], of_left.shape.get(1).copied().unwrap_or(0));
        let fits = acc.shape == [left.shape[0], right.shape[0]]
            && right.shape[1] == k
            && of_left.shape == [left.shape[0], blocks]
            && of_right.shape == [right.shape[0], blocks];
        let kind = MmaKind::scaled(of_left.dtype, k, blocks).filter(|_| fits);
        let Some(kind) = kind else {
            let list: Vec<String> = [acc, left, right, &of_left, &of_right]
                .into_iter()
                .zip(names)
                .map(|(operand, name)| format!("`{name}` {}", shape_text(&operand.shape)))
                .collect();
            let message = format!("the shapes of this block-scaled product do not fit: {}", list.join(", "));
            self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(SHAPES));
            return;
        };
        let alike = left.dtype == right.dtype && of_left.dtype == of_right.dtype;
        if !alike || product_needs(left.dtype, acc.dtype, kind).is_none() {
            let both = |x: &Operand, y: &Operand| match x.dtype == y.dtype {
                true => x.dtype.to_string(),
                false => format!("{} and {}", x.dtype, y.dtype),
            };
            let message = format!(
                "there is no gemm of {} with {} of {} into {}",
                both(left, right),
                both(&of_left, &of_right),
                k / blocks,
                acc.dtype
            );
            let types = scaled_types(mma_rows().iter());
            let help = format!("factors of one type, scales of one, into f32: {types}");
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
        if c == a || c == b {
            let message = format!("the accumulator `{}` is also a factor", names[0]);
            self.report(
                Diagnostic::new(Code::BadValue, span, message)
                    .help("copy the factor to another register tensor"),
            );
        }
    }
}
