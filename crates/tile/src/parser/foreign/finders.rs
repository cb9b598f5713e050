//! Finders of what C, CUDA, Python and Rust write in forms of their own: declarations with types, casts, conditional expressions.

use super::context::{shape_of, shared_array};
use super::{Hit, Line, is_word, last, next, split, words};
use crate::names::{Word, word};

/// Names by which modules of other languages go.
pub(super) const MODULES: [&str; 19] = [
    "tl",
    "triton",
    "torch",
    "np",
    "numpy",
    "jnp",
    "jax",
    "lax",
    "math",
    "cute",
    "cutlass",
    "F",
    "std",
    "T",
    "ct",
    "pl",
    "cp",
    "libdevice",
    "tlx",
];

/// Names of number types of C and CUDA, and the type here.
const C_TYPES: [(&str, &str); 20] = [
    ("float", "f32"),
    ("double", "f64"),
    ("half", "f16"),
    ("__half", "f16"),
    ("half2", "f16"),
    ("float2", "f32"),
    ("float4", "f32"),
    ("__nv_bfloat16", "bf16"),
    ("int", "i32"),
    ("unsigned", "u32"),
    ("uint", "u32"),
    ("long", "i64"),
    ("size_t", "i64"),
    ("int32_t", "i32"),
    ("uint32_t", "u32"),
    ("int64_t", "i64"),
    ("uint64_t", "u64"),
    ("int8_t", "i8"),
    ("uint8_t", "u8"),
    ("bool", "bool"),
];

fn c_type(word: &str) -> Option<&'static str> {
    C_TYPES.iter().find(|(name, _)| *name == word).map(|(_, here)| *here)
}

/// The word at the beginning of a text, and what is behind it.
fn first_word(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(|byte| is_word(*byte)).count();
    text.split_at(end)
}

/// `@triton.jit` on a line of its own.
pub(super) fn decorator(line: &Line<'_>) -> Option<Hit> {
    let at = line.code.len() - line.code.trim_start().len();
    let rest = line.code[at..].strip_prefix('@')?;
    rest.starts_with(|c: char| c.is_ascii_alphabetic()).then(|| {
        Hit::new(
            at..line.code.trim_end().len(),
            "decorators are Python's",
            "leave it out; a kernel is `kernel name(x: f32[n]) grid(ceil_div(n, T)) threads(128) { … }`, and `space { T = 64 | 128 }` has values for a tuner",
        )
    })
}

/// `float x = 0.0f;`, `const int BM = 64;`, `float s[64][65];`.
pub(super) fn declaration(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let at = code.len() - code.trim_start().len();
    let mut rest = &code[at..];
    let mut qualified = false;
    while let (
        qualifier @ ("const" | "constexpr" | "static" | "register" | "__shared__" | "volatile"),
        behind,
    ) = first_word(rest)
    {
        qualified |= qualifier != "const";
        if qualifier == "__shared__" {
            return shared(line, at, behind);
        }
        rest = behind.trim_start();
    }
    let (c, behind) = first_word(rest);
    let of = c_type(c)?;
    let behind = behind.trim_start().trim_start_matches('*').trim_start();
    let (name, value) = first_word(behind);
    let value = value.trim_start();
    if name.is_empty() || !(value.starts_with(['=', ';', '[']) || qualified) {
        return None;
    }
    let place = at..code.trim_end().len();
    let constant = code[at..].starts_with("const");
    let value = value.strip_prefix('=').map(|value| value.trim().trim_end_matches(';').trim());
    let value = value.map(|value| value.replace("blockIdx.", "block."));
    let whole = !of.starts_with('f') && of != "bf16";
    let help = match value.as_deref() {
        Some(value) if constant && whole => {
            format!("write `const {name} = {value}` above the kernel, or `let {name} = {value}` within")
        }
        Some(value) if whole => format!("write `let {name} = {value}` for an integer that does not change"),
        Some(value) if !value.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '{') => {
            format!("write `{name} = {value}`")
        }
        _ => format!("write `{name} = register_tensor({of}, [BM, BN])`, and `fill({name}, 0.0)`"),
    };
    Some(Hit::new(
        place,
        format!("`{c}` declares nothing here: names stand for tiles, and have no types"),
        help,
    ))
}

