//! The CUDA device on the stand-in driver: which calls the driver gets, on machines without a GPU.

mod common;

use std::process::Command;

use common::{SOURCE, compiled, sizes};
use tilewright_compiler::{Options, compile};
use tilewright_machine::{Arch, DType};
use tilewright_runtime::{
    Arg, CudaDevice, Device, DeviceChoice, LaunchOptions, LaunchReport, RuntimeError, Sizes, Tensor, devices,
};
use tilewright_stand_in_driver::StandIn;

/// The variable that names the driver's library is read once in a process, so this is one of its own, with one test.
const VARIABLE: &str = "TILEWRIGHT_LIBCUDA";

#[test]
fn devices_launches_sequences_and_graphs() {
    if std::env::var_os(VARIABLE).is_none() {
        let again = Command::new(std::env::current_exe().unwrap())
            .args(["devices_launches_sequences_and_graphs", "--exact", "--nocapture"])
            .env(VARIABLE, StandIn::path_of_this_test())
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&again.stdout).into_owned() + &String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let stand_in = StandIn::of_this_test();
    let list = devices();
    assert!(list.cuda_absent.is_none());
    let gpus: Vec<&str> =
        list.devices.iter().filter(|d| d.choice != DeviceChoice::Sim).map(|d| d.name.as_str()).collect();
    assert_eq!(gpus, ["Stand-in GPU"; 2]);
    let error = CudaDevice::open(2).unwrap_err();
    assert_eq!(error.to_string(), "there is no CUDA device 2; this machine has 2, numbered from 0");

    let device = CudaDevice::open(0).unwrap();
    assert_eq!(device.chip().cuda.as_deref(), Some("12.8"));
    let x = Tensor::from_f64(&device, DType::F32, &[1.5; 300]).unwrap();
    assert_eq!(x.read(&device).unwrap(), [1.5; 300]);
    let y = Tensor::zeros(&device, DType::F32, 300).unwrap();
    launches(&stand_in, &device, &x, &y);
    records(&stand_in, &device);
    arrays(&stand_in, &device);
    refusals(&stand_in, &device, &x, &y);
    // Everything is given back with the device.
    drop((x, y, device));
    let calls = stand_in.calls();
    for call in ["cuMemFree_v2", "cuModuleUnload", "cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2 0"] {
        assert!(calls.iter().any(|made| made == call), "{call}: {calls:?}");
    }
}

/// The calls of these functions since the last time.
fn calls(stand_in: &StandIn, functions: &[&str]) -> Vec<String> {
    let wanted = |call: &String| functions.iter().any(|function| call.starts_with(function));
    stand_in.calls().into_iter().filter(wanted).collect()
}

