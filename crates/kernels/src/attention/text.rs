//! The text of programs, as far as forms share it.

use super::form::Form;
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

/// A role with rows of queries: all of a tile, or where roles share a tile those of this one.
pub(super) struct Role {
    /// The number of the role among those that share a tile.
    part: Option<i64>,
    /// Rows of each of them.
    each: i64,
}

impl Role {
    /// The role of all rows.
    pub(super) const ALL: Self = Role { part: None, each: 0 };

    /// The end of the names that are the role's own.
    pub(super) fn part(&self) -> String {
        self.part.map_or(String::new(), |number| number.to_string())
    }

    /// Rows of the role.
    pub(super) fn rows(&self) -> String {
        self.part.map_or("BM".to_string(), |_| self.each.to_string())
    }

    /// Warpgroups of the role.
    pub(super) fn warpgroups(&self) -> &'static str {
        if self.part.is_some() { "1" } else { "W" }
    }

    /// The number of the role's rows among all of as many.
    fn tile(&self) -> String {
        self.part.map_or("t".to_string(), |part| format!("t * W + {part}"))
    }

    /// The sum of a number and the first row of the role within the tile.
    fn from(&self, number: &str) -> String {
        match self.part {
            None | Some(0) => number.to_string(),
            Some(part) => format!("{number} + {}", self.each * part),
        }
    }

    /// The first row of the tile, of a number that is the role's.
    fn tile_of(&self, number: &str) -> String {
        match self.part {
            None | Some(0) => number.to_string(),
            Some(part) => format!("({number} - {})", self.each * part),
        }
    }
}

/// The parts of a program that a form has of its own.
pub(super) struct OfForm {
    /// The name of the kernel.
    pub name: &'static str,
    /// Rows of a tile's part that is one of `W`.
    pub rows: i64,
    /// `W`, into which a tile is divided.
    pub parts: i64,
    /// Threads of a block.
    pub threads: String,
    /// Registers of a thread that copies.
    pub load_registers: i64,
    /// Declarations of further constants.
    pub constants: String,
    /// Declarations of tensors and pipelines beside those of queries, keys and values.
    pub shared: String,
    /// The roles beside the one that copies.
    pub roles: String,
}

/// The end of the weights of a tile.
pub(super) struct Ending {
    /// The statements that add a sink.
    pub sunk: String,
    /// The statements that write logarithms.
    pub lse: String,
    /// The factor of a row's sums.
    pub share: String,
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

