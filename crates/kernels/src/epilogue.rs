//! Epilogues: operations on the accumulators of a product before they are rounded and stored. A list of [`Part`]s is a parameter of
//! operators; an operation of one's own is an [`EpilogueOp`].

use std::fmt;
use std::str::FromStr;

use tilewright_machine::DType;
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Elem, KernelBuilder, Tensor};

/// The extent of an operand of an epilogue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OperandKind {
    /// A number, with its default.
    Scalar(f64),
    /// A value for each row of C: `[m]`; of batches `[l, m]`.
    Row,
    /// A value for each column of C: `[n]`; of batches `[l, n]`, of groups `[g, n]`.
    Column,
    /// A value for each element of C: `[m, n]`; of batches `[l, m, n]`.
    Matrix,
    /// The elements of C as they were, which it is computed from in place: no tensor beside C.
    Result,
}

impl OperandKind {
    /// Returns whether it is one number.
    pub(crate) fn is_scalar(self) -> bool {
        matches!(self, OperandKind::Scalar(_))
    }

    /// Returns whether it lies as C does.
    pub(crate) fn is_matrix(self) -> bool {
        matches!(self, OperandKind::Matrix | OperandKind::Result)
    }
}

/// A parameter that an epilogue reads.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// The name of the parameter.
    pub name: String,
    /// Its extent.
    pub kind: OperandKind,
    /// The type of its elements; the epilogue gets them as f32.
    pub dtype: DType,
}

impl Operand {
    /// An operand.
    pub fn new(name: &str, kind: OperandKind, dtype: DType) -> Self {
        Operand { name: name.to_string(), kind, dtype }
    }
}

/// A tile of values that an [`EpilogueOp`] is applied to.
pub struct EpilogueTile<'a> {
    /// The values, in f32: `shape` elements of the accumulators, or what the operation before has made of them.
    pub value: Tensor,
    /// The operands in the order of [`EpilogueOp::operands`], in f32 and of the same shape.
    pub operands: &'a [Elem],
    /// Rows and columns of the tile.
    pub shape: [&'a Expr; 2],
    /// The row and column of C of its first element.
    pub origin: [Expr; 2],
    /// The tile's rows are along the columns of C.
    pub transposed: bool,
    pub(crate) site: &'a str,
}

impl EpilogueTile<'_> {
    /// A name for a tensor that the operation makes: the names of a program are unique, and an operation may be applied at several of its
    /// places.
    pub fn name(&self, word: &str) -> String {
        format!("{word}{}", self.site)
    }
}

/// An operation on the accumulators of a product, element by element. Tiles reach beyond the last row and column of C: operands
/// read as 0 there, and what the operation makes of it is not stored.
///
/// Of a product with an operation of one's own: `out = residual + gate[n] · tanh(acc)`:
///
/// ```
/// use tilewright_kernels::epilogue::{EpilogueOp, EpilogueTile, Operand, OperandKind};
/// use tilewright_kernels::gemm_hopper::HopperGemmConfig;
/// use tilewright_machine::DType;
/// use tilewright_tile::dsl::{Elem, KernelBuilder};
///
/// struct Gated;
///
/// impl EpilogueOp for Gated {
///     fn name(&self) -> &str {
///         "gated"
///     }
///     fn operands(&self, out: DType) -> Vec<Operand> {
///         let gate = Operand::new("gate", OperandKind::Column, DType::F32);
///         vec![gate, Operand::new("residual", OperandKind::Matrix, out)]
///     }
///     fn apply(&self, _: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem {
///         &tile.operands[1] + &tile.operands[0] * tile.value.tanh()
///     }
///     fn reference(&self, value: f64, operands: &[f64], _: [usize; 2]) -> f64 {
///         operands[1] + operands[0] * value.tanh()
///     }
/// }
///
/// let config = HopperGemmConfig { stages: 3, ..HopperGemmConfig::default() };
/// let programs = config.programs_with(&[&Gated])?;
/// assert!(programs[0].to_string().contains("gate: f32[n], residual: f16[m, n]"));
/// # Ok::<(), tilewright_kernels::ConfigError>(())
/// ```
pub trait EpilogueOp {
    /// A name: that of the tensor with the operation's results.
    fn name(&self) -> &str;

