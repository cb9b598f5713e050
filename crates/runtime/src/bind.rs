//! Buffers by name, for kernels that work one after another on the same tensors.

use std::collections::BTreeMap;

use tilewright_compiler::Kernel;
use tilewright_machine::Number;
use tilewright_tile::interpret::{tensor_len, tensors_of_array};
use tilewright_tile::{ParamId, ParamKind};

use crate::arg::{Arg, Sizes};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::RuntimeError;

/// Buffers by the names of the parameters that they are for. Several kernels that have a parameter of the same name share its buffer:
/// one writes partial sums to `partial`, the next adds them up.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    buffers: BTreeMap<String, Buffer>,
    arrays: BTreeMap<String, Vec<Buffer>>,
    numbers: BTreeMap<String, Number>,
}

impl Bindings {
    /// Nothing bound.
    pub fn new() -> Self {
        Bindings::default()
    }

    /// Binds a buffer.
    pub fn set(&mut self, name: impl Into<String>, buffer: &Buffer) {
        self.buffers.insert(name.into(), buffer.clone());
    }

    /// Binds the buffers of an array of tensors, in order.
    pub fn set_array<'a>(&mut self, name: impl Into<String>, buffers: impl IntoIterator<Item = &'a Buffer>) {
        self.arrays.insert(name.into(), buffers.into_iter().cloned().collect());
    }

    /// Binds a number. Those that are not bound have the defaults that programs declare.
    pub fn set_scalar(&mut self, name: impl Into<String>, value: f32) {
        self.set_number(name, f64::from(value));
    }

    /// Binds an integer, of a scalar parameter of an integer type. Those that are not bound have the defaults that programs declare.
    pub fn set_integer(&mut self, name: impl Into<String>, value: i32) {
        self.set_number(name, i64::from(value));
    }

    /// Binds a number, of a scalar parameter of any type, to which it is rounded. Those that are not bound have the defaults that programs declare.
    pub fn set_number(&mut self, name: impl Into<String>, value: impl Into<Number>) {
        self.numbers.insert(name.into(), value.into());
    }

    /// The buffer of this name.
    pub fn get(&self, name: &str) -> Option<&Buffer> {
        self.buffers.get(name)
    }

    /// The buffers of the array of tensors of this name.
    pub fn array(&self, name: &str) -> Option<&[Buffer]> {
        self.arrays.get(name).map(Vec::as_slice)
    }

    /// Allocates a buffer, filled with zeros and large enough for every kernel at its sizes, for each tensor, and each of an array, that has none.
    ///
    /// # Errors
    ///
    /// Sizes that a kernel does not take, or a device without so much memory.
    pub fn complete(
        &mut self,
        device: &dyn Device,
        kernels: &[(&Kernel, &Sizes)],
    ) -> Result<(), RuntimeError> {
        // For each, the number of tensors of an array, and bytes.
        let mut missing: BTreeMap<(String, Option<usize>), usize> = BTreeMap::new();
        for (kernel, sizes) in kernels {
            let failed =
                |error| RuntimeError::Sizes { kernel: kernel.program().name.clone(), error: Box::new(error) };
            for (id, param) in (0..).map(ParamId).zip(&kernel.program().params) {
                let known = match param.kind {
                    ParamKind::Scalar { .. } => true,
                    ParamKind::Tensor { array: true, .. } => self.arrays.contains_key(&param.name),
                    ParamKind::Tensor { array: false, .. } => self.buffers.contains_key(&param.name),
                };
                if !known {
                    let len = tensor_len(&kernel.verified, id, sizes).map_err(failed)?;
                    let tensors = tensors_of_array(&kernel.verified, id, sizes).map_err(failed)?;
                    let bytes = missing.entry((param.name.clone(), tensors)).or_default();
                    *bytes = param.dtype.bytes_of(len / tensors.unwrap_or(1)).max(*bytes);
                }
            }
        }
        for ((name, tensors), bytes) in missing {
            match tensors {
                None => {
                    self.buffers.insert(name, device.alloc(bytes)?);
                }
                Some(tensors) => {
                    let buffers = (0..tensors).map(|_| device.alloc(bytes)).collect::<Result<_, _>>()?;
                    self.arrays.insert(name, buffers);
                }
            }
        }
        Ok(())
    }

    /// The arguments of a launch of this kernel.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Unbound`] for a tensor without a buffer.
    pub fn args(&self, kernel: &Kernel) -> Result<Vec<Arg<'_>>, RuntimeError> {
        let arg = |param: &tilewright_tile::Param| match param.kind {
            ParamKind::Scalar { default } => {
                let number = self.numbers.get(&param.name).copied().unwrap_or(default);
                Ok(Arg::number(param.dtype, number))
            }
            ParamKind::Tensor { array, .. } => {
                let bound = match array {
                    true => self.arrays.get(&param.name).map(|buffers| Arg::Buffers(buffers)),
                    false => self.buffers.get(&param.name).map(Arg::Buffer),
                };
                bound.ok_or_else(|| RuntimeError::Unbound {
                    kernel: kernel.program().name.clone(),
                    param: param.name.clone(),
                })
            }
        };
        kernel.program().params.iter().map(arg).collect()
    }
}

