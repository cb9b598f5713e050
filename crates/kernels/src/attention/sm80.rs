//! Attention forward by `mma.sync` and `cp.async`, for every architecture from sm_80 on, in FlashAttention-2's form: warps have rows of
//! queries of their own, blocks of keys go from the last to the first, and the copies of the next blocks are under way meanwhile. The reference
//! maximum moves only where a score outgrows it by 2⁸, as in `attention`.

use tilewright_machine::{Arch, DType};
use tilewright_tile::{Program, parse};

use super::functions::Expression;
use super::options::forward;
use super::text::{Ending, Role, Writer, of_head, rows_by_warp};
use super::{MOST_KEYS, Mask, Modes, Scalars, within};
use crate::config::ConfigError;

forward! {
    /// The head, the mask and the tiling of attention by `mma.sync`. The default is 128 queries by 64 keys for heads of 128 elements.
    pub struct AttentionSm80Config, "attention_sm80", programs {
        {
            /// The type of q, k, v and o: f16 or bf16. Scores and sums are f32.
            dtype: DType as FLOAT16 = DType::F16,
        }
        {
            /// Queries of a tile, a multiple of 16 · warps.
            bm: i64 as INT = 128,
            /// Keys of a block, a multiple of 16.
            bn: i64 as INT = 64,
            /// Warps, which share out the queries of a tile.
            warps: i64 as INT = 4,
            /// Blocks of keys, and of values, in shared memory; with 1 the next keys come while weights are computed and values added, and the values while scores are.
            stages: i64 as INT = 1,
            /// Blocks that a multiprocessor has registers for, at least; with 4 warps, 2 leave each thread its 255 registers and 3 leave 168.
            blocks: i64 as INT = 1,
            /// Keeps the queries in registers; else they are read from shared memory for each block of keys.
            resident: bool as FLAG = false,
        }
    }
}

/// Registers of a thread for addresses and counters.
const ADDRESSES: i64 = 12;

/// Registers for the places of sequences beside the stages of a pipeline.
const OF_SEQUENCES: i64 = 20;

impl AttentionSm80Config {
    /// Registers of a thread where the most are live: in the product of scores, or in that of values.
    fn registers(&self) -> i64 {
        // Rows of 16 queries of a warp.
        let parts = self.bm / (16 * self.warps);
        let (kept, streamed) = if self.resident { (parts * self.d / 4, 0) } else { (0, 4 * parts) };
        // Sums, scores, and the reference and the sum of weights of each row.
        let all = parts * (self.values() + self.bn) / 2 + 4 * parts + kept;
        let bias = if self.bias { parts * self.bn / 2 } else { 0 };
        let addresses = if self.varlen && self.stages > 1 { ADDRESSES + OF_SEQUENCES } else { ADDRESSES };
        all + (streamed + self.bn / 4 + addresses).max(8 * parts + self.values() / 4).max(bias)
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> i64 {
        let blocks = self.stages * self.bn * (self.d + self.values());
        2 * (self.bm * self.d + blocks).max(self.bm * self.values())
    }

    /// Checks the configuration, whatever the architecture.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.computed().validate_options(MOST_KEYS)?;
        within("warps", self.warps, 1, 16)?;
        within("stages", self.stages, 1, 8)?;
        within("blocks", self.blocks, 1, 64 / self.warps)?;
        let step = 16 * self.warps;
        if !(step..=512).contains(&self.bm) || self.bm % step != 0 {
            let wanted =
                format!("must be a multiple of {step} up to 512: {} warps have 16 queries each", self.warps);
            return Err(ConfigError::value("bm", self.bm, wanted));
        }
        let have =
            i64::from(Arch::SM_80.limits().registers_of_a_thread(32 * (self.warps * self.blocks) as u32));
        let need = self.registers();
        if need > have {
            let wanted = format!(
                "needs {need} registers of a thread, which has {have}: choose fewer queries, keys or blocks, or more warps"
            );
            return Err(ConfigError::value("bm", self.bm, wanted));
        }
        let most = Arch::ALL.iter().map(|arch| arch.limits().shared_bytes_per_block).max();
        self.fits(i64::from(most.unwrap_or(0)))
    }

