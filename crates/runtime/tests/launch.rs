//! Launches of a small kernel. The tests of what runs go over every device of the machine; those of what is refused need the
//! simulator only.

mod common;

use common::{SOURCE, compiled, every_device, function, kernel_of, sizes};
use tilewright_compiler::{Assumption, Kernel};
use tilewright_machine::{Arch, DType, Elements};
use tilewright_runtime::*;

fn kernel() -> Kernel {
    kernel_of(function(Arch::SM_80, 0))
}

#[test]
fn bytes_come_back_as_they_went() {
    for device in every_device() {
        let buffer = device.alloc(5).unwrap();
        assert_eq!(device.download(&buffer).unwrap(), [0; 5]);
        device.upload(&buffer, &[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(device.download(&buffer).unwrap(), [1, 2, 3, 4, 5]);
        let error = device.upload(&buffer, &[1]).unwrap_err();
        assert_eq!(error.to_string(), "1 bytes are given for a buffer of 5");
        let empty = device.alloc(0).unwrap();
        device.upload(&empty, &[]).unwrap();
        assert!(device.download(&empty).unwrap().is_empty());
    }
}

#[test]
fn tensors_round_to_their_type() {
    for device in every_device() {
        let tensor = Tensor::from_f64(&*device, DType::BF16, &[1.0, 1.001, -3.0]).unwrap();
        assert_eq!(tensor.read(&*device).unwrap(), [1.0, 1.0, -3.0]);
        assert_eq!((tensor.len(), tensor.dtype(), tensor.buffer().bytes()), (3, DType::BF16, 6));
        let error = tensor.write(&*device, &[1.0]).unwrap_err();
        assert_eq!(error.to_string(), "1 elements are given for a buffer of 3");
    }
}

#[test]
fn a_kernel_runs_on_every_device() {
    for device in every_device() {
        let kernel = kernel_of(function(device.arch().unwrap_or(Arch::SM_80), 0));
        for n in [1, 127, 128, 1000] {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let x = Tensor::from_f32(&*device, DType::F32, &values).unwrap();
            let y = Tensor::zeros(&*device, DType::F32, n as usize).unwrap();
            let args = [Arg::from(&x), Arg::from(&y), Arg::from(0.5f32)];
            let report = device.launch(&kernel, &sizes(n), &args).unwrap();
            let expected: Vec<f64> = (0..n).map(|i| i as f64 * 0.5).collect();
            assert_eq!(y.read(&*device).unwrap(), expected, "{} at {n}", device.name());
            match report {
                LaunchReport::Sim(report) => {
                    assert_eq!(device.kind(), DeviceKind::Sim);
                    assert_eq!(report.problems(), [""; 0]);
                }
                LaunchReport::Cuda(report) => {
                    eprintln!("{}: {report:?}", device.name());
                    assert!(report.registers_per_thread > 0 && report.milliseconds > 0.0);
                    assert_eq!((report.local_bytes, report.shared_bytes), (0, 0));
                    assert_eq!(report.grid, [(n as u32).div_ceil(128), 1, 1]);
                }
                other => panic!("a report of neither kind: {other:?}"),
            }
            // In place: both parameters are one buffer.
            let args = [Arg::from(x.buffer()), Arg::from(x.buffer()), Arg::Scalar(0.5)];
            device.launch(&kernel, &sizes(n), &args).unwrap();
            assert_eq!(x.read(&*device).unwrap(), expected);
        }
    }
}

#[test]
fn a_compiled_kernel_runs_on_every_device() {
    for device in every_device() {
        let kernel = compiled(SOURCE);
        let x = Tensor::from_f64(&*device, DType::F32, &[3.0; 300]).unwrap();
        let y = Tensor::zeros(&*device, DType::F32, 300).unwrap();
        let args = [Arg::from(&x), Arg::from(&y), Arg::from(0.5f32)];
        let report = device.launch(&kernel, &sizes(300), &args).unwrap();
        assert_eq!(report.problems(), [""; 0]);
        assert_eq!(y.read(&*device).unwrap(), [1.5; 300]);
    }
}

#[test]
fn only_devices_with_a_clock_time_kernels() {
    for device in every_device() {
        let x = Tensor::zeros(&*device, DType::F32, 1000).unwrap();
        let y = Tensor::zeros(&*device, DType::F32, 1000).unwrap();
        let args = [Arg::from(&x), Arg::from(&y), Arg::from(2.0f32)];
        let timing = device.time(&kernel(), &sizes(1000), &args, 2, 5).unwrap();
        assert_eq!(timing.is_some(), device.kind() == DeviceKind::Cuda);
        if let Some(timing) = timing {
            assert_eq!(timing.runs_ms.len(), 5);
            assert!(timing.min_ms > 0.0 && timing.min_ms <= timing.median_ms);
        }
    }
}

#[test]
fn a_gpu_gives_the_log_of_its_assembler_and_refuses_other_architectures() {
    for device in every_device().into_iter().filter(|d| d.kind() == DeviceKind::Cuda) {
        let x = Tensor::zeros(&*device, DType::F32, 8).unwrap();
        let args = [Arg::from(&x), Arg::from(&x), Arg::from(2.0f32)];
        let mut broken = kernel();
        broken.ptx = broken.ptx.replace("mul.rn.f32", "mul.nonsense.f32");
        let error = device.launch(&broken, &sizes(8), &args).unwrap_err();
        assert!(matches!(&error, RuntimeError::Load { log, .. } if log.contains("nonsense")), "{error}");
        eprintln!("{error}");

        let mut large = function(Arch::SM_80, 0);
        large.shared_bytes = 60 * 1024;
        let report = device.launch(&kernel_of(large.clone()), &sizes(8), &args).unwrap();
        assert_eq!(report.cuda().unwrap().shared_bytes, 60 * 1024);
        large.shared_bytes = 1 << 20;
        let error = device.launch(&kernel_of(large), &sizes(8), &args).unwrap_err();
        assert!(matches!(error, RuntimeError::SharedMemory { needed: 1048576, .. }), "{error}");

        if device.arch() != Some(Arch::SM_90A) {
            let error = device.launch(&kernel_of(function(Arch::SM_90A, 0)), &sizes(8), &args).unwrap_err();
            assert!(matches!(error, RuntimeError::UnsupportedArch { .. }), "{error}");
        }
    }
}

/// The message with which the simulator refuses a launch at `n` of 8-element tensors.
fn refusal(kernel: &Kernel, sizes: &Sizes, change: impl Fn(&mut Vec<Arg<'_>>)) -> String {
    let device = SimDevice::default();
    let x = Tensor::zeros(&device, DType::F32, 8).unwrap();
    let mut args = vec![Arg::from(&x), Arg::from(&x), Arg::from(2.0f32)];
    change(&mut args);
    let launched = device.launch(kernel, sizes, &args).unwrap_err().to_string();
    let timed = device.time(kernel, sizes, &args, 0, 1).unwrap_err().to_string();
    assert_eq!(launched, timed);
    launched
}

#[test]
fn sizes_are_checked() {
    let kernel = kernel();
    let same = |_: &mut Vec<Arg<'_>>| {};
    let mut more = sizes(8);
    more.insert("m".to_string(), 1);
    let cannot = "kernel `scale` cannot be launched at these sizes:";
    assert_eq!(refusal(&kernel, &more, same), format!("{cannot} the kernel has no size `m`; it has n"));
    for value in [0, -5] {
        let expected = format!("{cannot} the size `n` is {value}; it must be at least 1");
        assert_eq!(refusal(&kernel, &sizes(value), same), expected);
    }
    assert_eq!(
        refusal(&kernel, &sizes(1 << 31), same),
        "size `n` of kernel `scale` is 2147483648; 2145386496 is the most that a launch takes"
    );
}

#[test]
fn sizes_have_defaults() {
    assert_eq!(default_sizes(&kernel()), sizes(1000));
    assert_eq!(
        refusal(&kernel(), &Sizes::new(), |_| {}),
        "the buffer for parameter `x` of kernel `scale` has 32 bytes; at these sizes it needs 4000"
    );
}

#[test]
fn assumptions_are_checked() {
    let mut kernel = kernel();
    kernel.assumptions.push(Assumption { size: "n".to_string(), multiple: 8 });
    assert_eq!(
        refusal(&kernel, &sizes(7), |_| {}),
        "kernel `scale` is compiled for multiples of 8 as size `n`; 7 is none"
    );
}

#[test]
fn arguments_are_checked() {
    let kernel = kernel();
    let at = |n, change: &dyn Fn(&mut Vec<Arg<'_>>)| refusal(&kernel, &sizes(n), change);
    assert_eq!(
        at(8, &|args| args.truncate(2)),
        "kernel `scale` takes 3 arguments (x, y, factor); 2 are given"
    );
    assert_eq!(
        at(8, &|args| args[1] = Arg::Scalar(1.0)),
        "parameter `y` of kernel `scale` is a tensor; a number is given"
    );
    assert_eq!(
        at(8, &|args| args[2] = args[0]),
        "parameter `factor` of kernel `scale` is a number; a buffer is given"
    );
    assert_eq!(
        at(9, &|_| {}),
        "the buffer for parameter `x` of kernel `scale` has 32 bytes; at these sizes it needs 36"
    );
}

#[test]
fn numbers_of_64_bits_are_passed_and_checked() {
    let kernel = compiled(
        "kernel wide(y: u64[32], z: f64[32], seed: u64 = 1, low: i64 = 2, step: f64 = 0.5) grid(1) threads(32) {
            gy = global_view(y, (32) : (e0))
            gz = global_view(z, (32) : (e0))
            ry = register_tensor(u64, [32])
            rz = register_tensor(f64, [32])
            fill(ry, 1.0)
            fill(rz, 2.0)
            copy(ry + seed + bitcast(low, u64), gy)
            copy(rz * step, gz)
        }",
    );
    for device in every_device()
        .into_iter()
        .filter(|device| device.arch().is_none_or(|arch| arch == kernel.function.arch))
    {
        let y = Tensor::from_elements(&*device, DType::U64, &Elements::Integers(vec![0; 32])).unwrap();
        let z = Tensor::zeros(&*device, DType::F64, 32).unwrap();
        let args = [Arg::from(&y), Arg::from(&z), Arg::U64(1 << 63), Arg::from(-3i64), Arg::from(0.1f64)];
        device.launch(&kernel, &Sizes::new(), &args).unwrap();
        let expected = Elements::Integers(vec![(1i128 << 63) - 2; 32]);
        assert_eq!(y.elements(&*device).unwrap(), expected, "{}", device.name());
        assert_eq!(z.read(&*device).unwrap(), [0.2; 32], "{}", device.name());
        let refused = |at: usize, arg| {
            let mut args = args;
            args[at] = arg;
            device.launch(&kernel, &Sizes::new(), &args).unwrap_err().to_string()
        };
        assert_eq!(refused(2, Arg::I64(1)), "parameter `seed` of kernel `wide` is a u64; an i64 is given");
        assert_eq!(
            refused(4, Arg::Scalar(1.0)),
            "parameter `step` of kernel `wide` is an f64; a number is given"
        );
    }
}

#[test]
fn tensors_of_another_type_and_buffers_of_another_device_are_refused() {
    let device = SimDevice::default();
    let x = Tensor::zeros(&device, DType::F32, 8).unwrap();
    let half = Tensor::zeros(&device, DType::F16, 16).unwrap();
    let other = SimDevice::default().alloc(32).unwrap();
    let launch = |y| {
        device.launch(&kernel(), &sizes(8), &[Arg::from(&x), y, Arg::Scalar(1.0)]).unwrap_err().to_string()
    };
    assert_eq!(
        launch(Arg::from(&half)),
        "parameter `y` of kernel `scale` has elements of type f32; the tensor has f16"
    );
    let foreign = "a buffer of another device is given to Tilewright simulator";
    assert_eq!(launch(Arg::from(&other)), foreign);
    assert_eq!(device.download(&other).unwrap_err().to_string(), foreign);
    assert_eq!(device.upload(&other, &[0; 32]).unwrap_err().to_string(), foreign);
    // As bytes it fits.
    let args = [Arg::from(&x), Arg::from(half.buffer()), Arg::Scalar(1.0)];
    assert!(device.launch(&kernel(), &sizes(8), &args).is_ok());
}

#[test]
fn arrays_of_tensors_are_checked() {
    let kernel = compiled(
        "size l = 2, n = 64
        kernel swapped(x: f32[l][n], y: f32[l][n]) grid(l) threads(32) {
            gx = global_view(x[l - 1 - block.x :, :], (64) : (e1))
            gy = global_view(y[block.x :, :], (64) : (e1))
            r = register_tensor(f32, [64])
            copy(gx, r)
            copy(r, gy)
        }",
    );
    let sizes = Sizes::from([("l".to_string(), 3)]);
    for device in every_device() {
        let filled = |x: f64| Tensor::from_f64(&*device, DType::F32, &[x; 64]).unwrap();
        let [x, y] = [[1.0, 2.0, 3.0], [0.0; 3]].map(|values| values.map(filled));
        // Several of what is read may be one buffer.
        let twice = [x[0].clone(), x[1].clone(), x[0].clone()];
        for (given, expected) in [(&x, [3.0, 2.0, 1.0]), (&twice, [1.0, 2.0, 1.0])] {
            device.launch(&kernel, &sizes, &[Arg::from(&given[..]), Arg::from(&y[..])]).unwrap();
            for (tensor, expected) in y.iter().zip(expected) {
                assert_eq!(tensor.read(&*device).unwrap(), [expected; 64]);
            }
        }
        let mut bindings = Bindings::new();
        bindings.set_array("x", x.iter().map(Tensor::buffer));
        bindings.complete(&*device, &[(&kernel, &sizes)]).unwrap();
        device.launch(&kernel, &sizes, &bindings.args(&kernel).unwrap()).unwrap();
        let last = &bindings.array("y").unwrap()[2];
        assert_eq!(decode(DType::F32, &device.download(last).unwrap()), [1.0; 64]);
    }
    let device = SimDevice::default();
    let [x, y] = [0, 1].map(|_| [0; 3].map(|_| Tensor::zeros(&device, DType::F32, 64).unwrap()));
    let refused = |args: [Arg<'_>; 2]| device.launch(&kernel, &sizes, &args).unwrap_err().to_string();
    assert_eq!(
        refused([Arg::from(&x[..2]), Arg::from(&y[..])]),
        "parameter `x` of kernel `swapped` is an array of 3 tensors at these sizes; 2 are given"
    );
    let shared = [y[0].clone(), y[1].clone(), y[0].clone()];
    assert_eq!(
        refused([Arg::from(&x[..]), Arg::from(&shared[..])]),
        "kernel `swapped` writes the tensors of `y`, of which numbers 0 and 2 are the same buffer: each needs its own"
    );
    let half = [x[0].clone(), Tensor::zeros(&device, DType::F16, 64).unwrap(), x[2].clone()];
    assert_eq!(
        refused([Arg::from(&half[..]), Arg::from(&y[..])]),
        "parameter `x` of kernel `swapped` has elements of type f32; the tensor has f16"
    );
    let short = [x[0].clone(), Tensor::zeros(&device, DType::F32, 63).unwrap(), x[2].clone()];
    assert_eq!(
        refused([Arg::from(&short[..]), Arg::from(&y[..])]),
        "the buffer for parameter `x[1]` of kernel `swapped` has 252 bytes; at these sizes it needs 256"
    );
    let kind = refused([Arg::from(&x[0]), Arg::from(&y[..])]);
    assert!(kind.contains("an array of tensors"), "{kind}");
    let kind = device.launch(
        &self::kernel(),
        &self::sizes(8),
        &[Arg::from(&x[..]), Arg::from(&y[0]), Arg::Scalar(1.0)],
    );
    assert!(kind.unwrap_err().to_string().contains("a tensor"));
}

#[test]
fn grids_are_checked() {
    let mut wide = kernel();
    wide.verified = compiled(&SOURCE.replace("grid(", "grid(1, ")).verified;
    assert_eq!(
        refusal(&wide, &sizes(128 * 65535 + 1), |_| {}),
        "kernel `scale` cannot be launched at these sizes: the grid's y extent is 65536; it must be from 1 to 65535"
    );
}

#[test]
fn code_that_does_not_fit_its_program_is_refused() {
    let mut kernel = kernel();
    kernel.function.params.pop();
    assert_eq!(refusal(&kernel, &sizes(8), |_| {}), "the code of kernel `scale` does not fit its program");
}
