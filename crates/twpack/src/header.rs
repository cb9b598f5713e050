//! Recipes as JSON. Formulas are lists in postfix form, as `["m", 128, "ceil_div"]`.

use tilewright_launch::{
    Access, Bound, Corners, DType, Formula, Item, Map, Op, Param, ParamKind, Passed, Recipe, Scalar, Size,
    Swizzle, Target, TensorParam, Zeros,
};

use crate::error::PackError;
use crate::json::{At, Json, object};

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

/// By bytes of the span; of atoms of 32 bytes by these, then those of the span.
const SWIZZLES: [(Swizzle, i64); 5] = [
    (Swizzle::None, 0),
    (Swizzle::B32, 32),
    (Swizzle::B64, 64),
    (Swizzle::B128, 128),
    (Swizzle::B128Atom32, 32_128),
];

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
    fn formula(&self, formula: &Formula) -> Result<Json, PackError> {
        let item = |item: &Item| {
            Ok(match *item {
                Item::Int(value) => Json::Int(value),
                Item::Size(size) => match self.0.sizes.get(size as usize) {
                    Some(size) => size.name.as_str().into(),
                    None => return Err(unknown(&self.0.name)),
                },
                Item::Counter(counter) => Json::Text(format!("{COUNTER}{counter}")),
                Item::Block(axis) => Json::Text(format!("{BLOCK}{axis}")),
                Item::Scalar(param) => Json::Text(format!("{SCALAR}{param}")),
                Item::Element(count) => Json::Text(format!("{ELEMENT}{count}")),
                Item::Op(op) => match OPERATORS.iter().find(|(known, _)| *known == op) {
                    Some((_, name)) => (*name).into(),
                    None => return Err(unknown(&self.0.name)),
                },
                _ => return Err(unknown(&self.0.name)),
            })
        };
        listed(formula.items(), item)
    }

    fn formulas(&self, list: &[Formula]) -> Result<Json, PackError> {
        listed(list, |formula| self.formula(formula))
    }

    fn param(&self, param: &Param) -> Result<Json, PackError> {
        match &param.kind {
            ParamKind::Tensor(tensor) => Ok(object([
                ("name", param.name.as_str().into()),
                ("dtype", tensor.dtype.name().into()),
                // A tensor without modes is one, too.
                (
                    "tensor",
                    object([
                        ("shape", self.formulas(&tensor.shape)?),
                        ("strides", self.formulas(&tensor.strides)?),
                    ]),
                ),
                ("alignment", tensor.alignment.into()),
                ("written", (tensor.access == Access::Write).into()),
                ("constant", tensor.constant.into()),
                ("array", tensor.array.into()),
                ("workspace", tensor.workspace.into()),
                ("zeros", if tensor.zeros == Zeros::None { Json::Null } else { tensor.zeros.name().into() }),
            ])),
            ParamKind::Scalar(scalar) => {
                Ok(object([("name", param.name.as_str().into()), ("number", scalar.name().into())]))
            }
            _ => Err(unknown(&self.0.name)),
        }
    }

    fn passed(&self, passed: &Passed) -> Result<Json, PackError> {
        let (kind, number) = match *passed {
            Passed::Tensor(param) => ("tensor", param),
            Passed::Scalar(param) => ("number", param),
            Passed::Size(size) => ("size", size),
            Passed::Map(map) => ("map", map),
            Passed::Records => ("records", 0),
            _ => return Err(unknown(&self.0.name)),
        };
        Ok(vec![kind.into(), number.into()].into())
    }

    fn bound(&self, bound: &Bound) -> Result<Json, PackError> {
        Ok(match bound {
            Bound::Fits { what, formula, reach } => object([
                ("what", what.as_str().into()),
                ("fits", self.formula(formula)?),
                ("reach", (*reach).into()),
            ]),
            Bound::Range { what, counter, least, most, beyond, body } => object([
                ("what", what.as_str().into()),
                ("counter", (*counter).into()),
                ("least", self.formula(least)?),
                ("most", self.formula(most)?),
                ("beyond", (*beyond).into()),
                ("body", (*body).into()),
            ]),
            Bound::When { what, condition, body } => object([
                ("what", what.as_str().into()),
                ("when", self.formula(condition)?),
                ("body", (*body).into()),
            ]),
            _ => return Err(unknown(&self.0.name)),
        })
    }

    fn map(&self, map: &Map) -> Result<Json, PackError> {
        let swizzle = SWIZZLES.iter().find(|(known, _)| *known == map.swizzle).map(|(_, bytes)| bytes);
        let swizzle = swizzle.ok_or_else(|| unknown(&self.0.name))?;
        let numbers = |list: &[u32]| Json::List(list.iter().map(|number| (*number).into()).collect());
        let places = |list: &[i32]| Json::List(list.iter().map(|place| i64::from(*place).into()).collect());
        // Only maps in im2col mode have corners, and only packs with such maps the field.
        let corners = map.corners.as_ref().map_or(Json::Null, |corners| {
            object([("lower", places(&corners.lower)), ("upper", places(&corners.upper))])
        });
        Ok(object([
            ("param", map.param.into()),
            ("dtype", map.dtype.name().into()),
            ("box", numbers(&map.extents)),
            ("steps", numbers(&map.steps)),
            ("swizzle", (*swizzle).into()),
            ("extents", self.formulas(&map.tensor_extents)?),
            ("strides", self.formulas(&map.tensor_strides)?),
            ("corners", corners),
        ]))
    }
}

