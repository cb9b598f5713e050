//! Steps: the launches that take words of sequences.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tilewright::prelude::Kernel;
use tilewright::runtime::{Bindings, Buffer, CudaGraph, Device, L2, LaunchOptions, SimDevice, Sizes, Turn};

use crate::config::{Config, GROUP};
use crate::engine::Limits;
use crate::error::LlamaError;
use crate::model::{LayerBuffers, Matrix, Model, Place, filled};
use crate::programs::{
    ADD, ADVANCE, EMBED, GATE, LOGITS, MOST_SHARING, PAGE, Programs, QKV, ROPE, SILU, Sized, TOP,
};

/// Rows of activations that are few.
const FEW: usize = 8;
/// Parameters of products of few rows with weights of 4 bits: so few stages leave room for blocks of the launch behind, which was the fastest in the engine's order of launches on an H100
/// (docs/measurements/engine.md).
const OF_FEW: [(&str, &str); 1] = [("stages", "4")];

/// The keys and values of all sequences, by layer, and the angles of places.
pub(crate) struct Cache {
    pub(crate) limits: Limits,
    layers: Vec<(Buffer, Buffer)>,
    cos: Buffer,
    sin: Buffer,
}

impl Cache {
    pub(crate) fn new(model: &Model<'_>, limits: Limits) -> Result<Self, LlamaError> {
        let (device, config) = (model.place.device(), &model.config);
        let bytes = 2 * limits.all_pages() * PAGE * config.kv_heads * config.head;
        let layer = |_| Ok::<_, LlamaError>((device.alloc(bytes)?, device.alloc(bytes)?));
        let layers = (0..config.layers).map(layer).collect::<Result<_, _>>()?;
        let (cos, sin) = config.angles(limits.pages() * PAGE);
        let angles = |numbers: &[f32]| {
            filled(device, &numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
        };
        Ok(Cache { limits, layers, cos: angles(&cos)?, sin: angles(&sin)? })
    }
}

/// A launch: a kernel, its sizes and its buffers.
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    sizes: Sizes,
    bindings: Bindings,
}

/// The launches of a step of some sequences with some tokens of each, and what they read and leave.
pub(crate) struct Step<'d> {
    sequences: usize,
    pub(crate) tokens: usize,
    pub(crate) ids: Buffer,
    at: Buffer,
    lengths: Buffer,
    table: Buffer,
    /// The words so far, which steps of one token note.
    pub(crate) noted: Buffer,
    pub(crate) logits: Option<Buffer>,
    pub(crate) launches: Vec<Launch>,
    graph: Option<CudaGraph<'d>>,
}

pub(crate) fn bytes_of_words(numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
    numbers.into_iter().flat_map(|x| (x as i32).to_le_bytes()).collect()
}

/// Tensors that layers leave for each other: rows of a step's tokens.
struct Rows {
    /// The tokens' vectors; products that add to them read one of two buffers and write the other.
    h: [Buffer; 2],
    /// Behind a norm.
    x: Buffer,
    attended: Buffer,
    gated: Buffer,
    /// Gates and what they multiply, where they are not multiplied at once.
    both: Buffer,
}

/// A step that is being put together.
struct Builder<'b> {
    device: &'b dyn Device,
    programs: &'b mut Programs,
    model: &'b Model<'b>,
    cache: &'b Cache,
    launches: Vec<Launch>,
    /// Memory that kernels keep between their blocks, by the kernel and the parameter: launches of one kernel share it.
    workspaces: HashMap<(usize, String), Buffer>,
}

impl Builder<'_> {
    /// Adds launches, in which parameters of these names have these buffers. Launches that are put beside each other share what none of them was given.
    fn launch(&mut self, launches: Vec<Sized>, buffers: &[(&str, &Buffer)]) -> Result<(), LlamaError> {
        let mut bindings = Bindings::new();
        buffers.iter().for_each(|(name, buffer)| bindings.set(*name, buffer));
        bindings.set_scalar("eps", self.model.config.eps);
        bindings.set_scalar("scale", (self.model.config.head as f32).sqrt().recip());
        // Launches keep their kernels, so that an address is one kernel's.
        let key = |kernel: &Arc<Kernel>| Arc::as_ptr(kernel).addr();
        let params = |(kernel, _): &Sized| -> Vec<(usize, String)> {
            let params = &kernel.program().params;
            params.iter().map(|param| (key(kernel), param.name.clone())).collect()
        };
        let missing: Vec<(usize, String)> =
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
                let of_few: &[(&str, &str)] = if shape[0] <= FEW { &OF_FEW } else { &[] };
                let pinned = [pinned, of_few, &[("weights", "i4"), ("group", &group)]].concat();
                let launches = self.programs.product("gemm_weights", shape, &pinned)?;
                self.launch(launches, &[buffers, &[("w", integers), ("s", scales)]].concat())
            }
        }
    }
}