    /// The modes of places and of heads.
    pub(super) fn axes(&self) -> (&'static str, &'static str) {
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
        let AttentionConfig { dtype, d, bn, stages, sm_count, persistent, q_stages, .. } = *self.config;
        let config = self.config;
        let values = if config.turns_values() { "[DV, BN]" } else { "[BN, DV]" };
        let tiles = "b * hq * ceil_div(sq, BM)";
        let grid = if persistent { format!("min(SMS, {tiles})") } else { tiles.to_string() };
        let stay = if persistent { format!(", SMS = {sm_count}") } else { String::new() };
        let OfForm { name, rows, parts, threads, load_registers, constants, shared, roles } =
            match config.form {
                Form::Wgmma => self.wgmma(),
                Form::Tcgen05 => self.tcgen05(),
            };
        format!(
            "{sizes}const W = {parts}, BM = W * {rows}, BN = {bn}, D = {d}, DV = {dv}, STAGES = {stages}{stay}{constants}\n\
             \n\
             kernel {name}({parameters})\n\
             grid({grid}) threads({threads})\n\
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
             {roles}\
             }}\n",
            dv = config.values(),
            sizes = self.sizes(if config.turns_values() { &["q", "k", "o"] } else { &["q", "k", "v", "o"] }),
            parameters = self.parameters(),
            views = self.views(),
            queries = self.per_role(|role| {
                let part = role.part();
                format!(
                    "    xq{part} = shared_tensor({dtype}, [{}, D])\n    qp{part} = pipeline({q_stages}, xq{part})\n",
                    role.rows()
                )
            }),
            load = self.of_tile(&Role::ALL, &self.load()),
        )
    }

    /// The text for each of the roles that have rows of a tile.
    pub(super) fn per_role(&self, text: impl Fn(&Role) -> String) -> String {
        match self.config.shared_out() {
            Some([parts, each]) => (0..parts).map(|part| text(&Role { part: Some(part), each })).collect(),
            None => text(&Role::ALL),
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
    pub(super) fn operand(
        &self,
        name: &str,
        [longest, all, heads, elements]: [&str; 4],
        dtype: DType,
    ) -> String {
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
    pub(super) fn transposed(&self) -> String {
        match self.config.varlen {
            true => format!("vt: {}[hk, DV, 64 * (tk / 64 + b)]", self.config.dtype),
            false => format!("vt: {}[b, hk, DV, 32 * ceil_div(sk, 32)]", self.config.dtype),
        }
    }

    /// The parameters of the kernel.
    pub(super) fn parameters(&self) -> String {
        let (config, varlen) = (self.config, self.config.varlen);
        let (dtype, out) = (config.dtype, config.results());
        let values = match config.turns_values() {
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
        let rows = &self.config.shared_out().map_or("BM".to_string(), |[_, each]| each.to_string());
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
            match self.config.turns_values() {
                true if self.config.varlen => "    gv = global_view(vt, (hk, DV, BN, 64 * (tk / 64 + b)) : (e0, e1, e2, e2))\n".to_string(),
                true => "    gv = global_view(vt, (b, hk, DV, BN, ceil_div(sk, BN)) : (e0, e1, e2, e3, BN * e3))\n".to_string(),
                false => view("v", ["BN", "sk", "hk", "DV"]),
            },
        ]
        .concat();
        if !self.config.varlen {
            text += &match self.config.form {
                Form::Wgmma => view("o", [rows, "sq", "hq", "DV"]),
                Form::Tcgen05 => format!(
                    "    go = global_view(o, (b, {rows}, ceil_div(sq, {rows}), hq, STEP, DV / STEP) : (e0, {places}, {rows} * {places}, {heads}, e3, STEP * e3))\n"
                ),
            };
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
    fn logarithms(&self, role: &Role, logarithm: &str) -> String {
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

    /// The tile's rows of an operand of q's shape, of a view with these elements.
    pub(super) fn of_queries(&self, view: &str, role: &Role, elements: &str) -> String {
        match self.config.varlen {
            true => format!("{view}[:, {}, head, {elements}]", role.from("from")),
            false => format!("{view}[batch, :, {}, head, {elements}]", role.tile()),
        }
    }

    /// The view of o that ends with the tile's sequence, where sequences have their own lengths: so many rows of these elements, with these steps.
    pub(super) fn view_of_sequence(&self, rows: &str, elements: &str, steps: &str) -> String {
        match self.config.varlen {
            true => format!(
                "go = global_view(o[: qe, :, :], ({rows}, tq, hq, {elements}) : (e0, e0, e1, {steps}))\n"
            ),
            false => String::new(),
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
    pub(super) fn of_tile(&self, role: &Role, body: &str) -> String {
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
            match (self.config.turns_values(), self.config.varlen) {
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
            format!("produce qp{part} {{ copy.async({}, xq{part}) }}\n", self.of_queries("gq", role, ":"))
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

    /// The statements that load the scales of heads of 8 bits, and multiply those of scores.
    pub(super) fn descales(&self) -> String {
        if !self.config.is_fp8() {
            return String::new();
        }
        let of_batch = |name: &str| {
            format!(
                "g_{name} = global_view({name}[batch :, of_key :], (1, 1) : (e0, e1))\n\
                 {name}_now = register_tensor(f32, [1, 1])\n\
                 copy(g_{name}, {name}_now)\n"
            )
        };
        let unit = if self.scales() { String::new() } else { format!("unit = descale * {LOG2E}\n") };
        let all = ["q_descale", "k_descale", "v_descale"].map(of_batch).concat();
        format!("{all}descale = scale * q_descale_now * k_descale_now\n{unit}")
    }

    /// The factor of weighted values.
    pub(super) fn one(&self) -> &'static str {
        if self.config.is_fp8() { "v_descale_now" } else { "1.0" }
    }

    /// True if scores are multiplied by the scale before exponentials are taken.
    pub(super) fn scales(&self) -> bool {
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

    /// A value of queries with a key, and another for those without.
    fn some(&self, value: &str, none: &str, most: &str) -> String {
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

    /// The end of the weights of a tile, of which `total` is known: what a row's sums are multiplied by, `one` over the sum of weights.
    pub(super) fn ending(&self, role: &Role, one: &str, over: impl Fn(&str, &str) -> String) -> Ending {
        let rows = role.rows();
        let of = |most: &str| {
            format!("(reshape({most}, [{rows}]) + log2(reshape(total, [{rows}]))) * 0.6931471805599453")
        };
        // The sink may lie far above all scores, and then the sums are scaled against it.
        let (sunk, one, logarithm) = match (self.config.sink, one) {
            (true, "1.0") => (self.sunk(), "down".to_string(), of("top")),
            (true, one) => (self.sunk(), format!("{one} * down"), of("top")),
            (false, one) => {
                let some = self.some(&of("most"), "-inf", &format!("reshape(most, [{rows}])"));
                (String::new(), one.to_string(), some)
            }
        };
        let lse = self.logarithms(role, &logarithm);
        Ending { sunk, lse, share: self.some(&over(&one, "total"), "0.0", "most") }
    }

    /// The sink's part of the sums of a tile, against the largest of it and the reference.
    fn sunk(&self) -> String {
        format!(
            "{}top = max(most, sink * {LOG2E})\n\
             down = exp2(most - top)\n\
             total = total * down + exp2(sink * {LOG2E} - top)\n",
            of_head("sink", "sinks")
        )
    }
}
