//! Recipes as JSON. Formulas are lists in postfix form, as `["m", 128, "ceil_div"]`.

use serde_json::{Value, json};
use tilewright_launch::{
    Access, Bound, DType, Formula, Item, Map, Op, Param, ParamKind, Passed, Recipe, Scalar, Size, Swizzle,
    Target, TensorParam, Zeros,
};

use crate::error::PackError;
use crate::json::{At, object};

const OPERATORS: [(Op, &str); 16] = [
    (Op::Add, "+"),
    (Op::Sub, "-"),
    (Op::Mul, "*"),
    (Op::Div, "/"),
    (Op::Rem, "%"),
    (Op::CeilDiv, "ceil_div"),
    (Op::Min, "min"),
    (Op::Max, "max"),
    (Op::Eq, "=="),
    (Op::Ne, "!="),
    (Op::Lt, "<"),
    (Op::Le, "<="),
    (Op::Gt, ">"),
    (Op::Ge, ">="),
    (Op::And, "and"),
    (Op::Or, "or"),
];

const SCALARS: [Scalar; 6] = [Scalar::F32, Scalar::F64, Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64];

const SWIZZLES: [(Swizzle, i64); 4] =
    [(Swizzle::None, 0), (Swizzle::B32, 32), (Swizzle::B64, 64), (Swizzle::B128, 128)];

/// Marks of items that are no sizes: what no name begins with.
const COUNTER: &str = "$";
const BLOCK: &str = "#";
const SCALAR: &str = "@";
const ELEMENT: &str = "[]";

fn unknown(kernel: &str) -> PackError {
    PackError::Code {
        kernel: kernel.to_string(),
        reason: "its recipe has what this version of packs cannot say",
    }
}

/// The kernel that is written.
struct Writer<'a>(&'a Recipe);

impl Writer<'_> {
    fn formula(&self, formula: &Formula) -> Result<Value, PackError> {
        let item = |item: &Item| {
            Ok(match *item {
                Item::Int(value) => json!(value),
                Item::Size(size) => json!(self.0.sizes.get(size as usize).map(|size| &size.name)),
                Item::Counter(counter) => json!(format!("{COUNTER}{counter}")),
                Item::Block(axis) => json!(format!("{BLOCK}{axis}")),
                Item::Scalar(param) => json!(format!("{SCALAR}{param}")),
                Item::Element(count) => json!(format!("{ELEMENT}{count}")),
                Item::Op(op) => match OPERATORS.iter().find(|(known, _)| *known == op) {
                    Some((_, name)) => json!(name),
                    None => return Err(unknown(&self.0.name)),
                },
                _ => return Err(unknown(&self.0.name)),
            })
        };
        formula.items().iter().map(item).collect::<Result<Vec<_>, _>>().map(Value::from)
    }

    fn formulas(&self, list: &[Formula]) -> Result<Value, PackError> {
        list.iter().map(|formula| self.formula(formula)).collect::<Result<Vec<_>, _>>().map(Value::from)
    }

    fn param(&self, param: &Param) -> Result<Value, PackError> {
        match &param.kind {
            ParamKind::Tensor(tensor) => Ok(object([
                ("name", json!(param.name)),
                ("dtype", json!(tensor.dtype.name())),
                // A tensor without modes has a shape, too.
                (
                    "tensor",
                    json!({ "shape": self.formulas(&tensor.shape)?, "strides": self.formulas(&tensor.strides)? }),
                ),
                ("alignment", json!(tensor.alignment)),
                ("written", json!(tensor.access == Access::Write)),
                ("constant", json!(tensor.constant)),
                ("array", json!(tensor.array)),
                ("workspace", json!(tensor.workspace)),
                ("zeros", if tensor.zeros == Zeros::None { Value::Null } else { json!(tensor.zeros.name()) }),
            ])),
            ParamKind::Scalar(scalar) => {
                Ok(object([("name", json!(param.name)), ("number", json!(scalar.name()))]))
            }
            _ => Err(unknown(&self.0.name)),
        }
    }

    fn passed(&self, passed: &Passed) -> Result<Value, PackError> {
        Ok(match *passed {
            Passed::Tensor(param) => json!(["tensor", param]),
            Passed::Scalar(param) => json!(["number", param]),
            Passed::Size(size) => json!(["size", size]),
            Passed::Map(map) => json!(["map", map]),
            Passed::Records => json!(["records", 0]),
            _ => return Err(unknown(&self.0.name)),
        })
    }

    fn bound(&self, bound: &Bound) -> Result<Value, PackError> {
        Ok(match bound {
            Bound::Fits { what, formula, reach } => {
                json!({ "what": what, "fits": self.formula(formula)?, "reach": reach })
            }
            Bound::Range { what, counter, least, most, beyond, body } => json!({
                "what": what, "counter": counter, "least": self.formula(least)?, "most": self.formula(most)?,
                "beyond": beyond, "body": body,
            }),
            Bound::When { what, condition, body } => {
                json!({ "what": what, "when": self.formula(condition)?, "body": body })
            }
            _ => return Err(unknown(&self.0.name)),
        })
    }

    fn map(&self, map: &Map) -> Result<Value, PackError> {
        let swizzle = SWIZZLES.iter().find(|(known, _)| *known == map.swizzle).map(|(_, bytes)| bytes);
        Ok(json!({
            "param": map.param, "dtype": map.dtype.name(), "box": map.extents, "steps": map.steps,
            "swizzle": swizzle.ok_or_else(|| unknown(&self.0.name))?,
            "extents": self.formulas(&map.tensor_extents)?, "strides": self.formulas(&map.tensor_strides)?,
        }))
    }
}

