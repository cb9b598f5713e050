//! Attention forward with scores, weights and sums in tensor memory (`tcgen05`, sm_100a), in the form of FlashAttention-4 (arXiv 2603.05451): a block has two tiles of 128
//! queries; one thread issues all products, a warpgroup for each tile has its softmax, a row a thread, and a further one multiplies sums by the factors by which
//! references have moved, and stores them. While the one tile is multiplied, the other has its exponentials, of which a share may be polynomials on the
//! pipes of `fma`.
//!
//! The weights of a block of keys lie over the last columns of its scores, for they are never needed together (`docs/blackwell.md`). Blocks of keys go from the last to the
//! first, and the reference maximum moves only where a score outgrows it by 2⁸, as in `attention`. It has not run on hardware.

use tilewright_machine::{Arch, DType, Feature, Features, Rate, tcgen05, timing};
use tilewright_tile::{Program, parse};

use super::functions::Expression;
use super::space::{SIZES, keys_of};
use super::text::{Role, Writer, of_head};
use super::{AttentionConfig, Mask, Modes, Scalars, within};
use crate::config::{ConfigError, parameters};
use crate::tuning::{Chip, SizeKind, Tunable};

/// The features that the program uses.
pub(crate) const NEEDS: Features =
    Features::of(&[Feature::Tcgen05, Feature::Tma, Feature::TransactionBarrier, Feature::SetMaxRegisters]);

/// Queries of a tile: lanes of tensor memory.
const BM: i64 = 128;

/// Columns that a thread has at a time, of scores for their exponentials and of sums.
const PART: i64 = 16;

/// A polynomial for 2^x of the fraction of x, from −½ to ½, the constant last: its relative error is at most 7.5e−5, as Remez' exchange gives it.
const POLYNOMIAL: [&str; 4] = ["0.0551716685", "0.242611125", "0.693260968", "0.999928057"];

/// 1.5 · 2²³: a sum with it has a number's nearest integer in its low bits.
const MAGIC: &str = "12582912.0";

parameters! {
    /// The head, the mask and the tiling of attention by `tcgen05`. A block has 256 queries.
    pub struct AttentionSm100Config, "attention_sm100", programs {
        /// The type of q, k, v and o: f16 or bf16. Scores and sums are f32.
        dtype: DType as FLOAT16 = DType::F16,
        /// Elements of a head: a multiple of 16 up to 128.
        d: i64 as INT = 128,
        /// The keys that a query attends to: none (all of them), causal (up to its own place; the last query's is the last key's) or window(n) (the last n of those).
        mask: Mask as OWN = Mask::None,
        /// A further condition under which query i attends to key j, as in attention, or none.
        attends: Option<Expression> as EXPRESSION = None,
        /// The score instead of x = scale · q kᵀ, as in attention, or none.
        score: Option<Expression> as EXPRESSION = None,
        /// Scalar parameters for these two, such as slope: f32 = 0.5.
        scalars: Scalars as OWN = Scalars::default(),
        /// Scores x become cap · tanh(x / cap), where cap is a scalar of the launch.
        softcap: bool as FLAG = false,
        /// Adds slope · (j − i) to the scores of query i and key j, with a slope of each head of q (ALiBi).
        alibi: bool as FLAG = false,
        /// Writes lse[b, hq, sq] as well: the logarithm of each query's sum of exponentials.
        lse: bool as FLAG = false,
        /// The order of the modes of q, k, v and o: bshd or bhsd (b batches, s places, h heads, d elements).
        modes: Modes as OWN = Modes::Bshd,
        /// The distances of neighbours along each mode of q, k, v and o but the last are sizes: q_b, q_s, q_h and so on.
        strides: bool as FLAG = false,
        /// Keys of a block: a multiple of 16 up to 128.
        bn: i64 as INT = 128,
        /// Blocks of keys, and of values, in shared memory.
        stages: i64 as INT = 2,
        /// Keys of a block whose exponentials are polynomials on the pipes of fma, a multiple of 16; the others are those of the special function units.
        polynomial: i64 as INT = 0,
    }
}

