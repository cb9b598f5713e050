//! Checking kernels that are launched one after another, and meet in buffers of the same names.

use std::any::Any;
use std::collections::BTreeMap;

use tilewright_compiler::Kernel;
use tilewright_machine::Elements;
use tilewright_runtime::{Bindings, CudaDevice, Device, LaunchOptions, SimDevice, Sizes, Tensor, sizes_of};
use tilewright_tile::interpret::{Argument, tensors_of_array};
use tilewright_tile::{ParamId, ParamKind};

use crate::check::{CheckError, CheckOptions, Outcome, adds, check};
use crate::findings::findings;
use crate::input::{Input, arguments};
use crate::memory::Memory;

/// State of the buffers that kernels leave one after another.
#[derive(Debug)]
pub struct Ran {
    /// The check of each.
    pub outcomes: Vec<Outcome>,
    /// Mistakes that show where a launch may begin before the one before it has ended: the simulator's reports, and outputs that differ from
    /// those of launches that wait. Empty of one kernel.
    pub together: Vec<String>,
    /// Milliseconds of all launches of the sequence, on a device with a clock.
    pub milliseconds: Option<f64>,
}

impl Ran {
    /// True if every kernel is right, and all are together.
    pub fn is_right(&self) -> bool {
        self.together.is_empty() && self.outcomes.iter().all(Outcome::is_right)
    }
}

/// Checks kernels that run in this order: each as [`check`] does, on what those before it left on the device. So a mistake is that of the kernel
/// that makes it, and one that is right for what it is given is right in the sequence. Then all run once more as a sequence of launches that may
/// overlap.
///
/// Tensors of one name are one buffer, which is as long as the kernel that spans most of it needs. What no kernel writes before another reads it
/// is an input.
///
/// # Errors
///
/// Those of [`check`].
pub fn check_in_order(
    kernels: &[&Kernel],
    device: &dyn Device,
    options: &CheckOptions,
) -> Result<Ran, CheckError> {
    let mut buffers = Buffers::default();
    let mut outcomes = Vec::new();
    for kernel in kernels {
        let given = buffers.given(kernel, options)?;
        buffers.note_inputs(kernel, &given)?;
        let outcome = check(kernel, device, &given)?;
        buffers.note_outputs(kernel, &outcome);
        outcomes.push(outcome);
    }
    let (together, milliseconds) = match kernels {
        [_] => (Vec::new(), None),
        several => buffers.together(several, device, options)?,
    };
    Ok(Ran { outcomes, together, milliseconds })
}

/// Contents of buffers by name: at first, and as they are now.
#[derive(Default)]
struct Buffers {
    first: BTreeMap<String, Elements>,
    now: BTreeMap<String, Elements>,
}

/// Names of a kernel's tensors, with their numbers.
fn tensors(kernel: &Kernel) -> impl Iterator<Item = (ParamId, &str)> {
    let rows = (0..).map(ParamId).zip(&kernel.program().params);
    rows.filter(|(_, p)| matches!(p.kind, ParamKind::Tensor { .. })).map(|(id, p)| (id, p.name.as_str()))
}

impl Buffers {
    /// The options with what the buffers hold for inputs.
    fn given(&self, kernel: &Kernel, options: &CheckOptions) -> Result<CheckOptions, CheckError> {
        let mut given = CheckOptions { sizes: sizes_of(kernel, &options.sizes), ..options.clone() };
        given.inputs.retain(|name, _| tensors(kernel).any(|(_, tensor)| tensor == name));
        // As long as the kernel spans, with what it draws where nothing is known.
        let drawn = arguments(kernel, &crate::check::sizes(kernel, &given), &given)?;
        for (id, name) in tensors(kernel) {
            let drawn = drawn.get(id.0 as usize).and_then(Argument::elements);
            let (Some(known), Some(mut memory)) = (self.now.get(name), drawn) else { continue };
            (0..known.len()).for_each(|at| memory.put(at, known, at));
            given.inputs.insert(name.to_string(), Input::Memory(memory));
        }
        Ok(given)
    }

    /// Keeps `values` as what a buffer holds, and what it held before behind them.
    fn keep(buffers: &mut BTreeMap<String, Elements>, name: &str, values: &Elements) {
        let mut kept = values.clone();
        if let Some(known) = buffers.get(name) {
            kept.extend_from(known, values.len());
        }
        buffers.insert(name.to_string(), kept);
    }

