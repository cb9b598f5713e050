//! Remedies that name what to write: for shapes that differ, for products that do not fit, and for operands in another memory.

use super::checker::{Checker, shape_text, static_shape};
use super::operands::{Operand, extent_of};
use crate::program::{Program, Stmt, StmtKind, TensorId, TensorKind};

/// The rule of the operands of products.
pub(super) const PRODUCT: &str =
    "shapes are c: [M, N], a: [M, K], b: [N, K]; the right factor is stored N by K";
/// The most elements that are added to a row of a shared tensor so that its columns lie in several banks.
const MAX_PADDING: i64 = 16;

/// True if modes of extent 1 that repeat make both shapes one.
fn repeats(a: &[i64], b: &[i64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x == y || *x == 1 || *y == 1)
}

/// A shape with one more mode, of extent 1.
fn expanded(shape: &[i64], axis: usize) -> Vec<i64> {
    let mut shape = shape.to_vec();
    shape.insert(axis, 1);
    shape
}

/// The statement that gives a tensor its value, the first in the text.
fn definition(body: &[Stmt], id: TensorId) -> Option<&StmtKind> {
    body.iter().find_map(|stmt| match stmt.kind.assigned().contains(&id) {
        true => Some(&stmt.kind),
        false => definition(stmt.kind.body(), id),
    })
}

/// The mode that a reduction took away to make this tensor, whatever was computed of it since.
fn reduced_mode(program: &Program, id: TensorId) -> Option<usize> {
    let mut id = id;
    // Each step leads to an earlier definition, unless a tensor is assigned to in terms of itself.
    for _ in 0..16 {
        match definition(&program.body, id)? {
            StmtKind::Reduce { axis, .. } => return Some(*axis as usize),
            StmtKind::Cast { src, .. } => id = *src,
            StmtKind::Elementwise { expr, .. } => {
                let mut of = expr.tensors();
                of.sort_unstable();
                of.dedup();
                let [only] = of[..] else { return None };
                id = only;
            }
            _ => return None,
        }
    }
    None
}

