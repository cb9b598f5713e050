//! Sizes that the shapes of tensors tell, and what kernels may rely on of them.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_launch::{Arg, Formula, Item, Joined, Op, ParamKind, Recipe, TensorParam};

use crate::error::OpsError;

/// Sizes by name.
pub(crate) type Sizes = BTreeMap<String, i64>;

/// The arguments of a call by name.
pub(crate) type Given<'a, 'b> = &'a dyn Fn(&str) -> Option<Arg<'b>>;

/// The largest multiple that kernels rely on.
const MOST_MULTIPLE: i64 = 256;
/// Bits of the widest access.
const ACCESS_BITS: u32 = 128;

/// An extent or a stride of an operator's tensor, and the value that a tensor has for it.
struct Equation<'a> {
    recipe: &'a Recipe,
    argument: &'a str,
    formula: &'a Formula,
    value: i64,
}

/// The tensor parameters of the programs, each of a name once.
pub(crate) fn tensors(recipes: &[Recipe]) -> impl Iterator<Item = (&Recipe, &str, &TensorParam)> {
    let mut seen = BTreeSet::new();
    let all = recipes.iter().flat_map(|recipe| recipe.params.iter().map(move |param| (recipe, param)));
    all.filter_map(|(recipe, param)| match &param.kind {
        ParamKind::Tensor(tensor) => Some((recipe, param.name.as_str(), tensor)),
        _ => None,
    })
    .filter(move |(_, name, _)| seen.insert((*name).to_string()))
}

/// The tensor with its first two modes as one, where that makes it as one of so many modes, and where it is among those that kernels have so.
pub(crate) fn joined<'a>(names: &[&str], name: &str, arg: &Arg<'a>, modes: usize) -> Option<Joined<'a>> {
    let (_, shape, _) = arg.tensor()?;
    if names.contains(&name) && shape.len() == modes + 1 { arg.joined() } else { None }
}

/// The sizes that arguments tell, beside those that are given.
pub(crate) fn told(
    operator: &str,
    recipes: &[Recipe],
    joinable: &[&str],
    given: &Sizes,
    argument: Given<'_, '_>,
) -> Result<Sizes, OpsError> {
    let mut equations = Vec::new();
    for (recipe, name, tensor) in tensors(recipes) {
        let Some(arg) = argument(name) else { continue };
        let as_joined = joined(joinable, name, &arg, tensor.shape.len());
        let arg = as_joined.as_ref().map_or(arg, Arg::from);
        let Some((_, shape, strides)) = arg.tensor() else { continue };
        // A kernel behind others may have several modes of a tensor as one: its launch folds them.
        let behind = recipes.first().is_some_and(|first| !std::ptr::eq(first, recipe));
        if behind && shape.len() > tensor.shape.len() {
            continue;
        }
        if shape.len() != tensor.shape.len() {
            let (operator, argument, given) = (operator.to_string(), name.to_string(), shape.len());
            return Err(OpsError::Modes { operator, argument, expected: text_of(recipe, tensor), given });
        }
        let extents = tensor.shape.iter().zip(shape);
        // A mode of one element has any stride.
        let strides = tensor.strides.iter().zip(strides).zip(shape).filter(|(_, extent)| **extent > 1);
        let all = extents.chain(strides.map(|(both, _)| both));
        equations.extend(all.map(|(formula, value)| Equation {
            recipe,
            argument: name,
            formula,
            value: *value,
        }));
    }
    let (mut known, mut by): (Sizes, BTreeMap<String, &str>) = (given.clone(), BTreeMap::new());
    let mut before = usize::MAX;
    while before != known.len() {
        before = known.len();
        for equation in &equations {
            if let Some((size, value)) = equation.solved(&known) {
                by.insert(size.clone(), equation.argument);
                known.insert(size, value);
            }
        }
    }
    for equation in &equations {
        if let [Item::Size(size)] = equation.formula.items() {
            let size = &equation.recipe.sizes[*size as usize].name;
            match known.get(size) {
                Some(first) if *first != equation.value => {
                    return Err(OpsError::Clash {
                        operator: operator.to_string(),
                        size: size.clone(),
                        first: *first,
                        by: (*by.get(size).unwrap_or(&"the size that is given")).to_string(),
                        second: equation.value,
                        argument: equation.argument.to_string(),
                    });
                }
                _ => {}
            }
        }
    }
    Ok(known)
}

impl Equation<'_> {
    /// The size that follows, where all but one are known and the formula is linear in it.
    fn solved(&self, known: &Sizes) -> Option<(String, i64)> {
        let sizes = &self.recipe.sizes;
        let mut values: Vec<i64> = Vec::with_capacity(sizes.len());
        let mut unknown = None;
        for (number, size) in (0u32..).zip(sizes) {
            let value = known.get(&size.name).copied();
            if value.is_none() && self.formula.items().contains(&Item::Size(number)) {
                if unknown.is_some() {
                    return None;
                }
                unknown = Some(number as usize);
            }
            values.push(value.unwrap_or(1));
        }
        let unknown = unknown?;
        let mut at = |x: i64| {
            values[unknown] = x;
            self.formula.value(&values)
        };
        let (first, second) = (at(1)?, at(2)?);
        let slope = second.checked_sub(first)?;
        let distance = self.value.checked_sub(first)?;
        if slope == 0 || distance % slope != 0 {
            return None;
        }
        let x = distance / slope + 1;
        // Rounded quotients are steps: their neighbours tell.
        let exact = x >= 1 && at(x)? == self.value && at(x.checked_add(1)?)? != self.value;
        (exact && (x == 1 || at(x - 1)? != self.value)).then(|| (sizes[unknown].name.clone(), x))
    }
}

