//! Words and signs of Python, CUDA, Triton and CUTLASS in a text that does not parse: what they are there, and what is written here.
//!
//! The parser knows what it would have gone on with; this looks at the lines with mistakes, and says more where it knows what the author had in
//! mind. It never looks at a text that parses.

mod context;
mod finders;
mod table;

use std::ops::Range;

use tilewright_machine::DType;

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Span};
use crate::lexer::{LOOK_ALIKES, MAX_MISTAKES};
use crate::sources::{File, Sources};
pub(super) use context::shape_of;
use table::{Foreign, ROWS, Row};

/// A foreign word in a line, by bytes of the line.
struct Hit {
    place: Range<usize>,
    message: String,
    help: String,
}

impl Hit {
    fn new(place: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Hit {
        Hit { place, message: message.into(), help: help.into() }
    }
}

/// A line without its comment and with its strings blanked, and what the parser says of it.
struct Line<'a> {
    /// The text of its file, and its place in it.
    file: &'a str,
    at: usize,
    text: &'a str,
    /// As long as the text, with blanks where it has no code.
    code: String,
    said: Vec<&'a str>,
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// The code of a line: comments and the insides of strings become blanks. A `//` behind an operand in brackets that stay open is a division.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        let comment = c == '#' || text[at..].starts_with("//");
        if comment && !quoted {
            break;
        }
        quoted ^= c == '"';
        if quoted && c != '"' {
            code.push_str(&" ".repeat(c.len_utf8()));
        } else {
            code.push(c);
        }
    }
    code.push_str(&" ".repeat(text.len() - code.len()));
    code
}

/// The places of a word in a code, whole words alone.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, found)| at..at + found.len()).filter(move |place| {
        let before = place.start.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(|b| is_word(*b));
        let behind = bytes.get(place.end).is_some_and(|b| is_word(*b));
        !before && !behind
    })
}

/// The first byte that is no blank at a place or behind it.
fn next(code: &str, at: usize) -> Option<u8> {
    code.as_bytes().get(at..)?.iter().copied().find(|b| !b.is_ascii_whitespace())
}

/// The last byte that is no blank before a place.
fn last(code: &str, at: usize) -> Option<u8> {
    code.as_bytes().get(..at)?.iter().rev().copied().find(|b| !b.is_ascii_whitespace())
}

/// The name that ends before a place, with what is called or indexed there.
fn operand_before(code: &str, at: usize) -> &str {
    let bytes = code.as_bytes();
    let mut start = at;
    let mut depth = 0;
    while start > 0 {
        match bytes[start - 1] {
            b')' | b']' => depth += 1,
            b'(' | b'[' if depth == 0 => break,
            b'(' | b'[' => depth -= 1,
            byte if depth == 0 && !is_word(byte) => break,
            _ => {}
        }
        start -= 1;
    }
    &code[start..at]
}

/// True if a text declares a name: a constant, a size, a parameter, a function or a result.
fn declares(text: &str, name: &str) -> bool {
    words(text, name).any(|place| {
        let behind = text[place.end..].trim_start();
        let function = text[..place.start].trim_end().ends_with("fn");
        function || (behind.starts_with('=') && !behind.starts_with("==")) || behind.starts_with(':')
    })
}

