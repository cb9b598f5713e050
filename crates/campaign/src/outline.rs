//! Elementwise statements moved into functions: a function that is put in the place of its call gives the same program.

use std::collections::{BTreeSet, HashMap};

use tilewright::tile::{Program, Sources, Stmt, StmtKind, named_statement_text, parse_module, words};

/// Names of a text, each once, in order.
fn names(text: &str) -> Vec<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found: Vec<&str> = Vec::new();
    for word in text.split(|c: char| !part(c)).filter(|word| !word.is_empty()) {
        if !word.starts_with(|c: char| c.is_ascii_digit()) && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}

/// The text of a program in which every elementwise statement is the call of a function; `None` of one without any.
pub fn outlined(program: &Program) -> Option<String> {
    let own: BTreeSet<&str> = program
        .tensors
        .iter()
        .map(|t| t.name.as_str())
        .chain(program.params.iter().map(|p| p.name.as_str()))
        .chain(program.symbols.iter().map(|s| s.name.as_str()))
        .filter(|name| words().all(|(word, _)| word != *name))
        .collect();
    let mut lines: HashMap<String, String> = HashMap::new();
    let mut functions = String::new();
    each(&program.body, &mut |stmt| {
        if !matches!(stmt.kind, StmtKind::Elementwise { .. }) {
            return;
        }
        let text = named_statement_text(program, stmt);
        let Some((name, value)) = text.split_once(" = ") else { return };
        let params: Vec<&str> = names(value).into_iter().filter(|name| own.contains(name)).collect();
        let number = lines.len();
        let call = format!("{name} = outlined_{number}({})", params.join(", "));
        if lines.contains_key(&text) {
            return;
        }
        functions.push_str(&format!("fn outlined_{number}({}) {{ return {value} }}\n", params.join(", ")));
        lines.insert(text.clone(), call);
    });
    if lines.is_empty() {
        return None;
    }
    let printed = program.to_string();
    let moved = printed.lines().map(|line| match lines.get(line.trim_start()) {
        Some(call) => format!("{call}\n"),
        None => format!("{line}\n"),
    });
    let body: String = moved.collect();
    Some(format!("{body}\n{functions}"))
}

/// Calls `visit` for every statement.
fn each(body: &[Stmt], visit: &mut impl FnMut(&Stmt)) {
    for stmt in body {
        visit(stmt);
        each(stmt.kind.body(), visit);
    }
}

/// All texts that a message about this text may be about: with those of libraries.
pub fn texts(text: &str) -> Sources {
    let none = |_: &str, _: &str| Err("a random program uses no files".to_string());
    match parse_module(Sources::new("", text), &mut { none }) {
        Ok(module) => module.sources,
        Err(wrong) => wrong.sources,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright::tile::parse;

    #[test]
    fn an_outlined_program_is_the_same() {
        let program = parse(
            "size n = 100
            const T = 64
            kernel k(x: f32[n], y: f32[n], s: f32 = 2.0) grid(ceil_div(n, T)) threads(32) {
                gx = global_view(x[block.x * T :], (T) : (e0))
                gy = global_view(y[block.x * T :], (T) : (e0))
                r = register_tensor(f32, [T])
                copy(gx, r)
                for i in 0..3 { r = exp(r * s) + float(i + T) }
                t = r - 1.0
                copy(t, gy)
            }",
        )
        .unwrap();
        let text = outlined(&program).unwrap();
        assert!(text.contains("outlined_0(r, s, i, T)"), "{text}");
        assert_eq!(parse(&text).unwrap(), program);
    }
}
