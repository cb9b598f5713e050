//! Models on a device.

use std::sync::Arc;

use half::f16;
use tilewright::kernels::operator;
use tilewright::machine::Arch;
use tilewright::prelude::{Kernel, Options, compile};
use tilewright::runtime::{Arg, Buffer, CudaDevice, Device, SimDevice, Sizes};

use crate::config::{Config, Format};
use crate::error::LlamaError;
use crate::quantise::Quantised;
use crate::weights::{Layer, Weights};

/// Multiprocessors of the GPU that the simulator stands for.
const SIMULATED: usize = 2;
/// Bytes of a row of a copy on a device.
const COPIED: usize = 2048;

/// A device that an engine runs on.
#[derive(Debug)]
pub enum Place {
    /// The simulator.
    Sim(SimDevice),
    /// A GPU.
    Cuda(CudaDevice),
}

impl Place {
    /// The simulator.
    pub fn sim() -> Self {
        Place::Sim(SimDevice::default())
    }

    /// The GPU with this number.
    ///
    /// # Errors
    ///
    /// There is no such GPU, or the driver fails.
    pub fn cuda(ordinal: u32) -> Result<Self, LlamaError> {
        Ok(Place::Cuda(CudaDevice::open(ordinal)?))
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        match self {
            Place::Sim(device) => device,
            Place::Cuda(device) => device,
        }
    }

    /// The architecture that kernels are compiled for.
    pub(crate) fn arch(&self) -> Arch {
        self.device().arch().unwrap_or(Arch::SM_90A)
    }

    /// The name for which kernels are chosen.
    pub(crate) fn chosen_for(&self) -> String {
        match self {
            Place::Sim(_) => "NVIDIA H200".to_string(),
            Place::Cuda(device) => device.name(),
        }
    }

    pub(crate) fn multiprocessors(&self) -> usize {
        let known = self.device().chip().multiprocessors;
        known.map_or(SIMULATED, |count| count as usize)
    }
}

/// A matrix on a device.
pub(crate) enum Matrix {
    F16(Buffer),
    I4 { integers: Buffer, scales: Buffer },
}

/// The weights of a layer on a device.
pub(crate) struct LayerBuffers {
    pub(crate) attention_norm: Buffer,
    pub(crate) qkv: Matrix,
    pub(crate) output: Matrix,
    pub(crate) gate_norm: Buffer,
    pub(crate) gate_up: Matrix,
    pub(crate) down: Matrix,
}

/// A model on a device.
pub struct Model<'d> {
    pub(crate) place: &'d Place,
    pub(crate) config: Config,
    pub(crate) embedding: Buffer,
    pub(crate) layers: Vec<LayerBuffers>,
    pub(crate) norm: Buffer,
    pub(crate) words: Buffer,
}

fn bytes_of(numbers: &[f16]) -> Vec<u8> {
    let mut bytes = vec![0; 2 * numbers.len()];
    bytes.chunks_exact_mut(2).zip(numbers).for_each(|(to, x)| to.copy_from_slice(&x.to_le_bytes()));
    bytes
}

/// Memory with these bytes.
pub(crate) fn filled(device: &dyn Device, bytes: &[u8]) -> Result<Buffer, LlamaError> {
    let buffer = device.alloc(bytes.len())?;
    device.upload(&buffer, bytes)?;
    Ok(buffer)
}

/// Copies within a device.
struct Copier<'d>(&'d dyn Device, Kernel);

impl<'d> Copier<'d> {
    fn new(place: &'d Place) -> Result<Self, LlamaError> {
        let failed = |source| LlamaError::Kernel { kernel: "copy".to_string(), source };
        let programs = operator("copy").and_then(|copy| (copy.programs)(&[]));
        let program = programs.map_err(|error| failed(error.into()))?.remove(0);
        let mut options = Options::new(place.arch());
        options.multiples.insert("n".to_string(), 256);
        let kernel = compile(&program, &options).map_err(|error| failed(Box::new(error)))?;
        Ok(Copier(place.device(), kernel))
    }

    /// Other memory with what there is in a buffer.
    fn copy(&self, from: &Buffer) -> Result<Buffer, LlamaError> {
        let rows = from.bytes() / COPIED;
        if rows == 0 || rows * COPIED != from.bytes() {
            return filled(self.0, &self.0.download(from)?);
        }
        let to = self.0.alloc(from.bytes())?;
        let sizes = [("m", rows), ("n", COPIED / 2)].map(|(name, value)| (name.to_string(), value as i64));
        self.0.launch(&self.1, &Sizes::from(sizes), &[Arg::Buffer(from), Arg::Buffer(&to)])?;
        Ok(to)
    }

