//! Factors as tensor cores multiply them: parts of those in f32, and real numbers for complex ones. A complex product is one of real numbers, of twice the
//! columns and twice k.

use tilewright_machine::DType;

use super::{Dual, FillMode, Form, HopperGemmConfig, Part, Precision, Triangle};
use crate::config::ConfigError;
use crate::warp_specialized::{Major, Term, bytes_of};

/// Returns whether numbers of a type are copied to one of 8 bits, in which they are multiplied.
pub(super) fn is_six(dtype: DType) -> bool {
    matches!(dtype, DType::E3M2 | DType::E2M3)
}

impl HopperGemmConfig {
    /// Parts of a factor, which are multiplied by those of the other.
    pub(super) fn parts(&self) -> usize {
        self.precision.parts()
    }

    /// The types of a and b that are multiplied. Numbers of `e3m2` are numbers of `e5m2` too, and those of `e2m3` of `e4m3`: in a byte each they take as much room, and
    /// no instruction reads them so from shared memory.
    pub(super) fn multiplied(&self) -> [DType; 2] {
        let of = |dtype| match dtype {
            DType::F32 => self.precision.part(),
            DType::E3M2 => DType::E5M2,
            DType::E2M3 => DType::E4M3,
            _ => dtype,
        };
        [of(self.dtype), of(self.right())]
    }

    /// Bytes of so many elements that are multiplied.
    pub(super) fn multiplied_bytes(&self, elements: i64) -> i64 {
        bytes_of(elements, self.multiplied()[0])
    }

    /// The products of a step along k, by the tiles of A's parts and those of B, its parts or its second matrix.
    pub(super) fn terms(&self) -> Vec<Term> {
        match self.second() {
            Some(second) => (0..2).map(|b| Term { a: 0, b, second: b == 1 && !second.added }).collect(),
            None => {
                self.precision.products().into_iter().map(|[a, b]| Term { a, b, second: false }).collect()
            }
        }
    }

    /// Returns whether the sums of a stage are added to others in f32 by the threads.
    pub(super) fn promotes(&self) -> bool {
        self.promote.unwrap_or(self.parts() > 1 && self.form == Form::Wgmma)
    }

    /// The factors that are multiplied from a copy with lines along k, whichever way they lie.
    fn repacked(&self) -> [bool; 2] {
        // `wgmma` reads TF32 along k; `tcgen05` has a swizzle for the other way.
        let k_major = self.dtype == DType::F32 && self.form != Form::Tcgen05 || self.complex;
        let [across_a, across_b] = [self.a, self.b].map(|major| k_major && major != Major::K);
        let [other_a, other_b] = [self.dtype, self.right()].map(|dtype| self.parts() > 1 || is_six(dtype));
        [other_a || across_a, other_b || across_b || self.complex]
    }

    /// The factors that a kernel ahead copies: those of [`pack`](Self::pack), and those that are multiplied in another form than they have.
    pub(super) fn packs(&self) -> [bool; 2] {
        let ([a, b], [of_a, of_b]) = (self.pack.factors(), self.repacked());
        [a || of_a, (b || of_b) && !self.squares()]
    }

    /// Checks that no factor is copied ahead, which a product of nested modes, one program, has no kernel for.
    pub(crate) fn check_uncopied(&self, instead: &str) -> Result<(), ConfigError> {
        let six = [("dtype", self.dtype), ("dtype_b", self.right())].into_iter().find(|(_, of)| is_six(*of));
        let (field, value, wanted) = if let Some((field, of)) = six {
            let eight = if of == DType::E3M2 { DType::E5M2 } else { DType::E4M3 };
            (field, of.to_string(), format!("{eight}, which has its numbers"))
        } else if self.complex {
            ("complex", true.to_string(), "false".to_string())
        } else if self.parts() > 1 {
            ("precision", self.precision.to_string(), Precision::default().to_string())
        } else {
            return Ok(());
        };
        Err(ConfigError::value(field, value, format!("{instead}: must be {wanted}")))
    }

