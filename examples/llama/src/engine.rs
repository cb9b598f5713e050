//! The engine: a model's weights and cache on a device, and the launches of its steps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use half::f16;
use tilewright::machine::Arch;
use tilewright::prelude::Kernel;
use tilewright::runtime::{
    Bindings, Buffer, CudaDevice, CudaGraph, Device, L2, LaunchOptions, SimDevice, Sizes, Turn,
};

use crate::config::{Config, Format, GROUP};
use crate::error::LlamaError;
use crate::programs::{
    ADD, ADVANCE, EMBED, GATE, LOGITS, MOST_SHARING, PAGE, Programs, QKV, ROPE, SILU, Sized, TOP,
};
use crate::quantise::Quantised;
use crate::weights::{Layer, Weights};

/// Tokens of a prompt that a step takes at a time.
const CHUNK: usize = 64;
/// Multiprocessors of the GPU that the simulator stands for.
const SIMULATED: usize = 2;

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

    /// The name for which kernels are chosen.
    fn chosen_for(&self) -> String {
        match self {
            Place::Sim(_) => "NVIDIA H200".to_string(),
            Place::Cuda(device) => device.name(),
        }
    }

    fn multiprocessors(&self) -> usize {
        let known = self.device().chip().multiprocessors;
        known.map_or(SIMULATED, |count| count as usize)
    }
}

/// The most that an engine has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Sequences at a time.
    pub sequences: usize,
    /// Words of a sequence.
    pub places: usize,
}

/// A matrix on a device.
enum Matrix {
    F16(Buffer),
    I4 { integers: Buffer, scales: Buffer },
}

/// The weights of a layer on a device, and its part of the cache.
struct LayerBuffers {
    attention_norm: Buffer,
    qkv: Matrix,
    output: Matrix,
    gate_norm: Buffer,
    gate_up: Matrix,
    down: Matrix,
    keys: Buffer,
    values: Buffer,
}

/// A model on a device.
struct Model {
    config: Config,
    limits: Limits,
    embedding: Buffer,
    layers: Vec<LayerBuffers>,
    norm: Buffer,
    words: Buffer,
    cos: Buffer,
    sin: Buffer,
}

/// A launch: a kernel, its sizes and its buffers.
struct Launch {
    kernel: Arc<Kernel>,
    sizes: Sizes,
    bindings: Bindings,
}

/// The launches of a step of some sequences with some tokens of each, and what they read and leave.
struct Step<'d> {
    sequences: usize,
    tokens: usize,
    ids: Buffer,
    at: Buffer,
    lengths: Buffer,
    table: Buffer,
    /// The words so far, which steps of one token note.
    noted: Buffer,
    logits: Option<Buffer>,
    launches: Vec<Launch>,
    graph: Option<CudaGraph<'d>>,
}

/// A model on a device, with the steps that it takes.
pub struct Engine<'d> {
    place: &'d Place,
    model: Model,
    /// All sequences, a token of each.
    all: Step<'d>,
    /// One sequence, a token; nothing where there is but one.
    one: Option<Step<'d>>,
    /// One sequence, tokens of its prompt.
    chunk: Option<Step<'d>>,
}

fn bytes_of(numbers: &[f16]) -> Vec<u8> {
    let mut bytes = vec![0; 2 * numbers.len()];
    bytes.chunks_exact_mut(2).zip(numbers).for_each(|(to, x)| to.copy_from_slice(&x.to_le_bytes()));
    bytes
}

fn bytes_of_words(numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
    numbers.into_iter().flat_map(|x| (x as i32).to_le_bytes()).collect()
}

/// Memory with these bytes.
fn filled(device: &dyn Device, bytes: &[u8]) -> Result<Buffer, LlamaError> {
    let buffer = device.alloc(bytes.len())?;
    device.upload(&buffer, bytes)?;
    Ok(buffer)
}

impl Limits {
    /// Pages of a sequence.
    fn pages(self) -> usize {
        self.places.div_ceil(PAGE)
    }

