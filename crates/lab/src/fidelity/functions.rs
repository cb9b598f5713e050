//! Accuracy of the functions of elementwise statements: each, compiled as any program is, on all `f16` numbers and many `f32`
//! numbers, against double precision and the bound that the language states ([`UnaryOp::error`]).

use tilewright_compiler::{Kernel, Options, compile};
use tilewright_machine::Arch;
use tilewright_machine::DType;
use tilewright_tile::UnaryOp;

use super::values::Random;
use tilewright_runtime::{Arg, Device, RuntimeError, Sizes};

/// The functions that are measured; square roots are exact.
const FUNCTIONS: [UnaryOp; 10] = [
    UnaryOp::Exp,
    UnaryOp::Exp2,
    UnaryOp::Log,
    UnaryOp::Log2,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Tanh,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Erf,
];
/// Arguments of one launch.
const LAUNCH: usize = 1 << 20;

/// On how many arguments functions are measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionConfig {
    /// `f32` arguments, in addition to the 65536 `f16` numbers.
    pub arguments: usize,
    /// The seed of the `f32` arguments.
    pub seed: u64,
}

impl Default for FunctionConfig {
    fn default() -> Self {
        FunctionConfig { arguments: 10_000_000, seed: 1 }
    }
}

/// A result and its error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The argument.
    pub argument: f32,
    /// The device's result.
    pub found: f32,
    /// The exact one, in double precision.
    pub exact: f64,
    /// The error, in the measure that it is the worst of.
    pub error: f64,
}

/// The accuracy of one function.
#[derive(Clone, PartialEq, Debug)]
pub struct Accuracy {
    /// The function, as in the tile language.
    pub name: &'static str,
    /// Arguments, NaNs and infinities included.
    pub arguments: usize,
    /// The largest error in units in the last place of the exact result's binade in `f32`.
    pub ulps: Option<Sample>,
    /// The largest absolute error.
    pub absolute: Option<Sample>,
    /// The largest error as a part of the stated bound; half a unit in the last place, which rounding the exact result costs, counts as none.
    pub ratio: Option<Sample>,
    /// The stated bound, as a formula.
    pub bound: String,
    /// Results that are farther from the exact ones than stated.
    pub wrong: usize,
    /// The first of these.
    pub first: Option<Sample>,
}

impl Accuracy {
    /// True if no result is farther from the exact one than stated.
    pub fn is_right(&self) -> bool {
        self.wrong == 0
    }

    fn take(&mut self, op: UnaryOp, argument: f32, found: f32) {
        self.arguments += 1;
        let exact = op.exact(f64::from(argument));
        let nearest = op.apply(argument);
        let same = nearest == found || nearest.is_nan() && found.is_nan();
        if same && !found.is_finite() {
            return;
        }
        let error = (f64::from(found) - exact).abs();
        let allowed = op.error_at(f64::from(argument), exact);
        // A result beyond the largest number is infinite.
        let most = f64::from(f32::MAX) * (1.0 + 2f64.powi(-25));
        let overflow =
            found.is_infinite() && found.signum() == exact.signum() as f32 && exact.abs() + allowed >= most;
        let sample = |error| Sample { argument, found, exact, error };
        // A NaN is no less than the bound.
        if !(same || overflow || error <= allowed) {
            self.wrong += 1;
            self.first.get_or_insert(sample(error));
        }
        let worse = |worst: &mut Option<Sample>, error: f64| {
            if worst.is_none_or(|worst| error > worst.error) {
                *worst = Some(sample(error));
            }
        };
        if error.is_finite() {
            worse(&mut self.ulps, error / unit(exact));
            worse(&mut self.absolute, error);
            if !same {
                worse(&mut self.ratio, error / allowed);
            }
        }
    }
}

/// A unit in the last place of the `f32` numbers around x.
fn unit(x: f64) -> f64 {
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).clamp(-126, 127);
    2f64.powi(exponent - 23)
}

