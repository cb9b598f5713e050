//! Does the simulator do what a GPU does? Every row of the machine description that a thread or a warp executes is applied to
//! operands at which rounding, ranges and special values could differ, on the simulator and on a device, and the results are
//! compared: bit by bit where the PTX ISA defines them, else within a bound that the report states.
//!
//! On a GPU the other side is the simulator; on the simulator it is the rows' own evaluation, which checks the simulator and
//! this module. Products of warpgroups and tensor copies are not here: `scripts/hopper-table` has them.
//!
//! ```
//! use tilewright_lab::fidelity;
//! use tilewright_runtime::{DeviceChoice, open};
//!
//! let device = open(DeviceChoice::Sim)?;
//! let rows = fidelity::fidelity(&*device, &fidelity::Config { blocks: 1, seed: 1 }, |_, _, _| {})?;
//! assert!(rows.iter().all(|row| row.is_right()));
//! # Ok::<(), tilewright_runtime::RuntimeError>(())
//! ```

mod functions;
mod items;
mod values;

use tilewright_compiler::{Kernel, Options, compile};
use tilewright_machine::{Arch, DType, MmaRow, ScalarOp};
use tilewright_runtime::{Arg, Device, DeviceKind, RuntimeError, SimDevice, Sizes};
use tilewright_simt::{Build, Builder, Function, FunctionParamKind, Operand};

pub use functions::{Accuracy, FunctionConfig, Sample, functions};
use items::{Code, Item, Match, begin, items, padded};
use values::Random;

/// Threads of a block.
const THREADS: u32 = 128;
/// Rows that one kernel applies.
const ROWS: usize = 16;

/// Amount of comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Blocks of 128 threads, each of which applies every row to operands of its own.
    pub blocks: u32,
    /// The seed of the operands.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config { blocks: 64, seed: 1 }
    }
}

/// The comparison of one row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The row's name.
    pub name: String,
    /// Its mnemonic.
    pub mnemonic: String,
    /// Values that were compared.
    pub cases: usize,
    /// Those with equal bits.
    pub exact: usize,
    /// Those that are NaNs on both sides, of different bits.
    pub nans: usize,
    /// The largest difference of others, relative to the value (of sums: to the sum of the terms' sizes).
    pub worst: f64,
    /// Permitted differences, with reasons.
    pub bound: String,
    /// Values that differ by more.
    pub wrong: usize,
    /// The first of these: operands, what it should be, what it is.
    pub first: Option<String>,
}

impl Row {
    /// True if no value differs by more than it may.
    pub fn is_right(&self) -> bool {
        self.wrong == 0
    }
}

/// The error of a product's sums, relative to the sum of the terms' sizes.
fn sum_error(row: &MmaRow) -> f64 {
    // Tensor cores align the terms of a part of k to the largest and cut what lies below 2⁻²⁴ of it or more, of 8-bit floats on some
    // architectures 2⁻¹³; the simulator adds one by one.
    let sums = (row.k + 2) as f64 * 2f64.powi(-23);
    let half = if row.c == DType::F16 { 2.0 * DType::F16.epsilon() } else { 0.0 };
    let bytes = if row.a.bits() == 8 { (row.k / 16 + 2) as f64 * 2f64.powi(-13) } else { 0.0 };
    sums + half + bytes
}

/// Permitted differences, with reasons.
fn bound(matches: Match) -> String {
    match matches {
        Match::Bits => "none: the PTX ISA defines every bit".to_string(),
        Match::Floats(_) => "the bits of NaNs: GPUs give the canonical one".to_string(),
        Match::Near(op) => {
            let (relative, absolute) = error(op);
            format!(
                "{relative:.1e} relative or {absolute:.1e}: the PTX ISA's bound, and the simulator's unit in the last place"
            )
        }
        Match::Sums(row) => format!(
            "{:.1e} of the terms' sizes: the order and the cuts of sums are not defined; subnormal factors count as the least normal",
            sum_error(row)
        ),
    }
}

/// The error of an approximation: relative, absolute (whichever allows more). The simulator's own is a unit in the last place at most.
fn error(op: ScalarOp) -> (f64, f64) {
    let unit = 2f64.powi(-23);
    op.error().map_or((0.0, 0.0), |bound| (bound.relative + unit, bound.absolute + 2f64.powi(-149)))
}

/// The tile program whose parameters the kernels have. It runs nowhere.
const CARRIER: &str = "
size blocks = 1, words = 64, slots = 64
kernel fidelity(data: i32[words], out: i32[slots]) grid(blocks) threads(32) {
    from = global_view(data[0 :], (64) : (e0))
    to = global_view(out[0 :], (64) : (e0))
    r = register_tensor(i32, [64])
    copy(from, r)
    copy(r, to)
}
";