    /// Pages of all sequences.
    fn all_pages(self) -> usize {
        self.sequences * self.pages()
    }

    /// The pages of a sequence: those of several lie between each other, as they do where sequences grow in turn.
    fn table(self, sequence: usize) -> impl Iterator<Item = i64> {
        (0..self.pages()).map(move |page| (page * self.sequences + sequence) as i64)
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

impl Model {
    fn new(
        device: &dyn Device,
        config: &Config,
        weights: &Weights,
        (limits, format): (Limits, Format),
    ) -> Result<Self, LlamaError> {
        let put = |numbers: &[f16]| filled(device, &bytes_of(numbers));
        let matrix = |bytes: &MatrixBytes| match bytes {
            MatrixBytes::F16(bytes) => filled(device, bytes).map(Matrix::F16),
            MatrixBytes::I4(integers, scales) => {
                let (integers, scales) = (filled(device, integers)?, filled(device, scales)?);
                Ok(Matrix::I4 { integers, scales })
            }
        };
        let cache = 2 * limits.all_pages() * PAGE * config.kv_heads * config.head;
        let mut layers: Vec<LayerBuffers> = Vec::with_capacity(weights.layers.len());
        // The bytes of the layer before, which may be this one's.
        let mut last: Option<(&Arc<Layer>, [MatrixBytes; 4])> = None;
        for layer in &weights.layers {
            let bytes = match last.take() {
                Some((known, bytes)) if Arc::ptr_eq(known, layer) => bytes,
                _ => matrices(config, format, layer),
            };
            layers.push(LayerBuffers {
                attention_norm: put(&layer.attention_norm)?,
                qkv: matrix(&bytes[0])?,
                output: matrix(&bytes[1])?,
                gate_norm: put(&layer.gate_norm)?,
                gate_up: matrix(&bytes[2])?,
                down: matrix(&bytes[3])?,
                keys: device.alloc(cache)?,
                values: device.alloc(cache)?,
            });
            last = Some((layer, bytes));
        }
        let (cos, sin) = config.angles(limits.pages() * PAGE);
        let angles = |numbers: &[f32]| {
            filled(device, &numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
        };
        let embedding = put(&weights.embedding)?;
        let words = if config.tied { embedding.clone() } else { put(&weights.words)? };
        Ok(Model {
            config: config.clone(),
            limits,
            embedding,
            layers,
            norm: put(&weights.norm)?,
            words,
            cos: angles(&cos)?,
            sin: angles(&sin)?,
        })
    }
}

/// A step that is being put together.
struct Builder<'b> {
    device: &'b dyn Device,
    programs: &'b mut Programs,
    model: &'b Model,
    launches: Vec<Launch>,
    /// Memory that kernels keep between their blocks, by the kernel and the parameter: launches of one kernel share it.
    workspaces: HashMap<(String, String), Buffer>,
}

impl Builder<'_> {
    /// Adds launches, in which parameters of these names have these buffers. Launches that are put beside each other share what none of them was given.
    fn launch(&mut self, launches: Vec<Sized>, buffers: &[(&str, &Buffer)]) -> Result<(), LlamaError> {
        let mut bindings = Bindings::new();
        buffers.iter().for_each(|(name, buffer)| bindings.set(*name, buffer));
        bindings.set_scalar("eps", self.model.config.eps);
        bindings.set_scalar("scale", (self.model.config.head as f32).sqrt().recip());
        let key = |kernel: &Kernel| kernel.program().to_string();
        let params = |(kernel, _): &Sized| -> Vec<(String, String)> {
            let params = &kernel.program().params;
            params.iter().map(|param| (key(kernel), param.name.clone())).collect()
        };
        let missing: Vec<(String, String)> =
            launches.iter().flat_map(params).filter(|(_, param)| bindings.get(param).is_none()).collect();
        for own in &missing {
            if let Some(known) = self.workspaces.get(own) {
                bindings.set(own.1.clone(), known);
            }
        }
        let all: Vec<(&Kernel, &Sizes)> =
            launches.iter().map(|(kernel, sizes)| (kernel.as_ref(), sizes)).collect();
        bindings.complete(self.device, &all)?;
        for own in missing {
            if let Some(buffer) = bindings.get(&own.1) {
                self.workspaces.insert(own, buffer.clone());
            }
        }
        for (kernel, sizes) in launches {
            self.launches.push(Launch { kernel, sizes, bindings: bindings.clone() });
        }
        Ok(())
    }

    /// Adds the product of rows of `a` by a matrix, with parameters of the operator.
    fn product(
        &mut self,
        matrix: &Matrix,
        shape: [usize; 3],
        pinned: &[(&str, &str)],
        buffers: &[(&str, &Buffer)],
    ) -> Result<(), LlamaError> {
        match matrix {
            Matrix::F16(weights) => {
                let launches = self.programs.product("gemm_hopper", shape, pinned)?;
                self.launch(launches, &[buffers, &[("b", weights)]].concat())
            }
            Matrix::I4 { integers, scales } => {
                let group = GROUP.to_string();
                let pinned = [pinned, &[("weights", "i4"), ("group", &group)]].concat();
                let launches = self.programs.product("gemm_weights", shape, &pinned)?;
                self.launch(launches, &[buffers, &[("w", integers), ("s", scales)]].concat())
            }
        }
    }
}

impl<'d> Step<'d> {
    /// A step of so many sequences and tokens of each; of one token it ends with the scores of words, and the choice of the most probable ones.
    fn new(
        place: &'d Place,
        programs: &mut Programs,
        model: &Model,
        [sequences, tokens]: [usize; 2],
    ) -> Result<Self, LlamaError> {
        let (device, config, limits) = (place.device(), &model.config, model.limits);
        let m = sequences * tokens;
        let places = limits.pages() * PAGE;
        let alloc = |count: usize, size: usize| device.alloc(count * size);
        let (ids, at, lengths) = (alloc(m, 4)?, alloc(m, 4)?, alloc(sequences, 4)?);
        let (table, noted) = (alloc(sequences * limits.pages(), 4)?, alloc(sequences * places, 4)?);
        let logits = (tokens == 1).then(|| alloc(m * config.vocabulary, 4)).transpose()?;
        let mut step = Step {
            sequences,
            tokens,
            ids,
            at,
            lengths,
            table,
            noted,
            logits,
            launches: Vec::new(),
            graph: None,
        };
        let workspaces = HashMap::new();
        let mut builder = Builder { device, programs, model, launches: Vec::new(), workspaces };
        step.put_together(&mut builder)?;
        step.launches = builder.launches;
        if let Place::Cuda(device) = place {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let kernels: Vec<&Kernel> = step.launches.iter().map(|launch| launch.kernel.as_ref()).collect();
            device.load_ahead(&kernels, threads);
            let mut sequence = device.sequence();
            for Launch { kernel, sizes, bindings } in &step.launches {
                let options = LaunchOptions { dependent: true };
                sequence.push(kernel, sizes, &bindings.args(kernel)?, options)?;
            }
            step.graph = Some(sequence.capture()?);
        }
        Ok(step)
    }

