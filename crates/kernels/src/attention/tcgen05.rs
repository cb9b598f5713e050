//! The form with scores, weights and sums in tensor memory (`tcgen05`, sm_100a), that of FlashAttention-4 (arXiv 2603.05451): a block has two tiles of 128
//! queries; one thread issues all products, a warpgroup for each tile has its softmax, a row a thread, and a further one multiplies sums by the factors by which
//! references have moved, each warp where one of its rows has, and stores them. While the one tile is multiplied, the other has its exponentials, of which a share may be polynomials on the
//! pipes of `fma`.
//!
//! The weights of a block of keys lie over the last columns of its scores, for they are never needed together (`docs/blackwell.md`). Blocks of keys go from the last to the
//! first, and the reference maximum moves only where a score outgrows it by 2⁸, as by `wgmma`. It has not run on hardware.

use tilewright_machine::{Arch, DType, Rate, TensorMemory, tcgen05, timing};

use super::form::{Form, TILES};
use super::space::keys_of;
use super::text::{Ending, OfForm, Role, Writer, of_head};
use super::{AttentionConfig, within};
use crate::config::ConfigError;

/// Columns that a thread has at a time, of scores for their exponentials, and of sums: with 16 of these threads spill.
const PART: i64 = 16;
const STEP: i64 = 8;

/// Registers of a thread of each role: of those of softmax, of the one that multiplies, of the one that scales sums, and of the one that copies.
const SOFTMAX_REGISTERS: i64 = 176;
const MULTIPLY_REGISTERS: i64 = 64;
const CORRECT_REGISTERS: i64 = 40;
const LOAD_REGISTERS: i64 = 24;

/// Registers of a thread of softmax beside a row of scores: a part of weights, references, places of stages.
const SPARE_REGISTERS: i64 = 44;

/// Registers for a cap or a function of scores.
const OF_FUNCTIONS: i64 = 16;

/// Registers for integer remainders of keys, and for quotients that scores are made of: as `ptxas` 13 needs them so as not to spill, which computes those of a block ahead of
/// their use.
const OF_DIVISIONS: i64 = 48;

/// A polynomial for 2^x of the fraction of x, from −½ to ½, the constant last: its relative error is at most 7.5e−5, as Remez' exchange gives it.
const POLYNOMIAL: [&str; 4] = ["0.0551716685", "0.242611125", "0.693260968", "0.999928057"];

/// 1.5 · 2²³: a sum with it has a number's nearest integer in its low bits.
const MAGIC: &str = "12582912.0";

/// Weights below 2 to this power are 0: so the exponents of polynomials never leave those of normal numbers, and masked keys weigh nothing.
const LEAST_POWER: &str = "-125.0";

/// Blocks of keys worth trying.
const KEYS: [i64; 7] = [32, 48, 64, 80, 96, 112, 128];

/// Keys of a block whose exponentials are polynomials, worth trying.
const POLYNOMIALS: [i64; 2] = [0, 32];

/// Exponentials of the special function units of a multiprocessor in a cycle.
const EXPONENTIALS: f64 = 16.0;

/// Cycles of a block of keys and of a tile beside products and exponentials: guesses, for no such chip was at hand.
const TURN: f64 = 200.0;
const ENDS: f64 = 4000.0;

impl AttentionConfig {
    /// The points of this form's space.
    pub(super) fn tcgen05_points() -> impl Iterator<Item = Self> {
        KEYS.into_iter().flat_map(|bn| {
            POLYNOMIALS.map(|polynomial| AttentionConfig {
                form: Form::Tcgen05,
                bn,
                polynomial,
                ..Self::default()
            })
        })
    }

    /// Bytes of shared memory of a block in this form, without mbarriers.
    fn tcgen05_shared_bytes(&self) -> i64 {
        let [tiles, rows] = TILES;
        let factors = 4 * tiles * rows;
        let elements = tiles * rows * self.d + self.stages * self.bn * (self.d + self.values());
        elements * i64::from(self.dtype.bits()) / 8 + factors
    }

