//! Finders that look at the text around a line: what a foreign statement becomes depends on what the file declares and does.

use super::{Hit, Line, is_word, split, words};

/// The name and the value of an assignment on a line; nothing for comparisons and for lines that begin with a word of their own.
fn assigned(code: &str) -> Option<(&str, &str)> {
    let (name, value) = code.split_once('=')?;
    let name = name.trim().strip_prefix("let ").unwrap_or(name.trim()).trim();
    let whole = !name.is_empty() && name.bytes().all(is_word);
    let value = value.trim().trim_end_matches(';').trim_end();
    (whole && !value.starts_with('=') && !value.is_empty()).then_some((name, value))
}

/// Lines of a file without their comments.
fn codes(file: &str) -> impl Iterator<Item = &str> {
    file.lines().map(|line| line.split("//").next().unwrap_or("").split('#').next().unwrap_or(""))
}

/// The value that a file assigns to a name.
fn value_of<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    codes(file).find_map(|code| assigned(code).filter(|(known, _)| *known == name)).map(|(_, value)| value)
}

/// The type and the shape of a register tensor that a file declares.
fn register(file: &str, name: &str) -> Option<(String, String)> {
    let inside = value_of(file, name)?.strip_prefix("register_tensor(")?;
    let (dtype, shape) = inside.split_once(',')?;
    let shape = shape.trim().strip_prefix('[')?.split(']').next()?;
    Some((dtype.trim().to_string(), shape.to_string()))
}

/// The type and the extents of a tensor parameter that a file declares.
fn parameter(file: &str, name: &str) -> Option<(String, Vec<String>)> {
    words(file, name).find_map(|place| {
        let rest = file[place.end..].trim_start().strip_prefix(':')?.trim_start();
        let (dtype, rest) = rest.split_at(rest.bytes().take_while(|byte| is_word(*byte)).count());
        let shape = rest.strip_prefix('[')?.split(']').next()?;
        (!dtype.is_empty()).then(|| (dtype.to_string(), split(shape)))
    })
}

/// The sizes that a file declares, in its order.
fn sizes(file: &str) -> Vec<&str> {
    let lists = codes(file).filter_map(|code| code.trim_start().strip_prefix("size "));
    lists.flat_map(|list| list.split(',')).filter_map(|entry| Some(entry.split_once('=')?.0.trim())).collect()
}

/// The shape of a parameter whose text has none: as many modes as its first index has, of the sizes that the file declares.
pub(crate) fn shape_of(file: &str, name: &str) -> String {
    let modes = words(file, name).find_map(|place| {
        let index = file[place.end..].strip_prefix('[')?;
        let mut depth = 0;
        let end = index.char_indices().find(|(_, c)| {
            depth += i32::from("[(".contains(*c)) - i32::from("])".contains(*c));
            depth < 0
        });
        Some(split(&index[..end?.0]).len())
    });
    let known = sizes(file);
    let usual = ["n"].as_slice();
    let of_two = ["m", "n"].as_slice();
    match (modes.unwrap_or(known.len()), known.len()) {
        (modes, declared) if modes > 0 && modes <= declared => known[..modes].join(", "),
        (2, _) => of_two.join(", "),
        _ => usual.join(", "),
    }
}

/// The inside of the brackets that open at a place, and the place behind them.
fn bracketed(code: &str, open: usize) -> Option<(&str, usize)> {
    let mut depth = 0;
    let close = code[open..].char_indices().find(|(_, c)| {
        depth += i32::from("([".contains(*c)) - i32::from(")]".contains(*c));
        depth == 0
    })?;
    Some((&code[open + 1..open + close.0], open + close.0 + 1))
}

/// A call of one of these functions, with its operands: its place with a module before it, the name, the operands.
fn call<'a>(code: &str, names: &[&'a str]) -> Option<(std::ops::Range<usize>, &'a str, Vec<String>)> {
    names.iter().find_map(|name| {
        words(code, name).find_map(|place| {
            let open = place.end + code[place.end..].find(|c: char| !c.is_whitespace())?;
            let (inside, end) = (code.as_bytes()[open] == b'(').then(|| bracketed(code, open))??;
            let module = code[..place.start].strip_suffix('.').map_or("", |before| {
                let start = before.bytes().rev().take_while(|byte| is_word(*byte)).count();
                &before[before.len() - start..]
            });
            let start = if module.is_empty() { place.start } else { place.start - module.len() - 1 };
            Some((start..end, *name, split(inside)))
        })
    })
}