    fn put_together(&self, b: &mut Builder<'_>) -> Result<(), LlamaError> {
        let model = b.model;
        let Config { hidden, heads, kv_heads, head, vocabulary, .. } = model.config;
        let m = self.sequences * self.tokens;
        let alloc = |columns: usize| b.device.alloc(2 * m * columns);
        // Products that add to h read one buffer and write the other.
        let (h, other) = (alloc(hidden)?, alloc(hidden)?);
        let (x, qkv, q) = (alloc(hidden)?, alloc(model.config.qkv())?, alloc(heads * head)?);
        let attended = alloc(heads * head)?;
        let own = [("H", hidden)];
        let widest = hidden.next_power_of_two().min(1024);
        let embed = b.programs.own(
            EMBED,
            &[own[0], ("BN", widest), ("THREADS", (widest / 8).max(32))],
            &[("m", m), ("v", vocabulary)],
        )?;
        b.launch(vec![embed], &[("ids", &self.ids), ("w", &model.embedding), ("h", &h)])?;
        let pages = [model.limits.all_pages(), model.limits.pages()];
        let cache = [("pages", pages[0]), ("mb", pages[1]), ("places", pages[1] * PAGE)];
        let shape = [("HQ", heads), ("HK", kv_heads), ("D", head), ("PAGE", PAGE)];
        for layer in &model.layers {
            let turned = [
                ("at", &self.at),
                ("table", &self.table),
                ("cos", &model.cos),
                ("sin", &model.sin),
                ("q", &q),
                ("kc", &layer.keys),
                ("vc", &layer.values),
            ];
            if let (1, Matrix::F16(weights)) = (m, &layer.qkv) {
                let product = b.programs.rows(QKV, ("P", 2, hidden), &[&own[..], &shape].concat(), &cache)?;
                let given = [("h", &h), ("g", &layer.attention_norm), ("w", weights)];
                b.launch(vec![product], &[&given[..], &turned].concat())?;
            } else {
                let ahead = b.programs.norm(hidden, m)?;
                b.launch(vec![ahead], &[("h", &h), ("g", &layer.attention_norm), ("y", &x)])?;
                let width = model.config.qkv();
                b.product(&layer.qkv, [m, width, hidden], &[], &[("a", &x), ("c", &qkv)])?;
                let constants = [&shape[..], &[("SQ", self.tokens)]].concat();
                let sizes = [&cache[..], &[("m", m), ("b", self.sequences)]].concat();
                let rope = b.programs.own(ROPE, &constants, &sizes)?;
                b.launch(vec![rope], &[&[("x", &qkv)][..], &turned].concat())?;
            }
            let attention = if m == 1 && heads / kv_heads <= MOST_SHARING {
                vec![b.programs.attention_of_one(&model.config, pages)?]
            } else {
                b.programs.attention(&model.config, [self.sequences, self.tokens], pages)?
            };
            let given = [
                ("q", &q),
                ("kc", &layer.keys),
                ("vc", &layer.values),
                ("table", &self.table),
                ("len", &self.lengths),
                ("o", &attended),
            ];
            b.launch(attention, &given)?;
            self.gated(b, layer, [&h, &other], &attended)?;
        }
        let Some(logits) = &self.logits else { return Ok(()) };
        if m == 1 {
            let constants = [own[0], ("V", vocabulary)];
            let product = b.programs.rows(LOGITS, ("R", 1, hidden), &constants, &[("m", m)])?;
            b.launch(vec![product], &[("h", &h), ("g", &model.norm), ("w", &model.words), ("y", logits)])?;
        } else {
            let ahead = b.programs.norm(hidden, m)?;
            b.launch(vec![ahead], &[("h", &h), ("g", &model.norm), ("y", &x)])?;
            let product = b.programs.product("gemm_hopper", [m, vocabulary, hidden], &[("out", "f32")])?;
            b.launch(product, &[("a", &x), ("b", &model.words), ("c", logits)])?;
        }
        let parts = Programs::parts();
        let (v, column) = (b.device.alloc(4 * m * parts.1)?, b.device.alloc(4 * m * parts.1)?);
        let top = b.programs.own(TOP, &[parts], &[("m", m), ("n", vocabulary)])?;
        b.launch(vec![top], &[("x", logits), ("v", &v), ("column", &column)])?;
        let places = model.limits.pages() * PAGE;
        let advance = b.programs.own(ADVANCE, &[parts], &[("m", m), ("places", places)])?;
        let given = [
            ("v", &v),
            ("column", &column),
            ("ids", &self.ids),
            ("at", &self.at),
            ("len", &self.lengths),
            ("words", &self.noted),
        ];
        b.launch(vec![advance], &given)
    }

