//! Elementwise expressions of integers of 32 and 64 bits, and casts from narrower ones.

use super::draft::{bits, is_float};
use super::flow::{Flow, Value};
use crate::dice::Dice;

/// An expression over operands of one integer type of 32 or 64 bits.
fn expression(dice: &mut Dice, operands: &[String], dtype: &str, depth: usize) -> String {
    if depth == 0 || dice.once_in(6) {
        return match dice.below(8) {
            0 => dice.pick(&["0", "1", "3", "255", "0x7fffffff"]).to_string(),
            1 => "int(index(0))".to_string(),
            _ => dice.pick(operands),
        };
    }
    let inner = |dice: &mut Dice| expression(dice, operands, dtype, depth - 1);
    match dice.below(16) {
        0..=2 => format!("({} + {})", inner(dice), inner(dice)),
        3 => format!("({} - {})", inner(dice), inner(dice)),
        4..=5 => format!("({} * {})", inner(dice), inner(dice)),
        // No divisor is 0.
        6 => format!("({} {} ({} | 1))", inner(dice), dice.pick(&["/", "%"]), dice.pick(operands)),
        7 => format!("({} {} {})", inner(dice), dice.pick(&["/", "%"]), dice.pick(&["1", "3", "8", "1000"])),
        8 => format!("({} {} {})", inner(dice), dice.pick(&["&", "|", "^"]), inner(dice)),
        9 => format!("({} {} {})", inner(dice), dice.pick(&["<<", ">>"]), dice.range(0, 65)),
        10 => format!("({} {} ({} & 31))", inner(dice), dice.pick(&["<<", ">>"]), inner(dice)),
        11 => format!("{}({}, {})", dice.pick(&["min", "max", "mulhi"]), inner(dice), dice.pick(operands)),
        12 => format!("abs({})", dice.pick(operands)),
        13 => {
            let other = match dtype {
                "i64" => "u64",
                "u64" => "i64",
                "i32" => "u32",
                _ => "i32",
            };
            format!("bitcast(bitcast({}, {other}), {dtype})", dice.pick(operands))
        }
        14 => {
            let bits = if dtype.ends_with("64") { "b64" } else { "b32" };
            let (name, sign) = dice.pick(&[("and", "&"), ("or", "|"), ("xor", "^")]);
            let [a, b] = [0, 1].map(|_| dice.pick(operands));
            format!("asm(\"{name}.{bits} $0, $1, $2;\", {a}, {b}, means = {a} {sign} {b})")
        }
        _ => {
            let sign = dice.pick(&["==", "!=", "<", "<=", ">", ">="]);
            let [a, b] = [0, 1].map(|_| dice.pick(operands));
            format!("where({a} {sign} {b} + 1, {}, {})", inner(dice), inner(dice))
        }
    }
}

impl Flow<'_> {
    /// An elementwise statement on integers; narrow ones are cast first, and perhaps back.
    pub(super) fn integers(&mut self, value: Value) -> Value {
        if is_float(value.dtype) {
            return value;
        }
        let narrow = bits(value.dtype) < 32;
        let to = self.dice.pick(&["i32", "u32", "i64", "u64"]);
        let wide = if narrow { self.cast(value.clone(), to) } else { value.clone() };
        let mut operands = vec![wide.name.clone(), wide.name.clone()];
        if self.dice.once_in(2) {
            operands.push(self.load_as(wide.dtype).name);
        }
        if self.dice.once_in(3) {
            let name = self.draft.name("k");
            let default = self.dice.pick(&["3", "77", "2000000000"]);
            self.draft.params.push(format!("{name}: {} = {default}", wide.dtype));
            operands.push(name);
        }
        let depth = self.dice.range(1, 3) as usize;
        let text = expression(self.dice, &operands, wide.dtype, depth);
        let name = self.draft.name("v");
        self.draft.line(format!("{name} = {} ^ {text}", wide.name));
        let result = Value { name, dtype: wide.dtype };
        if narrow && self.dice.once_in(2) { self.cast(result, value.dtype) } else { result }
    }
}
