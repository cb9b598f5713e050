//! A kernel that reads far outside its buffers. On a GPU this leaves the process's context unusable, so it is a process of
//! its own.

mod common;

use common::{every_device, function, kernel_of, sizes};
use tilewright_machine::{Arch, DType};
use tilewright_runtime::{Arg, DeviceKind, Tensor};

#[test]
fn a_gpu_reports_it_as_the_error_of_the_launch_and_the_simulator_as_a_problem() {
    for device in every_device() {
        let kernel = kernel_of(function(Arch::SM_80, i32::MAX - 3));
        let x = Tensor::zeros(&*device, DType::F32, 8).unwrap();
        let y = Tensor::zeros(&*device, DType::F32, 8).unwrap();
        let args = [Arg::from(&x), Arg::from(&y), Arg::from(2.0f32)];
        let result = device.launch(&kernel, &sizes(8), &args);
        if device.kind() == DeviceKind::Sim {
            assert!(!result.unwrap().problems().is_empty());
        } else {
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with("kernel `scale` failed while it ran: CUDA_ERROR_"), "{error}");
            assert!(device.download(y.buffer()).is_err());
        }
    }
}