/// `__shared__ float s[64][65];`
fn shared(line: &Line<'_>, at: usize, behind: &str) -> Option<Hit> {
    let (c, behind) = first_word(behind.trim_start());
    let (name, extents) = first_word(behind.trim_start());
    let of = c_type(c).unwrap_or("f32");
    let extents: Vec<&str> =
        extents.split(['[', ']', ';']).map(str::trim).filter(|extent| !extent.is_empty()).collect();
    let extents = if extents.is_empty() { vec!["BM", "BN"] } else { extents };
    let name = if name.is_empty() { "s" } else { name };
    Some(Hit::new(
        at..line.code.trim_end().len(),
        "`__shared__` is CUDA's word for shared memory",
        shared_array(line.file, name, of, &extents),
    ))
}

/// `const float* a` among parameters.
pub(super) fn pointer(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    C_TYPES.iter().find_map(|(c, of)| {
        words(code, c).find_map(|place| {
            let behind = code[place.end..].trim_start().strip_prefix('*')?;
            let behind = behind.trim_start();
            let behind = behind.strip_prefix("__restrict__").unwrap_or(behind).trim_start();
            let (name, rest) = first_word(behind);
            let ends = rest.trim_start().starts_with([',', ')']) || rest.trim().is_empty();
            (!name.is_empty() && ends).then(|| {
                let end = code.len() - rest.len();
                let shape = shape_of(line.file, name);
                let sizes = match words(line.file, "size").next() {
                    Some(_) => "",
                    None => ", with `size n = 1024` above the kernel",
                };
                Hit::new(
                    place.start..end,
                    "there are no pointers: a parameter is a tensor with its shape",
                    format!("write `{name}: {of}[{shape}]`{sizes}"),
                )
            })
        })
    })
}

/// `x as f16`, `(float)x`.
pub(super) fn cast(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let known = |name: &str| name.parse::<tilewright_machine::DType>().is_ok();
    let of_rust = words(code, "as").find_map(|place| {
        let (of, rest) = first_word(code[place.end..].trim_start());
        let before = code[..place.start].trim_end().len();
        let operand = super::operand_before(code, before);
        let place = before - operand.len()..code.len() - rest.len();
        (known(of) && !operand.is_empty())
            .then(|| Hit::new(place, "a cast is a function", format!("write `cast({operand}, {of})`")))
    });
    of_rust.or_else(|| {
        C_TYPES.iter().find_map(|(c, of)| {
            let written = format!("({c})");
            let at = code.find(&written)?;
            let called = last(code, at).is_some_and(|byte| is_word(byte) || byte == b')');
            let (operand, _) = first_word(code[at + written.len()..].trim_start());
            let operand = if operand.is_empty() { "x" } else { operand };
            (!called).then(|| {
                Hit::new(
                    at..at + written.len(),
                    "a cast is a function",
                    format!("write `cast({operand}, {of})`, of an integer `float({operand})`"),
                )
            })
        })
    })
}

/// `a if c else b`.
pub(super) fn conditional(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let equals = code.find(" = ")? + 3;
    let condition = words(&code[equals..], "if").next()?;
    let otherwise = words(&code[equals..], "else").find(|place| place.start > condition.end)?;
    let value = &code[equals..];
    let part = |range: std::ops::Range<usize>| value.get(range).unwrap_or("").trim();
    let (then, test) = (part(0..condition.start), part(condition.end..otherwise.start));
    let other = part(otherwise.end..value.len());
    Some(Hit::new(
        equals..code.trim_end().len(),
        "there is no `… if … else …`",
        format!("write `where({test}, {then}, {other})`"),
    ))
}

