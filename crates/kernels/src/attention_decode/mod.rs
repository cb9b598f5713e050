//! Attention of few queries over many keys, as decoding a token and mixed prefill have it: o = softmax(scale · q kᵀ) v for each head, by
//! `mma.sync` and `cp.async`, so that it runs on every architecture. The query heads that share keys and values are rows of one tile, whose
//! keys and values are read once. The keys of a sequence are split into parts of equal length, a block each; a second program adds the
//! parts in order. Keys and values lie one behind the other or in pages, and may be 8-bit floats.
//!
//! The programs are text with the choices written out; `tilewright kernels attention_decode -p …` prints them. [`DecodeLengths::plan`]
//! chooses by lengths whether there are parts, and [`DecodeLengths::schedule`] which.

mod cascade;
mod combine;
mod estimate;
mod latent;
mod part;
mod reference;
mod schedule;
mod space;
mod text;

use tilewright_machine::{Arch, DType, Feature, Features};
use tilewright_tile::{Program, parse};

pub use cascade::{CascadePlan, SharedPrefix};
pub use part::Cascade;
pub use reference::{DecodeInputs, DecodeSizes, edge_sizes, reference};
pub use schedule::{DecodeLengths, DecodePlan, DecodeSchedule, QueryTokens, ScheduleError};

use crate::config::{Codec, ConfigError, dtype_of, number, optional, optional_text, parameters, refusal};
use crate::warp_specialized::NEEDS;

parameters! {
    /// The head, the cache and the tiling of attention over a cache of keys and values. The default is a tile of 16 rows by 32 keys: a warp.
    #[derive(Copy)]
    pub struct AttentionDecodeConfig, "attention_decode", programs {
        /// The type of q and o: f16 or bf16. Scores and sums are f32.
        dtype: DType as FLOAT16 = DType::F16,
        /// The type of keys and values: same, or e4m3 with scales ks and vs of each head.
        kv: Option<DType> as SAME_OR_E4M3 = None,
        /// Elements of a head of q and k, a multiple of 16 up to 256, or 768 with mla.
        d: i64 as INT = 128,
        /// Elements of a head of v and o, a multiple of 16 up to 256, or 512 with mla; or same: as many.
        dv: Option<i64> as SAME_HEAD = None,
        /// Multi-head latent attention: the values of a key are its first dv columns, so that there is no v; for up to 64 rows a tile, on sm_90a.
        mla: bool as FLAG = false,
        /// Heads of q that share a head of k and v.
        group: i64 as INT = 4,
        /// Heads of k and v, or any: then they are a size of the launch. With a number, steps from key to key are constants, which makes copies cheaper.
        hk: Option<i64> as NUMBER_OR_ANY = None,
        /// Keys of a page, a power of two up to 1024: table[b, mb] has the pages of each sequence; or none: keys lie one behind the other.
        page: Option<i64> as NUMBER_OR_NONE = None,
        /// Keys up to its own place that a query attends to, or none: all of these.
        window: Option<i64> as NUMBER_OR_NONE = None,
        /// Scores x become cap · tanh(x / cap), where cap is a scalar of the launch.
        softcap: bool as FLAG = false,
        /// Writes lse[b, sq, hq] as well: the logarithm of each query's sum of exponentials.
        lse: bool as FLAG = false,
        /// Query tokens of their own number for each sequence, one behind the other: q[tq, hq, d], o[tq, hq, dv], lse[tq, hq]; cu_q[b + 1] has the places where they begin, and behind them the end; sq is the largest number.
        varlen: bool as FLAG = false,
        /// The keys of the launch, of sequences that share their first keys: none (all keys of each sequence), prefix (those that are shared, to all of which every query attends) or rest (those behind them). Takes varlen; DecodeLengths::cascade gives the launches.
        cascade: Cascade as OWN = Cascade::None,
        /// Splits the keys of a sequence into parts of chunk keys, for up to splits blocks, and adds them in a second program; else one block has all keys, which is faster with many sequences: DecodeLengths::plan chooses by lengths.
        split: bool as FLAG = true,
        /// Rows of a tile, of 16 each warp: 16, 32, 64 or 128. A row is a query and a head of its group.
        rows: i64 as INT = 16,
        /// Keys of a block, a multiple of 16.
        bn: i64 as INT = 32,
        /// Blocks of keys and values in shared memory.
        stages: i64 as INT = 3,
        /// Parts that the second program adds at a time.
        parts: i64 as INT = 32,
        /// Programmatic dependent launch: each program may be launched before the one ahead of it has ended, and waits for its results. Needs sm_90a.
        dependent: bool as FLAG = false,
    }
}

impl Codec<Option<DType>> {
    const SAME_OR_E4M3: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&[DType::E4M3], field, text)),
        write: |dtype| optional_text("same", dtype),
    };
}