    /// The launches behind a layer's attention: its product, the gated units and theirs, each added to `h`. Products of several rows read what they
    /// add to in one buffer and write the other.
    fn gated(
        &self,
        b: &mut Builder<'_>,
        layer: &LayerBuffers,
        [h, other]: [&Buffer; 2],
        attended: &Buffer,
    ) -> Result<(), LlamaError> {
        let Config { hidden, heads, head, intermediate, .. } = b.model.config;
        let m = self.sequences * self.tokens;
        let gated = b.device.alloc(2 * m * intermediate)?;
        let (own, width) = (("H", hidden), heads * head);
        let matrices = (m, &layer.output, &layer.gate_up, &layer.down);
        if let (1, Matrix::F16(output), Matrix::F16(gate_up), Matrix::F16(down)) = matrices {
            let rows = [("m", m)];
            let product = b.programs.rows(ADD, ("R", 1, width), &[("N", hidden), ("K", width)], &rows)?;
            b.launch(vec![product], &[("x", attended), ("w", output), ("h", h)])?;
            let product = b.programs.rows(GATE, ("P", 2, hidden), &[own, ("F", intermediate)], &rows)?;
            b.launch(vec![product], &[("h", h), ("g", &layer.gate_norm), ("w", gate_up), ("y", &gated)])?;
            let constants = [("N", hidden), ("K", intermediate)];
            let product = b.programs.rows(ADD, ("R", 1, intermediate), &constants, &rows)?;
            return b.launch(vec![product], &[("x", &gated), ("w", down), ("h", h)]);
        }
        let residual = [("epilogue", "residual")];
        let given = [("a", attended), ("residual", h), ("c", other)];
        b.product(&layer.output, [m, hidden, width], &residual, &given)?;
        let x = b.device.alloc(2 * m * hidden)?;
        let ahead = b.programs.norm(hidden, m)?;
        b.launch(vec![ahead], &[("h", other), ("g", &layer.gate_norm), ("y", &x)])?;
        match &layer.gate_up {
            Matrix::F16(_) => {
                let units = [("dual", "silu_mul"), ("fused", "true")];
                let given = [("a", &x), ("c", &gated)];
                b.product(&layer.gate_up, [m, intermediate, hidden], &units, &given)?;
            }
            Matrix::I4 { .. } => {
                let both = b.device.alloc(4 * m * intermediate)?;
                let given = [("a", &x), ("c", &both)];
                b.product(&layer.gate_up, [m, 2 * intermediate, hidden], &[], &given)?;
                let constants = [("F", intermediate), ("BN", 1024), ("THREADS", 128)];
                let units = b.programs.own(SILU, &constants, &[("m", m)])?;
                b.launch(vec![units], &[("x", &both), ("y", &gated)])?;
            }
        }
        let given = [("a", &gated), ("residual", other), ("c", h)];
        b.product(&layer.down, [m, hidden, intermediate], &residual, &given)
    }

