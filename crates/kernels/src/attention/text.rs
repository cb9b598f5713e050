//! The program's text.

use super::functions::{Function, Names, capped};
use super::{AttentionConfig, Mask, Modes};
use crate::config::ConfigError;
use tilewright_machine::DType;

/// The score of a key that a query does not attend to: a power of two, so that its product with any scale is exact and differences are 0.
const MASKED: &str = "-1267650600228229401496703205376.0";

/// Half of it: below lie the maxima of queries that attend to no key.
const NONE: &str = "-633825300114114700748351602688.0";

/// Elements of the keys and values of the heads that are worked on at a time: what stays in the L2 cache.
const RESIDENT: i64 = 1 << 23;

/// log₂ e.
pub(crate) const LOG2E: &str = "1.4426950408889634";

/// A role that multiplies: all rows of a tile, or with ping-pong the 64 rows of this warpgroup.
pub(super) struct Role(Option<i64>);

impl Role {
    /// The role of all rows.
    pub(super) const ALL: Self = Role(None);

    /// The end of the names that are the role's own.
    fn part(&self) -> String {
        self.0.map_or(String::new(), |number| number.to_string())
    }

    /// Rows of the role.
    fn rows(&self) -> &'static str {
        if self.0.is_some() { "64" } else { "BM" }
    }

    /// Warpgroups of the role.
    fn warpgroups(&self) -> &'static str {
        if self.0.is_some() { "1" } else { "W" }
    }

    /// The number of the role's rows among all of as many.
    fn tile(&self) -> String {
        self.0.map_or("t".to_string(), |part| format!("t * W + {part}"))
    }

    /// The sum of a number and the first row of the role within the tile.
    fn from(&self, number: &str) -> String {
        match self.0 {
            None | Some(0) => number.to_string(),
            Some(part) => format!("{number} + {}", 64 * part),
        }
    }

    /// The first row of the tile, of a number that is the role's.
    fn tile_of(&self, number: &str) -> String {
        match self.0 {
            None | Some(0) => number.to_string(),
            Some(part) => format!("({number} - {})", 64 * part),
        }
    }
}

/// A configuration whose text is written.
pub(super) struct Writer<'a> {
    pub config: &'a AttentionConfig,
    /// The further mask.
    pub attends: Option<Function>,
}

impl AttentionConfig {
    /// The text of the program.
    pub(super) fn text(&self) -> Result<String, ConfigError> {
        let (_, attends) = self.functions()?;
        Ok(Writer { config: self, attends }.text())
    }

    /// The text of the program that turns v of 8 bits into vt.
    pub(super) fn transposition(&self) -> String {
        let writer = Writer { config: self, attends: None };
        let (places, heads) = self.axes();
        // A sequence has blocks of its own, behind the whole blocks of the keys before it and one more for each sequence; what is left of them is zeros,
        // and so is what a block of keys reaches behind the last.
        let (grid, begins, view, groups, body) = match self.varlen {
            true => (
                "ceil_div(sk, KEYS) + 1 + BEHIND",
                ", cu_k: i32[b + 1]",
                String::new(),
                "(hk, DV, (2, 4, 2, 2, KEYS / 32), tk / KEYS + b) : (e0, e1, (e2, 4 * e2, 2 * e2, 16 * e2, 32 * e2), KEYS * e2)",
                [
                    "let k0 = min(max(cu_k[block.z], 0), tk), ke = min(max(cu_k[block.z + 1], 0), tk), k_block = k0 / KEYS + block.z\n\
                     if k_block + block.x < min(tk / KEYS + b, ke / KEYS + block.z + 1 + (block.z + 1) / b * BEHIND) {\n\
                     gv = global_view(v[: ke, :, :], (KEYS, tk, hk, DV) : (e0, e0, e1, e2))\n",
                    "gv[:, k0 + block.x * KEYS, block.y, :]",
                    "gt[block.y, :, :, k_block + block.x]",
                    "}\n",
                ],
            ),
            false => (
                "ceil_div(sk, KEYS)",
                "",
                format!(
                    "    gv = global_view(v, (b, KEYS, ceil_div(sk, KEYS), hk, DV) : (e0, {places}, KEYS * {places}, {heads}, e3))\n"
                ),
                "(b, hk, DV, (2, 4, 2, 2, KEYS / 32), ceil_div(sk, KEYS)) : (e0, e1, e2, (e3, 4 * e3, 2 * e3, 16 * e3, 32 * e3), KEYS * e3)",
                ["", "gv[block.z, :, block.x, block.y, :]", "gt[block.z, block.y, :, :, block.x]", ""],
            ),
        };
        let [before, from, to, behind] = body;
        // The threads of a row have neighbours two at a time, and take those of two steps of eight as four along k: PTX ISA, fragments of wgmma with 8 bits.
        format!(
            "{sizes}const DV = {dv}, KEYS = 64{constant}\n\
             \n\
             kernel transpose_values({v}, {vt}{begins})\n\
             grid({grid}, hk, b) threads(256)\n\
             {{\n\
             {view}\
                 gt = global_view(vt, {groups})\n\
             rows = register_tensor({dtype}, [KEYS, DV])\n\
             {before}\
                 copy({from}, rows)\n\
             staged = shared_tensor({dtype}, [KEYS, DV])\n\
                 copy(rows, staged)\n\
                 syncthreads()\n\
                 columns = register_tensor({dtype}, [DV, KEYS])\n\
                 copy(transpose(staged), columns)\n\
                 copy(columns, {to})\n\
             {behind}\
             }}\n",
            sizes = writer.sizes(&["v"]),
            dv = self.values(),
            dtype = self.dtype,
            constant = match self.varlen {
                true => format!(", BEHIND = {}", (self.bn + 63) / 64),
                false => String::new(),
            },
            v = writer.operand("v", ["sk", "tk", "hk", "DV"], self.dtype),
            vt = writer.transposed(),
        )
    }

