//! Attention backward for Hopper: dq, dk and dv from q, k, v, o, do and the log-sum-exp of the forward pass. A block owns keys of a head of k and
//! walks over blocks of the queries that attend to them, of all heads that share it: Sᵀ = k qᵀ, Pᵀ = exp(scale · Sᵀ − lse), dPᵀ = v doᵀ,
//! dSᵀ = Pᵀ ∘ (dPᵀ − delta), dv += Pᵀ do, dk += dSᵀ q with left factors in registers (FlashAttention-3, section 3.4), and dS k, which is added
//! to f32 sums in global memory. A pass before has delta = rowsum(do ∘ o), and one behind rounds the sums. If the result shall not
//! depend on an order, dq has a kernel of its own, with queries as owners.
//!
//! The programs are text with the choices written out; `tilewright kernels attention_backward -p …` prints them.

mod passes;
mod places;
mod queries;
mod reference;
mod scores;
mod space;
mod text;

use tilewright_machine::{Arch, DType};
use tilewright_tile::{Program, parse};

use crate::attention::options::options;
use crate::attention::{Change, Expression, Function, MOST_KEYS, Mask, Modes, Scalars};
use crate::config::ConfigError;
use crate::warp_specialized::refused;

pub use reference::{Given, Gradients, edge_sizes, reference};

options! {
    /// The head, the mask and the tiling of the gradients of attention. The default is 128 keys by 80 queries, the largest that registers hold for heads of 128 elements. The bias and the
    /// sinks get no gradient.
    pub struct AttentionBackwardConfig, "attention_backward", programs copied() {
        {
            /// The type of all tensors but lse: f16 or bf16. Scores and sums are f32.
            dtype: DType as FLOAT16 = DType::F16,
            /// Elements of a head of q and k, a multiple of 16 up to 128, or 192 if deterministic.
            d: i64 as INT = 128,
        }
        {}
        {
            /// The same bits in every launch: a kernel of its own computes dq, with seven products in all instead of five.
            deterministic: bool as FLAG = false,
        }
        {
            /// Queries of a block, a multiple of 16, or widest: as many as registers hold.
            bm: Option<i64> as WIDEST = None,
            /// Warpgroups that multiply, of 64 keys each.
            warpgroups: i64 as INT = 2,
            /// Blocks of queries in shared memory.
            stages: i64 as INT = 2,
            /// Keys and values of a block lie in registers, too, as left factors: fewer bytes of shared memory are read.
            keys_in_registers: bool as FLAG = false,
            /// The product for dv is in flight while gradients of scores are computed: takes registers.
            overlap: bool as FLAG = false,
            /// dq is added by bulk copies from shared memory, which a warpgroup of its own starts. Else threads add what they hold.
            bulk: bool as FLAG = false,
            /// Blocks of queries by which neighbouring blocks of keys begin apart, so that fewer add to one place of dq at a time.
            stagger: i64 as INT = 0,
        }
    }
}

/// Registers of a math thread beside its fragments.
const SPARE_REGISTERS: i64 = 10;

/// The same where keys are masked, scores have a cap, or a thread has many sums of dq.
const SPARE_BESIDE_MASKS: i64 = 26;

/// Elements of a head of k and of v, together, whose sums leave registers for anything else.
const MOST_ELEMENTS: i64 = 320;

/// The largest block of queries that is chosen where none is given.
const WIDEST: i64 = 112;

impl AttentionBackwardConfig {
    /// Keys of a block.
    pub fn keys(&self) -> i64 {
        64 * self.warpgroups
    }

    /// Queries of a block.
    pub fn block_of_queries(&self) -> i64 {
        self.bm.unwrap_or_else(|| {
            let plain = self.mask == Mask::None && !self.softcap && self.d <= 128 && self.warpgroups > 1;
            let plain = plain && !self.adds_to_scores() && self.attends.is_none() && !self.varlen;
            let spare = if plain { SPARE_REGISTERS } else { SPARE_BESIDE_MASKS };
            let fits = |bm: &i64| {
                let config = AttentionBackwardConfig { bm: Some(*bm), ..self.clone() };
                config.fragments() + spare <= config.math_registers()
                    && (config.deterministic || config.sums().split.is_some())
                    && config.shared_bytes() + 1024 <= shared_bytes_of_a_block()
            };
            (1..=WIDEST / 16).map(|n| 16 * n).rev().find(fits).unwrap_or(if self.d % 64 == 0 {
                16
            } else {
                64
            })
        })
    }

    /// True if weights are rounded before the gradients of scores are computed.
    fn rounds_early(&self) -> bool {
        self.softcap || self.overlap || self.score.is_some()
    }

    /// True if scores are more than multiples of products, and perhaps capped.
    fn adds_to_scores(&self) -> bool {
        self.alibi || self.bias || self.score.is_some()
    }

