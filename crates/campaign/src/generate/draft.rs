//! Programs that are being written: names, statements with their marks, layouts, element types and expressions.

use crate::dice::Dice;

/// A generated program.
#[derive(Clone, Debug)]
pub struct Case {
    /// The text, with its marks.
    pub text: String,
    /// The architecture's name.
    pub arch: &'static str,
    /// Name of the generator that made it.
    pub family: &'static str,
}

/// A program that is being written.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) sizes: Vec<(String, i64)>,
    pub(super) params: Vec<String>,
    pub(super) body: Vec<String>,
    pub(super) depth: usize,
    pub(super) names: usize,
}

impl Draft {
    /// A name that nothing has yet.
    pub(super) fn name(&mut self, stem: &str) -> String {
        self.names += 1;
        format!("{stem}{}_", self.names)
    }

    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        self.body.push(format!("{}{}", "    ".repeat(self.depth + 1), text.as_ref()));
    }

    pub(super) fn open(&mut self, text: impl AsRef<str>) {
        self.line(format!("{} {{", text.as_ref()));
        self.depth += 1;
    }

    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// A run-time size.
    pub(super) fn size(&mut self, stem: &str, value: i64) -> String {
        let name = self.name(stem);
        self.sizes.push((name.clone(), value));
        name
    }

    /// A synchronising statement with its mark. A needed one is sometimes written twice: then neither is.
    /// (Not `commit_group`: a group more is one that a wait counts.)
    pub(super) fn sync(&mut self, dice: &mut Dice, statement: &str, needed_for: &[&str]) {
        if dice.once_in(12) {
            self.line(format!("{statement} // redundant"));
            self.line(format!("{statement} // redundant"));
        } else {
            self.line(format!("{statement} // needed for {}", needed_for.join(" ")));
        }
    }

    pub(super) fn text(&self, grid: &str, threads: i64, cluster: &[i64]) -> String {
        let mut text = String::new();
        if !self.sizes.is_empty() {
            let all: Vec<String> =
                self.sizes.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            text += &format!("size {}\n", all.join(", "));
        }
        let extents: Vec<String> = cluster.iter().map(i64::to_string).collect();
        let cluster = match cluster {
            [] | [1] => String::new(),
            _ => format!(" cluster({})", extents.join(", ")),
        };
        text += &format!("kernel f({})\n", self.params.join(", "));
        text += &format!("    grid({grid}) threads({threads}){cluster}\n{{\n{}\n}}\n", self.body.join("\n"));
        text
    }
}

/// A layout in which each warp holds rows of an `m`×`n` tile: `m` is a multiple of the threads.
pub(super) fn rows_layout(dice: &mut Dice, threads: i64, m: i64, n: i64) -> String {
    let per = m / threads;
    match (per, dice.once_in(2)) {
        (1, _) => format!("({threads}, {n}) : (1, {m})"),
        // A warp's rows are neighbours either way.
        (_, true) => format!("({threads}, ({per}, {n})) : ({per}, (1, {m}))"),
        (_, false) => {
            let warps = threads / 32;
            format!("((32, {warps}), ({per}, {n})) : ((1, {}), (32, {m}))", 32 * per)
        }
    }
}

/// A layout in which each warp holds columns: `n` is a multiple of the warps, `m` of 32.
pub(super) fn columns_layout(threads: i64, m: i64, n: i64) -> String {
    let warps = threads / 32;
    let (per, rows) = (n / warps, m / 32);
    format!("((32, {warps}), ({rows}, {per})) : ((1, {}), (32, {m}))", m * per)
}

/// The integer types.
const INTEGERS: [&str; 14] =
    ["i8", "u8", "i32", "u32", "i4", "u4", "i2", "u2", "i1", "u1", "i16", "u16", "i64", "u64"];

/// The bits of an element.
pub(super) fn bits(dtype: &str) -> i64 {
    match dtype {
        "f64" | "i64" | "u64" => 64,
        "f32" | "i32" | "u32" => 32,
        "f16" | "bf16" | "i16" | "u16" => 16,
        "e4m3" | "e5m2" | "e3m2" | "e2m3" | "ue8m0" | "ue4m3" | "i8" | "u8" => 8,
        "e2m1" | "i4" | "u4" => 4,
        "i2" | "u2" => 2,
        _ => 1,
    }
}

pub(super) fn is_float(dtype: &str) -> bool {
    !INTEGERS.contains(&dtype)
}