    /// The modes of places and of heads.
    fn axes(&self) -> (&'static str, &'static str) {
        match self.modes {
            Modes::Bshd => ("e1", "e2"),
            Modes::Bhsd => ("e2", "e1"),
        }
    }
}

/// The layout of a tile of o in which lanes have eight neighbours of a row each, and warps rows of their own: `own` neighbours each.
pub(crate) fn rows_by_warp(rows: i64, warps: i64, elements: i64) -> String {
    let (vectors, own) = (elements / 8, rows / warps);
    // Lanes along a row: a power of two.
    let lanes = 1 << vectors.trailing_zeros().min(5);
    let text = |modes: &[(i64, i64)]| {
        let modes: Vec<_> = modes.iter().filter(|(extent, _)| *extent > 1).collect();
        let list = |of: &dyn Fn(&(i64, i64)) -> i64| {
            modes.iter().map(|mode| of(mode).to_string()).collect::<Vec<_>>().join(", ")
        };
        (list(&|mode| mode.0), list(&|mode| mode.1))
    };
    let apart = 32 / lanes;
    let (threads, steps) = text(&[(lanes, 8 * rows), (apart, 1), (warps, own)]);
    let (extents, strides) = text(&[(8, rows), (own / apart, apart), (vectors / lanes, 8 * lanes * rows)]);
    format!("(({threads}), ({extents})) : (({steps}), ({strides}))")
}

/// A tensor of one element, that of a head of q.
pub(crate) fn of_head(name: &str, of: &str) -> String {
    format!(
        "g{name} = global_view({of}[head :], (1, 1) : (e0, e0))\n\
         {name} = register_tensor(f32, [1, 1])\n\
         copy(g{name}, {name})\n"
    )
}