    fn note_inputs(&mut self, kernel: &Kernel, given: &CheckOptions) -> Result<(), CheckError> {
        let drawn = arguments(kernel, &crate::check::sizes(kernel, given), given)?;
        for (id, name) in tensors(kernel) {
            if let Some(values) = drawn.get(id.0 as usize).and_then(Argument::elements) {
                let known = self.first.get(name).map_or(0, Elements::len);
                if values.len() > known {
                    let none = || Elements::none(kernel.program().param(id).dtype);
                    self.first.entry(name.to_string()).or_insert_with(none).extend_from(&values, known);
                }
                Buffers::keep(&mut self.now, name, &values);
            }
        }
        Ok(())
    }

    fn note_outputs(&mut self, kernel: &Kernel, outcome: &Outcome) {
        for (id, name) in tensors(kernel) {
            if let Some(Some(values)) = outcome.results.get(id.0 as usize) {
                Buffers::keep(&mut self.now, name, values);
            }
        }
    }

    /// Runs all as a sequence, on what the buffers held at first.
    fn together(
        &self,
        kernels: &[&Kernel],
        device: &dyn Device,
        options: &CheckOptions,
    ) -> Result<(Vec<String>, Option<f64>), CheckError> {
        let mut bindings = Bindings::new();
        let mut bound = BTreeMap::new();
        for kernel in kernels {
            for (id, name) in tensors(kernel) {
                if bound.contains_key(name) {
                    continue;
                }
                let dtype = kernel.program().param(id).dtype;
                let none = Elements::none(dtype);
                let sizes = sizes_of(kernel, &options.sizes);
                let count = tensors_of_array(&kernel.verified, id, &sizes)?;
                let memory = Memory::new(device, dtype, self.first.get(name).unwrap_or(&none), count)?;
                match &memory {
                    Memory::One(tensor) => bindings.set(name, tensor.buffer()),
                    Memory::Array(tensors) => bindings.set_array(name, tensors.iter().map(Tensor::buffer)),
                }
                bound.insert(name, memory);
            }
        }
        for (name, value) in &options.scalars {
            bindings.set_number(name, *value);
        }
        let overlaps = LaunchOptions { dependent: true };
        let sizes: Vec<Sizes> = kernels.iter().map(|kernel| sizes_of(kernel, &options.sizes)).collect();
        let any: &dyn Any = device;
        let mut wrong = Vec::new();
        let mut milliseconds = None;
        if let Some(sim) = any.downcast_ref::<SimDevice>() {
            let mut sequence = sim.sequence();
            for (kernel, sizes) in kernels.iter().zip(&sizes) {
                sequence.push(kernel, sizes, &bindings.args(kernel)?, overlaps)?;
            }
            for (kernel, report) in kernels.iter().zip(sequence.run()?) {
                let sizes = sizes_of(kernel, &options.sizes);
                let found = report.sim().map(|r| findings(kernel, &sizes, &r.findings(), options.detail));
                wrong.extend(found.into_iter().flatten().map(|finding| {
                    format!("`{}` after the kernels before: {finding}", kernel.program().name)
                }));
            }
        } else if let Some(gpu) = any.downcast_ref::<CudaDevice>() {
            let mut sequence = gpu.sequence();
            for (kernel, sizes) in kernels.iter().zip(&sizes) {
                sequence.push(kernel, sizes, &bindings.args(kernel)?, overlaps)?;
            }
            milliseconds = Some(sequence.run()?);
        } else {
            return Ok((wrong, None));
        }
        // What is added in an order that is open is another sum each time.
        if !kernels.iter().any(|kernel| adds(kernel)) {
            for (name, memory) in bound {
                let now = memory.elements(device)?;
                let Some(known) = self.now.get(name) else { continue };
                let both = 0..now.len().min(known.len());
                let count = both.filter(|at| !now.same(known, *at)).count();
                if count > 0 {
                    wrong.push(format!(
                        "{count} elements of `{name}` differ where launches may begin before the one before has ended"
                    ));
                }
            }
        }
        Ok((wrong, milliseconds))
    }
}