    /// Says which words come next in each sequence, and where; the pages of sequences are those from `first` on.
    fn begin(
        &self,
        device: &dyn Device,
        limits: Limits,
        first: usize,
        words: &[(usize, &[u32])],
    ) -> Result<(), LlamaError> {
        let ids = words.iter().flat_map(|(_, words)| words.iter().map(|word| i64::from(*word)));
        device.upload(&self.ids, &bytes_of_words(ids))?;
        let at = words.iter().flat_map(|(at, words)| (*at..at + words.len()).map(|place| place as i64));
        device.upload(&self.at, &bytes_of_words(at))?;
        let lengths = words.iter().map(|(at, words)| (at + words.len()) as i64);
        device.upload(&self.lengths, &bytes_of_words(lengths))?;
        let table = (first..first + self.sequences).flat_map(|sequence| limits.table(sequence));
        Ok(device.upload(&self.table, &bytes_of_words(table))?)
    }

    /// Runs the launches so many times.
    fn run(&self, place: &Place, times: usize) -> Result<Vec<f64>, LlamaError> {
        match (place, &self.graph) {
            (Place::Cuda(device), Some(graph)) => {
                let turn = Turn { rest: Duration::ZERO, l2: L2::Kept, warmup: 0, runs: times };
                Ok(device.turn(&turn, graph)?)
            }
            (Place::Sim(device), _) => {
                for _ in 0..times {
                    self.simulate(device)?;
                }
                Ok(Vec::new())
            }
            (Place::Cuda(_), None) => Ok(Vec::new()),
        }
    }