/// `pid = tl.program_id(0)`, `row = blockIdx.x * BM`.
pub(super) fn block_index(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let axes = ["x", "y", "z"];
    let called = call(code, &["program_id", "bid"]).and_then(|(place, name, operands)| {
        let axis = operands.first()?.rsplit('=').next()?.trim().parse::<usize>().ok()?;
        let module = code[place.clone()].split('.').next()?;
        let modules = [("tl", "Triton"), ("pl", "Pallas"), ("ct", "cuTile")];
        let (_, of) = modules.into_iter().find(|(known, _)| *known == module)?;
        Some((place, format!("`{name}` is {of}'s name of a block's index"), *axes.get(axis)?))
    });
    let named = || {
        words(code, "blockIdx").find_map(|place| {
            let axis = code[place.end..].strip_prefix('.')?;
            let axis = axes.into_iter().find(|known| axis.starts_with(known))?;
            let message = "`blockIdx` is CUDA's name of a block's index".to_string();
            Some((place.start..place.end + 2, message, axis))
        })
    };
    let (place, message, axis) = called.or_else(named)?;
    let written = format!("block.{axis}");
    // The line as it was, with what earlier messages are about.
    let text = super::code_of(line.text);
    let whole =
        format!("{}{written}{}", &text[..place.start], &text[place.end..]).replace("blockIdx.", "block.");
    // An integer: operators between names and numbers, and no call but of `ceil_div`.
    let plain = |value: &str| {
        let value = value.replace("ceil_div(", "(");
        let called = value.match_indices('(').any(|(at, _)| value[..at].bytes().last().is_some_and(is_word));
        !called && !value.contains(['[', '"']) && !value.contains("Idx") && !value.contains("Dim")
    };
    let help = match assigned(&whole).filter(|(_, value)| plain(value)) {
        Some((name, value)) => format!("write `let {name} = {value}`"),
        None => format!("write `{written}`"),
    };
    Some(Hit::new(place, message, help))
}

/// `while i < n {`, with the lines that count.
pub(super) fn while_loop(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let at = code.len() - code.trim_start().len();
    let condition = code[at..].strip_prefix("while")?;
    let condition = condition.trim().trim_end_matches(['{', ':']).trim();
    let condition = condition.strip_prefix('(').and_then(|c| c.strip_suffix(')')).unwrap_or(condition).trim();
    let (name, bound) = condition.split_once('<')?;
    let (name, bound) = (name.trim(), bound.trim());
    let bound = bound.strip_prefix('=').map_or(bound.to_string(), |bound| format!("{} + 1", bound.trim()));
    if name.is_empty()
        || !name.bytes().all(is_word)
        || bound.contains([' ', '<', '>']) && bound.contains(" and ")
    {
        return None;
    }
    let (before, behind) = line.file.split_at(line.at.min(line.file.len()));
    let begins = |code: &&str| {
        assigned(code.trim_start().trim_start_matches("int ")).is_some_and(|(known, _)| known == name)
    };
    let begin = codes(before).filter(begins).last()?.trim();
    let first = assigned(begin.trim_start_matches("int "))?.1.to_string();
    let (count, step) = codes(behind).skip(1).find_map(|code| {
        let code = code.trim();
        let plain = code.trim_end_matches(';');
        let step = match assigned(code) {
            Some((known, value)) if known == name => {
                value.strip_prefix(name)?.trim().strip_prefix('+')?.trim()
            }
            _ if plain == format!("{name}++") => "1",
            _ => plain.strip_prefix(name)?.trim().strip_prefix("+=")?.trim(),
        };
        Some((code, step.to_string()))
    })?;
    let goes = format!("leave `{begin}` and `{count}` out: the loop counts");
    let help = match (step.as_str(), first.as_str()) {
        ("1", _) => format!("write `for {name} in {first}..{bound} {{`, and {goes}"),
        (step, "0") => format!(
            "write `for {name} in 0..ceil_div({bound}, {step}) {{`, and {goes}; where `{name}` stood, write `{name} * {step}`"
        ),
        _ => return None,
    };
    Some(Hit::new(at..at + 5, "a loop with a condition has a counter, too: there is no `while` alone", help))
}