fn listed<T>(list: &[T], write: impl Fn(&T) -> Result<Json, PackError>) -> Result<Json, PackError> {
    list.iter().map(write).collect::<Result<Vec<_>, _>>().map(Json::List)
}

/// The recipe as JSON.
pub(crate) fn write(recipe: &Recipe) -> Result<Json, PackError> {
    let taken = |size: &&Size| OPERATORS.iter().any(|(_, name)| *name == size.name);
    if let Some(size) = recipe.sizes.iter().find(taken) {
        return Err(PackError::Name { kernel: recipe.name.clone(), size: size.name.clone() });
    }
    let writer = Writer(recipe);
    let size = |size: &Size| {
        Ok(object([
            ("name", size.name.as_str().into()),
            ("default", size.default.into()),
            ("multiple", size.multiple.into()),
            ("max", size.most.into()),
        ]))
    };
    let records = match recipe.records.map(i64::try_from) {
        None => Json::Null,
        Some(Ok(bytes)) => Json::Int(bytes),
        Some(Err(_)) => return Err(unknown(&recipe.name)),
    };
    Ok(object([
        ("name", recipe.name.as_str().into()),
        ("entry", recipe.entry.as_str().into()),
        ("arch", write_target(&recipe.target)),
        ("threads", recipe.threads.into()),
        ("cluster", recipe.cluster.into()),
        ("shared_bytes", recipe.shared_bytes.into()),
        ("waits", recipe.waits.into()),
        ("resident", recipe.resident.into()),
        ("records", records),
        ("sizes", listed(&recipe.sizes, size)?),
        ("params", listed(&recipe.params, |param| writer.param(param))?),
        ("launch", listed(&recipe.passed, |passed| writer.passed(passed))?),
        ("grid", writer.formulas(&recipe.grid)?),
        ("most_extent", recipe.most_extent.into()),
        ("bounds", listed(&recipe.bounds, |bound| writer.bound(bound))?),
        ("maps", listed(&recipe.maps, |map| writer.map(map))?),
    ]))
}

/// The GPUs that code is for, as JSON.
pub(crate) fn write_target(target: &Target) -> Json {
    object([
        ("name", target.name.as_str().into()),
        ("capability", write_capability(target.capability)),
        ("specific", target.specific.into()),
    ])
}