fn words(address: u64) -> String {
    address.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn launches(stand_in: &StandIn, device: &CudaDevice, x: &Tensor, y: &Tensor) {
    let kernel = compiled(SOURCE);
    let args = [Arg::from(x), Arg::from(y), Arg::from(2.0f32)];
    let [at_x, at_y] = [x, y].map(|tensor| words(device.address(tensor.buffer()).unwrap()));
    let LaunchReport::Cuda(report) = device.launch(&kernel, &sizes(300), &args).unwrap() else {
        panic!("a report of a GPU")
    };
    assert_eq!((report.grid, report.registers_per_thread, report.milliseconds), ([3, 1, 1], 40, 0.25));
    let made = calls(stand_in, &["cuModuleLoadDataEx", "cuLaunch"]);
    let launch = format!(
        "cuLaunchKernelEx grid=3,1,1 block=128,1,1 shared=0 stream=STREAM attributes=[] function=scale params=[{at_x} {at_y} 00000040 2c010000]"
    );
    let stream = device_stream(&made[1]);
    let launch = launch.replace("STREAM", &stream);
    assert_eq!(made, ["cuModuleLoadDataEx options=4".to_string(), launch.clone()]);
    // The code is there; three runs of two launches each.
    let mut sequence = device.sequence();
    sequence.push(&kernel, &sizes(300), &args, LaunchOptions::default()).unwrap();
    sequence.push(&kernel, &sizes(300), &args, LaunchOptions { dependent: true }).unwrap();
    sequence.run().unwrap();
    assert_eq!(calls(stand_in, &["cuModuleLoadDataEx", "cuLaunch"]), [launch.clone(), launch.clone()]);
    let graph = sequence.capture().unwrap();
    graph.run().unwrap();
    let time = graph.time(1, 2).unwrap().unwrap();
    assert_eq!(time.median_ms, 0.25);
    let made = calls(stand_in, &["cuStreamBegin", "cuStreamEnd", "cuLaunch", "cuGraph"]);
    let [begin, end, put] =
        ["cuStreamBeginCapture_v2 STREAM mode=1", "cuStreamEndCapture STREAM", "cuGraphLaunch stream=STREAM"]
            .map(|call| call.replace("STREAM", &stream));
    let expected = [
        &begin,
        &launch,
        &launch,
        &end,
        "cuGraphInstantiateWithFlags 0",
        "cuGraphDestroy",
        &put,
        &put,
        &put,
        &put,
    ];
    assert_eq!(made, expected);
}

/// The stream of a launch.
fn device_stream(call: &str) -> String {
    call.split_once("stream=").unwrap().1.split(' ').next().unwrap().to_string()
}

fn records(stand_in: &StandIn, device: &CudaDevice) {
    let source = "
        size n = 128
        kernel asserts(x: f32[n], y: f32[n]) grid(ceil_div(n, 128)) threads(128) {
            gx = global_view(x[block.x * 128 :], (128) : (e0))
            gy = global_view(y[block.x * 128 :], (128) : (e0))
            r = register_tensor(f32, [128])
            copy(gx, r)
            assert(all(r < 2.0), \"small\")
            copy(r, gy)
        }";
    let program = tilewright_tile::parse(source).unwrap();
    let options = Options::new(Arch::SM_80).with_debug(true);
    let kernel = compile(&program, &options).unwrap();
    let tensors = [(); 2].map(|()| Tensor::zeros(device, DType::F32, 128).unwrap());
    stand_in.calls();
    let report =
        device.launch(&kernel, &Sizes::new(), &[Arg::from(&tensors[0]), Arg::from(&tensors[1])]).unwrap();
    let LaunchReport::Cuda(report) = report else { panic!("a report of a GPU") };
    assert!(report.records.is_some() && report.broken.is_empty());
    // The buffer's address comes behind all other parameters.
    let made = calls(stand_in, &["cuMemHostAlloc", "cuLaunch", "cuMemFreeHost"]);
    assert_eq!(made.len(), 3, "{made:?}");
    assert_eq!(made[1].split_once("params=[").unwrap().1.split(' ').count(), 4, "{made:?}");
}

fn arrays(stand_in: &StandIn, device: &CudaDevice) {
    let source = "
        size l = 3
        kernel each(x: f32[l][128], y: f32[l][128]) grid(l) threads(128) {
            gx = global_view(x[block.x :, 0 :], (128) : (e1))
            gy = global_view(y[block.x :, 0 :], (128) : (e1))
            r = register_tensor(f32, [128])
            copy(gx, r)
            copy(r, gy)
        }";
    let kernel = compile(&tilewright_tile::parse(source).unwrap(), &Options::new(Arch::SM_80)).unwrap();
    let tensors = |_| (0..3).map(|_| Tensor::zeros(device, DType::F32, 128).unwrap()).collect::<Vec<_>>();
    let [x, y] = [0, 1].map(tensors);
    stand_in.calls();
    device.launch(&kernel, &Sizes::new(), &[Arg::Tensors(&x), Arg::Tensors(&y)]).unwrap();
    // Two tables go to the GPU before the launch.
    let made = calls(stand_in, &["cuMemcpyHtoDAsync_v2", "cuLaunch"]);
    assert_eq!(made.len(), 3, "{made:?}");
    let twice = [Arg::Tensors(&x), Arg::Tensors(&y)];
    let shared = vec![x[0].clone(), x[0].clone(), x[1].clone()];
    let error = device.launch(&kernel, &Sizes::new(), &[twice[0], Arg::Tensors(&shared)]).unwrap_err();
    assert!(matches!(error, RuntimeError::SharedResult { .. }), "{error}");
}

fn refusals(stand_in: &StandIn, device: &CudaDevice, x: &Tensor, y: &Tensor) {
    let args = [Arg::from(x), Arg::from(y), Arg::from(2.0f32)];
    let mut kernel = compiled(SOURCE);
    kernel.ptx = kernel.ptx.replace(".entry scale", ".func scale");
    let error = device.launch(&kernel, &sizes(300), &args).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the driver rejects the PTX of kernel `scale`: CUDA_ERROR_INVALID_PTX\nptxas fatal   : no entry point"
    );
    let kernel = compiled(SOURCE);
    stand_in.set("fail cuStreamSynchronize", 719);
    let error = device.launch(&kernel, &sizes(300), &args).unwrap_err();
    stand_in.set("fail cuStreamSynchronize", 0);
    assert_eq!(
        error.to_string(),
        "kernel `scale` failed while it ran: CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure); open the device again before using it \
         further"
    );
    stand_in.set("fail cuMemAlloc_v2", 2);
    let error = device.alloc(1 << 20).unwrap_err();
    stand_in.set("fail cuMemAlloc_v2", 0);
    assert_eq!(
        error.to_string(),
        "allocating 1048576 bytes on Stand-in GPU: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
    );
    let error = device.launch(&kernel, &sizes(301), &args).unwrap_err();
    assert!(matches!(error, RuntimeError::BufferTooSmall { .. }), "{error}");
}
