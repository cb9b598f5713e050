//! Layouts: values of the calculator, and pictures of them.

use pyo3::prelude::*;
use serde_json::{Value as Json, json};
use tilewright::layout::{Dim, HTuple, Layout, SwizzledLayout};
use tilewright::layout_calc::draw::Picture;
use tilewright::layout_calc::{self, FUNCTIONS, Value as Calculated};

use crate::error::{Class, raised, said};

/// A value of the calculator.
#[pyclass(frozen, eq, module = "tilewright._core")]
#[derive(PartialEq)]
pub struct Value(Calculated);

/// A picture in a form: `svg`, `text` or `latex`.
pub fn drawn(py: Python<'_>, picture: &Picture, form: &str) -> PyResult<String> {
    match form {
        "svg" => Ok(picture.svg()),
        "text" => Ok(picture.text()),
        "latex" => Ok(picture.latex()),
        other => {
            let refusal = format!("`{other}` is no form of pictures: svg, text and latex are");
            Err(said(py, Class::Layout, refusal))
        }
    }
}

/// The value of an expression.
#[pyfunction]
pub fn evaluate(py: Python<'_>, text: &str) -> PyResult<Value> {
    py.detach(|| layout_calc::evaluate(text)).map(Value).map_err(|e| {
        let diagnostic =
            json!({ "severity": "error", "code": e.kind(), "message": e.message, "offset": e.offset });
        let text = format!("{}\n  {text}\n  {}^", e.message, " ".repeat(characters(text, e.offset)));
        raised(py, Class::Layout, &text, &json!([diagnostic]))
    })
}

/// Characters before a byte.
fn characters(text: &str, offset: usize) -> usize {
    text.char_indices().take_while(|(at, _)| *at < offset).count()
}

/// The functions of the calculator, each with its arguments as text.
#[pyfunction]
pub fn functions() -> Vec<(&'static str, &'static str)> {
    FUNCTIONS.to_vec()
}

/// A tuple as nested lists.
fn nested(tuple: &HTuple<i64>) -> Json {
    match tuple {
        HTuple::Leaf(n) => json!(n),
        HTuple::Tuple(parts) => parts.iter().map(nested).collect(),
    }
}

fn dims(dims: &[Dim]) -> Json {
    dims.iter().map(|d| json!([d.name, d.size()])).collect()
}

/// Plain data of a value: what is a number, a tuple, a truth value or text in Python too; fields of layouts.
fn plain(value: &Calculated) -> Json {
    let mut object = json!({ "kind": value.kind(), "text": value.to_string() });
    match value {
        Calculated::Integer(n) => object["value"] = json!(n),
        Calculated::Bool(b) => object["value"] = json!(b),
        Calculated::Tuple(tuple) => object["value"] = nested(tuple),
        Calculated::Text(text) => object["value"] = json!(text),
        Calculated::Record(fields) => {
            object["fields"] = fields.iter().map(|(name, v)| json!([name, plain(v)])).collect();
        }
        Calculated::Layout(l) => integers(l, &mut object),
        Calculated::Swizzled(l) => {
            integers(&l.layout, &mut object);
            object["swizzle"] = json!([l.swizzle.bits(), l.swizzle.base(), l.swizzle.shift()]);
        }
        Calculated::Linear(l) => {
            object["ins"] = dims(l.ins());
            object["outs"] = dims(l.outs());
        }
        _ => {}
    }
    object
}

fn integers(layout: &Layout, object: &mut Json) {
    object["shape"] = nested(layout.shape());
    object["stride"] = nested(layout.stride());
}

impl Value {
    fn picture(&self, bits: Option<i64>, tile: Option<(i64, i64)>) -> Result<Picture, String> {
        let said = |e: tilewright::layout_calc::draw::DrawError| e.to_string();
        let swizzled = match (&self.0, bits, tile) {
            (Calculated::Layout(l), None, Some(tile)) => {
                return Picture::thread_values(l, tile).map_err(said);
            }
            (_, None, Some(_)) => {
                return Err(format!(
                    "`tile` draws a layout (thread, value) -> coordinate; {} is none",
                    self.0
                ));
            }
            (_, Some(_), Some(_)) => {
                return Err("give `bits` or `tile`: one picture shows one thing".to_string());
            }
            (Calculated::Linear(l), Some(bits), None) => return Picture::linear_banks(l, bits).map_err(said),
            (Calculated::Linear(l), None, None) => return Picture::linear(l).map_err(said),
            (Calculated::CoordLayout(l), None, None) => return Picture::offsets(l).map_err(said),
            (Calculated::F2Layout(l), None, None) => return Picture::offsets(l).map_err(said),
            (Calculated::Layout(l), ..) => SwizzledLayout::from(l.clone()),
            (Calculated::Swizzled(l), ..) => l.clone(),
            _ => return Err(format!("only a layout can be drawn; {} is not one", self.0)),
        };
        match bits {
            Some(bits) => Picture::banks(&swizzled, bits).map_err(said),
            None => Picture::swizzled_offsets(&swizzled).map_err(said),
        }
    }
}

#[pymethods]
impl Value {
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// The kind in one word: `layout`, `integer`, `linear_layout`, …
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    /// The value's parts, as JSON.
    fn json(&self) -> String {
        plain(&self.0).to_string()
    }

    /// A picture, as `svg`, `text` or `latex`.
    fn draw(
        &self,
        py: Python<'_>,
        form: &str,
        bits: Option<i64>,
        tile: Option<(i64, i64)>,
    ) -> PyResult<String> {
        let picture = self.picture(bits, tile).map_err(|e| said(py, Class::Layout, e))?;
        drawn(py, &picture, form)
    }
}
