//! One tile through a random sequence of statements: registers, shared memory, global memory, every type.

use super::draft::{Case, Draft, bits, columns_layout, dtype, floats, is_float, rows_layout};
use crate::dice::Dice;

/// A register tensor of the flow's shape.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) dtype: &'static str,
}

pub(super) struct Flow<'a> {
    pub(super) dice: &'a mut Dice,
    pub(super) draft: Draft,
    pub(super) arch: &'static str,
    pub(super) threads: i64,
    pub(super) m: i64,
    pub(super) n: i64,
    /// Rows of the buffers, and its name.
    rows: (String, i64),
    /// Scalar operands.
    scalars: Vec<String>,
    /// Products: they make it costly.
    pub(super) heavy: usize,
    /// Position in the body behind the last bulk store, and the view it writes.
    last_bulk: Option<(usize, String)>,
}

/// A program of one tile a block.
pub fn flow(dice: &mut Dice) -> Case {
    let warps = dice.pick(&[2i64, 2, 2, 4, 4, 8, 3, 1]);
    let threads = 32 * warps;
    let m = threads * if warps <= 2 { dice.range(1, 2) } else { 1 };
    let n = warps * dice.pick(&[1i64, 2, 4, 8]);
    let n = if n * m / threads > 64 { warps.max(8) } else { n };
    let n = (n + warps - 1) / warps * warps;
    let blocks = dice.range(1, 3);
    let tail = if dice.once_in(3) { dice.range(1, m - 1) } else { 0 };
    let arch = dice.pick(&["sm_80", "sm_90a", "sm_90a", "sm_89", "sm_120a"]);
    let mut draft = Draft::default();
    let value = blocks * m - tail;
    let rows = if dice.once_in(3) { value.to_string() } else { draft.size("m", value) };
    let mut flow = Flow {
        dice,
        draft,
        arch,
        threads,
        m,
        n,
        rows: (rows, value),
        scalars: Vec::new(),
        heavy: 0,
        last_bulk: None,
    };
    flow.write();
    let text = flow.draft.text(&blocks.to_string(), threads, &[1]);
    Case { text, arch, family: "flow" }
}