/// `pointer + bytes + index · stride`.
fn element(b: &mut Builder, param: u32, bytes: usize, index: Operand, stride: usize) -> Operand {
    let base: Operand = b.param(param).into();
    let offset = b.scalar(ScalarOp::MulWide, &[index, Operand::Imm(4 * stride as u64)]);
    let base = b.scalar(ScalarOp::AddI64, &[base, Operand::Imm(bytes as u64)]);
    b.scalar(ScalarOp::AddI64, &[base, offset])
}

/// The kernel that applies rows one after the other. The words of each row lie behind those of the row before it.
fn function(name: &str, arch: Arch, rows: &[Item], threads: usize) -> Function {
    let mut b = Builder::new(name, arch, THREADS);
    let data = b.add_param("data", FunctionParamKind::Pointer);
    let out = b.add_param("out", FunctionParamKind::Pointer);
    for size in ["blocks", "words", "slots"] {
        b.add_param(size, FunctionParamKind::I32);
    }
    let (index, warp, lane) = begin(&mut b);
    // Addresses stay where they are used: hoisted, those of all rows would hold registers through the whole kernel.
    b.hoisting(false, |b| {
        let (mut input, mut output) = (0, 0);
        for row in rows {
            let from = element(b, data, 4 * input, index, padded(row.inputs));
            let to = element(b, out, 4 * output, index, padded(row.outputs));
            row.emit(&mut Code { b, from, to, warp, lane });
            input += threads * padded(row.inputs);
            output += threads * padded(row.outputs);
        }
    });
    b.finish()
}

/// The kernels' PTX with their names.
pub fn ptx(arch: Arch) -> Vec<(String, String)> {
    let threads = (Config::default().blocks * THREADS) as usize;
    let all = items(arch);
    let kernels =
        all.chunks(ROWS).enumerate().map(|(i, rows)| function(&format!("fidelity_{i}"), arch, rows, threads));
    kernels.map(|f| (f.name.clone(), tilewright_ptx::print(&f))).collect()
}

/// Words of each thread, each thread's padded.
fn spread(words: &[u32], each: usize) -> impl Iterator<Item = u32> {
    words
        .chunks_exact(each)
        .flat_map(move |thread| (0..padded(each)).map(move |i| thread.get(i).copied().unwrap_or(0)))
}

/// Runs a kernel and returns the words of each row.
fn run(
    device: &dyn Device,
    kernel: &Kernel,
    config: &Config,
    rows: &[Item],
    inputs: &[Vec<u32>],
) -> Result<Vec<Vec<u32>>, RuntimeError> {
    let threads = (config.blocks * THREADS) as usize;
    let data: Vec<u8> = rows
        .iter()
        .zip(inputs)
        .flat_map(|(row, words)| spread(words, row.inputs))
        .flat_map(u32::to_le_bytes)
        .collect();
    let slots: usize = rows.iter().map(|row| threads * padded(row.outputs)).sum();
    let (from, to) = (device.alloc(data.len())?, device.alloc(4 * slots)?);
    device.upload(&from, &data)?;
    let sizes: Sizes = [
        ("blocks".to_string(), i64::from(config.blocks)),
        ("words".to_string(), (data.len() / 4) as i64),
        ("slots".to_string(), slots as i64),
    ]
    .into();
    let report = device.launch(kernel, &sizes, &[Arg::Buffer(&from), Arg::Buffer(&to)])?;
    if report.sim().is_some_and(|report| !report.is_clean()) {
        return Err(inconsistent(kernel));
    }
    let bytes = device.download(&to)?;
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
    let mut rest = words.as_slice();
    let mut all = Vec::new();
    for row in rows {
        let (own, others) = rest.split_at(threads * padded(row.outputs));
        rest = others;
        all.push(own.chunks_exact(padded(row.outputs)).flat_map(|t| t[..row.outputs].to_vec()).collect());
    }
    Ok(all)
}

/// The kernels are this module's own: a mistake in one is a mistake here, which tests look for.
fn inconsistent(kernel: &Kernel) -> RuntimeError {
    RuntimeError::Inconsistent { kernel: kernel.function.name.clone() }
}