fn listed<T>(list: &[T], write: impl Fn(&T) -> Result<Value, PackError>) -> Result<Value, PackError> {
    list.iter().map(write).collect::<Result<Vec<_>, _>>().map(Value::from)
}

/// The recipe as JSON.
pub(crate) fn write(recipe: &Recipe) -> Result<Value, PackError> {
    let taken = |size: &&Size| OPERATORS.iter().any(|(_, name)| *name == size.name);
    if let Some(size) = recipe.sizes.iter().find(taken) {
        return Err(PackError::Name { kernel: recipe.name.clone(), size: size.name.clone() });
    }
    let writer = Writer(recipe);
    let size = |size: &Size| {
        Ok(json!({ "name": size.name, "default": size.default, "multiple": size.multiple, "max": size.most }))
    };
    let (major, minor) = recipe.target.capability;
    Ok(object([
        ("name", json!(recipe.name)),
        ("entry", json!(recipe.entry)),
        (
            "arch",
            json!({ "name": recipe.target.name, "capability": [major, minor], "specific": recipe.target.specific }),
        ),
        ("threads", json!(recipe.threads)),
        ("cluster", json!(recipe.cluster)),
        ("shared_bytes", json!(recipe.shared_bytes)),
        ("waits", json!(recipe.waits)),
        ("resident", json!(recipe.resident)),
        ("records", json!(recipe.records)),
        ("sizes", listed(&recipe.sizes, size)?),
        ("params", listed(&recipe.params, |param| writer.param(param))?),
        ("launch", listed(&recipe.passed, |passed| writer.passed(passed))?),
        ("grid", writer.formulas(&recipe.grid)?),
        ("most_extent", json!(recipe.most_extent)),
        ("bounds", listed(&recipe.bounds, |bound| writer.bound(bound))?),
        ("maps", listed(&recipe.maps, |map| writer.map(map))?),
    ]))
}

/// The names of sizes, for the formulas of a kernel that is read.
struct Reader(Vec<String>);

fn listed_at<T>(at: &At<'_>, read: impl Fn(&At<'_>) -> Result<T, PackError>) -> Result<Vec<T>, PackError> {
    if at.is_null() { Ok(Vec::new()) } else { at.list()?.iter().map(read).collect() }
}

fn dtype(at: &At<'_>) -> Result<DType, PackError> {
    DType::named(&at.text()?).map_or_else(|| at.wrong("an element type"), Ok)
}

impl Reader {
    fn item(&self, at: &At<'_>) -> Result<Item, PackError> {
        if let Some(value) = at.value.as_i64() {
            return Ok(Item::Int(value));
        }
        let text = at.text()?;
        if let Some((op, _)) = OPERATORS.iter().find(|(_, name)| *name == text) {
            return Ok(Item::Op(*op));
        }
        if let Some(size) = self.0.iter().position(|name| *name == text) {
            return Ok(Item::Size(size as u32));
        }
        let number = |mark: &str| text.strip_prefix(mark)?.parse().ok();
        let item = (number(COUNTER).map(Item::Counter))
            .or_else(|| number(BLOCK).map(Item::Block))
            .or_else(|| number(SCALAR).map(Item::Scalar))
            .or_else(|| number(ELEMENT).map(Item::Element));
        item.map_or_else(|| at.wrong("an integer, a size or an operator"), Ok)
    }

    fn formula(&self, at: &At<'_>) -> Result<Formula, PackError> {
        let items = at.list()?.iter().map(|item| self.item(item)).collect::<Result<Vec<_>, _>>()?;
        Formula::new(items).map_err(|error| PackError::Formula { place: at.place.clone(), error })
    }

    fn formulas(&self, at: &At<'_>) -> Result<Vec<Formula>, PackError> {
        listed_at(at, |formula| self.formula(formula))
    }

