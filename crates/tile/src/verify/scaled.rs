//! Products with scales of blocks along K of both factors.

use tilewright_machine::{
    Memory, MmaKind, SumsScaling, has_scaled_tcgen05, mma_rows, product_needs, scaled_types,
};

use super::checker::{Checker, shape_text};
use super::operands::Operand;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::{TensorId, TensorRef};

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
            self.unfit([acc, left, right, &of_left, &of_right], names, span);
            return;
        };
        let alike = of_left.dtype == of_right.dtype;
        if !alike || product_needs([left.dtype, right.dtype], acc.dtype, kind).is_none() {
            let message = format!(
                "there is no gemm of {} with {} of {} into {}",
                both_types(left, right),
                both_types(&of_left, &of_right),
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

    /// `gemm.async(c, a, b, scales = (sa, sb))` with its sums in tensor memory, whose factors fit.
    pub(super) fn scaled_sums(
        &mut self,
        [(c, acc), (a, left), (b, right)]: [(TensorId, &Operand); 3],
        scales: &[TensorRef; 2],
        span: Origin,
    ) {
        if left.memory == Memory::Tensor {
            let name = self.name(a);
            let message = format!(
                "a product with scales reads its factors from shared memory; `{name}` is in tensor memory"
            );
            let help = "read the left factor from a shared tensor, or multiply without scales";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        let operands = scales.each_ref().map(|scale| self.reference(scale, span));
        let [Some(of_left), Some(of_right)] = operands else { return };
        let names = [c, a, b, scales[0].tensor, scales[1].tensor].map(|id| self.name(id));
        let both = [(&of_left, names[3]), (&of_right, names[4])];
        if let Some((operand, name)) = both.into_iter().find(|(operand, _)| operand.memory != Memory::Shared)
        {
            let message = format!(
                "the scales of a product into tensor memory are read from shared memory; `{name}` is in {} memory",
                operand.memory
            );
            let help = "copy them to a shared tensor, a stage of the factors' pipeline";
            self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
            return;
        }
        let (k, blocks) = (left.shape[1], of_left.shape.get(1).copied().unwrap_or(0));
        // Scales come to tensor memory by so many rows, of which the product reads the factor's.
        let of_rows = |scales: &Operand, rows: i64| {
            scales.shape == [rows, blocks] || scales.shape == [SumsScaling::rows_for(rows), blocks]
        };
        let fits = of_rows(&of_left, left.shape[0]) && of_rows(&of_right, right.shape[0]);
        let Some(scaling) = SumsScaling::new(of_left.dtype, k, blocks).filter(|_| fits) else {
            self.unfit([acc, left, right, &of_left, &of_right], names, span);
            return;
        };
        let alike = of_left.dtype == of_right.dtype;
        if !alike || !has_scaled_tcgen05(left.dtype, right.dtype, acc.dtype, scaling) {
            let message = format!(
                "there is no gemm.async of {} with {} of {} into {} in tensor memory",
                both_types(left, right),
                both_types(&of_left, &of_right),
                k / blocks,
                acc.dtype
            );
            let help = "e4m3 or e5m2 with ue8m0 of 32, or e2m1 with ue8m0 of 32 or ue4m3 of 16, into f32";
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
    }

    /// Reports scales of a product of warpgroups.
    pub(super) fn scales_of_warpgroups(&mut self, c: TensorId, scale: &TensorRef, span: Origin) {
        let (name, scale) = (self.name(c), self.name(scale.tensor));
        let message = format!(
            "a product of warpgroups has no scales: `{scale}` are given, and `{name}` is in {} memory",
            self.program.tensor(c).memory()
        );
        let help = format!(
            "let `{name}` be in tensor memory (sm_100a), or multiply by `gemm`, which has scales on sm_120a"
        );
        self.report(Diagnostic::new(Code::WrongMemory, span, message).help(help));
    }

    /// Reports the shapes of a product with scales.
    fn unfit(&mut self, operands: [&Operand; 5], names: [&str; 5], span: Origin) {
        let list: Vec<String> = operands
            .into_iter()
            .zip(names)
            .map(|(operand, name)| format!("`{name}` {}", shape_text(&operand.shape)))
            .collect();
        let message = format!("the shapes of this block-scaled product do not fit: {}", list.join(", "));
        self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(SHAPES));
    }
}

/// The type of both operands, or those of each.
fn both_types(x: &Operand, y: &Operand) -> String {
    match x.dtype == y.dtype {
        true => x.dtype.to_string(),
        false => format!("{} and {}", x.dtype, y.dtype),
    }
}