    /// Checks a configuration of this form.
    pub(super) fn check_tcgen05(&self) -> Result<(), ConfigError> {
        self.check_fp8()?;
        within("stages", self.stages, 1, 8)?;
        if !(0..=self.bn).contains(&self.polynomial) || self.polynomial % PART != 0 {
            let wanted = format!("must be a multiple of {PART} from 0 to bn = {}", self.bn);
            return Err(ConfigError::value("polynomial", self.polynomial, wanted));
        }
        let bias = if self.bias { self.bn / 2 } else { 0 };
        let function = if self.softcap || self.score.is_some() { OF_FUNCTIONS } else { 0 };
        let (score, attends) = self.functions()?;
        let divides =
            score.is_some_and(|of| of.divides_keys(true)) || attends.is_some_and(|of| of.divides_keys(false));
        let (divisions, said) = match divides {
            true => (OF_DIVISIONS, format!(", {OF_DIVISIONS} of them for integer divisions of keys")),
            false => (0, String::new()),
        };
        let registers = self.bn + bias + function + divisions + SPARE_REGISTERS;
        if registers > SOFTMAX_REGISTERS {
            let wanted = format!(
                "needs {registers} registers of a thread{said}, which has {SOFTMAX_REGISTERS}: choose fewer keys"
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        // Scores and sums of each tile; weights lie over scores.
        let columns = TILES[0] * (self.bn + self.values());
        if columns > i64::from(TensorMemory::COLUMNS) {
            let wanted = format!(
                "needs {columns} columns of tensor memory, of which there are {}: choose fewer keys, or smaller heads of v",
                TensorMemory::COLUMNS
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        self.check_shared(self.tcgen05_shared_bytes(), Arch::SM_100A)
    }

    /// The estimated time in microseconds in this form, of sizes b, hq, hk, sq and sk.
    pub(super) fn tcgen05_estimate(&self, arch: Arch, sizes: &[i64]) -> f64 {
        let at = |i: usize| sizes.get(i).copied().unwrap_or(1);
        let (heads, sq, sk) = (at(0) * at(1), at(3), at(4));
        let (rows, timing) = (self.rows(), timing(arch));
        let cycles = |n: i64, k: i64, a_shared: bool| {
            let row = tcgen05(self.dtype, self.dtype, DType::F32, [TILES[1], n]);
            row.map_or(0.0, |row| timing.tcgen05(row, a_shared).issue * (k / row.k) as f64)
        };
        let products =
            TILES[0] as f64 * (cycles(self.bn, self.d, true) + cycles(self.values(), self.bn, false));
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

/// A block of keys that a role has something to do with.
struct Walk {
    /// The statements ahead: the first key, and the condition.
    begin: String,
    /// The end of these statements.
    end: &'static str,
}

impl Writer<'_> {
    /// The parts of the program that this form has of its own.
    pub(super) fn tcgen05(&self) -> OfForm {
        let AttentionConfig { dtype, bn, polynomial, .. } = *self.config;
        let [parts, rows] = TILES;
        let shared = self.per_role(|role| {
            let part = role.part();
            format!(
                "    f{part} = shared_tensor(f32, [{rows}, 1])\n\
                     s{part} = tensor_memory(f32, [{rows}, BN])\n\
                     o{part} = tensor_memory(f32, [{rows}, STEP, DV / STEP])\n\
                     p{part} = tensor_memory({dtype}, [{rows}, PART, BN / PART])\n\
                     scores{part} = pipeline(1, s{part})\n\
                     weights{part} = pipeline(1, p{part})\n\
                     sums{part} = pipeline(1, o{part})\n\
                     factors{part} = pipeline(1, f{part})\n"
            )
        });
        let all = |name: &str, registers: i64, body: &str| {
            let body = self.of_tile(&Role::ALL, body);
            format!("    warpgroup {name}(1) registers({registers}) {{\n{body}    }}\n")
        };
        let softmax = self.per_role(|role| {
            format!(
                "    warpgroup softmax{}(1) registers({SOFTMAX_REGISTERS}) {{\n{}    }}\n",
                role.part(),
                self.of_tile(role, &self.softmax(role))
            )
        });
        OfForm {
            name: "attention_tcgen05",
            rows,
            parts,
            threads: "W * 128 + 384".to_string(),
            load_registers: LOAD_REGISTERS,
            constants: format!(", PART = {PART}, STEP = {STEP}, HARD = {}", (bn - polynomial) / PART),
            shared,
            roles: [
                all("multiply", MULTIPLY_REGISTERS, &self.multiply()),
                softmax,
                all("correct", CORRECT_REGISTERS, &self.correct()),
            ]
            .concat(),
        }
    }

    /// The statements around what is done for a block of keys, of which those without a pair are skipped.
    fn walk(&self) -> Walk {
        match self.conditions("key", &Role::ALL) {
            Some((some, _)) => {
                Walk { begin: format!("let key = (blocks - 1 + begin - i) * BN\nif {some} {{\n"), end: "}\n" }
            }
            None => Walk { begin: String::new(), end: "" },
        }
    }

    /// The role whose one thread issues the products: of a block of keys, those of the weights of the block before come first, whose columns the scores take.
    fn multiply(&self) -> String {
        let scores = |role: &Role| {
            let part = role.part();
            format!("produce scores{part} {{ fill(s{part}, 0.0); gemm.async(s{part}, xq{part}, xk) }}\n")
        };
        let added = |role: &Role| {
            let part = role.part();
            format!(
                "consume weights{part} {{ produce sums{part} {{ gemm.async(o{part}, p{part}, transpose(xv)) }} }}\n"
            )
        };
        let zeros = self.per_role(|role| format!("fill(o{}, 0.0)\n", role.part()));
        let queries = self.per_role(|role| format!("consume qp{} {{\n", role.part()));
        let Walk { begin, end } = self.walk();
        format!(
            "{queries}{zeros}\
             consume kp {{\n{first}}}\n\
             for i in begin + 1..blocks {{\n\
             {begin}\
                 consume vp {{ consume kp {{\n{both}}} }}\n\
             {end}\
             }}\n\
             consume vp {{\n{last}}}\n\
             {closed}",
            first = self.per_role(scores),
            both = self.per_role(|role| added(role) + &scores(role)),
            last = self.per_role(added),
            closed = self.per_role(|_| "}\n".to_string()),
        )
    }

    /// The role that has the softmax of a tile: a row a thread.
    fn softmax(&self, role: &Role) -> String {
        let (unit, dtype, rows, part) = (self.unit(), self.config.dtype, role.rows(), role.part());
        let power_of = format!("slice(s, 1, c * PART, PART) * {unit} - most");
        let [cubic, square, linear, constant] = POLYNOMIAL;
        let rest = format!("(x - (x + {MAGIC} - {MAGIC}))");
        let power = format!("(({cubic} * {rest} + {square}) * {rest} + {linear}) * {rest} + {constant}");
        let bits = format!("bitcast(bitcast({power}, i32) + (bitcast(x + {MAGIC}, i32) << 23), f32)");
        let add = format!(
            "total = total + reduce(e, sum, 1, keep)\n\
             copy(cast(e, {dtype}), p{part}[:, :, c])\n"
        );
        let Walk { begin, end } = match self.conditions("key", role) {
            Some((some, _)) => Walk { begin: format!("if i == begin or {some} {{\n"), end: "}\n" },
            None => Walk { begin: String::new(), end: "" },
        };
        let Ending { sunk, lse, share } =
            self.ending(role, self.one(), |one, total| format!("{one} / {total}"));
        format!(
            "{slope}{descales}\
             most = register_tensor(f32, [{rows}, 1])\n\
             total = register_tensor(f32, [{rows}, 1])\n\
             fill(most, -inf)\n\
             fill(total, 0.0)\n\
             for i in begin..blocks {{\n\
                 let key = (blocks - 1 + begin - i) * BN\n\
             {begin}{added}\
                 s = register_tensor(f32, [{rows}, BN])\n\
                 consume scores{part} {{ copy(s{part}, s) }}\n\
             {scored}\
                 factor = register_tensor(f32, [{rows}, 1])\n\
                 fill(factor, 1.0)\n\
                 top = reduce(s, max, 1, keep) * {unit}\n\
                 if any(top > most + 8.0, 1) {{\n\
                     grown = max(most, top)\n\
                     factor = exp2(most - grown)\n\
                     most = grown\n\
                     total = total * factor\n\
                 }}\n\
                 if i > begin {{ produce factors{part} {{ copy(factor, f{part}) }} }}\n\
                 produce weights{part} {{\n\
                     unroll for c in 0..HARD {{\n\
                         e = exp2({power_of})\n\
                     {add}\
                     }}\n\
                     unroll for c in HARD..BN / PART {{\n\
                         x = {power_of}\n\
                         e = where(x > {LEAST_POWER}, {bits}, 0.0)\n\
                     {add}\
                     }}\n\
                 }}\n\
             {end}\
             }}\n\
             {sunk}{lse}\
             share = {share}\n\
             produce factors{part} {{ copy(share, f{part}) }}\n",
            descales = self.descales(),
            slope = if self.config.alibi { of_head("slope", "slopes") } else { String::new() },
            added = self.added(role, "key"),
            scored = self.scored(role, "s", "key", true),
        )
    }

    /// The role that multiplies sums by factors, of the warps in whose rows a reference has moved, and stores them.
    fn correct(&self) -> String {
        let (rows, out) = (&TILES[1].to_string(), self.config.results());
        let parts = |role: &Role, [begin, body, end]: [&str; 3]| {
            let part = role.part();
            format!(
                "consume factors{part} {{ copy(f{part}, a) }}\n\
                 consume sums{part} {{\n\
                     {begin}\
                     for c in 0..DV / STEP {{\n\
                         r = register_tensor(f32, [{rows}, STEP])\n\
                         copy(o{part}[:, :, c], r)\n\
                         {body}\n\
                     }}\n\
                     {end}\
                 }}\n"
            )
        };
        let scaled = |role: &Role| {
            let body = format!("copy(r * a, o{}[:, :, c])", role.part());
            parts(role, ["if any(a < 1.0, 1) {\n", &body, "}\n"])
        };
        let Walk { begin, end } = self.walk();
        format!(
            "a = register_tensor(f32, [{rows}, 1])\n\
             for i in begin + 1..blocks {{\n\
             {begin}{again}{end}\
             }}\n\
             {view}{last}",
            view = self.view_of_sequence(rows, "STEP, DV / STEP", "e2, STEP * e2"),
            again = self.per_role(scaled),
            last = self.per_role(|role| {
                let at = self.of_queries("go", role, ":, c");
                parts(role, ["", &format!("copy(cast(r * a, {out}), {at})"), ""])
            }),
        )
    }
}