fn program(op: UnaryOp) -> String {
    format!(
        "size n = 1024
kernel function(x: f32[n], y: f32[n]) grid(ceil_div(n, 1024)) threads(128) {{
    gx = global_view(x, (1024, ceil_div(n, 1024)) : (e0, 1024 * e0))
    gy = global_view(y, (1024, ceil_div(n, 1024)) : (e0, 1024 * e0))
    r = register_tensor(f32, [1024])
    copy(gx[:, block.x], r)
    t = {}(r)
    copy(t, gy[:, block.x])
}}",
        op.name()
    )
}

/// Every `f16` number, then `f32` numbers: half of them bit patterns, half between 2⁻³⁰ and 2⁷.
fn arguments(config: &FunctionConfig) -> Vec<f32> {
    let mut random = Random::new(config.seed);
    let halves = (0..=u32::from(u16::MAX)).map(|bits| DType::F16.decode(bits) as f32);
    let mut all: Vec<f32> = halves.collect();
    all.extend((0..config.arguments).map(|i| {
        let word = random.word();
        if i % 2 == 0 {
            return f32::from_bits(word);
        }
        let exponent = 97 + random.below(38);
        f32::from_bits(word & 0x807f_ffff | exponent << 23)
    }));
    all
}

fn run(device: &dyn Device, kernel: &Kernel, arguments: &[f32]) -> Result<Vec<f32>, RuntimeError> {
    let data: Vec<u8> = arguments.iter().flat_map(|x| x.to_le_bytes()).collect();
    let (from, to) = (device.alloc(data.len())?, device.alloc(data.len())?);
    device.upload(&from, &data)?;
    let sizes: Sizes = [("n".to_string(), arguments.len() as i64)].into();
    device.launch(kernel, &sizes, &[Arg::Buffer(&from), Arg::Buffer(&to)])?;
    let bytes = device.download(&to)?;
    Ok(bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}

/// Measures every function on a device. `progress` is told, before each launch, how many are done, how many there are, and the function.
///
/// ```
/// use tilewright_lab::fidelity;
/// use tilewright_runtime::{DeviceChoice, open};
///
/// let device = open(DeviceChoice::Sim)?;
/// let config = fidelity::FunctionConfig { arguments: 1000, seed: 1 };
/// let rows = fidelity::functions(&*device, &config, |_, _, _| {})?;
/// assert!(rows.iter().all(|row| row.is_right()));
/// # Ok::<(), tilewright_runtime::RuntimeError>(())
/// ```
///
/// # Errors
///
/// A kernel cannot be run.
pub fn functions(
    device: &dyn Device,
    config: &FunctionConfig,
    mut progress: impl FnMut(usize, usize, &str),
) -> Result<Vec<Accuracy>, RuntimeError> {
    let arch = device.arch().unwrap_or(Arch::SM_90A);
    let missing = || RuntimeError::Inconsistent { kernel: "function".to_string() };
    let all = arguments(config);
    let launches = all.len().div_ceil(LAUNCH);
    let mut rows = Vec::new();
    for (number, op) in FUNCTIONS.into_iter().enumerate() {
        let program = tilewright_tile::parse(&program(op)).map_err(|_| missing())?;
        let kernel = compile(&program, &Options::new(arch)).map_err(|_| missing())?;
        let bound = op.error().map_or("0, rounded to nearest".to_string(), |bound| bound.to_string());
        let mut row = Accuracy {
            name: op.name(),
            arguments: 0,
            ulps: None,
            absolute: None,
            ratio: None,
            bound,
            wrong: 0,
            first: None,
        };
        for (launch, part) in all.chunks(LAUNCH).enumerate() {
            progress(number * launches + launch, FUNCTIONS.len() * launches, op.name());
            for (x, y) in part.iter().zip(run(device, &kernel, part)?) {
                row.take(op, *x, y);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}