    /// Checks that a block's shared memory suffices.
    fn fits(&self, have: i64) -> Result<(), ConfigError> {
        let need = self.shared_bytes();
        if need <= have {
            return Ok(());
        }
        let wanted = format!(
            "needs {need} bytes of shared memory, and a block has {have}: choose fewer stages, keys or queries"
        );
        Err(ConfigError::value("stages", self.stages, wanted))
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
        let have = i64::from(arch.limits().shared_bytes_per_block);
        self.validate().and_then(|()| self.fits(have)).err().map(|e| e.to_string())
    }

    fn text(&self) -> Result<String, ConfigError> {
        let AttentionSm80Config { d, bm, bn, warps, stages, .. } = *self;
        let (dv, config) = (self.values(), self.computed());
        let (_, attends) = config.functions()?;
        let writer = Writer { config: &config, attends };
        let logarithms = match self.lse && !self.varlen {
            true => "    gl = global_view(lse, (b, hq, BM, ceil_div(sq, BM)) : (e0, e1, e2, BM * e2))\n",
            false => "",
        };
        Ok(format!(
            "{sizes}\
             const W = {warps}, BM = {bm}, BN = {bn}, D = {d}, DV = {dv}, STAGES = {stages}\n\
             \n\
             kernel attention_sm80({parameters})\n\
             grid(ceil_div(sq, BM), hq, b) threads(W * 32{blocks})\n\
             {{\n\
             {views}{logarithms}{bias}{shared}\
                 acc = register_tensor(f32, [BM, DV])\n\
                 most = register_tensor(f32, [BM, 1])\n\
                 sums = register_tensor(f32, [BM, 4])\n\
                 fill(acc, 0.0)\n\
                 fill(most, -inf)\n\
                 fill(sums, 0.0)\n\
                 let head = block.y, batch = block.z, of_key = min(head / (hq / hk), hk - 1), t = {t}, {numbers}\n\
             {tile}\
             }}\n",
            sizes = writer.sizes(&["q", "k", "v", "o"]),
            parameters = writer.parameters(),
            blocks = if self.blocks > 1 { format!(", {}", self.blocks) } else { String::new() },
            views = self.views(),
            shared = self.shared(),
            // The tiles with the most keys first.
            t = if self.mask == Mask::None { "block.x" } else { "ceil_div(sq, BM) - 1 - block.x" },
            numbers = writer.numbers(&Role::ALL),
            bias = writer.view_of_bias("BM"),
            tile = writer.within(&format!(
                "{slope}copy.async({queries}, xq)\n{steps}{end}",
                slope = if self.alibi { of_head("slope", "slopes") } else { String::new() },
                queries = self.of_queries("gq[", ", :, :]"),
                steps = self.steps(&writer),
                end = self.end(&writer),
            )),
        ))
    }

    /// The tile of queries of a view, of which the text begins and ends so.
    fn of_queries(&self, view: &str, rest: &str) -> String {
        let tile = if self.varlen { ":, from, head" } else { "batch, :, t, head" };
        format!("{view}{tile}{rest}")
    }

    /// A block of keys, of a number: its modes, first place and head.
    fn of_keys(&self, block: &str, modes: &str) -> String {
        match self.varlen {
            true => format!("{modes}, k0 + ({block}) * BN, of_key"),
            false => format!("batch, {modes}, {block}, of_key"),
        }
    }

