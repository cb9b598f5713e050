//! Checks of tuples that a function of the program puts together.

use tilewright_machine::DType;

use super::checker::{Checker, shape_text};
use super::operands::Site;
use super::shapes::without;
use crate::arith::{combined, combined_in};
use crate::diagnostic::{Code, Diagnostic};
use crate::elementwise::{Combination, ElemExpr};
use crate::program::{CombineForm, TensorId};

impl Checker<'_> {
    /// `m, s = reduce((x, e), f, axis)`, `m, s = scan((x, e), f, axis)`.
    pub(super) fn combine(
        &mut self,
        (dsts, srcs): (&[TensorId], &[TensorId]),
        by: &Combination,
        (axis, form): (u32, CombineForm),
        mut site: Site<'_>,
    ) {
        let before = self.errors.len();
        let mut shape = self.tuple(srcs, axis, &site);
        self.function((dsts, srcs), by, &site);
        if !self.distinct(dsts, &mut site) {
            return;
        }
        if self.errors.len() > before {
            shape = None;
        }
        for (dst, src) in dsts.iter().zip(srcs) {
            let result = shape.clone().map(|shape| match form {
                CombineForm::Reduce => without(shape, axis),
                CombineForm::Scan { .. } => shape,
            });
            self.result(*dst, &[*src], result, true, &mut site);
        }
    }

    /// `cluster_reduce((m, s), f)`.
    pub(super) fn cluster_combine(&mut self, dsts: &[TensorId], by: &Combination, mut site: Site<'_>) {
        self.outside_of_stages("cluster_reduce", site.span);
        self.alike(dsts, &site);
        self.function((dsts, dsts), by, &site);
        self.distinct(dsts, &mut site);
    }

    /// Asks that no tensor is two results.
    fn distinct(&mut self, dsts: &[TensorId], site: &mut Site<'_>) -> bool {
        let twice = dsts.iter().enumerate().find(|(i, dst)| dsts[..*i].contains(dst));
        if let Some((_, dst)) = twice {
            let message = format!("`{}` is to be two results of `{}`", self.name(*dst), site.statement);
            let error = Diagnostic::new(Code::DuplicateName, site.span, message);
            self.report(error.help("give the results two names"));
        }
        twice.is_none()
    }

    /// The shape of the operands, if they have one and its mode.
    fn tuple(&mut self, srcs: &[TensorId], axis: u32, site: &Site<'_>) -> Option<Vec<i64>> {
        let (first, shape) = self.alike(srcs, site)?;
        self.axis(site.statement, self.name(first), axis, shape.len(), site.span).then_some(shape)
    }

    /// The first of the tensors that a function puts together, and the shape of all.
    fn alike(&mut self, srcs: &[TensorId], site: &Site<'_>) -> Option<(TensorId, Vec<i64>)> {
        let (span, statement) = (site.span, site.statement);
        let mut found: Option<(TensorId, Vec<i64>)> = None;
        let mut whole = true;
        for src in srcs {
            let Some(operand) = self.register(*src, span, statement) else {
                whole = false;
                continue;
            };
            if combined_in(operand.dtype).is_none() {
                let message = format!(
                    "functions put together floats and integers of 32 and 64 bits; `{}` is {}",
                    self.name(*src),
                    operand.dtype
                );
                self.report(
                    Diagnostic::new(Code::TypeMismatch, span, message).help("cast it to f32 or to i32 first"),
                );
                whole = false;
            }
            match &found {
                None => found = Some((*src, operand.shape)),
                Some((first, shape)) if *shape != operand.shape => {
                    let message = format!(
                        "the operands of `{statement}` have one shape: `{}` has {}, `{}` has {}",
                        self.name(*first),
                        shape_text(shape),
                        self.name(*src),
                        shape_text(&operand.shape)
                    );
                    let help = "give them one shape: `broadcast` the smaller one";
                    self.report(Diagnostic::new(Code::ShapeMismatch, span, message).help(help));
                    whole = false;
                }
                Some(_) => {}
            }
        }
        found.filter(|_| whole)
    }

    /// The function takes two tuples, gives one, and reads nothing else.
    fn function(&mut self, (dsts, srcs): (&[TensorId], &[TensorId]), by: &Combination, site: &Site<'_>) {
        let span = site.span;
        if by.results.len() != srcs.len() || dsts.len() != srcs.len() {
            let message = format!(
                "`{}` of {} tensors has {} results, and its function returns {}",
                site.statement,
                srcs.len(),
                dsts.len(),
                by.results.len()
            );
            let help =
                "the function takes two tuples and returns one: `fn f(m1, s1, m2, s2) { return …, … }`";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
            return;
        }
        if by.size() > Combination::MAX_SIZE {
            let message = format!("the function has more than {} operators", Combination::MAX_SIZE);
            self.report(Diagnostic::new(Code::BadValue, span, message).help("make its expressions smaller"));
            return;
        }
        let mut others = false;
        for result in &by.results {
            result.visit(&mut |leaf| {
                others |= matches!(leaf, ElemExpr::Tensor(_) | ElemExpr::Index(_));
                self.elem_leaf(leaf, span);
            });
        }
        if others {
            let message = "the function reads tensors or coordinates that are no operands of it".to_string();
            let help = "what it puts together are its parameters alone: make what it needs an operand";
            self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
            return;
        }
        let dtypes: Vec<DType> = srcs.iter().map(|src| self.program.tensor(*src).dtype).collect();
        if dtypes.iter().all(|dtype| combined_in(*dtype).is_some())
            && let Err(clash) = combined(by, &dtypes, self.program)
        {
            self.type_clash(&clash, span);
        }
    }
}