/// `} elif c {`.
pub(super) fn elif(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let at = code.len() - code.trim_start_matches(['}', ' ', '\t']).len();
    let word = ["elif", "elsif", "elseif"].into_iter().find(|word| {
        let rest = code[at..].strip_prefix(word);
        rest.is_some_and(|rest| rest.starts_with([' ', '(']))
    })?;
    let condition = code[at + word.len()..].trim().trim_end_matches(['{', ':']).trim();
    Some(Hit::new(
        at..at + word.len(),
        format!("there is no `{word}`"),
        format!("write `}} else if {condition} {{`"),
    ))
}

/// `atomicAdd(&h[i], 1)`, `tl.atomic_add(h + i, 1)`.
pub(super) fn atomic(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let names = ["atomicAdd", "atomicMax", "atomicMin", "atomic_add", "atomic_max", "atomic_min"];
    let (place, name, operands) = call(code, &names)?;
    let module =
        code[place.clone()].contains('.') && code[place.clone()].find('.') < code[place.clone()].find('(');
    if name.contains('_') && !module {
        return None;
    }
    let word = name.to_lowercase().replace("atomic", "").replace('_', "");
    let [target, value, ..] = operands.as_slice() else { return None };
    let target = target.trim_start_matches('&').trim();
    let (of, index) = match target.split_once('[') {
        Some((of, index)) => (of.trim(), index.trim_end_matches(']').trim()),
        None => target.split_once('+').map(|(of, index)| (of.trim(), index.trim()))?,
    };
    if of.is_empty() || !of.bytes().all(is_word) {
        return None;
    }
    let mut steps = Vec::new();
    // An index of one element is where the view begins; one in registers indexes the view.
    let is_let = codes(line.file).any(|code| {
        let value = code.trim_start().strip_prefix("let ").and_then(assigned);
        value.is_some_and(|(known, _)| known == index)
    });
    let single = is_let || index.bytes().all(|byte| byte.is_ascii_digit());
    let (view, dtype) = match parameter(line.file, of) {
        Some((dtype, extents)) if single && extents.len() == 1 => {
            steps.push(format!("`g = global_view({of}[{index} :], (1) : (e0))`"));
            ("g".to_string(), dtype)
        }
        _ if single => return None,
        Some((dtype, extents)) => {
            let modes: Vec<String> = (0..extents.len()).map(|mode| format!("e{mode}")).collect();
            steps.push(format!("`g = global_view({of}, ({}) : ({}))`", extents.join(", "), modes.join(", ")));
            ("g".to_string(), dtype)
        }
        None => {
            let inside = value_of(line.file, of).and_then(|value| value.strip_prefix("global_view("));
            let buffer = inside.map(|inside| inside.split([',', '[']).next().unwrap_or("").trim());
            let known = buffer.and_then(|buffer| parameter(line.file, buffer));
            (of.to_string(), known.map_or("i32".to_string(), |(dtype, _)| dtype))
        }
    };
    let number = value.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let value = match number {
        true => {
            let shape = index.split(',').find_map(|index| register(line.file, index.trim()));
            let unknown = if single { "1" } else { "T" };
            let shape = shape.map_or(unknown.to_string(), |(_, shape)| shape);
            let number = value.trim_end_matches('f');
            steps.push(format!("`ones = register_tensor({dtype}, [{shape}])`"));
            steps.push(format!("`fill(ones, {number})`"));
            "ones"
        }
        false => value.as_str(),
    };
    let view = if single { view } else { format!("{view}[{index}]") };
    let begins = code[..place.start].trim();
    steps.push(match begins.strip_suffix('=') {
        Some(result) => format!("`{} = atomic_{word}({view}, {value})`", result.trim()),
        None => format!("`copy({value}, {view}, {word})`"),
    });
    let message = match name.contains('_') {
        true => format!("`{name}` takes a view here, and a register tensor"),
        false => format!("`{name}` is CUDA's: tiles are added, element by element"),
    };
    let message =
        if word == "add" { message } else { message.replace(": tiles are added, element by element", "") };
    Some(Hit::new(place, message, format!("write {}", steps.join(", "))))
}