impl Codec<Option<i64>> {
    /// A number, or `any`.
    const NUMBER_OR_ANY: Self = Codec {
        read: |field, text| optional("any", text, |text| number(field, text)),
        write: |number| optional_text("any", number),
    };
    /// A number, or `none`.
    const NUMBER_OR_NONE: Self = Codec {
        read: |field, text| optional("none", text, |text| number(field, text)),
        write: |number| optional_text("none", number),
    };
}

/// Registers of a thread beside its sums, queries, scores, and what is loaded for a product.
const SPARE_REGISTERS: i64 = 36;

/// Registers of a thread that multiplies, with mla.
const MATH_REGISTERS: i64 = 216;

impl AttentionDecodeConfig {
    /// Elements of a head of v.
    pub fn values(&self) -> i64 {
        self.dv.unwrap_or(self.d)
    }

    /// The type of keys and values.
    pub fn cache(&self) -> DType {
        self.kv.unwrap_or(self.dtype)
    }

    /// Rows of a tile for heads of a group: a power of two, those behind the last head are empty.
    fn heads(&self) -> i64 {
        ((self.group as u64).next_power_of_two() as i64).min(self.rows)
    }

    /// Tiles for the heads of a group.
    fn spans(&self) -> i64 {
        (self.group + self.heads() - 1) / self.heads()
    }

    /// Tiles of rows for so many query tokens and one head of k and v.
    fn tiles_of(&self, tokens: i64) -> i64 {
        (tokens + self.tokens() - 1) / self.tokens() * self.spans()
    }

    /// Query tokens of a tile.
    pub fn tokens(&self) -> i64 {
        self.rows / self.heads()
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        if self.mla { 384 } else { 2 * self.rows }
    }

    /// Columns of k, or of v, that are in registers at a time: fewer where the sums take most registers.
    fn columns(&self, elements: i64) -> i64 {
        let most = if self.values() > 128 { 32 } else { 64 };
        [64, 32].into_iter().find(|columns| *columns <= most && elements % columns == 0).unwrap_or(16)
    }

    /// True if a block has keys of several pages.
    fn gathers(&self) -> bool {
        self.page.is_some_and(|page| page < self.bn)
    }

    /// True if queries stay in shared memory: with large heads the sums take the registers.
    fn shared_queries(&self) -> bool {
        self.d > 128
    }

    /// Bytes of shared memory of a block.
    fn shared_bytes(&self) -> i64 {
        let queries = if self.shared_queries() { 2 * self.rows * self.d } else { 0 };
        // Weights, and what threads exchange.
        let weights = if self.mla { 2 * self.rows * self.bn + 1024 } else { 0 };
        queries + weights + self.stages * self.bn * self.key_bytes()
    }

    /// Bytes of a key and its value.
    fn key_bytes(&self) -> i64 {
        let columns = if self.mla { self.d } else { self.d + self.values() };
        columns * i64::from(self.cache().bits()) / 8
    }