    fn simulate(&self, device: &SimDevice) -> Result<(), LlamaError> {
        let mut sequence = device.sequence();
        for Launch { kernel, sizes, bindings } in &self.launches {
            sequence.push(kernel, sizes, &bindings.args(kernel)?, LaunchOptions { dependent: true })?;
        }
        for (report, launch) in sequence.run()?.iter().zip(&self.launches) {
            if let [first, ..] = &report.problems()[..] {
                let (kernel, count) = (launch.kernel.program().name.clone(), report.problems().len());
                return Err(LlamaError::Simulated { kernel, count, first: first.clone() });
            }
        }
        Ok(())
    }
}

impl<'d> Engine<'d> {
    /// Puts a model on a device, and makes the launches of its steps.
    ///
    /// # Errors
    ///
    /// A shape that the engine does not take, a device without so much memory, or one that none of its kernels runs on.
    pub fn new(
        place: &'d Place,
        config: &Config,
        weights: &Weights,
        format: Format,
        limits: Limits,
    ) -> Result<Self, LlamaError> {
        config.validate()?;
        for (field, value) in [("sequences", limits.sequences), ("places", limits.places)] {
            if value == 0 {
                let wanted = "must be at least 1".to_string();
                return Err(LlamaError::Config { field, value: "0".to_string(), wanted });
            }
        }
        let device = place.device();
        let arch = device.arch().unwrap_or(Arch::SM_90A);
        let mut programs = Programs::new(&place.chosen_for(), arch, place.multiprocessors());
        let model = Model::new(device, config, weights, (limits, format))?;
        let mut step = |shape| Step::new(place, &mut programs, &model, shape);
        let all = step([limits.sequences, 1])?;
        let one = (limits.sequences > 1).then(|| step([1, 1])).transpose()?;
        let chunk = (limits.places > CHUNK).then(|| step([1, CHUNK])).transpose()?;
        Ok(Engine { place, model, all, one, chunk })
    }

    /// Begins sequences: after it, the engine has read all words of each but its last, which [`Engine::run`] reads first.
    ///
    /// # Errors
    ///
    /// Another number of prompts than of sequences, words that there are not or that have no room, or a device that fails.
    pub fn begin(&mut self, prompts: &[Vec<u32>]) -> Result<(), LlamaError> {
        let (limits, vocabulary) = (self.model.limits, self.model.config.vocabulary);
        let room = limits.pages() * PAGE;
        if prompts.len() != limits.sequences || prompts.iter().any(Vec::is_empty) {
            let given = format!(
                "{} prompts, the shortest of {:?} words",
                prompts.len(),
                prompts.iter().map(Vec::len).min()
            );
            return Err(LlamaError::Prompts { given, sequences: limits.sequences });
        }
        if let Some(word) = prompts.iter().flatten().find(|word| **word as usize >= vocabulary) {
            return Err(LlamaError::Word { word: *word, vocabulary });
        }
        if let Some(words) = prompts.iter().map(Vec::len).find(|words| *words > room) {
            return Err(LlamaError::Room { words, room });
        }
        let (device, single) = (self.place.device(), self.one.as_ref().unwrap_or(&self.all));
        for (sequence, prompt) in prompts.iter().enumerate() {
            let mut at = 0;
            while at + 1 < prompt.len() {
                let left = prompt.len() - 1 - at;
                let step = self.chunk.as_ref().filter(|chunk| chunk.tokens <= left).unwrap_or(single);
                step.begin(device, limits, sequence, &[(at, &prompt[at..at + step.tokens])])?;
                step.run(self.place, 1)?;
                at += step.tokens;
            }
        }
        let last = |prompt: &Vec<u32>| prompt.len() - 1;
        let words: Vec<(usize, &[u32])> =
            prompts.iter().map(|prompt| (last(prompt), &prompt[last(prompt)..])).collect();
        self.all.begin(device, limits, 0, &words)
    }