/// `let i = block.x * T + threadIdx.x`, and the statement that computes element `i`.
pub(super) fn thread_index(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let place = words(code, "threadIdx").next()?;
    let axis = code[place.end..].strip_prefix('.').is_some_and(|rest| rest.starts_with(['x', 'y', 'z']));
    let place = place.start..place.end + if axis { 2 } else { 0 };
    let message = "a tile program has no thread's index: a statement computes a whole tile";
    let help = tile_statements(line).unwrap_or_else(|| {
        "write the statement for the tile: `g = global_view(x[block.x * T :], (T) : (e0))`, `r = register_tensor(f32, [T])`, `copy(g, r)`, and \
         `r = …`; the coordinate of an element along a mode is `index(axis)`"
            .to_string()
    });
    Some(Hit::new(place, message, help))
}

/// The views, copies and the expression that stand for `y[i] = f(x[i], y[i])`.
fn tile_statements(line: &Line<'_>) -> Option<String> {
    let code = line.code.trim();
    let code = code.strip_prefix("let ").or_else(|| code.strip_prefix("int ")).unwrap_or(code);
    let (name, value) = assigned(code)?;
    let value = value.replace("blockIdx", "block");
    let (start, thread) = value.split_once('+')?;
    let (start, thread) = (start.trim(), thread.trim());
    let (start, thread) = if start.contains("threadIdx") { (thread, start) } else { (start, thread) };
    let extent =
        start.split('*').map(str::trim).find(|part| !part.starts_with("block.x") && !part.is_empty())?;
    if thread.trim() != "threadIdx.x" || !start.contains("block.x") {
        return None;
    }
    let threads = || line.file.split_once("threads(")?.1.split(')').next();
    let extent = if extent == "blockDim.x" { threads()?.trim() } else { extent };
    if extent.contains('.') {
        return None;
    }
    let index = format!("[{name}]");
    let statement = codes(&line.file[line.at.min(line.file.len())..]).skip(1).find_map(|code| {
        let (target, value) = code.trim().split_once(&index)?;
        let value = value.trim().strip_prefix('=').filter(|value| !value.starts_with('='))?;
        Some((target.trim(), value.trim().trim_end_matches(['}', ';', ' '])))
    })?;
    let (target, value) = statement;
    let mut tensors: Vec<&str> = Vec::new();
    for (at, _) in value.match_indices(&index) {
        let length = value[..at].bytes().rev().take_while(|byte| is_word(*byte)).count();
        let tensor = &value[at - length..at];
        if !tensors.contains(&tensor) {
            tensors.push(tensor);
        }
    }
    let mut steps = Vec::new();
    let mut tile = value.to_string();
    let views: Vec<&str> =
        tensors.iter().copied().chain((!tensors.contains(&target)).then_some(target)).collect();
    for of in views {
        let (dtype, extents) = parameter(line.file, of)?;
        if extents.len() != 1 {
            return None;
        }
        steps.push(format!("`g{of} = global_view({of}[block.x * {extent} :], ({extent}) : (e0))`"));
        if tensors.contains(&of) {
            steps.push(format!("`r{of} = register_tensor({dtype}, [{extent}])`"));
            steps.push(format!("`copy(g{of}, r{of})`"));
            tile = tile.replace(&format!("{of}{index}"), &format!("r{of}"));
        }
    }
    Some(format!(
        "write for the whole tile {}, `copy({tile}, g{target})`, without `{name}` and without a test of it: copies leave out what lies outside",
        steps.join(", ")
    ))
}

/// `r += __shfl_xor_sync(mask, r, lane)` in a loop over lanes.
pub(super) fn shuffle(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let names = ["__shfl_xor_sync", "__shfl_down_sync", "__shfl_up_sync", "__shfl_xor", "__shfl_down"];
    let (place, name, operands) = call(code, &names)?;
    let of = operands.get(usize::from(name.ends_with("_sync")))?;
    let op = match () {
        () if code.contains("max(") => "max",
        () if code.contains("min(") => "min",
        () => "sum",
    };
    let axis = register(line.file, of).map_or(0, |(_, shape)| split(&shape).len() - 1);
    let value = format!("reduce({of}, {op}, {axis})");
    let used = codes(&line.file[line.at.min(line.file.len())..])
        .skip(1)
        .find(|code| words(code, of).next().is_some());
    let replaced = used.and_then(|code| {
        let place = words(code, of).next()?;
        Some(format!("{}{value}{}", &code[..place.start], &code[place.end..]).trim().to_string())
    });
    let help = match replaced {
        Some(written) => {
            format!("leave the loop out: the reduction is one call, `{value}`; write `{written}`")
        }
        None => format!("leave the loop out: the reduction is one call, `{value}`"),
    };
    Some(Hit::new(
        place.start..place.start + name.len(),
        "threads exchange nothing by hand here: a tile is reduced as a whole",
        help,
    ))
}

