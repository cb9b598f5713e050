//! Control flow around a tile: names of integers, loops that end early or are unrolled by a factor, branches that rows decide.

use super::draft::{columns_layout, rows_layout};
use super::flow::{Flow, Value};

impl Flow<'_> {
    /// The value in a tensor that statements change in place.
    fn changing(&mut self, value: &Value, layout: Option<&str>) -> String {
        let acc = self.tensor("acc", value.dtype, layout);
        self.draft.line(format!("copy({}, {acc})", value.name));
        acc
    }

    /// A branch that rows, or columns, decide: rows that enter it without need stay what they are.
    pub(super) fn rows_that_ask(&mut self, value: Value) -> Value {
        let value = self.float(value);
        let (t, m, n, axis) = (self.threads, self.m, self.n, self.dice.below(2));
        let layout = if axis == 1 { rows_layout(self.dice, t, m, n) } else { columns_layout(t, m, n) };
        let acc = self.changing(&value, Some(&layout));
        let most = self.dice.pick(&["0.25", "0.5", "1.0"]);
        let condition = match self.dice.below(3) {
            0 => format!("{acc} > {most}"),
            1 => format!("reduce({acc} > {most}, max, {axis}, keep)"),
            _ => {
                let asks = self.draft.name("q");
                self.draft.line(format!("{asks} = {acc} > {most}"));
                asks
            }
        };
        self.draft.open(format!("if any({condition}, {axis})"));
        match self.dice.below(4) {
            0 => {
                let cut = self.draft.name("t");
                self.draft.line(format!("{cut} = where({acc} > {most}, {most}, {acc})"));
                self.draft.line(format!("{acc} = {cut}"));
            }
            1 => {
                let counter = self.draft.name("i");
                self.draft.open(format!("for {counter} in 0..block.x + 1"));
                self.draft.line(format!("{acc} = where({acc} > {most}, {most}, {acc})"));
                self.draft.close();
            }
            2 => {
                // What all of the row is, and nothing of it where nothing asks.
                let asks = format!("reduce({acc} > {most}, max, {axis}, keep)");
                self.draft.line(format!("{acc} = where({asks}, {acc} * 0.5, {acc})"));
            }
            _ => {
                self.draft.open("if block.x >= 0");
                self.draft.line(format!("{acc} = where({acc} > {most}, {most}, {acc})"));
                self.draft.close();
            }
        }
        self.draft.close();
        Value { name: acc, dtype: value.dtype }
    }

    /// A `break` in a loop, perhaps in a branch.
    fn ends_early(&mut self, acc: &str, counter: &str, count: &str) {
        match self.dice.below(5) {
            0 => self.draft.line(format!("break if {counter} >= {count} or block.x == 7")),
            1 => {
                self.draft.open(format!("if {counter} == {count}"));
                self.draft.line(format!("{acc} = {acc} + 1.0"));
                self.draft.line("break");
                self.draft.close();
                self.draft.open("else");
                self.draft.line(format!("{acc} = {acc} * 0.5"));
                self.draft.close();
            }
            2 => {
                self.draft.open(format!("if {counter} > 0"));
                self.draft.open(format!("if {counter} % 3 == 2"));
                self.draft.line(format!("{acc} = {acc} - 1.0"));
                self.draft.line(format!("break if {count} > 1"));
                self.draft.close();
                self.draft.close();
                self.draft.line(format!("{acc} = {acc} + 0.5"));
            }
            _ => {}
        }
    }

    /// Names of integers, and loops that use them: with a condition, or unrolled by a factor.
    pub(super) fn named_integers(&mut self, value: Value) -> Value {
        let value = self.float(value);
        let acc = self.changing(&value, None);
        let [count, last, counter] = ["n", "k", "i"].map(|stem| self.draft.name(stem));
        let first =
            self.dice.pick(&["block.x + 1", "max(block.x, 2)", "3 - block.x % 2", "ceil_div(block.x, 2)"]);
        self.draft.line(format!("let {count} = {first}, {last} = {count} * 2 - 1"));
        let head = match self.dice.below(4) {
            0 => format!("for {counter} in 0..{last} while {counter} < {count}"),
            1 => format!("for {counter} in 0..9 while {counter} * {counter} <= {last}"),
            2 => format!("unroll({}) for {counter} in 0..{last}", self.dice.range(1, 4)),
            _ => format!("unroll(2) for {counter} in {count}..{last} + 2"),
        };
        let unrolled = head.starts_with("unroll");
        self.draft.open(head);
        if self.dice.once_in(2) {
            let inner = self.draft.name("k");
            self.draft.line(format!("let {inner} = {counter} + {count}"));
            self.draft.line(format!("{acc} = {acc} * 0.5 + float({inner})"));
        } else {
            self.draft.line(format!("{acc} = {acc} * 0.75 + float({counter} % 3)"));
        }
        if self.dice.once_in(4) {
            // It holds whatever the elements are.
            let most = self.dice.pick(&["0.5", "3.0"]);
            self.draft.line(format!("assert(all({acc} < {most} or not {acc} < {most}), \"true or false\")"));
            self.draft.line(format!("assert({count} >= 0 and {last} < 100, \"small\")"));
        }
        if self.dice.once_in(3) {
            let value = if self.dice.once_in(2) { acc.clone() } else { format!("abs({acc})") };
            self.draft.line(format!("print(\"round\", {value}, {counter} * 2 + {count}, {last} > 3)"));
        }
        if !unrolled {
            self.ends_early(&acc, &counter, &count);
        }
        self.draft.close();
        if self.dice.once_in(4) {
            self.draft.line(format!("print(\"at the end\", {acc})"));
        }
        Value { name: acc, dtype: value.dtype }
    }
}
