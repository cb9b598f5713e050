//! Source lines: `.file` and `.loc` (PTX ISA, "Debugging Directives"), of which `ptxas` makes the line table of the code.
//!
//! An instruction has the place of the last `.loc` before it in the text. What a call of a function brought has a chain of places: those of
//! the calls first, and behind each the next one with `inlined_at`, as compilers of C++ write it. The names of such functions stand
//! in a section `.debug_str`.

use std::fmt::Write;

use tilewright_simt::OriginId;

/// A place in a source file, and the function that it lies in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Index into [`Lines::files`].
    pub file: usize,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The function whose text it is, if that stands there for a call; `None` in a kernel's own text.
    pub function: Option<String>,
}

/// The source lines of a function's origins. Without files nothing is printed of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lines {
    /// The paths of the source files.
    pub files: Vec<String>,
    /// For each [origin](tilewright_simt::Function::origins) its place, and behind it the places of the calls that led there, the innermost first.
    pub places: Vec<Vec<Frame>>,
}

/// The source lines of several functions that a module holds, whose files have common numbers.
pub(crate) struct Together {
    /// The paths of the source files.
    pub(crate) files: Vec<String>,
    /// The [places](Lines::places) of each function.
    pub(crate) places: Vec<Vec<Vec<Frame>>>,
}

/// The places of a function's origins in a module.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    /// The [places](Lines::places).
    pub(crate) places: &'a [Vec<Frame>],
    /// The functions that places of the module lie in, in the order of their names in `.debug_str`.
    pub(crate) functions: &'a [&'a str],
}

impl Lines {
    /// The source lines of several functions, with common numbers of files.
    pub(crate) fn numbered_together<'a>(all: impl Iterator<Item = &'a Lines>) -> Together {
        let mut files: Vec<String> = Vec::new();
        let mut places = Vec::new();
        for lines in all {
            let number = |path: &String| {
                files.iter().position(|file| file == path).unwrap_or_else(|| {
                    files.push(path.clone());
                    files.len() - 1
                })
            };
            let numbers: Vec<usize> = lines.files.iter().map(number).collect();
            let mut numbered = lines.places.clone();
            for frame in numbered.iter_mut().flatten() {
                frame.file = numbers[frame.file];
            }
            places.push(numbered);
        }
        Together { files, places }
    }

    /// The `.file` directives.
    pub(crate) fn header(files: &[String]) -> String {
        let line = |(i, path): (usize, &String)| format!(".file {} \"{}\"\n", i + 1, quoted(path));
        files.iter().enumerate().map(line).collect()
    }

    /// The functions that places lie in, in the order of their names in `.debug_str`.
    pub(crate) fn functions(places: &[Vec<Vec<Frame>>]) -> Vec<&str> {
        let mut functions: Vec<&str> = Vec::new();
        for frame in places.iter().flatten().flatten() {
            match frame.function.as_deref() {
                Some(name) if !functions.contains(&name) => functions.push(name),
                _ => {}
            }
        }
        functions
    }

    /// The section of the functions' names.
    pub(crate) fn names(functions: &[&str]) -> String {
        if functions.is_empty() {
            return String::new();
        }
        let mut out = ".section .debug_str\n{\n".to_string();
        for (i, name) in functions.iter().enumerate() {
            let bytes: Vec<String> = name.bytes().chain([0]).map(|byte| byte.to_string()).collect();
            // Writing to a string cannot fail.
            let _ = write!(out, "$name{i}:\n.b8 {}\n", bytes.join(", "));
        }
        out + "}\n"
    }
}

impl Places<'_> {
    /// The directives in front of instructions of an origin: none where its place is not known.
    pub(crate) fn directives(&self, origin: OriginId) -> String {
        let mut out = String::new();
        let mut called: Option<String> = None;
        let place = self.places.get(origin.0 as usize).map_or(&[][..], Vec::as_slice);
        for frame in place.iter().rev() {
            let at = format!("{} {} {}", frame.file + 1, frame.line, frame.column);
            let number =
                frame.function.as_deref().and_then(|name| self.functions.iter().position(|f| *f == name));
            let inlined = match (number, called) {
                (Some(number), Some(call)) => format!(", function_name $name{number}, inlined_at {call}"),
                _ => String::new(),
            };
            let _ = writeln!(out, "    .loc {at}{inlined}");
            called = Some(at);
        }
        out
    }
}

/// Text in quotes, in the characters that PTX has (PTX ISA, "Source Format": ASCII): others, and what ends the quotes, become `?`.
fn quoted(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '"' | '\\') || !matches!(c, ' '..='~') { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(line: u32, function: Option<&str>) -> Frame {
        Frame { file: 0, line, column: 5, function: function.map(str::to_string) }
    }

    #[test]
    fn what_functions_bring_has_the_places_of_their_calls() {
        let inner = vec![frame(2, Some("f")), frame(5, Some("g")), frame(11, None)];
        let lines = Lines {
            files: vec!["ä \"b\".tile".to_string()],
            places: vec![vec![], vec![frame(9, None)], inner],
        };
        let other = Lines {
            files: vec!["c.tile".to_string(), "ä \"b\".tile".to_string()],
            places: vec![vec![frame(3, Some("g")), Frame { file: 1, ..frame(4, None) }]],
        };
        let together = Lines::numbered_together([&lines, &other].into_iter());
        let functions = Lines::functions(&together.places);
        let [first, second] = [0, 1].map(|i| Places { places: &together.places[i], functions: &functions });
        assert_eq!(Lines::header(&together.files), ".file 1 \"? ?b?.tile\"\n.file 2 \"c.tile\"\n");
        assert_eq!(first.directives(OriginId(0)), "");
        assert_eq!(first.directives(OriginId(7)), "");
        assert_eq!(first.directives(OriginId(1)), "    .loc 1 9 5\n");
        assert_eq!(
            first.directives(OriginId(2)),
            "    .loc 1 11 5\n    .loc 1 5 5, function_name $name1, inlined_at 1 11 5\n    \
             .loc 1 2 5, function_name $name0, inlined_at 1 5 5\n"
        );
        assert_eq!(
            second.directives(OriginId(0)),
            "    .loc 1 4 5\n    .loc 2 3 5, function_name $name1, inlined_at 1 4 5\n"
        );
        assert_eq!(
            Lines::names(&functions),
            ".section .debug_str\n{\n$name0:\n.b8 102, 0\n$name1:\n.b8 103, 0\n}\n"
        );
        assert_eq!(Lines::names(&[]), "");
    }
}