    fn param(&self, at: &At<'_>) -> Result<Param, PackError> {
        let name = at.field("name")?.text()?;
        let number = at.field("number")?;
        if !number.is_null() {
            let text = number.text()?;
            let scalar = SCALARS.into_iter().find(|scalar| scalar.name() == text);
            let scalar = scalar.map_or_else(|| number.wrong("a type of numbers"), Ok)?;
            return Ok(Param::new(name, ParamKind::Scalar(scalar)));
        }
        let of = at.field("tensor")?;
        let shape = self.formulas(&of.field("shape")?)?;
        let strides = self.formulas(&of.field("strides")?)?;
        let mut tensor = TensorParam::new(dtype(&at.field("dtype")?)?, shape, strides);
        tensor.alignment = at.field("alignment")?.number()?;
        tensor.access = if at.field("written")?.truth()? { Access::Write } else { Access::Read };
        tensor.constant = at.field("constant")?.truth()?;
        tensor.array = at.field("array")?.truth()?;
        tensor.workspace = at.field("workspace")?.truth()?;
        let zeros = at.field("zeros")?;
        if !zeros.is_null() {
            let text = zeros.text()?;
            let known = Zeros::ALL.into_iter().find(|known| known.name() == text);
            tensor.zeros = known.map_or_else(|| zeros.wrong("none, before or left"), Ok)?;
        }
        Ok(Param::new(name, ParamKind::Tensor(tensor)))
    }

    fn bound(&self, at: &At<'_>) -> Result<Bound, PackError> {
        let what = at.field("what")?.text()?;
        let (fits, when) = (at.field("fits")?, at.field("when")?);
        if !fits.is_null() {
            let (formula, reach) = (self.formula(&fits)?, at.field("reach")?.integer()?);
            return Ok(Bound::Fits { what, formula, reach });
        }
        let body = at.field("body")?.number()?;
        if !when.is_null() {
            return Ok(Bound::When { what, condition: self.formula(&when)?, body });
        }
        Ok(Bound::Range {
            what,
            counter: at.field("counter")?.number()?,
            least: self.formula(&at.field("least")?)?,
            most: self.formula(&at.field("most")?)?,
            beyond: at.field("beyond")?.integer()?,
            body,
        })
    }

    fn map(&self, at: &At<'_>) -> Result<Map, PackError> {
        let numbers = |name| listed_at(&at.field(name)?, |number| number.number::<u32>());
        let extents = self.formulas(&at.field("extents")?)?;
        let strides = self.formulas(&at.field("strides")?)?;
        let param = at.field("param")?.number()?;
        let mut map = Map::new(param, dtype(&at.field("dtype")?)?, numbers("box")?, extents, strides);
        map.steps = numbers("steps")?;
        let swizzle = at.field("swizzle")?;
        let bytes = swizzle.integer()?;
        let known = SWIZZLES.iter().find(|(_, of)| *of == bytes).map(|(known, _)| *known);
        map.swizzle = known.map_or_else(|| swizzle.wrong("0, 32, 64 or 128"), Ok)?;
        Ok(map)
    }
}

fn passed(at: &At<'_>) -> Result<Passed, PackError> {
    let list = at.list()?;
    let [kind, number] = &list[..] else { return at.wrong("a kind and a number") };
    let number = number.number()?;
    Ok(match kind.text()?.as_str() {
        "tensor" => Passed::Tensor(number),
        "number" => Passed::Scalar(number),
        "size" => Passed::Size(number),
        "map" => Passed::Map(number),
        "records" => Passed::Records,
        _ => return kind.wrong("tensor, number, size, map or records"),
    })
}

/// The recipe of a kernel, which a launch can follow.
pub(crate) fn read(at: &At<'_>) -> Result<Recipe, PackError> {
    let arch = at.field("arch")?;
    let capability = arch.field("capability")?;
    let [major, minor] = &capability.list()?[..] else { return capability.wrong("two numbers") };
    let target = Target {
        name: arch.field("name")?.text()?,
        capability: (major.number()?, minor.number()?),
        specific: arch.field("specific")?.truth()?,
    };
    let mut recipe = Recipe::new(at.field("name")?.text()?, at.field("entry")?.text()?, target);
    recipe.threads = at.field("threads")?.number()?;
    recipe.cluster = at.field("cluster")?.number()?;
    recipe.shared_bytes = at.field("shared_bytes")?.number()?;
    recipe.waits = at.field("waits")?.truth()?;
    recipe.resident = at.field("resident")?.truth()?;
    let records = at.field("records")?;
    recipe.records = if records.is_null() { None } else { Some(records.number()?) };
    recipe.sizes = listed_at(&at.field("sizes")?, |size| {
        let of = |name| size.field(name)?.integer();
        let mut made = Size::new(size.field("name")?.text()?, of("default")?, of("max")?);
        made.multiple = of("multiple")?;
        Ok(made)
    })?;
    let reader = Reader(recipe.sizes.iter().map(|size| size.name.clone()).collect());
    recipe.params = listed_at(&at.field("params")?, |param| reader.param(param))?;
    recipe.passed = listed_at(&at.field("launch")?, passed)?;
    recipe.grid = reader.formulas(&at.field("grid")?)?;
    recipe.most_extent = at.field("most_extent")?.integer()?;
    recipe.bounds = listed_at(&at.field("bounds")?, |bound| reader.bound(bound))?;
    recipe.maps = listed_at(&at.field("maps")?, |map| reader.map(map))?;
    recipe.check().map_err(|error| PackError::Recipe { kernel: recipe.name.clone(), error })?;
    Ok(recipe)
}