    /// Takes a step with every sequence, as often as is said, each time with the word that had the largest score. Returns the milliseconds of each on a GPU.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub fn run(&mut self, steps: usize) -> Result<Vec<f64>, LlamaError> {
        self.all.run(self.place, steps)
    }

    /// Replaces the words that the next step reads, one a sequence.
    ///
    /// # Errors
    ///
    /// Another number of words, a word that there is not, or a device that fails.
    pub fn choose(&mut self, words: &[u32]) -> Result<(), LlamaError> {
        let (sequences, vocabulary) = (self.model.limits.sequences, self.model.config.vocabulary);
        if words.len() != sequences {
            return Err(LlamaError::Prompts { given: format!("{} words", words.len()), sequences });
        }
        if let Some(word) = words.iter().find(|word| **word as usize >= vocabulary) {
            return Err(LlamaError::Word { word: *word, vocabulary });
        }
        let words = words.iter().map(|word| i64::from(*word));
        Ok(self.place.device().upload(&self.all.ids, &bytes_of_words(words))?)
    }

    /// The scores of words after the last step, of each sequence.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub fn logits(&self) -> Result<Vec<Vec<f32>>, LlamaError> {
        let Some(logits) = &self.all.logits else { return Ok(Vec::new()) };
        let bytes = self.place.device().download(logits)?;
        let numbers: Vec<f32> =
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(numbers.chunks_exact(self.model.config.vocabulary).map(<[f32]>::to_vec).collect())
    }

    /// The words at some places of each sequence, of those that steps have chosen.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub fn words(&self, places: std::ops::Range<usize>) -> Result<Vec<Vec<u32>>, LlamaError> {
        let bytes = self.place.device().download(&self.all.noted)?;
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let room = self.model.limits.pages() * PAGE;
        let of = |row: &[u32]| row.get(places.clone()).unwrap_or_default().to_vec();
        Ok(words.chunks_exact(room).map(of).collect())
    }

    /// The milliseconds that the launches of each kernel of a step take, all of a kernel's behind each other, by name with their number.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub fn profile(&self, times: usize) -> Result<Vec<(String, usize, f64)>, LlamaError> {
        let Place::Cuda(device) = self.place else { return Ok(Vec::new()) };
        let mut kernels: Vec<&Arc<Kernel>> = Vec::new();
        for launch in &self.all.launches {
            if !kernels.iter().any(|known| Arc::ptr_eq(known, &launch.kernel)) {
                kernels.push(&launch.kernel);
            }
        }
        let mut found = Vec::new();
        for kernel in kernels {
            let mut sequence = device.sequence();
            let own = || self.all.launches.iter().filter(|launch| Arc::ptr_eq(&launch.kernel, kernel));
            for Launch { kernel, sizes, bindings } in own() {
                sequence.push(kernel, sizes, &bindings.args(kernel)?, LaunchOptions { dependent: true })?;
            }
            let graph = sequence.capture()?;
            let turn = Turn { rest: Duration::ZERO, l2: L2::Kept, warmup: 3, runs: times.max(1) };
            let mut times = device.turn(&turn, &graph)?;
            times.sort_by(f64::total_cmp);
            found.push((kernel.program().name.clone(), own().count(), times[times.len() / 2]));
        }
        Ok(found)
    }

    /// The launches of a step of all sequences.
    pub fn launches(&self) -> Vec<String> {
        self.all.launches.iter().map(|launch| launch.kernel.program().name.clone()).collect()
    }
}
