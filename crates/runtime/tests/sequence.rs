//! Sequences of launches that may overlap: what is constant, and what has to wait.

mod common;

use tilewright_compiler::{Kernel, Options, compile};
use tilewright_machine::{Arch, DType, SyncOp};
use tilewright_runtime::{Arg, Device, LaunchOptions, LaunchReport, RuntimeError, SimDevice, Sizes, Tensor};
use tilewright_simt::Op;

const DEPENDENT: LaunchOptions = LaunchOptions { dependent: true };

/// `y = x · w`, where `w` is read before the wait.
const SCALE: &str = "
size n = 256
kernel scale(x: f32[n], constant w: f32[n], y: f32[n]) grid(ceil_div(n, 64)) threads(64) {
    gx = global_view(x[block.x * 64 :], (64) : (e0))
    gw = global_view(w[block.x * 64 :], (64) : (e0))
    gy = global_view(y[block.x * 64 :], (64) : (e0))
    rw = register_tensor(f32, [64])
    rx = register_tensor(f32, [64])
    copy(gw, rw)
    wait_dependencies()
    launch_dependents()
    copy(gx, rx)
    ry = rx * rw
    copy(ry, gy)
}";

fn kernel() -> Kernel {
    let program = tilewright_tile::parse(SCALE).unwrap();
    compile(&program, &Options::new(Arch::SM_90A)).unwrap()
}

/// The kernel, which waits at its end.
fn late() -> Kernel {
    let mut kernel = kernel();
    let body = &mut kernel.function.body;
    let at = body.iter().position(|inst| inst.op == Op::Sync(SyncOp::DependencyWait)).unwrap();
    let wait = body.remove(at);
    body.push(wait);
    kernel
}

fn tensor(device: &dyn Device, value: f64) -> Tensor {
    Tensor::from_f64(device, DType::F32, &[value; 256]).unwrap()
}

fn problems(reports: &[LaunchReport]) -> Vec<Vec<String>> {
    reports.iter().map(LaunchReport::problems).collect()
}

#[test]
fn a_right_sequence_runs_in_order_and_is_silent() {
    let device = SimDevice::default();
    let kernel = kernel();
    let [x, w, y, z] = [3.0, 2.0, 0.0, 0.0].map(|value| tensor(&device, value));
    let mut sequence = device.sequence();
    for (from, to) in [(&x, &y), (&y, &z), (&z, &x)] {
        sequence.push(&kernel, &Sizes::new(), &[from.into(), Arg::from(&w), to.into()], DEPENDENT).unwrap();
    }
    assert_eq!(format!("{sequence:?}"), r#"["scale", "scale", "scale"]"#);
    for times in [8.0, 64.0] {
        assert_eq!(problems(&sequence.run().unwrap()), vec![Vec::<String>::new(); 3]);
        assert_eq!(x.read(&device).unwrap(), [3.0 * times; 256]);
    }
}

fn assert_written(result: Result<(), RuntimeError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, RuntimeError::ConstantWritten { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "`w` of kernel `scale` is constant, and kernel `scale` of the same sequence writes its buffer, as `y`: leave `constant` away, or \
         pass another buffer"
    );
}

/// Tensors of two launches, one of which writes what the other one has for constant, in either order.
const WRITTEN: [[[usize; 3]; 2]; 2] = [[[0, 1, 2], [0, 2, 3]], [[0, 2, 3], [0, 1, 2]]];

#[test]
fn what_a_launch_writes_is_constant_for_none() {
    let kernel = kernel();
    let device = SimDevice::default();
    let tensors = [3.0, 2.0, 0.0, 0.0].map(|value| tensor(&device, value));
    let args = |list: [usize; 3]| list.map(|i| Arg::from(&tensors[i]));
    for [first, second] in WRITTEN {
        let mut sequence = device.sequence();
        sequence.push(&kernel, &Sizes::new(), &args(first), DEPENDENT).unwrap();
        assert_written(sequence.push(&kernel, &Sizes::new(), &args(second), DEPENDENT));
        // What was refused is not of the sequence.
        assert_eq!(sequence.run().unwrap().len(), 1);
    }
    for device in common::every_device() {
        let tensors = [3.0, 2.0, 0.0, 0.0].map(|value| tensor(&*device, value));
        let args = |list: [usize; 3]| list.map(|i| Arg::from(&tensors[i]));
        assert_written(device.launch(&kernel, &Sizes::new(), &args([0, 1, 1])).map(drop));
        let Some(gpu) = device.cuda().filter(|gpu| gpu.arch() == Some(Arch::SM_90A)) else { continue };
        for [first, second] in WRITTEN {
            let mut sequence = gpu.sequence();
            sequence.push(&kernel, &Sizes::new(), &args(first), DEPENDENT).unwrap();
            assert_written(sequence.push(&kernel, &Sizes::new(), &args(second), DEPENDENT));
            sequence.run().unwrap();
        }
    }
}

#[test]
fn a_late_wait_is_reported_where_launches_overlap() {
    let device = SimDevice::default();
    let (right, late) = (kernel(), late());
    let run = |second: LaunchOptions, first_writes_x: bool| {
        let [x, w, y, z] = [3.0, 2.0, 0.0, 0.0].map(|value| tensor(&device, value));
        let mut sequence = device.sequence();
        let to = if first_writes_x { &x } else { &z };
        sequence.push(&right, &Sizes::new(), &[Arg::from(&z), Arg::from(&w), to.into()], DEPENDENT).unwrap();
        sequence.push(&late, &Sizes::new(), &[Arg::from(&x), Arg::from(&w), Arg::from(&y)], second).unwrap();
        let reports = sequence.run().unwrap();
        assert!(reports[0].problems().is_empty());
        reports[1].problems()
    };
    // The second waits for the whole first launch by itself.
    assert!(run(LaunchOptions::default(), true).is_empty());
    let both = run(DEPENDENT, true);
    assert!(both.iter().any(|p| p.contains("it reads byte 0 of `x`")), "{both:?}");
    assert!(both.iter().any(|p| p.contains("it writes byte 0 of `y`")), "{both:?}");
    // No launch of the sequence writes `x`.
    let stores = run(DEPENDENT, false);
    assert!(stores.len() == 1 && stores[0].contains("it writes byte 0 of `y`"), "{stores:?}");
    // Alone, any launch may be ahead of it; the weights are marked.
    let [x, w, y] = [3.0, 2.0, 0.0].map(|value| tensor(&device, value));
    let alone = device.launch(&late, &Sizes::new(), &[Arg::from(&x), Arg::from(&w), Arg::from(&y)]).unwrap();
    assert_eq!(alone.problems().len(), 2, "{:?}", alone.problems());
}
