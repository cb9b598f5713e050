//! `tilewright layout`: the calculator, its JSON, and its pictures.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use tilewright::layout::{Dim, HTuple, Layout, LayoutError, LinearLayout, Stride, SwizzledLayout};
use tilewright::layout_calc::draw::{DrawError, Picture};
use tilewright::layout_calc::{CalcError, Session, Value, evaluate};

use crate::args::{Draw, LayoutArgs};
use crate::messages::{Failure, error, print};

/// Evaluates one expression, or one a line from standard input.
pub fn layout(args: &LayoutArgs) -> Result<ExitCode, Failure> {
    if args.draw.is_none() && (args.tile.is_some() || args.banks.is_some()) {
        return Err(Failure::usage("--tile and --banks say what to draw; add --draw text, svg or latex"));
    }
    if args.expression == "-" {
        if args.draw.is_some() {
            return Err(Failure::usage("--draw draws one expression, not those of standard input"));
        }
        return lines(args.json);
    }
    match (evaluate(&args.expression), args.draw) {
        (Ok(value), Some(form)) => {
            let picture = picture(&value, args)?;
            let text = match form {
                Draw::Text => picture.text(),
                Draw::Svg => picture.svg(),
                Draw::Latex => picture.latex(),
            };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        (Ok(value), None) if args.json => {
            print(&format!("{}\n", json_of(&value)))?;
            Ok(ExitCode::SUCCESS)
        }
        (Ok(value), None) => {
            print(&format!("{value}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        (Err(e), _) if args.json => {
            print(&format!("{}\n", json_of_error(&e)))?;
            Ok(ExitCode::from(1))
        }
        (Err(e), _) => Err(Failure::program(error(e))),
    }
}

/// One answer a line; names bound by a line `let NAME = …` stay for those after it.
fn lines(json: bool) -> Result<ExitCode, Failure> {
    let mut ok = true;
    let mut session = Session::default();
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut input = std::io::BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        // A reader at a terminal or a pipe that waits for its answer gets it before the next line is read.
        if input.buffer().is_empty() && out.flush().is_err() {
            break;
        }
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|e| Failure::program(error(format!("cannot read standard input: {e}"))))? == 0 {
            break;
        }
        let answer = match std::str::from_utf8(&line) {
            Ok(text) => session.evaluate(text.trim_end_matches(['\n', '\r'])),
            Err(e) => Err(CalcError {
                offset: e.valid_up_to(),
                message: "this line is not UTF-8".to_string(),
                cause: None,
            }),
        };
        ok &= answer.is_ok();
        let written = match (answer, json) {
            (Ok(value), false) => writeln!(out, "{value}"),
            (Err(e), false) => writeln!(out, "error: {e}"),
            (Ok(value), true) => writeln!(out, "{}", json_of(&value)),
            (Err(e), true) => writeln!(out, "{}", json_of_error(&e)),
        };
        if written.is_err() {
            break;
        }
    }
    let _ = out.flush();
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// One object for a value: its text and kind, and for what has a layout its shape, stride, size and cosize.
fn json_of(value: &Value) -> Json {
    let mut object = json!({ "text": value.to_string(), "kind": value.kind() });
    let integers = |l: &Layout, object: &mut Json| {
        layout_fields(l, &|d| json!(d), object);
        object["cosize"] = json!(l.cosize());
    };
    match value {
        Value::Layout(l) => integers(l, &mut object),
        Value::CoordLayout(l) => layout_fields(l, &|d| json!(d.to_string()), &mut object),
        Value::F2Layout(l) => layout_fields(l, &|d| json!(d.to_string()), &mut object),
        Value::Swizzled(l) => {
            integers(&l.layout, &mut object);
            object["swizzle"] =
                json!({ "bits": l.swizzle.bits(), "base": l.swizzle.base(), "shift": l.swizzle.shift() });
        }
        Value::Tensor { offset, layout } => {
            integers(layout, &mut object);
            object["offset"] = json!(offset);
        }
        Value::CoordTensor { offset, layout } => {
            layout_fields(layout, &|d| json!(d.to_string()), &mut object);
            object["offset"] = json!(offset.to_string());
        }
        Value::Integer(n) => object["value"] = json!(n),
        Value::Bool(b) => object["value"] = json!(b),
        Value::Tuple(t) => object["value"] = nested(t, &|n| json!(n)),
        Value::Linear(l) => linear_fields(l, &mut object),
        Value::Affine(l) => {
            linear_fields(l.linear(), &mut object);
            object["offset"] = json!(l.linear().unflatten_out(l.offset()));
        }
        Value::Names(names) => object["value"] = json!(names),
        Value::Record(fields) => {
            object["fields"] = fields.iter().map(|(name, v)| (name.clone(), json_of(v))).collect();
        }
        _ => {}
    }
    object
}

/// Dimensions in order, and for each input the images of its bits, an element for each output.
fn linear_fields(layout: &LinearLayout, object: &mut Json) {
    let dims = |dims: &[Dim]| dims.iter().map(|d| json!([d.name, d.size()])).collect::<Json>();
    object["ins"] = dims(layout.ins());
    object["outs"] = dims(layout.outs());
    let bases = |d: &Dim| {
        let vectors = layout.bases(&d.name).iter().map(|c| json!(layout.unflatten_out(*c)));
        (d.name.clone(), vectors.collect::<Json>())
    };
    object["bases"] = Json::Object(layout.ins().iter().map(bases).collect());
}

fn layout_fields<S: Stride>(layout: &Layout<S>, stride: &impl Fn(&S) -> Json, object: &mut Json) {
    object["shape"] = nested(layout.shape(), &|n| json!(n));
    object["stride"] = nested(layout.stride(), stride);
    object["size"] = json!(layout.size());
    object["rank"] = json!(layout.rank());
    object["depth"] = json!(layout.depth());
}

/// A hierarchical tuple as nested arrays.
fn nested<T>(tuple: &HTuple<T>, leaf: &impl Fn(&T) -> Json) -> Json {
    match tuple {
        HTuple::Leaf(n) => leaf(n),
        HTuple::Tuple(t) => Json::Array(t.iter().map(|e| nested(e, leaf)).collect()),
    }
}

/// One object for an error: where, of which kind, and what it says; for a composition also which condition fails where.
fn json_of_error(e: &CalcError) -> Json {
    let mut object = json!({ "kind": e.kind(), "message": e.message, "offset": e.offset });
    if let Some(LayoutError::Composition { condition, mode, .. }) = e.cause.as_deref() {
        object["condition"] = json!(condition.to_string());
        object["mode"] = json!(mode);
    }
    json!({ "error": object })
}

/// The picture of a value that `--draw` asks for.
fn picture(value: &Value, args: &LayoutArgs) -> Result<Picture, Failure> {
    let refuse = |e: DrawError| Failure::program(error(e));
    if let Some(tile) = &args.tile {
        let Value::Layout(layout) = value else {
            return Err(Failure::program(error(format!(
                "--tile draws a layout (thread, value) -> coordinate; {value} is no such layout"
            ))));
        };
        return Picture::thread_values(layout, extents(tile)?).map_err(refuse);
    }
    if let Value::Linear(l) = value {
        let picture = match &args.banks {
            Some(element) => Picture::linear_banks(l, bits(element)?),
            None => Picture::linear(l),
        };
        return picture.map_err(refuse);
    }
    let swizzled = match value {
        Value::Layout(l) => SwizzledLayout::from(l.clone()),
        Value::Swizzled(l) => l.clone(),
        Value::CoordLayout(l) if args.banks.is_none() => return Picture::offsets(l).map_err(refuse),
        Value::F2Layout(l) if args.banks.is_none() => return Picture::offsets(l).map_err(refuse),
        _ => {
            return Err(Failure::program(error(format!(
                "only a layout can be drawn; {value} is not one{}",
                match value {
                    Value::Tensor { .. } | Value::CoordTensor { .. } => ", layout(…) of it is",
                    _ => "",
                }
            ))));
        }
    };
    match &args.banks {
        Some(element) => Picture::banks(&swizzled, bits(element)?).map_err(refuse),
        None => Picture::swizzled_offsets(&swizzled).map_err(refuse),
    }
}

/// `M,N` or `MxN`.
fn extents(tile: &str) -> Result<(i64, i64), Failure> {
    let parsed = tile
        .split_once([',', 'x'])
        .and_then(|(rows, cols)| Some((rows.trim().parse().ok()?, cols.trim().parse().ok()?)));
    parsed.ok_or_else(|| Failure::usage(format!("--tile takes rows,columns such as 16,8; found `{tile}`")))
}

/// The width of an element type: the digits at the end of its name.
fn bits(element: &str) -> Result<i64, Failure> {
    let name = element.trim();
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let prefix = &name[..name.len() - digits.len()];
    let known = match prefix {
        "" | "f" | "bf" | "tf" | "u" | "i" | "s" | "b" => digits.parse().ok(),
        _ if matches!(name, "e4m3" | "e5m2") => Some(8),
        _ => None,
    };
    known.ok_or_else(|| {
        Failure::usage(format!(
            "--banks takes an element type such as f16, or its width in bits; found `{element}`"
        ))
    })
}