impl Checker<'_> {
    /// Remedy for operands of an expression of which some lack a mode: `expand` where the mode is missing.
    pub(super) fn expand_help(&self, operands: &[(TensorId, Vec<i64>)]) -> Option<String> {
        let largest = operands.iter().max_by_key(|(_, shape)| shape.len())?;
        let full = &largest.1;
        let missing: Vec<_> = operands.iter().filter(|(_, shape)| shape.len() < full.len()).collect();
        if missing.is_empty() {
            return self.other_help(operands);
        }
        let mut written = Vec::new();
        for (id, shape) in &missing {
            if shape.len() + 1 != full.len() {
                return None;
            }
            let name = self.name(*id);
            let mut axes: Vec<usize> =
                (0..=shape.len()).filter(|axis| repeats(&expanded(shape, *axis), full)).collect();
            if let Some(axis) = reduced_mode(self.program, *id).filter(|axis| axes.contains(axis)) {
                axes = vec![axis];
            }
            written.push(match axes[..] {
                [axis] => format!("`expand({name}, {axis})` for `{name}`"),
                [first, second] => format!(
                    "for `{name}` `expand({name}, {first})`, which repeats along mode {first}, or `expand({name}, {second})`, along mode {second}"
                ),
                _ => return None,
            });
        }
        Some(format!(
            "a mode of extent 1 repeats, and `expand` puts one in: write {}",
            written.join(", and ")
        ))
    }

    /// Remedy for two shapes with as many modes.
    fn other_help(&self, operands: &[(TensorId, Vec<i64>)]) -> Option<String> {
        let [(a, first), (b, second)] = operands else { return None };
        let (a, b) = (self.name(*a), self.name(*b));
        let reversed: Vec<i64> = second.iter().rev().copied().collect();
        if first.len() == 2 && *first == reversed {
            return Some(format!("one is the transpose of the other: write `transpose({b})` for `{b}`"));
        }
        (first.len() == 1).then(|| {
            format!(
                "extents are equal, or 1, which repeats: all pairs of both are `expand({a}, 1)` and `expand({b}, 0)`"
            )
        })
    }

    /// Remedy for a product whose operands do not fit; `transposed`: the factors that stand in a `transpose` as it is.
    pub(super) fn product_help(
        &self,
        word: &str,
        [c, a, b]: [(&str, &[i64]); 3],
        transposed: [bool; 2],
    ) -> String {
        let turned = |(name, _): (&str, &[i64]), turn: bool| match turn {
            false => name.to_string(),
            true => format!("transpose({name})"),
        };
        let fits = |turn_a: bool, turn_b: bool| {
            let at =
                |shape: &[i64], turn: bool| if turn { [shape[1], shape[0]] } else { [shape[0], shape[1]] };
            let ([m, k], [n, l]) = (at(a.1, turn_a), at(b.1, turn_b));
            ([m, n] == [c.1[0], c.1[1]] && k == l).then_some((turn_a, turn_b))
        };
        let turns = [(false, true), (true, false), (true, true)];
        if let Some((turn_a, turn_b)) = turns.into_iter().find_map(|(x, y)| fits(x, y)) {
            let call = format!(
                "{word}({}, {}, {})",
                c.0,
                turned(a, transposed[0] != turn_a),
                turned(b, transposed[1] != turn_b)
            );
            return format!("{PRODUCT}: write `{call}`");
        }
        let clash = |letter: &str, (x, i): ((&str, &[i64]), usize), (y, j): ((&str, &[i64]), usize)| {
            let differ = x.1[i] != y.1[j];
            differ.then(|| format!("{letter} is {} in `{}` and {} in `{}`", x.1[i], x.0, y.1[j], y.0))
        };
        let clashes = [clash("M", (c, 0), (a, 0)), clash("N", (c, 1), (b, 0)), clash("K", (a, 1), (b, 1))];
        format!("{PRODUCT}: {}", clashes.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }

    /// Remedy for a copy between tiles of two shapes.
    pub(super) fn copy_help(
        &self,
        (src, from): (TensorId, &Operand),
        (dst, to): (TensorId, &Operand),
    ) -> String {
        let (name, other) = (self.name(src), self.name(dst));
        let wanted = shape_text(&to.shape);
        let in_registers = from.memory == tilewright_machine::Memory::Register;
        let reversed: Vec<i64> = to.shape.iter().rev().copied().collect();
        if from.shape == reversed {
            return "one is the transpose of the other: write `transpose(…)` around the global or shared one"
                .to_string();
        }
        if let Some(help) = [(src, from, to), (dst, to, from)]
            .into_iter()
            .find_map(|(id, shared, tile)| self.padding_help(id, shared, &tile.shape))
        {
            return help;
        }
        if in_registers && let Some(help) = self.join_help(src, &from.shape, &to.shape) {
            return help;
        }
        let long = |shape: &[i64]| shape.iter().copied().filter(|extent| *extent != 1).collect::<Vec<_>>();
        if long(&from.shape) == long(&to.shape) {
            return match in_registers {
                true => format!(
                    "both sides of a copy have one shape: write `copy(reshape({name}, {wanted}), {other})`"
                ),
                false => {
                    format!("both sides of a copy have one shape: give both {}", shape_text(&from.shape))
                }
            };
        }
        if in_registers && from.shape.len() == to.shape.len() && repeats(&from.shape, &to.shape) {
            return format!(
                "both sides of a copy have one shape: give `{other}` the shape {}, or repeat what `{name}` has: `copy(broadcast({name}, {wanted}), {other})`",
                shape_text(&from.shape)
            );
        }
        "both sides of a copy have one shape".to_string()
    }

    /// Remedy for a shared tensor whose rows were made longer against bank conflicts.
    fn padding_help(&self, id: TensorId, shared: &Operand, tile: &[i64]) -> Option<String> {
        let tensor = self.program.tensor(id);
        let TensorKind::Shared { pinned: None, .. } = &tensor.kind else { return None };
        let [rows, padded] = shared.shape[..] else { return None };
        let [m, n] = *tile else { return None };
        if rows != m || !(1..=MAX_PADDING).contains(&(padded - n)) {
            return None;
        }
        let define = format!("{} = shared_tensor({}, [{m}, {n}]", tensor.name, tensor.dtype);
        Some(format!(
            "the shape is without padding: write `{define})`, whose layout is chosen without bank conflicts; rows of {padded} elements are \
             `{define}, layout = ({m}, {n}) : ({padded}, 1))`"
        ))
    }

    /// Remedy for a `join` that was to put two tensors behind each other.
    fn join_help(&self, src: TensorId, from: &[i64], to: &[i64]) -> Option<String> {
        let StmtKind::Join { .. } = definition(&self.program.body, src)? else { return None };
        let [outer @ .., extent, 2] = from else { return None };
        let [same @ .., both] = to else { return None };
        if outer != same || extent * 2 != *both {
            return None;
        }
        let (name, wanted, last) = (self.name(src), shape_text(to), from.len() - 1);
        let order: Vec<String> = (0..last - 1).chain([last, last - 1]).map(|mode| mode.to_string()).collect();
        Some(format!(
            "`join` makes a new last mode: one behind the other along mode {} they are `reshape(rearrange({name}), {wanted})`, \
             element by element in turn `reshape(transpose(rearrange({name}), {}), {wanted})`",
            last - 1,
            order.join(", ")
        ))
    }

    /// Remedy for an operand in another memory: the register tensor and the copy to it.
    pub(super) fn to_registers_help(&self, id: TensorId, statement: &str) -> String {
        let tensor = self.program.tensor(id);
        let name = tensor.name.as_str();
        let shape: Option<Vec<i64>> = match &tensor.kind {
            TensorKind::View { modes, .. } => {
                modes.iter().map(|mode| extent_of(self.program, mode).ok()).collect()
            }
            kind => Some(static_shape(kind)),
        };
        let Some(shape) = shape.filter(|shape| !shape.contains(&0)) else {
            return "copy it to a register tensor first".to_string();
        };
        let made = self.in_registers_name(name);
        let define = format!("`{made} = register_tensor({}, {})`", tensor.dtype, shape_text(&shape));
        match statement {
            "fill" => format!("fill a register tensor, and copy that: {define}, `copy({made}, {name})`"),
            _ => format!("copy it to a register tensor first: {define}, `copy({name}, {made})`"),
        }
    }

    /// Remedy for a gather from a tensor that is not in registers: a copy reads the rows that the index names.
    pub(super) fn rows_help(
        &self,
        (dst, src): (TensorId, TensorId),
        index: TensorId,
        axis: u32,
    ) -> Option<String> {
        let tensor = self.program.tensor(src);
        let extents: Vec<Option<i64>> = match &tensor.kind {
            TensorKind::View { modes, .. } => {
                modes.iter().map(|mode| extent_of(self.program, mode).ok()).collect()
            }
            TensorKind::Shared { .. } => static_shape(&tensor.kind).into_iter().map(Some).collect(),
            TensorKind::Register { .. } | TensorKind::Tensor { .. } | TensorKind::Part { .. } => return None,
        };
        let [indices] = static_shape(&self.program.tensor(index).kind)[..] else { return None };
        let axis = axis as usize;
        if axis >= extents.len() {
            return None;
        }
        let mode = |(i, extent): (usize, Option<i64>)| if i == axis { Some(indices) } else { extent };
        let shape: Vec<i64> = extents.into_iter().enumerate().map(mode).collect::<Option<_>>()?;
        let entries: Vec<&str> =
            (0..shape.len()).map(|i| if i == axis { self.name(index) } else { ":" }).collect();
        let result = self.program.tensor(dst);
        let made = match result.unnamed.text() {
            None => result.name.clone(),
            Some(_) => self.in_registers_name(&tensor.name),
        };
        Some(format!(
            "a copy reads what an index names in memory: write `{made} = register_tensor({}, {})`, `copy({}[{}], {made})`",
            tensor.dtype,
            shape_text(&shape),
            tensor.name,
            entries.join(", ")
        ))
    }

    /// A name that nothing in the program has, for what a tensor holds in registers: `rx` of `gx`, `ra` of `sa`.
    fn in_registers_name(&self, of: &str) -> String {
        let tables = self.program;
        let taken = |name: &str| {
            tables.tensors.iter().any(|row| row.name == name)
                || tables.symbols.iter().any(|row| row.name == name)
                || tables.params.iter().any(|row| row.name == name)
        };
        let short = of.strip_prefix(['g', 's']).filter(|rest| rest.len() < 3);
        let whole: String = of.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let name = short.map_or(format!("r_{whole}"), |rest| format!("r{rest}"));
        if taken(&name) { format!("r_{whole}") } else { name }
    }
}