/// Any type, floats and wide ones more often.
pub(super) fn dtype(dice: &mut Dice) -> &'static str {
    let common = ["f32", "f16", "f32", "f16", "bf16", "i8", "i32", "u8", "e4m3", "e5m2"];
    match dice.below(16) {
        0..=1 => dice.pick(&INTEGERS),
        2..=3 => {
            dice.pick(&["f64", "f64", "i64", "u64", "i16", "u16", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3"])
        }
        _ => dice.pick(&common),
    }
}

/// An elementwise expression over operands of a float type: of 16-bit ones perhaps in packed arithmetic, and of `f64` without what is of fewer bits
/// alone.
pub(super) fn floats(dice: &mut Dice, operands: &[String], dtype: &str, depth: usize) -> String {
    let text = expression(dice, operands, depth);
    match dtype {
        "f64" => text.replace("fdividef(", "min("),
        // An expression of literals alone has no type to be computed in.
        "f16" | "bf16" if dice.once_in(4) => format!("{dtype}x2({} + {text})", operands[0]),
        _ => text,
    }
}

/// An elementwise expression over operands of one float type of at most 32 bits.
pub(super) fn expression(dice: &mut Dice, operands: &[String], depth: usize) -> String {
    if depth == 0 || dice.once_in(6) {
        return match dice.below(8) {
            0 => format!("{}.{}", dice.below(4), dice.pick(&[0, 5, 25, 125])),
            _ => dice.pick(operands),
        };
    }
    let inner = |dice: &mut Dice| expression(dice, operands, depth - 1);
    match dice.below(18) {
        0..=2 => format!("({} + {})", inner(dice), inner(dice)),
        3..=4 => format!("({} - {})", inner(dice), inner(dice)),
        5..=6 => format!("{} * {}", factor(dice, operands, depth), factor(dice, operands, depth)),
        7 => format!("min({}, {})", inner(dice), inner(dice)),
        8 => format!("max({}, {})", inner(dice), inner(dice)),
        9 => format!("{} / (abs({}) + 0.5)", factor(dice, operands, depth), inner(dice)),
        10 => format!("abs({})", inner(dice)),
        11 => format!("(-{})", factor(dice, operands, depth)),
        12..=13 => {
            let c = condition(dice, operands, depth);
            format!("where({c}, {}, {})", inner(dice), inner(dice))
        }
        14 => format!("float({})", integer(dice, depth)),
        15 => format!("fdividef({}, abs({}) + 0.5)", inner(dice), inner(dice)),
        _ => {
            let x = inner(dice);
            match dice.below(12) {
                0 => format!("exp(min({x}, 2.0))"),
                1 => format!("log(abs({x}) + 0.25)"),
                2 => format!("sqrt(abs({x}))"),
                3 => format!("rsqrt(abs({x}) + 0.5)"),
                4 => format!("exp2(min({x}, 2.0))"),
                5 => format!("log2(abs({x}) + 0.25)"),
                6 => format!("sin({x})"),
                7 => format!("cos({x})"),
                8 => format!("erf({x})"),
                9 => format!("{}({x})", dice.pick(&["floor", "ceil", "round"])),
                _ => format!("tanh({x})"),
            }
        }
    }
}

/// A condition over the same operands and over coordinates.
fn condition(dice: &mut Dice, operands: &[String], depth: usize) -> String {
    let sign = dice.pick(&["==", "!=", "<", "<=", ">", ">="]);
    let deeper = depth.saturating_sub(1);
    match dice.below(6) {
        0 => format!("{} {sign} {}", expression(dice, operands, deeper), expression(dice, operands, deeper)),
        1 if depth > 1 => {
            let [a, b] = [0, 1].map(|_| condition(dice, operands, deeper));
            format!("({a}) {} not ({b})", dice.pick(&["and", "or"]))
        }
        _ => format!("{} {sign} {}", integer(dice, deeper), integer(dice, deeper)),
    }
}

/// An integer of an element: of its coordinate.
fn integer(dice: &mut Dice, depth: usize) -> String {
    if depth == 0 {
        // No block's index: blocks of a cluster write the same tile where they make the same of it.
        return match dice.below(4) {
            0 => dice.range(-3, 40).to_string(),
            _ => "index(0)".to_string(),
        };
    }
    let x = integer(dice, depth - 1);
    let x = if x.contains(' ') { format!("({x})") } else { x };
    let y = integer(dice, 0);
    match dice.below(6) {
        0 => format!("({x} {} {y})", dice.pick(&["+", "-", "*"])),
        1 => format!("({x} {} {})", dice.pick(&["/", "%"]), dice.pick(&["2", "3", "-5", "8"])),
        2 => format!("({x} {} {y})", dice.pick(&["&", "|", "^"])),
        3 => format!("({x} {} {})", dice.pick(&["<<", ">>"]), dice.range(0, 33)),
        4 => format!("{}({x}, {y})", dice.pick(&["min", "max", "mulhi"])),
        _ => format!("int(bitcast({x} * 0x9e3779b9 + index(0), u32) >> {})", dice.range(1, 32)),
    }
}

fn factor(dice: &mut Dice, operands: &[String], depth: usize) -> String {
    let text = expression(dice, operands, depth - 1);
    if text.contains(' ') { format!("({text})") } else { text }
}