/// The place of a row's word or sign in a line.
fn place_of(row: &Row, line: &Line<'_>, text: &str) -> Option<Range<usize>> {
    let code = line.code.as_str();
    let called = |place: &Range<usize>| next(code, place.end) == Some(b'(');
    // Not `tl.name` and not `r.name`, which other rows have.
    let alone = |place: &Range<usize>| last(code, place.start) != Some(b'.');
    // Not the name of a role, a function or a kernel.
    let named = |place: &Range<usize>| {
        let before = code[..place.start].trim_end();
        ["warpgroup", "fn", "kernel"].iter().any(|word| before.ends_with(word))
    };
    match &row.0 {
        Foreign::Word(word) => words(code, word).find(alone).filter(|_| !declares(text, word)),
        Foreign::Call(word) => words(code, word)
            .find(|place| called(place) && alone(place) && !named(place))
            .filter(|_| !declares(text, word)),
        Foreign::Of(modules, name) => words(code, name).find_map(|place| {
            let before = code[..place.start].strip_suffix('.')?;
            let module =
                modules.iter().find(|module| words(before, module).any(|at| at.end == before.len()))?;
            Some(before.len() - module.len()..place.end)
        }),
        Foreign::Method(name) => words(code, name).find_map(|place| {
            let before = code[..place.start].strip_suffix('.')?;
            let owner = operand_before(code, before.len());
            let known = ["block", "copy", "gemm", ""].contains(&owner)
                || finders::MODULES.contains(&owner)
                || owner.starts_with(|c: char| c.is_ascii_digit());
            (!known).then(|| place.start - 1..place.end)
        }),
        Foreign::Sign(sign) => {
            // A type may have two pairs of brackets: an array of tensors.
            let of_type = |at: usize| {
                let before = operand_before(code, at + 1).split('[').next();
                before.is_some_and(|name| name.parse::<DType>().is_ok())
            };
            let mut found = code.match_indices(sign).map(|(at, _)| at);
            found.find(|at| !of_type(*at)).map(|at| at..at + sign.len())
        }
        Foreign::Begins(word) => {
            let at = code.len() - code.trim_start().len();
            let place = at..at + word.len();
            let begins =
                code[at..].starts_with(word) && !code.as_bytes().get(place.end).is_some_and(|b| is_word(*b));
            (begins && next(code, place.end) != Some(b'=')).then_some(place)
        }
        Foreign::Type(word) => words(code, word).find(|place| {
            let before = code[..place.start].trim_end();
            let made = ["register_tensor(", "shared_tensor("].iter().any(|call| before.ends_with(call));
            let cast = before.ends_with(',')
                && code[..place.start].contains("cast(")
                && next(code, place.end) == Some(b')');
            made || cast || (before.ends_with(':') && before.contains('('))
        }),
        Foreign::Named(word) => words(code, word).find(|place| {
            let behind = code[place.end..].trim_start();
            let before = &code[..place.start];
            let inside = before.matches('(').count() > before.matches(')').count();
            inside && behind.starts_with('=') && !behind.starts_with("==")
        }),
    }
}

/// The text with the operands on either side of a place put in.
fn filled(help: &str, line: &Line<'_>, place: &Range<usize>, sign: bool) -> String {
    let code = line.code.as_str();
    let before = if sign { code[..place.start].trim() } else { operand_before(code, place.start) };
    let after = code[place.end..].trim().trim_end_matches(';').trim_end();
    let inside = code[place.end..].trim_start().strip_prefix('(').map_or("…", |rest| {
        let mut depth = 1;
        let end = rest.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0
        });
        end.map_or(rest, |(at, _)| &rest[..at]).trim()
    });
    help.replace("{before}", before).replace("{after}", after).replace("{inside}", inside)
}

/// `for i in range(a, b):` and `for (int i = a; i < b; i++)`.
fn loops(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let begin = code.len() - code.trim_start().len();
    let place = begin..code.trim_end().len();
    if let Some(head) =
        code[begin..].strip_prefix("for").map(str::trim_start).and_then(|rest| rest.strip_prefix('('))
    {
        // `for (i, j) in tiles(…)` has no `;`.
        let (init, rest) = head.split_once(';')?;
        let bound = rest.split(';').next()?;
        let (name, first) = init.split_once('=')?;
        let name = name.split_whitespace().last()?;
        let less = bound.split_once("<=").map(|(_, to)| format!("{} + 1", to.trim()));
        let upto = less.or_else(|| Some(bound.split_once('<')?.1.trim().to_string()))?;
        return Some(Hit::new(
            place,
            "this is C's `for`",
            format!("write `for {name} in {}..{upto} {{`", first.trim()),
        ));
    }
    let (head, arguments) = code[begin..].split_once("range(")?;
    let name = head.strip_prefix("for")?.trim().strip_suffix("in")?.trim();
    let mut depth = 1;
    let end = arguments.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    });
    let inside = &arguments[..end.map_or(arguments.trim_end().len(), |(at, _)| at)];
    let parts = split(inside);
    let written = match parts.as_slice() {
        [to] => format!("write `for {name} in 0..{to} {{`"),
        [from, to] => format!("write `for {name} in {from}..{to} {{`"),
        [from, to, step] if from == "0" => {
            format!(
                "write `for {name} in 0..ceil_div({to}, {step}) {{`, and `{name} * {step}` where `{name}` stood"
            )
        }
        [from, to, step] => format!(
            "write `for {name} in 0..ceil_div({to} - {from}, {step}) {{`, and `{from} + {name} * {step}` where `{name}` stood"
        ),
        _ => return None,
    };
    Some(Hit::new(place, "`range` is Python's: a loop names its bounds", written))
}