impl<'d> Step<'d> {
    /// A step of so many sequences and tokens of each; of one token it ends with the scores of words, and the choice of the most probable ones.
    pub(crate) fn new(
        programs: &mut Programs,
        model: &'d Model<'d>,
        cache: &Cache,
        [sequences, tokens]: [usize; 2],
    ) -> Result<Self, LlamaError> {
        let (device, config, limits) = (model.place.device(), &model.config, cache.limits);
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
        let mut builder = Builder { device, programs, model, cache, launches: Vec::new(), workspaces };
        step.put_together(&mut builder)?;
        step.launches = builder.launches;
        if let Place::Cuda(device) = model.place {
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
        let (model, limits) = (b.model, b.cache.limits);
        let Config { hidden, heads, kv_heads, head, intermediate, vocabulary, .. } = model.config;
        let m = self.sequences * self.tokens;
        let alloc = |columns: usize| b.device.alloc(2 * m * columns);
        let rows = Rows {
            h: [alloc(hidden)?, alloc(hidden)?],
            x: alloc(hidden)?,
            attended: alloc(heads * head)?,
            gated: alloc(intermediate)?,
            both: alloc(2 * intermediate)?,
        };
        let Rows { h: [h, _], x, attended, .. } = &rows;
        let (qkv, q) = (alloc(model.config.qkv())?, alloc(heads * head)?);
        let own = [("H", hidden)];
        let widest = hidden.next_power_of_two().min(1024);
        let embed = b.programs.own(
            EMBED,
            &[own[0], ("BN", widest), ("THREADS", (widest / 8).max(32))],
            &[("m", m), ("v", vocabulary)],
        )?;
        b.launch(embed, &[("ids", &self.ids), ("w", &model.embedding), ("h", h)])?;
        let pages = [limits.all_pages(), limits.pages()];
        let cache = [("pages", pages[0]), ("mb", pages[1]), ("places", pages[1] * PAGE)];
        let shape = [("HQ", heads), ("HK", kv_heads), ("D", head), ("PAGE", PAGE)];
        for (layer, (keys, values)) in model.layers.iter().zip(&b.cache.layers) {
            let turned = [
                ("at", &self.at),
                ("table", &self.table),
                ("cos", &b.cache.cos),
                ("sin", &b.cache.sin),
                ("q", &q),
                ("kc", keys),
                ("vc", values),
            ];
            if let (1, Matrix::F16(weights)) = (m, &layer.qkv) {
                let product = b.programs.rows(QKV, ("P", 2, hidden), &[&own[..], &shape].concat(), &cache)?;
                let given = [("h", h), ("g", &layer.attention_norm), ("w", weights)];
                b.launch(product, &[&given[..], &turned].concat())?;
            } else {
                let ahead = b.programs.norm(hidden, m)?;
                b.launch(ahead, &[("h", h), ("g", &layer.attention_norm), ("y", x)])?;
                let width = model.config.qkv();
                b.product(&layer.qkv, [m, width, hidden], &[], &[("a", x), ("c", &qkv)])?;
                let constants = [&shape[..], &[("SQ", self.tokens)]].concat();
                let sizes = [&cache[..], &[("m", m), ("b", self.sequences)]].concat();
                let rope = b.programs.own(ROPE, &constants, &sizes)?;
                b.launch(rope, &[&[("x", &qkv)][..], &turned].concat())?;
            }
            let attention = if m == 1 && heads / kv_heads <= MOST_SHARING {
                b.programs.attention_of_one(&model.config, pages)?
            } else {
                b.programs.attention(&model.config, [self.sequences, self.tokens], pages)?
            };
            let given = [
                ("q", &q),
                ("kc", keys),
                ("vc", values),
                ("table", &self.table),
                ("len", &self.lengths),
                ("o", attended),
            ];
            b.launch(attention, &given)?;
            self.gated(b, layer, &rows)?;
        }
        let Some(logits) = &self.logits else { return Ok(()) };
        if m == 1 {
            let constants = [own[0], ("V", vocabulary)];
            let product = b.programs.rows(LOGITS, ("R", 1, hidden), &constants, &[("m", m)])?;
            b.launch(product, &[("h", h), ("g", &model.norm), ("w", &model.words), ("y", logits)])?;
        } else {
            let ahead = b.programs.norm(hidden, m)?;
            b.launch(ahead, &[("h", h), ("g", &model.norm), ("y", x)])?;
            let product = b.programs.product("gemm_hopper", [m, vocabulary, hidden], &[("out", "f32")])?;
            b.launch(product, &[("a", x), ("b", &model.words), ("c", logits)])?;
        }
        let parts = Programs::parts();
        let (v, column) = (b.device.alloc(4 * m * parts.1)?, b.device.alloc(4 * m * parts.1)?);
        let top = b.programs.own(TOP, &[parts], &[("m", m), ("n", vocabulary)])?;
        b.launch(top, &[("x", logits), ("v", &v), ("column", &column)])?;
        let places = limits.pages() * PAGE;
        let advance = b.programs.own(ADVANCE, &[parts], &[("m", m), ("places", places)])?;
        let given = [
            ("v", &v),
            ("column", &column),
            ("ids", &self.ids),
            ("at", &self.at),
            ("len", &self.lengths),
            ("words", &self.noted),
        ];
        b.launch(advance, &given)
    }

    /// The launches behind a layer's attention: its product, the gated units and theirs, each added to the tokens' vectors.
    fn gated(&self, b: &mut Builder<'_>, layer: &LayerBuffers, rows: &Rows) -> Result<(), LlamaError> {
        let Rows { h: [h, other], x, attended, gated, both } = rows;
        let Config { hidden, heads, head, intermediate, .. } = b.model.config;
        let m = self.sequences * self.tokens;
        let (own, width) = (("H", hidden), heads * head);
        let matrices = (m, &layer.output, &layer.gate_up, &layer.down);
        if let (1, Matrix::F16(output), Matrix::F16(gate_up), Matrix::F16(down)) = matrices {
            let sizes = [("m", m)];
            let product = b.programs.rows(ADD, ("R", 1, width), &[("N", hidden), ("K", width)], &sizes)?;
            b.launch(product, &[("x", attended), ("w", output), ("h", h)])?;
            let product = b.programs.rows(GATE, ("P", 2, hidden), &[own, ("F", intermediate)], &sizes)?;
            b.launch(product, &[("h", h), ("g", &layer.gate_norm), ("w", gate_up), ("y", gated)])?;
            let constants = [("N", hidden), ("K", intermediate)];
            let product = b.programs.rows(ADD, ("R", 1, intermediate), &constants, &sizes)?;
            return b.launch(product, &[("x", gated), ("w", down), ("h", h)]);
        }
        let residual = [("epilogue", "residual")];
        let given = [("a", attended), ("residual", h), ("c", other)];
        b.product(&layer.output, [m, hidden, width], &residual, &given)?;
        let ahead = b.programs.norm(hidden, m)?;
        b.launch(ahead, &[("h", other), ("g", &layer.gate_norm), ("y", x)])?;
        match &layer.gate_up {
            Matrix::F16(_) => {
                let units = [("dual", "silu_mul"), ("fused", "true")];
                let given = [("a", x), ("c", gated)];
                b.product(&layer.gate_up, [m, intermediate, hidden], &units, &given)?;
            }
            Matrix::I4 { .. } => {
                let given = [("a", x), ("c", both)];
                b.product(&layer.gate_up, [m, 2 * intermediate, hidden], &[], &given)?;
                let constants = [("F", intermediate), ("BN", 1024), ("THREADS", 128)];
                let units = b.programs.own(SILU, &constants, &[("m", m)])?;
                b.launch(units, &[("x", both), ("y", gated)])?;
            }
        }
        let given = [("a", gated), ("residual", other), ("c", h)];
        b.product(&layer.down, [m, hidden, intermediate], &residual, &given)
    }

    /// Says which words come next in each sequence, and where; the pages of sequences are those from `first` on.
    pub(crate) fn begin(
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
    pub(crate) fn run(&self, place: &Place, times: usize) -> Result<Vec<f64>, LlamaError> {
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

    /// The milliseconds that the launches of each kernel of a step take, all of a kernel's behind each other, by name with their number.
    ///
    /// # Errors
    ///
    /// A device that fails.
    pub(crate) fn profile(
        &self,
        place: &Place,
        times: usize,
    ) -> Result<Vec<(String, usize, f64)>, LlamaError> {
        let Place::Cuda(device) = place else { return Ok(Vec::new()) };
        let mut kernels: Vec<&Arc<Kernel>> = Vec::new();
        for launch in &self.launches {
            if !kernels.iter().any(|known| Arc::ptr_eq(known, &launch.kernel)) {
                kernels.push(&launch.kernel);
            }
        }
        let mut found = Vec::new();
        for kernel in kernels {
            let mut sequence = device.sequence();
            let own = || self.launches.iter().filter(|launch| Arc::ptr_eq(&launch.kernel, kernel));
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