    /// The parameters that it reads, of a product with results of type `out`.
    fn operands(&self, out: DType) -> Vec<Operand>;

    /// Writes the operation into a program: its results for the values of a tile.
    fn apply(&self, t: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem;

    /// The reference: the result for the value and the operands at a row and column of C.
    fn reference(&self, value: f64, operands: &[f64], at: [usize; 2]) -> f64;
}

/// A shipped operation of an [`Epilogue`]. `v` is the value so far, in f32; i counts rows and j columns of C.
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
    /// `v + beta · c[i, j]` with what C holds beforehand, in place; beta is a scalar parameter. With beta 0 it is still read.
    Beta,
    /// `row_sums[i] += Σⱼ v`, in f32; `v` stays.
    RowSums,
    /// `col_sums[j] += Σᵢ v`, in f32; `v` stays.
    ColSums,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 11] = [
        Part::Alpha,
        Part::RowScale,
        Part::ColScale,
        Part::Bias,
        Part::Relu,
        Part::Gelu,
        Part::Silu,
        Part::Residual,
        Part::Beta,
        Part::RowSums,
        Part::ColSums,
    ];

    /// The name, which is also that of the part's parameter if it has one.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Alpha => "alpha",
            Part::RowScale => "row_scale",
            Part::ColScale => "col_scale",
            Part::Bias => "bias",
            Part::Relu => "relu",
            Part::Gelu => "gelu",
            Part::Silu => "silu",
            Part::Residual => "residual",
            Part::Beta => "beta",
            Part::RowSums => "row_sums",
            Part::ColSums => "col_sums",
        }
    }

    /// Returns whether the part adds to a vector of sums; then it is no operation on the values.
    pub(crate) fn sums(self) -> bool {
        matches!(self, Part::RowSums | Part::ColSums)
    }

    /// Returns whether the part reads a matrix that lies as C does.
    pub(crate) fn reads_matrix(self) -> bool {
        matches!(self, Part::Residual | Part::Beta)
    }

    /// The parameter that the part adds, if there is one, where C has the type `out`.
    pub(crate) fn operand(self, out: DType) -> Option<Operand> {
        let (kind, dtype) = match self {
            Part::Alpha | Part::Beta => (OperandKind::Scalar(1.0), DType::F32),
            Part::RowScale | Part::RowSums => (OperandKind::Row, DType::F32),
            Part::ColScale | Part::ColSums => (OperandKind::Column, DType::F32),
            Part::Bias => (OperandKind::Column, out),
            Part::Residual => (OperandKind::Matrix, out),
            Part::Relu | Part::Gelu | Part::Silu => return None,
        };
        Some(Operand::new(self.name(), kind, dtype))
    }
}

impl EpilogueOp for Part {
    fn name(&self) -> &str {
        Part::name(*self)
    }

    fn operands(&self, out: DType) -> Vec<Operand> {
        let before = (*self == Part::Beta).then(|| Operand::new("c", OperandKind::Result, out));
        self.operand(out).into_iter().chain(before).collect()
    }

    fn apply(&self, _: &mut KernelBuilder, tile: &EpilogueTile<'_>) -> Elem {
        let v = Elem::from(tile.value);
        match (self, tile.operands) {
            (Part::Alpha | Part::RowScale | Part::ColScale, [operand]) => v * operand,
            (Part::Bias | Part::Residual, [operand]) => v + operand,
            (Part::Beta, [beta, before]) => v + beta * before,
            _ => self.activation(v),
        }
    }

    fn reference(&self, v: f64, operands: &[f64], _: [usize; 2]) -> f64 {
        match (self, operands) {
            (Part::Alpha | Part::RowScale | Part::ColScale, [operand]) => v * operand,
            (Part::Bias | Part::Residual, [operand]) => v + operand,
            (Part::Beta, [beta, before]) => v + beta * before,
            _ => self.activation_of(v),
        }
    }
}