/// A compute capability as a list of two numbers.
pub(crate) fn write_capability((major, minor): (u32, u32)) -> Json {
    vec![major.into(), minor.into()].into()
}

/// A compute capability.
pub(crate) fn read_capability(at: &At<'_>) -> Result<(u32, u32), PackError> {
    let [major, minor] = &at.list()?[..] else { return at.wrong("two numbers") };
    Ok((major.number()?, minor.number()?))
}

/// The GPUs that code is for.
pub(crate) fn read_target(at: &At<'_>) -> Result<Target, PackError> {
    Ok(Target {
        name: at.field("name")?.text()?,
        capability: read_capability(&at.field("capability")?)?,
        specific: at.field("specific")?.truth()?,
    })
}

/// The names of sizes, for the formulas of a kernel that is read.
struct Reader(Vec<String>);

fn dtype(at: &At<'_>) -> Result<DType, PackError> {
    DType::named(&at.text()?).map_or_else(|| at.wrong("an element type"), Ok)
}

impl Reader {
    fn item(&self, at: &At<'_>) -> Result<Item, PackError> {
        if let Json::Int(value) = at.value {
            return Ok(Item::Int(*value));
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
        Formula::new(items).map_err(|error| PackError::Formula { place: at.place(), error })
    }

    fn formulas(&self, at: &At<'_>) -> Result<Vec<Formula>, PackError> {
        at.listed(|formula| self.formula(formula))
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
        let numbers = |name| at.field(name)?.listed(|number| number.number::<u32>());
        let extents = self.formulas(&at.field("extents")?)?;
        let strides = self.formulas(&at.field("strides")?)?;
        let param = at.field("param")?.number()?;
        let mut map = Map::new(param, dtype(&at.field("dtype")?)?, numbers("box")?, extents, strides);
        map.steps = numbers("steps")?;
        let swizzle = at.field("swizzle")?;
        let bytes = swizzle.integer()?;
        let known = SWIZZLES.iter().find(|(_, of)| *of == bytes).map(|(known, _)| *known);
        map.swizzle = known.map_or_else(|| swizzle.wrong("0, 32, 64 or 128"), Ok)?;
        let corners = at.field("corners")?;
        if !corners.is_null() {
            let places = |name| corners.field(name)?.listed(|place| place.number::<i32>());
            map.corners = Some(Corners { lower: places("lower")?, upper: places("upper")? });
        }
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
    let target = read_target(&at.field("arch")?)?;
    let mut recipe = Recipe::new(at.field("name")?.text()?, at.field("entry")?.text()?, target);
    recipe.threads = at.field("threads")?.number()?;
    recipe.cluster = at.field("cluster")?.number()?;
    recipe.shared_bytes = at.field("shared_bytes")?.number()?;
    recipe.waits = at.field("waits")?.truth()?;
    recipe.resident = at.field("resident")?.truth()?;
    let records = at.field("records")?;
    recipe.records = if records.is_null() { None } else { Some(records.number()?) };
    recipe.sizes = at.field("sizes")?.listed(|size| {
        let of = |name| size.field(name)?.integer();
        let mut made = Size::new(size.field("name")?.text()?, of("default")?, of("max")?);
        made.multiple = of("multiple")?;
        Ok(made)
    })?;
    let reader = Reader(recipe.sizes.iter().map(|size| size.name.clone()).collect());
    recipe.params = at.field("params")?.listed(|param| reader.param(param))?;
    recipe.passed = at.field("launch")?.listed(passed)?;
    recipe.grid = reader.formulas(&at.field("grid")?)?;
    recipe.most_extent = at.field("most_extent")?.integer()?;
    recipe.bounds = at.field("bounds")?.listed(|bound| reader.bound(bound))?;
    recipe.maps = at.field("maps")?.listed(|map| reader.map(map))?;
    recipe.check().map_err(|error| PackError::Recipe { kernel: recipe.name.clone(), error })?;
    Ok(recipe)
}