/// The operands of a call, at the commas outside of brackets.
fn split(arguments: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in arguments.chars() {
        depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.into_iter().map(|part| part.trim().to_string()).collect()
}

/// Lines of C's preprocessor, which are comments here.
fn preprocessor(line: &Line<'_>) -> Option<Hit> {
    let at = line.text.len() - line.text.trim_start().len();
    let place = at..line.text.trim_end().len();
    let rest = line.text[at..].strip_prefix('#')?;
    let comment = "is a comment here, as all that begins with `#`";
    if let Some(defined) = rest.strip_prefix("define ") {
        let (name, value) = defined.trim().split_once(char::is_whitespace)?;
        return Some(Hit::new(
            place,
            format!("`#define` {comment}"),
            format!("write `const {name} = {}`", value.trim()),
        ));
    }
    if rest.starts_with("pragma unroll") {
        return Some(Hit::new(place, format!("`#pragma` {comment}"), "write `unroll for i in 0..n { … }`"));
    }
    rest.starts_with("include").then(|| {
        Hit::new(place, format!("`#include` {comment}"), "leave it out, or write `use \"file.tile\"`")
    })
}

/// `c ? a : b`.
fn ternary(line: &Line<'_>) -> Option<Hit> {
    let code = line.code.as_str();
    let at = code.find('?')?;
    let (then, otherwise) = code[at + 1..].split_once(':')?;
    let condition = code[..at]
        .rsplit(['=', '(', ','])
        .next()
        .filter(|_| !code[..at].contains("=="))
        .unwrap_or(&code[..at]);
    // `==`, `<=` and `>=` end in the sign of an assignment.
    let condition = code[..at].split_once(" = ").map_or(condition, |(_, condition)| condition);
    Some(Hit::new(
        at..at + 1,
        "there is no `? :`",
        format!("write `where({}, {}, {})`", condition.trim(), then.trim(), otherwise.trim()),
    ))
}

/// `"-inf"`, `float("inf")`.
fn quoted(line: &Line<'_>) -> Option<Hit> {
    let found = [
        "float(\"-inf\")",
        "float('-inf')",
        "\"-inf\"",
        "'-inf'",
        "float(\"inf\")",
        "float('inf')",
        "\"inf\"",
        "'inf'",
    ];
    let (text, at) = found.iter().find_map(|text| Some((*text, line.text.find(text)?)))?;
    let number = if text.contains("-inf") { "-inf" } else { "inf" };
    Some(Hit::new(
        at..at + text.len(),
        "an infinity is a number, without quotes",
        format!("write `{number}`"),
    ))
}

/// `0.5f`, `1.0h`.
fn suffix(line: &Line<'_>) -> Option<Hit> {
    let bytes = line.code.as_bytes();
    let at = (1..bytes.len()).find(|at| {
        let number = bytes[*at - 1].is_ascii_digit()
            || (bytes[*at - 1] == b'.' && *at > 1 && bytes[*at - 2].is_ascii_digit());
        let ends = !bytes.get(at + 1).is_some_and(|b| is_word(*b));
        number && ends && matches!(bytes[*at], b'f' | b'F' | b'h' | b'u' | b'U' | b'L')
    })?;
    // Digits, a point, and an exponent with its sign.
    let part = |i: usize| {
        let exponent = matches!(bytes[i], b'e' | b'E') && i > 0 && bytes[i - 1].is_ascii_digit();
        let sign = matches!(bytes[i], b'+' | b'-') && i > 1 && matches!(bytes[i - 1], b'e' | b'E');
        bytes[i].is_ascii_digit() || bytes[i] == b'.' || exponent || sign
    };
    let start = (0..at).rev().take_while(|i| part(*i)).last()?;
    // Part of a name, such as `x2f`.
    if start > 0 && is_word(bytes[start - 1]) {
        return None;
    }
    Some(Hit::new(
        start..at + 1,
        "numbers have no suffix: what stands beside them gives their type",
        format!("write `{}`", &line.code[start..at]),
    ))
}

/// A division by `//`, which begins a comment.
fn floor_division(line: &Line<'_>) -> Option<Hit> {
    if let Some((before, after)) = line.text.split_once("//=") {
        let (before, after) = (before.trim(), after.trim());
        let at = line.text.len() - line.text.trim_start().len() + before.len();
        let at = at..at + line.text[at..].find("//=").map_or(0, |blanks| blanks + 3);
        return Some(Hit::new(
            at,
            "`//` begins a comment",
            format!("write `{before} = {before} / {after}`, which rounds down where integers are divided"),
        ));
    }
    let at = line.text.find("//").filter(|_| line.said.iter().any(|said| said.contains("never closed")))?;
    let operand = last(line.text, at).is_some_and(|b| is_word(b) || b == b')');
    let closes = line.text[at..].contains([')', ']']);
    (operand && closes).then(|| {
        Hit::new(
            at..at + 2,
            "`//` begins a comment",
            "write `/`, which rounds down where integers are divided",
        )
    })
}

/// `let t = exp(r)`.
fn let_of_a_tensor(line: &Line<'_>) -> Option<Hit> {
    let at = line.code.len() - line.code.trim_start().len();
    let rest = line.code[at..].strip_prefix("let ")?;
    line.said.iter().any(|said| said.contains("no function")).then(|| {
        Hit::new(
            at..at + 3,
            "`let` names an integer; a tensor is assigned without it",
            format!("write `{}`", rest.trim()),
        )
    })
}

/// `x[a : b]` in a copy.
fn slice(line: &Line<'_>) -> Option<Hit> {
    let at = line.code.find("copy(").filter(|_| line.said.iter().any(|said| said.contains("found `:`")))?;
    Some(Hit::new(
        at..line.code.trim_end().len(),
        "a copy takes a view, and a view says where its tile begins and how large it is",
        "write `g = global_view(x[block.x * BM :, i * BN :], (BM, BN) : (e0, e1))` and `copy(g, r)`",
    ))
}

/// Characters outside of ASCII that look like others.
fn look_alikes(line: &Line<'_>) -> Option<Hit> {
    let (at, c) = line.code.char_indices().find(|(_, c)| !c.is_ascii())?;
    let place = at..at + c.len_utf8();
    let message = format!("`{}` (U+{:04X}) is no character of the language", c.escape_debug(), u32::from(c));
    let meant = LOOK_ALIKES.iter().find(|(alike, _)| *alike == c)?.1;
    let whole: String = line
        .code
        .chars()
        .map(|c| {
            LOOK_ALIKES
                .iter()
                .find(|(alike, _)| *alike == c)
                .map_or(c.to_string(), |(_, meant)| (*meant).to_string())
        })
        .collect();
    let meant = if meant.trim().is_empty() { "a blank".to_string() } else { format!("`{meant}`") };
    Some(Hit::new(place, message, format!("{meant} is meant: `{}`", whole.trim())))
}

/// Finders of what no single word or sign shows, before the rows of the table.
const FINDERS: [fn(&Line<'_>) -> Option<Hit>; 22] = [
    preprocessor,
    look_alikes,
    finders::decorator,
    context::thread_index,
    context::while_loop,
    context::elif,
    context::atomic,
    context::shuffle,
    context::reduction,
    finders::declaration,
    loops,
    quoted,
    ternary,
    suffix,
    floor_division,
    let_of_a_tensor,
    slice,
    finders::conditional,
    finders::pointer,
    context::block_index,
    finders::make_layout,
    finders::cast,
];

/// Finders of what is said where no row of the table fits.
const LAST: [fn(&Line<'_>) -> Option<Hit>; 3] = [finders::module, finders::negation, finders::point];

/// The first foreign word of a line.
fn hit(line: &Line<'_>, text: &str) -> Option<Hit> {
    if let Some(hit) = FINDERS.iter().find_map(|find| find(line)) {
        return Some(hit);
    }
    let row = ROWS.iter().find_map(|row| {
        let place = place_of(row, line, text)?;
        let sign = matches!(row.0, Foreign::Sign(_));
        let help = filled(row.2, line, &place, sign);
        Some(Hit::new(place, row.1, help))
    });
    row.or_else(|| LAST.iter().find_map(|find| find(line)))
}

/// The bytes of a line of a file's text, with its number.
fn lines<'a>(file: &File<'a>) -> impl Iterator<Item = (usize, &'a str)> {
    let mut start = 0;
    file.text.split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        (at, line.trim_end_matches(['\n', '\r']))
    })
}

/// Messages about a text with those about foreign words in the place of what the parser says of their lines. Lines in parts that were `passed`,
/// without being read, are looked at too.
pub(super) fn explained(sources: &Sources, diagnostics: Diagnostics, passed: &[Span]) -> Diagnostics {
    let said = |file: &File<'_>, (start, line): (usize, &str)| {
        let first = file.start as usize + start;
        let range = first..=first + line.len();
        let about =
            move |d: &&Diagnostic| d.span.text().is_some_and(|span| range.contains(&(span.start as usize)));
        diagnostics.0.iter().filter(about)
    };
    let mut found: Vec<Diagnostic> = Vec::new();
    // Messages of the parser in whose place others are.
    let mut replaced: Vec<&Diagnostic> = Vec::new();
    for file in sources.all() {
        let any = lines(&file).any(|line| said(&file, line).next().is_some());
        for (start, text) in lines(&file) {
            let about: Vec<&Diagnostic> = said(&file, (start, text)).collect();
            let at = file.start as usize + start;
            let unread = |span: &Span| (span.start as usize) < at + text.len() && at < span.end as usize;
            let wrong = !about.is_empty() || passed.iter().any(unread);
            let said = about.iter().map(|d| d.message.as_str()).collect();
            let mut line = Line { file: file.text, at: start, text, code: code_of(text), said };
            // A foreign word for each message about the line.
            for number in 0..about.len().max(1) {
                let hit = if wrong { hit(&line, file.text) } else { preprocessor(&line).filter(|_| any) };
                let Some(Hit { place, message, help }) = hit else { break };
                let span = Span::new(at + place.start, at + place.end);
                if found.iter().any(|known| known.span.text() == Some(span)) {
                    break;
                }
                found.push(Diagnostic::new(Code::Syntax, span, message).help(help));
                replaced.extend(about.get(number));
                line.code.replace_range(place.clone(), &" ".repeat(place.len()));
                line.said.clear();
            }
        }
    }
    if found.is_empty() {
        return diagnostics;
    }
    let helps = found.iter().filter_map(|d| d.help.as_deref()?.strip_prefix("write `const "));
    let defined: Vec<String> =
        helps.filter_map(|help| Some(format!("`{}`", help.split(' ').next()?))).collect();
    let mut all: Vec<Diagnostic> = diagnostics
        .0
        .iter()
        .filter(|d| {
            let told = replaced.iter().any(|known| std::ptr::eq(*known, *d));
            // What overlaps is about the same words.
            let overlaps = |hit: &Diagnostic| match (hit.span.text(), d.span.text()) {
                (Some(hit), Some(said)) => hit.start < said.end && said.start < hit.end,
                _ => false,
            };
            // A name that `#define` would have made is explained there.
            let defines = |name: &String| d.message.contains(name.as_str());
            let defined = d.code == Code::UnknownName && defined.iter().any(defines);
            !(told || defined || found.iter().any(overlaps))
        })
        .cloned()
        .collect();
    all.extend(found);
    all.sort_by_key(|d| d.span.key());
    all.truncate(MAX_MISTAKES);
    Diagnostics(all)
}