    /// Registers of a thread: sums, queries, scores and weights, and the columns that are multiplied.
    fn registers(&self) -> i64 {
        if self.mla {
            return self.values() / 4 + 5 * self.bn / 8 + SPARE_REGISTERS;
        }
        let queries = if self.shared_queries() { 16 } else { self.d / 4 };
        // The rows of keys that are gathered.
        let rows = if self.gathers() { self.bn / 4 } else { 0 };
        self.values() / 2 + queries + 3 * self.bn / 4 + self.bn + rows + SPARE_REGISTERS
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |field, value: i64, low: i64, high: i64| {
            let wanted = format!("must be {low} to {high}");
            if (low..=high).contains(&value) { Ok(()) } else { Err(ConfigError::value(field, value, wanted)) }
        };
        self.check_head()?;
        if ![16, 32, 64, 128].contains(&self.rows) {
            return Err(ConfigError::value("rows", self.rows, "must be 16, 32, 64 or 128"));
        }
        within("group", self.group, 1, 1024)?;
        within("hk", self.hk.unwrap_or(1), 1, 65_535)?;
        within("stages", self.stages, 2, 16)?;
        within("parts", self.parts, 1, 64)?;
        if !(16..=256).contains(&self.bn) || self.bn % 16 != 0 {
            return Err(ConfigError::value("bn", self.bn, "must be a multiple of 16 from 16 to 256"));
        }
        if let Some(keys) = self.window
            && !(1..=1 << 30).contains(&keys)
        {
            return Err(ConfigError::value("window", keys, "must be none, or 1 to 2^30 keys"));
        }
        self.check_cascade()?;
        self.check_page()?;
        let most =
            if self.mla { MATH_REGISTERS } else { i64::from(Arch::SM_90A.limits().registers_per_thread) };
        let (registers, have) = (self.registers(), most);
        if registers > have {
            let wanted =
                format!("needs {registers} registers of a thread, which has {have}: choose fewer keys");
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        self.check_shared(Arch::SM_90A)
    }

    fn check_head(&self) -> Result<(), ConfigError> {
        let most = if self.mla { [768, 512] } else { [256, 256] };
        for (field, elements, most) in [("d", self.d, most[0]), ("dv", self.values(), most[1])] {
            if !(16..=most).contains(&elements) || elements % 16 != 0 {
                let wanted = format!("must be a multiple of 16 from 16 to {most}");
                return Err(ConfigError::value(field, elements, wanted));
            }
        }
        if !self.mla {
            return Ok(());
        }
        if self.values() >= self.d {
            let wanted =
                format!("must be less than d = {}: the values are the first columns of the keys", self.d);
            return Err(ConfigError::value("dv", self.values(), wanted));
        }
        if self.rows != 64 {
            return Err(ConfigError::value("rows", self.rows, "must be 64 with mla: those of wgmma"));
        }
        if self.kv.is_some() {
            return Err(ConfigError::value("kv", self.cache(), "must be same with mla"));
        }
        Ok(())
    }

    fn check_cascade(&self) -> Result<(), ConfigError> {
        let wanted = match self {
            _ if self.cascade == Cascade::None => return Ok(()),
            Self { varlen: false, .. } => "must be none, or varlen = true",
            Self { split: false, .. } => "must be none, or split = true: parts of both launches are added",
            Self { window: Some(_), .. } => "must be none with a window, which would end within shared keys",
            _ => return Ok(()),
        };
        Err(ConfigError::value("cascade", self.cascade, wanted))
    }

    fn check_page(&self) -> Result<(), ConfigError> {
        let Some(page) = self.page else { return Ok(()) };
        if !(1..=1024).contains(&page) || !(page as u64).is_power_of_two() {
            return Err(ConfigError::value("page", page, "must be none, or a power of two from 1 to 1024"));
        }
        if page % self.bn != 0 && self.bn % page != 0 {
            let wanted = format!("must divide a page of {page} keys, or be a multiple of it");
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        Ok(())
    }

    fn check_shared(&self, arch: Arch) -> Result<(), ConfigError> {
        let (bytes, have) = (self.shared_bytes(), i64::from(arch.limits().shared_bytes_per_block));
        if bytes > have {
            let wanted = format!(
                "needs {bytes} bytes of shared memory, and a block has {have}: choose fewer stages or keys"
            );
            return Err(ConfigError::value("stages", self.stages, wanted));
        }
        Ok(())
    }

    /// The programs, to be launched in this order; tensors of the same name are the same. The first has the sizes `b`, `sq` and, unless it is a parameter, `hk`, and `sk`
    /// or, of pages, `pages` and `mb`; with [`split`](Self::split) also `splits` and `chunk`. Its parameters are `q[b, sq, hq, d]` with hq = hk · group;
    /// `k[b, sk, hk, d]` and `v[b, sk, hk, dv]`, or `kc[pages, page, hk, d]`, `vc[pages, page, hk, dv]` and `table[b, mb]`; `len[b]`; the scales
    /// `ks[hk]` and `vs[hk]`; `o[b, sq, hq, dv]` and `lse[b, sq, hq]`, or in their place the workspace `po` and `pl`, which the second program adds to these; the
    /// scalars `scale` and `cap`. With [`varlen`](Self::varlen) there are the size `tq` and `cu_q[b + 1]`, and `tq` takes the place of `b` and `sq` in the shapes of
    /// q, results and workspace. With a [`cascade`](Self::cascade) the workspace has parts of two launches, of the size `slots`.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        self.validate()?;
        let mut programs = vec![parse(&self.attention())?];
        // Parts of shared keys are added with those of the rest.
        if self.split && self.cascade != Cascade::Prefix {
            programs.push(parse(&self.combine())?);
        }
        Ok(programs)
    }

    /// The features that the programs need.
    pub fn needs(&self) -> Features {
        let (conversion, launch) = (Feature::Fp8Conversion.into(), Feature::DependentLaunch.into());
        let of = |asked: bool, feature: Features| if asked { feature } else { Features::NONE };
        of(self.kv.is_some(), conversion) | of(self.dependent, launch) | of(self.mla, NEEDS)
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        refusal(arch, self.needs(), self.validate().and_then(|()| self.check_shared(arch)))
    }

    /// Blocks that a multiprocessor of this architecture holds at once, as far as shared memory and registers decide.
    pub fn resident_blocks(&self, arch: Arch) -> i64 {
        let [threads, bytes] = [self.threads(), self.shared_bytes()].map(|number| number as u32);
        let registers = if self.mla { 168 } else { 256 };
        i64::from(arch.limits().resident_blocks(threads, registers, bytes))
    }

    /// The first key that the first of `tokens` queries attends to, rounded down to a block, in a sequence of so many keys.
    fn begin(&self, length: i64, tokens: i64) -> i64 {
        self.window.map_or(0, |keys| (length - tokens + 1 - keys).max(0) / self.bn * self.bn)
    }

    /// True if query `i` of `sq` attends to key `j` of a sequence of so many keys.
    pub fn attends(&self, i: i64, j: i64, [sq, length]: [i64; 2]) -> bool {
        if self.cascade == Cascade::Prefix {
            return j < length;
        }
        let place = i + length - sq;
        j < length && j <= place && self.window.is_none_or(|keys| j > place - keys)
    }
}