impl Part {
    /// The activation, of parts that are one; else the value itself.
    fn activation(self, v: Elem) -> Elem {
        match self {
            Part::Relu => v.max(0.0),
            Part::Gelu => {
                // √(2/π), and the coefficient of the cube.
                let inner = (v.clone() * v.clone() * 0.044715 + 1.0) * v.clone() * 0.797_884_560_802_865_4;
                v * 0.5 * (inner.tanh() + 1.0)
            }
            Part::Silu => v.clone() / ((-v).exp() + 1.0),
            _ => v,
        }
    }

    /// The same in f64.
    fn activation_of(self, v: f64) -> f64 {
        match self {
            Part::Relu => v.max(0.0),
            Part::Gelu => 0.5 * v * (1.0 + (0.797_884_560_802_865_4 * (v + 0.044715 * v * v * v)).tanh()),
            Part::Silu => v / (1.0 + (-v).exp()),
            _ => v,
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

    /// Returns whether it has no parts.
    pub fn is_empty(&self) -> bool {
        self.parts[0].is_none()
    }

    /// Returns whether it has a part.
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

/// The value that the sums of two products become: `activation(gate) · up`, perhaps with a bias for each ahead of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Combine {
    /// The function of the first sum, if there is one.
    pub activation: Option<Part>,
    /// Adds `gate_bias[j]` to the first and `up_bias[j]` to the second, of C's type.
    pub bias: bool,
}

impl Combine {
    /// The names of the biases.
    pub const BIASES: [&str; 2] = ["gate_bias", "up_bias"];

    fn operands(self, out: DType) -> Vec<Operand> {
        let biases = Self::BIASES.into_iter().filter(|_| self.bias);
        biases.map(|name| Operand::new(name, OperandKind::Column, out)).collect()
    }

    /// Writes the combination of values of both sums, for the place of the program with this tag.
    pub fn apply(self, t: &mut KernelBuilder, sums: [Tensor; 2], operands: &[Elem], tag: &str) -> Tensor {
        let [gate, up] = match operands {
            [gate_bias, up_bias] => [("gate", gate_bias, sums[0]), ("up", up_bias, sums[1])]
                .map(|(name, bias, sum)| t.define(&format!("v_{name}{tag}"), sum + bias)),
            _ => sums,
        };
        let gate = self.activation.map_or(gate.into(), |part| part.activation(gate.into()));
        t.define(&format!("v_combined{tag}"), gate * up)
    }

    /// The combination in f64.
    pub fn reference(self, [gate, up]: [f64; 2]) -> f64 {
        self.activation.map_or(gate, |part| part.activation_of(gate)) * up
    }
}

/// The operations of an epilogue in order, and the sums behind them.
#[derive(Clone, Default)]
pub(crate) struct Chain<'a> {
    /// Makes one value of the sums of two products, ahead of the operations.
    pub combine: Option<Combine>,
    pub ops: Vec<&'a dyn EpilogueOp>,
    pub sums: Vec<Part>,
}

impl<'a> Chain<'a> {
    /// The parts of a list, and the caller's operations behind those that change values.
    pub fn new(epilogue: &Epilogue, custom: &[&'a dyn EpilogueOp]) -> Self {
        let all: &'static [Part] = &Part::ALL;
        let known = |part: Part| all.iter().find(|p| **p == part);
        let (sums, parts): (Vec<Part>, Vec<Part>) = epilogue.parts().partition(|part| part.sums());
        let parts = parts.into_iter().filter_map(known).map(|part| part as &dyn EpilogueOp);
        Chain { combine: None, ops: parts.chain(custom.iter().copied()).collect(), sums }
    }

    /// Returns whether the accumulators are the results.
    pub fn is_empty(&self) -> bool {
        self.combine.is_none() && self.ops.is_empty() && self.sums.is_empty()
    }

    /// The operands of each operation in order, of a product with results of type `out`.
    pub fn operands(&self, out: DType) -> Vec<Vec<Operand>> {
        let combine = self.combine.iter().map(|combine| combine.operands(out));
        combine.chain(self.ops.iter().map(|op| op.operands(out))).collect()
    }

    /// Returns whether C is read before it is written.
    pub fn in_place(&self, out: DType) -> bool {
        self.operands(out).iter().flatten().any(|operand| operand.kind == OperandKind::Result)
    }
}