/// `!c`.
pub(super) fn negation(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let at =
        code.match_indices('!').map(|(at, _)| at).find(|at| code.as_bytes().get(at + 1) != Some(&b'='))?;
    Some(Hit::new(at..at + 1, "`!` is C's", "write `not`"))
}

/// `.5`, `1.`.
pub(super) fn point(line: &Line<'_>) -> Option<Hit> {
    let bytes = line.code.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let at = (0..bytes.len()).find(|at| {
        let around = [at.wrapping_sub(1), at + 1].map(|at| bytes.get(at).copied().unwrap_or(b' '));
        bytes[*at] == b'.' && !around.contains(&b'.') && digit(at + 1) != digit(at.wrapping_sub(1))
    })?;
    let before = (0..at).rev().take_while(|i| digit(*i)).last();
    // Digits at the end of a name are no number.
    if before.is_some_and(|start| start > 0 && is_word(bytes[start - 1]))
        || before.is_none() && at > 0 && is_word(bytes[at - 1])
    {
        return None;
    }
    let start = before.unwrap_or(at);
    let end = at + 1 + (at + 1..bytes.len()).take_while(|i| digit(*i)).count();
    if bytes.get(end).is_some_and(|byte| is_word(*byte)) {
        return None;
    }
    let number = &line.code[start..end];
    let written = if before.is_some() { format!("{number}0") } else { format!("0{number}") };
    Some(Hit::new(
        start..end,
        "a number has digits on either side of its point",
        format!("write `{written}`"),
    ))
}

/// `make_layout(make_shape(64, 64), make_stride(65, 1))`.
pub(super) fn make_layout(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let at = words(code, "make_layout").next()?;
    let open = code[at.end..].find('(')? + at.end + 1;
    let mut depth = 1;
    let close = code[open..].char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    });
    let close = close.map_or(code.trim_end().len(), |(length, _)| open + length);
    let inside = |of: &str| {
        let of = of.trim();
        let made = ["make_shape", "make_stride", "make_tuple"]
            .iter()
            .find_map(|made| of.strip_prefix("cute::").unwrap_or(of).strip_prefix(made));
        made.map(|rest| rest.trim().to_string())
    };
    let parts = split(&code[open..close]);
    let help = match parts.as_slice() {
        [shape, stride] => match (inside(shape), inside(stride)) {
            (Some(shape), Some(stride)) => format!("write `{shape} : {stride}`"),
            _ => "write shape : strides, e.g. `(64, 64) : (65, 1)`".to_string(),
        },
        _ => "write shape : strides, e.g. `(64, 64) : (65, 1)`".to_string(),
    };
    Some(Hit::new(
        at.start..(close + 1).min(code.len()),
        "`make_layout` is CuTe's: a layout is shape : strides",
        help,
    ))
}

/// `tl.exp(x)`, `math.sqrt(x)`, `std::max(a, b)`: functions that the language has by the same name.
pub(super) fn module(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    MODULES.iter().find_map(|module| {
        words(code, module).find_map(|place| {
            let behind = &code[place.end..];
            let rest = behind.strip_prefix('.').or_else(|| behind.strip_prefix("::"))?;
            let (name, call) = first_word(rest);
            let end = place.end + (behind.len() - rest.len()) + name.len();
            let known = matches!(word(name), Some(Word::Function | Word::Value | Word::Call));
            if known && next(call, 0) == Some(b'(') {
                return Some(Hit::new(
                    place.start..end,
                    format!("names of modules are not written: `{name}` is a word of the language"),
                    format!("write `{name}(…)`"),
                ));
            }
            let message = format!("there is no module `{module}`, and no `{name}`");
            let unknown = !name.is_empty() && !known && place.start < end && word(name).is_none();
            unknown.then(|| {
                Hit::new(
                    place.start..end,
                    message,
                    "functions of elements are `exp`, `log`, `sqrt`, `max`, `where`, …; tiles are moved by `copy`, multiplied by `gemm`, and reduced by `reduce(x, sum, axis)`",
                )
            })
        })
    })
}