impl Flow<'_> {
    fn write(&mut self) {
        if self.arch == "sm_90a" && self.dice.once_in(6) {
            self.draft.line("wait_dependencies()");
        }
        if self.dice.once_in(3) {
            let name = self.draft.name("alpha");
            let default = self.dice.pick(&["0.5", "-1.25", "2.0"]);
            self.draft.params.push(format!("{name}: f32 = {default}"));
            self.scalars.push(name);
        }
        let mut value = self.load();
        for _ in 0..self.dice.range(1, 6) {
            value = self.step(value);
            if self.dice.once_in(6) {
                self.store(&value.clone());
            }
        }
        self.store(&value);
        if self.dice.once_in(8) {
            self.draft.line("syncthreads() // redundant");
        }
        self.mark_last_store();
    }

    pub(super) fn shape(&self) -> String {
        format!("[{}, {}]", self.m, self.n)
    }

    /// A new register tensor.
    pub(super) fn tensor(&mut self, stem: &str, dtype: &str, layout: Option<&str>) -> String {
        let name = self.draft.name(stem);
        let pinned = layout.map_or(String::new(), |l| format!(", layout = {l}"));
        let shape = self.shape();
        self.draft.line(format!("{name} = register_tensor({dtype}, {shape}{pinned})"));
        name
    }

    /// A parameter of this type and a view of this block's tile, or of as many tiles beside each other.
    fn view(&mut self, dtype: &str, tiles: Option<i64>) -> String {
        self.view_of(dtype, tiles).0
    }

    /// The same, and whether the buffer is row-major.
    fn view_of(&mut self, dtype: &str, tiles: Option<i64>) -> (String, bool) {
        let (param, view) = (self.draft.name("x"), self.draft.name("gx"));
        let (m, n) = (self.m, self.n);
        let (rows, columns) = (self.rows.0.clone(), n * tiles.unwrap_or(1));
        let strides = match self.dice.below(5) {
            0 => format!(" : (1, {rows})"),
            1 if bits(dtype) >= 8 => format!(" : ({}, 1)", columns + self.dice.pick(&[1, 8, 16])),
            _ => String::new(),
        };
        self.draft.params.push(format!("{param}: {dtype}[{rows}, {columns}]{strides}"));
        let modes = match tiles {
            Some(tiles) => format!("({m}, {n}, {tiles}) : (e0, e1, {n} * e1)"),
            None => format!("({m}, {n}) : (e0, e1)"),
        };
        self.draft.line(format!("{view} = global_view({param}[block.x * {m} :, :], {modes})"));
        (view, strides.is_empty())
    }

    fn load(&mut self) -> Value {
        let dtype = dtype(self.dice);
        self.load_as(dtype)
    }

    pub(super) fn load_as(&mut self, dtype: &'static str) -> Value {
        if bits(dtype) >= 8 && self.dice.once_in(8) {
            return self.load_rows(dtype);
        }
        if self.dice.once_in(10) {
            return self.load_of_array(dtype);
        }
        let view = self.view(dtype, None);
        let name = self.tensor("r", dtype, None);
        let outside = match dtype {
            "f64" | "f32" | "f16" | "bf16" => {
                self.dice.pick(&["", "", ", outside = 2.5", ", outside = -inf"])
            }
            "e4m3" | "e5m2" => self.dice.pick(&["", "", ", outside = -1.5"]),
            _ if dtype.starts_with('i') => self.dice.pick(&["", "", ", outside = -1"]),
            _ => self.dice.pick(&["", "", ", outside = 1"]),
        };
        self.draft.line(format!("copy({view}, {name}{outside})"));
        Value { name, dtype }
    }

    /// Rows of a buffer that a register tensor names, some of them outside.
    fn load_rows(&mut self, dtype: &'static str) -> Value {
        let [ids, rows, gi, view, id] = ["i", "x", "gi", "gx", "id"].map(|name| self.draft.name(name));
        let (m, n, all) = (self.m, self.n, self.rows.0.clone());
        self.draft.params.push(format!("{ids}: i32[{m}]"));
        self.draft.params.push(format!("{rows}: {dtype}[{all}, {n}]"));
        self.draft.line(format!("{gi} = global_view({ids}, ({m}) : (e0))"));
        self.draft.line(format!("{view} = global_view({rows}, ({all}, {n}) : (e0, e1))"));
        self.draft.line(format!("{id} = register_tensor(i32, [{m}])"));
        self.draft.line(format!("copy({gi}, {id})"));
        let name = self.tensor("r", dtype, None);
        self.draft.line(format!("copy({view}[{id}, :], {name})"));
        Value { name, dtype }
    }

    /// A tile of one tensor of an array, where a view begins or a loop comes to; it may be one that there is not.
    fn load_of_array(&mut self, dtype: &'static str) -> Value {
        let [array, view, i] = ["x", "gx", "i"].map(|name| self.draft.name(name));
        let (m, n, all) = (self.m, self.n, self.rows.0.clone());
        let count = self.dice.range(1, 4);
        let name = self.tensor("r", dtype, None);
        self.draft.params.push(format!("{array}: {dtype}[{count}][{all}, {n}]"));
        let which = self.dice.range(0, count);
        if self.dice.once_in(2) {
            let from = format!("{array}[{which} :, block.x * {m} :, :]");
            self.draft.line(format!("{view} = global_view({from}, ({m}, {n}) : (e1, e2))"));
            self.draft.line(format!("copy({view}, {name})"));
        } else {
            let from = format!("{array}[:, block.x * {m} :, :]");
            self.draft.line(format!("{view} = global_view({from}, ({m}, {n}, {count}) : (e1, e2, e0))"));
            self.draft.open(format!("for {i} in {which}..{}", which + 1));
            self.draft.line(format!("copy({view}[:, :, {i}], {name})"));
            self.draft.close();
        }
        Value { name, dtype }
    }

    fn store(&mut self, value: &Value) {
        let mut value = value.clone();
        if bits(value.dtype) < 8 {
            value = self.cast(value, "i8");
        }
        let view = self.view(value.dtype, None);
        let bulk = self.arch == "sm_90a" && (self.n * bits(value.dtype)) % 128 == 0 && self.dice.once_in(3);
        if bulk {
            self.store_in_bulk(&value, &view);
        } else {
            let how = match value.dtype {
                "f32" | "i32" | "f64" | "i64" | "u64" => {
                    self.dice.pick(&["", "", "", ", add", ", max", ", min"])
                }
                "f16" | "bf16" => self.dice.pick(&["", "", "", ", add"]),
                _ => "",
            };
            self.draft.line(format!("copy({}, {view}{how})", value.name));
        }
    }

    /// Through shared memory, by an asynchronous copy that may add.
    fn store_in_bulk(&mut self, value: &Value, view: &str) {
        let shared = self.shared(value.dtype);
        let adds = ["f32", "f16", "bf16", "i32"].contains(&value.dtype) && self.dice.once_in(3);
        self.draft.line(format!("copy({}, {shared})", value.name));
        // Every warp writes a part; one thread starts the copy, or all do, each what others wrote.
        self.draft.line("syncthreads()");
        self.draft.line(format!("copy.async({shared}, {view}{})", if adds { ", add" } else { "" }));
        self.draft.line("commit_group()");
        self.draft.line("wait_group(0)");
        self.last_bulk = Some((self.draft.body.len(), view.to_string()));
    }

    /// Marks the commit and the wait of the last bulk store, if no others come behind it that would do as well.
    fn mark_last_store(&mut self) {
        let Some((end, view)) = self.last_bulk.take() else { return };
        let others = |line: &String| {
            line.trim_start().starts_with("wait_group") || line.trim_start().starts_with("commit_")
        };
        if self.draft.body[end..].iter().any(others) {
            return;
        }
        for line in &mut self.draft.body[end - 2..end] {
            line.push_str(&format!(" // needed for {view}"));
        }
    }

    pub(super) fn cast(&mut self, value: Value, to: &'static str) -> Value {
        let name = self.draft.name("q");
        self.draft.line(format!("{name} = cast({}, {to})", value.name));
        Value { name, dtype: to }
    }

    /// The value in a floating-point type.
    pub(super) fn float(&mut self, value: Value) -> Value {
        if is_float(value.dtype) {
            return value;
        }
        let to = self.dice.pick(&["f32", "f32", "f16", "bf16"]);
        self.cast(value, to)
    }

    fn shared(&mut self, dtype: &str) -> String {
        self.shared_of(dtype).0
    }

    /// A shared tensor, and whether its layout is row-major whatever the compiler would choose.
    fn shared_of(&mut self, dtype: &str) -> (String, bool) {
        let name = self.draft.name("s");
        let (m, n) = (self.m, self.n);
        let layout = match self.dice.below(6) {
            0 => format!(", layout = ({m}, {n}) : ({n}, 1)"),
            1 if bits(dtype) >= 8 => format!(", layout = ({m}, {n}) : (1, {m})"),
            2 if bits(dtype) >= 8 => {
                format!(", layout = ({m}, {n}) : ({}, 1)", n + self.dice.pick(&[1, 4, 8]))
            }
            _ => String::new(),
        };
        let shape = self.shape();
        self.draft.line(format!("{name} = shared_tensor({dtype}, {shape}{layout})"));
        (name, layout.ends_with(&format!("({n}, 1)")))
    }

    fn step(&mut self, value: Value) -> Value {
        match self.dice.below(29) {
            0..=2 => self.elementwise(value),
            3 => {
                let to = dtype(self.dice);
                self.cast(value, to)
            }
            4..=6 => self.trip(value),
            7 => self.transposed_trip(value),
            8 => self.reduce(value),
            9 => self.gather(value),
            10 => self.shapes(value),
            11 => self.halves(value),
            12..=13 => self.through_global(value),
            14 => self.rounds(value),
            15 => self.product(value),
            16..=17 => self.asynchronous(value),
            18 => self.parts(value),
            19 => self.scan(value),
            20 => self.arg(value),
            21 => self.sort(value),
            22 => self.branch(value),
            23 => self.repeated(value),
            24 => self.odd_rows(value),
            25..=26 => self.rows_that_ask(value),
            27 => self.named_integers(value),
            _ => {
                let name = self.draft.name("t");
                self.draft.line(format!("{name} = rearrange({})", value.name));
                Value { name, dtype: value.dtype }
            }
        }
    }

    pub(super) fn elementwise(&mut self, value: Value) -> Value {
        if !is_float(value.dtype) && self.dice.once_in(2) {
            return self.integers(value);
        }
        let value = self.float(value);
        let mut operands = vec![value.name.clone(), value.name.clone()];
        if self.dice.once_in(2) {
            operands.push(self.load_as(value.dtype).name);
        }
        operands.extend(self.scalars.iter().cloned());
        if value.dtype == "f64" && self.dice.once_in(3) {
            let name = self.draft.name("k");
            let default = self.dice.pick(&["0.1", "-3.5", "1e-30"]);
            self.draft.params.push(format!("{name}: f64 = {default}"));
            operands.push(name);
        }
        if self.dice.once_in(6) {
            operands.push("float(block.x + 1)".to_string());
        }
        let depth = self.dice.range(1, 3) as usize;
        let name = self.draft.name("v");
        let mut text = floats(self.dice, &operands, value.dtype, depth);
        if !text.contains(&value.name) {
            text = format!("{} + {text}", value.name);
        }
        self.draft.line(format!("{name} = {text}"));
        Value { name, dtype: value.dtype }
    }

    /// Reads a tile twice, by rows and by columns; `from` is what copies read.
    fn read_twice(&mut self, from: &str, dtype: &'static str) -> Value {
        let read = self.reads(from, dtype);
        self.both(read, dtype)
    }

    /// The two register tensors.
    fn reads(&mut self, from: &str, dtype: &'static str) -> [String; 2] {
        let (t, m, n) = (self.threads, self.m, self.n);
        let by_rows = rows_layout(self.dice, t, m, n);
        let by_columns = columns_layout(t, m, n);
        let (first, second) =
            if self.dice.once_in(2) { (by_rows, by_columns) } else { (by_columns, by_rows) };
        let a = self.tensor("ra", dtype, Some(&first));
        let b = self.tensor("rb", dtype, Some(&second));
        self.draft.line(format!("copy({from}, {a})"));
        self.draft.line(format!("copy({from}, {b})"));
        [a, b]
    }

    /// One of two tensors leaves at once, the other one is the value that goes on.
    fn both(&mut self, [a, b]: [String; 2], dtype: &'static str) -> Value {
        // Both leave, so that what each reads is compared.
        let kept = if self.dice.once_in(2) { a.clone() } else { b.clone() };
        let other = if kept == a { b } else { a };
        let mut left = Value { name: other, dtype };
        if bits(dtype) < 8 {
            left = self.cast(left, "i8");
        }
        let view = self.view(left.dtype, None);
        self.draft.line(format!("copy({}, {view})", left.name));
        let name = self.draft.name("t");
        self.draft.line(format!("{name} = rearrange({kept})"));
        Value { name, dtype }
    }

    /// True if there are several warps, so that marks are certain.
    fn marked(&self) -> bool {
        self.threads > 32
    }

    fn barrier(&mut self, of: &[&str]) {
        if self.marked() {
            self.draft.sync(self.dice, "syncthreads()", of);
        } else {
            self.draft.line("syncthreads()");
        }
    }

    /// Registers, shared memory, registers; sometimes the same memory twice.
    fn trip(&mut self, value: Value) -> Value {
        if bits(value.dtype) < 8 {
            let value = self.cast(value, "u8");
            return self.trip(value);
        }
        let shared = self.shared(value.dtype);
        self.draft.line(format!("copy({}, {shared})", value.name));
        self.barrier(&[&shared]);
        if self.dice.once_in(3) {
            // Other values, behind a barrier of the program's: a rearrangement between might have barriers of its own.
            let next = self.load_as(value.dtype);
            let read = self.reads(&shared, value.dtype);
            self.barrier(&[&shared]);
            self.draft.line(format!("copy({}, {shared})", next.name));
            self.barrier(&[&shared]);
            let again = self.reads(&shared, value.dtype);
            let first = self.both(read, value.dtype);
            let second = self.both(again, value.dtype);
            self.store(&first);
            return second;
        }
        self.read_twice(&shared, value.dtype)
    }

    /// The same, transposed, in layouts of the compiler's.
    fn transposed_trip(&mut self, value: Value) -> Value {
        let value = if bits(value.dtype) < 8 { self.cast(value, "i8") } else { value };
        let shared = self.draft.name("s");
        let (m, n) = (self.m, self.n);
        self.draft.line(format!("{shared} = shared_tensor({}, [{n}, {m}])", value.dtype));
        self.draft.line(format!("copy({}, transpose({shared}))", value.name));
        self.draft.line("syncthreads()");
        let name = self.tensor("r", value.dtype, None);
        self.draft.line(format!("copy(transpose({shared}), {name})"));
        Value { name, dtype: value.dtype }
    }

    /// A vector that a view of stride 0 repeats along one mode, added.
    fn repeated(&mut self, value: Value) -> Value {
        let value = self.float(value);
        let (param, view, sum) = (self.draft.name("x"), self.draft.name("gx"), self.draft.name("v"));
        let (m, n) = (self.m, self.n);
        let (extent, strides) = if self.dice.once_in(2) { (n, "(0, e0)") } else { (m, "(e0, 0)") };
        self.draft.params.push(format!("{param}: {}[{extent}]", value.dtype));
        self.draft.line(format!("{view} = global_view({param}, ({m}, {n}) : {strides})"));
        let name = self.tensor("r", value.dtype, None);
        self.draft.line(format!("copy({view}, {name})"));
        self.draft.line(format!("{sum} = {} + {name}", value.name));
        Value { name: sum, dtype: value.dtype }
    }

    /// Beside the value, rows of a length that threads do not divide: each less its largest element.
    fn odd_rows(&mut self, value: Value) -> Value {
        let (rows, length) = (self.dice.range(1, 4), 2 * self.dice.range(16, 100) + 1);
        let (dtype, op) = (self.dice.pick(&["f32", "f16"]), self.dice.pick(&["max", "min", "sum"]));
        let length = if self.dice.once_in(2) { 8 * (length / 16 * 2 + 1) } else { length };
        let [from, to] = [0, 1].map(|_| {
            let (param, view) = (self.draft.name("x"), self.draft.name("gx"));
            // There are three blocks at most.
            self.draft.params.push(format!("{param}: {dtype}[{}, {length}]", 3 * rows));
            let begin = format!("{param}[block.x * {rows} :, :]");
            self.draft.line(format!("{view} = global_view({begin}, ({rows}, {length}) : (e0, e1))"));
            view
        });
        let names = ["r", "f", "d", "x", "b", "v", "q"].map(|stem| self.draft.name(stem));
        let [row, float, least, expanded, wide, rest, rounded] = &names;
        self.draft.line(format!("{row} = register_tensor({dtype}, [{rows}, {length}])"));
        self.draft.line(format!("copy({from}, {row})"));
        self.draft.line(format!("{float} = cast({row}, f32)"));
        self.draft.line(format!("{least} = reduce({float}, {op}, 1)"));
        self.draft.line(format!("{expanded} = expand({least}, 1)"));
        self.draft.line(format!("{wide} = broadcast({expanded}, [{rows}, {length}])"));
        self.draft.line(format!("{rest} = {float} - {wide}"));
        self.draft.line(format!("{rounded} = cast({rest}, {dtype})"));
        self.draft.line(format!("copy({rounded}, {to})"));
        value
    }

    fn reduce(&mut self, value: Value) -> Value {
        let value =
            if bits(value.dtype) < 32 && !is_float(value.dtype) { self.cast(value, "i32") } else { value };
        let op = self.dice.pick(&["sum", "sum", "max", "min", "product"]);
        let axis = self.dice.below(2);
        if is_float(value.dtype) && bits(value.dtype) >= 16 && self.dice.once_in(2) {
            // Its rows or columns repeat in an expression.
            let (name, of) = (self.draft.name("b"), &value.name);
            let scaled = self.dice.pick(&["", " * 0.5", " + 1.0"]);
            self.draft.line(format!("{name} = {of} * 0.25 - reduce({of}{scaled}, {op}, {axis}, keep)"));
            return Value { name, dtype: value.dtype };
        }
        let (sum, expanded, name) = (self.draft.name("d"), self.draft.name("x"), self.draft.name("b"));
        self.draft.line(format!("{sum} = reduce({}, {op}, {axis})", value.name));
        self.draft.line(format!("{expanded} = expand({sum}, {axis})"));
        let shape = self.shape();
        self.draft.line(format!("{name} = broadcast({expanded}, {shape})"));
        Value { name, dtype: value.dtype }
    }

    /// A scan of any operation and direction, or a recurrence with factors that do not grow.
    fn scan(&mut self, value: Value) -> Value {
        let value =
            if bits(value.dtype) < 32 && !is_float(value.dtype) { self.cast(value, "i32") } else { value };
        let (axis, reverse) = (self.dice.below(2), self.dice.pick(&["", ", reverse"]));
        let name = self.draft.name("c");
        if matches!(value.dtype, "f32" | "f16" | "bf16" | "i32" | "u32") && self.dice.once_in(3) {
            self.combine(&name, &value, axis, reverse);
            return Value { name, dtype: value.dtype };
        }
        if is_float(value.dtype) && self.dice.once_in(2) {
            let factors = self.draft.name("f");
            self.draft.line(format!("{factors} = tanh({})", value.name));
            let before = if self.dice.once_in(2) {
                let first = self.draft.name("d");
                self.draft.line(format!("{first} = reduce({}, max, {axis})", value.name));
                format!(", {first}")
            } else {
                String::new()
            };
            let operands = format!("{factors}, {}", value.name);
            self.draft.line(format!("{name} = scan({operands}, linear, {axis}{before}{reverse})"));
        } else {
            let op = self.dice.pick(&["sum", "max", "min", "product"]);
            self.draft.line(format!("{name} = scan({}, {op}, {axis}{reverse})", value.name));
        }
        Value { name, dtype: value.dtype }
    }

    /// A scan by an associative function, commutative or not, of one tensor or of two.
    fn combine(&mut self, name: &str, value: &Value, axis: usize, reverse: &str) {
        let of = &value.name;
        let alone = ["max(a, b)", "min(b, a)", "where(b > 0, b, a)"];
        let pairs = [
            "where(a > c, a, c), where(a > c, b, d)",
            "max(a, c), max(b, d)",
            "where(d > 0, c, a), where(d > 0, d, b)",
        ];
        if self.dice.once_in(2) {
            let returned = self.dice.pick(&alone);
            let by = format!("fn(a, b) {{ return {returned} }}");
            self.draft.line(format!("{name} = scan({of}, {by}, {axis}{reverse})"));
            return;
        }
        let by = format!("fn(a, b, c, d) {{ return {} }}", self.dice.pick(&pairs));
        let (other, found, most) = (self.draft.name("t"), self.draft.name("d"), self.draft.name("d"));
        self.draft.line(format!("{other} = -{of}"));
        self.draft.line(format!("{name}, {found} = scan(({of}, {other}), {by}, {axis}{reverse})"));
        self.draft.line(format!("{most}, {found}r = reduce(({found}, {name}), {by}, {axis})"));
        self.draft.line(format!("{name} = max({name}, min({found}, expand({most}, {axis})))"));
    }

    /// The coordinate of the largest or the smallest, and one row of what it was found in.
    fn arg(&mut self, value: Value) -> Value {
        let axis = self.dice.below(2);
        let word = self.dice.pick(&["argmax", "argmin"]);
        let (found, at, wide) = (self.draft.name("d"), self.draft.name("i"), self.draft.name("x"));
        let (row, name) = (self.draft.name("p"), self.draft.name("b"));
        self.draft.line(format!("{found}, {at} = {word}({}, {axis})", value.name));
        let shape = self.shape();
        self.draft.line(format!("{wide} = expand({at}, {axis})"));
        self.draft.line(format!("{name} = broadcast({wide}, {shape})"));
        self.store(&Value { name, dtype: "i32" });
        let extent = if axis == 0 { self.m } else { self.n };
        let start = self.dice.range(0, extent - 1);
        let name = self.draft.name("b");
        self.draft.line(format!("{row} = slice({}, {axis}, {start}, 1)", value.name));
        self.draft.line(format!("{name} = broadcast({row}, {shape})"));
        Value { name, dtype: value.dtype }
    }

    /// Sorted along a mode that is a power of two, alone or with what goes along.
    fn sort(&mut self, value: Value) -> Value {
        let Some(axis) = [1i64, 0].into_iter().find(|axis| {
            let extent = if *axis == 0 { self.m } else { self.n };
            extent.count_ones() == 1 && extent <= 64
        }) else {
            return self.elementwise(value);
        };
        let descending = self.dice.pick(&["", ", descending"]);
        let name = self.draft.name("o");
        if self.dice.once_in(2) {
            self.draft.line(format!("{name} = sort({}, {axis}{descending})", value.name));
            return Value { name, dtype: value.dtype };
        }
        let with = self.load_as("i32");
        let second = self.draft.name("o");
        self.draft
            .line(format!("{name}, {second} = sort({}, {}, {axis}{descending})", value.name, with.name));
        self.store(&Value { name: second, dtype: "i32" });
        Value { name, dtype: value.dtype }
    }

    fn gather(&mut self, value: Value) -> Value {
        let index = self.load_as("i32");
        let (name, axis) = (self.draft.name("g"), self.dice.below(2));
        self.draft.line(format!("{name} = gather({}, {}, {axis})", value.name, index.name));
        Value { name, dtype: value.dtype }
    }

    fn shapes(&mut self, value: Value) -> Value {
        let (a, b, c) = (self.draft.name("h"), self.draft.name("h"), self.draft.name("h"));
        let (m, n, of) = (self.m, self.n, value.name);
        match self.dice.below(3) {
            0 => {
                self.draft.line(format!("{a} = transpose({of})"));
                if is_float(value.dtype) {
                    self.draft.line(format!("{b} = {a} * 0.5 + 1.0"));
                } else {
                    self.draft.line(format!("{b} = rearrange({a})"));
                }
                self.draft.line(format!("{c} = transpose({b})"));
            }
            1 => {
                self.draft.line(format!("{a} = reshape({of}, [{}, 2, {n}])", m / 2));
                self.draft.line(format!("{b} = transpose({a}, 0, 1, 2)"));
                self.draft.line(format!("{c} = reshape({b}, [{m}, {n}])"));
            }
            _ => {
                self.draft.line(format!("{a} = expand({of}, 1)"));
                self.draft.line(format!("{b} = broadcast({a}, [{m}, 1, {n}])"));
                self.draft.line(format!("{c} = reshape({b}, [{m}, {n}])"));
            }
        }
        Value { name: c, dtype: value.dtype }
    }

    /// Joins two values and splits them, or stores a slice.
    fn halves(&mut self, value: Value) -> Value {
        if self.dice.once_in(2) {
            let other = self.load_as(value.dtype);
            let (whole, low, high) = (self.draft.name("j"), self.draft.name("l"), self.draft.name("h"));
            self.draft.line(format!("{whole} = join({}, {})", value.name, other.name));
            self.draft.line(format!("{low}, {high} = split({whole})"));
            let name = self.dice.pick(&[low, high]);
            return Value { name, dtype: value.dtype };
        }
        if self.n < 2 || bits(value.dtype) < 8 {
            return value;
        }
        let (part, view, param) = (self.draft.name("p"), self.draft.name("gp"), self.draft.name("y"));
        let (m, half, rows) = (self.m, self.n / 2, self.rows.0.clone());
        let start = self.dice.range(0, self.n - half);
        self.draft.line(format!("{part} = slice({}, 1, {start}, {half})", value.name));
        self.draft.params.push(format!("{param}: {}[{rows}, {half}]", value.dtype));
        self.draft
            .line(format!("{view} = global_view({param}[block.x * {m} :, :], ({m}, {half}) : (e0, e1))"));
        self.draft.line(format!("copy({part}, {view})"));
        value
    }

    /// Through a buffer that the block writes and reads again.
    fn through_global(&mut self, value: Value) -> Value {
        let value = if bits(value.dtype) < 8 { self.cast(value, "u8") } else { value };
        let view = self.view(value.dtype, None);
        self.draft.line(format!("copy({}, {view})", value.name));
        // A block that lies outside of the buffer touches nothing of it; the first always lies inside.
        self.barrier(&[&view]);
        self.read_twice(&view, value.dtype)
    }

    /// A branch over the block's index.
    fn branch(&mut self, value: Value) -> Value {
        let value = self.float(value);
        let dtype = value.dtype;
        let acc = self.tensor("acc", dtype, None);
        self.draft.line(format!("copy({}, {acc})", value.name));
        let condition = self.dice.pick(&[
            "block.x > 0",
            "block.x % 2 == 1",
            "not block.x == 1",
            "block.x < 1 or block.x >= 2",
            "block.x != 0 and block.x <= 1",
        ]);
        self.draft.open(format!("if {condition}"));
        self.side(&acc, dtype);
        self.draft.close();
        if self.dice.once_in(2) {
            self.draft.open("else");
            self.side(&acc, dtype);
            self.draft.close();
        }
        Value { name: acc, dtype }
    }

    /// One side of a branch.
    fn side(&mut self, acc: &str, dtype: &'static str) {
        let scale = self.dice.pick(&["0.5", "0.75", "float(block.x + 1)"]);
        if self.dice.once_in(2) {
            self.draft.line(format!("{acc} = {acc} * {scale} + 1.0"));
            return;
        }
        let shared = self.shared(dtype);
        self.draft.line(format!("copy({acc}, {shared})"));
        // The other side may have none: no mark.
        self.draft.line("syncthreads()");
        let by_columns = self.tensor("rb", dtype, Some(&columns_layout(self.threads, self.m, self.n)));
        self.draft.line(format!("copy({shared}, {by_columns})"));
        let name = self.draft.name("t");
        self.draft.line(format!("{name} = rearrange({by_columns})"));
        self.draft.line(format!("{acc} = {acc} * {scale} + {name}"));
    }

    fn rounds(&mut self, value: Value) -> Value {
        let value = self.float(value);
        let dtype = value.dtype;
        let count = self.dice.range(2, 3);
        let tiles = self.view(dtype, Some(count));
        let acc = self.tensor("acc", dtype, None);
        self.draft.line(format!("copy({}, {acc})", value.name));
        let shared = self.dice.once_in(2).then(|| self.shared(dtype));
        let counter = self.draft.name("i");
        let unrolled = if self.dice.once_in(4) { "unroll " } else { "" };
        self.draft.open(format!("{unrolled}for {counter} in 0..{count}"));
        let mut next = Value { name: self.tensor("r", dtype, None), dtype };
        self.draft.line(format!("copy({tiles}[:, :, {counter}], {})", next.name));
        if let Some(shared) = &shared {
            // The rearrangements of the previous iteration may have barriers.
            self.draft.line("syncthreads()");
            self.draft.line(format!("copy({}, {shared})", next.name));
            if self.marked() {
                self.draft.line(format!("syncthreads() // needed for {shared}"));
            } else {
                self.draft.line("syncthreads()");
            }
            let (t, m, n) = (self.threads, self.m, self.n);
            let (rows, columns) = (rows_layout(self.dice, t, m, n), columns_layout(t, m, n));
            let a = self.tensor("ra", dtype, Some(&rows));
            let b = self.tensor("rb", dtype, Some(&columns));
            self.draft.line(format!("copy({shared}, {a})"));
            self.draft.line(format!("copy({shared}, {b})"));
            let name = self.draft.name("t");
            self.draft.line(format!("{name} = rearrange({a})"));
            let other = self.draft.name("t");
            self.draft.line(format!("{other} = rearrange({b})"));
            next = Value { name: self.draft.name("v"), dtype };
            self.draft.line(format!("{} = {name} * 0.5 + {other}", next.name));
        }
        let scale = self.dice.pick(&["0.5", "0.75", "float(block.x + 1)"]);
        self.draft.line(format!("{acc} = {acc} * {scale} + {}", next.name));
        self.draft.close();
        Value { name: acc, dtype }
    }

    /// A tile by an asynchronous copy, added to the value or instead of it.
    fn asynchronous(&mut self, value: Value) -> Value {
        let dtype = if is_float(value.dtype) { value.dtype } else { dtype(self.dice) };
        let dtype = if bits(dtype) < 8 { "f32" } else { dtype };
        let (view, plain) = self.view_of(dtype, None);
        let (shared, dense) = self.shared_of(dtype);
        let (at_once, later) = (plain && dense && (self.n * bits(dtype)) % 32 == 0, self.draft.name("r"));
        self.draft.line(format!("copy.async({view}, {shared})"));
        self.draft.line(format!("commit_group() // needed for {shared}"));
        self.draft.sync(self.dice, "wait_group(0)", &[&shared]);
        if !at_once {
            // Where the copy went through registers after all, the wait may stand behind the barrier.
            self.draft.line(format!("{later} = register_tensor({dtype}, [{}])", self.n));
        }
        self.barrier(&[&shared]);
        let read = self.read_twice(&shared, dtype);
        if !is_float(dtype) || dtype != value.dtype {
            self.store(&value);
            return read;
        }
        let name = self.draft.name("v");
        self.draft.line(format!("{name} = {} - {}", value.name, read.name));
        Value { name, dtype }
    }

    /// Parts of a register tensor, in an unrolled loop.
    fn parts(&mut self, value: Value) -> Value {
        let value = self.float(value);
        let dtype = value.dtype;
        let tiles = self.view(dtype, Some(2));
        let (parts, counter, name) = (self.draft.name("z"), self.draft.name("i"), self.draft.name("v"));
        let (m, n) = (self.m, self.n);
        self.draft.line(format!("{parts} = register_tensor({dtype}, [{m}, {n}, 2])"));
        self.draft.open(format!("unroll for {counter} in 0..2"));
        self.draft.line(format!("copy({tiles}[:, :, {counter}], {parts}[:, :, {counter}])"));
        self.draft.close();
        self.draft.line(format!("{name} = {} + {parts}[:, :, 1] * {parts}[:, :, 0]", value.name));
        Value { name, dtype }
    }
}