    /// Warpgroups of a block.
    fn all_warpgroups(&self) -> i64 {
        self.warpgroups + 1 + i64::from(self.adds_in_bulk())
    }

    fn adds_in_bulk(&self) -> bool {
        self.bulk && !self.deterministic
    }

    /// Registers of a thread that starts copies: those of long heads have more parts, and sequences more numbers.
    fn copy_registers(&self) -> i64 {
        match (self.d.max(self.values()) > 128, self.varlen) {
            (true, _) => 40,
            (false, true) => 32,
            (false, false) => 24,
        }
    }

    /// Registers of a thread that multiplies.
    fn math_registers(&self) -> i64 {
        let all = self.all_warpgroups();
        let each = (65536 / (128 * all)).min(255) / 8 * 8;
        let copying = self.copy_registers() * (all - self.warpgroups);
        ((each * all - copying) / self.warpgroups / 8 * 8).min(240)
    }

    /// Registers of a math thread's fragments where the most are live: dk and dv with weights, their gradients, and a number for each query, or
    /// with dS k and the two rounded factors in flight.
    fn fragments(&self) -> i64 {
        let (heads, bm) = ((self.d + self.values()) / 2, self.block_of_queries());
        let factors = if self.keys_in_registers { heads / 2 } else { 0 };
        let rounded = if self.rounds_early() { bm / 4 } else { 0 };
        let sums = if self.deterministic { 0 } else { bm * self.d / self.keys() / 2 };
        let bias = if self.bias { bm / 4 } else { 0 };
        heads + factors + (bm + bm / 4 + rounded + bias).max(sums + bm / 2)
    }

    /// Bytes of shared memory of a block of the main kernel, without mbarriers.
    fn shared_bytes(&self) -> i64 {
        let (heads, keys) = (self.d + self.values(), self.keys());
        let bm = self.block_of_queries();
        let gradients = if self.deterministic { 0 } else { 2 * 2 * keys * bm };
        let sums = if self.adds_in_bulk() { 4 * bm * self.d } else { 0 };
        2 * keys * heads + self.stages * (2 * bm * heads + 8 * bm) + gradients + sums
    }

    /// The product dS k.
    fn sums(&self) -> Sums {
        Sums::new(self)
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let head = |field, elements: i64| {
            let right = (16..=192).contains(&elements) && elements % 16 == 0;
            let wanted = "must be a multiple of 16 from 16 to 192";
            if right { Ok(()) } else { Err(ConfigError::value(field, elements, wanted)) }
        };
        let within = |field, value: i64, low: i64, high: i64| {
            let wanted = format!("must be {low} to {high}");
            if (low..=high).contains(&value) { Ok(()) } else { Err(ConfigError::value(field, value, wanted)) }
        };
        head("d", self.d)?;
        head("dv", self.values())?;
        if self.d + self.values() > MOST_ELEMENTS {
            let wanted = format!(
                "must be at most {} with d = {}: a thread keeps half as many sums of dk and dv as d + dv",
                MOST_ELEMENTS - self.d,
                self.d
            );
            return Err(ConfigError::value("dv", self.values(), wanted));
        }
        within("warpgroups", self.warpgroups, 1, 3)?;
        within("stages", self.stages, 1, 8)?;
        within("stagger", self.stagger, 0, 1 << 10)?;
        let bm = self.block_of_queries();
        if !(16..=256).contains(&bm) || bm % 16 != 0 {
            return Err(ConfigError::value("bm", bm, "must be a multiple of 16 from 16 to 256, or widest"));
        }
        self.forward().validate_options(MOST_KEYS)?;
        Writer::new(self)?;
        self.validate_sums()?;
        let (needed, have) = (self.fragments() + SPARE_REGISTERS, self.math_registers());
        if needed > have {
            let wanted = format!(
                "needs {needed} registers of a thread, which has {have}: choose fewer queries or smaller heads"
            );
            return Err(ConfigError::value("bm", self.block_of_queries(), wanted));
        }
        let (bytes, have) = (self.shared_bytes() + 1024, shared_bytes_of_a_block());
        if bytes > have {
            let wanted = format!(
                "needs {bytes} bytes of shared memory, and a block has {have}: choose fewer stages or queries"
            );
            return Err(ConfigError::value("stages", self.stages, wanted));
        }
        Ok(())
    }

    /// Checks that the warpgroups can share the product of dq.
    fn validate_sums(&self) -> Result<(), ConfigError> {
        if self.deterministic {
            return Ok(());
        }
        if self.d > 128 {
            let wanted = "must be at most 128, or deterministic = true: beside dk and dv a thread has no registers for sums of dq";
            return Err(ConfigError::value("d", self.d, wanted));
        }
        if self.sums().split.is_some() {
            return Ok(());
        }
        let wanted = if self.d % 64 == 0 {
            format!(
                "must be a multiple of {} for {} warpgroups to share dq",
                8 * self.warpgroups,
                self.warpgroups
            )
        } else {
            format!(
                "must be a multiple of 64, as d = {} is none: dq or its transpose has rows in groups of 64",
                self.d
            )
        };
        Err(ConfigError::value("bm", self.block_of_queries(), wanted))
    }