    /// The modes along which the factors that are multiplied are contiguous.
    pub(super) fn majors(&self) -> [Major; 2] {
        let a = if self.repacked()[0] { Major::K } else { self.a };
        let b = if self.repacked()[1] { Major::K } else { self.b };
        [a, if self.squares() { a } else { b }]
    }

    /// The sizes of the product of real numbers.
    pub(super) fn real(&self, [m, n, k]: [i64; 3]) -> [i64; 3] {
        if self.complex { [m, 2 * n, 2 * k] } else { [m, n, k] }
    }

    /// Checks what f32 and complex numbers go with.
    pub(super) fn check_precision(&self, custom: bool) -> Result<(), ConfigError> {
        let f32 = self.dtype == DType::F32;
        if !f32 && self.precision != Precision::default() {
            let wanted = format!("{} is multiplied as it is: must be {}", self.dtype, Precision::default());
            return Err(ConfigError::value("precision", self.precision, wanted));
        }
        let promote = |wanted: &str| Err(ConfigError::value("promote", true, wanted));
        if self.promotes() && self.multiplies_integers() {
            return promote("sums of integers are exact: must be false");
        }
        if self.promotes() && self.dual.sums() > 1 {
            return promote("a thread has registers for two sums: must be false with two sums of dual");
        }
        if self.parts() > 1 && self.dual != Dual::None {
            let wanted =
                format!("the factors are split into parts with precision={}: must be none", self.precision);
            return Err(ConfigError::value("dual", self.dual, wanted));
        }
        if self.sums_a && (f32 && self.packs()[0] || self.complex) {
            let wanted = "adds up tiles of a as they lie in memory: must be false with complex, and where a is split or transposed";
            return Err(ConfigError::value("sums_a", true, wanted));
        }
        let six = [self.dtype, self.right()].map(is_six);
        if six != [false; 2] && self.sums_a {
            let wanted = "adds up tiles of a as they lie in memory: must be false with floats of six bits";
            return Err(ConfigError::value("sums_a", true, wanted));
        }
        if six != [false; 2] && !self.form.tiles() {
            let wanted = format!("form={} has no copy of factors: must be no float of six bits", self.form);
            return Err(ConfigError::value("dtype", self.dtype, wanted));
        }
        if f32 && !self.form.tiles() {
            let wanted = format!("form={} multiplies 16-bit floats: must be f16 or bf16", self.form);
            return Err(ConfigError::value("dtype", self.dtype, wanted));
        }
        self.check_complex(custom)
    }

    fn check_complex(&self, custom: bool) -> Result<(), ConfigError> {
        for (field, conjugate) in [("conj_a", self.conj_a), ("conj_b", self.conj_b)] {
            if conjugate && !self.complex {
                return Err(ConfigError::value(field, true, "says nothing of real numbers: must be false"));
            }
        }
        let real = |part: &Part| {
            !matches!(part, Part::Alpha | Part::RowScale | Part::Bias | Part::Residual | Part::Beta)
        };
        let wanted = if !self.complex {
            return Ok(());
        } else if self.dtype.bits() < 16 {
            "complex numbers are pairs of f16, bf16 or f32: dtype must be one of them".to_string()
        } else if !self.form.tiles() {
            "form must be wgmma or tcgen05".to_string()
        } else if self.dual != Dual::None {
            "the second matrix is read where it lies: dual must be none".to_string()
        } else if self.fill != FillMode::Full || self.triangular != Triangle::None {
            "triangles are of real numbers: fill must be full, and triangular none".to_string()
        } else if let Some(part) = self.epilogue.parts().find(real) {
            format!(
                "`{}` is of real numbers: epilogue must be of alpha, row_scale, bias, residual and beta",
                part.name()
            )
        } else if custom {
            "an operation of one's own, or function, is of real numbers: must be none".to_string()
        } else {
            return Ok(());
        };
        Err(ConfigError::value("complex", true, wanted))
    }
}