/// Compares what a row left on two sides.
fn compare(item: &Item, inputs: &[u32], expected: &[u32], actual: &[u32]) -> Row {
    let mut row = Row {
        name: item.row.to_string(),
        mnemonic: item.mnemonic.to_string(),
        cases: 0,
        exact: 0,
        nans: 0,
        worst: 0.0,
        bound: bound(item.matches),
        wrong: 0,
        first: None,
    };
    let slack = item.slack(inputs);
    let dtype = match item.matches {
        Match::Bits => DType::I32,
        Match::Near(_) => DType::F32,
        Match::Floats(dtype) => dtype,
        Match::Sums(row) => row.c,
    };
    let per_word = 32 / dtype.bits();
    for (i, (e, a)) in expected.iter().zip(actual).enumerate() {
        for part in 0..per_word {
            let place = i * per_word as usize + part as usize;
            let bits = |word: u32| word >> (part * dtype.bits()) & (u32::MAX >> (32 - dtype.bits()));
            let [x, y] = [*e, *a].map(|word| dtype.decode(bits(word)));
            row.cases += 1;
            if bits(*e) == bits(*a) {
                row.exact += 1;
                continue;
            }
            let near = |relative: f64, absolute: f64| {
                let difference = (x - y).abs();
                difference <= absolute || difference <= relative * x.abs()
            };
            let is_float = !matches!(item.matches, Match::Bits);
            let right = match item.matches {
                Match::Bits => false,
                _ if x.is_nan() && y.is_nan() => {
                    row.nans += 1;
                    continue;
                }
                Match::Floats(_) => false,
                Match::Near(op) => x.is_finite() && y.is_finite() && near(error(op).0, error(op).1),
                // A sum that is beyond the type on one side only: it was at its end.
                Match::Sums(row) => {
                    let most = if row.c == DType::F16 { 65504.0 } else { f64::from(f32::MAX) };
                    let clamp = |x: f64| if x.is_infinite() { most.copysign(x) } else { x };
                    let slack = slack.get(place).copied().unwrap_or(0.0);
                    (clamp(x) - clamp(y)).abs() <= slack && (x.is_finite() || slack.is_finite())
                }
            };
            if is_float {
                let size = match item.matches {
                    Match::Sums(row) => slack.get(place).map_or(1.0, |s| s / sum_error(row)),
                    _ => x.abs(),
                };
                let difference = (x - y).abs() / size.max(f64::MIN_POSITIVE);
                row.worst = row.worst.max(if difference.is_nan() { f64::INFINITY } else { difference });
            }
            if !right {
                row.wrong += 1;
                let thread = i / item.outputs;
                let operands =
                    inputs.get(item.inputs * thread..).map_or(&[][..], |w| &w[..item.inputs.min(8)]);
                row.first.get_or_insert_with(|| {
                    format!("of {operands:#010x?}: {:#010x}, should be {:#010x}", bits(*a), bits(*e))
                        .replace('\n', "")
                });
            }
        }
    }
    row
}

/// Compares every row that the device's architecture has (on the simulator: sm_90a's). `progress` is told, before each kernel, how many
/// rows are done, how many there are, and which comes.
///
/// # Errors
///
/// A kernel cannot be run.
pub fn fidelity(
    device: &dyn Device,
    config: &Config,
    mut progress: impl FnMut(usize, usize, &str),
) -> Result<Vec<Row>, RuntimeError> {
    let arch = device.arch().unwrap_or(Arch::SM_90A);
    let missing = || RuntimeError::Inconsistent { kernel: "fidelity".to_string() };
    let program = tilewright_tile::parse(CARRIER).map_err(|_| missing())?;
    let carrier = compile(&program, &Options::new(arch)).map_err(|_| missing())?;
    let simulator = SimDevice::default();
    let config = Config { blocks: config.blocks.clamp(1, 1024), ..config.clone() };
    let threads = (config.blocks * THREADS) as usize;
    let mut random = Random::new(config.seed);
    let all = items(arch);
    let mut found: Vec<Row> = Vec::new();
    for (number, rows) in all.chunks(ROWS).enumerate() {
        progress(number * ROWS, all.len(), rows.first().map_or("", |row| row.row));
        let function = function(&format!("fidelity_{number}"), arch, rows, threads);
        let kernel = carrier.with_function(function);
        let inputs: Vec<Vec<u32>> = rows.iter().map(|row| row.draw(threads, &mut random)).collect();
        let actual = run(device, &kernel, &config, rows, &inputs)?;
        let expected = if device.kind() == DeviceKind::Sim {
            rows.iter().zip(&inputs).map(|(row, words)| row.evaluate(words)).collect()
        } else {
            run(&simulator, &kernel, &config, rows, &inputs)?
        };
        for (((item, inputs), expected), actual) in rows.iter().zip(&inputs).zip(&expected).zip(&actual) {
            let row = compare(item, inputs, expected, actual);
            // One operation with several literals is one row.
            match found.last_mut().filter(|last| last.name == row.name) {
                Some(last) => {
                    last.cases += row.cases;
                    last.exact += row.exact;
                    last.wrong += row.wrong;
                    last.first = last.first.take().or(row.first);
                }
                None => found.push(row),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
