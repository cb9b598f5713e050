//! Products of mixed element types: Table 5 of *Linear Layouts* (784 cases, of which Triton without linear layouts passes 46.6 %).
//!
//! The table has a row for each width of an integer type and of a float type, with the number of its cases: a simple matrix product whose
//! factors have the two types, at small shapes. The paper names neither the types nor the shapes. Here a row has as many cases as there: of each
//! pair of types, the integers as the left factor and as the right one, at 8 shapes of 16 or 32 rows, 8 or 32 columns and 16 or 32 along K;
//! where the float has 8 bits, of which this language has two types, at 4 more with 64 along K.
//!
//! Both factors are cast to the type that is multiplied: `f16` or `bf16` where a factor has it, `f16` for 8-bit floats, `f64` for `f32` and `f64`,
//! whose products of the tensor cores hold every product of the elements. Every kernel is interpreted, simulated, and assembled where `ptxas` is
//! found; with `TILEWRIGHT_PTX_DIR` its PTX is written there instead, for CI to assemble.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright::check::{CheckOptions, check};
use tilewright::compiler::{Options, compile};
use tilewright::input::Input;
use tilewright::machine::{Arch, DType};
use tilewright::runtime::SimDevice;
use tilewright::tile::parse;

use DType::{BF16, E4M3, E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16};