impl AttentionSm100Config {
    /// The function that is computed, as `attention` has it.
    pub fn computed(&self) -> AttentionConfig {
        AttentionConfig {
            dtype: self.dtype,
            d: self.d,
            mask: self.mask,
            attends: self.attends.clone(),
            score: self.score.clone(),
            scalars: self.scalars.clone(),
            softcap: self.softcap,
            alibi: self.alibi,
            lse: self.lse,
            modes: self.modes,
            strides: self.strides,
            bn: self.bn,
            ..Default::default()
        }
    }

    /// Bytes of shared memory of a block, without mbarriers.
    fn shared_bytes(&self) -> i64 {
        let factors = 2 * BM * 4;
        2 * (2 * BM * self.d + 2 * self.stages * self.bn * self.d) + factors
    }

    /// Checks the configuration, whatever the architecture.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.computed().validate_options()?;
        for (field, value) in [("d", self.d), ("bn", self.bn)] {
            if !(PART..=BM).contains(&value) || value % PART != 0 {
                let wanted = format!("must be a multiple of {PART} from {PART} to {BM}");
                return Err(ConfigError::value(field, value, wanted));
            }
        }
        within("stages", self.stages, 1, 8)?;
        if !(0..=self.bn).contains(&self.polynomial) || self.polynomial % PART != 0 {
            let wanted = format!("must be a multiple of {PART} from 0 to bn = {}", self.bn);
            return Err(ConfigError::value("polynomial", self.polynomial, wanted));
        }
        let (need, have) =
            (self.shared_bytes() + 1024, i64::from(Arch::SM_100A.limits().shared_bytes_per_block));
        if need > have {
            let wanted = format!(
                "needs {need} bytes of shared memory, and a block has {have}: choose fewer stages or keys"
            );
            return Err(ConfigError::value("stages", self.stages, wanted));
        }
        Ok(())
    }

    /// The program, with the sizes and parameters of [`AttentionConfig::program`](super::AttentionConfig::program).
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        parse(&self.text()?).map_err(|errors| self.scalars.clash(errors))
    }

    fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        self.program().map(|program| vec![program])
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        let missing = arch.lacks(NEEDS);
        if missing != Features::NONE {
            return Some(format!("{arch} lacks {missing}, which sm_100a has"));
        }
        self.validate().err().map(|e| e.to_string())
    }

    fn text(&self) -> Result<String, ConfigError> {
        let AttentionSm100Config { dtype, d, bn, stages, .. } = *self;
        let config = self.computed();
        let (_, attends) = config.functions()?;
        let writer = Writer { config: &config, attends };
        let logarithms = match self.lse {
            true => "    gl = global_view(lse, (b, hq, BM, ceil_div(sq, BM)) : (e0, e1, e2, BM * e2))\n",
            false => "",
        };
        let pair = "let head = block.y, batch = block.z, of_key = min(head / (hq / hk), hk - 1), ";
        Ok(format!(
            "{sizes}\
             const BM = {BM}, BN = {bn}, D = {d}, DV = {d}, STAGES = {stages}, PART = {PART}, HARD = {hard}\n\
             \n\
             kernel attention_sm100({parameters})\n\
             grid(ceil_div(sq, 2 * BM), hq, b) threads(640)\n\
             {{\n\
             {views}{logarithms}\
                 xq0 = shared_tensor({dtype}, [BM, D])\n\
                 xq1 = shared_tensor({dtype}, [BM, D])\n\
                 xk = shared_tensor({dtype}, [BN, D])\n\
                 xv = shared_tensor({dtype}, [BN, D])\n\
                 f0 = shared_tensor(f32, [BM, 1])\n\
                 f1 = shared_tensor(f32, [BM, 1])\n\
                 s0 = tensor_memory(f32, [BM, BN])\n\
                 s1 = tensor_memory(f32, [BM, BN])\n\
                 o0 = tensor_memory(f32, [BM, PART, D / PART])\n\
                 o1 = tensor_memory(f32, [BM, PART, D / PART])\n\
                 p0 = tensor_memory({dtype}, [BM, PART, BN / PART])\n\
                 p1 = tensor_memory({dtype}, [BM, PART, BN / PART])\n\
                 queries = pipeline(1, xq0, xq1)\n\
                 keys = pipeline(STAGES, xk)\n\
                 values = pipeline(STAGES, xv)\n\
                 scores0 = pipeline(1, s0)\n\
                 scores1 = pipeline(1, s1)\n\
                 weights0 = pipeline(1, p0)\n\
                 weights1 = pipeline(1, p1)\n\
                 sums0 = pipeline(1, o0)\n\
                 sums1 = pipeline(1, o1)\n\
                 factors0 = pipeline(1, f0)\n\
                 factors1 = pipeline(1, f1)\n\
                 {pair}{number}, first = 2 * BM * pair + sk - sq, blocks = {blocks}, begin = {begin}\n\
             {load}{multiply}{softmax}{correct}\
             }}\n",
            hard = (bn - self.polynomial) / PART,
            sizes = writer.sizes(&["q", "k", "v", "o"]),
            parameters = writer.parameters(),
            views = self.views(),
            // The tiles with the most keys first.
            number = if self.mask == Mask::None {
                "pair = block.x"
            } else {
                "pair = ceil_div(sq, 2 * BM) - 1 - block.x"
            },
            blocks = match self.mask {
                Mask::None => "ceil_div(sk, BN)",
                _ => "ceil_div(max(1, min(first + 2 * BM, sk)), BN)",
            },
            begin = match self.mask {
                Mask::Window(keys) => format!("max(0, first - {}) / BN", keys - 1),
                _ => "0".to_string(),
            },
            load = self.load(),
            multiply = MULTIPLY,
            softmax = [0, 1].map(|tile| self.softmax(&writer, tile)).concat(),
            correct = self.correct(),
        ))
    }

    /// The views, in which sums are stored some elements at a time.
    fn views(&self) -> String {
        let (places, heads) = match self.modes {
            Modes::Bshd => ("e1", "e2"),
            Modes::Bhsd => ("e2", "e1"),
        };
        let view = |name: &str, [rows, size, of]: [&str; 3]| {
            format!(
                "    g{name} = global_view({name}, (b, {rows}, ceil_div({size}, {rows}), {of}, D) : (e0, {places}, {rows} * {places}, {heads}, e3))\n"
            )
        };
        let [q, k, v] =
            [view("q", ["BM", "sq", "hq"]), view("k", ["BN", "sk", "hk"]), view("v", ["BN", "sk", "hk"])];
        format!(
            "{q}{k}{v}    go = global_view(o, (b, BM, ceil_div(sq, BM), hq, PART, D / PART) : (e0, {places}, BM * {places}, {heads}, e3, PART * e3))\n"
        )
    }

    /// The role that copies.
    fn load(&self) -> String {
        let view = |name: &str| format!("g{name}[batch, :, blocks - 1 + begin - i, of_key, :]");
        format!(
            "warpgroup load(1) registers(24) {{\n\
                 produce queries {{\n\
                     copy.async(gq[batch, :, 2 * pair, head, :], xq0)\n\
                     copy.async(gq[batch, :, 2 * pair + 1, head, :], xq1)\n\
                 }}\n\
                 for i in begin..blocks {{\n\
                     produce keys {{ copy.async({}, xk) }}\n\
                     produce values {{ copy.async({}, xv) }}\n\
                 }}\n\
             }}\n",
            view("k"),
            view("v"),
        )
    }

    /// The role that has the softmax of a tile: a row a thread.
    fn softmax(&self, writer: &Writer<'_>, tile: i64) -> String {
        let unit = writer.unit();
        let part = format!("slice(s, 1, c * PART, PART) * {unit} - most");
        let [cubic, square, linear, constant] = POLYNOMIAL;
        let rest = format!("(x - (x + {MAGIC} - {MAGIC}))");
        let power = format!("(({cubic} * {rest} + {square}) * {rest} + {linear}) * {rest} + {constant}");
        let polynomial = format!(
            "x = max({part}, -125.0)\n\
             x = bitcast(bitcast({power}, i32) + (bitcast(x + {MAGIC}, i32) << 23), f32)\n"
        );
        let add = |weights: &str| {
            format!(
                "total = total + reduce({weights}, sum, 1, keep)\n\
                 copy(cast({weights}, {}), p{tile}[:, :, c])\n",
                self.dtype
            )
        };
        let hard = format!("e = exp2({part})\n{}", add("e"));
        let soft = format!("{polynomial}{}", add("x"));
        let logarithm = "(reshape(most, [BM]) + log2(reshape(total, [BM]))) * 0.6931471805599453";
        let logarithm = writer.some(logarithm, "-inf", "reshape(most, [BM])");
        format!(
            "warpgroup softmax{tile}(1) registers(168) {{\n\
                 let t = 2 * pair + {tile}, row = t * BM, place = row + sk - sq\n\
             {slope}\
                 most = register_tensor(f32, [BM, 1])\n\
                 total = register_tensor(f32, [BM, 1])\n\
                 fill(most, -inf)\n\
                 fill(total, 0.0)\n\
                 for i in begin..blocks {{\n\
                     let key = (blocks - 1 + begin - i) * BN\n\
                     s = register_tensor(f32, [BM, BN])\n\
                     consume scores{tile} {{ copy(s{tile}, s) }}\n\
             {scored}\
                     factor = register_tensor(f32, [BM, 1])\n\
                     fill(factor, 1.0)\n\
                     top = reduce(s, max, 1, keep) * {unit}\n\
                     if any(top > most + 8.0, 1) {{\n\
                         grown = max(most, top)\n\
                         factor = exp2(most - grown)\n\
                         most = grown\n\
                         total = total * factor\n\
                     }}\n\
                     if i > begin {{ produce factors{tile} {{ copy(factor, f{tile}) }} }}\n\
                     produce weights{tile} {{\n\
                         unroll for c in 0..HARD {{\n\
                         {hard}\
                         }}\n\
                         unroll for c in HARD..BN / PART {{\n\
                         {soft}\
                         }}\n\
                     }}\n\
                 }}\n\
             {lse}\
                 share = {share}\n\
                 produce factors{tile} {{ copy(share, f{tile}) }}\n\
             }}\n",
            slope = if self.alibi { of_head("slope", "slopes") } else { String::new() },
            scored = writer.scored(&Role::ALL, "s", "key", true),
            lse = writer.logarithms(&Role::ALL, &logarithm),
            share = writer.some("1.0 / total", "0.0", "most"),
        )
    }

    /// The role that multiplies sums by factors, and stores them.
    fn correct(&self) -> String {
        let parts = |tile: i64, body: &str| {
            format!(
                "consume factors{tile} {{ copy(f{tile}, a) }}\n\
                 consume sums{tile} {{\n\
                     for c in 0..D / PART {{\n\
                         r = register_tensor(f32, [BM, PART])\n\
                         copy(o{tile}[:, :, c], r)\n\
                         {body}\n\
                     }}\n\
                 }}\n"
            )
        };
        let again = |tile: i64| parts(tile, &format!("copy(r * a, o{tile}[:, :, c])"));
        let last = |tile: i64| {
            let at = format!("go[batch, :, 2 * pair + {tile}, head, :, c]");
            parts(tile, &format!("copy(cast(r * a, {}), {at})", self.dtype))
        };
        format!(
            "warpgroup correct(1) registers(48) {{\n\
                 a = register_tensor(f32, [BM, 1])\n\
                 for i in begin + 1..blocks {{\n\
             {}{}\
                 }}\n\
             {}{}\
             }}\n",
            again(0),
            again(1),
            last(0),
            last(1)
        )
    }

    /// The estimated time in microseconds, of sizes b, hq, hk, sq and sk.
    pub fn estimate(&self, arch: Arch, sizes: &[i64]) -> f64 {
        let at = |i: usize| sizes.get(i).copied().unwrap_or(1);
        let (heads, sq, sk) = (at(0) * at(1), at(3), at(4));
        let (rows, timing) = (2 * BM, timing(arch));
        let cycles = |n: i64, k: i64, a_shared: bool| {
            let row = tcgen05(self.dtype, self.dtype, DType::F32, [BM, n]);
            row.map_or(0.0, |row| timing.tcgen05(row, a_shared).issue * (k / row.k) as f64)
        };
        let products = 2.0 * (cycles(self.bn, self.d, true) + cycles(self.d, self.bn, false));
        let exponentials = (rows * (self.bn - self.polynomial)) as f64 / EXPONENTIALS;
        let of_block = products.max(exponentials) + TURN;
        let tiles = (sq + rows - 1) / rows;
        let of = |tile: i64| {
            let (first, last) = keys_of(self.mask, [tile, rows], [sq, sk]);
            ENDS + of_block * ((last + self.bn - 1) / self.bn - first / self.bn).max(1) as f64
        };
        let chips = timing.rate(Rate::Multiprocessors);
        let all = heads as f64 * (0..tiles).map(of).sum::<f64>();
        let cycles = (all / chips).max(of(tiles - 1));
        cycles / timing.rate(Rate::ClockMhz) + timing.rate(Rate::LaunchUs)
    }
}