/// The largest multiples of sizes that kernels are to rely on: those by which rows begin, and contiguous modes end, at 16 bytes. Sizes that count rows are in none.
pub(crate) fn limits(recipes: &[Recipe], is_operand: &dyn Fn(&str) -> bool) -> Sizes {
    let operands: Vec<_> = tensors(recipes).filter(|(_, name, _)| is_operand(name)).collect();
    let contiguous = |tensor: &TensorParam| {
        tensor.strides.iter().rposition(|stride| matches!(stride.items(), [Item::Int(1)]))
    };
    let (mut outer, mut extents): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for (recipe, _, tensor) in &operands {
        for (mode, extent) in tensor.shape.iter().enumerate() {
            let names = named(recipe, extent);
            if Some(mode) != contiguous(tensor) {
                outer.extend(names.clone());
            }
            extents.extend(names);
        }
    }
    let mut limits = Sizes::new();
    let mut limit = |recipe: &Recipe, formula: &Formula, elements: i64, of: &dyn Fn(&str) -> bool| {
        for size in named(recipe, formula).filter(|size| of(size)) {
            let needed = needed(recipe, formula, size, elements);
            let known = limits.entry(size.to_string()).or_insert(1);
            *known = needed.max(*known);
        }
    };
    for (recipe, _, tensor) in &operands {
        let elements = i64::from(ACCESS_BITS / tensor.dtype.bits().clamp(1, ACCESS_BITS));
        let rows = contiguous(tensor);
        if let Some(extent) = rows.and_then(|mode| tensor.shape.get(mode)) {
            // A vector of a number a row begins where it begins, however many there are.
            limit(recipe, extent, elements, &|size| tensor.shape.len() > 1 || !outer.contains(size));
        }
        let memory = usize::from(tensor.array);
        for (mode, stride) in tensor.strides.iter().enumerate().skip(memory) {
            if Some(mode) != rows {
                limit(recipe, stride, elements, &|size| !extents.contains(size));
            }
        }
    }
    limits
}

/// The names of the sizes in a formula.
fn named<'a>(recipe: &'a Recipe, formula: &'a Formula) -> impl Iterator<Item = &'a str> + Clone {
    formula.items().iter().filter_map(|item| match item {
        Item::Size(size) => Some(recipe.sizes[*size as usize].name.as_str()),
        _ => None,
    })
}

/// The least multiple of a size with which a formula is a multiple of so many elements, as far as that depends on it.
fn needed(recipe: &Recipe, formula: &Formula, size: &str, elements: i64) -> i64 {
    let divides = |multiple: i64| {
        [1, 3, 5, 7].into_iter().all(|odd| {
            let value =
                |row: &tilewright_launch::Size| if row.name == size { multiple * odd } else { 1 << 12 };
            let values: Vec<i64> = recipe.sizes.iter().map(value).collect();
            formula.value(&values).is_some_and(|value| value % elements == 0)
        })
    };
    let powers = (0..).map(|power| 1i64 << power).take_while(|multiple| *multiple <= MOST_MULTIPLE);
    powers.into_iter().find(|multiple| divides(*multiple)).unwrap_or(MOST_MULTIPLE)
}

/// The largest power of two, up to a limit, of which a size is a multiple.
pub(crate) fn multiple(size: i64, limit: i64) -> i64 {
    if size <= 0 { 1 } else { (1i64 << size.trailing_zeros().min(62)).min(limit) }
}

/// A tensor parameter as text: `f16[m, n]`.
pub(crate) fn text_of(recipe: &Recipe, tensor: &TensorParam) -> String {
    let shape: Vec<String> = tensor.shape.iter().map(|extent| formula_text(recipe, extent)).collect();
    format!("{}[{}]", tensor.dtype, shape.join(", "))
}

fn formula_text(recipe: &Recipe, formula: &Formula) -> String {
    let mut stack: Vec<String> = Vec::new();
    for item in formula.items() {
        let text = match *item {
            Item::Int(value) => value.to_string(),
            Item::Size(size) => recipe.sizes[size as usize].name.clone(),
            Item::Op(op) => {
                let (b, a) = (stack.pop().unwrap_or_default(), stack.pop().unwrap_or_default());
                match op {
                    Op::Add => format!("({a} + {b})"),
                    Op::Sub => format!("({a} - {b})"),
                    Op::Mul => format!("{a} * {b}"),
                    Op::Div => format!("{a} / {b}"),
                    Op::CeilDiv => format!("ceil_div({a}, {b})"),
                    Op::Min => format!("min({a}, {b})"),
                    Op::Max => format!("max({a}, {b})"),
                    _ => format!("{op:?}({a}, {b})"),
                }
            }
            _ => "…".to_string(),
        };
        stack.push(text);
    }
    stack.pop().unwrap_or_default()
}