/// Of these sizes, those that the kernel has.
pub fn sizes_of(kernel: &Kernel, sizes: &Sizes) -> Sizes {
    let own = kernel.program().sizes().filter_map(|(_, symbol, _)| sizes.get_key_value(&symbol.name));
    own.map(|(name, value)| (name.clone(), *value)).collect()
}

#[cfg(test)]
mod tests {
    use tilewright_compiler::{Options, compile};
    use tilewright_machine::{Arch, DType};
    use tilewright_tile::parse;

    use super::*;
    use crate::{DeviceChoice, Tensor, open};

    fn kernel(source: &str) -> Kernel {
        compile(&parse(source).unwrap(), &Options::new(Arch::SM_80)).unwrap()
    }

    #[test]
    fn kernels_meet_in_buffers_of_the_same_name() {
        let twice = kernel(
            "size n = 32
            kernel twice(x: f32[n], partial: f32[n], factor: f32 = 2.0) grid(1) threads(32) {
                gx = global_view(x[:], (32) : (e0))
                gp = global_view(partial[:], (32) : (e0))
                r = register_tensor(f32, [32])
                copy(gx, r)
                s = r * factor
                copy(s, gp)
            }",
        );
        let sum = kernel(
            "size m = 1
            kernel total(partial: f32[32], y: f32[m]) grid(1) threads(32) {
                gp = global_view(partial[:], (32) : (e0))
                gy = global_view(y[:], (1) : (e0))
                r = register_tensor(f32, [32])
                copy(gp, r)
                t = reduce(r, sum, 0)
                copy(t, gy)
            }",
        );
        let device = open(DeviceChoice::Sim).unwrap();
        let given = Sizes::from([("n".to_string(), 32), ("m".to_string(), 1), ("k".to_string(), 9)]);
        let sizes = [&twice, &sum].map(|kernel| sizes_of(kernel, &given));
        assert_eq!(sizes[0], Sizes::from([("n".to_string(), 32)]));
        let x = Tensor::from_f64(&*device, DType::F32, &[1.0; 32]).unwrap();
        let mut bindings = Bindings::new();
        bindings.set("x", x.buffer());
        let error = bindings.args(&sum).unwrap_err();
        assert_eq!(error.to_string(), "tensor `partial` of kernel `total` has no buffer");
        bindings.complete(&*device, &[(&twice, &sizes[0]), (&sum, &sizes[1])]).unwrap();
        assert!(bindings.get("x").unwrap().same(x.buffer()));
        assert_eq!(bindings.get("partial").unwrap().bytes(), 128);
        let mut expected = 64.0;
        for factor in [None, Some(3.0)] {
            if let Some(factor) = factor {
                bindings.set_scalar("factor", factor);
                expected = 96.0;
            }
            for (kernel, sizes) in [&twice, &sum].iter().zip(&sizes) {
                device.launch(kernel, sizes, &bindings.args(kernel).unwrap()).unwrap();
            }
            let bytes = device.download(bindings.get("y").unwrap()).unwrap();
            assert_eq!(crate::decode(DType::F32, &bytes), [expected]);
        }
    }

    #[test]
    fn sizes_that_a_kernel_does_not_take_are_an_error() {
        let kernel = kernel(
            "size n = 32
            kernel same(x: f32[n]) grid(1) threads(32) {
                gx = global_view(x[:], (32) : (e0))
                r = register_tensor(f32, [32])
                copy(gx, r)
                copy(r, gx)
            }",
        );
        let device = open(DeviceChoice::Sim).unwrap();
        let none = Sizes::from([("n".to_string(), 0)]);
        let error = Bindings::new().complete(&*device, &[(&kernel, &none)]).unwrap_err();
        assert!(matches!(error, RuntimeError::Sizes { .. }), "{error}");
    }
}