    /// The programs in the order of their launches, with the sizes `b`, `hq`, `hk`, `sq` and `sk`, the parameters `q[b, sq, hq, d]`, `k[b, sk, hk, d]`,
    /// `v[b, sk, hk, dv]`, `o[b, sq, hq, dv]`, `dout[b, sq, hq, dv]` (or with heads before places), `lse[b, hq, sq]`, `dq`, `dk` and `dv` of
    /// the shapes of q, k and v, the scalars `scale` and `cap`, and the workspaces `stats` and `sums`, which hold anything
    /// before. `hq` is a multiple of `hk`: neighbouring heads of q share one of k.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        self.validate()?;
        let writer = Writer::new(self)?;
        let last = if self.deterministic { writer.queries() } else { writer.convert() };
        let texts = [writer.prepare(), writer.text(), last];
        texts.iter().map(|text| parse(text).map_err(|errors| self.scalars.clash(errors))).collect()
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        refused(arch).or_else(|| self.validate().err().map(|e| e.to_string()))
    }
}

/// A configuration whose texts are written.
struct Writer<'a> {
    config: &'a AttentionBackwardConfig,
    /// The further mask.
    attends: Option<Function>,
    /// The derivative of the user's score by x.
    change: Option<Change>,
}

impl<'a> Writer<'a> {
    fn new(config: &'a AttentionBackwardConfig) -> Result<Self, ConfigError> {
        let (score, attends) = config.forward().functions()?;
        let change = match (score, &config.score) {
            (Some(score), Some(text)) => {
                score.derivative().map_err(|wanted| ConfigError::value("score", text, wanted))?
            }
            _ => None,
        };
        Ok(Writer { config, attends, change })
    }
}

/// The product dS k of a block of queries, by warpgroups: its rows are queries or, where those are no multiple of 64, elements of the head.
struct Sums {
    /// True if rows are elements of the head.
    swapped: bool,
    /// Rows and columns.
    shape: [i64; 2],
    /// Warpgroups along each, if they can share it.
    split: Option<[i64; 2]>,
}

/// The order of the modes of [`Sums::apart`] in memory: what a thread holds of two rows and two columns, lanes, warps, warpgroups, and the rest.
const IN_MEMORY: [usize; 9] = [5, 1, 6, 0, 2, 3, 8, 4, 7];

impl Sums {
    fn new(config: &AttentionBackwardConfig) -> Sums {
        let bm = config.block_of_queries();
        let swapped = bm % 64 != 0;
        let shape = if swapped { [config.d, bm] } else { [bm, config.d] };
        let [m, n] = shape;
        let ways = (1..=config.warpgroups).filter(|rows| config.warpgroups % rows == 0);
        let ways = ways.map(|rows| [rows, config.warpgroups / rows]);
        let split = ways
            .filter(|[rows, columns]| m % (64 * rows) == 0 && n % (8 * columns) == 0)
            // The one that reads the fewest elements of its factors.
            .min_by_key(|[rows, columns]| m / rows + n / columns);
        Sums { swapped, shape, split }
    }

    /// The modes of rows (lanes, two, warps, warpgroups, the rest) and of columns (two, lanes, the rest, warpgroups).
    fn apart(&self) -> [i64; 9] {
        let ([m, n], [rows, columns]) = (self.shape, self.split.unwrap_or([1, 1]));
        [8, 2, 4, rows, m / 64 / rows, 2, 4, n / 8 / columns, columns]
    }

    /// The register tensor as its elements lie in memory: those of a thread side by side.
    fn flat(&self, tensor: &str) -> String {
        let apart = list(&self.apart());
        format!("reshape(transpose(reshape({tensor}, [{apart}]), {}), [256, BM * D / 256])", list(&IN_MEMORY))
    }

    /// The other way: rows and columns of what lay in memory.
    fn back(&self, tensor: &str) -> String {
        let (apart, [m, n]) = (self.apart(), self.shape);
        let in_memory = IN_MEMORY.map(|mode| apart[mode]);
        let mut back = [0; 9];
        IN_MEMORY.iter().enumerate().for_each(|(i, mode)| back[*mode] = i);
        format!("reshape(transpose(reshape({tensor}, [{}]), {}), [{m}, {n}])", list(&in_memory), list(&back))
    }
}

fn shared_bytes_of_a_block() -> i64 {
    i64::from(Arch::SM_90A.limits().shared_bytes_per_block)
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