    /// The views, in which 16 elements of q and k, and 16 places of v, are what a product takes at a time.
    fn views(&self) -> String {
        if self.varlen {
            return "    gq = global_view(q, (BM, tq, hq, 16, D / 16) : (e0, e0, e1, e2, 16 * e2))\n\
                        gk = global_view(k, (BN, tk, hk, 16, D / 16) : (e0, e0, e1, e2, 16 * e2))\n\
                        gv = global_view(v, (16, BN / 16, tk, hk, DV) : (e0, 16 * e0, e0, e1, e2))\n"
                .to_string();
        }
        let (places, heads) = match self.modes {
            Modes::Bshd => ("e1", "e2"),
            Modes::Bhsd => ("e2", "e1"),
        };
        format!(
            "    gq = global_view(q, (b, BM, ceil_div(sq, BM), hq, 16, D / 16) : (e0, {places}, BM * {places}, {heads}, e3, 16 * e3))\n\
                 gk = global_view(k, (b, BN, ceil_div(sk, BN), hk, 16, D / 16) : (e0, {places}, BN * {places}, {heads}, e3, 16 * e3))\n\
                 gv = global_view(v, (b, 16, BN / 16, ceil_div(sk, BN), hk, DV) : (e0, {places}, 16 * {places}, BN * {places}, {heads}, e3))\n\
                 go = global_view(o, (b, BM, ceil_div(sq, BM), hq, DV) : (e0, {places}, BM * {places}, {heads}, e3))\n"
        )
    }

    /// The shared tensors, in panels of up to 64 elements of a head, whose rows are swizzled: `ldmatrix` meets no bank twice, and needs few addresses.
    fn shared(&self) -> String {
        let AttentionSm80Config { dtype, d, bm, bn, stages, .. } = *self;
        let dv = self.values();
        let panel = |elements: i64| 1 << elements.trailing_zeros().min(6);
        let swizzle = |panel: i64| format!("Sw<{},3,3>", panel.ilog2() - 3);
        let (p, pv) = (panel(d), panel(dv));
        let heads = |rows: i64| format!("({}, {})):({p}, 1, (16, {})", p / 16, d / p, rows * p);
        let keys = heads(bn).replace("):(", &format!(", {stages}):("));
        format!(
            "    xq = shared_tensor({dtype}, [BM, 16, D / 16], layout = {s} o ({bm}, 16, {queries}))\n\
                 xk = shared_tensor({dtype}, [BN, 16, D / 16, STAGES], layout = {s} o ({bn}, 16, {keys}, {step}))\n\
                 xv = shared_tensor({dtype}, [16, BN / 16, DV, STAGES], layout = {sv} o (16, {parts}, ({pv}, {panels}), {stages}):({pv}, {apart}, (1, {far}), {stepv}))\n",
            s = swizzle(p),
            sv = swizzle(pv),
            queries = heads(bm),
            step = bn * d,
            parts = bn / 16,
            panels = dv / pv,
            apart = 16 * pv,
            far = bn * pv,
            stepv = bn * dv,
        )
    }

    /// The loop over blocks of keys, the last first, and what comes before it.
    fn steps(&self, writer: &Writer<'_>) -> String {
        let weigh = self.weigh(writer);
        let keys = |block: &str, stage: &str| {
            format!("copy.async(gk[{}, :, :], xk[:, :, :, {stage}])\n", self.of_keys(block, ":"))
        };
        let values = |block: &str, stage: &str| {
            format!("copy.async(gv[{}, :], xv[:, :, :, {stage}])\n", self.of_keys(block, ":, :"))
        };
        let begin = "for j in begin..blocks {\nlet i = blocks - 1 + begin - j, key = i * BN\n";
        // Queries in registers are read once.
        let resident = if self.resident {
            format!(
                "commit_group()\n\
                 wait_group(0)\n\
                 syncthreads()\n\
                 rq = register_tensor({}, [BM, 16, D / 16])\n\
                 unroll for c in 0..D / 16 {{ copy(xq[:, :, c], rq[:, :, c]) }}\n",
                self.dtype
            )
        } else {
            String::new()
        };
        if self.stages == 1 {
            return format!(
                "{first}{resident}commit_group()\n\
                 {begin}\
                     // The keys are there, and nobody reads the values of the block before any more.\n\
                     wait_group(0)\n\
                     syncthreads()\n\
                 {load}commit_group()\n\
                 {scores}\
                     wait_group(0)\n\
                     syncthreads()\n\
                 {weigh}\
                     // The keys of the next block, behind what takes the most registers.\n\
                 {next}commit_group()\n\
                 {add}\
                 }}\n",
                first = keys("blocks - 1", "0"),
                load = values("i", "0"),
                scores = self.scores("0"),
                next = keys("i - 1", "0"),
                add = self.add(writer, "0"),
            );
        }
        let ahead = self.stages - 1;
        let fetch = |block: &str, stage: &str| {
            format!("{}{}commit_group()\n", keys(block, stage), values(block, stage))
        };
        format!(
            "{resident}\
             unroll for ahead in 0..STAGES - 1 {{\n\
             {first}\
             }}\n\
             {begin}\
                 let stage = (j - begin) % STAGES\n\
                 // The block is there, and nobody reads the one before any more, whose place the next takes.\n\
                 wait_group(STAGES - 2)\n\
                 syncthreads()\n\
             {next}{scores}{weigh}{add}\
             }}\n",
            first = fetch("blocks - 1 - ahead", "ahead"),
            next = fetch(&format!("i - {ahead}"), &format!("(j - begin + {ahead}) % STAGES")),
            scores = self.scores("stage"),
            add = self.add(writer, "stage"),
        )
    }

