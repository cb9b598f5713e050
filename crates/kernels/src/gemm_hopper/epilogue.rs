//! What is done to the sums of a product before they are rounded and stored: a list of parts, applied in its order.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::DType;
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Elem, KernelBuilder, Tensor};

/// One step of an [`Epilogue`]. `v` is what there is so far, in f32; i counts rows and j columns of C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// `v · alpha`, a scalar parameter.
    Alpha,
    /// `v · row_scale[i]`, in f32.
    RowScale,
    /// `v · col_scale[j]`, in f32.
    ColScale,
    /// `v + bias[j]`, of C's type.
    Bias,
    /// `max(v, 0)`.
    Relu,
    /// `v · (1 + tanh(√(2/π) · (v + 0.044715 v³))) / 2`: the usual approximation of v·Φ(v).
    Gelu,
    /// `v / (1 + exp(−v))`.
    Silu,
    /// `v + residual[i, j]`, of C's type.
    Residual,
    /// `row_sums[i] += Σⱼ v`, in f32; `v` stays.
    RowSums,
    /// `col_sums[j] += Σᵢ v`, in f32; `v` stays.
    ColSums,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 10] = [
        Part::Alpha,
        Part::RowScale,
        Part::ColScale,
        Part::Bias,
        Part::Relu,
        Part::Gelu,
        Part::Silu,
        Part::Residual,
        Part::RowSums,
        Part::ColSums,
    ];

    /// The name, which is also that of the part's parameter if it has one.
    pub fn name(self) -> &'static str {
        match self {
            Part::Alpha => "alpha",
            Part::RowScale => "row_scale",
            Part::ColScale => "col_scale",
            Part::Bias => "bias",
            Part::Relu => "relu",
            Part::Gelu => "gelu",
            Part::Silu => "silu",
            Part::Residual => "residual",
            Part::RowSums => "row_sums",
            Part::ColSums => "col_sums",
        }
    }

    /// Of a part that reads or writes a vector: whether it lies along the columns of C rather than its rows.
    pub(super) fn vector(self) -> Option<bool> {
        match self {
            Part::RowScale | Part::RowSums => Some(false),
            Part::ColScale | Part::Bias | Part::ColSums => Some(true),
            _ => None,
        }
    }

    /// Whether the part adds to a vector of sums.
    pub(super) fn sums(self) -> bool {
        matches!(self, Part::RowSums | Part::ColSums)
    }

    /// The type of the part's parameter, where C has the type `out`.
    pub(super) fn dtype(self, out: DType) -> DType {
        if matches!(self, Part::Bias | Part::Residual) { out } else { DType::F32 }
    }

    /// What the part makes of `v`, given its operand where it has one.
    pub(super) fn apply(self, v: &Tensor, operand: Option<Elem>) -> Option<Elem> {
        let v = Elem::from(v);
        Some(match (self, operand) {
            (Part::Alpha | Part::RowScale | Part::ColScale, Some(operand)) => v * operand,
            (Part::Bias | Part::Residual, Some(operand)) => v + operand,
            (Part::Relu, None) => v.max(0.0),
            (Part::Gelu, None) => {
                // √(2/π), and the coefficient of the cube.
                let inner = (v.clone() * v.clone() * 0.044715 + 1.0) * v.clone() * 0.797_884_560_802_865_4;
                v * 0.5 * (inner.tanh() + 1.0)
            }
            (Part::Silu, None) => v.clone() / ((-v).exp() + 1.0),
            _ => return None,
        })
    }

    /// The same of one number.
    pub(super) fn of(self, v: f64, operand: f64) -> f64 {
        match self {
            Part::Alpha | Part::RowScale | Part::ColScale => v * operand,
            Part::Bias | Part::Residual => v + operand,
            Part::Relu => v.max(0.0),
            Part::Gelu => 0.5 * v * (1.0 + (0.797_884_560_802_865_4 * (v + 0.044715 * v * v * v)).tanh()),
            Part::Silu => v / (1.0 + (-v).exp()),
            Part::RowSums | Part::ColSums => v,
        }
    }
}

/// The parts that are applied to sums, in order; each at most once, and sums of rows and columns last.
///
/// The text form is `none`, or names joined with `+`: `alpha+bias+gelu+residual`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Epilogue {
    parts: [Option<Part>; Part::ALL.len()],
}

impl Epilogue {
    /// The epilogue of these parts, in order.
    ///
    /// # Errors
    ///
    /// A part that stands twice, one that changes `v` behind sums of it, and sums of columns behind a bias: tiles reach beyond the last
    /// row of C, where everything else is 0.
    pub fn new(parts: &[Part]) -> Result<Self, String> {
        let mut epilogue = Epilogue::default();
        for (i, part) in parts.iter().enumerate() {
            if parts[..i].contains(part) {
                return Err(format!("`{}` stands twice", part.name()));
            }
            if let Some(sums) = parts[..i].iter().find(|p| p.sums() && !part.sums()) {
                return Err(format!("`{}` stands behind `{}`, which must be last", part.name(), sums.name()));
            }
            if *part == Part::ColSums && parts[..i].contains(&Part::Bias) {
                return Err("`col_sums` behind `bias` would count rows outside of c, which have a bias too"
                    .to_string());
            }
            epilogue.parts[i] = Some(*part);
        }
        Ok(epilogue)
    }

    /// The parts in order.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        self.parts.into_iter().flatten()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts[0].is_none()
    }

    /// Whether a part is in it.
    pub fn has(&self, part: Part) -> bool {
        self.parts().any(|p| p == part)
    }
}

impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<_> = self.parts().map(Part::name).collect();
        f.write_str(&names.join("+"))
    }
}

impl FromStr for Epilogue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Epilogue::default());
        }
        let known = || Part::ALL.map(Part::name).join(", ");
        let part = |name: &str| {
            let found = Part::ALL.into_iter().find(|part| part.name() == name);
            found.ok_or_else(|| format!("must be none, or some of {} joined with `+`", known()))
        };
        Epilogue::new(&text.split('+').map(part).collect::<Result<Vec<_>, _>>()?)
    }
}

/// Makes the vector, which lies along mode `along` of `v`, f32 and as large as `v`.
pub(super) fn spread(
    t: &mut KernelBuilder,
    name: &str,
    vector: &Tensor,
    along: u32,
    shape: [&Expr; 2],
) -> Tensor {
    let wide = t.cast(&format!("{name}_f32"), vector, DType::F32);
    let column = t.expand(&format!("{name}_1"), &wide, 1 - along);
    t.broadcast(&format!("{name}_2"), &column, shape)
}