    fn matrix(&self, from: &Matrix) -> Result<Matrix, LlamaError> {
        Ok(match from {
            Matrix::F16(weights) => Matrix::F16(self.copy(weights)?),
            Matrix::I4 { integers, scales } => {
                Matrix::I4 { integers: self.copy(integers)?, scales: self.copy(scales)? }
            }
        })
    }

    fn layer(&self, from: &LayerBuffers) -> Result<LayerBuffers, LlamaError> {
        Ok(LayerBuffers {
            attention_norm: self.copy(&from.attention_norm)?,
            qkv: self.matrix(&from.qkv)?,
            output: self.matrix(&from.output)?,
            gate_norm: self.copy(&from.gate_norm)?,
            gate_up: self.matrix(&from.gate_up)?,
            down: self.matrix(&from.down)?,
        })
    }
}

/// The bytes of a matrix.
enum MatrixBytes {
    F16(Vec<u8>),
    I4(Vec<u8>, Vec<u8>),
}

/// The bytes of a layer's matrices, in their order; each is made by a thread of its own.
fn matrices(config: &Config, format: Format, layer: &Layer) -> [MatrixBytes; 4] {
    let Config { hidden, heads, head, intermediate, .. } = *config;
    let bytes = move |numbers: &[f16], k: usize| match format {
        Format::F16 => MatrixBytes::F16(bytes_of(numbers)),
        Format::I4 => {
            let (integers, scales) = Quantised::of(numbers, k).bytes();
            MatrixBytes::I4(integers, scales)
        }
    };
    let of = [
        (&layer.qkv, hidden),
        (&layer.output, heads * head),
        (&layer.gate_up, hidden),
        (&layer.down, intermediate),
    ];
    std::thread::scope(|scope| {
        let threads = of.map(|(numbers, k)| scope.spawn(move || bytes(numbers, k)));
        // A thread that panics is a mistake of ours, and goes on as one.
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

impl LayerBuffers {
    fn new(device: &dyn Device, config: &Config, format: Format, layer: &Layer) -> Result<Self, LlamaError> {
        let matrix = |bytes: &MatrixBytes| match bytes {
            MatrixBytes::F16(bytes) => filled(device, bytes).map(Matrix::F16),
            MatrixBytes::I4(integers, scales) => {
                let (integers, scales) = (filled(device, integers)?, filled(device, scales)?);
                Ok(Matrix::I4 { integers, scales })
            }
        };
        let [qkv, output, gate_up, down] = &matrices(config, format, layer);
        Ok(LayerBuffers {
            attention_norm: filled(device, &bytes_of(&layer.attention_norm))?,
            qkv: matrix(qkv)?,
            output: matrix(output)?,
            gate_norm: filled(device, &bytes_of(&layer.gate_norm))?,
            gate_up: matrix(gate_up)?,
            down: matrix(down)?,
        })
    }
}

impl<'d> Model<'d> {
    /// Puts weights on a device. A layer that is the same as the one before is copied there, to memory of its own.
    ///
    /// # Errors
    ///
    /// A shape that the engine does not take, or a device without so much memory.
    pub fn new(
        place: &'d Place,
        config: &Config,
        weights: &Weights,
        format: Format,
    ) -> Result<Self, LlamaError> {
        config.validate()?;
        let device = place.device();
        let copier = Copier::new(place)?;
        let mut layers: Vec<LayerBuffers> = Vec::with_capacity(weights.layers.len());
        let mut last: Option<&Arc<Layer>> = None;
        for layer in &weights.layers {
            let same = last.is_some_and(|last| Arc::ptr_eq(last, layer));
            let buffers = match layers.last().filter(|_| same) {
                Some(before) => copier.layer(before)?,
                None => LayerBuffers::new(device, config, format, layer)?,
            };
            layers.push(buffers);
            last = Some(layer);
        }
        let put = |numbers: &[f16]| filled(device, &bytes_of(numbers));
        let embedding = put(&weights.embedding)?;
        let words = if config.tied { embedding.clone() } else { put(&weights.words)? };
        let norm = put(&weights.norm)?;
        Ok(Model { place, config: config.clone(), embedding, layers, norm, words })
    }

    /// The shape.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