/// A row of the table: its name, the number of its cases, the integer types and the float types.
type Row = (&'static str, usize, &'static [DType], &'static [DType]);

const ROWS: [Row; 14] = [
    ("i16/f16", 64, &[I16, U16], &[F16, BF16]),
    ("i16/f32", 32, &[I16, U16], &[F32]),
    ("i16/f64", 32, &[I16, U16], &[F64]),
    ("i16/f8", 96, &[I16, U16], &[E4M3, E5M2]),
    ("i32/f16", 32, &[I32], &[F16, BF16]),
    ("i32/f64", 32, &[I32], &[F32, F64]),
    ("i32/f8", 48, &[I32], &[E4M3, E5M2]),
    ("i64/f16", 32, &[I64], &[F16, BF16]),
    ("i64/f32", 32, &[I64], &[F32, F64]),
    ("i64/f8", 48, &[I64], &[E4M3, E5M2]),
    ("i8/f16", 96, &[I8, U8, DType::Bool], &[F16, BF16]),
    ("i8/f32", 48, &[I8, U8, DType::Bool], &[F32]),
    ("i8/f64", 48, &[I8, U8, DType::Bool], &[F64]),
    ("i8/f8", 144, &[I8, U8, DType::Bool], &[E4M3, E5M2]),
];

/// A kernel: a pair of types in the order of the factors, the rows, and the columns and extents along K of its cases.
struct Kernel {
    factors: [DType; 2],
    rows: i64,
    shapes: Vec<[i64; 2]>,
}

fn kernels(row: &Row) -> Vec<Kernel> {
    let mut all = Vec::new();
    for integer in row.2 {
        for float in row.3 {
            let along: &[i64] = if float.bits() == 8 { &[16, 32, 64] } else { &[16, 32] };
            let shapes: Vec<[i64; 2]> = [8, 32].iter().flat_map(|n| along.iter().map(|k| [*n, *k])).collect();
            for factors in [[*integer, *float], [*float, *integer]] {
                all.extend([16, 32].map(|rows| Kernel { factors, rows, shapes: shapes.clone() }));
            }
        }
    }
    all
}

/// The type that is multiplied, and that of the sums.
fn multiplied([left, right]: [DType; 2]) -> [DType; 2] {
    let float = if left.is_float() { left } else { right };
    match float {
        F16 | BF16 => [float, F32],
        F32 | F64 => [F64, F64],
        _ => [F16, F32],
    }
}

impl Kernel {
    fn name(&self) -> String {
        format!("pair_{}_{}_{}", self.factors[0], self.factors[1], self.rows)
    }

    fn source(&self) -> String {
        let ([left, right], [factor, sum], rows) = (self.factors, multiplied(self.factors), self.rows);
        let mut params = format!("x: {left}[32, 64], y: {right}[32, 64]");
        let mut body = String::new();
        for (i, [n, k]) in self.shapes.iter().enumerate() {
            let _ = write!(params, ", z{i}: {sum}[{rows}, {n}]");
            let _ = write!(
                body,
                "    gx{i} = global_view(x, ({rows}, {k}) : (e0, e1))\n    gy{i} = global_view(y, ({n}, {k}) : (e0, e1))\n    \
                 gz{i} = global_view(z{i}, ({rows}, {n}) : (e0, e1))\n    \
                 rx{i} = register_tensor({left}, [{rows}, {k}])\n    ry{i} = register_tensor({right}, [{n}, {k}])\n    \
                 copy(gx{i}, rx{i})\n    copy(gy{i}, ry{i})\n    px{i} = cast(rx{i}, {factor})\n    \
                 py{i} = cast(ry{i}, {factor})\n    rz{i} = register_tensor({sum}, [{rows}, {n}])\n    fill(rz{i}, 0.0)\n    \
                 gemm(rz{i}, px{i}, py{i})\n    copy(rz{i}, gz{i})\n"
            );
        }
        format!("kernel {}({params}) grid(1) threads(32)\n{{\n{body}}}\n", self.name())
    }

    /// Interprets, simulates and assembles it.
    fn holds(&self) -> Result<(), String> {
        let source = self.source();
        let program = parse(&source).map_err(|e| format!("{e}\n{source}"))?;
        let kernel = compile(&program, &Options::new(Arch::SM_90A)).map_err(|e| format!("{e}\n{source}"))?;
        let inputs = ["x", "y"].into_iter().zip(self.factors).filter_map(|(name, dtype)| match dtype {
            DType::Bool => None,
            // Integers that every type to multiply holds; of both signs where there are two.
            _ if dtype.range().is_some_and(|(low, _)| low == 0) => Some((name, 0.0, 17.0)),
            _ if dtype.range().is_some() => Some((name, -16.0, 17.0)),
            _ => Some((name, -2.0, 2.0)),
        });
        let inputs: BTreeMap<String, Input> =
            inputs.map(|(name, low, high)| (name.to_string(), Input::Uniform { low, high })).collect();
        let options = CheckOptions { inputs, ..CheckOptions::default() };
        let outcome =
            check(&kernel, &SimDevice::default(), &options).map_err(|e| format!("{e}\n{source}"))?;
        if !outcome.is_right() || outcome.comparisons.iter().any(|c| c.unbounded > 0) {
            return Err(format!("{:?}\n{:?}\n{source}", outcome.comparisons, outcome.findings));
        }
        self.assembles(&kernel.ptx)
    }

    fn assembles(&self, ptx: &str) -> Result<(), String> {
        let said = |e: std::io::Error| e.to_string();
        if let Some(folder) = std::env::var_os("TILEWRIGHT_PTX_DIR").map(PathBuf::from) {
            std::fs::create_dir_all(&folder).map_err(said)?;
            // CI assembles all that is there.
            return std::fs::write(folder.join(format!("{}.sm_90a.ptx", self.name())), ptx).map_err(said);
        }
        let Some(ptxas) = std::env::var_os("TILEWRIGHT_PTXAS") else { return Ok(()) };
        let folder = tempfile::tempdir().map_err(said)?;
        let file = folder.path().join("kernel.ptx");
        std::fs::write(&file, ptx).map_err(said)?;
        let output = Command::new(ptxas)
            .args(["-arch=sm_90a", "-o", "/dev/null"])
            .arg(&file)
            .output()
            .map_err(said)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("{}: {text}", self.name())) }
    }
}

#[test]
fn cases_of_table_5_are_right() {
    let mut all = Vec::new();
    for row in &ROWS {
        let kernels = kernels(row);
        assert_eq!(kernels.iter().map(|kernel| kernel.shapes.len()).sum::<usize>(), row.1, "{}", row.0);
        all.extend(kernels);
    }
    assert_eq!(ROWS.iter().map(|row| row.1).sum::<usize>(), 784);
    // By day a sixth of the kernels; each night all.
    let every = std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some();
    let all: Vec<_> = all.into_iter().step_by(if every { 1 } else { 6 }).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(kernel) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(reason) = kernel.holds() {
                        failed.lock().unwrap().push(reason);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{} of {} kernels fail:\n{}",
        failed.len(),
        all.len(),
        failed[..failed.len().min(3)].join("\n")
    );
}