    /// The scores of a block.
    fn scores(&self, stage: &str) -> String {
        let dtype = self.dtype;
        let (queries, part) = if self.resident {
            (String::new(), "rq[:, :, c]")
        } else {
            (format!("rq = register_tensor({dtype}, [BM, 16])\ncopy(xq[:, :, c], rq)\n"), "rq")
        };
        format!(
            "s = register_tensor(f32, [BM, BN])\n\
             fill(s, 0.0)\n\
             unroll for c in 0..D / 16 {{\n\
             {queries}\
                 rk = register_tensor({dtype}, [BN, 16])\n\
                 copy(xk[:, :, c, {stage}], rk)\n\
                 gemm(s, {part}, rk, warps = (W, 1))\n\
             }}\n"
        )
    }

    /// A reference that follows the largest score of a block where one outgrows it by 2⁸.
    fn weigh(&self, writer: &Writer<'_>) -> String {
        format!(
            "{bias}{scores}\
             if any(s > (most + 8.0) * fdividef(1.0, {unit}), 1) {{\n\
                 grown = max(most, reduce(s, max, 1, keep) * {unit})\n\
                 factor = exp2(most - grown)\n\
                 most = grown\n\
                 sums = sums * factor\n\
                 acc = acc * factor\n\
             }}\n",
            bias = writer.added(&Role::ALL, "key"),
            scores = writer.scored(&Role::ALL, "s", "key", true),
            unit = writer.unit(),
        )
    }

    /// The weights of a block and its values, 16 places at a time.
    fn add(&self, writer: &Writer<'_>, stage: &str) -> String {
        format!(
            "unroll for c in 0..BN / 16 {{\n\
                 e = exp2(slice(s, 1, c * 16, 16) * {unit} - most)\n\
                 sums = sums + reduce(reduce(reshape(e, [BM, 2, 4, 2]), sum, 3), sum, 1)\n\
                 rv = register_tensor({dtype}, [DV, 16])\n\
                 copy(transpose(xv[:, c, :, {stage}]), rv)\n\
                 gemm(acc, cast(e, {dtype}), rv, warps = (W, 1))\n\
             }}\n",
            unit = writer.unit(),
            dtype = self.dtype,
        )
    }

    /// The sums of all lanes, and the way of the results to memory: through shared memory, to be written in long pieces.
    fn end(&self, writer: &Writer<'_>) -> String {
        let Ending { sunk, lse, share } =
            writer.ending(&Role::ALL, "1.0", |one, total| format!("fdividef({one}, {total})"));
        let views = writer.view_of_sequence("BM", "DV", "e2");
        format!(
            "total = reduce(sums, sum, 1, keep)\n\
             {sunk}\
             {lse}\
             share = {share}\n\
             acc = acc * share\n\
             xo = shared_tensor({dtype}, [BM, DV])\n\
             result = register_tensor({dtype}, [BM, DV], layout = {layout})\n\
             wait_group(0)\n\
             syncthreads()\n\
             copy(cast(acc, {dtype}), xo)\n\
             syncthreads()\n\
             copy(xo, result)\n\
             {views}\
             copy(result, {results})\n",
            results = self.of_queries("go[", ", :]"),
            dtype = self.dtype,
            layout = rows_by_warp(self.bm, self.warps, self.values()),
        )
    }
}