/// `sum(e, 1)`, `torch.max(x, dim=1)`, with the other reductions of the file that are written so.
pub(super) fn reduction(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let (place, name, operands) = call(code, &["sum", "amax", "amin", "max", "min"])?;
    let module = code[place.clone()].find('.').is_some_and(|at| at < place.len() - name.len())
        && !code[place.clone()].starts_with(name);
    if !module && name != "sum" || super::declares(line.file, name) {
        return None;
    }
    let (of, axis) = along(&operands)?;
    let op = name.trim_start_matches('a');
    let keep =
        if assigned(code).is_some_and(|(_, value)| value == &code[place.clone()]) { "" } else { ", keep" };
    let written = format!("reduce({of}, {op}, {axis}{keep})");
    let others: Vec<String> = codes(line.file)
        .enumerate()
        .filter_map(|(number, code)| {
            let (place, op, operands) = call(code, &["max", "min"])?;
            let [_, axis] = operands.as_slice() else { return None };
            let digits =
                !axis.is_empty() && axis.len() == 1 && axis.bytes().all(|byte| byte.is_ascii_digit());
            let (of, axis) = along(&operands).filter(|_| digits && axis != "0")?;
            let alone = code[..place.start].trim_end().ends_with('=');
            alone.then(|| {
                format!(
                    "; `{}` of line {} is of two operands: along a mode `reduce({of}, {op}, {axis}, keep)`",
                    &code[place],
                    number + 1
                )
            })
        })
        .collect();
    Some(Hit::new(
        place,
        format!(
            "a {} along a mode is a `reduce`",
            match op {
                "sum" => "sum",
                "max" => "maximum",
                _ => "minimum",
            }
        ),
        format!(
            "write `{written}`{}{}",
            if keep.is_empty() { ", with `, keep` where the mode is to stay with extent 1" } else { "" },
            others.concat()
        ),
    ))
}

/// The operand and the number of the mode in the operands of a reduction of Python.
fn along(operands: &[String]) -> Option<(&str, &str)> {
    let [of, axis, ..] = operands else { return None };
    let axis = axis
        .split_once('=')
        .filter(|(word, _)| matches!(word.trim(), "axis" | "dim"))
        .map_or(axis.as_str(), |(_, axis)| axis);
    let axis = axis.trim();
    let number = !axis.is_empty() && axis.bytes().all(|byte| byte.is_ascii_digit());
    let named = of.bytes().next().is_some_and(is_word);
    (number && named).then_some((of.as_str(), axis))
}

/// The definition of a shared tensor in the place of CUDA's array: without the padding of its rows.
pub(super) fn shared_array(file: &str, name: &str, dtype: &str, extents: &[&str]) -> String {
    let plain = format!("write `{name} = shared_tensor({dtype}, [{}])`", extents.join(", "));
    let number = |text: &str| -> Option<i64> {
        let declared = codes(file).filter_map(|code| code.trim_start().strip_prefix("const "));
        let mut declared = declared.flat_map(|list| list.split(','));
        text.trim().parse().ok().or_else(|| {
            declared.find_map(|entry| {
                let (known, value) = entry.split_once('=')?;
                (known.trim() == text.trim()).then(|| value.trim().parse().ok())?
            })
        })
    };
    let padded = || {
        let [rows, columns] = extents else { return None };
        let rows_number = number(rows)?;
        let (text, long) = match columns.split_once('+') {
            Some((columns, more)) => (columns.trim().to_string(), number(columns)? + number(more)?),
            None => {
                // Rows that are a power of two and a little have padding.
                let long = number(columns)?;
                let even =
                    (0..=16).map(|more| long - more).find(|even| *even >= 8 && even & (even - 1) == 0)?;
                let text = if number(rows) == Some(even) { (*rows).to_string() } else { even.to_string() };
                (text, long)
            }
        };
        let short = number(&text)?;
        (short < long).then(|| {
            format!(
                "write `{name} = shared_tensor({dtype}, [{rows}, {text}])`: rows need no padding, as the layout is chosen without bank conflicts; \
                 rows of {long} elements are `{name} = shared_tensor({dtype}, [{rows}, {text}], layout = ({rows_number}, {short}) : ({long}, 1))`"
            )
        })
    };
    padded().unwrap_or(plain)
}