/// Exponentials of the special function units of a multiprocessor in a cycle.
const EXPONENTIALS: f64 = 16.0;

/// Cycles of a block of keys and of a tile beside products and exponentials: guesses, for no such chip was at hand.
const TURN: f64 = 200.0;
const ENDS: f64 = 4000.0;

/// The role whose one thread issues the products: of a block of keys, those of the weights of the block before come first, whose columns the scores take.
const MULTIPLY: &str = "warpgroup multiply(1) registers(72) {
    consume queries {
        fill(o0, 0.0)
        fill(o1, 0.0)
        consume keys {
            produce scores0 { fill(s0, 0.0); gemm.async(s0, xq0, xk) }
            produce scores1 { fill(s1, 0.0); gemm.async(s1, xq1, xk) }
        }
        for i in begin + 1..blocks {
            consume values {
                consume keys {
                    consume weights0 { produce sums0 { gemm.async(o0, p0, transpose(xv)) } }
                    produce scores0 { fill(s0, 0.0); gemm.async(s0, xq0, xk) }
                    consume weights1 { produce sums1 { gemm.async(o1, p1, transpose(xv)) } }
                    produce scores1 { fill(s1, 0.0); gemm.async(s1, xq1, xk) }
                }
            }
        }
        consume values {
            consume weights0 { produce sums0 { gemm.async(o0, p0, transpose(xv)) } }
            consume weights1 { produce sums1 { gemm.async(o1, p1, transpose(xv)) } }
        }
    }
}
";

impl Tunable for AttentionSm100Config {
    const SIZES: &'static [(&'static str, SizeKind)] = SIZES;
    const MEANING: &'static [&'static str] =
        &["dtype", "d", "mask", "attends", "score", "scalars", "softcap", "alibi", "lse", "modes", "strides"];
    const FAMILY: &'static [&'static str] = &["bn"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] =
        &[("stages", &["1", "2", "3"]), ("polynomial", &["0", "32"])];

    fn points() -> impl Iterator<Item = Self> {
        [64, 128].into_iter().flat_map(|bn| {
            [0, 32].map(|polynomial| AttentionSm100Config { bn, polynomial, ..Self::default() })
        })
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        self.bn < 2 * sizes.get(4).copied().unwrap_or(1) || self.bn == 64
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        self.reject(arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        self.estimate(chip.arch, sizes)
    }
}
