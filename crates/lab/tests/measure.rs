//! Contests on a GPU, and cuBLASLt beside plain loops. Without a GPU there is nothing to measure; without the library (see
//! `TILEWRIGHT_CUBLASLT`) nothing to compare.

use tilewright_compiler::{Options, compile};
use tilewright_lab::CudaRunner;
use tilewright_lab::cublaslt::{CublasLt, Factor, Product, Scales};
use tilewright_lab::measure::{Condition, Contest, L2, Measure, Runner, Turn};
use tilewright_machine::{Arch, DType};
use tilewright_runtime::{Arg, CudaDevice, DeviceKind, LaunchOptions, RuntimeError, Sizes, Tensor, devices};

/// The kernel that the contests run.
const SCALE: &str = include_str!("../../runtime/tests/common/scale.tile");

/// Runs a check on every GPU.
fn on_gpus(check: impl Fn(&CudaDevice)) {
    for (ordinal, _) in devices().devices.iter().filter(|d| d.kind() == DeviceKind::Cuda).enumerate() {
        check(&CudaDevice::open(ordinal as u32).unwrap());
    }
}

#[test]
fn runners_are_timed_under_every_condition() {
    on_gpus(|device| {
        let kernel = compile(&tilewright_tile::parse(SCALE).unwrap(), &Options::new(Arch::SM_80)).unwrap();
        let x = Tensor::from_f64(device, DType::F32, &[2.0; 1000]).unwrap();
        let y = Tensor::zeros(device, DType::F32, 1000).unwrap();
        let args = [Arg::Tensor(&x), Arg::Tensor(&y), Arg::Scalar(3.0)];
        let sequence = |launches: usize| {
            let mut sequence = device.sequence();
            for _ in 0..launches {
                sequence.push(&kernel, &Sizes::new(), &args, LaunchOptions::default()).unwrap();
            }
            sequence
        };
        let runner = |name: &str, work| CudaRunner::new(device, name, work);
        device.fill(y.buffer(), 0xff).unwrap();
        assert!(y.read(device).unwrap().iter().all(|value| value.is_nan()));
        runner("one", sequence(1)).run().unwrap();
        assert_eq!(y.read(device).unwrap(), [6.0; 1000]);
        for condition in Condition::ALL {
            let mut contest = Contest::new(Measure { most: 10, ..Measure::quick(condition) });
            let one = contest.add(runner("one", sequence(1)));
            let many = contest.add(runner("many", sequence(200)));
            let graph = contest.add(CudaRunner::new(device, "graph", sequence(1).capture().unwrap()));
            contest.rounds(2).unwrap();
            for id in [one, many, graph] {
                let score = contest.score(id).unwrap();
                assert!(score.median_ms > 0.0 && score.turns_ms.len() == 2, "{condition}: {score:?}");
            }
            assert_ne!(contest.best(), Some(many), "{condition}");
        }
        let mut runner = runner("one", sequence(1));
        let turn = Turn { rest: std::time::Duration::ZERO, l2: L2::Read, warmup: 0, runs: 3 };
        assert_eq!(runner.turn(&turn).unwrap().len(), 3);
    });
}

/// Small integers, so that all sums are exact.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed * 3 + i / 5) % 7) as f64 - 3.0).collect()
}

#[test]
fn the_library_computes_what_is_described() {
    on_gpus(|device| {
        let library = match CublasLt::open(device) {
            Ok(library) => library,
            Err(RuntimeError::NoLibrary { reason, .. }) => return eprintln!("not compared: {reason}"),
            Err(other) => panic!("{other}"),
        };
        assert!(library.library().version > 0);
        let types = [
            (DType::F16, DType::F16),
            (DType::BF16, DType::F32),
            (DType::E4M3, DType::BF16),
            (DType::I8, DType::I32),
        ];
        for (factors, result) in types {
            for (a_major, b_major) in [(true, true), (true, false), (false, true), (false, false)] {
                // 8-bit factors must be contiguous along k.
                if factors.bits() == 8 && !(a_major && b_major) {
                    continue;
                }
                for batches in [1, 3] {
                    let [m, n, k] = [48, 80, 64];
                    let factor = |k_major| Factor { dtype: factors, k_major };
                    let product = Product {
                        a: factor(a_major),
                        b: factor(b_major),
                        batches,
                        ..Product::new([m, n, k], factors, result)
                    };
                    let (a, b) = (numbers(batches * m * k, 1), numbers(batches * n * k, 2));
                    let tensor = |values: &[f64]| Tensor::from_f64(device, factors, values).unwrap();
                    let (ta, tb) = (tensor(&a), tensor(&b));
                    let tc = Tensor::zeros(device, result, batches * m * n).unwrap();
                    let scale = |value| Tensor::from_f64(device, DType::F32, &[value]).unwrap();
                    let (by_a, by_b) = (scale(2.0), scale(0.25));
                    let scaled = factors == DType::E4M3;
                    let scales = scaled.then(|| Scales { a: by_a.buffer(), b: by_b.buffer() });
                    let at = |major: bool, row: usize, rows: usize, column: usize| {
                        if major { row * k + column } else { column * rows + row }
                    };
                    let mut expected = Vec::new();
                    for batch in 0..batches {
                        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                            let term = |l| {
                                a[batch * m * k + at(a_major, i, m, l)]
                                    * b[batch * n * k + at(b_major, j, n, l)]
                            };
                            let sum: f64 = (0..k).map(term).sum();
                            expected.push(result.decode(result.encode(if scaled { sum / 2.0 } else { sum })));
                        }
                    }
                    let buffers = [ta.buffer(), tb.buffer(), tc.buffer()];
                    let what = format!("{product}, {a_major} {b_major}");
                    let ways =
                        library.heuristics(&product, scales, 8).unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert!((1..=8).contains(&ways.len()), "{what}");
                    for way in &ways {
                        device.fill(tc.buffer(), 0xff).unwrap();
                        let mut runner = library.product("it", &product, way, buffers, scales).unwrap();
                        runner.run().unwrap();
                        assert_eq!(tc.read(device).unwrap(), expected, "{what}: {way:?}");
                    }
                    let small = Tensor::zeros(device, result, 1).unwrap();
                    let buffers = [ta.buffer(), tb.buffer(), small.buffer()];
                    let error = library.product("it", &product, &ways[0], buffers, scales).unwrap_err();
                    assert!(matches!(error, RuntimeError::DataLength { .. }), "{error}");
                }
            }
        }
    });
}
