//! Finding and opening devices.

use std::any::Any;

use crate::cuda::{self, CudaDevice};
use crate::device::{Device, DeviceChoice, DeviceInfo, DeviceKind};
use crate::error::RuntimeError;
use crate::sim::SimDevice;

impl dyn Device {
    /// The device as a GPU, for what only these can do; `None` if it is another kind.
    pub fn cuda(&self) -> Option<&CudaDevice> {
        (self as &dyn Any).downcast_ref()
    }
}

/// The devices of a machine, as [`devices`] lists them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceList {
    /// Every device, the simulator first.
    pub devices: Vec<DeviceInfo>,
    /// The reason why there is no GPU among them, if there is none.
    pub cuda_absent: Option<String>,
}

/// Lists every device of this machine. Opens none.
pub fn devices() -> DeviceList {
    let mut devices = vec![DeviceInfo {
        choice: DeviceChoice::Sim,
        name: SimDevice::NAME.to_string(),
        compute_capability: None,
        memory_bytes: None,
        arch: None,
    }];
    let cuda_absent = match cuda::devices() {
        Ok(found) => {
            devices.extend(found);
            None
        }
        Err(RuntimeError::NoCuda { reason }) => Some(reason),
        Err(other) => Some(other.to_string()),
    };
    DeviceList { devices, cuda_absent }
}

/// Opens a device.
pub fn open(choice: DeviceChoice) -> Result<Box<dyn Device>, RuntimeError> {
    match choice {
        DeviceChoice::Sim => Ok(Box::new(SimDevice::default())),
        DeviceChoice::Cuda(ordinal) => Ok(Box::new(CudaDevice::open(ordinal)?)),
        DeviceChoice::Auto => {
            let gpu =
                devices().devices.into_iter().find(|d| d.kind() == DeviceKind::Cuda && d.arch.is_some());
            open(gpu.map_or(DeviceChoice::Sim, |d| d.choice))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulator_is_always_there() {
        let list = devices();
        assert_eq!(list.devices[0].kind(), DeviceKind::Sim);
        assert_eq!(list.cuda_absent.is_some(), list.devices.len() == 1);
        assert!(open(DeviceChoice::Auto).is_ok());
    }

    #[test]
    fn cuda_without_a_driver_is_an_error_and_no_panic() {
        let Some(reason) = devices().cuda_absent else { return };
        let error = open(DeviceChoice::Cuda(0)).err().unwrap();
        assert!(matches!(error, RuntimeError::NoCuda { .. }), "{error}");
        assert_eq!(error.to_string(), format!("CUDA is not available: {reason}"));
    }
}
