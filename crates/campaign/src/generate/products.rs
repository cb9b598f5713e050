//! Matrix products of a warp: of the value at hand, or of integers or block-scaled floats from memory.

use super::flow::{Flow, Value};

impl Flow<'_> {
    /// A product of either kind, where the tile has the rows and columns for it.
    pub(super) fn product(&mut self, value: Value) -> Value {
        self.heavy += 1;
        if self.m % 16 != 0 || self.heavy > 2 || self.threads == 96 {
            return self.elementwise(value);
        }
        let integers = self.dice.once_in(3);
        if self.arch == "sm_120a" && self.n % 8 == 0 && self.dice.once_in(2) {
            self.product_of_blocks()
        } else if integers && self.n % 8 == 0 {
            self.product_of_integers()
        } else if self.n % 16 == 0 {
            self.product_of_floats(value)
        } else {
            self.elementwise(value)
        }
    }

    /// A product of the value by a tile from memory; the value may be a sparse factor.
    fn product_of_floats(&mut self, value: Value) -> Value {
        let (m, k) = (self.m, self.n);
        let factors = self.dice.pick(&["f16", "f16", "bf16"]);
        let value = if value.dtype == factors { value } else { self.cast(value, factors) };
        // Large factors would make sums that f16 does not hold.
        let scaled = self.draft.name("v");
        self.draft.line(format!("{scaled} = tanh({})", value.name));
        let (param, view, b, c) =
            (self.draft.name("w"), self.draft.name("gw"), self.draft.name("rw"), self.draft.name("c"));
        // A sparse factor has half the columns of the other.
        let sparse = k <= 64 && self.dice.once_in(4);
        let columns = if sparse { 2 * k } else { k };
        self.draft.params.push(format!("{param}: {factors}[{k}, {columns}]"));
        self.draft.line(format!("{view} = global_view({param}, ({k}, {columns}) : (e0, e1))"));
        self.draft.line(format!("{b} = register_tensor({factors}, [{k}, {columns}])"));
        if self.dice.once_in(2) {
            let shared = self.draft.name("sw");
            self.draft.line(format!("{shared} = shared_tensor({factors}, [{k}, {columns}])"));
            self.draft.line(format!("copy({view}, {shared})"));
            self.draft.line("syncthreads()");
            let ways = [shared.clone(), format!("transpose({shared})")];
            let read = self.dice.pick(&ways[..if sparse { 1 } else { 2 }]);
            self.draft.line(format!("copy({read}, {b})"));
        } else {
            self.draft.line(format!("copy({view}, {b})"));
        }
        let shape = self.shape();
        self.draft.line(format!("{c} = register_tensor(f32, {shape})"));
        self.draft.line(format!("fill({c}, 0.0)"));
        if sparse {
            let (param, view, meta) = (self.draft.name("p"), self.draft.name("gp"), self.draft.name("rp"));
            self.draft.params.push(format!("{param}: u2[{m}, {k}]"));
            self.draft.line(format!("{view} = global_view({param}, ({m}, {k}) : (e0, e1))"));
            self.draft.line(format!("{meta} = register_tensor(u2, [{m}, {k}])"));
            self.draft.line(format!("copy({view}, {meta})"));
            self.draft.line(format!("gemm({c}, {scaled}, {b}, {meta})"));
        } else {
            self.draft.line(format!("gemm({c}, {scaled}, {b})"));
        }
        Value { name: c, dtype: "f32" }
    }

    /// A product of integers of at most 8 bits from memory, with as many columns of the factors as one or two instructions take.
    fn product_of_integers(&mut self) -> Value {
        let (m, n) = (self.m, self.n);
        let (factors, k) = self.dice.pick(&[
            ("i8", 32),
            ("u8", 16),
            ("i4", 64),
            ("i4", 32),
            ("u4", 64),
            ("u1", 128),
            ("u1", 256),
        ]);
        let tail = if self.dice.once_in(3) { self.dice.range(1, k - 1) } else { 0 };
        let tiles = [m, n].map(|rows| self.operand(factors, [rows, k], tail));
        let (c, shape) = (self.draft.name("c"), self.shape());
        self.draft.line(format!("{c} = register_tensor(i32, {shape})"));
        self.draft.line(format!("fill({c}, {})", self.dice.range(-3, 3)));
        self.draft.line(format!("gemm({c}, {}, {})", tiles[0], tiles[1]));
        Value { name: c, dtype: "i32" }
    }

    /// A product of floats with scales of blocks from memory, of a step or two of the instruction.
    fn product_of_blocks(&mut self) -> Value {
        let (m, n) = (self.m, self.n);
        let (factors, scale, block, k) = self.dice.pick(&[
            ("e4m3", "ue8m0", 32, 32),
            ("e5m2", "ue8m0", 32, 64),
            ("e3m2", "ue8m0", 32, 32),
            ("e2m3", "ue8m0", 32, 64),
            ("e2m1", "ue8m0", 32, 64),
            ("e2m1", "ue8m0", 16, 64),
            ("e2m1", "ue4m3", 16, 128),
        ]);
        let tail = if self.dice.once_in(3) { self.dice.range(1, k - 1) } else { 0 };
        // Floats in a byte each are multiplied by those of any other such type.
        let other = match factors {
            "e2m1" => factors,
            _ => self.dice.pick(&["e4m3", "e5m2", "e3m2", "e2m3"]),
        };
        let tiles = [(m, factors), (n, other)].map(|(rows, dtype)| self.operand(dtype, [rows, k], tail));
        let scales = [m, n].map(|rows| self.operand(scale, [rows, k / block], 0));
        let (c, shape) = (self.draft.name("c"), self.shape());
        self.draft.line(format!("{c} = register_tensor(f32, {shape})"));
        self.draft.line(format!("fill({c}, 0.0)"));
        let ([a, b], [of_a, of_b]) = (tiles, scales);
        self.draft.line(format!("gemm({c}, {a}, {b}, scales = ({of_a}, {of_b}))"));
        Value { name: c, dtype: "f32" }
    }

    /// A tile in registers from memory, whose tensor is `tail` columns narrower; perhaps by shared memory.
    fn operand(&mut self, dtype: &str, [rows, columns]: [i64; 2], tail: i64) -> String {
        let (param, view, tile) = (self.draft.name("w"), self.draft.name("gw"), self.draft.name("rw"));
        self.draft.params.push(format!("{param}: {dtype}[{rows}, {}]", columns - tail));
        self.draft.line(format!("{view} = global_view({param}, ({rows}, {columns}) : (e0, e1))"));
        self.draft.line(format!("{tile} = register_tensor({dtype}, [{rows}, {columns}])"));
        if self.dice.once_in(2) {
            let shared = self.draft.name("sw");
            self.draft.line(format!("{shared} = shared_tensor({dtype}, [{rows}, {columns}])"));
            self.draft.line(format!("copy({view}, {shared})"));
            self.draft.line("syncthreads()");
            self.draft.line(format!("copy({shared}, {tile})"));
        } else {
            self.draft.line(format!("copy({view}, {tile})"));
        }
        tile
    }
}