impl Writer<'_> {
    fn text(&self) -> String {
        let AttentionConfig { dtype, d, warpgroups, bn, stages, sm_count, persistent, q_stages, .. } =
            *self.config;
        let config = self.config;
        let (dv, math_registers, out) = (config.values(), config.math_registers(), config.results());
        let values = if config.is_fp8() { "[DV, BN]" } else { "[BN, DV]" };
        let tiles = "b * hq * ceil_div(sq, BM)";
        let grid = if persistent { format!("min(SMS, {tiles})") } else { tiles.to_string() };
        let constants = if persistent { format!(", SMS = {sm_count}") } else { String::new() };
        let mut shared = match self.config.through_queries() {
            true => String::new(),
            false => self.per_role(|role| {
                format!("    xo{} = shared_tensor({out}, [{}, DV])\n", role.part(), role.rows())
            }),
        };
        if self.config.ping_pong {
            shared += "    cores = turns()\n";
        }
        format!(
            "{sizes}const W = {warpgroups}, BM = W * 64, BN = {bn}, D = {d}, DV = {dv}, STAGES = {stages}{constants}\n\
             \n\
             kernel attention({parameters})\n\
             grid({grid}) threads(W * 128 + 128)\n\
             {{\n\
             {views}\
                 xk = shared_tensor({dtype}, [BN, D])\n\
                 xv = shared_tensor({dtype}, {values})\n\
             {shared}\
             {queries}\
                 kp = pipeline(STAGES, xk)\n\
                 vp = pipeline(STAGES, xv)\n\
                 warpgroup load(1) registers({load_registers}) {{\n\
             {load}\
                 }}\n\
             {math}\
             }}\n",
            sizes = self.sizes(if config.is_fp8() { &["q", "k", "o"] } else { &["q", "k", "v", "o"] }),
            parameters = self.parameters(),
            views = self.views(),
            load_registers = if warpgroups > 2 { 32 } else { 24 },
            queries = self.per_role(|role| {
                let part = role.part();
                format!(
                    "    xq{part} = shared_tensor({dtype}, [{}, D])\n    qp{part} = pipeline({q_stages}, xq{part})\n",
                    role.rows()
                )
            }),
            load = self.of_tile(&Role::ALL, &self.load()),
            math = self.per_role(|role| format!(
                "    warpgroup math{}({}) registers({math_registers}) {{\n{}    }}\n",
                role.part(),
                role.warpgroups(),
                self.of_tile(role, &self.math(role))
            )),
        )
    }

    /// The text for each of the roles that multiply.
    fn per_role(&self, text: impl Fn(&Role) -> String) -> String {
        match self.config.ping_pong {
            true => (0..self.config.warpgroups).map(|part| text(&Role(Some(part)))).collect(),
            false => text(&Role::ALL),
        }
    }

    /// The declarations of sizes.
    pub(super) fn sizes(&self, operands: &[&str]) -> String {
        let config = self.config;
        let queries = if operands.contains(&"q") { "hq = 4, hk = 2, sq = 384" } else { "hk = 2" };
        let mut text = format!("size b = 1, {queries}, sk = 384");
        if config.varlen {
            text += ", tq = 384, tk = 384";
        }
        if config.bias {
            text += ", bb = 1, bh = 1";
        }
        text += "\n";
        if config.strides {
            let operand = |(name, heads, places, elements): (&str, &str, &str, i64)| {
                let [places, heads]: [i64; 2] = [places, heads].map(|size| {
                    if size == "hq" {
                        4
                    } else if size == "hk" {
                        2
                    } else {
                        384
                    }
                });
                let (place, head) = match config.modes {
                    Modes::Bshd => (heads * elements, elements),
                    Modes::Bhsd => (elements, places * elements),
                };
                let batch = if config.varlen {
                    String::new()
                } else {
                    format!("{name}_b = {}, ", heads * places * elements)
                };
                format!("{batch}{name}_s = {place}, {name}_h = {head}")
            };
            let (d, dv) = (config.d, config.values());
            let all =
                [("q", "hq", "sq", d), ("k", "hk", "sk", d), ("v", "hk", "sk", dv), ("o", "hq", "sq", dv)];
            let strided = all.into_iter().filter(|(name, ..)| operands.contains(name));
            text += &format!("size {}\n", strided.map(operand).collect::<Vec<_>>().join(", "));
        }
        text
    }

    /// The declaration of an operand, with the longest length, that of all sequences, the heads and the elements.
    fn operand(&self, name: &str, [longest, all, heads, elements]: [&str; 4], dtype: DType) -> String {
        let AttentionConfig { modes, varlen, strides, .. } = *self.config;
        let (shape, steps) = match (varlen, modes) {
            (true, _) => (format!("{all}, {heads}, {elements}"), format!("{name}_s, {name}_h, 1")),
            (false, Modes::Bshd) => {
                (format!("b, {longest}, {heads}, {elements}"), format!("{name}_b, {name}_s, {name}_h, 1"))
            }
            (false, Modes::Bhsd) => {
                (format!("b, {heads}, {longest}, {elements}"), format!("{name}_b, {name}_h, {name}_s, 1"))
            }
        };
        let steps = if strides { format!(" : ({steps})") } else { String::new() };
        format!("{name}: {dtype}[{shape}]{steps}")
    }

    /// The declaration of vt.
    fn transposed(&self) -> String {
        match self.config.varlen {
            true => format!("vt: {}[hk, DV, 64 * (tk / 64 + b)]", self.config.dtype),
            false => format!("vt: {}[b, hk, DV, 32 * ceil_div(sk, 32)]", self.config.dtype),
        }
    }

    /// The parameters of the kernel.
    pub(super) fn parameters(&self) -> String {
        let (config, varlen) = (self.config, self.config.varlen);
        let (dtype, out) = (config.dtype, config.results());
        let values = match config.is_fp8() {
            true => self.transposed(),
            false => self.operand("v", ["sk", "tk", "hk", "DV"], dtype),
        };
        let mut all = vec![
            self.operand("q", ["sq", "tq", "hq", "D"], dtype),
            self.operand("k", ["sk", "tk", "hk", "D"], dtype),
            values,
            self.operand("o", ["sq", "tq", "hq", "DV"], out),
        ];
        let mut push = |wanted: bool, text: &str| all.extend(wanted.then(|| text.to_string()));
        push(config.lse, if varlen { "lse: f32[hq, tq]" } else { "lse: f32[b, hq, sq]" });
        push(varlen, "cu_q: i32[b + 1], cu_k: i32[b + 1]");
        push(config.is_fp8(), "q_descale: f32[b, hk], k_descale: f32[b, hk], v_descale: f32[b, hk]");
        push(config.bias, &format!("bias: {out}[bb, bh, sq, sk]"));
        push(config.alibi, "slopes: f32[hq]");
        push(config.sink, "sinks: f32[hq]");
        push(true, &format!("scale: f32 = {:.9}", (config.d as f64).sqrt().recip()));
        push(config.softcap, "cap: f32 = 50.0");
        push(!config.scalars.0.is_empty(), &config.scalars.0);
        all.join(", ")
    }

    fn views(&self) -> String {
        let rows = if self.config.ping_pong { "64" } else { "BM" };
        let (places, heads) = self.config.axes();
        let view = |name: &str, [rows, size, of, elements]: [&str; 4]| {
            if self.config.varlen {
                let all = if size == "sq" { "tq" } else { "tk" };
                return format!(
                    "    g{name} = global_view({name}, ({rows}, {all}, {of}, {elements}) : (e0, e0, e1, e2))\n"
                );
            }
            format!(
                "    g{name} = global_view({name}, (b, {rows}, ceil_div({size}, {rows}), {of}, {elements}) : (e0, {places}, {rows} * {places}, {heads}, e3))\n"
            )
        };
        let mut text = [
            view("q", [rows, "sq", "hq", "D"]),
            view("k", ["BN", "sk", "hk", "D"]),
            match self.config.is_fp8() {
                true if self.config.varlen => "    gv = global_view(vt, (hk, DV, BN, 64 * (tk / 64 + b)) : (e0, e1, e2, e2))\n".to_string(),
                true => "    gv = global_view(vt, (b, hk, DV, BN, ceil_div(sk, BN)) : (e0, e1, e2, e3, BN * e3))\n".to_string(),
                false => view("v", ["BN", "sk", "hk", "DV"]),
            },
        ]
        .concat();
        if !self.config.varlen {
            text += &view("o", [rows, "sq", "hq", "DV"]);
            if self.config.lse {
                text += &format!(
                    "    gl = global_view(lse, (b, hq, {rows}, ceil_div(sq, {rows})) : (e0, e1, e2, {rows} * e2))\n"
                );
            }
        }
        text + &self.view_of_bias(rows)
    }

    /// The view of the bias by tiles of so many rows.
    pub(super) fn view_of_bias(&self, rows: &str) -> String {
        if !self.config.bias {
            return String::new();
        }
        format!(
            "    gb = global_view(bias, (bb, bh, {rows}, ceil_div(sq, {rows}), BN, ceil_div(sk, BN)) : (e0, e1, e2, {rows} * e2, e3, BN * e3))\n"
        )
    }

    /// The statements that load the bias of a block of keys.
    pub(super) fn added(&self, role: &Role, key: &str) -> String {
        if !self.config.bias {
            return String::new();
        }
        format!(
            "bias_{key} = register_tensor({out}, [{rows}, BN])\n\
             copy(gb[batch % bb, head % bh, :, {at}, :, {key} / BN], bias_{key})\n",
            out = self.config.results(),
            rows = role.rows(),
            at = role.tile(),
        )
    }

    /// Statements for the tiles of a sequence only: as many are dealt out for each as the longest has.
    pub(super) fn within(&self, body: &str) -> String {
        if self.config.varlen { format!("if row < nq {{\n{body}}}\n") } else { body.to_string() }
    }

    /// The statements that write the logarithms of a tile.
    pub(super) fn logarithms(&self, role: &Role, logarithm: &str) -> String {
        let rows = role.rows();
        match (self.config.lse, self.config.varlen) {
            (false, _) => String::new(),
            (true, false) => format!("copy({logarithm}, gl[batch, head, :, {}])\n", role.tile()),
            (true, true) => format!(
                "gl = global_view(lse[:, : qe], (hq, {rows}, tq) : (e0, e1, e1))\n\
                 copy({logarithm}, gl[head, :, {}])\n",
                role.from("from")
            ),
        }
    }

    /// The tile's rows of an operand of q's shape.
    fn of_queries(&self, view: &str, role: &Role) -> String {
        match self.config.varlen {
            true => format!("{view}[:, {}, head, :]", role.from("from")),
            false => format!("{view}[batch, :, {}, head, :]", role.tile()),
        }
    }

    /// A block of k or of v.
    fn of_keys(&self, view: &str) -> String {
        let index =
            if self.config.varlen { ":, k0 + key, of_key, :" } else { "batch, :, key / BN, of_key, :" };
        format!("{view}[{index}]")
    }

    /// The lengths of the tile's sequences.
    fn lengths(&self) -> [&'static str; 2] {
        if self.config.varlen { ["nq", "nk"] } else { ["sq", "sk"] }
    }

    /// True if scores depend on the places of queries.
    fn has_places(&self) -> bool {
        let config = self.config;
        config.mask != Mask::None || self.attends.is_some() || config.score.is_some() || config.alibi
    }

    /// The numbers of a tile of the role, of which `t`, `batch` and `head` are known: its first query and that one's place, and its blocks of keys.
    pub(super) fn numbers(&self, role: &Role) -> String {
        let masked = self.config.mask != Mask::None;
        let [nq, nk] = self.lengths();
        let mut numbers = vec!["row = t * BM".to_string()];
        if self.config.varlen {
            let end = |which: &str, at: &str, all: &str| format!("min(max(cu_{which}[{at}], 0), {all})");
            numbers.push(format!("q0 = {}, qe = {}", end("q", "batch", "tq"), end("q", "batch + 1", "tq")));
            numbers.push(format!(
                "k0 = {}, nk = {} - k0",
                end("k", "batch", "tk"),
                end("k", "batch + 1", "tk")
            ));
            numbers.push("nq = qe - q0, from = q0 + row".to_string());
        }
        // The place of the tile's first query among the keys.
        let place = role.from(&format!("row + {nk} - {nq}"));
        numbers.extend(self.has_places().then(|| format!("place = {place}")));
        let of_tile = role.tile_of("place");
        let some = if self.config.varlen { format!("max({nk}, 1)") } else { nk.to_string() };
        numbers.push(match masked {
            true => format!("blocks = ceil_div(max(1, min({of_tile} + BM, {nk})), BN)"),
            false => format!("blocks = ceil_div({some}, BN)"),
        });
        numbers.push(match self.config.mask {
            Mask::Window(keys) => format!("begin = max(0, {of_tile} - {}) / BN", keys - 1),
            _ => "begin = 0".to_string(),
        });
        numbers.join(", ")
    }

    /// A role's statements for a tile, where the tile's numbers are known: its head, its first query, and its blocks of keys.
    fn of_tile(&self, role: &Role, body: &str) -> String {
        let masked = self.config.mask != Mask::None;
        let heads = "batch = at / hq, head = at % hq, of_key = head / (hq / hk)";
        let numbers = format!("let {heads}, {}\n", self.numbers(role));
        let body = self.within(body);
        if self.config.persistent && !masked {
            return format!("for (at, t) in tiles(b * hq, ceil_div(sq, BM)) {{\n{numbers}{body}}}\n");
        }
        // Heads in sections whose keys and values stay in the L2 cache; of a section the tiles with the most keys first. Blocks that stay have them
        // last in every other section, so that all come to as many keys, and the last section ends with the fewest.
        let resident = RESIDENT / self.config.d;
        let (number, late) = (if self.config.persistent { "number" } else { "block.x" }, "w / heads");
        let t = match (masked, self.config.persistent) {
            (true, true) => format!(
                "back = (ceil_div(b * hq, section) - 1 - {number} / (section * tiles)) % 2, t = back * ({late}) + (1 - back) * (tiles - 1 - {late})"
            ),
            (true, false) => format!("t = tiles - 1 - {late}"),
            (false, _) => format!("t = {late}"),
        };
        let of_number = format!(
            "first = {number} / (section * tiles) * section, heads = min(section, b * hq - first), \
             w = {number} - first * tiles, at = first + w % heads, {t}\n{numbers}{body}"
        );
        let section = format!("let tiles = ceil_div(sq, BM), section = max(1, {resident} / sk)");
        if self.config.persistent {
            return format!(
                "{section}\nfor n in 0..ceil_div(b * hq * tiles - block.x, SMS) {{\nlet number = block.x + n * SMS, {of_number}}}\n"
            );
        }
        format!("{section}, {of_number}")
    }

    /// The statements of the role that copies.
    fn load(&self) -> String {
        let body = format!(
            "produce kp {{ copy.async({}, xk) }}\nproduce vp {{ copy.async({}, xv) }}\n",
            self.of_keys("gk"),
            match (self.config.is_fp8(), self.config.varlen) {
                (true, true) => "gv[of_key, :, :, (k0 / 64 + batch) * 64 + key]".to_string(),
                (true, false) => "gv[batch, of_key, :, :, key / BN]".to_string(),
                (false, _) => self.of_keys("gv"),
            }
        );
        let body = match self.conditions("key", &Role::ALL) {
            Some((some, _)) => format!("if i == begin or {some} {{\n{body}}}\n"),
            None => body,
        };
        let queries = self.per_role(|role| {
            let part = role.part();
            format!("produce qp{part} {{ copy.async({}, xq{part}) }}\n", self.of_queries("gq", role))
        });
        format!(
            "{queries}\
             for i in begin..blocks {{\n\
                 let key = (blocks - 1 + begin - i) * BN\n\
                 {body}\
             }}\n"
        )
    }

    /// The conditions under which the further mask lets some query of the tile attend to some key of a block, and all to all.
    pub(super) fn conditions(&self, key: &str, role: &Role) -> Option<(String, String)> {
        let (first, last) = (role.tile_of("place"), format!("({key} + BN - 1)"));
        let rows = [first.as_str(), &format!("({first} + BM - 1)")];
        self.attends.as_ref().map(|mask| mask.conditions(rows, [key, &last]))
    }

    /// Statements that give scores their last form: scales, caps, what is added to them, and the keys that are not attended to.
    pub(super) fn scored(&self, role: &Role, scores: &str, key: &str, first: bool) -> String {
        let config = self.config;
        let mut text = String::new();
        let (i, j) = ("(place + index(0))", format!("({key} + index(1))"));
        let names = Names { i, j: &j, x: scores };
        let scale = if config.is_fp8() { "descale" } else { "scale" };
        if config.softcap {
            text += &format!("{scores} = {}\n", capped(scores, &format!("{scale} / cap"), "cap"));
        } else if self.scales() {
            text += &format!("{scores} = {scores} * {scale}\n");
        }
        if config.alibi {
            text += &format!("{scores} = {scores} + slope * float({key} + index(1) - place - index(0))\n");
        }
        if config.bias {
            text += &format!("{scores} = max({scores} + cast(bias_{key}, f32), {MASKED})\n");
        }
        if let Some(score) = &config.score {
            text += &format!("{scores} = max({}, {MASKED})\n", score.text(&names));
        }
        let mut place = |condition: &str, holds: &str| {
            text += &format!("if {condition} {{ {scores} = where({holds}, {scores}, {MASKED}) }}\n");
        };
        let [_, nk] = self.lengths();
        match config.mask {
            // The first block has the last keys.
            Mask::None if first => {
                place(&format!("{key} + BN > {nk}"), &format!("{key} + index(1) < {nk}"));
            }
            Mask::None => {}
            Mask::Causal | Mask::Window(_) => {
                place(&format!("{key} + BN > place + 1"), &format!("{key} + index(1) <= place + index(0)"));
            }
        }
        if let Mask::Window(keys) = config.mask {
            let holds = format!("{key} + index(1) > place + index(0) - {keys}");
            place(&format!("{key} < place + {} - {keys}", role.rows()), &holds);
        }
        if let (Some(mask), Some((_, all))) = (&config.attends, self.conditions(key, role)) {
            place(&format!("not ({all})"), &mask.text(&names));
        }
        text
    }

    /// The values as operand B.
    fn values(&self) -> &'static str {
        if self.config.is_fp8() { "xv" } else { "transpose(xv)" }
    }

    /// True if scores are multiplied by the scale before exponentials are taken.
    fn scales(&self) -> bool {
        let config = self.config;
        config.softcap || config.alibi || config.bias || config.score.is_some()
    }

    /// Scores are multiples of this, in powers of two.
    pub(super) fn unit(&self) -> String {
        match (self.scales(), self.config.is_fp8()) {
            (true, _) => LOG2E.to_string(),
            (false, true) => "unit".to_string(),
            (false, false) => format!("(scale * {LOG2E})"),
        }
    }

    fn math(&self, role: &Role) -> String {
        let (dtype, unit) = (self.config.dtype, self.unit());
        let (first, others) = (self.scored(role, "s", "last", true), self.scored(role, "next", "key", false));
        let end = self.end(role);
        let (rows, part) = (role.rows(), role.part());
        let (turn, passed) = if self.config.ping_pong { ("in_turn cores {\n", "}\n") } else { ("", "") };
        let (inside, behind) =
            if self.config.through_queries() { (end.as_str(), "") } else { ("", end.as_str()) };
        let (skipped, rest) = match self.conditions("key", role) {
            Some((some, _)) => (format!("if {some} {{\n"), "}\n"),
            None => (String::new(), ""),
        };
        let of_batch = |name: &str| {
            format!(
                "g_{name} = global_view({name}[batch :, of_key :], (1, 1) : (e0, e1))\n\
                 {name}_now = register_tensor(f32, [1, 1])\n\
                 copy(g_{name}, {name}_now)\n"
            )
        };
        let descales = match self.config.is_fp8() {
            true => {
                let unit = if self.scales() { String::new() } else { format!("unit = descale * {LOG2E}\n") };
                let all = ["q_descale", "k_descale", "v_descale"].map(of_batch).concat();
                format!("{all}descale = scale * q_descale_now * k_descale_now\n{unit}")
            }
            false => String::new(),
        };
        // Weights of 8 bits in the order in which a thread has them as factors, which is that of vt.
        let weights = |of: &str| match self.config.is_fp8() {
            true => format!(
                "cast(reshape(transpose(reshape({of}, [{rows}, 2, 4, 2, 2, BN / 32]), 0, 1, 3, 2, 4, 5), [{rows}, BN]), {dtype})"
            ),
            false => format!("cast({of}, {dtype})"),
        };
        let values = self.values();
        let slope = if self.config.alibi { of_head("slope", "slopes") } else { String::new() };
        format!(
            "acc = register_tensor(f32, [{rows}, DV])\n\
             most = register_tensor(f32, [{rows}, 1])\n\
             sums = register_tensor(f32, [{rows}, 8])\n\
             p = register_tensor({dtype}, [{rows}, BN])\n\
             fill(acc, 0.0)\n\
             {slope}\
             {descales}\
             consume qp{part} {{\n\
                 let last = (blocks - 1) * BN\n\
                 s = register_tensor(f32, [{rows}, BN])\n\
                 fill(s, 0.0)\n\
                 {turn}\
                 consume kp {{\n\
                     gemm.async(s, xq{part}, xk)\n\
                     commit_gemm()\n\
                 }}\n\
                 {passed}\
                 {added_last}\
                 wait_gemm(0)\n\
                 {first}\
                 most = reduce(s, max, 1, keep) * {unit}\n\
                 e = exp2(s * {unit} - most)\n\
                 sums = reduce(reshape(e, [{rows}, 8, BN / 8]), sum, 2)\n\
                 p = {weights_of_e}\n\
                 limit = (most + 8.0) / {unit}\n\
                 for j in begin + 1..blocks {{\n\
                     let key = (blocks - 1 + begin - j) * BN\n\
                     {skipped}\
                     next = register_tensor(f32, [{rows}, BN])\n\
                     fill(next, 0.0)\n\
                     {turn}\
                     consume kp {{\n\
                         gemm.async(next, xq{part}, xk)\n\
                         commit_gemm()\n\
                     }}\n\
                     consume vp {{\n\
                         gemm.async(acc, p, {values})\n\
                         commit_gemm()\n\
                     }}\n\
                     {passed}\
                     {added_key}\
                     wait_gemm(1)\n\
                     {others}\
                     factor = register_tensor(f32, [{rows}, 1])\n\
                     fill(factor, 1.0)\n\
                     if any(next > limit, 1) {{\n\
                         grown = max(most, reduce(next, max, 1, keep) * {unit})\n\
                         factor = exp2(most - grown)\n\
                         most = grown\n\
                         limit = (grown + 8.0) / {unit}\n\
                         sums = sums * factor\n\
                     }}\n\
                     f = exp2(next * {unit} - most)\n\
                     sums = sums + reduce(reshape(f, [{rows}, 8, BN / 8]), sum, 2)\n\
                     wait_gemm(0)\n\
                     if any(factor < 1.0, 1) {{ acc = acc * factor }}\n\
                     p = {weights_of_f}\n\
                     {rest}\
                 }}\n\
             {inside}\
             }}\n\
             {behind}",
            weights_of_e = weights("e"),
            weights_of_f = weights("f"),
            added_last = self.added(role, "last"),
            added_key = self.added(role, "key"),
        )
    }

    /// A value of queries with a key, and another for those without.
    pub(super) fn some(&self, value: &str, none: &str, most: &str) -> String {
        let config = self.config;
        if self.attends.is_some() || config.varlen || config.score.is_some() || config.bias {
            let unit = self.unit();
            let unit =
                if unit == "unit" && most.starts_with("reshape") { "reshape(unit, [1])" } else { &unit };
            format!("where({most} > {NONE} * {unit}, {value}, {none})")
        } else if self.config.mask == Mask::None {
            value.to_string()
        } else {
            format!("where(place + index(0) >= 0, {value}, {none})")
        }
    }

    /// The sink's part of the sums of a tile, against the largest of it and the reference.
    pub(super) fn sunk(&self) -> String {
        format!(
            "{}top = max(most, sink * {LOG2E})\n\
             down = exp2(most - top)\n\
             total = total * down + exp2(sink * {LOG2E} - top)\n",
            of_head("sink", "sinks")
        )
    }

    /// The end of a tile: the last values, the sums of all threads, and the way of the results to memory.
    fn end(&self, role: &Role) -> String {
        let (config, out, values) = (self.config, self.config.results(), self.values());
        let one = if config.is_fp8() { "v_descale_now" } else { "1.0" };
        let (rows, part) = (role.rows(), role.part());
        let logarithm =
            format!("(reshape(most, [{rows}]) + log2(reshape(total, [{rows}]))) * 0.6931471805599453");
        let (sunk, share, logarithm) = match config.sink {
            // The sink may lie far above all scores.
            true => (
                self.sunk(),
                self.some(
                    &match config.is_fp8() {
                        true => format!("{one} * down / total"),
                        false => "down / total".to_string(),
                    },
                    "0.0",
                    "most",
                ),
                logarithm.replace("most", "top"),
            ),
            false => (
                String::new(),
                self.some(&format!("{one} / total"), "0.0", "most"),
                self.some(&logarithm, "-inf", &format!("reshape(most, [{rows}])")),
            ),
        };
        let views = match config.varlen {
            true => format!("go = global_view(o[: qe, :, :], ({rows}, tq, hq, DV) : (e0, e0, e1, e2))\n"),
            false => String::new(),
        };
        let results = self.of_queries("go", role);
        let lse = self.logarithms(role, &logarithm);
        let staged = if config.through_queries() { format!("xq{part}") } else { format!("xo{part}") };
        format!(
            "consume vp {{\n\
                 gemm.async(acc, p, {values})\n\
                 commit_gemm()\n\
             }}\n\
             total = reduce(sums, sum, 1, keep)\n\
             wait_gemm(0)\n\
             {sunk}\
             {lse}\
             // Each warp its own rows, through shared memory, to be written in long pieces.\n\
             syncthreads(warpgroup)\n\
             share = {share}\n\
             acc = acc * share\n\
             copy(cast(acc, {out}), {staged})\n\
             syncthreads(warpgroup)\n\
             result = register_tensor({out}, [{rows}, DV], layout = {layout})\n\
             copy({staged}, result)\n\
             {views}\
             copy(result, {results})\n",
            layout = rows_by_warp(
                64 * if role.0.is_some() { 1 } else { config.warpgroups },
                4 * if role.0.is_some() { 1 } else { config.warpgroups },
                config.values()
            ),
        )
    }
}
