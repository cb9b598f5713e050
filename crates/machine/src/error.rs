//! Error bounds of approximate instructions: the largest distance of a result from the exact one.

use std::fmt;

use crate::scalar::ScalarOp;

/// A bound on the distance of an approximation of y = f(x) from y:
/// `relative` · |y| + `per_argument` · |x| · |y| + `absolute`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErrorBound {
    /// The relative error: a part of the exact result.
    pub relative: f64,
    /// By how much that part grows with the size of the argument.
    pub per_argument: f64,
    /// The absolute error, in addition.
    pub absolute: f64,
}

impl ErrorBound {
    /// A bound relative to the result.
    pub fn relative(relative: f64) -> Self {
        ErrorBound { relative, per_argument: 0.0, absolute: 0.0 }
    }

    /// The bound at argument `x`, where the exact result is `y`. Zeros and infinities of infinite arguments are exact.
    pub fn at(self, x: f64, y: f64) -> f64 {
        if x.is_infinite() {
            return 0.0;
        }
        let size = y.abs().min(f64::MAX);
        (self.relative + self.per_argument * x.abs()) * size + self.absolute
    }
}

impl fmt::Display for ErrorBound {
    /// `2^-22.5 |y| + 2^-23.7 |x y| + 2^-147`, of y = f(x).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = |factor: f64| {
            let exponent = format!("{:.1}", factor.log2());
            format!("2^{}", exponent.trim_end_matches('0').trim_end_matches('.'))
        };
        let terms = [(self.relative, " |y|"), (self.per_argument, " |x y|"), (self.absolute, "")];
        let terms: Vec<String> = terms
            .into_iter()
            .filter(|(factor, _)| *factor > 0.0)
            .map(|(factor, of)| format!("{}{of}", power(factor)))
            .collect();
        f.write_str(&if terms.is_empty() { "0".to_string() } else { terms.join(" + ") })
    }
}

impl ScalarOp {
    /// Largest distance of the result from the exact one, on a GPU and on the simulator; `None` if the PTX ISA defines every bit.
    ///
    /// Source: PTX ISA 8.1, sections 9.7.3.14 (`rcp`), 9.7.3.17 (`rsqrt`), 9.7.3.18 (`sin`), 9.7.3.19 (`cos`),
    /// 9.7.3.20 (`lg2`), 9.7.3.21 (`ex2`) and 9.7.3.8 (`div.approx`). The
    /// simulator's own results are within a unit in the last place.
    pub fn error(self) -> Option<ErrorBound> {
        // The least normal number, below which `.ftz` gives 0.
        let flushed = 2f64.powi(-126);
        match self {
            ScalarOp::Ex2FtzF32 => {
                Some(ErrorBound { absolute: flushed, ..ErrorBound::relative(2f64.powf(-22.5)) })
            }
            ScalarOp::RcpFtzF32 => {
                Some(ErrorBound { absolute: flushed, ..ErrorBound::relative(2f64.powi(-23)) })
            }
            ScalarOp::RsqrtF32 | ScalarOp::RsqrtFtzF32 => Some(ErrorBound::relative(2f64.powf(-22.9))),
            ScalarOp::Lg2F32 | ScalarOp::Lg2FtzF32 => {
                Some(ErrorBound { absolute: 2f64.powf(-22.6), ..ErrorBound::relative(2f64.powi(-22)) })
            }
            ScalarOp::SinF32 | ScalarOp::CosF32 => {
                Some(ErrorBound { absolute: 2f64.powf(-20.5), ..ErrorBound::relative(0.0) })
            }
            ScalarOp::DivApproxFtzF32 => {
                Some(ErrorBound { absolute: flushed, ..ErrorBound::relative(2f64.powi(-22)) })
            }
            _ => None,
        }
    }
}
